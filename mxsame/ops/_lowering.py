"""Runs plans: the steps of an `AxisPlan` as MXNet operators, on classic arrays or Symbols."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.building import NOTE, current
from mxsame.plan import Plan

SPATIAL = 2  # the first spatial axis, with channels first
WHOLE_BLOCKS = 16  # channels, a multiple of every block of oneDNN


class Taps(NamedTuple):
    """The elements of a kernel along an axis, one of which is a one: the one at `first` plus or minus low."""

    length: int
    first: int
    sign: int

    @classmethod
    def back(cls, least: int, reach: int) -> Taps:
        """The one at reach - low, whose low is not below `least`."""
        return cls(reach - least + 1, reach, -1)

    def position(self, low: Any) -> Any:
        """Of the one, for a number or an array."""
        return self.first + low if self.sign > 0 else self.first - low


@dataclass(frozen=True)
class Lowering:
    """An operator on MXNet: `run` it on data; for a convolution, `kernel` first gives it the weight that it needs.

    Parameters
    ----------
    F : mx.nd or mx.sym
    windows, plan
        What is wanted, and how.
    channels : int, optional
        Of the data; only shifting, picking, and concatenation in 3-D depend on it.
    fill : "zero" or "edge"
        What padding holds that becomes part of the data: zeros, or copies of the nearest element, which never win a
        maximum over a window that holds that element too.
    first : int
        The first spatial axis: 2 with channels first, 1 with channels last (`Strategy.channels_last`).
    plain : bool
        The data is what the graph is fed, and not in oneDNN's blocks.
    """

    F: Any
    windows: Sequence[Any]
    plan: Plan
    channels: Optional[int] = None
    fill: str = "zero"
    first: int = SPATIAL
    plain: bool = False

    def run(self, data: Any, operator: Callable) -> Any:
        """`operator(data)` with all that the plan does before and after it."""
        if current().windows_noted and not self.plan.dilates:
            with mx.AttrScope(**{NOTE: repr(list(map(asdict, self.windows)))}):
                return self.after(data, operator(self.before(data)))
        return self.after(data, operator(self.before(data)))

    def before(self, data: Any) -> Any:
        """Flip, dilate, concatenate, pad, gather and shift."""
        for step in self._steps[0]:
            data = step(data)
        return data

    def after(self, data: Any, out: Any) -> Any:
        """Pick, crop and flip back the output for `data`, as `before` was given it."""
        for step in self._steps[1]:
            out = step(data, out)
        return out

    @functools.cached_property
    def _steps(self) -> Tuple[tuple, tuple]:
        """The steps that the plan has, (before, after) the operator."""
        axes = self.plan.axes
        flips = any(step.flip for step in axes)
        before = {
            self._flipped: flips,
            self._dilated: any(step.dilate > 1 for step in axes),
            self._concatenated: any(any(step.concat) for step in axes),
            self._padded: any(any(step.pad_operator) for step in axes),
            self._gathered: any(step.gather for step in axes),
            self._shifted: any(step.shift for step in axes),
        }
        after = {
            self._picked: any(step.pick for step in axes),
            self._cropped: any(any(step.crop) for step in axes),
            self._cropped_like: any(step.crop[1] is None for step in axes),
            self._flipped_back: flips,
        }
        first, then = ([step for step, is_there in steps.items() if is_there] for steps in (before, after))
        return tuple(first), tuple(then)

    @functools.cached_property
    def _keeps_kernel(self) -> bool:
        return not any(step.flip or any(step.zeros) or step.offset for step in self.plan.axes)

    def kernel(self, weight: Any, channels: int, data: Any) -> Any:
        """The weight of a convolution with so many output channels: flipped, between zeros, or at an offset among
        zeros that follows from the size of `data`, as `before` is given it."""
        if self._keeps_kernel:
            return weight
        flipped = self._flipped_axes()
        if flipped:
            weight = reversed_kernel(self.F, weight, flipped)
        weight = self.with_zeros(weight)
        return self._at_offset(weight, channels, data)

    def with_zeros(self, weight: Any) -> Any:
        """The weight with (front, back) zeros concatenated to each axis of its kernel. Where these are last, they go to
        the front for that on the CPU: whole blocks are copied then, and not a few elements at a time. MXNet transposes
        five axes too slowly for it."""
        if self._keeps_kernel:
            return weight
        F, counts, first = self.F, [step.zeros for step in self.plan.axes], self.first
        if not any(map(any, counts)):
            return weight
        rank = len(counts)
        moves = first == SPATIAL and rank < 3 and tensors.purpose_and_device(weight)[1] == "cpu"
        if moves:
            weight = F.transpose(rewritten(weight), axes=(*range(first, first + rank), 0, 1))
        for axis, count in enumerate(counts, 0 if moves else first):
            if any(count):
                weight = concatenated(F, weight, axis, count)
        return rewritten(F.transpose(weight, axes=(rank, rank + 1, *range(rank)))) if moves else weight

    def _at_offset(self, weight: Any, channels: int, data: Any) -> Any:
        """The kernel at an offset of pad - low among zeros, by a convolution of the kernel itself."""
        F, taps, pads = self.F, {}, []
        for axis, step in enumerate(self.plan.axes, SPATIAL):
            pads.append(step.pad - step.offset[0] if step.offset else 0)
            if step.offset:
                taps[axis] = Taps(pads[-1] + 1, -step.offset[0], 1)
        if not taps:
            return weight
        kernels = F.expand_dims(F.reshape(copied(F, weight), shape=(-3, -2)), axis=1)
        one = self._single_one(data, taps)
        sizes = tuple(pad + 1 for pad in pads)
        kernels = F.Convolution(copied(F, kernels), one, kernel=sizes, pad=tuple(pads), num_filter=1, no_bias=True)
        return copied(F, F.reshape(F.reshape(kernels, shape=(-3, -2)), shape=(-4, channels, -1, -2)))

    # -- static steps

    def _flipped_axes(self) -> List[int]:
        return [axis for axis, step in enumerate(self.plan.axes, SPATIAL) if step.flip]

    def _flipped(self, array: Any) -> Any:
        """By a slice that steps backwards: many times faster than `reverse`."""
        axes = self._flipped_axes()
        if not axes:
            return array
        ndim = SPATIAL + len(self.plan.axes)
        whole = (None,) * ndim
        step = tuple(-1 if axis in axes else 1 for axis in range(ndim))
        return self.F.slice(array, begin=whole, end=whole, step=step)

    def _flipped_back(self, data: Any, out: Any) -> Any:
        return self._flipped(out)

    def _padded(self, data: Any) -> Any:
        return padded(self.F, data, [step.pad_operator for step in self.plan.axes], self.fill)

    def _cropped(self, data: Any, out: Any) -> Any:
        return cropped(self.F, out, [(step.crop[0], step.crop[1] or 0) for step in self.plan.axes], self.first)

    def _cropped_like(self, data: Any, out: Any) -> Any:
        """Without what is after the outputs for the size of `data`."""
        dynamic = [axis for axis, step in enumerate(self.plan.axes, SPATIAL) if step.crop[1] is None]
        return self.F.slice_like(out, self._strided(data), axes=dynamic)

    def _dilated(self, data: Any) -> Any:
        for axis, step in enumerate(self.plan.axes, SPATIAL):
            if step.dilate > 1:
                data = self._dilated_axis(data, axis, step.dilate)
        return data

    def _dilated_axis(self, data: Any, axis: int, stride: int) -> Any:
        """n elements -> (n-1)*stride + 1, the new ones zero."""
        F = self.F
        elements = F.expand_dims(data, axis=axis + 1)
        zeros = F.repeat(F.zeros_like(elements), repeats=stride - 1, axis=axis + 1)
        merged = F.reshape(F.concat(elements, zeros, dim=axis + 1), shape=(0,) * axis + (-3,) + (-2,))
        return F.slice_axis(merged, axis=axis, begin=0, end=1 - stride)

    def _concatenated(self, data: Any) -> Any:
        """The data with elements concatenated to its spatial axes. It is given four axes for that: only then oneDNN
        concatenates, and MXNet's own way takes ten times longer."""
        counts, first, back = [step.concat for step in self.plan.axes], self.first, None
        if not any(map(any, counts)):
            return data
        if len(counts) == 1:
            data, first, back = self.F.expand_dims(data, axis=first), first + 1, (0, -3, 0)
        elif len(counts) == 3 and self.channels is not None:
            data, first, back = self.F.reshape(data, shape=(-3, -2)), first - 1, (-4, -1, self.channels, -2)
        for axis, count in enumerate(counts, first):
            if any(count):
                data = concatenated(self.F, data, axis, count, self.fill)
        return data if back is None else self.F.reshape(data, shape=back)

    # -- dynamic steps: the graph reads a size off the data when it runs, in float64, which is exact for any length

    def _strided(self, data: Any) -> Any:
        """A thin array, one batch entry and one channel, whose spatial lengths are ceil(n/s)."""
        whole = (None,) * (SPATIAL + len(self.windows))
        strides = (window.stride for window in self.windows)
        return self.F.slice(thin(self.F, data, (0, 1)), begin=whole, end=whole, step=(1, 1, *strides))

    def _lengths(self, data: Any, axes: Sequence[int]) -> Any:
        """n along each of these axes, as an array (len(axes),)."""
        return self.F.cast(self._shape(data, axes), dtype="float64")

    def _shape(self, data: Any, axes: Sequence[int]) -> Any:
        """A part of the data's shape; of data in blocks each length is that of a thin row."""
        F, first, last = self.F, axes[0], axes[-1]
        if len(axes) > 1 and not (self.plain and last - first == len(axes) - 1):
            return F.concat(*(self._shape(data, [axis]) for axis in axes), dim=0)
        if not self.plain:
            data = edge(F, data, [axis for axis in range(SPATIAL + len(self.windows)) if axis != first])
        return F.slice_axis(F.shape_array(data), axis=0, begin=first, end=last + 1)

    def _low(self, data: Any, axes: Sequence[int]) -> Any:
        """The elements of padding before the data along axes that have the same window but for the size, (len(axes),):
        half of all, rounded up if the extra one is at the start.

        (out-1)s + ke - n is ke-1 - (n-1) mod s, as (out-1)s is the last multiple of s below n.
        """
        window = self.windows[axes[0] - SPATIAL]
        total = (window.effective_kernel_size - 1) - (self._lengths(data, axes) - 1) % window.stride
        if window.effective_kernel_size < window.stride:
            total = self.F.relu(total)
        half = total / 2
        return self.F.ceil(half) if window.extra_at_start else self.F.floor(half)

    def _single_one(self, data: Any, taps: Mapping[int, Taps]) -> Any:
        """A kernel (1, 1, \\*lengths) of zeros and a one, which is at the right position for the size of `data`."""
        F, ndim, chosen = self.F, SPATIAL + len(self.windows), None
        alike: Dict[Any, List[int]] = {}
        for axis, tap in taps.items():
            if self.windows[axis - SPATIAL].size is None:
                alike.setdefault((tap, self.windows[axis - SPATIAL]), []).append(axis)
        for (tap, _), axes in alike.items():
            rows = F.one_hot(tap.position(self._low(data, axes)), depth=tap.length)
            for place, axis in enumerate(axes):
                row = F.slice_axis(rows, axis=0, begin=place, end=place + 1) if len(axes) > 1 else rows
                row = F.reshape(row, shape=tuple(-1 if other == axis else 1 for other in range(ndim)))
                chosen = row if chosen is None else F.broadcast_mul(chosen, row)
        kernel = F.ones_like(thin(F, data, range(ndim)))  # of its type and device
        if chosen is not None:
            dynamic = [axis for axes in alike.values() for axis in axes]
            ones = F.tile(kernel, reps=tuple(taps[axis].length if axis in dynamic else 1 for axis in range(ndim)))
            kernel = F.where(chosen, ones, F.zeros_like(ones))
        for axis, tap in taps.items():
            window = self.windows[axis - SPATIAL]
            if window.size is not None:
                before = tap.position(window.pads(window.size)[0])
                kernel = concatenated(F, kernel, axis, (before, tap.length - 1 - before))
        return F.BlockGrad(kernel)

    def _moved(self, array: Any, data: Any, taps: Mapping[int, Taps], pads: Sequence[int], strides: Any) -> Any:
        """Every channel of the array by itself, moved along some axes by a depthwise convolution whose kernel is a
        single one: a copy in the layout that convolutions have among themselves."""
        kernel = self.F.repeat(self._single_one(data, taps), repeats=self.channels, axis=0)
        return self.F.Convolution(
            array,
            kernel,
            kernel=tuple(taps[axis].length if axis in taps else 1 for axis in self._axes()),
            stride=tuple(strides),
            pad=tuple(pads),
            num_filter=self.channels,
            num_group=self.channels,
            no_bias=True,
        )

    def _axes(self) -> range:
        return range(SPATIAL, SPATIAL + len(self.windows))

    def _shifted(self, data: Any) -> Any:
        """The data shifted within its padding, so that its low appears to be the same for every size."""
        taps = {axis: Taps.back(*step.shift) for axis, step in zip(self._axes(), self.plan.axes) if step.shift}
        pads = [taps[axis].length - 1 if axis in taps else 0 for axis in self._axes()]
        return self._moved(data, data, taps, pads, [1] * len(pads)) if taps else data

    def _picked(self, data: Any, out: Any) -> Any:
        """Of the windows of every position those that SAME has for the size of `data`."""
        steps = self.plan.axes
        taps = {axis: Taps.back(*step.pick[:2]) for axis, step in zip(self._axes(), steps) if step.pick}
        pads = [step.pick[2] if step.pick else 0 for step in steps]
        strides = [window.stride if step.pick else 1 for step, window in zip(steps, self.windows)]
        return self._moved(out, data, taps, pads, strides) if taps else out

    def _gathered(self, data: Any) -> Any:
        """The data with its padding along some axes, gathered from itself: out*s + max(ke - s, 0) elements each.

        These axes go to the front and become one, so that whole rows are copied; a look-up along any other axis goes
        element by element, many times slower.
        """
        F, outer = self.F, SPATIAL
        axes = [axis for axis, step in zip(self._axes(), self.plan.axes) if step.gather]
        if not axes:
            return data
        source, whole = self._sources(data, axes), data
        if len(self.windows) == 3:  # MXNet transposes five axes many times slower than four
            data, outer = F.reshape(copied(F, data), shape=(-3, -2)), 1
        gathered = [axis - SPATIAL + outer for axis in axes]
        order = [*gathered, *(axis for axis in range(outer + len(self.windows)) if axis not in gathered)]
        data = F.transpose(data, axes=tuple(order))
        for _ in axes[1:]:
            data = F.reshape(data, shape=(-3, -2))
        if self.fill == "zero":
            data = concatenated(F, data, 0, (0, 1))
        data = F.take(data, F.BlockGrad(source), axis=0, mode="clip")
        data = F.transpose(data, axes=tuple(map(order.index, range(len(order)))))
        if outer == SPATIAL:
            return data
        data = F.reshape_like(data, edge(F, whole, self._axes()), lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)
        return copied(F, data)

    def _sources(self, data: Any, axes: Sequence[int]) -> Any:
        """Which row of the merged axes goes to each position, one axis per axis; with "zero" the row after the last
        for padding."""
        F, rows, inside, count = self.F, None, None, None
        for axis in axes:
            size, positions = self._lengths(data, [axis]), self._positions(data, axis)
            nearest = F.broadcast_minimum(F.relu(positions), size - 1)
            here = positions == nearest
            if rows is None:
                rows, inside, count = nearest, here, size
            else:
                rows = F.broadcast_add(F.expand_dims(F.broadcast_mul(rows, size), axis=-1), nearest)
                inside = F.broadcast_mul(F.expand_dims(inside, axis=-1), here)
                count = count * size
        return rows if self.fill == "edge" else F.broadcast_add(F.broadcast_sub(rows, count) * inside, count)

    def _positions(self, data: Any, axis: int) -> Any:
        """-low, 1-low, ..: what the windows read along an axis, out*s + max(ke - s, 0) positions."""
        F, window = self.F, self.windows[axis - SPATIAL]
        others = [other for other in range(SPATIAL + len(self.windows)) if other != axis]
        row = F.contrib.arange_like(F.cast(thin(F, data, others), dtype="float64"), axis=axis)
        starts = F.slice(row, begin=(None,), end=(None,), step=(window.stride,))
        positions = F.repeat(starts, repeats=window.stride)
        if window.effective_kernel_size > window.stride:
            more = F.zeros_like(F.slice_axis(row, axis=0, begin=0, end=1))
            more = F.repeat(more, repeats=window.effective_kernel_size - window.stride)
            positions = F.concat(positions, more, dim=0)
        return F.broadcast_sub(F.contrib.arange_like(positions, axis=0), self._low(data, [axis]))

    def thin(self, data: Any) -> Any:
        """One batch entry and one channel of the data."""
        channel_axis = 1 if self.first == SPATIAL else len(self.windows) + 1
        return thin(self.F, data, (0, channel_axis))


# -- single steps on any array


def concatenated(F: Any, array: Any, axis: int, counts: Tuple[int, int], fill: str = "zero") -> Any:
    """(low, high) elements concatenated along an axis; made of the array's own, so without constants of a type, a batch
    or a device."""
    low, high = counts
    first = F.slice_axis(array, axis=axis, begin=0, end=1)
    last = F.slice_axis(array, axis=axis, begin=-1, end=None)
    if fill == "zero":
        first = last = F.zeros_like(first)
    # One block for many elements: a concatenation of thousands of arrays would be slow to build.
    before = [first if low == 1 else F.repeat(first, repeats=low, axis=axis)] if low else []
    after = [last if high == 1 else F.repeat(last, repeats=high, axis=axis)] if high else []
    return F.concat(*before, array, *after, dim=axis)


def padded(F: Any, data: Any, pads: Sequence[Tuple[int, int]], fill: str = "zero") -> Any:
    """By MXNet's pad operator; it takes four or five axes, so a single spatial axis gets a companion."""
    if not any(map(any, pads)):
        return data
    flat = len(pads) == 1
    if flat:
        data, pads = F.expand_dims(data, axis=-1), [*pads, (0, 0)]
    widths = (0, 0, 0, 0, *(count for pair in pads for count in pair))
    mode = {"zero": {"mode": "constant", "constant_value": 0}, "edge": {"mode": "edge"}}[fill]
    data = F.pad(data, pad_width=widths, **mode)
    return F.reshape(data, shape=(0, 0, 0)) if flat else data


def paired(F: Any, data: Any, copies: bool) -> Any:
    """(N, C, W) -> (N, C/2, 2, W): each pair of channels is a picture of two rows; `copies` is for gradients."""
    data = F.reshape(data, shape=(0, -4, -1, 2, 0))
    return copied(F, data) if copies else data


def in_blocks(F: Any, pictures: Any, channels: int) -> Any:
    """A copy of pictures (N, C, H, W) in oneDNN's blocks: a depthwise convolution with kernels of a single one leaves
    its output in them."""
    one = F.BlockGrad(F.ones_like(thin(F, pictures, range(4))))
    ones = F.repeat(one, repeats=channels, axis=0)
    return F.Convolution(pictures, ones, kernel=(1, 1), num_filter=channels, num_group=channels, no_bias=True)


def copied(F: Any, array: Any) -> Any:
    """A copy around `reshape` of what may be in a layout of oneDNN, or have a gradient in one. MXNet 1.9.1's `reshape`
    takes that layout for one of as many axes as it makes, and fails; a slice has the plain one."""
    return F.slice_axis(array, axis=0, begin=0, end=None)


def rewritten(weight: Any) -> Any:
    """A copy around `transpose` of a weight that may be in a layout of oneDNN, or have a gradient in one: MXNet 1.9.1's
    `transpose` takes that of a grouped convolution for one of four axes, and fails. A shape can be inferred through it,
    as it cannot through a slice."""
    return weight * 1


def unpaired(F: Any, out: Any, copies: bool) -> Any:
    """(N, C/2, 2, W) -> (N, C, W); `copies` is for data in oneDNN's blocks."""
    return F.reshape(copied(F, out) if copies else out, shape=(0, -3, 0))


def cropped(F: Any, out: Any, crops: Sequence[Tuple[int, int]], first: int = SPATIAL) -> Any:
    """Without (start, end) elements of each spatial axis."""
    if not any(map(any, crops)):
        return out
    outer = (None,) * first
    begin = (*outer, *(start or None for start, _ in crops))
    end = (*outer, *(-end or None for _, end in crops))
    return F.slice(out, begin=begin, end=end)


def thin(F: Any, array: Any, axes: Sequence[int]) -> Any:
    """Only the first element of these axes."""
    axes = list(axes)
    array = edge(F, array, axes)
    return F.slice_axis(array, axis=1, begin=0, end=1) if 1 in axes else array


def edge(F: Any, array: Any, axes: Sequence[int]) -> Any:
    """Only the first element of these axes, except that up to `WHOLE_BLOCKS` channels stay.

    Only `slice` reads a part of what a convolution has left in oneDNN's blocks; every other operator has MXNet undo the
    blocks of the whole array first. A slice that divides a block ends the process (SIGFPE).
    """
    ends = {axis: WHOLE_BLOCKS if axis == 1 else 1 for axis in axes}
    last = max(ends) + 1
    return F.slice(array, begin=(0,) * last, end=tuple(ends.get(axis) for axis in range(last)))


def reversed_kernel(F: Any, weight: Any, axes: Sequence[int]) -> Any:
    """By `reverse`, which lets a shape be inferred through it, as a stepped slice does not. Its gradient overwrites
    what grad_req="add" should add to, so there is a copy between."""
    return F.reverse(F.identity(weight), axis=tuple(axes))
