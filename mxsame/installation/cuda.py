"""Loads what MXNet's CUDA build needs: CUDA's libraries and NVIDIA's driver.

The dynamic linker does not search the wheels that contain CUDA's libraries. But where a library is needed by its
soname, the linker uses one that the process has loaded; so ``load`` runs before MXNet is imported.
"""

import ctypes
import glob
import os
import sys
from typing import Any, List, Optional, Tuple

from mxsame.installation.requirements import LIBRARIES, Library

DRIVER = "libcuda.so.1"
CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, and _MINOR
DRIVER_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
)  # in containers and WSL; the linker does not search them


def load() -> List[Library]:
    """Loads CUDA's libraries from wheels, or from the folders of the dynamic linker; returns those that are in neither.

    If the process has already loaded a library of a wheel, the others of that wheel are not loaded: all parts of cuDNN
    must have one version. Raises an ``OSError`` if a library in a wheel cannot be loaded.
    """
    in_use = {library.wheel for library in LIBRARIES if _opens(library.soname, os.RTLD_NOLOAD)}
    missing = []
    for library in LIBRARIES:
        if library.wheel in in_use:
            continue
        path = in_wheel(library.soname)
        try:
            ctypes.CDLL(path or library.soname, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            if not path:
                missing.append(library)
            elif not missing:  # otherwise this library may need one that is missing
                raise
    os.environ.setdefault("MXNET_CUDNN_LIB_CHECKING", "0")  # else MXNet warns of every cuDNN except 8.1.1
    return missing


def in_wheel(soname: str) -> Optional[str]:
    """Returns the path of a library in one of this Python's wheels ``nvidia-*``, or None."""
    patterns = (os.path.join(glob.escape(path), "nvidia", "*", "lib", soname) for path in sys.path)
    return next((os.path.abspath(path) for pattern in patterns for path in sorted(glob.glob(pattern))), None)


def has_driver() -> bool:
    """Loads NVIDIA's driver, and returns whether that succeeded."""
    paths = (DRIVER, *(os.path.join(folder, DRIVER) for folder in DRIVER_FOLDERS))
    return any(_opens(path, ctypes.RTLD_GLOBAL) for path in paths)


def capabilities() -> List[Tuple[int, ...]]:
    """Returns the compute capability of each GPU, such as ``(9, 0)``, in the order of ``mx.gpu``; [] without NVIDIA's
    driver, which reports it. No kernel runs."""
    try:
        driver = ctypes.CDLL(DRIVER)
        count = 0 if driver.cuInit(0) else _query(driver.cuDeviceGetCount)
        devices = [_query(driver.cuDeviceGet, number) for number in range(count)]
        return [tuple(_query(driver.cuDeviceGetAttribute, each, device) for each in CAPABILITY) for device in devices]
    except (OSError, AttributeError):
        return []


def _query(function: Any, *arguments: int) -> int:
    """Calls a function of the driver, and returns the value that it writes to the address in its first argument."""
    value = ctypes.c_int()
    function(ctypes.byref(value), *arguments)
    return value.value


def _opens(path: str, mode: int) -> bool:
    """Opens a library in this mode, and returns whether that succeeded; with RTLD_NOLOAD, whether it is loaded."""
    try:
        ctypes.CDLL(path, mode=mode)
    except OSError:
        return False
    return True
