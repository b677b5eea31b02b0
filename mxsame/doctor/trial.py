"""One step run by MXNet and by NumPy."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np

from mxsame import nn, ops, padding
from mxsame._mxnet import mx
from mxsame.deploy import deploy
from mxsame.doctor import reference
from mxsame.doctor.steps import SIZE, Step
from mxsame.plan import force

BATCH, CHANNELS = 2, 8


def difference(step: Step, kind: str, number: int) -> float:
    """The largest difference of outputs, and of gradients where the step has them, to NumPy's: as a part of the largest
    value of each, and infinite for other shapes and for what is no number."""
    random = np.random.RandomState(0)
    arrays = {"data": random.randn(BATCH, CHANNELS, *[step.window.size or SIZE] * 2)}
    if step.operator in ("conv", "transposed"):
        arrays["weight"] = random.randn(CHANNELS, CHANNELS // step.groups, *[step.window.kernel_size] * 2)
    want, gradients = _wanted(step, arrays)
    back = random.randn(*want.shape)
    got, found = _computed(step, mx.Context(kind, number), arrays, back if step.gradients else None)
    pairs = [(got, want)]
    if step.gradients:
        pairs += [(found[name], value) for name, value in gradients(back).items()]
    return max(_apart(*pair) for pair in pairs)


def deployed_difference(kind: str, number: int) -> float:
    """The same of a net as `mxsame.deploy` makes it; on a GPU of cuDNN's operators alone, which every GPU runs."""
    random = np.random.RandomState(0)
    data, weight = random.randn(BATCH, CHANNELS, SIZE, SIZE), random.randn(CHANNELS, CHANNELS, 3, 3)
    net = mx.gluon.nn.HybridSequential()
    net.add(nn.Conv2D(CHANNELS, 3, strides=2, activation="relu", in_channels=CHANNELS), nn.MaxPool2D(3, 2))
    net.initialize(ctx=mx.cpu())
    net[0].weight.set_data(mx.nd.array(weight, ctx=mx.cpu()))
    context = mx.Context(kind, number)
    fast = deploy(net, data.shape, ctx=context, cudnn_only=kind == "gpu")
    pads = [[padding.same_pads(size, 3, 2)] * 2 for size in (SIZE, SIZE // 2)]
    hidden, _ = reference.convolution(data, weight, 2, pads[0])
    want, _ = reference.pooling(np.maximum(hidden, 0), "max", 3, 2, pads[1])
    return _apart(fast(mx.nd.array(data, ctx=context, dtype="float32")).asnumpy(), want)


def _wanted(step: Step, arrays: Dict[str, np.ndarray]) -> reference.Values:
    window, data = step.window, arrays["data"]
    kernel_size, stride = window.kernel_size, window.stride
    if step.operator == "transposed":
        return reference.transposed(data, arrays["weight"], stride, [padding.transposed_cuts(kernel_size, stride)] * 2)
    pads = [window.pads(data.shape[2])] * 2
    if step.operator in ("max", "avg"):
        return reference.pooling(data, step.operator, kernel_size, stride, pads)
    weight = arrays["weight"]
    if step.groups > 1:  # a depthwise kernel is a dense one with zeros
        weight = weight * np.eye(CHANNELS)[:, :, None, None]
    return reference.convolution(data, weight, stride, pads)


def _computed(step: Step, context: Any, arrays: Dict[str, np.ndarray], back: Any) -> Tuple[np.ndarray, dict]:
    """(outputs, gradients by name) of the step's graph on a device."""
    shapes = {name: array.shape for name, array in arrays.items() if name != "data" or step.window.size is not None}
    inputs = [mx.sym.var(name, shape=shapes.get(name)) for name in arrays]
    kernel_size, stride = (step.window.kernel_size,) * 2, step.window.stride
    with force(step.strategy):
        if step.operator == "conv":
            graph = ops.conv(*inputs, channels=CHANNELS, kernel_size=kernel_size, strides=stride, groups=step.groups)
        elif step.operator == "transposed":
            graph = ops.conv_transpose(*inputs, channels=CHANNELS, kernel_size=kernel_size, strides=stride)
        else:
            pool = ops.max_pool if step.operator == "max" else ops.avg_pool
            graph = pool(*inputs, kernel_size, stride)
    values = {name: mx.nd.array(array, ctx=context, dtype="float32") for name, array in arrays.items()}
    written = {} if back is None else {name: mx.nd.zeros_like(value) for name, value in values.items()}
    executor = graph.bind(context, values, written)
    (out,) = executor.forward(is_train=back is not None)
    if back is not None:
        executor.backward(mx.nd.array(back, ctx=context, dtype="float32"))
    return out.asnumpy(), {name: gradient.asnumpy() for name, gradient in written.items()}


def _apart(got: np.ndarray, want: np.ndarray) -> float:
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - want).max() / np.abs(want).max())
