"""Transposed convolutions: the gradient of a convolution's data, as an operator of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Tuple

from mxsame import operands, tensors, validation
from mxsame._mxnet import mx
from mxsame.ops._call import run
from mxsame.ops._conv import Convolution, ConvRequest
from mxsame.ops._request import Request, canonical, channel_count
from mxsame.plan import Plan, make_transposed_windows, strategies_for
from mxsame.plan.windows import Windows
from mxsame.validation import Shape

if TYPE_CHECKING:
    from mxsame._mxnet import Array

ONE_BLOCK = 8  # channels; oneDNN keeps the weights of as many or more in blocks


@validation.check_arguments
def conv_transpose(
    data: Array,
    weight: Array,
    bias: Optional[Array] = None,
    *,
    channels: Optional[int] = None,
    kernel_size: Any = None,
    strides: Any = 1,
    padding: Any = "same",
    output_padding: Any = None,
    dilation: Any = 1,
    groups: int = 1,
    layout: Optional[str] = None,
) -> Array:
    """Transposed convolution in 1, 2 or 3 dimensions, with TensorFlow's SAME by default.

    Per axis, the full extent is (n-1)s + ke. The number of outputs, without and with `output_padding`:

    - "same": n*s, and (n-1)s + ke - 2(ke//2) + output_padding. Half of the cropped elements, rounded down, come from
      the start; :func:`mxsame.padding.transposed_cuts` has the source.
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
    call = TransposedCall(*window, channels, groups, _is_computed(weight))
    return run(call, data=data, weight=weight, bias=bias)


class TransposedCall(NamedTuple):
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
    input_size: Any = None  # what is cropped does not follow from it

    def checked(self, rank: int) -> TransposedCall:
        """The call with its arguments in canonical form, for so many axes."""
        return canonical(self, rank)._replace(padding=validation.padding(self.padding, rank))

    def windows(self, size: Shape) -> Windows:
        """The windows of a checked call with a kernel size, for data of this size."""
        rule = self.kernel_size, self.strides, self.dilation, self.padding, self.output_padding
        return make_transposed_windows(size, *rule)

    def request(self, args: operands.Operands) -> Request:
        """What is asked of MXNet for these arrays."""
        return TransposedRequest(args, self)


class TransposedRequest(ConvRequest):
    """A transposed convolution. If oneDNN `reorders` the weight, it is given a copy."""

    kind = "transposed"

    def __init__(self, args: operands.Operands, call: TransposedCall):
        super().__init__(args, call)
        self.reorders = self._reorders_weight()
        self.refused = self._not_exact()
        self.native_last = self.native_last and "slice" not in self.refused
        if self.rank == 3 and any(window.dilation > 1 for window in self.windows):
            self.noted_strategies = ("dilate",)  # nothing runs; but a shape is inferred, and MXNet has no dilation here

    def complete(self) -> Optional[int]:
        """Take what the call lacks from the arrays; the channels of the data."""
        groups = self.call.groups
        first, second, *_ = self.kernel({"data channels": self.shape[1], "channels / groups": None})
        in_channels = self.shape[1] or first or self.graph_channels()
        if in_channels is not None:
            validation.divisible("data channels", in_channels, "groups", groups)
        actual, source = second and second * groups, "the weight's second length times groups"
        channels = channel_count("channels", self.call.channels, source, actual, "weight")
        self.call = self.call._replace(channels=channels)
        return in_channels

    def operator(self, plan: Plan, note: Optional[str] = None) -> Convolution:
        """MXNet's Deconvolution by a plan, or its Convolution of dilated data."""
        if plan.dilates:
            return self.convolution("Convolution", plan, note, flips=True)
        return self.convolution("Deconvolution", plan, note, rewrites=self.reorders)

    def _reorders_weight(self) -> bool:
        """Whether oneDNN leaves the weight, at inference, in an order that follows from the size, and fails for another
        size: with strides above 2. It does not reorder the weight itself if it is given a copy."""
        infers = self.target.is_for_both or self.target.purpose == "inference"
        return infers and self.target.device != "gpu" and any(window.stride > 2 for window in self.windows)

    def _not_exact(self) -> Tuple[str, ...]:
        """The strategies that are not exact, or do not run, on the device.

        MXNet's own Deconvolution is wrong if it has strides and dilation, and has no dilation in 3-D. oneDNN's, on the
        CPU, cannot pass on the gradient of a computed weight, has nothing but float32 in 3-D, and cannot be trained
        with one output channel in each group after a layer whose output is in blocks.
        """
        work, on_gpu = self.work, self.target.device == "gpu"
        dilated = any(window.dilation > 1 for window in self.windows)
        wrong = dilated and (any(window.stride > 1 for window in self.windows) or self.rank == 3)
        if not on_gpu:
            is_computed = self.call.is_computed or not tensors.is_input(self.args.arrays[1])
            wrong = wrong or self.channels_last or is_computed
            wrong = wrong or (self.rank == 3 and tensors.known_type(self.args.arrays[1]) != "float32")
            in_blocks = work.in_channels is None or work.in_channels // work.groups >= ONE_BLOCK
            one_output = work.channels == work.groups
            wrong = wrong or (self.target.has_gradients and (self.reorders or (one_output and in_blocks)))
        if wrong:
            return tuple(name for name in strategies_for("transposed") if name != "dilate")
        # A longer kernel is a computed weight.
        return () if on_gpu or self.target.purpose == "deployment" else ("kernel",)


def _is_computed(weight: Any) -> bool:
    """Whether a gradient would flow through the weight to something before it."""
    if isinstance(weight, mx.sym.Symbol):
        return weight.get_children() is not None
    if not mx.autograd.is_recording() or weight.grad is not None:
        return False
    try:
        return mx.autograd.get_symbol(weight).get_children() is not None
    except mx.base.MXNetError:  # never recorded: a constant
        return False
