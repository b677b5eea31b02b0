"""`mxsame demo`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mxsame.cli._shared import PICTURE_FORMATS, as_json, check_picture, click, need, need_mxnet, print_json


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    default="mxsame-demo.png",
    show_default=True,
    help=f"Where the picture goes; {', '.join(PICTURE_FORMATS)}.",
)
@click.option("--no-picture", is_flag=True, help="Print only; write no file.")
@as_json
@click.pass_context
def command(context: click.Context, out: Path, no_picture: bool, as_json: bool) -> None:
    """Three networks on a photograph, layer by layer, compared with TensorFlow.

    Runs a stem, a Sequential network and an autoencoder as hybridized Gluon networks with recorded weights, compares
    every layer's output with recorded TensorFlow outputs and with what symmetric padding gives, and draws a picture of
    the difference. Takes a few seconds.

    Exit codes: 0 if every layer is right, 1 if any is off or the demo cannot run, 2 for wrong options.

    --json prints {"mxsame", "right", "picture", "networks"}, each network {"name", "layers"}, each layer {"name",
    "output", "pads", "difference", "symmetric_difference", "right"}: shapes with channels first, pads [low, high] of
    both axes or null. A difference is null where shapes differ.
    """
    given = context.get_parameter_source("out") is not click.core.ParameterSource.DEFAULT
    if given and no_picture:
        raise click.UsageError("--out and --no-picture exclude each other.")
    check_picture("--out", out, written=not no_picture)
    need("rich", "`mxsame demo`")
    if find_spec("matplotlib") is None:
        need_mxnet()  # where both are missing, it is named first
        need("matplotlib", "`mxsame demo`, to read its photograph,")
    from rich.console import Console

    from mxsame import demo

    path = None if no_picture else out
    try:
        results = demo.run(Console(quiet=as_json), path)
    except (ImportError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(demo.as_data(results, path))
    context.exit(0 if all(result.ok for result in results) else 1)
