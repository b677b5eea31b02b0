"""Result files: rows of figures with where, when and with what they were measured. Plain JSON."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from mxsame.bench import figures
from mxsame.bench.figures import geometric_mean, ratio, row

__all__ = ["FOLDER", "geometric_mean", "load", "provenance", "ratio", "row", "save"]

FOLDER = Path(__file__).parent / "results"


def provenance(device: Tuple[str, int] = ("cpu", 0)) -> Dict[str, Any]:
    """Where and when, and with what."""
    return {**figures.provenance(device), "tensorflow": _tensorflow(), "commit": _commit()}


def save(
    path: Path,
    table: str,
    title: str,
    rows: List[dict],
    device: Tuple[str, int] = ("cpu", 0),
    more: Optional[Dict[str, Any]] = None,
    **settings: Any,
) -> dict:
    """Writes a table, and `more` beside it, and returns what was written."""
    if device[0] == "gpu":
        settings["device"] = "{}:{}".format(*device)
    made = {"table": table, "title": title, "provenance": provenance(device), "settings": settings, "rows": rows}
    result = {**made, **(more or {})}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def load(path: Path) -> dict:
    """A table that `save` wrote."""
    result = json.loads(path.read_text(encoding="utf-8"))
    missing = {"table", "title", "provenance", "settings", "rows"} - set(result)
    if missing:
        raise ValueError(f"a result file must have {', '.join(sorted(missing))}; received path={str(path)!r}")
    return result


def _tensorflow() -> str:
    """The version, without importing it."""
    for name in ("tensorflow-cpu", "tensorflow"):
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
