"""Kits: the layers that a network is built of, in several styles. An architecture uses only their names.

A network is written once, as a function of a kit and a `Tensor`. The kit decides what a convolution with SAME padding
is: mxsame's, MXNet's with symmetric padding of the same output size, or explicit padding and then a VALID operator.
With padding="valid" it is the same in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Tuple, Union

import mxsame
from benchmarks.variants import LOWEST, Recipe, cropping, symmetric_crop
from mxsame._mxnet import mx
from mxsame.demo import symmetric_pad
from mxsame.padding import output_size, resolve_pads, transposed_crops

gluon = mx.gluon.nn
EPSILON = 1e-3  # of batch norm, as in Keras
LEARNING_RATE, MOMENTUM = 1e-3, 0.9  # of every training step
POOLS = {"max": "MaxPool2D", "avg": "AvgPool2D"}  # the class in `mxsame.nn` and in `gluon.nn`
KernelSize = Union[int, Tuple[int, int]]  # one number for both axes, or one for each


@dataclass(frozen=True)
class Tensor:
    """A value inside a network; `value` is how the kit refers to it."""

    value: Any
    channels: int
    size: Tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A convolution, depthwise convolution or pooling layer, before a style decides how it is padded."""

    kind: str  # "conv" | "depthwise" | "max" | "avg"
    x: Tensor
    channels: int
    kernel_size: KernelSize
    stride: int
    padding: str  # "same" | "valid"
    use_bias: bool = False

    @property
    def axes(self) -> List[Tuple[int, int, int]]:
        """(size, kernel size, stride) of each."""
        kernel = self.kernel_size if isinstance(self.kernel_size, tuple) else (self.kernel_size,) * 2
        return [(n, k, self.stride) for n, k in zip(self.x.size, kernel)]

    @property
    def outputs(self) -> Tuple[int, ...]:
        """The size of the output."""
        return tuple(output_size(*axis, padding=self.padding) for axis in self.axes)


class Net(mx.gluon.HybridBlock):
    """Steps in a row; each computes one value from earlier values. The last value is the output."""

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

    def conv(
        self,
        x: Tensor,
        channels: int,
        kernel_size: KernelSize,
        stride: int = 1,
        use_bias: bool = False,
        padding: str = "same",
    ) -> Tensor:
        return self._window(Window("conv", x, channels, kernel_size, stride, padding, use_bias))

    def depthwise(self, x: Tensor, kernel_size: KernelSize, stride: int = 1) -> Tensor:
        return self._window(Window("depthwise", x, x.channels, kernel_size, stride, "same"))

    def max_pool(self, x: Tensor, kernel_size: KernelSize, stride: int, padding: str = "same") -> Tensor:
        return self._window(Window("max", x, x.channels, kernel_size, stride, padding))

    def avg_pool(self, x: Tensor, kernel_size: KernelSize, stride: int, padding: str = "same") -> Tensor:
        """Padding does not count."""
        return self._window(Window("avg", x, x.channels, kernel_size, stride, padding))

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

    def relu6(self, x: Tensor) -> Tensor:  # trains faster than F.clip; the slice is as in mxsame.port.activations
        return self._step(lambda F, x: F.Activation(F.minimum(F.slice_axis(x, 0, 0, None), 6), act_type="relu"), x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return self._step(lambda F, x: F.Activation(x, act_type="sigmoid"), x)

    def swish(self, x: Tensor) -> Tensor:
        return self._step(lambda F, x: x * F.Activation(x, act_type="sigmoid"), x)  # oneDNN has no F.sigmoid

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._step(lambda F, x, y: x + y, x, y)

    def concat(self, *parts: Tensor) -> Tensor:
        """The channels of all, one after the other."""
        if len({part.size for part in parts}) > 1:
            raise ValueError(f"parts must have one size; received sizes={[part.size for part in parts]}")
        channels = sum(part.channels for part in parts)
        return self._step(lambda F, *parts: F.concat(*parts, dim=1), *parts, channels=channels)

    def scale(self, x: Tensor, by: Tensor) -> Tensor:
        """Channels times one number each."""
        return self._step(lambda F, x, by: F.broadcast_mul(x, by), x, by)

    def global_pool(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, 1, 1)."""
        return self._step(lambda F, x: F.Pooling(x, pool_type="avg", global_pool=True), x, size=(1, 1))

    def _window(self, window: Window) -> Tensor:
        return self._step(self.window(window), window.x, channels=window.channels, size=window.outputs)

    def _step(self, step: Any, x: Tensor, *others: Tensor, **changed: Any) -> Tensor:
        if isinstance(step, mx.gluon.Block) and step.collect_params().keys():
            self.weighted.append(step)
        value = self.net.append(step, tuple(tensor.value for tensor in (x, *others)))
        return Tensor(value, changed.get("channels", x.channels), changed.get("size", x.size))

    def window(self, window: Window) -> Any:
        """A block for it."""
        raise NotImplementedError

    def transposed_window(self, channels: int, kernel_size: int, stride: int, **more: Any) -> Any:
        raise NotImplementedError


class Same(Kit):
    """mxsame.nn; no layer is given its size."""

    def window(self, window: Window) -> Any:
        given = {"strides": window.stride, "padding": window.padding}
        if window.kind in POOLS:
            return getattr(mxsame.nn, POOLS[window.kind])(window.kernel_size, **given)
        given.update(in_channels=window.x.channels, use_bias=window.use_bias)
        if window.kind == "depthwise":
            return mxsame.nn.DepthwiseConv2D(window.kernel_size, **given)
        return mxsame.nn.Conv2D(window.channels, window.kernel_size, **given)

    def transposed_window(self, channels: int, kernel_size: int, stride: int, **more: Any) -> Any:
        return mxsame.nn.Conv2DTranspose(channels, kernel_size, stride, **more)


class Symmetric(Kit):
    """gluon.nn with the pad, the same at both ends, that gives SAME's output size: other values, and the baseline."""

    def window(self, window: Window) -> Any:
        return gluon_window(window, [symmetric_pad(*axis) if window.padding == "same" else 0 for axis in window.axes])

    def transposed_window(self, channels: int, kernel_size: int, stride: int, **more: Any) -> Any:
        return gluon.Conv2DTranspose(channels, kernel_size, stride, *symmetric_crop(kernel_size, stride), **more)


class Explicit(Kit):
    """The operator's own pad if both ends are alike; else the pad operator with TensorFlow's amounts, then VALID, which
    is inexact for an average: what was added counts."""

    def window(self, window: Window) -> Any:
        pads = [resolve_pads(*axis, padding=window.padding) for axis in window.axes]
        if all(low == high for low, high in pads):
            return gluon_window(window, [low for low, _ in pads])
        return Recipe(gluon_window(window, [0] * len(pads)), pads, LOWEST if window.kind == "max" else 0)

    def transposed_window(self, channels: int, kernel_size: int, stride: int, **more: Any) -> Any:
        low, high = transposed_crops(kernel_size, stride)
        if low == high:
            return gluon.Conv2DTranspose(channels, kernel_size, stride, padding=low, **more)
        whole = gluon.Conv2DTranspose(channels, kernel_size, stride, **more)
        return Recipe(whole, keep=cropping([(low, high)] * 2))


STYLES = {"mxsame": Same, "symmetric": Symmetric, "explicit pad": Explicit}


def gluon_window(window: Window, pads: List[int]) -> Any:
    """A layer of gluon.nn with these pads, one for each axis."""
    given = {"strides": window.stride, "padding": tuple(pads)}
    if window.kind in POOLS:
        more = {"count_include_pad": False} if window.kind == "avg" else {}
        return getattr(gluon, POOLS[window.kind])(window.kernel_size, **given, **more)
    given.update(in_channels=window.x.channels, use_bias=window.use_bias)
    groups = window.x.channels if window.kind == "depthwise" else 1
    return gluon.Conv2D(window.channels, window.kernel_size, groups=groups, **given)


def copy_weights(source: Kit, target: Kit) -> None:
    """Of all layers, in order."""
    for ours, theirs in zip(source.weighted, target.weighted):
        for one, other in zip(ours.collect_params().values(), theirs.collect_params().values()):
            other.set_data(one.data())
