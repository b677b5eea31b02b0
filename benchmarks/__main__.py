"""`python -m benchmarks TABLE`: measures, prints, and writes a result file and a picture of it.

What needs MXNet is imported by the command that needs it: `gpu` has to write its file where MXNet cannot be imported.
"""

from __future__ import annotations

import contextlib
import traceback
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

import click

from benchmarks.architectures import NETWORKS

FOLDER = Path(__file__).parent / "results"


class Device(click.ParamType):
    """`cpu`, `gpu` or `gpu:1`. That of `mxsame bench` would bring MXNet with it."""

    name = "cpu|gpu[:number]"

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> Tuple[str, int]:
        if isinstance(value, tuple):
            return value
        kind, _, number = value.lower().partition(":")
        if kind not in ("cpu", "gpu") or not (number or "0").isdecimal():
            self.fail(f"{value!r} must be cpu, gpu, or gpu:1 and so on", param, ctx)
        return kind, int(number or 0)


DEVICE = click.option("--device", type=Device(), default="cpu", show_default=True, help="Where to run.")
CUDNN_ONLY = click.option(
    "--cudnn-only",
    is_flag=True,
    help="Only what cuDNN and cuBLAS run alone, as on GPUs that MXNet has no machine code for; the CPU can try it out.",
)
ROUNDS = click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=1), help="Interleaved rounds.")
MATCH = click.option("--match", default="", help="Only rows whose name contains this.")
OUT = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The result file (JSON).")
PICTURE = click.option("--picture/--no-picture", default=True, help="Draw it as well, where matplotlib is installed.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Ratios to MXNet's own symmetric padding, measured side by side; lower is better.

    Every command writes a result file, benchmarks/results/TABLE.json unless told otherwise (of a GPU TABLE-gpu.json),
    and a picture beside it.
    """


def placed(device: Tuple[str, int], cudnn_only: bool = False, everything: bool = False) -> Any:
    """Where to run; one clear line where that cannot be, or where it cannot run everything that a table needs."""
    from benchmarks import places

    try:
        place = places.place(device, cudnn_only)
    except places.CannotRun as error:
        raise click.ClickException(str(error)) from error
    if everything and place.libraries_only:
        raise click.ClickException(
            "MXNet has no machine code for this GPU, which runs cuDNN and cuBLAS alone: layers (without --train) and "
            "networks (without --mode training) can be measured."
        )
    return place


def named(choices: Any, match: str) -> list:
    """The choices whose name contains this; a whole name wins."""
    found = [x for x in choices if x.name == match] or [x for x in choices if match in x.name]
    if not found:
        raise click.UsageError(f"no name contains {match!r}; there are: {', '.join(x.name for x in choices)}")
    return found


def finish(
    table: str,
    title: str,
    tasks: Iterable[Tuple[str, Callable[[], List[dict]]]],
    out: Optional[Path],
    picture: bool,
    device: Tuple[str, int] = ("cpu", 0),
    **settings: Any,
) -> List[dict]:
    """Measures task by task, and writes the table after each; then prints and draws it, and returns its rows.

    A task that fails is named in the file under "failures", and the program ends with 1 after all others. One that
    cannot be on the device is under "left_out".
    """
    from benchmarks import places, results, tables

    path = out or FOLDER / f"{table}.json"
    rows: List[dict] = []
    left_out: List[dict] = []
    failures: List[dict] = []
    more = {"left_out": left_out, "failures": failures}
    with progress() as say:
        for name, measure in tasks:
            say(name)
            try:
                rows += measure()
            except places.CannotRun as error:
                left_out.append({"name": name, "why": str(error)})
            except Exception as error:
                failures.append({"name": name, "why": f"{type(error).__name__}: {error}"[:2000]})
                traceback.print_exc()
            beside = {key: found for key, found in more.items() if found}
            result = results.save(path, table, title, rows, device, beside, **settings)
    if find_spec("rich"):
        tables.show(result)
    click.echo(path)
    if picture and rows and find_spec("matplotlib"):
        from benchmarks import plots

        plots.draw(result, path.with_suffix(".png"))
        click.echo(path.with_suffix(".png"))
    for each in left_out:
        click.echo(f"left out: {each['name']}: {each['why'][:200]}")
    if failures:
        raise click.ClickException("; ".join(f"{each['name']} failed: {each['why'][:200]}" for each in failures))
    return rows


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line that says what is being measured, where rich is there to draw it."""
    if not find_spec("rich"):
        yield lambda name: None
        return
    from benchmarks import tables

    with tables.console().status("") as status:
        yield lambda name: status.update(name)


@main.command()
@click.option("--train", is_flag=True, help="Time a forward and backward pass instead of a forward one.")
@click.option("--layout", default="NCHW", show_default=True, type=click.Choice(["NCHW", "NHWC"]), help="On GPUs.")
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(["float32", "float16"]))
@DEVICE
@CUDNN_ONLY
@MATCH
@ROUNDS
@OUT
@PICTURE
def layers(
    train: bool,
    layout: str,
    dtype: str,
    device: Tuple[str, int],
    cudnn_only: bool,
    match: str,
    rounds: int,
    out: Optional[Path],
    picture: bool,
) -> None:
    """Layers of known networks, and what others do for them."""
    options = {"--layout": (layout, "NCHW"), "--dtype": (dtype, "float32")}
    for option, (value, default) in options.items():
        if device[0] == "cpu" and value != default:
            raise click.UsageError(f"{option} {value} is for GPUs: on the CPU MXNet knows {default} alone.")
    if cudnn_only and train:
        raise click.UsageError("--cudnn-only excludes --train: what is deployed does not train.")
    place = placed(device, cudnn_only, everything=train)
    from benchmarks import layers as table

    chosen = table.chosen(named(table.LAYERS, match), layout, dtype)
    if not chosen:
        raise click.UsageError(f"--layout {layout} is for two axes, and no layer that --match {match} names has two.")
    tasks = [(layer.name, lambda layer=layer: [table.measure(layer, train, place, rounds=rounds)]) for layer in chosen]
    words = ["train"] * train + [value for value, default in options.values() if value != default]
    settings = {"rounds": rounds, **({"layout": layout, "dtype": dtype} if device[0] == "gpu" else {})}
    finish(place.table("layers", *words), "Layers", tasks, out, picture, device, **settings)


@main.command()
@click.option("--train", is_flag=True, help="Time a forward and backward pass instead of a forward one.")
@DEVICE
@MATCH
@ROUNDS
@OUT
@PICTURE
def planner(train: bool, device: Tuple[str, int], match: str, rounds: int, out: Optional[Path], picture: bool) -> None:
    """The planner against the best of its plans, layer by layer."""
    place = placed(device, everything=True)
    from benchmarks import layers as layer_table
    from benchmarks import planner as table
    from benchmarks import results, tables

    def both(layer: Any) -> list:
        return [table.measure(layer, known, train, place, rounds=rounds) for known in (True, False)]

    tasks = [(layer.name, lambda layer=layer: both(layer)) for layer in named(layer_table.LAYERS, match)]
    name = place.table("planner", *["train"] * train)
    found = finish(name, "The planner and its plans", tasks, out, picture, device, rounds=rounds)
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
@click.option("--tensorflow/--no-tensorflow", default=None, help="Beside TensorFlow; where installed, and on the CPU.")
@click.option("--check", is_flag=True, help="TensorFlow must agree too before anything is timed.")
@DEVICE
@CUDNN_ONLY
@MATCH
@ROUNDS
@OUT
@PICTURE
def networks(
    modes: tuple,
    batches: tuple,
    training_batch: int,
    size: Optional[int],
    width: float,
    tensorflow: Optional[bool],
    check: bool,
    device: Tuple[str, int],
    cudnn_only: bool,
    match: str,
    rounds: int,
    out: Optional[Path],
    picture: bool,
) -> None:
    """Whole networks, inference and training steps."""
    if cudnn_only and "training" in modes:
        raise click.UsageError("--cudnn-only excludes --mode training: what is deployed does not train.")
    chosen = named(NETWORKS, match)
    place = placed(device, cudnn_only, everything="training" in modes)
    modes = modes or (("inference",) if place.libraries_only else ("inference", "training"))
    from benchmarks import networks as table

    beside = table.HAS_TENSORFLOW and place == table.HERE if tensorflow is None else tensorflow
    if beside and place != table.HERE:
        raise click.UsageError("--tensorflow is for the CPU, and excludes --cudnn-only.")
    if beside and not table.HAS_TENSORFLOW:
        raise click.UsageError("TensorFlow is not installed")
    settings = {"tensorflow": beside, "checks": check, "place": place, "rounds": rounds, "turn": 0.1}

    def task(case: Any, mode: str) -> Tuple[str, Callable[[], List[dict]]]:
        measure = table.measure_inference if mode == "inference" else table.measure_training
        return f"{case.network.name}, {mode}, batch {case.batch}", lambda: measure(case, **settings)

    tasks = [
        task(table.case(network, batch, size, width), mode)
        for network in chosen
        for mode in modes
        for batch in ((batches or (1, 8)) if mode == "inference" else (training_batch,))
    ]
    more = {"rounds": rounds, "size": size, "width": width}
    finish(place.table("networks"), "Whole networks", tasks, out, picture, device, **more)


@main.command()
@click.option("--network", default="mobilenetv2", show_default=True, type=click.Choice([x.name for x in NETWORKS]))
@click.option("--width", default=0.25, show_default=True, type=click.FloatRange(min=0.01), help="Scales the channels.")
@click.option("--count", "counts", multiple=True, type=click.IntRange(1, 100), help="Sizes; 1, 10 and 100 by default.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Interleaved rounds.")
@DEVICE
@OUT
@PICTURE
def sizes(
    network: str,
    width: float,
    counts: tuple,
    rounds: int,
    device: Tuple[str, int],
    out: Optional[Path],
    picture: bool,
) -> None:
    """One network called with many sizes: first calls, and the steady state."""
    place = placed(device, everything=True)
    from benchmarks import sizes as table

    def both(shape: str, count: int) -> List[dict]:
        found = table.measure_first_calls(network, width, shape, count, place)
        return found + (table.measure_steady(network, width, shape, count, rounds, place) if count > 1 else [])

    tasks = [
        (f"{count} {shape}", lambda shape=shape, count=count: both(shape, count))
        for shape in table.SHAPES
        for count in counts or table.COUNTS
    ]
    title = f"{network}, {width:g} of its width, called with many sizes"
    more = {"rounds": rounds, "network": network, "width": width}
    finish(place.table("sizes"), title, tasks, out, picture, device, **more)


@main.command()
@click.option("--batch", default=8, show_default=True, type=click.IntRange(min=1))
@click.option("--size", type=click.IntRange(min=32), help="Of the images; each network's own by default.")
@click.option("--width", default=1.0, show_default=True, type=click.FloatRange(min=0.01), help="Scales the channels.")
@DEVICE
@MATCH
@OUT
@PICTURE
def memory(
    batch: int,
    size: Optional[int],
    width: float,
    device: Tuple[str, int],
    match: str,
    out: Optional[Path],
    picture: bool,
) -> None:
    """Peak memory of whole networks, each contestant in a process of its own."""
    chosen = named(NETWORKS, match)
    place = placed(device, everything=True)
    from benchmarks import memory as table
    from benchmarks.networks import case

    tasks = [
        (network.name, lambda network=network: table.measure(case(network, batch, size, width), place))
        for network in chosen
    ]
    more = {"batch": batch, "size": size, "width": width}
    finish(place.table("memory"), "Peak memory of whole networks", tasks, out, picture, device, **more)


@main.command()
@ROUNDS
@OUT
def costs(rounds: int, out: Optional[Path]) -> None:
    """The constants of the planner's estimate, measured here, beside those it has."""
    from benchmarks import costs as probes
    from benchmarks import results, tables
    from mxsame.planner import COSTS

    has = asdict(COSTS["cpu"])
    found = [{"name": name, "measured": value, "has": has[name]} for name, value in probes.constants(rounds).items()]
    path = out or FOLDER / "costs.json"
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
    default=FOLDER,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of result files; several of one table count together.",
)
def targets(folder: Path) -> None:
    """Which targets the result files meet."""
    from benchmarks import tables
    from benchmarks import targets as goals

    tables.console().print(goals.as_table(goals.judge(goals.read(folder))))


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def plot(file: Path) -> None:
    """Draw the picture of a result file again."""
    from benchmarks import plots, results

    plots.draw(results.load(file), file.with_suffix(".png"))
    click.echo(file.with_suffix(".png"))


@main.command()
@click.option("--device", type=Device(), default="gpu", show_default=True, help="Which GPU; cpu tries it all out.")
@CUDNN_ONLY
@click.option("--budget", type=click.IntRange(min=1), help="Seconds for all of it, what matters most first.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=FOLDER / "gpu.json",
    help="The one result file (JSON), written after every step.",
)
@click.pass_context
def gpu(context: click.Context, device: Tuple[str, int], cudnn_only: bool, budget: Optional[int], out: Path) -> None:
    """All that there is to know of a GPU, step by step, in one file.

    What the machine is, what `mxsame doctor` says, the tests of GPUs, networks, layers, and on GPUs that MXNet has
    machine code for all tables. A step is a process of its own under a time limit: it may fail, crash or hang. It needs
    no network, no git, and of packages MXNet, NumPy, click and pytest.

    Exit codes: 0 if every step went well, 1 if one did not, or if there is no GPU.
    """
    from benchmarks import gpu as everything

    context.exit(0 if everything.run(device, cudnn_only, budget, out, click.echo) else 1)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
