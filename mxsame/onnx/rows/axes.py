"""Operators that change shapes and axes or take parts of arrays."""

from __future__ import annotations

from typing import Iterator

import numpy as np

from mxsame.exporting.walk import SHOWN, axes_of, axis_of, ndim_of
from mxsame.onnx.rows._shared import number, writes
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output, entries
from mxsame.rewriting.windows import has_windows
from mxsame.target import NOTE

# ONNX Runtime from 1.17 on moves a Pad with 0 into the pads of a pooling operator after it (its PadFusion), where they
# never win a maximum and do not count in an average. It does not move a Pad with -0.
KEPT_ZERO = -0.0


@writes("Reshape", "reshape_like", unread=SHOWN)
def reshape(w: Writer, node: Node, x: str, *like: str) -> str:
    """To the shape that MXNet infers, whatever its special codes are; with several dynamic lengths, to those of another
    array in place of some of its own."""
    target = w.shape(Output(node))
    if like and sum(not length.is_static for length in target) > 1:
        own, other = w.add("Shape", x), w.add("Shape", *like)
        begin, end, first, last = (node.attr(f"{side}_{at}") for side in ("lhs", "rhs") for at in ("begin", "end"))
        parts = [(own, 0, begin or 0), (other, first or 0, last), (own, ndim_of(w, node) if end is None else end, None)]
        return w.add("Reshape", x, w.add("Concat", *(w.sliced(each, (0, *ends, 1)) for each, *ends in parts), axis=0))
    return w.reshaped(x, w.shape(node.inputs[0]), target)


@writes("transpose")
def transpose(w: Writer, node: Node, x: str) -> str:
    ndim = ndim_of(w, node)
    axes = node.attr("axes") or range(ndim - 1, -1, -1)
    return w.transposed(x, [axis % ndim for axis in axes])


@writes("expand_dims")
def expand_dims(w: Writer, node: Node, x: str) -> str:
    return w.unsqueezed(x, [int(node.attr("axis")) % (ndim_of(w, node) + 1)])


@writes("squeeze")
def squeeze(w: Writer, node: Node, x: str) -> str:
    axes = axes_of(w, node)
    if node.attr("axis") is None:
        axes = [axis for axis in axes if w.shape(node.inputs[0])[axis] == (1, 1)]
    out = w.squeezed(x, axes)
    return number(w, node, out) if len(axes) == ndim_of(w, node) else out


@writes("slice")
def slice(w: Writer, node: Node, x: str) -> str:
    begin, end, step = (entries(node.attr(name)) for name in ("begin", "end", "step"))
    step += [None] * (len(begin) - len(step))
    ranges = [(axis, first, last, step[axis] or 1) for axis, (first, last) in enumerate(zip(begin, end))]
    needed = [entry for entry in ranges if entry[1:] not in ((None, None, 1), (0, None, 1))]
    return w.sliced(x, *needed) if needed else x


@writes("slice_like")
def slice_like(w: Writer, node: Node, x: str, like: str) -> str:
    shape, axes = w.shape(node.inputs[1]), axes_of(w, node, "axes")
    if all(shape[axis].is_static for axis in axes):
        return w.sliced(x, *((axis, 0, shape[axis].traced, 1) for axis in axes))
    ends = w.add("Gather", w.add("Shape", like), w.integers(axes), axis=0)
    return w.add("Slice", x, w.integers([0] * len(axes)), ends, w.integers(axes))


@writes("repeat")
def repeat(w: Writer, node: Node, x: str) -> str:
    """Repeats every element of an axis."""
    shape, count = list(w.shape(node.inputs[0])), int(node.attr("repeats"))
    axis = axis_of(w, node)
    if shape[axis].is_static:
        index = np.repeat(np.arange(shape[axis].traced), count)
        return w.add("Gather", x, w.integers(index.tolist()), axis=axis)
    scales = [1.0] * len(shape)
    scales[axis] = float(count)
    return w.resized(x, scales=scales)


@writes("tile")
def tile(w: Writer, node: Node, x: str) -> str:
    reps, ndim = entries(node.attr("reps")), ndim_of(w, node)
    if len(reps) > ndim:
        x = w.unsqueezed(x, list(range(len(reps) - ndim)))
    return w.add("Tile", x, w.integers([1] * (ndim - len(reps)) + reps))


@writes("broadcast_axis", "broadcast_to", "broadcast_like", unread=SHOWN)
def broadcast_to(w: Writer, node: Node, x: str, *like: str) -> str:
    """To the shape that MXNet infers; a dynamic length is that of the data, or all lengths are those of another
    array."""
    source, shape = w.shape(node.inputs[0]), w.shape(Output(node))
    if all(after.is_static or before == after for before, after in zip(source, shape)):
        return w.add("Expand", x, w.integers([n.traced if n.is_static else 1 for n in shape]))
    if not like or node.attr("lhs_axes") is not None:
        raise ValueError("the lengths that are broadcast must be static")
    return w.add("Expand", x, w.add("Shape", *like))


@writes("Pad")
def pad(w: Writer, node: Node, x: str) -> str:
    widths, mode, value = entries(node.attr("pad_width")), node.attr("mode"), float(node.attr("constant_value"))
    if not value and any(reader.op == "Pooling" for reader in _readers(w, node)):
        value = KEPT_ZERO
    return w.add(
        "Pad",
        x,
        w.integers([*widths[::2], *widths[1::2]]),
        w.scalar(value, node.inputs[0]) if mode == "constant" else None,
        mode=mode,
    )


def _readers(w: Writer, node: Node) -> Iterator[Node]:
    """The nodes that use an output; noted nodes, which only pass it on, are replaced by their users."""
    for user, _ in w.graph.users()[node]:
        if user is not None and NOTE in user.attrs and not has_windows(user):
            yield from _readers(w, user)
        elif user is not None:
            yield user


@writes("shape_array")
def shape_array(w: Writer, node: Node, x: str) -> str:
    return w.lengths(w.shape(node.inputs[0]), x)
