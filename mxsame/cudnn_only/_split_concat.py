"""Concatenations of channels are split: what follows one works on its parts, until a convolution adds them up.

    conv(concat(a, b), W) = conv(a, W[:, :A]) + conv(b, W[:, A:])

where A are the channels of a. In between, what treats every channel by itself is applied to each part.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

import numpy as np

from mxsame.rewriting import Graph, Node, Output, is_channels_first

CHANNELWISE = ("Activation", "Pooling")
Parts = Dict[Node, List[Output]]  # of every node whose output only exists in parts


def split(graph: Graph) -> None:
    """Split every concatenation of channels, as far as what follows it can be split; the others stay."""
    splitting = _Splitting(graph)
    for node in graph.nodes():
        splitting.visit(node)


class _Splitting:
    def __init__(self, graph: Graph):
        self._graph, self._shapes = graph, graph.shapes()
        self._parts: Parts = {}

    def visit(self, node: Node) -> None:
        """Apply a node to the parts of its data, if that is possible."""
        if node.op == "Concat" and node.attr("dim", 1) == 1:
            self._parts[node] = [part for source in node.inputs for part in self._parts.get(source.node, [source])]
            return
        parts = self._parts.get(node.inputs[0].node) if node.inputs else None
        if parts is None or not is_channels_first(node):
            return
        if node.op in CHANNELWISE:
            self._parts[node] = [self._on_part(node, index, [part]) for index, part in enumerate(parts)]
        elif node.op == "elemwise_add":
            others = self._parts.get(node.inputs[1].node, [])
            if [self._shapes[other.node] for other in others] == [self._shapes[part.node] for part in parts]:
                pairs = enumerate(zip(parts, others))
                self._parts[node] = [self._on_part(node, index, list(pair)) for index, pair in pairs]
        elif node.op == "Convolution":
            self._convolution(node, parts)

    def _convolution(self, node: Node, parts: Sequence[Output]) -> None:
        weight, *bias = (self._graph.value(source) for source in node.inputs[1:])
        if weight is None:
            return
        if int(node.attr("num_group", 1)) == 1:
            self._graph.replace(node, self._added(node, parts, weight))
        elif weight.shape[1] == 1 and not any(value is None for value in bias):
            self._parts[node] = self._depthwise(node, parts, [weight, *bias])

    def _added(self, node: Node, parts: Sequence[Output], weight: np.ndarray) -> Output:
        """A convolution as the sum of those of the parts; the first has the bias."""
        total: Optional[Output] = None
        for index, (part, channels) in enumerate(zip(parts, self._channels(parts))):
            inputs = [part, self._graph.constant(f"{node.name}_weight", weight[:, channels])]
            attrs = dict(node.attrs)
            if total is None:
                inputs += node.inputs[2:]
            else:
                attrs["no_bias"] = "True"
            each = self._new(Node("Convolution", f"{node.name}_part{index}", inputs, attrs), self._shapes[node])
            if total is not None:
                each = self._new(Node("elemwise_add", f"{node.name}_to{index}", [total, each]), self._shapes[node])
            total = each
        assert total is not None
        return total

    def _depthwise(self, node: Node, parts: Sequence[Output], arrays: Sequence[np.ndarray]) -> List[Output]:
        """A convolution of every channel by itself: each part with its share of the weights."""
        multiplier, found = len(arrays[0]) // int(node.attr("num_group")), []
        for index, (part, channels) in enumerate(zip(parts, self._channels(parts))):
            share, count = (
                slice(channels.start * multiplier, channels.stop * multiplier),
                channels.stop - channels.start,
            )
            inputs = [part, *(self._graph.constant(f"{node.name}_share", array[share]) for array in arrays)]
            attrs = {**node.attrs, "num_filter": str(count * multiplier), "num_group": str(count)}
            shape = (*self._shapes[node][:1], count * multiplier, *self._shapes[node][2:])
            found.append(self._new(Node("Convolution", f"{node.name}_part{index}", inputs, attrs), shape))
        return found

    def _channels(self, parts: Sequence[Output]) -> List[slice]:
        """The channels of each part in the concatenation."""
        ends = np.cumsum([self._shapes[part.node][1] for part in parts]).tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends)]

    def _on_part(self, node: Node, index: int, inputs: List[Output]) -> Output:
        """The node once more, applied to a part."""
        shape = (*self._shapes[node][:1], self._shapes[inputs[0].node][1], *self._shapes[node][2:])
        return self._new(Node(node.op, f"{node.name}_part{index}", inputs, dict(node.attrs)), shape)

    def _new(self, node: Node, shape: tuple) -> Output:
        self._shapes[node] = shape
        return Output(node)
