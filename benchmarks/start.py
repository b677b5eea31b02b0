"""From the import to the first output of a network in a file, each runtime in processes of its own: seconds, memory,
and what the first call with another batch takes. The files are mxsame's own: ONNX for ONNX Runtime, else Keras.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from importlib.util import find_spec
from typing import Any, Callable, Dict, List

import numpy as np

from benchmarks.worker import alone, peak, resident

Run = Callable[[np.ndarray], Any]


def ours(prepare: str, file: str) -> Run:
    import mxsame
    from mxsame._mxnet import mx

    net = getattr(mxsame, prepare)(mxsame.from_keras(f"{file}.h5"))
    return lambda images: net(mx.nd.array(images)).asnumpy()


def tensorflow(file: str) -> Run:
    import tensorflow as tf

    run = tf.function(tf.keras.models.load_model(f"{file}.h5", compile=False))
    return lambda images: run(tf.constant(images)).numpy()


def onnxruntime(file: str) -> Run:
    import onnxruntime as runtime

    session = runtime.InferenceSession(f"{file}.onnx", providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {session.get_inputs()[0].name: np.moveaxis(images, -1, 1)})[0]


RUNTIMES: Dict[str, Callable[[str], Run]] = {
    "mxsame": partial(ours, "hybridize"),
    "mxsame, deployed": partial(ours, "deploy"),
    "TensorFlow": tensorflow,
    "ONNX Runtime": onnxruntime,
}
MODES = {"first output": "s", "another batch": "s", "memory at rest": "MiB", "peak memory": "MiB"}


def once(runtime: str, file: str, size: int) -> List[float]:
    """The figures of `MODES`, in this process."""
    one, two = (np.random.RandomState(0).rand(batch, size, size, 3).astype("float32") for batch in (1, 2))
    began = time.perf_counter()
    run = RUNTIMES[runtime](file)
    run(one)
    first = time.perf_counter() - began
    rests, began = resident(), time.perf_counter()
    run(two)
    return [first, time.perf_counter() - began, rests, peak()]


def measure(case: Any, rounds: int) -> List[dict]:
    """A row for each of `MODES`, of all runtimes that are installed."""
    import mxsame
    from benchmarks import networks, results

    net = networks.kits(case, ["mxsame"])["mxsame"].net
    packages = {"TensorFlow": "tensorflow", "ONNX Runtime": "onnxruntime"}
    runtimes = [name for name in RUNTIMES if find_spec(packages.get(name, "mxsame"))]
    figures: Dict[str, Dict[str, List[float]]] = {mode: {name: [] for name in runtimes} for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        mxsame.export_onnx(net, f"{folder}/net.onnx", case.shape)
        mxsame.to_keras(net, f"{folder}/net.h5", case.shape)
        for name in runtimes * rounds:
            given = {"runtime": name, "file": f"{folder}/net", "size": case.size}
            for mode, figure in zip(MODES, alone("start:once", **given)):
                figures[mode][name].append(figure)
    return [
        results.row(case.network.name, mode, figures[mode], "mxsame, deployed", unit, network=case.network.name)
        for mode, unit in MODES.items()
    ]
