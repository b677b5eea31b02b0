"""`mxsame convert`."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import textwrap
import warnings
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, Callable, Iterator

from mxsame import validation
from mxsame.cli._shared import Shape, Target, as_json, click, need, need_mxnet, print_json, print_table, refusals
from mxsame.data import sample

SECONDS = 60.0  # to read a small file on a busy machine, the import of MXNet included
BYTES_PER_SECOND = 10e6  # more time for a large one
MEMORY = 2**30  # bytes to read a file, and three times its size
# Newer ones need another protobuf and NumPy.
WITH_ONNX = " onnx==1.14.1 onnxruntime==1.18.1 'ml-dtypes<0.5'" * bool(find_spec("onnx"))
FIX = f"Fix it with: {sys.executable} -m pip install " + (  # of --check
    "--upgrade keras tensorflow-cpu"
    if sys.version_info >= (3, 12)
    else f"tensorflow==2.13.1 numpy==1.23.5 'matplotlib<3.11' 'contourpy<1.3.3'{WITH_ONNX}, or, for a file of Keras 3, "
    "with keras==3.11.3 tensorflow-cpu==2.18.1 numpy==1.26.4"
)
TOLERANCE = 1e-4  # rounding makes less of a difference, a shift a hundred times more
DIFFERS = 3  # the exit code of a layer that differs from Keras's


class Source(click.Path):
    """A path that exists, or `sample:NAME`. Whether it is a folder is checked when its format is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value.startswith("sample:"):
            try:
                value = sample(value[len("sample:") :])
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


@click.command("convert")
@click.argument("file", type=Source(exists=True))
@click.option("--weights", type=click.Path(exists=True, dir_okay=False), help="The weights of a JSON file.")
@click.option(
    "-o",
    "--output",
    type=Target(),
    metavar="OUT",
    help="Write OUT-symbol.json and OUT-0000.params; if OUT is a folder, write them there under the name of FILE. If "
    "OUT ends in .onnx, write an ONNX file, which needs the package onnx.",
)
@click.option(
    "--shape",
    "shapes",
    type=Shape(),
    metavar="[NAME=]INT,INT,...",
    multiple=True,
    help="Shape of the input, batch included, in the order of --layout. Repeat it for several inputs, with their names "
    "or in their order. The default is a Keras model's own shape. The files take this size and any batch.",
)
@click.option("--opset", type=int, default=13, show_default=True, help="The version of the operators in an ONNX file.")
@click.option("--dynamic-size", is_flag=True, help="Make the ONNX file take every size, not only that of --shape.")
@click.option("--layout", help="NCHW for inputs and outputs with channels first. The default is Keras's order.")
@click.option("--padding", type=click.Choice(["keras-mxnet"]), help="For models that were trained in keras-mxnet.")
@click.option(
    "--custom",
    metavar="MODULE:NAME",
    help="Your own layers: the dict NAME in a Python module, as the argument `custom` of mxsame.from_keras.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Compare every layer with Keras's, and write files only if all are equal. It needs TensorFlow or Keras.",
)
@click.option(
    "--custom-objects",
    metavar="MODULE:NAME",
    help="With --check: the dict NAME in a Python module, with which Keras loads your own layers.",
)
@as_json
@click.pass_context
def command(context: click.Context, **options: Any) -> None:
    """Converts a Keras model to an MXNet network or an ONNX file, and an MXNet network to a Keras model or ONNX file.

    FILE is an .h5 file of a whole model, a .keras archive, or a JSON file with --weights; sample:digits is a model to
    try it with. The command prints a table of the layers. FILE can also be a -symbol.json file of MXNet with its
    .params file next to it. It needs --shape, and -o NAME.keras, NAME.h5 or NAME.onnx.

    \b
    mxsame convert model.h5 -o model
    mxsame convert model.keras -o net --layout NCHW --shape 1,3,224,224 --check
    mxsame convert model.h5 -o net.onnx
    mxsame convert net-symbol.json -o net.keras --shape 1,3,224,224

    FILE is read in another process with limits of time and memory, since libhdf5 does not return from some damaged
    files. With --check Keras reads it too, without these limits: do not use --check for files that you do not trust.

    Exit codes: 0 if all is well, 1 if the file is refused or cannot be read, 2 for wrong options, 3 if --check finds a
    layer that differs from Keras's.
    """
    need("h5py", "mxsame convert")
    options["onnx"] = onnx_arguments(options["output"], options.pop("opset"), options.pop("dynamic_size"))
    if options["file"].endswith("-symbol.json"):
        if any(options[name] for name in ("weights", "padding", "custom", "check", "custom_objects")):
            raise click.UsageError("a -symbol.json file takes -o, --shape, --layout, --json and ONNX's options only.")
        names = ("file", "output", "shapes", "layout", "onnx", "as_json")
        write_network(**{name: options[name] for name in names})
    else:
        if options["check"] and options["padding"] is not None:
            raise click.UsageError("--check must not be given with --padding: TensorFlow pads by its own rule.")
        context.exit(run_in_child(options))


def onnx_arguments(output: Path | None, opset: int, dynamic_size: bool) -> dict | None:
    """What `mxsame.export_onnx` gets, or None if no ONNX file is asked for."""
    if output and output.suffix == ".onnx" and not output.is_dir():
        need("onnx", "mxsame convert -o NAME.onnx")
        return {"opset": opset, "dynamic_size": dynamic_size}
    if opset != 13 or dynamic_size:
        raise click.UsageError("--opset and --dynamic-size are for an ONNX file: give -o NAME.onnx.")
    return None


def write_network(
    file: str, output: Path | None, shapes: tuple, layout: str | None, onnx: dict | None, as_json: bool
) -> None:
    """Writes an MXNet network as a Keras model or an ONNX file."""
    if output is None or output.suffix not in (".keras", ".h5", ".onnx") or not shapes:
        raise click.UsageError("a -symbol.json file needs -o NAME.keras, NAME.h5 or NAME.onnx, and --shape.")
    if onnx is not None and layout is not None:
        raise click.UsageError("--layout must not be given for an ONNX file of an MXNet network: it keeps its own.")
    need_mxnet()
    from mxsame import _gluon, export_onnx, to_keras
    from mxsame.export_keras.export import imported
    from mxsame.graphs.tracing import flatten

    with refusals(), stages() as stage:
        net = imported(file)
        sizes = in_order(shapes, [variable.name for variable in flatten(_gluon.graph_inputs(net))])
        if onnx is None:
            result = to_keras(net, output, sizes, layout=layout or "NHWC", progress=stage)._asdict()
        else:
            result = {"path": export_onnx(net, output, sizes, **onnx, progress=stage)}
    if as_json:
        print_json(result)
        return
    if onnx is None:
        click.echo("{layers} layers, {parameters:,} parameters, compared by {compared_by}".format(**result))
    click.echo(f"written: {result['path']}")


def run_in_child(options: dict) -> int:
    """The exit code of `child` in another process, which is killed if reading takes too long: libhdf5 follows some
    lists of damaged files without end, and then only a process can be stopped."""
    files = [options[name] for name in ("file", "weights") if options[name] is not None]
    size = sum(map(os.path.getsize, files))
    limit = SECONDS + size / BYTES_PER_SECOND
    new = multiprocessing.get_context("spawn")
    reading, ready = new.Pipe(duplex=False)
    process = new.Process(target=child, args=(ready, MEMORY + 3 * size, options))
    process.start()
    ready.close()
    try:
        if not reading.poll(limit):  # true once `ready` is closed, which the end of the process does, too
            reason = f"reading it took more than {limit:.0f} seconds. It may be damaged, or the machine is busy"
            raise click.ClickException(f"{files[0]} must be a whole model file: {reason}.")
        process.join()
    finally:
        process.kill()
        process.join()
    code = process.exitcode or 0
    if code < 0:
        raise click.ClickException(f"the process that converts {files[0]} ended with {signal.Signals(-code).name}.")
    return code


def child(ready: Any, memory: int, options: dict) -> None:
    """In the other process: converts; it closes `ready` when the file is read."""
    try:
        code = convert_file(**options, limits=partial(reading_limits, ready, memory))
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without MXNet's own cleanup, which may run out of memory


@contextlib.contextmanager
def reading_limits(ready: Any, memory: int) -> Iterator[None]:
    """While a file is read, the process may allocate this many bytes more, on systems with /proc."""
    statistics: Any = Path("/proc/self/statm")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if statistics.exists():
        used = int(statistics.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        ready.close()


def convert_file(
    file: str, weights: str | None, output: Path | None, shapes: tuple, onnx: dict | None, layout: str | None,
    padding: str | None, custom: str | None, custom_objects: str | None, check: bool, as_json: bool,
    limits: Callable[[], Any] = contextlib.nullcontext,
) -> int:  # fmt: skip
    """Reads, compares, writes and prints, in this process; the exit code."""
    need_mxnet()
    keras = imported_keras() if check else None
    blocks, objects = imported_dict("--custom", custom), imported_dict("--custom-objects", custom_objects)
    from mxsame import compare, export, export_onnx
    from mxsame._mxnet import mx
    from mxsame.graphs.tracing import explain_errors
    from mxsame.port import convert, report

    written, checked = [], None
    with refusals(), stages() as stage, warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *where: click.echo(f"Warning: {message}", err=True)
        try:
            with limits():
                net = convert.from_keras(file, weights, layout=layout, custom=blocks, padding=padding, progress=stage)
        except MemoryError as error:
            reason = "it takes more memory than its size allows"
            raise click.ClickException(f"{file} must be a whole model file: {reason}.") from error
        sizes = input_shapes(net, shapes)
        stage("running the network", 0, 1)
        with explain_errors(shapes=sizes):
            rows = report.lines(net, list(map(mx.nd.zeros, sizes)))
        if keras is not None:
            stage("loading the model in Keras", 0, 1)
            model = loaded(keras, file, weights, objects, blocks)  # after mxsame has refused files with code
            stage("comparing with Keras", 0, 1)
            checked = compare(net, model, report.random_inputs(net, sizes))
        differing = [row for row in checked or () if row.difference > TOLERANCE]
        if output is not None and not differing:
            target = str(output / Path(file).stem if output.is_dir() else output)
            stage("writing", 0, 1)
            if onnx is None:
                written = list(export(net, target, sizes))
            else:
                written = [export_onnx(net, target, sizes, **onnx, progress=stage)]
    print_result(file, net, rows, written, checked, differing, as_json)
    return DIFFERS if differing else 0


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


def input_shapes(net: Any, given: tuple) -> list:
    """A shape for each input: as given, or the model's own."""
    own = [tuple(value.ordered(value.shape)) for value in net.inputs]
    if not given:
        if any(None in shape[1:] for shape in own):
            known = ", ".join(map(str, own))
            raise click.UsageError(f"--shape must be given: the model takes {known}, None for any size.")
        return [(1, *shape[1:]) for shape in own]
    return in_order(given, [tensor.layer for tensor in net.description.inputs])


def in_order(given: tuple, inputs: list[str]) -> list:
    """The shapes of --shape in the order of the inputs, which they may name."""
    named = dict(given)
    if len(given) != len(inputs) or set(named) not in ({None}, set(inputs)):
        rule = f"--shape must be given once for each input, without names or with {', '.join(inputs)}"
        raise click.UsageError(f"{rule}; received {', '.join(name or '(no name)' for name, _ in given)}.")
    for _, shape in given:
        validation.per_axis("--shape", shape, len(shape), 1)
        validation.elements("--shape", shape)
    return [shape for _, shape in given] if None in named else [named[name] for name in inputs]


def imported_dict(option: str, named: str | None) -> Any:
    """What an option names as MODULE:NAME; the module may be in the current folder."""
    if named is None:
        return None
    module, _, name = named.partition(":")
    if not module or not name:
        raise click.UsageError(f"{option} must be MODULE:NAME, as in my_layers:custom; received {named!r}.")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise click.UsageError(f"{option} must name a dict of a module that Python finds: {error}.") from error


def imported_keras() -> Any:
    """The module tf.keras or Keras, without TensorFlow's notes on the processor."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    reasons = []
    for package in ("tensorflow.keras", "keras"):
        try:
            with silent_stderr():
                return importlib.import_module(package)
        except Exception as error:  # a package with other versions of its dependencies may raise anything
            reasons.append(f"{package} cannot be imported ({type(error).__name__}: {error})")
    raise click.ClickException(f"--check needs TensorFlow or Keras: {'; '.join(reasons)}. {FIX}")


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """What libraries print to the process's stderr is lost; an exception is not."""
    kept = os.dup(2)
    with open(os.devnull, "w", encoding="ascii") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def loaded(keras: Any, file: str, weights: str | None, objects: Any, custom: Any) -> Any:
    """The model, loaded by Keras."""
    try:
        if weights is None:
            return keras.models.load_model(file, custom_objects=objects, compile=False)
        model = keras.models.model_from_json(Path(file).read_text(encoding="utf-8"), custom_objects=objects)
        model.load_weights(weights)
        return model
    except Exception as error:  # Keras has no type of error for files that it cannot load
        version = getattr(keras, "__version__", None) or metadata.version("keras")  # tf.keras has none of its own
        advice = FIX
        if "safe_mode" in str(error):
            advice = "In Python, load it with safe_mode=False, which runs its code, and call mxsame.compare(net, model)"
        elif custom and not objects:
            advice = f"Give Keras your own layers by --custom-objects MODULE:NAME; else f{FIX[1:]}"
        words = textwrap.shorten(str(error), 300, placeholder="..")  # some contain the whole configuration
        raise click.ClickException(
            f"--check needs a file that Keras {version} can load: {type(error).__name__}: {words.rstrip('.')}. {advice}"
        ) from error
