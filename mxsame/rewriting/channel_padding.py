"""Pads the channels of convolutions with zeros to a multiple of oneDNN's block size."""

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional

import numpy as np

from mxsame import onednn_blocks, processor
from mxsame.rewriting.graph import Graph, Node, Shape, Shapes, User, Users, operator
from mxsame.rewriting.windows import is_channels_first

KEEP_CHANNELS = ("Activation", "Flatten", "Pooling", "add", "clip", "multiply")  # kinds


class Region(NamedTuple):
    """All operators affected by the channels of a convolution: the outputs of `preserving` have the same channels,
    `summing` are convolutions and dense layers that sum over them, and `others` need a slice of them."""

    preserving: List[Node]
    summing: List[Node]
    others: List[User]


def pad_channels(graph: Graph) -> None:
    """Pad the outputs of convolutions to a multiple of 16 channels, or of 8 without AVX-512, with zeros: for other
    numbers oneDNN has slower code.

    What sums over the channels gets weights of zero for the new ones, and any other operator after a global pooling
    operator gets a slice. At most half as many channels are added. If there are no whole blocks at all, as many
    are added as necessary, and a slice after the convolution (or its activation) removes them. Xception, with 728
    channels, takes two thirds of the time.
    """
    shapes, users, seen = graph.shapes(), graph.users(), set()
    for start in users:
        if start in seen or _groups(graph, start) != 1:
            continue
        channels = start.attr("num_filter")
        more = -channels % (onednn_blocks.MAX_BLOCK if processor.has("AVX512_CORE") else onednn_blocks.MIN_BLOCK)
        region = _region_of(graph, start, shapes, users) if 0 < 2 * more <= channels else None
        read = graph.values[start.inputs[1].node.name].shape[1]
        has_blocks = read >= onednn_blocks.MIN_BLOCK and math.prod(shapes.get(start, ())[2:]) > 1
        if region is None and channels % onednn_blocks.MIN_BLOCK and has_blocks:
            region = _convolution_only(start, users)
        if region is not None:
            seen.update(region.preserving)
            _add_channels(graph, region, channels, more)


def _add_channels(graph: Graph, region: Region, channels: int, more: int) -> None:
    """Add `more` channels of zeros to the operators of a region."""
    for node in region.preserving:
        if node.op == "Convolution":
            groups = 1 if _groups(graph, node) == 1 else channels + more
            node.attrs.update(num_filter=str(channels + more), num_group=str(groups))
            for position in range(1, len(node.inputs)):
                _append_zeros(graph, node, position, 0, more)
    for node in region.summing:
        _append_zeros(graph, node, 1, 1, more)
    for number, user in enumerate(region.others):
        data, name = graph.inputs_of(user.node)[user.position], f"{region.preserving[0].name}_own{number}"
        graph.connect(user, operator("slice_axis", name, data, axis=1, begin=0, end=channels))


def _append_zeros(graph: Graph, node: Node, position: int, axis: int, count: int) -> None:
    """Append zeros along an axis of a parameter of the node."""
    name = node.inputs[position].node.name
    ends = [(0, count if each == axis else 0) for each in range(graph.values[name].ndim)]
    node.inputs[position] = graph.constant(name, np.pad(graph.values[name], ends))


def _groups(graph: Graph, node: Optional[Node]) -> int:
    """Returns the groups of a 1-D or 2-D convolution whose weights are parameters, 0 for anything else."""
    if node is None or node.op != "Convolution" or len(node.attr("kernel")) > 2 or not is_channels_first(node):
        return 0
    return int(node.attr("num_group", 1)) * all(graph.value(source) is not None for source in node.inputs[1:])


def _convolution_only(start: Node, users: Users) -> Region:
    """Returns the convolution, with its activation if nothing else uses it, as a region whose users all get a slice."""
    after = users[start][0].node if len(users[start]) == 1 else None
    preserving = [start, after] if after is not None and after.kind in ("Activation", "clip") else [start]
    return Region(preserving, [], list(users[preserving[-1]]))


def _region_of(graph: Graph, start: Node, shapes: Shapes, users: Users) -> Optional[Region]:
    """Returns the region of a convolution, or None if one of its operators cannot have additional
    channels.

    The region grows from the convolution, with the data and the users of each operator in it. A user that sums over the
    channels ends it. One that keeps them is in it, and so must be what an operator in it reads. Any other user gets a
    slice, if there is one element of each channel.
    """
    region, channels = Region([start], [], []), start.attr("num_filter")

    def keeps(node: Node) -> bool:
        if shapes.get(node, ())[1:2] != (channels,):
            return False
        is_flatten = node.op == "Reshape" and node.attr("shape") == (0, -1)
        read = {shapes.get(source.node, ())[1:2] for source in node.inputs}
        keeps_channels = (node.kind in KEEP_CHANNELS or is_flatten) and read == {(channels,)}
        return keeps_channels or _groups(graph, node) in (1, channels)

    for node in region.preserving:  # the list grows in the loop
        before = node.inputs[: _groups(graph, node) != 1] if node.op == "Convolution" else node.inputs
        near = [source.node for source in before]
        for user in users[node]:
            if user.node is not None and _sums_channels(graph, user.node, shapes.get(node, ())):
                region.summing.append(user.node)
            elif user.node is not None and (math.prod(shapes[node][2:]) > 1 or keeps(user.node)):
                near.append(user.node)
            elif math.prod(shapes[node][2:]) == 1:
                region.others.append(user)
            else:
                return None
        if not all(map(keeps, near)):
            return None
        region.preserving.extend(other for other in dict.fromkeys(near) if other not in region.preserving)
    return region


def _sums_channels(graph: Graph, node: Node, shape: Shape) -> bool:
    """Returns whether a node sums over all channels of data of this shape, with a weight that is a parameter."""
    if node.op == "FullyConnected":
        is_of_channels = len(shape) == 2 or (shape[2:] == (1, 1) and node.attr("flatten", True))
        return is_of_channels and graph.value(node.inputs[1]) is not None
    return _groups(graph, node) == 1
