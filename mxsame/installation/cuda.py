"""Loads what MXNet's CUDA build needs: CUDA's libraries and NVIDIA's driver.

The dynamic linker does not look into the wheels that contain CUDA's libraries, but it takes a library that the process
has loaded for every later one of that soname; hence ``load`` before MXNet's import.
"""

import ctypes
import glob
import os
import sys
from typing import Any, List, Optional, Tuple

from mxsame.installation.requirements import LIBRARIES, Library

DRIVER = "libcuda.so.1"
CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, and _MINOR
DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib")  # of containers and WSL, unknown to the linker


def load() -> List[Library]:
    """Loads CUDA's libraries from wheels, or from the folders of the dynamic linker; returns those that are in neither.

    Libraries that the process has loaded stay: all parts of cuDNN must have one version. An
    ``OSError`` names a wheel's library that cannot be loaded.
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
    os.environ.setdefault("MXNET_CUDNN_LIB_CHECKING", "0")  # MXNet would warn of every cuDNN except 8.1.1
    return missing


def in_wheel(soname: str) -> Optional[str]:
    """The path of a library in one of the wheels ``nvidia-*`` that this Python can import from."""
    patterns = (os.path.join(glob.escape(path), "nvidia", "*", "lib", soname) for path in sys.path)
    return next((os.path.abspath(path) for pattern in patterns for path in sorted(glob.glob(pattern))), None)


def has_driver() -> bool:
    """Whether NVIDIA's driver can be loaded, which this call does."""
    paths = (DRIVER, *(os.path.join(folder, DRIVER) for folder in DRIVER_FOLDERS))
    return any(_opens(path, ctypes.RTLD_GLOBAL) for path in paths)


def capabilities() -> List[Tuple[int, ...]]:
    """The compute capability of each GPU, as ``(9, 0)``, in the order of ``mx.gpu``. The driver reports it, and no
    kernel runs; without a driver that is NVIDIA's there is none."""
    try:
        driver = ctypes.CDLL(DRIVER)
        count = 0 if driver.cuInit(0) else _given(driver.cuDeviceGetCount)
        devices = [_given(driver.cuDeviceGet, number) for number in range(count)]
        return [tuple(_given(driver.cuDeviceGetAttribute, each, device) for each in CAPABILITY) for device in devices]
    except (OSError, AttributeError):
        return []


def _given(function: Any, *arguments: int) -> int:
    """What a function of the driver writes to the address of its first argument."""
    value = ctypes.c_int()
    function(ctypes.byref(value), *arguments)
    return value.value


def _opens(path: str, mode: int) -> bool:
    """Whether the dynamic linker opens a library in this mode; with RTLD_NOLOAD, whether it is loaded already."""
    try:
        ctypes.CDLL(path, mode=mode)
    except OSError:
        return False
    return True
