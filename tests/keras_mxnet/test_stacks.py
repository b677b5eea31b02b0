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
from running import difference, of_the_day

import mxsame


def test_random_stacks():
    counts, wrong = stacks.table(of_the_day(range(800), 6))
    assert wrong == {}
    assert counts["equal"] > 5 * counts["refused"]


def test_random_stacks_with_transposed_convolutions():
    """Without oneDNN, in a process of its own."""
    seeds = of_the_day(range(300), 6)
    program = f"import stacks, sys; sys.exit(str(stacks.table({seeds}, True)[1] or '') or None)"
    environment = {**os.environ, "MXNET_MKLDNN_ENABLED": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}
    command, here = [sys.executable, "-c", program], Path(stacks.__file__).parent
    result = subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, result.stdout + result.stderr


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
        assert difference(net(mx.nd.array(data)).asnumpy(), expected) < 1e-5
    deployed = mxsame.deploy(nets[0], data.shape)
    assert difference(deployed(mx.nd.array(data)).asnumpy(), expected) < 1e-5
    fresh = keras.models.model_from_json(model.to_json())
    fresh.load_weights(str(tmp_path / "back.h5"))
    fresh.compile("sgd", "mse")
    assert difference(fresh.predict(data), expected) < 1e-5


def test_batch_norms_ignore_gamma(tmp_path):
    """keras-mxnet leaves MXNet's fix_gamma on."""
    data = np.random.RandomState(0).normal(size=(2, 4)).astype("float32")
    model = keras.models.Sequential([keras.layers.BatchNormalization(axis=1, input_shape=(4,))])
    model.set_weights([np.full(4, value, "float32") for value in (3, 1, 0, 1)])
    model.compile("sgd", "mse")
    model.save(str(tmp_path / "model.h5"), include_optimizer=False)
    out = mxsame.from_keras(tmp_path / "model.h5", padding="keras-mxnet")(mx.nd.array(data)).asnumpy()
    np.testing.assert_allclose(out, model.predict(data), atol=1e-6)
    assert np.abs(out - (3 * data + 1)).max() > 0.5
