"""The user's own Keras, with which `mxsame convert --check` compares networks."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import textwrap
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Iterator

from mxsame.cli._shared import click
from mxsame.installation.requirements import MXNET_VERSION

# Newer versions than these need another protobuf and NumPy than TensorFlow 2.13.1.
WITH_ONNX = " onnx==1.14.1 onnxruntime==1.18.1 'ml-dtypes<0.5'" * bool(find_spec("onnx"))
PIP = "keras-env/bin/python -m pip install"
KERAS_WHEELS = (
    f"{PIP} --upgrade keras tensorflow-cpu"
    if sys.version_info >= (3, 12)
    else f"{PIP} tensorflow==2.13.1 numpy==1.23.5 'matplotlib<3.11' 'contourpy<1.3.3'{WITH_ONNX}\n"
    "or, for a file of Keras 3, instead of the last line:\n"
    f"{PIP} keras==3.11.3 tensorflow-cpu==2.18.1 numpy==1.26.4"
)
INSTALLATION = f"""Keras may change your NumPy version, so use a separate environment. In a checkout of mxsame:
{sys.executable} -m venv keras-env
{PIP} ".[cli,keras]"
{PIP} --no-deps mxnet=={MXNET_VERSION}
{KERAS_WHEELS}
Then run keras-env/bin/mxsame instead of mxsame"""


def imported_dict(option: str, path: str | None) -> Any:
    """Returns the dict that an option names as MODULE:NAME; the module may be in the current folder."""
    if path is None:
        return None
    module, _, name = path.partition(":")
    if not module or not name:
        raise click.UsageError(f"{option} must be MODULE:NAME, as in my_layers:custom; received {path!r}.")
    sys.path.insert(0, os.getcwd())
    try:
        value = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise click.UsageError(f"{option} must name a dict of a module that Python finds: {error}.") from error
    if not isinstance(value, dict):
        raise click.UsageError(f"{option} must name a dict; {path} is a {type(value).__name__}.")
    return value


def imported_keras() -> Any:
    """Returns the module tf.keras or Keras, imported without TensorFlow's messages about the processor."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    reasons = []
    for package in ("tensorflow.keras", "keras"):
        try:
            with silent_stderr():
                return importlib.import_module(package)
        except Exception as error:  # a package with other versions of its dependencies may raise anything
            reasons.append(f"{package} cannot be imported ({type(error).__name__}: {error})")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    hint = f" KERAS_BACKEND is {backend}: without it, Keras needs TensorFlow only."
    if backend == "tensorflow":
        hint = " Without TensorFlow, set KERAS_BACKEND to jax or torch." * bool(find_spec("keras"))
    raise click.ClickException(f"--check needs TensorFlow or Keras: {'; '.join(reasons)}.{hint} {INSTALLATION}")


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """Discards what libraries print to the process's stderr, in the block."""
    stderr = os.dup(2)
    with open(os.devnull, "w", encoding="ascii") as null_device:
        os.dup2(null_device.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def load_model(keras: Any, file: str, weights: str | None, objects: Any, custom: Any) -> Any:
    """Returns the model that Keras loads from the file, or from a JSON file and its weights."""
    try:
        if weights is None:
            return keras.models.load_model(file, custom_objects=objects, compile=False)
        model = keras.models.model_from_json(Path(file).read_text(encoding="utf-8"), custom_objects=objects)
        model.load_weights(weights)
        return model
    except Exception as error:  # Keras has no type of error for files that it cannot load
        version = getattr(keras, "__version__", None) or metadata.version("keras")  # tf.keras has no __version__
        advice = INSTALLATION
        if "safe_mode" in str(error):
            advice = "In Python, load it with safe_mode=False, which runs its code, and call mxsame.compare(net, model)"
        elif custom and not objects:
            advice = f"Give Keras your own layers by --custom-objects MODULE:NAME. {INSTALLATION}"
        reason = textwrap.shorten(str(error), 300, placeholder="..").rstrip(".")  # it may contain a whole configuration
        rule = f"--check needs a file that Keras {version} can load"
        raise click.ClickException(f"{rule}: {type(error).__name__}: {reason}. {advice}") from error
