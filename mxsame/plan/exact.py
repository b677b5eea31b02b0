"""Finds the exact plans of an operator. `use_strategy` forces one strategy."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from dataclasses import replace
from types import MappingProxyType
from typing import Iterator, List, Mapping, NamedTuple, Optional, Tuple, cast

from mxsame import validation
from mxsame.plan.axis_plan import AxisPlan
from mxsame.plan.costs import Workload
from mxsame.plan.recipe import Plan
from mxsame.plan.simulation import accepts_short_data, prove
from mxsame.plan.strategies import AVG_WITH_PADDING, POOLS, STRATEGIES
from mxsame.plan.windows import AnyWindow, Window, Windows, check_residues, describe_windows


class Planned(NamedTuple):
    """An operator that was planned in a :func:`use_strategy` block, and the strategy that it got."""

    operator: str
    strategy: str


class _Forced(NamedTuple):
    strategy: Optional[str] = None
    planned: Optional[List[Planned]] = None


_FORCED: contextvars.ContextVar[_Forced] = contextvars.ContextVar("mxsame_strategy", default=_Forced())  # noqa: B039


@functools.lru_cache(maxsize=None)
def strategies_for(operator: str) -> Tuple[str, ...]:
    """Returns the names of the strategies for an operator, in the order of the table."""
    return tuple(name for name, strategy in STRATEGIES.items() if strategy.supports(operator))


def exact_plans(windows: Windows, operator: str, allowed: Tuple[str, ...]) -> Mapping[str, Plan]:
    """Returns all exact plans by strategy; see :func:`mxsame.plan.exact_plans`."""
    check_residues(windows)
    if operator in POOLS and operator != AVG_WITH_PADDING:  # pooling operators that ignore padding
        windows = tuple(window.trimmed() for window in windows if isinstance(window, Window))
    return _plans_of_representatives(tuple(window.representative() for window in windows), operator, allowed)


@functools.lru_cache(maxsize=4096)
def _plans_of_representatives(windows: Windows, operator: str, allowed: Tuple[str, ...]) -> Mapping[str, Plan]:
    """Returns the exact plans for windows that are their own representatives."""
    rows = [_plans_of_axis(window, operator, allowed) for window in windows]
    if all("native" in row for row in rows):
        return MappingProxyType({"native": Plan(tuple(row["native"] for row in rows), strategy="native")})
    plans = {}
    for name in allowed:
        strategy = STRATEGIES[name]
        if strategy.all_axes:
            chosen = [row.get(name) for row in rows]
        elif any(name in row and "native" not in row for row in rows):
            chosen = [_plan_or_fallback(row, name) for row in rows]
        else:
            continue
        if all(chosen):
            plans[name] = Plan(tuple(cast(List[AxisPlan], chosen)), strategy.convention, strategy=name)
    accepting = [name for name, plan in plans.items() if any(map(accepts_short_data, plan.axes, windows))]
    return MappingProxyType({name: plans[name] for name in plans if name not in accepting} or plans)


@functools.lru_cache(maxsize=4096)
def _plans_of_axis(window: AnyWindow, operator: str, allowed: Tuple[str, ...]) -> Mapping[str, AxisPlan]:
    """Returns the exact plan of each strategy that has one for the window."""
    plans = ((name, STRATEGIES[name].plan(window, operator)) for name in allowed)
    return {name: plan for name, plan in plans if plan is not None}


def _plan_or_fallback(row: Mapping[str, AxisPlan], name: str) -> Optional[AxisPlan]:
    """Returns the plan of this strategy if the axis has one but no native plan, else the first plan whose strategy does
    not require all axes: "native" if `allowed` has it first."""
    if "native" in row or name not in row:
        return next((plan for other, plan in row.items() if not STRATEGIES[other].all_axes), None)
    return row[name]


def with_padded_data(plan: Plan, windows: Windows, work: Workload) -> Plan:
    """Returns the plan with the operator's own padding along the first axis moved to the pad operator, for a strided
    3-D convolution with no window entirely inside the data along that axis; otherwise returns the plan unchanged.

    For such a convolution, oneDNN accumulates the weight's gradient in uninitialized memory. In training, a graph
    of dynamic shape may get such data.
    """
    window, axis = windows[0], plan.axes[0]
    by_onednn = work.operator == "conv" and len(windows) == 3 and work.device == "cpu" and work.purpose != "deployment"
    if not by_onednn or not axis.pad or axis.operator_stride(window) == 1:
        return plan
    has_inside = work.purpose != "training" if window.size is None else _has_window_inside(axis, window, window.size)
    low, high = axis.pad_operator
    draft = replace(axis, pad=0, pad_operator=(low + axis.pad, high + axis.pad))
    padded = None if has_inside else prove(draft, window, plan.convention)
    return plan if padded is None else replace(plan, axes=(padded, *plan.axes[1:]))


def _has_window_inside(axis: AxisPlan, window: AnyWindow, size: int) -> bool:
    """Returns whether one of the operator's windows lies inside its data, or there is only one."""
    length = size + sum(axis.concat) + sum(axis.pad_operator)
    last = length - ((axis.kernel_size - 1) * window.dilation + 1)
    starts = range(-axis.pad, last + axis.pad + 1, axis.operator_stride(window))
    return len(starts) == 1 or any(0 <= start <= last for start in starts)


def first_plan(windows: Windows, operator: str, allowed: Tuple[str, ...]) -> Plan:
    """Returns the first exact plan. Raises `ValueError` if there is none."""
    plans = exact_plans(windows, operator, allowed)
    if not plans:
        raise no_exact_plan(windows, operator, allowed)
    return next(iter(plans.values()))


def no_exact_plan(windows: Windows, operator: str, allowed: Tuple[str, ...]) -> validation.InvalidValue:
    """Returns the error for windows for which no allowed strategy is exact, or the forced one is not."""
    strategy, given = current_strategy(), describe_windows(windows)
    is_forced = strategy in allowed
    if not is_forced and any(window.size is None for window in windows):
        rule = "there is no exact plan for an input of dynamic shape with this padding and stride"
        return validation.DynamicShapeError(f"{rule}; received {given}")
    exact = ", ".join(exact_plans(windows, operator, strategies_for(operator))) or "none"
    name, value = ("strategy", strategy) if is_forced else ("allowed", allowed)
    rule = f"{name} must {'be' if is_forced else 'contain'} a strategy that is exact for this layer ({exact})"
    return validation.InvalidValue(f"{rule}; received {name}={value!r}, {given}")


def current_strategy() -> Optional[str]:
    """Return the strategy of :func:`use_strategy`, or None.

    >>> with use_strategy("concat"):
    ...     current_strategy()
    'concat'
    """
    return _FORCED.get().strategy


def narrowed(allowed: Tuple[str, ...]) -> Tuple[str, ...]:
    """Returns the strategies that are allowed within the current :func:`use_strategy` block: all of them if the one in
    use is not."""
    strategy = _FORCED.get().strategy
    return tuple(name for name in allowed if name in ("native", strategy)) if strategy in allowed else allowed


def recorded(plan: Plan, operator: str) -> Plan:
    """Returns the plan, noted in the list of the current :func:`use_strategy` block."""
    planned = _FORCED.get().planned
    if planned is not None:
        planned.append(Planned(operator, plan.strategy))
    return plan


@contextlib.contextmanager
def use_strategy(strategy: Optional[str]) -> Iterator[List[Planned]]:
    """Builds graphs with this strategy within the `with` block; see :func:`mxsame.plan.use_strategy`."""
    planned: List[Planned] = []
    token = _FORCED.set(_Forced(strategy, None if strategy is None else planned))
    try:
        yield planned
    finally:
        _FORCED.reset(token)
