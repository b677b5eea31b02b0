"""Emitters of operators that change shapes, permute axes, slice, pad, take elements by index, or reduce axes."""

from __future__ import annotations

from typing import Iterator, List, Union

import numpy as np

from mxsame.exporting.reading import IMPLIED_BY_SHAPES, axes_of, axis_of, indices_in, ndim_of, top_k_of, wraps
from mxsame.onnx.writer import OnnxWriter, writes
from mxsame.rewriting.graph import Node, Output, entries

# ONNX Runtime from 1.17 on merges a Pad with 0 into the pooling operator after it (its PadFusion). That is wrong: the
# padding of a pooling operator is never a maximum, and does not count in an average. A Pad with -0 is not merged.
UNFUSED_ZERO = -0.0


@writes("Reshape", "reshape_like", ignored=IMPLIED_BY_SHAPES)
def _reshape(w: OnnxWriter, node: Node, x: str, *like: str) -> str:
    """Reshapes to the shape that MXNet infers from `shape` or from another array. If several lengths are dynamic, the
    graph computes the shape from those of both arrays."""
    target = w.shape(Output(node))
    if like and sum(not length.is_static for length in target) > 1:
        lhs, rhs = w.add("Shape", x), w.add("Shape", *like)
        start = w.slice(lhs, (0, 0, node.attr("lhs_begin") or 0, 1))
        middle = w.slice(rhs, (0, node.attr("rhs_begin") or 0, node.attr("rhs_end"), 1))
        end = ndim_of(w, node) if node.attr("lhs_end") is None else node.attr("lhs_end")
        shape = w.add("Concat", start, middle, w.slice(lhs, (0, end, None, 1)), axis=0)
        return w.add("Reshape", x, shape)
    return w.reshape(x, w.shape(node.inputs[0]), target)


@writes("transpose")
def _transpose(w: OnnxWriter, node: Node, x: str) -> str:
    ndim = ndim_of(w, node)
    axes = node.attr("axes") or range(ndim - 1, -1, -1)
    return w.permute(x, [axis % ndim for axis in axes])


@writes("expand_dims")
def _expand_dims(w: OnnxWriter, node: Node, x: str) -> str:
    return w.unsqueeze(x, [node.attr("axis") % (ndim_of(w, node) + 1)])


@writes("squeeze")
def _squeeze(w: OnnxWriter, node: Node, x: str) -> str:
    axes = axes_of(w, node) if node.attr("axis") != () else []
    if node.attr("axis") is None:
        axes = [axis for axis in axes if w.shape(node.inputs[0])[axis] == (1, 1)]
    out = w.squeeze(x, axes)
    return w.to_mxnet_scalar(node, out) if len(axes) == ndim_of(w, node) else out


@writes("slice")
def _slice(w: OnnxWriter, node: Node, x: str) -> str:
    begin, end, step = (entries(node.attr(name)) for name in ("begin", "end", "step"))
    step += [None] * (len(begin) - len(step))
    ranges = [(axis, start, stop, step[axis] or 1) for axis, (start, stop) in enumerate(zip(begin, end))]
    needed = [entry for entry in ranges if entry[1:] not in ((None, None, 1), (0, None, 1))]
    return w.slice(x, *needed) if needed else x


@writes("slice_like")
def _slice_like(w: OnnxWriter, node: Node, x: str, like: str) -> str:
    shape, axes = w.shape(node.inputs[1]), axes_of(w, node, "axes")
    if all(shape[axis].is_static for axis in axes):
        return w.slice(x, *((axis, 0, shape[axis].traced, 1) for axis in axes))
    ends = w.add("Gather", w.add("Shape", like), w.integers(axes), axis=0)
    return w.add("Slice", x, w.integers([0] * len(axes)), ends, w.integers(axes))


@writes("repeat")
def _repeat(w: OnnxWriter, node: Node, x: str) -> str:
    """Repeats each element along an axis."""
    shape, count = list(w.shape(node.inputs[0])), node.attr("repeats")
    axis = axis_of(w, node)
    if shape[axis].is_static:
        index = [number for number in range(shape[axis].traced) for _ in range(count)]
        return w.add("Gather", x, w.integers(index), axis=axis)
    scales = [1.0] * len(shape)
    scales[axis] = float(count)
    return w.resize(x, scales=scales)


@writes("broadcast_axis", "broadcast_to", "broadcast_like", ignored=IMPLIED_BY_SHAPES)
def _broadcast_to(w: OnnxWriter, node: Node, x: str, *like: str) -> str:
    """Expands to the shape that MXNet infers. A dynamic length must be one of the data; otherwise all lengths must be
    those of another array."""
    source, shape = w.shape(node.inputs[0]), w.shape(Output(node))
    if all(after.is_static or before == after for before, after in zip(source, shape)):
        return w.add("Expand", x, w.integers([n.traced if n.is_static else 1 for n in shape]))
    if not like or node.attr("lhs_axes") is not None:
        w.check_static(shape, "the lengths that are broadcast must be static")
    return w.add("Expand", x, w.add("Shape", *like))


@writes("Pad")
def _pad(w: OnnxWriter, node: Node, x: str) -> str:
    widths, mode, value = entries(node.attr("pad_width")), node.attr("mode"), node.attr("constant_value")
    if not value and any(reader.op == "Pooling" for reader in _readers(w, node)):
        value = UNFUSED_ZERO
    filling = w.scalar(value, node.inputs[0]) if mode == "constant" else None
    return w.add("Pad", x, w.integers([*widths[::2], *widths[1::2]]), filling, mode=mode)


def _readers(w: OnnxWriter, node: Node) -> Iterator[Node]:
    """Yields the nodes that use an output. A pad or slice that is merged into a window is skipped: its users follow."""
    for user, _ in w.users[node]:
        if user is not None and user.is_merged:
            yield from _readers(w, user)
        elif user is not None:
            yield user


@writes("shape_array")
def _shape_array(w: OnnxWriter, node: Node, x: str) -> str:
    return w.lengths(w.shape(node.inputs[0]), x)


# -- indexing


@writes("take")
def _take(w: OnnxWriter, node: Node, x: str, index: str) -> str:
    axis, mode = axis_of(w, node), node.attr("mode")
    if not w.shape(node.inputs[0])[axis].is_static and mode == "clip":
        last = w.add("Sub", w.slice(w.add("Shape", x), (0, axis, axis + 1, 1)), w.integers([1]))
        indices = w.add("Max", w.add("Min", w.cast(index, np.int64), last), w.integers([0]))
    else:
        indices = _valid_indices(w, node, index, axis)
    return w.add("Gather", x, indices, axis=axis)


@writes("pick")
def _pick(w: OnnxWriter, node: Node, x: str, index: str) -> str:
    """Takes one element along an axis for each index. The indices have the axes of the data, with or without this
    one."""
    ndim, axis = ndim_of(w, node), axis_of(w, node)
    indices = _valid_indices(w, node, index, axis)
    if len(w.shape(node.inputs[1])) < ndim:
        indices = w.unsqueeze(indices, [axis])
    picked = w.add("GatherElements", x, indices, axis=axis)
    return picked if node.attr("keepdims") or ndim == 1 else w.squeeze(picked, [axis])


def _valid_indices(w: OnnxWriter, node: Node, name: str, axis: int) -> str:
    """Casts indices, which are floats in MXNet, to integers, and clips or wraps them as MXNet does."""
    (length,), value = w.static(node.inputs[0], f"the axis of {node.op}", [axis]), w.graph.value(node.inputs[1])
    if value is not None:
        return w.constant(indices_in(node, value, length))
    if wraps(node):
        return w.add("Mod", w.cast(name, np.int64), w.constant(length, np.int64))
    return w.add("Clip", w.cast(name, np.int64), w.constant(0, np.int64), w.constant(length - 1, np.int64))


@writes("gather_nd")
def _gather_nd(w: OnnxWriter, node: Node, x: str, index: str) -> str:
    """Takes elements by indices. Their first axis has one entry for each indexed axis of the data."""
    ndim = len(w.shape(node.inputs[1]))
    return w.add("GatherND", x, w.cast(w.permute(index, [*range(1, ndim), 0]), np.int64))


@writes("one_hot", ignored="dtype")
def _one_hot(w: OnnxWriter, node: Node, x: str) -> str:
    """Compares indices with all positions: ONNX's OneHot would count negative ones from the end, MXNet ignores them."""
    index = w.unsqueeze(w.cast(x, np.int64), [ndim_of(w, node)])
    matches = w.add("Equal", index, w.integers(range(node.attr("depth"))))
    values = node.attr("on_value"), node.attr("off_value")
    return w.add("Where", matches, *(w.scalar(value, Output(node)) for value in values))


@writes("topk", "sort", "argsort", ignored="dtype")
def _topk(w: OnnxWriter, node: Node, x: str) -> Union[str, List[str]]:
    """Returns the largest or smallest elements along an axis, their positions, both, or a mask of them; `sort` and
    `argsort` return all elements. Of equal elements, ONNX takes the first, MXNet any."""
    (axis, count, largest, returns), dtype = top_k_of(w, node), w.dtype(node.inputs[0])
    values, positions = w.add("TopK", x, w.integers([count]), outputs=2, axis=axis, largest=int(largest))
    if returns == "value":
        return values
    if returns == "mask":
        zeros = w.fill(w.lengths(w.shape(node.inputs[0]), x), 0, dtype)
        return w.add("ScatterElements", zeros, positions, w.fill(w.add("Shape", positions), 1, dtype), axis=axis)
    positions = w.cast(positions, node.attr("dtype", "float32"))
    return [values, positions] if returns == "both" else positions


# -- reductions

REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}


@writes(*REDUCTIONS)
def _reduction(w: OnnxWriter, node: Node, x: str) -> str:
    axes, keepdims = axes_of(w, node), node.attr("keepdims")
    out = w.reduce(REDUCTIONS[node.kind], x, axes, keepdims) if axes else x
    return w.to_mxnet_scalar(node, out) if len(axes) == ndim_of(w, node) and not keepdims else out


@writes("argmax", "argmin")
def _argmax(w: OnnxWriter, node: Node, x: str) -> str:
    """Returns the position of the largest or smallest element, as a float."""
    op = {"argmax": "ArgMax", "argmin": "ArgMin"}[node.kind]
    axis, keepdims = axis_of(w, node), node.attr("keepdims")
    positions = w.cast(w.add(op, x, axis=axis, keepdims=int(keepdims)), w.dtype(Output(node)))
    return w.to_mxnet_scalar(node, positions) if ndim_of(w, node) == 1 and not keepdims else positions


@writes("_np_cumsum", ignored="dtype")
def _cumulative_sum(w: OnnxWriter, node: Node, x: str) -> str:
    dtype = w.dtype(Output(node))
    if dtype != w.dtype(node.inputs[0]):
        x = w.cast(x, dtype)
    axis = node.attr("axis")
    if axis is None:
        x, axis = w.add("Reshape", x, w.integers([-1])), 0
    return w.add("CumSum", x, w.constant(int(axis), np.int64))
