"""Which kinds of MXNet's work a GPU starts at all, beside what the doctor tries: what is handed on to libraries whole,
MXNet's own kernels, and kernels compiled on the spot. On a GPU that MXNet has no machine code for only the first can.

    python -m benchmarks.kernels gpu 0 FILE

Each is compared with the CPU, gradients too; these go into arrays that are copied there, since to fill an array with
zeros takes a kernel. CUDA keeps the error of a kernel that did not start, so behind a failure a new process goes on.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

LIMIT = 60.0  # seconds, for a process that says nothing
MARK = "mxsame-kernel:"
IMAGE = (2, 8, 17, 19)
OPERATORS: Dict[str, tuple] = {  # (operator, its attributes, shapes of its inputs)
    "library: convolution with bias": ("Convolution", {"kernel": (3, 3), "pad": (1, 1)}, IMAGE, (6, 8, 3, 3), (6,)),
    "library: convolution, strided and dilated": (
        "Convolution",
        {"kernel": (4, 2), "stride": (2, 2), "dilate": (2, 1), "pad": (1, 2)},
        IMAGE,
        (6, 8, 4, 2),
    ),
    "library: grouped convolution": ("Convolution", {"kernel": (3, 3), "num_group": 4}, IMAGE, (8, 2, 3, 3)),
    "library: depthwise convolution": ("Convolution", {"kernel": (3, 3), "num_group": 8}, IMAGE, (8, 1, 3, 3)),
    "library: convolution of a row": ("Convolution", {"kernel": (5,), "pad": (2,)}, (2, 8, 33), (6, 8, 5)),
    "library: convolution of a volume": ("Convolution", {"kernel": (3, 3, 3)}, (1, 4, 7, 8, 9), (6, 4, 3, 3, 3)),
    "library: transposed convolution": ("Deconvolution", {"kernel": (3, 3), "stride": (2, 2)}, IMAGE, (8, 5, 3, 3)),
    "library: max pooling": ("Pooling", {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, IMAGE),
    "library: average pooling": ("Pooling", {"kernel": (3, 3), "stride": (2, 2), "pool_type": "avg"}, IMAGE),
    "library: max pooling of a volume": ("Pooling", {"kernel": (2, 2, 2), "stride": (2, 2, 2)}, (1, 4, 7, 8, 9)),
    "library: dense": ("FullyConnected", {"num_hidden": 6}, (4, 10), (6, 10)),
    "library: relu": ("Activation", {"act_type": "relu"}, IMAGE),
    "library: softmax": ("SoftmaxActivation", {}, (4, 10)),
    "own: dense with bias": ("FullyConnected", {"num_hidden": 6}, (4, 10), (6, 10), (6,)),
    "own: max pooling of a row": ("Pooling", {"kernel": (3,), "stride": (2,)}, (2, 8, 33)),
    "own: addition": ("elemwise_add", {}, IMAGE, IMAGE),
    "own: padding": ("Pad", {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 2, 0, 1)}, IMAGE),
    "own: slice": ("slice_axis", {"axis": 2, "begin": 1, "end": None}, IMAGE),
}
ZEROS, NUMBERS, COMPILED = "own: zeros", "own: random numbers", "compiled: a kernel of mx.rtc"
NAMES = (*OPERATORS, ZEROS, NUMBERS, COMPILED)
DOUBLE = 'extern "C" __global__ void twice(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'


def difference(name: str, kind: str, number: int) -> float:
    """How far the device is from the CPU, as a part of the largest value of each output and gradient."""
    import numpy as np

    from mxsame._mxnet import mx

    device = mx.Context(kind, number)
    if name in (ZEROS, NUMBERS):
        make = mx.nd.zeros if name == ZEROS else mx.nd.random.uniform
        values = make(shape=(3, 4), ctx=device).asnumpy()
        return float(np.abs(values).max() if name == ZEROS else not (values >= 0).all() or values.std() == 0)
    if name == COMPILED:
        x, y = (mx.nd.array(np.arange(32), ctx=device, dtype="float32") for _ in range(2))
        kernel = mx.rtc.CudaModule(DOUBLE, exports=["twice"]).get_kernel("twice", "const float *x, float *y")
        kernel.launch([x, y], device, (1, 1, 1), (32, 1, 1))
        return float(np.abs(y.asnumpy() - 2 * x.asnumpy()).max())
    found, wanted = (_values(mx, np, name, where) for where in (device, mx.cpu()))
    return max(float(np.abs(got - want).max() / np.abs(want).max()) for got, want in zip(found, wanted))


def _values(mx: Any, np: Any, name: str, device: Any) -> List[Any]:
    """The output of an operator and the gradients of its inputs."""
    operator, attributes, *shapes = OPERATORS[name]
    random = np.random.RandomState(0)
    inputs = [mx.nd.array(random.standard_normal(shape), ctx=device, dtype="float32") for shape in shapes]
    gradients = [mx.nd.array(np.zeros(shape), ctx=device, dtype="float32") for shape in shapes]
    mx.autograd.mark_variables(inputs, gradients)
    if operator in ("Convolution", "Deconvolution"):
        weight = shapes[1]
        filters = weight[0] if operator == "Convolution" else weight[1]
        attributes = {**attributes, "num_filter": filters}
    if operator in ("Convolution", "Deconvolution", "FullyConnected"):
        attributes = {**attributes, "no_bias": len(shapes) < 3}
    with mx.autograd.record():
        out = getattr(mx.nd, operator)(*inputs, **attributes)
    back = mx.nd.array(random.standard_normal(out.shape), ctx=device, dtype="float32")
    mx.autograd.backward([out], [back])
    return [array.asnumpy() for array in (out, *gradients)]


def tried(kind: str, number: int, tell: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """{"difference"} or {"error"} by name; `tell` gets what there is after every process."""
    found: Dict[str, Any] = {}
    left = [name for name in NAMES if name != COMPILED or kind == "gpu"]
    while left:
        command = [sys.executable, "-m", "benchmarks.kernels", kind, str(number), "-", json.dumps(left)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT)
            said, ended = done.stdout, f"the process ended with exit code {done.returncode}"
        except subprocess.TimeoutExpired as error:
            said, ended = error.stdout or b"", f"no answer within {LIMIT:g} seconds"
        for line in said.decode(errors="replace").splitlines():
            _, mark, report = line.partition(MARK)
            if mark:
                name, result = json.loads(report)
                found[name] = result
        failed = any("error" in found.get(name, {}) for name in left)
        left = [name for name in left if name not in found]
        if left and not failed:  # the process has not come to a report of the next
            found[left.pop(0)] = {"error": ended}
        tell(found)
    return found


def _report(kind: str, number: int, names: List[str]) -> None:
    """What a process does: a line for each, up to the first that fails."""
    for name in names:
        try:
            found = difference(name, kind, number)
            if not math.isfinite(found):
                raise ValueError("some values are no numbers")
            result: Dict[str, Any] = {"difference": found}
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            told = [line for line in lines if "Check failed" in line or "Error" in line] or lines
            result = {"error": told[-1][:300]}
        print(f"\n{MARK}{json.dumps([name, result])}", flush=True)
        if "error" in result:
            return


def main(kind: str, number: str, file: str, *names: str) -> None:
    if names:
        return _report(kind, int(number), json.loads(names[0]))

    def save(found: Dict[str, Any]) -> None:
        Path(file).write_text(json.dumps(found), encoding="utf-8")

    tried(kind, int(number), save)


if __name__ == "__main__":
    main(*sys.argv[1:])
