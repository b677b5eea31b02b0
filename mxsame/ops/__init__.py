"""Convolutions and pooling with Keras's padding, as functions of NDArray, Symbol and `mx.np.ndarray`."""

import mxsame._mxnet  # noqa: F401 - first: it explains what is missing, NumPy included
from mxsame.ops import conv as _conv
from mxsame.ops import conv_transpose as _conv_transpose
from mxsame.ops import pool as _pool
from mxsame.target import lowered_later

conv = lowered_later(_conv.conv)
depthwise_conv = lowered_later(_conv.depthwise_conv)
separable_conv = lowered_later(_conv.separable_conv)
conv_transpose = lowered_later(_conv_transpose.conv_transpose)
avg_pool = lowered_later(_pool.avg_pool)
lp_pool = lowered_later(_pool.lp_pool)
max_pool = lowered_later(_pool.max_pool)

__all__ = ["avg_pool", "conv", "conv_transpose", "depthwise_conv", "lp_pool", "max_pool", "separable_conv"]
