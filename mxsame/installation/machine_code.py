"""For which GPUs a library holds machine code: as much of ELF files, and of CUDA's sections in them, as that takes."""

import contextlib
import mmap
import struct
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

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
    """The code for GPUs in a library; none if it has no section ``.nv_fatbin``.

    The section is a row of fat binaries: each is a header and entries, and an entry is a header and code for one
    capability; entries of other kinds do not matter. Raises ``OSError`` as ``check_whole`` does.
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
    """Whether it is a file that ``check_whole`` accepts; the dynamic linker skips others."""
    try:
        check_whole(path)
    except OSError:
        return False
    return True


def check_whole(path: str) -> None:
    """Raises ``OSError`` if a library is no ELF file of 64 bits or is cut off: loading it may kill the process."""
    with elf_file(path):
        pass


@contextlib.contextmanager
def elf_file(path: str) -> Iterator[mmap.mmap]:
    """The bytes of a file that starts as an ELF file and is as long as its headers say."""
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
