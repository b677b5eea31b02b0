"""The convolution and pooling functions of `keras.backend` (Keras 2), for NDArrays, Symbols and `mx.np` arrays.

Names, order and defaults of the arguments are those of tf.keras 2.13, and so are the orders of axes: data is
`(batch, *size, channels)` with "channels_last" and `(batch, channels, *size)` with "channels_first"; kernels are as
tf.keras stores them, whatever the data format (:mod:`mxsame.keras.layouts` has the table). Differences:

- An integer can replace a sequence of one per axis, and strings may be in any case.
- Strides with dilation, and different strides along the axes of a depthwise convolution, follow SAME's rule; TensorFlow
  on the CPU refuses them or ignores the strides.
- conv1d with "causal" and "channels_first" pads the start of the axis; tf.keras 2.13 pads the channels.
- A kernel that is a Symbol must have a static shape. If the graph does not fix the data's channels, the convolution has
  one group.
- There is no 1-D pooling, as in Keras: its layers add an axis of length 1 to the data, and use :func:`pool2d` with a
  pool size of 1 along it. `mxsame.keras.ops` has 1-D pooling and 1-D transposed convolutions.

All functions raise `TypeError` or `ValueError` for wrong arguments, for shapes that do not fit together, and, with
"valid", for data shorter than the kernel.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, List, Optional, Union

from mxsame import suggestions, validation
from mxsame._mxnet import mx
from mxsame.keras._translate import (
    SAME_VALID_OR_CAUSAL,
    KerasCall,
    image_data_format as image_data_format,
    set_image_data_format as set_image_data_format,
)
from mxsame.types import Causal, DataFormat, Ints, KerasPadding, PoolMode, Shape

if TYPE_CHECKING:
    from mxsame._mxnet import Array


def __dir__() -> List[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Raises an error that names the module in which the function is found."""
    raise suggestions.unknown_name(__name__, name, __all__, {"mxnet.nd": mx.nd})


@validation.check_arguments
def conv1d(
    x: Array,
    kernel: Array,
    strides: Ints = 1,
    padding: Union[KerasPadding, Causal] = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = 1,
) -> Array:
    """Compute a 1-D convolution.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    kernel : same kind as x
        `(*k, C/groups, channels)`: if it has fewer input channels than the data, the convolution has groups.
    strides, dilation_rate : int
    padding : "same", "valid" or "causal"
        "causal" adds (k-1)*d zeros before the data, and none after it.
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> x, kernel = nd.arange(5).reshape((1, 5, 1)), nd.ones((2, 1, 1))
    >>> mxsame.keras.backend.conv1d(x, kernel, strides=2, padding="same").asnumpy().ravel().tolist()
    [1.0, 5.0, 4.0]
    >>> mxsame.keras.backend.conv1d(x, kernel, strides=2, padding="causal").asnumpy().ravel().tolist()
    [0.0, 3.0, 7.0]
    """
    return KerasCall({"x": x, "kernel": kernel}, data_format, 1).conv(
        strides, padding, dilation_rate, SAME_VALID_OR_CAUSAL
    )


@validation.check_arguments
def conv2d(
    x: Array,
    kernel: Array,
    strides: Ints = (1, 1),
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = (1, 1),
) -> Array:
    """Compute a 2-D convolution; for "same" out = ceil(n/s), and the extra padding element is at the end.

    It computes what :func:`mxsame.ops.conv` does.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    kernel : same kind as x
        `(*k, C/groups, channels)`: if it has fewer input channels than the data, the convolution has groups.
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default

    Returns
    -------
    An array of the same kind as `x`: `(N, *out, channels)` or `(N, channels, *out)`.

    Raises
    ------
    TypeError, ValueError
        See :mod:`mxsame.keras.backend`.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> x, kernel = nd.ones((1, 224, 225, 3)), nd.ones((3, 3, 3, 8))
    >>> mxsame.keras.backend.conv2d(x, kernel, (2, 2), "same").shape
    (1, 112, 113, 8)
    """
    return KerasCall({"x": x, "kernel": kernel}, data_format, 2).conv(strides, padding, dilation_rate)


@validation.check_arguments
def conv3d(
    x: Array,
    kernel: Array,
    strides: Ints = (1, 1, 1),
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = (1, 1, 1),
) -> Array:
    """Compute a 3-D convolution; for "same" out = ceil(n/s), and the extra padding element is at the end.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    kernel : same kind as x
        `(*k, C/groups, channels)`: if it has fewer input channels than the data, the convolution has groups.
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> x, kernel = nd.ones((1, 3, 7, 6, 5)), nd.ones((3, 3, 3, 3, 8))
    >>> mxsame.keras.backend.conv3d(x, kernel, (2, 1, 1), "same", "channels_first").shape
    (1, 8, 4, 6, 5)
    """
    return KerasCall({"x": x, "kernel": kernel}, data_format, 3).conv(strides, padding, dilation_rate)


@validation.check_arguments
def conv2d_transpose(
    x: Array,
    kernel: Array,
    output_shape: Optional[Shape],
    strides: Ints = (1, 1),
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = (1, 1),
) -> Array:
    """Compute a 2-D transposed convolution: the gradient of the convolution from `output_shape` to the shape of `x`.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, I)` or `(N, I, *size)`, by the data format.
    kernel : same kind as x
        `(*k, O, I)`.
    output_shape : one int or None per axis, or None
        `(N, *out, O)` or `(N, O, *out)`, by the data format; a sequence or an array of integers. The convolution must
        map each out to the data's length. None selects the default: out = n*s for "same" and (n-1)s + max(ke, s) for
        "valid".
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default

    Raises
    ------
    TypeError, ValueError
        See :mod:`mxsame.keras.backend`; also for an output shape that no such convolution maps to the data's.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> x, kernel = nd.ones((1, 4, 4, 8)), nd.ones((3, 3, 2, 8))
    >>> mxsame.keras.backend.conv2d_transpose(x, kernel, (None, 7, 8, 2), (2, 2), "same").shape
    (1, 7, 8, 2)
    """
    call = KerasCall({"x": x, "kernel": kernel}, data_format, 2)
    return call.conv_transpose(strides, padding, dilation_rate, output_shape=output_shape)


@validation.check_arguments
def conv3d_transpose(
    x: Array,
    kernel: Array,
    output_shape: Optional[Shape],
    strides: Ints = (1, 1, 1),
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
) -> Array:
    """Compute a 3-D transposed convolution: the gradient of the convolution from `output_shape` to the shape of `x`.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, I)` or `(N, I, *size)`, by the data format.
    kernel : same kind as x
        `(*k, O, I)`.
    output_shape : one int or None per axis, or None
        `(N, *out, O)` or `(N, O, *out)`, by the data format; :func:`conv2d_transpose` explains what is possible.
    strides : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> x, kernel = nd.ones((1, 2, 3, 4, 8)), nd.ones((3, 3, 3, 2, 8))
    >>> mxsame.keras.backend.conv3d_transpose(x, kernel, (1, 4, 6, 7, 2), (2, 2, 2), "same").shape
    (1, 4, 6, 7, 2)
    """
    call = KerasCall({"x": x, "kernel": kernel}, data_format, 3)
    return call.conv_transpose(strides, padding, output_shape=output_shape)


@validation.check_arguments
def depthwise_conv2d(
    x: Array,
    depthwise_kernel: Array,
    strides: Ints = (1, 1),
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = (1, 1),
) -> Array:
    """Compute a 2-D depthwise convolution: the m kernels of channel c compute the output channels c*m .. c*m + m - 1.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    depthwise_kernel : same kind as x
        `(*k, C, m)`.
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> x, kernel = nd.ones((1, 9, 8, 3)), nd.ones((3, 3, 3, 2))
    >>> mxsame.keras.backend.depthwise_conv2d(x, kernel, (2, 2), "same").shape
    (1, 5, 4, 6)
    """
    arrays = {"x": x, "depthwise_kernel": depthwise_kernel}
    return KerasCall(arrays, data_format, 2).depthwise_conv(strides, padding, dilation_rate)


@validation.check_arguments
def separable_conv1d(
    x: Array,
    depthwise_kernel: Array,
    pointwise_kernel: Array,
    strides: Ints = 1,
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = 1,
) -> Array:
    """Compute a 1-D depthwise convolution with the stride, padding and dilation, then a 1x1 convolution.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    depthwise_kernel : same kind as x
        (k, C, m).
    pointwise_kernel : same kind as x
        (1, C*m, channels).
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> x, depthwise, pointwise = nd.ones((1, 9, 3)), nd.ones((3, 3, 2)), nd.ones((1, 6, 4))
    >>> mxsame.keras.backend.separable_conv1d(x, depthwise, pointwise, 2, "same").shape
    (1, 5, 4)
    """
    arrays = {"x": x, "depthwise_kernel": depthwise_kernel, "pointwise_kernel": pointwise_kernel}
    return KerasCall(arrays, data_format, 1).depthwise_conv(strides, padding, dilation_rate)


@validation.check_arguments
def separable_conv2d(
    x: Array,
    depthwise_kernel: Array,
    pointwise_kernel: Array,
    strides: Ints = (1, 1),
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = (1, 1),
) -> Array:
    """Compute a 2-D depthwise convolution with the strides, padding and dilation, then a 1x1 convolution.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    depthwise_kernel : same kind as x
        `(*k, C, m)`.
    pointwise_kernel : same kind as x
        (1, 1, C*m, channels).
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> x, depthwise, pointwise = nd.ones((1, 9, 8, 3)), nd.ones((3, 3, 3, 2)), nd.ones((1, 1, 6, 4))
    >>> mxsame.keras.backend.separable_conv2d(x, depthwise, pointwise, (2, 2), "same").shape
    (1, 5, 4, 4)
    """
    arrays = {"x": x, "depthwise_kernel": depthwise_kernel, "pointwise_kernel": pointwise_kernel}
    return KerasCall(arrays, data_format, 2).depthwise_conv(strides, padding, dilation_rate)


@validation.check_arguments
def pool2d(
    x: Array,
    pool_size: Ints,
    strides: Ints = (1, 1),
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    pool_mode: PoolMode = "max",
) -> Array:
    """Compute 2-D pooling; padding is never the maximum, and does not count in the mean.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format.
    pool_size, strides : int or one int per axis
        The strides are 1 by default, not the pool size.
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default
    pool_mode : "max" or "avg"

    Returns
    -------
    An array of the same kind as `x`: `(N, *out, C)` or `(N, C, *out)`; out = ceil(n/s) for "same".

    Raises
    ------
    TypeError, ValueError
        See :mod:`mxsame.keras.backend`.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> mxsame.keras.backend.pool2d(nd.ones((1, 15, 14, 3)), (2, 2), (2, 2), "same").shape
    (1, 8, 7, 3)

    1-D pooling, as in Keras's layers:

    >>> x = nd.array([1, 2, 3]).reshape((1, 3, 1))
    >>> wide = mxsame.keras.backend.pool2d(x.expand_dims(2), (2, 1), (2, 1), "same", pool_mode="avg")
    >>> wide.squeeze(2).asnumpy().ravel().tolist()
    [1.5, 3.0]
    """
    return KerasCall({"x": x}, data_format, 2).pool(pool_size, strides, padding, pool_mode)


@validation.check_arguments
def pool3d(
    x: Array,
    pool_size: Ints,
    strides: Ints = (1, 1, 1),
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    pool_mode: PoolMode = "max",
) -> Array:
    """Compute 3-D pooling; padding is never the maximum, and does not count in the mean.

    Parameters
    ----------
    x : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format.
    pool_size, strides : int or one int per axis
        The strides are 1 by default, not the pool size.
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last"; :func:`image_data_format` by default
    pool_mode : "max" or "avg"

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> mxsame.keras.backend.pool3d(nd.ones((1, 5, 4, 3, 2)), (2, 2, 2), (2, 2, 2), "same").shape
    (1, 3, 2, 2, 2)
    """
    return KerasCall({"x": x}, data_format, 3).pool(pool_size, strides, padding, pool_mode)


__all__ = [name for name, each in globals().items() if inspect.isfunction(each) and not name.startswith("_")]
