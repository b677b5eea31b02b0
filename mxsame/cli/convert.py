"""`mxsame convert`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import warnings
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, Callable, Iterator

from mxsame.cli._shared import as_json, click, need, need_mxnet, print_json
from mxsame.cli.audit import Shape

SECONDS = 60.0  # to read a small file, on a busy machine, with the import of MXNet
BYTES_PER_SECOND = 10e6  # more time for a large one
MEMORY = 2**30  # bytes to read a file, and three times its size
START = """
import json, sys
given = json.loads(sys.argv[1])
sys.path[:] = given.pop("path")  # the other process looks for packages where this one does
from mxsame.cli.convert import child
child(**given)
"""
FIX = (  # of --check
    f"Fix it with: {sys.executable} -m pip install tensorflow==2.13.1 numpy==1.23.5, or, for a file of Keras 3, with "
    "keras==3.11.3 tensorflow-cpu==2.18.1 numpy==1.26.4"
)
TOLERANCE = 1e-4  # right values differ by less, shifted ones by a hundred times more


@click.command("convert")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--weights", type=click.Path(exists=True, dir_okay=False), help="For a JSON file.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="OUT",
    help="Write OUT-symbol.json and OUT-0000.params; into OUT, under the name of FILE, if it is a folder. A name that "
    "ends in .onnx is that of an ONNX file; it needs the package onnx.",
)
@click.option(
    "--shape",
    "shapes",
    type=Shape(),
    metavar="INT,INT,...",
    multiple=True,
    help="Shape of the input, batch included, in the order of --layout; of several inputs, repeated in Keras's order. "
    "By default it is the model's own, with any batch; the files are for that size.",
)
@click.option("--opset", type=int, help="Of an ONNX file: the version of its operators.  [default: 13]")
@click.option("--dynamic-size", is_flag=True, help="An ONNX file for every size, not only that of --shape.")
@click.option("--layout", help="NCHW for inputs and outputs with channels first; by default they are as in Keras.")
@click.option("--padding", type=click.Choice(["keras-mxnet"]), help="For models that were trained in keras-mxnet.")
@click.option("--check", is_flag=True, help="Compare every layer with Keras's; needs TensorFlow or Keras.")
@as_json
@click.pass_context
def command(context: click.Context, shapes: tuple, opset: int | None, dynamic_size: bool, **given: Any) -> None:
    """A Keras model as an MXNet network, or as an ONNX file.

    FILE is an .h5 file of a whole model, a .keras archive, or a JSON file with --weights. Prints the table of layers.

    \b
    mxsame convert model.h5 -o model
    mxsame convert model.keras -o net --layout NCHW --shape 1,3,224,224 --check
    mxsame convert model.h5 -o net.onnx

    Another process does it, with limits of time and memory while it reads FILE: libhdf5 does not return from some
    damaged files. With --check, Keras reads it as well, in its own way: not for files that you do not trust.

    Exit codes: 0 if all is well, 1 if the file cannot be read or a layer departs from Keras's, 2 for wrong options.
    """
    output = given["output"] and Path(given["output"])
    if output and not (output if output.is_dir() else output.resolve().parent).is_dir():
        raise click.BadParameter(f"the folder {str(output.parent)!r} does not exist.", param_hint="--output")
    need("h5py", "mxsame convert")
    need("rich", "mxsame convert")
    onnx = None
    if output and output.suffix == ".onnx" and not output.is_dir():
        need("onnx", "mxsame convert -o NAME.onnx")
        onnx = {"dynamic_size": dynamic_size, **({} if opset is None else {"opset": opset})}
    elif opset is not None or dynamic_size:
        raise click.UsageError("--opset and --dynamic-size are for an ONNX file: give -o NAME.onnx.")
    if given["check"] and given["padding"] is not None:
        raise click.UsageError("--check must not be given with --padding: TensorFlow pads by its own rule.")
    context.exit(supervised({**given, "onnx": onnx, "shapes": [shape for _, shape in shapes]}))


def supervised(given: dict) -> int:
    """The exit code of `child` in another process, which is ended if it does not come back from reading: libhdf5
    follows some lists of damaged files without a bound, and only another process can be ended then."""
    files = [given[name] for name in ("file", "weights") if given[name] is not None]
    size = sum(map(os.path.getsize, files))
    limit = SECONDS + size / BYTES_PER_SECOND
    reading, ready = os.pipe()
    arguments = json.dumps({**given, "path": sys.path, "ready": ready, "memory": MEMORY + 3 * size})
    process = subprocess.Popen([sys.executable, "-c", START, arguments], pass_fds=[ready])
    os.close(ready)
    try:
        if not select.select([reading], [], [], limit)[0]:
            reason = f"libhdf5 did not return from it within {limit:.0f} seconds"
            raise click.ClickException(f"{files[0]} must be a whole model file: {reason}.")
        code = process.wait()
    finally:
        process.kill()
        process.wait()
        os.close(reading)
    if code < 0:
        raise click.ClickException(f"the process that converts {files[0]} ended with {signal.Signals(-code).name}.")
    return code


def child(ready: int, memory: int, **given: Any) -> None:
    """In the other process: converts, and tells by closing `ready` that the file was read."""
    try:
        code = converted(**given, limits=partial(limited, ready, memory))
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # MXNet's own end may not find the memory that it wants


@contextlib.contextmanager
def limited(ready: int, memory: int) -> Iterator[None]:
    """While a file is read, no more memory than this above what is taken, where that can be told."""
    statistics: Any = Path("/proc/self/statm")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if statistics.exists():
        taken = int(statistics.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        os.close(ready)


def converted(
    file: str, weights: str | None, output: str | None, shapes: list, onnx: dict | None, layout: str | None,
    padding: str | None, check: bool, as_json: bool, limits: Callable[[], Any] = contextlib.nullcontext,
) -> int:  # fmt: skip
    """Reads, writes and prints, in this process; the exit code."""
    need_mxnet()
    keras = imported_keras() if check else None
    from rich.console import Console
    from rich.progress import Progress

    from mxsame._mxnet import mx
    from mxsame.port import convert, report

    hidden, written, checked = as_json or not sys.stderr.isatty(), None, None
    with Progress(console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("reading layers")
        try:
            with limits():
                watch = partial(bar.update, task)
                net = convert.import_model(
                    file, weights, layout, None, padding, lambda done, total: watch(completed=done, total=total)
                )
            model = None if keras is None else loaded(keras, file, weights)  # after mxsame refused code in the file
            sizes = input_shapes(net, shapes)
            rows = report.rows(net, list(map(mx.nd.zeros, sizes)))
            if output is not None:
                bar.update(task, description="writing")
                target = Path(output)
                written = write(net, target, file, sizes) if onnx is None else write_onnx(net, target, sizes, onnx)
        except MemoryError as error:
            reason = "it takes more memory than its size allows"
            raise click.ClickException(f"{file} must be a whole model file: {reason}.") from error
        except (ValueError, TypeError, OSError) as error:
            raise click.ClickException(str(error)) from error
        if model is not None:
            bar.update(task, description="comparing with Keras")
            checked = compared(net, model, sizes)
    departing = [row for row in checked or () if not row["difference"] <= TOLERANCE]
    if as_json:
        if checked is not None:  # JSON has no infinity
            checked = [{**row, "difference": row["difference"] if row["difference"] < inf else None} for row in checked]
        found = {"file": file, "written": written, "transpositions": net.transpositions}
        print_json({**found, "layers": [row._asdict() for row in rows], "check": checked})
    else:
        show(rows, net.transpositions)
        for name in written or ():
            click.echo(f"written: {name}")
        if checked is not None:
            show_check(checked, departing)
    return 1 if departing else 0


def input_shapes(net: Any, given: list) -> list:
    """A shape for each input: as given, or the model's own."""
    own = [tuple(value.ordered(value.shape)) for value in net.inputs]
    if given:
        if len(given) != len(own):
            raise click.UsageError(f"--shape must be given for each of {len(own)} inputs; received {len(given)}.")
        return [tuple(shape) for shape in given]
    if any(length is None for shape in own for length in shape[1:]):
        raise click.UsageError(f"--shape must be given: the model takes {', '.join(map(str, own))}, None for any size.")
    return [(1, *shape[1:]) for shape in own]


def write(net: Any, output: Path, file: str, shapes: list) -> list:
    """The names of the two files, for inputs of these shapes."""
    from mxsame import export

    return list(export(net, str(output / Path(file).stem if output.is_dir() else output), shapes))


def write_onnx(net: Any, output: Path, shapes: list, options: dict) -> list:
    """The name of the file."""
    from mxsame.onnx import NotCompared, export_onnx

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", NotCompared)
        written = [export_onnx(net, output, shapes, **options)]
    for each in warned:
        click.echo(f"Warning: {each.message}", err=True)
    return written


def imported_keras() -> Any:
    """tf.keras or Keras."""
    reasons = []
    for package in ("tensorflow.keras", "keras"):
        if find_spec(package.split(".")[0]) is None:
            continue
        try:
            return importlib.import_module(package)
        except Exception as error:  # whatever a package raises that does not fit its neighbours
            reasons.append(f"{package} cannot be imported ({type(error).__name__}: {error})")
    reason = "; ".join(reasons) or "neither is installed"
    raise click.ClickException(f"--check needs TensorFlow or Keras: {reason}. {FIX}")


def loaded(keras: Any, file: str, weights: str | None) -> Any:
    """The live model."""
    try:
        if weights is None:
            return keras.models.load_model(file, compile=False)
        model = keras.models.model_from_json(Path(file).read_text(encoding="utf-8"))
        model.load_weights(weights)
        return model
    except Exception as error:  # Keras has no type for what it cannot load
        version, words = getattr(keras, "__version__", ""), " ".join(str(error).split())
        words = words if len(words) <= 300 else f"{words[:297]}..."  # some hold the whole configuration
        raise click.ClickException(
            f"--check needs a file that Keras {version} can load: {type(error).__name__}: {words}. {FIX}"
        ) from error


def compared(net: Any, model: Any, shapes: list) -> list:
    """Each layer compared with that of the live model, for random inputs; numbers of entries for an Embedding."""
    import numpy as np

    from mxsame._mxnet import mx
    from mxsame.port import report

    random = np.random.default_rng(0)
    entries = [
        min(
            (x.config["input_dim"] for x in net.description.walk() if x.class_name == "Embedding" and x.takes(tensor)),
            default=0,
        )
        for tensor in net.description.inputs
    ]
    inputs = [
        random.integers(count, size=shape).astype("float32") if count else random.normal(size=shape).astype("float32")
        for shape, count in zip(shapes, entries)
    ]
    in_keras = [
        array.transpose(value.keras_order) if value.first else array for value, array in zip(net.inputs, inputs)
    ]
    return list(report.differences(net, model, [mx.nd.array(array) for array in inputs], in_keras))


def show(rows: list, transpositions: int) -> None:
    """The table of layers."""
    table = [("layer", "class", "operators", "output", "parameters", "padding")]
    for row in rows:
        shape = "x".join(map(str, row.output_shape[1:]))
        texts = (row.layer, row.class_name, ", ".join(row.operators), shape, f"{row.parameters:,}", row.padding or "")
        table.append(texts)
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
    total = sum(row.parameters for row in rows)
    times = f"{transpositions} transposition{'' if transpositions == 1 else 's'}"
    click.echo(f"{len(rows)} layers, {total:,} parameters, {times} of data")


def show_check(checked: list, departing: list) -> None:
    """The first layer that departs, and by how much; or the largest difference."""
    if departing:
        first = departing[0]
        click.echo(f"first layer that departs: {first['layer']} ({first['class']}), by {first['difference']:.2g}")
        return
    if not checked:
        click.echo("no layer computes anything at inference that could be compared")
        return
    worst = max(checked, key=lambda row: row["difference"])
    click.echo(
        f"{len(checked)} layers give what Keras's give: {worst['layer']} differs most, by {worst['difference']:.1e}"
    )
