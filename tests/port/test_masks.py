"""Keras's masks where Keras 3 has other rules than Keras 2, against NumPy; test_misread.py has those of Keras 2."""

import json

import numpy as np
import pytest
from live_keras import compare
from mxnet import nd

import mxsame

LENGTH = 3  # of both axes of steps, and of the entries: a mask along a wrong axis has the right shape


def masked_data(axes):
    """Data of which some steps are 0: one picture wholly, one nowhere, others with holes."""
    rng = np.random.default_rng(axes)
    kept = rng.integers(0, 2, (4, *(LENGTH,) * (axes - 1), 1))
    kept[0], kept[1], kept[2] = 0, 1, np.arange(LENGTH)[:, None] != 1
    return (rng.normal(size=(4, *(LENGTH,) * axes)) * kept).astype("float32")


def keras_3(*layers):
    """A model of x and y, (N, 3, 3): each layer is (class, configuration, names of inputs), the last is the output."""
    tensor = lambda name: {"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, 0]}}  # noqa: E731
    entries = [("InputLayer", {"batch_shape": [None, LENGTH, LENGTH], "name": name}, "", name) for name in "xy"]
    entries += [(kind, config, inputs, f"layer_{number}") for number, (kind, config, inputs) in enumerate(layers)]
    written = []
    for kind, config, inputs, name in entries:
        names = inputs.split()
        nodes = (
            [{"args": [[*map(tensor, names)] if len(names) > 1 else tensor(names[0])], "kwargs": {}}] if names else []
        )
        config = {"trainable": True, **config, "name": name}
        entry = {"module": "keras.layers", "class_name": kind, "config": config, "registered_name": None}
        written.append({**entry, "name": name, "inbound_nodes": nodes})
    ends = {"input_layers": [["x", 0, 0], ["y", 0, 0]], "output_layers": [[written[-1]["name"], 0, 0]]}
    model = {"module": "keras", "class_name": "Functional", "registered_name": "Functional"}
    return json.dumps({**model, "config": {"name": "model", "layers": written, **ends}})


MASKED = [("Masking", {}, "x"), ("Masking", {}, "y")]
MEAN = ("GlobalAveragePooling1D", {}, "layer_2")


def masked_mean(x, mask):
    with np.errstate(invalid="ignore"):  # of no step
        return np.sum(x * mask, 1) / np.sum(mask, 1)


MERGED = {  # class -> (layers, what Keras 3 gives for x, y and their masks (N, T, 1))
    "a product": ([*MASKED, ("Multiply", {}, "layer_0 layer_1")],
                  lambda x, y, m, n: np.where(m | n, np.where(m, x, 1) * np.where(n, y, 1), 0)),
    "a product with what has no mask": ([*MASKED, ("Multiply", {}, "layer_0 y")],
                                        lambda x, y, m, n: np.where(m, x, 1) * y),
    "a maximum": ([*MASKED, ("Maximum", {}, "layer_0 layer_1")],
                  lambda x, y, m, n: np.maximum(np.where(m, x, np.where(n, y, x)), np.where(n, y, x))),
    "a minimum with what has no mask": ([*MASKED, ("Minimum", {}, "y layer_0")],
                                        lambda x, y, m, n: np.minimum(y, np.where(m, x, y))),
    "entries": ([*MASKED, ("Concatenate", {"axis": -1}, "layer_0 layer_1"), MEAN],
                lambda x, y, m, n: masked_mean(np.concatenate([x, y], -1), m | n)),
    "steps": ([*MASKED, ("Concatenate", {"axis": 1}, "layer_0 y"), MEAN],
              lambda x, y, m, n: masked_mean(np.concatenate([x, y], 1), np.concatenate([m, np.ones_like(n)], 1))),
    "a sum": ([*MASKED, ("Add", {}, "layer_0 layer_1"), MEAN], lambda x, y, m, n: masked_mean(x + y, m | n)),
    "rescaling": ([*MASKED, ("Rescaling", {"scale": 2.0}, "layer_0"), MEAN], lambda x, y, m, n: masked_mean(2 * x, m)),
    "no mask after a norm": ([*MASKED, ("UnitNormalization", {}, "layer_0")],
                             lambda x, y, m, n: x / np.maximum(np.sqrt(np.sum(x * x, -1, keepdims=True)), 1e-12)),
}  # fmt: skip


@pytest.mark.parametrize("name", MERGED)
def test_masks_follow_the_rules_of_keras_3(name):
    """The entries are so small that the epsilon of a norm matters."""
    layers, wanted = MERGED[name]
    x, y = 1e-7 * masked_data(2), 1e-7 * masked_data(2)[::-1]
    y[1, 0], y[2] = 0, x[2]  # steps that one of both masks, and that both do
    net = mxsame.from_keras(keras_3(*layers))
    want = wanted(*(array.astype("float64") for array in (x, y)), *(np.any(a != 0, -1, keepdims=True) for a in (x, y)))
    for each in (net, mxsame.hybridize(net)):
        got = each(nd.array(x), nd.array(y)).asnumpy()
        scale = 1e7 if want.max() < 1e-3 else 1
        compare([np.nan_to_num(got * scale)], [np.nan_to_num(want.astype("float32") * scale)])
