"""Layers in bfloat16: half the memory and twice the products, on a processor that multiplies it."""

from __future__ import annotations

from typing import Dict, Set, Tuple

import numpy as np

from mxsame.rewriting.graph import Graph, Node, Output
from mxsame.rewriting.windows import is_channels_first

NAME, SINGLE = "bfloat16", "float32"
TYPE, CODE = np.dtype([(NAME, np.uint16)]), "12"  # MXNet's type, and what its files call it
COPY = f":{NAME}"  # how the name of a parameter's copy ends
LAYERS = ("Convolution", "FullyConnected")
KEEPERS = {  # what runs in the type of its data: operators, with an attribute and its values
    **dict.fromkeys(("elemwise_add", "Concat", "BlockGrad", "_backward_Activation", "broadcast_axis"), ("", (None,))),
    "Activation": ("act_type", ("relu", "sigmoid", "tanh", "softrelu")),
    "LeakyReLU": ("act_type", ("leaky", "elu", "gelu", None)),
    "Pooling": ("pool_type", ("max", "avg", None)),
}
# What gains more than casts cost: layers with as many channels of data, in a graph that adds up as many products, and
# in a part of it with as many for each element that is cast.
CHANNELS, PRODUCTS, PER_ELEMENT = 16, 1e7, 128


def narrow(graph: Graph) -> None:
    """Let layers, and what oneDNN runs after them, compute in bfloat16, with casts where that begins and ends.
    Parameters get copies, whose names end with `COPY`. A graph that would not gain stays as it is."""
    shapes = graph.shapes()
    products = {
        node: _products(graph, node, shapes.get(node, (0,))) for node in graph.nodes() if _is_layer(graph, node)
    }
    if sum(products.values()) < PRODUCTS:
        return
    narrowed = _that_gain(graph, products, shapes)
    casts: Dict[Tuple[Output, str], Output] = {}

    def cast(source: Output, dtype: str) -> Output:
        name, value = f"{source.node.name}:{dtype}", graph.value(source)
        if value is None:
            made = Node("amp_cast", f"{name}{source.index}", [source], {"dtype": dtype})
        else:
            made = Node("null", name, [], {"__shape__": str(value.shape), "__dtype__": CODE})
        return casts.setdefault((source, dtype), Output(made))

    for node in graph.nodes():
        if node in narrowed and node.attr("global_pool", False):  # which oneDNN runs with a kernel only
            node.attrs["kernel"] = str((1,) * (len(shapes[node]) - 2))
        for position, source in enumerate(node.inputs):
            if (node in narrowed) != (source.node in narrowed):
                node.inputs[position] = cast(source, NAME if node in narrowed else SINGLE)
    graph.outputs = [cast(output, SINGLE) if output.node in narrowed else output for output in graph.outputs]


def _that_gain(graph: Graph, products: Dict[Node, float], shapes: Dict[Node, tuple]) -> Set[Node]:
    """The nodes of those parts of the graph, from layers to all that can follow them, that gain more than their casts
    cost."""
    parts: Dict[Node, Set[Node]] = {}
    for node in graph.nodes():
        before = [parts[source] for source, _ in node.inputs if source in parts]
        if products.get(node) or (before and (node in products or _keeps_type(node))):
            part = {node}.union(*before)
            parts.update(dict.fromkeys(part, part))
    narrowed, users = set(), graph.users()
    for part in {id(part): part for part in parts.values()}.values():
        cast = {source for node in part for source, _ in node.inputs if graph.value(Output(source)) is None} - part
        cast |= {node for node in part if any(user.node not in part for user in users[node])}
        elements = sum(np.prod(shapes.get(node, ())) for node in cast)
        if sum(products.get(node, 0) for node in part) >= PER_ELEMENT * elements:
            narrowed |= part
    return narrowed


def is_copy(name: str) -> bool:
    """Whether it is the name of a parameter's copy."""
    return name.endswith(COPY)


def _is_layer(graph: Graph, node: Node) -> bool:
    own = [graph.value(source) for source in node.inputs[1:]]
    return node.op in LAYERS and is_channels_first(node) and all(each is not None for each in own)


def _products(graph: Graph, node: Node, shape: tuple) -> float:
    """How many products a layer adds up for an output of this shape; 0 if it would not gain by itself."""
    weight, groups = graph.values[node.inputs[1].node.name], int(node.attr("num_group", 1))
    gains = weight.shape[1] * groups >= CHANNELS and (weight.shape[1] > 1 or groups == 1)
    return float(np.prod(shape)) * weight.size / len(weight) if gains else 0


def _keeps_type(node: Node) -> bool:
    if node.op == "clip":  # only together with a convolution
        return node.inputs[0].node.op == "Convolution" and float(node.attr("a_min")) == 0
    if node.op == "Convolution":
        return node.inputs[1].node.op == "_full"  # sums
    name, values = KEEPERS.get(node.op, ("", ()))
    return node.attr(name) in values and is_channels_first(node)
