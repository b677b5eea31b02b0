"""Graphs of nothing but what cuDNN and cuBLAS run, for GPUs that MXNet 1.9.1 holds no machine code for.

On such a GPU none of MXNet's own kernels can start: no addition, no slice, no copy from one shape to another. What runs
is what MXNet hands on to the libraries whole (src/operator/nn/*.cu and cudnn/*-inl.h of MXNet 1.9.1): convolutions with
their bias, poolings in 2-D and 3-D, three activations, a softmax, matrix products. More can be said with these:

    scale * x + shift     a convolution of each channel with one number, and a bias
    min(x, b)             b - relu(b - x)
    max(x, a)             a + relu(x - a)
    leaky relu            slope * x + (1 - slope) * relu(x)
    W x + b               a convolution over all of the picture
    x + y                 a convolution that adds its output to an array that is there already
    conv(concat(x, y))    conv(x) + conv(y)

The last is `_grad_add`, by which MXNet adds up gradients: its executor lets a convolution write its output onto the
first operand (`DetectInplaceAddTo`, src/executor/inplace_addto_detect_pass.cc), and cuDNN adds with beta = 1, where

- the first operand is no variable, no output of the graph, and not needed any more;
- the second is a convolution's output, used nowhere else, and the convolution does not read the first.

Reshapes of what an operator has made are free: in an executor they share its memory.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame._rewrite import _joins, _scales
from mxsame._rewrite._graph import Graph, Node, Output

ACTIVATIONS = ("relu", "sigmoid", "tanh")
VIEWS = ("Reshape", "Flatten", "expand_dims", "_np_reshape", "_npx_reshape", "_copy")
SUMS = ("elemwise_add", "_npi_add", "broadcast_add")
CHANNELS_FIRST = ("None", "NCW", "NCHW", "NCDHW")
LAYOUTS = (*CHANNELS_FIRST, "NHWC")


def confine(graph: Graph) -> None:
    """Say all of a graph in terms of what cuDNN and cuBLAS run; a `ValueError` names what cannot be said so."""
    _each(graph, _spell)
    _joins.part(graph)
    _each(graph, _add)
    graph.prune()
    _check(graph)


def differentiable(graph: Graph) -> Graph:
    """The same graph with sums as everybody knows them: MXNet makes no graph of a block with `_grad_add`."""
    plain = Graph.of(graph.symbol(), graph.values, graph.inputs)
    for node in plain.nodes():
        if node.op == "_grad_add":
            node.op = "elemwise_add"
    return plain


def copied(symbol: Any, name: str, shape: Sequence[int], dtype: Any) -> Tuple[Any, Dict[str, np.ndarray]]:
    """A copy of an input, made by a library, and the weight of ones that it takes. Unlike the input it can be reshaped
    for nothing, so it can be made sure of its shape."""
    if len(shape) == 2:
        ones = np.eye(shape[1], dtype=dtype)
        weight = mx.sym.var(name, shape=ones.shape, dtype=dtype)
        return mx.sym.FullyConnected(symbol, weight, num_hidden=shape[1], no_bias=True), {name: ones}
    kernel = (1,) * (len(shape) - 2)
    ones = np.ones((shape[1], 1, *kernel), dtype)
    weight = mx.sym.var(name, shape=ones.shape, dtype=dtype)
    attrs = {"kernel": kernel, "num_filter": shape[1], "num_group": shape[1], "no_bias": True}
    return mx.sym.Convolution(symbol, weight, **attrs), {name: ones}


def _each(graph: Graph, rewrite: Callable) -> None:
    """Put what `rewrite` makes of a node in its place, for each of them."""
    shapes = graph.shapes()
    for node in graph.nodes():
        found = rewrite(graph, node, shapes)
        if found is not None:
            graph.replace(node, found)


# -- one node in terms of others


def _spell(graph: Graph, node: Node, shapes: dict) -> Optional[Output]:
    """What stands for a node that is no operator of cuDNN's; None where it may stay, or nothing can."""
    data = node.inputs[0] if node.inputs else None
    if node.op == "clip":
        return _clipped(graph, node, data, shapes, node.attr("a_min"), node.attr("a_max"))
    if node.op in ("_maximum_scalar", "_npi_maximum_scalar"):
        return _clipped(graph, node, data, shapes, low=node.attr("scalar"))
    if node.op in ("_minimum_scalar", "_npi_minimum_scalar"):
        return _clipped(graph, node, data, shapes, high=node.attr("scalar"))
    if node.op == "LeakyReLU" and node.attr("act_type", "leaky") == "leaky":
        return _leaky(graph, node, data, shapes)
    if node.op == "FullyConnected":
        return _dense(graph, node, data, shapes)
    if node.op == "Pooling" and len(shapes[node]) == 3:
        return _pooling_of_a_row(node, data)
    if node.op == "softmax" and node.attr("temperature") in (None, 1.0) and len(node.inputs) == 1:
        return _softmax(node, data, shapes)
    affine = _scales.as_affine(graph, node, shapes)
    if affine is not None and affine.axis == 1:
        return _scaled(graph, node.name, affine.data, shapes, affine.scale, affine.shift)
    return None


def _scaled(
    graph: Graph, name: str, data: Output, shapes: dict, scale: Any = 1.0, shift: Any = None
) -> Optional[Output]:
    """scale * data + shift for each channel; None for what has no axes behind the channels."""
    shape = shapes[data.node]
    if not 3 <= len(shape) <= 5:
        return None
    channels, rank = shape[1], len(shape) - 2
    values = {"weight": np.broadcast_to(scale, channels).reshape(channels, *[1] * (rank + 1))}
    if shift is not None and np.any(shift):
        values["bias"] = np.broadcast_to(shift, channels)
    inputs = [graph.constant(f"{name}_{word}", value.astype(_dtype(graph))) for word, value in values.items()]
    attrs = {
        "kernel": str((1,) * rank),
        "num_filter": str(channels),
        "num_group": str(channels),
        "no_bias": str("bias" not in values),
    }
    return _new(shapes, shape, "Convolution", name, [data, *inputs], attrs)


def _relu(data: Output, shapes: dict, name: str) -> Output:
    return _new(shapes, shapes[data.node], "Activation", name, [data], {"act_type": "relu"})


def _clipped(
    graph: Graph, node: Node, data: Output, shapes: dict, low: float = -math.inf, high: float = math.inf
) -> Optional[Output]:
    """max(x, low) and then min(.., high), each by a relu between two scales."""
    out: Optional[Output] = data
    if low != -math.inf:
        if low != 0:
            out = _scaled(graph, f"{node.name}_above", out, shapes, shift=-low)
        if out is None:
            return None
        out = _relu(out, shapes, f"{node.name}_relu0")  # x - low, or 0
    if high != math.inf:  # high - x, and what is below 0 of it is above high
        held = high if low == -math.inf else high - low
        out = _scaled(graph, f"{node.name}_below", out, shapes, -1.0, held)
        if out is None:
            return None
        out = _relu(out, shapes, f"{node.name}_relu1")
        return _scaled(graph, f"{node.name}_back", out, shapes, -1.0, high)
    return out if low in (0, -math.inf) else _scaled(graph, f"{node.name}_back", out, shapes, shift=low)


def _leaky(graph: Graph, node: Node, data: Output, shapes: dict) -> Optional[Output]:
    slope = node.attr("slope", 0.25)
    whole = _scaled(graph, f"{node.name}_whole", data, shapes, slope)
    if whole is None:
        return None
    positive = _relu(data, shapes, f"{node.name}_relu")
    rest = _scaled(graph, f"{node.name}_rest", positive, shapes, 1 - slope)
    return _new(shapes, shapes[node], "elemwise_add", f"{node.name}_sum", [whole, rest], {})


def _dense(graph: Graph, node: Node, data: Output, shapes: dict) -> Optional[Output]:
    """W x + b as a convolution over the whole picture; without a bias it is cuBLAS's as it is."""
    if data.node.op == "Flatten" or (data.node.op == "Reshape" and data.node.attr("shape") == (0, -1)):
        data = data.node.inputs[0]
    shape = shapes[data.node]
    weight, *bias = (graph.value(source) for source in node.inputs[1:])
    if not bias or weight is None or bias[0] is None or not (node.attr("flatten", True) or len(shape) == 2):
        return None
    if len(shape) == 2:
        if data.node.op == "null":  # not to be reshaped
            ones = graph.constant(f"{node.name}_ones", np.eye(shape[1], dtype=weight.dtype))
            attrs = {"num_hidden": str(shape[1]), "no_bias": "True"}
            data = _new(shapes, shape, "FullyConnected", f"{node.name}_copy", [data, ones], attrs)
        shape = (*shape, 1, 1)
        data = _new(shapes, shape, "Reshape", f"{node.name}_picture", [data], {"shape": "(0, 0, 1, 1)"})
    units = int(node.attr("num_hidden"))
    kernel = graph.constant(f"{node.name}_kernel", weight.reshape(units, *shape[1:]))
    attrs = {"kernel": str(tuple(shape[2:])), "num_filter": str(units), "no_bias": "False"}
    out = _new(
        shapes,
        (shape[0], units, *[1] * (len(shape) - 2)),
        "Convolution",
        node.name,
        [data, kernel, node.inputs[2]],
        attrs,
    )
    return _new(shapes, (shape[0], units), "Flatten", f"{node.name}_row", [out], {})


def _pooling_of_a_row(node: Node, data: Output) -> Output:
    """A pooling of one axis as one of two, the first of which is of length 1; cuDNN has none of one."""
    row = Node("expand_dims", f"{node.name}_in", [data], {"axis": "2"})
    attrs = dict(node.attrs)
    for name, before in (("kernel", 1), ("stride", 1), ("pad", 0)):
        if name in attrs:
            attrs[name] = str((before, *node.attr(name)))
    attrs.pop("layout", None)
    pooled = Node("Pooling", node.name, [Output(row)], attrs)
    return Output(Node("Reshape", f"{node.name}_out", [Output(pooled)], {"shape": "(0, 0, -1)"}))


def _softmax(node: Node, data: Output, shapes: dict) -> Optional[Output]:
    ndim = len(shapes[node])
    if node.attr("axis", -1) % ndim != 1 or ndim not in (2, 3, 4):
        return None
    mode = "instance" if ndim == 2 else "channel"
    return _new(shapes, shapes[node], "SoftmaxActivation", node.name, [data], {"mode": mode})


def _new(shapes: dict, shape: Sequence[int], op: str, name: str, inputs: List[Output], attrs: Dict[str, str]) -> Output:
    node = Node(op, name, inputs, attrs)
    shapes[node] = tuple(shape)
    return Output(node)


def _dtype(graph: Graph) -> Any:
    return next((value.dtype for value in graph.values.values()), np.dtype("float32"))


# -- sums


def _add(graph: Graph, node: Node, shapes: dict) -> Optional[Output]:
    """A sum as one that an executor lets a convolution carry out."""
    if node.op not in SUMS or any(shapes[source.node] != shapes[node] or source.index for source in node.inputs):
        return None
    first, second = node.inputs
    if _is_ready(graph, node, second, first) and not _is_ready(graph, node, first, second):
        first, second = second, first
    if not _is_ready(graph, node, first, second):
        copied = _scaled(graph, f"{node.name}_second", second, shapes)
        if copied is None:
            return None
        second = copied
    total = Node("_grad_add", node.name, [first, second])
    shapes[total] = shapes[node]
    if not _is_over(graph, node, first):
        copied = _scaled(graph, f"{node.name}_first", first, shapes)
        if copied is None:
            return None
        total.inputs[0] = copied
    return Output(total)


def _is_ready(graph: Graph, node: Node, first: Output, second: Output) -> bool:
    """Whether the second is a convolution's output for this sum alone, and the convolution does not read the first."""
    return (
        second.node.op == "Convolution"
        and len(graph.users()[second.node]) == 1
        and all(source.node is not first.node for source in second.node.inputs)
    )


def _is_over(graph: Graph, node: Node, first: Output) -> bool:
    """Whether nothing needs the first operand once the sum is there."""
    order = {each: place for place, each in enumerate(graph.nodes())}
    if first.node.op in ("null", *VIEWS):
        return False
    return all(
        user.node is not None and user.node.op not in VIEWS and order[user.node] <= order[node]
        for user in graph.users()[first.node]
    )


# -- what is left


def _check(graph: Graph) -> None:
    wrong = [node for node in graph.nodes() if node.op != "null" and not _runs(graph, node)]
    if wrong:
        names = ", ".join(dict.fromkeys(f"{node.op} ({node.name})" for node in wrong))
        raise ValueError(
            "net must be made of what cuDNN and cuBLAS run, for a GPU that MXNet has no machine code for; received the "
            f"operators {names}"
        )


def _runs(graph: Graph, node: Node) -> bool:
    """Whether MXNet hands this node on to a library whole."""
    if node.op in ("Convolution", "Deconvolution"):
        return str(node.attr("layout")) in LAYOUTS
    if node.op == "Pooling":
        has_axes = node.attr("global_pool", False) or len(node.attr("kernel", ())) in (2, 3)
        return bool(has_axes) and node.attr("pool_type", "max") in ("max", "avg")
    if node.op == "Activation":
        return node.attr("act_type") in ACTIVATIONS
    if node.op == "FullyConnected":
        return bool(node.attr("no_bias", False))
    if node.op in VIEWS:
        return node.inputs[0].node.op != "null"
    return node.op in ("_grad_add", "SoftmaxActivation")
