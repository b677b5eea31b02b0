"""Whether a shared library is whole: loading one that is cut off may kill the process."""

import os
import struct

SEGMENT = struct.Struct("<8xQ16xQ16x")  # a program header of ELF: offset and size of the segment in the file


def is_whole(path: str) -> bool:
    """Whether it is a file that ``check_whole`` accepts; the dynamic linker skips others."""
    try:
        check_whole(path)
    except OSError:
        return False
    return True


def check_whole(path: str) -> None:
    """Raises ``OSError`` if a library is no ELF file of 64 bits, or is shorter than its headers say."""
    with open(path, "rb") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            raise OSError(f"{path}: not an ELF file of 64 bits")
        try:
            # Where program headers and section headers start; the size and the number of each.
            segments, sections, _, count, section_size, section_count = struct.unpack_from("<QQ6xHHHH", header, 32)
            file.seek(segments)
            ends = [offset + size for offset, size in SEGMENT.iter_unpack(file.read(SEGMENT.size * count))]
        except struct.error:
            raise OSError(f"{path}: file is cut off") from None
        if max(*ends, segments, sections + section_size * section_count) > os.path.getsize(path):
            raise OSError(f"{path}: file is cut off")
