"""The padding of keras-mxnet 2.2.4.3, for networks trained with it: as SAME, but the extra padding element goes to the
start. The tests compare it with its source, keras/backend/mxnet_backend.py of that release.
"""

from __future__ import annotations

from typing import Any, Sequence

from mxsame import validation
from mxsame.padding.same import checked_axis, effective_kernel_size, high_pad, same_pads_unchecked
from mxsame.validation import Pair

KERAS_MXNET = "keras-mxnet"

# keras-mxnet drops a surplus last output, except along these axes; indexed by rank - 1.
_KEEPS_EXTRA_OUTPUT = {"conv": [(), (), (2,)], "pool": [(0,), (0, 1), (1, 2)]}


@validation.check_arguments
def keras_mxnet_pads(size: int, kernel_size: int, stride: int = 1, dilation: int = 1) -> tuple[int, int]:
    """Return how many zeros keras-mxnet's convolutions and pooling operators add before and after `size` elements.

    P is that of :func:`same_pads`, but the extra padding element goes to the START: low = ceil(P/2), high = P - low.
    (keras-mxnet pads both ends by ceil(P/2) and drops the last output if there is one too many.
    It keeps that output along the axes for which :func:`keeps_extra_output` is true.)

    Raises `ValueError` if two or more elements remain after the last window: keras-mxnet then passes MXNet a
    negative pad. Otherwise raises what `same_pads` raises.

    >>> keras_mxnet_pads(28, 3), keras_mxnet_pads(224, 3, stride=2), keras_mxnet_pads(28, 4)
    ((1, 1), (1, 0), (2, 1))
    """
    size, effective, stride = checked_axis(size, kernel_size, stride, dilation)
    low, high = reversed(same_pads_unchecked(size, effective, stride))  # the extra padding element goes to the start
    rule = "keras-mxnet cannot run a kernel and stride that leave more than one element after the last window"
    given = {"size": size, "kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    validation.check(high_pad(size, -(-size // stride), effective, stride) >= -1, rule, **given)
    return low, high


@validation.check_arguments
def keeps_extra_output(
    operator: str, rank: int, axis: int, kernel_size: int, stride: int = 1, dilation: int = 1
) -> bool:
    """Return whether keras-mxnet computes n + 1 outputs along this axis of a convolution ("conv") or a pooling operator
    ("pool").

    It pads both ends by ceil(P/2), which gives one output too many for an even ke and stride 1. Convolutions drop it,
    except along the third axis in 3-D; pooling drops it only along the first axis in 3-D. Keras's static shape has n
    outputs in either case.

    >>> keeps_extra_output("pool", 2, axis=0, kernel_size=2), keeps_extra_output("conv", 2, axis=0, kernel_size=2)
    (True, False)
    """
    axes = _KEEPS_EXTRA_OUTPUT[validation.one_of("operator", operator, tuple(_KEEPS_EXTRA_OUTPUT))]
    rank = validation.integer("rank", rank, 1, 3)
    axis, stride = validation.integer("axis", axis, 0, rank - 1), validation.integer("stride", stride, 1)
    is_even = effective_kernel_size(kernel_size, dilation) % 2 == 0
    return is_even and stride == 1 and axis in axes[rank - 1]


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
