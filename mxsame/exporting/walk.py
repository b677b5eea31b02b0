"""Walks the graph of a net, and writes each node with the emitter of its kind.

An emitter takes the walk, the node, and the values written for the node's inputs, and returns the value of
its output, or a list of values. An attribute that it does not read must have MXNet's default.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame import _gluon, tensors, validation
from mxsame._mxnet import mx
from mxsame.exporting.attributes import Attributes
from mxsame.exporting.blocks import Composite, recorded_calls
from mxsame.exporting.custom import CustomEmitters
from mxsame.exporting.shapes import Length, Shape, Shapes, batch_axes, zeros_of_batches
from mxsame.graphs import tracing
from mxsame.graphs.deploy import freeze
from mxsame.plan.windows import AnyWindow, check_static
from mxsame.progress import report
from mxsame.rewriting import attributes, canonical, optimize_for_inference
from mxsame.rewriting.graph import Graph, Node, Output, User, entries
from mxsame.rewriting.onednn import LOOP
from mxsame.rewriting.operators import subgraph
from mxsame.rewriting.sizes import specialize
from mxsame.rewriting.windows import has_windows, is_channels_first, is_merged, merge_all_pads, windows_of
from mxsame.scope import FORMAT, BlockCall
from mxsame.validation import check, check_type

# Operators that only rearrange elements
MOVES = ("Reshape", "reshape_like", "expand_dims", "squeeze", "Flatten", "transpose", "SwapAxis", "slice", "slice_axis")
MAX_PATH_SHOWN = 6  # nodes of a path in a message
MAX_REASONS_SHOWN = 12  # in a message
LOOP_ADVICE = "; unroll the loop, as a recurrent cell's `unroll` does"
KERAS_LOOP_ADVICE = "; a Keras model has no such loop if its input declares the number of steps, as Input((20, 3)) does"


def advice_for(net: Any, **more: str) -> Dict[str, str]:
    """Advice for messages, by operator. A network of `from_keras` is recognized by `declared_shapes`."""
    return {LOOP: KERAS_LOOP_ADVICE if hasattr(net, "declared_shapes") else LOOP_ADVICE, **more}


class ExportedNet(NamedTuple):
    """A net to export, with its inputs, its floating-point dtype, and the dtype of each input by name."""

    net: Any
    inputs: tracing.NetInputs
    dtype: Any
    types: Mapping[str, Any]

    @classmethod
    def of(cls, net: Any, input_shape: Any, dynamic_length: Optional[int] = None) -> ExportedNet:
        """Returns a net with its inputs. An input has the integer dtype of its example array or of its graph variable,
        else the type of the parameters."""
        tracing.check_ready(net)
        inputs = tracing.inputs_of(net, input_shape, required=True, dynamic_length=dynamic_length)
        dtype = tracing.float_dtype(net.collect_params()) or np.dtype("float32")
        types = inputs.types_in(dtype)
        variables = tracing.flatten(_gluon.graph_inputs(net)) if isinstance(net, mx.gluon.SymbolBlock) else ()
        for name, variable in zip(types, variables):
            own = np.dtype(mx.nd.ndarray._DTYPE_MX_TO_NP[int(variable.attr("__dtype__") or 0)])
            types[name] = types[name] if own.kind == "f" else own
        return cls(net, inputs, dtype, types)


class NetGraph(NamedTuple):
    """The graph of a net, the batch axis of each input, and the calls of blocks that are written as a
    whole, inner blocks first."""

    graph: Graph
    batches: Dict[str, int]
    composites: List[Composite]


def graph_of(
    exported: ExportedNet,
    any_size: bool = False,
    trained: bool = False,
    fold: bool = False,
    is_whole: Callable[[Any], bool] = lambda block: False,
) -> NetGraph:
    """The graph of the net on the CPU, with pads and slices merged into windows. With `trained` it keeps its
    dropout; with `fold` it is optimized for inference. `is_whole` chooses the blocks to write as a whole."""
    calls: List[BlockCall] = []
    with recorded_calls(exported.net, is_whole) as net:
        graph, structure = freeze(net, exported.inputs, exported.types, FORMAT, calls)
    graph.context = mx.cpu()
    for node in graph.nodes():
        if node.name in exported.types:
            node.attrs["__dtype__"] = tensors.dtype_attribute(exported.types[node.name])
    if not any_size:
        specialize(graph, exported.types)
    floats = [name for name, dtype in exported.types.items() if np.dtype(dtype).kind == "f"]
    canonical.drop_identities(graph, dropout=not trained, copies=True, floats=floats)
    canonical.write_clips(graph)
    _detach_zero_states(graph, exported.dtype)
    batches = batch_axes(graph)
    _make_zeros_of_inputs(graph, batches)
    merge_all_pads(graph, any_size)
    if fold:
        optimize_for_inference(graph, fuses=False)
    count = len(tracing.flatten(structure))
    ends = map(_copied, graph.outputs[count:])
    composites = []
    for block, inputs, outputs in calls:
        before, after = (list(itertools.islice(ends, len(symbols))) for symbols in (inputs, outputs))
        composites.append(Composite(block, before, after))
    del graph.outputs[count:]
    return NetGraph(graph, batches, composites)


def _copied(output: Output) -> Output:
    """The output that was copied, if this is a `_copy`; copies keep the outputs of a graph distinct."""
    while output.node.op == "_copy":
        output = output.node.inputs[0]
    return output


def _detach_zero_states(graph: Graph, dtype: Any) -> None:
    """Replace initial states of recurrent layers that are `zeros_like` of the data by `_zeros` nodes."""
    for node in graph.nodes():
        for position, source in enumerate(node.inputs[2:] if node.op == "RNN" else (), 2):
            while source.node.op in ("squeeze", "broadcast_axis", "expand_dims", "Reshape"):
                source = source.node.inputs[0]
            if source.node.op == "zeros_like":
                attrs = {"shape": str((-1 if mx.util.is_np_shape() else 0,) * 3), "dtype": str(dtype)}
                node.inputs[position] = Output(Node("_zeros", f"{node.name}_state", attrs=attrs))


def _is_used_by_rnn_only(users: Sequence[User]) -> bool:
    """Whether only recurrent layers use an array; as a state, zeros need not be written."""
    return all(user is not None and user.op == "RNN" for user, _ in users)


def _make_zeros_of_inputs(graph: Graph, batches: Mapping[str, int]) -> None:
    """Derive zeros with a dynamic batch, such as the initial states of cells, from an input of the net."""
    users = graph.users()
    zeros = {node: axis for node, axis in zeros_of_batches(graph).items() if not _is_used_by_rnn_only(users[node])}
    variables = [node for node in users if node.op == "null" and node.name in batches]
    replaced = {}
    for node, axis in zeros.items() if variables else ():
        variable = variables[0]
        shape, batch = node.attr("shape"), batches[variable.name]
        others = [other for other in range(len(shape)) if other != axis]
        with mx.util.np_array(False):
            x = mx.sym.var("x")
            end = [None if each == batch else 1 for each in range(len(graph.inputs[variable.name]))]
            one = mx.sym.zeros_like(mx.sym.slice(x, begin=[0] * len(end), end=end))
            ones = mx.sym.reshape(one, shape=[-1 if each == axis else 1 for each in range(len(shape))])
            filled = mx.sym.broadcast_axis(ones, axis=others, size=[shape[each] for each in others])
        replaced[Output(node)] = subgraph(filled, x=Output(variable))
    graph.replace(replaced)


class Emitter(NamedTuple):
    """The function that writes a node, and a regex of the attributes that it need not read."""

    write: Callable[..., Any]
    ignored: str = ""


class Emitters(Dict[str, Emitter]):
    """An emitter for each kind of node."""

    def writes(self, *kinds: str, ignored: str = "") -> Callable[[Callable], Callable]:
        """A decorator that registers the emitter of these kinds of nodes.

        Raises `ValueError` if one of them has an emitter already."""

        def register(write: Callable) -> Callable:
            for kind in kinds:
                check(kind not in self, f"{kind!r} already has an emitter")
                self[kind] = Emitter(write, ignored)
            return write

        return register


class Refused(validation.InvalidValue, shown=ValueError):
    """Raised for a net that cannot be written, with all reasons, and the composites that cannot be written as a
    whole."""

    def __init__(self, message: str, reasons: Sequence[str], blocks: Sequence[Any] = ()):
        super().__init__(message)
        self.reasons, self.blocks = reasons, blocks


class GraphWriter:
    """Writes a graph. Each format has a subclass, with its name, and methods for variables, placeholders and what
    a user's function writes.

    `advice` is text for messages, by operator, and by "dynamic" for dynamic lengths; `custom` has
    the user's functions."""

    function, format = "", ""  # in messages

    def __init__(self, graph: Graph, shapes: Shapes, emitters: Emitters):
        self.graph, self.shapes, self.emitters = graph, shapes, emitters
        self._written: Dict[Output, Any] = {}
        self._dtypes: Dict[Output, Any] = {}
        self.users: Dict[Node, List[User]] = {}
        self.node = Node("null", "")  # the node that is being written
        self.advice: Dict[str, str] = {}
        self.custom = CustomEmitters()
        self.refusals: List[str] = []
        self._composites: Dict[int, List[Any]] = {}  # what was written for the outputs of each
        self._refused: List[Any] = []  # blocks
        self._missing: Dict[str, None] = {}  # operators without an emitter
        self._cause: Optional[Exception] = None

    def variable(self, node: Node) -> Any:
        """The value of an input of the graph, or of a parameter."""
        raise NotImplementedError

    def placeholder(self, output: Output) -> Any:
        """A stand-in for the output of a node that cannot be written, so that the nodes after it are checked as
        well."""
        raise NotImplementedError

    def composite(self, composite: Composite, inputs: List[Any]) -> List[Any]:
        """The values of the outputs of a block that is written as a whole, by default by the user's function."""
        return self._by_user(composite.block, composite.inputs, dict(enumerate(composite.shapes)))

    def input_for_user(self, output: Output) -> Any:
        """An input of a user's function: an array, if it is a parameter."""
        raise NotImplementedError

    def output_of_user(self, value: Any, shape: Shape) -> Any:
        """The value of an output of this shape, from what a user's function returned."""
        raise NotImplementedError

    def write_function(self, source: Any) -> Callable[..., Any]:
        """The function `write` that is passed to a user's function."""
        raise NotImplementedError

    def refuse(self, node: Node, reason: str) -> None:
        """Collect why a node cannot be written, so that one error lists all reasons."""
        self.refusals.append(reason)
        self._written.update({output: self.placeholder(output) for output in self.outputs_of(node)})

    def write_all(self) -> List[Any]:
        """Write every node; returns what represents the graph's outputs.

        Raises `ValueError` with the reasons of all nodes that cannot be written."""
        self._dtypes, self.users = self.graph.dtypes(), self.graph.users()
        for number, node in enumerate(self.users):
            report("writing operators", number, len(self.users))
            if Output(node) in self._written:
                continue  # refused
            if node.op == "null" and node.spec is not None:
                self._write_composite(node, *node.spec)
            elif node.op == "null":
                self._written[Output(node)] = self.variable(node)
            elif node.op == "_zeros" and _is_used_by_rnn_only(self.users[node]):
                self._written[Output(node)] = None  # states that are not given are 0
            elif is_merged(node):  # its pads or crops are in the operator next to it
                self._written[Output(node)] = self.written(node.inputs[0])
            else:
                self._write(node)
        outputs = [self.written(output) for output in self.graph.outputs]
        if self.refusals:
            raise Refused(self._message(), self.refusals, self._refused) from self._cause
        return outputs

    def _message(self) -> str:
        """The message: operators without an emitter, then the reasons."""
        shown, more = self.refusals[:MAX_REASONS_SHOWN], len(self.refusals) - MAX_REASONS_SHOWN
        count = f"{len(self._missing)} operator{'s' * (len(self._missing) > 1)}"
        rule = f"every operator of net must have an exact equivalent in {self.format}: "
        if self._missing:
            rule = f"{self.function} has no conversion for {count}: {', '.join(self._missing)}; "
            rule += f"custom={{{next(iter(self._missing))!r}: function of (write, attributes, *inputs)}} writes one\n"
        return rule + "\n".join([*shown, f"and {more} more"] if more > 0 else shown)

    def _write_composite(self, node: Node, composite: Composite, number: int) -> None:
        """Write a block when its first output is needed."""
        key, inputs = id(composite), list(map(self.written, node.inputs))
        self.node = node
        try:
            if key not in self._composites:
                self._composites[key] = self.composite(composite, inputs)
        except validation.Refusal as error:
            self._composites[key] = [self.placeholder(Output(node))] * len(composite.outputs)
            self.refusals += getattr(error, "reasons", [f"{error}; in the block {composite.block.name}"])
            self._refused.append(composite.block)
        self._written[Output(node)] = self._composites[key][number]

    def _by_user(self, source: Any, inputs: Sequence[Output], shapes: Mapping[int, Shape]) -> List[Any]:
        """The values of the outputs of a node or a block, written by the user's function; its errors are not
        wrapped."""
        key = given = source
        if isinstance(source, Node):
            key, given = source.op, {name: source.attr(name) for name in attributes.names_of(source.op)}
        returned = self.custom.function_of(key)(self.write_function(source), given, *map(self.input_for_user, inputs))
        values = returned if isinstance(returned, list) else [returned]
        rule = f"custom of {source.name} must return an output of write, or a list of {max(shapes) + 1}"
        check_type(len(values) > max(shapes), rule, custom=returned)
        return [self.output_of_user(values[index], shape) for index, shape in shapes.items()]

    def _write(self, node: Node) -> None:
        self.node = node
        if self.custom.has(node.op):
            outputs = self.outputs_of(node)
            try:
                shapes = {output.index: self.shape(output) for output in outputs}
                self._written.update(zip(outputs, self._by_user(node, node.inputs, shapes)))
            except validation.Refusal as error:
                self.refuse(node, f"{error}; in {self.path_to(node)}")
            return
        if node.kind not in self.emitters:
            self._missing[node.op] = None
            self.refuse(node, f"received {self.path_to(node)}{self.advice.get(node.op, '')}")
            return
        for index, each in enumerate(self.emit(self.emitters[node.kind], node, *map(self.written, node.inputs))):
            self._written[Output(node, index)] = each

    def emit(self, emitter: Emitter, node: Node, *inputs: Any) -> List[Any]:
        """The values that an emitter returns for a node; none if it refuses it. Any other error is taken to be
        caused by arguments that the emitter does not support."""
        node.attrs = attrs = Attributes(node)
        try:
            result = emitter.write(self, node, *inputs)
            attrs.check_all_read(node, emitter.ignored)
        except Exception as error:
            is_refusal = isinstance(error, validation.Refusal)
            self._cause = self._cause or (None if is_refusal else error)
            reason = str(error) if is_refusal else "its arguments are not supported by the conversion"
            self.refuse(node, f"{reason}; in {self.path_to(node)}")
            return []
        return result if isinstance(result, list) else [result]

    def path_to(self, node: Node) -> str:
        """An operator, its name, and the path to it from an input."""
        path, last = [node.name], node
        while last.inputs:
            sources = [source for source, _ in last.inputs]
            last = next((source for source in sources if source.name not in self.graph.values), sources[0])
            path.append(last.name)
        shown = path if len(path) <= MAX_PATH_SHOWN else [*path[: MAX_PATH_SHOWN - 1], "...", path[-1]]
        return f"the operator {node.op}, {node.name} (path: {' -> '.join(reversed(shown))})"

    # -- reading, for emitters

    def written(self, output: Output) -> Any:
        """What represents an output of the graph."""
        if output not in self._written:
            self.refusals.append(f"received output {output.index} of {self.path_to(output.node)}")
            self._written[output] = self.placeholder(output)
        return self._written[output]

    def outputs_of(self, node: Node) -> List[Output]:
        """The first output of a node, and its other outputs that are used."""
        used = (self.graph.used_by(user.node)[user.position] for user in self.users[node])
        return sorted({Output(node), *used}, key=lambda output: output.index)

    def shape(self, output: Output) -> Shape:
        """The shape of an output."""
        return self.shapes[output]

    def static(self, output: Output, what: str, axes: Optional[Sequence[int]] = None) -> Tuple[int, ...]:
        """The lengths of these axes of an output, or of all, which must be static; the message calls them `what`."""
        shape = self.shape(output)
        lengths = [shape[axis] for axis in (range(len(shape)) if axes is None else axes)]
        self.check_static(lengths, f"{what} must be static")
        return tuple(length.traced for length in lengths)

    def check_static(self, lengths: Sequence[Length], rule: str, **values: Any) -> None:
        """Raise `ValueError` with the rule and advice if a length is dynamic."""
        is_static = all(length.is_static for length in lengths)
        check(is_static, rule + self.advice.get("dynamic", ""), **values)

    def dtype(self, output: Output) -> np.dtype:
        """The type of an output."""
        rule = f"the type of {output.node.name} ({output.node.op}) must follow from that of the data"
        check(self._dtypes.get(output) is not None, rule)
        return np.dtype(self._dtypes[output])

    def computed(self, output: Output) -> np.ndarray:
        """The array of a parameter, or of an output that depends on parameters only."""
        value = self.graph.value(output)
        if value is not None:
            return value
        variables = {node.name for node in self.graph.nodes([output]) if node.op == "null"}
        check(variables <= self.graph.values.keys(), f"{output.node.name} must depend on parameters only")
        (value,) = self.graph.run([output])
        return np.asarray(value)


# -- attributes of a node


def axes_of(w: GraphWriter, node: Node, name: str = "axis") -> List[int]:
    """The axes of an attribute, counted from 0: all axes for None, and all others with `exclude`."""
    given, every = entries(node.attr(name)), range(ndim_of(w, node))
    axes = [axis % len(every) for axis in given] or list(every)
    return [axis for axis in every if axis not in axes] if given and node.attr("exclude") else axes


def ndim_of(w: GraphWriter, node: Node) -> int:
    """The number of axes of the data."""
    return len(w.shape(node.inputs[0]))


def axis_of(w: GraphWriter, node: Node) -> int:
    """The axis of a node as a number from 0."""
    axis = node.attr("axis")
    check(axis is not None, f"axis must be given: {w.format} does not flatten the data", axis=None)
    return int(axis) % ndim_of(w, node)


def bounds_of(node: Node) -> Tuple[float, float]:
    """The bounds of a clip as float32. If a_min is above a_max, MXNet and the formats return different
    values."""
    bounds = (node.attr("a_min", -math.inf), node.attr("a_max", math.inf))
    low, high = (float(np.float32(bound)) for bound in bounds)
    check(low <= high, "a_min must be at most a_max", a_min=low, a_max=high)
    return low, high


class TopK(NamedTuple):
    """How many elements of an axis a node returns in order, the largest or the smallest: their values ("value"), their
    positions ("indices"), "both", or a "mask" of them."""

    axis: int
    length: int
    largest: bool
    returns: str


def top_k_of(w: GraphWriter, node: Node) -> TopK:
    """The arguments of a `topk`, or of a `sort` or an `argsort`, which return every element."""
    axis = axis_of(w, node)
    (length,) = w.static(node.inputs[0], f"the axis of {node.op}", [axis])
    count = node.attr("k") if node.op == "topk" else 0
    count = min(count, length) if count > 0 else length
    returns = "value" if node.op == "sort" else node.attr("ret_typ", "indices")
    return TopK(axis, count, not node.attr("is_ascend"), returns)


def wraps(node: Node) -> bool:
    """Whether indices wrap around; otherwise they are clipped."""
    mode = node.attr("mode")
    check(mode in ("clip", "wrap"), "mode must be clip or wrap", mode=mode)
    return bool(mode == "wrap")


def indices_in(node: Node, indices: np.ndarray, length: int) -> np.ndarray:
    """Constant indices of an axis as integers; MXNet has them as floats."""
    rows: np.ndarray = indices.astype(np.int64)
    return rows % length if wraps(node) else np.clip(rows, 0, length - 1)


# -- regexes of attributes that an emitter need not read

IMPLIED_BY_SHAPES = "shape|newshape|size|axis|reverse|target_shape|keep_highest|[lr]hs_(begin|end|axes)"  # by shapes
# those that `windows_at` reads
IN_WINDOWS = "kernel|stride|dilate|pad|adj|target_shape|pooling_convention|p_value|count_include_pad"


def check_attribute(node: Node, name: str, required: Any) -> None:
    """Raise `ValueError` unless an attribute has this value, or is not given."""
    given = node.attr(name, required)
    check(given == required, f"{name} must be {required}", **{name: given})


# -- windows


def windows_at(w: GraphWriter, node: Node) -> List[AnyWindow]:
    """The windows of an operator, with the pads and slices around it; a size that is dynamic is None. A global pooling
    operator has none."""
    check(is_channels_first(node), "layout must have channels first", layout=node.attr("layout"))
    if not has_windows(node):
        return []
    lengths = w.shape(node.inputs[0])[2:]
    if node.op == "Pooling":
        validation.one_of("pooling_convention", node.attr("pooling_convention"), ("valid", "full"))
    windows = windows_of(node, [length.traced for length in lengths])
    if node.op == "Pooling":
        check_static(tuple(windows), pool=True)
    if node.op == "Deconvolution" and node.spec is None:
        if any(node.attr("target_shape")):
            w.check_static(lengths, "target_shape must not be given for dynamic sizes: use pad and adj")
        wrong = any(window.dilation > 1 < window.stride for window in windows)
        rule = "a Deconvolution must not have both stride and dilation above 1, for which MXNet computes wrong values"
        check(not wrong, rule)
    return [replace(window, size=window.size if n.is_static else None) for window, n in zip(windows, lengths)]


def kernels_of(windows: Sequence[AnyWindow]) -> List[List[int]]:
    """The kernel sizes, the strides and the dilations of windows."""
    return [[getattr(each, name) for each in windows] for name in ("kernel_size", "stride", "dilation")]


def nearest_scale(node: Node) -> int:
    """The factor of an UpSampling, which must repeat elements."""
    check_attribute(node, "sample_type", "nearest")
    check(len(node.inputs) == 1, "data must be one array", inputs=len(node.inputs))
    return node.attr("scale")


def rescaled_averages(windows: Sequence[Any], counts_padding: bool) -> Optional[np.ndarray]:
    """The factors that turn averages over whole kernels into MXNet's; None if all are 1. MXNet counts the padding, or
    only data, but never the elements beyond the padding that complete the last window."""
    scale = np.ones(())
    for window in windows:
        low, high = window.padding if counts_padding else (0, 0)
        starts = np.arange(window.outputs(window.size)) * window.stride - window.pads(window.size)[0]
        counted = np.minimum(starts + window.kernel_size, window.size + high) - np.maximum(starts, -low)
        scale = scale[..., None] * (window.kernel_size / counted)
    return None if (scale == 1).all() else scale


# -- the packed parameters of an RNN operator


def recurrent_layers(w: GraphWriter, node: Node, gates: Sequence[int]) -> Iterator[List[np.ndarray]]:
    """Yields, for each layer of an RNN, the input weights (D, G*H, C), the recurrent weights (D, G*H, H) and both
    biases (D, 2*G*H), for D directions and G gates of H elements; `gates` is their order, as positions in MXNet's. The
    vector has all weights, layer by layer and direction by direction, and all biases after them."""
    check_attribute(node, "projection_size", None)
    (channels,) = w.static(node.inputs[0], "the channels", [2])
    rest, size, directions = w.computed(node.inputs[1]), node.attr("state_size"), 1 + node.attr("bidirectional")
    height = len(gates) * size

    def next_weights(*shape: int) -> Any:
        nonlocal rest
        count = int(np.prod(shape))
        array, rest = rest[:count].reshape(len(gates), size, *shape[1:]), rest[count:]
        return array[list(gates)].reshape(shape)

    weights = []
    for number in range(node.attr("num_layers")):
        width = channels if number == 0 else directions * size
        pairs = [(next_weights(height, width), next_weights(height, size)) for _ in range(directions)]
        weights.append([np.stack(arrays) for arrays in zip(*pairs)])
    for weight, recurrence in weights:
        biases = [np.concatenate([next_weights(height), next_weights(height)]) for _ in range(directions)]
        yield [weight, recurrence, np.stack(biases)]
