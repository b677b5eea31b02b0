"""Transposed convolutions: the gradient of a convolution's data, as an operator of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Tuple

from mxsame import tensors, validation
from mxsame._mxnet import mx
from mxsame.onednn_blocks import SMALLEST
from mxsame.ops._call import FORMAT_STRATEGIES, apply, choose_plan
from mxsame.ops._conv import Convolution
from mxsame.ops._inputs import Inputs, canonical, channel_count
from mxsame.plan import strategies_for
from mxsame.plan.costs import Workload
from mxsame.plan.windows import Windows, make_transposed_windows_unchecked
from mxsame.scope import Target
from mxsame.tensors import operands
from mxsame.types import Ints, Layout, Padding
from mxsame.validation import Shape

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
      the start; :func:`mxsame.padding.transposed_crops` has the source.
    - "valid": (n-1)s + max(ke, s), and (n-1)s + ke + output_padding.
    - Explicit pads are cropped: (n-1)s + ke - low - high + output_padding.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        (N, I, \\*size), or (N, \\*size, I) with a layout that ends in C. float32 or float64 on the CPU.
    weight : same kind as data
        (I, channels/groups, \\*k) with channels first, (I, \\*k, channels/groups) with channels last.
    bias : same kind as data, optional
        (channels,).
    channels, kernel_size : int, int or sequence of ints; optional if the weight's shape is known
    strides, dilation : int or one int per axis
    padding : "same", "valid", "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is the rule of keras-mxnet 2.2.4.3, not TensorFlow's, for networks trained in it: it crops as
        many elements as "same", half of them, rounded up, from the start.
    output_padding : int or one int per axis, optional
        Less than the stride. None is not 0, see above.
    groups : int
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default

    Returns
    -------
    Of the kind of `data`: (N, channels, \\*out) or (N, \\*out, channels).

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, shapes that do not fit together, and pads that leave nothing of the output.

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


class TransposedSpec(NamedTuple):
    """The arguments of `conv_transpose`, and whether the weight is computed."""

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
        return canonical(self, rank)._replace(padding=validation.padding(self.padding, rank))

    def windows(self, size: Shape) -> Windows:
        """Returns the windows of a checked spec with a kernel size, for data of this size."""
        rule = self.kernel_size, self.strides, self.dilation, self.padding, self.output_padding
        return make_transposed_windows_unchecked(size, *rule)

    def lower(self, inputs: Inputs) -> Convolution:
        """Returns the recipe of MXNet's Deconvolution, or of its Convolution of dilated data, for a checked spec."""
        spec, in_channels = self.completed(inputs)
        windows = spec.windows(inputs.size)
        work = inputs.work(windows, "transposed", in_channels, channels=spec.channels, groups=spec.groups)
        reorders = _reorders_weight(windows, inputs.target)
        refused = _refused(inputs, windows, work, reorders, spec.is_computed)
        if spec.groups > 1 or "slice" in refused:
            inputs, work = inputs._replace(native_layout=False), replace(work, channels_last=False)
        # In a graph for another format shapes are inferred, and MXNet has no dilation in 3-D.
        dilates = len(windows) == 3 and any(window.dilation > 1 for window in windows)
        plan = choose_plan(inputs, windows, work, refused, ("dilate",) if dilates else FORMAT_STRATEGIES)
        return Convolution.of(inputs, windows, work, plan, copies_weight=reorders)

    def completed(self, inputs: Inputs) -> Tuple[TransposedSpec, Optional[int]]:
        """Returns the spec with missing arguments taken from the arrays, and the channels of the data."""
        axes = {"data channels": inputs.shape[1], "channels / groups": None}
        kernel_size, first, second = inputs.check_weight(self.kernel_size, axes)
        in_channels = inputs.shape[1] or first or inputs.graph_channels()
        if in_channels is not None:
            validation.check_divisible("data channels", in_channels, "groups", self.groups)
        actual, source = second and second * self.groups, "the weight's second length times groups"
        channels = channel_count("channels", self.channels, source, actual, "weight")
        return self._replace(kernel_size=kernel_size, channels=channels), in_channels


def _reorders_weight(windows: Windows, target: Target) -> bool:
    """Returns whether oneDNN leaves the weight, at inference, in an order that follows from the size, and fails for
    another size: with strides above 2. It does not reorder the weight itself if it is given a copy."""
    infers = target.is_for_both or target.purpose == "inference"
    return infers and target.device != "gpu" and any(window.stride > 2 for window in windows)


def _refused(inputs: Inputs, windows: Windows, work: Workload, reorders: bool, is_computed: bool) -> Tuple[str, ...]:
    """Returns the strategies that are not exact, or do not run, on the device.

    MXNet's own Deconvolution is wrong if it has strides and dilation, and has no dilation in 3-D. oneDNN's, on the CPU,
    cannot pass on the gradient of a computed weight, has nothing but float32 in 3-D, and cannot be trained with one
    output channel in each group after a layer whose output is in blocks, nor in the bfloat16 of `mxnet.contrib.amp`.
    """
    target, weight, rank = inputs.target, inputs.arrays[1], len(windows)
    dilated, on_gpu = any(window.dilation > 1 for window in windows), target.device == "gpu"
    wrong = dilated and (any(window.stride > 1 for window in windows) or rank == 3)
    if not on_gpu:
        wrong = wrong or inputs.channels_last or is_computed or not tensors.is_input(weight)
        wrong = wrong or (rank == 3 and tensors.known_type(weight) != "float32")
        in_blocks = work.in_channels is None or work.in_channels // work.groups >= SMALLEST
        one_output = work.channels == work.groups
        untrainable = reorders or (one_output and in_blocks) or operands.amp_type() is not None
        wrong = wrong or (target.has_gradients and untrainable)
    if wrong:
        return tuple(name for name in strategies_for("transposed") if name != "dilate")
    # A longer kernel is a computed weight.
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
