"""Small networks with SAME, strides and odd sizes, and weights that only depend on a seed."""

from __future__ import annotations

import mxsame
import numpy as np
from mxnet import nd
from mxnet.gluon import nn

SHAPE = (3, 11, 9)  # of an image
CLASSES = 4


def _network(*layers) -> nn.HybridSequential:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mxsame.nn.Conv2D(6, 3, strides=2, in_channels=3, activation="relu"), *layers)
        net.add(mxsame.nn.Conv2D(8, (2, 3), strides=(2, 1), in_channels=6), mxsame.nn.MaxPool2D(2))
        net.add(nn.Flatten(), nn.Dense(CLASSES, in_units=8 * 2 * 3), nn.HybridLambda("softmax"))
    net.initialize()
    numbers = np.random.RandomState(3)
    for name, parameter in sorted(net.collect_params().items()):
        values = numbers.uniform(-0.4, 0.4, parameter.shape)
        parameter.set_data(nd.array(abs(values) + 0.5 if name.endswith(("gamma", "var")) else values))
    return net


def plain() -> nn.HybridSequential:
    """What a step of two workers and of one process must agree on."""
    return _network()


def frozen() -> nn.HybridSequential:
    """With a batch norm whose statistics are given, as when a trained network is tuned."""
    return _network(nn.BatchNorm(in_channels=6, use_global_stats=True))


def normalized() -> nn.HybridSequential:
    """With a batch norm, which each worker computes from its own part of the batch."""
    return _network(nn.BatchNorm(in_channels=6))
