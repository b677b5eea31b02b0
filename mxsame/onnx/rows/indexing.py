"""Elements and rows by their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mxsame.onnx.rows._shared import INT64, must, ndim_of
from mxsame.rewriting import Node, Output

if TYPE_CHECKING:
    from mxsame.onnx.writer import Writer

FLOAT_EXACT = 2**24  # up to here every integer is a float32


def embedding(w: Writer, node: Node, x: str, weight: str) -> str:
    rows = int(node.attr("input_dim"))
    return w.add("Gather", weight, _index(w, node.inputs[0], x, rows), axis=0, name=node.name)


def take(w: Writer, node: Node, x: str, index: str) -> str:
    must(node, "mode", "clip")
    axis = int(node.attr("axis", 0)) % ndim_of(w, node)
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


def one_hot(w: Writer, node: Node, x: str) -> str:
    """By a comparison with all positions: ONNX's OneHot counts negative ones from the end, MXNet's ignores them."""
    on, off = (float(node.attr(name, default)) for name, default in (("on_value", 1.0), ("off_value", 0.0)))
    index = w.unsqueezed(w.cast(x, INT64), [ndim_of(w, node)])
    found = w.add("Equal", index, w.integers(range(int(node.attr("depth")))))
    if (on, off) == (1, 0):
        return w.cast(found, w.dtype(Output(node)))
    return w.add("Where", found, *(w.scalar(value, Output(node)) for value in (on, off)), name=node.name)
