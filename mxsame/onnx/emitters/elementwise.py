"""Elementwise operators of one array or two, and arrays of constants."""

from __future__ import annotations

import math
from typing import Dict

import numpy as np

from mxsame.exporting import elementwise as tables
from mxsame.exporting.reading import axis_of, bounds_of, ndim_of
from mxsame.onnx.writer import OnnxWriter, writes
from mxsame.rewriting.graph import Node, Output

# -- the same inputs, and no attributes

PLAIN = {
    **{kind: operators[tables.ONNX] for kind, operators in {**tables.UNARY, **tables.ACTIVATIONS}.items()},
    **{"identity": "Identity", "negative": "Neg", "Flatten": "Flatten", "add_n": "Sum"},
}


@writes(*PLAIN)
def _plain(w: OnnxWriter, node: Node, *xs: str) -> str:
    return w.add(PLAIN[node.kind], *xs)


# -- attributes that have another name

ATTRIBUTES: Dict[str, tuple] = {  # kind -> ONNX's operator, and the names in MXNet of its attributes
    "Concat": ("Concat", {"axis": "dim"}),
    "_rnn_param_concat": ("Concat", {"axis": "dim"}),
    "depth_to_space": ("DepthToSpace", {"blocksize": "block_size"}),
    "space_to_depth": ("SpaceToDepth", {"blocksize": "block_size"}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
    "InstanceNorm": ("InstanceNormalization", {"epsilon": "eps"}),
    "LRN": ("LRN", {"size": "nsize", "alpha": "alpha", "beta": "beta", "bias": "knorm"}),
}


@writes(*ATTRIBUTES)
def _with_attributes(w: OnnxWriter, node: Node, *xs: str) -> str:
    op, names = ATTRIBUTES[node.kind]
    return w.add(op, *xs, **{name: node.attr(own) for name, own in names.items()})


# -- two arrays, or one and a number


@writes(*tables.binary_kinds(*tables.BINARY, "not_equal", "modulo"))
def _elementwise(w: OnnxWriter, node: Node, x: str, y: str = "") -> str:
    """Computes a function of two arrays, or of one and a number. A comparison returns 0 or 1 in the data's dtype, as in
    MXNet, or a bool, as in NumPy, whose operators also accept arrays of several dtypes."""
    kind, number, reverses = tables.parse_binary(node)
    is_comparison = kind in (*tables.COMPARISONS, "not_equal")
    own = [w.dtype(source) for source in node.inputs]
    dtype = np.result_type(*own) if is_comparison else w.dtype(Output(node))
    x, y = (name if each == dtype else w.cast(name, dtype) for name, each in zip((x, y), (*own, dtype)))
    y = y if number is None else w.constant(number, dtype)
    x, y = (y, x) if reverses else (x, y)
    if kind == "modulo":
        return _modulo(w, x, y, w.constant(0, dtype), w.constant(1, dtype))
    out = w.add("Not", w.add("Equal", x, y)) if kind == "not_equal" else w.add(tables.BINARY[kind][tables.ONNX], x, y)
    return w.cast(out, w.dtype(Output(node))) if is_comparison else out


def _modulo(w: OnnxWriter, x: str, y: str, zero: str, one: str) -> str:
    """Returns the remainder of a division, with the divisor's sign, and 0 for a divisor of 0; ONNX's for floats has the
    dividend's sign."""
    none = w.add("Equal", y, zero)
    divisor = w.add("Where", none, one, y)
    rest = w.add("Mod", x, divisor, fmod=1)
    other_sign = w.add("Less", w.add("Mul", w.add("Sign", rest), w.add("Sign", divisor)), zero)
    return w.add("Where", none, zero, w.add("Where", other_sign, w.add("Add", rest, divisor), rest))


# -- activations


@writes("Activation")
def _activation(w: OnnxWriter, node: Node, x: str) -> str:
    return w.add(tables.ACT_TYPES[tables.act_type(node)][tables.ONNX], x)


@writes("LeakyReLU", ignored="slope|.*_bound")
def _leaky_relu(w: OnnxWriter, node: Node, x: str, slopes: str = "") -> str:
    """Writes an activation with a parameter; GELU as x (1 + erf(x / sqrt(2))) / 2, in the order of steps that runtimes
    fuse."""
    kind = tables.act_type(node, "leaky", "elu", "prelu", "selu", "gelu")
    if kind == "prelu":
        after = list(range(1, ndim_of(w, node) - 1))
        single = w.shape(node.inputs[1])[0].traced == 1
        return w.add("PRelu", x, slopes if single or not after else w.unsqueeze(slopes, after))
    if kind == "gelu":
        root, one, half = (w.scalar(number, node.inputs[0]) for number in (math.sqrt(2), 1, 0.5))
        return w.add("Mul", w.add("Mul", x, w.add("Add", w.add("Erf", w.add("Div", x, root)), one)), half)
    if kind == "selu":
        return w.add(tables.ACT_TYPES[kind][tables.ONNX], x)
    return w.add({"leaky": "LeakyRelu", "elu": "Elu"}[kind], x, alpha=node.attr("slope"))


@writes("clip")
def _clip(w: OnnxWriter, node: Node, x: str) -> str:
    low, high = bounds_of(node)
    if (low, high) == (0, math.inf):
        return w.add("Relu", x)
    return w.add("Clip", x, *(None if math.isinf(bound) else w.scalar(bound, node.inputs[0]) for bound in (low, high)))


@writes("softmax", "log_softmax", ignored="dtype")
def _softmax(w: OnnxWriter, node: Node, x: str, *_: str) -> str:
    if w.dtype(Output(node)) != w.dtype(node.inputs[0]):
        x = w.cast(x, w.dtype(Output(node)))
    if node.attr("temperature") not in (None, 1.0):
        x = w.add("Div", x, w.scalar(node.attr("temperature"), Output(node)))
    op = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[node.kind]
    return w.add(op, x, axis=node.attr("axis"))


# -- dtypes, choices and constants


@writes("Cast")
def _cast(w: OnnxWriter, node: Node, x: str) -> str:
    return w.cast(x, node.attr("dtype"))


@writes("where")
def _where(w: OnnxWriter, node: Node, condition: str, x: str, y: str) -> str:
    """Chooses between elements; a condition of one axis chooses along the first."""
    chosen, (first, ndim) = w.cast(condition, bool), [len(w.shape(source)) for source in node.inputs[:2]]
    if first < ndim:
        chosen = w.unsqueeze(chosen, list(range(1, ndim)))
    return w.add("Where", chosen, x, y)


@writes("logical_not")
def _logical_not(w: OnnxWriter, node: Node, x: str) -> str:
    return w.cast(w.add("Not", w.cast(x, bool)), w.dtype(Output(node)))


@writes("_npi_where", "_npi_where_lscalar", "_npi_where_rscalar")
def _where_broadcast(w: OnnxWriter, node: Node, condition: str, *xs: str) -> str:
    """Chooses between elements of arrays that are broadcast; one may be a number."""
    dtype = w.dtype(Output(node))
    chosen = [w.cast(x, dtype) for x in xs]
    if len(chosen) == 1:
        chosen.insert(int(node.op == "_npi_where_rscalar"), w.constant(node.attr("scalar"), dtype))
    return w.add("Where", w.cast(condition, bool), *chosen)


@writes("_eye", "_linspace", ignored=".*")
def _computed(w: OnnxWriter, node: Node) -> str:
    return w.constant(w.computed(Output(node)))


@writes("zeros_like", "ones_like")
def _full_like(w: OnnxWriter, node: Node, x: str) -> str:
    """Writes zeros or ones without `Shape`, for whose arrays ONNX Runtime plans memory wrongly: a second run returns
    other values (1.18: a recurrent layer with a mask, in both directions)."""
    op, value = ("Or", True) if node.kind == "ones_like" else ("And", False)
    return w.cast(w.add(op, w.cast(x, bool), w.constant(value, bool)), w.dtype(Output(node)))


@writes("_zeros", "_ones", "_full", ignored="shape|dtype")
def _full(w: OnnxWriter, node: Node) -> str:
    value = {"_zeros": 0, "_ones": 1}.get(node.kind, node.attr("value"))
    return w.constant(np.full(w.static(Output(node), "its shape"), value), w.dtype(Output(node)))


@writes("_arange", "_contrib_arange_like", ignored="axis|dtype|stop|infer_range")
def _arange(w: OnnxWriter, node: Node, *x: str) -> str:
    start, step, repeat = node.attr("start"), node.attr("step"), node.attr("repeat")
    length = w.shape(Output(node))[0]
    if not length.is_static and node.attr("axis") is not None and (start, step, repeat) == (0, 1, 1):
        axis = axis_of(w, node)
        end = w.squeeze(w.slice(w.add("Shape", *x), (0, axis, axis + 1, 1)), [0])
        first, one = (w.constant(np.array(each), np.int64) for each in (0, 1))
        return w.cast(w.add("Range", first, end, one), w.dtype(Output(node)))
    shape = w.static(Output(node), "its shape")
    if node.op == "_arange" and node.attr("stop") is None and not node.attr("infer_range"):
        start = 0  # the only number given is the stop
    numbers = start + step * (np.arange(math.prod(shape)) // repeat).reshape(shape)
    return w.constant(numbers, w.dtype(Output(node)))
