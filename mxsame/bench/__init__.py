"""What SAME costs here: the layers of `mxsame bench`, measured beside MXNet's own symmetric padding.

`mxsame bench --json` prints `as_data`::

    {"mxsame": version, "device": "cpu:0", "provenance": {date, CPU, versions and so on}, "rows": [row, ...]}

    row: {"name": .., "kind": .., "mode": .., "shape": .., "channels": .., "kernel_size": .., "stride": ..,
          "dilation": .., "odd": .., "planned": .., "plans": .., "reference": .., "unit": .., "figures": ..}
    mode: "forward", or "forward and backward"
    shape: of the data; channels: of the output; kernel_size, stride, dilation: one number for each axis
    odd: whether some axis is padded, or cut, by an odd amount
    planned: the plan that the planner chose; plans: the contestant of each plan, by the plan's name
    reference: the contestant whose ratio is 1; unit: "s", seconds per call
    figures: by contestant {"ratio", "median", "quartiles": [low, high], "rounds"}

>>> from mxsame import bench
>>> layer = bench.Layer("conv 3-8 k3 s2", "conv", 3, (32, 32), 8, 3, 2, batch=1)
>>> row = bench.measure(layer, rounds=1)
>>> row["reference"], row["figures"]["symmetric"]["ratio"], row["planned"] in row["plans"]
('symmetric', 1.0, True)
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from mxsame import __version__, _timing, graph, validation
from mxsame._mxnet import mx
from mxsame.bench import figures, layers
from mxsame.bench.layers import PLANNER, Layer

__all__ = ["LAYERS", "CannotRun", "Layer", "as_data", "measure"]

Device = Tuple[str, int]  # "cpu" or "gpu", and its number


class CannotRun(RuntimeError):
    """What is to be measured does not run here."""


LAYERS = (
    Layer("stem 3-32 k3 s2", "conv", 3, (224, 224), 32, 3, 2, batch=1),
    Layer("conv 64-128 k3 s2", "conv", 64, (56, 56), 128, 3, 2, batch=1),
    Layer("depthwise 64 k3 s2", "depthwise", 64, (112, 112), 64, 3, 2, batch=1),
    Layer("max pool 64 k3 s2", "max", 64, (112, 112), 64, 3, 2, batch=1),
    Layer("avg pool 64 k2 s2", "avg", 64, (55, 55), 64, 2, 2, batch=1),
    Layer("transposed 64-32 k3 s2", "transposed", 64, (28, 28), 32, 3, 2, batch=1),
)


def measure(layer: Layer, train: bool = False, device: Device = ("cpu", 0), **timing: Any) -> dict:
    """One row: mxsame by each plan for the known size and by the planner's for an unknown one, and explicit padding,
    against MXNet's symmetric padding.

    "plans" names the contestant of each plan, "planned" the plan that the planner chose. A transposed convolution that
    has cells of bias alone has no explicit contestant.

    Raises `ValueError` for a layer that cannot be, and `CannotRun` where MXNet has no such device or gives up.
    """
    validation.per_axis("size", layer.size, layer.rank, 1)
    validation.elements("data", layer.shape)
    try:
        with context(device):
            return _row(layer, train, timing)
    except mx.base.MXNetError as error:
        raise CannotRun(f"{layer.name} does not run here; MXNet says: {graph.reason(error)}") from error


def context(device: Device) -> Any:
    """The device as MXNet knows it; `CannotRun` where it does not."""
    kind, number = device
    try:
        there = kind == "cpu" or number < mx.context.num_gpus()
    except mx.base.MXNetError:  # a driver without GPUs, or one that does not answer
        there = False
    if not there:
        raise CannotRun(f"MXNet finds no GPU {number} here; `mxsame doctor` says why.")
    return mx.Context(kind, number)


def as_data(rows: Sequence[dict], device: Device) -> dict:
    """What was measured, as `mxsame bench --json` prints it."""
    return {
        "mxsame": __version__,
        "device": "{}:{}".format(*device),
        "provenance": figures.provenance(device),
        "rows": list(rows),
    }


def _row(layer: Layer, train: bool, timing: dict) -> dict:
    data = layers.inputs(layer, train)
    calls, same = layers.plans(layer, True, train, data)
    planned = same[0]
    plans = {planned if name == PLANNER else name: call for name, call in calls.items()}
    nets = {"symmetric": layers.symmetric(layer), "size unknown": layers.unknown(layer)}
    contestants = {name: layers.call(net, data, train) for name, net in nets.items()}
    recipe = layers.explicit(layer)
    if recipe is not None:
        contestants["explicit"] = layers.call(recipe, data, train)
    known = {f"size known, {name}": call for name, call in plans.items()}
    found = _timing.measure({**contestants, **known}, **timing)
    order = ["symmetric", *known, *(name for name in contestants if name != "symmetric")]
    return figures.row(
        layer.name,
        "forward and backward" if train else "forward",
        {name: found[name] for name in order},
        "symmetric",
        kind=layer.kind,
        shape=layer.shape,
        channels=layer.channels,
        kernel_size=[window.kernel_size for window in layer.windows],
        stride=[window.stride for window in layer.windows],
        dilation=[window.dilation for window in layer.windows],
        odd=layer.odd,
        planned=planned,
        plans={name: f"size known, {name}" for name in plans},
    )
