"""Layers on a GPU: the time of every exact plan compared with symmetric padding, and what the planner's choice costs.

Times of plans stay true when the planner changes, so a file of them shows what a later planner's choices cost: `choice`
gives the planner's plan of a row, and `loss` its time compared with that of the fastest.
"""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from benchmarks import results
from benchmarks.timing import measure as timed
from benchmarks.variants import KINDS, PLANNER, Layer, call, explicit, inputs, plans, symmetric
from mxsame._mxnet import mx
from mxsame.plan import STRATEGIES, TransposedWindow, exact_plans, strategies_for
from mxsame.plan.recipe import Plan
from mxsame.plan.windows import Windows
from mxsame.planner import Workload, fastest_plan

SYMMETRIC, EXPLICIT = "symmetric", "explicit pad"
TOLERANCE = {"float32": 2e-3, "float16": 2e-2}  # between plans, whose convolutions may run in TF32
NO_GPU = "a GPU is needed that MXNet can use, and MXNet sees none; `mxsame doctor` reports what is missing"


@dataclasses.dataclass(frozen=True)
class Mode:
    """How layers run: a row has it under "run"."""

    static: bool = True
    train: bool = False
    dtype: str = "float32"
    channels_last: bool = False

    @property
    def title(self) -> str:
        """
        >>> Mode(train=True).title
        'static shape, forward and backward, float32, channels first'
        """
        layout = "last" if self.channels_last else "first"
        steps = "forward and backward" if self.train else "forward"
        return f"{'static' if self.static else 'dynamic'} shape, {steps}, {self.dtype}, channels {layout}"


MODES = (Mode(), Mode(train=True), Mode(static=False), Mode(dtype="float16", channels_last=True))


def _layer(kind: str, in_channels: int, size: Tuple[int, ...], channels: int, kernel_size: int, stride: int) -> Layer:
    name = f"{kind} {in_channels}-{channels} k{kernel_size} s{stride}, {'x'.join(map(str, size))}"
    return Layer(name, kind, in_channels, size, channels, kernel_size, stride, batch=8 if len(size) == 3 else 32)


LAYERS = [
    _layer("conv", 3, (224, 224), 64, 7, 2),
    _layer("conv", 3, (224, 224), 32, 3, 2),
    _layer("conv", 64, (112, 112), 128, 3, 2),
    _layer("conv", 128, (56, 56), 256, 3, 2),
    _layer("conv", 256, (28, 28), 512, 3, 2),
    _layer("conv", 64, (56, 56), 64, 3, 1),
    _layer("conv", 64, (56, 56), 64, 4, 1),
    _layer("conv", 64, (56, 56), 64, 2, 1),
    _layer("conv", 64, (56, 56), 128, 5, 2),
    _layer("conv", 64, (56, 56), 128, 4, 2),
    _layer("conv", 256, (56, 56), 512, 1, 2),
    _layer("depthwise", 96, (112, 112), 96, 3, 2),
    _layer("depthwise", 144, (56, 56), 144, 3, 2),
    _layer("depthwise", 144, (56, 56), 144, 5, 2),
    _layer("depthwise", 384, (28, 28), 384, 3, 1),
    _layer("max", 64, (112, 112), 64, 3, 2),
    _layer("max", 64, (113, 113), 64, 2, 2),
    _layer("max", 192, (56, 56), 192, 3, 1),
    _layer("max", 64, (56, 56), 64, 2, 1),
    _layer("avg", 192, (56, 56), 192, 3, 1),
    _layer("avg", 64, (56, 56), 64, 3, 2),
    _layer("avg", 64, (57, 57), 64, 2, 2),
    _layer("transposed", 64, (32, 32), 32, 3, 2),
    _layer("transposed", 64, (32, 32), 32, 4, 2),
    _layer("transposed", 64, (32, 32), 32, 5, 2),
    _layer("transposed", 256, (16, 16), 128, 5, 2),
    _layer("conv", 64, (4000,), 64, 8, 4),
    _layer("conv", 1, (16000,), 64, 80, 4),
    _layer("max", 64, (4000,), 64, 3, 2),
    _layer("max", 64, (4001,), 64, 2, 2),
    _layer("conv", 16, (16, 56, 56), 32, 3, 2),
    _layer("conv", 32, (16, 28, 28), 32, 3, 1),
    _layer("max", 32, (16, 56, 56), 32, 3, 2),
    _layer("avg", 32, (16, 57, 57), 32, 2, 2),
]


def tasks() -> Iterator[Tuple[Mode, Layer]]:
    """Every mode with the layers that it has: with channels last, cuDNN has images and no groups."""
    for mode in MODES:
        for layer in LAYERS:
            if not mode.channels_last or (layer.rank == 2 and layer.kind != "depthwise"):
                yield mode, dataclasses.replace(layer, dtype=mode.dtype, channels_last=mode.channels_last)


# -- on a GPU


def check_gpu() -> None:
    """Raises `RuntimeError` if there is no GPU."""
    if not mx.context.num_gpus():
        raise RuntimeError(NO_GPU)


def facts() -> Dict[str, str]:
    """The GPU, its driver and cuDNN's version, as the driver and the library report them."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    cudnn = ctypes.CDLL("libcudnn.so.8").cudnnGetVersion()
    return {"gpu": name, "driver": driver, "cudnn": f"{cudnn // 1000}.{cudnn // 100 % 10}.{cudnn % 100}"}


def measure(mode: Mode, layer: Layer, **timing: Any) -> dict:
    """One row, measured on the current GPU: the planner, each other exact plan, symmetric and explicit padding."""
    with mx.gpu(mx.context.current_context().device_id):
        data = inputs(layer, mode.train)
        calls, alike = plans(layer, mode.static, mode.train, data)
        if not mode.train:
            _check_values(calls, TOLERANCE[mode.dtype])
        others = {SYMMETRIC: symmetric(layer), EXPLICIT: explicit(layer)}
        calls.update({name: call(net, data, mode.train) for name, net in others.items() if net is not None})
        facts_of_row = {"layer": dataclasses.asdict(layer), "run": dataclasses.asdict(mode), "planned": alike}
        row = results.row(layer.name, mode.title, timed(calls, **timing), SYMMETRIC, **facts_of_row)
    for name in alike:  # the same graph
        row["figures"].setdefault(name, row["figures"][PLANNER])
    return row


def _check_values(calls: Dict[str, Any], tolerance: float) -> None:
    """Raises `RuntimeError` unless all plans give the same."""
    outputs = {name: made().asnumpy().astype(np.float32) for name, made in calls.items()}
    want = outputs[PLANNER]
    for name, got in outputs.items():
        difference = np.abs(got - want).max() / np.abs(want).max()
        if not difference <= tolerance:
            raise RuntimeError(f"{name} must give what the planner's plan gives; received a difference of {difference}")


# -- of records


def geometry(row: dict) -> Tuple[Windows, Workload]:
    """Returns the windows and the workload of a row."""
    layer, run = Layer(**{**row["layer"], "size": tuple(row["layer"]["size"])}), row["run"]
    windows: List[Any] = layer.windows
    if layer.kind == "transposed":
        axes = zip(windows, layer.pads)
        windows = [TransposedWindow(x.size, x.kernel_size, x.stride, x.dilation, crop) for x, crop in axes]
    if not run["static"]:
        windows = [dataclasses.replace(window, size=None) for window in windows]
    work = Workload(
        KINDS[layer.kind][2],
        layer.batch,
        layer.in_channels,
        layer.channels,
        layer.in_channels if layer.kind == "depthwise" else 1,
        plain=True,
        purpose="training" if run["train"] else "inference",
        device="gpu",
        channels_last=run["channels_last"],
    )
    return tuple(windows), work


def timed_plans(row: dict) -> Dict[str, Plan]:
    """Returns the exact plans of a row that were timed, by strategy; none if MXNet's own padding is exact."""
    windows, work = geometry(row)
    names = strategies_for(work.operator)
    allowed = [name for name in names if STRATEGIES[name].channels_last or not work.channels_last]
    exact = exact_plans(windows, work.operator, allowed)
    return {name: plan for name, plan in exact.items() if name in row["figures"] and name != "native"}


def choice(row: dict) -> str:
    """Returns the strategy of the plan, of those that were timed, that the planner has now for a row; where MXNet's own
    padding is exact, the planner as it was timed."""
    timed_here, (windows, work) = timed_plans(row), geometry(row)
    if not timed_here:
        return PLANNER
    plan = fastest_plan(windows, work, ["native", *timed_here])
    return next(name for name, each in timed_here.items() if each.axes == plan.axes)


def fastest(row: dict) -> float:
    """Returns the time of the fastest exact plan of a row."""
    return min(row["figures"][name]["median"] for name in timed_plans(row) or [PLANNER])


def loss(row: dict) -> float:
    """Returns the time of the planner's plan compared with that of the fastest."""
    return float(row["figures"][choice(row)]["median"] / fastest(row))
