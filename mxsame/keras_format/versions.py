"""Layers of a Keras model in the two file formats: an archive has what Keras 3 writes, an .h5 file what tf.keras 2
writes and Keras 3 reads, too."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple

from mxsame.keras_format.description import Layer, LayerCall, class_and_config, dtype_name, function_name
from mxsame.padding.keras_mxnet import KERAS_MXNET
from mxsame.validation import check

ANY = object()  # for a key that changes nothing, whatever its value


class Key(NamedTuple):
    """A key of the configuration of some classes that one Keras does not know, and its value that changes nothing."""

    classes: str
    key: str
    neutral: Any


RECURRENT = "SimpleRNN|LSTM|GRU|RNN|ConvLSTM.D"
OF_KERAS_2 = (
    Key(".*", "batch_input_shape|input_length", ANY),
    Key(".*", "time_major", False),
    Key(f"{RECURRENT}|.*Cell", "implementation", ANY),
    Key("(Depthwise|Separable)Conv.*|Conv.DTranspose", "groups", 1),
    Key("SeparableConv.*", "kernel_(initializer|regularizer|constraint)", ANY),
    Key("SpatialDropout.D", "trainable", ANY),
    Key("SpatialDropout.D", "noise_shape", None),
)
OF_KERAS_3 = (
    Key(f"{RECURRENT}|.*Cell|.*Attention", "seed", ANY),
    Key(".*", "synchronized|renorm|rms_scaling|use_gate|pad_to_aspect_ratio|antialias", False),
    Key(".*", "quantization_config|sliding_window|input_axes|output_axes", None),
    Key(".*", "renorm_(clipping|momentum)", ANY),
    Key("AlphaDropout", "noise_shape", None),
    Key("CenterCrop|Random.*|Resizing|ZeroPadding1D", "data_format", "channels_last"),
    Key("Resizing", "fill_(mode|value)", ANY),
    Key("Conv3DTranspose", "dilation_rate", [1, 1, 1]),
)
# classes that only one Keras has, or that each computes differently
NOT_TRANSLATED = "Random(Brightness|Contrast|Crop|Height|Width)|.*>.*"
MISSING = {  # classes that a version of Keras does not have
    2: f"RMSNormalization|Adaptive.*Pooling.D|Group(ed)?QueryAttention|{NOT_TRANSLATED}",
    3: f"LocallyConnected.D|ThresholdedReLU|StackedRNNCells|SyncBatchNormalization|{NOT_TRANSLATED}",
}
SWISH = {2: "swish", 3: "silu"}  # the names of one function, by the version of Keras
ACTIVATIONS = (  # activations that are one function in both: hard_sigmoid is not
    *("elu", "exponential", "gelu", "linear", "mish", "relu", "selu", "sigmoid", "softmax", "softplus", "softsign"),
    *("tanh", *SWISH.values()),
)
# classes that Keras 3 always loads with trained parameters
ALWAYS_TRAINABLE = "MultiHeadAttention|Group(ed)?QueryAttention|ConvLSTM.D"
PARTS = ("layer", "backward_layer", "cell", "cells")  # keys whose values are layers
PACKAGES = {"initializer": "initializers", "regularizer": "regularizers", "constraint": "constraints"}
# of a call of a layer of attention: a file of tf.keras 2 has all but the first by name
ATTENTION_ARGUMENTS = ("query", "value", "key")


def entry_of(layer: Layer, is_known: bool, version: int, target: int) -> Dict[str, Any]:
    """Returns the entry of a layer in a file: its class and its configuration. The layer is from a file of Keras
    `version`, and this one is of Keras `target`: 2 for an .h5 file, 3 for an archive. `is_known`: its class has a
    converter.

    Raises a `ValueError` if the format has no such layer."""
    plain = {"class_name": layer.class_name, "config": layer.config}
    is_named = layer.stored_as not in ("", "RNN")  # the user has named one of Keras's
    entry = dict(plain if is_named or not layer.entry else layer.entry)
    is_same_format = version == target and (target == 2 or "module" in entry)
    if layer.class_name == "InputLayer":
        return entry if is_same_format else _translated(entry, version, target, "")
    check(layer.config.get("padding") != KERAS_MXNET, f"Keras {target} does not have the padding of keras-mxnet")
    is_known = is_known and not layer.after
    is_there = layer.operator is None and not re.fullmatch(MISSING[target], str(entry["class_name"]))
    check(is_known and (is_there or is_same_format), f"a file of Keras {target} has no such layer")
    is_kept = is_same_format and (target == 3 or layer.operator is not None)
    return entry if is_kept else _translated(entry, version, target, "")


def _translated(entry: Dict[str, Any], version: int, target: int, key: str) -> Dict[str, Any]:
    """Returns an object of a configuration, and those in it, without the keys that the Keras of the format does not
    have."""
    class_name, config, is_h5 = str(entry["class_name"]), dict(entry["config"]), target == 2
    if class_name == "InputLayer":
        shape = config.get("batch_shape", config.get("batch_input_shape"))
        config = {"batch_input_shape" if is_h5 else "batch_shape": shape, "dtype": dtype_name(config.get("dtype"))}
        return {"class_name": class_name, "config": config, **({} if is_h5 else _module("layers"))}
    if (version, target) == (2, 3) and class_name in ("LSTM", "GRU"):
        config.setdefault("recurrent_activation", "hard_sigmoid")
    unknown = (*OF_KERAS_2, *OF_KERAS_3) if is_h5 else OF_KERAS_2
    for each in (each for each in unknown if re.fullmatch(each.classes, class_name)):
        for name in [name for name in config if re.fullmatch(each.key, name)]:
            value = config.pop(name)
            value = list(value) if isinstance(value, tuple) else value
            fits = each.neutral is ANY or value in (each.neutral, None)
            check(fits, f"{name} must be {each.neutral}", **{name: value})
    if is_h5 and not config.get("zero_output_for_mask"):
        config.pop("zero_output_for_mask", None)
    if class_name == "MultiHeadAttention":  # tf.keras 2 needs these shapes, and Keras 3 refuses them
        shapes = {name: config.pop(name, None) for name in ("query_shape", "key_shape", "value_shape")}
        config.update(shapes if is_h5 else {})
    axes = config.get("axis")
    if class_name == "BatchNormalization" and isinstance(axes, (list, tuple)):
        check(is_h5 or len(axes) == 1, "axis must be one axis in Keras 3", axis=axes)
        config["axis"] = axes[0] if len(axes) == 1 else axes
    fits = is_h5 or class_name != "SeparableConv1D" or config.get("padding") != "causal"
    check(fits, "padding must not be causal in Keras 3", padding=config.get("padding"))
    if class_name == "LeakyReLU":
        before, after = ("negative_slope", "alpha") if is_h5 else ("alpha", "negative_slope")
        config = {after if name == before else name: value for name, value in config.items()}
    config = {name: _value(name, value, version, target) for name, value in config.items()}
    if is_h5:
        known = {name: entry[name] for name in ("module", "registered_name") if name in entry and version == 2}
        return {"class_name": class_name, "config": config, **known}
    package = PACKAGES.get(key.rpartition("_")[2], "layers")
    return {"class_name": class_name, "config": config, **_module(package)}


def _module(package: str) -> Dict[str, Any]:
    return {"module": f"keras.{package}", "registered_name": None}


def _value(key: str, value: Any, version: int, target: int) -> Any:
    """Returns a value of a configuration for the format."""
    if key == "dtype" and version != target:
        return dtype_name(value)
    is_object = isinstance(value, dict) and "class_name" in value and isinstance(value.get("config"), dict)
    is_layer = is_object and class_and_config(value)[0].isalnum()  # the user's functions: package>name, __lambda__
    if key in ("activation", "recurrent_activation") and version != target and not is_layer:
        name = function_name(value)
        check(name in (None, *ACTIVATIONS), f"{key} must be one that Keras 2 and Keras 3 share", **{key: name})
        return SWISH[target] if name in SWISH.values() else name
    if isinstance(value, list) and key == "cells":
        return [_translated(each, version, target, key) for each in value]
    return _translated(value, version, target, key) if is_object else value


def call_of(layer: Layer, call: LayerCall, version: int, target: int) -> LayerCall:
    """Returns a call for the format: in an .h5 file only the first argument has no name; the states of a recurrent
    layer have a name in Keras 3."""
    if version == target:
        return call
    args, kwargs = list(call.args), {name: value for name, value in call.kwargs.items() if value is not None}
    if layer.class_name.startswith("Random"):  # Keras 3 writes True, and does as the model is called
        kwargs.pop("training", None)
    if target == 2 and len(args) > 1:
        names = ATTENTION_ARGUMENTS if layer.class_name.endswith("Attention") else ("", "initial_state")
        check(len(args) <= len(names), "arguments of a call must have names", args=len(args))
        kwargs.update(zip(names[1 : len(args)], args[1:]))
        args = args[:1]
    if target == 3 and re.fullmatch(f"{RECURRENT}|Bidirectional", layer.class_name) and isinstance(args[0], list):
        (args[0], *states) = args[0]
        kwargs.update({"initial_state": states} if states else {})
    return LayerCall(tuple(args), kwargs)


def loses_frozen_state(layer: Layer) -> bool:
    """Returns whether a frozen layer, or one that it wraps, is trainable once Keras 3 has loaded it: such a class does
    not pass `trainable` on to the layers that it makes."""
    wrapped = layer.config.get("layer")
    names = (layer.class_name, str(wrapped.get("class_name")) if isinstance(wrapped, dict) else "")
    return not layer.trainable and any(re.fullmatch(ALWAYS_TRAINABLE, name) for name in names)


def with_trainable(entry: Dict[str, Any], value: bool) -> Dict[str, Any]:
    """Returns an entry with this value of `trainable`, in all layers in it, too."""
    config = {**entry["config"], "trainable": value}
    for name in (*PARTS, "layers"):
        parts: List[Any] = config[name] if isinstance(config.get(name), list) else [config.get(name)]
        changed = [with_trainable(each, value) if isinstance(each, dict) else each for each in parts]
        if name in config:
            config[name] = changed if isinstance(config[name], list) else changed[0]
    return {**entry, "config": config}
