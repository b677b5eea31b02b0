"""Every layer of the table, live against tf.keras 2.13: outputs, imperative and hybridized, and weights back."""

import re
from pathlib import Path

import numpy as np
import pytest
from live_keras import check, gradients, keras, randomise

from mxsame.port.table import LAYERS

pytestmark = pytest.mark.oracle

# (input shapes, class, arguments). Sizes differ on every axis; kernels and strides, too.
PICTURE, SEQUENCE, VOLUME = (9, 10, 6), (11, 6), (5, 6, 7, 4)
CASES = [
    (SEQUENCE, "Conv1D", {"filters": 5, "kernel_size": 4, "strides": 2, "padding": "same"}),
    (SEQUENCE, "Conv1D", {"filters": 5, "kernel_size": 3, "dilation_rate": 2, "padding": "causal"}),
    (SEQUENCE, "Conv1D", {"filters": 6, "kernel_size": 3, "groups": 3, "use_bias": False}),
    (PICTURE, "Conv2D", {"filters": 4, "kernel_size": (3, 2), "strides": (2, 3), "padding": "same"}),
    (PICTURE, "Conv2D", {"filters": 4, "kernel_size": 3, "activation": "relu"}),
    (PICTURE, "Conv2D", {"filters": 4, "kernel_size": 2, "dilation_rate": (2, 1), "padding": "same"}),
    (PICTURE, "Conv2D", {"filters": 6, "kernel_size": 3, "groups": 2, "padding": "same", "activation": "swish"}),
    (VOLUME, "Conv3D", {"filters": 3, "kernel_size": (2, 3, 1), "strides": (1, 2, 3), "padding": "same"}),
    (SEQUENCE, "DepthwiseConv1D", {"kernel_size": 3, "depth_multiplier": 2, "padding": "same", "strides": 2}),
    (PICTURE, "DepthwiseConv2D", {"kernel_size": (3, 4), "depth_multiplier": 2, "padding": "same"}),
    (PICTURE, "DepthwiseConv2D", {"kernel_size": 3, "strides": 2, "use_bias": False}),
    (SEQUENCE, "SeparableConv1D", {"filters": 4, "kernel_size": 3, "padding": "causal", "depth_multiplier": 2}),
    (PICTURE, "SeparableConv2D", {"filters": 4, "kernel_size": (3, 2), "strides": 2, "padding": "same"}),
    (PICTURE, "SeparableConv2D", {"filters": 4, "kernel_size": 3, "depth_multiplier": 2, "activation": "tanh"}),
    (SEQUENCE, "Conv1DTranspose", {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"}),
    (PICTURE, "Conv2DTranspose", {"filters": 4, "kernel_size": (3, 2), "strides": (2, 3), "padding": "same"}),
    (PICTURE, "Conv2DTranspose", {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "valid"}),
    (
        PICTURE,
        "Conv2DTranspose",
        {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 0},
    ),
    (VOLUME, "Conv3DTranspose", {"filters": 3, "kernel_size": 3, "strides": (1, 2, 2), "padding": "same"}),
    (SEQUENCE, "MaxPooling1D", {"pool_size": 3, "strides": 2, "padding": "same"}),
    (PICTURE, "MaxPooling2D", {"pool_size": (2, 3), "strides": (3, 2), "padding": "same"}),
    (PICTURE, "MaxPooling2D", {}),
    (VOLUME, "MaxPooling3D", {"pool_size": (2, 2, 3), "padding": "same"}),
    (SEQUENCE, "AveragePooling1D", {"pool_size": 2}),
    (PICTURE, "AveragePooling2D", {"pool_size": 3, "strides": 2, "padding": "same"}),
    (VOLUME, "AveragePooling3D", {"pool_size": 2, "strides": 1, "padding": "same"}),
    *[
        (shape, f"Global{kind}Pooling{rank}D", {"keepdims": keepdims})
        for kind in ("Max", "Average")
        for rank, shape in enumerate((SEQUENCE, PICTURE, VOLUME), 1)
        for keepdims in (False, True)
    ],
    (SEQUENCE, "ZeroPadding1D", {"padding": (2, 1)}),
    (PICTURE, "ZeroPadding2D", {"padding": ((1, 2), (0, 3))}),
    (VOLUME, "ZeroPadding3D", {"padding": (1, 0, 2)}),
    (SEQUENCE, "Cropping1D", {"cropping": (2, 1)}),
    (PICTURE, "Cropping2D", {"cropping": ((1, 2), (0, 3))}),
    (VOLUME, "Cropping3D", {"cropping": 1}),
    (SEQUENCE, "UpSampling1D", {"size": 3}),
    (PICTURE, "UpSampling2D", {"size": (2, 3)}),
    (PICTURE, "UpSampling2D", {"size": 2}),
    (PICTURE, "UpSampling2D", {"size": (2, 3), "interpolation": "bilinear"}),
    (VOLUME, "UpSampling3D", {"size": (1, 2, 3)}),
    (PICTURE, "Resizing", {"height": 13, "width": 7}),
    (PICTURE, "Resizing", {"height": 13, "width": 7, "interpolation": "nearest"}),
    (PICTURE, "Resizing", {"height": 13, "width": 7, "interpolation": "bicubic"}),
    (PICTURE, "Resizing", {"height": 13, "width": 7, "crop_to_aspect_ratio": True}),
    (PICTURE, "CenterCrop", {"height": 4, "width": 7}),
    (PICTURE, "CenterCrop", {"height": 4, "width": 13}),
    (SEQUENCE, "LocallyConnected1D", {"filters": 4, "kernel_size": 3, "strides": 2, "use_bias": False}),
    (PICTURE, "LocallyConnected2D", {"filters": 3, "kernel_size": (3, 2), "strides": (2, 3), "activation": "tanh"}),
    ((7,), "Dense", {"units": 5, "activation": "softmax"}),
    (SEQUENCE, "Dense", {"units": 5}),
    (PICTURE, "Dense", {"units": 5, "use_bias": False}),
    ((11, 8), "BatchNormalization", {"momentum": 0.9}),
    *[(shape, "BatchNormalization", {}) for shape in ((7,), SEQUENCE, PICTURE, VOLUME)],
    (PICTURE, "BatchNormalization", {"axis": 1}),
    (PICTURE, "BatchNormalization", {"axis": 2, "scale": False}),
    (PICTURE, "BatchNormalization", {"axis": [1, 3]}),
    (PICTURE, "BatchNormalization", {"center": False, "epsilon": 0.1}),
    (PICTURE, "BatchNormalization", {"scale": False, "center": False, "momentum": 0.8}),
    *[(shape, "LayerNormalization", {}) for shape in ((7,), SEQUENCE, PICTURE)],
    (PICTURE, "LayerNormalization", {"axis": [1, 3], "center": False}),
    (PICTURE, "LayerNormalization", {"axis": 2, "scale": False, "epsilon": 0.01}),
    (PICTURE, "GroupNormalization", {"groups": 3}),
    (PICTURE, "GroupNormalization", {"groups": -1, "scale": False}),
    (SEQUENCE, "GroupNormalization", {"groups": 1}),
    (PICTURE, "UnitNormalization", {}),
    (PICTURE, "UnitNormalization", {"axis": (1, 2)}),
    (PICTURE, "Rescaling", {"scale": 0.25, "offset": -1.0}),
    (PICTURE, "Rescaling", {"scale": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "offset": 0.5}),
    ((9, 10, 1), "Rescaling", {"scale": [1.0, 2.0, 3.0], "offset": [0.5]}),
    (PICTURE, "Normalization", {}),
    (PICTURE, "Normalization", {"axis": None}),
    (PICTURE, "Normalization", {"axis": (1, 3), "invert": True}),
    (PICTURE, "Normalization", {"mean": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "variance": [1.0, 4.0, 9.0, 1.0, 1.0, 2.0]}),
    *[
        (PICTURE, "Activation", {"activation": name})
        for name in (
            *("relu", "elu", "selu", "gelu", "tanh", "swish", "mish", "softplus", "softsign", "hard_sigmoid"),
            *("softmax", "sigmoid", "exponential", "linear"),
        )
    ],
    (PICTURE, "ReLU", {}),
    (PICTURE, "ReLU", {"max_value": 1.0, "negative_slope": 0.2, "threshold": 0.4}),
    (PICTURE, "ReLU", {"max_value": 6.0}),
    (PICTURE, "ReLU", {"threshold": 0.4}),
    (PICTURE, "LeakyReLU", {}),
    (PICTURE, "LeakyReLU", {"alpha": 0.1}),
    (PICTURE, "ELU", {"alpha": 0.5}),
    (PICTURE, "ThresholdedReLU", {"theta": 0.7}),
    (PICTURE, "PReLU", {}),
    (PICTURE, "PReLU", {"shared_axes": [1, 2]}),
    (PICTURE, "PReLU", {"shared_axes": [3]}),
    (PICTURE, "Softmax", {"axis": 1}),
    (PICTURE, "Dropout", {"rate": 0.5}),
    (PICTURE, "SpatialDropout2D", {"rate": 0.5}),
    (PICTURE, "AlphaDropout", {"rate": 0.3}),
    (PICTURE, "GaussianDropout", {"rate": 0.3}),
    (PICTURE, "GaussianNoise", {"stddev": 0.3}),
    (PICTURE, "ActivityRegularization", {}),
    (PICTURE, "Flatten", {}),
    (PICTURE, "Reshape", {"target_shape": (6, -1, 3)}),
    (SEQUENCE, "Reshape", {"target_shape": (66,)}),
    (PICTURE, "Permute", {"dims": (3, 1, 2)}),
    (PICTURE, "Permute", {"dims": (2, 1, 3)}),
    ((7,), "RepeatVector", {"n": 3}),
]


def identity(case):
    shape, name, arguments = case
    return f"{name}-{len(shape)}-{'-'.join(f'{key}={value}' for key, value in arguments.items())}".replace(" ", "")


@pytest.mark.parametrize("case", CASES, ids=identity)
@pytest.mark.parametrize("around", ["alone", "between convolutions"])
def test_layer(case, around):
    shape, name, arguments = case
    layers, rank = keras().layers, len(shape) - 1
    stack = [layers.Input(shape)]
    if around != "alone" and rank:
        stack.append(getattr(layers, f"Conv{rank}D")(shape[-1], 1))
    stack.append(getattr(layers, name)(**arguments))
    model = keras().Sequential(stack)
    if around != "alone" and len(model.output_shape) == rank + 2 and rank:
        model.add(getattr(layers, f"Conv{rank}D")(3, 1))
    check(randomise(model))


NOISE = re.compile("Dropout|Noise")


@pytest.mark.parametrize("case", [case for case in CASES if not NOISE.search(case[1])], ids=identity)
def test_gradients(case):
    """Of the data and of all weights: at inference, as for a saliency map, and in training."""
    shape, name, arguments = case
    layers, rank = keras().layers, len(shape) - 1
    stack = [layers.Input(shape), getattr(layers, f"Conv{rank}D" if rank else "Dense")(shape[-1], *[1] * bool(rank))]
    model = randomise(keras().Sequential([*stack, getattr(layers, name)(**arguments)]))
    for training in (False, True):
        for found, wanted in gradients(model, training):
            scale = max(np.abs(each).max() for each in wanted.values())  # a bias before a norm has a gradient of 0
            assert found.keys() == wanted.keys()
            for key, want in wanted.items():
                size = max(np.abs(want).max(), 1e-2 * scale)
                np.testing.assert_allclose(found[key] / size, want / size, rtol=0, atol=2e-4, err_msg=key)


@pytest.mark.parametrize("shape", [(5, 1), (1, 1, 5), (4, 5, 1)])
def test_short_axes_move_without_a_transposition(shape):
    layers = keras().layers
    convolution = getattr(layers, f"Conv{len(shape) - 1}D")
    model = keras().Sequential([layers.Input(shape), convolution(3, 1), layers.Flatten(), layers.Dense(4)])
    net = check(randomise(model))
    assert net.transpositions <= (0 if set(shape[:-1]) == {1} else 1)


def test_the_page_names_every_layer():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "port-keras.md").read_text(encoding="utf-8")
    page = re.sub("[123]D", "", page)
    assert [name for name in LAYERS if f"`{re.sub('[123]D', '', name)}`" not in page] == []
