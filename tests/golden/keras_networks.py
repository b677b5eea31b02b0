"""Small Keras networks, written for tf.keras 2.13 and Keras 3 alike: what the recorded model files hold.

Every layer class that `mxsame.from_keras` supports is in one of them. `NETWORKS` is the table: a function of (keras,
whether channels are first) that returns a model; most are tables of layers in layers.txt. `weights` gives any model its
weights, and `inputs` its inputs, from a seed.
"""

import functools
import re
import types
import zlib
from pathlib import Path

import numpy as np

BATCH = 2
NETWORKS = {}
FIRST = []  # networks that are also recorded with channels first
TRAINED = []  # networks with recorded gradients
EMBEDDED = 11  # entries of the Embedding layers: integers below it are the inputs of that kind


def network(trained=False, first=False):
    """Registers a function under its name; `trained` records its gradients, `first` the same with channels first."""

    def register(function):
        NETWORKS[function.__name__] = lambda keras, first=False: function(keras, keras.layers, first)
        TRAINED.extend([function.__name__] * trained)
        FIRST.extend([function.__name__] * first)
        return function

    return register


def is_keras_3(keras):
    """Whether this is Keras 3, rather than tf.keras 2.13."""
    return hasattr(keras, "ops")


def shaped(size, channels, first=False):
    """The shape of an input without its batch."""
    return (channels, *size) if first else (*size, channels)


# ---- whole networks --------------------------------------------------------------------------------------------------


@network(first=True)
def sequential(keras, layers, first):
    """The classifier of every introduction, on a non-square picture."""
    axis = 1 if first else -1
    return keras.Sequential(
        [
            keras.Input(shaped((9, 12), 3, first)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            layers.BatchNormalization(axis=axis),
            layers.Conv2D(6, (2, 3), padding="valid"),
            layers.Activation("relu"),
            layers.MaxPooling2D(2, padding="same"),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(5, activation="softmax"),
        ],
        name="sequential",
    )


@network(trained=True, first=True)
def unet(keras, layers, first):
    """Two levels, transposed convolutions, skip connections."""
    axis = 1 if first else -1

    def block(data, channels):
        for _ in range(2):
            data = layers.Conv2D(channels, 3, padding="same", use_bias=False)(data)
            data = layers.BatchNormalization(axis=axis, momentum=0.9, epsilon=1e-5)(data)
            data = layers.Activation("relu")(data)
        return data

    data = keras.Input(shaped((8, 12), 3, first))
    top = block(data, 3)
    middle = block(layers.MaxPooling2D(2)(top), 4)
    bottom = block(layers.MaxPooling2D(2)(middle), 5)
    up = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(bottom)
    up = block(layers.Concatenate(axis=axis)([middle, up]), 4)
    up = layers.Conv2DTranspose(3, 2, strides=2, padding="same")(up)
    up = layers.Add()([top, up])
    return keras.Model(data, layers.Conv2D(2, 1, activation="sigmoid")(up), name="unet")


@network(trained=True, first=True)
def video(keras, layers, first):
    """3-D convolutions and pooling layers, strided in space and not in time.

    No relu before the maximum: TensorFlow gives each of several equal elements in 3-D the whole gradient.
    """
    axis = 1 if first else -1
    data = keras.Input(shaped((5, 8, 7), 2, first))
    out = layers.Conv3D(3, 3, strides=(1, 2, 2), padding="same", activation="tanh")(data)
    out = layers.BatchNormalization(axis=axis)(out)
    out = layers.MaxPooling3D((1, 2, 2), padding="same")(out)
    out = layers.Conv3D(4, (3, 1, 2), padding="same", activation="relu")(out)
    out = layers.AveragePooling3D((2, 2, 2), padding="same")(out)
    out = layers.GlobalAveragePooling3D()(out)
    return keras.Model(data, layers.Dense(3)(out), name="video")


@network(trained=True, first=True)
def siamese(keras, layers, first):
    """One tower for two pictures, and the distance of what it gives."""
    tower = keras.Sequential(
        [
            keras.Input(shaped((8, 7), 2, first)),
            layers.Conv2D(3, 3, strides=2, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, activation="tanh"),
        ],
        name="tower",
    )
    one, other = keras.Input(shaped((8, 7), 2, first), name="one"), keras.Input(shaped((8, 7), 2, first), name="other")
    left, right = tower(one), tower(other)
    apart = layers.Subtract()([left, right])
    alike = layers.Dot(axes=1, normalize=True)([left, right])
    out = layers.Dense(1, activation="sigmoid")(layers.Concatenate()([apart, alike]))
    return keras.Model([one, other], out, name="siamese")


@network(trained=True, first=True)
def two_inputs_two_outputs(keras, layers, first):
    """A picture and a vector in, a class and a picture out."""
    picture, facts = keras.Input(shaped((6, 9), 3, first), name="picture"), keras.Input((4,), name="facts")
    seen = layers.Conv2D(4, 3, strides=3, padding="same", activation="relu", name="see")(picture)
    known = layers.Dense(6, activation="relu", name="know")(facts)
    both = layers.Concatenate(name="both")([layers.Flatten(name="flat")(seen), known])
    label = layers.Dense(3, activation="softmax", name="label")(both)
    drawn = layers.Conv2DTranspose(2, 3, strides=3, padding="same", name="drawn")(seen)
    return keras.Model([picture, facts], [label, drawn], name="two_inputs_two_outputs")


@network()
def nested_twice(keras, layers, first):
    """A functional model inside another, called on two tensors, with a Sequential inside it."""
    inner = keras.Input((None, 3))
    stem = keras.Sequential([layers.Conv1D(4, 3, padding="same"), layers.ReLU()], name="stem")
    both = keras.Model(inner, [stem(inner), layers.Dense(4, name="side")(inner)], name="inner")
    data = keras.Input((10, 3))
    a, b = both(data)
    c, d = both(layers.ZeroPadding1D(1)(layers.Cropping1D((1, 1))(data)))
    return keras.Model(data, [layers.Add()([a, d]), layers.Maximum()([b, c])], name="nested_twice")


@network()
def shared_layers(keras, layers, first):
    """One convolution and one batch norm on tensors of two sizes."""
    axis = 1 if first else -1
    conv = layers.Conv2D(2, 3, strides=2, padding="same", name="conv")
    norm = layers.BatchNormalization(axis=axis, name="norm")
    pool = layers.GlobalMaxPooling2D(name="pool")
    data = keras.Input(shaped((None, None), 2, first))
    once = norm(conv(data))
    twice = norm(conv(once))
    return keras.Model(data, layers.Concatenate(name="both")([pool(once), pool(twice)]), name="shared_layers")


# ---- tables of layers ------------------------------------------------------------------------------------------------


def operators_of(keras):
    """The functions that layers.txt calls `ops` and `tf`: names of Keras 3, for TensorFlow's functions as well."""
    if is_keras_3(keras):
        return {"ops": keras.ops}
    import tensorflow as tf

    own = {"mean": tf.reduce_mean, "relu6": tf.nn.relu6, "concatenate": tf.concat}
    return {"ops": types.SimpleNamespace(**{**vars(tf), **own}), "tf": tf}


def of_table(name, inputs, lines, keras, first=False):
    """The network of a paragraph of layers.txt."""
    tensors, outputs, version = {}, [], "3" if is_keras_3(keras) else "2"
    for key, lengths, kind in re.findall(r"(\w+)((?: \d+)+)( int32)?", inputs):
        *size, channels = map(int, lengths.split())
        tensors[key] = keras.Input(shaped(size, channels, first), name=key, dtype=kind.strip() or None)
    names = {**vars(keras.layers), **operators_of(keras), "np": np, "EMBEDDED": EMBEDDED, **tensors}
    for line in lines:
        only, key, expression = re.fullmatch(r"(?:([23]): )?(?:(\w+) = )?(.*)", line).groups()
        if only not in (None, version):
            continue
        value = names[key] = eval(expression, names)
        if key is None:
            data, values = next(iter(tensors.values())), value if isinstance(value, (list, tuple)) else [value]
            outputs += [each(data) if isinstance(each, keras.layers.Layer) else each for each in values]
    ends = (ends if len(ends) > 1 else ends[0] for ends in (list(tensors.values()), outputs))
    return keras.Model(*ends, name=name)


TABLES = Path(__file__).with_name("layers.txt").read_text(encoding="utf-8")
for paragraph in TABLES.rstrip().split("\n\n")[1:]:
    title, *lines = (line for line in paragraph.splitlines() if line[0] != "#")
    name, also, inputs = re.fullmatch(r"(\w+)(, also with channels first)?: (.*)", title).groups()
    NETWORKS[name] = functools.partial(of_table, name, inputs, lines)
    FIRST.extend([name] * bool(also))


# ---- weights and inputs ----------------------------------------------------------------------------------------------


def seeded(name):
    """A generator for a name, the same everywhere."""
    return np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)


def weights(model):
    """An array for each weight of the model: of the size that initialisers give, variances positive, counts kept."""
    random, arrays = seeded(f"weights of {model.name}"), []
    for variable, value in zip(model.weights, model.get_weights()):
        path = str(getattr(variable, "path", variable.name))
        name = path.split("/")[-1].split(":")[0]
        if name in ("moving_variance", "variance", "gamma"):
            array = random.uniform(0.5, 1.5, value.shape)
        elif name in ("count", "seed_generator_state"):
            array = value
        else:
            fan_in = max(int(np.prod(value.shape[:-1])), 1) if value.ndim > 1 else 16
            array = random.normal(0, min(1.0, 1.5 / fan_in**0.5), value.shape)
        arrays.append(np.asarray(array, value.dtype))
    return arrays


def inputs(model):
    """An array for each input of the model, with 11 elements along axes of any length, and then 14."""
    random = seeded(f"inputs of {model.name}")
    arrays = []
    for tensor in model.inputs:
        shape = [BATCH, *(n or 8 + 3 * axis for axis, n in enumerate(tensor.shape[1:], 1))]
        if "int" in str(tensor.dtype):
            arrays.append(random.randint(0, EMBEDDED, shape).astype("int32"))
        else:
            arrays.append(random.normal(0, 1, shape).astype("float32"))
    return arrays


def channels_first(array):
    """(N, *size, C) as (N, C, *size)."""
    return array if array.ndim < 3 else np.ascontiguousarray(np.moveaxis(array, -1, 1))
