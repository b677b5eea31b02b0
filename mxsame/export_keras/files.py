"""Keras's two formats of whole models, from a `mxsame.port.description.Model` and its arrays."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from typing import Any, Dict, List, Mapping

from mxsame.export_keras.draft import Made
from mxsame.port import files, weights
from mxsame.port.description import LayerCall, Model, Tensor, mapped

VERSIONS = {".keras": "3.0.0", ".h5": "2.13.1"}  # of Keras, whose format it is
OPERATORS = "keras.src.ops."  # the modules of operators in Keras 3


def save(path: str, made: Made) -> None:
    """Write a model, by its own configuration if it has one. An .h5 file is what tf.keras 2 and Keras 3 load, a .keras
    archive what Keras 3 does."""
    model = made.model
    h5py, is_older = files.h5py_module(), path.endswith(".h5")
    config = json.dumps(model.source or (_older(model) if is_older else _newer(model, made.tensors)))
    if is_older:
        with h5py.File(path, "w") as file:
            weights.write_entries(file.create_group("model_weights"), model, made.arrays)
            file.attrs["model_config"] = config
            file.attrs["backend"], file.attrs["keras_version"] = "tensorflow", VERSIONS[".h5"]
        return
    stored = io.BytesIO()
    with h5py.File(stored, "w") as file:
        weights.write_by_class(file, model, made.arrays)
    now = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": VERSIONS[".keras"], "date_saved": now}))
        archive.writestr("config.json", config)
        archive.writestr(files.WEIGHTS, stored.getvalue())


def _newer(model: Model, shapes: Mapping[Tensor, tuple]) -> Dict[str, Any]:
    """Keras 3's configuration, in which every object has a module."""

    def reference(tensor: Tensor) -> Dict[str, Any]:
        config = {"shape": list(shapes[tensor]), "dtype": "float32", "keras_history": list(tensor)}
        return {"class_name": "__keras_tensor__", "config": config}

    def node(call: LayerCall) -> Dict[str, Any]:
        return {"args": mapped(list(call.args), Tensor, reference), "kwargs": mapped(call.kwargs, Tensor, reference)}

    layers = []
    for layer in model.layers:
        module = "keras.layers" if layer.operator is None else OPERATORS + layer.operator.rpartition(".")[0]
        entry = {"module": module, "class_name": layer.class_name, "config": layer.config, "name": layer.name}
        own = {"registered_name": None if layer.operator is None else layer.class_name}
        layers.append({**entry, **own, "inbound_nodes": [node(call) for call in layer.calls if call.args]})
    names = {"module": "keras.src.models.functional", "registered_name": "Functional"}
    return {**names, "class_name": "Functional", "config": _config(model, layers)}


def _older(model: Model) -> Dict[str, Any]:
    """Keras 2's configuration."""

    def node(call: LayerCall) -> List[Any]:
        return [[*tensor, call.kwargs if number == 0 else {}] for number, tensor in enumerate(call.tensors())]

    layers = []
    for layer in model.layers:
        config = dict(layer.config)
        if layer.class_name == "InputLayer":
            config["batch_input_shape"] = config.pop("batch_shape")
        entry = {"class_name": layer.class_name, "config": config, "name": layer.name}
        layers.append({**entry, "inbound_nodes": [node(call) for call in layer.calls if call.args]})
    return {"class_name": "Functional", "config": _config(model, layers)}


def _config(model: Model, layers: List[Dict[str, Any]]) -> Dict[str, Any]:
    """A single input or output is no list of one, which Keras 3 would take it for."""
    ends: Dict[str, Any] = {"input_layers": model.inputs, "output_layers": model.outputs}
    ends = {name: [*map(list, tensors)] if len(tensors) > 1 else [*tensors[0]] for name, tensors in ends.items()}
    return {"name": model.name, "trainable": True, "layers": layers, **ends}
