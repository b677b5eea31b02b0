"""What `mxsame bench` prints."""

from __future__ import annotations

from typing import Any, List, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mxsame import bench
from mxsame.bench.figures import geometric_mean, ratio

LEGEND = (
    "Ratios of medians, lower is better; 1.00 is MXNet's own operator with symmetric padding, which computes something "
    "else. * marks the planner's choice, which runs; mxsame.autotune finds and remembers faster plans in whole nets. "
    "Static shape: mxsame.hybridize; dynamic: net.hybridize. Explicit: the pad operator, then VALID (a transposed "
    "convolution: VALID, then a slice)"
)
AVERAGES = "; in averages it counts the padding, which is not SAME either"
FASTER = 0.95  # a plan is called faster below this part of the planner's time: the least of noisy medians is flattered
SHAPES = {"size known": "static shape", "size unknown": "dynamic shape"}  # of the names in the rows


def run(console: Console, layers: Sequence[Any], train: bool, device: bench.Device, rounds: int) -> None:
    """Measures the layers, and prints one table: of the plans of one layer, or of several layers."""
    rows: List[dict] = []
    with console.status("", spinner="line") as status:
        for layer in layers:
            status.update(f"measuring {layer.name}")
            rows.append(bench.measure(layer, train, device, rounds=rounds))
    where = "on the CPU" if device[0] == "cpu" else f"on GPU {device[1]}"
    console.print(one(rows[0], where) if len(rows) == 1 else several(rows, where))
    console.print(Text(f"{LEGEND}{AVERAGES * any(row['kind'] == 'avg' for row in rows)}.", "dim"))


def one(row: dict, where: str) -> Table:
    """Every variant, with its quartiles."""
    table = headed(f"{row['name']}, batch {row['shape'][0]}: {row['mode']}, {where}", "", "ms", "quartiles", "ratio")
    planned = row["plans"][row["planned"]]
    for name, figure in row["figures"].items():
        way, comma, plan = name.partition(", ")
        cells = [f"{1e3 * figure['median']:.3f}", "{:.3f} to {:.3f}".format(*(1e3 * x for x in figure["quartiles"]))]
        mark, style = (" *", "bold") if name == planned else ("", "dim" if name == row["reference"] else "")
        table.add_row(f"{SHAPES.get(way, way)}{comma}{plan}{mark}", *cells, f"{figure['ratio']:.2f}", style=style)
    return table


def several(rows: List[dict], where: str) -> Table:
    """A line for each layer."""
    first = f"batch {', '.join(map(str, sorted({row['shape'][0] for row in rows})))}"
    columns = ("symmetric\nms", "static\nshape *", "a faster\nplan", "dynamic\nshape", "explicit")
    table = headed(f"Layers: {rows[0]['mode']}, {where}", first, *columns)
    found = []
    for row in rows:
        plans = {name: ratio(row, variant) for name, variant in row["plans"].items()}
        planned, fastest = row["planned"], min(plans, key=plans.__getitem__)
        found.append((plans[planned], plans[fastest], ratio(row, "size unknown"), ratio(row, "explicit")))
        static, best, dynamic, explicit = map(cell, found[-1])
        better = f"{fastest} {best}" if plans[fastest] < FASTER * plans[planned] else ""
        baseline = f"{1e3 * row['figures']['symmetric']['median']:.3f}"
        table.add_row(row["name"], baseline, f"{planned} {static}", better, dynamic, explicit)
    table.add_section()
    means = (geometric_mean(value for value in column if value == value) for column in zip(*found))
    table.add_row("geometric mean", "", *map(cell, means), style="bold")
    return table


def cell(value: float) -> str:
    return f"{value:.2f}" if value == value else "-"


def headed(title: str, first: str, *columns: str) -> Table:
    """An empty table."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.padding, table.pad_edge = (0, 1, 0, 0), False
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table
