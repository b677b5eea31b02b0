"""The padding of keras-mxnet 2.2.4.3, for networks trained with it: as SAME, but the extra padding element goes to the
start. The tests compare it with its source, keras/backend/mxnet_backend.py of that release.
"""

from __future__ import annotations

from typing import Any, Sequence

from mxsame import validation
from mxsame.padding.same import effective_kernel_size, high_pad, same_pads
from mxsame.validation import Pair

KERAS_MXNET = "keras-mxnet"

# keras-mxnet drops a surplus last output, except along these axes; indexed by rank - 1.
KEEPS_EXTRA_OUTPUT = {"conv": [(), (), (2,)], "pool": [(0,), (0, 1), (1, 2)]}


def keras_mxnet_pads(size: int, kernel_size: int, stride: int, dilation: int) -> Pair:
    """Returns the (low, high) of keras-mxnet; see :func:`mxsame.padding.keras_mxnet_pads`.

    >>> keras_mxnet_pads(224, 3, 2, 1)
    (1, 0)
    """
    effective = effective_kernel_size(kernel_size, dilation)
    low, high = reversed(same_pads(size, effective, stride))  # the extra padding element goes to the start
    rule = "keras-mxnet cannot run a kernel and stride that leave more than one element after the last window"
    given = {"size": size, "kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    validation.check(high_pad(size, -(-size // stride), effective, stride) >= -1, rule, **given)
    return low, high


def keeps_extra_output(operator: str, rank: int, axis: int, kernel_size: int, stride: int, dilation: int) -> bool:
    """Returns whether keras-mxnet computes n + 1 outputs; see :func:`mxsame.padding.keeps_extra_output`.

    >>> keeps_extra_output("pool", 2, 0, 2, 1, 1), keeps_extra_output("conv", 2, 0, 2, 1, 1)
    (True, False)
    """
    is_even = effective_kernel_size(kernel_size, dilation) % 2 == 0
    return is_even and stride == 1 and axis in KEEPS_EXTRA_OUTPUT[operator][rank - 1]


def check_keras_mxnet(
    padding: Any, operator: str, kernel_size: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> None:
    """Raises `ValueError` if padding="keras-mxnet" is not supported with these arguments; `operator` is "conv",
    "transposed" or "pool".

    MXNet's transposed convolution with strides and dilation computes wrong values on the CPU. If keras-mxnet has n + 1
    outputs, its static shape still has n, and later layers are built for n; mxsame cannot reproduce that.

    >>> check_keras_mxnet("keras-mxnet", "pool", (2, 2), (2, 2), (1, 1))
    >>> check_keras_mxnet("keras-mxnet", "pool", (2, 2), (1, 1), (1, 1))
    Traceback (most recent call last):
    ValueError: padding="keras-mxnet" requires ceil(n/s) outputs, but keras-mxnet has one more for an even kernel ...
    """
    if padding != KERAS_MXNET:
        return
    if operator == "transposed":
        rule = (
            "keras-mxnet cannot run a transposed convolution with both strides and dilation: MXNet's values are wrong"
        )
        is_supported = max(strides) == 1 or max(dilation) == 1
        validation.check(is_supported, rule, strides=tuple(strides), dilation=tuple(dilation))
        return
    axes = enumerate(zip(kernel_size, strides, dilation))
    fits = not any(keeps_extra_output(operator, len(kernel_size), axis, *window) for axis, window in axes)
    rule = (
        'padding="keras-mxnet" requires ceil(n/s) outputs, but keras-mxnet has one more for an even kernel with stride '
        "1; use explicit pads of ke//2 at both ends for this layer"
        f"{' (for averages with count_include_pad=True)' if operator == 'pool' else ''}, and give later layers the "
        "pads that keras-mxnet uses"
    )
    validation.check(fits, rule, kernel_size=tuple(kernel_size), strides=tuple(strides))


def keras_mxnet_crop(total: int, effective: int, stride: int, output_padding: int | None) -> Pair:
    """Returns (start, end) of the `total` elements that a transposed convolution of keras-mxnet crops: half of them,
    rounded up, are at the start. Raises `ValueError` if keras-mxnet cannot run it.

    >>> keras_mxnet_crop(3, 5, 2, None)
    (2, 1)
    """
    given: Any = {"ke": effective, "stride": stride, "output_padding": output_padding}
    rule = "keras-mxnet cannot run a transposed convolution whose output is longer than (n-1)*stride + ke, nor an odd"
    validation.check(total >= 0 and total % 2 < stride, f"{rule} crop with stride 1", **given)
    return total - total // 2, total // 2
