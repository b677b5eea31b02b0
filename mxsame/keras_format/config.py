"""Reads configurations of Keras 2 and 3 as a `Model`. Nothing in them is executed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from mxsame.keras_format import dtypes
from mxsame.keras_format.description import WRAPPER, Config, Layer, LayerCall, Model, TensorId, class_and_config, leaves
from mxsame.keras_format.topology import depth_first_search
from mxsame.validation import InvalidValue, check, received

MODELS = ("Sequential", "Functional", "Model")
LAYERS_WITHOUT_TRAINABLE = re.compile(r"InputLayer|SpatialDropout\dD|Discretization")  # in configurations of Keras 3
MODEL_KEYS = "layers|input_layers|output_layers|build_input_shape|dtype"  # keys of a model's configuration
MAX_DEPTH = 32  # models in models
MALFORMED = (AttributeError, IndexError, KeyError, TypeError)  # raised by reading a malformed configuration


def model_of(entry: Any, version: int) -> Model:
    """Returns the model of `{"class_name": .., "config": ..}`."""
    try:
        return _model(*_class_and_config(entry), version, 0)
    except MALFORMED:
        rule = "a model's configuration must have class_name, config and layers as Keras writes them"
        raise InvalidValue(f"{rule}; {received(config=entry)}") from None
    except RecursionError:
        raise InvalidValue("a model's configuration must not be nested that deeply") from None


def _class_and_config(entry: Any) -> Tuple[str, Dict[str, Any]]:
    """Returns the class and configuration. Before Keras 2.2.3 that of a Sequential is the list of its layers."""
    class_name, config = class_and_config(entry)
    return class_name, {"layers": config} if isinstance(config, list) else config


def _model(class_name: str, config: Dict[str, Any], version: int, depth: int) -> Model:
    try:
        Config(config).refuse_unread(MODEL_KEYS)
    except ValueError as error:
        raise InvalidValue(f"model {config.get('name')!r}: {error}") from None
    if class_name == "Sequential":
        return _sequential(config, version, depth)
    if class_name in MODELS and "output_layers" in config:
        return _functional(config, version, depth)
    rule = "a model must be Sequential or Functional (a subclass of Model may compute anything; if yours only calls "
    rule = f"{rule}layers, pass keras.Model(model.inputs, model.outputs))"
    raise InvalidValue(f"{rule}; {received(class_name=class_name)}")


def _sequential(config: Dict[str, Any], version: int, depth: int) -> Model:
    layers = _layers(config["layers"], version, depth)
    if not layers or layers[0].class_name != "InputLayer":
        shape = (_input_shape(layers[0]) if layers else None) or config.get("build_input_shape")
        names = {layer.name for layer in layers}
        name = next(name for name in ("input", *(f"input_{n}" for n in range(len(names) + 1))) if name not in names)
        layers.insert(0, Layer("InputLayer", name, {"batch_input_shape": shape}))
    tensors = [TensorId(layer.name) for layer in layers]
    args = [(), *((tensor,) for tensor in tensors)]
    layers = [replace(layer, calls=[LayerCall(given)]) for layer, given in zip(layers, args)]
    return Model(str(config.get("name", "sequential")), layers, tensors[:1], tensors[-1:], version, sequential=True)


def _input_shape(layer: Layer) -> Any:
    shape = layer.config.get("batch_input_shape")
    if shape is None and layer.model is not None:
        return _input_shape(layer.model.layers[0])
    return shape


def _functional(config: Dict[str, Any], version: int, depth: int) -> Model:
    layers = _layers(config["layers"], version, depth)
    nodes = [entry.get("inbound_nodes") or [] for entry in config["layers"]]
    layers = [replace(layer, calls=[*map(_call, calls)] or [LayerCall(())]) for layer, calls in zip(layers, nodes)]
    inputs, outputs = _references(config["input_layers"]), _references(config["output_layers"])
    by_key = isinstance(config["input_layers"], dict) and "class_name" not in config["input_layers"]
    keys = sorted(config["input_layers"]) if by_key else [tensor.layer for tensor in inputs]
    layers, outputs = _renumber_calls(layers, outputs, version)
    layers = _without_losses(layers, outputs)
    return Model(str(config.get("name", "model")), layers, inputs, outputs, version, keys=keys)


def _renumber_calls(layers: List[Layer], outputs: List[TensorId], version: int) -> Tuple[List[Layer], List[TensorId]]:
    """Returns the layers and outputs with the calls of nested models numbered from 0, as those of layers.

    Keras calls a model once when it is built; files do not contain that call. Keras 2 counts it in all references to
    some models: it is counted if a reference has a number as large as the number of calls. Keras 3 counts it in
    `output_layers` only, and not for a Sequential.
    """
    models = {layer.name: layer for layer in layers if "layers" in layer.config}
    if version == 2:
        taken = {tensor[:2] for layer in layers for call in layer.calls for tensor in call.tensors()}
        taken.update(tensor[:2] for tensor in outputs)
        first = {name for name, layer in models.items() if (name, len(layer.calls)) in taken}
    else:
        first = {name for name, layer in models.items() if "output_layers" in layer.config}

    def counted(tensor: TensorId) -> TensorId:
        return tensor._replace(call=tensor.call - 1) if tensor.layer in first else tensor

    if version == 2:
        layers = [replace(layer, calls=[call.map_tensors(counted) for call in layer.calls]) for layer in layers]
    return layers, [counted(tensor) for tensor in outputs]


def _without_losses(layers: List[Layer], outputs: List[TensorId]) -> List[Layer]:
    """Returns the layers without the calls of `add_loss` and `add_metric`, and of layers whose outputs only these
    use."""
    if not any(layer.class_name in ("AddLoss", "AddMetric") for layer in layers):
        return layers
    needed, _ = depth_first_search({layer.name: layer for layer in layers}, outputs)
    is_used = [layer.name in needed or layer.class_name == "InputLayer" for layer in layers]
    return [layer if used else replace(layer, calls=()) for layer, used in zip(layers, is_used)]


def _layers(entries: List[Any], version: int, depth: int) -> List[Layer]:
    layers = []
    for entry in entries:
        try:
            layers.append(_layer(entry, version, depth))
        except MALFORMED:
            raise InvalidValue(f"layers must be written as Keras writes them; {received(layer=entry)}") from None
    names = [layer.name for layer in layers]
    duplicate = next((name for name, count in Counter(names).items() if count > 1), None)
    check(duplicate is None, f"layers of a model must have different names; received {duplicate!r} more than once")
    return layers


def _layer(entry: Any, version: int, depth: int) -> Layer:
    check(depth <= MAX_DEPTH, f"models must be nested at most {MAX_DEPTH} deep")
    class_name, config = _class_and_config(entry)
    config = {key: _number(value) for key, value in config.items()}
    name = entry.get("name", config.get("name"))
    named = isinstance(name, str) and name
    check(named, f"a layer must have a name; received a {class_name} with {received(name=name)}")
    for option in ("sparse", "ragged") if class_name == "InputLayer" else ():
        check(not config.get(option), f"inputs must not be {option}; received the input {name!r}")
    if class_name in MODELS:
        return Layer(class_name, name, config, model=_model(class_name, config, version, depth + 1), entry=entry)
    if class_name == WRAPPER:
        return Layer(class_name, name, config, model=_wrapped(config["layer"], version, depth + 1), entry=entry)
    stored_as = "RNN" if entry["class_name"] == "RNN" else ""
    operator = _operator(entry, class_name, config, version)
    return Layer(class_name, name, config, operator=operator, stored_as=stored_as, entry=entry)


def _number(value: Any) -> Any:
    """Returns a value of a configuration; an array of Keras 3 as nested lists of numbers."""
    is_array = isinstance(value, dict) and value.get("class_name") in ("__tensor__", "__numpy__")
    return _argument(value).tolist() if is_array else value


def _wrapped(entry: Any, version: int, depth: int) -> Model:
    """Returns the layer of a wrapper as a model with one input and one output."""
    layer = _layer(entry, version, depth)
    start = Layer("InputLayer", f"{layer.name}_input", {}, [LayerCall(())])
    called = replace(layer, calls=[LayerCall((TensorId(start.name),))])
    return Model(layer.name, [start, called], [TensorId(start.name)], [TensorId(layer.name)], version)


def _operator(entry: Dict[str, Any], class_name: str, config: Dict[str, Any], version: int) -> Optional[str]:
    """Returns the function of an operator node; None for a layer."""
    if class_name in ("TFOpLambda", "SlicingOpLambda"):
        return str(config.get("function", entry.get("name")))
    if class_name == "TensorFlowOpLayer":  # written by TensorFlow 2.0 to 2.3; its operators have no converters
        node = config["node_def"]
        return f"{class_name}.{node['op']}" if isinstance(node, dict) else class_name
    if "module" in entry or version == 2:
        return class_name if str(entry.get("module")).startswith("keras.src.ops") else None
    # An .h5 file of Keras 3 has no modules; layers are trainable, or not.
    return None if "trainable" in config or LAYERS_WITHOUT_TRAINABLE.fullmatch(class_name) else class_name


def _call(call: Any) -> LayerCall:
    if isinstance(call, dict) and "args" not in call:  # Keras 2, of a model that is called with a dict
        given = {key: _argument(entry[:3]) for key, entry in call.items()}
        return LayerCall((given,), _argument(dict(*next(iter(call.values()))[3:4])))
    if isinstance(call, dict):  # Keras 3
        return LayerCall(tuple(map(_argument, call["args"])), _argument(call["kwargs"]))
    entries = [call] if isinstance(call[0], str) else call  # each [layer, node, tensor, kwargs]
    inputs = [_argument(entry[:3]) for entry in entries]
    return LayerCall((inputs if len(inputs) != 1 else inputs[0],), _argument(dict(*entries[0][3:4])))


def _argument(value: Any) -> Any:
    """Returns an argument of a call with a `TensorId` for each tensor, arrays of their dtype, and slices of Keras 3 as
    in TensorFlow's nodes."""
    if isinstance(value, list):
        if len(value) in (3, 4) and value[0] == "_CONSTANT_VALUE":
            return value[2]
        if len(value) in (3, 4) and isinstance(value[0], str) and all(type(entry) is int for entry in value[1:3]):
            return TensorId(*value[:3])
        return [_argument(entry) for entry in value]
    if isinstance(value, dict):
        kind, inner = value.get("class_name"), value.get("config", {})
        if kind == "__keras_tensor__":
            return TensorId(*inner["keras_history"])
        if kind in ("__tensor__", "__numpy__"):
            return np.asarray(inner["value"], dtypes.standardize_dtype(inner["dtype"]))
        if kind in ("__slice__", "__ellipsis__"):
            return dict(inner) if kind == "__slice__" else "..."
        return {key: _argument(entry) for key, entry in value.items()}
    return value


def _references(value: Any) -> List[TensorId]:
    """Returns the tensors of `input_layers` or `output_layers`."""
    tensors = leaves(_argument(value), TensorId)
    check(tensors, "input_layers and output_layers must hold [layer, node, tensor]", value=value)
    return tensors
