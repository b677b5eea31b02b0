"""SAME padding along one axis, on plain ints: the effective kernel size, the pads, and the windows that they leave.

The rule is TensorFlow's (https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2). The functions of
:mod:`mxsame.padding` check their arguments, and then call these.
"""

from __future__ import annotations

import functools

from mxsame import validation


def effective_kernel_size(kernel_size: int, dilation: int) -> int:
    """Returns ke = (k-1)d + 1. Raises `ValueError` if it exceeds `validation.MAX_STEP`.

    >>> effective_kernel_size(3, 2)
    5
    """
    effective, maximum = (kernel_size - 1) * dilation + 1, validation.MAX_STEP
    if effective > maximum:
        rule = f"the effective kernel size ke = (k-1)d + 1 must be <= {maximum}"
        raise validation.InvalidValue(f"{rule}; {validation.received(ke=effective)}")
    return effective


@functools.lru_cache(maxsize=4096)
def same_pads(size: int, effective: int, stride: int) -> tuple[int, int]:
    """Returns SAME's pads, (low, high).

    >>> same_pads(224, 3, 2)
    (0, 1)
    """
    total = max(high_pad(size, -(-size // stride), effective, stride), 0)
    return total // 2, total - total // 2


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
