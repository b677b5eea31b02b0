"""Records model files of keras-mxnet 2.2.4.3 and what it gives for them, into stacks-keras-mxnet.zip.

    python tests/golden/make_stacks.py          # writes stacks-keras-mxnet.zip next to this file
    python tests/golden/make_stacks.py --check    # compares with the recorded file and writes nothing

It needs the environment of tests/keras_mxnet/requirements.txt. MXNet runs without oneDNN, as in make_keras_mxnet.py.
The models are stacks of tests/keras_mxnet/stacks.py, and the nested model of that file. The
archive holds `<name>.h5` and `arrays.npz`, with `<name>/input`, `<name>/output`.
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

import make  # noqa: E402

FILE = HERE / "stacks-keras-mxnet.zip"
SEEDS = (0, 6, 7, 8, 11, 12, 14, 18, 20, 23, 29)
FORMATS = ("channels_first", "channels_last")


def record():
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


def load(folder):
    """Unpack the files into a folder; the arrays, and the names of the models."""
    with zipfile.ZipFile(FILE) as archive:
        names = [name for name in archive.namelist() if name.endswith(".h5")]
        archive.extractall(folder, names)
        with np.load(io.BytesIO(archive.read("arrays.npz"))) as stored:
            arrays = dict(stored)
    return arrays, [name[:-3] for name in names]


def main():
    """Write or check the file."""
    check = make.wants_check(__doc__)
    os.environ["MXNET_MKLDNN_ENABLED"] = "0"
    os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    sys.path.insert(0, str(HERE.parent / "keras_mxnet"))
    written, arrays = record()
    if check:
        with tempfile.TemporaryDirectory() as folder:
            old, names = load(folder)
        differing = [key for key in {*old} | {*arrays} if key not in old or not make.close(old[key], arrays[key])]
        print(f"{len(names)} models recorded, different: {sorted(differing)}")
        return 1 if differing or set(names) != set(written) else 0
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arrays.npz", buffer.getvalue())
        for name, content in written.items():
            archive.writestr(f"{name}.h5", content)
    print(f"{FILE.name}: {len(written)} models, {FILE.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
