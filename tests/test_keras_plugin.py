"""`mxsame.keras.install` without a keras-mxnet to install into: the error gives the command, and nothing happens.

What it does inside keras-mxnet is tested in tests/keras_mxnet, in an environment of its own.
"""

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

import mxsame.keras
from mxsame.keras import plugin

PIP = rf"fix it with: {sys.executable} -m pip install keras-mxnet==2\.2\.4\.3"
NEW = r"fix it with: python3\.8 -m venv \.venv && \.venv/bin/python -m pip install '\.\[cpu\]' keras-mxnet==2\.2\.4\.3"
BACKEND = r"fix it with: export KERAS_BACKEND=mxnet"


@pytest.fixture(autouse=True)
def no_keras(monkeypatch):
    """As if no Keras were imported, nor keras-mxnet installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "keras"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(plugin, "_distribution_version", lambda name: None)
    monkeypatch.setattr(plugin, "NEWEST_PYTHON", sys.version_info[:2])
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    yield
    assert plugin._replaced == []


def imported(monkeypatch, version, backend):
    """A Keras of this version and backend, as far as the plugin looks at it."""
    keras, module = types.ModuleType("keras"), types.ModuleType("keras.backend")
    keras.__version__, keras.__file__ = version, f"/lib/keras-{version}/__init__.py"
    keras.backend, module.backend = module, lambda: backend
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setitem(sys.modules, "keras.backend", module)


def enter():
    with mxsame.keras.installed():
        raise AssertionError("never reached")


@pytest.mark.parametrize("call", [mxsame.keras.install, enter], ids=["install", "installed"])
def test_keras_mxnet_is_not_installed(call):
    with pytest.raises(ImportError, match=rf"needs keras-mxnet 2\.2\.4\.3, which is not installed(.|\n)*{PIP}"):
        call()
    assert "keras" not in sys.modules


def test_on_a_newer_python_no_command_helps_but_another_python(monkeypatch):
    """It takes Iterable from `collections`, where Python 3.10 has it no more."""
    monkeypatch.setattr(plugin, "NEWEST_PYTHON", (3, 0))
    with pytest.raises(ImportError, match=rf"which is not installed(.|\n)*{NEW}"):
        mxsame.keras.install()
    imported(monkeypatch, "2.13.1", "tensorflow")
    with pytest.raises(ImportError, match=rf"another Keras is imported(.|\n)*{NEW}"):
        mxsame.keras.install()


@pytest.mark.parametrize(("version", "backend"), [("2.13.1", "tensorflow"), ("2.2.4", "theano"), ("2.2.4.2", "mxnet")])
def test_another_keras_is_imported(monkeypatch, version, backend):
    imported(monkeypatch, version, backend)
    with pytest.raises(ImportError, match=rf"received version='{version}', path='/lib/keras-{version}(.|\n)*{PIP}"):
        mxsame.keras.install()


def test_another_backend_is_active(monkeypatch):
    imported(monkeypatch, "2.2.4.3", "theano")
    with pytest.raises(RuntimeError, match=rf"needs Keras on MXNet; received backend='theano'(.|\n)*{BACKEND}"):
        mxsame.keras.install()


def test_keras_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(plugin, "_distribution_version", lambda name: "2.2.4.3")
    monkeypatch.setitem(sys.modules, "keras", None)  # as a backend that is missing: an ImportError
    with pytest.raises(ImportError, match=rf"Keras cannot be imported: ModuleNotFoundError: (.|\n)*{BACKEND}"):
        mxsame.keras.install()
    monkeypatch.setenv("KERAS_BACKEND", "mxnet")  # then it is the packages that do not fit
    with pytest.raises(ImportError, match=rf"Keras cannot be imported(.|\n)*{PIP} numpy==1\.19\.5 h5py==2\.10\.0"):
        mxsame.keras.install()


def test_an_install_that_fails_half_way_is_taken_back(monkeypatch):
    imported(monkeypatch, "2.2.4.3", "mxnet")
    backend = types.ModuleType("keras.backend.mxnet_backend")
    backend.keras_mxnet_symbol = lambda function: function
    backend.conv1d = sys.modules["keras.backend"].conv1d = lambda: None
    before = backend.conv1d
    monkeypatch.setitem(sys.modules, "keras.backend.mxnet_backend", backend)
    monkeypatch.setitem(sys.modules, "keras.layers", types.ModuleType("keras.layers"))
    with pytest.raises(KeyError, match="conv2d"):
        mxsame.keras.install()
    assert backend.conv1d is sys.modules["keras.backend"].conv1d is before


def test_uninstalling_nothing_does_nothing():
    mxsame.keras.uninstall()
    mxsame.keras.uninstall()


def test_the_version_of_a_package(monkeypatch):
    monkeypatch.undo()
    assert plugin._distribution_version("pytest") == pytest.__version__
    assert plugin._distribution_version("no-such-package") is None


def test_importing_the_plugin_imports_no_keras():
    script = "import sys, mxsame.keras; print(sorted({'keras', 'tensorflow'} & set(sys.modules)))"
    folder = Path(importlib.import_module("mxsame").__file__).parent.parent
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=str(folder), check=True)
    assert result.stdout.strip() == "[]"
