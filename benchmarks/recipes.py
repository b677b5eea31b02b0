"""What else people do for SAME, beside what `mxsame.bench.recipes` has. Each knows its input size beforehand."""

from __future__ import annotations

from typing import Optional, Sequence

from mxsame.bench.recipes import LOWEST, Make, Recipe
from mxsame.plan import Window


def half(windows: Sequence[Window], make: Make) -> Optional[Recipe]:
    """Pad both ends by ke//2, and for an even ke drop the first output. Exact, for stride 1 only."""
    if any(window.stride > 1 for window in windows):
        return None
    skips = [1 - window.effective_kernel_size % 2 for window in windows]
    keep = ((None, None, *skips), (None,) * (2 + len(skips))) if any(skips) else None
    return Recipe(make(tuple(window.effective_kernel_size // 2 for window in windows)), keep=keep)


def keras_mxnet(windows: Sequence[Window], make: Make, is_max: bool, beforehand: bool) -> Recipe:
    """keras-mxnet 2.2.4.3's arithmetic, for what it costs: both ends get half of SAME's padding, rounded up, by the
    operator or `beforehand` by the pad operator; the first ceil(n/s) outputs are kept. Wrong where the padding is odd.
    """
    halves = [-(-sum(x.pads(x.size)) // 2) for x in windows]
    wanted = [x.outputs(x.size) for x in windows]
    given = [(x.size + 2 * pad - x.effective_kernel_size) // x.stride + 1 for x, pad in zip(windows, halves)]
    keep = None if given == wanted else ((None, None, *(0 for _ in wanted)), (None, None, *wanted))
    if not beforehand or not any(halves):
        return Recipe(make(tuple(halves)), keep=keep)
    return Recipe(make((0,) * len(halves)), [(pad, pad) for pad in halves], LOWEST if is_max else 0, keep)
