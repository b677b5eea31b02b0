"""Rewrites graphs for training on the CPU, to operators that MXNet runs faster, with the same values and gradients.

oneDNN keeps the images of convolutions in blocks of 8 or 16 channels, forward and backward. If an operator does not
support the blocks, MXNet copies its data to the plain layout, and the next convolution copies it back.
"""

from __future__ import annotations

from typing import Collection, Optional

import numpy as np

from mxsame import onednn_blocks, processor, tensors
from mxsame._mxnet import mx
from mxsame.onednn_blocks import size_for
from mxsame.rewriting import canonical
from mxsame.rewriting.graph import Graph, Node, Output, Shapes, Users, entries, operand_orders, operator
from mxsame.rewriting.operators import copy_to_plain, depthwise_attributes, full, subgraph
from mxsame.rewriting.windows import is_channels_first

NORM_RELU = "_contrib_BatchNormWithReLU"
MAX_BOUND = 8.0  # a clip with a larger bound is not written as two ReLUs, which would round by more than 2.4e-7
WITH_WRONG_GRADIENTS = ("BatchNorm", "Concat", "LeakyReLU")  # operators whose gradients may be wrong
MIN_PRODUCTS = 100  # multiplications per element of data and output above which a 1x1 convolution is worth transposing


def speed_up(graph: Graph, is_training: bool) -> None:
    """Run all passes for the CPU; `is_training` says whether batch norms use the statistics of the batch. A graph with
    casts of `mxnet.contrib.amp` is not changed."""
    if any(node.op == "amp_cast" for node in graph.nodes()):
        return
    try:
        float32_outputs = {output for output, dtype in graph.dtypes().items() if dtype is np.float32}
    except mx.base.MXNetError:  # types that do not match, which MXNet refuses when the graph runs
        return
    split_clips(graph, float32_outputs)
    if is_training and tensors.has_onednn() and processor.has("AVX512_CORE"):
        drop_copies_of_norms(graph)
        inferred = graph.shapes_of(list(map(Output, graph.nodes())))
        shapes = {output.node: shape for output, shape in inferred.items() if shape and output in float32_outputs}
        for run_pass in (multiply_gates, use_dense_layers, clip_by_relus, pad_by_convolutions, separate_blocks):
            run_pass(graph, shapes)


def work_around_gradient_bugs(graph: Graph, has_blocks: bool) -> None:
    """Rewrite operators whose gradients MXNet 1.9.1 computes wrongly or not at all; `has_blocks` says whether arrays
    may be in oneDNN's blocks, as on the CPU."""
    if has_blocks:
        copy_blocked_gradients(graph)
    expand_prelu(graph)


def copy_blocked_gradients(graph: Graph) -> None:
    """Insert copies where MXNet 1.9.1 fails on gradients in oneDNN's blocked layout.

    The gradient of a concatenation along the channels may be in blocks of 8 or 16 channels. If one of the arrays ends
    within a block, MXNet raises an error or crashes. The gradient of a copy is in the plain layout.

    A batch norm after a 1-D or 3-D convolution, or over an axis other than the channels, fails if its data or its
    gradient is in blocks."""
    nodes = graph.nodes()
    concatenations = [node for node in nodes if node.op == "Concat" and node.attr("dim", 1) in (1, -3)]
    shapes = graph.shapes_of([part for node in concatenations for part in node.inputs])
    replacements = {}
    for node in concatenations:
        part_shapes = [shapes[part] or (0,) * 4 for part in node.inputs]
        channels = [shape[1] for shape in part_shapes]
        divides_blocks = 0 in channels or size_for([sum(channels)]) > size_for([sum(channels), *channels])
        if divides_blocks and len(part_shapes[0]) == 4:  # oneDNN runs no others
            replacements[Output(node)] = copy_to_plain(Output(node), f"{node.name}_copy")
    for node in nodes:
        convolved = _convolved_axes(node) if node.op == "BatchNorm" else 0
        if convolved in (1, 3) or (convolved and node.attr("axis") != 1):
            node.inputs[0] = copy_to_plain(node.inputs[0], f"{node.name}_data")
            replacements[Output(node)] = copy_to_plain(Output(node), f"{node.name}_copy")
    graph.replace(replacements)


def expand_prelu(graph: Graph) -> None:
    """Write PReLU as relu(x) + alpha * min(x, 0). On all devices, MXNet 1.9.1 may write the data's gradient over the
    output's gradient before it computes the slope's gradient from that."""
    nodes = (node for node in graph.nodes() if node.op == "LeakyReLU" and node.attr("act_type") == "prelu")
    graph.replace({Output(node): _prelu(*node.inputs) for node in nodes})


def _convolved_axes(node: Node) -> int:
    """Returns the number of axes in the kernel of the last operator with windows before a node; 0 if there is none, or
    if an `expand_dims` comes after it."""
    while node.inputs and "kernel" not in node.attrs and node.op != "expand_dims":
        node = node.inputs[0].node
    return len(node.attr("kernel", ()))


def _prelu(data: Output, alpha: Output) -> Output:
    """Returns PReLU of data with any number of axes, the second of which are the channels."""
    with mx.util.np_array(False):
        F, x, slopes = mx.sym, mx.sym.var("data"), mx.sym.var("alpha")
        below = F.broadcast_mul(F.reshape(F.minimum(x, 0), shape=(0, 0, -1)), F.reshape(slopes, shape=(1, -1, 1)))
        return subgraph(F.relu(x) + F.reshape_like(below, x), data=data, alpha=alpha)


def split_clips(graph: Graph, float32_outputs: Collection[Output]) -> None:
    """Write `clip` of float32 data as a maximum of a minimum, which takes a quarter of the time forward and backward.
    The gradients are the same: at the bounds, both pass them on. Not for inference: there, after a batch norm, `clip`
    takes 0.6 to 1.0 of the time of the two operators."""
    for node in graph.nodes():
        low, high = (float(np.float32(node.attrs.get(name, 0))) for name in ("a_min", "a_max"))
        if node.op == "clip" and low <= high and node.inputs[0] in float32_outputs:
            attrs = {name: value for name, value in node.attrs.items() if name not in ("a_min", "a_max")}
            below = operator("_minimum_scalar", f"{node.name}_below", *node.inputs, **attrs, scalar=high)
            node.become("_maximum_scalar", below, **attrs, scalar=low)


def drop_copies_of_norms(graph: Graph) -> None:
    """Drop the copies after batch norms that layers add to bring gradients into the plain layout, for graphs that are
    not rewritten. Where a copy is needed, `separate_blocks` adds it again."""
    copies = (node for node in graph.nodes() if canonical.is_full_slice(node) and not node.is_required_copy)
    graph.replace({Output(node): node.inputs[0] for node in copies if node.inputs[0].node.op == "BatchNorm"})


def multiply_gates(graph: Graph, shapes: Shapes) -> None:
    """Speed up products of images and gates. In squeeze and excite, a gate has one number per channel: broadcast it
    before the product, since the gradient of `broadcast_mul` takes three times as long. In swish, the gate is the
    sigmoid of a batch norm's output: copy that output out of the blocks once, not at each use."""
    for node in graph.nodes():
        for data, gate in operand_orders(node):
            shape = () if data.index or gate.index else shapes.get(data.node, ())
            # With a length of 1, or unknown shapes, it is not clear which of the operands is broadcast.
            is_clear = len(shape) == 4 and 1 not in (shape[0], *shape[2:])
            if node.op == "broadcast_mul" and is_clear and shapes.get(gate.node) == (*shape[:2], 1, 1):
                node.op, node.inputs = "elemwise_mul", [data, _broadcast_by_product(data, gate)]
                break
            if gate.node.is_activation("sigmoid") and gate.node.inputs == [data] and data.node.op == "BatchNorm":
                plain = copy_to_plain(data, f"{node.name}_plain")
                gate.node.inputs, node.inputs = [plain], [plain, gate]
                break


def _broadcast_by_product(data: Output, gate: Output) -> Output:
    """Returns a gate with one number per channel, broadcast to the shape of the data by a matrix product with ones,
    whose gradient is a matrix product, too."""
    with mx.util.np_array(False):
        F, x, numbers = mx.sym, mx.sym.var("data"), mx.sym.var("gate")
        ones = F.reshape(F.ones_like(F.slice_axis(F.slice_axis(x, 0, 0, 1), 1, 0, 1)), shape=(1, -1))
        product = F.reshape_like(F.dot(F.reshape(numbers, shape=(-1, 1)), ones), x)
    return subgraph(product, data=data, gate=gate)


def use_dense_layers(graph: Graph, shapes: Shapes) -> None:
    """Write 1x1 convolutions of many channels as dense layers, if the numbers of input and output channels are
    multiples of 8, but not both of 16. For these, oneDNN uses AVX-512 in matrix products, but not in convolutions."""
    for node in graph.nodes():
        channels = [shapes.get(each, (0, 0))[1] for each in (node.inputs[0].node, node)] if _is_1x1(node) else [0]
        if size_for(channels) == onednn_blocks.MIN_BLOCK and np.prod(channels) > MIN_PRODUCTS * sum(channels):
            data, weight, *bias = node.inputs
            channels_last = operator("transpose", f"{node.name}_last", data, axes=(0, 2, 3, 1))
            matrix = operator("Reshape", f"{node.name}_matrix", weight, shape=(0, -1))
            attrs = {"num_hidden": channels[1], "flatten": False, "no_bias": not bias}
            dense = operator("FullyConnected", f"{node.name}_products", channels_last, matrix, *bias, **attrs)
            node.become("transpose", dense, axes=(0, 3, 1, 2))


def _is_1x1(node: Node) -> bool:
    """Returns whether the node is a 2-D 1x1 convolution with no stride, padding or groups."""
    is_plain = _has_only(node, "stride", 1) and _has_only(node, "pad", 0) and node.attr("num_group", 1) == 1
    return node.op == "Convolution" and node.attr("kernel") == (1, 1) and is_plain and is_channels_first(node)


def _has_only(node: Node, name: str, *values: int) -> bool:
    """Returns whether an attribute with an entry for each axis has only these values, or no value."""
    return set(entries(node.attr(name))) <= set(values)


def clip_by_relus(graph: Graph, shapes: Shapes) -> None:
    """Write ReLU6 of a batch norm as two ReLUs, which keep oneDNN's blocks, forward and backward; MXNet's minimum does
    not.

    For the batch norm's output y, max(min(y, 6), 0) is max(6 - max(6 - y, 0), 0). With a negated scale, and 6 minus the
    shift, the batch norm computes 6 - y; it is fused with the inner ReLU (`NORM_RELU`). A depthwise convolution with
    weights of -1 and biases of 6 subtracts the result from 6. The outer ReLU is the graph's own.

    `NORM_RELU` fails if its gradient and its data are in different blocks, and it is wrong if only the gradient is in
    blocks. So it is used only after convolutions whose outputs oneDNN keeps in these blocks at any size.
    """
    users = graph.users()
    for node in users:
        chain = [node]
        for kind in ("Activation", "minimum_scalar", "batch_norm", "Convolution"):
            if chain[-1].kind == kind and chain[-1].inputs:
                chain.append(chain[-1].inputs[0].node)
        if len(chain) < 5 or any(len(users[each]) > 1 for each in chain[1:4]) or not _is_trained(chain[2]):
            continue
        _, minimum, norm, convolution, _ = chain
        bound, channels = minimum.attr("scalar"), shapes.get(norm, (0, 0))[1]
        is_relu6 = node.attr("act_type") == "relu" and 0 < bound <= MAX_BOUND
        block = _block(convolution, shapes, convolution) if is_relu6 else 0
        if 1 < block == size_for([channels]) and _has_same_blocks_at_any_size(convolution, shapes):
            scale = operator("negative", f"{node.name}_scale", norm.inputs[1])
            shift = operator("_rminus_scalar", f"{node.name}_shift", norm.inputs[2], scalar=bound)
            norm.op, norm.inputs[1:3] = NORM_RELU, [scale, shift]
            weight, bias = full(f"{node.name}_minus", (channels, 1, 1, 1), -1), full(node.name, (channels,), bound)
            attrs = depthwise_attributes(channels, (1, 1))
            difference = operator("Convolution", f"{node.name}_rest", Output(norm), weight, bias, **attrs)
            node.inputs, shapes[difference.node] = [difference], shapes[norm]


def _is_trained(norm: Node) -> bool:
    """Returns whether the node is a batch norm over the channels, with statistics of the batch and a trained scale."""
    is_fixed = norm.attr("fix_gamma", True) or norm.attr("use_global_stats", False)
    return norm.op == "BatchNorm" and not is_fixed and norm.attr("axis", 1) == 1


def _has_same_blocks_at_any_size(convolution: Node, shapes: Shapes) -> bool:
    """Returns whether oneDNN's choice of blocks for the output depends only on the channels."""
    in_channels = shapes.get(convolution.inputs[0].node, (0, 0))[1]
    is_1x1 = _has_only(convolution, "kernel", 1) and _has_only(convolution, "pad", 0)
    is_3x3 = _has_only(convolution, "kernel", 3) and _has_only(convolution, "pad", 0, 1)
    is_small = is_1x1 or (is_3x3 and _has_only(convolution, "dilate", 1))
    return is_small and (in_channels not in range(4, 16) or convolution.attr("num_group", 1) == in_channels)


def pad_by_convolutions(graph: Graph, shapes: Shapes) -> None:
    """Pad blocked images at the end of both axes by a depthwise convolution with a one-hot kernel, not by two
    concatenations: the convolution keeps the blocks, forward and backward."""
    for node in graph.nodes():
        padded_rows = _data_before_zeros(node, 3)
        data = padded_rows and _data_before_zeros(padded_rows.node, 2)
        if not data:
            continue
        source, channels = data.node, shapes.get(data.node, (0, 0))[1]
        while source.op in ("Activation", "BatchNorm"):
            source = source.inputs[0].node
        if source.op == "Convolution" and 1 < _block(source, shapes, source) == size_for([channels]):
            position = full(f"{node.name}_last", (channels,), 3)  # of the 1 among the 4 weights of a channel
            one_hot = operator("one_hot", f"{node.name}_ones", position, depth=4)
            kernel = operator("Reshape", f"{node.name}_kernel", one_hot, shape=(channels, 1, 2, 2))
            node.become("Convolution", data, kernel, **depthwise_attributes(channels, (2, 2), pad=(1, 1), no_bias=True))


def _data_before_zeros(node: Node, axis: int) -> Optional[Output]:
    """Returns the data of a concatenation that adds one element of zeros at the end of the axis; otherwise None."""
    zeros = node.inputs[-1].node if node.op == "Concat" and len(node.inputs) == 2 else node
    part = zeros.inputs[0].node if zeros.op == "zeros_like" else node
    is_one = part.op == "slice_axis" and [part.attr(name) for name in ("axis", "begin", "end")] == [axis, 0, 1]
    return node.inputs[0] if is_one and node.attr("dim") == axis and part.inputs[0] == node.inputs[0] else None


def separate_blocks(graph: Graph, shapes: Shapes) -> None:
    """Insert a copy, whose gradient is in the plain layout, after each batch norm whose gradient would have other
    blocks than its data: oneDNN computes such gradients a hundred times more slowly. Without the copies, the model
    zoo's MobileNetV2 trains three times more slowly."""
    users = graph.users()
    norms = (node for node in users if node.op == "BatchNorm" and _gradient_has_other_blocks(node, users, shapes))
    graph.replace({Output(node): copy_to_plain(Output(node), f"{node.name}_plain") for node in norms})


def _gradient_has_other_blocks(norm: Node, users: Users, shapes: Shapes) -> bool:
    """Returns whether a batch norm's data is in blocks, and an operator with other blocks reads the batch norm."""
    source = norm.inputs[0].node
    block, nodes = _block(source, shapes, source), [norm]
    for each in nodes if block > 1 else ():  # the list grows in the loop
        for user, _ in users[each]:
            if user is not None and user.kind in onednn_blocks.KEEP_IN_TRAINING:
                nodes += [user] * (user not in nodes)
            elif user is not None and _block(user, shapes, each) not in (0, block):
                return True
    return False


def _block(node: Node, shapes: Shapes, array: Node) -> int:
    """Returns oneDNN's block size, with AVX-512, for an array that is the output or the data of `node`, an operator on
    images. Returns 1 for a grouped convolution without blocks; otherwise 0 if the array has no blocks, or may have any.
    """
    shape, groups = shapes.get(node, ()), int(node.attr("num_group", 1))
    if len(shape) != 4 or not is_channels_first(node):
        return 0
    if node.op in ("Convolution", "Deconvolution"):
        in_channels = shapes.get(node.inputs[0].node, (0, 0))[1]
        is_depthwise = groups == in_channels == shape[1]
        reads_image = groups == 1 and in_channels < onednn_blocks.MAX_BLOCK and array is node  # RGB, for example
        lengths = [shape[1]] if is_depthwise or reads_image else [in_channels // groups, shape[1] // groups]
    elif node.op == "Pooling" and node.attr("global_pool", False):
        lengths = [shape[1]]
    else:
        return 0
    return size_for(lengths) or int(groups > 1)
