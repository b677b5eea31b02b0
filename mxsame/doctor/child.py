"""Steps done by children of this process: a step may fail, crash or hang, and the next ones are done all the same."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

MARK = "mxsame-doctor:"  # before each report; MXNet, oneDNN and drivers print what they like between
LIMITS = (120.0, 30.0)
START = (
    "import json, runpy, sys\n"
    "sys.path[:] = json.loads(sys.argv.pop(1))\n"
    "runpy.run_module('mxsame.doctor.probe', run_name='__main__')"
)


class Result(NamedTuple):
    """What became of a step: what it found, or why it has found nothing."""

    step: str
    found: Dict[str, Any]
    error: Optional[str] = None
    kind: str = ""  # of an error: the exception's name, "crash" or "hang"


def results(
    task: str,
    steps: Sequence[str],
    *arguments: str,
    environment: Optional[Dict[str, str]] = None,
    alone: bool = False,
    limits: Sequence[float] = LIMITS,
    heard: Optional[List[str]] = None,
) -> Iterator[Result]:
    """What became of each step of a task of `mxsame.doctor.probe`, in their order.

    A child does the steps one by one; where it crashes or hangs, another goes on behind that step. With `alone` it does
    so behind every step that failed: an error on a GPU stays with the process. `limits` are seconds, for a child's
    first step, which imports MXNet, and for a later one. Lines that are no reports go to `heard`.
    """
    left = list(steps)
    while left:
        child = _Child(task, left, arguments, environment, heard)
        try:
            for place, step in enumerate(list(left)):
                result = child.result(step, limits[0] if place == 0 else limits[1])
                left.remove(step)
                yield result
                if result.kind in ("crash", "hang") or (alone and result.error):
                    break
        finally:
            child.end(hear=not left)


def shortened(error: Optional[str]) -> str:
    """The line of an error that says something: MXNet's begin with places in its source and stacks."""
    lines = [line.strip() for line in (error or "").splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"Check failed|Error|CUDA|cuDNN|killed|answer", line)] or lines
    return re.sub(r"\s+", " ", told[-1] if told else "no reason given")[:160].rstrip(".")


class _Child:
    """A process that does steps of a task, and reports each by a line."""

    def __init__(
        self,
        task: str,
        steps: Sequence[str],
        arguments: Sequence[str],
        environment: Optional[Dict[str, str]],
        heard: Optional[List[str]],
    ) -> None:
        self._lines: queue.Queue[Optional[str]] = queue.Queue()
        self._said: List[str] = [] if heard is None else heard
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._is_open = False  # whether it may still say something
        # argv: where to find this package as this process does, whatever else the child's Python finds first
        command = [sys.executable, "-c", START, json.dumps(sys.path), task, json.dumps(list(steps)), *arguments]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            self._failure = f"no process could be started: {error}"
        else:
            self._is_open = True
            threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        with process.stdout as output:  # type: ignore[union-attr]
            for line in output:
                self._lines.put(line.decode(errors="replace"))
        self._lines.put(None)

    def result(self, step: str, limit: float) -> Result:
        """What became of the step, which is the next one."""
        if self._process is None:
            return Result(step, {}, self._failure, "crash")
        try:
            while True:
                line = self._lines.get(timeout=limit)
                if line is None:
                    self._is_open = False
                    return Result(step, {}, self._how_it_ended(), "crash")
                before, mark, report = line.partition(MARK)
                if mark:
                    found = json.loads(report)
                    return Result(step, found["found"], found["error"], found["kind"])
                self._said.append(before.rstrip())
        except queue.Empty:
            self._is_open = False
            return Result(step, {}, f"no answer within {limit:g} seconds", "hang")

    def _how_it_ended(self) -> str:
        code = self._process.wait()  # type: ignore[union-attr]
        if code < 0:
            names = {int(each): each.name for each in signal.Signals}
            return f"the process was killed by {names.get(-code, f'signal {-code}')}"
        last = next((line for line in reversed(self._said) if line.strip()), "")
        return f"the process ended with exit code {code}" + (f": {last.strip()[:200]}" if last else "")

    def end(self, hear: bool) -> None:
        """Leaves no process behind; one that has done its steps is heard to its end, when it writes what it buffers."""
        try:
            while hear and self._is_open:
                line = self._lines.get(timeout=5)
                self._is_open = line is not None
                self._said += [] if line is None else [line.rstrip()]
        except queue.Empty:
            pass
        self._kill()

    def _kill(self) -> None:
        """Ends the process and those it has started, if the kernel lets go of them: a driver that hangs may not."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            pass
