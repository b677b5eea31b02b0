"""Convolutions and poolings with Keras's padding, as functions of NDArray, Symbol and `mx.np.ndarray` alike."""

from mxsame.ops.conv import conv, depthwise_conv, separable_conv
from mxsame.ops.conv_transpose import conv_transpose
from mxsame.ops.pool import avg_pool, max_pool

__all__ = ["avg_pool", "conv", "conv_transpose", "depthwise_conv", "max_pool", "separable_conv"]
