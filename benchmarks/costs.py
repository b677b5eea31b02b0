"""The constants of the planner's estimate, measured here: nanoseconds per element, multiplication or operator.

Every figure is the difference between the times of two graphs that differ in what is measured, divided by how much of
it there is. Graphs end with a maximum over everything, which takes any layout as it comes.
"""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Sequence, Tuple

from benchmarks.timing import FLAGS, measure, spread
from benchmarks.variants import call
from mxsame._mxnet import mx

MANY, FEW = (8, 64, 56, 56), (8, 3, 224, 224)  # data between layers, and pictures
LINE = (4, 32, 3000)
WHOLE = (None,) * 4
CHAIN = 20  # times seven operators in a row

Build = Callable[[Any, Any, Any], Any]  # of F, the data and a weight
Shape = Tuple[int, ...]


class Probe(mx.gluon.HybridBlock):
    """A graph made by a function of F, data and a weight."""

    def __init__(self, weight: Shape, build: Build, rank: int):
        super().__init__()
        self._build, self._rank = build, rank
        if weight:
            self.weight = self.params.get("weight", shape=weight)

    def hybrid_forward(self, F: Any, x: Any, weight: Any = None) -> Any:
        return F.Pooling(self._build(F, x, weight), global_pool=True, kernel=(1,) * self._rank, pool_type="max")


def constants(rounds: int = 15) -> Dict[str, float]:
    """Every constant of `mxsame.planner.Costs`, by name."""
    many, few = _times(MANY, rounds, "trained pictures", "pictures"), _times(FEW, rounds, "few channels")
    trained = _times(MANY, rounds, "trained pictures", train=True)
    trained_line = _times(LINE, rounds, "trained lines", train=True)
    elements, pixels = math.prod(MANY), math.prod(FEW)
    longer = 5 * 5 - 3 * 3  # kernel elements
    concat = (many["concat"] - many["concat rows"]) / elements
    concat_row = (many["concat rows"] - many["nothing"] - concat * elements) / math.prod(MANY[:-1])

    def back(name: str) -> float:
        """Of the backward pass of one operator, per element."""
        return (trained[name] - trained["nothing"] - many[name] + many["nothing"]) / elements

    costs = {
        "concat": concat,
        "concat_row": concat_row,
        "concat_back": back("concat") / 2,
        "concat_back_1d": (trained_line["concat"] - trained_line["conv k3"]) / math.prod(LINE) - concat,
        "slice_back": back("slice"),
        "weight": (many["lengthened, conv k4"] - many["conv k4"]) / (64 * 64 * 3 * 3),
        "operator": (many["chain"] - many["element"]) / (7 * CHAIN),
        "touch": (many["relu"] - many["nothing"]) / (2 * elements),
        "depthwise_slow": (few["depthwise k3"] - few["nothing"]) / (3 * 3 * pixels),
        "pooling_slow": (many["average, partial"] - many["average"]) / (3 * 3 * elements / 4),
        "dense": (many["conv k5"] - many["conv k3"]) / (longer * elements * 64),
        "depthwise": (many["depthwise k5"] - many["depthwise k3"]) / (longer * elements),
        "pooling": (many["pool k5"] - many["pool k3"]) / (longer * elements),
        **{name: (many[name] - many["nothing"]) / elements for name in ("slice", "flip", "gather")},
    }
    costs["reorder"] = (many["1x1, flip"] - many["1x1"]) / elements - costs["flip"]
    return {name: max(value, 0.0) for name, value in costs.items()}


def probes(table: str) -> Iterator[Tuple[str, Shape, Build]]:
    """Name, shape of the weight, and what is built, of each graph in a table of costs.txt."""
    text = Path(__file__).with_name("costs.txt").read_text(encoding="utf-8")
    for line in text.partition(f"[{table}]\n")[2].partition("\n\n")[0].splitlines():
        name, weight, expression = re.fullmatch(r"(.+?)(?: \(([\d ]+)\))?: (.*)", line).groups("")  # type: ignore[union-attr]
        yield name, tuple(map(int, weight.split())), eval(f"lambda F, x, w: {expression}", globals())


def _times(shape: Shape, rounds: int, *tables: str, train: bool = False) -> Dict[str, float]:
    """Nanoseconds of each graph for data of this shape."""
    data = mx.nd.random.normal(shape=shape)
    if train:
        data.attach_grad()
    calls = {}
    for name, weight, build in itertools.chain.from_iterable(map(probes, tables)):
        probe = Probe(weight, build, len(shape) - 2)
        probe.initialize()
        probe.hybridize(**FLAGS)
        calls[name] = call(probe, data, train)
    return {name: spread(figures)[1] * 1e9 for name, figures in measure(calls, rounds).items()}


# -- what graphs are made of


def conv(F: Any, x: Any, weight: Any, kernel: int, channels: int = 64, groups: int = 1) -> Any:
    sizes = {"kernel": (kernel, kernel), "pad": (kernel // 2, kernel // 2)}
    return F.Convolution(x, weight, num_filter=channels, num_group=groups, no_bias=True, **sizes)


def lengthened(F: Any, weight: Any) -> Any:
    weight = F.transpose(weight, axes=(2, 3, 0, 1))
    for axis in (0, 1):
        weight = F.concat(F.zeros_like(F.slice_axis(weight, axis=axis, begin=0, end=1)), weight, dim=axis)
    return F.transpose(weight, axes=(2, 3, 0, 1))


def averaged(F: Any, x: Any, pad: int) -> Any:
    sizes = {"kernel": (3, 3), "stride": (2, 2), "pad": (pad, pad), "pooling_convention": "full"}
    return F.Pooling(x, pool_type="avg", count_include_pad=False, **sizes)


def concatenated(F: Any, x: Any, axes: Sequence[int] = (2, 3)) -> Any:
    for axis in axes:
        x = F.concat(x, F.zeros_like(F.slice_axis(x, axis=axis, begin=0, end=1)), dim=axis)
    return x


def concatenated_line(F: Any, x: Any) -> Any:
    x = F.expand_dims(x, axis=2)
    return F.reshape(F.concat(x, F.zeros_like(F.slice_axis(x, axis=3, begin=0, end=1)), dim=3), shape=(0, -3, 0))


def line(F: Any, x: Any, weight: Any) -> Any:
    return F.Convolution(x, weight, kernel=(3,), pad=(1,), num_filter=32, no_bias=True)


def sliced(F: Any, x: Any) -> Any:
    return F.slice(x, begin=(None, None, 1, 1), end=WHOLE)


def element(F: Any, x: Any, ndim: int = 4) -> Any:
    for axis in range(ndim):
        x = F.slice_axis(x, axis=axis, begin=0, end=1)
    return x


def plane(F: Any, x: Any) -> Any:
    return element(F, x, ndim=2) + 10


def gathered(F: Any, x: Any) -> Any:
    positions = F.contrib.arange_like(F.reshape(plane(F, x), shape=(-1,)))
    rows = F.reshape(F.transpose(x, axes=(2, 3, 0, 1)), shape=(-3, -2))
    return F.expand_dims(F.transpose(F.take(rows, positions, axis=0, mode="clip"), axes=(1, 2, 0)), axis=-1)


def chain(F: Any, x: Any) -> Any:
    x = element(F, x)
    for _ in range(CHAIN):
        length = F.cast(F.slice_axis(F.shape_array(x), axis=0, begin=3, end=4), dtype="float32")
        x = F.broadcast_add(x, F.reshape(F.relu(length % 2), shape=(1, 1, 1, 1)))
    return x
