"""MXNet for CUDA after ``pip install "mxsame[cu112]"``: what works, and what each thing that is amiss leads to.

Every case is a process of its own, without LD_LIBRARY_PATH where it is not the point. Where a file is to be missing or
wrong, site-packages is a folder made for the case, of links to what is installed.
"""

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from fake_cuda import make, make_driver, needs_gcc

from mxsame.installation.requirements import LIBRARIES, pins

pytestmark = needs_gcc

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = Path(sysconfig.get_paths()["purelib"])
PIP = f"{sys.executable} -m pip"
AGAIN = f"  fix it with: {PIP} install --force-reinstall --no-deps "
SONAMES = [library.soname for library in LIBRARIES]
OF_CUDNN = [soname for soname in SONAMES if soname.startswith("libcudnn")]


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """The path of a driver that reports no GPU."""
    return make_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def run(driver):
    """Runs Python code after the driver has been loaded; it sees the standard library and ``path`` only."""

    def run(code, path=SITE, driver=driver, **env):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MXNET_", "LD_"))}
        env = {**kept, "PYTHONPATH": f"{ROOT}:{path}", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **env}
        code = f"import ctypes\nctypes.CDLL({str(driver)!r})\n{code}" if driver else code
        command = [sys.executable, "-S", "-W", "error", "-c", code]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    return run


@pytest.fixture
def answer(run):
    """Runs code that must work; returns the lines it printed."""

    def answer(code, *path, **env):
        result = run(code, *path, **env)
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    return answer


@pytest.fixture
def refused(run):
    """Runs an import that must fail; returns the lines of the ImportError's message."""

    def refused(*path, code="import mxsame.nn", **options):
        result = run(code, *path, **options)
        assert result.returncode == 1, (result.returncode, result.stderr)
        *_, message = result.stderr.split("\nmxsame.installation.problems.InstallationError: ")
        return message.strip().splitlines()

    return refused


@pytest.fixture
def site(tmp_path):
    """Makes a site-packages of links. ``files`` replaces libraries: by nothing, or by these bytes."""

    def make_site(files):
        folder = tmp_path / "site"
        folder.mkdir()
        for entry in SITE.iterdir():
            if entry.name not in ("nvidia", "__pycache__") and not entry.name.startswith("mxsame"):
                (folder / entry.name).symlink_to(entry)
        for library in SITE.glob("nvidia/*/lib/*.so*"):
            link = folder / library.relative_to(SITE)
            link.parent.mkdir(parents=True, exist_ok=True)
            if library.name not in files:
                link.symlink_to(library)
            elif files[library.name] is not None:
                link.write_bytes(files[library.name])
        return folder

    return make_site


def library_file(soname):
    """The library that is installed."""
    return next(SITE.glob(f"nvidia/*/lib/{soname}"))


# ---- what works ------------------------------------------------------------------------------------------------------


def test_what_is_installed_is_what_the_table_names():
    for library in LIBRARIES:
        assert metadata.version(library.wheel) == library.version
        assert library.soname in [file.name for file in metadata.files(library.wheel)]


LOADED = f"""
import mxsame.nn
from mxsame.installation.problems import loaded_libraries
print(*(name for name in loaded_libraries() if name in {SONAMES}))
"""


def test_every_library_is_loaded(answer):
    assert answer(LOADED) == [" ".join(SONAMES)]


PARTS = """
import ctypes
cudnn = ctypes.CDLL("libcudnn.so.8")
print(cudnn.cudnnGetVersion(), [getattr(cudnn, f"cudnn{part}VersionCheck")() for part in (
    "OpsInfer", "OpsTrain", "CnnInfer", "CnnTrain", "AdvInfer", "AdvTrain")])
"""


def test_cudnn_finds_its_parts_and_they_are_of_its_version(answer):
    assert answer("import mxsame.nn" + PARTS) == ["8906 [0, 0, 0, 0, 0, 0]"]


def test_the_compiler_finds_its_library_of_builtins(answer):
    code = """
import ctypes, mxsame.nn
compiler, program = ctypes.CDLL("libnvrtc.so.11.2"), ctypes.c_void_p()
source = b'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
assert compiler.nvrtcCreateProgram(ctypes.byref(program), source, b"twice.cu", 0, None, None) == 0
assert compiler.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_70")) == 0
size = ctypes.c_size_t()
assert compiler.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
ptx = ctypes.create_string_buffer(size.value)
assert compiler.nvrtcGetPTX(program, ptx) == 0
print(".entry twice" in ptx.value.decode())
"""
    assert answer(code) == ["True"]


def test_mxnet_knows_of_no_gpu_and_does_not_complain_of_cudnn(answer):
    code = (
        "from mxsame._mxnet import mx\nimport os\nprint(mx.context.num_gpus(), os.environ['MXNET_CUDNN_LIB_CHECKING'])"
    )
    assert answer(code) == ["0 0"]


def test_operators_and_their_gradients_are_those_of_numpy(answer):
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from cases import CASES
from running import as_nd, assert_equal, expected_once, imperative, operate
from mxsame._mxnet import mx
cases = [case for case in CASES if case.name != "concrete-7x7-stride-2-on-224"]
for case in cases:
    arrays, out, out_grad, gradients = expected_once(case)
    got, got_gradients = imperative(lambda nd: operate(case, nd), as_nd(arrays), mx.nd.array(out_grad))
    assert_equal(got, out, what=case.name)
    assert_equal(got_gradients, gradients, what=case.name, terms=out_grad[:, 0].size)
print(mx.runtime.Features().is_enabled("CUDNN"), len(cases) > 200)
"""
    assert answer(code)[-1] == "True True"


def test_a_cudnn_that_another_package_has_loaded_is_used_with_its_own_parts(answer, tmp_path):
    for soname in OF_CUDNN:
        (tmp_path / soname).symlink_to(library_file(soname))
    code = f"ctypes.CDLL({str(tmp_path / 'libcudnn.so.8')!r})\nimport mxsame.nn{PARTS}"
    assert answer(code) == ["8906 [0, 0, 0, 0, 0, 0]"]


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES, ids=SONAMES)
def test_a_missing_library(refused, site, library):
    lines = refused(site({library.soname: None}))
    assert lines[0] == f"mxnet-cu112 needs {library.soname}: not found."
    assert lines[2] == f"{AGAIN}{library.wheel}=={library.version}"


def test_a_damaged_library(refused, site):
    path = site({"libcufft.so.10": b"cut off"})
    lines = refused(path)
    damaged = path / library_file("libcufft.so.10").relative_to(SITE)
    assert lines[0] == f"mxnet-cu112 needs libcufft.so.10, which cannot be loaded: {damaged}: file too short."
    assert lines[2].endswith(f"{AGAIN.split(': ')[1]}{' '.join(pins())}")


def test_libraries_that_do_not_fit_together(refused, site, tmp_path):
    twelve = make(tmp_path, "libcublas.so.12")
    eleven = make(tmp_path, "libcusolver.so.11", "", f"-L{tmp_path}", "-Wl,--no-as-needed", "-l:libcublas.so.12")
    path = site({"libcusolver.so.11": eleven.read_bytes()})
    twelve.unlink()
    assert refused(path)[0].startswith("mxnet-cu112 needs libcublas.so.12, which cannot be loaded: ")
