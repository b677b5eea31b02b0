"""The plugin: every layer on a grid, in both learning phases and with gradients, compared with the NumPy reference; and
whole models, each the network that `mxsame.from_keras` makes of its file, which other tests compare with TensorFlow."""

import keras
import mxnet as mx
import networks
import numpy as np
import pytest
from grid import FORMATS, LAYERS, grid, mistakes
from running import difference, of_the_day

import mxsame
from mxsame.keras import plugin

TOLERANCE, LEARNING_RATE = 1e-5, 0.05
DAYS = 11  # a prime, so that every size, kernel, stride and padding is met on each of them


@pytest.mark.parametrize("dynamic_shape", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("name", LAYERS)
def test_the_grid_is_right(name, data_format, dynamic_shape):
    with plugin.installed():
        chosen = of_the_day(list(grid(name)), DAYS)
        mistaken = {case.name: mistakes(name, case, data_format, dynamic_shape=dynamic_shape) for case in chosen}
    assert {case: words for case, words in mistaken.items() if words} == {}


def compiled(network, data_format):
    model = network(data_format)
    model.compile(keras.optimizers.SGD(LEARNING_RATE), "mse")
    return model


def batch(model):
    """Data, and what the model is trained for."""
    shapes = [(2, *shape[1:]) for shape in (model.input_shape, model.output_shape)]
    return [np.random.RandomState(len(shape)).normal(size=shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("network", [networks.plain, networks.branches])
def test_a_model_is_the_network_of_its_file(network, data_format, tmp_path):
    """At inference, and in three steps of training."""
    with plugin.installed():
        model = compiled(network, data_format)
    model.save(str(tmp_path / "model.h5"), include_optimizer=False)
    net, (data, target) = mxsame.from_keras(tmp_path / "model.h5"), batch(model)
    assert difference(net(mx.nd.array(data)).asnumpy(), model.predict(data)) < TOLERANCE
    trainer, losses = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": LEARNING_RATE}), []
    for _ in range(3):
        with mx.autograd.record():
            loss = ((net(mx.nd.array(data)) - mx.nd.array(target)) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asscalar())
    np.testing.assert_allclose([model.train_on_batch(data, target) for _ in losses], losses, rtol=TOLERANCE)
    assert losses[-1] < losses[0]
    assert difference(net(mx.nd.array(data)).asnumpy(), model.predict(data)) < TOLERANCE


def test_an_exported_graph_is_plain_mxnet(tmp_path):
    """keras-mxnet's own export; MXNet without Keras computes the same from it."""
    with plugin.installed():
        model = compiled(networks.plain, "channels_first")
    data, _ = batch(model)
    expected = model.predict(data)
    names, _ = keras.models.save_mxnet_model(model, str(tmp_path / "plain"))
    net = mx.gluon.SymbolBlock.imports(str(tmp_path / "plain-symbol.json"), names, str(tmp_path / "plain-0000.params"))
    np.testing.assert_allclose(net(mx.nd.array(data)).asnumpy(), expected, atol=1e-6)
