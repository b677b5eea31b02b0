"""The demo's networks, written down once and built twice: with mxsame.nn, and with gluon.nn padded symmetrically."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np

from mxsame import _gluon, nn, padding
from mxsame._mxnet import mx
from mxsame.demo import symmetric
from mxsame.keras import layouts


@dataclass(frozen=True)
class Layer:
    """One layer; the same in both axes, so one number each for kernel and stride."""

    name: str
    kind: str  # conv, norm, relu, dropout, pool, up
    channels: int | None = None  # of a convolution's output
    kernel_size: int = 1
    stride: int = 1
    padding: str = "same"
    activation: str | None = None

    @property
    def pads(self) -> bool:
        """Whether padding means anything to it."""
        return self.kind in ("conv", "pool")

    def output_size(self, size: int) -> int:
        if self.kind == "up":
            return 2 * size
        return padding.output_size(size, self.kernel_size, self.stride, padding=self.padding) if self.pads else size


@dataclass(frozen=True)
class Network:
    """Layers in a row; `size` and `channels` are those of the input."""

    name: str
    title: str
    size: int
    channels: int
    layers: tuple[Layer, ...]

    def steps(self) -> Iterator[tuple[Layer, int, int]]:
        """(layer, input size, input channels) for every layer."""
        size, channels = self.size, self.channels
        for layer in self.layers:
            yield layer, size, channels
            size, channels = layer.output_size(size), layer.channels or channels


NETWORKS = (
    Network(
        "stem",
        "Stem: how most image networks begin, on the photograph itself",
        224,
        3,
        (Layer("conv", "conv", 6, kernel_size=7, stride=2), Layer("pool", "pool", kernel_size=3, stride=2)),
    ),
    Network(
        "sequential",
        "Sequential: a Keras classic, on the photograph at 32x32",
        32,
        3,
        (
            Layer("conv1", "conv", 64, kernel_size=3, padding="valid"),
            Layer("norm1", "norm"),
            Layer("relu1", "relu"),
            Layer("dropout", "dropout"),
            Layer("conv2", "conv", 64, kernel_size=3),
            Layer("norm2", "norm"),
            Layer("relu2", "relu"),
            Layer("pool", "pool", kernel_size=2, stride=2),
            Layer("conv3", "conv", 128, kernel_size=3),
        ),
    ),
    Network(
        "autoencoder",
        "Autoencoder: 28x28 grey to a code of 128 and back, trained on the photograph",
        28,
        1,
        (
            Layer("conv1", "conv", 16, kernel_size=3, activation="relu"),
            Layer("pool1", "pool", kernel_size=2, stride=2),
            Layer("conv2", "conv", 8, kernel_size=3, activation="relu"),
            Layer("pool2", "pool", kernel_size=2, stride=2),
            Layer("conv3", "conv", 8, kernel_size=3, activation="relu"),
            Layer("code", "pool", kernel_size=2, stride=2),
            Layer("conv4", "conv", 8, kernel_size=3, activation="relu"),
            Layer("up1", "up"),
            Layer("conv5", "conv", 8, kernel_size=3, activation="relu"),
            Layer("up2", "up"),
            Layer("conv6", "conv", 16, kernel_size=3, padding="valid", activation="relu"),
            Layer("up3", "up"),
            Layer("conv7", "conv", 1, kernel_size=3, activation="sigmoid"),
        ),
    ),
)

GLUON_NAMES = {"kernel": "weight", **{name: name for name in ("bias", "gamma", "beta")}}
GLUON_NAMES.update(moving_mean="running_mean", moving_variance="running_var")


class UpSampling(mx.gluon.HybridBlock):
    """Every element twice along each axis."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.UpSampling(x, scale=2, sample_type="nearest")


class EveryOutput(mx.gluon.HybridBlock):
    """Children in a row; returns the outputs of all of them, so that one hybridized graph gives every layer's."""

    def hybrid_forward(self, F: Any, x: Any) -> list[Any]:
        outputs = []
        for child in _gluon.children(self):
            x = child(x)
            outputs.append(x)
        return outputs


def built(layer: Layer, size: int, in_channels: int, symmetrically: bool) -> Any:
    """The layer of `mxsame.nn`, which nobody tells the input size; or as it is usually brought to MXNet, of `gluon.nn`
    with the smallest equal pads that give the right shape."""
    module: Any = mx.gluon.nn if symmetrically else nn
    pads: Any = layer.padding
    if symmetrically and layer.pads:
        pads = 0 if layer.padding == "valid" else symmetric.pad(size, layer.kernel_size, layer.stride)
    if layer.kind == "conv":
        more = {"activation": layer.activation, "in_channels": in_channels}
        return module.Conv2D(layer.channels, layer.kernel_size, layer.stride, padding=pads, **more)
    if layer.kind == "pool":
        return module.MaxPool2D(layer.kernel_size, layer.stride, padding=pads)
    if layer.kind == "norm":
        return mx.gluon.nn.BatchNorm(epsilon=1e-3, in_channels=in_channels)  # Keras's default; Gluon's is 1e-5
    if layer.kind == "dropout":
        return mx.gluon.nn.Dropout(0.25)
    return UpSampling() if layer.kind == "up" else mx.gluon.nn.Activation("relu")


def build(network: Network, weights: dict[str, dict[str, np.ndarray]], symmetrically: bool = False) -> EveryOutput:
    """The network, hybridized. Weights are as tf.keras stores them."""
    net = EveryOutput()
    for layer, size, in_channels in network.steps():
        block = built(layer, size, in_channels, symmetrically)
        net.register_child(block, layer.name)
        block.initialize()
        for name, value in weights.get(layer.name, {}).items():
            if name == "kernel":
                value = layouts.to_mxnet(value, "conv")
            getattr(block, GLUON_NAMES[name]).set_data(mx.nd.array(value))
    net.hybridize()
    return net


def run(net: EveryOutput, image: np.ndarray) -> list[np.ndarray]:
    """Every layer's output for one (H, W, C) image, each as (H, W, C)."""
    data = mx.nd.array(image.transpose(2, 0, 1)[None])
    return [output.asnumpy()[0].transpose(1, 2, 0) for output in net(data)]
