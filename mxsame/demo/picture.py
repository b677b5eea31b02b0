"""The demo's picture: where symmetric padding goes wrong, and by how much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from mxsame.drawing import COLOURS, FAINT, INK, plot_padding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mxsame.demo.compare import LayerResult, NetworkResult

SAME_COLOUR, SYMMETRIC_COLOUR = COLOURS
STYLE = {"size": 9.5, "color": INK}
FILTER = 0  # of the stem: edges from left to right
EYE_ROW, EYE_COLUMNS = 27, (0, 48)  # pixels of the stem's output that cross the left eye


def draw(pixels: np.ndarray, stem: NetworkResult, autoencoder: NetworkResult, path: Path) -> None:
    """Writes the picture; the file's ending chooses the format."""
    figure = Figure(figsize=(14, 13.8), dpi=110, facecolor="white")
    figure.suptitle(
        "Same weights, same shapes, other values: Keras's SAME and symmetric padding",
        x=0.035, y=0.982, ha="left", size=17, weight="bold", color=INK,
    )  # fmt: skip
    rows = figure.add_gridspec(
        3, 1, left=0.035, right=0.955, top=0.88, bottom=0.055, hspace=0.38, height_ratios=(5, 5, 6)
    )
    draw_stem(figure, rows[0], pixels, stem)
    draw_autoencoder(figure, rows[1], autoencoder)
    draw_reason(figure, rows[2], stem)
    figure.savefig(path)


def row_title(figure: Figure, cell: Any, bold: str, text: str) -> None:
    top = cell.get_position(figure).y1
    figure.text(0.035, top + 0.048, bold, size=12.5, weight="bold", color=INK, va="center")
    figure.text(0.035, top + 0.030, text, size=10, color="#52606d", va="center")


def show(axes: Axes, values: np.ndarray, title: str, **options: Any) -> Any:
    """An image with a title and without ticks."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, loc="left", pad=5, **STYLE)
    return axes.imshow(values, interpolation="nearest", **options)


def show_difference(figure: Figure, axes: Axes, row: LayerResult, channel: int) -> None:
    """|symmetric - SAME| of one channel, with a colour bar."""
    same, symmetric = row.mxsame[..., channel], row.symmetric[..., channel]
    difference = np.abs(symmetric - same)
    title, limit = f"|difference|, at most {difference.max():.2f}", float(np.quantile(difference, 0.998))
    drawn = show(axes, difference, title, cmap="magma", vmin=0, vmax=limit)
    box = axes.inset_axes([1.03, 0, 0.045, 1])
    figure.colorbar(drawn, cax=box, extend="max")
    box.tick_params(labelsize=8, colors=INK)


def draw_stem(figure: Figure, cell: Any, pixels: np.ndarray, stem: NetworkResult) -> None:
    row = stem["conv"]
    low, high = row.pads or (0, 0)
    wide = row.layer.kernel_size // 2
    row_title(
        figure, cell, "A 7x7 convolution with stride 2, as image networks begin",
        f"224 -> 112 pixels. Keras pads ({low}, {high}); symmetric padding ({wide}, {wide}) gives the same shape and "
        "reads the photograph one pixel too far to the left and too far up.",
    )  # fmt: skip
    axes = cell.subgridspec(1, 4, wspace=0.09).subplots()
    show(axes[0], pixels, "photograph, 224x224")
    same, symmetric = row.mxsame[..., FILTER], row.symmetric[..., FILTER]
    limit = float(np.quantile(np.abs(same), 0.995))
    gray = {"cmap": "gray", "vmin": -limit, "vmax": limit}
    largest = np.abs(same).max()
    for ax, values, name, colour in (
        (axes[1], same, f"SAME (mxsame = TensorFlow), largest {largest:.2f}", SAME_COLOUR),
        (axes[2], symmetric, "symmetric (gluon.nn)", SYMMETRIC_COLOUR),
    ):
        show(ax, values, name, **gray)
        frame(ax, colour)
        ax.plot(EYE_COLUMNS, (EYE_ROW, EYE_ROW), color=colour, linewidth=1.6)
    show_difference(figure, axes[3], row, FILTER)


def frame(axes: Axes, colour: str) -> None:
    axes.title.set_color(colour)
    for spine in axes.spines.values():
        spine.set(color=colour, linewidth=2)


def draw_autoencoder(figure: Figure, cell: Any, autoencoder: NetworkResult) -> None:
    code, row = autoencoder["code"], autoencoder["conv7"]
    row_title(
        figure, cell, "An autoencoder, 28 -> 14 -> 7 -> 4 and back",
        f"One of thirteen layers, a max pool, gets other pads: 7 -> 4, Keras {code.pads}, symmetric (1, 1). Each "
        "element of the code then reads a shifted window, and the decoder draws what it gets.",
    )  # fmt: skip
    axes = cell.subgridspec(1, 4, wspace=0.09).subplots()
    image = autoencoder.image[..., 0]
    gray = {"cmap": "gray", "vmin": float(image.min()), "vmax": float(image.max())}
    show(axes[0], image, "input, 28x28", **gray)
    for ax, values, name, colour in (
        (axes[1], row.mxsame[..., 0], "SAME (mxsame = TensorFlow)", SAME_COLOUR),
        (axes[2], row.symmetric[..., 0], "symmetric pooling at 7 -> 4", SYMMETRIC_COLOUR),
    ):
        error = np.sqrt(np.mean((values - image) ** 2))
        show(ax, values, f"{name}, error {error:.3f}", **gray)
        frame(ax, colour)
    show_difference(figure, axes[3], row, 0)


def draw_reason(figure: Figure, cell: Any, stem: NetworkResult) -> None:
    size, kernel_size, stride = 8, 3, 2
    row_title(
        figure, cell, "Why: the extra padding element goes to the end",
        f"Left: {size} elements, kernel {kernel_size}, stride {stride}. All outputs together need one padding element, "
        "and symmetric padding adds one at each end. Right: one row of the stem's output, through the left eye.",
    )  # fmt: skip
    left, right = cell.subgridspec(1, 2, wspace=0.06, width_ratios=(1.15, 1))
    plot_padding(size, kernel_size, stride, beside="symmetric", ax=figure.add_subplot(left))
    draw_profile(figure.add_subplot(right), stem["conv"])


def draw_profile(axes: Axes, row: LayerResult) -> None:
    """One row of the stem's output, SAME and symmetric."""
    columns = np.arange(*EYE_COLUMNS)
    for values, name, colour, line in (
        (row.mxsame, "SAME", SAME_COLOUR, "-"),
        (row.symmetric, "symmetric", SYMMETRIC_COLOUR, "--"),
    ):
        axes.plot(columns, values[EYE_ROW, columns, FILTER], line, color=colour, label=name, linewidth=1.8)
    same, symmetric = (values[EYE_ROW, columns, FILTER] for values in (row.mxsame, row.symmetric))
    axes.fill_between(columns, same, symmetric, color=SYMMETRIC_COLOUR, alpha=0.15, linewidth=0)
    axes.set_xlim(columns[0], columns[-1])
    axes.set_xlabel("column of the stem's output", size=9, color=INK)
    axes.set_ylabel("response to a vertical edge", size=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
