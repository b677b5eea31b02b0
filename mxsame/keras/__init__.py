"""Keras's own names, arguments and kernel layouts on MXNet arrays, with Keras's padding.

==========  ===========================================================
module      what it has
==========  ===========================================================
`backend`   the functions of Keras 2's backend, `keras.backend.conv2d` and the like
`ops`       those of Keras 3, `keras.ops.conv` and the like
`layouts`   kernels from Keras to MXNet and back
`plugin`    `install`, `uninstall` and `installed`: exact layers in keras-mxnet
==========  ===========================================================

Importing this imports neither TensorFlow nor Keras.
"""

from typing import Any

import mxsame._mxnet  # noqa: F401 - first: it explains what is missing, NumPy included
from mxsame import validation
from mxsame.keras import backend, layouts, ops, plugin
from mxsame.keras.plugin import install, installed, uninstall

__all__ = ["backend", "install", "installed", "layouts", "ops", "plugin", "uninstall"]


def __getattr__(name: str) -> Any:
    """Raises an error with the name that is likely meant, in a module of this one."""
    raise validation.unknown_name(__name__, name, __all__, {f"{__name__}.backend": backend, f"{__name__}.ops": ops})
