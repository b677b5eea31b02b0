"""The padding "keras-mxnet" compared with keras-mxnet itself, without the plugin."""

import subprocess
import sys
from pathlib import Path

import keras
import mxnet as mx
import numpy as np
import pytest
from keras import backend

import mxsame

GOLDEN = Path(__file__).parent.parent / "golden"


def test_what_is_recorded_is_what_keras_mxnet_gives():
    """With the records tests/test_old_models.py and tests/port/test_keras_mxnet.py compare mxsame."""
    command = [sys.executable, str(GOLDEN / "make_keras_mxnet.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_layer_with_an_output_too_many():
    """keras-mxnet continues as if there were none; the word is refused, and its pads give the layer."""
    data = np.random.RandomState(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    x = keras.Input(data.shape[1:])
    pooled = keras.layers.MaxPooling2D(2, 1, "same", data_format="channels_first")(x)
    assert backend.int_shape(pooled) == (None, 3, 8, 8)
    with pytest.raises(ValueError, match="keras-mxnet has one more"):
        mxsame.nn.MaxPool2D(2, 1, "keras-mxnet")
    own = mxsame.ops.max_pool(mx.nd.array(data), 2, 1, 1)
    assert np.array_equal(own.asnumpy(), keras.models.Model(x, pooled).predict(data))
