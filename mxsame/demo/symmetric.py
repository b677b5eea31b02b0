"""Symmetric padding with the output size of SAME: wrong, as the demo shows, and the baseline of benchmarks."""

from __future__ import annotations

from typing import Tuple

from mxsame import padding


def pad(size: int, kernel_size: int, stride: int = 1, dilation: int = 1) -> int:
    """The smallest pad of both ends with SAME's output size; ke//2 if none has it: even ke with stride 1.

    >>> pad(224, 7, 2), pad(56, 2)
    (3, 1)
    """
    reach = padding.effective_kernel_size(kernel_size, dilation)
    outputs = padding.output_size(size, kernel_size, stride, dilation)
    return next((pad for pad in range(reach) if (size + 2 * pad - reach) // stride + 1 == outputs), reach // 2)


def cut(kernel_size: int, stride: int = 1, dilation: int = 1) -> Tuple[int, int]:
    """(pad, adj) with which MXNet's transposed convolution gives n*s outputs.

    >>> cut(3, 2), cut(2, 2), cut(1, 3)
    ((1, 1), (0, 0), (0, 2))
    """
    over = padding.effective_kernel_size(kernel_size, dilation) - stride
    pad = max(-(-over // 2), 0)
    return pad, 2 * pad - over
