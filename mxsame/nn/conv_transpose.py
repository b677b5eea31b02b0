"""Transposed convolution layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.nn._layer import ConvolutionLayer
from mxsame.ops._conv_transpose import TransposedSpec
from mxsame.types import Activation, Ints, Layout, Padding

if TYPE_CHECKING:
    from mxsame._mxnet import Init, ParameterDict


class _ConvTranspose(ConvolutionLayer):
    """Transposed convolution with Keras's padding, see :func:`mxsame.ops.conv_transpose`.

    Per axis, with input size n, stride s and effective kernel size ke: "same" has n*s outputs, the size whose
    SAME convolution has n outputs; max(ke - s, 0) elements are cropped, the extra one at the end. "valid" crops nothing
    and has (n - 1) s + max(ke, s) outputs. (Keras's `Conv2DTranspose`, TensorFlow's `conv2d_backprop_input`.)

    Parameters
    ----------
    channels : int
        Channels of the output.
    kernel_size : int or one int per axis
        Elements of the kernel.
    strides : int or one int per axis
        Step in the output between elements of the data; 1 by default.
    padding : "same", "valid", "keras-mxnet", an int, or one int or (low, high) pair per axis
        "same" by default. Explicit pads are cropped from the output, as in `gluon.nn`.
    output_padding : int or one int per axis, optional
        Less than the stride. The default, None, is not the same as 0: see :func:`mxsame.ops.conv_transpose`.
    dilation : int or one int per axis
        Step between kernel elements; 1 by default. Stride and dilation may both be above 1.
    groups : int
        The number of groups into which the channels of data and output are split; 1 by default.
    layout : str
        "NCW", "NCHW" or "NCDHW" by default; "NWC", "NHWC" or "NDHWC" for channels last. With channels last the weight
        is `(in_channels, *kernel_size, channels/groups)`.
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
        `(N, channels, *size')`, or `(N, *size', channels)`.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments when the layer is constructed, including an `output_padding` that no forward convolution
        corresponds to, and for data that does not fit when it is called.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Ints,
        strides: Ints = 1,
        padding: Padding = "same",
        output_padding: Optional[Ints] = None,
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
        spec = TransposedSpec(kernel_size, strides, padding, output_padding, dilation, layout, channels, groups)
        super().__init__(spec, activation, use_bias, in_channels, prefix, params)
        self._add_parameters(weight=weight_initializer, bias=bias_initializer)

    def _weight_shapes(self, in_channels: int) -> dict:
        return {"weight": (in_channels, self._spec.channels // self._spec.groups, *self._spec.kernel_size)}

    def _known_in_channels(self) -> Optional[int]:
        length = self.weight.shape[0]
        return length if length > 0 else None

    def _repr_arguments(self) -> dict:
        added = self._spec.output_padding
        own = {} if added is None else {"output_padding": added}
        return {**own, **super()._repr_arguments()}


class Conv1DTranspose(_ConvTranspose, mx.gluon.nn.Conv1DTranspose, num_spatial_dims=1):
    """1-D transposed convolution: (N, C, W) -> (N, channels, W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.Conv1DTranspose(8, 4, strides=2)
    Conv1DTranspose(None -> 8, kernel_size=(4,), strides=(2,), padding='same')
    """


class Conv2DTranspose(_ConvTranspose, mx.gluon.nn.Conv2DTranspose, num_spatial_dims=2):
    """2-D transposed convolution: (N, C, H, W) -> (N, channels, H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> layer = mxsame.nn.Conv2DTranspose(8, 3, strides=2)
    >>> layer.initialize()
    >>> layer(nd.zeros((1, 4, 7, 5))).shape
    (1, 8, 14, 10)
    """


class Conv3DTranspose(_ConvTranspose, mx.gluon.nn.Conv3DTranspose, num_spatial_dims=3):
    """3-D transposed convolution: (N, C, D, H, W) -> (N, channels, D', H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.Conv3DTranspose(8, 3, strides=2, output_padding=1)
    Conv3DTranspose(None -> 8, kernel_size=(3, 3, 3), strides=(2, 2, 2), padding='same', output_padding=(1, 1, 1))
    """
