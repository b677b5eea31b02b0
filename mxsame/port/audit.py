"""Which layers of an MXNet network pad symmetrically where Keras's SAME does not, and the same network with SAME.

A network that was brought over from Keras by hand, or by a converter, has the right shapes and weights and still other
values: MXNet's convolutions pad both ends alike, and SAME puts the extra padding element at the end.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from mxsame import ops, padding, tensors, validation
from mxsame._mxnet import mx
from mxsame.rewriting._graph import Graph, Node, Output

__all__ = ["Audit", "Axis", "Layer", "audit"]

OPERATORS = ("Convolution", "Deconvolution", "Pooling")
WRONG = ("shifted", "counts padding")
RESIZING = ("UpSampling", "_contrib_BilinearResize2D")
KEEP_VALUES = (
    "transpose",
    "Reshape",
    "reshape",
    "SwapAxis",
    "swapaxes",
    "reverse",
    "Cast",
    "cast",
    "identity",
    "_copy",
)

Shapes = Union[Sequence[int], Mapping[str, Sequence[int]]]


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a layer. Of a transposed convolution `pads` and `same` are what is cropped."""

    size: int
    output_size: int
    kernel_size: int
    stride: int
    dilation: int
    pads: Tuple[int, int]
    same: Tuple[int, int]
    shift: (
        int  # elements by which every window starts before that of SAME; a transposed convolution's are of its output
    )


@dataclass(frozen=True)
class Layer:
    """A convolution or a pooling operator.

    `status` is "same" (what SAME gives), "shifted" (the shape that SAME gives, from other elements), "counts padding"
    (an average over padding, too), "valid" (no padding), "explicit" (operators before it pad), "other" (neither the
    shape of SAME nor of VALID) or "unknown" (a kernel that the graph computes, or another kind of pooling).
    `accumulated` is where its output is seen from, compared with SAME in every layer up to here: in pixels of the
    network's input, along each axis, negative for earlier ones.
    """

    name: str
    operator: str
    status: str
    axes: Tuple[Axis, ...]
    accumulated: Tuple[float, ...]


@dataclass(frozen=True)
class Audit:
    """What `audit` found; `str` of it is a table."""

    symbol: Any
    shapes: Dict[str, Tuple[int, ...]]
    layers: Tuple[Layer, ...]
    outputs: Dict[str, Tuple[float, ...]]  # what is accumulated at each output of the network

    @property
    def wrong(self) -> Tuple[Layer, ...]:
        """The layers that are not what SAME gives, though their shapes are."""
        return tuple(layer for layer in self.layers if layer.status in WRONG)

    def fixed_symbol(self) -> Any:
        """The network with exact SAME in place of the wrong layers, for this input size; its parameters stay the same.

        >>> from mxnet import gluon, sym
        >>> net = gluon.nn.Conv2D(8, 3, strides=2, padding=1, in_channels=3)
        >>> fixed = audit(net, (1, 3, 32, 32)).fixed_symbol()
        >>> len(audit(fixed, (1, 3, 32, 32)).wrong), fixed.infer_shape(data=(1, 3, 32, 32))[1]
        (0, [(1, 8, 16, 16)])
        >>> same = gluon.SymbolBlock(fixed, sym.var("data"), params=net.collect_params())
        """
        if not self.wrong:
            return self.symbol
        graph = Graph.of(self.symbol, {}, self.shapes)
        for window in list(_windows(graph, graph.shapes())):
            if window.status in WRONG:
                _splice(graph, window.last, window.exact(), window.arguments())
        for node in graph.nodes():
            if node.op == "null" and node.name in self.shapes:
                lengths = (None, *self.shapes[node.name][1:])
                _splice(graph, node, tensors.fixed(mx.sym.var("data"), lengths), {"data": Output(node)})
        return graph.symbol()

    def __str__(self) -> str:
        return "\n".join(_table(self))


def audit(net: Any, shape: Shapes) -> Audit:
    """Find the layers whose symmetric padding is not Keras's SAME for this input size.

    A layer is wrong if its output has the shape that SAME gives and each window starts elsewhere; so is an average
    that counts padding. Networks without such layers, and those of `mxsame.nn`, have none. Whether Keras's layer has
    `padding="same"` is for you to know: after `ZeroPadding2D` and with "valid", symmetric padding is right.

    Parameters
    ----------
    net : gluon.HybridBlock, Symbol or path of a `-symbol.json` file
    shape : sequence of ints, or a mapping from the name of each input to its shape
        With the batch, as the network takes its data; a block of several inputs has them in this order.

    Returns
    -------
    Audit
        `layers`, `wrong` (some of them), `outputs` and `fixed_symbol()`; `print` shows a table.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, a file that is no Symbol, and shapes on which the network does not run.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import gluon
    >>> net = gluon.nn.HybridSequential()
    >>> net.add(gluon.nn.Conv2D(8, 7, strides=2, padding=3), gluon.nn.MaxPool2D(3, 2, padding=1))
    >>> found = mxsame.audit(net, (1, 3, 224, 224))
    >>> [(layer.status, layer.axes[0].pads, layer.axes[0].same, layer.accumulated) for layer in found.layers]
    [('shifted', (3, 2), (2, 3), (-1.0, -1.0)), ('shifted', (1, 0), (0, 1), (-3.0, -3.0))]
    """
    symbol = _symbol(net, shape)
    shapes = _shapes(symbol, shape)
    graph = Graph.of(symbol, {}, shapes)
    found = _inferred(graph, shape)
    windows = {window.last: window for window in _windows(graph, found)}
    layers, seen = [], _Seen(found)
    for node in graph.nodes():
        window = windows.get(node)
        seen.follow(node, window)
        if window is not None:
            accumulated = seen.pixels(node)
            layers.append(Layer(window.node.name, window.node.op, window.status, window.axes, accumulated))
    outputs = {name: seen.pixels(output.node) for name, output in zip(symbol.list_outputs(), graph.outputs)}
    return Audit(symbol, shapes, tuple(layers), outputs)


# ---- what is given ---------------------------------------------------------------------------------------------------


def _symbol(net: Any, shape: Shapes) -> Any:
    if isinstance(net, mx.sym.Symbol):
        return net
    if isinstance(net, mx.gluon.HybridBlock):
        outputs = net(*map(mx.sym.var, shape if isinstance(shape, Mapping) else ["data"]))
        return mx.sym.Group(list(outputs)) if isinstance(outputs, (list, tuple)) else outputs
    if isinstance(net, (str, os.PathLike)):
        return _read(os.fspath(net))
    raise TypeError(
        "net must be a gluon.HybridBlock, a Symbol or the path of a -symbol.json file; "
        f"received net of type {type(net).__name__}"
    )


def _read(path: str) -> Any:
    """The Symbol of a file. MXNet takes what it reads for granted, so that is checked before."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode("utf-8")
        read = json.loads(text)
        nodes = read["nodes"]
        for number, node in enumerate(nodes):
            if not (isinstance(node["op"], str) and isinstance(node["name"], str)):
                raise ValueError(f"node {number} has no operator and name")
            if not all(0 <= source[0] < number and source[1] >= 0 for source in node["inputs"]):
                raise ValueError(f"node {number}, {node['name']!r}, has an input that is not before it")
        for key, entries in (("heads", [head[0] for head in read["heads"]]), ("arg_nodes", read["arg_nodes"])):
            if not entries or not all(0 <= number < len(nodes) for number in entries):
                raise ValueError(f"{key} must name nodes of the graph")
        return mx.sym.load_json(text)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, mx.base.MXNetError) as error:
        reason = (str(error).strip().splitlines() or ["nothing"])[0][:200]
        raise ValueError(f"net must be a file that Symbol.save wrote; received {path!r}: {reason}") from None


def _shapes(symbol: Any, shape: Shapes) -> Dict[str, Tuple[int, ...]]:
    """Name of an input -> shape."""
    names = symbol.list_arguments()
    given = shape if isinstance(shape, Mapping) else {"data" if "data" in names else names[0]: shape}
    for name, value in given.items():
        if name not in names:
            raise ValueError(f"shape must be of an input of the network; {validation.received(name=name)}")
        if not validation.is_sequence(value):
            raise TypeError(f"shape must be a sequence of integers; {validation.received(shape=value)}")
    return {
        name: tuple(validation.integer(f"shape[{axis}]", length, 1) for axis, length in enumerate(value))
        for name, value in given.items()
    }


def _inferred(graph: Graph, shape: Shapes) -> Dict[Node, Tuple[int, ...]]:
    """The shape of every node's first output."""
    nodes = graph.nodes()
    symbol = graph.symbol([Output(node) for node in nodes])
    try:
        _, found, _ = symbol.infer_shape_partial(**graph.inputs)
    except mx.base.MXNetError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1][:200] if lines else "nothing"
        raise ValueError(
            f"net must run on data of this shape; {validation.received(shape=shape)}; MXNet says: {reason}"
        ) from None
    result = dict(zip(nodes, found))
    unknown = [node.name for node in nodes if node.op in OPERATORS and (not result[node] or 0 in result[node])]
    if unknown:
        raise ValueError(
            "shape must be given for every input of the network, by name, so that the shapes of all layers are known; "
            f"{validation.received(shape=shape, unknown=unknown)}"
        )
    return result


# ---- layers ----------------------------------------------------------------------------------------------------------


def _integers(node: Node, name: str, default: Sequence[int]) -> Tuple[int, ...]:
    """An attribute such as "(3, 3)", "[3,3]" or Python 2's "(3L, 3L)"; the default if it is missing or empty."""
    return tuple(int(number) for number in re.findall(r"-?\d+", node.attrs.get(name, ""))) or tuple(default)


def _flag(node: Node, name: str, default: bool) -> bool:
    value = node.attrs.get(name, "None")
    return default if value == "None" else value in ("True", "true", "1")


class _Window:
    """A convolution or pooling operator that ends in `last`: itself, a slice after it that crops it to SAME's size, or
    one that flips it back.

    `source` is the data before operators that pad it, by `before` elements at the start of each axis, or the operator's
    own data, and `before` is None. `flipped` has the axes that run backwards from there to `last`.
    """

    def __init__(self, node: Node, source: Node, before: Optional[tuple], found: Dict[Node, tuple]):
        self.node, self.source, self.has_padding_before = node, source, before is not None
        self.entry = node  # its first input is the data that `exact` is given
        self.is_transposed, self.is_pool = node.op == "Deconvolution", node.op == "Pooling"
        self.pool_type = node.attrs.get("pool_type", "max")
        self.flipped: Tuple[int, ...] = ()
        self.kernel_size = _integers(node, "kernel", ())
        rank = len(self.kernel_size)
        ones, zeros = (1,) * rank, (0,) * rank
        self.strides, self.dilation = _integers(node, "stride", ones), _integers(node, "dilate", ones)
        self.pad = _integers(node, "pad", zeros)
        layout = node.attrs.get("layout", "None")
        self.layout = validation.LAYOUTS[rank][0] if layout == "None" else layout
        self.spatial = slice(1, 1 + rank) if self.layout.endswith("C") else slice(2, 2 + rank)
        self.shape = found[source]
        before_sizes = found[node.inputs[0].node][self.spatial]
        target = _integers(node, "target_shape", zeros)
        if self.is_transposed and any(target):  # MXNet chooses the pads then
            whole = self._whole(before_sizes)
            self.pad = tuple((length - wanted + 1) // 2 for length, wanted in zip(whole, target))
        self.low = tuple(map(sum, zip(self.pad, zeros if before is None else before[self.spatial])))
        self.end_in(node, zeros, found)

    def end_in(self, last: Node, cropped: Sequence[int], found: Dict[Node, tuple]) -> None:
        """Take `last` for the end, which drops so many outputs at the start of each axis."""
        self.last, sizes = last, found[last][self.spatial]
        steps = [1 if self.is_transposed else -stride for stride in self.strides]  # windows start later
        low = [pad + step * count for pad, step, count in zip(self.low, steps, cropped)]
        self.output_padding, same_sizes = self._same(sizes)
        self.fits = sizes == same_sizes
        backwards = [axis in self.flipped for axis in range(self.spatial.start, self.spatial.stop)]
        self.axes = tuple(
            self._axis(*values)
            for values in zip(self._geometry(), sizes, low, self.output_padding or (None,) * len(low), backwards)
        )

    def end_flipped(self, flip: Node, back: Node, cropped: Sequence[int], found: Dict[Node, tuple]) -> None:
        """Start before `flip`, which flips axes, and end in `back`, which flips them back."""
        self.flipped = _flipped_axes(flip)
        self.entry, self.source = flip, flip.inputs[0].node
        self.shape = found[self.source]
        self.end_in(back, cropped, found)

    def _geometry(self) -> Iterable[Tuple[int, int, int, int]]:
        """(size, kernel size, stride, dilation) of each axis."""
        return zip(self.shape[self.spatial], self.kernel_size, self.strides, self.dilation)

    def _whole(self, sizes: Sequence[int]) -> List[int]:
        """What a transposed convolution of such sizes writes to before it is cropped."""
        geometry = zip(sizes, self.kernel_size, self.strides, self.dilation)
        return [padding.transposed_output_size(n, k, s, d, (0, 0)) for n, k, s, d in geometry]

    def _same(self, sizes: Tuple[int, ...]) -> Tuple[Optional[Tuple[int, ...]], Tuple[int, ...]]:
        """(output_padding, sizes) of Keras's SAME layer; the sizes are these, if some output_padding gives them."""
        if not self.is_transposed:
            return None, tuple(padding.output_size(*values) for values in self._geometry())
        plain = tuple(padding.transposed_output_size(*values) for values in self._geometry())
        if sizes == plain:
            return None, plain
        fitting = [_fitting_output_padding(*values, size) for values, size in zip(self._geometry(), sizes)]
        return (None, plain) if None in fitting else (tuple(fitting), sizes)

    def _axis(
        self, geometry: Tuple[int, int, int, int], out: int, low: int, output_padding: Optional[int], backwards: bool
    ) -> Axis:
        n, k, s, d = geometry
        if self.is_transposed:
            same = padding.transposed_cuts(k, s, d, "same", output_padding)
            high = padding.transposed_output_size(n, k, s, d, (0, 0)) - out - low
        else:
            same = padding.same_pads(n, k, s, d)
            high = (out - 1) * s + padding.effective_kernel_size(k, d) - n - low
        pads = (high, low) if backwards else (low, high)
        return Axis(n, out, k, s, d, pads, same, (pads[0] - same[0]) * (-1 if self.is_transposed else 1))

    @property
    def status(self) -> str:
        """That of `Layer`."""
        if self.pool_type not in ("max", "avg") if self.is_pool else not _is_parameter(self.node.inputs[1].node):
            return "unknown"
        if self.fits and not any(axis.shift for axis in self.axes):
            counts = self.pool_type == "avg" and self.is_pool and _flag(self.node, "count_include_pad", True)
            return "counts padding" if counts and any(self.pad) else "same"
        if self.has_padding_before:
            return "explicit"
        if not any(self.pad) and self._is_valid():
            return "valid"
        return "shifted" if self.fits else "other"

    def _is_valid(self) -> bool:
        """Whether nothing is cropped: then the size is that of VALID, or of its relatives that round up.

        Windows over flipped data are VALID's if the first one starts with the data."""
        if self.is_transposed:
            return all(sum(axis.pads) <= 0 for axis in self.axes)
        return not self.flipped or not any(axis.pads[0] for axis in self.axes)

    def arguments(self) -> Dict[str, Output]:
        """The operator's inputs, as they are now, by the names that `exact` gives them."""
        return dict(zip(("data", "weight", "bias"), [self.entry.inputs[0], *self.node.inputs[1:]]))

    def exact(self) -> Any:
        """The layer with SAME, as a Symbol of variables named data, weight and bias."""
        data = mx.sym.var("data", shape=self.shape)
        if self.is_pool:
            pool = ops.max_pool if self.pool_type == "max" else ops.avg_pool
            return pool(data, self.kernel_size, self.strides, layout=self.layout)
        given = {
            "channels": _integers(self.node, "num_filter", (1,))[0],
            "groups": _integers(self.node, "num_group", (1,))[0],
        }
        given.update(kernel_size=self.kernel_size, strides=self.strides, dilation=self.dilation, layout=self.layout)
        bias = mx.sym.var("bias") if len(self.node.inputs) > 2 else None
        if self.is_transposed:
            given["output_padding"] = self.output_padding
        weight = mx.sym.var("weight")  # its spatial axes have the numbers that those of the data have
        weight = mx.sym.reverse(weight, axis=self.flipped) if self.flipped else weight
        return (ops.conv_transpose if self.is_transposed else ops.conv)(data, weight, bias, **given)


def _is_parameter(node: Node) -> bool:
    """Whether a kernel is a variable as it is, or in another order: then its length is the one that was trained."""
    while node.op in KEEP_VALUES:
        node = node.inputs[0].node
    return node.op == "null"


def _fitting_output_padding(size: int, kernel_size: int, stride: int, dilation: int, output: int) -> Optional[int]:
    """The output_padding of Keras's transposed SAME convolution that gives this output size, if one does."""
    for extra in range(stride):
        try:
            if padding.transposed_output_size(size, kernel_size, stride, dilation, "same", extra) == output:
                return extra
        except ValueError:  # Keras has no such layer
            continue
    return None


def _windows(graph: Graph, found: Dict[Node, tuple]) -> Iterable[_Window]:
    """Every convolution and pooling operator that is not global."""
    users = graph.users()
    for node in graph.nodes():
        if node.op not in OPERATORS or _flag(node, "global_pool", False) or not _integers(node, "kernel", ()):
            continue
        data = node.inputs[0].node
        source, before = (data, None) if node.op == "Deconvolution" else _unpadded(data, found, node)
        window = _Window(node, source, before, found)
        last, cropped = node, (0,) * len(found[node])
        while not window.fits and len(users[last]) == 1 and users[last][0].node is not None:
            begin = _begin(users[last][0].node, len(cropped))
            if begin is None:
                break
            last, cropped = users[last][0].node, tuple(map(sum, zip(cropped, begin)))
            if _others(found[last], window.spatial) == _others(found[node], window.spatial):
                window.end_in(last, cropped[window.spatial], found)
        if not window.fits:
            last, cropped = node, (0,) * len(found[node])
            window.end_in(node, cropped[window.spatial], found)
        flipped = _flipped_axes(window.source)
        back = users[last][0].node if len(users[last]) == 1 else None
        is_spatial = set(flipped) <= set(range(window.spatial.start, window.spatial.stop))
        if flipped and is_spatial and back is not None and _flipped_axes(back) == flipped:
            window.end_flipped(window.source, back, cropped[window.spatial], found)
        yield window


def _others(shape: tuple, spatial: slice) -> tuple:
    """The lengths of the axes that are not spatial."""
    return shape[: spatial.start] + shape[spatial.stop :]


def _begin(node: Node, ndim: int) -> Optional[Tuple[int, ...]]:
    """How many elements a slice drops at the start of each axis; None for every other operator."""
    if node.op == "slice_axis":
        begin, axis = _integers(node, "begin", (0,))[0], _integers(node, "axis", (0,))[0] % ndim
        return tuple(begin if other == axis else 0 for other in range(ndim)) if begin >= 0 else None
    if node.op != "slice" or set(_integers(node, "step", (1,))) - {1}:
        return None
    words = re.findall(r"None|-?\d+", node.attrs.get("begin", ""))
    begin = [0 if word == "None" else int(word) for word in words]
    return (*begin, *(0,) * (ndim - len(begin))) if min(begin, default=0) >= 0 else None


def _flipped_axes(node: Node) -> Tuple[int, ...]:
    """The axes that a slice which takes everything flips; none for every other operator."""
    if node.op != "slice" or re.search(r"\d", node.attrs.get("begin", "") + node.attrs.get("end", "")):
        return ()
    steps = re.findall(r"None|-?\d+", node.attrs.get("step", ""))
    return () if set(steps) - {"None", "1", "-1"} else tuple(axis for axis, step in enumerate(steps) if step == "-1")


def _unpadded(node: Node, found: Dict[Node, tuple], reader: Node) -> Tuple[Node, Optional[Tuple[int, ...]]]:
    """(the data before padding operators, what they put before each axis), or the node itself and None.

    Padding is MXNet's pad operator, or zeros that are concatenated; before a max pool, the data's own first and last
    elements. Some of it is done with an axis more or less, so axes are counted from the end.
    """
    ndim, source, widths, companion = len(found[node]), node, [0] * len(found[node]), 0
    found_pads: List[Tuple[int, int]] = []
    current = node
    while True:
        if current.op in ("Pad", "pad") and reader.op == "Convolution" and _pads_with_zeros(current):
            rank = len(found[current])
            found_pads += [(axis - rank, low) for axis, low in enumerate(_integers(current, "pad_width", ())[::2])]
        elif current.op in ("Concat", "concat"):
            entries = [entry for entry, _ in current.inputs]
            data = [entry for entry in entries if not _is_filler(entry, reader)]
            if len(data) != 1:
                break
            axis = _integers(current, "dim", (1,))[0] % len(found[current])
            before = entries[: entries.index(data[0])]
            found_pads.append((axis - len(found[current]), sum(found[entry][axis] for entry in before)))
            current = data[0]
            if len(found[current]) == ndim and not companion:
                source, widths, found_pads = current, _added(widths, found_pads), []
            continue
        elif current.op == "expand_dims":
            companion = int(_integers(current, "axis", (0,))[0] in (-1, len(found[current]) - 1))
        elif current.op not in ("Reshape", "reshape"):
            break
        current = current.inputs[0].node
        if len(found[current]) == ndim:
            if not found_pads:
                break  # a reshape of its own
            source, widths = current, _added(widths, [(axis + companion, low) for axis, low in found_pads])
            found_pads, companion = [], 0
    return (node, None) if source is node else (source, tuple(widths))


def _added(widths: List[int], pads: List[Tuple[int, int]]) -> List[int]:
    """The widths with more along some axes, each counted from the end."""
    result = list(widths)
    for axis, low in pads:
        if low:
            result[axis] += low
    return result


def _is_filler(node: Node, reader: Node) -> bool:
    """Whether a node is padding for this reader."""
    if reader.op == "Pooling" and reader.attrs.get("pool_type", "max") == "max":
        return node.op in ("slice", "slice_axis")
    return node.op in ("zeros_like", "_zeros", "zeros")


def _pads_with_zeros(node: Node) -> bool:
    return node.attrs.get("mode") == "constant" and float(node.attrs.get("constant_value", "0")) == 0


def _splice(graph: Graph, node: Node, built: Any, arguments: Dict[str, Output]) -> None:
    """Put `built`, a Symbol of variables with these names, where the node's output was used."""
    inner = Graph.of(built, {}, {})
    users = graph.users()[node]
    for number, new in enumerate(inner.nodes()):
        new.name = new.name if new.op == "null" else f"{node.name}_{number}_{new.name}"
        new.inputs = [
            arguments[source.name] if source.op == "null" else Output(source, index) for source, index in new.inputs
        ]
    for user in users:
        graph.connect(user, inner.outputs[0])
    if node.op != "null":
        inner.outputs[0].node.name = node.name


# ---- how shifts add up -----------------------------------------------------------------------------------------------


class _Seen:
    """Along each spatial axis, what one step of a node's output is in pixels of the network's input, and how far what
    it shows is from what SAME shows; of several inputs, the farthest."""

    def __init__(self, shapes: Dict[Node, tuple]):
        self.shapes = shapes
        self.steps: Dict[Node, List[Fraction]] = {}
        self.offsets: Dict[Node, List[Fraction]] = {}

    def follow(self, node: Node, window: Optional[_Window]) -> None:
        """Once for every node, after its inputs."""
        sources = [source for source, _ in node.inputs if source in self.steps]
        if node.op == "null" or (not sources and window is None):
            return
        if window is not None and window.source not in self.steps:
            rank = len(window.axes)
            self.steps[window.source], self.offsets[window.source] = (
                [Fraction(1)] * rank,
                [Fraction(0)] * rank,
            )
        if window is not None:
            self._through(node, window)
            return
        self.steps[node] = list(self.steps[sources[0]])
        offsets = [self.offsets[source] for source in sources]
        self.offsets[node] = [max(along, key=abs) for along in zip(*offsets)]
        if node.op in RESIZING:
            sizes = zip(self.shapes[node.inputs[0].node][2:], self.shapes[node][2:])
            self.steps[node] = [step * Fraction(n, out) for step, (n, out) in zip(self.steps[node], sizes)]

    def _through(self, node: Node, window: _Window) -> None:
        steps, offsets = self.steps[window.source], self.offsets[window.source]
        stride = [Fraction(1, axis.stride) if window.is_transposed else Fraction(axis.stride) for axis in window.axes]
        self.steps[node] = [step * by for step, by in zip(steps, stride)]
        unit = self.steps[node] if window.is_transposed else steps  # what one element of the shift is
        shifts = [axis.shift if window.status == "shifted" else 0 for axis in window.axes]
        self.offsets[node] = [offset - shift * one for offset, shift, one in zip(offsets, shifts, unit)]

    def pixels(self, node: Node) -> Tuple[float, ...]:
        """The offsets of a node; none where no convolution and no pooling came before it."""
        return tuple(float(offset) for offset in self.offsets.get(node, ()))


# ---- as a table ------------------------------------------------------------------------------------------------------

ADVICE = (
    "A shifted layer is right if the network was trained in MXNet, and if Keras has ZeroPadding and padding='valid' "
    "there. If Keras has padding='same' there, use the layer of the same name in mxsame.nn, or write the network with "
    "exact SAME: mxsame audit --fix."
)


def _table(found: Audit) -> Iterable[str]:
    """A line for every wrong layer, what it comes to, and what to do."""
    shapes = ", ".join(f"{name} {shape}" for name, shape in found.shapes.items())
    yield f"{len(found.layers)} convolutions and pooling operators on {shapes}: {len(found.wrong)} not as Keras's SAME"
    if not found.wrong:
        return
    rows = [("layer", "operator", "size", "kernel", "stride", "pads", "SAME", "shift", "accumulated", "")]
    for layer in found.wrong:
        along = [[_cell(getattr(axis, name)) for axis in layer.axes] for name in ("size", "kernel_size", "stride")]
        pairs = [[_cell(getattr(axis, name)) for axis in layer.axes] for name in ("pads", "same", "shift")]
        accumulated = [_cell(pixels) for pixels in layer.accumulated]
        columns = (*map("x".join, along), *map(" ".join, pairs), " ".join(accumulated))
        rows.append((layer.name, layer.operator, *columns, layer.status))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
    for name, pixels in found.outputs.items():
        if any(pixels):
            yield f"{name}: off by {' and '.join(map(_cell, pixels))} pixels of the input"
    yield ADVICE


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return "({},{})".format(*value)
    return f"{value:+g}" if isinstance(value, float) else str(value)
