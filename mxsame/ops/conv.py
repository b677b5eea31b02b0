"""Convolutions: plain, grouped, depthwise and separable, of any rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Optional, Tuple

from mxsame import tensors, validation
from mxsame.ops._call import CONVOLUTION_WORDS, Call, Kernel, channel_count, required
from mxsame.ops._lowering import Lowering
from mxsame.plan import make_windows
from mxsame.planner import Work


class UnknownChannels(ValueError):
    """The channels of the data are needed and not known; a layer adds its name."""


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
    before it and the rest, the extra padding element among them, after it; :func:`mxsame.padding.same_pads` has the
    source.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        (N, C, \\*size), or (N, \\*size, C) with a layout that ends in C. float32 or float64 on the CPU.
    weight : same kind as data
        (channels, C/groups, \\*k) with channels first, (channels, \\*k, C/groups) with channels last.
    bias : same kind as data, optional
        (channels,).
    channels, kernel_size : int, int or sequence of ints; optional if the weight's shape is known
    strides, dilation : int or one int per axis
    padding : "same", "valid", "causal" (1-D), "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is not TensorFlow's rule but that of keras-mxnet 2.2.4.3, for networks trained in it: the extra
        padding element is at the start (:func:`mxsame.padding.keras_mxnet_pads`). An even kernel of stride 1 along
        the third axis, which gives n + 1 outputs there, is refused (:func:`mxsame.padding.keras_mxnet_axes`).
    groups : int
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default
    input_size : int or one int per axis, optional
        The spatial size of a Symbol. Without it the graph is right for every size.

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
    args = tensors.classic(data=data, weight=weight, bias=bias)
    tensors.forbid_float16_on_cpu(args.arrays[0], "convolution")
    call = Call.of(args, layout, "kernel_size", kernel_size, input_size)
    in_channels = call.shape[1]
    if in_channels is not None:
        validation.divisible("data channels", in_channels, "groups", groups)
    share = None if in_channels is None else in_channels // groups
    kernel = call.kernel(1, "weight", kernel_size, {"channels": None, "data channels / groups": share})
    channels = required(
        "channels", channel_count("channels", channels, "the weight's first length", kernel.shape[0]), "weight"
    )
    validation.divisible("channels", channels, "groups", groups)
    call.check_bias(channels)
    in_channels = call.graph_channels() if kernel.shape[1] is None else kernel.shape[1] * groups
    work = Work("conv", in_channels=in_channels, channels=channels, groups=groups)
    return _convolve(call, work, kernel, strides, padding, dilation)


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
    """Depthwise convolution: channel c has m kernels of its own and gives the outputs c*m .. c*m + m - 1.

    Arguments are those of :func:`conv`, except:

    Parameters
    ----------
    weight : same kind as data
        (C*m, 1, \\*k) with channels first, (C*m, \\*k, 1) with channels last; m is the depth multiplier.
    bias : same kind as data, optional
        (C*m,).
    in_channels : int, optional if the data's channels are known
        C; a graph needs it to be built.
    depth_multiplier : int, optional if the weight's shape is known
        m.

    Returns
    -------
    (N, C*m, \\*out) or (N, \\*out, C*m).

    Raises
    ------
    TypeError, ValueError
        As :func:`conv`, and if `in_channels` or `depth_multiplier` is unknown.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> data, weight = nd.ones((1, 2, 4)), nd.array([[[1, 1, 1]], [[2, 2, 2]]])
    >>> mxsame.ops.depthwise_conv(data, weight, strides=2).asnumpy().tolist()
    [[[3.0, 2.0], [6.0, 4.0]]]
    """
    args = tensors.classic(data=data, weight=weight, bias=bias)
    tensors.forbid_float16_on_cpu(args.arrays[0], "convolution")
    call = Call.of(args, layout, "kernel_size", kernel_size, input_size)
    kernel, work = _depthwise(call, "weight", kernel_size, in_channels, depth_multiplier)
    call.check_bias(work.channels)
    return _convolve(call, work, kernel, strides, padding, dilation)


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

    Arguments are those of :func:`depthwise_conv`, except:

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
        As :func:`depthwise_conv`, and if `channels` is unknown.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> out = mxsame.ops.separable_conv(nd.ones((1, 2, 4)), nd.ones((2, 1, 3)), nd.ones((1, 2, 1)), strides=2)
    >>> out.asnumpy().tolist()
    [[[6.0, 4.0]]]
    """
    args = tensors.classic(data=data, depthwise_weight=depthwise_weight, pointwise_weight=pointwise_weight, bias=bias)
    tensors.forbid_float16_on_cpu(args.arrays[0], "convolution")
    call = Call.of(args, layout, "kernel_size", kernel_size, input_size)
    kernel, work = _depthwise(call, "depthwise_weight", kernel_size, in_channels, depth_multiplier)
    ones = (1,) * call.rank
    pointwise = call.kernel(2, "pointwise_weight", ones, {"channels": None, "depthwise channels": work.channels})
    found = channel_count("channels", channels, "pointwise_weight's first length", pointwise.shape[0])
    channels = required("channels", found, "pointwise_weight")
    call.check_bias(channels)

    data, depthwise_weight, pointwise_weight, bias = args.arrays
    first = replace(call, args=args._replace(arrays=(data, depthwise_weight, None), restore=lambda out: out))
    hidden = _convolve(first, work, kernel, strides, padding, dilation)
    second = replace(
        call,
        args=args._replace(arrays=(hidden, pointwise_weight, bias), shapes=(None, args.shapes[2], args.shapes[3])),
        data=hidden,
        shape=(None, work.channels, *(None,) * call.rank),
    )
    return _convolve(second, Work("conv", in_channels=work.channels, channels=channels), pointwise, 1, "valid", 1)


def _depthwise(call: Call, name: str, kernel_size: Any, in_channels: Any, depth_multiplier: Any) -> Tuple[Kernel, Work]:
    """The kernel of a depthwise convolution, and what it has to do."""
    found = call.shape[1] if in_channels is not None else call.graph_channels()
    in_channels = channel_count("in_channels", in_channels, "the data's channels", found)
    if in_channels is None:
        raise UnknownChannels(
            "in_channels must be given to build the graph of a depthwise convolution of data with unknown channels; "
            "received in_channels=None"
        )
    kernel = call.kernel(1, name, kernel_size, {"C*m": None, "1": 1})
    found = None
    if kernel.shape[0] is not None:
        validation.divisible(f"{name}'s first length", kernel.shape[0], "the data's channels", in_channels)
        found = kernel.shape[0] // in_channels
    source = f"{name}'s first length / the data's channels"
    depth_multiplier = required(
        "depth_multiplier", channel_count("depth_multiplier", depth_multiplier, source, found), name
    )
    channels = in_channels * depth_multiplier
    return kernel, Work("conv", in_channels=in_channels, channels=channels, groups=in_channels)


def _convolve(call: Call, work: Work, kernel: Kernel, strides: Any, padding: Any, dilation: Any) -> Any:
    """Plan and run MXNet's Convolution on checked arrays."""
    channels: Any = work.channels
    windows = make_windows(
        call.size,
        kernel.size,
        validation.per_axis("strides", strides, call.rank, 1),
        validation.per_axis("dilation", dilation, call.rank, 1),
        validation.padding(padding, call.rank, words=CONVOLUTION_WORDS[call.rank]),
    )
    call.check_windows("conv", channels, windows)
    if work.groups > 1:  # cuDNN does not promise all of these with channels last
        call = replace(call, native_last=False)
    _, weight, bias = call.args.arrays
    data, lowering = call.lowering(windows, work, call.args.shapes[1])
    weight = lowering.kernel(call.inward(weight), channels, data)
    return call.outward(convolution(lowering, data, weight, bias, channels, work.groups, call.operator_layout))


def convolution(
    lowering: Lowering, data: Any, weight: Any, bias: Any, channels: int, groups: int, layout: Dict[str, str]
) -> Any:
    """MXNet's Convolution by a plan, with the weight that the plan needs."""
    axes, windows = lowering.plan.axes, lowering.windows
    return lowering.run(
        data,
        lambda prepared: lowering.F.Convolution(
            *([prepared, weight] + ([] if bias is None else [bias])),
            kernel=tuple(step.kernel_size for step in axes),
            stride=tuple(step.strides(window) for step, window in zip(axes, windows)),
            dilate=tuple(window.dilation for window in windows),
            pad=tuple(step.pad for step in axes),
            num_filter=channels,
            num_group=groups,
            no_bias=bias is None,
            **layout,
        ),
    )
