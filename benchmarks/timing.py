"""Variants timed in interleaved rounds, so that whatever else the machine does affects all of them."""

from __future__ import annotations

import random
import time
from typing import Callable, Dict, List, Tuple

import numpy as np

from mxsame._mxnet import mx

FLAGS = {"static_alloc": True, "static_shape": True}  # of `hybridize`, for every net that is timed


def measure(
    variants: Dict[str, Callable[[], object]],
    rounds: int = 15,
    seconds: float = 3.0,
    turn: float = 5e-3,
) -> Dict[str, List[float]]:
    """Seconds per call of each variant, one figure a round; in a round each has one turn, in a random order.

    In its turn a variant runs as often as fills `turn` seconds, and once before, not counted, so that its data is in
    the caches, as it is for a user who runs no other variant in between. Rounds end early after `seconds` per variant,
    but not before the fifth.
    """
    repeats = {}
    for name, call in variants.items():
        timed(call, 2)
        repeats[name] = max(1, round(turn / max(timed(call, 1), 1e-6)))
    seconds_of: Dict[str, List[float]] = {name: [] for name in variants}
    order, shuffle = list(variants), random.Random(0).shuffle
    began = time.perf_counter()
    for finished in range(rounds):
        shuffle(order)
        for name in order:
            timed(variants[name], 1)
            seconds_of[name].append(timed(variants[name], repeats[name]) / repeats[name])
        if finished >= 4 and time.perf_counter() - began > seconds * len(variants):
            break
    return seconds_of


def spread(figures: List[float]) -> Tuple[float, ...]:
    """(lower quartile, median, upper quartile)."""
    return tuple(np.percentile(figures, (25, 50, 75)).tolist())


def timed(call: Callable[[], object], repeats: int) -> float:
    """The seconds of all calls; a `worker.Remote` measures its own."""
    if hasattr(call, "timed"):
        return float(call.timed(repeats))
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    mx.nd.waitall()
    return time.perf_counter() - began
