"""What `mxsame demo` shows: three Keras networks on a photograph, layer by layer compared with TensorFlow's outputs.

`tests/golden/make_demo.py` records the outputs; `mxsame/data/README.md` names the source of the photograph.

>>> list(NETWORKS)
['stem', 'sequential', 'autoencoder']
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

import numpy as np

from mxsame import nn, padding
from mxsame._mxnet import mx
from mxsame.data import FOLDER
from mxsame.drawing import COLOURS, INK, plot_padding
from mxsame.keras import layouts

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

LUMINANCE = np.array([0.299, 0.587, 0.114])
TOLERANCE = 1e-4
GREY = "#52606d"


# -- the networks


class Layer(NamedTuple):
    """One layer; kernel and stride are the same in both axes."""

    name: str
    kind: str  # "conv" or "pool", or one of `OTHERS`
    channels: int = 0
    kernel_size: int = 1
    stride: int = 1
    padding: Any = "same"
    activation: str | None = None

    @property
    def window(self) -> str:
        """`7x7/2` for a kernel of 7 and a stride of 2."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return "" if self.kind in OTHERS else f"{self.kernel_size}x{self.kernel_size}{stride}"


OTHERS = {
    "norm": lambda: mx.gluon.nn.BatchNorm(epsilon=1e-3),  # Keras's default; Gluon's is 1e-5
    "relu": lambda: mx.gluon.nn.Activation("relu"),
    "dropout": lambda: mx.gluon.nn.Dropout(0.25),
    "up": lambda: mx.gluon.nn.HybridLambda(lambda F, x: F.UpSampling(x, scale=2, sample_type="nearest")),
}


class Network(NamedTuple):
    """Layers in a row, on a square picture of this size."""

    title: str
    size: int
    layers: list[Layer]


def _conv(name: str, channels: int, padding: Any = "same", activation: str | None = "relu") -> Layer:
    return Layer(name, "conv", channels, 3, padding=padding, activation=activation)


def _pool(name: str) -> Layer:
    return Layer(name, "pool", kernel_size=2, stride=2)


NETWORKS = {
    "stem": Network(
        "Stem: how most image networks begin, on the photograph itself",
        224,
        [Layer("conv", "conv", 6, kernel_size=7, stride=2), Layer("pool", "pool", kernel_size=3, stride=2)],
    ),
    "sequential": Network(
        "Sequential: a Keras classic, on the photograph at 32x32",
        32,
        [
            *(_conv("conv1", 64, 0, None), Layer("norm1", "norm"), Layer("relu1", "relu"), Layer("dropout", "dropout")),
            *(_conv("conv2", 64, activation=None), Layer("norm2", "norm"), Layer("relu2", "relu")),
            *(_pool("pool"), _conv("conv3", 128, activation=None)),
        ],
    ),
    "autoencoder": Network(
        "Autoencoder: 28x28 grey to a code of 128 and back, trained on the photograph",
        28,
        [
            *(_conv("conv1", 16), _pool("pool1"), _conv("conv2", 8), _pool("pool2"), _conv("conv3", 8), _pool("code")),
            *(_conv("conv4", 8), Layer("up1", "up"), _conv("conv5", 8), Layer("up2", "up"), _conv("conv6", 16, 0)),
            *(Layer("up3", "up"), _conv("conv7", 1, activation="sigmoid")),
        ],
    ),
}


def symmetric_pad(size: int, kernel_size: int, stride: int = 1, dilation: int = 1) -> int:
    """The smallest pad of both ends with SAME's output size; ke//2 if none has it: even ke with stride 1.

    >>> symmetric_pad(224, 7, 2), symmetric_pad(56, 2)
    (3, 1)
    """
    reach = padding.effective_kernel_size(kernel_size, dilation)
    outputs = padding.output_size(size, kernel_size, stride, dilation)
    return next((pad for pad in range(reach) if (size + 2 * pad - reach) // stride + 1 == outputs), reach // 2)


def block(layer: Layer, weights: dict[str, np.ndarray], size: int | None = None) -> Any:
    """The layer of `mxsame.nn`, which needs no input size; or with a size, the layer of `gluon.nn` with symmetric
    padding, as it is usually ported. Weights are as tf.keras stores them."""
    module, pads = (nn, layer.padding) if size is None else (mx.gluon.nn, layer.padding)
    if size is not None and layer.padding == "same":
        pads = symmetric_pad(size, layer.kernel_size, layer.stride)
    if layer.kind == "conv":
        built = module.Conv2D(layer.channels, layer.kernel_size, layer.stride, pads, activation=layer.activation)
    elif layer.kind == "pool":
        built = module.MaxPool2D(layer.kernel_size, layer.stride, pads)
    else:
        built = OTHERS[layer.kind]()
    built.initialize()
    names = {"kernel": "weight", "moving_mean": "running_mean", "moving_variance": "running_var"}
    for name, value in weights.items():
        value = layouts.to_mxnet(value, "conv") if name == "kernel" else value
        getattr(built, names.get(name, name)).set_data(mx.nd.array(value))
    built.hybridize()
    return built


# -- their outputs


class Row(NamedTuple):
    """A layer and its outputs, (H, W, C): recorded by TensorFlow, of `mxsame.nn`, and with symmetric padding."""

    layer: Layer
    pads: tuple[int, int] | None  # (low, high) of both axes; None if the layer has none
    tensorflow: np.ndarray
    mxsame: np.ndarray
    symmetric: np.ndarray

    def difference(self, output: np.ndarray) -> float:
        """The largest difference of any element from TensorFlow's; infinite for another shape."""
        return float(np.abs(output - self.tensorflow).max()) if output.shape == self.tensorflow.shape else float("inf")

    def is_right(self, output: np.ndarray) -> bool:
        """Within 1e-4, times the largest output if that is above 1: float32 rounds relative to its sums."""
        return self.difference(output) <= TOLERANCE * max(1.0, float(np.abs(self.tensorflow).max()))


def image(network: str) -> np.ndarray:
    """The photograph at a network's size, (H, W, C) in 0..1: the mean over equal squares of pixels."""
    from matplotlib.image import imread

    pixels, size = np.rint(imread(FOLDER / "photograph.png")[..., :3] * 255), NETWORKS[network].size
    block = len(pixels) // size
    mean = pixels.reshape(size, block, size, block, 3).sum(axis=(1, 3), dtype=np.int64) / (255.0 * block * block)
    if network == "autoencoder":
        mean = sum(mean[..., channel] * LUMINANCE[channel] for channel in range(3))[..., None]
    return mean.astype(np.float32)


def compare(network: str) -> Iterator[Row]:
    """Runs both networks from the image to the end, with the recorded weights: a row for each layer."""
    with np.load(FOLDER / f"{network}.npz") as file:
        recorded = {key: file[key] for key in file.files}
    exact = shifted = mx.nd.array(image(network).transpose(2, 0, 1)[None])
    for layer in NETWORKS[network].layers:
        size, prefix, pads = exact.shape[2], f"{layer.name}/", None
        weights = {key[len(prefix) :]: value for key, value in recorded.items() if key.startswith(prefix)}
        output = weights.pop("output")
        if layer.kind not in OTHERS:
            pads = padding.resolve_pads(size, layer.kernel_size, layer.stride, padding=layer.padding)
        exact, shifted = block(layer, weights)(exact), block(layer, weights, size)(shifted)
        yield Row(layer, pads, output, *(out.asnumpy()[0].transpose(1, 2, 0) for out in (exact, shifted)))


# -- what is shown


def run(console: Console, picture: Path) -> bool:
    """Prints a table for each network, writes the picture, and returns whether every layer is right.

    Raises `ImportError` if MXNet cannot be imported, and `OSError` if a file cannot be read or written.
    """
    from rich import box
    from rich.table import Table

    rows: list[Row] = []
    for name, network in NETWORKS.items():
        table = Table(title=network.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for heading in ("layer", "output", "pads", "mxsame\nmax diff", "symmetric\nmax diff"):
            table.add_column(heading, justify="left" if heading in ("layer", "pads") else "right")
        for row in compare(name):
            rows.append(row)
            height, width, channels = row.mxsame.shape
            numbers = [f"[{'green' if row.is_right(x) else 'red'}]{row.difference(x):.1e}" for x in row[-2:]]
            pads = f"{row.pads} {row.pads}" if row.pads else ""
            table.add_row(f"{row.layer.name:8}{row.layer.window}", f"{channels}, {height}, {width}", pads, *numbers)
        console.print(table)
    right = [row.is_right(row.mxsame) for row in rows]
    console.print(
        f"mxsame: {sum(right)} of {len(rows)} layers equal TensorFlow 2.13.1's. Symmetric padding: "
        f"{sum(row.is_right(row.symmetric) for row in rows)} of {len(rows)}, with the right shapes throughout."
    )
    console.print(
        "max diff: the largest difference of any output element to TensorFlow's; allowed is 1e-4, times the largest "
        "output where that is above 1. Pads are (low, high) for each axis.",
        style="dim",
    )
    draw(rows[-1]).savefig(picture, dpi=130)
    console.print(f"Picture: {picture}", soft_wrap=True, markup=False)
    return all(right)


def draw(last: Row) -> Figure:
    """The picture, which is also in the README: on the left windows with SAME and with symmetric padding; on the right
    the input of the autoencoder, its output with either padding, and their difference."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.9, 5.3), facecolor="white")
    for left, top, size, text, colour in (
        (0.022, 0.95, 19, "Same weights, same shapes, other values", INK),
        (0.022, 0.893, 12.5, 'Keras\'s padding="same" and the symmetric padding of MXNet', GREY),
        (0.022, 0.815, 12.5, "8 elements, kernel 3, stride 2", INK),
        (0.022, 0.77, 10.5, "Keras puts the extra padding element at the end", GREY),
        (0.56, 0.815, 12.5, "An autoencoder of Keras, run in MXNet", INK),
        (0.56, 0.77, 10.5, "28 -> 14 -> 7 -> 4 and back, trained in Keras", GREY),
    ):
        figure.text(left, top, text, size=size, weight="bold" if colour == INK else None, color=colour, va="center")
    plot_padding(8, 3, stride=2, compare_with="symmetric", ax=figure.add_axes((0.0165, 0.06, 0.5, 0.68)))

    grid = figure.add_gridspec(2, 2, left=0.56, right=0.93, top=0.69, bottom=0.05, wspace=0.12, hspace=0.24)
    shown = image("autoencoder")
    grey = {"cmap": "gray", "vmin": float(shown.min()), "vmax": float(shown.max())}
    difference = np.abs(last.symmetric - last.mxsame)
    for axes, values, title, colour, look in zip(
        grid.subplots().ravel(),
        (shown, last.mxsame, last.symmetric, difference),
        ("input", "SAME", "symmetric", "|difference|"),
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
    return figure
