"""What the package has to reach, compared with what result files hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Collection, Dict, Iterator, List, Optional, Tuple

from benchmarks import results
from benchmarks.results import geometric_mean, ratio

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


def targets(line: str) -> Iterator[Target]:
    """Those of a line of targets.txt: for the geometric mean and the worst, or for one of them."""
    table, mode, variant, to, *most, only = (entry.strip() for entry in line.split("|"))
    for summary, limit in zip((geometric_mean, worst), most):
        if limit:
            yield Target(table, mode, variant, to, summary, float(limit), only.split("; ") if only else None)


LINES = Path(__file__).with_name("targets.txt").read_text(encoding="utf-8").splitlines()
TARGETS = [target for line in LINES[1:] for target in targets(line)]


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
