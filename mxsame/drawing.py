"""Draws padding: one axis as elements, and below them the window of every output.

`PaddedAxis` and `visible_positions` are the model: the elements of an axis, which of them each window reads, and the
part of a long axis that is drawn. The rest draws it with matplotlib, an extra; `mxsame pads` prints it as text.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Sequence, Tuple

from mxsame import padding as arithmetic, validation
from mxsame.types import AxisPadding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_padding"]

Geometry = Tuple[int, int, int, int]  # size, kernel size, stride and dilation

SYMMETRIC = "symmetric"
DATA, PADDING, SKIPPED = "data", "padding", "skipped"  # what a window reads at a position of an axis
INK, FILL, FAINT = "#1f2933", "#e4e7eb", "#9aa5b1"
HOLLOW: dict[str, Any] = {"facecolor": "white", "linestyle": (0, (2, 1.5))}  # the look of a padding element
COLOURS = ("#12736a", "#c2410c")  # of `padding`, and of `compare_with`
MAX_WINDOWS, ENDS = 10, 3  # of more windows than `MAX_WINDOWS`, the first and the last `ENDS` are drawn
MAX_COLUMNS = 120
LABEL, GAP = 3.2, 1.4  # widths, in elements: "output 12", and "..." for the elements that are left out
HEADING, PITCH, HEIGHT = 2.3, 0.78, 0.6  # heights, in elements: title and elements, a window's line, the window
LEGEND = 0.35  # inches


# -- the model


@dataclass(frozen=True)
class PaddedAxis:
    """Elements 0 to `elements` - 1, `low` and `high` more around them, and windows; window j starts at j*stride - low.

    In a transposed convolution, the elements are outputs, a window is the outputs to which one input is added, and
    `low` and `high` are cropped.
    """

    name: str
    elements: int
    windows: int
    kernel_size: int
    stride: int
    dilation: int
    low: int
    high: int
    transposed: bool

    @classmethod
    def of(
        cls, geometry: Geometry, padding: Any, transposed: bool = False, output_padding: int | None = None
    ) -> PaddedAxis:
        """Returns an axis with this padding, which may be "symmetric", too."""
        size, window = geometry[0], geometry[1:]
        rule = "output_padding must be of a transposed convolution"
        validation.check(output_padding is None or transposed, rule, output_padding=output_padding)
        name = padding.lower() if isinstance(padding, str) else "explicit"
        if name == SYMMETRIC:
            kernel_size, _, dilation = window
            padding = (arithmetic.effective_kernel_size(kernel_size, dilation) // 2,) * 2
        if transposed:
            low, high = arithmetic.transposed_crops(*window, padding, output_padding)
            elements, windows = arithmetic.transposed_output_size(*geometry, padding, output_padding), size
        else:
            low, high = arithmetic.resolve_pads(*geometry, padding)
            elements, windows = size, arithmetic.output_size(*geometry, padding)
        return cls(name, elements, windows, *window, low, high, transposed)

    @property
    def effective_kernel_size(self) -> int:
        """The number of positions from a window's first kernel element to its last, both included."""
        return arithmetic.effective_kernel_size(self.kernel_size, self.dilation)

    @property
    def first(self) -> int:
        """The first position that is drawn."""
        return min(-self.low, 0)

    @property
    def stop(self) -> int:
        """The position after the last one that is drawn."""
        return max(self.elements + max(self.high, 0), self.start(self.windows - 1) + self.effective_kernel_size)

    def start(self, window: int) -> int:
        """Returns the first position of a window."""
        return window * self.stride - self.low

    def kind(self, position: int) -> str | None:
        """Returns DATA, PADDING, or None for a position beyond the padding."""
        if 0 <= position < self.elements:
            return DATA
        return PADDING if -self.low <= position < self.elements + self.high else None

    def reads(self, window: int) -> dict[int, str]:
        """Returns position -> DATA, PADDING, or SKIPPED (by dilation) for each position of a window.

        >>> PaddedAxis.of((4, 2, 2, 2), "same").reads(1)
        {2: 'data', 3: 'skipped', 4: 'padding'}
        """
        start = self.start(window)
        positions = range(start, start + self.effective_kernel_size)
        return {p: SKIPPED if (p - start) % self.dilation else self.kind(p) or PADDING for p in positions}

    @property
    def drawn_windows(self) -> list[range]:
        """All windows in one range, or of more than 10 the first three and the last three."""
        if self.windows <= MAX_WINDOWS:
            return [range(self.windows)]
        return [range(ENDS), range(self.windows - ENDS, self.windows)]


def visible_positions(axes: Sequence[PaddedAxis]) -> list[range]:
    """Returns the positions that the drawn windows of all axes cover: one range, or one at each end.

    >>> visible_positions([PaddedAxis.of((100, 3, 2, 1), "same")])
    [range(0, 7), range(94, 101)]
    """
    first, stop = min(axis.first for axis in axes), max(axis.stop for axis in axes)
    left_stop = max(axis.start(axis.drawn_windows[0][-1]) + axis.effective_kernel_size for axis in axes)
    right = min(axis.start(axis.drawn_windows[-1][0]) for axis in axes)
    return [range(first, left_stop), range(right, stop)] if left_stop + 1 < right else [range(first, stop)]


def title(axis: PaddedAxis, compared_with: PaddedAxis) -> str:
    """Returns the pads and the output size of an axis, and how they differ from those of another."""
    parts = [f"{axis.name}: {'crops' if axis.transposed else 'pads'} {axis.low, max(axis.high, 0)}"]
    ours, theirs = (each.elements if each.transposed else each.windows for each in (axis, compared_with))
    parts.append(f"{ours} output{'s' * (ours != 1)}{f' instead of {theirs}' * (ours != theirs)}")
    if axis.high < 0:  # a transposed convolution with a kernel shorter than the stride
        parts.append(f"the last {-axis.high} without input")
    shift = axis.low - compared_with.low
    if shift:
        parts.append(f"each {abs(shift)} element{'s' * (abs(shift) != 1)} too {'early' if shift > 0 else 'late'}")
    return ", ".join(parts)


# -- the picture


@validation.check_arguments
def plot_padding(
    size: int,
    kernel_size: int,
    stride: int = 1,
    dilation: int = 1,
    padding: AxisPadding = "same",
    *,
    compare_with: AxisPadding | Literal["symmetric"] | None = None,
    transposed: bool = False,
    output_padding: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one axis: its elements, the padding around them, and under them, line by line, the elements each output
    reads.

    In a window, a filled square is a kernel element that reads data, and a hollow one reads padding. A thin line marks
    elements that dilation skips. Of more than 10 outputs, the first and the last three are drawn.

    Parameters
    ----------
    size, kernel_size, stride, dilation : int
        The geometry of the axis: n, k, s and d.
    padding : "same", "valid", "causal", "keras-mxnet", int or (low, high)
        As for `mxsame.padding.output_size`.
    compare_with : like `padding`, or "symmetric"
        A second padding, drawn below the first; dashed frames show the windows of the first one. "symmetric" is
        ke//2 at both ends (k//2 without dilation), the usual replacement of SAME on MXNet.
    transposed : bool
        Draw a transposed convolution: the elements are outputs, each line shows which outputs one input writes to, and
        cropped outputs are drawn as padding.
    output_padding : int, optional
        Keras's argument of transposed convolutions.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; by default those of a new figure of pyplot, which has a suitable size.

    Returns
    -------
    The axes; `.figure.savefig("padding.png")` writes the figure.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError, ValueError
        As for `mxsame.padding.output_size`, and for windows that are too wide to draw.

    Examples
    --------
    >>> import mxsame
    >>> ax = mxsame.plot_padding(8, 3, stride=2, compare_with="symmetric")
    >>> [text.get_text() for text in ax.texts if "pads" in text.get_text()]
    ['same: pads (0, 1), 4 outputs', 'symmetric: pads (1, 1), 4 outputs, each 1 element too early']
    >>> import matplotlib.pyplot
    >>> matplotlib.pyplot.close(ax.figure)
    """
    transposed = validation.flag("transposed", transposed)
    geometry = (size, kernel_size, stride, dilation)
    panels = [PaddedAxis.of(geometry, padding, transposed, output_padding)]
    if compare_with is not None:
        try:
            panels.append(PaddedAxis.of(geometry, compare_with, transposed, output_padding))
        except (TypeError, ValueError) as error:
            raise type(error)(f'compare_with must be "symmetric" or a padding: {error}') from None
    picture = _Picture(panels)
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError(
            "plot_padding needs matplotlib, which is not installed; fix it with: "
            f"{sys.executable} -m pip install matplotlib"
        ) from None
    validation.check_type(isinstance(ax, (pyplot.Axes, type(None))), "ax must be a matplotlib.axes.Axes", ax=ax)
    return picture.draw(picture.add_axes(pyplot.figure()) if ax is None else ax)


class _Picture:
    """Panels below each other, over the same columns; all lengths are in elements."""

    def __init__(self, panels: list[PaddedAxis]):
        self.panels, self.first = panels, panels[0]
        self.columns = visible_positions(panels)
        count = sum(map(len, self.columns))
        window = {name: getattr(self.first, name) for name in ("kernel_size", "stride", "dilation")}
        rule = f"what is drawn must be at most {MAX_COLUMNS} elements wide"
        validation.check(count <= MAX_COLUMNS, rule, **window, elements=count)
        self.left = self.columns[0].start - LABEL
        self.width = max(LABEL + count + GAP * (len(self.columns) - 1) + 0.2, 15.0)
        self.heights = [HEADING + PITCH * sum(len(span) + 0.6 for span in panel.drawn_windows) for panel in panels]

    def x(self, position: int) -> float:
        """Returns the left edge of an element. A gap of constant width stands for the elements that are not drawn."""
        if len(self.columns) == 1 or position < self.columns[1].start:
            return position
        return position - self.columns[1].start + self.columns[0].stop + GAP

    def add_axes(self, figure: Any) -> Axes:
        """Sets the size of a figure, and returns new axes that fill it."""
        unit = min(0.42, 13 / self.width)  # inches per element
        height = sum(self.heights) * unit + LEGEND
        figure.set_size_inches(self.width * unit, height)
        return figure.add_axes((0, LEGEND / height, 1, 1 - LEGEND / height))

    def draw(self, ax: Axes) -> Axes:
        """Draws all panels and the legend, and returns the axes."""
        ax.set(xlim=(self.left, self.left + self.width), ylim=(sum(self.heights), 0))
        ax.set_aspect("equal", anchor="NW")
        ax.axis("off")
        ax.apply_aspect()  # fixes the width of an element in points, from which font sizes follow
        start, end = ax.transData.transform([(0, 0), (1, 0)])[:, 0]
        self.ax, self.points = ax, float(end - start) * 72 / ax.figure.dpi
        top = 0.0
        for panel, colour, height in zip(self.panels, COLOURS, self.heights):
            self._text(self.left + 0.2, top + 0.55, title(panel, self.first), 0.95, color=colour, weight="bold")
            self._elements(panel, colour, top)
            self._windows(panel, colour, top + HEADING)
            top += height
        self._legend()
        return ax

    def _text(self, x: float, y: float, text: str, size: float, **options: Any) -> None:
        """Writes text in a font of this size, in elements."""
        self.ax.text(x, y, text, size=min(10.5, size * self.points), va="center", **options)

    def _box(self, x: float, y: float, width: float, height: float, **options: Any) -> None:
        from matplotlib.patches import Rectangle

        self.ax.add_patch(Rectangle((x, y), width, height, **options))

    def _elements(self, panel: PaddedAxis, colour: str, top: float) -> None:
        """Draws the elements in a row: data with its index, and padding with dashed edges."""
        label, line = "crop" if panel.transposed else "pad", min(1.0, self.points / 18)
        for position in (position for span in self.columns for position in span):
            kind, left = panel.kind(position), self.x(position)
            if kind is not None:
                look = {"facecolor": FILL, "edgecolor": INK} if kind == DATA else {"edgecolor": colour, **HOLLOW}
                text, digits = (str(position), len(str(panel.elements))) if kind == DATA else (label, len(label))
                self._box(left + 0.05, top + 1.15, 0.9, 0.9, linewidth=line, **look)
                self._text(left + 0.5, top + 1.6, text, 1.12 / max(digits, 2), color=look["edgecolor"], ha="center")
        if len(self.columns) > 1:
            self._text(self.columns[0].stop + GAP / 2, top + 1.6, "...", 1.0, color=INK, ha="center")

    def _windows(self, panel: PaddedAxis, colour: str, top: float) -> None:
        """Draws the windows below each other."""
        left, name = self.x(panel.first) - 0.3, "input" if panel.transposed else "output"
        for number, span in enumerate(panel.drawn_windows):
            if number:
                self._text(left, top + 0.3 * PITCH, "...", 0.8, color=INK, ha="right")
                top += 0.6 * PITCH
            for window in span:
                self._text(left, top + HEIGHT / 2, f"{name} {window}", 0.8, color=INK, ha="right")
                self._window(panel, window, colour, top)
                top += PITCH

    def _window(self, panel: PaddedAxis, window: int, colour: str, top: float) -> None:
        """Draws the kernel elements of a window: filled if they read data, otherwise hollow."""
        start, look = panel.start(window), {"edgecolor": colour, "linewidth": 1.2, "zorder": 2}
        left, middle = self.x(start), top + HEIGHT / 2
        ends = (left + 0.1, left + panel.effective_kernel_size - 0.1)
        self.ax.plot(ends, (middle, middle), color=colour, linewidth=1.2, zorder=1)
        for position, kind in panel.reads(window).items():
            if kind != SKIPPED:
                fill = colour if kind == DATA else "white"
                self._box(left + position - start + 0.08, top, 0.84, HEIGHT, facecolor=fill, **look)
        if panel.low != self.first.low and window < self.first.windows:
            theirs = left + panel.low - self.first.low
            self._box(theirs, top - 0.06, panel.effective_kernel_size, HEIGHT + 0.12, zorder=3, **_FRAME)

    def _legend(self) -> None:
        """Draws the legend of colours and lines below the panels."""
        from matplotlib.legend_handler import HandlerTuple
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        colours = COLOURS[: len(self.panels)]
        on_data, on_padding = ("kept", "cropped") if self.first.transposed else ("reads data", "reads padding")
        entries: dict[str, Any] = {
            on_data: tuple(Patch(facecolor=colour, edgecolor=colour) for colour in colours),
            on_padding: tuple(Patch(facecolor="white", edgecolor=colour) for colour in colours),
        }
        if self.first.dilation > 1:
            entries["skipped by dilation"] = Line2D([], [], color=colours[0])
        if any(panel.low != self.first.low for panel in self.panels):
            entries[f'the windows of "{self.first.name}"'] = Patch(**_FRAME)
        place = {"loc": "upper left", "bbox_to_anchor": (0, 0), "ncol": len(entries)}
        look = {"frameon": False, "fontsize": 9, "handler_map": {tuple: HandlerTuple(ndivide=None)}}
        self.ax.legend(list(entries.values()), list(entries), **look, **place)


_FRAME: dict[str, Any] = {"facecolor": "none", "edgecolor": COLOURS[0], "linestyle": (0, (3, 2)), "linewidth": 1.6}
