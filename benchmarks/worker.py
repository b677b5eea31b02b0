"""A measurement in a process of its own, in which only the variant takes memory.

`alone("module:function", ...)` runs a function of this package in a new process. Arguments and results fit into JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MIB = 2**20


def alone(function: str, **arguments: Any) -> Any:
    """The function's result; a RuntimeError with the end of the process's output if it fails."""
    command = [sys.executable, "-m", "benchmarks.worker", function, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    if done.returncode:
        raise RuntimeError(f"{function} failed with {arguments}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def resident() -> float:
    """MiB that the process has now."""
    return _status("VmRSS")


def peak() -> float:
    """MiB that the process had at most; unlike ru_maxrss it does not count the process that started this one."""
    return _status("VmHWM")


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 / MIB for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    module, name = sys.argv[1].split(":")
    function = getattr(__import__(f"benchmarks.{module}", fromlist=[name]), name)
    print(json.dumps(function(**json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
