"""All accesses to Gluon's private names; no other file has any.

Gluon has no public way to get a block's children, to see whether it is hybridized or has changed, or to initialize a
deferred parameter. MXNet 1.9.1 is the last release; `tests/test_gluon.py` fails if one of the names is gone.
"""

from __future__ import annotations

import contextlib
import copyreg
import sys
import threading
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence

from mxsame._mxnet import mx

# A CachedOp cannot be copied or pickled: a copy of a net has None instead, and Gluon makes another one.
copyreg.pickle(mx.nd.CachedOp, lambda operator: (type(None), ()))


def children(block: Any) -> list[Any]:
    """Returns the child blocks of a block."""
    return list(block._children.values())


def tree(block: Any) -> list[Any]:
    """Returns a block and all blocks in it."""
    return [block, *(each for child in children(block) for each in tree(child))]


def own_parameters(block: Any) -> dict[str, Any]:
    """Returns the parameters that a block passes to its `hybrid_forward`, by the names of its arguments."""
    return block._reg_params


def parameters(block: Any) -> dict[str, Any]:
    """Returns all parameters of a block and its children, by name: `collect_params` without its search for stray
    blocks, which takes longer than a trace of the net."""
    by_name = dict(block.params.items())
    for child in children(block):
        by_name.update(parameters(child))
    return by_name


def forward_function(block: Any) -> Callable[..., Any]:
    """Returns the function of (F, arrays) that a block runs: the user's function of a `HybridLambda`."""
    return block._func if isinstance(block, mx.gluon.nn.HybridLambda) else block.hybrid_forward


def is_initialized(parameter: Any) -> bool:
    """Returns whether a parameter has its values."""
    return parameter._data is not None


def is_deferred(parameter: Any) -> bool:
    """Returns whether the initialization of a parameter is deferred."""
    return bool(parameter._deferred_init)


def is_on_cpu(parameter: Any) -> bool:
    """Returns whether a parameter has its values on the CPU, or will get them there."""
    return bool(is_initialized(parameter) or is_deferred(parameter)) and parameter.list_ctx()[0].device_type == "cpu"


def check_initialized(parameter: Any) -> None:
    """Raises Gluon's `RuntimeError` for a parameter that `initialize` was not called for."""
    if not is_initialized(parameter) and not is_deferred(parameter):
        raise RuntimeError(f"parameter {parameter.name!r} has not been initialized; call net.initialize() first")


def initialize_deferred(parameter: Any, shape: tuple) -> None:
    """Gives a deferred parameter its shape and its values."""
    parameter.shape = shape
    parameter._finish_deferred_init()


class LazyGradParameter(mx.gluon.Parameter):
    """A parameter that allocates its gradient when it is first asked for, or when an operator on the parameter
    is recorded. Otherwise it behaves like any other."""

    _late_grad: Optional[list[Any]] = None
    _LOCK = threading.RLock()  # otherwise two threads would each make a gradient, and one would be lost

    @property
    def _grad(self) -> Optional[list[Any]]:
        with self._LOCK:
            if self._late_grad is None and self._data is not None and self.grad_req != "null":
                with mx.autograd.pause():
                    super()._init_grad()
            return self._late_grad

    @_grad.setter
    def _grad(self, arrays: Optional[list[Any]]) -> None:
        self._late_grad = arrays

    def _init_grad(self) -> None:
        self._late_grad = None

    def _check_and_get(self, arr_list: Any, ctx: Any) -> Any:
        if arr_list is self._data and mx.autograd.is_recording():
            self._grad  # noqa: B018 - now the array is one that gradients are computed for
        return super()._check_and_get(arr_list, ctx)


def initialize_with(parameter: Any, array: Any) -> None:
    """Sets an array as the data of a parameter without copying it, and allocates its gradient lazily."""
    parameter.__class__ = LazyGradParameter
    parameter.shape = array.shape
    parameter._init_impl(array[:1], [array.context])
    parameter._data = [array]


def use_global_stats(batch_norm: Any, value: bool) -> None:
    """Makes a batch norm use its moving statistics in training, too, or not."""
    batch_norm._kwargs["use_global_stats"] = value


def layout_of(layer: Any) -> str:
    """Returns the layout of a layer with windows."""
    return str(layer._kwargs["layout"])


def drop_children(block: Any) -> None:
    """Removes all children of a block."""
    block._children.clear()


def attach_op_hook(block: Any, operator: Any) -> None:
    """Makes a CachedOp call the hook that was registered with the block's `register_op_hook`."""
    operator._register_op_hook(block._callback, block._monitor_all)


def is_hybridized(block: Any) -> bool:
    """Returns whether a block runs as a graph."""
    return bool(block._active)


def graph_inputs(block: Any) -> Sequence[Any]:
    """Returns the inputs of the graph of a block that was hybridized and called, and of a SymbolBlock."""
    return block._cached_graph[0]


@contextlib.contextmanager
def imperative(net: Any) -> Iterator[None]:
    """Makes a net, and all blocks in it, run imperatively within the `with` block."""
    blocks = dict.fromkeys(tree(net))
    kept = [(block, block._active, overridden_forward(block)) for block in blocks]
    for block in blocks:
        override_forward(block, None)
        block._active = False
    try:
        yield
    finally:
        for block, active, forward in kept:
            block._active = active
            override_forward(block, forward)


def override_forward(block: Any, call: Any) -> None:
    """Overrides a block's `forward` with `call`; None restores that of its class."""
    if call is None:
        vars(block).pop("forward", None)
    else:
        block.forward = call


def overridden_forward(block: Any) -> Any:
    """Returns what a hybridized block calls, if :func:`override_forward` was given it; else None."""
    return vars(block).get("forward") if block._active else None


def caller_of(call: Any) -> Any:
    """Returns the block whose call has called this, within it: a shallow copy of a block has the `forward` that was
    given to the block. None if it was called otherwise."""
    # No variable has a frame: such a cycle would keep the outputs of the call until a collection.
    caller = sys._getframe(2).f_locals.get("self")
    return caller if isinstance(caller, mx.gluon.Block) and vars(caller).get("forward") is call else None


def flags(block: Any) -> list:
    """Returns the flags of the last `hybridize`: a new list each time."""
    return block._flags


def cache_and_hook(block: Any) -> tuple:
    """Returns what Gluon drops as soon as the block has another child, type or flag, a CachedOp of its own or what
    :func:`set_cache` was given, None without either; and the hook of `register_op_hook`."""
    return block._cached_op, block._callback


def set_cache(block: Any, cache: Any) -> None:
    """Stores `cache` in `_cached_op`, which Gluon clears when the block changes."""
    block._cached_op = cache


class GraphParameter(NamedTuple):
    """A parameter as an argument of a block's graph."""

    is_input: bool
    parameter: Any

    @property
    def name(self) -> str:
        """The parameter's name, which `SymbolBlock.reset_ctx` asks for."""
        return str(self.parameter.name)


class GraphParameters:
    """A lazy view of the graph's parameters: read when iterated, so that an exported file has the
    parameters of its own graph."""

    def __init__(self, block: Any):
        self.block = block

    def __iter__(self) -> Iterator[GraphParameter]:
        by_name = parameters(self.block)
        names = self.block._cached_graph[1].list_inputs()
        return (GraphParameter(False, by_name[name]) for name in names if name in by_name)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True


def keep_graph_for_tools(block: Any, graph: Any, structures: tuple) -> None:
    """Gives a block what MXNet's tools and Gluon's `export` ask for, unless it has it: a pair of inputs and Symbol, the
    parameters, and how arguments and outputs are nested, with True for each array."""
    if not block._cached_op_args:
        block._cached_op_args = GraphParameters(block)
    if not block._cached_graph:
        block._cached_graph = graph
        block._in_format, block._out_format = (_mapped(nested, {None: -1}, 0) for nested in structures)


def input_structure(block: Any) -> Optional[list]:
    """Returns how the arguments of the last call as a graph were nested, with True for each array; None before the
    first."""
    kept = block._in_format
    return None if kept is None else _mapped(kept if isinstance(kept, list) else [kept], {-1: None}, True)


def _mapped(nested: Any, table: dict[Any, Any], default: Any) -> Any:
    """Returns nested lists with the entries of the table."""
    if isinstance(nested, (list, tuple)):
        return [_mapped(entry, table, default) for entry in nested]
    return table.get(nested, default)


def drop_graph(block: Any) -> None:
    """Makes a block drop its graph, since it has changed."""
    block._clear_cached_op()
