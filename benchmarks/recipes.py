"""Other ways to get SAME, or something of its shape, out of MXNet's layers. Each knows its input size beforehand."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple

from benchmarks.kits import LOWEST
from mxsame import padding
from mxsame._mxnet import mx

Window = Tuple[int, int, int]  # of one axis: size, kernel, stride
Make = Callable[[Tuple[int, ...]], Any]  # the operator's pads -> a layer of gluon.nn


class Recipe(mx.gluon.HybridBlock):
    """pad operator -> layer -> slice; steps that change nothing are left out."""

    def __init__(self, layer: Any, widths: Optional[Sequence] = None, fill: float = 0, keep: Optional[tuple] = None):
        super().__init__()
        self.layer = layer
        self._widths, self._fill, self._keep = widths, fill, keep

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = self.layer(x if self._widths is None else self._pad(F, x))
        return out if self._keep is None else F.slice(out, begin=self._keep[0], end=self._keep[1])

    def _pad(self, F: Any, x: Any) -> Any:
        """MXNet pads arrays of four and five axes only, so a third gets company for a while."""
        flat = len(self._widths) == 1
        widths = [*self._widths, (0, 0)] if flat else self._widths
        counts = (0, 0, 0, 0, *(count for pair in widths for count in pair))
        x = F.expand_dims(x, -1) if flat else x
        x = F.pad(x, mode="constant", constant_value=self._fill, pad_width=counts)
        return F.reshape(x, (0, 0, 0)) if flat else x


def explicit(windows: Sequence[Window], make: Make, is_max: bool) -> Recipe:
    """TensorFlow's amounts with the pad operator, then VALID: what timm and most ports do. Exact, but for averages, in
    which the padding counts."""
    pads = [padding.same_pads(*window) for window in windows]
    return Recipe(make((0,) * len(pads)), pads, LOWEST if is_max else 0)


def half(windows: Sequence[Window], make: Make) -> Optional[Recipe]:
    """Pad both ends by k//2, and for an even kernel drop the first output. Exact, for stride 1 only."""
    if any(stride > 1 for _, _, stride in windows):
        return None
    skips = [1 - kernel_size % 2 for _, kernel_size, _ in windows]
    keep = ((None, None, *skips), (None,) * (2 + len(skips))) if any(skips) else None
    return Recipe(make(tuple(kernel_size // 2 for _, kernel_size, _ in windows)), keep=keep)


def keras_mxnet(windows: Sequence[Window], make: Make, is_max: bool, beforehand: bool) -> Recipe:
    """keras-mxnet 2.2.4.3's arithmetic, for what it costs: both ends get half of SAME's padding, rounded up, by the
    operator or `beforehand` by the pad operator; the first ceil(n/s) outputs are kept. Wrong where the padding is odd.
    """
    halves = [-(-sum(padding.same_pads(*window)) // 2) for window in windows]
    wanted = [padding.output_size(*window) for window in windows]
    given = [(n + 2 * pad - k) // s + 1 for (n, k, s), pad in zip(windows, halves)]
    keep = None if given == wanted else ((None, None, *(0 for _ in wanted)), (None, None, *wanted))
    if not beforehand or not any(halves):
        return Recipe(make(tuple(halves)), keep=keep)
    return Recipe(make((0,) * len(halves)), [(pad, pad) for pad in halves], LOWEST if is_max else 0, keep)
