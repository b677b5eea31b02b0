"""Estimates what a plan costs on a GPU, from fitted constants and counts of what the plan copies and computes.

The estimate is a sum of counts, each multiplied by a constant of :class:`GpuCosts`, in nanoseconds. Plans are only
ranked, so costs that all plans of a layer share do not matter. cuDNN's own padding costs nothing, and no array is in
blocks of channels.

The constants were fitted to the tables `benchmarks/results/gpu-*.json`, 250 times of plans of layers on one NVIDIA H200
(cuDNN 8.9.6), by `python -m benchmarks gpu --fit`. Channels first were measured in float32, and channels last in
float16, so the two effects cannot be separated, and the constants are assigned to the layout. With them, the chosen
plans take 1.00 to 1.01 times as long as the fastest exact ones, as geometric means of the four tables (1.03 to 1.06
times in leave-one-layer-out fits, 1.03 to 1.07 in leave-one-kind-out fits). `TRANSPOSED_TILE` was fitted to one layer.

The rules, each with its reason:

* The cost of a copy is that of MXNet's kernel for it. The pad operator copies elements twice as fast as a slice, which
  computes the position of each element along every axis, and which takes longer with channels last. A concatenation is
  one copy for each axis.
* Each operator takes time even if it copies nothing. So plans that compute pads in the graph, by thirty or more small
  operators, are slow for every layer.
* A longer kernel has more multiplications, and is not one of the kernels for which cuDNN, or MXNet's depthwise
  convolution, has special code; if it is even and longer than 4, each multiplication takes longer.
* Few channels leave tiles of cuDNN's matrix products partly empty: few input channels in a convolution, and few output
  channels in a transposed convolution, which has larger tiles.
* In training, copies are made backward, too. The gradient of the weight for an image, which has few channels, is
  several times slower if outputs are cropped.
* With channels last, the pad operator was not measured: it rejects 4-D data with channels last. It accepts 5-D data
  with as many elements, and is assumed to be as fast as with channels first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Type

from mxsame.plan import recipe
from mxsame.plan.axis_plan import AxisPlan
from mxsame.plan.costs import AXIS_CALLS, GATHER_CALLS, LOW_CALLS, ONE_HOT_CALLS, CostLayer
from mxsame.plan.recipe import Plan, PlanStep
from mxsame.plan.windows import AnyWindow, TransposedWindow

TILE = 16  # input channels that fill cuDNN's tiles of a convolution
TRANSPOSED_TILE = 320  # output channels that fill cuDNN's tiles of a transposed convolution
MIN_TRANSPOSED_CHANNELS = 32  # the smallest measured number of output channels, which stands for smaller ones, too
MAX_FAST_EVEN = 4  # the longest even kernel for which cuDNN is as fast as for odd ones
IMAGE_CHANNELS = 4  # data with at most this many channels is an image

PRODUCTS = ("dense", "dense_last", "depthwise", "depthwise_slow")  # constants per multiplication
MEASURED_CHANNELS_LAST = ("native", "full", "slice", "concat", "kernel")  # strategies
Counts = Mapping[str, float]  # name of a constant -> how often it is spent


@dataclass(frozen=True)
class GpuCosts:
    """Nanoseconds per operator, per copied element, or per multiplication and addition.

    >>> GPU_COSTS.pad < GPU_COSTS.crop < GPU_COSTS.gather
    True
    """

    operator: float = 7.5e3  #: for each operator
    pad: float = 0.003  #: MXNet's pad operator
    pad_back: float = 0.004  #: its backward pass
    crop: float = 0.007  #: slice or flip an array
    crop_back: float = 0.0065  #: its backward pass
    crop_last: float = 0.015  #: `crop` with channels last
    image: float = 0.0  #: in addition, per element cropped from a convolution of an image
    image_back: float = 0.064  #: its backward pass
    concat: float = 0.005  #: concatenate a few elements to an axis
    concat_back: float = 0.01  #: its backward pass
    gather: float = 0.018  #: transpose, copy rows, transpose back
    dense: float = 2.7e-5  #: per multiplication of a convolution
    dense_last: float = 1.7e-5  #: the same with channels last
    depthwise: float = 0.001  #: per multiplication of a depthwise convolution along one or two axes
    depthwise_slow: float = 0.18  #: the same along three axes, by cuDNN
    pooling: float = 0.0002  #: per element of a pooling window
    longer: float = 2e4  #: in addition, for an operator whose kernel is lengthened with zeros
    even: float = 1.2  #: a factor for multiplications with an even kernel longer than `MAX_FAST_EVEN`


GPU_COSTS = GpuCosts()


def estimate(plan: Plan, layer: CostLayer, costs: GpuCosts = GPU_COSTS) -> float:
    """Returns the nanoseconds of an operator on a GPU with a plan, to compare plans for the same windows.

    >>> from mxsame.plan import Window
    >>> from mxsame.plan.costs import Workload
    >>> layer = CostLayer([Window(56, 5, 2)], Workload("conv", 32, 64, 128, device="gpu"))
    >>> padded, longer = Plan((AxisPlan(5, pad_operator=(1, 2)),)), Plan((AxisPlan(6, kernel_zeros=(1, 0), pad=2),))
    >>> estimate(padded, layer) < estimate(longer, layer)
    True
    """
    counts = [_operator(plan, layer, costs), *(STEP_COUNTS[type(step)](step, layer) for step in plan.steps)]
    if plan.pads_data and layer.work.operator == "avg" and any(window.kernel_size > 2 for window in layer.windows):
        # The average is divided by the average of ones (1 channel), which runs the same operators.
        operators = sum(each.get("operator", 0) for each in counts)
        counts.append({"operator": operators + DIVISOR_CALLS, "pad": 2 * layer.output_elements})
    return sum(_time(each, layer, costs) for each in counts)


def _time(counts: Counts, layer: CostLayer, costs: GpuCosts) -> float:
    """Returns the nanoseconds of counts, in training including those of the backward pass."""
    per_count = {name: getattr(costs, name) + (_backward(name, costs) if layer.is_training else 0) for name in counts}
    return float(sum(per_count[name] * count for name, count in counts.items()))


def _backward(name: str, costs: GpuCosts) -> float:
    """Returns the constant of the backward pass: NAME_back if there is one, else that of the forward pass. For
    multiplications it is twice that, since both the data and the weight have gradients."""
    default = getattr(costs, name) * (2 if name in PRODUCTS else 1)
    return float(getattr(costs, f"{name}_back", default))


# -- counts of the steps

DIVISOR_CALLS = 5
DYNAMIC_CONCAT_CALLS, DILATE_CALLS, CONCAT_CALLS = 12, 6, 4  # for each axis


def _slice_counts(elements: float, layer: CostLayer) -> Counts:
    """Returns the counts of a slice that copies so many elements."""
    is_image = layer.work.operator == "conv" and layer.in_channels <= IMAGE_CHANNELS
    name = "crop_last" if layer.work.channels_last else "crop"
    return {"operator": 1, name: elements, "image": elements * is_image}


def _flip(step: recipe.Flip, layer: CostLayer) -> Counts:
    return {"operator": 4, "crop": layer.input_elements + layer.output_elements}


def _dilate(step: recipe.Dilate, layer: CostLayer) -> Counts:
    """For each axis in turn, zeros are created, the elements are concatenated with them, and the result is cropped."""
    elements, copied = float(layer.input_elements), 0.0
    for stride in step.values.values():
        elements *= stride
        copied += 3 * elements
    return {"operator": DILATE_CALLS * len(step.axes), "concat": copied}


def _concat(step: recipe.Concat, layer: CostLayer) -> Counts:
    return {"operator": CONCAT_CALLS * len(step.axes), "concat": len(step.axes) * layer.input_elements}


def _dynamic_concat(step: recipe.DynamicConcat, layer: CostLayer) -> Counts:
    operators = LOW_CALLS + AXIS_CALLS + DYNAMIC_CONCAT_CALLS
    return {"operator": operators * len(step.axes), "concat": len(step.axes) * layer.input_elements}


def _pad(step: recipe.Pad, layer: CostLayer) -> Counts:
    """A second axis is added to 1-D data and removed again: two more copies. A fifth axis is added to a channels-last
    input: one more copy. For other channels-last data that needs no copy."""
    copies = 3 if layer.rank == 1 else 1 + bool(layer.work.channels_last and layer.work.plain)
    return {"operator": copies, "pad": copies * layer.input_elements}


def _gather(step: recipe.Gather, layer: CostLayer) -> Counts:
    return {"operator": GATHER_CALLS * len(step.axes), "gather": len(step.axes) * layer.input_elements}


def _one_hot(step: Any, layer: CostLayer, elements: float) -> Counts:
    """Returns the counts of a depthwise convolution that moves elements."""
    products = elements * math.prod(one.length for one in step.values.values())
    operators = ONE_HOT_CALLS + (LOW_CALLS + AXIS_CALLS) * len(step.axes)
    return {"operator": operators, _depthwise(layer): products}


def _depthwise(layer: CostLayer) -> str:
    """Returns the name of the constant of a depthwise convolution. MXNet has its own kernel for 2-D data. For 1-D data,
    only one-hot kernels were measured, which took no longer."""
    return "depthwise" if layer.rank < 3 else "depthwise_slow"


def _pad_kernel(step: recipe.PadKernel, layer: CostLayer) -> Counts:
    """In a deployed net, the longer kernel is computed in advance."""
    if layer.work.purpose == "deployment":
        return {}
    return {"operator": CONCAT_CALLS * len(step.axes), "concat": len(step.axes) * layer.weight_elements}


def _crop(step: recipe.Crop, layer: CostLayer) -> Counts:
    """A crop of dynamic shape needs operators that compute its length, and copies once more."""
    static, dynamic = step.has_static_part, bool(step.dynamic_axes)
    return {**_slice_counts((static + dynamic) * layer.output_elements, layer), "operator": static + 4 * dynamic}


STEP_COUNTS: Dict[Type[PlanStep[Any]], Callable[[Any, CostLayer], Counts]] = {
    recipe.Flip: _flip,
    recipe.Dilate: _dilate,
    recipe.Concat: _concat,
    recipe.DynamicConcat: _dynamic_concat,
    recipe.Pad: _pad,
    recipe.Gather: _gather,
    recipe.Shift: lambda step, layer: _one_hot(step, layer, layer.input_elements),
    recipe.PadKernel: _pad_kernel,
    recipe.Crop: _crop,
    recipe.Pick: lambda step, layer: _one_hot(step, layer, layer.output_elements),
}


# -- counts of MXNet's operator


def _operator(plan: Plan, layer: CostLayer, costs: GpuCosts) -> Counts:
    """Returns the counts of MXNet's operator itself, with the plan's kernel and number of outputs."""
    work, kernel = layer.work, math.prod(axis.kernel_size for axis in plan.axes)
    positions: int = math.prod(map(_positions, plan.axes, layer.windows, layer.size, layer.output_size))
    if not layer.is_convolution:
        return {"operator": 1, "pooling": layer.batch * layer.in_channels * positions * kernel}
    group_channels = max(layer.in_channels // work.groups, 1)
    products: float = layer.batch * layer.channels * group_channels * positions * kernel
    counts = {"operator": 1, "longer": any(any(axis.kernel_zeros) for axis in plan.axes)}
    if group_channels == 1 and work.groups > 1:
        return {**counts, _depthwise(layer): products}
    if any(_is_long_and_even(axis) for axis in plan.axes):
        products *= costs.even
    if work.operator == "transposed" and not plan.dilates_input:
        products *= max(TRANSPOSED_TILE / max(layer.channels // work.groups, MIN_TRANSPOSED_CHANNELS), 1)
    return {**counts, "dense_last" if work.channels_last else "dense": products * max(TILE / group_channels, 1)}


def _is_long_and_even(axis: AxisPlan) -> bool:
    """Returns whether zeros lengthen a kernel to a length for which cuDNN has no fast algorithm."""
    return any(axis.kernel_zeros) and axis.kernel_size % 2 == 0 and axis.kernel_size > MAX_FAST_EVEN


def _positions(axis: AxisPlan, window: AnyWindow, size: int, outputs: int) -> int:
    """Returns the number of positions of the kernel along an axis; in a transposed convolution, that is the number of
    elements of the data."""
    if isinstance(window, TransposedWindow):
        return outputs if axis.dilate else size
    return axis.computed_outputs(size, outputs)
