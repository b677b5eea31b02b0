"""Bad input to `mxsame.keras`: every argument of every function, refused in Keras's words before MXNet sees it."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from test_bad_input import (
    ARRAY,
    GENERATOR,
    HUGE,
    NO_NUMBER,
    NOTHING,
    ODD_ARRAYS,
    PER_AXIS,
    TOO_SMALL,
    WRONG_ENTRIES,
    WRONG_LENGTHS,
    ZERO,
    cases,
    refused,
)

from mxsame._mxnet import mx
from mxsame.keras import backend, ops

nd, sym = mx.nd, mx.sym

NO_WORD = [
    ("int", 1), ("bool", True), ("bytes", b"same"), ("float", 1.0), ("list", ["same"]), ("tuple", ((1, 1), (1, 1))),
    ("pair", (1, 1)), ("dict", {}), ("object", object()), ("array", np.array(["same"])), ("NDArray", nd.ones((1,))),
    ("empty", ""), ("spaces", " same "), ("full", "full"), ("type", str),
]  # fmt: skip
PADDING = [*NO_WORD, *NOTHING, ("causal", "causal"), ("sane", "sane")]
DATA_FORMAT = [*NO_WORD, ("NHWC", "NHWC"), ("first", "first"), ("spaced", "channels last")]
POOL_MODE = [*NO_WORD, *NOTHING, ("average", "average"), ("sum", "sum")]
SIZES = PER_AXIS + NOTHING
POSSIBLE_IN_A_GRAPH = ((3, 10, 8, 5), (2, 12, 8, 5), (2, 9, 8, 5))  # with other data than ours
OUTPUT_SHAPE = [
    *((name, value) for name, value in NO_NUMBER if name not in ("array0f", "array0b")), *GENERATOR, *ZERO, *TOO_SMALL,
    *HUGE, *WRONG_LENGTHS, *WRONG_ENTRIES, ("int", 4), ("batch", POSSIBLE_IN_A_GRAPH[0]), ("channels", (2, 10, 8, 6)),
    ("floats4", (2.0, 10.0, 8.0, 5.0)), ("with-symbol", (2, sym.var("h"), 8, 5)), ("NDArray4", nd.array([2, 10, 8, 5])),
    ("bools4", (True, 10, 8, 5)), ("zero4", (2, 0, 8, 5)), ("negative4", (2, -1, 8, 5)),
    ("too-long", POSSIBLE_IN_A_GRAPH[1]), ("too-short", POSSIBLE_IN_A_GRAPH[2]), ("huge4", (2, 2**31, 8, 5)),
    ("first", (2, 5, 10, 8)),
    ("words", ("2", "10", "8", "5")),
]  # fmt: skip

DATA, KERNEL, DEPTHWISE = (2, 8, 7, 4), (3, 2, 4, 5), (3, 2, 4, 2)
SEPARABLE = {"depthwise_kernel": DEPTHWISE, "pointwise_kernel": (1, 1, 8, 5)}
WINDOW = {"strides": SIZES, "padding": PADDING, "data_format": DATA_FORMAT}
WITH_KERNEL = {**WINDOW, "dilation_rate": SIZES}
POOL = {**WINDOW, "pool_size": SIZES}


def for_rank(rank, table):
    """Of what is wrong for two axes, what is wrong for another number of them."""
    right = {1: ("one",), 3: ("three", "array3")}[rank]
    return {name: [row for row in values if row[0] not in right] for name, values in table.items()}


BACKEND = {  # function: (arrays, arguments that must be given, what is wrong for each argument)
    "conv1d": (
        {"x": DATA[1:], "kernel": KERNEL[1:]},
        {},
        for_rank(1, {**WITH_KERNEL, "padding": [row for row in PADDING if row[0] != "causal"]}),
    ),
    "conv2d": ({"x": DATA, "kernel": KERNEL}, {}, WITH_KERNEL),
    "conv3d": ({"x": (2, *DATA), "kernel": (1, *KERNEL)}, {}, for_rank(3, WITH_KERNEL)),
    "conv2d_transpose": (
        {"x": DATA, "kernel": (3, 2, 5, 4)},
        {"output_shape": (2, 10, 8, 5)},
        {**WITH_KERNEL, "output_shape": OUTPUT_SHAPE},
    ),
    "conv3d_transpose": (
        {"x": (2, *DATA), "kernel": (1, 3, 2, 5, 4)},
        {"output_shape": None},
        {**for_rank(3, WINDOW), "output_shape": OUTPUT_SHAPE},
    ),
    "depthwise_conv2d": ({"x": DATA, "depthwise_kernel": DEPTHWISE}, {}, WITH_KERNEL),
    "separable_conv1d": (
        {"x": DATA[1:], "depthwise_kernel": DEPTHWISE[1:], "pointwise_kernel": (1, 8, 5)},
        {},
        for_rank(1, WITH_KERNEL),
    ),
    "separable_conv2d": ({"x": DATA, **SEPARABLE}, {}, WITH_KERNEL),
    "pool2d": ({"x": DATA}, {"pool_size": (3, 2)}, {**POOL, "pool_mode": POOL_MODE}),
    "pool3d": ({"x": (2, *DATA)}, {"pool_size": (1, 3, 2)}, {**for_rank(3, POOL), "pool_mode": POOL_MODE}),
}
OPS = {
    "conv": ({"inputs": DATA, "kernel": KERNEL}, {}, WITH_KERNEL),
    "depthwise_conv": ({"inputs": DATA, "kernel": DEPTHWISE}, {}, WITH_KERNEL),
    "separable_conv": ({"inputs": DATA, **SEPARABLE}, {}, WITH_KERNEL),
    "conv_transpose": (
        {"inputs": DATA, "kernel": (3, 2, 5, 4)},
        {},
        {
            **WITH_KERNEL,
            "output_padding": [*((n, v) for n, v in PER_AXIS if n not in ("0", "with-zero")), ("stride", 1)],
        },
    ),
    "max_pool": ({"inputs": DATA}, {"pool_size": (3, 2)}, {**POOL, "strides": PER_AXIS}),
    "average_pool": ({"inputs": DATA}, {"pool_size": (3, 2)}, {**POOL, "strides": PER_AXIS}),
}
FUNCTIONS = {
    **{getattr(backend, name): row for name, row in BACKEND.items()},
    **{getattr(ops, name): row for name, row in OPS.items()},
}
FOREIGN = re.compile(r"\b(data must|weight|layout|dilation\b|input_size|mxsame|in_channels|num_filter)")


def name_of(function):
    return f"{function.__module__.rsplit('.', 1)[1]}.{function.__name__}"


def as_ndarrays(shapes, **changes):
    return {**{name: nd.ones(shape) for name, shape in shapes.items()}, **changes}


def as_symbols(shapes, **changes):
    """The kernels have shapes, the data has none; where there are no kernels it has so many axes."""
    first = next(iter(shapes))
    variables = {name: sym.var(name, shape=shape) for name, shape in shapes.items()}
    variables[first] = sym.var(first) if len(shapes) > 1 else sym.var(first, shape=(0,) * len(shapes[first]))
    return {**variables, **changes}


def refused_in_keras_words(call, match, kinds=(TypeError, ValueError)):
    """As `refused`, and no name of an argument of mxsame.ops or MXNet in the message."""
    refused(call, match, kinds)
    with pytest.raises(kinds) as caught:
        call()
    message = str(caught.value)
    assert not FOREIGN.search(message), message


def test_every_argument_of_every_function_has_a_row():
    listed = {name for name in backend.__all__ if "image_data_format" not in name} | set(ops.__all__)
    assert {function.__name__ for function in FUNCTIONS} == listed
    for function, (arrays, _, wrong) in FUNCTIONS.items():
        assert {*arrays, *wrong} == set(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("function", "argument", "value"),
    cases({function: wrong for function, (_, _, wrong) in FUNCTIONS.items()}, name_of),
)
def test_argument(function, argument, value):
    shapes, needed, _ = FUNCTIONS[function]
    match = rf"{argument}|spatial axes.*{argument}"
    refused_in_keras_words(lambda: function(**as_ndarrays(shapes), **{**needed, argument: value}), match)
    if not any(value is possible for possible in POSSIBLE_IN_A_GRAPH):
        refused_in_keras_words(lambda: function(**as_symbols(shapes), **{**needed, argument: value}), match)


EVERY_ARRAY = [
    pytest.param(function, argument, id=f"{name_of(function)}-{argument}")
    for function, (shapes, _, _) in FUNCTIONS.items()
    for argument in shapes
]


@pytest.mark.parametrize(("function", "argument"), EVERY_ARRAY)
def test_array_of_no_kind(function, argument):
    shapes, needed, _ = FUNCTIONS[function]
    for _, value in ARRAY + NOTHING:
        for arrays in (as_ndarrays, as_symbols):
            refused_in_keras_words(
                lambda arrays=arrays, value=value: function(**arrays(shapes, **{argument: value}), **needed),
                rf"^{argument} must be an NDArray",
                TypeError,
            )


@pytest.mark.parametrize(("function", "argument"), EVERY_ARRAY)
def test_array_of_another_kind(function, argument):
    shapes, needed, _ = FUNCTIONS[function]
    single = ("group", "split", "int32", "bool", "sparse", "rank0", "rank-1", "rank+1", "rank+3")
    for kind, (make, match, error) in ODD_ARRAYS.items():
        if len(shapes) > 1 or (kind in single and not (kind == "rank-1" and function.__module__.endswith("ops"))):
            if kind == "rank+1" and function in (ops.max_pool, ops.average_pool):
                match = "len.pool_size"
            refused_in_keras_words(
                lambda make=make: function(**as_ndarrays(shapes, **{argument: make(shapes[argument])}), **needed),
                match.replace("shape", rf"{argument} must have the shape"),
                error,
            )


def axes_fixed_elsewhere(function, argument):
    """The axes, counted from the end, whose lengths another array fixes; data is channels last."""
    name, ndim = function.__name__, len(FUNCTIONS[function][0][argument])
    if argument == "pointwise_kernel":
        return range(-ndim, -1)
    if argument in ("x", "inputs") or "transpose" in name:
        return [-1]
    return [-2, -1] if "separable" in name else [-2]


@pytest.mark.parametrize(("function", "argument"), EVERY_ARRAY)
def test_shape_that_contradicts_another(function, argument):
    shapes, needed, _ = FUNCTIONS[function]
    for axis in axes_fixed_elsewhere(function, argument) if len(shapes) > 1 else ():
        shape = list(shapes[argument])
        shape[axis] += 1
        refused_in_keras_words(
            lambda shape=shape: function(**as_ndarrays(shapes, **{argument: nd.ones(shape)}), **needed),
            "kernel",
            ValueError,
        )


@pytest.mark.parametrize("function", [function for function, row in FUNCTIONS.items() if len(row[0]) > 1], ids=name_of)
def test_kernel_of_unknown_shape(function):
    shapes, needed, _ = FUNCTIONS[function]
    for kernel in list(shapes)[1:]:
        for variable in (sym.var("k"), sym.var("k", shape=(0,) * len(shapes[kernel]))):
            refused_in_keras_words(
                lambda variable=variable, kernel=kernel: function(**as_symbols(shapes, **{kernel: variable}), **needed),
                f"^{kernel} must have a static shape",
                ValueError,
            )


ones = nd.ones
X = ones(DATA)

MORE = {
    "short": (lambda: backend.conv2d(ones((1, 2, 9, 4)), ones(KERNEL)), "at least as long as the kernel"),
    "short-dilated": (
        lambda: backend.conv2d(X, ones(KERNEL), dilation_rate=(4, 1)),
        r"as long as the kernel, 9 .* received size=8, .*kernel_size=3, dilation_rate=4",
    ),
    "short-pool": (lambda: backend.pool2d(X, (9, 1)), r"as long as the kernel.* received size=8, .*pool_size=9"),
    "short-pool-ops": (lambda: ops.max_pool(X, 9), r"pool_size=9"),
    "short-separable": (
        lambda: ops.separable_conv(ones((1, 2, 9, 4)), ones(DEPTHWISE), ones((1, 1, 8, 5))),
        "at least as long",
    ),
    "effective": (lambda: backend.conv2d(X, ones(KERNEL), dilation_rate=2**28), r"received kernel_size=3, dilation_r"),
    "effective-transposed": (
        lambda: backend.conv2d_transpose(X, ones((3, 2, 5, 4)), None, dilation_rate=2**28),
        "received kernel_size=3, dilation_rate=268435456",
    ),
    "groups": (lambda: ops.conv(X, ones((3, 2, 3, 5))), "inputs channels must be a multiple of kernel input channels"),
    "groups-more": (lambda: backend.conv2d(X, ones((3, 2, 8, 8))), "x channels must be a multiple of kernel input"),
    "groups-out": (
        lambda: backend.conv2d(X, ones((3, 2, 2, 5))),
        "kernel output channels must be a multiple of groups",
    ),
    "float16": (
        lambda: backend.conv2d(X.astype("float16"), ones(KERNEL, dtype="float16")),
        r"^x must be float32 or float64 on the CPU.* received x.dtype='float16'",
    ),
    "float16-ops": (
        lambda: ops.conv_transpose(X.astype("float16"), ones((3, 2, 5, 4), dtype="float16")),
        r"^inputs must be float32 .* received inputs.dtype='float16'",
    ),
    "strides-dynamic-shape": (
        lambda: ops.max_pool(sym.var("inputs"), (2, 2), 5000),
        r"strides must be <= 4096 for inputs of dynamic shape; give inputs a shape; received strides=\(5000, 5000\)",
    ),
    "rank-unknown": (lambda: ops.average_pool(sym.var("inputs"), 2), "give inputs a shape, or pool_size one entry"),
    "rank-4": (lambda: ops.max_pool(ones((1,) * 6), 2), r"must be 1, 2 or 3 .* inputs\.ndim - 2=4"),
    "rank-kernel": (lambda: ops.conv(X, ones(KERNEL[1:])), r"inputs\.ndim - 2=2, kernel\.ndim - 2=1"),
    "rank-of-name": (lambda: backend.conv1d(X, ones(KERNEL)), r"x must have the shape \(batch, \*size, channels\)"),
    "rank-of-name-first": (
        lambda: backend.pool3d(X, 2, data_format="channels_first"),
        r"x must have the shape \(batch, channels, \*size\)",
    ),
    "causal-2d": (lambda: backend.conv2d(X, ones(KERNEL), padding="causal"), 'padding as a word must be one of "same"'),
    "output-padding-stride": (
        lambda: ops.conv_transpose(X, ones((3, 2, 5, 4)), 2, "same", 2),
        "output_padding must be less than the stride",
    ),
    "output-padding-even": (
        lambda: ops.conv_transpose(X, ones((3, 2, 5, 4)), 2, "same", 0),
        "output_padding must leave an output",
    ),
    "output-shape-first": (
        lambda: backend.conv2d_transpose(X, ones((3, 2, 5, 4)), (2, 5, 10, 8)),
        r"output_shape\[3\] must agree with the output channels of kernel, 5; received output_shape\[3\]=8",
    ),
    "output-shape-batch": (
        lambda: backend.conv2d_transpose(X, ones((3, 2, 5, 4)), (1, 10, 8, 5)),
        r"output_shape\[0\] must agree with the batch of x, 2",
    ),
    "output-shape-length": (
        lambda: backend.conv2d_transpose(X, ones((3, 2, 5, 4)), (2, 10, 9, 5)),
        r"output_shape\[2\] must be a length .* the length of x, 7, such as 8; received output_shape=\(2, 10, 9, 5\)",
    ),
    "output-shape-graph": (
        lambda: backend.conv2d_transpose(sym.var("x"), sym.var("k", shape=(3, 2, 5, 4)), (2, 1, 9, 5)),
        r"output_shape\[1\] must be a length .* turns into the length of x; received",
    ),
    "set-None": (lambda: backend.set_image_data_format(None), "data_format must be one of"),
    "set-word": (
        lambda: backend.set_image_data_format("NHWC"),
        'data_format as a word must be one of "channels_first"',
    ),
}


@pytest.mark.parametrize(("call", "match"), MORE.values(), ids=list(MORE))
def test_more(call, match):
    refused_in_keras_words(call, match)
    assert backend.image_data_format() == "channels_last"
