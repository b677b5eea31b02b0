"""Layers in bfloat16, which take half the memory and half the time, on a processor that multiplies it."""

from __future__ import annotations

import functools
from typing import Dict, Set

import numpy as np

from mxsame.rewriting.graph import Graph, Node, Output, Shape, Shapes, operator
from mxsame.rewriting.windows import is_channels_first

NAME, FLOAT32 = "bfloat16", "float32"
DTYPE, DTYPE_CODE = np.dtype([(NAME, np.uint16)]), "12"  # MXNet's type, and its number in MXNet's files
COPY_SUFFIX = f":{NAME}"  # the end of the name of a parameter's copy
LAYERS = ("Convolution", "FullyConnected")
KEEP_TYPE = {  # operators that run in the type of their data, with an attribute and the values for which they do
    **dict.fromkeys(("elemwise_add", "Concat", "BlockGrad", "_backward_Activation", "broadcast_axis"), ("", (None,))),
    "Activation": ("act_type", ("relu", "sigmoid", "tanh", "softrelu")),
    "LeakyReLU": ("act_type", ("leaky", "elu", "gelu", None)),
    "Pooling": ("pool_type", ("max", "avg", None)),
}
MIN_CHANNELS = 16  # input channels from which a layer is faster in bfloat16
MIN_PRODUCTS = 1e7  # multiply-adds of such layers from which a graph is faster
MACS_PER_CAST = 128  # products for each element that is cast, if a part of a graph gains


def to_bfloat16(graph: Graph) -> None:
    """Let layers, and operators that oneDNN runs after them, compute in bfloat16, with casts at both ends. Parameters
    get copies, whose names end with `COPY_SUFFIX`. A graph that would not gain stays as it is."""
    shapes, layers = graph.shapes(), (node for node in graph.nodes() if _is_layer(graph, node))
    products = {node: _products(graph, node, shapes.get(node, (0,))) for node in layers}
    if sum(products.values()) < MIN_PRODUCTS:
        return
    in_bfloat16 = _profitable_subgraphs(graph, products, shapes)

    @functools.lru_cache(maxsize=None)
    def cast(source: Output, dtype: str) -> Output:
        name, value = f"{source.node.name}:{dtype}", graph.value(source)
        if value is None:
            return operator("amp_cast", f"{name}{source.index}", source, dtype=dtype)
        return operator("null", name, __shape__=value.shape, __dtype__=DTYPE_CODE)

    for node in graph.nodes():
        if node in in_bfloat16 and node.attr("global_pool", False):  # oneDNN runs it only with a kernel
            node.attrs["kernel"] = str((1,) * (len(shapes[node]) - 2))
        for position, source in enumerate(node.inputs):
            if (node in in_bfloat16) != (source.node in in_bfloat16):
                node.inputs[position] = cast(source, NAME if node in in_bfloat16 else FLOAT32)
    graph.outputs = [cast(output, FLOAT32) if output.node in in_bfloat16 else output for output in graph.outputs]


def _profitable_subgraphs(graph: Graph, products: Dict[Node, float], shapes: Shapes) -> Set[Node]:
    """Returns the nodes of all parts of the graph that gain more than their casts cost. A part has layers, and all
    operators that can follow them in bfloat16."""
    parts: Dict[Node, Set[Node]] = {}
    for node in graph.nodes():
        before = [parts[source] for source, _ in node.inputs if source in parts]
        if products.get(node) or (before and (node in products or _keeps_type(node))):
            part = {node}.union(*before)
            parts.update(dict.fromkeys(part, part))
    in_bfloat16, users = set(), graph.users()
    for part in {id(part): part for part in parts.values()}.values():
        cast = {source for node in part for source, _ in node.inputs if graph.value(Output(source)) is None} - part
        cast |= {node for node in part if any(user.node not in part for user in users[node])}
        elements = sum(np.prod(shapes.get(node, ())) for node in cast)
        if sum(products.get(node, 0) for node in part) >= MACS_PER_CAST * elements:
            in_bfloat16 |= part
    return in_bfloat16


def is_copy(name: str) -> bool:
    """Returns whether it is the name of a parameter's copy."""
    return name.endswith(COPY_SUFFIX)


def _is_layer(graph: Graph, node: Node) -> bool:
    """Returns whether it is a convolution or dense layer over parameters."""
    own = [graph.value(source) for source in node.inputs[1:]]
    return node.op in LAYERS and is_channels_first(node) and all(each is not None for each in own)


def _products(graph: Graph, node: Node, shape: Shape) -> float:
    """Returns the multiply-adds of a layer for an output of this shape; 0 if the layer is not faster in bfloat16."""
    weight, groups = graph.values[node.inputs[1].node.name], int(node.attr("num_group", 1))
    gains = weight.shape[1] * groups >= MIN_CHANNELS and (weight.shape[1] > 1 or groups == 1)
    return float(np.prod(shape)) * weight.size / len(weight) if gains else 0


def _keeps_type(node: Node) -> bool:
    """Returns whether an operator runs in the type of its data."""
    if node.op == "clip":  # only if it is fused with a convolution
        return node.inputs[0].node.op == "Convolution" and node.attr("a_min") == 0
    if node.op == "Convolution":
        return node.inputs[1].node.op == "_full"  # the sums of `mxsame.rewriting.onednn.fuse_gates`
    name, values = KEEP_TYPE.get(node.op, ("", ()))
    return node.attr(name) in values and is_channels_first(node)
