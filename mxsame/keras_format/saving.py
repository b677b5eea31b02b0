"""Writes a model and its arrays as a file, in either of Keras's two formats of whole models."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from typing import Any, Callable, Dict, List

import numpy as np

from mxsame.keras_format import files, weights
from mxsame.keras_format.description import Layer, LayerCall, Model, TensorId, map_leaves

VERSIONS = {".keras": "3.0.0", ".h5": "2.13.1"}  # the version of Keras that writes the format
ELLIPSIS = {"class_name": "__ellipsis__", "config": {}}
OPERATORS = "keras.src.ops."  # the modules of operators in Keras 3


def save(path: str, model: Model, arrays: Any) -> None:
    """Writes a model to an .h5 file, which tf.keras 2 and Keras 3 load, or to a .keras archive, which Keras 3 loads.
    `arrays(layer)` maps names of weights to arrays."""
    h5py = files.h5py_module()
    config = json.dumps(_configuration(model, model.name))
    if model.version == 2:
        with h5py.File(path, "w") as file:
            weights.write_entries(file.create_group("model_weights"), model, arrays)
            file.attrs["model_config"] = config
            file.attrs["backend"], file.attrs["keras_version"] = "tensorflow", VERSIONS[".h5"]
        return
    stored = io.BytesIO()
    with h5py.File(stored, "w") as file:
        weights.write_by_class(file, model, arrays)
    now = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": VERSIONS[".keras"], "date_saved": now}))
        archive.writestr("config.json", config)
        archive.writestr(files.WEIGHTS, stored.getvalue())


def _configuration(model: Model, name: str, trainable: bool = True) -> Dict[str, Any]:
    """Returns the configuration of a model in Keras 2 or 3. Calls of nested models count from 1: in Keras 2 everywhere;
    in Keras 3 in `output_layers`, except those of Sequential models."""
    is_h5 = model.version == 2
    nested = {layer.name: layer.model for layer in model.layers if layer.model is not None and layer.wrapped is None}
    later = {name for name, inner in nested.items() if is_h5 or not inner.sequential}

    def reference(tensor: TensorId) -> Any:
        if is_h5:
            return [tensor.layer, tensor.call + (tensor.layer in later), tensor.output]
        config = {"shape": [], "dtype": "float32", "keras_history": list(tensor)}  # Keras infers the shape
        return {"class_name": "__keras_tensor__", "config": config}

    def node(layer: Layer, call: LayerCall) -> Any:
        if not is_h5:
            args, kwargs = map_leaves(_constants([list(call.args), call.kwargs]), TensorId, reference)
            return {"args": args, "kwargs": kwargs}
        kwargs = map_leaves(map_leaves(call.kwargs, TensorId, reference), str, lambda x: ELLIPSIS if x == "..." else x)
        given = call.args[0]
        if layer.operator is not None and not isinstance(given, list):  # what a layer is called with is always a list
            return [*_argument(given, reference), kwargs]
        return [[*_argument(x, reference), kwargs] for x in (given if isinstance(given, list) else [given])]

    layers = []
    for layer in model.layers:
        if layer.name in nested:
            entry = _configuration(nested[layer.name], layer.name, layer.trainable)
        elif layer.entry:
            entry = {**layer.entry, "config": {**layer.entry["config"], "name": layer.name}}
        else:
            entry = _entry(layer, is_h5)
        nodes = [node(layer, call) for call in layer.calls if call.args]
        layers.append({**entry, "name": layer.name, "inbound_nodes": nodes})
    ends: Dict[str, Any] = {} if model.sequential else {"input_layers": model.inputs}
    if not model.sequential:
        ends["output_layers"] = [x._replace(call=x.call + (x.layer in later)) for x in model.outputs]
    # a single input or output is not written in a list: Keras 3 would return a list of one
    ends = {name: [*map(list, tensors)] if len(tensors) > 1 else [*tensors[0]] for name, tensors in ends.items()}
    class_name = "Sequential" if model.sequential else "Functional"
    flags = {} if is_h5 and model.sequential else {"trainable": trainable}
    config = {"name": name, **flags, "layers": layers, **ends}
    if is_h5:
        return {"class_name": class_name, "config": config}
    module = "keras" if model.sequential else "keras.src.models.functional"
    registered = None if model.sequential else class_name
    return {"module": module, "registered_name": registered, "class_name": class_name, "config": config}


def _entry(layer: Layer, is_h5: bool) -> Dict[str, Any]:
    """Returns the entry of a layer that was not read from a file."""
    config = dict(layer.config)
    if is_h5:
        if layer.class_name == "InputLayer" and "batch_shape" in config:
            config["batch_input_shape"] = config.pop("batch_shape")
        return {"class_name": layer.class_name, "config": config}
    module = "keras.layers" if layer.operator is None else OPERATORS + layer.operator.rpartition(".")[0]
    registered = None if layer.operator is None else layer.class_name
    return {"module": module, "class_name": layer.class_name, "registered_name": registered, "config": config}


def _constants(nested: Any) -> Any:
    """Returns the arguments of a call, with arrays, slices and ellipses as Keras 3 serializes them."""
    if isinstance(nested, np.ndarray):
        return {"class_name": "__numpy__", "config": {"value": nested.tolist(), "dtype": str(nested.dtype)}}
    if isinstance(nested, dict):
        inner = {key: _constants(value) for key, value in nested.items()}
        is_slice = inner.keys() == {"start", "stop", "step"}
        return {"class_name": "__slice__", "config": inner} if is_slice else inner
    if isinstance(nested, list):
        return [_constants(each) for each in nested]
    return ELLIPSIS if nested == "..." else nested


def _argument(value: Any, reference: Callable[[TensorId], List[Any]]) -> List[Any]:
    """Returns an argument of a call in Keras 2: a tensor or a constant."""
    return reference(value) if isinstance(value, TensorId) else ["_CONSTANT_VALUE", -1, value]
