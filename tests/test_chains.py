"""Layers after layers, with the channel counts of real networks: there oneDNN hands on arrays in layouts of its own.

Every layer is between convolutions, and gradients add up (`grad_req="add"`).
"""

import random

import pytest
import running

import mxsame
from mxsame._mxnet import mx
from mxsame.plan import strategies_for

gluon = mx.gluon.nn

WAYS = (lambda net: None, lambda net: net.hybridize(static_alloc=True, static_shape=True), mxsame.hybridize)


def images(size, channels, dtype="float32"):
    return running.normal(2, channels, *size, seed=7, dtype=dtype)


def run(net, size, dtype="float32", passes=1):
    """(output, gradients by name) after some passes, whose gradients add up; and the output without gradients."""
    data = images(size, next(iter(net.collect_params().values())).shape[1], dtype)
    data.attach_grad(grad_req="add")
    for parameter in net.collect_params().values():
        parameter.zero_grad()
    out_grad = running.normal(*net(data).shape, seed=8, dtype=dtype)
    for _ in range(passes):
        out = running.recorded(net, data, out_grad)
    gradients = {name: parameter.grad().asnumpy() for name, parameter in net.collect_params().items()}
    return out.asnumpy(), {"data": data.grad.asnumpy(), **gradients}, net(data).asnumpy()


def reference(net, size):
    """Layer by layer in float64, where oneDNN has no part in it."""
    net.cast("float64")
    exact = run(net, size, "float64")
    net.cast("float32")
    return exact


def assert_all_equal(got, want, passes):
    assert running.difference(got[0], want[0]) < 1e-4 and running.difference(got[2], want[2]) < 1e-4
    for name, gradient in want[1].items():
        assert running.difference(got[1][name], passes * gradient) < 2e-4, name


# -- layers that nobody chose, of every rank, by every strategy

OPERATORS = {op: name for op, name in running.OPERATORS.items() if op != "separable_conv"}


def drawn(stream, rank, strategy):
    """(layer, channels before it): one that the strategy serves."""
    ops = [op for op, name in OPERATORS.items() if strategy is None or strategy in strategies_for(name)]
    op, channels = stream.choice(ops), stream.choice((1, 3, 8, 16, 17))
    kernel_size, strides = zip(*(stream.choice(((2, 2), (3, 2), (3, 3), (4, 3), (5, 2), (2, 1))) for _ in range(rank)))
    make = getattr(mxsame.nn, running.layer_name(op, rank))
    if op in running.POOLS:
        return make(kernel_size, strides), channels
    if op == "depthwise_conv":
        return make(kernel_size, strides, in_channels=channels), channels
    groups = stream.choice([count for count in (1, 2, channels) if channels % count == 0])
    out = groups * stream.choice((1, 4, 8))
    dilation = stream.choice((1, 1, 1, 2))
    return make(out, kernel_size, strides, groups=groups, dilation=dilation, in_channels=channels), channels


BETWEEN = (gluon.BatchNorm, gluon.Swish, lambda: gluon.Activation("relu"), lambda: gluon.LeakyReLU(0.2))


def random_net(stream):
    """(net, shape, strategy): layers that nobody chose, of any rank, some of Gluon with pads on both sides, and one by
    a strategy of `mxsame.plan` when it is deployed."""
    rank, strategy = stream.choice((1, 2, 2, 2, 3)), stream.choice([*mxsame.plan.STRATEGIES])
    net, size = gluon.HybridSequential(), tuple(stream.randint(9, 17) for _ in range(rank))
    for number in range(stream.randint(1, 3)):
        layer, channels = drawn(stream, rank, None if number else strategy)
        net.add(getattr(gluon, f"Conv{rank}D")(channels, stream.choice((1, 3)), padding=1), layer)
        net.add(stream.choice(BETWEEN)())
    if stream.random() < 0.5:
        net.add(gluon.Dense(4))
    return net, (1, 3, *size), strategy


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("strategy", [None, *mxsame.plan.STRATEGIES])
def test_every_strategy_between_convolutions(strategy, rank):
    """Forward and backward, in one graph for every size and in graphs for each; gradients of two passes add up."""
    stream, exact = random.Random(f"{strategy}, {rank}"), 0
    for _ in range(4):
        layer, channels = drawn(stream, rank, strategy)
        conv = getattr(gluon, f"Conv{rank}D")
        net = running.initialized(running.sequential(conv(channels, 1, in_channels=2), layer, conv(16, 1)), 0.3)
        sizes = [tuple(stream.randint(5, 9) for _ in range(rank)) for _ in range(2)]
        net(images(sizes[0], 2))
        net.collect_params().setattr("grad_req", "add")
        want = {size: reference(net, size) for size in sizes}
        for hybridize in WAYS:
            hybridize(net)
            for size in sizes:
                try:
                    with mxsame.plan.use_strategy(strategy):
                        got = run(net, size, passes=2)
                except ValueError as error:
                    assert "must be a strategy that is exact for this layer" in str(error)
                    continue
                assert_all_equal(got, want[size], 2)
                exact += 1
        mxsame.hybridize(net, active=False)
    assert exact


def test_a_graph_stays_small_for_long_strides():
    """Alternatives in a graph are few; where there would be many, another strategy runs."""
    for layer in (
        mxsame.nn.Conv1D(8, 400, strides=160, in_channels=1),
        mxsame.nn.Conv1D(8, 1024, strides=1024, in_channels=1),
        mxsame.nn.DepthwiseConv2D(64, strides=64, in_channels=4),
        mxsame.nn.Conv2D(64, 16, strides=16, in_channels=3),
    ):
        layer.initialize()
        assert layer(mx.sym.var("data")).tojson().count('"op"') < 120, layer
