"""What `mxsame convert` prints: its progress, the layers of a network, and the written files."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Callable, Iterator

from mxsame import progress
from mxsame.cli._shared import click, print_json, print_table


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Yields a function that shows a stage, and how much of it is done, in one line of a terminal."""
    is_terminal = sys.stderr.isatty()

    def show(stage: str, done: int, total: int) -> None:
        if is_terminal:
            click.echo(f"\r\033[K{progress.line(stage, done, total)}", nl=False, err=True)

    try:
        yield show
    finally:
        if is_terminal:
            click.echo("\r\033[K", nl=False, err=True)


@dataclass
class Result:
    """The result of a conversion: the network, a row for each layer, the comparison with Keras, and written files."""

    file: str
    net: Any = None
    rows: list = field(default_factory=list)
    compared: Any = None
    written: list = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Whether a layer differs from Keras's."""
        return bool(self.compared and self.compared.differing)

    def inputs(self) -> dict[str, str]:
        """Returns the names of the inputs in the written files -> Keras's names."""
        from mxsame.graphs import tracing

        names = tracing.input_names(self.net, len(self.net.inputs))
        return {name: tensor.layer for name, tensor in zip(names, self.net.description.inputs)}

    def print_json(self) -> None:
        compared = self.compared and [  # JSON has no infinity
            {**row._asdict(), "difference": row.difference if isfinite(row.difference) else None}
            for row in self.compared
        ]
        summary = {"file": self.file, "written": self.written or None, "inputs": self.inputs()}
        layers = [row._asdict() for row in self.rows]
        print_json({**summary, "transpositions": self.net.transpositions, "layers": layers, "check": compared})

    def print(self) -> None:
        """Prints a table of the layers and its totals, the verdict of the comparison, and the written files."""
        lines = [("layer", "class", "output", "parameters", "padding")]
        for row in self.rows:
            shape = str((None, *row.output_shape[1:]))
            lines.append((row.layer, row.class_name, shape, f"{row.parameters:,}", row.padding or ""))
        print_table(lines)
        total, count = sum(row.parameters for row in self.rows), self.net.transpositions
        moves = f"{count} transposition{'' if count == 1 else 's'}"
        click.echo(f"{len(self.rows)} layers, {total:,} parameters, {moves} between channels last and first")
        if len(self.net.inputs) > 1:
            click.echo(f"inputs: {', '.join(f'{name} is {layer}' for name, layer in self.inputs().items())}")
        if self.compared:
            click.echo(self.compared.verdict)
        if self.differs:
            click.echo("nothing written")
        for name in self.written:
            click.echo(f"written: {name}")
        if not self.written and not self.differs:
            click.echo("nothing written: -o NAME writes MXNet's files, -o NAME.onnx an ONNX file")
