"""A measurement in a process of its own, in which only the variant takes memory, and only its runtime has threads.

`alone("module:function", ...)` runs a function of this package in a new process. Arguments and results fit into JSON.
:class:`Remote` keeps the process, and calls the function that the first one returns.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import numpy as np

from benchmarks.timing import timed

MIB = 2**20
ROOT = Path(__file__).parent.parent


def alone(function: str, **arguments: Any) -> Any:
    """The function's result; a RuntimeError with the end of the process's output if it fails."""
    done = subprocess.run(_command(function, arguments), capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{function} failed with {arguments}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


class Remote:
    """A variant in a process of its own: "module:function" returns its call, without arguments. Called, it returns the
    output as an array. Two runtimes in one process slow each other down: a training step of MobileNetV2 takes 1.7 times
    as long next to TensorFlow in the same process."""

    def __init__(self, function: str, **arguments: Any):
        self._folder = tempfile.TemporaryDirectory()
        self._file = f"{self._folder.name}/output.npy"
        command = [*_command(function, arguments), self._file]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, **pipes, text=True, cwd=ROOT)

    def __call__(self) -> np.ndarray:
        self.timed(0)
        return np.load(self._file)

    def timed(self, repeats: int) -> float:
        """The seconds of all calls; with 0, one is not timed, and its output is kept."""
        print(repeats, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._process.args} ended with exit status {self._process.wait()}")
        return float(answer)

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


@contextlib.contextmanager
def closing(calls: Dict[str, Callable]) -> Iterator[Dict[str, Callable]]:
    """Ends the processes of those that are :class:`Remote`."""
    try:
        yield calls
    finally:
        for call in calls.values():
            if isinstance(call, Remote):
                call.close()


def serve(call: Callable[[], Any], file: str) -> None:
    """Answers the lines of a :class:`Remote`."""
    for line in sys.stdin:
        if not int(line):
            np.save(file, call())
        print(timed(call, int(line)), flush=True)


def _command(function: str, arguments: dict) -> list:
    return [sys.executable, "-m", "benchmarks.worker", function, json.dumps(arguments)]


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
    result = function(**json.loads(sys.argv[2]))
    if len(sys.argv) > 3:
        serve(result, sys.argv[3])
    else:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
