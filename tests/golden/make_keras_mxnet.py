"""Records keras-mxnet 2.2.4.3 itself: what it gives for the cases whose padding is its own, and model files of it.

    python tests/golden/make_keras_mxnet.py            # writes the two files below next to this file
    python tests/golden/make_keras_mxnet.py --check    # compares with the recorded files and writes nothing

It needs the environment of tests/keras_mxnet/requirements.txt. MXNet runs without oneDNN, as keras-mxnet's transposed
convolutions need it to on the CPU.

`keras-mxnet-2.2.4.3.npz` has the cases, stored as by `make.py`; what keras-mxnet has no function for is left out.
`stacks-keras-mxnet.zip` has `<name>.h5` of stacks of tests/keras_mxnet/stacks.py, and of the nested model of that file,
and `arrays.npz` with `<name>/input` and `<name>/output`.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import cases  # noqa: E402
import make  # noqa: E402

FILE, STACKS = HERE / "keras-mxnet-2.2.4.3.npz", HERE / "stacks-keras-mxnet.zip"
FUNCTIONS = {
    **{("conv", rank): f"conv{rank}d" for rank in (1, 2, 3)},
    ("depthwise_conv", 2): "depthwise_conv2d",
    ("separable_conv", 2): "separable_conv2d",
    ("conv_transpose", 2): "conv2d_transpose",
    **{(f"{kind}_pool", rank): f"{kind} pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)},
}
SEEDS = (0, 6, 7, 8, 11, 12, 14, 18, 20, 23, 29)
FORMATS = ("channels_first", "channels_last")


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
    versions = f"keras-mxnet 2.2.4.3, mxnet {mx.__version__}, numpy {np.__version__}, python {sys.version.split()[0]}"
    return {**result, "versions": np.array(versions)}


def record_stacks():
    """(name -> bytes of an .h5 file, key -> array)."""
    import stacks

    models = {f"stack-{seed}": stacks.stack(seed, transposed=True) for seed in SEEDS}
    models.update({f"nested-{data_format}": stacks.nested(data_format) for data_format in FORMATS})
    written, arrays = {}, {}
    for name, model in models.items():
        data = np.random.RandomState(0).normal(size=(2, *model.input_shape[1:])).astype("float32")
        model.compile("sgd", "mse")
        arrays[f"{name}/input"], arrays[f"{name}/output"] = data, model.predict(data)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.h5"
            model.save(str(path), include_optimizer=False)
            written[name] = path.read_bytes()
    return written, arrays


def load_stacks(folder):
    """Unpack the files of stacks into a folder; the arrays, and the names of the models."""
    with zipfile.ZipFile(STACKS) as archive:
        names = [name for name in archive.namelist() if name.endswith(".h5")]
        archive.extractall(folder, names)
        with np.load(io.BytesIO(archive.read("arrays.npz"))) as stored:
            arrays = dict(stored)
    return arrays, [name[:-3] for name in names]


def settle_stacks(written, arrays, check):
    """As `make.settle`."""
    if check:
        with tempfile.TemporaryDirectory() as folder:
            old, names = load_stacks(folder)
        differing = [key for key in {*old} | {*arrays} if key not in old or not make.close(old[key], arrays[key])]
        print(f"{len(names)} models recorded, different: {sorted(differing)}")
        return 1 if differing or set(names) != set(written) else 0
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    with zipfile.ZipFile(STACKS, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arrays.npz", buffer.getvalue())
        for name, content in written.items():
            archive.writestr(f"{name}.h5", content)
    print(f"{STACKS.name}: {len(written)} models, {STACKS.stat().st_size / 1e6:.2f} MB")
    return 0


def main():
    """Write or check the files."""
    check = make.wants_check(__doc__)
    os.environ["MXNET_MKLDNN_ENABLED"] = "0"
    os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    sys.path.insert(0, str(HERE.parent / "keras_mxnet"))
    import old_models  # noqa: F401 - the environment of keras-mxnet

    return make.settle(record_cases(), FILE, check) + settle_stacks(*record_stacks(), check)


if __name__ == "__main__":
    sys.exit(main())
