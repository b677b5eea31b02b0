"""Pooling operators and oneDNN's layouts: 1-D ones on pairs of channels, chosen if faster, and the same values."""

import functools

import numpy as np
import pytest
import running

import mxsame
from mxsame import ops, processor, tensors
from mxsame._mxnet import mx
from mxsame.ops import _call
from mxsame.plan import choice
from mxsame.scope import FORMAT, Target, building

nn = mx.gluon.nn
with_padding = functools.partial(ops.avg_pool, count_include_pad=True)
POOLS = {"max": ops.max_pool, "avg": ops.avg_pool, "avg with padding": with_padding}
needs_onednn = pytest.mark.skipif(not tensors.has_onednn(), reason="MXNet was built without oneDNN")


@pytest.fixture(autouse=True)
def with_avx512(monkeypatch):
    """Only with it, oneDNN has fast code for pairs."""
    monkeypatch.setattr(processor, "has", lambda name: True)
    _call._RECIPES.clear()
    yield
    _call._RECIPES.clear()


def kernels(symbol):
    """The kernels of the pooling operators of a graph."""
    return [node["attrs"]["kernel"] for node in running.nodes(symbol) if node["op"] == "Pooling"]


def data(channels=8, size=9, **more):
    return mx.sym.var("data", shape=(2, channels, size), **more)


PAIRS, LONE = ["(1, 3)"], ["(3,)"]


@needs_onednn
@pytest.mark.parametrize("name", POOLS)
def test_plain_data_with_enough_pairs(name):
    assert kernels(POOLS[name](data(), 3, 2)) == PAIRS
    assert kernels(POOLS[name](data(channels=10), 3, 2, layout="NCW")) == PAIRS
    assert kernels(POOLS[name](mx.sym.var("x", shape=(2, 9, 8)), 3, 2, layout="NWC")) == PAIRS
    assert kernels(POOLS[name](data(channels=6), 3, 2)) == LONE
    assert kernels(POOLS[name](data(channels=9), 3, 2)) == LONE
    assert {*kernels(POOLS[name](mx.sym.var("x"), 3, 2, layout="NCW"))} == {*LONE}  # unknown channels
    with building(Target(device="gpu")):
        assert kernels(POOLS[name](data(), 3, 2)) == LONE
    assert kernels(POOLS[name](mx.sym.var("x", shape=(2, 8, 9, 9)), 3, 2)) == ["(3, 3)"]


def test_an_lp_pool_is_not_onednn_s():
    assert kernels(ops.lp_pool(data(), 3, 2)) == LONE


@pytest.mark.parametrize("room", [(tensors, "has_onednn", lambda: False), (processor, "has", lambda name: False)])
def test_without_fast_code(room, monkeypatch):
    monkeypatch.setattr(*room)
    assert kernels(ops.max_pool(data(), 3, 2)) == LONE


def convolved(**more):
    return mx.sym.Convolution(data(), num_filter=8, kernel=(1,), name="conv", **more)


@needs_onednn
def test_data_in_blocks_stays_there():
    """After a convolution data is in oneDNN's blocks, and its code for 1-D is fast."""
    relu = mx.sym.Activation(convolved(), act_type="relu")
    for blocks in (convolved(), relu, relu + convolved(), mx.sym.Dropout(relu), ops.max_pool(relu, 3, 1)):
        assert kernels(ops.max_pool(blocks, 3, 2))[-1:] == LONE
    with building(Target("training")):
        assert kernels(ops.max_pool(mx.sym.Dropout(relu), 3, 2)) == PAIRS
    for plain in (convolved(num_group=8), mx.sym.clip(relu, 0, 6), mx.sym.concat(relu, relu, dim=1)):
        assert kernels(ops.max_pool(plain, 3, 2)) == PAIRS
    normed = mx.sym.BatchNorm(convolved(), name="norm")
    assert kernels(ops.max_pool(normed, 3, 2)) == PAIRS
    with building(Target("deployment")):  # a batch norm is folded
        assert kernels(ops.max_pool(normed, 3, 2)) == LONE
    with mxsame.plan.use_strategy("concat"):  # which gives plain data
        assert kernels(ops.max_pool(relu, 2, 2)) == ["(1, 2)"]


@needs_onednn
@pytest.mark.parametrize("instructions", ["AVX2", "AVX512"])
def test_a_3d_maximum_leaves_the_blocks_only_after_a_batch_norm(instructions, monkeypatch):
    """Five axes are brought out of the blocks slowly, so outputs are picked; plain data is concatenated."""
    monkeypatch.setattr(processor, "has", lambda name: instructions == "AVX512")
    conv = nn.Conv3D(16, 1, in_channels=16)(mx.sym.var("x"))
    for data, is_concatenated in ((conv, False), (mx.sym.relu(conv), False), (mx.sym.BatchNorm(conv), True)):
        graph = ops.max_pool(data, 3, 2, layout="NCDHW")
        assert any(node["op"] == "_rnn_param_concat" for node in running.nodes(graph)) == is_concatenated


@needs_onednn
def test_channels_of_a_graph_of_dynamic_shape_are_inferred():
    conv = nn.Conv1D(8, 3)(mx.sym.var("x"))
    assert kernels(ops.max_pool(mx.sym.clip(conv, 0, 6), 3, 1, layout="NCW")) == PAIRS


def special(dtype):
    """Data with ties, infinities, NaN, zeros of both signs and the largest numbers."""
    random = np.random.RandomState(0)
    array = np.round(random.standard_normal((2, 10, 13)), 1)
    extreme = [np.nan, np.inf, -np.inf, -0.0, 0.0, np.finfo(dtype).max, np.finfo(dtype).min]
    array.ravel()[random.randint(0, array.size, 60)] = random.choice(extreme, 60)
    return mx.nd.array(array, dtype=dtype)


WINDOWS = [
    {"pool_size": 3, "strides": 2},
    {"pool_size": 2, "strides": 2},
    {"pool_size": 4, "strides": 1},
    {"pool_size": 3, "strides": 2, "padding": "valid", "ceil_mode": True},
    {"pool_size": 3, "strides": 2, "padding": ((2, 0),)},
    {"pool_size": 2, "strides": 3},
]
WINDOW_OF_KERAS_MXNET = {"pool_size": 4, "strides": 3, "padding": "keras-mxnet"}  # its averages always count padding
OPERATORS = [(name, window) for name in POOLS for window in WINDOWS]
OPERATORS += [(name, WINDOW_OF_KERAS_MXNET) for name in POOLS if name != "avg"]


@pytest.mark.parametrize("train_mode", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("name", "window"), OPERATORS)
def test_values_are_those_of_the_operator_in_1_d(monkeypatch, name, window, dtype, train_mode):
    runs = []
    for least in (choice.MIN_POOLED_CHANNELS, 1000):
        monkeypatch.setattr(choice, "MIN_POOLED_CHANNELS", least)
        choice._estimated_fastest.cache_clear()
        _call._RECIPES.clear()  # so that calls are planned anew
        x = special(dtype)
        pool = functools.partial(POOLS[name], **window)
        out = running.recorded(pool, x, running.normal(*pool(x).shape, seed=1, dtype=dtype), train_mode)
        runs.append((out.asnumpy(), x.grad.asnumpy()))
    (out, gradient), (plain_out, plain_gradient) = runs
    np.testing.assert_array_equal(out, plain_out)
    assert (np.signbit(out) == np.signbit(plain_out)).all()
    tolerance = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(gradient, plain_gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("specialised", [True, False])
@pytest.mark.parametrize("make", [mxsame.nn.MaxPool1D, mxsame.nn.AvgPool1D])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_single_output_has_its_gradient(make, batch, specialised, a_graph_at_the_first_call):
    """MXNet's `reshape` fails for the gradient of a single output: a layout of four axes, read as one of three."""
    net = running.sequential(nn.BatchNorm(in_channels=8), make(3, 2, padding="valid"))
    net.initialize()
    inputs = [running.normal(batch, 8, n, seed=n) for n in (9, 7, 4, 3)]

    def run():
        for x in inputs:
            out = running.recorded(net, x, mx.nd.arange(batch * 8 * ((x.shape[2] - 1) // 2)).reshape((batch, 8, -1)))
            yield out.asnumpy(), x.grad.asnumpy()

    want = list(run())
    mxsame.hybridize(net) if specialised else net.hybridize()
    for (out, gradient), (want_out, want_gradient) in zip(run(), want):
        running.assert_equal(out, want_out)
        running.assert_equal(gradient, want_gradient)


@needs_onednn
def test_a_graph_for_another_format_has_the_operator_of_one_axis():
    with building(FORMAT):
        assert kernels(ops.max_pool(data(), 3, 2)) == LONE
