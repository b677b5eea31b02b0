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
from benchmarks.variants import KINDS, PLANNER, SYMMETRIC, Layer, inputs, others, plans, table
from mxsame._mxnet import mx
from mxsame.plan import STRATEGIES, TransposedWindow, exact_plans, strategies_for
from mxsame.plan.recipe import Plan
from mxsame.plan.windows import Windows
from mxsame.planner import Workload, fastest_plan

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
LAYERS = table("GPU")


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
        calls.update(others(layer, mode.train, data))
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
    groups, purpose = layer.in_channels if layer.kind == "depthwise" else 1, "training" if run["train"] else "inference"
    sizes = KINDS[layer.kind][2], layer.batch, layer.in_channels, layer.channels, groups
    return tuple(windows), Workload(*sizes, True, purpose, "gpu", channels_last=run["channels_last"])


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


def loss(row: dict) -> float:
    """Returns the time of the planner's plan compared with that of the fastest exact one."""
    fastest = min(row["figures"][name]["median"] for name in timed_plans(row) or [PLANNER])
    return float(row["figures"][choice(row)]["median"] / fastest)
