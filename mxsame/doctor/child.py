"""A task done by a child process, which may fail, crash or hang: both ends of the pipe between the processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

from mxsame.installation.problems import InstallationError

MARK = "mxsame-doctor:"  # before each report; MXNet and drivers print what they like between them
START = """
import json, runpy, sys
sys.path[:] = json.loads(sys.argv.pop(1))  # the child looks for packages where this process does
runpy.run_module("mxsame.doctor.tasks", run_name="__main__")
"""

Task = Callable[..., Iterator[Dict[str, Any]]]


class Result(NamedTuple):
    """What a task has found; why it ended early, if it did; and the command that fixes that, if it is known."""

    found: Dict[str, Any]
    error: Optional[str] = None
    fix: Optional[str] = None


def run(task: str, *arguments: str, limit: float = 120.0) -> Result:
    """Has a child do a task of `mxsame.doctor.tasks` within `limit` seconds."""
    command = [sys.executable, "-c", START, json.dumps(sys.path), task, *arguments]
    streams: Dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, **streams, start_new_session=True)
    try:
        output = process.communicate(timeout=limit)[0]
        end = _end(process.returncode)
    except subprocess.TimeoutExpired as error:
        output, end = error.output or b"", f"no answer within {limit:g} seconds"
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # and the processes that it has started
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs may keep the process in the kernel
            process.wait(timeout=5)
        process.stdout.close()  # type: ignore[union-attr]
    found: Dict[str, Any] = {}
    last_line = ""
    for line in output.decode(errors="replace").splitlines():
        before, mark, report = line.partition(MARK)
        piece = json.loads(report) if mark else {}
        if "error" in piece:
            return Result(found, piece["error"], piece["fix"])
        found.update(piece)
        last_line = last_line if mark else before.strip() or last_line
    return Result(found, f"{end}: {last_line[:200]}" if last_line else end)


def _end(code: int) -> str:
    """How a process ended, by its exit code."""
    if code < 0:
        return f"the process was killed by {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"


def serve(task: Task, *arguments: str) -> None:
    """Does a task, in the child: reports each piece that it finds, and at last an error or that there was none."""

    def report(**what: Any) -> None:
        os.write(sys.__stdout__.fileno(), f"\n{MARK}{json.dumps(what)}\n".encode())  # type: ignore[union-attr]

    try:
        for found in task(*arguments):
            report(**found)
    except InstallationError as problem:
        report(error=problem.problem, fix=problem.command)
    except Exception as problem:
        report(error=str(problem) or type(problem).__name__, fix=None)
    else:
        report(error=None, fix=None)


def shortened(error: str) -> str:
    """The informative line of an error: MXNet's start with stacks and lines of its source."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    informative = [line for line in lines if re.search(r"Check failed|Error|CUDA|cuDNN|killed|answer", line)] or lines
    return re.sub(r"\s+", " ", informative[-1] if informative else "no reason given")[:160].rstrip(".")
