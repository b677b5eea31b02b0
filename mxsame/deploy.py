"""`deploy`: a trained net as a graph for inference."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import threading
import warnings
from collections import OrderedDict
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from mxsame import _cuda, validation
from mxsame import graph as graphs
from mxsame._mxnet import mx
from mxsame._rewrite import Graph, can_fuse, confine, differentiable, fused, simplify
from mxsame.ops import _arrays

__all__ = ["Deployed", "deploy"]

FUSED_DTYPE = np.dtype("float32")  # what oneDNN fuses
# What keeps executors from putting operators of their own in place of the graph's: compiled for a GPU, or fused by
# oneDNN, which then takes a convolution's output for that of the activation behind it where both are the graph's.
PLAIN = {"gpu": {"MXNET_USE_FUSION": "0"}, "cpu": {"MXNET_SUBGRAPH_BACKEND": "NONE"}}


def deploy(net: Any, input_shape: Any, ctx: Any = None, cudnn_only: Optional[bool] = None) -> Deployed:
    """A graph for inference: the outputs of `net`, from fewer and better steps.

    What is the identity at inference is left out. What depends on parameters alone is computed once. A normalisation
    behind a convolution or a dense layer goes into its weight: W' = s W and b' = s b + beta - mean s with
    s = gamma / sqrt(variance + eps) (Ioffe and Szegedy 2015, algorithm 2), in float64. Slices that make paddings
    exact, and transposes, move behind activations. Where MXNet has oneDNN, data of float32 on the CPU then runs through
    `optimize_for("MKLDNN")`.

    Parameters
    ----------
    net : gluon.HybridBlock
        Initialised, and called once if its channels are deferred. It is left as it is; what is returned has parameters
        of its own, so later training does not reach it.
    input_shape : sequence of ints, or a list of such
        (N, C, \\*size), or (N, \\*size, C) as the net wants it; one shape for each input. The batch N may differ from
        call to call, the other lengths are fixed.
    ctx : mx.Context or a list of such, optional
        Where it shall run; by default where the parameters of the net are.
    cudnn_only : bool, optional
        Whether the graph must be made of what cuDNN and cuBLAS run alone: convolutions, poolings in 2-D and 3-D, relu,
        sigmoid, tanh and softmax, dense layers, sums, and what can be said with these. A GPU of compute capability 9.0
        and newer (Hopper) runs nothing else of MXNet 1.9.1, whose wheels hold no machine code for it; there a net
        cannot even be initialised, so keep it on the CPU and give `ctx`. By default it is so for such GPUs. Seen to be
        exact on the CPU; on a Hopper GPU it was never run.

    Returns
    -------
    Deployed
        A SymbolBlock, called as the net is. It never records gradients and never trains.

    Raises
    ------
    TypeError, ValueError
        For what is no HybridBlock, is not initialised or cannot be traced, and for shapes that do not fit it; and with
        `cudnn_only` for a net that needs more, with the names of the operators.

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
    graphs.check_ready(net)
    if not graphs.is_traceable(net):
        raise TypeError(f"net must not override forward; received net of type {type(net).__name__}")
    shapes = _checked_shapes(input_shape)
    parameters = net.collect_params()
    home, dtype = _contexts(parameters)[0], _dtype(parameters)
    contexts = _contexts(parameters) if ctx is None else _checked_contexts(ctx)
    if cudnn_only is None:
        cudnn_only = any(map(lacks_machine_code, contexts))
    cudnn_only = validation.flag("cudnn_only", cudnn_only)
    if dtype is not None and any(map(_is_cpu, contexts)):
        why = " on the CPU, where MXNet has no float16 convolution"
        validation.float_type("net", str(dtype), ("float32", "float64"), why)
    inputs = dict(zip(graphs.input_names(net, len(shapes)), shapes))
    try:
        outputs = _traced(net, inputs, dtype, "cudnn" if cudnn_only else _device(contexts))
        graph = Graph.of(_group(outputs), _values(parameters, home), inputs)
        graph.shapes()  # what refuses these shapes, a deployed net within among it, does so now
        fuses = dtype == FUSED_DTYPE and can_fuse() and any(map(_is_cpu, contexts)) and not cudnn_only
        simplify(graph, home, fuses)
        if cudnn_only:
            dtype = dtype or FUSED_DTYPE
            confine(graph, dtype)
        deployed = Deployed(graph, outputs, dtype, contexts, fuses, cudnn_only)
        for context in contexts:
            deployed.try_out(context)
    except mx.base.MXNetError as error:
        raise ValueError(
            f"net must run on data of input_shape; {validation.received(input_shape=input_shape)}; "
            f"MXNet says: {graphs.reason(error)}"
        ) from None
    return deployed


class _Fixed(mx.gluon.Parameter):
    """A parameter that stays as it is: oneDNN arranges a weight once, and would not see another."""

    def __init__(self, name: str, value: np.ndarray, contexts: Sequence[Any]):
        super().__init__(name, grad_req="null", shape=value.shape, dtype=value.dtype, init="zeros")
        super().initialize(ctx=list(contexts))
        super().set_data(_array(value))

    def initialize(self, *args: Any, **more: Any) -> None:
        """Nothing, for a parent that initialises what is below it."""

    def set_data(self, data: Any) -> None:
        """Refused."""
        raise TypeError(
            f"parameters of a deployed net must stay as they are: change the net and deploy it again; received a "
            f"{type(data).__name__} for {self.name}"
        )


class Deployed(mx.gluon.SymbolBlock):
    """What `deploy` returns: a net for inference, on data of one size.

    Its own graph is plain, and so is what `export` and `save_parameters` write: built-in operators only. Data of
    float32 on the CPU runs through a second graph over the same parameters, in which oneDNN has fused what it can.
    The parameters cannot be changed. Calls from several threads take turns. A graph for cuDNN alone runs in executors,
    which no parent's graph does: call it by itself.
    """

    _TURN = threading.RLock()  # for all: a call does no more than hand work to MXNet's engine

    def __init__(
        self, graph: Graph, outputs: Any, dtype: Any, contexts: Sequence[Any], fuses: bool, cudnn_only: bool = False
    ):
        symbol = differentiable(graph).symbol() if cudnn_only else graph.symbol()
        used = set(symbol.list_inputs())
        self._inputs, self._used = graph.inputs, [name in used for name in graph.inputs]
        if not any(self._used):
            raise ValueError("net must have an output that depends on its input; received one of constants")
        if dtype is not None:  # a SymbolBlock would go on with float32 where the types do not fit
            symbol.infer_type(**{name: dtype for name in self._inputs if name in used})
        variables = [graphs.variable(name, dtype) for name in self._inputs if name in used]
        parameters = mx.gluon.ParameterDict()
        parameters.update({name: _Fixed(name, value, contexts) for name, value in graph.values.items()})
        with warnings.catch_warnings():  # a graph without parameters takes data of any type, and MXNet warns of that
            warnings.filterwarnings("ignore", "Cannot decide type")
            super().__init__(_kind(symbol), variables, parameters)
        self._structure, self._dtype, self._fused = graphs.regrouped(outputs, itertools.repeat(True)), dtype, None
        self._executors = (
            Executors(graph.symbol(), parameters, [name for name in self._inputs if name in used])
            if cudnn_only
            else None
        )
        self.hybridize(static_alloc=True, static_shape=True)
        if fuses:
            runner = mx.gluon.SymbolBlock(_kind(fused(graph)), variables, parameters)
            runner.hybridize(static_alloc=True, static_shape=True)
            self._fused = runner.forward  # the block itself would become a child, and be saved

    def forward(self, *args: Any) -> Any:
        """The outputs, in the structure in which the net gives them; a graph that this becomes a part of refuses data
        of other sizes as well."""
        self._check_number(args)
        if all(isinstance(arg, mx.sym.Symbol) for arg in args):
            args = tuple(map(graphs.fixed, args, self._inputs.values()))
            fuses = False
        else:
            self._check(args)
            fuses = bool(self._fused) and _is_cpu(args[0].ctx)
        return graphs.regrouped(self._structure, iter(self._results(args, fuses)))

    def _results(self, args: Sequence[Any], fuses: bool) -> list:
        used = [array for array, is_used in zip(args, self._used) if is_used]
        if self._executors and not isinstance(args[0], mx.sym.Symbol) and not _is_cpu(args[0].ctx):
            run: Any = self._executors
        else:
            run = self._fused if fuses else super().forward
        with self._TURN, mx.autograd.pause(train_mode=False):
            return graphs.flattened(run(*used))

    def try_out(self, context: Any) -> None:
        """Run once, so that MXNet refuses now what it would refuse later; and stay fused only if the plain graph gives
        the same, apart from what rounding may grow to in a deep net."""
        data = [_random(shape, context, self._dtype) for shape in self._inputs.values()]
        want = [array.asnumpy() for array in self._results(data, False)]
        if self._fused and _is_cpu(context):
            got = [array.asnumpy() for array in self._results(data, True)]
            if all(map(_alike, got, want)):
                self._clear_cached_op()  # with the memory that the plain graph has taken
            else:
                self._fused = None

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> Tuple[str, str]:
        """Write `path-symbol.json` and `path-0000.params`, which load without mxsame, and return their names.

        The graph is the plain one, and refuses data of other sizes with an error of the operator `data_must_be_..`.
        Files of a graph for cuDNN alone are for executors (`symbol.bind`, the C API for prediction): where they hold a
        sum, a SymbolBlock does not take them. Let MXNET_USE_FUSION=0 stand in the environment there.
        """
        path, epoch = graphs.check_file(path, epoch)
        variables = {name: graphs.variable(name) for name in self._inputs}
        if self._executors:
            used = itertools.compress(variables.items(), self._used)
            fixed = {name: graphs.fixed(variable, self._inputs[name]) for name, variable in used}
            return graphs.written(self._executors.symbol(**fixed), self.collect_params(), path, epoch)
        return graphs.written(_group(self.forward(*variables.values())), self.collect_params(), path, epoch)

    def __reduce__(self) -> tuple:
        """For copies, and for pickling."""
        contexts = _contexts(self.collect_params())
        values = _values(self.collect_params(), contexts[0])
        symbol = (self._executors.symbol if self._executors else self._cached_graph[1]).tojson()
        more = (self._dtype, contexts, bool(self._fused), bool(self._executors))
        return _rebuilt, (symbol, values, self._inputs, self._structure, *more)

    def cast(self, dtype: Any) -> None:
        """Refused: fold in the type in which the net shall run."""
        raise TypeError(
            f"a deployed net keeps its type: cast the net and deploy that; {validation.received(dtype=dtype)}"
        )

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {_described(shape)}" for name, shape in self._inputs.items())
        count = sum(node["op"] != "null" for node in json.loads(self._cached_graph[1].tojson())["nodes"])
        return f"Deployed({inputs}, {self._dtype or 'any type'}: {count} operators{', fused' if self._fused else ''})"

    def _check_number(self, args: Sequence[Any]) -> None:
        if len(args) != len(self._inputs):
            wanted = f"{len(self._inputs)} input{'s' if len(self._inputs) > 1 else ''}"
            raise TypeError(f"a deployed net must be called with {wanted}; {validation.received(inputs=len(args))}")

    def _check(self, args: Sequence[Any]) -> None:
        """Raise what is wrong with the inputs of a call."""
        contexts = _contexts(self.collect_params())
        kind = mx.np.ndarray if mx.util.is_np_array() else mx.nd.NDArray
        for (name, shape), array in zip(self._inputs.items(), args):
            if not isinstance(array, kind):
                raise TypeError(f"{name} must be an {kind.__name__}; {_arrays.received(name, array)}")
            if len(array.shape) != len(shape) or array.shape[1:] != shape[1:] or array.shape[0] < 1:
                raise ValueError(
                    f"{name} must have the shape that the net was deployed for, {_described(shape)}; "
                    f"{validation.received(**{f'{name}.shape': array.shape})}"
                )
            _arrays.check(name, array)
            if self._dtype is not None and array.dtype != self._dtype:
                raise TypeError(
                    f"{name} must have the type of the parameters, {self._dtype}; "
                    f"{validation.received(**{f'{name}.dtype': str(np.dtype(array.dtype))})}"
                )
            if array.ctx not in contexts:
                raise ValueError(
                    f"{name} must be where the parameters are, on {contexts}; "
                    f"{validation.received(**{f'{name}.context': str(array.ctx)})}"
                )


class Executors:
    """Runs a graph by MXNet's executors, one for each device, type and batch. Other than the graphs of a block, an
    executor lets a convolution add its output to an array (see `mxsame._rewrite._sums`)."""

    MOST = 16  # the least recently used goes; each has memory for all that is between input and output

    def __init__(self, symbol: Any, parameters: Any, names: Sequence[str]):
        self.symbol, self._parameters, self._names = symbol, parameters, names
        self.bound: OrderedDict[Any, Any] = OrderedDict()

    def __call__(self, *inputs: Any) -> list:
        """The outputs for inputs in the order of their names."""
        key = (inputs[0].ctx, *((array.shape, array.dtype) for array in inputs))
        if key not in self.bound:
            self.bound[key] = self._bind(inputs)
            if len(self.bound) > self.MOST:
                self.bound.popitem(last=False)
        self.bound.move_to_end(key)
        executor = self.bound[key]
        for name, array in zip(self._names, inputs):
            array.as_nd_ndarray().copyto(executor.arg_dict[name])
        found = [out.copyto(out.ctx) for out in executor.forward(is_train=False)]  # its own are written again
        return [out.as_np_ndarray() for out in found] if mx.util.is_np_array() else found

    def _bind(self, inputs: Sequence[Any]) -> Any:
        context = inputs[0].ctx
        arrays = {name: array.as_nd_ndarray().copyto(context) for name, array in zip(self._names, inputs)}
        arrays.update({name: self._parameters[name].data(context).as_nd_ndarray() for name in self._parameters})
        given = {name: arrays[name] for name in self.symbol.list_inputs()}
        with _environment(PLAIN["cpu" if _is_cpu(context) else "gpu"]):  # MXNet reads it whenever it binds
            return self.symbol.as_nd_ndarray().bind(context, given, grad_req="null")


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _checked_contexts(ctx: Any) -> list:
    contexts = list(ctx) if validation.is_sequence(ctx) else [ctx]
    if not contexts or not all(isinstance(context, mx.Context) for context in contexts):
        raise TypeError(f"ctx must be an mx.Context, or a list of such; {validation.received(ctx=ctx)}")
    for context in contexts:
        if not _is_cpu(context) and context.device_id >= mx.context.num_gpus():
            raise ValueError(
                f"ctx must be a device that there is; {validation.received(ctx=context, GPUs=mx.context.num_gpus())}"
            )
    return contexts


def lacks_machine_code(context: Any) -> bool:
    """Whether the context is a GPU for which this MXNet has no machine code of its own."""
    if _is_cpu(context):
        return False
    device = next((device for device in _cuda.devices() if device.number == context.device_id), None)
    return device is not None and not _cuda.runs_on(device.capability, _machine_code())


@functools.lru_cache(maxsize=None)
def _machine_code() -> _cuda.Code:
    """Of the MXNet that is imported; half a gigabyte is looked through for it."""
    return _cuda.machine_code(mx.libinfo.find_lib_path()[0])


def _checked_shapes(input_shape: Any) -> List[Tuple[int, ...]]:
    """One shape, or one for each input -> a list."""
    if validation.is_sequence(input_shape) and len(input_shape) and all(map(validation.is_sequence, input_shape)):
        return [graphs.checked_shape(f"input_shape[{place}]", shape) for place, shape in enumerate(input_shape)]
    shape = graphs.checked_shape("input_shape", input_shape)
    if not shape:
        raise ValueError(f"input_shape must have at least one length; {validation.received(input_shape=input_shape)}")
    return [shape]


def _contexts(parameters: Any) -> list:
    return next((parameter.list_ctx() for parameter in parameters.values()), [mx.current_context()])


def _dtype(parameters: Any) -> Any:
    """The type of the parameters; None where there are none, and any is fine. Those of a normalisation stay float32
    when the rest is cast to float16."""
    types = [np.dtype(parameter.dtype) for parameter in parameters.values()]
    return min(types, key=lambda dtype: dtype.itemsize) if types else None


def _values(parameters: Any, context: Any) -> dict:
    return {name: parameter.data(context).asnumpy() for name, parameter in parameters.items()}


def _device(contexts: Sequence[Any]) -> Optional[str]:
    return ("cpu" if any(map(_is_cpu, contexts)) else "gpu") if contexts else None


def _traced(net: Any, inputs: dict, dtype: Any, device: Optional[str]) -> Any:
    variables = [graphs.variable(name, dtype) for name in inputs]
    try:
        outputs, _ = graphs.traced(net, variables, variables, list(inputs.values()), True, "deployment", device)
    except (AttributeError, NotImplementedError) as error:  # what a Symbol cannot say, or a Block without graph
        raise TypeError(
            f"net must be HybridBlocks throughout, whose hybrid_forward runs on Symbols; received {error}"
        ) from error
    found = graphs.flattened(outputs)
    if not found or not all(isinstance(output, mx.sym.Symbol) for output in found):
        raise ValueError(f"net must return arrays; received {type(outputs).__name__}")
    return outputs


def _rebuilt(symbol: str, values: dict, inputs: dict, structure: Any, *more: Any) -> Deployed:
    return Deployed(Graph.of(mx.sym.load_json(symbol), values, inputs), structure, *more)


def _group(outputs: Any) -> Any:
    return outputs if isinstance(outputs, mx.sym.Symbol) else mx.sym.Group(graphs.flattened(outputs))


def _kind(symbol: Any) -> Any:
    return symbol.as_np_ndarray() if mx.util.is_np_array() else symbol


def _array(value: np.ndarray) -> Any:
    return (mx.np if mx.util.is_np_array() else mx.nd).array(value, dtype=value.dtype)


def _random(shape: Sequence[int], context: Any, dtype: Any) -> Any:
    values = np.random.RandomState(0).uniform(-1, 1, shape)  # the user's own random numbers stay as they were
    return (mx.np if mx.util.is_np_array() else mx.nd).array(values, ctx=context, dtype=dtype or FUSED_DTYPE)


def _alike(got: np.ndarray, want: np.ndarray) -> bool:
    scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    return bool(np.allclose(got, want, rtol=0, atol=1e-2 * float(scale), equal_nan=True))


def _is_cpu(context: Any) -> bool:
    return bool(context.device_type.startswith("cpu"))


def _described(shape: Sequence[int]) -> str:
    return f"({', '.join(['N', *map(str, shape[1:])])})"
