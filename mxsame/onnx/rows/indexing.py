"""Elements and rows by their indices."""

from __future__ import annotations

from typing import List, Union

import numpy as np

from mxsame import validation
from mxsame.exporting.walk import axis_of, ndim_of
from mxsame.onnx.rows._shared import writes
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output


@writes("take")
def take(w: Writer, node: Node, x: str, index: str) -> str:
    axis, mode = axis_of(w, node), node.attr("mode")
    if not w.shape(node.inputs[0])[axis].is_static and mode == "clip":
        last = w.add("Sub", w.sliced(w.add("Shape", x), (0, axis, axis + 1, 1)), w.integers([1]))
        rows = w.add("Max", w.add("Min", w.cast(index, np.int64), last), w.integers([0]))
    else:
        rows = _index(w, node.inputs[1], index, _length(w, node, axis), mode)
    return w.add("Gather", x, rows, axis=axis)


@writes("pick")
def pick(w: Writer, node: Node, x: str, index: str) -> str:
    """One element along an axis for each index; the indices have the data's other axes, and may keep this one."""
    ndim, axis = ndim_of(w, node), axis_of(w, node)
    rows = _index(w, node.inputs[1], index, _length(w, node, axis), node.attr("mode"))
    if len(w.shape(node.inputs[1])) < ndim:
        rows = w.unsqueezed(rows, [axis])
    picked = w.add("GatherElements", x, rows, axis=axis)
    return picked if node.attr("keepdims") or ndim == 1 else w.squeezed(picked, [axis])


def _length(w: Writer, node: Node, axis: int) -> int:
    """The length of the axis along which elements are chosen."""
    length = w.shape(node.inputs[0])[axis]
    if not length.is_static:
        raise ValueError(f"the axis of {node.op} must be static")
    return length.traced


def _index(w: Writer, output: Output, name: str, length: int, mode: str = "clip") -> str:
    """Indices as integers: MXNet keeps them as floats, and clips or wraps them."""
    if mode not in ("clip", "wrap"):
        raise ValueError(f"mode must be clip or wrap; {validation.received(mode=mode)}")
    value = w.graph.value(output)
    if value is not None:
        rows = value.astype(np.int64)
        return w.constant(rows % length if mode == "wrap" else np.clip(rows, 0, length - 1))
    if mode == "wrap":
        return w.add("Mod", w.cast(name, np.int64), w.constant(length, np.int64))
    return w.add("Clip", w.cast(name, np.int64), w.constant(0, np.int64), w.constant(length - 1, np.int64))


@writes("one_hot", unread="dtype")
def one_hot(w: Writer, node: Node, x: str) -> str:
    """Compares with all positions: ONNX's OneHot counts negative indices from the end, MXNet's ignores them."""
    index = w.unsqueezed(w.cast(x, np.int64), [ndim_of(w, node)])
    matches = w.add("Equal", index, w.integers(range(int(node.attr("depth")))))
    values = float(node.attr("on_value")), float(node.attr("off_value"))
    return w.add("Where", matches, *(w.scalar(value, Output(node)) for value in values))


@writes("topk", "sort", "argsort", unread="dtype")
def topk(w: Writer, node: Node, x: str) -> Union[str, List[str]]:
    """The largest or smallest elements of an axis, their positions, both, or a mask of them; `sort` and `argsort` take
    all. MXNet chooses freely among equal elements, ONNX takes the first."""
    axis, dtype = axis_of(w, node), w.dtype(node.inputs[0])
    length, kind = _length(w, node, axis), {"sort": "value"}.get(node.op, node.attr("ret_typ", "indices"))
    count = min(int(node.attr("k")), length) or length if node.op == "topk" else length
    largest = not node.attr("is_ascend")
    values, positions = w.add("TopK", x, w.integers([count]), outputs=2, axis=axis, largest=int(largest))
    if kind == "value":
        return values
    if kind == "mask":
        empty = w.add("ConstantOfShape", w.lengths(w.shape(node.inputs[0]), x), value=w.tensor(np.zeros(1, dtype)))
        ones = w.add("ConstantOfShape", w.add("Shape", positions), value=w.tensor(np.ones(1, dtype)))
        return w.add("ScatterElements", empty, positions, ones, axis=axis)
    positions = w.cast(positions, node.attr("dtype", "float32"))
    return [values, positions] if kind == "both" else positions
