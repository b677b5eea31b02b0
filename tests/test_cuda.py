"""CUDA's libraries, and the driver, with stand-ins for all of them.

tests/cuda tests the same with the real libraries, in an environment of its own.
"""

import os
import re
import runpy
import struct
import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest
from fake_cuda import needs_gcc

from mxsame.installation import cuda, elf, requirements
from mxsame.installation.cuda import Found

ROOT = Path(__file__).parent.parent
SONAMES = [library.soname for library in requirements.LIBRARIES]
CUDNN_PARTS = [soname for soname in SONAMES if soname.startswith("libcudnn_")]

# ---- the table -------------------------------------------------------------------------------------------------------


def test_the_table_names_every_library_once_with_one_version_a_wheel():
    assert len(set(SONAMES)) == len(SONAMES) == 16 and len(CUDNN_PARTS) == 6
    assert len(requirements.pins()) == len({library.wheel for library in requirements.LIBRARIES}) == 9
    assert all(re.fullmatch(r"nvidia-[a-z-]+-cu11==[0-9.]+", pin) for pin in requirements.pins())
    assert requirements.pins(requirements.LIBRARIES[3:5]) == ["nvidia-cublas-cu11==11.11.3.6"]


def test_setup_takes_the_pins_from_the_table(monkeypatch):
    setuptools = pytest.importorskip("setuptools")
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    extra = given["extras_require"]["cu112"]
    assert extra[0] == "mxnet-cu112==1.9.1" and extra[1:10] == requirements.pins()


# ---- where a library is ----------------------------------------------------------------------------------------------


def shared_object():
    """An ELF file of 64 bits: a segment, which ends after all else, and the headers of three sections."""
    end = 64 + 56 + 3 * 64 + 16
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 64 + 56, 0, 64, 56, 1, 64, 3, 2)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, end, end, 4096) + bytes(3 * 64 + 16)


def put(folder, *sonames):
    """Files that look like libraries."""
    folder.mkdir(parents=True, exist_ok=True)
    for soname in sonames:
        (folder / soname).write_bytes(shared_object())
    return folder


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose loader looks into one folder, and whose Python sees the wheels in another; both are empty."""
    monkeypatch.setattr(cuda, "loaded_libraries", lambda: ["", "/lib/libc.so.6"])
    monkeypatch.setattr(cuda, "linker_folders", lambda: ["/nowhere", str(tmp_path / "system")])
    monkeypatch.setattr(cuda, "linker_cache", lambda soname: [])
    monkeypatch.setattr(sys, "path", ["/nowhere", str(tmp_path / "site [1]")])
    return tmp_path


def wheels(machine):
    return machine / "site [1]" / "nvidia"


def test_nothing_is_found(machine):
    assert [cuda.locate(soname) for soname in SONAMES] == [None] * len(SONAMES)
    assert cuda.missing() == list(requirements.LIBRARIES)
    assert cuda.foreign_cudnn() is None


def test_a_library_in_a_wheel(machine):
    folder = put(wheels(machine) / "cufft" / "lib", "libcufft.so.10")
    assert cuda.locate("libcufft.so.10") == Found(str(folder / "libcufft.so.10"), "wheel")
    assert "libcufft.so.10" not in [library.soname for library in cuda.missing()]


def test_a_complete_system_comes_before_the_wheels(machine):
    put(wheels(machine) / "all" / "lib", *SONAMES)
    folder = put(machine / "system", *SONAMES)
    assert [cuda.locate(soname) for soname in SONAMES] == [Found(str(folder / name), "system") for name in SONAMES]


@pytest.mark.parametrize("soname", [SONAMES[0], "libcudnn.so.8", SONAMES[-1]])
@pytest.mark.parametrize("how", ["missing", "cut off", "of 32 bits", "a text"])
def test_an_incomplete_system_comes_after_the_wheels(machine, soname, how):
    put(machine / "system", *SONAMES)
    folder = put(wheels(machine) / "all" / "lib", *SONAMES)
    library = machine / "system" / soname
    if how == "missing":
        library.unlink()
    else:
        contents = {
            "cut off": shared_object()[:-1],
            "of 32 bits": shared_object().replace(b"F\x02", b"F\x01"),
            "a text": b"INPUT(-lcuda)",
        }
        library.write_bytes(contents[how])
    assert {cuda.locate(name) for name in SONAMES} == {Found(str(folder / name), "wheel") for name in SONAMES}


def test_an_incomplete_system_serves_where_there_is_no_wheel(machine):
    put(wheels(machine) / "cufft" / "lib", "libcufft.so.10")
    folder = put(machine / "system", "libcufft.so.10", "libcurand.so.10")
    assert cuda.locate("libcufft.so.10").origin == "wheel"
    assert cuda.locate("libcurand.so.10") == Found(str(folder / "libcurand.so.10"), "system")


def test_what_is_loaded_comes_first(machine, monkeypatch):
    put(wheels(machine) / "all" / "lib", *SONAMES)
    put(machine / "system", *SONAMES)
    monkeypatch.setattr(cuda, "loaded_libraries", lambda: ["", "/other/libcufft.so.10", "/third/libcufft.so.10"])
    assert cuda.locate("libcufft.so.10") == Found("/other/libcufft.so.10", "loaded")
    assert cuda.locate("libcurand.so.10").origin == "system"


def test_the_parts_of_cudnn_come_from_beside_it(machine, monkeypatch):
    put(wheels(machine) / "cudnn" / "lib", "libcudnn.so.8", *CUDNN_PARTS)
    other = put(machine / "other", "libcudnn.so.8", *CUDNN_PARTS[:-1])
    monkeypatch.setattr(cuda, "loaded_libraries", lambda: [str(other / "libcudnn.so.8")])
    assert [cuda.locate(part) for part in CUDNN_PARTS] == [
        *(Found(str(other / part), "loaded") for part in CUDNN_PARTS[:-1]),
        None,
    ]


def test_the_loaders_cache(tmp_path):
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(
        b"glibc-ld.so.cache1.1\x02\0\0\0libcufft.so.10\0/opt/cuda/lib64/libcufft.so.10\0"
        b"libcufft.so.100\0/opt/cuda/libcufft.so.100\0libmycufft.so.10\0/opt/libmycufft.so.10\0/b/libcufft.so.10\0"
    )
    assert cuda.linker_cache("libcufft.so.10", str(cache)) == ["/opt/cuda/lib64/libcufft.so.10", "/b/libcufft.so.10"]
    assert cuda.linker_cache("libcufft.so.11", str(cache)) == []
    assert cuda.linker_cache("libcufft.so.10", str(tmp_path / "nothing")) == []


def test_the_loader_is_asked_and_finds_what_the_system_has():
    path = cuda.in_system("libc.so.6")
    assert path is not None and os.path.samefile(path, next(p for p in cuda.loaded_libraries() if "/libc.so.6" in p))
    assert cuda.in_system("libmxnet.so") is None


# ---- processes with stand-ins ----------------------------------------------------------------------------------------


def ask(code, path=(), **env):
    """Runs Python code that sees ``cuda``, the module, and no site-packages but ``path``; returns what it printed."""
    start = "import ctypes, os, sys\nfrom mxsame.installation import cuda\n"
    path = os.pathsep.join(map(str, [ROOT, *path]))
    env = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": path, **env}
    result = subprocess.run(
        [sys.executable, "-S", "-c", start + code], env=env, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_folders_that_LD_LIBRARY_PATH_names_are_searched(tmp_path):
    folder = put(tmp_path / "a", "libcufft.so.10")
    code = "print(cuda.in_system('libcufft.so.10'))"
    assert ask(code, LD_LIBRARY_PATH=f"/nowhere:{folder}") == str(folder / "libcufft.so.10")
    assert ask(code) == str(cuda.in_system("libcufft.so.10"))


def has_driver():
    return cuda.libcuda() is not None


@pytest.mark.skipif(has_driver(), reason="this machine has NVIDIA's driver")
def test_a_machine_without_a_driver():
    assert cuda.driver() is None and cuda.devices() == []


@needs_gcc
def test_a_driver_and_its_gpus(tmp_path):
    path = fake_cuda.make(tmp_path, "libcuda.so.1", fake_cuda.TWO_GPUS)
    said = ask("print([*cuda.driver()][:2], [tuple(gpu) for gpu in cuda.devices()])", LD_LIBRARY_PATH=str(tmp_path))
    assert said == f"[{str(path)!r}, (12, 2)] [(0, 'GPU seventy', (8, 6), 25000000000)]"


@needs_gcc
@pytest.mark.parametrize("functions", [fake_cuda.DRIVER_FUNCTIONS, ["cuInit", "cuDriverGetVersion"]])
def test_a_driver_that_answers_nothing(tmp_path, functions):
    path = fake_cuda.make_driver(tmp_path, functions)
    said = ask("print([*cuda.driver()][:2], cuda.devices())", LD_LIBRARY_PATH=str(tmp_path))
    assert said == f"[{str(path)!r}, None] []"


@needs_gcc
@pytest.mark.skipif(has_driver(), reason="this machine has NVIDIA's driver")
def test_a_driver_where_containers_put_it(tmp_path):
    path = fake_cuda.make_driver(tmp_path)
    code = f"cuda.DRIVER_FOLDERS = ('/nowhere', {str(tmp_path)!r})\nprint(cuda.driver().path)"
    assert ask(code) == str(path)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC\n",
            "535.104.05",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build\n", "550.54.14"),
        ("nothing of the kind\n", None),
    ],
)
def test_the_version_of_the_kernel_module(tmp_path, text, version):
    (tmp_path / "version").write_text(text)
    assert cuda.kernel_module(str(tmp_path / "version")) == version
    assert cuda.kernel_module(str(tmp_path / "nothing")) is None


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """A site-packages with a stand-in for every library of the table, in one wheel."""
    site = tmp_path_factory.mktemp("site")
    for soname in SONAMES:
        fake_cuda.make(site / "nvidia" / "all" / "lib", soname, "long cudnnGetVersion(void) { return 8200; }")
    return site


@needs_gcc
def test_what_is_loaded_from_wheels_and_in_which_order(stand_ins):
    code = """
assert os.environ.get("MXNET_CUDNN_LIB_CHECKING") is None
before = cuda.loaded_libraries()
cuda.load()
print(os.environ["MXNET_CUDNN_LIB_CHECKING"], *cuda.loaded_libraries()[len(before):])
assert [cuda.locate(library.soname).origin for library in cuda.LIBRARIES] == ["loaded"] * 16
print(*cuda.foreign_cudnn())
assert ctypes.CDLL(None).cudnnGetVersion() == 8200  # for every library that is loaded later
"""
    folder = stand_ins / "nvidia" / "all" / "lib"
    first, second = ask(code, [stand_ins]).splitlines()
    assert first == f"0 {' '.join(str(folder / soname) for soname in SONAMES)}"
    assert second == f"{folder / 'libcudnn.so.8'} 8200 True"


@needs_gcc
def test_a_complete_system_is_left_alone(stand_ins):
    folder = stand_ins / "nvidia" / "all" / "lib"
    code = (
        "before = cuda.loaded_libraries()\ncuda.load()\nprint(cuda.loaded_libraries() == before, *cuda.foreign_cudnn())"
    )
    assert ask(code, LD_LIBRARY_PATH=str(folder)) == f"True {folder / 'libcudnn.so.8'} 8200 False"


@needs_gcc
@pytest.mark.parametrize("how", ["cut off", "empty", "no library"])
def test_a_damaged_library_is_named_and_not_loaded(stand_ins, tmp_path, how):
    path = tmp_path / "nvidia" / "all" / "lib" / "libcusolver.so.11"
    path.parent.mkdir(parents=True)
    for soname in SONAMES:
        source = stand_ins / "nvidia" / "all" / "lib" / soname
        if soname != path.name:
            (path.parent / soname).symlink_to(source)
        else:
            whole = source.read_bytes()
            path.write_bytes({"cut off": whole[: len(whole) // 2], "empty": b"", "no library": b"#!/bin/sh\n"}[how])
    code = "try:\n    cuda.load()\nexcept OSError as error:\n    print(error)"
    reason = "file is cut off" if how == "cut off" else "not an ELF file of 64 bits"
    assert ask(code, [tmp_path]) == f"{path}: {reason}"


def test_a_library_that_is_cut_off_anywhere(tmp_path):
    whole = shared_object()
    path = tmp_path / "a.so"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert not elf.is_whole(str(path))
        with pytest.raises(OSError, match=f"^{path}: (file is cut off|not an ELF file of 64 bits)$"):
            elf.check_whole(str(path))
    path.write_bytes(whole)
    assert elf.is_whole(str(path)) and not elf.is_whole(str(tmp_path / "nothing.so"))
