"""Estimates of what a layer costs on the CPU, in nanoseconds, by constants that were measured.

Plans are only ranked, so the ratios of the constants matter. The steps of a plan (`mxsame.plan.steps`) have their own
costs, for the same `TypicalLayer`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from mxsame.plan.arrays import SPATIAL
from mxsame.plan.windows import AnyWindow, TransposedWindow

MOVE_OPERATORS = 8  # operators that make a kernel with a single one
LOW_OPERATORS = 12  # that compute SAME's low for an axis of dynamic shape
AXIS_OPERATORS = 3  # in addition, for each axis

BLOCK = 8  # channels of oneDNN's smallest blocks
BYTES_OF_BLOCK = 16 * 4  # of one element of the largest blocks
CACHE = 1 << 20  # bytes of data and output, up to which oneDNN pools plain data in blocks, with AVX-512
TYPICAL_BATCH = 2
TYPICAL_CHANNELS = 64
TYPICAL_PICTURE = {1: 16000, 2: 224, 3: 48}  # size of a network's input, by rank
QUARTER = {1: 32, 2: 128, 3: 128}  # the most channels of a quarter of it, by rank


@dataclass(frozen=True)
class Costs:
    """Nanoseconds: per element that is copied, per multiplication and addition, per operator.

    >>> COSTS.slice < COSTS.gather
    True
    """

    concat: float = 0.2  #: concatenate a few elements to an axis
    concat_row: float = 15.0  #: in addition, for each row of elements next to each other that is copied
    concat_back: float = 0.6  #: its backward pass
    back_line: float = 4.5  #: the same along a single axis
    slice: float = 0.6  #: take a part, also of what a convolution has left in blocks
    slice_back: float = 1.2  #: the backward pass; twice that for a part of a dynamic shape
    flip: float = 1.1  #: reverse an axis
    gather: float = 4.0  #: transpose, copy rows, transpose back
    reorder: float = 1.5  #: from oneDNN's blocks to the plain layout, or back
    weight: float = 5.0  #: per element of a weight that gets zeros or is flipped, including its way into blocks
    dense: float = 0.024  #: per multiplication of a convolution; twice that for gradients with pad > k // 2
    depthwise: float = 0.05  #: per multiplication of a depthwise convolution
    depthwise_slow: float = 1.0  #: the same without fast code in oneDNN (few channels, one or three axes, gradients)
    pooling: float = 0.04  #: per element of a pooling window
    pooling_slow: float = 0.9  #: the same without oneDNN (partial windows of averages, plain data beyond the cache)
    touch: float = 0.15  #: per element that an operator reads or writes
    operator: float = 1.0e3  #: for each operator


COSTS = Costs()


@dataclass(frozen=True)
class Workload:
    """All that the cost of an operator depends on, apart from its windows; None means unknown.

    Parameters
    ----------
    operator : str
        One of `mxsame.plan.OPERATORS`: "conv", "transposed", "max", "avg", ..
    batch, in_channels, channels : int, optional
    groups : int
    plain : bool
        The data is an input of the graph, so it is not in oneDNN's blocks.
    purpose : "inference", "training" or "deployment"
        For deployment, whatever depends only on parameters is computed beforehand.
    device : "cpu" or "gpu"
    in_blocks : bool
        The data has one spatial axis and is in oneDNN's blocks, like a convolution's output.
    pairs, blocks : bool
        Whether a pooling operator can take its data in pairs of channels, and in oneDNN's blocks.

    Examples
    --------
    >>> Workload("conv", batch=8, in_channels=3, channels=64, plain=True).groups
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
    in_blocks: bool = False
    pairs: bool = False
    blocks: bool = False


class TypicalLayer:
    """A layer for which the steps of a plan are estimated: its windows and workload, with typical numbers for what is
    unknown."""

    costs = COSTS

    def __init__(self, windows: Sequence[AnyWindow], work: Workload):
        self.windows, self.work, self.rank = windows, work, len(windows)
        self.in_channels: int = work.in_channels or work.channels or TYPICAL_CHANNELS
        self.channels: int = work.channels or self.in_channels
        self.batch: int = work.batch or TYPICAL_BATCH
        self.training: bool = work.purpose == "training"
        self.convolves = work.operator in ("conv", "transposed")
        self.size = [window.size or _typical_size(self.rank, self.in_channels) for window in windows]
        self.outputs = [window.outputs(length) for window, length in zip(windows, self.size)]
        self.inputs: int = self.batch * self.in_channels * math.prod(self.size)  # elements
        self.results: int = self.batch * self.channels * math.prod(self.outputs)
        kernel_elements = math.prod(window.kernel_size for window in windows)
        self.weights: int = self.channels * self.in_channels // work.groups * kernel_elements
        keeps_blocks = not self.training  # batch norm undoes them
        self.input_in_blocks: bool = keeps_blocks and self.in_channels >= BLOCK and not work.plain
        self.output_in_blocks: bool = keeps_blocks and self.channels >= BLOCK and self.convolves

    @property
    def depthwise(self) -> float:
        """The cost of a multiplication of a depthwise convolution: oneDNN has fast code for two axes and a block of
        channels."""
        fast = self.rank == 2 and self.in_channels >= BLOCK
        return self.costs.depthwise if fast else self.costs.depthwise_slow

    def moving(self, ranges: Mapping[int, Any], elements: int) -> float:
        """Returns the cost of moving elements by a depthwise convolution whose kernel has a single one, at a position
        within these ranges, by axis."""
        products: int = math.prod(most - least + 1 for least, most, *_ in ranges.values())
        dynamic = sum(self.windows[axis - SPATIAL].size is None for axis in ranges)
        operators = MOVE_OPERATORS + LOW_OPERATORS * dynamic + AXIS_OPERATORS * len(ranges)
        return (products * self.depthwise + 2 * self.costs.touch) * elements + operators * self.costs.operator

    def operator(self, plan: Any) -> float:
        """Returns the cost of MXNet's operator itself, with the kernel and the outputs that the plan gives it."""
        outputs = math.prod(map(_computed_outputs, plan.axes, self.size, self.outputs))
        touched = math.prod(self.size) * self.in_channels + outputs * self.channels
        touch = self.batch * touched * self.costs.touch * (3 if self.training else 1)
        return touch + (self._convolution(plan) if self.convolves else self._pooling(plan))

    def _pooling(self, plan: Any) -> float:
        """Returns the cost of what a pooling operator reads, and of a copy in blocks."""
        costs, elements, detour = self.costs, self.batch * self.in_channels, 0.0
        each = costs.pooling
        if self.work.operator == "avg" and is_partial(plan, self.windows, self.size):
            each = costs.pooling_slow
        elif plan.blocks:
            detour = 4 * elements * math.prod(self.size) * costs.touch  # into blocks: two reads, two writes
        elif self.work.plain and is_slow_when_plain(plan, self.windows, self.size):
            each = costs.pooling_slow
        return detour + elements * self._reads(plan) * each * (2 if self.training else 1)

    def _convolution(self, plan: Any) -> float:
        """Returns the cost of the multiplications of a convolution, and of those of its gradients in training."""
        costs, share = self.costs, max(self.in_channels // int(self.work.groups), 1)
        long = any(axis.pad > axis.kernel_size // 2 for axis in plan.axes)
        each, backward = costs.dense, (4 if long else 2) * costs.dense  # backward: gradients of the data and the weight
        if share == 1 and self.work.groups > 1:
            each = self.depthwise
            backward = costs.depthwise_slow if long or plan.axes[-1].kernel_size > 3 else 0.0
        products = self.batch * self.channels * share * self._reads(plan)
        return products * (each + (backward if self.training else 0))

    def _reads(self, plan: Any) -> int:
        """Returns the elements that all windows read of one channel."""
        reads: int = math.prod(map(_reads, plan.axes, self.windows, self.size, self.outputs))
        return reads


# -- how often elements are read


def _typical_size(rank: int, channels: int) -> int:
    """Returns the size of a network's input for few channels, else a quarter of it, halved wherever channels double."""
    quarter = TYPICAL_PICTURE[rank] // 4
    return TYPICAL_PICTURE[rank] if channels < BLOCK else min(quarter, max(7, quarter * QUARTER[rank] // channels))


def _computed_outputs(axis: Any, size: int, outputs: int) -> int:
    """Returns how many outputs MXNet's operator computes along an axis, before any are cropped or picked."""
    return size if axis.pick else int(outputs + axis.crop[0] + (axis.crop[1] or 0))


def _reads(axis: Any, window: AnyWindow, size: int, outputs: int) -> int:
    """Returns the elements that all windows along an axis read of the data and of what is added to it; the operator's
    own padding takes none of oneDNN's time."""
    if isinstance(window, TransposedWindow):
        return int(axis.kernel_size * (max(outputs, 1) if axis.dilate else size))
    count, kernel = _computed_outputs(axis, size, outputs), int(axis.kernel_size)
    if axis.pick:
        return count * kernel
    shifted = axis.shift[1] - axis.shift[0] if axis.shift else 0
    elements = size + sum(axis.concat) + sum(axis.pad_operator) + shifted
    if axis.gather:
        elements = outputs * window.stride + max(window.effective_kernel_size - window.stride, 0)
    lost = 0
    for start in range(-axis.pad, min(0, count * window.stride - axis.pad), window.stride):
        lost += min(-(start // window.dilation), kernel)
    last = (count - 1) * window.stride - axis.pad + (kernel - 1) * window.dilation
    for end in range(last, max(elements - 1, last - count * window.stride), -window.stride):
        lost += min(-((elements - 1 - end) // window.dilation), kernel)
    return max(count * kernel - lost, 1)


# -- for what oneDNN has no fast code


def is_partial(plan: Any, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Returns whether a window goes beyond the operator's own padding, as the convention "full" allows. MXNet does not
    leave such averages to oneDNN."""
    if plan.convention != "full":
        return False
    axes = zip(plan.axes, windows, size)
    return any((w.outputs(n) - 1) * w.stride + axis.kernel_size > n + 2 * axis.pad for axis, w, n in axes)


def is_slow_when_plain(plan: Any, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Returns whether oneDNN pools plain data slowly: always without AVX-512, else if a block of the data and of the
    output does not fit into the cache."""
    outputs = (_computed_outputs(axis, n, window.outputs(n)) for axis, window, n in zip(plan.axes, windows, size))
    elements = math.prod(size) + math.prod(outputs)
    return not has_avx512() or (2 if len(size) == 1 else 1) * BYTES_OF_BLOCK * elements > CACHE


@functools.lru_cache(maxsize=None)
def has_avx512(part: str = "f") -> bool:
    """Returns whether the processor has a part of AVX-512, by default the foundation, as reported by Linux."""
    with contextlib.suppress(OSError):
        return f"avx512{part}" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return False
