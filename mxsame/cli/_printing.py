"""What `mxsame convert` prints: a network's layers, what was written, and how far a command is."""

from __future__ import annotations

import contextlib
import sys
from math import isfinite
from typing import Any, Callable, Iterator

from mxsame.cli._shared import click, print_json, print_table


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """What shows a stage and how much of it is done, in one line of a terminal."""
    is_terminal = sys.stderr.isatty()

    def show(stage: str, done: int, total: int) -> None:
        if is_terminal:
            part = f" {done} of {total}" if total > 1 else " .."
            click.echo(f"\r\033[K{stage}{part}", nl=False, err=True)

    try:
        yield show
    finally:
        if is_terminal:
            click.echo("\r\033[K", nl=False, err=True)


def print_result(
    file: str, net: Any, rows: list, written: list, checked: list | None, differing: list, as_json: bool
) -> None:
    """Prints the table of layers, what was written, and how the layers compare with Keras's."""
    from mxsame.graphs import tracing

    names = tracing.input_names(net, len(net.inputs))
    inputs = {name: tensor.layer for name, tensor in zip(names, net.description.inputs)}
    if as_json:
        compared = checked and [  # JSON has no infinity
            {**row._asdict(), "difference": row.difference if isfinite(row.difference) else None} for row in checked
        ]
        summary = {"file": file, "written": written or None, "inputs": inputs, "transpositions": net.transpositions}
        print_json({**summary, "layers": [row._asdict() for row in rows], "check": compared})
        return
    print_layers(rows, net.transpositions)
    if len(inputs) > 1:
        click.echo(f"inputs: {', '.join(f'{name} is {layer}' for name, layer in inputs.items())}")
    if differing:
        first = differing[0]
        click.echo(f"first layer that differs: {first.layer} ({first.class_name}), by {first.difference:.2g}")
        click.echo("nothing written")
        return
    if checked is not None:
        largest = max(row.difference for row in checked)
        click.echo(f"{len(checked)} layers equal Keras's: the largest difference is {largest:.1e}")
    for name in written:
        click.echo(f"written: {name}")
    if not written:
        click.echo("nothing written: -o NAME writes MXNet's files, -o NAME.onnx an ONNX file")


def print_layers(rows: list, transpositions: int) -> None:
    """The table of layers, and their sums."""
    lines = [("layer", "class", "operators", "output", "parameters", "padding")]
    for row in rows:
        shape = "x".join(map(str, row.output_shape[1:]))
        texts = (row.layer, row.class_name, ", ".join(row.operators), shape, f"{row.parameters:,}", row.padding or "")
        lines.append(texts)
    print_table(lines)
    total = sum(row.parameters for row in rows)
    times = f"{transpositions} transposition{'' if transpositions == 1 else 's'}"
    click.echo(f"{len(rows)} layers, {total:,} parameters, {times} of data")
