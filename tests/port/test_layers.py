"""Layers of the recorded networks after a convolution, live against tf.keras 2.13, and gradients between two.

test_recorded.py has them one by one; random_expressions.py draws the others, and gradients at inference.
"""

import re
from pathlib import Path

import keras_networks
import numpy as np
import pytest
from live_keras import check, gradients, keras, layers, randomise

from mxsame.port.converters import LAYERS

pytestmark = pytest.mark.oracle

TABLES = ["convolutions_2d", "activations", "normalizations", "resizing", "counted"]
LEFT_OUT = re.compile("InputLayer|Dense|Discretization|Spectral|RandomCrop")  # the last three have no gradients here
PICTURE = (9, 10, 6)
MORE = [  # (shape of the data, class, arguments): what the recordings have no case of
    (PICTURE, "LayerNormalization", {"axis": [1, 3], "center": False}),
    (PICTURE, "LayerNormalization", {"axis": 2, "scale": False, "epsilon": 0.01}),
    ((11, 6), "GroupNormalization", {"groups": 1}),
    (PICTURE, "UnitNormalization", {"axis": (1, 2)}),
    ((9, 10, 1), "Rescaling", {"scale": [1.0, 2.0, 3.0], "offset": [0.5]}),
    (PICTURE, "Normalization", {"axis": (1, 3), "invert": True}),
    (PICTURE, "PReLU", {"shared_axes": [1, 2]}),
    (PICTURE, "Permute", {"dims": (2, 1, 3)}),
    (PICTURE, "GlobalMaxPooling2D", {"keepdims": True}),
]


def layers_of(name):
    """(shape of the data, layer) of each layer of one array of numbers."""
    if name == "more":
        return [(shape, getattr(keras().layers, kind)(**arguments)) for shape, kind, arguments in MORE]
    layers = keras_networks.NETWORKS[name](keras()).layers
    chosen = [layer for layer in layers if not LEFT_OUT.match(type(layer).__name__) and layer.input.dtype == "float32"]
    return [(layer.input_shape[1:], type(layer).from_config(layer.get_config())) for layer in chosen]


@pytest.mark.parametrize("name", [*TABLES, "more"])
def test_layers_after_a_convolution(name):
    """And the gradients of the data and of all weights, in training, with another convolution after it."""
    for shape, layer in layers_of(name):
        print(shape, layer.get_config())  # which one, if it fails
        rank = len(shape) - 1
        before = getattr(layers, f"Conv{rank}D" if rank else "Dense")(shape[-1], *[1] * bool(rank))
        model = keras().Sequential([layers.Input(shape), before, layer])
        check(randomise(model))
        if rank and len(model.output_shape) == rank + 2:
            model.add(getattr(layers, f"Conv{rank}D")(3, 1))
        for ours, wanted in gradients(randomise(model), training=True):
            scale = max(np.abs(each).max() for each in wanted.values())  # a bias before a norm has a gradient of 0
            assert ours.keys() == wanted.keys()
            for key, want in wanted.items():
                size = max(np.abs(want).max(), 1e-2 * scale)
                np.testing.assert_allclose(ours[key] / size, want / size, rtol=0, atol=2e-4, err_msg=key)


@pytest.mark.parametrize("shape", [(5, 1), (1, 1, 5), (4, 5, 1)])
def test_short_axes_move_without_a_transposition(shape):
    convolution = getattr(layers, f"Conv{len(shape) - 1}D")
    model = keras().Sequential([layers.Input(shape), convolution(3, 1), layers.Flatten(), layers.Dense(4)])
    net = check(randomise(model))
    assert net.transpositions <= (0 if set(shape[:-1]) == {1} else 1)


def test_the_page_names_every_layer():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "port-keras.md").read_text(encoding="utf-8")
    page = re.sub("[123]D", "", page)
    assert [name for name in LAYERS if f"`{re.sub('[123]D', '', name)}`" not in page] == []
