"""Contestants timed in interleaved rounds, so that whatever else the machine does meets them alike."""

from __future__ import annotations

import random
import statistics
import time
from typing import Callable, Dict, List, Tuple

from mxsame._mxnet import mx


def measure(
    contestants: Dict[str, Callable[[], object]], rounds: int = 15, seconds: float = 3.0, turn: float = 5e-3
) -> Dict[str, List[float]]:
    """Seconds per call of each contestant, one figure a round, in which each has one turn, in an order drawn anew.

    In its turn a contestant runs as often as makes up `turn` seconds, and once before, uncounted, to bring its data
    back into the caches: that is how a network's user meets it, who runs no other in between. Rounds end early after
    `seconds` per contestant, but not before the fifth.
    """
    repeats = {}
    for name, call in contestants.items():
        for _ in range(2):
            _timed(call, 1)
        repeats[name] = max(1, round(turn / max(_timed(call, 1), 1e-6)))
    found: Dict[str, List[float]] = {name: [] for name in contestants}
    order, shuffle = list(contestants), random.Random(0).shuffle
    began = time.perf_counter()
    for finished in range(rounds):
        shuffle(order)
        for name in order:
            _timed(contestants[name], 1)
            found[name].append(_timed(contestants[name], repeats[name]) / repeats[name])
        if finished >= 4 and time.perf_counter() - began > seconds * len(contestants):
            break
    return found


def spread(figures: List[float]) -> Tuple[float, float, float]:
    """(lower quartile, median, upper quartile)."""
    if len(figures) == 1:
        return figures[0], figures[0], figures[0]
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return low, middle, high


def _timed(call: Callable[[], object], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    mx.nd.waitall()
    return time.perf_counter() - began
