"""A network trained in keras-mxnet, and the same in plain Gluon, with its weights.

Strides on even and odd sizes, even kernels, both kinds of pooling, depthwise and separable convolutions, batch norms
with the epsilon of Keras. Channels first; nothing here imports a Keras.
"""

from __future__ import annotations

import numpy as np

import mxsame
from mxsame._mxnet import mx

SIZE, CHANNELS, CLASSES = (16, 19), 3, 3
STEPS = 5


def in_keras(keras):
    """The model of keras-mxnet, not trained."""
    layers, first = keras.layers, "channels_first"
    window = {"padding": "same", "data_format": first}
    normal = keras.initializers.RandomNormal(stddev=0.5)
    plain = {**window, "kernel_initializer": normal}
    depthwise = {**window, "depthwise_initializer": normal}
    return keras.models.Sequential(
        [
            layers.Conv2D(8, 3, strides=2, input_shape=(CHANNELS, *SIZE), **plain),
            layers.BatchNormalization(axis=1),
            layers.Activation("relu"),
            layers.MaxPooling2D(3, strides=2, **window),
            layers.DepthwiseConv2D(4, **depthwise),
            layers.BatchNormalization(axis=1),
            layers.Activation("relu"),
            layers.Conv2D(10, (2, 3), dilation_rate=(1, 2), activation="tanh", **plain),
            layers.AveragePooling2D(2, strides=2, **window),
            layers.SeparableConv2D(6, 2, pointwise_initializer=normal, **depthwise),
            layers.Conv2DTranspose(5, 2, strides=2, activation="tanh", **plain),
            layers.GlobalAveragePooling2D(data_format=first),
            layers.Dense(CLASSES, activation="softmax", kernel_initializer=normal),
        ]
    )


def examples():
    """(data, one-hot labels)."""
    stream = np.random.RandomState(7)
    data = stream.normal(size=(12, CHANNELS, *SIZE)).astype(np.float32)
    return data, np.eye(CLASSES, dtype=np.float32)[stream.randint(CLASSES, size=12)]


def in_gluon(padding="keras-mxnet"):
    """The same layers, of `mxsame.nn` and `gluon.nn`; the softmax is a function of its output."""
    nn, old = mx.gluon.nn, mxsame.nn
    net = nn.HybridSequential()
    net.add(
        old.Conv2D(8, 3, 2, padding, in_channels=CHANNELS),
        nn.BatchNorm(epsilon=1e-3, in_channels=8),
        nn.Activation("relu"),
        old.MaxPool2D(3, 2, padding),
        old.DepthwiseConv2D(4, 1, padding, in_channels=8),
        nn.BatchNorm(epsilon=1e-3, in_channels=8),
        nn.Activation("relu"),
        old.Conv2D(10, (2, 3), 1, padding, (1, 2), activation="tanh", in_channels=8),
        old.AvgPool2D(2, 2, padding),
        old.SeparableConv2D(6, 2, 1, padding, in_channels=10),
        old.Conv2DTranspose(5, 2, 2, padding, activation="tanh", in_channels=6),
        nn.GlobalAvgPool2D(),
        nn.Dense(CLASSES, in_units=5),
    )
    net.initialize()
    return net


def move(weights, net):
    """`model.get_weights()` into the net; both have them layer by layer in the same order."""
    parameters = [parameter for block in net for parameter in block.collect_params().values()]
    assert len(parameters) == len(weights)
    for parameter, array in zip(parameters, weights):
        if array.ndim == 2:
            array = array.T
        elif array.ndim == 4 and array.shape != parameter.shape:  # (C, m, *k) of a depthwise kernel
            array = array.reshape(parameter.shape)
        parameter.set_data(mx.nd.array(array))


def probabilities(net, data):
    return mx.nd.softmax(net(mx.nd.array(data))).asnumpy()
