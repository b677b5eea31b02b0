"""The table of the importer: for each layer of Keras, and each operator between layers, the converter that builds it.

A converter's function takes the `CallContext` of the call, and then what the call may be given, by Keras's names:
parameters that are annotated as `Tensor` are tensors, `Operand` is a tensor or a constant, all others are constants.
The converter declares the order of axes and the types that its tensors come in, and the layer's weights. Any other
argument of a call is refused by name, and so is any key of the configuration that nothing reads.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union, get_type_hints

import numpy as np

from mxsame import validation
from mxsame.port import types
from mxsame.port.call_context import CallContext
from mxsame.port.description import Layer, LayerCall, WeightSpec, is_unset, leaves, mapped, snake_case
from mxsame.port.tensors import Lengths, Operand, Sized, Tensor, refuse_lengths, with_mask
from mxsame.validation import InvalidValue, check


def _each(method: str) -> Callable:
    return lambda call, values: [getattr(call, method)(value) for value in values]


# the order of axes of a converter's tensors, and whether the zeros that they may still need are around them
ANY_ORDER, CHANNELS_FIRST, KERAS_ORDER, ORDER_OF_FIRST_CALL = map(
    _each, ("padded", "channels_first", "keras", "in_first_order")
)
PADS_PENDING, SAME_ORDER = (lambda call, values: values), CallContext.in_one_order

# what a layer does with a mask: its output has none, that of the first input, or what the converter gives it
DROPS_MASK, PASSES_MASK, HANDLES_MASK = "stops", "passes", "takes"
PASSES_MASK_IN_KERAS = {2: "passes in Keras 2", 3: "passes in Keras 3"}  # and stops in the other one

ANYWHERE = ("training", "name")  # arguments that every call may have; a CallContext has the first
FIRST_ARGUMENTS = ("inputs", "sequences", "data")  # names of the first one of Keras's layers

# what a parameter of a converter's function takes
TENSOR, TENSORS, OPERAND, CONSTANT, NUMBER = "a tensor", "tensors", "a tensor or a constant", "a constant", "a number"
LENGTHS, SIZED = "a constant or lengths", "a tensor, a constant or lengths"
KINDS = {
    Tensor: TENSOR,
    Optional[Tensor]: TENSOR,
    List[Tensor]: TENSORS,
    Optional[List[Tensor]]: TENSORS,
    Operand: OPERAND,
}
KINDS.update({Lengths: LENGTHS, Sized: SIZED})
KINDS.update({Optional[kind]: KINDS[kind] for kind in (Operand, Lengths, Sized)})  # Python 3.8, with a default of None
KINDS.update(dict.fromkeys((int, float, bool, Optional[int], Optional[float], Optional[bool]), NUMBER))


@dataclass
class Converter:
    """How a layer or an operator is built: its function, the order of axes and the types that it takes, its weights,
    which may follow from the configuration, the other names that its parameters have in TensorFlow, a pattern of the
    keys of the configuration that mean nothing here, None if any key may be there, and its own name."""

    build: Callable
    order: Callable = ANY_ORDER
    weights: Union[Sequence[WeightSpec], Callable[[Dict[str, Any]], Sequence[WeightSpec]]] = ()
    masks: str = DROPS_MASK
    names: Mapping[str, str] = field(default_factory=dict)
    types: Any = types.FLOAT32
    ignored: Optional[str] = None
    name: str = ""

    def __post_init__(self) -> None:
        """Notes the parameters of the function after the call: its signature, and the kind of each."""
        hints = get_type_hints(getattr(self.build, "func", self.build))
        self.signature = inspect.Signature(list(inspect.signature(self.build).parameters.values())[1:])
        self.kinds = {name: KINDS.get(hints[name], CONSTANT) for name in self.signature.parameters}
        for name, kind in self.kinds.items():
            rule = f"{name} of {self.name} must be annotated as {', '.join(map(str, KINDS))}"
            validation.check(kind != CONSTANT or "Tensor" not in str(hints[name]), rule)

    def __call__(self, call: CallContext, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        call = replace(call, converter=self)
        args = [*args, *(kwargs[name] for name in FIRST_ARGUMENTS if name in kwargs)]
        kwargs = {name: value for name, value in kwargs.items() if name not in FIRST_ARGUMENTS}
        if self.masks == HANDLES_MASK:
            args, kwargs = with_mask(args, kwargs, call.version)
        given = self._bound(call, args, kwargs)
        values = leaves(given, Tensor)
        cast, dtype = typed(call, self.types, values)
        inputs, named = mapped(given, Tensor, dict(zip(values, self.order(call, cast))).__getitem__)
        if self.ignored is not None:
            call.config.refuse_type(self.ignored)
        out = self.build(call, *inputs, **named)
        out = out if dtype is None else mapped(out, Tensor, lambda each: each._replace(dtype=dtype))
        if self.ignored is not None:
            self.weights_of(call.config)
            if call.layer.named:
                call.config.refuse_missing()
            try:
                call.config.refuse_unread(self.ignored)
            except ValueError as error:  # whose outputs are there for the layers behind it
                call.refusals.append(error)
        if self.masks == HANDLES_MASK:
            return out
        passes = self.masks in (PASSES_MASK, PASSES_MASK_IN_KERAS[call.version])
        mask = leaves(args, Tensor)[0].mask if passes else None
        return mapped(out, Tensor, lambda each: each._replace(mask=mask))  # lengths of a shape have none

    def weights_of(self, config: Dict[str, Any]) -> List[WeightSpec]:
        """Returns the weights that a layer of this configuration has."""
        weights = self.weights(config) if callable(self.weights) else self.weights
        return [each for each in weights if each.is_in(config)]

    def _bound(self, call: CallContext, args: Sequence[Any], kwargs: Dict[str, Any]) -> List[Any]:
        """Returns the positional arguments of the function, and those by name. Operators of Keras 3 keep some in their
        configuration. What is not given has its default; None is a value."""
        kinds = {name: parameter.kind for name, parameter in self.signature.parameters.items()}
        more, many = inspect.Parameter.VAR_KEYWORD in kinds.values(), inspect.Parameter.VAR_POSITIONAL in kinds.values()
        if call.layer.operator is None:  # a layer of several inputs is called with a list of them
            args = [value for entry in args for value in (entry if isinstance(entry, list) else [entry])]
        elif not call.layer.class_name.endswith("OpLambda"):
            kwargs = {**call.config, **kwargs}
        named: Dict[str, Any] = {}
        for name, value in kwargs.items():
            key = self.names.get(name, name)
            if key in kinds or (more and name not in ANYWHERE):
                named[key] = value
            elif name not in ANYWHERE and not is_unset(value):
                raise InvalidValue(f"argument {name} must not be given; {validation.received(**{name: value})}")
        free = [] if many else [name for name, kind in kinds.items() if name not in named and kind != kind.VAR_KEYWORD]
        named.update(zip(free, args))
        named = {name: each if self.kinds.get(name) in (OPERAND, SIZED) else mapped(each, np.ndarray, np.ndarray.tolist)
                 for name, each in named.items()}  # fmt: skip
        inputs = list(args[len(free) :])
        is_missing = [n for n in free[len(args) :] if self.signature.parameters[n].default is inspect.Parameter.empty]
        check(not is_missing, f"argument {', '.join(is_missing)} must be given", **named)
        check(many or not inputs, f"arguments must be at most {len(kinds)}; received {len(inputs) + len(named)}")
        for name, value in self.signature.bind(*inputs, **named).arguments.items():
            _check(name, self.signature.parameters[name], self.kinds[name], value)
        return [inputs, named]


def _check(name: str, parameter: Any, kind: str, value: Any) -> None:
    """Require tensors where the function takes tensors, and nowhere else; so dynamic lengths, and None where it is the
    default."""
    if kind not in (LENGTHS, SIZED):
        refuse_lengths(name, value)
    check(value is not None or parameter.default is None, f"{name} must be {kind}; received None")
    if kind in (TENSOR, TENSORS) and value is not None:
        several = parameter.kind == parameter.VAR_POSITIONAL or (kind == TENSORS and isinstance(value, list))
        entries = list(value) if several else [value]
        check(
            entries and all(isinstance(entry, Tensor) for entry in entries), f"{name} must be {kind}", **{name: value}
        )
    elif kind in (CONSTANT, NUMBER, LENGTHS):
        check(not leaves(value, Tensor), f"{name} must be {kind}; received a tensor")
        is_one = kind != NUMBER or value is None or isinstance(value, (int, float))
        check(is_one, f"{name} must be a number", **{name: value})


def typed(call: CallContext, rule: Any, values: Sequence[Tensor]) -> Tuple[List[Tensor], Optional[str]]:
    """Returns the tensors of a call as its converter takes them, and the type of its outputs, None where the converter
    gives it. Layers cast all floats to float32, functions none."""
    is_layer = call.layer.operator is None
    values = [call.cast(x, "float32") if is_layer and x.dtype in types.FLOATS else x for x in values]
    if rule == types.SETS_DTYPE or not values:
        return list(values), None
    casts = rule in (types.CAST, types.CAST_IN_KERAS[call.version])
    if casts and not any(x.dtype in types.FLOATS - {"float32"} for x in values):
        return [call.cast(x, "float32") for x in values], "float32"
    allowed = rule if isinstance(rule, frozenset) else types.FLOAT32
    dtype = types.check(types.common([x.dtype for x in values], call.version), allowed)
    return [call.cast(x, dtype) for x in values], dtype


# -- the table

LAYERS: Dict[str, Converter] = {}
OPERATORS: Dict[str, Converter] = {}


def layer(*classes: str, **declared: Any) -> Callable:
    """Registers a function for layers of these classes; `declared` are fields of the converter."""
    return _register(LAYERS, classes, {"ignored": "", **declared})


def operator(*functions: str, **declared: Any) -> Callable:
    """Registers a function for operators of these names, which are those of `keras.ops`."""
    return _register(OPERATORS, functions, declared)


def _register(table: Dict[str, Converter], names: Sequence[str], declared: Dict[str, Any]) -> Callable:
    def register(build: Callable) -> Callable:
        for name in names:
            check(name not in table, f"{name} must have one converter")
            table[name] = Converter(build, name=name, **declared)
        return build

    return register


def in_place(call: CallContext, inner: Layer, *inputs: Tensor) -> Any:
    """Returns the output of another layer in place of this one."""
    inner.name, inner.calls = call.layer.name, call.layer.calls
    return LAYERS[inner.class_name](replace(call, layer=inner, layer_call=LayerCall(())), list(inputs), {})


# -- the names of operators

PACKAGES = ("", "math", "nn", "__operators__", "keras.activations", "compat.v1", "compat.v1.math", "compat.v1.nn")
SYNONYMS = {
    "getitem": "get_item",
    **dict.fromkeys(("truediv", "true_divide", "realdiv"), "divide"),
    "sub": "subtract",
    "mul": "multiply",
    "neg": "negative",
    "pow": "power",
    **dict.fromkeys(("floor_div", "floordiv"), "floor_divide"),
    "concat": "concatenate",
    "abs": "absolute",
    **{f"reduce_{name}": name for name in ("mean", "sum", "max", "min", "prod", "any", "all", "std", "logsumexp")},
    **{f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "reduce_variance": "var",
    "is_nan": "isnan",
    "gather": "take",
    "clip_by_value": "clip",
    "pad_v2": "pad",
    "permute_dimensions": "transpose",
    "batch_matmul": "matmul",
    "convert_to_tensor": "identity",
    **{f"{name}_v2": name for name in ("where", "max_pool", "avg_pool", "repeat", "shape", "einsum", "cumsum")},
    **{f"{kind}_pool{rank}d": f"{kind}_pool" for kind in ("max", "avg") for rank in (1, 2, 3)},
    "average_pool": "avg_pool",
    "mirror_pad": "pad",
    "reverse": "flip",
    "less": "lesser",
    "less_equal": "lesser_equal",
}


def name_of(operator: Any) -> str:
    """Returns TensorFlow's "math.reduce_mean" and Keras's "Mean" by one name.

    >>> name_of("math.reduce_mean"), name_of("Mean"), name_of("__operators__.getitem"), name_of("GetItem")
    ('mean', 'mean', 'get_item', 'get_item')

    TensorFlow's other functions have their whole name: `linalg.normalize` is another function than Keras's.
    """
    package, _, name = operator.rpartition(".")
    name = snake_case(name) if package in PACKAGES or operator in ("linalg.matmul", "image.resize") else operator
    return SYNONYMS.get(name, name)
