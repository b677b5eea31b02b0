"""What the package has to reach, and what it aims for, compared with what result files hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Tuple

from benchmarks import results
from benchmarks.planner import EXPLICIT, SYMMETRIC
from benchmarks.results import geometric_mean, ratio
from benchmarks.variants import PLANNER

Tables = Dict[str, List[dict]]  # the rows of every result file, by table


def worst(values: List[float]) -> float:
    return max(values, default=math.nan)


@dataclass(frozen=True)
class Target:
    """A summary of figures over the rows of one mode, the value it must keep and the one it aims at.

    The figures are ratios of `variant` to `to`, by default to the row's reference, or else ("loss") what the planner
    lost.
    """

    name: str
    table: str
    mode: str
    variant: str
    summary: Callable[[List[float]], float]
    must: float
    aim: float
    to: str = ""
    only: Callable[[dict], bool] = lambda row: True

    def figure(self, tables: Tables) -> float:
        rows = [row for row in tables.get(self.table, []) if row["mode"] == self.mode and self.only(row)]
        figures = [row["loss"] if self.variant == "loss" else ratio(row, self.variant, self.to) for row in rows]
        return self.summary([value for value in figures if not math.isnan(value)])

    def verdict(self, figure: float) -> str:
        if math.isnan(figure):
            return "not measured"
        for limit, word in ((self.aim, "aim reached"), (self.must, "met")):
            if figure <= limit:
                return word
        return "NOT MET"


LARGE, MOBILE = ("resnet50", "vgg16", "inceptionv3", "unet"), ("mobilenet", "mobilenetv2")
STATIC, DYNAMIC = "mxsame, static shape", "mxsame, dynamic shape"
TARGETS = (
    Target("layers, static shape: geometric mean", "layers", "forward", STATIC, geometric_mean, 1.08, 1.03),
    Target("layers, static shape: worst", "layers", "forward", STATIC, worst, 1.35, 1.15),
    Target("layers, dynamic shape: geometric mean", "layers", "forward", DYNAMIC, geometric_mean, 1.25, 1.10),
    Target("layers, dynamic shape: worst", "layers", "forward", DYNAMIC, worst, 2.0, 1.4),
    Target(
        "layers with odd padding: compared with explicit pad",
        *("layers", "forward", STATIC, geometric_mean, 0.77, 0.67, EXPLICIT),
        only=lambda row: row["odd"],
    ),
    *(
        target
        for mode, variant, must in (
            ("inference", "mxsame", 1.05),
            ("training step", "mxsame", 1.10),
            ("inference, deployed", "mxsame, deployed", 1.05),
        )
        for target in (
            Target(f"networks, {mode}: worst", "networks", mode, variant, worst, must, 1.05 if must > 1.05 else 1.02),
            Target(
                f"networks, {mode}: worst compared with explicit pad",
                *("networks", mode, variant, worst, 1.0, 1.0),
                to=EXPLICIT + ", deployed" * ("deployed" in mode),
            ),
        )
    ),
    *(
        Target(f"planner's loss, {shape} shape, {name}: {word}", table, f"{shape} shape, forward", "loss", *limits)
        for table, name in (("planner", "known layers"), ("sampled", "layers drawn at random"))
        for shape in ("static", "dynamic")
        for word, *limits in (("geometric mean", geometric_mean, 1.03, 1.02), ("worst", worst, 1.4, 1.15))
    ),
    *(
        Target(f"layers drawn at random, {shape} shape: {word}", "sampled", f"{shape} shape, forward", *limits)
        for shape, mean, most in (("static", (1.08, 1.04), (1.4, 1.2)), ("dynamic", (1.35, 1.2), (2.5, 2.0)))
        for word, *limits in (
            ("geometric mean", PLANNER, geometric_mean, *mean, SYMMETRIC),
            ("worst", PLANNER, worst, *most, SYMMETRIC),
            ("worst compared with explicit pad", PLANNER, worst, 1.05, 1.0, EXPLICIT),
        )
    ),
    *(
        Target(
            f"{name}, {mode}, compared with TensorFlow: {word}",
            *("networks", f"{mode}, compared with TensorFlow", variant, summary, must, must - 0.1, "TensorFlow"),
            only=lambda row, names=names: row["network"] in names,
        )
        for name, names, mode, variant, word, summary, must in (
            ("networks", LARGE + MOBILE, "inference", "mxsame, deployed", "geometric mean", geometric_mean, 0.75),
            ("networks", LARGE + MOBILE, "inference", "mxsame, deployed", "worst", worst, 1.0),
            ("large networks", LARGE, "training step", "mxsame", "worst", worst, 1.0),
            ("MobileNets", MOBILE, "training step", "mxsame", "worst", worst, 1.5),
        )
    ),
    Target("after a team of the calling thread", "threads", "inference, deployed", "after", worst, 1.05, 1.02),
    Target("convert: peak memory compared with the weights", "convert", "peak memory", "mxsame", worst, 2.0, 1.5),
    Target(
        "ONNX Runtime, mxsame's file compared with tf2onnx's: worst",
        *("onnx", "inference", "ONNX Runtime, mxsame's file", worst, 1.02, 1.0, "ONNX Runtime, tf2onnx's file"),
    ),
    Target(
        "100 sizes in turn compared with one at a time: worst",
        *("sizes", "steady state", "sizes in turn", worst, 1.05, 1.00),
        only=lambda row: row["variant"] == "mxsame" and row["count"] == 100,
    ),
)


def read(folder: Path) -> Tables:
    """The rows of all result files in a folder, by table."""
    tables: Tables = {}
    for path in sorted(folder.glob("*.json")):
        result = results.load(path)
        tables.setdefault(result["table"], []).extend(result["rows"])
    return tables


def judge(tables: Tables) -> List[Tuple[Target, float, str]]:
    """(target, figure, "aim reached", "met", "NOT MET" or "not measured") of each."""
    return [(each, figure, each.verdict(figure)) for each in TARGETS for figure in [each.figure(tables)]]


def show(judged: List[Tuple[Target, float, str]]) -> None:
    lines = []
    for target, figure, verdict in judged:
        limits = (f"≤ {limit:.2f}" for limit in (target.must, target.aim))
        lines.append([target.name, "-" if math.isnan(figure) else f"{figure:.3f}", *limits, verdict])
    results.print_table("Targets", ["target", "measured", "must", "aim", ""], lines)
