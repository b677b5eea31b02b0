"""Runs an operator by its plan: a `Recipe` applies the plan's steps before and after MXNet's operator.

A step handles all axes whose `AxisPlan` has it at once: one slice flips several axes. It runs on classic arrays or
Symbols through its argument `F`, `mx.nd` or `mx.sym`, so nothing is imported from MXNet here.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Dict, Generic, Mapping, Optional, Tuple, Type, TypeVar

from mxsame.plan import arrays
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.axis_plan import AxisPlan, OneHotKernel
from mxsame.plan.costs import Workload
from mxsame.plan.windows import Dims, Windows
from mxsame.validation import Pair

Value = TypeVar("Value")  # of a field of `AxisPlan`


@dataclass(frozen=True)
class Plan:
    """The plans of all axes of an operator.

    Two fields are for pooling operators: `convention` is MXNet's pooling_convention ("valid": floor, "full": ceil);
    `pairs_channels` is whether they get (N, C, W) reshaped to (N, C/2, 2, W)
    (see `mxsame.plan.choice.with_paired_channels`). `strategy` is the name of the one that it comes from.

    >>> Plan((AxisPlan(3, pad=1), AxisPlan(3, concat=(0, 1)))).pads_data
    True
    """

    axes: Tuple[AxisPlan, ...]
    convention: str = "valid"
    pairs_channels: bool = field(default=False, compare=False)  # follows from the plans of the layers before it
    strategy: str = field(default="", compare=False)

    @functools.cached_property
    def steps(self) -> Tuple[PlanStep[Any], ...]:
        """The steps around the operator."""
        return _steps_of(self.axes)

    @property
    def pads_data(self) -> bool:
        """Whether padding becomes part of the data, so that an average counts it."""
        return any(step.pads_data for step in self.steps)

    @property
    def dilates_input(self) -> bool:
        """Whether a transposed convolution runs as a convolution of the dilated input."""
        return any(axis.dilate for axis in self.axes)


@dataclass(frozen=True)
class Recipe:
    """How MXNet runs an operator: what is done before it, the attributes with which it runs, and what is done after it.

    A plan holds only numbers; a recipe adds everything that its steps need. Subclasses define `__call__`,
    which takes data in the caller's layout.

    Parameters
    ----------
    mxnet_operator : str
        The name of MXNet's operator.
    attributes : dict
        The keyword arguments of MXNet's operator.
    plan : mxsame.plan.Plan
        The steps around the operator.
    windows
        The geometry along each axis.
    work : mxsame.planner.Workload
        The workload that the plan was chosen for. Only the shift, pick and 3-D concat steps depend on its number of
        channels.
    spatial_axis : int
        The first spatial axis of the data that MXNet's operator gets: 2 with channels first, 1 with channels last.
    transposes : bool
        Whether the caller's data has channels last and is transposed to channels first for MXNet's operator.
    attributes_suffice : bool
        Whether the attributes of MXNet's operator describe the windows for every size. If not, a graph for another
        format has the windows themselves (`mxsame.scope.with_windows`). Those of a convolution of dilated data do;
        those of Deconvolution do so only sometimes.
    fill : "zero" or "edge"
        The padding elements: zeros, or copies of the nearest element, which never change the
        maximum over a window that holds that element too.
    """

    mxnet_operator: str
    attributes: Dict[str, Any]
    plan: Plan
    windows: Windows
    work: Workload
    spatial_axis: int
    transposes: bool
    attributes_suffice: bool
    fill: str = "zero"

    def prepare_data(self, F: Any, data: Any) -> Any:
        """Returns the data after all steps before MXNet's operator."""
        for step in self.plan.steps:
            data = step.prepare_data(F, self, data)
        return data

    def prepare_weight(self, F: Any, weight: Any, data: Any) -> Any:
        """Returns the weight after all steps that change it."""
        for step in self.plan.steps:
            weight = step.prepare_weight(F, self, weight, data)
        return weight

    def finish(self, F: Any, out: Any, data: Any) -> Any:
        """Returns the output of MXNet's operator after all steps; `data` is the data before them."""
        for step in reversed(self.plan.steps):
            out = step.finish(F, self, out, data)
        return out

    @property
    def spatial_axes(self) -> range:
        """The spatial axes, with channels first."""
        return range(SPATIAL, SPATIAL + len(self.windows))

    def window(self, axis: int) -> Any:
        """Returns the window along one of `spatial_axes`."""
        return self.windows[axis - SPATIAL]

    def row(self, F: Any, data: Any, axis: int) -> Any:
        """Returns one line of the data along an axis, at index 0 of every other axis."""
        return arrays.take_first(F, data, [other for other in range(self.spatial_axes.stop) if other != axis])


class PlanStep(Generic[Value]):
    """A change to the data, the kernel or the output along some axes.

    `values` maps each axis that has this step to the value of its field in `AxisPlan`.
    """

    pads_data = False  # whether padding becomes part of the data
    needs_plain_layout = False  # whether data in oneDNN's blocked layout is reordered to the plain layout

    def __init__(self, values: Mapping[int, Value]):
        self.values, self.axes = values, list(values)

    def prepare_data(self, F: Any, recipe: Recipe, data: Any) -> Any:
        return data

    def prepare_weight(self, F: Any, recipe: Recipe, weight: Any, data: Any) -> Any:
        return weight

    def finish(self, F: Any, recipe: Recipe, out: Any, data: Any) -> Any:
        """Returns the changed output; `data` is the data before all steps."""
        return out


class Flip(PlanStep[bool]):
    """Reverses the data, the kernel and the output."""

    needs_plain_layout = True

    def prepare_data(self, F: Any, recipe: Recipe, data: Any) -> Any:
        """Returns the data reversed, by a slice that steps backwards: it is many times faster than `reverse`."""
        ndim = recipe.spatial_axes.stop
        step = tuple(-1 if axis in self.axes else 1 for axis in range(ndim))
        return F.slice(data, begin=(None,) * ndim, end=(None,) * ndim, step=step)

    def prepare_weight(self, F: Any, recipe: Recipe, weight: Any, data: Any) -> Any:
        return arrays.reverse_kernel(F, weight, self.axes)

    def finish(self, F: Any, recipe: Recipe, out: Any, data: Any) -> Any:
        return self.prepare_data(F, recipe, out)


class Dilate(PlanStep[int]):
    """Dilates the data of a transposed convolution, which becomes a convolution with the flipped
    kernel."""

    needs_plain_layout = True

    def prepare_data(self, F: Any, recipe: Recipe, data: Any) -> Any:
        """Returns the dilated data, (n-1)*stride + 1 elements along each axis."""
        for axis, stride in self.values.items():
            if stride == 1:
                continue
            elements = F.expand_dims(data, axis=axis + 1)
            zeros = F.repeat(F.zeros_like(elements), repeats=stride - 1, axis=axis + 1)
            merged = F.reshape(F.concat(elements, zeros, dim=axis + 1), shape=(0,) * axis + (-3,) + (-2,))
            data = F.slice_axis(merged, axis=axis, begin=0, end=1 - stride)
        return data

    def prepare_weight(self, F: Any, recipe: Recipe, weight: Any, data: Any) -> Any:
        return arrays.flip_weight(F, weight, recipe.work.groups, len(recipe.windows))


class Concat(PlanStep[Pair]):
    """Concatenates elements to the data."""

    pads_data = needs_plain_layout = True

    def prepare_data(self, F: Any, recipe: Recipe, data: Any) -> Any:
        return self.concatenate(F, recipe, data, {})

    def concatenate(self, F: Any, recipe: Recipe, data: Any, start_arrays: Mapping[int, Any]) -> Any:
        """Returns the padded data. `start_arrays` maps an axis to an array as long as the part concatenated
        before the data. The data is reshaped to four axes first, because oneDNN concatenates only those, ten times
        faster than MXNet."""
        rank, first = len(recipe.windows), recipe.spatial_axis
        restore_shape: Tuple[int, ...] = ()
        if rank == 1:
            data, first, restore_shape = F.expand_dims(data, axis=first), first + 1, (0, -3, 0)
        elif rank == 3 and recipe.work.in_channels is not None:
            data, first = F.reshape(data, shape=(-3, -2)), first - 1
            restore_shape = (-4, -1, recipe.work.in_channels, -2)
        for axis, counts in self.values.items():
            data = arrays.concatenate(F, data, axis - SPATIAL + first, counts, recipe.fill, start_arrays.get(axis))
        return F.reshape(data, shape=restore_shape) if restore_shape else data


class DynamicConcat(Concat):
    """Concatenates low + extra elements before the data, where low is SAME's low pad, and a fixed number after it.

    With a kernel of 3, stride 2, `extra` 2 and `after` 1, 3 elements are concatenated before 7, for which SAME's low
    is 1, and one after them: 11 in all. For 8 elements, low is 0: 2 + 8 + 1 = 11, too.
    """

    def prepare_data(self, F: Any, recipe: Recipe, data: Any) -> Any:
        """Returns the padded data. MXNet infers the length of this concatenation only after it has checked pooling
        operators, so the data gets the shape of `like`, whose length is inferred in time."""
        like, start_arrays = F.BlockGrad(arrays.take_first_block(F, data, self.axes)), {}
        for axis, (extra, after) in self.values.items():
            start_arrays[axis], length = _low_zeros_and_padded_length(F, recipe, data, axis, extra)
            length = arrays.concatenate(F, length, 0, (0, after)) if after else length
            like = F.broadcast_like(like, F.BlockGrad(length), lhs_axes=(axis,), rhs_axes=(0,))
        return F._internal._identity_with_attr_like_rhs(self.concatenate(F, recipe, data, start_arrays), like)


class Pad(PlanStep[Pair]):
    """Adds elements with MXNet's pad operator."""

    pads_data = needs_plain_layout = True

    def prepare_data(self, F: Any, recipe: Recipe, data: Any) -> Any:
        pads = [self.values.get(axis, (0, 0)) for axis in recipe.spatial_axes]
        return arrays.pad(F, data, pads, recipe.fill, recipe.spatial_axis)


class Gather(PlanStep[bool]):
    """Builds the padded data by look-up (`take`): out*s + max(ke - s, 0) elements along each axis."""

    pads_data = needs_plain_layout = True

    def prepare_data(self, F: Any, recipe: Recipe, data: Any) -> Any:
        """Returns the padded data. Each axis in turn becomes the first, along which whole rows are copied: a look-up
        along any other axis goes element by element, many times slower."""
        whole, order = data, list(range(recipe.spatial_axes.stop))
        for axis in self.axes:
            indices = self._indices(F, recipe, whole, axis)
            moved = [axis, *(other for other in order if other != axis)]
            data, order = F.transpose(data, axes=tuple(map(order.index, moved))), moved
            if recipe.fill == "zero":
                data, indices = arrays.concatenate(F, data, 0, (1, 1)), indices + 1
            data = F.take(data, F.BlockGrad(indices), axis=0, mode="clip")
        return F.transpose(data, axes=tuple(map(order.index, range(len(order)))))

    def _indices(self, F: Any, recipe: Recipe, data: Any, axis: int) -> Any:
        """Returns the indices -low, 1-low, ... that the windows read along an axis."""
        window = recipe.window(axis)
        row = F.contrib.arange_like(F.cast(recipe.row(F, data, axis), dtype="float64"), axis=axis)
        starts = F.slice(row, begin=(None,), end=(None,), step=(window.stride,))
        indices = F.repeat(starts, repeats=window.stride)
        if window.effective_kernel_size > window.stride:
            more = F.zeros_like(F.slice_axis(row, axis=0, begin=0, end=1))
            more = F.repeat(more, repeats=window.effective_kernel_size - window.stride)
            indices = F.concat(indices, more, dim=0)
        return F.broadcast_sub(F.contrib.arange_like(indices, axis=0), _low_pad(F, recipe, data, axis))


class Shift(PlanStep[OneHotKernel]):
    """Shifts the data within its padding, so that every size has the same low pad."""

    def prepare_data(self, F: Any, recipe: Recipe, data: Any) -> Any:
        return _shift_by_one_hot(F, recipe, data, data, self.values, (1,) * len(recipe.windows))


class PadKernel(PlanStep[Pair]):
    """Concatenates (front, back) zeros to the kernel."""

    def prepare_weight(self, F: Any, recipe: Recipe, weight: Any, data: Any) -> Any:
        """Returns the kernel with the zeros. On the CPU, its last axes go to the front first: then whole blocks are
        copied, not a few elements at a time. MXNet transposes five axes too slowly for that."""
        rank, first = len(recipe.windows), recipe.spatial_axis
        moves = first == SPATIAL and rank < 3 and recipe.work.device == "cpu"
        if moves:
            weight = F.transpose(arrays.copy_weight(F, weight), axes=(*range(first, first + rank), 0, 1))
            first = 0
        for axis, counts in self.values.items():
            weight = arrays.concatenate(F, weight, axis - SPATIAL + first, counts)
        return arrays.copy_weight(F, F.transpose(weight, axes=(rank, rank + 1, *range(rank)))) if moves else weight


class Crop(PlanStep[Tuple[int, Optional[int]]]):
    """Crops (start, end) elements from the output; an end of None depends on the size."""

    def __init__(self, values: Mapping[int, Tuple[int, Optional[int]]]):
        super().__init__(values)
        self.dynamic_axes = [axis for axis, (_, end) in values.items() if end is None]
        self.has_static_part = any(map(any, values.values()))  # whether some elements are dropped for every size

    def finish(self, F: Any, recipe: Recipe, out: Any, data: Any) -> Any:
        """Returns the cropped output; along dynamic axes, slice_like crops to the ceil(n/s) elements of a strided slice
        of the data."""
        crops = [(start, end or 0) for start, end in (self.values.get(axis, (0, 0)) for axis in recipe.spatial_axes)]
        out = arrays.crop(F, out, crops, recipe.spatial_axis)
        if not self.dynamic_axes:
            return out
        whole = (None,) * recipe.spatial_axes.stop
        step = (1, 1, *(window.stride for window in recipe.windows))
        like = F.slice(arrays.take_first(F, data, (0, 1)), begin=whole, end=whole, step=step)
        return F.slice_like(out, like, axes=self.dynamic_axes)


class Pick(PlanStep[OneHotKernel]):
    """Keeps every s-th output of an operator that ran with stride 1, starting where SAME does for this size."""

    def finish(self, F: Any, recipe: Recipe, out: Any, data: Any) -> Any:
        strides = tuple(recipe.window(axis).stride if axis in self.axes else 1 for axis in recipe.spatial_axes)
        return _shift_by_one_hot(F, recipe, out, data, self.values, strides)


# Field of `AxisPlan` -> step. Steps run in this order before the operator, in reverse order after it.
STEPS: Dict[str, Type[PlanStep[Any]]] = {
    "flip": Flip,
    "dilate": Dilate,
    "concat": Concat,
    "dynamic_concat": DynamicConcat,
    "gather": Gather,
    "shift": Shift,
    "pad_operator": Pad,  # after every step that reads the data's size
    "kernel_zeros": PadKernel,
    "crop": Crop,
    "pick": Pick,
}


# -- dynamic shapes: the graph reads a size off the data when it runs, in float64, which is exact for any length


def _low_pad(F: Any, recipe: Recipe, data: Any, axis: int) -> Any:
    """Returns the number of padding elements before the data along an axis, as an array (1,): half of the total,
    rounded up if the extra one is at the start.

    (out-1)s + ke - n is ke-1 - (n-1) mod s, as (out-1)s is the last multiple of s below n. For data that may be in
    blocks, n is read from a thin slice, since reading the shape of the whole array would undo the blocks.
    """
    window, others = recipe.window(axis), [other for other in range(recipe.spatial_axes.stop) if other != axis]
    row = data if recipe.work.plain else arrays.take_first_block(F, data, others)
    length = F.cast(F.slice_axis(F.shape_array(row), axis=0, begin=axis, end=axis + 1), dtype="float64")
    total = (window.effective_kernel_size - 1) - (length - 1) % window.stride
    if window.effective_kernel_size < window.stride:
        total = F.relu(total)
    half = total / 2
    return F.ceil(half) if window.extra_at_start else F.floor(half)


def _low_zeros_and_padded_length(F: Any, recipe: Recipe, data: Any, axis: int, extra: int) -> Tuple[Any, Any]:
    """Returns two arrays of zeros: one with low + `extra` elements, where low is SAME's low pad along an axis, and one
    as long as those and the data together.

    MXNet has no operator that makes an array of a computed length; only `_rnn_param_concat` infers the length of its
    first input, as that of its output minus that of the second. So an array with the length of the output,
    low + `extra` + n, is made first: SAME has low = ((out-1)s + ke - n) / 2, so this is half of
    out*s + n + (ke - s + 2*extra).

    For 7 elements, a kernel of 3, stride 2 and `extra` 2: `doubled` has 4*2 + 7 + 5 = 20 elements, `padded` has
    10 of them, and the first array gets 10 - 7 = 3: low is 1.
    """
    window = recipe.window(axis)
    missing = window.effective_kernel_size - window.stride + 2 * extra
    row = F.zeros_like(F.reshape(recipe.row(F, data, axis), shape=(-1,)))
    outputs = F.tile(F.slice(row, begin=(None,), end=(None,), step=(window.stride,)), reps=(window.stride,))
    doubled = F.concat(outputs, arrays.concatenate(F, row, 0, (0, missing)), dim=0)
    padded = F.slice(doubled, begin=(0 if window.extra_at_start else 1,), end=(None,), step=(2,))
    zeros = F._internal._zeros_without_dtype(shape=(-1,))
    return zeros, F.elemwise_add(F._internal._rnn_param_concat(zeros, row, dim=0), padded)


def _one_hot_kernel(F: Any, recipe: Recipe, data: Any, kernels: Mapping[int, OneHotKernel]) -> Any:
    r"""Returns a one-hot kernel (1, 1, \*lengths); the index of its 1 follows from the size of `data`."""
    ndim, chosen = recipe.spatial_axes.stop, None
    dynamic = [axis for axis in kernels if recipe.window(axis).size is None]
    for axis in dynamic:
        row = F.one_hot(kernels[axis].max_pad - _low_pad(F, recipe, data, axis), depth=kernels[axis].length)
        row = F.reshape(row, shape=tuple(-1 if other == axis else 1 for other in range(ndim)))
        chosen = row if chosen is None else F.broadcast_mul(chosen, row)
    weight = F.ones_like(arrays.take_first(F, data, range(ndim)))  # of its type and device
    if chosen is not None:
        filled = F.tile(weight, reps=tuple(kernels[axis].length if axis in dynamic else 1 for axis in range(ndim)))
        weight = F.where(chosen, filled, F.zeros_like(filled))
    for axis, kernel in kernels.items():
        window = recipe.window(axis)
        if window.size is not None:
            before = kernel.max_pad - window.pads(window.size)[0]
            weight = arrays.concatenate(F, weight, axis, (before, kernel.length - 1 - before))
    return F.BlockGrad(weight)


def _shift_by_one_hot(
    F: Any, recipe: Recipe, array: Any, data: Any, kernels: Mapping[int, OneHotKernel], strides: Dims
) -> Any:
    """Returns the array shifted along some axes by a depthwise convolution whose kernel is one-hot. The position of the
    1 follows from the size of the data."""
    weight, channels = _one_hot_kernel(F, recipe, data, kernels), recipe.work.in_channels
    lengths = [kernels[axis].length if axis in kernels else 1 for axis in recipe.spatial_axes]
    pads = tuple(kernels[axis].pad if axis in kernels else 0 for axis in recipe.spatial_axes)
    return arrays.convolve_channels(F, array, weight, channels, lengths, stride=strides, pad=pads)


_EMPTY = AxisPlan(kernel_size=1)


@functools.lru_cache(maxsize=4096)
def _steps_of(axes: Tuple[AxisPlan, ...]) -> Tuple[PlanStep[Any], ...]:
    """Returns the steps of a plan: those whose field is not empty for some axis."""
    steps = []
    for name, step in STEPS.items():
        values = {axis: getattr(plan, name) for axis, plan in enumerate(axes, SPATIAL)}
        values = {axis: value for axis, value in values.items() if value != getattr(_EMPTY, name)}
        if values:
            steps.append(step(values))
    return tuple(steps)
