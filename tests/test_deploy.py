"""mxsame.deploy: the same outputs from a graph for inference, whatever the net is made of."""

from __future__ import annotations

import copy
import json
import threading

import cases
import numpy as np
import oracle
import pytest
import running

import mxsame
from mxsame._mxnet import mx

nn = mx.gluon.nn
FUSES = mx.runtime.Features().is_enabled("MKLDNN")


def stack(*blocks):
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


def data_of(shape, seed=0, dtype="float32"):
    return mx.nd.array(np.random.RandomState(seed).randn(*shape), dtype=dtype)


def trained(net, *shapes, seed=0):
    """The net with parameters that are not what initialisers make of them: scales, shifts and statistics too."""
    net.initialize(mx.init.Normal(0.3))
    net(*(data_of(shape) for shape in shapes))
    random = np.random.RandomState(seed)
    for name, parameter in net.collect_params().items():
        if name.endswith(("gamma", "running_var")):
            parameter.set_data(mx.nd.array(random.uniform(0.5, 1.5, parameter.shape), dtype=parameter.dtype))
        elif name.endswith(("bias", "beta", "running_mean")):
            parameter.set_data(mx.nd.array(random.randn(*parameter.shape) * 0.5, dtype=parameter.dtype))
    return net


def nodes(symbol):
    return [node for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"]


def operators(deployed):
    """Of the plain graph, in the order in which they run."""
    data = [mx.sym.var(name) for name in deployed._inputs]
    out = deployed(*data)
    return [node["op"] for node in nodes(out if isinstance(out, mx.sym.Symbol) else mx.sym.Group(list(out)))]


def assert_same(net, *shapes, batches=(1, 3), dtype="float32"):
    """The deployed net gives what the net gives, fused and plain, and for other batches; it is returned."""
    deployed = mxsame.deploy(net, shapes[0] if len(shapes) == 1 else list(shapes))
    fused = deployed._fused
    assert (fused is not None) == (FUSES and dtype == "float32")
    for turn, batch in enumerate((shapes[0][0], *batches)):
        data = [data_of((batch, *shape[1:]), seed=turn, dtype=dtype) for shape in shapes]
        kept = [array.asnumpy() for array in data]
        want = net(*data)
        for runner in (fused, None):
            deployed._fused = runner
            got = deployed(*data)
            assert_alike(got, want, 1e-5 if dtype == "float32" else 1e-12)
        for array, before in zip(data, kept):
            assert (array.asnumpy() == before).all()
    deployed._fused = fused
    return deployed


def assert_alike(got, want, tolerance):
    if isinstance(want, (list, tuple)):
        assert type(got) is type(want)
        assert len(got) == len(want)
        for have, expected in zip(got, want):
            assert_alike(have, expected, tolerance)
        return
    assert got.dtype == want.dtype
    assert running.difference(got.asnumpy(), want.asnumpy(), 1e-30) < tolerance


# ---- every case ------------------------------------------------------------------------------------------------------


@running.by_name(cases.CASES)
def test_every_case(case):
    layer = running.layer(case)
    running.set_parameters(layer, cases.arrays(case))
    arrays, want, _, _ = running.expected(case)
    got = mxsame.deploy(stack(layer), arrays["data"].shape)(mx.nd.array(arrays["data"]))
    assert running.difference(got.asnumpy(), want) < running.TOLERANCE["float32"]
