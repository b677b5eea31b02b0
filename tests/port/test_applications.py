"""Some models of tf.keras.applications; `applications.py` checks all of them."""

import importlib.util
import json

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
    check = applications.check(name, (65, 83), onnx=bool(importlib.util.find_spec("onnxruntime")))
    assert applications.is_right(check), check
    nodes = check["onnx"]["nodes"] if "onnx" in check else {"Pad": 0, "Slice": 0, "Transpose": 2}
    assert (nodes["Pad"], nodes["Slice"], nodes["Transpose"]) == (0, 0, 2)


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
