"""Pooling layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from mxsame._mxnet import mx
from mxsame.nn._layer import Layer
from mxsame.ops._pool import PoolSpec
from mxsame.types import Ints, Layout, Padding

if TYPE_CHECKING:
    from mxsame._mxnet import ParameterDict


class _Pool(Layer):
    """Base of the pooling layers."""

    def _alias(self) -> str:
        return "pool"  # as in gluon.nn

    def _repr_arguments(self) -> dict:
        """Returns the subclass's own arguments that `repr` shows."""
        return {}

    def __repr__(self) -> str:
        names = "pool_size", "strides", "padding", "layout", "ceil_mode"
        arguments = {**{name: getattr(self._spec, name) for name in names}, **self._repr_arguments()}
        arguments["padding"] = repr(self._spec.padding)
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in arguments.items())})"


class _MaxPool(_Pool):
    """Max pooling with Keras's padding, which is never the maximum; see :func:`mxsame.ops.max_pool`.

    The rule of "same" is that of :class:`mxsame.nn.Conv2D`, with the pool size for the kernel size.

    Under `net.hybridize()` of Gluon's containers, windows of 2 with stride 2 do not accept an axis of one element. With
    other windows, such as 3 with stride 2, an infinity can become NaN in the outputs of neighboring windows.
    With `mxsame.hybridize` neither restriction applies; with files of `mxsame.export` only the second does.

    Parameters
    ----------
    pool_size : int or one int per axis
        Elements of the window; 2 by default.
    strides : int or one int per axis
        The pool size by default.
    padding : str, int, or one int or (low, high) pair per axis
        "same" by default, "valid", or explicit: less than the pool size. An int pads both ends.
        "keras-mxnet" is for networks trained in keras-mxnet: see :func:`mxsame.ops.max_pool`.
    layout : str
        "NCW", "NCHW" or "NCDHW" by default; "NWC", "NHWC" or "NDHWC" for channels last.
    ceil_mode : bool
        With "valid" and explicit pads, whether to include a partial window at the end; False by default.
    prefix : str, optional
        What the layer's name starts with; `pool0_`, `pool1_`, ... by default.
    params : gluon.ParameterDict, optional
        Ignored, for compatibility with other Blocks.

    Inputs
    ------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, C, *size)`, or `(N, *size, C)` with channels last.

    Outputs
    -------
    out : same kind as data
        `(N, C, *size')`, or `(N, *size', C)`.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments when the layer is constructed, and for data that does not fit when it is called.
    """

    def __init__(
        self,
        pool_size: Ints = 2,
        strides: Optional[Ints] = None,
        padding: Padding = "same",
        layout: Optional[Layout] = None,
        ceil_mode: bool = False,
        prefix: Optional[str] = None,
        params: Optional[ParameterDict] = None,
    ):
        super().__init__(PoolSpec("max", pool_size, strides, padding, layout, None, ceil_mode), prefix, params)


class _AvgPool(_Pool):
    """Average pooling with Keras's padding: the mean of the elements inside the data, see :func:`mxsame.ops.avg_pool`.

    The order of the arguments is that of `gluon.nn`, where `ceil_mode` is before the layout.

    Parameters
    ----------
    pool_size : int or one int per axis
        Elements of the window; 2 by default.
    strides : int or one int per axis
        The pool size by default.
    padding : str, int, or one int or (low, high) pair per axis
        "same" by default, "valid", or explicit: less than the pool size. An int pads both ends.
        "keras-mxnet" is for networks trained in keras-mxnet: see :func:`mxsame.ops.max_pool`.
    ceil_mode : bool
        With "valid" and explicit pads, whether to include a partial window at the end; False by default.
    layout : str
        "NCW", "NCHW" or "NCDHW" by default; "NWC", "NHWC" or "NDHWC" for channels last.
    count_include_pad : bool, optional
        Whether padding counts as zeros. By default it does not, as in Keras; in `gluon.nn` it does. With "keras-mxnet"
        padding always counts.
    prefix : str, optional
        What the layer's name starts with; `pool0_`, `pool1_`, ... by default.
    params : gluon.ParameterDict, optional
        Ignored, for compatibility with other Blocks.

    Inputs
    ------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, C, *size)`, or `(N, *size, C)` with channels last.

    Outputs
    -------
    out : same kind as data
        `(N, C, *size')`, or `(N, *size', C)`.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments when the layer is constructed, and for data that does not fit when it is called.
    """

    def __init__(
        self,
        pool_size: Ints = 2,
        strides: Optional[Ints] = None,
        padding: Padding = "same",
        ceil_mode: bool = False,
        layout: Optional[Layout] = None,
        count_include_pad: Optional[bool] = None,
        prefix: Optional[str] = None,
        params: Optional[ParameterDict] = None,
    ):
        spec = PoolSpec("avg", pool_size, strides, padding, layout, None, ceil_mode, 2, count_include_pad)
        super().__init__(spec, prefix, params)

    def _repr_arguments(self) -> dict:
        return {"count_include_pad": self._spec.count_include_pad}


class _LpPool(_Pool):
    """Lp pooling with Keras's padding: (sum of x^p)^(1/p) over a window, see :func:`mxsame.ops.lp_pool`.

    Parameters
    ----------
    pool_size : int or one int per axis
        Elements of the window; 2 by default.
    strides : int or one int per axis
        The pool size by default.
    padding : str, int, or one int or (low, high) pair per axis
        "same" by default, "valid", or explicit: less than the pool size. An int pads both ends.
        "keras-mxnet" is for networks trained in keras-mxnet: see :func:`mxsame.ops.max_pool`.
    layout : str
        "NCW", "NCHW" or "NCDHW" by default; "NWC", "NHWC" or "NDHWC" for channels last.
    ceil_mode : bool
        With "valid" and explicit pads, whether to include a partial window at the end; False by default.
    p_value : 1, 2 or 3
        The order p of the norm, as in `mxnet.nd.Pooling`; 2 by default.
    prefix : str, optional
        What the layer's name starts with; `pool0_`, `pool1_`, ... by default.
    params : gluon.ParameterDict, optional
        Ignored, for compatibility with other Blocks.

    Inputs
    ------
    data : NDArray, Symbol or mx.np.ndarray
        `(N, C, *size)`, or `(N, *size, C)` with channels last.

    Outputs
    -------
    out : same kind as data
        `(N, C, *size')`, or `(N, *size', C)`.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments when the layer is constructed, and for data that does not fit when it is called.
    """

    def __init__(
        self,
        pool_size: Ints = 2,
        strides: Optional[Ints] = None,
        padding: Padding = "same",
        layout: Optional[Layout] = None,
        ceil_mode: bool = False,
        p_value: int = 2,
        prefix: Optional[str] = None,
        params: Optional[ParameterDict] = None,
    ):
        super().__init__(PoolSpec("lp", pool_size, strides, padding, layout, None, ceil_mode, p_value), prefix, params)

    def _repr_arguments(self) -> dict:
        return {"p_value": self._spec.p_value}


class MaxPool1D(_MaxPool, mx.gluon.nn.MaxPool1D, num_spatial_dims=1):
    """1-D max pooling: (N, C, W) -> (N, C, W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.MaxPool1D(3, 2)
    MaxPool1D(pool_size=(3,), strides=(2,), padding='same', layout=NCW, ceil_mode=False)
    """


class MaxPool2D(_MaxPool, mx.gluon.nn.MaxPool2D, num_spatial_dims=2):
    """2-D max pooling: (N, C, H, W) -> (N, C, H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.nn.MaxPool2D()(nd.zeros((1, 8, 7, 7))).shape
    (1, 8, 4, 4)
    """


class MaxPool3D(_MaxPool, mx.gluon.nn.MaxPool3D, num_spatial_dims=3):
    """3-D max pooling: (N, C, D, H, W) -> (N, C, D', H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.MaxPool3D((1, 2, 2))
    MaxPool3D(pool_size=(1, 2, 2), strides=(1, 2, 2), padding='same', layout=NCDHW, ceil_mode=False)
    """


class AvgPool1D(_AvgPool, mx.gluon.nn.AvgPool1D, num_spatial_dims=1):
    """1-D average pooling: (N, C, W) -> (N, C, W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.AvgPool1D(3, 2)
    AvgPool1D(pool_size=(3,), strides=(2,), padding='same', layout=NCW, ceil_mode=False, count_include_pad=False)
    """


class AvgPool2D(_AvgPool, mx.gluon.nn.AvgPool2D, num_spatial_dims=2):
    """2-D average pooling: (N, C, H, W) -> (N, C, H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.nn.AvgPool2D(2)(nd.array([[[[1, 2, 3]]]])).asnumpy().tolist()
    [[[[1.5, 3.0]]]]
    """


class AvgPool3D(_AvgPool, mx.gluon.nn.AvgPool3D, num_spatial_dims=3):
    """3-D average pooling: (N, C, D, H, W) -> (N, C, D', H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.AvgPool3D(2, layout="NDHWC")
    AvgPool3D(pool_size=(2, 2, 2), ..., layout=NDHWC, ceil_mode=False, count_include_pad=False)
    """


class LpPool1D(_LpPool, num_spatial_dims=1):
    """1-D Lp pooling: (N, C, W) -> (N, C, W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.LpPool1D(3, 2, p_value=1)
    LpPool1D(pool_size=(3,), strides=(2,), padding='same', layout=NCW, ceil_mode=False, p_value=1)
    """


class LpPool2D(_LpPool, num_spatial_dims=2):
    """2-D Lp pooling: (N, C, H, W) -> (N, C, H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> mxsame.nn.LpPool2D()(nd.array([[[[3, 4, -5]]]])).asnumpy().tolist()
    [[[[5.0, 5.0]]]]
    """


class LpPool3D(_LpPool, num_spatial_dims=3):
    """3-D Lp pooling: (N, C, D, H, W) -> (N, C, D', H', W').

    {shared}

    Examples
    --------
    >>> import mxsame
    >>> mxsame.nn.LpPool3D(2, layout="NDHWC")
    LpPool3D(pool_size=(2, 2, 2), ..., layout=NDHWC, ceil_mode=False, p_value=2)
    """
