"""Functions on arrays and Symbols with channels first, by MXNet's operators: `F` is `mx.nd` or `mx.sym`."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from mxsame.onednn_blocks import MAX_BLOCK

SPATIAL = 2  # the first spatial axis, with channels first
REQUIRED_COPY = "__copy__"  # marks an identity operator that MXNet needs, so that no pass removes it


def concatenate(F: Any, array: Any, axis: int, counts: Tuple[int, int], fill: str = "zero", like: Any = None) -> Any:
    """Returns the array with (low, high) elements concatenated along an axis. They are made from the array, so they
    have its dtype, batch size and device. With a 1-D `like`, low is its length."""
    low, high = counts
    first = F.slice_axis(array, axis=axis, begin=0, end=1)
    last = F.slice_axis(array, axis=axis, begin=-1, end=None)
    if fill == "zero":
        first = last = F.zeros_like(first)
    # One block for many elements: a concatenation of thousands of arrays would be slow to build.
    before = [first if low == 1 else F.repeat(first, repeats=low, axis=axis)] if low else []
    if like is not None:
        before = [F.broadcast_like(first, like, lhs_axes=(axis,), rhs_axes=(0,))]
    after = [last if high == 1 else F.repeat(last, repeats=high, axis=axis)] if high else []
    return F.concat(*before, array, *after, dim=axis)


def pad(F: Any, data: Any, pads: Sequence[Tuple[int, int]], fill: str = "zero", first: int = SPATIAL) -> Any:
    """Returns the data padded by MXNet's pad operator, which takes four or five axes and leaves the first two as they
    are: a single spatial axis gets another, and images with channels last (`first` is 1) get one before the batch."""
    if not any(map(any, pads)):
        return data
    restore_shape: Tuple[int, ...] = ()
    if first < SPATIAL:
        data, pads, restore_shape = F.expand_dims(data, axis=0), [*pads, (0, 0)], (-3, -2)
    elif len(pads) == 1:
        data, pads, restore_shape = F.expand_dims(data, axis=-1), [*pads, (0, 0)], (0, 0, 0)
    widths = (0, 0, 0, 0, *(count for pair in pads for count in pair))
    mode = {"zero": {"mode": "constant", "constant_value": 0}, "edge": {"mode": "edge"}}[fill]
    data = F.pad(data, pad_width=widths, **mode)
    return F.reshape(data, shape=restore_shape) if restore_shape else data


def pair_channels(F: Any, data: Any, copies: bool) -> Any:
    """Returns (N, C, W) as (N, C/2, 2, W), where each pair of channels is an image of two rows. With `copies`,
    the result is copied to the plain layout, which MXNet needs to compute its gradient."""
    data = F.reshape(data, shape=(0, -4, -1, 2, 0))
    return copy_to_plain(F, data) if copies else data


def convolve_channels(F: Any, data: Any, kernel: Any, channels: Any, lengths: Sequence[int], **attributes: Any) -> Any:
    r"""Returns the data with every channel convolved with the same kernel (1, 1, \*lengths). The output is in oneDNN's
    blocks."""
    weight = F.repeat(kernel, repeats=channels, axis=0)
    given = {"kernel": tuple(lengths), "num_filter": channels, "num_group": channels, "no_bias": True}
    return F.Convolution(data, weight, **given, **attributes)


def copy_to_plain(F: Any, array: Any) -> Any:
    """Returns a copy in the plain layout. MXNet 1.9.1 needs it if the array, or its gradient, may be in a layout of
    oneDNN: before and after `reshape`, which assumes that the layout has the rank of the result, and fails; and before
    `softmax` (:func:`mxsame.rewriting.onednn.copy_before_softmax`). An array on a GPU is returned as it is, and
    graphs for a GPU lose their copies (:func:`mxsame.rewriting.canonical.drop_copies`)."""
    if getattr(getattr(array, "ctx", None), "device_type", "cpu") == "gpu":
        return array
    return F.slice_axis(array, axis=0, begin=0, end=None, **{REQUIRED_COPY: True})


def copy_weight(F: Any, weight: Any) -> Any:
    """Returns a copy of a weight, for use before or after `transpose`. In MXNet 1.9.1 `transpose` assumes four axes for
    the oneDNN layout of a grouped convolution's weight, and fails. Unlike a slice, this copy lets MXNet infer the
    weight's shape."""
    return F._internal._mul_scalar(weight, scalar=1.0, **{REQUIRED_COPY: True})


def unpair_channels(F: Any, out: Any) -> Any:
    """Returns (N, C/2, 2, W) as (N, C, W)."""
    return F.reshape(out, shape=(0, -3, 0))


def crop(F: Any, out: Any, crops: Sequence[Tuple[int, int]], first: int = SPATIAL) -> Any:
    """Returns the output without (start, end) elements of each spatial axis."""
    if not any(map(any, crops)):
        return out
    outer = (None,) * first
    begin = (*outer, *(start or None for start, _ in crops))
    end = (*outer, *(-end or None for _, end in crops))
    return F.slice(out, begin=begin, end=end)


def take_first(F: Any, array: Any, axes: Sequence[int]) -> Any:
    """Returns the array sliced to length 1 along these axes."""
    axes = list(axes)
    array = take_first_block(F, array, axes)
    return F.slice_axis(array, axis=1, begin=0, end=1) if 1 in axes else array


def take_first_block(F: Any, array: Any, axes: Sequence[int]) -> Any:
    """As `take_first`, but keeps the first `MAX_BLOCK` channels: whole blocks.

    Only `slice` reads a part of what a convolution has left in oneDNN's blocks; every other operator has MXNet undo the
    blocks of the whole array first. A slice that divides a block ends the process (SIGFPE).
    """
    ends = {axis: MAX_BLOCK if axis == 1 else 1 for axis in axes}
    last = max(ends) + 1
    return F.slice(array, begin=(0,) * last, end=tuple(ends.get(axis) for axis in range(last)))


def reverse_kernel(F: Any, weight: Any, axes: Sequence[int]) -> Any:
    """Returns a kernel reversed along axes. A shape can be inferred through `reverse`, but not through a stepped slice.
    Its gradient overwrites what grad_req="add" should add to, so there is a copy between."""
    return F.reverse(F.identity(weight), axis=tuple(axes))


def flip_weight(F: Any, weight: Any, groups: int, rank: int) -> Any:
    r"""Returns the weight of a transposed convolution as that of a convolution, (I, O/g, \*k) -> (O, I/g, \*k), every
    kernel flipped; a shape can be inferred through it."""
    weight = reverse_kernel(F, weight, range(SPATIAL, SPATIAL + rank))
    if groups == 1:
        return F.transpose(weight, axes=(1, 0, *range(2, 2 + rank)))
    weight = F.reshape(weight, shape=(-4, groups, -1, -2))
    weight = F.transpose(weight, axes=(0, 2, 1, *range(3, 3 + rank)))
    return F.reshape(copy_weight(F, weight), shape=(-3, -2))
