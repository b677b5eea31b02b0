"""Transposed convolutions: the gradient of a convolution with respect to its input, as an operator of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional, Tuple

from mxsame import tensors, validation
from mxsame._mxnet import mx
from mxsame.onednn_blocks import MIN_BLOCK
from mxsame.ops._call import FORMAT_STRATEGIES, apply, choose_plan
from mxsame.ops._conv import Convolution
from mxsame.ops._inputs import Inputs, Spec, WeightAxis, channel_count
from mxsame.plan.costs import Workload
from mxsame.plan.exact import strategies_for
from mxsame.plan.windows import Windows, make_transposed_windows
from mxsame.scope import Target
from mxsame.tensors import operands
from mxsame.types import Ints, Layout, Padding
from mxsame.validation import PartialShape

if TYPE_CHECKING:
    from mxsame._mxnet import Array


@validation.check_arguments
def conv_transpose(
    data: Array,
    weight: Array,
    bias: Optional[Array] = None,
    *,
    channels: Optional[int] = None,
    kernel_size: Optional[Ints] = None,
    strides: Ints = 1,
    padding: Padding = "same",
    output_padding: Optional[Ints] = None,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Optional[Layout] = None,
) -> Array:
    """Compute a transposed convolution in 1, 2 or 3 dimensions, with TensorFlow's SAME by default.

    Per axis, the full extent is (n-1)s + ke. The number of outputs, without and with `output_padding`:

    - "same": n*s, and (n-1)s + ke - 2(ke//2) + output_padding. Half of the cropped elements, rounded down, come from
      the start; see :func:`mxsame.padding.transposed_crops`.
    - "valid": (n-1)s + max(ke, s), and (n-1)s + ke + output_padding.
    - Explicit pads are cropped: (n-1)s + ke - low - high + output_padding.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, I, *size)`, or `(N, *size, I)` if `layout` has channels last. On the CPU, only float32 and float64.
    weight : same kind as data
        `(I, channels/groups, *k)` with channels first, `(I, *k, channels/groups)` with channels last.
    bias : same kind as data, optional
        (channels,).
    channels : int, optional if the weight's shape is known
    kernel_size : int or one int per axis, optional if the weight's shape is known
    strides, dilation : int or one int per axis
    padding : "same", "valid", "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is the rule of keras-mxnet 2.2.4.3, not TensorFlow's, for networks trained in it: it crops as
        many elements as "same", half of them, rounded up, from the start.
    output_padding : int or one int per axis, optional
        Less than the stride. None (see above) differs from 0.
    groups : int
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default

    Returns
    -------
    Same kind as `data`: `(N, channels, *out)` or `(N, *out, channels)`.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, shapes that do not fit together, and pads that crop the whole output.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> out = mxsame.ops.conv_transpose(nd.array([[[1, 10]]]), nd.array([[[1, 2, 3]]]), strides=2)
    >>> out.asnumpy().ravel().tolist()
    [1.0, 2.0, 13.0, 20.0]
    """
    window = kernel_size, strides, padding, output_padding, dilation, layout
    spec = TransposedSpec(*window, channels, groups, _is_computed(weight))
    return apply(spec, data=data, weight=weight, bias=bias)


@dataclass
class TransposedSpec(Spec):
    """The arguments of `conv_transpose`, and whether the weight is the output of another operator."""

    kernel_size: Any = None
    strides: Any = 1
    padding: Any = "same"
    output_padding: Any = None
    dilation: Any = 1
    layout: Any = None
    channels: Any = None
    groups: Any = 1
    is_computed: bool = False

    def checked(self, rank: int) -> TransposedSpec:
        """Returns the spec with its arguments in canonical form, for this number of axes."""
        return replace(super().checked(rank), padding=validation.padding(self.padding, rank))

    def windows(self, size: PartialShape) -> Windows:
        """Returns the windows of a checked spec with a kernel size, for data of this size."""
        rule = self.kernel_size, self.strides, self.dilation, self.padding, self.output_padding
        return make_transposed_windows(size, *rule)

    def lower(self, inputs: Inputs) -> Convolution:
        """Returns the recipe of MXNet's Deconvolution, or of its Convolution of dilated data, for a checked spec."""
        spec, in_channels = self.completed_by(inputs)
        windows = spec.windows(inputs.size)
        inputs.check_output(windows, "transposed", spec.channels, spec.groups)
        work = inputs.workload("transposed", in_channels, channels=spec.channels, groups=spec.groups)
        reorders = _reorders_weight(windows, inputs.target)
        excluded = _excluded(inputs, windows, work, reorders, spec.is_computed)
        if spec.groups > 1 or "slice" in excluded:
            inputs, work = replace(inputs, runs_channels_last=False), replace(work, channels_last=False)
        # In a graph for another format shapes are inferred, and MXNet has no dilation in 3-D.
        dilates = len(windows) == 3 and any(window.dilation > 1 for window in windows)
        plan = choose_plan(inputs, windows, work, excluded, ("dilate",) if dilates else FORMAT_STRATEGIES)
        return Convolution.of(inputs, windows, work, plan, copies_weight=reorders and not plan.dilates_input)

    def completed_by(self, inputs: Inputs) -> Tuple[TransposedSpec, Optional[int]]:
        """Returns the spec with missing arguments taken from the arrays, and the channels of the data."""
        axes = WeightAxis("data channels", inputs.shape[1]), WeightAxis("channels / groups")
        first, second, *kernel_size = inputs.weight_shape(self.kernel_size, *axes)
        in_channels = inputs.shape[1] or first or inputs.infer_in_channels()
        if in_channels is not None:
            validation.check_divisible("data channels", in_channels, "groups", self.groups)
        length = second and second * self.groups
        channels = channel_count("channels", self.channels, "the weight's second length times groups", length, "weight")
        return replace(self, kernel_size=tuple(kernel_size), channels=channels), in_channels


def _reorders_weight(windows: Windows, target: Target) -> bool:
    """Returns whether oneDNN reorders the weight in place, at inference and with strides above 2, into a layout that
    depends on the data's size, and then fails for another size. A copy of the weight prevents that."""
    infers = target.for_both_purposes or target.purpose == "inference"
    return infers and target.device != "gpu" and any(window.stride > 2 for window in windows)


def _excluded(inputs: Inputs, windows: Windows, work: Workload, reorders: bool, is_computed: bool) -> Tuple[str, ...]:
    """Returns the strategies that are not exact, or do not run, on the device.

    MXNet's own Deconvolution is wrong if it has strides and dilation, and has no dilation in 3-D. On the CPU, oneDNN's

    - does not propagate a gradient to a computed weight;
    - supports only float32 in 3-D;
    - cannot be trained with one output channel per group if its input is in blocks, with a weight that it reorders, or
      in the types of `mxnet.contrib.amp`.
    """
    target, weight, rank = inputs.target, inputs.arrays[1], len(windows)
    dilated, on_gpu = any(window.dilation > 1 for window in windows), target.device == "gpu"
    has_wrong_values = dilated and (any(window.stride > 1 for window in windows) or rank == 3)
    has_computed_weight = inputs.channels_last or is_computed or not tensors.is_input(weight)
    is_unsupported = rank == 3 and tensors.known_type(weight) != "float32"
    in_blocks = work.in_channels is None or work.in_channels // work.groups >= MIN_BLOCK
    is_untrainable = reorders or (work.channels == work.groups and in_blocks) or operands.amp_type() is not None
    fails = has_computed_weight or is_unsupported or (target.has_gradients and is_untrainable)
    if has_wrong_values or (fails and not on_gpu):
        return tuple(name for name in strategies_for("transposed") if name != "dilate")
    # "kernel" adds zeros to the weight, which makes it a computed one.
    return () if on_gpu or target.purpose == "deployment" else ("kernel",)


def _is_computed(weight: Any) -> bool:
    """Returns whether a gradient would flow through the weight to something before it."""
    if isinstance(weight, mx.sym.Symbol):
        return weight.get_children() is not None
    if not isinstance(weight, mx.nd.NDArray) or not mx.autograd.is_recording() or weight.grad is not None:
        return False
    try:
        return mx.autograd.get_symbol(weight).get_children() is not None
    except mx.base.MXNetError:  # never recorded: a constant
        return False
