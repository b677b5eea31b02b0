"""Pooling of plain data in oneDNN's blocks: where oneDNN has no fast code for plain data, and the same values."""

from __future__ import annotations

import itertools
import random

import oracle
import pytest
import running
from cases import Case

import mxsame
from mxsame import nn, ops, processor, tensors
from mxsame._mxnet import mx
from mxsame.plan import choice
from mxsame.scope import Target, building

pytestmark = pytest.mark.skipif(not tensors.has_onednn(), reason="MXNet was built without oneDNN")

POOLS = {"max": ops.max_pool, "avg": ops.avg_pool}
LARGE, SMALL = (1, 8, 131, 133), (1, 8, 61, 63)  # blocks of more and of less than oneDNN's share of the cache


@pytest.fixture(autouse=True)
def with_avx512(monkeypatch):
    """Without it, plain data of any size goes in blocks: tests/test_planner.py."""
    monkeypatch.setattr(processor, "has", lambda name: True)
    choice._estimated_fastest.cache_clear()
    yield
    choice._estimated_fastest.cache_clear()


def is_in_blocks(name, shape, *window, **more):
    data = mx.sym.var("data", shape=shape, dtype="float32")
    return "Convolution" in running.operators(POOLS[name](data, *window, **more))


@pytest.mark.parametrize("name", POOLS)
def test_large_plain_data_goes_in_blocks(name):
    assert is_in_blocks(name, LARGE, 3, 2)
    assert not is_in_blocks(name, SMALL, 3, 2)
    assert not is_in_blocks(name, (1, 12, 131, 133), 3, 2)  # no whole blocks
    assert not is_in_blocks(name, (1, 8, 30, 30, 30), 3, 2)  # nothing is gained along three axes
    assert is_in_blocks(name, (1, 16, 9001), 3, 2) and not is_in_blocks(name, (1, 8, 9001), 3, 2)  # pairs of channels
    assert not is_in_blocks(name, (1, 16, 900), 3, 2)
    with building(Target(device="gpu")):
        assert not is_in_blocks(name, LARGE, 3, 2)
    for dtype in ("float64", "float16", None):  # the last is not known
        assert "Convolution" not in running.operators(POOLS[name](mx.sym.var("data", shape=LARGE, dtype=dtype), 3, 2))


def test_partial_averages_are_not_onednn_s():
    assert is_in_blocks("avg", (1, 8, 130, 130), 2, 2)
    with mxsame.plan.use_strategy("full"):
        assert not is_in_blocks("avg", LARGE, 2, 2)
        assert is_in_blocks("max", LARGE, 2, 2)
    assert "Convolution" not in running.operators(ops.lp_pool(mx.sym.var("data", shape=LARGE), 3, 2))


VALUES = [
    Case(f"{name}_pool", size, (kernel,) * len(size), (stride,) * len(size), in_channels=count, values="ties", batch=1)
    for name in POOLS
    for size, count in [((131, 133), 8), ((9001,), 16)]
    for kernel, stride in [(3, 2), (2, 2), (3, 1)]
    if (name, kernel, stride) != ("avg", 2, 2)
]


@running.by_name(VALUES)
def test_values_and_gradients(case):
    """Of data with many ties, whose gradients go to the first."""
    arrays, want, out_grad, gradients = running.expected_once(case)
    pooled = running.operate(case, running.variables(arrays))
    assert running.operators(pooled).count("Convolution") == 1
    for got in (
        running.evaluate(pooled, running.as_nd(arrays), out_grad),
        running.imperative(lambda data: running.operate(case, data), running.as_nd(arrays), out_grad),
    ):
        running.assert_equal(got[0], want)
        running.assert_equal(got[1], gradients)


@pytest.mark.parametrize("size", [130, 131])
@pytest.mark.parametrize("name", POOLS)
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
LENGTHS = {1: (900, 901, 9001, 9002, 9005), 2: (31, 62, 131, 132, 133, 240, 242), 3: (24, 25, 26, 27)}


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


def test_a_graph_with_blocks_is_not_one_without(a_graph_at_the_first_call):
    net = nn.MaxPool2D(3, 2)
    net.hybridize()
    for shape in (SMALL, LARGE, (1, 8, 63, 65)):  # all of odd sizes, which have one plan
        net(mx.nd.zeros(shape))
    graphs = [running.operators(graph.symbol).count("Convolution") for graph in running.graphs_of(net)]
    assert sorted(graphs) == [0, 1]


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
