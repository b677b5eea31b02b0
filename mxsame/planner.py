"""Which exact plan is chosen: the public names of `mxsame.plan.choice`."""

from mxsame.plan.choice import COSTS, Costs, Decision, Work, candidates, choose, estimate

__all__ = ["COSTS", "Costs", "Decision", "Work", "candidates", "choose", "estimate"]
