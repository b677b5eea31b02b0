"""Result files: rows of figures, and when, on what machine and with what they were measured. JSON, and as tables."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
from datetime import date
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence

import numpy as np

from benchmarks.timing import spread
from mxsame import __version__, processor, threads
from mxsame._mxnet import mx
from mxsame.cli._shared import print_table as print_columns

FOLDER = Path(__file__).parent / "results"


def row(name: str, mode: str, figures: Dict[str, List[float]], reference: str, unit: str = "s", **more: Any) -> dict:
    """One line of a table: the figures of each variant (seconds per call, MiB), and their ratio to the reference.

    >>> made = row("stem", "forward", {"symmetric": [2.0, 4.0, 3.0], "mxsame": [3.0, 3.3, 9.0]}, "symmetric")
    >>> made["figures"]["mxsame"]["median"], round(made["figures"]["mxsame"]["ratio"], 3)
    (3.3, 1.1)
    """
    baseline = spread(figures[reference])[1]
    compared = {}
    for variant, values in figures.items():
        low, median, high = spread(values)
        compared[variant] = {
            "ratio": median / baseline,
            "median": median,
            "quartiles": [low, high],
            "rounds": len(values),
        }
    return {"name": name, "mode": mode, "unit": unit, "reference": reference, "figures": compared, **more}


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


def provenance() -> Dict[str, Any]:
    """When, on what machine, and with what."""
    return {
        "date": date.today().isoformat(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],  # processes that ran in the last minute, this one among them
        "threads": threads.in_use(),
        "python": platform.python_version(),
        "mxnet": mx.__version__,
        "numpy": np.__version__,
        "mxsame": __version__,
        "tensorflow": _version("tensorflow-cpu", "tensorflow"),
        **{name: _version(name) for name in ("onnx", "onnxruntime", "tf2onnx")},
        "commit": _commit(),
    }


def save(path: Path, table: str, title: str, rows: List[dict], **more: Any) -> dict:
    """Writes a table, and `more` that it is to hold, and returns what was written."""
    made = {"table": table, "title": title, "provenance": provenance(), "settings": {}, "rows": rows, **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return made


def load(path: Path) -> dict:
    """A table that `save` wrote."""
    result = json.loads(path.read_text(encoding="utf-8"))
    missing = {"table", "title", "provenance", "settings", "rows"} - set(result)
    if missing:
        raise ValueError(f"a result file must have {', '.join(sorted(missing))}; received path={str(path)!r}")
    return result


def by_mode(rows: List[dict]) -> Dict[str, List[dict]]:
    """Rows of one mode together, in the order in which they come."""
    groups: Dict[str, List[dict]] = {}
    for each in rows:
        groups.setdefault(each["mode"], []).append(each)
    return groups


def variants(rows: List[dict]) -> List[str]:
    """All except the reference, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in row["figures"] if name != row["reference"]))


def show(result: dict) -> None:
    """One table for each mode: ratios to the reference, and over all rows their geometric mean and the worst."""
    for mode, rows in by_mode(result["rows"]).items():
        reference, names = rows[0]["reference"], variants(rows)
        unit, scale = ("ms", 1e3) if rows[0]["unit"] == "s" else (rows[0]["unit"], 1)
        lines = [
            [row["name"], f"{row['figures'][reference]['median'] * scale:.2f}", *(ratio(row, name) for name in names)]
            for row in rows
        ]
        if len(rows) > 1:
            columns = [[value for value in column if value == value] for column in list(zip(*lines))[2:]]
            lines += [["geometric mean", "", *map(geometric_mean, columns)], ["worst", "", *map(max, columns)]]
        title = f"{result['title']}: {mode}, ratio to {reference}"
        print_table(title, [result["table"], f"{reference}, {unit}", *names], lines)


def print_table(title: str, columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """Text, and numbers with two decimals; those that were not measured are left out."""
    print(title)
    texts = [
        [cell if isinstance(cell, str) else f"{cell:.2f}" if cell == cell else "-" for cell in line] for line in lines
    ]
    print_columns([columns, *texts])


def _cpu() -> str:
    """The processor, and the newest of its instruction sets that oneDNN uses."""
    return f"{processor.cpuinfo().get('model name', '')} {processor.newest()}".strip()


def _version(*names: str) -> str:
    """The version of the first of these packages that is installed, without importing it."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return "not installed"


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
