"""SAME padding along one axis, on plain ints: the effective kernel size, the pads, and the windows that they leave.

The rule is TensorFlow's (https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2).
"""

from __future__ import annotations

import functools

from mxsame import validation


@validation.check_arguments
def effective_kernel_size(kernel_size: int, dilation: int = 1) -> int:
    """Return ke = (k-1)d + 1, the extent of the dilated kernel.

    >>> effective_kernel_size(3, 2)
    5
    """
    kernel_size = validation.integer("kernel_size", kernel_size, 1)
    return effective_kernel_size_unchecked(kernel_size, validation.integer("dilation", dilation, 1))


def effective_kernel_size_unchecked(kernel_size: int, dilation: int) -> int:
    """Returns ke without checking the arguments. All `*_unchecked` functions here expect checked arguments.

    >>> effective_kernel_size_unchecked(3, 2)
    5
    """
    effective, maximum = (kernel_size - 1) * dilation + 1, validation.MAX_STEP
    if effective > maximum:
        rule = f"the effective kernel size ke = (k-1)d + 1 must be <= {maximum}"
        raise validation.InvalidValue(f"{rule}; {validation.received(ke=effective)}")
    return effective


@validation.check_arguments
def same_pads(size: int, kernel_size: int, stride: int = 1, dilation: int = 1) -> tuple[int, int]:
    """Return how many zeros Keras's SAME adds before and after `size` elements, as (low, high).

    out = ceil(n/s), P = max((out-1)s + ke - n, 0), low = P//2, high = P - low: the extra padding element goes to the
    END. With a stride above 1, low and high depend on n modulo s; symmetric padding ignores that.

    Raises `TypeError` for arguments that are not integers and `ValueError` for integers below 1.

    >>> same_pads(28, 3)
    (1, 1)
    >>> same_pads(224, 3, stride=2), same_pads(225, 3, stride=2)
    ((0, 1), (1, 1))
    """
    return same_pads_unchecked(*checked_axis(size, kernel_size, stride, dilation))


@functools.lru_cache(maxsize=4096)
def same_pads_unchecked(size: int, effective: int, stride: int) -> tuple[int, int]:
    """Returns :func:`same_pads` for checked arguments, with the effective kernel size instead of kernel size and
    dilation.

    >>> same_pads_unchecked(224, 3, 2)
    (0, 1)
    """
    total = max(high_pad(size, -(-size // stride), effective, stride), 0)
    return total // 2, total - total // 2


def checked_axis(size: int, kernel_size: int, stride: int, dilation: int) -> tuple[int, int, int]:
    """Returns the checked (n, ke, s) of an axis."""
    stride = validation.integer("stride", stride, 1, validation.MAX_STEP)
    return validation.integer("size", size, 1), effective_kernel_size(kernel_size, dilation), stride


def high_pad(size: int, outputs: int, effective: int, stride: int, low: int = 0) -> int:
    """Returns how much padding this many windows need after the data: (out-1)s + ke - n - low. Negative if the
    last window ends before the data does.

    >>> high_pad(8, 4, 3, 2), high_pad(8, 3, 2, 3, low=1)
    (1, -1)
    """
    return span(outputs, effective, stride) - size - low


def span(windows: int, effective: int, stride: int) -> int:
    """Returns the number of elements that m successive `windows` cover, (m-1)s + ke. It is also the full extent of a
    transposed convolution of m elements.

    >>> span(4, 3, 2)
    9
    """
    return (windows - 1) * stride + effective


def count_windows(length: int, effective: int, stride: int) -> int:
    """Returns how many windows fit into padded data, floor((length - ke)/s) + 1: `span` solved for m.

    >>> count_windows(9, 3, 2)
    4
    """
    return (length - effective) // stride + 1
