"""The checks: each describes what a child process has found."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

from mxsame.doctor.child import Result, run, shortened
from mxsame.installation.problems import mxnet_folders, mxnet_wheels, reinstall
from mxsame.installation.requirements import (
    FIRST_WITHOUT,
    MXNET_CUDA_WHEEL,
    MXNET_VERSION,
    OLDEST_CAPABILITY,
    OLDEST_CUDA,
)
from mxsame.threads import OF_MXNET, SETTING, Share


@dataclass(frozen=True)
class Check:
    """One line of the doctor's output; the page of `mxsame.doctor` describes its parts.

    >>> Check("NumPy", "problem", "there is none")
    Traceback (most recent call last):
    ValueError: a problem must come with the command that fixes it; received fix=None
    """

    name: str
    status: str
    text: str
    fix: Optional[str] = None
    facts: Dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status == "problem" and not self.fix:
            raise ValueError(f"a problem must come with the command that fixes it; received fix={self.fix!r}")


@dataclass(frozen=True)
class Mxnet:
    """The installed MXNet: its wheels, its folder, and what a child found when it imported it."""

    wheels: Dict[str, str]
    folder: Optional[str]
    result: Result

    @classmethod
    def installed(cls) -> Mxnet:
        return cls(mxnet_wheels(), next(iter(mxnet_folders()), None), run("import"))

    @property
    def works(self) -> bool:
        """Whether it can be imported."""
        return "MXNet" in self.result.found

    @property
    def gpus(self) -> int:
        """How many it sees."""
        return int(self.result.found.get("gpus", 0))

    @property
    def is_for_cuda(self) -> bool:
        return any("-cu" in wheel for wheel in self.wheels)


def python() -> Check:
    """The Python that runs this, and the child processes."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("Python", "note", f"{version}, {sys.executable}", facts={"version": version, "path": sys.executable})


def numpy(mxnet: Mxnet) -> Check:
    """Whether there is one; what is wrong with it keeps MXNet from being imported."""
    facts = mxnet.result.found.get("NumPy", {"version": None, "path": None})
    text = "{version}, {path}".format(**facts) if facts["path"] else "cannot be imported"
    return Check("NumPy", "note", text, facts=facts)


def mxnet(mxnet: Mxnet) -> Check:
    """Whether it can be imported, and the command of the explanation if not."""
    imported = mxnet.result.found.get("MXNet", {"path": mxnet.folder, "version": None, "seconds": None})
    facts = {"wheels": mxnet.wheels, **imported, "gpus": mxnet.gpus}
    wheels = ", ".join(map(" ".join, mxnet.wheels.items())) or "no wheel"
    if not mxnet.works:
        text = f"{'' if mxnet.result.fix else 'its import fails: '}{str(mxnet.result.error).rstrip('.')}"
        text += f" ({wheels}, {mxnet.folder})." if mxnet.folder else "."
        return Check("MXNet", "problem", text, mxnet.result.fix or _reinstalled(mxnet), facts)
    text = f"{wheels}, {facts['path']}, imported in {facts['seconds']} s"
    if facts["version"] != MXNET_VERSION:
        text += f"; its version is {facts['version']}, and mxsame is made for {MXNET_VERSION}"
    return Check("MXNet", "ok", text, facts=facts)


def driver(mxnet: Mxnet) -> Check:
    """NVIDIA's driver and its GPUs, and whether an MXNet for CUDA can use them."""
    result = run("driver", limit=30)
    found, devices = result.found.get("driver"), result.found.get("devices", [])
    text, misfit = f"it fails: {shortened(result.error)}" if result.error else "there is none", ""
    if found and not result.error:
        gpus = ", ".join(map(describe, devices)) or "no GPU"
        text = f"version {found['version'] or 'unknown'}, {found['path']}: {gpus}"
        misfit = _misfit(found, devices, mxnet)
    facts = {"driver": found, "devices": devices}
    if mxnet.is_for_cuda and (result.error or not found or misfit):
        text = f"{text}; {misfit}" if misfit else text
        return Check("driver", "problem", f"{text}. The command changes to the CPU.", reinstall("mxnet"), facts)
    return Check("driver", "note", text if mxnet.is_for_cuda else f"{text}; MXNet computes on the CPU", facts=facts)


def _misfit(driver: Dict[str, Any], devices: List[dict], mxnet: Mxnet) -> str:
    """Why an MXNet for CUDA cannot use these GPUs."""
    if driver["cuda"] and tuple(driver["cuda"]) < OLDEST_CUDA:
        return f"it supports CUDA {dotted(driver['cuda'])}, and this MXNet needs {dotted(OLDEST_CUDA)}"
    without = [each for each in devices if not OLDEST_CAPABILITY <= tuple(each["capability"]) < FIRST_WITHOUT]
    if without and MXNET_CUDA_WHEEL in mxnet.wheels:
        names = ", ".join(device["name"] for device in without)
        return f"{MXNET_CUDA_WHEEL} has no machine code for {names}, for which there is NVIDIA's MXNet container"
    if not devices or (mxnet.works and mxnet.gpus < len(devices)):
        return f"MXNet sees {mxnet.gpus}" + (f" ({shortened(mxnet.result.error)})" if mxnet.result.error else "")
    return ""


def operators(mxnet: Mxnet, kind: str, number: int) -> Check:
    """A SAME convolution and its gradient on a device, compared with what they are."""
    result = run("operators", kind, str(number))
    if not result.error:
        return Check(f"{kind} {number}", "ok", "a convolution and its gradient are right")
    fix = _reinstalled(mxnet) if kind == "cpu" else reinstall("mxnet")
    return Check(f"{kind} {number}", "problem", f"a convolution fails: {shortened(result.error)}.", fix)


def threads() -> Check:
    """Whether MXNet has the cores that the process may use, and whether its threads stay awake."""
    result = run("threads")
    if result.error:
        return Check("threads", "note", f"they cannot be counted: {shortened(result.error)}")
    facts = result.found
    share = Share(facts["processors"], facts["cores"], facts["quota"])
    text = f"MXNet has {facts['mxnet']}; the process may use {share.cores} cores, {share.processors} hardware threads"
    text += f" and a quota of {share.quota:g}" if share.quota else ""
    variable = next(filter(os.environ.get, (*OF_MXNET, SETTING)), None)
    if facts["mxnet"] > (share.threads if share.quota else share.processors):
        return Check("threads", "problem", f"{text}: too few", f"unset {variable}", facts)
    if facts["mxnet"] < share.threads:
        return Check("threads", "note", f"{text}: {variable} is set", f"unset {variable}", facts)
    if not facts["awake"]:
        text += "; small operators are slow once the calling thread has a team of its own"
        return Check("threads", "note", text, "export MXNET_ENGINE_TYPE=NaiveEngine", facts)
    return Check("threads", "ok", f"{text}. Import mxsame before MXNet, which by itself takes half", facts=facts)


def _reinstalled(mxnet: Mxnet) -> str:
    """The command that installs the same wheel again."""
    return reinstall(next(iter(mxnet.wheels), "mxnet"))


def describe(device: Dict[str, Any]) -> str:
    """`NVIDIA A100 (compute capability 8.0, 40 GiB)`."""
    return f"{device['name']} (compute capability {dotted(device['capability'])}, {device['memory'] / 2**30:.0f} GiB)"


def dotted(version: Sequence[int]) -> str:
    return "{}.{}".format(*version)
