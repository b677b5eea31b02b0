"""What the demo prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from mxsame.demo.compare import LayerResult, NetworkResult


def show_network(console: Console, result: NetworkResult) -> None:
    """A table with the pads and the differences of each layer."""
    title = {"title": result.network.title, "title_justify": "left", "title_style": "bold"}
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, **title)
    for heading in ("layer", "output", "pads", "mxsame\nmax diff", "symmetric\nmax diff"):
        table.add_column(heading, justify="left" if heading in ("layer", "pads") else "right", overflow="fold")
    for row in result.layers:
        height, width, channels = row.mxsame.shape
        table.add_row(
            f"{row.layer.name:8}{describe(row)}",
            f"{channels}, {height}, {width}",
            f"{row.pads} {row.pads}" if row.pads else "",
            coloured(row.difference, row.ok),
            coloured(row.symmetric_difference, row.symmetric_ok),
        )
    console.print(table)


def coloured(difference: float, right: bool) -> str:
    return f"[{'green' if right else 'red'}]{difference:.1e}[/]"


def describe(row: LayerResult) -> str:
    """`7x7/2` for a window with stride 2."""
    layer = row.layer
    if not layer.pads:
        return ""
    return f"{layer.kernel_size}x{layer.kernel_size}" + (f"/{layer.stride}" if layer.stride > 1 else "")


def show_verdict(console: Console, results: list[NetworkResult]) -> None:
    """The last lines: all of it in one."""
    rows = [row for result in results for row in result.layers]
    wrong = [row.layer.name for row in rows if not row.ok]
    right, symmetric = len(rows) - len(wrong), sum(row.symmetric_ok for row in rows)
    console.print(
        f"[{'red' if wrong else 'green'}]mxsame[/]: {right} of {len(rows)} layers equal {results[0].recorded_with}. "
        f"Symmetric padding: {symmetric} of {len(rows)}, with the right shapes throughout."
    )
    if wrong:
        console.print(f"[red]WRONG: {', '.join(wrong)}[/]")
    console.print(
        "max diff: the largest difference of any output element to TensorFlow's; allowed is 1e-4, times the largest "
        "output where that is above 1. Pads are (low, high) for each axis.",
        style="dim",
    )
