"""What fails ends the run in bounded time, with a message that names it; what is started again goes on."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import mxsame  # noqa: F401  (prepares the import of MXNet, of whose arrays states are)
import pytest

import clusters

HERE = Path(__file__).parent
FAILING = HERE / "failing.py"
SETTINGS = ("--epochs", 1, "--batch-size", 64, "--checkpoint-every", 4, "--patience", 60)
STEPS = 16  # of an epoch
SOON = 30.0  # seconds in which a run that fails has to end; it takes one on an idle machine


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The losses of a run without a fault, by step."""
    out = tmp_path_factory.mktemp("undisturbed")
    cluster = clusters.finished(clusters.EXAMPLES / "train.py", "--out", out, *SETTINGS)
    losses = cluster.losses()
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < losses[1]
    return losses


def failed(tmp_path, fault, *more, options=("--workers", "2"), says=None):
    """A cluster with a fault, after it has ended."""
    environment = {"FAULT": fault, "FAULT_FILE": str(tmp_path / "reached")}
    cluster = clusters.Cluster(FAILING, "--out", tmp_path, *SETTINGS, *more, options=options, **environment)
    cluster.read_until(says or r"fault: ")
    began = time.monotonic()
    assert cluster.wait() == 1, cluster.output
    assert time.monotonic() - began < SOON
    assert not cluster.left()
    return cluster


def resumed(tmp_path, cluster, undisturbed, start, *more):
    """Runs again, from the checkpoint of that step, and compares the losses of both runs with those without a fault."""
    again = clusters.finished(clusters.EXAMPLES / "train.py", "--out", tmp_path, *SETTINGS, *more)
    assert f"from step {start}\n" in again.output
    losses = {**cluster.losses(), **again.losses()}
    assert list(again.losses()) == list(range(start + 1, STEPS + 1))
    assert losses == pytest.approx(undisturbed, rel=1e-5)
    assert list(cluster.losses()) == list(undisturbed)[: len(cluster.losses())]
    assert (tmp_path / "network-symbol.json").is_file()


KILLED = r" \(process \d+\) was ended by SIGKILL"
RAISED = r" \(process \d+\) ended with exit code 1; its last line: worker 1: RuntimeError: no more pictures"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("worker 1 kill 6", "launch: worker 1" + KILLED),
        ("server 0 kill 6", "launch: server 0" + KILLED),
    ],
)
def test_a_process_that_is_killed_is_named_and_the_run_resumes(tmp_path, undisturbed, fault, message):
    cluster = failed(tmp_path, fault)
    assert re.match(message, cluster.last_line()), cluster.output
    resumed(tmp_path, cluster, undisturbed, 4)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("scheduler 0 kill 1", "launch: scheduler" + KILLED),
        ("worker 1 raise 1", "launch: worker 1" + RAISED),
    ],
)
def test_a_process_that_ends_is_named(tmp_path, fault, message):
    cluster = failed(tmp_path, fault)
    assert re.match(message, cluster.last_line()), cluster.output


def test_momentum_is_resumed_where_workers_update(tmp_path, undisturbed):
    """The same losses as where servers update."""
    cluster = failed(tmp_path, "worker 1 kill 9", "--update-on", "workers")
    resumed(tmp_path, cluster, undisturbed, 8, "--update-on", "workers")


def test_momentum_is_resumed_on_two_servers(tmp_path, undisturbed):
    cluster = failed(tmp_path, "server 0 kill 9", options=("--workers", "2", "--servers", "2"))  # both are hit
    assert re.match(r"launch: server [01] \(process \d+\) was ended by SIGKILL", cluster.last_line())
    again = clusters.finished(
        clusters.EXAMPLES / "train.py", "--out", tmp_path, *SETTINGS, options=("--workers", "2", "--servers", "2")
    )
    assert {**cluster.losses(), **again.losses()} == pytest.approx(undisturbed, rel=1e-5)


def test_the_comparison_of_losses_notices_a_lost_momentum(tmp_path, undisturbed):
    cluster = failed(tmp_path, "worker 1 kill 6", "--update-on", "workers")
    states = tmp_path / "checkpoints" / "step-00000004" / "states"
    momenta, optimizer = pickle.loads(states.read_bytes())
    states.write_bytes(pickle.dumps(({key: value * 0 for key, value in momenta.items()}, optimizer)))
    with pytest.raises(AssertionError, match="comparison failed"):
        resumed(tmp_path, cluster, undisturbed, 4, "--update-on", "workers")


def test_a_checkpoint_that_was_being_written_is_none(tmp_path, undisturbed):
    cluster = failed(tmp_path, "worker 0 tear 8", says=r"step 8/")
    assert "launch: worker 0" in cluster.last_line()
    resumed(tmp_path, cluster, undisturbed, 4)


def test_the_launcher_can_start_all_anew(tmp_path, undisturbed):
    environment = {"FAULT": "worker 1 kill 6", "FAULT_FILE": str(tmp_path / "reached")}
    options = ("--workers", "2", "--restarts", "1")
    cluster = clusters.finished(FAILING, "--out", tmp_path, *SETTINGS, options=options, **environment)
    assert "was ended by SIGKILL" in cluster.output
    assert "launch: start 2 of 2" in cluster.output
    assert cluster.losses() == pytest.approx(undisturbed, rel=1e-5)


def test_a_process_that_hangs_is_noticed_by_another(tmp_path):
    cluster = failed(tmp_path, "worker 1 stop 2", "--patience", 6, says=r"is a process gone")
    assert re.match(
        r"launch: worker 0 .*; its last line: worker 0: step [34] was not done after 6 s", cluster.last_line()
    ), cluster.output


def test_settings_that_are_not_the_checkpoints_are_refused(tmp_path):
    assert by_itself("--out", tmp_path, *SETTINGS).returncode == 0
    refused = by_itself("--out", tmp_path, *SETTINGS, "--seed", 1)
    assert refused.returncode == 1
    assert re.search(r"ValueError: seed must be that of .*step-00000016, 0; received seed=1\n$", refused.stderr)


def by_itself(*arguments):
    """train.py without a cluster."""
    command = map(str, [sys.executable, clusters.EXAMPLES / "train.py", *arguments])
    return subprocess.run(command, capture_output=True, text=True, timeout=clusters.LIMIT)


# -- ports


@pytest.fixture
def taken():
    """A port that something else listens on, and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_port_that_is_taken_is_named(tmp_path, taken):
    options = ("--workers", "2", "--port", str(taken))
    cluster = clusters.Cluster(clusters.EXAMPLES / "train.py", "--out", tmp_path, *SETTINGS, options=options)
    assert cluster.wait(SOON * 2) == 1
    assert re.match(r"launch: scheduler \(process \d+\) .*bind failed", cluster.last_line()), cluster.output
    assert not cluster.left()


def test_a_worker_whose_scheduler_does_not_answer_gives_up(tmp_path, taken):
    command = [sys.executable, clusters.EXAMPLES / "launch.py", "--workers", "2", "--process", "2"]
    command += ["--root", f"127.0.0.1:{taken}", "--", sys.executable, clusters.EXAMPLES / "train.py"]
    command += ["--out", tmp_path, "--patience", "6"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=clusters.LIMIT)
    assert done.returncode == 1
    assert f"joining the cluster at 127.0.0.1:{taken} was not done after 6 s" in done.stderr


# -- the launcher itself


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_nothing_outlives_the_launcher(tmp_path, number, code):
    cluster = clusters.Cluster(clusters.EXAMPLES / "train.py", "--out", tmp_path, "--epochs", 1000)
    cluster.read_until(r"step 2/")
    assert len(cluster.left()) == 5
    os.kill(cluster.popen.pid, number)
    assert cluster.wait(SOON) == code
    cluster.wait_until_none_is_left()
