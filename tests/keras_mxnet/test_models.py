"""Whole models with the plugin, compared with tf.keras 2.13.1 with the same weights (tests/golden/keras-plugin.npz)."""

import keras
import mxnet as mx
import networks
import numpy as np
import pytest
from golden import make, make_keras_plugin
from grid import FORMATS

from mxsame.keras import plugin

TOLERANCE = 1e-5
GOLDEN = make.load(make_keras_plugin.FILE)


def shapes_of(name):
    return [tuple(map(int, line.split())) for line in str(GOLDEN[f"{name}/shapes"]).split("\n")]


def stored(variable, array, data_format):
    """A weight of tf.keras as keras-mxnet stores it: channels_first kernels have their last two axes in front."""
    if data_format == "channels_last" or array.ndim < 3:
        return array
    first, second = (-2, -1) if "depthwise" in variable.name else (-1, -2)
    return np.moveaxis(array, (first, second), (0, 1))


def built(name, data_format):
    """The network with its weights."""
    model = networks.NETWORKS[name][0](keras, data_format)
    arrays = networks.weights(name, shapes_of(name))
    model.set_weights([stored(variable, array, data_format) for variable, array in zip(model.weights, arrays)])
    return model


def placed(array, data_format):
    """An array with channels last in the data format."""
    return np.moveaxis(array, -1, 1) if data_format == "channels_first" and array.ndim > 2 else array


def channels_last(array, data_format):
    """The way back."""
    return np.moveaxis(array, 1, -1) if data_format == "channels_first" and array.ndim > 2 else array


def layers_of(model):
    return [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]


def error(actual, expected):
    """The largest difference, in units of the largest value where that is above 1."""
    assert actual.shape == expected.shape
    return float(np.abs(actual - expected).max() / max(1.0, np.abs(expected).max()))


def errors(name, model, data_format):
    """The error of each layer's output."""
    every = keras.models.Model(model.inputs, [layer.output for layer in layers_of(model)])
    result = []
    for index, output in enumerate(every.predict(placed(networks.data(name), data_format))):
        output = channels_last(output, data_format)
        assert output.shape == tuple(GOLDEN[f"{name}/{index}/shape"]), f"layer {index}"
        result.append(error(make.sample(output), GOLDEN[f"{name}/{index}/output"]))
    return result


def compiled(name, model):
    model.compile(keras.optimizers.SGD(networks.LEARNING_RATE), networks.NETWORKS[name][2])
    return model


def training_batch(name, model, data_format):
    last = sum(1 for _ in layers_of(model)) - 1
    target = networks.target(name, tuple(GOLDEN[f"{name}/{last}/shape"]))
    return placed(networks.data(name), data_format), placed(target, data_format)


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_every_layer_puts_out_what_tf_keras_does(name, data_format):
    with plugin.installed():
        model = built(name, data_format)
    deviations = errors(name, model, data_format)
    assert max(deviations) <= TOLERANCE, deviations


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_training_goes_where_that_of_tf_keras_goes(name, data_format):
    with plugin.installed():
        model = compiled(name, built(name, data_format))
    batch = training_batch(name, model, data_format)
    losses = [model.train_on_batch(*batch) for _ in range(networks.STEPS)]
    assert error(np.array(losses), GOLDEN[f"{name}/losses"]) <= TOLERANCE
    assert losses[0] != losses[-1]
    for index, (variable, array) in enumerate(zip(model.weights, model.get_weights())):
        expected = GOLDEN[f"{name}/trained/{index}"].reshape(shapes_of(name)[index])
        assert error(array, stored(variable, expected, data_format)) <= TOLERANCE, variable.name


@pytest.mark.parametrize("data_format", FORMATS)
def test_weight_files_of_keras_mxnet_load(data_format, tmp_path):
    """Written without the plugin, read with it: the shapes are the same."""
    path = str(tmp_path / "weights.h5")
    built("plain", data_format).save_weights(path)
    with plugin.installed():
        model = networks.plain(keras, data_format)
    model.load_weights(path)
    assert max(errors("plain", model, data_format)) <= TOLERANCE


def test_an_exported_graph_is_plain_mxnet(tmp_path):
    """keras-mxnet's own export; MXNet without Keras computes the same from it."""
    with plugin.installed():
        model = compiled("plain", built("plain", "channels_first"))
    data = placed(networks.data("plain"), "channels_first")
    expected = model.predict(data)
    names, _ = keras.models.save_mxnet_model(model, str(tmp_path / "plain"))
    net = mx.gluon.SymbolBlock.imports(str(tmp_path / "plain-symbol.json"), names, str(tmp_path / "plain-0000.params"))
    np.testing.assert_allclose(net(mx.nd.array(data)).asnumpy(), expected, atol=1e-6)
