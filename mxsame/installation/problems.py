"""Errors for all that keeps MXNet from being imported: each shows what is installed, and the command that fixes it."""

import ctypes
import glob
import os
import re
import shlex
import sys
from importlib.machinery import PathFinder
from typing import Any, Dict, Iterable, List, Optional

from mxsame.installation import cuda
from mxsame.installation.requirements import (
    KERNELS,
    MXNET_CUDA_WHEEL,
    MXNET_VERSION,
    NEWEST_NUMPY,
    NEWEST_PYTHON,
    TESTED,
    install,
    pins,
)

# All of these wheels install the folder mxnet/.
MXNET_WHEEL = r"(mxnet(?:[-_](?:cu\d+|mkl|native))?)-([^-]+)\.dist-info"
IN_VENV = ".venv-3.11/bin/python -m pip install"
ANOTHER_PYTHON = f"python3.11 -m venv .venv-3.11 && {IN_VENV} '.[cli]' && {IN_VENV} --no-deps mxnet=={MXNET_VERSION}"
IN_THE_FOLDER = "Run this in the folder of mxsame; it makes an environment with a Python that works."
SYSTEM_LIBRARIES = "apt-get install -y libgomp1 libquadmath0 libstdc++6 zlib1g"
TO_CPU = "The command switches to the CPU build of MXNet."
FOR_A_DRIVER = "For a GPU install NVIDIA's driver; a container gets it from its host (docker run --gpus all)."
FOR_CUDA = "The wheel brings none of CUDA's libraries; those of CUDA 11 and of CUDA 12 need two environments."
TENSORFLOW_FIRST = (
    "TensorFlow was imported first, and MXNet would now crash the process. TensorFlow brings its own copy of a part of "
    "libstdc++ (std::random_device), mixes it into the libstdc++ that MXNet uses, and this cannot be undone."
)
NO_KERNEL = "no kernel image is available"  # CUDA's error if a library has no code for the GPU
CUDA_ERRORS = ("Name", "CUDA", "MXNetError")  # first words of MXNet's messages for CUDA's errors; "Name" is a kernel's
FOR_A_GPU = f"For an NVIDIA GPU, end the command with {MXNET_CUDA_WHEEL}=={MXNET_VERSION}."


class InstallationError(ImportError):
    """A problem, the command that fixes it, and sometimes a hint; the message also shows what is installed."""

    def __init__(self, problem: str, command: str, hint: str = "") -> None:
        super().__init__(problem, command, hint)
        self.problem, self.command, self.hint, self.installed = problem, command, hint, installed()

    def __str__(self) -> str:
        lines = [self.problem, f"  found: {self.installed}", f"  fix it with: {self.command}"]
        return "\n".join([*lines, f"  {self.hint}"] if self.hint else lines)


# What is installed.


def mxnet_folders() -> List[str]:
    """Returns the folder from which Python would import MXNet, in a list: empty without MXNet, several for a namespace
    package, which is not MXNet."""
    spec = PathFinder.find_spec("mxnet")
    return list(spec.submodule_search_locations or []) if spec else []


def mxnet_wheels() -> Dict[str, str]:
    """Returns name -> version of the wheels that installed the folder ``mxnet``; two break each other."""
    wheels = {}
    for path in [os.path.dirname(folder) for folder in mxnet_folders()] or sys.path:
        for info in sorted(glob.glob(os.path.join(glob.escape(path), "mxnet*.dist-info"))):
            match = re.fullmatch(MXNET_WHEEL, os.path.basename(info))
            if match:
                wheels[match.group(1).replace("_", "-")] = match.group(2)
    return wheels


def installed() -> str:
    """Returns ``'Python 3.12.1 (/usr/bin/python3), NumPy 1.26.4 (/usr/lib/...), mxnet 1.9.1 (/usr/lib/...)'``."""
    parts = ["Python {}.{}.{} ({})".format(*sys.version_info[:3], sys.executable)]
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        parts.append(f"NumPy {getattr(numpy, '__version__', '?')} ({os.path.dirname(str(numpy.__file__))})")
    wheels = " and ".join(f"{name} {version}" for name, version in mxnet_wheels().items())
    parts += [f"{wheels or 'a folder mxnet that pip did not install'} ({folder})" for folder in mxnet_folders()]
    return ", ".join(parts)


# The commands.


def pip_again(wheels: Iterable[str]) -> str:
    """Returns the command that installs wheels again whose files are missing or damaged."""
    return install("--force-reinstall", "--no-deps", *wheels)


def reinstall(wheel: str) -> str:
    """Returns the command that uninstalls all wheels of MXNet and installs this one."""
    wheels = mxnet_wheels()
    command = install("--no-deps", f"{wheel}=={MXNET_VERSION}")  # the dependencies would replace NumPy 2 by NumPy 1
    uninstall = shlex.join([sys.executable, "-m", "pip", "uninstall", "-y", *wheels])
    return f"{uninstall} && {command}" if wheels else command


# Problems that are found before MXNet's own code runs.


def check() -> None:
    """Raises an ``InstallationError`` if NumPy, the installed wheels or the order of imports cannot work."""
    try:
        import numpy  # MXNet would find the problem later, and explain it less clearly
    except ImportError as error:
        raise InstallationError(f"NumPy cannot be imported: {error}.", install("numpy")) from error
    if not hasattr(numpy, "__version__"):
        raise shadowed_by(numpy)
    wheels = mxnet_wheels()
    if len(wheels) > 1:
        problem = f"{' and '.join(wheels)} are installed over each other: both contain the folder mxnet."
        raise InstallationError(problem, reinstall("mxnet"), FOR_A_GPU)
    if "tensorflow" in sys.modules and tensorflow_came_before_libstdcxx(loaded_libraries()):
        raise InstallationError(TENSORFLOW_FIRST, "import mxsame  # before: import tensorflow")
    for wheel in wheels:
        if "-cu" in wheel and not cuda.has_driver():
            problem = f"{wheel} needs NVIDIA's driver ({cuda.DRIVER}), which cannot be loaded."
            raise InstallationError(problem, reinstall("mxnet"), f"{TO_CPU} {FOR_A_DRIVER}")


def shadowed_by(module: Any) -> InstallationError:
    """Returns the error for a package in whose place Python has imported ``module``: a script with the same name, or a
    folder that an uninstall has left."""
    name, file = module.__name__, getattr(module, "__file__", None)
    path = file or module.__path__[0]
    script = os.path.dirname(path) if os.path.basename(path) == "__init__.py" else path
    folder, base = os.path.split(script)
    rename = shlex.join(["mv", script, os.path.join(folder, f"my_{base}")])
    return InstallationError(f"`import {name}` imports something else, {path}.", rename if file else reinstall(name))


def loaded_libraries() -> List[str]:
    """Returns the names of this process's shared libraries, in the order in which they were loaded."""
    names: List[str] = []
    entry: Any = ctypes.CDLL(None)._handle
    while entry:
        link: Any = (ctypes.c_void_p * 4).from_address(entry)  # struct link_map of <link.h>: 1 is its name, 3 the next
        names.append(os.path.basename(os.fsdecode(ctypes.string_at(link[1]))))
        entry = link[3]
    return names


def tensorflow_came_before_libstdcxx(libraries: List[str]) -> bool:
    """Returns whether libstdc++ looks up symbols in TensorFlow first, as it does if TensorFlow's import loaded it.

    Then ``std::random_device::_M_init`` of libstdc++ calls TensorFlow's, which does not fill the structure that
    ``_M_getval`` reads. MXNet draws a random number while it is loaded, and so jumps to a wild address.
    """
    names = [name.split(".so")[0] for name in libraries]
    in_order = [name for name in names if name in ("libstdc++", "libtensorflow_framework")]
    return in_order[:1] == ["libtensorflow_framework"]


# Problems that MXNet's own import runs into.


def explain(error: Exception) -> InstallationError:
    """Returns the ``InstallationError`` for an ``error`` that the import of MXNet raised."""
    wheel = next(iter(mxnet_wheels()), "mxnet")
    if isinstance(error, ModuleNotFoundError) and error.name == "mxnet":
        return InstallationError("MXNet is not installed.", reinstall("mxnet"), FOR_A_GPU)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("mxnet."):
        problem = f"MXNet needs the package {error.name}, which is not installed."
        return InstallationError(problem, install(str(error.name)))
    library_problem = explain_library(error, wheel) if isinstance(error, OSError) else None
    if library_problem:
        return library_problem
    reason = f"{type(error).__name__}: {error}"
    if sys.version_info[:2] > NEWEST_PYTHON:
        return InstallationError(f"{TESTED}; it fails on a newer Python: {reason}.", ANOTHER_PYTHON, IN_THE_FOLDER)
    numpy = sys.modules.get("numpy")
    if numpy and tuple(map(int, numpy.__version__.split(".")[:2])) > NEWEST_NUMPY:
        return InstallationError(f"{TESTED}; it fails with a newer NumPy: {reason}.", install("numpy<2.6"))
    return InstallationError(f"The installed MXNet is broken: {reason}.", reinstall(wheel))


def explain_library(error: OSError, wheel: str) -> Optional[InstallationError]:
    """Returns the error for a shared library that cannot be loaded, unless it is in MXNet's wheel; otherwise None."""
    if re.search(r"undefined symbol: cu[A-Z]", str(error)):  # a function of the driver, such as cuLaunchKernel
        problem = f"NVIDIA's driver is too old for {wheel}: {error}."
        return InstallationError(problem, reinstall("mxnet"), f"{TO_CPU} For a GPU install a newer driver.")
    match = re.match(r"(?:.*/)?(lib[^/:]+): ", str(error))
    library = match.group(1) if match else "libmxnet.so"
    if re.match(r"lib(cu|nv|nccl)", library):
        problem = f"{wheel} needs {library}, which cannot be loaded: {error}."
        hint = f"{FOR_CUDA} Without an NVIDIA GPU: {reinstall('mxnet')}"
        return InstallationError(problem, f"{reinstall(MXNET_CUDA_WHEEL)} && {pip_again(pins())}", hint)
    if library in ("libmxnet.so", "libopenblas.so.0", "libgfortran.so.3"):  # these are in MXNet's wheel
        return None
    problem = f"{wheel} needs the system library {library}, which is not found."
    return InstallationError(problem, SYSTEM_LIBRARIES, "The names are those of Debian and Ubuntu.")


# Problems that MXNet runs into later.


def explain_missing_kernels(module: Any) -> None:
    """Adds advice to MXNet's error on a GPU for which its wheel has no kernels. Operators run later than their calls,
    so any wait can raise it. ``module`` is ``mxnet.error``, where the first word of a message selects the function that
    makes an exception."""

    def explained(message: str) -> Exception:
        hint = f"\n{KERNELS}. `mxsame doctor` lists the GPUs." if NO_KERNEL in message else ""
        return module.MXNetError(message + hint)  # type: ignore[no-any-return]

    for name in CUDA_ERRORS:
        module.register(name, explained)
