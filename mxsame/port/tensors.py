"""Tensors of a network while it is built."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from mxsame.port.description import leaves, mapped
from mxsame.validation import check

Size = Optional[int]


class Tensor(NamedTuple):
    """An array of the network while it is built: its shape in Keras's order, None where that is dynamic.

    `transposed`: Keras's last axis is the second here. `pads` are zeros still to be put around the spatial axes, which
    a convolution does by itself. `mask` is Keras's mask, a `Tensor` (N, T) of ones, and of zeros at steps to be
    skipped. `dtype` is Keras's type (:mod:`mxsame.port.types`). `batch_factor` is how many entries the first axis has
    for each of the inputs' batch; None if nobody knows. `same_as` is the key of the value that is the same tensor in
    Keras, if there is one: a layer that does nothing at inference gives back what it was given.
    """

    key: int
    shape: Tuple[Size, ...]
    transposed: bool = False
    pads: Optional[Tuple[Tuple[int, int], ...]] = None
    mask: Any = None
    dtype: str = "float32"
    batch_factor: Optional[Fraction] = Fraction(1)
    same_as: Optional[int] = None

    def __repr__(self) -> str:
        return f"a tensor of shape {self.shape}"

    @property
    def tensor(self) -> int:
        """The key of the tensor that it is in Keras."""
        return self.key if self.same_as is None else self.same_as

    @property
    def rank(self) -> int:
        return len(self.shape)

    def axis(self, axis: int) -> int:
        """Returns Keras's axis as one of the array here."""
        check(type(axis) is int and -self.rank <= axis < self.rank, f"axis must be one of {self.rank}", axis=axis)
        axis %= self.rank
        if not self.transposed or axis == 0:
            return axis
        return 1 if axis == self.rank - 1 else axis + 1

    def axes(self, axes: Sequence[int]) -> Tuple[int, ...]:
        return tuple(map(self.axis, axes))

    @property
    def keras_order(self) -> Tuple[int, ...]:
        """The axes of the array here, in Keras's order."""
        return (0, *range(2, self.rank), 1) if self.transposed else tuple(range(self.rank))

    def ordered(self, entries: Sequence[Any]) -> list:
        """Returns one entry for each axis of Keras's, in the order of the array here."""
        entries = list(entries)
        return [entries[0], entries[-1], *entries[1:-1]] if self.transposed else entries

    def as_transposed(self) -> Tensor:
        """Returns an array of this shape as one with channels first."""
        return self._replace(transposed=True, shape=(self.shape[0], *self.shape[2:], self.shape[1]))

    @property
    def without_pads(self) -> Tensor:
        if self.pads is None:
            return self
        middle = [None if n is None else n - low - high for n, (low, high) in zip(self.shape[1:-1], self.pads)]
        return self._replace(pads=None, shape=(self.shape[0], *middle, self.shape[-1]))


@dataclass(frozen=True)
class OpenLength:
    """The length of a dynamic axis of a value, the batch among them, or a product of lengths, of no value: no number.
    A converter takes it where the annotation of its function says so."""

    of_value: Optional[Tensor] = None
    axis: int = 0

    def __repr__(self) -> str:
        of = "a product of dynamic lengths" if self.of_value is None else f"axis {self.axis} of {self.of_value}"
        return f"the length of {of}"

    @property
    def is_batch(self) -> bool:
        return self.of_value is not None and self.axis == 0


Operand = Union[Tensor, Any]  # of an operator: a tensor or a constant
if TYPE_CHECKING:  # what a length is follows from checks
    Lengths = Any
    Sized = Any
else:
    Lengths = Union[OpenLength, Any]  # a constant in which lengths may be dynamic
    Sized = Union[Tensor, OpenLength, Any]  # an operand in which lengths may be dynamic


def refuse_lengths(name: str, given: Any) -> None:
    """Refuse dynamic lengths in an argument that takes none."""
    rule = f"{name} must not be a dynamic length, as tf.shape gives it: declare a static one in keras.Input"
    check(not _open_lengths(given), rule, **{name: given})


def _open_lengths(nested: Any) -> List[OpenLength]:
    """Returns the dynamic lengths in nested lists, tuples and dicts."""
    if isinstance(nested, OpenLength):
        return [nested]
    nested = nested.values() if isinstance(nested, dict) else nested
    is_nested = not isinstance(nested, (Tensor, str)) and isinstance(nested, (list, tuple, type({}.values())))
    return [length for entry in nested for length in _open_lengths(entry)] if is_nested else []


def with_mask(args: Any, kwargs: Dict[str, Any], version: int) -> Tuple[Any, Dict[str, Any]]:
    """Returns the arguments of a call with the mask that it is given: one for each input, or one for the first. None is
    no mask in Keras 2, and those of the inputs in Keras 3."""
    if "mask" not in kwargs or (version == 3 and kwargs["mask"] is None):
        return args, kwargs
    masks = iter(leaves(kwargs["mask"], (Tensor, type(None))))
    none = kwargs["mask"] is None
    args = mapped(args, Tensor, lambda x: x._replace(mask=None if none else next(masks, x.mask)))
    return args, {**kwargs, "mask": None}
