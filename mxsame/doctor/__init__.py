"""What keeps MXNet and mxsame from working here: the checks of `mxsame doctor`, and what mends each problem.

Whatever may fail, hang or crash is done by children of this process, each step under a time limit; the process itself
imports neither NumPy nor MXNet. So the doctor has an answer on machines where nothing else has one.

`mxsame doctor --json` prints `as_data`::

    {"mxsame": version, "well": whether no check is a problem, "seconds": how long it took, "checks": [check, ...]}

    check: {"group": .., "name": .., "status": .., "text": .., "mend": .., "facts": ..}
    group: "software", "cuda", "cpu", "gpu 0" and so on
    status: "ok" (tried, and right), "note" (a fact), "skipped" (not tried; the text says why), "problem"
    mend: a shell command, never null for a problem
    facts: what the text says, for programs, by check:
        "Python", "NumPy": version, path; "MXNet": wheels, path, version, seconds; "build": features, library
        "companions": by package, version and whether it is known to work; "extras": versions by package
        "SciPy", if it is too new: version
        "driver": path, cuda, version; "GPUs": devices, and how many MXNet has seen
        "libraries": found, missing, pins; "machine code": machine, ptx, and the devices without
        "oneDNN": version, isa, convolutions; "operators", "plans", "deployed": differences and failures by step
"""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator, List

from mxsame import __version__
from mxsame.doctor import computing, cuda, software
from mxsame.doctor.check import Check

__all__ = ["Check", "as_data", "examine"]


def examine(say: Callable[[str], None] = lambda what: None) -> Iterator[Check]:
    """The checks, one after the other; `say` is told what is being done."""
    say("looking at what is installed")
    installed = software.installed()
    yield from software.versions(installed)
    say("importing MXNet")
    mxnet = software.mxnet(installed)
    yield from mxnet.checks()
    yield from software.companions(installed)
    say("asking NVIDIA's driver")
    yield from cuda.checks(mxnet)
    if mxnet.works:
        for device in [("cpu", 0), *(("gpu", number) for number in range(mxnet.gpus))]:
            yield from computing.checks(mxnet, device, say)


def as_data(checks: List[Check], seconds: float) -> dict:
    """What was found, as `mxsame doctor --json` prints it."""
    return {
        "mxsame": __version__,
        "well": not any(check.status == "problem" for check in checks),
        "seconds": round(seconds, 1),
        "checks": [check.as_data() for check in checks],
    }


def diagnose(tell: Callable[[Check], Any], say: Callable[[str], None] = lambda what: None) -> dict:
    """Examines, tells each check at once, and returns all of it."""
    began, checks = time.monotonic(), []
    for check in examine(say):
        checks.append(check)
        tell(check)
    return as_data(checks, time.monotonic() - began)
