"""The command line, with one file for each command. Large packages are imported only when a command runs."""

from __future__ import annotations

import os
from typing import Any

from mxsame import __version__
from mxsame.cli import audit, convert, demo, doctor, pads
from mxsame.cli._shared import click, flushed_output


class Commands(click.Group):
    """A group whose commands print one line if a file or the output cannot be written."""

    def main(self, *args: Any, **options: Any) -> Any:
        if not os.environ.get("COLUMNS", "80").strip("0 "):  # 0 on some terminals; click and rich then use 80
            del os.environ["COLUMNS"]
        with flushed_output():
            return super().main(*args, **options)


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mxsame", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Keras's padding="same", exact on MXNet.

    Start with `mxsame demo`. `mxsame convert model.h5 -o model` converts a Keras model to an MXNet network,
    `mxsame pads --size 28 --kernel 3 --stride 2` shows where padding goes, and `mxsame doctor` why MXNet does not work.
    `pads` and `doctor` run without MXNet.

    Exit codes: 0 on success, 1 on failure, 2 for wrong options and missing files, 3 if `convert --check` finds a
    layer that differs.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for module in (demo, pads, convert, audit, doctor):
    main.add_command(module.command)
