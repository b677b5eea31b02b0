"""Pads the channels of convolutions with zeros to a multiple of oneDNN's block size."""

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional

import numpy as np

from mxsame import onednn_blocks, processor
from mxsame.rewriting.graph import Graph, Node, Shape, Shapes, User, Users, operator
from mxsame.rewriting.windows import is_channels_first

KEEP_CHANNELS = ("Activation", "Flatten", "Pooling", "add", "clip", "multiply")  # kinds of operators


class Region(NamedTuple):
    """All operators affected by the channels of a convolution: the outputs of `preserving` have the same channels,
    `summing` are convolutions and dense layers that sum over them, and `others` need a slice without the added ones."""

    preserving: List[Node]
    summing: List[Node]
    others: List[User]


def pad_channels(graph: Graph) -> None:
    """Pad the outputs of convolutions to a multiple of 16 channels, or of 8 without AVX-512, with zeros: for other
    numbers oneDNN has slower code.

    Operators that sum over the channels get zero weights for the new ones. Any other operator after global pooling
    reads a slice without them. The new channels are at most half as many as the old ones. Where that is impossible, and
    the channels are not a multiple of 8, only the convolution (with its activation) is padded, and its users read a
    slice. Xception, with 728 channels, takes two thirds of the time.
    """
    shapes, users, seen = graph.shapes(), graph.users(), set()
    for start in users:
        if start in seen or _groups(graph, start) != 1:
            continue
        channels = start.attr("num_filter")
        added = -channels % (onednn_blocks.MAX_BLOCK if processor.has("AVX512_CORE") else onednn_blocks.MIN_BLOCK)
        region = _region_of(graph, start, shapes, users) if 0 < 2 * added <= channels else None
        in_channels = graph.values[start.inputs[1].node.name].shape[1]
        is_slow = in_channels >= onednn_blocks.MIN_BLOCK and math.prod(shapes.get(start, ())[2:]) > 1
        if region is None and channels % onednn_blocks.MIN_BLOCK and is_slow:
            region = _convolution_only(start, users)
        if region is not None:
            seen.update(region.preserving)
            _add_channels(graph, region, channels, added)


def _add_channels(graph: Graph, region: Region, channels: int, added: int) -> None:
    """Add this many channels of zeros to the operators of a region, which have `channels`."""
    for node in region.preserving:
        if node.op == "Convolution":
            groups = 1 if _groups(graph, node) == 1 else channels + added
            node.attrs.update(num_filter=str(channels + added), num_group=str(groups))
            for position in range(1, len(node.inputs)):
                _append_zeros(graph, node, position, 0, added)
    for node in region.summing:
        _append_zeros(graph, node, 1, 1, added)
    for number, user in enumerate(region.others):
        data, name = graph.inputs_of(user.node)[user.position], f"{region.preserving[0].name}_own{number}"
        graph.connect(user, operator("slice_axis", name, data, axis=1, begin=0, end=channels))


def _append_zeros(graph: Graph, node: Node, position: int, axis: int, count: int) -> None:
    """Append `count` zeros along an axis of the parameter at this position of the node's inputs."""
    name = node.inputs[position].node.name
    pads = [(0, count if each == axis else 0) for each in range(graph.values[name].ndim)]
    node.inputs[position] = graph.constant(name, np.pad(graph.values[name], pads))


def _groups(graph: Graph, node: Optional[Node]) -> int:
    """Returns the number of groups of a 1-D or 2-D convolution whose weights are parameters, 0 for any other node."""
    if node is None or node.op != "Convolution" or len(node.attr("kernel")) > 2 or not is_channels_first(node):
        return 0
    return int(node.attr("num_group", 1)) * all(graph.value(source) is not None for source in node.inputs[1:])


def _convolution_only(start: Node, users: Users) -> Region:
    """Returns a region of the convolution and the activation that is its only user; all users of these read a slice."""
    user = users[start][0].node if len(users[start]) == 1 else None
    preserving = [start, user] if user is not None and user.kind in ("Activation", "clip") else [start]
    return Region(preserving, [], list(users[preserving[-1]]))


def _region_of(graph: Graph, start: Node, shapes: Shapes, users: Users) -> Optional[Region]:
    """Returns the region of a convolution, or None if one of its operators cannot have additional channels.

    The region grows from the convolution to the users and the inputs of each operator in it. It ends at users that sum
    over the channels, and at any other user that reads one element of each channel, since a slice is cheap there. All
    inputs, and all other users, must keep the channels.
    """
    region, channels = Region([start], [], []), start.attr("num_filter")

    def keeps_channels(node: Node) -> bool:
        if shapes.get(node, ())[1:2] != (channels,):
            return False
        is_flatten = node.op == "Reshape" and node.attr("shape") == (0, -1)
        in_channels = {shapes.get(source.node, ())[1:2] for source in node.inputs}
        is_channelwise = (node.kind in KEEP_CHANNELS or is_flatten) and in_channels == {(channels,)}
        return is_channelwise or _groups(graph, node) in (1, channels)

    for node in region.preserving:  # the list grows in the loop
        sources = node.inputs[: _groups(graph, node) != 1] if node.op == "Convolution" else node.inputs
        neighbors = [source.node for source in sources]
        for user in users[node]:
            if user.node is not None and _sums_channels(graph, user.node, shapes.get(node, ())):
                region.summing.append(user.node)
            elif user.node is not None and (math.prod(shapes[node][2:]) > 1 or keeps_channels(user.node)):
                neighbors.append(user.node)
            elif math.prod(shapes[node][2:]) == 1:
                region.others.append(user)
            else:
                return None
        if not all(map(keeps_channels, neighbors)):
            return None
        region.preserving.extend(each for each in dict.fromkeys(neighbors) if each not in region.preserving)
    return region


def _sums_channels(graph: Graph, node: Node, shape: Shape) -> bool:
    """Returns whether a node sums over all channels of data of this shape, with a weight that is a parameter."""
    if node.op == "FullyConnected":
        has_channels_only = len(shape) == 2 or (shape[2:] == (1, 1) and node.attr("flatten", True))
        return has_channels_only and graph.value(node.inputs[1]) is not None
    return _groups(graph, node) == 1
