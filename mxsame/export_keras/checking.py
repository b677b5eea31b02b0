"""A file is compared with its net before it gets its name: loaded by Keras if one is installed, else read back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import metadata
from typing import Any, Iterable, List, Optional, Sequence

import numpy as np

from mxsame._mxnet import mx
from mxsame.export_keras.writer import Made
from mxsame.exporting.comparing import Arrays
from mxsame.exporting.comparing import compare as compared
from mxsame.port import from_keras
from mxsame.port.description import Model, Tensor

NOT_IMPORTED = 3  # the exit code of `SCRIPT` where Keras is installed and cannot be imported
SCRIPT = """
import os, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
try:
    import keras
except Exception:
    sys.exit(3)
file, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = keras.models.load_model(file, compile=False)
for number in range(count):
    with np.load(os.path.join(folder, f"input{number}.npz")) as given:
        arrays = [given[f"arr_{position}"] for position in range(len(given.files))]
    outputs = model.predict_on_batch(arrays if len(arrays) > 1 else arrays[0])
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    np.savez(os.path.join(folder, f"output{number}.npz"), *outputs)
"""


def compare(file: str, made: Made, net: Any, inputs: Any) -> str:
    """What the file was compared by; a `ValueError` if an output is not the net's."""
    keras = installed(file)
    by = "mxsame.from_keras"

    def run(samples: List[Arrays]) -> Iterable[Arrays]:
        nonlocal by
        given = [[array.transpose(order) for array, order in zip(arrays, made.orders)] for arrays in samples]
        outputs = None if keras is None else _by_keras(file, given)
        if outputs is None:
            outputs = read_back(file, given)
        else:
            by = f"Keras {keras}"
        return [
            [array.transpose(np.argsort(order)) for array, order in zip(each, made.output_orders)] for each in outputs
        ]

    names = [f"output {number}" for number in range(len(made.output_orders))]
    shapes = inputs.shapes.values()
    data = [_indices(made.model, tensor, shape) for tensor, shape in zip(made.model.inputs, shapes)]
    compared(net, inputs, made.shapes, data, np.dtype("float32"), None, "what loads it", run, names)
    return by


def _indices(model: Model, tensor: Tensor, shape: Sequence[int]) -> Optional[np.ndarray]:
    """Random rows for an input that an Embedding takes."""
    tables = [
        layer.config["input_dim"] for layer in model.layers if layer.class_name == "Embedding" and layer.takes(tensor)
    ]
    return np.random.default_rng(0).integers(min(tables), size=shape) if tables else None


def installed(file: str) -> Optional[str]:
    """The version of a Keras that loads such files."""
    try:
        version = metadata.version("keras")
    except metadata.PackageNotFoundError:
        return None
    return version if file.endswith(".h5") or int(version.split(".")[0]) >= 3 else None


def _by_keras(file: str, samples: List[Arrays]) -> Optional[List[Arrays]]:
    """The outputs that Keras computes, in another process; None if it cannot be imported there."""
    with tempfile.TemporaryDirectory() as folder:
        for number, arrays in enumerate(samples):
            np.savez(os.path.join(folder, f"input{number}.npz"), *arrays)
        command = [sys.executable, "-c", SCRIPT, file, folder, str(len(samples))]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == NOT_IMPORTED:
            return None
        if ended.returncode:
            reason = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
            raise ValueError(f"net must be one that Keras runs as a file; Keras says: {reason[0]}")
        outputs = []
        for number in range(len(samples)):
            with np.load(os.path.join(folder, f"output{number}.npz")) as stored:
                outputs.append([stored[f"arr_{position}"] for position in range(len(stored.files))])
        return outputs


def read_back(file: str, samples: List[Arrays]) -> List[Arrays]:
    read, outputs = from_keras(file), []
    for arrays in samples:
        out = read(*map(mx.nd.array, arrays))
        outputs.append([each.asnumpy() for each in (out if isinstance(out, (list, tuple)) else [out])])
    return outputs
