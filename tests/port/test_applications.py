"""Some models of tf.keras.applications; `applications.py` checks all of them."""

from __future__ import annotations

import json
import sys

import applications
import pytest

pytestmark = [  # Keras 2.13's own warnings
    pytest.mark.filterwarnings("ignore:non-integer arguments to randrange:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning"),
]

SMALL = ["MobileNet", "MobileNetV2", "MobileNetV3Small"]


@pytest.mark.oracle
@pytest.mark.parametrize("name", SMALL)
def test_a_small_model_of_an_odd_size(name):
    found = applications.check(name, (65, 83))
    assert applications.is_right(found), found


@pytest.mark.heavy
@pytest.mark.oracle
@pytest.mark.parametrize("ending", [".h5", ".keras", None])
@pytest.mark.parametrize("name", SMALL)
def test_a_model_at_its_default_size(name, ending):
    found = applications.check(name, None, ending)
    assert applications.is_right(found), found


@pytest.mark.heavy
@pytest.mark.oracle
@pytest.mark.parametrize("name", SMALL)
def test_a_model_at_an_odd_size(name):
    found = applications.check(name, applications.ODD_SIZE, ".h5")
    assert applications.is_right(found), found


def test_the_command_skips_what_it_has_and_repeats_what_failed(tmp_path, monkeypatch, capsys):
    right = {"size": [224, 224], "seconds": 1.0, "difference": 1e-6, "variation": 0.1}
    calls, answers = [], [{"error": "ValueError: broken"}, {**right, "difference": 1e-3}]

    def in_other_processes(name, size, python, ending):
        calls.append((name, size))
        found = answers.pop(0) if answers else right
        return {**found, "parameters": 10, "layers": 2, "versions": {}} if "size" in found else found

    monkeypatch.setattr(applications, "in_other_processes", in_other_processes)
    command = ["applications.py", "--only", "MobileNet", "--out", str(tmp_path / "x.json")]
    monkeypatch.setattr("sys.argv", command)
    assert applications.main() == 1 and len(calls) == 2
    assert "0 of 1 models give what Keras gives; not: ['MobileNet']" in capsys.readouterr().out
    assert applications.main() == 0 and len(calls) == 4
    assert applications.main() == 0 and len(calls) == 4
    monkeypatch.setattr("sys.argv", [*command, "--again"])
    assert applications.main() == 0 and len(calls) == 6
    assert calls == [("MobileNet", None), ("MobileNet", applications.ODD_SIZE)] * 3


@pytest.mark.oracle
def test_a_process_that_fails_is_one_line():
    found = applications.in_other_processes("NoSuchModel", None, sys.executable, ".h5")
    assert "NoSuchModel" in found["error"] and "\n" not in found["error"]


@pytest.mark.parametrize("file, names", [("keras2", applications.NAMES), ("keras3", applications.NAMES_3)])
def test_the_recorded_results_are_right_and_complete(file, names):
    models = json.loads((applications.RESULTS / f"applications-{file}.json").read_text())["models"]
    assert sorted(models) == sorted(names)
    assert [name for name, model in models.items() if not all(map(applications.is_right, model["checks"]))] == []


@pytest.mark.oracle
def test_all_names_are_applications():
    import tensorflow as tf

    assert [name for name in applications.NAMES if not callable(getattr(tf.keras.applications, name, None))] == []
    classes = {name for name in vars(tf.keras.applications) if name[0].isupper()}
    assert classes == set(applications.NAMES)
