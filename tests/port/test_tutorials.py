"""Networks as tutorials have them, from tf.keras's own file: exact in every way to run them, and trained alike."""

import os

import numpy as np
import pytest
from live_keras import arrays_of, compare, keras, randomise
from mxnet import autograd, gluon, nd

import mxsame

pytestmark = pytest.mark.oracle
STEPS, CLASSES = 10, 5


def text_recognition(layers):
    """Convolutions and pools halve a line of text; each column is a step in time for a recurrent layer."""
    x = line = layers.Input((15, 26, 1))
    for channels in (8, 16):
        x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D(2, padding="same")(x)
    x = layers.Reshape((7, 4 * 16))(layers.Permute((2, 1, 3))(x))
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    return line, layers.Dense(CLASSES)(x)


def text_classification(layers):
    """Words of texts of different lengths: a mask leaves the rest out."""
    words = layers.Input((9,))
    x = layers.Embedding(20, 6, mask_zero=True)(words)
    x = layers.Bidirectional(layers.LSTM(5))(x)
    return words, layers.Dense(CLASSES)(layers.Dense(8, activation="relu")(x))


def vision_transformer(layers):
    """Patches by a convolution with SAME, whose stride does not divide the size."""
    picture = layers.Input((14, 18, 3))
    x = layers.Reshape((4 * 5, 8))(layers.Conv2D(8, 4, strides=4, padding="same")(picture))
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([layers.MultiHeadAttention(2, 4)(y, y), x])
        y = layers.Dense(16, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
        x = layers.Add()([layers.Dense(8)(y), x])
    return picture, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x))


def audio(layers):
    """Strided convolutions shorten a signal for a recurrent layer."""
    x = signal = layers.Input((67, 2))
    for channels in (8, 12):
        x = layers.Conv1D(channels, 5, strides=2, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.GRU(6)(layers.MaxPooling1D(3, 2, padding="same")(x))
    return signal, layers.Dense(CLASSES)(x)


def built(network):
    return randomise(keras().Model(*network(keras().layers)))


def batch(model):
    """Data and labels; words are whole numbers, and a text ends in zeros."""
    rng = np.random.default_rng(1)
    shape = (4, *model.input_shape[1:])
    data = rng.normal(size=shape)
    if len(shape) == 2:
        lengths = np.array([[9], [4], [7], [1]])
        data = np.where(np.arange(9) < lengths, rng.integers(1, 20, shape), 0)
    labels = rng.integers(CLASSES, size=(4, *model.output_shape[1:-1]))
    return data.astype("float32"), labels.astype("float32")


ALL = (text_recognition, text_classification, vision_transformer, audio)
NETWORKS = pytest.mark.parametrize("network", ALL, ids=lambda network: network.__name__)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@NETWORKS
@pytest.mark.parametrize("ending", ["h5", "keras"])
def test_a_file_gives_what_keras_gives_in_every_way_to_run_it(network, ending, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    model = built(network)
    model.save(tmp_path / f"model.{ending}")
    data, _ = batch(model)
    wanted = arrays_of(model(data, training=False))
    net = mxsame.from_keras(os.fspath(tmp_path / f"model.{ending}"))
    deployed = mxsame.deploy(net, data.shape)
    for runner in (net, deployed, mxsame.hybridize(net)):
        compare(arrays_of(runner(nd.array(data))), wanted)
    path = mxsame.export_onnx(net, os.fspath(tmp_path / "net.onnx"), data.shape, data=data).path
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    compare(session.run(None, {session.get_inputs()[0].name: data}), wanted)


OPTIMIZERS = {
    "SGD": ({"learning_rate": 0.05, "momentum": 0.9}, "sgd", {}),
    "Adam": ({"learning_rate": 0.01}, "adam", {"epsilon": 1e-7}),  # Keras's
}


@NETWORKS
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ten_steps_of_training_are_those_of_keras(network, optimizer):
    model = built(network)
    net = mxsame.hybridize(mxsame.from_keras(model))
    data, labels = batch(model)
    settings, name, own = OPTIMIZERS[optimizer]
    loss = keras().losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(getattr(keras().optimizers, optimizer)(**settings), loss)
    wanted = [model.train_on_batch(data, labels) for _ in range(STEPS)]

    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), name, {**settings, **own})
    losses = []
    for _ in range(STEPS):
        with autograd.record():
            error = loss(net(nd.array(data)), nd.array(labels)).mean()
        error.backward()
        trainer.step(1)
        losses.append(error.asscalar())
    np.testing.assert_allclose(losses, wanted, rtol=2e-4, atol=1e-5)
    assert losses[-1] < 0.9 * losses[0]
