"""The picture of padding: one axis as cells, below them the window of every output. matplotlib draws it, an extra."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxsame import padding as arithmetic
from mxsame import validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_padding"]

SYMMETRIC = "symmetric"
INK, CELL, FAINT = "#1f2933", "#e4e7eb", "#9aa5b1"
COLOURS = ("#12736a", "#c2410c")  # of the padding, and of what stands beside it
MOST_WINDOWS, ENDS = 10, 3  # of more windows than that, so many are drawn at each end
MOST_COLUMNS = 120
LABEL, GAP = 3.2, 1.4  # widths, in cells: "output 12", and what stands for the cells that are left out
HEADING, PITCH, HEIGHT = 2.3, 0.78, 0.6  # heights, in cells: title and cells, a window's line, the window
LEGEND = 0.35  # inches


def plot_padding(
    size: int,
    kernel_size: int,
    stride: int = 1,
    dilation: int = 1,
    padding: Any = "same",
    *,
    beside: Any = None,
    transposed: bool = False,
    output_padding: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one axis: its cells, the padding around them, and under them, line by line, the cells each output reads.

    A full square of a window is a tap on data, a hollow one a tap on padding, a thin line what dilation skips. With
    more than 10 outputs the first and the last three are drawn.

    Parameters
    ----------
    size, kernel_size, stride, dilation : int
        n, k, s and d of the axis.
    padding : "same", "valid", "causal", "keras-mxnet", int or (low, high)
        As for `mxsame.padding.output_size`.
    beside : the same, or "symmetric"
        A second padding, drawn below the first; dashed frames show where the windows of the first one stand.
        "symmetric" is the recipe ke//2 at both ends (k//2 without dilation), the usual stand-in for SAME on MXNet.
    transposed : bool
        A transposed convolution: the cells are outputs, each line shows where one input is written, and what is
        padding elsewhere is cut off.
    output_padding : int, optional
        Keras's, of a transposed convolution.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of fitting size, made by pyplot, if it is left out.

    Returns
    -------
    The axes; `.figure.savefig("padding.png")` writes the picture.

    Raises
    ------
    ImportError
        Where matplotlib is not installed.
    TypeError, ValueError
        As `mxsame.padding.output_size`, and for windows too wide to draw.

    Examples
    --------
    >>> import mxsame
    >>> ax = mxsame.plot_padding(8, 3, stride=2, beside="symmetric")
    >>> [text.get_text() for text in ax.texts if "pads" in text.get_text()]
    ['same: pads (0, 1), 4 outputs', 'symmetric: pads (1, 1), 4 outputs, each 1 cell too early']
    >>> import matplotlib.pyplot
    >>> matplotlib.pyplot.close(ax.figure)
    """
    transposed = validation.flag("transposed", transposed)
    if output_padding is not None and not transposed:
        received = validation.received(output_padding=output_padding)
        raise ValueError(f"output_padding must be left out but for transposed=True; {received}")
    geometry = (size, kernel_size, stride, dilation)
    panels = [_panel(*geometry, padding, transposed, output_padding)]
    if beside is not None:
        try:
            panels.append(_panel(*geometry, beside, transposed, output_padding))
        except (TypeError, ValueError) as error:
            raise type(error)(
                f'beside must be "symmetric" or a padding; {validation.received(beside=beside)}: {error}'
            ) from None
    picture = _Picture(panels, _columns(panels))
    _need_matplotlib()
    if ax is None:
        from matplotlib import pyplot

        (ax,) = _stacked(pyplot.figure(), [picture])
    return picture.draw(ax)


def save_padding(axes: list[dict[str, Any]], path: Path) -> None:
    """Draw axes, each given by arguments of `plot_padding`, below each other, and write the picture to a file."""
    panels = [_panel(**axis) for axis in axes]
    pictures = [_Picture([panel], _columns([panel])) for panel in panels]
    _need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(facecolor="white")
    for number, (picture, ax) in enumerate(zip(pictures, _stacked(figure, pictures))):
        picture.draw(ax, f"axis {number}, " if len(axes) > 1 else "")
    figure.savefig(path, dpi=110)


def _need_matplotlib() -> None:
    """`ImportError` with the command that mends it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(
            "a picture needs matplotlib, which is not installed. mxsame's extras [cpu], [cu112] and [cli] bring it; "
            f"mend it with: {sys.executable} -m pip install matplotlib"
        ) from None


@dataclass(frozen=True)
class _Panel:
    """One padding: cells 0 to `cells` - 1 are kept, `low` and `high` more stand around them; window j begins at
    j*stride - low."""

    name: str
    cells: int
    windows: int
    kernel_size: int
    stride: int
    dilation: int
    low: int
    high: int
    transposed: bool

    @property
    def reach(self) -> int:
        return arithmetic.effective_kernel_size(self.kernel_size, self.dilation)

    @property
    def begin(self) -> int:
        return min(-self.low, 0)

    @property
    def end(self) -> int:
        return max(self.cells + max(self.high, 0), self.start(self.windows - 1) + self.reach)

    def start(self, window: int) -> int:
        return window * self.stride - self.low

    def shown(self) -> list[range]:
        if self.windows <= MOST_WINDOWS:
            return [range(self.windows)]
        return [range(ENDS), range(self.windows - ENDS, self.windows)]

    def title(self, first: _Panel) -> str:
        """In words, and what is wrong with it where it stands below another."""
        said, counted = ("cuts", "input") if self.transposed else ("pads", "output")
        words = [f"{self.name}: {said} {self.low, self.high}", f"{self.windows} {counted}{'s' * (self.windows != 1)}"]
        if self.transposed:
            words[1] = f"{self.cells} output{'s' * (self.cells != 1)}"
        ours, theirs = (self.cells, first.cells) if self.transposed else (self.windows, first.windows)
        if ours != theirs:
            words[1] += f" instead of {theirs}"
        shift = self.low - first.low
        if shift:
            words.append(f"each {abs(shift)} cell{'s' * (abs(shift) != 1)} too {'early' if shift > 0 else 'late'}")
        return ", ".join(words)


def _panel(
    size: int,
    kernel_size: int,
    stride: int,
    dilation: int,
    padding: Any,
    transposed: bool = False,
    output_padding: int | None = None,
) -> _Panel:
    name = padding.lower() if isinstance(padding, str) else "explicit"
    if name == SYMMETRIC:
        padding = (arithmetic.effective_kernel_size(kernel_size, dilation) // 2,) * 2
    if transposed:
        low, high = arithmetic.transposed_cuts(kernel_size, stride, dilation, padding, output_padding)
        cells = arithmetic.transposed_output_size(size, kernel_size, stride, dilation, padding, output_padding)
        windows = size
    else:
        low, high = arithmetic.resolve_pads(size, kernel_size, stride, dilation, padding)
        windows = arithmetic.output_size(size, kernel_size, stride, dilation, padding)
        cells = size
    return _Panel(name, cells, windows, kernel_size, stride, dilation, low, high, transposed)


def _columns(panels: list[_Panel]) -> list[range]:
    """The cells that are drawn: all, or those at both ends."""
    begin, end = min(panel.begin for panel in panels), max(panel.end for panel in panels)
    columns = [range(begin, end)]
    if all(len(panel.shown()) > 1 for panel in panels):
        head = max(panel.start(ENDS - 1) + panel.reach for panel in panels)
        tail = min(panel.start(panel.windows - ENDS) for panel in panels)
        if head + 1 < tail:
            columns = [range(begin, head), range(tail, end)]
    if sum(map(len, columns)) > MOST_COLUMNS:
        raise ValueError(
            f"what is drawn must be at most {MOST_COLUMNS} cells wide; received kernel_size={panels[0].kernel_size}, "
            f"stride={panels[0].stride}, dilation={panels[0].dilation}, which take {sum(map(len, columns))}"
        )
    return columns


@dataclass(frozen=True)
class _Picture:
    """Panels below each other, over the same columns; all lengths are in cells."""

    panels: list[_Panel]
    columns: list[range]

    @property
    def width(self) -> float:
        return max(LABEL + sum(map(len, self.columns)) + GAP * (len(self.columns) - 1) + 0.2, 15.0)

    @property
    def heights(self) -> list[float]:
        return [HEADING + PITCH * sum(len(span) + 0.6 for span in panel.shown()) for panel in self.panels]

    def draw(self, ax: Axes, prefix: str = "") -> Axes:
        left = self.columns[0].start - LABEL
        ax.set_xlim(left, left + self.width)
        ax.set_ylim(sum(self.heights), 0)
        ax.set_aspect("equal", anchor="NW")
        ax.axis("off")
        ax.apply_aspect()  # now it is known how large a cell comes out
        begin, end = ax.transData.transform([(0, 0), (1, 0)])[:, 0]
        brush = _Brush(ax, self.columns, self.panels[0], float(end - begin) * 72 / ax.figure.dpi)
        top = 0.0
        for panel, colour, height in zip(self.panels, COLOURS, self.heights):
            brush.title(panel, prefix, colour, top)
            brush.cells(panel, colour, top)
            brush.windows(panel, colour, top + HEADING)
            top += height
        brush.legend(self.panels)
        return ax


def _stacked(figure: Any, pictures: list[_Picture]) -> list[Any]:
    """The figure in fitting size, with axes for the pictures below each other."""
    width = max(picture.width for picture in pictures)
    unit = min(0.42, 13 / width)  # inches of a cell
    inches = [sum(picture.heights) * unit + LEGEND for picture in pictures]
    height = sum(inches)
    figure.set_size_inches(width * unit, height)
    axes, bottom = [], height
    for picture, tall in zip(pictures, inches):
        bottom -= tall
        box = (0, (bottom + LEGEND) / height, picture.width / width, (tall - LEGEND) / height)
        axes.append(figure.add_axes(box))
    return axes


@dataclass(frozen=True)
class _Brush:
    """Draws on axes; `points` is the width of a cell there, which sizes of letters go by."""

    ax: Any
    columns: list[range]
    first: _Panel
    points: float

    def place(self, cell: float) -> float:
        """Where a cell begins: those behind what is left out move up."""
        if len(self.columns) == 1 or cell < self.columns[1].start:
            return cell
        return cell - self.columns[1].start + self.columns[0].stop + GAP

    def text(self, x: float, y: float, text: str, size: float, **options: Any) -> None:
        self.ax.text(x, y, text, size=size, va="center", **options)

    def box(self, x: float, y: float, width: float, height: float, **options: Any) -> None:
        from matplotlib.patches import Rectangle

        self.ax.add_patch(Rectangle((x, y), width, height, **options))

    def title(self, panel: _Panel, prefix: str, colour: str, top: float) -> None:
        left = self.columns[0].start - LABEL + 0.2
        self.text(
            left,
            top + 0.55,
            prefix + panel.title(self.first),
            min(10.5, 0.95 * self.points),
            color=colour,
            weight="bold",
        )

    def cells(self, panel: _Panel, colour: str, top: float) -> None:
        """In a row: those of the data with their number, the others dashed."""
        width, middle = min(1.0, self.points / 18), top + 1.6
        for cell in (cell for span in self.columns for cell in span):
            if 0 <= cell < panel.cells:
                look, text, ink = {"facecolor": CELL, "edgecolor": INK}, str(cell), INK
            elif -panel.low <= cell < panel.cells + panel.high:
                look = {"facecolor": "white", "edgecolor": colour, "linestyle": (0, (2, 1.5))}
                text, ink = "cut" if panel.transposed else "pad", colour
            else:
                continue
            self.box(self.place(cell) + 0.05, top + 1.15, 0.9, 0.9, linewidth=width, **look)
            length = 3 if ink == colour else max(len(str(panel.cells - 1)), 2)
            self.text(
                self.place(cell) + 0.5, middle, text, min(10.0, 1.25 * self.points / length), color=ink, ha="center"
            )
        if len(self.columns) > 1:
            self.text(self.columns[0].stop + GAP / 2, middle, "...", min(10.5, self.points), color=INK, ha="center")

    def windows(self, panel: _Panel, colour: str, top: float) -> None:
        """One line for each: its taps, full on data and hollow elsewhere."""
        left, size = self.place(panel.begin) - 0.3, min(9.5, 0.8 * self.points)
        for number, span in enumerate(panel.shown()):
            if number:
                self.text(left, top + 0.3 * PITCH, "...", size, color=INK, ha="right")
                top += 0.6 * PITCH
            for window in span:
                name = f"{'input' if panel.transposed else 'output'} {window}"
                self.text(left, top + HEIGHT / 2, name, size, color=INK, ha="right")
                self.window(panel, window, colour, top)
                top += PITCH

    def window(self, panel: _Panel, window: int, colour: str, top: float) -> None:
        start = panel.start(window)
        left, middle = self.place(start), top + HEIGHT / 2
        self.ax.plot((left + 0.1, left + panel.reach - 0.1), (middle, middle), color=colour, linewidth=1.2, zorder=1)
        for offset in range(0, panel.reach, panel.dilation):
            fill = colour if 0 <= start + offset < panel.cells else "white"
            self.box(left + offset + 0.08, top, 0.84, HEIGHT, facecolor=fill, edgecolor=colour, linewidth=1.2, zorder=2)
        if panel.low != self.first.low and window < self.first.windows:
            there = left + panel.low - self.first.low
            self.box(there, top - 0.06, panel.reach, HEIGHT + 0.12, zorder=3, **self.frame())

    def frame(self) -> dict[str, Any]:
        return {"facecolor": "none", "edgecolor": COLOURS[0], "linestyle": (0, (3, 2)), "linewidth": 1.6}

    def legend(self, panels: list[_Panel]) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        on, off = ("kept", "cut off") if self.first.transposed else ("a tap on data", "a tap on padding")
        handles: list[Any] = [
            Patch(facecolor=INK, edgecolor=INK, label=on),
            Patch(facecolor="white", edgecolor=INK, label=off),
        ]
        if self.first.dilation > 1:
            handles.append(Line2D([], [], color=INK, label="skipped by dilation"))
        if any(panel.low != self.first.low for panel in panels):
            handles.append(Patch(label=f'the window of "{self.first.name}"', **self.frame()))
        place = {"loc": "upper left", "bbox_to_anchor": (0, 0), "ncol": len(handles)}
        self.ax.legend(handles=handles, frameon=False, fontsize=9, **place)
