"""Chooses the exact plan with the lowest estimated cost.

The estimates are in :mod:`mxsame.plan.cpu_costs` and :mod:`mxsame.plan.gpu_costs`. A graph of dynamic shape serves
both inference and training, so it gets the plan with the smallest product of the two estimates.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from mxsame.plan import cpu_costs, gpu_costs
from mxsame.plan.costs import CostLayer, Workload
from mxsame.plan.exact import exact_plans, no_exact_plan, with_padded_data
from mxsame.plan.recipe import Plan
from mxsame.plan.strategies import POOLS, STRATEGIES
from mxsame.plan.windows import Windows, check_static

NAN_PENALTY = 1.1  # multiplies the cost of a max pooling plan that turns infinities into NaN
ESTIMATES: Dict[str, Callable[[Plan, CostLayer], float]] = {"cpu": cpu_costs.estimate, "gpu": gpu_costs.estimate}
MIN_POOLED_CHANNELS = 4  # the fewest channels for which oneDNN has a fast pooling kernel


class PlannedOperator(NamedTuple):
    """An operator of a graph, and the plan chosen for it.

    `plan_for` chooses again for another input shape, and returns everything that the operator's subgraph depends on:
    the plan and the channels.

    >>> from mxsame.plan import AxisPlan, Window
    >>> windows, work, allowed = (Window(8, 3, 2),), Workload("conv", 8, 3, 32), ("native", "slice")
    >>> planned = PlannedOperator(windows, work, allowed, fastest_plan(windows, work, allowed))
    >>> planned.plan_for((1, 3, 7)) == (Plan((AxisPlan(3, pad=1),)), 3)
    True
    """

    windows: Windows
    work: Workload
    allowed: Tuple[str, ...]  # strategies that data of static shape may use
    plan: Plan
    channels_last: bool = False  # of the data

    @property
    def depends_on_size(self) -> bool:
        """Whether the plan can differ between input sizes, or the operator rejects some sizes.

        False only for a stride-1 convolution that uses MXNet's own padding: it has one plan, and MXNet itself rejects
        data that is too short.
        """
        if self.work.operator != "conv" or any(window.stride > 1 for window in self.windows):
            return True
        return list(exact_plans(self.windows, "conv", self.allowed)) != ["native"]

    def output_shape(self, shape: Sequence[int]) -> Tuple[int, ...]:
        """Returns the shape of the output for data of this shape.

        >>> from mxsame.plan import Window
        >>> PlannedOperator((Window(8, 3, 2),), Workload("conv", 8, 3, 32), (), None).output_shape((1, 3, 7))
        (1, 32, 4)
        """
        batch, *size = shape
        in_channels = size.pop(-1 if self.channels_last else 0)
        channels = self.work.channels or in_channels
        outputs = [window.outputs(length) for window, length in zip(self.windows, size)]
        return (batch, *outputs, channels) if self.channels_last else (batch, channels, *outputs)

    def plan_for(self, shape: Sequence[int]) -> Tuple[Plan, int]:
        """Returns the plan and the channels for data of this shape.

        Raises `ValueError` for a shape that the operator does not support.
        """
        batch, *size = shape
        channels = size.pop(-1 if self.channels_last else 0)
        windows = tuple(replace(window, size=length) for window, length in zip(self.windows, size))
        check_static(windows, self.work.operator in POOLS)
        work = replace(self.work, batch=batch, in_channels=channels)
        return fastest_plan(windows, work, self.allowed), channels


def fastest_plan(windows: Windows, work: Workload, allowed: Tuple[str, ...], for_both_purposes: bool = True) -> Plan:
    """Returns the exact plan of the `allowed` strategies with the lowest estimated cost. If `for_both_purposes`, a
    graph of dynamic shape gets the plan with the smallest product of the inference and the training estimate.

    Raises `ValueError` if there is none.
    """
    for_both_purposes = for_both_purposes and None in [window.size for window in windows]
    return with_padded_data(_estimated_fastest(windows, work, allowed, for_both_purposes), windows, work)


def candidates(windows: Windows, work: Workload, allowed: Tuple[str, ...]) -> Dict[str, Plan]:
    """Returns the exact plans, by strategy, whose costs are compared, or all exact plans if none qualifies."""
    plans = exact_plans(windows, work.operator, allowed)
    is_static = all(window.size is not None for window in windows)

    def is_candidate(name: str, plan: Plan) -> bool:
        strategy = STRATEGIES[name]
        fits = work.device in strategy.candidate_on and (strategy.channels_last or not work.channels_last)
        is_slow = any(axis.gather for axis in plan.axes) or _makes_nan(plan, work)
        return fits and not (is_static and is_slow)

    chosen = {name: plan for name, plan in plans.items() if is_candidate(name, plan)} or dict(plans)
    return {name: with_paired_channels(plan, work) for name, plan in chosen.items()} if work.pairs_channels else chosen


def _makes_nan(plan: Plan, work: Workload) -> bool:
    """Returns whether the plan selects outputs by multiplying the others by zero, which turns an infinite maximum into
    NaN."""
    return work.operator == "max" and any(axis.pick for axis in plan.axes)


@functools.lru_cache(maxsize=4096)
def _estimated_fastest(windows: Windows, work: Workload, allowed: Tuple[str, ...], for_both_purposes: bool) -> Plan:
    """Returns the candidate with the smallest estimate, or the smallest product of estimates if it must serve several
    workloads."""
    plans = candidates(windows, work, allowed)
    if not plans:
        raise no_exact_plan(windows, work.operator, allowed)
    if len(plans) == 1:
        return next(iter(plans.values()))
    layers = [CostLayer(windows, each) for each in _workloads(windows, work, for_both_purposes)]

    def cost(name: str) -> float:
        penalty = NAN_PENALTY if _makes_nan(plans[name], work) else 1
        channels_last_name = _measured_with_channels_last(name, plans) if work.channels_last is None else name
        layer_plans = [plans[channels_last_name if layer.work.channels_last else name] for layer in layers]
        return math.prod([ESTIMATES[work.device](plan, layer) * penalty for plan, layer in zip(layer_plans, layers)])

    return plans[min(plans, key=cost)]


def _workloads(windows: Windows, work: Workload, for_both_purposes: bool) -> List[Workload]:
    """Returns the workloads that one plan must serve: both purposes if `for_both_purposes`, and both layouts if the
    layout is unknown and both were measured (ungrouped 2-D operators of static shape on a GPU, in inference)."""
    works = [work, replace(work, purpose="training")] if for_both_purposes else [work]
    needs_both_layouts = work.device == "gpu" and work.channels_last is None and work.purpose != "training"
    if needs_both_layouts and len(windows) == 2 and work.groups == 1 and all(window.size for window in windows):
        return [replace(each, channels_last=last) for each in works for last in (False, True)]
    return works


def _measured_with_channels_last(name: str, plans: Mapping[str, Plan]) -> str:
    """Returns the strategy if it was measured with channels last, otherwise the first one that was."""
    return next((each for each in (name, *plans) if each in gpu_costs.MEASURED_CHANNELS_LAST), name)


# -- pooling: the layout in which oneDNN has fast code


def with_paired_channels(plan: Plan, work: Workload) -> Plan:
    """Returns the plan, with `pairs_channels` set where pooling is faster with channels in pairs.

    In pairs, (N, C, W) becomes (N, C/2, 2, W), images of two rows. For data in the plain layout, oneDNN's fast kernel
    needs AVX-512, two spatial axes, both longer than 1, and four channels; other data takes 2 to 8 times as long.
    Networks of 1-D convolutions, batch norms and pooling layers take 0.57 to 0.84 of the time, in inference and in
    training.

    >>> from mxsame.plan import AxisPlan
    >>> plan, work = Plan((AxisPlan(2),)), Workload("max", in_channels=64, pairs_channels=True)
    >>> with_paired_channels(plan, work).pairs_channels
    True
    >>> with_paired_channels(plan, replace(work, in_channels=63)).pairs_channels
    False
    """
    channels = work.in_channels
    if not work.pairs_channels or channels is None or channels % 2 or channels < 2 * MIN_POOLED_CHANNELS:
        return plan
    in_blocks = work.in_blocks and not any(step.needs_plain_layout for step in plan.steps)
    return plan if in_blocks else replace(plan, pairs_channels=True)
