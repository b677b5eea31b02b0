"""Convolutions: plain, grouped, depthwise and separable, of any rank."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from mxsame import operands, tensors, validation
from mxsame.ops._geometry import Geometry, Planned, apply, channel_count
from mxsame.ops._lowering import Lowering
from mxsame.plan import AxisPlan, Window, arrays, make_windows
from mxsame.plan.windows import AnyWindow
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

    For "same", per axis: out = ceil(n/s), and P = max((out-1)s + ke - n, 0) zeros are added, P//2 before the data and
    the rest, which has the extra padding element, after it; :func:`mxsame.padding.same_pads` has the source.

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
        "keras-mxnet" is the rule of keras-mxnet 2.2.4.3, not TensorFlow's, for networks trained in it: the extra
        padding element is at the start (:func:`mxsame.padding.keras_mxnet_pads`). Refused with it: an even kernel of
        stride 1 along the third axis, which has n + 1 outputs there (:func:`mxsame.padding.keras_mxnet_axes`).
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
    args = operands.classic(data=data, weight=weight, bias=bias)
    arguments = channels, kernel_size, strides, padding, dilation, groups, layout, input_size
    return apply(_plan_conv, args, "weight", *arguments)


def _plan_conv(args: operands.Operands, name: str, *arguments: Any) -> Planned:
    channels, kernel_size, strides, padding, dilation, groups, layout, input_size = arguments
    groups = validation.integer("groups", groups, 1)
    geometry = Geometry.of(args, layout, "kernel_size", kernel_size, input_size)
    in_channels = geometry.shape[1]
    if in_channels is not None:
        validation.divisible("data channels", in_channels, "groups", groups)
    share = None if in_channels is None else in_channels // groups
    shape, kernel_size = geometry.kernel(name, kernel_size, {"channels": None, "data channels / groups": share})
    channels = channel_count("channels", channels, f"{name}'s first length", shape[0], name)
    validation.divisible("channels", channels, "groups", groups)
    geometry.check_bias(channels)
    in_channels = geometry.graph_channels() if shape[1] is None else shape[1] * groups
    work = Work("conv", in_channels=in_channels, channels=channels, groups=groups)
    return _planned_convolution(geometry, work, kernel_size, strides, padding, dilation)


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
        C; needed to build a graph.
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
    args = operands.classic(data=data, weight=weight, bias=bias)
    arguments = in_channels, depth_multiplier, kernel_size, strides, padding, dilation, layout, input_size
    return apply(_plan_depthwise_conv, args, "weight", *arguments)


def _plan_depthwise_conv(args: operands.Operands, name: str, *arguments: Any) -> Planned:
    in_channels, depth_multiplier, kernel_size, strides, padding, dilation, layout, input_size = arguments
    geometry = Geometry.of(args, layout, "kernel_size", kernel_size, input_size)
    actual = geometry.shape[1] if in_channels is not None else geometry.graph_channels()
    in_channels = channel_count("in_channels", in_channels, "the data's channels", actual, "the data")
    ((first, *_), kernel_size), actual = geometry.kernel(name, kernel_size, {"C*m": None, "1": 1}), None
    if first is not None:
        validation.divisible(f"{name}'s first length", first, "the data's channels", in_channels)
        actual = first // in_channels
    source = f"{name}'s first length / the data's channels"
    channels = in_channels * channel_count("depth_multiplier", depth_multiplier, source, actual, name)
    geometry.check_bias(channels)
    work = Work("conv", in_channels=in_channels, channels=channels, groups=in_channels)
    return _planned_convolution(geometry, work, kernel_size, strides, padding, dilation)


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
    """A depthwise convolution with the strides, padding and dilation, then a 1x1 convolution with the bias.

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
    args = operands.classic(data=data, depthwise_weight=depthwise_weight, pointwise_weight=pointwise_weight, bias=bias)
    arguments = in_channels, depth_multiplier, kernel_size, strides, padding, dilation, layout, input_size
    first = args._replace(arrays=(*args.arrays[:2], None), shapes=(*args.shapes[:2], None))
    hidden = apply(_plan_depthwise_conv, first, "depthwise_weight", *arguments)
    second = operands.classic(data=hidden, pointwise_weight=pointwise_weight, bias=bias)
    ones = (1,) * len(kernel_size) if validation.is_sequence(kernel_size) else 1
    return apply(_plan_conv, second, "pointwise_weight", channels, ones, 1, "valid", 1, 1, layout, None)


def _planned_convolution(
    geometry: Geometry, work: Work, kernel_size: Tuple[int, ...], strides: Any, padding: Any, dilation: Any
) -> Planned:
    """MXNet's Convolution on checked arrays."""
    rank = geometry.rank
    windows = make_windows(
        geometry.size,
        kernel_size,
        validation.per_axis("strides", strides, rank, 1),
        validation.per_axis("dilation", dilation, rank, 1),
        validation.padding(padding, rank, causal=True),
    )
    geometry.check_windows("conv", work.channels, windows)
    if work.groups > 1:  # cuDNN does not promise all of these with channels last
        geometry = replace(geometry, native_last=False)
    operator = functools.partial(convolution, geometry, work)
    return geometry.planned(windows, work, operator, weight_shape=geometry.args.shapes[1])


def convolution(
    geometry: Geometry,
    work: Work,
    lowering: Lowering,
    layout: Dict[str, str],
    kernel: Optional[Callable] = None,
    name: str = "Convolution",
) -> Callable:
    """MXNet's Convolution or Deconvolution by a plan, as a function of data, weight and bias;
    `kernel(weight, channels, data)` is the weight that it needs, by default the plan's."""
    kernel = kernel or lowering.kernel
    axes, windows = lowering.plan.axes, lowering.windows
    arguments: Dict[str, Any] = {
        "kernel": tuple(step.kernel_size for step in axes),
        "stride": tuple(step.strides(window) for step, window in zip(axes, windows)),
        "dilate": tuple(window.dilation for window in windows),
        "pad": tuple(step.pad for step in axes),
        "num_filter": work.channels,
        "num_group": work.groups,
        "no_bias": geometry.args.arrays[-1] is None,
        **layout,
    }
    if name == "Deconvolution":
        arguments["adj"] = tuple(step.adj for step in axes)
    padded, use = 0, tensors.use_of(geometry.data)
    if use.gradients and use.device != "gpu" and _is_shallow(windows, axes):
        padded, *others = arguments["pad"]
        arguments["pad"] = (0, *others)
    operator = lowering.operator(name, arguments)

    def run(data: Any, weight: Any, bias: Any) -> Any:
        weight = kernel(weight, work.channels, data)
        weights = (weight,) if bias is None else (weight, bias)

        def convolved(ready: Any) -> Any:
            if padded:
                ready = arrays.padded(lowering.F, ready, [(padded, padded), (0, 0), (0, 0)])
            return operator(ready, *weights)

        return lowering.run(data, convolved)

    return run


def _is_shallow(windows: Sequence[AnyWindow], axes: Sequence[AxisPlan]) -> bool:
    """Whether there are several windows with a stride, none of which lies inside the data of the operator: along the
    first of three axes, oneDNN then adds the weight's gradient to memory that it has not cleared."""
    window, step = windows[0], axes[0]
    if len(axes) < 3 or not isinstance(window, Window) or window.size is None or not step.pad:
        return False
    stride, length = step.strides(window), window.size + sum(step.concat) + sum(step.pad_operator)
    span = length - ((step.kernel_size - 1) * window.dilation + 1)
    starts = range(-step.pad, span + step.pad + 1, stride)
    return stride > 1 and len(starts) > 1 and not any(0 <= start <= span for start in starts)
