"""The table of strategies. Each one drafts an `AxisPlan` for a window.

MXNet's operators take one pad for both ends. Steps around an operator give the outputs of asymmetric padding::

    flip the data -> concatenate or pad -> gather, or shift, or dilate -> [longer kernel] operator(pad)
    -> crop the output -> flip back

Most plans have few of these steps. A strategy only drafts plans: all of them are proved exact, or rejected, in one
place, for every input size of the window (:func:`mxsame.plan.simulation.prove`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from mxsame.padding.same import high_pad
from mxsame.plan.axis_plan import AddedElements, AxisPlan, OneHotKernel
from mxsame.plan.simulation import prove
from mxsame.plan.windows import AnyWindow, TransposedWindow, Window
from mxsame.validation import Pair

MAX_SHIFT = 2  # how much the low pad may vary with the input size; more would need a longer kernel


Pads = Sequence[Pair]  # for each of a window's sizes: (low, high), or what a transposed convolution crops, (start, end)
DraftFunction = Callable[[Any, Pads], Iterator[AxisPlan]]  # called with a window and its pads


# -- drafts for convolutions and pooling operators. `prove` fills in a crop whose end is None.


def _native(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Use only the operator's own pad: exact if both pads are equal, or if no window reads the surplus padding."""
    yield AxisPlan(window.kernel_size, pad=pads[0][0])


def _slice(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Pad both ends by low + m*s, with the smallest m for which that is >= high, and drop the first m outputs."""
    low, high = _first_low_and_max_high(pads)
    count = max(-(-(high - low) // window.stride), 0)
    yield AxisPlan(window.kernel_size, pad=low + count * window.stride, crop=(count, None))


def _concat(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Concatenate the difference of the pads at the end that needs more; the operator pads the common part."""
    low, high = _first_low_and_max_high(pads)
    common = min(low, high)
    yield AxisPlan(window.kernel_size, concat=(low - common, high - common), pad=common, crop=(0, None))


def _any_concat(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Concatenate a fixed number of elements, or one that depends on the size."""
    yield from _concat(window, pads)
    yield from _dynamic_concat(window, pads)


def _kernel(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Add zeros at the kernel's start, so that equal pads suffice, and at its end, so that no extra window fits."""
    low, high = _first_low_and_max_high(pads)
    front = max(-(-(high - low) // window.dilation), 0)
    pad, extended = low + front * window.dilation, window.effective_kernel_size + front * window.dilation
    rest = [2 * pad - high_pad(n, window.outputs(n), extended, window.stride) for n in window.sizes]
    back = _zeros_after(window, rest)
    yield AxisPlan(window.kernel_size + front + back, kernel_zeros=(front, back), pad=pad, crop=(0, None))


def _zeros_after(window: Window, rest: Sequence[int]) -> int:
    """Returns the smallest number of zeros after the kernel that gives every size its exact number of outputs; 0 if
    there is no such number. `rest` is the number of elements left over after the last window, for each size."""
    fewest = max(-(-(max(rest) - window.stride + 1) // window.dilation), 0)
    return fewest if fewest * window.dilation <= min(rest) else 0


def _pad(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Add all padding with MXNet's pad operator."""
    yield AxisPlan(window.kernel_size, pad_operator=_first_low_and_max_high(pads), crop=(0, None))


def _first_low_and_max_high(pads: Pads) -> Pair:
    """Returns the low pad of the first size, and the largest high pad. A draft has one start for all sizes, so
    the proof rejects it if the low pads differ."""
    return pads[0][0], max(high for _, high in pads)


def _full(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Use Pooling's "full" convention, which counts a partial window at the end. The operator requires k <= n + 2*pad;
    so does mxsame for explicit pads.

    With the common kernel size 2, a graph of dynamic shape does not support size 1: the strategies that support it
    are slower for every size.

    If low depends on the size, low + s elements are concatenated before the data, and the first output is dropped.
    """
    low, min_size = pads[0][0], 2 if window.kernel_size == 2 else 1
    if not window.pads_depend_on_size:
        min_size = max(window.effective_kernel_size - sum(window.explicit_pads), 1)
    if any(pad[0] != low for pad in pads):
        yield from _dynamic_concat(window, pads, window.stride, full=True)
    elif window.kernel_size <= (min_size if window.size is None else window.size) + 2 * low:
        yield AxisPlan(window.kernel_size, pad=low)


def _dynamic_concat(window: Window, pads: Pads, extra: int = 0, full: bool = False) -> Iterator[AxisPlan]:
    """Concatenate low + `extra` elements before the data and the largest high after it; the outputs that come
    from the `extra` elements are dropped.

    At least two elements must go before the data: MXNet has no empty arrays, and if the first array that oneDNN
    concatenates has length 1, the result gets a memory layout for which pooling is a hundred times slower.
    """
    enough_before_data = window.effective_kernel_size >= window.stride and min(low for low, _ in pads) + extra > 1
    if window.size is None and window.pads_depend_on_size and enough_before_data:
        high = max(max(high for _, high in pads) - (window.stride - 1 if full else 0), 0)
        yield AxisPlan(window.kernel_size, dynamic_concat=AddedElements(extra, high), crop=(extra // window.stride, 0))


def _flip(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Use the native, slice or concat strategy on flipped data. For every odd kernel with stride 2, `high` is the same
    for every size although `low` is not. Without this, 3-D networks in a graph of dynamic shape take two to three times
    as long."""
    for drafts in (_native, _slice, _concat):
        for draft in drafts(window, [(high, low) for low, high in pads]):
            yield replace(draft, flip=True, crop=(draft.crop[0], None))


# -- dynamic: pads that follow from the size are computed in the graph


def _shift(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Shift the data so that the windows start at the same position for every size."""
    start = _min_low_and_max_pad(window, pads)
    if start and window.size is None:
        min_low, max_pad = start
        kernel = OneHotKernel(min_low, max_pad, max_pad - min_low)
        yield AxisPlan(window.kernel_size, shift=kernel, pad=min_low, crop=(0, None))


def _pick(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Run the operator with stride 1, and pick SAME's outputs."""
    pad, start = max(map(max, pads)), _min_low_and_max_pad(window, pads)
    if start and window.dilation == 1:
        for kernel_pad in range(window.kernel_size):
            kernel = OneHotKernel(start[0], pad + kernel_pad, kernel_pad)
            yield AxisPlan(window.kernel_size, pick=kernel, pad=pad, crop=(0, None))


def _min_low_and_max_pad(window: Window, pads: Pads) -> Optional[Pair]:
    """Returns the smallest low pad, and the pad that the last window needs if that is the low pad for every size;
    None if the pads do not follow from the size, or differ by more than `MAX_SHIFT`."""
    min_low, max_low = min(low for low, _ in pads), max(low for low, _ in pads)
    varies_little = window.pads_depend_on_size and max_low - min_low <= MAX_SHIFT
    return (min_low, max(max_low, max(map(sum, pads)) - min_low)) if varies_little else None


def _gather(window: Window, pads: Pads) -> Iterator[AxisPlan]:
    """Gather the padded data from the data: exact for any kernel and stride, if the pads follow from the size."""
    if window.pads_depend_on_size:
        yield AxisPlan(window.kernel_size, gather=True)


# -- drafts for transposed convolutions: what is cropped does not depend on the size


def _transposed_native(window: TransposedWindow, crops: Pads) -> Iterator[AxisPlan]:
    """Use the operator's own pad and adj: exact if no other crop is needed."""
    yield replace(_with_pad_and_adj(window, crops[0], (0, 0)), crop=(0, 0))


def _transposed_slice(window: TransposedWindow, crops: Pads) -> Iterator[AxisPlan]:
    """Use the operator's own pad and adj as far as possible, and crop the rest from its output."""
    yield _with_pad_and_adj(window, crops[0], (0, 0))


def _transposed_kernel(window: TransposedWindow, crops: Pads) -> Iterator[AxisPlan]:
    """Pad the kernel with zeros until pad and adj alone give the crop, which requires 0 <= start - end < stride."""
    start, end = crops[0]
    front = max(-(-(end - start) // window.dilation), 0)
    back = max(-(-(start - end - window.stride + 1) // window.dilation), 0)
    yield _with_pad_and_adj(window, crops[0], (front, back))


def _with_pad_and_adj(window: TransposedWindow, crop: Pair, zeros: Pair) -> AxisPlan:
    """Returns the plan that, with `zeros` added around the kernel, leaves as little as possible to crop."""
    start, end = (count + added * window.dilation for count, added in zip(crop, zeros))
    extent = window.effective_kernel_size + sum(zeros) * window.dilation
    pad = max(min(start, end + window.stride - 1, extent - 1), 0)
    adj = max(pad - end, 0)
    return AxisPlan(
        window.kernel_size + sum(zeros), kernel_zeros=zeros, pad=pad, adj=adj, crop=(start - pad, end - pad + adj)
    )


def _transposed_dilate(window: TransposedWindow, crops: Pads) -> Iterator[AxisPlan]:
    """Run a stride-1 convolution of the dilated input with the flipped kernel: s^N times the multiplications, but
    every gradient works, and so does dilation in 3-D."""
    low, high = (window.effective_kernel_size - 1 - count for count in crops[0])
    common = max(min(low, high), 0)
    added = max(low, 0) - common, max(high, 0) - common
    crop = max(-low, 0), max(-high, 0)
    yield AxisPlan(window.kernel_size, pad_operator=added, dilate=window.stride, pad=common, crop=crop)


# -- the table

AVG_WITH_PADDING = "avg with padding"  # average pooling with count_include_pad=True
POOLS = ("max", "avg", AVG_WITH_PADDING, "lp")  # run by MXNet's Pooling
OPERATORS = ("conv", *POOLS, "transposed")

WEIGHT, CHANNELS = "weight", "channels"


@dataclass(frozen=True)
class Strategy:
    """A way to run windows exactly.

    Parameters
    ----------
    name : str
    drafts : dict
        Maps each operator that it supports, one of `OPERATORS`, to a function that is called with a window and its pads
        for each size, and yields drafts. The first exact one is used.
    needs : str, optional
        What must be known to build its graph: "weight", the weight's shape, at least in part; "channels", the data's
        channels.
    channels_last : bool
        Whether it also runs data with channels last.
    convention : str
        MXNet's pooling_convention, "valid" or "full".
    all_axes : bool
        Whether it must be used for all axes, or for none.
    candidate_on : tuple of str
        The devices on which the planner may choose it for its speed. Elsewhere it runs only if it is asked for
        (:func:`mxsame.plan.use_strategy`), or if no other is exact.

    Examples
    --------
    >>> STRATEGIES["kernel"].needs, STRATEGIES["kernel"].supports("max")
    ('weight', False)
    """

    name: str
    drafts: Mapping[str, DraftFunction]
    needs: Optional[str] = None
    channels_last: bool = False
    convention: str = "valid"
    all_axes: bool = False
    candidate_on: Tuple[str, ...] = ("cpu", "gpu")

    def supports(self, operator: str) -> bool:
        """Returns whether it can run the operator."""
        return operator in self.drafts

    def has_dynamic_concat(self, windows: Sequence[AnyWindow], operator: str) -> bool:
        """Returns whether its plan for any of the windows concatenates a size-dependent number of elements."""
        plans = (self.plan(window, operator) for window in windows)
        return any(plan is not None and plan.dynamic_concat is not None for plan in plans)

    def plan(self, window: AnyWindow, operator: str = "conv") -> Optional[AxisPlan]:
        """Returns the plan for one axis, or None if none is exact. MXNet's Pooling requires pad < kernel_size."""
        if not self.supports(operator):
            return None
        for draft in self.drafts[operator](window, list(map(window.pads, window.sizes))):
            plan = prove(draft, window, self.convention)
            if plan is not None and (operator not in POOLS or plan.pad < plan.kernel_size):
                return plan
        return None


_FORWARD = ("conv", *POOLS)
_SUMS = ("conv", "avg", AVG_WITH_PADDING, "lp")  # not "max": if flipped, tied maxima send the gradient to the last

_TABLE = (  # in order of preference: without cost estimates, the first exact one is chosen
    Strategy("native", {**dict.fromkeys(_FORWARD, _native), "transposed": _transposed_native}, channels_last=True),
    Strategy("full", dict.fromkeys(("max", "avg", "lp"), _full), channels_last=True, convention="full", all_axes=True),
    Strategy("slice", {**dict.fromkeys(_FORWARD, _slice), "transposed": _transposed_slice}, channels_last=True),
    Strategy("concat", dict.fromkeys(_FORWARD, _any_concat), channels_last=True),
    Strategy("kernel", {"conv": _kernel, "transposed": _transposed_kernel}, WEIGHT, channels_last=True),
    Strategy("pad", dict.fromkeys(_FORWARD, _pad), channels_last=True, candidate_on=("gpu",)),
    Strategy("shift", {"conv": _shift}, CHANNELS),
    Strategy("pick", dict.fromkeys(POOLS, _pick), CHANNELS),
    Strategy("flip", dict.fromkeys(_SUMS, _flip), WEIGHT),
    Strategy("gather", dict.fromkeys(_FORWARD, _gather)),
    Strategy("dilate", {"transposed": _transposed_dilate}, all_axes=True, candidate_on=("gpu",)),
)
STRATEGIES: Dict[str, Strategy] = {strategy.name: strategy for strategy in _TABLE}
