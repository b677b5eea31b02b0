"""Estimates of what MXNet's operator itself costs on the CPU, with the kernel and the outputs that a plan gives it."""

from __future__ import annotations

import math
from typing import Sequence

from mxsame import onednn_blocks
from mxsame.plan.axis_plan import AxisPlan
from mxsame.plan.costs import TypicalLayer
from mxsame.plan.strategies import Plan
from mxsame.plan.windows import AnyWindow, TransposedWindow

BYTES_OF_BLOCK = onednn_blocks.LARGEST * 4  # of one element of the largest blocks
CACHE = 1 << 20  # bytes of data and output, up to which oneDNN pools plain data in blocks, with AVX-512


def operator_cost(plan: Plan, layer: TypicalLayer) -> float:
    """Returns the cost of MXNet's operator itself, with the kernel and the outputs that the plan gives it."""
    outputs = math.prod(map(_computed_outputs, plan.axes, layer.size, layer.outputs))
    touched = math.prod(layer.size) * layer.in_channels + outputs * layer.channels
    touch = layer.batch * touched * layer.costs.touch * (3 if layer.training else 1)
    return touch + (_convolution(plan, layer) if layer.convolves else _pooling(plan, layer))


def _pooling(plan: Plan, layer: TypicalLayer) -> float:
    """Returns the cost of what a pooling operator reads, and of a copy in blocks."""
    costs, elements, detour = layer.costs, layer.batch * layer.in_channels, 0.0
    each = costs.pooling
    if layer.work.operator == "avg" and is_partial(plan, layer.windows, layer.size):
        each = costs.pooling_slow
    elif plan.blocks:
        detour = 4 * elements * math.prod(layer.size) * costs.touch  # into blocks: two reads, two writes
    elif layer.work.plain and is_slow_when_plain(plan, layer.windows, layer.size):
        each = costs.pooling_slow
    return detour + elements * _all_reads(plan, layer) * each * (2 if layer.training else 1)


def _convolution(plan: Plan, layer: TypicalLayer) -> float:
    """Returns the cost of the multiplications of a convolution, and of those of its gradients in training."""
    costs, share = layer.costs, max(layer.in_channels // layer.work.groups, 1)
    long = any(axis.pad > axis.kernel_size // 2 for axis in plan.axes)
    each, backward = costs.dense, (4 if long else 2) * costs.dense  # backward: gradients of the data and the weight
    if share == 1 and layer.work.groups > 1:
        each = layer.depthwise
        backward = costs.depthwise_slow if long or plan.axes[-1].kernel_size > 3 else 0.0
    products = layer.batch * layer.channels * share * _all_reads(plan, layer)
    return products * (each + (backward if layer.training else 0))


def _all_reads(plan: Plan, layer: TypicalLayer) -> int:
    """Returns the elements that all windows read of one channel."""
    return math.prod(map(_reads, plan.axes, layer.windows, layer.size, layer.outputs))


# -- how often elements are read


def _computed_outputs(axis: AxisPlan, size: int, outputs: int) -> int:
    """Returns how many outputs MXNet's operator computes along an axis, before any are cropped or picked."""
    return size if axis.pick else outputs + axis.crop[0] + axis.static_end


def _reads(axis: AxisPlan, window: AnyWindow, size: int, outputs: int) -> int:
    """Returns the elements that all windows along an axis read of the data and of what is added to it; the operator's
    own padding takes none of oneDNN's time."""
    if isinstance(window, TransposedWindow):
        return axis.kernel_size * (max(outputs, 1) if axis.dilate else size)
    count, kernel = _computed_outputs(axis, size, outputs), axis.kernel_size
    if axis.pick:
        return count * kernel
    shifted = axis.shift.length - 1 if axis.shift else 0
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


def is_partial(plan: Plan, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Returns whether a window goes beyond the operator's own padding, as the convention "full" allows. MXNet does not
    leave such averages to oneDNN."""
    if plan.convention != "full":
        return False
    axes = zip(plan.axes, windows, size)
    return any((w.outputs(n) - 1) * w.stride + axis.kernel_size > n + 2 * axis.pad for axis, w, n in axes)


def is_slow_when_plain(plan: Plan, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Returns whether oneDNN pools plain data slowly: always without AVX-512, else if a block of the data and of the
    output does not fit into the cache."""
    outputs = (_computed_outputs(axis, n, window.outputs(n)) for axis, window, n in zip(plan.axes, windows, size))
    elements = math.prod(size) + math.prod(outputs)
    return not onednn_blocks.has_avx512() or (2 if len(size) == 1 else 1) * BYTES_OF_BLOCK * elements > CACHE
