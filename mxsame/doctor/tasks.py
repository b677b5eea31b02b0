"""What the doctor's child processes do, one task each. A task yields what it finds piece by piece."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, Dict, Iterator

from mxsame.doctor.child import Task, serve
from mxsame.installation import cuda

Found = Iterator[Dict[str, Any]]


def import_mxnet() -> Found:
    """NumPy and MXNet, and how many GPUs it sees."""
    with contextlib.suppress(ImportError):  # MXNet's import explains it
        import numpy

        yield {"NumPy": {"version": numpy.__version__, "path": os.path.dirname(str(numpy.__file__))}}
    start = time.monotonic()
    from mxsame._mxnet import mx

    seconds = round(time.monotonic() - start, 2)
    yield {"MXNet": {"version": mx.__version__, "path": os.path.dirname(mx.__file__), "seconds": seconds}}
    yield {"gpus": mx.context.num_gpus()}


def query_driver() -> Found:
    """NVIDIA's driver, then its GPUs."""
    driver = cuda.driver()
    yield {"driver": driver and driver._asdict()}
    yield {"devices": [device._asdict() for device in cuda.devices()]}


def run_operators(kind: str, number: str) -> Found:
    """A SAME convolution of whole numbers, and its gradients; an error if they are others."""
    from mxsame import ops
    from mxsame._mxnet import mx

    with mx.Context(kind, int(number)):
        data, weight = mx.nd.arange(16).reshape((1, 1, 4, 4)), mx.nd.arange(9).reshape((1, 1, 3, 3))
        for array in (data, weight):
            array.attach_grad()
        with mx.autograd.record():
            out = ops.conv(data, weight, strides=2)
        out.backward()
    for name, array, right in (
        ("convolution", out, [258, 186, 187, 113]),
        ("gradient of its data", data.grad, [0, 1, 2, 1, 3, 4, 8, 4, 6, 8, 16, 8, 3, 4, 8, 4]),
        ("gradient of its weight", weight.grad, [20, 24, 12, 36, 40, 20, 18, 20, 10]),
    ):
        got = array.asnumpy().ravel().tolist()
        if got != right:
            raise ArithmeticError(f"Error: {name} must be {right}; received {got}")
    yield {}


def count_threads() -> Found:
    """What the process may use of the machine, MXNet's threads, and whether a graph finds them awake: whether the team
    that this thread has after copying a large array is ended."""
    from mxsame import threads
    from mxsame._mxnet import mx

    def running() -> int:
        time.sleep(0.05)  # a thread that has ended is listed for an instant
        return len(os.listdir("/proc/self/task"))

    mx.nd.array([1])
    before = running()
    mx.nd.array(range(300_000))
    threads.keep_awake()
    awake = running() == before or os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine"
    yield {**threads.share()._asdict(), "mxnet": threads.in_use(), "awake": awake}


TASKS: Dict[str, Task] = {
    "import": import_mxnet,
    "driver": query_driver,
    "operators": run_operators,
    "threads": count_threads,
}

if __name__ == "__main__":
    serve(TASKS[sys.argv[1]], *sys.argv[2:])
