"""Bad input: every argument of every operator, block and function of the arithmetic, given what it must not be given.

Each call must end in a `TypeError` or `ValueError` that mxsame itself raises, with the rule and "received name=value":
never in an error of MXNet, an assertion, a hang or a dead process. What must be accepted stands at the end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback

import numpy as np
import pytest
import running

import mxsame
from mxsame import nn, ops, padding, plan
from mxsame._mxnet import mx

nd, sym = mx.nd, mx.sym
PACKAGE = os.path.dirname(mxsame.__file__) + os.sep


def refused(call, match, kinds=(TypeError, ValueError)):
    """The call is refused by mxsame, in one line that says the rule and what was received."""
    with pytest.raises(kinds) as caught:
        call()
        nd.waitall()
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    message = str(caught.value)
    assert frame.filename.startswith(PACKAGE), f"{frame.filename}:{frame.lineno} raised: {message}"
    assert re.search(match, message), message
    assert "received" in message, message
    assert len(message) < 600, message
    assert "\n" not in message, message


# ---- what is given: (id, value) --------------------------------------------------------------------------------------

NOTHING = [("None", None)]
NO_NUMBER = [
    ("text", "3"), ("bytes", b"3"), ("float", 3.0), ("nan", float("nan")), ("inf", float("inf")), ("complex", 1j),
    ("True", True), ("np.bool_", np.bool_(True)), ("np.float32", np.float32(3)), ("dict", {3: 3}), ("set", {3}),
    ("object", object()), ("type", int), ("array0f", np.array(3.0)), ("array0b", np.array(True)),
    ("array2", np.ones((2, 2), int)), ("NDArray", nd.ones((2,))), ("Symbol", sym.var("s")),
]  # fmt: skip
GENERATOR = [("generator", (n for n in (1, 1)))]
SEQUENCES = [("list", [1]), ("tuple", (1, 1)), ("empty", ())]
TOO_SMALL = [("-1", -1), ("np-1", np.int64(-1)), ("-10**30", -(10**30)), ("-2**63", -(2**63))]
ZERO = [("0", 0)]
HUGE = [("2**31", 2**31), ("2**63", 2**63), ("10**30", 10**30), ("10**5000", 10**5000), ("np2**40", np.int64(2**40))]
WRONG_LENGTHS = [("empty", ()), ("one", (1,)), ("three", (1, 1, 1)), ("five", [1] * 5), ("array3", np.ones(3, int))]
WRONG_ENTRIES = [
    ("nested", ((1, 1), (1, 1))), ("nested-list", [[1], [1]]), ("with-None", (1, None)), ("with-text", [1, "1"]),
    ("with-float", (1.0, 1)), ("with-bool", (1, True)), ("with-nan", (float("nan"), 1)), ("with-huge", (1, 2**31)),
    ("with-negative", (-1, 1)), ("floats", np.ones(2)), ("bools", np.array([True, True])),
]  # fmt: skip

INTEGER = NO_NUMBER + GENERATOR + SEQUENCES + ZERO + TOO_SMALL + HUGE
PER_AXIS = NO_NUMBER + GENERATOR + ZERO + TOO_SMALL + HUGE + WRONG_LENGTHS + WRONG_ENTRIES + [("with-zero", (1, 0))]
FLAG = [
    *NOTHING, ("0", 0), ("1", 1), ("text", "True"), ("float", 1.0), ("list", []), ("dict", {}), ("object", object()),
    ("array", np.array(True)), ("np.bool_", np.bool_(True)), ("NDArray", nd.ones((1,))),
]  # fmt: skip
FLAG_OR_NONE = [(name, value) for name, value in FLAG if name != "None"]
LAYOUT = [
    ("text", "NCXY"), ("empty", ""), ("lower", "nchw"), ("rank1", "NCW"), ("rank3", "NDHWC"), ("CHWN", "CHWN"),
    ("bytes", b"NCHW"), ("int", 2), ("bool", True), ("list", ["NCHW"]), ("float", 2.0), ("object", object()),
    ("array", np.array(["NCHW"])), ("generator", (c for c in "NCHW")),
]  # fmt: skip
PADDING = [
    *NOTHING, ("word", "sane"), ("empty-word", ""), ("full", "full"), ("causal", "causal"), ("spaces", " same "),
    ("digits", "1"), ("-1", -1), ("float", 1.0), ("nan", float("nan")), ("True", True), ("np.bool_", np.bool_(False)),
    ("bytes", b"same"), ("dict", {0: 1}), ("set", {1}), ("object", object()), ("generator", (n for n in (1, 1))),
    ("empty", ()), ("one", (1,)), ("three", (1, 1, 1)), ("2**31", 2**31), ("10**30", 10**30), ("10**5000", 10**5000),
    ("triple", ((1, 1, 1), 1)), ("single", ((1,), 1)), ("nested-empty", ((), ())), ("negative-pair", ((-1, 1), 1)),
    ("float-pair", ((0.5, 1), 1)), ("bool-pair", ((True, 1), 1)), ("None-pair", ((None, 1), 1)),
    ("words", ("same", "valid")), ("deep", (((1, 1), 1), 1)), ("huge-pair", ((2**31, 1), 1)),
    ("array2", np.ones((2, 2, 2), int)),
    ("floats", np.ones(2)), ("NDArray", nd.ones((2,))), ("Symbol", sym.var("s")),
]  # fmt: skip
ARRAY = [
    ("int", 5), ("float", 1.0), ("text", "data"), ("list", [[[[1.0]]]]), ("tuple", ()), ("dict", {}), ("bool", True),
    ("object", object()), ("numpy", np.ones((2, 4, 9, 7), np.float32)), ("type", nd.NDArray),
    ("list-of", [nd.ones((1,))]),
]  # fmt: skip


# ---- operators -------------------------------------------------------------------------------------------------------

DATA = {"data": (2, 4, 9, 7)}
CONV = {**DATA, "weight": (6, 4, 3, 2), "bias": (6,)}
DEPTHWISE = {**DATA, "weight": (8, 1, 3, 2), "bias": (8,)}
SEPARABLE = {**DATA, "depthwise_weight": (8, 1, 3, 2), "pointwise_weight": (5, 8, 1, 1), "bias": (5,)}
TRANSPOSED = {**DATA, "weight": (4, 6, 3, 2), "bias": (6,)}

WINDOW = {"strides": PER_AXIS, "padding": PADDING, "layout": LAYOUT, "input_size": PER_AXIS}
KERNEL = {**WINDOW, "kernel_size": PER_AXIS, "dilation": PER_AXIS}
POOL = {**WINDOW, "pool_size": PER_AXIS + NOTHING, "ceil_mode": FLAG}
OPERATORS = {
    "conv": (CONV, {**KERNEL, "groups": INTEGER + NOTHING, "channels": INTEGER}),
    "depthwise_conv": (DEPTHWISE, {**KERNEL, "in_channels": INTEGER, "depth_multiplier": INTEGER}),
    "separable_conv": (SEPARABLE, {**KERNEL, "in_channels": INTEGER, "depth_multiplier": INTEGER, "channels": INTEGER}),
    "conv_transpose": (
        TRANSPOSED,
        {
            **{name: values for name, values in KERNEL.items() if name != "input_size"},
            "groups": INTEGER + NOTHING,
            "channels": INTEGER,
            "output_padding": [(name, value) for name, value in PER_AXIS if name not in ("0", "with-zero")],
        },
    ),
    "max_pool": (DATA, POOL),
    "avg_pool": (DATA, {**POOL, "count_include_pad": FLAG_OR_NONE}),
    "lp_pool": (DATA, {**POOL, "p_value": INTEGER + NOTHING + [("four", 4)]}),
}


def nd_arrays(shapes, **changes):
    """Every array of an operator as ones, but for the changes."""
    return {**{name: nd.ones(shape) for name, shape in shapes.items()}, **changes}


def sym_arrays(shapes, **changes):
    return {**{name: sym.var(name) for name in shapes}, **changes}


def known_sizes(operator):
    """What a graph of unknown shapes must be told."""
    return {
        "conv": {"channels": 6, "kernel_size": (3, 2)},
        "depthwise_conv": {"in_channels": 4, "depth_multiplier": 2, "kernel_size": (3, 2)},
        "separable_conv": {"in_channels": 4, "depth_multiplier": 2, "kernel_size": (3, 2), "channels": 5},
        "conv_transpose": {"channels": 6, "kernel_size": (3, 2)},
        "max_pool": {"pool_size": (3, 2)},
        "avg_pool": {"pool_size": (3, 2)},
        "lp_pool": {"pool_size": (3, 2)},
    }[operator]


def cases(table, name_of=str):
    """(owner, argument, value) with a readable id for each. A list is given whole to the first argument that has it:
    that is its validator's test. Three of its values show that another argument has the validator too."""
    found, given = [], set()
    for owner, arguments in table.items():
        for argument, values in arguments.items():
            names = frozenset(name for name, _ in values)
            chosen = values if names not in given else values[:: len(values) // 3][:3]
            given.add(names)
            start = f"{name_of(owner)}-{argument}"
            found += [pytest.param(owner, argument, value, id=f"{start}-{name}") for name, value in chosen]
    return found


RANKS = ("layout", "input_size", "kernel_size", "pool_size")  # they say a number of axes, which may be what is wrong


@pytest.mark.parametrize(
    ("operator", "argument", "value"), cases({name: arguments for name, (_, arguments) in OPERATORS.items()})
)
def test_operator_argument(operator, argument, value):
    shapes = OPERATORS[operator][0]
    match = f"{argument}|spatial axes" if argument in RANKS else argument
    given = {"pool_size": (3, 2)} if "pool" in operator else {}
    refused(lambda: getattr(ops, operator)(**nd_arrays(shapes), **{**given, argument: value}), match)
    given = {**known_sizes(operator), "layout": "NCHW"}
    refused(lambda: getattr(ops, operator)(**sym_arrays(shapes), **{**given, argument: value}), match)


@pytest.mark.parametrize(
    ("operator", "argument", "value"),
    cases(
        {
            name: {array: ARRAY + (NOTHING if array != "bias" else []) for array in shapes}
            for name, (shapes, _) in OPERATORS.items()
        }
    ),
)
def test_operator_array(operator, argument, value):
    for arrays in (nd_arrays, sym_arrays):
        refused(
            lambda arrays=arrays: getattr(ops, operator)(
                **arrays(OPERATORS[operator][0], **{argument: value}), **known_sizes(operator)
            ),
            f"{argument} must be an NDArray",
            TypeError,
        )


def np_ones(shape):
    return nd.ones(shape).as_np_ndarray()


ODD_ARRAYS = {
    "mx.np": (np_ones, "same kind", TypeError),
    "symbol": (lambda shape: sym.var("x"), "same kind", TypeError),
    "np-symbol": (lambda shape: sym.var("x").as_np_ndarray(), "same kind", TypeError),
    "group": (lambda shape: sym.Group([sym.var("x"), sym.var("y")]), "one output", ValueError),
    "split": (lambda shape: sym.split(sym.var("x"), num_outputs=2), "one output", ValueError),
    "float64": (lambda shape: nd.ones(shape, dtype="float64"), "must have the type of", TypeError),
    "float16": (lambda shape: nd.ones(shape, dtype="float16"), "must have the type of|on the CPU", TypeError),
    "int32": (lambda shape: nd.ones(shape, dtype="int32"), "must be float", TypeError),
    "int64": (lambda shape: nd.ones(shape, dtype="int64"), "must be float", TypeError),
    "int8": (lambda shape: nd.ones(shape, dtype="int8"), "must be float", TypeError),
    "uint8": (lambda shape: nd.ones(shape, dtype="uint8"), "must be float", TypeError),
    "bool": (lambda shape: nd.ones(shape).astype("bool"), "must be float", TypeError),
    "offset": (lambda shape: nd.ones(shape, ctx=mx.cpu(1)), "must be where", ValueError),
    "sparse": (lambda shape: nd.ones(shape).tostype("row_sparse"), "dense", TypeError),
    "rank0": (lambda shape: nd.ones((1,)), "spatial axes|shape", ValueError),
    "rank-1": (lambda shape: nd.ones(shape[1:] or (1, 1)), "spatial axes|shape", ValueError),
    "rank+1": (lambda shape: nd.ones((*shape, 1)), "spatial axes|shape", ValueError),
    "rank+3": (lambda shape: nd.ones((*shape, 1, 1, 1)), "spatial axes|shape", ValueError),
    "int-variable": (lambda shape: sym.var("x", dtype="int32"), "must be float|same kind", TypeError),
    "sparse-variable": (lambda shape: sym.var("x", stype="csr"), "dense|same kind", TypeError),
}


@pytest.mark.parametrize(
    ("operator", "argument", "kind"),
    [
        pytest.param(operator, argument, kind, id=f"{operator}-{argument}-{kind}")
        for operator, (shapes, _) in OPERATORS.items()
        for argument in shapes
        for kind in ODD_ARRAYS
        # alone, a pooling's data may be of any kind, type and place
        if "pool" not in operator
        or kind in ("group", "split", "int32", "bool", "sparse", "rank+3", "int-variable", "sparse-variable")
    ],
)
def test_operator_array_kind(operator, argument, kind):
    make, match, error = ODD_ARRAYS[kind]
    shapes = OPERATORS[operator][0]
    refused(
        lambda: getattr(ops, operator)(
            **nd_arrays(shapes, **{argument: make(shapes[argument])}), **known_sizes(operator)
        ),
        match,
        error,
    )


def ones(*shape):
    return nd.ones(shape)


D, W = ones(2, 4, 9, 7), ones(6, 4, 3, 2)
D1, W1 = ones(2, 4, 9), ones(6, 4, 3)
LAST = ones(2, 9, 7, 4)
S, V = sym.var("data"), sym.var("weight")
GRAPH = {"channels": 6, "kernel_size": (3, 2)}

CONTRADICTIONS = {
    # an argument and a shape
    "kernel_size": (lambda: ops.conv(D, W, kernel_size=3), r"kernel_size\[1\] must agree"),
    "kernel_size-list": (lambda: ops.conv(D, W, kernel_size=[2, 2]), r"kernel_size\[0\] must agree"),
    "kernel_size-rank": (lambda: ops.conv(D, W, kernel_size=(3, 2, 1)), "number of spatial axes"),
    "channels": (lambda: ops.conv(D, W, channels=5), "channels must agree"),
    "channels-transposed": (
        lambda: ops.conv_transpose(D, ones(4, 3, 3, 3), groups=2, channels=3),
        "channels must agree",
    ),
    "in_channels": (lambda: ops.depthwise_conv(D, ones(8, 1, 3, 3), in_channels=8), "in_channels must agree"),
    "depth_multiplier": (
        lambda: ops.depthwise_conv(D, ones(8, 1, 3, 3), depth_multiplier=3),
        "depth_multiplier must agree",
    ),
    "input_size": (lambda: ops.conv(D, W, input_size=(9, 8)), r"input_size\[1\] must agree"),
    "input_size-int": (lambda: ops.max_pool(D, 2, input_size=9), r"input_size\[1\] must agree"),
    "input_size-last": (lambda: ops.max_pool(LAST, 2, layout="NHWC", input_size=(7, 4)), r"input_size\[0\] must agree"),
    "input_size-symbol": (lambda: ops.max_pool(sym.var("d", shape=(1, 1, 5, 5)), 2, input_size=6), "input_size"),
    "layout-of-data": (lambda: ops.conv(D1, W1, layout="NCHW"), "number of spatial axes"),
    "layout-of-window": (lambda: ops.max_pool(S, (2, 2), layout="NCW"), "number of spatial axes"),
    "ranks": (lambda: ops.conv(D, W1), "number of spatial axes"),
    "rank-4": (lambda: ops.max_pool(ones(1, 1, 2, 2, 2, 2), 2), "must be 1, 2 or 3"),
    "rank-unknown": (lambda: ops.conv(S, V, channels=2, kernel_size=3), "must be known: give data of known shape"),
    "rank-unknown-pool": (lambda: ops.max_pool(S, 2), "must be known: give data of known shape"),
    # groups
    "groups-of-data": (lambda: ops.conv(D, ones(6, 1, 3, 3), groups=3), "data channels must be a multiple of groups"),
    "groups-of-channels": (lambda: ops.conv(D, ones(6, 1, 3, 3), groups=4), "channels must be a multiple of groups"),
    "groups-of-weight": (lambda: ops.conv(D, W, groups=2), r"weight must have the shape .* \(\?, 2, 3, 2\)"),
    "groups-transposed": (
        lambda: ops.conv_transpose(D, ones(4, 2, 3, 3), groups=3),
        "data channels must be a multiple",
    ),
    # shapes of weights and biases
    "weight-channels": (lambda: ops.conv(D, ones(6, 3, 3, 2)), r"received weight.shape=\(6, 3, 3, 2\)"),
    "weight-first": (lambda: ops.conv(LAST, W, layout="NHWC"), "weight must have the shape .channels, .kernel_size"),
    "weight-last": (lambda: ops.conv(D, ones(6, 3, 2, 4)), "weight must have the shape"),
    "bias": (lambda: ops.conv(D, W, ones(5)), r"bias must have the shape \(channels,\), here \(6\)"),
    "bias-rank": (lambda: ops.conv(D, W, ones(6, 1)), "bias must have the shape"),
    "bias-last": (lambda: ops.conv(LAST, ones(6, 3, 2, 4), ones(4), layout="NHWC"), "bias must have the shape"),
    "depthwise-second": (lambda: ops.depthwise_conv(D, ones(8, 2, 3, 3)), "weight must have the shape"),
    "depthwise-multiple": (lambda: ops.depthwise_conv(D, ones(6, 1, 3, 3)), "must be a multiple of"),
    "depthwise-last": (lambda: ops.depthwise_conv(LAST, ones(8, 1, 3, 3), layout="NHWC"), "weight must have the shape"),
    "depthwise-bias": (lambda: ops.depthwise_conv(D, ones(8, 1, 3, 3), ones(4)), "bias must have the shape"),
    "pointwise": (
        lambda: ops.separable_conv(D, ones(8, 1, 3, 3), ones(5, 4, 1, 1)),
        "pointwise_weight must have the shape",
    ),
    "pointwise-3x3": (lambda: ops.separable_conv(D, ones(4, 1, 3, 3), ones(5, 4, 3, 3)), "pointwise_weight"),
    "pointwise-rank": (
        lambda: ops.separable_conv(D, ones(4, 1, 3, 3), ones(5, 4)),
        "pointwise_weight must have the shape",
    ),
    "separable-bias": (
        lambda: ops.separable_conv(D, ones(8, 1, 3, 3), ones(5, 8, 1, 1), ones(8)),
        "bias must have the shape",
    ),
    "transposed": (lambda: ops.conv_transpose(D, ones(6, 4, 3, 3)), "weight must have the shape .data channels"),
    "transposed-last": (lambda: ops.conv_transpose(LAST, ones(4, 6, 3, 3), layout="NHWC", kernel_size=3), "weight"),
    "transposed-bias": (lambda: ops.conv_transpose(D, ones(4, 6, 3, 3), ones(4)), "bias must have the shape"),
    "known-symbol": (
        lambda: ops.conv(sym.var("d", shape=(1, 3, 5, 5)), sym.var("w", shape=(6, 4, 3, 3))),
        "weight must have",
    ),
    # too small, and too much padding
    "valid": (lambda: ops.conv(ones(1, 4, 2, 9), W, padding="valid"), "at least as long as the kernel"),
    "valid-dilated": (lambda: ops.conv(D, W, padding="valid", dilation=5), "at least as long as the kernel"),
    "valid-pool": (lambda: ops.max_pool(D, 8, padding="valid"), "at least as long as the kernel"),
    "valid-ceil": (lambda: ops.max_pool(D, 8, padding="valid", ceil_mode=True), "at least as long as the kernel"),
    "pads-too-few": (lambda: ops.conv(D1, ones(6, 4, 12), padding=1), "at least as long as the kernel"),
    "pads-of-pool": (lambda: ops.max_pool(D, 2, padding=2), "padding of pooling must be less"),
    "pads-of-pool-pair": (lambda: ops.avg_pool(D, (3, 2), padding=(2, (0, 2))), "padding of pooling must be less"),
    "ceil-empty-window": (
        lambda: ops.avg_pool(D1, 2, 5, padding=((0, 1),), ceil_mode=True),
        "no window without an element",
    ),
    "padded-axis": (lambda: ops.conv(D, W, padding=2**29 - 1), "fewer than"),
    "padded-plane": (lambda: ops.conv(D, W, padding=10**5), "fewer than"),
    "effective-kernel": (lambda: ops.conv(D, W, dilation=2**28), "effective kernel size"),
    # words
    "causal-2d": (lambda: ops.conv(D, W, padding="causal"), "1-D convolutions only"),
    "causal-pool": (lambda: ops.max_pool(D1, 2, padding="Causal"), "1-D convolutions only"),
    "causal-transposed": (lambda: ops.conv_transpose(D1, ones(4, 6, 3), padding="causal"), "1-D convolutions only"),
    "pair-1d": (lambda: ops.conv(D1, W1, padding=(1, 2)), r"written padding=\(\(1, 2\),\)"),
    "pair-1d-list": (lambda: ops.conv_transpose(D1, ones(4, 6, 3), padding=[1, 2]), r"written padding=\(\(1, 2\),\)"),
    "pair-1d-huge": (lambda: ops.conv(D1, W1, padding=(10**5000, 1)), "one entry per spatial axis"),
    "pairs-1d": (lambda: ops.conv(D1, W1, padding=((1, 2), (3, 4))), "one entry per spatial axis, 1 here, each"),
    # transposed
    "output_padding-stride": (
        lambda: ops.conv_transpose(D, ones(4, 6, 3, 3), strides=2, output_padding=2),
        "output_padding must be less than the stride",
    ),
    "output_padding-1": (lambda: ops.conv_transpose(D, ones(4, 6, 3, 3), output_padding=1), "less than the stride"),
    "output_padding-even": (
        lambda: ops.conv_transpose(D, ones(4, 6, 2, 2), strides=2, output_padding=0),
        "forward SAME convolution",
    ),
    "cut-away": (lambda: ops.conv_transpose(D, ones(4, 6, 3, 3), padding=6), "must not crop the whole output"),
    "cut-away-pair": (lambda: ops.conv_transpose(D, ones(4, 6, 3, 3), padding=(0, (9, 0))), "must not crop the whole"),
    "transposed-huge": (lambda: ops.conv_transpose(D, ones(4, 6, 3, 3), strides=2**29 - 1), "must be at most"),
    # graphs that lack something
    "graph-kernel_size": (lambda: ops.conv(S, V, channels=2, layout="NCHW"), "kernel_size must be given"),
    "graph-channels": (lambda: ops.conv(S, V, kernel_size=(3, 3)), "channels must be given"),
    "graph-channels-transposed": (lambda: ops.conv_transpose(S, V, kernel_size=(3, 3)), "channels must be given"),
    "graph-in_channels": (
        lambda: ops.depthwise_conv(S, V, kernel_size=(3, 3), depth_multiplier=1),
        "in_channels must be given",
    ),
    "graph-depth_multiplier": (
        lambda: ops.depthwise_conv(S, V, kernel_size=(3, 3), in_channels=2),
        "depth_multiplier must",
    ),
    "graph-ceil": (lambda: ops.max_pool(S, (2, 2), 3, padding=1, ceil_mode=True), "received input_size=None"),
    "graph-stride": (lambda: ops.conv(S, V, strides=10**6, **GRAPH), "give data of static"),
    "graph-stride-pool": (lambda: ops.avg_pool(S, (3, 3), 2**29 - 1), "give data of static"),
    "graph-kind": (lambda: ops.conv(S, W, **GRAPH), "weight must be of the same kind as data, a Symbol"),
    "graph-np-kind": (lambda: ops.conv(S.as_np_ndarray(), V, **GRAPH), "same kind as data, an mx.np Symbol"),
    "float16": (lambda: ops.conv(D.astype("float16"), W.astype("float16")), "float32 or float64 on the CPU"),
    # strategies
    "force-inexact": (lambda: forced("concat", lambda: ops.conv(S, ones_symbol(), strides=2, **GRAPH)), "not exact"),
}


def ones_symbol():
    return sym.var("weight")


def forced(strategy, call):
    with plan.force(strategy):
        return call()


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradiction(name):
    refused(*CONTRADICTIONS[name])


def test_empty_arrays():
    with mx.util.np_shape(True):
        empty = mx.np.zeros((0, 4, 9, 7))
        refused(lambda: ops.conv(empty, W.as_np_ndarray()), "data must not be empty", ValueError)
        refused(lambda: ops.max_pool(mx.np.zeros((2, 4, 0, 7)), 2), "data must not be empty", ValueError)
        refused(lambda: ops.conv(D.as_np_ndarray(), mx.np.zeros((0, 4, 3, 2))), "weight must not be empty", ValueError)
        refused(lambda: nn.MaxPool2D()(empty), "data must not be empty", ValueError)


@pytest.mark.parametrize("operator", OPERATORS)
def test_unknown_keyword_is_python_s_own_error(operator):
    with pytest.raises(TypeError, match="stride"):
        getattr(ops, operator)(**nd_arrays(OPERATORS[operator][0]), **known_sizes(operator), stride=2)


# ---- blocks ----------------------------------------------------------------------------------------------------------

INITIALIZER = [
    ("word", "no-such-initializer"), ("empty", ""), ("needs-value", "constant"), ("int", 0), ("float", 0.5),
    ("bool", True), ("list", []), ("class", mx.init.Xavier), ("array", np.ones(3)), ("NDArray", nd.ones((3,))),
    ("function", len),
]  # fmt: skip
ACTIVATION = [
    ("word", "no-such-activation"), ("empty", ""), ("leaky", "leaky"), ("int", 1), ("bool", True),
    ("function", nd.relu), ("list", ["relu"]), ("bytes", b"relu"), ("block", mx.gluon.nn.Activation("relu")),
]  # fmt: skip
PREFIX = [("int", 5), ("bytes", b"a"), ("list", []), ("bool", False)]
PARAMS = [("int", 5), ("dict", {}), ("text", "a"), ("list", []), ("file", b"x.params")]
IN_CHANNELS = [(name, value) for name, value in INTEGER + NOTHING if name != "0"]

BLOCK = {"strides": PER_AXIS, "padding": PADDING, "layout": LAYOUT, "prefix": PREFIX, "params": PARAMS}
BLOCK_KERNEL = {
    **BLOCK, "strides": PER_AXIS + NOTHING, "kernel_size": PER_AXIS + NOTHING, "dilation": PER_AXIS + NOTHING,
    "activation": ACTIVATION, "use_bias": FLAG, "bias_initializer": INITIALIZER, "in_channels": IN_CHANNELS,
}  # fmt: skip
WEIGHT = {"weight_initializer": INITIALIZER}
CHANNELS = {"channels": INTEGER + NOTHING}
GROUPS = {"groups": INTEGER + NOTHING}
MULTIPLIER = {"depth_multiplier": INTEGER + NOTHING}
BLOCKS = {
    "Conv2D": {**BLOCK_KERNEL, **WEIGHT, **CHANNELS, **GROUPS},
    "Conv2DTranspose": {
        **BLOCK_KERNEL, **WEIGHT, **CHANNELS, **GROUPS,
        "output_padding": [(name, value) for name, value in PER_AXIS if name not in ("0", "with-zero")],
    },
    "DepthwiseConv2D": {**BLOCK_KERNEL, **WEIGHT, **MULTIPLIER},
    "SeparableConv2D": {
        **BLOCK_KERNEL, **CHANNELS, **MULTIPLIER,
        "depthwise_initializer": INITIALIZER, "pointwise_initializer": INITIALIZER,
    },
    "MaxPool2D": {**BLOCK, "pool_size": PER_AXIS + NOTHING, "ceil_mode": FLAG},
    "AvgPool2D": {**BLOCK, "pool_size": PER_AXIS + NOTHING, "ceil_mode": FLAG, "count_include_pad": FLAG_OR_NONE},
}  # fmt: skip


def block(kind, **given):
    """A block that differs from a right one in what is given."""
    right = {} if "Pool" in kind else {"kernel_size": (3, 2)}
    if kind.startswith(("Conv", "Separable")):
        right["channels"] = 6
    return getattr(nn, kind)(**{**right, **given})


CONTAINERS = ("HybridBlock", "HybridSequential")


@pytest.mark.parametrize(("kind", "argument", "value"), cases(BLOCKS))
def test_block_argument(kind, argument, value):
    refused(lambda: block(kind, **{argument: value}), argument)


@pytest.mark.parametrize("kind", [kind for kind in nn.__all__ if kind not in CONTAINERS])
def test_every_block_checks_its_rank(kind):
    rank = int(re.search(r"(\d)D", kind).group(1))
    size = "pool_size" if "Pool" in kind else "kernel_size"
    for argument in (size, "strides"):
        refused(
            lambda argument=argument: block(kind, **{size: 3, argument: (2,) * (rank + 1)}),
            f"{argument} must be an integer",
        )
    refused(lambda: block(kind, **{size: 3, "padding": ((1, 1),) * (rank + 1)}), "one entry per spatial axis")
    refused(lambda: block(kind, **{size: 3, "layout": {1: "NCHW", 2: "NCDHW", 3: "NCW"}[rank]}), "layout must be")
    refused(lambda: block(kind, **{size: 3, "padding": "reflect"}), "padding as a word must be one of")
    if rank > 1 or "Conv" not in kind or "Transpose" in kind:
        refused(lambda: block(kind, **{size: 3, "padding": "causal"}), "1-D convolutions only")
    layer = block(kind, **{size: 3})
    layer.initialize()
    refused(lambda: layer(ones(*[2] * (rank + 1))), f"data must have the {rank + 2} axes")
    refused(lambda: layer(ones(*[2] * (rank + 3))), f"data must have the {rank + 2} axes")
    refused(lambda: layer([ones(*[2] * (rank + 2))]), "data must be an NDArray")
    with pytest.raises(TypeError, match="stride"):
        block(kind, **{size: 3}, stride=2)


BLOCK_CONTRADICTIONS = {
    "groups-channels": (lambda: nn.Conv2D(6, 3, groups=4), "channels must be a multiple of groups"),
    "groups-in_channels": (
        lambda: nn.Conv2D(6, 3, groups=3, in_channels=4),
        "in_channels must be a multiple of groups",
    ),
    "groups-transposed": (lambda: nn.Conv2DTranspose(6, 3, groups=4), "channels must be a multiple of groups"),
    "pair-1d": (lambda: nn.Conv1D(6, 3, padding=(1, 2)), r"written padding=\(\(1, 2\),\)"),
    "pads-of-pool": (lambda: nn.MaxPool2D(2, padding=2), "padding of pooling must be less than the pool size"),
    "pads-of-pool-axis": (lambda: nn.AvgPool2D((3, 2), padding=(1, (0, 2))), "padding of pooling must be less"),
    "output_padding": (lambda: nn.Conv2DTranspose(6, 3, strides=(2, 1), output_padding=1), "less than the stride"),
    "output_padding-even": (lambda: nn.Conv1DTranspose(6, 4, strides=2, output_padding=0), "forward SAME convolution"),
    "effective-kernel": (lambda: nn.Conv1D(6, 2**20, dilation=2**20), "effective kernel size"),
    "weight-elements": (lambda: nn.Conv2D(8, 10**5), "weight must have fewer than"),
    "weight-channels": (lambda: nn.Conv2D(2**31 - 1, 1), "weight must have fewer than"),
    "shared-params": (
        lambda: nn.Conv2D(3, 3, params=nn.Conv2D(5, 3, in_channels=4).params),
        "params must fit the layer",
    ),
}


@pytest.mark.parametrize("name", BLOCK_CONTRADICTIONS)
def test_block_contradiction(name):
    refused(*BLOCK_CONTRADICTIONS[name])


# ---- calling blocks --------------------------------------------------------------------------------------------------


def ready(layer, dtype="float32"):
    layer.initialize()
    layer.cast(dtype)
    return layer


CALLS = {
    "numpy": (lambda: nn.Conv2D(6, 3), np.ones((2, 4, 9, 7), np.float32), "data must be an NDArray"),
    "list": (lambda: nn.Conv2D(6, 3), [D], "data must be an NDArray"),
    "None": (lambda: nn.MaxPool2D(), None, "data must be an NDArray"),
    "number": (lambda: nn.AvgPool2D(), 3.0, "data must be an NDArray"),
    "group": (lambda: nn.Conv2D(6, 3), sym.Group([S, V]), "one output"),
    "rank": (lambda: nn.Conv2D(6, 3), D1, r"data must have the 4 axes \(N, C, H, W\)"),
    "channels": (lambda: nn.Conv2D(6, 3, in_channels=3), D, "data must have in_channels=3 channels"),
    "channels-last": (lambda: nn.Conv2D(6, 3, in_channels=4, layout="NHWC"), D, "in_channels=4"),
    "channels-depthwise": (lambda: nn.DepthwiseConv2D(3, in_channels=3), D, "in_channels=3"),
    "channels-separable": (lambda: nn.SeparableConv2D(6, 3, in_channels=3), D, "in_channels=3"),
    "channels-transposed": (lambda: nn.Conv2DTranspose(6, 3, in_channels=3), D, "in_channels=3"),
    "groups": (lambda: nn.Conv2D(6, 3, groups=3), D, "data channels must be a multiple of groups"),
    "groups-transposed": (lambda: nn.Conv2DTranspose(6, 3, groups=3), D, "data channels must be a multiple of groups"),
    "float64": (lambda: nn.Conv2D(6, 3), D.astype("float64"), "type of the parameters, float32"),
    "float16": (lambda: nn.Conv2D(6, 3), D.astype("float16"), "float32 or float64 on the CPU"),
    "int": (lambda: nn.Conv2D(6, 3), D.astype("int32"), "data must be float16 or"),
    "int-pool": (lambda: nn.MaxPool2D(), D.astype("int32"), "data must be float16 or"),
    "bool-pool": (lambda: nn.AvgPool2D(), D.astype("bool"), "data must be float16 or"),
    "sparse": (lambda: nn.Conv2D(6, 3), D.tostype("row_sparse"), "data must be a dense array"),
    "sparse-pool": (lambda: nn.MaxPool2D(), D.tostype("row_sparse"), "data must be a dense array"),
    "offset": (lambda: nn.Conv2D(6, 3), D.as_in_context(mx.cpu(1)), r"on the device of the parameters, \[cpu\(0\)\]"),
    "mx.np": (lambda: nn.Conv2D(6, 3), D.as_np_ndarray(), "same kind"),
    "valid": (lambda: nn.Conv2D(6, 8, padding="valid"), D, "at least as long as the kernel"),
    "valid-pool": (lambda: nn.MaxPool2D(8, padding="valid"), D, "at least as long as the kernel"),
    "valid-depthwise": (
        lambda: nn.DepthwiseConv2D((1, 3), dilation=4, padding="valid"),
        D,
        "at least as long as the kernel",
    ),
    "cut-away": (lambda: nn.Conv2DTranspose(6, 3, padding=5), D, "must not crop the whole output"),
    "padded-plane": (lambda: nn.Conv2D(6, 3, padding=10**5), D, "fewer than"),
    "weight-elements": (lambda: nn.DepthwiseConv2D(3, depth_multiplier=2**30), D, "fewer than"),
}


@pytest.mark.parametrize("mode", running.LAYER_MODES)
@pytest.mark.parametrize("name", CALLS)
def test_block_call(name, mode):
    make, data, match = CALLS[name]
    layer = ready(make())
    running.LAYER_MODES[mode](layer)
    refused(lambda: layer(data), match)


@pytest.mark.parametrize("mode", running.LAYER_MODES)
def test_block_call_after_a_right_one(mode):
    """What the first input settled, the second must keep to; and the layer still works afterwards."""
    for layer in (nn.Conv2D(6, 3), nn.DepthwiseConv2D(3), nn.SeparableConv2D(6, 3), nn.Conv2DTranspose(6, 3)):
        running.LAYER_MODES[mode](ready(layer))
        want = layer(D).asnumpy()
        refused(lambda layer=layer: layer(ones(2, 3, 9, 7)), "data must have (in_channels=)?4 channels")
        refused(lambda layer=layer: layer(D1), "data must have the 4 axes")
        np.testing.assert_array_equal(layer(D).asnumpy(), want)


@pytest.mark.parametrize("mode", running.LAYER_MODES)
def test_float16_block_on_the_cpu(mode):
    layer = ready(nn.Conv2D(6, 3), "float16")
    running.LAYER_MODES[mode](layer)
    refused(lambda: layer(D.astype("float16")), "float32 or float64 on the CPU", TypeError)


def test_call_without_input_is_python_s_own_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        ready(nn.Conv2D(6, 3))()


@pytest.mark.parametrize("mode", running.LAYER_MODES)
@pytest.mark.parametrize("make", [nn.MaxPool2D, lambda: nn.Conv2D(6, 3)], ids=["pool", "conv"])
def test_classic_array_in_np_mode(make, mode):
    with mx.util.np_shape(True), mx.util.np_array(True):
        layer = ready(make())
        running.LAYER_MODES[mode](layer)
        refused(lambda: layer(D), "data must be an mx.np.ndarray", TypeError)


def parent(*layers):
    net = mx.gluon.nn.HybridSequential()
    net.add(*layers)
    net.initialize()
    net.hybridize()
    return net


@pytest.mark.parametrize(
    "make", [lambda: nn.DepthwiseConv2D(3), lambda: nn.SeparableConv2D(6, 3)], ids=["depthwise", "separable"]
)
def test_depthwise_in_a_hybridized_parent_names_in_channels(make):
    refused(lambda: parent(make())(D), "in_channels must be given", ValueError)


def test_a_layer_without_an_exact_graph_for_every_size_says_what_has_one():
    def net():
        return parent(nn.MaxPool2D(2, 3, padding=1, ceil_mode=True), nn.Conv2D(6, 3, strides=5000))

    wanted = r"layer (pool|conv)\d+: .*; give .*, or a net to mxsame\.hybridize; received "
    refused(lambda: net()(D), wanted, ValueError)
    refused(lambda: parent(nn.Conv2D(6, 3, strides=10**6))(D), wanted, ValueError)
    assert mxsame.hybridize(net())(nd.ones((1, 4, 9, 9))).shape == (1, 6, 1, 1)


# ---- arithmetic and plans --------------------------------------------------------------------------------------------

ONE_PAD = [(name, value) for name, value in PADDING if name != "causal"]
FUNCTIONS = {
    "effective_kernel_size": {"kernel_size": INTEGER + NOTHING, "dilation": INTEGER + NOTHING},
    "causal_pads": {"kernel_size": INTEGER + NOTHING, "dilation": INTEGER + NOTHING},
    "same_pads": dict.fromkeys(("size", "kernel_size", "stride", "dilation"), INTEGER + NOTHING),
    "resolve_pads": {
        **dict.fromkeys(("size", "kernel_size", "stride", "dilation"), INTEGER + NOTHING),
        "padding": ONE_PAD,
    },
    "output_size": {
        **dict.fromkeys(("size", "kernel_size", "stride", "dilation"), INTEGER + NOTHING),
        "padding": ONE_PAD,
    },
    "transposed_cuts": {
        **dict.fromkeys(("kernel_size", "stride", "dilation"), INTEGER + NOTHING),
        "padding": PADDING,
        "output_padding": [(name, value) for name, value in INTEGER if name != "0"],
    },
    "transposed_output_size": {
        **dict.fromkeys(("size", "kernel_size", "stride", "dilation"), INTEGER + NOTHING),
        "padding": PADDING,
        "output_padding": [(name, value) for name, value in INTEGER if name != "0"],
    },
}
RIGHT = {"size": 9, "kernel_size": 3, "stride": 2, "dilation": 1}


@pytest.mark.parametrize(("function", "argument", "value"), cases(FUNCTIONS))
def test_arithmetic_argument(function, argument, value):
    names = {name: RIGHT[name] for name in FUNCTIONS[function] if name in RIGHT}
    for more in ({}, {"padding": 1}, {"padding": "valid"}) if "padding" in FUNCTIONS[function] else ({},):
        refused(lambda more=more: getattr(padding, function)(**{**names, **more, argument: value}), argument)


ARITHMETIC = {
    "too-short": (lambda: padding.output_size(2, 3, padding="valid"), "at least as long as the kernel"),
    "too-short-dilated": (
        lambda: padding.output_size(4, 3, dilation=2, padding="valid"),
        "at least as long as the kernel",
    ),
    "effective": (lambda: padding.same_pads(9, 2**20, dilation=2**20), "effective kernel size"),
    "padded": (lambda: padding.output_size(2**31 - 1, 3, padding=1), "the padded input must be at most"),
    "output_padding": (lambda: padding.transposed_cuts(3, 2, output_padding=2), "less than the stride"),
    "output_padding-1": (lambda: padding.transposed_cuts(3, 1, output_padding=1), "less than the stride"),
    "output_padding-even": (lambda: padding.transposed_cuts(4, 2, output_padding=0), "forward SAME convolution"),
    "cut-away": (lambda: padding.transposed_output_size(1, 3, padding=2), "must not crop the whole"),
    "transposed-huge": (lambda: padding.transposed_output_size(2**31 - 1, 3, 2), "must be at most"),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name):
    refused(*ARITHMETIC[name])


@pytest.mark.parametrize("strategy", ["", "no-such", "NATIVE", 1, True, 1.5, b"native", [], ("native",), {}, object()])
def test_force(strategy):
    refused(lambda: forced(strategy, lambda: None), "strategy must be")


@pytest.mark.parametrize(
    "strategy", [np.array(["native"]), np.array(["native", "pad"]), nd.ones((2,))], ids=["one", "two", "nd"]
)
def test_force_with_an_array(strategy):
    refused(lambda: forced(strategy, lambda: None), "strategy must be")


# ---- numbers that could hang or kill a process: each in one of its own, with little memory ---------------------------

DANGEROUS = """
ops.conv(D, W, padding=2**29 - 1)
ops.conv(D, W, padding=10**6)
ops.conv(D, W, padding=((2**29 - 1, 0), (0, 0)))
ops.conv(D, W, padding=2**31 - 1)
ops.conv(D, W, strides=2**31 - 1)
ops.conv(D, W, dilation=2**28)
ops.conv(D, W, groups=2**31 - 1)
ops.conv(D, W, input_size=2**31 - 1)
ops.conv(S, S, channels=3, kernel_size=(3, 3), strides=2**29 - 1)
ops.conv(S, S, channels=3, kernel_size=(2**30, 3))
ops.max_pool(D, 2**31 - 1)
ops.avg_pool(D, 2**31 - 1, 1)
ops.avg_pool(D, 2**29 - 1, 1, padding=2**29 - 2)
ops.max_pool(S, (3, 3), 10**8)
ops.max_pool(S, (2, 2), 10**7, padding="valid", ceil_mode=True)
ops.conv_transpose(D, T, strides=2**29 - 1)
ops.conv_transpose(D, T, strides=2**31 - 1)
ops.conv_transpose(D, T, padding=2**29 - 1)
ops.conv_transpose(D, T, strides=2**29 - 1, output_padding=2**29 - 2)
ready(nn.Conv2D(8, 10**5))(D)
ready(nn.Conv2D(2**31 - 1, 2**29 - 1, in_channels=2**31 - 1))(D)
ready(nn.DepthwiseConv2D(3, depth_multiplier=2**31 - 1))(D)
ready(nn.Conv2D(1, 1, padding=10**5))(D)
hybridized(nn.Conv2D(1, 1, padding=10**5))(D)
hybridized(nn.Conv2D(1, 3, padding=2**29 - 1))(D)
hybridized(nn.Conv2D(1, 3, strides=2**29 - 1))(D)
hybridized(nn.MaxPool2D(2**31 - 1, 1))(D)
hybridized(nn.Conv2DTranspose(1, 3, strides=2**29 - 1))(D)
padding.output_size(2**31 - 1, 3, padding=2**29 - 1)
padding.same_pads(10**30, 3)
""".strip().splitlines()

PROGRAM = """
import resource, sys, traceback
import mxsame
from mxsame import nn, ops, padding
from mxsame._mxnet import mx
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
nd = mx.nd
D, W, T, S = nd.ones((2, 4, 9, 7)), nd.ones((6, 4, 3, 2)), nd.ones((4, 2, 3, 3)), mx.sym.var("s")
def ready(layer):
    layer.initialize()
    return layer
def hybridized(layer):
    mx.gluon.HybridBlock.hybridize(layer)
    return ready(layer)
for line in sys.stdin.read().splitlines():
    print(line, end=" => ", flush=True)
    try:
        value = eval(line)
        nd.waitall()
        print("accepted", getattr(value, "shape", value), flush=True)
    except (TypeError, ValueError) as error:
        print("refused" if "received" in str(error) else error, flush=True)
"""


def answers(lines, timeout):
    """What a process of its own makes of each line."""
    pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input="\n".join(lines), capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(" => ") for line in done.stdout.splitlines())


def test_dangerous_numbers_are_refused():
    assert answers(DANGEROUS, 120) == dict.fromkeys(DANGEROUS, "refused")


# ---- what must be accepted -------------------------------------------------------------------------------------------

RANDOM = np.random.RandomState(7)
X, K = RANDOM.randn(2, 4, 9, 7).astype("float32"), RANDOM.randn(6, 4, 3, 2).astype("float32")


def conv(**given):
    return ops.conv(nd.array(X), nd.array(K), **given).asnumpy()


ACCEPTED = {
    "numpy-integers": ({"strides": np.int64(2), "dilation": np.uint8(1)}, {"strides": 2}),
    "numpy-array": ({"strides": np.array([2, 1]), "kernel_size": np.array([3, 2])}, {"strides": (2, 1)}),
    "numpy-0d": ({"strides": np.array(2)}, {"strides": 2}),
    "lists": ({"strides": [2, 1], "padding": [[1, 2], 0]}, {"strides": (2, 1), "padding": ((1, 2), (0, 0))}),
    "list-of-ints": ({"padding": [1, 0]}, {"padding": ((1, 1), (0, 0))}),
    "numpy-pads": ({"padding": (np.array([1, 2]), np.int8(0))}, {"padding": ((1, 2), 0)}),
    "upper-case": ({"padding": "SAME"}, {}),
    "mixed-case": ({"padding": "VaLiD"}, {"padding": "valid"}),
    "zero-pads": ({"padding": 0}, {"padding": "valid"}),
    "input_size": ({"input_size": [9, 7], "strides": 2}, {"strides": 2}),
    "everything-named": ({"channels": np.int32(6), "kernel_size": [3, 2], "groups": 1, "layout": "NCHW"}, {}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    given, plain = ACCEPTED[name]
    np.testing.assert_array_equal(conv(**given), conv(**plain))


def test_pads_larger_than_the_kernel():
    wide = np.pad(X, ((0, 0), (0, 0), (7, 5), (0, 11)))
    want = ops.conv(nd.array(wide), nd.array(K), padding="valid").asnumpy()
    np.testing.assert_allclose(conv(padding=((7, 5), (0, 11))), want, atol=1e-4)


def test_kernel_larger_than_the_input():
    """Every tap that the data never meets may as well not be there."""
    weight = RANDOM.randn(6, 4, 41, 41).astype("float32")
    out = ops.conv(nd.array(X[:, :, :2, :3]), nd.array(weight)).asnumpy()
    want = [
        np.einsum("ncij,ocij->no", X[:, :, :2, :3], weight[:, :, 20 - y : 22 - y, 20 - x : 23 - x])
        for y in range(2)
        for x in range(3)
    ]
    np.testing.assert_allclose(out, np.moveaxis(np.reshape(want, (2, 3, 2, 6)), (0, 1), (2, 3)), atol=1e-4)


@pytest.mark.parametrize("stride", [10, 1000, 2**29 - 1])
def test_stride_larger_than_the_input(stride):
    """The one window fits, without padding."""
    want = np.einsum("ncij,ocij->no", X[:, :, :3, :2], K)[:, :, None, None]
    np.testing.assert_allclose(conv(strides=stride), want, atol=1e-4)


def test_shared_memory_is_the_cpu():
    """A DataLoader with workers hands out arrays in memory shared between processes."""
    data = nd.array(X).as_in_context(mx.Context("cpu_shared", 0))
    np.testing.assert_array_equal(ops.conv(data, nd.array(K)).asnumpy(), conv())
    assert ready(nn.Conv2D(6, 3))(data).shape == (2, 6, 9, 7)


def test_arithmetic_takes_numpy_integers_and_large_numbers():
    assert padding.same_pads(np.int64(7), np.uint8(2), stride=np.int16(2)) == (0, 1)
    assert padding.output_size(2**31 - 3, 3) == 2**31 - 3
    assert padding.output_size(9, 2**29 - 1) == 9
    assert padding.output_size(9, 3, padding=[np.int8(1), 1]) == 9


def test_average_of_a_huge_window():
    """Every window holds the whole input."""
    lines = [
        f"float(abs(ops.avg_pool(D, {size}, {stride}).asnumpy() - 1).max()) < 1e-6"
        for size in (10**4, 2**29 - 1)
        for stride in (1, 3)
    ]
    assert answers(lines, 60) == dict.fromkeys(lines, "accepted True")


def test_maximum_of_a_huge_window():
    lines = [
        f"float(ops.max_pool(D, {size}, {stride}).asnumpy().max()) == 1"
        for size in (10**4, 2**29 - 1)
        for stride in (1, 3, size)
    ]
    assert answers(lines, 15) == dict.fromkeys(lines, "accepted True")


@pytest.mark.parametrize(
    ("operator", "weight", "wanted"),
    [
        ("conv", (8, 5, 4, 7), r"\(channels, \*kernel_size, data channels / groups\), here \(\?, 5, 4, 3\)"),
        ("depthwise_conv", (6, 5, 4, 2), r"\(C\*m, \*kernel_size, 1\), here \(\?, 5, 4, 1\)"),
        ("conv_transpose", (4, 5, 4, 7), r"\(data channels, \*kernel_size, channels / groups\), here \(3, 5, 4, \?\)"),
    ],
)
def test_a_weight_with_channels_last_is_shown_as_it_was_given(operator, weight, wanted):
    received = rf"; received weight\.shape={re.escape(str(weight))}$"
    with pytest.raises(ValueError, match=f"^weight must have the shape {wanted}{received}"):
        getattr(mxsame.ops, operator)(mx.nd.zeros((1, 10, 15, 3)), mx.nd.zeros(weight), layout="NHWC")
