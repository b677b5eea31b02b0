"""Kits: the layers that a network is built of, in several styles. An architecture uses only their names.

A network is written once, as a function of a kit and a `Tensor`. The kit decides what a convolution with SAME padding
is: mxsame's, MXNet's with symmetric padding of the same output size, or explicit padding and then a VALID operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Tuple

import mxsame
from mxsame import _symmetric, padding
from mxsame._mxnet import mx
from mxsame.bench.layers import LOWEST, Recipe, cropping

gluon = mx.gluon.nn
EPSILON = 1e-3  # of batch norm, as in Keras
LEARNING_RATE, MOMENTUM = 1e-3, 0.9  # of every training step


@dataclass(frozen=True)
class Tensor:
    """A value inside a network; `value` is how the kit refers to it."""

    value: Any
    channels: int
    size: Tuple[int, ...]


class Net(mx.gluon.HybridBlock):
    """Steps in a row; each makes one value from values before it. The last value is the output."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: List[Tuple[Callable, Tuple[int, ...]]] = []

    def append(self, step: Any, inputs: Tuple[int, ...]) -> int:
        """Adds a block, or a function of (F, *values); returns the number of the value that it makes."""
        if isinstance(step, mx.gluon.Block):
            self.register_child(step)
        self._steps.append((step, inputs))
        return len(self._steps)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        values = [x]
        for step, inputs in self._steps:
            arguments = [values[number] for number in inputs]
            values.append(step(*arguments) if isinstance(step, mx.gluon.Block) else step(F, *arguments))
        return values[-1]


class Kit:
    """Layers of MXNet; the subclass decides how those with a window are padded.

    `weighted` has every block with parameters, in the order of the network, so that weights go from style to style.
    """

    def __init__(self, width: float = 1.0):
        self.net, self.width = Net(), width
        self.weighted: List[Any] = []

    def scaled(self, channels: int) -> int:
        """So many channels in a network of full width."""
        return max(8, int(channels * self.width))

    def input(self, channels: int, size: Tuple[int, ...]) -> Tensor:
        return Tensor(0, channels, size)

    def conv(self, x: Tensor, channels: int, kernel_size: int, stride: int = 1, use_bias: bool = False) -> Tensor:
        return self._window(x, "conv", channels, kernel_size, stride, use_bias=use_bias)

    def depthwise(self, x: Tensor, kernel_size: int, stride: int = 1) -> Tensor:
        return self._window(x, "depthwise", x.channels, kernel_size, stride, use_bias=False)

    def max_pool(self, x: Tensor, kernel_size: int, stride: int) -> Tensor:
        return self._window(x, "max", x.channels, kernel_size, stride)

    def transposed(self, x: Tensor, channels: int, kernel_size: int, stride: int) -> Tensor:
        size = tuple(n * stride for n in x.size)
        step = self.transposed_window(channels, kernel_size, stride, in_channels=x.channels)
        return self._step(step, x, channels=channels, size=size)

    def norm(self, x: Tensor) -> Tensor:
        return self._step(gluon.BatchNorm(epsilon=EPSILON, in_channels=x.channels), x)

    def dense(self, x: Tensor, units: int) -> Tensor:
        return self._step(gluon.Dense(units, in_units=x.channels), x, channels=units, size=())

    def relu(self, x: Tensor) -> Tensor:
        return self._step(lambda F, x: F.Activation(x, act_type="relu"), x)

    def relu6(self, x: Tensor) -> Tensor:
        return self._step(lambda F, x: F.clip(x, 0, 6), x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return self._step(lambda F, x: F.sigmoid(x), x)

    def swish(self, x: Tensor) -> Tensor:
        return self._step(lambda F, x: x * F.sigmoid(x), x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._step(lambda F, x, y: x + y, x, y)

    def scale(self, x: Tensor, by: Tensor) -> Tensor:
        """Channels times one number each."""
        return self._step(lambda F, x, by: F.broadcast_mul(x, by), x, by)

    def global_pool(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, 1, 1)."""
        return self._step(lambda F, x: F.Pooling(x, pool_type="avg", global_pool=True), x, size=(1, 1))

    def _window(self, x: Tensor, kind: str, channels: int, kernel_size: int, stride: int, **more: Any) -> Tensor:
        size = tuple(padding.output_size(n, kernel_size, stride) for n in x.size)
        return self._step(self.window(x, kind, channels, kernel_size, stride, more), x, channels=channels, size=size)

    def _step(self, step: Any, x: Tensor, *others: Tensor, **changed: Any) -> Tensor:
        if isinstance(step, mx.gluon.Block) and step.collect_params().keys():
            self.weighted.append(step)
        value = self.net.append(step, tuple(tensor.value for tensor in (x, *others)))
        return Tensor(value, changed.get("channels", x.channels), changed.get("size", x.size))

    def window(self, x: Tensor, kind: str, channels: int, kernel_size: int, stride: int, more: dict) -> Any:
        """A block for one convolution, depthwise convolution or max pool."""
        raise NotImplementedError

    def transposed_window(self, channels: int, kernel_size: int, stride: int, **more: Any) -> Any:
        raise NotImplementedError


class Same(Kit):
    """mxsame.nn; no layer is given its size."""

    def window(self, x: Tensor, kind: str, channels: int, kernel_size: int, stride: int, more: dict) -> Any:
        if kind == "max":
            return mxsame.nn.MaxPool2D(kernel_size, stride)
        if kind == "depthwise":
            return mxsame.nn.DepthwiseConv2D(kernel_size, stride, in_channels=x.channels, **more)
        return mxsame.nn.Conv2D(channels, kernel_size, stride, in_channels=x.channels, **more)

    def transposed_window(self, channels: int, kernel_size: int, stride: int, **more: Any) -> Any:
        return mxsame.nn.Conv2DTranspose(channels, kernel_size, stride, **more)


class Symmetric(Kit):
    """gluon.nn with the pad, the same at both ends, that gives SAME's output size: other values, and the baseline."""

    def window(self, x: Tensor, kind: str, channels: int, kernel_size: int, stride: int, more: dict) -> Any:
        pads = tuple(_symmetric.pad(n, kernel_size, stride) for n in x.size)
        return gluon_window(x, kind, channels, kernel_size, stride, pads, more)

    def transposed_window(self, channels: int, kernel_size: int, stride: int, **more: Any) -> Any:
        return gluon.Conv2DTranspose(channels, kernel_size, stride, *_symmetric.cut(kernel_size, stride), **more)


class Explicit(Kit):
    """The operator's own pad if both ends are alike; else the pad operator with TensorFlow's amounts, then VALID."""

    def window(self, x: Tensor, kind: str, channels: int, kernel_size: int, stride: int, more: dict) -> Any:
        pads = [padding.same_pads(n, kernel_size, stride) for n in x.size]
        if all(low == high for low, high in pads):
            return gluon_window(x, kind, channels, kernel_size, stride, tuple(low for low, _ in pads), more)
        valid = gluon_window(x, kind, channels, kernel_size, stride, 0, more)
        return Recipe(valid, pads, LOWEST if kind == "max" else 0)

    def transposed_window(self, channels: int, kernel_size: int, stride: int, **more: Any) -> Any:
        crop = padding.transposed_cuts(kernel_size, stride)
        whole = gluon.Conv2DTranspose(channels, kernel_size, stride, **more)
        return Recipe(whole, keep=cropping([crop, crop])) if any(crop) else whole


STYLES = {"mxsame": Same, "symmetric": Symmetric, "explicit pad": Explicit}


def gluon_window(x: Tensor, kind: str, channels: int, kernel_size: int, stride: int, pads: Any, more: dict) -> Any:
    """A layer of gluon.nn with these pads."""
    if kind == "max":
        return gluon.MaxPool2D(kernel_size, stride, padding=pads)
    groups = x.channels if kind == "depthwise" else 1
    return gluon.Conv2D(channels, kernel_size, stride, padding=pads, groups=groups, in_channels=x.channels, **more)


def copy_weights(source: Kit, target: Kit) -> None:
    """Of all layers, in order."""
    for ours, theirs in zip(source.weighted, target.weighted):
        for one, other in zip(ours.collect_params().values(), theirs.collect_params().values()):
            other.set_data(one.data())
