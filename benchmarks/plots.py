"""A picture of a result file: one dot for each variant and row, with its quartiles; 1.0 is the baseline."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Tuple

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchmarks import names
from benchmarks.results import by_mode, ratio, variants
from mxsame.drawing import COLOURS, INK
from mxsame.plan import STRATEGIES

(SAME, SYMMETRIC), EXPLICIT = COLOURS, "#2563eb"
LOOKS = {  # colour and marker, the same in every picture; two that are in one picture share neither
    "mxsame": (SAME, "o"),
    "mxsame, static shape": (SAME, "o"),
    "mxsame, dynamic shape": ("#5fb3a8", "D"),
    "mxsame, deployed": ("#0b3d38", "*"),
    "mxsame, deployed, bfloat16": ("#a21caf", "<"),
    "symmetric": (SYMMETRIC, "s"),
    "symmetric, deployed": (SYMMETRIC, "s"),
    "explicit pad": (EXPLICIT, "^"),
    "explicit pad, deployed": (EXPLICIT, "^"),
    "explicit pad, rewritten": (EXPLICIT, "^"),
    "TensorFlow": ("#ca8a04", "X"),
    "tf.keras": ("#ca8a04", "X"),
    "ONNX Runtime": ("#a21caf", "p"),
    "ONNX Runtime, mxsame's file": ("#a21caf", "p"),
    "ONNX Runtime, tf2onnx's file": ("#57534e", "d"),
    "OpenVINO": ("#0891b2", ">"),
    "sizes in turn": ("#57534e", "d"),
}
FASTEST, OTHER = ("#a21caf", "D"), ("#9aa5b1", "o")  # of the exact plans of a layer, which are too many for a look each
SHOWN = {  # of a table with more than a picture has room for: its modes and their variants; the tables have all
    "networks": {
        "inference": ("mxsame", "mxsame, dynamic shape", "explicit pad"),
        "inference, compared with TensorFlow": ("mxsame", "mxsame, deployed", "mxsame, deployed, bfloat16"),
    },
    "networks-train": {
        "training step": ("mxsame", "explicit pad, rewritten"),
        "training step, net.hybridize()": ("mxsame, dynamic shape",),
        "training step, compared with TensorFlow": ("mxsame",),
    },
}
FAINT, BAND, GREY = "#d3dae0", "#f1f4f6", "#52606d"
WIDTH = 6.4
MANY = 20  # rows of a panel; with more, a picture of two panels would be too tall for a page
ABOVE, HEADING, LEGEND, LINE, BELOW = 0.7, 0.27, 0.2, 0.2, 0.62  # inches: of the picture, and of each panel
CHARACTER = 0.064  # inches: the width of a letter of a row's name
ROOM = 66  # characters in a line of the legend
LONGEST = 78  # characters of a panel's title in letters of full size
DPI = 110
RESULT = "result"  # the name of a text in a PNG file


class Series(NamedTuple):
    """Dots of one look: the number of a row, its figures, and a name that is written at the end of the row."""

    label: str
    look: Tuple[str, str]
    dots: List[Tuple[int, dict, str]]


def draw(result: dict, path: Path) -> None:
    """Writes the picture of a result file: panels below each other, or two long ones of the same rows side by side."""
    panels = [(mode, rows, all_series(rows)) for mode, rows in by_mode(shown(result)).items()]
    all_names = [[names.row(row["name"]) for row in rows] for _, rows, _ in panels]
    beside = len(panels) == 2 and all_names[0] == all_names[1] and len(all_names[0]) > MANY
    talls = [LINE * (len(rows) + 0.4) for _, rows, _ in panels]
    columns = [_columns(series) for *_, series in panels]
    legends = [LEGEND * -(-len(series) // count) for (*_, series), count in zip(panels, columns)]
    heights = [HEADING + 0.15 * beside + legend + tall + BELOW for legend, tall in zip(legends, talls)]
    height = ABOVE + (heights[0] if beside else sum(heights)) - 0.12
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    title, caption = names.title(result["table"], result["title"]), _caption(result)
    figure.text(0.02, 1 - 0.25 / height, title, size=13, weight="bold", color=INK, va="center")
    size = min(7, 780 / len(caption))
    figure.text(0.02, 1 - 0.53 / height, caption, size=size, color=GREY, va="center")
    start = 0.22 + max(len(name) for each in all_names for name in each) * CHARACTER
    room = (WIDTH - start) / (1 + beside)  # for the dots of a panel, and the names at the right
    top = height - ABOVE
    for number, (mode, rows, series) in enumerate(panels):
        left = start + room * number * beside
        heading = names.mode(mode, rows[0])
        size = 9.5 * min(1, LONGEST / len(heading))
        if beside:  # what is 1 in both, over the first
            what, _, rest = heading.partition(" (")
            heading, size = what if number else f"{what}\n({rest}", 8
        edge = left / WIDTH if beside else 0.02
        figure.text(edge, (top - 0.04) / height, heading, size=size, weight="bold", color=INK, va="top")
        bottom = top - heights[number] + BELOW
        names_at_right = [name for each in series for *_, name in each.dots]
        right = room - 0.19 - max(map(len, names_at_right)) * CHARACTER
        axes = figure.add_axes((left / WIDTH, bottom / height, right / WIDTH, talls[number] / height))
        _panel(axes, rows, series)
        _bands(axes, len(rows), 0 if beside and number else (start - 0.1) / right)
        if beside and number:  # what is written next to the panel to the left is for both
            axes.tick_params(labelleft=False)
            axes.set_xlabel("")
            continue
        if beside:
            axes.set_xlabel(axes.get_xlabel(), loc="left")
        corner = ((left if beside else 0.06) / WIDTH, (bottom + talls[number]) / height)
        look = {"frameon": False, "fontsize": 8.5, "labelcolor": INK, "columnspacing": 1.4, "handletextpad": 0.1}
        place = {"loc": "lower left", "bbox_to_anchor": corner, "borderaxespad": 0.1, "ncols": columns[number]}
        figure.legend(*axes.get_legend_handles_labels(), **look, **place)
        top -= 0 if beside else heights[number]
    write(figure, path, result=result)


def shown(result: dict) -> List[dict]:
    """The rows of the picture, with their baseline and the variants that it has."""
    rows = [row for row in result["rows"] if len(row["figures"]) > 1]
    chosen = SHOWN.get(result["table"])
    if chosen is None:
        return rows
    return [
        {**row, "figures": {name: row["figures"][name] for name in (row["reference"], *chosen[row["mode"]])}}
        for row in rows
        if row["mode"] in chosen
    ]


def all_series(rows: List[dict]) -> List[Series]:
    """A series for each variant; exact plans are two, the fastest one of each row, with its name, and the others."""
    made = []
    for name in variants(rows):
        if name not in STRATEGIES:
            dots = [(number, row["figures"][name], "") for number, row in enumerate(rows) if name in row["figures"]]
            made.append(Series(names.variant(name, rows[0]["mode"], rows[0]["reference"]), LOOKS[name], dots))
    fastest, others = [], []
    for number, row in enumerate(rows):
        plans = sorted(set(row["figures"]) & set(STRATEGIES), key=lambda name: ratio(row, name))
        fastest += [(number, row["figures"][name], name) for name in plans[:1]]
        others += [(number, row["figures"][name], "") for name in plans[1:]]
    if fastest:
        named = Series("fastest other exact plan (name at the right)", FASTEST, fastest)
        made = [*made, Series("remaining exact plans", OTHER, others), named]
    return made


def write(figure: Figure, path: Path, dpi: int = DPI, result: Optional[dict] = None) -> None:
    """As a PNG of 256 colours, which is a third of the size and looks the same; in it, the digest of the result that it
    shows."""
    from PIL import Image, PngImagePlugin

    drawn, texts = io.BytesIO(), PngImagePlugin.PngInfo()
    figure.savefig(drawn, format="png", dpi=dpi)
    if result is not None:
        texts.add_text(RESULT, digest(result))
    colours = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    colours.save(path, optimize=True, pnginfo=texts)


def digest(result: dict) -> str:
    """What tells a result from one that was recorded anew."""
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()[:16]


def _caption(result: dict) -> str:
    made = result["provenance"]
    return (
        f"{names.processor(made['cpu'])}, {made['cores']} cores, {made['date']}; "
        f"mxsame {made['mxsame']} ({made['commit']}), MXNet {made['mxnet']}, NumPy {made['numpy']}, "
        f"TensorFlow {made['tensorflow']}"
    )


def _columns(series: List[Series]) -> int:
    """How many entries fit into a line of the legend."""
    return max(1, min(len(series), ROOM // (max(len(each.label) for each in series) + 4)))


def _panel(axes: Any, rows: List[dict], series: List[Series]) -> None:
    axes.axvline(1, color=INK, linewidth=1.2, zorder=1)
    for number, each in enumerate(series):
        _dots(axes, each, (number - (len(series) - 1) / 2) * min(0.3, 0.8 / len(series)))
    axes.set_yticks(range(len(rows)), [names.row(row["name"]) for row in rows], size=8.5, color=INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _scale(axes, [figure for each in series for _, figure, _ in each.dots])
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _bands(axes: Any, count: int, reach: float) -> None:
    """Every other row is shaded, with its name at the left, up to `reach` in widths of the panel."""
    for number in range(0, count, 2):
        axes.axhspan(number - 0.5, number + 0.5, xmin=-reach, color=BAND, linewidth=0, zorder=0, clip_on=False)


def _dots(axes: Any, series: Series, offset: float) -> None:
    (colour, marker), size = series.look, 3 if series.look == OTHER else 4.6
    for number, figure, name in series.dots:
        height, scale = number + offset, figure["ratio"] / figure["median"]
        axes.hlines(height, *(end * scale for end in figure["quartiles"]), color=colour, linewidth=1.6, alpha=0.45)
        axes.text(1.02, number, name, size=8, color=colour, va="center", transform=axes.get_yaxis_transform())
    points = [(figure["ratio"], number + offset) for number, figure, _ in series.dots]
    axes.plot(*zip(*points), marker, linestyle="", color=colour, markersize=size, label=series.label)


def _scale(axes: Any, figures: List[dict]) -> None:
    """Logarithmic, with plain numbers, and only as many as there is room for."""
    ends = [end * figure["ratio"] / figure["median"] for figure in figures for end in figure["quartiles"]]
    low, high = min(*ends, 0.95) * 0.95, max(*ends, 1.1) * 1.05
    axes.set_xscale("log")
    has_spread = any(low < high for low, high in (figure["quartiles"] for figure in figures))
    label = "ratio (log scale)" + "; lines: interquartile range" * has_spread
    axes.set_xlabel(label, size=8, color=GREY)
    axes.set_xlim(low, high)
    few = (1, 2, 5) if high > 20 * low else (1, 1.5, 2, 3, 5, 7)
    axes.xaxis.set_major_locator(LogLocator(subs=few) if high > 3 * low else MaxNLocator(6, steps=(1, 2, 5, 10)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(axis="x", labelsize=8.5, colors=INK)
