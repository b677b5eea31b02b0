"""Images as arrays: those of files in MXNet's order of axes, and generated ones.

python examples/distributed/images.py images.npy    # writes 10,000 generated ones
"""

from __future__ import annotations

import sys

import numpy as np


def in_channels_first(images: np.ndarray) -> np.ndarray:
    """Transposes (N, H, W) or (N, H, W, C) to (N, C, H, W) in float32; scales bytes to 0..1."""
    images = images[..., None] if images.ndim == 3 else images
    scale = 1 / 255 if images.dtype == np.uint8 else 1
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2) * np.float32(scale), dtype=np.float32)


def stripes(count: int, seed: int, size: int = 31, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Returns images (N, 3, size, size) of stripes in one of four directions, and the direction of each, (N,)."""
    numbers = np.random.RandomState(seed)
    labels = numbers.randint(0, 4, count)
    angles = labels * np.pi / 4
    y, x = np.mgrid[:size, :size]
    along = x * np.cos(angles)[:, None, None] + y * np.sin(angles)[:, None, None]
    waves = np.sin(along * 0.9 + numbers.uniform(0, 2 * np.pi, (count, 1, 1)))
    images = waves[:, None] + noise * numbers.standard_normal((count, 3, size, size))
    return images.astype(np.float32), labels


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".npy"):
        sys.exit(f"images: one argument is needed, the .npy file to write; received {sys.argv[1:]}")
    np.save(sys.argv[1], stripes(10_000, seed=2)[0])
