"""Calls that mypy accepts, and calls that it must refuse: `mypy` fails if a `type: ignore` here is not needed.

Nothing of it runs. `nox -s lint` checks it with the installed package, too, as a user's program is checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Tuple

import numpy as np

import mxsame
from mxsame import nn, ops, padding, plan, planner
from mxsame.keras import backend, layouts, ops as keras_ops
from mxsame.types import ConvPadding, InputShape, Ints, Layout, Padding


class Block(nn.HybridBlock):
    """A layer of a user's own, with the types of the package's arguments."""

    def __init__(self, channels: int, strides: Ints = 1, padding: ConvPadding = "same", layout: Layout = "NCHW"):
        super().__init__()
        self.conv = nn.Conv2D(channels, 3, strides, padding, layout=layout)
        self.pool = nn.MaxPool2D(2, strides)


def right(data: Any, weight: Any, kernel: np.ndarray[Any, Any], model: Any) -> None:
    nn.Conv2D(64, (3, 5), strides=[2, 1], padding=((1, 2), 3), dilation=2, layout="NHWC", activation="relu")
    nn.Conv1D(8, 3, padding="causal", bias_initializer="ones", weight_initializer=None)
    nn.Conv2DTranspose(8, 3, 2, output_padding=(1, 0), padding="VALID")
    nn.AvgPool3D(pool_size=(1, 2, 2), padding="keras-mxnet", ceil_mode=True, layout="NDHWC")
    nn.SeparableConv2D(8, 3, in_channels=4, depth_multiplier=2, padding=1)
    ops.conv(data, weight, strides=2, padding=((1, 2),), input_size=(9,), kernel_size=3)
    ops.max_pool(data, 2, None, "SAME", layout="NWC")
    low, high = padding.same_pads(224, 3, stride=2)
    size: int = padding.output_size(9, 3, padding=(low, high)) + padding.output_size(9, 3, padding="causal")
    plan.exact_plans([plan.Window(size, 3, 2), plan.Window(None, 3, 1, padding=(0, 1))], "conv")
    planner.Workload("conv", channels=8)
    backend.conv2d_transpose(data, weight, (None, 7, 8, 2), (2, 2), "same", "channels_last")
    backend.conv1d(data, weight, padding="causal")
    keras_ops.max_pool(data, (2, 2), padding="valid", data_format="channels_first")
    weights: np.ndarray[Any, Any] = layouts.to_mxnet(kernel, "conv_transpose", "NHWC")
    layouts.to_keras(weights, "depthwise", depth_multiplier=2)
    net = mxsame.hybridize(Block(8, (2, 1)), static_alloc=True)
    net.pool.hybridize()
    shape: InputShape = [(None, 3, 8, 8), [(1, 4), kernel]]
    mxsame.export(net, Path("net"), (1, 3, 32, 32))
    mxsame.export_onnx(net, "net.onnx", shape, data=[kernel, kernel], input_names=["a", "b"])
    mxsame.deploy(net, kernel, dtype="bfloat16")
    found: mxsame.Audit = mxsame.audit(net, {"data": (1, 3, 8, 8)})
    shifts: List[Tuple[float, ...]] = [layer.accumulated for layer in found.wrong]
    read: mxsame.Network = mxsame.from_keras(
        model, layout="NCHW", custom={"Mine": lambda config, weights: net, "My": "LSTM"}
    )
    mxsame.from_keras(Path("model.h5"), "model.weights.h5", outputs=["conv"], progress=print, padding="keras-mxnet")
    largest: float = max(layer.difference for layer in mxsame.compare(read, {"conv": kernel}, kernel))
    mxsame.export_onnx(
        net, "net.onnx", custom={"gamma": lambda write, attributes, x: x, Block: lambda write, block, x: x}
    )
    layers: int = mxsame.to_keras(net, "net.keras", (1, 3, 8, 8), layout="NCHW").layers
    mxsame.to_keras_weights(read, Path("net.weights.h5"), custom={"Mine": lambda block: [kernel]})
    mxsame.plot_padding(len(shifts), layers, compare_with="symmetric", padding=(1, int(largest)))


def wrong(data: Any, weight: Any, kernel: np.ndarray[Any, Any], net: nn.HybridBlock, text: str) -> None:
    nn.Conv2D(4, "x", padding=3.5)  # type: ignore[arg-type]
    nn.Conv2D(4, 3, strides="2")  # type: ignore[arg-type]
    nn.Conv2D(4, 3, padding=3.5)  # type: ignore[arg-type]
    nn.Conv2D(4, 3, padding="sme")  # type: ignore[arg-type]
    nn.Conv2D(4, 3, layout="NWHC")  # type: ignore[arg-type]
    nn.Conv2D(4, 3, activation="gelu")  # type: ignore[arg-type]
    nn.Conv2D(4, 3, stride=2)  # type: ignore[call-arg]
    nn.Conv2D(4)  # type: ignore[call-arg]
    nn.Conv2DTranspose(4, 3, padding="causal")  # type: ignore[arg-type]
    nn.MaxPool2D(2, ceil_mode="yes")  # type: ignore[arg-type]
    nn.AvgPool1D(padding=[("1", 2)])  # type: ignore[list-item]
    ops.conv(data, weight, strides=1.5)  # type: ignore[arg-type]
    ops.avg_pool(data, 2, layout="CHWN")  # type: ignore[arg-type]
    padding.same_pads(9, 3, strides=2)  # type: ignore[call-arg]
    padding.output_size(9, 3, padding="sme")  # type: ignore[arg-type]
    plan.Window("9", 3, 1)  # type: ignore[arg-type]
    backend.conv2d(data, weight, padding="causal")  # type: ignore[arg-type]
    backend.pool2d(data, 2, pool_mode="mean")  # type: ignore[arg-type]
    backend.set_image_data_format("NCHW")  # type: ignore[arg-type]
    keras_ops.conv(data, weight, data_format="channel_last")  # type: ignore[arg-type]
    layouts.to_mxnet(kernel, "transposed")  # type: ignore[arg-type]
    number: int = layouts.to_mxnet(kernel, "conv")  # type: ignore[assignment]
    mxsame.to_keras(net, 3, (1, 3, 8, 8))  # type: ignore[arg-type]
    mxsame.to_keras(net, "net.keras", "1x3x8x8")  # type: ignore[arg-type]
    mxsame.to_keras(net, "net.keras", layout="channels_last")  # type: ignore[arg-type]
    mxsame.export(net, None)  # type: ignore[arg-type]
    mxsame.export_onnx(net, "net.onnx", 32)  # type: ignore[arg-type]
    mxsame.export_onnx(net, "net.onnx", data="ones")  # type: ignore[arg-type]
    mxsame.export_onnx(net, "net.onnx", custom={"gamma": "Gamma"})  # type: ignore[dict-item]
    mxsame.deploy(net, dtype="bf16")  # type: ignore[arg-type]
    mxsame.audit(net, shape=(1, 3, 8, 8))  # type: ignore[call-arg]
    mxsame.from_keras(3)  # type: ignore[arg-type]
    mxsame.from_keras("model.h5", layout="NCHV")  # type: ignore[arg-type]
    mxsame.from_keras("model.h5", custom={"Mine": 3})  # type: ignore[dict-item]
    mxsame.plot_padding(9, 3, compare_with="symetric")  # type: ignore[arg-type]
    layers = mxsame.audit(net).wrong[0].layers  # type: ignore[attr-defined]
    size: str = padding.output_size(number, 3)  # type: ignore[assignment]
    pads: Padding = text  # type: ignore[assignment]
    del layers, size, pads
