"""`hybridize`: one static-shape graph per shape signature; and versions of Gluon's containers whose method it is.

A net hybridized by Gluon is one graph for every size, so everything that depends on the size is computed in the graph.
Here each shape signature has its own graph of static shape, which needs none of that. Two sizes
have the same signature if every layer decides on the same plan for both, which is a matter of remainders modulo the
strides, so a few graphs serve all sizes.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Hashable, Mapping, Optional, Sequence, Union

from mxsame import _gluon, suggestions, tensors, validation
from mxsame._mxnet import mx
from mxsame.graphs import errors, files, tracing
from mxsame.tensors import operands
from mxsame.types import FilePath

if TYPE_CHECKING:
    from mxsame._mxnet import AnyBlock


@validation.check_arguments
def hybridize(net: AnyBlock, active: bool = True, max_graphs: int = 128, **flags: Union[bool, int]) -> AnyBlock:
    """Compile `net` into graphs of static shape, one for each shape signature: exact for any size, and fast.

    It hybridizes `net` as `net.hybridize(active, **flags)` does, and returns it. The net is called as before, with any
    sizes, for training and inference, on any contexts. Sizes for which all layers pad in the same way have the same
    *shape signature*, and share a graph. The first signature is compiled immediately, every other one on its eighth
    call; until then it runs in one graph for all sizes, so that rare sizes are not compiled.

    Gluon's own `net.hybridize()` is exact for every size, too, but slower if SAME depends on the size, and its pooling
    windows of 2 with stride 2 do not accept an axis of one element. In `mxsame.nn`, the `hybridize()` of layers,
    :class:`mxsame.nn.HybridSequential` and :class:`mxsame.nn.HybridBlock` is this function.

    Parameters
    ----------
    net : gluon.Block
        A HybridBlock is compiled as a whole. In another Block, or in one that overrides `forward` to read shapes, each
        HybridBlock below it is compiled on its own.
    active : bool
        False makes the net run imperatively again, as `net.hybridize(False)` does.
    max_graphs : int
        How many graphs are kept; a new one replaces the least recently used. Five layers of stride 2 make at most
        32 signatures along an axis, and up to 32 * 32 if height and width vary independently.
    flags
        Of `HybridBlock.hybridize`: static_alloc, static_shape, inline_limit, forward_bulk_size, backward_bulk_size.
        With static_alloc, the first graph for inference and the first for training keep their memory between calls, and
        so do others, up to an estimated 512 MiB in all; further graphs allocate and free their memory at each call.

    Raises
    ------
    TypeError, ValueError
        If `net` is not a Block, and for wrong flags.

    Notes
    -----
    Calls from several threads are serialized, but not backward passes: train in one thread. `net.hybridize()`
    of Gluon's classes undoes this function. As in Gluon, call `mxsame.hybridize` again after changing a nested layer.
    Inputs may mix arrays in shared memory (`cpu_shared`) and on the CPU.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> net = mxsame.hybridize(mxsame.nn.Conv2D(8, 3, strides=2))
    >>> net.initialize()
    >>> [net(nd.zeros((1, 3, size, size))).shape[2] for size in (31, 32, 33, 34)]
    [16, 16, 17, 17]
    """
    if not isinstance(net, mx.gluon.Block):
        raise validation.InvalidType(f"net must be a gluon.Block; received net of type {type(net).__name__}")
    active = validation.flag("active", active)
    max_graphs = validation.integer("max_graphs", max_graphs, 1)
    _check_flags(flags)
    if not tracing.is_traceable(net):
        for child in _gluon.children(net):
            hybridize(child, active, max_graphs, **flags)
        return net
    as_gluon: Any = super(HybridBlock, net) if isinstance(net, HybridBlock) else net
    as_gluon.hybridize(active, **flags)
    if active:
        _gluon.override_forward(net, Dispatcher(net, max_graphs))
    else:
        _restore_forward(net)
    return net


_NUMBERS = ("inline_limit", "forward_bulk_size", "backward_bulk_size")
_FLAGS = (*tracing.STATIC_FLAGS, *_NUMBERS)  # in Gluon's order


def _check_flags(flags: dict) -> None:
    rule = f"flags must be those of HybridBlock.hybridize ({', '.join(_FLAGS)})"
    for name, value in flags.items():
        validation.check_type(name in _FLAGS, rule, **{name: value})
        if name in _NUMBERS:
            validation.integer(name, value, 0)
        else:
            validation.flag(name, value)
    fits = flags.get("static_alloc") or not flags.get("static_shape")
    validation.check(fits, "static_shape requires static_alloc=True", **flags)


ARRAYS = (mx.nd.NDArray, mx.sym.Symbol)
MAX_SHAPES = 4096  # shapes per call family whose signature is cached


class Dispatcher:
    """The `forward` of a net that :func:`hybridize` was given: for arrays it runs the graph for these shapes, and for
    Symbols the `forward` of the net's class. A shallow copy of the net has the same dispatcher until its first call.

    The graphs are stored in `_cached_op`, so Gluon drops them when it would drop its own CachedOp: if a layer, the
    type or a flag changes. After Gluon's own `hybridize`, the net runs Gluon's graph again.
    """

    _MAKE_LOCK = threading.Lock()

    def __init__(self, net: Any, max_graphs: int):
        self._net, self._max_graphs, self._given_flags = net, max_graphs, _gluon.flags(net)

    @property
    def __func__(self) -> Any:
        """The `forward` of the net's class, as a bound method has it."""
        return type(self._net).forward

    def __call__(self, *args: Any) -> Any:
        caller = _gluon.caller_of(self)
        if caller is not None and caller is not self._net:
            return self._for_copy(caller)(*args)
        net = self._net
        if self._given_flags is not _gluon.flags(net):
            _restore_forward(net)
            return self.__func__(net, *args)
        key, arrays = tracing.call_key(args), args
        if key is None:
            arrays = tuple(tracing.flatten(args))
            kinds = {kind for kind in ARRAYS for each in arrays if isinstance(each, kind)}
            if kinds != {mx.nd.NDArray}:
                return self.__func__(net, *args)
        cache, hook = _gluon.cache_and_hook(net)
        if type(cache) is not GraphCache or cache.net is not net:
            cache = self.make_cache()
        graph, is_new = cache.last.get(key), False
        if graph is None:
            graph, is_new = cache.find(args, arrays, key)
        try:
            outputs = graph.run(arrays, net if hook else None)
            for output in tracing.flatten(outputs) if is_new else ():
                output.wait_to_read()  # some operators refuse data, or its type, only when they run
        except mx.base.MXNetError:
            with errors.explain_errors(shapes=arrays):
                raise
        return outputs

    def _for_copy(self, net: Any) -> Dispatcher:
        """Gives a shallow copy of the net a dispatcher of its own, and returns it."""
        dispatcher = Dispatcher(net, self._max_graphs)
        dispatcher._given_flags = self._given_flags
        _gluon.override_forward(net, dispatcher)
        return dispatcher

    def make_cache(self) -> GraphCache:
        """Returns the net's graph cache; makes one unless another thread already has."""
        with self._MAKE_LOCK:
            cache = cached_graphs(self._net)
            if cache is None:
                cache = GraphCache(self._net, dict(self._given_flags), self._max_graphs)
                _gluon.drop_graph(self._net)  # a shallow copy has the original's
                _gluon.set_cache(self._net, cache)
        return cache


def _restore_forward(net: Any) -> None:
    """Undoes `hybridize`: the net calls its class's `forward` again, and so runs Gluon's graph."""
    _gluon.override_forward(net, None)
    if type(_gluon.cache_and_hook(net)[0]) is GraphCache:
        _gluon.drop_graph(net)


def cached_graphs(net: Any) -> Optional[GraphCache]:
    """Returns the graph cache of a net; None before its first call, and after a change."""
    cache, _ = _gluon.cache_and_hook(net)
    return cache if type(cache) is GraphCache and cache.net is net else None


class GraphCache:
    """The graphs of a net, one for each shape signature."""

    MAX_MEMORY = 1 << 29  # bytes that graphs may keep with static_alloc, not counting the first graph of each purpose
    COMPILING_CALL = 8  # the call that compiles a signature's graph; the first signature's is compiled at once

    def __init__(self, net: Any, flags: Mapping[str, Any], max_graphs: int):
        self.net, self._options, self._max_graphs = net, flags, max_graphs
        self._lock = threading.RLock()
        self.graphs: OrderedDict[Hashable, tracing.NetGraph] = OrderedDict()  # by signature
        self._first: Any = weakref.WeakValueDictionary()  # the first graph for each purpose, which keeps its memory
        self._others: Any = weakref.WeakSet()  # all other graphs, including those of dynamic shape
        self._families: dict[Hashable, CallFamily] = {}  # by `Call.family`
        self.last: dict[Any, tracing.NetGraph] = {}  # at most one entry: the last call's key and graph
        self._blocks: list[Any] = []  # the blocks of the last trace

    def __reduce__(self) -> tuple:
        """Makes a copied or pickled net start without graphs."""
        return type(None), ()

    def find(self, args: tuple, arrays: Sequence[Any], key: Any) -> tuple[tracing.NetGraph, bool]:
        """Returns the graph for a call with these arrays, and whether the call has new shapes."""
        for array in arrays:
            operands.check_array("data", array)
        if isinstance(self.net, tracing.CheckedBlock):
            self.net.check(*args)
        with self._lock:
            call = tracing.Call.of(args, arrays, self.net)
            family = self._families.get(call.family)
            is_new = family is None or call.shapes not in family.signatures
            if is_new and not mx.util.is_np_shape():  # without np_shape, a length of 0 means unknown to MXNet
                for shape in call.shapes:
                    validation.check_not_empty("data", shape)
            graph = self._graph_for(call, family)
            if is_new:
                graph.check(call.shapes)
            self.last = {key: graph} if key and graph in self.graphs.values() else {}
        return graph, is_new

    def _graph_for(self, call: tracing.Call, family: Optional[CallFamily]) -> tracing.NetGraph:
        """Returns the graph for a call."""
        if family is None:
            tracing.check_initialized(self.net)
            self._drop_graphs_of_other_layers()
            family = CallFamily(self.net, call)
            graph = self._compile(call, family.signature(call), family.first.outputs)
            self._families[call.family] = family
            return graph
        signature = family.signature(call)
        if signature in self.graphs:
            self.graphs.move_to_end(signature)
            return self.graphs[signature]
        calls = family.calls.pop(signature, 0) + 1
        if calls < self.COMPILING_CALL and call.strategy is None:
            dynamic = self._dynamic_graph(call, family)
            if dynamic and (calls > 1 or dynamic.accepts(call.shapes)):
                _insert(family.calls, signature, calls, MAX_SHAPES)
                return dynamic
        return self._compile(call, signature, call.lower(self.net, family.trace).outputs)

    def _drop_graphs_of_other_layers(self) -> None:
        """Drops all graphs if a nested layer was replaced, which Gluon does not notice, so that the graphs for
        inference, for training and for MXNet's tools have the same layers."""
        tree = _gluon.tree(self.net)
        if tree != self._blocks:
            for table in (self.graphs, self._families, self.last):
                table.clear()
            self._blocks = tree
            _gluon.drop_graph(self.net)
            _gluon.set_cache(self.net, self)

    def _dynamic_graph(self, call: tracing.Call, family: CallFamily) -> Any:
        """Returns the graph for any size; False if there is none."""
        if family.dynamic is None:
            try:
                family.dynamic = self._make_graph(call, call.lower(self.net, family.trace, static=False).outputs)
            except (TypeError, ValueError):
                family.dynamic = False
        return family.dynamic

    def _make_graph(self, call: tracing.Call, outputs: Any) -> tracing.NetGraph:
        """Returns a graph of these outputs; with static_alloc it keeps its memory if that is not too much."""
        purpose, room = call.target.purpose, self.MAX_MEMORY - sum(graph.memory for graph in self._others)
        is_first = purpose not in self._first
        graph = tracing.NetGraph(self.net, call, outputs, self._options, math.inf if is_first else room)
        if is_first:
            self._first[purpose] = graph
        else:
            self._others.add(graph)
        return graph

    def _compile(self, call: tracing.Call, signature: Hashable, outputs: Any) -> tracing.NetGraph:
        """Returns a new graph of these outputs, and keeps it for the signature."""
        graph = self._make_graph(call, outputs)
        structures = call.structure, tracing.regroup(outputs, itertools.repeat(True))
        _gluon.keep_graph_for_tools(self.net, _GraphForTools(self.net), structures)
        _insert(self.graphs, signature, graph, self._max_graphs)
        return graph


class HybridBlock(mx.gluon.HybridBlock):
    """`gluon.HybridBlock` with :func:`mxsame.hybridize` and :func:`mxsame.export` as its methods.

    Derive networks from it as from Gluon's class: parameters, names and files are the same.

    `hybridize(active=True, max_graphs=128, **flags)` makes a graph for each shape signature; `hybridize(False)` undoes
    it. With a `backend`, both `hybridize` and `export` are Gluon's own.

    The outermost HybridBlock decides how the blocks that it calls run. Inside a Block that is not a HybridBlock, such
    as `gluon.nn.Sequential`, this block has its own graphs as soon as the parent is hybridized. Inside a HybridBlock of
    Gluon, it is a part of the parent's one graph for every size: derive the parent from this class, or call
    `mxsame.hybridize(parent)`.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> class Net(mxsame.nn.HybridBlock):
    ...     def __init__(self):
    ...         super().__init__()
    ...         with self.name_scope():
    ...             self.conv = mxsame.nn.Conv2D(8, 3, strides=2)
    ...     def hybrid_forward(self, F, x):
    ...         return F.relu(self.conv(x))
    >>> net = Net()
    >>> net.initialize()
    >>> net.hybridize()
    >>> [net(nd.zeros((1, 3, size, size))).shape[2] for size in (31, 32, 33, 34)]
    [16, 16, 17, 17]
    """

    def __call__(self, *args: Any) -> Any:
        """Returns the outputs for arrays, or for Symbols."""
        try:
            return super().__call__(*args)
        except (TypeError, ValueError):
            if tracing.is_traceable(self):
                tracing.check_call(self, args)
            raise

    def __getattr__(self, name: str) -> Any:
        """Raises an `AttributeError` that suggests the equivalent of a Keras name."""
        raise suggestions.no_attribute(self, name)

    def summary(self, *inputs: Any) -> None:
        """Print a table of the layers, as Gluon does; the net may be hybridized."""
        with _gluon.imperative(self):
            super().summary(*inputs)

    def save(self, prefix: FilePath) -> None:
        """Write Gluon's two files, `prefix-model.json` and `prefix-model.params`."""
        files.check_ending("prefix", prefix)
        super().save(os.fspath(prefix))

    def cast(self, dtype: Any) -> None:
        """Casts the parameters, after a check of the type: a wrong one changes nothing."""
        try:
            tensors.dtype_attribute(dtype)
        except (KeyError, TypeError):
            rule = "dtype must be a NumPy type, such as 'float32'"
            raise validation.InvalidValue(f"{rule}; {validation.received(dtype=dtype)}") from None
        super().cast(dtype)

    def hybridize(
        self,
        active: bool = True,
        backend: Optional[str] = None,
        clear: bool = True,
        *flags_in_order: Union[bool, int, None],
        max_graphs: int = 128,
        **flags: Union[bool, int, None],
    ) -> None:
        """Make graphs of static shape; see :func:`mxsame.hybridize`. The order of arguments is Gluon's."""
        if backend is not None:
            super().hybridize(active, backend, clear, *flags_in_order, **flags)
            _restore_forward(self)
            return
        flags.update(zip(_FLAGS, flags_in_order))
        given = {name: value for name, value in flags.items() if value is not None}  # a parent passes None by default
        hybridize(self, bool(active), max_graphs, **given)

    def export(self, path: FilePath, epoch: int = 0, remove_amp_cast: bool = True) -> tuple[str, str]:
        """Write the graph for every size; :func:`mxsame.export` can also write it for one size."""
        if _gluon.is_hybridized(self) and not _gluon.overridden_forward(self):  # by Gluon, with a backend
            super().export(path, epoch, remove_amp_cast)
            return f"{path}-symbol.json", f"{path}-{epoch:04d}.params"
        return files.export(self, path, epoch=epoch, remove_amp_cast=remove_amp_cast)


class HybridSequential(HybridBlock, mx.gluon.nn.HybridSequential):
    """`gluon.nn.HybridSequential`, whose own `hybridize()` is :func:`mxsame.hybridize`; see :class:`HybridBlock`.

    >>> import mxsame
    >>> from mxnet import nd
    >>> net = mxsame.nn.HybridSequential()
    >>> net.add(mxsame.nn.Conv2D(8, 3, strides=2), mxsame.nn.MaxPool2D())
    >>> net.initialize()
    >>> net.hybridize()
    >>> net(nd.zeros((1, 3, 32, 30))).shape
    (1, 8, 8, 8)
    """


class _GraphForTools:
    """A pair of a net's inputs and its Symbol for every size, which MXNet's tools read in place of Gluon's. The net is
    traced when a tool reads the pair."""

    def __init__(self, net: Any):
        self._net = net

    @functools.cached_property
    def _graph(self) -> tuple[list, Any]:
        inputs = tracing.inputs_of(self._net)
        variables = list(map(tracing.variable, inputs.shapes))
        lowered = tracing.trace_net(self._net, inputs.structure).lower(variables, inputs.shapes.values())
        return variables, tracing.group(lowered.outputs)

    def __getitem__(self, index: Any) -> Any:
        return self._graph[index]


class CallFamily:
    """All calls of a net that differ only in sizes: their common trace, and the shape signature of each.

    The signature of a call consists of the plans of all operators for its shapes: calls of one signature share a graph.
    """

    dynamic: Any = None  # the graph for any size, False if there is none

    def __init__(self, net: Any, call: tracing.Call):
        self.signatures: OrderedDict[Hashable, Hashable] = OrderedDict()  # by the shapes of a call
        self.calls: OrderedDict[Hashable, int] = OrderedDict()  # calls in the graph for any size, by signature
        self.trace = call.trace(net)
        self.first = call.lower(net, self.trace)
        # None for a placeholder whose operators do not form a chain on its data: its output shape does not follow
        # from their plans.
        self._planned = [None if _is_not_a_chain(call) else call.planned for call in self.first.calls]
        self._size_dependent = [[each for each in some or () if each.depends_on_size] for some in self._planned]

    def signature(self, call: tracing.Call) -> Hashable:
        """Returns the signature of a call. For invalid shapes it is the shapes themselves: building the graph then
        raises the error."""
        if call.shapes not in self.signatures:
            plans = self._plans(call.shapes)
            _insert(self.signatures, call.shapes, (call.family, call.shapes if plans is None else plans), MAX_SHAPES)
        return self.signatures[call.shapes]

    def _plans(self, shapes: Sequence[tuple]) -> Optional[tuple[Any, ...]]:
        """Returns the plan of each operator for these shapes, or its partial shape if the full shape is not known;
        None for shapes that an operator refuses."""
        known: dict[str, Any] = {variable.name: shape for variable, shape in zip(self.trace.inputs, shapes)}
        plans: list[Any] = []
        for placeholder, planned, by_size in zip(self.trace.recorder.placeholders, self._planned, self._size_dependent):
            inferred = tensors.infer_shapes(placeholder.symbols[0], known)
            if inferred is None:
                return None
            shape = tuple(inferred[0] or ())
            if planned and mx.util.is_np_shape():  # else 0 is an unknown length
                validation.check_not_empty("data", shape)
            if not shape or min(shape) <= 0:
                plans.append(shape)
            elif planned:
                plans += [operator.plan_for(shape) for operator in by_size]
                for operator in planned:
                    shape = operator.output_shape(shape)
                known[placeholder.variable.name] = shape
                if min(shape) <= 0:  # too short for the operator
                    return None
            else:
                plans.append(shape if planned is None else None)
                data, *others = placeholder.symbols
                output = placeholder.lower([mx.sym.var(data.name, shape=shape), *others])
                known[placeholder.variable.name] = tensors.known_shape(output)
        return tuple(plans)


def _is_not_a_chain(call: tracing.LoweredPlaceholder) -> bool:
    """Returns whether the placeholder's operators do not form a chain from its data to its output."""
    shape = call.data_shape
    if not call.planned or not shape or None in shape:
        return False
    for operator in call.planned:
        if tuple(window.size for window in operator.windows) != (shape[1:-1] if operator.channels_last else shape[2:]):
            return True
        shape = operator.output_shape(shape)
    return shape != call.output_shape


def _insert(table: OrderedDict, key: Hashable, value: Any, max_entries: int) -> None:
    """Inserts a value, and drops the oldest entry of a full table."""
    table[key] = value
    if len(table) > max_entries:
        table.popitem(last=False)
