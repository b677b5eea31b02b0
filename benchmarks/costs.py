"""The constants of the planner's estimate, measured here: nanoseconds per element, multiplication or operator.

Every figure is the difference between the times of two graphs that differ in what is measured, divided by how much of
it there is. Graphs end with a maximum over everything, which takes any layout as it comes.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from benchmarks.variants import call
from mxsame._mxnet import mx
from mxsame.graphs.timing import FLAGS, measure, spread

MANY, FEW = (8, 64, 56, 56), (8, 3, 224, 224)  # data between layers, and pictures
VOLUME = (2, 8, 16, 28, 28)
LINE = (4, 32, 3000)
LARGE = (1, 16, 224, 224)  # a block of these channels does not fit into the cache
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
        built = self._build(F, x, weight)
        return F.Pooling(built, global_pool=True, kernel=(1,) * self._rank, pool_type="max")


def constants(rounds: int = 15) -> Dict[str, float]:
    """Every constant of `mxsame.planner.Costs`, by name."""
    many, few, volume, large, line = (_times(shape, rounds) for shape in (MANY, FEW, VOLUME, LARGE, LINE))
    trained, trained_line = (_times(shape, rounds, train=True) for shape in (MANY, LINE))
    elements, pixels, voxels = math.prod(MANY), math.prod(FEW), math.prod(VOLUME)
    longer = 5 * 5 - 3 * 3  # kernel elements
    concat = (many["concat"] - many["concat rows"]) / elements
    concat_row = (many["concat rows"] - many["nothing"] - concat * elements) / math.prod(MANY[:-1])

    def back(name: str) -> float:
        """Of the backward pass of one operator, per element."""
        return (trained[name] - trained["nothing"] - many[name] + many["nothing"]) / elements

    found = {
        "concat": concat,
        "concat_row": concat_row,
        "concat_back": back("concat") / 2,
        "back_line": (trained_line["concat"] - trained_line["conv k3"]) / math.prod(LINE) - concat,
        "slice_back": back("slice"),
        "slice_like_back": back("slice_like"),
        "dense_back_long": back("conv k3, pad 2") / (2 * 3 * 3 * 64),
        "flip_weight": (many["reverse"] - many["nothing"]) / elements,
        "lengthen": (many["lengthened, conv k4"] - many["conv k4"]) / (64 * 64 * 3 * 3),
        "operator": (many["chain"] - many["element"]) / (7 * CHAIN),
        "slice_blocks": (many["1x1, slice"] - many["1x1"]) / elements,
        "gather_line": (line["gather"] - line["nothing"]) / math.prod(LINE),
        "place": (many["placed, conv k4"] - many["conv k4"]) / (64 * 64 * 3 * 3),
        "touch": (many["relu"] - many["nothing"]) / (2 * elements),
        "dense_few": (few["conv k5"] - few["conv k3"]) / (longer * pixels / 4 * 32),
        "depthwise_few": (few["depthwise k3"] - few["nothing"]) / (3 * 3 * pixels),
        "depthwise_volume": (volume["depthwise k3"] - volume["nothing"]) / (3 * 3 * 3 * voxels),
        "pooling_volume": (volume["slice, pool k3"] - volume["slice"]) / (3 * 3 * 3 * voxels / 4),
        "pooling_partial": (many["average, partial"] - many["average"]) / (3 * 3 * elements / 4),
        "pooling_large": (large["pool k3"] - large["nothing"]) / (3 * 3 * math.prod(LARGE)),
        "into_blocks": (many["into blocks"] - many["nothing"]) / elements,
        "dense": (many["conv k5"] - many["conv k3"]) / (longer * elements * 64),
        "depthwise": (many["depthwise k5"] - many["depthwise k3"]) / (longer * elements),
        "depthwise_back": (trained["depthwise k3"] - many["depthwise k3"]) / (3 * 3 * elements),
        "depthwise_back_long": (trained["depthwise k5"] - many["depthwise k5"]) / (5 * 5 * elements),
        "pooling": (many["pool k5"] - many["pool k3"]) / (longer * elements),
        **{name: (many[name] - many["nothing"]) / elements for name in ("slice", "flip", "pad", "gather", "divide")},
    }
    found["unblock"] = (many["1x1, flip"] - many["1x1"]) / elements - found["flip"]
    found["block"] = (many["1x1, slice, 1x1"] - many["1x1, 1x1"]) / elements - found["slice_blocks"]
    found["gather_row"] = (few["gather"] - few["nothing"] - found["gather"] * pixels) / math.prod(FEW[2:])
    return {name: max(value, 0.0) for name, value in found.items()}


def _times(shape: Shape, rounds: int, train: bool = False) -> Dict[str, float]:
    """Nanoseconds of each graph for data of this shape."""
    data = mx.nd.random.normal(shape=shape)
    if train:
        data.attach_grad()
    calls = {}
    for name, (weight, build) in (TRAINED if train else PROBES)[shape].items():
        probe = Probe(weight, build, len(shape) - 2)
        probe.initialize()
        probe.hybridize(**FLAGS)
        calls[name] = call(probe, data, train)
    return {name: spread(figures)[1] * 1e9 for name, figures in measure(calls, rounds).items()}


# -- what graphs are made of


def _conv(F: Any, x: Any, weight: Any, kernel: int, groups: int = 1, pad: Optional[int] = None) -> Any:
    sizes = {"kernel": (kernel, kernel), "pad": (kernel // 2 if pad is None else pad,) * 2}
    return F.Convolution(x, weight, num_filter=64, num_group=groups, no_bias=True, **sizes)


def _strided(F: Any, x: Any, weight: Any, kernel: int) -> Any:
    sizes = {"kernel": (kernel,) * 2, "stride": (2, 2), "pad": (kernel // 2,) * 2}
    return F.Convolution(x, weight, num_filter=32, no_bias=True, **sizes)


def _depthwise(F: Any, x: Any, weight: Any, channels: int, rank: int = 2) -> Any:
    sizes = {"kernel": (3,) * rank, "pad": (1,) * rank}
    return F.Convolution(x, weight, num_filter=channels, num_group=channels, no_bias=True, **sizes)


def _placed(F: Any, x: Any, weight: Any) -> Any:
    kernels = F.expand_dims(F.reshape(weight, shape=(-3, -2)), axis=1)
    one = F.tile(_element(F, x), reps=(1, 1, 2, 2))
    kernels = F.Convolution(kernels, one, kernel=(2, 2), pad=(1, 1), num_filter=1, no_bias=True)
    return F.reshape(kernels, shape=(64, 64, 4, 4))


def _lengthened(F: Any, weight: Any) -> Any:
    weight = F.transpose(weight, axes=(2, 3, 0, 1))
    for axis in (0, 1):
        weight = F.concat(F.zeros_like(F.slice_axis(weight, axis=axis, begin=0, end=1)), weight, dim=axis)
    return F.transpose(weight, axes=(2, 3, 0, 1))


def _averaged(F: Any, x: Any, pad: int) -> Any:
    sizes = {"kernel": (3, 3), "stride": (2, 2), "pad": (pad, pad), "pooling_convention": "full"}
    return F.Pooling(x, pool_type="avg", count_include_pad=False, **sizes)


def _concatenated(F: Any, x: Any, axes: Sequence[int] = (2, 3)) -> Any:
    for axis in axes:
        x = F.concat(x, F.zeros_like(F.slice_axis(x, axis=axis, begin=0, end=1)), dim=axis)
    return x


def _concatenated_line(F: Any, x: Any) -> Any:
    x = F.expand_dims(x, axis=2)
    return F.reshape(F.concat(x, F.zeros_like(F.slice_axis(x, axis=3, begin=0, end=1)), dim=3), shape=(0, -3, 0))


def _into_blocks(F: Any, x: Any, weight: Any) -> Any:
    return F.Convolution(x, F.ones((64, 1, 1, 1)), kernel=(1, 1), num_filter=64, num_group=64, no_bias=True)


def _line(F: Any, x: Any, weight: Any) -> Any:
    return F.Convolution(x, weight, kernel=(3,), pad=(1,), num_filter=32, no_bias=True)


def _slab(F: Any, x: Any) -> Any:
    """A quarter of the data, blocks of which fit into the cache."""
    return F.slice_axis(x, axis=2, begin=0, end=VOLUME[2] // 4)


def _sliced(F: Any, x: Any) -> Any:
    return F.slice(x, begin=(None, None, 1, 1), end=WHOLE)


def _sliced_like(F: Any, x: Any) -> Any:
    return F.slice_like(x, F.slice(x, begin=(0, 0, 0, 0), end=(1, 1, -1, -1)), axes=(2, 3))


def _element(F: Any, x: Any, ndim: int = 4) -> Any:
    for axis in range(ndim):
        x = F.slice_axis(x, axis=axis, begin=0, end=1)
    return x


def _plane(F: Any, x: Any) -> Any:
    return _element(F, x, ndim=2) + 10


def _gathered(F: Any, x: Any, weight: Any) -> Any:
    positions = F.contrib.arange_like(F.reshape(_plane(F, x), shape=(-1,)))
    rows = F.reshape(F.transpose(x, axes=(2, 3, 0, 1)), shape=(-3, -2))
    return F.expand_dims(F.transpose(F.take(rows, positions, axis=0, mode="clip"), axes=(1, 2, 0)), axis=-1)


def _gathered_line(F: Any, x: Any, weight: Any) -> Any:
    rows = F.transpose(x, axes=(2, 0, 1))
    positions = F.contrib.arange_like(F.reshape(_element(F, x, ndim=2), shape=(-1,)))
    return F.transpose(F.take(rows, positions, axis=0, mode="clip"), axes=(1, 2, 0))


def _chain(F: Any, x: Any, weight: Any) -> Any:
    x = _element(F, x)
    for _ in range(CHAIN):
        length = F.cast(F.slice_axis(F.shape_array(x), axis=0, begin=3, end=4), dtype="float32")
        x = F.broadcast_add(x, F.reshape(F.relu(length % 2), shape=(1, 1, 1, 1)))
    return x


# -- the graphs: the shape of the weight, () without one, and what is built

UNUSED: Shape = ()
DENSE = (64, 64, 1, 1)
Probes = Dict[Shape, Dict[str, Tuple[Shape, Build]]]
TRAINED: Probes = {
    MANY: {
        "nothing": (UNUSED, lambda F, x, w: x),
        "concat": (UNUSED, lambda F, x, w: _concatenated(F, x)),
        "concat rows": (UNUSED, lambda F, x, w: _concatenated(F, x, axes=[3])),
        "slice": (UNUSED, lambda F, x, w: _sliced(F, x)),
        "slice_like": (UNUSED, lambda F, x, w: _sliced_like(F, x)),
        "conv k3, pad 2": ((64, 64, 3, 3), lambda F, x, w: _conv(F, x, w, 3, pad=2)),
        "depthwise k3": ((64, 1, 3, 3), lambda F, x, w: _conv(F, x, w, 3, groups=64)),
        "depthwise k5": ((64, 1, 5, 5), lambda F, x, w: _conv(F, x, w, 5, groups=64)),
    },
    LINE: {
        "conv k3": ((32, 32, 3), lambda F, x, w: _line(F, x, w)),
        "concat": ((32, 32, 3), lambda F, x, w: _line(F, _concatenated_line(F, x), w)),
    },
}
PROBES: Probes = {
    MANY: {
        **TRAINED[MANY],
        "flip": (UNUSED, lambda F, x, w: F.slice(x, begin=WHOLE, end=WHOLE, step=(1, 1, -1, -1))),
        "reverse": (UNUSED, lambda F, x, w: F.reverse(x, axis=(2, 3))),
        "pad": (UNUSED, lambda F, x, w: F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 0, 1, 0, 1))),
        "gather": (UNUSED, _gathered),
        "divide": (UNUSED, lambda F, x, w: F.broadcast_div(x, _plane(F, x))),
        "element": (UNUSED, lambda F, x, w: _element(F, x)),
        "chain": (UNUSED, _chain),
        "1x1": (DENSE, lambda F, x, w: _conv(F, x, w, 1)),
        "1x1, 1x1": (DENSE, lambda F, x, w: _conv(F, _conv(F, x, w, 1), w, 1)),
        "1x1, slice": (DENSE, lambda F, x, w: _sliced(F, _conv(F, x, w, 1))),
        "1x1, flip": (DENSE, lambda F, x, w: F.slice(_conv(F, x, w, 1), begin=WHOLE, end=WHOLE, step=(1, 1, -1, -1))),
        "1x1, slice, 1x1": (DENSE, lambda F, x, w: _conv(F, _sliced(F, _conv(F, x, w, 1)), w, 1)),
        "relu": (UNUSED, lambda F, x, w: F.relu(x)),
        "conv k4": ((64, 64, 4, 4), lambda F, x, w: _conv(F, x, w, 4)),
        "lengthened, conv k4": ((64, 64, 3, 3), lambda F, x, w: _conv(F, x, _lengthened(F, w), 4)),
        "placed, conv k4": ((64, 64, 3, 3), lambda F, x, w: _conv(F, x, _placed(F, x, w), 4)),
        "average": (UNUSED, lambda F, x, w: _averaged(F, F.slice(x, begin=(0, 0, 1, 1), end=WHOLE), 1)),
        "average, partial": (UNUSED, lambda F, x, w: _averaged(F, F.slice(x, begin=(0, 0, 0, 0), end=WHOLE), 0)),
        "conv k3": ((64, 64, 3, 3), lambda F, x, w: _conv(F, x, w, 3)),
        "conv k5": ((64, 64, 5, 5), lambda F, x, w: _conv(F, x, w, 5)),
        "into blocks": (UNUSED, _into_blocks),
        "pool k3": (UNUSED, lambda F, x, w: F.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="max")),
        "pool k5": (UNUSED, lambda F, x, w: F.Pooling(x, kernel=(5, 5), pad=(2, 2), pool_type="max")),
    },
    FEW: {
        "nothing": (UNUSED, lambda F, x, w: x),
        "gather": (UNUSED, _gathered),
        "depthwise k3": ((3, 1, 3, 3), lambda F, x, w: _depthwise(F, x, w, 3)),
        "conv k3": ((32, 3, 3, 3), lambda F, x, w: _strided(F, x, w, 3)),
        "conv k5": ((32, 3, 5, 5), lambda F, x, w: _strided(F, x, w, 5)),
    },
    VOLUME: {
        "nothing": (UNUSED, lambda F, x, w: x),
        "depthwise k3": ((8, 1, 3, 3, 3), lambda F, x, w: _depthwise(F, x, w, 8, rank=3)),
        "slice": (UNUSED, lambda F, x, w: _slab(F, x)),
        "slice, pool k3": (
            UNUSED,
            lambda F, x, w: F.Pooling(_slab(F, x), kernel=(3, 3, 3), pad=(1, 1, 1), pool_type="max"),
        ),
    },
    LINE: {
        "nothing": (UNUSED, lambda F, x, w: x),
        "gather": (UNUSED, _gathered_line),
    },
    LARGE: {
        "nothing": (UNUSED, lambda F, x, w: x),
        "pool k3": (UNUSED, lambda F, x, w: F.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="max")),
    },
}
