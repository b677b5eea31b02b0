"""Transposed convolutions: the gradient of a convolution's data, as an operator of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Optional, Tuple

from mxsame import operands, tensors, validation
from mxsame._mxnet import mx
from mxsame.building import current
from mxsame.ops._geometry import Geometry, Planned, apply, channel_count
from mxsame.ops._lowering import Lowering
from mxsame.ops.conv import convolution
from mxsame.plan import arrays, make_transposed_windows, strategies_for
from mxsame.planner import Work

ONE_BLOCK = 8  # channels; oneDNN keeps the weights of as many or more in blocks


def conv_transpose(
    data: Any,
    weight: Any,
    bias: Any = None,
    *,
    channels: Optional[int] = None,
    kernel_size: Any = None,
    strides: Any = 1,
    padding: Any = "same",
    output_padding: Any = None,
    dilation: Any = 1,
    groups: int = 1,
    layout: Optional[str] = None,
) -> Any:
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
    args = operands.classic(data=data, weight=weight, bias=bias)
    arguments = channels, kernel_size, strides, padding, output_padding, dilation, groups, layout
    return apply(_plan_conv_transpose, args, _is_computed(weight), *arguments)


def _plan_conv_transpose(args: operands.Operands, *arguments: Any) -> Planned:
    is_computed, channels, kernel_size, strides, padding, output_padding, dilation, groups, layout = arguments
    groups = validation.integer("groups", groups, 1)
    geometry = Geometry.of(args, layout, "kernel_size", kernel_size)
    rank = geometry.rank
    axes = {"data channels": geometry.shape[1], "channels / groups": None}
    shape, kernel_size = geometry.kernel("weight", kernel_size, axes)
    in_channels = geometry.shape[1] or shape[0] or geometry.graph_channels()
    if in_channels is not None:
        validation.divisible("data channels", in_channels, "groups", groups)
    actual = None if shape[1] is None else shape[1] * groups
    channels = channel_count("channels", channels, "the weight's second length times groups", actual, "weight")
    validation.divisible("channels", channels, "groups", groups)
    geometry.check_bias(channels)
    windows = make_transposed_windows(
        geometry.size,
        kernel_size,
        validation.per_axis("strides", strides, rank, 1),
        validation.per_axis("dilation", dilation, rank, 1),
        validation.padding(padding, rank),
        None if output_padding is None else validation.per_axis("output_padding", output_padding, rank, 0),
    )
    geometry.check_windows("transposed", channels, windows)
    work = Work("transposed", in_channels=in_channels, channels=channels, groups=groups)
    reorders = _reorders_weight(geometry, windows)
    refused = _refused(geometry, is_computed, work, windows, reorders)
    if groups > 1 or "slice" in refused:
        geometry = replace(geometry, native_last=False)

    def operator(lowering: Lowering, layout: dict) -> Callable:
        def kernel(weight: Any, channels: int, data: Any) -> Any:
            if lowering.plan.dilates:
                return _flipped(lowering.F, weight, groups, rank)
            weight = arrays.rewritten(lowering.F, weight) if reorders else weight
            return lowering.kernel(weight, channels, data)

        name = "Convolution" if lowering.plan.dilates else "Deconvolution"
        return convolution(geometry, work, lowering, layout, kernel, name)

    return geometry.planned(windows, work, operator, weight_shape=args.shapes[1], refused=refused)


def _reorders_weight(geometry: Geometry, windows: tuple) -> bool:
    """Whether oneDNN leaves the weight, at inference, in an order that follows from the size, and fails for another
    size: with strides above 2. It does not reorder the weight itself if it is given a copy."""
    use = tensors.use_of(geometry.data)
    return use.purpose in (None, "inference") and use.device != "gpu" and any(w.stride > 2 for w in windows)


def _refused(geometry: Geometry, is_computed: bool, work: Work, windows: tuple, reorders: bool) -> Tuple[str, ...]:
    """The strategies that are not exact, or do not run, on the device.

    MXNet's own Deconvolution is wrong if it has strides and dilation, and has no dilation in 3-D. oneDNN's, on the CPU,
    cannot pass on the gradient of a computed weight, has nothing but float32 in 3-D, and cannot be trained with one
    output channel in each group after a layer whose output is in blocks.
    """
    if current().windows_noted:  # nothing runs; but a shape is inferred
        return _others_than_dilate() if geometry.rank == 3 and any(window.dilation > 1 for window in windows) else ()
    use = tensors.use_of(geometry.data)
    on_gpu = use.device == "gpu"
    dilated = any(window.dilation > 1 for window in windows)
    wrong = dilated and (any(window.stride > 1 for window in windows) or geometry.rank == 3)
    if not on_gpu:
        wrong = wrong or geometry.channels_last or is_computed
        wrong = wrong or (geometry.rank == 3 and tensors.known_type(geometry.args.arrays[1]) != "float32")
        in_blocks = work.in_channels is None or work.in_channels // work.groups >= ONE_BLOCK
        one_output = work.channels == work.groups
        wrong = wrong or (use.gradients and (reorders or (one_output and in_blocks)))
    if wrong:
        return _others_than_dilate()
    return () if on_gpu or use.purpose == "deployment" else ("kernel",)  # a longer kernel is a computed weight


def _others_than_dilate() -> Tuple[str, ...]:
    return tuple(name for name in strategies_for("transposed") if name != "dilate")


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


def _flipped(F: Any, weight: Any, groups: int, rank: int) -> Any:
    r"""(I, O/g, \*k) -> (O, I/g, \*k), every kernel flipped; a shape can be inferred through it."""
    weight = arrays.reversed_kernel(F, weight, range(2, 2 + rank))
    if groups == 1:
        return F.transpose(weight, axes=(1, 0, *range(2, 2 + rank)))
    weight = F.reshape(weight, shape=(-4, groups, -1, -2))
    weight = F.transpose(weight, axes=(0, 2, 1, *range(3, 3 + rank)))
    return F.reshape(arrays.rewritten(F, weight), shape=(-3, -2))
