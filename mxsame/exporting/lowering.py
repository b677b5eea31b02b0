"""Operators that are others, or a few of them: rewritten for a format that has no row of them.

A rule is a function of the walk and the node; it returns what takes the place of its output, or a list of such.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from mxsame import validation
from mxsame.exporting.walk import Rows, Walk, axes_of, axis_of
from mxsame.rewriting.graph import Node, Output, entries

RULES = Rows()
rewrites = RULES.writes


def of(node: Node, op: str, *inputs: Output, **attrs: Any) -> Output:
    """Another operator in place of a node."""
    return Output(Node(op, node.name, list(inputs), {name: str(value) for name, value in attrs.items()}))


def sliced(node: Node, axis: int, begin: Any, end: Any, step: int = 1) -> Output:
    """A slice along one axis."""
    begin, end, step = ((*(None,) * axis, entry) for entry in (begin, end, step))
    return of(node, "slice", node.inputs[0], begin=begin, end=end, step=step)


def lower(w: Walk) -> None:
    """Rewrite the graph of a walk, as far as its format has no rows."""
    users = w.graph.users()
    for node in users:
        if node.kind in RULES and node.kind not in w.rows:
            outputs = w.by(RULES[node.kind], node)
            for user in users[node]:
                old = w.graph.used_by(user.node)[user.position]
                if old.index < len(outputs):
                    w.graph.connect(user, outputs[old.index])
                    w.shapes.share(outputs[old.index], old)
    w.shapes.infer(w.graph)


# -- axes


@rewrites("SwapAxis")
def _transpose(w: Walk, node: Node) -> Output:
    axes = list(range(len(w.shape(node.inputs[0]))))
    first, second = node.attr("dim1"), node.attr("dim2")
    axes[first], axes[second] = axes[second], axes[first]
    return of(node, "transpose", node.inputs[0], axes=tuple(axes))


@rewrites("stack")
def _concatenated(w: Walk, node: Node) -> Output:
    axis = node.attr("axis") % (len(w.shape(node.inputs[0])) + 1)
    wider = [of(node, "expand_dims", source, axis=axis) for source in node.inputs]
    return of(node, "Concat", *wider, dim=axis, num_args=len(wider))


@rewrites("SliceChannel")
def _parts(w: Walk, node: Node) -> List[Output]:
    count, axis = node.attr("num_outputs"), axis_of(w, node)
    length = w.shape(node.inputs[0])[axis]
    if not length.is_static:
        raise ValueError("the axis that is split must be static")
    share = length.traced // count
    parts = [sliced(node, axis, number * share, (number + 1) * share) for number in range(count)]
    return [of(node, "squeeze", part, axis=axis) for part in parts] if node.attr("squeeze_axis") else parts


@rewrites("slice_axis")
def _slice(w: Walk, node: Node) -> Output:
    return sliced(node, axis_of(w, node), node.attr("begin"), node.attr("end"))


@rewrites("slice_like")
def _slice_like(w: Walk, node: Node) -> Output:
    own, other = (w.shape(source) for source in node.inputs)
    axes = [axis for axis in axes_of(w, node, "axes") if own[axis] != other[axis]]
    if not all(other[axis].is_static for axis in axes):
        raise ValueError("the lengths that are taken must be static")
    end = tuple(other[axis].traced if axis in axes else None for axis in range(len(own)))
    return of(node, "slice", node.inputs[0], begin=(None,) * len(end), end=end)


@rewrites("reverse")
def _reverse(w: Walk, node: Node) -> Output:
    axes = axes_of(w, node)
    ends = (None,) * (max(axes) + 1)
    step = tuple(-1 if axis in axes else 1 for axis in range(len(ends)))
    return of(node, "slice", node.inputs[0], begin=ends, end=ends, step=step)


@rewrites("Embedding", unread="dtype")
def _rows(w: Walk, node: Node) -> Output:
    return of(node, "take", *reversed(node.inputs))


# -- losses, which are these operators at inference


@rewrites("SoftmaxActivation")
def _softmax(w: Walk, node: Node) -> Output:
    return of(node, "softmax", node.inputs[0], axis=1 if node.attr("mode") == "channel" else -1)


def _softmax_of_loss(node: Node) -> Output:
    """By default over all elements of each instance of the batch."""
    data, channels = node.inputs[0], node.attr("multi_output")
    if channels or node.attr("preserve_shape"):
        return of(node, "softmax", data, axis=1 if channels else -1)
    return of(node, "reshape_like", of(node, "softmax", of(node, "Flatten", data)), data)


LOSSES: Dict[str, Callable[[Node], Output]] = {
    "SoftmaxOutput": _softmax_of_loss,
    "LinearRegressionOutput": lambda node: node.inputs[0],
    "MAERegressionOutput": lambda node: node.inputs[0],
    "LogisticRegressionOutput": lambda node: of(node, "sigmoid", node.inputs[0]),
}


@rewrites(*LOSSES)
def _output_of_loss(w: Walk, node: Node) -> Output:
    if node.op == "SoftmaxOutput" and len(w.shape(node.inputs[0])) == 2:
        node.attrs["preserve_shape"] = "True"  # which is the same then
    return LOSSES[node.op](node)


# -- norms and averages


@rewrites("_contrib_BatchNormWithReLU", unread=".*")
def _relu(w: Walk, node: Node) -> Output:
    return of(node, "relu", Output(Node("BatchNorm", node.name, node.inputs, dict(node.attrs))))


@rewrites("norm")
def _norm(w: Walk, node: Node) -> Output:
    (x,), more = node.inputs, {"axis": tuple(axes_of(w, node)), "keepdims": node.attr("keepdims")}
    if node.attr("ord") == 1:
        return of(node, "sum", of(node, "abs", x), **more)
    return of(node, "sqrt", of(node, "sum", of(node, "square", x), **more))


@rewrites("L2Normalization")
def _scaled_by_norm(w: Walk, node: Node) -> Output:
    (x,), ndim = node.inputs, len(w.shape(node.inputs[0]))
    axes = {"instance": range(1, ndim), "channel": [1], "spatial": range(2, ndim)}[node.attr("mode")]
    total = of(node, "sum", of(node, "square", x), axis=tuple(axes), keepdims=True)
    return of(node, "broadcast_div", x, of(node, "sqrt", of(node, "_plus_scalar", total, scalar=node.attr("eps"))))


@rewrites("_contrib_AdaptiveAvgPooling2D")
def _average(w: Walk, node: Node) -> Output:
    """To one element, or with equal windows."""
    size = (entries(node.attr("output_size")) or [1]) * 2
    lengths = w.shape(node.inputs[0])[2:]
    if size[:2] == [1, 1]:
        return of(node, "Pooling", node.inputs[0], pool_type="avg", global_pool=True, kernel=(1, 1))
    if any(not length.is_static or length.traced % count for length, count in zip(lengths, size)):
        raise ValueError(f"output_size must divide a static size; {validation.received(output_size=size[:2])}")
    kernel = tuple(length.traced // count for length, count in zip(lengths, size))
    return of(node, "Pooling", node.inputs[0], pool_type="avg", kernel=kernel, stride=kernel)
