"""How MXNet gets imported: what mxsame fixes, what it leaves as it was, and what it reports if it cannot fix it.

Every case is a process of its own. Its site-packages is a folder made for the case: links to real packages of this
environment, and made-up ones instead of those that are to be missing, broken or too new.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy
import pytest
from fake_cuda import make_driver, needs_gcc

import mxsame
from mxsame.installation import cuda, importing, problems, requirements

PACKAGE = Path(mxsame.__file__).parent
SITE = Path(sysconfig.get_paths()["purelib"])
PIP = f"{sys.executable} -m pip"


def run(code, path, *options):
    """Runs Python code in a new process that sees the standard library and ``path`` only."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_", "MXNET_"))}
    env.update(PYTHONPATH=os.pathsep.join(map(str, path)), PYTHONDONTWRITEBYTECODE="1", TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, "-S", *options, "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def run_well(code, *options):
    """Runs code with the real packages; returns what it printed."""
    result = run(code, [PACKAGE.parent, SITE], *options)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.fixture
def site(tmp_path):
    """Makes site-packages: a name in ``links`` is the real package, ``files`` maps paths to contents."""

    def make(*links, files=()):
        links = ["mxsame", *links]
        for name in links:
            source = PACKAGE if name == "mxsame" else SITE / name
            if source.exists():  # numpy.libs is not there with every NumPy
                (tmp_path / name).symlink_to(source)
        for name, text in dict(files).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


def refused(path, code="import mxsame.nn"):
    """Runs an import that must fail; returns the lines of the ImportError's message."""
    result = run(code, [path])
    assert result.returncode == 1, (result.returncode, result.stderr)
    *_, message = result.stderr.split("\nmxsame.installation.problems.InstallationError: ")
    return message.strip().splitlines()


NUMPY = ("numpy", "numpy.libs")


def mxnet_that_raises(error, wheel="mxnet"):
    return {"mxnet/__init__.py": f"raise {error}\n", f"{wheel.replace('-', '_')}-1.9.1.dist-info/METADATA": ""}


# ---- what is fixed, and left as it was -------------------------------------------------------------------------------


def test_numpy_is_left_as_it_was_found_and_nothing_warns():
    before_and_after = """
import importlib.util, sys, types
import numpy, numpy.testing
for name in ("h5py", "scipy.sparse", "onnx"):  # MXNet imports what is installed, and that imports parts of NumPy
    if importlib.util.find_spec(name.split(".")[0]):
        importlib.import_module(name)
numpy_before, modules_before = dict(vars(numpy)), set(sys.modules)
from mxsame._mxnet import mx
changed = {name for name in {*vars(numpy), *numpy_before} if vars(numpy).get(name) is not numpy_before.get(name)}
print(sorted(changed), "distutils.version" in set(sys.modules) - modules_before, mx.__version__)
"""
    assert run_well(before_and_after, "-W", "error") == "[] False 1.9.1"


def test_an_imported_distutils_is_left_as_it_was_found():
    code = """
import sys, types
sys.modules["distutils.version"] = mine = types.ModuleType("distutils.version")
import mxsame.nn
print(sys.modules["distutils.version"] is mine)
"""
    assert run_well(code) == "True"


def test_mxnet_works_after_the_import_where_its_code_says_numpy_bool():
    code = """
from mxsame._mxnet import mx
a = mx.np.array([[1., 2., 3.], [4., 5., 6.]])
print(a[a > 2.5].tolist(), a[mx.np.array([False, True], dtype=bool)].tolist(), a[[True, False]].tolist())
print(mx.np.full((2,), True, dtype=None).tolist(), mx.np.array(True).dtype, mx.np.greater(a, 2).sum().item())
a[a > 2.5] = 0
print(a.tolist(), mx.nd.array([1, 0], dtype=bool).dtype.__name__)
mx.test_utils.assert_almost_equal(mx.np.array([True]), mx.np.array([True]))
"""
    assert run_well(code, "-W", "error").splitlines() == [
        "[3.0, 4.0, 5.0, 6.0] [[4.0, 5.0, 6.0]] [[1.0, 2.0, 3.0]]",
        "[True, True] float32 4",
        "[[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]] bool_",
    ]


def test_the_standin_for_distutils_compares_versions_by_number():
    versions = ["1.15", "1.17", "1.17.1", "1.26.4", "1.100"]
    for first, older in enumerate(versions):
        for second, newer in enumerate(versions):
            assert (importing.Version(newer) >= importing.Version(older)) is (second >= first)


TRAIN = """
net = mx.gluon.nn.HybridSequential()
net.add(mx.gluon.nn.Conv2D(2, 3), mx.gluon.nn.Dense(1))
net.initialize()
net.hybridize()
trainer = mx.gluon.Trainer(net.collect_params(), "adam")
with mx.autograd.record():
    loss = (net(mx.nd.ones((2, 1, 5, 5))) ** 2).sum()
loss.backward()
trainer.step(2)
print(bool(net[0].weight.grad().abs().sum().asscalar() > 0))
"""


def test_mxnet_can_be_imported_after_it_failed_alone():
    code = """
try:
    import mxnet
except Exception:
    print("failed")
from mxsame._mxnet import mx
import mxnet
assert mxnet is mx and mx.np.bool is bool
"""
    # NumPy 1.24 has no numpy.bool; before that, the warning about it is made an error
    assert run_well(code + TRAIN, "-W", "error").split() == ["failed", "True"]


def test_an_imported_mxnet_is_left_alone():
    code = f"""
import sys, types
sys.modules["mxnet"] = mine = types.ModuleType("mxnet")
mine.__version__, mine.numpy = "1.9.1", __import__("numpy")
sys.modules["mxsame"] = package = types.ModuleType("mxsame")  # without its __init__, which would use MXNet
package.__path__ = [{str(PACKAGE)!r}]
from mxsame._mxnet import mx as got
print(got is mine, got.numpy is __import__("numpy"), sorted(name for name in sys.modules if name.startswith("mxnet")))
"""
    assert run_well(code) == "True True ['mxnet']"


# ---- MXNet is imported when it is used, by whomever ------------------------------------------------------------------


def test_importing_mxsame_imports_neither_mxnet_nor_numpy():
    code = """
import sys
import mxsame
from importlib.util import find_spec
assert hasattr(mxsame, "__version__") and not hasattr(mxsame, "nothing") and "nn" in dir(mxsame)
mxsame.padding, mxsame.plan, mxsame.planner, mxsame.plot_padding
print(find_spec("mxnet").origin.endswith("mxnet/__init__.py"), {"mxnet", "numpy", "matplotlib"} & set(sys.modules))
mxsame.nn.Conv2D(1, 3), mxsame.deploy, mxsame.hybridize, mxsame.export, mxsame.autotune, mxsame.keras.ops
print(find_spec("mxnet.gluon").name, {"mxnet", "numpy", "matplotlib"} & set(sys.modules) == {"mxnet", "numpy"})
"""
    assert run_well(code).splitlines() == ["True set()", "mxnet.gluon True"]


@pytest.mark.parametrize(
    "imports",
    [
        "import mxsame\nimport mxnet as mx",
        "import mxsame\nfrom mxnet import gluon\nimport mxnet as mx",
        "import importlib, mxsame\nimportlib.reload(mxsame)\nimport mxnet as mx",
        "import sys, mxsame\nfor name in [n for n in sys.modules if n.startswith('mxsame')]: del sys.modules[name]\n"
        "import mxsame\nassert str(sys.meta_path).count('MxnetFinder') == 2\nimport mxnet as mx",
        "import importlib, mxsame\nimport mxnet as mx\nassert importlib.reload(mx) is mx",
        "import pickle, mxsame\nimport mxnet as mx\nassert pickle.loads(pickle.dumps(mx.__spec__)).name == 'mxnet'",
    ],
    ids=["plain", "submodule", "mxsame reloaded", "mxsame imported twice", "mxnet reloaded", "pickled"],
)
def test_everybodys_import_of_mxnet_is_prepared(imports):
    code = f"""
import numpy
lent = lambda: [vars(numpy).get(name) for name in {(*importing.NUMPY_ALIASES, *importing.NUMPY_EXPIRED)!r}]
before = lent()
{imports}
import mxsame.nn
assert lent() == before and mx.np.bool is bool and mxsame._mxnet.mx is mx
import inspect
assert "MXNet" in inspect.getsource(mx)
"""
    assert run_well(code + TRAIN) == "True"


def test_threads_may_import_it_at_the_same_time():
    code = """
import sys, threading
import mxsame
barrier, results = threading.Barrier(8), []
def work(use):
    barrier.wait()
    results.append(use())
uses = [lambda: __import__("mxnet"), lambda: mxsame.nn.Conv2D, lambda: mxsame.deploy, lambda: mxsame.ops.conv] * 2
threads = [threading.Thread(target=work, args=(use,)) for use in uses]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(results) == 8 and len(set(results)) == 4)
"""
    assert run_well(code) == "True"


def test_an_import_that_failed_can_be_tried_again(site):
    files = {
        "mxnet/__init__.py": "from . import part\n__version__ = '1.9.1'\n",
        "mxnet/part.py": "import numpy, os\nassert 'FAIL' not in os.environ\n",
        "mxnet-1.9.1.dist-info/METADATA": "",
    }
    code = """
import os, sys
import mxsame
os.environ["FAIL"] = "1"
for module in ("mxnet", "mxsame.nn", "mxnet"):
    try:
        __import__(module)
    except ImportError as error:
        print(str(error).splitlines()[0], [name for name in sys.modules if name.startswith("mxnet")])
del os.environ["FAIL"]
import mxnet
print(mxnet.__version__, mxnet.part.numpy.bool is bool)
"""
    result = run(code, [site(*NUMPY, files=files)])
    broken = "The installed MXNet is broken: AssertionError: . []"
    assert result.stdout.splitlines() == [broken, broken, broken, "1.9.1 True"], result.stderr


def test_a_missing_mxnet_is_missing_for_everybody_else(site):
    code = """
import importlib.util, pickle
import mxsame
print(importlib.util.find_spec("mxnet"))
for module in ("mxnet", "mxsame.nn"):
    try:
        __import__(module)
    except ImportError as error:
        print(type(error).__name__, str(error).splitlines()[0])
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error) and type(again) is type(error)
"""
    result = run(code, [site(*NUMPY)])
    assert result.stdout.splitlines() == [
        "None",
        "ModuleNotFoundError No module named 'mxnet'",
        "InstallationError MXNet is not installed.",
    ], result.stderr


@pytest.mark.parametrize("code", ["import mxsame, mxnet", "import mxnet, mxsame.nn", "import mxsame\nmxsame.nn"])
def test_a_leftover_folder_of_mxnet_is_refused_however_it_is_imported(site, code):
    lines = refused(site(*NUMPY, files={"mxnet/__pycache__/base.pyc": ""}), code)
    assert "broken" in lines[0] and "the folder mxnet holds no Python package" in lines[0]


def test_another_module_of_that_name_is_refused(site):
    path = site(*NUMPY, files={"mxnet.py": "print('a script')\n"})
    lines = refused(path)
    assert (
        lines[0] == f"The installed MXNet is broken: ImportError: {path / 'mxnet.py'} is something else of that name."
    )


# ---- what is refused -------------------------------------------------------------------------------------------------


FOUND = f"  found: Python {sys.version.split()[0]} ({sys.executable}), NumPy {numpy.__version__} ("
REINSTALL = f"{PIP} uninstall -y mxnet && {PIP} install mxnet==1.9.1"
MISSING = "cannot open shared object file: No such file or directory"
REFUSED = {  # links, files, the first line and what the fix starts with
    "no mxnet": (NUMPY, {}, "MXNet is not installed.", f"{PIP} install mxnet==1.9.1"),
    "record": (NUMPY, {"mxnet-1.9.1.dist-info/METADATA": ""}, "MXNet is not installed.", REINSTALL),
    "no numpy": ((), {}, "NumPy cannot be imported: No module named 'numpy'.", f"{PIP} install 'numpy<2'"),
    "numpy 2": (
        (),
        {"numpy/__init__.py": "__version__ = '2.1.3'\n"},
        "MXNet 1.9.1 needs NumPy 1, and NumPy 2 is installed.",
        f"{PIP} install 'numpy<2'",
    ),
    "another version": (
        NUMPY,
        {"mxnet/__init__.py": "raise ValueError('a')\n", "mxnet-1.8.0.post0.dist-info/METADATA": ""},
        "mxnet 1.8.0.post0 cannot be imported, and mxsame is made for 1.9.1: ValueError: a.",
        REINSTALL,
    ),
    "system library": (
        NUMPY,
        mxnet_that_raises(f"OSError('libgomp.so.1: {MISSING}')"),
        "mxnet needs the system library libgomp.so.1, which is not found.",
        "apt-get install -y libgomp1 ",
    ),
    "requirement": (
        NUMPY,
        mxnet_that_raises("ModuleNotFoundError('...', name='graphviz')"),
        "MXNet needs the package graphviz, which is not installed.",
        f"{PIP} install graphviz",
    ),
}


@pytest.mark.parametrize(("links", "files", "first", "fix"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(site, links, files, first, fix):
    lines = refused(site(*links, files=files), "from mxsame._mxnet import mx")
    assert lines[0] == first
    assert lines[1].startswith(FOUND if links else "  found: Python ")
    assert lines[2].startswith(f"  fix it with: {fix}")


@pytest.mark.parametrize("version", [(3, 7, 16), (3, 13, 0)])
def test_unsupported_python(site, version):
    code = f"""
import sys
sys.version_info = {(*version, "final", 0)}
import mxsame.nn
"""
    lines = refused(site(*NUMPY), code)
    assert lines[0].startswith("mxsame runs on Python 3.8 to 3.12")
    assert "Python {}.{}.{}".format(*version) in lines[1]
    assert lines[2] == "  fix it with: python3.11 -m venv .venv && .venv/bin/python -m pip install '.[cpu]'"


def test_both_wheels_over_each_other(site):
    files = {**mxnet_that_raises("Exception", "mxnet"), **mxnet_that_raises("Exception", "mxnet-cu112")}
    path = site(*NUMPY, files=files)
    lines = refused(path)
    assert lines[0] == "mxnet and mxnet-cu112 are installed over each other: both own the same folder."
    assert lines[1].endswith(f"mxnet 1.9.1 and mxnet-cu112 1.9.1 ({path / 'mxnet'})")
    assert lines[2] == f"  fix it with: {PIP} uninstall -y mxnet mxnet-cu112 && {PIP} install mxnet==1.9.1"
    assert lines[3] == "  For an NVIDIA GPU let the command end in mxnet-cu112==1.9.1."


@pytest.mark.skipif(cuda.libcuda() is not None, reason="this machine has NVIDIA's driver")
@pytest.mark.parametrize("wheel", ["mxnet-cu112", "mxnet-cu117"])
def test_a_wheel_for_cuda_without_a_driver(site, wheel):
    lines = refused(site(*NUMPY, files=mxnet_that_raises("Exception", wheel)))
    assert lines[0] == f"{wheel} needs NVIDIA's driver (libcuda.so.1), and none is found that can be loaded."
    assert f"{wheel} 1.9.1 (" in lines[1]
    assert lines[2] == f"  fix it with: {PIP} uninstall -y {wheel} && {PIP} install mxnet==1.9.1"


@needs_gcc
def test_another_wheel_for_cuda_without_its_libraries(site, tmp_path):
    error = f"OSError('libcudart.so.11.0: {MISSING}')"
    path = site(*NUMPY, files=mxnet_that_raises(error, "mxnet-cu117"))
    lines = refused(path, f"import ctypes; ctypes.CDLL({str(make_driver(tmp_path))!r})\nimport mxsame.nn")
    assert lines[0] == (
        "mxnet-cu117 needs libcudart.so.11.0, which is not found. The wheel brings none of CUDA's libraries, and of "
        "MXNet's builds for CUDA mxsame finds them for mxnet-cu112 only."
    )
    install = f"{PIP} install mxnet-cu112==1.9.1 {' '.join(requirements.pins())}"
    assert lines[2] == f"  fix it with: {PIP} uninstall -y mxnet-cu117 && {install}"
    assert lines[3] == "  Without an NVIDIA GPU let the command end in mxnet==1.9.1."


@pytest.mark.parametrize("libmxnet", [None, "not a library"], ids=["missing", "unreadable"])
def test_a_broken_mxnet(site, libmxnet):
    path = site(*(entry.name for entry in SITE.iterdir() if entry.name not in ("mxnet", "mxsame", "__pycache__")))
    (path / "mxnet").mkdir()
    for entry in (SITE / "mxnet").iterdir():
        if entry.name != "libmxnet.so":
            (path / "mxnet" / entry.name).symlink_to(entry)
    if libmxnet:
        (path / "mxnet" / "libmxnet.so").write_text(libmxnet)
    lines = refused(path)
    assert lines[0].startswith("The installed MXNet is broken: ")
    assert ("Cannot find the MXNet library" if libmxnet is None else "libmxnet.so: ") in "".join(lines)
    assert lines[-1].startswith("  fix it with: ") and lines[-1].endswith(
        f"uninstall -y mxnet && {PIP} install mxnet==1.9.1"
    )


def test_a_failed_import_leaves_numpy_and_modules_as_they_were(site):
    code = """
import numpy, sys
before, modules = dict(vars(numpy)), set(sys.modules)
try:
    import mxsame.nn
except ImportError as error:
    left = [name for name in set(sys.modules) - modules if name.startswith(("mxnet", "distutils"))]
    print(repr(error.__cause__), vars(numpy) == before, left)
"""
    result = run(code, [site(*NUMPY, files=mxnet_that_raises("ZeroDivisionError('a')"))])
    assert result.stdout.strip() == "ZeroDivisionError('a') True []", result.stderr


# ---- TensorFlow first ------------------------------------------------------------------------------------------------

LIBSTDCXX, TENSORFLOW = "/usr/lib/libstdc++.so.6", "/site/tensorflow/libtensorflow_framework.so.2"


@pytest.mark.parametrize(
    ("libraries", "first"),
    [
        (["", "/lib/libc.so.6", TENSORFLOW, LIBSTDCXX], True),
        (["", LIBSTDCXX, TENSORFLOW], False),
        (["", LIBSTDCXX], False),
        (["", TENSORFLOW], True),
        ([], False),
    ],
)
def test_whether_tensorflow_brought_libstdcxx(libraries, first):
    assert problems.tensorflow_came_before_libstdcxx(libraries) is first


def test_loaded_libraries_are_those_of_the_process():
    libraries = cuda.loaded_libraries()
    assert any(library.endswith("libmxnet.so") for library in libraries)
    assert any("libstdc++.so" in library for library in libraries)


COMPUTE = """
import numpy as np
x, w = np.random.randn(2, 7, 8, 3).astype("float32"), np.random.randn(3, 3, 3, 4).astype("float32")
a, b = mx.nd.array(x.transpose(0, 3, 1, 2)), mx.nd.array(w.transpose(3, 2, 0, 1))
b.attach_grad()
with mx.autograd.record():
    y = mx.nd.Convolution(a, b, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True)
y.backward()
v = tf.Variable(w)
with tf.GradientTape() as tape:
    z = tf.nn.conv2d(x, v, 1, "SAME")
g = tape.gradient(z, v)
assert np.abs(y.asnumpy().transpose(0, 2, 3, 1) - z.numpy()).max() < 1e-4
assert np.abs(b.grad.asnumpy().transpose(2, 3, 1, 0) - g.numpy()).max() < 1e-3
print("equal")
"""


@pytest.mark.oracle
def test_tensorflow_first_is_refused_instead_of_a_crash():
    result = run("import tensorflow\nimport mxsame.nn", [PACKAGE.parent, SITE])
    assert result.returncode == 1, result.stderr
    assert "InstallationError: TensorFlow was imported first" in result.stderr
    assert result.stderr.rstrip().endswith("fix it with: import mxsame  # before: import tensorflow")


@pytest.mark.oracle
@pytest.mark.parametrize(
    "imports",
    [
        "import mxsame, mxnet as mx\nimport tensorflow as tf",
        "import mxsame\nimport tensorflow as tf\nimport mxnet as mx",
        "import mxsame\nimport tensorflow as tf\nfrom mxsame._mxnet import mx",
        "import ctypes; ctypes.CDLL('libstdc++.so.6')\nimport tensorflow as tf\nfrom mxsame._mxnet import mx",
    ],
    ids=["both first", "mxsame first", "mxsame first and last", "libstdc++ first"],
)
def test_tensorflow_and_mxnet_compute_in_one_process(imports):
    assert run_well(f"{imports}\n{COMPUTE}") == "equal"
