"""The rows of the importer: for each layer of Keras, and each operator between layers, the function that builds it.

A row's function takes the `Site` of the call, and then what the call may be given, by Keras's names: parameters that
are annotated as `Value` are tensors, `Operand` is a tensor or a constant, all others are constants. The row declares
the order of axes that its tensors come in, and the layer's weights. Any other argument of a call is refused by name.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union, get_type_hints

from mxsame import validation
from mxsame.port import types
from mxsame.port.builder import Operand, Site, Value, masked
from mxsame.port.description import Config, Layer, Weight, leaves, mapped

# orders of axes, and zeros that the data may still need around it
AS_IT_IS, UNPADDED, FIRST, KERAS, ALIKE, SETTLED = "as it is", "unpadded", "first", "keras", "alike", "settled"

# what a layer does with a mask: its output has none, that of the first input, or what the row gives it
STOPS, PASSES, PASSES_IN_KERAS_3, TAKES = "stops", "passes", "passes in Keras 3", "takes"

ANYWHERE = ("training", "name")  # arguments that every call may have; a Site has the first
FIRST_ARGUMENTS = ("inputs", "sequences", "data")  # names of the first one of Keras's layers

# what a parameter of a row's function takes
TENSOR, TENSORS, OPERAND, CONSTANT = "a tensor", "tensors", "a tensor or a constant", "a constant"
TAKEN = {Value: TENSOR, Optional[Value]: TENSOR, List[Value]: TENSORS, Optional[List[Value]]: TENSORS, Operand: OPERAND}


def _parameters(build: Callable) -> Dict[str, Tuple[Any, str]]:
    """Those of a row's function after the site, and what each takes."""
    hints = get_type_hints(getattr(build, "func", build))
    parameters = list(inspect.signature(build).parameters.items())[1:]
    return {name: (each, TAKEN.get(hints.get(name), CONSTANT)) for name, each in parameters}


@dataclass(frozen=True)
class Row:
    """How a layer or an operator is built: its function, the order of axes that it takes, its weights, which may
    follow from the configuration, the other names that its parameters have in TensorFlow, and a pattern of the keys of
    the configuration that mean nothing here."""

    build: Callable
    order: str = AS_IT_IS
    weights: Union[Sequence[Weight], Callable[[Dict[str, Any]], Sequence[Weight]]] = ()
    masks: str = STOPS
    names: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[int, Any] = field(default_factory=lambda: dict.fromkeys(types.CAST_IN, types.OWN))
    unread: str = ""
    parameters: Dict[str, Tuple[Any, str]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", _parameters(self.build))

    def __call__(self, site: Site, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        args = [*args, *(kwargs[name] for name in FIRST_ARGUMENTS if name in kwargs)]
        kwargs = {name: value for name, value in kwargs.items() if name not in FIRST_ARGUMENTS}
        if self.masks == TAKES and kwargs.get("mask") is not None:
            args, kwargs = masked(args, kwargs["mask"]), {**kwargs, "mask": None}
        given = list(self._bound(site, args, kwargs))
        values = leaves(given, Value)
        cast, dtype = types.typed(site, self.types[site.version], values)
        arranged = dict(zip(values, self._arranged(site, cast)))
        inputs, named = mapped(given, Value, arranged.__getitem__)
        out = self.build(site, *inputs, **named)
        out = out if dtype is None else mapped(out, Value, lambda each: each._replace(dtype=dtype))
        if self is LAYERS.get(site.layer.class_name) and site.layer.operator is None:
            for weight in self.weights(site.config) if callable(self.weights) else self.weights:
                weight.is_in(site.config)
            check_all_read(site.config, self.unread)
        if self.masks == TAKES:
            return out
        passes = self.masks == PASSES or (self.masks == PASSES_IN_KERAS_3 and site.version == 3)
        mask = leaves(args, Value)[0].mask if passes else None
        return mapped(out, Value, lambda each: each._replace(mask=mask))  # lengths of a shape have none

    def weights_of(self, layer: Layer) -> List[Weight]:
        """Those that the layer has in this configuration. keras-mxnet stores all of a batch norm's."""
        if callable(self.weights):
            return list(self.weights(layer.config))
        if layer.native and layer.class_name == "BatchNormalization":
            return [each if each.name == "gamma" else each._replace(trained=each.trained and each.is_in(layer.config))
                    for each in self.weights]  # fmt: skip
        return [each for each in self.weights if each.is_in(layer.config)]

    def _arranged(self, site: Site, values: List[Value]) -> List[Value]:
        if self.order == UNPADDED:
            return values
        if self.order == ALIKE:
            return site.alike(values)
        arrange = {AS_IT_IS: site.builder.padded, FIRST: site.first, KERAS: site.keras, SETTLED: site.settled}
        return [arrange[self.order](value) for value in values]

    def _bound(self, site: Site, args: Sequence[Any], kwargs: Dict[str, Any]) -> Tuple[list, Dict[str, Any]]:
        """The arguments of a call by the parameters of the function. Operators of Keras 3 keep some in their
        configuration. What is not given has its default; None is a value."""
        kinds = {name: parameter.kind for name, (parameter, _) in self.parameters.items()}
        more = [name for name, kind in kinds.items() if kind == inspect.Parameter.VAR_KEYWORD]
        many = [name for name, kind in kinds.items() if kind == inspect.Parameter.VAR_POSITIONAL]
        if site.layer.operator is None:  # a layer of several inputs is called with a list of them
            args = [value for entry in args for value in (entry if isinstance(entry, list) else [entry])]
        elif not site.layer.class_name.endswith("OpLambda"):
            kwargs = {**site.config, **kwargs}
        named: Dict[str, Any] = {}
        for name, value in kwargs.items():
            key = self.names.get(name, name)
            if (key in kinds and key not in many) or (more and name not in ANYWHERE):
                named[key] = value
            elif name not in ANYWHERE and value is not None and value is not False:
                raise ValueError(f"argument {name} must not be given; {validation.received(**{name: value})}")
        free = [] if many else [name for name in kinds if name not in named and name not in more]
        named.update(zip(free, args))
        inputs = list(args[len(free) :])
        for name, value in list(inspect.signature(self.build).bind(site, *inputs, **named).arguments.items())[1:]:
            _check(name, *self.parameters[name], value)
        return inputs, named


# Keys that mean nothing for values, in every layer. Nor do None, and False, which is off; a row has others of its own.
MEANINGLESS = "name|trainable|seed|autocast|batch_input_shape|.*_(initializer|regularizer|constraint)"


def check_all_read(config: Config, unread: str) -> None:
    """Refuse a configuration with a key that was not read, unless it matches `unread`."""
    for name, value in config.items():
        known = name in config.read or re.fullmatch(f"{MEANINGLESS}|{unread}", name)
        policy = value.get("config", {}).get("name") if name == "dtype" and isinstance(value, dict) else value
        if not known and value is not None and value is not False and (name, policy) != ("dtype", "float32"):
            raise ValueError(f"{name} must not be given, or have its default; {validation.received(**{name: value})}")


def in_place(site: Site, inner: Layer, x: Value) -> Any:
    """The output of another layer in place of this one."""
    inner.name, inner.calls = site.layer.name, site.layer.calls
    here = Site(site.builder, inner, site.path, site.call, site.model, site.training, site.once)
    return LAYERS[inner.class_name](here, [x], {})


def _check(name: str, parameter: Any, takes: str, value: Any) -> None:
    """Tensors where the function takes tensors, and nowhere else; None where it is the default."""
    if value is None and parameter.default is not None:
        raise ValueError(f"{name} must be {takes}; received None")
    if takes in (TENSOR, TENSORS) and value is not None:
        several = parameter.kind == parameter.VAR_POSITIONAL or (takes == TENSORS and isinstance(value, list))
        entries = list(value) if several else [value]
        if not entries or not all(isinstance(entry, Value) for entry in entries):
            raise ValueError(f"{name} must be {takes}; received {value!r:.99}")
    elif takes == CONSTANT and leaves(value, Value):
        raise ValueError(f"{name} must be a constant; received a tensor")


LAYERS: Dict[str, Row] = {}
OPERATORS: Dict[str, Row] = {}


def layer(*names: str, **declared: Any) -> Callable:
    """Registers a function for layers of these classes; `declared` are fields of the row."""
    return _register(LAYERS, names, declared)


def operator(*names: str, **declared: Any) -> Callable:
    """The same for operators of these names, which are those of `keras.ops`."""
    return _register(OPERATORS, names, declared)


def _register(table: Dict[str, Row], names: Sequence[str], declared: Dict[str, Any]) -> Callable:
    def register(build: Callable) -> Callable:
        for name in names:
            if name in table:
                raise ValueError(f"{name} must have one row")
            table[name] = Row(build, types=types.rules_of(name), **declared)
        return build

    return register
