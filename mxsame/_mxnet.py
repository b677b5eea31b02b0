"""MXNet. All other files of the package write ``from mxsame._mxnet import mx``; none says ``import mxnet``."""

from typing import Any

from mxsame.installation.importing import import_mxnet

mx: Any = import_mxnet()
