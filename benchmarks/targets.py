"""What the package has to reach, and what it aims for, against what result files say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from rich.table import Table

from benchmarks import results
from benchmarks.results import geometric_mean, ratio

Tables = Dict[str, List[dict]]  # the rows of every result file, by table


@dataclass(frozen=True)
class Target:
    """A figure, the limit it must keep and the one it aims at. Of a speed-up more is better, of all else less."""

    name: str
    figure: Callable[[Tables], float]
    must: float
    aim: float
    more_is_better: bool = False

    def reached(self, figure: float, limit: float) -> bool:
        return figure >= limit if self.more_is_better else figure <= limit


def worst(values: List[float]) -> float:
    return max(values, default=math.nan)


def over(
    table: str,
    mode: str,
    contestant: str,
    summary: Callable[[List[float]], float],
    to: str = "",
    only: Callable[[dict], bool] = lambda row: True,
) -> Callable[[Tables], float]:
    """A summary of the ratios of a contestant, over the rows of one mode that have it."""

    def figure(tables: Tables) -> float:
        rows = [row for row in tables.get(table, []) if row["mode"] == mode and only(row)]
        ratios = [ratio(row, contestant, to) for row in rows]
        return summary([value for value in ratios if not math.isnan(value)])

    return figure


def speedup(figure: Callable[[Tables], float]) -> Callable[[Tables], float]:
    """How many times faster, of how much of the time."""
    return lambda tables: 1 / figure(tables)


def losses(mode: str, summary: Callable[[List[float]], float]) -> Callable[[Tables], float]:
    """Of the planner against the best of its plans."""
    return lambda tables: summary([row["loss"] for row in tables.get("planner", []) if row["mode"] == mode])


def _is_mobilenetv2_alone(row: dict) -> bool:
    return row["network"] == "mobilenetv2" and row["batch"] == 1


def _is_mxsame_with_100_sizes(row: dict) -> bool:
    return row["contestant"] == "mxsame" and row["count"] == 100


KNOWN, UNKNOWN = "mxsame, size known", "mxsame, size unknown"
BESIDE = "inference, beside TensorFlow"
TARGETS = (
    Target("layers, size known: geometric mean", over("layers", "forward", KNOWN, geometric_mean), 1.08, 1.03),
    Target("layers, size known: worst", over("layers", "forward", KNOWN, worst), 1.35, 1.15),
    Target("layers, size unknown: geometric mean", over("layers", "forward", UNKNOWN, geometric_mean), 1.25, 1.10),
    Target("layers, size unknown: worst", over("layers", "forward", UNKNOWN, worst), 2.0, 1.4),
    Target("networks, inference: worst", over("networks", "inference", "mxsame", worst), 1.05, 1.02),
    Target("networks, training step: worst", over("networks", "training step", "mxsame", worst), 1.10, 1.05),
    Target("networks, deployed: worst", over("networks", "inference, deployed", "mxsame, deployed", worst), 1.05, 1.02),
    Target(
        "layers with odd padding: times faster than explicit pad",
        speedup(over("layers", "forward", KNOWN, geometric_mean, "explicit pad", lambda row: row["odd"])),
        1.3,
        1.5,
        more_is_better=True,
    ),
    Target(
        "networks, inference: worst against explicit pad",
        over("networks", "inference", "mxsame", worst, "explicit pad"),
        1.0,
        1.0,
    ),
    Target(
        "networks, training step: worst against explicit pad",
        over("networks", "training step", "mxsame", worst, "explicit pad"),
        1.0,
        1.0,
    ),
    Target(
        "networks, deployed: worst against explicit pad",
        over("networks", "inference, deployed", "mxsame, deployed", worst, "explicit pad, deployed"),
        1.0,
        1.0,
    ),
    Target("planner, size known: geometric mean", losses("size known, forward", geometric_mean), 1.02, 1.01),
    Target("planner, size known: worst", losses("size known, forward", worst), 1.10, 1.05),
    Target("planner, size unknown: geometric mean", losses("size unknown, forward", geometric_mean), 1.02, 1.01),
    Target("planner, size unknown: worst", losses("size unknown, forward", worst), 1.10, 1.05),
    Target(
        "MobileNetV2 deployed, batch 1: times faster than TensorFlow",
        speedup(over("networks", BESIDE, "mxsame, deployed", worst, "TensorFlow", _is_mobilenetv2_alone)),
        1.5,
        2.0,
        more_is_better=True,
    ),
    Target(
        "100 sizes in turn against one at a time: worst",
        over("sizes", "steady state", "sizes in turn", worst, only=_is_mxsame_with_100_sizes),
        1.05,
        1.00,
    ),
)


def read(folder: Path) -> Tables:
    """The rows of all result files in a folder, by table."""
    tables: Tables = {}
    for path in sorted(folder.glob("*.json")):
        result = results.load(path)
        tables.setdefault(result["table"], []).extend(result["rows"])
    return tables


def judge(tables: Tables) -> List[Tuple[Target, float, Optional[str]]]:
    """(target, figure, "aim" or "must" or "missed") of each; None where no result file has the figure."""
    judged = []
    for target in TARGETS:
        figure = target.figure(tables)
        verdict: Optional[str] = None
        if not math.isnan(figure):
            verdict = next(
                (word for word in ("aim", "must") if target.reached(figure, getattr(target, word))), "missed"
            )
        judged.append((target, figure, verdict))
    return judged


def as_table(judged: List[Tuple[Target, float, Optional[str]]]) -> Table:
    table = Table(title="Targets")
    for column in ("target", "measured", "must", "aim"):
        table.add_column(column, justify="left" if column == "target" else "right")
    table.add_column("")
    words = {"aim": "aim reached", "must": "met", "missed": "NOT MET", None: "not measured"}
    for target, figure, verdict in judged:
        sign = "≥" if target.more_is_better else "≤"
        measured = "-" if verdict is None else f"{figure:.3f}"
        table.add_row(target.name, measured, f"{sign} {target.must:.2f}", f"{sign} {target.aim:.2f}", words[verdict])
    return table
