"""CUDA's libraries, and the driver, with stand-ins for all of them, made by gcc.

tests/cuda tests the same with the real libraries, in an environment of its own.
"""

import re
import runpy
from pathlib import Path

import fake_cuda
import pytest
import sites
from fake_cuda import needs_gcc

from mxsame._mxnet import mx
from mxsame.graphs.errors import explain_errors
from mxsame.installation import cuda, requirements

ROOT = Path(__file__).parent.parent
SONAMES = [library.soname for library in requirements.LIBRARIES]


def test_the_table_names_every_library_once_with_one_version_a_wheel_and_setup_takes_it(monkeypatch):
    assert len(set(SONAMES)) == len(SONAMES) == 16
    assert len(requirements.pins()) == len({library.wheel for library in requirements.LIBRARIES}) == 9
    assert all(re.fullmatch(r"nvidia-[a-z-]+-cu11==[0-9.]+", pin) for pin in requirements.pins())
    setuptools = pytest.importorskip("setuptools", reason="setuptools is not installed: pip install setuptools")
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    extra = given["extras_require"]["cu112"]
    assert extra[:9] == requirements.pins()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A site-packages with a stand-in for every library of the table, in one wheel."""
    site = tmp_path_factory.mktemp("site [1]")
    for soname in SONAMES:
        fake_cuda.make(site / "nvidia" / "all" / "lib", soname, "long cudnnGetVersion(void) { return 8200; }")
    return site


LOADED = """
import os
from mxsame.installation import cuda, problems
before = problems.loaded_libraries()
missing = cuda.load()
print(*problems.loaded_libraries()[len(before):])
print(*(library.soname for library in missing))
assert os.environ["MXNET_CUDNN_LIB_CHECKING"] == "0"
"""


def loaded(path, code="", **environment):
    """The libraries that are loaded, and those that are missing."""
    result = sites.run([ROOT, *path], "-c", code + LOADED, **environment)
    assert result.returncode == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


@needs_gcc
def test_libraries_are_loaded_in_order_from_wheels_or_from_where_the_linker_finds_them(wheels, tmp_path):
    folder = wheels / "nvidia" / "all" / "lib"
    assert loaded([wheels]) == [SONAMES, []]
    assert loaded([], LD_LIBRARY_PATH=str(folder)) == [SONAMES, []]
    assert loaded([]) == [[], SONAMES]
    other = fake_cuda.make(tmp_path, "libcufft.so.10")
    assert loaded([wheels], LD_LIBRARY_PATH=str(other.parent))[0] == SONAMES, "wheels come first"
    names = [name for name in SONAMES if name != "libcufft.so.10"]
    assert loaded([], f"import ctypes; ctypes.CDLL({str(other)!r})", LD_LIBRARY_PATH=str(folder))[0] == names


@needs_gcc
@pytest.mark.skipif(cuda.has_driver(), reason="this machine has NVIDIA's driver")
def test_a_driver_where_the_linker_or_containers_have_it(tmp_path):
    folder = fake_cuda.make_driver(tmp_path).parent
    code = "from mxsame.installation import cuda\nprint(cuda.has_driver())"
    assert sites.run(ROOT, "-c", code).stdout.strip() == "False"
    assert sites.run(ROOT, "-c", code, LD_LIBRARY_PATH=str(folder)).stdout.strip() == "True"
    code = code.replace("\n", f"\ncuda.DRIVER_FOLDERS = ('/nowhere', {str(folder)!r})\n")
    assert sites.run(ROOT, "-c", code).stdout.strip() == "True"


AMPERE_AND_HOPPER = """
static const int capability[2][2] = {{8, 6}, {9, 0}};
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number + 7; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = capability[device - 7][attribute - 75];
    return 0;
}
"""


@needs_gcc
@pytest.mark.parametrize(
    ("driver", "found"),
    [(AMPERE_AND_HOPPER, [(8, 6), (9, 0)]), ("int cuInit(unsigned flags) { return 100; }", []), ("", [])],
    ids=["GPUs", "no GPU", "not NVIDIA's"],
)
def test_compute_capabilities_are_those_that_the_driver_reports(tmp_path, driver, found):
    fake_cuda.make(tmp_path, "libcuda.so.1", driver)
    code = "from mxsame.installation import cuda\nprint(cuda.capabilities())"
    assert sites.run(ROOT, "-c", code, LD_LIBRARY_PATH=str(tmp_path)).stdout == f"{found}\n"


# As MXNet reports it on an H200, from `asnumpy` or from an operator.
MISSING = "Check failed: err == cudaSuccess (209 vs. 0) : {}no kernel image is available for execution on the device"
STACK = '\nStack trace:\n  File "tensor_gpu-inl.cuh", line 110\n'


@pytest.mark.parametrize(
    ("message", "explained"),
    [
        (f"Name: {MISSING.format('mxnet_generic_kernel ErrStr:')}{STACK}", True),
        (f"CUDA: {MISSING.format('')}{STACK}", True),
        (f"MXNetError: {MISSING.format('radix_sort CUDA: ')}{STACK}", True),
        (f"CUDA: Check failed: e == cudaSuccess (2 vs. 0) : out of memory{STACK}", False),
    ],
    ids=["a kernel", "a call", "a sort", "another error"],
)
def test_an_error_of_a_missing_kernel_names_what_to_do(message, explained):
    set_error = mx.base._LIB._Z17MXAPISetLastErrorPKc  # of MXNet's library, where operators that fail leave messages

    def fail():
        set_error(message.encode())
        mx.base.check_call(-1)

    with pytest.raises(mx.base.MXNetError) as raised:
        fail()
    *trace, last = str(raised.value).split("\n")
    assert ("File" in trace[1]) and message.split("\n")[0] in (*trace, last)
    assert (last == f"{requirements.KERNELS}. `mxsame doctor` lists the GPUs.") == explained
    with pytest.raises(mx.base.MXNetError if explained else ValueError), explain_errors(shapes=[(1, 3)]):
        fail()
