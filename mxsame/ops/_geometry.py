"""The geometry of a call: its arrays and arguments, checked against each other before MXNet sees any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, TypeVar

from mxsame import operands, tensors, validation
from mxsame._mxnet import mx
from mxsame.plan import POOLS
from mxsame.plan.costs import Work
from mxsame.plan.windows import Windows, check_dynamic, lengths
from mxsame.target import Target
from mxsame.validation import Shape


@dataclass(frozen=True)
class Geometry:
    """The arrays of a call, and their layout.

    Parameters
    ----------
    args : mxsame.operands.Operands
        In the layout of the caller; a graph that was told its size refuses another.
    layout : str
    shape : tuple
        (batch, channels, *size) of the data, None for unknown lengths.
    """

    args: operands.Operands
    layout: str
    shape: Tuple[Optional[int], ...]

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
        channels_last = validation.has_channels_last(layout)
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
                args = args._replace(arrays=(data, *args.arrays[1:]))
            shape = shape[:2] + given
        return cls(args, layout, tuple(shape))

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
        return validation.has_channels_last(self.layout)

    @property
    def native_last(self) -> bool:
        """Whether MXNet's operators run this layout, channels last, on the data's device."""
        return self.channels_last and tensors.runs_channels_last(self.rank, self.target.device)

    @property
    def target(self) -> Target:
        """What the operator is for."""
        return self.args.target

    @property
    def in_graph(self) -> bool:
        """Whether the arrays are Symbols."""
        return bool(self.args.F is mx.sym)

    @property
    def data(self) -> Any:
        """The first of the arrays."""
        return self.args.arrays[0]

    def graph_channels(self) -> Optional[int]:
        """The data's channels, inferred from the graph if the shape does not tell."""
        if self.shape[1] is not None or not self.in_graph:
            return self.shape[1]
        return tensors.probed_channels(self.data, self.rank + 2, self.rank + 1 if self.channels_last else 1)

    def work(self, operator: str, in_channels: Optional[int] = None, **more: Any) -> Work:
        """What an operator has to do; `more` are fields of :class:`mxsame.planner.Work`."""
        in_channels = self.shape[1] or in_channels
        if in_channels is None and None in self.size:
            in_channels = self.graph_channels()
        target, plain = self.target, tensors.is_input(self.data)
        return Work(
            operator, self.shape[0], in_channels, plain=plain, purpose=target.planned_for, device=target.where, **more
        )

    # -- the weights

    @property
    def weight_shape(self) -> Optional[Tuple[Optional[int], ...]]:
        """That of a weight, the second array; None if it is not known, and () if there is none."""
        return self.args.shapes[1] if len(self.args.shapes) > 1 else ()

    def kernel(
        self, kernel_size: Any, axes: Mapping[str, Optional[int]]
    ) -> Tuple[Tuple[Optional[int], ...], Tuple[int, ...]]:
        """The checked shape of the weight, the second array, with channels first, None for unknown lengths; and the
        kernel size from the argument and from that shape, which must agree.

        With channels first its axes are these two, by what they mean and with their lengths (None for any), and then
        those of the kernel; with channels last the second is last.
        """
        operands.forbid_float16_on_cpu("data", self.data)
        name, (first, second) = self.args.names[1], axes
        meaning = f"({first}, *kernel_size, {second})" if self.channels_last else f"({first}, {second}, *kernel_size)"
        given = self.weight_shape or (None,) * (self.rank + 2)
        shape: Shape = tensors.shape_channels_first(given) if self.channels_last else given
        if kernel_size is not None:
            size = validation.per_axis("kernel_size", kernel_size, self.rank, 1)
            for axis, (length, actual) in enumerate(zip(size, shape[2:])):
                validation.agree(f"kernel_size[{axis}]", length, f"the length of {name}", actual)
        elif None in shape[2:]:
            raise ValueError(f"kernel_size must be given if the shape of {name} is unknown; received kernel_size=None")
        else:
            size = tuple(length for length in shape[2:] if length is not None)
        expected = (axes[first], *size, axes[second]) if self.channels_last else (*axes.values(), *size)
        validation.shape(name, given, expected, meaning)
        return shape, size

    def check_bias(self, channels: int) -> None:
        """A bias, the last of the arrays, is (channels,)."""
        shape = self.args.shapes[-1]
        if shape is not None:
            validation.shape("bias", shape, (channels,), "(channels,)")

    def check_windows(self, operator: str, channels: Optional[int], windows: Windows) -> None:
        """That there is a graph for every size, if it needs one, and no array of more elements than MXNet can count,
        the output with so many channels included."""
        if None in self.size and operator != "transposed":
            check_dynamic(windows, operator in POOLS)
        padded, outputs = lengths(windows)
        validation.elements("the padded data", (*self.shape[:2], *padded))
        validation.elements("the output", (self.shape[0], channels, *outputs))


def _every_axis(name: str, value: Any, rank: int) -> Any:
    return validation.per_axis(name, value, rank, 0 if name == "output_padding" else 1)


def _count(name: str, value: Any, rank: int) -> int:
    return validation.integer(name, value, 1, 3 if name == "p_value" else validation.LARGEST)


CHECKS: Dict[str, Callable[[str, Any, int], Any]] = {  # of arguments, by name
    **dict.fromkeys(("kernel_size", "pool_size", "strides", "dilation", "output_padding"), _every_axis),
    **dict.fromkeys(("channels", "groups", "depth_multiplier", "p_value"), _count),
    "layout": lambda name, value, rank: validation.layout(value, rank),
    "ceil_mode": lambda name, value, rank: validation.flag(name, value),
}


Record = TypeVar("Record", bound=Any)


def canonical(call: Record, rank: int) -> Record:
    """The arguments of a call, checked and in one form for so many axes; None where it is a default. A padding is left
    as it is."""
    may_lack = {name for name, default in call._field_defaults.items() if default is None}
    given = {name: value for name, value in call._asdict().items() if value is not None or name not in may_lack}
    checked: Record = call._replace(**{name: CHECKS[name](name, given[name], rank) for name in given if name in CHECKS})
    return checked


def channel_count(name: str, given: Any, source: str, actual: Optional[int], array: str) -> int:
    """A number of channels from an argument and from the shape of an array, which must agree."""
    if given is None and actual is None:
        raise ValueError(f"{name} must be given if the shape of {array} is unknown; received {name}=None")
    number: int = actual if given is None else validation.integer(name, given, 1)  # type: ignore[assignment]
    validation.agree(name, number, source, actual)
    return number
