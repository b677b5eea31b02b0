"""The checks: each describes what child processes have found."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence

from mxsame.doctor.child import Result, run, shortened
from mxsame.installation.problems import mxnet_folders, mxnet_wheels, pip_again, reinstall
from mxsame.installation.requirements import (
    FIRST_WITHOUT,
    MXNET_CUDA_WHEEL,
    MXNET_VERSION,
    OLDEST_CAPABILITY,
    OLDEST_CUDA,
)

STATUSES = ("ok", "note", "problem")
SHOWN_FEATURES = ("CUDA", "CUDNN", "NCCL", "MKLDNN", "OPENMP", "BLAS_OPEN", "LAPACK", "OPENCV", "INT64_TENSOR_SIZE")
OPERATORS = ("convolution", "gradient of a convolution", "max pooling", "gradient of a max pooling")
ROUNDING = 1e-4  # as a part of the largest value; wrong results differ by 0.09 and more
TENSOR_FLOAT = 5e-3  # GPUs since Ampere may round factors to 10 bits
VISIBLE = "CUDA_VISIBLE_DEVICES"
TO_CPU = "The command changes to the MXNet for the CPU."


@dataclass(frozen=True)
class Check:
    """One line of the doctor's output; the page of `mxsame.doctor` describes its parts.

    >>> Check("software", "NumPy", "problem", "there is none")
    Traceback (most recent call last):
    ValueError: a problem must come with the command that fixes it; received fix=None
    """

    group: str
    name: str
    status: str
    text: str
    fix: Optional[str] = None
    facts: Dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status == "problem" and not self.fix:
            raise ValueError(f"a problem must come with the command that fixes it; received fix={self.fix!r}")

    def as_data(self) -> Dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Mxnet:
    """The installed MXNet: its wheels, its folder, and what a child found when it imported it."""

    wheels: Dict[str, str]
    folder: Optional[str]
    result: Result

    @classmethod
    def installed(cls) -> Mxnet:
        return cls(mxnet_wheels(), next(iter(mxnet_folders()), None), run("MXNet"))

    @property
    def works(self) -> bool:
        """Whether it can be imported."""
        return "MXNet" in self.result.found

    @property
    def build(self) -> Dict[str, Any]:
        return self.result.found.get("build", {})

    @property
    def is_for_cuda(self) -> bool:
        return bool(self.build.get("features", {}).get("CUDA", any("-cu" in wheel for wheel in self.wheels)))

    @property
    def gpus(self) -> int:
        """How many it sees."""
        return int(self.result.found.get("gpus", 0))

    @property
    def reinstalled(self) -> str:
        """The command that installs the same wheel again."""
        return reinstall(next(iter(self.wheels), "mxnet"))


# What is installed.


def python() -> Check:
    """The Python that runs this, and the child processes."""
    version = ".".join(map(str, sys.version_info[:3]))
    facts = {"version": version, "path": sys.executable}
    return Check("software", "Python", "note", f"{version}, {sys.executable}", facts=facts)


def software(mxnet: Mxnet) -> Iterator[Check]:
    """NumPy, MXNet, and what was built into it."""
    facts: Dict[str, Any] = mxnet.result.found.get("NumPy", {"version": None, "path": None})
    text = "{version}, {path}".format(**facts) if facts["path"] else "cannot be imported"
    yield Check("software", "NumPy", "note", text, facts=facts)

    imported = mxnet.result.found.get("MXNet", {})
    wheels = listed([" ".join(item) for item in mxnet.wheels.items()] or ["no wheel"])
    facts = {"wheels": mxnet.wheels, "path": mxnet.folder, "version": None, "seconds": None, **imported}
    if not mxnet.works:
        text = f"{'' if mxnet.result.fix else 'its import fails: '}{str(mxnet.result.error).rstrip('.')}"
        text += f" ({wheels}, {mxnet.folder})" if mxnet.folder else ""
        yield Check("software", "MXNet", "problem", f"{text}.", mxnet.result.fix or mxnet.reinstalled, facts)
        return
    text = f"{wheels}, {facts['path']}, imported in {facts['seconds']} s"
    if facts["version"] != MXNET_VERSION:
        text += f"; its version is {facts['version']}, and mxsame is made for {MXNET_VERSION}"
    yield Check("software", "MXNet", "ok", text, facts=facts)
    if not mxnet.build:
        text = f"the features cannot be read: {shortened(str(mxnet.result.error))}."
        yield Check("software", "build", "problem", text, mxnet.reinstalled)
        return
    enabled = [name for name in SHOWN_FEATURES if mxnet.build["features"].get(name)]
    text = f"built with {listed(enabled)}; without {listed([name for name in SHOWN_FEATURES if name not in enabled])}"
    yield Check("software", "build", "note", text, facts=mxnet.build)


# NVIDIA.


def cuda(mxnet: Mxnet) -> Iterator[Check]:
    """For MXNet's CUDA build the driver, the GPUs, the libraries and the machine code; else one line."""
    result = run("driver", limit=30)
    driver, devices = result.found.get("driver"), result.found.get("devices", [])
    if not mxnet.is_for_cuda:
        text = listed([describe(device) for device in devices]) or ("no GPU" if driver else "no NVIDIA driver")
        text = f"the driver fails: {shortened(result.error)}" if result.error else text
        text += "; the installed MXNet computes on the CPU." if mxnet.folder else "."
        yield Check("cuda", "GPUs", "note", text, facts={"driver": driver, "devices": devices})
        return
    if result.error:
        yield Check("cuda", "driver", "problem", f"the driver fails: {shortened(result.error)}.", "sudo reboot")
    else:
        yield _driver(driver)
        if driver:
            yield _devices(devices, mxnet)
    yield _libraries(run("libraries", limit=30))
    if devices and MXNET_CUDA_WHEEL in mxnet.wheels:
        yield _machine_code(devices)


def _driver(driver: Optional[Dict[str, Any]]) -> Check:
    to_cpu = reinstall("mxnet")
    if driver is None:
        return Check(
            "cuda", "driver", "problem", f"this MXNet needs NVIDIA's driver, and there is none. {TO_CPU}", to_cpu
        )
    newest = dotted(driver["cuda"]) if driver["cuda"] else "unknown"
    text = f"version {driver['version'] or 'unknown'}, newest CUDA {newest}, {driver['path']}"
    if driver["cuda"] and tuple(driver["cuda"]) < OLDEST_CUDA:
        text += f"; too old, as this MXNet needs one for CUDA {dotted(OLDEST_CUDA)}. {TO_CPU}"
        return Check("cuda", "driver", "problem", text, to_cpu, driver)
    return Check("cuda", "driver", "note", text, facts=driver)


def _devices(devices: List[dict], mxnet: Mxnet) -> Check:
    """The GPUs that the driver shows, and whether MXNet sees as many."""
    facts = {"devices": devices, "seen": mxnet.gpus if mxnet.works else None}
    if not devices and VISIBLE in os.environ:
        text = f"the driver shows none to this process: {VISIBLE}={os.environ[VISIBLE]!r}."
        return Check("cuda", "GPUs", "problem", text, f"unset {VISIBLE}", facts)
    text = listed([describe(device) for device in devices])
    if not devices:
        text = "the driver shows none to this process"
    elif mxnet.works and mxnet.gpus < len(devices):
        why = f" ({shortened(mxnet.result.error)})" if mxnet.result.error else ""
        text += f"; MXNet sees {mxnet.gpus} of them{why}"
    else:
        return Check("cuda", "GPUs", "note", text, facts=facts)
    return Check("cuda", "GPUs", "problem", f"{text}. {TO_CPU}", reinstall("mxnet"), facts)


def _libraries(result: Result) -> Check:
    if result.error:
        text = f"cannot be looked for: {shortened(result.error)}. {TO_CPU}"
        return Check("cuda", "libraries", "problem", text, reinstall("mxnet"))
    found, missing = result.found["found"], result.found["missing"]
    if missing:
        fix = pip_again(result.found["pins"])
        return Check("cuda", "libraries", "problem", f"not found: {listed(missing, most=6)}.", fix, result.found)
    folder = os.path.commonpath([library["path"] for library in found.values()])
    text = f"all {len(found)} of CUDA 11 and cuDNN 8 are there, below {folder}."
    return Check("cuda", "libraries", "ok", text, facts=result.found)


def _machine_code(devices: List[dict]) -> Check:
    """Whether the wheel has machine code for every GPU; MXNet's own operators need it."""
    without = [each for each in devices if not OLDEST_CAPABILITY <= tuple(each["capability"]) < FIRST_WITHOUT]
    facts = {"without": [device["number"] for device in without]}
    text = f"{MXNET_CUDA_WHEEL} has machine code for compute capability 5.0 to 8.6, which 8.9 runs too"
    if not without:
        return Check("cuda", "machine code", "ok", f"{text}.", facts=facts)
    text += f", and none for {listed([describe(device) for device in without])}; for these NVIDIA's MXNet container. "
    text += TO_CPU
    return Check("cuda", "machine code", "problem", text, reinstall("mxnet"), facts)


# What a device computes.


def operators(mxnet: Mxnet, kind: str, number: int) -> Check:
    """A SAME convolution, a SAME max pooling and their gradients on a device, compared with NumPy."""
    group = "cpu" if kind == "cpu" else f"gpu {number}"
    allowed = ROUNDING if kind == "cpu" else TENSOR_FLOAT
    result = run("operators", kind, str(number))
    differences, failures = result.found, {}
    if result.error:
        failed = next((name for name in OPERATORS if name not in differences), "the end of the process")
        failures[failed] = shortened(result.error)
    facts = {"differences": differences, "failures": failures}
    wrong = {name: value for name, value in differences.items() if not value <= allowed}
    if wrong or failures:
        parts = [f"{name} differs from NumPy by {value:.0e} of the largest value" for name, value in wrong.items()]
        parts += [f"{name} fails: {error}" for name, error in failures.items()]
        fix = mxnet.reinstalled if kind == "cpu" else reinstall("mxnet")
        return Check(group, "operators", "problem", f"{'; '.join(parts)}.", fix, facts)
    largest = max(differences.values())
    text = f"{listed(list(differences))} are NumPy's (largest difference {largest:.0e}"
    text += ", as TensorFloat-32 rounds)." if largest > ROUNDING else ")."
    return Check(group, "operators", "ok", text, facts=facts)


# Texts.


def describe(device: Dict[str, Any]) -> str:
    """`NVIDIA A100 (compute capability 8.0, 40 GiB)`."""
    return f"{device['name']} (compute capability {dotted(device['capability'])}, {device['memory'] / 2**30:.0f} GiB)"


def dotted(version: Sequence[int]) -> str:
    return "{}.{}".format(*version)


def listed(things: Sequence[str], most: Optional[int] = None) -> str:
    """`a, b and c`; with `most`, the first ones of many.

    >>> listed(["a", "b", "c"]), listed("abcdefgh", most=3)
    ('a, b and c', 'a, b, c and 5 more')
    """
    shown: List[str] = list(things[:most])
    if len(things) > len(shown):
        shown.append(f"{len(things) - len(shown)} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
