"""How MXNet gets imported: check, mend, import, explain. No other file of the package says ``import mxnet``.

MXNet 1.9.1 was written for older companions. Its import alone fails on NumPy 1.24 and later (``numpy.bool`` is gone)
and on a Python 3.12 without setuptools (``distutils`` is gone). Both are lent for the time of the import and taken
back; afterwards MXNet's own modules, and only they, see a NumPy that still has the aliases. MXNet for CUDA does not
find the libraries that come in wheels; they are loaded first. What cannot be mended is an ``ImportError`` that says
what was found and the one command that mends it.

An MXNet that was imported before is left as it is.
"""

import contextlib
import glob
import importlib
import importlib.util
import os
import re
import sys
import types
import warnings
from typing import Any, Dict, Iterable, Iterator, List, Optional

from mxsame import _cuda

OLDEST_PYTHON, NEWEST_PYTHON = (3, 8), (3, 12)
MXNET_VERSION = "1.9.1"
MXNET_WHEEL = r"(mxnet(?:[-_](?:cu\d+|mkl|native))?)-([^-]+)\.dist-info"  # all of them own the same folder, mxnet/
NUMPY_ALIASES: Dict[str, Any] = {"bool": bool, "int": int}  # what MXNet uses of the aliases gone since NumPy 1.24
NUMPY_EXPIRED = ("mirr", "npv", "pmt", "ppmt", "pv", "rate")  # MXNet passes them on; NumPy 1.20 and later warn


def import_mxnet() -> Any:
    """Returns the module ``mxnet``; raises an ``ImportError`` that explains itself."""
    if hasattr(sys.modules.get("mxnet"), "__version__"):
        return sys.modules["mxnet"]
    check()
    forget_failed_import()
    try:
        if _cuda.MXNET_WHEEL in installed_wheels():
            _cuda.load()
        with lent_numpy_names(), lent_distutils():
            mxnet = importlib.import_module("mxnet")
            if not hasattr(mxnet, "__version__"):
                raise ImportError("the folder mxnet holds no Python package")  # an uninstall can leave one behind
    except Exception as error:
        forget_failed_import()
        raise ImportError(explain(error)) from error
    keep_numpy_aliases_for_mxnet()
    return mxnet


# Check: what is known to fail before MXNet's own code runs.


def check() -> None:
    """Raises an ``ImportError`` where Python, NumPy, the installed wheels or the order of imports cannot work."""
    if not OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        raise ImportError(
            message(
                "mxsame runs on Python 3.8 to 3.12 (MXNet 1.9.1 on no newer one).",
                "python3.11 -m venv .venv && .venv/bin/python -m pip install '.[cpu]'",
                "Run this in the folder of mxsame; it makes an environment with a Python that works.",
            )
        )
    try:
        import numpy
    except ImportError as error:
        raise ImportError(message(f"NumPy cannot be imported: {error}.", pip("install 'numpy<2'"))) from error
    if int(numpy.__version__.split(".")[0]) >= 2:
        raise ImportError(
            message(f"MXNet {MXNET_VERSION} needs NumPy 1, and NumPy 2 is installed.", pip("install 'numpy<2'"))
        )
    wheels = installed_wheels()
    if len(wheels) > 1:
        raise ImportError(
            message(
                f"{' and '.join(wheels)} are installed over each other: both own the same folder.",
                reinstall("mxnet"),
                f"For an NVIDIA GPU let the command end in mxnet-cu112=={MXNET_VERSION}.",
            )
        )
    if "tensorflow" in sys.modules and tensorflow_came_before_libstdcxx(_cuda.loaded_libraries()):
        raise ImportError(
            message(
                "TensorFlow was imported first, and MXNet would now crash the process. TensorFlow brings its own copy "
                "of a part of libstdc++ (std::random_device), mixes it into the libstdc++ that MXNet uses, and this "
                "cannot be undone.",
                "import mxsame  # before: import tensorflow",
            )
        )
    for wheel in wheels:
        if "-cu" in wheel:
            check_cuda(wheel)


def check_cuda(wheel: str) -> None:
    """Raises an ``ImportError`` where the machine lacks what MXNet's build for CUDA is linked to."""
    if _cuda.libcuda() is None:
        raise ImportError(
            message(
                f"{wheel} needs NVIDIA's driver ({_cuda.DRIVER}), and none is found that can be loaded.",
                reinstall("mxnet"),
                "The command changes to the MXNet that computes on the CPU. For a GPU install NVIDIA's driver; a "
                "container gets it from its host (docker run --gpus all).",
            )
        )
    if wheel != _cuda.MXNET_WHEEL:  # of the others nothing is known; the system's linker has to find what they need
        return
    missing = _cuda.missing()
    if missing:
        raise ImportError(
            message(
                f"{wheel} needs {', '.join(library.soname for library in missing)}: not found.",
                pip_again(missing),
                "A CUDA 11 with cuDNN 8 of the system serves as well, if it is complete and LD_LIBRARY_PATH names its "
                "folders.",
            )
        )
    cudnn = _cuda.foreign_cudnn()
    if cudnn and cudnn.version < _cuda.MXNET_CUDNN:
        raise ImportError(
            message(
                f"{wheel} needs cuDNN {dotted(_cuda.MXNET_CUDNN)} or a newer 8, and this process gets cuDNN "
                f"{dotted(cudnn.version)} from {cudnn.path}.",
                "import mxsame  # before the package that loads it" if cudnn.loaded else "unset LD_LIBRARY_PATH",
                "The wheel nvidia-cudnn-cu11 is then taken instead.",
            )
        )


def mxnet_folders() -> List[str]:
    """The folder from which Python would import MXNet (or folders, where no real package is found); maybe none."""
    spec = importlib.util.find_spec("mxnet")
    return list(spec.submodule_search_locations or []) if spec else []


def installed_wheels() -> Dict[str, str]:
    """Name and version of the wheels that own the folder ``mxnet``: one where all is well, two over each other."""
    wheels = {}
    for path in [os.path.dirname(folder) for folder in mxnet_folders()] or sys.path:
        for info in sorted(glob.glob(os.path.join(glob.escape(path), "mxnet*.dist-info"))):
            match = re.fullmatch(MXNET_WHEEL, os.path.basename(info))
            if match:
                wheels[match.group(1).replace("_", "-")] = match.group(2)
    return wheels


def tensorflow_came_before_libstdcxx(libraries: List[str]) -> bool:
    """Whether libstdc++ looks symbols up in TensorFlow first, as it does when TensorFlow was what loaded it.

    Then ``std::random_device::_M_init`` of libstdc++ calls TensorFlow's, which fills another structure than the one
    that ``_M_getval`` reads, and MXNet, which draws a number from it while being loaded, jumps to a wild address.
    """
    names = [os.path.basename(library).split(".so")[0] for library in libraries]
    first = [name for name in names if name in ("libstdc++", "libtensorflow_framework")]
    return first[:1] == ["libtensorflow_framework"]


# Mend: what MXNet expects of its companions, lent while it is imported.


def forget_failed_import() -> None:
    """Drops the submodules that a failed ``import mxnet`` leaves behind, which would break the next one."""
    for name in [name for name in sys.modules if name.split(".")[0] == "mxnet"]:
        del sys.modules[name]


@contextlib.contextmanager
def lent_numpy_names() -> Iterator[None]:
    """Puts the names that MXNet expects into NumPy, so that none is missing and none raises a DeprecationWarning."""
    import numpy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = {**NUMPY_ALIASES, **{name: getattr(numpy, name) for name in NUMPY_EXPIRED}}
    lent = {name: value for name, value in expected.items() if name not in vars(numpy)}
    vars(numpy).update(lent)
    try:
        yield
    finally:
        for name in lent:
            del vars(numpy)[name]


class Version:
    """As much of distutils' StrictVersion and LooseVersion as MXNet uses: ``Version("1.26.4") >= Version("1.17")``."""

    def __init__(self, text: str) -> None:
        self.numbers = [int(number) for number in re.findall(r"\d+", text)]

    def __ge__(self, other: "Version") -> bool:
        return self.numbers >= other.numbers


@contextlib.contextmanager
def lent_distutils() -> Iterator[None]:
    """Stands in for ``distutils.version``: gone from Python 3.12, a DeprecationWarning on 3.10 and 3.11."""
    name = "distutils.version"
    found = sys.modules.get(name)
    standin = types.ModuleType(name)
    vars(standin).update(StrictVersion=Version, LooseVersion=Version)
    sys.modules[name] = standin
    try:
        yield
    finally:
        del sys.modules[name]
        if found is not None:
            sys.modules[name] = found


def keep_numpy_aliases_for_mxnet() -> None:
    """Lets MXNet's modules see a copy of NumPy's namespace that keeps the aliases: some functions use them later."""
    import numpy

    standin = types.ModuleType("numpy", numpy.__doc__)
    vars(standin).update({**NUMPY_ALIASES, **vars(numpy)})
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "mxnet":
            for key, value in list(vars(module).items()):
                if value is numpy:
                    setattr(module, key, standin)


# Explain: what went wrong, what was found, the one command that mends it.


def explain(error: Exception) -> str:
    """The message for an import of MXNet that failed with ``error``."""
    wheel, version = next(iter(installed_wheels().items()), ("mxnet", MXNET_VERSION))
    if isinstance(error, ModuleNotFoundError) and error.name == "mxnet":
        hint = f"For an NVIDIA GPU let the command end in mxnet-cu112=={MXNET_VERSION}."
        return message("MXNet is not installed.", reinstall("mxnet"), hint)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("mxnet."):
        return message(f"MXNet needs the package {error.name}, which is not installed.", pip(f"install {error.name}"))
    problem = explain_library(error, wheel)
    if problem:
        return problem
    if version != MXNET_VERSION:
        return message(
            f"{wheel} {version} cannot be imported, and mxsame is made for {MXNET_VERSION}: {type(error).__name__}: "
            f"{error}.",
            reinstall(wheel),
        )
    return message(f"The installed MXNet is broken: {type(error).__name__}: {error}.", reinstall(wheel))


def explain_library(error: Exception, wheel: str) -> Optional[str]:
    """The message for a shared library, not MXNet's own, that cannot be loaded; None for another error."""
    if re.search(r"undefined symbol: cu[A-Z]", str(error)):  # so the driver's functions are called: cuLaunchKernel
        return message(
            f"NVIDIA's driver is too old for {wheel}: {error}.",
            reinstall("mxnet"),
            "The command changes to the MXNet that computes on the CPU. For a GPU install a newer driver.",
        )
    damaged = damaged_library(error)
    if damaged:
        return message(f"A library of CUDA cannot be loaded: {error}.", pip_again([damaged]))
    library = missing_library(error)
    if not library or library in ("libopenblas.so.0", "libgfortran.so.3"):  # these two are in MXNet's wheel
        return None
    if not re.match(r"lib(cu|nv|nccl)", library):
        return message(
            f"{wheel} needs the system library {library}, which is not found.",
            "apt-get install -y libgomp1 libquadmath0 libstdc++6 zlib1g",
            "The names are those of Debian and Ubuntu.",
        )
    if wheel == _cuda.MXNET_WHEEL:
        return message(
            f"CUDA's libraries do not fit together: one of them needs {library}, which is not found.",
            pip_again(_cuda.LIBRARIES),
            "Wheels for CUDA 12 put files of theirs over those for CUDA 11; they need another environment.",
        )
    return message(
        f"{wheel} needs {library}, which is not found. The wheel brings none of CUDA's libraries, and of MXNet's "
        f"builds for CUDA mxsame finds them for {_cuda.MXNET_WHEEL} only.",
        f"{reinstall(_cuda.MXNET_WHEEL)} {' '.join(_cuda.pins())}",
        f"Without an NVIDIA GPU let the command end in mxnet=={MXNET_VERSION}.",
    )


def damaged_library(error: Exception) -> Optional[_cuda.Library]:
    """The library of CUDA, in a wheel, that ``OSError('/.../libcufft.so.10: file is cut off')`` is about."""
    match = re.match(r"/[^:]*/nvidia/[^/:]+/lib/([^/:]+): ", str(error))
    found = [library for library in _cuda.LIBRARIES if match and library.soname == match.group(1)]
    return found[0] if found and isinstance(error, OSError) else None


def missing_library(error: Exception) -> Optional[str]:
    """``'libcudnn.so.8'`` of ``OSError('libcudnn.so.8: cannot open shared object file: No such file ...')``."""
    match = re.match(r"(?:.*/)?(lib[^/:]+): cannot open shared object file: No such file", str(error))
    return match.group(1) if match and isinstance(error, OSError) else None


def message(problem: str, command: str, hint: str = "") -> str:
    """An error's text: the problem, what is installed and where, the command."""
    lines = [problem, f"  found: {found()}", f"  mend it with: {command}"]
    return "\n".join([*lines, f"  {hint}"] if hint else lines)


def found() -> str:
    """``'Python 3.12.1 (/usr/bin/python3), NumPy 1.26.4 (/usr/lib/...), mxnet 1.9.1 (/usr/lib/...)'``."""
    parts = ["Python {}.{}.{} ({})".format(*sys.version_info[:3], sys.executable)]
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        parts.append(f"NumPy {numpy.__version__} ({os.path.dirname(str(numpy.__file__))})")
    wheels = " and ".join(f"{name} {version}" for name, version in installed_wheels().items())
    parts += [f"{wheels or 'a folder mxnet that pip knows nothing of'} ({folder})" for folder in mxnet_folders()]
    return ", ".join(parts)


def pip(arguments: str) -> str:
    """The command that runs pip for this Python."""
    return f"{sys.executable} -m pip {arguments}"


def pip_again(libraries: Iterable[_cuda.Library]) -> str:
    """The command that installs wheels whose files are missing or damaged, even where pip knows them as installed."""
    return pip(f"install --force-reinstall --no-deps {' '.join(_cuda.pins(libraries))}")


def dotted(version: int) -> str:
    """``'8.9.6'`` of the 8906 that cuDNN gives as its version."""
    return f"{version // 1000}.{version % 1000 // 100}.{version % 100}"


def reinstall(wheel: str) -> str:
    """The command that removes what is installed of MXNet and installs one wheel."""
    wheels = installed_wheels()
    install = pip(f"install {wheel}=={MXNET_VERSION}")
    return f"{pip('uninstall -y ' + ' '.join(wheels))} && {install}" if wheels else install


mx: Any = import_mxnet()
