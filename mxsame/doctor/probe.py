"""What a child of the doctor does: `TASK [STEP, ...] ARGUMENT ...`. Each step is reported by a line of its own."""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from typing import Any, Callable, Dict

from mxsame.doctor.child import MARK

Steps = Dict[str, Callable[[], Dict[str, Any]]]


def main(task: str, steps: str, *arguments: str) -> None:
    """Does the steps, in their order."""
    functions = TASKS[task](*arguments)
    for step in json.loads(steps):
        report: Dict[str, Any] = {"found": {}, "error": None, "kind": ""}
        try:
            report["found"] = functions[step]()
        except Exception as error:
            report["error"], report["kind"] = str(error) or type(error).__name__, type(error).__name__
        line = f"\n{MARK}{json.dumps(report)}\n"
        os.write(sys.__stdout__.fileno(), line.encode())  # type: ignore[union-attr]


def mxnet() -> Steps:
    """The import, which explains itself where it fails; and what was built into MXNet."""

    def imported() -> Dict[str, Any]:
        began = time.monotonic()
        from mxsame._mxnet import mx

        seconds = round(time.monotonic() - began, 2)
        return {"version": mx.__version__, "path": os.path.dirname(mx.__file__), "seconds": seconds}

    def built() -> Dict[str, Any]:
        from mxsame._mxnet import mx

        features = mx.runtime.Features()
        return {
            "features": {name: features.is_enabled(name) for name in sorted(features.keys())},
            "library": mx.libinfo.find_lib_path()[0],
        }

    def gpus() -> Dict[str, Any]:
        from mxsame._mxnet import mx

        return {"count": mx.context.num_gpus()}

    return {"import": imported, "build": built, "GPUs": gpus}


def cuda(library: str) -> Steps:
    """What `mxsame._cuda` knows of this machine, and of the machine code in a library."""
    from mxsame import _cuda

    def libraries() -> Dict[str, Any]:
        found = {each: _cuda.locate(each.soname) for each in _cuda.LIBRARIES}
        return {
            "found": {each.soname: place._asdict() for each, place in found.items() if place},
            "missing": [each.soname for each, place in found.items() if not place],
            "pins": list(_cuda.pins(tuple(each for each, place in found.items() if not place))),
        }

    def code() -> Dict[str, Any]:
        found = _cuda.machine_code(library)
        return {"machine": found.machine, "ptx": found.ptx}

    def driver() -> Dict[str, Any]:
        found = _cuda.driver()
        return {"driver": found._asdict() if found else None}

    def devices() -> Dict[str, Any]:
        return {"devices": [device._asdict() for device in _cuda.devices()]}

    return {"libraries": libraries, "machine code": code, "driver": driver, "GPUs": devices}


def compute(kind: str, number: str) -> Steps:
    """Operators and plans on a device, each compared with NumPy."""
    from mxsame.doctor import steps

    def tried(step: steps.Step) -> Dict[str, Any]:
        from mxsame.doctor import trial

        return {"difference": trial.difference(step, kind, int(number))}

    def deployed() -> Dict[str, Any]:
        from mxsame.doctor import trial

        return {"difference": trial.deployed_difference(kind, int(number))}

    every = {**steps.operators(), **steps.plans()}
    functions: Steps = {name: partial(tried, step) for name, step in every.items()}
    return {**functions, steps.DEPLOYED: deployed}


TASKS: Dict[str, Callable[..., Steps]] = {"mxnet": mxnet, "cuda": cuda, "compute": compute}

if __name__ == "__main__":
    main(*sys.argv[1:])
