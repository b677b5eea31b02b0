"""The command line, one file for each command. What is heavy is imported by the command that needs it."""

from __future__ import annotations

from mxsame import __version__
from mxsame.cli import bench, demo, doctor, pads
from mxsame.cli._shared import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mxsame", message="%(prog)s %(version)s")
def main() -> None:
    """Keras's padding="same", exact on MXNet.

    Start with `mxsame demo`. `mxsame pads --size 28 --kernel 3 --stride 2` shows where padding goes, `mxsame bench`
    what it costs here, and `mxsame doctor` what keeps MXNet from working. `pads` and `doctor` run without MXNet.

    Exit codes: 0 where all is well, 1 where it is not, 2 for wrong options.
    """


for module in (demo, pads, bench, doctor):
    main.add_command(module.command)
