"""Convolutions: plain, grouped, depthwise and separable, of any rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from mxsame import tensors, validation
from mxsame.ops._call import apply, choose_plan, recipe_of
from mxsame.ops._inputs import Inputs, Spec, WeightAxis, channel_count
from mxsame.plan import Plan, arrays
from mxsame.plan.costs import Workload
from mxsame.plan.recipe import Recipe
from mxsame.plan.windows import Windows, make_windows
from mxsame.scope import with_windows
from mxsame.types import ConvPadding, Ints, Layout
from mxsame.validation import PartialShape

if TYPE_CHECKING:
    from mxsame._mxnet import Array


@validation.check_arguments
def conv(
    data: Array,
    weight: Array,
    bias: Optional[Array] = None,
    *,
    channels: Optional[int] = None,
    kernel_size: Optional[Ints] = None,
    strides: Ints = 1,
    padding: ConvPadding = "same",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Optional[Layout] = None,
    input_size: Optional[Ints] = None,
) -> Array:
    """Compute a convolution in 1, 2 or 3 dimensions, with TensorFlow's SAME by default.

    For "same", along each axis: out = ceil(n/s), and P = max((out-1)s + ke - n, 0) zeros are added, P//2 before the
    data and the rest, which has the extra padding element, after it; see :mod:`mxsame.padding` for the source of the
    rule.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, C, *size)`, or `(N, *size, C)` if `layout` has channels last. On the CPU, only float32 and float64.
    weight : same kind as data
        `(channels, C/groups, *k)` with channels first, `(channels, *k, C/groups)` with channels last.
    bias : same kind as data, optional
        (channels,).
    channels : int, optional if the weight's shape is known
    kernel_size : int or one int per axis, optional if the weight's shape is known
    strides, dilation : int or one int per axis
    padding : "same", "valid", "causal" (1-D), "keras-mxnet", an int, or one int or (low, high) pair per axis
        "keras-mxnet" is the rule of keras-mxnet 2.2.4.3, not TensorFlow's, for networks trained in it: the extra
        padding element is at the start (:func:`mxsame.padding.keras_mxnet_pads`). It does not support an even kernel
        with stride 1 along the third axis, for which keras-mxnet has n + 1 outputs.
    groups : int
    layout : "NCW", "NWC", "NCHW", "NHWC", "NCDHW" or "NDHWC"; channels first by default
    input_size : int or one int per axis, optional
        The spatial size of a Symbol of unknown shape. Without it, the graph supports every size.

    Returns
    -------
    Same kind as `data`: `(N, channels, *out)` or `(N, *out, channels)`.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments, incompatible shapes, or an input shorter than the kernel with "valid".

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> data = nd.arange(5).reshape((1, 1, 5))
    >>> mxsame.ops.conv(data, nd.ones((1, 1, 2)), strides=2).asnumpy().ravel().tolist()
    [1.0, 5.0, 4.0]
    """
    spec = ConvSpec(kernel_size, strides, padding, dilation, layout, input_size, channels, groups)
    return apply(spec, data=data, weight=weight, bias=bias)


@validation.check_arguments
def depthwise_conv(
    data: Array,
    weight: Array,
    bias: Optional[Array] = None,
    *,
    in_channels: Optional[int] = None,
    depth_multiplier: Optional[int] = None,
    kernel_size: Optional[Ints] = None,
    strides: Ints = 1,
    padding: ConvPadding = "same",
    dilation: Ints = 1,
    layout: Optional[Layout] = None,
    input_size: Optional[Ints] = None,
) -> Array:
    """Compute a depthwise convolution: m kernels for each channel c, which give the output channels c*m to c*m + m - 1.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, C, *size)`, or `(N, *size, C)` if `layout` has channels last. On the CPU, only float32 and float64.
    weight : same kind as data
        `(C*m, 1, *k)` with channels first, `(C*m, *k, 1)` with channels last; m is the depth multiplier.
    bias : same kind as data, optional
        (C*m,).
    in_channels : int, optional if the data's channels are known
        C; required for a Symbol whose channels cannot be inferred.
    depth_multiplier : int, optional if the weight's shape is known
        `m`.
    kernel_size : int or one int per axis, optional if the weight's shape is known
        `k`.
    strides, padding, dilation, layout, input_size
        As for :func:`conv`.

    Returns
    -------
    Same kind as `data`: `(N, C*m, *out)` or `(N, *out, C*m)`.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, shapes that do not fit together, an input shorter than the kernel with "valid", and if
        `in_channels` or `depth_multiplier` is unknown.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> data, weight = nd.ones((1, 2, 4)), nd.array([[[1, 1, 1]], [[2, 2, 2]]])
    >>> mxsame.ops.depthwise_conv(data, weight, strides=2).asnumpy().tolist()
    [[[3.0, 2.0], [6.0, 4.0]]]
    """
    arguments = kernel_size, strides, padding, dilation, layout, input_size
    spec = DepthwiseSpec(*arguments, in_channels=in_channels, depth_multiplier=depth_multiplier)
    return apply(spec, data=data, weight=weight, bias=bias)


@validation.check_arguments
def separable_conv(
    data: Array,
    depthwise_weight: Array,
    pointwise_weight: Array,
    bias: Optional[Array] = None,
    *,
    channels: Optional[int] = None,
    in_channels: Optional[int] = None,
    depth_multiplier: Optional[int] = None,
    kernel_size: Optional[Ints] = None,
    strides: Ints = 1,
    padding: ConvPadding = "same",
    dilation: Ints = 1,
    layout: Optional[Layout] = None,
    input_size: Optional[Ints] = None,
) -> Array:
    """Compute a depthwise convolution with the strides, padding and dilation, then a 1x1 convolution with the bias.

    Parameters
    ----------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, C, *size)`, or `(N, *size, C)` if `layout` has channels last. On the CPU, only float32 and float64.
    depthwise_weight : same kind as data
        `(C*m, 1, *k)` with channels first, `(C*m, *k, 1)` with channels last.
    pointwise_weight : same kind as data
        (channels, C*m, 1, ..) with channels first, (channels, 1, .., C*m) with channels last.
    bias : same kind as data, optional
        (channels,).
    channels : int, optional if the shape of the pointwise weight is known
    in_channels : int, optional if the data's channels are known
        C; required for a Symbol whose channels cannot be inferred.
    depth_multiplier : int, optional if the shape of the depthwise weight is known
        `m`.
    kernel_size : int or one int per axis, optional if the weight's shape is known
        `k`.
    strides, padding, dilation, layout, input_size
        As for :func:`conv`.

    Returns
    -------
    Same kind as `data`: `(N, channels, *out)` or `(N, *out, channels)`.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, shapes that do not fit together, an input shorter than the kernel with "valid", and if
        `channels`, `in_channels` or `depth_multiplier` is unknown.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> out = mxsame.ops.separable_conv(nd.ones((1, 2, 4)), nd.ones((2, 1, 3)), nd.ones((1, 2, 1)), strides=2)
    >>> out.asnumpy().tolist()
    [[[6.0, 4.0]]]
    """
    arguments = kernel_size, strides, padding, dilation, layout, input_size
    depthwise = DepthwiseSpec(*arguments, in_channels=in_channels, depth_multiplier=depth_multiplier)
    hidden = apply(depthwise, data=data, depthwise_weight=depthwise_weight, bias=None)
    return apply(pointwise_spec(depthwise, channels), data=hidden, pointwise_weight=pointwise_weight, bias=bias)


def pointwise_spec(depthwise: ConvSpec, channels: Any) -> ConvSpec:
    """Returns the spec of the pointwise convolution that ends a separable convolution."""
    ones = (1,) * len(depthwise.kernel_size) if validation.is_sequence(depthwise.kernel_size) else 1
    return ConvSpec(ones, 1, "valid", 1, depthwise.layout, channels=channels)


@dataclass
class ConvSpec(Spec):
    """The arguments of `conv` or of `depthwise_conv`."""

    kernel_size: Any = None
    strides: Any = 1
    padding: Any = "same"
    dilation: Any = 1
    layout: Any = None
    input_size: Any = None
    channels: Any = None
    groups: Any = 1
    in_channels: Any = None
    depth_multiplier: Any = None

    def checked(self, rank: int) -> ConvSpec:
        """Returns the spec with its arguments in canonical form, for this number of axes."""
        return replace(super().checked(rank), padding=validation.padding(self.padding, rank, causal=True))

    def windows(self, size: PartialShape) -> Windows:
        """Returns the windows of a checked spec with a kernel size, for data of this size."""
        return make_windows(size, self.kernel_size, self.strides, self.dilation, self.padding)

    def lower(self, inputs: Inputs) -> Convolution:
        """Returns the recipe of MXNet's Convolution for a checked spec and its inputs."""
        spec, in_channels = self.completed_by(inputs)
        windows = spec.windows(inputs.size)
        if spec.groups > 1:  # cuDNN does not guarantee support for grouped convolutions with channels last
            inputs = replace(inputs, runs_channels_last=False)
        inputs.check_output(windows, "conv", spec.channels, spec.groups)
        work = inputs.workload("conv", in_channels, channels=spec.channels, groups=spec.groups)
        return Convolution.of(inputs, windows, work, choose_plan(inputs, windows, work))

    def completed_by(self, inputs: Inputs) -> Tuple[ConvSpec, Optional[int]]:
        """Returns the spec with missing arguments taken from the arrays, and the channels of the data."""
        name, groups, in_channels = inputs.names[1], self.groups, inputs.shape[1]
        if in_channels is not None:
            validation.check_divisible("data channels", in_channels, "groups", groups)
        group_channels = None if in_channels is None else in_channels // groups
        axes = WeightAxis("channels"), WeightAxis("data channels / groups", group_channels)
        first, second, *kernel_size = inputs.weight_shape(self.kernel_size, *axes)
        channels = channel_count("channels", self.channels, f"{name}.shape[0]", first, name)
        in_channels = inputs.infer_in_channels() if second is None else second * groups
        return replace(self, kernel_size=tuple(kernel_size), channels=channels), in_channels


class DepthwiseSpec(ConvSpec):
    """A convolution in as many groups as the data has channels."""

    def completed_by(self, inputs: Inputs) -> Tuple[ConvSpec, Optional[int]]:
        """Returns the spec with missing arguments taken from the arrays, and the channels of the data."""
        name = inputs.names[1]
        actual = inputs.infer_in_channels() if self.in_channels is None else inputs.shape[1]
        in_channels = channel_count("in_channels", self.in_channels, "the data's channels", actual, "the data")
        first, _, *kernel_size = inputs.weight_shape(self.kernel_size, WeightAxis("C*m"), WeightAxis("1", 1))
        if first is not None:
            validation.check_divisible(f"{name}.shape[0]", first, "the data's channels", in_channels)
        per_channel = first and first // in_channels
        source = f"{name}.shape[0] / the data's channels"
        multiplier = channel_count("depth_multiplier", self.depth_multiplier, source, per_channel, name)
        channels = in_channels * multiplier
        return replace(self, kernel_size=tuple(kernel_size), channels=channels, groups=in_channels), in_channels


@dataclass(frozen=True)
class Convolution(Recipe):
    """Runs MXNet's Convolution, or Deconvolution for a transposed convolution. With `copies_weight`, the operator gets
    a copy of the weight."""

    copies_weight: bool = False

    @classmethod
    def of(
        cls, inputs: Inputs, windows: Windows, work: Workload, plan: Plan, copies_weight: bool = False
    ) -> Convolution:
        """Returns the recipe of a plan."""
        dilation = tuple(window.dilation for window in windows)
        attributes: Dict[str, Any] = {"dilate": dilation, "num_filter": work.channels, "num_group": work.groups}
        attributes["no_bias"] = inputs.arrays[-1] is None
        name = "Convolution"
        if work.operator == "transposed" and not plan.dilates_input:
            name, attributes["adj"] = "Deconvolution", tuple(axis.adj for axis in plan.axes)
        return recipe_of(cls, name, inputs, windows, work, plan, attributes, copies_weight=copies_weight)

    def __call__(self, F: Any, data: Any, weight: Any, bias: Any) -> Any:
        ndim = self.spatial_axes.stop
        if self.transposes:
            data, weight = tensors.channels_first(F, data, ndim), tensors.channels_first(F, weight, ndim)
        with with_windows(None if self.attributes_suffice else self.windows):
            weight = arrays.copy_weight(F, weight) if self.copies_weight else weight
            weight = self.prepare_weight(F, weight, data)
            prepared = self.prepare_data(F, data)
            weights = (weight,) if bias is None else (weight, bias)
            out = self.finish(F, getattr(F, self.mxnet_operator)(prepared, *weights, **self.attributes), data)
        return tensors.channels_last(F, out, ndim) if self.transposes else out
