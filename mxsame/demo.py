"""Computes what `mxsame demo` shows: the layers of three Keras networks on a photograph, compared with TensorFlow.

`tests/golden/make_demo.py` records the outputs; `mxsame/data/README.md` names the source of the photograph.

>>> list(NETWORKS)
['stem', 'sequential', 'autoencoder']
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, NamedTuple

import numpy as np

from mxsame import nn, padding
from mxsame._mxnet import mx
from mxsame.data import FOLDER
from mxsame.keras import layouts

LUMINANCE = np.array([0.299, 0.587, 0.114])
TOLERANCE = 1e-4


# -- the networks


class Layer(NamedTuple):
    """One layer; kernel and stride are the same along both axes."""

    name: str
    kind: str  # "conv" or "pool", or a key of `WITHOUT_WINDOWS`
    channels: int = 0
    kernel_size: int = 1
    stride: int = 1
    padding: Any = "same"
    activation: str | None = None

    @property
    def window(self) -> str:
        """`7x7/2` for a kernel of 7 and a stride of 2."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return "" if self.kind in WITHOUT_WINDOWS else f"{self.kernel_size}x{self.kernel_size}{stride}"


WITHOUT_WINDOWS: Dict[str, Callable[[], Any]] = {
    "norm": lambda: mx.gluon.nn.BatchNorm(epsilon=1e-3),  # Keras's default; Gluon's is 1e-5
    "relu": lambda: mx.gluon.nn.Activation("relu"),
    "dropout": lambda: mx.gluon.nn.Dropout(0.25),
    "up": lambda: mx.gluon.nn.HybridLambda(lambda F, x: F.UpSampling(x, scale=2, sample_type="nearest")),
}


class Network(NamedTuple):
    """Layers in a row, on a square image of this size."""

    title: str
    size: int
    layers: list[Layer]


def _conv(name: str, channels: int, padding: Any = "same", activation: str | None = "relu") -> Layer:
    return Layer(name, "conv", channels, 3, padding=padding, activation=activation)


def _pool(name: str) -> Layer:
    return Layer(name, "pool", kernel_size=2, stride=2)


NETWORKS = {
    "stem": Network(
        "Stem: how most image networks start, on the photograph",
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
    """Returns the smallest symmetric pad with SAME's output size; ke//2 if there is none, as for even ke and stride 1.

    >>> symmetric_pad(224, 7, 2), symmetric_pad(56, 2)
    (3, 1)
    """
    ke = padding.effective_kernel_size(kernel_size, dilation)
    outputs = padding.output_size(size, kernel_size, stride, dilation)
    return next((pad for pad in range(ke) if (size + 2 * pad - ke) // stride + 1 == outputs), ke // 2)


def block(layer: Layer, weights: dict[str, np.ndarray], size: int | None = None) -> Any:
    """Returns the layer of `mxsame.nn`, which needs no input size; or with a size, the layer of `gluon.nn` with
    symmetric padding, as it is usually ported. `weights` are in Keras's order of axes."""
    module, pads = (nn, layer.padding) if size is None else (mx.gluon.nn, layer.padding)
    if size is not None and layer.padding == "same":
        pads = symmetric_pad(size, layer.kernel_size, layer.stride)
    if layer.kind == "conv":
        built = module.Conv2D(layer.channels, layer.kernel_size, layer.stride, pads, activation=layer.activation)
    elif layer.kind == "pool":
        built = module.MaxPool2D(layer.kernel_size, layer.stride, pads)
    else:
        built = WITHOUT_WINDOWS[layer.kind]()
    built.initialize()
    names = {"kernel": "weight", "moving_mean": "running_mean", "moving_variance": "running_var"}
    for name, value in weights.items():
        value = layouts.to_mxnet(value, "conv") if name == "kernel" else value
        getattr(built, names.get(name, name)).set_data(mx.nd.array(value))
    built.hybridize()
    return built


# -- their outputs


class Row(NamedTuple):
    """A layer and three outputs, (H, W, C): TensorFlow's, which is recorded, and two that are computed, by `mxsame.nn`
    and with symmetric padding."""

    layer: Layer
    pads: tuple[int, int] | None  # (low, high) of both axes; None if the layer has none
    tensorflow: np.ndarray
    mxsame: np.ndarray
    symmetric: np.ndarray

    def difference(self, output: np.ndarray) -> float:
        """Returns the largest difference between an element and TensorFlow's; infinity if the shapes differ."""
        return float(np.abs(output - self.tensorflow).max()) if output.shape == self.tensorflow.shape else float("inf")

    def is_right(self, output: np.ndarray) -> bool:
        """Returns whether the difference is at most 1e-4, times the largest output if that is above 1: rounding errors
        of float32 are relative."""
        return self.difference(output) <= TOLERANCE * max(1.0, float(np.abs(self.tensorflow).max()))


def image(network: str) -> np.ndarray:
    """Returns the photograph at a network's size, (H, W, C) in 0..1: the mean over equal squares of pixels."""
    pixels, size = mx.image.imread(str(FOLDER / "photograph.png")).asnumpy(), NETWORKS[network].size
    block = len(pixels) // size
    mean = pixels.reshape(size, block, size, block, 3).sum(axis=(1, 3), dtype=np.int64) / (255.0 * block * block)
    if network == "autoencoder":
        mean = sum(mean[..., channel] * LUMINANCE[channel] for channel in range(3))[..., None]
    return mean.astype(np.float32)


def compare(network: str) -> Iterator[Row]:
    """Runs both versions of a network on the photograph, with the recorded weights, and yields a row for each layer."""
    with np.load(FOLDER / f"{network}.npz") as file:
        recorded = {key: file[key] for key in file.files}
    exact = symmetric = mx.nd.array(image(network).transpose(2, 0, 1)[None])
    for layer in NETWORKS[network].layers:
        size, prefix, pads = exact.shape[2], f"{layer.name}/", None
        weights = {key[len(prefix) :]: value for key, value in recorded.items() if key.startswith(prefix)}
        output = weights.pop("output")
        if layer.kind not in WITHOUT_WINDOWS:
            pads = padding.resolve_pads(size, layer.kernel_size, layer.stride, padding=layer.padding)
        exact, symmetric = block(layer, weights)(exact), block(layer, weights, size)(symmetric)
        yield Row(layer, pads, output, *(out.asnumpy()[0].transpose(1, 2, 0) for out in (exact, symmetric)))
