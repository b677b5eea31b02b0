"""Layers against MXNet's own operator with symmetric padding of the same kernel, which is the limit.

Contestants: mxsame with the size known (`mxsame.hybridize`) and unknown (`net.hybridize()`), and what others do (see
`benchmarks/recipes.py`). The planner against the best of its plans has a table of its own, `benchmarks/planner.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import mxsame
from benchmarks import recipes, results
from benchmarks.kits import symmetric_cut, symmetric_pad
from mxsame import padding
from mxsame._mxnet import mx
from mxsame._timing import measure as timed

FLAGS = {"static_alloc": True, "static_shape": True}


@dataclass(frozen=True)
class Layer:
    """One layer on one kind of input."""

    name: str
    kind: str  # "conv" | "depthwise" | "max" | "avg" | "transposed"
    in_channels: int
    size: Tuple[int, ...]
    channels: int
    kernel_size: Union[int, Tuple[int, ...]]
    stride: int
    batch: int = 8

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def shape(self) -> Tuple[int, ...]:
        return (self.batch, self.in_channels, *self.size)

    @property
    def windows(self) -> List[Tuple[int, int, int]]:
        """(size, kernel, stride) of each axis."""
        kernels = self.kernel_size if isinstance(self.kernel_size, tuple) else (self.kernel_size,) * self.rank
        return [(n, k, self.stride) for n, k in zip(self.size, kernels)]

    @property
    def odd(self) -> bool:
        """Whether some axis is padded, or cut, by an odd amount."""
        if self.kind == "transposed":
            return any(sum(padding.transposed_cuts(k, s)) % 2 for _, k, s in self.windows)
        return any(sum(padding.same_pads(*window)) % 2 for window in self.windows)


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
    Layer("conv 192-192 k1x7 s1 (Inception)", "conv", 192, (17, 17), 192, (1, 7), 1),
    Layer("conv 64-64 k2 s1", "conv", 64, (56, 56), 64, 2, 1),
    Layer("conv 64-64 k4 s1", "conv", 64, (56, 56), 64, 4, 1),
    Layer("conv 16-8 k3 s2 (autoencoder)", "conv", 16, (28, 28), 8, 3, 2),
    Layer("depthwise 64 k3 s2", "depthwise", 64, (112, 112), 64, 3, 2),
    Layer("depthwise 64 k3 s2, batch 1", "depthwise", 64, (112, 112), 64, 3, 2, batch=1),
    Layer("depthwise 728 k3 s1 (Xception)", "depthwise", 728, (19, 19), 728, 3, 1),
    Layer("depthwise 144 k5 s2", "depthwise", 144, (56, 56), 144, 5, 2),
    Layer("depthwise 144 k3 s2", "depthwise", 144, (56, 56), 144, 3, 2),
    Layer("depthwise 480 k5 s2", "depthwise", 480, (14, 14), 480, 5, 2),
    Layer("max pool 64 k3 s2", "max", 64, (112, 112), 64, 3, 2),
    Layer("max pool 128 k3 s2", "max", 128, (73, 74), 128, 3, 2),
    Layer("max pool 64 k2 s2", "max", 64, (55, 55), 64, 2, 2),
    Layer("max pool 64 k2 s1", "max", 64, (56, 56), 64, 2, 1),
    Layer("max pool 192 k3 s1", "max", 192, (28, 28), 192, 3, 1),
    Layer("avg pool 192 k3 s1", "avg", 192, (28, 28), 192, 3, 1),
    Layer("avg pool 64 k2 s2", "avg", 64, (55, 55), 64, 2, 2),
    Layer("avg pool 64 k2 s1", "avg", 64, (56, 56), 64, 2, 1),
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
    if layer.kind == "avg":
        more["count_include_pad"] = False
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


def contestants(layer: Layer) -> Dict[str, Any]:
    """Nets by name, hybridized; "symmetric" is the limit."""
    nets = {"symmetric": block(layer, mx.gluon.nn, **_symmetric(layer)), **others(layer)}
    for net in nets.values():
        net.hybridize(**FLAGS)
    unknown = alone(layer)
    unknown.hybridize(**FLAGS)
    ours = {"mxsame, size known": mxsame.hybridize(alone(layer), **FLAGS), "mxsame, size unknown": unknown}
    return {"symmetric": nets.pop("symmetric"), **ours, **nets}


def others(layer: Layer) -> Dict[str, Any]:
    """What others do, where it applies."""
    if layer.kind == "transposed":
        return {}
    windows, is_max = layer.windows, layer.kind == "max"

    def make(pads: Tuple[int, ...]) -> Any:
        return block(layer, mx.gluon.nn, padding=pads)

    found: Dict[str, Optional[Any]] = {
        "explicit pad": recipes.explicit(windows, make, is_max),
        "k//2 and slice": recipes.half(windows, make),
        "keras-mxnet (inexact)": recipes.keras_mxnet(windows, make, is_max, beforehand=False),
        "keras-mxnet (inexact), padded": recipes.keras_mxnet(windows, make, is_max, beforehand=True),
    }
    return {name: net for name, net in found.items() if net is not None}


def alone(layer: Layer) -> Any:
    """mxsame's layer inside a parent, which is what a graph is made of."""
    parent = mx.gluon.nn.HybridSequential()
    parent.add(block(layer, mxsame.nn))
    return parent


def call(net: Any, data: Any, train: bool) -> Callable[[], Any]:
    """A forward pass, or one with a backward pass."""
    if not train:
        return lambda: net(data)

    def step() -> None:
        with mx.autograd.record():
            out = net(data)
        out.backward()

    return step


def inputs(layer: Layer, train: bool) -> Any:
    data = mx.nd.random.normal(shape=layer.shape)
    if train:
        data.attach_grad()
    return data


def measure(layer: Layer, train: bool = False, **timing: Any) -> dict:
    """One row: every contestant against the limit."""
    data = inputs(layer, train)
    calls = {name: call(net, data, train) for name, net in contestants(layer).items()}
    mode = "forward and backward" if train else "forward"
    return results.row(layer.name, mode, timed(calls, **timing), "symmetric", odd=layer.odd, batch=layer.batch)


def _symmetric(layer: Layer) -> dict:
    """The pads, or cuts, of the limit."""
    if layer.kind == "transposed":
        return symmetric_cut(layer.kernel_size, layer.stride)
    return {"padding": tuple(symmetric_pad(*window) for window in layer.windows)}
