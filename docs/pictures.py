"""The pictures of the documentation, drawn by the arithmetic and the plans that they show: python docs/pictures.py

docs/images/problem.png and speed.png are the README's. The others are on the pages of the site.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import tables  # next to this file
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

import mxsame
from mxsame import plan as planning
from mxsame.demo import compare, networks, recording
from mxsame.demo.picture import SAME_COLOUR, SYMMETRIC_COLOUR, frame, show
from mxsame.drawing import FAINT, FILL, INK
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
    figure = Figure(figsize=(10.9, 5.3), facecolor="white")
    figure.text(0.022, 0.95, "Same weights, same shapes, other values", size=19, weight="bold", color=INK, va="center")
    figure.text(
        0.022, 0.893, 'Keras\'s padding="same" and the symmetric padding of MXNet', size=12.5, color=GREY, va="center"
    )
    heading(figure, 0.022, "8 elements, kernel 3, stride 2", "Keras puts the extra padding element at the end")
    axes = figure.add_axes((0.012, 0.06, 0.5, 0.68))
    mxsame.plot_padding(8, 3, stride=2, beside="symmetric", ax=axes)
    heading(figure, 0.56, "An autoencoder of Keras, run in MXNet", "28 -> 14 -> 7 -> 4 and back, trained in Keras")
    autoencoded(figure, compare.compare(networks.NETWORKS[2], recording.photograph()))
    save(figure, "problem", dpi=130)


def heading(figure: Figure, left: float, bold: str, text: str) -> None:
    figure.text(left, 0.815, bold, size=12.5, weight="bold", color=INK, va="center")
    figure.text(left, 0.77, text, size=10.5, color=GREY, va="center")


def autoencoded(figure: Figure, autoencoder: Any) -> None:
    """A picture, what the autoencoder makes of it with either padding, and how these differ."""
    grid = figure.add_gridspec(2, 2, left=0.56, right=0.93, top=0.69, bottom=0.05, wspace=0.12, hspace=0.24)
    axes = grid.subplots().ravel()
    picture, last = autoencoder.image[..., 0], autoencoder["conv7"]
    grey = {"cmap": "gray", "vmin": float(picture.min()), "vmax": float(picture.max())}
    show(axes[0], picture, "input", **grey)
    show(axes[1], last.mxsame[..., 0], "SAME", **grey)
    show(axes[2], last.symmetric[..., 0], "symmetric", **grey)
    frame(axes[1], SAME_COLOUR)
    frame(axes[2], SYMMETRIC_COLOUR)
    drawn = show(axes[3], np.abs(last.symmetric - last.mxsame)[..., 0], "|difference|", cmap="magma", vmin=0)
    bar = axes[3].inset_axes([1.04, 0, 0.05, 1])
    figure.colorbar(drawn, cax=bar)
    bar.tick_params(labelsize=8, colors=INK)


# -- speed


def speed() -> None:
    """The time of whole networks at batch 1, from benchmarks/results/networks.json."""
    variants = {"mxsame": ("mxsame.hybridize", SAME_COLOUR, ""), "explicit pad": ("explicit padding", ADDED, "///")}
    rows = {row["network"]: row for row in tables.rows_of("networks", "inference") if row["batch"] == 1}
    figure = Figure(figsize=(8.4, 3.4), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    names = list(tables.NETWORKS)
    for place, (variant, (label, colour, hatch)) in enumerate(variants.items()):
        heights = [number + 0.36 * place for number in range(len(names))]
        times = [tables.ratio(rows[name], variant) for name in names]
        bars = axes.barh(heights, times, 0.34, color=colour, hatch=hatch, edgecolor="white", label=label)
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8, color=INK)
    axes.axvline(1, color=SYMMETRIC_COLOUR, linewidth=1.4, linestyle="--", label="symmetric padding, wrong values")
    axes.set_yticks([number + 0.18 for number in range(len(names))], tables.NETWORKS.values(), size=9, color=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.75)
    axes.set_xlabel("time of inference at batch 1, symmetric padding = 1; lower is better", size=9, color=INK)
    axes.tick_params(axis="x", labelsize=8, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    save(figure, "speed")


# -- plans


@dataclass(frozen=True)
class Row:
    """A plan as it runs at one size: elements (of the data, added ones, the operator's pad) and windows."""

    window: Window
    size: int
    step: AxisPlan
    ceil: bool = False

    @property
    def low(self) -> int:
        """In the coordinates of the plan, which are flipped if it flips."""
        return self.window.pads(self.size)[1 if self.step.flip else 0]

    @property
    def added(self) -> Tuple[int, int]:
        """Elements that are added around the data, (low, high), by whatever means."""
        step, low = self.step, self.low
        if step.gather:
            reach = (self.window.outputs(self.size) - 1) * self.window.stride + self.window.effective_kernel_size
            return low, max(reach - low - self.size, 0)
        if step.shift:
            least, reach = step.shift
            return low - least, reach - low
        return step.concat[0] + step.pad_operator[0], step.concat[1] + step.pad_operator[1]

    @property
    def weights(self) -> List[bool]:
        """Which elements of the operator's kernel are weights, and not zeros."""
        front = self.step.pad - self.low if self.step.offset else self.step.zeros[0]
        return [front <= element < front + self.window.kernel_size for element in range(self.step.kernel_size)]

    @property
    def first(self) -> int:
        """The start of the operator's first window, in elements of the data."""
        return -self.step.pad - self.added[0]

    @property
    def starts(self) -> List[int]:
        """Of all windows of the operator."""
        span = self.size + sum(self.added) + 2 * self.step.pad - self.step.kernel_size
        count = (-(-span // self.window.stride) if self.ceil else span // self.window.stride) + 1
        return [self.first + window * self.window.stride for window in range(count)]

    @property
    def kept(self) -> range:
        return range(self.step.crop[0], self.step.crop[0] + self.window.outputs(self.size))

    def check(self) -> Row:
        """A picture of a plan that is not exact is not drawn."""
        for output, window in enumerate(self.kept):
            start = self.starts[window] + self.weights.index(True)
            if start != output * self.window.stride - self.low or sum(self.weights) != self.window.kernel_size:
                raise ValueError(f"window {output} must start where SAME has it; received {self}")
        return self


def row(strategy: str, size: int, static: bool, kernel_size: int = 3, stride: int = 2) -> Row:
    """One axis as a strategy runs it."""
    window = Window(size if static else None, kernel_size, stride)
    with planning.force(strategy):
        plan = planning.first_plan([window], "max" if strategy == "full" else "conv")
    return Row(window, size, plan.axes[0], plan.convention == "full").check()


LINE, TALL = 0.72, 0.52  # of a window's line, and of the window, in elements
UNIT = 0.31  # inches of an element


def draw_plan(name: str, rows: Sequence[Row]) -> None:
    """Panels next to each other, one for each size."""
    spans = [(each.first, max(each.starts[-1] + len(each.weights), each.size - each.first)) for each in rows]
    label, gap = 1.9, 1.6
    width = sum(end - start + label for start, end in spans) + gap * (len(rows) - 1) + 0.4
    height = 2.75 + LINE * max(len(each.starts) for each in rows)
    width = max(width, 21.0)
    figure = Figure(figsize=(width * UNIT, height * UNIT), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    left = 0.2 + label
    for each, (start, end) in zip(rows, spans):
        panel(axes, each, left - start)
        left += end - start + gap + label
    legend(axes, rows, height)
    save(figure, name, dpi=110)


def panel(axes: Any, each: Row, left: float) -> None:
    step, (before, after) = each.step, each.added
    pads = each.window.pads(each.size)
    title = f"{each.size} elements, SAME pads {pads}" + (", flipped" if step.flip else "")
    axes.text(left + each.first, 0.5, title, size=9, color=INK, weight="bold", va="center")
    for position in range(-before - step.pad, each.size + after + step.pad):
        if 0 <= position < each.size:
            number = each.size - 1 - position if step.flip else position
            look, text, colour = {"facecolor": FILL, "edgecolor": INK}, str(number), INK
        elif -before <= position < each.size + after:
            look, text, colour = {"facecolor": "#dbeafe", "edgecolor": ADDED}, "0", ADDED
        else:
            look, text, colour = {"facecolor": "white", "edgecolor": FAINT, "linestyle": (0, (2, 1.5))}, "0", FAINT
        axes.add_patch(Rectangle((left + position + 0.06, 1.0), 0.88, 0.88, linewidth=0.9, **look))
        axes.text(left + position + 0.5, 1.45, text, size=8, color=colour, ha="center", va="center")
    for number, start in enumerate(each.starts):
        top = 2.1 + LINE * number
        kept = number in each.kept
        colour = SAME_COLOUR if kept else FAINT
        output = each.kept.index(number) if kept else None
        if step.flip and output is not None:
            output = len(each.kept) - 1 - output
        name = f"output {output}" if kept else "dropped"
        axes.text(left + each.first - 0.2, top + TALL / 2, name, size=7, color=colour, ha="right", va="center")
        for element, is_weight in enumerate(each.weights):
            corner = (left + start + element + 0.1, top)
            fill = colour if is_weight and kept else "white"
            axes.add_patch(Rectangle(corner, 0.8, TALL, facecolor=fill, edgecolor=colour, linewidth=1))
            if not is_weight:
                axes.text(corner[0] + 0.4, top + TALL / 2, "0", size=6.5, color=colour, ha="center", va="center")


def legend(axes: Any, rows: Sequence[Row], height: float) -> None:
    """Of what is on the picture."""
    entries: List[Tuple[Optional[dict], str]] = []
    if any(each.step.pad for each in rows):
        entries.append(({"facecolor": "white", "edgecolor": FAINT, "linestyle": (0, (2, 1.5))}, "operator's own pad"))
    if any(sum(each.added) for each in rows):
        by = "by the pad operator" if any(sum(each.step.pad_operator) for each in rows) else "around the data"
        entries.append(({"facecolor": "#dbeafe", "edgecolor": ADDED}, f"added {by}"))
    if any(not all(each.weights) for each in rows):
        entries.append(({"facecolor": "white", "edgecolor": SAME_COLOUR}, "kernel element that is zero"))
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
    "concat": [("concat", 8, True)],
    "pad": [("pad", 8, True)],
    "full": [("full", 8, True)],
    "flip": [("flip", 8, False), ("flip", 7, False)],
    "shift": [("shift", 8, False), ("shift", 7, False)],
    "offset": [("offset", 8, False), ("offset", 7, False)],
    "offset-concat": [("offset concat", 8, False), ("offset concat", 7, False)],
    "gather": [("gather", 8, False), ("gather", 7, False)],
}


def plans() -> None:
    for name, rows in PLANS.items():
        draw_plan(f"plan-{name}", [row(*each) for each in rows])


# -- two axes


def two_axes(size: int = 6, kernel_size: int = 3, stride: int = 2) -> None:
    """A picture's elements with SAME and with symmetric padding; the first and the last window of both axes."""
    figure = Figure(figsize=(7.4, 3.7), facecolor="white")
    same, symmetric = mxsame.padding.same_pads(size, kernel_size, stride), (kernel_size // 2,) * 2
    for number, (name, (low, high), colour) in enumerate(
        (("SAME", same, SAME_COLOUR), ("symmetric", symmetric, SYMMETRIC_COLOUR))
    ):
        axes = figure.add_axes((0.02 + 0.5 * number, 0.02, 0.46, 0.84))
        axes.set_xlim(-1.3, size + 1.3)
        axes.set_ylim(size + 1.3, -1.3)
        axes.set_aspect("equal")
        axes.axis("off")
        title = f"{name}: pads ({low}, {high}) along both axes"
        axes.set_title(title, loc="left", size=10, weight="bold", color=colour)
        for row, column in np.ndindex(low + size + high, low + size + high):
            corner = (column - low + 0.06, row - low + 0.06)
            is_data = low <= row < low + size and low <= column < low + size
            look = (
                {"facecolor": FILL, "edgecolor": INK} if is_data else {"facecolor": "white", "linestyle": (0, (2, 1.5))}
            )
            axes.add_patch(Rectangle(corner, 0.88, 0.88, linewidth=0.9, **{"edgecolor": FAINT, **look}))
        last = (mxsame.padding.output_size(size, kernel_size, stride) - 1) * stride - low
        for start in (-low, last):
            axes.add_patch(
                Rectangle((start, start), kernel_size, kernel_size, fill=False, edgecolor=colour, linewidth=2.6)
            )
    save(figure, "two-axes")


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
    speed()
    plans()
    two_axes()
    windows("symmetric-7x7", 224, 7, stride=2, beside="symmetric")
    windows("even", 8, 3, stride=2, beside="symmetric")
    windows("odd", 7, 3, stride=2, beside="symmetric")
    windows("dilated", 9, 3, dilation=2)
    windows("causal", 6, 3, padding="causal")
    windows("transposed", 4, 3, stride=2, transposed=True)


if __name__ == "__main__":
    sys.exit(main())
