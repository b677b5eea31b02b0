"""Keras's functions for MXNet arrays, with Keras's names, arguments, kernel layouts and padding.

==========  ===========================================================
module      contents
==========  ===========================================================
`backend`   functions of Keras 2's `keras.backend`, such as `conv2d`
`ops`       functions of Keras 3's `keras.ops`, such as `conv`
`layouts`   converts kernels from Keras's order of axes to MXNet's, and back
`plugin`    `install`, `uninstall` and `installed`: exact layers in keras-mxnet
==========  ===========================================================

This package imports neither TensorFlow nor Keras.
"""

from typing import Any

import mxsame._mxnet  # noqa: F401 - imported first: it reports what is missing, NumPy included
from mxsame import suggestions
from mxsame.keras import backend, layouts, ops, plugin
from mxsame.keras.plugin import install, installed, uninstall

__all__ = ["backend", "install", "installed", "layouts", "ops", "plugin", "uninstall"]
__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    """Raises an error that suggests the function with a similar name, and its module."""
    raise suggestions.unknown_name(__name__, name, __all__, {f"{__name__}.backend": backend, f"{__name__}.ops": ops})
