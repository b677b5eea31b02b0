"""`python -m benchmarks TABLE`: measures, prints, and writes a result file and a picture of it."""

from __future__ import annotations

import functools
import tempfile
import traceback
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

import click

FOLDER = Path(__file__).parent / "results"
Task = Tuple[str, Callable[[], List[dict]]]  # a name, which --match chooses by, and what gives its rows


TRAIN = click.option("--train", is_flag=True, help="Time a forward and backward pass instead of a forward one.")
SIZE = click.option(
    "--size",
    type=click.IntRange(min=32),
    help="Of the images, or the next larger that a network takes; each network's own by default.",
)
WIDTH = click.option(
    "--width", default=1.0, show_default=True, type=click.FloatRange(min=0.01), help="Of the networks."
)
OPTIONS = (
    click.option("--match", default="", help="Only tasks whose name contains this."),
    click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=1), help="Interleaved rounds."),
    click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The result file (JSON)."),
    click.option("--picture/--no-picture", default=True, help="Draw it as well, if matplotlib is installed."),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Ratios to MXNet's own symmetric padding, measured side by side; lower is better.

    Every command writes a result file, benchmarks/results/TABLE.json by default, and a picture next to it.
    """


def table(title: str) -> Callable[[Callable[..., Iterator[Task]]], Any]:
    """A command that measures the tasks which a function of its options yields."""

    def decorate(tasks: Callable[..., Iterator[Task]]) -> Any:
        @functools.wraps(tasks)
        def command(
            match: str,
            rounds: int,
            out: Optional[Path],
            picture: bool,
            **options: Any,
        ) -> None:
            chosen = [task for task in tasks(rounds=rounds, **options) if match in task[0]]
            if not chosen:
                raise click.UsageError(f"no name contains {match!r}.")
            name = f"{tasks.__name__}-train" if options.get("train") else tasks.__name__
            measure(name, title, chosen, out or FOLDER / f"{name}.json", picture, rounds=rounds)

        for option in reversed(OPTIONS):
            command = option(command)
        return main.command(tasks.__name__)(command)

    return decorate


def measure(
    name: str,
    title: str,
    tasks: List[Task],
    path: Path,
    picture: bool,
    **settings: Any,
) -> None:
    """Measures task by task, and writes the table after each; then prints and draws it.

    A task that fails is named in the file under "failures", and the program ends with 1 after all others.
    """
    from benchmarks import results

    rows: List[dict] = []
    failures: List[dict] = []
    for task, rows_of in tasks:
        click.echo(f"{task} ..", err=True)
        try:
            rows += [{**row, "task": task} for row in rows_of()]
        except Exception as error:
            failures.append({"name": task, "why": f"{type(error).__name__}: {error}"[:2000]})
            traceback.print_exc()
        result = results.save(path, name, title, rows, settings=settings, failures=failures)
    results.show(result)
    click.echo(path)
    if picture and rows and find_spec("matplotlib"):
        draw(path)
    if failures:
        raise click.ClickException("; ".join(f"{each['name']} failed: {each['why'][:200]}" for each in failures))


def draw(path: Path) -> None:
    from benchmarks import plots, results

    plots.draw(results.load(path), path.with_suffix(".png"))
    click.echo(path.with_suffix(".png"))


# -- the tables


@table("Layers")
@TRAIN
def layers(train: bool, rounds: int) -> Iterator[Task]:
    """Layers of known networks, and what others do for them."""
    from benchmarks import layers as rows

    for layer in rows.LAYERS:
        yield layer.name, lambda layer=layer: [rows.measure(layer, train, rounds=rounds)]


@table("The planner and its plans")
@TRAIN
def planner(train: bool, rounds: int) -> Iterator[Task]:
    """The planner compared with the best of its plans, layer by layer."""
    from benchmarks.layers import LAYERS

    yield from planned(LAYERS, train, rounds=rounds)


@table("Layers drawn at random")
@TRAIN
@click.option("--count", default=100, show_default=True, type=click.IntRange(min=1), help="How many layers.")
@click.option("--seed", type=int, help="Of the drawing; that of the layers the planner was not fitted to by default.")
def sampled(count: int, seed: Optional[int], train: bool, rounds: int) -> Iterator[Task]:
    """Layers drawn at random: the planner, all plans, explicit padding and symmetric padding."""
    from benchmarks import sampled as drawn

    layers = drawn.layers(drawn.HELD_OUT if seed is None else seed, count)
    yield from planned(layers, train, rounds=rounds, seconds=0.3, turn=2e-3)


def planned(layers: Iterable[Any], train: bool, **timing: Any) -> Iterator[Task]:
    """A task for each layer: two rows, with a static and with a dynamic shape."""
    from benchmarks import planner as rows

    for layer in layers:
        yield (
            layer.name,
            lambda layer=layer: [rows.measure(layer, static, train, **timing) for static in (True, False)],
        )


@table("Whole networks")
@SIZE
@WIDTH
@click.option("--tensorflow/--no-tensorflow", default=True, help="TensorFlow too, if it is installed.")
def networks(size: Optional[int], width: float, tensorflow: bool, rounds: int) -> Iterator[Task]:
    """Whole networks, inference and training steps."""
    from benchmarks import networks as rows
    from benchmarks.architectures import NETWORKS

    timing = {"rounds": rounds, "turn": 0.1}
    tensorflow = tensorflow and rows.HAS_TENSORFLOW
    for network in NETWORKS:
        for case in (rows.case(network, batch, size, width) for batch in (1, 8)):
            name = f"{network.name}, inference, batch {case.batch}"
            yield name, lambda case=case: rows.measure_inference(case, tensorflow, **timing)
        case = rows.case(network, 8, size, width)
        yield f"{network.name}, training, batch 8", lambda case=case: rows.measure_training(case, tensorflow, **timing)


@table("MobileNetV2, a quarter of its width, called with many sizes")
def sizes(rounds: int) -> Iterator[Task]:
    """One network called with many sizes: first calls, and the steady state."""
    from benchmarks import sizes as rows

    network = ("mobilenetv2", 0.25)
    for shape in rows.SHAPES:
        for case in ((*network, shape, count) for count in rows.COUNTS):
            yield f"{case[-1]} {shape}, first calls", lambda case=case: rows.measure_first_calls(*case, rounds)
            if case[-1] > 1:
                yield f"{case[-1]} {shape}, steady state", lambda case=case: rows.measure_steady(*case, rounds)


@table("Peak memory of whole networks")
@SIZE
@WIDTH
def memory(size: Optional[int], width: float, rounds: int) -> Iterator[Task]:
    """Peak memory of whole networks, each variant in a process of its own."""
    from benchmarks import memory as rows
    from benchmarks.architectures import NETWORKS
    from benchmarks.networks import case

    for network in NETWORKS:
        yield network.name, lambda network=network: rows.measure(case(network, 8, size, width))


@table("Calls without arithmetic")
def calls(rounds: int) -> Iterator[Task]:
    """Operators and networks of one layer on data of a few elements: what a call costs."""
    from benchmarks import calls as pairs

    yield "calls", lambda: pairs.rows(rounds)


@table("Reading files of Keras models")
@click.option("--model", multiple=True, metavar="NAME", help="Of tf.keras.applications; ResNet50 and VGG16 by default.")
def convert(model: Tuple[str, ...], rounds: int) -> Iterator[Task]:
    """Files of Keras models: seconds and peak memory, compared with tf.keras and with the weights."""
    from benchmarks import convert as rows
    from benchmarks.networks import HAS_TENSORFLOW

    if not HAS_TENSORFLOW:
        raise click.ClickException("convert needs TensorFlow, which writes its files (the extra [oracle]).")
    for name in model or rows.MODELS:
        for ending in rows.ENDINGS:
            yield f"{name} {ending}", lambda name=name, ending=ending: _in_folder(rows.measure, name, ending, rounds)


def _in_folder(measure: Callable[..., List[dict]], *arguments: Any) -> List[dict]:
    """Called with a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(folder, *arguments)


@table("Keras models outside TensorFlow")
@SIZE
@WIDTH
def onnx(size: Optional[int], width: float, rounds: int) -> Iterator[Task]:
    """ONNX files of mxsame and of tf2onnx, compared with MXNet and with TensorFlow."""
    from benchmarks import onnx as rows

    if not rows.CAN_RUN:
        raise click.ClickException("onnx needs TensorFlow and tf2onnx (the extras oracle, onnx and benchmarks).")
    timing = {"rounds": rounds, "turn": 0.1, "seconds": 5.0}
    for name in rows.MODELS:
        yield name, lambda name=name: rows.measure(name, size=size, width=width, **timing)


@table("A process whose calling thread had an OpenMP team")
def threads(rounds: int) -> Iterator[Task]:
    """A deployed network after arrays were read and copied, compared with before."""
    from benchmarks import threads as rows

    for name in ("mobilenetv2", "resnet50"):
        for batch in (1, 8):
            yield f"{name}, batch {batch}", lambda name=name, batch=batch: rows.measure(name, batch, rounds)


@table("Deployed networks and today's runtimes")
@click.option("--python", "pythons", multiple=True, type=(str, str), help="A runtime, and an interpreter that has it.")
def peers(pythons: Tuple[Tuple[str, str], ...], rounds: int) -> Iterator[Task]:
    """Deployed networks compared with TensorFlow, ONNX Runtime and OpenVINO, each in processes of its own."""
    from benchmarks import peers as rows
    from benchmarks.architectures import NETWORKS
    from benchmarks.networks import case

    for each in (case(network, batch) for network in NETWORKS for batch in (1, 8)):
        yield f"{each.network.name}, batch {each.batch}", functools.partial(rows.measure, each, dict(pythons), rounds)


# -- what is made of them, and the rest


@main.command(name="all")
@click.pass_context
def every(context: click.Context) -> None:
    """Every table, one after the other, and the targets. Takes an hour and a quarter."""
    for command, options in (
        (layers, {}),
        (layers, {"train": True}),
        (planner, {}),
        (planner, {"train": True}),
        (networks, {}),
        (sizes, {"rounds": 5}),
        (memory, {}),
        (convert, {"rounds": 5}),
        (targets, {}),
    ):
        context.invoke(command, **options)


@main.command()
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=1), help="Interleaved rounds.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=FOLDER / "costs.json")
def costs(rounds: int, out: Path) -> None:
    """The constants of the planner's estimate, measured here, compared with those it has."""
    from benchmarks import costs as probes
    from benchmarks import results
    from mxsame.planner import COSTS

    has = asdict(COSTS)
    rows = [{"name": name, "measured": value, "has": has[name]} for name, value in probes.constants(rounds).items()]
    results.save(out, "costs", "Nanoseconds per element, multiplication or operator", rows)
    lines = [[row["name"], *(f"{x:.3g}" for x in (row["measured"], row["has"]))] for row in rows]
    results.print_table("Costs, in nanoseconds", ["", "measured here", "the planner's"], lines)
    click.echo(out)


@main.command()
@click.option("--match", default="", help="Only nets whose name contains this.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=FOLDER / "exporters.json")
def exporters(match: str, out: Path) -> None:
    """mxsame.export_onnx and MXNet's exporter: which nets are written, and which of the files are right."""
    from benchmarks import exporters as probes
    from benchmarks import results

    rows: List[dict] = []
    for source, name in probes.NETS:
        if match in name:
            click.echo(f"{source}: {name} ..", err=True)
            rows.append(probes.measure(source, name))
            results.save(out, "exporters", "ONNX exporters", rows)
    if not rows:
        raise click.UsageError(f"no name contains {match!r}.")
    lines = [[f"{source}, {exporter}", *map(str, numbers)] for source, exporter, *numbers in probes.counts(rows)]
    results.print_table("ONNX exporters", ["", "nets", "written", "right"], lines)
    click.echo(out)


@main.command()
def targets() -> None:
    """Which targets the result files meet."""
    from benchmarks import targets as goals

    goals.show(goals.judge(goals.read(FOLDER)))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
