"""Model files are read by another process first: from some damaged ones libhdf5 never returns, in Python or elsewhere.

Its heaps are lists that it follows without a bound: a block that names itself as the next keeps it busy, and takes more
and more memory. Only another process can be ended then.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from mxsame.cli._shared import click

SECONDS = 60.0  # for a small file, on a busy machine, with the import of MXNet
BYTES_PER_SECOND = 10e6  # more time for a large one
MEMORY = 2**30  # bytes, and twice the size of the files
MARK = "mxsame-reader:"  # before what the other process reports; MXNet prints what it likes
START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])  # the child looks for packages where this process does
from mxsame.cli._first_reader import main
main(*sys.argv[2:])
"""


class FirstReader:
    """A process that reads a model, from the making of this to the end of its `with`; `wait` raises what is wrong."""

    def __init__(self, file: Path, weights: Path | None):
        self._file = file
        given = [str(path) for path in (file, weights) if path is not None]
        self._limit = SECONDS + sum(map(os.path.getsize, given)) / BYTES_PER_SECOND
        command = [sys.executable, "-c", START, json.dumps(sys.path), *given]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, **pipes, text=True)

    def __enter__(self) -> FirstReader:
        return self

    def __exit__(self, *error: Any) -> None:
        with self._process:  # closes its pipe, and waits for its end
            self._process.kill()

    def wait(self) -> None:
        """Raises `ClickException` with the error of the other process, or how it ended; then nobody else may read."""
        try:
            out, _ = self._process.communicate(timeout=self._limit)
        except subprocess.TimeoutExpired:
            reason = f"libhdf5 did not return from it within {self._limit:.0f} seconds"
        else:
            _, _, report = out.rpartition(MARK)
            if report:
                error = json.loads(report)
                if error is None:
                    return
                raise click.ClickException(error)
            reason = f"the process that read it ended with {_end(self._process.returncode)}"
        raise click.ClickException(f"{self._file} must be a whole model file: {reason}.")


def main(file: str, weights: str | None = None) -> None:
    """In the other process: reads all, and reports the error or None."""
    import numpy as np

    from mxsame.port.reading import read

    _limit_memory(MEMORY + 2 * sum(map(os.path.getsize, filter(None, (file, weights)))))
    error = None
    try:
        for layer in read(file, weights).walk():
            for array in layer.weights:
                np.asarray(array)
    except MemoryError:
        error = f"{file} must be a whole model file: it takes more memory than its size allows."
    except Exception as problem:
        error = str(problem) or type(problem).__name__
    print(f"\n{MARK}{json.dumps(error)}", flush=True)
    os._exit(0)  # MXNet's own end may not find the memory that it wants


def _end(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _limit_memory(more: int) -> None:
    """No more than this above what is taken now, where that can be told."""
    statistics: Any = Path("/proc/self/statm")
    if statistics.exists():
        taken = int(statistics.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))
