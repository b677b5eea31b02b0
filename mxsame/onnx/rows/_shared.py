"""What rows share: the table that they are in, and formulas.

A row is a function of the writer, the node and the names of the node's inputs; it adds ONNX's nodes by `Writer.add` and
returns the name of the output, or a list of names. Rows are registered under the kinds of `Node`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Sequence, Union

from mxsame.exporting.walk import Rows
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output

OPERATORS = Rows()
writes = OPERATORS.writes


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


def number(w: Writer, node: Node, x: str) -> str:
    """A scalar of ONNX as MXNet has it: with one axis, unless NumPy's shapes are on."""
    return w.add("Reshape", x, w.integers([1])) if len(w.shape(Output(node))) == 1 else x
