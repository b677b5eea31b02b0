"""`mxsame pads`: plain arithmetic and a drawing in characters; it needs neither MXNet nor NumPy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from mxsame import padding as arithmetic
from mxsame import validation
from mxsame.cli._shared import as_json, check_axes, check_picture, click, integers, listed, need, print_json, spread
from mxsame.drawing import DATA, PADDING, SKIPPED, PaddedAxis, save_padding, shown

WORDS = ("same", "valid", "causal", arithmetic.KERAS_MXNET)
MARKS = {DATA: "#", PADDING: "o", SKIPPED: "."}


class Padding(click.ParamType):
    """A word, `LOW,HIGH`, or one number for both ends."""

    name = "padding"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | tuple[int, int]:
        if isinstance(value, tuple):
            return value
        if value.lower() in WORDS:
            return value.lower()
        try:
            numbers = [int(part) for part in value.split(",")]
            low, high = numbers * 2 if len(numbers) == 1 else numbers
            return low, high
        except ValueError:
            self.fail(f"{value!r} must be {', '.join(WORDS)}, an integer, or two, LOW,HIGH, as in 0,1", param, ctx)


@click.command("pads")
@integers("--size", required=True, help="Input size; two or three axes as 28,30.")
@integers("--kernel", required=True, help="Kernel or pool size; one for all axes, or one each.")
@integers("--stride", default="1", show_default=True, help="Stride.")
@integers("--dilation", default="1", show_default=True, help="Dilation.")
@click.option(
    "--padding",
    type=Padding(),
    metavar=f"{'|'.join(WORDS)}|INT|LOW,HIGH",
    default=("same",),
    multiple=True,
    show_default=True,
    help="One for all axes, or repeated, one each; causal is for one axis, keras-mxnet is that of its convolutions.",
)
@click.option("--transposed", is_flag=True, help="A transposed convolution: what is cropped from its full extent.")
@click.option("--output-padding", type=int, help="With --transposed: Keras's output_padding.")
@as_json
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="[FILE]",
    is_flag=False,
    flag_value=Path("padding.png"),
    help="Write a picture too, padding.png by default; the ending chooses the format (.png, .pdf, .svg, .jpg).",
)
def command(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[str | tuple[int, int], ...],
    transposed: bool,
    output_padding: int | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Where padding goes: low, high, output size, and a drawing.

    \b
    mxsame pads --size 28 --kernel 3 --stride 2
    mxsame pads --size 28,30 --kernel 3,5 --stride 2
    mxsame pads --size 28 --kernel 3 --padding 1,1
    mxsame pads --size 14 --kernel 3 --stride 2 --transposed
    mxsame pads --size 28 --kernel 3 --stride 2 --plot padding.png
    """
    if plot is not None:
        check_picture("--plot", plot)
        need("matplotlib", "`mxsame pads --plot`")
    if output_padding is not None and not transposed:
        raise click.UsageError("--output-padding needs --transposed.")
    check_axes(size)
    kernel, stride, dilation, padding = spread(
        len(size), kernel=kernel, stride=stride, dilation=dilation, padding=padding
    )
    try:
        padding = by_axis(padding, kernel, stride, dilation, transposed)
        given = list(zip(size, kernel, stride, dilation, padding))
        axes = [PaddedAxis.of(*values, transposed, output_padding) for values in given]
        if plot is not None:
            save_padding(axes, plot)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json({"axes": [as_data(axis, values, output_padding) for axis, values in zip(axes, given)]})
        return
    for number, axis in enumerate(axes):
        prefix = f"axis {number}: " if len(axes) > 1 else ""
        word, outputs = ("crop", axis.elements) if transposed else ("pads", axis.windows)
        click.secho(f"{prefix}{word} ({axis.low}, {axis.high}), output size {outputs}", bold=True)
        for line in drawing(axis, shutil.get_terminal_size().columns):
            click.echo(f"  {line}")
        click.echo()
    if plot is not None:
        click.echo(f"written: {plot}")


def by_axis(padding: tuple, kernel: tuple, stride: tuple, dilation: tuple, transposed: bool) -> tuple:
    """The padding of each axis of a convolution; keras-mxnet's axes differ, and its word is for all of them."""
    if len(padding) > 1:
        for word in (entry for entry in padding if isinstance(entry, str)):
            validation.padding(word, len(padding))  # causal is not for several axes
    if arithmetic.KERAS_MXNET not in padding:
        return padding
    if set(padding) != {arithmetic.KERAS_MXNET}:
        raise ValueError(f"--padding keras-mxnet is for all axes; received {listed(padding)}.")
    return arithmetic.by_axis(padding[0], "transposed" if transposed else "conv", kernel, stride, dilation)


def as_data(axis: PaddedAxis, given: tuple, output_padding: int | None) -> dict[str, Any]:
    """One axis as `--json` prints it; for a transposed convolution `low` and `high` are cropped."""
    found = {
        **dict(zip(("size", "kernel_size", "stride", "dilation", "padding"), given)),
        "transposed": axis.transposed,
        "low": axis.low,
        "high": axis.high,
        "output_size": axis.elements if axis.transposed else axis.windows,
    }
    return {**found, "output_padding": output_padding} if axis.transposed else found


def drawing(axis: PaddedAxis, width: int) -> list[str]:
    """Windows over elements, one line each: those of the outputs over the input, or, transposed, the inverse."""
    name, legend = "output", "each line: the elements one output reads; # data, o padding, . skipped by dilation"
    if axis.transposed:
        name = "input"
        legend = "each line: the output elements one input element writes to; # kept, o cropped, . skipped by dilation"
    label = len(f"{name} {axis.windows - 1} ")

    def fits(columns: list[range]) -> bool:
        return label + 2 * sum(map(len, columns)) + 5 * len(columns) <= width

    columns, windows = shown([axis], few=0), axis.ends()
    for few in (3, 2, 1):
        if not fits(columns) and axis.windows > 2 * few:
            columns, windows = shown([axis], few), axis.ends(few, most=0)
    if not fits(columns):
        some = sorted({0, axis.windows // 2, axis.windows - 1})
        starts = {window: axis.start(window) for window in some}
        lines = [f"{name} {window}: elements {start} to {start + axis.reach - 1}" for window, start in starts.items()]
        return [*lines, f"(too many elements to draw; those of the data are 0 to {axis.elements - 1})"]

    def line(words: str, marks: dict[int, str]) -> str:
        parts = ["".join(f" {marks.get(position, ' ')}" for position in span) for span in columns]
        return (words.ljust(label) + "  ...".join(parts)).rstrip()

    digits = len(str(axis.elements - 1))  # numbers of elements read downwards: 12 is a 1 with a 2 below
    lines = [line("", heading(axis, columns, row, digits)) for row in range(digits)]
    for number, span in enumerate(windows):
        lines += ["..."] if number else []
        for window in span:
            marks = {position: MARKS[kind] for position, kind in axis.reads(window).items()}
            lines.append(line(f"{name} {window}", marks))
    return [*lines, legend]


def heading(axis: PaddedAxis, columns: list[range], row: int, digits: int) -> dict[int, str]:
    """One digit of the number of each element; around them the padding."""
    marks = {}
    for position in (position for span in columns for position in span):
        if axis.kind(position) == DATA:
            marks[position] = str(position).rjust(digits)[row]
        elif row == digits - 1:
            marks[position] = MARKS[PADDING]
    return marks
