"""Pooling operators in graphs: windows at every position of which SAME's are picked, and which sizes share a graph."""

import itertools
import random

import oracle
import pytest
import running
from cases import Case

import mxsame
from mxsame import nn, tensors
from mxsame._mxnet import mx
from mxsame.scope import Target

pytestmark = pytest.mark.skipif(not tensors.has_onednn(), reason="MXNet was built without oneDNN")


@pytest.mark.parametrize("size", [30, 31])
@pytest.mark.parametrize("name", ["max", "avg"])
def test_a_graph_for_every_size_picks_windows_if_its_channels_are_known(name, size):
    layer = nn.MaxPool2D if name == "max" else nn.AvgPool2D
    net = running.initialized(running.sequential(mx.gluon.nn.Conv2D(8, 1), layer(3, 2)))
    running.in_one_graph(net)
    names = running.operators(net(mx.sym.var("data")))
    assert names.count("Convolution") == 2 and "take" not in names
    x = mx.nd.random.normal(shape=(2, 3, size, size + 1))
    case = Case(f"{name}_pool", x.shape[2:], (3, 3), (2, 2), in_channels=8)
    want = oracle.forward(case, {"data": net[0](x).asnumpy()})
    running.assert_equal(net(x).asnumpy(), want)


@pytest.mark.parametrize("strategy", ["shift", "gather"])
def test_channels_are_known_behind_a_layer_whose_padding_is_computed(strategy):
    """Those of a pooling layer, for its strategies, and of a weight whose shape is deferred."""
    conv, *others = nn.Conv2D(8, 3, strides=2, in_channels=3), nn.DepthwiseConv2D(3), nn.MaxPool2D(3, 2)
    for layer in (conv, *others):
        layer.initialize()
    with mxsame.plan.use_strategy(strategy):
        out = conv(mx.sym.var("data"))
    before = running.operators(out)
    for layer in others:
        out = layer(out)
    assert others[0].weight.shape == (8, 1, 3, 3)
    names = running.operators(out)
    assert names.count("Convolution") - before.count("Convolution") == 2, "the layer's, and one that picks windows"
    assert names.count("take") == before.count("take")


CHAINS = {
    "max, avg": lambda: [nn.MaxPool2D(2, padding="valid"), nn.AvgPool2D(2)],
    "max, avg, 3-D": lambda: [nn.MaxPool3D(2), nn.AvgPool3D(2)],
    "max, avg, 1-D": lambda: [nn.MaxPool1D(3, 2), nn.AvgPool1D(2)],
    "avg, conv, avg": lambda: [nn.AvgPool2D(3, 2), nn.Conv2D(16, 3, strides=2), nn.AvgPool2D(2)],
    "conv, avg, max": lambda: [nn.Conv2D(16, 1), nn.AvgPool2D(2), nn.MaxPool2D(3, 2)],
    "max": lambda: [nn.MaxPool2D(3, 2)],
}
LENGTHS = {1: (90, 91, 92, 95), 2: (31, 62, 63, 64, 81, 82), 3: (24, 25, 26, 27)}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_sizes_of_one_signature_have_one_graph(name, train):
    net = running.initialized(running.sequential(*CHAINS[name]()))
    rank = int(name[-3]) if name.endswith("-D") else 2
    channels = 16 if rank == 1 else 8
    net(mx.nd.zeros((1, channels, *LENGTHS[rank][:1] * rank)))
    sizes = list(itertools.product(LENGTHS[rank], repeat=rank))
    shapes = [(1, channels, *size) for size in random.Random(0).sample(sizes, min(len(sizes), 30))]
    target = Target("training" if train else "inference", "cpu", train)
    assert len(running.graphs_by_signature(net, shapes, target)) > 1


@pytest.mark.parametrize("sizes", [[(33, 40), (34, 40)], [(34, 40), (33, 40), (33, 41)]], ids=str)
def test_windows_that_are_picked_tell_sizes_apart(sizes):
    """Averages of two, whose plan would else be the same for even and odd sizes."""
    net = mxsame.hybridize(running.sequential(mx.gluon.nn.Conv2D(16, 1), nn.AvgPool2D(2)))
    net.initialize()
    for size in sizes:
        x = mx.nd.random.normal(shape=(2, 3, *size))
        with mxsame.plan.use_strategy("pick"):
            got = net(x).asnumpy()
        case = Case("avg_pool", size, (2, 2), (2, 2), in_channels=16)
        running.assert_equal(got, oracle.forward(case, {"data": net[0](x).asnumpy()}))
