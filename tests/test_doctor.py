"""`mxsame doctor`: what it finds, and the command that it names, on machines that are well and on others."""

import json
import os
import sys

import numpy as np
import pytest
import sites

import mxsame
from mxsame import doctor, threads
from mxsame._mxnet import mx

PIP = f"{sys.executable} -m pip"
TO_CPU = f"{PIP} uninstall -y mxnet-cu112 && {PIP} install --no-deps mxnet==1.9.1"


def test_a_healthy_machine():
    examined = list(doctor.examine())
    assert doctor.as_data(examined)["well"], examined
    checks = {check.name: check for check in examined}
    assert ("--no-deps" in checks["NumPy"].text) == (int(np.__version__[0]) >= 2)
    assert checks["MXNet"].text.startswith("mxnet 1.9.1, ") and sys.executable in checks["Python"].text
    assert checks["cpu(0)"].status == "ok" and "MXNet has" in checks["threads"].text


def test_a_wrong_result_is_an_error(monkeypatch):
    """One that is shifted by an element, as with symmetric padding."""
    right = mxsame.ops.conv
    assert doctor.smoke(mx.cpu())
    monkeypatch.setattr(mxsame.ops, "conv", lambda data, weight, **more: right(mx.nd.flip(data, 3), weight, **more))
    with pytest.raises(ArithmeticError, match=r"must return \[258, 186, 187, 113\]; received"):
        doctor.smoke(mx.cpu())


# ---- broken machines -------------------------------------------------------------------------------------------------

CRASH = "import os, signal\nprint('so far', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n"
INSTALL = f"{PIP} install --no-deps mxnet==1.9.1"
AGAIN = f"{PIP} uninstall -y mxnet && {INSTALL}"
CURLY = "raise OSError('libmxnet.so: \u2018no\u2019')\n"  # quotes that the terminal has no characters for
BROKEN = {  # files, what the text of MXNet's check starts with, and its fix
    "no MXNet": ({}, "MXNet is not installed.", INSTALL),
    "crash": (sites.mxnet(CRASH), "the process was killed by SIGSEGV: so far (mxnet 1.9.1)", AGAIN),
    "quotes": (sites.mxnet(CURLY), "The installed MXNet is broken: OSError: libmxnet.so: ?no?.", AGAIN),
}


@pytest.mark.parametrize(("files", "text", "fix"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_machine(tmp_path, files, text, fix):
    site = sites.make(tmp_path, "click", *sites.NUMPY, files=files)
    done = sites.run(site, "-m", "mxsame", "doctor", PYTHONIOENCODING="latin-1")
    assert done.returncode == 1 and done.stderr == ""
    lines = done.stdout.splitlines()
    (number,) = (number for number, line in enumerate(lines) if line.startswith("problem MXNet: "))
    assert lines[number].startswith(f"problem MXNet: {text}")
    assert lines[number + 1] == f"        fix it with: {fix}", "in one piece, to be copied"
    assert lines[-1] == "Fix the first problem, and run this again."


def test_json_and_other_commands_where_nothing_is_installed(tmp_path):
    site = sites.make(tmp_path, "click")
    report = json.loads(sites.run(site, "-m", "mxsame", "doctor", "--json").stdout)
    assert set(report) == {"mxsame", "well", "checks"} and not report["well"]
    assert [set(check) for check in report["checks"]] == [{"name", "status", "text", "fix"}] * len(report["checks"])
    done = sites.run(site, "-m", "mxsame", "pads", "--size", "8", "--kernel", "3", "--stride", "2")
    assert done.returncode == 0 and done.stdout.startswith("pads (0, 1), output size 4")


# ---- the child process -----------------------------------------------------------------------------------------------

CHILD = """
import json, os, signal, time
def report(**what): print("\\nmxsame-doctor:" + json.dumps(what), flush=True)
report(pid=os.getpid())
print("noise without an end", end="", flush=True)
"""


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "the process was killed by SIGKILL: noise without an end"),
        ("print('\\nlast words', flush=True); os._exit(3)", "the process exited: 3: last words"),
        ("time.sleep(60)", "no answer within 2 seconds: noise without an end"),
        ("report(error='no', fix='command')", "no"),
        ("os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '4'); os._exit(3)", "the process exited: 3: noise without an end"),
    ],
)
def test_failures_of_the_child_process(monkeypatch, code, error):
    monkeypatch.setattr(doctor, "CHILD_CODE", CHILD + code)
    reported = doctor.ask(limit=2)
    assert reported["error"] == error
    with pytest.raises(ProcessLookupError):
        os.kill(reported["pid"], 0)


# ---- GPUs that are not here ------------------------------------------------------------------------------------------

AMPERE, HOPPER = "535.104.05, NVIDIA A100\n", "535.104.05, NVIDIA H100\n"


@pytest.mark.parametrize(
    ("said", "reported", "words"),
    [
        (AMPERE, {"gpus": 1, "capabilities": [[8, 0]]}, None),
        (HOPPER, {"gpus": 2, "capabilities": [[8, 9], [9, 0]]}, "; gpu(1) has compute capability 9.0, and mxnet-cu112"),
        (HOPPER, {"gpus": 1, "capabilities": [[9, 0]]}, "5.0 to 8.9; examples/hopper in mxsame's repository builds"),
        (HOPPER, {"gpus": 1, "capabilities": [[9, 0]], "gpu(0)": True}, None),
        (AMPERE, {"gpus": 1, "capabilities": [[3, 7]]}, "gpu(0) has compute capability 3.7"),
        (AMPERE, {"error": "Check failed: e == cudaSuccess"}, "MXNet sees no GPU: Check failed: e == cudaSuccess"),
        ("", {"gpus": 0}, "MXNet sees no GPU"),
        (FileNotFoundError(), {"error": "no"}, "no NVIDIA driver found"),
        (None, {"error": "no"}, "no answer from nvidia-smi"),
    ],
    ids=["Ampere", "Ada, Hopper", "Hopper", "with kernels", "Kepler", "unseen", "no GPU", "no driver", "hangs"],
)
def test_what_an_mxnet_for_cuda_can_use(monkeypatch, said, reported, words):
    def smi(command, limit):
        if isinstance(said, Exception):
            raise said
        return said or "", None if said is None else 0

    monkeypatch.setattr(doctor, "output_of", smi)
    check = doctor.driver({"mxnet-cu112": "1.9.1"}, reported)
    fix = TO_CPU.replace("mxnet-cu112", "mxnet")
    assert (check.status, check.fix) == (("problem", fix) if words else ("note", None))
    assert (words or "535.104.05, NVIDIA ") in check.text
    assert doctor.driver({"mxnet": "1.9.1"}, reported).status == "note"


def test_every_device_that_mxnet_sees_is_tried_until_one_fails(monkeypatch):
    reported = {"MXNet": ("1.9.1", "/x"), "gpus": 3, "cpu(0)": True, "gpu(0)": True, "error": "killed by SIGSEGV"}
    monkeypatch.setattr(doctor, "ask", lambda: reported)
    *_, on_cpu, first, second = doctor.examine()
    assert [check.name for check in (on_cpu, first, second)] == ["cpu(0)", "gpu(0)", "gpu(1)"]
    assert (on_cpu.status, second.text) == ("ok", "a convolution fails: killed by SIGSEGV")


@pytest.mark.parametrize(
    ("count", "quota", "status", "words"),
    [
        (4, None, "ok", "MXNet has 4; the process may use 4 cores, 8 hardware threads"),
        (9, None, "problem", "too few"),
        (4, 2.5, "problem", "8 hardware threads and a quota of 2.5: too few"),
        (2, 2.5, "ok", "MXNet has 2"),
        (2, None, "note", "MXSAME_THREADS is set"),
    ],
)
def test_threads(monkeypatch, count, quota, status, words):
    for name in threads.MXNET_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MXSAME_THREADS", "9")
    check = doctor.threads(count, 8, 4, quota, False)
    assert (check.status, check.fix) == (status, None if status == "ok" else "unset MXSAME_THREADS")
    assert words in check.text and "sleep" not in check.text
    assert "threads sleep (OMP_WAIT_POLICY=passive)" in doctor.threads(count, 8, 4, quota, True).text
