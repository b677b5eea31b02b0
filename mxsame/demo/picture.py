"""The demo's picture, which is README's too: where the padding goes, and what an autoencoder makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from mxsame.drawing import COLOURS, INK, plot_padding

if TYPE_CHECKING:
    from mxsame.demo.compare import NetworkResult

GREY = "#52606d"


def draw(autoencoder: NetworkResult) -> Figure:
    """On the left windows with SAME and with symmetric padding; on the right a picture, what the autoencoder makes of
    it with either padding, and how these differ."""
    figure = Figure(figsize=(10.9, 5.3), facecolor="white")
    same, symmetric = COLOURS
    for left, top, size, text, colour in (
        (0.022, 0.95, 19, "Same weights, same shapes, other values", INK),
        (0.022, 0.893, 12.5, 'Keras\'s padding="same" and the symmetric padding of MXNet', GREY),
        (0.022, 0.815, 12.5, "8 elements, kernel 3, stride 2", INK),
        (0.022, 0.77, 10.5, "Keras puts the extra padding element at the end", GREY),
        (0.56, 0.815, 12.5, "An autoencoder of Keras, run in MXNet", INK),
        (0.56, 0.77, 10.5, "28 -> 14 -> 7 -> 4 and back, trained in Keras", GREY),
    ):
        weight = "bold" if colour == INK else "normal"
        figure.text(left, top, text, size=size, weight=weight, color=colour, va="center")
    plot_padding(8, 3, stride=2, beside="symmetric", ax=figure.add_axes((0.0165, 0.06, 0.5, 0.68)))

    grid = figure.add_gridspec(2, 2, left=0.56, right=0.93, top=0.69, bottom=0.05, wspace=0.12, hspace=0.24)
    axes = grid.subplots().ravel()
    image, last = autoencoder.image[..., 0], autoencoder["conv7"]
    grey = {"cmap": "gray", "vmin": float(image.min()), "vmax": float(image.max())}
    _show(axes[0], image, "input", **grey)
    _show(axes[1], last.mxsame[..., 0], "SAME", same, **grey)
    _show(axes[2], last.symmetric[..., 0], "symmetric", symmetric, **grey)
    difference = np.abs(last.symmetric - last.mxsame)[..., 0]
    bar = axes[3].inset_axes((1.04, 0, 0.05, 1))
    figure.colorbar(_show(axes[3], difference, "|difference|", cmap="magma", vmin=0), cax=bar)
    bar.tick_params(labelsize=8, colors=INK)
    return figure


def _show(axes: Any, values: np.ndarray, title: str, colour: str = "", **options: Any) -> Any:
    """An image with a title and without ticks, in a frame of this colour."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, loc="left", pad=5, size=9.5, color=colour or INK)
    if colour:
        for spine in axes.spines.values():
            spine.set(color=colour, linewidth=2)
    return axes.imshow(values, interpolation="nearest", **options)
