"""Integers, bools and floats of other sizes: what live tf.keras makes of them, or a refusal that names the layer."""

import live_keras  # before TensorFlow
import numpy as np
import pytest
import running
from mxnet import gluon, nd

import mxsame

pytestmark = pytest.mark.oracle
LARGE = 2**24 + 1  # the first integer that is no float32
DATA = np.array([[-7, 2, 0, 3], [5, LARGE, -1, 4], [1, 7, 6, -2]])


def tf():
    import tensorflow

    return tensorflow


def keras_layer(name, *args, **kwargs):
    return lambda x: getattr(tf().keras.layers, name)(*args, **kwargs)(x)


def each_step(name, *args):
    return lambda x: tf().keras.layers.TimeDistributed(getattr(tf().keras.layers, name)(*args))(x)


def both(name, other):
    return lambda x: getattr(tf().keras.layers, name)()([x, other(x)])


def inner(dtype, function):
    """A model in the model, of an input of this type."""

    def call(x):
        given = tf().keras.Input(x.shape[1:], dtype=dtype)
        return tf().keras.Model(given, function(given))(x)

    return call


def identity(x):
    return tf().cast(x, x.dtype)


EXACT = {  # name -> the type of the input, the shape of an entry, the function
    "dense": ("int32", (4,), keras_layer("Dense", 3)),
    "rescaling": ("int32", (4,), keras_layer("Rescaling", 0.5, 1)),
    "rescaling of int64": ("int64", (4,), keras_layer("Rescaling", 1 / 3)),
    "normalization": ("int32", (4,), keras_layer("Normalization", mean=2.0, variance=3.0)),
    "batch norm": ("int32", (4,), keras_layer("BatchNormalization")),
    "bytes": ("uint8", (4,), keras_layer("Rescaling", 1 / 255)),
    "bools": ("bool", (4,), keras_layer("Rescaling", 2.0)),
    "floats of 16 bits": ("float16", (4,), keras_layer("Rescaling", 1 / 3)),
    "floats of 64 bits": ("float64", (4,), keras_layer("Dense", 2)),
    "floats of 64 bits, divided": ("float64", (4,), lambda x: x / 3),
    "embedding": ("int32", (4,), lambda x: keras_layer("Embedding", 9, 3)(tf().minimum(abs(x), 8))),
    "embedding of floats": ("float32", (4,), lambda x: keras_layer("Embedding", 9, 3)(tf().clip_by_value(x / 3, 0, 5))),
    "cast to float": ("int32", (4,), lambda x: tf().cast(x, "float32") / 3),
    "cast of large ones": ("int64", (4,), lambda x: tf().cast(x, "float32")),
    "cast to integers": ("float32", (4,), lambda x: tf().cast(x / 3, "int32")),
    "cast to int64": ("float32", (4,), lambda x: tf().cast(x / -3, "int64") + 1),
    "cast to bool": ("int32", (4,), lambda x: tf().cast(tf().cast(x, "bool"), "float32")),
    "cast of bools": ("int32", (4,), lambda x: tf().cast(x > 1, "int32") + 1),
    "cast of bytes": ("uint8", (4,), lambda x: tf().cast(x, "int32") * 300),
    "divided": ("int32", (4,), lambda x: x / 2),
    "bytes divided": ("uint8", (4,), lambda x: x / 255),
    "divided, then a layer": ("int32", (4,), lambda x: keras_layer("Dense", 3)(x / 7)),
    "large": ("int32", (4,), lambda x: x + 1),
    "wraps": ("int32", (4,), lambda x: x * 2**20),
    "of int64": ("int64", (4,), lambda x: x * 2**20 - 5),
    "from a number": ("int32", (4,), lambda x: 3 - x),
    "of two": ("int32", (4,), lambda x: x * x + x - 1),
    "negative": ("int32", (4,), lambda x: abs(-x)),
    "sum": ("int32", (4,), lambda x: tf().reduce_sum(x, axis=1)),
    "largest": ("int32", (4,), lambda x: tf().reduce_max(x, axis=1) - tf().reduce_min(x, axis=1)),
    "maximum": ("int32", (4,), lambda x: tf().maximum(x, 2) + tf().minimum(x, x + 1)),
    "equal": ("int32", (4,), lambda x: tf().equal(x, LARGE)),
    "compared": ("int32", (4,), lambda x: tf().cast(x > x * 2, "float32")),
    "not equal": ("int32", (4,), lambda x: tf().not_equal(x, 0)),
    "logical": ("int32", (4,), lambda x: tf().logical_and(x > 0, tf().logical_not(tf().logical_or(x > 4, x < 2)))),
    "any": ("int32", (4,), lambda x: tf().reduce_any(x > 6, axis=1)),
    "where": ("int32", (4,), lambda x: tf().where(x > 2, x, x * 2)),
    "where a number": ("int32", (4,), lambda x: tf().where(x > 2, x, -1)),
    "where numbers": ("int32", (4,), lambda x: tf().where(x > 2, 1, 0) * 3),
    "where of floats": ("float32", (4,), lambda x: tf().where(x > 2, 1.0, 0.5)),
    "position": ("float32", (4,), lambda x: tf().argmax(x, axis=1) * 3),
    "position of integers": ("int32", (4,), lambda x: tf().argmax(x, axis=1, output_type="int32")),
    "flatten": ("int32", (2, 2), keras_layer("Flatten")),
    "shapes": ("int32", (4,), lambda x: keras_layer("Permute", (2, 1))(keras_layer("Reshape", (2, 2))(x))),
    "repeat": ("int64", (4,), keras_layer("RepeatVector", 3)),
    "crop": ("int32", (4, 1), keras_layer("Cropping1D", 1)),
    "concatenate": ("int32", (4,), both("Concatenate", lambda x: x + 1)),
    "add": ("int32", (4,), both("Add", lambda x: x * 2)),
    "multiply": ("int32", (4,), both("Multiply", lambda x: x)),
    "maximum of layers": ("uint8", (4,), both("Maximum", lambda x: x[:, ::-1])),
    "slices": ("int32", (4,), lambda x: tf().concat([x[:, 1:3], x[:, :1]], axis=-1)),
    "axes": ("int32", (4,), lambda x: tf().tile(tf().expand_dims(x, 1), [1, 2, 1])),
    "transpose": ("int64", (2, 2), lambda x: tf().transpose(x, [0, 2, 1])),
    "stack": ("int32", (4,), lambda x: tf().stack([x, x + 1], axis=1)),
    "split": ("int32", (4,), lambda x: tf().split(x, 2, axis=1)[1] + 1),
    "pool of bytes": ("uint8", (4, 1), keras_layer("MaxPooling1D", 2)),
    "padded bytes": ("uint8", (4, 1), lambda x: keras_layer("Rescaling", 0.5)(keras_layer("ZeroPadding1D", 1)(x))),
    "resize": ("uint8", (2, 2, 1), lambda x: tf().image.resize(x, (4, 4))),
    "resizing": ("int32", (2, 2, 1), keras_layer("Resizing", 4, 4)),
    "buckets": ("int32", (4,), lambda x: keras_layer("Discretization", [0.0, 3.0])(x) + 1),
    "categories": ("int32", (4,), lambda x: keras_layer("CategoryEncoding", 5)(tf().minimum(abs(x), 4))),
    "each step": ("int32", (4, 1), each_step("Dense", 2)),
    "each step, kept": ("int32", (2, 2), lambda x: each_step("Flatten")(x) + 1),
    "a model of floats": ("int32", (4,), inner("float32", lambda x: x / 2)),
    "a model of integers": ("float32", (4,), lambda x: inner("int32", lambda x: x + 1)(x / 3)),
    "the input": ("int32", (4,), identity),
    "float16 of an input": ("float16", (4,), keras_layer("Dense", 2)),
}
REFUSED = {
    "arithmetic of bytes": ("uint8", (4,), lambda x: x + 250),
    "half": ("float32", (4,), lambda x: tf().cast(x, "float16")),
    "bfloat16": ("float32", (4,), lambda x: tf().cast(x, "bfloat16")),
    "to bytes": ("float32", (4,), lambda x: tf().cast(x, "uint8")),
    "arithmetic of halves": ("float16", (4,), lambda x: x * 3),
    "mean": ("int32", (4,), lambda x: tf().reduce_mean(x, axis=1)),
    "square": ("int32", (4,), lambda x: tf().square(x)),
    "power": ("int32", (4,), lambda x: x**2),
    "whose number Keras does not write": ("int32", (4,), lambda x: x == 3),
    "floor": ("int32", (4,), lambda x: x // 2),
    "modulo": ("int32", (4,), lambda x: x % 2),
    "relu": ("int32", (4,), keras_layer("ReLU")),
    "average of integers": ("int32", (4,), both("Average", lambda x: x + 1)),
    "global average": ("int32", (4, 1), keras_layer("GlobalAveragePooling1D")),
    "pool": ("int32", (4, 1), keras_layer("MaxPooling1D", 2)),
    "zeros around": ("int32", (4, 1), keras_layer("ZeroPadding1D", 1)),
    "masking": ("int32", (2, 2), keras_layer("Masking", 1)),
    "nearest": ("uint8", (2, 2, 1), lambda x: tf().image.resize(x, (4, 4), method="nearest")),
    "an array": ("int32", (4,), lambda x: x + np.array([1, 2, 3, 4])),
    "functions of doubles": ("int32", (4,), lambda x: tf().exp(x / 100)),
}


def model_of(dtype, shape, function):
    x = tf().keras.Input(shape, dtype=dtype)
    return live_keras.randomise(tf().keras.Model(x, function(x)))


def data_of(dtype, shape):
    return (np.abs(DATA) % 200 if dtype in ("uint8", "float16") else DATA).astype(dtype).reshape(3, *shape)


def outputs_of(net, given, path):
    """Imperative, deployed, from files, and hybridized, as a part of another block, too."""
    deployed, parent = mxsame.deploy(net, given.shape), gluon.nn.HybridSequential()
    parent.add(net)
    files = [running.from_files(deployed, path), *(running.from_files(net, path, size) for size in (None, given.shape))]
    yield from [run(given) for run in (net, deployed, *files)]
    for hybridize in (lambda block: block.hybridize(), mxsame.hybridize):
        for block in (parent, net):
            hybridize(block)
            yield block(given)


@pytest.mark.parametrize("name", EXACT)
def test_exact(name, tmp_path):
    dtype, shape, function = EXACT[name]
    model, x = model_of(dtype, shape, function), data_of(dtype, shape)
    want = model(x).numpy()
    given = nd.array(x, dtype="float32" if dtype == "bool" else dtype)
    for out in outputs_of(mxsame.from_keras(model), given, tmp_path):
        assert out.dtype == (np.float32 if want.dtype == bool or want.dtype.itemsize < 4 else want.dtype)
        if want.dtype.kind == "f":
            live_keras.compare([out.asnumpy()], [want], 1e-6)
        else:
            np.testing.assert_array_equal(out.asnumpy(), want)


OF_FLOATS = {  # name -> the shape of an entry, the function; models that declare float32
    "rescaling": ((2, 2, 1), keras_layer("Rescaling", 1 / 255)),
    "arithmetic": ((4,), lambda x: tf().concat([x / 2, x * 0.5], axis=-1)),
    "pool": ((4, 1), keras_layer("MaxPooling1D", 2)),
    "dense": ((4,), lambda x: keras_layer("Dense", 2)(keras_layer("BatchNormalization")(x))),
    "convolution": ((2, 2, 1), lambda x: keras_layer("Conv2D", 2, 2)(keras_layer("Rescaling", 1 / 255)(x))),
    "positions between": ((2, 2), lambda x: keras_layer("Dense", 2)(tf().cast(tf().argmax(x / 200, 2), "float32"))),
    "the input": ((4,), identity),
}


@pytest.mark.parametrize("name", OF_FLOATS)
def test_arrays_of_another_type(name, tmp_path):
    shape, function = OF_FLOATS[name]
    model, x = model_of("float32", shape, function), data_of("uint8", shape)
    want, net = model(x.astype("float32")).numpy(), mxsame.from_keras(model)
    for dtype in ("uint8", "int64"):
        for out in outputs_of(net, nd.array(x, dtype=dtype), tmp_path):
            assert out.dtype == np.float32
            live_keras.compare([out.asnumpy()], [want], 1e-6)
        net = mxsame.from_keras(model)
    live_keras.compare([net(nd.array(x, dtype="float64")).asnumpy()], [want], 1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    model = model_of(*REFUSED[name])
    with pytest.raises(ValueError, match=r"type|must be supported|floats|a constant or lengths"):
        mxsame.from_keras(model)
