"""Pushes transposes past elementwise operators, towards the outputs.

A transpose only moves elements, so the values stay the same. Adjacent inverse transposes cancel out: a network with
channels last keeps one at its start and one at its end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Optional, Tuple

import numpy as np

from mxsame.rewriting.graph import Graph, Node, Output, Shapes, Users, slice_ranges

ELEMENTWISE = {
    *("Activation", "relu", "sigmoid", "tanh", "softsign", "clip", "abs", "negative", "square", "sqrt", "exp", "log"),
    *("erf", "hard_sigmoid", "reciprocal", "rsqrt", "add_scalar", "subtract_scalar", "rsubtract_scalar"),
    *("multiply_scalar", "divide_scalar", "rdivide_scalar", "power_scalar", "maximum_scalar", "minimum_scalar"),
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "identity"),
}
AXIS_ATTRIBUTE = {"BatchNorm": "axis", "Concat": "dim"}  # op -> the attribute that is an axis, 1 by default
RECTIFIERS = ("leaky", "elu", "selu", "gelu", "prelu")


class Rearrangement(NamedTuple):
    """A transpose by `axes`, or a slice of the axes in `sliced` (then `axes` is the identity)."""

    axes: Tuple[int, ...]  # for each axis of the output, the axis of the data
    sliced: Tuple[int, ...] = ()


def rearrangement(node: Node, shapes: Shapes) -> Optional[Rearrangement]:
    """Returns a transpose or slice as a `Rearrangement`, None for any other operator."""
    if not node.inputs or node.is_required_copy or node.inputs[0].node not in shapes:
        return None
    shape = shapes[node.inputs[0].node]
    axes, parts = tuple(range(len(shape))), slice_ranges(node, shape)
    if parts is not None:
        return Rearrangement(axes, tuple(axis for axis, part in enumerate(parts) if part != range(shape[axis])))
    if node.op == "transpose" and len(node.attr("axes", ())) == len(shape):
        return Rearrangement(tuple(axis % len(shape) for axis in node.attr("axes")))
    return None


def push_transposes(graph: Graph) -> None:
    """Move every transpose as far as possible towards the outputs."""
    shapes, users = graph.shapes(), graph.users()
    for node in users:
        if node.op == "transpose":
            merge(node, shapes)
        elif _commutes(graph, node, users, shapes):
            move = next(source.node for source in node.inputs if source.node.op == "transpose")
            moved = replace(node)
            shapes[moved] = shapes[node]
            _put_before(graph, moved, shapes)
            node.op, node.name, node.attrs, node.inputs = "transpose", move.name, dict(move.attrs), [Output(moved)]
    graph.replace({Output(node): node.inputs[0] for node in users if node.op == "_copy"})


def merge(node: Node, shapes: Shapes) -> None:
    """Write a transpose of a transpose as one transpose, or as an identity."""
    outer, source = rearrangement(node, shapes), node.inputs[0].node
    inner = rearrangement(source, shapes) if source.op == "transpose" else None
    if outer is None or inner is None:
        return
    axes = tuple(inner.axes[axis] for axis in outer.axes)
    node.attrs, node.inputs = {"axes": str(axes)}, [source.inputs[0]]
    if axes == tuple(range(len(axes))):
        node.op, node.attrs = "_copy", {}


def _commutes(graph: Graph, node: Node, users: Users, shapes: Shapes) -> bool:
    """Returns whether an operator commutes with the transposes of its inputs. The transposes must be equal, and all of
    their users must be transposes, or operators that may commute with them."""
    arrays = [source for source in node.inputs if graph.value(source) is None]
    moves = {rearrangement(source.node, shapes) if source.node.op == "transpose" else None for source in arrays}
    move = moves.pop() if len(moves) == 1 else None
    if move is None or node not in shapes or not _is_elementwise(node):
        return False
    if node.op == "LeakyReLU" and len(node.inputs) > 1 and move.axes[1:2] != (1,):
        return False
    others = {user.node for source in arrays for user in users[source.node]}
    return all(other and (other.op == "transpose" or _is_elementwise(other)) for other in others)


def _is_elementwise(node: Node) -> bool:
    """Returns whether an operator is elementwise, except along the axis in its attribute."""
    if node.op == "LeakyReLU":
        return node.attr("act_type", "leaky") in RECTIFIERS
    return node.kind in ELEMENTWISE or (node.op in AXIS_ATTRIBUTE and not node.attr("output_mean_var", False))


def _put_before(graph: Graph, node: Node, shapes: Shapes) -> None:
    """Connect an operator to the data before its transposes, and adapt its axis, shape and constant operands."""
    moves = (rearrangement(source.node, shapes) for source in node.inputs if source.node.op == "transpose")
    move = next(filter(None, moves))
    shape, order = shapes[node], np.argsort(move.axes)
    shapes[node] = tuple(shape[axis] for axis in order)
    if node.op in AXIS_ATTRIBUTE:
        node.attrs[AXIS_ATTRIBUTE[node.op]] = str(move.axes[node.attr(AXIS_ATTRIBUTE[node.op], 1) % len(shape)])
    for position, source in enumerate(node.inputs):
        value = graph.value(source)
        if source.node.op == "transpose":
            node.inputs[position] = source.node.inputs[0]
        elif value is not None and value.size > 1 and (node.kind in ELEMENTWISE or node.op == "Concat"):
            expanded = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
            node.inputs[position] = graph.constant(source.node.name, expanded.transpose(order))
