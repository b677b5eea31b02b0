"""Layers drawn at random, to which estimates are fitted, and with which they are compared.

What is drawn follows networks: sizes are halved where channels are doubled, batches are small, and most kernels are
short. A seed names a set of layers for good; the estimate of `mxsame.planner` was fitted to `FITTED`, so figures come
from other seeds.
"""

from __future__ import annotations

import math
import random
from typing import Iterator, List

from benchmarks.variants import Layer
from mxsame.plan import Window

FITTED = (21, 23)  # the seeds of the layers that the planner's constants were fitted to
HELD_OUT = 2

MOST_ELEMENTS = 4_000_000  # of the data
MOST_PRODUCTS = 400_000_000
LEAST_PRODUCTS = 2_000_000  # of a convolution; with fewer, only the calls of operators are measured
LEAST_ELEMENTS = 100_000  # of the data
KINDS = ("conv", "conv", "conv", "depthwise", "max", "avg")
RANKS = (1, 2, 2, 2, 2, 3)
CHANNELS = (1, 3, 3, 8, 16, 24, 32, 48, 64, 64, 96, 128, 128, 192, 256, 384)
KERNELS = {1: (2, 3, 5, 8, 10, 16, 25, 40, 80), 2: (2, 3, 3, 3, 4, 5, 7), 3: (2, 3, 3, 3)}
STEM = (16, 32, 32, 64)  # what the first layer of a network makes of so few channels
STRIDES = (1, 2, 2, 2, 2, 3, 4)
BATCHES = (1, 1, 2, 4, 8)
PICTURE = {1: 16000, 2: 224, 3: 32}  # the longest axis of 16 channels, and of fewer


def layers(seed: int, count: int) -> List[Layer]:
    """So many layers, all of which SAME pads by different amounts at the two ends for some size.

    >>> layers(7, 3) == layers(7, 3)
    True
    """
    drawn = _draw(random.Random(seed))
    return [next(drawn) for _ in range(count)]


def _draw(pick: random.Random) -> Iterator[Layer]:
    while True:
        kind, rank = pick.choice(KINDS), pick.choice(RANKS)
        pools = kind in ("max", "avg")
        in_channels = pick.choice([c for c in CHANNELS if c >= 8] if kind == "depthwise" or pools else CHANNELS)
        channels = in_channels
        if kind == "conv":
            channels = pick.choice(STEM) if in_channels < 8 else pick.choice((1, 1, 2)) * in_channels
        kernel, stride = pick.choice(KERNELS[rank][:2] if pools else KERNELS[rank]), pick.choice(STRIDES)
        batch, size = pick.choice(BATCHES), tuple(_length(pick, rank, in_channels) for _ in range(rank))
        name = f"{kind} {rank}-D {in_channels}-{channels} k{kernel} s{stride}, {batch}x{'x'.join(map(str, size))}"
        layer = Layer(name, kind, in_channels, size, channels, kernel, stride, batch)
        if kernel < stride or not (_differs(kernel, stride) and _is_moderate(layer)):
            continue
        yield layer


def _length(pick: random.Random, rank: int, channels: int) -> int:
    longest = PICTURE[rank] * min(1.0, (16 / channels) ** (1 / min(rank, 2)))
    return max(5, int(longest * pick.uniform(0.25, 1)))


def _differs(kernel: int, stride: int) -> bool:
    """Whether the two ends differ for a size of some remainder."""
    window = Window(None, kernel, stride)
    return any(low != high for low, high in map(window.pads, window.sizes))


def _is_moderate(layer: Layer) -> bool:
    share = 1 if layer.kind != "conv" else layer.in_channels
    outputs = math.prod(-(-n // window.stride) for n, window in zip(layer.size, layer.windows))
    kernel_elements = math.prod(window.kernel_size for window in layer.windows)
    products: int = layer.batch * layer.channels * share * outputs * kernel_elements
    least = LEAST_PRODUCTS if layer.kind == "conv" else 0
    return LEAST_ELEMENTS <= math.prod(layer.shape) <= MOST_ELEMENTS and least <= products <= MOST_PRODUCTS
