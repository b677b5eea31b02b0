"""Layers of Keras 1 by the names, and with the arguments, that they have since Keras 2."""

from __future__ import annotations

from typing import Any, Dict

from mxsame import validation
from mxsame.port.description import Layer

CLASSES = {
    **{f"Convolution{rank}D": f"Conv{rank}D" for rank in (1, 2, 3)},
    **{f"AtrousConvolution{rank}D": f"Conv{rank}D" for rank in (1, 2)},
    "SeparableConvolution2D": "SeparableConv2D",
    "TimeDistributedDense": "Dense",
}
MERGES = {"sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum", "concat": "Concatenate", "dot": "Dot"}
ARGUMENTS = {
    "output_dim": "units",
    "nb_filter": "filters",
    "filter_length": "kernel_size",
    "pool_length": "pool_size",
    **dict.fromkeys(("subsample", "subsample_length", "stride"), "strides"),
    "atrous_rate": "dilation_rate",
    "border_mode": "padding",
    "bias": "use_bias",
    "inner_activation": "recurrent_activation",
    "length": "size",
    "p": "rate",
    "sigma": "stddev",
    "dim_ordering": "data_format",
    "concat_axis": "axis",
    "dot_axes": "axes",
}
SIZES = ("nb_row", "nb_col"), ("kernel_dim1", "kernel_dim2", "kernel_dim3")
DATA_FORMATS = {"tf": "channels_last", "th": "channels_first", "default": "channels_last"}


def renamed(layer: Layer) -> None:
    """Give a layer of Keras 1 the class and the configuration of Keras 2.

    Raises `ValueError` for convolutions of Theano's order of axes, whose kernels are another's.
    """
    config: Dict[str, Any] = dict(layer.config)
    if layer.class_name == "Merge":
        layer.class_name = MERGES.get(str(config.pop("mode", None)), "Merge")
    layer.class_name = CLASSES.get(layer.class_name, layer.class_name)
    for names in SIZES:
        if all(name in config for name in names):
            config["kernel_size"] = [config[name] for name in names]
    for old, new in ARGUMENTS.items():
        if old in config and not (old == "output_dim" and layer.class_name == "Embedding"):
            config.setdefault(new, config.pop(old))
    ordering = config.get("data_format")
    if ordering == "th" and "Conv" in layer.class_name:
        raise ValueError(
            f"dim_ordering of layer {layer.name!r} must be tf; {validation.received(dim_ordering=ordering)}"
        )
    config["data_format"] = DATA_FORMATS.get(str(ordering), ordering)
    layer.config = {name: value for name, value in config.items() if name != "data_format" or value is not None}
