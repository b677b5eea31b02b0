"""Rows of figures: medians, quartiles and ratios of what was measured, with date, machine and versions. Plain JSON."""

from __future__ import annotations

import ctypes
import math
import os
import platform
from datetime import date
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np

from mxsame import __version__
from mxsame._mxnet import mx
from mxsame._timing import spread
from mxsame.installation import cuda


def row(name: str, mode: str, figures: Dict[str, List[float]], reference: str, unit: str = "s", **more: Any) -> dict:
    """One line of a table: the figures of each variant (seconds per call, MiB), and their ratio to the reference.

    >>> made = row("stem", "forward", {"symmetric": [2.0, 4.0, 3.0], "mxsame": [3.0, 3.3, 9.0]}, "symmetric")
    >>> made["figures"]["mxsame"]["median"], round(made["figures"]["mxsame"]["ratio"], 3)
    (3.3, 1.1)
    """
    baseline = spread(figures[reference])[1]
    found = {}
    for variant, values in figures.items():
        low, median, high = spread(values)
        found[variant] = {
            "ratio": median / baseline,
            "median": median,
            "quartiles": [low, high],
            "rounds": len(values),
        }
    return {"name": name, "mode": mode, "unit": unit, "reference": reference, "figures": found, **more}


def ratio(row: dict, variant: str, to: str = "") -> float:
    """Of two variants' medians; NaN if one of them did not run."""
    figures, to = row["figures"], to or row["reference"]
    if variant not in figures or to not in figures:
        return math.nan
    return figures[variant]["median"] / figures[to]["median"]


def geometric_mean(values: Iterable[float]) -> float:
    """
    >>> round(geometric_mean([2, 8]), 6)
    4.0
    """
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def provenance(device: Tuple[str, int] = ("cpu", 0)) -> Dict[str, Any]:
    """When, on what machine, and with what; for a GPU that as well."""
    kind, number = device
    return {
        "date": date.today().isoformat(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],  # processes that ran in the last minute, this one among them
        "threads": os.environ.get("OMP_NUM_THREADS", "as many as cores"),
        "python": platform.python_version(),
        "mxnet": mx.__version__,
        "numpy": np.__version__,
        "mxsame": __version__,
        **({"gpu": gpu(number)} if kind == "gpu" else {}),
    }


def gpu(number: int) -> Dict[str, Any]:
    """A GPU, its driver, and the versions of the libraries that this process has loaded; None for what is unknown."""
    driver, device = cuda.driver(), next((each for each in cuda.devices() if each.number == number), None)
    runtime, cudnn = _version("libcudart.so.", "cudaRuntimeGetVersion"), _version("libcudnn.so.", "cudnnGetVersion")
    return {
        "name": device and device.name,
        "capability": device and "{}.{}".format(*device.capability),
        "memory": device and device.memory,  # bytes
        "driver": driver and driver.version,
        "newest_cuda": driver and driver.cuda and "{}.{}".format(*driver.cuda),
        "cuda": runtime and f"{runtime // 1000}.{runtime % 1000 // 10}",  # 11080 is 11.8
        "cudnn": cudnn and f"{cudnn // 1000}.{cudnn % 1000 // 100}.{cudnn % 100}",  # 8906 is 8.9.6
        "tf32": "off" if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0" else "allowed",
    }


def _version(library: str, function: str) -> Optional[int]:
    """The number by which a library calls its version; None if it is not loaded."""
    path = next((path for path in cuda.loaded_libraries() if os.path.basename(path).startswith(library)), None)
    if path is None:
        return None
    ask, number = getattr(ctypes.CDLL(path), function), ctypes.c_int()
    if function == "cudnnGetVersion":
        ask.restype = ctypes.c_size_t
        return int(ask())
    return number.value if ask(ctypes.byref(number)) == 0 else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
