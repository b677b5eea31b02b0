"""Estimate the time of each exact plan, and choose the fastest.

The functions here check their arguments, and `mxsame.plan.choice` chooses.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from mxsame import validation
from mxsame.plan import checked_allowed, checked_windows, choice
from mxsame.plan.choice import PlannedOperator
from mxsame.plan.costs import CostLayer, Workload
from mxsame.plan.cpu_costs import COSTS, Costs
from mxsame.plan.exact import narrowed, recorded
from mxsame.plan.gpu_costs import GPU_COSTS, GpuCosts
from mxsame.plan.recipe import Plan
from mxsame.plan.windows import AnyWindow, Windows

__all__ = [
    "COSTS",
    "GPU_COSTS",
    "Costs",
    "GpuCosts",
    "PlannedOperator",
    "Workload",
    "candidates",
    "estimate",
    "fastest_plan",
]


@validation.check_arguments
def fastest_plan(
    windows: Sequence[AnyWindow],
    work: Workload,
    allowed: Optional[Sequence[str]] = None,
    for_both_purposes: bool = True,
) -> Plan:
    """Return the exact plan of the `allowed` strategies with the lowest estimated cost. If `for_both_purposes`, a graph
    of dynamic shape gets the plan with the smallest product of the inference and the training estimate.

    Raises `ValueError` if there is none.

    >>> from mxsame.plan import AxisPlan, Window
    >>> windows = [Window(224, 3, 2), Window(224, 3, 2)]
    >>> fastest_plan(windows, Workload("conv", 8, 3, 32, plain=True)).axes[0] == AxisPlan(3, concat=(0, 1))
    True
    >>> fastest_plan(windows, Workload("conv", 8, 128, 128)).axes[0] == AxisPlan(3, pad=2, crop=(1, 0))
    True
    """
    windows, allowed = _checked(windows, work), narrowed(checked_allowed(allowed, work.operator))
    for_both_purposes = validation.flag("for_both_purposes", for_both_purposes)
    return recorded(choice.fastest_plan(windows, work, allowed, for_both_purposes), work.operator)


@validation.check_arguments
def candidates(
    windows: Sequence[AnyWindow], work: Workload, allowed: Optional[Sequence[str]] = None
) -> Dict[str, Plan]:
    """Return the exact plans that the planner compares by cost; all exact plans if that leaves none.

    >>> from mxsame.plan import TransposedWindow
    >>> list(candidates((TransposedWindow(8, 3, 2, 1, (0, 1)),), Workload("transposed")))
    ['slice', 'kernel']
    """
    return choice.candidates(_checked(windows, work), work, checked_allowed(allowed, work.operator))


@validation.check_arguments
def estimate(plan: Plan, windows: Sequence[AnyWindow], work: Workload) -> float:
    """Estimate how many nanoseconds an operator takes with this plan on its device. Only for comparing plans for the
    same windows.

    >>> from mxsame.plan import AxisPlan, Window
    >>> windows = [Window(56, 3, 2), Window(56, 3, 2)]
    >>> sliced, extended = AxisPlan(3, pad=2, crop=(1, 0)), AxisPlan(4, kernel_zeros=(1, 0), pad=1)
    >>> sliced, extended = Plan((sliced, sliced)), Plan((extended, extended))
    >>> deep, depthwise = Workload("conv", 8, 128, 128), Workload("conv", 8, 128, 128, groups=128)
    >>> estimate(sliced, windows, deep) < estimate(extended, windows, deep)
    True
    >>> estimate(sliced, windows, depthwise) < estimate(extended, windows, depthwise)
    False
    """
    windows = _checked(windows, work)
    validation.check_type(isinstance(plan, Plan), "plan must be a mxsame.plan.Plan", plan=plan)
    counts = {"plan.axes": len(plan.axes), "windows": len(windows)}
    validation.check(len({*counts.values()}) == 1, "plan must have one axis for each of the windows", **counts)
    return choice.ESTIMATES[work.device](plan, CostLayer(windows, work))


def _checked(windows: Any, work: Any) -> Windows:
    """Returns the windows as a tuple. Raises a `TypeError` unless they are windows, and `work` is a workload."""
    validation.check_type(isinstance(work, Workload), "work must be a mxsame.planner.Workload", work=work)
    return checked_windows(windows, work.operator)


choose, Decision = fastest_plan, PlannedOperator  # their names before, for scripts that measure older checkouts, too
