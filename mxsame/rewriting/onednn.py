"""Fuses operators with oneDNN in MXNet 1.9.1, and works around bugs of both.

oneDNN keeps images in blocks of channels, which other operators have to copy to the plain layout and back. At inference
it fuses a chain of operators, such as a convolution, an addition and a ReLU, into one operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Tuple

import numpy as np

from mxsame import onednn_blocks
from mxsame._mxnet import mx
from mxsame.rewriting import bfloat16, canonical
from mxsame.rewriting.graph import Graph, Node, Output, Shape, Shapes, operand_orders, operator
from mxsame.rewriting.operators import copy_to_plain, depthwise_attributes, full, subgraph
from mxsame.validation import check

if TYPE_CHECKING:
    from mxsame._mxnet import Symbol

FUSES_WITH_NEXT = ("Convolution", "FullyConnected", "batch_norm", "add")  # kinds after which a fused chain may continue
# Kinds that never continue a fused chain.
NEVER_CONTINUE = ("_backward_Activation", "Convolution", "Pooling", "multiply", "slice", "slice_axis", "subtract")
SIGMOID_PRODUCT, MAX_AXES, FLOAT32 = "_backward_Activation", 5, np.float32
MAX_KERNEL = 7  # the longest kernel of a depthwise convolution whose loops are unrolled in oneDNN
SOFTMAX = ("softmax", "log_softmax")
SLICE, LOOP = "slice", "_foreach"
LOOPS, WITH_DYNAMIC_SHAPE = (LOOP, "_while_loop", "_cond"), {"_while_loop", "_cond", "_contrib_boolean_mask"}
# Operators that write the plain layout. A convolution chooses a layout; any other operator may keep that of its data.
PLAIN = {
    *("Deconvolution", "FullyConnected", "Embedding", "dot", "batch_dot", "linalg_gemm2"),
    *("Reshape", "Flatten", "transpose", "SwapAxis", "expand_dims", "squeeze", "slice", "slice_axis", "take", "stack"),
}


# -- fusion


def fuse(graph: Graph, dtype: str) -> Symbol:
    """Returns a Symbol with operators that oneDNN has fused, which computes in this type. Its inputs must be floats.
    The graph is not changed."""
    fused = Graph.of(graph.symbol(), graph.values, graph.inputs)
    canonical.drop_identities(fused, floats=fused.inputs)  # drops earlier barriers, too
    canonical.separate_outputs(fused)
    fuse_gates(fused)
    if dtype == bfloat16.NAME:
        bfloat16.to_bfloat16(fused)
    add_fusion_barriers(fused, fuses=True)
    return fused.symbol().optimize_for("MKLDNN")


def add_fusion_barriers(graph: Graph, fuses: bool = False) -> None:
    """Insert barriers where MXNet would fuse wrongly, in `optimize_for` or in an executor, which fuses by default.

    MXNet continues a chain after an operator with several users, such as other operators and an output of the graph.
    All of them then read the output of the whole chain. So such an operator gets a single user that ends the chain:
    `BlockGrad`, an identity that MXNet does not drop before it fuses. But BlockGrad copies the array out of oneDNN's
    blocks. So if the graph is for `optimize_for` (`fuses`), the chain of a convolution ends with an activation that
    changes nothing, which becomes a part of the fused operator.

    There are two more bugs. A fused batch norm over an axis other than the channels reads past the end of its
    parameters, so it gets a barrier before it. And `optimize_for` confuses the shapes of parameters unless the first
    operand of an addition is the convolution that it is fused with.
    """
    barriers, one_dimensional = {}, set()  # 1-D convolutions and their sums are not fused
    for node, users in graph.users().items():
        if node.op == "Convolution" and len(node.attr("kernel")) == 1:
            one_dimensional.add(node)
        sources = [source.node for source in node.inputs] if node.kind == "add" else [node]
        if one_dimensional.issuperset(sources):
            one_dimensional.add(node)
            continue
        users = [user for user in users if not graph.inputs_of(user.node)[user.position].index]
        is_shared = len(users) > 1 and not all(user.node and user.node.kind in NEVER_CONTINUE for user in users)
        norms = (user.node for user in users if user.node and user.node.op == "BatchNorm")
        if node.kind in FUSES_WITH_NEXT and (is_shared or any(norm.attr("axis", 1) != 1 for norm in norms)):
            keeps_blocks = fuses and any(each.op == "Convolution" for each in (node, *sources))
            op, attrs = ("LeakyReLU", {"act_type": "leaky", "slope": 1}) if keeps_blocks else ("BlockGrad", {})
            barriers[Output(node)] = operator(op, f"{node.name}_shared", Output(node), **attrs)
    graph.replace(barriers)
    for node in graph.nodes():
        if node.kind == "add" and [source.node.op == "Convolution" for source in node.inputs] == [False, True]:
            node.inputs.reverse()


def is_unrolled_rnn(graph: Graph) -> bool:
    """Returns whether the graph is mostly an unrolled recurrent layer: each step calls the same dense layers for a few
    rows. oneDNN's operators would be slower there, since a call takes longer than one of MXNet's own."""
    kernels = [node.inputs[1] for node in graph.nodes() if node.op == "FullyConnected"]
    return len(kernels) > 2 * len(set(kernels)) and all(node.op != "Convolution" for node in graph.nodes())


# -- gates


def fuse_gates(graph: Graph) -> None:
    """Write products with a sigmoid, a * sigmoid(b), as one operator of oneDNN.

    Such products are swish, where a is b, and squeeze-and-excitation, where b has one number per channel, computed
    from the means of the image. MXNet multiplies in the plain layout, so it would copy both factors out of the blocked
    layout and the product back into it.

    The operator is the backward pass of the softplus log(1 + exp(b)), whose derivative is the sigmoid: it multiplies a
    gradient by sigmoid(b), in any layout. Here the gradient is a. Its inputs are the gradient, the output of the
    softplus, and b. oneDNN does not read the second one; it is also a, so that MXNet does not write the product over
    a, for which oneDNN would need a copy. The operator runs in float32, for up to five axes.

    This operator has no gradient, and MXNet requests one unless the next operator blocks gradients. Fused convolutions
    block them, and so does `BlockGrad`, which makes a copy. So global average pooling of the product gets a convolution
    before it.
    """
    users, shapes, dtypes = graph.users(), graph.shapes(), graph.dtypes()
    for node in graph.nodes():
        shape = shapes.get(node, ())
        is_supported = len(shape) <= MAX_AXES and np.dtype(dtypes.get(Output(node), FLOAT32)) == FLOAT32
        for data, gate in operand_orders(node) if is_supported else ():
            if not gate.node.is_activation("sigmoid") or len(users[gate.node]) > 1:
                continue
            logits = gate.node.inputs[0]
            source = data.node.inputs[0] if data.node.op == "BlockGrad" else data  # `end` of another product
            is_per_channel = shapes.get(gate.node) == (*shape[:2], 1, 1) and shapes.get(source.node) == shape
            is_squeeze_excite = is_per_channel and _is_from_means_of(source, logits)
            if is_squeeze_excite and all(_is_conv_2d(user.node) for user in users[node]):
                broadcasts_data = _is_pointwise(logits.node, shapes) and len(users[logits.node]) == 1
                data, logits = source, _broadcast(logits, shape, broadcasts_data)
            elif node.op != "elemwise_mul" and data != logits:
                continue
            node.become(SIGMOID_PRODUCT, data, data, logits, act_type="softrelu")
            end = operator("BlockGrad", f"{node.name}_end", Output(node))
            for user in users[node]:
                if _is_global_mean(user.node):
                    graph.connect(user, _partial_means(node, shape))
                elif not _is_conv_2d(user.node):
                    graph.connect(user, end)
            break


def _broadcast(numbers: Output, shape: Shape, broadcasts_data: bool) -> Output:
    """Returns per-channel numbers, broadcast to images of this shape. With `broadcasts_data`, the data of the
    convolution that computes the numbers is broadcast instead: it has fewer channels, and the convolution writes in
    blocks."""
    node = numbers.node
    source = node.inputs[0] if broadcasts_data else numbers
    wide = operator("broadcast_axis", f"{node.name}_everywhere", source, axis=(2, 3), size=shape[2:])
    if not broadcasts_data:
        return wide
    node.inputs[0], node.attrs["stride"] = wide, "(1, 1)"
    return numbers


def _is_pointwise(node: Node, shapes: Shapes) -> bool:
    """Returns whether the node is a 1x1 convolution of images of one pixel."""
    has_one_pixel = node.op == "Convolution" and shapes.get(node.inputs[0].node, ())[2:] == (1, 1)
    return has_one_pixel and node.attr("kernel") == (1, 1) and not any(node.attr("pad", ()))


def _is_conv_2d(node: Optional[Node]) -> bool:
    """Returns whether the node is a 2-D convolution."""
    return node is not None and node.op == "Convolution" and len(node.attr("kernel")) == 2


def _is_global_mean(node: Optional[Node]) -> bool:
    """Returns whether the node is global average pooling of images."""
    if node is None or node.op != "Pooling" or not node.attr("global_pool", False):
        return False
    return node.attr("pool_type") == "avg" and len(node.attr("kernel") or (1, 1)) == 2


def _is_from_means_of(data: Output, logits: Output) -> bool:
    """Returns whether the logits are computed from the means of the data, by operators that keep the batch axis."""
    node = logits.node
    while node.op in ("Activation", "clip", "Convolution", SIGMOID_PRODUCT, "Reshape"):
        node = node.inputs[0].node
    return _is_global_mean(node) and data.node in (
        node.inputs[0].node,
        *(each.node for each in node.inputs[0].node.inputs),
    )


def _partial_means(node: Node, shape: Shape) -> Output:
    """Returns a smaller array with the same mean per channel: scaled sums over tiles, computed by a convolution."""
    kernel = [min(length, MAX_KERNEL) for length in shape[2:]]
    pads = [-length % size for length, size in zip(shape[2:], kernel)]
    counts = [(length + 2 * pad) // size for length, size, pad in zip(shape[2:], kernel, pads)]
    scale = float(np.prod(counts) / np.prod(shape[2:]))
    weight = full(f"{node.name}_ones", (shape[1], 1, *kernel), scale)
    attrs = depthwise_attributes(shape[1], kernel, stride=tuple(kernel), pad=tuple(pads), no_bias=True)
    return operator("Convolution", f"{node.name}_parts", Output(node), weight, **attrs)


# -- softmax


def copy_before_softmax(graph: Graph) -> None:
    """Insert a copy before each softmax that would crash the process.

    oneDNN's softmax over the last axis throws an uncaught exception for data in two layouts: in the blocks of a 1-D
    or 2-D convolution, and in the order of axes that oneDNN may choose for a concatenation of arrays with 2 or 4 axes
    if the first array has length 1 along the axis (in any call). In-place operators and pooling keep both
    layouts. If the number of axes is unknown, a copy is inserted, too.
    """
    nodes = [node for node in graph.nodes() if node.op in ("Concat", *SOFTMAX)]
    if not any(node.op in SOFTMAX for node in nodes):
        return
    shapes = graph.shapes_of([node.inputs[0] for node in nodes])
    inferred = {node: shapes[node.inputs[0]] for node in nodes}
    for node in nodes:
        axis, shape = node.attr("axis", -1), inferred[node]
        is_last = not shape or axis in (-1, len(shape) - 1)
        if node.op in SOFTMAX and is_last and _may_be_reordered(node.inputs[0].node, inferred):
            node.inputs[0] = copy_to_plain(node.inputs[0], f"{node.name}_copy")


def copy_before_slices(graph: Graph) -> None:
    """Insert a copy before each slice of channels that may start or end within a block. oneDNN's slice fails there
    ("could not construct a sub-memory"), or crashes the process."""
    nodes = list(filter(divides_blocks, graph.nodes()))
    shapes = graph.shapes_of([node.inputs[0] for node in nodes])
    for node in nodes:
        shape = shapes[node.inputs[0]]
        if onednn_blocks.slice_divides_blocks(*_channel_range(node), shape[1] if shape else 0):
            node.inputs[0] = copy_to_plain(node.inputs[0], f"{node.name}_copy")


def divides_blocks(node: Node) -> bool:
    """Returns whether the node is a slice of channels that may start or end within a block."""
    return node.op == SLICE and onednn_blocks.slice_divides_blocks(*_channel_range(node))


def _channel_range(node: Node) -> Tuple[Optional[int], Optional[int]]:
    """Returns a slice's `begin` and `end` along the channels."""
    begin, end = ((*node.attr(name), None, None)[1] for name in ("begin", "end"))
    return begin, end


def _may_be_reordered(node: Node, inferred: Mapping[Node, Optional[Shape]]) -> bool:
    """Returns whether an output may be in one of the two layouts of `copy_before_softmax`. `inferred` has the shape of
    the first input of each concatenation and softmax."""
    nodes = [node]
    for each in nodes:  # the list grows in the loop
        shape = inferred.get(each)
        runs_in_onednn = not shape or len(shape) in (2, 4)
        if (each.op == "Concat" and runs_in_onednn) or (each.op == "Convolution" and len(each.attr("kernel")) < 3):
            return True
        if each.op not in PLAIN and not each.is_required_copy and runs_in_onednn:
            nodes += [source.node for source in each.inputs if source.node not in nodes]
    return False


# -- loops


def copy_norms_in_bodies(graph: Graph, has_gradients: bool) -> None:
    """Insert a copy after each batch norm that is an output of a loop's body or of a branch: there, an output in
    oneDNN's blocked layout crashes the process.

    Raises `ValueError` for a batch norm in a body if gradients are needed, since MXNet 1.9.1 cannot compute them."""
    for node in graph.nodes():
        bodies = node.bodies if node.op in LOOPS else []
        for body in bodies:
            copy_norms_in_bodies(body, has_gradients)
            norms = [each for each in body.nodes() if each.kind == "batch_norm"]
            rule = "a net with batch norms in loops or branches cannot train if hybridized: call net.hybridize(False)"
            check(not (norms and has_gradients), rule, operators=[each.name for each in norms])
            for number, output in enumerate(body.outputs):
                if output.node in norms:
                    body.outputs[number] = copy_to_plain(output, f"{output.node.name}_copy")
        if bodies:
            node.bodies = bodies


def synchronize_before_loops(graph: Graph) -> None:
    """Make the calling thread wait for all earlier operators before it runs a loop.

    MXNet 1.9.1 runs a loop in the calling thread, while earlier operators may still run in other threads. It then
    removes oneDNN's layout from the memory of the loop's outputs, which may be the memory of such an operator, and
    copies inputs that are in oneDNN's layout. In some calls, an array is then read in the wrong layout.

    The thread waits for the predicate of a condition. So each output of the loop is multiplied by a 1 that a condition
    on all earlier operators computes. Operators run depth first, so the condition runs before the loop. If a graph has
    conditions already, or other operators whose shapes MXNet does not infer, its arrays share no memory: it is not
    changed.
    """
    earlier, replacements, users, outputs = set(), {}, graph.users(), graph.used_outputs()
    if WITH_DYNAMIC_SHAPE.intersection(node.op for node in users):
        return
    for node in users:
        unread = (each for each in users if each in earlier and not all(user.node in earlier for user in users[each]))
        awaited = list(unread) if node.op == LOOP else []  # these end after all other earlier operators
        if awaited:
            counts = [operator("size_array", f"{node.name}_count", Output(each)) for each in awaited]
            one = _one_after(operator("add_n", f"{node.name}_counts", *counts, num_args=len(counts)))
            for output in (each for each in outputs if each.node is node):
                replacements[output] = operator("broadcast_mul", f"{node.name}_waited{output.index}", one, output)
        if node.op != "null":
            earlier.add(node)
    graph.replace(replacements)


def _one_after(count: Output) -> Output:
    """Returns a 1 that is computed after the calling thread has waited for `count`. Its type is inferred from the array
    that it multiplies. MXNet infers no shape for a condition, so it is wrapped in a loop and a sum, which have one."""
    with mx.util.np_array(False):
        F = mx.sym
        data = F.reshape(F.cast(F.var("count"), dtype="float32"), shape=(1, 1))
        wait: Any = lambda x, _: (F.contrib.cond(x, lambda: F.identity(x), lambda: F.identity(x)), [])  # noqa: E731
        waited, _ = F.contrib.foreach(wait, data, [])
        one = F._internal._zeros_without_dtype(shape=(1,)) + 1
        return subgraph(F.BlockGrad(F.take(one, F.elemwise_add(data, waited))), count=count)
