"""The padding "keras-mxnet" compared with keras-mxnet itself, without the plugin."""

import subprocess
import sys
from pathlib import Path

import keras
import mxnet as mx
import numpy as np
import pytest
from keras import backend
from running import difference

import mxsame
from mxsame.padding import keras_mxnet_axes

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize("script", ["make_keras_mxnet.py", "make_stacks.py"])
def test_what_is_recorded_is_what_keras_mxnet_gives(script):
    """With the records tests/test_old_models.py and tests/port/test_keras_mxnet.py compare mxsame."""
    command = [sys.executable, str(GOLDEN / script), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr


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
        assert difference(out.asnumpy(), model.predict(data)) < 1e-5
