"""What fails ends the run with a message that names it; what is started again goes on from the last checkpoint."""

import os
import pickle
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import cluster
import numpy as np
import pytest
import train
import training

import programs
from conftest import EXAMPLES

SETTINGS = ("--epochs", "1", "--checkpoint-every", "4")
STEPS = 16  # of an epoch


def options_of(out, *more):
    return train.parsed(["--out", str(out), *SETTINGS, *more])


def losses(lines):
    """What the first worker printed, by step."""
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+)/\d+ loss (\S+)", "\n".join(lines))}


def failed(out, number, *more):
    """The lines of a run of two workers whose second gets a signal after six steps, and the message."""
    options, lines = options_of(out, *more), []
    out.mkdir(exist_ok=True)
    options.signal = number
    with pytest.raises(cluster.Failed) as error:
        for line in cluster.run(programs.faulty, options, workers=2, servers=1, patience=60):
            lines.append(line)
    return lines, str(error.value)


def resumed(out, *more):
    lines = list(cluster.run(training.train, options_of(out, *more), workers=2, servers=1, patience=60))
    assert lines[0] == f"2 workers, {STEPS} steps, from step 4"
    assert (out / "network-symbol.json").is_file()
    return lines


@pytest.fixture(scope="module")
def undisturbed(engine, tmp_path_factory):
    """The losses of a run without a fault, by step."""
    out = tmp_path_factory.mktemp("undisturbed")
    of_steps = losses(cluster.run(training.train, options_of(out), workers=2, servers=1, patience=60))
    assert list(of_steps) == list(range(1, STEPS + 1))
    assert of_steps[STEPS] < of_steps[1]
    return of_steps


def test_a_worker_that_is_killed_is_named_and_the_run_resumes(tmp_path, undisturbed):
    lines, message = failed(tmp_path, signal.SIGKILL)
    assert re.fullmatch(r"worker [01] died", message)
    assert losses(lines).keys() >= {1, 2, 3, 4, 5}
    assert {**losses(lines), **losses(resumed(tmp_path))} == pytest.approx(undisturbed, rel=1e-5)


def test_momentum_is_resumed_where_workers_update(tmp_path, undisturbed):
    """The same losses as where servers update; the comparison notices a momentum that is lost."""
    more = ("--update-on", "workers")
    failed(tmp_path / "kept", signal.SIGKILL, *more)
    shutil.copytree(tmp_path / "kept", tmp_path / "lost")
    states = tmp_path / "lost" / "checkpoints" / "step-00000004" / "states"
    momenta, optimizer = pickle.loads(states.read_bytes())
    states.write_bytes(pickle.dumps(({key: value * 0 for key, value in momenta.items()}, optimizer)))
    expected = {step: loss for step, loss in undisturbed.items() if step > 4}
    assert losses(resumed(tmp_path / "kept", *more)) == pytest.approx(expected, rel=1e-5)
    assert losses(resumed(tmp_path / "lost", *more)) != pytest.approx(expected, rel=1e-5)


def test_a_worker_that_hangs_is_noticed(tmp_path, engine, monkeypatch):
    """It stops for good, so patience may be short from then on, however slow the machine is until then."""
    wait = cluster.ray.wait

    def with_less_patience(objects, timeout):
        return wait(objects, timeout=2 if (tmp_path / "reached").exists() else timeout)

    monkeypatch.setattr(cluster.ray, "wait", with_less_patience)
    _, message = failed(tmp_path, signal.SIGSTOP)
    assert re.match(r"nothing was done in 60 s after 'epoch 1/1 step [1-7]/16 .*: is a machine gone", message)


@pytest.mark.parametrize(
    ("number", "message"),
    [(signal.SIGKILL, r"worker [01] died"), (signal.SIGTERM, r"worker [01]: ArithmeticError: no more images")],
)
def test_how_a_worker_ended_is_said(tmp_path, engine, number, message):
    options = options_of(tmp_path)
    options.signal = number
    with pytest.raises(cluster.Failed, match=message):
        list(cluster.run(programs.raising, options, workers=2, servers=1, patience=60))


ENDING = """
import atexit, os, signal, subprocess, sys, time
if sys.argv[1:] == ["child"]:
    atexit.register(time.sleep, 600)  # as MXNet may
    import cluster
    cluster.end_with_ray()
    print(os.getpid(), flush=True)
    if os.environ["STOPS"]:
        os.kill(os.getpid(), signal.SIGSTOP)
else:
    child = subprocess.Popen([sys.executable, __file__, "child"], stdout=subprocess.PIPE, text=True)
    print(child.stdout.readline(), flush=True)
    if os.environ["STOPS"]:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        os._exit(0)
    sys.exit(child.wait(timeout=40))
"""


@pytest.mark.parametrize("stops", ["", "1"], ids=["waits at exit", "outlives its parent"])
def test_a_process_ends(tmp_path, stops):
    (tmp_path / "ending.py").write_text(ENDING)
    settings = {"env": {**os.environ, "STOPS": stops}, "stdout": subprocess.PIPE, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, str(tmp_path / "ending.py")], **settings)
    assert done.returncode == 0
    assert is_gone(int(done.stdout))


def is_gone(process, seconds=20):
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{process}").exists() and "(zombie)" not in Path(f"/proc/{process}/status").read_text():
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def command(*arguments):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "train.py"), *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_one_process_trains_and_refuses_another_seed(tmp_path):
    done = command("--out", tmp_path, "--epochs", 2, "--checkpoint-every", 1000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 workers, 32 steps, from step 0\n")
    assert "accuracy 1.0000" in done.stdout
    assert done.stdout.endswith("for images of 3 x 31 x 31\n")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000032"]
    refused = command("--out", tmp_path, "--epochs", 2, "--seed", 1)
    assert refused.returncode == 1
    assert re.search(r"^train: ValueError: seed must be that of .*step-00000032, 0; received seed=1$", refused.stderr)


def test_the_command_starts_workers_again_after_a_failure(tmp_path):
    done = command("--out", tmp_path, *SETTINGS, "--workers", 2, "--batch-size", 65, "--restarts", 1)
    assert done.returncode == 1
    failure = r"train: worker [01]: ValueError: batch_size must be a multiple of the 2 workers; received batch_size=65"
    assert re.search(f"{failure}\ntrain: start 2 of 2\n{failure}\n$", done.stderr), done.stderr


def test_wrong_settings_are_named(tmp_path, capsys):
    np.savez(tmp_path / "data.npz", x_train=np.zeros((8, 4, 4)))
    for arguments, message in (
        (("--batch-size", "5000"), "batch_size must be at most the 1024 images .*; received batch_size=5000"),
        (("--network", "model"), r"network must be a file of .*, or MODULE:FUNCTION; received 'model'"),
        (("--data", str(tmp_path / "data.npz")), "data must hold x_train, y_train, x_test and y_test; received"),
    ):
        with pytest.raises(ValueError, match=message):
            training.Run(options_of(tmp_path, *arguments), None)
    with pytest.raises(SystemExit):
        options_of(tmp_path, "--epochs", "0")
    assert "--epochs must be positive; received 0" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["train", "score", "measure"])
@pytest.mark.parametrize("package", ["ray", "pyarrow"])
def test_without_a_package_the_command_that_installs_it_is_printed(program, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("cluster", "score"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "argv", [f"{program}.py", "--out", str(tmp_path), "--workers", "2"])
    wanted = rf"^{program}: {package} must be installed: .* pip install -r examples/distributed/requirements\.txt$"
    with pytest.raises(SystemExit, match=wanted):
        runpy.run_path(str(EXAMPLES / f"{program}.py"), run_name="__main__")


@pytest.mark.parametrize("name", ["checkpoints", "training"])
def test_the_examples_of_a_module(name):
    """In a process of its own: Ray prints the logs of the workers of other tests here."""
    command = [sys.executable, "-m", "doctest", "-v", "-o", "ELLIPSIS", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and re.search(r"^[1-9]\d* passed", done.stdout, re.MULTILINE), done
