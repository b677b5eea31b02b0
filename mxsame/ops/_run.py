"""Runs plans: the steps of an `AxisPlan` as MXNet operators, on classic arrays or Symbols.

Axis `i` of a plan is axis `first + i` of the data, the kernel and the output alike: 2 with channels first, and 1 with
channels last, for which only the strategies of `mxsame.plan.LAST` are written, in 2-D.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from mxsame.padding import KERAS_MXNET
from mxsame.plan import AxisPlan, Plan, Window

SPATIAL = 2  # the first spatial axis, with channels first


def run_window(
    F: Any,
    data: Any,
    windows: Sequence[Window],
    plan: Plan,
    operator: Callable,
    fill: str,
    channels: Optional[int] = None,
    first: int = SPATIAL,
) -> Any:
    """`operator(data)` with everything that a plan wants done before and after it.

    `fill` says what cells of padding hold: "zero", or "edge" (the nearest real cell, which never wins a maximum over
    a window that holds that cell too).
    """
    return finish(F, data, operator(prepare(F, data, windows, plan, fill, channels, first)), windows, plan, first)


def prepare(
    F: Any,
    data: Any,
    windows: Sequence[Window],
    plan: Plan,
    fill: str,
    channels: Optional[int] = None,
    first: int = SPATIAL,
) -> Any:
    """Mirror, join, spread, gather and shift; only the last must know the data's channels."""
    data = _reversed(F, data, plan)
    data = _lengthened(F, data, [step.join for step in plan.axes], fill, channels, first)
    if any(any(step.spread) for step in plan.axes):
        data = _spread(F, data, [step.spread for step in plan.axes], fill)
    data = _gathered(F, data, windows, plan, fill)
    return _shifted(F, data, windows, plan, channels)


def finish(F: Any, data: Any, out: Any, windows: Sequence[Window], plan: Plan, first: int = SPATIAL) -> Any:
    """Skip, drop the excess, mirror back. `data` is what `prepare` was given."""
    out = cropped(F, out, [(step.skip, step.excess or 0) for step in plan.axes], first)
    varying = [axis for axis, step in enumerate(plan.axes, SPATIAL) if step.excess is None]
    if varying:
        strides = [window.stride for window in windows]
        out = F.slice_like(out, _strided(F, data, strides), axes=varying)
    return _reversed(F, out, plan)


def extended_kernel(
    F: Any, weight: Any, channels: int, data: Any, windows: Sequence[Window], plan: Plan, first: int = SPATIAL
) -> Any:
    """The weight as the plan wants it: mirrored, with zero taps around it, or placed among zero taps.

    `data` is what `prepare` was given; its size says where a kernel is placed.
    """
    mirrored = _mirrored_axes(plan)
    if mirrored:  # `reverse` lets a shape be inferred through it, which a stepped slice does not
        # The gradient of `reverse` overwrites what grad_req="add" should add to; a copy stands between.
        weight = F.reverse(F.identity(weight), axis=mirrored)
    weight = with_taps(F, weight, [step.taps for step in plan.axes], first)
    for axis, (window, step) in enumerate(zip(windows, plan.axes), SPATIAL):
        if step.place:
            weight = _placed(F, weight, channels, data, axis, window, step)
    return weight


def with_taps(F: Any, weight: Any, taps: Sequence[tuple[int, int]], first: int = SPATIAL) -> Any:
    """The weight with (front, back) zero taps joined to each axis of its kernel."""
    for axis, counts in enumerate(taps, first):
        if any(counts):
            weight = _joined(F, weight, axis, counts, "zero")
    return weight


def _placed(F: Any, weight: Any, channels: int, data: Any, axis: int, window: Window, step: AxisPlan) -> Any:
    """The kernel in each place that it may have, and the one chosen that the size wants; a shape can be inferred
    through that, as it could not through a look-up."""
    low = _low(F, data, axis, window)
    least, most = step.place or (0, 0)
    chosen = None
    for candidate in range(least, most + 1):
        before = step.pad - candidate
        placed = _joined(F, weight, axis, (before, step.kernel_size - window.kernel_size - before), "zero")
        chosen = placed if chosen is None else F.where(F.repeat(low >= candidate, repeats=channels), placed, chosen)
    return chosen


def cropped(F: Any, out: Any, crops: Sequence[tuple[int, int]], first: int = SPATIAL) -> Any:
    """Drop (head, tail) cells of each spatial axis."""
    if not any(map(any, crops)):
        return out
    outer = (None,) * first
    begin = (*outer, *(head or None for head, _ in crops))
    end = (*outer, *(-tail or None for _, tail in crops))
    return F.slice(out, begin=begin, end=end)


def padded(F: Any, data: Any, pads: Sequence[tuple[int, int]]) -> Any:
    """The data with (low, high) zeros around each spatial axis."""
    return _spread(F, data, pads, "zero") if any(map(any, pads)) else data


def outer_axes(num_spatial_dims: int, first: int = SPATIAL) -> tuple[int, int]:
    """The axes of the batch and of the channels."""
    return 0, 1 if first == SPATIAL else num_spatial_dims + 1


def thin(F: Any, array: Any, axes: Sequence[int]) -> Any:
    """The first cell alone of these axes. One axis after the other: a `slice` that cuts single channels out of what a
    convolution of 8 channels or more has left in oneDNN's blocked layout ends the process (SIGFPE)."""
    for axis in axes:
        array = F.slice_axis(array, axis=axis, begin=0, end=1)
    return array


def _mirrored_axes(plan: Plan) -> list[int]:
    return [axis for axis, step in enumerate(plan.axes, SPATIAL) if step.mirror]


def _reversed(F: Any, array: Any, plan: Plan) -> Any:
    """Mirrored axes turned around, by a slice that steps backwards: many times faster than `reverse`."""
    axes = _mirrored_axes(plan)
    if not axes:
        return array
    ndim = SPATIAL + len(plan.axes)
    whole = (None,) * ndim
    return F.slice(array, begin=whole, end=whole, step=tuple(-1 if axis in axes else 1 for axis in range(ndim)))


def _joined(F: Any, array: Any, axis: int, counts: tuple[int, int], fill: str) -> Any:
    """Concatenate (low, high) cells along an axis; made of the array's own cells, so without constants of a type, a
    batch or a place."""
    low, high = counts
    first = F.slice_axis(array, axis=axis, begin=0, end=1)
    last = F.slice_axis(array, axis=axis, begin=-1, end=None)
    if fill == "zero":
        first = last = F.zeros_like(first)
    # One block for many cells: a concatenation of thousands of arrays would be slow to build.
    head = [first if low == 1 else F.repeat(first, repeats=low, axis=axis)] if low else []
    foot = [last if high == 1 else F.repeat(last, repeats=high, axis=axis)] if high else []
    return F.concat(*head, array, *foot, dim=axis)


def _lengthened(
    F: Any, data: Any, joins: Sequence[tuple[int, int]], fill: str, channels: Optional[int], first: int
) -> Any:
    """The data with cells joined to its spatial axes. It is given four axes for that, with which alone oneDNN joins:
    MXNet's own way takes ten times longer."""
    if not any(map(any, joins)):
        return data
    back = None
    if len(joins) == 1:
        data, first, back = F.expand_dims(data, axis=first), first + 1, (0, -3, 0)
    elif len(joins) == 3 and channels is not None:
        data, first, back = F.reshape(data, shape=(-3, -2)), first - 1, (-4, -1, channels, -2)
    for axis, counts in enumerate(joins, first):
        if any(counts):
            data = _joined(F, data, axis, counts, fill)
    return data if back is None else F.reshape(data, shape=back)


def _spread(F: Any, data: Any, pads: Sequence[tuple[int, int]], fill: str) -> Any:
    """MXNet's pad operator; it takes four or five axes, so a single spatial axis gets a companion."""
    flat = len(pads) == 1
    if flat:
        data, pads = F.expand_dims(data, axis=-1), [*pads, (0, 0)]
    widths = (0, 0, 0, 0, *(count for pair in pads for count in pair))
    mode = {"zero": {"mode": "constant", "constant_value": 0}, "edge": {"mode": "edge"}}[fill]
    data = F.pad(data, pad_width=widths, **mode)
    return F.reshape(data, shape=(0, 0, 0)) if flat else data


def _strided(F: Any, data: Any, strides: Sequence[int]) -> Any:
    """A thin array, one batch entry and one channel, whose spatial lengths are ceil(n/s)."""
    whole = (None,) * (SPATIAL + len(strides))
    return F.slice(thin(F, data, (0, 1)), begin=whole, end=whole, step=(1, 1, *strides))


# -- what depends on a size that the graph reads off the data when it runs: arrays of float64, exact for any length


def _length(F: Any, data: Any, axis: int) -> Any:
    """n, as an array (1,)."""
    return F.cast(F.slice_axis(F.shape_array(data), axis=0, begin=axis, end=axis + 1), dtype="float64")


def _low(F: Any, data: Any, axis: int, window: Window) -> Any:
    """The cells of padding before the data, (1,): half of all, rounded down for "same" and up for "keras-mxnet".

    (out-1)s + ke - n is ke-1 - (n-1) mod s, as (out-1)s is the last multiple of s below n.
    """
    total = (window.effective_kernel_size - 1) - (_length(F, data, axis) - 1) % window.stride
    half = F.relu(total) / 2
    return F.BlockGrad(F.ceil(half) if window.padding == KERAS_MXNET else F.floor(half))


def _shifted(F: Any, data: Any, windows: Sequence[Window], plan: Plan, channels: Optional[int]) -> Any:
    """The data moved along some axes by a depthwise convolution whose kernel is a single one, standing where the size
    wants it: a copy in the layout that convolutions have among themselves."""
    if not any(step.shift for step in plan.axes):
        return data
    taps, chosen = [], None
    for axis, (window, step) in enumerate(zip(windows, plan.axes), SPATIAL):
        least, reach = step.shift or (0, 0)
        taps.append(reach - least + 1)
        if step.shift:
            place = F.one_hot(reach - _low(F, data, axis, window), depth=taps[-1], dtype="float64")  # (1, taps)
            place = F.reshape(place, shape=tuple(-1 if other == axis else 1 for other in range(SPATIAL + len(windows))))
            chosen = place if chosen is None else F.broadcast_mul(chosen, place)
    ones = F.ones_like(thin(F, data, range(SPATIAL + len(windows))))  # of the data's type and place
    for axis, count in enumerate(taps, SPATIAL):
        ones = F.repeat(ones, repeats=count, axis=axis) if count > 1 else ones
    kernel = F.repeat(F.where(chosen, ones, F.zeros_like(ones)), repeats=channels, axis=0)
    return F.Convolution(
        data,
        F.BlockGrad(kernel),
        kernel=tuple(taps),
        pad=tuple(count - 1 for count in taps),
        num_filter=channels,
        num_group=channels,
        no_bias=True,
    )


def _gathered(F: Any, data: Any, windows: Sequence[Window], plan: Plan, fill: str) -> Any:
    """The data with its padding along some axes, gathered from itself: out*s + max(ke - s, 0) cells each.

    These axes go to the front and become one, so that whole rows are copied; a look-up along any other axis goes cell
    by cell, many times slower.
    """
    axes = [axis for axis, step in enumerate(plan.axes, SPATIAL) if step.gather]
    if not axes:
        return data
    ndim = SPATIAL + len(windows)
    order = [*axes, *(axis for axis in range(ndim) if axis not in axes)]
    source = _sources(F, data, axes, windows, fill)
    data = F.transpose(data, axes=tuple(order))
    for _ in axes[1:]:
        data = F.reshape(data, shape=(-3, -2))
    if fill == "zero":
        data = _joined(F, data, 0, (0, 1), fill)
    data = F.take(data, F.BlockGrad(source), axis=0, mode="clip")
    return F.transpose(data, axes=tuple(order.index(axis) for axis in range(ndim)))


def _sources(F: Any, data: Any, axes: Sequence[int], windows: Sequence[Window], fill: str) -> Any:
    """Which row of the joined axes stands in each place, one axis per axis; with "zero" the row behind the last where
    none does."""
    rows = inside = count = None
    for axis in axes:
        window, size = windows[axis - SPATIAL], _length(F, data, axis)
        cells = _cells(F, data, axis, window, len(windows))
        nearest = F.broadcast_minimum(F.relu(cells), size - 1)
        here = cells == nearest
        if rows is None:
            rows, inside, count = nearest, here, size
        else:
            rows = F.broadcast_add(F.expand_dims(F.broadcast_mul(rows, size), axis=-1), nearest)
            inside = F.broadcast_mul(F.expand_dims(inside, axis=-1), here)
            count = count * size
    return rows if fill == "edge" else F.broadcast_add(F.broadcast_sub(rows, count) * inside, count)


def _cells(F: Any, data: Any, axis: int, window: Window, num_spatial_dims: int) -> Any:
    """-low, 1-low, ..: the cells under the windows along an axis, out*s + max(ke - s, 0) of them."""
    others = [other for other in range(SPATIAL + num_spatial_dims) if other != axis]
    row = F.contrib.arange_like(F.cast(thin(F, data, others), dtype="float64"), axis=axis)
    starts = F.slice(row, begin=(None,), end=(None,), step=(window.stride,))
    cells = F.repeat(starts, repeats=window.stride)
    if window.effective_kernel_size > window.stride:
        more = F.zeros_like(F.slice_axis(row, axis=0, begin=0, end=1))
        cells = F.concat(cells, F.repeat(more, repeats=window.effective_kernel_size - window.stride), dim=0)
    return F.broadcast_sub(F.contrib.arange_like(cells, axis=0), _low(F, data, axis, window))
