"""Writes networks of `from_keras` as their original layers, with their configurations and weights. A layer that the
file format lacks, or that the user replaced by a block, is written operator by operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from mxsame.export_keras.model_builder import KerasTensor, all_trained, keras_shape
from mxsame.export_keras.writer import KerasWriter
from mxsame.exporting.blocks import Composite
from mxsame.exporting.lowering import lower
from mxsame.exporting.prepare import ExportedNet
from mxsame.exporting.shapes import Shape
from mxsame.exporting.writer import advice_for
from mxsame.keras_format import weights
from mxsame.keras_format.description import Layer, LayerCall, Model, TensorId
from mxsame.keras_format.topology import sorted_calls
from mxsame.keras_format.versions import call_of, entry_of, with_trainable
from mxsame.port import tensors
from mxsame.port.converters import converter_of
from mxsame.port.network import Network
from mxsame.port.parameters import loaded_weights
from mxsame.validation import InvalidValue, Refused, check

Path = Tuple[str, ...]
MASK_RULE = "a layer that is written by its operators must pass on the mask of its input unchanged"


class CompositeWriter(KerasWriter):
    """Writes a graph, and the blocks in it that are written as a whole."""

    def write(self) -> List[KerasTensor]:
        """Writes all nodes; returns the tensors of the graph's outputs."""
        lower(self)
        values = self.write_all()
        rule = "net must have outputs that depend on its inputs; received a constant output"
        check(all(isinstance(x, KerasTensor) for x in values), rule)
        return values

    def write_block(self, block: Any, inputs: Sequence[KerasTensor]) -> List[KerasTensor]:
        """Writes the operators of a block that is called on tensors of the file; returns its outputs."""
        shapes: List[List[int]] = [[1] * x.rank for x in inputs]  # in MXNet's order, with a batch of 1
        for shape, x in zip(shapes, inputs):
            for axis, length in zip(x.order, x.shape):
                shape[axis] = length or 1
        is_static = all(None not in x.shape[1:] for x in inputs)
        check(is_static, "only the batch may be dynamic", shapes=[x.shape for x in inputs])
        exported = ExportedNet.of(block, shapes)
        named, traced = dict(zip(exported.inputs.shapes, inputs)), self.options.trace(exported)
        return CompositeWriter(traced, self.builder, named, self.options, advice_for(block)).write()

    def composite_outputs(self, composite: Composite, inputs: List[Any]) -> List[Any]:
        """Writes a network of `from_keras`, or a block with the user's function; returns the outputs."""
        if self.custom.has(composite.block):
            return super().composite_outputs(composite, inputs)
        return NetworkWriter(self, composite.block).write(inputs, composite.shapes)


class NetworkWriter:
    """Copies the layers of a network into the model of a writer."""

    def __init__(self, w: CompositeWriter, network: Network):
        self._w, self._network = w, network
        self._tensors: Dict[Tuple[Path, TensorId], TensorId] = {}  # the path of a model, and its tensor -> the file's
        self._written: List[Tuple[TensorId, tensors.Tensor]] = []  # the file's tensors, and the network's
        self._reasons: List[str] = []

    def write(self, inputs: Sequence[Any], shapes: Sequence[Shape]) -> List[KerasTensor]:
        """Writes the network; returns its outputs, which have these shapes."""
        network, model = self._network, self._network.description
        check(all(isinstance(x, KerasTensor) for x in inputs), "inputs of a network must depend on the net's inputs")
        for tensor, value, x in zip(model.inputs, network.inputs, inputs):
            self._record((), tensor, value, self._w.permute(x, value.keras_order).tensor)
        self._write_calls(model, ())
        if self._reasons:
            raise Refused(self._reasons)
        written = [self._tensors[(), tensor] for tensor in model.outputs]
        # MXNet's operators after the network have no masks
        self._w.builder.ignored_masks.update(self._masked_tensors() & set(written))
        outputs = zip(written, network.outputs, shapes)
        return [KerasTensor(tensor, keras_shape(shape, x.keras_order), x.keras_order) for tensor, x, shape in outputs]

    def _record(self, path: Path, tensor: TensorId, value: Any, written: TensorId) -> None:
        """Records that `written`, a tensor of the file, is a model's `tensor`, which the network built as `value`."""
        self._tensors[path, tensor] = written
        if isinstance(value, tensors.Tensor):
            self._written.append((written, value))

    def _masked_tensors(self) -> Set[TensorId]:
        """Returns the tensors of the file that have a mask."""
        return {tensor for tensor, value in self._written if value.mask is not None}

    def _tensors_by_key(self, call: LayerCall) -> Dict[int, KerasTensor]:
        """Maps the keys of the network's tensors to the file's tensors. Of several tensors with one key, an input of
        the call is preferred, then the one that was written first."""
        by_key: Dict[int, KerasTensor] = {}
        for tensor, value in (*self._inputs(call), *self._written):
            if value.pads is None:
                by_key.setdefault(value.key, KerasTensor(tensor, value.shape, value.keras_order))
        return by_key

    def _inputs(self, call: LayerCall) -> List[Tuple[TensorId, tensors.Tensor]]:
        inputs = call.tensors()
        return [(tensor, value) for tensor, value in self._written if tensor in inputs]

    def _write_calls(self, model: Model, path: Path) -> None:
        """Writes the calls of a model's layers."""
        for layer, number, call in sorted_calls(model):
            if layer.class_name == "InputLayer" or not layer.calls:
                continue
            layer_path = (*path, layer.name)
            call = call.map_tensors(lambda x: self._tensors[path, x])
            recorded = self._network.layer_state(layer_path).calls[number]
            try:
                written = self._write_call(layer, layer_path, call, recorded)
            except InvalidValue as error:
                self._reasons.append(_reason_with_name(layer, layer_path, error))
                written = [TensorId(layer.name, number, index) for index in range(len(recorded))]
            for index, (value, tensor) in enumerate(zip(recorded, written)):
                self._record(path, TensorId(layer.name, number, index), value, tensor)

    def _write_call(self, layer: Layer, path: Path, call: LayerCall, recorded: Sequence[Any]) -> List[TensorId]:
        """Writes a call of a layer; returns the outputs. If the layer cannot be copied, a nested model is written layer
        by layer, and any other layer operator by operator."""
        try:
            number = self._copy(layer, path)
        except InvalidValue as error:
            is_custom = self._network.layer_state(path).is_custom
            if layer.model is not None and layer.wrapped is None and not is_custom:
                return self._inline(layer.model, path, call)
            self._w.builder.by_operators += [] if is_custom else [_reason_with_name(layer, path, error)]
            return self._write_by_operators(path, call, recorded, error)
        builder, version = self._w.builder, self._network.description.version
        call = call_of(layer, _without_keys(layer, call), version, builder.version)
        first = builder.call(number, call.args, call.kwargs)
        return [first._replace(output=index) for index in range(len(recorded))]

    def _copy(self, layer: Layer, path: Path) -> int:
        """Copies a layer into the file's model at its first call; returns the number of the copy."""
        builder, key = self._w.builder, (id(self._network), path)
        if key not in builder.numbers:
            copy = layer_for_format(self._network, layer, builder.version)
            self._w.claim(_trained_names(layer), layer)
            builder.numbers[key] = builder.add(replace(copy, name=builder.unique(layer.name)))
        return builder.numbers[key]

    def _inline(self, model: Model, path: Path, call: LayerCall) -> List[TensorId]:
        """Writes the layers of a nested model into the file's model itself; returns the outputs."""
        call = _without_keys(Layer("Functional", model.name, {}, model=model), call)
        is_called_once = len(self._network.layer_state(path).calls) == 1
        check(is_called_once, "models in which layers are replaced must be called once")
        for tensor, written in zip(model.inputs, call.tensors()):
            self._tensors[path, tensor] = written
        self._write_calls(model, path)
        return [self._tensors[path, tensor] for tensor in model.outputs]

    def _write_by_operators(self, path: Path, call: LayerCall, recorded: Sequence[Any], reason: Any) -> List[TensorId]:
        """Writes the operators of a layer, which cannot be copied for this reason; returns the outputs. Raises `reason`
        if these are not float32 tensors."""
        if not all(isinstance(x, tensors.Tensor) and x.pads is None and x.dtype == "float32" for x in recorded):
            raise reason
        by_key, masked, builder = self._tensors_by_key(call), self._masked_tensors(), self._w.builder
        if recorded[0].key not in by_key:
            part = self._network.part(by_key.keys(), [x.key for x in recorded])
            count = len(builder.layers)
            with builder.ignoring_masks(masked):
                written = self._w.write_block(part, [by_key[key] for key in part.inputs])
            if [len(each.calls) for each in builder.layers[count:]] == [1]:
                written = builder.rename(count, path[-1], written)
        else:  # the layer returns a tensor that is already written
            written = [by_key[x.key] for x in recorded]
            check(all((x.mask is None) == (y.tensor not in masked) for x, y in zip(recorded, written)), MASK_RULE)
        written = [self._w.permute(x, value.keras_order) for x, value in zip(written, recorded)]
        input_masks = {value.mask.key for _, value in self._inputs(call) if value.mask is not None}
        for x, value in zip(written, recorded):
            if value.mask is not None:
                check(value.mask.key in input_masks and x.tensor in builder.ignored_masks | masked, MASK_RULE)
                builder.ignored_masks.discard(x.tensor)
        return [x.tensor for x in written]


def _reason_with_name(layer: Layer, path: Path, reason: ValueError) -> str:
    return f"layer {'/'.join(path)!r} ({layer.operator or layer.class_name}): {reason}"


def _without_keys(layer: Layer, call: LayerCall) -> LayerCall:
    """Returns a call of a nested model with a list of inputs in place of a dict. Other calls do not change."""
    if layer.model is None or layer.wrapped is not None or not isinstance(call.args[0], dict):
        return call
    inputs = [call.args[0][key] for key in layer.model.keys]
    return LayerCall((inputs if len(inputs) > 1 else inputs[0],), call.kwargs)


# -- layers for a file format


def model_for_format(network: Network, model: Model, target: int) -> Model:
    """Converts a model for the file format of a version of Keras, 2 or 3.

    Raises a `ValueError` that lists all layers which the format lacks."""
    layers, reasons = [], []
    for layer in model.layers:
        try:
            converted = layer_for_format(network, layer, target)
            calls = (_without_keys(layer, call) for call in layer.calls if call.args)
            layers.append(replace(converted, calls=[call_of(layer, call, model.version, target) for call in calls]))
        except InvalidValue as error:
            reasons.append(_reason_with_name(layer, (layer.name,), error))
    if reasons:
        raise Refused(reasons)
    return replace(model, layers=layers, version=target)


def layer_for_format(network: Network, layer: Layer, target: int) -> Layer:
    """Converts a layer, without its calls, for the file format of a version of Keras. It is trainable if its parameters
    are trained.

    Raises a `ValueError` if the format lacks the layer."""
    check(layer not in network.custom, "the user replaced it by a block")
    if layer.model is not None and layer.wrapped is None:
        model = model_for_format(network, layer.model, target)
        config = {**layer.config, "trainable": layer.trainable or bool(_trained_names(layer))}
        converted = replace(layer, config=config, model=model, calls=[], entry={})
        ordered = (weights.weights_in_order(converted, version) for version in (2, 3))
        keras_2, keras_3 = ([(id(owner), spec.name) for owner, spec in pairs] for pairs in ordered)
        rule = "the weights of a nested model must have one order in Keras 2 and Keras 3"
        check(target == 3 or keras_2 == keras_3, rule)
        return converted
    is_known = converter_of(layer) is not None
    entry, trained = entry_of(layer, is_known, network.description.version, target), _is_trained(layer)
    layer = replace(layer, stored_as="RNN" if layer.stored_as == "RNN" else "")
    if trained is not None:
        entry = with_trainable(entry, trained)
        return replace(layer, entry=entry, config={**layer.config, "trainable": trained}, calls=[])
    return replace(layer, entry=entry, calls=[])


def _parameters(layer: Layer) -> List[Tuple[Any, bool]]:
    """Returns pairs of a parameter of a trainable weight, and whether the layer's configuration trains it."""
    return [
        (stored.parameter, layer.trainable and inner.trainable)
        for inner in layer.walk()
        for spec, stored in loaded_weights(inner)
        if spec.trainable
    ]


def _trained_names(layer: Layer) -> List[str]:
    return [parameter.name for parameter, _ in _parameters(layer) if parameter.grad_req != "null"]


def _is_trained(layer: Layer) -> Optional[bool]:
    """Returns whether a layer is trained now, if that differs from its configuration; otherwise None."""
    parameters = _parameters(layer)
    if all(declared == (parameter.grad_req != "null") for parameter, declared in parameters):
        return None
    return all_trained({parameter.name for parameter, _ in parameters}, set(_trained_names(layer)))
