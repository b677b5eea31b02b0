"""`python -m benchmarks TABLE`: measures, prints, and writes a result file and a picture of it."""

from __future__ import annotations

import functools
import traceback
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

import click

import benchmarks.calls
import benchmarks.convert
import benchmarks.costs
import benchmarks.exporters
import benchmarks.gpu
import benchmarks.gpu_fit
import benchmarks.layers
import benchmarks.memory
import benchmarks.onnx
import benchmarks.peers
import benchmarks.planner
import benchmarks.sampled
import benchmarks.sizes
import benchmarks.start
import benchmarks.targets
from benchmarks import names, networks as nets, results
from benchmarks.architectures import NETWORKS
from mxsame.planner import COSTS, GPU_COSTS

Task = Tuple[str, Callable[[], List[dict]]]  # a name, which --match chooses by, and what gives its rows

ROUNDS = click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=1), help="Interleaved rounds.")
MATCH = click.option("--match", default="", help="Only tasks whose name contains this.")
OUT = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The result file (JSON).")
TRAIN = click.option("--train", is_flag=True, help="Time a forward and backward pass instead of a forward one.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Ratios to MXNet's own symmetric padding, measured side by side; lower is better.

    Every command writes a result file, benchmarks/results/TABLE.json by default, and a picture next to it.
    """


def table(tasks: Callable[..., Iterator[Task]]) -> Any:
    """A command that measures the tasks which a function of its options yields."""

    @functools.wraps(tasks)
    def command(match: str, rounds: int, out: Optional[Path], **options: Any) -> None:
        chosen = [task for task in tasks(rounds=rounds, **options) if match in task[0]]
        if not chosen:
            raise click.UsageError(f"no name contains {match!r}.")
        name = f"{tasks.__name__}-train" if options.get("train") else tasks.__name__
        measure(name, names.title(name), chosen, out or results.FOLDER / f"{name}.json", rounds)

    return main.command(tasks.__name__)(MATCH(ROUNDS(OUT(command))))


def measure(name: str, title: str, tasks: List[Task], path: Path, rounds: int, **more: Any) -> None:
    """Measures task by task, and writes the table after each, with `more` that it holds; then prints and draws it.

    A task that fails is named in the file under "failures", and the program ends with 1 after all others.
    """
    rows: List[dict] = []
    failures: List[dict] = []
    for task, rows_of in tasks:
        click.echo(f"{task} ..", err=True)
        try:
            rows += [{**row, "task": task} for row in rows_of()]
        except Exception as error:
            failures.append({"name": task, "why": f"{type(error).__name__}: {error}"[:2000]})
            traceback.print_exc()
        result = results.save(path, name, title, rows, settings={"rounds": rounds}, failures=failures, **more)
    results.show(result)
    click.echo(path)
    if rows and find_spec("matplotlib"):
        from benchmarks import plots

        plots.draw(result, path.with_suffix(".png"))
        click.echo(path.with_suffix(".png"))
    if failures:
        raise click.ClickException("; ".join(f"{each['name']} failed: {each['why'][:200]}" for each in failures))


# -- the tables


@table
@TRAIN
def layers(train: bool, rounds: int) -> Iterator[Task]:
    """Layers of known networks, and what others do for them."""
    for layer in benchmarks.layers.LAYERS:
        yield layer.name, lambda layer=layer: [benchmarks.layers.measure(layer, train, rounds=rounds)]


@table
@TRAIN
def planner(train: bool, rounds: int) -> Iterator[Task]:
    """The planner compared with the best of its plans, layer by layer."""
    return planned(benchmarks.layers.LAYERS, train, rounds=rounds)


@table
@TRAIN
@click.option("--count", default=100, show_default=True, type=click.IntRange(min=1), help="How many layers.")
def sampled(count: int, train: bool, rounds: int) -> Iterator[Task]:
    """Layers drawn at random, not those that the planner was fitted to: the planner, all plans, and other padding."""
    drawn = benchmarks.sampled.layers(benchmarks.sampled.HELD_OUT, count)
    return planned(drawn, train, rounds=rounds, seconds=0.3, turn=2e-3)


def planned(layers: Iterable[Any], train: bool, **timing: Any) -> Iterator[Task]:
    """A task for each layer: two rows, with a static and with a dynamic shape."""
    for layer in layers:
        yield (
            layer.name,
            lambda layer=layer: [
                benchmarks.planner.measure(layer, static, train, **timing) for static in (True, False)
            ],
        )


@table
@TRAIN
def networks(train: bool, rounds: int) -> Iterator[Task]:
    """Whole networks, inference or training steps, compared with TensorFlow too if it is installed."""
    measured, timing = (nets.measure_inference, nets.measure_training)[train], {"rounds": rounds, "turn": 0.1}
    for network in NETWORKS:
        for case in (nets.case(network, batch) for batch in ((1, 8), (8,))[train]):
            yield case.name, functools.partial(measured, case, nets.HAS_TENSORFLOW, **timing)


@table
def sizes(rounds: int) -> Iterator[Task]:
    """One network called with many sizes: first calls, and the steady state."""
    network, rows = ("mobilenetv2", 0.25), benchmarks.sizes
    for shape in rows.SHAPES:
        for case in ((*network, shape, count) for count in rows.COUNTS):
            yield f"{case[-1]} {shape}, first calls", lambda case=case: rows.measure_first_calls(*case, rounds)
            if case[-1] > 1:
                yield f"{case[-1]} {shape}, steady state", lambda case=case: rows.measure_steady(*case, rounds)


@table
def start(rounds: int) -> Iterator[Task]:
    """From the import to the first output of a network in a file, compared with TensorFlow and ONNX Runtime."""
    for case in (nets.case(network, 1) for network in NETWORKS if network.name == "mobilenetv2"):
        yield case.network.name, functools.partial(benchmarks.start.measure, case, rounds)


@table
def memory(rounds: int) -> Iterator[Task]:
    """Peak memory of whole networks, each variant in a process of its own."""
    for network in NETWORKS:
        yield network.name, lambda network=network: benchmarks.memory.measure(nets.case(network, 8))


@table
def calls(rounds: int) -> Iterator[Task]:
    """Operators and networks of one layer on data of a few elements: what a call costs."""
    yield "calls", lambda: benchmarks.calls.rows(rounds)


@table
def convert(rounds: int) -> Iterator[Task]:
    """Files of Keras models: seconds and peak memory, compared with tf.keras, which writes them, and the weights."""
    rows = benchmarks.convert
    for name in rows.MODELS:
        for ending in rows.ENDINGS:
            yield f"{name} {ending}", lambda name=name, ending=ending: rows.measure(name, ending, rounds)


@table
def onnx(rounds: int) -> Iterator[Task]:
    """ONNX files of mxsame and of tf2onnx, compared with MXNet and with TensorFlow."""
    timing = {"rounds": rounds, "turn": 0.1, "seconds": 5.0}
    for name in benchmarks.onnx.MODELS:
        yield name, lambda name=name: benchmarks.onnx.measure(name, **timing)


@table
@click.option("--python", "pythons", multiple=True, type=(str, str), help="A runtime, and an interpreter that has it.")
def peers(pythons: Tuple[Tuple[str, str], ...], rounds: int) -> Iterator[Task]:
    """Deployed networks compared with TensorFlow, ONNX Runtime and OpenVINO, each in processes of its own."""
    for case in (nets.case(network, batch) for network in NETWORKS for batch in (1, 8)):
        yield case.name, functools.partial(benchmarks.peers.measure, case, dict(pythons), rounds)


# -- what is made of them, and the rest


@main.command()
@ROUNDS
@OUT
def costs(rounds: int, out: Optional[Path]) -> None:
    """The constants of the planner's estimate, measured here, compared with those it has."""
    has, measured = asdict(COSTS), benchmarks.costs.constants(rounds)
    rows = [{"name": name, "measured": value, "has": has[name]} for name, value in measured.items()]
    path = out or results.FOLDER / "costs.json"
    results.save(path, "costs", "Nanoseconds per element, multiplication or operator", rows)
    lines = [[row["name"], *(f"{x:.3g}" for x in (row["measured"], row["has"]))] for row in rows]
    results.print_table("Costs, in nanoseconds", ["", "measured here", "the planner's"], lines)
    click.echo(path)


@main.command()
@MATCH
@ROUNDS
@OUT
@click.option("--fit", is_flag=True, help="Fit the planner's constants to the files of this command, without a GPU.")
def gpu(match: str, rounds: int, out: Optional[Path], fit: bool) -> None:
    """Layers on a GPU: every exact plan, explicit and symmetric padding; a file for each GPU, gpu-NAME.json."""
    if fit:
        show_fit(out)
        return
    try:
        benchmarks.gpu.check_gpu()
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None
    facts = benchmarks.gpu.facts()
    chosen = [
        (name, functools.partial(lambda mode, layer: [benchmarks.gpu.measure(mode, layer, rounds=rounds)], mode, layer))
        for mode, layer in benchmarks.gpu.tasks()
        for name in [f"{layer.name}: {mode.title}"]
        if match in name
    ]
    if not chosen:
        raise click.UsageError(f"no name contains {match!r}.")
    path = out or results.FOLDER / f"gpu-{facts['gpu'].lower().replace(' ', '-')}.json"
    measure("gpu", f"Layers on an {facts['gpu']}", chosen, path, rounds, provenance={**results.provenance(), **facts})


def show_fit(path: Optional[Path]) -> None:
    """Prints constants fitted to a file, by default to all of the results' folder, next to the planner's;
    and what the planner's choices cost with them, also for layers that were left out."""
    paths = [path] if path else sorted(results.FOLDER.glob("gpu-*.json"))
    if not paths:
        raise click.ClickException("no file is there to fit to: python -m benchmarks gpu")
    rows, fit = [row for each in paths for row in results.load(each)["rows"]], benchmarks.gpu_fit
    points = fit.points(rows)
    fitted, has = asdict(fit.fit(points)), asdict(GPU_COSTS)
    lines = [[name, f"{value:.2g}", f"{has[name]:.2g}"] for name, value in fitted.items()]
    results.print_table("Costs on a GPU, in nanoseconds", ["", "fitted", "the planner's"], lines)
    head = ["compared with the fastest exact plan", "geometric mean", "worst"]
    results.print_table("The planner", head, fit.summary(fit.losses(GPU_COSTS, points)))
    for name, group in fit.LEFT_OUT.items():
        results.print_table(f"Fitted without {name}", head, fit.summary(fit.left_out(group, points)))


@main.command()
@MATCH
@OUT
def exporters(match: str, out: Optional[Path]) -> None:
    """mxsame.export_onnx and MXNet's exporter: which nets are written, and which of the files are right."""
    rows, path = [], out or results.FOLDER / "exporters.json"
    for source, name in benchmarks.exporters.NETS:
        if match in name:
            click.echo(f"{source}: {name} ..", err=True)
            rows.append(benchmarks.exporters.measure(source, name))
            results.save(path, "exporters", "ONNX exporters", rows)
    if not rows:
        raise click.UsageError(f"no name contains {match!r}.")
    counts = benchmarks.exporters.counts(rows)
    lines = [[f"{source}, {exporter}", *map(str, numbers)] for source, exporter, *numbers in counts]
    results.print_table("ONNX exporters", ["", "nets", "written", "right"], lines)
    click.echo(path)


@main.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def draw(tables: Tuple[str, ...]) -> None:
    """Draw the recorded results of each TABLE; by default, of all that have a picture. Nothing is measured."""
    from benchmarks import plots

    for path in [results.FOLDER / f"{name}.png" for name in tables] or sorted(results.FOLDER.glob("*.png")):
        plots.draw(results.load(path.with_suffix(".json")), path)
        click.echo(path)


@main.command()
def targets() -> None:
    """Which targets the result files meet."""
    benchmarks.targets.show(benchmarks.targets.judge(benchmarks.targets.read(results.FOLDER)))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
