"""Layers that add noise in training: there is nothing left of them in a graph for inference."""

import json
from pathlib import Path

import numpy as np
import pytest
import running
from configurations import model_of, stacked

import mxsame
from mxsame._mxnet import mx

LAYERS = [("GaussianNoise", {"stddev": 0.5}), ("GaussianDropout", {"rate": 0.3}), ("AlphaDropout", {"rate": 0.3})]
DATA = mx.nd.array(np.linspace(0.5, 2, 60).reshape(1, 60))
noisy = pytest.mark.parametrize("layer, arguments", LAYERS)
placed = pytest.mark.parametrize("alone", [False, True], ids=["after a layer", "alone"])
HYBRIDIZE = (lambda net: None, mx.gluon.HybridBlock.hybridize, mxsame.hybridize)


def network(layer, arguments, alone=False, length=60):
    """The layer, and one before it, unless it is alone."""
    layers = stacked([("ReLU", {})] * (not alone) + [(layer, arguments)])
    return mxsame.from_keras(json.dumps(model_of(*layers, shapes=[(length,)])))


def operators(text):
    """Those of a graph, without the check of the input's lengths, its cast to a float, and identities."""
    others = ("null", "Reshape", "_npi_true_divide_scalar", "_copy")
    return [node["op"] for node in json.loads(text)["nodes"] if node["op"] not in others]


@placed
@noisy
def test_graphs_hold_no_noise_and_a_net_trains_with_it_after_they_were_made(layer, arguments, alone, tmp_path):
    """Of the network, and of a network around it."""
    net, prefix = network(layer, arguments, alone), str(tmp_path / "net")
    outer = mx.gluon.nn.HybridSequential()
    outer.add(network(layer, arguments, alone), mx.gluon.nn.Activation("softrelu"))
    of_outer = np.log1p(np.exp(DATA.asnumpy()))
    activations = ["Activation"] * (not alone)
    for block, want, wanted in ((net, DATA.asnumpy(), activations), (outer, of_outer, [*activations, "Activation"])):
        for hybridize in HYBRIDIZE:
            hybridize(block)
            for shape in (None, DATA.shape):
                np.testing.assert_allclose(block(DATA).asnumpy(), want, rtol=1e-5)
                with mx.autograd.train_mode():
                    assert np.abs(block(DATA).asnumpy() - want).mean() > 0.05
                mxsame.export(block, prefix, shape)
                assert operators(Path(f"{prefix}-symbol.json").read_text()) == wanted
                assert operators(mxsame.deploy(block, DATA.shape).graph.tojson()) == wanted
    graph, _ = running.graphs_of(outer)  # the last one is for training
    assert not [op for op in operators(graph.symbol.tojson()) if "random" in op or "normal" in op]
    net.hybridize()
    net(DATA)
    net.export(prefix)
    again = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], None)
    np.testing.assert_array_equal(again(DATA).asnumpy(), DATA.asnumpy())


@pytest.mark.parametrize(
    ("layer", "arguments", "mean", "spread"),
    [
        ("GaussianNoise", {"stddev": 0.3}, 1, 0.3),
        ("GaussianDropout", {"rate": 0.2}, 1, 0.5),
        ("Dropout", {"rate": 0.2}, 1, 0.5),
        ("AlphaDropout", {"rate": 0.3}, 0, 1),
    ],
)
def test_mean_and_spread_are_those_of_keras(layer, arguments, mean, spread):
    """Of ones; of numbers around 0, whose mean and spread AlphaDropout keeps."""
    net = network(layer, arguments, alone=True, length=30_000)
    given = mx.nd.ones((4, 30_000)) if mean else mx.nd.random.normal(shape=(4, 30_000))
    with mx.autograd.train_mode():
        out = net(given).asnumpy()
    assert abs(out.mean() - mean) < 0.05
    assert abs(out.std() - spread) < 0.05
