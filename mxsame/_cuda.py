"""What MXNet's CUDA build wants of a machine: NVIDIA's driver, CUDA's libraries, a GPU that runs its machine code.

The wheel mxnet-cu112 brings none of CUDA's libraries. They are wheels as well, and ``LIBRARIES`` is the one list of
them: ``setup.py`` takes the pins of the extra ``cu112`` from it. The dynamic linker does not look into wheels, but it
takes a library that the process has loaded for every later one of that soname; hence ``load`` before MXNet's import.

Only the standard library is used, so that this can be asked where nothing else works.
"""

import contextlib
import ctypes
import glob
import mmap
import os
import re
import struct
import sys
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

MXNET_WHEEL = "mxnet-cu112"
MXNET_CUDNN = 8101  # the cuDNN that MXNet was compiled for, 8.1.1; every newer one of major version 8 serves it


class Library(NamedTuple):
    """A library, the wheel that brings it, and the version of the wheel that is known to go with the others."""

    soname: str
    wheel: str
    version: str


CUDNN = "libcudnn.so.8"

LIBRARIES = (  # in the order of loading: none needs a later one
    Library("libcudart.so.11.0", "nvidia-cuda-runtime-cu11", "11.8.89"),
    Library("libnvToolsExt.so.1", "nvidia-nvtx-cu11", "11.8.86"),
    Library("libnvrtc.so.11.2", "nvidia-cuda-nvrtc-cu11", "11.8.89"),
    Library("libcublasLt.so.11", "nvidia-cublas-cu11", "11.11.3.6"),
    Library("libcublas.so.11", "nvidia-cublas-cu11", "11.11.3.6"),
    Library("libcufft.so.10", "nvidia-cufft-cu11", "10.9.0.58"),
    Library("libcurand.so.10", "nvidia-curand-cu11", "10.3.0.86"),
    Library("libcusolver.so.11", "nvidia-cusolver-cu11", "11.4.1.48"),
    Library("libnccl.so.2", "nvidia-nccl-cu11", "2.21.5"),
    *(
        Library(soname, "nvidia-cudnn-cu11", "8.9.6.50")
        for soname in (
            CUDNN,  # loads its parts when they are first used, by soname, from wherever the linker finds them
            "libcudnn_ops_infer.so.8",
            "libcudnn_ops_train.so.8",
            "libcudnn_cnn_infer.so.8",
            "libcudnn_cnn_train.so.8",
            "libcudnn_adv_infer.so.8",
            "libcudnn_adv_train.so.8",
        )
    ),
)


def pins(libraries: Iterable[Library] = LIBRARIES) -> List[str]:
    """What pip installs for these libraries: ``['nvidia-cuda-runtime-cu11==11.8.89', ...]``."""
    return list(dict.fromkeys(f"{library.wheel}=={library.version}" for library in libraries))


# Where the libraries are.


class Found(NamedTuple):
    """Where a library is, and why it is taken from there: 'loaded', 'system' or 'wheel'."""

    path: str
    origin: str


def locate(soname: str) -> Optional[Found]:
    """The library that MXNet gets under this name once ``load`` has run; None where there is none.

    That is the one the process has loaded; or the system's, if it has all of ``LIBRARIES``; or the wheel's; or, where
    there is no wheel of it, again the system's. The parts of cuDNN have to be of one version, so they are taken from
    beside the cuDNN that loads them.
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
    """The folders in which the dynamic linker looks for what Python asks it for, LD_LIBRARY_PATH's among them."""
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
    """The cuDNN that MXNet gets, which is loaded by asking; None where it gets a wheel's, or none."""
    found = locate(CUDNN)
    if found is None or found.origin == "wheel":
        return None
    version = ctypes.CDLL(found.path).cudnnGetVersion
    version.restype = ctypes.c_size_t
    return ForeignCudnn(found.path, version(), found.origin == "loaded")


def load() -> None:
    """Loads the libraries that come from wheels; ``OSError`` names the one that cannot be loaded.

    What the process has loaded and what the system's linker finds by itself are left to MXNet's import.
    """
    found = [locate(library.soname) for library in LIBRARIES]  # all before the first is loaded, which changes answers
    for library in found:
        if library and library.origin == "wheel":
            check_whole(library.path)
            ctypes.CDLL(library.path, mode=ctypes.RTLD_GLOBAL)
    os.environ.setdefault("MXNET_CUDNN_LIB_CHECKING", "0")  # MXNet would warn of every cuDNN but 8.1.1


# The driver and the GPUs.

DRIVER = "libcuda.so.1"
DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib")  # containers' and WSL's, where the linker is not told


class Driver(NamedTuple):
    """NVIDIA's driver: its library, the newest CUDA that it runs, and the version of its kernel module."""

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
    """The driver of this machine, which is loaded by asking; None where there is none."""
    library = libcuda()
    found = locate(DRIVER)
    if library is None or found is None:
        return None
    version = ctypes.c_int()
    answered = succeeds(library, "cuDriverGetVersion", ctypes.byref(version))  # 11020 is CUDA 11.2
    cuda = (version.value // 1000, version.value % 1000 // 10) if answered else None
    return Driver(found.path, cuda, kernel_module())


def devices() -> List[Device]:
    """The GPUs that the driver shows to this process, as CUDA_VISIBLE_DEVICES and containers allow; maybe none."""
    library, count = libcuda(), ctypes.c_int()
    if library is None or not succeeds(library, "cuInit", 0):
        return []
    succeeds(library, "cuDeviceGetCount", ctypes.byref(count))
    return [device for number in range(count.value) for device in asked(library, number)]


def asked(library: ctypes.CDLL, number: int) -> Iterator[Device]:
    """What the driver says of one GPU; nothing where it does not answer."""
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
    """The driver's library, loaded; None where there is none, or none that can be loaded."""
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


# What is in a library's file.


FAT_BINARY = b"\x50\xed\x55\xba"
PTX, MACHINE = 1, 2  # kinds of entries


class Code(NamedTuple):
    """The compute capabilities, sorted, for which a library holds machine code, and those of its PTX."""

    machine: Tuple[Tuple[int, int], ...]
    ptx: Tuple[Tuple[int, int], ...]


def runs_on(capability: Tuple[int, int], code: Code) -> bool:
    """Whether a GPU runs it: machine code of its own major version and no newer minor one, or PTX that is no newer.

    NVIDIA: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".

    >>> maxwell_to_ampere = Code(machine=((5, 0), (6, 0), (7, 0), (8, 0), (8, 6)), ptx=())
    >>> [runs_on(capability, maxwell_to_ampere) for capability in ((3, 7), (7, 5), (8, 9), (9, 0))]
    [False, True, True, False]
    """
    major, minor = capability
    return any(has == major and least <= minor for has, least in code.machine) or any(
        least <= capability for least in code.ptx
    )


def machine_code(path: str) -> Code:
    """The code for GPUs in a library; none where it has no section ``.nv_fatbin``.

    The section is a row of fat binaries: each is a header and entries, and an entry is a header and code for one
    capability (of other kinds than the two there is nothing to say). Raises ``OSError`` as ``check_whole`` does.
    """
    found: Dict[int, Set[Tuple[int, int]]] = {PTX: set(), MACHINE: set()}
    with elf_file(path) as data:
        offset, size = sections(data).get(".nv_fatbin", (0, 0))
        start, end = data.find(FAT_BINARY, offset, offset + size), offset + size
        while start >= 0:
            header, length = struct.unpack_from("<HQ", data, start + 6)
            entry, start = start + header, start + header + length
            while entry < start:
                kind, entry_header, entry_length, capability = struct.unpack_from("<HxxIQ12xI", data, entry)
                found.setdefault(kind, set()).add((capability // 10, capability % 10))
                entry += entry_header + entry_length
            start = data.find(FAT_BINARY, start, end)  # they are padded
    return Code(tuple(sorted(found[MACHINE])), tuple(sorted(found[PTX])))


def is_whole(path: str) -> bool:
    """Whether it is a file that ``check_whole`` accepts; a loader passes over what is no library for this machine."""
    try:
        check_whole(path)
    except OSError:
        return False
    return True


def check_whole(path: str) -> None:
    """Raises ``OSError`` where a library is no ELF file of 64 bits or is cut off: loading it may kill the process."""
    with elf_file(path):
        pass


@contextlib.contextmanager
def elf_file(path: str) -> Iterator[mmap.mmap]:
    """The bytes of a file that begins as an ELF file and is as long as its headers say."""
    with open(path, "rb") as file:
        if file.read(5) != b"\x7fELF\x02":
            raise OSError(f"{path}: not an ELF file of 64 bits")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                segments = tables(data)[0]
                ends = [offset + size for _, _, offset, _, _, size, _, _ in segments]
            except struct.error:
                whole = False
            else:
                whole = max(ends, default=0) <= len(data)
            if not whole:
                raise OSError(f"{path}: file is cut off")
            yield data


def tables(data: mmap.mmap) -> Tuple[List[Tuple[int, ...]], List[Tuple[int, ...]], int]:
    """The program headers and the section headers of an ELF file, and which section has the sections' names."""
    first, second, first_size, first_count, second_size, second_count, names = struct.unpack_from(
        "<QQ6xHHHHH", data, 32
    )
    segments = [struct.unpack_from("<IIQQQQQQ", data, first + first_size * index) for index in range(first_count)]
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, second + second_size * index) for index in range(second_count)]
    return segments, headers, names


def sections(data: mmap.mmap) -> Dict[str, Tuple[int, int]]:
    """Offset and size of the sections of an ELF file by their names."""
    _, headers, names = tables(data)
    start = headers[names][4] if headers else 0
    named = {data[start + header[0] : data.find(b"\0", start + header[0])].decode(): header for header in headers}
    return {name: (header[4], header[5]) for name, header in named.items()}
