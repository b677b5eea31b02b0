"""A picture of a result file: one dot for each variant and row, with its quartiles; 1.0 is the baseline."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchmarks import names
from benchmarks.results import by_mode, variants
from mxsame.drawing import COLOURS, INK

(SAME, SYMMETRIC), EXPLICIT = COLOURS, "#2563eb"
LOOKS = {  # colour and marker, the same in every picture; no two have the same marker and a similar colour
    "mxsame": (SAME, "o"),
    "mxsame, static shape": (SAME, "o"),
    "mxsame, dynamic shape": ("#5fb3a8", "D"),
    "mxsame, deployed": (SAME, "*"),
    "ONNX Runtime, mxsame's file": (SAME, "p"),
    "symmetric": (SYMMETRIC, "s"),
    "symmetric, deployed": (SYMMETRIC, "P"),
    "explicit pad": (EXPLICIT, "^"),
    "explicit pad, deployed": (EXPLICIT, "v"),
    "TensorFlow": ("#ca8a04", "X"),
}
MORE_COLOURS = ("#a21caf", "#0891b2", "#57534e", "#be123c", "#4d7c0f")
MORE_LOOKS = [(MORE_COLOURS[number % 5], "<>dh"[number % 4]) for number in range(20)]  # two in a row share nothing
FAINT = "#d3dae0"
LINE = 0.3  # inches for a row
WIDTH = 9.6
DPI = 110
RESULT = "result"  # the name of a text in a PNG file


def draw(result: dict, path: Path) -> None:
    """Writes the picture of a result file."""
    drawn = [row for row in result["rows"] if len(row["figures"]) > 1]
    modes = by_mode(drawn)
    lines = [len(rows) + 1.2 for rows in modes.values()]
    above, below, between = 1.15, 0.35, 1.05  # inches
    height = above + below + LINE * sum(lines) + between * (len(modes) - 1)
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    figure.text(0.02, 1 - 0.3 / height, result["title"], size=14, weight="bold", color=INK, va="center")
    figure.text(0.02, 1 - 0.58 / height, _caption(result), size=8, color="#52606d", va="center")
    others = itertools.cycle(MORE_LOOKS)
    looks = {name: LOOKS.get(name) or next(others) for name in variants(drawn)}
    left = _label_room(drawn)
    top = height - above
    for (mode, rows), count in zip(modes.items(), lines):
        tall = LINE * count
        axes = figure.add_axes((left, (top - tall) / height, 0.745 - left, tall / height))
        _panel(axes, mode, rows, looks)
        top -= tall + between
    write(figure, path, result=result)


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
        f"{made['cpu']}, {made['cores']} cores, {made['date']}; mxsame {made['mxsame']} ({made['commit']}), "
        f"MXNet {made['mxnet']}, NumPy {made['numpy']}, TensorFlow {made['tensorflow']}"
    )


def _label_room(rows: List[dict]) -> float:
    """The part of the width that the longest name of a row takes."""
    return 0.035 + max(len(names.row(row["name"])) for row in rows) * 0.068 / WIDTH


def _panel(axes: Any, mode: str, rows: List[dict], looks: Dict[str, Tuple[str, str]]) -> None:
    shown = variants(rows)
    title = f"{mode}: {names.variant(rows[0]['reference'])} = 1, lower is better"
    axes.set_title(title, loc="left", size=10.5, weight="bold", color=INK)
    axes.axvline(1, color=INK, linewidth=1.2, zorder=1)
    for number, name in enumerate(shown):
        offset = (number - (len(shown) - 1) / 2) * min(0.16, 0.7 / max(len(shown), 1))
        _dots(axes, name, looks[name], rows, offset)
    axes.set_yticks(range(len(rows)), [names.row(row["name"]) for row in rows], size=9, color=INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _scale(axes, rows)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for number in range(len(rows) - 1):
        axes.axhline(number + 0.5, color=FAINT, linewidth=0.4)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, fontsize=8.5, labelcolor=INK)


def _dots(axes: Any, name: str, look: Tuple[str, str], rows: List[dict], offset: float) -> None:
    placed = [(number + offset, row) for number, row in enumerate(rows) if name in row["figures"]]
    heights, figures = [height for height, _ in placed], [row["figures"][name] for _, row in placed]
    scales = [figure["ratio"] / figure["median"] for figure in figures]
    lows, highs = ([x["quartiles"][end] * scale for x, scale in zip(figures, scales)] for end in (0, 1))
    colour, marker = look
    axes.hlines(heights, lows, highs, color=colour, linewidth=1.6, alpha=0.45)
    ratios = [figure["ratio"] for figure in figures]
    axes.plot(ratios, heights, marker, linestyle="", color=colour, markersize=5.2, label=names.variant(name))


def _scale(axes: Any, rows: List[dict]) -> None:
    """Logarithmic, with plain numbers, and only as many as there is room for."""
    ends = [
        end * figure["ratio"] / figure["median"]
        for row in rows
        for name, figure in row["figures"].items()
        if name != row["reference"]
        for end in figure["quartiles"]
    ]
    low, high = min(*ends, 0.95) * 0.97, max(*ends, 1.1) * 1.03
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(
        LogLocator(subs=(1, 1.5, 2, 3, 5, 7)) if high > 3 * low else MaxNLocator(8, steps=(1, 2, 5, 10))
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(axis="x", labelsize=9, colors=INK)
