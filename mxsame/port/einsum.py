"""Einstein sums of two arrays, as matrix products: `keras.layers.EinsumDense`, and the operator."""

from __future__ import annotations

import math
import re
import string
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from mxsame import validation


class Einsum(NamedTuple):
    """The letters of the axes of two arrays and of the output."""

    first: str
    second: str
    output: str

    @property
    def shared(self) -> str:
        """The axes that both arrays and the output have."""
        return "".join(letter for letter in self.first if letter in self.second and letter in self.output)

    @property
    def contracted(self) -> str:
        return "".join(letter for letter in self.first if letter not in self.output)

    def free(self, operand: int) -> str:
        """The axes that the output has from one of the arrays only."""
        return "".join(letter for letter in self[operand] if letter not in self[1 - operand])


def parse(equation: str, rank: int, second_rank: int) -> Einsum:
    """The equation for arrays of so many axes.

    Raises `ValueError` for what is no matrix product, for each entry of the axes that are shared.

    >>> parse("...x,xhy->...hy", 3, 3)
    Einsum(first='01x', second='xhy', output='01hy')
    >>> parsed = parse("bthd,bshd->bhts", 4, 4)
    >>> parsed.shared, parsed.contracted, parsed.free(0), parsed.free(1)
    ('bh', 'd', 't', 's')
    """
    first, second, output = _letters(equation, rank) if equation.count(",") == 1 else ("", "", "")
    einsum = Einsum(first, second, output)
    once = all(len(set(each)) == len(each) for each in einsum)
    alone = (set(first) ^ set(second)) ^ set(output)  # in one of the three, or in all
    fits = once and alone == set(einsum.shared) and (len(first), len(second)) == (rank, second_rank)
    validation.check(fits, "equation must be a product of two arrays", equation=equation)
    return einsum


def order(equation: str, rank: int) -> List[int]:
    """The axes of one array in the order of the equation's output.

    >>> order("b...x->bx...", 4)
    [0, 3, 1, 2]
    """
    first, *_, output = _letters(equation, rank)
    fits = len(set(first)) == rank and sorted(first) == sorted(output)
    validation.check(fits, "equation of one array must be an order of its axes", equation=equation)
    return [first.index(letter) for letter in output]


def _letters(equation: str, rank: int) -> List[str]:
    """The axes of the arrays and of the output, where those of an ellipsis are digits; the first array has `rank`."""
    first, *others = re.split(",|->", equation.replace(" ", ""))
    more = string.digits[: max(rank - len(first.replace("...", "")), 0)]
    return [axes.replace("...", more) for axes in (first, *others)]


def einsum_dense(F: Any, x: Any, weight: Any, bias: Any = None, *, einsum: Einsum, made: Tuple[int, ...]) -> Any:
    """Data times a weight (made, contracted), plus a bias that broadcasts to the output; `made` are the lengths of the
    axes that the output has from the weight."""
    kept = (0,) * len(einsum.free(0))
    x = _transposed(F, x, einsum.first, einsum.free(0) + einsum.contracted)
    if len(einsum.contracted) != 1:
        x = F.reshape(x, shape=(*kept, -1))
    x = F.FullyConnected(x, weight, num_hidden=math.prod(made), flatten=False, no_bias=True)
    if len(made) != 1:
        x = F.reshape(x, shape=(*kept, *made))
    x = _transposed(F, x, einsum.free(0) + einsum.free(1), einsum.output)
    return x if bias is None else F.broadcast_add(x, bias)


def einsum_product(F: Any, x: Any, y: Any, einsum: Einsum, lengths: Dict[str, int]) -> Any:
    """As `batch_dot` of matrices (free, contracted) and (contracted, free), for each entry of the shared axes, of which
    the first is the batch; `lengths` are those of all others."""

    def matrix(array: Any, given: str, rows: str, columns: str) -> Any:
        sides = (math.prod(lengths[letter] for letter in side) for side in (rows, columns))
        return F.reshape(_transposed(F, array, given, einsum.shared + rows + columns), shape=(-1, *sides))

    first, second = einsum.free(0), einsum.free(1)
    left, right = matrix(x, einsum.first, first, einsum.contracted), matrix(y, einsum.second, einsum.contracted, second)
    out = F.batch_dot(left, right)
    made = einsum.shared + first + second
    out = F.reshape(out, shape=(-1, *(lengths[letter] for letter in made[1:])))
    return _transposed(F, out, made, einsum.output)


def _transposed(F: Any, x: Any, axes: str, wanted: str) -> Any:
    return x if axes == wanted else F.transpose(x, axes=tuple(map(axes.index, wanted)))


def weight_to_mxnet(kernel: np.ndarray, einsum: Einsum) -> np.ndarray:
    """A kernel with the axes of the equation as (made, contracted)."""
    made = einsum.free(1)
    order = [einsum.second.index(letter) for letter in made + einsum.contracted]
    return kernel.transpose(order).reshape(math.prod(kernel.shape[axis] for axis in order[: len(made)]), -1)


def weight_to_keras(weight: np.ndarray, einsum: Einsum, lengths: Dict[str, int]) -> np.ndarray:
    """The inverse of :func:`weight_to_mxnet`."""
    letters = einsum.free(1) + einsum.contracted
    full = weight.reshape([lengths[letter] for letter in letters])
    return full.transpose([letters.index(letter) for letter in einsum.second])


def bias_axes_shape(einsum: Einsum, bias_axes: str, lengths: Sequence[int]) -> Tuple[int, ...]:
    """The shape of a bias with these axes, for an output of these lengths: 1 along the others, none before the first.

    >>> bias_axes_shape(parse("abc,cde->abde", 3, 3), "d", (2, 3, 4, 5))
    (4, 1)
    """
    first = min(einsum.output.index(letter) for letter in bias_axes)
    pairs = list(zip(einsum.output, lengths))[first:]
    return tuple(length if letter in bias_axes else 1 for letter, length in pairs)
