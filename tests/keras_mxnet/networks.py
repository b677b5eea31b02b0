"""Networks of keras-mxnet's layers, in a data format."""

import functools

import keras


class Layers:
    """`keras.layers`, with the data format wherever it matters; the default of 1-D layers is not the global one."""

    def __init__(self, data_format):
        self.data_format = data_format

    def __getattr__(self, name):
        layer = getattr(keras.layers, name)
        matters = any(word in name for word in ("Conv", "Pooling", "Flatten"))
        return functools.partial(layer, data_format=self.data_format) if matters else layer


def plain(data_format):
    """Sequential: strides, an even kernel, a dilated one, both kinds of pooling; 15 x 18 x 3."""
    layers = Layers(data_format)
    shape = sized((15, 18), 3, data_format)
    return keras.models.Sequential(
        [
            layers.Conv2D(6, 3, strides=2, padding="same", activation="relu", input_shape=shape),
            layers.MaxPooling2D(3, strides=2, padding="same"),
            layers.Conv2D(5, (4, 2), dilation_rate=2, padding="same", activation="tanh"),
            layers.AveragePooling2D(2, padding="same"),
            layers.Conv2D(4, (2, 3), padding="same", use_bias=False),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )


def branches(data_format):
    """Functional: separable and depthwise convolutions of depth multiplier 2, transposed ones; 13 x 16 x 4."""
    layers = Layers(data_format)
    x = layers.Input(sized((13, 16), 4, data_format))
    a = layers.SeparableConv2D(6, 3, strides=2, padding="same", depth_multiplier=2, activation="relu")(x)
    b = layers.DepthwiseConv2D(4, strides=2, padding="same", depth_multiplier=2)(x)
    b = layers.Conv2D(6, 1, strides=1, padding="same", activation="tanh")(b)
    c = layers.Conv2D(6, 1)(layers.MaxPooling2D(3, strides=2, padding="same")(x))
    y = layers.Concatenate(axis=1 if data_format == "channels_first" else 3)([layers.Add()([a, b]), c])
    y = layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(y)
    y = layers.Conv2DTranspose(3, (4, 2), strides=(1, 3), padding="valid")(y)
    y = layers.DepthwiseConv2D(3, padding="valid", use_bias=False)(layers.AveragePooling2D(5, 1, padding="same")(y))
    return keras.models.Model(x, layers.Dense(2)(layers.GlobalAveragePooling2D()(y)))


def sized(size, channels, data_format):
    """An input shape in the data format."""
    return (channels, *size) if data_format == "channels_first" else (*size, channels)
