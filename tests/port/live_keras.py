"""Live Keras models: random weights and statistics, and their outputs compared with those of the imported network."""

import importlib  # noqa: I001 - mxsame is before MXNet and TensorFlow, which are refused in the other order
import operator

import mxsame
import numpy as np
from mxnet import autograd, nd

from mxsame import port
from mxsame.port.parameters import loaded_weights


class Later:
    """A part of TensorFlow, imported when it is used: tests that need it are collected without it."""

    def __init__(self, path):
        self._path = path

    def __getattr__(self, name):
        if name.startswith("_"):  # which pytest looks for
            raise AttributeError(name)
        return operator.attrgetter(f"{self._path}{name}")(importlib.import_module("tensorflow"))


tf, layers = Later(""), Later("keras.layers.")


def keras():
    """tf.keras."""
    return tf.keras


def randomise(model, seed=0):
    """Weights that show every mistake: batch norms with statistics, biases that are not zero."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        name = weight.name.split("/")[-1]
        shape = tuple(weight.shape)
        if name.startswith("count"):
            continue
        if name.startswith(("moving_variance", "variance")):
            value = rng.uniform(0.5, 1.5, shape)
        elif name.startswith("gamma"):
            value = rng.uniform(0.7, 1.3, shape)
        elif len(shape) > 1:
            value = rng.normal(0, (2 / max(np.prod(shape[:-1]), 1)) ** 0.5, shape)
        else:
            value = rng.normal(0, 0.3, shape)
        weight.assign(value.astype("float32"))
    for layer in model._flatten_layers():  # of Keras 2, and of Keras 3
        if hasattr(layer, "finalize_state"):  # Normalization computes with copies of its weights
            layer.finalize_state()
    return model


def inputs_of(model, sizes=None, seed=1, batch=2):
    """Random arrays for all inputs, in Keras's order."""
    rng = np.random.default_rng(seed)
    dynamic = iter(sizes or ())
    return [
        rng.normal(size=(batch, *(n or next(dynamic) for n in x.shape[1:]))).astype("float32") for x in model.inputs
    ]


def arrays_of(outputs):
    """One output or a list of them as NumPy arrays."""
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [np.asarray(out.asnumpy() if isinstance(out, nd.NDArray) else out) for out in outputs]


def expected(model, inputs):
    """What Keras gives."""
    return arrays_of(model(inputs if len(inputs) > 1 else inputs[0], training=False))


def first(array):
    """The array with channels first."""
    return np.moveaxis(array, -1, 1) if array.ndim > 2 else array


def compare(got, wanted, tolerance=2e-5):
    """Shapes and values, relative to the largest."""
    assert len(got) == len(wanted)
    for have, want in zip(got, wanted):
        assert have.shape == want.shape
        scale = max(float(np.abs(want[np.isfinite(want)]).max(initial=0)), 1e-6)
        np.testing.assert_allclose(have / scale, want / scale, rtol=0, atol=tolerance)


def check(model, sizes=None, hybridize=True, tolerance=2e-5, source=None, inputs=None, **arguments):
    """The imported network gives what the model gives, imperative and hybridized both ways."""
    inputs = inputs_of(model, sizes) if inputs is None else inputs
    wanted = expected(model, inputs)
    net = port.from_keras(model if source is None else source, **arguments)
    given = [nd.array(x) for x in inputs]
    compare(arrays_of(net(*given)), wanted, tolerance)
    if hybridize:
        net.hybridize()
        compare(arrays_of(net(*given)), wanted, tolerance)
        mxsame.hybridize(net)
        compare(arrays_of(net(*given)), wanted, tolerance)
    return net


def check_weights_go_back(net, model, path, **arguments):
    """What `to_keras_weights` writes is what the model has, bit for bit."""
    weights = model.get_weights()
    mxsame.to_keras_weights(net, path, **arguments)
    randomise(model, seed=5).load_weights(path)
    assert all(map(np.array_equal, model.get_weights(), weights))


def gradients(model, training):
    """Of a random sum of the output: (of the imported network, of Keras) by the names of weights, that of the data by
    "data"; the network imperative, and hybridized."""
    (data,) = inputs_of(model)
    tensor = tf.constant(data)
    nets = [port.from_keras(model), mxsame.hybridize(port.from_keras(model))]
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        out = model(tensor, training=training)
        factors = np.random.default_rng(2).normal(size=out.shape).astype("float32")
        loss = tf.reduce_sum(out * factors)
    names = ["data", *(weight.name.split(":")[0] for weight in model.trainable_weights)]
    wanted = dict(zip(names, tape.gradient(loss, [tensor, *model.trainable_weights])))
    for net in nets:
        given = nd.array(data)
        given.attach_grad()
        with autograd.record(train_mode=training):
            loss = (net(given) * nd.array(factors)).sum()
        loss.backward(train_mode=training)
        ours = {"data": given.grad.asnumpy()}
        for layer in net.description.walk():
            for spec, stored in loaded_weights(layer):
                if stored.parameter.grad_req != "null":
                    array = stored.parameter.grad().asnumpy()
                    ours[f"{layer.name}/{spec.name}"] = stored.to_keras(array)
        yield ours, {name: arrays_of(array)[0] for name, array in wanted.items()}
