"""A graph lowered to what cuDNN and cuBLAS run.

MXNet passes these on to the libraries whole (src/operator/nn/*.cu and cudnn/*-inl.h of MXNet 1.9.1): convolutions with
their bias, pooling operators in 2-D and 3-D, three activations, a softmax, matrix products; and copies within memory,
which reshapes are. More can be written with these:

    scale * x + shift     a convolution of each channel with one number, and a bias
    max(x, a)             a + relu(x - a), or max pooling of x and a
    min(x, b)             b - relu(b - x), or -max(-x, -b)
    leaky relu            slope * x + (1 - slope) * relu(x)
    W x + b               a convolution over the whole picture
    x + y                 a convolution that adds its output to an array (see `_inplace_add`)
    conv(concat(x, y))    conv(x) + conv(y) (see `_split_concat`)
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from mxsame.cudnn_only import _inplace_add, _split_concat
from mxsame.rewriting import Graph, Node, Output, as_affine, by_channel, far_mean, is_channels_first, protect

ACTIVATIONS = ("relu", "sigmoid", "tanh")
LAYOUTS = ("None", "NCW", "NCHW", "NCDHW", "NHWC")
SOFTMAX_DTYPE = np.dtype("float32")  # MXNet passes on no other to cuDNN's
NEAR = 16  # b - relu(b - x) rounds x as it would round b: by less than 1e-6 up to here, in float32


def lower(graph: Graph, dtype: np.dtype) -> None:
    """Write all of a graph, whose data has this type, with what cuDNN and cuBLAS run; a `ValueError` names the
    operators for which that is not possible."""
    _check([node for node in graph.nodes() if node not in graph.shapes()])
    lowering = _Lowering(graph, dtype)
    for node in graph.nodes():
        found = lowering.lowered(node)
        if found is not None:
            graph.replace(node, found)
    _split_concat.split(graph)
    _inplace_add.merge(graph)
    if dtype == np.float32:
        protect(graph)
    lowering.additions()
    graph.prune()
    _check([node for node in graph.nodes() if not _runs(node)] + _inplace_add.broken(graph))


def with_plain_adds(graph: Graph) -> Graph:
    """The same graph with ordinary additions: MXNet makes no graph of a block with `_grad_add`."""
    plain = Graph.of(graph.symbol(), graph.values, graph.inputs)
    for node in plain.nodes():
        if node.op == _inplace_add.ADD:
            node.op = "elemwise_add"
    return plain


def _check(refused: Sequence[Node]) -> None:
    if refused:
        names = ", ".join(dict.fromkeys(f"{node.op} ({node.name})" for node in refused))
        raise ValueError(
            "net must be made of what cuDNN and cuBLAS run, for a GPU that MXNet has no machine code for; received the "
            f"operators {names}"
        )


def check_for_cpu(graph: Graph, dtype: np.dtype) -> None:
    """Raise if MXNet runs some of a lowered graph's operators on a GPU only."""
    refused = [
        f"{node.op} ({node.name})"
        for node in graph.nodes()
        if not is_channels_first(node)
        or (node.op == "Deconvolution" and len(node.attr("kernel")) == 3 and dtype != np.float32)
    ]
    if refused:
        raise ValueError(
            "net must run on a GPU: MXNet has no operators with channels last on the CPU, and there transposed "
            f"convolutions in 3-D have to be float32; received the operators {', '.join(refused)} of {dtype}"
        )


def _runs(node: Node) -> bool:
    """Whether MXNet passes this node on to a library whole."""
    if node.op in ("Convolution", "Deconvolution"):
        return str(node.attr("layout")) in LAYOUTS
    if node.op == "Pooling":
        return len(node.attr("kernel", ())) in (2, 3) and node.attr("pool_type", "max") in ("max", "avg")
    if node.op == "Activation":
        return node.attr("act_type") in ACTIVATIONS
    if node.op == "FullyConnected":
        return bool(node.attr("no_bias", False))
    return node.op in ("null", _inplace_add.ADD, "SoftmaxActivation", *_inplace_add.VIEWS)


class _Lowering:
    """What replaces nodes that are no operators of the libraries."""

    def __init__(self, graph: Graph, dtype: np.dtype):
        self._graph, self._dtype, self._shapes = graph, dtype, graph.shapes()

    def lowered(self, node: Node) -> Optional[Output]:
        """What replaces a node; None if it may stay, or if nothing can."""
        data = node.inputs[0] if node.inputs else None
        node.attrs.pop("cudnn_off", None)
        if node.op in ("clip", "_npi_clip"):
            low, high = (float(np.float32(node.attrs[name])) for name in ("a_min", "a_max"))  # as MXNet keeps them
            return self._at_most(node.name, self._at_least(node.name, data, low), high)
        if node.kind == "maximum_scalar":
            return self._at_least(node.name, data, float(node.attrs["scalar"]))
        if node.kind == "minimum_scalar":
            return self._at_most(node.name, data, float(node.attrs["scalar"]))
        if node.op == "LeakyReLU" and node.attr("act_type", "leaky") == "leaky":
            return self._leaky(node, data)
        if node.op == "FullyConnected":
            return self._dense(node, data)
        if node.op == "Pooling":
            return self._pooling(node, data)
        if node.kind == "subtract" and self._alike(node):
            return self._sum(node.name, data, self._scaled(f"{node.name}_minus", node.inputs[1], -1.0))
        if node.op == "add_n" and self._alike(node) and len(node.inputs) > 1:
            total = data
            for index, each in enumerate(node.inputs[1:]):
                total = self._sum(f"{node.name}_to{index}", total, each)
            return total
        if node.op == "softmax":
            return self._softmax(node, data)
        return self._affine(node)

    def additions(self) -> None:
        """Additions of arrays of one shape become in-place ones; those of rows as pictures."""
        self._shapes = self._graph.shapes()
        pictures = []
        for node in self._graph.nodes():
            if node.kind != "add" or not self._alike(node):
                continue
            if len(self._shapes[node]) == 2:
                rows = [self._picture(f"{node.name}_{index}", row) for index, row in enumerate(node.inputs)]
                total = self._new("elemwise_add", f"{node.name}_picture", rows, {}, self._shapes[rows[0].node])
                self._graph.replace(node, self._row(node.name, total))
                node = total.node
            if node.inputs[0] == node.inputs[1]:
                self._graph.replace(node, self._scaled(f"{node.name}_twice", node.inputs[0], 2.0))
            elif 3 <= len(self._shapes[node]) <= 5:
                pictures.append(node)
        _inplace_add.fold(self._graph, pictures, self._scaled)

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
        return self._made(by_channel(self._graph, name, data, shape, *factors), shape)

    def _relu(self, name: str, data: Optional[Output]) -> Optional[Output]:
        if data is None:
            return None
        return self._new("Activation", f"{name}_relu", [data], {"act_type": "relu"}, self._shapes[data.node])

    def _sum(self, name: str, first: Optional[Output], second: Optional[Output]) -> Optional[Output]:
        if first is None or second is None:
            return None
        return self._new("elemwise_add", f"{name}_sum", [first, second], {}, self._shapes[first.node])

    def _affine(self, node: Node) -> Optional[Output]:
        """A batch norm, or arithmetic with numbers for each channel."""
        affine = as_affine(self._graph, node, self._shapes)
        if affine is None or affine.axis != 1:
            return None
        data, scale, shift, mean = affine.data, affine.scale, affine.shift, far_mean(self._graph, node, affine)
        if mean is not None:  # first x - mean, which is exact where x is close to it
            centred = self._scaled(f"{node.name}_centred", data, 1.0, -mean)
            return None if centred is None else self._scaled(node.name, centred, scale, shift + mean * scale)
        return self._scaled(node.name, data, scale, shift)

    def _at_least(self, name: str, data: Output, low: float) -> Optional[Output]:
        """max(data, low)."""
        if low == 0:
            return self._relu(name, data)
        if low <= np.finfo(self._dtype).min:
            return data
        if abs(low) > NEAR:
            return self._pooled(f"{name}_low", data, 1.0, low)
        over = self._relu(f"{name}_low", self._scaled(f"{name}_over", data, 1.0, -low))
        return None if over is None else self._scaled(f"{name}_low", over, 1.0, low)

    def _at_most(self, name: str, data: Optional[Output], high: float) -> Optional[Output]:
        """min(data, high)."""
        if data is None or high >= np.finfo(self._dtype).max:
            return data
        if abs(high) > NEAR:
            opposite = self._pooled(f"{name}_high", data, -1.0, -high)
            return None if opposite is None else self._scaled(f"{name}_back", opposite, -1.0)
        under = self._relu(f"{name}_high", self._scaled(f"{name}_under", data, -1.0, high))
        return None if under is None else self._scaled(f"{name}_high", under, -1.0, high)

    def _pooled(self, name: str, data: Output, sign: float, bound: float) -> Optional[Output]:
        """max(sign * data, bound) for finite data: each channel becomes two, the second of which is the bound
        everywhere, and a max pooling operator takes the larger."""
        shape = self._shapes[data.node]
        if not 3 <= len(shape) <= 5:
            return None
        channels, kernel = shape[1], (1,) * (len(shape) - 2)
        weight = np.tile(np.array([sign, 0], self._dtype), channels).reshape(2 * channels, 1, *kernel)
        bias = np.tile(np.array([0, bound], self._dtype), channels)
        inputs = [data, self._graph.constant(f"{name}_weight", weight), self._graph.constant(f"{name}_bias", bias)]
        attrs = {"kernel": str(kernel), "num_filter": str(2 * channels), "num_group": str(channels)}
        both = self._new("Convolution", f"{name}_both", inputs, attrs, (shape[0], 2 * channels, *shape[2:]))
        pairs = (shape[0], channels, 2, int(np.prod(shape[2:])))
        rows = self._new("Reshape", f"{name}_pairs", [both], {"shape": str((0, channels, 2, -1))}, pairs)
        pooled = self._new("Pooling", f"{name}_max", [rows], {"kernel": "(2, 1)"}, (*pairs[:2], 1, pairs[3]))
        return self._new("Reshape", f"{name}_max_out", [pooled], {"shape": str((0, channels, *shape[2:]))}, shape)

    def _leaky(self, node: Node, data: Output) -> Optional[Output]:
        slope = float(np.float32(node.attr("slope", 0.25)))  # as MXNet keeps it
        whole, positive = self._scaled(f"{node.name}_whole", data, slope), self._relu(node.name, data)
        rest = None if positive is None else self._scaled(f"{node.name}_rest", positive, 1 - slope)
        return self._sum(node.name, whole, rest)

    def _dense(self, node: Node, data: Output) -> Optional[Output]:
        """W x + b as a convolution over the whole picture; without a bias cuBLAS runs it as it is."""
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
        """cuDNN has none for one axis, so the data gets a first axis of length 1; and MXNet passes on none without a
        kernel."""
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
        if not plain or node.attr("axis", -1) % ndim != 1 or not 2 <= ndim <= 4 or self._dtype != SOFTMAX_DTYPE:
            return None
        mode = {"mode": "instance" if ndim == 2 else "channel"}
        return self._new("SoftmaxActivation", node.name, [data], mode, self._shapes[node])
