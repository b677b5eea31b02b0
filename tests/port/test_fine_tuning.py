"""Layers of networks by their names: parts of models, blocks in place of layers, what is trained, and the way back."""

import copy
import json
import pickle
import re
import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from configurations import entry, model_of
from live_keras import arrays_of, check_weights_go_back, compare, expected, inputs_of, keras, layers, randomise
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn
from running import from_files

import mxsame
from mxsame.export_keras import checking
from mxsame.port import blocks
from mxsame.port.activations import LIBRARY_FUNCTIONS

EXAMPLE = Path(__file__).parents[2] / "examples" / "fine_tune.py"
DIGITS = mxsame.sample("digits")
PICTURES = np.random.default_rng(0).normal(size=(6, 8, 8, 1)).astype("float32")
WAYS = {
    "imperative": lambda net, folder: net,
    "mxsame.hybridize": lambda net, folder: mxsame.hybridize(net),
    "deployed": lambda net, folder: mxsame.deploy(net),
    "file": from_files,
    "copy": lambda net, folder: copy.deepcopy(net),
    "pickle": lambda net, folder: pickle.loads(pickle.dumps(net)),
}


def head():
    dense = nn.Dense(3, prefix="head_")
    dense.initialize()
    return dense


@pytest.mark.parametrize("way", WAYS)
def test_a_block_in_place_of_a_layer(way, tmp_path):
    net, dense = mxsame.from_keras(DIGITS), head()
    mxsame.hybridize(net)(nd.array(PICTURES))  # its graphs are dropped
    net.dense = dense
    features = mxsame.from_keras(DIGITS, outputs="flatten")(nd.array(PICTURES)).asnumpy()
    weight, bias = (parameter.data().asnumpy() for parameter in (dense.weight, dense.bias))
    got = WAYS[way](net, tmp_path)(nd.array(PICTURES))
    np.testing.assert_allclose(got.asnumpy(), features @ weight.T + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "table", [LIBRARY_FUNCTIONS, blocks.ELEMENTWISE, blocks.REDUCTIONS], ids=["activations", "of several", "reductions"]
)
def test_pickle_finds_functions_of_layers(table):
    assert all(pickle.loads(pickle.dumps(function)) is function for function in table.values())


@pytest.mark.oracle
def test_a_pickled_network_has_kerass_weights_in_kerass_order(tmp_path):
    data = layers.Input((6, 4))
    both = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(layers.BatchNormalization(axis=[1, 2])(data))
    norm = layers.LayerNormalization(axis=[1, 2])(layers.Add()([both, layers.GRU(6, return_sequences=True)(both)]))
    seen = layers.PReLU()(layers.MultiHeadAttention(2, 3)(norm, norm))
    cells = layers.RNN([layers.SimpleRNNCell(5), layers.GRUCell(4)])
    model = randomise(keras().Model(data, cells(layers.Average()([seen, norm]))))
    model.save(tmp_path / "model.keras")
    net = pickle.loads(pickle.dumps(mxsame.from_keras(tmp_path / "model.keras")))
    inputs = inputs_of(model)
    compare(arrays_of(net(*map(nd.array, inputs))), expected(model, inputs))
    check_weights_go_back(net, model, tmp_path / "back.h5")


def test_an_index_of_a_functional_model_counts_inputs_as_keras_does():
    net = mxsame.from_keras(DIGITS, outputs="flatten")
    assert net.get_layer(index=1).name == net[0].name == "conv2d"
    with pytest.raises(ValueError, match="conv2d_input is an input"):
        net.get_layer(index=0)


def test_a_model_with_another_layer_keeps_its_name(tmp_path):
    net = mxsame.from_keras(DIGITS)
    net["dense"] = nn.Dense(3)
    path = tmp_path / "model.keras"
    mxsame.to_keras(net, path)
    assert mxsame.from_keras(path).description.name == net.description.name


def test_layers_have_names():
    net = mxsame.from_keras(DIGITS, layout="NCHW")
    assert [layer.name for layer in net] == ["conv2d", "conv2d_1", "flatten", "dense"]
    assert len(net) == 4 and net.input_shape == (None, 1, 8, 8) and net.get_layer(index=-1).name == "dense"
    assert net["dense"].config["units"] == net[-1].config["units"] == net.dense.config["units"] == 10
    assert net.conv2d.weight.shape == (16, 1, 3, 3) and net.dense.bias is net["dense"].blocks[0].bias
    assert "\n  (flatten): Flatten()\n  (dense): Dense(128 -> 10, softmax)\n)" in repr(net)
    assert "dense" in net and net["dense"] in net and "dens" not in net
    assert net.conv2d.output_shape == (None, 16, 4, 4) and net.flatten.blocks and not net.flatten.parameters
    assert [layer.input_shape for layer in net.layers][:3] == [(None, 1, 8, 8), (None, 16, 4, 4), (None, 32, 2, 2)]
    net["dense"] = nn.Dense(3)
    assert net["dense"].input_shape == (None, 128) and net.output_shape == net.layers[-1].output_shape == (None, 3)
    net = mxsame.from_keras(DIGITS, layout="NCHW")
    assert sorted(net["conv2d"].collect_params()) == ["conv2d_bias", "conv2d_weight"]
    outputs = {path: out for path, _, _, out in net.layers(nd.array(PICTURES.transpose(0, 3, 1, 2)))}
    assert outputs[("conv2d",)].shape == (6, 16, 4, 4)
    of_keras, _ = mxsame.from_keras(DIGITS, outputs=["conv2d", "dense"])(nd.array(PICTURES))
    np.testing.assert_allclose(outputs[("conv2d",)].asnumpy().transpose(0, 2, 3, 1), of_keras.asnumpy(), atol=1e-5)


def test_a_block_may_fix_a_batch_of_1():
    """If the model declares it. Blocks are checked with the batch of the model."""
    model = model_of(entry("ReLU"))
    model["config"]["layers"][0]["config"]["batch_input_shape"] = [1, 3, 4]
    net = mxsame.from_keras(json.dumps(model))
    net["one"] = nn.HybridLambda(lambda F, x: F.reshape(x, shape=(1, 12)))
    data = nd.arange(12).reshape((1, 3, 4))
    np.testing.assert_array_equal(net(data).asnumpy(), data.reshape((1, 12)).asnumpy())


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda net: net["dens"], ValueError, "no layer 'dens'; did you mean 'dense'"),
        (lambda net: net["desne"], KeyError, "^the network has no layer 'desne'; did you mean 'dense'"),
        (lambda net: net.__delitem__("dense"), TypeError, r"net\['dense'\] = gluon.contrib.nn.Identity\(\)"),
        (lambda net: setattr(net.dense, "units", 3), AttributeError, "'units'; only trainable can be set"),
        (lambda net: net.save("net.keras"), ValueError, "mxsame.to_keras .keras and .h5; received prefix='net.keras'"),
        (lambda net: net.evaluate(PICTURES), AttributeError, "'evaluate'; use an mx.metric.EvalMetric"),
        (lambda net: net.nothing, AttributeError, "no layer 'nothing'; it has conv2d, conv2d_1, flatten, dense"),
        (lambda net: net.predict(PICTURES), AttributeError, r"no attribute 'predict'; use net\(mx.nd.array\(x\)\)"),
        (lambda net: net.dense.units, AttributeError, r"no attribute 'units'; use config\['units'\]"),
        (lambda net: net.dense.get_weights(), AttributeError, r"no attribute 'get_weights'; use collect_params\(\)"),
        (lambda net: setattr(net, "nothing", head()), ValueError, "no layer 'nothing'"),
        (lambda net: setattr(net, "dense", 3), TypeError, "block must be a gluon.HybridBlock; received block=3"),
        (lambda net: net.set_weights([]), AttributeError, r"mxsame.to_keras_weights\(net, path\) writes Keras's"),
        (lambda net: net["conv2d_input"], ValueError, "conv2d_input is an input"),
        (lambda net: net[:2], TypeError, r"from_keras\(.., outputs=name\) is a part of a model"),
        (lambda net: net[4], IndexError, "index 4 is out of range: the network has 4 layers"),
        (lambda net: net.replace("dense", nn.Dense(3, prefix="conv2d_")), ValueError, "that no other layer has"),
        (lambda net: net.replace("conv2d", nn.Dense(3)), ValueError, "new layer 'conv2d': layer 'conv2d_1' .* 4 axes"),
        (lambda net: net.replace("flatten", nn.Dense(3)), ValueError, r"were made for shapes=.*10, 128.*10, 3\)"),
        (lambda net: net.replace("conv2d", nn.Conv2D(3, 3)), ValueError, 'exceed input; .*-last: give .*layout="NHWC"'),
        (lambda net: net.replace("dense", nn.Conv2D(3, 3)), ValueError, r"^layer 'dense' .* .*\(None, 128\)"),
        (
            lambda net: net.replace("dense", nn.BatchNorm(in_channels=3)),
            ValueError,
            r"shape \(3,\).* requires \(128,\)",
        ),
        (lambda net: setattr(net, "trianable", False), AttributeError, "'trianable'; did you mean 'trainable'"),
        (lambda net: mxsame.from_keras("no.h5"), FileNotFoundError, "^no such file: 'no.h5'$"),
        (lambda net: mxsame.from_keras(DIGITS, outputs="nothing"), ValueError, "no layer 'nothing'"),
        (lambda net: mxsame.from_keras(DIGITS, outputs=[]), ValueError, r"at least one layer; received outputs=\[\]"),
        (lambda net: mxsame.from_keras(None), TypeError, "or a Keras model; received source=None"),
        (lambda net: mxsame.from_keras(type(net)), TypeError, "source must be a model, not its class"),
    ],
)
def test_a_refused_change_leaves_the_net_unchanged(use, error, message):
    net = mxsame.from_keras(DIGITS)
    before = net(nd.array(PICTURES)).asnumpy()
    with pytest.raises(error, match=message) as raised:
        use(net)
    assert (net(nd.array(PICTURES)).asnumpy() == before).all() and net.dense.class_name == "Dense"
    if isinstance(raised.value, ValueError):  # as another process gets it
        again = pickle.loads(pickle.dumps(raised.value))
        assert isinstance(again, error) and isinstance(again, ValueError) and str(again) == str(raised.value)


def test_a_description_does_not_change():
    """A refused block leaves it, and a block in place of a layer gives another one."""
    net = mxsame.from_keras(DIGITS)
    before, layers = net.description, list(net.description.layers)
    with pytest.raises(ValueError, match="weights were made for"):
        net["flatten"] = nn.Dense(3)
    assert net.description is before
    net["dense"] = nn.Dense(3)
    assert before.layers == layers and layers[-1].config["units"] == 10
    assert net.description.layers[-1].config == {"name": "dense"}
    with pytest.raises(AttributeError, match="name"):
        before.layers[0].name = "first"


@pytest.mark.parametrize("hybridize", [lambda net: net, mxsame.hybridize], ids=["imperative", "mxsame.hybridize"])
@pytest.mark.parametrize(
    ("block", "names"),
    [
        (gluon.contrib.nn.Identity, "x"),
        (partial(nn.Dense, 3), "x"),
        (partial(nn.HybridLambda, lambda F, x, y, z: x), "x, y, z"),
    ],
)
def test_a_block_of_another_number_of_inputs_is_refused(hybridize, block, names):
    net = hybridize(mxsame.from_keras(json.dumps(model_of(entry("Add", "sum"), shapes=[(4,)] * 2))))
    both = [nd.ones((2, 4))] * 2
    before = net(*both).asnumpy()
    with pytest.raises(ValueError, match=rf"^layer 'sum' .* the inputs of the layer; .* received 2 for {names}$"):
        net["sum"] = block()
    assert (net(*both).asnumpy() == before).all()


@pytest.mark.oracle
def test_networks_share_no_state_of_stacked_cells(tmp_path):
    """A network without the mask has steps of its own in each cell."""
    x = layers.Input((5, 3))
    rnn = layers.RNN([layers.LSTMCell(4), layers.GRUCell(3)], name="rnn")
    model = randomise(keras().Model(x, rnn(layers.Masking(name="masking")(x))))
    net = mxsame.from_keras(model)
    before = net._states["rnn",].cells
    net["masking"] = gluon.contrib.nn.Identity()
    counts = [[len(cell.variants) for cell in cells.values()] for cells in (before, net._states["rnn",].cells)]
    assert counts == [[1, 1], [2, 2]]
    check_weights_go_back(net, model, tmp_path / "back.h5")


def test_a_layer_may_have_the_name_of_an_attribute():
    """The network keeps the attribute; the layer is there by its name."""
    names = ("rank", "outputs")
    net = mxsame.from_keras(json.dumps(model_of(*(entry("ReLU", name) for name in names), shapes=[(4,)])))
    assert net.rank == 0 and isinstance(net.outputs, list) and [net[name].class_name for name in names] == ["ReLU"] * 2
    net.outputs = nn.Dense(2)
    assert net(nd.ones((3, 4))).shape == (3, 2) and net["outputs"].class_name == "Dense"


def test_a_network_is_frozen_as_in_keras():
    net = mxsame.from_keras(DIGITS)
    assert net.trainable and all(layer.trainable for layer in net), "without weights, too"
    net.trainable = False
    assert not net.trainable and not any(layer.trainable for layer in net)
    assert {parameter.grad_req for parameter in net.collect_params().values()} == {"null"}
    net["dense"].trainable = True
    assert net.trainable and [layer.trainable for layer in net] == [False, False, False, True]
    assert mxsame.hybridize(net)(nd.array(PICTURES)).shape == (6, 10) and "trainable" not in vars(net)


def test_a_summary_has_the_names_of_keras(capsys):
    net = mxsame.hybridize(mxsame.from_keras(DIGITS))
    net["conv2d"].trainable = False
    net.summary(nd.array(PICTURES))
    net.summary()
    with_batch, without = np.array_split(capsys.readouterr().out.splitlines(), 2)
    assert with_batch[1].split() == ["conv2d", "Conv2D", "(6,", "4,", "4,", "16)", "160", "no"]
    assert with_batch[2].split()[-1] == "yes"
    assert without[1].split()[2] == "(None," and without[-1] == "6,090 parameters: 5,930 trainable, 160 non-trainable"


def pyramid():
    """A model with a layer of two calls, zeros before a convolution, an operator, a second input, and a branch."""
    x, other = layers.Input((12, 13, 3)), layers.Input((5,))
    first = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="first")(x)
    norm = layers.BatchNormalization(name="norm")(layers.Conv2D(4, 3, padding="same")(first))
    shared = layers.Conv2D(4, 1, name="shared")
    both = layers.Add(name="both")([shared(first), shared(norm)])
    padded = layers.ZeroPadding2D(1, name="padded")(both)
    up = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(layers.Conv2D(6, 3, strides=2, name="down")(padded))
    joined = layers.Concatenate(name="joined")([up[:, :6, :7], first])
    numbers = [layers.GlobalAveragePooling2D()(joined), layers.Dense(7, name="numbers")(other)]
    return randomise(keras().Model([x, other], layers.Dense(3)(layers.Concatenate()(numbers))))


@pytest.mark.oracle
@pytest.mark.parametrize("names", ["first", "padded", ["joined", "both", "down"], "numbers"], ids=str)
def test_a_part_of_a_model_is_kerass(names, tmp_path):
    """Its outputs, its layers in Keras's order, and its weights in files."""
    model = pyramid()
    several = names if isinstance(names, list) else [names]
    net = mxsame.from_keras(model, outputs=names)
    used = [tensor for tensor in model.inputs if tensor.node.layer.name in {x.layer for x in net.description.inputs}]
    part = keras().Model(used, [model.get_layer(name).output for name in several])
    inputs = inputs_of(part)
    want = expected(part, inputs)
    compare(arrays_of(net(*map(nd.array, inputs))), want)
    assert [layer.name for layer in net.description.layers] == [layer.name for layer in part.layers]
    for file in ("back.h5", "back.weights.h5"):
        mxsame.to_keras_weights(net, tmp_path / file)
        part.set_weights([np.zeros_like(array) for array in part.get_weights()])
        part.load_weights(tmp_path / file)
        compare(expected(part, inputs), want)


@pytest.mark.oracle
@pytest.mark.parametrize("layout", [None, "NCHW"])
def test_shared_layers_and_operators_can_be_replaced(layout):
    """In all of their calls; arrays have the order of axes of the network."""
    model = pyramid()
    net = mxsame.from_keras(model, outputs=["joined", "both"], layout=layout)
    (shared,) = (each for each in model.layers if each.name == "shared")
    kernel, bias = shared.get_weights()
    axis, weight = (1, kernel.transpose(3, 2, 0, 1)) if layout else (-1, kernel[0, 0].T)
    block = nn.Conv2D(4, 1, in_channels=4) if layout else nn.Dense(4, flatten=False, in_units=4)
    block.initialize()
    block.weight.set_data(nd.array(2 * weight))
    block.bias.set_data(nd.array(2 * bias))
    net["shared"] = block
    net["joined"] = nn.HybridLambda(lambda F, x, y: F.concat(y, x, dim=axis))
    shared.set_weights([2 * kernel, 2 * bias])
    joined = layers.Concatenate()(model.get_layer("joined").input[::-1])
    part = keras().Model(model.inputs[0], [joined, model.get_layer("both").output])
    (data,) = inputs_of(part)
    got = arrays_of(net(nd.array(data.transpose(0, 3, 1, 2) if layout else data)))
    compare([out.transpose(0, 2, 3, 1) if layout else out for out in got], expected(part, [data]))


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checking, "run_with_keras", lambda *args: None)
    net = runpy.run_path(str(EXAMPLE))["net"]
    accuracies = re.findall(r"\d\.\d\d", capsys.readouterr().out)
    assert float(accuracies[0]) < 0.7 and float(accuracies[1]) > 0.95
    kernel, before = (each["conv2d"].parameters[0].data().asnumpy() for each in (net, mxsame.from_keras(DIGITS)))
    assert np.abs(kernel - before).max() > 1e-3, "in the second part, everything is trained"
    read = mxsame.from_keras(tmp_path / "fine_tuned.h5")
    np.testing.assert_allclose(read(nd.array(PICTURES)).asnumpy(), net(nd.array(PICTURES)).asnumpy(), atol=1e-5)


@pytest.mark.keras
@pytest.mark.filterwarnings(
    "ignore:You are saving your model as an HDF5 file", "ignore:__array__ impl:DeprecationWarning"
)
def test_fine_tune_and_write_back(tmp_path):
    """Import, replace the head, freeze, train, write back: Keras computes what the network does."""
    keras = pytest.importorskip("keras")
    layers, is_new = keras.layers, int(keras.__version__.split(".")[0]) > 2
    x = layers.Input((12, 13, 3))
    y = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="conv")(x)
    base = keras.Model(x, layers.ReLU(6.0)(layers.BatchNormalization(name="norm")(y)), name="base")
    z = layers.Input((12, 13, 3))
    pooled = layers.GlobalAveragePooling2D()(base(layers.Rescaling(0.5)(z)))
    hidden = layers.Dense(6, "relu", name="hidden")(pooled)
    model = keras.Model(z, layers.Dense(10, "softmax", name="predictions")(hidden))
    file = tmp_path / ("model.keras" if is_new else "model.h5")
    model.save(file)

    net = mxsame.from_keras(file)
    net["predictions"] = nn.Dense(5)
    for layer in net:
        layer.trainable = layer.name == "predictions"
    assert not net["base"].trainable and net.summary() is None
    mxsame.hybridize(net)
    data = np.random.default_rng(0).uniform(size=(8, 12, 13, 3)).astype("float32")
    inner = keras.Model(base.input, base.get_layer("norm").output)
    part = mxsame.from_keras(file, outputs="base/norm")
    np.testing.assert_allclose(part(nd.array(data)).asnumpy(), np.asarray(inner(data / 2)), atol=1e-5)
    labels, loss = nd.arange(8) % 5, gluon.loss.SoftmaxCELoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.03})
    kept = [*net["base"].parameters, *net["hidden"].parameters]
    before, losses = [parameter.data().asnumpy() for parameter in kept], []
    for _ in range(10):
        with autograd.record():
            error = loss(net(nd.array(data)), labels)
        error.backward()
        trainer.step(8)
        losses.append(error.mean().asscalar())
    assert losses[-1] < losses[0], "the head is trained"
    assert all((old == parameter.data().asnumpy()).all() for old, parameter in zip(before, kept)), "nothing else is"
    want = net(nd.array(data)).asnumpy()

    tuned = keras.Model(model.input, layers.Dense(5, name="predictions")(hidden))
    for name in ("back.h5", "back.weights.h5"):
        mxsame.to_keras_weights(net, tmp_path / name)
        tuned.set_weights([np.zeros_like(array) for array in tuned.get_weights()])
        tuned.load_weights(tmp_path / name)
        np.testing.assert_allclose(np.asarray(tuned(data)), want, atol=1e-5)
    written = mxsame.to_keras(net, tmp_path / file.name.replace("model", "tuned"))
    loaded = keras.models.load_model(written.path, compile=False)
    np.testing.assert_allclose(np.asarray(loaded(data)), want, atol=1e-5)
    assert [layer.name for layer in loaded.layers if layer.trainable_weights] == ["predictions"]

    net["base"].trainable = True
    with autograd.record():
        net(nd.array(data)).sum().backward()
    moved = [not (old == parameter.data().asnumpy()).all() for old, parameter in zip(before, kept)]
    assert moved == [False, False, False, True, True, False, False], "a batch norm that is trained takes new statistics"
