"""Elementwise operators, dropout, softmax, dense layers, embeddings, and products of matrices."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Optional

import numpy as np

from mxsame import validation
from mxsame.export_keras.writer import Value, Writer, writes
from mxsame.exporting.walk import axis_of
from mxsame.port.parameters import TRANSPOSED
from mxsame.rewriting.graph import Node, Output

FLATTENED = ("Activation", "Dropout", "clip", "relu", "sigmoid", "tanh")  # between a flattening and a dense layer

# ---- of one array: kind of node, or type of an activation -> its layer, or its operators one after the other ---------

LAYERS: Dict[str, tuple] = {
    **{name: ("Activation", {"activation": name}) for name in ("relu", "sigmoid", "tanh", "softsign", "gelu", "selu")},
    "softrelu": ("Activation", {"activation": "softplus"}),
    "exp": ("Activation", {"activation": "exponential"}),
    "negative": ("Rescaling", {"scale": -1.0, "offset": 0.0}),
    "zeros_like": ("ReLU", {"max_value": 0.0}),  # a bound leaves nothing of an infinity, as a product with 0 would
}
SAME_NAME = "sqrt log reciprocal sign floor ceil sin cos tan sinh cosh log1p expm1"
OPERATORS = {
    **{name: (name.capitalize(),) for name in SAME_NAME.split()},
    **{f"arc{name}": (f"Arc{name}",) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "abs": ("Absolute",),
    "rsqrt": ("Sqrt", "Reciprocal"),
    "fix": ("Trunc",),
    "trunc": ("Trunc",),
}


def function(w: Writer, name: str, x: Value) -> Value:
    if name in LAYERS:
        return w.layer(*LAYERS[name], x)
    for operator in OPERATORS[name]:
        x = w.operator(operator, x)
    return x


def affine(w: Writer, x: Value, scale: Any = 1.0, offset: Any = 0.0, part: str = "") -> Value:
    """scale * x + offset, of numbers or of arrays with the axes of x."""
    if np.array_equal(scale, 1.0) and np.array_equal(offset, 0.0):
        return x
    config = {"scale": np.asarray(scale).tolist(), "offset": np.asarray(offset).tolist()}
    return w.layer("Rescaling", config, x, part=part)


def bounded(w: Writer, x: Value, low: float, high: float) -> Value:
    """Clipped to these bounds."""
    if low == 0:
        return w.layer("ReLU", {"max_value": None if math.isinf(high) else high}, x)
    return w.operator("Clip", x, x_min=low, x_max=high)


@writes("relu", "sigmoid", "tanh", "softsign", "exp", "negative", "zeros_like", *OPERATORS)
def _function(w: Writer, node: Node, x: Value) -> Value:
    return function(w, node.kind, x)


@writes("Activation")
def _activation(w: Writer, node: Node, x: Value) -> Value:
    kinds = ("relu", "sigmoid", "tanh", "softsign", "softrelu")
    return function(w, validation.mode("act_type", node.attr("act_type"), kinds), x)


@writes("square")
def _square(w: Writer, node: Node, x: Value) -> Value:
    return w.layer("Multiply", {}, x, x)


@writes("ones_like")
def _ones(w: Writer, node: Node, x: Value) -> Value:
    return affine(w, function(w, "zeros_like", x), 1.0, 1.0, part="ones")


@writes("LeakyReLU", unread="slope|.*_bound")
def _leaky_relu(w: Writer, node: Node, x: Value, slopes: Optional[Output] = None) -> Value:
    kind = validation.mode("act_type", node.attr("act_type"), ("leaky", "elu", "selu", "gelu", "prelu"))
    if kind in LAYERS:
        return function(w, kind, x)
    if kind == "prelu":
        alpha, channel = w.weight(slopes), x.axis(1)
        count = alpha.array.size
        full = [count if axis == channel else 1 for axis in range(1, x.rank)]
        shared = [axis for axis in range(1, x.rank) if axis != channel or count == 1]
        weights = {"alpha": alpha._replace(array=alpha.array.reshape(full))}
        return w.layer("PReLU", {"shared_axes": shared}, x, weights=weights)
    name, key = ("ELU", "alpha") if kind == "elu" else ("LeakyReLU", "alpha" if w.is_h5 else "negative_slope")
    return w.layer(name, {key: float(node.attr("slope"))}, x)


@writes("clip")
def _clip(w: Writer, node: Node, x: Value) -> Value:
    return bounded(w, x, float(node.attr("a_min")), float(node.attr("a_max")))


@writes("hard_sigmoid")
def _hard_sigmoid(w: Writer, node: Node, x: Value) -> Value:
    return bounded(w, affine(w, x, float(node.attr("alpha")), float(node.attr("beta")), part="line"), 0.0, 1.0)


@writes("Dropout")
def _dropout(w: Writer, node: Node, x: Value) -> Value:
    axes, config = node.attr("axes"), {"rate": float(node.attr("p"))}  # type: Any, Dict[str, Any]
    if axes:
        config["noise_shape"] = [1 if axis in axes else x.shape[at] for at, axis in enumerate(x.order)]
    return w.layer("Dropout", config, x, call={"training": True} if node.attr("mode") == "always" else {})


@writes("softmax", "log_softmax", unread="dtype")
def _softmax(w: Writer, node: Node, x: Value, *_: Any) -> Value:
    axis, temperature = axis_of(w, node), float(node.attr("temperature", 1.0))
    x = affine(w, x, 1.0 / temperature, part="temperature")
    if node.kind == "softmax":
        return w.layer("Softmax", {"axis": x.axis(axis)}, x)
    x = w.arranged(x, [*(each for each in x.order if each != axis), axis])
    return w.layer("Activation", {"activation": "log_softmax"}, x)


@writes("identity", "Cast", unread="dtype")
def _identity(w: Writer, node: Node, x: Value) -> Value:
    if w.dtype(Output(node)) != np.float32:
        raise ValueError(f"arrays must be float32; {validation.received(dtype=w.dtype(Output(node)))}")
    return x


# ---- of two, or of one and a number ----------------------------------------------------------------------------------

MERGING = {name: name.capitalize() for name in ("add", "subtract", "multiply", "maximum", "minimum")}
COMPARING = {"equal": "Equal", "not_equal": "NotEqual", "greater": "Greater", "greater_equal": "GreaterEqual",
             "lesser": "Less", "lesser_equal": "LessEqual"}  # fmt: skip
BINARY = {**MERGING, "divide": "Divide", "power": "Power", **COMPARING}


@writes("add_n")
def _sum(w: Writer, node: Node, *xs: Value) -> Value:
    return w.layer("Add", {}, *w.alike(*xs))


@writes(*BINARY, *(f"{kind}_scalar" for kind in BINARY), "rsubtract_scalar", "rdivide_scalar", "rpower_scalar")
def _of_two(w: Writer, node: Node, x: Any, y: Any = None) -> Value:
    """Two arrays, or one and a constant, which is the first operand if the operator's name starts with r."""
    kind, reverses = re.subn("^r(?=.*_scalar)", "", node.kind)
    kind = kind.replace("_scalar", "")
    if isinstance(x, Value) and isinstance(y, Value):
        x, y = w.alike(x, y)
        shape = tuple(n if m == 1 else m for n, m in zip(x.shape, y.shape))
        if kind in MERGING:
            return w.layer(MERGING[kind], {}, x, y, shape=shape)
        return _number(w, kind, w.operator(BINARY[kind], x, y, shape=shape))
    if isinstance(x, Output):
        x, y, reverses = y, x, True
    c = float(node.attr("scalar")) if y is None else w.constant(y, x)
    if x.shape != w.value(x.tensor, Output(node), x.order).shape:
        raise ValueError("a constant must not have more elements than the data")
    if kind in ("multiply", "divide"):
        x = function(w, "reciprocal", x) if reverses and kind == "divide" else x
        return affine(w, x, np.divide(1.0, c) if kind == "divide" and not reverses else c)
    if kind in ("add", "subtract"):
        sign = -1.0 if kind == "subtract" else 1.0
        return affine(w, x, sign, c) if reverses else affine(w, x, 1.0, np.multiply(sign, c))
    if not isinstance(c, float):
        raise ValueError(f"a constant of {kind} must be one number")
    if (kind, c) == ("maximum", 0.0):
        return function(w, "relu", x)
    if (kind, c, bool(reverses)) == ("power", 2.0, False):
        return w.layer("Multiply", {}, x, x)
    return _number(w, kind, w.operator(BINARY[kind], *((c, x) if reverses else (x, c))))


def _number(w: Writer, kind: str, x: Value) -> Value:
    """A comparison as 0 and 1, as MXNet has it."""
    return w.operator("Where", x, 1.0, 0.0) if kind in COMPARING else x


@writes("where")
def _where(w: Writer, node: Node, *xs: Any) -> Value:
    condition, x, y = w.alike(*xs)
    return w.operator("Where", condition, x, y)


# ---- products --------------------------------------------------------------------------------------------------------


def goes_to_dense(w: Writer, node: Node) -> bool:
    """Whether all that uses a flattened array is a dense layer, which can have its rows in another order."""
    users = w.graph.users()
    return all(
        user is not None and (user.op == "FullyConnected" or (user.kind in FLATTENED and goes_to_dense(w, user)))
        for user, _ in users[node]
    )


@writes("FullyConnected")
def _dense(w: Writer, node: Node, x: Value, _: Any, bias: Optional[Output] = None) -> Value:
    """x W^T + b; with `flatten` x is a matrix, without it only its last axis changes."""
    shape = w.shape(node.inputs[0])
    if node.attr("flatten") and x.rank != 2:
        x = w.reshaped(x, shape, (shape[0], shape[0]._make([math.prod(n.traced for n in shape[1:])] * 2)), lazy=True)
    x = w.arranged(x, [*(axis for axis in x.order if axis != x.rank - 1), x.rank - 1])
    weight = w.weight(node.inputs[1])
    kernel = TRANSPOSED.to_keras(weight.array)
    weights = {"kernel": weight._replace(array=kernel if x.features is None else kernel[x.features])}
    if bias is not None:
        weights["bias"] = w.weight(bias)
    config = {"units": len(weight.array), "use_bias": bias is not None}
    return w.layer("Dense", config, x, shape=(*x.shape[:-1], config["units"]), order=x.order, weights=weights)


@writes("take")
def _rows(w: Writer, node: Node, table: Any, x: Any) -> Value:
    """Rows of a parameter, by their numbers."""
    if not isinstance(x, Value) or not isinstance(table, Output) or axis_of(w, node):
        raise ValueError("rows must be taken from a parameter, along its first axis")
    weight = w.weight(table)
    rows, length = weight.array.shape
    config, shape, order = {"input_dim": rows, "output_dim": length}, (*x.shape, length), (*x.order, x.rank)
    return w.layer("Embedding", config, x, shape=shape, order=order, weights={"embeddings": weight})


@writes("batch_dot")
def _batch_dot(w: Writer, node: Node, x: Value, y: Any) -> Value:
    """Of matrices of a batch."""
    axes = [2 - node.attr("transpose_a"), 1 + node.attr("transpose_b")]
    if not isinstance(y, Value) or x.rank != 3 or y.rank != 3 or x.order[0] or y.order[0]:
        raise ValueError("data must be matrices of a batch")
    config = {"axes": [x.axis(axes[0]), y.axis(axes[1])], "normalize": False}
    return w.layer("Dot", config, x, y, shape=w.value(x.tensor, Output(node), (0, 1, 2)).shape, order=(0, 1, 2))
