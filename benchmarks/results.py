"""Result files: rows of figures, and when, on what machine and with what they were measured. JSON, and as tables."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from mxsame.bench import figures
from mxsame.bench.figures import geometric_mean, ratio, row

__all__ = [
    "FOLDER",
    "by_mode",
    "geometric_mean",
    "load",
    "print_table",
    "provenance",
    "ratio",
    "row",
    "save",
    "show",
    "task_of",
]

FOLDER = Path(__file__).parent / "results"


def provenance(device: Tuple[str, int] = ("cpu", 0)) -> Dict[str, Any]:
    """When, on what machine, and with what."""
    packages = {name: _version(name) for name in ("onnx", "onnxruntime", "tf2onnx")}
    tensorflow = _version("tensorflow-cpu", "tensorflow")
    return {**figures.provenance(device), "tensorflow": tensorflow, **packages, "commit": _commit()}


def save(
    path: Path, table: str, title: str, rows: List[dict], device: Tuple[str, int] = ("cpu", 0), **more: Any
) -> dict:
    """Writes a table, and `more` that it is to hold, and returns what was written."""
    settings = {"device": "{}:{}".format(*device), **more.pop("settings", {})}
    made = {
        "table": table,
        "title": title,
        "provenance": provenance(device),
        "settings": settings,
        "rows": rows,
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return made


def task_of(row: dict) -> str:
    """The task that measured a row; in files from before it was recorded, the network."""
    return str(row.get("task", row.get("network", row["name"])))


def load(path: Path) -> dict:
    """A table that `save` wrote."""
    result = json.loads(path.read_text(encoding="utf-8"))
    missing = {"table", "title", "provenance", "settings", "rows"} - set(result)
    if missing:
        raise ValueError(f"a result file must have {', '.join(sorted(missing))}; received path={str(path)!r}")
    return result


def by_mode(rows: List[dict]) -> Dict[str, List[dict]]:
    """Rows of one mode together, in the order in which they come."""
    found: Dict[str, List[dict]] = {}
    for each in rows:
        found.setdefault(each["mode"], []).append(each)
    return found


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
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", min_width=8)
    for line in lines:
        table.add_row(*(cell if isinstance(cell, str) else f"{cell:.2f}" if cell == cell else "-" for cell in line))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


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
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
