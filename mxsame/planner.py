"""Which exact plan is chosen: the public names of `mxsame.plan.choice`."""

from mxsame.plan.choice import Decision, candidates, choose, estimate
from mxsame.plan.costs import COSTS, Costs, Workload

__all__ = ["COSTS", "Costs", "Decision", "Workload", "candidates", "choose", "estimate"]
