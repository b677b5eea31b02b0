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
from mxsame.port.description import Layer, Weight, leaves, mapped

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
ALWAYS = ("training", "name")  # arguments that every call may have; a Site has the first


@dataclass(frozen=True)
class Row:
    """How a layer or an operator is built: its function, the order of axes that it takes, and its weights, which may
    follow from the configuration."""

    build: Callable
    order: str = AS_IT_IS
    weights: Union[Sequence[Weight], Callable[[Dict[str, Any]], Sequence[Weight]]] = ()
    masks: str = STOPS

    def __call__(self, site: Site, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        if self.masks == TAKES and kwargs.get("mask") is not None:  # one for each input, or one for the first
            masks = iter(kwargs["mask"] if isinstance(kwargs["mask"], list) else [kwargs["mask"]])
            args = mapped(args, Value, lambda x: x._replace(mask=next(masks, x.mask)))
            kwargs = {**kwargs, "mask": None}
        given = list(self._bound(site, args, kwargs))
        values = leaves(given, Value)
        arranged = dict(zip(values, self._arranged(site, values)))
        inputs, named = mapped(given, Value, arranged.__getitem__)
        out = self.build(site, *inputs, **named)
        if self.masks == TAKES:
            return out
        mask = leaves(args, Value)[0].mask if self.masks == PASSES else None
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
        configuration."""
        signature = inspect.signature(self.build)
        parameters = dict(list(signature.parameters.items())[1:])
        kinds = [parameter.kind for parameter in parameters.values()]
        named: Dict[str, Any] = {}
        if site.layer.operator is None:  # a layer of several inputs is called with a list of them
            args = [value for entry in args for value in (entry if isinstance(entry, list) else [entry])]
        elif not site.layer.class_name.endswith("OpLambda"):
            kwargs = {**site.config, **kwargs}
        for name, value in kwargs.items():
            key = ALIASES[name] if name not in parameters and ALIASES.get(name) in parameters else name
            if value is None or name in ALWAYS:
                continue
            if key in parameters or inspect.Parameter.VAR_KEYWORD in kinds:
                named[key] = value
            elif value is not False:
                raise ValueError(f"argument {name} must not be given; {validation.received(**{name: value})}")
        free = [name for name, kind in zip(parameters, kinds) if name not in named and kind != kind.VAR_KEYWORD]
        free = [] if inspect.Parameter.VAR_POSITIONAL in kinds else free
        named.update((name, value) for name, value in zip(free, args) if value is not None)
        inputs = list(args[len(free) :])
        for name, value in list(signature.bind(site, *inputs, **named).arguments.items())[1:]:
            annotation = parameters[name].annotation
            if parameters[name].kind == inspect.Parameter.VAR_POSITIONAL:
                annotation, value = annotation.replace("Value", "List[Value]"), list(value)
            _check(name, annotation, value)
        return inputs, named


def in_place(site: Site, inner: Layer, x: Value) -> Any:
    """The output of another layer in place of this one."""
    inner.name, inner.calls = site.layer.name, site.layer.calls
    here = Site(site.builder, inner, site.path, site.call, site.model, site.training, site.once)
    return LAYERS[inner.class_name](here, [x], {})


def _check(name: str, annotation: str, value: Any) -> None:
    """Tensors where the function takes tensors, and nowhere else."""
    entries = value if isinstance(value, list) and annotation != "Value" else [value]
    if "Value" in annotation and (not entries or not all(isinstance(entry, Value) for entry in entries)):
        raise ValueError(f"{name} must be {'a tensor' if annotation == 'Value' else 'tensors'}; received {value!r:.99}")
    if "Value" not in annotation and annotation != "Operand" and leaves(value, Value):
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
            table[name] = Row(build, **declared)
        return build

    return register
