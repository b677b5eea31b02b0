"""Keras's and TensorFlow's `padding="same"`, exact and fast, on Apache MXNet 1.9.1 and Gluon.

>>> import mxsame
>>> net = mxsame.nn.Conv2D(64, 3, strides=2)  # as gluon.nn.Conv2D, with Keras's padding
>>> net.initialize()
>>> net.hybridize()
>>> from mxnet import nd
>>> net(nd.zeros((1, 3, 32, 30))).shape
(1, 64, 16, 15)
"""

from mxsame import _mxnet  # noqa: F401, I001 - first: it makes `import mxnet` work
from mxsame import nn, ops, padding, plan, planner
from mxsame.deploy import deploy
from mxsame.drawing import plot_padding
from mxsame.graph import export, hybridize
from mxsame.tune import autotune

__all__ = [
    "__version__",
    "autotune",
    "deploy",
    "export",
    "hybridize",
    "nn",
    "ops",
    "padding",
    "plan",
    "planner",
    "plot_padding",
]

__version__ = "0.1.0"
