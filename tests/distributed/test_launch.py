"""launch.py without MXNet: roles, ports, options, and how processes end."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import launch
import pytest

import clusters


def test_ports_are_free_distinct_and_ascending():
    ports = launch.free_ports(20)
    assert ports == sorted(set(ports))
    assert len(ports) == 20


def test_a_number_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"number must be 0 to 3, for 1 servers and 2 workers; received number=4"):
        launch.role_of(4, servers=1, workers=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "a command must follow --"),
        (["--workers", "0", "--", "true"], "--workers must be at least 1; received 0"),
        (["--restarts", "-1", "--", "true"], "--restarts must be at least 0; received -1"),
        (["--process", "1", "--", "true"], "--process and --root belong together"),
        (["--process", "1", "--root", "node", "--", "true"], "--root must be HOST:PORT; received node"),
        (["--process", "9", "--root", "node:1", "--", "true"], "--process must be 0 to 3, .* received 9"),
        (["--cores", "a", "--", "true"], "--cores must be numbers of cores, as 0,1; received a"),
        (["--cores", "4711", "--", "true"], r"--cores must be among \[.*\]; received \[4711\]"),
    ],
)
def test_wrong_options_are_named(options, message, capsys):
    with pytest.raises(SystemExit) as left:
        launch.main(options)
    assert left.value.code == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_command_that_there_is_not(capsys):
    assert launch.main(["--", "/no/such/program", "--flag"]) == 2
    assert "launch: cannot run /no/such/program --flag: " in capsys.readouterr().err


def started(program, *options):
    """launch.py with a program of Python, to its end."""
    command = [sys.executable, clusters.EXAMPLES / "launch.py", *options]
    command += ["--", sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=clusters.LIMIT)


def test_processes_get_what_mxnet_reads():
    program = """
        import os
        names = ("DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER", "DMLC_NODE_HOST")
        print(*(os.environ[name] for name in names))
        print("ports", os.environ["PORT"], os.environ["DMLC_PS_ROOT_PORT"], len(os.sched_getaffinity(0)))
    """
    done = started(program, "--workers", "2", "--servers", "3", "--cores", "0")
    assert done.returncode == 0
    lines = sorted(done.stdout.splitlines())
    roles = [line for line in lines if "ports" not in line]
    assert roles == [
        "[scheduler] scheduler 127.0.0.1 3 2 127.0.0.1",
        *(f"[server {index}] server 127.0.0.1 3 2 127.0.0.1" for index in range(3)),
        *(f"[worker {index}] worker 127.0.0.1 3 2 127.0.0.1" for index in range(2)),
    ]
    ports = {line[1 : line.index("]")]: list(map(int, line.split()[-3:])) for line in lines if "ports" in line}
    assert len({root for _, root, _ in ports.values()}) == 1
    own = [ports[name][0] for name in ("scheduler", "server 0", "server 1", "server 2", "worker 0", "worker 1")]
    assert own == sorted(set(own)), "ranks go by ports"
    assert own[0] == ports["scheduler"][1]
    assert [ports[f"worker {index}"][2] for index in range(2)] == [1, 1], "pinned to a core"


def test_a_child_of_a_child_ends_too(tmp_path):
    program = f"""
        import os, subprocess, sys, time
        if os.environ["DMLC_ROLE"] == "worker":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            open({str(tmp_path)!r} + "/" + str(child.pid), "w")
            sys.exit(3)
        time.sleep(600)
    """
    done = started(program, "--workers", "1")
    assert done.returncode == 1
    assert re.search(r"launch: worker 0 \(process \d+\) ended with exit code 3\n", done.stderr)
    (child,) = (path.name for path in tmp_path.iterdir())
    status = subprocess.run(["ps", "-o", "stat=", "-p", child], capture_output=True, text=True).stdout.strip()
    assert status[:1] in ("", "Z")


def test_a_process_that_ignores_sigterm_is_killed(monkeypatch):
    monkeypatch.setattr(launch, "GRACE", 0.5)
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(600)"
    process = launch.Process("deaf", [sys.executable, "-uc", program], {}, None)
    while process.last != "ready":
        assert not process.ended()
    launch.end([process])
    assert process.why().endswith("was ended by SIGKILL; its last line: ready")


def test_servers_that_remain_are_named(monkeypatch):
    monkeypatch.setattr(launch, "DEPARTURE", 0.5)
    program = "import os, time; os.environ['DMLC_ROLE'] == 'worker' or time.sleep(600)"
    with pytest.raises(launch.Failed, match=r"^scheduler \(process \d+\), server 0 .* did not end 0 s after a worker"):
        launch.run([sys.executable, "-c", program], workers=2, servers=1)
