"""Estimates what a plan costs on the CPU, from measured constants and counts of what the plan copies and computes.

The estimate is a sum of counts, each multiplied by a constant of :class:`Costs`, in nanoseconds: elements that a step
copies; kernel elements that are flipped or padded with zeros; the operator's multiplications, including those with
zeros and those of cropped outputs; elements that it reads or writes; and operators that the plan adds. oneDNN's own
padding costs nothing.

The constants were fitted to 150 layers drawn at random, each measured with every exact plan, by itself and between two
1x1 convolutions, with one thread and with two. Plans are only ranked, so only ratios of constants matter.
`python -m benchmarks costs` measures most of them again, on the machine it runs on.

The estimate accounts for four properties of MXNet:

* Blocks. Between convolutions, oneDNN keeps data in blocks of 8 or 16 channels. Operators other than convolutions,
  pooling and elementwise ones copy the data to the plain layout, and the next convolution copies it back. So copies are
  cheap at the network's input and expensive between layers.
* Purpose. In training, gradients are copied, too. In a deployed net, everything that depends only on parameters is
  free.
* Slow code. There are separate constants for convolutions of fewer than 8 channels; 1-D and 3-D depthwise convolutions;
  averages with partial windows; gradients of convolutions padded by more than half their kernel; and gradients of
  depthwise convolutions longer than 3 along the last axis.
* Pooling of data that is not in blocks, such as a network's input. oneDNN is fast only with AVX-512, and only if 16
  channels of data and output fit into 1 MiB, as they do up to about 114 x 114 pixels with stride 2.
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
from mxsame.plan.recipe import Plan, PlanStep
from mxsame.plan.windows import AnyWindow, TransposedWindow

BLOCK_BYTES = MAX_BLOCK * 4  # bytes per pixel of the largest block


@dataclass(frozen=True)
class Costs:
    """Nanoseconds per copied element, per multiplication and addition, or per operator.

    >>> COSTS.slice < COSTS.gather
    True
    """

    concat: float = 0.2  #: concatenate a few elements to an axis
    concat_row: float = 15.0  #: in addition, per contiguous row that is copied
    concat_back: float = 0.6  #: its backward pass
    concat_back_1d: float = 4.5  #: the same for 1-D data
    slice: float = 0.6  #: slice an array, which may be in a convolution's blocks
    slice_back: float = 1.2  #: its backward pass; twice that for a slice of dynamic shape
    flip: float = 1.1  #: reverse an axis
    gather: float = 4.0  #: transpose, copy rows, transpose back
    reorder: float = 1.5  #: copy from oneDNN's blocks to the plain layout, or back
    weight: float = 5.0  #: per element of a weight that is flipped or padded, including its copy into blocks
    dense: float = 0.024  #: per multiplication of a convolution; twice that for gradients with pad > k // 2
    depthwise: float = 0.05  #: per multiplication of a depthwise convolution
    depthwise_slow: float = 1.0  #: the same where oneDNN has no fast code (few channels, 1-D and 3-D, gradients)
    pooling: float = 0.04  #: per element of a pooling window
    pooling_slow: float = 0.9  #: the same without oneDNN (partial windows of averages, plain data beyond the cache)
    touch: float = 0.15  #: per element that an operator reads or writes
    operator: float = 1.0e3  #: for each operator


COSTS = Costs()


def estimate(plan: Plan, layer: CostLayer) -> float:
    """Returns the estimated time of a plan on the CPU, in nanoseconds."""
    costs = [STEP_COSTS[type(step)](step, layer) for step in plan.steps]
    nanoseconds = _operator_cost(plan, layer) + sum(cost.data for cost in costs)
    if layer.input_in_blocks and any(step.needs_plain_layout for step in plan.steps):
        nanoseconds += COSTS.reorder * layer.input_elements
    if layer.is_convolution and layer.work.purpose != "deployment":
        nanoseconds += sum(cost.weight for cost in costs)
    return nanoseconds + (sum(cost.backward for cost in costs) if layer.is_training else 0)


# -- the steps


class StepCost(NamedTuple):
    """Nanoseconds to change the data and the output, to change the kernel, and to compute the gradients of both."""

    data: float = 0.0
    weight: float = 0.0
    backward: float = 0.0


def _flip(step: recipe.Flip, layer: CostLayer) -> StepCost:
    input_cost = COSTS.flip * layer.input_elements + COSTS.operator
    per_output_element = COSTS.flip + layer.output_in_blocks * COSTS.reorder
    output_cost = per_output_element * layer.output_elements + COSTS.operator
    weight_cost = COSTS.weight * layer.weight_elements + 2 * COSTS.operator
    return StepCost(input_cost + output_cost, weight_cost, input_cost)


def _concat(step: recipe.Concat, layer: CostLayer) -> StepCost:
    count = len(step.axes)
    rows = sum(1 / math.prod(layer.size[axis - SPATIAL :]) for axis in step.axes)
    data = (count * COSTS.concat + rows * COSTS.concat_row) * layer.input_elements + 3 * count * COSTS.operator
    per_element = COSTS.concat_back_1d if layer.rank == 1 else COSTS.concat_back
    return StepCost(data, backward=count * (per_element * layer.input_elements + 3 * COSTS.operator))


def _dynamic_concat(step: recipe.DynamicConcat, layer: CostLayer) -> StepCost:
    concat, operators = _concat(step, layer), (LOW_CALLS + AXIS_CALLS) * len(step.axes)
    reorders = 3 if layer.rank == 3 and layer.input_in_blocks else 1  # 3-D data is copied out of the blocks slowly
    data = concat.data + reorders * COSTS.reorder * layer.input_elements + operators * COSTS.operator
    return concat._replace(data=data)


def _pad(step: recipe.Pad, layer: CostLayer) -> StepCost:
    cost = COSTS.gather * layer.input_elements + COSTS.operator
    return StepCost(cost, backward=cost)


def _gather(step: recipe.Gather, layer: CostLayer) -> StepCost:
    factor = 3 if layer.rank == 3 else 1  # 3-D data is transposed slowly
    cost = factor * COSTS.gather * layer.input_elements + GATHER_CALLS * len(step.axes) * COSTS.operator
    return StepCost(cost, backward=cost)


def _move(step: Any, layer: CostLayer, elements: int) -> float:
    """Returns the cost of moving elements by a depthwise convolution with a one-hot kernel."""
    products: int = math.prod(kernel.length for kernel in step.values.values())
    dynamic = sum(layer.windows[axis - SPATIAL].size is None for axis in step.axes)
    operators = ONE_HOT_CALLS + LOW_CALLS * dynamic + AXIS_CALLS * len(step.axes)
    return (products * _depthwise_product(layer) + 2 * COSTS.touch) * elements + operators * COSTS.operator


def _shift(step: recipe.Shift, layer: CostLayer) -> StepCost:
    cost = _move(step, layer, layer.input_elements)
    return StepCost(cost, backward=cost)


def _pad_kernel(step: recipe.PadKernel, layer: CostLayer) -> StepCost:
    cost = COSTS.weight * layer.weight_elements
    return StepCost(0.0, cost + (4 + 3 * len(step.axes)) * COSTS.operator, cost)


def _crop(step: recipe.Crop, layer: CostLayer) -> StepCost:
    static, dynamic = step.has_static_part, bool(step.dynamic_axes)
    slices = 3 if layer.rank == 3 and layer.output_in_blocks else 1  # 3-D data is copied out of the blocks first
    data = (static + dynamic) * slices * COSTS.slice * layer.output_elements + (static + 4 * dynamic) * COSTS.operator
    return StepCost(data, backward=(static + 2 * dynamic) * COSTS.slice_back * layer.output_elements)


def _pick(step: recipe.Pick, layer: CostLayer) -> StepCost:
    """The one-hot convolution copies plain data, such as a pooled input of the network, into blocks and back."""
    is_plain = not (layer.is_convolution or layer.input_in_blocks)
    reorders = 2 * is_plain * COSTS.reorder * layer.output_elements
    return StepCost(_move(step, layer, layer.output_elements) + reorders)


STEP_COSTS: Dict[Type[PlanStep[Any]], Callable[[Any, CostLayer], StepCost]] = {
    recipe.Flip: _flip,
    recipe.Dilate: lambda step, layer: StepCost(),  # never chosen by its cost
    recipe.Concat: _concat,
    recipe.DynamicConcat: _dynamic_concat,
    recipe.Pad: _pad,
    recipe.Gather: _gather,
    recipe.Shift: _shift,
    recipe.PadKernel: _pad_kernel,
    recipe.Crop: _crop,
    recipe.Pick: _pick,
}


# -- MXNet's operator


def _operator_cost(plan: Plan, layer: CostLayer) -> float:
    """Returns the cost of MXNet's operator itself, with the plan's kernel and number of outputs."""
    computed = [*map(AxisPlan.computed_outputs, plan.axes, layer.size, layer.output_size)]
    touched = math.prod(layer.size) * layer.in_channels + math.prod(computed) * layer.channels
    touch = layer.batch * touched * COSTS.touch * (3 if layer.is_training else 1)
    reads = math.prod(map(_reads, plan.axes, layer.windows, layer.size, layer.output_size, computed))
    return touch + (_convolution if layer.is_convolution else _pooling)(plan, layer, reads)


def _pooling(plan: Plan, layer: CostLayer, reads: int) -> float:
    """Returns the cost of reading all elements of a pooling operator's windows."""
    is_slow = layer.work.operator == "avg" and _is_partial(plan, layer.windows, layer.size)
    is_slow = is_slow or (layer.work.plain and _is_slow_when_plain(plan, layer.windows, layer.size))
    per_element = COSTS.pooling_slow if is_slow else COSTS.pooling
    return layer.batch * layer.in_channels * reads * per_element * (2 if layer.is_training else 1)


def _convolution(plan: Plan, layer: CostLayer, reads: int) -> float:
    """Returns the cost of the multiplications of a convolution, and in training also of its gradients."""
    group_channels = max(layer.in_channels // layer.work.groups, 1)
    has_large_pad = any(axis.pad > axis.kernel_size // 2 for axis in plan.axes)
    forward, backward = COSTS.dense, (4 if has_large_pad else 2) * COSTS.dense  # two gradients
    if group_channels == 1 and layer.work.groups > 1:
        forward = _depthwise_product(layer)
        backward = COSTS.depthwise_slow if has_large_pad or plan.axes[-1].kernel_size > 3 else 0.0
    products = layer.batch * layer.channels * group_channels * reads
    return products * (forward + (backward if layer.is_training else 0))


def _reads(axis: AxisPlan, window: AnyWindow, size: int, outputs: int, computed: int) -> int:
    """Returns how many elements the windows along an axis read in all, including those that the plan adds to the data;
    oneDNN spends no time on the operator's own padding."""
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
    for start in range(-axis.pad, kernel * window.dilation - axis.pad, window.dilation):  # of each kernel element
        first, end = -(start // window.stride), -((start - elements) // window.stride)  # windows in which it reads data
        total += max(min(end, computed) - max(first, 0), 0)
    return max(total, 1)


def _depthwise_product(layer: CostLayer) -> float:
    """Returns the cost of a multiplication in a depthwise convolution: oneDNN has fast code for 2-D data that fills a
    block of channels, and runs one channel as an ordinary convolution."""
    is_fast = layer.in_channels == 1 or (layer.rank == 2 and layer.in_channels >= MIN_BLOCK)
    return COSTS.depthwise if is_fast else COSTS.depthwise_slow


# -- where oneDNN has no fast code


def _is_partial(plan: Plan, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Returns whether a window extends beyond the operator's own padding, as the convention "full" allows. oneDNN does
    not run such averages."""
    if plan.convention != "full":
        return False
    axes = zip(plan.axes, windows, size)
    return any((w.outputs(n) - 1) * w.stride + axis.kernel_size > n + 2 * axis.pad for axis, w, n in axes)


def _is_slow_when_plain(plan: Plan, windows: Sequence[AnyWindow], size: Sequence[int]) -> bool:
    """Returns whether oneDNN pools plain data slowly: always without AVX-512, else if a block of the data and of the
    output does not fit into the cache."""
    outputs = (axis.computed_outputs(n, window.outputs(n)) for axis, window, n in zip(plan.axes, windows, size))
    elements = math.prod(size) + math.prod(outputs)
    block = (2 if len(size) == 1 else 1) * BLOCK_BYTES * elements
    return not processor.has("AVX512_CORE") or block > processor.POOLING_CACHE
