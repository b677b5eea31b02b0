"""How MXNet can run an operator of a given geometry. Nothing here imports MXNet: code that runs a plan passes `F`,
which is `mx.nd` or `mx.sym`.

`make_windows` makes a window for each axis; `STRATEGIES` is the table of ways to run windows; `exact_plans` gives the
exact ones. `mxsame.planner` chooses among them.
"""

from mxsame.plan.axis_plan import AxisPlan
from mxsame.plan.exact import current_strategy, exact_plans, first_plan, strategies_for, use_strategy
from mxsame.plan.recipe import Plan
from mxsame.plan.strategies import OPERATORS, POOLS, STRATEGIES, Strategy
from mxsame.plan.windows import TransposedWindow, Window, make_transposed_windows, make_windows

force = use_strategy  # its name before, for scripts that measure older checkouts, too

__all__ = [
    "OPERATORS",
    "POOLS",
    "STRATEGIES",
    "AxisPlan",
    "Plan",
    "Strategy",
    "TransposedWindow",
    "Window",
    "current_strategy",
    "exact_plans",
    "first_plan",
    "make_transposed_windows",
    "make_windows",
    "strategies_for",
    "use_strategy",
]
