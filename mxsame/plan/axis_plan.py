"""`AxisPlan`: the steps around MXNet's operator along one axis, as numbers. `mxsame.plan.recipe` runs them.

Each axis has its own numbers, because strategies draft plans for one axis at a time, and :mod:`mxsame.plan.simulation`
proves them one at a time. The steps that run handle all axes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional, Tuple

from mxsame.plan.windows import AnyWindow


class OneHotKernel(NamedTuple):
    """A one-hot kernel that shifts an array along an axis. Its 1 is at index max_pad - low, where low is SAME's low pad
    for the size, and `min_low` the smallest low. First, `pad` zeros are added to both ends of the array.

    >>> OneHotKernel(min_low=0, max_pad=2, pad=2).length  # [0, 0, 1] for low 0, [0, 1, 0] for low 1
    3
    """

    min_low: int
    max_pad: int
    pad: int

    @property
    def length(self) -> int:
        """The length of the kernel."""
        return self.max_pad - self.min_low + 1

    @property
    def growth(self) -> int:
        """The change in the array's length."""
        return 2 * self.pad - (self.length - 1)


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
        The number of elements of the operator's kernel, including `kernel_zeros`.
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
        The data is shifted by a convolution with a one-hot kernel, so that every size has the same low pad, `min_low`.
        `max_pad` is the pad that the last window of any size needs.
    pick
        The operator runs with stride 1, and the outputs at max_pad - low - pad, and every s-th one after it, are kept,
        by a convolution with a one-hot kernel.
    dilate
        The stride s, if s - 1 zeros are inserted between the elements of the data, and the operator is a convolution
        with the flipped kernel (transposed convolutions only); 0 if the data is not dilated.
    kernel_zeros
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
    >>> kernel = OneHotKernel(min_low=0, max_pad=2, pad=2)  # SAME, windows of 3 with stride 2
    >>> [int(index == kernel.max_pad - 0) for index in range(kernel.length)]  # for even sizes, whose low is 0
    [0, 0, 1]
    >>> [int(index == kernel.max_pad - 1) for index in range(kernel.length)]  # for odd sizes, whose low is 1
    [0, 1, 0]
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
    kernel_zeros: Tuple[int, int] = (0, 0)
    pad: int = 0
    adj: int = 0
    crop: Tuple[int, Optional[int]] = (0, 0)

    def operator_stride(self, window: AnyWindow) -> int:
        """Returns the operator's own stride."""
        return 1 if self.dilate or self.pick else window.stride

    def computed_outputs(self, size: int, outputs: int) -> int:
        """Returns how many outputs the operator computes for data of this size, before any are cropped or picked."""
        return size if self.pick else outputs + self.crop[0] + (self.crop[1] or 0)
