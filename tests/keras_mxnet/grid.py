"""The grid of layers: n 5..12, k 1..5, strides 1..3, dilation 1..2, "same" and "valid", both data formats.

Axes differ: on the second and third the numbers are shifted within their ranges. Keras refuses strides together with
dilation. The reference is tests/oracle.py, in float64.
"""

import cases
import keras
import mxnet as mx
import numpy as np
import oracle
from keras import layers

FORMATS = ("channels_first", "channels_last")
TOLERANCE = 1e-4
CONVOLUTIONS = {
    **{f"Conv{rank}D": ("conv", rank) for rank in (1, 2, 3)},
    "DepthwiseConv2D": ("depthwise_conv", 2),
    **{f"SeparableConv{rank}D": ("separable_conv", rank) for rank in (1, 2)},
    **{f"Conv{rank}DTranspose": ("conv_transpose", rank) for rank in (2, 3)},
}
POOLS = {
    f"{kind}Pooling{rank}D": (op, rank)
    for kind, op in (("Max", "max_pool"), ("Average", "avg_pool"))
    for rank in (1, 2, 3)
}
LAYERS = {**CONVOLUTIONS, **POOLS}


def shifted(value, first, last, rank):
    """One value per axis, cyclic within the range."""
    return tuple(first + (value - first + axis) % (last - first + 1) for axis in range(rank))


def grid(name):
    """The cases of a layer that the rules allow."""
    op, rank = LAYERS[name]
    dilated = [] if op in ("max_pool", "avg_pool") or name == "Conv3DTranspose" else [(1, 2)]
    paddings = ("same", "valid", "causal") if name == "Conv1D" else ("same", "valid")
    for n in range(5, 13):
        for k in range(1, 6):
            for s, d in [(1, 1), (2, 1), (3, 1), *dilated]:
                for padding in paddings:
                    strides = (1,) * rank if d > 1 else shifted(s, 1, 3, rank)
                    window = (shifted(n, 5, 12, rank), shifted(k, 1, 5, rank), strides, padding, (d,) * rank)
                    more = {"in_channels": 2, "channels": 3, "depth_multiplier": 1 + (n + k) % 2, "batch": 1 + k % 2}
                    case = cases.Case(op, *window, **more)
                    if oracle.is_legal(case):
                        yield case


def layer_of(name, case, data_format):
    """The Keras layer."""
    arguments = {"strides": case.strides, "padding": case.padding, "data_format": data_format}
    if name in POOLS:
        return getattr(layers, name)(case.kernel_size, **arguments)
    if name != "Conv3DTranspose":
        arguments["dilation_rate"] = case.dilation
    if case.op in ("depthwise_conv", "separable_conv"):
        arguments["depth_multiplier"] = case.depth_multiplier
    filters = () if case.op == "depthwise_conv" else (case.channels,)
    return getattr(layers, name)(*filters, case.kernel_size, **arguments)


def to_format(array, data_format):
    """(N, C, *size) in the data format."""
    return np.moveaxis(array, 1, -1) if data_format == "channels_last" else array


def from_format(array, data_format):
    """The way back."""
    return np.moveaxis(array, -1, 1) if data_format == "channels_last" else array


def to_kernel(name, array, case, data_format):
    """An array of `cases.arrays` as keras-mxnet stores it."""
    if name == "bias":
        return array
    rank = case.rank
    if name == "depthwise_weight" or case.op == "depthwise_conv":
        array = array.reshape(case.in_channels, case.depth_multiplier, *case.kernel_size)  # (C, m, *k)
        order = (0, 1)
    else:
        order = (1, 0)
    return array if data_format == "channels_first" else array.transpose(*range(2, rank + 2), *order)


def mistakes(name, case, data_format, gradients=True, dynamic_shape=False):
    """Sentences on what is wrong with a layer: with its output in both learning phases, and its gradients."""
    arrays = cases.arrays(case)
    size = (None,) * case.rank if dynamic_shape else case.size
    try:
        x = keras.Input((case.in_channels, *size) if data_format == "channels_first" else (*size, case.in_channels))
        layer = layer_of(name, case, data_format)
        y = layer(x)
    except Exception as error:
        return [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
    variables = dict(zip(arrays, [x.name, *(weight.name for weight in layer.weights)]))
    values = {variables["data"]: to_format(arrays["data"], data_format)}
    for key in [key for key in arrays if key != "data"]:
        values[variables[key]] = to_kernel(key, arrays[key], case, data_format)
    expected, wrong = oracle.forward(case, arrays), []
    try:
        out, executor = run(y._pred_sym, values)
        wrong += differences("predict", from_format(out, data_format), expected)
        out, executor = run(y._train_sym, values, gradients)
        wrong += differences("train", from_format(out, data_format), expected)
        if gradients and not wrong:
            out_grad = cases.output_gradient(case, expected.shape)
            executor.backward(mx.nd.array(to_format(out_grad, data_format)))
            for key, gradient in oracle.gradients(case, arrays, out_grad).items():
                gradient_array = executor.grad_dict[variables[key]].asnumpy()
                is_data = key == "data"
                want = to_format(gradient, data_format) if is_data else to_kernel(key, gradient, case, data_format)
                wrong += differences(f"gradient of {key}", gradient_array, want)
    except mx.base.MXNetError as error:
        wrong.append(f"MXNetError: {str(error).splitlines()[0]}")
    return wrong


def run(symbol, values, gradients=None):
    """(output, executor) of a graph; `gradients`: whether to compute them; None for prediction."""
    shapes = {name: array.shape for name, array in values.items()}
    executor = symbol.simple_bind(mx.cpu(), grad_req="write" if gradients else "null", **shapes)
    for name, array in values.items():
        executor.arg_dict[name][:] = array
    return executor.forward(is_train=gradients is not None)[0].asnumpy(), executor


def differences(what, actual, expected):
    """None or one sentence; the scale is the root mean square of what is expected, 1 at least."""
    if actual.shape != expected.shape:
        return [f"{what} of shape {actual.shape}, not {expected.shape}"]
    scale = max(1.0, float(np.sqrt(np.mean(np.square(expected)))))
    largest = float(np.abs(actual - expected).max()) / scale
    return [] if largest <= TOLERANCE else [f"{what} differs by {largest:.2g}"]
