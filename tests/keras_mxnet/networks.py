"""The networks that are compared with tf.keras: built alike by keras-mxnet and by tf.keras, which is handed in.

Arrays are in Keras's channels_last order and made from a seed; nothing here imports a Keras. They are
trained by a few steps of plain SGD.
"""

import functools
import zlib

import numpy as np

STEPS, LEARNING_RATE = 3, 0.05


class Layers:
    """`keras.layers`, with the data format wherever it matters; the default of 1-D layers is not the global one."""

    def __init__(self, keras, data_format):
        self.layers, self.data_format = keras.layers, data_format

    def __getattr__(self, name):
        layer = getattr(self.layers, name)
        matters = any(word in name for word in ("Conv", "Pooling", "Flatten"))
        return functools.partial(layer, data_format=self.data_format) if matters else layer


def plain(keras, data_format):
    """Sequential: strides, an even kernel, a dilated one, both kinds of pooling; 15 x 18 x 3."""
    layers = Layers(keras, data_format)
    return keras.models.Sequential(
        [
            layers.Conv2D(
                6, 3, strides=2, padding="same", activation="relu", input_shape=sized((15, 18), 3, data_format)
            ),
            layers.MaxPooling2D(3, strides=2, padding="same"),
            layers.Conv2D(5, (4, 2), dilation_rate=2, padding="same", activation="tanh"),
            layers.AveragePooling2D(2, padding="same"),
            layers.Conv2D(4, (2, 3), padding="same", use_bias=False),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )


def branches(keras, data_format):
    """Functional: separable and depthwise convolutions of depth multiplier 2, transposed ones; 13 x 16 x 4."""
    layers = Layers(keras, data_format)
    x = layers.Input(sized((13, 16), 4, data_format))
    a = layers.SeparableConv2D(6, 3, strides=2, padding="same", depth_multiplier=2, activation="relu")(x)
    b = layers.DepthwiseConv2D(4, strides=2, padding="same", depth_multiplier=2)(x)
    b = layers.Conv2D(6, 1, strides=1, padding="same", activation="tanh")(b)
    c = layers.Conv2D(6, 1)(layers.MaxPooling2D(3, strides=2, padding="same")(x))
    y = layers.Concatenate(axis=1 if data_format == "channels_first" else 3)([layers.Add()([a, b]), c])
    y = layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(y)
    y = layers.Conv2DTranspose(3, (4, 2), strides=(1, 3), padding="valid")(y)
    y = layers.AveragePooling2D(5, strides=1, padding="same")(y)
    y = layers.DepthwiseConv2D(3, padding="valid", use_bias=False)(y)
    return keras.models.Model(x, layers.Dense(2)(layers.GlobalAveragePooling2D()(y)))


def sequence(keras, data_format):
    """1-D: even kernels, causal, separable, both kinds of pooling; 17 x 3."""
    layers = Layers(keras, data_format)
    return keras.models.Sequential(
        [
            layers.Conv1D(4, 4, strides=2, padding="same", activation="relu", input_shape=sized((17,), 3, data_format)),
            layers.Conv1D(5, 3, dilation_rate=2, padding="causal", activation="tanh"),
            layers.MaxPooling1D(3, strides=2, padding="same"),
            layers.SeparableConv1D(4, 4, padding="same", depth_multiplier=2),
            layers.AveragePooling1D(2, strides=2, padding="same"),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )


def volume(keras, data_format):
    """3-D: strides, pooling, a transposed convolution; 7 x 6 x 5 x 2."""
    layers = Layers(keras, data_format)
    return keras.models.Sequential(
        [
            layers.Conv3D(3, (3, 2, 3), strides=2, padding="same", input_shape=sized((7, 6, 5), 2, data_format)),
            layers.MaxPooling3D((2, 3, 2), strides=1, padding="same"),
            layers.Conv3DTranspose(2, 3, strides=2, padding="same", activation="tanh"),
            layers.AveragePooling3D(3, strides=2, padding="same"),
            layers.Conv3D(2, 2, padding="same"),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )


NETWORKS = {  # name -> (builder, input shape without the batch, loss)
    "plain": (plain, (15, 18, 3), "categorical_crossentropy"),
    "branches": (branches, (13, 16, 4), "mse"),
    "sequence": (sequence, (17, 3), "mse"),
    "volume": (volume, (7, 6, 5, 2), "mse"),
}


def sized(size, channels, data_format):
    """An input shape in the data format."""
    return (channels, *size) if data_format == "channels_first" else (*size, channels)


def stream(*words):
    """A generator of random numbers for these words, the same on every machine."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(" ".join(words).encode())))


def data(name, batch=2):
    """The input, channels last."""
    return stream(name, "data").standard_normal((batch, *NETWORKS[name][1])).astype(np.float32)


def target(name, shape):
    """What the network is trained for: a class in each row, or numbers between 0 and 1."""
    values = stream(name, "target").random(shape).astype(np.float32)
    if NETWORKS[name][2] == "categorical_crossentropy":
        return np.eye(shape[-1], dtype=np.float32)[values.argmax(axis=-1)]
    return values


def weights(name, shapes):
    """One array per shape, in the order of `model.get_weights()`, channels last; positive where they are variances."""
    result = []
    for index, shape in enumerate(shapes):
        values = stream(name, "weights", str(index)).standard_normal(shape)
        fan_in = max(int(np.prod(shape)) // max(shape), 1)
        values = values / np.sqrt(fan_in) if len(shape) > 1 else 0.5 + 0.1 * np.abs(values)
        result.append(values.astype(np.float32))
    return result
