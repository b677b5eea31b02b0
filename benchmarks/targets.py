"""What the package has to reach, compared with what result files hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Collection, Dict, List, Optional, Tuple

from benchmarks import onnx, results
from benchmarks.networks import NARROW
from benchmarks.results import geometric_mean, ratio
from benchmarks.sizes import IN_TURN, ONE
from benchmarks.variants import EXPLICIT, PLANNER, SYMMETRIC

Tables = Dict[str, List[dict]]  # the rows of every result file, by table


def worst(values: List[float]) -> float:
    return max(values, default=math.nan)


@dataclass(frozen=True)
class Target:
    """What a summary of ratios over the rows of one mode may be at most.

    The ratios are those of `variant` to `to`, by default to the row's reference, or else ("loss") what the planner
    lost; `only` has the networks, or other names of rows, that count.
    """

    table: str
    mode: str
    variant: str
    to: str
    summary: Callable[[List[float]], float]
    must: float
    only: Optional[Collection[str]] = None

    @property
    def name(self) -> str:
        rows = f" ({', '.join(self.only)})" if self.only else ""
        compared = self.variant + f" / {self.to}" * bool(self.to)
        return f"{self.table}, {self.mode}{rows}: {compared}, {self.summary.__name__.replace('_', ' ')}"

    def figure(self, tables: Tables) -> float:
        rows = [row for row in tables.get(self.table, []) if row["mode"] == self.mode]
        rows = [row for row in rows if not self.only or {row.get("network"), row["name"]}.intersection(self.only)]
        figures = [row["loss"] if self.variant == "loss" else ratio(row, self.variant, self.to) for row in rows]
        return self.summary([value for value in figures if not math.isnan(value)])

    def verdict(self, figure: float) -> str:
        if math.isnan(figure):
            return "not measured"
        return "met" if figure <= self.must else "NOT MET"


def limits(
    table: str,
    mode: str,
    variant: str,
    to: str = "",
    most: float = math.nan,
    mean: float = math.nan,
    only: Optional[Collection[str]] = None,
) -> List[Target]:
    """Targets for the geometric mean and the worst, or for one of them."""
    given = ((geometric_mean, mean), (worst, most))
    return [Target(table, mode, variant, to, *each, only) for each in given if not math.isnan(each[1])]


STATIC, DYNAMIC, DEPLOYED = "mxsame, static shape", "mxsame, dynamic shape", "mxsame, deployed"
INFERENCE, TRAINING, TENSORFLOW = "inference, deployed", "training step", "TensorFlow"
TARGETS = (
    *limits("layers", "forward", STATIC, SYMMETRIC, mean=1.10, most=1.5),
    *limits("layers", "forward", DYNAMIC, SYMMETRIC, mean=1.30, most=4),
    *limits("layers", "forward", STATIC, EXPLICIT, mean=0.77),
    *limits("networks", "inference", "mxsame", SYMMETRIC, most=1.04),
    *limits("networks", "inference", "mxsame", EXPLICIT, most=1.0),
    *limits("networks", INFERENCE, DEPLOYED, "symmetric, deployed", most=1.04),
    *limits("networks", INFERENCE, DEPLOYED, f"{EXPLICIT}, deployed", most=1.0),
    *limits("networks-train", TRAINING, "mxsame", "symmetric, rewritten", most=1.04),
    *limits("networks-train", TRAINING, "mxsame", "explicit pad, rewritten", most=1.0),
    *limits("networks", f"inference, compared with {TENSORFLOW}", DEPLOYED, TENSORFLOW, most=1.0),
    *(
        target
        for most, only in ((1.4, ("mobilenet", "mobilenetv2")), (1.05, ("unet", "inceptionv3", "xception")))
        for target in limits(
            "networks-train", f"{TRAINING}, compared with {TENSORFLOW}", "mxsame", TENSORFLOW, most, only=only
        )
    ),
    *limits("networks", INFERENCE, NARROW, DEPLOYED, most=1.0),
    *limits("networks", INFERENCE, NARROW, DEPLOYED, most=0.67, only=("resnet50", "vgg16", "inceptionv3")),
    *limits("peers", INFERENCE, DEPLOYED, TENSORFLOW, most=1.0),
    *limits("peers", INFERENCE, DEPLOYED, "ONNX Runtime", mean=1.10, most=1.3),
    *limits("peers", INFERENCE, DEPLOYED, "OpenVINO", mean=1.10, most=1.3),
    *limits("onnx", "inference", onnx.DEPLOYED, onnx.TENSORFLOW, most=1.3, only=onnx.SMALL),
    *limits("onnx", "inference", onnx.OURS, onnx.THEIRS, most=1.02),
    *limits("calls", "call", "mxsame", SYMMETRIC, most=1.13, only=("Conv2D, hybridized",)),
    *limits("calls", "call", "mxsame", SYMMETRIC, most=1.2, only=("Conv2D, deployed",)),
    *limits("planner", "static shape, forward", "loss", mean=1.03, most=1.4),
    *limits("planner", "dynamic shape, forward", "loss", mean=1.03, most=1.4),
    *limits("sampled", "static shape, forward", "loss", mean=1.03, most=1.4),
    *limits("sampled", "dynamic shape, forward", "loss", mean=1.03, most=1.4),
    *limits("sampled", "static shape, forward", PLANNER, SYMMETRIC, mean=1.10, most=1.5),
    *limits("sampled", "dynamic shape, forward", PLANNER, SYMMETRIC, mean=1.30, most=4),
    *limits("sampled", "static shape, forward", PLANNER, EXPLICIT, most=1.05),
    *limits("sampled", "dynamic shape, forward", PLANNER, EXPLICIT, most=1.05),
    *limits("convert", "peak memory", "mxsame", "weights", most=2.0),
    *limits("sizes", "steady state", IN_TURN, ONE, most=1.05, only=("100 squares, mxsame", "100 rectangles, mxsame")),
)


def read(folder: Path) -> Tables:
    """The rows of all result files in a folder, by table."""
    tables: Tables = {}
    for path in sorted(folder.glob("*.json")):
        result = results.load(path)
        tables.setdefault(result["table"], []).extend(result["rows"])
    return tables


def judge(tables: Tables) -> List[Tuple[Target, float, str]]:
    """(target, figure, "met", "NOT MET" or "not measured") of each."""
    return [(each, figure, each.verdict(figure)) for each in TARGETS for figure in [each.figure(tables)]]


def show(judged: List[Tuple[Target, float, str]]) -> None:
    lines = [
        [target.name, "-" if math.isnan(figure) else f"{figure:.3f}", f"≤ {target.must:.2f}", verdict]
        for target, figure, verdict in judged
    ]
    results.print_table("Targets", ["target", "measured", "must", ""], lines)
