"""A file is compared with its net before it gets its name: loaded by Keras if one is installed, else read back."""

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
from mxsame.exporting.comparing import Arrays, Sampled
from mxsame.exporting.prepare import ExportedNet
from mxsame.keras_format.description import leaves
from mxsame.port import from_keras
from mxsame.progress import report
from mxsame.validation import InvalidValue, check

CANNOT_LOAD = 3  # the exit code of `SCRIPT` where no Keras is installed that loads such files
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
    """Compares a file with its net, and returns what computed its outputs. Raises a `ValueError` if they differ."""

    def run(samples: List[Arrays]) -> Tuple[str, Iterable[Arrays]]:
        report("running the file with Keras")
        given = [[array.transpose(order) for array, order in zip(arrays, keras_file.orders)] for arrays in samples]
        runtime, outputs = by_keras(file, given) or ("mxsame.from_keras", read_back(file, given))
        back = [np.argsort(order) for order in keras_file.output_orders]
        return runtime, [[array.transpose(axes) for array, axes in zip(arrays, back)] for arrays in outputs]

    return comparing.compare(exported, Sampled(keras_file.shapes, [None] * len(keras_file.shapes)), run)


def by_keras(file: str, samples: List[Arrays]) -> Optional[Tuple[str, List[Arrays]]]:
    """Returns the version of an installed Keras and the outputs that it computes, in another process; None if there is
    none that loads the file. An import of Keras takes seconds, so its version decides."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if file.endswith(".keras") and int(importlib.metadata.version("keras").split(".")[0]) < 3:
            return None
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder, "arrays")
        arrays.write_bytes(pickle.dumps(samples, protocol=4))
        command = [sys.executable, "-c", SCRIPT, file, str(arrays)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == CANNOT_LOAD:
            return None
        reason = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
        check(not ended.returncode, f"net must be one that Keras runs as a file; Keras says: {reason[0]}")
        outputs = pickle.loads(arrays.read_bytes())
        return ended.stdout.strip().splitlines()[-1], [leaves(each, np.ndarray) for each in outputs]


def read_back(file: str, samples: List[Arrays]) -> List[Arrays]:
    """Returns the outputs of the network that `from_keras` reads."""
    try:
        read = from_keras(file)
    except ValueError as error:
        rule = "a Keras that loads the file must be installed, to compare it with the net: pip install keras"
        raise InvalidValue(f"{rule}; mxsame.from_keras cannot read it: {error}") from None
    outputs = (read(*map(mx.nd.array, arrays)) for arrays in samples)
    return [[each.asnumpy() for each in (out if isinstance(out, (list, tuple)) else [out])] for out in outputs]
