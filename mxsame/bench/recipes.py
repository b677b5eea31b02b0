"""Ways to get SAME, or something of its shape, out of MXNet's own layers. Each knows its input size beforehand."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

from mxsame import padding
from mxsame._mxnet import mx
from mxsame.plan import Window

Make = Callable[[Tuple[int, ...]], Any]  # the operator's pads -> a layer of gluon.nn
LOWEST = -3e38  # what a max pooling is padded with


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
        if len(self._widths) > 1:
            return pad(F, x, self._widths, self._fill)
        return F.reshape(pad(F, F.expand_dims(x, -1), [*self._widths, (0, 0)], self._fill), (0, 0, 0))


def pad(F: Any, x: Any, widths: Sequence[Tuple[int, int]], fill: float) -> Any:
    """MXNet's pad operator with (low, high) per axis."""
    counts = (0, 0, 0, 0, *(count for pair in widths for count in pair))
    return F.pad(x, mode="constant", constant_value=fill, pad_width=counts)


def explicit(windows: Sequence[Window], make: Make, is_max: bool) -> Recipe:
    """TensorFlow's amounts with the pad operator, then VALID: what timm and most ports do. Exact, but for averages, in
    which the padding counts."""
    pads = [window.pads(window.size) for window in windows]
    return Recipe(make((0,) * len(pads)), pads, LOWEST if is_max else 0)


def cropping(cuts: Sequence[Tuple[int, int]]) -> Tuple[List[Optional[int]], List[Optional[int]]]:
    """begin and end of a slice that drops (head, tail) cells of each axis."""
    ends = [-tail or None for _, tail in cuts]
    return [None, None, *(head for head, _ in cuts)], [None, None, *ends]


def cropped(windows: Sequence[Window], make: Make) -> Optional[Recipe]:
    """The whole output of a transposed convolution, cut afterwards; none where cells of bias alone would be missing."""
    cuts = [padding.transposed_cuts(window.kernel_size, window.stride, window.dilation) for window in windows]
    return None if any(tail < 0 for _, tail in cuts) else Recipe(make((0,) * len(cuts)), keep=cropping(cuts))
