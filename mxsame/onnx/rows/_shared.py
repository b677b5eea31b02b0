"""What rows share: the table that they are in, attributes of a node, and formulas.

A row is a function of the writer, the node and the names of the node's inputs; it adds ONNX's nodes by `Writer.add` and
returns the name of the output, or a list of names. Rows are registered under the kinds of `Node`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from mxsame import validation
from mxsame.onnx.writer import Row, Writer
from mxsame.rewriting.graph import Node, Output

OPERATORS: Dict[str, Row] = {}


def writes(*kinds: str) -> Callable[[Row], Row]:
    """A decorator: the function writes nodes of these kinds.

    Raises `ValueError` if one of them has a row already."""

    def register(row: Row) -> Row:
        for kind in kinds:
            if kind in OPERATORS:
                raise ValueError(f"a kind of node must have one row; received {kind!r} again")
            OPERATORS[kind] = row
        return row

    return register


@dataclass(frozen=True)
class Array:
    """An array of a file in a formula: `x * 2` adds a node, and the number gets the type of an output of the graph."""

    w: Writer
    like: Output
    name: str

    def __call__(self, op: str, *others: Union[Array, float], **attrs: Any) -> Array:
        """An operator of ONNX on this array and others."""
        names = [other.name if isinstance(other, Array) else self.w.scalar(other, self.like) for other in others]
        return replace(self, name=self.w.add(op, self.name, *names, **attrs))

    def reduced(self, op: str, axes: Sequence[int]) -> Array:
        """A reduction that keeps its axes."""
        return replace(self, name=self.w.reduced(op, self.name, axes, True))

    def __add__(self, other: Any) -> Array:
        return self("Add", other)

    def __sub__(self, other: Any) -> Array:
        return self("Sub", other)

    def __mul__(self, other: Any) -> Array:
        return self("Mul", other)

    def __truediv__(self, other: Any) -> Array:
        return self("Div", other)

    def __lt__(self, other: Any) -> Array:
        return self("Less", other)


def axes_of(node: Node, ndim: int, name: str = "axis") -> List[int]:
    """An attribute of one axis or several as a list of numbers from 0; all axes if it is None."""
    value = node.attr(name)
    if value is None or value == ():
        return list(range(ndim))
    value = [value] if isinstance(value, int) else list(value)
    return [axis % ndim for axis in value]


def ndim_of(w: Writer, node: Node) -> int:
    """The number of axes of the data."""
    return len(w.shape(node.inputs[0]))


def axis_of(w: Writer, node: Node, default: Optional[int] = None) -> int:
    """The axis of a node as a number from 0; the default is for a node without this attribute."""
    axis = node.attr("axis", None if "axis" in node.attrs else default)
    if axis is None:
        raise ValueError("axis must be given, as ONNX flattens nothing; received axis=None")
    return int(axis) % ndim_of(w, node)


def must(node: Node, name: str, required: Any) -> None:
    """Raise `ValueError` unless an attribute has this value, or is not given."""
    if node.attr(name, required) != required:
        raise ValueError(f"{name} must be {required}; {validation.received(**{name: node.attr(name)})}")


def number(w: Writer, node: Node, x: str) -> str:
    """A scalar of ONNX as MXNet has it: with one axis, unless NumPy's shapes are on."""
    return w.add("Reshape", x, w.integers([1])) if len(w.shape(Output(node))) == 1 else x
