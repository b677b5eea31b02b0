"""`read`: a `Model` from any source, whose weights are read when they are needed."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import warnings
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from mxsame import validation
from mxsame.keras_format import files, weights as weight_files
from mxsame.keras_format.config import model_of
from mxsame.keras_format.description import Layer, Model, WeightSpec, function_name
from mxsame.port import keras_mxnet
from mxsame.port.activations import known_function
from mxsame.port.converters import weight_specs_of

MAX_CALLS = 20_000  # layer calls, with those of nested models: a model that is called several times counts each time


def read(source: Any, weights: Any = None, prepare: Optional[Callable[[Model], Model]] = None) -> Model:
    """Returns the layers, calls and weights of a Keras model, as data.

    Arguments are those of :func:`mxsame.from_keras`; `prepare(model)` returns the model to be read, before any weights
    are.
    """
    is_live = hasattr(source, "to_json") and hasattr(source, "layers")
    validation.check_type(not isinstance(source, type), "source must be a model, not its class", source=source)
    if not is_live and not isinstance(source, (str, os.PathLike)):
        shown = "=None" if source is None else f" of type {type(source).__name__}"
        raise validation.InvalidType(f"source must be a path or a Keras model; received source{shown}")
    contents = files.open_source(_json_of(source) if is_live else source, "source")
    rule = "source must hold a model's configuration: give the JSON of model.to_json() as source, and this as weights"
    validation.check(contents.config is not None, f"{rule}; received {str(source)!r}, which holds weights only")
    model = replace(model_of(contents.config, _keras_version(contents)), source=contents.config)
    if is_live:
        configs = {x: _with_unique_function_names(x.config, live, model.version) for x, live in _pairs(model, source)}
        model = model.map_layers(lambda layer: replace(layer, config=configs.get(layer, layer.config)))
    calls = model.num_calls()
    validation.check(calls <= MAX_CALLS, f"layers must be called at most {MAX_CALLS} times in all", calls=calls)
    if prepare is not None:
        model = prepare(model)
    root = contents.weights
    if weights is not None:
        validation.check_type(isinstance(weights, (str, os.PathLike)), "weights must be a path", weights=weights)
        given = files.open_source(weights, "weights")
        _keras_version(given)  # refuses those of Keras 1, too
        root, rule = given.weights, "weights must be an HDF5 file or a .keras archive"
        validation.check(root is not None, f"{rule}; received {os.fspath(weights)!r}")
    group = None if root is None else weight_files.group_of(root)
    backend = contents.config.get("backend") if group is None else files.text(group, "backend")
    model = model.map_layers(lambda layer: replace(layer, weight_specs=weight_specs_of(layer)))
    if backend == "mxnet":
        model = keras_mxnet.with_weight_specs(model)
    if backend == "torch":
        _warn_about_average_pooling(model)
    arrays: Dict[Layer, List[Any]] = {}
    if group is not None:
        for layer, array in weight_files.datasets_of(model, group, by_order=weights is not None):
            arrays.setdefault(layer, []).append(array)
    elif is_live:
        arrays = {layer: _weights_of(live_layer, layer, model) for layer, live_layer in _pairs(model, source)}
    elif any(layer.weight_specs for layer in model.walk()):
        raise validation.InvalidValue("weights must be given: the source holds a configuration only")

    def with_weights(layer: Layer) -> Layer:
        own, specs = arrays.get(layer, ()), layer.weight_specs
        if specs is None and layer in model.layers:  # in a nested model, what is trained would come first
            specs = [WeightSpec(f"weight_{number}") for number in range(len(own))]
        return replace(layer, weights=own, weight_specs=specs)

    return model.map_layers(with_weights)


def _json_of(model: Any) -> str:
    try:
        return str(model.to_json())
    except (NotImplementedError, TypeError) as error:
        raise validation.InvalidValue(f"source must be a Sequential or functional model: {error}") from None


def _keras_version(contents: files.Contents) -> int:
    """Returns the version of Keras, 2 or 3."""
    version, config = contents.version, contents.config or {}
    if isinstance(version, str) and version.split(".")[0].isdigit():
        rule = "files must be saved by Keras 2 or newer; Keras 2.0 to 2.3 converts older ones, by "
        rule, major = f"{rule}keras.models.load_model(path).save(path)", int(version.split(".")[0])
        validation.check(major >= 2, rule, keras_version=version)
        return min(major, 3)
    return 3 if "registered_name" in config and "backend" not in config else 2


def _warn_about_average_pooling(model: Model) -> None:
    pools = [layer for layer in model.walk() if layer.class_name.startswith("AveragePooling")]
    names = [layer.name for layer in pools if layer.config.get("padding") == "same"]
    if names:
        rule = "the model was saved by Keras on PyTorch, which counts the padding in averages (keras-team/keras#23233)"
        given = f"these layers compute here what they compute on TensorFlow: {', '.join(names[:5])}"
        warnings.warn(f"{rule}; {given}", UserWarning, stacklevel=6)


def _pairs(model: Model, live: Any) -> Iterator[Tuple[Layer, Any]]:
    """Yields each layer that is not a model, with the live layer."""
    layers = {layer.name: layer for layer in live.layers}
    for layer in model.layers:
        live_layer = layers.get(layer.name)
        if live_layer is None:  # the input of a Sequential, and operators of Keras 3, which are not layers
            continue
        while layer.wrapped is not None:
            layer, live_layer = layer.wrapped, live_layer.layer
        if layer.model is not None:
            yield from _pairs(layer.model, live_layer)
        else:
            yield layer, live_layer


def _weights_of(live_layer: Any, layer: Layer, model: Model) -> List[Any]:
    """Returns the weights of a live layer, part by part if it has several: `layer.weights` has trainable ones first."""
    if getattr(live_layer, "lora_enabled", False):  # its kernel is the merged one
        return [getattr(live_layer, spec.name) for spec in layer.weight_specs or ()]
    if model.from_keras_mxnet:
        return live_layer.get_weights()
    groups = dict.fromkeys(spec.group for spec in layer.weight_specs or ())
    if len(groups) < 2:
        return list(live_layer.weights)
    parts = [list(functools.reduce(_attribute, group.split("/"), live_layer).weights) for group in groups if group]
    known = {id(weight) for part in parts for weight in part}
    return [*itertools.chain(*parts), *(weight for weight in live_layer.weights if id(weight) not in known)]


def _attribute(owner: Any, name: str) -> Any:
    """Returns an attribute of a live layer, which may be private, or an entry of a list by the name of its group."""
    if isinstance(owner, list):
        counts: Dict[str, int] = {}
        return {weight_files.group_name(type(each).__name__, counts): each for each in owner}[name]
    return getattr(owner, name) if hasattr(owner, name) else getattr(owner, f"_{name}")


def _with_unique_function_names(config: Dict[str, Any], live: Any, version: int) -> Dict[str, Any]:
    """Returns a configuration in which names of functions are unique: Keras writes functions of TensorFlow and of the
    user as its own if they have the same name."""
    changed = {}
    for name, value in config.items():
        if name in ("activation", "recurrent_activation"):
            function = getattr(live, name, None) or getattr(getattr(live, "cell", None), name, None)
            changed[name] = _unique_function_name(function, value, version)
        elif name in ("layer", "backward_layer", "cell") and isinstance(value, dict) and "config" in value:
            own = getattr(live, "forward_layer", None) if name == "layer" else None
            inner = _with_unique_function_names(value["config"], own or getattr(live, name, None), version)
            changed[name] = {**value, "config": inner}
        elif name == "cells" and len(value) == len(getattr(live, "cells", ())):
            pairs = zip(value, live.cells)
            configs = (_with_unique_function_names(each["config"], cell, version) for each, cell in pairs)
            changed[name] = [{**each, "config": inner} for each, inner in zip(value, configs)]
    return {**config, **changed}


def _unique_function_name(function: Any, serialized: Any, version: int) -> Any:
    """Returns the serialized name of a live function if it is Keras's own, or computes the same, else its name with its
    library or module."""
    module, name = str(getattr(function, "__module__", "")), getattr(function, "__name__", "<lambda>")
    is_function = callable(function) and not hasattr(function, "get_config") and isinstance(serialized, (str, dict))
    if not is_function or name == "<lambda>" or ">" in str(function_name(serialized)):
        return serialized
    library, is_known = module.partition(".")[0], known_function(serialized, version) is not None
    is_library = library in ("keras", "tf_keras", "tensorflow")
    if not is_library or getattr(sys.modules.get(module), name, None) is not function:
        return f"{module}>{name}" if is_known else serialized
    if version == 3 and ".activations" not in module and name in ("gelu", "hard_sigmoid"):
        is_known = ".ops." in module and name == "hard_sigmoid"  # others have other constants
        library = library if ".ops." in module or library == "tensorflow" else module
    if is_known:
        return serialized
    names = {"tensorflow": f"tf.{name}", "keras": f"keras.ops.{name}", "tf_keras": f"keras.ops.{name}"}
    return names.get(library, f"{module}>{name}")
