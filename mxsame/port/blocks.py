"""Functions of arrays for which Gluon and `mxsame.nn` have no block, and `Function`, the block of such a function.

Their axes are those of the array, not Keras's.
"""

from __future__ import annotations

import itertools
import math
import operator
from functools import partial, reduce, wraps
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import numpy as np

from mxsame import _gluon, onednn_blocks, tensors
from mxsame._mxnet import mx
from mxsame.plan.arrays import copy_to_plain
from mxsame.scope import deferred_in_trace, target_of
from mxsame.validation import InvalidValue, check, received

MASKED = -1e9  # what Keras adds to the scores of masked positions
NAMED = SimpleNamespace()  # where pickle finds lambdas, and what functions return


def let_pickle_find(functions: Dict[str, Callable]) -> None:
    """Gives functions without a name in their module the names that they have in a table."""
    for name, function in functions.items():
        if "<" in function.__qualname__:
            function.__name__, function.__qualname__, function.__module__ = name, f"NAMED.{name}", __name__
            setattr(NAMED, name, function)


# -- functions f(F, *arrays, **arguments)


def pad(F: Any, x: Any, pads: Sequence[Sequence[int]], value: float = 0.0) -> Any:
    """Pads with a constant. MXNet's operator pads the spatial axes of arrays with 4 or 5 axes only."""
    ndim = len(pads)
    if any(map(any, pads[:2])) or ndim not in (3, 4, 5):
        for axis, (low, high) in enumerate(pads):
            if low or high:
                edge = F.zeros_like(F.slice_axis(x, axis=axis, begin=0, end=1)) + value
                before, after = ([F.repeat(edge, repeats=n, axis=axis)] if n else [] for n in (low, high))
                x = concatenate(F, *before, x, *after, axis=axis, copies=low < 2)
        return x
    widths = tuple(count for pair in pads for count in pair)
    if ndim > 3:
        return F.pad(x, mode="constant", pad_width=widths, constant_value=value)
    x = F.pad(F.expand_dims(x, axis=-1), mode="constant", pad_width=(*widths, 0, 0), constant_value=value)
    return F.squeeze(x, axis=-1)


def pad_reflect(F: Any, x: Any, pads: Sequence[Sequence[int]], skipped: int) -> Any:
    """Pads with the reversed elements of each end, except the first `skipped`: 1 for "reflect", 0 for "symmetric"."""
    for axis, (low, high) in enumerate(pads):
        parts = [x]
        if low:
            start = F.slice_axis(x, axis=axis, begin=skipped, end=skipped + low)
            parts.insert(0, F.reverse(start, axis=axis))
        if high:
            end = F.slice_axis(x, axis=axis, begin=-skipped - high, end=-skipped or None)
            parts.append(F.reverse(end, axis=axis))
        x = concatenate(F, *parts, axis=axis, copies=low == 1) if len(parts) > 1 else x
    return x


def argmax_or_argmin(F: Any, x: Any, kind: str, signed_zeros: bool, **along: Any) -> Any:
    """Returns the position of the largest or smallest element, by `kind`, as TensorFlow does: NaN is neither. With
    `signed_zeros`, -0.0 is less than 0.0, as in Keras 3."""
    if signed_zeros:
        is_negative = (x == 0) * (1 / x < 0)
        x = F.where(is_negative, F.zeros_like(x) - float(np.finfo("float32").tiny), x)
    x = F.where(x == x, x, F.zeros_like(x) + (-math.inf if kind == "argmax" else math.inf))
    return getattr(F, kind)(x, **along)


def top_k(F: Any, x: Any, ret_typ: str, count: int) -> Any:
    """Returns the largest elements of the last axis, or their positions ("indices"). MXNet keeps the order of equal
    elements only if it sorts all."""
    return F.slice_axis(F.topk(x, k=0, ret_typ=ret_typ), axis=-1, begin=0, end=count)


def variance(F: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    deviations = F.broadcast_sub(x, F.mean(x, axis=axis, keepdims=True))
    return F.mean(deviations * deviations, axis=axis, keepdims=keepdims)


def softmax_over(F: Any, x: Any, axes: Sequence[int]) -> Any:
    """Returns the softmax over all elements along several axes."""
    return F.exp(F.broadcast_sub(x, log_sum_exp(F, x, axis=tuple(axes), keepdims=True)))


def log_sum_exp(F: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """Returns log(sum(e^x)) without overflow: the largest element is subtracted first, unless it is infinite."""
    most = F.BlockGrad(F.max(x, axis=axis, keepdims=True))
    most = F.where(F.abs(most) == math.inf, F.zeros_like(most), most)
    sums = F.sum(F.exp(F.broadcast_sub(x, most)), axis=axis, keepdims=keepdims)
    return F.log(sums) + (most if keepdims else F.reshape_like(most, sums))


def round_half_even(F: Any, x: Any) -> Any:
    """Rounds to the nearest integer, and halves to the even one, which MXNet's `rint` rounds down."""
    below = F.rint(x)
    return F.where((x - below == 0.5) * (F.abs(below) % 2 == 1), below + 1, below)


def indices_from_end(F: Any, x: Any, length: int, truncates: bool) -> Any:
    """Adds the length to negative indices, which may be floats to be truncated."""
    x = F.trunc(x) if truncates else x
    return x + (x < 0) * length


def roll(F: Any, x: Any, axis: int, shift: int) -> Any:
    """Moves the last `shift` elements of an axis to its start."""
    parts = (F.slice_axis(x, axis=axis, begin=-shift, end=None), F.slice_axis(x, axis=axis, begin=0, end=-shift))
    return concatenate(F, *parts, axis=axis, copies=shift == 1)


def sign(F: Any, x: Any) -> Any:
    """Returns the sign of each element. That of NaN is NaN, where MXNet's operator returns 0."""
    return F.where(x == x, F.sign(x), x)


def cumsum(F: Any, x: Any, axis: int, exclusive: bool, backwards: bool) -> Any:
    """Returns the cumulative sum; without the element itself if `exclusive`, from the end if `backwards`."""
    x = F.reverse(x, axis=axis) if backwards else x
    if exclusive:
        zero = F.zeros_like(F.slice_axis(x, axis=axis, begin=0, end=1))
        x = F.slice_axis(concatenate(F, zero, x, axis=axis, copies=True), axis=axis, begin=0, end=-1)
    sums = F.cumsum(x, axis=axis)
    return F.reverse(sums, axis=axis) if backwards else sums


def where(F: Any, condition: Any, *arrays: Any, numbers: Sequence[Optional[float]]) -> Any:
    """Returns the first operand where the condition is not 0, elsewhere the second. An operand is an array, or its
    entry of `numbers`."""
    rest, zeros = iter(arrays), F.zeros_like((*arrays, condition)[0])  # zeros have the dtype of the arrays
    return F.where(condition, *(next(rest) if n is None else zeros + n for n in numbers))


def elementwise_with_constant(F: Any, x: Any, array: Any, operator: str, reflected: bool) -> Any:
    return ELEMENTWISE[operator](F, *((array, x) if reflected else (x, array)), same=False)


def upsample_bilinear(F: Any, x: Any, factors: Sequence[int]) -> Any:
    return F.contrib.BilinearResize2D(x, scale_height=factors[0], scale_width=factors[1], align_corners=False)


def upsample(F: Any, x: Any, factors: Sequence[int]) -> Any:
    """Repeats each element along the spatial axes."""
    if len(factors) == 2 and factors[0] == factors[1]:
        return F.UpSampling(x, scale=factors[0], sample_type="nearest")
    for axis, factor in enumerate(factors, 2):
        x = F.repeat(x, repeats=factor, axis=axis) if factor > 1 else x
    return x


def resize_bilinear(F: Any, x: Any, size: Sequence[int]) -> Any:
    """Resizes images. MXNet reads the first element for a length of 1, TensorFlow the centre: the middle one of 3."""
    height, width = (3 if length == 1 else length for length in size)
    x = F.contrib.BilinearResize2D(x, height=height, width=width, align_corners=False)
    for axis, length in enumerate(size, 2):
        x = F.slice_axis(x, axis=axis, begin=1, end=2) if length == 1 else x
    return x


def global_pool(F: Any, x: Any, kind: str, count: int) -> Any:
    """Returns the maximum or mean over the last axes. oneDNN's maximum stores nothing for a backward pass after
    inference."""
    if kind == "max" and target_of(x).infers_with_gradients:
        return F.max(x, axis=tuple(range(2, 2 + count)), keepdims=True)
    return F.Pooling(x, global_pool=True, pool_type=kind, kernel=(1,) * count)


def concatenate(F: Any, *arrays: Any, axis: int, copies: bool = False) -> Any:
    """Concatenates along an axis. `copies` copies the output, which oneDNN's softmax needs after a first part of length
    1. Gradients that end within a block of 16 channels need it, too; in graphs
    `mxsame.rewriting.training.copy_blocked_gradients` adds that copy."""
    out = F.concat(*arrays, dim=axis)
    if axis == 1 and F is mx.nd and mx.autograd.is_recording():
        copies |= any(each.shape[1] % onednn_blocks.MAX_BLOCK for each in arrays)
    return copy_to_plain(F, out) if copies else out


def take_slice(F: Any, x: Any, begin: Sequence, end: Sequence, step: Sequence) -> Any:
    """Slices all axes. Channels that divide one of oneDNN's blocks are sliced from a copy, which graphs get by
    `mxsame.rewriting.onednn.copy_before_slices`."""
    is_divided = F is mx.nd and onednn_blocks.slice_divides_blocks(begin[1], end[1])
    return F.slice(copy_to_plain(F, x) if is_divided else x, begin=begin, end=end, step=step)


@deferred_in_trace
def squeeze_all(F: Any, x: Any, axis: Sequence[int]) -> Any:
    """Removes axes of length 1. Keras removes a batch of 1, too: it is refused, and removed in a graph for any
    batch."""
    shape = tensors.known_shape(x)
    if shape is None or shape[0] is None:
        return F.squeeze(x)
    rule = "data must have a batch of 2 or more: Keras's squeeze removes a batch of 1, too, unless it has an axis"
    check(shape[0] != 1, rule, **{"data.shape": shape})
    return F.squeeze(x, axis=axis) if axis else F.identity(x)


def crop_like(F: Any, x: Any, like: Any, axis: int) -> Any:
    """Crops the end of an axis to the length of another array, or keeps all if that is longer: MXNet's operator, which
    graphs have, refuses it then."""
    if F is mx.nd:
        return F.slice_axis(x, axis=axis, begin=0, end=min(each.shape[axis] for each in (x, like)))
    return F.slice_like(x, like, axes=(axis,))


def move_single_channel(F: Any, x: Any, source: int, target: int) -> Any:
    return F.expand_dims(F.squeeze(x, axis=source), axis=target)


def expand_dims(F: Any, x: Any, axes: Sequence[int]) -> Any:
    for axis in axes:
        x = F.expand_dims(x, axis=axis)
    return x


def tile(F: Any, x: Any, counts: Sequence[int]) -> Any:
    """Repeats the array along each axis. MXNet's own operator accepts three axes at most."""
    for axis, count in enumerate(counts):
        x = concatenate(F, *[x] * count, axis=axis, copies=True) if count > 1 else x
    return x


def resize_nearest(F: Any, x: Any, rows: Any, columns: Any) -> Any:
    """Takes rows and columns by index."""
    return F.take(F.take(x, rows, axis=2, mode="clip"), columns, axis=3, mode="clip")


def resize_like(F: Any, x: Any, *others: Any, axes: Sequence[int], nearest: bool) -> Any:
    """Resizes to the lengths of other arrays along these axes, which may be dynamic. Positions are TensorFlow's, in
    float32; the bilinear weights are 1 - |position - element|."""
    for like, axis in zip(others, reversed(axes)):
        like, old = F.BlockGrad(like), F.contrib.arange_like(F.BlockGrad(x), axis=3)
        pairs = ((like, axis), (x, 3))
        lengths = (F.slice_axis(F.shape_array(each), axis=0, begin=at, end=at + 1) for each, at in pairs)
        size, length = (F.cast(each, dtype="float32") for each in lengths)
        scale = F.broadcast_div(length, size)
        positions = F.broadcast_mul(F.contrib.arange_like(like, axis=axis) + 0.5, scale)
        if nearest:
            x = F.take(x, F.floor(positions), axis=3, mode="clip")
        else:
            positions = F.broadcast_minimum(F.relu(positions - 0.5), length - 1)
            away = F.broadcast_sub(F.expand_dims(old, axis=1), F.expand_dims(positions, axis=0))
            x = F.dot(x, F.relu(1 - F.abs(away)))
        x = F.swapaxes(x, dim1=2, dim2=3)
    return x


def resize_by_matrix(F: Any, x: Any, rows: Any, columns: Any, size: Sequence[int]) -> Any:
    """Resizes by matrices (new length, length) for rows and columns."""
    for matrix, length in zip((columns, rows), reversed(size)):
        x = F.FullyConnected(x, matrix, num_hidden=length, flatten=False, no_bias=True)
        x = F.swapaxes(x, dim1=2, dim2=3)
    return x


def adaptive_pool(F: Any, x: Any, kind: str, spans: Sequence[Sequence[Sequence[int]]]) -> Any:
    """Returns the mean or maximum of each span of elements of the last axes."""
    for axis, pairs in enumerate(spans, 2):
        parts: Iterable[Any] = (F.slice_axis(x, axis=axis, begin=begin, end=end) for begin, end in pairs)
        parts = [getattr(F, kind)(part, axis=axis, keepdims=True) for part in parts]
        x = concatenate(F, *parts, axis=axis, copies=True)
    return x


def locally_connected(F: Any, x: Any, weight: Any, bias: Any = None, *, sizes: Sequence[int], strides: Sequence[int],
                      lengths: Sequence[int]) -> Any:  # fmt: skip
    """Multiplies windows of data `(N, *size, C)`, each by a matrix of its own."""
    windows = []
    for offset in itertools.product(*map(range, sizes)):
        end = (begin + (length - 1) * stride + 1 for begin, length, stride in zip(offset, lengths, strides))
        windows.append(F.slice(x, begin=(None, *offset), end=(None, *end), step=(None, *strides)))
    windows = F.reshape(F.concat(*windows, dim=-1), shape=(0, math.prod(lengths), -1))
    out = F.transpose(F.batch_dot(F.transpose(windows, axes=(1, 0, 2)), weight), axes=(1, 0, 2))
    out = F.reshape(out, shape=(0, *lengths, -1))
    return out if bias is None else F.broadcast_add(out, F.expand_dims(bias, axis=0))


@deferred_in_trace
def reshape(F: Any, x: Any, to: Sequence[int]) -> Any:
    """Reshapes to (0, *lengths) or (-1, *lengths) after a check of the number of elements: MXNet's operator drops
    elements, or reads beyond the array, if it is wrong. A graph of dynamic shape splits an axis, which MXNet checks."""
    product = math.prod(length for length in to if length > 0)
    if min(to) < -1 or (product == 1 and -1 in to):  # valid for any number of elements
        return F.reshape(x, shape=to)
    shape, kept = tensors.known_shape(x), to[:1].count(0)  # 1 if the first axis is kept
    if shape is None or None in shape[kept:]:
        parts = (-1, product) if -1 in to else (product, 1)
        x = F.reshape(F.reshape(x, shape=(*to[:kept], -1)), shape=(*to[:kept], -4, *parts))
    else:
        count = math.prod(shape[kept:])
        if count % product or (-1 not in to and count != product):
            raise InvalidValue(f"data must have elements for {tuple(to)}; {received(**{'data.shape': shape})}")
    return F.reshape(x, shape=to)


def standardize(F: Any, x: Any, over: Sequence[int], epsilon: float) -> Any:
    """Returns (x - mean) / sqrt(variance + epsilon) over these axes."""
    centered = F.broadcast_sub(x, F.mean(x, axis=tuple(over), keepdims=True))
    variance = F.mean(F.square(centered), axis=tuple(over), keepdims=True)
    return F.broadcast_mul(centered, F.rsqrt(variance + epsilon))


def rms_norm(F: Any, x: Any, over: Sequence[int], epsilon: float) -> Any:
    """Returns x / sqrt(mean of x^2 + epsilon) over these axes."""
    return F.broadcast_mul(x, F.rsqrt(F.mean(F.square(x), axis=tuple(over), keepdims=True) + epsilon))


def bucketize(F: Any, x: Any, boundaries: Any) -> Any:
    """Returns the number of boundaries that are not greater than the element; all for NaN."""
    return F.sum(1 - F.broadcast_lesser(F.expand_dims(x, axis=-1), boundaries), axis=-1)


def any_not_equal(F: Any, x: Any, value: float) -> Any:
    """Returns a mask of the steps with an element that is not `value`."""
    return F.max(F.cast(x != value, dtype="float32"), axis=-1)


def multiply_by_mask(F: Any, x: Any, mask: Any) -> Any:
    """Multiplies by the mask, which lacks the last axis."""
    return F.broadcast_mul(x, F.expand_dims(mask, axis=-1))


def masked_scores(F: Any, x: Any, mask: Any) -> Any:
    return x + (1 - mask) * MASKED


def where_mask(F: Any, x: Any, mask: Any, *others: Any, other: float = 0.0) -> Any:
    """Returns x where the mask, which lacks the last axis, is 1; elsewhere another array or a number."""
    mask = F.broadcast_like(F.expand_dims(mask, axis=-1), x)
    return F.where(mask, x, others[0] if others else F.zeros_like(x) + other)


def repeated_state(F: Any, x: Any, state: Any, ndim: int) -> Any:
    """Repeats a state (1, ..) along the batch of data (N, T, ..), which has `ndim` axes."""
    for axis in range(1, ndim):
        x = F.slice_axis(x, axis=axis, begin=0, end=1)
    return F.broadcast_add(F.squeeze(F.zeros_like(x), axis=1), state)


def ones_mask(F: Any, x: Any) -> Any:
    """Returns a mask of ones for x, without its last axis."""
    return F.ones_like(F.squeeze(F.slice_axis(x, axis=-1, begin=0, end=1), axis=-1))


def masked_mean(F: Any, x: Any, mask: Any, axis: int, keepdims: bool, zeroes_masked: bool) -> Any:
    """Returns the mean of the steps that are not masked. Masked ones are set to 0 if `zeroes_masked`, else multiplied
    by 0."""
    mask = F.expand_dims(mask, axis=3 - axis)
    x = F.where(F.broadcast_like(mask, x), x, F.zeros_like(x)) if zeroes_masked else F.broadcast_mul(x, mask)
    sums = (F.sum(each, axis=axis, keepdims=keepdims) for each in (x, mask))
    return F.broadcast_div(*sums)


def l2_normalize(F: Any, x: Any, axes: Sequence[int], epsilon: float) -> Any:
    """Returns x / |x|, as `tf.math.l2_normalize`."""
    return F.broadcast_mul(x, F.rsqrt(F.maximum(F.sum(F.square(x), axis=tuple(axes), keepdims=True), epsilon)))


def group_norm(F: Any, x: Any, groups: int, epsilon: float) -> Any:
    """Standardizes each group of channels, which are axis 1."""
    grouped = F.reshape(x, shape=(0, groups, -1))
    return F.reshape_like(standardize(F, grouped, (2,), epsilon), x)


def dot(F: Any, x: Any, y: Any, axes: Sequence[int], epsilon: Optional[float] = None) -> Any:
    """Returns the output of `keras.layers.Dot` for matrices or vectors, one for each entry of the batch. `axes` are
    those of x and y, and their ranks."""
    if epsilon is not None:
        x, y = l2_normalize(F, x, axes[:1], epsilon), l2_normalize(F, y, axes[1:2], epsilon)
    left, right = (F.expand_dims(each, axis=1) if rank == 2 else each for each, rank in ((x, axes[2]), (y, axes[3])))
    out = F.batch_dot(left, right, transpose_a=axes[::2] == (1, 3), transpose_b=axes[1::2] != (1, 3))
    return F.squeeze(out, axis=axes[2:].index(2) + 1) if 2 in axes[2:] else out


# -- with weights


def dense(F: Any, x: Any, weight: Any, bias: Any = None, *, units: int, ones: Sequence[int] = ()) -> Any:
    """Returns a matrix product along the last axis, or along the channels of an image by a 1x1 convolution, whose
    kernel size is `ones`."""
    if not ones:
        return F.FullyConnected(x, weight, bias, num_hidden=units, flatten=False, no_bias=bias is None)
    weight = F.reshape(weight, shape=(0, 0, *ones))
    return F.Convolution(x, weight, bias, kernel=ones, num_filter=units, no_bias=bias is None)


def scale_shift(F: Any, x: Any, gamma: Any = None, beta: Any = None, before: Any = None, **arguments: Any) -> Any:
    """Returns before(x) * gamma + beta, all of which are optional."""
    x = x if before is None else before(F, x, **arguments)
    x = x if gamma is None else F.broadcast_mul(x, gamma)
    return x if beta is None else F.broadcast_add(x, beta)


def prelu(F: Any, x: Any, alpha: Any) -> Any:
    return F.relu(x) - F.broadcast_mul(alpha, F.relu(-x))


def normalize(F: Any, x: Any, mean: Any, variance: Any, invert: bool) -> Any:
    """Returns (x - mean) / max(sqrt(variance), epsilon), or its inverse: `keras.layers.Normalization`."""
    deviation = F.maximum(F.sqrt(variance), 1e-7)
    if invert:
        return F.broadcast_add(F.broadcast_mul(x, deviation), mean)
    return F.broadcast_div(F.broadcast_sub(x, mean), deviation)


# Noise is the identity at inference, and graphs for inference do not contain it. A graph for both modes finds its mode
# from `Dropout` of ones, which are 0 or 2 in training.


def _noise(trained: Any) -> Any:
    """Returns the function of a noise layer, from one with an argument `training`, an array of 1 in training, else of
    0."""

    @wraps(trained)
    def noise(F: Any, x: Any, **arguments: Any) -> Any:
        if target_of(x).purpose not in (None, "training"):
            # the same array; an input of a graph is copied, since a graph needs an operator
            return F.identity(x) if isinstance(x, mx.sym.Symbol) and x.get_children() is None else x
        return trained(F, x, F.abs(F.Dropout(F.ones_like(x), p=0.5) - 1), **arguments)

    return noise


@_noise
def gaussian_noise(F: Any, x: Any, training: Any, amount: float) -> Any:
    return x + training * F.random.normal_like(x, loc=0, scale=amount)


@_noise
def gaussian_dropout(F: Any, x: Any, training: Any, amount: float) -> Any:
    deviation = math.sqrt(amount / (1 - amount))
    return x * (1 + training * F.random.normal_like(x, loc=0, scale=deviation))


@_noise
def alpha_dropout(F: Any, x: Any, training: Any, amount: float) -> Any:
    """Sets elements to -scale * alpha of SELU, and keeps mean and variance (Klambauer et al. 2017)."""
    dropped_value = -1.6732632423543772 * 1.0507009873554805
    dropped = training * (1 - (1 - amount) * F.Dropout(F.ones_like(x), p=amount))
    a = ((1 - amount) * (1 + amount * dropped_value**2)) ** -0.5
    b = -a * dropped_value * amount
    return (x * (1 - dropped) + dropped_value * dropped) * (1 + training * (a - 1)) + b * training


def _folded(operator: str, elementwise: bool = False) -> Any:
    """Returns a function of two or more arrays. If `elementwise`, MXNet has another operator for arrays of the `same`
    shape."""

    def fold(F: Any, *arrays: Any, same: bool = True) -> Any:
        return reduce(getattr(F, f"{'elemwise' if same and elementwise else 'broadcast'}_{operator}"), arrays)

    return fold


REDUCTIONS: Dict[str, Callable] = {  # by Keras's names, where MXNet has no operator
    "var": variance,
    "std": lambda F, x, **along: F.sqrt(variance(F, x, **along)),
    "norm": lambda F, x, **along: F.sqrt(F.sum(F.square(x), **along)),
    "logsumexp": log_sum_exp,
}
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal")
PYTHON = dict(zip(COMPARISONS, (operator.eq, operator.ne, operator.gt, operator.ge, operator.lt, operator.le)))
PYTHON.update(add=operator.add, subtract=operator.sub, multiply=operator.mul, divide=operator.truediv)
PYTHON.update(power=operator.pow, floor_divide=operator.floordiv)


def scalar(F: Any, x: Any, operator: str, value: float, reflected: bool = False) -> Any:
    """Applies an operator to an array and a number, which is the first operand if `reflected`. A comparison returns
    float32."""
    if operator in ("maximum", "minimum"):
        return getattr(F, operator)(x, value)
    out = PYTHON[operator](*((value, x) if reflected else (x, value)))
    return F.cast(out, dtype="float32") if operator in COMPARISONS else out


MXNET_NAMES = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div"}  # MXNet's names
ELEMENTWISE: Dict[str, Callable] = {  # functions of several arrays
    **{name: _folded(short, elementwise=True) for name, short in MXNET_NAMES.items()},
    **{name: _folded(name) for name in ("maximum", "minimum", "power", *COMPARISONS)},
    "average": lambda F, *arrays, same=True: ELEMENTWISE["add"](F, *arrays, same=same) / len(arrays),
}
let_pickle_find({**REDUCTIONS, **ELEMENTWISE})


def run(F: Any, function: Any, *arrays: Any, **arguments: Any) -> Any:
    """Calls a function of (F, arrays, arguments), or an operator of MXNet by its name."""
    return (getattr(F, function) if isinstance(function, str) else partial(function, F))(*arrays, **arguments)


class BatchNorm1D(mx.gluon.nn.BatchNorm):
    """`gluon.nn.BatchNorm` of data (N, C, W), treated as an image of one row if it may be trained.

    MXNet 1.9.1 cannot train it on the CPU after a convolution of 8, 16, 24, .. channels ("Check failed: !is_view").
    """

    def hybrid_forward(self, F: Any, x: Any, *parameters: Any, **named: Any) -> Any:
        if not target_of(x).has_gradients:
            return super().hybrid_forward(F, x, *parameters, **named)
        return F.squeeze(super().hybrid_forward(F, F.expand_dims(x, axis=2), *parameters, **named), axis=2)


class BatchNorm3D(mx.gluon.nn.BatchNorm):
    """`gluon.nn.BatchNorm` of data (N, C, D, H, W), between copies if it may be trained, for the same reason."""

    def hybrid_forward(self, F: Any, x: Any, *parameters: Any, **named: Any) -> Any:
        if not target_of(x).has_gradients:
            return super().hybrid_forward(F, x, *parameters, **named)
        return copy_to_plain(F, super().hybrid_forward(F, copy_to_plain(F, x), *parameters, **named))


class Function(mx.gluon.HybridBlock):
    """The block of a function of (F, arrays, parameters, arguments), or of an operator of MXNet by its name.

    `shapes` are those of its parameters, by name. With `params` of another block it has these, reshaped. Initializers
    matter if a part of a network is trained anew: those of vectors are Keras's.
    """

    def __init__(self, function: Any, prefix: Optional[str] = None, shapes: Any = None, params: Any = None,
                 **arguments: Any):  # fmt: skip
        super().__init__(prefix=prefix, params=params)
        self._reshaped = {}
        self.function = function if isinstance(function, str) else function.__name__
        self.arguments, self._function = arguments, function
        with self.name_scope():
            for name, shape in (shapes or {}).items():
                made = {"shape": shape, "init": INITIALIZERS.get(name), "allow_deferred_init": True}
                parameter = self.params.get(name, **(made if params is None else {}))
                if parameter.shape != tuple(shape):
                    rule = "weights of a layer must have as many elements in all of its calls"
                    fits = 0 in shape or math.prod(parameter.shape) == math.prod(shape)
                    check(fits, rule, shapes=[parameter.shape, shape])
                    self._reshaped[name] = shape
                setattr(self, name, parameter)

    def hybrid_forward(self, F: Any, x: Any, *others: Any, **parameters: Any) -> Any:
        parameters.update({name: F.reshape(parameters[name], shape=shape) for name, shape in self._reshaped.items()})
        return run(F, self._function, x, *others, **parameters, **self.arguments)

    @property
    def sizes(self) -> List[str]:
        """The units, as Gluon's layers show them, or the shapes of the parameters."""
        shapes = {name: parameter.shape for name, parameter in _gluon.own_parameters(self).items()}
        if self.arguments.get("units"):
            weights = [shape for name, shape in shapes.items() if name.endswith("weight")]
            return [f"{weights[0][-1]} -> {weights[-1][0]}"]
        return [f"{name}={shape}" for name, shape in shapes.items()]

    def __repr__(self) -> str:
        """Returns the function with its sizes, and arguments that are set."""
        shown = {name: value for name, value in self.arguments.items() if value or type(value) is int}
        shown.pop("units", None)
        return f"{self.function}({', '.join([*self.sizes, *(f'{name}={value}' for name, value in shown.items())])})"


INITIALIZERS = {**dict.fromkeys(("bias", "beta", "alpha", "mean"), "zeros"), "gamma": "ones", "variance": "ones"}
