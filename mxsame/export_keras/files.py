"""Keras's two formats of whole models, from a `mxsame.port.description.Model` and its arrays."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from typing import Any, Callable, Dict, List, Mapping

import numpy as np

from mxsame.export_keras.model_builder import KerasFile
from mxsame.port import files, weights
from mxsame.port.description import Layer, LayerCall, Model, TensorId, mapped
from mxsame.port.parameters import arrays_of

VERSIONS = {".keras": "3.0.0", ".h5": "2.13.1"}  # of Keras, whose format it is
ELLIPSIS = {"class_name": "__ellipsis__", "config": {}}
OPERATORS = "keras.src.ops."  # the modules of operators in Keras 3


def save(path: str, made: KerasFile) -> None:
    """Write a model. An .h5 file is what tf.keras 2 and Keras 3 load, a .keras archive what Keras 3 does."""
    model = made.model
    h5py, is_older = files.h5py_module(), path.endswith(".h5")
    config = json.dumps((_older if is_older else _newer)(model, model.name, made.tensors))
    if is_older:
        with h5py.File(path, "w") as file:
            weights.write_entries(file.create_group("model_weights"), model, arrays_of)
            file.attrs["model_config"] = config
            file.attrs["backend"], file.attrs["keras_version"] = "tensorflow", VERSIONS[".h5"]
        return
    stored = io.BytesIO()
    with h5py.File(stored, "w") as file:
        weights.write_by_class(file, model, arrays_of)
    now = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": VERSIONS[".keras"], "date_saved": now}))
        archive.writestr("config.json", config)
        archive.writestr(files.WEIGHTS, stored.getvalue())


def _newer(model: Model, name: str, shapes: Mapping[TensorId, tuple], trainable: bool = True) -> Dict[str, Any]:
    """Keras 3's configuration of a model, in which every object has a module. Only in `output_layers` calls of nested
    models count from 1."""

    def reference(tensor: TensorId) -> Dict[str, Any]:
        config = {"shape": list(shapes.get(tensor, ())), "dtype": "float32", "keras_history": list(tensor)}
        return {"class_name": "__keras_tensor__", "config": config}

    def node(call: LayerCall) -> Dict[str, Any]:
        args, kwargs = _constants([list(call.args), call.kwargs])
        return {"args": mapped(args, TensorId, reference), "kwargs": mapped(kwargs, TensorId, reference)}

    layers = []
    for layer in model.layers:
        if layer.model is not None and layer.wrapped is None:
            entry = _newer(layer.model, layer.name, {}, layer.trainable)
        elif layer.entry:
            entry = {**layer.entry, "config": {**layer.entry["config"], "name": layer.name}}
        else:
            module = "keras.layers" if layer.operator is None else OPERATORS + layer.operator.rpartition(".")[0]
            registered = None if layer.operator is None else layer.class_name
            entry = {"module": module, "class_name": layer.class_name, "registered_name": registered}
            entry["config"] = layer.config
        nodes = [node(call) for call in layer.calls if call.args]
        layers.append({**entry, "name": layer.name, "inbound_nodes": nodes})
    if model.sequential:
        config: Dict[str, Any] = {"name": name, "trainable": trainable, "layers": layers}
        return {"module": "keras", "class_name": "Sequential", "registered_name": None, "config": config}
    names = {"module": "keras.src.models.functional", "registered_name": "Functional"}
    return {**names, "class_name": "Functional", "config": _config(model, name, layers, _is_functional, trainable)}


def _constants(nested: Any) -> Any:
    """Arguments of a call, with what Python's own types do not say as Keras 3 writes it."""
    if isinstance(nested, np.ndarray):
        return {"class_name": "__numpy__", "config": {"value": nested.tolist(), "dtype": str(nested.dtype)}}
    if isinstance(nested, dict):
        inner = {key: _constants(value) for key, value in nested.items()}
        is_slice = inner.keys() == {"start", "stop", "step"}
        return {"class_name": "__slice__", "config": inner} if is_slice else inner
    if isinstance(nested, list):
        return [_constants(each) for each in nested]
    return ELLIPSIS if nested == "..." else nested


def _older(model: Model, name: str, shapes: Mapping[TensorId, tuple], trainable: bool = True) -> Dict[str, Any]:
    """Keras 2's configuration of a model. Calls of nested models count from 1."""
    models = {layer.name for layer in model.layers if _is_model(layer)}

    def reference(tensor: TensorId) -> List[Any]:
        return [tensor.layer, tensor.call + (tensor.layer in models), tensor.output]

    def node(layer: Layer, call: LayerCall) -> List[Any]:
        kwargs = mapped(mapped(call.kwargs, TensorId, reference), str, lambda x: ELLIPSIS if x == "..." else x)
        given = call.args[0]
        if isinstance(given, list):
            return [[*_reference(each, reference), kwargs] for each in given]
        single = [*_reference(given, reference), kwargs]
        return single if layer.operator is not None else [single]  # what a layer is called with is always a list

    layers = []
    for layer in model.layers:
        if layer.model is not None and layer.wrapped is None:
            entry = _older(layer.model, layer.name, {}, layer.trainable)
        elif layer.entry:
            entry = {**layer.entry, "config": {**layer.entry["config"], "name": layer.name}}
        else:
            config = dict(layer.config)
            if layer.class_name == "InputLayer" and "batch_shape" in config:
                config["batch_input_shape"] = config.pop("batch_shape")
            entry = {"class_name": layer.class_name, "config": config}
        nodes = [node(layer, call) for call in layer.calls if call.args]
        layers.append({**entry, "name": layer.name, "inbound_nodes": nodes})
    if model.sequential:
        return {"class_name": "Sequential", "config": {"name": name, "layers": layers}}
    return {"class_name": "Functional", "config": _config(model, name, layers, _is_model, trainable)}


def _reference(value: Any, reference: Callable[[TensorId], List[Any]]) -> List[Any]:
    """An argument of a call in Keras 2: a tensor or a constant."""
    return reference(value) if isinstance(value, TensorId) else ["_CONSTANT_VALUE", -1, value]


def _is_model(layer: Layer) -> bool:
    return layer.model is not None and layer.wrapped is None


def _is_functional(layer: Layer) -> bool:
    return _is_model(layer) and not layer.model.sequential  # type: ignore[union-attr]


def _config(
    model: Model, name: str, layers: List[Dict[str, Any]], counts_from_1: Callable[[Layer], bool], trainable: bool
) -> Dict[str, Any]:
    """A single input or output is no list of one, which Keras 3 would take it for."""
    later = {layer.name for layer in model.layers if counts_from_1(layer)}
    ends: Dict[str, Any] = {"input_layers": model.inputs}
    ends["output_layers"] = [x._replace(call=x.call + (x.layer in later)) for x in model.outputs]
    ends = {name: [*map(list, tensors)] if len(tensors) > 1 else [*tensors[0]] for name, tensors in ends.items()}
    return {"name": name, "trainable": trainable, "layers": layers, **ends}
