"""What keeps MXNet and mxsame from working here: the checks of `mxsame doctor`, and what fixes each problem.

Whatever may fail, hang or crash is done by child processes with a time limit; the process itself imports neither NumPy
nor MXNet. So the doctor has an answer even if nothing else works.

`mxsame doctor --json` prints `as_data`::

    {"mxsame": version, "well": whether no check is a problem, "checks": [check, ...]}

    check: {"name": .., "status": .., "text": .., "fix": .., "facts": ..}
    status: "ok" (tried, and right), "note" (a fact), "problem"
    fix: the shell command that fixes it, never null for a problem
    facts: the content of the text for programs, by check:
        "Python", "NumPy": version, path; "MXNet": wheels, path, version, seconds, gpus
        "driver": path, cuda, version, devices; "cpu 0", "gpu 0" and so on: none
        "threads": processors, cores, quota, mxnet, awake
"""

from __future__ import annotations

from typing import Iterator, List

from mxsame import __version__
from mxsame.doctor import checks
from mxsame.doctor.checks import Check

__all__ = ["Check", "as_data", "examine"]


def examine() -> Iterator[Check]:
    """The checks, one after the other, each as soon as its result is there."""
    yield checks.python()
    mxnet = checks.Mxnet.installed()
    yield checks.numpy(mxnet)
    yield checks.mxnet(mxnet)
    yield checks.driver(mxnet)
    if mxnet.works:
        for device in [("cpu", 0), *(("gpu", number) for number in range(mxnet.gpus))]:
            yield checks.operators(mxnet, *device)
        yield checks.threads()


def as_data(found: List[Check]) -> dict:
    """What was found, as `mxsame doctor --json` prints it."""
    return {
        "mxsame": __version__,
        "well": not any(check.status == "problem" for check in found),
        "checks": [dict(vars(check)) for check in found],
    }
