"""`mxsame doctor`: on a machine that is well, on broken ones, and what it reports about GPUs that are not here.

Broken machines are processes whose site-packages is a folder made for the case, as in tests/test_install.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("click")

import click

import mxsame
from mxsame import doctor, threads
from mxsame._mxnet import mx
from mxsame.doctor import Check, checks, child, show, tasks
from mxsame.doctor.child import Result

PACKAGE = Path(mxsame.__file__).parent
SITE = Path(sysconfig.get_paths()["purelib"])
PIP = f"{sys.executable} -m pip"


def is_schema(found):
    """What `help(mxsame.doctor)` promises of `mxsame doctor --json`; the checks by name."""
    assert set(found) == {"mxsame", "well", "checks"}
    for check in found["checks"]:
        assert set(check) == {"name", "status", "text", "fix", "facts"}
        assert check["status"] in show.COLORS
        assert check["text"] and isinstance(check["facts"], dict)
        assert check["fix"] or check["status"] != "problem"
    assert found["well"] == all(check["status"] != "problem" for check in found["checks"])
    checks = {check["name"]: check for check in found["checks"]}
    assert len(checks) == len(found["checks"])
    return checks


# ---- a machine that is well ------------------------------------------------------------------------------------------


def test_this_machine_is_well():
    checks = is_schema(json.loads(json.dumps(doctor.as_data(list(doctor.examine())))))
    assert all(check["status"] != "problem" for check in checks.values()), checks
    assert checks["Python"]["facts"]["path"] == sys.executable
    assert checks["NumPy"]["facts"]["version"] == np.__version__
    assert checks["MXNet"]["facts"]["version"] == "1.9.1"
    assert checks["cpu 0"]["status"] == "ok"
    assert checks["threads"]["facts"]["awake"]


def test_a_wrong_result_is_an_error(monkeypatch):
    """One that is shifted by an element, as with symmetric padding."""
    right = mxsame.ops.conv
    assert list(tasks.run_operators("cpu", "0")) == [{}]
    monkeypatch.setattr(mxsame.ops, "conv", lambda data, weight, **more: right(mx.nd.flip(data, 3), weight, **more))
    with pytest.raises(ArithmeticError, match=r"convolution must be \[258, 186, 187, 113\]; received"):
        list(tasks.run_operators("cpu", "0"))


# ---- broken machines -------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path):
    """Makes site-packages: real packages by name, and files; runs the doctor there."""
    folder = tmp_path / "site"
    folder.mkdir()

    def make(*links, files=(), arguments=("doctor", "--json"), script=False, **environment):
        for name in ("mxsame", "click", *links):
            source = PACKAGE if name == "mxsame" else SITE / name
            if source.exists():
                (folder / name).symlink_to(source)
        for name, content in dict(files).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV_", "MXNET_"))}
        env.update(PYTHONPATH=str(folder), PYTHONDONTWRITEBYTECODE="1", **environment)
        called = ["-m", "mxsame"]
        if script:
            (tmp_path / "mxsame").write_text("import sys\nfrom mxsame.cli import main\nsys.exit(main())\n")
            called = [str(tmp_path / "mxsame")]
        command = [sys.executable, "-S", *called, *arguments]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert "Traceback" not in done.stderr + done.stdout, done.stderr + done.stdout
        return done

    return make


def problems(done):
    assert done.returncode == 1, done.stdout + done.stderr
    return {name: check for name, check in is_schema(json.loads(done.stdout)).items() if check["status"] == "problem"}


NUMPY = ("numpy", "numpy.libs")
BARE = "raise ImportError('never')\n"


def mxnet(code, wheel="mxnet"):
    return {"mxnet/__init__.py": code, f"{wheel.replace('-', '_')}-1.9.1.dist-info/METADATA": ""}


def test_no_mxnet(site):
    found = problems(site(*NUMPY))
    assert list(found) == ["MXNet"]
    assert found["MXNet"]["text"].startswith("MXNet is not installed.")
    assert found["MXNet"]["fix"] == f"{PIP} install mxnet==1.9.1"


def test_neither_numpy_nor_mxnet(site):
    done = site()
    found = problems(done)
    assert list(found) == ["MXNet"]
    assert found["MXNet"]["fix"] == f"{PIP} install 'numpy<2'", "the first thing first"
    assert is_schema(json.loads(done.stdout))["NumPy"]["facts"] == {"version": None, "path": None}


def test_numpy_2(site):
    files = {"numpy/__init__.py": "__version__ = '2.1.3'\n", "numpy-2.1.3.dist-info/METADATA": ""}
    done = site(files={**files, **mxnet(BARE)})
    found = problems(done)
    assert list(found) == ["MXNet"]
    assert "needs NumPy 1, and NumPy 2 is installed" in found["MXNet"]["text"]
    assert found["MXNet"]["fix"] == f"{PIP} install 'numpy<2'"
    assert is_schema(json.loads(done.stdout))["NumPy"]["facts"]["version"] == "2.1.3"


def test_two_wheels_over_each_other(site):
    found = problems(site(*NUMPY, files={**mxnet(BARE), **mxnet(BARE, "mxnet-cu112")}))
    check = found["MXNet"]
    assert "mxnet and mxnet-cu112 are installed over each other" in check["text"]
    assert check["fix"] == f"{PIP} uninstall -y mxnet mxnet-cu112 && {PIP} install mxnet==1.9.1"
    assert check["facts"]["wheels"] == {"mxnet": "1.9.1", "mxnet-cu112": "1.9.1"}


def test_mxnet_that_crashes_while_it_is_imported(site):
    code = "import os, signal\nprint('so far', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    found = problems(site(*NUMPY, files=mxnet(code)))
    check = found["MXNet"]
    assert check["text"].startswith("its import fails: the process was killed by SIGSEGV: so far (mxnet 1.9.1, /")
    assert check["fix"] == f"{PIP} uninstall -y mxnet && {PIP} install mxnet==1.9.1"


def test_words_that_the_terminal_has_no_characters_for(site):
    code = "raise OSError('libmxnet.so: \u2018no\u2019')\n"
    done = site(*NUMPY, files=mxnet(code), arguments=("doctor",), PYTHONIOENCODING="latin-1")
    assert done.returncode == 1 and "?no?" in done.stdout


def test_mxnet_for_cuda_without_a_driver(site):
    done = site(*NUMPY, files=mxnet(BARE, "mxnet-cu112"))
    found = problems(done)
    to_cpu = f"{PIP} uninstall -y mxnet-cu112 && {PIP} install mxnet==1.9.1"
    assert found["driver"]["fix"] == found["MXNet"]["fix"] == to_cpu


@pytest.mark.parametrize("script", [False, True], ids=["python -m", "script"])
def test_plain_text_without_rich_in_a_narrow_terminal_and_nowhere_to_write(site, script):
    done = site(
        *NUMPY,
        script=script,
        arguments=("doctor",),
        HOME="/proc",
        TERM="dumb",
        COLUMNS="40",
        PYTHONIOENCODING="ascii",
        TMPDIR="/proc",
    )
    assert done.returncode == 1
    assert "\x1b" not in done.stdout and done.stderr == ""
    said = done.stdout.splitlines()
    assert any(line.startswith("problem MXNet: ") for line in said)
    (fix,) = (line.strip() for line in said if "fix it with" in line and "mxnet" in line)
    assert fix == f"fix it with: {PIP} install mxnet==1.9.1", "in one piece, to be copied"
    assert said[-1] == "1 problem found."


def test_other_commands_say_why_in_one_error(site):
    done = site("rich", "pygments", "markdown_it", "mdurl", "matplotlib", arguments=("demo",))
    assert done.returncode == 1 and done.stdout.strip() == ""
    assert done.stderr.startswith("Error: NumPy cannot be imported: No module named 'numpy'.\n  found: Python ")
    assert f"\n  fix it with: {PIP} install 'numpy<2'\n" in done.stderr


@pytest.mark.parametrize("script", [False, True], ids=["python -m", "script"])
def test_pads_and_help_need_neither_numpy_nor_mxnet(site, script):
    done = site(arguments=("pads", "--size", "8", "--kernel", "3", "--stride", "2"), script=script)
    assert done.returncode == 0 and done.stdout.startswith("pads (0, 1), output size 4")


# ---- children --------------------------------------------------------------------------------------------------------

CHILD = """
import json, os, signal, subprocess, sys, time
_, path, task = sys.argv
def report(what): print("\\nmxsame-doctor:" + json.dumps(what), flush=True)
report({"pid": os.getpid()})
print("noise without an end", end="", flush=True)
if task == "crash": os.kill(os.getpid(), signal.SIGKILL)
if task == "exit": print("\\nlast words", flush=True); os._exit(3)
if task == "hang": report({"other": subprocess.Popen(["sleep", "60"]).pid}); time.sleep(60)
if task == "error": report({"error": "no", "fix": "command"}); os._exit(1)
report({"pid": os.getpid(), "more": 1})
report({"error": None, "fix": None})
if task == "late": os.kill(os.getpid(), signal.SIGSEGV)  # as libraries do when a process ends
"""


@pytest.mark.parametrize(
    ("task", "error", "fix"),
    [
        ("well", None, None),
        ("late", None, None),
        ("crash", "the process was killed by SIGKILL: noise without an end", None),
        ("exit", "the process ended with exit code 3: last words", None),
        ("error", "no", "command"),
        ("hang", "no answer within 2 seconds: noise without an end", None),
    ],
)
def test_what_becomes_of_a_child(monkeypatch, task, error, fix):
    monkeypatch.setattr(child, "START", CHILD)
    result = child.run(task, limit=2 if task == "hang" else 20)
    assert (result.error, result.fix) == (error, fix)
    assert result.found.get("more") == (1 if error is None else None), "what was found before the end is kept"
    for pid in [result.found["pid"], result.found.get("other", result.found["pid"])]:
        for _ in range(100):  # a process that was killed is there until the system has taken it away
            if not is_running(pid):
                break
            time.sleep(0.1)
        assert not is_running(pid), "nothing is left behind, grandchildren neither"


def is_running(pid):
    """Whether there is such a process, and not only its entry in the table (a container may have nobody to reap it)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- GPUs that are not here ------------------------------------------------------------------------------------------

AMPERE = {"number": 0, "name": "NVIDIA A100", "capability": [8, 0], "memory": 40 * 2**30}
HOPPER = {"number": 1, "name": "NVIDIA H100", "capability": [9, 0], "memory": 80 * 2**30}
DRIVER = {"path": "/usr/lib/libcuda.so.1", "cuda": [12, 2], "version": "535.104.05"}


def installed(wheel="mxnet-cu112", seen=0, error=None):
    """An MXNet that can be imported."""
    found = {"MXNet": {"version": "1.9.1", "path": "/x/mxnet", "seconds": 1.0}, "gpus": seen}
    return checks.Mxnet({wheel: "1.9.1"}, "/x/mxnet", Result(found, error))


@pytest.mark.parametrize(
    ("driver", "devices", "seen", "error", "words"),
    [
        (DRIVER, [AMPERE], 1, None, None),
        (DRIVER, [{**AMPERE, "capability": [5, 0]}, {**AMPERE, "capability": [8, 9]}], 2, None, None),
        (DRIVER, [AMPERE, HOPPER], 2, None, "no machine code for NVIDIA H100, for which there is NVIDIA's MXNet"),
        (DRIVER, [{**AMPERE, "capability": [3, 7]}], 1, None, "no machine code for NVIDIA A100"),
        ({**DRIVER, "cuda": [10, 2]}, [AMPERE], 1, None, "it supports CUDA 10.2, and this MXNet needs 11.0"),
        (DRIVER, [AMPERE], 0, "Check failed: e == cudaSuccess", "MXNet sees 0 (Check failed: e == cudaSuccess)"),
        (DRIVER, [], 0, None, "no GPU; MXNet sees 0"),
        (None, [], 0, None, "there is none"),
        ("no answer within 20 seconds", [], 0, None, "it fails: no answer within 20 seconds"),
    ],
    ids=["Ampere", "oldest and newest", "Hopper", "Kepler", "old driver", "unseen", "no GPU", "no driver", "hangs"],
)
def test_what_an_mxnet_for_cuda_can_use(monkeypatch, driver, devices, seen, error, words):
    result = Result({}, driver) if isinstance(driver, str) else Result({"driver": driver, "devices": devices})
    monkeypatch.setattr(checks, "run", lambda task, limit: result)
    check = checks.driver(installed(seen=seen, error=error))
    assert check.status == ("problem" if words else "note")
    assert (words or "version 535.104.05, /usr/lib/libcuda.so.1: NVIDIA A100 (compute capability") in check.text
    assert check.fix == (f"{PIP} uninstall -y mxnet && {PIP} install mxnet==1.9.1" if words else None)
    check = checks.driver(installed("mxnet"))
    assert check.status == "note" and check.text.endswith("MXNet computes on the CPU")


def test_every_device_that_mxnet_sees_is_tried(monkeypatch):
    mxnet, asked = installed(seen=2), []
    monkeypatch.setattr(checks.Mxnet, "installed", lambda: mxnet)
    failing = Result({}, "the process was killed by SIGSEGV")
    monkeypatch.setattr(checks, "run", lambda *arguments, **more: asked.append(arguments) or failing)
    on_cpu, *on_gpus, _ = list(doctor.examine())[4:]
    assert asked[1:-1] == [("operators", "cpu", "0"), ("operators", "gpu", "0"), ("operators", "gpu", "1")]
    assert [check.name for check in on_gpus] == ["gpu 0", "gpu 1"]
    assert on_cpu.text == "a convolution fails: the process was killed by SIGSEGV."
    assert on_cpu.fix.endswith("install mxnet-cu112==1.9.1") and on_gpus[0].fix.endswith("install mxnet==1.9.1")


FOUR_CORES = {"processors": 8, "cores": 4, "quota": None, "mxnet": 4, "awake": True}


@pytest.mark.parametrize(
    ("facts", "status", "words", "fix"),
    [
        ({}, "ok", "MXNet has 4; the process may use 4 cores, 8 hardware threads", None),
        ({"mxnet": 8}, "ok", "MXNet has 8", None),
        ({"mxnet": 9}, "problem", "too few", "unset MXSAME_THREADS"),
        ({"quota": 2.5}, "problem", "8 hardware threads and a quota of 2.5: too few", "unset MXSAME_THREADS"),
        ({"mxnet": 2, "quota": 2.5}, "ok", "MXNet has 2", None),
        ({"mxnet": 2}, "note", "MXSAME_THREADS is set", "unset MXSAME_THREADS"),
        ({"awake": False}, "note", "small operators are slow", "export MXNET_ENGINE_TYPE=NaiveEngine"),
    ],
    ids=str,
)
def test_threads(monkeypatch, facts, status, words, fix):
    for name in threads.OF_MXNET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MXSAME_THREADS", "9")
    monkeypatch.setattr(checks, "run", lambda task: Result({**FOUR_CORES, **facts}))
    check = checks.threads()
    assert (check.status, check.fix) == (status, fix)
    assert words in check.text


# ---- what is printed -------------------------------------------------------------------------------------------------


def test_the_informative_line_of_an_error_of_mxnet_is_shown():
    line = "MXNetError: Check failed: e == cudaSuccess: no kernel image"
    assert child.shortened(f"Traceback (most recent call last):\n  File x\n{line}\n") == line
    assert child.shortened("") == "no reason given"


def test_lines_fit_the_terminal_and_commands_stay_in_one_piece():
    command = f"{PIP} install a very long list of packages that must not be split"
    *lines, last = click.unstyle(show.lines(Check("cpu 0", "problem", "words " * 40, command), 60)).splitlines()
    assert lines[0].startswith("problem cpu 0: words") and len(lines) > 3
    assert all(len(line) <= 60 for line in lines)
    assert last == f"        fix it with: {command}"
