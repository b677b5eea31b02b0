"""Concatenations of channels taken apart: what follows one works on its parts, until a convolution adds them up.

    conv(concat(a, b), W) = conv(a, W[:, :A]) + conv(b, W[:, A:])

where A are the channels of a. What treats every channel by itself, in between, is done to each part.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

import numpy as np

from mxsame._rewrite import _scales
from mxsame._rewrite._graph import Graph, Node, Output

CHANNELWISE = ("Activation", "Pooling")
Parts = Dict[Node, List[Output]]  # of every node whose output is only there in parts


def part(graph: Graph) -> None:
    """Take apart every concatenation of channels, as far as what follows it can be; the rest of them stay."""
    shapes, parts = graph.shapes(), {}
    for node in graph.nodes():
        if node.op == "Concat" and node.attr("dim", 1) == 1:
            parts[node] = [piece for source in node.inputs for piece in parts.get(source.node, [source])]
        elif node.inputs and node.inputs[0].node in parts:
            _follow(graph, node, parts, shapes)


def _follow(graph: Graph, node: Node, parts: Parts, shapes: dict) -> None:
    """Let a node work on the parts of its data, if it can."""
    pieces = parts[node.inputs[0].node]
    if not _scales.is_channels_first(node):
        return
    if node.op in CHANNELWISE:
        parts[node] = [_again(node, [piece], place, shapes) for place, piece in enumerate(pieces)]
    elif node.op == "elemwise_add":
        others = parts.get(node.inputs[1].node, [])
        if [shapes[each.node] for each in others] == [shapes[each.node] for each in pieces]:
            parts[node] = [_again(node, list(pair), place, shapes) for place, pair in enumerate(zip(pieces, others))]
    elif node.op == "Convolution":
        groups, weight = int(node.attr("num_group", 1)), graph.value(node.inputs[1])
        if weight is not None and groups == 1:
            graph.replace(node, _summed(graph, node, pieces, weight, shapes))
        elif weight is not None and weight.shape[1] == 1:
            found = _depthwise(graph, node, pieces, weight, shapes)
            if found is not None:
                parts[node] = found


def _summed(graph: Graph, node: Node, pieces: Sequence[Output], weight: np.ndarray, shapes: dict) -> Output:
    """A convolution as the sum of those of the parts; the first has the bias."""
    total: Optional[Output] = None
    for place, (piece, (begin, end)) in enumerate(zip(pieces, _ranges(pieces, shapes))):
        inputs = [piece, graph.constant(f"{node.name}_weight", weight[:, begin:end])]
        attrs = dict(node.attrs)
        if total is None:
            inputs += node.inputs[2:]
        else:
            attrs["no_bias"] = "True"
        each = _new(Node("Convolution", f"{node.name}_part{place}", inputs, attrs), node, shapes)
        total = (
            each if total is None else _new(Node("elemwise_add", f"{node.name}_to{place}", [total, each]), node, shapes)
        )
    assert total is not None
    return total


def _depthwise(
    graph: Graph, node: Node, pieces: Sequence[Output], weight: np.ndarray, shapes: dict
) -> Optional[List[Output]]:
    """A convolution of every channel by itself: each part with its share of the weights."""
    bias = [graph.value(source) for source in node.inputs[2:]]
    if any(value is None for value in bias):
        return None
    each, found = len(weight) // int(node.attr("num_group")), []
    for place, (begin, end) in enumerate(_ranges(pieces, shapes)):
        share = slice(begin * each, end * each)
        values = [weight[share], *(value[share] for value in bias if value is not None)]
        inputs = [pieces[place], *(graph.constant(f"{node.name}_share", value) for value in values)]
        attrs = {**node.attrs, "num_filter": str((end - begin) * each), "num_group": str(end - begin)}
        made = Node("Convolution", f"{node.name}_part{place}", inputs, attrs)
        shapes[made] = (*shapes[node][:1], (end - begin) * each, *shapes[node][2:])
        found.append(Output(made))
    return found


def _ranges(pieces: Sequence[Output], shapes: dict) -> List[tuple]:
    """(begin, end) of the channels of each part."""
    ends = np.cumsum([shapes[piece.node][1] for piece in pieces]).tolist()
    return list(zip([0, *ends], ends))


def _again(node: Node, inputs: List[Output], place: int, shapes: dict) -> Output:
    """The node once more, on a part."""
    made = Node(node.op, f"{node.name}_part{place}", inputs, dict(node.attrs))
    shapes[made] = (*shapes[node][:1], shapes[inputs[0].node][1], *shapes[node][2:])
    return Output(made)


def _new(made: Node, like: Node, shapes: dict) -> Output:
    shapes[made] = shapes[like]
    return Output(made)
