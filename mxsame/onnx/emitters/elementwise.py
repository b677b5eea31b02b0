"""Emitters of elementwise operators, and of arrays of constants."""

from __future__ import annotations

import math
from typing import Dict

import numpy as np

from mxsame.exporting import elementwise as tables
from mxsame.exporting.reading import axis_of, bounds_of, ndim_of
from mxsame.onnx.writer import OnnxWriter, writes
from mxsame.rewriting.graph import Node, Output

# -- operators that differ only in their name

PLAIN = {
    **{kind: operators[tables.ONNX] for kind, operators in {**tables.UNARY, **tables.ACTIVATIONS}.items()},
    **{"identity": "Identity", "negative": "Neg", "Flatten": "Flatten", "add_n": "Sum"},
}


@writes(*PLAIN)
def _plain(w: OnnxWriter, node: Node, *xs: str) -> str:
    return w.add(PLAIN[node.kind], *xs)


# -- operators that differ in their name and the names of their attributes

RENAMED: Dict[str, tuple] = {  # kind -> ONNX's operator, and its attributes with their names in MXNet
    "Concat": ("Concat", {"axis": "dim"}),
    "_rnn_param_concat": ("Concat", {"axis": "dim"}),
    "depth_to_space": ("DepthToSpace", {"blocksize": "block_size"}),
    "space_to_depth": ("SpaceToDepth", {"blocksize": "block_size"}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
    "InstanceNorm": ("InstanceNormalization", {"epsilon": "eps"}),
    "LRN": ("LRN", {"size": "nsize", "alpha": "alpha", "beta": "beta", "bias": "knorm"}),
}


@writes(*RENAMED)
def _renamed(w: OnnxWriter, node: Node, *xs: str) -> str:
    op, names = RENAMED[node.kind]
    return w.add(op, *xs, **{name: node.attr(mxnet_name) for name, mxnet_name in names.items()})


# -- functions of two arrays, or of an array and a number


@writes(*tables.binary_kinds(*tables.BINARY, "not_equal", "modulo"))
def _elementwise(w: OnnxWriter, node: Node, x: str, y: str = "") -> str:
    """Computes a function of two arrays, or of an array and a number. MXNet's NumPy operators accept several dtypes,
    and their comparisons return bools; other comparisons return 0 or 1 in the dtype of the data."""
    kind, number, reverses = tables.parse_binary(node)
    is_comparison = kind in (*tables.COMPARISONS, "not_equal")
    input_dtypes = [w.dtype(source) for source in node.inputs]
    dtype = np.result_type(*input_dtypes) if is_comparison else w.dtype(Output(node))
    x, y = (name if each == dtype else w.cast(name, dtype) for name, each in zip((x, y), (*input_dtypes, dtype)))
    y = y if number is None else w.constant(number, dtype)
    x, y = (y, x) if reverses else (x, y)
    if kind == "modulo":
        return _modulo(w, x, y, w.constant(0, dtype), w.constant(1, dtype))
    out = w.add("Not", w.add("Equal", x, y)) if kind == "not_equal" else w.add(tables.BINARY[kind][tables.ONNX], x, y)
    return w.cast(out, w.dtype(Output(node))) if is_comparison else out


def _modulo(w: OnnxWriter, x: str, y: str, zero: str, one: str) -> str:
    """Returns the remainder of a division. It has the divisor's sign, and is 0 for a divisor of 0. ONNX's Mod gives
    floats the dividend's sign."""
    is_zero = w.add("Equal", y, zero)
    divisor = w.add("Where", is_zero, one, y)
    remainder = w.add("Mod", x, divisor, fmod=1)
    signs_differ = w.add("Less", w.add("Mul", w.add("Sign", remainder), w.add("Sign", divisor)), zero)
    remainder = w.add("Where", signs_differ, w.add("Add", remainder, divisor), remainder)
    return w.add("Where", is_zero, zero, remainder)


# -- activations


@writes("Activation")
def _activation(w: OnnxWriter, node: Node, x: str) -> str:
    return w.add(tables.ACT_TYPES[tables.act_type(node)][tables.ONNX], x)


@writes("LeakyReLU", ignored="slope|.*_bound")
def _leaky_relu(w: OnnxWriter, node: Node, x: str, slopes: str = "") -> str:
    """Writes one of the activations of MXNet's LeakyReLU."""
    kind = tables.act_type(node, "leaky", "elu", "prelu", "selu", "gelu")
    if kind == "prelu":
        spatial_axes = list(range(1, ndim_of(w, node) - 1))
        is_shared = w.shape(node.inputs[1])[0].traced == 1
        return w.add("PRelu", x, slopes if is_shared or not spatial_axes else w.unsqueeze(slopes, spatial_axes))
    if kind == "gelu":  # x * (1 + erf(x / sqrt(2))) / 2, in the order of steps that runtimes fuse
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
    """Chooses between the elements of two arrays. A condition with one axis chooses along the first axis."""
    condition, ranks = w.cast(condition, bool), [len(w.shape(source)) for source in node.inputs[:2]]
    if ranks[0] < ranks[1]:
        condition = w.unsqueeze(condition, list(range(1, ranks[1])))
    return w.add("Where", condition, x, y)


@writes("logical_not")
def _logical_not(w: OnnxWriter, node: Node, x: str) -> str:
    return w.cast(w.add("Not", w.cast(x, bool)), w.dtype(Output(node)))


@writes("_npi_where", "_npi_where_lscalar", "_npi_where_rscalar")
def _where_broadcast(w: OnnxWriter, node: Node, condition: str, *xs: str) -> str:
    """Chooses between the elements of two arrays, which broadcast. One of them may be a number."""
    dtype = w.dtype(Output(node))
    operands = [w.cast(x, dtype) for x in xs]
    if len(operands) == 1:
        operands.insert(int(node.op == "_npi_where_rscalar"), w.constant(node.attr("scalar"), dtype))
    return w.add("Where", w.cast(condition, bool), *operands)


@writes("_eye", "_linspace", ignored=".*")
def _computed(w: OnnxWriter, node: Node) -> str:
    return w.constant(w.computed(Output(node)))


@writes("zeros_like", "ones_like")
def _full_like(w: OnnxWriter, node: Node, x: str) -> str:
    """Writes zeros or ones as logical functions of x. With `Shape` and `ConstantOfShape` instead, ONNX Runtime plans
    memory wrongly, and a second run returns other values (1.18: a bidirectional recurrent layer with a mask)."""
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
        zero, one = (w.constant(number, np.int64) for number in (0, 1))
        return w.cast(w.add("Range", zero, end, one), w.dtype(Output(node)))
    shape = w.static(Output(node), "its shape")
    if node.op == "_arange" and node.attr("stop") is None and not node.attr("infer_range"):
        start = 0  # MXNet's `start` is the stop if it is the only number
    numbers = start + step * (np.arange(math.prod(shape)) // repeat).reshape(shape)
    return w.constant(numbers, w.dtype(Output(node)))
