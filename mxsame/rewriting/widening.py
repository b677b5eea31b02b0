"""Channels of zeros, so that convolutions pass on whole blocks of oneDNN's."""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Tuple

import numpy as np

from mxsame.plan.costs import has_avx512
from mxsame.rewriting.graph import Graph, Node, Output, User
from mxsame.rewriting.windows import is_channels_first

LEAST = 8  # channels in a block
KEEP_CHANNELS = ("Activation", "Flatten", "Pooling", "add", "clip", "multiply")


def widen(graph: Graph) -> None:
    """Let convolutions of lines and pictures pass on a multiple of 16 channels, or of 8 without AVX-512: for other
    numbers oneDNN has slower code. Whatever reads the new channels has weights of zero for them, or, after a global
    pooling operator, a slice before it. At most half as many are added, or if there are no blocks at all as many as it
    takes, with a slice after the activation. Xception, of 728 channels, takes two thirds of the time."""
    shapes, users, seen = graph.shapes(), graph.users(), set()
    for start in users:
        if start in seen or _groups(graph, start) != 1:
            continue
        channels = int(start.attr("num_filter"))
        more = -channels % (16 if has_avx512() else 8)
        found = _connected(graph, start, shapes, users) if 0 < 2 * more <= channels else ([], [], [])
        keepers, readers, others = found
        if not keepers and channels % LEAST and _has_room(graph, start, shapes):
            after = users[start][0].node
            keeps = len(users[start]) == 1 and after is not None and after.kind in ("Activation", "clip")
            keepers = [start, after] if keeps else [start]
            others = users[keepers[-1]]
        seen.update(keepers)
        for node in keepers:
            if node.op == "Convolution":
                groups = 1 if _groups(graph, node) == 1 else channels + more
                node.attrs.update(num_filter=str(channels + more), num_group=str(groups))
                for position in range(1, len(node.inputs)):
                    _append(graph, node, position, 0, more)
        for node in readers:
            _append(graph, node, 1, 1, more)
        for number, user in enumerate(others):
            data, attrs = graph.used_by(user.node)[user.position], {"axis": "1", "begin": "0", "end": str(channels)}
            graph.connect(user, Output(Node("slice_axis", f"{start.name}_own{number}", [data], attrs)))


def _has_room(graph: Graph, node: Node, shapes: Dict[Node, tuple]) -> bool:
    """Whether a convolution has data in blocks, and more than one element of each channel."""
    return graph.value(node.inputs[1]).shape[1] >= LEAST and math.prod(shapes[node][2:]) > 1


def _groups(graph: Graph, node: Optional[Node]) -> int:
    """The groups of a convolution of lines or pictures whose weights are parameters; 0 for anything else."""
    if node is None or node.op != "Convolution" or len(node.attr("kernel")) > 2 or not is_channels_first(node):
        return 0
    return int(node.attr("num_group", 1)) * all(graph.value(source) is not None for source in node.inputs[1:])


def _connected(
    graph: Graph, start: Node, shapes: Dict[Node, tuple], users: dict
) -> Tuple[List[Node], List[Node], List[User]]:
    """The nodes whose outputs have the channels of this convolution, those that sum over them, and other users of one
    element of each; none if there is any other user."""
    keepers, readers, others, channels = [start], [], [], int(start.attr("num_filter"))

    def keeps(node: Optional[Node]) -> bool:
        if node is None or shapes.get(node, ())[1:2] != (channels,):
            return False
        is_flatten = node.op == "Reshape" and node.attr("shape") == (0, -1)
        read = {shapes.get(source.node, ())[1:2] for source in node.inputs}
        keeps_channels = (node.kind in KEEP_CHANNELS or is_flatten) and read == {(channels,)}
        return keeps_channels or _groups(graph, node) in (1, channels)

    for node in keepers:  # which grows
        before = node.inputs[: _groups(graph, node) != 1] if node.op == "Convolution" else node.inputs
        near = [source.node for source in before]
        for user in users[node]:
            if _sums(graph, user.node, shapes.get(node, ())):
                readers.append(user.node)
            elif math.prod(shapes[node][2:]) == 1 and not keeps(user.node):
                others.append(user)
            else:
                near.append(user.node)
        if not all(map(keeps, near)):
            return [], [], []
        keepers += [other for other in dict.fromkeys(near) if other not in keepers]
    return keepers, readers, others


def _sums(graph: Graph, node: Optional[Node], shape: tuple) -> bool:
    """Whether a node sums over all channels of data of this shape, with a weight that is a parameter."""
    if node is not None and node.op == "FullyConnected":
        is_of_channels = len(shape) == 2 or (shape[2:] == (1, 1) and node.attr("flatten", True))
        return is_of_channels and graph.value(node.inputs[1]) is not None
    return _groups(graph, node) == 1


def _append(graph: Graph, node: Node, position: int, axis: int, count: int) -> None:
    """Zeros at the end of an axis of a parameter of the node."""
    value, name = graph.value(node.inputs[position]), node.inputs[position].node.name
    ends = [(0, count if each == axis else 0) for each in range(value.ndim)]
    node.inputs[position] = graph.constant(name, np.pad(value, ends))
