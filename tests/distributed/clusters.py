"""Clusters that tests start: launch.py with a program, what it prints, and what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples" / "distributed"
MARK = "MXSAME_TEST_CLUSTER"  # an environment variable of all its processes
LIMIT = 120.0  # seconds for what takes five on an idle machine


def _not_ignoring_interrupts() -> None:
    """As in a terminal; what a shell runs in the background ignores them, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Cluster:
    """launch.py in a process, started at once; its output is collected until it ends."""

    def __init__(self, program: Path, *arguments: object, options: tuple = ("--workers", "2"), **environment: str):
        self.mark = uuid.uuid4().hex
        launch = [sys.executable, EXAMPLES / "launch.py", *options, "--", sys.executable, program, *arguments]
        self.popen = subprocess.Popen(
            list(map(str, launch)),
            env={**os.environ, **environment, MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_not_ignoring_interrupts,
        )
        self.output = ""

    def read_until(self, pattern: str) -> re.Match:
        """Read lines up to one in which the pattern is found."""
        for line in self.popen.stdout:
            self.output += line
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError(f"no line has {pattern!r}:\n{self.output}")

    def wait(self, limit: float = LIMIT) -> int:
        """Its exit code; all output is read."""
        try:
            self.output += self.popen.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise AssertionError(f"launch.py still runs after {limit} s:\n{self.output}") from None
        return self.popen.returncode

    def last_line(self) -> str:
        return self.output.rstrip().split("\n")[-1]

    def losses(self) -> dict[int, float]:
        """What the first worker printed, by step."""
        return {int(step): float(loss) for step, loss in re.findall(r"step (\d+)/\d+ loss (\S+)", self.output)}

    def left(self) -> list[str]:
        """The command lines of processes that were started for this cluster and still run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it has just ended, or is a zombie
                pass
        return found

    def wait_until_none_is_left(self, limit: float = 30.0) -> None:
        deadline = time.monotonic() + limit
        while self.left():
            assert time.monotonic() < deadline, self.left()
            time.sleep(0.05)


def finished(program: Path, *arguments: object, **how: object) -> Cluster:
    """A cluster that has ended well, without leaving a process."""
    cluster = Cluster(program, *arguments, **how)
    assert cluster.wait() == 0, cluster.output
    assert not cluster.left()
    return cluster
