"""What a plan costs on the CPU: constants that were measured, and what a plan copies and computes, counted.

The estimate is a sum of counts, each multiplied by a constant of :class:`Costs`, in nanoseconds: elements that a step
copies; kernel elements that get zeros or are flipped; the operator's multiplications, including those for zeros and for
cropped outputs; elements that it reads or writes; and operators that the plan adds. oneDNN's own padding costs nothing.
The constants were fitted to 150 layers drawn at random, each measured with every exact plan, by itself and between two
1x1 convolutions, with one thread and with two. Plans are only ranked, so only ratios of constants matter.
`python -m benchmarks costs` measures most of them anywhere.

The estimate includes four properties of MXNet:

* Blocks. Between convolutions, oneDNN keeps data in blocks of 8 or 16 channels. Operators other than convolutions,
  pooling and elementwise ones undo the blocks, and the next convolution makes them again. So copies are cheap at the
  network's input and expensive between layers.
* Purpose. In training, gradients are copied too. In a deployed net, whatever depends only on parameters is free.
* Slow code. These have constants of their own: convolutions of fewer than 8 channels; depthwise convolutions along one
  or three axes; averages with partial windows; gradients of convolutions padded by more than half their kernel; and
  gradients of depthwise convolutions longer than 3 along the last axis.
* Pooling of data that is not in blocks, such as a network's input. oneDNN is fast only with AVX-512, and if 16 channels
  of data and output fit into 1 MiB, which are about 114 x 114 pixels with stride 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, NamedTuple, Sequence, Type

from mxsame import processor
from mxsame.onednn_blocks import MAX_BLOCK, MIN_BLOCK
from mxsame.plan import recipe
from mxsame.plan.arrays import SPATIAL
from mxsame.plan.axis_plan import AxisPlan
from mxsame.plan.costs import AXIS_CALLS, GATHER_CALLS, LOW_CALLS, ONE_HOT_CALLS, CostLayer
from mxsame.plan.recipe import Plan, Step
from mxsame.plan.windows import AnyWindow, TransposedWindow

BYTES_OF_BLOCK = MAX_BLOCK * 4  # of one element of the largest blocks


@dataclass(frozen=True)
class Costs:
    """Nanoseconds: per element that is copied, per multiplication and addition, per operator.

    >>> COSTS.slice < COSTS.gather
    True
    """

    concat: float = 0.2  #: concatenate a few elements to an axis
    concat_row: float = 15.0  #: in addition, per contiguous row that is copied
    concat_back: float = 0.6  #: its backward pass
    concat_back_1d: float = 4.5  #: the same for 1-D data
    slice: float = 0.6  #: take a part, also of what a convolution has left in blocks
    slice_back: float = 1.2  #: the backward pass; twice that for a part of a dynamic shape
    flip: float = 1.1  #: reverse an axis
    gather: float = 4.0  #: transpose, copy rows, transpose back
    reorder: float = 1.5  #: from oneDNN's blocks to the plain layout, or back
    weight: float = 5.0  #: per element of a weight that gets zeros or is flipped, including its reorder into blocks
    dense: float = 0.024  #: per multiplication of a convolution; twice that for gradients with pad > k // 2
    depthwise: float = 0.05  #: per multiplication of a depthwise convolution
    depthwise_slow: float = 1.0  #: the same without fast code in oneDNN (few channels, one or three axes, gradients)
    pooling: float = 0.04  #: per element of a pooling window
    pooling_slow: float = 0.9  #: the same without oneDNN (partial windows of averages, plain data beyond the cache)
    touch: float = 0.15  #: per element that an operator reads or writes
    operator: float = 1.0e3  #: for each operator


COSTS = Costs()


def estimate(plan: Plan, layer: CostLayer) -> float:
    """Returns the nanoseconds of an operator on the CPU with a plan."""
    costs = [STEP_COSTS[type(step)](step, layer) for step in plan.steps]
    nanoseconds = _operator_cost(plan, layer) + sum(cost.data for cost in costs)
    if layer.input_in_blocks and any(step.needs_plain_layout for step in plan.steps):
        nanoseconds += COSTS.reorder * layer.input_elements
    if layer.convolves and layer.work.purpose != "deployment":
        nanoseconds += sum(cost.weight for cost in costs)
    return nanoseconds + (sum(cost.backward for cost in costs) if layer.training else 0)


# -- the steps


class StepCost(NamedTuple):
    """Nanoseconds: for the changes of data and output, for that of the kernel, and for all gradients."""

    data: float = 0.0
    weight: float = 0.0
    backward: float = 0.0


def _flip(step: recipe.Flip, layer: CostLayer) -> StepCost:
    of_input = COSTS.flip * layer.input_elements + COSTS.operator
    per_result = COSTS.flip + layer.output_in_blocks * COSTS.reorder
    of_output = per_result * layer.output_elements + COSTS.operator
    return StepCost(of_input + of_output, COSTS.weight * layer.weight_elements + 2 * COSTS.operator, of_input)


def _concat(step: recipe.Concat, layer: CostLayer) -> StepCost:
    count = len(step.axes)
    rows = sum(1 / math.prod(layer.size[axis - SPATIAL :]) for axis in step.axes)
    data = (count * COSTS.concat + rows * COSTS.concat_row) * layer.input_elements + 3 * count * COSTS.operator
    per_element = COSTS.concat_back_1d if layer.rank == 1 else COSTS.concat_back
    return StepCost(data, backward=count * (per_element * layer.input_elements + 3 * COSTS.operator))


def _dynamic_concat(step: recipe.DynamicConcat, layer: CostLayer) -> StepCost:
    concat, operators = _concat(step, layer), (LOW_CALLS + AXIS_CALLS) * len(step.axes)
    reorders = 3 if layer.rank == 3 and layer.input_in_blocks else 1  # five axes are brought out of the blocks slowly
    data = concat.data + reorders * COSTS.reorder * layer.input_elements + operators * COSTS.operator
    return concat._replace(data=data)


def _pad(step: recipe.Pad, layer: CostLayer) -> StepCost:
    cost = COSTS.gather * layer.input_elements + COSTS.operator
    return StepCost(cost, backward=cost)


def _gather(step: recipe.Gather, layer: CostLayer) -> StepCost:
    factor = 3 if layer.rank == 3 else 1  # five axes are transposed
    cost = factor * COSTS.gather * layer.input_elements + GATHER_CALLS * len(step.axes) * COSTS.operator
    return StepCost(cost, backward=cost)


def _move(step: Any, layer: CostLayer, elements: int) -> float:
    """Returns the cost of moving elements by a depthwise convolution whose kernel is one-hot."""
    products: int = math.prod(kernel.length for kernel in step.values.values())
    dynamic = sum(layer.windows[axis - SPATIAL].size is None for axis in step.axes)
    operators = ONE_HOT_CALLS + LOW_CALLS * dynamic + AXIS_CALLS * len(step.axes)
    return (products * _depthwise(layer) + 2 * COSTS.touch) * elements + operators * COSTS.operator


def _shift(step: recipe.Shift, layer: CostLayer) -> StepCost:
    cost = _move(step, layer, layer.input_elements)
    return StepCost(cost, backward=cost)


def _zeros(step: recipe.PadKernel, layer: CostLayer) -> StepCost:
    cost = COSTS.weight * layer.weight_elements
    return StepCost(0.0, cost + (4 + 3 * len(step.axes)) * COSTS.operator, cost)


def _crop(step: recipe.Crop, layer: CostLayer) -> StepCost:
    static, dynamic = step.has_static_part, bool(step.dynamic_axes)
    slices = 3 if layer.rank == 3 and layer.output_in_blocks else 1  # five axes are brought out of the blocks first
    data = (static + dynamic) * slices * COSTS.slice * layer.output_elements + (static + 4 * dynamic) * COSTS.operator
    return StepCost(data, backward=(static + 2 * dynamic) * COSTS.slice_back * layer.output_elements)


def _pick(step: recipe.Pick, layer: CostLayer) -> StepCost:
    """The one-hot convolution reorders plain data, such as a pooled input of the network, into blocks and back."""
    is_plain = not (layer.convolves or layer.input_in_blocks)
    reorders = 2 * is_plain * COSTS.reorder * layer.output_elements
    return StepCost(_move(step, layer, layer.output_elements) + reorders)


STEP_COSTS: Dict[Type[Step[Any]], Callable[[Any, CostLayer], StepCost]] = {
    recipe.Flip: _flip,
    recipe.Dilate: lambda step, layer: StepCost(),  # it is never chosen by its cost
    recipe.Concat: _concat,
    recipe.DynamicConcat: _dynamic_concat,
    recipe.Pad: _pad,
    recipe.Gather: _gather,
    recipe.Shift: _shift,
    recipe.PadKernel: _zeros,
    recipe.Crop: _crop,
    recipe.Pick: _pick,
}


# -- MXNet's operator


def _operator_cost(plan: Plan, layer: CostLayer) -> float:
    """Returns the cost of MXNet's operator itself, with the kernel and the outputs that the plan gives it."""
    computed = [*map(AxisPlan.computed_outputs, plan.axes, layer.size, layer.output_size)]
    touched = math.prod(layer.size) * layer.in_channels + math.prod(computed) * layer.channels
    touch = layer.batch * touched * COSTS.touch * (3 if layer.training else 1)
    reads = math.prod(map(_reads, plan.axes, layer.windows, layer.size, layer.output_size, computed))
    return touch + (_convolution if layer.convolves else _pooling)(plan, layer, reads)


def _pooling(plan: Plan, layer: CostLayer, reads: int) -> float:
    """Returns the cost of what a pooling operator reads."""
    is_slow = layer.work.operator == "avg" and _is_partial(plan, layer.windows, layer.size)
    is_slow = is_slow or (layer.work.plain and _is_slow_when_plain(plan, layer.windows, layer.size))
    per_element = COSTS.pooling_slow if is_slow else COSTS.pooling
    return layer.batch * layer.in_channels * reads * per_element * (2 if layer.training else 1)


def _convolution(plan: Plan, layer: CostLayer, reads: int) -> float:
    """Returns the cost of the multiplications of a convolution, and of those of its gradients in training."""
    group_channels = max(layer.in_channels // layer.work.groups, 1)
    has_long_pad = any(axis.pad > axis.kernel_size // 2 for axis in plan.axes)
    forward, backward = COSTS.dense, (4 if has_long_pad else 2) * COSTS.dense  # backward: of the data and the weight
    if group_channels == 1 and layer.work.groups > 1:
        forward = _depthwise(layer)
        backward = COSTS.depthwise_slow if has_long_pad or plan.axes[-1].kernel_size > 3 else 0.0
    products = layer.batch * layer.channels * group_channels * reads
    return products * (forward + (backward if layer.training else 0))


def _reads(axis: AxisPlan, window: AnyWindow, size: int, outputs: int, computed: int) -> int:
    """Returns the elements that all windows along an axis read of the data and of what is added to it; the operator's
    own padding takes none of oneDNN's time."""
    if isinstance(window, TransposedWindow):
        return axis.kernel_size * (max(outputs, 1) if axis.dilate else size)
    kernel = axis.kernel_size
    if axis.pick:
        return computed * kernel
    shifted = axis.shift.growth if axis.shift else 0
    elements = size + sum(axis.concat) + sum(axis.pad_operator) + shifted
    if axis.gather:
        elements = outputs * window.stride + max(window.effective_kernel_size - window.stride, 0)
    total = 0
    for start in range(-axis.pad, kernel * window.dilation - axis.pad, window.dilation):  # where the first window reads
        first, end = -(start // window.stride), -((start - elements) // window.stride)  # windows that read elements
        total += max(min(end, computed) - max(first, 0), 0)
    return max(total, 1)


def _depthwise(layer: CostLayer) -> float:
    """Returns the cost of a multiplication of a depthwise convolution: oneDNN has fast code for two axes and a block of
    channels; one of a single channel is an ordinary convolution."""
    is_fast = layer.in_channels == 1 or (layer.rank == 2 and layer.in_channels >= MIN_BLOCK)
    return COSTS.depthwise if is_fast else COSTS.depthwise_slow


# -- where oneDNN has no fast code


def _is_partial(plan: Plan, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Returns whether a window goes beyond the operator's own padding, as the convention "full" allows. MXNet does not
    leave such averages to oneDNN."""
    if plan.convention != "full":
        return False
    axes = zip(plan.axes, windows, size)
    return any((w.outputs(n) - 1) * w.stride + axis.kernel_size > n + 2 * axis.pad for axis, w, n in axes)


def _is_slow_when_plain(plan: Plan, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Returns whether oneDNN pools plain data slowly: always without AVX-512, else if a block of the data and of the
    output does not fit into the cache."""
    outputs = (axis.computed_outputs(n, window.outputs(n)) for axis, window, n in zip(plan.axes, windows, size))
    elements = math.prod(size) + math.prod(outputs)
    block = (2 if len(size) == 1 else 1) * BYTES_OF_BLOCK * elements
    return not processor.has("AVX512_CORE") or block > processor.POOLING_CACHE
