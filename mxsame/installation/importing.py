"""What `import mxsame` does so that `import mxnet` works, and how mxsame itself imports MXNet.

MXNet 1.9.1 was written for older versions of Python and NumPy. Its import fails on NumPy 1.24 and later (``numpy.bool``
is gone) and on a Python 3.12 without setuptools (``distutils`` is gone). Both are put back for the time of the import;
after it MXNet's own modules, and only they, see a NumPy that still has the aliases. MXNet for CUDA does not find the
libraries that come in wheels; they are loaded first. What cannot be fixed is an ``InstallationError``.

All this happens when MXNet is imported, by mxsame or by other code: a finder on ``sys.meta_path`` gives the module
``mxnet`` a loader of its own. An MXNet that was imported before is left as it is.
"""

import contextlib
import ctypes
import importlib
import re
import sys
import types
import warnings
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any, Dict, Iterator, Optional

from mxsame import threads
from mxsame.installation import cuda
from mxsame.installation.problems import InstallationError, check, explain, mxnet_wheels, pip_again
from mxsame.installation.requirements import MXNET_CUDA_WHEEL, pins

NUMPY_ALIASES: Dict[str, Any] = {"bool": bool, "int": int}  # what MXNet uses of the aliases gone since NumPy 1.24
NUMPY_EXPIRED = ("mirr", "npv", "pmt", "ppmt", "pv", "rate")  # MXNet exports them, too; NumPy 1.20 and later warn


def prepare() -> None:
    """Makes a later ``import mxnet`` work, also after ``import tensorflow``."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libstdc++.so.6")  # before TensorFlow loads it: `problems.tensorflow_came_before_libstdcxx`
    if not any(isinstance(finder, MxnetFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MxnetFinder())
    if hasattr(sys.modules.get("mxnet"), "__version__"):
        threads.keep_awake()


def import_mxnet() -> Any:
    """Returns the module ``mxnet``; raises an ``InstallationError``, also if no MXNet is found."""
    try:
        module = importlib.import_module("mxnet")
    except ModuleNotFoundError as error:
        check()
        raise explain(error) from error
    if not hasattr(module, "__version__"):  # a script, or a folder that an uninstall has left
        raise explain(ImportError(f"{getattr(module, '__file__', None) or module.__path__[0]} is something else"))
    return module


class MxnetFinder:
    """Finds ``mxnet`` where Python does, and gives it another loader."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        spec = PathFinder.find_spec(name) if name == "mxnet" else None
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = MxnetLoader(name, spec.loader.path)
        return spec


class MxnetLoader(SourceFileLoader):
    """Checks what MXNet needs, adds the names that it expects while its code runs, and explains its failure."""

    def exec_module(self, module: types.ModuleType) -> None:
        if not hasattr(module, "__version__"):  # as after importlib.reload
            check()
            forget_submodules()
        try:
            threads.setting()
        except ValueError as error:
            raise InstallationError(str(error), f"unset {threads.SETTING}") from None
        try:
            if MXNET_CUDA_WHEEL in mxnet_wheels():
                missing = cuda.load()
                if missing:
                    names = ", ".join(library.soname for library in missing)
                    raise InstallationError(f"{MXNET_CUDA_WHEEL} needs {names}: not found.", pip_again(pins(missing)))
            with added_numpy_names(), replaced_distutils(), threads.given_to_mxnet():
                super().exec_module(module)
        except InstallationError:
            raise
        except Exception as error:
            forget_submodules()
            raise explain(error) from error
        keep_numpy_aliases_for_mxnet()
        threads.keep_awake()


def forget_submodules() -> None:
    """Drops the submodules that a failed ``import mxnet`` leaves, which would break the next one."""
    for name in [name for name in sys.modules if name.startswith("mxnet.")]:
        del sys.modules[name]


@contextlib.contextmanager
def added_numpy_names() -> Iterator[None]:
    """Adds the names that MXNet expects to NumPy, so that none is missing and none raises a DeprecationWarning."""
    import numpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = {**NUMPY_ALIASES, **{name: getattr(numpy, name) for name in NUMPY_EXPIRED}}
    added = {name: value for name, value in expected.items() if name not in vars(numpy)}
    vars(numpy).update(added)
    try:
        yield
    finally:
        for name in added:
            del vars(numpy)[name]


class Version:
    """As much of distutils' StrictVersion and LooseVersion as MXNet uses: ``Version("1.26.4") >= Version("1.17")``."""

    def __init__(self, text: str) -> None:
        self.numbers = [int(number) for number in re.findall(r"\d+", text)]

    def __ge__(self, other: "Version") -> bool:
        return self.numbers >= other.numbers


@contextlib.contextmanager
def replaced_distutils() -> Iterator[None]:
    """Replaces ``distutils.version``: gone from Python 3.12, a DeprecationWarning on 3.10 and 3.11."""
    name = "distutils.version"
    previous = sys.modules.get(name)
    substitute = types.ModuleType(name)
    vars(substitute).update(StrictVersion=Version, LooseVersion=Version)
    sys.modules[name] = substitute
    try:
        yield
    finally:
        del sys.modules[name]
        if previous is not None:
            sys.modules[name] = previous


def keep_numpy_aliases_for_mxnet() -> None:
    """Lets MXNet's modules see a copy of NumPy's namespace that keeps the aliases: some functions use them later."""
    import numpy

    substitute = types.ModuleType("numpy", numpy.__doc__)
    vars(substitute).update({**NUMPY_ALIASES, **vars(numpy)})
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "mxnet":
            for key, value in list(vars(module).items()):
                if value is numpy:
                    setattr(module, key, substitute)
