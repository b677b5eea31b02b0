"""Builds a Keras model layer by layer. Each of its tensors records which axes of MXNet's array its axes are."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame.exporting.shapes import Shape
from mxsame.keras_format.description import Layer, LayerCall, Model, TensorId
from mxsame.keras_format.topology import keras_order
from mxsame.port.converters import converter_of
from mxsame.port.table import HANDLES_MASK, PASSES_MASK, PASSES_MASK_IN_KERAS
from mxsame.rewriting.graph import unique_name
from mxsame.validation import InvalidValue, check

# layers that handle masks by passing them on
MERGING = ("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Concatenate")
KerasShape = Tuple[Optional[int], ...]
Order = Tuple[int, ...]


class KerasTensor(NamedTuple):
    """A tensor of the model. Its shape has None for the batch; `order` lists the axes of MXNet's array in the order of
    the tensor's axes.

    `feature_order` is set if the weights of a dense layer are reordered instead of the last axis: it is the position in
    MXNet's array of each element. `source` names the input of the net whose axes the tensor still has, if any."""

    tensor: TensorId
    shape: KerasShape
    order: Order
    feature_order: Optional[np.ndarray] = None
    source: str = ""

    @property
    def rank(self) -> int:
        return len(self.order)

    def axis(self, axis: int) -> int:
        """Returns the position in this tensor of an axis of MXNet's array."""
        return self.order.index(axis % self.rank)

    def permuted(self, entries: Sequence[Any]) -> List[Any]:
        """Returns entries, one for each of MXNet's axes, in the order of this tensor."""
        return [entries[axis] for axis in self.order]

    def order_with_last(self, axis: int) -> Order:
        """Returns the order of this tensor, with one of MXNet's axes moved to the end."""
        return (*(other for other in self.order if other != axis % self.rank), axis % self.rank)


def batch_first(rank: int, batch: int) -> Order:
    """Returns the order of axes with the batch first."""
    return (batch, *(axis for axis in range(rank) if axis != batch))


def channels_last(rank: int) -> Order:
    r"""Returns the order of axes (N, \*size, C) for an array (N, C, \*size)."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def keras_shape(shape: Shape, order: Sequence[int]) -> KerasShape:
    """Returns a shape with its axes in this order, and None for each dynamic length."""
    return tuple(shape[axis].traced if shape[axis].is_static else None for axis in order)


def num_elements(lengths: KerasShape) -> int:
    """Returns the number of elements of one entry of the batch, whose length is None."""
    return math.prod(length for length in lengths if length is not None)


def groups_of(source: Shape, target: Shape) -> List[Tuple[List[int], List[int]]]:
    """Returns the smallest groups of neighboring axes that a reshape maps to each other, as pairs of axes before and
    after it. A group ends where the product of all lengths up to there is the same on both sides. An axis of length 1
    belongs to the group before it."""
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
    """A model to write, the shapes of the net's inputs, and the orders of the axes of its inputs and outputs in the
    file. `form` is that of `Written`; `by_operators` names the layers of Keras that are written by their operators, and
    the reasons."""

    model: Model
    shapes: Mapping[str, Shape]
    orders: Sequence[Order]
    output_orders: Sequence[Order]
    form: Optional[str] = None
    by_operators: Sequence[str] = ()


class ModelBuilder:
    """Builds a model, and records which layers train a parameter, and which masks the net does not have.

    Parameters
    ----------
    trained : set of str
        The parameters that are trained.
    version : int
        2 for an .h5 file, which has layers only; 3 for a .keras file.
    name : str
        The name of the model.
    """

    def __init__(self, trained: Set[str], version: int, name: str = "network") -> None:
        self.trained, self.is_h5, self.name, self.version = trained, version == 2, name, version
        self.inputs: List[TensorId] = []
        self.layers: List[Layer] = []
        self.numbers: Dict[Any, int] = {}  # what identifies a layer that may be called again -> its index in `layers`
        self.owners: Dict[str, Any] = {}  # parameter -> the layer or node that trains it
        self.ignored_masks: Set[TensorId] = set()  # tensors that have a mask in Keras, but not in the net
        self.by_operators: List[str] = []  # Keras layers that are written by their operators, and why
        self._names: Set[str] = set()

    def unique(self, name: str) -> str:
        """Returns the name, with a number if another layer has it already."""
        name = unique_name(name, self._names)
        self._names.add(name)
        return name

    def input(self, name: str, shape: KerasShape, dtype: str) -> TensorId:
        """Adds an input layer; returns its tensor."""
        config = {"name": name, "dtype": dtype, "batch_shape": list(shape)}
        number = self.add(Layer("InputLayer", name, config, weight_specs=[]))
        self.inputs.append(self.call(number, (), {}))
        return self.inputs[-1]

    def add(self, layer: Layer) -> int:
        """Adds a layer; returns its number, the index in `layers`."""
        self.layers.append(layer)
        return len(self.layers) - 1

    def rename(self, number: int, name: str, outputs: Sequence[KerasTensor]) -> List[KerasTensor]:
        """Renames a layer whose outputs are not used yet; returns the outputs."""

        def updated(tensor: TensorId) -> TensorId:
            return tensor._replace(layer=name) if tensor.layer == old.name else tensor

        old = self.layers[number]
        self._names.discard(old.name)
        name = self.unique(name)
        self.layers[number] = replace(old, name=name, config={**old.config, "name": name})
        self.ignored_masks = set(map(updated, self.ignored_masks))
        return [x._replace(tensor=updated(x.tensor)) for x in outputs]

    def call(self, number: int, args: tuple, kwargs: Mapping[str, Any]) -> TensorId:
        """Adds a call of a layer; returns its output."""
        layer, call = self.layers[number], LayerCall(args, dict(kwargs))
        self.layers[number] = replace(layer, calls=[*layer.calls, call])
        tensor = TensorId(layer.name, len(layer.calls))
        if self.ignored_masks.intersection(call.tensors()):
            self._follow_mask(layer, tensor)
        return tensor

    def _follow_mask(self, layer: Layer, output: TensorId) -> None:
        """Records the output if Keras passes an ignored mask on to it. Raises a `ValueError` if the layer would use the
        mask."""
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

    def model(self, outputs: List[TensorId]) -> Model:
        """Returns the model with these outputs. Its layers are in Keras's order, without those that no output needs."""
        layers = keras_order({layer.name: layer for layer in self.layers}, outputs)
        return Model(self.name, layers, self.inputs, outputs, self.version)
