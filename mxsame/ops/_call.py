"""From a call to MXNet's operator: checked and planned once for all arrays alike, then run.

A call is a record of its arguments. Its `request` are these arguments, checked against each other and against the
arrays; `strategies` are the possible ways to run it, and `operator` is MXNet's operator by the plan that is chosen.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame import operands
from mxsame._mxnet import mx
from mxsame.ops._operator import Operator
from mxsame.ops._request import Request
from mxsame.plan import STRATEGIES, Plan, Window, choice, first_plan, forced, strategies_for
from mxsame.plan.choice import Decision
from mxsame.plan.strategies import CHANNELS, WEIGHT
from mxsame.plan.windows import Windows, serialize_windows
from mxsame.target import deferred_in_trace, record

_is_training, _is_recording = mx.autograd.is_training, mx.autograd.is_recording
_OPERATORS: Dict[Any, Operator] = {}  # by all that they follow from
MOST_OPERATORS = 4096
_PLAIN, _INTEGERS, _DENSE = {int, str, type(None)}, {int}, operands.DENSE


def run(call: Any, **named: Any) -> Any:
    """What a call gives for its arrays, the data first and a bias last, in the kind in which they came. A second call
    with the same arguments and arrays of the same shapes costs a look-up."""
    arrays = tuple(named.values())
    key = _key(call, arrays)
    operator = _OPERATORS.get(key)
    if operator is not None:
        if type(arrays[0]) is mx.nd.NDArray:
            return operator(mx.nd, *arrays)
        return operator(mx.nd, *operands.as_classic(arrays)).as_np_ndarray()
    return _first(key, call, **named)


@deferred_in_trace
def _first(key: Any, call: Any, **named: Any) -> Any:
    """The first such call."""
    request = call.request(operands.classic(**named))
    operator, args = lowered(request), request.args  # whose data refuses another size than it was given
    if key is not None:
        if len(_OPERATORS) >= MOST_OPERATORS:
            _OPERATORS.clear()
        _OPERATORS[key] = operator
    return args.restore(operator(args.F, *args.arrays))


def _key(call: Any, arrays: Sequence[Any]) -> Any:
    """All that an operator on arrays follows from, the errors that they may raise included; None for anything but
    dense arrays, and if an argument may change."""
    facts: List[Any] = [type(call), _is_training(), _is_recording(), forced()]
    for array in arrays:
        if type(array) in _DENSE:
            context = array.ctx
            facts += type(array), array.shape, array.dtype, context.device_typeid, context.device_id
        elif array is None:
            facts.append(None)
        else:
            return None
    try:
        return (call if _PLAIN.issuperset(map(type, call)) else tuple(map(_exact, call)), *facts)
    except TypeError:
        return None


def _exact(value: Any) -> Any:
    """An argument as a part of a key: True and 1.0 are not 1, in a sequence either."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return (kind, *value) if set(map(type, value)) == _INTEGERS else (kind, *map(_exact, value))
    if kind is bool or isinstance(value, np.generic):
        return kind, value
    raise TypeError(f"an argument that may change: {kind}")


def lowered(request: Request) -> Operator:
    """The operator that runs a request, or stands for it in a graph that is written in another format."""
    if request.target.purpose == "format":
        return _for_another_format(request)
    static, allowed = strategies(request)
    windows, work = request.windows, request.work
    plan = choice.choose(windows, work, allowed, request.target.is_for_both)
    if request.in_graph:
        record(Decision(windows, work, static, plan, request.channels_last))
    return request.operator(plan)


def strategies(request: Request) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The strategies that are possible for data of static shape, and for the data as it is."""
    known: Set[Optional[str]] = {None}
    if request.weight_shape is not None:
        known.add(WEIGHT)
    operator, refused = request.work.operator, request.refused
    static = _buildable(operator, frozenset(known | {CHANNELS}), refused)  # a shape has channels
    allowed = static if request.work.in_channels is not None else _buildable(operator, frozenset(known), refused)
    if request.native_last:
        static = tuple(name for name in static if STRATEGIES[name].channels_last)
    return static, static if request.runs_last else allowed


@functools.lru_cache(maxsize=None)
def _buildable(operator: str, known: FrozenSet[Optional[str]], refused: Tuple[str, ...]) -> Tuple[str, ...]:
    """The strategies whose graphs can be built with what is known."""
    names = strategies_for(operator)
    return tuple(name for name in names if name not in refused and STRATEGIES[name].needs in known)


def _for_another_format(request: Request) -> Operator:
    """Nothing runs: each operator is one node. Windows that its own attributes do not show for every size are in the
    attribute `NOTE`, which the nodes around it have as well: these only give data and output the right shape."""
    plan = first_plan(request.windows, request.work.operator, request.noted_strategies)
    note = None if _shows_windows(plan, request.windows) else serialize_windows(request.windows)
    return request.operator(plan, note)


def _shows_windows(plan: Plan, windows: Windows) -> bool:
    """Whether the operator's own attributes are the windows. Those of a convolution of dilated data are; MXNet's
    Deconvolution is not right for all of its own."""
    own = (
        isinstance(window, Window)
        and (window.kernel_size, window.padding, window.ceil_mode) == (axis.kernel_size, (axis.pad,) * 2, False)
        for window, axis in zip(windows, plan.axes)
    )
    return plan.dilates or (not plan.steps and all(own))
