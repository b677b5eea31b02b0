"""The padding "keras-mxnet" compared with keras-mxnet itself, without the plugin: its backend's functions on a grid.

    python tests/keras_mxnet/old_models.py                                     # how many are equal, by function
    MXNET_MKLDNN_ENABLED=0 python tests/keras_mxnet/old_models.py conv2d_transpose

n 5..12 and 1..3, k 1..5, strides 1..3, dilation 1..2 (also together with strides, except for transposed convolutions:
mxsame refuses that, as MXNet's own are wrong then); axes differ. Outputs and gradients of data and kernels. Where
keras-mxnet raises, mxsame must refuse. On the CPU most transposed convolutions of keras-mxnet run only without oneDNN.
(A negative pad, which raises with oneDNN, would run there, too.)
"""

import argparse
import collections
import itertools
import sys
import warnings

import conftest  # noqa: F401 - the environment, when this is run as a script

# isort: split
import cases
import keras
import mxnet as mx
import numpy as np
import old_network
from grid import FORMATS, from_format, run, shifted, to_format, to_kernel
from keras import backend
from keras.utils import conv_utils

import mxsame
from mxsame import padding

TOLERANCE = 1e-5
FUNCTIONS = {
    "conv1d": ("conv", 1),
    "conv2d": ("conv", 2),
    "conv3d": ("conv", 3),
    "depthwise_conv2d": ("depthwise_conv", 2),
    "separable_conv2d": ("separable_conv", 2),
    "conv2d_transpose": ("conv_transpose", 2),
    "max pool1d": ("max_pool", 1),
    "max pool2d": ("max_pool", 2),
    "max pool3d": ("max_pool", 3),
    "avg pool1d": ("avg_pool", 1),
    "avg pool2d": ("avg_pool", 2),
    "avg pool3d": ("avg_pool", 3),
}
SIZES = (5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3)


def grid(name):
    """The cases of a function."""
    op, rank = FUNCTIONS[name]
    dilations = (1,) if op.endswith("pool") else (1, 2)
    for n, k, s, d in itertools.product(SIZES, range(1, 6), range(1, 4), dilations):
        if op == "conv_transpose" and s > 1 and d > 1:
            continue
        size = shifted(n, 5, 12, rank) if n >= 5 else shifted(n, 1, 3, rank)
        alike = (n + k) % 2 == 0 or (op == "conv_transpose" and d > 1)
        strides = (s,) * rank if alike else shifted(s, 1, 3, rank)
        rest = {"strides": strides, "dilation": (d,) * rank, "in_channels": 2, "channels": 3, "use_bias": False}
        rest.update(padding="keras-mxnet", batch=1 + k % 2, count_include_pad=op == "avg_pool")
        extra = (None, *range(s)) if op == "conv_transpose" else (None,)
        for output_padding in extra:
            if output_padding is not None:
                rest["output_padding"] = tuple(min(output_padding, stride - 1) for stride in strides)
                if min(out_size(size, shifted(k, 1, 5, rank), rest)) < 1:
                    continue
            yield cases.Case(op, size, shifted(k, 1, 5, rank), **rest)


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


def ours(case, arrays, data_format):
    """mxsame's output; arrays are NDArrays."""
    layouts = {"channels_first": ("NCW", "NCHW", "NCDHW"), "channels_last": ("NWC", "NHWC", "NDHWC")}[data_format]
    window = {"strides": case.strides, "padding": "keras-mxnet", "layout": layouts[case.rank - 1]}
    operator = {"max_pool": "pool", "avg_pool": "pool", "conv_transpose": "transposed"}.get(case.op, "conv")
    rule = (case.kernel_size, case.strides, case.dilation)
    if any(not isinstance(entry, str) for entry in padding.by_axis("keras-mxnet", operator, *rule)):
        pads = padding.keras_mxnet_axes(operator, case.size, case.size, *rule)  # the word is refused
        window["padding"] = [(low, max(high, 0)) for low, high in pads]
    if case.op.endswith("pool"):
        window.update({"count_include_pad": True} if case.op == "avg_pool" else {})
        return getattr(mxsame.ops, case.op)(arrays["data"], case.kernel_size, **window)
    if case.op == "conv_transpose":
        window["output_padding"] = case.output_padding
    return getattr(mxsame.ops, case.op)(**arrays, dilation=case.dilation, **window)


def verdict(name, case, data_format):
    """'equal', 'refused' by both, or what is wrong."""
    arrays = cases.arrays(case)
    try:
        symbol, names = theirs(name, case, arrays, data_format)
        values = {names[key]: ordered(key, array, case, data_format) for key, array in arrays.items()}
        out, executor = run(symbol, values, True)
    except (mx.base.MXNetError, RuntimeError):  # the latter from binding
        out = None
    own = {key: mx.nd.array(to_format(array, data_format)) for key, array in arrays.items()}
    for array in own.values():
        array.attach_grad()
    try:
        with mx.autograd.record():
            found = ours(case, own, data_format)
    except ValueError as error:
        if out is None and "keras-mxnet cannot run" in str(error):
            return "refused"
        return f"refused by mxsame only: {error}"
    if out is None:
        return "refused by keras-mxnet only"
    if not close(found.asnumpy(), out):
        return f"outputs differ: {found.shape}, {out.shape}"
    out_grad = to_format(cases.output_gradient(case, from_format(out, data_format).shape), data_format)
    executor.backward(mx.nd.array(out_grad))
    found.backward(mx.nd.array(out_grad))
    for key in arrays:
        gradient = executor.grad_dict[names[key]].asnumpy()
        found_gradient = from_format(own[key].grad.asnumpy(), data_format)
        if not close(ordered(key, found_gradient, case, data_format), gradient):
            return f"gradients of {key} differ"
    return "equal"


def trained():
    """(the model after a few steps, its outputs for the examples)."""
    np.random.seed(0)
    mx.random.seed(0)
    model = old_network.in_keras(keras)
    model.compile(optimizer=keras.optimizers.SGD(lr=0.1, momentum=0.5), loss="categorical_crossentropy")
    data, labels = old_network.examples()
    for _ in range(old_network.STEPS):
        model.train_on_batch(data, labels)
    return model, model.predict(data)


def close(found, expected):
    """Equal to float32 rounding, in units of the root mean square, 1 at least."""
    if found.shape != expected.shape:
        return False
    scale = max(1.0, float(np.sqrt(np.mean(np.square(expected)))))
    return float(np.abs(found - expected).max()) <= TOLERANCE * scale


def table(name, every=1):
    """Verdict -> how many, and the names of those that are neither equal nor refused."""
    count, wrong = collections.Counter(), {}
    for number, case in enumerate(grid(name)):
        if number % every:
            continue
        for data_format in FORMATS:
            found = verdict(name, case, data_format)
            count[found if found in ("equal", "refused") else "wrong"] += 1
            if found not in ("equal", "refused"):
                wrong[case.name, data_format] = found
    return count, wrong


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="every so many cases only")
    parser.add_argument("functions", nargs="*", help="all but the transposed by default")
    arguments = parser.parse_args()
    bad = 0
    for name in arguments.functions or [name for name in FUNCTIONS if name != "conv2d_transpose"]:
        count, wrong = table(name, arguments.every)
        print(
            f"{name:>16}: {count['equal']:5} equal, {count['refused']:5} refused, {count['wrong']:5} wrong", flush=True
        )
        for (case, data_format), found in list(wrong.items())[:20]:
            print(" ", case, data_format, found)
        bad += len(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
