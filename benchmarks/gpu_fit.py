"""The constants of `mxsame.planner.GpuCosts`, fitted to the times that `python -m benchmarks gpu` has recorded.

What is fitted is the time of each plan compared with that of symmetric padding, whose recorded time is taken as it is:
an estimate has to be right in what a plan adds to it. The error is the mean square of logarithms of ratios.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Callable, Dict, Iterable, List, NamedTuple, Sequence

from benchmarks import gpu
from benchmarks.results import geometric_mean
from mxsame.plan import AxisPlan
from mxsame.plan.costs import CostLayer
from mxsame.plan.gpu_costs import estimate
from mxsame.plan.recipe import Plan
from mxsame.planner import GPU_COSTS, GpuCosts

FIRST_STEP, LAST_STEP = 1.5, 1.03  # factors by which a constant is changed
LEAST = 0.1  # of the baseline's time: what an estimate is at least, of which a logarithm is taken


class Point(NamedTuple):
    """A plan of a row: its time and that of symmetric padding, in nanoseconds."""

    row: dict
    strategy: str
    layer: CostLayer
    plan: Plan
    baseline: Plan
    measured: float
    symmetric: float

    def error(self, costs: GpuCosts) -> float:
        """Returns the logarithm of the estimated time compared with the measured one."""
        added = estimate(self.plan, self.layer, costs) - estimate(self.baseline, self.layer, costs)
        return math.log(max(self.symmetric + added, LEAST * self.symmetric) / self.measured)


def points(rows: Iterable[dict]) -> List[Point]:
    """Returns every timed plan of rows that MXNet's own padding does not serve."""
    found = []
    for row in rows:
        windows, work = gpu.geometry(row)
        layer, baseline = CostLayer(windows, work), Plan(tuple(AxisPlan(each.kernel_size) for each in windows))
        reference = row["figures"].get(gpu.SYMMETRIC, row["figures"][gpu.PLANNER])["median"] * 1e9
        for strategy, plan in gpu.timed_plans(row).items():
            measured = row["figures"][strategy]["median"] * 1e9
            found.append(Point(row, strategy, layer, plan, baseline, measured, reference))
    return found


def error(costs: GpuCosts, fitted: Sequence[Point]) -> float:
    """Returns the mean square of the errors."""
    return sum(point.error(costs) ** 2 for point in fitted) / len(fitted)


def fit(fitted: Sequence[Point], start: GpuCosts = GPU_COSTS) -> GpuCosts:
    """Returns the constants with the least error: each in turn gets a factor that makes it less, until a small factor
    makes it no less for any."""
    costs, least, factor = start, error(start, fitted), FIRST_STEP
    names = [each.name for each in dataclasses.fields(costs)]
    while factor > LAST_STEP:
        before = least
        for name in names:
            for change in (factor, 1 / factor):
                changed = dataclasses.replace(costs, **{name: getattr(costs, name) * change})
                if error(changed, fitted) < least:
                    costs, least = changed, error(changed, fitted)
                    break
        if least > before * (1 - 1e-4):
            factor = math.sqrt(factor)
    return costs


def losses(costs: GpuCosts, fitted: Sequence[Point]) -> Dict[str, List[float]]:
    """Returns, by mode, the time of the plan with the least estimate compared with the fastest, for each row."""
    by_row: Dict[int, List[Point]] = {}
    for point in fitted:
        by_row.setdefault(id(point.row), []).append(point)
    found: Dict[str, List[float]] = {}
    for alike in by_row.values():
        chosen = min(alike, key=lambda point: estimate(point.plan, point.layer, costs))
        fastest = min(point.measured for point in alike)
        found.setdefault(alike[0].row["mode"], []).append(chosen.measured / fastest)
    return found


LEFT_OUT: Dict[str, Callable[[dict], object]] = {  # what rows have in common that are left out together
    "a layer": lambda layer: tuple(map(str, layer.values())),
    "a kind of layer": lambda layer: (layer["kind"], len(layer["size"])),
    "a length of kernels": lambda layer: layer["kernel_size"],
}


def left_out(group: Callable[[dict], object], fitted: Sequence[Point]) -> Dict[str, List[float]]:
    """Returns the losses of rows, by mode, with constants that were fitted without their group."""

    def key(point: Point) -> object:
        layer = {name: value for name, value in point.row["layer"].items() if name not in ("dtype", "channels_last")}
        return group(layer)

    found: Dict[str, List[float]] = {}
    for each in dict.fromkeys(map(key, fitted)):
        costs = fit([point for point in fitted if key(point) != each])
        for mode, values in losses(costs, [point for point in fitted if key(point) == each]).items():
            found.setdefault(mode, []).extend(values)
    return found


def summary(found: Dict[str, List[float]]) -> List[List[str]]:
    """Returns a line for each mode: geometric mean and worst."""
    return [[mode, f"{geometric_mean(values):.3f}", f"{max(values):.2f}"] for mode, values in found.items()]
