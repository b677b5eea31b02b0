"""Which exact plan is chosen: the public names of `mxsame.plan.choice`."""

from mxsame.plan.choice import Decision, candidates, choose, estimate
from mxsame.plan.costs import COSTS, Costs, Workload
from mxsame.plan.gpu_costs import GPU_COSTS, GpuCosts

__all__ = ["COSTS", "GPU_COSTS", "Costs", "Decision", "GpuCosts", "Workload", "candidates", "choose", "estimate"]
