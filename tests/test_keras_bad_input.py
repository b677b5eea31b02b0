"""Bad input to `mxsame.keras`: every argument of every function, refused in Keras's words before MXNet sees it."""

import inspect
import re

import pytest
from test_bad_input import bad_calls, refused

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


@pytest.mark.parametrize(("call", "match"), bad_calls("mxsame.keras"))
def test_more(call, match):
    refused_in_keras_words(lambda: eval(call), match)
    assert backend.image_data_format() == "channels_last"
