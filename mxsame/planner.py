"""Which of the exact plans is the fastest: what was measured goes first, then an estimate of what each costs.

On the CPU the estimate adds up what a plan does in addition to the operator: elements copied, by the kind of copy;
multiplications by zeros; and a fee for every operator of the graph. Its constants are nanoseconds measured on a 2-core
machine (`python -m benchmarks costs` measures them on any other); plans are only ranked, so their ratios matter. oneDNN
keeps what convolutions hand to each other in blocks of 8 or 16 channels. Whatever is no convolution, pooling or
elementwise operator has to undo the blocks first, and the next convolution has to make them again. So copies of a
network's input are cheap, and copies between layers expensive.

On a GPU nothing was measured: there the plan with the fewest copies is chosen.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

from mxsame import measured
from mxsame.building import current
from mxsame.measured import Windows, Work, forget
from mxsame.plan import OPERATORS, STRATEGIES, AxisPlan, Plan, exact_plans, first_plan
from mxsame.plan.windows import AnyWindow, TransposedWindow, check_static

__all__ = [
    "COSTS",
    "Costs",
    "Decision",
    "Work",
    "candidates",
    "choose",
    "estimate",
    "forget",
]


@dataclass(frozen=True)
class Costs:
    """Nanoseconds: per element that is copied, per multiplication and addition, per operator.

    >>> COSTS.slice < COSTS.gather
    True
    """

    concat: float = 0.2  #: concatenate a few elements to an axis
    concat_row: float = 15.0  #: in addition, for each row of elements next to each other that is copied
    concat_back: float = 0.6  #: its backward pass
    back_line: float = 4.5  #: the same along a single axis, and that of MXNet's pad operator
    slice: float = 0.35  #: take a part
    slice_back: float = 1.2  #: its backward pass
    slice_like_back: float = 4.5  #: the same of a part of a dynamic shape
    slice_blocks: float = 0.8  #: take a part of what a convolution has left in blocks
    flip: float = 1.1  #: reverse an axis
    pad: float = 1.4  #: MXNet's pad operator
    gather: float = 1.9  #: transpose, copy rows, transpose back
    gather_line: float = 3.0  #: the same along a single axis
    gather_row: float = 10.0  #: in addition, per position, all batch entries and channels of which are one row
    divide: float = 0.1  #: broadcast
    unblock: float = 1.5  #: from oneDNN's blocks to the plain layout
    block: float = 0.1  #: and back
    flip_weight: float = 8.0  #: `reverse`, for a weight
    place: float = 50.0  #: per element of a weight that is put at an offset among zeros, including its way into blocks
    lengthen: float = 5.0  #: per element of a weight that gets zeros, including its way into blocks
    dense: float = 0.0165  #: per multiplication of a convolution
    dense_few: float = 0.025  #: of one of fewer input channels than a block has, or output channels than two have
    dense_back_long: float = 0.032  #: of each of the two gradients, with pad > k // 2
    depthwise: float = 0.05  #: of a depthwise convolution
    depthwise_few: float = 1.0  #: of one of fewer channels than a block has, or along a single axis
    depthwise_volume: float = 1.0  #: of one along three axes
    depthwise_back: float = 0.2  #: of its backward pass
    depthwise_back_long: float = 2.5  #: the same with pad > k // 2, or a kernel above 3 along the last axis
    pooling: float = 0.04  #: per element of a pooling window
    pooling_volume: float = 0.12  #: the same of one of three axes
    pooling_partial: float = 0.65  #: the same where windows of an average are partial, for which oneDNN has no code
    pooling_large: float = 3.0  #: the same of plain data, a block of whose channels does not fit into the cache
    into_blocks: float = 0.4  #: a copy in oneDNN's blocks before it, by a depthwise convolution
    touch: float = 0.15  #: per element that an operator reads or writes
    operator: float = 1.0e3  #: for each operator


COSTS = Costs()

BLOCK = 8  # channels, the least that oneDNN makes blocks of
BYTES_OF_BLOCK = 16 * 4  # of an element of the most
CACHE = 1 << 20  # bytes; up to these oneDNN pools plain data in blocks
TYPICAL_BATCH = 2
TYPICAL_CHANNELS = 64
TYPICAL_PICTURE = {1: 16000, 2: 224, 3: 48}  # size of a network's input, by rank
QUARTER = {1: 32, 2: 128, 3: 128}  # the most channels of a quarter of it, by rank
MOVE_OPERATORS = 18  # how many it takes to compute SAME's low and make a kernel with a single one,
AXIS_OPERATORS = 3  # and for each axis of it
GATHER_OPERATORS = 30


class Decision(NamedTuple):
    """How an operator that became part of a graph runs, and how it would for another shape.

    `planned_for` gives what the graph depends on: the plan, the channels, and what `pools_in_blocks` says.

    >>> from mxsame.plan import Window
    >>> windows, work = (Window(8, 3, 2),), Work("conv", 8, 3, 32)
    >>> decision = Decision(None, windows, work, ("native", "slice"), choose(windows, work))
    >>> plan, channels, in_blocks = decision.planned_for((1, 3, 7))
    >>> plan == Plan((AxisPlan(3, pad=1),)), channels, in_blocks
    (True, 3, False)
    """

    data: Any  # the Symbol that it reads
    windows: Windows
    work: Work
    allowed: Tuple[str, ...]  # for a static shape
    plan: Plan
    channels_last: bool = False  # of `data`

    @property
    def depends_on_size(self) -> bool:
        """Whether the plan can differ between sizes, or some sizes are refused.

        A convolution with stride 1 whose own padding is right has one plan, and MXNet refuses what is too short for it.
        """
        if self.work.operator != "conv" or any(window.stride > 1 for window in self.windows):
            return True
        return list(exact_plans(self.windows, "conv", self.allowed)) != ["native"]

    def planned_for(self, shape: Sequence[int]) -> Tuple[Plan, int, bool]:
        """For this shape of `data`.

        Raises `ValueError` for a shape that the operator does not take.
        """
        batch, *size = shape
        channels = size.pop(-1 if self.channels_last else 0)
        windows = tuple(replace(window, size=length) for window, length in zip(self.windows, size))
        check_static(windows, OPERATORS[self.work.operator].pool)
        work = replace(self.work, batch=batch, in_channels=channels)
        plan, pools = choose(windows, work, self.allowed), OPERATORS[self.work.operator].pool
        return plan, channels, pools and pools_in_blocks(plan, windows, work)


def choose(windows: Sequence[AnyWindow], work: Work, allowed: Optional[Sequence[str]] = None) -> Plan:
    """The exact plan that was measured to be the fastest, or else is estimated to be; of the `allowed` strategies.

    Raises `ValueError` if there is none.

    >>> from mxsame.plan import Window
    >>> windows = [Window(224, 3, 2), Window(224, 3, 2)]
    >>> choose(windows, Work("conv", 8, 3, 32, plain=True)).axes[0] == AxisPlan(3, concat=(0, 1))
    True
    >>> choose(windows, Work("conv", 8, 128, 128)).axes[0] == AxisPlan(3, pad=2, crop=(1, 0))
    True
    """
    windows, allowed = tuple(windows), None if allowed is None else tuple(allowed)
    record = current()
    plans = exact_plans(windows, work.operator, allowed)
    if record.strategy is not None or not plans:
        return first_plan(windows, work.operator, allowed)
    wanted = measured.fastest(windows, work)
    if wanted is not None and wanted in plans:
        return plans[wanted]
    # A graph for every size that nobody says the purpose of serves both inference and training.
    is_for_both = record.purpose is None and any(window.size is None for window in windows)
    return _estimated_fastest(windows, work, allowed, COSTS, is_for_both)


def preferences() -> Tuple[int, int]:
    """What :func:`choose` depends on next to its arguments: for the same preferences it gives the same plan.

    >>> preferences() == preferences()
    True
    """
    return id(COSTS), measured.changes()


def candidates(windows: Sequence[AnyWindow], operator: str, allowed: Optional[Sequence[str]] = None) -> Dict[str, Plan]:
    """The exact plans of strategies that can be the fastest, or all exact plans if there is none of these.

    >>> list(candidates((TransposedWindow(8, 3, 2, 1, (0, 1)),), "transposed"))
    ['slice', 'kernel']
    """
    plans = exact_plans(tuple(windows), operator, None if allowed is None else tuple(allowed))
    # Picking multiplies by zero, which makes NaN of an infinity: a maximum is not picked if there is another way.
    last_resorts = ("pick", "gather") if operator == "max" else ()
    competing = [name for name in plans if STRATEGIES[name].competes and name not in last_resorts]
    return {name: plans[name] for name in competing or plans}


@functools.lru_cache(maxsize=4096)
def _estimated_fastest(
    windows: Windows,
    work: Work,
    allowed: Optional[Tuple[str, ...]],
    costs: Costs,  # part of the key: other costs, another choice
    is_for_both: bool,
) -> Plan:
    plans = candidates(windows, work.operator, allowed)
    if len(plans) == 1:
        return next(iter(plans.values()))
    if work.device == "gpu":
        return min(plans.values(), key=copies)
    works = [work, replace(work, purpose="training")] if is_for_both else [work]
    return min(plans.values(), key=lambda plan: math.prod(estimate(plan, windows, each) for each in works))


def copies(plan: Plan) -> int:
    """How many times a plan copies the data or the output.

    >>> copies(Plan((AxisPlan(3, pad=1),))), copies(Plan((AxisPlan(3, pad=2, crop=(1, 0)),)))
    (0, 1)
    """
    axes = plan.axes
    return (
        sum(any(axis.concat) for axis in axes)
        + any(any(axis.pad_operator) for axis in axes)
        + 3 * any(axis.gather for axis in axes)
        + any(axis.shift is not None for axis in axes)
        + any(axis.pick is not None for axis in axes)
        + 2 * any(axis.flip for axis in axes)
        + 2 * sum(axis.dilate > 1 for axis in axes)
        + any(axis.crop != (0, 0) for axis in axes)
    )


# -- the estimate


class _Estimate:
    """Nanoseconds of an operator on the CPU run by a plan."""

    def __init__(self, plan: Plan, windows: Sequence[AnyWindow], work: Work):
        self.plan, self.windows, self.work, self.costs, self.rank = plan, windows, work, COSTS, len(windows)
        self.in_channels = work.in_channels or work.channels or TYPICAL_CHANNELS
        self.channels = work.channels or self.in_channels
        self.batch = work.batch or TYPICAL_BATCH
        self.training = work.purpose == "training"
        self.convolves = not OPERATORS[work.operator].pool
        self.size = [window.size or _typical_size(self.rank, self.in_channels) for window in windows]
        self.outputs = [window.outputs(length) for window, length in zip(windows, self.size)]
        axes = plan.axes
        self.concats = sum(any(step.concat) for step in axes)
        self.pads, self.flips = any(any(step.pad_operator) for step in axes), any(step.flip for step in axes)
        self.crops, self.dynamic_crops = any(any(x.crop) for x in axes), any(x.crop[1] is None for x in axes)

    def concat(self) -> float:
        """Of all concatenations, per element."""
        rows = [1 / math.prod(self.size[axis:]) for axis, step in enumerate(self.plan.axes) if any(step.concat)]
        return self.concats * self.costs.concat + sum(rows) * self.costs.concat_row

    def total(self) -> float:
        """What is done to the data, the output and the kernel, and the operator itself."""
        inputs = self.batch * self.in_channels * math.prod(self.size)
        results = self.batch * self.channels * math.prod(self.outputs)
        nanoseconds = self.before(inputs) + self.after(results) + self.operator()
        if self.convolves and self.work.purpose != "deployment":
            nanoseconds += self.kernel()
        return nanoseconds + (self.backward(inputs, results) if self.training else 0)

    def backward(self, inputs: int, results: int) -> float:
        """Of the gradients of what is done to so many elements: what was copied is copied back."""
        costs = self.costs
        per_element = self.concats * costs.concat_back - self.concat()
        if self.rank == 1:
            per_element = self.concats * costs.back_line - self.concat() + self.pads * (costs.back_line - costs.pad)
        per_result = self.crops * costs.slice_back + self.dynamic_crops * costs.slice_like_back
        per_weight = costs.place if any(step.offset for step in self.plan.axes) else 0.0
        per_weight += costs.lengthen if self.convolves and self.longer() else 0.0
        copies = per_element * inputs + per_result * results
        return self.before(inputs) + copies + (per_weight * self.weights() if per_weight else 0.0)

    def before(self, inputs: int) -> float:
        """Of what is done to this many elements of data."""
        axes, costs, pads, flips = self.plan.axes, self.costs, self.pads, self.flips
        gathers, shifts = (any(step.gather for step in axes), any(step.shift is not None for step in axes))
        dilated = sum(step.dilate > 1 for step in axes)
        per_element = self.concat() + flips * costs.flip
        per_element += pads * costs.pad * (2 if self.rank == 3 else 1)  # for five axes, twice that for four
        per_element += gathers * (costs.gather_line if self.rank == 1 else costs.gather)
        per_element += dilated * (costs.concat + costs.slice) * 2
        operators = 3 * self.concats + pads + flips + 5 * dilated
        operators += GATHER_OPERATORS * sum(step.gather for step in axes)
        operators += _move_operators((step.shift for step in axes), self.windows)
        in_blocks = self.in_channels >= BLOCK and not self.work.plain and not self.training  # batch norm undoes blocks
        if in_blocks and (self.concats or pads or flips or gathers or dilated):
            per_element += costs.unblock + costs.block
        if shifts:
            per_element += self.moving([step.shift for step in axes])
        rows = gathers * math.prod(self.size)
        return per_element * inputs + rows * costs.gather_row + operators * costs.operator

    def after(self, results: int) -> float:
        """Of what is done to this many elements of output."""
        axes, costs, crops, dynamic_crops = self.plan.axes, self.costs, self.crops, self.dynamic_crops
        in_blocks = self.channels >= BLOCK and self.convolves and not self.training
        per_element = (crops + dynamic_crops) * (costs.slice_blocks if in_blocks else costs.slice)
        per_element += self.flips * (costs.flip + in_blocks * costs.unblock)
        if any(step.pick for step in axes):
            per_element += self.moving([step.pick for step in axes])
        operators = crops + 4 * dynamic_crops + self.flips + _move_operators((step.pick for step in axes), self.windows)
        return per_element * results + operators * costs.operator

    def moving(self, steps: Sequence[Any]) -> float:
        """Of a depthwise convolution with a single one between the first two numbers of these steps, per output."""
        taps: int = math.prod(step[1] - step[0] + 1 for step in steps if step)
        return taps * self.depthwise() + 2 * self.costs.touch

    def depthwise(self) -> float:
        """Of a multiplication of a depthwise convolution; oneDNN has fast code for two axes and a block of channels."""
        if self.rank == 3:
            return self.costs.depthwise_volume
        return self.costs.depthwise if self.rank == 2 and self.in_channels >= BLOCK else self.costs.depthwise_few

    def weights(self) -> int:
        """The elements of the kernel."""
        taps = math.prod(window.kernel_size for window in self.windows)
        return self.channels * self.in_channels // self.work.groups * taps

    def longer(self) -> int:
        """Along how many axes the kernel gets zeros."""
        return sum(any(step.zeros) for step in self.plan.axes)

    def kernel(self) -> float:
        """Of what is done to the kernel."""
        costs, weights, nanoseconds = self.costs, self.weights(), 0.0
        longer = self.longer()
        if longer:
            nanoseconds += weights * costs.lengthen + (4 + 3 * longer) * costs.operator
        if any(step.offset for step in self.plan.axes):
            operators = _move_operators((step.offset for step in self.plan.axes), self.windows)
            nanoseconds += weights * costs.place + operators * costs.operator
        if self.plan.dilates or any(step.flip for step in self.plan.axes):
            nanoseconds += weights * costs.flip_weight + 2 * costs.operator
        return nanoseconds

    def operator(self) -> float:
        """Of MXNet's operator itself, with the kernel and the outputs that the plan gives it."""
        costs = self.costs
        outputs = math.prod(map(_operator_outputs, self.plan.axes, self.size, self.outputs))
        touched = math.prod(self.size) * self.in_channels + outputs * self.channels
        touch = self.batch * touched * costs.touch * (3 if self.training else 1)
        if not self.convolves:
            reads = math.prod(map(_reads, self.plan.axes, self.windows, self.size, self.outputs))
            divided = costs.divide * outputs if self.work.operator == "avg" and self.plan.fills else 0.0
            pooling = costs.pooling_volume if self.rank == 3 else costs.pooling
            if self.work.operator == "avg" and _is_partial(self.plan, self.windows, self.size):
                pooling = costs.pooling_partial
            elif pools_in_blocks(self.plan, self.windows, self.work):
                touch += self.batch * self.in_channels * math.prod(self.size) * costs.into_blocks
            elif self.work.plain and _is_beyond_cache(self.plan, self.windows, self.size):
                pooling = costs.pooling_large
            passes = 2 if self.training else 1
            return touch + self.batch * self.in_channels * (reads * pooling + divided) * passes
        share = max(self.in_channels // self.work.groups, 1)
        few = self.in_channels < BLOCK or self.channels < 2 * BLOCK
        each = costs.dense_few if few else costs.dense
        long = any(step.pad > step.kernel_size // 2 for step in self.plan.axes)
        backward = 2 * max(each, costs.dense_back_long if long else 0)  # the gradients of the data and of the weight
        if share == 1 and self.work.groups > 1:
            each, backward = self.depthwise(), costs.depthwise_back
            if long or self.plan.axes[-1].kernel_size > 3:
                backward = costs.depthwise_back_long
        multiplications = self.batch * self.channels * share * math.prod(self.multiplications())
        return touch + multiplications * (each + (backward if self.training else 0))

    def multiplications(self) -> Iterator[int]:
        """Along each axis, for one channel."""
        for step, window, size, outputs in zip(self.plan.axes, self.windows, self.size, self.outputs):
            if not isinstance(window, TransposedWindow):
                yield _reads(step, window, size, outputs)
            else:
                yield step.kernel_size * (max(outputs, 1) if step.dilate else size)


def estimate(plan: Plan, windows: Sequence[AnyWindow], work: Work) -> float:
    """Nanoseconds of an operator on the CPU run by a plan; right only in comparison with another plan for the same
    windows.

    >>> from mxsame.plan import Window
    >>> windows = [Window(56, 3, 2), Window(56, 3, 2)]
    >>> sliced, extended = AxisPlan(3, pad=2, crop=(1, 0)), AxisPlan(4, zeros=(1, 0), pad=1)
    >>> sliced, extended = Plan((sliced, sliced)), Plan((extended, extended))
    >>> deep, depthwise = Work("conv", 8, 128, 128), Work("conv", 8, 128, 128, groups=128)
    >>> estimate(sliced, windows, deep) < estimate(extended, windows, deep)
    True
    >>> estimate(sliced, windows, depthwise) < estimate(extended, windows, depthwise)
    False
    """
    return _Estimate(plan, windows, work).total()


def pools_in_blocks(plan: Plan, windows: Sequence[AnyWindow], work: Work) -> bool:
    """Whether a pooling operator is faster, by far, with a copy of its plain data in oneDNN's blocks.

    For plain data oneDNN has fast code only where the blocks of a few channels, of the data and of the output, fit into
    its share of the cache (`jit_uni_pool_kernel` of oneDNN 2.0: 1 MiB if the processor does not tell); and windows at
    every position are slow in it.

    >>> from mxsame.plan import Window
    >>> plain, small, large = Work("max", in_channels=64, plain=True), Window(56, 2, 2), Window(224, 2, 2)
    >>> plan = Plan((AxisPlan(2), AxisPlan(2)))
    >>> pools_in_blocks(plan, [small, small], plain), pools_in_blocks(plan, [large, large], plain)
    (False, True)
    """
    rank, channels = len(windows), work.in_channels
    if not work.plain or channels is None or work.device != "cpu" or work.operator == "lp" or rank > 2:
        return False
    if channels % (BLOCK if rank == 2 else 2 * BLOCK):  # a single axis is pooled as pictures of two channels each
        return False
    if any(step.pick for step in plan.axes):
        return True
    size = [window.size for window in windows if window.size is not None]
    if len(size) < rank or (work.operator == "avg" and _is_partial(plan, windows, size)):
        return False
    return _is_beyond_cache(plan, windows, size)


def _is_partial(plan: Plan, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Whether a window goes beyond the operator's own padding, as "full" lets it: MXNet keeps such averages from
    oneDNN."""
    if plan.convention != "full":
        return False
    axes = zip(plan.axes, windows, size)
    return any((w.outputs(n) - 1) * w.stride + step.kernel_size > n + 2 * step.pad for step, w, n in axes)


def _is_beyond_cache(plan: Plan, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Whether the most channels of a block of data and output do not fit into the cache."""
    outputs = (_operator_outputs(step, n, window.outputs(n)) for step, window, n in zip(plan.axes, windows, size))
    elements = math.prod(size) + math.prod(outputs)
    return (2 if len(size) == 1 else 1) * BYTES_OF_BLOCK * elements > CACHE


def _move_operators(steps: Iterable[Any], windows: Sequence[AnyWindow]) -> int:
    """How many operators make a kernel with a single one, from the steps of all axes, None for those without."""
    sizes = [window.size for step, window in zip(steps, windows) if step is not None]
    return (MOVE_OPERATORS if None in sizes else 0) + AXIS_OPERATORS * len(sizes)


def _typical_size(rank: int, channels: int) -> int:
    """Of a picture at first, then of a quarter of it, which is halved wherever channels are doubled."""
    picture = TYPICAL_PICTURE[rank]
    quarter = picture // 4
    return picture if channels < BLOCK else min(quarter, max(7, quarter * QUARTER[rank] // channels))


def _operator_outputs(step: AxisPlan, size: int, outputs: int) -> int:
    return size if step.pick else outputs + sum(_crop(step))


def _crop(step: AxisPlan) -> Tuple[int, int]:
    return step.crop[0], step.crop[1] or 0


def _reads(step: AxisPlan, window: Any, size: int, outputs: int) -> int:
    """The elements that all windows along an axis read of the data and of what is added to it; the operator's own
    padding takes none of oneDNN's time."""
    count, kernel = _operator_outputs(step, size, outputs), step.kernel_size
    if step.pick:
        return count * kernel
    shifted = step.shift[1] - step.shift[0] if step.shift else 0
    elements = size + sum(step.concat) + sum(step.pad_operator) + shifted
    if step.gather:
        elements = outputs * window.stride + max(window.effective_kernel_size - window.stride, 0)
    lost = 0
    for start in range(-step.pad, min(0, count * window.stride - step.pad), window.stride):
        lost += min(-(start // window.dilation), kernel)
    last = (count - 1) * window.stride - step.pad + (kernel - 1) * window.dilation
    for end in range(last, max(elements - 1, last - count * window.stride), -window.stride):
        lost += min(-((elements - 1 - end) // window.dilation), kernel)
    return max(count * kernel - lost, 1)
