"""Bad input to `mxsame.keras`: every argument of every function, refused in Keras's words before MXNet sees it."""

import inspect
import re

import pytest
from test_bad_input import refused

from mxsame._mxnet import mx
from mxsame.keras import backend, ops

nd, sym = mx.nd, mx.sym

KERNELS = {"conv": (3, 2, 4, 5), "depthwise": (3, 2, 4, 2), "transpose": (3, 2, 5, 4), "pointwise": (1, 1, 8, 5)}
FUNCTIONS = [getattr(backend, name) for name in backend.__all__ if "image_data_format" not in name]
FUNCTIONS += [getattr(ops, name) for name in ops.__all__]
WRONG = (-1, 1.5, object())  # for every argument
FROM_ONE = ("strides", "dilation_rate", "pool_size")
FOREIGN = re.compile(r"\b(data must|weight|layout=|dilation\b|input_size|mxsame\.ops|in_channels|num_filter)")


def name_of(function):
    return f"{function.__module__.rsplit('.', 1)[1]}.{function.__name__}"


def right(function, kind=nd.ones):
    """Arguments with which the function runs; kernels of a graph have shapes, and so has data without kernels."""
    name, shapes = function.__name__, {}
    rank = int((re.search(r"(\d)d", name) or (0, "2"))[1])
    for argument in inspect.signature(function).parameters:
        if argument in ("x", "inputs"):
            shapes[argument] = (*(2, 8, 7, 6, 4)[: rank + 1], 4)
        elif "kernel" in argument:
            depthwise = argument.startswith("depthwise") or name.startswith("depthwise")
            which = "pointwise" if "pointwise" in argument else "depthwise" if depthwise else "conv"
            *size, first, second = KERNELS["transpose" if "transpose" in name else which]
            shapes[argument] = ((*size, 1)[:rank] if rank > 1 else tuple(size[:1])) + (first, second)
    given = {argument: kind(shape) for argument, shape in shapes.items()}
    needed = {"output_shape": None, "pool_size": (2,) * rank}
    return {**given, **{key: needed[key] for key in needed if key in inspect.signature(function).parameters}}


def variable(shape):
    return sym.var("v", shape=shape)


def refused_in_keras_words(call, match, kinds=(TypeError, ValueError)):
    """As `refused`, and no name of an argument of mxsame.ops or MXNet in the message."""
    message = refused(call, match, kinds)
    assert not FOREIGN.search(message), message


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_every_argument(function):
    for kind in (nd.ones, variable):
        given = right(function, kind)
        function(**given)
        for argument in inspect.signature(function).parameters:
            for value in (*WRONG, 0) if argument in FROM_ONE else WRONG:
                refused_in_keras_words(lambda given={**given, argument: value}: function(**given), rf"{argument}\b")


@pytest.mark.parametrize("function", [each for each in FUNCTIONS if "pool" not in each.__name__], ids=name_of)
def test_kernels_that_contradict_the_data_or_are_unknown(function):
    given = right(function)
    for argument in [argument for argument in given if "kernel" in argument]:
        shape = list(given[argument].shape)
        shape[-1 if "transpose" in function.__name__ else -2] += 1
        wrong = {**given, argument: nd.ones(shape)}
        refused_in_keras_words(lambda wrong=wrong: function(**wrong), "kernel", ValueError)
        wrong = {**right(function, variable), argument: sym.var("k", shape=(0,) * len(shape))}
        refused_in_keras_words(lambda wrong=wrong: function(**wrong), f"^{argument} must have a static", ValueError)


ones = nd.ones
X, KERNEL, TRANSPOSED = ones((2, 8, 7, 4)), ones(KERNELS["conv"]), ones(KERNELS["transpose"])
UNKNOWN, HALVES = sym.var("x"), [array.astype("float16") for array in (X, KERNEL)]

FIRST = "channels_first"


def up(output_shape, x=X, kernel=TRANSPOSED):
    return backend.conv2d_transpose(x, kernel, output_shape)


MORE = [
    (lambda: backend.conv2d(X, KERNEL, dilation_rate=(4, 1)), "as long as the kernel.* received size=8, .*ke=9"),
    (
        lambda: ops.conv(X, ones((3, 2, 3, 5))),
        "inputs must have the kernel's 3 input channels, or groups .* its 5 output",
    ),
    (lambda: backend.conv2d(ones((2, 9, 7, 3)), KERNEL, 1, "valid", FIRST), f"channels; received x.shape=.*'{FIRST}'"),
    (lambda: backend.conv2d(X.asnumpy(), KERNEL), r"received x of type numpy.ndarray; nd.array\(x\) is an NDArray"),
    (lambda: backend.conv2d(*HALVES), r"^x must be float32 or float64 on the CPU.* received x.dtype='float16'"),
    (lambda: ops.max_pool(UNKNOWN, (2, 2), 5000), r"strides must be <= 4096 .* strides=\(5000, 5000\)"),
    (lambda: ops.average_pool(UNKNOWN, 2), "spatial axes must be known: give data of known shape"),
    (lambda: ops.max_pool(ones((1,) * 6), 2), r"must be 1, 2 or 3, .* inputs\.ndim - 2=4"),
    (lambda: ops.conv(X, ones((2, 4, 5))), r"inputs\.ndim - 2=2, kernel\.ndim - 2=1"),
    (lambda: backend.conv1d(X, ones((2, 4, 5))), r"num_spatial_dims=1, x\.ndim - 2=2"),
    (lambda: ops.max_pool(X, (2, 2, 2)), r"len\(pool_size\)=3, inputs\.ndim - 2=2"),
    (lambda: backend.conv2d(X, KERNEL, data_format="NHWC"), 'data_format must be one of "channels_first"'),
    (lambda: backend.conv2d(X, KERNEL, stride=2), "^stride must be given as strides; received stride=2$"),
    (lambda: backend.pool2d(X, 2, pool_mode="sum"), 'pool_mode must be one of "max"'),
    (lambda: ops.conv_transpose(X, TRANSPOSED, 2, "same", 2), "output_padding must be less than the stride"),
    (
        lambda: ops.max_pool(X, 2, padding=((0, 1), (0, 1))),
        "one of same, valid, as in Keras, which accepts no explicit pads: pad",
    ),
    (lambda: up((2, 5, 10, 8)), r"output_shape\[3\] must agree with the output channels of kernel, 5; .*\[3\]=8"),
    (lambda: up((1, 10, 8, 5)), r"output_shape\[0\] must agree with the batch"),
    (lambda: up((2, 10, 9, 5)), r"output_shape\[2\] must be 8: .* the length of x; .*=\(2, 10, 9, 5\)"),
    (
        lambda: up((2, 1, 9, 5), UNKNOWN, variable((3, 2, 5, 4))),
        r"output_shape\[1\] must be 3 or more: .* of x; received",
    ),
    *(
        (lambda shape=shape: up(shape), "output_shape")
        for shape in (4, (2, 10, 8), (2, 0, 8, 5), (True, 10, 8, 5), (2.0, 10, 8, 5), (2, UNKNOWN, 8, 5), "abcd")
    ),
    (lambda: up(nd.array([2, 10, 8, 5])), "output_shape"),
    (lambda: backend.set_image_data_format(None), "data_format must be one of"),
]


@pytest.mark.parametrize(("call", "match"), MORE, ids=[match for _, match in MORE])
def test_more(call, match):
    refused_in_keras_words(call, match)
    assert backend.image_data_format() == "channels_last"
