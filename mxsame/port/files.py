"""Keras's files, opened with care: HDF5 and zip as data, of sizes that the file can hold, and nothing is executed.

A file is somebody else's. Declared sizes are compared with what is stored before anything is read; links that lead
out of the file, arrays of objects and filters of more than `LARGEST_RATIO` are refused; no entry of an archive is ever
written to a disk.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import struct
import zipfile
import zlib
from functools import partial
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional

import numpy as np

from mxsame import validation

LARGEST_CONFIG = 2**24  # bytes of JSON; that of NASNetLarge has one million
LARGEST_RATIO = 100  # how many times its stored bytes an array or an entry may have
HDF5_SIGNATURE, ZIP_SIGNATURE = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"


class Contents(NamedTuple):
    """What a file holds: a configuration, an HDF5 file of weights, or both."""

    config: Optional[Dict[str, Any]]
    version: Optional[str]
    weights: Any


def opened(path: Any, name: str) -> Contents:
    """The contents of a file; `name` is the argument's."""
    path = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would never end
            raise ValueError(f"{name} must be a file; received {path!r}")
        with open(path, "rb") as file:
            start = file.read(8)
    except OSError as error:
        raise ValueError(f"{name} must be a file that can be read: {error.strerror}; received {path!r}") from None
    if start == HDF5_SIGNATURE:
        root = _hdf5(path, path)
        return Contents(_attribute_json(root, "model_config", path), text(root, "keras_version"), root)
    if start[:4] == ZIP_SIGNATURE:
        return _archive(path)
    if start.lstrip()[:1] in (b"{", b"["):
        with open(path, "rb") as file:
            config = parsed(file.read(LARGEST_CONFIG + 1), path)
        return Contents(config, config.get("keras_version"), None)
    raise ValueError(f"{name} must be an HDF5 file, a .keras archive or a JSON file; received {path!r}")


def parsed(text: bytes, where: str) -> Dict[str, Any]:
    """A JSON object."""
    if len(text) > LARGEST_CONFIG:
        raise ValueError(f"{where} must have at most {LARGEST_CONFIG} bytes of JSON")
    try:
        found = json.loads(text)
        found = json.loads(found) if isinstance(found, str) else found  # as json.dump(model.to_json()) leaves it
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} must hold JSON: {type(error).__name__}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} must hold a JSON object; received a {type(found).__name__}")
    return found


# -- zip


def _archive(path: str) -> Contents:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise ValueError(f"{path} must be a whole zip archive: {error}") from None
    with archive:
        entries: Dict[str, zipfile.ZipInfo] = {}
        for entry in archive.infolist():
            parts = entry.filename.replace("\\", "/").split("/")
            if entry.filename.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
                raise ValueError(f"{path} must hold no entry that leads out of it; received {entry.filename!r}")
            if entry.filename in entries:
                raise ValueError(f"{path} must hold each entry once; received {entry.filename!r} twice")
            entries[entry.filename] = entry
        if "config.json" not in entries:
            raise ValueError(f"{path} must hold config.json, as a .keras file does")
        config = parsed(_entry(archive, entries["config.json"], path), f"config.json of {path}")
        metadata = {}
        if "metadata.json" in entries:
            metadata = parsed(_entry(archive, entries["metadata.json"], path), f"metadata.json of {path}")
        weights = None
        if "model.weights.h5" in entries:
            weights = _weights_entry(archive, entries["model.weights.h5"], path)
    return Contents(config, metadata.get("keras_version"), weights)


def _checked_entry(entry: zipfile.ZipInfo, path: str) -> None:
    size = os.path.getsize(path)
    if entry.flag_bits & 1:
        raise ValueError(f"{entry.filename} of {path} must not be encrypted")
    if entry.compress_size > size or entry.file_size > LARGEST_RATIO * entry.compress_size + 4096:
        raise ValueError(
            f"{entry.filename} of {path} must not declare more than the archive holds; "
            f"{validation.received(declared=entry.file_size, stored=entry.compress_size)}"
        )


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str, largest: int = LARGEST_CONFIG) -> bytes:
    _checked_entry(entry, path)
    try:
        with archive.open(entry) as file:
            found = file.read(min(entry.file_size, largest) + 1)
            file.read(1)  # compares the checksum
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"{entry.filename} of {path} must be whole: {error}") from None
    if len(found) > largest:
        raise ValueError(f"{entry.filename} of {path} must have at most {largest} bytes")
    return found


def _weights_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str) -> Any:
    """The HDF5 file in an archive: read where it is if it is stored as it is, which is what Keras does."""
    _checked_entry(entry, path)
    where = f"{entry.filename} of {path}"
    if entry.compress_type != zipfile.ZIP_STORED:
        return _hdf5(io.BytesIO(_entry(archive, entry, path, entry.file_size)), where)
    file = open(path, "rb")  # noqa: SIM115 - open as long as the weights are
    file.seek(entry.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != ZIP_SIGNATURE:
        raise ValueError(f"{where} must have a header")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    window = _Window(file, entry.header_offset + 30 + name_length + extra_length, entry.file_size)
    checksum = 0
    for part in iter(lambda: window.read(2**20), b""):
        checksum = zlib.crc32(part, checksum)
    if checksum != entry.CRC:
        raise ValueError(f"{where} must have the checksum that the archive states")
    window.seek(0)
    return _hdf5(window, where)


class _Window(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: BinaryIO, start: int, size: int):
        super().__init__()
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = max(min(len(buffer), self._size - self._at), 0)
        self._file.seek(self._start + self._at)
        found = self._file.readinto(memoryview(buffer)[:count])  # type: ignore[attr-defined]
        self._at += found
        return found

    def close(self) -> None:
        self._file.close()
        super().close()


# -- HDF5


def h5py_module() -> Any:
    try:
        import h5py
    except ImportError:
        raise ImportError(
            "Keras's weights are HDF5, and h5py is not installed: pip install h5py (mxsame's extra [keras])"
        ) from None
    return h5py


def _hdf5(file: Any, where: str) -> Any:
    try:
        return h5py_module().File(file, "r")
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"{where} must be a whole HDF5 file: {error}") from None


def member(group: Any, name: str, kind: str) -> Any:
    """A group or dataset below `group`, by a path of hard links; None where there is none."""
    h5py = h5py_module()
    found = group
    for part in name.split("/"):
        where = f"{found.name.rstrip('/')}/{part}"
        if part in ("", ".", ".."):
            raise ValueError(f"names in an HDF5 file must be plain; received {name!r}")
        if not isinstance(found, h5py.Group):
            return None
        link = _guarded(where, partial(found.get, part, getlink=True))
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"{where} must be in the file itself; received a {type(link).__name__}")
        found = _guarded(where, partial(found.__getitem__, part))
    if not isinstance(found, h5py.Group if kind == "group" else h5py.Dataset):
        raise ValueError(f"{found.name} must be a {kind}; received a {type(found).__name__}")
    return found if kind == "group" else checked_array(found)


def _file_size(thing: Any) -> int:
    return h5py_module().h5i.get_file_id(thing.id).get_filesize()


def checked_array(dataset: Any) -> Any:
    """A dataset of numbers that the file really holds."""
    stored, size = dataset.id.get_storage_size(), _file_size(dataset)
    if dataset.dtype.kind not in "fiub" or dataset.dtype.hasobject:
        raise ValueError(f"{dataset.name} must be an array of numbers; {validation.received(dtype=dataset.dtype)}")
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"{dataset.name} must be stored in the file itself; received an array in other files")
    if dataset.shape is None:
        raise ValueError(f"{dataset.name} must have a shape")
    declared = math.prod(map(int, dataset.shape)) * dataset.dtype.itemsize
    ratio = LARGEST_RATIO if dataset.id.get_create_plist().get_nfilters() else 1
    if stored > size or declared > ratio * stored:
        raise ValueError(
            f"{dataset.name} must not declare more than the file holds; "
            f"{validation.received(shape=dataset.shape, stored_bytes=stored)}"
        )
    return dataset


def datasets(group: Any, at_most: int = 10**6) -> List[str]:
    """The names of all datasets below a group, each once, whatever the links are."""
    h5py, found = h5py_module(), []

    def visit(name: str, thing: Any) -> Optional[bool]:
        if isinstance(thing, h5py.Dataset):
            found.append(f"{group.name.rstrip('/')}/{name}")
        return True if len(found) > at_most else None

    if _guarded(group.name, lambda: group.visititems(visit)):
        raise ValueError(f"{group.name} must hold at most {at_most} arrays")
    return found


def _guarded(where: str, read: Any) -> Any:
    try:
        return read()
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"{where} cannot be read: {error}") from None


def holds(group: Any, name: str) -> bool:
    """Whether a group has a member of this name."""
    return bool(_guarded(f"{name} of {group.name}", lambda: name in group))


def attribute(thing: Any, name: str) -> Any:
    """An attribute of text, or of an array of texts; None where there is none."""
    where = f"attribute {name} of {thing.name}"
    if not _guarded(where, lambda: name in thing.attrs):
        return None
    h5py = h5py_module()
    stored = _guarded(where, lambda: h5py.h5a.open(thing.id, name.encode()))
    dtype = _guarded(where, lambda: stored.dtype)
    empty = stored.shape == (0,)  # Keras writes a list without entries as floats
    if not empty and dtype.kind not in "SU" and h5py.check_string_dtype(dtype) is None:
        raise ValueError(f"{where} must be text; {validation.received(dtype=dtype)}")
    if not empty and _guarded(where, stored.get_storage_size) > _file_size(thing):
        raise ValueError(f"{where} must not declare more than the file holds")
    return _guarded(where, lambda: thing.attrs[name])


def _decoded(value: Any, where: str) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} must be UTF-8: {error}") from None


def text(thing: Any, name: str) -> Optional[str]:
    """An attribute of text; None where there is none."""
    found = attribute(thing, name)
    return None if found is None else _decoded(found, name)


def texts(thing: Any, name: str) -> Optional[List[str]]:
    """A list of names; Keras writes a long one in parts, name0, name1, and so on."""
    found = attribute(thing, name)
    if found is not None:
        return [_decoded(entry, name) for entry in np.ravel(found)]
    parts: List[str] = []
    for number in range(10**4):
        part = attribute(thing, f"{name}{number}")
        if part is None:
            return parts if number else None
        parts += [_decoded(entry, name) for entry in np.ravel(part)]
    raise ValueError(f"{name} of {thing.name} must have at most 10,000 parts")


def _attribute_json(root: Any, name: str, where: str) -> Optional[Dict[str, Any]]:
    found = attribute(root, name)
    return None if found is None else parsed(_decoded(found, name).encode(), f"{name} of {where}")
