"""Operators on the table of cases: every kind of array, type, layout and strategy, forward and gradients."""

import functools
import gc
import itertools
import sys

import cases
import numpy as np
import oracle
import pytest
import running
from cases import CASES, IN_TENSORFLOW, Case
from golden import make
from running import OPERATORS, POOLS, as_nd, assert_equal, by_name, expected, operate
from ways import check

import mxsame
from mxsame import ops, plan as planning
from mxsame._mxnet import mx
from mxsame.ops import _call

nd = mx.nd

GOLDEN = make.load()


# ---- what TensorFlow recorded ----------------------------------------------------------------------------------------


def test_the_goldens_are_of_these_inputs():
    for case in IN_TENSORFLOW:
        assert make.checksum(case, tuple(GOLDEN[f"{case.name}/shape"])) == GOLDEN[f"{case.name}/checksum"], case.name


@by_name(IN_TENSORFLOW)
def test_recorded_tensorflow(case):
    """No oracle between: mxsame against what TensorFlow 2.13.1 gave, forward and, where it was right, gradients."""
    arrays = cases.arrays(case)
    out_grad = cases.output_gradient(case, tuple(GOLDEN[f"{case.name}/shape"]))
    out, gradients = running.imperative(functools.partial(operate, case), as_nd(arrays), out_grad)
    assert out.shape == tuple(GOLDEN[f"{case.name}/shape"])
    assert_equal(make.sample(out), GOLDEN[f"{case.name}/forward"])
    for name, gradient in gradients.items():
        if f"{case.name}/gradient/{name}" in GOLDEN:
            assert_equal(make.sample(gradient), GOLDEN[f"{case.name}/gradient/{name}"], what=name)


# ---- strategies ------------------------------------------------------------------------------------------------------

EVEN = Case("conv", (8,), (4,), (2,), "keras-mxnet", other_sizes=((9,), (13,), (14,), (3,), (1,)))  # rounds up


FORCED = [EVEN, *(case for case in CASES if case.name != "concrete-7x7-stride-2-on-224")]
IN_TURN = list(zip(FORCED, itertools.cycle(("operator", "symbol, dynamic"))))


@pytest.mark.parametrize(("case", "way"), IN_TURN, ids=[case.name for case in FORCED])
def test_every_strategy(case, way):
    """Or it says that it is not exact; tests/test_plan.py counts how often that is."""
    exact = 0
    for strategy in planning.strategies_for(OPERATORS[case.op]):
        try:
            exact += check(case, way, strategy=strategy)
        except ValueError as error:
            assert "must be a strategy that is exact" in str(error)
    assert exact


# ---- float16 ---------------------------------------------------------------------------------------------------------


@by_name([case for case in CASES if case.op in POOLS and case.values != "negative" and case.p_value < 3])
def test_float16_poolings(case):
    """On the CPU MXNet supports float16 only in pooling operators."""
    arrays, out, out_grad, gradients = expected(case)
    got, got_gradients = running.imperative(functools.partial(operate, case), as_nd(arrays, "float16"), out_grad)
    assert got.dtype == np.float16
    if case.op == "max_pool":  # a maximum of rounded elements is the rounded maximum
        np.testing.assert_array_equal(got, oracle.forward(case, {"data": np.float16(arrays["data"])}))
    else:
        np.testing.assert_allclose(got, out, rtol=5e-3, atol=5e-3)
        np.testing.assert_allclose(got_gradients["data"], gradients["data"], rtol=2e-2, atol=2e-2)


# ---- what is not a number stays where it is --------------------------------------------------------------------------

CLEAN = ["native", "full", "slice", "concat", "pad", "flip", "gather", "dilate"]
LEAKS = [
    Case("conv", (8, 7), (3, 2), (2, 3)),
    Case("conv", (8,), (4,), (1,)),
    Case("depthwise_conv", (8, 7), (3, 2), (2, 3)),
    Case("conv_transpose", (4, 3), (3, 2), (2, 3), dilation=(2, 2)),
    Case("max_pool", (8, 7), (3, 2), (2, 3)),
    Case("avg_pool", (8, 7), (3, 2), (2, 3)),
]


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=["nan", "inf"])
@pytest.mark.parametrize("strategy", CLEAN)
def test_nan_and_infinity_stay_in_their_windows(strategy, value):
    """Padding is not made by multiplication: 0 * nan is nan. The other strategies multiply by zero."""
    ran = 0
    for case, at in itertools.product(LEAKS, (0, 1, 4, -1)):
        if strategy not in planning.strategies_for(OPERATORS[case.op]):
            continue
        arrays = cases.arrays(case)
        index = (0, 0, *(max(min(at, n - 1), -n) for n in case.size))
        touched = np.zeros_like(arrays["data"])
        touched[index], arrays["data"][index] = 1, 0
        ones = {name: np.full_like(array, name != "bias") for name, array in arrays.items()}
        linear = Case(**{**vars(case), "op": "avg_pool"}) if case.op == "max_pool" else case
        reached, clean = oracle.forward(linear, {**ones, "data": touched}) != 0, oracle.forward(case, arrays)
        arrays["data"][index] = value
        try:
            with planning.use_strategy(strategy):
                out = operate(case, as_nd(arrays)).asnumpy()
        except ValueError as error:
            assert "must be a strategy that is exact" in str(error)
            continue
        np.testing.assert_allclose(out[~reached], clean[~reached], atol=1e-4, err_msg=f"{case.name}, {at}")
        assert case.op == "max_pool" or not np.isfinite(out[reached]).any()
        ran += 1
    assert ran or strategy in ("native", "full")


def test_max_pool_of_minus_infinity_and_of_large_negative_numbers():
    data = mx.nd.array([[[-np.inf, -3e38, -1e30, -1e30, -3e38]]])
    out = mxsame.ops.max_pool(data, 2, 2).asnumpy().ravel()
    np.testing.assert_array_equal(out, np.float32([-3e38, -1e30, -3e38]))


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_an_average_that_counts_padding_counts_nothing_beyond_it():
    """Without padding, the partial window of ceil_mode divides by the elements that it has."""
    data = mx.nd.array([[[1, 2, 3]]])
    for padding, want in (("valid", [1.5, 3.0]), (0, [1.5, 3.0]), (((0, 1),), [1.5, 1.5]), (((1, 0),), [0.5, 2.5])):
        out = mxsame.ops.avg_pool(data, 2, 2, padding, count_include_pad=True, ceil_mode=True)
        assert out.asnumpy().ravel().tolist() == want


# -- a second call with the same shapes costs a look-up


CALLS = {  # the shapes of the weights, and more
    "conv": ((4, 4, 3, 3), {}),
    "depthwise_conv": ((4, 1, 3, 3), {}),
    "separable_conv": ((4, 1, 3, 3), (2, 4, 1, 1), {}),
    "conv_transpose": ((4, 4, 3, 3), {}),
    "max_pool": ({"pool_size": 3},),
    "avg_pool": ({"pool_size": 3},),
    "avg_pool with padding": ({"pool_size": 3, "padding": 1, "count_include_pad": True, "ceil_mode": True},),
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_is_not_planned_again(name, layout, monkeypatch):
    """Nor does what is remembered keep arrays alive."""

    def shaped(shape):
        return tuple(shape) if layout == "NCHW" else (shape[0], *shape[2:], shape[1])

    *weights, more = CALLS[name]
    weights = [nd.random.uniform(shape=shaped(shape)) for shape in weights]
    data = [nd.random.uniform(shape=shaped((1, 4, 6, 5))) for _ in range(2)]
    call = functools.partial(getattr(ops, name.split()[0]), strides=2, layout=layout, **more)

    def references():
        return [sys.getrefcount(array) for array in (*data, *weights)]

    before = references()
    first = call(data[0], *weights).asnumpy()
    monkeypatch.setattr(_call, "inputs_of", None)
    np.testing.assert_array_equal(call(data[0], *weights).asnumpy(), first)
    assert not np.array_equal(call(data[1], *weights).asnumpy(), first)
    gc.collect()
    assert references() == before


def test_a_second_call_is_checked_as_the_first():
    data, weight = nd.ones((1, 1, 5)), nd.ones((1, 1, 3))
    for strides in ([1], (1,), np.int64(1), np.array([1])):
        assert ops.conv(data, weight, strides=strides, padding=[(1, 1)]).shape == (1, 1, 5)
    ops.conv(data, weight, padding=((1, 1),))
    wrongs = [{"strides": value} for value in (True, (1.0,), [True])]
    for wrong in (*wrongs, {"padding": ((1, 1.0),)}, {"groups": 1.0}):
        with pytest.raises(TypeError, match="must be an integer"):
            ops.conv(data, weight, **{"strides": 1, "padding": ((1, 1),), **wrong})
    with pytest.raises(TypeError, match="weight must have the type of data"):
        ops.conv(data, weight.astype("float64"), padding=((1, 1),))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Convolution", lambda data, weight: ops.conv(data, weight)),
        ("Deconvolution", lambda data, weight: ops.conv_transpose(data, weight)),
        ("Pooling", lambda data, weight: ops.max_pool(data, 2)),
    ],
)
def test_a_second_call_runs_the_operator_that_mxnet_has_by_then(monkeypatch, name, call):
    """`mxnet.contrib.amp`, for one, puts others in their place."""
    data, weight = nd.ones((1, 1, 5)), nd.ones((1, 1, 3))
    want = call(data, weight).asnumpy()
    called = running.seen_calls(monkeypatch, name)
    assert np.array_equal(call(data, weight).asnumpy(), want) and called == [name]


def test_an_argument_that_changes_is_read_at_each_call():
    class Length:
        value = 2

        def __index__(self):
            return self.value

    length = Length()
    assert ops.max_pool(nd.ones((1, 1, 8)), length).shape == (1, 1, 4)
    length.value = 4
    assert ops.max_pool(nd.ones((1, 1, 8)), length).shape == (1, 1, 2)


def test_a_second_call_follows_what_is_forced(monkeypatch):
    data, weight = nd.ones((1, 1, 8)), nd.ones((1, 1, 3))
    called = running.seen_calls(monkeypatch, "concat", "slice", "pad")

    def seen(strategy):
        called.clear()
        with planning.use_strategy(strategy):
            ops.conv(data, weight, strides=2)
        return called[:1]

    chosen = seen(None)
    for strategy in ("concat", "slice", "pad"):
        assert seen(strategy) == [strategy] and seen(None) == chosen


@pytest.mark.parametrize("hybridized", [False, True])
def test_the_gradient_of_a_3d_convolution_of_shallow_data(hybridized):
    """oneDNN adds it to memory that it has not cleared if no window lies inside the data along the first axis. A graph
    for deeper data, or for any, is not the one for it."""
    shallow = (
        (3, (3, 7, 8), 3, 2),
        (1, (4, 6, 5), 3, (3, 1, 2)),
        (16, (3, 5, 5), 3, 2),
        (2, (10, 6, 5), (5, 1, 2), (3, 1, 2)),
    )
    for channels, size, kernel_size, strides in shallow:
        gradients = {}
        for dtype in ("float64", "float32"):
            net = mxsame.nn.Conv3D(16, kernel_size, strides, in_channels=channels)
            net.initialize("ones")
            net.cast(dtype)
            mxsame.hybridize(net, active=hybridized and dtype == "float32")
            for deeper in (2, 0):
                nd.full((500, 500, 8), 1e30).wait_to_read()  # what memory holds that is used again
                running.recorded(net, running.normal(2, channels, size[0] + deeper, *size[1:], dtype=dtype))
            gradients[dtype] = net.weight.grad().asnumpy()
        np.testing.assert_allclose(gradients["float32"], gradients["float64"], rtol=0, atol=1e-3)
