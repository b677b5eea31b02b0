"""Slices and transposes sink: they go after operators that treat every element by itself.

A slice or transpose only moves elements, so the order makes no difference to the values. After the activation it no
longer separates a convolution from it, so oneDNN runs the two as one step; and two transposes that meet cancel out.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame.plan.arrays import COPY
from mxsame.rewriting.graph import Graph, Node, Output, User, taken

UNARY = {
    *("Activation", "relu", "sigmoid", "tanh", "softsign", "clip", "abs", "negative", "square", "sqrt", "exp", "log"),
    *("erf", "hard_sigmoid", "reciprocal", "rsqrt", "add_scalar", "subtract_scalar", "rsubtract_scalar"),
    *("multiply_scalar", "divide_scalar", "rdivide_scalar", "power_scalar", "maximum_scalar", "minimum_scalar"),
}
BINARY = {"add", "subtract", "multiply", "divide", "maximum", "minimum"}
MOVING = ("slice", "slice_axis", "transpose")
AXIS = {"BatchNorm": "axis", "Concat": "dim"}  # the attribute with the one axis of an operator, by default 1
RECTIFIERS = ("leaky", "elu", "selu", "gelu", "prelu")
Users = Dict[Node, List[User]]
LEAST_KEPT = 0.5  # a slice that drops more stays: what follows it is cheap


class Movement(NamedTuple):
    """What a node does to axes: a transpose by `axes`, or a slice of those `sliced`."""

    axes: Tuple[int, ...]
    sliced: Tuple[int, ...]
    attrs: tuple  # equal if two are the same

    def before(self, axis: int) -> Optional[int]:
        """The position of an axis in the data that was moved; None for one that is sliced."""
        return None if axis in self.sliced else self.axes[axis]

    def axis_before(self, node: Node) -> Optional[int]:
        """The position of an operator's axis in that data."""
        return self.before(node.attr(AXIS[node.op], 1) % len(self.axes))


def movement(node: Node, shapes: dict) -> Optional[Movement]:
    """A node as a movement, if it is one."""
    if node.op not in MOVING or COPY in node.attrs or node not in shapes or node.inputs[0].node not in shapes:
        return None
    shape = shapes[node.inputs[0].node]
    axes, sliced, parts = tuple(range(len(shape))), (), taken(node, shape)
    if parts is not None:
        sliced = tuple(axis for axis, part in enumerate(parts) if part != range(shape[axis]))
    elif len(node.attr("axes", ())) == len(shape):
        axes = tuple(axis % len(shape) for axis in node.attr("axes"))
    else:
        return None
    return Movement(axes, sliced, (node.op, *sorted(node.attrs.items())))


def sink(graph: Graph) -> None:
    """Move every movement as far down as it goes."""
    shapes = graph.shapes()
    steps = (_undo, _sink_one, _sink_together)
    while any(_first(graph, step, shapes) for step in steps):
        pass


def _first(graph: Graph, step: Callable, shapes: dict) -> bool:
    """Whether a step could be done for some movement; a step changes who uses what, so it is done once at a time."""
    users = graph.users()
    for node in users:
        move = _movement(node, shapes)
        if move is not None and step(graph, node, move, users, shapes):
            return True
    return False


def _movement(node: Node, shapes: dict) -> Optional[Movement]:
    """A node as a movement worth sinking."""
    move = movement(node, shapes)
    if move is None or math.prod(shapes[node]) < LEAST_KEPT * math.prod(shapes[node.inputs[0].node]):
        return None
    return move


def _undo(graph: Graph, node: Node, outer: Movement, users: Users, shapes: dict) -> bool:
    """Whether a transpose of a transpose has become one, or none."""
    source = node.inputs[0].node
    inner = movement(source, shapes) if node.op == source.op == "transpose" else None
    if inner is None:
        return False
    axes = tuple(inner.axes[axis] for axis in outer.axes)
    node.attrs, node.inputs = {"axes": str(axes)}, [source.inputs[0]]
    if axes == tuple(range(len(axes))):
        for user in users[node]:
            graph.connect(user, node.inputs[0])
    return True


# -- after all that treats its elements one by one, up to the one node that others use


def _sink_one(graph: Graph, node: Node, move: Movement, users: Users, shapes: dict) -> bool:
    region = _region(graph, node, move, users, shapes)
    if not region:
        return False
    (leaving,) = _leaving([node, *region], users)
    source, moved = node.inputs[0], shapes[leaving]
    for user in users[node]:
        graph.connect(user, source)
    for each in region:
        _put_before(graph, each, move)
        shapes[each] = shapes[source.node]
    for user in users[leaving]:
        graph.connect(user, Output(node))
    node.inputs, shapes[node] = [Output(leaving)], moved
    return True


def _region(graph: Graph, node: Node, move: Movement, users: Users, shapes: dict) -> List[Node]:
    """What treats the elements of a movement's output one by one, and uses nothing else, as far as others use only one
    node of it."""
    if not any(user.node and _commutes(graph, user.node, [node], move, shapes) for user in users[node]):
        return []
    inside, region = [node], []
    for candidate in list(users)[list(users).index(node) + 1 :]:
        if _commutes(graph, candidate, inside, move, shapes):
            inside.append(candidate)
            leaving = _leaving(inside, users)
            if len(leaving) == 1 and leaving[0] is not node:
                region = inside[1:]
    return region


def _leaving(nodes: Sequence[Node], users: Users) -> List[Node]:
    """Those that others use."""
    return [node for node in nodes if any(user.node not in nodes for user in users[node])]


def _commutes(graph: Graph, node: Node, inside: Sequence[Node], move: Movement, shapes: dict) -> bool:
    """Whether a node gives the same, moved, for data that has not been moved."""
    arrays = [source for source in node.inputs if source.node in inside]
    others = [graph.value(source) for source in node.inputs if source.node not in inside]
    if not arrays or shapes.get(node) != shapes[inside[0]] or any(source.index for source in arrays):
        return False
    if node.kind in UNARY:
        return True
    if node.op == "LeakyReLU" and node.attr("act_type", "leaky") in RECTIFIERS:
        return not others or move.before(1) == 1
    if any(value is None for value in others):
        return False
    if node.kind in BINARY:
        return all(_whole(value, move).shape[axis] == 1 for value in others for axis in move.sliced)
    return node.op == "BatchNorm" and not node.attr("output_mean_var", False) and move.axis_before(node) is not None


def _whole(value: np.ndarray, move: Movement) -> np.ndarray:
    """A constant operand with all axes of the data."""
    return value.reshape((1,) * (len(move.axes) - value.ndim) + value.shape)


def _put_before(graph: Graph, node: Node, move: Movement) -> None:
    """Attributes and constant operands of a node that now sees data before the movement."""
    if node.op in AXIS:
        node.attrs[AXIS[node.op]] = str(move.axis_before(node))
    if node.kind in BINARY and not move.sliced:
        for position, source in enumerate(node.inputs):
            value = graph.value(source)
            if value is not None and value.size > 1:
                moved = _whole(value, move).transpose(np.argsort(move.axes))
                node.inputs[position] = graph.constant(source.node.name, moved)


# -- equal ones, whose data meet in one operator


def _sink_together(graph: Graph, node: Node, move: Movement, users: Users, shapes: dict) -> bool:
    """Whether all inputs of the operator that uses this movement were moved alike, and its output is now moved
    instead."""
    (user, *more) = users[node]
    meeting = user.node
    if more or meeting not in shapes or not (meeting.kind in BINARY or meeting.op == "Concat"):
        return False
    alike = [source.node for source in meeting.inputs]
    if any(_movement(each, shapes) != move or len(users[each]) != 1 for each in alike):
        return False
    before = [shapes[each.inputs[0].node] for each in alike]
    moved = shapes[meeting]
    if meeting.op == "Concat":
        axis = move.axis_before(meeting)
        if axis is None:
            return False
        length = sum(shape[axis] for shape in before)
        before = [(*shape[:axis], length, *shape[axis + 1 :]) for shape in before]
    if any(shape != before[0] for shape in before):
        return False
    meeting.inputs = [each.inputs[0] for each in alike]
    _put_before(graph, meeting, move)
    for other in users[meeting]:
        graph.connect(other, Output(node))
    node.inputs, shapes[meeting], shapes[node] = [Output(meeting)], before[0], moved
    return True
