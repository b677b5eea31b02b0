"""`mxsame doctor`: on a machine that is well, on broken ones, and what it says of GPUs that are not here.

Broken machines are processes whose site-packages is a folder made for the case, as in tests/test_install.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("click")

import mxsame
from mxsame import doctor
from mxsame.doctor import child, computing, cuda, probe, reference, show, software, steps, trial
from mxsame.doctor.check import STATUSES, Check

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
        assert set(check) == {"group", "name", "status", "text", "mend", "facts"}
        assert re.fullmatch(r"software|cuda|cpu|gpu \d+", check["group"])
        assert check["name"] in doctor.__doc__, "every check is documented"
        assert check["status"] in STATUSES
        assert check["text"] and isinstance(check["facts"], dict)
        assert check["mend"] is None or (isinstance(check["mend"], str) and "\n" not in check["mend"])
        assert check["mend"] or check["status"] != "problem"
    assert found["well"] == all(check["status"] != "problem" for check in found["checks"])
    names = [(check["group"], check["name"]) for check in found["checks"]]
    assert len(names) == len(set(names))
    return {f"{check['group']}: {check['name']}": check for check in found["checks"]}


# ---- a machine that is well ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here():
    """What the doctor says of this machine; it runs once."""
    told = []
    found = doctor.diagnose(told.append)
    assert [check.as_data() for check in told] == found["checks"]
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
    assert set(checks["cpu: operators"]["facts"]["differences"]) == set(steps.operators())
    assert set(checks["cpu: deployed"]["facts"]["differences"]) == {steps.DEPLOYED}
    tried, refused = set(checks["cpu: plans"]["facts"]["differences"]), {"transposed convolution, extend"}
    assert tried == set(steps.plans()) - refused
    assert checks["cpu: oneDNN"]["status"] == "ok"
    assert set(checks["cpu: oneDNN"]["facts"]["convolutions"]) == {"forward", "backward"}


def test_every_strategy_is_tried_but_the_one_that_is_no_plan():
    assert {(step.operator, step.strategy) for step in steps.plans().values()} == {
        (operator, strategy) for operator, family in steps.FAMILIES.items() for strategy in family
    } - {("conv", "native"), ("max", "native"), ("avg", "native")}
    unknown = {step.strategy for step in steps.plans().values() if step.window.size is None}
    assert unknown == {"shift"}, "all others are exact for a size that is known"


@pytest.mark.parametrize("step", ["convolution, slice", "max pooling, full", "transposed convolution, cut"])
def test_a_wrong_result_is_a_difference(step, monkeypatch):
    """Windows that begin one cell off, as with symmetric padding."""
    assert trial.difference(steps.plans()[step], "cpu", 0) < 1e-5
    for name in ("convolution", "pooling", "transposed"):
        right = getattr(reference, name)
        shifted = lambda *args, right=right: right(*args[:-1], [pair[::-1] for pair in args[-1]])  # noqa: E731
        monkeypatch.setattr(reference, name, shifted)
    assert trial.difference(steps.plans()[step], "cpu", 0) > 0.05


def test_shapes_and_what_is_no_number_are_infinitely_far():
    assert trial._apart(np.zeros((2, 2)), np.ones((2, 3))) == float("inf")
    assert trial._apart(np.array([1.0, np.nan]), np.ones(2)) == float("inf")
    assert trial._apart(np.array([1.0, 3.0]), np.array([1.0, 4.0])) == 0.25


# ---- broken machines -------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path):
    """Makes site-packages: real packages by name, and files; returns what the doctor says there."""
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
    assert found["software: MXNet"]["mend"] == f"{PIP} install mxnet==1.9.1"


def test_neither_numpy_nor_mxnet(site):
    done = site()
    found = problems(done)
    assert list(found) == ["software: MXNet"]
    assert found["software: MXNet"]["mend"] == f"{PIP} install 'numpy<2'", "the first thing first"
    assert is_schema(json.loads(done.stdout))["software: NumPy"]["facts"] == {"version": None, "path": None}


def test_numpy_2(site):
    files = {"numpy/__init__.py": "__version__ = '2.1.3'\n", "numpy-2.1.3.dist-info/METADATA": ""}
    done = site(files={**files, **mxnet(BARE)})
    found = problems(done)
    assert list(found) == ["software: MXNet"]
    assert "needs NumPy 1, and NumPy 2 is installed" in found["software: MXNet"]["text"]
    assert found["software: MXNet"]["mend"] == f"{PIP} install 'numpy<2'"
    assert is_schema(json.loads(done.stdout))["software: NumPy"]["facts"]["version"] == "2.1.3"


def test_two_wheels_over_each_other(site):
    found = problems(site(*NUMPY, files={**mxnet(BARE), **mxnet(BARE, "mxnet-cu112")}))
    check = found["software: MXNet"]
    assert "mxnet and mxnet-cu112 are installed over each other" in check["text"]
    assert check["mend"] == f"{PIP} uninstall -y mxnet mxnet-cu112 && {PIP} install mxnet==1.9.1"
    assert check["facts"]["wheels"] == {"mxnet": "1.9.1", "mxnet-cu112": "1.9.1"}


def test_mxnet_that_crashes_while_it_is_imported(site):
    code = "import os, signal\nprint('so far', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    found = problems(site(*NUMPY, files=mxnet(code)))
    check = found["software: MXNet"]
    assert check["text"].startswith("crashes while it is imported: the process was killed by SIGSEGV (mxnet 1.9.1, /")
    assert check["mend"] == f"{PIP} uninstall -y mxnet && {PIP} install mxnet==1.9.1"


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
    assert found["cuda: driver"]["mend"] == found["software: MXNet"]["mend"] == to_cpu
    assert found["cuda: libraries"]["mend"].startswith(f"{PIP} install ")
    assert "nvidia-cudnn-cu11==" in found["cuda: libraries"]["mend"]


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
    (mend,) = (line.strip() for line in said if "mend it with" in line and "mxnet" in line)
    assert mend == f"mend it with: {PIP} install mxnet==1.9.1", "in one piece, to be copied"
    assert said[-1].startswith("1 problem found (")


@pytest.mark.parametrize("command", ["demo", "bench"])
def test_other_commands_say_why_in_one_error(site, command):
    links = ("rich", "pygments", "markdown_it", "mdurl", "matplotlib") if command == "demo" else ()
    done = site(*links, arguments=("demo", "--no-picture") if command == "demo" else ("bench", "--json"))
    assert done.returncode == 1 and done.stdout.strip() == ""
    assert done.stderr.startswith("Error: NumPy cannot be imported: No module named 'numpy'.\n  found: Python ")
    assert f"\n  mend it with: {PIP} install 'numpy<2'\n" in done.stderr


@pytest.mark.parametrize("script", [False, True], ids=["python -m", "script"])
def test_pads_and_help_need_neither_numpy_nor_mxnet(site, script):
    done = site(arguments=("pads", "--size", "8", "--kernel", "3", "--stride", "2"), script=script)
    assert done.returncode == 0 and done.stdout.startswith("pads (0, 1), output size 4")


# ---- children --------------------------------------------------------------------------------------------------------

CHILD = """
import json, os, signal, sys, time
_, path, task, steps, *arguments = sys.argv
for step in json.loads(steps):
    print("noise without an end", end="", flush=True)
    if step == "crash": os.kill(os.getpid(), signal.SIGKILL)
    if step == "exit": print("\\nlast words", flush=True); os._exit(3)
    if step == "hang": time.sleep(60)
    report = {"found": {"pid": os.getpid()}, "error": None, "kind": ""}
    if step == "error": report.update(error="no", kind="ValueError")
    print("\\nmxsame-doctor:" + json.dumps(report), flush=True)
print("afterwards")
"""


def become(monkeypatch, names, **options):
    monkeypatch.setattr(child, "START", CHILD)
    heard = []
    results = list(child.results("task", names, limits=(20, 2), heard=heard, **options))
    assert [result.step for result in results] == names
    return results, heard


def test_a_crash_and_a_hang_cost_their_step_alone(monkeypatch):
    results, heard = become(monkeypatch, ["well", "crash", "next", "exit", "error", "hang", "last"])
    assert [result.kind for result in results] == ["", "crash", "", "crash", "ValueError", "hang", ""]
    assert results[1].error == "the process was killed by SIGKILL"
    assert results[3].error == "the process ended with exit code 3: last words"
    assert results[5].error == "no answer within 2 seconds"
    pids = [result.found["pid"] for result in results if result.found]
    assert len(pids) == len(set(pids)) == 4, "another child behind each that was lost"
    assert "afterwards" in heard, "what is buffered until the end is heard too"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_error_on_a_gpu_stays_with_its_process(monkeypatch):
    results, _ = become(monkeypatch, ["well", "error", "next", "last"], alone=True)
    first, _, third, fourth = (result.found.get("pid") for result in results)
    assert first != third == fourth
    results, _ = become(monkeypatch, ["well", "error", "next"])
    assert results[0].found == results[2].found


def test_a_child_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    results = list(child.results("mxnet", ["import", "build"]))
    assert [result.kind for result in results] == ["crash", "crash"]
    assert "no process could be started" in results[0].error


def test_a_probe_reports_an_error_in_its_words(capfd, monkeypatch):
    def fails():
        raise OSError("no such thing")

    monkeypatch.setitem(probe.TASKS, "task", lambda: {"one": fails, "two": lambda: {"a": 1}})
    monkeypatch.setattr(sys, "__stdout__", sys.stdout)
    probe.main("task", '["one", "two"]')
    lines = [line for line in capfd.readouterr().out.splitlines() if line]
    assert [json.loads(line[len(child.MARK) :]) for line in lines] == [
        {"found": {}, "error": "no such thing", "kind": "OSError"},
        {"found": {"a": 1}, "error": None, "kind": ""},
    ]


# ---- GPUs that are not here ------------------------------------------------------------------------------------------

AMPERE = {"number": 0, "name": "NVIDIA A100", "capability": [8, 0], "memory": 40 * 2**30}
HOPPER = {"number": 1, "name": "NVIDIA H100", "capability": [9, 0], "memory": 80 * 2**30}
CODE = {"machine": [[7, 0], [8, 0]], "ptx": []}
DRIVER = {"path": "/usr/lib/libcuda.so.1", "cuda": [12, 2], "version": "535.104.05"}
PLACES = {name: {"path": f"/x/{name}/lib/{name}.so", "origin": "wheel"} for name in ("cudnn", "cublas")}
FOUND = {"found": PLACES, "missing": [], "pins": []}
TO_CPU = f"{PIP} uninstall -y mxnet-cu112 && {PIP} install mxnet==1.9.1"


def installed(wheel="mxnet-cu112", **answers):
    """An MXNet that can be imported; an answer that is a string is an error."""
    found = {"import": {}, "build": {"features": {"CUDA": "-cu" in wheel}, "library": "/x/libmxnet.so"}, **answers}
    return software.Mxnet({wheel: "1.9.1"}, str(SITE / "mxnet"), {step: became(step, found[step]) for step in found})


def became(step, answer, kind="hang"):
    return child.Result(step, {}, answer, kind) if isinstance(answer, str) else child.Result(step, answer)


def cuda_checks(monkeypatch, wheel="mxnet-cu112", seen=None, **answers):
    """The checks for a machine whose child answers this, and for an MXNet that sees as many GPUs as there are."""
    answers = {"driver": {"driver": DRIVER}, "libraries": FOUND, "machine_code": CODE, **answers}
    answers.setdefault("GPUs", {"devices": []})
    if seen is None:
        seen = {"count": 0 if isinstance(answers["GPUs"], str) else len(answers["GPUs"]["devices"])}

    def results(task, names, *arguments, **options):
        return (became(name, answers[name.replace(" ", "_")]) for name in names)

    monkeypatch.setattr(child, "results", results)
    return {check.name: check for check in cuda.checks(installed(wheel, GPUs=seen))}


def test_a_gpu_that_runs_the_machine_code(monkeypatch):
    checks = cuda_checks(monkeypatch, GPUs={"devices": [AMPERE]})
    assert [check.status for check in checks.values()] == ["note", "note", "ok", "ok"]
    assert tuple(checks) == GPU_CHECKS
    assert "NVIDIA A100 (compute capability 8.0, 40 GiB)" in checks["GPUs"].text
    assert "535.104.05, newest CUDA 12.2" in checks["driver"].text
    assert checks["libraries"].text.endswith("are there (2 from wheels), below /x.")
    assert "machine code for 7.0 and 8.0 and no PTX" in checks["machine code"].text


def test_a_gpu_that_is_newer_than_the_machine_code(monkeypatch):
    check = cuda_checks(monkeypatch, GPUs={"devices": [AMPERE, HOPPER]})["machine code"]
    assert (check.status, check.mend, check.facts["without"]) == ("problem", TO_CPU, [1])
    assert "cannot run on NVIDIA H100 (compute capability 9.0" in check.text
    assert "Graphs of cuDNN's operators alone" in check.text and "was ever tried on one" in check.text
    assert "A100" not in check.text


def test_a_driver_that_is_too_old(monkeypatch):
    check = cuda_checks(monkeypatch, driver={"driver": {**DRIVER, "cuda": [10, 2]}})["driver"]
    assert (check.status, check.mend) == ("problem", TO_CPU)
    assert "too old, as this MXNet needs one for CUDA 11.0" in check.text


def test_gpus_that_are_hidden_or_that_mxnet_does_not_see(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check = cuda_checks(monkeypatch)["GPUs"]
    assert (check.status, check.mend) == ("problem", "unset CUDA_VISIBLE_DEVICES")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    check = cuda_checks(monkeypatch, GPUs={"devices": [AMPERE]}, seen="Check failed: e == cudaSuccess")["GPUs"]
    assert (check.status, check.mend, check.facts["seen"]) == ("problem", TO_CPU, 0)
    assert "MXNet sees 0 of them (Check failed: e == cudaSuccess)" in check.text


def test_ptx_runs_on_newer_gpus(monkeypatch):
    code = {"machine": [[7, 0]], "ptx": [[8, 0]]}
    check = cuda_checks(monkeypatch, GPUs={"devices": [HOPPER]}, machine_code=code)["machine code"]
    assert check.status == "ok" and "PTX for 8.0" in check.text


def test_what_is_missing_for_a_gpu(monkeypatch):
    missing = {"found": {}, "missing": ["libcudnn.so.8"], "pins": ["nvidia-cudnn-cu11==8.9.6.50"]}
    checks = cuda_checks(monkeypatch, driver={"driver": None}, libraries=missing)
    assert (checks["driver"].status, checks["driver"].mend) == ("problem", TO_CPU)
    assert checks["libraries"].mend == f"{PIP} install --force-reinstall --no-deps nvidia-cudnn-cu11==8.9.6.50"
    checks = cuda_checks(monkeypatch)
    assert (checks["GPUs"].status, checks["GPUs"].mend) == ("problem", TO_CPU)


def test_a_driver_that_hangs(monkeypatch):
    checks = cuda_checks(monkeypatch, driver="no answer within 20 seconds", GPUs="no answer within 20 seconds")
    assert (checks["driver"].status, checks["driver"].mend) == ("problem", "sudo reboot")
    assert "no answer within 20 seconds" in checks["driver"].text


def test_mxnet_for_the_cpu_needs_no_gpu(monkeypatch):
    (check,) = cuda_checks(monkeypatch, "mxnet", GPUs={"devices": [HOPPER]}).values()
    assert check.status == "note" and "H100 (compute" in check.text and "computes on the CPU" in check.text
    (check,) = cuda_checks(monkeypatch, "mxnet", driver={"driver": None}).values()
    assert check.status == "note" and "no NVIDIA driver" in check.text
    statuses = [check.status for check in cuda_checks(monkeypatch, "mxnet", driver="hangs").values()]
    assert "problem" not in statuses


# ---- what is computed ------------------------------------------------------------------------------------------------


def judged(*results, allowed=computing.ROUNDING):
    named = [child.Result(f"step {number}", *result) for number, result in enumerate(results)]
    return computing.judged("gpu 0", "operators", named, allowed, "mend")


def right(difference):
    return ({"difference": difference},)


def test_steps_are_judged():
    check = judged(right(1e-7), right(3e-6))
    assert check.status == "ok" and "largest difference 3e-06" in check.text
    check = judged(right(1e-7), right(0.09))
    assert check.status == "problem" and "step 1 differs from NumPy by 9e-02" in check.text
    assert judged(right(float("nan"))).status == "problem"
    check = judged(right(8e-4), allowed=computing.TENSOR_FLOAT)
    assert check.status == "ok" and "as TensorFloat-32 rounds" in check.text
    check = judged(({}, "the process was killed by SIGSEGV", "crash"), right(1e-7))
    assert check.status == "problem" and "step 0 fails: the process was killed by SIGSEGV" in check.text
    assert check.facts == {
        "differences": {"step 1": 1e-7},
        "failures": {"step 0": "the process was killed by SIGSEGV"},
    }
    check = judged(({}, "the strategy 'extend' is not exact here; received", "ValueError"), right(1e-7))
    assert check.status == "ok" and "failures" in check.facts and not check.facts["failures"]


def test_errors_of_mxnet_are_told_by_the_line_that_says_something():
    told = "MXNetError: Check failed: e == cudaSuccess: no kernel image"
    assert child.shortened(f"Traceback (most recent call last):\n  File x\n{told}\n") == told
    assert child.shortened("") == "no reason given"


def devices(monkeypatch, results, device):
    monkeypatch.setattr(child, "results", lambda task, names, *rest, **more: (result for result in results(names)))
    return {check.name: check for check in computing.checks(installed(), device, lambda what: None)}


def test_plans_are_left_where_operators_fail_on_a_gpu_and_a_deployed_net_is_tried(monkeypatch):
    def fails_but_for_the_net(names):
        return [became(name, {"difference": 1e-7} if name == steps.DEPLOYED else "no kernel image") for name in names]

    monkeypatch.setattr(became, "__defaults__", ("crash",))
    checks = devices(monkeypatch, fails_but_for_the_net, ("gpu", 0))
    assert checks["operators"].mend == TO_CPU
    assert {name: (check.status, check.group) for name, check in checks.items()} == {
        "operators": ("problem", "gpu 0"),
        "plans": ("skipped", "gpu 0"),
        "deployed": ("ok", "gpu 0"),
    }
    checks = devices(monkeypatch, fails_but_for_the_net, ("cpu", 0))
    assert checks["plans"].status == "problem", "on the CPU each plan has a chance of its own"


def test_nothing_more_is_tried_behind_a_hang(monkeypatch):
    seen = []

    def results(names):
        for name in names:
            seen.append(name)
            yield became(name, "no answer within 2 seconds")

    checks = devices(monkeypatch, results, ("gpu", 1))
    assert len(seen) == 1
    assert [check.status for check in checks.values()] == ["problem", "skipped", "skipped"]
    assert "a step has hung" in checks["deployed"].text


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_deployed_net_is_compared_with_numpy(kind, monkeypatch):
    """A GPU's graph is one that the CPU runs as well."""
    here = {"gluon": trial.mx.gluon, "nd": trial.mx.nd, "cpu": trial.mx.cpu, "Context": lambda *args: trial.mx.cpu()}
    monkeypatch.setattr(trial, "mx", SimpleNamespace(**here))
    seen, real = [], trial.deploy
    monkeypatch.setattr(
        trial, "deploy", lambda *args, **named: seen.append(named["cudnn_only"]) or real(*args, **named)
    )
    assert trial.deployed_difference(kind, 0) < 1e-5
    assert seen == [kind == "gpu"]
    monkeypatch.setattr(trial.padding, "same_pads", lambda *args: (1, 0))
    assert trial.deployed_difference(kind, 0) > 0.05


def test_onednn_that_is_at_rest_or_absent():
    check = computing.onednn("cpu", [], built=True)
    assert (check.status, check.mend) == ("note", "unset MXNET_MKLDNN_ENABLED")
    line = "dnnl_verbose,exec,cpu,convolution,jit:avx2,forward_training,src"
    check = computing.onednn("cpu", [line], built=True)
    assert check.facts["convolutions"] == {"forward": ["jit:avx2"]}
    assert "not seen to run a convolution backward" in check.text
    assert computing.onednn("cpu", [], built=False).mend is None


# ---- versions, and what is printed -----------------------------------------------------------------------------------


def test_versions_are_read_from_names(tmp_path, monkeypatch):
    for name in ("NumPy-1.26.4.dist-info", "a.b_c-2.dist-info", "old-1.2-py3.8.egg-info", "numpy-1.0.dist-info", "x"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), "/no/such/folder"])
    assert software.installed() == {"numpy": "1.26.4", "a-b-c": "2", "old": "1.2"}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"scipy": "1.10.1"}, "scipy 1.10.1: works"),
        ({"tensorflow": "2.16.1", "numpy": "1.26.4"}, "tensorflow 2.16.1: not tried"),
        ({"keras-mxnet": "2.1"}, "keras-mxnet 2.1: not tried"),
        ({"onnx": "1.18.0"}, "onnx 1.18.0: MXNet's exporter needs onnx < 1.18"),
        ({"onnx": "1.14.1"}, "onnx 1.14.1: MXNet's exporter takes it"),
        ({}, "neither SciPy nor TensorFlow nor keras-mxnet"),
    ],
)
def test_companions(found, words):
    checks = {check.name: check for check in software.companions(found)}
    assert words in checks["companions"].text
    assert checks["extras"].mend == f"{PIP} install click rich matplotlib"
    (check,) = [check for check in software.companions({**found, "scipy": "2.0.0"}) if check.name == "SciPy"]
    assert check.mend == f"{PIP} install 'scipy<2'"


def test_a_problem_needs_a_command():
    with pytest.raises(ValueError, match="a problem must come with the command that mends it; received mend=None"):
        Check("cpu", "plans", "problem", "wrong")
    with pytest.raises(ValueError, match="status must be one of ok, note, skipped, problem; received status='bad'"):
        Check("cpu", "plans", "bad", "wrong")


@pytest.mark.parametrize("width", [30, 80, 120])
def test_lines_fit_the_terminal_and_commands_stay_in_one_piece(width):
    command = f"{PIP} install a very long list of packages that nobody wants to see cut into two"
    check = Check("cpu", "operators", "problem", "words " * 40, command)
    *lines, last = ["".join(text for text, _ in line) for line in show.lines(check, width)]
    assert lines[0].startswith("problem operators     words")
    assert all(len(line) <= max(width, show.NARROWEST + 22) for line in lines)
    assert last.endswith(f"mend it with: {command}")


@pytest.mark.parametrize(
    ("statuses", "words"),
    [(["ok", "note"], "All is well"), (["problem"], "1 problem found"), (["problem"] * 2, "2 problems found")],
)
def test_the_verdict_counts(statuses, words):
    found = doctor.as_data([Check("cpu", "plans", status, "x", "mend") for status in statuses], 1.0)
    text = " ".join("".join(text for text, _ in line) for line in show.verdict(found, 80))
    assert text.strip().startswith(words)
