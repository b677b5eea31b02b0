"""Which exact plan is chosen: the public names of `mxsame.plan.choice`."""

from mxsame.plan.choice import PlannedOperator, candidates, estimate, fastest_plan
from mxsame.plan.costs import Workload
from mxsame.plan.cpu_costs import COSTS, Costs
from mxsame.plan.gpu_costs import GPU_COSTS, GpuCosts

choose, Decision = fastest_plan, PlannedOperator  # their names before, for scripts that measure older checkouts, too

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
