"""One array, element by element, two arrays, and arrays of constants."""

from __future__ import annotations

import math
from typing import Optional

import numpy as np

from mxsame import validation
from mxsame.onnx.registry import writes
from mxsame.onnx.rows._shared import must, ndim_of
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output

BOOL = np.dtype("bool")


ARITHMETIC = {  # of two arrays, or of one with a number
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
}
ACTIVATIONS = {"softrelu": "Softplus", **{name: name.capitalize() for name in ("relu", "sigmoid", "tanh", "softsign")}}
CAPITALIZED = (  # names that differ in nothing else
    *(
        "relu",
        "sigmoid",
        "tanh",
        "softsign",
        "identity",
        "abs",
        "sqrt",
        "reciprocal",
        "exp",
        "log",
        "erf",
        "sin",
        "cos",
    ),
    *("tan", "sinh", "cosh", "floor", "ceil", "sign"),
)
PLAIN = {  # the same inputs, and no attributes
    **ARITHMETIC,
    **{name: name.capitalize() for name in CAPITALIZED},
    **{f"arc{name}": f"A{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "negative": "Neg",
    "Flatten": "Flatten",
    "add_n": "Sum",
}
COMPARISONS = {
    form.format(name): op
    for name, op in {
        "equal": "Equal",
        "not_equal": "Equal",
        "greater": "Greater",
        "lesser": "Less",
        "greater_equal": "GreaterOrEqual",
        "lesser_equal": "LessOrEqual",
    }.items()
    for form in ("_{}", "_{}_scalar", "broadcast_{}")
}


@writes(*PLAIN)
def plain(w: Writer, node: Node, *xs: str) -> str:
    return w.add(PLAIN[node.kind], *xs, name=node.name)


@writes(*(f"{kind}_scalar" for kind in ARITHMETIC), "rsubtract_scalar", "rdivide_scalar", "rpower_scalar")
def with_scalar(w: Writer, node: Node, x: str) -> str:
    """Arithmetic with a number of the data's type, which comes first if the name starts with r."""
    kind, scalar = node.kind[: -len("_scalar")], w.scalar(float(node.attr("scalar")), node.inputs[0])
    if kind in ARITHMETIC:
        return w.add(ARITHMETIC[kind], x, scalar, name=node.name)
    return w.add(ARITHMETIC[kind[1:]], scalar, x, name=node.name)


@writes(*COMPARISONS)
def comparison(w: Writer, node: Node, x: str, y: Optional[str] = None) -> str:
    """Of two arrays, or of one with a number: 0 or 1 of the data's type, as MXNet has it."""
    op = COMPARISONS[node.kind]
    y = w.scalar(float(node.attr("scalar")), node.inputs[0]) if y is None else y
    if op.endswith("OrEqual") and w.opset < 12:
        found = w.add("Or", w.add(op[: -len("OrEqual")], x, y), w.add("Equal", x, y))
    else:
        found = w.add(op, x, y)
    return w.cast(w.add("Not", found) if "not_equal" in node.kind else found, w.dtype(Output(node)))


@writes("Activation")
def activation(w: Writer, node: Node, x: str) -> str:
    kind = node.attr("act_type")
    if kind not in ACTIVATIONS:
        raise ValueError(f"act_type must be one of {', '.join(ACTIVATIONS)}; {validation.received(act_type=kind)}")
    return w.add(ACTIVATIONS[kind], x, name=node.name)


@writes("LeakyReLU")
def leaky_relu(w: Writer, node: Node, x: str, slopes: Optional[str] = None) -> str:
    kind, slope = node.attr("act_type", "leaky"), float(node.attr("slope", 0.25))
    if kind == "leaky":
        return w.add("LeakyRelu", x, alpha=slope, name=node.name)
    if kind == "prelu":
        after = list(range(1, ndim_of(w, node) - 1))
        single = w.shape(node.inputs[1])[0].traced == 1
        return w.add("PRelu", x, slopes if single or not after else w.unsqueezed(str(slopes), after), name=node.name)
    if kind == "gelu":
        return _gelu(w, node, x)
    if kind == "elu":
        return w.add("Elu", x, alpha=slope, name=node.name)
    if kind == "selu":
        return w.add("Selu", x, name=node.name)
    raise ValueError(f"act_type must be leaky, prelu, elu, selu or gelu; {validation.received(act_type=kind)}")


def _gelu(w: Writer, node: Node, x: str) -> str:
    """x (1 + erf(x / sqrt(2))) / 2, in the order of steps that runtimes fuse."""
    like = node.inputs[0]
    erf = w.add("Erf", w.add("Div", x, w.scalar(math.sqrt(2), like)))
    return w.add("Mul", w.add("Mul", x, w.add("Add", erf, w.scalar(1, like))), w.scalar(0.5, like), name=node.name)


@writes("clip")
def clip(w: Writer, node: Node, x: str) -> str:
    low, high = (None if node.attr(name) is None else float(node.attr(name)) for name in ("a_min", "a_max"))
    like = node.inputs[0]
    if low == 0 and (high is None or math.isinf(high)):
        return w.add("Relu", x, name=node.name)
    bounds = [None if bound is None or math.isinf(bound) else w.scalar(bound, like) for bound in (low, high)]
    return w.add("Clip", x, *bounds, name=node.name)


@writes("hard_sigmoid")
def hard_sigmoid(w: Writer, node: Node, x: str) -> str:
    attrs = {"alpha": float(node.attr("alpha", 0.2)), "beta": float(node.attr("beta", 0.5))}
    return w.add("HardSigmoid", x, name=node.name, **attrs)


@writes("softmax", "log_softmax")
def softmax(w: Writer, node: Node, x: str, *_: str) -> str:
    must(node, "use_length", False)
    if w.dtype(Output(node)) != w.dtype(node.inputs[0]):
        x = w.cast(x, w.dtype(Output(node)))
    if node.attr("temperature") not in (None, 1.0):
        x = w.add("Div", x, w.scalar(float(node.attr("temperature")), Output(node)))
    op = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[node.kind]
    return _along(w, node, op, x, int(node.attr("axis", -1)))


def _along(w: Writer, node: Node, op: str, x: str, axis: int) -> str:
    """Softmax along an axis. Before opset 13 all axes from one on are treated as one, so that one must be the last."""
    ndim = ndim_of(w, node)
    axis %= ndim
    if w.opset >= 13 or axis == ndim - 1:
        return w.add(op, x, axis=axis, name=node.name)
    swap = list(range(ndim))
    swap[axis], swap[-1] = ndim - 1, axis
    return w.transposed(w.add(op, w.transposed(x, swap), axis=ndim - 1, name=node.name), swap)


@writes("SoftmaxActivation")
def softmax_activation(w: Writer, node: Node, x: str) -> str:
    return _along(w, node, "Softmax", x, 1 if node.attr("mode", "instance") == "channel" else -1)


@writes("SoftmaxOutput")
def softmax_output(w: Writer, node: Node, x: str, label: str) -> str:
    """At inference the label has no effect. By default over all elements of each instance of the batch."""
    if node.attr("multi_output", False):
        return _along(w, node, "Softmax", x, 1)
    if node.attr("preserve_shape", False) or ndim_of(w, node) == 2:
        return _along(w, node, "Softmax", x, -1)
    flat, shape = w.add("Flatten", x, axis=1), w.shape(node.inputs[0])
    return w.reshaped(w.add("Softmax", flat, axis=1), shape[:1], shape)


@writes("LogisticRegressionOutput")
def logistic_output(w: Writer, node: Node, x: str, label: str) -> str:
    return w.add("Sigmoid", x, name=node.name)


@writes("LinearRegressionOutput", "MAERegressionOutput")
def linear_output(w: Writer, node: Node, x: str, label: str) -> str:
    return x


@writes("rsqrt")
def reciprocal_root(w: Writer, node: Node, x: str) -> str:
    return w.add("Reciprocal", w.add("Sqrt", x), name=node.name)


@writes("square")
def square(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", x, x, name=node.name)


@writes("log1p")
def log1p(w: Writer, node: Node, x: str) -> str:
    """log(u) with u = 1 + x; next to 0 times x / (u - 1), in which the rounding of u cancels out, or x if u is 1."""
    one, half = (w.scalar(value, node.inputs[0]) for value in (1, 0.5))
    u = w.add("Add", x, one)
    log = w.add("Log", u)
    small = w.add("Mul", x, w.add("Div", log, w.add("Sub", u, one)))
    small = w.add("Where", w.add("Equal", u, one), x, small)
    return w.add("Where", w.add("Less", w.add("Abs", x), half), small, log, name=node.name)


@writes("expm1")
def expm1(w: Writer, node: Node, x: str) -> str:
    """2 t / (1 - t) with t = tanh(x / 2) for small x, which loses no digits; exp(x) - 1 for others."""
    one, two, half = (w.scalar(value, node.inputs[0]) for value in (1, 2, 0.5))
    t = w.add("Tanh", w.add("Mul", x, half))
    small = w.add("Div", w.add("Mul", two, t), w.add("Sub", one, t))
    other = w.add("Sub", w.add("Exp", x), one)
    return w.add("Where", w.add("Less", w.add("Abs", x), half), small, other, name=node.name)


@writes("Cast")
def cast(w: Writer, node: Node, x: str) -> str:
    return w.add("Cast", x, to=w.tensor_type(node.attr("dtype")), name=node.name)


@writes("round")
def round_half_away(w: Writer, node: Node, x: str) -> str:
    """ONNX's Round takes the even number of two that are as near, MXNet's the one further from 0."""
    like, size = node.inputs[0], w.add("Abs", x)
    whole = w.add("Floor", size)
    further = w.add("Not", w.add("Less", w.add("Sub", size, whole), w.scalar(0.5, like)))
    rounded = w.add("Where", further, w.add("Add", whole, w.scalar(1, like)), whole)
    return w.add("Mul", w.add("Sign", x), rounded, name=node.name)


@writes("rint")
def round_half_down(w: Writer, node: Node, x: str) -> str:
    """MXNet's rint takes the lower number of two that are as near."""
    low, high = w.add("Floor", x), w.add("Ceil", x)
    nearer = w.add("Less", w.add("Sub", high, x), w.add("Sub", x, low))
    return w.add("Where", nearer, high, low, name=node.name)


@writes("fix", "trunc")
def truncate(w: Writer, node: Node, x: str) -> str:
    """Towards 0."""
    negative = w.add("Less", x, w.scalar(0, node.inputs[0]))
    return w.add("Where", negative, w.add("Ceil", x), w.add("Floor", x), name=node.name)


@writes("smooth_l1")
def smooth_l1(w: Writer, node: Node, x: str) -> str:
    """(s x)^2 / 2 where |x| < 1 / s^2, and |x| - 1 / (2 s^2) elsewhere."""
    like, square = node.inputs[0], float(node.attr("scalar", 1.0)) ** 2
    size = w.add("Abs", x)
    near = w.add("Mul", w.add("Mul", x, x), w.scalar(square / 2, like))
    far = w.add("Sub", size, w.scalar(0.5 / square, like))
    return w.add("Where", w.add("Less", size, w.scalar(1 / square, like)), near, far, name=node.name)


@writes("modulo", "modulo_scalar", "rmodulo_scalar")
def modulo(w: Writer, node: Node, x: str, y: Optional[str] = None) -> str:
    """What is left of a division, with the divisor's sign, and 0 of one by 0; ONNX's for floats has the dividend's."""
    like = node.inputs[0]
    y = w.scalar(float(node.attr("scalar")), like) if y is None else y
    x, y = (y, x) if node.kind == "rmodulo_scalar" else (x, y)
    zero, one = w.scalar(0, like), w.scalar(1, like)
    none = w.add("Equal", y, zero)
    divisor = w.add("Where", none, one, y)
    rest = w.add("Mod", x, divisor, fmod=1)
    other_sign = w.add("Less", w.add("Mul", w.add("Sign", rest), w.add("Sign", divisor)), zero)
    found = w.add("Where", other_sign, w.add("Add", rest, divisor), rest)
    return w.add("Where", none, zero, found, name=node.name)


@writes("where")
def where(w: Writer, node: Node, condition: str, x: str, y: str) -> str:
    """By elements; a condition of one axis chooses along the first."""
    chosen, (first, ndim) = w.cast(condition, BOOL), [len(w.shape(source)) for source in node.inputs[:2]]
    if first < ndim:
        chosen = w.unsqueezed(chosen, list(range(1, ndim)))
    return w.add("Where", chosen, x, y, name=node.name)


@writes("zeros_like", "ones_like")
def full_like(w: Writer, node: Node, x: str) -> str:
    value = np.full(1, node.kind == "ones_like", w.dtype(Output(node)))
    shape = w.lengths(w.shape(node.inputs[0]), x)
    return w.add("ConstantOfShape", shape, value=w.tensor(value), name=node.name)


@writes("_zeros", "_ones", "_full")
def full(w: Writer, node: Node) -> str:
    value = {"_zeros": 0, "_ones": 1}.get(node.kind, node.attr("value"))
    return w.constant(np.full(w.static(Output(node), "its shape"), value), w.dtype(Output(node)), node.name)


@writes("_arange", "_contrib_arange_like")
def arange(w: Writer, node: Node, *_: str) -> str:
    shape = w.static(Output(node), "its shape")
    start, step, repeat = node.attr("start", 0), node.attr("step", 1), node.attr("repeat", 1)
    if node.op == "_arange" and node.attr("stop") is None and not node.attr("infer_range", False):
        start = 0  # what is given is the stop
    found = start + step * (np.arange(math.prod(shape)) // repeat).reshape(shape)
    return w.constant(found, w.dtype(Output(node)), node.name)
