"""Which of the exact plans is the fastest: an estimate of what each costs, and what was measured, which goes first.

The estimate adds up what a plan does beyond the operator itself: cells copied, by the kind of copy; multiplications
with zero taps; and a fee for every operator of the graph. Its constants are nanoseconds measured on a 2-core machine
(`python -m benchmarks costs` measures them on any other); since plans are only ranked, what matters is their ratios.

On the CPU oneDNN keeps what convolutions hand to each other in blocks of 8 or 16 channels. Whatever is no convolution,
pooling or elementwise operator has to undo the blocks first, and the next convolution has to make them again. So
copies of a network's input are cheap, and copies between layers dear.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import json
import math
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

from mxsame import validation
from mxsame.plan import STRATEGIES, AxisPlan, Plan, Window, exact_plans, forced, plan_window

__all__ = ["COSTS", "Costs", "Work", "choose", "estimate", "forget", "load", "recall", "remember", "save"]


@dataclass(frozen=True)
class Work:
    """What an operator has to do, beyond its windows; None where that is unknown.

    Parameters
    ----------
    operator : "conv", "max" or "avg"
    batch, in_channels, channels : int, optional
    groups : int
    plain : bool
        The data is an input of the graph, so it comes without blocks.
    purpose : "inference", "training" or "deployment"
        With the last, what depends on parameters alone is done beforehand.
    device : "cpu", "gpu" or "cudnn"
        The last is a GPU on which cuDNN runs, but none of MXNet's own kernels.

    Examples
    --------
    >>> Work("conv", batch=8, in_channels=3, channels=64, plain=True).groups
    1
    """

    operator: str
    batch: Optional[int] = None
    in_channels: Optional[int] = None
    channels: Optional[int] = None
    groups: int = 1
    plain: bool = False
    purpose: str = "inference"
    device: str = "cpu"


@dataclass(frozen=True)
class Costs:
    """Nanoseconds: per cell that is copied, per multiplication and addition, per operator.

    >>> COSTS["cpu"].slice < COSTS["cpu"].gather
    True
    """

    join: float  #: concatenate a few cells to an axis
    join_back: float  #: its backward pass
    slice: float  #: take a part
    reverse: float  #: turn around
    pad: float  #: MXNet's pad operator
    gather: float  #: transpose, copy rows, transpose back
    shift: float  #: a depthwise convolution with one tap
    shift_few: float  #: the same with less channels than a block has, or along a single axis
    shift_volume: float  #: the same along three axes
    divide: float  #: broadcast
    unblock: float  #: from oneDNN's blocks to the plain layout
    block: float  #: and back
    turn_weight: float  #: `reverse`, for a weight
    lengthen: float  #: per cell of a weight that gets taps along an axis, with its way into blocks
    dense: float  #: per multiplication of a convolution
    depthwise: float  #: of a depthwise convolution
    depthwise_back: float  #: of its backward pass
    depthwise_back_long: float  #: with more than 3 taps on an axis or pad > k // 2, for which oneDNN has no fast code
    pooling: float  #: per cell of a pooling's window
    operator: float  #: for each operator


COSTS: Dict[str, Costs] = {
    "cpu": Costs(
        join=0.40,
        join_back=0.6,
        slice=0.17,
        reverse=1.0,
        pad=1.4,
        gather=5.1,
        shift=0.8,
        shift_few=5.5,
        shift_volume=18.0,
        divide=0.97,
        unblock=1.5,
        block=0.1,
        turn_weight=6.8,
        lengthen=9.0,
        dense=0.0165,
        depthwise=0.06,
        depthwise_back=0.33,
        depthwise_back_long=1.0,
        pooling=0.031,
        operator=1.5e3,
    ),
    # Estimated, not measured: a card with 1 TB/s and 10 TFLOP/s. It has no blocks.
    "gpu": Costs(
        join=0.01,
        join_back=0.01,
        slice=0.01,
        reverse=0.01,
        pad=0.01,
        gather=0.04,
        shift=0.02,
        shift_few=0.02,
        shift_volume=0.02,
        divide=0.01,
        unblock=0.0,
        block=0.0,
        turn_weight=0.01,
        lengthen=0.05,
        dense=0.0002,
        depthwise=0.002,
        depthwise_back=0.004,
        depthwise_back_long=0.004,
        pooling=0.001,
        operator=8e3,
    ),
}

COSTS["cudnn"] = COSTS["gpu"]
GPUS = ("gpu", "cudnn")

BLOCK = 8  # channels, the least that oneDNN makes blocks of
TYPICAL_BATCH = 8
TYPICAL_CHANNELS = 64
TYPICAL_PICTURE = {1: 16000, 2: 224, 3: 24}  # size of a network's input, by rank
CACHED = 500_000  # cells; a copy of less finds them in the processor's cache, where it takes a quarter of the time
SIZE_OPERATORS = 10  # how many it takes to read a size off the data and find SAME's low


def choose(windows: Sequence[Window], allowed: Sequence[str], work: Work, **rules: bool) -> Plan:
    """The plan that was measured to be the fastest, or else is estimated to be; `rules` are those of `exact_plans`.

    >>> from mxsame.plan import CONVOLUTION, AxisPlan
    >>> windows = [Window(224, 3, 2), Window(224, 3, 2)]
    >>> choose(windows, CONVOLUTION, Work("conv", 8, 3, 32, plain=True)).axes[0] == AxisPlan(3, join=(0, 1))
    True
    >>> choose(windows, CONVOLUTION, Work("conv", 8, 128, 128)).axes[0] == AxisPlan(3, pad=2, skip=1)
    True
    """
    if forced() is not None:
        return plan_window(windows, allowed, **rules)
    plans = exact_plans(tuple(windows), tuple(allowed), **rules)
    if len(plans) < 2:
        return plan_window(windows, allowed, **rules)
    wanted = (_TRIED.get() or {}).get((tuple(windows), work)) or recall(windows, work)
    if wanted is not None and wanted in plans:
        return plans[wanted]
    return _estimated_fastest(tuple(windows), tuple(allowed), work, tuple(sorted(rules.items())), COSTS[work.device])


@functools.lru_cache(maxsize=4096)
def _estimated_fastest(
    windows: Tuple[Window, ...],
    allowed: Tuple[str, ...],
    work: Work,
    rules: Tuple[Tuple[str, bool], ...],
    costs: Costs,  # part of the key: other costs, another choice
) -> Plan:
    plans = exact_plans(windows, allowed, **dict(rules))
    return min(plans.values(), key=lambda plan: estimate(plan, windows, work))


# -- the estimate


def estimate(plan: Plan, windows: Sequence[Window], work: Work) -> float:
    """Nanoseconds of an operator run by a plan; right only in comparison with another plan for the same windows.

    >>> from mxsame.plan import AxisPlan
    >>> windows = [Window(56, 3, 2), Window(56, 3, 2)]
    >>> sliced, extended = AxisPlan(3, pad=2, skip=1), AxisPlan(4, taps=(1, 0), pad=1)
    >>> sliced, extended = Plan((sliced, sliced)), Plan((extended, extended))
    >>> deep, depthwise = Work("conv", 8, 128, 128), Work("conv", 8, 128, 128, groups=128)
    >>> estimate(sliced, windows, deep) < estimate(extended, windows, deep)
    True
    >>> estimate(sliced, windows, depthwise) < estimate(extended, windows, depthwise)
    False
    """
    costs, rank = COSTS[work.device], len(windows)
    in_channels = work.in_channels or work.channels or TYPICAL_CHANNELS
    size = [window.size or _typical_size(rank, in_channels) for window in windows]
    outputs = [window.outputs(length) for window, length in zip(windows, size)]
    batch = work.batch or TYPICAL_BATCH
    channels = work.channels or in_channels
    inputs, results = batch * in_channels * math.prod(size), batch * channels * math.prod(outputs)
    copied, operators = _before(plan, costs)
    copies_blocks = any(step.gather or step.mirror or any(step.join + step.spread) for step in plan.axes)
    if copies_blocks and in_channels >= BLOCK and not work.plain and work.purpose != "training":
        copied += costs.unblock + costs.block  # in training normalisations have undone the blocks already
    total = _copy(copied, inputs) + _shift(plan, costs, in_channels) * inputs + operators * costs.operator
    copied, operators = _after(plan, costs)
    if copied and channels >= BLOCK and work.operator == "conv":
        copied += costs.unblock
    total += _copy(copied, results) + operators * costs.operator
    if work.operator == "conv" and work.purpose != "deployment":
        total += _kernel(plan, windows, costs, in_channels, channels, work.groups)
    if work.purpose == "training":  # what is copied has a gradient, which is copied back
        joins = sum(any(step.join) for step in plan.axes)
        total = 2 * total + _copy(joins * (costs.join_back - costs.join), inputs)
    return total + _operator(plan, windows, size, outputs, work, costs, batch, in_channels, channels)


def _typical_size(rank: int, channels: int) -> int:
    """Networks halve their sizes where they double their channels."""
    picture = TYPICAL_PICTURE[rank]
    return picture if channels < BLOCK else min(picture // 4, max(7, picture * 32 // channels))


def _copy(nanoseconds: float, cells: int) -> float:
    return nanoseconds * cells / (4 if cells < CACHED else 1)


def _before(plan: Plan, costs: Costs) -> Tuple[float, int]:
    """(nanoseconds per cell of the data, operators) of what is done to the data."""
    cells, operators = 0.0, 0
    for step in plan.axes:
        if any(step.join):
            cells, operators = cells + costs.join, operators + 3
        if step.place or step.shift or step.gather:
            operators += SIZE_OPERATORS
    if any(any(step.spread) for step in plan.axes):
        cells, operators = cells + costs.pad, operators + 1
    if any(step.mirror for step in plan.axes):
        cells, operators = cells + costs.reverse, operators + 1
    if any(step.gather for step in plan.axes):
        cells, operators = cells + costs.gather, operators + 12
    if any(step.shift for step in plan.axes):
        operators += 10
    return cells, operators


def _shift(plan: Plan, costs: Costs, in_channels: int) -> float:
    """Nanoseconds per cell of the data of the convolution that shifts it."""
    if not any(step.shift for step in plan.axes):
        return 0.0
    if len(plan.axes) == 3:
        return costs.shift_volume
    return costs.shift if in_channels >= BLOCK and len(plan.axes) == 2 else costs.shift_few


def _after(plan: Plan, costs: Costs) -> Tuple[float, int]:
    """(nanoseconds per cell of the output, operators) of what is done to the output."""
    cells, operators = 0.0, 0
    if any(step.skip or step.excess for step in plan.axes):
        cells, operators = cells + costs.slice, operators + 1
    if any(step.excess is None for step in plan.axes):
        cells, operators = cells + costs.slice, operators + 4
    if any(step.mirror for step in plan.axes):
        cells, operators = cells + costs.reverse, operators + 1
    return cells, operators


def _kernel(plan: Plan, windows: Sequence[Window], costs: Costs, in_channels: int, channels: int, groups: int) -> float:
    """Of what is done to the kernel."""
    cells = channels * in_channels // groups * math.prod(window.kernel_size for window in windows)
    total = 0.0
    for step in plan.axes:
        if any(step.taps):
            total += cells * costs.lengthen + 3 * costs.operator
        if step.place:
            places = step.place[1] - step.place[0] + 1
            total += places * (cells * (costs.lengthen + costs.divide) + 5 * costs.operator)
    if any(step.mirror for step in plan.axes):
        total += cells * costs.turn_weight + 2 * costs.operator
    return total


def _operator(
    plan: Plan,
    windows: Sequence[Window],
    size: Sequence[int],
    outputs: Sequence[int],
    work: Work,
    costs: Costs,
    batch: int,
    in_channels: int,
    channels: int,
) -> float:
    """Of MXNet's operator itself, with the taps and the outputs that the plan gives it."""
    taps = math.prod(_taps(*axis) for axis in zip(plan.axes, windows, size, outputs))
    training = work.purpose == "training"
    if work.operator != "conv":
        cells = math.prod(out + step.skip + (step.excess or 0) for out, step in zip(outputs, plan.axes))
        divided = costs.divide * cells if work.operator == "avg" and plan.fills else 0.0
        return batch * in_channels * (taps * costs.pooling + divided) * (2 if training else 1)
    share = max(in_channels // work.groups, 1)
    each = costs.dense
    backward = 2 * each  # the gradients of the data and of the weight
    if share == 1 and work.groups > 1:
        each, backward = costs.depthwise, costs.depthwise_back
        if any(step.kernel_size > 3 or step.pad > step.kernel_size // 2 for step in plan.axes):
            backward = costs.depthwise_back_long
    return batch * channels * taps * share * (each + (backward if training else 0))


def _taps(step: AxisPlan, window: Window, size: int, outputs: int) -> int:
    """Taps of all windows along an axis that meet data or what is joined to it; the operator's own padding takes none
    of oneDNN's time."""
    count, taps = outputs + step.skip + (step.excess or 0), step.kernel_size
    moved = step.shift[1] - step.shift[0] if step.shift else 0
    cells = size + sum(step.join) + sum(step.spread) + moved
    if step.gather:
        cells = outputs * window.stride + max(window.effective_kernel_size - window.stride, 0)
    lost = 0
    for begin in range(-step.pad, min(0, count * window.stride - step.pad), window.stride):
        lost += min(-(begin // window.dilation), taps)
    last = (count - 1) * window.stride - step.pad + (taps - 1) * window.dilation
    for end in range(last, max(cells - 1, last - count * window.stride), -window.stride):
        lost += min(-((cells - 1 - end) // window.dilation), taps)
    return max(count * taps - lost, 1)


# -- what was measured

Choices = Dict[Tuple[Tuple[Window, ...], Work], str]

_MEASURED: Choices = {}
_TRIED: contextvars.ContextVar[Optional[Choices]] = contextvars.ContextVar("mxsame_tried_strategies", default=None)


@contextlib.contextmanager
def trying(windows: Sequence[Window], work: Work, strategy: str) -> Iterator[None]:
    """Within the `with` block, in this thread, this strategy is chosen, and nothing is remembered."""
    token = _TRIED.set({(tuple(windows), work): strategy})
    try:
        yield
    finally:
        _TRIED.reset(token)


def recall(windows: Sequence[Window], work: Work) -> Optional[str]:
    """The strategy that was measured to be the fastest, if one was.

    >>> recall([Window(8, 3, 2)], Work("conv", 1, 64, 64)) is None
    True
    """
    return _MEASURED.get((tuple(windows), work))


def remember(windows: Sequence[Window], work: Work, strategy: str) -> None:
    """From now on this strategy is chosen, in this process.

    >>> from mxsame.plan import AxisPlan
    >>> window, work = Window(8, 3, 2), Work("conv", 1, 64, 64)
    >>> remember([window], work, "tail")
    >>> choose([window], ("native", "slice", "tail"), work) == Plan((AxisPlan(3, join=(0, 1)),))
    True
    >>> forget()
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}; {validation.received(strategy=strategy)}")
    _MEASURED[tuple(windows), work] = strategy


def forget() -> None:
    """Forget all that was measured.

    >>> remember([Window(8, 3, 2)], Work("conv", 1, 64, 64), "tail")
    >>> forget()
    >>> recall([Window(8, 3, 2)], Work("conv", 1, 64, 64)) is None
    True
    """
    _MEASURED.clear()


def save(path: str) -> None:
    """Write what was measured, as JSON, for :func:`load`.

    >>> import os, tempfile
    >>> window, work = Window(8, 3, 2), Work("conv", 1, 64, 64)
    >>> remember([window], work, "tail")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "plans.json")
    ...     save(path)
    ...     forget()
    ...     load(path)
    >>> recall([window], work)
    'tail'
    >>> forget()
    """
    entries = [
        {"windows": [asdict(window) for window in windows], "work": asdict(work), "strategy": strategy}
        for (windows, work), strategy in _MEASURED.items()
    ]
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=os.path.dirname(os.path.abspath(path)), suffix=".part", delete=False
    ) as file:
        json.dump({"format": FORMAT, "measured": entries}, file, indent=1)
    os.replace(file.name, path)  # never half a file


def load(path: str) -> None:
    """Remember what another process has measured and saved; `ValueError` for a file that is none of `save`'s.

    What is remembered already stays, unless the file has another strategy for the same.

    >>> load("setup.py")
    Traceback (most recent call last):
    ValueError: path must be a file that mxsame has saved plans in (...); received path='setup.py'
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content["format"] != FORMAT:
            raise ValueError(content["format"])
        read = dict(map(_entry, content["measured"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"path must be a file that mxsame has saved plans in ({error!r}); received path={path!r}"
        ) from None
    _MEASURED.update(read)


FORMAT = "mxsame plans 1"


def _entry(entry: Any) -> Tuple[Tuple[Tuple[Window, ...], Work], str]:
    """What was measured, as `save` writes it; JSON knows no tuples."""
    windows = tuple(Window(**window) for window in entry["windows"])
    windows = tuple(replace(window, padding=_checked_pads(window.padding)) for window in windows)
    work, strategy = Work(**entry["work"]), entry["strategy"]
    for window in windows:
        _check_types(int, window.kernel_size, window.stride, window.dilation, window.size or 1)
        _check_types(bool, window.ceil_mode)
    _check_types(int, work.batch or 1, work.in_channels or 1, work.channels or 1, work.groups)
    _check_types(str, work.operator, work.purpose, work.device)
    if strategy not in STRATEGIES:
        raise ValueError(strategy)
    return (windows, work), strategy


def _checked_pads(padding: Any) -> Any:
    if isinstance(padding, str):
        return padding
    low, high = padding
    _check_types(int, low, high)
    return low, high


def _check_types(kind: type, *values: Any) -> None:
    for value in values:
        if type(value) is not kind:
            raise TypeError(value)
