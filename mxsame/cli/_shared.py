"""Code that several commands share: types of options, tables, and errors that are printed in one line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Iterator, Sequence

from mxsame.installation import requirements


def need(package: str, what: str) -> None:
    """Exits with one line, which has the command that installs the package, unless it is installed."""
    if find_spec(package) is None:
        packages = {"onnx": requirements.ONNX, "click": ("click", "h5py")}.get(package, (package,))
        command = requirements.install(*packages)
        sys.exit(f"Error: {what} needs {package}, which is not installed; fix it with: {command}")


need("click", "the command line")
import click  # noqa: E402

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


@contextlib.contextmanager
def flushed_output() -> Iterator[None]:
    """Exits with one line if the output cannot be written, as after any other `OSError`."""
    try:
        try:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")  # the encoding may not have all characters of a message
            yield
        finally:
            if sys.stdout:  # None if it was closed when the process started
                sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError):  # the rest of the buffer cannot be written at exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"Error: {error}")


OPTIONS = {  # pattern of an argument in the library's messages -> the option in its place
    r"^(layout|weights|custom) must ": r"--\1 must ",
    r"^input_shape must ": "--shape must ",
    r"^net must run on data of this shape;": "--shape must fit the network;",
    r"; received (layout|weights|custom)=": r"; received --\1=",
    r"; received input_shape=": "; received --shape=",
    r"use data\.transpose\(\([\d, ]+\)\), or a net of layout=\"(\w+)\"": r"use --layout \1, or the other order",
    r"custom=\{": "--custom MODULE:NAME, a dict {",
}


@contextlib.contextmanager
def refusals(option: str | None = None) -> Iterator[None]:
    """Exits with the message of an error in the block, in which options replace arguments. It is a usage error if the
    message names an option, or if `option` is given: then all errors in the block are about that option."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        message = str(error)
        for pattern, replacement in OPTIONS.items():
            message = re.sub(pattern, replacement, message)
        if option is None and not re.search("^--|; received --", message):
            raise click.ClickException(message) from error
        if option is not None:  # the data has the shape from the option, and is not the user's
            message = re.sub("^(?!data )", f"{option}: ", message.replace("data.shape=", ""))
            message = re.sub("^data ", f"{option} ", message)
        raise click.UsageError(message) from error


def need_mxnet() -> None:
    """Imports MXNet, or exits with the message of the `InstallationError`."""
    with refusals():
        from mxsame import _mxnet  # noqa: F401


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Prints a table; the color codes in a text do not count in the width of its column."""
    widths = [max(len(click.unstyle(text)) for text in column) for column in zip(*lines)]
    for line in lines:
        padded = (text + " " * (width - len(click.unstyle(text))) for text, width in zip(line, widths))
        click.echo("  ".join(padded).rstrip())


class Target(click.Path):
    """The path of a file to write, in an existing folder; with `accepts_folders`, an existing folder, too."""

    def __init__(self, accepts_folders: bool = False) -> None:
        super().__init__()
        self.accepts_folders = accepts_folders

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(super().convert(value, param, ctx))
        if value and self.accepts_folders and path.is_dir():
            return path
        folder, name = os.path.split(value)
        if folder and not os.path.isdir(folder):
            self.fail(f"the folder {folder!r} does not exist.", param, ctx)
        if name in ("", os.curdir, os.pardir, ".onnx", ".keras", ".h5"):
            self.fail(f"{value!r} must end in the name of a file.", param, ctx)
        return path


class Integers(click.ParamType):
    """`28` or `28,30`: integers separated by commas."""

    name = "integers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} must be an integer, or integers with commas between, as in 28,30", param, ctx)


class Shape(Integers):
    """`1,3,224,224`, or with the name of an input, `data=1,3,224,224`."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, _, lengths = value.rpartition("=")
        shape = super().convert(lengths, param, ctx)
        if min(shape) < 1:
            self.fail(f"{lengths!r} must be lengths of at least 1.", param, ctx)
        return name or None, shape


def shape_option(help: str, required: bool = False) -> Any:
    """Returns the option --shape, for the shapes of a network's inputs."""
    metavar = "[NAME=]INT,INT,..."
    return click.option("--shape", "shapes", type=Shape(), metavar=metavar, multiple=True, required=required, help=help)
