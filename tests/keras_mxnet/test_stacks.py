"""Random stacks of layers of keras-mxnet: their files become networks that give what keras-mxnet gives."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import mxnet as mx
import numpy as np
import pytest
import stacks
from old_models import close

import mxsame


def test_a_sample_of_random_stacks():
    counts, wrong = stacks.table(60)
    assert wrong == {}
    assert counts["equal"] > 5 * counts["refused"]


@pytest.mark.heavy
def test_two_thousand_random_stacks():
    counts, wrong = stacks.table(2000, first=1000)
    assert wrong == {}
    assert counts["equal"] > 10 * counts["refused"]


def without_onednn(count):
    """With transposed convolutions, in a process of its own."""
    command = [sys.executable, str(Path(stacks.__file__)), str(count), "--transposed"]
    environment = {**os.environ, "MXNET_MKLDNN_ENABLED": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_sample_with_transposed_convolutions():
    without_onednn(30)


@pytest.mark.heavy
def test_five_hundred_with_transposed_convolutions():
    without_onednn(500)


@pytest.mark.parametrize("data_format", ["channels_first", "channels_last"])
def test_kernels_of_all_kinds_in_nested_models(data_format, tmp_path):
    """Kernels of channels_first are stored in MXNet's order, and batch norms have all of their four weights."""
    model = stacks.nested(data_format)
    data = np.random.RandomState(0).normal(size=(2, *model.input_shape[1:])).astype("float32")
    model.compile("sgd", "mse")
    model.save(str(tmp_path / "model.h5"), include_optimizer=False)
    model.save_weights(str(tmp_path / "weights.h5"))
    (tmp_path / "model.json").write_text(model.to_json())
    expected = model.predict(data)
    nets = [
        mxsame.from_keras(tmp_path / "model.h5", padding="keras-mxnet"),
        mxsame.from_keras(tmp_path / "model.json", tmp_path / "weights.h5", padding="keras-mxnet"),
        mxsame.from_keras(model, padding="keras-mxnet"),
    ]
    mxsame.to_keras_weights(nets[0], tmp_path / "back.h5")
    nets.append(mxsame.from_keras(tmp_path / "model.json", tmp_path / "back.h5", padding="keras-mxnet"))
    for net in nets:
        assert close(net(mx.nd.array(data)).asnumpy(), expected)
    deployed = mxsame.deploy(nets[0], data.shape)
    assert close(deployed(mx.nd.array(data)).asnumpy(), expected)
    fresh = keras.models.model_from_json(model.to_json())
    fresh.load_weights(str(tmp_path / "back.h5"))
    fresh.compile("sgd", "mse")
    assert close(fresh.predict(data), expected)


def test_batch_norms_ignore_gamma(tmp_path):
    """keras-mxnet leaves MXNet's fix_gamma on."""
    data = np.random.RandomState(0).normal(size=(2, 4)).astype("float32")
    model = keras.models.Sequential([keras.layers.BatchNormalization(axis=1, input_shape=(4,))])
    model.set_weights([np.full(4, value, "float32") for value in (3, 1, 0, 1)])
    model.compile("sgd", "mse")
    model.save(str(tmp_path / "model.h5"), include_optimizer=False)
    found = mxsame.from_keras(tmp_path / "model.h5", padding="keras-mxnet")(mx.nd.array(data)).asnumpy()
    np.testing.assert_allclose(found, model.predict(data), atol=1e-6)
    assert np.abs(found - (3 * data + 1)).max() > 0.5
