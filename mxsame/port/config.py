"""Keras's configurations, of both versions, as a `Model`. Nothing in them is executed."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from mxsame import validation
from mxsame.port.description import WRAPPER, Call, Layer, Model, Tensor

MODELS = ("Sequential", "Functional", "Model")
DEEPEST = 32  # models in models


def model_of(config: Any, version: int, depth: int = 0) -> Model:
    """The model of `{"class_name": .., "config": ..}`."""
    if not isinstance(config, dict) or not isinstance(config.get("class_name"), str):
        raise ValueError("a model's configuration must be an object with class_name and config")
    if depth > DEEPEST:
        raise ValueError(f"models must be nested at most {DEEPEST} deep")
    class_name, inner = config["class_name"], config.get("config")
    if class_name == "Sequential":
        if isinstance(inner, list):  # Keras before 2.2.3
            inner = {"layers": inner}
        return _sequential(_checked(inner, class_name), version, depth)
    if isinstance(inner, dict) and "layers" in inner and "output_layers" in inner:
        return _functional(inner, version, depth)
    raise ValueError(
        "a model must be Sequential or functional (a subclassed model has no configuration of its layers); "
        f"{validation.received(class_name=class_name)}"
    )


def _checked(config: Any, class_name: str) -> Dict[str, Any]:
    if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
        raise ValueError(f"config of {class_name} must be an object with a list of layers")
    return config


def _sequential(config: Dict[str, Any], version: int, depth: int) -> Model:
    layers = _layers(config["layers"], version, depth)
    if not layers or layers[0].class_name != "InputLayer":
        shape = _input_shape(layers[0]) if layers else None
        shape = shape or config.get("build_input_shape")
        names = {layer.name for layer in layers}
        name = next(name for name in ("input", *(f"input_{n}" for n in range(len(names) + 1))) if name not in names)
        layers.insert(0, Layer("InputLayer", name, {"batch_input_shape": shape}))
    layers[0].calls = [Call(())]
    for before, layer in zip(layers, layers[1:]):
        layer.calls = [Call((Tensor(before.name),))]
    name, ends = str(config.get("name", "sequential")), (layers[0].name, layers[-1].name)
    return Model(name, layers, [Tensor(ends[0])], [Tensor(ends[1])], version, sequential=True)


def _input_shape(layer: Layer) -> Any:
    shape = layer.config.get("batch_input_shape")
    if shape is None and layer.model is not None:
        return _input_shape(layer.model.layers[0])
    return shape


def _functional(config: Dict[str, Any], version: int, depth: int) -> Model:
    entries = _checked(config, "Functional")["layers"]
    layers = _layers(entries, version, depth)
    for layer, entry in zip(layers, entries):
        calls = entry.get("inbound_nodes") or []
        if not isinstance(calls, list):
            raise ValueError(f"inbound_nodes of layer {layer.name!r} must be a list")
        layer.calls = [_call(call, layer.name) for call in calls] or [Call(())]
    inputs = [_reference(entry, "input_layers") for entry in _references(config.get("input_layers"))]
    outputs = [_reference(entry, "output_layers") for entry in _references(config["output_layers"])]
    _count_calls_from_zero(layers, outputs)
    return Model(str(config.get("name", "model")), layers, inputs, outputs, version)


def _layers(entries: List[Any], version: int, depth: int) -> List[Layer]:
    layers = [_layer(entry, version, depth) for entry in entries]
    names = [layer.name for layer in layers]
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"layers of a model must have different names; received {double!r} more than once")
    return layers


def _layer(entry: Any, version: int, depth: int) -> Layer:
    if not isinstance(entry, dict) or not isinstance(entry.get("class_name"), str):
        raise ValueError(
            f"a layer's configuration must be an object with class_name and config; received {entry!r:.200}"
        )
    class_name, config = entry["class_name"].split(">")[-1], entry.get("config")
    if class_name == "Sequential" and isinstance(config, list):
        config = {"layers": config}
    if not isinstance(config, dict):
        raise ValueError(f"config of a {class_name} must be an object; {validation.received(config=config)}")
    name = entry.get("name", config.get("name"))
    if not isinstance(name, str) or not name:
        raise ValueError(f"a layer must have a name; received a {class_name} with {validation.received(name=name)}")
    if class_name in MODELS or ("output_layers" in config and "layers" in config):
        return Layer(class_name, name, config, model=model_of({**entry, "config": config}, version, depth + 1))
    if class_name == WRAPPER:
        return Layer(class_name, name, config, model=_wrapped(config.get("layer"), version, depth + 1))
    return Layer(class_name, name, config, operator=_operator(entry, class_name, config))


def _wrapped(entry: Any, version: int, depth: int) -> Model:
    """A layer as a model, between an input and an output."""
    if depth > DEEPEST:
        raise ValueError(f"models must be nested at most {DEEPEST} deep")
    layer = _layer(entry, version, depth)
    start = Layer("InputLayer", f"{layer.name}_input", {}, [Call(())])
    layer.calls = [Call((Tensor(start.name),))]
    return Model(layer.name, [start, layer], [Tensor(start.name)], [Tensor(layer.name)], version)


def _operator(entry: Dict[str, Any], class_name: str, config: Dict[str, Any]) -> Optional[str]:
    """The function of an operator node."""
    if class_name in ("TFOpLambda", "SlicingOpLambda"):
        return str(config.get("function", entry.get("name")))
    module = entry.get("module") or ""
    return class_name if str(module).startswith("keras.src.ops") else None


def _call(call: Any, name: str) -> Call:
    if isinstance(call, dict):  # Keras 3
        args, kwargs = call.get("args", []), call.get("kwargs", {})
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ValueError(f"inbound_nodes of layer {name!r} must have args and kwargs")
        return Call(tuple(map(_argument, args)), {key: _argument(value) for key, value in kwargs.items()})
    if not isinstance(call, list):
        raise ValueError(f"inbound_nodes of layer {name!r} must be lists; {validation.received(node=call)}")
    several = not (call and isinstance(call[0], str))
    entries = [_legacy(entry, name) for entry in (call if several else [call])]
    kwargs = entries[0][1] if entries else {}
    first = [tensor for tensor, _ in entries]
    return Call((first if len(first) != 1 else first[0],), kwargs)


def _legacy(entry: Any, name: str) -> Any:
    """`[layer, call, output, kwargs]` of Keras 2, or a constant in its place: the argument, and keyword arguments."""
    if not isinstance(entry, list) or len(entry) < 3:
        raise ValueError(f"inbound_nodes of layer {name!r} must hold [layer, node, tensor]; received {entry!r:.100}")
    kwargs = entry[3] if len(entry) > 3 else {}
    if not isinstance(kwargs, dict):
        raise ValueError(f"inbound_nodes of layer {name!r} must have an object of arguments; received {kwargs!r:.100}")
    kwargs = {key: _legacy_argument(value) for key, value in kwargs.items()}
    if entry[0] == "_CONSTANT_VALUE":
        return entry[2], kwargs
    return _reference(entry[:3], f"inbound_nodes of layer {name!r}"), kwargs


def _legacy_argument(value: Any) -> Any:
    if isinstance(value, list):
        if len(value) in (3, 4) and isinstance(value[0], str) and all(type(entry) is int for entry in value[1:3]):
            return value[2] if value[0] == "_CONSTANT_VALUE" else Tensor(*value[:3])
        if len(value) == 4 and value[0] == "_CONSTANT_VALUE":
            return value[2]
        return [_legacy_argument(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _legacy_argument(entry) for key, entry in value.items()}
    return value


def _argument(value: Any) -> Any:
    """An argument of Keras 3's, with a `Tensor` for each tensor, and slices as TensorFlow's nodes have them."""
    if isinstance(value, list):
        return [_argument(entry) for entry in value]
    if isinstance(value, dict):
        inner = value.get("config")
        if value.get("class_name") == "__keras_tensor__" and isinstance(inner, dict):
            return _reference(inner.get("keras_history"), "keras_history")
        if value.get("class_name") in ("__slice__", "__ellipsis__"):
            return dict(inner or {}) if value["class_name"] == "__slice__" else "..."
        if value.get("class_name") in ("__tensor__", "__numpy__") and isinstance(inner, dict):
            return inner.get("value")
        return {key: _argument(entry) for key, entry in value.items()}
    return value


def _references(value: Any) -> List[Any]:
    """`input_layers` and `output_layers`: one reference, a list of them, or an object."""
    if isinstance(value, dict):
        return [entry for key in sorted(value) for entry in _references(value[key])]
    if not isinstance(value, list) or not value:
        raise ValueError(f"input_layers and output_layers must be lists; {validation.received(value=value)}")
    return [value] if isinstance(value[0], str) else [entry for part in value for entry in _references(part)]


def _reference(value: Any, where: str) -> Tensor:
    if (
        not isinstance(value, list)
        or len(value) != 3
        or not isinstance(value[0], str)
        or not all(type(entry) is int and entry >= 0 for entry in value[1:])
    ):
        raise ValueError(f"{where} must hold [layer, node, tensor]; received {value!r:.100}")
    return Tensor(*value)


def _count_calls_from_zero(layers: List[Layer], outputs: List[Tensor]) -> None:
    """Keras 2 counts the calls of a nested model from 1: its first node is its own."""
    used: Dict[str, int] = {}
    for tensor in [*outputs, *(tensor for layer in layers for call in layer.calls for tensor in call.tensors())]:
        used[tensor.layer] = max(used.get(tensor.layer, 0), tensor.call)
    shifted = {layer.name for layer in layers if layer.model and used.get(layer.name, 0) >= len(layer.calls)}
    if not shifted:
        return

    def renamed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value._replace(call=value.call - 1) if value.layer in shifted else value
        if isinstance(value, (list, tuple)):
            return type(value)(map(renamed, value))
        return {key: renamed(entry) for key, entry in value.items()} if isinstance(value, dict) else value

    for layer in layers:
        layer.calls = [Call(renamed(call.args), renamed(call.kwargs)) for call in layer.calls]
    outputs[:] = map(renamed, outputs)
