"""The rows of the importer: for each layer of Keras, and each operator between layers, the function that builds it.

A row's function takes the `Site` of the call, and then what the call may be given, by Keras's names: parameters that
are annotated as `Value` are tensors, `Operand` is a tensor or a constant, all others are constants. The row declares
the order of axes that its tensors come in, and the layer's weights. Any other argument of a call is refused by name.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

from mxsame import validation
from mxsame.port.builder import Site, Value
from mxsame.port.description import Layer, Weight

# orders of axes, and zeros that the data may still need around it
AS_IT_IS, UNPADDED, FIRST, KERAS, ALIKE, SETTLED = "as it is", "unpadded", "first", "keras", "alike", "settled"

# what a layer does with a mask: its output has none, that of the first input, or what the row gives it
STOPS, PASSES, TAKES = "stops", "passes", "takes"

ALIASES = {  # TensorFlow's names of arguments and those of Keras's layers -> those of `keras.ops`
    **dict.fromkeys(("input", "inputs", "features", "logits", "value", "t", "input_tensor", "images", "tensor"), "x"),
    **dict.fromkeys(("a", "x1", "variable", "query"), "x"),
    **dict.fromkeys(("b", "x2"), "y"),
    "values": "xs",
    "keep_dims": "keepdims",
    "squeeze_dims": "axis",
    "slice_spec": "key",
    "shape": "newshape",
    "perm": "axes",
    "pattern": "axes",
    "paddings": "pad_width",
    "clip_value_min": "x_min",
    "clip_value_max": "x_max",
    "min_value": "x_min",
    "max_value": "x_max",
    "multiples": "repeats",
    "method": "interpolation",
    "equation": "subscripts",
    "ksize": "pool_size",
}
ALWAYS = ("training", "name")  # arguments that every call may have; a Site knows the first


@dataclass(frozen=True)
class Row:
    """How a layer or an operator is built: its function, the order of axes that it takes, and its weights, which may
    follow from the configuration."""

    build: Callable
    order: str = AS_IT_IS
    weights: Union[Tuple[Weight, ...], Callable[[Dict[str, Any]], Sequence[Weight]]] = ()
    masks: str = STOPS

    def __call__(self, site: Site, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        if self.masks == TAKES and kwargs.get("mask") is not None:
            args, kwargs = _with_masks(list(args), kwargs["mask"]), {**kwargs, "mask": None}
        inputs, named = self._bound(site, args, kwargs)
        given = [*inputs, *named.values()]
        found = iter(self._arranged(site, [value for entry in given for value in values_in(entry)]))
        inputs = [_replaced(entry, found) for entry in inputs]
        out = self.build(site, *inputs, **{name: _replaced(entry, found) for name, entry in named.items()})
        if self.masks == TAKES:
            return out
        mask = values_in(list(args))[0].mask if self.masks == PASSES else None
        if isinstance(out, list):
            return [each._replace(mask=mask) for each in out]
        return out._replace(mask=mask) if isinstance(out, Value) else out  # lengths of a shape

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
        configuration."""
        parameters = dict(list(inspect.signature(self.build).parameters.items())[1:])
        kinds = {parameter.kind: name for name, parameter in parameters.items()}
        several, any_name = kinds.get(inspect.Parameter.VAR_POSITIONAL), inspect.Parameter.VAR_KEYWORD in kinds
        named: Dict[str, Any] = {}
        if site.layer.operator is None:  # a layer of several inputs is called with a list of them
            args = [value for entry in args for value in (entry if isinstance(entry, list) else [entry])]
        for name, value in {**site.operator_config, **kwargs}.items():
            key = ALIASES[name] if name not in parameters and ALIASES.get(name) in parameters else name
            if value is None or name in ALWAYS:
                continue
            if key not in parameters and not any_name and value is not False:
                raise ValueError(f"argument {name} must not be given; {validation.received(**{name: value})}")
            if key in parameters or any_name:
                named[key] = value
        if several is not None:
            _check("inputs", parameters[several].annotation.replace("Value", "List[Value]"), list(args))
            return list(args), named
        free = [
            name
            for name, parameter in parameters.items()
            if name not in named and parameter.kind != parameter.VAR_KEYWORD
        ]
        if len(args) > len(free):
            raise ValueError(f"arguments must be {', '.join(parameters)} at most; received {len(args) + len(named)}")
        named.update((name, value) for name, value in zip(free, args) if value is not None)
        for name, parameter in parameters.items():
            if name in named:
                _check(name, parameter.annotation, named[name])
            elif parameter.default is parameter.empty and parameter.kind != parameter.VAR_KEYWORD:
                raise ValueError(f"argument {name} must be given")
        return [], named


def _check(name: str, annotation: str, value: Any) -> None:
    """Tensors where the function takes tensors, and nowhere else."""
    entries = value if isinstance(value, list) and annotation != "Value" else [value]
    if "Value" in annotation and (not entries or not all(isinstance(entry, Value) for entry in entries)):
        raise ValueError(f"{name} must be {'a tensor' if annotation == 'Value' else 'tensors'}; received {value!r:.99}")
    if "Value" not in annotation and annotation != "Operand" and values_in(value):
        raise ValueError(f"{name} must be a constant; received a tensor")


def values_in(entry: Any) -> List[Value]:
    """The tensors in an argument."""
    if isinstance(entry, Value):
        return [entry]
    if isinstance(entry, dict):
        entry = list(entry.values())
    return [value for part in entry for value in values_in(part)] if isinstance(entry, list) else []


def _with_masks(args: List[Any], mask: Any) -> List[Any]:
    """The inputs of a call with the masks that it is given: one for each, or one for the first."""
    masks = iter(mask if isinstance(mask, list) else [mask])
    return _replaced(args, iter([value._replace(mask=next(masks, value.mask)) for value in values_in(args)]))


def _replaced(entry: Any, values: Any) -> Any:
    """The argument with the next of these tensors in the place of each of its own."""
    if isinstance(entry, Value):
        return next(values)
    if isinstance(entry, dict):
        return {key: _replaced(part, values) for key, part in entry.items()}
    return [_replaced(part, values) for part in entry] if isinstance(entry, list) else entry


LAYERS: Dict[str, Row] = {}
OPERATORS: Dict[str, Row] = {}


Weights = Union[Sequence[Weight], Callable[[Dict[str, Any]], Sequence[Weight]]]


def layer(*names: str, order: str = AS_IT_IS, weights: Weights = (), masks: str = STOPS) -> Callable:
    """Registers a function for layers of these classes."""
    return _register(LAYERS, names, order, weights, masks)


def operator(*names: str, order: str = AS_IT_IS) -> Callable:
    """Registers a function for operators of these names, which are those of `keras.ops`."""
    return _register(OPERATORS, names, order, (), STOPS)


def _register(table: Dict[str, Row], names: Sequence[str], order: str, weights: Weights, masks: str) -> Callable:
    def register(build: Callable) -> Callable:
        for name in names:
            if name in table:
                raise ValueError(f"{name} must have one row")
            table[name] = Row(build, order, weights if callable(weights) else tuple(weights), masks)
        return build

    return register
