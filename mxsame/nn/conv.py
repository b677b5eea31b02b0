"""Convolution layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.nn._layer import ConvolutionLayer
from mxsame.ops._conv import ConvSpec
from mxsame.types import Activation, ConvPadding, Ints, Layout

if TYPE_CHECKING:
    from mxsame._mxnet import Init, ParameterDict


class _Conv(ConvolutionLayer):
    """Convolution with Keras's padding, see :func:`mxsame.ops.conv`.

    Per axis, with input size n, stride s and effective kernel size ke = (kernel_size - 1) * dilation + 1:

    - "same": ceil(n/s) outputs. P = max((ceil(n/s) - 1) s + ke - n, 0) elements are padding, P // 2 of them at the
      start: the extra padding element is at the end. (TensorFlow, notes on padding in the documentation of `tf.nn`.)
    - "valid": ceil((n - ke + 1) / s) outputs, no padding.
    - "causal", in 1-D: ceil(n/s) outputs, ke - 1 elements of padding at the start.
    - explicit: floor((n + low + high - ke) / s) + 1 outputs.

    Parameters
    ----------
    channels : int
        Channels of the output.
    kernel_size : int or one int per axis
        Size of the kernel.
    strides : int or one int per axis
        Step between windows; 1 by default.
    padding : str, int, or one int or (low, high) pair per axis
        "same" by default; "valid", in 1-D also "causal", or explicit. An int pads both ends.
        "keras-mxnet" is for networks trained in keras-mxnet: see :func:`mxsame.ops.conv`.
    dilation : int or one int per axis
        Step between kernel elements; 1 by default. Stride and dilation may both be above 1.
    groups : int
        The number of groups into which the channels of data and output are split, each with a convolution of its
        own; 1 by default.
    layout : str
        "NCW", "NCHW" or "NCDHW" by default; "NWC", "NHWC" or "NDHWC" for channels last. With channels last the weight
        is `(channels, *kernel_size, in_channels/groups)`.
    activation : str, optional
        "relu", "sigmoid", "tanh", "softrelu" or "softsign", applied to the output; none by default.
    use_bias : bool
        Whether a bias is added; True by default.
    weight_initializer, bias_initializer : str or mx.init.Initializer, optional
        Initializers of the weight and the bias; by default the one passed to `initialize()`, and zeros.
    in_channels : int
        Channels of the data; 0, the default, to take them from the first input.
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
        `(N, channels, *size')`, or `(N, *size', channels)`, with size' as above.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments when the layer is constructed, and for data that does not fit when it is called.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Ints,
        strides: Ints = 1,
        padding: ConvPadding = "same",
        dilation: Ints = 1,
        groups: int = 1,
        layout: Optional[Layout] = None,
        activation: Optional[Activation] = None,
        use_bias: bool = True,
        weight_initializer: Optional[Init] = None,
        bias_initializer: Optional[Init] = "zeros",
        in_channels: int = 0,
        prefix: Optional[str] = None,
        params: Optional[ParameterDict] = None,
    ):
        channels = validation.integer("channels", channels, 1)
        spec = ConvSpec(kernel_size, strides, padding, dilation, layout, channels=channels, groups=groups)
        super().__init__(spec, activation, use_bias, in_channels, prefix, params)
        self._add_parameters(weight=weight_initializer, bias=bias_initializer)

    def _weight_shapes(self, in_channels: int) -> dict:
        return {"weight": (self._spec.channels, in_channels // self._spec.groups, *self._spec.kernel_size)}

    def _known_in_channels(self) -> Optional[int]:
        channels_per_group = self.weight.shape[-1 if self._channels_last else 1]
        return channels_per_group * self._spec.groups if channels_per_group > 0 else None


class Conv1D(_Conv, mx.gluon.nn.Conv1D, num_spatial_dims=1):
    """1-D convolution: (N, C, W) -> (N, channels, W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.Conv1D(8, 3, strides=2, padding="causal")
    Conv1D(None -> 8, kernel_size=(3,), strides=(2,), padding='causal')
    """


class Conv2D(_Conv, mx.gluon.nn.Conv2D, num_spatial_dims=2):
    """2-D convolution: (N, C, H, W) -> (N, channels, H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> layer = mxsame.nn.Conv2D(64, 7, strides=2)
    >>> layer.initialize()
    >>> layer(nd.zeros((1, 3, 224, 224))).shape
    (1, 64, 112, 112)
    """


class Conv3D(_Conv, mx.gluon.nn.Conv3D, num_spatial_dims=3):
    """3-D convolution: (N, C, D, H, W) -> (N, channels, D', H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.Conv3D(8, (1, 3, 3), groups=2, in_channels=4)
    Conv3D(4 -> 8, kernel_size=(1, 3, 3), strides=(1, 1, 1), padding='same', groups=2)
    """
