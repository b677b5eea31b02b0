"""The geometry of a call: arguments checked against each other, before MXNet sees any, and a plan; all of it once for
arrays of the same shapes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, FrozenSet, Mapping, NamedTuple, Optional, Set, Tuple

from mxsame import operands, planner, tensors, validation
from mxsame._mxnet import mx
from mxsame.building import NOTHING, current
from mxsame.ops._lowering import Lowering
from mxsame.plan import POOLS, STRATEGIES, first_plan, strategies_for
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.strategies import CHANNELS, WEIGHT, WEIGHT_SHAPE
from mxsame.plan.windows import AnyWindow, check_dynamic, lengths
from mxsame.planner import Work

# Strategies whose steps stand apart from an operator with its own kernel; the last, which has none, for want of these.
_NOTED = ("native", "pad", "slice", "dilate")


class Planned(NamedTuple):
    """A call that was checked and has its plan: a function of its arrays, and of all arrays like them."""

    F: Any  # mx.nd or mx.sym
    run: Callable  # of the arrays in the operator's layout
    ndim: int = 0  # the axes of the data if the caller has channels last and the operator has them first
    data: Any = None  # the graph's data; it refuses another size than the graph was told

    def __call__(self, data: Any, *weights: Any) -> Any:
        F, run, ndim, of_graph = self
        data = data if of_graph is None else of_graph
        if not ndim:
            return run(data, *weights)
        first = (tensors.channels_first(F, array, ndim) for array in (data, *weights[:1]))
        return tensors.channels_last(F, run(*first, *weights[1:]), ndim)


_PLANNED: Dict[Any, Planned] = {}  # by all that they follow from
MOST_PLANNED = 4096
_PLAIN, _INTEGERS = {int, str, type(None)}, {int}


def apply(plan: Callable[..., Planned], args: operands.Operands, *arguments: Any) -> Any:
    """What an operator gives for its arrays, in the kind in which they came; `plan(args, *arguments)` is the call."""
    return args.restore(_planned(plan, args, *arguments)(*args.arrays))


def _planned(plan: Callable[..., Planned], args: operands.Operands, *arguments: Any) -> Planned:
    """The call, which is remembered for arrays: a second one with the same shapes costs a look-up."""
    if args.key is None or current() is not NOTHING:
        return plan(args, *arguments)
    try:
        key = plan, args.key, id(planner.COSTS), tuple(map(_exact, arguments))
        planned = _PLANNED.get(key)
    except TypeError:  # an argument that cannot be a key
        return plan(args, *arguments)
    if planned is None:
        planned = plan(args, *arguments)
        if len(_PLANNED) >= MOST_PLANNED:
            _PLANNED.clear()
        _PLANNED[key] = planned
    return planned


def _exact(value: Any) -> Any:
    """An argument as a part of a key: True and 1.0 are not 1, in a sequence either."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is not tuple and kind is not list:
        return kind, value
    return (kind, *value) if set(map(type, value)) == _INTEGERS else (kind, *map(_exact, value))


@dataclass(frozen=True)
class Geometry:
    """What a call is asked for: the shapes of its arrays and its arguments, checked against each other.

    Parameters
    ----------
    args : mxsame.operands.Operands
    data : NDArray or Symbol
        In the layout of the caller; a graph that was told its size refuses another.
    layout : str
    shape : tuple
        (batch, channels, *size) of the data, None for unknown lengths.
    native_last : bool
        Whether MXNet's operators run this layout, channels last, on the data's device.
    """

    args: operands.Operands
    data: Any
    layout: str
    shape: Tuple[Optional[int], ...]
    native_last: bool

    @classmethod
    def of(
        cls, args: operands.Operands, layout: Any, window: str, window_size: Any, input_size: Any = None
    ) -> Geometry:
        """Infer the rank from everything that shows it, then the layout and the data's shape.

        `window` is the name of the argument `window_size`: "kernel_size" or "pool_size".
        """
        data, shape = args.arrays[0], args.shapes[0]
        weight_shape = args.shapes[1] if len(args.shapes) > 1 else None
        rank = validation.rank(
            {
                "layout": None if layout is None else validation.rank_of_layout(layout),
                window: len(window_size) if validation.is_sequence(window_size) else None,
                "data.ndim - 2": None if shape is None else len(shape) - 2,
                "weight.ndim - 2": None if weight_shape is None else len(weight_shape) - 2,
                "input_size": len(input_size) if validation.is_sequence(input_size) else None,
            }
        )
        layout = validation.layout(layout, rank)
        channels_last = not layout.startswith("NC")
        if shape is None:
            shape = (None,) * (rank + 2)
        if channels_last:
            shape = tensors.shape_channels_first(shape)
        if input_size is not None:
            given = validation.per_axis("input_size", input_size, rank, 1, validation.LARGEST)
            for axis, (length, actual) in enumerate(zip(given, shape[2:])):
                validation.agree(f"input_size[{axis}]", length, "the data's length", actual)
            if None in shape[2:]:
                data = tensors.fixed(data, (None, *given, None) if channels_last else (None, None, *given))
            shape = shape[:2] + given
        return cls(args, data, layout, tuple(shape), layout == "NHWC" and tensors.use_of(data).device == "gpu")

    # -- the data

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.shape) - 2

    @property
    def size(self) -> Tuple[Optional[int], ...]:
        """The spatial lengths of the data."""
        return self.shape[2:]

    @property
    def channels_last(self) -> bool:
        """Whether the caller's layout ends in C."""
        return not self.layout.startswith("NC")

    @property
    def runs_last(self) -> bool:
        """Whether the operator is given the data as it is, with channels last."""
        return self.native_last and None not in self.size

    def graph_channels(self) -> Optional[int]:
        """The data's channels, inferred from the graph if the shape does not tell."""
        if self.shape[1] is not None or not isinstance(self.data, mx.sym.Symbol):
            return self.shape[1]
        return tensors.probed_channels(self.data, self.rank + 2, self.rank + 1 if self.channels_last else 1)

    # -- the weights

    def kernel(
        self, name: str, kernel_size: Any, axes: Mapping[str, Optional[int]]
    ) -> Tuple[Tuple[Optional[int], ...], Tuple[int, ...]]:
        """The checked shape of the weight, the second array, with channels first, None for unknown lengths; and the
        kernel size from the argument and from that shape, which must agree.

        With channels first its axes are these two, by what they mean and with their lengths (None for any), and then
        those of the kernel; with channels last the second is last.
        """
        operands.forbid_float16_on_cpu("data", self.data)
        first, second = axes
        meaning = f"({first}, *kernel_size, {second})" if self.channels_last else f"({first}, {second}, *kernel_size)"
        given = self.args.shapes[1] or (None,) * (self.rank + 2)
        shape = tensors.shape_channels_first(given) if self.channels_last else given
        if kernel_size is not None:
            size = validation.per_axis("kernel_size", kernel_size, self.rank, 1)
            for axis, (length, actual) in enumerate(zip(size, shape[2:])):
                validation.agree(f"kernel_size[{axis}]", length, f"the length of {name}", actual)
        elif None in shape[2:]:
            raise ValueError(f"kernel_size must be given if the shape of {name} is unknown; received kernel_size=None")
        else:
            size = tuple(shape[2:])
        expected = (axes[first], *size, axes[second]) if self.channels_last else (*axes.values(), *size)
        validation.shape(name, given, expected, meaning)
        return shape, size

    def check_bias(self, channels: int) -> None:
        """A bias, the last of the arrays, is (channels,)."""
        shape = self.args.shapes[-1]
        if shape is not None:
            validation.shape("bias", shape, (channels,), "(channels,)")

    # -- how it runs

    def planned(
        self,
        windows: Tuple[AnyWindow, ...],
        work: Work,
        operator: Callable[[Lowering, dict], Callable],
        *,
        weight_shape: Any = (),
        fill: str = "zero",
        refused: Tuple[str, ...] = (),
    ) -> Planned:
        """The call with its plan. `operator` gives the function that runs it from the lowering and what MXNet is told
        of the layout; `weight_shape` is that of a convolution, None if it is unknown."""
        args, record = self.args, current()
        ndim = self.rank + 2 if self.channels_last and not self.runs_last else 0
        purpose, device = tensors.purpose_and_device(self.data)
        in_channels = self.shape[1] or work.in_channels
        if in_channels is None and None in self.size:
            in_channels = self.graph_channels()
        plain = tensors.is_input(self.data)
        work = replace(work, batch=self.shape[0], in_channels=in_channels, plain=plain, purpose=purpose, device=device)
        known: Set[Optional[str]] = {None}
        if weight_shape is not None:
            known |= {WEIGHT} if None in weight_shape else {WEIGHT, WEIGHT_SHAPE}
        static = _allowed(work.operator, frozenset(known | {CHANNELS}), refused)  # a shape has channels
        allowed = static if in_channels is not None else _allowed(work.operator, frozenset(known), refused)
        if self.native_last:
            static = tuple(name for name in static if STRATEGIES[name].channels_last)
        if record.windows_noted:
            plan = first_plan(windows, work.operator, [name for name in _NOTED if name not in refused])
        else:
            plan = planner.choose(windows, work, static if self.runs_last else allowed)
        if record.decisions is not None:
            record.decisions.append(planner.Decision(windows, work, static, plan, self.channels_last))
        first = 1 if self.runs_last else SPATIAL
        lowering = Lowering(args.F, windows, plan, in_channels, fill, first, plain)
        run = operator(lowering, {"layout": self.layout} if self.runs_last else {})
        return Planned(args.F, run, ndim, self.data if args.key is None else None)

    def check_windows(self, operator: str, channels: Optional[int], windows: Tuple[AnyWindow, ...]) -> None:
        """That there is a graph for every size, if it needs one, and no array of more elements than MXNet can count,
        the output with so many channels included."""
        if None in self.size and operator != "transposed":
            check_dynamic(windows, operator in POOLS)
        padded, outputs = lengths(windows)
        validation.elements("the padded data", (*self.shape[:2], *padded))
        validation.elements("the output", (self.shape[0], channels, *outputs))


@functools.lru_cache(maxsize=None)
def _allowed(operator: str, known: FrozenSet[Optional[str]], refused: Tuple[str, ...]) -> Tuple[str, ...]:
    """The strategies whose graphs can be built with what is known."""
    names = strategies_for(operator)
    return tuple(name for name in names if name not in refused and STRATEGIES[name].needs in known)


def channel_count(name: str, given: Any, source: str, actual: Optional[int], array: str) -> int:
    """A number of channels from an argument and from the shape of an array, which must agree."""
    if given is None and actual is None:
        raise ValueError(f"{name} must be given if the shape of {array} is unknown; received {name}=None")
    number = actual if given is None else validation.integer(name, given, 1)
    validation.agree(name, number, source, actual)
    return number
