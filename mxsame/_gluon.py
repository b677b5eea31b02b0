"""The private names of Gluon that mxsame uses; no other file of the package uses one.

Gluon has no public way to get a block's children, to see whether it is hybridized or has changed, or to initialize a
deferred parameter. MXNet 1.9.1 is the last release; `tests/test_gluon.py` fails if one of the names is gone.
"""

from __future__ import annotations

import threading
from typing import Any, Optional, Sequence

from mxsame._mxnet import mx


def children(block: Any) -> list[Any]:
    """Returns the child blocks of a block."""
    return list(block._children.values())


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


def is_initialized(parameter: Any) -> bool:
    """Returns whether a parameter has its values."""
    return parameter._data is not None


def is_deferred(parameter: Any) -> bool:
    """Returns whether a parameter gets its values as soon as its shape is known."""
    return bool(parameter._deferred_init)


def initialize_deferred(parameter: Any, shape: tuple) -> None:
    """Gives a deferred parameter its shape and its values."""
    parameter.shape = shape
    parameter._finish_deferred_init()


class LateGradient(mx.gluon.Parameter):
    """A parameter that allocates its gradient when it is first asked for, or when an operator that takes the parameter
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
    """Makes an array the data of a parameter, without the copies that Gluon makes, and its gradient a late one."""
    parameter.__class__ = LateGradient
    parameter.shape = array.shape
    parameter._init_impl(array[:1], [array.context])
    parameter._data = [array]


def attach_op_hook(block: Any, operator: Any) -> None:
    """Makes a CachedOp call the hook that was registered with the block's `register_op_hook`."""
    if block._callback:
        operator._register_op_hook(block._callback, block._monitor_all)


def is_hybridized(block: Any) -> bool:
    """Returns whether a block runs as a graph."""
    return bool(block._active)


def graph_inputs(block: Any) -> Sequence[Any]:
    """Returns the inputs of the graph of a block that was hybridized and called, and of a SymbolBlock."""
    return block._cached_graph[0]


def show_graph(block: Any, graph: Any, structure: Any) -> None:
    """Gives a block this pair of inputs and Symbol as its graph, unless it has one, for MXNet's tools that ask for it;
    and how the block was called."""
    if not block._cached_graph:
        block._cached_graph, block._in_format = graph, _mapped(structure, {None: -1}, 0)


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


class NotifiesChanges(mx.gluon.HybridBlock):
    """A block whose method `changed` is called when it gets another child, type or flag."""

    def changed(self) -> None:
        """Reacts to the change."""
        raise NotImplementedError

    def _clear_cached_op(self) -> None:
        super()._clear_cached_op()
        self.changed()
