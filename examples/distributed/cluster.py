"""Starts Ray, on this machine or on the cluster of RAY_ADDRESS, and MXNet's parameter server in processes of Ray's."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

# Ray reads these when it is imported or starts.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report its use
os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # `lines` raises the first; it would print the others
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a warning about GPUs, which nothing here uses

try:
    import pyarrow  # noqa: F401 - score.py needs it
    import ray
except ModuleNotFoundError as error:
    command = "python -m pip install -r examples/distributed/requirements.txt"
    sys.exit(f"{Path(sys.argv[0]).stem}: {error.name} must be installed: {command}")

import server

PASSED_ON = ("MXNET_", "DMLC_", "PS_")  # environment variables that MXNet reads in each of its processes
STARTS = 3  # Ray gives up after 30 s, which a busy machine may need for its processes
DIE_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


class Failed(Exception):
    """A process died, raised an error, or did nothing for too long; the message names it and the reason."""


def start(cpus: int) -> None:
    """Starts Ray with this number of CPUs, or connects to the cluster of RAY_ADDRESS, unless Ray is running."""
    if ray.is_initialized():
        return
    if "RAY_ADDRESS" in os.environ:
        ray.init()
        return
    logging.getLogger("ray").setLevel(logging.ERROR)  # it would print that processes authenticate themselves by a token
    for attempt in range(STARTS):
        try:
            ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level="error")
            return
        except Exception as error:  # of no type of its own
            ray.shutdown()
            if attempt + 1 == STARTS or "timed out" not in str(error):
                raise Failed(f"Ray did not start: {error}") from error


def stop() -> None:
    """Stops Ray, or disconnects from the cluster. Does nothing if Ray is not running."""
    ray.shutdown()


def end_with_ray() -> None:
    """Makes sure that this process ends when it exits, and when Ray ends. Call it after the import of MXNet.

    At exit MXNet waits for its threads, which may take forever. So the process exits before MXNet's handlers run, and
    on Linux it is killed with its parent, which is Ray's daemon of this machine.
    """
    atexit.register(os._exit, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


@ray.remote
class Process:
    """The scheduler, a server or a worker of MXNet's parameter server."""

    def address(self) -> tuple[str, int]:
        """Returns the address of this machine, and a free port."""
        with socket.socket() as opened:
            opened.bind(("", 0))
            return ray.util.get_node_ip_address(), opened.getsockname()[1]

    def prepare(self, environment: dict[str, str]) -> None:
        """Sets what MXNet reads when it is imported, which unpickling the arguments of `run` may do."""
        os.environ.update(environment, DMLC_NODE_HOST=ray.util.get_node_ip_address())

    def run(self, program: Callable[..., Iterator[str] | None], *arguments: Any) -> Iterator[str]:
        end_with_ray()
        yield from program(*arguments) or ()


def run(
    program: Callable[[Any], Iterator[str]],
    options: Any,
    workers: int,
    servers: int,
    cpus: int = 1,
    patience: float = 300,
) -> Iterator[str]:
    """Runs a program in each worker of a parameter server, and yields the lines of all until the workers have finished.

    Parameters
    ----------
    program : callable
        Called with `options`; its lines come one by one.
    workers, servers : int
    cpus : int
        CPUs of each worker, which are also the threads it uses.
    patience : float
        Seconds from one line of any process to the next. MXNet itself waits forever for a process that is gone.

    Raises
    ------
    Failed
        As soon as a process fails. All others are killed.
    """
    names = [
        "scheduler",
        *(f"server {index}" for index in range(servers)),
        *(f"worker {index}" for index in range(workers)),
    ]
    processes = {
        name: Process.options(num_cpus=cpus if name.startswith("worker") else 1, scheduling_strategy="SPREAD").remote()
        for name in names
    }
    try:
        host, port = ray.get(processes["scheduler"].address.remote(), timeout=patience)
        environment = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        environment.update(DMLC_PS_ROOT_URI=host, DMLC_PS_ROOT_PORT=str(port))
        environment.update(DMLC_NUM_SERVER=str(servers), DMLC_NUM_WORKER=str(workers))
        running = {}
        for name, process in processes.items():
            role = name.split()[0]
            process.prepare.remote({**environment, "DMLC_ROLE": role})
            running[process.run.remote(*((program, options) if role == "worker" else (server.serve,)))] = name
        yield from lines(running, patience)
    except ray.exceptions.GetTimeoutError:
        raise Failed(f"no process started in {patience:g} s: has the cluster {len(names)} free CPUs?") from None
    finally:
        for process in processes.values():
            ray.kill(process)


def lines(running: dict[ray.ObjectRefGenerator, str], patience: float) -> Iterator[str]:
    """Yields what the processes yield, until all workers have finished."""
    last = "its start"
    while any(name.startswith("worker") for name in running.values()):
        ready, _ = ray.wait(list(running), timeout=patience)
        if not ready:
            raise Failed(f"nothing was done in {patience:g} s after {last!r}: is a machine gone, or a port blocked?")
        try:
            last = ray.get(next(ready[0]))
            yield last
        except StopIteration:
            del running[ready[0]]
        except ray.exceptions.RayActorError:
            raise Failed(f"{running[ready[0]]} died") from None
        except ray.exceptions.RayTaskError as error:
            raise Failed(f"{running[ready[0]]}: {type(error.cause).__name__}: {error.cause}") from error
