"""The scope of operators on Symbols: their target (purpose and device), and the recorder of the net that is traced.

An operator on arrays sees their device and whether autograd records. One on Symbols sees neither, and a user's
`hybrid_forward` cannot pass them on to the operators that it calls. So code that traces a net sets the target with
:func:`building`, for a `with` block; `_SCOPE` is the only context variable of graphs, and `scope` reads it.

A net is traced once, for all sizes. The operators of a layer depend on sizes and on the target, so a function with the
decorator `deferred_in_trace` returns a variable while a net is traced, and keeps the call as a `Placeholder`.
`mxsame.graphs.tracing.Trace.lower` makes the call, once for each graph, with data of known shape.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Iterator, Literal, NamedTuple, Optional, Union, cast

from mxsame._mxnet import mx
from mxsame.validation import Function

if TYPE_CHECKING:
    from mxsame._mxnet import NDArray, Symbol

WINDOWS = "__windows__"  # attribute of an operator: the index of its windows in `Recorder.windows`

Purpose = Literal["inference", "training", "deployment", "file", "format"]
Device = Literal["cpu", "gpu"]


class Target(NamedTuple):
    """The purpose and the device of operators.

    Parameters
    ----------
    purpose : Purpose, optional
        The first three as in :class:`mxsame.planner.Workload`. "file" is inference, without the noise of training,
        but with operators that can be trained further. A graph for "format" is made to be written in another format,
        and never run: each operator is one node, with its windows if its attributes do not show them (`with_windows`).
        None if a graph may be used for anything.
    device : Device, optional
        That of MXNet's current context if None.
    gradients : bool
        Whether gradients flow although the purpose is inference (saliency maps): oneDNN's max pooling keeps nothing
        for a backward pass then.
    """

    purpose: Optional[Purpose] = None
    device: Optional[Device] = None
    gradients: bool = False

    @property
    def has_gradients(self) -> bool:
        """Whether a backward pass may follow."""
        return self.gradients or self.for_both_purposes or self.purpose == "training"

    @property
    def infers_with_gradients(self) -> bool:
        """Whether gradients are computed on the CPU without training, as for a saliency map."""
        return self.gradients and self.purpose == "inference" and self.device != "gpu"

    @property
    def for_both_purposes(self) -> bool:
        """Whether a graph serves inference and training; it is planned for inference."""
        return self.purpose in (None, "file")

    @property
    def planning_purpose(self) -> Purpose:
        """The purpose that plans are chosen for: where gradients flow, training."""
        if self.gradients:
            return "training"
        return self.purpose if self.purpose in ("training", "deployment") else "inference"

    @property
    def device_or_current(self) -> Device:
        """The device, MXNet's current one if it is not known."""
        return self.device or ("gpu" if mx.context.current_context().device_type == "gpu" else "cpu")


class BlockCall(NamedTuple):
    """A call of a block on Symbols: the block, its inputs and its outputs."""

    block: Any
    inputs: Sequence[Any]
    outputs: Sequence[Any]


class VariableFacts(NamedTuple):
    """Facts about the output that a variable replaces: whether a layer computed it, and whether it is in
    oneDNN's blocks."""

    is_computed: bool = False
    is_in_blocks: bool = False


ANY = Target()
FORMAT = Target("format", "cpu")


@dataclass
class Recorder:
    """What operators on Symbols record while a net is traced, and while the trace is lowered.

    Parameters
    ----------
    is_tracing : bool
        Whether the net is traced. Each graph that is lowered from the trace is built with `for_lowering`.
    placeholders : list of Placeholder
        The calls that are made when the trace is lowered.
    calls : list of BlockCall
        The calls of blocks that a writer may write as a whole.
    windows : list
        Windows of operators in a graph for another format, which the attributes do not describe; see `with_windows`.
    planned : list of mxsame.planner.PlannedOperator
        The operators, with their plans.
    facts : dict
        The facts about variables, by name.
    """

    is_tracing: bool = True
    placeholders: list[Placeholder] = field(default_factory=list)
    calls: list[BlockCall] = field(default_factory=list)
    windows: list[tuple[Any, ...]] = field(default_factory=list)
    planned: list[Any] = field(default_factory=list)
    facts: dict[str, VariableFacts] = field(default_factory=dict)

    def for_lowering(self) -> Recorder:
        """Returns the recorder of a graph that is lowered from the trace. It shares the trace's list of windows,
        since operators in the bodies of loops were recorded in that."""
        return Recorder(False, windows=self.windows)


class Scope(NamedTuple):
    """The target of operators on Symbols, and the recorder of the net that is traced or lowered, if there is one. With
    `is_only_graph`, a graph of dynamic shape is the net's only one: no other serves the sizes that it refuses."""

    target: Target = ANY
    recorder: Optional[Recorder] = None
    is_only_graph: bool = False


_SCOPE: contextvars.ContextVar[Scope] = contextvars.ContextVar("mxsame_scope", default=Scope())  # noqa: B039 - a tuple


def scope() -> Scope:
    """Returns the current scope.

    >>> scope().target.purpose is None
    True
    """
    return _SCOPE.get()


@contextlib.contextmanager
def building(target: Target, recorder: Optional[Recorder] = None, is_only_graph: bool = False) -> Iterator[None]:
    """Sets the scope of operators on Symbols for the `with` block, in this thread.

    >>> with building(Target("training")):
    ...     scope().target.purpose
    'training'
    """
    token = _SCOPE.set(Scope(target, recorder, is_only_graph or target.purpose == "file"))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def target_of(data: Union[NDArray, Symbol]) -> Target:
    """Returns the target of an array, which depends on autograd's current state, or of a Symbol."""
    if not isinstance(data, mx.nd.NDArray):
        return scope().target
    purpose: Purpose = "training" if mx.autograd.is_training() else "inference"
    return Target(purpose, "gpu" if data.ctx.device_type == "gpu" else "cpu", mx.autograd.is_recording())


def with_windows(windows: Optional[tuple[Any, ...]]) -> ContextManager[Any]:
    """Returns a context in which operators on Symbols get these windows, unless they are None or the graph is not made
    for another format. A Symbol's attributes are strings, so the attribute is an index into `Recorder.windows`;
    `Graph.of` makes it `Node.windows`."""
    target, recorder, _ = _SCOPE.get()
    if windows is None or recorder is None or target.purpose != "format":
        return contextlib.nullcontext()
    recorder.windows.append(windows)
    return cast(ContextManager[Any], mx.AttrScope(**{WINDOWS: str(len(recorder.windows) - 1)}))


def record_call(block: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Records a call of a block if a net is traced to be written in another format, unless it is inside a loop."""
    target, recorder, _ = _SCOPE.get()
    if target.purpose == "format" and recorder is not None and not is_in_subgraph():
        recorder.calls.append(BlockCall(block, inputs, outputs))


def is_in_subgraph() -> bool:
    """Returns whether operators on Symbols become a part of the body of a loop or of a branch, a graph of its own."""
    return mx.sym.var("any").attr("__subgraph_name__") is not None


def as_kind(symbol: Symbol, other: Symbol) -> Symbol:
    """Returns the Symbol, as an mx.np one if the other is one."""
    return symbol.as_np_ndarray() if isinstance(other, mx.sym.numpy._Symbol) else symbol


class Placeholder(NamedTuple):
    """A variable that replaces the output of a function, and the call of the function."""

    variable: Any
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def symbols(self) -> list[Symbol]:
        """The Symbols among the arguments, the data first."""
        return [each for each in (*self.args, *self.kwargs.values()) if isinstance(each, mx.sym.Symbol)]

    def lower(self, symbols: Sequence[Symbol]) -> Symbol:
        """Calls the function with other Symbols instead of these, and returns its output."""
        others = iter(symbols)

        def substitute(value: Any) -> Any:
            return as_kind(next(others), value) if isinstance(value, mx.sym.Symbol) else value

        args = tuple(map(substitute, self.args))
        return self.function(*args, **{name: substitute(value) for name, value in self.kwargs.items()})


def deferred_in_trace(function: Function) -> Function:
    """Decorator: while a net is traced, the function returns a variable for its output. Its first Symbol is the
    data. The body of a loop or of a branch is a separate graph, whose operators are lowered at once, for any size.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = _SCOPE.get().recorder
        if recorder is None or not recorder.is_tracing:
            return function(*args, **kwargs)
        variable = mx.sym.var(f"mxsame_placeholder{len(recorder.placeholders)}")
        placeholder = Placeholder(variable, function, args, kwargs)
        if not placeholder.symbols or is_in_subgraph():
            return function(*args, **kwargs)
        recorder.placeholders.append(placeholder)
        return as_kind(variable, placeholder.symbols[0])

    return cast(Function, wrapper)
