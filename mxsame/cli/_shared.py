"""What commands share: options of their kinds, and one line for what is missing."""

from __future__ import annotations

import json
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from mxsame.installation import requirements

EXTRAS = {"h5py": "extra [keras]", "onnx": "extra [onnx]"}
COMMAND_LINE = ("click", "rich", "matplotlib")  # what the extra [cli] brings


def missing(package: str, what: str) -> NoReturn:
    """Ends the program with one line that says what needs the package, and the command that installs it, together with
    all other packages of the command line that are not installed."""
    packages, extras = [package], EXTRAS.get(package)
    if extras is None:
        packages += [other for other in COMMAND_LINE if other != package and find_spec(other) is None]
        extras = "extras [cpu] and [cu112], which bring MXNet, and [cli]"
    *first, last = packages
    wanted = requirements.ONNX if package == "onnx" else packages
    names = f"{', '.join(first)} and {last}" if first else last
    sys.exit(
        f"mxsame: {what} needs {names}, which {'are' if first else 'is'} not installed. mxsame's {extras} "
        f"{'has' if package in EXTRAS else 'have'} {'them' if first else 'it'}; fix it with: "
        f"{requirements.install(*wanted)}"
    )


try:
    import click
except ImportError:
    missing("click", "the command line")

PICTURE_FORMATS = (".png", ".pdf", ".svg", ".jpg")

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


def need(package: str, what: str) -> None:
    """One clear line where a package of the extra is not there, and what needs it."""
    if find_spec(package) is None:
        missing(package, what)


def need_mxnet() -> None:
    """Imports MXNet; where that fails, its explanation is the error."""
    try:
        from mxsame import _mxnet  # noqa: F401
    except ImportError as error:
        raise click.ClickException(str(error)) from error


def print_json(value: Any) -> None:
    """Plain JSON: what JSON has no number for, as an infinite difference, is null."""
    click.echo(json.dumps(plain(value), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """The value with None in the place of floats that JSON does not know.

    >>> plain({"difference": [float("inf"), 0.5]})
    {'difference': [None, 0.5]}
    """
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def check_picture(option: str, path: Path, written: bool = True) -> None:
    """A file name that can be written to, and says a format."""
    if path.suffix.lower() not in PICTURE_FORMATS:
        raise click.BadParameter(f"{path.name!r} must end in one of {', '.join(PICTURE_FORMATS)}.", param_hint=option)
    if written and not path.resolve().parent.is_dir():
        raise click.BadParameter(f"the folder {str(path.parent)!r} does not exist.", param_hint=option)


def check_axes(size: tuple) -> None:
    """As many axes as MXNet's operators may have."""
    if len(size) > 3:
        raise click.UsageError(f"--size must have at most three values, one for each axis; received {listed(size)}.")


def listed(values: tuple) -> str:
    """What was received for an option of several values.

    >>> listed((28, 30)), listed(("same", (0, 1)))
    ('28,30', 'same and 0,1')
    """
    if all(isinstance(value, int) for value in values):
        return ",".join(map(str, values))
    return " and ".join(listed(value) if isinstance(value, tuple) else value for value in values)


class Integers(click.ParamType):
    """`28` or `28,30`: integers with commas between."""

    name = "integers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} must be an integer, or integers with commas between, as in 28,30", param, ctx)


integers = partial(click.option, type=Integers(), metavar="INT[,INT]...")


def spread(axes: int, **options: tuple) -> list[tuple]:
    """Options that have one value for all axes, or one for each, as one value for each."""
    for name, values in options.items():
        if len(values) not in (1, axes):
            each = "" if axes == 1 else f", or one for each of the {axes} axes"
            raise click.UsageError(f"--{name} must have one value{each}; received {listed(values)}.")
    return [values * axes if len(values) == 1 else values for values in options.values()]
