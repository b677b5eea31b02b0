"""The pictures of the documentation, drawn by the arithmetic and the plans that they show: python docs/pictures.py

docs/images/problem.png and speed.png are the README's. The others are on the pages of the site.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import tables  # next to this file
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch, Rectangle

import mxsame
from benchmarks.names import NETWORKS
from benchmarks.plots import DPI, EXPLICIT, write
from mxsame import demo, plan as planning
from mxsame.drawing import COLOURS, FAINT, FILL, HEADING, HEIGHT, HOLLOW, INK, LABEL, PITCH
from mxsame.plan import AxisPlan, Window

IMAGES = Path(__file__).parent / "images"
SAME_COLOUR, SYMMETRIC_COLOUR = COLOURS
ADDED = EXPLICIT
GREY = "#52606d"
LARGEST = 150_000  # bytes


def save(figure: Figure, name: str, dpi: int = DPI, result: Optional[dict] = None) -> None:
    path = IMAGES / f"{name}.png"
    write(figure, path, dpi, result)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"a picture must be at most {LARGEST} bytes; received {path.name} of {path.stat().st_size}")


# -- the problem in one look


def problem() -> None:
    """On the left windows with SAME and with symmetric padding; on the right the input of an autoencoder, its output
    with either padding, and their difference."""
    *_, last = demo.compare("autoencoder")
    figure = Figure(figsize=(10.9, 5.3), facecolor="white")
    for left, top, size, text, colour in (
        (0.022, 0.95, 19, "Same weights, same shapes, different values", INK),
        (0.022, 0.893, 12.5, "Keras's padding=\"same\" and MXNet's symmetric padding", GREY),
        (0.022, 0.815, 12.5, "8 elements, kernel 3, stride 2", INK),
        (0.022, 0.77, 10.5, "Keras puts the extra padding element at the end", GREY),
        (0.56, 0.815, 12.5, "A Keras autoencoder, run in MXNet", INK),
        (0.56, 0.77, 10.5, "Symmetric padding distorts the image, without any error", GREY),
    ):
        figure.text(left, top, text, size=size, weight="bold" if colour == INK else None, color=colour, va="center")
    mxsame.plot_padding(8, 3, stride=2, compare_with="symmetric", ax=figure.add_axes((0.0165, 0.06, 0.5, 0.68)))

    grid = figure.add_gridspec(2, 2, left=0.56, right=0.93, top=0.69, bottom=0.05, wspace=0.12, hspace=0.24)
    shown = demo.image("autoencoder")
    grey = {"cmap": "gray", "vmin": float(shown.min()), "vmax": float(shown.max())}
    difference = np.abs(last.symmetric - last.mxsame)
    for axes, values, title, colour, look in zip(
        grid.subplots().ravel(),
        (shown, last.mxsame, last.symmetric, difference),
        ("input", "SAME", "symmetric", "|symmetric - SAME|"),
        (None, *COLOURS, None),
        (grey, grey, grey, {"cmap": "magma", "vmin": 0}),
    ):
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, loc="left", pad=5, size=9.5, color=colour or INK)
        for spine in axes.spines.values():
            spine.set(color=colour or INK, linewidth=2 if colour else 0.8)
        drawn = axes.imshow(values[..., 0], interpolation="nearest", **look)
    bar = figure.colorbar(drawn, cax=axes.inset_axes((1.04, 0, 0.05, 1)))
    bar.ax.tick_params(labelsize=8, colors=INK)
    save(figure, "problem", dpi=130)


# -- speed


def speed() -> None:
    """The time of whole networks at batch 1, from benchmarks/results/networks.json."""
    variants = {"mxsame": ("mxsame.hybridize", SAME_COLOUR, ""), "explicit pad": ("explicit padding", ADDED, "///")}
    rows = {row["network"]: row for row in tables.rows_of("networks", "inference") if row["batch"] == 1}
    names = [name for name in NETWORKS if name in rows]
    figure = Figure(figsize=(5.4, 1.6 + 0.5 * len(names)), facecolor="white", layout="constrained")
    figure.suptitle("Inference time of networks, batch 1", size=14, weight="bold", color=INK, x=0.01, ha="left")
    axes = figure.add_subplot()
    for position, (variant, (label, colour, hatch)) in enumerate(variants.items()):
        heights = [number + 0.4 * position for number in range(len(names))]
        figures = [rows[name]["figures"][variant] for name in names]
        times = [each["ratio"] for each in figures]
        axes.barh(heights, times, 0.38, color=colour, hatch=hatch, edgecolor="white", label=label)
        for height, time, each in zip(heights, times, figures):
            low, high = (end * time / each["median"] for end in each["quartiles"])
            axes.hlines(height, low, high, color=INK, linewidth=1.4)
            axes.text(max(high + 0.02, 1.04), height, f"{time:.2f}", size=11, color=INK, va="center")
    baseline = "symmetric padding = 1 (computes different values)"
    axes.axvline(1, color=SYMMETRIC_COLOUR, linewidth=1.6, linestyle="--", label=baseline)
    labels = [NETWORKS[name].replace(" exit", "\nexit") for name in names]
    axes.set_yticks([number + 0.2 for number in range(len(names))], labels, size=11.5, color=INK)
    axes.invert_yaxis()
    axes.set_xlabel("relative time (lower is better)\nlines: interquartile range", size=11, color=INK)
    axes.tick_params(axis="x", labelsize=10, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower left", frameon=False, fontsize=11)
    save(figure, "speed", result=tables.benchmark("networks"))


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
            return low - step.shift.min_low, step.shift.max_pad - low
        return step.concat[0] + step.pad_operator[0], step.concat[1] + step.pad_operator[1]

    @property
    def weights(self) -> List[bool]:
        """Which elements of the operator's kernel are weights, and not zeros."""
        front = self.step.kernel_zeros[0]
        return [front <= element < front + self.window.kernel_size for element in range(self.step.kernel_size)]

    @property
    def first(self) -> int:
        """The start of the operator's first window, in elements of the data."""
        return -self.step.pad - self.added[0]

    @property
    def starts(self) -> List[int]:
        """Of all windows of the operator."""
        span = self.size + sum(self.added) + 2 * self.step.pad - self.step.kernel_size
        stride = self.step.operator_stride(self.window)
        count = (-(-span // stride) if self.ceil else span // stride) + 1
        return [self.first + window * stride for window in range(count)]

    @property
    def kept(self) -> range:
        outputs = self.window.outputs(self.size)
        if self.step.pick:
            first = self.step.pick.max_pad - self.step.pick.pad - self.low
            return range(first, first + outputs * self.window.stride, self.window.stride)
        return range(self.step.crop[0], self.step.crop[0] + outputs)

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
    with planning.use_strategy(strategy):
        plan = planning.first_plan([window], "max" if strategy in ("full", "pick") else "conv")
    return Row(window, size, plan.axes[0], plan.convention == "full").check()


UNIT = 0.31  # inches of an element
OWN, ADD = "pad", "add"  # what is written in elements that are padding: the operator's, and what the plan adds
PADDING_LOOK = {OWN: {"edgecolor": SAME_COLOUR, **HOLLOW}, ADD: {"edgecolor": ADDED, **HOLLOW}}
GAP, MARGIN = 1.2, 0.2  # in elements
SIGN = 0.55  # of the legend: the width of a square, and the height of it


def draw_plan(name: str, rows: Sequence[Row]) -> None:
    """Panels next to each other, one for each size; the signs are those of `plot_padding`."""
    spans = [(each.first, max(each.starts[-1] + len(each.weights), each.size - each.first)) for each in rows]
    entries = legend(rows)
    panels = sum(end - start + LABEL for start, end in spans) + GAP * (len(rows) - 1)
    width = max(panels, sum(room(text) for _, text in entries)) + 2 * MARGIN
    height = HEADING + PITCH * max(len(each.starts) for each in rows) + 1.1
    figure = Figure(figsize=(width * UNIT, height * UNIT), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    left = MARGIN
    for each, (start, end) in zip(rows, spans):
        panel(axes, each, left + LABEL - start)
        left += end - start + LABEL + GAP
    left = 2 * MARGIN
    for look, text in entries:
        sign(axes, look, left, height - 0.8)
        axes.text(left + 0.8, height - 0.8 + SIGN / 2, text, size=7.5, color=INK, va="center")
        left += room(text)
    save(figure, name)


def panel(axes: Any, each: Row, zero: float) -> None:
    """A row of elements, of which the first of the data is at `zero`, and a line for each window."""
    step, (before, after) = each.step, each.added
    title = f"{each.size} elements{', flipped' * step.flip}; goal: SAME pads {each.window.pads(each.size)}"
    axes.text(zero + each.first - LABEL, 0.55, title, size=9, color=SAME_COLOUR, weight="bold", va="center")
    for position in range(-before - step.pad, each.size + after + step.pad):
        if 0 <= position < each.size:
            text = str(each.size - 1 - position if step.flip else position)
            look, colour = {"facecolor": FILL, "edgecolor": INK}, INK
        else:
            text = ADD if -before <= position < each.size + after else OWN
            look, colour = PADDING_LOOK[text], PADDING_LOOK[text]["edgecolor"]
        axes.add_patch(Rectangle((zero + position + 0.05, 1.15), 0.9, 0.9, linewidth=0.9, **look))
        size = 8 if look.get("facecolor") == FILL else 7
        axes.text(zero + position + 0.5, 1.6, text, size=size, color=colour, ha="center", va="center")
    for number in range(len(each.starts)):
        window(axes, each, number, zero)


def window(axes: Any, each: Row, number: int, zero: float) -> None:
    """Its kernel elements, full on data and hollow on padding; zeros of the kernel are a part of the line, as what
    dilation skips is. A window whose output is dropped is grey."""
    kept, top = number in each.kept, HEADING + PITCH * number
    colour, middle = SAME_COLOUR if kept else FAINT, top + HEIGHT / 2
    output = each.kept.index(number) if kept else None
    if output is not None and each.step.flip:
        output = len(each.kept) - 1 - output
    name = "dropped" if output is None else f"output {output}"
    axes.text(zero + each.first - 0.3, middle, name, size=7.5, color=INK if kept else GREY, ha="right", va="center")
    start = each.starts[number]
    left = zero + start
    axes.plot((left + 0.1, left + len(each.weights) - 0.1), (middle, middle), color=colour, linewidth=1.2, zorder=1)
    for element, is_weight in enumerate(each.weights):
        if is_weight:
            fill = colour if 0 <= start + element < each.size else "white"
            corner = (left + element + 0.08, top)
            look = {"facecolor": fill, "edgecolor": colour, "linewidth": 1.1, "zorder": 2}
            axes.add_patch(Rectangle(corner, 0.84, HEIGHT, **look))
        else:
            axes.text(
                left + element + 0.5, middle, "0", size=8, color=colour, ha="center", va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )  # fmt: skip


def legend(rows: Sequence[Row]) -> List[Tuple[Any, str]]:
    """Signs and what they mean, of what is on the picture: the look of a square, or "0" on a line."""
    data = {"facecolor": SAME_COLOUR, "edgecolor": SAME_COLOUR}
    hollow = "beyond the data, not read" if rows[0].ceil else "reads padding"
    entries: List[Tuple[Any, str]] = [(data, "reads data"), ({**data, "facecolor": "white"}, hollow)]
    if any(each.step.pad for each in rows):
        entries.append((PADDING_LOOK[OWN], "padding by the operator"))
    if any(sum(each.added) for each in rows):
        shift = rows[0].step.shift  # its last zeros may be in no window
        by = f"a convolution adds, {shift.max_pad - shift.min_low} at any size" if shift else "the plan adds"
        entries.append((PADDING_LOOK[ADD], f"zeros that {by}"))
    if any(not all(each.weights) for each in rows):
        entries.append(("0", "zero in the kernel"))
    if any(len(each.kept) < len(each.starts) for each in rows):
        entries.append(({"facecolor": FAINT, "edgecolor": FAINT}, "window that is dropped"))
    return entries


def room(text: str) -> float:
    """What an entry of the legend takes, in elements."""
    return 1.5 + 0.235 * len(text)


def sign(axes: Any, look: Any, left: float, top: float) -> None:
    if look == "0":
        middle = top + SIGN / 2
        axes.plot((left - 0.1, left + SIGN + 0.1), (middle, middle), color=SAME_COLOUR, linewidth=1.2)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        axes.text(left + SIGN / 2, middle, look, size=7.5, color=SAME_COLOUR, ha="center", va="center", bbox=box)
    else:
        axes.add_patch(Rectangle((left, top), SIGN, SIGN, linewidth=1, **look))


PLANS = {
    "native": [("native", 7, True)],
    "slice": [("slice", 8, True)],
    "kernel": [("kernel", 8, True)],
    "concat": [("concat", 8, True)],  # that of "pad" is the same
    "full": [("full", 8, True)],
    "flip": [("flip", 8, False), ("flip", 7, False)],
    "shift": [("shift", 8, False), ("shift", 7, False)],
    "pick": [("pick", 8, False), ("pick", 7, False)],
    "gather": [("gather", 8, False), ("gather", 7, False)],
}


def plans() -> None:
    for name, rows in PLANS.items():
        draw_plan(f"plan-{name}", [row(*each) for each in rows])


# -- two axes


def two_axes(size: int = 6, kernel_size: int = 3, stride: int = 2) -> None:
    """A picture's elements with SAME and with symmetric padding; the first and the last window of both axes."""
    pads = {"same": mxsame.padding.same_pads(size, kernel_size, stride), "symmetric": (kernel_size // 2,) * 2}
    figure = Figure(figsize=(8.2, 4.5), facecolor="white")
    for number, ((name, (low, high)), colour) in enumerate(zip(pads.items(), (SAME_COLOUR, SYMMETRIC_COLOUR))):
        axes = figure.add_axes((0.02 + 0.49 * number, 0.08, 0.47, 0.82))
        axes.set_xlim(-1.9, size + 1.3)
        axes.set_ylim(size + 1.2, -1.9)
        axes.set_aspect("equal")
        axes.axis("off")
        axes.set_title(f"{name}: pads {low, high} along both axes", loc="left", size=10, weight="bold", color=colour)
        for row, column in np.ndindex(low + size + high, low + size + high):
            two_axes_element(axes, row - low, column - low, size, colour)
        for index in range(size):
            axes.text(index + 0.5, -low - 0.35, index, size=8, color=INK, ha="center", va="center")
            axes.text(-low - 0.35, index + 0.5, index, size=8, color=INK, ha="center", va="center")
        last = (mxsame.padding.output_size(size, kernel_size, stride) - 1) * stride - low
        for start in (-low, last):
            two_axes_window(axes, start, kernel_size, size, colour)
    looks = {
        "reads data": lambda colour: {"facecolor": colour},
        "reads padding": lambda colour: {"facecolor": "white"},
        "the first and the last window": lambda colour: {"facecolor": "none", "linewidth": 2.2},
    }
    handles = [tuple(Patch(edgecolor=colour, **look(colour)) for colour in COLOURS) for look in looks.values()]
    place = {"loc": "lower left", "bbox_to_anchor": (0.05, 0), "ncols": 3}
    in_both_colours = {tuple: HandlerTuple(ndivide=None)}
    figure.legend(handles, list(looks), handler_map=in_both_colours, frameon=False, fontsize=9, **place)
    save(figure, "two-axes")


def two_axes_element(axes: Any, row: int, column: int, size: int, colour: str) -> None:
    is_data = 0 <= row < size and 0 <= column < size
    look = {"facecolor": FILL, "edgecolor": INK} if is_data else {"edgecolor": colour, **HOLLOW}
    axes.add_patch(Rectangle((column + 0.05, row + 0.05), 0.9, 0.9, linewidth=0.9, **look))


def two_axes_window(axes: Any, start: int, kernel_size: int, size: int, colour: str) -> None:
    """A frame, and its kernel elements: full on data and hollow on padding."""
    for row, column in np.ndindex(kernel_size, kernel_size):
        is_data = 0 <= start + row < size and 0 <= start + column < size
        corner = (start + column + 0.22, start + row + 0.22)
        fill = colour if is_data else "white"
        axes.add_patch(Rectangle(corner, 0.56, 0.56, facecolor=fill, edgecolor=colour, linewidth=1.1, zorder=2))
    box = Rectangle((start, start), kernel_size, kernel_size, fill=False, edgecolor=colour, linewidth=2.2, zorder=3)
    axes.add_patch(box)


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
    windows("symmetric-7x7", 224, 7, stride=2, compare_with="symmetric")
    windows("even", 8, 3, stride=2, compare_with="symmetric")
    windows("odd", 7, 3, stride=2, compare_with="symmetric")
    windows("dilated", 9, 3, dilation=2)
    windows("causal", 6, 3, padding="causal")
    windows("transposed", 4, 3, stride=2, transposed=True)


if __name__ == "__main__":
    sys.exit(main())
