"""`mxsame pads`: plain arithmetic and a drawing in characters; it needs neither MXNet nor NumPy."""

from __future__ import annotations

import re
import shutil
from functools import partial
from typing import Any

from mxsame import padding as arithmetic, validation
from mxsame.cli._shared import Integers, as_json, click, print_json
from mxsame.drawing import DATA, PADDING, SKIPPED, PaddedAxis, visible_positions
from mxsame.padding.keras_mxnet import KERAS_MXNET, check_keras_mxnet

WINDOW = ("kernel", "stride", "dilation")
MODES = ("same", "valid", "causal", KERAS_MXNET)
# Argument names in the library's messages; dropping the [index] gives the name of the option.
ARGUMENT = re.compile(r"(?<!\S)(size|kernel|stride|dilation|padding|output_padding)(?:\[\d+\])*(?= must |=)")
MARKS = {DATA: "#", PADDING: "o", SKIPPED: "."}


class Padding(Integers):
    """A padding mode, `LOW,HIGH`, or one number for both ends."""

    name = "padding"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value.lower() in MODES:
            return value.lower()
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} must be one of {', '.join(MODES)}, an integer, or LOW,HIGH.", param, ctx)


integers = partial(click.option, type=Integers(), metavar="INT[,INT]...")


@click.command("pads", short_help="Show where padding goes.")
@integers("--size", required=True, help="Input size; for two or three axes, 28,30.")
@integers("--kernel", required=True, help="Kernel or pool size; one for all axes, or one for each.")
@integers("--stride", default="1", show_default=True, help="Stride.")
@integers("--dilation", default="1", show_default=True, help="Dilation.")
@click.option(
    "--padding",
    type=Padding(),
    metavar=f"{'|'.join(MODES)}|INT|LOW,HIGH",
    default=("same",),
    multiple=True,
    show_default=True,
    help="A rule, or integers, repeated for each axis. causal is for one axis, keras-mxnet for convolutions.",
)
@click.option("--transposed", is_flag=True, help="Show what a transposed convolution crops from its full extent.")
@click.option("--output-padding", type=int, help="With --transposed: Keras's output_padding.")
@as_json
def command(
    size: tuple[int, ...], padding: tuple[Any, ...], transposed: bool, output_padding: int | None, as_json: bool,
    **window: tuple[int, ...],
) -> None:  # fmt: skip
    """Show where padding goes: low, high, output size, and a drawing.

    \b
    mxsame pads --size 28 --kernel 3 --stride 2
    mxsame pads --size 28,30 --kernel 3,5 --stride 2
    mxsame pads --size 28 --kernel 3 --padding 1,1
    mxsame pads --size 14 --kernel 3 --stride 2 --transposed
    """
    rank = len(size)
    if output_padding is not None and not transposed:
        raise click.UsageError("--output-padding needs --transposed.")
    for name in WINDOW:
        if len(window[name]) not in (1, rank):
            raise click.UsageError(f"--{name} has {len(window[name])} values, but --size has {rank}.")
    try:
        per_axis = [validation.per_axis(name, repeated(window[name], rank), rank, 1) for name in WINDOW]
        pads: Any = [entry if isinstance(entry, str) else repeated(entry, 2) for entry in repeated(padding, rank)]
        pads = pads[0] if isinstance(padding[0], str) and len(padding) == 1 else pads
        pads = by_axis(validation.padding(pads, rank, causal=True), transposed, *per_axis)
        geometries = zip(size, *per_axis)
        axes = [PaddedAxis.of(*axis, transposed, output_padding) for axis in zip(geometries, pads)]
    except (ValueError, TypeError) as error:
        message = ARGUMENT.sub(lambda argument: f"--{argument[1]}".replace("_", "-"), str(error))
        raise click.UsageError(message) from error
    if as_json:
        print_json({"transposed": transposed, "axes": [*map(as_data, axes)]})
        return
    for number, axis in enumerate(axes):
        prefix = f"axis {number}: " if rank > 1 else ""
        label, outputs = ("crop", axis.elements) if transposed else ("pads", axis.windows)
        click.secho(f"{prefix}{label} ({axis.low}, {axis.high}), output size {outputs}", bold=True)
        for line in drawing(axis, shutil.get_terminal_size().columns):
            click.echo(f"  {line}")
        click.echo()


def as_data(axis: PaddedAxis) -> dict[str, Any]:
    """Returns an axis as --json prints it; the "pads" of a transposed convolution are the cropped elements."""
    sizes = (axis.windows, axis.elements) if axis.transposed else (axis.elements, axis.windows)
    window = {"kernel_size": axis.kernel_size, "stride": axis.stride, "dilation": axis.dilation}
    return {**dict(zip(("size", "output_size"), sizes)), **window, "pads": [axis.low, axis.high]}


def by_axis(padding: Any, transposed: bool, *window: tuple[int, ...]) -> list[Any]:
    """Returns a mode or (low, high) for each axis; if keras-mxnet computes one extra output, the pads that give it."""
    rank = len(window[0])
    entries: list[Any] = [padding] * rank if isinstance(padding, str) else list(padding)
    if transposed:
        check_keras_mxnet(padding, "transposed", *window)
    elif padding == KERAS_MXNET:
        for axis, (kernel, stride, dilation) in enumerate(zip(*window)):
            if arithmetic.keeps_extra_output("conv", rank, axis, kernel, stride, dilation):
                entries[axis] = (arithmetic.effective_kernel_size(kernel, dilation) // 2,) * 2
    return entries


def repeated(values: tuple, count: int) -> tuple:
    """Returns a single value `count` times, and several values unchanged."""
    return values * count if len(values) == 1 else values


def drawing(axis: PaddedAxis, width: int) -> list[str]:
    """Returns one line per window: each output's window over the input or, if transposed, each input's over
    the output."""
    name, legend = "output", "each line: the elements one output reads; # data, o padding, . skipped by dilation"
    if axis.transposed:
        name = "input"
        legend = "each line: the output elements one input element writes to; # kept, o cropped, . skipped by dilation"
    label, columns = len(f"{name} {axis.windows - 1} "), visible_positions([axis])
    if label + 2 * sum(map(len, columns)) + 5 * len(columns) > width:
        return ["(wider than the terminal)"]

    def line(text: str, marks: dict[int, str]) -> str:
        parts = ["".join(f" {marks.get(position, ' ')}" for position in span) for span in columns]
        return (text.ljust(label) + "  ...".join(parts)).rstrip()

    digits = len(str(axis.elements - 1))  # indices are read downwards: 12 is a 1 above a 2
    lines = [line("", heading(axis, columns, row, digits)) for row in range(digits)]
    for number, span in enumerate(axis.drawn_windows):
        lines += ["..."] if number else []
        for window in span:
            marks = {position: MARKS[kind] for position, kind in axis.reads(window).items()}
            lines.append(line(f"{name} {window}", marks))
    return [*lines, legend]


def heading(axis: PaddedAxis, columns: list[range], row: int, digits: int) -> dict[int, str]:
    """Returns position -> character in a line of the heading: a digit of an element's index, or a mark of padding."""
    marks = {}
    for position in (position for span in columns for position in span):
        if axis.kind(position) == DATA:
            marks[position] = str(position).rjust(digits)[row]
        elif row == digits - 1:
            marks[position] = MARKS[PADDING]
    return marks
