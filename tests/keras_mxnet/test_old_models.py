"""The padding "keras-mxnet" compared with keras-mxnet itself, without the plugin: a grid, a network trained there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import mxnet as mx
import numpy as np
import old_models
import old_network
import pytest
from keras import backend

import mxsame
from mxsame.padding import keras_mxnet_axes

SAMPLE = 23  # a prime, so that every size, kernel and stride is met
WITH_ONEDNN = [name for name in old_models.FUNCTIONS if name != "conv2d_transpose"]


@pytest.mark.parametrize("name", WITH_ONEDNN)
def test_every_23rd_case_is_equal(name):
    count, wrong = old_models.table(name, SAMPLE)
    assert wrong == {}
    assert count["equal"] > 10


@pytest.mark.heavy
@pytest.mark.parametrize("name", WITH_ONEDNN)
def test_the_whole_grid_is_equal(name):
    count, wrong = old_models.table(name)
    assert wrong == {}
    assert count["refused"] and count["equal"] > 10 * count["refused"]


def without_onednn(every):
    """The transposed convolutions, in a process of its own."""
    command = [sys.executable, str(Path(old_models.__file__)), "conv2d_transpose", "--every", str(every)]
    environment = {**os.environ, "MXNET_MKLDNN_ENABLED": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return [int(number) for number in re.findall(r"(\d+) (?:equal|refused|wrong)", result.stdout)]


def test_every_13th_transposed_convolution_is_equal():
    equal, refused, wrong = without_onednn(13)
    assert equal > 30 and refused and not wrong


@pytest.mark.heavy
def test_all_transposed_convolutions_are_equal():
    equal, refused, wrong = without_onednn(1)
    assert equal > 500 and refused and not wrong


def test_a_trained_network_moves_to_gluon():
    model, wanted = old_models.trained()
    data, _ = old_network.examples()
    net = old_network.in_gluon()
    old_network.move(model.get_weights(), net)
    assert np.abs(old_network.probabilities(net, data) - wanted).max() < 1e-5
    net.hybridize()
    assert np.abs(old_network.probabilities(net, data) - wanted).max() < 1e-5
    shape = (1, *data.shape[1:])
    assert np.abs(old_network.probabilities(mxsame.deploy(net, shape), data) - wanted).max() < 1e-5


def test_what_comes_after_an_output_too_many():
    """keras-mxnet continues as if there were none: both layers have pads for that, and the word is refused."""
    data = np.random.RandomState(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    x = keras.Input(data.shape[1:])
    pooled = keras.layers.MaxPooling2D(2, 1, "same", data_format="channels_first")(x)
    window = {"padding": "same", "data_format": "channels_first", "use_bias": False}
    assert backend.int_shape(pooled) == (None, 3, 8, 8)
    with pytest.raises(ValueError, match="keras-mxnet has one more"):
        mxsame.nn.MaxPool2D(2, 1, "keras-mxnet")
    both, ones = (8, 8), (1, 1)
    own = mxsame.ops.max_pool(mx.nd.array(data), 2, 1, keras_mxnet_axes("pool", both, both, (2, 2), ones, ones))
    assert own.shape == (2, 3, 9, 9)
    for kernel, stride in ((3, 1), (3, 2), (4, 1)):
        layer = keras.layers.Conv2D(4, kernel, strides=stride, **window)
        model = keras.models.Model(x, layer(pooled))
        model.compile("sgd", "mse")
        weight = mx.nd.array(layer.get_weights()[0])
        pads = keras_mxnet_axes("conv", (9, 9), both, (kernel,) * 2, (stride,) * 2, ones)
        out = mxsame.ops.conv(own, weight, strides=stride, padding=[(low, max(high, 0)) for low, high in pads])
        assert old_models.close(out.asnumpy(), model.predict(data))
