"""Models of keras-mxnet: where it differs from Keras, the model is changed before the network is built."""

from __future__ import annotations

import re
from typing import Any

from mxsame.keras_format.description import WRAPPER, Model
from mxsame.padding.keras_mxnet import KERAS_MXNET
from mxsame.port.converters import LAYERS
from mxsame.validation import check

WINDOWS = re.compile(r"((Depthwise|Separable)?Conv|(Max|Average)Pooling|LocallyConnected)\dD(Transpose)?")


def set_weight_specs(model: Model) -> None:
    """Changes the specs of weights to those of keras-mxnet: a batch norm has all of its weights, and kernels of
    channels first are in MXNet's order."""
    model.from_keras_mxnet = True
    weights: Any = LAYERS["BatchNormalization"].weights
    for layer in model.walk():
        if layer.class_name == "BatchNormalization":
            gamma, *others = weights
            others = [spec._replace(trainable=spec.trainable and spec.is_present(layer.config)) for spec in others]
            layer.weight_specs = [gamma, *others]
        elif layer.config.get("data_format") == "channels_first":
            specs = layer.weight_specs or ()
            layer.weight_specs = [spec._replace(from_keras_mxnet=spec.name.endswith("kernel")) for spec in specs]


def adapt(model: Model) -> None:
    """Changes configurations to what keras-mxnet computes: its own SAME, batch norms without `scale`, and
    nearest-neighbor upsampling."""
    model.source = None  # Keras would compute something else from it
    for layer in model.walk():
        config, layer.entry = layer.config, {}
        if WINDOWS.fullmatch(layer.class_name) and str(config.get("padding")).lower() == "same":
            config["padding"] = KERAS_MXNET
        elif layer.class_name == "BatchNormalization":
            config["scale"] = False  # MXNet's fix_gamma
        elif layer.class_name.startswith("UpSampling"):
            config["interpolation"] = "nearest"
    for layer in model.layers:
        rule = f"layer {layer.name!r} ({WRAPPER}) is supported, but not with padding=keras-mxnet"
        check(layer.class_name != WRAPPER, rule)
        if layer.model is not None:
            adapt(layer.model)
