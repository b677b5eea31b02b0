"""Every layer of the package in ONNX Runtime: against the NumPy oracle one by one, and in random nets against MXNet."""

from __future__ import annotations

import dataclasses
import math

import cases
import numpy as np
import oracle
import pytest
import strategies
from hypothesis import HealthCheck, assume, given, note, settings, strategies as st
from running import as_nd, by_name, difference, expected, layer, of_the_day, set_parameters

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")

from onnx_running import exported, operators, run

import mxsame
from mxsame._mxnet import mx

TOLERANCE = 1e-5  # right values differ by less, shifted ones by 0.01 and more
MOVING = {"Pad", "Slice", "Concat", "Gather", "Transpose"}  # what SAME must not need
FEW = cases.CASES[::7]
MANY = of_the_day([case for case in cases.CASES if case not in FEW], 3)
SPACE = settings(deadline=None, suppress_health_check=list(HealthCheck))
FUZZ = settings(SPACE, max_examples=settings.default.max_examples // 4)


def check_layer(case, path):
    """One layer, for its own size and for a dynamic one; it is one node, except where ONNX has no operator for it."""
    arrays, want, *_ = expected(case)
    block = layer(case)
    set_parameters(block, arrays)
    (got,) = exported(block, path, arrays["data"].astype("float32"))
    assert difference(got, want) < TOLERANCE
    needs_more = case.op == "lp_pool" and case.p_value != 2
    needs_more |= case.op == "avg_pool" and case.count_include_pad and case.ceil_mode
    needs_more |= case.op == "conv_transpose" and case.rank == 3 and max(case.dilation) > 1  # MXNet has none to note
    if not needs_more:
        assert not MOVING & operators(path).keys()
        assert len(operators(path).keys() - {"Squeeze", "Unsqueeze"}) == 1  # a line is a picture of one row
    try:
        mxsame.export_onnx(block, path, arrays["data"].shape, dynamic_size=True)
    except ValueError as error:
        assert "to serve dynamic sizes" in str(error) or "for any size that is possible" in str(error)
        assert case.strides != (1,) * case.rank or (case.ceil_mode and case.count_include_pad)
        return
    for size in case.sizes:
        other, want, *_ = expected(case, size)
        block = layer(case)
        set_parameters(block, arrays)
        (got,) = run(path, other["data"].astype("float32"))
        assert difference(got, block(as_nd(other)["data"]).asnumpy()) < TOLERANCE


@by_name(FEW)
def test_layer(case, tmp_path):
    check_layer(case, tmp_path / "net.onnx")


@pytest.mark.heavy
@by_name(MANY)
def test_layers(case, tmp_path):
    check_layer(case, tmp_path / "net.onnx")


# ---- random nets -----------------------------------------------------------------------------------------------------


@st.composite
def nets(draw):
    """Some layers one after the other, whose channels and sizes fit; (layers, size)."""
    first = draw(strategies.cases())
    layers, size, channels = [first], oracle.output_size(first), first.out_channels
    for _ in range(draw(st.integers(0, 3))):
        following = draw(strategies.cases(ranks=(first.rank,)))
        groups = following.groups if channels % following.groups == 0 else 1
        changed = dataclasses.replace(
            following,
            size=tuple(size),
            in_channels=channels,
            groups=groups,
            channels=following.channels * groups,
            name="",
        )
        if not oracle.is_legal(changed):
            break
        following_size = oracle.output_size(changed)
        if math.prod(following_size) > 4000 or changed.out_channels > 64:
            break
        layers.append(changed)
        size, channels = following_size, changed.out_channels
    return layers


@FUZZ
@given(nets(), st.integers(0, 2), st.booleans(), st.booleans(), st.sampled_from((13, 18)), st.data())
def test_random_net(tmp_path_factory, chain, between, dynamic_size, fold, opset, data):
    note(str([case.name for case in chain]))
    net = mx.gluon.nn.HybridSequential()
    for case in chain:
        net.add(layer(case))
        if between:
            net.add(mx.gluon.nn.BatchNorm(in_channels=case.out_channels), mx.gluon.nn.Activation("relu"))
            if between > 1:
                net.add(mx.gluon.nn.LeakyReLU(0.1))
    net.initialize(mx.init.Normal(0.5))
    random = np.random.default_rng(0)
    for name, parameter in net.collect_params().items():
        if "running" in name or "gamma" in name:
            parameter.set_data(mx.nd.array(random.uniform(0.5, 2, parameter.shape)))
    first = chain[0]
    array = random.normal(size=(2, first.in_channels, *first.size)).astype("float32")
    want = net(mx.nd.array(array)).asnumpy()
    assume(np.isfinite(want).all())
    path = tmp_path_factory.mktemp("fuzz") / "net.onnx"
    try:
        (got,) = exported(net, path, array, dynamic_size=dynamic_size, fold=fold, opset=opset)
    except ValueError as error:
        refused = ("dynamic", "any size that is possible", "keras-mxnet cannot run every size")
        assert dynamic_size and any(reason in str(error) for reason in refused), error
        return
    assert difference(got, want, max(1e-3, np.abs(want).max())) < 10 * TOLERANCE
    if not dynamic_size:
        return
    steps = data.draw(st.lists(st.integers(0, 9), min_size=first.rank, max_size=first.rank))
    array = random.normal(size=(1, first.in_channels, *map(sum, zip(first.size, steps)))).astype("float32")
    try:
        want = net(mx.nd.array(array)).asnumpy()
    except (ValueError, mx.base.MXNetError):  # a size that some layer refuses
        return
    (got,) = run(path, array)
    assert difference(got, want, max(1e-3, np.abs(want).max())) < 10 * TOLERANCE
