"""`python -m benchmarks layers [--train] [--strategies] [--match WORD] [--out FILE]`."""

from __future__ import annotations

import json
import platform
import sys
from datetime import date
from typing import Any, Dict, Optional

import click
from rich.console import Console
from rich.table import Table

import mxsame
from benchmarks import layers as bench
from mxsame._mxnet import mx

CONTESTANTS = ("mxsame, size known", "mxsame, size unknown", "explicit pad")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Ratios to MXNet's own symmetric padding, measured side by side; lower is better."""


@main.command()
@click.option("--train", is_flag=True, help="Time a forward and backward pass instead of a forward one.")
@click.option("--strategies", is_flag=True, help="Also time every strategy that is exact for a layer.")
@click.option("--match", default="", help="Only layers whose name contains this.")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=5), help="Interleaved rounds.")
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="Write the figures as JSON.")
def layers(train: bool, strategies: bool, match: str, rounds: int, out: Optional[str]) -> None:
    """Layers of known networks, each against the same layer with symmetric padding."""
    chosen = [layer for layer in bench.LAYERS if match in layer.name]
    if not chosen:
        raise click.UsageError(
            f"no layer's name contains {match!r}; there are: {', '.join(x.name for x in bench.LAYERS)}"
        )
    table = Table(title=f"{'forward and backward' if train else 'forward'}, ratio to symmetric padding")
    for column in ("layer", "symmetric, ms", *CONTESTANTS, *(["best strategy"] if strategies else [])):
        table.add_column(column, justify="left" if column in ("layer", "best strategy") else "right")
    found: Dict[str, Dict[str, float]] = {}
    console = Console(width=None if sys.stdout.isatty() else 110)
    with console.status("") as status:
        for layer in chosen:
            status.update(layer.name)
            ratios = found[layer.name] = bench.measure(layer, train, strategies, rounds)
            cells = [f"{ratios[name]:.2f}" if name in ratios else "-" for name in CONTESTANTS]
            if strategies:
                best = min((name for name in ratios if name.startswith("known, ")), key=ratios.__getitem__)
                cells.append(f"{best[len('known, ') :]} {ratios[best]:.2f}")
            table.add_row(layer.name, f"{ratios['symmetric']:.2f}", *cells)
    console.print(table)
    for name in CONTESTANTS:
        column = [ratios[name] for ratios in found.values() if name in ratios]
        console.print(f"{name}: geometric mean {bench.geometric_mean(column):.2f}, worst {max(column):.2f}")
    if out:
        with open(out, "w", encoding="utf-8") as file:
            json.dump({"provenance": provenance(), "train": train, "rounds": rounds, "ratios": found}, file, indent=1)


def provenance() -> Dict[str, Any]:
    """Where and when, and with what."""
    return {
        "date": date.today().isoformat(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "mxnet": mx.__version__,
        "mxsame": mxsame.__version__,
    }


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
