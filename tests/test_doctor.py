"""`mxsame doctor`: on a machine that is well, on broken ones, and what it reports about GPUs that are not here.

Broken machines are processes whose site-packages is a folder made for the case, as in tests/test_install.py.
"""

from __future__ import annotations

import json
import os
import re
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
from mxsame import doctor
from mxsame._mxnet import mx
from mxsame.doctor import checks, child, show, tasks
from mxsame.doctor.checks import OPERATORS, STATUSES, Check
from mxsame.doctor.child import Result
from mxsame.installation.problems import InstallationError

PACKAGE = Path(mxsame.__file__).parent
SITE = Path(sysconfig.get_paths()["purelib"])
PIP = f"{sys.executable} -m pip"
GPU_CHECKS = ("driver", "GPUs", "libraries", "machine code")


def is_schema(found):
    """What `help(mxsame.doctor)` promises of `mxsame doctor --json`."""
    assert set(found) == {"mxsame", "well", "seconds", "checks"}
    assert found["mxsame"] == mxsame.__version__
    assert isinstance(found["seconds"], float)
    for check in found["checks"]:
        assert set(check) == {"group", "name", "status", "text", "fix", "facts"}
        assert re.fullmatch(r"software|cuda|cpu|gpu \d+", check["group"])
        assert check["name"] in doctor.__doc__, "every check is documented"
        assert check["status"] in STATUSES
        assert check["text"] and isinstance(check["facts"], dict)
        assert check["fix"] is None or (isinstance(check["fix"], str) and "\n" not in check["fix"])
        assert check["fix"] or check["status"] != "problem"
    assert found["well"] == all(check["status"] != "problem" for check in found["checks"])
    names = [(check["group"], check["name"]) for check in found["checks"]]
    assert len(names) == len(set(names))
    return {f"{check['group']}: {check['name']}": check for check in found["checks"]}


# ---- a machine that is well ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here():
    """What the doctor finds on this machine; it runs once."""
    reported = []
    found = doctor.diagnose(reported.append)
    assert [check.as_data() for check in reported] == found["checks"]
    return found


def test_this_machine_is_well(here):
    checks = is_schema(json.loads(json.dumps(here)))
    assert here["well"], here
    assert checks["software: Python"]["facts"] == {
        "version": ".".join(map(str, sys.version_info[:3])),
        "path": sys.executable,
    }
    assert checks["software: NumPy"]["facts"]["version"] == np.__version__
    assert checks["software: MXNet"]["facts"]["version"] == "1.9.1"
    assert checks["software: build"]["facts"]["features"]["MKLDNN"] is True
    assert Path(checks["software: build"]["facts"]["library"]).name == "libmxnet.so"
    assert set(checks["cpu: operators"]["facts"]["differences"]) == set(OPERATORS)
    assert checks["cpu: operators"]["facts"]["failures"] == {}


@pytest.mark.parametrize("reference", ["convolution", "max_pooling"])
@pytest.mark.parametrize("result", ["output", "gradient"])
def test_a_wrong_result_is_a_difference(reference, result, monkeypatch):
    """One that is shifted by an element, as with symmetric padding."""
    assert max(max(found.values()) for found in tasks.run_operators("cpu", "0")) < 1e-5
    right, position = getattr(tasks, reference), ("output", "gradient").index(result)

    def shifted(*arrays):
        results = list(right(*arrays))
        results[position] = np.roll(results[position], 1, axis=-1)
        return results

    monkeypatch.setattr(tasks, reference, shifted)
    found = {name: value for each in tasks.run_operators("cpu", "0") for name, value in each.items()}
    wrong = {name for name, value in found.items() if value > 0.05}
    assert wrong == {"gradient of a " * position + reference.replace("_", " ")}


def test_shapes_and_what_is_no_number_are_infinitely_far():
    assert tasks.difference(mx.nd.zeros((2, 2)), np.ones((2, 3))) == float("inf")
    assert tasks.difference(mx.nd.array([1.0, np.nan]), np.ones(2)) == float("inf")
    assert tasks.difference(mx.nd.array([1.0, 3.0]), np.array([1.0, 4.0])) == 0.25


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
    assert list(found) == ["software: MXNet"]
    assert found["software: MXNet"]["text"].startswith("MXNet is not installed.")
    assert found["software: MXNet"]["fix"] == f"{PIP} install mxnet==1.9.1"


def test_neither_numpy_nor_mxnet(site):
    done = site()
    found = problems(done)
    assert list(found) == ["software: MXNet"]
    assert found["software: MXNet"]["fix"] == f"{PIP} install 'numpy<2'", "the first thing first"
    assert is_schema(json.loads(done.stdout))["software: NumPy"]["facts"] == {"version": None, "path": None}


def test_numpy_2(site):
    files = {"numpy/__init__.py": "__version__ = '2.1.3'\n", "numpy-2.1.3.dist-info/METADATA": ""}
    done = site(files={**files, **mxnet(BARE)})
    found = problems(done)
    assert list(found) == ["software: MXNet"]
    assert "needs NumPy 1, and NumPy 2 is installed" in found["software: MXNet"]["text"]
    assert found["software: MXNet"]["fix"] == f"{PIP} install 'numpy<2'"
    assert is_schema(json.loads(done.stdout))["software: NumPy"]["facts"]["version"] == "2.1.3"


def test_two_wheels_over_each_other(site):
    found = problems(site(*NUMPY, files={**mxnet(BARE), **mxnet(BARE, "mxnet-cu112")}))
    check = found["software: MXNet"]
    assert "mxnet and mxnet-cu112 are installed over each other" in check["text"]
    assert check["fix"] == f"{PIP} uninstall -y mxnet mxnet-cu112 && {PIP} install mxnet==1.9.1"
    assert check["facts"]["wheels"] == {"mxnet": "1.9.1", "mxnet-cu112": "1.9.1"}


def test_mxnet_that_crashes_while_it_is_imported(site):
    code = "import os, signal\nprint('so far', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    found = problems(site(*NUMPY, files=mxnet(code)))
    check = found["software: MXNet"]
    assert check["text"].startswith("its import fails: the process was killed by SIGSEGV: so far (mxnet 1.9.1, /")
    assert check["fix"] == f"{PIP} uninstall -y mxnet && {PIP} install mxnet==1.9.1"


def test_mxnet_that_ends_the_process(site):
    found = problems(site(*NUMPY, files=mxnet("import os\nprint('last words', flush=True)\nos._exit(7)\n")))
    assert "the process ended with exit code 7: last words" in found["software: MXNet"]["text"]


def test_words_that_the_terminal_has_no_characters_for(site):
    code = "raise OSError('libmxnet.so: \u2018no\u2019')\n"
    done = site(*NUMPY, files=mxnet(code), arguments=("doctor",), PYTHONIOENCODING="ascii")
    assert done.returncode == 1 and "?no?" in done.stdout


def test_a_damaged_library(site):
    error = "OSError('/x/libmxnet.so: file too short')"
    found = problems(site(*NUMPY, files=mxnet(f"raise {error}\n")))
    assert "libmxnet.so: file too short" in found["software: MXNet"]["text"]


def test_mxnet_for_cuda_without_a_driver(site):
    done = site(*NUMPY, files=mxnet(BARE, "mxnet-cu112"))
    found = problems(done)
    to_cpu = f"{PIP} uninstall -y mxnet-cu112 && {PIP} install mxnet==1.9.1"
    assert found["cuda: driver"]["fix"] == found["software: MXNet"]["fix"] == to_cpu
    assert found["cuda: libraries"]["fix"].startswith(f"{PIP} install ")
    assert "nvidia-cudnn-cu11==" in found["cuda: libraries"]["fix"]


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
    assert said[0] == "Software"
    assert any(line.startswith("problem MXNet ") for line in said)
    (fix,) = (line.strip() for line in said if "fix it with" in line and "mxnet" in line)
    assert fix == f"fix it with: {PIP} install mxnet==1.9.1", "in one piece, to be copied"
    assert said[-1].startswith("1 problem found (")


def test_other_commands_say_why_in_one_error(site):
    done = site("rich", "pygments", "markdown_it", "mdurl", "matplotlib", arguments=("demo", "--no-picture"))
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


def test_a_child_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    result = child.run("MXNet")
    assert not result.found and "no process could be started" in result.error


def test_a_task_reports_its_findings_and_its_error(capfd, monkeypatch):
    def task(error):
        yield {"a": 1}
        raise error

    monkeypatch.setattr(sys, "__stdout__", sys.stdout)
    child.serve(task, OSError("no such thing"))
    child.serve(task, InstallationError("problem", "command", "hint"))
    child.serve(lambda: iter([{"a": 1}]))
    lines = [line for line in capfd.readouterr().out.splitlines() if line]
    assert [json.loads(line[len(child.MARK) :]) for line in lines] == [
        *({"a": 1}, {"error": "no such thing", "fix": None}),
        *({"a": 1}, {"error": "problem", "fix": "command"}),
        *({"a": 1}, {"error": None, "fix": None}),
    ]


# ---- GPUs that are not here ------------------------------------------------------------------------------------------

AMPERE = {"number": 0, "name": "NVIDIA A100", "capability": [8, 0], "memory": 40 * 2**30}
HOPPER = {"number": 1, "name": "NVIDIA H100", "capability": [9, 0], "memory": 80 * 2**30}
DRIVER = {"path": "/usr/lib/libcuda.so.1", "cuda": [12, 2], "version": "535.104.05"}
PLACES = {name: {"path": f"/x/{name}/lib/{name}.so", "origin": "wheel"} for name in ("cudnn", "cublas")}
FOUND = {"found": PLACES, "missing": [], "pins": []}
TO_CPU = "reinstall mxnet"


def installed(wheel="mxnet-cu112", seen=0, error=None):
    """An MXNet that can be imported."""
    build = {"features": {"CUDA": "-cu" in wheel}, "library": "/x/libmxnet.so"}
    found = {"MXNet": {"version": "1.9.1", "path": "/x/mxnet", "seconds": 1.0}, "build": build}
    return checks.Mxnet({wheel: "1.9.1"}, "/x/mxnet", Result({**found, **({} if error else {"gpus": seen})}, error))


def cuda_checks(monkeypatch, wheel="mxnet-cu112", devices=(), seen=None, error=None, **results):
    """The checks for a machine whose children find this, and for an MXNet that sees as many GPUs as there are."""
    results.setdefault("driver", {"driver": DRIVER})
    found = {"libraries": FOUND, **results}
    if isinstance(found["driver"], dict):
        found["driver"] = {**found["driver"], "devices": list(devices)}

    def run(task, *arguments, limit):
        result = found[task.replace(" ", "_")]
        return Result({}, result) if isinstance(result, str) else Result(result)

    monkeypatch.setattr(checks, "run", run)
    monkeypatch.setattr(checks, "reinstall", lambda wheel: f"reinstall {wheel}")
    mxnet = installed(wheel, len(devices) if seen is None else seen, error)
    return {check.name: check for check in checks.cuda(mxnet)}


def test_a_gpu_that_runs_the_machine_code(monkeypatch):
    found = cuda_checks(monkeypatch, devices=[AMPERE])
    assert [check.status for check in found.values()] == ["note", "note", "ok", "ok"]
    assert tuple(found) == GPU_CHECKS
    assert "NVIDIA A100 (compute capability 8.0, 40 GiB)" in found["GPUs"].text
    assert "535.104.05, newest CUDA 12.2" in found["driver"].text
    assert found["libraries"].text.endswith("are there, below /x.")
    assert "machine code for compute capability 5.0 to 8.6" in found["machine code"].text


def test_a_gpu_that_is_newer_than_the_machine_code(monkeypatch):
    check = cuda_checks(monkeypatch, devices=[AMPERE, HOPPER])["machine code"]
    assert (check.status, check.fix, check.facts["without"]) == ("problem", TO_CPU, [1])
    assert "none for NVIDIA H100 (compute capability 9.0" in check.text
    assert "A100" not in check.text
    ends = [((5, 0), "ok"), ((8, 9), "ok"), ((3, 7), "problem"), ((12, 0), "problem")]
    for capability, status in ends:
        device = {**AMPERE, "capability": list(capability)}
        assert cuda_checks(monkeypatch, devices=[device])["machine code"].status == status


def test_a_driver_that_is_too_old(monkeypatch):
    check = cuda_checks(monkeypatch, driver={"driver": {**DRIVER, "cuda": [10, 2]}})["driver"]
    assert (check.status, check.fix) == ("problem", TO_CPU)
    assert "too old, as this MXNet needs one for CUDA 11.0" in check.text


def test_gpus_that_are_hidden_or_that_mxnet_does_not_see(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check = cuda_checks(monkeypatch)["GPUs"]
    assert (check.status, check.fix) == ("problem", "unset CUDA_VISIBLE_DEVICES")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    check = cuda_checks(monkeypatch, devices=[AMPERE], seen=0, error="Check failed: e == cudaSuccess")["GPUs"]
    assert (check.status, check.fix, check.facts["seen"]) == ("problem", TO_CPU, 0)
    assert "MXNet sees 0 of them (Check failed: e == cudaSuccess)" in check.text


def test_what_is_missing_for_a_gpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # tests beside TensorFlow set it
    missing = {"found": {}, "missing": ["libcudnn.so.8"], "pins": ["nvidia-cudnn-cu11==8.9.6.50"]}
    found = cuda_checks(monkeypatch, driver={"driver": None}, libraries=missing)
    assert (found["driver"].status, found["driver"].fix) == ("problem", TO_CPU)
    assert found["libraries"].fix == f"{PIP} install --force-reinstall --no-deps nvidia-cudnn-cu11==8.9.6.50"
    found = cuda_checks(monkeypatch)
    assert (found["GPUs"].status, found["GPUs"].fix) == ("problem", TO_CPU)


def test_a_driver_that_hangs(monkeypatch):
    found = cuda_checks(monkeypatch, driver="no answer within 20 seconds")
    assert (found["driver"].status, found["driver"].fix) == ("problem", "sudo reboot")
    assert "no answer within 20 seconds" in found["driver"].text


def test_mxnet_for_the_cpu_needs_no_gpu(monkeypatch):
    (check,) = cuda_checks(monkeypatch, "mxnet", devices=[HOPPER]).values()
    assert check.status == "note" and "H100 (compute" in check.text and "computes on the CPU" in check.text
    (check,) = cuda_checks(monkeypatch, "mxnet", driver={"driver": None}).values()
    assert check.status == "note" and "no NVIDIA driver" in check.text
    statuses = [check.status for check in cuda_checks(monkeypatch, "mxnet", driver="hangs").values()]
    assert "problem" not in statuses


# ---- what is computed ------------------------------------------------------------------------------------------------


def judged(monkeypatch, differences, error=None, kind="cpu", number=0):
    monkeypatch.setattr(checks, "run", lambda *arguments: Result(dict(zip(OPERATORS, differences)), error))
    return checks.operators(installed("mxnet-cu112"), kind, number)


def test_results_are_judged(monkeypatch):
    check = judged(monkeypatch, [1e-7, 3e-6, 0, 0])
    assert (check.group, check.name, check.status) == ("cpu", "operators", "ok")
    assert "largest difference 3e-06" in check.text
    check = judged(monkeypatch, [1e-7, 0.09, 0, 0])
    assert check.status == "problem" and "gradient of a convolution differs from NumPy by 9e-02" in check.text
    assert check.fix.endswith("install mxnet-cu112==1.9.1")
    assert judged(monkeypatch, [float("nan"), 0, 0, 0]).status == "problem"
    assert judged(monkeypatch, [8e-4, 0, 0, 0]).status == "problem"
    check = judged(monkeypatch, [8e-4, 0, 0, 0], kind="gpu", number=1)
    assert check.group == "gpu 1" and check.status == "ok" and "as TensorFloat-32 rounds" in check.text
    assert judged(monkeypatch, [8e-3, 0, 0, 0], kind="gpu").status == "problem"


def test_a_device_that_fails(monkeypatch):
    check = judged(monkeypatch, [1e-7, 1e-7], "the process was killed by SIGSEGV", "gpu")
    assert check.status == "problem" and "max pooling fails: the process was killed by SIGSEGV" in check.text
    assert check.fix.endswith("install mxnet==1.9.1")
    assert check.facts == {
        "differences": {"convolution": 1e-7, "gradient of a convolution": 1e-7},
        "failures": {"max pooling": "the process was killed by SIGSEGV"},
    }


def test_the_informative_line_of_an_error_of_mxnet_is_shown():
    line = "MXNetError: Check failed: e == cudaSuccess: no kernel image"
    assert child.shortened(f"Traceback (most recent call last):\n  File x\n{line}\n") == line
    assert child.shortened("") == "no reason given"


def test_every_gpu_that_mxnet_sees_is_tried(monkeypatch):
    mxnet, asked = installed(seen=2), []
    monkeypatch.setattr(checks.Mxnet, "installed", lambda: mxnet)
    monkeypatch.setattr(checks, "cuda", lambda mxnet: [])
    equal = Result(dict.fromkeys(OPERATORS, 0.0))
    monkeypatch.setattr(checks, "run", lambda *arguments: asked.append(arguments) or equal)
    assert [check.group for check in doctor.examine() if check.name == "operators"] == ["cpu", "gpu 0", "gpu 1"]
    assert asked == [("operators", "cpu", "0"), ("operators", "gpu", "0"), ("operators", "gpu", "1")]


# ---- what is printed -------------------------------------------------------------------------------------------------


def test_a_problem_needs_a_command():
    with pytest.raises(ValueError, match="a problem must come with the command that fixes it; received fix=None"):
        Check("cpu", "operators", "problem", "wrong")


@pytest.mark.parametrize("width", [30, 80, 120])
def test_lines_fit_the_terminal_and_commands_stay_in_one_piece(width):
    command = f"{PIP} install a very long list of packages that must not be split"
    check = Check("cpu", "operators", "problem", "words " * 40, command)
    *lines, last = map(click.unstyle, show.lines(check, width))
    assert lines[0].startswith("problem operators     words")
    assert all(len(line) <= max(width, show.NARROWEST + 22) for line in lines)
    assert last.endswith(f"fix it with: {command}")


@pytest.mark.parametrize(
    ("statuses", "words"),
    [(["ok", "note"], "All is well"), (["problem"], "1 problem found"), (["problem"] * 2, "2 problems found")],
)
def test_the_verdict_counts(statuses, words):
    found = doctor.as_data([Check("cpu", "operators", status, "x", "fix it") for status in statuses], 1.0)
    text = " ".join(map(click.unstyle, show.verdict(found, 80)))
    assert text.strip().startswith(words)
