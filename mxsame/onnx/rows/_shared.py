"""What rows share: attributes of a node, and lengths."""

from __future__ import annotations

from typing import Any, List

import numpy as np

from mxsame import validation
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output

INT64 = np.dtype("int64")


def axes_of(node: Node, ndim: int, name: str = "axis") -> List[int]:
    """An attribute of one axis or several as numbers from 0; all for none."""
    given = node.attr(name)
    if given is None or given == ():
        return list(range(ndim))
    given = [given] if isinstance(given, int) else list(given)
    return [axis % ndim for axis in given]


def ndim_of(w: Writer, node: Node) -> int:
    return len(w.shape(node.inputs[0]))


def must(node: Node, name: str, wanted: Any) -> None:
    """Raise `ValueError` unless an attribute has this value, or is not given."""
    if node.attr(name, wanted) != wanted:
        raise ValueError(f"{name} must be {wanted}; {validation.received(**{name: node.attr(name)})}")


def number(w: Writer, node: Node, x: str) -> str:
    """What has no axis in ONNX, and one in MXNet unless NumPy's shapes are on."""
    return w.add("Reshape", x, w.integers([1])) if len(w.shape(Output(node))) == 1 else x


def given_axis(node: Node) -> int:
    if node.attr("axis") is None:
        raise ValueError("axis must be given, as ONNX flattens nothing; received axis=None")
    return int(node.attr("axis"))
