"""`deploy`: makes a graph for inference from a trained net."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Collection, Literal, Optional, Sequence, Union

import numpy as np

from mxsame import processor, tensors, validation
from mxsame._mxnet import mx
from mxsame.graphs import errors, files, tracing
from mxsame.graphs.freezing import freeze, values
from mxsame.rewriting import bfloat16, legalize, optimize_for_inference
from mxsame.rewriting.graph import Graph
from mxsame.rewriting.onednn import add_fusion_barriers, copy_before_softmax, fuse, is_unrolled_rnn
from mxsame.scope import Target
from mxsame.tensors import operands
from mxsame.tensors.difference import difference
from mxsame.types import InputShape

if TYPE_CHECKING:
    from mxsame._mxnet import Context, HybridBlock, Symbol

FLOAT32: np.dtype[Any] = np.dtype("float32")  # the type for which oneDNN fuses operators
# How much a fused graph may differ from the plain one, relative to an output's largest element. Fusing changes only the
# rounding: by at most 1.8e-6 in the six benchmark networks (MobileNetV2; the next is EfficientNet, 5e-7), and by
# 6e-7 in 200 random nets of 9 and 14 steps. Rounding the data differently has an effect of the same size.
TOLERANCE = 2e-5
BFLOAT16_TOLERANCE = 0.25  # 0.5% to 8% in these networks with random weights; about 100% if a graph is wrong
DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool")


@validation.check_arguments
def deploy(
    net: HybridBlock,
    input_shape: Optional[InputShape] = None,
    ctx: Union[Context, Sequence[Context], None] = None,
    dtype: Optional[Literal["bfloat16"]] = None,
) -> Deployed:
    """Make an optimized inference graph with the same outputs as `net`.

    Identities are removed. Constants are folded. A batch norm after a convolution or a
    dense layer is folded into its weight: W' = s W and b' = s b + beta - mean s with s = gamma / sqrt(variance + eps)
    (Ioffe and Szegedy 2015, algorithm 2), in float64. Transposes move after activations and cancel out. If MXNet
    has oneDNN, `optimize_for("MKLDNN")` then fuses operators for float32 data on the CPU.

    Parameters
    ----------
    net : gluon.HybridBlock
        Initialized, and called once if initialization is deferred. It is not changed; the returned network has its own
        parameters, so later training does not change them. A net that is already deployed for this shape and these
        devices is returned unchanged.
    input_shape : sequence of ints, array, or list of these, optional
        `(N, C, *size)`, or `(N, *size, C)` if the net is channels-last; for several inputs a list, nested like them.
        The batch N may differ from call to call; the other lengths are fixed. If an array of integers is given, the
        net takes integers of that type. By default, the input shape of the Keras model, if that is static.
    ctx : mx.Context or list of mx.Context, optional
        The devices to run on; by default those of the net's parameters.
    dtype : "bfloat16", optional
        Compute layers, and the operators between them, in bfloat16, on a CPU with AVX512_BF16. A net with fewer than 10
        million multiply-adds stays in float32, because bfloat16 would not be faster. Inputs, outputs and parameters
        stay float32.

    Returns
    -------
    Deployed
        A SymbolBlock with the net's call signature. It records no gradients and cannot be trained.

    Raises
    ------
    TypeError, ValueError
        If the net is not a HybridBlock, is not initialized or cannot be traced, or if the shapes or `dtype` do not fit.

    Warns
    -----
    UserWarning
        If MXNet rejects the fused graph, or its outputs differ from those of the plain one: that is then used instead.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> from mxnet.gluon import nn
    >>> net = nn.HybridSequential()
    >>> net.add(mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3), nn.BatchNorm(in_channels=8), nn.Activation("relu"))
    >>> net.initialize()
    >>> fast = mxsame.deploy(net, (1, 3, 32, 32))
    >>> fast(nd.ones((5, 3, 32, 32))).shape
    (5, 8, 16, 16)
    >>> sorted(name.split("_")[-1] for name in fast.collect_params())  # no statistics are left
    ['bias', 'weight']
    """
    tracing.check_ready(net)
    validation.check_type(dtype is None or isinstance(dtype, str), "dtype must be None or a string", dtype=dtype)
    inputs, parameters = tracing.inputs_of(net, input_shape, required=True), net.collect_params()
    devices = tracing.contexts(parameters) if ctx is None else _check_contexts(ctx)
    if isinstance(net, Deployed):
        net.check_deployed_for(inputs.shapes.values(), devices, dtype)
        return net
    net_dtype = tracing.float_dtype(parameters)
    on_cpu = any(map(_is_cpu, devices))
    if net_dtype is not None and on_cpu:
        validation.check_float_type("net", str(net_dtype), operands.CPU_CONV_TYPES, operands.WHY_NO_FLOAT16)
    if dtype not in (None, getattr(net_dtype, "name", None)):
        _check_bfloat16(dtype, net_dtype, devices)
    with errors.explain_errors(input_shape=input_shape):
        types = inputs.types_in(net_dtype)
        graph, structure, _ = freeze(net, inputs, types, Target("deployment", "cpu" if on_cpu else "gpu"))
        preferred = [] if net_dtype is None else [net_dtype]
        candidates = list(dict.fromkeys(map(np.dtype, (*preferred, *DTYPES))))
        accepted = {name: graph.accepted_dtypes(name, candidates) for name, each in types.items() if each is net_dtype}
        dtypes = {name: accepted.get(name, (each,)) for name, each in types.items()}
        fuses = net_dtype == FLOAT32 and tensors.has_onednn() and on_cpu and not is_unrolled_rnn(graph)
        optimize_for_inference(graph, fuses)
        if on_cpu:
            copy_before_softmax(graph)
            if net_dtype == FLOAT32:
                add_fusion_barriers(graph)
        fused_dtype = (dtype or net_dtype.name) if fuses else None
        return Deployed(graph, Signature(inputs.shapes, dtypes, structure), devices, fused_dtype)


@dataclass(frozen=True)
class Signature:
    """The call signature of a deployed net: the shape and the accepted dtypes of each input, by name, and the nesting
    of the outputs."""

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, tuple[Any, ...]]
    structure: Any

    def check(self, args: Sequence[Any], contexts: Sequence[Any]) -> None:
        """Raises an error unless the net can be called with these arrays."""
        kind = mx.np.ndarray if mx.util.is_np_array() else mx.nd.NDArray
        for (name, shape), array in zip(self.shapes.items(), args):
            if type(array) is not kind:  # sparse arrays are subclasses
                raise validation.InvalidType(f"{name} must be an {kind.__name__}; {operands.received(name, array)}")
            matches = len(array.shape) == len(shape) and array.shape[1:] == shape[1:] and array.shape[0] > 0
            hint = validation.remedy(name, array.shape, (None, *shape[1:]))
            rule = f"{name} must have the shape that the net was deployed for, {_describe(shape)}{hint}"
            validation.check(matches, rule, **{f"{name}.shape": array.shape})
            operands.check_fits(name, array, "the parameters", self.dtypes[name], contexts)

    def random(self, context: Any) -> list:
        """Returns random data for a self-check, in the first dtype of each input, without NumPy's global generator."""
        random, array = np.random.RandomState(0), (mx.np if mx.util.is_np_array() else mx.nd).array
        numbers = {name: random.uniform(-1, 1, shape) for name, shape in self.shapes.items()}
        return [array(value, ctx=context, dtype=self.dtypes[name][0]) for name, value in numbers.items()]


class _FrozenParameter(mx.gluon.Parameter):
    """A read-only parameter: oneDNN reorders a weight once, and would ignore new values."""

    def __init__(self, name: str, value: np.ndarray, contexts: Sequence[Any], dtype: Any = None):
        super().__init__(name, grad_req="null", shape=value.shape, dtype=dtype or value.dtype, init="zeros")
        super().initialize(ctx=list(contexts))
        array = (mx.np if mx.util.is_np_array() else mx.nd).array(value, dtype=value.dtype)
        super().set_data(mx.nd.amp_cast(array, dtype=dtype) if dtype else array)

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing, for a parent that initializes its children."""

    def set_data(self, data: Any) -> None:
        """Raises `TypeError`: the values and the type of a deployed net are fixed."""
        rule = "parameters of a deployed net must stay as they are: change the net and deploy it again"
        raise validation.InvalidType(f"{rule}; received a {type(data).__name__} for {self.name}")

    cast = set_data


class Deployed(mx.gluon.SymbolBlock):
    """A net for inference on data of one size, made by `deploy`.

    Its `graph`, which `export` and `save_parameters` write, has MXNet's built-in operators only. Float32 data on the
    CPU runs through a second graph with the same parameters, in which oneDNN has fused operators. If `fused_dtype` is
    "bfloat16", some of them run in bfloat16; if it is None, there is no second graph. The parameters cannot be changed.
    Calls from several threads take turns.
    """

    def __init__(self, graph: Graph, signature: Signature, contexts: Sequence[Any], fused_dtype: Optional[str]):
        self.graph, self.signature, self.fused_dtype = graph.symbol(), signature, fused_dtype
        used = set(self.graph.list_inputs())
        self._used = [name in used for name in signature.shapes]
        rule = "net must have an output that depends on its input"
        validation.check(any(self._used), rule, inputs=[*signature.shapes])
        variables = [tracing.variable(name, signature.dtypes[name][0]) for name in self.used(signature.shapes)]
        parameters = mx.gluon.ParameterDict()
        parameters.update({name: _FrozenParameter(name, value, contexts) for name, value in graph.values.items()})
        with warnings.catch_warnings():  # a graph without parameters accepts any type, and MXNet warns of that
            warnings.filterwarnings("ignore", "Cannot decide type")
            super().__init__(tracing.in_mode(self.graph), variables, parameters)
        self._makes_floats = any(node.op == tensors.FLOAT_DIVISION for node in graph.nodes())
        self._plain = self._runner(self.graph)
        self._fused: Optional[tracing.Runner] = None
        if fused_dtype:
            try:
                self._fused = self._runner(fuse(graph, fused_dtype))
            except mx.base.MXNetError as error:
                self._drop_fused(errors.reason(error))
        self._last_runner: dict[Any, tracing.Runner] = {}  # at most one entry: the last call's key and runner
        for context in contexts:
            self.self_check(context)

    def _runner(self, symbol: Symbol, is_static: bool = True) -> tracing.Runner:
        """Returns a graph that can be called, with the parameters and their copies in bfloat16. If it is static, it
        keeps its memory between calls."""
        is_static = is_static and not tracing.has_loop(symbol)
        flags = dict.fromkeys(tracing.STATIC_FLAGS, True) if is_static else {}
        outputs = tracing.regroup(self.signature.structure, map(tracing.in_mode, symbol))
        parameters = dict(self.params.items())
        for name in filter(bfloat16.is_copy, set(symbol.list_inputs()).difference(parameters)):
            source = parameters[name[: -len(bfloat16.COPY_SUFFIX)]]
            value, contexts = source.data(source.list_ctx()[0]).asnumpy(), source.list_ctx()
            with mx.util.np_array(False):  # mx.np has no bfloat16
                parameters[name] = _FrozenParameter(name, value, contexts, bfloat16.DTYPE)
        return tracing.Runner(outputs, self.used(self.signature.shapes), parameters, flags)

    def used(self, per_input: Any) -> list:
        """Returns the entries for those inputs that the graph uses."""
        return list(itertools.compress(per_input, self._used))

    def forward(self, *args: Any) -> Any:
        """Returns the outputs, nested like the net's. For Symbols, the resulting graph refuses data of other sizes."""
        key = tracing.call_key(args)
        runner = self._last_runner.get(key)
        if runner is None:
            args = tuple(tracing.flatten(args))
            rule = f"a deployed net must be called with {', '.join(self.signature.shapes)}"
            validation.check_type(len(args) == len(self._used), rule, inputs=len(args))
            if all(isinstance(arg, mx.sym.Symbol) for arg in args):
                return tracing.regroup(self.signature.structure, iter(self.compose(args)))
            self.signature.check(args, tracing.contexts(self.params))  # all parameters; `collect_params` is slower
            can_fuse = not self._makes_floats or all(np.dtype(arg.dtype).kind == "f" for arg in args)
            runner = self._fused if self._fused and can_fuse and _is_cpu(args[0].ctx) else self._plain
            self._last_runner = {key: runner} if key else {}
        if key and not any(key[:2]):  # nothing is recorded
            return runner(*self.used(args))
        with mx.autograd.pause(train_mode=False):
            return runner(*self.used(args))

    def check_deployed_for(self, shapes: Collection[tuple[int, ...]], devices: Sequence[Any], dtype: Any) -> None:
        """Raises an error unless it was deployed for these shapes (except the batch), devices and type."""
        rule, deployed = "must match what the net was deployed for", self.signature.shapes.values()
        matches = [shape[1:] for shape in shapes] == [shape[1:] for shape in deployed]
        contexts, described = tracing.contexts(self.params), ", ".join(map(_describe, deployed))
        validation.check(matches, f"input_shape {rule}, {described}", input_shape=[*shapes])
        validation.check(set(devices) == set(contexts), f"ctx {rule}, {contexts}", ctx=devices)
        validation.check(dtype in (None, self.fused_dtype), f"dtype {rule}, {self.fused_dtype}", dtype=dtype)

    def compose(self, variables: Sequence[Any]) -> list:
        """Returns the outputs of the plain graph for these Symbols; the result refuses data of other sizes."""
        shapes = self.signature.shapes
        fixed = dict(zip(shapes, map(tracing.fix_shape, variables, shapes.values())))
        composed = self.graph(**{name: fixed[name].as_nd_ndarray() for name in self.used(shapes)})
        return list(map(tracing.in_mode, composed))

    def self_check(self, context: Any) -> None:
        """Runs the graphs once, so that MXNet raises its errors now. Drops the fused graph unless it runs, and its
        outputs equal those of the plain one except for rounding."""
        data = self.used(self.signature.random(context))

        def outputs(runner: tracing.Runner) -> list:
            with mx.autograd.pause(train_mode=False):
                return [array.asnumpy() for array in tracing.flatten(runner(*data))]

        if self._fused and _is_cpu(context):
            tolerance = BFLOAT16_TOLERANCE if self._is_in_bfloat16() else TOLERANCE
            expected = outputs(self._runner(self.graph, is_static=False))  # needs less memory and time
            try:
                largest_difference = max(map(difference, outputs(self._fused), expected))
            except mx.base.MXNetError as error:
                self._drop_fused(errors.reason(error))
            else:
                if largest_difference <= tolerance:
                    return
                self._drop_fused(f"its outputs differ by {largest_difference:.2g}, more than {tolerance:.2g}")
        outputs(self._plain)

    def _drop_fused(self, reason: str) -> None:
        """Warns that the plain graph runs instead of the fused one. In bfloat16, raises a `ValueError` instead."""
        rule = f"net must run in bfloat16 with nearly the same outputs, but {reason}"
        validation.check(self.fused_dtype != bfloat16.NAME, rule, dtype=self.fused_dtype)
        rule = "the graph with operators fused by oneDNN cannot be used; the plain one runs instead, and may be slower"
        warnings.warn(f"{rule}: {reason}", UserWarning, stacklevel=6)
        self._fused = None

    def _is_in_bfloat16(self) -> bool:
        """Returns whether layers run in bfloat16."""
        return self._fused is not None and any(map(bfloat16.is_copy, self._fused.symbol.list_inputs()))

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> tuple[str, str]:
        """Write `path-symbol.json` and `path-0000.params`, which load without mxsame, and return their names.

        The graph has MXNet's built-in operators only, and refuses data of other sizes with an error of the operator
        `data_must_be_..`. It is correct in all of MXNet's executors, even those that fuse operators with oneDNN. The
        `BlockGrad` operators that it needs for this also stop gradients.
        """
        path, epoch = files.check_path(path), validation.integer("epoch", epoch, 0)
        remove_amp_cast = validation.flag("remove_amp_cast", remove_amp_cast)
        symbol = tracing.group(self.compose([tracing.variable(name) for name in self.signature.shapes]))
        if not any(map(_is_cpu, tracing.contexts(self.params))):  # a file may run on a CPU, too
            prepared = legalize(symbol.as_nd_ndarray(), self.signature.shapes, Target("file"))
            graph = Graph.of(prepared, {}, self.signature.shapes)
            add_fusion_barriers(graph)
            symbol = tracing.in_mode(graph.symbol())
        return files.write(symbol, self.collect_params(), path, epoch, remove_amp_cast)

    def __reduce__(self) -> tuple:
        """Returns the arguments that rebuild the net, for copy and pickle."""
        devices = tracing.contexts(self.collect_params())
        arrays = values(self.collect_params(), devices[0])
        dtype = self.fused_dtype if self._fused else None
        return _rebuild, (self.graph.tojson(), arrays, self.signature, devices, dtype)

    def cast(self, dtype: Any) -> None:
        """Raises `TypeError`: a deployed net has one type."""
        rule = "a deployed net cannot be cast: cast the original net, and deploy it again"
        raise validation.InvalidType(f"{rule}; {validation.received(dtype=dtype)}")

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}={_describe(shape)}" for name, shape in self.signature.shapes.items())
        dtype = ", dtype='bfloat16'" if self._is_in_bfloat16() else ""
        return f"Deployed({inputs}, fused={self._fused is not None}{dtype})"


def _rebuild(symbol: str, arrays: dict, signature: Signature, devices: Sequence[Any], dtype: Optional[str]) -> Deployed:
    if dtype == bfloat16.NAME:  # it may have been pickled on another machine
        _check_bfloat16(dtype, FLOAT32, devices)
    return Deployed(Graph.of(mx.sym.load_json(symbol), arrays, signature.shapes), signature, devices, dtype)


def _check_contexts(ctx: Any) -> list:
    contexts = list(ctx) if validation.is_sequence(ctx) else [ctx]
    are_contexts = contexts and all(isinstance(context, mx.Context) for context in contexts)
    validation.check_type(are_contexts, "ctx must be an mx.Context, or a list of these", ctx=ctx)
    for context in itertools.filterfalse(_is_cpu, contexts):
        count = mx.context.num_gpus()
        rule = "ctx must be an existing device that this build of MXNet supports; `mxsame doctor` lists them"
        validation.check(context.device_id < count, rule, ctx=context, GPUs=count)
    return contexts


def _check_bfloat16(dtype: Any, net_dtype: Any, devices: Sequence[Any]) -> None:
    """Raises unless a net of this type can be deployed in `dtype`."""
    rule = "dtype must be 'bfloat16', or None for the net's own type, which net.cast('float16') changes on a GPU"
    validation.check(dtype == bfloat16.NAME, rule, dtype=dtype)
    lacks = [] if processor.has("AVX512_CORE_BF16") else ["AVX512_BF16"]
    lacks += [] if tensors.has_onednn() else ["oneDNN"]
    is_float32 = net_dtype is None or net_dtype == FLOAT32  # not `in (None, FLOAT32)`: np.dtype("float64") equals None
    is_supported = is_float32 and all(map(_is_cpu, devices)) and not lacks
    missing = {"lacks": lacks} if lacks else {}
    rule = "dtype must be None, or 'bfloat16' for a float32 net on CPUs with AVX512_BF16 and an MXNet with oneDNN"
    validation.check(is_supported, rule, dtype=dtype, net=str(net_dtype), devices=list(devices), **missing)


def _is_cpu(context: Any) -> bool:
    return bool(context.device_type.startswith("cpu"))


def _describe(shape: Sequence[int]) -> str:
    return str((None, *shape[1:]))
