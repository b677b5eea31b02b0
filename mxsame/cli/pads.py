"""`mxsame pads`: plain arithmetic and a drawing in characters; it needs neither MXNet nor NumPy."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any, Callable

from mxsame import padding as arithmetic
from mxsame import validation
from mxsame.cli._shared import as_json, check_axes, check_picture, click, integers, listed, need, print_json, spread

WORDS = ("same", "valid", "causal", arithmetic.KERAS_MXNET)


class Padding(click.ParamType):
    """A word, or `LOW,HIGH`."""

    name = "padding"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | tuple[int, int]:
        if isinstance(value, tuple):
            return value
        if value.lower() in WORDS:
            return value.lower()
        try:
            low, high = (int(part) for part in value.split(","))
            return low, high
        except ValueError:
            self.fail(f"{value!r} must be {', '.join(WORDS)}, or two integers LOW,HIGH, as in 0,1", param, ctx)


@click.command("pads")
@integers("--size", required=True, help="Input size; two or three axes as 28,30.")
@integers("--kernel", required=True, help="Kernel or pool size; one for all axes, or one each.")
@integers("--stride", default="1", show_default=True, help="Stride.")
@integers("--dilation", default="1", show_default=True, help="Dilation.")
@click.option(
    "--padding",
    type=Padding(),
    metavar=f"{'|'.join(WORDS)}|LOW,HIGH",
    default=("same",),
    multiple=True,
    show_default=True,
    help="One for all axes, or repeated, one each; causal is for one axis, keras-mxnet is that of its convolutions.",
)
@click.option("--transposed", is_flag=True, help="A transposed convolution: what is cut from its full extent.")
@click.option("--output-padding", type=int, help="With --transposed: Keras's output_padding.")
@as_json
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write a picture too; the ending says the format (.png, .pdf, .svg, .jpg).",
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
        axes = [
            describe_axis(*values, transposed=transposed, output_padding=output_padding)
            for values in zip(size, kernel, stride, dilation, padding)
        ]
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error
    if plot is not None:
        write_picture(axes, plot)
    if as_json:
        print_json({"axes": axes})
        return
    for number, axis in enumerate(axes):
        show_axis(f"axis {number}: " if len(axes) > 1 else "", axis)


def by_axis(padding: tuple, kernel: tuple, stride: tuple, dilation: tuple, transposed: bool) -> tuple:
    """The padding of each axis of a convolution; keras-mxnet's axes differ, and its word stands for all of them."""
    if len(padding) > 1:
        for word in (entry for entry in padding if isinstance(entry, str)):
            validation.padding(word, len(padding))  # causal is not for several axes
    if arithmetic.KERAS_MXNET not in padding:
        return padding
    if set(padding) != {arithmetic.KERAS_MXNET}:
        raise ValueError(f"--padding keras-mxnet is for all axes; received {listed(padding)}.")
    return arithmetic.by_axis(padding[0], "transposed" if transposed else "conv", kernel, stride, dilation)


def describe_axis(
    size: int,
    kernel_size: int,
    stride: int,
    dilation: int,
    padding: str | tuple[int, int],
    *,
    transposed: bool,
    output_padding: int | None,
) -> dict[str, Any]:
    """One axis of `mxsame pads` as numbers; for a transposed convolution `low` and `high` are what is cut."""
    if transposed:
        low, high = arithmetic.transposed_cuts(kernel_size, stride, dilation, padding, output_padding)
        output_size = arithmetic.transposed_output_size(size, kernel_size, stride, dilation, padding, output_padding)
    else:
        low, high = arithmetic.resolve_pads(size, kernel_size, stride, dilation, padding)
        output_size = arithmetic.output_size(size, kernel_size, stride, dilation, padding)
    axis = {
        "size": size,
        "kernel_size": kernel_size,
        "stride": stride,
        "dilation": dilation,
        "padding": padding,
        "transposed": transposed,
        "low": low,
        "high": high,
        "output_size": output_size,
    }
    return {**axis, "output_padding": output_padding} if transposed else axis


def write_picture(axes: list[dict[str, Any]], path: Path) -> None:
    """The axes as `mxsame.plot_padding` draws them, in a file."""
    from mxsame.drawing import save_padding

    found = ("low", "high", "output_size")
    try:
        save_padding([{name: axis[name] for name in axis if name not in found} for axis in axes], path)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.ClickException(str(error)) from error


def show_axis(prefix: str, axis: dict[str, Any]) -> None:
    """Numbers and drawing of one axis."""
    word = "cut" if axis["transposed"] else "pads"
    click.secho(f"{prefix}{word} ({axis['low']}, {axis['high']}), output size {axis['output_size']}", bold=True)
    for line in drawing(axis, shutil.get_terminal_size().columns):
        click.echo(f"  {line}")
    click.echo()


def drawing(axis: dict[str, Any], width: int) -> list[str]:
    """Windows over cells, one line each: those of the outputs over the input, or, transposed, the other way round."""
    low, stride, dilation = axis["low"], axis["stride"], axis["dilation"]
    reach = (axis["kernel_size"] - 1) * dilation + 1
    cells, windows, name = axis["size"], axis["output_size"], "output"
    legend = "each line: the cells one output reads; # data, o padding, . skipped by dilation"
    if axis["transposed"]:
        cells, windows, name = windows, cells, "input"
        legend = "each line: the output cells one input cell writes to; # kept, o cut, . skipped by dilation"
    begin, end = min(-low, 0), max((windows - 1) * stride - low + reach, cells)
    label = len(f"{name} {windows - 1} ")

    def start(window: int) -> int:
        return window * stride - low

    def fits(columns: list[range]) -> bool:
        return label + 2 * sum(map(len, columns)) + 5 * len(columns) <= width

    columns, shown = [range(begin, end)], ends(windows, 3, most=10)
    for few in (3, 2, 1):
        if not fits(columns) and windows > 2 * few:
            shown = ends(windows, few)
            columns = [range(begin, start(few - 1) + reach), range(start(windows - few), end)]
    if not fits(columns):
        some = sorted({0, windows // 2, windows - 1})
        lines = [f"{name} {window}: cells {start(window)} to {start(window) + reach - 1}" for window in some]
        return [*lines, f"(too many cells to draw; those of the data are 0 to {cells - 1})"]

    def line(title: str, mark: Callable[[int], str]) -> str:
        parts = ["".join(f" {mark(cell)}" for cell in span) for span in columns]
        return (title.ljust(label) + "  ...".join(parts)).rstrip()

    def window_mark(window: int, cell: int) -> str:
        offset = cell - start(window)
        if not 0 <= offset < reach:
            return " "
        return "." if offset % dilation else "#" if 0 <= cell < cells else "o"

    digits = len(str(cells - 1))  # cell numbers stand upright: 12 is a 1 with a 2 below

    def heading_mark(row: int, cell: int) -> str:
        if 0 <= cell < cells:
            return str(cell).rjust(digits)[row]
        return "o" if row == digits - 1 else " "

    lines = [line("", partial(heading_mark, row)) for row in range(digits)]
    for number, span in enumerate(shown):
        lines += ["..."] if number else []
        lines += [line(f"{name} {window}", partial(window_mark, window)) for window in span]
    return [*lines, legend]


def ends(count: int, few: int, most: int = 0) -> list[range]:
    """The first and last `few` of `count`; all of them where they are at most `most`."""
    return [range(count)] if count <= most else [range(few), range(count - few, count)]
