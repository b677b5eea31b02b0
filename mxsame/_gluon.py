"""The public names that need MXNet, from where they are made; `mxsame/__init__.py` says when they are imported."""

from mxsame import _mxnet  # noqa: F401, I001 - first: it makes `import mxnet` work
from mxsame import nn, ops
from mxsame.deploy import deploy
from mxsame.graph import export, hybridize
from mxsame.tune import autotune

__all__ = ["autotune", "deploy", "export", "hybridize", "nn", "ops"]
