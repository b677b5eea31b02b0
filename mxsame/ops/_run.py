"""Runs plans: the steps of an `AxisPlan` as MXNet operators, on classic arrays or Symbols with channels first.

Axis `i` of a plan is axis `2 + i` of the data, the kernel and the output alike.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

from mxsame.plan import AxisPlan, Plan, Window

SPATIAL = 2  # the first spatial axis


def run_window(F: Any, data: Any, windows: Sequence[Window], plan: Plan, operator: Callable, fill: str) -> Any:
    """`operator(data)` with everything that a plan wants done before and after it.

    `fill` says what cells of padding hold: "zero", or "edge" (the nearest real cell, which never wins a maximum over
    a window that holds that cell too).
    """
    return finish(F, data, operator(prepare(F, data, windows, plan, fill)), windows, plan)


def prepare(F: Any, data: Any, windows: Sequence[Window], plan: Plan, fill: str) -> Any:
    """Mirror, join, spread and gather."""
    data = _reversed(F, data, plan)
    for axis, step in enumerate(plan.axes, SPATIAL):
        if any(step.join):
            data = _joined(F, data, axis, step.join, fill)
    if any(any(step.spread) for step in plan.axes):
        data = _spread(F, data, [step.spread for step in plan.axes], fill)
    for axis, (window, step) in enumerate(zip(windows, plan.axes), SPATIAL):
        if step.gather:
            data = _gathered(F, data, axis, window, len(windows), fill)
    return data


def finish(F: Any, data: Any, out: Any, windows: Sequence[Window], plan: Plan) -> Any:
    """Skip, drop the excess, mirror back. `data` is what `prepare` was given."""
    out = cropped(F, out, [(step.skip, step.excess or 0) for step in plan.axes])
    varying = [axis for axis, step in enumerate(plan.axes, SPATIAL) if step.excess is None]
    if varying:
        strides = [window.stride for window in windows]
        out = F.slice_like(out, _strided(F, data, strides), axes=varying)
    return _reversed(F, out, plan)


def extended_kernel(F: Any, weight: Any, channels: int, data: Any, windows: Sequence[Window], plan: Plan) -> Any:
    """The weight (.., .., *k) as the plan wants it: mirrored, with zero taps in front, or placed among zero taps.

    `data` is what `prepare` was given; its size says where a kernel is placed.
    """
    mirrored = _mirrored_axes(plan)
    if mirrored:  # `reverse` lets a shape be inferred through it, which a stepped slice does not
        # The gradient of `reverse` overwrites what grad_req="add" should add to; a copy stands between.
        weight = F.reverse(F.identity(weight), axis=mirrored)
    for axis, (window, step) in enumerate(zip(windows, plan.axes), SPATIAL):
        if step.front_taps:
            weight = _joined(F, weight, axis, (step.front_taps, 0), "zero")
        elif step.place:
            weight = _placed(F, weight, channels, data, axis, window, step, len(windows))
    return weight


def _placed(
    F: Any, weight: Any, channels: int, data: Any, axis: int, window: Window, step: AxisPlan, num_spatial_dims: int
) -> Any:
    """The kernel in each place that it may have, and the one chosen that the size wants; a shape can be inferred
    through that, as it could not through a look-up."""
    low = _sizes(F, data, axis, window, num_spatial_dims).low
    least, most = step.place or (0, 0)
    chosen = None
    for candidate in range(least, most + 1):
        before = step.pad - candidate
        placed = _joined(F, weight, axis, (before, step.kernel_size - window.kernel_size - before), "zero")
        chosen = placed if chosen is None else F.where(F.repeat(low >= candidate, repeats=channels), placed, chosen)
    return chosen


def cropped(F: Any, out: Any, crops: Sequence[tuple[int, int]]) -> Any:
    """Drop (head, tail) cells of each spatial axis."""
    if not any(map(any, crops)):
        return out
    begin = (None, None, *(head or None for head, _ in crops))
    end = (None, None, *(-tail or None for _, tail in crops))
    return F.slice(out, begin=begin, end=end)


def padded(F: Any, data: Any, pads: Sequence[tuple[int, int]]) -> Any:
    """The data with (low, high) zeros around each spatial axis."""
    return _spread(F, data, pads, "zero") if any(map(any, pads)) else data


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


class _Sizes(NamedTuple):
    """What a graph works out about one axis when it runs: 1-D arrays of float64, exact for any length."""

    size: Any  # (1,): n
    starts: Any  # (out,): s*j for each output j
    low: Any  # (1,): SAME's cells before the data


def _sizes(F: Any, data: Any, axis: int, window: Window, num_spatial_dims: int) -> _Sizes:
    """Reads n off the data; low = max((out-1)s + ke - n, 0) // 2."""
    others = [other for other in range(SPATIAL + num_spatial_dims) if other != axis]
    row = F.contrib.arange_like(F.cast(thin(F, data, others), dtype="float64"), axis=axis)  # 0 .. n-1
    size = F.slice_axis(row, axis=0, begin=-1, end=None) + 1
    starts = F.slice(row, begin=(None,), end=(None,), step=(window.stride,))
    total = F.slice_axis(starts, axis=0, begin=-1, end=None) + window.effective_kernel_size - size
    return _Sizes(size, starts, F.floor(F.relu(total) / 2))


def _gathered(F: Any, data: Any, axis: int, window: Window, num_spatial_dims: int, fill: str) -> Any:
    """The data with its SAME padding along one axis: out*s + max(ke - s, 0) cells, numbered, shifted by low, and
    looked up in the data."""
    size, starts, low = _sizes(F, data, axis, window, num_spatial_dims)
    cells = F.repeat(starts, repeats=window.stride)
    if window.effective_kernel_size > window.stride:
        more = window.effective_kernel_size - window.stride
        cells = F.concat(cells, F.repeat(F.zeros_like(size), repeats=more), dim=0)
    source = F.broadcast_sub(F.contrib.arange_like(cells, axis=0), low)
    return _looked_up(F, data, axis, source, size, fill)


def _looked_up(F: Any, array: Any, axis: int, source: Any, size: Any, fill: str) -> Any:
    """The cells `source` (float64, 1-D) of an axis of length `size` (1,); `fill` says what stands outside."""
    if fill == "zero":  # what is outside is looked up in one cell of zeros behind the rest
        array = _joined(F, array, axis, (0, 1), fill)
        inside = (source >= 0) * F.broadcast_lesser(source, size)
        source = F.broadcast_add(F.broadcast_sub(source, size) * inside, size)
    return F.take(array, F.BlockGrad(source), axis=axis, mode="clip")
