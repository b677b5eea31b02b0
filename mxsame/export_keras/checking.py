"""Compares a file with its net before it gets its final name. An installed Keras runs the file, or else mxsame."""

from __future__ import annotations

import contextlib
import importlib.metadata
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterable, List, Optional, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.export_keras.model_builder import KerasFile
from mxsame.exporting import comparing
from mxsame.exporting.comparing import Arrays, Samples
from mxsame.exporting.prepare import ExportedNet
from mxsame.keras_format.description import leaves
from mxsame.port import from_keras
from mxsame.progress import report
from mxsame.validation import InvalidValue, check

MXSAME = "mxsame.from_keras"  # what computes a file's outputs if no Keras can
CANNOT_LOAD = 3  # the exit code of `SCRIPT` if Keras cannot be imported
SCRIPT = """
import os, pickle, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
file, arrays = sys.argv[1:]
try:
    import keras
    keras.models
except Exception:
    sys.exit(3)
model = keras.models.load_model(file, compile=False)
model.run_eagerly = True  # a graph for each shape takes longer than the layers
with open(arrays, "rb") as given:
    samples = pickle.load(given)
outputs = [model.predict_on_batch(inputs if len(inputs) > 1 else inputs[0]) for inputs in samples]
with open(arrays, "wb") as computed:
    pickle.dump(outputs, computed)
print("Keras", keras.__version__)
"""


def compare(file: str, keras_file: KerasFile, exported: ExportedNet) -> str:
    """Compares a file with its net, and returns the runtime that computed the file's outputs. Raises a `ValueError` if
    they differ from the net's."""

    def run(samples: List[Arrays]) -> Tuple[str, Iterable[Arrays]]:
        report("running the file with Keras")
        inputs = [[array.transpose(order) for array, order in zip(arrays, keras_file.orders)] for arrays in samples]
        runtime, outputs = run_with_keras(file, inputs) or (MXSAME, run_with_mxsame(file, inputs))
        inverses = [np.argsort(order) for order in keras_file.output_orders]
        return runtime, [[array.transpose(axes) for array, axes in zip(arrays, inverses)] for arrays in outputs]

    return comparing.compare(exported, Samples(keras_file.shapes, [None] * len(keras_file.shapes)), run)


def has_keras_2() -> bool:
    """Whether the installed Keras is of version 2, which loads no `.keras` file of this package."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return int(importlib.metadata.version("keras").split(".")[0]) < 3
    return False


def run_with_keras(file: str, samples: List[Arrays]) -> Optional[Tuple[str, List[Arrays]]]:
    """Runs a file with the installed Keras in another process; returns the version of Keras and the outputs. Returns
    None if no installed Keras loads the file."""
    if file.endswith(".keras") and has_keras_2():  # this saves an import that takes seconds
        return None
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder, "arrays")
        arrays.write_bytes(pickle.dumps(samples, protocol=4))
        command = [sys.executable, "-c", SCRIPT, file, str(arrays)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode == CANNOT_LOAD:
            return None
        reason = process.stderr.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        check(not process.returncode, f"net must be one that Keras runs as a file; Keras says: {reason[0]}")
        outputs = pickle.loads(arrays.read_bytes())
        return process.stdout.strip().splitlines()[-1], [leaves(each, np.ndarray) for each in outputs]


def run_with_mxsame(file: str, samples: List[Arrays]) -> List[Arrays]:
    """Reads a file with `from_keras`; returns the outputs of the network."""
    try:
        network = from_keras(file)
    except ValueError as error:
        rule = "a Keras that loads the file must be installed, to compare it with the net: pip install keras"
        raise InvalidValue(f"{rule}; mxsame.from_keras cannot read it: {error}") from None
    outputs = (network(*map(mx.nd.array, arrays)) for arrays in samples)
    return [[each.asnumpy() for each in (out if isinstance(out, (list, tuple)) else [out])] for out in outputs]
