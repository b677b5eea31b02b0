"""Emitters of elementwise operators, dropout, and softmax."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional

import numpy as np

from mxsame.export_keras.model_builder import KerasTensor
from mxsame.export_keras.writer import KerasWriter, writes
from mxsame.exporting import elementwise as tables
from mxsame.exporting.reading import axis_of, bounds_of
from mxsame.rewriting.graph import Node, Output
from mxsame.validation import check

# -- functions of one array: kind of node or `act_type` -> Keras's activation, or its operator

ACTIVATIONS = {kind: names[tables.KERAS] for kind, names in tables.ACT_TYPES.items()}
OPERATORS = {
    **{kind: names[tables.KERAS] for kind, names in tables.UNARY.items()},
    **{"log1p": "Log1p", "expm1": "Expm1", "fix": "Trunc", "trunc": "Trunc"},
    **{"zeros_like": "ZerosLike", "ones_like": "OnesLike"},
}


def apply_function(w: KerasWriter, name: str, x: KerasTensor) -> KerasTensor:
    return w.add_operator(OPERATORS[name], x) if name in OPERATORS else activate(w, ACTIVATIONS[name], x)


def activate(w: KerasWriter, name: str, x: KerasTensor, suffix: str = "") -> KerasTensor:
    """Applies the activation with this name in Keras."""
    return w.add_layer("Activation", {"activation": name}, x, suffix=suffix)


def affine(w: KerasWriter, x: KerasTensor, scale: Any = 1.0, offset: Any = 0.0, suffix: str = "") -> KerasTensor:
    """Computes scale * x + offset. Both are numbers, or arrays with the axes of x after the batch."""
    if np.array_equal(scale, 1.0) and np.array_equal(offset, 0.0):
        return x
    if 0 < np.ndim(scale) < 3:  # if the user's default is channels first, Keras 3 applies such a scale to axis 1
        ones = (1,) * (3 - np.ndim(scale))
        wide = w.reshape(x, (None, *ones, *x.shape[1:]), range(4), suffix="wide")
        out = affine(w, wide, np.reshape(scale, ones + np.shape(scale)), offset, suffix)
        return w.reshape(out, x.shape, x.order, suffix="narrow")
    config = {"scale": np.asarray(scale).tolist(), "offset": np.asarray(offset).tolist()}
    return w.add_layer("Rescaling", config, x, suffix=suffix)


def clip(w: KerasWriter, x: KerasTensor, low: float, high: float, suffix: str = "") -> KerasTensor:
    """Clips x to the bounds, by a ReLU layer if `low` is 0."""
    if low == 0:
        return w.add_layer("ReLU", {"max_value": None if math.isinf(high) else high}, x, suffix=suffix)
    return w.add_operator("Clip", x, x_min=low, x_max=high)


@writes("Activation", *tables.ACTIVATIONS, *OPERATORS)
def _function(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    return apply_function(w, tables.act_type(node) if node.op == "Activation" else node.kind, x)


@writes("negative")
def _negative(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    return affine(w, x, -1.0)


@writes("LeakyReLU", ignored="slope|.*_bound")
def _leaky_relu(w: KerasWriter, node: Node, x: KerasTensor, slopes: Optional[Output] = None) -> KerasTensor:
    kind = tables.act_type(node, "leaky", "elu", "selu", "gelu", "prelu")
    if kind in ("selu", "gelu"):
        return activate(w, kind, x)
    if kind == "prelu":
        alpha, channel = w.weight(slopes), x.axis(1)
        count = alpha.array.size
        shape = [count if axis == channel else 1 for axis in range(1, x.rank)]
        shared = [axis for axis in range(1, x.rank) if axis != channel or count == 1]
        weights = {"alpha": alpha._replace(array=alpha.array.reshape(shape))}
        return w.add_layer("PReLU", {"shared_axes": shared}, x, weights=weights)
    slope = node.attr("slope")
    if kind == "leaky" and slope < 0:  # Keras 3 refuses a negative slope
        below = activate(w, "relu", affine(w, x, -1.0, suffix="negative"), suffix="below")
        above = activate(w, "relu", x, suffix="above")
        return w.add_layer("Subtract", {}, above, affine(w, below, slope, suffix="slope"))
    name, key = ("ELU", "alpha") if kind == "elu" else ("LeakyReLU", "alpha" if w.builder.is_h5 else "negative_slope")
    return w.add_layer(name, {key: slope}, x)


@writes("clip")
def _clip(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    return clip(w, x, *bounds_of(node))


@writes("Dropout")
def _dropout(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    config: Dict[str, Any] = {"rate": node.attr("p")}
    axes = node.attr("axes")
    if axes:
        config["noise_shape"] = [1 if axis in axes else length for axis, length in zip(x.order, x.shape)]
    return w.add_layer("Dropout", config, x, call={"training": True} if node.attr("mode") == "always" else {})


@writes("softmax", "log_softmax", ignored="dtype")
def _softmax(w: KerasWriter, node: Node, x: KerasTensor, *_: Any) -> KerasTensor:
    axis, temperature = axis_of(w, node), node.attr("temperature", 1.0)
    x = affine(w, x, 1.0 / temperature, suffix="temperature")
    if node.kind == "softmax":
        return w.add_layer("Softmax", {"axis": x.axis(axis)}, x)
    x = w.permute(x, x.order_with_last(axis))
    return activate(w, "log_softmax", x)


@writes("identity", "Cast", ignored="dtype")
def _identity(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    return x


# -- functions of two arrays, or of an array and a constant

MERGING = ("add", "subtract", "multiply", "maximum", "minimum")  # kinds that Keras has as layers


@writes("add_n")
def _sum(w: KerasWriter, node: Node, *xs: KerasTensor) -> KerasTensor:
    return w.add_layer("Add", {}, *w.to_one_order(*xs))


@writes(*tables.binary_kinds(*tables.BINARY, "not_equal"))
def _binary(w: KerasWriter, node: Node, x: Any, y: Any = None) -> KerasTensor:
    """Computes a function of two arrays, or of an array and a constant c."""
    kind, c, reverses = tables.parse_binary(node)
    name = "NotEqual" if kind == "not_equal" else tables.BINARY[kind][tables.KERAS]
    if isinstance(x, KerasTensor) and isinstance(y, KerasTensor):
        x, y = w.to_one_order(x, y)
        shape = tuple(n if m == 1 else m for n, m in zip(x.shape, y.shape))
        if kind in MERGING:
            return w.add_layer(name, {}, x, y, shape=shape)
        return _as_zeros_and_ones(w, kind, w.add_operator(name, x, y, shape=shape))
    if isinstance(x, Output):
        x, y, reverses = y, x, True
    c = w.constant(y, x) if c is None else c
    keeps_shape = x.shape == w.lengths(Output(node), x.order)
    check(keeps_shape, "a constant must not have more elements than the data")
    if kind in ("multiply", "divide"):
        x = apply_function(w, "reciprocal", x) if reverses and kind == "divide" else x
        return affine(w, x, np.divide(1.0, c) if kind == "divide" and not reverses else c)
    if kind in ("add", "subtract"):
        sign = -1.0 if kind == "subtract" else 1.0
        return affine(w, x, sign, c) if reverses else affine(w, x, 1.0, np.multiply(sign, c))
    check(isinstance(c, float), f"a constant of {kind} must be one number")
    if (kind, c) == ("maximum", 0.0):
        return apply_function(w, "relu", x)
    if (kind, c, reverses) == ("power", 2.0, False):
        return w.add_layer("Multiply", {}, x, x)
    return _as_zeros_and_ones(w, kind, w.add_operator(name, *((c, x) if reverses else (x, c))))


def _as_zeros_and_ones(w: KerasWriter, kind: str, x: KerasTensor) -> KerasTensor:
    """Converts the bools of a comparison to 0 and 1, which MXNet returns. Other arrays do not change."""
    return w.add_operator("Where", x, 1.0, 0.0) if kind in (*tables.COMPARISONS, "not_equal") else x


@writes("logical_not")
def _logical_not(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    return w.add_operator("Where", w.add_operator("Equal", x, 0.0), 1.0, 0.0)


@writes("where", "_npi_where", "_npi_where_lscalar", "_npi_where_rscalar")
def _where(w: KerasWriter, node: Node, condition: KerasTensor, *xs: Any) -> KerasTensor:
    """Chooses between the elements of two operands, which are arrays or numbers."""
    tensors = iter(w.to_one_order(condition, *(x for x in xs if isinstance(x, KerasTensor))))
    condition = next(tensors)
    operands = [next(tensors) if isinstance(x, KerasTensor) else w.constant(x, condition) for x in xs]
    if len(operands) == 1:
        operands.insert(int(node.op == "_npi_where_rscalar"), node.attr("scalar"))
    check(not any(isinstance(x, np.ndarray) for x in operands), "a constant that is chosen must be one number")
    return w.add_operator("Where", condition, *operands, shape=w.lengths(Output(node), condition.order))
