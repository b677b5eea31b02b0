"""The padding of keras-mxnet, held against what keras-mxnet 2.2.4.3 itself gave (golden/make_keras_mxnet.py).

The rows of `cases.CASES` with this padding run in every other suite as well; tests/keras_mxnet runs the real thing.
"""

import functools
import itertools
import math

import cases
import oracle
import pytest
from golden import make, make_keras_mxnet
from running import assert_equal, by_name

import mxsame
import mxsame.keras.backend
import mxsame.keras.ops
from mxsame._mxnet import mx
from mxsame.padding import keeps_extra_output, keras_mxnet_pads, output_size, same_pads, transposed_crops
from mxsame.padding.keras_mxnet import KERAS_MXNET

nd, sym = mx.nd, mx.sym
GOLDEN = make.load(make_keras_mxnet.FILE)
CASES = [case for case in cases.CASES if not case.in_tensorflow]
RECORDED = [case for case in CASES if f"{case.name}/shape" in GOLDEN]


# ---- what keras-mxnet recorded ---------------------------------------------------------------------------------------


def test_what_keras_mxnet_can_run_is_recorded():
    assert {case.name for case in RECORDED} == {case.name for case in CASES if make_keras_mxnet.can_run(case)}
    assert len(RECORDED) > 30 and {case.op for case in RECORDED} == set(cases.OPS) - {"lp_pool"}
    for case in RECORDED:
        assert make.checksum(case, tuple(GOLDEN[f"{case.name}/shape"])) == GOLDEN[f"{case.name}/checksum"], case.name


def recorded(case):
    """(shape, output, gradients)."""
    start = f"{case.name}/gradient/"
    gradients = {key[len(start) :]: array for key, array in GOLDEN.items() if key.startswith(start)}
    return tuple(GOLDEN[f"{case.name}/shape"]), GOLDEN[f"{case.name}/forward"], gradients


@by_name(RECORDED)
def test_the_oracle_is_keras_mxnet(case):
    """test_ways.py compares mxsame with the oracle."""
    shape, wanted, wanted_gradients = recorded(case)
    arrays = cases.arrays(case)
    out = oracle.forward(case, arrays)
    assert out.shape == shape
    assert_equal(make.sample(out), wanted, what=case.name)
    gradients = oracle.gradients(case, arrays, cases.output_gradient(case, shape))
    assert set(gradients) == set(wanted_gradients)
    for name, gradient in wanted_gradients.items():
        assert_equal(make.sample(gradients[name]), gradient, what=f"{case.name}, gradient of {name}")


# ---- the arithmetic --------------------------------------------------------------------------------------------------

GRID = list(itertools.product(range(1, 25), range(1, 8), range(1, 6), range(1, 4)))


@pytest.mark.parametrize("kept", [False, True])
def test_pads_and_outputs_are_those_of_padding_alike_and_dropping(kept):
    """Both ends padded by ceil(P/2), MXNet's outputs counted, the last one dropped or kept."""
    extra = 0
    for n, k, s, d in GRID:
        extent, wanted = (k - 1) * d + 1, math.ceil(n / s)
        pad = math.ceil(((wanted - 1) * s + extent - n) / 2)
        if pad < 0:
            with pytest.raises(ValueError, match=rf"keras-mxnet cannot run .*; received size={n}, kernel_size={k}"):
                keras_mxnet_pads(n, k, s, d)
            continue
        low, high = keras_mxnet_pads(n, k, s, d)
        count = (n + 2 * pad - extent) // s + 1
        assert low == pad and low + high == sum(same_pads(n, k, s, d)) and 0 <= low - high <= 1
        assert output_size(n, k, s, d, KERAS_MXNET) == wanted <= count <= wanted + 1
        longer = keeps_extra_output("pool" if kept else "conv", 1, 0, k, s, d)
        assert output_size(n, k, s, d, extent // 2 if longer else KERAS_MXNET) == (count if kept else wanted)
        extra += count > wanted
    assert extra > 100


LONGER = [  # a pooling layer or a convolution with one output too many, and what keras-mxnet gives of it
    ("conv", (4, 5, 6), (2, 2, 2), (4, 5, 7)),
    ("pool", (4,), (2,), (5,)),
    ("pool", (4, 5), (2, 2), (5, 6)),
    ("pool", (4, 5), (3, 2), (4, 6)),
    ("pool", (4, 5, 6), (2, 2, 2), (4, 6, 7)),
]


@pytest.mark.parametrize(("operator", "size", "kernel", "out"), LONGER)
def test_layers_with_one_output_too_many_are_refused_and_have_pads(operator, size, kernel, out):
    rank, partial = len(size), functools.partial
    data, weight = nd.ones((1, 1, *size)), nd.ones((1, 1, *kernel))
    if operator == "conv":
        calls = [lambda word: mxsame.ops.conv(data, weight, padding=word)]
        calls += [partial(mxsame.nn.Conv3D, 1, kernel, 1), partial(mxsame.nn.DepthwiseConv3D, kernel, 1)]
    else:
        calls = [partial(pool, data, kernel, 1) for pool in (mxsame.ops.max_pool, mxsame.ops.avg_pool)]
        calls += [partial(mxsame.ops.avg_pool, sym.var("data"), kernel, 1)]
        calls += [partial(getattr(mxsame.nn, f"{kind}Pool{rank}D"), kernel, 1) for kind in ("Max", "Avg")]
    for call in calls:
        with pytest.raises(ValueError, match=r"ceil\(n/s\) outputs, .*explicit pads of ke//2 .*received kernel_size"):
            call("Keras-MXNet")
    if all(keeps_extra_output(operator, rank, axis, k) for axis, k in enumerate(kernel)):
        assert calls[0]([k // 2 for k in kernel]).shape[2:] == out


def test_crops_of_transposed_convolutions():
    """The start loses the larger half of what SAME crops."""
    for k, s, d in itertools.product(range(1, 8), range(1, 6), range(1, 4)):
        extent = (k - 1) * d + 1
        if extent < s or (s == 1 and extent % 2 == 0):
            with pytest.raises(ValueError, match=rf"keras-mxnet cannot run .*; received ke={extent}, stride={s}"):
                transposed_crops(k, s, d, KERAS_MXNET)
            continue
        assert transposed_crops(k, s, d, KERAS_MXNET) == transposed_crops(k, s, d)[::-1]
    assert transposed_crops(4, 2, 1, KERAS_MXNET, 0) == (2, 2), "Keras's rule for the size; TensorFlow would refuse"
    assert transposed_crops(3, 2, 1, KERAS_MXNET, 1) == (1, 0)


# ---- averages --------------------------------------------------------------------------------------------------------


def test_averages_count_padding():
    data = nd.array([[[1, 2, 3]]])
    for more in ({}, {"count_include_pad": None}, {"count_include_pad": True}, {"ceil_mode": True}):
        assert mxsame.ops.avg_pool(data, 2, 2, KERAS_MXNET, **more).asnumpy().tolist() == [[[0.5, 2.5]]]
        assert mxsame.nn.AvgPool1D(2, 2, KERAS_MXNET, **more)(data).asnumpy().tolist() == [[[0.5, 2.5]]]
    assert "padding='keras-mxnet'" in repr(mxsame.nn.AvgPool1D(2, 2, KERAS_MXNET))
    assert "count_include_pad=True" in repr(mxsame.nn.AvgPool1D(2, 2, KERAS_MXNET))
    assert "count_include_pad=False" in repr(mxsame.nn.AvgPool1D(2, 2))


def test_averages_always_count_padding():
    for call in (mxsame.nn.AvgPool2D, functools.partial(mxsame.ops.avg_pool, nd.ones((1, 1, 4, 4)))):
        with pytest.raises(ValueError, match=r"count_include_pad must be True .*; received count_include_pad=False"):
            call(2, padding=KERAS_MXNET, count_include_pad=False)
        with pytest.raises(TypeError, match=r"count_include_pad must be True or False; received count_include_pad=0"):
            call(2, padding=KERAS_MXNET, count_include_pad=0)


# ---- what is refused -------------------------------------------------------------------------------------------------


DATA, WEIGHT = nd.ones((1, 1, 6, 7)), nd.ones((1, 1, 2, 2))
upward = functools.partial(mxsame.ops.conv_transpose, DATA, padding=KERAS_MXNET)
OLD = {"strides": (3, 1), "padding": KERAS_MXNET}
REFUSED = {  # calls of what keras-mxnet cannot run
    "conv": lambda: mxsame.ops.conv(DATA, nd.ones((1, 1, 1, 1)), **OLD),
    "max": lambda: mxsame.ops.max_pool(DATA, 1, **OLD),
    "symbol": lambda: mxsame.ops.max_pool(sym.var("data"), 1, input_size=(6, 7), **OLD),
    "unknown size": lambda: mxsame.ops.max_pool(sym.var("data"), (1, 1), **OLD),
    "longer output": lambda: upward(WEIGHT, strides=3),
    "odd crop": lambda: upward(WEIGHT, strides=1),
    "negative crop": lambda: upward(nd.ones((1, 1, 1, 1)), strides=2, output_padding=1),
    "strides, dilation": lambda: upward(WEIGHT, strides=(2, 1), dilation=(1, 2)),
    "layer": lambda: mxsame.nn.Conv2DTranspose(1, 3, 2, KERAS_MXNET, dilation=2),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=list(REFUSED))
def test_what_keras_mxnet_cannot_run_is_refused(call):
    with pytest.raises(ValueError, match=r"^keras-mxnet cannot run .*; received [a-z_]+="):
        call()
