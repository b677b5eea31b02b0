"""Gluon layers with `padding="same"` as in Keras, and Gluon's containers.

Arguments, parameter names and shapes are those of `mxnet.gluon.nn`. The `hybridize()` of all of them is
`mxsame.hybridize`."""

from typing import Any

from mxsame import suggestions
from mxsame._mxnet import mx  # first: it explains what is missing, NumPy included
from mxsame.graphs.hybridize import HybridBlock as HybridBlock, HybridSequential as HybridSequential
from mxsame.nn.conv import Conv1D as Conv1D, Conv2D as Conv2D, Conv3D as Conv3D
from mxsame.nn.conv_transpose import (
    Conv1DTranspose as Conv1DTranspose,
    Conv2DTranspose as Conv2DTranspose,
    Conv3DTranspose as Conv3DTranspose,
)
from mxsame.nn.depthwise import (
    DepthwiseConv1D as DepthwiseConv1D,
    DepthwiseConv2D as DepthwiseConv2D,
    DepthwiseConv3D as DepthwiseConv3D,
    SeparableConv1D as SeparableConv1D,
    SeparableConv2D as SeparableConv2D,
    SeparableConv3D as SeparableConv3D,
)
from mxsame.nn.pool import (
    AvgPool1D as AvgPool1D,
    AvgPool2D as AvgPool2D,
    AvgPool3D as AvgPool3D,
    LpPool1D as LpPool1D,
    LpPool2D as LpPool2D,
    LpPool3D as LpPool3D,
    MaxPool1D as MaxPool1D,
    MaxPool2D as MaxPool2D,
    MaxPool3D as MaxPool3D,
)

__all__ = [name for name, each in globals().items() if isinstance(each, type) and issubclass(each, mx.gluon.Block)]
__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    """Raises an error with the module that has a layer, or with its name here."""
    raise suggestions.unknown_name(
        __name__, name, __all__, {"mxnet.gluon.nn": mx.gluon.nn, "mxnet.gluon.rnn": mx.gluon.rnn}
    )
