"""The registry of converters: one for each Keras layer class and each operator.

A converter takes the `CallContext` and the arguments of the call, under Keras's names. Annotations declare
their kinds (see `KINDS`); anything else is a constant. Keywords of `@layer` and `@operator` declare
the axis order, dtypes, masks and weights. Any other argument of a call is refused, and so is any key of
a configuration that the converter does not read.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union, get_type_hints

import numpy as np

from mxsame import validation
from mxsame.keras_format.description import (
    Layer,
    LayerCall,
    WeightSpec,
    class_and_config,
    is_unset,
    leaves,
    map_leaves,
    snake_case,
)
from mxsame.keras_format.dtypes import FLOAT32, FLOATS, SETS_DTYPE, DtypeRule, check_dtype, result_type
from mxsame.port.call_context import CallContext
from mxsame.port.tensors import Operand, Tensor, refuse_lengths, with_mask
from mxsame.validation import InvalidValue, check

# `order` of a converter: the method that brings each of its tensors into the axis order that it needs
ANY_ORDER, CHANNELS_FIRST, KERAS_ORDER = CallContext.padded, CallContext.to_channels_first, CallContext.to_keras_order
ORDER_OF_FIRST_CALL = CallContext.to_order_of_first_call
SAME_ORDER = CallContext.to_one_order  # called with all tensors at once
PADS_PENDING = None  # the tensors are passed unchanged, with `pads` that are not applied yet


class MaskRule(Enum):
    """`masks` of a converter: the versions of Keras in which its output has the mask of the first input."""

    DROPS = ()
    PASSES = (2, 3)
    PASSES_IN_KERAS_2 = (2,)
    PASSES_IN_KERAS_3 = (3,)
    HANDLES = None  # the converter sets the mask


DROPS_MASK, PASSES_MASK, HANDLES_MASK = MaskRule.DROPS, MaskRule.PASSES, MaskRule.HANDLES
PASSES_MASK_IN_KERAS = {2: MaskRule.PASSES_IN_KERAS_2, 3: MaskRule.PASSES_IN_KERAS_3}

COMMON_ARGUMENTS = ("training", "name")  # accepted by every call; `training` is passed on in the CallContext
FIRST_ARGUMENTS = ("inputs", "sequences", "data")  # Keras's names of a layer's first argument


class Kind(Enum):
    """What a parameter accepts, in the words of messages."""

    TENSOR = "a tensor"
    TENSORS = "tensors"
    OPERAND = "a tensor or a constant"
    CONSTANT = "a constant"
    NUMBER = "a number"


KINDS: Dict[Any, Kind] = dict.fromkeys((int, float, bool), Kind.NUMBER)  # by annotation
KINDS.update({Tensor: Kind.TENSOR, List[Tensor]: Kind.TENSORS, Operand: Kind.OPERAND})
KINDS.update({Optional[annotation]: kind for annotation, kind in KINDS.items()})


@dataclass
class Converter:
    """The function that builds a layer or an operator, with the keywords of its decorator."""

    build: Callable
    order: Optional[Callable] = ANY_ORDER
    weights: Union[Sequence[WeightSpec], Callable[[Dict[str, Any]], Sequence[WeightSpec]]] = ()
    masks: MaskRule = DROPS_MASK
    aliases: Mapping[str, str] = field(default_factory=dict)  # TensorFlow's parameter names -> the function's
    dtypes: Union[FrozenSet[str], DtypeRule] = FLOAT32
    ignored: Optional[str] = None  # regex of configuration keys that change nothing here; None: no key is checked
    lengths: Sequence[str] = ()  # parameters that accept dynamic lengths, as entries of a shape
    name: str = ""

    def __post_init__(self) -> None:
        """Reads the function's signature, except the CallContext, and the kind of each parameter."""
        hints = get_type_hints(getattr(self.build, "func", self.build))
        self.signature = inspect.Signature(list(inspect.signature(self.build).parameters.values())[1:])
        self.kinds = {name: KINDS.get(hints[name], Kind.CONSTANT) for name in self.signature.parameters}
        for name, kind in self.kinds.items():
            rule = f"{name} of {self.name} must be annotated as {', '.join(map(str, KINDS))}"
            validation.check(kind != Kind.CONSTANT or "Tensor" not in str(hints[name]), rule)

    def __call__(self, call: CallContext, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        call = replace(call, converter=self)  # with a new Config, which counts no key as read
        args = [*args, *(kwargs[name] for name in FIRST_ARGUMENTS if name in kwargs)]
        kwargs = {name: value for name, value in kwargs.items() if name not in FIRST_ARGUMENTS}
        if self.masks == HANDLES_MASK:
            args, kwargs = with_mask(args, kwargs, call.version)
        given = self._bound(call, args, kwargs)
        values = leaves(given, Tensor)
        cast, dtype = cast_inputs(call, self.dtypes, values)
        inputs, named = map_leaves(given, Tensor, dict(zip(values, self._in_order(call, cast))).__getitem__)
        if self.ignored is not None:
            call.config.refuse_dtype(self.ignored)
        out = self.build(call, *inputs, **named)
        out = out if dtype is None else map_leaves(out, Tensor, lambda each: each._replace(dtype=dtype))
        if self.ignored is not None:
            self.weights_of(call.config)
            if call.layer.replaced_by_name:
                call.config.refuse_missing()
            try:
                call.config.refuse_unread(self.ignored)
            except ValueError as error:  # the output shapes are correct, so later layers can be checked, too
                call.refusals.append(error)
        if self.masks == HANDLES_MASK:
            return out
        mask = leaves(args, Tensor)[0].mask if call.version in self.masks.value else None
        return map_leaves(out, Tensor, lambda each: each._replace(mask=mask))  # lengths of a shape have none

    def _in_order(self, call: CallContext, tensors: List[Tensor]) -> List[Tensor]:
        """Returns the tensors in the axis order that the converter needs."""
        if self.order is PADS_PENDING:
            return tensors
        return self.order(call, tensors) if self.order is SAME_ORDER else [self.order(call, x) for x in tensors]

    def weights_of(self, config: Dict[str, Any]) -> List[WeightSpec]:
        """Returns the specs of the weights that a layer of this configuration has."""
        weights = self.weights(config) if callable(self.weights) else self.weights
        return [each for each in weights if each.is_present(config)]

    def _bound(self, call: CallContext, args: Sequence[Any], kwargs: Dict[str, Any]) -> List[Any]:
        """Returns the function's positional and keyword arguments, checked. Keras 3 stores some arguments of an
        operator in its configuration."""
        kinds = {name: parameter.kind for name, parameter in self.signature.parameters.items()}
        several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        takes_kwargs, takes_args = (kind in kinds.values() for kind in several)
        if call.layer.operator is None:  # a layer of several inputs is called with a list of them
            args = [value for entry in args for value in (entry if isinstance(entry, list) else [entry])]
        elif not call.layer.class_name.endswith("OpLambda"):
            kwargs = {**call.config, **kwargs}
        named: Dict[str, Any] = {}
        for name, value in kwargs.items():
            key = self.aliases.get(name, name)
            if key in kinds or (takes_kwargs and name not in COMMON_ARGUMENTS):
                named[key] = value
            elif name not in COMMON_ARGUMENTS and not is_unset(value):
                raise InvalidValue(f"argument {name} must not be given; {validation.received(**{name: value})}")
        free = [name for name, kind in kinds.items() if name not in named and kind != kind.VAR_KEYWORD]
        free = [] if takes_args else free
        named.update(zip(free, args))
        for name, each in named.items():
            if self.kinds.get(name) != Kind.OPERAND:
                named[name] = map_leaves(each, np.ndarray, np.ndarray.tolist)
        inputs = list(args[len(free) :])
        missing = [n for n in free[len(args) :] if self.signature.parameters[n].default is inspect.Parameter.empty]
        check(not missing, f"argument {', '.join(missing)} must be given", **named)
        rule = f"there must be at most {len(kinds)} arguments; received {len(inputs) + len(named)}"
        check(takes_args or not inputs, rule)
        for name, value in self.signature.bind(*inputs, **named).arguments.items():
            if name not in self.lengths:
                refuse_lengths(name, value)
            _check(name, self.signature.parameters[name], self.kinds[name], value)
        return [inputs, named]


def _check(name: str, parameter: Any, kind: Kind, value: Any) -> None:
    """Raises a `ValueError` if an argument is not what its annotation accepts. None is accepted only if it is the
    default."""
    check(value is not None or parameter.default is None, f"{name} must be {kind.value}; received None")
    if kind in (Kind.TENSOR, Kind.TENSORS) and value is not None:
        several = parameter.kind == parameter.VAR_POSITIONAL or (kind == Kind.TENSORS and isinstance(value, list))
        entries = list(value) if several else [value]
        are_tensors = entries and all(isinstance(entry, Tensor) for entry in entries)
        check(are_tensors, f"{name} must be {kind.value}", **{name: value})
    elif kind in (Kind.CONSTANT, Kind.NUMBER):
        check(not leaves(value, Tensor), f"{name} must be {kind.value}; received a tensor")
        is_number = kind != Kind.NUMBER or value is None or isinstance(value, (int, float))
        check(is_number, f"{name} must be a number", **{name: value})


def cast_inputs(call: CallContext, dtypes: Union[FrozenSet[str], DtypeRule],
                values: Sequence[Tensor]) -> Tuple[List[Tensor], Optional[str]]:  # fmt: skip
    """Returns the tensors of a call, cast by `dtypes` of its converter, and the dtype of the outputs: None if the
    converter sets it. A layer casts float16 and float64 to float32; an operator does not."""
    is_layer = call.layer.operator is None
    values = [call.cast(x, "float32") if is_layer and x.dtype in FLOATS else x for x in values]
    if dtypes is SETS_DTYPE or not values:
        return list(values), None
    casts = isinstance(dtypes, DtypeRule) and call.version in dtypes.value
    if casts and not any(x.dtype in FLOATS - {"float32"} for x in values):
        return [call.cast(x, "float32") for x in values], "float32"
    allowed = FLOAT32 if isinstance(dtypes, DtypeRule) else dtypes
    dtype = check_dtype(result_type([x.dtype for x in values], call.version), allowed)
    return [call.cast(x, dtype) for x in values], dtype


# -- the table

LAYERS: Dict[str, Converter] = {}
OPERATORS: Dict[str, Converter] = {}


def layer(*classes: str, **declared: Any) -> Callable:
    """Registers a function as the converter of these classes; `declared` are fields of `Converter`."""
    return _register(LAYERS, classes, {"ignored": "", **declared})


def operator(*functions: str, **declared: Any) -> Callable:
    """Registers a function as the converter of these functions of `keras.ops`."""
    return _register(OPERATORS, functions, declared)


def _register(table: Dict[str, Converter], names: Sequence[str], declared: Dict[str, Any]) -> Callable:
    def register(build: Callable) -> Callable:
        for name in names:
            check(name not in table, f"{name} already has a converter")
            table[name] = Converter(build, name=name, **declared)
        return build

    return register


def is_layer(serialized: Any) -> bool:
    """Returns whether a part of a configuration is a layer that has a converter."""
    is_object = isinstance(serialized, dict) and {"class_name", "config"} <= serialized.keys()
    return is_object and class_and_config(serialized)[0] in LAYERS


def delegate(call: CallContext, inner: Layer, *inputs: Tensor) -> Any:
    """Returns the outputs of another layer, built in place of the layer of this call."""
    inner = replace(inner, name=call.layer.name, calls=call.layer.calls)
    return LAYERS[inner.class_name](replace(call, layer=inner, layer_call=LayerCall(())), list(inputs), {})


# -- the names of operators

TF_MODULES = ("", "math", "nn", "__operators__", "keras.activations", "compat.v1", "compat.v1.math", "compat.v1.nn")
SYNONYMS = {
    "abs": "absolute", "average_pool": "avg_pool", "batch_matmul": "matmul", "clip_by_value": "clip",
    "concat": "concatenate", "convert_to_tensor": "identity", "floor_div": "floor_divide", "floordiv": "floor_divide",
    "gather": "take", "getitem": "get_item", "is_nan": "isnan", "less": "lesser", "less_equal": "lesser_equal",
    "mirror_pad": "pad", "mul": "multiply", "neg": "negative", "pad_v2": "pad", "permute_dimensions": "transpose",
    "pow": "power", "realdiv": "divide", "reduce_variance": "var", "reverse": "flip", "sub": "subtract",
    "true_divide": "divide", "truediv": "divide",
    **{f"reduce_{name}": name for name in ("mean", "sum", "max", "min", "prod", "any", "all", "std", "logsumexp")},
    **{f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"{name}_v2": name for name in ("where", "max_pool", "avg_pool", "repeat", "shape", "einsum", "cumsum")},
    **{f"{kind}_pool{rank}d": f"{kind}_pool" for kind in ("max", "avg") for rank in (1, 2, 3)},
}  # fmt: skip


def operator_name(operator: Any) -> str:
    """Returns the `keras.ops` name of an operator, given its TensorFlow name or its Keras 3 class name.

    >>> [operator_name(name) for name in ("math.reduce_mean", "Mean", "__operators__.getitem", "GetItem")]
    ['mean', 'mean', 'get_item', 'get_item']

    Functions of TensorFlow's other modules keep their full name: `linalg.normalize` is not `keras.ops.normalize`.
    """
    package, _, name = operator.rpartition(".")
    name = snake_case(name) if package in TF_MODULES or operator in ("linalg.matmul", "image.resize") else operator
    return SYNONYMS.get(name, name)
