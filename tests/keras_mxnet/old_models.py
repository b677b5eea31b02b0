"""keras-mxnet itself, without the plugin: its backend's functions on a case.

golden/make_keras_mxnet.py records them. On the CPU most transposed convolutions of keras-mxnet run only without oneDNN.
"""

import conftest  # noqa: F401 - the environment, when this is run by a script

# isort: split
import numpy as np
from grid import to_format, to_kernel
from keras import backend
from keras.utils import conv_utils


def out_size(size, kernel_size, rest):
    """Of a transposed convolution, by Keras."""
    extra = rest.get("output_padding") or (None,) * len(size)
    axes = zip(size, rest["strides"], kernel_size, extra, rest["dilation"])
    return tuple(conv_utils.deconv_length(n, s, k, "same", more, d) for n, s, k, more, d in axes)


def theirs(name, case, arrays, data_format):
    """(graph, names of the arrays in it) by keras-mxnet."""
    rank = case.rank
    symbols = {
        key: backend.placeholder(shape=ordered(key, array, case, data_format).shape) for key, array in arrays.items()
    }
    names = {key: symbol.name for key, symbol in symbols.items()}
    bias = symbols.pop("bias", None)
    x, *kernels = symbols.values()
    window = {"strides": case.strides, "padding": "same", "data_format": data_format}
    if case.op.endswith("pool"):
        mode, size = name[:3], case.kernel_size
        if rank == 1:  # as Keras's layers do it
            axis = 2 if data_format == "channels_last" else 3
            x, size, window["strides"] = backend.expand_dims(x, axis), (*size, 1), (*case.strides, 1)
        y = getattr(backend, "pool3d" if rank == 3 else "pool2d")(x, size, pool_mode=mode, **window)
        return (backend.squeeze(y, axis) if rank == 1 else y).symbol, names
    window["dilation_rate"] = case.dilation
    if rank == 1:
        window["strides"], window["dilation_rate"] = case.strides[0], case.dilation[0]
    if case.op == "conv_transpose":
        out = out_size(case.size, case.kernel_size, vars(case))
        window["output_shape"] = to_format(np.empty((case.batch, case.channels, *out)), data_format).shape
    y = getattr(backend, name)(x, *kernels, **window)
    return (y if bias is None else backend.bias_add(y, bias, data_format)).symbol, names


def ordered(key, array, case, data_format):
    """An array of `cases.arrays` as keras-mxnet stores it."""
    return to_format(array, data_format) if key == "data" else to_kernel(key, array, case, data_format)
