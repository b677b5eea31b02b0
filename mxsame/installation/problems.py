"""What keeps MXNet from being imported: each problem with what is installed and the one command that fixes it."""

import glob
import os
import re
import sys
from importlib.machinery import PathFinder
from typing import Dict, Iterable, List, Optional

from mxsame.installation import cuda
from mxsame.installation.requirements import (
    LIBRARIES,
    MXNET_CUDA_WHEEL,
    MXNET_CUDNN,
    MXNET_VERSION,
    NEWEST_PYTHON,
    OLDEST_PYTHON,
    Library,
    pins,
)

MXNET_WHEEL = r"(mxnet(?:[-_](?:cu\d+|mkl|native))?)-([^-]+)\.dist-info"  # all of them own the same folder, mxnet/
FOR_A_GPU = f"For an NVIDIA GPU let the command end in {MXNET_CUDA_WHEEL}=={MXNET_VERSION}."


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
    """The folder from which Python would import MXNet (or folders, if no real package is found); maybe none."""
    spec = PathFinder.find_spec("mxnet")
    return list(spec.submodule_search_locations or []) if spec else []


def mxnet_wheels() -> Dict[str, str]:
    """Name and version of the wheels that own the folder ``mxnet``: one if all is well, two over each other."""
    wheels = {}
    for path in [os.path.dirname(folder) for folder in mxnet_folders()] or sys.path:
        for info in sorted(glob.glob(os.path.join(glob.escape(path), "mxnet*.dist-info"))):
            match = re.fullmatch(MXNET_WHEEL, os.path.basename(info))
            if match:
                wheels[match.group(1).replace("_", "-")] = match.group(2)
    return wheels


def installed() -> str:
    """``'Python 3.12.1 (/usr/bin/python3), NumPy 1.26.4 (/usr/lib/...), mxnet 1.9.1 (/usr/lib/...)'``."""
    parts = ["Python {}.{}.{} ({})".format(*sys.version_info[:3], sys.executable)]
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        parts.append(f"NumPy {numpy.__version__} ({os.path.dirname(str(numpy.__file__))})")
    wheels = " and ".join(f"{name} {version}" for name, version in mxnet_wheels().items())
    parts += [f"{wheels or 'a folder mxnet that pip did not install'} ({folder})" for folder in mxnet_folders()]
    return ", ".join(parts)


# The commands.


def pip(arguments: str) -> str:
    """The command that runs pip for this Python."""
    return f"{sys.executable} -m pip {arguments}"


def pip_again(wheels: Iterable[str]) -> str:
    """The command that installs wheels whose files are missing or damaged, even if pip has them as installed."""
    return pip(f"install --force-reinstall --no-deps {' '.join(wheels)}")


def reinstall(wheel: str) -> str:
    """The command that removes what is installed of MXNet and installs one wheel."""
    wheels = mxnet_wheels()
    install = pip(f"install {wheel}=={MXNET_VERSION}")
    return f"{pip('uninstall -y ' + ' '.join(wheels))} && {install}" if wheels else install


# Problems that are found before MXNet's own code runs.


def check() -> None:
    """Raises an ``InstallationError`` if Python, NumPy, the installed wheels or the order of imports cannot work."""
    if not OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        raise InstallationError(
            f"mxsame runs on Python 3.8 to 3.12 (MXNet {MXNET_VERSION} on no newer one).",
            "python3.11 -m venv .venv && .venv/bin/python -m pip install '.[cpu]'",
            "Run this in the folder of mxsame; it makes an environment with a Python that works.",
        )
    try:
        import numpy
    except ImportError as error:
        raise InstallationError(f"NumPy cannot be imported: {error}.", pip("install 'numpy<2'")) from error
    if int(numpy.__version__.split(".")[0]) >= 2:
        raise InstallationError(
            f"MXNet {MXNET_VERSION} needs NumPy 1, and NumPy 2 is installed.", pip("install 'numpy<2'")
        )
    wheels = mxnet_wheels()
    if len(wheels) > 1:
        raise InstallationError(
            f"{' and '.join(wheels)} are installed over each other: both own the same folder.",
            reinstall("mxnet"),
            FOR_A_GPU,
        )
    if "tensorflow" in sys.modules and tensorflow_came_before_libstdcxx(cuda.loaded_libraries()):
        raise InstallationError(
            "TensorFlow was imported first, and MXNet would now crash the process. TensorFlow brings its own copy of a "
            "part of libstdc++ (std::random_device), mixes it into the libstdc++ that MXNet uses, and this cannot be "
            "undone.",
            "import mxsame  # before: import tensorflow",
        )
    for wheel in wheels:
        if "-cu" in wheel:
            check_cuda(wheel)


def check_cuda(wheel: str) -> None:
    """Raises an ``InstallationError`` if the machine lacks what MXNet's build for CUDA is linked to."""
    if cuda.libcuda() is None:
        raise InstallationError(
            f"{wheel} needs NVIDIA's driver ({cuda.DRIVER}), and none is found that can be loaded.",
            reinstall("mxnet"),
            "The command changes to the MXNet that computes on the CPU. For a GPU install NVIDIA's driver; a container "
            "gets it from its host (docker run --gpus all).",
        )
    if wheel != MXNET_CUDA_WHEEL:  # what the other builds need is unknown; the system's linker has to find it
        return
    missing = cuda.missing()
    if missing:
        raise InstallationError(
            f"{wheel} needs {', '.join(library.soname for library in missing)}: not found.",
            pip_again(pins(missing)),
            "A CUDA 11 with cuDNN 8 of the system works as well, if it is complete and LD_LIBRARY_PATH names its "
            "folders.",
        )
    cudnn = cuda.foreign_cudnn()
    if cudnn and cudnn.version < MXNET_CUDNN:
        raise InstallationError(
            f"{wheel} needs cuDNN {dotted(MXNET_CUDNN)} or a newer 8, and this process gets cuDNN "
            f"{dotted(cudnn.version)} from {cudnn.path}.",
            "import mxsame, mxnet  # before the package that loads it" if cudnn.loaded else "unset LD_LIBRARY_PATH",
            "The wheel nvidia-cudnn-cu11 is then taken instead.",
        )


def tensorflow_came_before_libstdcxx(libraries: List[str]) -> bool:
    """Whether libstdc++ looks up symbols in TensorFlow first, as it does if TensorFlow's import loaded it.

    Then ``std::random_device::_M_init`` of libstdc++ calls TensorFlow's, which fills another structure than the one
    that ``_M_getval`` reads, and MXNet, which draws a number from it while being loaded, jumps to a wild address.
    """
    names = [os.path.basename(library).split(".so")[0] for library in libraries]
    first = [name for name in names if name in ("libstdc++", "libtensorflow_framework")]
    return first[:1] == ["libtensorflow_framework"]


def dotted(version: int) -> str:
    """``'8.9.6'`` of the 8906 that cuDNN gives as its version."""
    return f"{version // 1000}.{version % 1000 // 100}.{version % 100}"


# Problems that MXNet's own import runs into.


def explain(error: Exception) -> InstallationError:
    """The problem behind an import of MXNet that failed with ``error``."""
    wheel, version = next(iter(mxnet_wheels().items()), ("mxnet", MXNET_VERSION))
    if isinstance(error, ModuleNotFoundError) and error.name == "mxnet":
        return InstallationError("MXNet is not installed.", reinstall("mxnet"), FOR_A_GPU)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("mxnet."):
        problem = f"MXNet needs the package {error.name}, which is not installed."
        return InstallationError(problem, pip(f"install {error.name}"))
    library_problem = explain_library(error, wheel) if isinstance(error, OSError) else None
    if library_problem:
        return library_problem
    if version != MXNET_VERSION:
        made_for = f"{wheel} {version} cannot be imported, and mxsame is made for {MXNET_VERSION}"
        return InstallationError(f"{made_for}: {type(error).__name__}: {error}.", reinstall(wheel))
    return InstallationError(f"The installed MXNet is broken: {type(error).__name__}: {error}.", reinstall(wheel))


def explain_library(error: OSError, wheel: str) -> Optional[InstallationError]:
    """The problem with a shared library, not MXNet's own, that cannot be loaded; None for another error."""
    if re.search(r"undefined symbol: cu[A-Z]", str(error)):  # the driver's functions have such names: cuLaunchKernel
        return InstallationError(
            f"NVIDIA's driver is too old for {wheel}: {error}.",
            reinstall("mxnet"),
            "The command changes to the MXNet that computes on the CPU. For a GPU install a newer driver.",
        )
    damaged = damaged_library(error)
    if damaged:
        return InstallationError(f"A library of CUDA cannot be loaded: {error}.", pip_again(pins([damaged])))
    library = missing_library(error)
    if not library or library in ("libopenblas.so.0", "libgfortran.so.3"):  # these two are in MXNet's wheel
        return None
    if not re.match(r"lib(cu|nv|nccl)", library):
        return InstallationError(
            f"{wheel} needs the system library {library}, which is not found.",
            "apt-get install -y libgomp1 libquadmath0 libstdc++6 zlib1g",
            "The names are those of Debian and Ubuntu.",
        )
    if wheel == MXNET_CUDA_WHEEL:
        return InstallationError(
            f"CUDA's libraries do not fit together: one of them needs {library}, which is not found.",
            pip_again(pins()),
            "Wheels for CUDA 12 put files of theirs over those for CUDA 11; they need another environment.",
        )
    return InstallationError(
        f"{wheel} needs {library}, which is not found. The wheel brings none of CUDA's libraries, and of MXNet's "
        f"builds for CUDA mxsame finds them for {MXNET_CUDA_WHEEL} only.",
        f"{reinstall(MXNET_CUDA_WHEEL)} {' '.join(pins())}",
        f"Without an NVIDIA GPU let the command end in mxnet=={MXNET_VERSION}.",
    )


def damaged_library(error: OSError) -> Optional[Library]:
    """The library of CUDA, in a wheel, that ``OSError('/.../libcufft.so.10: file is cut off')`` is about."""
    match = re.match(r"/[^:]*/nvidia/[^/:]+/lib/([^/:]+): ", str(error))
    return next((library for library in LIBRARIES if match and library.soname == match.group(1)), None)


def missing_library(error: OSError) -> Optional[str]:
    """``'libcudnn.so.8'`` of ``OSError('libcudnn.so.8: cannot open shared object file: No such file ...')``."""
    match = re.match(r"(?:.*/)?(lib[^/:]+): cannot open shared object file: No such file", str(error))
    return match.group(1) if match else None
