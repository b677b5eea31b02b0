"""What MXNet's CUDA build needs of a machine: CUDA's libraries, NVIDIA's driver and its GPUs.

The dynamic linker does not look into the wheels that contain CUDA's libraries, but it takes a library that the process
has loaded for every later one of that soname; hence ``load`` before MXNet's import.
"""

import ctypes
import glob
import os
import re
import sys
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from mxsame.installation.elf import check_whole, is_whole
from mxsame.installation.requirements import CUDNN, LIBRARIES, Library

# CUDA's libraries.


class Found(NamedTuple):
    """Where a library is, and why it is taken from there: 'loaded', 'system' or 'wheel'."""

    path: str
    origin: str


def locate(soname: str) -> Optional[Found]:
    """The library that MXNet gets under this name once ``load`` has run; None if there is none.

    That is the one the process has loaded; or the system's, if it has all of ``LIBRARIES``; or the wheel's; or, if no
    wheel has it, again the system's. The parts of cuDNN have to be of one version, so they are taken from the folder of
    the cuDNN that loads them.
    """
    for path in loaded_libraries():
        if os.path.basename(path) == soname:
            return Found(path, "loaded")
    if soname.startswith("libcudnn_"):
        cudnn = locate(CUDNN)
        part = os.path.join(os.path.dirname(cudnn.path), soname) if cudnn else ""
        return Found(part, cudnn.origin) if cudnn and os.path.exists(part) else None
    system, wheel = in_system(soname), in_wheel(soname)
    if system and (not wheel or all(in_system(library.soname) for library in LIBRARIES)):
        return Found(system, "system")
    return Found(wheel, "wheel") if wheel else None


class LinkMap(ctypes.Structure):
    """struct link_map of <link.h>"""


LinkMap._fields_ = [
    ("address", ctypes.c_void_p),
    ("name", ctypes.c_char_p),
    ("dynamic", ctypes.c_void_p),
    ("next", ctypes.POINTER(LinkMap)),
]


def loaded_libraries() -> List[str]:
    """Paths of the shared libraries of this process in the order in which they were loaded; empty outside Linux."""
    if not sys.platform.startswith("linux"):
        return []
    entry = ctypes.cast(ctypes.CDLL(None)._handle, ctypes.POINTER(LinkMap))  # the program itself is the first
    libraries = []
    while entry:
        libraries.append(os.fsdecode(entry.contents.name))
        entry = entry.contents.next
    return libraries


def in_system(soname: str) -> Optional[str]:
    """The path at which the dynamic linker finds a library by itself; nothing is loaded to find out."""
    paths = [os.path.join(folder, soname) for folder in linker_folders()] + linker_cache(soname)
    return next((os.path.abspath(path) for path in paths if is_whole(path)), None)


def in_wheel(soname: str) -> Optional[str]:
    """The path of a library in one of the wheels ``nvidia-*`` that this Python sees."""
    patterns = (os.path.join(glob.escape(path), "nvidia", "*", "lib", soname) for path in sys.path)
    return next((os.path.abspath(path) for pattern in patterns for path in sorted(glob.glob(pattern))), None)


class SearchPath(ctypes.Structure):
    """Dl_serpath of <dlfcn.h>"""

    _fields_ = [("name", ctypes.c_char_p), ("flags", ctypes.c_uint)]


class SearchInfo(ctypes.Structure):
    """Dl_serinfo of <dlfcn.h>; the paths follow it"""

    _fields_ = [("size", ctypes.c_size_t), ("count", ctypes.c_uint)]


def linker_folders() -> List[str]:
    """The folders in which the dynamic linker looks for libraries that Python loads, LD_LIBRARY_PATH's among them."""
    if not sys.platform.startswith("linux"):
        return []
    program, serinfo, serinfosize = ctypes.CDLL(None), 4, 5  # RTLD_DI_SERINFO, RTLD_DI_SERINFOSIZE
    handle, info = ctypes.c_void_p(program._handle), SearchInfo()
    program.dlinfo(handle, serinfosize, ctypes.byref(info))
    buffer = ctypes.create_string_buffer(info.size)
    program.dlinfo(handle, serinfosize, buffer)
    program.dlinfo(handle, serinfo, buffer)
    paths = (SearchPath * info.count).from_buffer(buffer, ctypes.sizeof(SearchInfo))
    return [os.fsdecode(path.name) for path in paths]


def linker_cache(soname: str, cache: str = "/etc/ld.so.cache") -> List[str]:
    """The paths of a library in the cache that ``ldconfig`` writes: its strings end with a zero."""
    try:
        with open(cache, "rb") as file:
            contents = file.read()
    except OSError:
        return []
    return [os.fsdecode(path) for path in re.findall(rb"(/[^\0]*/" + re.escape(soname.encode()) + rb")\0", contents)]


def missing() -> List[Library]:
    """The libraries that are neither in this process nor in the system nor in a wheel."""
    return [library for library in LIBRARIES if locate(library.soname) is None]


class ForeignCudnn(NamedTuple):
    """A cuDNN that is not a wheel's: where it is, its version (8906 is 8.9.6), whether this process has loaded it."""

    path: str
    version: int
    loaded: bool


def foreign_cudnn() -> Optional[ForeignCudnn]:
    """The cuDNN that MXNet gets, which this call loads; None if it gets a wheel's, or none."""
    found = locate(CUDNN)
    if found is None or found.origin == "wheel":
        return None
    version = ctypes.CDLL(found.path).cudnnGetVersion
    version.restype = ctypes.c_size_t
    return ForeignCudnn(found.path, version(), found.origin == "loaded")


def load() -> None:
    """Loads the libraries that come from wheels; an ``OSError`` names the one that cannot be loaded.

    MXNet's import itself uses what the process has loaded and what the system's linker finds.
    """
    found = [
        locate(library.soname) for library in LIBRARIES
    ]  # all before the first is loaded, which changes the results
    for library in found:
        if library and library.origin == "wheel":
            check_whole(library.path)
            ctypes.CDLL(library.path, mode=ctypes.RTLD_GLOBAL)
    os.environ.setdefault("MXNET_CUDNN_LIB_CHECKING", "0")  # MXNet would warn of every cuDNN but 8.1.1


# The driver and the GPUs.

DRIVER = "libcuda.so.1"
DRIVER_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
)  # containers' and WSL's, where the linker does not look


class Driver(NamedTuple):
    """NVIDIA's driver: its library, the newest CUDA that it supports, and the version of its kernel module."""

    path: str
    cuda: Optional[Tuple[int, int]]
    version: Optional[str]


class Device(NamedTuple):
    """A GPU: its number, its name, its compute capability and its memory in bytes."""

    number: int
    name: str
    capability: Tuple[int, int]
    memory: int


def driver() -> Optional[Driver]:
    """The driver of this machine, which this call loads; None if there is none."""
    library = libcuda()
    found = locate(DRIVER)
    if library is None or found is None:
        return None
    version = ctypes.c_int()
    reported = succeeds(library, "cuDriverGetVersion", ctypes.byref(version))  # 11020 is CUDA 11.2
    cuda = (version.value // 1000, version.value % 1000 // 10) if reported else None
    return Driver(found.path, cuda, kernel_module())


def devices() -> List[Device]:
    """The GPUs that the driver shows to this process, as CUDA_VISIBLE_DEVICES and containers allow; maybe none."""
    library, count = libcuda(), ctypes.c_int()
    if library is None or not succeeds(library, "cuInit", 0):
        return []
    succeeds(library, "cuDeviceGetCount", ctypes.byref(count))
    return [device for number in range(count.value) for device in query(library, number)]


def query(library: ctypes.CDLL, number: int) -> Iterator[Device]:
    """What the driver reports about one GPU; nothing if it reports an error."""
    handle, major, minor, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    if (
        succeeds(library, "cuDeviceGet", ctypes.byref(handle), number)
        and succeeds(library, "cuDeviceGetName", name, len(name), handle)
        and succeeds(library, "cuDeviceGetAttribute", ctypes.byref(major), 75, handle)  # COMPUTE_CAPABILITY_MAJOR
        and succeeds(library, "cuDeviceGetAttribute", ctypes.byref(minor), 76, handle)  # COMPUTE_CAPABILITY_MINOR
        and succeeds(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
    ):
        yield Device(number, name.value.decode(errors="replace"), (major.value, minor.value), memory.value)


def libcuda() -> Optional[ctypes.CDLL]:
    """The driver's library, loaded; None if there is none, or none that can be loaded."""
    for path in (DRIVER, *(os.path.join(folder, DRIVER) for folder in DRIVER_FOLDERS)):
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return None


def succeeds(library: ctypes.CDLL, function: str, *arguments: Any) -> bool:
    """Whether the driver has the function and it returns CUDA_SUCCESS."""
    return hasattr(library, function) and getattr(library, function)(*arguments) == 0


def kernel_module(path: str = "/proc/driver/nvidia/version") -> Optional[str]:
    """``'535.104.05'`` of ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ...``."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            match = re.search(r"\s(\d+(?:\.\d+)+)\s", file.readline())
    except OSError:
        return None
    return match.group(1) if match else None
