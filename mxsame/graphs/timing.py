"""Variants timed in interleaved rounds, so that whatever else the machine does affects all of them."""

from __future__ import annotations

import random
import statistics
import time
from typing import Callable

from mxsame._mxnet import mx

FLAGS = {"static_alloc": True, "static_shape": True}  # of `hybridize`, for every net that is timed


def measure(
    variants: dict[str, Callable[[], object]],
    rounds: int = 15,
    seconds: float = 3.0,
    turn: float = 5e-3,
) -> dict[str, list[float]]:
    """Seconds per call of each variant, one figure a round; in a round each has one turn, in a random order.

    In its turn a variant runs as often as fills `turn` seconds, and once before, not counted, so that its data is in
    the caches, as it is for a user who runs no other variant in between. Rounds end early after `seconds` per variant,
    but not before the fifth.
    """
    repeats = {}
    for name, call in variants.items():
        for _ in range(2):
            _timed(call, 1)
        repeats[name] = max(1, round(turn / max(_timed(call, 1), 1e-6)))
    found: dict[str, list[float]] = {name: [] for name in variants}
    order, shuffle = list(variants), random.Random(0).shuffle
    began = time.perf_counter()
    for finished in range(rounds):
        shuffle(order)
        for name in order:
            _timed(variants[name], 1)
            found[name].append(_timed(variants[name], repeats[name]) / repeats[name])
        if finished >= 4 and time.perf_counter() - began > seconds * len(variants):
            break
    return found


def spread(figures: list[float]) -> tuple[float, float, float]:
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
