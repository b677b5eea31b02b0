"""The constants of the planner's estimate, measured on this machine: nanoseconds per cell, multiplication or operator.

Every figure is the difference between two graphs that differ in what is asked for, divided by how much of it there is.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

from benchmarks.timing import measure, spread
from mxsame._mxnet import mx

DATA = (8, 64, 56, 56)
CELLS = 8 * 64 * 56 * 56
FEW = (8, 3, 224, 224)
FEW_CELLS = 8 * 3 * 224 * 224
WHOLE = (None,) * 4
CHAIN = 40  # operators in a row

Build = Callable[..., Any]


class Probe(mx.gluon.HybridBlock):
    """A graph made by a function of (F, data, weight)."""

    def __init__(self, build: Build, weight: Tuple[int, ...]):
        super().__init__()
        self._build = build
        self.weight = self.params.get("weight", shape=weight)

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return self._build(F, x, weight)


def measured(rounds: int = 15) -> Dict[str, float]:
    """Every constant of `mxsame.planner.Costs`, by name."""
    found: Dict[str, float] = {}
    for shape, weight, probes, constants in _EXPERIMENTS:
        data = mx.nd.random.normal(shape=shape)
        calls = {}
        for name, build in probes.items():
            probe = Probe(build, weight)
            probe.initialize()
            probe.hybridize(static_alloc=True, static_shape=True)
            probe(data).wait_to_read()
            calls[name] = lambda probe=probe, data=data: probe(data)
        times = {name: spread(figures)[1] * 1e9 for name, figures in measure(calls, rounds).items()}
        for constant, (longer, shorter, amount) in constants.items():
            known = found[shorter] * amount if shorter in found else times[shorter]
            found[constant] = max((times[longer] - known) / amount, 0.0)
    return found


def _cell(F: Any, x: Any) -> Any:
    """One cell of it, whatever the layout: what has to be computed for it is all, what is returned is nothing."""
    for axis in range(4):
        x = F.slice_axis(x, axis=axis, begin=0, end=1)
    return x


def _joined(F: Any, x: Any, axis: int) -> Any:
    return F.concat(x, F.zeros_like(F.slice_axis(x, axis=axis, begin=0, end=1)), dim=axis)


def _conv(F: Any, x: Any, weight: Any, kernel: int, channels: int, stride: int = 1, groups: int = 1) -> Any:
    return F.Convolution(
        x,
        weight,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(kernel // 2, kernel // 2),
        num_filter=channels,
        num_group=groups,
        no_bias=True,
    )


def _chain(F: Any, x: Any, count: int) -> Any:
    x = _cell(F, x)
    for _ in range(count):
        x = x + 1
    return x


def _turned(F: Any, x: Any) -> Any:
    return F.slice(x, begin=WHOLE, end=WHOLE, step=(1, 1, -1, -1))


def _rows(F: Any, x: Any) -> Any:
    row = F.contrib.arange_like(F.reshape(F.slice_axis(F.slice_axis(x, axis=0, begin=0, end=1), axis=1, begin=0, end=1), shape=(-1,)))
    moved = F.reshape(F.transpose(x, axes=(2, 3, 0, 1)), shape=(-3, -2))
    return F.take(moved, row, axis=0, mode="clip")
