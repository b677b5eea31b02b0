"""Deployed networks compared with today's runtimes, each in a process of its own, in turn: the waiting threads of one
would slow the others down. The files are mxsame's own: ONNX for ONNX Runtime and OpenVINO, Keras for TensorFlow.

`python peers.py RUNTIME FILE BATCH SIZE THREADS` is such a process, in an environment that has the runtime alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, List, Mapping

import numpy as np

SECONDS = 3.0  # of calls in a process


def onnxruntime(file: str, data: np.ndarray, threads: int) -> Callable[[], Any]:
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(f"{file}.onnx", options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {session.get_inputs()[0].name: data})[0]


def openvino(file: str, data: np.ndarray, threads: int) -> Callable[[], Any]:
    import openvino as runtime

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    run = runtime.Core().compile_model(f"{file}.onnx", "CPU", settings)
    return lambda: run([data])[0]


def tensorflow(file: str, data: np.ndarray, threads: int) -> Callable[[], Any]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    model, images = tf.keras.models.load_model(f"{file}.keras"), tf.constant(np.moveaxis(data, 1, -1))
    run = tf.function(lambda x: model(x, training=False))
    return lambda: run(images).numpy()


def mxsame(file: str, data: np.ndarray, threads: int) -> Callable[[], Any]:
    import mxsame as runtime
    from mxsame._mxnet import mx

    net, images = runtime.from_keras(f"{file}.keras"), np.moveaxis(data, 1, -1)
    run, array = runtime.deploy(net, images.shape), mx.nd.array(images)
    return lambda: run(array).asnumpy()


OURS = "mxsame, deployed"
RUNTIMES = {OURS: mxsame, "TensorFlow": tensorflow, "ONNX Runtime": onnxruntime, "OpenVINO": openvino}


def seconds(runtime: str, file: str, batch: int, size: int, threads: int, turn: float = SECONDS) -> float:
    """The lower quartile of a call's seconds."""
    run = RUNTIMES[runtime](file, np.random.RandomState(0).rand(batch, 3, size, size).astype("float32"), threads)
    times: List[float] = []
    while sum(times) < turn or len(times) < 8:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.percentile(times[2:], 25))


def measure(case: Any, pythons: Mapping[str, str], rounds: int, turn: float = SECONDS) -> List[dict]:
    """A row: `mxsame.deploy` compared with the runtimes, each in the environment of its `python`."""
    import mxsame
    from benchmarks import networks, results
    from mxsame import threads

    net = networks.kits(case, ["mxsame"])["mxsame"].net
    figures, numbers = {}, (case.batch, case.size, threads.in_use(), turn)
    with tempfile.TemporaryDirectory() as folder:
        mxsame.export_onnx(net, f"{folder}/net.onnx", case.shape)
        mxsame.to_keras(net, f"{folder}/net.keras", case.shape)
        for runtime, python in [(OURS, sys.executable), *pythons.items()] * rounds:
            command = [python, os.path.abspath(__file__), runtime, f"{folder}/net", *map(str, numbers)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures.setdefault(runtime, []).append(float(done.stdout.split()[-1]))
    return [results.row(case.name, "inference, deployed", figures, OURS, **case.numbers)]


if __name__ == "__main__":
    sys.path[0] = os.path.dirname(sys.path[0])  # mxsame's, not this folder with an `onnx.py`
    print(seconds(*sys.argv[1:3], *map(int, sys.argv[3:6]), float(sys.argv[6])))
