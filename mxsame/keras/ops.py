"""The convolutions and pooling of Keras 3, `keras.ops`, on NDArrays, Symbols and `mx.np` arrays.

Names, order and defaults of the arguments are those of Keras 3.11; values are those of Keras 3 on TensorFlow. Data and
kernels have the axes that :mod:`mxsame.keras.backend` describes; the number of axes selects 1-D, 2-D or 3-D.
Differences:

- Strides with dilation follow SAME's rule, as in Keras from 3.16 on.
- Depthwise and separable convolutions work in 3-D, too.
- A kernel that is a Symbol must have a static shape. If the graph does not fix the data's channels, the convolution has
  one group.

All functions raise `TypeError` or `ValueError` for wrong arguments, for shapes that do not fit together, and, with
"valid", for data shorter than the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional

from mxsame import suggestions, validation
from mxsame._mxnet import mx
from mxsame.keras._translate import KerasCall
from mxsame.types import DataFormat, Ints, KerasPadding

if TYPE_CHECKING:
    from mxsame._mxnet import Array

__all__ = ["average_pool", "conv", "conv_transpose", "depthwise_conv", "max_pool", "separable_conv"]


def __dir__() -> List[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Raises an error that suggests a similar name, or the module in which the function is found."""
    raise suggestions.unknown_name(__name__, name, __all__, {"mxnet.nd": mx.nd})


@validation.check_arguments
def conv(
    inputs: Array,
    kernel: Array,
    strides: Ints = 1,
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = 1,
) -> Array:
    """Compute a convolution; for "same" out = ceil(n/s), and the extra padding element is at the end.

    It computes what :func:`mxsame.ops.conv` does.

    Parameters
    ----------
    inputs : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    kernel : same kind as inputs
        `(*k, C/groups, channels)`: if it has fewer input channels than the data, the convolution has groups.
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last", optional
        :func:`mxsame.keras.backend.image_data_format` by default.

    Returns
    -------
    An array of the same kind as `inputs`: `(N, *out, channels)` or `(N, channels, *out)`.

    Raises
    ------
    TypeError, ValueError
        See :mod:`mxsame.keras.ops`.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> mxsame.keras.ops.conv(nd.ones((1, 224, 225, 3)), nd.ones((3, 3, 3, 8)), 2, "same").shape
    (1, 112, 113, 8)
    """
    return KerasCall({"inputs": inputs, "kernel": kernel}, data_format).conv(strides, padding, dilation_rate)


@validation.check_arguments
def depthwise_conv(
    inputs: Array,
    kernel: Array,
    strides: Ints = 1,
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = 1,
) -> Array:
    """Compute a depthwise convolution: the m kernels of channel c compute the output channels c*m .. c*m + m - 1.

    Parameters
    ----------
    inputs : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    kernel : same kind as inputs
        `(*k, C, m)`.
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last", optional
        :func:`mxsame.keras.backend.image_data_format` by default.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> mxsame.keras.ops.depthwise_conv(nd.ones((1, 9, 8, 3)), nd.ones((3, 3, 3, 2)), (2, 1), "same").shape
    (1, 5, 8, 6)
    """
    return KerasCall({"inputs": inputs, "kernel": kernel}, data_format).depthwise_conv(strides, padding, dilation_rate)


@validation.check_arguments
def separable_conv(
    inputs: Array,
    depthwise_kernel: Array,
    pointwise_kernel: Array,
    strides: Ints = 1,
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = 1,
) -> Array:
    """Compute a depthwise convolution with the strides, padding and dilation, then a 1x1 convolution.

    Parameters
    ----------
    inputs : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format. float32 or float64 on the CPU.
    depthwise_kernel : same kind as inputs
        `(*k, C, m)`.
    pointwise_kernel : same kind as inputs
        (1, .., C*m, channels).
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last", optional
        :func:`mxsame.keras.backend.image_data_format` by default.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> inputs, depthwise, pointwise = nd.ones((1, 9, 3)), nd.ones((3, 3, 2)), nd.ones((1, 6, 4))
    >>> mxsame.keras.ops.separable_conv(inputs, depthwise, pointwise, 2, "same").shape
    (1, 5, 4)
    """
    arrays = {"inputs": inputs, "depthwise_kernel": depthwise_kernel, "pointwise_kernel": pointwise_kernel}
    return KerasCall(arrays, data_format).depthwise_conv(strides, padding, dilation_rate)


@validation.check_arguments
def conv_transpose(
    inputs: Array,
    kernel: Array,
    strides: Ints = 1,
    padding: KerasPadding = "valid",
    output_padding: Optional[Ints] = None,
    data_format: Optional[DataFormat] = None,
    dilation_rate: Ints = 1,
) -> Array:
    """Compute a transposed convolution.

    :func:`mxsame.ops.conv_transpose` has the formula of the output's size, without and with `output_padding`.

    Parameters
    ----------
    inputs : NDArray, Symbol or mx.np.ndarray
        `(N, *size, I)` or `(N, I, *size)`, by the data format.
    kernel : same kind as inputs
        `(*k, O, I)`.
    strides, dilation_rate : int or one int per axis
    padding : "same" or "valid"
    output_padding : int or one int per axis, optional
        Less than the stride. The default, None, is not the same as 0.
    data_format : "channels_first" or "channels_last", optional
        :func:`mxsame.keras.backend.image_data_format` by default.

    Raises
    ------
    TypeError, ValueError
        See :mod:`mxsame.keras.ops`; also for an output padding whose output size no convolution maps to the data's.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> inputs, kernel = nd.ones((1, 4, 4, 8)), nd.ones((3, 3, 2, 8))
    >>> mxsame.keras.ops.conv_transpose(inputs, kernel, 2, "same", output_padding=(0, 1)).shape
    (1, 7, 8, 2)
    """
    call = KerasCall({"inputs": inputs, "kernel": kernel}, data_format)
    return call.conv_transpose(strides, padding, dilation_rate, output_padding=output_padding)


@validation.check_arguments
def max_pool(
    inputs: Array,
    pool_size: Ints,
    strides: Optional[Ints] = None,
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
) -> Array:
    """Compute the maximum over windows of the data; padding is never the maximum.

    Parameters
    ----------
    inputs : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format.
    pool_size : int or one int per axis
    strides : int or one int per axis; the pool size by default
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last", optional
        :func:`mxsame.keras.backend.image_data_format` by default.

    Returns
    -------
    An array of the same kind as `inputs`: `(N, *out, C)` or `(N, C, *out)`; out = ceil(n/s) for "same".

    Raises
    ------
    TypeError, ValueError
        See :mod:`mxsame.keras.ops`.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> mxsame.keras.ops.max_pool(nd.ones((1, 15, 14, 3)), 2, padding="same").shape
    (1, 8, 7, 3)
    """
    return _pool("max", inputs, pool_size, strides, padding, data_format)


@validation.check_arguments
def average_pool(
    inputs: Array,
    pool_size: Ints,
    strides: Optional[Ints] = None,
    padding: KerasPadding = "valid",
    data_format: Optional[DataFormat] = None,
) -> Array:
    """Compute the mean of the elements of the data in each window; padding does not count.

    Parameters
    ----------
    inputs : NDArray, Symbol or mx.np.ndarray
        `(N, *size, C)` or `(N, C, *size)`, by the data format.
    pool_size : int or one int per axis
    strides : int or one int per axis; the pool size by default
    padding : "same" or "valid"
    data_format : "channels_first" or "channels_last", optional
        :func:`mxsame.keras.backend.image_data_format` by default.

    Examples
    --------
    >>> import mxsame.keras
    >>> from mxnet import nd
    >>> inputs = nd.array([1, 2, 3]).reshape((1, 3, 1))
    >>> mxsame.keras.ops.average_pool(inputs, 2, padding="same").asnumpy().ravel().tolist()
    [1.5, 3.0]
    """
    return _pool("avg", inputs, pool_size, strides, padding, data_format)


def _pool(mode: str, inputs: Array, pool_size: Ints, strides: Any, padding: Any, data_format: Any) -> Any:
    call = KerasCall({"inputs": inputs}, data_format, pool_size=pool_size)
    return call.pool(pool_size, strides, padding, mode)
