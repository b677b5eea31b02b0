"""Makes `import mxnet` work, and imports MXNet for mxsame.

MXNet 1.9.1 was written for older versions of Python and NumPy. Its import fails on NumPy 1.24 and later (``numpy.bool``
is gone) and on a Python 3.12 without setuptools (``distutils`` is gone). So MXNet's modules, and only they, import a
NumPy that has the removed names (`numpy_names`). MXNet for CUDA does not find CUDA's libraries in wheels, so these are
loaded first. A problem that cannot be fixed raises an ``InstallationError``.

All this happens when MXNet is imported, by mxsame or by other code: a finder on ``sys.meta_path`` gives MXNet's modules
other loaders. If MXNet was imported before mxsame, its modules are not changed.
"""

import contextlib
import ctypes
import importlib
import os
import sys
import types
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any, Optional

from mxsame import threads
from mxsame.installation import cuda
from mxsame.installation.problems import (
    InstallationError,
    check,
    explain,
    explain_missing_kernels,
    mxnet_wheels,
    pip_again,
    shadowed_by,
)
from mxsame.installation.requirements import MXNET_CUDA_WHEEL, pins


def prepare() -> None:
    """Makes a later ``import mxnet`` work, also after ``import tensorflow``."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libstdc++.so.6")  # before TensorFlow loads it: `problems.tensorflow_came_before_libstdcxx`
    if not any(isinstance(finder, MxnetFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MxnetFinder())
    if hasattr(sys.modules.get("mxnet"), "__version__"):
        threads.end_own_team()


def import_mxnet() -> Any:
    """Returns the module ``mxnet``; raises an ``InstallationError`` if it cannot be imported."""
    try:
        module = importlib.import_module("mxnet")
    except ModuleNotFoundError as error:
        check()
        raise explain(error) from error
    if not hasattr(module, "__version__"):
        raise shadowed_by(module)
    return module


class MxnetFinder:
    """Finds MXNet's modules where Python finds them, and gives them other loaders."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        spec = PathFinder.find_spec(name, path) if name.partition(".")[0] == "mxnet" else None
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = (MxnetLoader if name == "mxnet" else SubmoduleLoader)(name, spec.loader.path)
        return spec


class SubmoduleLoader(SourceFileLoader):
    """Runs a module of MXNet with the names of NumPy for which it was written, and adds advice to its errors."""

    def get_code(self, fullname: str) -> Any:
        from mxsame.installation import numpy_names

        return numpy_names.adapted(super().get_code(fullname), fullname)

    def exec_module(self, module: types.ModuleType) -> None:
        from mxsame.installation import numpy_names

        numpy_names.prepare(module)
        super().exec_module(module)
        numpy_names.finish(module)
        if module.__name__ == "mxnet.error":
            explain_missing_kernels(module)


class MxnetLoader(SubmoduleLoader):
    """Checks what MXNet needs, and explains why its import fails."""

    def exec_module(self, module: types.ModuleType) -> None:
        if not hasattr(module, "__version__"):  # importlib.reload passes a module that has one
            check()
            forget_submodules()
        variable = threads.invalid_variable()
        if variable:
            rule = f"{variable} must be a number of threads" + ", or 0 for MXNet's own" * (variable == threads.SETTING)
            raise InstallationError(f"{rule}; received {variable}={os.environ[variable]!r}.", f"unset {variable}")
        try:
            if MXNET_CUDA_WHEEL in mxnet_wheels():
                missing = cuda.load()
                if missing:
                    names = ", ".join(library.soname for library in missing)
                    raise InstallationError(f"{MXNET_CUDA_WHEEL} needs {names}: not found.", pip_again(pins(missing)))
            with threads.variables_for_mxnet():
                super().exec_module(module)
        except InstallationError:
            raise
        except Exception as error:
            forget_submodules()
            raise explain(error) from error
        threads.end_own_team()


def forget_submodules() -> None:
    """Removes the submodules that a failed ``import mxnet`` has left, which would break the next one."""
    for name in [name for name in sys.modules if name.startswith("mxnet.")]:
        del sys.modules[name]
