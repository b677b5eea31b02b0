"""The table of operators: what each of MXNet's is in ONNX.

A row is a function of the writer, the node and the names of the node's inputs; it returns the name of the output.
Keys are the kinds of `mxsame.rewriting.Node`. What an operator computes is from MXNet 1.9's documentation, and from its
source where that is silent; ONNX's operators are at https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame.building import NOTE
from mxsame.onnx.windows import has_windows, pads, windows
from mxsame.plan import Window
from mxsame.plan.windows import check_static
from mxsame.rewriting import Node, Output, is_channels_first

if TYPE_CHECKING:
    from mxsame.onnx.writer import Writer

Row = Callable[..., Any]
INT64 = np.dtype("int64")
BOOL = np.dtype("bool")
FLOAT_EXACT = 2**24  # up to here every integer is a float32
# ONNX Runtime from 1.17 on moves a Pad with 0 into the pads of a pooling operator after it (its PadFusion), where they
# never win a maximum and do not count in an average. It leaves a Pad with -0 alone.
KEPT_ZERO = -0.0


def _axes(node: Node, ndim: int, name: str = "axis") -> List[int]:
    """An attribute of one axis or several as numbers from 0; all for none."""
    given = node.attr(name)
    if given is None or given == ():
        return list(range(ndim))
    given = [given] if isinstance(given, int) else list(given)
    return [axis % ndim for axis in given]


def _ndim(w: Writer, node: Node) -> int:
    return len(w.shape(node.inputs[0]))


def _must(node: Node, name: str, wanted: Any) -> None:
    """Raise `ValueError` unless an attribute has this value, or is not given."""
    if node.attr(name, wanted) != wanted:
        raise ValueError(f"{name} must be {wanted}; {validation.received(**{name: node.attr(name)})}")


# -- operators with windows


def _windowed(w: Writer, node: Node) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """The windows of an operator, and their attributes."""
    _check_layout(node)
    lengths = w.shape(_data(node))[2:]
    found = windows(node, [length.traced for length in lengths])
    if node.op == "Pooling":
        check_static(tuple(found), pool=True)
    found = [replace(window, size=window.size if n.is_static else None) for window, n in zip(found, lengths)]
    attrs = pads(found, node.op == "Pooling")
    if attrs is None:
        raise ValueError(
            "the padding must be the same for every size, or that of SAME without dilation, to serve dynamic sizes: "
            f"give dynamic_size=False; {validation.received(windows=[*found])}"
        )
    kernel = [window.kernel_size for window in found]
    return found, {"kernel_shape": kernel, "strides": [window.stride for window in found], **attrs}


def _check_layout(node: Node) -> None:
    if not is_channels_first(node):
        raise ValueError(f"layout must have channels first; {validation.received(layout=node.attr('layout'))}")


def _data(node: Node) -> Any:
    """The data of an operator, before what only gives it its shape."""
    source = node.inputs[0]
    while (
        NOTE in source.node.attrs and source.node.attrs[NOTE] == node.attrs.get(NOTE) and not has_windows(source.node)
    ):
        source = source.node.inputs[0]
    return source


def _convolution(op: str) -> Row:
    def row(w: Writer, node: Node, x: str, weight: str, bias: Optional[str] = None) -> str:
        found, attrs = _windowed(w, node)
        wrong = op == "ConvTranspose" and any(window.dilation > 1 < window.stride for window in found)
        if wrong and NOTE not in node.attrs:
            raise ValueError("a Deconvolution of MXNet must not have strides and dilation, of which it is wrong")
        attrs.update(dilations=[window.dilation for window in found], group=int(node.attr("num_group", 1)))
        return w.add(op, x, weight, bias, name=node.name, **attrs)

    return row


def _pooling(w: Writer, node: Node, x: str) -> str:
    kind = node.attr("pool_type", "max")
    if not has_windows(node):
        return _global_pooling(w, node, x, kind)
    found, attrs = _windowed(w, node)
    counts = str(node.attr("count_include_pad", True)) == "True"
    if kind == "max":
        return w.add("MaxPool", x, name=node.name, **attrs)
    if kind == "avg":
        out = w.add("AveragePool", x, name=node.name, count_include_pad=int(counts), **attrs)
        if not counts or not any(window.ceil_mode and not window.follows_size for window in found):
            return out
        return _without_what_follows_padding(w, node, out, found)
    order = 1 if kind == "sum" else int(node.attr("p_value", 2))
    if order == 2:
        return w.add("LpPool", x, name=node.name, p=2, **attrs)
    mean = w.add("AveragePool", _power(w, x, order), count_include_pad=1, **attrs)
    count = math.prod(window.kernel_size for window in found)
    return _root(w, node, w.add("Mul", mean, w.scalar(count, node.inputs[0])), order)


def _power(w: Writer, x: str, order: int) -> str:
    """x or x^3: MXNet's Pooling takes powers of signed values, ONNX's of absolute ones."""
    return x if order == 1 else w.add("Mul", w.add("Mul", x, x), x)


def _root(w: Writer, node: Node, x: str, order: int) -> str:
    """Of what may be negative."""
    if order == 1:
        return x
    root = w.add("Pow", w.add("Abs", x), w.scalar(1 / order, node.inputs[0]))
    return w.add("Mul", w.add("Sign", x), root, name=node.name)


def _without_what_follows_padding(w: Writer, node: Node, out: str, found: Sequence[Window]) -> str:
    """Padding counts in a mean, and what a partial window has after it does not: so the last means become larger."""
    if any(window.size is None for window in found):
        raise ValueError("padding must not count (count_include_pad=False) with ceil_mode, to serve dynamic sizes")
    scale = np.ones(())
    for window in found:
        low, high = window.padding
        starts = np.arange(window.outputs(window.size)) * window.stride - low
        counted = np.minimum(starts + window.kernel_size, window.size + high) - starts
        scale = scale[..., None] * (window.kernel_size / counted)
    if (scale == 1).all():
        return out
    return w.add("Mul", out, w.constant(scale[None, None], w.dtype(node.inputs[0]), "scale"))


def _global_pooling(w: Writer, node: Node, x: str, kind: str) -> str:
    _check_layout(node)
    if kind in ("max", "avg"):
        return w.add({"max": "GlobalMaxPool", "avg": "GlobalAveragePool"}[kind], x, name=node.name)
    axes = range(2, _ndim(w, node))
    order = 1 if kind == "sum" else int(node.attr("p_value", 2))
    if order == 2:
        return w.add("GlobalLpPool", x, name=node.name, p=2)
    return _root(w, node, w.reduced("ReduceSum", _power(w, x, order), axes, True), order)


# -- dense layers and products


def _dense(w: Writer, node: Node, x: str, weight: str, bias: Optional[str] = None) -> str:
    """x W^T + b; with `flatten` x is a matrix, without it only its last axis changes."""
    ndim = _ndim(w, node)
    if node.attr("flatten", True) and ndim != 2:
        shape = w.shape(node.inputs[0])
        if all(length.is_static for length in shape[1:]):
            x = w.add("Flatten", x, axis=1)
        else:
            raise ValueError("the data must have static lengths apart from its batch")
        ndim = 2
    if ndim == 2:
        return w.add("Gemm", x, weight, bias, name=node.name, transB=1)
    value = w.value(node.inputs[1])
    matrix = w.constant(value.T, name=weight) if value is not None else w.transposed(weight, (1, 0))
    if bias is None:
        return w.add("MatMul", x, matrix, name=node.name)
    return w.add("Add", w.add("MatMul", x, matrix), bias, name=node.name)


def _matrix_product(w: Writer, node: Node, x: str, y: str) -> str:
    """Of two arrays, each with its last two axes swapped or not."""
    _must(node, "axis", -2)
    for position, name in enumerate(("transpose_a", "transpose_b")):
        ndim = len(w.shape(node.inputs[position]))
        if node.attr(name, False) and ndim > 1:
            axes = [*range(ndim - 2), ndim - 1, ndim - 2]
            x, y = (w.transposed(x, axes), y) if position == 0 else (x, w.transposed(y, axes))
    if node.op == "dot" and max(len(w.shape(source)) for source in node.inputs) > 2:
        raise ValueError("data must have at most two axes")
    product = w.add("MatMul", x, y, name=node.name)
    if all(len(w.shape(source)) == 1 for source in node.inputs):
        product = _number(w, node, product)
    alpha = float(node.attr("alpha", 1.0))
    return product if alpha == 1 else w.add("Mul", product, w.scalar(alpha, node.inputs[0]))


def _embedding(w: Writer, node: Node, x: str, weight: str) -> str:
    rows = int(node.attr("input_dim"))
    return w.add("Gather", weight, _index(w, node.inputs[0], x, rows), axis=0, name=node.name)


def _take(w: Writer, node: Node, x: str, index: str) -> str:
    _must(node, "mode", "clip")
    axis = int(node.attr("axis", 0)) % _ndim(w, node)
    shape = w.shape(node.inputs[0])
    if not shape[axis].is_static:
        raise ValueError("the axis of take must be static")
    return w.add("Gather", x, _index(w, node.inputs[1], index, shape[axis].traced), axis=axis, name=node.name)


def _index(w: Writer, output: Any, name: str, length: int) -> str:
    """Numbers of rows, which MXNet keeps as floats and clips, as integers."""
    value = w.value(output)
    if value is not None:
        return w.constant(np.clip(value.astype(np.int64), 0, length - 1))
    dtype = INT64 if w.opset >= 12 else np.dtype("float32")  # Clip takes no integers before
    if dtype != INT64 and length > FLOAT_EXACT:
        raise ValueError(f"opset must be at least 12 for more than {FLOAT_EXACT} rows; received opset={w.opset}")
    clipped = w.add("Clip", w.cast(name, dtype), w.constant(0, dtype), w.constant(length - 1, dtype))
    return clipped if dtype == INT64 else w.cast(clipped, INT64)


def _one_hot(w: Writer, node: Node, x: str) -> str:
    """By a comparison with all positions: ONNX's OneHot counts negative ones from the end, MXNet's ignores them."""
    on, off = (float(node.attr(name, default)) for name, default in (("on_value", 1.0), ("off_value", 0.0)))
    index = w.unsqueezed(w.cast(x, INT64), [_ndim(w, node)])
    found = w.add("Equal", index, w.integers(range(int(node.attr("depth")))))
    if (on, off) == (1, 0):
        return w.cast(found, w.dtype(Output(node)))
    return w.add("Where", found, *(w.scalar(value, Output(node)) for value in (on, off)), name=node.name)


# -- normalization


def _batch_norm(w: Writer, node: Node, x: str, gamma: str, beta: str, mean: str, variance: str) -> str:
    """With the statistics of training, which is what inference uses."""
    _must(node, "output_mean_var", False)
    ndim, dtype = _ndim(w, node), w.dtype(node.inputs[0])
    axis = int(node.attr("axis", 1)) % ndim if node.op != "_contrib_SyncBatchNorm" else 1
    names, arrays = [gamma, beta, mean, variance], [w.value(source) for source in node.inputs[1:]]
    if node.attr("fix_gamma", True):
        length = w.shape(node.inputs[2])[0].traced
        arrays[0], names[0] = np.ones(length), ""
    names = [
        name if array is None or (name and array.dtype == dtype) else w.constant(array, dtype, f"{node.name}_gamma")
        for name, array in zip(names, arrays)
    ]
    epsilon = float(node.attr("eps", 1e-3))
    order = [0, axis, *(other for other in range(1, ndim) if other != axis)]
    out = w.add("BatchNormalization", w.transposed(x, order), *names, epsilon=epsilon, name=node.name)
    return w.transposed(out, np.argsort(order).tolist())


def _batch_norm_relu(w: Writer, node: Node, *inputs: str) -> str:
    return w.add("Relu", _batch_norm(w, node, *inputs))


def _standardized(w: Writer, x: str, axes: Sequence[int], epsilon: float, like: Any) -> str:
    """(x - mean) / sqrt(variance + epsilon)."""
    centered = w.add("Sub", x, w.reduced("ReduceMean", x, axes, True))
    variance = w.reduced("ReduceMean", w.add("Mul", centered, centered), axes, True)
    return w.add("Div", centered, w.add("Sqrt", w.add("Add", variance, w.scalar(epsilon, like))))


def _layer_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    ndim, epsilon = _ndim(w, node), float(node.attr("eps", 1e-5))
    axis = int(node.attr("axis", -1)) % ndim
    if axis == ndim - 1 and w.opset >= 17:
        return w.add("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon, name=node.name)
    out = _standardized(w, x, [axis], epsilon, node.inputs[0])
    after = list(range(1, ndim - axis))
    scaled = w.add("Mul", out, w.unsqueezed(gamma, after) if after else gamma)
    return w.add("Add", scaled, w.unsqueezed(beta, after) if after else beta, name=node.name)


def _instance_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    return w.add("InstanceNormalization", x, gamma, beta, epsilon=float(node.attr("eps", 1e-3)), name=node.name)


def _group_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    """Each group of channels standardized, then scaled and shifted by one number of its own."""
    grouped = w.add("Reshape", x, w.integers([0, int(node.attr("num_groups", 1)), -1]))
    out = _standardized(w, grouped, [2], float(node.attr("eps", 1e-5)), node.inputs[0])
    out = w.add("Add", w.add("Mul", out, w.unsqueezed(gamma, [1])), w.unsqueezed(beta, [1]))
    shape = w.shape(node.inputs[0])
    if all(length.is_static for length in shape[1:]):
        return w.add("Reshape", out, w.integers([0, *(length.traced for length in shape[1:])]), name=node.name)
    return w.add("Reshape", out, w.add("Shape", x), name=node.name)


def _l2_normalization(w: Writer, node: Node, x: str) -> str:
    ndim, mode = _ndim(w, node), node.attr("mode", "instance")
    axes = {"instance": range(1, ndim), "channel": [1], "spatial": range(2, ndim)}[mode]
    total = w.reduced("ReduceSum", w.add("Mul", x, x), axes, True)
    norm = w.add("Sqrt", w.add("Add", total, w.scalar(float(node.attr("eps", 1e-10)), node.inputs[0])))
    return w.add("Div", x, norm, name=node.name)


def _lrn(w: Writer, node: Node, x: str) -> str:
    attrs = {"alpha": node.attr("alpha", 1e-4), "beta": node.attr("beta", 0.75), "bias": node.attr("knorm", 2.0)}
    size = int(node.attr("nsize"))
    if size % 2 == 0:
        raise ValueError(f"nsize must be odd; {validation.received(nsize=size)}")
    return w.add("LRN", x, size=size, name=node.name, **{key: float(v) for key, v in attrs.items()})


# -- one array, element by element


def _unary(op: str, **attrs: Any) -> Row:
    return lambda w, node, x: w.add(op, x, name=node.name, **attrs)


def _with_scalar(op: str, reflected: bool = False) -> Row:
    """Arithmetic with a number of the data's type."""

    def row(w: Writer, node: Node, x: str) -> str:
        scalar = w.scalar(float(node.attr("scalar")), node.inputs[0])
        return w.add(op, *((scalar, x) if reflected else (x, scalar)), name=node.name)

    return row


def _binary(op: str) -> Row:
    return lambda w, node, x, y: w.add(op, x, y, name=node.name)


def _comparison(op: str, negated: bool = False) -> Row:
    """Of two arrays, or of one with a number: 0 or 1 of the data's type, as MXNet has it."""

    def row(w: Writer, node: Node, x: str, y: Optional[str] = None) -> str:
        y = w.scalar(float(node.attr("scalar")), node.inputs[0]) if y is None else y
        if op.endswith("OrEqual") and w.opset < 12:
            found = w.add("Or", w.add(op[: -len("OrEqual")], x, y), w.add("Equal", x, y))
        else:
            found = w.add(op, x, y)
        return w.cast(w.add("Not", found) if negated else found, w.dtype(Output(node)))

    return row


def _activation(w: Writer, node: Node, x: str) -> str:
    row = ACTIVATIONS.get(node.attr("act_type"))
    if row is None:
        raise ValueError(f"act_type must be one of {', '.join(ACTIVATIONS)}; received {node.attr('act_type')}")
    return row(w, node, x)


ACTIVATIONS: Dict[str, Row] = {
    "relu": _unary("Relu"),
    "sigmoid": _unary("Sigmoid"),
    "tanh": _unary("Tanh"),
    "softrelu": _unary("Softplus"),
    "softsign": _unary("Softsign"),
}


def _leaky_relu(w: Writer, node: Node, x: str, slopes: Optional[str] = None) -> str:
    kind, slope = node.attr("act_type", "leaky"), float(node.attr("slope", 0.25))
    if kind == "leaky":
        return w.add("LeakyRelu", x, alpha=slope, name=node.name)
    if kind == "prelu":
        after = list(range(1, _ndim(w, node) - 1))
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


def _clip(w: Writer, node: Node, x: str) -> str:
    low, high = (None if node.attr(name) is None else float(node.attr(name)) for name in ("a_min", "a_max"))
    like = node.inputs[0]
    if low == 0 and (high is None or math.isinf(high)):
        return w.add("Relu", x, name=node.name)
    bounds = [None if bound is None or math.isinf(bound) else w.scalar(bound, like) for bound in (low, high)]
    return w.add("Clip", x, *bounds, name=node.name)


def _hard_sigmoid(w: Writer, node: Node, x: str) -> str:
    attrs = {"alpha": float(node.attr("alpha", 0.2)), "beta": float(node.attr("beta", 0.5))}
    return w.add("HardSigmoid", x, name=node.name, **attrs)


def _softmax(op: str) -> Row:
    """Before opset 13 these treat all axes from one on as one, so that one must be the last."""

    def row(w: Writer, node: Node, x: str, *_: str) -> str:
        ndim, temperature = _ndim(w, node), node.attr("temperature")
        _must(node, "use_length", False)
        if w.dtype(Output(node)) != w.dtype(node.inputs[0]):
            x = w.cast(x, w.dtype(Output(node)))
        axis = int(node.attr("axis", -1)) % ndim
        if temperature not in (None, 1.0):
            x = w.add("Div", x, w.scalar(float(temperature), Output(node)))
        if w.opset >= 13 or axis == ndim - 1:
            return w.add(op, x, axis=axis, name=node.name)
        swap = list(range(ndim))
        swap[axis], swap[-1] = ndim - 1, axis
        return w.transposed(w.add(op, w.transposed(x, swap), axis=ndim - 1, name=node.name), swap)

    return row


def _reciprocal_root(w: Writer, node: Node, x: str) -> str:
    return w.add("Reciprocal", w.add("Sqrt", x), name=node.name)


def _square(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", x, x, name=node.name)


def _log1p(w: Writer, node: Node, x: str) -> str:
    """x log(u) / (u - 1) with u = 1 + x, in which the rounding of u cancels out; x where u is 1."""
    one = w.scalar(1, node.inputs[0])
    u = w.add("Add", x, one)
    ratio = w.add("Div", w.add("Log", u), w.add("Sub", u, one))
    return w.add("Where", w.add("Equal", u, one), x, w.add("Mul", x, ratio), name=node.name)


def _expm1(w: Writer, node: Node, x: str) -> str:
    """2 t / (1 - t) with t = tanh(x / 2) for small x, which loses no digits; exp(x) - 1 for others."""
    one, two, half = (w.scalar(value, node.inputs[0]) for value in (1, 2, 0.5))
    t = w.add("Tanh", w.add("Mul", x, half))
    small = w.add("Div", w.add("Mul", two, t), w.add("Sub", one, t))
    other = w.add("Sub", w.add("Exp", x), one)
    return w.add("Where", w.add("Less", w.add("Abs", x), half), small, other, name=node.name)


def _cast(w: Writer, node: Node, x: str) -> str:
    return w.add("Cast", x, to=w.tensor_type(node.attr("dtype")), name=node.name)


def _where(w: Writer, node: Node, condition: str, x: str, y: str) -> str:
    """By elements; a condition of one axis chooses along the first."""
    chosen, (first, ndim) = w.cast(condition, BOOL), [len(w.shape(source)) for source in node.inputs[:2]]
    if first < ndim:
        chosen = w.unsqueezed(chosen, list(range(1, ndim)))
    return w.add("Where", chosen, x, y, name=node.name)


def _full_like(number: float) -> Row:
    """An array of one number, of the data's shape."""

    def row(w: Writer, node: Node, x: str) -> str:
        value = w.tensor(np.asarray([number], w.dtype(Output(node))))
        return w.add("ConstantOfShape", w.lengths(w.shape(node.inputs[0]), x), value=value, name=node.name)

    return row


def _initial(make: Callable[[Tuple[int, ...], Node], np.ndarray]) -> Row:
    """An array that depends on nothing but a shape."""

    def row(w: Writer, node: Node, *_: str) -> str:
        return w.constant(make(w.static(Output(node), "its shape"), node), w.dtype(Output(node)), node.name)

    return row


def _arange(shape: Tuple[int, ...], node: Node) -> np.ndarray:
    start, step, repeat = node.attr("start", 0), node.attr("step", 1), node.attr("repeat", 1)
    if node.op == "_arange" and node.attr("stop") is None and not node.attr("infer_range", False):
        start = 0  # what is given is the stop
    return start + step * (np.arange(math.prod(shape)) // repeat).reshape(shape)


# -- reductions


def _number(w: Writer, node: Node, x: str) -> str:
    """What has no axis in ONNX, and one in MXNet unless NumPy's shapes are on."""
    return w.add("Reshape", x, w.integers([1])) if len(w.shape(Output(node))) == 1 else x


def _reduced(w: Writer, node: Node, op: str, x: str, axes: Sequence[int]) -> str:
    keepdims = bool(node.attr("keepdims", False))
    out = w.reduced(op, x, axes, keepdims)
    return _number(w, node, out) if len(axes) == _ndim(w, node) and not keepdims else out


def _reduction(op: str) -> Row:
    def row(w: Writer, node: Node, x: str) -> str:
        ndim = _ndim(w, node)
        axes = _axes(node, ndim)
        if node.attr("exclude", False):
            axes = [axis for axis in range(ndim) if axis not in axes]
        return _reduced(w, node, op, x, axes) if axes else x

    return row


def _norm(w: Writer, node: Node, x: str) -> str:
    order = {1: "ReduceL1", 2: "ReduceL2"}[int(node.attr("ord", 2))]
    return _reduced(w, node, order, x, _axes(node, _ndim(w, node)))


def _given_axis(node: Node) -> int:
    if node.attr("axis") is None:
        raise ValueError("axis must be given, as ONNX flattens nothing; received axis=None")
    return int(node.attr("axis"))


def _argument(op: str) -> Row:
    """The position of the largest or smallest element, as a float."""

    def row(w: Writer, node: Node, x: str) -> str:
        axis, keepdims = _given_axis(node), bool(node.attr("keepdims", False))
        found = w.cast(w.add(op, x, axis=axis, keepdims=int(keepdims)), w.dtype(Output(node)))
        return _number(w, node, found) if _ndim(w, node) == 1 and not keepdims else found

    return row


# -- axes


def _reshape(w: Writer, node: Node, x: str) -> str:
    """To the shape that MXNet infers, whatever its codes are."""
    return w.reshaped(x, w.shape(node.inputs[0]), w.shape(Output(node)))


def _reshape_like(w: Writer, node: Node, x: str, like: str) -> str:
    """To the shape of another array, or, of some of the axes, to the one that MXNet infers."""
    target = w.shape(Output(node))
    if target != w.shape(node.inputs[1]) or sum(not length.is_static for length in target) < 2:
        return _reshape(w, node, x)
    return w.add("Reshape", x, w.add("Shape", like), name=node.name)


def _flatten(w: Writer, node: Node, x: str) -> str:
    return w.add("Flatten", x, axis=1, name=node.name)


def _transpose(w: Writer, node: Node, x: str) -> str:
    ndim = _ndim(w, node)
    axes = node.attr("axes") or range(ndim - 1, -1, -1)
    return w.transposed(x, [axis % ndim for axis in axes])


def _swap_axes(w: Writer, node: Node, x: str) -> str:
    ndim = _ndim(w, node)
    first, second = int(node.attr("dim1", 0)) % ndim, int(node.attr("dim2", 0)) % ndim
    axes = list(range(ndim))
    axes[first], axes[second] = second, first
    return w.transposed(x, axes)


def _expand_dims(w: Writer, node: Node, x: str) -> str:
    return w.unsqueezed(x, [int(node.attr("axis")) % (_ndim(w, node) + 1)])


def _squeeze(w: Writer, node: Node, x: str) -> str:
    axes = _axes(node, _ndim(w, node)) if node.attr("axis") is not None else None
    if axes is None:
        axes = [axis for axis, length in enumerate(w.shape(node.inputs[0])) if length == (1, 1)]
    out = w.squeezed(x, axes)
    return _number(w, node, out) if len(axes) == _ndim(w, node) else out


def _concat(w: Writer, node: Node, *xs: str) -> str:
    return w.add("Concat", *xs, axis=int(node.attr("dim", 1)), name=node.name)


def _stack(w: Writer, node: Node, *xs: str) -> str:
    axis = int(node.attr("axis", 0)) % (_ndim(w, node) + 1)
    return w.add("Concat", *(w.unsqueezed(x, [axis]) for x in xs), axis=axis, name=node.name)


def _split(w: Writer, node: Node, x: str) -> List[str]:
    count, axis = int(node.attr("num_outputs")), int(node.attr("axis", 1)) % _ndim(w, node)
    length = w.shape(node.inputs[0])[axis]
    if not length.is_static:
        raise ValueError("the axis that is split must be static")
    share = length.traced // count
    parts = [w.sliced(x, axis, number * share, (number + 1) * share) for number in range(count)]
    return [w.squeezed(part, [axis]) for part in parts] if node.attr("squeeze_axis", False) else parts


def _slice(w: Writer, node: Node, x: str) -> str:
    begin, end, step = (_entries(node.attr(name)) for name in ("begin", "end", "step"))
    step += [None] * (len(begin) - len(step))
    ranges = [(axis, first, last, step[axis] or 1) for axis, (first, last) in enumerate(zip(begin, end))]
    wanted = [entry for entry in ranges if entry[1:] not in ((None, None, 1), (0, None, 1))]
    return w.slices(x, wanted) if wanted else x


def _entries(value: Any) -> List[Any]:
    return [] if value is None else list(value) if isinstance(value, (tuple, list)) else [value]


def _slice_axis(w: Writer, node: Node, x: str) -> str:
    axis = int(node.attr("axis")) % _ndim(w, node)
    return w.sliced(x, axis, node.attr("begin"), node.attr("end"))


def _slice_like(w: Writer, node: Node, x: str, like: str) -> str:
    shape = w.shape(node.inputs[1])
    axes = _axes(node, len(shape), "axes")
    if all(shape[axis].is_static for axis in axes):
        return w.slices(x, [(axis, 0, shape[axis].traced, 1) for axis in axes])
    ends = w.add("Gather", w.add("Shape", like), w.integers(axes), axis=0)
    return w.add("Slice", x, w.integers([0] * len(axes)), ends, w.integers(axes), name=node.name)


def _reverse(w: Writer, node: Node, x: str) -> str:
    return w.slices(x, [(axis, None, None, -1) for axis in _axes(node, _ndim(w, node))])


def _repeat(w: Writer, node: Node, x: str) -> str:
    """Every element of an axis so many times, one after the other."""
    shape, count = list(w.shape(node.inputs[0])), int(node.attr("repeats"))
    axis = _given_axis(node) % len(shape)
    if shape[axis].is_static:
        index = np.repeat(np.arange(shape[axis].traced), count)
        return w.add("Gather", x, w.integers(index.tolist()), axis=axis, name=node.name)
    scales = [1.0] * len(shape)
    scales[axis] = float(count)
    return w.resized(x, node.name, scales=scales)


def _tile(w: Writer, node: Node, x: str) -> str:
    reps, ndim = _entries(node.attr("reps")), _ndim(w, node)
    if len(reps) > ndim:
        x = w.unsqueezed(x, list(range(len(reps) - ndim)))
    return w.add("Tile", x, w.integers([1] * (ndim - len(reps)) + reps), name=node.name)


def _broadcast_to(w: Writer, node: Node, x: str, *like: str) -> str:
    """To the shape that MXNet infers; a dynamic length is the data's own, or that of all of another array's."""
    source, shape = w.shape(node.inputs[0]), w.shape(Output(node))
    if all(after.is_static or before == after for before, after in zip(source, shape)):
        return w.add("Expand", x, w.integers([n.traced if n.is_static else 1 for n in shape]), name=node.name)
    if not like or node.attr("lhs_axes") is not None:
        raise ValueError("the lengths that are broadcast must be static")
    return w.add("Expand", x, w.add("Shape", *like), name=node.name)


def _pad(w: Writer, node: Node, x: str) -> str:
    widths, mode, value = _entries(node.attr("pad_width")), node.attr("mode"), float(node.attr("constant_value", 0.0))
    if not value and any(user.node is not None and user.node.op == "Pooling" for user in w.graph.users()[node]):
        value = KEPT_ZERO
    return w.add(
        "Pad",
        x,
        w.integers([*widths[::2], *widths[1::2]]),
        w.scalar(value, node.inputs[0]) if mode == "constant" else None,
        mode=mode,
        name=node.name,
    )


def _space_and_depth(op: str) -> Row:
    return lambda w, node, x: w.add(op, x, blocksize=int(node.attr("block_size")), name=node.name)


# -- pictures


def _up_sampling(w: Writer, node: Node, x: str, *more: str) -> str:
    _must(node, "sample_type", "nearest")
    if more:
        raise ValueError(f"data must be one array; {validation.received(inputs=1 + len(more))}")
    scale = float(node.attr("scale"))
    return w.resized(x, node.name, scales=[1.0, 1.0, scale, scale])


def _bilinear_resize(w: Writer, node: Node, x: str, *_: str) -> str:
    """To the size that MXNet infers, by a scale if that is exact or the size is dynamic."""
    _must(node, "mode", "size")
    aligned = bool(node.attr("align_corners", True))
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners" if aligned else "half_pixel"}
    source, target = w.shape(node.inputs[0])[2:], w.shape(Output(node))[2:]
    if not aligned and any(after == (1, 1) != before for before, after in zip(source, target)):
        raise ValueError(
            "align_corners must be True for a length of 1, which MXNet gives the first element; received "
            "align_corners=False"
        )
    given = [node.attr(name) for name in ("scale_height", "scale_width")]
    if all(length.is_static for length in (*source, *target)):
        exact = [after.traced / before.traced for before, after in zip(source, target)]
        if all(scale.is_integer() for scale in exact):
            return w.resized(x, node.name, scales=[1.0, 1.0, *exact], **attrs)
    elif None not in given and (aligned or all(float(scale).is_integer() for scale in given)):
        return w.resized(x, node.name, scales=[1.0, 1.0, *map(float, given)], **attrs)
    if not all(length.is_static for length in target):
        raise ValueError(
            "data of dynamic size must be resized to a static size, or by a scale, which must be an integer unless "
            f"align_corners is True; {validation.received(scales=given, align_corners=aligned)}"
        )
    batch = w.sliced(w.add("Shape", x), 0, 0, 2)
    sizes = w.add("Concat", batch, w.integers([length.traced for length in target]), axis=0)
    return w.resized(x, node.name, sizes=sizes, **attrs)


def _adaptive_average(w: Writer, node: Node, x: str) -> str:
    """To one element, or by equal windows."""
    size = _entries(node.attr("output_size")) or [1]
    size = size * 2 if len(size) == 1 else size
    if size == [1, 1]:
        return w.add("GlobalAveragePool", x, name=node.name)
    lengths = w.shape(node.inputs[0])[2:]
    if any(not length.is_static or length.traced % wanted for length, wanted in zip(lengths, size)):
        raise ValueError(f"output_size must divide a static size; {validation.received(output_size=size)}")
    kernel = [length.traced // wanted for length, wanted in zip(lengths, size)]
    return w.add("AveragePool", x, kernel_shape=kernel, strides=kernel, name=node.name)


def _identity(w: Writer, node: Node, x: str) -> str:
    return w.add("Identity", x, name=node.name)


def _shape_array(w: Writer, node: Node, x: str) -> str:
    return w.lengths(w.shape(node.inputs[0]), x)


# -- the table

COMPARISONS: Dict[str, Tuple[str, bool]] = {  # MXNet's name -> ONNX's, and whether it is the opposite
    "equal": ("Equal", False),
    "not_equal": ("Equal", True),
    "greater": ("Greater", False),
    "lesser": ("Less", False),
    "greater_equal": ("GreaterOrEqual", False),
    "lesser_equal": ("LessOrEqual", False),
}

ARITHMETIC = {  # what a node computes -> ONNX's operator
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
}

OPERATORS: Dict[str, Row] = {
    "Convolution": _convolution("Conv"),
    "Deconvolution": _convolution("ConvTranspose"),
    "Pooling": _pooling,
    "_contrib_AdaptiveAvgPooling2D": _adaptive_average,
    "FullyConnected": _dense,
    "batch_dot": _matrix_product,
    "dot": _matrix_product,
    "_linalg_gemm2": _matrix_product,
    "Embedding": _embedding,
    "take": _take,
    "one_hot": _one_hot,
    # normalization
    "batch_norm": _batch_norm,
    "_contrib_BatchNormWithReLU": _batch_norm_relu,
    "LayerNorm": _layer_norm,
    "InstanceNorm": _instance_norm,
    "GroupNorm": _group_norm,
    "L2Normalization": _l2_normalization,
    "LRN": _lrn,
    # one array
    "identity": _identity,
    "Activation": _activation,
    "relu": _unary("Relu"),
    "sigmoid": _unary("Sigmoid"),
    "tanh": _unary("Tanh"),
    "softsign": _unary("Softsign"),
    "hard_sigmoid": _hard_sigmoid,
    "LeakyReLU": _leaky_relu,
    "clip": _clip,
    "softmax": _softmax("Softmax"),
    "log_softmax": _softmax("LogSoftmax"),
    "abs": _unary("Abs"),
    "negative": _unary("Neg"),
    "square": _square,
    "sqrt": _unary("Sqrt"),
    "rsqrt": _reciprocal_root,
    "reciprocal": _unary("Reciprocal"),
    "exp": _unary("Exp"),
    "expm1": _expm1,
    "log": _unary("Log"),
    "log1p": _log1p,
    "erf": _unary("Erf"),
    "sin": _unary("Sin"),
    "cos": _unary("Cos"),
    "floor": _unary("Floor"),
    "ceil": _unary("Ceil"),
    "sign": _unary("Sign"),
    "Cast": _cast,
    "where": _where,
    "zeros_like": _full_like(0),
    "ones_like": _full_like(1),
    "_zeros": _initial(lambda shape, node: np.zeros(shape)),
    "_ones": _initial(lambda shape, node: np.ones(shape)),
    "_full": _initial(lambda shape, node: np.full(shape, float(node.attr("value")))),
    "_arange": _initial(_arange),
    "_contrib_arange_like": _initial(_arange),
    # arithmetic, of two arrays and of one with a number
    **{kind: _binary(op) for kind, op in ARITHMETIC.items()},
    **{f"{kind}_scalar": _with_scalar(op) for kind, op in ARITHMETIC.items()},
    "rsubtract_scalar": _with_scalar("Sub", reflected=True),
    "rdivide_scalar": _with_scalar("Div", reflected=True),
    "rpower_scalar": _with_scalar("Pow", reflected=True),
    **{f"_{name}": _comparison(*row) for name, row in COMPARISONS.items()},
    **{f"_{name}_scalar": _comparison(*row) for name, row in COMPARISONS.items()},
    **{f"broadcast_{name}": _comparison(*row) for name, row in COMPARISONS.items()},
    "add_n": lambda w, node, *xs: w.add("Sum", *xs, name=node.name),
    # reductions
    "mean": _reduction("ReduceMean"),
    "sum": _reduction("ReduceSum"),
    "max": _reduction("ReduceMax"),
    "min": _reduction("ReduceMin"),
    "prod": _reduction("ReduceProd"),
    "norm": _norm,
    "argmax": _argument("ArgMax"),
    "argmin": _argument("ArgMin"),
    # axes
    "Reshape": _reshape,
    "reshape_like": _reshape_like,
    "Flatten": _flatten,
    "transpose": _transpose,
    "SwapAxis": _swap_axes,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "Concat": _concat,
    "stack": _stack,
    "SliceChannel": _split,
    "slice": _slice,
    "slice_axis": _slice_axis,
    "slice_like": _slice_like,
    "reverse": _reverse,
    "repeat": _repeat,
    "tile": _tile,
    "broadcast_axis": _broadcast_to,
    "broadcast_to": _broadcast_to,
    "broadcast_like": _broadcast_to,
    "Pad": _pad,
    "depth_to_space": _space_and_depth("DepthToSpace"),
    "space_to_depth": _space_and_depth("SpaceToDepth"),
    "shape_array": _shape_array,
    # pictures
    "UpSampling": _up_sampling,
    "_contrib_BilinearResize2D": _bilinear_resize,
}
