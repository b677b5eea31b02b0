"""Depthwise and separable convolution layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional

from mxsame import _gluon, validation
from mxsame._mxnet import mx
from mxsame.nn._layer import ConvolutionLayer
from mxsame.ops._call import apply
from mxsame.ops._conv import DepthwiseSpec, pointwise_spec
from mxsame.types import Activation, ConvPadding, Ints, Layout

if TYPE_CHECKING:
    from mxsame._mxnet import Init, ParameterDict


class _Depthwise(ConvolutionLayer):
    """Base of depthwise and separable convolutions: a depth multiplier, and an operator that must be given in_channels
    in a graph."""

    def _known_in_channels(self) -> Optional[int]:
        first = next(iter(_gluon.own_parameters(self).values())).shape[0]
        return first // self._spec.depth_multiplier if first > 0 else None

    def _spec_for(self, x: Any) -> Any:
        in_graph = isinstance(x, mx.sym.Symbol)
        return replace(self._spec, in_channels=self._known_in_channels()) if in_graph else self._spec

    def _repr_arguments(self) -> dict:
        return {"depth_multiplier": self._spec.depth_multiplier}


class _DepthwiseConv(_Depthwise):
    """Depthwise convolution with Keras's padding: channel c produces outputs c*m .. c*m + m - 1, m = depth_multiplier.

    The rule of "same" is that of :class:`mxsame.nn.Conv2D`.

    Parameters
    ----------
    kernel_size : int or one int per axis
        Elements of the kernel.
    strides : int or one int per axis
        Step between windows; 1 by default.
    padding : str, int, or one int or (low, high) pair per axis
        "same" by default; "valid", in 1-D also "causal", or explicit. An int pads both ends.
        "keras-mxnet" is for networks trained in keras-mxnet: see :func:`mxsame.ops.conv`.
    depth_multiplier : int
        m, the outputs of each channel; 1 by default.
    dilation : int or one int per axis
        Step between kernel elements; 1 by default. Stride and dilation may both be above 1.
    layout : str
        "NCW", "NCHW" or "NCDHW" by default; "NWC", "NHWC" or "NDHWC" for channels last.
    activation : str, optional
        "relu", "sigmoid", "tanh", "softrelu" or "softsign", applied to the output; none by default.
    use_bias : bool
        Whether a bias is added; True by default.
    weight_initializer, bias_initializer : str or mx.init.Initializer, optional
        Initializers of the weight and the bias; by default the one passed to `initialize()`, and zeros.
    in_channels : int
        Channels of the data; 0, the default, to take them from the first input. Required if the layer is first called
        in a parent hybridized with `net.hybridize()` and MXNet cannot infer the channels.
    prefix : str, optional
        What the names of the parameters start with; `conv0_`, `conv1_`, ... by default.
    params : gluon.ParameterDict, optional
        Parameters to share with another layer; none by default.

    Inputs
    ------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, C, *size)`, or `(N, *size, C)` with channels last.

    Outputs
    -------
    out : same kind as data
        `(N, C*m, *size')`, or `(N, *size', C*m)`.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments in the constructor, for invalid data in a call, and if a graph
        is built and the channels are unknown.
    """

    def __init__(
        self,
        kernel_size: Ints,
        strides: Ints = 1,
        padding: ConvPadding = "same",
        depth_multiplier: int = 1,
        dilation: Ints = 1,
        layout: Optional[Layout] = None,
        activation: Optional[Activation] = None,
        use_bias: bool = True,
        weight_initializer: Optional[Init] = None,
        bias_initializer: Optional[Init] = "zeros",
        in_channels: int = 0,
        prefix: Optional[str] = None,
        params: Optional[ParameterDict] = None,
    ):
        multiplier = validation.integer("depth_multiplier", depth_multiplier, 1)
        spec = DepthwiseSpec(kernel_size, strides, padding, dilation, layout, depth_multiplier=multiplier)
        super().__init__(spec, activation, use_bias, in_channels, prefix, params)
        self._add_parameters(weight=weight_initializer, bias=bias_initializer)

    def _out_channels(self, in_channels: Optional[int]) -> Any:
        return in_channels and in_channels * self._spec.depth_multiplier

    def _weight_shapes(self, in_channels: int) -> dict:
        return {"weight": (self._out_channels(in_channels), 1, *self._spec.kernel_size)}


class _SeparableConv(_Depthwise):
    """A depthwise convolution, which takes the strides, padding and dilation, then a 1x1 convolution with the bias.

    The rule of "same" is that of :class:`mxsame.nn.Conv2D`.

    Parameters
    ----------
    channels : int
        Channels of the output.
    kernel_size : int or one int per axis
        Elements of the kernel.
    strides : int or one int per axis
        Step between windows; 1 by default.
    padding : str, int, or one int or (low, high) pair per axis
        "same" by default; "valid", in 1-D also "causal", or explicit. An int pads both ends.
        "keras-mxnet" is for networks trained in keras-mxnet: see :func:`mxsame.ops.conv`.
    dilation : int or one int per axis
        Step between kernel elements; 1 by default. Stride and dilation may both be above 1.
    depth_multiplier : int
        Outputs of each channel between the two convolutions; 1 by default.
    layout : str
        "NCW", "NCHW" or "NCDHW" by default; "NWC", "NHWC" or "NDHWC" for channels last.
    activation : str, optional
        "relu", "sigmoid", "tanh", "softrelu" or "softsign", applied to the output; none by default.
    use_bias : bool
        Whether a bias is added; True by default.
    depthwise_initializer, pointwise_initializer, bias_initializer : str or mx.init.Initializer, optional
        Initializers of `depthwise_weight`, `pointwise_weight` and `bias`; by default the one passed to `initialize()`
        for the weights, and zeros for the bias.
    in_channels : int
        Channels of the data; 0, the default, to take them from the first input. Required if the layer is first called
        in a parent hybridized with `net.hybridize()` and MXNet cannot infer the channels.
    prefix : str, optional
        What the names of the parameters start with; `conv0_`, `conv1_`, ... by default.
    params : gluon.ParameterDict, optional
        Parameters to share with another layer; none by default.

    Inputs
    ------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, in_channels, *size)`, or `(N, *size, in_channels)` with channels last.

    Outputs
    -------
    out : same kind as data
        `(N, channels, *size')`, or `(N, *size', channels)`.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments in the constructor, for invalid data in a call, and if a graph
        is built and the channels are unknown.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Ints,
        strides: Ints = 1,
        padding: ConvPadding = "same",
        dilation: Ints = 1,
        depth_multiplier: int = 1,
        layout: Optional[Layout] = None,
        activation: Optional[Activation] = None,
        use_bias: bool = True,
        depthwise_initializer: Optional[Init] = None,
        pointwise_initializer: Optional[Init] = None,
        bias_initializer: Optional[Init] = "zeros",
        in_channels: int = 0,
        prefix: Optional[str] = None,
        params: Optional[ParameterDict] = None,
    ):
        channels = validation.integer("channels", channels, 1)
        multiplier = validation.integer("depth_multiplier", depth_multiplier, 1)
        spec = DepthwiseSpec(kernel_size, strides, padding, dilation, layout, depth_multiplier=multiplier)
        super().__init__(spec, activation, use_bias, in_channels, prefix, params)
        self._pointwise = pointwise_spec(self._spec, channels)
        self._add_parameters(
            depthwise_weight=depthwise_initializer, pointwise_weight=pointwise_initializer, bias=bias_initializer
        )

    def _out_channels(self, in_channels: Optional[int]) -> Any:
        return self._pointwise.channels

    def _operator_output(self, x: Any, bias: Any = None, *, pointwise_weight: Any = None, **weights: Any) -> Any:
        hidden = super()._operator_output(x, **weights)
        return apply(self._pointwise, data=hidden, pointwise_weight=pointwise_weight, bias=bias)

    def _weight_shapes(self, in_channels: int) -> dict:
        depth_channels = in_channels * self._spec.depth_multiplier
        return {
            "depthwise_weight": (depth_channels, 1, *self._spec.kernel_size),
            "pointwise_weight": (self._pointwise.channels, depth_channels, *self._pointwise.kernel_size),
        }


class DepthwiseConv1D(_DepthwiseConv, num_spatial_dims=1):
    """1-D depthwise convolution: (N, C, W) -> (N, C*m, W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.DepthwiseConv1D(3, in_channels=4, depth_multiplier=2)
    DepthwiseConv1D(4 -> 8, kernel_size=(3,), strides=(1,), padding='same', depth_multiplier=2)
    """


class DepthwiseConv2D(_DepthwiseConv, num_spatial_dims=2):
    """2-D depthwise convolution: (N, C, H, W) -> (N, C*m, H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> layer = mxsame.nn.DepthwiseConv2D(3, strides=2)
    >>> layer.initialize()
    >>> layer(nd.zeros((1, 8, 15, 16))).shape
    (1, 8, 8, 8)
    """


class DepthwiseConv3D(_DepthwiseConv, num_spatial_dims=3):
    """3-D depthwise convolution: (N, C, D, H, W) -> (N, C*m, D', H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.DepthwiseConv3D((1, 3, 3), use_bias=False)
    DepthwiseConv3D(None -> None, kernel_size=(1, 3, 3), ..., depth_multiplier=1, use_bias=False)
    """


class SeparableConv1D(_SeparableConv, num_spatial_dims=1):
    """1-D separable convolution: (N, C, W) -> (N, channels, W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.SeparableConv1D(8, 3, padding="causal", in_channels=4)
    SeparableConv1D(4 -> 8, kernel_size=(3,), strides=(1,), padding='causal', depth_multiplier=1)
    """


class SeparableConv2D(_SeparableConv, num_spatial_dims=2):
    """2-D separable convolution: (N, C, H, W) -> (N, channels, H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> layer = mxsame.nn.SeparableConv2D(16, 3, strides=2)
    >>> layer.initialize()
    >>> layer(nd.zeros((1, 8, 15, 16))).shape
    (1, 16, 8, 8)
    """


class SeparableConv3D(_SeparableConv, num_spatial_dims=3):
    """3-D separable convolution: (N, C, D, H, W) -> (N, channels, D', H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.SeparableConv3D(8, 3, in_channels=2)
    SeparableConv3D(2 -> 8, kernel_size=(3, 3, 3), strides=(1, 1, 1), padding='same', depth_multiplier=1)
    """
