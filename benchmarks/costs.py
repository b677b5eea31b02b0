"""The constants of the planner's estimate, measured on this machine: nanoseconds per cell, multiplication or operator.

Every figure is the difference between the times of two graphs that differ in what is asked for, divided by how much of
it there is. Graphs end with a maximum over everything, which takes any layout as it comes.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Tuple

from benchmarks.layers import call
from mxsame._mxnet import mx
from mxsame._timing import measure, spread

MANY, FEW = (8, 64, 56, 56), (8, 3, 224, 224)  # data between layers, and pictures
VOLUME = (2, 3, 16, 56, 56)
WHOLE = (None,) * 4
CHAIN = 20  # times seven operators in a row

Build = Callable[[Any, Any, Any], Any]
Probes = Dict[str, Tuple[Tuple[int, ...], Build]]  # name: (shape of the weight, if there is one, and graph)


class Probe(mx.gluon.HybridBlock):
    """A graph made by a function of F, data and a weight."""

    def __init__(self, weight: Tuple[int, ...], build: Build, rank: int = 2):
        super().__init__()
        self._build, self._rank = build, rank
        if weight:
            self.weight = self.params.get("weight", shape=weight)

    def hybrid_forward(self, F: Any, x: Any, weight: Any = None) -> Any:
        built = self._build(F, x, weight)
        return F.Pooling(built, global_pool=True, kernel=(1,) * self._rank, pool_type="max")


def constants(rounds: int = 15) -> Dict[str, float]:
    """Every constant of `mxsame.planner.Costs`, by name."""
    many, few, volume = _times(MANY, _many(), rounds), _times(FEW, _few(), rounds), _times(VOLUME, _volume(), rounds)
    trained = _times(MANY, {**_joining(), **_depthwise()}, rounds, train=True)
    cells, pixels, voxels = math.prod(MANY), math.prod(FEW), math.prod(VOLUME)
    taps = 5 * 5 - 3 * 3  # by which the kernels differ
    found = {
        "join": (many["join"] - many["nothing"]) / (2 * cells),
        "join_back": (trained["join"] - trained["nothing"] - many["join"] + many["nothing"]) / (2 * cells),
        "slice": (many["slice"] - many["nothing"]) / cells,
        "reverse": (many["reverse"] - many["nothing"]) / cells,
        "pad": (many["pad"] - many["nothing"]) / cells,
        "gather": (many["gather"] - many["nothing"]) / cells,
        "divide": (many["divide"] - many["nothing"]) / cells,
        "turn_weight": (many["reverse operator"] - many["nothing"]) / cells,
        "lengthen": (many["weight"] - many["cell"]) / (2 * 480 * 25),
        "operator": (many["chain"] - many["cell"]) / (7 * CHAIN),
        "shift": (many["1x1, shift, 1x1"] - many["1x1, 1x1"]) / cells,
        "shift_few": (few["shift, conv k3"] - few["conv k3"]) / pixels,
        "shift_volume": (volume["shift, conv k3"] - volume["conv k3"]) / voxels,
        "dense": (many["conv k5"] - many["conv k3"]) / (taps * cells * 64),
        "depthwise": (many["depthwise k5"] - many["depthwise k3"]) / (taps * cells),
        "depthwise_back": (trained["depthwise k3"] - many["depthwise k3"]) / (3 * 3 * cells),
        "depthwise_back_long": (trained["depthwise k5"] - many["depthwise k5"]) / (5 * 5 * cells),
        "pooling": (many["pool k5"] - many["pool k3"]) / (taps * cells),
    }
    found["unblock"] = (many["1x1, slice"] - many["1x1"]) / cells - found["slice"]
    found["block"] = (many["1x1, slice, 1x1"] - many["1x1, 1x1"]) / cells - found["slice"] - found["unblock"]
    return {name: max(value, 0.0) for name, value in found.items()}


def _times(shape: Tuple[int, ...], probes: Probes, rounds: int, train: bool = False) -> Dict[str, float]:
    """Nanoseconds of each graph."""
    data = mx.nd.random.normal(shape=shape)
    if train:
        data.attach_grad()
    calls = {}
    for name, (weight, build) in probes.items():
        probe = Probe(weight, build, len(shape) - 2)
        probe.initialize()
        probe.hybridize(static_alloc=True, static_shape=True)
        calls[name] = call(probe, data, train)
    return {name: spread(figures)[1] * 1e9 for name, figures in measure(calls, rounds).items()}


def _many() -> Probes:
    unused: Tuple[int, ...] = ()
    dense = (64, 64, 1, 1)
    point = lambda F, x, w: _conv(F, x, w, 1)  # noqa: E731
    return {
        **_joining(),
        "slice": (unused, lambda F, x, w: _sliced(F, x)),
        "reverse": (unused, lambda F, x, w: F.slice(x, begin=WHOLE, end=WHOLE, step=(1, 1, -1, -1))),
        "reverse operator": (unused, lambda F, x, w: F.reverse(x, axis=(2, 3))),
        "pad": (unused, lambda F, x, w: F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 0, 1, 0, 1))),
        "gather": (unused, _gathered),
        "divide": (unused, lambda F, x, w: F.broadcast_div(x, _plane(F, x))),
        "cell": (unused, lambda F, x, w: _cell(F, x)),
        "weight": ((480, 1, 5, 5), lambda F, x, w: F.broadcast_add(_cell(F, x), _joined(F, _joined(F, w, 2), 3))),
        "chain": (unused, _chain),
        "1x1": (dense, point),
        "1x1, 1x1": (dense, lambda F, x, w: point(F, point(F, x, w), w)),
        "1x1, slice": (dense, lambda F, x, w: _sliced(F, point(F, x, w))),
        "1x1, slice, 1x1": (dense, lambda F, x, w: point(F, _sliced(F, point(F, x, w)), w)),
        "1x1, shift, 1x1": (dense, lambda F, x, w: point(F, _shifted(F, point(F, x, w), 64), w)),
        "conv k3": ((64, 64, 3, 3), lambda F, x, w: _conv(F, x, w, 3)),
        "conv k5": ((64, 64, 5, 5), lambda F, x, w: _conv(F, x, w, 5)),
        **_depthwise(),
        "pool k3": (unused, lambda F, x, w: F.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="max")),
        "pool k5": (unused, lambda F, x, w: F.Pooling(x, kernel=(5, 5), pad=(2, 2), pool_type="max")),
    }


def _joining() -> Probes:
    return {
        "nothing": ((), lambda F, x, w: x),
        "join": ((), lambda F, x, w: _joined(F, _joined(F, x, 2), 3)),
    }


def _depthwise() -> Probes:
    return {
        "depthwise k3": ((64, 1, 3, 3), lambda F, x, w: _conv(F, x, w, 3, groups=64)),
        "depthwise k5": ((64, 1, 5, 5), lambda F, x, w: _conv(F, x, w, 5, groups=64)),
    }


def _few() -> Probes:
    return {
        "conv k3": ((32, 3, 3, 3), lambda F, x, w: _conv(F, x, w, 3, 32, stride=2)),
        "shift, conv k3": ((32, 3, 3, 3), lambda F, x, w: _conv(F, _shifted(F, x, 3), w, 3, 32, stride=2)),
    }


def _volume() -> Probes:
    return {
        "conv k3": ((32, 3, 3, 3, 3), lambda F, x, w: _conv(F, x, w, 3, 32, 2, rank=3)),
        "shift, conv k3": ((32, 3, 3, 3, 3), lambda F, x, w: _conv(F, _shifted(F, x, 3, rank=3), w, 3, 32, 2, rank=3)),
    }


def _conv(
    F: Any, x: Any, weight: Any, kernel: int, channels: int = 64, stride: int = 1, groups: int = 1, rank: int = 2
) -> Any:
    sizes = {"kernel": (kernel,) * rank, "stride": (stride,) * rank, "pad": (kernel // 2,) * rank}
    return F.Convolution(x, weight, num_filter=channels, num_group=groups, no_bias=True, **sizes)


def _joined(F: Any, x: Any, axis: int) -> Any:
    return F.concat(x, F.zeros_like(F.slice_axis(x, axis=axis, begin=0, end=1)), dim=axis)


def _sliced(F: Any, x: Any) -> Any:
    return F.slice(x, begin=(None, None, 1, 1), end=WHOLE)


def _shifted(F: Any, x: Any, channels: int, rank: int = 2) -> Any:
    taps = F.repeat(_cell(F, x, rank + 2), repeats=channels, axis=0)
    for axis in range(2, rank + 2):
        taps = F.repeat(taps, repeats=2, axis=axis)
    sizes = {"kernel": (2,) * rank, "pad": (1,) * rank}
    return F.Convolution(x, taps, num_filter=channels, num_group=channels, no_bias=True, **sizes)


def _plane(F: Any, x: Any) -> Any:
    return F.slice_axis(F.slice_axis(x, axis=0, begin=0, end=1), axis=1, begin=0, end=1) + 10


def _gathered(F: Any, x: Any, weight: Any) -> Any:
    cells = F.contrib.arange_like(F.reshape(_plane(F, x), shape=(-1,)))
    rows = F.reshape(F.transpose(x, axes=(2, 3, 0, 1)), shape=(-3, -2))
    return F.expand_dims(F.transpose(F.take(rows, cells, axis=0, mode="clip"), axes=(1, 2, 0)), axis=-1)


def _cell(F: Any, x: Any, ndim: int = 4) -> Any:
    for axis in range(ndim):
        x = F.slice_axis(x, axis=axis, begin=0, end=1)
    return x


def _chain(F: Any, x: Any, weight: Any) -> Any:
    x = _cell(F, x)
    for _ in range(CHAIN):
        length = F.cast(F.slice_axis(F.shape_array(x), axis=0, begin=3, end=4), dtype="float32")
        x = F.broadcast_add(x, F.reshape(F.relu(length % 2), shape=(1, 1, 1, 1)))
    return x
