"""MXNet. All other files of the package write ``from mxsame._mxnet import mx``; none writes ``import mxnet``.

For type checkers and editors, there are the names of its types, which MXNet itself does not declare.
"""

import functools
import os
from typing import TYPE_CHECKING, Any

from mxsame.installation.importing import import_mxnet
from mxsame.installation.problems import NO_KERNEL as NO_KERNEL

if TYPE_CHECKING:
    from typing import TypeVar, Union

    import numpy as np
    from mxnet.context import Context as Context
    from mxnet.gluon import (
        Block,
        HybridBlock as HybridBlock,
        ParameterDict as ParameterDict,
        SymbolBlock as SymbolBlock,
    )
    from mxnet.initializer import Initializer
    from mxnet.ndarray import NDArray as NDArray
    from mxnet.numpy import ndarray
    from mxnet.symbol import Symbol as Symbol

    Array = TypeVar("Array", NDArray, Symbol, ndarray)  # the output has the kind of the input
    ArrayOrNumpy = TypeVar("ArrayOrNumpy", bound=Union[NDArray, Symbol, ndarray, "np.ndarray[Any, Any]"])
    AnyBlock = TypeVar("AnyBlock", bound=Block)
    Init = Union[str, Initializer]  # or its name

mx: Any = import_mxnet()


@functools.lru_cache(maxsize=None)
def has_onednn() -> bool:
    """Returns whether this MXNet was built with oneDNN, and uses it."""
    is_off = os.environ.get("MXNET_MKLDNN_ENABLED", "1") in ("0", "false")
    return bool(mx.runtime.Features().is_enabled("MKLDNN")) and not is_off
