"""Opens Keras's files, which may be hostile: HDF5, zip and JSON are read as data, and nothing is executed.

Declared sizes are compared with stored ones before anything is read. Links out of the file, arrays of objects, and
compression by more than `LARGEST_RATIO` are refused. No entry of an archive is written to a disk.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import mmap
import os
import struct
import zipfile
import zlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np

from mxsame.installation.requirements import install
from mxsame.validation import InvalidValue, MissingFile, check

LARGEST_CONFIG = 2**24  # bytes of JSON; that of NASNetLarge has one million
LARGEST_RATIO = 100  # the largest ratio of the declared size of an array or entry to its stored size
MAX_ARRAYS = 10**6  # in a file of weights
WEIGHTS = "model.weights.h5"  # in a .keras archive
HDF5_SIGNATURE, ZIP_SIGNATURE = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
NDARRAYS = b"\x12\x01\x00\x00"  # start of MXNet's files of arrays


class Contents(NamedTuple):
    """The contents of a file: a configuration, an HDF5 file of weights, or both."""

    config: Optional[Dict[str, Any]]
    version: Optional[str]
    weights: Any


def open_source(path: Any, name: str) -> Contents:
    """Returns the contents of a file, or of a JSON text. `name` is the argument, for errors."""
    path = os.fspath(path)
    if path.lstrip()[:1] == "{":
        return _json(path.encode(), name)
    start = b""
    if os.path.isfile(path):  # a pipe would never end
        with open(path, "rb") as file:
            start = file.read(8)
    if start == HDF5_SIGNATURE:
        root = _hdf5(path, path)
        config: Any = text(root, "model_config")
        config = None if config is None else parse_json(config.encode(), f"model_config of {path}")
        return Contents(config, text(root, "keras_version"), root)
    if start[:4] == ZIP_SIGNATURE:
        return _archive(path)
    if start.lstrip()[:1] in (b"{", b"[", b'"'):
        with open(path, "rb") as file:
            return _json(file.read(LARGEST_CONFIG + 1), path)
    other, folder = _other_format(path, start), os.path.dirname(path)
    if not other and not os.path.exists(path):
        absent = "" if os.path.isdir(folder or os.curdir) else f": there is no folder {folder!r}"
        raise MissingFile(f"no such file: {path!r}{absent}")
    empty = "" if start else ", a folder" if os.path.isdir(path) else ", which is empty"
    raise InvalidValue(f"{name} must be a file: HDF5, a .keras archive or JSON; received {other or repr(path) + empty}")


def _other_format(path: str, start: bytes) -> Optional[str]:
    """Returns, for an error, the format of another file, and how to convert it."""
    if os.path.isfile(os.path.join(path, "saved_model.pb")):
        return f"a SavedModel: tf.keras.models.load_model({path!r}).save('model.h5') converts it"
    if os.path.isfile(f"{path}.index") or os.path.isfile(os.path.join(path, "checkpoint")) or path.endswith(".index"):
        return f"a checkpoint: load it into its model, then call model.save('model.h5'); {path!r}"
    if start[4:] == b"TFL3":
        return f"a TFLite file: save the model that it was converted from, by model.save('model.h5'); {path!r}"
    if start[:4] == NDARRAYS:
        return f"an MXNet parameter file, which net.load_parameters reads; {path!r}"
    return f"{path!r}, which starts with {start!r}" if start else None


def _json(content: bytes, where: str) -> Contents:
    config = parse_json(content, where)
    rule = f"{where} must be a Keras configuration; received an MXNet graph, which gluon.SymbolBlock.imports reads"
    check("arg_nodes" not in config, rule)
    return Contents(config, config.get("keras_version"), None)


def parse_json(text: bytes, where: str) -> Dict[str, Any]:
    """Returns a JSON object."""
    check(len(text) <= LARGEST_CONFIG, f"{where} must have at most {LARGEST_CONFIG} bytes of JSON")
    try:
        value = json.loads(text)
        value = json.loads(value) if isinstance(value, str) else value  # as json.dump(model.to_json()) leaves it
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{where} must hold JSON: {type(error).__name__}: {error}") from None
    check(isinstance(value, dict), f"{where} must hold a JSON object; received a {type(value).__name__}")
    return value


# -- zip


def _archive(path: str) -> Contents:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            for end, library in (("data.pkl", "PyTorch"), (".npy", "NumPy")):
                is_other = any(name.endswith(end) for name in names) and "config.json" not in names
                check(not is_other, f"{path} must be a .keras archive; it is a {library} file")
            check("config.json" in names, f"{path} must hold config.json, as a .keras file does")
            entries = {name: _entry(archive, name, path) for name in ("config.json", "metadata.json") if name in names}
            objects = {name: parse_json(content, f"{name} of {path}") for name, content in entries.items()}
            weights = _weights(archive, path) if WEIGHTS in names else None
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError) as error:
        raise InvalidValue(f"{path} must be a complete zip archive: {error}") from None
    return Contents(objects["config.json"], objects.get("metadata.json", {}).get("keras_version"), weights)


def _entry(archive: zipfile.ZipFile, name: str, path: str, largest: int = LARGEST_CONFIG) -> bytes:
    """Returns the bytes of an entry of an archive, after a check of its size and checksum."""
    _check_size(archive.getinfo(name), path)
    with archive.open(name) as file:
        content = file.read(largest + 1)
        file.read(1)  # compares the checksum
    check(len(content) <= largest, f"{name} of {path} must have at most {largest} bytes")
    return content


def _check_size(entry: zipfile.ZipInfo, path: str) -> None:
    declared, stored = entry.file_size, entry.compress_size
    fits = stored <= os.path.getsize(path) and declared <= LARGEST_RATIO * stored + 4096
    rule = f"{entry.filename} of {path} must not declare more than the archive holds"
    check(fits, rule, declared=declared, stored=stored)


def _weights(archive: zipfile.ZipFile, path: str) -> Any:
    """Returns the HDF5 file in an archive: memory-mapped if it is not compressed, as Keras writes it."""
    entry = archive.getinfo(WEIGHTS)
    where = f"{WEIGHTS} of {path}"
    if entry.compress_type != zipfile.ZIP_STORED:
        return _hdf5(io.BytesIO(_entry(archive, WEIGHTS, path, entry.file_size)), where)
    _check_size(entry, path)
    with open(path, "rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    name_length, extra_length = struct.unpack_from("<HH", content, entry.header_offset + 26)
    start = entry.header_offset + 30 + name_length + extra_length
    content = content[start : start + entry.file_size]
    check(zlib.crc32(content) == entry.CRC, f"{where} must have the checksum that the archive states")
    return _hdf5(_Mapped(content), where)


class _Mapped(io.RawIOBase):
    """A file object of bytes in memory, without a copy."""

    def __init__(self, content: memoryview):
        super().__init__()
        self._content, self._at = content, 0

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._content)}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        chunk = self._content[self._at : self._at + len(buffer)]
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)


# -- HDF5


def h5py_module() -> Any:
    try:
        import h5py
    except ImportError:
        fix = f"fix it with: {install('h5py')}"
        raise ImportError(f"reading a Keras file needs the package h5py, which is not installed; {fix}") from None
    return h5py


def _hdf5(file: Any, where: str) -> Any:
    try:
        return h5py_module().File(file, "r")
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidValue(f"{where} must be a complete HDF5 file: {error}") from None


@contextlib.contextmanager
def _readable(where: str) -> Iterator[None]:
    """Raises errors of h5py for a damaged file as `ValueError`."""
    try:
        yield
    except (OSError, KeyError, RuntimeError, TypeError) as error:
        raise InvalidValue(f"{where} cannot be read: {error}") from None


def member(group: Any, path: str, kind: str) -> Any:
    """Returns the "group" or "dataset" (`kind`) at a path of hard links; None if there is none."""
    h5py, child = h5py_module(), group
    with _readable(f"{path} of {group.name}"):
        for part in path.split("/"):
            check(part not in ("", ".", ".."), f"names in {group.name} must be plain; received {path!r}")
            link = child.get(part, getlink=True) if isinstance(child, h5py.Group) else None
            if link is None:
                return None
            rule = f"{path} of {group.name} must be in the file itself; received a {type(link).__name__}"
            check(isinstance(link, h5py.HardLink), rule)
            child = child[part]
        is_kind = isinstance(child, h5py.Group if kind == "group" else h5py.Dataset)
        check(is_kind, f"{child.name} must be a {kind}; received a {type(child).__name__}")
        return child if kind == "group" else checked_array(child)


def _file_size(item: Any) -> int:
    return h5py_module().h5i.get_file_id(item.id).get_filesize()


def checked_array(dataset: Any) -> Any:
    """Returns a dataset after a check that it is an array of numbers which the file contains."""
    stored, size, dtype = dataset.id.get_storage_size(), _file_size(dataset), dataset.dtype
    is_number, is_elsewhere = dtype.kind in "fiub" and not dtype.hasobject, dataset.external or dataset.is_virtual
    rule = f"{dataset.name} must be an array of numbers, of a dtype that NumPy has (bfloat16 is not one)"
    check(is_number, rule, dtype=dtype)
    check(not is_elsewhere, f"{dataset.name} must be stored in the file itself; received an array in other files")
    check(dataset.shape is not None, f"{dataset.name} must have a shape")
    declared = math.prod(map(int, dataset.shape)) * dtype.itemsize
    ratio = LARGEST_RATIO if dataset.id.get_create_plist().get_nfilters() else 1
    fits, rule = stored <= size and declared <= ratio * stored, "must not declare more than the file holds"
    check(fits, f"{dataset.name} {rule}", shape=dataset.shape, stored_bytes=stored)
    return dataset


def datasets(group: Any) -> List[str]:
    """Returns the paths of all datasets below a group, each once."""
    h5py, paths = h5py_module(), []

    def visit(name: str, item: Any) -> Optional[bool]:
        if isinstance(item, h5py.Dataset):
            paths.append(f"{group.name.rstrip('/')}/{name}")
        return True if len(paths) > MAX_ARRAYS else None

    with _readable(group.name):
        check(not group.visititems(visit), f"{group.name} must hold at most {MAX_ARRAYS} arrays")
    return paths


def attribute(item: Any, name: str) -> Any:
    """Returns an attribute, a text or an array of texts; None if there is none."""
    h5py, where = h5py_module(), f"attribute {name} of {item.name}"
    with _readable(where):
        if name not in item.attrs:
            return None
        stored = h5py.h5a.open(item.id, name.encode())
        if stored.shape != (0,):  # Keras writes a list without entries as floats
            is_text = h5py.check_string_dtype(stored.dtype) is not None
            check(is_text, f"{where} must be text", dtype=stored.dtype)
            check(stored.get_storage_size() <= _file_size(item), f"{where} must not declare more than the file holds")
        return item.attrs[name]


def _decoded(value: Any, where: str) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{where} must be UTF-8: {error}") from None


def text(item: Any, name: str) -> Optional[str]:
    """Returns an attribute that is a text; None if there is none."""
    value = attribute(item, name)
    return None if value is None else _decoded(value, name)


def text_list(item: Any, name: str) -> Optional[List[str]]:
    """Returns an attribute that is a list of texts; Keras writes a long one in parts, name0, name1 and so on."""
    value = attribute(item, name)
    if value is not None:
        return [_decoded(entry, name) for entry in np.ravel(value)]
    parts: List[str] = []
    for number in range(10**4):
        part = attribute(item, f"{name}{number}")
        if part is None:
            return parts if number else None
        parts += [_decoded(entry, name) for entry in np.ravel(part)]
    raise InvalidValue(f"{name} of {item.name} must have at most 10,000 parts")
