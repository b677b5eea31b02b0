"""What keeps MXNet and mxsame from working here: the checks of `mxsame doctor`, and what fixes each problem.

Whatever may fail, hang or crash is done by child processes with a time limit; the process itself imports neither NumPy
nor MXNet. So the doctor has an answer even if nothing else works.

`mxsame doctor --json` prints `as_data`::

    {"mxsame": version, "well": whether no check is a problem, "seconds": how long it took, "checks": [check, ...]}

    check: {"group": .., "name": .., "status": .., "text": .., "fix": .., "facts": ..}
    group: "software", "cuda", "cpu", "gpu 0" and so on
    status: "ok" (tried, and right), "note" (a fact), "problem"
    fix: the shell command that fixes it, never null for a problem
    facts: the content of the text for programs, by check:
        "Python", "NumPy": version, path; "MXNet": wheels, path, version, seconds; "build": features, library
        "driver": path, cuda, version; "GPUs": devices, and how many MXNet has seen
        "libraries": found, missing, pins; "machine code": the numbers of the devices without
        "operators": differences and failures, by operator and gradient
"""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator, List

from mxsame import __version__
from mxsame.doctor import checks
from mxsame.doctor.checks import Check

__all__ = ["Check", "as_data", "diagnose", "examine"]


def examine() -> Iterator[Check]:
    """The checks, one after the other, each as soon as its result is there."""
    yield checks.python()
    mxnet = checks.Mxnet.installed()
    yield from checks.software(mxnet)
    yield from checks.cuda(mxnet)
    if mxnet.works:
        for kind, number in [("cpu", 0), *(("gpu", number) for number in range(mxnet.gpus))]:
            yield checks.operators(mxnet, kind, number)


def as_data(found: List[Check], seconds: float) -> dict:
    """What was found, as `mxsame doctor --json` prints it."""
    return {
        "mxsame": __version__,
        "well": not any(check.status == "problem" for check in found),
        "seconds": round(seconds, 1),
        "checks": [check.as_data() for check in found],
    }


def diagnose(report: Callable[[Check], Any]) -> dict:
    """Examines, hands each check to `report` at once, and returns all of them as data."""
    start, found = time.monotonic(), []
    for check in examine():
        found.append(check)
        report(check)
    return as_data(found, time.monotonic() - start)
