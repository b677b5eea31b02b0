"""Records what the operators of Keras 3 give on TensorFlow (CPU) for those cases of the table that they can express.

    python tests/golden/make_keras3.py          # writes keras-3.npz next to this file
    python tests/golden/make_keras3.py --check    # compares with the recorded file and writes nothing

In an environment of its own: Keras 3 and the TensorFlow it needs do not live with MXNet.
"""

import inspect
import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import cases  # noqa: E402
import keras_cases  # noqa: E402
import make  # noqa: E402
import oracle  # noqa: E402

PATH = HERE / "keras-3.npz"
FUNCTIONS = ("average_pool", "conv", "conv_transpose", "depthwise_conv", "max_pool", "separable_conv")
LARGEST = 400  # elements of an output that is recorded


def refused(case, gradients):
    """Why Keras 3.11 on TensorFlow's CPU does not say what is right, in words; None where it does."""
    strided, dilated = set(case.strides) != {1}, set(case.dilation) != {1}
    extents = [(k - 1) * d + 1 for k, d in zip(case.kernel_size, case.dilation)]
    covers = any(extent >= n for extent, n in zip(extents, case.size))
    if case.op not in oracle.POOLS and dilated and (strided or case.op == "conv_transpose"):
        return "dilation together with strides, and in transposed convolutions, is refused on the CPU"
    if case.op in ("depthwise_conv", "separable_conv") and (case.rank == 3 or len(set(case.strides)) > 1):
        return "depthwise convolutions are 1-D and 2-D, with equal strides"
    if gradients and case.groups > 1:
        return "groups have no gradient on the CPU"
    if gradients and case.rank == 3 and case.op == "conv" and case.padding == "same" and covers:
        return "weight gradients of SAME conv3d are wrong at times when k >= n"
    if gradients and case.rank == 3 and case.op == "max_pool" and case.values == "ties":
        return "max_pool3d gives the whole gradient to every element of a tie"
    if gradients and strided and set(extents) == {1} and case.op not in oracle.POOLS:
        return "weight gradients of strided 1x1 convolutions read elements that do not exist"
    return None


def chosen():
    """The cases that are recorded."""
    small = [case for case in keras_cases.table(keras_cases.ops_can) if refused(case, False) is None]
    return [case for case in small if case.batch * case.out_channels * np.prod(oracle.output_size(case)) <= LARGEST]


def record():
    """Key -> array: `<name>/checksum`, `/shape`, `/forward`, `/gradient/<array>`, channels last; and the signatures."""
    os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    import keras
    import tensorflow as tf

    result = {}
    for case in chosen():
        name, arguments = keras_cases.ops_call(case, "channels_last")
        function = getattr(keras.ops, name)
        arrays = keras_cases.ordered(case, cases.arrays(case), "channels_last")
        tensors = {key: tf.constant(array, "float32") for key, array in arrays.items()}
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            out = function(*tensors.values(), **arguments)
            shape = (case.batch, case.out_channels, *out.shape[1:-1])
            out_grad = keras_cases.data_ordered(cases.output_gradient(case, shape), "channels_last")
            loss = tf.reduce_sum(out * tf.constant(out_grad, "float32"))
        result[f"{case.name}/checksum"] = np.array(make.checksum(case, shape), np.uint32)
        result[f"{case.name}/shape"] = np.array(out.shape, np.int32)
        result[f"{case.name}/forward"] = out.numpy().ravel()
        if refused(case, True) is None:
            for key, gradient in tape.gradient(loss, tensors).items():
                result[f"{case.name}/gradient/{key}"] = gradient.numpy().ravel()
    for name in FUNCTIONS:
        text = str(inspect.signature(getattr(keras.ops, name)))
        result[f"signature/{name}"] = np.array([ord(letter) for letter in text], np.int32)
    versions = f"keras {keras.__version__}, tensorflow {tf.__version__}, numpy {np.__version__}"
    return {**result, "versions": np.array(f"{versions}, python {sys.version.split()[0]}")}


def main():
    """Write or check the file."""
    check = make.wants_check(__doc__)
    return make.settle(record(), PATH, check)


if __name__ == "__main__":
    sys.exit(main())
