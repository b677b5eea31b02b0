"""Contestants timed in interleaved rounds, so that whatever else the machine does meets them alike."""

from __future__ import annotations

import statistics
import time
from typing import Callable, Dict, List

from mxsame._mxnet import mx


def medians(contestants: Dict[str, Callable[[], object]], rounds: int = 15, seconds: float = 3.0) -> Dict[str, float]:
    """Seconds per call of each contestant: the median over rounds, each of which runs all of them once.

    Short calls are repeated within a round until they last about a millisecond. Rounds end early after `seconds` per
    contestant, but not before the fifth.
    """
    repeats = {}
    for name, call in contestants.items():
        for _ in range(2):
            _timed(call, 1)
        repeats[name] = max(1, round(1e-3 / max(_timed(call, 1), 1e-6)))
    found: Dict[str, List[float]] = {name: [] for name in contestants}
    began = time.perf_counter()
    for finished in range(rounds):
        for name, call in contestants.items():
            found[name].append(_timed(call, repeats[name]) / repeats[name])
        if finished >= 4 and time.perf_counter() - began > seconds * len(contestants):
            break
    return {name: statistics.median(times) for name, times in found.items()}


def _timed(call: Callable[[], object], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    mx.nd.waitall()
    return time.perf_counter() - began
