"""The planner against the best of its plans: every exact strategy is forced on a layer, and timed beside its choice.

Strategies that give the same graph are one contestant. What beats the planner's choice is measured against it once
more, the two alone: the least of many noisy medians would flatter it.
"""

from __future__ import annotations

from typing import Any

from benchmarks import results
from benchmarks.places import HERE, Place
from mxsame._timing import measure as timed
from mxsame.bench.layers import PLANNER, Layer, inputs, plans


def measure(layer: Layer, known: bool, train: bool = False, place: Place = HERE, **timing: Any) -> dict:
    """One row; `loss` is the planner's time over the best plan's, `best` that plan's name."""
    with place.home:
        return _row(layer, known, train, timing)


def _row(layer: Layer, known: bool, train: bool, timing: dict) -> dict:
    data = inputs(layer, train)
    calls, alias = plans(layer, known, train, data)
    figures = timed(calls, **timing)
    row = results.row(layer.name, _mode(known, train), figures, PLANNER, odd=layer.odd, planned=alias)
    best = min(figures, key=lambda name: row["figures"][name]["median"])
    row.update(best=best, loss=1.0)
    if best != PLANNER:
        again = timed({name: calls[name] for name in (PLANNER, best)}, **timing)
        row["loss"] = max(1.0, 1 / results.ratio(results.row(layer.name, "", again, PLANNER), best))
    return row


def _mode(known: bool, train: bool) -> str:
    return f"size {'known' if known else 'unknown'}, {'forward and backward' if train else 'forward'}"
