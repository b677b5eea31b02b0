"""`examples/hopper` without a GPU: gcc makes MXNet's library, CUDA's compiler, its runtime and its driver.

The runtime and the driver print their calls, and the runtime has machine code for no kernel, as on a Hopper GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest
import sites
from fake_cuda import needs_gcc

ROOT = Path(__file__).parent.parent
HOPPER = ROOT / "examples" / "hopper"
SOURCES = Path(__file__).parent / "hopper"  # of the substitutes

KERNELS = {
    "src/pad.cu": "void _Z3padi(int x) {} void _Z4cropi(int x) {}",
    "src/numpy/add.cu": "void _Z22_GLOBAL__N__13_of_this3addi(int x) {} void _Z5otheri(int x) {}",
    "src/damaged.cu": "void _Z3badi(int x) {}",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with wheels, a clone, and what build.py has made of it; and what it has printed."""
    folder = tmp_path_factory.mktemp("hopper")
    site, clone = folder / "site", folder / "mxnet"
    fake_cuda.make(folder, "libcudart.so.11.0", (SOURCES / "runtime.c").read_text())
    fake_cuda.make(folder, "libcuda.so.1", (SOURCES / "driver.c").read_text())
    mxnet = (SOURCES / "mxnet.c").read_text()
    fake_cuda.make(site / "mxnet", "libmxnet.so", mxnet, f"-L{folder}", "-l:libcudart.so.11.0")
    for header in ("mxnet/include", "nvidia/cudnn/include"):
        (site / header).mkdir(parents=True)
    for name, source in KERNELS.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(source)
    nvcc = fake_cuda.make_compiler(folder)

    def build(*arguments):
        where = ("--mxnet", clone, "--out", folder / "kernels", "--nvcc", f"{nvcc} -ccbin g++-11")
        return sites.run(site, *map(str, (HOPPER / "build.py", *where, *arguments)), OPTIONS=str(folder / "options"))

    return folder, build, build("--all")


@needs_gcc
def test_kernels_are_compiled_and_indexed(built):
    folder, build, done = built
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "4 kernels; use them with",
        f"export LD_PRELOAD={folder / 'kernels' / 'libmxnet_kernels.so'}",
    ]
    assert sorted((folder / "kernels" / "INDEX").read_text().splitlines()) == [
        "_Z23_GLOBAL__N__15_of_mxnet3addi numpy_add.cubin _Z22_GLOBAL__N__13_of_this3addi",
        "_Z3badi damaged.cubin _Z3badi",
        "_Z3padi pad.cubin _Z3padi",
        "_Z4cropi pad.cubin _Z4cropi",
    ]
    options = (folder / "options").read_text()
    assert options.count("-ccbin g++-11 -cubin -arch=sm_90 ") == 3 and f"-I{folder / 'site/mxnet/include'} " in options
    (folder / "mxnet" / "src" / "broken.cu").write_text("not C")
    done = build("--all")
    assert done.returncode == 1 and "src/broken.cu: " in done.stderr and "1 files were not compiled" in done.stderr
    assert (folder / "options").read_text().count("\n") == 4, "the others are not compiled again"
    assert "has no src/no.cu: is it a clone of apache/mxnet at the tag 1.9.1?" in build("src/no.cu").stderr


CALLS = """
import ctypes, sys
mxnet = ctypes.CDLL(sys.argv[1])
for call in sys.argv[2:]:
    mxnet.run(*map(int, call.split(",")))
"""
REFUSED = "status 209\nshared 1, threads 0, blocks 1"
ATTRIBUTES = "shared 11, threads 10, blocks 64\n"
ADD = "_Z22_GLOBAL__N__13_of_this3addi"


def driver(name, blocks=1):
    """What it prints when it starts a kernel."""
    return f"driver: {name}, grid {blocks} 2 3, block 4 5 6, shared 7, argument 5\n"


def started(name, blocks=1):
    return f"{driver(name, blocks)}status 0\n{ATTRIBUTES}"


STARTS = {  # calls of (GPU, kernel, blocks), what is printed, and what is reported
    "a file is loaded once": (
        ["0,0,1", "0,1,1", "0,0,2"],
        f"load pad.cubin\n{started('_Z3padi')}{started('_Z4cropi')}{started('_Z3padi', 2)}",
        "",
    ),
    "each GPU has its own": (["0,2,1", "1,2,1"], 2 * f"load numpy_add.cubin\n{started(ADD)}", ""),
    "a kernel of no file": (["0,4,1"], f"runtime: _Z4nonei\n{REFUSED}", ""),
    "more GPUs than there is room for": (["16,0,1"], f"runtime: _Z3padi\n{REFUSED}", ""),
    "a start that the driver refuses": (
        ["0,0,9"],
        f"load pad.cubin\n{driver('_Z3padi', 9)}runtime: _Z3padi\nstatus 209\n{ATTRIBUTES}",
        "mxnet kernels: error 1 when a kernel is started",
    ),
    "a damaged file": (
        ["0,3,1"],
        "load damaged.cubin\nruntime: _Z3badi\nstatus 209\nload damaged.cubin\nload damaged.cubin\n"
        "shared 1, threads 0, blocks 1",
        "mxnet kernels: error 200 in damaged.cubin, _Z3badi",
    ),
}


@needs_gcc
@pytest.mark.parametrize(("calls", "printed", "message"), STARTS.values(), ids=STARTS)
def test_kernels_are_started_by_the_driver_or_the_runtime(built, calls, printed, message):
    folder, _, _ = built
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    environment["LD_PRELOAD"] = str(folder / "kernels" / "libmxnet_kernels.so")
    command = [sys.executable, "-S", "-c", CALLS, str(folder / "site" / "mxnet" / "libmxnet.so"), *calls]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    registered, calls = done.stdout.splitlines()[:5], done.stdout.splitlines()[5:]
    assert [line.split()[0] for line in registered] == ["register"] * 5, "the runtime knows all of them"
    assert calls == printed.strip().splitlines()
    assert message in done.stderr and bool(message) == bool(done.stderr)


@needs_gcc
def test_the_library_compiles_without_warnings(tmp_path):
    strict = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ldl", "-lpthread")
    fake_cuda.make(tmp_path, "libmxnet_kernels.so", (HOPPER / "kernels.c").read_text(), *strict)


def test_the_check_is_right_on_the_cpu():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, HOPPER / "check.py", "cpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ok"] * 6
