"""Graphs that are trained: the same values and gradients, from operators that MXNet runs faster on the CPU."""

from __future__ import annotations

from typing import Collection, Dict, Mapping, Optional, Sequence

import numpy as np

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.plan.arrays import COPY
from mxsame.plan.costs import has_avx512
from mxsame.rewriting import canonical
from mxsame.rewriting.graph import Graph, Node, Output, User, entries
from mxsame.rewriting.onednn import copy_to_plain, depthwise, full
from mxsame.rewriting.windows import is_channels_first

# in the layout of their data, forward and backward; the last two may be in place
IN_BLOCKS = ("Activation", "LeakyReLU", "Dropout", "identity", "add", "maximum_scalar", "minimum_scalar")
NORM_RELU = "_contrib_BatchNormWithReLU"
HIGHEST = 8.0  # bound, which rounds what is below it to 2.4e-7
MANY = 100  # products for each element of a 1x1 convolution's data and output, from which it is worth transposing them
Shapes = Dict[Node, tuple]  # of first outputs in float32


def speed_up(graph: Graph, trains: bool) -> None:
    """Runs all passes, for the CPU; `trains` is whether batch norms are trained. A graph with casts of
    `mxnet.contrib.amp` stays as it is."""
    if any(node.op == "amp_cast" for node in graph.nodes()):
        return
    single = {output for output, dtype in graph.dtypes().items() if dtype is np.float32}
    bounds(graph, single)
    if trains and tensors.has_onednn() and has_avx512():
        # What a net has for graphs that are not rewritten is slow where it is not needed.
        graph.replace({Output(node): node.inputs[0] for node in graph.nodes() if _is_spare(node)})
        outputs = list(map(Output, graph.nodes()))
        inferred = tensors.infer_shapes(graph.symbol(outputs), graph.inputs) or ()
        shapes_of = {output.node: shape for output, shape in zip(outputs, inferred) if shape and output in single}
        for change in (multiply, densify, bend, extend, separate):
            change(graph, shapes_of)


def bounds(graph: Graph, single: Collection[Output]) -> None:
    """Write `clip` as a maximum of a minimum, which takes a quarter of the time forward and backward. Gradients are the
    same, at the bounds as well, where both pass them on. This is for outputs in float32."""
    for node in graph.nodes():
        low, high = (float(np.float32(node.attrs.get(name, 0))) for name in ("a_min", "a_max"))
        if node.op == "clip" and low <= high and node.inputs[0] in single:
            attrs = {name: value for name, value in node.attrs.items() if name not in ("a_min", "a_max")}
            below = Node("_minimum_scalar", f"{node.name}_below", node.inputs, {**attrs, "scalar": repr(high)})
            node.op, node.attrs, node.inputs = "_maximum_scalar", {**attrs, "scalar": repr(low)}, [Output(below)]


def multiply(graph: Graph, shapes: Shapes) -> None:
    """Multiply images by a number for each channel (squeeze and excite) as arrays of one shape, since the gradient of
    `broadcast_mul` takes three times as long; and copy a batch norm that swish multiplies by its sigmoid out of the
    blocks once, not at each use."""
    for node in graph.nodes():
        for data, factor in (node.inputs, node.inputs[::-1]) if node.kind == "multiply" else ():
            shape = () if data.index or factor.index else shapes.get(data.node, ())
            if node.op == "broadcast_mul" and len(shape) == 4 and shapes.get(factor.node) == (*shape[:2], 1, 1):
                node.op, node.inputs = "elemwise_mul", [data, _spread(data, factor)]
                break
            is_sigmoid = factor.node.op == "Activation" and factor.node.attr("act_type") == "sigmoid"
            if is_sigmoid and factor.node.inputs == [data] and data.node.op == "BatchNorm":
                plain = copy_to_plain(data, f"{node.name}_plain")
                factor.node.inputs, node.inputs = [plain], [plain, factor]
                break


def _spread(data: Output, factor: Output) -> Output:
    """A number for each channel in every pixel: as a product with ones, whose gradient is one, too."""
    with mx.util.np_array(False):
        F, x, by = mx.sym, mx.sym.var("data"), mx.sym.var("factor")
        ones = F.reshape(F.ones_like(F.slice_axis(F.slice_axis(x, 0, 0, 1), 1, 0, 1)), shape=(1, -1))
        spread = Graph.of(F.reshape_like(F.dot(F.reshape(by, shape=(-1, 1)), ones), x), {}, {})
    given = {"data": data, "factor": factor}
    spread.replace({Output(node): given[node.name] for node in spread.nodes() if node.op == "null"})
    return spread.outputs[0]


def densify(graph: Graph, shapes: Shapes) -> None:
    """Write 1x1 convolutions of many channels as dense layers, if they are multiples of 8 and not all of 16: oneDNN's
    matrix product uses AVX-512 then, and its convolution does not."""
    for node in graph.nodes():
        channels = [shapes.get(each, (0, 0))[1] for each in (node.inputs[0].node, node)] if _is_point(node) else [0]
        if _block_of(channels) == 8 and np.prod(channels) > MANY * sum(channels):
            last = Output(Node("transpose", f"{node.name}_last", node.inputs[:1], {"axes": "(0, 2, 3, 1)"}))
            weight = Output(Node("Reshape", f"{node.name}_matrix", node.inputs[1:2], {"shape": "(0, -1)"}))
            attrs = {"num_hidden": str(channels[1]), "flatten": "False", "no_bias": str(len(node.inputs) < 3)}
            products = Node("FullyConnected", f"{node.name}_products", [last, weight, *node.inputs[2:]], attrs)
            node.op, node.inputs, node.attrs = "transpose", [Output(products)], {"axes": "(0, 3, 1, 2)"}


def _is_point(node: Node) -> bool:
    """Whether a node is a 1x1 convolution of pictures without stride, pad and groups."""
    is_alone = _has(node, "stride", 1) and _has(node, "pad", 0) and node.attr("num_group", 1) == 1
    return node.op == "Convolution" and node.attr("kernel") == (1, 1) and is_alone and is_channels_first(node)


def _has(node: Node, name: str, *values: int) -> bool:
    """Whether an attribute with an entry for each axis has only these, or is not given."""
    return set(entries(node.attr(name))) <= set(values)


def bend(graph: Graph, shapes: Shapes) -> None:
    """Write ReLU6 of a batch norm, min(y, 6) and a ReLU, as max(6 - max(6 - y, 0), 0) in oneDNN's blocks, which
    MXNet's minimum leaves, forward and backward: the batch norm gives 6 - y, with the first ReLU in the same step, and
    a depthwise convolution subtracts.

    That step fails if its gradient is in other blocks than its data, and is wrong if only the gradient is in blocks. So
    it is used after convolutions that oneDNN has in these blocks at any size."""
    users = graph.users()
    for node in users:
        chain = [node]
        for kind in ("Activation", "minimum_scalar", "batch_norm", "Convolution"):
            if chain[-1].kind == kind and chain[-1].inputs:
                chain.append(chain[-1].inputs[0].node)
        if len(chain) < 5 or any(len(users[each]) > 1 for each in chain[1:4]) or not _is_trained(chain[2]):
            continue
        _, minimum, norm, convolution, _ = chain
        bound, channels = float(minimum.attr("scalar")), shapes.get(norm, (0, 0))[1]
        fits = node.attr("act_type") == "relu" and 0 < bound <= HIGHEST and _is_sure(convolution, shapes)
        if fits and 1 < _block(convolution, shapes, convolution) == _block_of([channels]):
            scale = Output(Node("negative", f"{node.name}_scale", norm.inputs[1:2]))
            shift = Output(Node("_rminus_scalar", f"{node.name}_shift", norm.inputs[2:3], {"scalar": repr(bound)}))
            norm.op, norm.inputs[1:3] = NORM_RELU, [scale, shift]
            weight, bias = full(f"{node.name}_minus", (channels, 1, 1, 1), -1), full(node.name, (channels,), bound)
            rest = Node("Convolution", f"{node.name}_rest", [Output(norm), weight, bias], depthwise(channels, (1, 1)))
            node.inputs, shapes[rest] = [Output(rest)], shapes[norm]


def _is_trained(norm: Node) -> bool:
    """Whether a node is a batch norm of channels by their own statistics, with a scale."""
    is_fixed = norm.attr("fix_gamma", True) or norm.attr("use_global_stats", False)
    return norm.op == "BatchNorm" and not is_fixed and norm.attr("axis", 1) == 1


def _is_sure(convolution: Node, shapes: Shapes) -> bool:
    """Whether oneDNN's choice of blocks for the output depends on the channels only."""
    before = shapes.get(convolution.inputs[0].node, (0, 0))[1]
    is_small = _has(convolution, "kernel", 1) and _has(convolution, "pad", 0)
    is_small |= _has(convolution, "kernel", 3) and _has(convolution, "pad", 0, 1) and _has(convolution, "dilate", 1)
    return is_small and (before not in range(4, 16) or convolution.attr("num_group", 1) == before)


def extend(graph: Graph, shapes: Shapes) -> None:
    """Put the extra padding elements of both axes after data in blocks by a depthwise convolution whose kernel has a
    single 1: it stays in the blocks, forward and backward, which a concatenation leaves."""
    for node in graph.nodes():
        rows = _appended(node, 3)
        data = rows and _appended(rows.node, 2)
        if not data:
            continue
        source, channels = data.node, shapes.get(data.node, (0, 0))[1]
        while source.op in ("Activation", "BatchNorm"):
            source = source.inputs[0].node
        if source.op == "Convolution" and 1 < _block(source, shapes, source) == _block_of([channels]):
            one = full(f"{node.name}_one", (channels, 1, 1, 1), 1)
            pads = {"mode": "constant", "pad_width": "(0, 0, 0, 0, 1, 0, 1, 0)"}
            kernel = Output(Node("Pad", f"{node.name}_kernel", [one], pads))
            node.op, node.inputs = "Convolution", [data, kernel]
            node.attrs = depthwise(channels, (2, 2), pad="(1, 1)", no_bias="True")


def _appended(node: Node, axis: int) -> Optional[Output]:
    """To what a node appends zeros, one along this axis; None if it does not."""
    zeros = node.inputs[-1].node if node.op == "Concat" and len(node.inputs) == 2 else node
    part = zeros.inputs[0].node if zeros.op == "zeros_like" else node
    is_one = part.op == "slice_axis" and [part.attr(name) for name in ("axis", "begin", "end")] == [axis, 0, 1]
    return node.inputs[0] if is_one and node.attr("dim") == axis and part.inputs[0] == node.inputs[0] else None


def separate(graph: Graph, shapes: Shapes) -> None:
    """Let each batch norm have its gradient in the plain layout, if oneDNN would have it in other blocks than the data,
    for which it has only slow code: a hundred times slower, and the model zoo's MobileNetV2 trains three times slower.
    The gradient of a slice, of everything here, is plain."""
    users = graph.users()
    norms = (node for node in users if node.op == "BatchNorm" and _meets_others(node, users, shapes))
    graph.replace({Output(node): copy_to_plain(Output(node), f"{node.name}_plain") for node in norms})


def _is_spare(node: Node) -> bool:
    """Whether a node is a slice of everything, of a batch norm."""
    return canonical.takes_all(node) and COPY not in node.attrs and node.inputs[0].node.op == "BatchNorm"


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
    return _block_of(lengths) or int(groups > 1)


def _block_of(lengths: Sequence[int]) -> int:
    """How many channels are in a block, if these lengths are made of whole ones; 0 if they are not."""
    fitting = (size for size in (16, 8) if all(length > 0 and not length % size for length in lengths))
    return next(fitting, 0)
