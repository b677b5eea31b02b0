"""Operators that are lowered later: a net is traced once, with a variable in place of each of them.

A trace knows no sizes. What a layer is in a graph depends on them, and on what the graph is for; so while a net is
traced (`Building.placeholders`), a function with the decorator `lowered_later` gives a variable, and leaves a note of
the call. `mxsame.graphs.tracing.Trace.lowered` makes the call, with data whose shape is known, as often as it is asked.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, NamedTuple, Sequence

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.building import current

__all__ = ["Placeholder", "lowered_later"]


class Placeholder(NamedTuple):
    """A variable in place of what a function gives."""

    variable: Any
    function: Callable
    args: tuple
    kwargs: dict

    @property
    def symbols(self) -> list[Any]:
        """The Symbols that the function is given, its data first."""
        return [each for each in (*self.args, *self.kwargs.values()) if isinstance(each, mx.sym.Symbol)]

    def output_shape(self, shape: tuple) -> Any:
        """The shape of what the function gives for data of this shape."""
        data, *others = self.symbols
        return tensors.known_shape(self.lowered([mx.sym.var(data.name, shape=shape), *others]))

    def lowered(self, symbols: Sequence[Any]) -> Any:
        """What the function gives for other Symbols in place of these."""
        others = iter(symbols)

        def other(value: Any) -> Any:
            return tensors.of_kind(next(others), value) if isinstance(value, mx.sym.Symbol) else value

        args = tuple(map(other, self.args))
        return self.function(*args, **{name: other(value) for name, value in self.kwargs.items()})


def lowered_later(function: Callable) -> Callable:
    """The function; while a net is traced, a variable for what it gives. The body of a loop or of a branch is a graph
    of its own, and what is in it is lowered at once, for any size."""

    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        placeholders = current().placeholders
        if placeholders is None:
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        args, kwargs = bound.args, bound.kwargs  # in the function's order, its data first
        data = next((each for each in args if isinstance(each, mx.sym.Symbol)), None)
        if data is None:
            return function(*args, **kwargs)
        variable = mx.sym.var(f"mxsame_placeholder{len(placeholders)}")
        if variable.attr("__subgraph_name__"):
            return function(*args, **kwargs)
        placeholders.append(Placeholder(variable, function, args, kwargs))
        return tensors.of_kind(variable, data)

    return wrapper
