"""`mxsame demo`."""

from __future__ import annotations

from mxsame.cli._shared import click, need_mxnet, print_table

LEGEND = """\
Each table has the layers of a Keras network:
  window             kernel size and stride
  output             channels, height, width
  pads               (low, high) of the height, then of the width
  mxsame, symmetric  largest difference from TensorFlow's outputs, with mxsame
                     and with symmetric padding. Differences up to 1e-4
                     (relative, for outputs above 1) are rounding; * marks
                     larger ones.
In the Sequential network, low and high are equal in every layer, and so both
kinds of padding give the same outputs.
"""


@click.command("demo", short_help="Compare three Keras networks with TensorFlow.")
@click.pass_context
def command(context: click.Context) -> None:
    """Compare three Keras networks on a photograph, layer by layer, with TensorFlow.

    This runs the first layers of a classifier, a Sequential network and an autoencoder in Gluon with recorded weights,
    with SAME and with symmetric padding, and compares the output of every layer with TensorFlow's recorded output. It
    takes a few seconds.

    Exit codes: 0 if every layer is right, 1 if one is wrong or the demo cannot run, 2 for wrong options.
    """
    need_mxnet()
    from mxsame import demo

    click.echo(LEGEND)
    exact, exact_if_symmetric, layers = 0, 0, 0
    for name, network in demo.NETWORKS.items():
        lines = [("layer", "window", "output", "pads", "mxsame", "symmetric")]
        for row in demo.compare(name):
            results = row.is_right(row.mxsame), row.is_right(row.symmetric)
            layers, exact, exact_if_symmetric = layers + 1, exact + results[0], exact_if_symmetric + results[1]
            height, width, channels = row.mxsame.shape
            outputs = zip((row.mxsame, row.symmetric), (("green", "") if right else ("red", " *") for right in results))
            differences = (click.style(f"{row.difference(out):.1e}{mark}", fg=color) for out, (color, mark) in outputs)
            pads = f"{row.pads} {row.pads}" if row.pads else ""
            lines.append((row.layer.name, row.layer.window, f"{channels}, {height}, {width}", pads, *differences))
        click.secho(network.title, bold=True)
        print_table(lines)
        click.echo()
    symmetric = f"Symmetric padding: {exact_if_symmetric} of {layers}, with the right shapes throughout."
    click.echo(f"mxsame: {exact} of {layers} layers match TensorFlow 2.13.1. {symmetric}")
    context.exit(0 if exact == layers else 1)
