"""The arithmetic of SAME padding along one axis, on plain ints: the number of padding elements and of outputs.

Symbols, here and everywhere: n input size, k kernel size, s stride, d dilation, ke = (k-1)d + 1 the effective kernel
size. The rule is TensorFlow's (https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2), checked against
TensorFlow 2.13.1 in the tests. Everything else in mxsame calls these functions; each formula is written once.

A second rule, "keras-mxnet", is for networks trained with keras-mxnet 2.2.4.3: the extra padding
element goes to the start.
"""

from __future__ import annotations

from typing import Any, Sequence

from mxsame import validation
from mxsame.padding import keras_mxnet, same
from mxsame.padding.keras_mxnet import KERAS_MXNET, keras_mxnet_crop
from mxsame.padding.same import count_windows, span
from mxsame.types import AxisPadding

__all__ = [
    "causal_pads",
    "effective_kernel_size",
    "keeps_extra_output",
    "keras_mxnet_pads",
    "output_size",
    "resolve_pads",
    "same_pads",
    "transposed_crops",
    "transposed_crops_for_length",
    "transposed_output_size",
]
__dir__ = __all__.copy


def pads_depend_on_size(padding: Any) -> bool:
    """Returns whether `padding` is a rule that computes the pads from the input size, so that out = ceil(n/s).

    >>> pads_depend_on_size("SAME"), pads_depend_on_size("valid"), pads_depend_on_size((0, 1))
    (True, False, False)
    """
    return isinstance(padding, str) and padding.lower() in ("same", KERAS_MXNET)


@validation.check_arguments
def effective_kernel_size(kernel_size: int, dilation: int = 1) -> int:
    """Return ke = (k-1)d + 1, the extent of the dilated kernel.

    >>> effective_kernel_size(3, 2)
    5
    """
    kernel_size = validation.integer("kernel_size", kernel_size, 1)
    return same.effective_kernel_size(kernel_size, validation.integer("dilation", dilation, 1))


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
    return same.same_pads(*_checked_axis(size, kernel_size, stride, dilation))


def _checked_axis(size: int, kernel_size: int, stride: int, dilation: int) -> tuple[int, int, int]:
    """Returns the checked (n, ke, s) of an axis."""
    stride = validation.integer("stride", stride, 1, validation.MAX_STEP)
    return validation.integer("size", size, 1), effective_kernel_size(kernel_size, dilation), stride


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
    size, _, stride = _checked_axis(size, kernel_size, stride, dilation)
    return keras_mxnet.keras_mxnet_pads(size, int(kernel_size), stride, int(dilation))


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
    operator = validation.one_of("operator", operator, tuple(keras_mxnet.KEEPS_EXTRA_OUTPUT))
    rank = validation.integer("rank", rank, 1, 3)
    axis, stride = validation.integer("axis", axis, 0, rank - 1), validation.integer("stride", stride, 1)
    effective = effective_kernel_size(kernel_size, dilation)
    return keras_mxnet.keeps_extra_output(operator, rank, axis, effective, stride, 1)


@validation.check_arguments
def causal_pads(kernel_size: int, dilation: int = 1) -> tuple[int, int]:
    """Return the pads of a causal convolution, (ke - 1, 0): no output depends on a later input.

    >>> causal_pads(3, 2)
    (4, 0)
    """
    return effective_kernel_size(kernel_size, dilation) - 1, 0


@validation.check_arguments
def resolve_pads(
    size: int, kernel_size: int, stride: int = 1, dilation: int = 1, padding: AxisPadding = "same"
) -> tuple[int, int]:
    """Return (low, high) for any `padding`: "same", "valid", "causal", "keras-mxnet", an int, or a (low, high) pair.

    >>> resolve_pads(7, 2, stride=2), resolve_pads(7, 2, padding="valid"), resolve_pads(7, 2, padding=1)
    ((0, 1), (0, 0), (1, 1))
    """
    size, effective, stride = _checked_axis(size, kernel_size, stride, dilation)
    if not isinstance(padding, str):
        return validation.pads_of_axis("padding", padding)
    mode = validation.one_of("padding", padding, ("same", "valid", "causal", KERAS_MXNET), validation.OR_NUMBERS)
    if mode == "same":
        return same.same_pads(size, effective, stride)
    if mode == KERAS_MXNET:
        return keras_mxnet_pads(size, kernel_size, stride, dilation)
    return (effective - 1, 0) if mode == "causal" else (0, 0)


@validation.check_arguments
def output_size(size: int, kernel_size: int, stride: int = 1, dilation: int = 1, padding: AxisPadding = "same") -> int:
    """Return the number of outputs of a convolution or pooling along one axis, floor((n + low + high - ke)/s) + 1.

    `padding` is "same", "valid", "causal", "keras-mxnet", an int, or a (low, high) pair. For "same" and "keras-mxnet"
    this is ceil(n/s).

    Raises `ValueError` if the padded input is shorter than the kernel, and for arguments below their minimum.

    >>> output_size(15, 2, stride=2), output_size(15, 2, stride=2, padding="valid")
    (8, 7)
    """
    size, effective, stride = _checked_axis(size, kernel_size, stride, dilation)
    padded = size + sum(resolve_pads(size, kernel_size, stride, dilation, padding))
    check_padded_length(padded, effective, size=size, padding=padding)
    return count_windows(padded, effective, stride)


def check_padded_length(padded: int, effective: int, **given: Any) -> None:
    """Raises `ValueError` if the padded input is shorter than the kernel, or too long for MXNet; `given` is named."""
    rule, maximum = "the padded input must be at least as long as the kernel, ke = (k-1)d + 1", validation.MAX_LENGTH
    validation.check(padded <= maximum, f"the padded input must be at most {maximum} long", **given)
    validation.check(padded >= effective, f'{rule}; padding="same" accepts any size', **given, ke=effective)


@validation.check_arguments
def transposed_crops(
    kernel_size: int,
    stride: int = 1,
    dilation: int = 1,
    padding: AxisPadding = "same",
    output_padding: int | None = None,
) -> tuple[int, int]:
    """Return how many elements a transposed convolution crops from its full output of length F = (n-1)s + ke, as
    (start, end).

    A negative end appends that many elements, which hold only the bias. The input size does not matter. SAME is the
    gradient of the forward SAME convolution: F - out elements are cropped, half of them (rounded down) from the start.
    With `output_padding` SAME gives out = (n-1)s + ke - 2(ke//2) + output_padding, like Keras's `deconv_output_length`.
    An explicit pair (low, high) crops (low, high - output_padding). "keras-mxnet" crops as many elements as SAME, half
    of them (rounded up) from the start; with `output_padding` it crops as many as Keras does, even kernels included.

    Raises `ValueError` if output_padding is not below the stride, if the forward convolution of the output would not
    have the input's size, or if keras-mxnet cannot run it.

    >>> transposed_crops(3, 2), transposed_crops(3, 2, output_padding=0), transposed_crops(3, 2, output_padding=1)
    ((0, 1), (1, 1), (0, 1))
    >>> transposed_crops(2, 3), transposed_crops(5, 2, padding=(2, 1))
    ((0, -1), (2, 1))
    """
    effective = effective_kernel_size(kernel_size, dilation)
    stride = validation.integer("stride", stride, 1, validation.MAX_STEP)
    if output_padding is not None:
        output_padding = validation.integer("output_padding", output_padding, 0)
        rule = "output_padding must be less than the stride"
        validation.check(output_padding < stride, rule, output_padding=output_padding, stride=stride)
    if not isinstance(padding, str):
        start, end = validation.pads_of_axis("padding", padding)
        return start, end - (output_padding or 0)
    mode = validation.one_of("padding", padding, validation.PADDING_NAMES, validation.OR_NUMBERS)
    total = _total_crop(effective, stride, mode, output_padding)
    if mode == KERAS_MXNET:
        return keras_mxnet_crop(total, effective, stride, output_padding)
    if mode == "valid":
        return 0, total
    rule = "output_padding must leave an output whose forward SAME convolution has the input size: at least 1 if the"
    given: Any = {"output_padding": output_padding, "effective_kernel_size": effective, "stride": stride}
    fits = output_padding is None or 0 < effective - total <= stride
    validation.check(fits, f"{rule} effective kernel size is even", **given)
    start = max(total, 0) // 2
    return start, total - start


def _total_crop(effective: int, stride: int, mode: str, output_padding: int | None) -> int:
    """Returns the total number of elements cropped from (n-1)s + ke; if it is negative, elements are appended."""
    if mode == "valid":
        return -max(stride - effective, 0) if output_padding is None else -output_padding
    return effective - stride if output_padding is None else 2 * (effective // 2) - output_padding


def keras_transposed_size(
    size: int, kernel_size: int, stride: int, dilation: int, padding: str, output_padding: int | None = None
) -> int:
    """Returns the output length in Keras's static shape for "same" and "valid", even if Keras cannot run the layer.

    >>> keras_transposed_size(4, 3, 2, 1, "same"), keras_transposed_size(4, 4, 2, 1, "same", 0)
    (8, 6)
    """
    effective = effective_kernel_size(kernel_size, dilation)
    mode = validation.one_of("padding", padding, ("same", "valid"))
    return span(size, effective, stride) - _total_crop(effective, stride, mode, output_padding)


@validation.check_arguments
def transposed_crops_for_length(
    length: int, kernel_size: int, stride: int = 1, dilation: int = 1, padding: AxisPadding = "same"
) -> tuple[int, tuple[int, int]]:
    """Return (size, (start, end)), the input size of a transposed convolution with `length` outputs, and what it crops.

    It is the gradient of the convolution from `length` elements to `size`, so the pads of that convolution are cropped,
    minus the elements after its last window; for a negative end see :func:`transposed_crops`.

    Raises `ValueError` if that convolution has no output.

    >>> transposed_crops_for_length(14, 3, stride=2), transposed_crops_for_length(13, 3, stride=2)
    ((7, (0, 1)), (7, (1, 1)))
    >>> transposed_crops_for_length(16, 3, stride=2, padding="valid")
    (7, (0, -1))
    """
    length = validation.integer("length", length, 1)
    size = output_size(length, kernel_size, stride, dilation, padding)
    start, end = resolve_pads(length, kernel_size, stride, dilation, padding)
    covered = transposed_output_size(size, kernel_size, stride, dilation, (start, end))
    return size, (start, end - (length - covered))


def split_crops(crops: Sequence[tuple[int, int]]) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Returns crops (start, end) of each axis as explicit pads and output padding; a negative end is output padding.

    >>> split_crops([(0, 1), (0, -1)])
    (((0, 1), (0, 0)), (0, 1))
    """
    return tuple((start, max(end, 0)) for start, end in crops), tuple(max(-end, 0) for _, end in crops)


@validation.check_arguments
def transposed_output_size(
    size: int,
    kernel_size: int,
    stride: int = 1,
    dilation: int = 1,
    padding: AxisPadding = "same",
    output_padding: int | None = None,
) -> int:
    """Return the number of outputs of a transposed convolution along one axis, (n-1)s + ke - start - end.

    >>> transposed_output_size(4, 3, 2), transposed_output_size(4, 3, 2, padding="valid")
    (8, 9)
    """
    size = validation.integer("size", size, 1)
    crop = transposed_crops(kernel_size, stride, dilation, padding, output_padding)
    output = span(size, effective_kernel_size(kernel_size, dilation), stride) - sum(crop)
    window = {"size": size, "kernel_size": kernel_size, "stride": stride}
    check_transposed_length(output, **window, padding=padding, output_padding=output_padding)
    return output


def check_transposed_length(output: int, **given: Any) -> None:
    """Raises `ValueError`, naming the arguments in `given`, if a transposed convolution has no outputs, or more than
    MXNet can index."""
    rule, maximum = "padding must not crop the whole output of a transposed convolution", validation.MAX_LENGTH
    validation.check(output >= 1, rule, **given)
    rule = f"the output of a transposed convolution must be at most {maximum} long"
    validation.check(output <= maximum, rule, **given)
