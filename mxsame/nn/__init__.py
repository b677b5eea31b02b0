"""Gluon layers with Keras's padding: arguments, parameter names and shapes of `mxnet.gluon.nn`, `padding="same"`; and
Gluon's containers. All are hybridized by `mxsame.hybridize`."""

from typing import Any

from mxsame import validation
from mxsame._mxnet import mx  # first: it explains what is missing, NumPy included
from mxsame.graphs.hybridize import HybridBlock, HybridSequential
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


def __getattr__(name: str) -> Any:
    """Where a layer is that is not here, or has another name here."""
    raise validation.unknown_name(
        __name__, name, __all__, {"mxnet.gluon.nn": mx.gluon.nn, "mxnet.gluon.rnn": mx.gluon.rnn}
    )
