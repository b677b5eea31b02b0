"""The pictures of the documentation, drawn by the arithmetic and the plans that they show: python docs/pictures.py

docs/images/problem.png is the README's. The others stand on the pages of the site.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

import mxsame
from mxsame import plan as planning
from mxsame.demo import compare, networks, recording
from mxsame.demo.picture import FILTER, SAME_COLOUR, SYMMETRIC_COLOUR, frame, show
from mxsame.drawing import CELL, FAINT, INK
from mxsame.plan import AxisPlan, Window

IMAGES = Path(__file__).parent / "images"
GREY, ADDED = "#52606d", "#2563eb"
LARGEST = 150_000  # bytes


def save(figure: Figure, name: str, dpi: int = 110) -> None:
    """As a PNG of 256 colours, which is a third of the size and looks the same."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    path = IMAGES / f"{name}.png"
    picture.save(path, optimize=True)
    print(f"{path.name}: {picture.width}x{picture.height}, {path.stat().st_size // 1000} kB")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"a picture must be at most {LARGEST} bytes; received {path.name} of {path.stat().st_size}")


# -- the problem in one look


def problem() -> None:
    figure = Figure(figsize=(10.9, 6.1), facecolor="white")
    figure.text(0.022, 0.955, "Same weights, same shapes, other values", size=19, weight="bold", color=INK, va="center")
    figure.text(
        0.022, 0.905, 'Keras\'s padding="same" and the symmetric padding of MXNet', size=12.5, color=GREY, va="center"
    )
    heading(figure, 0.022, "28 cells, kernel 3, stride 2", "the odd cell goes to the end; symmetric padding is even")
    axes = figure.add_axes((0.012, 0.06, 0.56, 0.705))
    mxsame.plot_padding(28, 3, stride=2, beside="symmetric", ax=axes)
    heading(figure, 0.56, "224 cells, kernel 7, stride 2", "pads (2, 3), not (3, 3): every edge is one pixel off")
    stem = compare.compare(networks.NETWORKS[0], recording.photograph())["conv"]
    filtered(figure, stem)
    save(figure, "problem", dpi=130)


def heading(figure: Figure, left: float, bold: str, text: str) -> None:
    figure.text(left, 0.835, bold, size=12.5, weight="bold", color=INK, va="center")
    figure.text(left, 0.798, text, size=10.5, color=GREY, va="center")


def filtered(figure: Figure, stem: Any) -> None:
    """The photograph, filtered with SAME and with symmetric padding, and how they differ."""
    grid = figure.add_gridspec(2, 2, left=0.545, right=0.985, top=0.735, bottom=0.03, wspace=0.0, hspace=0.17)
    axes = grid.subplots().ravel()
    same, symmetric = stem.mxsame[..., FILTER], stem.symmetric[..., FILTER]
    limit = float(np.quantile(np.abs(same), 0.995))
    grey = {"cmap": "gray", "vmin": -limit, "vmax": limit}
    show(axes[0], recording.photograph(), "photograph")
    show(axes[1], same, "SAME", **grey)
    show(axes[2], symmetric, "symmetric", **grey)
    frame(axes[1], SAME_COLOUR)
    frame(axes[2], SYMMETRIC_COLOUR)
    difference = np.abs(symmetric - same)
    wrong = np.mean(difference > stem.allowed)
    brightest = float(np.quantile(difference, 0.99))
    show(axes[3], difference, f"|difference|: {wrong:.1%} of cells wrong", cmap="magma", vmin=0, vmax=brightest)


# -- plans


@dataclass(frozen=True)
class Row:
    """A plan as it runs at one size: cells (places that hold data, added ones, the operator's pad) and its windows."""

    window: Window
    size: int
    step: AxisPlan
    ceil: bool = False

    @property
    def low(self) -> int:
        """In the coordinates of the plan, which are mirrored where it mirrors."""
        return self.window.pads(self.size)[1 if self.step.mirror else 0]

    @property
    def added(self) -> Tuple[int, int]:
        """Cells that are put around the data, (low, high), by whatever means."""
        step, low = self.step, self.low
        if step.gather:
            reach = (self.window.outputs(self.size) - 1) * self.window.stride + self.window.effective_kernel_size
            return low, max(reach - low - self.size, 0)
        if step.shift:
            least, reach = step.shift
            return low - least, reach - low
        return step.join[0] + step.spread[0], step.join[1] + step.spread[1]

    @property
    def taps(self) -> List[bool]:
        """Of the operator's kernel, which are the real ones."""
        front = self.step.pad - self.low if self.step.place else self.step.taps[0]
        return [front <= tap < front + self.window.kernel_size for tap in range(self.step.kernel_size)]

    @property
    def begin(self) -> int:
        """Where the operator's first window begins, in cells of the data."""
        return -self.step.pad - self.added[0]

    @property
    def starts(self) -> List[int]:
        """Of all windows of the operator."""
        span = self.size + sum(self.added) + 2 * self.step.pad - self.step.kernel_size
        count = (-(-span // self.window.stride) if self.ceil else span // self.window.stride) + 1
        return [self.begin + window * self.window.stride for window in range(count)]

    @property
    def kept(self) -> range:
        return range(self.step.skip, self.step.skip + self.window.outputs(self.size))

    def check(self) -> Row:
        """A picture of a plan that is not exact is not drawn."""
        for output, window in enumerate(self.kept):
            begin = self.starts[window] + self.taps.index(True)
            if begin != output * self.window.stride - self.low or sum(self.taps) != self.window.kernel_size:
                raise ValueError(f"window {output} must begin where it is wanted; received {self}")
        return self


def row(strategy: str, size: int, known: bool, kernel_size: int = 3, stride: int = 2) -> Row:
    """One axis as a strategy runs it."""
    window = Window(size if known else None, kernel_size, stride)
    allowed = planning.MAXIMUM if strategy == "full" else planning.CONVOLUTION
    with planning.force(strategy):
        plan = planning.plan_window([window], allowed, pads_below_kernel=strategy == "full")
    return Row(window, size, plan.axes[0], plan.convention == "full").check()


LINE, TALL = 0.72, 0.52  # of a window's line, and of the window, in cells
UNIT = 0.31  # inches of a cell


def draw_plan(name: str, rows: Sequence[Row], extra: Sequence[str] = ()) -> None:
    """Panels beside each other, one for each size."""
    spans = [(each.begin, max(each.starts[-1] + len(each.taps), each.size - each.begin)) for each in rows]
    label, gap = 1.9, 1.6
    width = sum(end - begin + label for begin, end in spans) + gap * (len(rows) - 1) + 0.4
    height = 2.75 + LINE * max(len(each.starts) for each in rows)
    width = max(width, 21.0)
    figure = Figure(figsize=(width * UNIT, height * UNIT), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    left = 0.2 + label
    for each, (begin, end) in zip(rows, spans):
        panel(axes, each, left - begin)
        left += end - begin + gap + label
    legend(axes, rows, height)
    save(figure, name, dpi=110)


def panel(axes: Any, each: Row, left: float) -> None:
    step, (before, after) = each.step, each.added
    pads = each.window.pads(each.size)
    title = f"{each.size} cells, SAME pads {pads}" + (", mirrored" if step.mirror else "")
    axes.text(left + each.begin, 0.5, title, size=9, color=INK, weight="bold", va="center")
    for cell in range(-before - step.pad, each.size + after + step.pad):
        if 0 <= cell < each.size:
            number = each.size - 1 - cell if step.mirror else cell
            look, text, colour = {"facecolor": CELL, "edgecolor": INK}, str(number), INK
        elif -before <= cell < each.size + after:
            look, text, colour = {"facecolor": "#dbeafe", "edgecolor": ADDED}, "0", ADDED
        else:
            look, text, colour = {"facecolor": "white", "edgecolor": FAINT, "linestyle": (0, (2, 1.5))}, "0", FAINT
        axes.add_patch(Rectangle((left + cell + 0.06, 1.0), 0.88, 0.88, linewidth=0.9, **look))
        axes.text(left + cell + 0.5, 1.45, text, size=8, color=colour, ha="center", va="center")
    for number, start in enumerate(each.starts):
        top = 2.1 + LINE * number
        kept = number in each.kept
        colour = SAME_COLOUR if kept else FAINT
        output = each.kept.index(number) if kept else None
        if step.mirror and output is not None:
            output = len(each.kept) - 1 - output
        name = f"output {output}" if kept else "dropped"
        axes.text(left + each.begin - 0.2, top + TALL / 2, name, size=7, color=colour, ha="right", va="center")
        for tap, real in enumerate(each.taps):
            place = (left + start + tap + 0.1, top)
            fill = colour if real and kept else "white"
            axes.add_patch(Rectangle(place, 0.8, TALL, facecolor=fill, edgecolor=colour, linewidth=1))
            if not real:
                axes.text(place[0] + 0.4, top + TALL / 2, "0", size=6.5, color=colour, ha="center", va="center")


def legend(axes: Any, rows: Sequence[Row], height: float) -> None:
    """Only of what is there."""
    entries: List[Tuple[Optional[dict], str]] = []
    if any(each.step.pad for each in rows):
        entries.append(({"facecolor": "white", "edgecolor": FAINT, "linestyle": (0, (2, 1.5))}, "operator's own pad"))
    if any(sum(each.added) for each in rows):
        entries.append(({"facecolor": "#dbeafe", "edgecolor": ADDED}, "put around the data"))
    if any(not all(each.taps) for each in rows):
        entries.append(({"facecolor": "white", "edgecolor": SAME_COLOUR}, "tap that is zero"))
    if any(len(each.kept) < len(each.starts) for each in rows):
        entries.append(({"facecolor": "white", "edgecolor": FAINT}, "window whose output is dropped"))
    left = 0.3
    for look, text in entries:
        axes.add_patch(Rectangle((left, height - 0.62), 0.5, 0.4, linewidth=0.9, **look))
        axes.text(left + 0.75, height - 0.42, text, size=7, color=GREY, va="center")
        left += 1.6 + 0.335 * len(text)


PLANS = {
    "native": [("native", 7, True)],
    "slice": [("slice", 8, True)],
    "kernel": [("kernel", 8, True)],
    "tail": [("tail", 8, True)],
    "pad": [("pad", 8, True)],
    "full": [("full", 8, True)],
    "mirror": [("mirror", 8, False), ("mirror", 7, False)],
    "shift": [("shift", 8, False), ("shift", 7, False)],
    "place": [("place", 8, False), ("place", 7, False)],
    "place-tail": [("place tail", 8, False), ("place tail", 7, False)],
    "gather": [("gather", 8, False), ("gather", 7, False)],
}


def plans() -> None:
    for name, rows in PLANS.items():
        draw_plan(f"plan-{name}", [row(*each) for each in rows])


# -- windows


def windows(name: str, *arguments: int, **options: Any) -> None:
    """`plot_padding` as it is."""
    from matplotlib import pyplot

    axes = mxsame.plot_padding(*arguments, **options)
    save(axes.figure, name, dpi=95)
    pyplot.close(axes.figure)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    problem()
    plans()
    windows("symmetric-7x7", 224, 7, stride=2, beside="symmetric")
    windows("even", 8, 3, stride=2, beside="symmetric")
    windows("odd", 7, 3, stride=2, beside="symmetric")
    windows("dilated", 9, 3, dilation=2)
    windows("causal", 6, 3, padding="causal")
    windows("transposed", 4, 3, stride=2, transposed=True)


if __name__ == "__main__":
    sys.exit(main())
