"""What `mxsame bench` prints."""

from __future__ import annotations

from typing import Any, List, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mxsame import bench
from mxsame.bench.figures import geometric_mean

LEGEND = (
    "Ratios of medians, lower is better; 1.00 is MXNet's own operator with symmetric padding, which computes something "
    "else. * marks the planner's choice, which runs; mxsame.autotune finds and remembers faster plans in whole nets. "
    "Size known: mxsame.hybridize; unknown: net.hybridize. Explicit: the pad operator, then VALID (a transposed "
    "convolution: VALID, then a slice)"
)
FASTER = 0.95  # less than this part of the planner's time is more than the least of many noisy medians
AVERAGES = "; in averages it counts the padding, which is not SAME either"


def run(console: Console, layers: Sequence[Any], train: bool, device: bench.Device, rounds: int) -> None:
    """Measures the layers, and prints one table: of the plans of one layer, or of several layers."""
    rows: List[dict] = []
    with console.status("", spinner="line") as status:
        for layer in layers:
            status.update(f"measuring {layer.name}")
            rows.append(bench.measure(layer, train, device, rounds=rounds))
    console.print(one(rows[0], device) if len(rows) == 1 else several(rows, device))
    ended = AVERAGES if any(row["kind"] == "avg" for row in rows) else ""
    console.print(Text(f"{LEGEND}{ended}.", "dim"))


def one(row: dict, device: bench.Device) -> Table:
    """Every contestant, and how far its quartiles lie apart."""
    table = headed(f"{row['name']}, batch {row['shape'][0]}", row["mode"], device)
    table.add_column("")
    for heading in ("ms", "quartiles", "ratio"):
        table.add_column(heading, justify="right")
    planned = row["plans"][row["planned"]]
    for name, figure in row["figures"].items():
        low, high = (1e3 * quartile for quartile in figure["quartiles"])
        style = "bold" if name == planned else "dim" if name == row["reference"] else ""
        table.add_row(
            f"{name} *" if name == planned else name,
            f"{1e3 * figure['median']:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{figure['ratio']:.2f}",
            style=style,
        )
    return table


def several(rows: List[dict], device: bench.Device) -> Table:
    """A line for each layer."""
    table = headed("Layers", rows[0]["mode"], device)
    batches = sorted({row["shape"][0] for row in rows})
    table.add_column(f"batch {', '.join(map(str, batches))}", no_wrap=True)
    for heading in ("symmetric\nms", "size\nknown *", "a faster\nplan", "size\nunknown", "explicit"):
        table.add_column(heading, justify="right")
    columns: List[List[float]] = [[], [], [], []]
    for row in rows:
        ratios = {name: figure["ratio"] for name, figure in row["figures"].items()}
        plans = {name: ratios[contestant] for name, contestant in row["plans"].items()}
        fastest = min(plans, key=plans.__getitem__)
        found = (plans[row["planned"]], plans[fastest], ratios["size unknown"], ratios.get("explicit"))
        for column, value in zip(columns, found):
            column += [] if value is None else [value]
        known, best, unknown, explicit = ("-" if value is None else f"{value:.2f}" for value in found)
        limit = f"{1e3 * row['figures']['symmetric']['median']:.3f}"
        better = f"{fastest} {best}" if plans[fastest] < FASTER * plans[row["planned"]] else ""
        table.add_row(row["name"], limit, f"{row['planned']} {known}", better, unknown, explicit)
    table.add_section()
    known, best, unknown, explicit = (f"{geometric_mean(column):.2f}" for column in columns)
    table.add_row("geometric mean", "", known, best, unknown, explicit, style="bold")
    return table


def headed(title: str, mode: str, device: bench.Device) -> Table:
    """An empty table."""
    kind, number = device
    place = "the CPU" if kind == "cpu" else f"GPU {number}"
    table = Table(title=f"{title}: {mode}, on {place}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.padding, table.pad_edge = (0, 1, 0, 0), False
    return table
