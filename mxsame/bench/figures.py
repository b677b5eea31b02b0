"""Rows of figures: medians, quartiles and ratios of what was measured, and where that was. Plain JSON."""

from __future__ import annotations

import math
import os
import platform
from datetime import date
from pathlib import Path
from typing import Any, Dict, Iterable, List

import numpy as np

from mxsame import __version__
from mxsame._mxnet import mx
from mxsame._timing import spread


def row(name: str, mode: str, figures: Dict[str, List[float]], reference: str, unit: str = "s", **more: Any) -> dict:
    """One line of a table: the figures of each contestant (seconds per call, MiB), and their ratio to the reference.

    >>> made = row("stem", "forward", {"symmetric": [2.0, 4.0, 3.0], "mxsame": [3.0, 3.3, 9.0]}, "symmetric")
    >>> made["figures"]["mxsame"]["median"], round(made["figures"]["mxsame"]["ratio"], 3)
    (3.3, 1.1)
    """
    limit = spread(figures[reference])[1]
    found = {}
    for contestant, values in figures.items():
        low, median, high = spread(values)
        found[contestant] = {
            "ratio": median / limit,
            "median": median,
            "quartiles": [low, high],
            "rounds": len(values),
        }
    return {"name": name, "mode": mode, "unit": unit, "reference": reference, "figures": found, **more}


def ratio(row: dict, contestant: str, to: str = "") -> float:
    """Of two contestants' medians; NaN where one of them did not run."""
    figures, to = row["figures"], to or row["reference"]
    if contestant not in figures or to not in figures:
        return math.nan
    return figures[contestant]["median"] / figures[to]["median"]


def geometric_mean(values: Iterable[float]) -> float:
    """
    >>> round(geometric_mean([2, 8]), 6)
    4.0
    """
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def provenance() -> Dict[str, Any]:
    """Where and when, and with what."""
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
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
