"""How many threads MXNet has, and that they stay awake: what a machine shows is made up, the rest is a process each.

Threads are counted, and nothing is timed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from mxsame import threads

ROOT = Path(__file__).parent.parent
V1 = "30 24 0:26 {shown} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
V2 = "29 24 0:25 {shown} /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
OTHERS = "22 20 0:21 / /proc rw - proc proc rw\n31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
CPU0 = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def machine(root, siblings=(), mount="", groups="0::/", limits=()):
    """Files as Linux shows them; `siblings` for each processor, `limits` by their path."""
    files = {"proc/self/cgroup": f"9:name=systemd:/\n4:memory:/m\n{groups}\n", "proc/self/mountinfo": OTHERS + mount}
    files.update({CPU0.format(number): text for number, text in enumerate(siblings)})
    files.update({f"sys/fs/cgroup/{name}": text for name, text in dict(limits).items()})
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def of_version_1(group, quota):
    """Limits of a group of processes by their path."""
    return {
        f"cpu,cpuacct/{group}cpu.cfs_{name}_us": str(value) for name, value in (("quota", quota), ("period", 100000))
    }


@pytest.mark.parametrize(
    ("allowed", "siblings", "cores"),
    [
        ({0, 1, 2, 3}, ["0,2", "1,3", "0,2", "1,3"], 2),
        ({0, 2}, ["0,2", "1,3", "0,2", "1,3"], 1),  # both threads of a core
        ({0, 1}, ["0-1", "0-1", "2-3", "2-3"], 1),
        ({0, 1}, ["0", "1"], 2),
        ({0, 1, 2}, [], 3),  # nothing is known
    ],
)
def test_cores(allowed, siblings, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: allowed)
    limits_of_process = threads.cpu_limits(machine(tmp_path, siblings))
    assert limits_of_process == (len(allowed), cores, None)
    assert limits_of_process.threads == cores


@pytest.mark.parametrize(
    ("mount", "groups", "limits", "quota", "count"),
    [
        (V2.format(shown="/"), "0::/", {"cpu.max": "250000 100000"}, 2.5, 2),
        (V2.format(shown="/"), "0::/", {"cpu.max": "max 100000"}, None, 8),
        (V2.format(shown="/"), "0::/a/b", {"a/cpu.max": "150000 50000", "a/b/cpu.max": "max 100000"}, 3, 3),
        (V2.format(shown="/"), "0::/a/b", {"a/cpu.max": "max 1", "a/b/cpu.max": "50000 100000"}, 0.5, 1),
        (V2.format(shown="/pod"), "0::/pod/a", {"a/cpu.max": "400000 100000"}, 4, 4),
        (V2.format(shown="/"), "0::/../outside", {"cpu.max": "400000 100000"}, 4, 4),
        (V1.format(shown="/docker/c"), "3:cpu,cpuacct:/docker/c\n0::/", of_version_1("", 600000), 6, 6),
        (V1.format(shown="/"), "3:cpu,cpuacct:/a", of_version_1("a/", -1), None, 8),
    ],
)
def test_quotas(mount, groups, limits, quota, count, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8))
    limits_of_process = threads.cpu_limits(machine(tmp_path, mount=mount, groups=groups, limits=limits))
    assert (limits_of_process.quota, limits_of_process.threads) == (quota, count)


BUSY = {"proc/loadavg": "16.00 9.0 8.0 17/300 4", "proc/pressure/cpu": "some avg10=99.20 avg60=9.0\nfull avg10=0.0"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"proc/pressure/cpu": ""}, True),  # an old kernel
        ({"proc/loadavg": "15.90 40.0 40.0 1/300 4"}, False),
        ({"proc/pressure/cpu": "some avg10=3.10 avg60=99.0"}, False),  # they wait for a disk
        ({"proc/loadavg": ""}, False),  # not Linux
    ],
)
def test_a_machine_is_overloaded(changed, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for name, text in {**BUSY, **changed}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert threads.is_overloaded(tmp_path) is expected


# -- processes

COUNTING = """
import json, os, time
def count():
    return len(os.listdir("/proc/self/task"))
def settled(wanted):  # a thread that has ended is listed for an instant
    deadline = time.monotonic() + 10
    while count() != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return count()
"""
NETWORK = """
import mxsame, numpy as np
from mxnet import nd
from mxnet.gluon import nn
net = nn.HybridSequential()
net.add(mxsame.nn.Conv2D(32, 3, in_channels=32), mxsame.nn.Conv2D(32, 3, in_channels=32))
net.initialize()
x = nd.ones((2, 32, 16, 16))
"""
RUNS = {"deploy": "run = mxsame.deploy(net, x.shape)", "hybridize": "run = mxsame.hybridize(net)"}
TEAMS = """
weight = nd.ones((32, 32, 3, 3))
blocks = nd.Convolution(x, weight, no_bias=True, kernel=(3, 3), num_filter=32)
blocks.wait_to_read()
STARTS = {  # what gives the calling thread a team of its own
    "an output in blocks": blocks.asnumpy,
    "a weight in blocks": weight.asnumpy,
    "a large array": lambda: nd.array(np.ones(300_000, "float32")),
}
"""


DECIDING = (*threads.MXNET_VARIABLES, *threads.WAIT_VARIABLES, threads.SETTING)


def printed(code, **environment):
    """What a new process prints, as data."""
    kept = {name: value for name, value in os.environ.items() if name not in DECIDING}
    command = [sys.executable, "-W", "ignore", "-c", COUNTING + code]
    done = subprocess.run(command, env={**kept, **environment}, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("environment", "in_use"),
    [
        ({}, threads.cpu_limits().threads),
        ({"MXSAME_THREADS": "0"}, max(1, threads.cpu_limits().processors // 2)),
        ({"MXNET_OMP_MAX_THREADS": "1", "MXSAME_THREADS": "2"}, 1),
    ],
    ids=str,
)
def test_threads_of_mxnet(environment, in_use):
    code = "import mxsame, mxnet; from mxsame import threads; print(json.dumps([threads.in_use(), dict(os.environ)]))"
    threads_in_use, left = printed(code, **environment)
    assert threads_in_use == in_use
    assert {name: value for name, value in left.items() if "THREADS" in name} == environment  # nothing for children


@pytest.mark.parametrize(
    ("crowded", "environment", "given"),
    [
        (True, {}, "passive"),
        (False, {}, None),
        (True, {"OMP_WAIT_POLICY": "active"}, "active"),
        (True, {"GOMP_SPINCOUNT": "500"}, None),
        (True, {"MXSAME_THREADS": "0"}, None),
    ],
    ids=str,
)
def test_threads_sleep_on_a_crowded_machine(crowded, environment, given):
    """As OpenMP sees it when MXNet loads it, and nothing is left for child processes."""
    code = f"""
import sys
from mxsame import threads
threads.is_overloaded = lambda: {crowded}
seen = []
def note(event, arguments):
    if event == "ctypes.dlopen" and "libmxnet" in str(arguments[0]) and not seen:
        seen.append(os.environ.get("OMP_WAIT_POLICY"))
sys.addaudithook(note)
import mxsame.nn
print(json.dumps([seen, os.environ.get("OMP_WAIT_POLICY"), threads.set_variables.get("OMP_WAIT_POLICY")]))
"""
    kept = environment.get("OMP_WAIT_POLICY")
    assert printed(code, **environment) == [[given], kept, None if given == kept else given]


IS_TOO_NEW = sys.version_info >= (3, 12) or numpy.__version__ >= "2"


@pytest.mark.skipif(IS_TOO_NEW, reason="MXNet by itself needs distutils, which Python 3.12 has not, and NumPy 1")
def test_an_mxnet_that_was_imported_before_keeps_its_threads():
    alias = "import numpy; numpy.bool = bool"  # which MXNet misses in NumPy 1.24 and newer
    code = f"{alias}; import mxnet, mxsame.nn; from mxsame import threads; print(threads.in_use())"
    assert printed(code) == max(1, threads.cpu_limits().processors // 2)


@pytest.mark.parametrize(("variable", "text"), [("MXSAME_THREADS", "two"), ("OMP_NUM_THREADS", "4,2")])
def test_a_variable_that_is_no_number_is_named_before_mxnet_ends_the_process(variable, text):
    code = "try:\n    import mxsame.nn\nexcept ImportError as error:\n    print(json.dumps(str(error)))"
    first, _, fix = printed(code, **{variable: text}).splitlines()
    zero = ", or 0 for MXNet's own" * (variable == "MXSAME_THREADS")
    assert first == f"{variable} must be a number of threads{zero}; received {variable}={text!r}."
    assert fix == f"  fix it with: unset {variable}"


@pytest.mark.parametrize("run", RUNS)
def test_a_graph_runs_with_the_teams_it_had_before(run):
    code = f"""{NETWORK}{TEAMS}{RUNS[run]}
for _ in range(10):
    run(x).wait_to_read()
before, counts = count(), {{}}
for name, start in STARTS.items():
    start()
    more = count() - before
    run(x).wait_to_read()
    counts[name] = [more, settled(before) - before]
print(json.dumps(counts))
"""
    starts = ("an output in blocks", "a weight in blocks", "a large array")
    assert printed(code, OMP_NUM_THREADS="3") == {name: [2, 0] for name in starts}


def test_the_naive_engine_keeps_its_team():
    code = f"""{NETWORK}{RUNS["deploy"]}
run(x).wait_to_read()
before = set(os.listdir("/proc/self/task"))
run(x).wait_to_read()
print(json.dumps([len(before) > 2, before == set(os.listdir("/proc/self/task"))]))
"""
    assert printed(code, OMP_NUM_THREADS="3", MXNET_ENGINE_TYPE="NaiveEngine") == [True, True]


def test_a_forked_child_has_one_thread_and_does_not_wait_for_its_parents_team():
    code = f"""{NETWORK}{TEAMS}{RUNS["deploy"]}
import multiprocessing
from mxsame import threads
def work(queue):
    run(x).wait_to_read()
    before = count()
    blocks.asnumpy()
    nd.array(np.ones(300_000, "float32"))
    queue.put([threads.in_use(), count() - before])
run(x).wait_to_read()
blocks.asnumpy()
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=work, args=(queue,), daemon=True)
child.start()
print(json.dumps(queue.get(timeout=20)))
"""
    assert printed(code, OMP_NUM_THREADS="3") == [1, 0]


def test_another_openmp_is_left_alone(monkeypatch):
    """LLVM's ends the teams of all threads, those that compute as well."""
    library = SimpleNamespace(omp_pause_resource_all=pytest.fail, __kmpc_fork_call=None)
    monkeypatch.setattr(threads, "_library", lambda: library)
    assert threads._pause() is None
