"""How MXNet gets imported: what mxsame fixes, what it leaves as it was, and what it reports if it cannot fix it.

Every case is a process of its own.
"""

import shutil
import sys
import tempfile
import types

import numpy as np
import pytest
import sites
from fake_cuda import make_driver
from sites import NUMPY, SITE

from mxsame._mxnet import mx
from mxsame.installation import cuda, numpy_names, problems, requirements

PIP = f"{sys.executable} -m pip"


def run_well(code, *options):
    """Runs code with the real packages; returns what it printed."""
    result = sites.run([sites.PACKAGE.parent, SITE], *options, "-c", code, TF_CPP_MIN_LOG_LEVEL="3")
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def refused(path, code="import mxsame.nn"):
    """Runs an import that must fail; returns the lines of the ImportError's message."""
    result = sites.run(path, "-c", code)
    assert result.returncode == 1, (result.returncode, result.stderr)
    *_, message = result.stderr.split("\nmxsame.installation.problems.InstallationError: ")
    return message.strip().splitlines()


# ---- what is fixed, and left as it was -------------------------------------------------------------------------------

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
assert net[0].weight.grad().abs().sum().asscalar() > 0
a = mx.np.array([[1., 2., 3.], [4., 5., 6.]])  # functions in which MXNet's code says numpy.bool
assert a[a > 2.5].tolist() == [3, 4, 5, 6] and a[[True, False]].tolist() == [[1, 2, 3]]
assert mx.np.full((2,), True, dtype=None).tolist() == [True, True] and mx.np.greater(a, 2).sum().item() == 4
a[a > 2.5] = 0
mx.test_utils.assert_almost_equal(mx.np.array([True]), mx.np.array([True]))
print("trained")
"""


def test_mxnet_works_after_it_failed_alone_and_numpy_and_distutils_are_left_as_they_were():
    code = """
import importlib.util, sys, types
try:
    import mxnet
except Exception:
    print("failed")
sys.modules["distutils.version"] = mine = types.ModuleType("distutils.version")
import numpy, numpy.testing
for name in ("h5py", "scipy.sparse", "onnx"):  # MXNet imports what is installed, and that imports parts of NumPy
    if importlib.util.find_spec(name.split(".")[0]):
        importlib.import_module(name)
before = dict(vars(numpy))
from mxsame._mxnet import mx
changed = {name for name in {*vars(numpy), *before} if vars(numpy).get(name) is not before.get(name)}
changed = [name for name in changed if "numpy." + name not in sys.modules]  # NumPy 2 imports its parts when used
print(changed, sys.modules["distutils.version"] is mine, mx.__version__)
"""
    # NumPy 1.24 has no numpy.bool; before that, the warning about it is made an error
    assert run_well(code + TRAIN, "-W", "error").split() == ["failed", "[]", "True", "1.9.1", "trained"]


X = np.float32([[3, 1], [2, 4]])


def counted(monkeypatch):
    """The counts that a test of random numbers gives SciPy."""
    monkeypatch.setattr(mx.test_utils, "ss", types.SimpleNamespace(chisquare=lambda f_obs, f_exp: (f_obs, 1)))
    return mx.test_utils.chi_square_check(lambda count: np.arange(count) % 2, [0, 1], [0.5, 0.5], 10)[1].tolist()


def message(function, *arguments):
    with pytest.raises(Exception) as caught:
        function(*arguments)
    return str(caught.value)


def best():
    handler = mx.gluon.contrib.estimator.EarlyStoppingHandler(mx.metric.MSE("mse"), mode="min")
    handler.train_begin(None)
    return handler.best


def mean_of_sums(*values):
    metric = mx.metric.Loss()
    for value in values:
        metric.update(0, [mx.nd.array([value], dtype="float16")])
    return float(metric.get()[1]), float(metric.get_global()[1])  # a float16 equals a float that it rounds to


def records(shape):
    """A file of numbers, read by an iterator in C++."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("1,2\n")
        file.flush()
        return mx.io.CSVIter(data_csv=file.name, data_shape=shape, batch_size=1).next().data[0].asnumpy().tolist()


TWO = (np.int64(2), np.int64(1))
ROWS = {  # what MXNet needs of NumPy 1: a function that uses it, and what it gives
    "int": (counted, [5, 5]),
    "constants": (lambda: [getattr(mx.np, name) for name in ("PINF", "NINF", "PZERO")], [np.inf, -np.inf, 0]),
    "NZERO": (lambda: str(mx.np.NZERO), "-0.0"),
    "NaN": (lambda: [mx.np.NaN != mx.np.NaN, mx.np.NAN != mx.np.NAN], [True, True]),
    "Inf": (best, np.inf),
    "compat": (lambda: mx.np.pad(mx.np.array([1, 2]), (1, 1), "edge").tolist(), [1, 1, 2, 2]),
    "dispatch": (lambda: [type(f(mx.np.array(X))) for f in (np.any, np.prod, np.round)], [mx.np.ndarray] * 3),
    "mirr": (lambda: "package numpy_financial" in message(mx.np.mirr, [1, 2], 3, 4), True),
    "bool": (lambda: mx.np.bool, bool),
    "alltrue": (lambda: [mx.np.alltrue(mx.np.array(each)).item() for each in (X, [1, 0])], [True, False]),
    "in1d": (lambda: mx.np.in1d(mx.np.array(X), mx.np.array([4, 3])).tolist(), [True, False, False, True]),
    "msort": (lambda: mx.np.msort(mx.np.array(X)).tolist(), [[2, 1], [3, 4]]),
    "trapz": (lambda: mx.np.trapz(mx.np.array(X), axis=1).tolist(), [2, 3]),
    "nanpercentile": (lambda: mx.np.nanpercentile(mx.np.array(X), 50, interpolation="lower").item(), 2),
    "nanquantile": (lambda: mx.np.nanquantile(mx.np.array(X), 0.5, interpolation="lower").item(), 2),
    "linalg.qr": (lambda: [type(part) for part in mx.np.linalg.qr(mx.np.array(X))], [mx.np.ndarray] * 2),
    "core": (lambda: mx.nd.moveaxis(mx.nd.zeros((2, 3, 4)), 0, 2).shape, (3, 4, 2)),
    "operators": (lambda: mx.nd.reshape(mx.nd.array(X[0]), shape=TWO).asnumpy().tolist(), [[3], [1]]),
    "symbols": (lambda: mx.sym.zeros(shape=TWO).infer_shape()[1], [(2, 1)]),
    "variables": (lambda: mx.sym.var("x", shape=TWO).infer_shape()[0], [(2, 1)]),
    "iterators": (lambda: records((np.int64(2),)), [[1, 2]]),
    "tostring": (lambda: mx.recordio.unpack(mx.recordio.pack((0, [1, 2], 3, 0), b"x"))[0].label.tolist(), [1, 2]),
    "metrics": (lambda: mean_of_sums(2048, 1), (1024.5, 1024.5)),
}


@pytest.mark.filterwarnings("ignore:the `interpolation=` argument:DeprecationWarning")  # of NumPy 1.22 to 1.26
@pytest.mark.parametrize(("compute", "expected"), ROWS.values(), ids=list(ROWS))
def test_what_mxnet_needs_of_numpy_1(monkeypatch, compute, expected):
    assert (compute(monkeypatch) if compute is counted else compute()) == expected


def test_everybodys_import_of_mxnet_is_prepared():
    """Reloaded, imported twice, and in whatever order its parts are imported."""
    code = """
import importlib, inspect, pickle, sys
import mxsame
importlib.reload(mxsame)
for name in [name for name in sys.modules if name.startswith("mxsame")]:
    del sys.modules[name]
import mxsame
from mxnet import gluon
import mxnet as mx
assert "distutils.version" not in sys.modules and importlib.reload(mx) is mx and mx.gluon is gluon
assert pickle.loads(pickle.dumps(mx.__spec__)).name == "mxnet" and "MXNet" in inspect.getsource(mx)
import mxsame.nn
assert mxsame._mxnet.mx is mx
"""
    assert run_well(code + TRAIN) == "trained"


def test_the_standin_for_distutils_compares_versions_by_number():
    versions = ["1.15", "1.17", "1.17.1", "1.26.4", "1.100"]
    for first, older in enumerate(versions):
        for second, newer in enumerate(versions):
            assert (numpy_names.Version(newer) >= numpy_names.Version(older)) is (second >= first)


def test_an_imported_mxnet_is_left_alone():
    code = f"""
import sys, types
sys.modules["mxnet"] = mine = types.ModuleType("mxnet")
mine.__version__, mine.numpy = "1.9.1", __import__("numpy")
sys.modules["mxsame"] = package = types.ModuleType("mxsame")  # without its __init__, which would use MXNet
package.__path__ = [{str(sites.PACKAGE)!r}]
from mxsame._mxnet import mx as got
print(got is mine, got.numpy is __import__("numpy"), sorted(name for name in sys.modules if name.startswith("mxnet")))
"""
    assert run_well(code) == "True True ['mxnet']"


def test_importing_mxsame_imports_neither_mxnet_nor_numpy():
    code = """
import sys
import mxsame
from importlib.util import find_spec
assert hasattr(mxsame, "__version__") and not hasattr(mxsame, "nothing") and "nn" in dir(mxsame)
mxsame.padding, mxsame.plan, mxsame.planner, mxsame.plot_padding
print(find_spec("mxnet").origin.endswith("mxnet/__init__.py"), {"mxnet", "numpy", "matplotlib"} & set(sys.modules))
mxsame.nn.Conv2D(1, 3), mxsame.deploy, mxsame.hybridize, mxsame.export, mxsame.keras.ops
print(find_spec("mxnet.gluon").name, {"mxnet", "numpy", "matplotlib"} & set(sys.modules) == {"mxnet", "numpy"})
"""
    assert run_well(code).splitlines() == ["True set()", "mxnet.gluon True"]


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


def test_an_import_that_failed_leaves_all_as_it_was_and_can_be_tried_again(tmp_path):
    files = {**sites.mxnet("from . import part\n__version__ = '1.9.1'\n")}
    files["mxnet/part.py"] = "import numpy, os\nassert 'FAIL' not in os.environ\n"
    code = """
import os, sys
import mxsame, numpy, numpy.fft, numpy.random, numpy.testing  # NumPy 2 imports its parts when they are used
before = dict(vars(numpy))
os.environ["FAIL"] = "1"
for module in ("mxnet", "mxsame.nn", "mxnet"):
    try:
        __import__(module)
    except ImportError as error:
        left = [name for name in sys.modules if name.startswith(("mxnet", "distutils"))]
        print(str(error).splitlines()[0], left, vars(numpy) == before)
del os.environ["FAIL"]
import mxnet
print(mxnet.__version__, mxnet.part.numpy.bool is bool)
"""
    result = sites.run(sites.make(tmp_path, *NUMPY, files=files), "-c", code)
    broken = "The installed MXNet is broken: AssertionError: . [] True"
    assert result.stdout.splitlines() == [broken, broken, broken, "1.9.1 True"], result.stderr


def test_a_missing_mxnet_is_missing_for_everybody_else(tmp_path):
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
    result = sites.run(sites.make(tmp_path, *NUMPY), "-c", code)
    errors = ["ModuleNotFoundError No module named 'mxnet'", "InstallationError MXNet is not installed."]
    assert result.stdout.splitlines() == ["None", *errors], result.stderr


# ---- what is refused -------------------------------------------------------------------------------------------------


def raising(error, wheel="mxnet", version="1.9.1"):
    return sites.mxnet(f"raise {error}\n", wheel, version)


FOUND = f"  found: Python {sys.version.split()[0]} ({sys.executable})"
MISSING = "cannot open shared object file: No such file or directory"
INSTALL, BROKEN = f"{PIP} install --no-deps mxnet==1.9.1", "The installed MXNet is broken: "
ELSE = "imports something else, {site}/"
REINSTALL = f"{PIP} uninstall -y mxnet && {INSTALL}"
OF_NUMPY = sites.mxnet("import numpy\n")
LOAD_DRIVER = "that gcc has made"
WITHOUT = "mxnet-cu112 needs NVIDIA's driver (libcuda.so.1), which cannot be loaded."
TO_CPU = f"{PIP} uninstall -y {{}} && {INSTALL}"
MADE, AGAIN = "python3.11 -m venv .venv-3.11", ".venv-3.11/bin/python -m pip install"  # not the user's own .venv
LATER = "import sys, numpy\nsys.version_info = (3, 99, 0, 'final', 0)\n"
REFUSED = {  # files, what the first line has, what the fix starts with; and what runs before the import
    "no mxnet": ({}, "MXNet is not installed.", INSTALL),
    "record": ({"mxnet-1.9.1.dist-info/METADATA": ""}, "MXNet is not installed.", REINSTALL),
    "another version": (raising("ValueError('a')", version="1.8.0.post0"), f"{BROKEN}ValueError: a.", REINSTALL),
    "system library": (
        raising(f"OSError('libgomp.so.1: {MISSING}')"),
        "mxnet needs the system library libgomp.so.1, which is not found.",
        "apt-get install -y libgomp1 ",
    ),
    "its own library": (raising(f"OSError('/a/libmxnet.so: {MISSING}')"), f"{BROKEN}OSError: /a/libmxnet", REINSTALL),
    "requirement": (
        raising("ModuleNotFoundError('...', name='graphviz')"),
        "MXNet needs the package graphviz, which is not installed.",
        f"{PIP} install graphviz",
    ),
    "leftover folder": ({"mxnet/__pycache__/base.pyc": ""}, f"`import mxnet` {ELSE}mxnet.", INSTALL),
    "a script": ({"mxnet.py": ""}, f"`import mxnet` {ELSE}mxnet.py.", "mv {site}/mxnet.py {site}/my_mxnet.py"),
    "two wheels": (
        {**raising("Exception"), **raising("Exception", "mxnet-cu112")},
        "mxnet and mxnet-cu112 are installed over each other: both contain the folder mxnet.",
        f"{PIP} uninstall -y mxnet mxnet-cu112 && {INSTALL}",
    ),
    "no numpy": ({}, "NumPy cannot be imported: No module named 'numpy'.", f"{PIP} install numpy"),
    "a newer numpy": (
        {"numpy/__init__.py": "__version__ = '3.0.1'\n", **OF_NUMPY},
        f"{requirements.TESTED}; it fails with a newer NumPy: AttributeError: module 'numpy' has no attribute 'inf'.",
        f"{PIP} install 'numpy<2.6'",
    ),
    "a package that is called numpy": (
        {"numpy/__init__.py": "", **OF_NUMPY},
        f"`import numpy` {ELSE}numpy/__init__.py.",
        "mv {site}/numpy {site}/my_numpy",
    ),
    "a newer python": (
        raising("AttributeError('gone')"),
        f"{requirements.TESTED}; it fails on a newer Python: AttributeError: gone.",
        f"{MADE} && {AGAIN} '.[cli]' && {AGAIN} --no-deps mxnet==1.9.1",
        LATER,
    ),
    "no driver": (raising("Exception", "mxnet-cu112"), WITHOUT, TO_CPU.format("mxnet-cu112")),
    "no CUDA": (
        raising(f"OSError('libcudart.so.11.0: {MISSING}')", "mxnet-cu117"),
        f"mxnet-cu117 needs libcudart.so.11.0, which cannot be loaded: libcudart.so.11.0: {MISSING}.",
        f"{PIP} uninstall -y mxnet-cu117 && {PIP} install --no-deps mxnet-cu112==1.9.1 && "
        f"{problems.pip_again(requirements.pins())}",
        LOAD_DRIVER,
    ),
    "an old driver": (
        raising("OSError('/libmxnet.so: undefined symbol: cuGraphNodeGetType')", "mxnet-cu117"),
        "NVIDIA's driver is too old for mxnet-cu117: /libmxnet.so: undefined symbol: cuGraphNodeGetType.",
        TO_CPU.format("mxnet-cu117"),
        LOAD_DRIVER,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_installation_is_refused_with_a_fix(tmp_path, name):
    files, first, fix, *before = REFUSED[name]
    if before == [LOAD_DRIVER]:
        if shutil.which("gcc") is None:
            pytest.skip("gcc, which makes a driver, is not installed")
        before = [f"import ctypes\nctypes.CDLL({str(make_driver(tmp_path))!r})\n"]
    elif name == "no driver" and cuda.has_driver():
        pytest.skip("this machine has NVIDIA's driver")
    path = sites.make(tmp_path, *([] if "numpy" in name else NUMPY), files=files)
    lines = refused(path, "".join([*before, "from mxsame._mxnet import mx"]))
    assert lines[0].startswith(first.format(site=tmp_path))
    assert lines[1].startswith(FOUND) or name == "a newer python"
    assert lines[2].startswith(f"  fix it with: {fix.format(site=tmp_path)}")


def test_a_numpy_newer_than_the_tested_ones_works():
    code = """
import numpy
numpy.__version__ = "3.0.1"
import mxsame, mxnet
print(mxnet.np.in1d(mxnet.np.array([1, 2]), mxnet.np.array([2])).tolist())
try:
    mxnet.base._np.gone
except AttributeError as error:
    print(error)
"""
    gone = f"module 'numpy' has no attribute 'gone'. {requirements.TESTED}"
    assert run_well(code).splitlines() == ["[False, True]", gone]


# ---- TensorFlow first ------------------------------------------------------------------------------------------------

LIBSTDCXX, TENSORFLOW = "libstdc++.so.6", "libtensorflow_framework.so.2"


@pytest.mark.parametrize(
    ("libraries", "first"),
    [(["", "libc.so.6", TENSORFLOW, LIBSTDCXX], True), (["", LIBSTDCXX, TENSORFLOW], False), ([TENSORFLOW], True)],
)
def test_whether_tensorflow_brought_libstdcxx(libraries, first):
    assert problems.tensorflow_came_before_libstdcxx(libraries) is first


def test_loaded_libraries_are_those_of_the_process():
    libraries = problems.loaded_libraries()
    assert libraries.index("libstdc++.so.6") < libraries.index("libmxnet.so")


COMPUTE = """
import mxsame
import tensorflow as tf
import mxnet as mx
import numpy as np
x, w = np.random.randn(2, 7, 8, 3).astype("float32"), np.random.randn(3, 3, 3, 4).astype("float32")
a, b = mx.nd.array(x.transpose(0, 3, 1, 2)), mx.nd.array(w.transpose(3, 2, 0, 1))
y = mx.nd.Convolution(a, b, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True)
assert np.abs(y.asnumpy().transpose(0, 2, 3, 1) - tf.nn.conv2d(x, w, 1, "SAME").numpy()).max() < 1e-4
print("equal")
"""


@pytest.mark.oracle
def test_tensorflow_after_mxsame_computes_and_before_it_is_refused_instead_of_a_crash():
    assert run_well(COMPUTE) == "equal"
    result = sites.run([sites.PACKAGE.parent, SITE], "-c", "import tensorflow\nimport mxsame.nn")
    assert result.returncode == 1, result.stderr
    assert "InstallationError: TensorFlow was imported first" in result.stderr
    assert result.stderr.rstrip().endswith("fix it with: import mxsame  # before: import tensorflow")
