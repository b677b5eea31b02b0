"""What SAME costs here: the layers of `mxsame bench`, compared with MXNet's own symmetric padding.

`mxsame bench --json` prints `as_data`::

    {"mxsame": version, "device": "cpu:0", "provenance": {date, CPU, versions and so on}, "rows": [row, ...]}

    row: {"name": .., "kind": .., "mode": .., "shape": .., "channels": .., "kernel_size": .., "stride": ..,
          "dilation": .., "odd": .., "planned": .., "plans": .., "reference": .., "unit": .., "figures": ..}
    mode: "forward", or "forward and backward"
    shape: of the data; channels: of the output; kernel_size, stride, dilation: one number for each axis
    odd: whether some axis is padded, or cropped, by an odd amount
    planned: the plan that the planner chose; plans: the variant of each plan, by the plan's name
    reference: the variant whose ratio is 1; unit: "s", seconds per call
    figures: by variant {"ratio", "median", "quartiles": [low, high], "rounds"}

>>> from mxsame import bench
>>> layer = bench.Layer("conv 3-8 k3 s2", "conv", 3, (32, 32), 8, 3, 2, batch=1)
>>> row = bench.measure(layer, rounds=1)
>>> row["reference"], row["figures"]["symmetric"]["ratio"], row["planned"] in row["plans"]
('symmetric', 1.0, True)
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from mxsame import __version__, _timing, validation
from mxsame._mxnet import mx
from mxsame.bench import figures, layers
from mxsame.bench.layers import PLANNER, Layer
from mxsame.graphs import tracing

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
    """One row: mxsame by each plan for the static shape and by the planner's for a dynamic one, and explicit padding,
    against MXNet's symmetric padding.

    "plans" names the variant of each plan, "planned" the plan that the planner chose. A transposed convolution with
    outputs that hold only the bias has no explicit variant.

    Raises `ValueError` for a layer that cannot be, and `CannotRun` where MXNet has no such device or gives up.
    """
    validation.per_axis("size", layer.size, layer.rank, 1)
    validation.elements("data", layer.shape)
    try:
        with context(device):
            return _row(layer, train, timing)
    except mx.base.MXNetError as error:
        raise CannotRun(f"{layer.name} does not run here; MXNet says: {tracing.reason(error)}") from error


def context(device: Device) -> Any:
    """MXNet's name for the device; `CannotRun` if MXNet does not find it."""
    kind, number = device
    try:
        found = kind == "cpu" or number < mx.context.num_gpus()
    except mx.base.MXNetError:  # a driver without GPUs, or one that does not answer
        found = False
    if not found:
        raise CannotRun(f"MXNet finds no GPU {number} here; `mxsame doctor` shows why.")
    return mx.Context(kind, number)


def as_data(rows: Sequence[dict], device: Device) -> dict:
    """What was measured, as `mxsame bench --json` prints it."""
    provenance = figures.provenance(device)
    return {"mxsame": __version__, "device": "{}:{}".format(*device), "provenance": provenance, "rows": list(rows)}


def _row(layer: Layer, train: bool, timing: dict) -> dict:
    data = layers.inputs(layer, train)
    calls, alike = layers.plans(layer, True, train, data)
    plans = {alike[0] if name == PLANNER else name: call for name, call in calls.items()}
    static = {f"size known, {name}": call for name, call in plans.items()}
    nets = {"size unknown": layers.same(layer, False), "explicit": layers.explicit(layer)}
    others = {name: layers.call(net, data, train) for name, net in nets.items() if net is not None}
    baseline = {"symmetric": layers.call(layers.symmetric(layer), data, train)}
    return figures.row(
        layer.name,
        "forward and backward" if train else "forward",
        _timing.measure({**baseline, **static, **others}, **timing),
        "symmetric",
        kind=layer.kind,
        shape=layer.shape,
        channels=layer.channels,
        **{name: [getattr(x, name) for x in layer.windows] for name in ("kernel_size", "stride", "dilation")},
        odd=layer.odd,
        planned=alike[0],
        plans={name: f"size known, {name}" for name in plans},
    )
