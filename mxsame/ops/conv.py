"""Convolutions: plain, grouped, depthwise and separable, of any rank."""

from __future__ import annotations

from typing import Any, Optional

from mxsame import padding as arithmetic
from mxsame import plan as planning
from mxsame import validation
from mxsame.ops import _arguments, _arrays, _run
from mxsame.planner import Work


def conv(
    data: Any,
    weight: Any,
    bias: Any = None,
    *,
    channels: Optional[int] = None,
    kernel_size: Any = None,
    strides: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    groups: int = 1,
    layout: Optional[str] = None,
    input_size: Any = None,
) -> Any:
    """Convolution in 1, 2 or 3 dimensions, with TensorFlow's SAME by default.

    Per axis, out = ceil(n/s) for "same", where P = max((out-1)s + ke - n, 0) zeros are put around the data, P//2
    before it and the rest, the odd cell among them, behind it; see :func:`mxsame.padding.same_pads` for the source.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        (N, C, \\*size), or (N, \\*size, C) with a layout that ends in C. float32 or float64 on the CPU.
    weight : same kind as data
        (channels, C/groups, \\*k) with channels first, (channels, \\*k, C/groups) with channels last.
    bias : same kind as data, optional
        (channels,).
    channels, kernel_size : int, int or sequence of ints; optional where the weight's shape is known
    strides, dilation : int or one int per axis
    padding : "same", "valid", "causal" (1-D), "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is not TensorFlow's rule but that of keras-mxnet 2.2.4.3, for networks trained in it: the odd cell
        stands at the begin, see :func:`mxsame.padding.keras_mxnet_pads`; and along the third axis an even kernel of
        stride 1 gives n + 1 outputs, see :func:`mxsame.padding.by_axis`.
    groups : int
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default
    input_size : int or one int per axis, optional
        The spatial size of a Symbol. Without it the graph serves every size.

    Returns
    -------
    Of the kind of `data`: (N, channels, \\*out) or (N, \\*out, channels).

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, shapes that do not fit together, and an input shorter than the kernel with "valid".

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> data = nd.arange(5).reshape((1, 1, 5))
    >>> mxsame.ops.conv(data, nd.ones((1, 1, 2)), strides=2).asnumpy().ravel().tolist()
    [1.0, 5.0, 4.0]
    """
    groups = validation.integer("groups", groups, 1)
    args = _arrays.classic(data=data, weight=weight, bias=bias)
    _arrays.forbid_float16_on_cpu(args.arrays[0], "convolution")
    geometry = _arguments.geometry(args, layout, "kernel_size", kernel_size, input_size)
    in_channels = geometry.data_shape[1]
    if in_channels is not None:
        validation.divisible("data channels", in_channels, "groups", groups)
    kernel = _arguments.kernel(
        args,
        1,
        "weight",
        geometry,
        kernel_size,
        (None, None if in_channels is None else in_channels // groups),
        "(channels, data channels / groups, *kernel_size)"
        if not geometry.channels_last
        else "(channels, *kernel_size, data channels / groups)",
    )
    channels = _arguments.count("channels", channels, "the weight's first length", kernel.shape[0])
    if channels is None:
        raise ValueError("channels must be given where the weight's shape is unknown; received channels=None")
    validation.divisible("channels", channels, "groups", groups)
    _arguments.check_bias(args, 2, channels)
    share = kernel.shape[1]
    in_channels = _arguments.graph_channels(geometry) if share is None else share * groups
    work = Work("conv", in_channels=in_channels, channels=channels, groups=groups)
    return _convolution(args, geometry, kernel.size, strides, padding, dilation, work)


def depthwise_conv(
    data: Any,
    weight: Any,
    bias: Any = None,
    *,
    in_channels: Optional[int] = None,
    depth_multiplier: Optional[int] = None,
    kernel_size: Any = None,
    strides: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    layout: Optional[str] = None,
    input_size: Any = None,
) -> Any:
    """Depthwise convolution: every channel c has m kernels of its own and gives the outputs c*m .. c*m + m - 1.

    Arguments are those of :func:`conv`, but for these:

    Parameters
    ----------
    weight : same kind as data
        (C*m, 1, \\*k) with channels first, (C*m, \\*k, 1) with channels last; m is the depth multiplier.
    bias : same kind as data, optional
        (C*m,).
    in_channels : int, optional where the data's channels are known
        C; a graph needs it to be built.
    depth_multiplier : int, optional where the weight's shape is known
        m.

    Returns
    -------
    (N, C*m, \\*out) or (N, \\*out, C*m).

    Raises
    ------
    TypeError, ValueError
        As :func:`conv`, and where `in_channels` or `depth_multiplier` is unknown.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> data, weight = nd.ones((1, 2, 4)), nd.array([[[1, 1, 1]], [[2, 2, 2]]])
    >>> mxsame.ops.depthwise_conv(data, weight, strides=2).asnumpy().tolist()
    [[[3.0, 2.0], [6.0, 4.0]]]
    """
    args = _arrays.classic(data=data, weight=weight, bias=bias)
    _arrays.forbid_float16_on_cpu(args.arrays[0], "convolution")
    geometry = _arguments.geometry(args, layout, "kernel_size", kernel_size, input_size)
    in_channels = _in_channels(in_channels, geometry)
    kernel = _depthwise_kernel(args, "weight", geometry, kernel_size, in_channels)
    channels = _depthwise_channels(kernel, "weight", in_channels, depth_multiplier)
    _arguments.check_bias(args, 2, channels)
    work = Work("conv", in_channels=in_channels, channels=channels, groups=in_channels)
    return _convolution(args, geometry, kernel.size, strides, padding, dilation, work)


def separable_conv(
    data: Any,
    depthwise_weight: Any,
    pointwise_weight: Any,
    bias: Any = None,
    *,
    channels: Optional[int] = None,
    in_channels: Optional[int] = None,
    depth_multiplier: Optional[int] = None,
    kernel_size: Any = None,
    strides: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    layout: Optional[str] = None,
    input_size: Any = None,
) -> Any:
    """A depthwise convolution, which takes the strides, padding and dilation, and then a 1x1 convolution with the bias.

    Arguments are those of :func:`depthwise_conv`, but for these:

    Parameters
    ----------
    depthwise_weight : same kind as data
        (C*m, 1, \\*k) with channels first, (C*m, \\*k, 1) with channels last.
    pointwise_weight : same kind as data
        (channels, C*m, 1, ..) with channels first, (channels, 1, .., C*m) with channels last.
    bias : same kind as data, optional
        (channels,).

    Returns
    -------
    (N, channels, \\*out) or (N, \\*out, channels).

    Raises
    ------
    TypeError, ValueError
        As :func:`depthwise_conv`, and where `channels` is unknown.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> out = mxsame.ops.separable_conv(nd.ones((1, 2, 4)), nd.ones((2, 1, 3)), nd.ones((1, 2, 1)), strides=2)
    >>> out.asnumpy().tolist()
    [[[6.0, 4.0]]]
    """
    args = _arrays.classic(data=data, depthwise_weight=depthwise_weight, pointwise_weight=pointwise_weight, bias=bias)
    _arrays.forbid_float16_on_cpu(args.arrays[0], "convolution")
    geometry = _arguments.geometry(args, layout, "kernel_size", kernel_size, input_size)
    in_channels = _in_channels(in_channels, geometry)
    kernel = _depthwise_kernel(args, "depthwise_weight", geometry, kernel_size, in_channels)
    depth_channels = _depthwise_channels(kernel, "depthwise_weight", in_channels, depth_multiplier)
    ones = (1,) * geometry.num_spatial_dims
    pointwise = _arguments.kernel(
        args, 2, "pointwise_weight", geometry, ones, (None, depth_channels), "(channels, depthwise channels, 1, ..)"
    )
    channels = _arguments.count("channels", channels, "pointwise_weight's first length", pointwise.shape[0])
    if channels is None:
        raise ValueError("channels must be given where pointwise_weight's shape is unknown; received channels=None")
    _arguments.check_bias(args, 3, channels)

    data, depthwise_weight, pointwise_weight, bias = args.arrays
    depthwise = args._replace(arrays=(data, depthwise_weight, None), restore=_as_is)
    work = Work("conv", in_channels=in_channels, channels=depth_channels, groups=in_channels)
    hidden = _convolution(depthwise, geometry, kernel.size, strides, padding, dilation, work)
    after = geometry._replace(data=hidden, data_shape=(None, depth_channels) + (None,) * geometry.num_spatial_dims)
    pointwise_args = args._replace(arrays=(hidden, pointwise_weight, bias))
    work = Work("conv", in_channels=depth_channels, channels=channels)
    return _convolution(pointwise_args, after, ones, 1, "valid", 1, work)


def _as_is(out: Any) -> Any:
    return out


def _in_channels(given: Optional[int], geometry: _arguments.Geometry) -> int:
    found = geometry.data_shape[1] if given is not None else _arguments.graph_channels(geometry)
    in_channels = _arguments.count("in_channels", given, "the data's channels", found)
    if in_channels is None:
        raise ValueError(
            "in_channels must be given to build the graph of a depthwise convolution of data with unknown channels; "
            "received in_channels=None"
        )
    return in_channels


def _depthwise_kernel(
    args: _arrays.Arguments, name: str, geometry: _arguments.Geometry, kernel_size: Any, in_channels: int
) -> _arguments.Kernel:
    order = "(C*m, *kernel_size, 1)" if geometry.channels_last else "(C*m, 1, *kernel_size)"
    kernel = _arguments.kernel(args, 1, name, geometry, kernel_size, (None, 1), order)
    if kernel.shape[0] is not None:
        validation.divisible(f"{name}'s first length", kernel.shape[0], "the data's channels", in_channels)
    return kernel


def _depthwise_channels(kernel: _arguments.Kernel, name: str, in_channels: int, depth_multiplier: Optional[int]) -> int:
    found = None if kernel.shape[0] is None else kernel.shape[0] // in_channels
    source = f"{name}'s first length / the data's channels"
    depth_multiplier = _arguments.count("depth_multiplier", depth_multiplier, source, found)
    if depth_multiplier is None:
        raise ValueError(
            f"depth_multiplier must be given where the shape of {name} is unknown; received depth_multiplier=None"
        )
    return in_channels * depth_multiplier


def _convolution(
    args: _arrays.Arguments,
    geometry: _arguments.Geometry,
    kernel_size: tuple,
    strides: Any,
    padding: Any,
    dilation: Any,
    work: Work,
) -> Any:
    """Plan and run MXNet's Convolution on checked arrays."""
    rank = geometry.num_spatial_dims
    strides = validation.per_axis("strides", strides, rank, 1)
    dilation = validation.per_axis("dilation", dilation, rank, 1)
    padding = validation.padding(padding, rank, words=_arguments.CONVOLUTION_WORDS[rank])
    channels: Any = work.channels
    padding = arithmetic.by_axis(padding, "conv", kernel_size, strides, dilation)
    windows = geometry.windows(channels, kernel_size, strides, dilation, padding)

    F, (_, weight, bias) = args.F, args.arrays
    if work.groups > 1:  # cuDNN does not promise all of these with channels last
        geometry = geometry._replace(knows_last=False)
    data, weight = geometry.inward(F, geometry.data), geometry.inward(F, weight)
    plan = _arguments.decide(geometry, data, windows, _allowed(args.shapes[1], work), work)
    weight = _run.extended_kernel(F, weight, channels, data, windows, plan, geometry.first)
    out = _run.run_window(
        F,
        data,
        windows,
        plan,
        lambda x: convolution(F, x, weight, bias, windows, plan, channels, work.groups, **geometry.operator_layout),
        "zero",
        work.in_channels,
        geometry.first,
    )
    return args.restore(geometry.outward(F, out))


def _allowed(weight_shape: Any, work: Work) -> tuple:
    """The strategies whose graphs can be built with what is known."""
    refused = () if weight_shape is not None else planning.RESHAPING
    if work.in_channels is None:
        refused += ("shift",)
    return tuple(strategy for strategy in planning.CONVOLUTION if strategy not in refused)


def convolution(
    F: Any,
    data: Any,
    weight: Any,
    bias: Any,
    windows: Any,
    plan: planning.Plan,
    channels: int,
    groups: int,
    **layout: str,
) -> Any:
    """MXNet's Convolution as a plan wants it, on prepared data and an extended kernel."""
    return F.Convolution(
        *([data, weight] + ([] if bias is None else [bias])),
        kernel=tuple(step.kernel_size for step in plan.axes),
        stride=tuple(window.stride for window in windows),
        dilate=tuple(window.dilation for window in windows),
        pad=tuple(step.pad for step in plan.axes),
        num_filter=channels,
        num_group=groups,
        no_bias=bias is None,
        **layout,
    )
