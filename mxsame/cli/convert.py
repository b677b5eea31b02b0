"""`mxsame convert`."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator

from mxsame import validation
from mxsame.cli._child import run_in_child
from mxsame.cli._keras import imported_dict, imported_keras, load_model
from mxsame.cli._printing import Result, stages
from mxsame.cli._shared import Target, as_json, click, need, need_mxnet, print_json, refusals, shape_option
from mxsame.data import SAMPLES, sample

OPSET, LAYOUT = click.IntRange(13), click.Choice([name for names in validation.LAYOUTS.values() for name in names])
DIFFERS = 3  # the exit code if a layer differs from Keras's


class ModelFile(click.Path):
    """An existing path, or `sample:NAME`. A folder is refused later, by the check of the format."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value.startswith("sample:"):
            names = {f"sample:{name}": name for name in SAMPLES}
            if value not in names:
                self.fail(f"{value!r} must be {' or '.join(names)}.", param, ctx)
            value = sample(names[value])
        return super().convert(value, param, ctx)


@click.command("convert", short_help="Convert a Keras model or an MXNet network.")
@click.argument("file", type=ModelFile(exists=True))
@click.option("--weights", type=click.Path(exists=True, dir_okay=False), help="The weights of a JSON file.")
@click.option(
    "-o",
    "--output",
    type=Target(accepts_folders=True),
    metavar="OUT",
    help="Write OUT-symbol.json and OUT-0000.params; if OUT is a folder, write them there under the name of FILE. If "
    "OUT ends in .onnx, write an ONNX file, which needs the package onnx. If FILE is a -symbol.json file, OUT can also "
    "end in .keras or .h5, for a Keras model.",
)
@shape_option(
    "Shape of the input, with the batch, in the order of --layout. Repeat it for several inputs, with their names or "
    "in their order. The default is the shape that the Keras model declares. The files take this size and any batch."
)
@click.option("--opset", type=OPSET, default=13, show_default=True, help="The version of the operators in ONNX files.")
@click.option("--dynamic-size", is_flag=True, help="Write an ONNX file for every size, not only for that of --shape.")
@click.option("--layout", type=LAYOUT, help="NCHW for inputs and outputs with channels first. The default is Keras's.")
@click.option("--padding", type=click.Choice(["keras-mxnet"]), help="For models that were trained in keras-mxnet.")
@click.option(
    "--custom",
    metavar="MODULE:NAME",
    help="Your own layers: a dict in a Python module, as for the argument `custom` of mxsame.from_keras.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Compare every layer with Keras's, and write files only if all are equal. This needs TensorFlow or Keras.",
)
@click.option(
    "--custom-objects",
    metavar="MODULE:NAME",
    help="With --check: a dict in a Python module, with which Keras loads your own layers.",
)
@as_json
@click.pass_context
def command(context: click.Context, **options: Any) -> None:
    """Convert a Keras model to an MXNet network or an ONNX file, or an MXNet network to a Keras model or an ONNX file.

    FILE is an .h5 file of a whole model, a .keras archive, a JSON file with --weights, or sample:digits, a model to try
    it with. The command prints a table of the layers. FILE can also be a -symbol.json file of MXNet with its .params
    file next to it; it needs --shape, and -o NAME.keras, NAME.h5 or NAME.onnx.

    \b
    mxsame convert model.h5 -o model
    mxsame convert model.keras -o net --layout NCHW --shape 1,3,224,224 --check
    mxsame convert model.h5 -o net.onnx
    mxsame convert net-symbol.json -o net.keras --shape 1,3,224,224

    FILE is read in another process with limits of time and memory, because libhdf5 does not return from some damaged
    files. With --check, Keras reads it without these limits: do not use --check for files that you do not trust.

    Exit codes: 0 on success, 1 if the file is rejected or cannot be read, 2 for wrong options and missing files, 3
    if --check finds a layer that differs from Keras's.
    """
    need("h5py", "mxsame convert")
    args = SimpleNamespace(**options)
    args.onnx = onnx_arguments(args.output, args.opset, args.dynamic_size)
    if args.file.endswith("-symbol.json"):
        if args.weights or args.padding or args.custom or args.check or args.custom_objects:
            raise click.UsageError("a -symbol.json file accepts -o, --shape, --layout, --json and ONNX's options only.")
        write_network(args)
    else:
        if args.check and args.padding is not None:
            raise click.UsageError("--check must not be given with --padding: TensorFlow pads by its own rule.")
        check_suffix(args.output)
        context.exit(run_in_child(convert_file, [file for file in (args.file, args.weights) if file], args))


def check_suffix(output: Path | None) -> None:
    """Refuses an output name with the suffix of another format; digits after a point are a version."""
    suffix = output.suffix[1:] if output and not output.is_dir() else ""
    if suffix in ("keras", "h5"):
        raise click.UsageError(f"FILE is a Keras model already: -o NAME.{suffix} is for -symbol.json files.")
    if suffix and suffix != "onnx" and not suffix.isdigit():
        rule = "-o must be a name without a suffix, for MXNet's files, an existing folder, or NAME.onnx"
        raise click.UsageError(f"{rule}; received {output}.")


def onnx_arguments(output: Path | None, opset: int, dynamic_size: bool) -> dict | None:
    """Returns the arguments of `mxsame.export_onnx`; None if the output is not an ONNX file."""
    if output and output.suffix == ".onnx" and not output.is_dir():
        need("onnx", "mxsame convert -o NAME.onnx")
        with refusals():
            import onnx
        newest = onnx.defs.onnx_opset_version()
        if opset > newest:
            raise click.UsageError(f"--opset must be at most {newest}, which the installed onnx has; received {opset}.")
        return {"opset": opset, "dynamic_size": dynamic_size}
    if opset != 13 or dynamic_size:
        raise click.UsageError("--opset and --dynamic-size are for an ONNX file: use -o NAME.onnx.")
    return None


def write_network(args: SimpleNamespace) -> None:
    """Writes an MXNet network as a Keras model or an ONNX file."""
    if args.output is None or args.output.suffix not in (".keras", ".h5", ".onnx") or not args.shapes:
        raise click.UsageError("a -symbol.json file needs -o NAME.keras, NAME.h5 or NAME.onnx, and --shape.")
    if args.onnx is not None and args.layout is not None:
        raise click.UsageError("--layout must not be given for an ONNX file of an MXNet network: it keeps its own.")
    need_mxnet()
    from mxsame import _gluon, export_onnx, to_keras
    from mxsame.export_keras.export import load_symbol_file
    from mxsame.graphs.tracing import flatten

    with refusals(), stages() as stage:
        net = load_symbol_file(args.file)
        shapes = in_order(args.shapes, [variable.name for variable in flatten(_gluon.graph_inputs(net))])
        try:
            if args.onnx is None:
                result: Any = to_keras(net, args.output, shapes, layout=args.layout or "NHWC", progress=stage)
            else:
                result = export_onnx(net, args.output, shapes, **args.onnx, progress=stage)
        except ValueError as error:
            raise ValueError(f"{advice(args.file, shapes)}{error}") from error
    if args.as_json:
        print_json(result._asdict())
        return
    kind, by = "layer" if args.onnx is None else "operator", result.compared_by or "nothing"
    click.echo(
        f"{result.layers} {kind}{'s' * (result.layers != 1)}, {result.parameters:,} parameters, compared by {by}"
    )
    loads = " (for Keras 3; for tf.keras 2, write an .h5 file)" * (args.output.suffix == ".keras")
    click.echo(f"written: {result.path}{loads}")


def advice(file: str, shapes: list) -> str:
    """Returns advice for a refused file that may have been written for every size."""
    from mxsame import tensors

    if tensors.FIXED_SIZE_PREFIX in Path(file).read_text(encoding="utf-8"):
        return ""
    shape = ", ".join(map(str, shapes))
    return f"If mxsame.export wrote this file for every size, write it for one: mxsame.export(net, path, {shape}).\n"


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Makes messages about wrong options begin with the usage, also in the child process."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or click.Context(command, info_name="mxsame convert")
        raise


@usage_errors()
def convert_file(args: SimpleNamespace, limits: Callable[[], Any] = contextlib.nullcontext) -> int:
    """Reads, compares, writes and prints in this process; returns the exit code."""
    need_mxnet()
    keras = imported_keras() if args.check else None
    custom = imported_dict("--custom", args.custom)
    objects = imported_dict("--custom-objects", args.custom_objects)
    from mxsame import compare, export, export_onnx
    from mxsame._mxnet import mx
    from mxsame.graphs.errors import explain_errors
    from mxsame.port import convert, report

    result = Result(args.file)
    with refusals(), stages() as stage, warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.filterwarnings("ignore", "Do not pass an `input_shape`")  # Keras 3, for every Keras 2 file
        warnings.showwarning = lambda message, *where: click.echo(f"Warning: {message}", err=True)
        arguments = {"layout": args.layout, "padding": args.padding, "custom": custom, "progress": stage}
        try:
            with limits():
                result.net = net = convert.from_keras(args.file, args.weights, **arguments)
                mx.nd.waitall()
        except (MemoryError, mx.base.MXNetError) as error:
            reason = f"it takes more memory than its size allows ({type(error).__name__})"
            raise click.ClickException(f"{args.file} must be a whole model file: {reason}.") from error
        shapes = input_shapes(net, args)
        stage("running the network", 0, 1)
        with refusals("--shape" if args.shapes else None), explain_errors(shapes=shapes):
            result.rows = report.layer_rows(net, list(map(mx.nd.zeros, shapes)))
        if keras is not None:
            stage("loading the model in Keras", 0, 1)
            model = load_model(keras, args.file, args.weights, objects, custom)  # has no code: from_keras refuses it
            stage("comparing with Keras", 0, 1)
            result.compared = compare(net, model, report.random_inputs(net, shapes))
        if args.output is not None and not result.differs:
            target = str(args.output / Path(args.file).stem if args.output.is_dir() else args.output)
            stage("writing", 0, 1)
            if args.onnx is None:
                result.written = list(export(net, target, shapes))
            else:
                result.written = [export_onnx(net, target, shapes, **args.onnx, progress=stage).path]
    (result.print_json if args.as_json else result.print)()
    return DIFFERS if result.differs else 0


def input_shapes(net: Any, args: SimpleNamespace) -> list:
    """Returns a shape for each input: that of --shape, or the model's own."""
    from mxsame.onnx.export import has_fixed_size

    declared = [tuple(value.ordered(value.shape)) for value in net.inputs]
    accepted = ", ".join(map(str, declared))
    if args.dynamic_size and has_fixed_size(net.declared_shapes):
        rule = "--dynamic-size needs a model whose input declares None for its size, as Input((None, None, 3)) does"
        raise click.UsageError(f"{rule}; the model takes {accepted}.")
    if args.shapes:
        shapes = in_order(args.shapes, [tensor.layer for tensor in net.description.inputs])
        if list(map(len, shapes)) != list(map(len, declared)):
            received = " and ".join(",".join(map(str, shape)) for shape in shapes)
            rule = f"--shape must have as many lengths as the model takes, {accepted}"
            raise click.UsageError(f"{rule}; received {received}.")
        return shapes
    if any(None in shape[1:] for shape in declared):
        raise click.UsageError(f"--shape must be given: the model takes {accepted}, None for any size.")
    return [(1, *shape[1:]) for shape in declared]


def in_order(shapes: tuple, inputs: list[str]) -> list:
    """Returns the shapes of --shape, which are pairs of a name (or None) and a shape, in the order of the inputs."""
    by_name = dict(shapes)
    if len(shapes) != len(inputs) or set(by_name) not in ({None}, set(inputs)):
        rule = f"--shape must be given once for each input, without names or with {', '.join(inputs)}"
        raise click.UsageError(f"{rule}; received {', '.join(name or '(no name)' for name, _ in shapes)}.")
    for _, shape in shapes:
        validation.check_element_count("--shape", shape)
    return [shape for _, shape in shapes] if None in by_name else [by_name[name] for name in inputs]
