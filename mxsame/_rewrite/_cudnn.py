"""Graphs of nothing but what cuDNN and cuBLAS run, for GPUs that MXNet 1.9.1 holds no machine code for.

On such a GPU none of MXNet's own kernels can start: no product, no slice, not even zeros. What runs is what MXNet hands
on to the libraries whole (src/operator/nn/*.cu and cudnn/*-inl.h of MXNet 1.9.1): convolutions with their bias,
poolings in 2-D and 3-D, three activations, a softmax, matrix products; and copies within memory, which reshapes are.
More can be said with these:

    scale * x + shift     a convolution of each channel with one number, and a bias
    max(x, a)             x + relu(a - x)
    min(x, b)             x - relu(x - b)
    leaky relu            slope * x + (1 - slope) * relu(x)
    W x + b               a convolution over all of the picture
    x + y                 a convolution that adds its output to an array that is there already (see `_sums`)
    conv(concat(x, y))    conv(x) + conv(y) (see `_joins`)
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from mxsame._rewrite import _joins, _scales, _sums
from mxsame._rewrite._graph import Graph, Node, Output

ACTIVATIONS = ("relu", "sigmoid", "tanh")
SUMS = ("elemwise_add", "_npi_add", "broadcast_add", _sums.SUM)
DIFFERENCES = ("elemwise_sub", "_npi_subtract", "broadcast_sub")
BOUNDS = {  # op -> whether its scalar is the least
    **dict.fromkeys(("_maximum_scalar", "_npi_maximum_scalar"), True),
    **dict.fromkeys(("_minimum_scalar", "_npi_minimum_scalar"), False),
}
LAYOUTS = ("None", "NCW", "NCHW", "NCDHW", "NHWC")
SOFTMAX_TYPE = np.dtype("float32")  # the one that MXNet gives to cuDNN's


def confine(graph: Graph, dtype: np.dtype) -> None:
    """Say all of a graph, whose data is of this type, in terms of what cuDNN and cuBLAS run; a `ValueError` names what
    cannot be said so."""
    spelling = _Spelling(graph, dtype)
    for node in graph.nodes():
        found = spelling.of(node)
        if found is not None:
            graph.replace(node, found)
    _joins.part(graph)
    _sums.merge(graph)
    spelling.sums()
    graph.prune()
    _check(graph)


def differentiable(graph: Graph) -> Graph:
    """The same graph with sums as everybody knows them: MXNet makes no graph of a block with `_grad_add`."""
    plain = Graph.of(graph.symbol(), graph.values, graph.inputs)
    for node in plain.nodes():
        if node.op == _sums.SUM:
            node.op = "elemwise_add"
    return plain


class _Spelling:
    """What stands for nodes that are no operators of the libraries."""

    def __init__(self, graph: Graph, dtype: np.dtype):
        self._graph, self._dtype, self._shapes = graph, dtype, graph.shapes()

    def of(self, node: Node) -> Optional[Output]:
        """What stands for a node; None where it may stay, or where nothing can."""
        data = node.inputs[0] if node.inputs else None
        node.attrs.pop("cudnn_off", None)
        if node.op == "clip":
            low, high = (float(np.float32(node.attrs[name])) for name in ("a_min", "a_max"))  # as MXNet keeps them
            return self._at_most(node.name, self._at_least(node.name, data, low), high)
        if node.op in BOUNDS:
            bounded = self._at_least if BOUNDS[node.op] else self._at_most
            return bounded(node.name, data, float(node.attrs["scalar"]))
        if node.op == "LeakyReLU" and node.attr("act_type", "leaky") == "leaky":
            return self._leaky(node, data)
        if node.op == "FullyConnected":
            return self._dense(node, data)
        if node.op == "Pooling":
            return self._pooling(node, data)
        if node.op in DIFFERENCES and self._alike(node):
            return self._sum(node.name, data, self._scaled(f"{node.name}_minus", node.inputs[1], -1.0))
        if node.op == "add_n" and self._alike(node) and len(node.inputs) > 1:
            total = data
            for place, each in enumerate(node.inputs[1:]):
                total = self._sum(f"{node.name}_to{place}", total, each)
            return total
        if node.op == "softmax":
            return self._softmax(node, data)
        affine = _scales.as_affine(self._graph, node, self._shapes)
        if affine is not None and affine.axis == 1:
            return self._scaled(node.name, affine.data, affine.scale, affine.shift)
        return None

    def sums(self) -> None:
        """Sums of arrays of one shape become such as cost no operator; those of rows by way of pictures."""
        self._shapes = self._graph.shapes()
        pictures = []
        for node in self._graph.nodes():
            if node.op not in SUMS or not self._alike(node):
                continue
            if len(self._shapes[node]) == 2:
                rows = [self._picture(f"{node.name}_{place}", row) for place, row in enumerate(node.inputs)]
                total = self._new("elemwise_add", f"{node.name}_picture", rows, {}, self._shapes[rows[0].node])
                self._graph.replace(node, self._row(node.name, total))
                node = total.node
            if node.inputs[0] == node.inputs[1]:
                self._graph.replace(node, self._scaled(f"{node.name}_twice", node.inputs[0], 2.0))
            elif 3 <= len(self._shapes[node]) <= 5:
                pictures.append(node)
        _sums.fold(self._graph, pictures, self._scaled)

    def _alike(self, node: Node) -> bool:
        """Whether the operands have the result's shape."""
        return all(self._shapes[source.node] == self._shapes[node] and not source.index for source in node.inputs)

    def _new(self, op: str, name: str, inputs: List[Output], attrs: Dict[str, str], shape: Sequence[int]) -> Output:
        return self._made(Node(op, name, inputs, attrs), shape)

    def _made(self, node: Node, shape: Sequence[int]) -> Output:
        self._shapes[node] = tuple(shape)
        return Output(node)

    def _picture(self, name: str, row: Output) -> Output:
        """(N, C) as (N, C, 1, 1)."""
        shape = (*self._shapes[row.node], 1, 1)
        return self._new("Reshape", f"{name}_as_picture", [row], {"shape": "(0, 0, 1, 1)"}, shape)

    def _row(self, name: str, picture: Output) -> Output:
        """And back."""
        return self._new("Flatten", f"{name}_row", [picture], {}, self._shapes[picture.node][:2])

    def _scaled(self, name: str, data: Output, scale: Any = 1.0, shift: Any = 0.0) -> Optional[Output]:
        """scale * data + shift for each channel; None for what has too many axes for cuDNN."""
        shape = self._shapes[data.node]
        if len(shape) == 2:
            picture = self._scaled(name, self._picture(name, data), scale, shift)
            return None if picture is None else self._row(name, picture)
        if not 3 <= len(shape) <= 5:
            return None
        factors = (np.asarray(value, self._dtype) for value in (scale, shift))
        return self._made(_scales.by_channel(self._graph, name, data, shape, *factors), shape)

    def _relu(self, name: str, data: Optional[Output]) -> Optional[Output]:
        if data is None:
            return None
        return self._new("Activation", f"{name}_relu", [data], {"act_type": "relu"}, self._shapes[data.node])

    def _sum(self, name: str, first: Optional[Output], second: Optional[Output]) -> Optional[Output]:
        if first is None or second is None:
            return None
        return self._new("elemwise_add", f"{name}_sum", [first, second], {}, self._shapes[first.node])

    def _at_least(self, name: str, data: Output, low: float) -> Optional[Output]:
        """max(data, low). A difference from a bound that is far from all data would lose the data's digits, so it is
        what is added, not what is kept."""
        if low == 0:
            return self._relu(name, data)
        if low <= np.finfo(self._dtype).min:
            return data
        return self._sum(f"{name}_low", data, self._relu(f"{name}_low", self._scaled(f"{name}_under", data, -1.0, low)))

    def _at_most(self, name: str, data: Optional[Output], high: float) -> Optional[Output]:
        """min(data, high)."""
        if data is None or high >= np.finfo(self._dtype).max:
            return data
        over = self._relu(f"{name}_high", self._scaled(f"{name}_over", data, 1.0, -high))
        return None if over is None else self._sum(f"{name}_high", data, self._scaled(f"{name}_back", over, -1.0))

    def _leaky(self, node: Node, data: Output) -> Optional[Output]:
        slope = float(np.float32(node.attr("slope", 0.25)))  # as MXNet keeps it
        whole, positive = self._scaled(f"{node.name}_whole", data, slope), self._relu(node.name, data)
        rest = None if positive is None else self._scaled(f"{node.name}_rest", positive, 1 - slope)
        return self._sum(node.name, whole, rest)

    def _dense(self, node: Node, data: Output) -> Optional[Output]:
        """W x + b as a convolution over the whole picture; without a bias it is cuBLAS's as it is."""
        if data.node.op == "Flatten":
            data = data.node.inputs[0]
        weight, *bias = (self._graph.value(source) for source in node.inputs[1:])
        flat = node.attr("flatten", True) or len(self._shapes[data.node]) == 2
        if not bias or weight is None or bias[0] is None or not flat:
            return None
        if len(self._shapes[data.node]) == 2:
            data = self._picture(node.name, data)
        batch, *inner = self._shapes[data.node]
        if not 2 <= len(inner) <= 4:
            return None
        units = int(node.attr("num_hidden"))
        kernel = self._graph.constant(f"{node.name}_kernel", weight.reshape(units, *inner))
        attrs = {"kernel": str(tuple(inner[1:])), "num_filter": str(units), "no_bias": "False"}
        shape = (batch, units, *[1] * (len(inner) - 1))
        return self._row(node.name, self._new("Convolution", node.name, [data, kernel, node.inputs[2]], attrs, shape))

    def _pooling(self, node: Node, data: Output) -> Optional[Output]:
        """cuDNN has none of one axis, so it gets a first axis of length 1; and MXNet gives it none without a kernel."""
        rank = len(self._shapes[node]) - 2
        if node.attr("global_pool", False):
            node.attrs["kernel"] = str((1,) * rank)
        if rank != 1:
            return None
        length, outputs = self._shapes[data.node][2], self._shapes[node][2]
        flat = {"shape": "(0, 0, 1, -1)"}
        row = self._new("Reshape", f"{node.name}_in", [data], flat, (*self._shapes[data.node][:2], 1, length))
        attrs = {name: text for name, text in node.attrs.items() if name != "layout"}
        for name, before in (("kernel", 1), ("stride", 1), ("pad", 0)):
            if attrs.get(name, "()") != "()":
                attrs[name] = str((before, *node.attr(name)))
        pooled = self._new("Pooling", node.name, [row], attrs, (*self._shapes[node][:2], 1, outputs))
        return self._new("Reshape", f"{node.name}_out", [pooled], {"shape": "(0, 0, -1)"}, self._shapes[node])

    def _softmax(self, node: Node, data: Output) -> Optional[Output]:
        ndim = len(self._shapes[node])
        plain = node.attr("temperature") in (None, 1.0) and len(node.inputs) == 1 and not node.attr("use_length", False)
        if not plain or node.attr("axis", -1) % ndim != 1 or not 2 <= ndim <= 4 or self._dtype != SOFTMAX_TYPE:
            return None
        mode = {"mode": "instance" if ndim == 2 else "channel"}
        return self._new("SoftmaxActivation", node.name, [data], mode, self._shapes[node])


def _check(graph: Graph) -> None:
    wrong = [node for node in graph.nodes() if node.op != "null" and not _runs(node)] + _sums.broken(graph)
    if wrong:
        names = ", ".join(dict.fromkeys(f"{node.op} ({node.name})" for node in wrong))
        raise ValueError(
            "net must be made of what cuDNN and cuBLAS run, for a GPU that MXNet has no machine code for; received the "
            f"operators {names}"
        )


def _runs(node: Node) -> bool:
    """Whether MXNet hands this node on to a library whole."""
    if node.op in ("Convolution", "Deconvolution"):
        return str(node.attr("layout")) in LAYOUTS
    if node.op == "Pooling":
        return len(node.attr("kernel", ())) in (2, 3) and node.attr("pool_type", "max") in ("max", "avg")
    if node.op == "Activation":
        return node.attr("act_type") in ACTIVATIONS
    if node.op == "FullyConnected":
        return bool(node.attr("no_bias", False))
    return node.op in (_sums.SUM, "SoftmaxActivation", *_sums.VIEWS)
