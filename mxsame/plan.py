"""Frozen plans: from the geometry of a window operation to how MXNet shall run it. Plain ints, no MXNet.

A `Window` says what is wanted along one axis: output j reads the cells from j*s - low on. MXNet's operators know one
pad for both ends only. A `AxisPlan` says how to get the wanted values all the same::

    mirror the data -> join cells to it -> gather from it, or shift it -> [kernel with zero taps around] operator(pad)
    -> skip outputs at the head, drop the excess at the tail -> mirror back

Most steps are empty in most plans. A strategy is one way of filling them in; whether it is exact is decided by one
piece of arithmetic, `_checked`, for every input size that the window stands for: one size where it is known, one of
each residue modulo the stride where it is not.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from dataclasses import dataclass, replace
from typing import Callable, Iterator, Mapping, Optional, Sequence, Tuple, Union

from mxsame import padding as arithmetic
from mxsame import validation

__all__ = [
    "ALONE",
    "AVERAGE",
    "CONVOLUTION",
    "LAST",
    "MAXIMUM",
    "RESHAPING",
    "STRATEGIES",
    "TRANSPOSED_STRATEGIES",
    "AxisPlan",
    "Plan",
    "TransposedAxis",
    "Window",
    "exact_plans",
    "force",
    "forced",
    "plan_transposed",
    "plan_window",
]


@dataclass(frozen=True)
class Window:
    """What is wanted along one axis.

    `size` is None where it is unknown. `padding` is "same", "keras-mxnet" or a (low, high) pair. `ceil_mode` adds as
    many cells at the end as make the last, partial window count (poolings with explicit pads).

    >>> window = Window(size=7, kernel_size=2, stride=2)
    >>> window.pads(7), window.outputs(7)
    ((0, 1), 4)
    """

    size: Optional[int]
    kernel_size: int
    stride: int
    dilation: int = 1
    padding: Union[str, Tuple[int, int]] = "same"
    ceil_mode: bool = False

    @property
    def effective_kernel_size(self) -> int:
        """ke = (k-1)d + 1."""
        return arithmetic.effective_kernel_size(self.kernel_size, self.dilation)

    @property
    def sizes(self) -> Sequence[int]:
        """The size, or where it is unknown one size of each residue modulo the stride.

        Pads, outputs and what a plan leaves over depend on nothing else (beyond sizes shorter than the kernel, which
        these are clear of).
        """
        if self.size is not None:
            return (self.size,)
        start = self.stride * -(-2 * self.effective_kernel_size // self.stride)
        return range(start, start + self.stride)

    @property
    def follows_size(self) -> bool:
        """Whether the pads follow from the size, so that there are ceil(n/s) outputs."""
        return self.padding in arithmetic.SIZE_DEPENDENT

    def pads(self, size: int) -> tuple[int, int]:
        """(low, high) for this size."""
        low, high = arithmetic.resolve_pads(size, self.kernel_size, self.stride, self.dilation, self.padding)
        if self.ceil_mode and not self.follows_size:
            high += -(size + low + high - self.effective_kernel_size) % self.stride
        return low, high

    def trimmed(self) -> Window:
        """The window without the cells, at its begin and end, that lie in the padding wherever it stands, for a
        pooling that does not count them: MXNet insists on k <= n + 2*pad, and walks through every cell."""
        if self.size is None:
            return self
        low, _ = self.pads(self.size)
        reach = (self.outputs(self.size) - 1) * self.stride  # from the first window's begin to the last one's
        front, back = max(low - reach, 0), max(self.kernel_size - low - self.size, 0)
        if not front and not back:
            return self
        kernel_size, low = self.kernel_size - front - back, low - front
        high = max(reach + kernel_size - low - self.size, 0)
        return replace(self, kernel_size=kernel_size, padding=(low, high), ceil_mode=False)

    def outputs(self, size: int) -> int:
        """How many windows fit into the padded size."""
        return arithmetic.output_size(size, self.kernel_size, self.stride, self.dilation, self.pads(size))


@dataclass(frozen=True)
class AxisPlan:
    """How MXNet runs a `Window`. All counts are in cells, taps or outputs along the axis.

    Parameters
    ----------
    kernel_size
        The taps that the operator is given, those of zero included.
    mirror
        The data, the kernel and the output are reversed; what follows is in mirrored coordinates.
    join
        Cells joined to the data by concatenation (low, high).
    spread
        Cells put around the data by MXNet's pad operator (low, high).
    gather
        The data is gathered from itself with the pads worked out in the graph.
    shift
        The data is moved within cells of padding, so that low appears to be the first of these two numbers whatever it
        is; the second is what the last window of any size needs.
    taps
        Zero taps joined to the kernel (front, back).
    place
        The kernel stands among `kernel_size` taps, pad - low of them before it; low is worked out in the graph and lies
        between these two.
    pad
        The operator's own pad, the same at both ends.
    skip
        Outputs dropped at the head.
    excess
        Outputs dropped at the tail; None where that depends on the size: cut to ceil(n/s).

    Examples
    --------
    >>> AxisPlan(kernel_size=3, pad=2, skip=1)  # pads (0, 1) with stride 2: pad both ends by 2, drop the first output
    AxisPlan(kernel_size=3, mirror=False, ..., pad=2, skip=1, excess=0)
    """

    kernel_size: int
    mirror: bool = False
    join: Tuple[int, int] = (0, 0)
    spread: Tuple[int, int] = (0, 0)
    gather: bool = False
    shift: Optional[Tuple[int, int]] = None
    taps: Tuple[int, int] = (0, 0)
    place: Optional[Tuple[int, int]] = None
    pad: int = 0
    skip: int = 0
    excess: Optional[int] = 0


@dataclass(frozen=True)
class Plan:
    """One plan for each axis, and by which convention a pooling counts its windows ("valid": floor, "full": ceil).

    >>> Plan((AxisPlan(3, pad=1), AxisPlan(3, join=(0, 1)))).fills
    True
    """

    axes: Tuple[AxisPlan, ...]
    convention: str = "valid"

    @property
    def fills(self) -> bool:
        """Whether cells of padding become part of the data, where an average cannot tell them from real ones."""
        return any(axis.gather or any(axis.join + axis.spread) for axis in self.axes)

    @property
    def is_alone(self) -> bool:
        """Whether the operator does it all, at most with a longer kernel.

        >>> Plan((AxisPlan(3, pad=1),)).is_alone, Plan((AxisPlan(3, pad=2, skip=1),)).is_alone
        (True, False)
        """
        return all(step == AxisPlan(step.kernel_size, taps=step.taps, pad=step.pad) for step in self.axes)


# -- strategies: a Window and its pads (the same low and the largest high for every size) -> a draft of a plan


def _native(window: Window, low: int, high: int) -> AxisPlan:
    """The operator's own pad; exact where both ends are alike, or where no window reaches what is too much."""
    return AxisPlan(window.kernel_size, pad=low)


def _slice(window: Window, low: int, high: int) -> AxisPlan:
    """Pad both ends by low + m*s, enough for the longer one, and drop the first m outputs."""
    skip = max(-(-(high - low) // window.stride), 0)
    return AxisPlan(window.kernel_size, pad=low + skip * window.stride, skip=skip)


def _kernel(window: Window, low: int, high: int) -> AxisPlan:
    """Zero taps in front of the kernel shift the windows, so that padding both ends alike fits; behind it they keep off
    windows that are too many."""
    front = max(-(-(high - low) // window.dilation), 0)
    draft = AxisPlan(window.kernel_size + front, taps=(front, 0), pad=low + front * window.dilation)
    back = _taps_behind(draft, window)
    return replace(draft, kernel_size=draft.kernel_size + back, taps=(front, back))


def _taps_behind(draft: AxisPlan, window: Window) -> int:
    """The fewest that leave every size its outputs and no more; none where no number does."""
    extended, rest = (draft.kernel_size - 1) * window.dilation + 1, []
    for size in window.sizes:  # cells behind the last window that is wanted
        rest.append(size + 2 * draft.pad - extended - (window.outputs(size) - 1) * window.stride)
    fewest = max(-(-(max(rest) - window.stride + 1) // window.dilation), 0)
    return fewest if fewest * window.dilation <= min(rest) else 0


def _tail(window: Window, low: int, high: int) -> AxisPlan:
    """Join what one end needs more than the other, leave the common part to the operator."""
    common = min(low, high)
    return AxisPlan(window.kernel_size, join=(low - common, high - common), pad=common)


def _pad(window: Window, low: int, high: int) -> AxisPlan:
    """Put all of the padding around the data beforehand."""
    return AxisPlan(window.kernel_size, spread=(low, high))


Draft = Callable[[Window, int, int], AxisPlan]
_DRAFTS: dict[str, Draft] = {"native": _native, "slice": _slice, "kernel": _kernel, "tail": _tail, "pad": _pad}

STRATEGIES = ("native", "full", "slice", "kernel", "tail", "pad", "mirror", "shift", "place", "place tail", "gather")
TRANSPOSED_STRATEGIES = ("cut", "crop", "extend", "stuff")

# What each kind of operator may do; where nobody knows better, the first that is exact runs.
CONVOLUTION = ("native", "slice", "tail", "kernel", "pad", "shift", "mirror", "place", "place tail", "gather")
AVERAGE = ("native", "full", "slice", "tail", "pad", "mirror", "gather")
MAXIMUM = ("native", "full", "slice", "tail", "pad", "gather")  # mirrored, ties would send gradients to the last cell
LAST = ("native", "full", "slice", "tail", "kernel")  # those that are written for channels last too
ALONE = ("native", "full", "kernel")  # those by which an operator can do it all, with a weight made beforehand
_MIRRORED = ("native", "kernel", "slice", "tail", "pad")


def _drafted(strategy: str, window: Window, mirror: bool = False) -> Optional[AxisPlan]:
    """The plan of a static strategy if it is exact for every size of the window."""
    pads = [window.pads(size)[::-1] if mirror else window.pads(size) for size in window.sizes]
    low, high = pads[0][0], max(high for _, high in pads)
    if any(pad[0] != low for pad in pads):  # one graph cannot begin its windows in two places
        return None
    if mirror and not all(_reaches_the_end(window, size) for size in window.sizes):
        return None
    return _checked(_DRAFTS[strategy](window, low, high), window, low, mirror)


def _reaches_the_end(window: Window, size: int) -> bool:
    """Whether the last window ends with the padding, so that windows can be counted from there."""
    reach = (window.outputs(size) - 1) * window.stride + window.effective_kernel_size
    return reach == size + sum(window.pads(size))


def _checked(draft: AxisPlan, window: Window, low: int, mirror: bool) -> Optional[AxisPlan]:
    """The draft with its excess and its mirror if it is exact, else None.

    The operator's window j begins at j*s - (pad + joined low - taps in front * d) in cells of the data. Skipping `skip`
    of them, the first must begin at -low; and there must be no fewer outputs than wanted.
    """
    begin = draft.pad + draft.join[0] + draft.spread[0] - draft.taps[0] * window.dilation
    if begin != low + draft.skip * window.stride:
        return None
    excess = {_operator_outputs(draft, window, size) - draft.skip - window.outputs(size) for size in window.sizes}
    if min(excess) < 0 or (len(excess) > 1 and not window.follows_size):
        return None
    return replace(draft, mirror=mirror, excess=excess.pop() if len(excess) == 1 else None)


def _operator_outputs(draft: AxisPlan, window: Window, size: int, ceil: bool = False) -> int:
    """What MXNet's operator gives for a draft, by its own formula."""
    extended = (draft.kernel_size - 1) * window.dilation + 1
    moved = draft.shift[1] - draft.shift[0] if draft.shift else 0
    span = size + sum(draft.join) + sum(draft.spread) + moved + 2 * draft.pad - extended
    return (-(-span // window.stride) if ceil else span // window.stride) + 1


def _mirrored(window: Window, allowed: Sequence[str]) -> Optional[AxisPlan]:
    """Static strategies from the end backwards: where `high` is the same for every size though `low` is not, as it is
    for every odd kernel with stride 2."""
    for strategy in _MIRRORED:
        if strategy in allowed:
            plan = _drafted(strategy, window, mirror=True)
            if plan is not None and plan.excess is not None:
                return plan
    return None


def _gathered(window: Window) -> Optional[AxisPlan]:
    """The pads worked out in the graph, for any kernel and stride; only where they follow from the size."""
    return AxisPlan(window.kernel_size, gather=True) if window.follows_size else None


RESHAPING = ("kernel", "mirror", "place", "place tail")  # no shape of a weight can be inferred through these
MOST_PLACES = 2  # beyond the first; each is a copy of the kernel and a choice, and taps to multiply by zero


def _shifted(window: Window) -> Optional[AxisPlan]:
    """The data is moved so that the windows of every size begin in the same place."""
    if window.size is not None:
        return None
    return _moved(window, lambda least, most, reach: AxisPlan(window.kernel_size, shift=(least, reach), pad=least))


def _placed(window: Window, tail: bool) -> Optional[AxisPlan]:
    """Windows begin at -pad for every size; where in them the kernel stands makes up for the difference.

    With `tail` one end gets cells joined, so that fewer taps do.
    """

    def draft(least: int, most: int, reach: int) -> AxisPlan:
        pad = most if tail else reach
        return AxisPlan(pad - least + window.kernel_size, join=(0, reach - pad), place=(least, most), pad=pad)

    return _moved(window, draft) if window.dilation == 1 else None


def _moved(window: Window, draft: Callable[[int, int, int], AxisPlan]) -> Optional[AxisPlan]:
    """A plan that knows the least and the most of `low`, and the pad that the last window of every size needs if all
    begin as far back as any."""
    if not window.follows_size:
        return None
    pads = [window.pads(size) for size in window.sizes]
    least, most = min(low for low, _ in pads), max(low for low, _ in pads)
    if most - least > MOST_PLACES:
        return None
    plan = draft(least, most, max(most, max(map(sum, pads)) - least))
    excess = {_operator_outputs(plan, window, size) - window.outputs(size) for size in window.sizes}
    return replace(plan, excess=excess.pop() if len(excess) == 1 else None) if min(excess) >= 0 else None


def _axis_plan(strategy: str, window: Window, allowed: Sequence[str]) -> Optional[AxisPlan]:
    if strategy == "gather":
        return _gathered(window)
    if strategy == "mirror":
        return _mirrored(window, allowed)
    if strategy == "shift":
        return _shifted(window)
    if strategy in ("place", "place tail"):
        return _placed(window, tail=strategy == "place tail")
    plan = _drafted(strategy, window)
    if plan is not None and strategy == "native" and (plan.skip or plan.excess != 0):
        return None  # native is the name for a plan without any step of ours
    return plan


def _full(windows: Sequence[Window]) -> Optional[Plan]:
    """Pooling's "full" convention counts the partial window at the end. One convention serves all axes, so each must
    agree with it; and the operator insists on k <= n + 2*pad, for every size."""
    axes = []
    for window in windows:
        pads = [window.pads(size) for size in window.sizes]
        low = pads[0][0]
        shortest = (1 if window.size is None else window.size) + 2 * low
        if any(pad[0] != low for pad in pads) or window.kernel_size > shortest:
            return None
        draft = AxisPlan(window.kernel_size, pad=low)
        if any(_operator_outputs(draft, window, size, ceil=True) != window.outputs(size) for size in window.sizes):
            return None
        axes.append(draft)
    return Plan(tuple(axes), "full")


def plan_window(
    windows: Sequence[Window], allowed: Sequence[str], pads_below_kernel: bool = False, trim: bool = False
) -> Plan:
    """The first of the exact plans, or the one of the strategy in force, which is a `ValueError` where it is not exact
    for an axis.

    >>> odd, even = plan_window([Window(7, 3, 2), Window(8, 3, 2)], CONVOLUTION).axes
    >>> odd == AxisPlan(3, pad=1), even == AxisPlan(3, pad=2, skip=1)
    (True, True)
    >>> plan_window([Window(7, 2, 2)], MAXIMUM, pads_below_kernel=True)
    Plan(axes=(AxisPlan(kernel_size=2, ...),), convention='full')
    """
    strategy = forced()
    if strategy not in STRATEGIES or strategy not in allowed:
        strategy = None
    plans = exact_plans(tuple(windows), tuple(allowed), pads_below_kernel, trim, strategy)
    if plans:
        return next(iter(plans.values()))
    if strategy is not None:
        alone = (exact_plans((window,), tuple(allowed), pads_below_kernel, trim, strategy) for window in windows)
        culprit = next((window for window, plans in zip(windows, alone) if not plans), windows)
        raise ValueError(f"the strategy {strategy!r} is not exact for {culprit}; received strategy={strategy!r}")
    unknown = next((window for window in windows if window.size is None), windows[0])
    raise ValueError(
        "an unknown input size with this padding and stride has no exact graph; give input_size; "
        f"{validation.received(padding=unknown.padding, stride=unknown.stride, ceil_mode=unknown.ceil_mode)}"
    )


@functools.lru_cache(maxsize=4096)
def exact_plans(
    windows: Tuple[Window, ...],
    allowed: Tuple[str, ...],
    pads_below_kernel: bool = False,
    trim: bool = False,
    only: Optional[str] = None,
) -> Mapping[str, Plan]:
    """Every exact plan, by the strategy that its axes have in common, in the order of `allowed`.

    An axis that needs nothing runs natively in all of them, and one for which the strategy is not exact by the first
    that is. Where no axis needs anything there is only "native".

    `pads_below_kernel` is the rule of MXNet's poolings: the operator's pad must be less than its kernel. `trim` is for
    poolings that do not count padding: windows lose the cells that are never in the data. With `only` no other
    strategy helps out.

    >>> list(exact_plans((Window(8, 3, 2),), ("native", "slice", "tail")))
    ['slice', 'tail']
    >>> list(exact_plans((Window(7, 3, 2),), ("native", "slice", "tail")))
    ['native']
    """
    if trim:
        windows = tuple(window.trimmed() for window in windows)
    strategies = allowed if only is None else ("native", only)
    rows = []
    for window in windows:
        row = {strategy: _axis_plan(strategy, window, allowed) for strategy in strategies if strategy != "full"}
        rows.append(
            {
                strategy: plan
                for strategy, plan in row.items()
                if plan is not None and not (pads_below_kernel and plan.pad >= plan.kernel_size)
            }
        )
    if all("native" in row for row in rows):
        return {"native": Plan(tuple(row["native"] for row in rows))}
    plans = {}
    for strategy in strategies:
        if strategy == "full":
            full = _full(windows)
            if full is not None:
                plans[strategy] = full
        elif all(rows) and any(strategy in row and "native" not in row for row in rows):
            first = (next(iter(row)) for row in rows)
            plans[strategy] = Plan(
                tuple(row[one if "native" in row or strategy not in row else strategy] for one, row in zip(first, rows))
            )
    return plans


# -- transposed convolutions: what is cut does not depend on the size


@dataclass(frozen=True)
class TransposedAxis:
    """How MXNet runs a transposed convolution along one axis.

    The kernel gets `taps` of zero joined to it (front, back). Of the longer kernel the Deconvolution gives
    (n-1)s + ke - 2*pad + adj outputs; `crop` of them are dropped at (head, tail).

    >>> TransposedAxis(pad=0, adj=0, crop=(0, 1))
    TransposedAxis(pad=0, adj=0, crop=(0, 1), taps=(0, 0))
    """

    pad: int
    adj: int
    crop: Tuple[int, int]
    taps: Tuple[int, int] = (0, 0)


def plan_transposed(
    effective_kernel_size: int, stride: int, cuts: tuple[int, int], strategy: str = "cut", dilation: int = 1
) -> TransposedAxis:
    """`cuts` (head, tail) as the Deconvolution's own pad and adj as far as they can say it ("cut"); by cropping and
    extending its whole output ("crop"); or by zero taps around the kernel, so that pad and adj can say more of it
    ("extend").

    >>> plan_transposed(3, 2, cuts=(0, 1)), plan_transposed(2, 3, cuts=(0, -1))
    (TransposedAxis(pad=0, adj=0, crop=(0, 1), ...), TransposedAxis(pad=0, adj=1, crop=(0, 0), ...))
    >>> plan_transposed(3, 2, cuts=(0, 1), strategy="extend")
    TransposedAxis(pad=1, adj=0, crop=(0, 0), taps=(1, 0))
    """
    head, tail = cuts
    front = back = 0
    if strategy == "extend":  # wanted: 0 <= head - tail < stride, which is what adj can make up for
        front = max(-(-(tail - head) // dilation), 0)
        back = max(-(-(head - tail - stride + 1) // dilation), 0)
        head, tail = head + front * dilation, tail + back * dilation
    extent = effective_kernel_size + (front + back) * dilation
    pad = 0 if strategy == "crop" else max(min(head, tail + stride - 1, extent - 1), 0)
    adj = max(pad - tail, 0)
    return TransposedAxis(pad, adj, (head - pad, tail - pad + adj), (front, back))


# -- forcing a strategy

_FORCED: contextvars.ContextVar[Optional[str]] = contextvars.ContextVar("mxsame_forced_strategy", default=None)


def forced() -> Optional[str]:
    """The strategy in force, or None.

    >>> with force("tail"):
    ...     forced()
    'tail'
    """
    return _FORCED.get()


@contextlib.contextmanager
def force(strategy: Optional[str]) -> Iterator[None]:
    """Within the `with` block graphs are built by this strategy, for tests and for the curious; None lifts a force.

    Operators that do not know the strategy are left alone; a geometry for which it is not exact is a `ValueError`.

    >>> with force("slice"):
    ...     plan_window([Window(224, 7, 2)], CONVOLUTION).axes == (AxisPlan(kernel_size=7, pad=4, skip=1),)
    True
    """
    allowed = STRATEGIES + TRANSPOSED_STRATEGIES
    if strategy is not None and not (isinstance(strategy, str) and strategy in allowed):
        raise ValueError(f"strategy must be one of {', '.join(allowed)}; {validation.received(strategy=strategy)}")
    token = _FORCED.set(strategy)
    try:
        yield
    finally:
        _FORCED.reset(token)
