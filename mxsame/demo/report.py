"""What the demo prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from mxsame.demo.compare import LayerResult, NetworkResult


def progress(console: Console) -> Progress:
    """A bar that disappears when its work is done."""
    columns = (SpinnerColumn("line"), TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def show_network(console: Console, result: NetworkResult) -> None:
    """A summary as Keras prints it, with pads and differences, and a verdict below."""
    table = Table(title=result.network.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.padding, table.pad_edge = (0, 1, 0, 0), False
    for heading in ("layer", "output", "params", "pads", "mxsame\nmax diff", "symmetric\nmax diff"):
        table.add_column(heading, justify="left" if heading in ("layer", "pads") else "right", overflow="fold")
    network = result.network
    table.add_row("input", shape_text((network.size, network.size, network.channels)), style="dim")
    for row in result.layers:
        table.add_row(
            f"{row.layer.name:8}{describe(row)}",
            shape_text(row.mxsame.shape),
            f"{row.parameters:,}" if row.parameters else "",
            f"{row.pads} {row.pads}" if row.pads else "",
            Text(f"{row.difference:.1e}", "green" if row.ok else "bold red"),
            Text(f"{row.symmetric_difference:.1e}", "" if row.symmetric_ok else "red"),
        )
    table.add_row("total", "", f"{sum(row.parameters for row in result.layers):,}", style="dim")
    console.print(table)
    console.print(verdict(result))
    console.print()


def shape_text(shape: tuple[int, ...]) -> str:
    """Channels first, as Gluon has them."""
    height, width, channels = shape
    return f"{channels}, {height}, {width}"


def describe(row: LayerResult) -> str:
    """`7x7/2` for a window with stride 2; what the layer does beyond that."""
    layer = row.layer
    words = []
    if layer.pads:
        words.append(f"{layer.kernel_size}x{layer.kernel_size}" + (f"/{layer.stride}" if layer.stride > 1 else ""))
        words += [] if layer.padding == "same" else [layer.padding]
    words += [layer.activation] if layer.activation else []
    return " ".join(words)


def verdict(result: NetworkResult) -> Text:
    """Right or wrong, and what symmetric padding would have done."""
    wrong = [row for row in result.layers if not row.ok]
    if wrong:
        worst = max(wrong, key=lambda row: row.difference / row.allowed)
        names = ", ".join(row.layer.name for row in wrong)
        return Text(
            f"WRONG: {names} differ from {result.recorded_with}; {worst.layer.name} by {worst.difference:.2g}, "
            f"allowed {worst.allowed:.2g}.",
            "bold red",
        )
    largest = max(row.difference for row in result.layers)
    text = Text.assemble(
        ("EXACT", "bold green"),
        f": every layer equals {result.recorded_with} to rounding (largest difference {largest:.1e}).",
    )
    shifted = [row for row in result.layers if not row.symmetric_ok]
    if not shifted:
        return text.append(" Every pad here is symmetric: gluon.nn would have been right too.")
    last = shifted[-1]
    largest_output = float(abs(last.tensorflow).max())
    return text.append(
        f" Symmetric padding: wrong from {shifted[0].layer.name} on; {last.layer.name} off by up to "
        f"{last.symmetric_difference:.2g} (largest output {largest_output:.2g})."
    )


def show_verdict(console: Console, results: list[NetworkResult], picture_path: Path | None) -> None:
    """The last lines: all of it in one, and where the picture is."""
    rows = [row for result in results for row in result.layers]
    right, shifted = sum(row.ok for row in rows), sum(not row.symmetric_ok for row in rows)
    console.print(
        Text.assemble(
            ("mxsame", "bold green" if right == len(rows) else "bold red"),
            f": {right} of {len(rows)} layers equal {results[0].recorded_with}. ",
            ("Symmetric padding", "bold"),
            f": {len(rows) - shifted} of {len(rows)}, with the right shapes throughout.",
        )
    )
    console.print(
        "max diff: the largest difference of any output element to TensorFlow's; allowed is 1e-4, times the largest "
        "output where that is above 1. Pads are (low, high) for each axis.",
        style="dim",
    )
    if picture_path:
        console.print(Text(f"Picture: {picture_path}"), soft_wrap=True)
