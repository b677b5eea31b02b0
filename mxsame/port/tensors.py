"""Tensors of a network while it is built."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

from mxsame.keras_format.description import leaves, map_leaves
from mxsame.validation import check

Size = Optional[int]


class Tensor(NamedTuple):
    """A symbolic tensor, as Keras's `KerasTensor`, with the order of axes that its array has in MXNet."""

    key: int
    shape: Tuple[Size, ...]  # in Keras's order, None for a dynamic length
    transposed: bool = False  # the array has Keras's last axis as its second: channels first
    pads: Optional[Tuple[Tuple[int, int], ...]] = None  # zeros that a following convolution may pad by itself
    mask: Any = None  # Keras's mask, a Tensor (N, T): 1, or 0 at steps that layers skip
    dtype: str = "float32"  # Keras's, see mxsame.keras_format.dtypes
    batch_factor: Optional[Fraction] = Fraction(1)  # length of the first axis / the inputs' batch; None if unknown
    same_as: Optional[int] = None  # key of the tensor that Keras returns here, e.g. the input of Dropout at inference

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape})"

    @property
    def keras_key(self) -> int:
        """The key of the tensor that this one is in Keras."""
        return self.key if self.same_as is None else self.same_as

    @property
    def rank(self) -> int:
        return len(self.shape)

    def axis(self, axis: int) -> int:
        """Returns the axis of the array that is Keras's `axis`."""
        check(type(axis) is int and -self.rank <= axis < self.rank, f"axis must be within {self.rank} axes", axis=axis)
        return self.ordered(range(self.rank)).index(axis % self.rank)

    def axes(self, axes: Sequence[int]) -> Tuple[int, ...]:
        return tuple(map(self.axis, axes))

    @property
    def keras_order(self) -> Tuple[int, ...]:
        """The axes of the array in Keras's order."""
        return self.axes(range(self.rank))

    def ordered(self, entries: Sequence[Any]) -> list:
        """Returns one entry for each of Keras's axes in the order of the array."""
        entries = list(entries)
        return [entries[0], entries[-1], *entries[1:-1]] if self.transposed else entries

    def as_transposed(self) -> Tensor:
        """Returns an array of this shape as a tensor with channels first."""
        return self._replace(transposed=True, shape=(self.shape[0], *self.shape[2:], self.shape[1]))

    @property
    def without_pads(self) -> Tensor:
        if self.pads is None:
            return self
        middle = [None if n is None else n - low - high for n, (low, high) in zip(self.shape[1:-1], self.pads)]
        return self._replace(pads=None, shape=(self.shape[0], *middle, self.shape[-1]))


@dataclass(frozen=True)
class DynamicLength:
    """A dynamic length, such as an entry of `tf.shape(x)`: the length of an axis of a tensor, or a product of lengths,
    which has no tensor.

    Only parameters of converters that are named in `lengths` accept it.
    """

    tensor: Optional[Tensor] = None
    axis: int = 0

    def __repr__(self) -> str:
        of = "a product of dynamic lengths" if self.tensor is None else f"axis {self.axis} of {self.tensor}"
        return f"the length of {of}"

    @property
    def is_batch(self) -> bool:
        return self.tensor is not None and self.axis == 0


Operand = Union[Tensor, Any]  # a tensor or a constant


def refuse_lengths(name: str, given: Any) -> None:
    """Raises a `ValueError` for an argument that contains dynamic lengths."""
    rule = f"{name} must not be a dynamic length, as tf.shape gives it: declare a static one in keras.Input"
    check(not _has_dynamic_length(given), rule, **{name: given})


def _has_dynamic_length(nested: Any) -> bool:
    entries = nested.values() if isinstance(nested, dict) else nested
    is_nested = isinstance(nested, (list, tuple, dict)) and not isinstance(nested, Tensor)
    return isinstance(nested, DynamicLength) or (is_nested and any(map(_has_dynamic_length, entries)))


def with_mask(args: Any, kwargs: Dict[str, Any], version: int) -> Tuple[Any, Dict[str, Any]]:
    """Returns the arguments of a call, their tensors with the masks of the argument `mask`: one for each tensor, or one
    for the first. None removes the masks in Keras 2, and is no argument in Keras 3."""
    if "mask" not in kwargs or (version == 3 and kwargs["mask"] is None):
        return args, kwargs
    masks = iter(leaves(kwargs["mask"], (Tensor, type(None))))
    none = kwargs["mask"] is None
    args = map_leaves(args, Tensor, lambda x: x._replace(mask=None if none else next(masks, x.mask)))
    return args, {**kwargs, "mask": None}
