"""Gluon layers with Keras's padding: arguments, parameter names and shapes of `mxnet.gluon.nn`, `padding="same"`; and
Gluon's containers, hybridized by `mxsame.hybridize`."""

from importlib import import_module
from typing import Any, List

import mxsame._mxnet  # noqa: F401 - first: it explains what is missing, NumPy included
from mxsame.nn.conv import Conv1D, Conv2D, Conv3D
from mxsame.nn.conv_transpose import Conv1DTranspose, Conv2DTranspose, Conv3DTranspose
from mxsame.nn.depthwise import (
    DepthwiseConv1D,
    DepthwiseConv2D,
    DepthwiseConv3D,
    SeparableConv1D,
    SeparableConv2D,
    SeparableConv3D,
)
from mxsame.nn.pool import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    LpPool1D,
    LpPool2D,
    LpPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
)

__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "DepthwiseConv3D",
    "HybridBlock",
    "HybridSequential",
    "LpPool1D",
    "LpPool2D",
    "LpPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "SeparableConv1D",
    "SeparableConv2D",
    "SeparableConv3D",
]

# Public here, as in Gluon, and defined in a room that is built on this one: so each is imported when it is first used.
_CONTAINERS = {"HybridBlock": "mxsame.graphs.hybridize", "HybridSequential": "mxsame.graphs.hybridize"}


def __getattr__(name: str) -> Any:
    """A container."""
    if name not in _CONTAINERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(_CONTAINERS[name]), name)
    return globals()[name]


def __dir__() -> List[str]:
    return sorted({*globals(), *_CONTAINERS})
