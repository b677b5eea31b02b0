"""Elementwise operators, dropout, softmax, dense layers, embeddings, and products of matrices."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Optional

import numpy as np

from mxsame import validation
from mxsame.export_keras.writer import Value, Writer, writes
from mxsame.exporting.walk import axis_of
from mxsame.port.builder import TRANSPOSED
from mxsame.rewriting.graph import Node, Output

FLATTENED = ("Activation", "Dropout", "clip", "relu", "sigmoid", "tanh")  # between a flattening and a dense layer


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


# ---- of one array ----------------------------------------------------------------------------------------------------

NAMED = ("relu", "sigmoid", "tanh", "softsign", "gelu", "selu")
ACTIVATIONS = {"softrelu": "softplus", "exp": "exponential", **dict(zip(NAMED, NAMED))}
SAME_NAME = ("sqrt", "log", "reciprocal", "sign", "floor", "ceil", "sin", "cos", "log1p", "expm1")
OPERATORS = {"abs": "Absolute", **{name: name.capitalize() for name in SAME_NAME}}


def activated(w: Writer, x: Value, name: str) -> Value:
    return w.layer("Activation", {"activation": ACTIVATIONS[name]}, x)


@writes("relu", "sigmoid", "tanh", "softsign", "exp")
def _function(w: Writer, node: Node, x: Value) -> Value:
    return activated(w, x, node.kind)


@writes("Activation")
def _activation(w: Writer, node: Node, x: Value) -> Value:
    return activated(w, x, validation.mode("act_type", node.attr("act_type"), [*ACTIVATIONS]))


@writes("LeakyReLU", unread="slope|.*_bound")
def _leaky_relu(w: Writer, node: Node, x: Value, slopes: Optional[Output] = None) -> Value:
    kind, slope = str(node.attr("act_type")), float(node.attr("slope"))
    if kind in ("gelu", "selu"):
        return activated(w, x, kind)
    if kind == "elu":
        return w.layer("ELU", {"alpha": slope}, x)
    if kind == "leaky":
        return w.layer("LeakyReLU", {"alpha" if w.is_h5 else "negative_slope": slope}, x)
    validation.mode("act_type", kind, ("leaky", "elu", "selu", "gelu", "prelu"))
    alpha = w.weight(slopes)
    channel, count = x.axis(1), alpha.array.size
    full = [count if axis == channel else 1 for axis in range(1, x.rank)]
    shared = [axis for axis in range(1, x.rank) if axis != channel or count == 1]
    weights = {"alpha": alpha._replace(array=alpha.array.reshape(full))}
    return w.layer("PReLU", {"shared_axes": shared}, x, weights=weights)


@writes("clip")
def _clip(w: Writer, node: Node, x: Value) -> Value:
    return bounded(w, x, float(node.attr("a_min", -math.inf)), float(node.attr("a_max", math.inf)))


@writes("hard_sigmoid")
def _hard_sigmoid(w: Writer, node: Node, x: Value) -> Value:
    line = affine(w, x, float(node.attr("alpha")), float(node.attr("beta")), part="line")
    return bounded(w, line, 0.0, 1.0)


@writes("Dropout")
def _dropout(w: Writer, node: Node, x: Value) -> Value:
    axes = node.attr("axes", ())
    config: Dict[str, Any] = {"rate": float(node.attr("p"))}
    if axes:
        config["noise_shape"] = [1 if axis in axes else x.shape[at] for at, axis in enumerate(x.order)]
    call = {"training": True} if node.attr("mode") == "always" else {}
    return w.layer("Dropout", config, x, call=call)


@writes("softmax", "log_softmax", "SoftmaxActivation", "SoftmaxOutput", unread="dtype")
def _softmax(w: Writer, node: Node, x: Value, *_: Any) -> Value:
    axis = int(node.attr("axis", -1))
    if node.kind == "SoftmaxActivation":
        axis = 1 if node.attr("mode") == "channel" else -1
    elif node.kind == "SoftmaxOutput":
        axis = 1 if node.attr("multi_output") else -1
        if axis == -1 and x.rank > 2 and not node.attr("preserve_shape"):
            raise ValueError("data must be a matrix unless preserve_shape or multi_output is True")
    temperature = node.attr("temperature")
    x = affine(w, x, 1.0 / float(temperature), part="temperature") if temperature else x
    if node.kind != "log_softmax":
        return w.layer("Softmax", {"axis": x.axis(axis)}, x)
    order = [each for each in x.order if each != axis % x.rank]
    return w.layer("Activation", {"activation": "log_softmax"}, w.arranged(x, [*order, axis % x.rank]))


@writes("square")
def _square(w: Writer, node: Node, x: Value) -> Value:
    return w.layer("Multiply", {}, x, x)


@writes("negative")
def _negative(w: Writer, node: Node, x: Value) -> Value:
    return affine(w, x, -1.0)


@writes("rsqrt", *OPERATORS)
def _operator(w: Writer, node: Node, x: Value) -> Value:
    if node.kind == "rsqrt":
        return w.operator("Reciprocal", w.operator("Sqrt", x))
    return w.operator(OPERATORS[node.kind], x)


@writes("zeros_like", "ones_like")
def _full_like(w: Writer, node: Node, x: Value) -> Value:
    """By a bound of 0, which leaves nothing of an infinity, as a product with 0 would."""
    zeros = w.layer("ReLU", {"max_value": 0.0}, x, part="zeros")
    return affine(w, zeros, 1.0, 1.0) if node.kind == "ones_like" else zeros


@writes("identity", "Cast", unread="dtype")
def _identity(w: Writer, node: Node, x: Value) -> Value:
    if w.dtype(Output(node)) != np.float32:
        raise ValueError(f"arrays must be float32; {validation.received(dtype=w.dtype(Output(node)))}")
    return x


# ---- of two, or of one and a number ----------------------------------------------------------------------------------

MERGING = {name: name.capitalize() for name in ("add", "subtract", "multiply", "maximum", "minimum")}


@writes("add_n")
def _sum(w: Writer, node: Node, *xs: Value) -> Value:
    return w.layer("Add", {}, *w.alike(*xs))


@writes(*MERGING, *(f"{kind}_scalar" for kind in MERGING), "rsubtract_scalar")
@writes("divide", "divide_scalar", "rdivide_scalar", "power", "power_scalar", "rpower_scalar")
def _of_two(w: Writer, node: Node, x: Any, y: Any = None) -> Value:
    """Two arrays, or one and a constant, which is the first operand if the operator's name starts with r."""
    kind, reversed_ = re.subn("^r(?=.*_scalar)", "", node.kind)
    kind = kind.replace("_scalar", "")
    if isinstance(x, Value) and isinstance(y, Value):
        x, y = w.alike(x, y)
        shape = tuple(n if m == 1 else m for n, m in zip(x.shape, y.shape))
        if kind in MERGING:
            return w.layer(MERGING[kind], {}, x, y, shape=shape)
        return w.operator(kind.capitalize(), x, y, shape=shape)
    if isinstance(x, Output):
        (x, y), reversed_ = (y, x), 1
    c = float(node.attr("scalar")) if y is None else w.constant(y, x)
    if x.shape != w.value(x.tensor, Output(node), x.order).shape:
        raise ValueError("a constant must not have more elements than the data")
    return _with_constant(w, kind, x, c, bool(reversed_))


def _with_constant(w: Writer, kind: str, x: Value, c: Any, reverses: bool) -> Value:
    if kind == "add":
        return affine(w, x, 1.0, c)
    if kind == "subtract":
        return affine(w, x, -1.0, c) if reverses else affine(w, x, 1.0, np.negative(c))
    if kind == "multiply":
        return affine(w, x, c)
    if kind == "divide":
        return affine(w, w.operator("Reciprocal", x), c) if reverses else affine(w, x, np.divide(1.0, c))
    if not isinstance(c, float):
        raise ValueError(f"a constant of {kind} must be one number")
    if kind == "power":
        if c == 2 and not reverses:
            return w.layer("Multiply", {}, x, x)
        return w.operator("Power", c, x) if reverses else w.operator("Power", x, c)
    if (kind, c) == ("maximum", 0.0):
        return activated(w, x, "relu")
    return w.operator(kind.capitalize(), x, c)


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
    kernel = kernel if x.features is None else kernel[x.features]
    weights = {"kernel": weight._replace(array=kernel)}
    if bias is not None:
        weights["bias"] = w.weight(bias)
    config = {"units": int(node.attr("num_hidden")), "use_bias": bias is not None}
    return w.layer("Dense", config, x, shape=(*x.shape[:-1], config["units"]), order=x.order, weights=weights)


@writes("Embedding", "take", unread="dtype")
def _embedding(w: Writer, node: Node, x: Any, y: Any) -> Value:
    """Rows of a parameter, by their numbers."""
    x, table = (x, y) if node.kind == "Embedding" else (y, x)
    if not isinstance(x, Value) or not isinstance(table, Output) or axis_of_take(w, node):
        raise ValueError("rows must be taken from a parameter, along its first axis")
    weight = w.weight(table)
    rows, length = weight.array.shape
    config = {"input_dim": rows, "output_dim": length}
    out = w.layer(
        "Embedding", config, x, shape=(*x.shape, length), order=(*x.order, x.rank), weights={"embeddings": weight}
    )
    return out


def axis_of_take(w: Writer, node: Node) -> int:
    return axis_of(w, node) if node.kind == "take" else 0


@writes("batch_dot")
def _batch_dot(w: Writer, node: Node, x: Value, y: Any) -> Value:
    """Of matrices of a batch."""
    axes = [2 - node.attr("transpose_a"), 1 + node.attr("transpose_b")]
    if not isinstance(y, Value) or x.rank != 3 or y.rank != 3 or x.order[0] or y.order[0]:
        raise ValueError("data must be matrices of a batch")
    config = {"axes": [x.axis(axes[0]), y.axis(axes[1])], "normalize": False}
    return w.layer("Dot", config, x, y, shape=w.value(x.tensor, Output(node), (0, 1, 2)).shape, order=(0, 1, 2))
