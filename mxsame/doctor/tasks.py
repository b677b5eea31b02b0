"""What the doctor's child processes do, one task each. A task yields what it finds piece by piece."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, Dict, Iterator, Tuple

from mxsame.doctor.child import Task, serve
from mxsame.installation import cuda
from mxsame.installation.requirements import LIBRARIES, pins

Found = Iterator[Dict[str, Any]]
SIZE, KERNEL_SIZE, STRIDE, CHANNELS = 8, 3, 2, 4  # SAME pads (0, 1)


def import_mxnet() -> Found:
    """NumPy and MXNet, what was built into MXNet, and how many GPUs it sees."""
    with contextlib.suppress(ImportError):  # MXNet's import explains it
        import numpy

        yield {"NumPy": {"version": numpy.__version__, "path": os.path.dirname(str(numpy.__file__))}}
    start = time.monotonic()
    from mxsame._mxnet import mx

    seconds = round(time.monotonic() - start, 2)
    yield {"MXNet": {"version": mx.__version__, "path": os.path.dirname(mx.__file__), "seconds": seconds}}
    features = mx.runtime.Features()
    enabled = {name: features.is_enabled(name) for name in sorted(features.keys())}
    yield {"build": {"features": enabled, "library": mx.libinfo.find_lib_path()[0]}}
    yield {"gpus": mx.context.num_gpus()}


def query_driver() -> Found:
    """NVIDIA's driver, then its GPUs."""
    driver = cuda.driver()
    yield {"driver": driver and driver._asdict()}
    yield {"devices": [device._asdict() for device in cuda.devices()]}


def find_libraries() -> Found:
    """CUDA's libraries, and what pip installs for those that are missing."""
    found = {library: cuda.locate(library.soname) for library in LIBRARIES}
    missing = [library for library, position in found.items() if not position]
    yield {
        "found": {library.soname: position._asdict() for library, position in found.items() if position},
        "missing": [library.soname for library in missing],
        "pins": pins(missing),
    }


def run_operators(kind: str, number: str) -> Found:
    """The largest differences between a device and NumPy, as parts of the largest value."""
    import numpy as np

    from mxsame import ops
    from mxsame._mxnet import mx

    random = np.random.RandomState(0)
    data = random.randn(2, CHANNELS, SIZE, SIZE)
    weight = random.randn(CHANNELS, CHANNELS, KERNEL_SIZE, KERNEL_SIZE)
    out_grad = random.randn(2, CHANNELS, SIZE // STRIDE, SIZE // STRIDE)

    with mx.Context(kind, int(number)):
        x, w, back = (mx.nd.array(array, dtype="float32") for array in (data, weight, out_grad))
        for name, operator, inputs, reference in (
            ("convolution", lambda: ops.conv(x, w, strides=STRIDE), (x, w), convolution(data, weight, out_grad)),
            ("max pooling", lambda: ops.max_pool(x, KERNEL_SIZE, STRIDE), (x,), max_pooling(data, out_grad)),
        ):
            for array in inputs:
                array.attach_grad()
            with mx.autograd.record():
                out = operator()
            yield {name: difference(out, reference[0])}
            out.backward(back)
            pairs = zip(inputs, reference[1:])
            yield {f"gradient of a {name}": max(difference(array.grad, expected) for array, expected in pairs)}


def difference(array: Any, expected: Any) -> float:
    """Infinite for another shape and for values that are no numbers."""
    import numpy as np

    got = array.asnumpy()
    if got.shape != expected.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def convolution(data: Any, weight: Any, out_grad: Any) -> Tuple[Any, ...]:
    """The output and the gradients of data and weight, in NumPy, window by window."""
    import numpy as np

    padded = np.pad(data, [(0, 0), (0, 0), (0, 1), (0, 1)], mode="constant")
    out, data_grad, weight_grad = np.zeros_like(out_grad), np.zeros_like(padded), np.zeros_like(weight)
    for position, window in windows(out_grad.shape):
        out[position] = np.einsum("nchw,ochw->no", padded[window], weight)
        data_grad[window] += np.einsum("no,ochw->nchw", out_grad[position], weight)
        weight_grad += np.einsum("no,nchw->ochw", out_grad[position], padded[window])
    return out, data_grad[:, :, :SIZE, :SIZE], weight_grad


def max_pooling(data: Any, out_grad: Any) -> Tuple[Any, ...]:
    """The output and the gradient of the data, in the same way."""
    import numpy as np

    padded = np.pad(data, [(0, 0), (0, 0), (0, 1), (0, 1)], mode="constant", constant_values=-np.inf)
    out, data_grad = np.zeros_like(out_grad), np.zeros_like(padded)
    for position, window in windows(out_grad.shape):
        out[position] = padded[window].max(axis=(2, 3))
        is_largest = padded[window] == out[position][:, :, None, None]
        data_grad[window] += out_grad[position][:, :, None, None] * is_largest
    return out, data_grad[:, :, :SIZE, :SIZE]


def windows(shape: Tuple[int, ...]) -> Iterator[Tuple[tuple, tuple]]:
    """The index of each output element, and that of its window, in all samples and channels."""
    every = slice(None)
    for row in range(shape[2]):
        for column in range(shape[3]):
            starts = (row * STRIDE, column * STRIDE)
            yield (every, every, row, column), (every, every, *(slice(start, start + KERNEL_SIZE) for start in starts))


TASKS: Dict[str, Task] = {
    "MXNet": import_mxnet,
    "driver": query_driver,
    "libraries": find_libraries,
    "operators": run_operators,
}

if __name__ == "__main__":
    serve(TASKS[sys.argv[1]], *sys.argv[2:])
