"""Elements and rows by their number."""

from __future__ import annotations

from typing import List, Union

import numpy as np

from mxsame import validation
from mxsame.onnx.registry import writes
from mxsame.onnx.rows._shared import INT64, given_axis, ndim_of
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output

FLOAT_EXACT = 2**24  # up to here every integer is a float32


@writes("Embedding")
def embedding(w: Writer, node: Node, x: str, weight: str) -> str:
    rows = int(node.attr("input_dim"))
    return w.add("Gather", weight, _index(w, node.inputs[0], x, rows), axis=0, name=node.name)


@writes("take")
def take(w: Writer, node: Node, x: str, index: str) -> str:
    axis = int(node.attr("axis", 0)) % ndim_of(w, node)
    rows = _index(w, node.inputs[1], index, _length(w, node, axis), node.attr("mode", "clip"))
    return w.add("Gather", x, rows, axis=axis, name=node.name)


@writes("pick")
def pick(w: Writer, node: Node, x: str, index: str) -> str:
    """One element along an axis for each index; the indices have the data's other axes, and may keep this one."""
    ndim = ndim_of(w, node)
    axis = int(node.attr("axis", -1)) % ndim
    rows = _index(w, node.inputs[1], index, _length(w, node, axis), node.attr("mode", "clip"))
    if len(w.shape(node.inputs[1])) < ndim:
        rows = w.unsqueezed(rows, [axis])
    found = w.add("GatherElements", x, rows, axis=axis, name=node.name)
    return found if node.attr("keepdims", False) or ndim == 1 else w.squeezed(found, [axis])


def _length(w: Writer, node: Node, axis: int) -> int:
    """Of an axis that elements are chosen along."""
    length = w.shape(node.inputs[0])[axis]
    if not length.is_static:
        raise ValueError(f"the axis of {node.op} must be static")
    return length.traced


def _index(w: Writer, output: Output, name: str, length: int, mode: str = "clip") -> str:
    """Numbers of rows, which MXNet keeps as floats and clips or wraps, as integers."""
    if mode not in ("clip", "wrap"):
        raise ValueError(f"mode must be clip or wrap; {validation.received(mode=mode)}")
    value = w.value(output)
    if value is not None:
        rows = value.astype(np.int64)
        return w.constant(rows % length if mode == "wrap" else np.clip(rows, 0, length - 1))
    if mode == "wrap":
        return w.add("Mod", w.cast(name, INT64), w.constant(length, INT64))
    dtype = INT64 if w.opset >= 12 else np.dtype("float32")  # Clip takes no integers before
    if dtype != INT64 and length > FLOAT_EXACT:
        raise ValueError(f"opset must be at least 12 for more than {FLOAT_EXACT} rows; received opset={w.opset}")
    clipped = w.add("Clip", w.cast(name, dtype), w.constant(0, dtype), w.constant(length - 1, dtype))
    return clipped if dtype == INT64 else w.cast(clipped, INT64)


@writes("one_hot")
def one_hot(w: Writer, node: Node, x: str) -> str:
    """By a comparison with all positions: ONNX's OneHot counts negative ones from the end, MXNet's ignores them."""
    on, off = (float(node.attr(name, default)) for name, default in (("on_value", 1.0), ("off_value", 0.0)))
    index = w.unsqueezed(w.cast(x, INT64), [ndim_of(w, node)])
    found = w.add("Equal", index, w.integers(range(int(node.attr("depth")))))
    if (on, off) == (1, 0):
        return w.cast(found, w.dtype(Output(node)))
    return w.add("Where", found, *(w.scalar(value, Output(node)) for value in (on, off)), name=node.name)


@writes("topk")
def topk(w: Writer, node: Node, x: str) -> Union[str, List[str]]:
    """The largest or smallest elements of an axis, their positions, both, or a mask of them. MXNet chooses freely
    among equal elements, ONNX takes the first."""
    axis, kind = _last_or_given(w, node), node.attr("ret_typ", "indices")
    length = _length(w, node, axis)
    values, found = _sorted(w, x, axis, min(int(node.attr("k", 1)), length) or length, node.attr("is_ascend", False))
    if kind == "value":
        return values
    if kind == "mask":
        dtype = w.dtype(node.inputs[0])
        empty = w.add("ConstantOfShape", w.lengths(w.shape(node.inputs[0]), x), value=w.tensor(np.zeros(1, dtype)))
        ones = w.add("ConstantOfShape", w.add("Shape", found), value=w.tensor(np.ones(1, dtype)))
        return w.add("ScatterElements", empty, found, ones, axis=axis, name=node.name)
    positions = w.cast(found, _index_type(node))
    return [values, positions] if kind == "both" else positions


@writes("sort")
def sort(w: Writer, node: Node, x: str) -> str:
    axis = _last_or_given(w, node)
    return _sorted(w, x, axis, _length(w, node, axis), node.attr("is_ascend", True))[0]


@writes("argsort")
def argsort(w: Writer, node: Node, x: str) -> str:
    axis = _last_or_given(w, node)
    positions = _sorted(w, x, axis, _length(w, node, axis), node.attr("is_ascend", True))[1]
    return w.cast(positions, _index_type(node))


def _last_or_given(w: Writer, node: Node) -> int:
    """The axis, the last one by default."""
    if "axis" in node.attrs:
        return given_axis(node) % ndim_of(w, node)
    return ndim_of(w, node) - 1


def _index_type(node: Node) -> np.dtype:
    """Of positions, which are floats by default."""
    return np.dtype(node.attr("dtype", "float32"))


def _sorted(w: Writer, x: str, axis: int, count: int, ascending: bool) -> List[str]:
    """The first elements of a sorted axis, and their positions."""
    found: List[str] = w.add("TopK", x, w.integers([count]), outputs=2, axis=axis, largest=int(not ascending))
    return found
