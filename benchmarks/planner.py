"""The planner compared with the best of all exact ways: every exact strategy is forced on a layer, and timed, and so is
explicit padding, except for averages, in which it counts. MXNet's symmetric padding is timed next to them.

Strategies that give the same graph are one variant. What beats the planner's choice is measured against it once more,
only these two: the least of many noisy medians would flatter it.
"""

from __future__ import annotations

from typing import Any

from benchmarks import results
from benchmarks.timing import measure as timed
from benchmarks.variants import EXPLICIT, PLANNER, SYMMETRIC, Layer, inputs, others, plans


def measure(layer: Layer, static: bool, train: bool = False, **timing: Any) -> dict:
    """One row; `loss` is the planner's time over that of the best exact way, `best` the name of that."""
    data = inputs(layer, train)
    calls, alike = plans(layer, static, train, data)
    calls.update(others(layer, train, data))
    mode = f"{'static' if static else 'dynamic'} shape, {'forward and backward' if train else 'forward'}"
    row = results.row(layer.name, mode, timed(calls, **timing), PLANNER, planned=alike)
    exact = set(row["figures"]) - {SYMMETRIC} - ({EXPLICIT} if layer.kind == "avg" else set())
    best = min(exact, key=lambda name: row["figures"][name]["median"])
    row.update(best=best, loss=1.0)
    if best != PLANNER:
        again = timed({name: calls[name] for name in (PLANNER, best)}, **timing)
        row["loss"] = max(1.0, 1 / results.ratio(results.row(layer.name, "", again, PLANNER), best))
    return row
