"""The NumPy that only MXNet's modules import: NumPy with the names that were removed since.

MXNet 1.9.1 was written for NumPy 1.16 to 1.22, and for a Python with distutils. Each of its modules gets an ``import``
of its own (`importing.SubmoduleLoader`). NumPy is not changed, and neither is what other modules import.

Only MXNet's import imports this module, since it imports NumPy.
"""

import builtins
import re
import types
from functools import partial
from typing import Any, Callable, Dict

import numpy

from mxsame.installation.requirements import TESTED

IS_NUMPY_2 = "trapezoid" in vars(numpy)
LEGACY: Any = "1.25"  # how NumPy 1 wrote numbers


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Which elements of the first array, in one row, are in the second: gone since NumPy 2.4."""
    return numpy.isin(numpy.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def with_interpolation(function: Any) -> Callable[..., Any]:
    """Returns a function whose argument `method` had another name until NumPy 2.4."""

    def renamed(*args: Any, interpolation: str = "linear", **kwargs: Any) -> Any:
        return function(*args, **{"method": interpolation, **kwargs})

    return renamed if IS_NUMPY_2 else function


def financial(*args: Any, **kwargs: Any) -> Any:
    """What NumPy 1.20 to 1.26 has in place of its financial functions."""
    raise RuntimeError("NumPy 1.20 removed its financial functions; the package numpy_financial has them")


ADDED: Dict[str, Any] = {  # unless NumPy has it
    "int": int,  # mx.test_utils.chi_square_check
    "PZERO": 0.0,  # mx.np has the constants
    "NZERO": -0.0,
    "PINF": numpy.inf,
    "NINF": -numpy.inf,
    "NaN": numpy.nan,
    "NAN": numpy.nan,
    "Inf": numpy.inf,  # gluon.contrib.estimator
    "compat": types.SimpleNamespace(basestring=str),  # mx.np.pad
    "sometrue": partial(numpy.any),  # NumPy calls mx.np's for these three; partial: not for numpy.any itself
    "product": partial(numpy.prod),
    "round_": partial(numpy.round),
    **dict.fromkeys(("mirr", "npv", "pmt", "ppmt", "pv", "rate"), financial),  # mx.np has them
}


def namespace(module: types.ModuleType, added: Dict[str, Any], replaced: Dict[str, Any]) -> types.ModuleType:
    """A copy of a module, with the names that it lacks and with others in place of its own."""

    def missing(name: str) -> Any:
        try:
            return getattr(module, name)
        except AttributeError as error:
            raise AttributeError(f"{error}. {TESTED}") from None

    copy = types.ModuleType(module.__name__, module.__doc__)
    vars(copy).update({**added, **vars(module), **replaced, "__getattr__": missing})
    return copy


REPLACED: Dict[str, Any] = {
    "bool": bool,  # mx.np.bool, masks: Python's own, which it is not in NumPy 2
    "alltrue": partial(numpy.all),  # mx.np has these; NumPy warns of them before they are gone
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
    """What the statement ``import`` calls in MXNet's modules."""
    if name == "distutils.version":
        return DISTUTILS
    module = builtins.__import__(name, *arguments)
    return NUMPY if module is numpy else module


BUILTINS = {**vars(builtins), "__import__": import_for_mxnet}


def text(value: Any) -> str:
    """``str(value)`` as in NumPy 1: ``(2,)`` for NumPy's integer, and not ``(np.int64(2),)``."""
    written = str(value)
    if "np." in written and isinstance(value, (tuple, list)):
        with numpy.printoptions(legacy=LEGACY):
            return str(value)
    return written


class Text(type):
    """The type of a ``str`` that is `text` when called."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, str)

    def __call__(cls, value: Any) -> str:
        return text(value)


# What modules get for `str`, with which they write the attributes of operators.
STR = {
    "mxnet._ctypes.ndarray": text,
    "mxnet._ctypes.symbol": text,
    "mxnet.io.io": text,
    "mxnet.symbol.symbol": Text("str", (str,), {}),  # it also asks for instances
}
# What is replaced in the code of modules: a name, or a constant.
CODE = {
    "mxnet.recordio": ("tostring", "tobytes"),  # of arrays; gone since NumPy 2.3
    "mxnet.metric": (0.0, numpy.float64(0)),  # else NumPy 2 sums float32 in float32, and float16 in float16
}


def replace_in_code(code: types.CodeType, old: object, new: object) -> types.CodeType:
    """Code with one name or constant in place of another."""

    def other(value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return replace_in_code(value, old, new)
        return new if type(value) is type(old) and value == old else value

    return code.replace(co_names=tuple(map(other, code.co_names)), co_consts=tuple(map(other, code.co_consts)))


def prepare(module: types.ModuleType) -> None:
    """Prepares a module of MXNet before its code runs."""
    vars(module)["__builtins__"] = BUILTINS
    if IS_NUMPY_2 and module.__name__ in STR:
        vars(module)["str"] = STR[module.__name__]


def finish(module: types.ModuleType) -> None:
    """After it has run."""
    if module.__name__ == "mxnet.numpy.multiarray":  # calls the type of a tuple: mx.np.linalg.qr gives a named one
        convert = vars(module)["_as_mx_np_array"]
        vars(module)["_as_mx_np_array"] = lambda value, ctx=None: convert(
            tuple(value) if hasattr(value, "_fields") else value, ctx
        )


def adapted(code: Any, module: str) -> Any:
    """The code of a module of MXNet as it runs with this NumPy."""
    return replace_in_code(code, *CODE[module]) if module in CODE else code
