"""Some models of tf.keras.applications; `applications.py` checks all of them."""

from __future__ import annotations

import importlib.util
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
    found = applications.check(name, (65, 83), onnx=bool(importlib.util.find_spec("onnxruntime")))
    assert applications.is_right(found), found
    nodes = found["onnx"]["nodes"] if "onnx" in found else {"Pad": 0, "Slice": 0, "Transpose": 2}
    assert (nodes["Pad"], nodes["Slice"], nodes["Transpose"]) == (0, 0, 2)


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

    def in_other_processes(name, size, python, ending, onnx):
        calls.append((name, size))
        found = answers.pop(0) if answers else right
        file = {"onnx": {"difference": 1e-6, "nodes": {}}} if onnx else {}
        return {**found, **file, "parameters": 10, "layers": 2, "versions": {}} if "size" in found else found

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
    results = json.loads((tmp_path / "x.json").read_text())
    del results["models"]["MobileNet"]["checks"][1]["onnx"]
    (tmp_path / "x.json").write_text(json.dumps(results))
    monkeypatch.setattr("sys.argv", command)
    assert applications.main() == 0 and len(calls) == 8
    results["models"]["MobileNet"]["checks"][0]["onnx"]["difference"] = 1e-3
    (tmp_path / "x.json").write_text(json.dumps(results))
    assert applications.main() == 0 and len(calls) == 10


@pytest.mark.oracle
def test_a_process_that_fails_is_one_line():
    found = applications.in_other_processes("NoSuchModel", None, sys.executable, ".h5", False)
    assert "NoSuchModel" in found["error"] and "\n" not in found["error"]


@pytest.mark.parametrize("file, names", [("keras2", applications.NAMES), ("keras3", applications.NAMES_3)])
def test_the_recorded_results_are_right_and_complete(file, names):
    models = json.loads((applications.RESULTS / f"applications-{file}.json").read_text())["models"]
    assert sorted(models) == sorted(names)
    assert [name for name, model in models.items() if not all(map(applications.is_right, model["checks"]))] == []


def test_the_recorded_onnx_files_have_no_node_that_same_caused():
    """What Keras pads and crops may be left; axes are transposed after the input, and before Flatten or an output."""
    models = json.loads((applications.RESULTS / "applications-keras2.json").read_text())["models"]
    exported = {name: model for name, model in models.items() if applications.is_complete(model, onnx=True)}
    assert {name for name, model in models.items() if model["parameters"] < 160e6} <= exported.keys()
    for name, model in exported.items():
        for nodes in (check["onnx"]["nodes"] for check in model["checks"]):
            assert all(nodes[op] <= model["padding"][layer] for op, layer in applications.MOVING.items()), name
            assert nodes["Transpose"] <= 2, name


@pytest.mark.oracle
def test_all_names_are_applications():
    import tensorflow as tf

    assert [name for name in applications.NAMES if not callable(getattr(tf.keras.applications, name, None))] == []
    classes = {name for name in vars(tf.keras.applications) if name[0].isupper()}
    assert classes == set(applications.NAMES)
