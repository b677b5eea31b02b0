"""Keras's and TensorFlow's `padding="same"`, exact and fast, on Apache MXNet 1.9.1 and Gluon.

>>> import mxsame
>>> net = mxsame.nn.Conv2D(64, 3, strides=2)  # as gluon.nn.Conv2D, with Keras's padding
>>> net.initialize()
>>> net.hybridize()
>>> from mxnet import nd
>>> net(nd.zeros((1, 3, 32, 30))).shape
(1, 64, 16, 15)
"""

import os
import sys
from typing import TYPE_CHECKING

from mxsame import padding, plan, planner
from mxsame.drawing import plot_padding

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


def _imported_by_the_command_line() -> bool:
    """Whether it is `python -m mxsame`, or the script `mxsame`, that imports this package.

    Then the names that need MXNet come when they are used, so that `mxsame doctor` and `mxsame pads` run where MXNet
    does not. Asked is who imports, not what the process is called: under `python -m theirs` it is somebody's package.
    """
    frame = sys._getframe(2)  # who executes this module: importlib, on behalf of somebody
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    name, file = (str(frame.f_globals.get(key)) for key in ("__name__", "__file__"))
    return name == "runpy" or (name == "__main__" and os.path.basename(file) == "mxsame")


if TYPE_CHECKING or not _imported_by_the_command_line():
    from mxsame._gluon import autotune, deploy, export, hybridize, nn, ops
else:

    def __getattr__(name: str) -> object:
        """One of the names above, for the command line; all of them are imported when the first is used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from mxsame import _gluon

        globals().update({public: getattr(_gluon, public) for public in _gluon.__all__})
        return globals()[name]
