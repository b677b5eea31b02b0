"""Layers after layers, with the channel counts of real networks: there oneDNN hands on arrays in layouts of its own.

Every layer follows a convolution with 4 to 32 channels, and every gradient is also added up (`grad_req="add"`).
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import running

import mxsame
from mxsame._mxnet import mx
from mxsame.plan import strategies_for

pytestmark = pytest.mark.usefixtures("a_graph_at_the_first_call")

gluon = mx.gluon.nn

LAYERS = {
    "conv k3 s1": lambda: mxsame.nn.Conv2D(8, 3),
    "conv k2 s1": lambda: mxsame.nn.Conv2D(8, 2),
    "conv k3 s2": lambda: mxsame.nn.Conv2D(8, 3, strides=2),
    "conv k7 s2": lambda: mxsame.nn.Conv2D(8, 7, strides=2),
    "conv k4 s3": lambda: mxsame.nn.Conv2D(8, 4, strides=3),
    "conv k3 s2 d2": lambda: mxsame.nn.Conv2D(8, 3, strides=2, dilation=2),
    "conv k3 s2 nhwc": lambda: mxsame.nn.Conv2D(8, 3, strides=2, layout="NHWC"),
    "depthwise k3 s1": lambda: mxsame.nn.DepthwiseConv2D(3),
    "depthwise k3 s2": lambda: mxsame.nn.DepthwiseConv2D(3, strides=2),
    "depthwise k5 s2 m2": lambda: mxsame.nn.DepthwiseConv2D(5, strides=2, depth_multiplier=2),
    "separable k3 s2": lambda: mxsame.nn.SeparableConv2D(16, 3, strides=2),
    "transposed k3 s2": lambda: mxsame.nn.Conv2DTranspose(8, 3, strides=2),
    "transposed k3 s2 d2": lambda: mxsame.nn.Conv2DTranspose(8, 3, strides=2, dilation=2),
    "transposed k4 s2 g2": lambda: mxsame.nn.Conv2DTranspose(8, 4, strides=2, groups=2),
    "max k2 s2": lambda: mxsame.nn.MaxPool2D(2),
    "max k3 s2": lambda: mxsame.nn.MaxPool2D(3, 2),
    "max k3 s3": lambda: mxsame.nn.MaxPool2D(3),
    "avg k2 s2": lambda: mxsame.nn.AvgPool2D(2),
    "avg k3 s2": lambda: mxsame.nn.AvgPool2D(3, 2),
    "avg k3 s3": lambda: mxsame.nn.AvgPool2D(3),
    "avg k3 s2 counting": lambda: mxsame.nn.AvgPool2D(3, 2, count_include_pad=True),
}
SIZES = [(12, 14), (13, 15), (17, 18), (16, 11)]
WAYS = {
    "hybridize": lambda net: net.hybridize(),
    "static": lambda net: net.hybridize(static_alloc=True, static_shape=True),
    "mxsame.hybridize": mxsame.hybridize,
}


def chain(channels, layer):
    """A convolution, the layer, and one more convolution behind it, in double precision when it is the reference."""
    net = gluon.HybridSequential()
    net.add(mxsame.nn.Conv2D(channels, 1, in_channels=3), layer)
    if "NHWC" in repr(layer):
        net = gluon.HybridSequential()
        net.add(gluon.Conv2D(channels, 1, in_channels=3), Transposed((0, 2, 3, 1)), layer, Transposed((0, 3, 1, 2)))
    net.add(gluon.Conv2D(16, 1))
    net.initialize(mx.init.Normal(0.3))
    return net


class Transposed(mx.gluon.HybridBlock):
    def __init__(self, axes):
        super().__init__()
        self._axes = axes

    def hybrid_forward(self, F, x):
        return F.transpose(x, axes=self._axes)


def images(size, channels=3):
    return np.random.RandomState(7).randn(2, channels, *size)


def in_channels(net):
    return next(iter(net.collect_params().values())).shape[1]


def run(net, size, dtype="float32", passes=1):
    """(output, gradients by name), the passes' gradients added up where the parameters say so."""
    data = mx.nd.array(images(size, in_channels(net)), dtype=dtype)
    data.attach_grad(grad_req="add")
    for parameter in net.collect_params().values():
        if parameter.grad_req == "add":
            parameter.zero_grad()
    for _ in range(passes):
        with mx.autograd.record():
            out = net(data)
        out.backward(mx.nd.array(np.random.RandomState(8).randn(*out.shape), dtype=dtype))
    found = {name: parameter.grad().asnumpy() for name, parameter in net.collect_params().items()}
    return out.asnumpy(), {"data": data.grad.asnumpy(), **found}


def reference(net, size):
    """Layer by layer in float64, where oneDNN has no part in it."""
    net.cast("float64")
    out, gradients = run(net, size, "float64")
    net.cast("float32")
    return out, gradients


def assert_all_equal(got, want, passes):
    assert running.difference(got[0], want[0]) < 1e-4
    for name, gradient in want[1].items():
        times = 1 if name != "data" and passes == 1 else passes
        assert running.difference(got[1][name], times * gradient) < 2e-4, name


@pytest.mark.parametrize("channels", [4, 8, 16, 32])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_after_a_convolution_in_every_way(name, channels):
    net = chain(channels, LAYERS[name]())
    net(mx.nd.array(images(SIZES[0])))
    want = {size: reference(net, size) for size in SIZES}
    net.collect_params().setattr("grad_req", "add")
    for size in SIZES[:2]:
        assert_all_equal(run(net, size, passes=3), want[size], 3)
    for hybridize in WAYS.values():
        hybridize(net)
        for size in SIZES:
            assert_all_equal(run(net, size, passes=3), want[size], 3)
            with mx.autograd.pause():
                out = net(mx.nd.array(images(size), dtype="float32"))
            assert running.difference(out.asnumpy(), want[size][0]) < 1e-4
        mxsame.hybridize(net, active=False)


# -- layers that nobody chose, of every rank, by every strategy

KINDS = {  # the class, and the operator in mxsame.plan
    "Conv{}D": "conv",
    "DepthwiseConv{}D": "conv",
    "Conv{}DTranspose": "transposed",
    "MaxPool{}D": "max",
    "AvgPool{}D": "avg",
    "LpPool{}D": "lp",
}


def drawn(stream, rank, strategy):
    """(layer, channels before it): one that the strategy serves."""
    kinds = [kind for kind, name in KINDS.items() if strategy is None or strategy in strategies_for(name)]
    kind, channels = stream.choice(kinds), stream.choice((1, 3, 8, 16, 17))
    kernel_size, strides = zip(*(stream.choice(((2, 2), (3, 2), (3, 3), (4, 3), (5, 2), (2, 1))) for _ in range(rank)))
    make = getattr(mxsame.nn, kind.format(rank))
    if "Pool" in kind:
        return make(kernel_size, strides), channels
    if "Depthwise" in kind:
        return make(kernel_size, strides, in_channels=channels), channels
    groups = stream.choice([count for count in (1, 2, channels) if channels % count == 0])
    out = groups * stream.choice((1, 4, 8))
    dilation = stream.choice((1, 1, 1, 2))
    return make(out, kernel_size, strides, groups=groups, dilation=dilation, in_channels=channels), channels


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("strategy", [None, *mxsame.plan.STRATEGIES])
def test_every_strategy_between_convolutions(strategy, rank):
    """Forward and backward, in one graph for every size and in graphs for each."""
    stream, exact = random.Random(f"{strategy} {rank}"), 0
    for _ in range(6):
        layer, channels = drawn(stream, rank, strategy)
        net = gluon.HybridSequential()
        net.add(
            getattr(gluon, f"Conv{rank}D")(channels, 1, in_channels=2), layer, getattr(gluon, f"Conv{rank}D")(16, 1)
        )
        net.initialize(mx.init.Normal(0.3))
        sizes = [tuple(stream.randint(5, 9) for _ in range(rank)) for _ in range(2)]
        net(mx.nd.array(images(sizes[0], 2)))
        want = {size: reference(net, size) for size in sizes}
        for hybridize in (lambda net: None, *WAYS.values()):
            hybridize(net)
            for size in sizes:
                try:
                    with mxsame.plan.force(strategy):
                        got = run(net, size)
                except ValueError as error:
                    assert "is not exact" in str(error)
                    continue
                assert_all_equal(got, want[size], 1)
                exact += 1
        mxsame.hybridize(net, active=False)
    assert exact or strategy in ("native", "full")


def test_depthwise_layers_on_each_other():
    net = gluon.HybridSequential()
    net.add(mxsame.nn.Conv2D(32, 3, strides=2, use_bias=False), gluon.BatchNorm(), gluon.Activation("relu"))
    net.add(mxsame.nn.DepthwiseConv2D(3, strides=2), mxsame.nn.DepthwiseConv2D(3, strides=2), mxsame.nn.Conv2D(64, 1))
    net.initialize()
    data = mx.nd.array(np.random.RandomState(0).randn(1, 3, 57, 64))
    want = net(data).asnumpy()
    for hybridize in WAYS.values():
        hybridize(net)
        assert running.difference(net(data).asnumpy(), want) < 1e-5


def test_a_graph_stays_small_for_long_strides():
    """Alternatives in a graph are few; where there would be many, another strategy runs."""
    for layer in (
        mxsame.nn.Conv1D(8, 400, strides=160, in_channels=1),
        mxsame.nn.Conv1D(8, 1024, strides=1024, in_channels=1),
        mxsame.nn.DepthwiseConv2D(64, strides=64, in_channels=4),
        mxsame.nn.Conv2D(64, 16, strides=16, in_channels=3),
    ):
        layer.initialize()
        graph = layer(mx.sym.var("data"))
        assert graph.tojson().count('"op"') < 120, layer
