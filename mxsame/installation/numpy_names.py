"""The NumPy that MXNet's modules import: with the names that newer versions of NumPy have removed.

MXNet 1.9.1 was written for NumPy 1.16 to 1.22, and for a Python with distutils. `importing.SubmoduleLoader` replaces
``__import__`` in MXNet's modules only. NumPy itself, and the NumPy of all other modules, are not changed.

This module imports NumPy, so it is imported only when MXNet is.
"""

import builtins
import re
import types
from functools import partial
from typing import Any, Callable, Dict

import numpy

from mxsame.installation.requirements import TESTED

IS_NUMPY_2 = "trapezoid" in vars(numpy)
LEGACY: Any = "1.25"  # value of the print option `legacy` with which NumPy 2 prints numbers as NumPy 1 did


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Returns whether each element of the flattened first array is in the second; NumPy 2.4 removed this function."""
    return numpy.isin(numpy.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def with_interpolation(function: Any) -> Callable[..., Any]:
    """Returns a function that accepts `interpolation` in place of `method`, as NumPy did until 2.4."""

    def renamed(*args: Any, interpolation: str = "linear", **kwargs: Any) -> Any:
        return function(*args, **{"method": interpolation, **kwargs})

    return renamed if IS_NUMPY_2 else function


def financial(*args: Any, **kwargs: Any) -> Any:
    """Raises the error of NumPy 1.20 to 1.26 for a financial function."""
    raise RuntimeError("NumPy 1.20 removed its financial functions; the package numpy_financial has them")


ADDED: Dict[str, Any] = {  # names that NumPy may lack; a comment tells what uses them
    "int": int,  # mx.test_utils.chi_square_check
    "PZERO": 0.0,  # mx.np, which exports these constants
    "NZERO": -0.0,
    "PINF": numpy.inf,
    "NINF": -numpy.inf,
    "NaN": numpy.nan,
    "NAN": numpy.nan,
    "Inf": numpy.inf,  # gluon.contrib.estimator
    "compat": types.SimpleNamespace(basestring=str),  # mx.np.pad
    "sometrue": partial(numpy.any),  # mx.np overrides these three; partial, so that it does not override numpy.any
    "product": partial(numpy.prod),
    "round_": partial(numpy.round),
    **dict.fromkeys(("mirr", "npv", "pmt", "ppmt", "pv", "rate"), financial),  # mx.np
}


def namespace(module: types.ModuleType, added: Dict[str, Any], replaced: Dict[str, Any]) -> types.ModuleType:
    """Returns a copy of a module with the `added` names that it lacks, and with `replaced` ones."""

    def missing(name: str) -> Any:
        try:
            return getattr(module, name)
        except AttributeError as error:
            raise AttributeError(f"{error}. {TESTED}") from None

    copy = types.ModuleType(module.__name__, module.__doc__)
    vars(copy).update({**added, **vars(module), **replaced, "__getattr__": missing})
    return copy


REPLACED: Dict[str, Any] = {
    "bool": bool,  # mx.np.bool, and masks; in NumPy 2, numpy.bool is not Python's bool
    "alltrue": partial(numpy.all),  # mx.np; NumPy warns of these names before it removes them
    "in1d": in1d,
    "msort": partial(numpy.sort, axis=0),
    "trapz": vars(numpy)["trapezoid" if IS_NUMPY_2 else "trapz"],
    "nanpercentile": with_interpolation(numpy.nanpercentile),
    "nanquantile": with_interpolation(numpy.nanquantile),
    "core": vars(numpy)["_core" if IS_NUMPY_2 else "core"],  # mx.nd.moveaxis
}
NUMPY = namespace(numpy, ADDED, REPLACED)


class Version:
    """As much of distutils' StrictVersion and LooseVersion as MXNet uses: ``Version("1.26.4") >= Version("1.17")``."""

    def __init__(self, text: str) -> None:
        self.numbers = [int(number) for number in re.findall(r"\d+", text)]

    def __ge__(self, other: "Version") -> bool:
        return self.numbers >= other.numbers


DISTUTILS = types.ModuleType("distutils.version")  # gone from Python 3.12, a DeprecationWarning on 3.10 and 3.11
vars(DISTUTILS).update(StrictVersion=Version, LooseVersion=Version)


def import_for_mxnet(name: str, *arguments: Any) -> Any:
    """The function ``__import__`` of MXNet's modules."""
    if name == "distutils.version":
        return DISTUTILS
    module = builtins.__import__(name, *arguments)
    return NUMPY if module is numpy else module


BUILTINS = {**vars(builtins), "__import__": import_for_mxnet}


def text(value: Any) -> str:
    """Returns ``str(value)`` as in NumPy 1: ``(2,)``, where NumPy 2 has ``(np.int64(2),)``."""
    written = str(value)
    if "np." in written and isinstance(value, (tuple, list)):
        with numpy.printoptions(legacy=LEGACY):
            return str(value)
    return written


class Text(type):
    """The metaclass of a class ``str`` whose call is `text`."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, str)

    def __call__(cls, value: Any) -> str:
        return text(value)


# module -> its replacement for `str`, with which it writes the attributes of operators
STR = {
    "mxnet._ctypes.ndarray": text,
    "mxnet._ctypes.symbol": text,
    "mxnet.io.io": text,
    "mxnet.symbol.symbol": Text("str", (str,), {}),  # this module also calls isinstance
}
# module -> a name or a constant in its code, and the replacement
CODE = {
    "mxnet.recordio": ("tostring", "tobytes"),  # methods of arrays; NumPy 2.3 removed the first
    "mxnet.metric": (0.0, numpy.float64(0)),  # else NumPy 2 sums float32 in float32, and float16 in float16
}


def replace_in_code(code: types.CodeType, old: object, new: object) -> types.CodeType:
    """Returns code with the name or constant `new` in place of `old`."""

    def replaced(value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return replace_in_code(value, old, new)
        return new if type(value) is type(old) and value == old else value

    return code.replace(co_names=tuple(map(replaced, code.co_names)), co_consts=tuple(map(replaced, code.co_consts)))


def prepare(module: types.ModuleType) -> None:
    """Prepares a module of MXNet before its code runs."""
    vars(module)["__builtins__"] = BUILTINS
    if IS_NUMPY_2 and module.__name__ in STR:
        vars(module)["str"] = STR[module.__name__]


def finish(module: types.ModuleType) -> None:
    """Corrects a module of MXNet after its code has run."""
    if module.__name__ == "mxnet.numpy.multiarray":  # it calls type(value)(list), which a named tuple (qr's) refuses
        convert = vars(module)["_as_mx_np_array"]
        vars(module)["_as_mx_np_array"] = lambda value, ctx=None: convert(
            tuple(value) if hasattr(value, "_fields") else value, ctx
        )


def adapted(code: Any, module: str) -> Any:
    """Returns the code of a module of MXNet, changed to run with this NumPy."""
    return replace_in_code(code, *CODE[module]) if module in CODE else code
