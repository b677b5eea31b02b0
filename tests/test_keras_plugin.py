"""`mxsame.keras.install` without a keras-mxnet to install into: the error gives the command, and nothing happens.

What it does inside keras-mxnet is tested in tests/keras_mxnet, in an environment of its own.
"""

import sys
import types

import pytest
from running import run_python

import mxsame.keras
from mxsame.keras import plugin

COMMAND = (
    r"fix it with: python3\.8 -m venv \.venv-keras-mxnet && \.venv-keras-mxnet/bin/python -m pip install \. "
    r"mxnet==1\.9\.1 keras-mxnet==2\.2\.4\.3"
)


@pytest.fixture(autouse=True)
def no_keras(monkeypatch):
    """As if no Keras were imported."""
    for name in [name for name in sys.modules if name.split(".")[0] == "keras"]:
        monkeypatch.delitem(sys.modules, name)
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
    with pytest.raises(ImportError, match=rf"needs keras-mxnet 2\.2\.4\.3, which is not installed(.|\n)*{COMMAND}"):
        call()
    assert "keras" not in sys.modules


def test_another_keras_or_another_backend(monkeypatch):
    imported(monkeypatch, "2.13.1", "tensorflow")
    with pytest.raises(ImportError, match=rf"received version='2.13.1', path='/lib/keras-2.13.1(.|\n)*{COMMAND}"):
        mxsame.keras.install()
    imported(monkeypatch, "2.2.4.3", "theano")
    with pytest.raises(RuntimeError, match=r"needs Keras on MXNet: export KERAS_BACKEND=mxnet.* backend='theano'"):
        mxsame.keras.install()


def test_a_keras_mxnet_whose_settings_name_a_backend_that_is_not_installed(monkeypatch, tmp_path):
    (tmp_path / "keras.py").write_text("import a_backend\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugin.metadata, "version", lambda name: "2.2.4.3")
    with pytest.raises(RuntimeError, match=r"export KERAS_BACKEND=mxnet.*; received Module.*'a_backend'"):
        mxsame.keras.install()


def test_importing_the_plugin_imports_no_keras():
    script = "import sys, mxsame.keras as k; print(sorted({'keras', 'tensorflow'} & set(sys.modules)))"
    assert run_python(script + "; k.uninstall()").strip() == "[]"
