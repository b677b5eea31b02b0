"""Small networks with SAME, strides and odd sizes, and weights that only depend on a seed."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import mxsame
import numpy as np
from mxnet import nd
from mxnet.gluon import nn

SHAPE = (3, 11, 9)  # of a picture
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


def keras_file(path: Path) -> None:
    """A model as Keras 2 saves it: Conv2D, BatchNormalization, Flatten, Dense with softmax."""
    channels, *size = SHAPE
    numbers = np.random.RandomState(4)

    def uniform(*shape: int) -> np.ndarray:
        return numbers.uniform(-0.4, 0.4, shape).astype(np.float32)

    layers = [
        ("InputLayer", {"batch_input_shape": [None, *size, channels]}, {}),
        (
            "Conv2D",
            {"filters": 4, "kernel_size": [3, 3], "strides": [2, 2], "padding": "same", "activation": "relu"},
            {"kernel": uniform(3, 3, channels, 4), "bias": uniform(4)},
        ),
        (
            "BatchNormalization",
            {"axis": [3], "momentum": 0.9},
            {"gamma": uniform(4) + 1, "beta": uniform(4), "moving_mean": uniform(4), "moving_variance": uniform(4) + 1},
        ),
        ("Flatten", {}, {}),
        (
            "Dense",
            {"units": CLASSES, "activation": "softmax"},
            {"kernel": uniform(6 * 5 * 4, CLASSES), "bias": uniform(CLASSES)},
        ),
    ]
    named = [(f"layer_{number}", *layer) for number, layer in enumerate(layers)]
    config = [{"class_name": kind, "config": {"name": name, **given}} for name, kind, given, _ in named]
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "2.13.1", "tensorflow"
        model = {"class_name": "Sequential", "config": {"name": "model", "layers": config}}
        file.attrs["model_config"] = json.dumps(model)
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() for name, *_ in named]
        for name, _, _, weights in named:
            own = group.create_group(name)
            own.attrs["weight_names"] = [f"{name}/{weight}:0".encode() for weight in weights]
            for weight, values in weights.items():
                own[f"{name}/{weight}:0"] = values
