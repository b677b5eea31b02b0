"""What installing does to keras-mxnet, and that nothing of it is left."""

import importlib.util
from pathlib import Path

import cases
import keras
import networks
import numpy as np
import oracle
import pytest
from grid import FORMATS, differences, from_format, run, to_format, to_kernel
from keras import backend, layers
from keras.backend import mxnet_backend
from test_models import batch, compiled

import mxsame.keras
from mxsame.keras import plugin
from mxsame.scope import target_of

NAMES = {name for names in plugin.FUNCTIONS.values() for name in names}
OWNERS = (backend, mxnet_backend, layers.Conv2DTranspose, layers.Conv3DTranspose, backend.KerasSymbol)


def objects():
    """Everything that could be replaced, by identity."""
    return [dict(vars(owner)) for owner in OWNERS]


def changed(before):
    """The names that are not what they were."""
    return [
        {name for name in {*old, *vars(owner)} if old.get(name) is not vars(owner).get(name)}
        for owner, old in zip(OWNERS, before)
    ]


def test_what_is_replaced_and_put_back(monkeypatch):
    """Twice is once; after an error, in an install that fails, and for another Keras everything is as it was."""
    before, nothing = objects(), [set()] * len(OWNERS)
    with pytest.raises(ZeroDivisionError), mxsame.keras.installed():
        assert changed(before) == [NAMES, NAMES, {"call"}, {"call"}, {"_get_shape"}]
        raise ZeroDivisionError
    assert changed(before) == nothing
    mxsame.keras.install()
    during = objects()
    with mxsame.keras.installed():
        mxsame.keras.install()
    assert changed(during) == nothing
    mxsame.keras.uninstall()
    mxsame.keras.uninstall()
    assert changed(before) == nothing
    monkeypatch.setattr(plugin, "TRANSPOSED_LAYERS", ("Conv2DTranspose", "Conv9DTranspose"))
    with pytest.raises(AttributeError):
        mxsame.keras.install()
    monkeypatch.undo()
    monkeypatch.setattr(backend, "backend", lambda: "theano")
    with pytest.raises(RuntimeError, match=r"KERAS_BACKEND=mxnet, .* received backend='theano'"):
        mxsame.keras.install()
    monkeypatch.setattr(keras, "__version__", "2.2.4.2")
    with pytest.raises(ImportError, match=r"received version='2.2.4.2'(.|\n)*pip install .* keras-mxnet==2.2.4.3"):
        mxsame.keras.install()
    monkeypatch.undo()
    assert changed(before) == nothing


# ---- models built before, in between and after


@pytest.mark.parametrize("data_format", FORMATS)
def test_models_built_before_and_in_between_keep_their_graphs(data_format, tmp_path):
    """And what is saved without the plugin loads with it."""
    before, path = compiled(networks.plain, data_format), str(tmp_path / "weights.h5")
    data, target = batch(before)
    before.save_weights(path)
    expected = before.predict(data)
    with mxsame.keras.installed():
        inside = compiled(networks.plain, data_format)
        inside.load_weights(path)
        exact = inside.predict(data)
        np.testing.assert_array_equal(before.predict(data), expected)
        before.train_on_batch(data, target)
    assert np.abs(exact - expected).max() > 0.01
    np.testing.assert_array_equal(inside.predict(data), exact)
    assert not np.array_equal(before.predict(data), expected)  # it learned
    again = compiled(networks.plain, data_format)
    again.load_weights(path)
    assert np.abs(again.predict(data) - expected).max() < 1e-6  # again as it was


# ---- errors


def tensors(data_format="channels_first"):
    x = backend.placeholder((None, 2, 8, 7) if data_format == "channels_first" else (None, 8, 7, 2))
    return x, backend.variable(np.zeros((3, 2, 3, 3) if data_format == "channels_first" else (3, 3, 2, 3)))


FIRST = {"data_format": "channels_first"}


def test_an_error_says_the_rule():
    """One about kernels of channels first; for others tests/test_keras_bad_input.py looks."""
    x, kernel = tensors()
    words = r"\(input channels, depth multiplier, kernel size, kernel size\), here \(2, None, None, None\); received"
    with mxsame.keras.installed():
        with pytest.raises(ValueError, match=words):
            backend.depthwise_conv2d(x, backend.variable(np.zeros((3, 3, 2, 3))), **FIRST)
        assert not mxnet_backend.is_reentry()
        assert backend.conv2d(x, kernel, **FIRST).shape[1:] == (3, 6, 5)


# ---- what Keras leaves to the functions


@pytest.mark.parametrize("data_format", FORMATS)
def test_the_default_data_format_is_that_of_keras(data_format):
    x, kernel = tensors(data_format)
    before = backend.image_data_format()
    backend.set_image_data_format(data_format)
    try:
        with mxsame.keras.installed():
            out = backend.conv2d(x, kernel, strides=(2, 2), padding="same")
            pooled = backend.pool2d(x, (2, 2), (3, 3), padding="same")
    finally:
        backend.set_image_data_format(before)
    assert out.shape[1:] == ((3, 4, 4) if data_format == "channels_first" else (4, 4, 3))
    assert pooled.shape[1:] == ((2, 3, 3) if data_format == "channels_first" else (3, 3, 2))


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("output_padding", [None, 0, 1])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_output_padding_reaches_layers_of_dynamic_shape(padding, output_padding, data_format):
    rest = None if output_padding is None else (output_padding,) * 2
    case = cases.Case("conv_transpose", (4, 5), (3, 5), (2, 2), padding, output_padding=rest, use_bias=False)
    arrays, more = cases.arrays(case), {"padding": padding, "output_padding": output_padding, "use_bias": False}
    with mxsame.keras.installed():
        x = keras.Input(networks.sized((None, None), 3, data_format))
        layer = networks.Layers(data_format).Conv2DTranspose(4, (3, 5), strides=2, **more)
        y = layer(x)
    values = {
        x.name: to_format(arrays["data"], data_format),
        layer.weights[0].name: to_kernel("weight", arrays["weight"], case, data_format),
    }
    for symbol in (y._pred_sym, y._train_sym):
        assert differences("out", from_format(run(symbol, values)[0], data_format), oracle.forward(case, arrays)) == []


# ---- models of dynamic shape


def convolutional(size, data_format):
    """Every kind of layer, and no size in the graph but the one that is given."""
    named, axis = networks.Layers(data_format), 1 if data_format == "channels_first" else 3
    layers = [
        named.Conv2D(4, 3, strides=2, padding="same", input_shape=networks.sized(size, 3, data_format)),
        named.MaxPooling2D(3, strides=2, padding="same"),
        named.DepthwiseConv2D(4, padding="same", depth_multiplier=2, activation="tanh"),
        named.SeparableConv2D(5, 2, strides=2, padding="same"),
        named.Conv2DTranspose(3, 3, strides=2, padding="same"),
        named.AveragePooling2D(2, strides=1, padding="same"),
        *(named.BatchNormalization(axis=axis), named.Activation("relu"), named.GlobalAveragePooling2D()),
        named.Dense(2),
    ]
    model = keras.models.Sequential(layers)
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("data_format", FORMATS)
def test_one_model_for_every_size(data_format):
    """Inputs of (None, None, 3): as models that are made for each size."""
    with mxsame.keras.installed():
        model = convolutional((None, None), data_format)
        weights = model.get_weights()
        for size in [(15, 18), (16, 16), (33, 8), (15, 18), (5, 3)]:
            data = np.random.RandomState(sum(size)).uniform(size=(2, *networks.sized(size, 3, data_format)))
            results = []
            for each in (model, convolutional(size, data_format)):
                backend.set_model(each)  # Keras sets and gets weights of the model that it last compiled
                each.set_weights(weights)
                losses = [each.train_on_batch(data, np.ones((2, 2))) for _ in range(2)]
                results.append([np.array(losses), each.predict(data), *each.get_weights()])
            for one, other in zip(*results):
                np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("data_format", FORMATS)
def test_an_output_of_dynamic_shape_can_be_trained(data_format):
    named = networks.Layers(data_format)
    with mxsame.keras.installed():
        x = keras.Input(networks.sized((None, None), 2, data_format))
        y = named.Conv2DTranspose(2, 3, strides=2, padding="same")(x)
        model = keras.models.Model(x, named.Conv2D(2, 3, strides=2, padding="same")(y))
        model.compile("sgd", "mse")
        for size in [(6, 7), (4, 9)]:
            data = np.ones((2, *networks.sized(size, 2, data_format)))
            first = model.train_on_batch(data, data)
            assert model.train_on_batch(data, data) < first


def test_each_learning_phase_has_a_graph_planned_for_it(monkeypatch):
    """Training and inference may have different plans; keras-mxnet runs every function once for each."""
    seen, conv = [], mxsame.ops.conv

    def observed(data, *rest, **named):
        seen.append((target_of(data).purpose, target_of(data).device_or_current))
        return conv(data, *rest, **named)

    monkeypatch.setattr(mxsame.ops, "conv", observed)
    with mxsame.keras.installed():
        backend.conv2d(*tensors(), **FIRST)
    device = mxnet_backend._get_mxnet_context(None)[0].device_type
    assert seen == [("training", device), ("inference", device)]


def test_the_page_on_moving_from_keras_mxnet_runs():
    spec = importlib.util.spec_from_file_location("documents", Path(__file__).parents[1] / "test_documents.py")
    documents = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(documents)
    namespace: dict = {}
    for block in documents.blocks(documents.KERAS_MXNET, "python"):
        documents.run(documents.KERAS_MXNET, block, namespace)
