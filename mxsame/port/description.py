"""A Keras model as data: what every reader gives, and all that the network is built from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

from mxsame.validation import InvalidValue, check, received

WRAPPER = "TimeDistributed"
CELLS = {f"{kind}Cell": kind for kind in ("SimpleRNN", "LSTM", "GRU")}
# keys of a configuration that mean nothing for values, in every layer; a converter has others of its own
IGNORED = "name|trainable|seed|autocast|batch_input_shape|.*_(initializer|regularizer|constraint)"
# Keys that a converter reads, and that not every class or version of Keras writes, as one converter is for several of
# them: a class of the user's that is named as one of Keras's may lack these, and no other that its converter reads.
AT_TIMES = (
    "|alpha|attention_axes|backward_layer|causal|data_format|depth_multiplier|dilation_rate|groups|interpolation"
    "|negative_slope|output_shape|recurrent_activation|score_mode|time_major|use_bias|use_gate|value_dim"
    "|zero_output_for_mask"
)
# Keras's own classes, by what its files say
KERAS_NAMES = {"Custom>CustomScaleLayer": "CustomScaleLayer", "GroupedQueryAttention": "GroupQueryAttention"}


class TensorId(NamedTuple):
    """An output of a call of a layer."""

    layer: str
    call: int = 0
    output: int = 0


@dataclass
class LayerCall:
    """One use of a layer: its arguments, nested as Keras nests them, with a `TensorId` for each tensor."""

    args: tuple
    kwargs: Dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> List[TensorId]:
        """Returns all inputs, in Keras's order."""
        return leaves([*self.args, *self.kwargs.values()], TensorId)


class NotReplaceable(InvalidValue, shown=ValueError):
    """Why a layer is refused, if another block in its place would not help: its weights, or its type."""


class Config(Dict[str, Any]):
    """A configuration that remembers which of its keys were read."""

    def __init__(self, given: Dict[str, Any]):
        super().__init__(given)
        self.read: Set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def refuse_unread(self, ignored: str = "") -> None:
        """Refuse a key that was not read, unless it matches `ignored`, or is off."""
        for name, value in self.items():
            known = name in self.read or re.fullmatch(f"{IGNORED}|dtype|{ignored}", name)
            check(known or is_unset(value), f"{name} must not be given, or have its default", **{name: value})

    def refuse_missing(self) -> None:
        """Refuse a configuration without a key that was read, unless Keras itself may leave it out."""
        missing = sorted(name for name in self.read - self.keys() if not re.fullmatch(AT_TIMES, name))
        rule = "a class that is named as one of Keras's must have all keys of its configuration"
        check(not missing, f"{rule}; else give a function of (config) -> layers of Keras", missing=missing)

    def refuse_type(self, ignored: str = "") -> None:
        """Refuse a layer of another type than float32, unless `ignored` has its key: it is no other in float32."""
        dtype = type_name(super().get("dtype"))
        rule = "dtype must be float32 (keras.models.clone_model makes such a model)"
        if dtype not in (None, "float32") and not re.fullmatch(ignored, "dtype"):
            raise NotReplaceable(f"{rule}; {received(dtype=dtype)}")


def is_unset(value: Any) -> bool:
    """Returns whether an argument or a key that nothing reads means nothing by its value."""
    return value is None or value is False


class WeightSpec(NamedTuple):
    """A weight of a layer: its name in Keras, the parameter of a block that it becomes, if any, the option that leaves
    it out if it is False, the one that takes its place, whether it can be trained, the group of a `.keras` file below
    the layer's, which is the attribute of a live layer, a pattern of the end of its path in the older format, its name
    by default, and whether its axes are in MXNet's order already, as keras-mxnet stores them."""

    name: str
    parameter: str = ""
    option: str = ""
    unless: str = ""
    trained: bool = True
    group: str = ""
    path: str = ""
    native: bool = False

    def is_in(self, config: Dict[str, Any]) -> bool:
        """Returns whether a layer of this configuration has it."""
        return config.get(self.option, True) not in (False, None) and config.get(self.unless) is None


@dataclass
class Layer:
    """A layer, an operator node, or a nested model.

    `operator` is the name of the function of an operator node ("math.add" of TensorFlow, "Add" of Keras 3), else None.
    `weights` are in Keras's order, trainable ones first; each has a `shape` and becomes a NumPy array when it is read,
    and a `LoadedWeight` when it is in a parameter. `weight_specs` are those that the layer's class has in this
    configuration; None for a class that is not in the table. A TimeDistributed layer has the layer that it wraps as a
    model. `stored_as` is its class in the file, if the user has named another one, and `named` is whether that is by
    its name alone; `after` are more layers, which the user has put after it. `entry` is what the file has of it: its
    class, and its whole configuration; empty if the file has none that is right.
    """

    class_name: str
    name: str
    config: Dict[str, Any]
    calls: List[LayerCall] = field(default_factory=list)
    operator: Optional[str] = None
    model: Optional[Model] = None
    weights: List[Any] = field(default_factory=list)
    weight_specs: Optional[List[WeightSpec]] = None
    stored_as: str = ""
    named: bool = False
    after: Sequence[Layer] = ()
    entry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wrapped(self) -> Optional[Layer]:
        """The layer or model that a TimeDistributed layer calls for every step in time."""
        return self.model.layers[1] if self.class_name == WRAPPER and self.model is not None else None

    def takes(self, tensor: TensorId) -> bool:
        """Returns whether it is called with this tensor."""
        return any(tensor in call.tensors() for call in self.calls)

    @property
    def trainable(self) -> bool:
        return self.config.get("trainable", True) is not False

    def walk(self) -> Iterator[Layer]:
        """Returns the layer, or those of a nested model."""
        return iter([self]) if self.model is None else self.model.walk()


@dataclass
class Model:
    """Layers in Keras's order, which is the order of weights in files. `version` is Keras's: 2 or 3. `source` is the
    configuration that a whole model was read from; `native`: its weights are as keras-mxnet stores them. `keys` are
    those of a dict that it may be called with, in the order of its inputs: its own, or else names of input layers."""

    name: str
    layers: List[Layer]
    inputs: List[TensorId]
    outputs: List[TensorId]
    version: int = 2
    sequential: bool = False
    source: Optional[Dict[str, Any]] = None
    native: bool = False
    keys: Sequence[str] = ()

    def calls(self) -> int:
        """Returns how many times a layer is called, those of a nested model in each of its calls."""
        layers = [layer for layer in self.layers if layer.class_name != "InputLayer"]
        return sum(len(layer.calls) * (1 if layer.model is None else layer.model.calls()) for layer in layers)

    def entries(self, tensor: TensorId) -> Optional[int]:
        """Returns how many rows the smallest Embedding has that takes this tensor; None if none takes it."""
        tables = [each for each in self.walk() if each.class_name == "Embedding" and each.takes(tensor)]
        return min((each.config["input_dim"] for each in tables), default=None)

    def walk(self) -> Iterator[Layer]:
        """Yields every layer that is no model, those of nested models among them."""
        return (inner for layer in self.layers for inner in layer.walk())


def class_and_config(entry: Any) -> Tuple[str, Dict[str, Any]]:
    """Returns both of `{"class_name": .., "config": ..}`; a class that is not Keras's own is `package>name`, as `.h5`
    files write one that was registered; `.keras` files have its module next to it."""
    name = str(entry["class_name"])
    if "module" in entry or "registered_name" in entry:
        module, registered = str(entry.get("module") or "__main__"), str(entry.get("registered_name"))
        if ">" in registered:
            name = registered
        elif module.split(".")[0] not in ("keras", "tf_keras", "tensorflow"):
            name = f"{module}>{name}"
    name, config = KERAS_NAMES.get(name, name), entry["config"]
    return _of_cell(config) if name == "RNN" else (name, config)


def _of_cell(config: Dict[str, Any]) -> Tuple[str, Dict[str, Any]]:
    """Returns both of an `RNN`: the layer that is named after its cell."""
    name, of_cell = class_and_config(config["cell"])
    if name not in CELLS or type_name(of_cell.get("dtype")) != type_name(config.get("dtype")):
        return "RNN", config
    return CELLS[name], {**of_cell, **{key: value for key, value in config.items() if key != "cell"}}


def type_name(policy: Any) -> Any:
    """Returns that of the `dtype` of a configuration; of quantized weights the mode."""
    if not isinstance(policy, dict):
        return policy
    config = policy.get("config") or {}
    return config.get("name", config.get("mode", policy.get("class_name")))


def function_name(spec: Any) -> Optional[str]:
    """Returns the name of a configuration's function: one that is not Keras's own is `package>name`, a lambda
    "<lambda>"."""
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


def why_more_weights(layer: Layer) -> str:
    """Returns, for an error, the options of a layer that add weights which no converter reads."""
    values = {**layer.config, "dtype": type_name(layer.config.get("dtype"))}
    given = {
        name: values[name] for name in ("lora_rank", "renorm", "dtype") if values.get(name) not in (None, "float32")
    }
    merge = " (a .keras file has merged weights of LoRA)" if "lora_rank" in given else ""
    return f", with {', '.join(f'{name}={value!r}' for name, value in given.items())}{merge}" if given else ""


def snake_case(name: str) -> str:
    """Does what `keras.utils.naming.to_snake_case` does."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def counted(name: str, counts: Dict[str, int]) -> str:
    """Returns the name of the next group of this name: layer, layer_1, .."""
    counts[name] = counts.get(name, -1) + 1
    return f"{name}_{counts[name]}" if counts[name] else name


def listed(value: Any) -> list:
    """Returns several in a list or a tuple, or a single one, as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def leaves(nested: Any, kind: Union[type, Tuple[type, ...]]) -> list:
    """Returns the entries of this type, or of these, in nested lists and dicts, in the order in which Keras flattens
    them."""
    if isinstance(nested, kind):
        return [nested]
    if isinstance(nested, dict):
        nested = [nested[key] for key in sorted(nested)]
    return [leaf for entry in nested for leaf in leaves(entry, kind)] if isinstance(nested, list) else []


def mapped(nested: Any, kind: type, function: Callable) -> Any:
    """Returns nested lists and dicts with `function` of each entry of this type, in the order in which Keras flattens
    them."""
    if isinstance(nested, kind):
        return function(nested)
    if isinstance(nested, dict):
        return {key: mapped(nested[key], kind, function) for key in sorted(nested)}
    return [mapped(entry, kind, function) for entry in nested] if isinstance(nested, list) else nested
