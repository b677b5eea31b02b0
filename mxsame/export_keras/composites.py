"""Writes networks of `from_keras` as their original layers, copied with configurations and weights, and called on the
tensors of the file. A layer that the format lacks, or that the user replaced by a block, is written by its
operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from mxsame.export_keras.model_builder import KerasTensor, ModelBuilder, keras_shape
from mxsame.export_keras.versions import call_of, entry_of, with_trainable
from mxsame.export_keras.writer import KerasWriter
from mxsame.exporting.shapes import Shape
from mxsame.exporting.writer import UnsupportedNet
from mxsame.port import tensors, weights
from mxsame.port.cutting import sorted_calls
from mxsame.port.description import Layer, LayerCall, Model, TensorId, map_leaves
from mxsame.port.network import Network, Part
from mxsame.port.parameters import LoadedWeight
from mxsame.validation import InvalidValue, check

Path = Tuple[str, ...]
MASKS = "a layer that is written by its operators must pass on the mask of its input unchanged"
WriteBlock = Callable[[ModelBuilder, Part, Sequence[KerasTensor]], List[KerasTensor]]


class NetworkWriter:
    """Copies the layers of a network to the builder of a writer; `write` writes a block by its operators."""

    def __init__(self, w: KerasWriter, network: Network, write: WriteBlock):
        self._w, self._network, self._write = w, network, write
        self._tensors: Dict[Tuple[Path, TensorId], TensorId] = {}  # of a model at this path -> of the file
        self._written: List[Tuple[TensorId, tensors.Tensor]] = []  # tensors of the file, and the network's
        self._reasons: List[str] = []

    def outputs(self, inputs: Sequence[Any], shapes: Sequence[Shape]) -> List[KerasTensor]:
        """Returns the tensors of the network's outputs, with these shapes."""
        network, model = self._network, self._network.description
        check(all(isinstance(x, KerasTensor) for x in inputs), "inputs of a network must depend on the net's inputs")
        for tensor, value, x in zip(model.inputs, network.inputs, inputs):
            self._record((), tensor, value, self._w.permute(x, value.keras_order).tensor)
        self._model(model, ())
        if self._reasons:
            raise UnsupportedNet("; ".join(self._reasons), self._reasons)
        written = [self._tensors[(), tensor] for tensor in model.outputs]
        # MXNet's operators after the network have no masks
        self._w.builder.ignored_masks.update(self._masked() & set(written))
        ends = zip(written, network.outputs, shapes)
        return [KerasTensor(tensor, keras_shape(shape, x.keras_order), x.keras_order) for tensor, x, shape in ends]

    def _record(self, path: Path, tensor: TensorId, value: Any, written: TensorId) -> None:
        """Records the tensor of the file that was written for a tensor of a model."""
        self._tensors[path, tensor] = written
        if isinstance(value, tensors.Tensor):
            self._written.append((written, value))

    def _masked(self) -> Set[TensorId]:
        """Returns the tensors of the file that have a mask."""
        return {tensor for tensor, value in self._written if value.mask is not None}

    def _written_for(self, call: LayerCall) -> Dict[int, KerasTensor]:
        """Returns the tensor of the file for each of the network's tensors, by its key: an input of the call, or what
        was written first."""
        written: Dict[int, KerasTensor] = {}
        for tensor, value in (*self._inputs(call), *self._written):
            if value.pads is None:
                written.setdefault(value.key, KerasTensor(tensor, value.shape, value.keras_order))
        return written

    def _inputs(self, call: LayerCall) -> List[Tuple[TensorId, tensors.Tensor]]:
        given = call.tensors()
        return [(tensor, value) for tensor, value in self._written if tensor in given]

    def _model(self, model: Model, path: Path) -> None:
        """Writes the calls of a model's layers."""
        for layer, number, call in sorted_calls(model):
            if layer.class_name == "InputLayer" or not layer.calls:
                continue
            layer_path = (*path, layer.name)
            call = LayerCall(*map_leaves([list(call.args), call.kwargs], TensorId, lambda x: self._tensors[path, x]))
            found = self._network.layer_state(layer_path).calls[number]
            try:
                written = self._call(layer, layer_path, call, found)
            except InvalidValue as error:
                self._reasons.append(f"layer {'/'.join(layer_path)!r} ({layer.operator or layer.class_name}): {error}")
                written = [TensorId(layer.name, number, index) for index in range(len(found))]
            for index, (value, tensor) in enumerate(zip(found, written)):
                self._record(path, TensorId(layer.name, number, index), value, tensor)

    def _call(self, layer: Layer, path: Path, call: LayerCall, found: Sequence[Any]) -> List[TensorId]:
        """Writes a call as the layer itself, else as its inner layers, else by its operators; returns the outputs."""
        try:
            copied = self._copied(layer, path)
        except InvalidValue as error:
            is_custom = self._network.layer_state(path).is_custom
            if layer.model is not None and layer.wrapped is None and not is_custom:
                return self._inline(layer.model, path, call)
            return self._by_operators(path, call, found, error)
        call = call_of(layer, _without_keys(layer, call), self._network.description.version, self._w.builder.is_h5)
        first = self._w.builder.call(copied, tuple(call.args), call.kwargs)
        return [first._replace(output=index) for index in range(len(found))]

    def _copied(self, layer: Layer, path: Path) -> Layer:
        """Returns the copy of the layer in the builder, shared by all its calls."""
        builder, key = self._w.builder, (id(self._network), path)
        if key not in builder.layers:
            copied = for_format(self._network, layer, self._w.builder.is_h5)
            self._w.claim(_trained_names(layer), layer)
            builder.layers[key] = builder.add(replace(copied, name=builder.unique(layer.name)))
        return builder.layers[key]

    def _inline(self, model: Model, path: Path, call: LayerCall) -> List[TensorId]:
        """Inlines a nested model: writes its layers at the top level, and returns the outputs."""
        call = _without_keys(Layer("Functional", model.name, {}, model=model), call)
        is_called_once = len(self._network.layer_state(path).calls) == 1
        check(is_called_once, "models in which layers are replaced must be called once")
        for tensor, given in zip(model.inputs, call.tensors()):
            self._tensors[path, tensor] = given
        self._model(model, path)
        return [self._tensors[path, tensor] for tensor in model.outputs]

    def _by_operators(self, path: Path, call: LayerCall, found: Sequence[Any], reason: ValueError) -> List[TensorId]:
        """Writes a layer by its operators; returns the outputs."""
        can_be_written = all(isinstance(x, tensors.Tensor) and x.pads is None and x.dtype == "float32" for x in found)
        if not can_be_written:
            raise reason
        given, masked, builder = self._written_for(call), self._masked(), self._w.builder
        if found[0].key not in given:
            part = self._network.part(given.keys(), [x.key for x in found])
            count = len(builder.model.layers)
            with builder.ignoring_masks(masked):
                written = self._write(builder, part, [given[key] for key in part.inputs])
            new = builder.model.layers[count:]
            if len(new) == 1 and len(new[0].calls) == 1:
                written = builder.renamed(written, new[0], path[-1])
        else:  # the layer returns a tensor that is already written
            written = [given[x.key] for x in found]
            check(all((x.mask is None) == (y.tensor not in masked) for x, y in zip(found, written)), MASKS)
        written = [self._w.permute(x, value.keras_order) for x, value in zip(written, found)]
        masks = {value.mask.key for _, value in self._inputs(call) if value.mask is not None}
        for x, value in zip(written, found):
            if value.mask is not None:
                check(value.mask.key in masks and x.tensor in builder.ignored_masks | masked, MASKS)
                builder.ignored_masks.discard(x.tensor)
        return [x.tensor for x in written]


def _without_keys(layer: Layer, call: LayerCall) -> LayerCall:
    """Returns a call of a nested model with its inputs in order, instead of a dict of them."""
    if layer.model is None or layer.wrapped is not None or not isinstance(call.args[0], dict):
        return call
    inputs = [call.args[0][key] for key in layer.model.keys]
    return LayerCall((inputs if len(inputs) > 1 else inputs[0],), call.kwargs)


# -- layers for a file format


def model_for_format(network: Network, model: Model, is_h5: bool) -> Model:
    """Returns a model converted for this file format.

    Raises a `ValueError` that lists all layers which the format lacks."""
    layers, reasons = [], []
    for layer in model.layers:
        try:
            fits = for_format(network, layer, is_h5)
            calls = [call_of(layer, _without_keys(layer, call), model.version, is_h5) if call.args else call
                     for call in layer.calls]  # fmt: skip
            layers.append(replace(fits, calls=calls))
        except InvalidValue as error:
            reasons.append(f"layer {layer.name!r} ({layer.operator or layer.class_name}): {error}")
    if reasons:
        raise UnsupportedNet("; ".join(reasons), reasons)
    return replace(model, layers=layers, version=2 if is_h5 else 3)


def for_format(network: Network, layer: Layer, is_h5: bool) -> Layer:
    """Returns a layer converted for this file format, without its calls; trainable if its parameters are trained.

    Raises a `ValueError` if the format lacks the layer."""
    check(id(layer) not in network.custom, "the user replaced it by a block")
    if layer.model is not None and layer.wrapped is None:
        model = model_for_format(network, layer.model, is_h5)
        config = {**layer.config, "trainable": layer.trainable or bool(_trained_names(layer))}
        new = replace(layer, config=config, model=model, calls=[], entry={})
        orders = [[(id(owner), spec.name) for owner, spec in weights.ordered(new, version)] for version in (2, 3)]
        rule = "the weights of a nested model must have one order in Keras 2 and Keras 3"
        check(not is_h5 or orders[0] == orders[1], rule)
        return new
    entry, trained = entry_of(layer, network.description.version, is_h5), _is_trained(layer)
    if trained is not None:
        entry = with_trainable(entry, trained)
        return replace(layer, entry=entry, config={**layer.config, "trainable": trained}, calls=[])
    return replace(layer, entry=entry, calls=[])


def _parameters(layer: Layer) -> List[Tuple[Any, bool]]:
    """Returns the trainable parameters of a layer, and whether the model declares each as trainable."""
    return [
        (stored.parameter, layer.trainable and inner.trainable)
        for inner in layer.walk()
        for spec, stored in zip(inner.weight_specs or (), inner.weights)
        if spec.trainable and isinstance(stored, LoadedWeight) and stored.parameter is not None
    ]


def _trained_names(layer: Layer) -> List[str]:
    return [parameter.name for parameter, _ in _parameters(layer) if parameter.grad_req != "null"]


def _is_trained(layer: Layer) -> Optional[bool]:
    """Returns whether a layer is trained now; None if it agrees with its configuration."""
    parameters = _parameters(layer)
    trained = [parameter.grad_req != "null" for parameter, _ in parameters]
    if trained == [declared for _, declared in parameters]:
        return None
    names = [parameter.name for parameter, _ in parameters]
    check(len(set(trained)) == 1, "the parameters of a layer must be all trained or all frozen", parameters=names)
    return trained[0]
