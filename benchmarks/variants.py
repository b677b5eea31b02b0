"""One layer, compared with MXNet's own of the same kernel and symmetric padding: the baseline, with other values."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from benchmarks.timing import FLAGS
from mxsame import nn, padding
from mxsame._mxnet import mx
from mxsame.demo import symmetric_pad
from mxsame.graphs.hybridize import hybridize
from mxsame.plan import Window, strategies_for, use_strategy
from mxsame.scope import Target, building

PLANNER, SYMMETRIC, EXPLICIT = "planner", "symmetric", "explicit pad"
KINDS = {  # the class in `mxsame.nn` and in `gluon.nn`, and the operator in `mxsame.plan`
    "conv": ("Conv{}D", "Conv{}D", "conv"),
    "depthwise": ("DepthwiseConv{}D", "Conv{}D", "conv"),
    "transposed": ("Conv{}DTranspose", "Conv{}DTranspose", "transposed"),
    "max": ("MaxPool{}D", "MaxPool{}D", "max"),
    "avg": ("AvgPool{}D", "AvgPool{}D", "avg"),
}
LAYER = r"(\w+) (\d+)-(\d+) k([\dx]+) s(\d+), ([\dx]+)(?:, batch (\d+))?"  # a line of layers.txt
LOWEST = -3e38  # what the pad operator pads with in front of a max pool

Pads = Sequence[Tuple[int, int]]


@dataclass(frozen=True)
class Layer:
    """One layer on one input; kernel, stride and dilation are one number, or one for each axis."""

    name: str
    kind: str  # "conv" | "depthwise" | "max" | "avg" | "transposed"
    in_channels: int
    size: Tuple[int, ...]
    channels: int
    kernel_size: Union[int, Tuple[int, ...]]
    stride: Union[int, Tuple[int, ...]]
    batch: int = 8
    dilation: Union[int, Tuple[int, ...]] = 1
    dtype: str = "float32"
    channels_last: bool = False  # on a GPU

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def shape(self) -> Tuple[int, ...]:
        inner = (*self.size, self.in_channels) if self.channels_last else (self.in_channels, *self.size)
        return (self.batch, *inner)

    @property
    def windows(self) -> List[Window]:
        """Of each axis."""
        numbers = (self.kernel_size, self.stride, self.dilation)
        axes = [value if isinstance(value, tuple) else (value,) * self.rank for value in numbers]
        return [Window(*axis) for axis in zip(self.size, *axes)]

    @property
    def pads(self) -> List[Tuple[int, int]]:
        """(low, high) of each axis: what SAME adds, or crops from a transposed convolution's output."""
        if self.kind == "transposed":
            return [padding.transposed_crops(x.kernel_size, x.stride, x.dilation) for x in self.windows]
        return [window.pads(window.size) for window in self.windows]


def table(title: str) -> List[Layer]:
    """The layers of a table of layers.txt.

    >>> table("GPU")[0].name, table("known networks")[11].kernel_size
    ('conv 3-64 k7 s2, 224x224', (1, 7))
    """
    layers = []
    text = Path(__file__).with_name("layers.txt").read_text(encoding="utf-8")
    for batch, lines in re.findall(rf"^\[{title}, batch (\d+)\]\n((?:.+\n)+)", text, re.MULTILINE):
        for line in lines.splitlines():
            name, _, described = line.rpartition(": ")
            kind, *channels, kernel, stride, size, own = re.fullmatch(LAYER, described).groups()
            kernel_size, lengths = (tuple(map(int, each.split("x"))) for each in (kernel, size))
            first, last = map(int, channels)
            one = kernel_size if len(kernel_size) > 1 else kernel_size[0]
            layers.append(Layer(name or line, kind, first, lengths, last, one, int(stride), int(own or batch)))
    return layers


# -- nets


class Recipe(mx.gluon.HybridBlock):
    """pad operator -> layer -> slice; steps that change nothing are left out."""

    def __init__(self, layer: Any, pads: Pads = (), fill: float = 0, keep: Optional[tuple] = None):
        super().__init__()
        self.layer = layer
        self._pads, self._fill, self._keep = list(pads), fill, keep

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = self.layer(self._padded(F, x) if self._pads else x)
        return out if self._keep is None else F.slice(out, begin=self._keep[0], end=self._keep[1])

    def _padded(self, F: Any, x: Any) -> Any:
        """MXNet pads arrays of four and five axes only, so that one of three gets an axis more for a while."""
        one_axis = len(self._pads) == 1
        pads = [*self._pads, (0, 0)] if one_axis else self._pads
        widths = (0, 0, 0, 0, *(width for pair in pads for width in pair))
        x = F.expand_dims(x, -1) if one_axis else x
        x = F.pad(x, mode="constant", constant_value=self._fill, pad_width=widths)
        return F.reshape(x, (0, 0, 0)) if one_axis else x


def cropping(pads: Pads) -> Tuple[tuple, tuple]:
    """begin and end of a slice that crops (low, high) elements of each spatial axis."""
    return (None, None, *(low for low, _ in pads)), (None, None, *(-high or None for _, high in pads))


def block(layer: Layer, module: Any, **more: Any) -> Any:
    """The layer of `mxsame.nn` or `gluon.nn`, initialized."""
    ours, theirs, _ = KINDS[layer.kind]
    arguments: tuple = (layer.kernel_size, layer.stride)
    if layer.kind in ("max", "avg"):
        more.update({"count_include_pad": False} if layer.kind == "avg" else {})
    else:
        more.update(dilation=layer.dilation, in_channels=layer.in_channels)
        if layer.kind != "depthwise" or module is not nn:
            arguments = (layer.channels, *arguments)
            more["groups"] = layer.in_channels if layer.kind == "depthwise" else 1
    if layer.channels_last:
        more["layout"] = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[layer.rank]
    made = getattr(module, (ours if module is nn else theirs).format(layer.rank))(*arguments, **more)
    mx.random.seed(0)  # all variants have the same weights
    made.initialize()
    if layer.dtype != "float32":
        made.cast(layer.dtype)
    return made


def same(layer: Layer, static: bool) -> Any:
    """mxsame's layer inside a parent, hybridized: with static shapes, or one graph for every size."""
    net = mx.gluon.nn.HybridSequential()
    net.add(block(layer, nn))
    if static:
        return hybridize(net, **FLAGS)
    return hybridized(net)


def symmetric(layer: Layer) -> Any:
    """MXNet's own layer, padded or cropped alike at both ends: the baseline."""
    steps = [(window.kernel_size, window.stride, window.dilation) for window in layer.windows]
    if layer.kind == "transposed":
        pads, adj = zip(*(symmetric_crop(*step) for step in steps))
        return hybridized(block(layer, mx.gluon.nn, padding=pads, output_padding=adj))
    pads = tuple(symmetric_pad(n, *step) for n, step in zip(layer.size, steps))
    return hybridized(block(layer, mx.gluon.nn, padding=pads))


def symmetric_crop(kernel_size: int, stride: int = 1, dilation: int = 1) -> Tuple[int, int]:
    """(pad, adj) with which MXNet's transposed convolution gives n*s outputs.

    >>> symmetric_crop(3, 2), symmetric_crop(2, 2), symmetric_crop(1, 3)
    ((1, 1), (0, 0), (0, 2))
    """
    over = padding.effective_kernel_size(kernel_size, dilation) - stride
    pad = max(-(-over // 2), 0)
    return pad, 2 * pad - over


def explicit(layer: Layer) -> Optional[Any]:
    """What timm and most ports do: the pad operator with TensorFlow's amounts, then VALID. Exact, except for averages,
    in which the padding counts. A transposed convolution: VALID, then a slice; None if that cannot give all outputs.
    None with channels last, too, which the pad operator does not take."""
    if layer.channels_last:
        return None
    whole = block(layer, mx.gluon.nn, padding=(0,) * layer.rank)
    if layer.kind != "transposed":
        return hybridized(Recipe(whole, layer.pads, LOWEST if layer.kind == "max" else 0))
    if any(high < 0 for _, high in layer.pads):
        return None
    return hybridized(Recipe(whole, keep=cropping(layer.pads)))


def hybridized(net: Any) -> Any:
    net.hybridize(**FLAGS)
    return net


# -- calls


def inputs(layer: Layer, train: bool) -> Any:
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


def others(layer: Layer, train: bool, data: Any) -> Dict[str, Callable[[], Any]]:
    """Calls of MXNet's own layer with symmetric and, if there is one, with explicit padding."""
    nets = {SYMMETRIC: symmetric(layer), EXPLICIT: explicit(layer)}
    return {name: call(net, data, train) for name, net in nets.items() if net is not None}


def plans(layer: Layer, static: bool, train: bool, data: Any) -> Tuple[Dict[str, Callable[[], Any]], List[str]]:
    """Calls of the planner's net and of one for each other graph that a strategy gives; and the strategies that give
    the planner's. The graphs are built, each with its strategy forced."""
    calls: Dict[str, Callable[[], Any]] = {}
    names: Dict[str, List[str]] = {}
    for strategy in (PLANNER, *strategies_for(KINDS[layer.kind][2])):
        net, forced = same(layer, static), None if strategy == PLANNER else strategy
        made = use_strategy(forced)(call(net, data, train))  # at each call: a net has a graph for each strategy
        try:
            with use_strategy(forced) as planned:
                operators = _operators(net[0], layer, static, train)
            if forced and forced not in {each.strategy for each in planned}:
                continue  # it needs what the graph does not show, such as channels, and another one is in its place
            made()
        except ValueError:  # this strategy is not exact, or refused here
            if strategy == PLANNER:
                raise
            continue
        alike = names.setdefault(operators, [])
        alike.append(strategy)
        calls.setdefault(alike[0], made)
    return calls, next(iter(names.values()))[1:]


def _operators(block: Any, layer: Layer, static: bool, train: bool) -> str:
    """The operators, attributes and edges of the graph that is built of a block, without names."""
    target = Target()  # a graph of dynamic shape is for both, on any device
    if static:
        target = Target("training" if train else "inference", target.device_or_current)
    with building(target):
        graph = block(mx.sym.var("data", shape=layer.shape if static else None, dtype=layer.dtype))
    nodes = json.loads(graph.tojson())["nodes"]
    return json.dumps([(node["op"], node.get("attrs", {}), node["inputs"]) for node in nodes], sort_keys=True)
