"""Reads files in a child process, with limits of time and memory."""

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

SECONDS = 60.0  # limit for a small file on a busy machine, including the import of MXNet
BYTES_PER_SECOND = 10e6  # a file of so many bytes has one more second
MEMORY = 2**30  # bytes that reading may allocate, in addition to three times the size of the file
STACK, HEAP = 2**23, 2**26  # address space that a thread reserves: for its stack, if that is unlimited, and for malloc
TEAMS = 2  # teams of OpenMP threads: one for MXNet's engine, and one for the thread that calls MXNet


def run_in_child(function: Callable[..., int], files: Sequence[str], argument: Any) -> int:
    """Calls a function in a child process, and returns the exit code that the function returns.

    The function gets the argument, and `limits`, a context manager in which it reads the files. The process is killed
    if reading takes too long: on some damaged files libhdf5 loops forever, and nothing less would stop it."""
    size = sum(map(os.path.getsize, files))
    seconds = round(SECONDS + size / BYTES_PER_SECOND)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=child, args=(function, seconds, MEMORY + 3 * size, argument))
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
    """Calls the function in the child process, and exits without MXNet's cleanup, which waits for MXNet's threads.

    The alarm has no handler, so it always ends the process, even if the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives Ctrl-C, too, and kills this process
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
    """Limits the memory that the process may allocate in the block, on systems with /proc; the end of the block cancels
    the alarm. MXNet must have been imported before, and must have nothing left to compute at the end."""
    statistics: Any = Path("/proc/self/statm")
    limits, (stack, _) = resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_STACK)
    if statistics.exists():
        used = int(statistics.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        per_thread = HEAP + (STACK if stack == resource.RLIM_INFINITY else stack)
        resource.setrlimit(resource.RLIMIT_AS, (used + memory + TEAMS * threads.in_use() * per_thread, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.alarm(0)
