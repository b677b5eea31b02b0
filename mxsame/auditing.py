"""Finds the layers of a network that pad symmetrically where Keras's SAME does not, and fixes them.

A network that was ported from Keras by hand, or by a converter, can have the right shapes and weights but different
values: MXNet's convolutions pad both ends equally, while SAME puts the extra padding element at the end.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

from mxsame import ops, padding, tensors, validation
from mxsame._mxnet import mx
from mxsame.graphs import errors, files, tracing
from mxsame.padding.same import high_pad
from mxsame.rewriting.graph import WITH_WINDOWS, Graph, Node, Output, Users, entries
from mxsame.rewriting.windows import MergedOperator, has_windows, merge_pads, spatial
from mxsame.scope import FORMAT
from mxsame.tables import aligned
from mxsame.types import FilePath, InputShape, Shape

if TYPE_CHECKING:
    from mxsame._mxnet import HybridBlock, Symbol, SymbolBlock

__all__ = ["Audit", "Axis", "Layer", "audit"]

WRONG, OTHER = ("shifted", "counts padding"), "other"
NOT_COMPARED = "not compared"
# MXNet's old operators, which compute the same as those without "_v1", except averages with the convention "full".
LEGACY_OPERATORS = ("Convolution_v1", "Pooling_v1")
FUSED_PREFIX = "_sg_mkldnn_"  # the names of oneDNN's fused operators start with it
NOT_COMPARABLE = (  # operators with windows that are never compared
    *("_contrib_quantized_conv", "_contrib_quantized_pooling", "_contrib_DeformableConvolution"),
    *("_contrib_ModulatedDeformableConvolution", *LEGACY_OPERATORS),
)
RESIZING = ("UpSampling", "_contrib_BilinearResize2D")
MOVES = ("Reshape", "expand_dims", "slice", "slice_axis")
CROPS = ("slice", "slice_axis", "slice_like", "take")
KERAS_SIGNATURES = (b"\x89HDF", b"PK\x03\x04")  # the first bytes of HDF5 and zip files
KEEP_VALUES = ("identity", "transpose", "Reshape", "SwapAxis", "reverse", "Cast")
READ_NO_VALUES = ("ones_like", "zeros_like", "shape_array", "_zeros_without_dtype")


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a layer. For a transposed convolution, `pads` and `same` are cropped elements.

    `shift` is how many elements after SAME's windows the layer's windows start; it is negative if they start earlier.
    It counts elements of the input, or for a transposed convolution, of the output.
    """

    size: int
    output_size: int
    kernel_size: int
    stride: int
    dilation: int
    pads: Tuple[int, int]
    same: Tuple[int, int]
    shift: int


@dataclass(frozen=True)
class Layer:
    """A convolution or a pooling operator.

    `status` is "same" (SAME's values), "shifted" (SAME's shape, from other elements), "counts padding" (an average that
    includes padding), "valid" (no padding), "explicit" (operators next to it pad or crop), "other" (neither the shape
    of SAME nor of VALID), "unknown" (a kernel that the graph computes, flipped data, or another kind of pooling) or
    "not compared" (in a loop or a branch, quantized, or deformable; then `axes` is empty). `accumulated` is the sum of
    the shifts of all layers up to this one, in pixels of the network's input.
    """

    name: str
    operator: str
    status: str
    axes: Tuple[Axis, ...]
    accumulated: Tuple[float, ...]


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of `audit`, which is shown as a table.

    >>> from mxnet import gluon
    >>> net = gluon.nn.Conv2D(8, 3, strides=2, padding=1, in_channels=3)
    >>> audit(net, (1, 3, 32, 32)).wrong[0].status
    'shifted'
    """

    symbol: Symbol
    shapes: Dict[str, Tuple[int, ...]]
    layers: Tuple[Layer, ...]
    outputs: Dict[str, Tuple[float, ...]]  # name of each output of the network -> its accumulated shift

    @property
    def wrong(self) -> Tuple[Layer, ...]:
        """The layers with SAME's shapes but not its values."""
        return tuple(layer for layer in self.layers if layer.status in WRONG)

    @property
    def differing(self) -> Tuple[Layer, ...]:
        """The layers that differ from SAME: those that are wrong, and those with another shape, whose status is
        "other"."""
        return tuple(layer for layer in self.layers if layer.status in (*WRONG, OTHER))

    @property
    def not_compared(self) -> Tuple[Layer, ...]:
        """The layers that the audit does not compare."""
        return tuple(layer for layer in self.layers if layer.status == NOT_COMPARED)

    def fix(self, net: HybridBlock) -> SymbolBlock:
        """Returns the network with exact SAME instead of the wrong layers, for this input size, as a SymbolBlock.

        It shares the parameters of `net`, the block that was audited: training one trains the other. Operators that
        oneDNN fused are separate again, and casts of `mxnet.contrib.amp` are removed.

        Raises `TypeError` and `ValueError` for a different net, for an uninitialized one, and for a wrong layer of
        `mxsame.nn`, whose padding cannot be read from the graph.

        >>> from mxnet import gluon, nd
        >>> net = gluon.nn.Conv2D(8, 3, strides=2, padding=1, in_channels=3)
        >>> net.initialize()
        >>> audit(net, (1, 3, 32, 32)).fix(net)(nd.ones((1, 3, 32, 32))).shape
        (1, 8, 16, 16)
        """
        tracing.check_ready(net, may_be_deferred=True)
        symbol, parameters = self.fixed_symbol(), net.collect_params()
        inputs = [tracing.variable(name) for name in self.shapes if name in symbol.list_inputs()]
        missing = sorted({*symbol.list_inputs()} - {*self.shapes} - {*parameters})
        validation.check(not missing, "net must be the block that was audited", missing=missing)
        used = {name: parameters[name] for name in symbol.list_inputs() if name in parameters}
        tracing.initialize_deferred(self.symbol, used, self.shapes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Cannot decide type")  # the data may have any type
            return FixedBlock(tracing.in_mode(symbol), inputs, params=parameters)

    def fixed_symbol(self) -> Symbol:
        """Returns the network of :meth:`fix` as a Symbol, for an audited Symbol or file.

        >>> from mxnet import gluon
        >>> net = gluon.nn.Conv2D(8, 3, strides=2, padding=1, in_channels=3)
        >>> fixed = audit(net, (1, 3, 32, 32)).fixed_symbol()
        >>> len(audit(fixed, (1, 3, 32, 32)).wrong), fixed.infer_shape(data=(1, 3, 32, 32))[1]
        (0, [(1, 8, 16, 16)])
        """
        if not self.wrong:
            return self.symbol
        graph = _read(self.symbol, self.shapes)
        wrong = [layer for layer in _compare_layers(graph, graph.output_shapes()) if layer.status in WRONG]
        rule = 'net must have padding="same", and count_include_pad=False, in its layers of mxsame.nn to be fixed'
        validation.check(len(wrong) == len(self.wrong), rule, layers=[layer.name for layer in self.wrong])
        for layer in wrong:
            inputs = dict(zip(("data", "weight", "bias"), layer.node.inputs))
            _splice(graph, layer.last, layer.exact(), inputs)
        for node in graph.nodes():
            if node.op == "null" and node.name in self.shapes:
                lengths = (None, *self.shapes[node.name][1:])
                _splice(graph, node, tensors.fix_lengths(mx.sym.var("data"), lengths), {"data": Output(node)})
        return tracing.in_mode(graph.symbol())

    def __repr__(self) -> str:
        return "\n".join(_table(self))


class FixedBlock(mx.gluon.SymbolBlock):
    """A network for the audited size."""

    def forward(self, x: Any, *others: Any) -> Any:
        with errors.explain_errors(inputs=[x, *others]):
            return super().forward(x, *others)


@validation.check_arguments
def audit(
    net: Union[HybridBlock, Symbol, FilePath], input_shape: Union[InputShape, Mapping[str, Shape], None] = None
) -> Audit:
    """Find the layers whose symmetric padding is not Keras's SAME for this input size.

    A layer is wrong if its output has SAME's shape but its windows start elsewhere, or if it is an average
    that counts padding. Layers with neither the shape of SAME nor of VALID, such as a kernel of 4 with padding 2, are
    reported, too, but not fixed. Layers of `mxsame.nn` with "same" are never wrong. The audit cannot see whether the
    layer has `padding="same"` in Keras: after `ZeroPadding2D` and with "valid", symmetric padding is right. Layers in
    loops and branches, and quantized and deformable layers, are not compared; the report counts them.

    Parameters
    ----------
    net : gluon.HybridBlock, Symbol or path of a `-symbol.json` file
    input_shape : sequence of ints, a list of one for each input of a net, or a mapping from names of inputs to shapes
        Shapes include the batch, in the order of axes of the data; a list has the order of the block's inputs. Optional
        for a block of a Keras model whose input shapes are static.

    Returns
    -------
    Audit
        `layers`, `wrong` (the wrong layers), `differing` (these, and layers with another shape), `outputs`, `fix(net)`
        and `fixed_symbol()`; `print` shows a table.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, a file that does not hold a Symbol, and shapes on which the network does not run.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import gluon
    >>> net = gluon.nn.HybridSequential()
    >>> net.add(gluon.nn.Conv2D(8, 7, strides=2, padding=3), gluon.nn.MaxPool2D(3, 2, padding=1))
    >>> report = mxsame.audit(net, (1, 3, 224, 224))
    >>> [(layer.status, layer.axes[0].pads, layer.axes[0].same, layer.accumulated) for layer in report.layers]
    [('shifted', (3, 2), (2, 3), (-1.0, -1.0)), ('shifted', (1, 0), (0, 1), (-3.0, -3.0))]
    """
    symbol, built, shapes, windows = _symbols_of(net, input_shape)
    graph = _read(built, shapes, windows)
    with errors.explain_errors(input_shape=input_shape):
        node_shapes = graph.output_shapes()
    unknown = [node.name for node in graph.nodes() if node.op in WITH_WINDOWS and Output(node) not in node_shapes]
    rule = "input_shape must be given for every input, by name, so that the shapes of all layers are known"
    validation.check(not unknown, rule, input_shape=input_shape, unknown=unknown)
    compared = {layer.last: layer for layer in _compare_layers(graph, node_shapes)}
    accumulated = _accumulate(graph, compared, node_shapes)
    in_order = (compared[node] for node in accumulated if node in compared)
    layers = [Layer(each.node.name, each.node.op, each.status, each.axes, accumulated[each.last]) for each in in_order]
    layers += [Layer(name, op, NOT_COMPARED, (), ()) for name, op in _not_comparable(graph)]
    outputs = {name: accumulated.get(node, ()) for name, (node, _) in zip(symbol.list_outputs(), graph.outputs)}
    return Audit(symbol, shapes, tuple(layers), outputs)


# ---- arguments -------------------------------------------------------------------------------------------------------


def _symbols_of(net: Any, input_shape: Any) -> Tuple[Any, Any, Dict[str, Tuple[int, ...]], Sequence[Any]]:
    """Returns (symbol, built, shapes, windows): the Symbol of a block or a file, or the one that is `net`; the Symbol
    to audit, in which each layer of `mxsame.nn` is a single operator, as for another format; the shapes of the inputs,
    by name; and the windows of the operators in `built`."""
    if not isinstance(net, mx.gluon.HybridBlock):
        symbol = _symbol_of(net)
        return symbol, symbol, _input_shapes(symbol, input_shape), ()
    if isinstance(input_shape, Mapping):
        are_names = all(isinstance(name, str) for name in input_shape)
        validation.check_type(are_names, "input_shape must map names of inputs to shapes", input_shape=input_shape)
        by_name, structure = input_shape, (True,) * len(input_shape)
        tracing.check_inputs(net, tuple(input_shape))
    else:
        inputs = tracing.inputs_of(net, input_shape, required=True)
        by_name, structure = inputs.shapes, inputs.structure
        tracing.check_inputs(net, structure)
    with errors.explain_errors(input_shape=input_shape), errors.explain_symbols(structure):
        symbol = tracing.group(net(*tracing.regroup(structure, map(tracing.variable, by_name))))
        used = {name: shape for name, shape in by_name.items() if name in symbol.list_arguments()}
        shapes = _input_shapes(symbol, used or by_name)
        trace = tracing.trace_net(net, structure, FORMAT)
        built = tracing.group(trace.lower(map(tracing.variable, by_name), map(shapes.get, by_name)).outputs)
    return symbol, built, shapes, trace.recorder.windows


def _symbol_of(net: Any) -> Any:
    """Returns the Symbol of a file, or `net` if that is a Symbol."""
    if isinstance(net, (str, os.PathLike)):
        path = os.fspath(net)
        try:
            return files.read_symbol(path)
        except ValueError:
            start = Path(path).read_bytes()[:64] if os.path.isfile(path) else b""
            if start[:4] not in KERAS_SIGNATURES and b'"class_name"' not in start:
                raise
        hint = "what mxsame convert makes of it pads as Keras does; audit networks that were ported another way"
        raise ValueError(f"net must be a -symbol.json file of MXNet; received a file of Keras, {path!r}: {hint}")
    rule = "net must be a gluon.HybridBlock, a Symbol or the path of a -symbol.json file"
    validation.check_type(isinstance(net, mx.sym.Symbol), rule, net=net)
    return net


def _input_shapes(symbol: Any, input_shape: Any) -> Dict[str, Tuple[int, ...]]:
    """Returns the checked shape of each input, by name."""
    names = symbol.list_arguments()
    validation.check(names, "net must be a network with an input", outputs=symbol.list_outputs())
    default = "data" if "data" in names else names[0]
    by_name: Mapping[str, Any] = input_shape if isinstance(input_shape, Mapping) else {default: input_shape}
    for name, value in by_name.items():
        rule = f"input_shape must be of an input of the network, such as {default!r}"
        validation.check(name in names, rule, name=name)
        is_shape = validation.is_sequence(value) and not any(map(validation.is_sequence, value))
        rule = "input_shape must be a sequence of integers, or for several inputs a mapping from name to shape"
        validation.check_type(is_shape, rule, input_shape=value)
    lengths = {name: _with_batch(value) for name, value in by_name.items()}
    return {name: validation.per_axis("input_shape", each, len(each), 1) for name, each in lengths.items()}


def _with_batch(shape: Sequence[Any]) -> List[Any]:
    """Returns a shape whose batch is 1 if it was None."""
    return [1 if length is None and not axis else length for axis, length in enumerate(shape)]


def _read(symbol: Any, shapes: Mapping[str, Tuple[int, ...]], windows: Sequence[Any] = ()) -> Graph:
    """Returns the graph of a Symbol, without the casts of `mxnet.contrib.amp`, and with the original operators in place
    of those that oneDNN fused, and current ones in place of MXNet's old ones."""
    graph = Graph.of(symbol, {}, shapes, casts=False, windows=windows)
    for node in graph.nodes():
        is_full_average = node.attr("pool_type") == "avg" and node.attr("pooling_convention") == "full"
        if node.op in LEGACY_OPERATORS and not is_full_average:
            node.op = node.op[: -len("_v1")]
        elif node.op.startswith(FUSED_PREFIX) and not node.attr("quantized", False):
            inner = node.bodies[0].symbol()
            _splice(graph, node, inner, dict(zip(inner.list_inputs(), node.inputs)), keep_names=True)
    return graph


def _not_comparable(graph: Graph) -> Iterable[Tuple[str, str]]:
    """Yields the name and the operator of each convolution and pooling operator that is not compared."""
    for node in graph.nodes():
        if node.op in NOT_COMPARABLE:
            yield node.name, node.op
        for body in node.bodies:
            inner = _read(body.symbol(), {})
            yield from ((each.name, each.op) for each in inner.nodes() if has_windows(each))
            yield from _not_comparable(inner)


# ---- layers ----------------------------------------------------------------------------------------------------------


class _ComparedOperator:
    """A convolution or pooling operator, merged with the pads and slices around it, and compared with SAME."""

    def __init__(
        self, node: Node, operator: MergedOperator, shapes: Dict[Output, tuple], users: Users, auxiliary: Set[Node]
    ):
        self.node, self.last, self.data = node, operator.last, operator.data
        is_cropped = any(user is not None and user.op in CROPS for user, _ in users[operator.last])
        self.neighbors_pad_or_crop = is_cropped or _is_extended(operator.data.node, auxiliary)
        self.has_merged_pad = operator.data != node.inputs[0]
        self.is_transposed, self.is_pool = node.op == "Deconvolution", node.op == "Pooling"
        self.shape, self.has_own_windows = shapes[operator.data], node.windows is not None
        sizes = spatial(node, shapes[Output(operator.last)])
        if self.has_own_windows:  # they include the slices after it
            sizes = tuple(window.outputs(window.size) for window in operator.windows)
        if self.is_transposed:
            self.output_padding, self.has_same_size = _output_padding(operator.windows, sizes)
            self.axes = tuple(map(_transposed_axis, operator.windows, sizes, self.output_padding))
        else:
            self.axes = tuple(map(_axis, operator.windows, sizes))
            geometries = ((axis.size, axis.kernel_size, axis.stride, axis.dilation) for axis in self.axes)
            self.has_same_size = sizes == tuple(padding.output_size(*geometry) for geometry in geometries)

    @property
    def status(self) -> str:
        """The `status` of the `Layer`."""
        pool_type = self.node.attr("pool_type", "max") if self.is_pool else None
        is_known = pool_type in ("max", "avg") if self.is_pool else _is_parameter(self.node.inputs[1].node)
        is_flipped = -1 in entries(self.data.node.attr("step"))
        if not self.has_own_windows and (is_flipped or not is_known):
            return "unknown"
        has_same_windows = self.has_same_size and not any(axis.shift for axis in self.axes)
        if has_same_windows and not (pool_type == "avg" and self.has_merged_pad):
            attribute = self.node.attr("pad") or ()
            pads = [pad for axis in self.axes for pad in axis.pads] if self.has_own_windows else attribute
            counts_padding = pool_type == "avg" and str(self.node.attr("count_include_pad", True)) in ("True", "1")
            return "counts padding" if counts_padding and any(pad > 0 for pad in pads) else "same"
        if self.has_merged_pad:
            return "explicit"
        if all(map(self._is_valid, self.axes)):
            return "valid"
        if self.has_same_size:
            return "shifted"
        return "explicit" if self.neighbors_pad_or_crop else OTHER

    def _is_valid(self, axis: Axis) -> bool:
        """Returns whether nothing is padded along an axis, or in a transposed convolution, nothing is cropped."""
        low, high = axis.pads
        return low == 0 and high <= 0

    def exact(self) -> Any:
        """Returns the layer with SAME, as a Symbol of variables named data, weight and bias."""
        node, data = self.node, mx.sym.var("data", shape=self.shape)
        kernel_size, strides, dilation = zip(*((axis.kernel_size, axis.stride, axis.dilation) for axis in self.axes))
        layout = node.attr("layout") or validation.LAYOUTS[len(kernel_size)][0]
        if self.is_pool:
            pool = ops.max_pool if node.attr("pool_type", "max") == "max" else ops.avg_pool
            return pool(data, kernel_size, strides, layout=layout)
        arguments = {"channels": node.attr("num_filter"), "groups": node.attr("num_group", 1), "layout": layout}
        arguments.update(kernel_size=kernel_size, strides=strides, dilation=dilation)
        weight, bias = mx.sym.var("weight"), mx.sym.var("bias") if len(node.inputs) > 2 else None
        if not self.is_transposed:
            return ops.conv(data, weight, bias, **arguments)
        output_padding = None if None in self.output_padding else self.output_padding
        return ops.conv_transpose(data, weight, bias, output_padding=output_padding, **arguments)


def _axis(window: Any, outputs: int) -> Axis:
    """Returns an axis of a convolution or pooling operator with this number of outputs."""
    geometry = (window.size, window.kernel_size, window.stride, window.dilation)
    same = padding.same_pads(*geometry)
    low, _ = window.pads(window.size) if window.pads_depend_on_size else window.padding
    high = high_pad(window.size, outputs, window.effective_kernel_size, window.stride, low)
    return Axis(window.size, outputs, *geometry[1:], (low, high), same, same[0] - low)


def _transposed_axis(window: Any, outputs: int, output_padding: Optional[int]) -> Axis:
    """Returns an axis of a transposed convolution with this number of outputs."""
    geometry = (window.kernel_size, window.stride, window.dilation)
    same = padding.transposed_crops(*geometry, "same", output_padding)
    return Axis(window.size, outputs, *geometry, window.crop, same, window.crop[0] - same[0])


def _output_padding(windows: Sequence[Any], sizes: tuple) -> Tuple[tuple, bool]:
    """Returns the output_padding with which Keras's transposed SAME convolution has outputs of these sizes, and whether
    Keras has such a layer."""
    axes = [(window.kernel_size, window.stride, window.dilation) for window in windows]

    def outputs(output_padding: Optional[int]) -> Iterable[int]:
        return (padding.keras_transposed_size(w.size, *axis, "same", output_padding) for w, axis in zip(windows, axes))

    default, explicit = (None,) * len(sizes), tuple(size - minimum for size, minimum in zip(sizes, outputs(0)))
    if sizes == tuple(outputs(None)):
        return default, True
    try:
        for axis, output_padding in zip(axes, explicit):
            padding.transposed_crops(*axis, "same", output_padding)
    except ValueError:  # Keras has no such layer
        return default, False
    return explicit, True


def _is_parameter(node: Node) -> bool:
    """Returns whether a kernel is a parameter, possibly transposed or flipped, and not computed by the graph."""
    while node.kind in KEEP_VALUES:
        node = node.inputs[0].node
    return node.op == "null"


def _is_extended(node: Node, auxiliary: Set[Node]) -> bool:
    """Returns whether data is the output of an operator that adds elements along a spatial axis."""
    while node.op in MOVES:
        node = node.inputs[0].node
    return node in auxiliary or node.op == "Pad" or (node.op == "Concat" and node.attr("dim", 1) > 1)


def _auxiliary_operators(graph: Graph) -> Set[Node]:
    """Returns the operators with windows that are not layers, but parts of layers of mxsame: pooling of ones, by which
    averages are divided, and convolutions that shift data, with kernels that are computed from its shape."""
    from_shapes: Set[Node] = set()
    for node in graph.nodes():
        if node.op in READ_NO_VALUES or (node.inputs and from_shapes.issuperset(source for source, _ in node.inputs)):
            from_shapes.add(node)
    return {node for node in graph.nodes() if has_windows(node) and from_shapes.intersection(n for n, _ in node.inputs)}


def _compare_layers(graph: Graph, shapes: Dict[Output, tuple]) -> Iterable[_ComparedOperator]:
    """Yields every convolution, and every pooling operator that is not global. It is merged with the slices after it if
    its outputs then have SAME's size."""
    users, auxiliary = graph.users(), _auxiliary_operators(graph)
    for node in graph.nodes():
        if has_windows(node) and node not in auxiliary:
            merged = merge_pads(node, shapes, users)
            layers = [_ComparedOperator(node, operator, shapes, users, auxiliary) for operator in merged]
            yield next((layer for layer in layers if layer.has_same_size), layers[0])


def _splice(graph: Graph, node: Node, symbol: Any, arguments: Dict[str, Output], keep_names: bool = False) -> None:
    """Replaces a node by the operators of a Symbol; `arguments` maps the names of its variables to outputs."""
    inner = Graph.of(symbol, {}, {}, casts=False)
    for number, new in enumerate(inner.nodes()):
        new.name = new.name if new.op == "null" or keep_names else f"{node.name}_{number}_{new.name}"
        new.inputs = [
            arguments[source.name] if source.op == "null" else Output(source, index) for source, index in new.inputs
        ]
    graph.replace({Output(node): inner.outputs[0]})
    if node.op != "null" and not keep_names:
        inner.outputs[0].node.name = node.name


# ---- how shifts add up -----------------------------------------------------------------------------------------------


def _accumulate(
    graph: Graph, compared: Mapping[Node, _ComparedOperator], shapes: Dict[Output, tuple]
) -> Dict[Node, Tuple[float, ...]]:
    """Returns the accumulated shift at each node's output, in input pixels along each spatial axis; for a node with
    several inputs, it is the largest of theirs."""
    offsets: Dict[Node, list] = {}  # node -> (step, offset) for each axis, as in `_shift_by`
    for node in graph.nodes():
        layer, sources = compared.get(node), [offsets[source] for source, _ in node.inputs if source in offsets]
        if layer is not None:
            of_data = offsets.get(layer.data.node, [(Fraction(1), Fraction(0))] * len(layer.axes))
            offsets[node] = [_shift_by(layer, *each) for each in zip(layer.axes, of_data)]
        elif sources:
            offsets[node] = [max(pairs, key=lambda pair: abs(pair[1])) for pairs in zip(*sources)]
            if node.op in RESIZING:
                sizes = zip(shapes[node.inputs[0]][2:], shapes[Output(node)][2:])
                offsets[node] = [(step * Fraction(*pair), offset) for (step, offset), pair in zip(offsets[node], sizes)]
    return {node: tuple(float(offset) for _, offset in pairs) for node, pairs in offsets.items()}


def _shift_by(layer: _ComparedOperator, axis: Axis, of_data: Tuple[Fraction, Fraction]) -> Tuple[Fraction, Fraction]:
    """Returns (step, offset) after a layer: the pixels from one element to the next, and the sum of all shifts. The
    shift of a transposed convolution counts elements of its output."""
    step, offset = of_data
    output_step = step / axis.stride if layer.is_transposed else step * axis.stride
    shift = axis.shift if layer.status == "shifted" else 0
    return output_step, offset + shift * (output_step if layer.is_transposed else step)


# ---- as a table ------------------------------------------------------------------------------------------------------

COLUMNS = ("layer", "operator", "size", "kernel", "stride", "pads", "SAME", "shift", "accumulated", "status")
ADVICE = (
    "A shifted layer is right if the network was trained in MXNet, or if Keras has ZeroPadding and padding='valid' "
    "there. If Keras has padding='same' there, use the layer of the same name in mxsame.nn, or write the network with "
    "exact SAME: mxsame audit --fix, or fix(net) of the audit in Python."
)
ADVICE_ON_OTHER = (
    f"A layer with the status {OTHER} has neither the output shape of padding='same' nor that of padding='valid'. If "
    "Keras has one of these there, use the layer of the same name in mxsame.nn: the audit does not fix it."
)


def _table(audit: Audit) -> Iterable[str]:
    """Yields the lines of the report: a row for each layer that differs from SAME, the summed shifts, and advice."""
    shapes, skipped = audit.shapes, audit.not_compared
    by_name = f"inputs {', '.join(f'{name} {shape}' for name, shape in shapes.items())}"
    inputs = by_name if len(shapes) > 1 else f"input {next(iter(shapes.values()))}"
    counts = f"{len(audit.differing)} of {len(audit.layers)} convolution and pooling operators"
    yield f"{counts} differ from Keras's SAME for {inputs}" + (f", {len(skipped)} not compared" if skipped else "")
    if skipped:
        yield f"not compared: {', '.join(f'{layer.name} ({layer.operator})' for layer in skipped)}"
    if not audit.differing:
        return
    rows: List[Tuple[str, ...]] = [COLUMNS]
    for layer in audit.differing:
        axes, shifts = layer.axes, ([axis.shift for axis in layer.axes], layer.accumulated)
        lengths = ("x".join(str(getattr(axis, name)) for axis in axes) for name in ("size", "kernel_size", "stride"))
        pairs = (" ".join("({},{})".format(*getattr(axis, name)) for axis in axes) for name in ("pads", "same"))
        signed = (" ".join(f"{shift:+g}" for shift in per_axis) for per_axis in shifts)
        rows.append((layer.name, layer.operator, *lengths, *pairs, *signed, layer.status))
    yield from aligned(rows)
    for name, pixels in audit.outputs.items():
        if any(pixels):
            yield f"{name}: off by {' and '.join(f'{each:+g}' for each in pixels)} pixels of the input"
    if audit.wrong:
        yield ADVICE
    if len(audit.differing) > len(audit.wrong):
        yield ADVICE_ON_OTHER
