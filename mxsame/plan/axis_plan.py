"""`AxisPlan`: the steps around MXNet's operator along one axis, as numbers. `mxsame.plan.recipe` runs them.

Each axis has its own numbers, because strategies draft plans for one axis at a time, and :mod:`mxsame.plan.simulation`
proves them one at a time. The steps that run handle all axes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional, Tuple

from mxsame.plan.windows import AnyWindow


class OneHotKernel(NamedTuple):
    """A one-hot kernel that shifts an array along an axis. Its 1 is at index reach - low, where low is SAME's low pad
    for the size, and `least` the smallest low. First, `zeros` zeros are added to both ends of the array.

    >>> OneHotKernel(least=0, reach=2, zeros=2).length  # [0, 0, 1] for low 0, [0, 1, 0] for low 1
    3
    """

    least: int
    reach: int
    zeros: int

    @property
    def length(self) -> int:
        """The length of the kernel."""
        return self.reach - self.least + 1

    @property
    def growth(self) -> int:
        """The change in the array's length."""
        return 2 * self.zeros - (self.length - 1)


class AddedElements(NamedTuple):
    """Elements concatenated to the data: low + `extra` before it, where low is SAME's low pad for the size, and `after`
    after it."""

    extra: int
    after: int


@dataclass(frozen=True)
class AxisPlan:
    """The way in which MXNet runs a window along one axis. All counts are elements of data, kernel or output.

    Parameters
    ----------
    kernel_size
        The number of elements of the operator's kernel, including `zeros`.
    flip
        The data, the kernel and the output are reversed; what follows is in flipped coordinates.
    concat
        (low, high) elements concatenated to the data.
    dynamic_concat
        Elements are concatenated to the data; the number before it depends on its size.
    pad_operator
        (low, high) elements added by MXNet's pad operator.
    gather
        The padded data is gathered from the data, with pads computed in the graph.
    shift
        The data is shifted within its padding, so that low is `least` for every size; `reach` is the pad that the last
        window of any size needs. For windows of 3 with stride 2, low is 0 for even sizes and 1 for odd ones. There, a
        kernel with least 0, reach 2 and zeros 2 is [0, 0, 1] for an even size, [0, 1, 0] for an odd one, and leaves low
        zeros before the data: the windows of every size start at the first element.
    pick
        The operator runs with stride 1, and the outputs at reach - low, reach - low + s, ... are kept. For the same
        windows and `pad` 1, a kernel with least 0, reach 2 and zeros 1 picks the outputs 1, 3, .. for an even size, and
        0, 2, .. for an odd one.
    dilate
        The stride s, if s - 1 zeros are inserted between the elements of the data, and the operator is a convolution
        with the flipped kernel (transposed convolutions only); 0 if the data is not dilated.
    zeros
        (front, back) zeros concatenated to the kernel.
    pad
        The operator's own pad, the same at both ends.
    adj
        The operator's own output padding (transposed convolutions only).
    crop
        (start, end) elements dropped from the output. If end is None, ceil(n/s) elements are kept.

    Examples
    --------
    >>> AxisPlan(kernel_size=3, pad=2, crop=(1, 0))  # pads (0, 1) with stride 2: pad by 2, drop the first output
    AxisPlan(kernel_size=3, flip=False, ..., pad=2, adj=0, crop=(1, 0))
    """

    kernel_size: int
    flip: bool = False
    concat: Tuple[int, int] = (0, 0)
    dynamic_concat: Optional[AddedElements] = None
    pad_operator: Tuple[int, int] = (0, 0)
    gather: bool = False
    shift: Optional[OneHotKernel] = None
    pick: Optional[OneHotKernel] = None
    dilate: int = 0
    zeros: Tuple[int, int] = (0, 0)
    pad: int = 0
    adj: int = 0
    crop: Tuple[int, Optional[int]] = (0, 0)

    def strides(self, window: AnyWindow) -> int:
        """Returns the operator's own stride."""
        return 1 if self.dilate or self.pick else window.stride

    def computed_outputs(self, size: int, outputs: int) -> int:
        """Returns how many outputs the operator computes for data of this size, before any are cropped or picked."""
        return size if self.pick else outputs + self.crop[0] + (self.crop[1] or 0)
