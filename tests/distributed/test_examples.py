"""The examples in docstrings, and train.py by itself."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import mxsame
import numpy as np
import pytest
from mxnet import nd

import clusters


@pytest.mark.parametrize("name", ["launch", "checkpoints", "training", "benchmarks.distributed"])
def test_the_examples_of_a_module(name):
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tried
    assert not failed


def test_one_process_trains_with_measured_plans(tmp_path):
    import training

    net, pictures = training.stripes_network(), nd.zeros((8, 3, 31, 31))
    net(pictures)
    assert mxsame.autotune(net, pictures, rounds=1, path=str(tmp_path / "plans.json"))
    mxsame.planner.forget()
    out = tmp_path / "out"
    command = [sys.executable, clusters.EXAMPLES / "train.py", "--out", out, "--plans", tmp_path / "plans.json"]
    command += ["--epochs", 2, "--checkpoint-every", 1000]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=clusters.LIMIT)
    assert done.returncode == 0, done.stderr
    assert "1 workers, 32 steps, from step 0\n" in done.stdout
    assert "epoch 2: loss " in done.stdout
    assert "accuracy 1.0000" in done.stdout
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000032"]


def test_wrong_settings_are_named(tmp_path, capsys):
    import train
    import training

    np.savez(tmp_path / "data.npz", x_train=np.zeros((8, 4, 4)))
    for arguments, message in (
        (
            ("--batch-size", "5000"),
            "batch_size must be at most the 1024 pictures for training; received batch_size=5000",
        ),
        (("--network", "model"), r"network must be a file of .*, or MODULE:FUNCTION; received 'model'"),
        (("--data", str(tmp_path / "data.npz")), "data must hold x_train, y_train, x_test and y_test; received"),
    ):
        with pytest.raises(ValueError, match=message):
            training.Run(train.parsed(["--out", str(tmp_path / "out"), *arguments]), None)
    with pytest.raises(SystemExit):
        train.parsed(["--out", str(tmp_path / "out"), "--epochs", "0"])
    assert "--epochs must be positive; received 0" in capsys.readouterr().err
