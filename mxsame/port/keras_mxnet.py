"""Models of keras-mxnet, in the words of Keras where the two differ."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Dict, cast

from mxsame.keras_format.description import WRAPPER, Layer, Model
from mxsame.keras_format.topology import layers_of
from mxsame.padding.keras_mxnet import KERAS_MXNET
from mxsame.port.converters import LAYERS
from mxsame.validation import check

WINDOWS = re.compile(r"((Depthwise|Separable)?Conv|(Max|Average)Pooling|LocallyConnected)\dD(Transpose)?")


def with_weight_specs(model: Model) -> Model:
    """Returns a model with the specs of weights of keras-mxnet: a batch norm has all of its weights, and kernels of
    channels first are in MXNet's order."""
    return replace(model.map_layers(_with_weight_specs), from_keras_mxnet=True)


def _with_weight_specs(layer: Layer) -> Layer:
    specs = layer.weight_specs
    if layer.class_name == "BatchNormalization":
        gamma, *others = cast(Any, LAYERS["BatchNormalization"].weights)
        specs = [gamma, *(x._replace(trainable=x.trainable and x.is_present(layer.config)) for x in others)]
    elif layer.config.get("data_format") == "channels_first":
        specs = [spec._replace(from_keras_mxnet=spec.name.endswith("kernel")) for spec in specs or ()]
    return replace(layer, weight_specs=specs)


def adapted(model: Model) -> Model:
    """Returns a model with configurations of what keras-mxnet computes: its own SAME, batch norms without `scale`, and
    nearest-neighbor upsampling. Keras would compute something else from those of the file."""
    for (*_, name), layer in layers_of(model):
        rule = f"layer {name!r} ({WRAPPER}) is supported, but not with padding=keras-mxnet"
        check(layer.class_name != WRAPPER, rule)
    return replace(model.map_layers(_adapted), source=None)


def _adapted(layer: Layer) -> Layer:
    changed: Dict[str, Any] = {}
    if WINDOWS.fullmatch(layer.class_name) and str(layer.config.get("padding")).lower() == "same":
        changed["padding"] = KERAS_MXNET
    elif layer.class_name == "BatchNormalization":
        changed["scale"] = False  # MXNet's fix_gamma
    elif layer.class_name.startswith("UpSampling"):
        changed["interpolation"] = "nearest"
    return replace(layer, config={**layer.config, **changed}, entry={})
