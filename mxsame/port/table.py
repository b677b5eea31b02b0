"""The table of the importer: for each layer of Keras, and each operator between layers, the row that builds it.

A row's function takes the `Site` of the call, and then what the call may be given, by Keras's names: parameters that
are annotated as `Value` are tensors, `Operand` is a tensor or a constant, all others are constants. The row declares
the order of axes and the types that its tensors come in, and the layer's weights. Any other argument of a call is
refused by name, and so is any key of the configuration that nothing reads.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union, get_type_hints

import numpy as np

from mxsame import validation
from mxsame.port import types
from mxsame.port.description import Layer, LayerCall, Weight, is_off, leaves, mapped, snake_case
from mxsame.port.site import Site
from mxsame.port.values import Lengths, Operand, Sized, Value, refuse_lengths, with_mask
from mxsame.validation import InvalidValue, check


def _each(method: str) -> Callable:
    return lambda site, values: [getattr(site, method)(value) for value in values]


# the order of axes of a row's tensors, and whether the zeros that they may still need are around them
AS_IT_IS, CHANNELS_FIRST, KERAS, SETTLED = map(_each, ("padded", "channels_first", "keras", "settled"))
UNPADDED, ALIKE = (lambda site, values: values), Site.alike

# what a layer does with a mask: its output has none, that of the first input, or what the row gives it
STOPS, PASSES, TAKES = "stops", "passes", "takes"
PASSES_IN_KERAS = {2: "passes in Keras 2", 3: "passes in Keras 3"}  # and stops in the other one

ANYWHERE = ("training", "name")  # arguments that every call may have; a Site has the first
FIRST_ARGUMENTS = ("inputs", "sequences", "data")  # names of the first one of Keras's layers

# what a parameter of a row's function takes
TENSOR, TENSORS, OPERAND, CONSTANT, NUMBER = "a tensor", "tensors", "a tensor or a constant", "a constant", "a number"
LENGTHS, SIZED = "a constant or lengths", "a tensor, a constant or lengths"
KINDS = {Value: TENSOR, Optional[Value]: TENSOR, List[Value]: TENSORS, Optional[List[Value]]: TENSORS, Operand: OPERAND}
KINDS.update({Lengths: LENGTHS, Sized: SIZED})
KINDS.update({Optional[kind]: KINDS[kind] for kind in (Operand, Lengths, Sized)})  # Python 3.8, with a default of None
KINDS.update(dict.fromkeys((int, float, bool, Optional[int], Optional[float], Optional[bool]), NUMBER))


@dataclass
class Row:
    """How a layer or an operator is built: its function, the order of axes and the types that it takes, its weights,
    which may follow from the configuration, the other names that its parameters have in TensorFlow, a pattern of the
    keys of the configuration that mean nothing here, None if any key may be there, and its own name."""

    build: Callable
    order: Callable = AS_IT_IS
    weights: Union[Sequence[Weight], Callable[[Dict[str, Any]], Sequence[Weight]]] = ()
    masks: str = STOPS
    names: Mapping[str, str] = field(default_factory=dict)
    types: Any = types.FLOAT32
    unread: Optional[str] = None
    name: str = ""

    def __post_init__(self) -> None:
        """Notes the parameters of the function after the site: its signature, and the kind of each."""
        hints = get_type_hints(getattr(self.build, "func", self.build))
        self.signature = inspect.Signature(list(inspect.signature(self.build).parameters.values())[1:])
        self.kinds = {name: KINDS.get(hints[name], CONSTANT) for name in self.signature.parameters}
        for name, kind in self.kinds.items():
            rule = f"{name} of {self.name} must be annotated as {', '.join(map(str, KINDS))}"
            validation.check(kind != CONSTANT or "Value" not in str(hints[name]), rule)

    def __call__(self, site: Site, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        site = replace(site, row=self)
        args = [*args, *(kwargs[name] for name in FIRST_ARGUMENTS if name in kwargs)]
        kwargs = {name: value for name, value in kwargs.items() if name not in FIRST_ARGUMENTS}
        if self.masks == TAKES:
            args, kwargs = with_mask(args, kwargs, site.version)
        given = self._bound(site, args, kwargs)
        values = leaves(given, Value)
        cast, dtype = typed(site, self.types, values)
        inputs, named = mapped(given, Value, dict(zip(values, self.order(site, cast))).__getitem__)
        if self.unread is not None:
            site.config.refuse_type(self.unread)
        out = self.build(site, *inputs, **named)
        out = out if dtype is None else mapped(out, Value, lambda each: each._replace(dtype=dtype))
        if self.unread is not None:
            self.weights_of(site.config)
            if site.layer.named:
                site.config.refuse_missing()
            try:
                site.config.refuse_unread(self.unread)
            except ValueError as error:  # whose outputs are there for the layers behind it
                site.refusals.append(error)
        if self.masks == TAKES:
            return out
        passes = self.masks in (PASSES, PASSES_IN_KERAS[site.version])
        mask = leaves(args, Value)[0].mask if passes else None
        return mapped(out, Value, lambda each: each._replace(mask=mask))  # lengths of a shape have none

    def weights_of(self, config: Dict[str, Any]) -> List[Weight]:
        """Returns the weights that a layer of this configuration has."""
        weights = self.weights(config) if callable(self.weights) else self.weights
        return [each for each in weights if each.is_in(config)]

    def _bound(self, site: Site, args: Sequence[Any], kwargs: Dict[str, Any]) -> List[Any]:
        """Returns the positional arguments of the function, and those by name. Operators of Keras 3 keep some in their
        configuration. What is not given has its default; None is a value."""
        kinds = {name: parameter.kind for name, parameter in self.signature.parameters.items()}
        more, many = inspect.Parameter.VAR_KEYWORD in kinds.values(), inspect.Parameter.VAR_POSITIONAL in kinds.values()
        if site.layer.operator is None:  # a layer of several inputs is called with a list of them
            args = [value for entry in args for value in (entry if isinstance(entry, list) else [entry])]
        elif not site.layer.class_name.endswith("OpLambda"):
            kwargs = {**site.config, **kwargs}
        named: Dict[str, Any] = {}
        for name, value in kwargs.items():
            key = self.names.get(name, name)
            if key in kinds or (more and name not in ANYWHERE):
                named[key] = value
            elif name not in ANYWHERE and not is_off(value):
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
        check(entries and all(isinstance(entry, Value) for entry in entries), f"{name} must be {kind}", **{name: value})
    elif kind in (CONSTANT, NUMBER, LENGTHS):
        check(not leaves(value, Value), f"{name} must be {kind}; received a tensor")
        is_one = kind != NUMBER or value is None or isinstance(value, (int, float))
        check(is_one, f"{name} must be a number", **{name: value})


def typed(site: Site, rule: Any, values: Sequence[Value]) -> Tuple[List[Value], Optional[str]]:
    """Returns the tensors of a call as its row takes them, and the type of its outputs, None where the row gives it.
    Layers cast all floats to float32, functions none."""
    is_layer = site.layer.operator is None
    values = [site.cast(x, "float32") if is_layer and x.dtype in types.FLOATS else x for x in values]
    if rule == types.OWN or not values:
        return list(values), None
    casts = rule in (types.CAST, types.CAST_IN_KERAS[site.version])
    if casts and not any(x.dtype in types.FLOATS - {"float32"} for x in values):
        return [site.cast(x, "float32") for x in values], "float32"
    allowed = rule if isinstance(rule, frozenset) else types.FLOAT32
    dtype = types.check(types.common([x.dtype for x in values], site.version), allowed)
    return [site.cast(x, dtype) for x in values], dtype


# -- the table

LAYERS: Dict[str, Row] = {}
OPERATORS: Dict[str, Row] = {}


def layer(*classes: str, **declared: Any) -> Callable:
    """Registers a function for layers of these classes; `declared` are fields of the row."""
    return _register(LAYERS, classes, {"unread": "", **declared})


def operator(*functions: str, **declared: Any) -> Callable:
    """Registers a function for operators of these names, which are those of `keras.ops`."""
    return _register(OPERATORS, functions, declared)


def _register(table: Dict[str, Row], names: Sequence[str], declared: Dict[str, Any]) -> Callable:
    def register(build: Callable) -> Callable:
        for name in names:
            check(name not in table, f"{name} must have one row")
            table[name] = Row(build, name=name, **declared)
        return build

    return register


def in_place(site: Site, inner: Layer, *inputs: Value) -> Any:
    """Returns the output of another layer in place of this one."""
    inner.name, inner.calls = site.layer.name, site.layer.calls
    return LAYERS[inner.class_name](replace(site, layer=inner, call=LayerCall(())), list(inputs), {})


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
