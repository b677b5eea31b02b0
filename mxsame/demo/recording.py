"""The shipped data: the photograph, the images made from it, and what TensorFlow computed from them.

`tests/golden/make_demo.py` makes the recordings; `mxsame/data/README.md` says where the photograph is from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data"
SIZE = 224
LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Recording:
    """What was recorded of one network: `weights[layer][name]` in tf.keras's order, `outputs[layer]` as (H, W, C)."""

    recorded_with: str
    input_sha256: str
    weights: dict[str, dict[str, np.ndarray]]
    outputs: dict[str, np.ndarray]


def load(name: str) -> Recording:
    """The recording of the network `name`."""
    weights: dict[str, dict[str, np.ndarray]] = {}
    outputs = {}
    with np.load(DATA / f"{name}.npz") as file:
        for key in file.files:
            layer, _, part = key.partition("/")
            if part == "output":
                outputs[layer] = file[key]
            elif part:
                weights.setdefault(layer, {})[part] = file[key].astype(np.float32)
        return Recording(str(file["recorded_with"]), str(file["input_sha256"]), weights, outputs)


def photograph() -> np.ndarray:
    """The shipped photograph, (224, 224, 3) bytes."""
    from matplotlib.image import imread

    pixels = np.rint(imread(DATA / "photograph.png")[..., :3] * 255).astype(np.uint8)
    if pixels.shape != (SIZE, SIZE, 3):
        raise ValueError(f"photograph.png must be {SIZE}x{SIZE} in three colours; received shape={pixels.shape}")
    return pixels


def image(pixels: np.ndarray, size: int, channels: int) -> np.ndarray:
    """The photograph in a network's size, (size, size, channels) in 0..1: the mean over equal squares of pixels."""
    block = SIZE // size
    sums = pixels.astype(np.int64).reshape(size, block, size, block, 3).sum(axis=(1, 3))
    mean = sums / (255.0 * block * block)  # integers until here: the same floats on every machine
    if channels == 1:
        red, green, blue = (mean[..., channel] * LUMINANCE[channel] for channel in range(3))
        mean = (red + green + blue)[..., None]
    return mean.astype(np.float32)


def check_input(recording: Recording, values: np.ndarray) -> None:
    """Raises `ValueError` unless `values` is, to the bit, what TensorFlow was given."""
    found = hashlib.sha256(values.tobytes()).hexdigest()
    if found != recording.input_sha256:
        raise ValueError(
            "the photograph must be the one TensorFlow was given when the outputs were recorded; "
            f"received sha256={found[:12]}, recorded sha256={recording.input_sha256[:12]}"
        )
