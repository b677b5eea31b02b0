"""Convolution layers."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from mxsame import ops
from mxsame.nn._layer import CAUSAL_WORDS, ConvolutionLayer
from mxsame.plan.windows import AnyWindow, make_windows


class _Conv(ConvolutionLayer):
    """Convolution with Keras's padding; per axis, out = ceil(n/s) for "same", see :func:`mxsame.ops.conv`.

    Parameters
    ----------
    channels : int
        Channels of the output.
    kernel_size : int or one int per axis
        Elements of the kernel.
    strides, dilation : int or one int per axis
        From one window to the next, and from one kernel element to the next; 1 by default. Both may be above 1.
    padding : str, int, or one int or (low, high) pair per axis
        "same" (the default: TensorFlow's rule, the extra padding element at the end), "valid", in 1-D also "causal".
        "keras-mxnet" is for networks trained in keras-mxnet: see :func:`mxsame.ops.conv`.
    groups : int
        In how many groups the channels of data and output are split, each with a convolution of its own; 1 by default.
    layout : str
        Channels first by default. With channels last the weight is (channels, \\*kernel_size, in_channels/groups).
    activation : str, optional
        "relu", "sigmoid", "tanh", "softrelu" or "softsign".
        Applied to the output; none by default.
    use_bias : bool
        Whether a bias is added; True by default.
    weight_initializer, bias_initializer : str or mx.init.Initializer, optional
        What `initialize` uses for them; by default its own argument for the weight, and zeros for the bias.
    in_channels : int
        Channels of the data; 0 to take them from the first input.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments when the layer is made, for data that does not fit when it is called.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = "same",
        dilation: Any = 1,
        groups: int = 1,
        layout: Optional[str] = None,
        activation: Optional[str] = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        prefix: Optional[str] = None,
        params: Any = None,
    ):
        super().__init__(
            kernel_size=kernel_size,
            strides=strides,
            padding=padding,
            dilation=dilation,
            layout=layout,
            activation=activation,
            use_bias=use_bias,
            in_channels=in_channels,
            prefix=prefix,
            params=params,
        )
        self._set_channels(channels, groups)
        self._add_parameters(weight_initializer, bias_initializer)

    def _windows(self, size: Tuple[int, ...]) -> Tuple[AnyWindow, ...]:
        return make_windows(size, self._kernel_size, self._strides, self._dilation, self._padding)

    def _shapes(self, in_channels: int) -> dict:
        return {"weight": self._weight_shape(self._channels, in_channels // self._groups, self._kernel_size)}

    def _known_in_channels(self) -> Optional[int]:
        share = self.weight.shape[-1 if self._channels_last else 1]
        return share * self._groups if share > 0 else None

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        out = ops.conv(x, weight, bias, channels=self._channels, groups=self._groups, **self._window_arguments())
        return self._activated(out)

    def __repr__(self) -> str:
        more = {} if self._groups == 1 else {"groups": self._groups}
        return self._representation(f"{self._known_in_channels()} -> {self._channels}", **more)


class Conv1D(_Conv):
    """1-D convolution: (N, C, W) -> (N, channels, W'); arguments as :class:`Conv2D`, and padding="causal".

    >>> import mxsame
    >>> mxsame.nn.Conv1D(8, 3, strides=2, padding="causal")
    Conv1D(None -> 8, kernel_size=(3,), strides=(2,), padding='causal')
    """

    num_spatial_dims = 1
    _words = CAUSAL_WORDS


class Conv2D(_Conv):
    __doc__ = f"""2-D convolution: (N, C, H, W) -> (N, channels, H', W').

    {_Conv.__doc__.strip()}

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> layer = mxsame.nn.Conv2D(64, 7, strides=2)
    >>> layer.initialize()
    >>> layer(nd.zeros((1, 3, 224, 224))).shape
    (1, 64, 112, 112)
    """
    num_spatial_dims = 2


class Conv3D(_Conv):
    """3-D convolution: (N, C, D, H, W) -> (N, channels, D', H', W'); arguments as :class:`Conv2D`.

    >>> import mxsame
    >>> mxsame.nn.Conv3D(8, (1, 3, 3), groups=2, in_channels=4)
    Conv3D(4 -> 8, kernel_size=(1, 3, 3), strides=(1, 1, 1), padding='same', groups=2)
    """

    num_spatial_dims = 3
