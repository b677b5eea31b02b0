"""Rules that rewrite an operator in terms of simpler ones, for formats with no emitter for it.

A rule is a function of the writer, the node, and a Symbol for each input of the node. It returns a Symbol that computes
the node's output, or a list of Symbols.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List

from mxsame._mxnet import mx
from mxsame.exporting.elementwise import binary_kinds, parse_binary
from mxsame.exporting.reading import axes_of, axis_of, ndim_of
from mxsame.exporting.writer import Emitters, GraphWriter
from mxsame.rewriting.graph import Graph, Node, Output, entries
from mxsame.validation import check

RULES = Emitters()
rewrites = RULES.writes
F = mx.sym


def lower(w: GraphWriter) -> None:
    """Rewrites the operators of a writer's graph for which its format has no emitter."""
    w.users = users = w.graph.users()
    for node in users:
        if node.kind in RULES and node.kind not in w.emitters and not w.custom.has(node.op):
            formulas = w.emit(RULES[node.kind], node, *(F.var(str(number)) for number in range(len(node.inputs))))
            outputs = _splice(node, F.Group(formulas)) if formulas else []
            for user in users[node]:
                replaced = w.graph.inputs_of(user.node)[user.position]
                if replaced.index < len(outputs):
                    w.graph.connect(user, outputs[replaced.index])
                    w.shapes.share(outputs[replaced.index], replaced)
    w.shapes.infer(w.graph)


def _splice(node: Node, formulas: Any) -> List[Output]:
    """Copies formulas into a node's graph, with the node's inputs in place of variables, and returns their outputs. The
    new nodes have the name of the node."""
    graph = Graph.of(formulas, {}, {})
    for new, users in graph.users().items():
        for user in users if new.op == "null" else ():
            graph.connect(user, node.inputs[int(new.name)])
        new.name = node.name
    return graph.outputs


def without_losses(symbol: Any) -> Any:
    """Returns the Symbol with each loss replaced by its inference output, which needs no label."""
    graph = Graph.of(symbol, {}, {})
    for node, users in graph.users().items():
        for user in users if node.op in LOSSES else ():
            graph.connect(user, _splice(node, LOSSES[node.op](node, F.var("0"), F.var("1")))[0])
    return graph.symbol()


def slice_axis(x: Any, axis: int, begin: Any, end: Any) -> Any:
    """Slices along one axis."""
    all_elements = (None,) * axis
    return F.slice(x, begin=(*all_elements, begin), end=(*all_elements, end))


# -- axes


@rewrites("SwapAxis")
def _swap_axes(w: GraphWriter, node: Node, x: Any) -> Any:
    axes = list(range(ndim_of(w, node)))
    first, second = node.attr("dim1"), node.attr("dim2")
    axes[first], axes[second] = axes[second], axes[first]
    return F.transpose(x, axes=axes)


@rewrites("stack")
def _stack(w: GraphWriter, node: Node, *xs: Any) -> Any:
    axis = node.attr("axis") % (ndim_of(w, node) + 1)
    return F.concat(*(F.expand_dims(x, axis=axis) for x in xs), dim=axis)


@rewrites("_npi_concatenate")
def _numpy_concatenate(w: GraphWriter, node: Node, *xs: Any) -> Any:
    axis = node.attr("axis")
    return F.concat(*xs, dim=axis) if axis is not None else F.concat(*(F.reshape(x, shape=(-1,)) for x in xs), dim=0)


@rewrites("tile")
def _tile(w: GraphWriter, node: Node, x: Any) -> Any:
    reps, ndim = entries(node.attr("reps")), ndim_of(w, node)
    for _ in range(len(reps) - ndim):
        x = F.expand_dims(x, axis=0)
    for axis, count in enumerate(reps, max(ndim - len(reps), 0)):
        x = F.concat(*[x] * count, dim=axis) if count > 1 else x
    return x


@rewrites("depth_to_space", "space_to_depth")
def _depth_to_space(w: GraphWriter, node: Node, x: Any) -> Any:
    """Moves blocks between channels and space; the channel axis is (block, block, rest) in both operators."""
    size, to_space = node.attr("block_size"), node.op == "depth_to_space"
    _, channels, height, width = (n.traced for n in w.shape(node.inputs[0]))
    if to_space:
        parts, axes = (0, size, size, channels // size**2, height, width), (0, 3, 4, 1, 5, 2)
        merged = (0, channels // size**2, height * size, width * size)
    else:
        parts, axes = (0, channels, height // size, size, width // size, size), (0, 3, 5, 1, 2, 4)
        merged = (0, channels * size**2, height // size, width // size)
    return F.reshape(F.transpose(F.reshape(x, shape=parts), axes=axes), shape=merged)


@rewrites("SliceChannel", "_split_v2")
def _split(w: GraphWriter, node: Node, x: Any) -> List[Any]:
    """Splits into equal parts, or at `indices`, the first of which is 0."""
    axis, count = axis_of(w, node), node.attr("num_outputs") or node.attr("sections")
    (length,) = w.static(node.inputs[0], "the axis that is split", [axis])
    starts = [number * length // count for number in range(count)] if count else list(node.attr("indices"))
    parts = [slice_axis(x, axis, *ends) for ends in zip(starts, [*starts[1:], length])]
    return [F.squeeze(part, axis=axis) for part in parts] if node.attr("squeeze_axis") else parts


@rewrites("slice_axis")
def _slice(w: GraphWriter, node: Node, x: Any) -> Any:
    return slice_axis(x, axis_of(w, node), node.attr("begin"), node.attr("end"))


@rewrites("slice_like")
def _slice_like(w: GraphWriter, node: Node, x: Any, _: Any) -> Any:
    shape, like_shape = (w.shape(source) for source in node.inputs)
    axes = [axis for axis in axes_of(w, node, "axes") if shape[axis] != like_shape[axis]]
    lengths = dict(zip(axes, w.static(node.inputs[1], "the lengths that are taken", axes)))
    end = tuple(map(lengths.get, range(len(shape))))
    return F.slice(x, begin=(None,) * len(end), end=end)


@rewrites("reverse")
def _reverse(w: GraphWriter, node: Node, x: Any) -> Any:
    axes = axes_of(w, node)
    bounds = (None,) * (max(axes) + 1)
    return F.slice(x, begin=bounds, end=bounds, step=tuple(-1 if axis in axes else 1 for axis in range(len(bounds))))


@rewrites("SequenceMask")
def _sequence_mask(w: GraphWriter, node: Node, x: Any, *lengths: Any) -> Any:
    """Replaces the steps after the end of each sequence by one value."""
    axis, shape = axis_of(w, node), w.shape(node.inputs[0])
    if not node.attr("use_sequence_length"):
        return x
    (steps,) = w.static(node.inputs[0], "the axis of steps", [axis])
    counts = F.floor(F.cast(lengths[0], dtype="float32"))
    counts = F.broadcast_axis(F.expand_dims(counts, axis=axis), axis=axis, size=steps)
    remaining = F.broadcast_sub(counts, F.reshape(F.arange(steps), shape=(1, steps) if axis else (steps, 1)))
    for _ in shape[2:]:
        remaining = F.expand_dims(remaining, axis=-1)
    return F.where(F.broadcast_like(remaining, x) > 0, x, F.zeros_like(x) + node.attr("value"))


@rewrites("dot", "matmul")
def _product(w: GraphWriter, node: Node, x: Any, y: Any) -> Any:
    """Multiplies by a matrix of parameters, or multiplies the matrices of two batches."""
    (x_shape, y_shape), weight = (w.shape(source) for source in node.inputs), w.graph.value(node.inputs[1])
    is_transposed = node.attr("transpose_a") or node.attr("transpose_b")
    if weight is not None and weight.ndim == 2 and not is_transposed and (len(x_shape) == 2 or node.op != "dot"):
        attrs = {"num_hidden": weight.shape[1], "no_bias": True, "flatten": False}
        return F.FullyConnected(x, F.transpose(y), **attrs)
    are_batches = node.kind == "matmul" and len(x_shape) == len(y_shape) > 2
    check(are_batches, "one operand must be a parameter matrix, or both must be batches of matrices")
    return F.batch_dot(x, y)


# -- norms and averages


@rewrites("norm")
def _norm(w: GraphWriter, node: Node, x: Any) -> Any:
    """Computes a norm. The squares may overflow, unlike in MXNet, which first divides by the largest element."""
    attrs = {"axis": axes_of(w, node), "keepdims": node.attr("keepdims")}
    return F.sum(F.abs(x), **attrs) if node.attr("ord") == 1 else F.sqrt(F.sum(x * x, **attrs))


@rewrites("L2Normalization")
def _l2_normalization(w: GraphWriter, node: Node, x: Any) -> Any:
    ndim = ndim_of(w, node)
    axes = {"instance": range(1, ndim), "channel": [1], "spatial": range(2, ndim)}[node.attr("mode")]
    return F.broadcast_div(x, F.sqrt(F.sum(x * x, axis=tuple(axes), keepdims=True) + node.attr("eps")))


@rewrites("_contrib_AdaptiveAvgPooling2D")
def _average(w: GraphWriter, node: Node, x: Any) -> Any:
    """Averages over the whole image, or over windows of equal size."""
    size = (entries(node.attr("output_size")) or [1]) * 2
    lengths = w.shape(node.inputs[0])[2:]
    if size[:2] == [1, 1]:
        return F.Pooling(x, pool_type="avg", global_pool=True, kernel=(1, 1))
    are_divisible = all(length.is_static and length.traced % count == 0 for length, count in zip(lengths, size))
    check(are_divisible, "output_size must divide a static size", output_size=size[:2])
    kernel = tuple(length.traced // count for length, count in zip(lengths, size))
    return F.Pooling(x, pool_type="avg", kernel=kernel, stride=kernel)


# -- formulas that depend only on the inputs and the attributes, not on shapes


def _lrn(node: Node, x: Any) -> Any:
    """Computes x / (k + a m)^b, where m is the mean of the squares of neighboring channels; channels outside the array
    are 0."""
    size, alpha, beta, offset = (node.attr(name) for name in ("nsize", "alpha", "beta", "knorm"))
    means = F.Pooling(F.expand_dims(x * x, axis=1), kernel=(size, 1, 1), pad=(size // 2, 0, 0), pool_type="avg")
    return x * (F.squeeze(means, axis=1) * float(alpha) + float(offset)) ** -float(beta)


def _softmax_of_loss(node: Node, x: Any, _: Any) -> Any:
    """Computes the softmax, by default over all elements of each instance of the batch."""
    channels = node.attr("multi_output")
    if channels or node.attr("preserve_shape"):
        return F.softmax(x, axis=1 if channels else -1)
    return F.reshape_like(F.softmax(F.flatten(x)), x)


def _smooth_l1(node: Node, x: Any) -> Any:
    """Computes (s x)^2 / 2 where |x| < 1 / s^2, and |x| - 1 / (2 s^2) elsewhere."""
    square = node.attr("scalar") ** 2
    return F.where(F.abs(x) < 1 / square, x * x * (square / 2), F.abs(x) - 0.5 / square)


def _log1p(node: Node, x: Any) -> Any:
    """Computes log(u) with u = 1 + x. Near 0 it is multiplied by x / (u - 1), which cancels the rounding of u; if u is
    1, the result is x."""
    u = x + 1
    return F.where(F.abs(x) < 0.5, F.where(u == 1, x, x * (F.log(u) / (u - 1))), F.log(u))


def _expm1(node: Node, x: Any) -> Any:
    """Computes exp(x) - 1, for small x as 2 t / (1 - t) with t = tanh(x / 2), which loses no digits."""
    t = F.tanh(x * 0.5)
    return F.where(F.abs(x) < 0.5, t * 2 / (1 - t), F.exp(x) - 1)


def _sign(node: Node, x: Any) -> Any:
    """Computes the sign, which is 0 for NaN, as in MXNet."""
    return (x > 0) - (x < 0)


def _round(node: Node, x: Any) -> Any:
    """Rounds to the nearest integer; ties round away from 0."""
    floor = F.floor(F.abs(x))
    return _sign(node, x) * F.where(F.abs(x) - floor < 0.5, floor, floor + 1)


def _rint(node: Node, x: Any) -> Any:
    """Rounds to the nearest integer; ties round down."""
    return F.where(F.ceil(x) - x < x - F.floor(x), F.ceil(x), F.floor(x))


def _cube_root(node: Node, x: Any) -> Any:
    return _sign(node, x) * F.abs(x) ** (1 / 3)


def _logical(node: Node, x: Any, y: Any = None) -> Any:
    """Computes a logical function, for which any number but 0 is true."""
    kind, number, _ = parse_binary(node)
    x, y = x != 0, (y != 0 if number is None else F.zeros_like(x) + float(number != 0))
    if kind == "logical_and":
        return F.broadcast_mul(x, y)
    return F.broadcast_maximum(x, y) if kind == "logical_or" else F.broadcast_not_equal(x, y)


def _truncated(node: Node, x: Any) -> Any:
    return F.where(x < 0, F.ceil(x), F.floor(x))


LOSSES: Dict[str, Callable[..., Any]] = {  # loss -> its output at inference
    "SoftmaxOutput": _softmax_of_loss,
    "LinearRegressionOutput": lambda node, x, label: x,
    "MAERegressionOutput": lambda node, x, label: x,
    "LogisticRegressionOutput": lambda node, x, label: F.sigmoid(x),
}
FORMULAS: Dict[str, Callable[..., Any]] = {
    **LOSSES,
    "SoftmaxActivation": lambda node, x: F.softmax(x, axis=1 if node.attr("mode") == "channel" else -1),
    "Embedding": lambda node, index, table: F.take(table, index),
    "_contrib_BatchNormWithReLU": lambda node, *xs: F.relu(
        F.BatchNorm(*xs, **{name: node.attrs.get(name) for name in node.attrs})
    ),
    "hard_sigmoid": lambda node, x: F.clip(x * node.attr("alpha") + node.attr("beta"), 0, 1),
    "softmin": lambda node, x: F.softmax(-x, axis=node.attr("axis"), temperature=node.attr("temperature")),
    "square": lambda node, x: x * x,
    "rsqrt": lambda node, x: F.reciprocal(F.sqrt(x)),
    **{"LRN": _lrn, "smooth_l1": _smooth_l1, "log1p": _log1p, "expm1": _expm1, "sign": _sign},
    **dict.fromkeys(binary_kinds("logical_and", "logical_or", "logical_xor"), _logical),
    "log2": lambda node, x: F.log(x) * (1 / math.log(2)),
    "log10": lambda node, x: F.log(x) * (1 / math.log(10)),
    **{"cbrt": _cube_root, "rcbrt": lambda node, x: F.reciprocal(_cube_root(node, x))},
    **{"round": _round, "rint": _rint, "fix": _truncated, "trunc": _truncated},
}


@rewrites(*FORMULAS, ignored="dtype")
def _formula(w: GraphWriter, node: Node, *xs: Any) -> Any:
    if node.op == "SoftmaxOutput" and ndim_of(w, node) == 2:
        node.attrs["preserve_shape"] = "True"  # for 2-D data, both kinds of softmax are the same
    return FORMULAS[node.kind](node, *xs)
