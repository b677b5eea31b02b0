"""Layers against MXNet's own operator with symmetric padding of the same kernel, which is the limit.

Contestants: mxsame with the size known (`mxsame.hybridize`) and unknown (`net.hybridize()`), explicit padding and
then a VALID operator (what most ports do), and every strategy that is exact for the layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, Tuple

import mxsame
from benchmarks.timing import medians
from mxsame._mxnet import mx


@dataclass(frozen=True)
class Layer:
    """One layer on one kind of input."""

    name: str
    kind: str  # "conv" | "depthwise" | "max" | "avg" | "transposed"
    in_channels: int
    size: Tuple[int, ...]
    channels: int
    kernel_size: int
    stride: int
    batch: int = 8

    @property
    def rank(self) -> int:
        return len(self.size)


LAYERS = [
    Layer("stem k3 s2, batch 1", "conv", 3, (224, 224), 32, 3, 2, batch=1),
    Layer("stem k3 s2", "conv", 3, (224, 224), 32, 3, 2),
    Layer("stem k7 s2, batch 1", "conv", 3, (224, 224), 64, 7, 2, batch=1),
    Layer("stem k7 s2", "conv", 3, (224, 224), 64, 7, 2),
    Layer("conv 64-128 k3 s2", "conv", 64, (112, 112), 128, 3, 2),
    Layer("conv 128-128 k3 s2, batch 1", "conv", 128, (56, 56), 128, 3, 2, batch=1),
    Layer("conv 128-128 k3 s2", "conv", 128, (56, 56), 128, 3, 2),
    Layer("conv 256-256 k3 s2", "conv", 256, (28, 28), 256, 3, 2),
    Layer("conv 512-512 k3 s2", "conv", 512, (14, 14), 512, 3, 2),
    Layer("conv 64-64 k3 s1", "conv", 64, (56, 56), 64, 3, 1),
    Layer("conv 128-256 k1 s2", "conv", 128, (56, 56), 256, 1, 2),
    Layer("conv 64-64 k2 s1", "conv", 64, (56, 56), 64, 2, 1),
    Layer("conv 64-64 k4 s1", "conv", 64, (56, 56), 64, 4, 1),
    Layer("conv 16-8 k3 s2 (autoencoder)", "conv", 16, (28, 28), 8, 3, 2),
    Layer("depthwise 64 k3 s2", "depthwise", 64, (112, 112), 64, 3, 2),
    Layer("depthwise 64 k3 s2, batch 1", "depthwise", 64, (112, 112), 64, 3, 2, batch=1),
    Layer("depthwise 144 k5 s2", "depthwise", 144, (56, 56), 144, 5, 2),
    Layer("depthwise 144 k3 s2", "depthwise", 144, (56, 56), 144, 3, 2),
    Layer("depthwise 480 k5 s2", "depthwise", 480, (14, 14), 480, 5, 2),
    Layer("max pool 64 k3 s2", "max", 64, (112, 112), 64, 3, 2),
    Layer("max pool 128 k3 s2", "max", 128, (73, 74), 128, 3, 2),
    Layer("max pool 64 k2 s2", "max", 64, (55, 55), 64, 2, 2),
    Layer("avg pool 192 k3 s1", "avg", 192, (28, 28), 192, 3, 1),
    Layer("avg pool 64 k2 s2", "avg", 64, (55, 55), 64, 2, 2),
    Layer("audio conv 1-64 k10 s5", "conv", 1, (16000,), 64, 10, 5),
    Layer("audio conv 64-64 k8 s4", "conv", 64, (4000,), 64, 8, 4),
    Layer("video conv 3-32 k3 s2", "conv", 3, (16, 56, 56), 32, 3, 2, batch=2),
    Layer("transposed 64-32 k2 s2", "transposed", 64, (28, 28), 32, 2, 2),
    Layer("transposed 64-32 k3 s2", "transposed", 64, (28, 28), 32, 3, 2),
    Layer("transposed 64-32 k4 s2", "transposed", 64, (28, 28), 32, 4, 2),
]

_SUFFIX = {"conv": "Conv{}D", "max": "MaxPool{}D", "avg": "AvgPool{}D", "transposed": "Conv{}DTranspose"}


def block(layer: Layer, module: Any, **more: Any) -> Any:
    """The layer of `mxsame.nn` or `gluon.nn`, initialised."""
    if layer.kind in ("max", "avg"):
        made = getattr(module, _SUFFIX[layer.kind].format(layer.rank))(layer.kernel_size, layer.stride, **more)
    elif layer.kind == "depthwise" and module is mxsame.nn:
        kind = getattr(module, f"DepthwiseConv{layer.rank}D")
        made = kind(layer.kernel_size, layer.stride, in_channels=layer.in_channels, **more)
    else:
        groups = layer.in_channels if layer.kind == "depthwise" else 1
        kind = getattr(module, _SUFFIX.get(layer.kind, "Conv{}D").format(layer.rank))
        more = {**more, "groups": groups, "in_channels": layer.in_channels}
        made = kind(layer.channels, layer.kernel_size, layer.stride, **more)
    made.initialize()
    return made


class Padded(mx.gluon.HybridBlock):
    """Explicit padding with TensorFlow's amounts for one size, then a VALID operator: what most ports do."""

    def __init__(self, layer: Layer, inner: Any):
        super().__init__()
        self.inner = inner
        pads = [mxsame.padding.same_pads(n, layer.kernel_size, layer.stride) for n in layer.size]
        self._flat = layer.rank == 1
        pads += [(0, 0)] * self._flat
        self._widths = (0, 0, 0, 0, *(count for pair in pads for count in pair))
        self._value = -3e38 if layer.kind == "max" else 0

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F.expand_dims(x, -1) if self._flat else x
        x = F.pad(x, mode="constant", constant_value=self._value, pad_width=self._widths)
        return self.inner(F.reshape(x, (0, 0, 0)) if self._flat else x)


def contestants(layer: Layer, strategies: bool) -> Iterator[Tuple[str, Any]]:
    """(name, net) of each, hybridized; the first is the limit."""
    gluon = mx.gluon.nn
    flags = {"static_alloc": True, "static_shape": True}
    symmetric = (layer.kernel_size - 1) // 2 if layer.kernel_size % 2 or layer.stride > 1 else layer.kernel_size // 2
    if layer.kind == "transposed":
        symmetric = max(layer.kernel_size - layer.stride, 0) // 2
    limit = block(layer, gluon, padding=symmetric)
    limit.hybridize(**flags)
    yield "symmetric", limit
    yield "mxsame, size known", mxsame.hybridize(_alone(block(layer, mxsame.nn)), **flags)
    unknown = _alone(block(layer, mxsame.nn))
    unknown.hybridize(**flags)
    yield "mxsame, size unknown", unknown
    if layer.kind != "transposed":
        padded = Padded(layer, block(layer, gluon))
        padded.hybridize(**flags)
        yield "explicit pad", padded
    if strategies:
        orders = {"max": mxsame.plan.MAXIMUM, "avg": mxsame.plan.AVERAGE, "depthwise": mxsame.plan.DEPTHWISE}
        orders["transposed"] = mxsame.plan.TRANSPOSED_STRATEGIES
        for name in orders.get(layer.kind, mxsame.plan.CONVOLUTION):
            yield f"known, {name}", Forced(mxsame.hybridize(_alone(block(layer, mxsame.nn)), **flags), name)
            unknown = _alone(block(layer, mxsame.nn))
            unknown.hybridize(**flags)
            yield f"unknown, {name}", Forced(unknown, name)


class Forced:
    """A net whose graph is built under a forced strategy."""

    def __init__(self, net: Any, strategy: str):
        self._net, self._strategy = net, strategy

    def __call__(self, data: Any) -> Any:
        with mxsame.plan.force(self._strategy):
            return self._net(data)


def _alone(layer: Any) -> Any:
    parent = mx.gluon.nn.HybridSequential()
    parent.add(layer)
    return parent


def _call(net: Any, data: Any, train: bool) -> Callable[[], Any]:
    if not train:
        return lambda: net(data)

    def step() -> None:
        with mx.autograd.record():
            out = net(data)
        out.backward()

    return step


def measure(layer: Layer, train: bool = False, strategies: bool = False, rounds: int = 15) -> Dict[str, float]:
    """Ratio to the limit of each contestant; under "symmetric" the limit's milliseconds."""
    data = mx.nd.random.normal(shape=(layer.batch, layer.in_channels, *layer.size))
    if train:
        data.attach_grad()
    calls = {}
    for name, net in contestants(layer, strategies):
        try:
            net(data).wait_to_read()
        except ValueError as error:
            if "is not exact" not in str(error):
                raise
            continue
        calls[name] = _call(net, data, train)
    times = medians(calls, rounds)
    limit = times["symmetric"]
    return {name: limit * 1e3 if name == "symmetric" else time / limit for name, time in times.items()}


def geometric_mean(values: Any) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")
