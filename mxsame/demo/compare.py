"""Runs one network three ways - TensorFlow (recorded), mxsame, symmetric padding - and measures what differs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mxsame import padding
from mxsame.demo import networks, recording

TOLERANCE = 1e-4


@dataclass(frozen=True)
class LayerResult:
    """One row of the summary. Outputs are (H, W, C)."""

    layer: networks.Layer
    pads: tuple[int, int] | None  # (low, high), the same on both axes; None where a layer has none
    tensorflow: np.ndarray
    mxsame: np.ndarray
    symmetric: np.ndarray

    @property
    def difference(self) -> float:
        return largest_difference(self.mxsame, self.tensorflow)

    @property
    def symmetric_difference(self) -> float:
        return largest_difference(self.symmetric, self.tensorflow)

    @property
    def allowed(self) -> float:
        """1e-4, times the largest output where that is above 1: float32 rounds relative to what it adds up."""
        return TOLERANCE * max(1.0, float(np.abs(self.tensorflow).max()))

    @property
    def ok(self) -> bool:
        return self.difference <= self.allowed

    @property
    def symmetric_ok(self) -> bool:
        return self.symmetric_difference <= self.allowed


@dataclass(frozen=True)
class NetworkResult:
    network: networks.Network
    recorded_with: str
    image: np.ndarray
    layers: tuple[LayerResult, ...]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.layers)

    def __getitem__(self, name: str) -> LayerResult:
        return next(row for row in self.layers if row.layer.name == name)


def largest_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of any element; infinite for another shape or for what is not a number."""
    if found.shape != expected.shape:
        return float("inf")
    difference = float(np.abs(found.astype(np.float64) - expected).max())
    return difference if np.isfinite(difference) else float("inf")


def compare(network: networks.Network, pixels: np.ndarray) -> NetworkResult:
    """Both networks run from the image to the end, hybridized, with the recorded weights."""
    recorded = recording.load(network.name)
    image = recording.image(pixels, network.size, network.channels)
    recording.check_input(recorded, image)
    missing = [layer.name for layer in network.layers if layer.name not in recorded.outputs]
    if missing:
        raise ValueError(f"the recording {network.name}.npz must hold every layer's output; missing {missing}")
    exact = networks.run(networks.build(network, recorded.weights), image)
    shifted = networks.run(networks.build(network, recorded.weights, symmetrically=True), image)
    rows = []
    for (layer, size, _), found, symmetric in zip(network.steps(), exact, shifted):
        pads = padding.resolve_pads(size, layer.kernel_size, layer.stride, padding=layer.padding)
        rows.append(
            LayerResult(
                layer=layer,
                pads=pads if layer.pads else None,
                tensorflow=recorded.outputs[layer.name],
                mxsame=found,
                symmetric=symmetric,
            )
        )
    return NetworkResult(network, recorded.recorded_with, image, tuple(rows))
