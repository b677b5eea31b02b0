"""The planner compared with the best of its plans: every exact strategy is forced on a layer, and timed too.

Strategies that give the same graph are one variant. What beats the planner's choice is measured against it once more,
only these two: the least of many noisy medians would flatter it.
"""

from __future__ import annotations

from typing import Any

from benchmarks import results
from mxsame._timing import measure as timed
from mxsame.bench.layers import PLANNER, Layer, inputs, plans


def measure(layer: Layer, static: bool, train: bool = False, **timing: Any) -> dict:
    """One row; `loss` is the planner's time over the best plan's, `best` that plan's name."""
    calls, alike = plans(layer, static, train, inputs(layer, train))
    mode = f"{'static' if static else 'dynamic'} shape, {'forward and backward' if train else 'forward'}"
    row = results.row(layer.name, mode, timed(calls, **timing), PLANNER, odd=layer.odd, planned=alike)
    best = min(row["figures"], key=lambda name: row["figures"][name]["median"])
    row.update(best=best, loss=1.0)
    if best != PLANNER:
        again = timed({name: calls[name] for name in (PLANNER, best)}, **timing)
        row["loss"] = max(1.0, 1 / results.ratio(results.row(layer.name, "", again, PLANNER), best))
    return row
