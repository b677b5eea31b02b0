"""Starts Ray, on this machine or on the cluster of RAY_ADDRESS, and MXNet's parameter server in processes of Ray's."""

from __future__ import annotations

import os
import socket
from typing import Any, Callable, Iterator

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its use; it reads this when it starts

os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # `lines` raises the first; it would print the others

import ray

import server

PASSED_ON = ("MXNET_", "DMLC_", "PS_")  # environment variables that MXNet reads in each of its processes


class Failed(Exception):
    """A process died, raised, or did nothing for too long; the message names it and says why."""


def start(cpus: int) -> None:
    """Start Ray with so many CPUs, or connect to the cluster of RAY_ADDRESS."""
    if "RAY_ADDRESS" in os.environ:
        ray.init()
    else:
        ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level="warning")


@ray.remote
class Process:
    """The scheduler, a server or a worker of MXNet's parameter server."""

    def address(self) -> tuple[str, int]:
        """This machine's, with a port that is free."""
        with socket.socket() as opened:
            opened.bind(("", 0))
            return ray.util.get_node_ip_address(), opened.getsockname()[1]

    def prepare(self, environment: dict[str, str]) -> None:
        """Set what MXNet reads when it is imported, which the arguments of `run` may do."""
        os.environ.update(environment, DMLC_NODE_HOST=ray.util.get_node_ip_address())

    def run(self, program: Callable[..., Iterator[str] | None], *arguments: Any) -> Iterator[str]:
        yield from program(*arguments) or ()


def run(
    program: Callable[[Any], Iterator[str]],
    options: Any,
    workers: int,
    servers: int,
    cpus: int = 1,
    patience: float = 300,
) -> Iterator[str]:
    """Run a program in each worker of a parameter server, and yield the lines of all until the workers have finished.

    Parameters
    ----------
    program : callable
        Called with `options`; its lines come one by one.
    workers, servers : int
    cpus : int
        CPUs of each worker, which are also the threads it uses.
    patience : float
        Seconds in which some line must come. MXNet itself waits without end for a process that is gone.

    Raises
    ------
    Failed
        As soon as a process has failed; all others are ended then.
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
    """What processes yield, until all workers have finished."""
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
