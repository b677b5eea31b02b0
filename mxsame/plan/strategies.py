"""How MXNet runs a window: the table of strategies, which fill in the steps of an `AxisPlan`.

MXNet's operators have one pad for both ends. Steps around an operator make its values those of asymmetric padding::

    flip the data -> concatenate, lengthen or pad -> gather, or shift, or dilate -> [longer kernel] operator(pad)
    -> crop the output -> flip back

Most steps are empty in most plans. Whether a draft is exact is decided by arithmetic on the positions that are read
(`_checked` and `_checked_transposed`), for every input size of the window.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from mxsame.padding import high_pad
from mxsame.plan.axis_plan import AddedElements, AxisPlan, OneHot
from mxsame.plan.steps import Step, steps_of
from mxsame.plan.windows import AnyWindow, TransposedWindow, Window

MOST_SHIFTS = 2  # after the first; each is an element of the kernel that moves data, zero for all but one


@dataclass(frozen=True)
class Plan:
    """The plans of all axes of an operator.

    Pooling operators have three facts in addition: `convention`, how they count windows ("valid": floor, "full": ceil);
    `pairs`, whether data of one axis goes to them as pictures of pairs of channels; `blocks`, whether plain data is
    copied into oneDNN's blocks before them (`mxsame.plan.choice.choose_layout`).

    >>> Plan((AxisPlan(3, pad=1), AxisPlan(3, concat=(0, 1)))).fills
    True
    """

    axes: Tuple[AxisPlan, ...]
    convention: str = "valid"
    pairs: bool = field(default=False, compare=False)  # follows from the plans of the layers before it
    blocks: bool = False

    @functools.cached_property
    def steps(self) -> Tuple[Step[Any], ...]:
        """The steps around the operator."""
        return steps_of(self.axes)

    @property
    def fills(self) -> bool:
        """Whether padding becomes part of the data, so that an average counts it."""
        return any(step.fills for step in self.steps)

    @property
    def dilates(self) -> bool:
        """Whether a transposed convolution runs as a convolution of the dilated input."""
        return any(axis.dilate for axis in self.axes)


# -- convolutions and pooling operators, static: drafts of a plan from the one low and the largest high of all sizes


def _native(window: Window, low: int, high: int) -> AxisPlan:
    """Leave padding to the operator's own pad: exact if both ends are alike, or if no window reads the surplus."""
    return AxisPlan(window.kernel_size, pad=low)


def _slice(window: Window, low: int, high: int) -> AxisPlan:
    """Pad both ends by low + m*s, enough for the longer one, and drop the first m outputs."""
    count = max(-(-(high - low) // window.stride), 0)
    return AxisPlan(window.kernel_size, pad=low + count * window.stride, crop=(count, 0))


def _concat(window: Window, low: int, high: int) -> AxisPlan:
    """Concatenate what one end needs more than the other, leave the common part to the operator."""
    common = min(low, high)
    return AxisPlan(window.kernel_size, concat=(low - common, high - common), pad=common)


def _kernel(window: Window, low: int, high: int) -> AxisPlan:
    """Put zeros before the kernel, which shift windows so that equal pads fit, and after it, against extra windows."""
    front = max(-(-(high - low) // window.dilation), 0)
    draft = AxisPlan(window.kernel_size + front, zeros=(front, 0), pad=low + front * window.dilation)
    back = _zeros_after(draft, window)
    return replace(draft, kernel_size=draft.kernel_size + back, zeros=(front, back))


def _zeros_after(draft: AxisPlan, window: Window) -> int:
    """Returns the fewest zeros that leave every size its outputs and no more; 0 if no number does."""
    extended, rest = (draft.kernel_size - 1) * window.dilation + 1, []
    for size in window.sizes:  # elements after the last window of SAME
        rest.append(size + 2 * draft.pad - extended - (window.outputs(size) - 1) * window.stride)
    fewest = max(-(-(max(rest) - window.stride + 1) // window.dilation), 0)
    return fewest if fewest * window.dilation <= min(rest) else 0


def _pad(window: Window, low: int, high: int) -> AxisPlan:
    """Leave all of the padding to MXNet's pad operator."""
    return AxisPlan(window.kernel_size, pad_operator=(low, high))


Draft = Callable[[Window, int, int], AxisPlan]


def _pads(window: Window) -> List[Tuple[int, int]]:
    """Returns (low, high) for each of the window's sizes."""
    return [window.pads(size) for size in window.sizes]


def _checked(draft: Draft, window: Window, pads: Sequence[Tuple[int, int]]) -> Optional[AxisPlan]:
    """Returns the draft with what it must crop, if it is exact, else None.

    The operator's window j starts at j*s - (pad + added low - zeros in front * d), counted in elements of the data. The
    first that is kept must start at -low; and there must be no fewer outputs than SAME has.
    """
    low, high = pads[0][0], max(high for _, high in pads)
    if any(pad[0] != low for pad in pads):  # the windows of one graph cannot start at two positions
        return None
    plan = draft(window, low, high)
    start = plan.pad + plan.concat[0] + plan.pad_operator[0] - plan.zeros[0] * window.dilation
    if start != low + plan.crop[0] * window.stride:
        return None
    extra = {_operator_outputs(plan, window, size) - plan.crop[0] - window.outputs(size) for size in window.sizes}
    if min(extra) < 0 or (len(extra) > 1 and not window.follows_size):
        return None
    return replace(plan, crop=(plan.crop[0], extra.pop() if len(extra) == 1 else None))


def _operator_outputs(plan: AxisPlan, window: Window, size: int, ceil: bool = False) -> int:
    """Returns the number of outputs of MXNet's operator, by its own formula."""
    span = _operator_span(plan, window, size)
    return (-(-span // window.stride) if ceil else span // window.stride) + 1


def _operator_span(plan: AxisPlan, window: Window, size: int) -> int:
    """Returns by how much the padded data of MXNet's operator is longer than its kernel."""
    extended = (plan.kernel_size - 1) * window.dilation + 1
    added = sum(plan.concat) + sum(plan.pad_operator) + sum(one.growth for one in (plan.shift, plan.pick) if one)
    added += window.pads(size)[0] + sum(plan.lengthen) if plan.lengthen else 0
    return size + added + 2 * plan.pad - extended


def takes_too_short(plan: AxisPlan, window: AnyWindow) -> bool:
    """Returns whether MXNet runs a plan for every size on data that is shorter than the rule of explicit pads allows,
    n + low + high >= ke, as it may with ceil_mode."""
    if not isinstance(window, Window) or window.size is not None or not isinstance(window.padding, tuple):
        return False
    longest = window.effective_kernel_size - sum(window.padding) - 1
    return longest >= 1 and _operator_span(plan, window, longest) >= 0


def _full(window: Window) -> Optional[AxisPlan]:
    """Use Pooling's "full" convention, which counts a partial window at the end. The operator needs k <= n + 2*pad,
    which is the rule of explicit pads, too.

    Windows of 2, the most common of all, do not serve a dynamic size of 1, which the operator refuses: all that would
    serve it is slower for every size.

    If low depends on the size, the data is lengthened by it and by a stride, for one window that is dropped.
    """
    pads = _pads(window)
    low = pads[0][0]
    if any(pad[0] != low for pad in pads):
        return _lengthened(window, window.stride, ceil=True)
    least = 2 if window.kernel_size == 2 else 1
    if isinstance(window.padding, tuple):
        least = max(window.effective_kernel_size - sum(window.padding), 1)
    shortest = (least if window.size is None else window.size) + 2 * low
    if window.kernel_size > shortest:
        return None
    plan = AxisPlan(window.kernel_size, pad=low)
    exact = all(_operator_outputs(plan, window, size, ceil=True) == window.outputs(size) for size in window.sizes)
    return plan if exact else None


def _lengthened(window: Window, extra: int = 0, ceil: bool = False) -> Optional[AxisPlan]:
    """Concatenate low of the size and `extra` elements, for windows that are dropped, before the data, and the longest
    high after it.

    At least two elements are needed before the data: MXNet has no empty arrays, and if the first array that oneDNN
    concatenates has length 1, the result has an order of axes that is a hundred times slower to pool.
    """
    pads = _pads(window)
    is_long = window.effective_kernel_size >= window.stride and min(low for low, _ in pads) + extra > 1
    if window.size is not None or not window.follows_size or not is_long:
        return None
    high = max(max(high for _, high in pads) - (window.stride - 1 if ceil else 0), 0)
    plan = AxisPlan(window.kernel_size, lengthen=AddedElements(extra, high), crop=(extra // window.stride, 0))
    surplus = {_operator_outputs(plan, window, size, ceil) - window.outputs(size) for size in window.sizes}
    return plan if surplus == {plan.crop[0]} else None


def _flip(window: Window) -> Optional[AxisPlan]:
    """Use a static strategy on flipped data. For every odd kernel with stride 2, `high` is the same for every size
    although `low` is not. Without this, 3-D networks in one graph for every size take two to three times as long."""
    for size in window.sizes:  # windows can be counted from the end if the last one ends with the padding
        low, high = window.pads(size)
        if high != high_pad(size, window.outputs(size), window.effective_kernel_size, window.stride, low):
            return None
    pads = [(high, low) for low, high in _pads(window)]
    for draft in (_native, _slice, _concat):
        plan = _checked(draft, window, pads)
        if plan is not None and plan.crop[1] is not None:
            return replace(plan, flip=True)
    return None


# -- dynamic: pads that follow from the size are computed in the graph


def _shift(window: Window) -> Optional[AxisPlan]:
    """Shift the data to where the windows of every size start at the same position."""
    if window.size is not None:
        return None
    k = window.kernel_size
    return _moved(window, lambda least, reach: [AxisPlan(k, shift=OneHot(least, reach, reach - least), pad=least)])


def _pick(window: Window) -> Optional[AxisPlan]:
    """Run the operator with stride 1, and pick SAME's outputs."""
    if window.dilation != 1:
        return None
    pad = max(map(max, _pads(window)))

    def drafts(least: int, reach: int) -> Iterator[AxisPlan]:
        for zeros in range(window.kernel_size):
            yield AxisPlan(window.kernel_size, pick=OneHot(least, pad + zeros, zeros), pad=pad)

    return _moved(window, drafts)


def _moved(window: Window, drafts: Callable[[int, int], Iterable[AxisPlan]]) -> Optional[AxisPlan]:
    """Returns the first exact draft for the least `low`, and for the pad that the last window of every size needs if
    all start as early as any."""
    if not window.follows_size:
        return None
    pads = _pads(window)
    least, most = min(low for low, _ in pads), max(low for low, _ in pads)
    if most - least > MOST_SHIFTS:
        return None
    for plan in drafts(least, max(most, max(map(sum, pads)) - least)):
        extra = {_operator_outputs(plan, window, size) - window.outputs(size) for size in window.sizes}
        if min(extra) >= 0:
            return replace(plan, crop=(0, extra.pop() if len(extra) == 1 else None))
    return None


def _gather(window: Window) -> Optional[AxisPlan]:
    """Gather the padded data from the data: exact for any kernel and stride, if the pads follow from the size."""
    return AxisPlan(window.kernel_size, gather=True) if window.follows_size else None


# -- transposed convolutions: what is cropped does not depend on the size


def _transposed_slice(window: TransposedWindow) -> AxisPlan:
    """Use the operator's own pad and adj as far as they reach, and crop its output."""
    return _with_pad_and_adj(window, (0, 0))


def _transposed_kernel(window: TransposedWindow) -> AxisPlan:
    """Put zeros around the kernel, so that pad and adj reach further: adj makes up for 0 <= start - end < stride."""
    start, end = window.crop
    front = max(-(-(end - start) // window.dilation), 0)
    back = max(-(-(start - end - window.stride + 1) // window.dilation), 0)
    return _with_pad_and_adj(window, (front, back))


def _with_pad_and_adj(window: TransposedWindow, zeros: Tuple[int, int]) -> AxisPlan:
    """Returns the plan with these zeros around the kernel that leaves as much as it can to pad and adj."""
    start, end = (count + added * window.dilation for count, added in zip(window.crop, zeros))
    extent = window.effective_kernel_size + sum(zeros) * window.dilation
    pad = max(min(start, end + window.stride - 1, extent - 1), 0)
    adj = max(pad - end, 0)
    return AxisPlan(window.kernel_size + sum(zeros), zeros=zeros, pad=pad, adj=adj, crop=(start - pad, end - pad + adj))


def _transposed_dilate(window: TransposedWindow) -> AxisPlan:
    """Run a stride-1 convolution of the dilated input with the flipped kernel: s^N times the multiplications, but
    every gradient works, and so does dilation in 3-D."""
    low, high = (window.effective_kernel_size - 1 - count for count in window.crop)
    common = max(min(low, high), 0)
    added = max(low, 0) - common, max(high, 0) - common
    crop = max(-low, 0), max(-high, 0)
    return AxisPlan(window.kernel_size, pad_operator=added, dilate=window.stride, pad=common, crop=crop)


def _checked_transposed(plan: AxisPlan, window: TransposedWindow) -> Optional[AxisPlan]:
    """Returns the plan if it is exact, else None. Its first output must be at the right position of the full extent,
    and it must have the right number of outputs. The operator takes no negative number, and adj < stride."""
    start, expected = window.crop[0], window.outputs(1)
    if plan.dilate:  # the convolution's window j starts at j - low and ends with the full extent's element j
        first = window.effective_kernel_size - 1 - plan.pad - plan.pad_operator[0] + plan.crop[0]
        outputs = 1 + 2 * plan.pad + sum(plan.pad_operator) - window.effective_kernel_size + 1
    else:
        first = plan.pad + plan.crop[0] - plan.zeros[0] * window.dilation
        outputs = (plan.kernel_size - 1) * window.dilation + 1 - 2 * plan.pad + plan.adj
    left = outputs - plan.crop[0] - plan.static_end
    exact = first == start and left == expected
    no_negative = min(plan.pad, plan.adj, plan.crop[0], plan.static_end) >= 0
    return plan if exact and no_negative and plan.adj < window.stride else None


# -- the table

AVG_WITH_PADDING = "avg with padding"  # which counts as zeros
POOLS = ("max", "avg", AVG_WITH_PADDING, "lp")  # by MXNet's Pooling
OPERATORS = ("conv", *POOLS, "transposed")

WEIGHT, CHANNELS = "weight", "channels"


@dataclass(frozen=True)
class Strategy:
    """A way to run windows exactly.

    Parameters
    ----------
    name : str
    axis : callable, optional
        Window of a convolution or pooling operator -> plan, or None if it is not exact.
    operators : tuple of str
        Those of `OPERATORS` for which `draft` and `axis` may be used.
    transposed : callable, optional
        The window of a transposed convolution -> a plan that is used if it is exact.
    needs : str, optional
        What must be known to build its graph: "weight", a part of the weight's shape; "channels", those of the data.
    channels_last : bool
        Whether it also runs data with channels last.
    convention : str
        Of a pooling operator.
    together : bool
        Whether all axes must run by it.
    competes : tuple of str
        The devices on which the planner may choose it for its speed. Elsewhere it runs only if forced, or if no other
        is exact.
    draft : callable, optional
        Window, low, high -> a plan that is tried before `axis`: it is used if it is exact for every size, which is
        checked.
    crops : bool
        Whether outputs may be dropped.

    Examples
    --------
    >>> STRATEGIES["kernel"].needs, STRATEGIES["kernel"].serves("max")
    ('weight', False)
    """

    name: str
    axis: Optional[Callable[[Window], Optional[AxisPlan]]] = None
    operators: Tuple[str, ...] = ()
    transposed: Optional[Callable[[TransposedWindow], AxisPlan]] = None
    needs: Optional[str] = None
    channels_last: bool = False
    convention: str = "valid"
    together: bool = False
    competes: Tuple[str, ...] = ("cpu", "gpu")
    draft: Optional[Draft] = None
    crops: bool = True

    def serves(self, operator: str) -> bool:
        """Returns whether it can run the operator."""
        return self.transposed is not None if operator == "transposed" else operator in self.operators

    def lengthens(self, window: AnyWindow) -> bool:
        """Returns whether the data gets as many elements before it as follow from its size."""
        plan = self.plan(window)
        return plan is not None and plan.lengthen is not None

    def plan(self, window: AnyWindow, operator: str = "conv") -> Optional[AxisPlan]:
        """Returns the plan of one axis, or None if it is not exact. MXNet's Pooling insists that its pad is less than
        its kernel."""
        if isinstance(window, TransposedWindow):
            plan = _checked_transposed(self.transposed(window), window) if self.transposed else None
        else:
            plan = _checked(self.draft, window, _pads(window)) if self.draft else None
            plan = self.axis(window) if plan is None and self.axis else plan
        if plan is None or (operator in POOLS and plan.pad >= plan.kernel_size):
            return None
        return plan if self.crops or plan.crop == (0, 0) else None


_EVERY = ("conv", *POOLS)
_SUMS = ("conv", "avg", AVG_WITH_PADDING, "lp")  # flipped, a tie of a maximum has its gradient at the last element

_TABLE = (  # without costs, the first that is exact is chosen
    Strategy("native", None, _EVERY, _transposed_slice, channels_last=True, draft=_native, crops=False),
    Strategy("full", _full, ("max", "avg", "lp"), channels_last=True, convention="full", together=True),
    Strategy("slice", None, _EVERY, _transposed_slice, channels_last=True, draft=_slice),
    Strategy("concat", _lengthened, _EVERY, channels_last=True, draft=_concat),
    Strategy("kernel", None, ("conv",), _transposed_kernel, WEIGHT, channels_last=True, draft=_kernel),
    Strategy("pad", None, _EVERY, channels_last=True, competes=("gpu",), draft=_pad),
    Strategy("shift", _shift, ("conv",), needs=CHANNELS),
    Strategy("pick", _pick, POOLS, needs=CHANNELS),
    Strategy("flip", _flip, _SUMS, needs=WEIGHT),
    Strategy("gather", _gather, _EVERY),
    Strategy("dilate", transposed=_transposed_dilate, together=True, competes=("gpu",)),
)
STRATEGIES: Dict[str, Strategy] = {strategy.name: strategy for strategy in _TABLE}
