"""Records what keras-mxnet 2.2.4.3 itself gives for the cases whose padding is its own.

    python tests/golden/make_keras_mxnet.py          # writes keras-mxnet-2.2.4.3.npz next to this file
    python tests/golden/make_keras_mxnet.py --check    # compares with the recorded file and writes nothing

It needs the environment of tests/keras_mxnet/requirements.txt. MXNet runs without oneDNN, as keras-mxnet's transposed
convolutions need it to on the CPU. Cases are stored as by `make.py`; what keras-mxnet has no function for is left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import cases  # noqa: E402
import make  # noqa: E402

FILE = HERE / "keras-mxnet-2.2.4.3.npz"
FUNCTIONS = {
    **{("conv", rank): f"conv{rank}d" for rank in (1, 2, 3)},
    ("depthwise_conv", 2): "depthwise_conv2d",
    ("separable_conv", 2): "separable_conv2d",
    ("conv_transpose", 2): "conv2d_transpose",
    **{("max_pool", rank): f"max pool{rank}d" for rank in (1, 2, 3)},
    **{("avg_pool", rank): f"avg pool{rank}d" for rank in (1, 2, 3)},
}


def can_run(case) -> bool:
    """Whether keras-mxnet has a function for the case, in which it runs."""
    known = (case.op, case.rank) in FUNCTIONS and case.groups == case.depth_multiplier == 1
    return not case.in_tensorflow and known and not case.ceil_mode


def record_cases():
    """Key -> array, as `make.record_cases`."""
    import mxnet as mx
    import old_models
    from grid import run

    result = {}
    for case in filter(can_run, cases.CASES):
        arrays = cases.arrays(case)
        symbol, names = old_models.theirs(FUNCTIONS[case.op, case.rank], case, arrays, "channels_first")
        ordered = {key: old_models.ordered(key, array, case, "channels_first") for key, array in arrays.items()}
        out, executor = run(symbol, {names[key]: array for key, array in ordered.items()}, True)
        executor.backward(mx.nd.array(cases.output_gradient(case, out.shape)))
        result[f"{case.name}/shape"] = np.array(out.shape, np.int32)
        result[f"{case.name}/checksum"] = np.array(make.checksum(case, out.shape), np.uint32)
        result[f"{case.name}/forward"] = make.sample(out).astype(np.float32)
        for key, array in arrays.items():
            gradient = executor.grad_dict[names[key]].asnumpy().reshape(array.shape)
            result[f"{case.name}/gradient/{key}"] = make.sample(gradient).astype(np.float32)
    return result


def main():
    """Write or check the file."""
    check = make.wants_check(__doc__)
    os.environ["MXNET_MKLDNN_ENABLED"] = "0"
    os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    sys.path.insert(0, str(HERE.parent / "keras_mxnet"))
    import mxnet as mx
    import old_models  # noqa: F401 - the environment of keras-mxnet

    versions = f"keras-mxnet 2.2.4.3, mxnet {mx.__version__}, numpy {np.__version__}, python {sys.version.split()[0]}"
    new = {**record_cases(), "versions": np.array(versions)}
    return make.settle(new, FILE, check)


if __name__ == "__main__":
    sys.exit(main())
