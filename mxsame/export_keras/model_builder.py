"""A Keras model that grows by layers and their calls; its tensors know which axes of MXNet's arrays their axes are."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame.exporting.shapes import Shape
from mxsame.port.converters import converter_of
from mxsame.port.cutting import keras_order
from mxsame.port.description import Layer, LayerCall, Model, TensorId
from mxsame.port.table import HANDLES_MASK, PASSES_MASK, PASSES_MASK_IN_KERAS
from mxsame.rewriting.graph import unique_name
from mxsame.validation import InvalidValue, check

MERGING = (
    "Add",
    "Subtract",
    "Multiply",
    "Maximum",
    "Minimum",
    "Concatenate",
)  # layers that pass masks on, and do not use them
Lengths = Tuple[Optional[int], ...]
Order = Tuple[int, ...]


class KerasTensor(NamedTuple):
    """A tensor of the model: its shape, None for the batch, and the axes of MXNet's array that its axes are.

    `feature_order` has the positions in MXNet's array of the elements of the last axis, if a flattening left them in
    another order for a dense layer; `source` is the input of the net whose axes it still has, if any."""

    tensor: TensorId
    shape: Lengths
    order: Order
    feature_order: Optional[np.ndarray] = None
    source: str = ""

    @property
    def rank(self) -> int:
        return len(self.order)

    def axis(self, axis: int) -> int:
        """Where an axis of MXNet's is."""
        return self.order.index(axis % self.rank)

    def permuted(self, entries: Sequence[Any]) -> List[Any]:
        """One entry for each axis of MXNet's, in the order here."""
        return [entries[axis] for axis in self.order]

    def order_with_last(self, axis: int) -> Order:
        """The order here, but with an axis of MXNet's as the last."""
        return (*(other for other in self.order if other != axis % self.rank), axis % self.rank)


def batch_first(rank: int, batch: int) -> Order:
    """The axes with the batch before the others."""
    return (batch, *(axis for axis in range(rank) if axis != batch))


def channels_last(rank: int) -> Order:
    """(N, \\*size, C) of (N, C, \\*size)."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def lengths_of(shape: Shape, order: Sequence[int]) -> Lengths:
    """The lengths of a shape in this order of axes."""
    return tuple(shape[axis].traced if shape[axis].is_static else None for axis in order)


def count_of(lengths: Lengths) -> int:
    """The number of elements that each instance of the batch has."""
    return math.prod(length for length in lengths if length is not None)


def groups_of(source: Shape, target: Shape) -> List[Tuple[List[int], List[int]]]:
    """The smallest groups of neighbouring axes that have the same elements before and after a reshape: they end where
    both have the same number of elements up to there. Axes of length 1 belong to the group before."""
    before, after = ([*map(tuple, np.cumprod(shape, axis=0).tolist())] for shape in (source, target))
    check(before[-1] == after[-1], f"a reshape must keep the number of elements; received {source} to {target}")
    ends = [count for count in dict.fromkeys(before) if count in after]
    groups: List[Tuple[List[int], List[int]]] = [([], []) for _ in ends]
    for side, counts in enumerate((before, after)):
        for axis, count in enumerate(counts):
            number = next(number for number, end in enumerate(ends) if end >= count)
            groups[number][side].append(axis)
    return groups


class KerasFile(NamedTuple):
    """A model to be written: the shapes of the net's inputs, and the axes of the net's inputs and outputs in the file's
    order."""

    model: Model
    shapes: Mapping[str, Shape]
    orders: Sequence[Order]
    output_orders: Sequence[Order]


class ModelBuilder:
    """The model, and what is known of its tensors and parameters.

    Parameters
    ----------
    trained : set of str
        The parameters that are trained.
    is_h5 : bool
        Whether the file has layers only, and no operators.
    name : str
        The model's.
    """

    def __init__(self, trained: Set[str], is_h5: bool, name: str = "network") -> None:
        self.trained, self.is_h5 = trained, is_h5
        self.model = Model(name, [], [], [], version=2 if is_h5 else 3)
        self.layers: Dict[Any, Layer] = {}  # layers that may be called again, by what they are
        self.owners: Dict[str, Any] = {}  # the layer or node that trains a parameter
        self.ignored_masks: Set[TensorId] = set()  # tensors that have a mask in Keras, and none in the net
        self._names: Set[str] = set()

    def unique(self, name: str) -> str:
        """A name that no other layer has."""
        name = unique_name(name, self._names)
        self._names.add(name)
        return name

    def input(self, name: str, shape: Lengths, dtype: str) -> TensorId:
        """The tensor of a new input layer."""
        config = {"name": name, "dtype": dtype, "batch_shape": list(shape)}
        layer = self.add(Layer("InputLayer", name, config, weight_specs=[]))
        self.model.inputs.append(self.call(layer, (), {}))
        return self.model.inputs[-1]

    def add(self, layer: Layer) -> Layer:
        self.model.layers.append(layer)
        return layer

    def renamed(self, values: Sequence[KerasTensor], layer: Layer, name: str) -> List[KerasTensor]:
        """Values of a layer that nothing takes yet, which gets this name, or one like it."""

        def new(tensor: TensorId) -> TensorId:
            return tensor._replace(layer=layer.name) if tensor.layer == before else tensor

        before = layer.name
        self._names.discard(before)
        layer.name = layer.config["name"] = self.unique(name)
        self.ignored_masks = set(map(new, self.ignored_masks))
        return [x._replace(tensor=new(x.tensor)) for x in values]

    def call(self, layer: Layer, args: tuple, kwargs: Mapping[str, Any]) -> TensorId:
        """The output of one more call of a layer."""
        layer.calls.append(LayerCall(args, dict(kwargs)))
        tensor = TensorId(layer.name, len(layer.calls) - 1)
        if self.ignored_masks.intersection(layer.calls[-1].tensors()):
            self._follow_mask(layer, tensor)
        return tensor

    def _follow_mask(self, layer: Layer, output: TensorId) -> None:
        """Note that Keras passes a mask on that the net ignores. Raises `ValueError` if the layer would take it."""
        converter = converter_of(layer)
        masks = HANDLES_MASK if converter is None else converter.masks
        versions = (2, 3) if self.is_h5 else (3,)  # versions of Keras that load the file
        if masks == HANDLES_MASK and layer.class_name not in MERGING and layer.operator is None:
            rule = "a mask must end where it ends in the net, at operators or at a block: Keras would pass it on to"
            raise InvalidValue(f"{rule} {layer.name!r} ({layer.class_name})")
        if masks in (HANDLES_MASK, PASSES_MASK, *map(PASSES_MASK_IN_KERAS.get, versions)):
            self.ignored_masks.add(output)

    @contextlib.contextmanager
    def ignoring_masks(self, tensors: Set[TensorId]) -> Iterator[None]:
        """Within the `with` block, the masks of these tensors are ignored, too."""
        added = tensors - self.ignored_masks
        self.ignored_masks |= added
        try:
            yield
        finally:
            self.ignored_masks -= added

    def finish(self, outputs: List[TensorId]) -> None:
        """Bring the layers into the order that Keras gives them. Layers that no output needs are left out."""
        self.model.outputs = outputs
        layers = {layer.name: layer for layer in self.model.layers}
        self.model.layers = keras_order(layers, outputs)
