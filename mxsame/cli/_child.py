"""Files are read in another process, with limits of time and memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from mxsame.cli._shared import click

SECONDS = 60.0  # to read a small file on a busy machine, the import of MXNet included
BYTES_PER_SECOND = 10e6  # more time for a large one
MEMORY = 2**30  # bytes to read a file, and three times its size


def run_in_child(function: Callable[..., int], files: Sequence[str], options: dict) -> int:
    """Runs a function that reads files in another process, which is killed if reading takes too long: libhdf5 follows
    some lists of damaged files without end, and then only a process can be stopped. Returns its exit code.

    Called with the options and with `limits`, a context manager in which it reads."""
    size = sum(map(os.path.getsize, files))
    limit = SECONDS + size / BYTES_PER_SECOND
    new = multiprocessing.get_context("spawn")
    reading, ready = new.Pipe(duplex=False)
    process = new.Process(target=child, args=(function, ready, MEMORY + 3 * size, options))
    process.start()
    ready.close()
    try:
        if not reading.poll(limit):  # true once `ready` is closed, which the end of the process does, too
            reason = f"reading it took more than {limit:.0f} seconds. It may be damaged, or the machine is busy"
            raise click.ClickException(f"{files[0]} must be a whole model file: {reason}.")
        process.join()
    finally:
        process.kill()
        process.join()
    code = process.exitcode or 0
    if code < 0:
        raise click.ClickException(f"the process that converts {files[0]} ended with {signal.Signals(-code).name}.")
    return code


def child(function: Callable[..., int], ready: Any, memory: int, options: dict) -> None:
    """In the other process: calls the function; it closes `ready` when the files are read."""
    try:
        code = function(**options, limits=partial(reading_limits, ready, memory))
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without MXNet's own cleanup, which may run out of memory


@contextlib.contextmanager
def reading_limits(ready: Any, memory: int) -> Iterator[None]:
    """While a file is read, the process may allocate this many bytes more, on systems with /proc."""
    statistics: Any = Path("/proc/self/statm")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if statistics.exists():
        used = int(statistics.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        ready.close()
