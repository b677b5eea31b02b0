"""Einstein sums of an array and a weight, `keras.layers.EinsumDense`, as one matrix product."""

from __future__ import annotations

import math
import re
import string
from typing import Any, Dict, NamedTuple, Sequence, Tuple

import numpy as np

from mxsame import validation


class Einsum(NamedTuple):
    """An equation with a letter for each axis: no letter is in both operands and in the output.

    >>> parse("...x,xhy->...hy", 3, 3)
    Einsum(data='ABx', weight='xhy', output='ABhy')
    """

    data: str
    weight: str
    output: str

    @property
    def free(self) -> str:
        """The axes that the data and the output have."""
        return "".join(letter for letter in self.data if letter in self.output)

    @property
    def contracted(self) -> str:
        return "".join(letter for letter in self.data if letter not in self.output)

    @property
    def made(self) -> str:
        """The axes that the weight and the output have."""
        return "".join(letter for letter in self.weight if letter in self.output)


def parse(equation: str, rank: int, weight_rank: int) -> Einsum:
    """The equation for data and a weight of so many axes.

    Raises `ValueError` for what is no single matrix product.
    """
    found = re.fullmatch(r"(\.{3})?([a-zA-Z]+)(\.{3})?,([a-zA-Z]+)->(\.{3})?([a-zA-Z]+)(\.{3})?", equation)
    letters = [] if found is None else [letter for letter in string.ascii_uppercase if letter not in equation]
    if found is not None and len(letters) >= rank:
        before, data, after, weight, out_before, output, out_after = found.groups()
        more = "".join(letters[: max(rank - len(data), 0)]) if before or after else ""
        data = more + data if before else data + more
        output = (more if out_before else "") + output + (more if out_after else "")
        once = all(len(set(each)) == len(each) for each in (data, weight, output))
        shared = set(data) & set(weight) & set(output)
        alone = (set(data) ^ set(weight)) ^ set(output)
        if once and not shared and not alone and (len(data), len(weight)) == (rank, weight_rank):
            return Einsum(data, weight, output)
    raise ValueError(
        "equation must be a product of the data and a weight, without an axis that both and the output have; "
        f"{validation.received(equation=equation)}"
    )


def einsum_dense(F: Any, x: Any, weight: Any, bias: Any = None, *, einsum: Einsum, made: Tuple[int, ...]) -> Any:
    """Data times a weight (made, contracted), plus a bias that broadcasts to the output; `made` are the lengths of the
    axes that are made."""
    kept = (0,) * len(einsum.free)
    x = _transposed(F, x, einsum.data, einsum.free + einsum.contracted)
    if len(einsum.contracted) != 1:
        x = F.reshape(x, shape=(*kept, -1))
    x = F.FullyConnected(x, weight, num_hidden=math.prod(made), flatten=False, no_bias=True)
    if len(made) != 1:
        x = F.reshape(x, shape=(*kept, *made))
    x = _transposed(F, x, einsum.free + einsum.made, einsum.output)
    return x if bias is None else F.broadcast_add(x, bias)


def _transposed(F: Any, x: Any, axes: str, wanted: str) -> Any:
    return x if axes == wanted else F.transpose(x, axes=tuple(map(axes.index, wanted)))


def weight_to_mxnet(kernel: np.ndarray, einsum: Einsum) -> np.ndarray:
    """A kernel with the axes of the equation as (made, contracted)."""
    order = [einsum.weight.index(letter) for letter in einsum.made + einsum.contracted]
    made = math.prod(kernel.shape[axis] for axis in order[: len(einsum.made)])
    return kernel.transpose(order).reshape(made, -1)


def weight_to_keras(weight: np.ndarray, einsum: Einsum, lengths: Dict[str, int]) -> np.ndarray:
    """The inverse of :func:`weight_to_mxnet`."""
    letters = einsum.made + einsum.contracted
    full = weight.reshape([lengths[letter] for letter in letters])
    return full.transpose([letters.index(letter) for letter in einsum.weight])


def bias_axes_shape(einsum: Einsum, bias_axes: str, lengths: Sequence[int]) -> Tuple[int, ...]:
    """The shape of a bias with these axes, for an output of these lengths: 1 along the others, none before the first.

    >>> bias_axes_shape(parse("abc,cde->abde", 3, 3), "d", (2, 3, 4, 5))
    (4, 1)
    """
    first = min(einsum.output.index(letter) for letter in bias_axes)
    pairs = list(zip(einsum.output, lengths))[first:]
    return tuple(length if letter in bias_axes else 1 for letter, length in pairs)


class Product(NamedTuple):
    """An equation of two arrays: the axes of each, and of the output.

    >>> product = Product.parsed("bthd,bshd->bhts", [4, 4])
    >>> product.shared, product.contracted, product.free(0), product.free(1)
    ('bh', 'd', 't', 's')
    """

    first: str
    second: str
    output: str

    @classmethod
    def parsed(cls, equation: str, ranks: Sequence[int]) -> Product:
        """Raises `ValueError` for what is no product of matrices for each entry of the batch."""
        found = re.fullmatch("([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)", equation.replace(" ", ""))
        if found is not None and list(map(len, found.groups()[:2])) == list(ranks):
            product = cls(*found.groups())
            once = all(len(set(letters)) == len(letters) for letters in product)
            alone = (set(product.first) ^ set(product.second)) ^ set(product.output)
            if once and alone == set(product.shared) and product.shared[:1] == product.first[0] == product.output[0]:
                return product
        raise ValueError(
            "equation must be a product of two arrays of a batch, whose axis is the first; "
            f"{validation.received(equation=equation)}"
        )

    @property
    def shared(self) -> str:
        return "".join(letter for letter in self.first if letter in self.second and letter in self.output)

    @property
    def contracted(self) -> str:
        return "".join(letter for letter in self.first if letter not in self.output)

    def free(self, operand: int) -> str:
        """The axes that only one of the arrays has."""
        return "".join(letter for letter in self[operand] if letter not in self[1 - operand])

    def lengths(self, shapes: Sequence[Sequence[Any]]) -> Dict[str, int]:
        """Of all axes after the batch."""
        pairs = [pair for letters, shape in zip(self[:2], shapes) for pair in list(zip(letters, shape))[1:]]
        found = dict(pairs)
        if None in found.values() or any(found[letter] != length for letter, length in pairs):
            raise ValueError(f"lengths must be static, and agree; {validation.received(shapes=shapes)}")
        return found


def einsum_product(F: Any, x: Any, y: Any, product: Product, lengths: Dict[str, int]) -> Any:
    """As `batch_dot` of matrices (free, contracted) and (contracted, free), for each entry of the shared axes."""
    first, second = product.free(0), product.free(1)
    letters = (product.shared + first + product.contracted, product.shared + product.contracted + second)
    matrices = []
    for array, given, wanted, rows in (
        (x, product.first, letters[0], first),
        (y, product.second, letters[1], product.contracted),
    ):
        array = _transposed(F, array, given, wanted)
        columns = wanted[len(product.shared) + len(rows) :]
        sides = (math.prod(lengths[letter] for letter in side) for side in (rows, columns))
        matrices.append(F.reshape(array, shape=(-1, *sides)))
    made = product.shared + first + second
    out = F.reshape(F.batch_dot(*matrices), shape=(-1, *(lengths[letter] for letter in made[1:])))
    return _transposed(F, out, made, product.output)
