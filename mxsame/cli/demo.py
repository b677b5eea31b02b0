"""`mxsame demo`."""

from __future__ import annotations

from pathlib import Path

from mxsame.cli._shared import PICTURE_FORMATS, Target, click, need, need_mxnet


@click.command("demo")
@click.option(
    "--out",
    type=Target(PICTURE_FORMATS),
    metavar="FILE",
    default="mxsame-demo.png",
    show_default=True,
    help=f"Where the picture goes; {', '.join(PICTURE_FORMATS)}.",
)
@click.pass_context
def command(context: click.Context, out: Path) -> None:
    """Three networks on a photograph, layer by layer, compared with TensorFlow.

    Runs a stem, a Sequential network and an autoencoder in Gluon with recorded weights, compares every layer's output
    with TensorFlow's recorded output and with that of symmetric padding, and draws a picture of the difference.
    Takes a few seconds.

    Exit codes: 0 if every layer is right, 1 if any is off or the demo cannot run, 2 for wrong options.
    """
    need("rich", "`mxsame demo`")
    need("matplotlib", "`mxsame demo`")
    need_mxnet()
    from rich.console import Console

    from mxsame import demo

    context.exit(0 if demo.run(Console(), out) else 1)
