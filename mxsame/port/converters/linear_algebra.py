"""Converters of matrix products, and of Einstein sums, which become matrix products."""

from __future__ import annotations

import math
import string
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from mxsame.keras_format.description import BIAS, KERNEL, WeightSpec, as_list, leaves
from mxsame.keras_format.dtypes import CAST
from mxsame.port import blocks
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import LORA, activate, permute
from mxsame.port.parameters import TRANSPOSED, Conversion
from mxsame.port.table import KERAS_ORDER, ORDER_OF_FIRST_CALL, PASSES_MASK, layer, operator
from mxsame.port.tensors import Operand, Tensor
from mxsame.validation import check

# -- Einstein sums


class Einsum(NamedTuple):
    """An equation of two arrays and an output: a string for each, with a letter for each axis."""

    first: str
    second: str
    output: str

    @property
    def shared(self) -> str:
        """The axes that both arrays and the output have."""
        return "".join(letter for letter in self.first if letter in self.second and letter in self.output)

    @property
    def contracted(self) -> str:
        """The axes that are summed over."""
        return "".join(letter for letter in self.first if letter not in self.output)

    def free(self, operand: int) -> str:
        """Returns the axes of one array that the other does not have."""
        return "".join(letter for letter in self[operand] if letter not in self[1 - operand])


def parse_einsum(equation: str, rank: int, second_rank: int) -> Einsum:
    """Parses the equation of two arrays of these ranks.

    Raises `ValueError` if it is not a matrix product for each entry of the shared axes.

    >>> parse_einsum("...x,xhy->...hy", 3, 3)
    Einsum(first='01x', second='xhy', output='01hy')
    >>> parsed = parse_einsum("bthd,bshd->bhts", 4, 4)
    >>> parsed.shared, parsed.contracted, parsed.free(0), parsed.free(1)
    ('bh', 'd', 't', 's')
    """
    einsum = Einsum(*_letters(equation, rank, 2))
    are_distinct = all(len(set(each)) == len(each) for each in einsum)
    odd_letters = (set(einsum.first) ^ set(einsum.second)) ^ set(einsum.output)  # in one of the three, or in all three
    is_product = are_distinct and odd_letters == set(einsum.shared)
    has_ranks = (len(einsum.first), len(einsum.second)) == (rank, second_rank)
    check(is_product and has_ranks, "equation must be a product of two arrays", equation=equation)
    return einsum


def einsum_order(equation: str, rank: int) -> List[int]:
    """Returns the permutation of axes that the equation of one array describes.

    >>> einsum_order("b...x->bx...", 4)
    [0, 3, 1, 2]
    """
    first, output = _letters(equation, rank, 1)
    is_permutation = len(set(first)) == rank and sorted(first) == sorted(output)
    check(is_permutation, "equation of one array must be an order of its axes", equation=equation)
    return [first.index(letter) for letter in output]


def _letters(equation: str, rank: int, count: int) -> List[str]:
    """Returns the letters of `count` arrays and of the output. Digits replace an ellipsis, so that the first array has
    `rank` axes."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    first, *others = inputs.split(",")
    check(output and len(others) == count - 1, f"equation must have {count} inputs and an output", equation=equation)
    ellipsis_axes = string.digits[: max(rank - len(first.replace("...", "")), 0)]
    return [axes.replace("...", ellipsis_axes) for axes in (first, *others, output)]


def einsum_dense(F: Any, x: Any, weight: Any, bias: Any = None, *, einsum: Einsum, new_lengths: Tuple[int, ...]) -> Any:
    """Returns data times a weight matrix (free, contracted), plus a bias that broadcasts. `new_lengths` are the lengths
    of the weight's free axes."""
    unchanged = (0,) * len(einsum.free(0))
    x = _transposed(F, x, einsum.first, einsum.free(0) + einsum.contracted)
    if len(einsum.contracted) != 1:
        x = F.reshape(x, shape=(*unchanged, -1))
    x = F.FullyConnected(x, weight, num_hidden=math.prod(new_lengths), flatten=False, no_bias=True)
    if len(new_lengths) != 1:
        x = F.reshape(x, shape=(*unchanged, *new_lengths))
    x = _transposed(F, x, einsum.free(0) + einsum.free(1), einsum.output)
    return x if bias is None else F.broadcast_add(x, bias)


def einsum_product(F: Any, x: Any, y: Any, einsum: Einsum, lengths: Dict[str, int]) -> Any:
    """Computes the sum as `batch_dot` of matrices (free, contracted) and (contracted, free), one pair for each entry of
    the shared axes. The first shared axis is the batch; `lengths` maps the letters of all other axes to lengths."""

    def matrices(array: Any, axes: str, rows: str, columns: str) -> Any:
        sides = (math.prod(lengths[letter] for letter in side) for side in (rows, columns))
        return F.reshape(_transposed(F, array, axes, einsum.shared + rows + columns), shape=(-1, *sides))

    rows, columns = einsum.free(0), einsum.free(1)
    left = matrices(x, einsum.first, rows, einsum.contracted)
    right = matrices(y, einsum.second, einsum.contracted, columns)
    axes = einsum.shared + rows + columns
    out = F.reshape(F.batch_dot(left, right), shape=(-1, *(lengths[letter] for letter in axes[1:])))
    return _transposed(F, out, axes, einsum.output)


def _transposed(F: Any, x: Any, axes: str, new_axes: str) -> Any:
    return x if axes == new_axes else F.transpose(x, axes=tuple(map(axes.index, new_axes)))


def bias_axes_shape(einsum: Einsum, bias_axes: str, lengths: Sequence[int]) -> Tuple[int, ...]:
    """Returns the shape of a bias along some axes of an output of these lengths. Before the first of `bias_axes`, the
    bias has no axis; other axes have the length 1.

    >>> bias_axes_shape(parse_einsum("abc,cde->abde", 3, 3), "d", (2, 3, 4, 5))
    (4, 1)
    """
    first = min(einsum.output.index(letter) for letter in bias_axes)
    pairs = list(zip(einsum.output, lengths))[first:]
    return tuple(length if letter in bias_axes else 1 for letter, length in pairs)


# -- converters


@layer("Dense", order=ORDER_OF_FIRST_CALL, weights=(KERNEL, BIAS), masks=PASSES_MASK, dtypes=CAST, ignored=LORA)
def _dense(call: CallContext, x: Tensor) -> Tensor:
    units = call.integer("units")
    check(x.rank >= 2, "data must have 2 axes or more", shape=x.shape)
    x = call.to_keras_order(x) if x.rank > 5 else x
    shapes = {"weight": (units, x.shape[-1] or 0), "bias": (units,)}
    kernel_size = (1,) * (x.rank - 2) if x.transposed else ()
    out = call.apply_with_weights(
        blocks.dense, x, shapes=shapes, conversions={"kernel": TRANSPOSED}, units=units, ones=kernel_size
    )
    return activate(call, out)


@layer("EinsumDense", order=KERAS_ORDER, weights=(KERNEL, WeightSpec("bias", "bias", "bias_axes")), dtypes=CAST,
       ignored=f"output_shape|{LORA}")  # fmt: skip
def _einsum_dense(call: CallContext, x: Tensor) -> Tensor:
    shape, bias_axes, equation = call.layer.weights[0].shape, call.config.get("bias_axes"), call.config["equation"]
    einsum = parse_einsum(str(equation), x.rank, len(shape))
    check(not einsum.shared, "equation must have no axis of all arrays", equation=equation)
    lengths = dict(zip(einsum.second, shape))
    known = {**dict(zip(einsum.first, x.shape)), **lengths}
    bias = bias_axes_shape(einsum, bias_axes, [known[letter] for letter in einsum.output]) if bias_axes else None
    new_lengths = tuple(lengths[letter] for letter in einsum.free(1))
    weight = (math.prod(new_lengths), math.prod(lengths[letter] for letter in einsum.contracted))
    order = [einsum.second.index(letter) for letter in einsum.free(1) + einsum.contracted]
    conversions = {"kernel": Conversion.of(shape, order, weight)}
    arguments: Dict[str, Any] = {"shapes": {"weight": weight, "bias": bias}, "conversions": conversions}
    return activate(call, call.apply_with_weights(einsum_dense, x, **arguments, einsum=einsum, new_lengths=new_lengths))


@layer("Dot", order=KERAS_ORDER)
def _dot(call: CallContext, x: Tensor, y: Tensor) -> Tensor:
    axes = call.config["axes"]
    axes = [axes, axes] if isinstance(axes, int) else list(axes)
    axes, normalize = [axes[0] % x.rank, axes[1] % y.rank], bool(call.config.get("normalize", False))
    check({x.rank, y.rank} <= {2, 3} and 0 not in axes, "inputs must be vectors or matrices", shapes=[x.shape, y.shape])
    epsilon = (1e-12 if call.version == 2 else 1e-14) if normalize else None  # a lower bound of squared norms
    return call.apply(blocks.dot, x, y, axes=(*axes, x.rank, y.rank), epsilon=epsilon)


@operator("matmul", order=KERAS_ORDER, aliases={"b": "y", "x2": "y"})
def _matmul(call: CallContext, x: Tensor, y: Operand, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """Multiplies matrices, one pair for each entry of the leading axes, or all of them by a constant matrix."""
    if not isinstance(y, Tensor):
        matrix = np.asarray(y, "float32")
        agree = matrix.ndim == 2 and not transpose_a and x.shape[-1] == matrix.shape[bool(transpose_b)]
        check(agree, "a constant must be a matrix with a row for each element", shape=matrix.shape)
        weight = matrix if transpose_b else matrix.T
        return call.constant(blocks.dense, x, {"weight": weight}, units=len(weight))
    check(x.rank == y.rank >= 3, "tensors must be matrices of a batch", shapes=[x.shape, y.shape])
    if x.rank == 3:
        return call.apply("batch_dot", x, y, transpose_a=bool(transpose_a), transpose_b=bool(transpose_b))
    first, second = "ji" if transpose_a else "ij", "kj" if transpose_b else "jk"
    return _einsum(call, x, y, subscripts=f"...{first},...{second}->...ik")


@operator("tensordot", order=KERAS_ORDER, aliases={"b": "y", "x2": "y"})
def _tensordot(call: CallContext, x: Tensor, y: Operand, axes: Any = 2) -> Tensor:
    """Multiplies by a constant array, and sums along axes of both arrays. The batch must not be summed."""
    array = np.asarray(y, "float32")
    check(not isinstance(y, Tensor) and array.ndim, "the second tensor must be a constant array")
    if isinstance(axes, int):
        axes = [list(range(x.rank - axes, x.rank)), list(range(axes))]
    x_axes, y_axes = ([axis % rank for axis in as_list(each)] for each, rank in zip(axes, (x.rank, array.ndim)))
    summed = [x.shape[axis] for axis in x_axes]
    agree = 0 not in x_axes and summed == [array.shape[axis] for axis in y_axes]
    rule = "the summed axes must be static, have the same lengths in both, and not be the batch"
    check(agree, rule, axes=axes, shapes=[x.shape, array.shape])
    free = [axis for axis in range(x.rank) if axis not in x_axes]
    new = [axis for axis in range(array.ndim) if axis not in y_axes]
    x = permute(call, x, [*free, *x_axes]) if x_axes else call.apply(blocks.expand_dims, x, axes=(x.rank,))
    if len(x_axes) > 1:
        x = call.apply(blocks.reshape, x, to=(*(0 for _ in free), -1))
    weight = array.transpose([*new, *y_axes]).reshape(-1, math.prod(summed))
    out = call.constant(blocks.dense, x, {"weight": weight}, units=len(weight))
    if len(new) == 1:
        return out
    lengths = [*x.shape[1 : len(free)], *(array.shape[axis] for axis in new)]
    check(None not in lengths, "axes that are not summed must be static", shape=x.shape)
    return call.apply(blocks.reshape, out, to=(0, *lengths))


@operator("einsum", order=KERAS_ORDER)
def _einsum(call: CallContext, *operands: Operand, subscripts: str = "") -> Tensor:
    """Computes the Einstein sum of two tensors by matrix products, or permutes one tensor."""
    tensors = leaves(list(operands), Tensor)
    are_stored = tensors or call.version == 3
    check(are_stored, "tf.einsum must be replaced by Dot, EinsumDense or tf.matmul: Keras 2 does not store its tensors")
    is_supported = len(tensors) == len(operands) <= 2
    check(is_supported, f"einsum must have an equation and one or two tensors; received {len(tensors)}")
    if len(tensors) == 1:
        return permute(call, tensors[0], einsum_order(subscripts, tensors[0].rank))
    x, y = tensors
    einsum = parse_einsum(subscripts, x.rank, y.rank)
    pairs = [*zip(einsum.first, x.shape), *zip(einsum.second, y.shape)]
    lengths = {letter: length for letter, length in pairs if letter != einsum.first[0]}
    has_batch = einsum.shared[:1] == einsum.first[0] == einsum.output[0]
    agree = all(lengths.get(letter, length) == length for letter, length in pairs)
    rule = "axes must be the batch, then static axes that have the same lengths in both"
    check(has_batch and agree and None not in lengths.values(), rule, shapes=[x.shape, y.shape])
    return call.apply(einsum_product, x, y, einsum=einsum, lengths=lengths)
