"""A Keras model as data: what the readers return, and what the network is built from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from mxsame.validation import InvalidValue, RecordingDict, check, received

WRAPPER = "TimeDistributed"
CELLS = {f"{kind}Cell": kind for kind in ("SimpleRNN", "LSTM", "GRU")}
# regex of configuration keys that change no values in any layer; a converter adds its own by `ignored`
IGNORED = "name|trainable|seed|autocast|batch_input_shape|.*_(initializer|regularizer|constraint)"
# Keys that converters read, but that some classes and versions of Keras do not write. If the user replaces a class by
# the name of one of Keras's layers, its configuration may lack these keys only.
OPTIONAL_KEYS = frozenset((
    "", "alpha", "attention_axes", "backward_layer", "causal", "data_format", "depth_multiplier", "dilation_rate",
    "groups", "interpolation", "negative_slope", "output_shape", "recurrent_activation", "score_mode", "time_major",
    "use_bias", "use_gate", "value_dim", "zero_output_for_mask",
))  # fmt: skip
# names in files -> names of Keras's classes
CLASS_NAMES = {"Custom>CustomScaleLayer": "CustomScaleLayer", "GroupedQueryAttention": "GroupQueryAttention"}


class TensorId(NamedTuple):
    """An output of a layer's call, like `keras_history` in files."""

    layer: str
    call: int = 0
    output: int = 0


@dataclass(frozen=True)
class LayerCall:
    """The arguments of a call, nested as in Keras, with a `TensorId` for each tensor."""

    args: tuple
    kwargs: Dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> List[TensorId]:
        """Returns all inputs, in Keras's order."""
        return leaves([*self.args, *self.kwargs.values()], TensorId)

    def map_tensors(self, function: Callable[[TensorId], Any]) -> LayerCall:
        """Returns the call with `function` applied to each tensor."""
        args, kwargs = map_leaves([list(self.args), self.kwargs], TensorId, function)
        return LayerCall(tuple(args), kwargs)


class NotReplaceable(InvalidValue, shown=ValueError):
    """Raised for a layer that cannot be replaced by a block, because of its weights or its dtype."""


class Config(RecordingDict):
    """A configuration that records which of its keys are read."""

    def refuse_unread(self, ignored: str = "") -> None:
        """Raises a `ValueError` for a key that is set, was not read, and does not match `ignored`."""
        for name, value in self.items():
            known = name in self.read or re.fullmatch(f"{IGNORED}|dtype|{ignored}", name)
            check(known or is_unset(value), f"{name} must not be given, or be None or False", **{name: value})

    def refuse_missing(self) -> None:
        """Raises a `ValueError` for keys that were read but are missing, unless Keras may leave them out."""
        missing = sorted(self.read - self.keys() - OPTIONAL_KEYS)
        rule = "a class that custom replaces by a Keras layer's name must have all keys of that layer's configuration"
        check(not missing, f"{rule}; otherwise pass a function of (config) -> Keras layers", missing=missing)

    def refuse_dtype(self, ignored: str = "") -> None:
        """Raises `NotReplaceable` for a dtype other than float32, unless `ignored` matches "dtype"."""
        dtype = dtype_name(super().get("dtype"))
        rule = "dtype must be float32 (keras.models.clone_model makes such a model, with a clone_function that sets it)"
        if dtype not in (None, "float32") and not re.fullmatch(ignored, "dtype"):
            raise NotReplaceable(f"{rule}; {received(dtype=dtype)}")


def is_unset(value: Any) -> bool:
    """Returns whether an option is unset: None or False."""
    return value is None or value is False


class WeightSpec(NamedTuple):
    """A weight of a layer."""

    name: str  # Keras's
    parameter: str = ""  # name in the block, or "child.parameter"; "" if the block does not have it
    option: str = ""  # key of the configuration: the layer has the weight unless this is False or None
    unless: str = ""  # key of the configuration: the layer has the weight if this is None
    trainable: bool = True
    group: str = ""  # subgroup of the layer's group in a `.keras` file: the name of an attribute of the layer
    path: str = ""  # regex for the end of its path in the older format; by default the name
    from_keras_mxnet: bool = False  # stored in MXNet's order of axes, by keras-mxnet

    def is_present(self, config: Dict[str, Any]) -> bool:
        """Returns whether a layer with this configuration has the weight."""
        return config.get(self.option, True) not in (False, None) and config.get(self.unless) is None


KERNEL, BIAS = WeightSpec("kernel", "weight"), WeightSpec("bias", "bias", "use_bias")


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer, an operator node, or a nested model."""

    class_name: str
    name: str
    config: Dict[str, Any]
    calls: Sequence[LayerCall] = ()
    operator: Optional[str] = None  # function of an operator node: TensorFlow's "math.add", or "Add" of Keras 3
    model: Optional[Model] = None  # the nested model; for TimeDistributed, the wrapped layer as a model
    weights: Sequence[Any] = ()  # in Keras's order, trainable first: datasets, or those of a network in its parameters
    weight_specs: Optional[Sequence[WeightSpec]] = None  # by class and configuration; None for an unknown class
    stored_as: str = ""  # the class in the file, if the user has named another one
    replaced_by_name: bool = False  # custom gives the name of a class, and no configuration
    after: Sequence[Layer] = ()  # layers that the user has put after it
    entry: Mapping[str, Any] = field(default_factory=dict)  # as in the file; {} if that no longer holds

    @property
    def wrapped(self) -> Optional[Layer]:
        """The layer or model that a TimeDistributed layer calls for each step."""
        return self.model.layers[1] if self.class_name == WRAPPER and self.model is not None else None

    @property
    def trainable(self) -> bool:
        return self.config.get("trainable", True) is not False

    def walk(self) -> Iterator[Layer]:
        """Returns an iterator of the layer itself, or of the layers of a nested model."""
        return iter([self]) if self.model is None else self.model.walk()

    def map_layers(self, function: Callable[[Layer], Layer]) -> Layer:
        """Returns the layer with `function` applied to each layer that `walk` returns."""
        return function(self) if self.model is None else replace(self, model=self.model.map_layers(function))


@dataclass(frozen=True, eq=False)
class Model:
    """A Sequential or functional model."""

    name: str
    layers: Sequence[Layer]  # in Keras's order, which is that of weights in files
    inputs: Sequence[TensorId]
    outputs: Sequence[TensorId]
    version: int = 2  # the version of Keras: 2 or 3
    sequential: bool = False
    source: Optional[Dict[str, Any]] = None  # configuration that the model was read from, unless only a part was
    from_keras_mxnet: bool = False  # weights are stored by keras-mxnet
    keys: Sequence[str] = ()  # keys of its dict of inputs, in order: the model's own, or the names of the input layers

    def num_calls(self) -> int:
        """Returns the number of layer calls; each call of a nested model counts its layers."""
        layers = [layer for layer in self.layers if layer.class_name != "InputLayer"]
        return sum(len(layer.calls) * (1 if layer.model is None else layer.model.num_calls()) for layer in layers)

    def walk(self) -> Iterator[Layer]:
        """Returns an iterator of all layers, with the layers of nested models in their place."""
        return (inner for layer in self.layers for inner in layer.walk())

    def map_layers(self, function: Callable[[Layer], Layer]) -> Model:
        """Returns the model with `function` applied to each layer that `walk` returns."""
        return replace(self, layers=[layer.map_layers(function) for layer in self.layers])


def class_and_config(entry: Any) -> Tuple[str, Dict[str, Any]]:
    """Returns the class and configuration of a serialized object. A class that is not Keras's own is `package>name`, as
    `.h5` files have registered classes; `.keras` files have the module in another entry."""
    name = str(entry["class_name"])
    if "module" in entry or "registered_name" in entry:
        module, registered = str(entry.get("module") or "__main__"), str(entry.get("registered_name"))
        if ">" in registered:
            name = registered
        elif module.split(".")[0] not in ("keras", "tf_keras", "tensorflow"):
            name = f"{module}>{name}"
    name, config = CLASS_NAMES.get(name, name), entry["config"]
    return _unwrapped_rnn(config) if name == "RNN" else (name, config)


def _unwrapped_rnn(config: Dict[str, Any]) -> Tuple[str, Dict[str, Any]]:
    """Returns the class and configuration of an `RNN`: LSTM for an LSTMCell, and so on for Keras's other cells."""
    name, of_cell = class_and_config(config["cell"])
    if name not in CELLS or dtype_name(of_cell.get("dtype")) != dtype_name(config.get("dtype")):
        return "RNN", config
    return CELLS[name], {**of_cell, **{key: value for key, value in config.items() if key != "cell"}}


def dtype_name(policy: Any) -> Any:
    """Returns the name of a dtype policy, or the mode of a quantized one."""
    if not isinstance(policy, dict):
        return policy
    config = policy.get("config") or {}
    return config.get("name", config.get("mode", policy.get("class_name")))


def function_name(spec: Any) -> Optional[str]:
    """Returns the name of a serialized function: `package>name` if it is not Keras's own, "<lambda>" for a lambda."""
    if spec is None or isinstance(spec, str):
        return spec
    if isinstance(spec, dict):
        registered, class_name = str(spec.get("registered_name")), spec.get("class_name")
        name = registered if ">" in registered else spec.get("config") if class_name == "function" else class_name
        if "value" in spec or class_name == "__lambda__":  # Python's code, which is not run
            return "<lambda>"
        if isinstance(name, str):
            return name
    raise InvalidValue(f"activation must be a name; {received(activation=spec)}")


def why_extra_weights(layer: Layer) -> str:
    """Returns, for an error, the options that give a layer weights which converters do not read."""
    values = {**layer.config, "dtype": dtype_name(layer.config.get("dtype"))}
    names = [name for name in ("lora_rank", "renorm", "dtype") if values.get(name) not in (None, "float32")]
    merge = " (a .keras file stores LoRA weights merged)" if "lora_rank" in names else ""
    return f", with {', '.join(f'{name}={values[name]!r}' for name in names)}{merge}" if names else ""


def snake_case(name: str) -> str:
    """Returns a name as `keras.utils.naming.to_snake_case` does."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def as_list(value: Any) -> list:
    """Returns a list or tuple as a list, and another value as its only entry."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def leaves(nested: Any, kind: Union[type, Tuple[type, ...]]) -> list:
    """Returns the entries of a type, or of several, in nested lists and dicts, in the order of `keras.tree.flatten`."""
    if isinstance(nested, kind):
        return [nested]
    if isinstance(nested, dict):
        nested = [nested[key] for key in sorted(nested)]
    return [leaf for entry in nested for leaf in leaves(entry, kind)] if isinstance(nested, list) else []


def map_leaves(nested: Any, kind: type, function: Callable) -> Any:
    """Returns nested lists and dicts with `function` applied to each entry of a type, in the order of
    `keras.tree.flatten`."""
    if isinstance(nested, kind):
        return function(nested)
    if isinstance(nested, dict):
        return {key: map_leaves(nested[key], kind, function) for key in sorted(nested)}
    return [map_leaves(entry, kind, function) for entry in nested] if isinstance(nested, list) else nested
