"""Elementwise operators of one array or two, and arrays of constants."""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Dict, Optional

import numpy as np

from mxsame import validation
from mxsame.exporting.walk import axis_of, ndim_of
from mxsame.onnx.rows._shared import Array, writes
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output

# ---- the same inputs, and no attributes ------------------------------------------------------------------------------

ACTIVATIONS = {"softrelu": "Softplus", **{name: name.capitalize() for name in ("relu", "sigmoid", "tanh", "softsign")}}
CAPITALIZED = (
    "relu sigmoid tanh softsign identity abs sqrt reciprocal exp log erf sin cos tan sinh cosh floor ceil sign"
)
PLAIN = {
    **{name: name.capitalize() for name in CAPITALIZED.split()},
    **{f"arc{name}": f"A{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "negative": "Neg",
    "Flatten": "Flatten",
    "add_n": "Sum",
}


@writes(*PLAIN)
def plain(w: Writer, node: Node, *xs: str) -> str:
    return w.add(PLAIN[node.kind], *xs)


# ---- attributes that have another name -------------------------------------------------------------------------------

ATTRIBUTES: Dict[str, tuple] = {  # kind -> ONNX's operator, and its attributes: name in MXNet, default
    "Concat": ("Concat", {"axis": ("dim", 1)}),
    "_rnn_param_concat": ("Concat", {"axis": ("dim", 1)}),
    "depth_to_space": ("DepthToSpace", {"blocksize": ("block_size", 1)}),
    "space_to_depth": ("SpaceToDepth", {"blocksize": ("block_size", 1)}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)}),
    "InstanceNorm": ("InstanceNormalization", {"epsilon": ("eps", 1e-3)}),
    "LRN": (
        "LRN",
        {"size": ("nsize", 1), "alpha": ("alpha", 1e-4), "beta": ("beta", 0.75), "bias": ("knorm", 2.0)},
    ),
}


@writes(*ATTRIBUTES)
def with_attributes(w: Writer, node: Node, *xs: str) -> str:
    op, attrs = ATTRIBUTES[node.kind]
    return w.add(op, *xs, **{name: type(default)(node.attr(own, default)) for name, (own, default) in attrs.items()})


# ---- two arrays, or one and a number ---------------------------------------------------------------------------------


def _modulo(x: Array, y: Array) -> Array:
    """The remainder of a division, with the divisor's sign, and 0 for a divisor of 0; ONNX's for floats has the
    dividend's sign."""
    none = y("Equal", 0)
    divisor = _where(none, 1, y)
    rest = x("Mod", divisor, fmod=1)
    other_sign = rest("Sign") * divisor("Sign") < 0
    return _where(none, 0, _where(other_sign, rest + divisor, rest))


def _where(condition: Array, x: Any, y: Any) -> Array:
    return condition("Where", x, y)


ARITHMETIC: Dict[str, Any] = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
    "modulo": _modulo,
}
COMPARISONS: Dict[str, Any] = {
    "equal": "Equal",
    "not_equal": lambda x, y: x("Equal", y)("Not"),
    "greater": "Greater",
    "lesser": "Less",
    "greater_equal": "GreaterOrEqual",
    "lesser_equal": "LessOrEqual",
}


@writes(*ARITHMETIC, *(f"{kind}_scalar" for kind in ARITHMETIC))
@writes("rsubtract_scalar", "rdivide_scalar", "rpower_scalar", "rmodulo_scalar")
@writes(*COMPARISONS, *(f"{kind}_scalar" for kind in COMPARISONS))
def of_two(w: Writer, node: Node, x: str, y: Optional[str] = None) -> str:
    """A scalar has the data's type, and is the first operand if the name starts with r. A comparison returns 0 or 1 of
    that type, as in MXNet."""
    operands = [x, w.scalar(float(node.attr("scalar")), node.inputs[0]) if y is None else y]
    kind, reverses = re.subn("^r(?=.*_scalar)", "", node.kind)
    kind = kind.replace("_scalar", "")
    one, other = (Array(w, node.inputs[0], name) for name in (reversed(operands) if reverses else operands))
    formula = ARITHMETIC.get(kind) or COMPARISONS[kind]
    out = one(formula, other) if isinstance(formula, str) else formula(one, other)
    return w.cast(out.name, w.dtype(Output(node))) if kind in COMPARISONS else out.name


# ---- formulas --------------------------------------------------------------------------------------------------------


def _log1p(x: Array) -> Array:
    """log(u) with u = 1 + x; near 0 times x / (u - 1), which cancels the rounding of u, or x if u is 1."""
    u = x + 1
    small = _where(u("Equal", 1), x, x * (u("Log") / (u - 1)))
    return _where(x("Abs") < 0.5, small, u("Log"))


def _expm1(x: Array) -> Array:
    """2 t / (1 - t) with t = tanh(x / 2) for small x, which loses no digits; exp(x) - 1 for others."""
    t = (x * 0.5)("Tanh")
    return _where(x("Abs") < 0.5, t * 2 / (t("Neg") + 1), x("Exp") - 1)


def _round_half_away(x: Array) -> Array:
    """MXNet rounds a tie away from 0, ONNX's Round to the even number."""
    size = x("Abs")
    whole = size("Floor")
    return x("Sign") * _where(size - whole < 0.5, whole, whole + 1)


def _round_half_down(x: Array) -> Array:
    """MXNet's rint rounds a tie down."""
    low, high = x("Floor"), x("Ceil")
    return _where(high - x < x - low, high, low)


def _truncated(x: Array) -> Array:
    """Towards 0."""
    return _where(x < 0, x("Ceil"), x("Floor"))


FORMULAS: Dict[str, Callable[[Array], Array]] = {
    "rsqrt": lambda x: x("Sqrt")("Reciprocal"),
    "square": lambda x: x * x,
    "log1p": _log1p,
    "expm1": _expm1,
    "round": _round_half_away,
    "rint": _round_half_down,
    "fix": _truncated,
    "trunc": _truncated,
}


@writes(*FORMULAS)
def formula(w: Writer, node: Node, x: str) -> str:
    return FORMULAS[node.kind](Array(w, node.inputs[0], x)).name


@writes("smooth_l1")
def smooth_l1(w: Writer, node: Node, name: str) -> str:
    """(s x)^2 / 2 where |x| < 1 / s^2, and |x| - 1 / (2 s^2) elsewhere."""
    x, square = Array(w, node.inputs[0], name), float(node.attr("scalar")) ** 2
    size = x("Abs")
    return _where(size < 1 / square, x * x * (square / 2), size - 0.5 / square).name


# ---- activations -----------------------------------------------------------------------------------------------------


@writes("Activation")
def activation(w: Writer, node: Node, x: str) -> str:
    return w.add(ACTIVATIONS[validation.mode("act_type", node.attr("act_type"), [*ACTIVATIONS])], x)


@writes("LeakyReLU", unread="slope|.*_bound")
def leaky_relu(w: Writer, node: Node, name: str, slopes: str = "") -> str:
    """GELU as x (1 + erf(x / sqrt(2))) / 2, in the order of steps that runtimes fuse."""
    kinds, x = {"leaky": "LeakyRelu", "elu": "Elu"}, Array(w, node.inputs[0], name)
    kind = validation.mode("act_type", node.attr("act_type"), [*kinds, "prelu", "selu", "gelu"])
    if kind == "prelu":
        after = list(range(1, ndim_of(w, node) - 1))
        single = w.shape(node.inputs[1])[0].traced == 1
        return w.add("PRelu", name, slopes if single or not after else w.unsqueezed(slopes, after))
    if kind == "gelu":
        return (x * ((x / math.sqrt(2))("Erf") + 1) * 0.5).name
    if kind == "selu":
        return w.add("Selu", name)
    return w.add(kinds[kind], name, alpha=float(node.attr("slope")))


@writes("clip")
def clip(w: Writer, node: Node, x: str) -> str:
    low, high = (float(node.attr(name, bound)) for name, bound in (("a_min", -math.inf), ("a_max", math.inf)))
    if (low, high) == (0, math.inf):
        return w.add("Relu", x)
    return w.add("Clip", x, *(None if math.isinf(bound) else w.scalar(bound, node.inputs[0]) for bound in (low, high)))


@writes("softmax", "log_softmax", unread="dtype")
def softmax(w: Writer, node: Node, x: str, *_: str) -> str:
    if w.dtype(Output(node)) != w.dtype(node.inputs[0]):
        x = w.cast(x, w.dtype(Output(node)))
    if node.attr("temperature") not in (None, 1.0):
        x = w.add("Div", x, w.scalar(float(node.attr("temperature")), Output(node)))
    op = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[node.kind]
    return w.add(op, x, axis=int(node.attr("axis", -1)))


# ---- types, choices and constants ------------------------------------------------------------------------------------


@writes("Cast")
def cast(w: Writer, node: Node, x: str) -> str:
    return w.cast(x, node.attr("dtype"))


@writes("where")
def where(w: Writer, node: Node, condition: str, x: str, y: str) -> str:
    """It chooses by elements; a condition of one axis chooses along the first."""
    chosen, (first, ndim) = w.cast(condition, bool), [len(w.shape(source)) for source in node.inputs[:2]]
    if first < ndim:
        chosen = w.unsqueezed(chosen, list(range(1, ndim)))
    return w.add("Where", chosen, x, y)


@writes("zeros_like", "ones_like")
def full_like(w: Writer, node: Node, x: str) -> str:
    value = np.full(1, node.kind == "ones_like", w.dtype(Output(node)))
    return w.add("ConstantOfShape", w.lengths(w.shape(node.inputs[0]), x), value=w.tensor(value))


@writes("_zeros", "_ones", "_full", unread="shape|dtype")
def full(w: Writer, node: Node) -> str:
    value = {"_zeros": 0, "_ones": 1}.get(node.kind, node.attr("value"))
    return w.constant(np.full(w.static(Output(node), "its shape"), value), w.dtype(Output(node)))


@writes("_arange", "_contrib_arange_like", unread="axis|dtype|stop|infer_range")
def arange(w: Writer, node: Node, *x: str) -> str:
    start, step, repeat = node.attr("start"), node.attr("step"), node.attr("repeat")
    length = w.shape(Output(node))[0]
    if not length.is_static and node.attr("axis") is not None and (start, step, repeat) == (0, 1, 1):
        axis = axis_of(w, node)
        end = w.squeezed(w.sliced(w.add("Shape", *x), (0, axis, axis + 1, 1)), [0])
        first, one = (w.constant(np.array(each), np.int64) for each in (0, 1))
        return w.cast(w.add("Range", first, end, one), w.dtype(Output(node)))
    shape = w.static(Output(node), "its shape")
    if node.op == "_arange" and node.attr("stop") is None and not node.attr("infer_range"):
        start = 0  # the only number given is the stop
    numbers = start + step * (np.arange(math.prod(shape)) // repeat).reshape(shape)
    return w.constant(numbers, w.dtype(Output(node)))
