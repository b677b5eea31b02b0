"""Traces a net: calls its layers with Symbols.

Everything that is built from a net (graphs of static shape, files, an inference graph) starts with `trace_net`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import json
import math
import threading
from functools import partial
from typing import Any, Hashable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from mxsame import _gluon, tensors, threads, validation
from mxsame._mxnet import mx
from mxsame.graphs.errors import ShapeCheck, explain_errors, explain_symbols, reason
from mxsame.graphs.nesting import flatten as flatten, regroup as regroup
from mxsame.plan import current_strategy
from mxsame.plan.choice import PlannedOperator
from mxsame.rewriting import legalize
from mxsame.rewriting.graph import Graph, Node, operators
from mxsame.rewriting.onednn import LOOPS
from mxsame.scope import ANY, Recorder, Target, as_kind, building, target_of
from mxsame.tensors import operands
from mxsame.types import DeclaresInputs

# Held while a graph's operators are pushed to MXNet's engine. That is quick, since they run later. The engine queues an
# operator at each of its arrays in turn, so two threads that push operators on the same arrays at the same time
# can deadlock.
ENGINE_LOCK = threading.RLock()
STATIC_FLAGS = ("static_alloc", "static_shape")
NO_FLOAT16_ON_CPU = {  # kinds of operators without float16 on the CPU, besides `LINEAR_ALGEBRA`
    *("Convolution", "Convolution_v1", "Deconvolution", "FullyConnected", "RNN", "SpatialTransformer"),
    *("_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution"),
    *("dot", "batch_dot", "matmul", "_npi_tensordot", "_npi_tensordot_int_axes", "_npi_cholesky", "_npi_svd"),
    *(f"_contrib_interleaved_matmul_{kind}_{part}" for kind in ("selfatt", "encdec") for part in ("qk", "valatt")),
}
LINEAR_ALGEBRA = "_linalg_"  # the prefix of these operators' names
BYTES_PER_ELEMENT = 4  # of float32, which an estimate assumes
STORAGE_TYPES = {mx.nd.sparse.CSRNDArray: "csr", mx.nd.sparse.RowSparseNDArray: "row_sparse"}


def check_ready(net: Any, may_be_deferred: bool = False) -> None:
    """Raises unless a net can be exported or deployed; `may_be_deferred` allows deferred parameters."""
    if not isinstance(net, mx.gluon.HybridBlock):
        rule = "net must be a gluon.HybridBlock, as gluon.SymbolBlock.imports returns for a file"
        raise validation.InvalidType(f"{rule}; received net of type {type(net).__name__}")
    if not is_traceable(net) and not isinstance(net, mx.gluon.SymbolBlock):  # a deployed net composes Symbols, too
        raise validation.InvalidType(f"net must not override forward; received net of type {type(net).__name__}")
    parameters = {name: each for name, each in net.collect_params().items() if not _gluon.is_initialized(each)}
    unready = [name for name, each in parameters.items() if not (may_be_deferred and _gluon.is_deferred(each))]
    rule = "net must have initialized parameters: call net.initialize(), and net(x) once if in_channels is unknown"
    validation.check(not unready, rule, uninitialized=unready)


def check_initialized(net: Any) -> None:
    """Raises Gluon's error for a net that was not initialized, before a trace sets the shapes of its parameters."""
    parameters = _gluon.parameters(net).values()
    if not any(_gluon.is_initialized(each) or _gluon.is_deferred(each) for each in parameters):
        for parameter in parameters:
            _gluon.check_initialized(parameter)


class CheckedBlock(mx.gluon.HybridBlock):
    """A block of one input with a `check` method, which a graph calls for the block's first input of each shape."""

    def check(self, x: Any) -> None:
        """Raises an error for an array that the block's graph cannot be given."""
        raise NotImplementedError


_TRACING = {mx.gluon.HybridBlock.forward, mx.gluon.SymbolBlock.forward}


def traces(forward: Any) -> Any:
    """Marks a `forward` that calls `hybrid_forward` on Symbols, as Gluon's does: a decorator."""
    _TRACING.add(forward)
    return forward


def is_traceable(net: Any) -> bool:
    """Returns whether `forward` calls `hybrid_forward`, and is not a user's, which may need arrays."""
    return isinstance(net, mx.gluon.HybridBlock) and getattr(net.forward, "__func__", None) in _TRACING


class LoweredPlaceholder(NamedTuple):
    """A lowered placeholder: the planned operators, and the shapes of its data and output."""

    planned: list[PlannedOperator]
    data_shape: Optional[tuple]
    output_shape: Optional[tuple]


class LoweredGraph(NamedTuple):
    """The graph of a net for given input shapes, lowered from a trace."""

    outputs: Any  # Symbols of one output each, nested as the net nests them
    calls: list[LoweredPlaceholder]  # of the placeholders


class Trace(NamedTuple):
    """The graph of a net before its shapes are known. Placeholder variables stand for operators that `lower` adds."""

    inputs: list[Any]  # variables
    recorder: Recorder
    outputs: Any  # Symbols of one output each, nested as the net nests them
    variables: dict[str, Any]  # of the net's parameters
    target: Target

    def lower(self, inputs: Iterable[Any], shapes: Iterable[Optional[tuple]]) -> LoweredGraph:
        """Returns the graph on these input Symbols with these shapes (None if a shape is unknown).

        Placeholders are lowered in order. In a copy of the trace, the placeholders' variables are described as
        their outputs are; at the end the outputs replace them.
        """
        copied, lowered, calls = self._copied(), {}, []
        given: dict[str, tuple] = {}
        placeholders, recorder = self.recorder.placeholders, self.recorder.for_lowering()
        with building(self.target, recorder):
            for symbol, shape, variable in zip(inputs, shapes, copied):
                tensors.copy_facts(variable, symbol, shape, recorder)
                given.update(dict.fromkeys(symbol.list_arguments(), shape) if shape else {})
                lowered[variable.name] = symbol.as_nd_ndarray()
            for placeholder in placeholders:
                variable, symbols = next(copied), [next(copied) for _ in placeholder.symbols]
                first = len(recorder.planned)
                output = placeholder.lower(symbols).as_nd_ndarray()
                shape = tensors.known_shape(output)
                tensors.copy_facts(variable, output, shape, recorder)
                calls.append(LoweredPlaceholder(recorder.planned[first:], tensors.known_shape(symbols[0]), shape))
                lowered[variable.name] = _resolve(output, lowered)
        ends = list(copied)
        whole = mx.sym.Group([*ends, *(lowered[placeholder.variable.name] for placeholder in placeholders)])
        _replace(whole, lowered)
        graph = legalize(mx.sym.Group([_resolve(end, lowered) for end in ends]), given, self.target)
        outputs = [as_kind(graph[index], kind) for index, kind in enumerate(flatten(self.outputs))]
        return LoweredGraph(regroup(self.outputs, iter(outputs)), calls)

    def _copied(self) -> Iterator[Any]:
        """Yields copies of all Symbols, over the net's own parameters: the inputs, for each placeholder its variable
        and what its function is given, and the outputs."""
        placeholders = self.recorder.placeholders
        own = [each for placeholder in placeholders for each in (placeholder.variable, *placeholder.symbols)]
        symbols = (*self.inputs, *own, *flatten(self.outputs))
        whole = copy.copy(mx.sym.Group([each.as_nd_ndarray() for each in symbols]))
        _replace(whole, self.variables)
        return (_resolve(each, self.variables) for each in whole)


def _replace(whole: Any, replacements: Mapping[str, Any]) -> None:
    """Substitutes Symbols for variables of the same name, in place. A graph without operators does not change:
    composing it would turn the variable into an operator."""
    if whole.get_children() is not None:
        names = set(whole.list_inputs())
        whole._compose(**{name: symbol for name, symbol in replacements.items() if name in names})


def _resolve(symbol: Any, replacements: Mapping[str, Any]) -> Any:
    """Returns the replacement of a Symbol, if it is a variable that has one."""
    return replacements.get(symbol.name, symbol) if symbol.get_children() is None else symbol


def in_mode(symbol: Any, is_np: Optional[bool] = None) -> Any:
    """Returns the Symbol, converted to an mx.np Symbol in np mode or if `is_np`."""
    return symbol.as_np_ndarray() if (mx.util.is_np_array() if is_np is None else is_np) else symbol


def trace_net(
    net: Any, structure: Any, target: Target = ANY, is_np: Optional[bool] = None, is_called: bool = False
) -> Trace:
    """Returns the trace of the net on Symbols, nested as in `structure`, mx.np ones in np mode or if `is_np`. With
    `is_called`, the net's own `__call__` is running, and only its `forward` is called."""
    inputs = [variable(f"mxsame_input{number}", is_np=is_np) for number in range(len(flatten(structure)))]
    args = regroup(structure, iter(inputs))
    check_inputs(net, args)
    parameters = _gluon.parameters(net)
    for parameter in parameters.values():
        tensors.update_variable(parameter)
    recorder = Recorder()
    with building(target, recorder), explain_symbols(structure):
        outputs = net(*args) if _overrides_call(net) and not is_called else _forward_of(net)(*args)
    outputs = regroup(outputs, map(_split_output, flatten(outputs)))
    group(outputs)  # raises unless all of them are Symbols
    variables = {name: parameter.var().as_nd_ndarray() for name, parameter in parameters.items()}
    return Trace(inputs, recorder, outputs, variables, target)


def _forward_of(net: Any) -> Any:
    """Returns the `forward` of a net. A shallow copy of a hybridized net has the original's dispatcher."""
    function = getattr(net.forward, "__func__", None)
    return net.forward if function is None else functools.partial(function, net)


def _overrides_call(net: Any) -> bool:
    """Returns whether a net has a `__call__` with named arguments, as Gluon's recurrent layers, which add states."""
    kinds = {each.kind for each in inspect.signature(type(net).__call__).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL not in kinds


def _signature(net: Any) -> inspect.Signature:
    """Returns the arguments that a net is called with, without the parameters that Gluon passes."""
    if _overrides_call(net):
        return inspect.signature(net.__call__)
    arguments, own = inspect.signature(partial(_gluon.forward_function(net), mx.nd)), _gluon.own_parameters(net)
    return inspect.Signature([each for each in arguments.parameters.values() if each.name not in own])


def check_inputs(net: Any, args: Any) -> None:
    """Raises unless a net accepts this number of inputs, in addition to the parameters that Gluon passes."""
    names = [name for name, each in _signature(net).parameters.items() if each.kind is not each.VAR_KEYWORD]
    with contextlib.suppress(TypeError):
        _signature(net).bind(*args)
        if not isinstance(net, mx.gluon.SymbolBlock):
            return
        names = [each.name for each in _gluon.graph_inputs(net)]
        if len(flatten(args)) == len(names):
            return
    rule = "net must be called with exactly one array for each input"
    raise validation.InvalidType(f"{rule}; received {len(args)} for {', '.join(names)}")


def check_call(net: Any, args: tuple) -> None:
    """Raises unless a net is called with an array, and with as many arguments as it accepts."""
    check_inputs(net, args)
    if not any(isinstance(array, (mx.nd.NDArray, mx.sym.Symbol)) for array in flatten(args)):
        operands.check_array("data", args[0] if args else None)


def _split_output(output: Any) -> Any:
    """Returns the list of outputs of a Symbol with several outputs, anything else unchanged."""
    several = isinstance(output, mx.sym.Symbol) and len(output.list_outputs()) > 1
    return list(output) if several else output


def group(outputs: Any) -> Any:
    """Returns nested outputs as one Symbol, an mx.np one if they are."""
    leaves = flatten(outputs)
    if not leaves or not all(isinstance(leaf, mx.sym.Symbol) for leaf in leaves):
        raise validation.InvalidType(f"net must return arrays; received {type(outputs).__name__}")
    if len(leaves) == 1:
        return leaves[0]
    return as_kind(mx.sym.Group(leaves), leaves[0])


def _as_operator_output(output: Any) -> Any:
    """Wraps an output that is a variable in an identity operator, since MXNet computes no gradient for it otherwise."""
    if output.get_children() is not None:
        return output
    return as_kind(mx.sym.identity(output.as_nd_ndarray()), output)


def fix_shape(variable: Any, shape: tuple) -> Any:
    """Returns the variable behind a check that refuses any other shape; only the batch may differ."""
    return in_mode(tensors.fix_lengths(variable.as_nd_ndarray(), (None, *shape[1:])))


class NetInputs(NamedTuple):
    """The inputs that a net is traced with."""

    structure: tuple  # the arguments, with True for each array
    shapes: dict[str, Any]  # (length, ..) of the arrays, by the names of a graph's inputs; None if unknown
    types: dict[str, Any]  # of the arrays that were given instead of shapes, else None
    given: dict[str, Any]  # the shapes as they were given, with None for lengths that may differ

    def types_in(self, dtype: Any) -> dict[str, Any]:
        """Returns the type of each input: that of an array of integers that was given, or else the net's own."""
        return {name: dtype if given is None or given.kind == "f" else given for name, given in self.types.items()}


def inputs_of(
    net: Any, input_shape: Any = None, *, required: bool = False, dynamic_length: Optional[int] = None
) -> NetInputs:
    """Returns the inputs for a shape, an array, or a nested list of these. For None, returns those that
    the net declares if `required`, otherwise those of the net's last call as a
    graph, or else the required arguments of `hybrid_forward`, with unknown shapes.

    In a shape, None is any batch, 1 here; of another axis it is refused, unless there is a `dynamic_length` for it."""
    if required and input_shape is None:
        input_shape = _declared_shapes(net)
    leaves: list[Any] = []
    if input_shape is None:
        structure: Any = _gluon.input_structure(net) or [True] * _count_of_inputs(net)
        leaves = [(None, None)] * len(flatten(structure))
    else:
        structure = _structure("input_shape", input_shape, leaves)
        validation.check(leaves, "input_shape must have a shape of one input at least", input_shape=input_shape)
    structure = tuple(structure) if isinstance(structure, (list, tuple)) else (structure,)
    names = input_names(net, len(leaves))
    given, types = (dict(zip(names, (leaf[part] for leaf in leaves))) for part in (0, 1))
    shapes = {each: shape and _example(shape, dynamic_length) for each, shape in given.items()}
    return NetInputs(structure, shapes, types, given)


def _declared_shapes(net: Any) -> Any:
    """Returns the input shape that a net declares, a list for several inputs."""
    declared = net.declared_shapes if isinstance(net, DeclaresInputs) else []
    rule = "input_shape must be given, as (1, 3, 224, 224): this network does not declare one"
    validation.check_type(declared, rule, input_shape=None)
    rule = "input_shape must be given for a model that declares None for axes other than the batch"
    validation.check(not any(None in shape[1:] for shape in declared), rule, declared=declared)
    return declared if len(declared) > 1 else declared[0]


def _example(shape: tuple, dynamic_length: Optional[int]) -> tuple:
    """Returns a shape with a length for each axis."""
    rule = "input_shape must have a length for every axis but the batch, as an example of the sizes it is for"
    rule = f"{rule}; for any size use mxsame.hybridize, or mxsame.export without a shape"
    validation.check(None not in shape[1:] or dynamic_length is not None, rule, input_shape=shape)
    return tuple((dynamic_length if axis else 1) if n is None else n for axis, n in enumerate(shape))


def _structure(name: str, given: Any, leaves: list[Any]) -> Any:
    """Returns True for a shape or an array, a list of these for a list. Appends the shapes and types to `leaves`."""
    if given is None:
        return None
    if isinstance(given, mx.nd.NDArray):
        leaves.append((given.shape, np.dtype(given.dtype)))
        return True
    validation.check_type(validation.is_sequence(given), f"{name} must be a sequence of integers", **{name: given})
    validation.check(len(given), f"{name} must have at least one length", **{name: given})
    if all(entry is None or isinstance(entry, mx.nd.NDArray) or validation.is_sequence(entry) for entry in given):
        return [_structure(f"{name}[{index}]", entry, leaves) for index, entry in enumerate(given)]
    shape = tuple(n if n is None else validation.integer(f"{name}[{axis}]", n, 1) for axis, n in enumerate(given))
    leaves.append((shape, None))
    return True


def _count_of_inputs(net: Any) -> int:
    """Returns how many input arrays `hybrid_forward` requires, or the number that the net declares."""
    if isinstance(net, DeclaresInputs):
        return len(net.declared_shapes)
    arguments = _signature(net).parameters.values()
    needed = [each for each in arguments if each.kind == each.POSITIONAL_OR_KEYWORD and each.default is each.empty]
    return max(len(needed), 1)


def input_names(net: Any, count: int) -> list[str]:
    """Returns Gluon's names of the inputs of a graph, or others if a parameter has such a name."""
    names = ["data"] if count == 1 else [f"data{position}" for position in range(count)]
    taken = _gluon.parameters(net).keys() & set(names)
    return [f"input_{name}" for name in names] if taken else names


def variable(name: str, dtype: Any = None, is_np: Optional[bool] = None, stype: Optional[str] = None) -> Any:
    """Returns a graph's input, an mx.np Symbol in np mode or if `is_np`."""
    return in_mode(mx.sym.var(name, dtype=dtype, stype=stype), is_np)


# -- a call, and the graph for it


def call_key(args: tuple) -> Any:
    """Returns what the graph of a call with dense arrays depends on as long as the net does not change; None
    for any other call. Its first two entries are `is_recording()` and `is_training()`."""
    key: list[Any] = []
    for array in args:
        if type(array) not in operands.DENSE:
            return None
        key += type(array), array.shape, array.dtype
    recording, training = mx.autograd.is_recording(), mx.autograd.is_training()
    modes = recording, training, mx.util.is_np_array(), current_strategy(), operands.amp_type()
    return (*modes, args[0].ctx, *key) if args else None


class Call(NamedTuple):
    """The signature of a call of a net: everything that its graph may depend on."""

    structure: Any  # the arguments, with True for each array
    leaves: tuple[tuple[type, tuple, Any], ...]  # kind, shape and type of each array
    target: Target
    strategy: Optional[str]  # of `mxsame.plan.use_strategy`
    amp: Optional[str]  # the type of `mxnet.contrib.amp`
    skips_states: Optional[bool]  # `skip_states` of Gluon's recurrent layers: whether the call returns no states

    @classmethod
    def of(cls, args: tuple, arrays: Sequence[Any], net: Any = None) -> Call:
        """Returns a call of a net with these arrays, as autograd is now."""
        leaves = tuple((type(array), array.shape, array.dtype) for array in arrays)
        structure = regroup(args, itertools.repeat(True))
        skips_states = getattr(net, "skip_states", None)
        return cls(structure, leaves, target_of(arrays[0]), current_strategy(), operands.amp_type(), skips_states)

    @property
    def shapes(self) -> tuple[tuple, ...]:
        return tuple(shape for _, shape, _ in self.leaves)

    @property
    def family(self) -> Hashable:
        """The cache key of all calls that differ from this one only in sizes."""
        arrays = tuple((kind, len(shape), dtype) for kind, shape, dtype in self.leaves)
        return (repr(self.structure), arrays, *self[2:])

    def is_float16_on_cpu(self, parameters: Mapping[str, Any]) -> bool:
        """Returns whether a net with these parameters computes in float16 on the CPU."""
        dtypes = [float_dtype(parameters)] if parameters else [dtype for _, _, dtype in self.leaves]
        return self.target.device == "cpu" and any(dtype == np.float16 for dtype in dtypes if dtype is not None)

    def named_shapes(self, net: Any) -> dict[str, tuple]:
        """Returns the shapes by the names of a graph's inputs."""
        return dict(zip(input_names(net, len(self.leaves)), self.shapes))

    def trace(self, net: Any) -> Trace:
        """Returns the trace of a net for arrays like these."""
        is_np = any(issubclass(kind, mx.np.ndarray) for kind, _, _ in self.leaves)
        return trace_net(net, self.structure, self.target, is_np, is_called=True)

    def lower(self, net: Any, trace: Trace, static: bool = True) -> LoweredGraph:
        """Returns the graph for these sizes, or for any size."""
        inputs = [
            variable(name, dtype, issubclass(kind, mx.np.ndarray), STORAGE_TYPES.get(kind))
            for name, (kind, _, dtype) in zip(self.named_shapes(net), self.leaves)
        ]
        lowered = trace.lower(inputs, self.shapes if static else [None] * len(inputs))
        if operands.amp_type() is not None and has_amp_casts(group(lowered.outputs)):
            operands.check_amp(self.target.device)
        return lowered


def has_amp_casts(symbol: Any) -> bool:
    """Returns whether a graph has casts to the type of `mxnet.contrib.amp`."""
    nodes, dtype = json.loads(symbol.tojson(remove_amp_cast=False))["nodes"], operands.amp_type()
    return any(node["op"] == "amp_cast" and node["attrs"]["dtype"] == dtype for node in nodes)


def has_loop(symbol: Any) -> bool:
    """Returns whether a graph has a loop or a condition (`foreach`, `while_loop`, `cond`): with static shapes MXNet
    1.9.1 does not wait for it, or deadlocks. Operators fused by oneDNN have subgraphs, too, and are faster with static
    shapes."""
    return not operators(symbol).isdisjoint(LOOPS)


def _lacks_float16_on_cpu(graph: Graph) -> bool:
    """Returns whether a graph, or the body of a loop in it, has an operator without a float16 kernel on the CPU."""

    def multiplies(node: Node) -> bool:
        interpolates = node.op == "UpSampling" and node.attr("sample_type") == "bilinear"
        return node.kind in NO_FLOAT16_ON_CPU or node.op.startswith(LINEAR_ALGEBRA) or interpolates

    return any(multiplies(node) or any(map(_lacks_float16_on_cpu, node.bodies)) for node in graph.nodes())


class Runner:
    """A graph over parameters: called with arrays for its inputs, which have these names, it returns its outputs,
    nested as they are. `flags` are those of `HybridBlock.hybridize`."""

    def __init__(self, outputs: Any, names: Iterable[str], parameters: Mapping[str, Any], flags: Mapping[str, Any]):
        self.symbol, self._outputs, self._names = group(outputs), outputs, tuple(names)
        inputs = self.symbol.list_inputs()
        self.parameters = {name: parameters[name] for name in inputs if name not in self._names}
        sources = {**self.parameters, **{name: position for position, name in enumerate(self._names)}}
        self._sources = [sources[name] for name in inputs]
        data = [index for index, name in enumerate(inputs) if name not in self.parameters]
        self._own = [index for index, name in enumerate(inputs) if name in self.parameters]
        self._options = [("data_indices", data), ("param_indices", self._own), *flags.items()]
        self.operator = mx.nd.CachedOp(self.symbol, self._options)
        self._keeps_arrays = bool(flags.get("static_shape"))
        self._recorded_arrays: dict[Any, list[Any]] = {}  # the parameters' arrays of the last recorded call, by device

    def __call__(self, *arrays: Any) -> Any:
        return self.run(arrays)

    def run(self, arrays: Sequence[Any], hooked: Any = None) -> Any:
        """Returns the outputs. The hook of a block's `register_op_hook` is called for every operator."""
        threads.end_own_team()
        context = arrays[0].ctx
        if len(arrays) > 1 or not operands.is_own_memory(context):
            arrays = tuple(map(operands.without_pinned_memory, arrays))
            context = arrays[0].ctx
        try:
            with ENGINE_LOCK, context:
                inputs = [arrays[each] if isinstance(each, int) else each.data(context) for each in self._sources]
                if self._keeps_arrays and mx.autograd.is_recording():
                    self._rebuild_for_new_arrays(context, [inputs[index] for index in self._own])
                if hooked is not None:
                    _gluon.attach_op_hook(hooked, self.operator)
                outputs = self.operator(*inputs)
        except RuntimeError as error:
            self._explain(arrays, error)
            raise
        return regroup(self._outputs, iter([outputs] if isinstance(outputs, mx.nd.NDArray) else outputs))

    def _rebuild_for_new_arrays(self, context: Any, own: list[Any]) -> None:
        """Rebuilds the CachedOp if parameters have different arrays than in the last recorded call on this device, or
        were moved off a device: with static_shape, MXNet 1.9.1 computes no gradients for such arrays."""
        devices = self._recorded_arrays if context in self._recorded_arrays else contexts(self.parameters)
        has_left = any(device not in devices for device in self._recorded_arrays)
        if has_left or any(array is not kept for array, kept in zip(own, self._recorded_arrays.get(context, own))):
            self.operator = mx.nd.CachedOp(self.symbol, self._options)
            self._recorded_arrays.clear()
        self._recorded_arrays[context] = own

    def _explain(self, arrays: Sequence[Any], error: Exception) -> None:
        """Raises an error that names the input array which caused MXNet's error, if one did."""
        devices, dtype = contexts(self.parameters), float_dtype(self.parameters)
        if not self.parameters or arrays[0].ctx in devices:
            devices = [arrays[0].ctx]
        for name, array in zip(self._names, arrays):
            given = np.dtype(array.dtype)
            expected = given if dtype is None or given.kind != "f" else dtype
            operands.check_fits(name, array, "the parameters", [expected], devices)
        if tensors.FIXED_SIZE_PREFIX in str(error):
            shapes = {f"{name}.shape": array.shape for name, array in zip(self._names, arrays)}
            rule = "net must be called with data that fits it"
            raise validation.InvalidValue(f"{rule}; {validation.received(**shapes)}; {reason(error)}")


class NetGraph(Runner):
    """A net's graph with the net's own parameters: it computes what the net does.

    `outputs` are those of the graph lowered for this call. With `static_alloc` it keeps its memory between calls,
    about `memory` bytes. If that would exceed `most`, it allocates memory at each call, as without the flag.
    """

    def __init__(self, net: Any, call: Call, outputs: Any, flags: Mapping[str, Any], most: float = math.inf):
        outputs = regroup(outputs, map(_as_operator_output, flatten(outputs)))
        symbol, shapes, parameters = group(outputs), call.named_shapes(net), _gluon.parameters(net)
        unknown = [name for name in symbol.list_inputs() if name not in shapes and name not in parameters]
        validation.check(not unknown, "net must compute from its inputs and parameters only", variables=unknown)
        if call.is_float16_on_cpu(parameters) and _lacks_float16_on_cpu(Graph.of(symbol, {}, {})):
            validation.check_float_type("net", "float16", operands.CPU_CONV_TYPES, operands.WHY_NO_FLOAT16)
        trains = call.target.purpose == "training"
        self.memory = _kept_memory(symbol, shapes, trains) if flags.get("static_alloc") else 0
        if self.memory > most or has_loop(symbol):
            self.memory, flags = 0, {name: value for name, value in flags.items() if name not in STATIC_FLAGS}
        super().__init__(outputs, shapes, parameters, flags)
        initialize_deferred(symbol, self.parameters, shapes)
        self._check = ShapeCheck(symbol, parameters)

    def check(self, shapes: Sequence[tuple]) -> None:
        """Raises a `ValueError` for inputs of shapes that do not fit the net."""
        self._check.run(dict(zip(self._names, shapes)), shapes=[*shapes])

    def accepts(self, shapes: Sequence[tuple]) -> bool:
        """Returns whether MXNet can infer shapes for such inputs; it refuses a window of two on one element."""
        return tensors.infer_shapes(self.symbol, dict(zip(self._names, shapes))) is not None


def initialize_deferred(symbol: Any, parameters: Mapping[str, Any], shapes: Mapping[str, tuple]) -> None:
    """Gives deferred parameters of a graph the shapes that follow from those of its inputs; all others must be
    initialized."""
    deferred = {name: each for name, each in parameters.items() if not _gluon.is_initialized(each)}
    if not deferred:
        return
    for parameter in deferred.values():
        _gluon.check_initialized(parameter)
    names, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    given = {name: shape for name, shape in shapes.items() if name in names}
    with explain_errors(shapes=list(given.values())):
        arguments, _, auxiliary = symbol.infer_shape_partial(**given)
    all_shapes = dict(zip([*names, *states], [*arguments, *auxiliary]))
    unknown = [name for name in deferred if not all_shapes.get(name) or min(all_shapes[name]) <= 0]
    rule = "the shapes of all parameters must follow from those of the data: set in_channels or in_units"
    validation.check(not unknown, rule, unknown=unknown, **given)
    for name, parameter in deferred.items():
        _gluon.initialize_deferred(parameter, all_shapes[name])


def _kept_memory(symbol: Any, shapes: Mapping[str, tuple], trains: bool) -> int:
    """Estimates the memory of all operator outputs and their gradients; for inference, of the two largest outputs."""
    internals = symbol.get_internals()
    inferred = tensors.infer_shapes(internals, shapes) or []
    inputs = set(symbol.list_inputs())
    outputs = (shape for name, shape in zip(internals.list_outputs(), inferred) if name not in inputs)
    elements = [math.prod(shape) for shape in outputs if shape and min(shape) > 0]
    return BYTES_PER_ELEMENT * 2 * (sum(elements) if trains else max(elements, default=0))


def contexts(parameters: Mapping[str, Any]) -> list[Any]:
    """Returns the devices of a net's parameters."""
    return next((parameter.list_ctx() for parameter in parameters.values()), [mx.current_context()])


def float_dtype(parameters: Mapping[str, Any]) -> Any:
    """Returns the floating type of the parameters. Those of a batch norm stay float32 when the rest is cast to
    float16."""
    dtypes = [np.dtype(parameter.dtype) for parameter in parameters.values()]
    return min((dtype for dtype in dtypes if dtype.kind == "f"), key=lambda dtype: dtype.itemsize, default=None)
