"""Starts MXNet's parameter server: the scheduler, servers and workers, each a process that runs the same command.

On one machine, with free ports; all processes end when one fails:

    python examples/distributed/launch.py --workers 2 --servers 1 -- python examples/distributed/train.py --out run

On a cluster, whose manager starts the processes and numbers them: 0 is the scheduler, then servers, then workers:

    python launch.py --workers 8 --servers 4 --process 5 --root node1:9092 -- python train.py --out /shared/run

Exit codes: 0 when all workers finished, 1 when a process failed, 2 for wrong options, 130 after Ctrl-C. The standard
library is all it needs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

ROLES = ("scheduler", "server", "worker")
GRACE = 10.0  # seconds from SIGTERM to SIGKILL
DEPARTURE = 60.0  # seconds in which all others end after a worker has; MXNet ends its processes at a common barrier
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """A process ended that should not have, or did not end; the message names it and says why."""


def role_of(number: int, servers: int, workers: int) -> tuple[str, int]:
    """The role of a process, and its index among those of the role.

    >>> [role_of(number, servers=1, workers=2) for number in range(4)]
    [('scheduler', 0), ('server', 0), ('worker', 0), ('worker', 1)]
    """
    if not 0 <= number <= servers + workers:
        raise ValueError(
            f"number must be 0 to {servers + workers}, for {servers} servers and {workers} workers; "
            f"received number={number}"
        )
    if number == 0:
        return "scheduler", 0
    return ("server", number - 1) if number <= servers else ("worker", number - 1 - servers)


def environment(role: str, host: str, port: int, servers: int, workers: int) -> dict[str, str]:
    """What MXNet reads when it is imported."""
    return {
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": host,
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_NUM_WORKER": str(workers),
        "PYTHONUNBUFFERED": "1",
    }


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nothing listens on, in ascending order."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return sorted(each.getsockname()[1] for each in sockets)


class Process:
    """A process of the cluster, in a process group of its own. Its lines are printed with its name before them."""

    def __init__(self, name: str, command: list[str], more: dict[str, str], core: int | None):
        self.name = name
        self.last = ""  # line of output that is not empty

        def prepare() -> None:
            if core is not None:
                os.sched_setaffinity(0, {core})
            # Linux ends it when the launcher is killed, which then can end nothing itself.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        self.popen = subprocess.Popen(
            command,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=prepare,
        )
        self.reader = threading.Thread(target=self._print_lines, daemon=True)
        self.reader.start()

    def _print_lines(self) -> None:
        for line in self.popen.stdout:
            self.last = line.strip() or self.last
            print(f"[{self.name}] {line}", end="", flush=True)

    def ended(self) -> bool:
        """Whether it has; what it started itself is ended with it."""
        if self.popen.returncode is None:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT  # not reaped yet: the number is still its own
            if os.waitid(os.P_PID, self.popen.pid, options) is None:
                return False
            self.send(signal.SIGKILL)
            self.popen.wait()
            self.reader.join(timeout=GRACE)
        return True

    def send(self, number: int) -> None:
        """A signal to its whole group; nothing once it has been reaped."""
        if self.popen.returncode is None:
            os.killpg(self.popen.pid, number)

    def __str__(self) -> str:
        return f"{self.name} (process {self.popen.pid})"

    def why(self) -> str:
        """How it ended."""
        code = self.popen.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self} {how}" + (f"; its last line: {self.last}" if self.last else "")


def run(
    command: list[str], workers: int, servers: int, port: int | None = None, cores: list[int] | None = None
) -> None:
    """Run a command in each process of a cluster on this machine, until all have ended.

    Parameters
    ----------
    command : list of strings
    workers, servers : int
    port : int, optional
        The scheduler's; a free one by default.
    cores : list of ints, optional
        Workers are pinned to these in turn; scheduler and servers run on any.

    Raises
    ------
    Failed
        When a process has failed; none is left then.
    """
    ports = free_ports(1 + servers + workers)
    if port is not None:
        ports[0] = port
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads_each(workers))}
    processes: list[Process] = []
    try:
        for number, own in enumerate(ports):
            role, index = role_of(number, servers, workers)
            more = environment(role, "127.0.0.1", ports[0], servers, workers)
            # Ranks go by ports where the host is the same, so a worker's rank is the number in its name.
            more.update(threads, DMLC_NODE_HOST="127.0.0.1", PORT=str(own))
            core = cores[index % len(cores)] if cores and role == "worker" else None
            name = role if role == "scheduler" else f"{role} {index}"
            processes.append(Process(name, command, more, core))
        wait(processes)
    finally:
        end(processes)


def threads_each(workers: int) -> int:
    """Threads of a worker when all share this machine's cores."""
    return max(1, len(os.sched_getaffinity(0)) // workers)


def wait(processes: list[Process]) -> None:
    """Until all have ended; raises `Failed` as soon as one has failed."""
    remaining = list(processes)
    deadline = float("inf")
    while remaining:
        for process in [each for each in remaining if each.ended()]:
            remaining.remove(process)
            if process.popen.returncode != 0:
                raise Failed(process.why())
            if process.name.startswith("worker"):
                deadline = min(deadline, time.monotonic() + DEPARTURE)
        if remaining and time.monotonic() > deadline:
            raise Failed(f"{', '.join(map(str, remaining))} did not end {DEPARTURE:.0f} s after a worker had finished")
        time.sleep(0.05)


def end(processes: list[Process]) -> None:
    """Ends those that still run: SIGTERM, and SIGKILL for what has not ended some seconds later."""
    remaining = [each for each in processes if not each.ended()]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in remaining:
            process.send(number)
            process.send(signal.SIGCONT)  # one that is stopped gets SIGTERM only then
        deadline = time.monotonic() + GRACE
        while remaining and time.monotonic() < deadline:
            time.sleep(0.05)
            remaining = [each for each in remaining if not each.ended()]


def exec_as(number: int, command: list[str], workers: int, servers: int, root: str) -> None:
    """Become the process of that number: the cluster's manager has started this one."""
    host, _, port = root.rpartition(":")
    role, _ = role_of(number, servers, workers)
    os.environ.update(environment(role, host, int(port), servers, workers))
    if role == "scheduler":
        os.environ["DMLC_USE_KUBERNETES"] = "1"  # it listens on all interfaces; it cannot listen on a name
    os.execvp(command[0], command)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], usage="%(prog)s [options] -- command [argument ...]"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--restarts", type=int, default=0, help="how often all start anew after one has failed")
    parser.add_argument("--port", type=int, help="of the scheduler; a free one by default")
    parser.add_argument("--cores", help="as 0,1: workers are pinned to these, in turn")
    parser.add_argument("--process", type=int, help="become this process of a cluster, instead of starting all")
    parser.add_argument("--root", help="HOST:PORT of the scheduler, with --process")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- command")
    options = parser.parse_args(arguments)
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not options.command:
        parser.error("a command must follow --")
    for name, least in (("workers", 1), ("servers", 1), ("restarts", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name} must be at least {least}; received {getattr(options, name)}")
    if (options.process is None) != (options.root is None):
        parser.error("--process and --root belong together")
    if options.root is not None and not options.root.rpartition(":")[2].isdecimal():
        parser.error(f"--root must be HOST:PORT; received {options.root}")
    if options.process is not None and not 0 <= options.process <= options.servers + options.workers:
        parser.error(
            f"--process must be 0 to {options.servers + options.workers}, for {options.servers} servers and "
            f"{options.workers} workers; received {options.process}"
        )
    try:
        options.cores = [int(core) for core in options.cores.split(",")] if options.cores else None
    except ValueError:
        parser.error(f"--cores must be numbers of cores, as 0,1; received {options.cores}")
    if options.cores and not set(options.cores) <= os.sched_getaffinity(0):
        parser.error(f"--cores must be among {sorted(os.sched_getaffinity(0))}; received {options.cores}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    if options.process is not None:
        exec_as(options.process, options.command, options.workers, options.servers, options.root)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # through `finally`, which ends all
    for attempt in range(options.restarts + 1):
        try:
            run(options.command, options.workers, options.servers, options.port, options.cores)
            return 0
        except Failed as failure:
            print(f"launch: {failure}", file=sys.stderr, flush=True)
            if attempt < options.restarts:
                print(f"launch: start {attempt + 2} of {options.restarts + 1}", file=sys.stderr, flush=True)
        except FileNotFoundError as error:
            print(f"launch: cannot run {shlex.join(options.command)}: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
