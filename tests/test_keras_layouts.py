"""`mxsame.keras.layouts`: each axis where it belongs, there and back, for every kind of array."""

import itertools

import numpy as np
import pytest
from test_bad_input import refused

from mxsame._mxnet import mx
from mxsame.keras import layouts

nd, sym = mx.nd, mx.sym
LAYOUTS = {"NCW": 1, "NWC": 1, "NCHW": 2, "NHWC": 2, "NCDHW": 3, "NDHWC": 3}
SIZES = {1: (5,), 2: (5, 2), 3: (5, 2, 4)}


def shapes(kind, layout):
    """(Keras's shape, MXNet's shape), with a different length on every axis."""
    rank = LAYOUTS[layout]
    size, last = SIZES[rank], layout.endswith("C")

    def weight(first, second, size=size):
        return (first, *size, second) if last else (first, second, *size)

    if kind == "conv":  # 3 input channels, or 3 of each group
        return (*size, 3, 7), weight(7, 3)
    if kind == "depthwise":
        return (*size, 3, 2), weight(6, 1)
    if kind == "pointwise":
        return (*(1,) * rank, 6, 7), weight(7, 6, (1,) * rank)
    return (*size, 7, 3), weight(3, 7)  # transposed: 7 outputs of 3 inputs


def index_in_mxnet(kind, layout, index):
    """The index in MXNet's weight of an element of a Keras kernel, by the meaning of its axes."""
    *position, a, b = index
    if kind == "depthwise":  # input channel a, its kernel b: output channel a*m + b
        first, second = a * 2 + b, 0
    else:  # convolutions are (input, output) to Keras, transposed ones (output, input); MXNet has the last one first
        first, second = b, a
    return (first, *position, second) if layout.endswith("C") else (first, second, *position)


def multiplier(kind):
    return {"depth_multiplier": 2} if kind == "depthwise" else {}


EVERY = [pytest.param(*each, id="-".join(each)) for each in itertools.product(layouts.KINDS, LAYOUTS)]


@pytest.mark.parametrize(("kind", "layout"), EVERY)
def test_every_element_is_where_it_belongs(kind, layout):
    keras_shape, mxnet_shape = shapes(kind, layout)
    kernel = np.arange(np.prod(keras_shape), dtype=np.float64).reshape(keras_shape)
    weight = layouts.to_mxnet(kernel, kind, layout)
    assert weight.shape == mxnet_shape
    for index in np.ndindex(*keras_shape):
        assert weight[index_in_mxnet(kind, layout, index)] == kernel[index]


@pytest.mark.parametrize(("kind", "layout"), EVERY)
def test_there_and_back_is_exact(kind, layout):
    keras_shape, _ = shapes(kind, layout)
    values = np.random.default_rng(3).standard_normal(keras_shape).astype(np.float32)
    wanted, shaped = layouts.to_mxnet(values, kind, layout), sym.var("k", shape=keras_shape)
    arrays = nd.array(values), mx.np.array(values)
    for kernel in (values, *arrays, sym.var("k"), shaped, shaped.as_np_ndarray()):
        there = layouts.to_mxnet(kernel, kind, layout)
        back = layouts.to_keras(there, kind, layout, **multiplier(kind))
        for got, result in ((there, wanted), (back, values)):
            assert type(got) is type(kernel)
            if isinstance(got, sym.Symbol):
                (got,) = got.bind(mx.cpu(), {"k": arrays[0]}).forward()
            assert got.dtype == np.float32
            assert np.array_equal(got if kernel is values else got.asnumpy(), result)


def test_gradients_flow_through():
    kernel = nd.random.normal(shape=(3, 2, 4, 5))
    kernel.attach_grad()
    factor = np.random.default_rng(1).standard_normal((20, 1, 3, 2)).astype(np.float32)
    with mx.autograd.record():
        (layouts.to_mxnet(kernel, "depthwise") * nd.array(factor)).sum().backward()
    assert np.array_equal(kernel.grad.asnumpy(), layouts.to_keras(factor, "depthwise", depth_multiplier=5))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8"])
def test_numpy_arrays_of_every_type(dtype):
    kernel = np.arange(24, dtype=dtype).reshape(3, 2, 4)
    weight = layouts.to_mxnet(kernel, "conv", "NWC")
    assert weight.dtype == kernel.dtype and weight.flags.c_contiguous
    assert np.array_equal(layouts.to_keras(weight, "conv", "NWC"), kernel)


# ---- bad input -------------------------------------------------------------------------------------------------------

KERNEL = np.zeros((3, 3, 4, 2), np.float32)
WEIGHT = np.zeros((8, 1, 3, 3), np.float32)

BAD = [
    (lambda: layouts.to_mxnet(KERNEL, None), 'kind must be one of "conv", "depthwise"'),
    (lambda: layouts.to_mxnet(KERNEL, "conv", "channels_last"), "layout must be one of"),
    (lambda: layouts.to_mxnet(KERNEL, "conv", "NWC"), r"len\(layout\) - 2=1, kernel\.ndim - 2=2"),
    (lambda: layouts.to_keras(nd.ones((1,) * 6), "conv"), r"weight\.ndim - 2=4"),
    (lambda: layouts.to_mxnet(sym.var("k"), "conv"), "must be known: give .* a layout"),
    (lambda: layouts.to_mxnet(KERNEL, "pointwise"), r"\(1, .., input channels, output channels\)"),
    (lambda: layouts.to_keras(KERNEL, "pointwise"), "weight must have the shape"),
    (lambda: layouts.to_keras(KERNEL, "depthwise", depth_multiplier=1), "must have the shape"),
    (lambda: layouts.to_keras(WEIGHT, "depthwise", "NHWC", depth_multiplier=1), "have the shape"),
    (lambda: layouts.to_keras(WEIGHT, "depthwise"), "depth_multiplier must be an integer"),
    (lambda: layouts.to_keras(WEIGHT, "depthwise", depth_multiplier=3), "multiple of depth_mult"),
    (lambda: layouts.to_keras(WEIGHT, "conv", depth_multiplier=1), "must be left out"),
    (lambda: layouts.to_mxnet(nd.ones((1, 1, 1), dtype="int32"), "conv"), "kernel must have a float type"),
    (lambda: layouts.to_mxnet([KERNEL], "conv"), "kernel must be an NDArray"),
]


@pytest.mark.parametrize(("call", "match"), BAD, ids=[match for _, match in BAD])
def test_bad_input(call, match):
    refused(call, match)
