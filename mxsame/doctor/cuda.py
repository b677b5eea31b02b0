"""NVIDIA's driver, CUDA's libraries, the GPUs, and whether the installed MXNet has machine code for them."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Sequence

from mxsame._cuda import Code, runs_on
from mxsame.doctor import child
from mxsame.doctor.check import Check, listed, pip
from mxsame.doctor.software import Mxnet

GROUP = "cuda"
LIMITS = (30.0, 20.0)  # seconds, for a driver that does not answer
OLDEST_CUDA = (11, 0)  # that a driver must know for libraries of CUDA 11
HIDES = "CUDA_VISIBLE_DEVICES"
ORIGINS = {"wheel": "from wheels", "system": "of the system", "loaded": "loaded already"}
TO_CPU = "The command changes to the MXNet for the CPU."


def checks(mxnet: Mxnet) -> Iterator[Check]:
    """For MXNet's CUDA build all of it; else what there is, in a line."""
    library = mxnet.library if mxnet.is_for_cuda else None
    steps = ["driver", "GPUs", *(["libraries"] if mxnet.is_for_cuda else []), *(["machine code"] if library else [])]
    results = {result.step: result for result in child.results("cuda", steps, library or "", limits=LIMITS)}
    to_cpu = mxnet.reinstalled("mxnet")
    failed = next((results[step] for step in ("driver", "GPUs") if results[step].error), None)
    driver, devices = results["driver"].found.get("driver"), results["GPUs"].found.get("devices", [])
    if failed:
        yield _unanswered(failed, mxnet)
    elif mxnet.is_for_cuda:
        yield from _driver(driver, to_cpu)
        if driver:
            yield _devices(devices, mxnet, to_cpu)
    else:
        yield _not_used(driver, devices, bool(mxnet.folder))
    if not mxnet.is_for_cuda:
        return
    yield from _libraries(results["libraries"], to_cpu)
    if library:
        yield from _code(results["machine code"], devices, to_cpu, mxnet.reinstalled())


def _unanswered(result: child.Result, mxnet: Mxnet) -> Check:
    text = f"asked for {'its GPUs' if result.step == 'GPUs' else 'its version'}, the driver fails: {result.error}."
    if mxnet.is_for_cuda:
        return Check(GROUP, "driver", "problem", text, "sudo reboot")
    return Check(GROUP, "driver", "note", text)


def _not_used(driver: Any, devices: List[dict], installed: bool) -> Check:
    text = listed([name_of(device) for device in devices]) or ("no GPU" if driver else "no NVIDIA driver")
    if installed:
        text += "; the installed MXNet computes on the CPU"
    return Check(GROUP, "GPUs", "note", f"{text}.", facts={"driver": driver, "devices": devices})


def _driver(driver: Any, to_cpu: str) -> Iterator[Check]:
    if driver is None:
        text = f"this MXNet needs NVIDIA's driver, and there is none. {TO_CPU}"
        yield Check(GROUP, "driver", "problem", text, to_cpu)
        return
    cuda = dotted(driver["cuda"]) if driver["cuda"] else "unknown"
    text = f"version {driver['version'] or 'unknown'}, newest CUDA {cuda}, {driver['path']}"
    if driver["cuda"] and tuple(driver["cuda"]) < OLDEST_CUDA:
        text += f"; too old, as this MXNet needs one for CUDA {dotted(OLDEST_CUDA)}. {TO_CPU}"
        yield Check(GROUP, "driver", "problem", text, to_cpu, driver)
    else:
        yield Check(GROUP, "driver", "note", text, facts=driver)


def _devices(devices: List[dict], mxnet: Mxnet, to_cpu: str) -> Check:
    """What the driver shows, and whether MXNet sees as many."""
    facts = {"devices": devices, "seen": mxnet.gpus if mxnet.works else None}
    if not devices and os.environ.get(HIDES) is not None:
        text = f"the driver shows none to this process: {HIDES}={os.environ[HIDES]!r}."
        return Check(GROUP, "GPUs", "problem", text, f"unset {HIDES}", facts)
    if not devices:
        return Check(GROUP, "GPUs", "problem", f"the driver shows none to this process. {TO_CPU}", to_cpu, facts)
    text = listed([name_of(device) for device in devices])
    if mxnet.works and mxnet.gpus < len(devices):
        why = f" ({mxnet.uncounted})" if mxnet.uncounted else ""
        text += f"; MXNet sees {mxnet.gpus} of them{why}. {TO_CPU}"
        return Check(GROUP, "GPUs", "problem", text, to_cpu, facts)
    return Check(GROUP, "GPUs", "note", text, facts=facts)


def name_of(device: Dict[str, Any]) -> str:
    """`NVIDIA A100 (compute capability 8.0, 40 GiB)`."""
    return f"{device['name']} (compute capability {dotted(device['capability'])}, {device['memory'] / 2**30:.0f} GiB)"


def dotted(capability: Sequence[int]) -> str:
    return "{}.{}".format(*capability)


def _libraries(result: child.Result, to_cpu: str) -> Iterator[Check]:
    if result.error:
        yield Check(GROUP, "libraries", "problem", f"cannot be looked for: {result.error}.", to_cpu)
        return
    found, missing = result.found["found"], result.found["missing"]
    origins = sorted({place["origin"] for place in found.values()})
    counts = [
        f"{sum(x['origin'] == origin for x in found.values())} {ORIGINS.get(origin, origin)}" for origin in origins
    ]
    if missing:
        text = f"not found: {listed(missing)}."
        mend = pip(f"install --force-reinstall --no-deps {' '.join(result.found['pins'])}")
        yield Check(GROUP, "libraries", "problem", text, mend, result.found)
    else:
        places = os.path.commonpath([x["path"] for x in found.values()])
        text = f"all {len(found)} of CUDA 11 and cuDNN 8 are there ({listed(counts)}), below {places}."
        yield Check(GROUP, "libraries", "ok", text, facts=result.found)


def _code(result: child.Result, devices: List[dict], to_cpu: str, again: str) -> Iterator[Check]:
    """A GPU without machine code in libmxnet.so is of no use to MXNet's own operators."""
    if result.error:
        yield Check(GROUP, "machine code", "problem", f"libmxnet.so cannot be read: {result.error}.", again)
        return
    code = Code(*(tuple(tuple(each) for each in result.found[kind]) for kind in ("machine", "ptx")))
    has = f"libmxnet.so has machine code for {listed([dotted(each) for each in code.machine], 20) or 'no GPU'}"
    has += f" and PTX for {listed([dotted(each) for each in code.ptx])}" if code.ptx else " and no PTX"
    lost = [device for device in devices if not runs_on(tuple(device["capability"]), code)]
    if not lost:
        yield Check(GROUP, "machine code", "ok" if devices else "note", f"{has}.", facts=result.found)
        return
    text = (
        f"{has}: MXNet's own operators cannot run on {listed([name_of(device) for device in lost])}. Graphs of cuDNN's "
        "operators alone, as mxsame.deploy makes them for such a GPU, may run; no release was ever tried on one, and "
        f"the check of a deployed net tries it now. {TO_CPU}"
    )
    facts = {**result.found, "without": [device["number"] for device in lost]}
    yield Check(GROUP, "machine code", "problem", text, to_cpu, facts)
