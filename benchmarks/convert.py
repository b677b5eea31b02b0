"""Files of Keras models, read by `mxsame.from_keras` and by tf.keras, each in a process of its own: seconds, and peak
memory as a ratio to the weights. Memory is what the process had at most, less what it had once everything was imported
and a small file had been read. TensorFlow writes the files, with weights as it initializes them.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

from benchmarks import results
from benchmarks.worker import MIB, alone, peak, resident

MODELS = ("ResNet50", "VGG16")  # 26 million parameters; 138 million, 103 of which are one matrix
ENDINGS = (".h5", ".keras")
READERS = ("mxsame", "tf.keras")
SMALL = "small"


def measure(model: str, ending: str, rounds: int) -> List[dict]:
    """Rows for time and memory: the readers take turns."""
    runs: Dict[str, Dict[str, List[float]]] = {kind: {reader: [] for reader in READERS} for kind in ("seconds", "mib")}
    with tempfile.TemporaryDirectory() as folder:
        given = {"folder": folder, "model": model, "ending": ending}
        parameters = alone("convert:write", **given)
        for turn in range(rounds):
            for reader in READERS if turn % 2 else reversed(READERS):
                once = alone("convert:read", reader=reader, **given)
                for kind, values in runs.items():
                    values[reader].append(once[kind])
    more = {"model": model, "ending": ending, "parameters": parameters}
    weights = {"weights": [parameters * 4 / MIB]}
    return [
        results.row(f"{model} {ending}", "time", runs["seconds"], "tf.keras", **more),
        results.row(f"{model} {ending}", "peak memory", {**weights, **runs["mib"]}, "weights", unit="MiB", **more),
    ]


# -- each in a process of its own


def write(folder: str, model: str, ending: str) -> int:
    """A file of the model, and one of a small model, for the process that will read them; the model's parameters."""
    keras = _keras()
    small = keras.Sequential([keras.layers.Input((8, 8, 3)), keras.layers.Conv2D(4, 3), keras.layers.Dense(2)])
    small.save(_path(folder, SMALL, ending))
    large = getattr(keras.applications, model)(weights=None)
    large.save(_path(folder, model, ending))
    return large.count_params()


def read(folder: str, model: str, ending: str, reader: str) -> Dict[str, float]:
    """Seconds, and MiB above what there was before."""
    if reader == "tf.keras":
        load, finish = partial(_keras().models.load_model, compile=False), bool
    else:
        import mxsame
        from mxsame._mxnet import mx

        load, finish = mxsame.from_keras, mx.nd.waitall
    load(_path(folder, SMALL, ending))
    finish()
    before, began = resident(), time.perf_counter()
    kept = load(_path(folder, model, ending))
    finish()
    figures = {"seconds": time.perf_counter() - began, "mib": peak() - before}
    del kept
    return figures


def _keras() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    return tf.keras


def _path(folder: str, model: str, ending: str) -> str:
    return str(Path(folder, model + ending))
