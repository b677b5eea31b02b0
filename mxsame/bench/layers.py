"""One layer beside MXNet's own with symmetric padding of the same kernel, which computes something else: the limit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from mxsame import _symmetric, graph, nn, padding
from mxsame._mxnet import mx
from mxsame.bench import recipes
from mxsame.plan import AVERAGE, CONVOLUTION, MAXIMUM, TRANSPOSED_STRATEGIES, Window, force

FLAGS = {"static_alloc": True, "static_shape": True}
PLANNER = "planner"
FAMILIES = {  # by kind: the strategies that it knows
    "conv": CONVOLUTION,
    "depthwise": CONVOLUTION,
    "max": MAXIMUM,
    "avg": AVERAGE,
    "transposed": TRANSPOSED_STRATEGIES,
}
_NAMES = {"max": "MaxPool{}D", "avg": "AvgPool{}D", "transposed": "Conv{}DTranspose"}


@dataclass(frozen=True)
class Layer:
    """One layer on one kind of input; kernel, stride and dilation are one number, or one for each axis.

    Without a layout, channels come first. Channels last, and float16, are for GPUs.
    """

    name: str
    kind: str  # "conv" | "depthwise" | "max" | "avg" | "transposed"
    in_channels: int
    size: Tuple[int, ...]
    channels: int
    kernel_size: Union[int, Tuple[int, ...]]
    stride: Union[int, Tuple[int, ...]]
    batch: int = 8
    dilation: Union[int, Tuple[int, ...]] = 1
    layout: Optional[str] = None
    dtype: str = "float32"

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def shape(self) -> Tuple[int, ...]:
        if self.layout is not None and self.layout.endswith("C"):
            return (self.batch, *self.size, self.in_channels)
        return (self.batch, self.in_channels, *self.size)

    @property
    def windows(self) -> List[Window]:
        """Of each axis."""
        numbers = (self.kernel_size, self.stride, self.dilation)
        axes = [value if isinstance(value, tuple) else (value,) * self.rank for value in numbers]
        return [Window(*axis) for axis in zip(self.size, *axes)]

    @property
    def odd(self) -> bool:
        """Whether some axis is padded, or cut, by an odd amount."""
        if self.kind == "transposed":
            cuts = [padding.transposed_cuts(x.kernel_size, x.stride, x.dilation) for x in self.windows]
            return any(sum(cut) % 2 for cut in cuts)
        return any(sum(window.pads(window.size)) % 2 for window in self.windows)


def block(layer: Layer, module: Any, **more: Any) -> Any:
    """The layer of `mxsame.nn` or `gluon.nn`, initialised."""
    if layer.layout is not None:
        more["layout"] = layer.layout
    if layer.kind in ("max", "avg"):
        if layer.kind == "avg":
            more["count_include_pad"] = False
        made = getattr(module, _NAMES[layer.kind].format(layer.rank))(layer.kernel_size, layer.stride, **more)
    else:
        more = {**more, "dilation": layer.dilation, "in_channels": layer.in_channels}
        if layer.kind == "depthwise" and module is nn:
            kind = getattr(module, f"DepthwiseConv{layer.rank}D")
            made = kind(layer.kernel_size, layer.stride, **more)
        else:
            groups = layer.in_channels if layer.kind == "depthwise" else 1
            kind = getattr(module, _NAMES.get(layer.kind, "Conv{}D").format(layer.rank))
            made = kind(layer.channels, layer.kernel_size, layer.stride, groups=groups, **more)
    made.initialize()
    made.cast(layer.dtype)
    return made


def alone(layer: Layer) -> Any:
    """mxsame's layer inside a parent, which is what a graph is made of."""
    parent = mx.gluon.nn.HybridSequential()
    parent.add(block(layer, nn))
    return parent


def known(layer: Layer) -> Any:
    """mxsame's layer in graphs that know their sizes."""
    return graph.hybridize(alone(layer), **FLAGS)


def unknown(layer: Layer) -> Any:
    """mxsame's layer in one graph for every size."""
    net = alone(layer)
    net.hybridize(**FLAGS)
    return net


def symmetric(layer: Layer) -> Any:
    """MXNet's own layer, padded or cut alike at both ends: the limit."""
    steps = [(window.kernel_size, window.stride, window.dilation) for window in layer.windows]
    if layer.kind == "transposed":
        pads, adj = zip(*(_symmetric.cut(*step) for step in steps))
        net = block(layer, mx.gluon.nn, padding=pads, output_padding=adj)
    else:
        net = block(layer, mx.gluon.nn, padding=tuple(_symmetric.pad(n, *step) for n, step in zip(layer.size, steps)))
    net.hybridize(**FLAGS)
    return net


def padded(layer: Layer, pads: Tuple[int, ...]) -> Any:
    """MXNet's own layer with these pads."""
    return block(layer, mx.gluon.nn, padding=pads)


def explicit(layer: Layer) -> Optional[Any]:
    """Explicit padding and then VALID; for a transposed convolution, VALID and then a slice, where that can be."""
    if layer.kind == "transposed":
        net = recipes.cropped(layer.windows, lambda pads: padded(layer, pads))
    else:
        net = recipes.explicit(layer.windows, lambda pads: padded(layer, pads), layer.kind == "max")
    if net is not None:
        net.hybridize(**FLAGS)
    return net


def inputs(layer: Layer, train: bool) -> Any:
    """Made by NumPy and copied: not every GPU can start MXNet's own kernels."""
    data = mx.nd.array(np.random.RandomState(0).standard_normal(layer.shape), dtype=layer.dtype)
    if train:
        data.attach_grad()
    return data


def call(net: Any, data: Any, train: bool) -> Callable[[], Any]:
    """A forward pass, or one with a backward pass."""
    if not train:
        return lambda: net(data)

    def step() -> None:
        with mx.autograd.record():
            out = net(data)
        out.backward()

    return step


def plans(layer: Layer, size_known: bool, train: bool, data: Any) -> Tuple[Dict[str, Callable[[], Any]], List[str]]:
    """Calls of the planner's net and of one for each other graph that a strategy gives; and the strategies that give
    the planner's. The graphs are built, each under its force."""
    calls: Dict[str, Callable[[], Any]] = {}
    names: Dict[str, List[str]] = {}
    for strategy in (PLANNER, *FAMILIES[layer.kind]):
        net = known(layer) if size_known else unknown(layer)
        made = call(net, data, train)
        try:
            with force(None if strategy == PLANNER else strategy):
                made()
        except ValueError as error:
            if "is not exact" not in str(error):
                raise
            continue
        same = names.setdefault(_operators(net), [])
        same.append(strategy)
        calls.setdefault(same[0], made)
    return calls, next(iter(names.values()))[1:]


def _operators(net: Any) -> str:
    """The operators, attributes and edges of the graph that a net has built, without names."""
    (built,) = net.forward.graphs.values() if "forward" in vars(net) else (net,)
    nodes = json.loads(built._cached_graph[1].tojson())["nodes"]
    return json.dumps([(node["op"], node.get("attrs", {}), node["inputs"]) for node in nodes], sort_keys=True)
