"""The steps of a plan around MXNet's operator, each in one place: what it does, how it runs, and what it costs.

A step serves all axes whose `AxisPlan` asks for it, at once. It runs on classic arrays or Symbols by the `F` that it is
given, `mx.nd` or `mx.sym`, so nothing is imported from MXNet here. Costs are nanoseconds on the CPU, added up by
`mxsame.planner.estimate`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Dict, Generic, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar

from mxsame.plan import arrays
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.axis_plan import AxisPlan, SelectorKernel
from mxsame.plan.costs import AXIS_OPERATORS, LOW_OPERATORS, CostInputs, Workload
from mxsame.plan.windows import Windows

GATHER_OPERATORS = 30

Value = TypeVar("Value")  # of a field of `AxisPlan`
Pair = Tuple[int, int]


class StepContext(NamedTuple):
    """The facts of an operator that the steps of its plan depend on.

    Parameters
    ----------
    windows
        The geometry along each axis.
    work : mxsame.planner.Workload
        Only shifting, picking, and concatenation in 3-D depend on its number of channels.
    spatial_axis : int
        The first spatial axis: 2 with channels first, 1 with channels last (`Strategy.channels_last`).
    fill : "zero" or "edge"
        What padding holds that becomes part of the data: zeros, or copies of the nearest element, which never win a
        maximum over a window that holds that element too.
    """

    windows: Windows
    work: Workload
    spatial_axis: int
    fill: str = "zero"

    @property
    def axes(self) -> range:
        """The spatial axes, with channels first."""
        return range(SPATIAL, SPATIAL + len(self.windows))

    def window(self, axis: int) -> Any:
        """Returns the window along one of `axes`."""
        return self.windows[axis - SPATIAL]

    def row(self, F: Any, data: Any, axis: int) -> Any:
        """Returns a row of the data along an axis: the first element of all other axes."""
        return arrays.take_first(F, data, [other for other in range(self.axes.stop) if other != axis])


class Step(Generic[Value]):
    """A change along some axes: `before` changes the data, `weight` the kernel and `after` the output.

    `plans` has the plans of all axes, `values` those of the step's own field of `AxisPlan`, for the axes that have the
    step. Costs are estimated for a `layer`.
    """

    fills = False  # padding becomes part of the data
    reorders = False  # data in oneDNN's blocks is brought into the plain layout, and back

    def __init__(self, plans: Mapping[int, AxisPlan], values: Mapping[int, Value]):
        self.plans, self.values, self.axes = plans, values, list(values)

    def before(self, F: Any, context: StepContext, data: Any) -> Any:
        return data

    def weight(self, F: Any, context: StepContext, weight: Any, data: Any) -> Any:
        return weight

    def after(self, F: Any, context: StepContext, out: Any, data: Any) -> Any:
        """Returns the changed output; `data` is the data before all steps."""
        return out

    def cost(self, layer: CostInputs) -> float:
        """Returns nanoseconds for the changes of data and output."""
        return 0.0

    def weight_cost(self, layer: CostInputs) -> float:
        """Returns nanoseconds for the change of the kernel."""
        return 0.0

    def backward_cost(self, layer: CostInputs) -> float:
        """Returns nanoseconds for all gradients."""
        return self.cost(layer)


class Flip(Step[bool]):
    """The reversal of data, kernel and output."""

    reorders = True

    def before(self, F: Any, context: StepContext, data: Any) -> Any:
        """Returns the data reversed, by a slice that steps backwards: it is many times faster than `reverse`."""
        whole = (None,) * (SPATIAL + len(self.plans))
        step = tuple(-1 if axis in self.axes else 1 for axis in range(len(whole)))
        return F.slice(data, begin=whole, end=whole, step=step)

    def weight(self, F: Any, context: StepContext, weight: Any, data: Any) -> Any:
        return arrays.reverse_kernel(F, weight, self.axes)

    def after(self, F: Any, context: StepContext, out: Any, data: Any) -> Any:
        return self.before(F, context, out)

    def cost(self, layer: CostInputs) -> float:
        per_result = layer.costs.flip + layer.output_in_blocks * layer.costs.reorder
        return self.backward_cost(layer) + per_result * layer.results + layer.costs.operator

    def weight_cost(self, layer: CostInputs) -> float:
        return layer.costs.weight * layer.weights + 2 * layer.costs.operator

    def backward_cost(self, layer: CostInputs) -> float:
        return layer.costs.flip * layer.inputs + layer.costs.operator


class Dilate(Step[int]):
    """The addition of zeros between the elements of a transposed convolution's data. It is never chosen by its cost."""

    reorders = True

    def before(self, F: Any, context: StepContext, data: Any) -> Any:
        """Returns (n-1)*stride + 1 elements for n."""
        for axis, stride in self.values.items():
            if stride == 1:
                continue
            elements = F.expand_dims(data, axis=axis + 1)
            zeros = F.repeat(F.zeros_like(elements), repeats=stride - 1, axis=axis + 1)
            merged = F.reshape(F.concat(elements, zeros, dim=axis + 1), shape=(0,) * axis + (-3,) + (-2,))
            data = F.slice_axis(merged, axis=axis, begin=0, end=1 - stride)
        return data


class Concat(Step[Pair]):
    """The concatenation of elements to the data."""

    fills = reorders = True

    def before(self, F: Any, context: StepContext, data: Any) -> Any:
        return self.concatenate(F, context, data, {})

    def concatenate(self, F: Any, context: StepContext, data: Any, likes: Mapping[int, Any]) -> Any:
        """Returns the data with the elements. `likes` has arrays that are as long as what is concatenated before the
        data, by axis. The data get four axes first: only then oneDNN concatenates, ten times as fast as MXNet."""
        rank, first = len(self.plans), context.spatial_axis
        back: Tuple[int, ...] = ()
        if rank == 1:
            data, first, back = F.expand_dims(data, axis=first), first + 1, (0, -3, 0)
        elif rank == 3 and context.work.in_channels is not None:
            data, first, back = F.reshape(data, shape=(-3, -2)), first - 1, (-4, -1, context.work.in_channels, -2)
        for axis, counts in self.values.items():
            data = arrays.concatenate(F, data, axis - SPATIAL + first, counts, context.fill, likes.get(axis))
        return F.reshape(data, shape=back) if back else data

    def cost(self, layer: CostInputs) -> float:
        costs = layer.costs
        rows = sum(1 / math.prod(layer.size[axis - SPATIAL :]) for axis in self.axes)
        per_element = len(self.axes) * costs.concat + rows * costs.concat_row
        return per_element * layer.inputs + 3 * len(self.axes) * costs.operator

    def backward_cost(self, layer: CostInputs) -> float:
        per_element = layer.costs.back_line if layer.rank == 1 else layer.costs.concat_back
        return len(self.axes) * (per_element * layer.inputs + 3 * layer.costs.operator)


class Lengthen(Concat):
    """The concatenation of SAME's low and more elements before the data, and of others after it."""

    def before(self, F: Any, context: StepContext, data: Any) -> Any:
        """Returns the data with the elements. MXNet infers its length too late for pooling operators, so it gets the
        shape of an array for which the length is inferred at once."""
        like, starts = F.BlockGrad(arrays.take_first_block(F, data, self.axes)), {}
        for axis, (extra, after) in self.values.items():
            starts[axis], length = _infer_lengths(F, context, data, axis, extra)
            length = arrays.concatenate(F, length, 0, (0, after)) if after else length
            like = F.broadcast_like(like, F.BlockGrad(length), lhs_axes=(axis,), rhs_axes=(0,))
        return F._internal._identity_with_attr_like_rhs(self.concatenate(F, context, data, starts), like)

    def cost(self, layer: CostInputs) -> float:
        operators = (LOW_OPERATORS + AXIS_OPERATORS) * len(self.axes)
        return super().cost(layer) + 2 * layer.costs.touch * layer.inputs + operators * layer.costs.operator


class Pad(Step[Pair]):
    """The addition of elements by MXNet's pad operator."""

    fills = reorders = True

    def before(self, F: Any, context: StepContext, data: Any) -> Any:
        pads = [plan.pad_operator for plan in self.plans.values()]
        return arrays.pad(F, data, pads, context.fill, context.spatial_axis)

    def cost(self, layer: CostInputs) -> float:
        return layer.costs.gather * layer.inputs + layer.costs.operator


class Gather(Step[bool]):
    """The look-up of the data with its padding in the data: out*s + max(ke - s, 0) elements along each axis."""

    fills = reorders = True

    def before(self, F: Any, context: StepContext, data: Any) -> Any:
        """Returns the padded data. Each axis in turn becomes the first, along which whole rows are copied: a look-up
        along any other axis goes element by element, many times slower."""
        whole, order = data, list(range(SPATIAL + len(self.plans)))
        for axis in self.axes:
            positions = self._positions(F, context, whole, axis)
            data = F.transpose(data, axes=(order.index(axis), *(at for at, one in enumerate(order) if one != axis)))
            order = [axis, *(one for one in order if one != axis)]
            if context.fill == "zero":
                data, positions = arrays.concatenate(F, data, 0, (1, 1)), positions + 1
            data = F.take(data, F.BlockGrad(positions), axis=0, mode="clip")
        return F.transpose(data, axes=tuple(map(order.index, range(len(order)))))

    def _positions(self, F: Any, context: StepContext, data: Any, axis: int) -> Any:
        """Returns the positions -low, 1-low, .. that the windows read along an axis."""
        window = context.window(axis)
        row = F.contrib.arange_like(F.cast(context.row(F, data, axis), dtype="float64"), axis=axis)
        starts = F.slice(row, begin=(None,), end=(None,), step=(window.stride,))
        positions = F.repeat(starts, repeats=window.stride)
        if window.effective_kernel_size > window.stride:
            more = F.zeros_like(F.slice_axis(row, axis=0, begin=0, end=1))
            more = F.repeat(more, repeats=window.effective_kernel_size - window.stride)
            positions = F.concat(positions, more, dim=0)
        return F.broadcast_sub(F.contrib.arange_like(positions, axis=0), _low_pad(F, context, data, axis))

    def cost(self, layer: CostInputs) -> float:
        slowly = 3 if layer.rank == 3 else 1  # five axes are transposed
        return slowly * layer.costs.gather * layer.inputs + GATHER_OPERATORS * len(self.axes) * layer.costs.operator


class Shift(Step[SelectorKernel]):
    """The shift of the data within its padding to where its low is the same for every size."""

    def before(self, F: Any, context: StepContext, data: Any) -> Any:
        return _move_channels(F, context, data, data, self.values, [1] * len(self.plans))

    def cost(self, layer: CostInputs) -> float:
        return layer.moving(self.values, layer.inputs)


class Zeros(Step[Pair]):
    """The concatenation of (front, back) zeros to the kernel."""

    def weight(self, F: Any, context: StepContext, weight: Any, data: Any) -> Any:
        """Returns the kernel with the zeros. On the CPU, its last axes go to the front first: then whole blocks are
        copied, not a few elements at a time. MXNet transposes five axes too slowly for that."""
        rank, first = len(self.plans), context.spatial_axis
        moves = first == SPATIAL and rank < 3 and context.work.device == "cpu"
        if moves:
            weight = F.transpose(arrays.copy_weight(F, weight), axes=(*range(first, first + rank), 0, 1))
            first = 0
        for axis, counts in self.values.items():
            weight = arrays.concatenate(F, weight, axis - SPATIAL + first, counts)
        return arrays.copy_weight(F, F.transpose(weight, axes=(rank, rank + 1, *range(rank)))) if moves else weight

    def weight_cost(self, layer: CostInputs) -> float:
        return layer.costs.weight * layer.weights + (4 + 3 * len(self.axes)) * layer.costs.operator

    def backward_cost(self, layer: CostInputs) -> float:
        return layer.costs.weight * layer.weights


class Crop(Step[Tuple[int, Optional[int]]]):
    """The crop of (start, end) elements from the output; an end of None depends on the size."""

    def __init__(self, plans: Mapping[int, AxisPlan], values: Mapping[int, Tuple[int, Optional[int]]]):
        super().__init__(plans, values)
        self._dynamic = [axis for axis, (_, end) in values.items() if end is None]
        self._is_static = any(map(any, values.values()))

    def after(self, F: Any, context: StepContext, out: Any, data: Any) -> Any:
        """Returns the output cropped, along dynamic axes to the lengths of a thin array of ceil(n/s) elements."""
        crops = [(plan.crop[0], plan.static_end) for plan in self.plans.values()]
        out = arrays.crop(F, out, crops, context.spatial_axis)
        if not self._dynamic:
            return out
        whole = (None,) * (SPATIAL + len(self.plans))
        step = (1, 1, *(window.stride for window in context.windows))
        like = F.slice(arrays.take_first(F, data, (0, 1)), begin=whole, end=whole, step=step)
        return F.slice_like(out, like, axes=self._dynamic)

    def cost(self, layer: CostInputs) -> float:
        static, dynamic = self._is_static, bool(self._dynamic)
        slices = 3 if layer.rank == 3 and layer.output_in_blocks else 1  # five axes are brought out of the blocks first
        per_result = (static + dynamic) * slices * layer.costs.slice
        return per_result * layer.results + (static + 4 * dynamic) * layer.costs.operator

    def backward_cost(self, layer: CostInputs) -> float:
        return (self._is_static + 2 * bool(self._dynamic)) * layer.costs.slice_back * layer.results


class Pick(Step[SelectorKernel]):
    """The choice of the outputs that SAME has for the size, from those of windows at every position."""

    def after(self, F: Any, context: StepContext, out: Any, data: Any) -> Any:
        strides = [window.stride if plan.pick else 1 for plan, window in zip(self.plans.values(), context.windows)]
        return _move_channels(F, context, out, data, self.values, strides)

    def cost(self, layer: CostInputs) -> float:
        return layer.moving(self.values, layer.results)

    def backward_cost(self, layer: CostInputs) -> float:
        return 0.0


# By the field of `AxisPlan`. Before the operator they run in this order, after it in the opposite one.
STEPS: Dict[str, Type[Step[Any]]] = {
    "flip": Flip,
    "dilate": Dilate,
    "concat": Concat,
    "lengthen": Lengthen,
    "gather": Gather,
    "shift": Shift,
    "pad_operator": Pad,  # after all that reads the size off the data
    "zeros": Zeros,
    "crop": Crop,
    "pick": Pick,
}


# -- dynamic shapes: the graph reads a size off the data when it runs, in float64, which is exact for any length


def _low_pad(F: Any, context: StepContext, data: Any, axis: int) -> Any:
    """Returns the number of padding elements before the data along an axis, as an array (1,). It is half of all, and
    rounded up if the extra one is at the start.

    (out-1)s + ke - n is ke-1 - (n-1) mod s, as (out-1)s is the last multiple of s below n. Of data in blocks n is the
    length of a thin row.
    """
    window, others = context.window(axis), [other for other in range(context.axes.stop) if other != axis]
    row = data if context.work.plain else arrays.take_first_block(F, data, others)
    length = F.cast(F.slice_axis(F.shape_array(row), axis=0, begin=axis, end=axis + 1), dtype="float64")
    total = (window.effective_kernel_size - 1) - (length - 1) % window.stride
    if window.effective_kernel_size < window.stride:
        total = F.relu(total)
    half = total / 2
    return F.ceil(half) if window.extra_at_start else F.floor(half)


def _infer_lengths(F: Any, context: StepContext, data: Any, axis: int, extra: int) -> Tuple[Any, Any]:
    """Returns two arrays: `extra` + low zeros, where low is SAME's padding before the data along an axis, and zeros as
    many as these and the data.

    MXNet infers these lengths with the shapes. n + low is half of the sum of (out-1)s + ke and n, rounded as low is.
    The first array is what is missing from that sum to n: of MXNet's operators, only `_rnn_param_concat` infers it.
    """
    window = context.window(axis)
    missing = window.effective_kernel_size - window.stride + 2 * extra
    row = F.zeros_like(F.reshape(context.row(F, data, axis), shape=(-1,)))
    starts = F.tile(F.slice(row, begin=(None,), end=(None,), step=(window.stride,)), reps=(window.stride,))
    twice = F.concat(starts, arrays.concatenate(F, row, 0, (0, missing)), dim=0)
    half = F.slice(twice, begin=(0 if window.extra_at_start else 1,), end=(None,), step=(2,))
    start = F._internal._zeros_without_dtype(shape=(-1,))
    return start, F.elemwise_add(F._internal._rnn_param_concat(start, row, dim=0), half)


def _single_one(F: Any, context: StepContext, data: Any, ones: Mapping[int, SelectorKernel]) -> Any:
    r"""Returns a kernel (1, 1, \*lengths) of zeros and a one, which is at the right position for the size of `data`."""
    ndim, chosen = context.axes.stop, None
    dynamic = [axis for axis in ones if context.window(axis).size is None]
    for axis in dynamic:
        row = F.one_hot(ones[axis].reach - _low_pad(F, context, data, axis), depth=ones[axis].length)
        row = F.reshape(row, shape=tuple(-1 if other == axis else 1 for other in range(ndim)))
        chosen = row if chosen is None else F.broadcast_mul(chosen, row)
    kernel = F.ones_like(arrays.take_first(F, data, range(ndim)))  # of its type and device
    if chosen is not None:
        filled = F.tile(kernel, reps=tuple(ones[axis].length if axis in dynamic else 1 for axis in range(ndim)))
        kernel = F.where(chosen, filled, F.zeros_like(filled))
    for axis, one in ones.items():
        window = context.window(axis)
        if window.size is not None:
            before = one.reach - window.pads(window.size)[0]
            kernel = arrays.concatenate(F, kernel, axis, (before, one.length - 1 - before))
    return F.BlockGrad(kernel)


def _move_channels(
    F: Any, context: StepContext, array: Any, data: Any, ones: Mapping[int, SelectorKernel], strides: Sequence[int]
) -> Any:
    """Returns the array moved along some axes, by a depthwise convolution whose kernel has a single one. Its position
    follows from the size of the data."""
    kernel, channels = _single_one(F, context, data, ones), context.work.in_channels
    lengths = [ones[axis].length if axis in ones else 1 for axis in context.axes]
    pads = tuple(ones[axis].zeros if axis in ones else 0 for axis in context.axes)
    return arrays.convolve_channels(F, array, kernel, channels, lengths, stride=tuple(strides), pad=pads)


@functools.lru_cache(maxsize=4096)
def steps_of(axes: Tuple[AxisPlan, ...]) -> Tuple[Step[Any], ...]:
    """Returns the steps of a plan: those whose field is not empty for some axis."""
    plans, steps = dict(enumerate(axes, SPATIAL)), []
    for field, step in STEPS.items():
        values = {axis: getattr(plan, field) for axis, plan in plans.items()}
        asked = {axis: value for axis, value in values.items() if value != getattr(AxisPlan, field)}
        if asked:
            steps.append(step(plans, asked))
    return tuple(steps)
