"""Which of the exact plans is the fastest: an estimate of what each costs, and what was measured, which goes first.

The estimate adds up what a plan does beyond the operator itself: cells copied, by the kind of copy; multiplications
with zero taps; and a fee for every operator of the graph. Its constants are nanoseconds measured on a 2-core machine
(`python -m benchmarks costs` measures them on any other); since plans are only ranked, what matters is their ratios.

On the CPU oneDNN keeps what convolutions hand to each other in blocks of 8 or 16 channels. Whatever is no convolution,
pooling or elementwise operator has to undo the blocks first, and the next convolution has to make them again. So
copies of a network's input are cheap, and copies between layers dear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, Hashable, Optional, Sequence, Tuple

from mxsame.plan import Plan, Window, exact_plans, forced, plan_window

__all__ = ["COSTS", "Costs", "Work", "choose", "estimate"]


@dataclass(frozen=True)
class Work:
    """What an operator has to do, beyond its windows; None where that is unknown.

    operator: "conv", "max" or "avg"
    plain:    the data is an input of the graph, so it comes without blocks
    device:   "cpu" or "gpu"
    """

    operator: str
    batch: Optional[int] = None
    in_channels: Optional[int] = None
    channels: Optional[int] = None
    groups: int = 1
    plain: bool = False
    training: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class Costs:
    """Nanoseconds: per cell that is copied, per multiplication and addition, per operator."""

    join: float  # concatenate a few cells to an axis
    slice: float  # take a part
    reverse: float  # turn around
    pad: float  # MXNet's pad operator
    gather: float  # transpose, copy rows, transpose back
    shift: float  # a depthwise convolution with one tap
    shift_few: float  # the same with less channels than a block has
    divide: float  # broadcast
    unblock: float  # from oneDNN's blocks to the plain layout
    block: float  # and back
    turn_weight: float  # `reverse`, for a weight
    dense: float  # per multiplication of a convolution
    depthwise: float  # of a depthwise convolution
    pooling: float  # per cell of a pooling's window
    operator: float  # for each operator


COSTS: Dict[str, Costs] = {
    "cpu": Costs(
        join=0.45,
        slice=0.40,
        reverse=0.60,
        pad=0.95,
        gather=2.5,
        shift=0.9,
        shift_few=3.3,
        divide=1.8,
        unblock=0.9,
        block=0.9,
        turn_weight=4.0,
        dense=0.021,
        depthwise=0.10,
        pooling=0.05,
        operator=8e3,
    ),
    # Estimated, not measured: a card with 1 TB/s and 10 TFLOP/s. It has no blocks.
    "gpu": Costs(
        join=0.01,
        slice=0.01,
        reverse=0.01,
        pad=0.01,
        gather=0.04,
        shift=0.02,
        shift_few=0.02,
        divide=0.01,
        unblock=0.0,
        block=0.0,
        turn_weight=0.01,
        dense=0.0002,
        depthwise=0.002,
        pooling=0.001,
        operator=8e3,
    ),
}

BLOCK = 8  # channels, the least that oneDNN makes blocks of
TYPICAL_BATCH = 4
TYPICAL_CHANNELS = 64
TYPICAL_SIZE = {1: 4096, 2: 56, 3: 16}  # by rank
SIZE_OPERATORS = 9  # how many it takes to read a size off the data and find SAME's low


def choose(windows: Sequence[Window], allowed: Sequence[str], work: Work, **rules: bool) -> Plan:
    """The plan that was measured to be the fastest, or else is estimated to be; `rules` are those of `exact_plans`.

    >>> from mxsame.plan import CONVOLUTION
    >>> windows = [Window(224, 3, 2), Window(224, 3, 2)]
    >>> choose(windows, CONVOLUTION, Work("conv", 8, 3, 32, plain=True)).axes[0] == AxisPlan(3, join=(0, 1))
    True
    >>> choose(windows, CONVOLUTION, Work("conv", 8, 128, 128)).axes[0] == AxisPlan(3, pad=2, skip=1)
    True
    """
    if forced() is not None:
        return plan_window(windows, allowed, **rules)
    plans = exact_plans(tuple(windows), tuple(allowed), **rules)
    if len(plans) < 2:
        return plan_window(windows, allowed, **rules)
    measured = _MEASURED.get((tuple(windows), work))
    if measured in plans:
        return plans[measured]
    return min(plans.values(), key=lambda plan: estimate(plan, windows, work))


# -- the estimate


def estimate(plan: Plan, windows: Sequence[Window], work: Work) -> float:
    """Nanoseconds of an operator run by a plan; right only in comparison with another plan for the same windows.

    >>> windows = [Window(56, 3, 2), Window(56, 3, 2)]
    >>> sliced, extended = (Plan((axis, axis)) for axis in (AxisPlan(3, pad=2, skip=1), AxisPlan(4, front_taps=1, pad=1)))
    >>> deep, depthwise = Work("conv", 8, 128, 128), Work("conv", 8, 128, 128, groups=128)
    >>> estimate(sliced, windows, deep) < estimate(extended, windows, deep)
    True
    >>> estimate(sliced, windows, depthwise) < estimate(extended, windows, depthwise)
    False
    """
    costs, rank = COSTS[work.device], len(windows)
    size = [window.size or TYPICAL_SIZE[rank] for window in windows]
    outputs = [window.outputs(length) for window, length in zip(windows, size)]
    batch = work.batch or TYPICAL_BATCH
    in_channels = work.in_channels or work.channels or TYPICAL_CHANNELS
    channels = work.channels or in_channels
    inputs, results = batch * in_channels * math.prod(size), batch * channels * math.prod(outputs)
    before, few = _before(plan, costs, in_channels), in_channels < BLOCK
    total = 0.0
    if before:
        cells, operators = before
        total += cells * inputs + operators * costs.operator
        only_shifts = not any(step.gather or step.mirror or any(step.join + step.spread) for step in plan.axes)
        if not (work.plain or few or only_shifts):
            total += (costs.unblock + costs.block) * inputs
    after, operators = _after(plan, costs)
    total += after * results + operators * costs.operator
    if after and channels >= BLOCK and work.operator == "conv":
        total += costs.unblock * results
    if work.operator == "conv":
        total += _kernel(plan, windows, costs, in_channels, channels, work.groups)
    return total + _operator(plan, windows, outputs, work, costs, batch, in_channels, channels)


def _before(plan: Plan, costs: Costs, in_channels: int) -> Tuple[float, int]:
    """(nanoseconds per cell of the data, operators) of what is done to the data."""
    cells, operators = 0.0, 0
    for step in plan.axes:
        if any(step.join):
            cells, operators = cells + costs.join, operators + 3
        if step.place or step.shift or step.gather:
            operators += SIZE_OPERATORS
    if any(any(step.spread) for step in plan.axes):
        cells, operators = cells + costs.pad, operators + 1
    if any(step.mirror for step in plan.axes):
        cells, operators = cells + costs.reverse, operators + 1
    if any(step.gather for step in plan.axes):
        cells, operators = cells + costs.gather, operators + 12
    if any(step.shift for step in plan.axes):
        cells, operators = cells + (costs.shift if in_channels >= BLOCK else costs.shift_few), operators + 10
    return cells, operators


def _after(plan: Plan, costs: Costs) -> Tuple[float, int]:
    """(nanoseconds per cell of the output, operators) of what is done to the output."""
    cells, operators = 0.0, 0
    if any(step.skip or step.excess for step in plan.axes):
        cells, operators = cells + costs.slice, operators + 1
    if any(step.excess is None for step in plan.axes):
        cells, operators = cells + costs.slice, operators + 4
    if any(step.mirror for step in plan.axes):
        cells, operators = cells + costs.reverse, operators + 1
    return cells, operators


def _kernel(plan: Plan, windows: Sequence[Window], costs: Costs, in_channels: int, channels: int, groups: int) -> float:
    """Of what is done to the kernel."""
    cells = channels * in_channels // groups * math.prod(window.kernel_size for window in windows)
    total = 0.0
    for step in plan.axes:
        if step.front_taps:
            total += cells * costs.join + 3 * costs.operator
        if step.place:
            places = step.place[1] - step.place[0] + 1
            total += places * (cells * (costs.join + costs.divide) + 5 * costs.operator)
    if any(step.mirror for step in plan.axes):
        total += cells * costs.turn_weight + 2 * costs.operator
    return total


def _operator(
    plan: Plan,
    windows: Sequence[Window],
    outputs: Sequence[int],
    work: Work,
    costs: Costs,
    batch: int,
    in_channels: int,
    channels: int,
) -> float:
    """Of MXNet's operator itself, with the taps and the outputs that the plan gives it."""
    taps = math.prod(step.kernel_size for step in plan.axes)
    cells = math.prod(out + step.skip + (step.excess or 0) for out, step in zip(outputs, plan.axes))
    if work.operator != "conv":
        divided = costs.divide if work.operator == "avg" and plan.fills else 0.0
        return batch * in_channels * cells * (taps * costs.pooling + divided)
    share = max(in_channels // work.groups, 1)
    each = costs.depthwise if share == 1 and work.groups > 1 else costs.dense
    return batch * channels * cells * taps * share * each


# -- what was measured

_MEASURED: Dict[Hashable, str] = {}
