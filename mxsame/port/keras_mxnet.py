"""Models of keras-mxnet as models of Keras: what is other there is written into them before their converters see it."""

from __future__ import annotations

import re
from typing import Any

from mxsame import padding as arithmetic
from mxsame.port.converters import LAYERS
from mxsame.port.description import WRAPPER, Model
from mxsame.validation import check

KERNEL = re.compile(".*kernel")
WINDOWS = re.compile(r"((Depthwise|Separable)?Conv|(Max|Average)Pooling|LocallyConnected)\dD(Transpose)?")


def mark_weights(model: Model) -> None:
    """Note how keras-mxnet has stored the weights: all of a batch norm's are there, and kernels of channels first are
    in MXNet's order."""
    model.native = True
    weights: Any = LAYERS["BatchNormalization"].weights
    for layer in model.walk():
        if layer.class_name == "BatchNormalization":
            layer.weight_specs = [
                spec if spec.name == "gamma" else spec._replace(trained=spec.trained and spec.is_in(layer.config))
                for spec in weights
            ]
        elif layer.config.get("data_format") == "channels_first":
            layer.weight_specs = [
                spec._replace(native=bool(KERNEL.fullmatch(spec.name))) for spec in layer.weight_specs or ()
            ]


def settle(model: Model) -> None:
    """Write what keras-mxnet computes otherwise into the configurations: its own SAME, batch norms without `scale`, and
    the nearest element only."""
    model.source = None  # which another Keras would read otherwise
    for layer in model.walk():
        config, layer.entry = layer.config, {}
        if WINDOWS.fullmatch(layer.class_name) and str(config.get("padding")).lower() == "same":
            config["padding"] = arithmetic.KERAS_MXNET
        elif layer.class_name == "BatchNormalization":
            config["scale"] = False  # MXNet's fix_gamma
        elif layer.class_name.startswith("UpSampling"):
            config["interpolation"] = "nearest"
    for layer in model.layers:
        rule = f"layer {layer.name!r} ({WRAPPER}) is supported, but not with padding=keras-mxnet"
        check(layer.class_name != WRAPPER, rule)
        if layer.model is not None:
            settle(layer.model)
