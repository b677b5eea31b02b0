"""oneDNN's operator fusion in MXNet 1.9.1, and barriers that keep it correct."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Mapping, Optional, Sequence

import numpy as np

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.plan.arrays import COPY
from mxsame.rewriting import bfloat16, canonical
from mxsame.rewriting.graph import Graph, Node, Output, User

LINKS = ("Convolution", "FullyConnected", "batch_norm", "add")  # after which a fused chain may continue
# with which none continues
NO_CHAIN = ("_backward_Activation", "Convolution", "Pooling", "multiply", "slice", "slice_axis", "subtract")
GATE, MOST_AXES, SINGLE = "_backward_Activation", 5, np.dtype("float32")
LONGEST = 7  # window of a convolution, for which oneDNN has code without loops
SOFTMAX = ("softmax", "log_softmax")
LOOP, OF_ANY_SHAPE = "_foreach", {"_while_loop", "_cond", "_contrib_boolean_mask"}
PLAIN = {  # whose output is in the plain layout; of the others, that of a convolution is not, or only in 3-D, and that
    # of all else may be in the one of its data
    *("Deconvolution", "FullyConnected", "Embedding", "dot", "batch_dot", "linalg_gemm2"),
    *("Reshape", "Flatten", "transpose", "SwapAxis", "expand_dims", "squeeze", "slice", "slice_axis", "take", "stack"),
}


def protect(graph: Graph, fuses: bool = False) -> None:
    """Put barriers where MXNet would fuse wrongly, in `optimize_for` or in an executor, which fuses by default.

    MXNet continues a chain after a link that has other users, the graph's own outputs among them, and these then get
    the output of the whole chain. So such a link gets one user that is in no chain: BlockGrad, an identity (`_copy` is
    dropped before MXNet fuses). BlockGrad copies the array out of oneDNN's blocks, so where MXNet `fuses`, the chain of
    a convolution gets an activation that changes nothing: it is part of the fused operator, and the last that can be.
    A batch norm of another axis than the channels gets a barrier before it, as it reads past the end of its parameters
    if it is fused. And an addition has its convolution first, as in the fused operator: a block's `optimize_for` takes
    the shapes of parameters in the order before the fusion.
    """
    barriers, lines = {}, set()  # 1-D convolutions and sums of them, which are in no chain
    for node, users in graph.users().items():
        sources = [source.node for source in node.inputs] if node.kind == "add" else [node]
        if all(each in lines or (each.op == "Convolution" and len(each.attr("kernel")) == 1) for each in sources):
            lines.add(node)
            continue
        users = [user for user in users if not graph.used_by(user.node)[user.position].index]
        shared = len(users) > 1 and not all(user.node is not None and user.node.kind in NO_CHAIN for user in users)
        if node.kind in LINKS and (shared or any(_is_over_another_axis(user.node) for user in users)):
            ends = fuses and any(each.op == "Convolution" for each in (node, *sources))
            op, attrs = ("LeakyReLU", {"act_type": "leaky", "slope": "1"}) if ends else ("BlockGrad", {})
            barriers[Output(node)] = Output(Node(op, f"{node.name}_shared", [Output(node)], attrs))
    graph.replace(barriers)
    for node in graph.nodes():
        if node.kind == "add" and [source.node.op == "Convolution" for source in node.inputs] == [False, True]:
            node.inputs.reverse()


def _is_over_another_axis(node: Optional[Node]) -> bool:
    return node is not None and node.op == "BatchNorm" and node.attr("axis", 1) != 1


def fused(graph: Graph, dtype: str) -> Any:
    """The Symbol in which oneDNN has fused chains of operators into one, and computes in this type; its inputs are not
    made floats. The graph itself stays as it is."""
    own = Graph.of(graph.symbol(), graph.values, graph.inputs)
    canonical.drop(own, floats=own.inputs)  # and the barriers of a protected graph
    canonical.separate(own)
    gate(own)
    if dtype == bfloat16.NAME:
        bfloat16.narrow(own)
    protect(own, fuses=True)
    return own.symbol().optimize_for("MKLDNN")


def has_steps(graph: Graph) -> bool:
    """Whether it is mostly a recurrent layer that is written out, in which a dense layer of a few rows is called again
    and again. oneDNN's operators, which cost more to call, make it slower."""
    kernels = [node.inputs[1] for node in graph.nodes() if node.op == "FullyConnected"]
    return len(kernels) > 2 * len(set(kernels)) and all(node.op != "Convolution" for node in graph.nodes())


def gate(graph: Graph) -> None:
    """Each product a * sigmoid(b) of two arrays of one shape, as swish is with a = b, becomes one step of oneDNN, and
    so does that of images with a number for each channel that is made of their means (squeeze and excite).

    MXNet multiplies arrays in the plain layout only, so that both are copied out of oneDNN's blocks, and the product
    back. The sigmoid is the derivative of softplus, log(1 + exp(b)), and oneDNN's backward pass of an activation
    multiplies its derivative with the gradient that it is given, in any layout: here with a. MXNet's operator has the
    inputs gradient, output and data; oneDNN does not read the output. An a that is there twice is not overwritten, for
    which oneDNN would need a copy.

    So it must be oneDNN that runs it: on single precision, and up to five axes.

    It has no gradient of its own, for which MXNet asks unless whatever follows passes none on: a fused convolution does
    not, and BlockGrad, which costs a copy. So the means of images begin with a convolution.
    """
    users, shapes, dtypes = graph.users(), graph.shapes(), graph.dtypes()
    for node in graph.nodes():
        shape = shapes.get(node, ())
        runs = len(shape) <= MOST_AXES and np.dtype(dtypes.get(Output(node), SINGLE)) == SINGLE
        for data, factor in (node.inputs, node.inputs[::-1]) if node.kind == "multiply" and runs else ():
            if factor.node.attr("act_type") != "sigmoid" or len(users[factor.node]) > 1:
                continue
            logits = factor.node.inputs[0]
            source = data.node.inputs[0] if data.node.op == "BlockGrad" else data  # the end of another gate
            fits = shapes.get(factor.node) == (*shape[:2], 1, 1) and shapes.get(source.node) == shape
            if fits and _is_excited(source, logits) and all(map(_is_convolved, users[node])):
                widens = _is_pointwise(logits.node, shapes) and len(users[logits.node]) == 1
                data, logits = source, _everywhere(logits, shape, widens)
            elif node.op != "elemwise_mul" and data != logits:
                continue
            node.op, node.attrs, node.inputs = GATE, {"act_type": "softrelu"}, [data, data, logits]
            end = Output(Node("BlockGrad", f"{node.name}_end", [Output(node)]))
            for user in users[node]:
                if _is_mean(user.node):
                    graph.connect(user, _parts(node, shape))
                elif not _is_convolved(user):
                    graph.connect(user, end)
            break


def _everywhere(numbers: Output, shape: Sequence[int], widens: bool) -> Output:
    """A number for each channel, at each position of images of this shape. If the convolution that computes them
    `widens`, its data become so, which have fewer channels, and it writes the numbers in blocks."""
    node = numbers.node
    source = node.inputs[0] if widens else numbers
    attrs = {"axis": "(2, 3)", "size": str(shape[2:])}
    wide = Output(Node("broadcast_axis", f"{node.name}_everywhere", [source], attrs))
    if not widens:
        return wide
    node.inputs[0], node.attrs["stride"] = wide, "(1, 1)"
    return numbers


def _is_pointwise(node: Node, shapes: Mapping[Node, Sequence[int]]) -> bool:
    """Whether it is a convolution that computes each position from that position of its data alone, and has one."""
    has_one = node.op == "Convolution" and shapes.get(node.inputs[0].node, ())[2:] == (1, 1)
    return has_one and node.attr("kernel") == (1, 1) and not any(node.attr("pad", ()))


def _is_convolved(user: User) -> bool:
    return user.node is not None and user.node.op == "Convolution" and len(user.node.attr("kernel")) == 2


def _is_mean(node: Optional[Node]) -> bool:
    """Whether a node is the means of images."""
    is_global = node is not None and node.op == "Pooling" and node.attr("global_pool", False)
    return is_global and node.attr("pool_type") == "avg" and len(node.attr("kernel", (1, 1))) == 2


def _is_excited(data: Output, logits: Output) -> bool:
    """Whether an array is made of the means of the data, without an operator that could change their batch."""
    node = logits.node
    while node.op in ("Activation", "clip", "Convolution", GATE, "Reshape"):
        node = node.inputs[0].node
    return _is_mean(node) and data.node in (node.inputs[0].node, *(each.node for each in node.inputs[0].node.inputs))


def _parts(node: Node, shape: Sequence[int]) -> Output:
    """The output of a node summed over windows that cover it, scaled so that their mean is its mean."""
    kernel = [min(length, LONGEST) for length in shape[2:]]
    pads = [-length % size for length, size in zip(shape[2:], kernel)]
    counts = [(length + 2 * pad) // size for length, size, pad in zip(shape[2:], kernel, pads)]
    scale = np.prod(counts) / np.prod(shape[2:])
    weight = full(f"{node.name}_ones", (shape[1], 1, *kernel), float(scale))
    attrs = depthwise(shape[1], kernel, stride=str(tuple(kernel)), pad=str(tuple(pads)), no_bias="True")
    return Output(Node("Convolution", f"{node.name}_parts", [Output(node), weight], attrs))


def full(name: str, shape: Sequence[int], value: float) -> Output:
    """An array with one value everywhere."""
    return Output(Node("_full", f"{name}_full", [], {"shape": str(shape), "value": repr(value), "dtype": "float32"}))


def depthwise(channels: int, kernel: Sequence[int], **more: str) -> Dict[str, str]:
    """The attributes of a depthwise convolution."""
    return {"kernel": str(tuple(kernel)), "num_filter": str(channels), "num_group": str(channels), **more}


def copy_before_softmax(graph: Graph) -> None:
    """Put a copy before each softmax that would end the process.

    oneDNN's softmax over the last axis fails, where nothing catches it, on data in the blocks of a convolution of one
    or two spatial axes, and in the order of axes in which oneDNN concatenates arrays of 2 or 4 axes if the first has a
    length of 1 along the axis. Operators that work in place, and pooling, keep both. Where lengths are unknown, there
    is a copy, too.
    """
    nodes = [node for node in graph.nodes() if node.op in ("Concat", *SOFTMAX)]
    if not any(node.op in SOFTMAX for node in nodes):
        return
    data = graph.symbol([node.inputs[0] for node in nodes])
    inferred = dict(zip(nodes, tensors.infer_shapes(data, graph.inputs) or itertools.repeat(None)))
    for node in nodes:
        axis, shape = node.attr("axis", -1), inferred[node]
        is_last = not shape or axis in (-1, len(shape) - 1)
        if node.op in SOFTMAX and is_last and _is_reordered(node.inputs[0].node, inferred):
            node.inputs[0] = copy_to_plain(node.inputs[0], f"{node.name}_copy")


def copy_to_plain(output: Output, name: str) -> Output:
    """A copy in the plain layout, as :func:`mxsame.plan.arrays.copy_to_plain`."""
    return Output(Node("slice_axis", name, [output], {"axis": "0", "begin": "0", "end": "None", COPY: "True"}))


def _is_reordered(node: Node, inferred: Mapping[Node, Optional[Sequence[int]]]) -> bool:
    """Whether a node's output may be that of such a convolution or concatenation, or be made of it in place."""
    nodes = [node]
    for each in nodes:  # which grows
        shape = inferred.get(each)
        is_onednn = not shape or len(shape) in (2, 4)
        if each.op == "Concat" and is_onednn and (not shape or shape[each.attr("dim", 1)] < 2):
            return True
        if each.op == "Convolution" and len(each.attr("kernel")) < 3:
            return True
        if each.op not in PLAIN and COPY not in each.attrs and is_onednn:
            nodes += [source.node for source in each.inputs if source.node not in nodes]
    return False


def wait_before_loops(graph: Graph) -> None:
    """Let the thread that runs a graph wait before each loop for all operators before.

    MXNet 1.9.1 starts a loop in that thread, at once, while operators before it may still run. It takes oneDNN's layout
    off the memory of the loop's outputs, in which such an operator may keep an array, and copies inputs that are in
    oneDNN's layout. What is then read in the wrong layout is wrong, at some calls and not at others. A condition reads
    its predicate, so the thread waits for that. Operators run depth first: the condition comes before the loop, because
    all that uses the loop multiplies it by a 1 that needs the condition. With conditions of its own, a graph has shapes
    that MXNet does not infer, and keeps no array in the memory of another.
    """
    before, waited, users, outputs = set(), {}, graph.users(), graph.used_outputs()
    if OF_ANY_SHAPE.intersection(node.op for node in users):
        return
    for node in users:
        ended = (each for each in users if each in before and not all(user.node in before for user in users[each]))
        last = list(ended) if node.op == LOOP else []
        if last:
            counts = [Output(Node("size_array", f"{node.name}_count", [Output(each)])) for each in last]
            count = Node("add_n", f"{node.name}_counts", counts, {"num_args": str(len(counts))})
            one = _one_after(count)
            for output in (each for each in outputs if each.node is node):
                waited[output] = Output(Node("broadcast_mul", f"{node.name}_waited{output.index}", [one, output]))
        if node.op != "null":
            before.add(node)
    graph.replace(waited)


def _one_after(count: Node) -> Output:
    """A 1, of the type of what it is multiplied by, for which the thread waits for this operator. The loop and the sum
    around the condition, whose shape MXNet does not infer, give it one."""
    with mx.util.np_array(False):
        F = mx.sym
        data = F.reshape(F.cast(F.var("count"), dtype="float32"), shape=(1, 1))
        waited, _ = F.contrib.foreach(
            lambda x, _: (F.contrib.cond(x, lambda: F.identity(x), lambda: F.identity(x)), []), data, []
        )
        one = F._internal._zeros_without_dtype(shape=(1,)) + 1
        one = Graph.of(F.BlockGrad(F.take(one, F.elemwise_add(data, waited))), {}, {})
    one.replace({Output(node): Output(count) for node in one.nodes() if node.name == "count"})
    return one.outputs[0]
