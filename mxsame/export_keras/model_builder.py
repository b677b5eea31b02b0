"""A Keras model that grows by layers and their calls; each tensor records which axes of MXNet's array its axes are."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame.exporting.shapes import Shape
from mxsame.keras_format.description import Layer, LayerCall, Model, TensorId
from mxsame.keras_format.topology import keras_order
from mxsame.port.converters import converter_of
from mxsame.port.table import HANDLES_MASK, PASSES_MASK, PASSES_MASK_IN_KERAS
from mxsame.rewriting.graph import unique_name
from mxsame.validation import InvalidValue, check

# layers that pass masks on, and do not use them
MERGING = ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Concatenate")
KerasShape = Tuple[Optional[int], ...]
Order = Tuple[int, ...]


class KerasTensor(NamedTuple):
    """A tensor of the model: its shape, None for the batch, and the axes of MXNet's array that its axes are.

    `feature_order` has the positions in MXNet's array of the elements of the last axis, if a flattening left them in
    another order for a dense layer; `source` is the input of the net whose axes it still has, if any."""

    tensor: TensorId
    shape: KerasShape
    order: Order
    feature_order: Optional[np.ndarray] = None
    source: str = ""

    @property
    def rank(self) -> int:
        return len(self.order)

    def axis(self, axis: int) -> int:
        """Returns the position of an axis of MXNet's array."""
        return self.order.index(axis % self.rank)

    def permuted(self, entries: Sequence[Any]) -> List[Any]:
        """Returns entries for MXNet's axes in the order of this tensor."""
        return [entries[axis] for axis in self.order]

    def order_with_last(self, axis: int) -> Order:
        """Returns the order of this tensor, with one of MXNet's axes moved to the end."""
        return (*(other for other in self.order if other != axis % self.rank), axis % self.rank)


def batch_first(rank: int, batch: int) -> Order:
    """Returns the axes with the batch before the others."""
    return (batch, *(axis for axis in range(rank) if axis != batch))


def channels_last(rank: int) -> Order:
    r"""Returns the axes (N, \*size, C) of an array (N, C, \*size)."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def keras_shape(shape: Shape, order: Sequence[int]) -> KerasShape:
    """Returns a shape with its axes in this order, and None for dynamic lengths."""
    return tuple(shape[axis].traced if shape[axis].is_static else None for axis in order)


def num_elements(lengths: KerasShape) -> int:
    """Returns the number of elements of each instance of the batch."""
    return math.prod(length for length in lengths if length is not None)


def groups_of(source: Shape, target: Shape) -> List[Tuple[List[int], List[int]]]:
    """Returns the smallest groups of neighboring axes that have the same elements before and after a reshape: they end
    where both have the same number of elements up to there. Axes of length 1 belong to the group before."""
    before, after = ([*map(tuple, np.cumprod(shape, axis=0).tolist())] for shape in (source, target))
    check(before[-1] == after[-1], f"a reshape must keep the number of elements; received {source} to {target}")
    ends = [count for count in dict.fromkeys(before) if count in after]
    groups: List[Tuple[List[int], List[int]]] = [([], []) for _ in ends]
    for side, counts in enumerate((before, after)):
        for axis, count in enumerate(counts):
            number = next(number for number, end in enumerate(ends) if end >= count)
            groups[number][side].append(axis)
    return groups


def all_trained(names: Set[str], trained: Set[str]) -> bool:
    """Returns whether the parameters of a layer are trained. Raises a `ValueError` if only some are."""
    rule = "the parameters of a layer must be all trained or all frozen"
    check(not trained or trained == names, rule, trained=sorted(trained), parameters=sorted(names))
    return bool(trained)


class KerasFile(NamedTuple):
    """A model to be written: the shapes of the net's inputs, and the axes of the net's inputs and outputs in the file's
    order; its form, as in `Written`; and the layers of Keras that are written by their operators, with the reasons."""

    model: Model
    shapes: Mapping[str, Shape]
    orders: Sequence[Order]
    output_orders: Sequence[Order]
    form: Optional[str] = None
    by_operators: Sequence[str] = ()


class ModelBuilder:
    """The model, and what is known of its tensors and parameters.

    Parameters
    ----------
    trained : set of str
        The parameters that are trained.
    version : int
        The version of Keras whose file format the model has: an .h5 file of Keras 2 has no operators.
    name : str
        The name of the model.
    """

    def __init__(self, trained: Set[str], version: int, name: str = "network") -> None:
        self.trained, self.is_h5 = trained, version == 2
        self.model = Model(name, [], [], [], version=version)
        self.layers: Dict[Any, Layer] = {}  # layers that may be called again, by what they are
        self.owners: Dict[str, Any] = {}  # the layer or node that trains a parameter
        self.ignored_masks: Set[TensorId] = set()  # tensors that have a mask in Keras, and none in the net
        self.by_operators: List[str] = []  # layers of Keras that are written by their operators, and why
        self._names: Set[str] = set()

    def unique(self, name: str) -> str:
        """Returns a name that no other layer has."""
        name = unique_name(name, self._names)
        self._names.add(name)
        return name

    def input(self, name: str, shape: KerasShape, dtype: str) -> TensorId:
        """Adds an input layer; returns its tensor."""
        config = {"name": name, "dtype": dtype, "batch_shape": list(shape)}
        layer = self.add(Layer("InputLayer", name, config, weight_specs=[]))
        self.model.inputs.append(self.call(layer, (), {}))
        return self.model.inputs[-1]

    def add(self, layer: Layer) -> Layer:
        self.model.layers.append(layer)
        return layer

    def renamed(self, values: Sequence[KerasTensor], layer: Layer, name: str) -> List[KerasTensor]:
        """Renames a layer whose outputs are not used yet, to this name or one like it; returns its values."""

        def new(tensor: TensorId) -> TensorId:
            return tensor._replace(layer=layer.name) if tensor.layer == before else tensor

        before = layer.name
        self._names.discard(before)
        layer.name = layer.config["name"] = self.unique(name)
        self.ignored_masks = set(map(new, self.ignored_masks))
        return [x._replace(tensor=new(x.tensor)) for x in values]

    def call(self, layer: Layer, args: tuple, kwargs: Mapping[str, Any]) -> TensorId:
        """Calls a layer once more; returns the output."""
        layer.calls.append(LayerCall(args, dict(kwargs)))
        tensor = TensorId(layer.name, len(layer.calls) - 1)
        if self.ignored_masks.intersection(layer.calls[-1].tensors()):
            self._follow_mask(layer, tensor)
        return tensor

    def _follow_mask(self, layer: Layer, output: TensorId) -> None:
        """Records that Keras passes on a mask that the net ignores. Raises a `ValueError` if the layer would use it."""
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
        """Ignores the masks of these tensors, too, within the `with` block."""
        added = tensors - self.ignored_masks
        self.ignored_masks |= added
        try:
            yield
        finally:
            self.ignored_masks -= added

    def finish(self, outputs: List[TensorId]) -> None:
        """Sorts the layers as Keras does. Layers that no output needs are left out."""
        self.model.outputs = outputs
        layers = {layer.name: layer for layer in self.model.layers}
        self.model.layers = keras_order(layers, outputs)
