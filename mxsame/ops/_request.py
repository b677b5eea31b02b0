"""What is asked of MXNet: the arrays of a call and its arguments, checked against each other."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Tuple, TypeVar

from mxsame import operands, tensors, validation
from mxsame._mxnet import mx
from mxsame.ops._operator import Operator, without_defaults
from mxsame.plan import POOLS, Plan
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.costs import Work
from mxsame.plan.windows import Windows, check_dynamic, lengths
from mxsame.validation import Shape


class Request:
    """A call with its arrays: all that follows from both, checked before MXNet sees any of it.

    Parameters
    ----------
    args : mxsame.operands.Operands
        In the layout of the caller; a graph that was given its size refuses another.
    call
        The record of the arguments; the attribute `call` has them checked, and what they lack from the arrays.

    Attributes
    ----------
    windows, work
        The geometry, and what the operator has to do.
    native_last : bool
        Whether MXNet's operator runs this layout, channels last, on the data's device.
    refused
        Strategies that are not exact, or do not run, on the device.
    noted_strategies
        Those for a graph in another format: their steps are next to an operator with its own kernel.
    fill : "zero" or "edge"
        As in :class:`mxsame.plan.steps.Setting`.
    pads
        Zeros that are data.
    """

    windows: Windows
    work: Work
    refused: Tuple[str, ...] = ()
    noted_strategies: Tuple[str, ...] = ("native", "pad", "slice", "dilate")
    fill = "zero"
    pads: Tuple[validation.Pair, ...] = ()

    def __init__(self, args: operands.Operands, call: Any):
        self.args, self.target, self.data, self.in_graph = args, args.target, args.arrays[0], args.F is mx.sym
        self.weight_shape = args.shapes[1] if len(args.shapes) > 1 else ()  # None if it is not known
        shape, window = args.shapes[0], "pool_size" if "pool_size" in call._fields else "kernel_size"
        sizes = {name: value for name in (window, "input_size") if validation.is_sequence(value := getattr(call, name))}
        self.rank = validation.rank(
            {
                "len(layout) - 2": None if call.layout is None else validation.rank_of_layout(call.layout),
                "data.ndim - 2": None if shape is None else len(shape) - 2,
                "weight.ndim - 2": len(self.weight_shape) - 2 if self.weight_shape else None,
                **{f"len({name})": len(size) for name, size in sizes.items()},
            }
        )
        self.layout: str = validation.layout(call.layout, self.rank)
        self.channels_last = validation.has_channels_last(self.layout)
        self.native_last = self.channels_last and tensors.runs_channels_last(self.rank, self.target.device)
        shape = shape or (None,) * (self.rank + 2)
        self.shape: Shape = tuple(tensors.shape_channels_first(shape) if self.channels_last else shape)
        if call.input_size is not None:
            self._fix_size(call.input_size)
        self.call = call.checked(self.rank)

    def _fix_size(self, input_size: Any) -> None:
        """The data has this size, and a graph refuses any other."""
        given = validation.per_axis("input_size", input_size, self.rank, 1, validation.LARGEST)
        for axis, (length, actual) in enumerate(zip(given, self.size)):
            validation.agree(f"input_size[{axis}]", length, "the data's length", actual)
        if None in self.size:
            lengths = (None, *given, None) if self.channels_last else (None, None, *given)
            data = tensors.fixed(self.data, lengths)
            self.args = self.args._replace(arrays=(data, *self.args.arrays[1:]))
        self.shape = self.shape[:2] + given

    # -- the data

    @property
    def size(self) -> Shape:
        """The spatial lengths of the data."""
        return self.shape[2:]

    def graph_channels(self) -> Optional[int]:
        """The data's channels; if its shape does not have them, as the graph implies them."""
        if self.shape[1] is not None or not self.in_graph:
            return self.shape[1]
        return tensors.probed_channels(self.data, self.rank, self.channels_last)

    @property
    def runs_last(self) -> bool:
        """Whether the operator is given the data as it is, with channels last."""
        return self.native_last and None not in self.size

    def plan_for(self, windows: Windows, operator: str, in_channels: Optional[int] = None, **more: Any) -> None:
        """Set `windows` and `work`; `more` are fields of :class:`mxsame.planner.Work`. There must be a graph for
        every size, if there is to be one, and no array of more elements than MXNet can count."""
        if None in self.size and operator != "transposed":
            check_dynamic(windows, operator in POOLS)
        padded, outputs = lengths(windows)
        validation.elements("the padded data", (*self.shape[:2], *padded))
        validation.elements("the output", (self.shape[0], more.get("channels", self.shape[1]), *outputs))
        in_channels = self.shape[1] or in_channels
        if in_channels is None and None in self.size:
            in_channels = self.graph_channels()
        more.update(plain=tensors.is_input(self.data), purpose=self.target.planned_for, device=self.target.where)
        self.windows, self.work = windows, Work(operator, self.shape[0], in_channels, **more)

    def operator(self, plan: Plan, note: Optional[str] = None) -> Operator:
        """MXNet's operator by a plan."""
        raise NotImplementedError

    def common(self, plan: Plan, note: Optional[str], name: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
        """The fields of all operators."""
        layout = {"layout": self.layout} if self.runs_last else {}
        return {
            **{"windows": self.windows, "channels": self.work.in_channels, "fill": self.fill, "pads": self.pads},
            **{"plain": self.work.plain, "on_cpu": self.work.device == "cpu", "plan": plan, "note": note, "name": name},
            "first": 1 if self.runs_last else SPATIAL,
            "turned": self.channels_last and not self.runs_last,
            "arguments": without_defaults(name, {**arguments, **layout}, self.in_graph),
        }

    # -- the weights

    def kernel(self, axes: Mapping[str, Optional[int]]) -> Shape:
        """The checked shape of the weight, the second array, with channels first, None for unknown lengths. The kernel
        size of the call and that shape must agree, and one may lack.

        With channels first its axes are these two, by what they mean and with their lengths (None for any), and then
        those of the kernel; with channels last the second is last.
        """
        operands.forbid_float16_on_cpu("data", self.data)
        name, kernel_size, (first, second) = self.args.names[1], self.call.kernel_size, axes
        meaning = f"({first}, *kernel_size, {second})" if self.channels_last else f"({first}, {second}, *kernel_size)"
        given = self.weight_shape or (None,) * (self.rank + 2)
        shape: Shape = tensors.shape_channels_first(given) if self.channels_last else given
        if kernel_size is not None:
            size = kernel_size
            for axis, (length, actual) in enumerate(zip(size, shape[2:])):
                validation.agree(f"kernel_size[{axis}]", length, f"the length of {name}", actual)
        elif None in shape[2:]:
            raise ValueError(f"kernel_size must be given if the shape of {name} is unknown; received kernel_size=None")
        else:
            size = tuple(length for length in shape[2:] if length is not None)
        expected = (axes[first], *size, axes[second]) if self.channels_last else (*axes.values(), *size)
        validation.shape(name, given, expected, meaning)
        self.call = self.call._replace(kernel_size=size)
        return shape


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
