"""What the operators' arguments have in common: rank, layout, sizes, windows. Checked here, before MXNet sees any."""

from __future__ import annotations

import contextlib
import contextvars
from dataclasses import replace
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence

from mxsame import padding as arithmetic
from mxsame import plan as planning
from mxsame import planner, validation
from mxsame._mxnet import mx
from mxsame.ops import _arrays, _run
from mxsame.plan import Window
from mxsame.planner import Work

MOST_RESIDUES = 4096  # a graph for every size is checked for one size of each residue modulo the stride
CONVOLUTION_WORDS = {1: (*validation.WORDS, "causal"), 2: validation.WORDS, 3: validation.WORDS}


class Geometry(NamedTuple):
    """The data, and what is known of it, channels first."""

    data: Any
    num_spatial_dims: int
    layout: str
    channels_last: bool
    data_shape: tuple  # (batch, channels, *size), None for what is unknown
    knows_last: bool = False  # whether MXNet's operators run this layout, channels last, on the data's device

    @property
    def runs_last(self) -> bool:
        """Whether the operator is given the data as it is, with channels last."""
        return self.knows_last and None not in self.size

    @property
    def first(self) -> int:
        """The first spatial axis of what the operator is given."""
        return 1 if self.runs_last else _run.SPATIAL

    @property
    def operator_layout(self) -> dict:
        """What the operator is told of it."""
        return {"layout": self.layout} if self.runs_last else {}

    def inward(self, F: Any, array: Any) -> Any:
        """Data or a weight as the operator is given it."""
        return _arrays.channels_first(F, array, self.num_spatial_dims + 2) if self._turns else array

    def outward(self, F: Any, out: Any) -> Any:
        """An output as the user is given it."""
        return _arrays.channels_last(F, out, self.num_spatial_dims + 2) if self._turns else out

    @property
    def _turns(self) -> bool:
        return self.channels_last and not self.runs_last

    @property
    def size(self) -> tuple:
        return self.data_shape[2:]

    def windows(
        self,
        channels: Optional[int],
        kernel_size: tuple,
        strides: tuple,
        dilation: tuple,
        padding: Any,
        ceil_mode: bool = False,
    ) -> list:
        """One checked `Window` per axis, of an operator that gives so many channels."""
        entries = []
        for axis in range(self.num_spatial_dims):
            pads: Any = padding if isinstance(padding, str) else padding[axis]
            if pads not in arithmetic.SIZE_DEPENDENT:
                pads = arithmetic.resolve_pads(1, kernel_size[axis], strides[axis], dilation[axis], pads)
            window = Window(self.size[axis], kernel_size[axis], strides[axis], dilation[axis], pads, ceil_mode)
            arithmetic.effective_kernel_size(kernel_size[axis], dilation[axis])
            if window.size is not None:  # the rule, with the user's own words for the padding
                arithmetic.output_size(window.size, *(window.kernel_size, window.stride, window.dilation), pads)
            elif pads == arithmetic.KERAS_MXNET and window.stride > window.effective_kernel_size + 1:
                raise ValueError(
                    "keras-mxnet cannot run every size with a stride so much longer than the kernel; give input_size; "
                    f"{validation.received(strides=strides, kernel_size=kernel_size, dilation=dilation)}"
                )
            elif window.stride > MOST_RESIDUES:
                raise ValueError(
                    f"strides must be <= {MOST_RESIDUES} where the input size is unknown; give input_size; "
                    f"{validation.received(strides=strides)}"
                )
            entries.append(window)
        padded = [None if w.size is None or isinstance(w.padding, str) else w.size + sum(w.padding) for w in entries]
        validation.elements("the padded data", (*self.data_shape[:2], *padded))
        outputs = [None if w.size is None else w.outputs(w.size) for w in entries]
        validation.elements("the output", (self.data_shape[0], channels, *outputs))
        return entries


def geometry(
    args: _arrays.Arguments, layout: Any, window_name: str, window_size: Any, input_size: Any = None, weight: int = 1
) -> Geometry:
    """Work out the rank from everything that knows it, then the layout and the data's shape.

    `weight` is the place of the weight among the arrays, if there is one.
    """
    data, shape = args.arrays[0], args.shapes[0]
    weight_shape = args.shapes[weight] if len(args.shapes) > weight else None
    num_spatial_dims = validation.rank(
        {
            "layout": None if layout is None else validation.rank_of_layout(layout),
            window_name: len(window_size) if validation.is_sequence(window_size) else None,
            "data.ndim - 2": None if shape is None else len(shape) - 2,
            "weight.ndim - 2": None if weight_shape is None else len(weight_shape) - 2,
            "input_size": len(input_size) if validation.is_sequence(input_size) else None,
        }
    )
    layout = validation.layout(layout, num_spatial_dims)
    last = not layout.startswith("NC")
    if shape is None:
        shape = (None,) * (num_spatial_dims + 2)
    if last:
        shape = _arrays.shape_channels_first(shape)
    if input_size is not None:
        given = validation.per_axis("input_size", input_size, num_spatial_dims, 1, validation.LARGEST)
        for axis, (length, found) in enumerate(zip(given, shape[2:])):
            validation.agree(f"input_size[{axis}]", length, "the data's length", found)
        if None in shape[2:]:
            data = _arrays.fixed(data, (None, *given, None) if last else (None, None, *given))
        shape = shape[:2] + given
    return Geometry(data, num_spatial_dims, layout, last, shape, layout == "NHWC" and _arrays.is_on_gpu(data))


def graph_channels(geometry: Geometry) -> Optional[int]:
    """The data's channels, looked for in the graph where the shape does not tell."""
    if geometry.data_shape[1] is not None or not isinstance(geometry.data, mx.sym.Symbol):
        return geometry.data_shape[1]
    ndim = geometry.num_spatial_dims + 2
    return _arrays.probed_channels(geometry.data, ndim, ndim - 1 if geometry.channels_last else 1)


class Decision(NamedTuple):
    """That `data`, a Symbol, is run by `plan`; `remade` plans it for a shape."""

    data: Any
    plan: planning.Plan
    windows: tuple
    allowed: tuple  # where the sizes are known
    work: Work
    rules: Mapping[str, bool]
    channels_last: bool = False  # of `data`

    def remade(self, shape: Sequence[int]) -> tuple[planning.Plan, int]:
        """The plan, and the data's channels, which a layer may have in its graph as well."""
        batch, channels, *size = _arrays.shape_channels_first(shape) if self.channels_last else shape
        windows = [replace(window, size=length) for window, length in zip(self.windows, size)]
        work = replace(self.work, batch=batch, in_channels=channels)
        return planner.choose(windows, self.allowed, work, **self.rules), channels


_DECISIONS: contextvars.ContextVar[Optional[list]] = contextvars.ContextVar("mxsame_decisions", default=None)


@contextlib.contextmanager
def decisions() -> Iterator[list]:
    """Collects what is decided while a graph is built within the `with` block."""
    collected: list = []
    token = _DECISIONS.set(collected)
    try:
        yield collected
    finally:
        _DECISIONS.reset(token)


def decide(
    geometry: Geometry, data: Any, windows: Sequence[Window], allowed: Sequence[str], work: Work, **rules: bool
) -> planning.Plan:
    """The plan for `data`, which is as `inward` gives it; `rules` are those of `exact_plans`."""
    batch, in_channels = geometry.data_shape[:2]
    purpose, device = _arrays.purpose_and_device(data)
    work = replace(
        work,
        batch=batch,
        in_channels=in_channels or work.in_channels,
        plain=_arrays.is_input(data),
        purpose=purpose,
        device=device,
    )
    if device == "cudnn":
        return _done_by_the_operator(windows, allowed, work, rules)
    where_known = tuple(name for name in allowed if name in planning.LAST) if geometry.knows_last else tuple(allowed)
    plan = planner.choose(windows, where_known if geometry.runs_last else allowed, work, **rules)
    collected = _DECISIONS.get()
    if collected is not None:
        collected.append(Decision(data, plan, tuple(windows), where_known, work, rules, geometry.runs_last))
    return plan


def _done_by_the_operator(
    windows: Sequence[Window], allowed: Sequence[str], work: Work, rules: Mapping[str, bool]
) -> planning.Plan:
    """The plan that asks for nothing but the operator; for a GPU on which nothing else runs."""
    alone = tuple(name for name in allowed if name in planning.ALONE)
    for plan in planning.exact_plans(tuple(windows), alone, **rules).values():
        if plan.is_alone:
            return plan
    operator = {"conv": "a convolution", "max": "a max pooling", "avg": "an average pooling"}[work.operator]
    raise ValueError(
        f"{operator} whose padding cuDNN cannot do by itself must not be in a net for cuDNN alone; received "
        + ", ".join(map(str, windows))
    )


class Kernel(NamedTuple):
    """A weight's side of a convolution: its shape with channels first, and the kernel size."""

    shape: tuple
    size: tuple


def kernel(
    args: _arrays.Arguments,
    place: int,
    name: str,
    geometry: Geometry,
    kernel_size: Any,
    first_axes: Sequence[Optional[int]],
    meaning: str,
) -> Kernel:
    """The kernel size from the argument and from the weight, which must agree; the weight's shape checked.

    `first_axes` are the weight's lengths before (and, with channels last, after) the kernel's, None for unknown.
    """
    rank = geometry.num_spatial_dims
    shape = args.shapes[place]
    if shape is not None and len(shape) != rank + 2:
        validation.shape(name, shape, (None,) * (rank + 2), meaning)
    given = shape if shape is not None else (None,) * (rank + 2)
    shape = _arrays.shape_channels_first(given) if geometry.channels_last else given
    if kernel_size is not None:
        size = validation.per_axis("kernel_size", kernel_size, rank, 1)
        for axis, (length, found) in enumerate(zip(size, shape[2:])):
            validation.agree(f"kernel_size[{axis}]", length, f"the length of {name}", found)
    elif None in shape[2:]:
        raise ValueError(f"kernel_size must be given where the shape of {name} is unknown; received kernel_size=None")
    else:
        size = tuple(shape[2:])
    outputs, share = first_axes
    expected = (outputs, *size, share) if geometry.channels_last else (outputs, share, *size)
    validation.shape(name, given, expected, meaning)
    return Kernel(shape, size)


def check_bias(args: _arrays.Arguments, place: int, channels: Optional[int]) -> None:
    """A bias is (channels,)."""
    if args.shapes[place] is not None:
        validation.shape("bias", args.shapes[place], (channels,), "(channels,)")


def count(name: str, given: Any, source: str, found: Optional[int]) -> Optional[int]:
    """A number of channels from an argument and from a shape, which must agree; None where neither tells."""
    if given is None:
        return found
    number = validation.integer(name, given, 1)
    validation.agree(name, number, source, found)
    return number
