"""What there is to know of a GPU, in one file: the steps of `python -m benchmarks gpu`.

Each step is a process of its own under a time limit: it may fail, crash or hang. The file is written before and after
each, so that it is whole whenever the machine is taken away; what a table had measured by then is in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
FILE = "{file}"  # in a command: where the step writes its result
Step = Tuple[str, List[str], float]  # name, arguments of Python, seconds


def steps(device: str) -> List[Step]:
    """What matters most comes first."""
    table = ["-m", "benchmarks"]
    options = ["--device", device, "--no-picture", "--out", FILE]
    found = [
        ("doctor", ["-m", "mxsame", "doctor", "--json"], 900.0),
        ("tests", ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "tests/test_gpu.py"], 1800.0),
    ]
    for name in ("networks", "layers", "planner", "memory", "sizes"):
        found.append((name, [*table, name, *options], 2400.0))
    return found


def run(todo: List[Step], out: Path, tell: Callable[[str], Any]) -> bool:
    """Does every step, with TF32 off; whether all went well."""
    done: List[Dict[str, Any]] = []
    out.parent.mkdir(parents=True, exist_ok=True)
    for name, arguments, limit in todo:
        done.append({"name": name, "command": " ".join(arguments), "status": "running"})
        _write(out, done)
        done[-1].update(outcome(arguments, limit))
        _write(out, done)
        tell(f"{name}: {done[-1]['status']}, {done[-1]['seconds']} s")
    return all(step["status"] == "ok" for step in done)


def _write(out: Path, done: List[Dict[str, Any]]) -> None:
    out.write_text(json.dumps({"steps": done}, indent=1) + "\n", encoding="utf-8")


def outcome(arguments: List[str], limit: float) -> Dict[str, Any]:
    """The status of a step, the end of its output, and its result file if it wrote one."""
    environment = {**os.environ, "NVIDIA_TF32_OVERRIDE": "0"}
    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "output"), "w+", encoding="utf-8") as output:
        file, started = Path(folder, "result.json"), time.monotonic()
        command = [sys.executable, *(str(file) if part == FILE else part for part in arguments)]
        streams: Dict[str, Any] = {"stdout": output, "stderr": subprocess.STDOUT}
        try:
            code = subprocess.run(command, cwd=ROOT, env=environment, timeout=limit, **streams).returncode
            status = "ok" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            status = f"ended after {limit:g} s"
        output.seek(0)
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        return {
            "status": status,
            "seconds": round(time.monotonic() - started, 1),
            "output": output.read()[-20000:],
            "result": found,
        }
