"""Records what TensorFlow 2.13.1 (CPU) gives for the table of cases.

    python tests/golden/make.py          # writes tensorflow-2.13.1.npz next to this file
    python tests/golden/make.py --check    # compares with the recorded file and writes nothing

Inputs are not stored: `cases.arrays` and `cases.output_gradient` make them again; their checksum is stored instead.
An array of more than LIMIT elements is stored as a sample (see `sample`).
"""

import argparse
import json
import os
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as tests/conftest.py

import cases  # noqa: E402

LIMIT = 2000  # elements of one array that are stored


def sample(array):
    """Every p-th element in row-major order, p the smallest prime that leaves LIMIT elements and divides no axis.

    So the sample visits every row and column.  Arrays within the limit stay whole, flattened.
    """
    array = np.asarray(array)
    step = max(-(-array.size // LIMIT), 1)
    while step > 1 and (any(step % p == 0 for p in range(2, step)) or any(n % step == 0 for n in array.shape)):
        step += 1
    return array.ravel()[::step]


def checksum(case, shape):
    """Of the inputs, bit for bit: float32 holds them exactly."""
    inputs = [*cases.arrays(case).values(), cases.output_gradient(case, shape)]
    return zlib.crc32(b"".join(array.astype("<f4").tobytes() for array in inputs))


def _dtype(tf_oracle, case, gradients):
    """float32, or float64 where only that is right; None where TensorFlow is no judge of the case."""
    return next((d for d in ("float32", "float64") if not tf_oracle.known_wrong(case, d, gradients)), None)


def record_cases(tf_oracle):
    """Key -> array: `<name>/shape`, `/checksum`, `/forward`, `/gradient/<array>`."""
    result = {}
    for case in cases.CASES:
        arrays = cases.arrays(case)
        dtype = _dtype(tf_oracle, case, False)
        if dtype is None:
            continue
        out = tf_oracle.forward(case, arrays, dtype)
        result[f"{case.name}/shape"] = np.array(out.shape, np.int32)
        result[f"{case.name}/checksum"] = np.array(checksum(case, out.shape), np.uint32)
        result[f"{case.name}/forward"] = sample(out).astype(np.float32)
        dtype = _dtype(tf_oracle, case, True)
        if dtype is None:
            continue
        for name, gradient in tf_oracle.gradients(case, arrays, cases.output_gradient(case, out.shape), dtype).items():
            result[f"{case.name}/gradient/{name}"] = sample(gradient).astype(np.float32)
    return result


def record():
    """Everything the file holds."""
    import tensorflow as tf
    import tf_oracle

    versions = f"tensorflow {tf.__version__}, numpy {np.__version__}, python {sys.version.split()[0]}"
    return {**record_cases(tf_oracle), "versions": np.array(versions)}


def pack(arrays):
    """All arrays as one: a file with thousands of small ones is mostly headers."""
    index = {key: [array.dtype.str, *array.shape] for key, array in arrays.items()}
    values = b"".join(array.tobytes() for array in arrays.values())
    return {"values": np.frombuffer(values, np.uint8), "index": np.array(json.dumps(index))}


def load(path=HERE / "tensorflow-2.13.1.npz"):
    """Key -> array, as recorded."""
    with np.load(path) as packed:
        index, values = json.loads(str(packed["index"])), packed["values"].tobytes()
    result, start = {}, 0
    for key, (dtype, *shape) in index.items():
        result[key] = np.frombuffer(values, dtype, int(np.prod(shape)), start).reshape(shape).copy()
        start += result[key].nbytes
    return result


def main():
    """Write or check the file."""
    check = wants_check(__doc__)
    new = record()
    if not str(new["versions"]).startswith("tensorflow 2.13.1,"):
        warnings.warn(f"made by {new['versions']}, recorded for TensorFlow 2.13.1", stacklevel=1)
    return settle(new, HERE / "tensorflow-2.13.1.npz", check)


def wants_check(doc):
    """Whether the command line of a script with this docstring says --check."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the recorded file and write nothing")
    return parser.parse_args().check


def settle(new, path, check):
    """Write a recording, or compare it with the recorded file and write nothing; the exit status."""
    if not check:
        np.savez_compressed(path, **pack(new))
        print(f"{path.name}: {len(new)} arrays, {path.stat().st_size / 1e6:.2f} MB, {new['versions']}")
        return 0
    old = load(path)
    missing = sorted(set(old) ^ set(new))
    differing = [key for key in set(old) & set(new) - {"versions"} if not close(old[key], new[key])]
    print(f"{len(old)} arrays recorded, only in one: {missing}, different: {sorted(differing)}")
    return 1 if missing or differing else 0


def close(one, other):
    """Whether two recordings of one array agree: floats to rounding."""
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    scale = max(1.0, float(np.sqrt(np.mean(np.square(one, dtype=np.float64)))))
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-4, atol=1e-4 * scale)


if __name__ == "__main__":
    sys.exit(main())
