"""The inputs of a call: its arrays, checked against its arguments and against each other before MXNet sees them."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple, TypeVar

import numpy as np

from mxsame import tensors, validation
from mxsame._mxnet import mx
from mxsame.plan import POOLS
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.costs import Workload
from mxsame.plan.windows import Windows, check_dynamic, padded_and_output_size
from mxsame.scope import Target, target_of
from mxsame.tensors import operands, probing
from mxsame.validation import MAX_LENGTH, PartialShape, integer

SIZES = ("kernel_size", "pool_size", "input_size")  # arguments whose length gives the number of spatial axes
CHECKS: Dict[str, Callable[[str, Any, int], Any]] = {  # called with an argument's name, its value and the rank
    **dict.fromkeys(("kernel_size", "pool_size", "strides", "dilation"), partial(validation.per_axis, minimum=1)),
    "output_padding": partial(validation.per_axis, minimum=0),
    **dict.fromkeys(("channels", "groups", "depth_multiplier"), lambda name, value, rank: integer(name, value, 1)),
    "p_value": lambda name, value, rank: integer(name, value, 1, 3),
    "ceil_mode": lambda name, value, rank: validation.flag(name, value),
}
HASHABLE_TYPES = {int, str, type(None)}
AnySpec = TypeVar("AnySpec", bound="Spec")
_IDENTITY, _TO_NP_ARRAY = (lambda out: out), operator.methodcaller("as_np_ndarray")


@dataclass
class Spec:
    """The arguments of an operator, as given or in canonical form; every operator has a `layout`. A spec is never
    changed: `replace` makes another. (A frozen one takes three times as long to make, at every call.)"""

    @cached_property
    def key(self) -> Any:
        """The arguments as a part of a cache key; None if one has a type that cannot be part of a key."""
        arguments = vars(self).values()
        try:
            tagged = arguments if HASHABLE_TYPES.issuperset(map(type, arguments)) else map(_tagged, arguments)
            return (type(self), *tagged)
        except TypeError:
            return None

    def checked(self: AnySpec, rank: int) -> AnySpec:
        """Returns the spec with its arguments in canonical form, for this number of spatial axes. Only arguments that
        default to None may be None; subclasses check the padding."""
        given = vars(self)
        checked: Dict[str, Any] = {"layout": validation.layout(given["layout"], rank)}
        for name, default in ((each.name, each.default) for each in fields(self)):
            if name in CHECKS and not (given[name] is None and default is None):
                checked[name] = CHECKS[name](name, given[name], rank)
        return replace(self, **checked)

    def lower(self, inputs: Inputs) -> Callable[..., Any]:
        """Returns the recipe of MXNet's operator for a checked spec and its inputs."""
        raise NotImplementedError


def _tagged(value: Any) -> Any:
    """Returns an argument tagged with its type: True == 1, but the checks reject True."""
    kind = type(value)
    if kind in HASHABLE_TYPES:
        return value
    if kind is tuple or kind is list:
        return (kind, *value) if set(map(type, value)) == {int} else (kind, *map(_tagged, value))
    if kind is bool or isinstance(value, np.generic):
        return kind, value
    raise TypeError(f"no cache key for an argument of type {kind.__name__}")


class WeightAxis(NamedTuple):
    """An axis of a weight: its description in messages, and its expected length, None for any."""

    description: str
    length: Optional[int] = None


@dataclass(frozen=True)
class Arrays:
    """The arrays of a call, checked against each other.

    Parameters
    ----------
    F
        `mx.nd` or `mx.sym`.
    arrays
        NDArrays or Symbols, the data first; None for an omitted bias.
    shapes
        The shape of each array, with None for unknown lengths; None if the rank is unknown, too.
    names
        The argument name of each array.
    restore
        Converts an output to the kind of the data: NDArray, or mx.np.ndarray.
    target
        The device and the purpose that the operator is lowered for.
    """

    F: Any
    arrays: Tuple[Any, ...]
    shapes: Tuple[Any, ...]
    names: Tuple[str, ...]
    restore: Callable[[Any], Any]
    target: Target

    @classmethod
    def of(cls, **named: Any) -> Arrays:
        """Returns named arrays, which must agree in kind, dtype and device; mx.np arrays become
        NDArrays. A bias, which may be None, is the last."""
        (data_name, data), *others = named.items()
        operands.check(data_name, data)
        for name, array in others:
            if array is not None or name != "bias":
                operands.check(name, array)
                operands.check_same_kind_and_device(name, array, data_name, data)
        arrays, restore = tuple(named.values()), _IDENTITY
        if isinstance(data, operands.NUMPY_KINDS):
            arrays, restore = operands.as_classic(arrays), _TO_NP_ARRAY
        shapes = tuple(None if array is None else tensors.known_shape(array) for array in arrays)
        F = mx.sym if isinstance(data, mx.sym.Symbol) else mx.nd
        return cls(F, arrays, shapes, tuple(named), restore, target_of(data))

    @property
    def data(self) -> Any:
        """The first array."""
        return self.arrays[0]

    @property
    def in_graph(self) -> bool:
        """Whether the arrays are Symbols."""
        return self.F is mx.sym

    def rank(self, others: Mapping[str, Optional[int]]) -> int:
        """Returns the number of spatial axes. Raises unless the arrays and `others` (source -> rank) agree on it."""
        shapes = {name: shape for name, shape in zip(self.names, self.shapes) if name != "bias"}
        ranks = {f"{name}.ndim - 2": None if shape is None else len(shape) - 2 for name, shape in shapes.items()}
        return validation.rank({**others, **ranks})


@dataclass(frozen=True)
class Inputs(Arrays):
    """The arrays of a call, checked against its arguments.

    Parameters
    ----------
    layout
        The layout of the data.
    shape
        The shape of the data, with channels first. The size is `input_size` if a Symbol does not have one.
    runs_channels_last : bool
        Whether the layout has channels last and MXNet's operator supports it on the data's device.
    pins_size : bool
        Whether the data is a Symbol of unknown size that `input_size` fixes.
    """

    layout: str
    shape: PartialShape
    runs_channels_last: bool
    pins_size: bool

    @property
    def size(self) -> PartialShape:
        """The spatial lengths of the data."""
        return self.shape[SPATIAL:]

    @property
    def channels_last(self) -> bool:
        """Whether the data has channels last."""
        return validation.has_channels_last(self.layout)

    @property
    def passes_channels_last(self) -> bool:
        """Whether MXNet's operator is given the data as it is, with channels last."""
        return self.runs_channels_last and None not in self.size

    @property
    def spatial_axis(self) -> int:
        """The first spatial axis of the data that MXNet's operator is given."""
        return 1 if self.passes_channels_last else SPATIAL

    def infer_in_channels(self) -> Optional[int]:
        """Returns the data's number of channels, from its shape or inferred from the graph; None if neither has it."""
        if self.shape[1] is not None or not self.in_graph:
            return self.shape[1]
        return probing.probe_channels(self.data, len(self.size), self.channels_last)

    def fixed_arrays(self) -> Tuple[Any, ...]:
        """Returns the arrays, with the size fixed in the graph if `input_size` gave it: the graph then rejects other
        sizes."""
        if not self.pins_size:
            return self.arrays
        fixed = (None, *self.size, None) if self.channels_last else (None, None, *self.size)
        return (tensors.fix_lengths(self.data, fixed), *self.arrays[1:])

    def check_output(self, windows: Windows, operator: str, channels: Any, groups: Any = None) -> None:
        """Raises `ValueError` if the channels of the output do not fit the groups or the bias, if the size is dynamic
        and no graph is exact for every size, or if an array has more elements than MXNet can index."""
        if groups is not None:
            validation.check_divisible("channels", channels, "groups", groups)
            if self.shapes[-1] is not None:
                validation.check_shape("bias", self.shapes[-1], (channels,), "(channels,)")
        if None in self.size and operator != "transposed":
            check_dynamic(windows, operator in POOLS)
        padded, outputs = padded_and_output_size(windows)
        validation.check_element_count("the padded data", (*self.shape[:2], *padded))
        validation.check_element_count("the output", (self.shape[0], channels, *outputs))

    def workload(self, operator: str, in_channels: Any = None, **more: Any) -> Workload:
        """Returns the workload of an operator for the planner; `more` are additional fields of `Workload`."""
        in_channels = self.shape[1] or in_channels
        if in_channels is None and None in self.size:
            in_channels = self.infer_in_channels()
        target, plain = self.target, tensors.is_input(self.data)
        purpose, device = target.planning_purpose, target.device_or_current
        more.update(plain=plain, purpose=purpose, device=device, channels_last=self.passes_channels_last)
        return Workload(operator, self.shape[0], in_channels, **more)

    def weight_shape(self, kernel_size: Any, first: WeightAxis, second: WeightAxis) -> PartialShape:
        """Returns the weight's shape with channels first, in which only the first two lengths may be None. The kernel
        size and the weight's shape must agree; one of them may be unknown.

        `first` and `second` are the first two axes with channels first.
        """
        operands.check_convolvable("data", self.data)
        name, last = self.names[1], self.channels_last
        names = (first.description, "*kernel_size", second.description)
        meaning = ", ".join(names if last else (names[0], names[2], names[1]))
        given = self.shapes[1] or (None,) * len(self.shape)
        shape = tensors.shape_channels_first(given) if last else given
        for axis, (length, actual) in enumerate(zip(kernel_size or (), shape[2:])):
            validation.check_equal(f"kernel_size[{axis}]", length, f"the length of {name}", actual)
        size = kernel_size or shape[2:]
        rule = f"kernel_size must be given if the shape of {name} is unknown"
        validation.check(None not in size, rule, kernel_size=None)
        expected = (first.length, *size, second.length) if last else (first.length, second.length, *size)
        validation.check_shape(name, given, expected, f"({meaning})")
        return (*shape[:2], *size)


def inputs_of(spec: Spec, named: Mapping[str, Any]) -> Inputs:
    """Returns the inputs of a spec from its named arrays. Raises `ValueError` unless all sources of the number of
    spatial axes agree, and the data has the spec's `input_size`."""
    arrays, arguments = Arrays.of(**named), vars(spec)
    layout, native = arguments["layout"], False
    given = None if layout is None else validation.rank_of_layout(layout)
    sizes = {f"len({name})": len(arguments[name]) for name in SIZES if validation.is_sequence(arguments.get(name))}
    rank = arrays.rank({"len(layout) - 2": given, **sizes})
    layout = validation.LAYOUTS[rank][0] if layout is None else layout
    shape = arrays.shapes[0] or (None,) * (rank + 2)
    if validation.has_channels_last(layout):
        native, shape = tensors.runs_channels_last(rank, arrays.target.device), tensors.shape_channels_first(shape)
    input_size, size = arguments.get("input_size"), shape[SPATIAL:]
    if input_size is not None:
        input_size = validation.per_axis("input_size", input_size, rank, 1, MAX_LENGTH)
        for axis, (length, actual) in enumerate(zip(input_size, size)):
            validation.check_equal(f"input_size[{axis}]", length, "the size of the data along this axis", actual)
        shape = shape[:SPATIAL] + input_size
    pins_size = input_size is not None and None in size
    return Inputs(**vars(arrays), layout=layout, shape=shape, runs_channels_last=native, pins_size=pins_size)


def channel_count(name: str, given: Any, source: str, actual: Optional[int], array: str) -> int:
    """Returns a number of channels, given as an argument, by an array's shape, or by both, which must then agree."""
    if given is None and actual is None:
        raise validation.InvalidValue(f"{name} must be given if the shape of {array} is unknown; received {name}=None")
    number: int = actual if given is None else integer(name, given, 1)  # type: ignore[assignment]
    validation.check_equal(name, number, source, actual)
    return number
