"""Graphs that are trained: the same values and gradients, from operators that MXNet runs faster on the CPU."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np

from mxsame import tensors
from mxsame.plan.arrays import COPY
from mxsame.plan.costs import has_avx512
from mxsame.rewriting.graph import Graph, Node, Output, User
from mxsame.rewriting.onednn import copied
from mxsame.rewriting.windows import is_channels_first

# in the layout of their data, forward and backward; the last two may be in place
IN_BLOCKS = ("Activation", "LeakyReLU", "Dropout", "identity", "add", "maximum_scalar", "minimum_scalar")


def faster(symbol: Any, shapes: Mapping[str, Sequence[int]], trains: bool) -> Any:
    """The Symbol, for inputs of these shapes, on the CPU; `trains` is whether batch norms are trained. A graph with
    casts of `mxnet.contrib.amp` stays as it is, since a `Graph` has none."""
    written = symbol.tojson(remove_amp_cast=False)
    ops = ("clip", "BatchNorm") if trains else ("clip",)
    if not any(f'"op": "{op}"' in written for op in ops) or "amp_cast" in written:
        return symbol
    graph = Graph.of(symbol, {}, shapes)
    bounds(graph)
    if trains and has_avx512():
        separate(graph)
    return graph.symbol()


def bounds(graph: Graph) -> None:
    """Write `clip` as a maximum of a minimum, which takes a quarter of the time forward and backward. Gradients are the
    same, at the bounds as well, where both pass them on."""
    types = graph.dtypes()
    for node in graph.nodes():
        low, high = (float(np.float32(node.attrs.get(name, 0))) for name in ("a_min", "a_max"))
        if node.op == "clip" and low <= high and types.get(node.inputs[0]) is np.float32:
            attrs = {name: value for name, value in node.attrs.items() if name not in ("a_min", "a_max")}
            below = Node("_minimum_scalar", f"{node.name}_below", node.inputs, {**attrs, "scalar": repr(high)})
            node.op, node.attrs, node.inputs = "_maximum_scalar", {**attrs, "scalar": repr(low)}, [Output(below)]


def separate(graph: Graph) -> None:
    """Let each batch norm have its gradient in the plain layout, if oneDNN would have it in other blocks than the data,
    for which it has only slow code: a hundred times slower, and the model zoo's MobileNetV2 trains three times slower.
    The gradient of a slice, of everything here, is plain. One that a net has after a batch norm, for graphs that are
    not rewritten, goes: it is slow where it is not needed (MobileNet trains in 0.86 of the time without)."""
    graph.replace({Output(node): node.inputs[0] for node in graph.nodes() if _is_spare(node)})
    outputs, users = list(map(Output, graph.nodes())), graph.users()
    inferred = tensors.infer_shapes(graph.symbol(outputs), graph.inputs) or ()
    shapes = {output.node: shape for output, shape in zip(outputs, inferred) if shape}
    norms = (node for node in users if node.op == "BatchNorm" and _meets_others(node, users, shapes))
    graph.replace({Output(node): copied(Output(node), f"{node.name}_plain") for node in norms})


def _is_spare(node: Node) -> bool:
    """Whether a node is a slice of everything, of a batch norm."""
    is_whole = node.op == "slice_axis" and node.attr("begin") == 0 and node.attr("end") is None
    return is_whole and COPY not in node.attrs and node.inputs[0].node.op == "BatchNorm"


def _meets_others(norm: Node, users: Mapping[Node, Sequence[User]], shapes: Mapping[Node, tuple]) -> bool:
    """Whether a batch norm's data is the output of a convolution in blocks, and is read by an operator with others."""
    before = norm.inputs[0].node
    block, nodes = _block(before, shapes, before), [norm]
    for each in nodes if block > 1 else ():  # which grows
        for user, _ in users[each]:
            if user is not None and user.kind in IN_BLOCKS:
                nodes += [user] * (user not in nodes)
            elif user is not None and _block(user, shapes, each) not in (0, block):
                return True
    return False


def _block(node: Node, shapes: Mapping[Node, tuple], array: Node) -> int:
    """How many channels oneDNN has in a block of an array, the output or the data of an operator on pictures, with
    AVX-512; 0 if there are no blocks, or any, and 1 for a grouped convolution without blocks."""
    shape, groups = shapes.get(node, ()), int(node.attr("num_group", 1))
    if len(shape) != 4 or not is_channels_first(node):
        return 0
    if node.op in ("Convolution", "Deconvolution"):
        before = shapes.get(node.inputs[0].node, (0, 0))[1]
        lengths = [before // groups, shape[1] // groups]
        # depthwise, or of a picture
        if groups == before == shape[1] or (groups == 1 and before < 16 and array is node):
            lengths = [shape[1]]
    elif node.op == "Pooling" and node.attr("global_pool", False):
        lengths = [shape[1]]
    else:
        return 0
    fitting = (size for size in (16, 8) if all(length > 0 and not length % size for length in lengths))
    return next(fitting, int(groups > 1))
