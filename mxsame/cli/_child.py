"""Files are read in another process, with limits of time and memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from mxsame import threads
from mxsame.cli._shared import click, flushed_output

SECONDS = 60.0  # to read a small file on a busy machine, the import of MXNet included
BYTES_PER_SECOND = 10e6  # more time for a large one
MEMORY = 2**30  # bytes to read a file, and three times its size
STACK, HEAP = 2**23, 2**26  # address space that each thread reserves: its stack, if that has no limit, and its malloc's
TEAMS = 2  # teams of OpenMP threads: one of MXNet's engine, one of the thread that calls MXNet


def run_in_child(function: Callable[..., int], files: Sequence[str], argument: Any) -> int:
    """Runs a function that reads files in another process, which ends if reading takes too long: libhdf5 follows some
    lists of damaged files without end, and then only a process can be stopped. Returns its exit code.

    Called with the argument and with `limits`, a context manager in which it reads."""
    size = sum(map(os.path.getsize, files))
    seconds = round(SECONDS + size / BYTES_PER_SECOND)
    new = multiprocessing.get_context("spawn")
    process = new.Process(target=child, args=(function, seconds, MEMORY + 3 * size, argument))
    process.start()
    try:
        process.join()
    finally:
        process.kill()
        process.join()
    code = process.exitcode or 0
    if code == -signal.SIGALRM:
        reason = f"reading it took more than {seconds} seconds. It may be damaged, or the machine is busy"
        raise click.ClickException(f"{files[0]} must be a whole model file: {reason}.")
    if code < 0:
        raise click.ClickException(f"the process that converts {files[0]} ended with {signal.Signals(-code).name}.")
    return code


def child(function: Callable[..., int], seconds: int, memory: int, argument: Any) -> None:
    """In the other process: calls the function, and ends without MXNet's own cleanup, which waits for its threads.

    The alarm has no handler, so it ends the process whatever that does, and even if the first process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process gets Ctrl-C, too, and kills this one
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    code = 1
    try:
        with flushed_output():
            code = function(argument, limits=partial(reading_limits, memory))
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except SystemExit as error:
        click.echo(error.code, err=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


@contextlib.contextmanager
def reading_limits(memory: int) -> Iterator[None]:
    """While a file is read, the process may allocate this many bytes more, on systems with /proc, and has the time that
    is left of its alarm. MXNet is imported, and all that it has to compute must be done at the end."""
    statistics: Any = Path("/proc/self/statm")
    limits, (stack, _) = resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_STACK)
    if statistics.exists():
        used = int(statistics.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        each = HEAP + (STACK if stack == resource.RLIM_INFINITY else stack)
        resource.setrlimit(resource.RLIMIT_AS, (used + memory + TEAMS * threads.in_use() * each, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.alarm(0)
