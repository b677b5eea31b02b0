"""Layers that add noise in training: there is nothing left of them in a graph for inference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mxsame
from mxsame._mxnet import mx

LAYERS = [("GaussianNoise", {"stddev": 0.5}), ("GaussianDropout", {"rate": 0.3}), ("AlphaDropout", {"rate": 0.3})]
DATA = mx.nd.array(np.linspace(0.5, 2, 60).reshape(1, 60))
RANDOM = ("random", "normal", "Dropout", "ones_like", "abs")


def network(tmp_path, layer, arguments, alone=False):
    """The layer, and one before it, unless it is alone."""
    layers = [{"class_name": "InputLayer", "config": {"name": "input", "batch_input_shape": [None, 60]}}]
    if not alone:
        layers.append({"class_name": "ReLU", "config": {"name": "relu"}})
    layers.append({"class_name": layer, "config": {"name": "noise", **arguments}})
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"class_name": "Sequential", "config": {"layers": layers}}))
    return mxsame.from_keras(path)


def operators(prefix):
    """Those of a file, without the check of the input's lengths and identities."""
    return operators_of(Path(f"{prefix}-symbol.json").read_text())


def operators_of(text):
    return [node["op"] for node in json.loads(text)["nodes"] if node["op"] not in ("null", "Reshape", "_copy")]


@pytest.mark.parametrize("alone", [False, True], ids=["after a layer", "alone"])
@pytest.mark.parametrize("layer, arguments", LAYERS)
def test_files_hold_no_noise(layer, arguments, alone, tmp_path):
    net, prefix = network(tmp_path, layer, arguments, alone), str(tmp_path / "net")

    def check():
        assert operators(prefix) == ([] if alone else ["Activation"])
        again = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], None)
        np.testing.assert_array_equal(again(DATA).asnumpy(), DATA.asnumpy())

    net.hybridize()
    net(DATA)
    net.export(prefix)
    check()
    mxsame.export(net, prefix)
    check()
    mxsame.export(net, prefix, DATA.shape)
    assert not [op for op in operators(prefix) if any(word in op for word in RANDOM)]
    deployed = mxsame.deploy(net, DATA.shape)
    assert deployed.graph.get_internals().list_outputs()[-1].startswith("output" if alone else "relu")
    assert not any(word in deployed.graph.tojson() for word in RANDOM)


@pytest.mark.parametrize("layer, arguments", LAYERS)
def test_a_net_still_trains_with_noise_after_it_was_exported(layer, arguments, tmp_path):
    net = network(tmp_path, layer, arguments)
    for hybridize in (lambda: None, net.hybridize, lambda: mxsame.hybridize(net)):
        hybridize()
        for _ in range(2):
            np.testing.assert_array_equal(net(DATA).asnumpy(), DATA.asnumpy())
            with mx.autograd.train_mode():
                assert np.abs((net(DATA) - DATA).asnumpy()).mean() > 0.1
            mxsame.deploy(net, DATA.shape)
            mxsame.export(net, str(tmp_path / "net"))
            if hybridize == net.hybridize:
                net.export(str(tmp_path / "net"))


@pytest.mark.parametrize("alone", [False, True], ids=["after a layer", "alone"])
@pytest.mark.parametrize("layer, arguments", LAYERS)
def test_what_is_made_of_a_net_around_it_holds_no_noise(layer, arguments, alone, tmp_path):
    outer, prefix = mx.gluon.nn.HybridSequential(), str(tmp_path / "net")
    outer.add(network(tmp_path, layer, arguments, alone), mx.gluon.nn.Activation("tanh"))
    for hybridize in (lambda net: None, mx.gluon.HybridBlock.hybridize, mxsame.hybridize):
        hybridize(outer)
        outer(DATA)
        for shape in (None, DATA.shape):
            mxsame.export(outer, prefix, shape)
            assert operators(prefix) == (["Activation"] if alone else ["Activation"] * 2)
        deployed = operators_of(mxsame.deploy(outer, DATA.shape).graph.tojson())
        assert [name for name in deployed if name != "_copy"] == (["Activation"] if alone else ["Activation"] * 2)
    (graph,) = outer.forward.graphs.values()
    assert not [name for name in operators_of(graph.symbol.tojson()) if any(word in name for word in RANDOM)]


@pytest.mark.parametrize("layer, arguments", LAYERS)
def test_a_graph_of_a_net_around_it_trains_and_infers(layer, arguments, tmp_path):
    outer = mx.gluon.nn.HybridSequential()
    outer.add(network(tmp_path, layer, arguments))
    outer.hybridize()
    for _ in range(2):
        np.testing.assert_allclose(outer(DATA).asnumpy(), DATA.asnumpy(), rtol=1e-6)
        with mx.autograd.train_mode():
            assert np.abs((outer(DATA) - DATA).asnumpy()).mean() > 0.1
