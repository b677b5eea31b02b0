"""Sets how many threads MXNet uses, and keeps them spinning between operators.

MXNet divides an operator among OpenMP threads. On x86, MXNet 1.9.1 takes half of the processors
(`src/engine/openmp.cc`), which is right only if every core has two hardware threads. :func:`variables_for_mxnet` makes
it use all cores that the process may use.

The OpenMP runtime of GCC, libgomp, has a team of threads for each thread that uses it. Between two operators a team
busy-waits, unless all teams together have more threads than there are processors: then they sleep almost at once, and
small operators take twice as long. MXNet's engine has one team. The thread that calls MXNet gets one of its own when it
copies a large array, or reads a blocked one. :func:`end_own_team` ends that team.

If other processes keep the processors busy, threads that busy-wait take time from the threads for which they wait, and
small operators take ten times as long, or more. So in a process that starts on such a machine, threads sleep.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

SETTING = "MXSAME_THREADS"  # 0: MXNet's own default; another number: that many threads
MAX_THREADS = "MXNET_OMP_MAX_THREADS"
MXNET_VARIABLES = ("OMP_NUM_THREADS", MAX_THREADS)
WAIT_POLICY = "OMP_WAIT_POLICY"
WAIT_VARIABLES = (WAIT_POLICY, "GOMP_SPINCOUNT")
MAX_LOAD = 2.0  # runnable threads per processor, one-minute average
MAX_PRESSURE = 50.0  # percent of the last ten seconds in which a thread waited for a CPU (PSI)
ENGINES_OPENMP = ("5mxnet6engine6OpenMP3GetEv", "K5mxnet6engine6OpenMP28GetRecommendedOMPThreadCountEb")
PAUSE_TEAMS, SOFT = "omp_pause_resource_all", 1  # OpenMP 5.0; "soft" keeps what cannot be created again
LLVM_SYMBOL = "__kmpc_fork_call"  # the OpenMP runtimes of LLVM and Intel export it


# -- before MXNet is imported


class CpuLimits(NamedTuple):
    """The processors that a process may use.

    >>> CpuLimits(processors=8, cores=4, quota=2.5).threads
    2
    """

    processors: int  # hardware threads
    cores: int  # cores to which these belong
    quota: Optional[float]  # the number of processors whose full time may be used; None for no limit

    @property
    def threads(self) -> int:
        """One thread for each core, but no more than the quota can keep running."""
        return self.cores if self.quota is None else max(1, min(self.cores, int(self.quota)))


def cpu_limits(root: Path = Path("/")) -> CpuLimits:
    """Returns the limits of this process; `root` is the root of Linux's file system."""
    processors = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    cores = {_text(root / topology.format(number)) or str(number) for number in processors}
    return CpuLimits(len(processors), len(cores), min(_quotas(root), default=None))


def _quotas(root: Path) -> Iterator[float]:
    """Yields the quotas of the control groups, version 1 and 2, that the process is in."""
    groups = [line.split(":", 2) for line in _text(root / "proc/self/cgroup").splitlines()]
    for line in _text(root / "proc/self/mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        (kind, *options), (group_root, mount_point) = source.split(), mount.split()[3:5]
        if kind not in ("cgroup", "cgroup2") or (kind == "cgroup" and "cpu" not in options[-1].split(",")):
            continue
        controller = "cpu" if kind == "cgroup" else ""
        for group in (path for _, controllers, path in groups if controller in controllers.split(",")):
            inside = os.path.relpath(group, group_root)
            folder = root / mount_point.lstrip("/") / ("." if inside.startswith("..") else inside)
            for each in (folder, *folder.parents):
                yield from _quota(each)


def _quota(folder: Path) -> List[float]:
    """Returns the quota of one control group, in a list; [] if it has none."""
    files = ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    texts = [" ".join(_text(folder / name) for name in names).split() for names in files]
    return [int(text[0]) / int(text[1]) for text in texts if len(text) == 2 and text[0] not in ("max", "-1")]


def _text(path: Path) -> str:
    """Returns the content of a file; "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def invalid_variable() -> Optional[str]:
    """Returns the name of an environment variable whose value is not a number of threads, with which MXNet would end
    the process; None if all are valid."""
    texts = {name: os.environ.get(name) for name in (SETTING, *MXNET_VARIABLES)}
    return next((name for name, text in texts.items() if text and not text.isdecimal()), None)


def requested() -> Optional[int]:
    """Returns the number in `MXSAME_THREADS`; None if it is not set."""
    text = os.environ.get(SETTING)
    return int(text) if text else None


def threads_for_mxnet() -> Optional[int]:
    """Returns the number of threads for MXNet; None if it is left to MXNet or set by MXNet's own variables."""
    if requested() == 0 or any(map(os.environ.get, MXNET_VARIABLES)):
        return None
    return requested() or cpu_limits().threads


def is_overloaded(root: Path = Path("/")) -> bool:
    """Returns whether far more threads want to run than the machine has processors. Only Linux reports it."""
    load, pressure = _text(root / "proc/loadavg").split(), _text(root / "proc/pressure/cpu").split()
    if not load or float(load[0]) < MAX_LOAD * (os.cpu_count() or 1):
        return False
    return (
        not pressure or float(pressure[1].partition("=")[2]) > MAX_PRESSURE
    )  # the load counts threads that wait for a disk, too


def should_sleep() -> bool:
    """Returns whether MXNet's threads are to sleep between operators; False if the user decides how they wait."""
    return requested() != 0 and not any(map(os.environ.get, WAIT_VARIABLES)) and is_overloaded()


@contextlib.contextmanager
def variables_for_mxnet() -> Iterator[None]:
    """Sets the variables of MXNet and its OpenMP within the `with` block, in which MXNet is imported.

    MXNet reads them once. They are unset afterwards, since a child process may have other cores.
    """
    global set_variables
    count = threads_for_mxnet()
    set_variables = {} if count is None else {MAX_THREADS: str(count)}
    set_variables.update({WAIT_POLICY: "passive"} if should_sleep() else {})
    os.environ.update(set_variables)
    try:
        yield
    finally:
        for name in set_variables:
            del os.environ[name]


set_variables: Dict[str, str] = {}  # the variables that this process has set for MXNet's import


# -- after MXNet is imported


def _library() -> Any:
    """Returns MXNet's shared library; None if it is not loaded."""
    return getattr(sys.modules.get("mxnet.base"), "_LIB", None)


def in_use() -> int:
    """Returns the number of threads among which MXNet divides an operator, as MXNet's engine reports it."""
    library = _library()
    try:
        openmp, recommended = (library[f"_ZN{name}"] for name in ENGINES_OPENMP)
    except AttributeError:  # a build that does not export these functions
        return int(library.omp_get_max_threads())
    openmp.restype = ctypes.c_void_p
    return int(recommended(ctypes.c_void_p(openmp()), True))


def end_own_team() -> None:
    """Ends the calling thread's OpenMP team before a graph runs, so that the team of MXNet's engine stays awake.

    It takes a fraction of a microsecond if there is no team, and the next operator of this thread starts a new one.
    Nothing happens in a parallel region, in a forked child, with `MXNET_ENGINE_TYPE=NaiveEngine`, whose operators run
    in the calling thread, or if MXNet's OpenMP is not a libgomp of GCC 9 or newer.
    """
    _end_team(SOFT)


def _pause() -> Any:
    """Returns libgomp's function `omp_pause_resource_all`; None if MXNet uses another OpenMP runtime, whose function
    ends the teams of all threads.

    The lookup in MXNet's library finds the libgomp with which MXNet is linked, not another package's copy.
    """
    library = _library()
    is_llvm = any(hasattr(scope, LLVM_SYMBOL) for scope in (library, ctypes.CDLL(None)))
    return library[PAUSE_TEAMS] if hasattr(library, PAUSE_TEAMS) and not is_llvm else None


def _find_and_end_team(kind: int) -> Any:
    """Finds the function that `end_own_team` calls from then on.

    A child that was forked while the thread had a team would wait for that team forever, so the team is ended before a
    fork. MXNet uses one thread in such a child.
    """
    global _end_team
    if _library() is None:
        return
    _end_team = _do_nothing
    if requested() == 0 or in_use() == 1:
        return
    _library().MXSetNumOMPThreads(in_use())  # makes this thread's team as large as that of MXNet's engine
    pause = _pause()
    if pause is not None:
        os.register_at_fork(before=lambda: pause(SOFT), after_in_child=_use_one_thread)
        if os.environ.get("MXNET_ENGINE_TYPE") != "NaiveEngine":
            _end_team = pause


def _do_nothing(kind: int) -> None:
    pass


def _use_one_thread() -> None:
    """Sets one OpenMP thread for the only thread of a forked child, as MXNet does for the engine there."""
    global _end_team
    _end_team = _do_nothing
    _library().MXSetNumOMPThreads(1)


_end_team: Callable[[int], Any] = _find_and_end_team
