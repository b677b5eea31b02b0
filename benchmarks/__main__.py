"""`python -m benchmarks TABLE`: measures, prints, and writes a result file and a picture of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, List, Optional

import click

from benchmarks import costs as probes
from benchmarks import layers as layer_table
from benchmarks import memory as peaks
from benchmarks import networks as whole
from benchmarks import planner as plans
from benchmarks import plots, results, tables
from benchmarks import sizes as many
from benchmarks import targets as goals
from benchmarks.architectures import NETWORKS
from mxsame.planner import COSTS

ROUNDS = click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=1), help="Interleaved rounds.")
MATCH = click.option("--match", default="", help="Only rows whose name contains this.")
OUT = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The result file (JSON).")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Ratios to MXNet's own symmetric padding, measured side by side; lower is better.

    Every command writes a result file, benchmarks/results/TABLE.json unless told otherwise, and a picture beside it.
    """


def finish(table: str, title: str, rows: List[dict], out: Optional[Path], **settings: Any) -> None:
    """Writes, draws and prints a table."""
    path = out or results.FOLDER / f"{table}.json"
    result = results.save(path, table, title, rows, **settings)
    plots.draw(result, path.with_suffix(".png"))
    tables.show(result)
    click.echo(f"{path}\n{path.with_suffix('.png')}")


def named(choices: Any, match: str) -> list:
    """The choices whose name contains this; a whole name wins."""
    found = [x for x in choices if x.name == match] or [x for x in choices if match in x.name]
    if not found:
        raise click.UsageError(f"no name contains {match!r}; there are: {', '.join(x.name for x in choices)}")
    return found


def measured(chosen: list, measure: Callable[[Any], List[dict]]) -> List[dict]:
    """The rows of all that is chosen, while a line says which is being measured."""
    found = []
    with tables.console().status("") as status:
        for item in chosen:
            status.update(item.name)
            found += measure(item)
    return found


@main.command()
@click.option("--train", is_flag=True, help="Time a forward and backward pass instead of a forward one.")
@MATCH
@ROUNDS
@OUT
def layers(train: bool, match: str, rounds: int, out: Optional[Path]) -> None:
    """Layers of known networks, and what others do for them."""
    chosen = named(layer_table.LAYERS, match)
    found = measured(chosen, lambda layer: [layer_table.measure(layer, train, rounds=rounds)])
    finish("layers-train" if train else "layers", "Layers", found, out, rounds=rounds)


@main.command()
@click.option("--train", is_flag=True, help="Time a forward and backward pass instead of a forward one.")
@MATCH
@ROUNDS
@OUT
def planner(train: bool, match: str, rounds: int, out: Optional[Path]) -> None:
    """The planner against the best of its plans, layer by layer."""

    def both(layer: Any) -> list:
        return [plans.measure(layer, known, train, rounds=rounds) for known in (True, False)]

    found = measured(named(layer_table.LAYERS, match), both)
    finish("planner-train" if train else "planner", "The planner and its plans", found, out, rounds=rounds)
    for mode, rows in tables.by_mode(found).items():
        losses = {row["name"]: row["loss"] for row in rows}
        worst = max(losses, key=losses.__getitem__)
        mean = results.geometric_mean(losses.values())
        click.echo(f"{mode}: geometric mean of losses {mean:.3f}, worst {losses[worst]:.2f} ({worst})")


@main.command()
@click.option("--mode", "modes", multiple=True, type=click.Choice(["inference", "training"]), help="Both by default.")
@click.option("--batch", "batches", multiple=True, type=click.IntRange(min=1), help="Of inference; 1 and 8 by default.")
@click.option("--training-batch", default=8, show_default=True, type=click.IntRange(min=1))
@click.option("--size", type=click.IntRange(min=32), help="Of the images; each network's own by default.")
@click.option("--width", default=1.0, show_default=True, type=click.FloatRange(min=0.01), help="Scales the channels.")
@click.option("--tensorflow/--no-tensorflow", default=whole.HAS_TENSORFLOW, help="Beside TensorFlow where installed.")
@click.option("--check", is_flag=True, help="TensorFlow must agree too before anything is timed.")
@MATCH
@ROUNDS
@OUT
def networks(
    modes: tuple,
    batches: tuple,
    training_batch: int,
    size: Optional[int],
    width: float,
    tensorflow: bool,
    check: bool,
    match: str,
    rounds: int,
    out: Optional[Path],
) -> None:
    """Whole networks, inference and training steps."""
    if tensorflow and not whole.HAS_TENSORFLOW:
        raise click.UsageError("TensorFlow is not installed")
    settings = {"tensorflow": tensorflow, "checks": check, "rounds": rounds, "turn": 0.1}
    found = []
    with tables.console().status("") as status:
        for network in named(NETWORKS, match):
            for mode in modes or ("inference", "training"):
                measure = whole.measure_inference if mode == "inference" else whole.measure_training
                for batch in (batches or (1, 8)) if mode == "inference" else (training_batch,):
                    status.update(f"{network.name}, {mode}, batch {batch}")
                    found += measure(whole.case(network, batch, size, width), **settings)
    finish("networks", "Whole networks", found, out, rounds=rounds, size=size, width=width)


@main.command()
@click.option("--network", default="mobilenetv2", show_default=True, type=click.Choice([x.name for x in NETWORKS]))
@click.option("--width", default=0.25, show_default=True, type=click.FloatRange(min=0.01), help="Scales the channels.")
@click.option("--count", "counts", multiple=True, type=click.IntRange(1, 100), help="Sizes; 1, 10 and 100 by default.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Interleaved rounds.")
@OUT
def sizes(network: str, width: float, counts: tuple, rounds: int, out: Optional[Path]) -> None:
    """One network called with many sizes: first calls, and the steady state."""
    counts, found = counts or many.COUNTS, []
    with tables.console().status("") as status:
        for shape in many.SHAPES:
            for count in counts:
                status.update(f"{count} {shape}")
                found += many.measure_first_calls(network, width, shape, count)
                if count > 1:
                    found += many.measure_steady(network, width, shape, count, rounds)
    title = f"{network}, {width:g} of its width, called with many sizes"
    finish("sizes", title, found, out, rounds=rounds, network=network, width=width)


@main.command()
@click.option("--batch", default=8, show_default=True, type=click.IntRange(min=1))
@click.option("--size", type=click.IntRange(min=32), help="Of the images; each network's own by default.")
@click.option("--width", default=1.0, show_default=True, type=click.FloatRange(min=0.01), help="Scales the channels.")
@MATCH
@OUT
def memory(batch: int, size: Optional[int], width: float, match: str, out: Optional[Path]) -> None:
    """Peak memory of whole networks, each contestant in a process of its own."""
    chosen = named(NETWORKS, match)
    found = measured(chosen, lambda network: peaks.measure(whole.case(network, batch, size, width)))
    finish("memory", "Peak memory of whole networks", found, out, batch=batch, size=size, width=width)


@main.command()
@ROUNDS
@OUT
def costs(rounds: int, out: Optional[Path]) -> None:
    """The constants of the planner's estimate, measured here, beside those it has."""
    has = asdict(COSTS["cpu"])
    found = [{"name": name, "measured": value, "has": has[name]} for name, value in probes.constants(rounds).items()]
    path = out or results.FOLDER / "costs.json"
    results.save(path, "costs", "Nanoseconds per cell, multiplication or operator", found, rounds=rounds)
    tables.show_costs(found)
    click.echo(path)


@main.command(name="all")
@click.pass_context
def every(context: click.Context) -> None:
    """Every table, one after the other, and the targets. Takes about an hour."""
    for command, options in (
        (layers, {}),
        (layers, {"train": True}),
        (planner, {}),
        (planner, {"train": True}),
        (networks, {}),
        (sizes, {}),
        (memory, {}),
        (targets, {}),
    ):
        context.invoke(command, **options)


@main.command()
@click.option(
    "--results",
    "folder",
    default=results.FOLDER,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of result files; several of one table count together.",
)
def targets(folder: Path) -> None:
    """Which targets the result files meet."""
    tables.console().print(goals.as_table(goals.judge(goals.read(folder))))


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def plot(file: Path) -> None:
    """Draw the picture of a result file again."""
    plots.draw(results.load(file), file.with_suffix(".png"))
    click.echo(file.with_suffix(".png"))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
