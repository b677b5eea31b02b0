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
    from mxsame import _mxnet  # noqa: F401, I001 - first: it makes `import mxnet` work
    from mxsame import nn, ops
    from mxsame.deploy import deploy
    from mxsame.graph import export, hybridize
    from mxsame.tune import autotune
else:
    _HOMES = {"deploy": "deploy", "export": "graph", "hybridize": "graph", "autotune": "tune"}

    def __getattr__(name: str) -> object:
        """One of the names above, for the command line, from the same place."""
        from importlib import import_module

        if name in ("nn", "ops"):
            return import_module(f"mxsame.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(f"mxsame.{_HOMES[name]}"), name)
        return found
