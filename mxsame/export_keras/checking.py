"""A file is compared with its net before it gets its name: loaded by Keras if one is installed, else read back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any, Iterable, List, Optional, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.export_keras.writer import Made
from mxsame.exporting.comparing import Arrays, Sampled
from mxsame.exporting.comparing import compare as compared
from mxsame.exporting.walk import Source
from mxsame.port import from_keras
from mxsame.port.description import Model, Tensor

CANNOT_LOAD = 3  # the exit code of `SCRIPT` where no Keras is installed that loads such files
SCRIPT = """
import os, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
file, given, computed = sys.argv[1:]
try:
    import keras
    keras.ops if file.endswith(".keras") else keras.models
except Exception:
    sys.exit(3)
model, outputs = keras.models.load_model(file, compile=False), []
with np.load(given) as arrays:
    for sample in range(len(arrays.files) // len(model.inputs)):
        inputs = [arrays[f"{sample} {number}"] for number in range(len(model.inputs))]
        got = model.predict_on_batch(inputs if len(inputs) > 1 else inputs[0])
        outputs.append(got if isinstance(got, (list, tuple)) else [got])
names = {f"{sample} {number}": x for sample, each in enumerate(outputs) for number, x in enumerate(each)}
np.savez(computed, **names)
print("Keras", keras.__version__)
"""


def compare(file: str, made: Made, source: Source) -> str:
    """What the file was compared by; a `ValueError` if an output is not the net's."""
    by = "mxsame.from_keras"

    def run(samples: List[Arrays]) -> Iterable[Arrays]:
        nonlocal by
        given = [[array.transpose(order) for array, order in zip(arrays, made.orders)] for arrays in samples]
        by, outputs = by_keras(file, given, len(made.output_orders)) or (by, read_back(file, given))
        return [
            [array.transpose(np.argsort(order)) for array, order in zip(each, made.output_orders)] for each in outputs
        ]

    names = [f"output {number}" for number in range(len(made.output_orders))]
    data = [_indices(made.model, tensor, made.shapes[name]) for tensor, name in zip(made.model.inputs, made.shapes)]
    compared(source, Sampled(made.shapes, data), "what loads it", run, names)
    return by


def _indices(model: Model, tensor: Tensor, shape: Any) -> Optional[np.ndarray]:
    """Random rows for an input that an Embedding takes."""
    entries = model.entries(tensor)
    return entries and np.random.default_rng(0).integers(entries, size=[n.traced for n in shape])


def by_keras(file: str, samples: List[Arrays], count: int) -> Optional[Tuple[str, List[Arrays]]]:
    """The version of an installed Keras and the `count` outputs that it computes, in another process; None if there is
    none that loads the file."""
    with tempfile.TemporaryDirectory() as folder:
        given, computed = (os.path.join(folder, name) for name in ("given.npz", "computed.npz"))
        named = {f"{sample} {number}": x for sample, each in enumerate(samples) for number, x in enumerate(each)}
        np.savez(given, **named)
        command = [sys.executable, "-c", SCRIPT, file, given, computed]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == CANNOT_LOAD:
            return None
        if ended.returncode:
            reason = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
            raise ValueError(f"net must be one that Keras runs as a file; Keras says: {reason[0]}")
        with np.load(computed) as arrays:
            outputs = [[arrays[f"{sample} {each}"] for each in range(count)] for sample in range(len(samples))]
        return ended.stdout.strip().splitlines()[-1], outputs


def read_back(file: str, samples: List[Arrays]) -> List[Arrays]:
    """The outputs of the network that `from_keras` reads."""
    read, outputs = from_keras(file), []
    for arrays in samples:
        out = read(*map(mx.nd.array, arrays))
        outputs.append([each.asnumpy() for each in (out if isinstance(out, (list, tuple)) else [out])])
    return outputs
