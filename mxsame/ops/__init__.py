"""Convolutions and pooling with Keras's padding, as functions of NDArray, Symbol and `mx.np.ndarray`."""

from typing import Any

import mxsame._mxnet  # noqa: F401 - first: it explains what is missing, NumPy included
from mxsame import suggestions
from mxsame.ops._conv import conv, depthwise_conv, separable_conv
from mxsame.ops._conv_transpose import conv_transpose
from mxsame.ops._pool import avg_pool, lp_pool, max_pool

__all__ = ["avg_pool", "conv", "conv_transpose", "depthwise_conv", "lp_pool", "max_pool", "separable_conv"]


def __getattr__(name: str) -> Any:
    """Raises an error with the operator that is likely meant."""
    raise suggestions.unknown_name(__name__, name, __all__)
