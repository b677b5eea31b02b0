"""Runs layers in bfloat16: in half the memory, and on a processor with bfloat16 instructions in half the time."""

from __future__ import annotations

import functools
from typing import Dict, Set

import numpy as np

from mxsame.rewriting.graph import Graph, Node, Output, Shape, Shapes, operator
from mxsame.rewriting.windows import is_channels_first

NAME, FLOAT32 = "bfloat16", "float32"
DTYPE, DTYPE_CODE = np.dtype([(NAME, np.uint16)]), "12"  # how MXNet's arrays and MXNet's files store bfloat16
COPY_SUFFIX = f":{NAME}"  # a parameter's copy in bfloat16 has the parameter's name with this suffix
LAYERS = ("Convolution", "FullyConnected")
KEEP_TYPE = {  # op -> (attribute, values for which the operator runs in the type of its data)
    **dict.fromkeys(("elemwise_add", "Concat", "BlockGrad", "_backward_Activation", "broadcast_axis"), ("", (None,))),
    "Activation": ("act_type", ("relu", "sigmoid", "tanh", "softrelu")),
    "LeakyReLU": ("act_type", ("leaky", "elu", "gelu", None)),
    "Pooling": ("pool_type", ("max", "avg", None)),
}
MIN_CHANNELS = 16  # a layer with fewer input channels is not faster in bfloat16
MIN_MACS = 1e7  # a graph with fewer multiply-adds in such layers is not faster
MACS_PER_CAST = 128  # a subgraph with fewer multiply-adds for each element that is cast is not faster


def to_bfloat16(graph: Graph) -> None:
    """Let layers, and operators that oneDNN runs after them, compute in bfloat16, with casts at both ends. Parameters
    get copies, whose names end with `COPY_SUFFIX`. A graph that would not be faster is not changed."""
    shapes, layers = graph.shapes(), (node for node in graph.nodes() if _is_layer(graph, node))
    macs = {node: _macs(graph, node, shapes.get(node, (0,))) for node in layers}
    if sum(macs.values()) < MIN_MACS:
        return
    in_bfloat16 = _profitable_subgraphs(graph, macs, shapes)

    @functools.lru_cache(maxsize=None)
    def cast(source: Output, dtype: str) -> Output:
        name, value = f"{source.node.name}:{dtype}", graph.value(source)
        if value is None:
            return operator("amp_cast", f"{name}{source.index}", source, dtype=dtype)
        return operator("null", name, __shape__=value.shape, __dtype__=DTYPE_CODE)

    for node in graph.nodes():
        if node in in_bfloat16 and node.attr("global_pool", False):  # oneDNN needs a kernel here, too
            node.attrs["kernel"] = str((1,) * (len(shapes[node]) - 2))
        for position, source in enumerate(node.inputs):
            if (node in in_bfloat16) != (source.node in in_bfloat16):
                node.inputs[position] = cast(source, NAME if node in in_bfloat16 else FLOAT32)
    graph.outputs = [cast(output, FLOAT32) if output.node in in_bfloat16 else output for output in graph.outputs]


def _profitable_subgraphs(graph: Graph, macs: Dict[Node, float], shapes: Shapes) -> Set[Node]:
    """Returns the nodes of all subgraphs that save more time than their casts take. A subgraph consists of layers and
    all operators that can follow them in bfloat16."""
    subgraphs: Dict[Node, Set[Node]] = {}
    for node in graph.nodes():
        adjacent = [subgraphs[source] for source, _ in node.inputs if source in subgraphs]
        if macs.get(node) or (adjacent and (node in macs or _keeps_type(node))):
            subgraph = {node}.union(*adjacent)
            subgraphs.update(dict.fromkeys(subgraph, subgraph))
    in_bfloat16, users = set(), graph.users()
    for subgraph in {id(each): each for each in subgraphs.values()}.values():
        sources = {source for node in subgraph for source, _ in node.inputs} - subgraph
        cast = {source for source in sources if graph.value(Output(source)) is None}
        cast |= {node for node in subgraph if any(user.node not in subgraph for user in users[node])}
        elements = sum(np.prod(shapes.get(node, ())) for node in cast)
        if sum(macs.get(node, 0) for node in subgraph) >= MACS_PER_CAST * elements:
            in_bfloat16 |= subgraph
    return in_bfloat16


def is_copy(name: str) -> bool:
    """Returns whether a variable with this name is the copy of a parameter in bfloat16."""
    return name.endswith(COPY_SUFFIX)


def _is_layer(graph: Graph, node: Node) -> bool:
    """Returns whether the node is a convolution or dense layer whose weight and bias are parameters."""
    arrays = [graph.value(source) for source in node.inputs[1:]]
    return node.op in LAYERS and is_channels_first(node) and all(array is not None for array in arrays)


def _macs(graph: Graph, node: Node, shape: Shape) -> float:
    """Returns the multiply-adds of a layer for an output of this shape; 0 if the layer is not faster in bfloat16."""
    weight, groups = graph.values[node.inputs[1].node.name], int(node.attr("num_group", 1))
    is_faster = weight.shape[1] * groups >= MIN_CHANNELS and (weight.shape[1] > 1 or groups == 1)
    return float(np.prod(shape)) * weight.size / len(weight) if is_faster else 0


def _keeps_type(node: Node) -> bool:
    """Returns whether an operator runs in the type of its data."""
    if node.op == "clip":  # oneDNN runs it only as a part of a convolution
        return node.inputs[0].node.op == "Convolution" and node.attr("a_min") == 0
    if node.op == "Convolution":  # a sum that `onednn.fuse_gates` added
        return node.inputs[1].node.op == "_full"
    name, values = KEEP_TYPE.get(node.op, ("", ()))
    return node.attr(name) in values and is_channels_first(node)
