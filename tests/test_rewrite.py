"""The rewriting of mxsame.deploy, step by step: small graphs, their values, and what remains of them."""

import re
from functools import partial

import numpy as np
import pytest
import running
from operator_cases import case_of, lines_of

import mxsame
from mxsame import processor
from mxsame._mxnet import mx
from mxsame.port import activations, blocks
from mxsame.rewriting import bfloat16
from mxsame.rewriting.graph import Graph

nn = mx.gluon.nn
SHAPE = (2, 4, 6, 5)


def last(x):
    return x.transpose((0, 2, 3, 1))


def first(x):
    return x.transpose((0, 3, 1, 2))


def without_start(F, x, *axes):
    """Without the first element of some axes."""
    return F.slice(x, begin=[1 if axis in axes else None for axis in range(4)], end=[None] * 4)


def conv(F, x, w):
    return F.Convolution(x, w, kernel=(3, 3), num_filter=4, no_bias=True, pad=(1, 1))


def norm(F, x, *parameters, **more):
    return F.BatchNorm(x, *parameters, fix_gamma=False, **more)


NAMES = {"last": last, "first": first, "without_start": without_start, "conv": conv, "norm": norm}
NORM = ("gamma", "beta", "mean", "variance")
GRAPHS = {}  # name -> (shapes of the parameters, what is computed, the operators that are left in the plain graph)
for name, shapes, line in lines_of("rewritten.txt"):
    shapes = re.sub(r"NORM (\d)", lambda channels: " & ".join(f"{each} {channels[1]}" for each in NORM), shapes)
    GRAPHS[name] = (shapes, *line.replace("NORM", ", ".join(NORM)).split(" -> "))


def outputs(result):
    return [array.asnumpy() for array in (result if isinstance(result, (list, tuple)) else [result])]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", GRAPHS)
def test_graph(name, dtype):
    shapes, expression, operators = GRAPHS[name]
    _, net = case_of(shapes, expression, NAMES)
    mx.random.seed(1)
    net.initialize(mx.init.Uniform(1))
    if hasattr(net, "variance"):
        net.variance.set_data(net.variance.data() * 0 + 0.7)
    net.cast(dtype)
    data = running.normal(*SHAPE, dtype=dtype)
    want = outputs(net(data))
    deployed = mxsame.deploy(net, SHAPE)
    if dtype == "float64":  # in float32 what is left of batch norms becomes a convolution, too
        assert " ".join(running.operators(deployed.graph)) == operators
    for got, expected in zip(outputs(deployed(data)), want):  # MXNet keeps eps in float32, here and there
        assert running.difference(got, expected) < (1e-10 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize(("avx512", "channels"), [(True, 32), (False, 24)])
def test_convolutions_pass_on_whole_blocks(avx512, channels, monkeypatch):
    """24 channels through a residual block with a gate; 12 that others read get a slice."""
    monkeypatch.setattr(processor, "has", lambda name: avx512)
    first, depthwise, gate = mxsame.nn.Conv2D(24, 3), mxsame.nn.DepthwiseConv2D(3), mxsame.nn.Conv2D(24, 1)
    last, seen, dense = mxsame.nn.Conv2D(24, 1), mxsame.nn.Conv2D(12, 1), mx.gluon.nn.Dense(3)

    def residual(F, x, *layers):
        x = first(x)
        y = last(F.broadcast_mul(depthwise(x), F.sigmoid(gate(F.Pooling(x, global_pool=True)))))
        mean = F.Pooling(F.clip(x + y, 0, 6), global_pool=True)
        return dense(mean), dense(F.reshape(mean, shape=(0, -1))), seen(x)

    net, data = running.Own(residual, first, depthwise, gate, last, seen, dense), mx.nd.random.normal(shape=SHAPE)
    net.initialize(mx.init.Uniform(1))
    want, deployed = outputs(net(data)), mxsame.deploy(net, SHAPE)
    nodes = [node["attrs"] for node in running.nodes(deployed.graph) if node["op"] == "Convolution"]
    assert sorted(int(attrs["num_filter"]) for attrs in nodes) == [16, *[channels] * 4]
    assert max(map(running.difference, outputs(deployed(data)), want)) < 1e-5


@pytest.mark.parametrize(("seen", "channels"), [(False, {"16"}), (True, {"12"})])
def test_convolutions_of_lines_pass_on_whole_blocks_up_to_a_global_pool(seen, channels):
    """Twelve channels, whose maxima others get; twelve that others read stay. Sums of lines need no barriers."""

    def longest(F, x, one, three):
        both = [one(x), three(x)]
        most = [F.Pooling(each, kernel=(1,), global_pool=True) for each in both]
        return F.concat(*most, dim=1), F.softmax(F.flatten(most[0])), *([both[0] + both[1]] * 2 if seen else [])

    layers = (mxsame.nn.Conv1D(12, size, in_channels=3) for size in (1, 3))
    net, data = running.initialized(running.Own(longest, *layers)), running.normal(2, 3, 9)
    want, deployed = outputs(net(data)), mxsame.deploy(net, data.shape)
    assert max(map(running.difference, outputs(deployed(data)), want)) < 1e-5
    nodes = running.nodes(deployed.graph)
    assert {node["attrs"]["num_filter"] for node in nodes if node["op"] == "Convolution"} == channels
    assert "BlockGrad" not in running.operators(deployed.graph)


def test_names_need_not_be_ascii():
    net = running.initialized(mxsame.nn.Conv2D(3, 3, in_channels=2, prefix="größe_"))
    data = mx.nd.random.normal(shape=(1, 2, 5, 6))
    assert running.difference(mxsame.deploy(net, data.shape)(data).asnumpy(), net(data).asnumpy()) < 1e-5


def test_a_graph_is_walked_as_often_for_many_layers(monkeypatch):
    """Not once for each layer, which takes minutes for deep networks."""
    walked, nodes = [], Graph.nodes
    monkeypatch.setattr(Graph, "nodes", lambda self, *more: walked.append(None) or nodes(self, *more))
    counts = []
    for count in (2, 6):
        net = mx.gluon.nn.HybridSequential()
        for _ in range(count):
            net.add(mx.gluon.nn.Conv2D(4, 1, in_channels=4), mx.gluon.nn.BatchNorm(in_channels=4))
            net.add(mx.gluon.nn.Dropout(0.1))
        net.initialize()
        walked.clear()
        mxsame.deploy(net, (1, 4, 5, 5))
        counts.append(len(walked))
    assert counts[0] == counts[1]


def norm_before(before, channels, *layers, kernel=1, stride=1, pad=0, **options):
    """A convolution of so many channels to so many, a batch norm, and layers."""
    convolution = nn.Conv2D(channels, kernel, stride, pad, in_channels=before, use_bias=False)
    return running.sequential(convolution, nn.BatchNorm(in_channels=channels, **options), *layers)


def halved(channels):
    return mxsame.nn.DepthwiseConv2D(3, 2, in_channels=channels, use_bias=False)


def to(channels, outputs, groups=1):
    return nn.Conv2D(outputs, 3, padding=1, in_channels=channels, groups=groups)


def bounded(bound=6):
    """ReLU6 as networks of Keras have it."""
    return running.Own(lambda F, x: activations.relu(F, x, max_value=bound))


def relu():
    return nn.Activation("relu")


def swish():
    return running.Own(activations.swish)


def squeezed(F, x):
    """Squeeze and excite, without what is between."""
    return F.broadcast_mul(x, F.Activation(F.Pooling(x, global_pool=True, pool_type="avg"), act_type="sigmoid"))


def used_twice(F, x, convolution, norm, last):
    y = convolution(x)
    return last(activations.relu(F, norm(y), max_value=6)) + y


def concatenated(F, x, first, second, last):
    return last(blocks.concatenate(F, first(x), second(x), axis=1))


def joined(first, second):
    return running.Own(concatenated, to(3, first), to(3, second), to(first + second, 16))


MIDDLE = partial(blocks.Function, blocks.take_slice, begin=(None, 4), end=(None, -4), step=(1, 1))
TRAINED = {name: line.split(" -> ") for name, _, line in lines_of("trained.txt")}


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 9), 1), ((2, 3, 4, 5, 6), 1), ((2, 3, 7, 9), 3)])
def test_batch_norms_of_lines_of_volumes_and_over_the_last_axis_are_trained(shape, axis):
    """In a graph, and imperatively in networks of Keras, with the gradients that MXNet has in float64."""
    make = getattr(nn, f"Conv{len(shape) - 2}D")

    def gradient(norm, hybridizes, dtype):
        mx.random.seed(1)
        net = running.sequential(make(16, 3, in_channels=3), norm(axis=axis), relu(), make(8, 1, in_channels=16))
        mxsame.hybridize(running.initialized(net, dtype=dtype), hybridizes)
        x = running.normal(*shape, dtype=dtype)
        x.attach_grad()
        with mx.autograd.record():
            out = net(x)
        out.backward(running.normal(*out.shape, seed=1, dtype=dtype))
        return x.grad.astype("float32")

    want = gradient(nn.BatchNorm, False, "float64")
    running.assert_alike(gradient(nn.BatchNorm, True, "float32"), want, 1e-5)
    if axis == 1:
        keras_norm = getattr(blocks, f"BatchNorm{len(shape) - 2}D")
        running.assert_alike(gradient(keras_norm, False, "float32"), want, 1e-5)


@pytest.mark.parametrize("shapes", [((2, 8, 1, 1), (2, 8, 3, 4)), ((1, 8, 3, 4), (5, 8, 3, 4))])
def test_a_length_of_1_at_the_first_call_says_nothing_about_others(shapes, monkeypatch):
    """Of images of one element, any product is one of arrays of one shape; for a batch of 1, so is one with a
    parameter."""
    monkeypatch.setattr(processor, "has", lambda name: True)
    last = running.initialized(to(8, 8))
    net = mxsame.hybridize(running.Own(lambda F, x, y, last: last(F.broadcast_mul(y, x)), last))
    for shape in shapes:
        x, gate = running.normal(*shape), running.normal(*shapes[0][:2], 1, 1, seed=1)
        with mx.autograd.record():
            running.assert_alike(net(x, gate), last(x * gate), 1e-5)


def test_softmax_of_a_concatenation_whose_first_array_has_a_length_of_1_at_a_later_call():
    net = mxsame.hybridize(running.Own(lambda F, x: F.softmax(F.concat(F.slice_axis(x, 1, 1, None), x, dim=1))))
    for data in (running.normal(2, 3), running.normal(2, 2)):
        want = mx.nd.softmax(mx.nd.array(np.concatenate([data.asnumpy()[:, 1:], data.asnumpy()], 1)))
        running.assert_alike(net(data), want, 1e-6)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_graphs_have_the_gradients_of_the_net(name, monkeypatch):
    """Those of all parameters as well, and its running statistics, with one graph for both sizes."""
    monkeypatch.setattr(processor, "has", lambda name: True)
    expression, operator = TRAINED[name]
    net = running.initialized(eval(expression, globals()))
    parameters = list(net.collect_params().values())
    start = [parameter.data().copy() for parameter in parameters]
    data = [running.normal(2, start[0].shape[1], *size) for size in ((6, 6), (4, 10))]

    def step(x):
        for parameter, value in zip(parameters, start):
            parameter.set_data(value)
        x.attach_grad()
        with mx.autograd.record():
            out = net(x)
        out.backward(running.normal(*out.shape, seed=1))
        states = [each.data() if each.grad_req == "null" else each.grad() for each in parameters]
        return [array.asnumpy() for array in (out, x.grad, *states)]

    want = [step(x) for x in data]
    mxsame.hybridize(net)
    with mxsame.plan.use_strategy("concat"):
        got = [step(x) for x in data]
    (graph,) = running.graphs_of(net)
    *is_missing, operator = operator.split()
    assert (operator in running.operators(graph.symbol)) != bool(is_missing)
    for have, wanted in zip((*got[0], *got[1]), (*want[0], *want[1])):
        assert running.difference(have, wanted) < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("low, high", [(0, 6), (-0.1, 0.3), (1, 0)])
def test_a_clip_is_a_maximum_of_a_minimum(low, high, dtype):
    """In training, with the same gradients, at the bounds as well."""
    net = running.Own(lambda F, x: F.clip(x, low, high))
    x = mx.nd.array([-1, low, np.nextafter(np.float32(low), 9), 0.2, high, 7, np.inf, -np.inf], dtype=dtype)
    want = running.recorded(net, x), x.grad.copy()
    mxsame.hybridize(net)
    got = running.recorded(net, x), x.grad
    (graph,) = running.graphs_of(net)
    assert ("clip" in running.operators(graph.symbol)) == (low > high or dtype == "float64")
    for have, wanted in zip((*got, net(x)), (*want, want[0])):
        np.testing.assert_array_equal(have.asnumpy(), wanted.asnumpy())
    assert "clip" in running.operators(running.graphs_of(net)[1].symbol)  # after a batch norm, two operators are slower


@pytest.mark.parametrize(("size", "per_element", "casts"), [(32, 64, 0), (128, 64, 4), (128, 128, 2)])
def test_what_is_in_bfloat16(size, per_element, casts, monkeypatch):
    """Layers from 16 channels on, and what runs after them; nothing in a graph of fewer than 1e7 products, or where
    there are few for each element that is cast."""
    monkeypatch.setattr(bfloat16, "MACS_PER_CAST", per_element)
    F, shapes, x = mx.sym, {}, mx.sym.var("x")

    def layer(data, name, channels=16, groups=1):
        shapes[name] = (16, channels, 3, 3)
        return F.Convolution(data, F.var(name), kernel=(3, 3), num_filter=16, no_bias=True, num_group=groups)

    x = F.clip(layer(F.Activation(layer(x, "a", 3), act_type="relu"), "b"), 0, 6)
    x = F.clip(F.Activation(layer(x, "c", 1, groups=16), act_type="softsign"), 0, 6)
    x = F.LeakyReLU(F.Pooling(layer(x, "d"), global_pool=True, pool_type="avg"), act_type="selu")
    graph = Graph.of(x, {name: np.ones(shape, "float32") for name, shape in shapes.items()}, {"x": (1, 3, size, size)})
    bfloat16.to_bfloat16(graph)
    names = [node.op for node in graph.nodes() if node.op != "null"]
    assert names.count("amp_cast") == casts
    if casts:
        assert names[-5:] == ["amp_cast", "Convolution", "Pooling", "amp_cast", "LeakyReLU"]
    if casts == 4:
        assert " ".join(names[:7]) == "Convolution Activation amp_cast Convolution clip Convolution amp_cast"
