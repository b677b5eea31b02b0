"""Networks of `from_keras` as the layers that they are: copied with their configurations and weights, and called on the
tensors of the file. What has no layer in the file, or is a block of the user's, is written by its operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from mxsame.export_keras.model_builder import KerasTensor, ModelBuilder, lengths_of
from mxsame.export_keras.versions import call_of, entry_of, with_trainable
from mxsame.export_keras.writer import Writer
from mxsame.exporting.shapes import Shape, Shapes
from mxsame.exporting.walk import Composite
from mxsame.port import tensors, weights
from mxsame.port.cutting import sorted_calls
from mxsame.port.description import Layer, LayerCall, Model, TensorId, mapped
from mxsame.port.network import Network, Part
from mxsame.port.parameters import LoadedWeight
from mxsame.rewriting.graph import Graph, Node, Output, unused
from mxsame.tensors import dtype_attribute
from mxsame.validation import check

Path = Tuple[str, ...]
WriteBlock = Callable[[ModelBuilder, Part, Sequence[KerasTensor]], List[KerasTensor]]


def place(graph: Graph, shapes: Shapes, composites: Sequence[Composite], write: WriteBlock) -> None:
    """Let what follows a composite take variables that the writer writes by the composite; `write` writes a block into
    a builder by its operators."""
    dtypes, new = graph.dtypes(), {}
    for composite in composites:
        spliced = _Spliced(composite.block, [shapes[output] for output in composite.outputs], write)
        for number, output in enumerate(composite.outputs):
            if output in composite.inputs:
                continue
            name = unused(f"{composite.block.name}_output", {*graph.inputs, *graph.values})
            attrs = {"__dtype__": dtype_attribute(dtypes[output])} if dtypes.get(output) is not None else {}
            node = Node("null", name, list(composite.inputs), attrs, spec=spliced.output(number))
            graph.inputs[name], shapes.others[name] = zip(*shapes[output])
            shapes.share(Output(node), output)
            new[output] = Output(node)
    graph.replace(new)


class _Spliced:
    """A call of a network, whose layers are written when its first output is asked for."""

    def __init__(self, network: Network, shapes: Sequence[Shape], write: WriteBlock):
        self._network, self._shapes, self._write = network, shapes, write
        self._written: Tuple[Optional[Writer], List[KerasTensor]] = (None, [])

    def output(self, number: int) -> Callable[..., KerasTensor]:
        def value(w: Writer, *inputs: Any) -> KerasTensor:
            if self._written[0] is not w:
                self._written = w, Splicer(w, self._network, self._write).outputs(inputs, self._shapes)
            return self._written[1][number]

        return value


class Splicer:
    """Writes the layers of a network into the builder of a writer."""

    def __init__(self, w: Writer, network: Network, write: WriteBlock):
        self._w, self._network, self._write = w, network, write
        self._values: Dict[int, KerasTensor] = {}  # what was written first for the values of the network, by their keys
        self._keys: Dict[TensorId, Tuple[int, KerasTensor]] = {}  # the values that tensors of the file are
        self._tensors: Dict[Tuple[Path, TensorId], TensorId] = {}
        self._reasons: List[str] = []

    def outputs(self, inputs: Sequence[Any], shapes: Sequence[Shape]) -> List[KerasTensor]:
        """The values of the network's outputs, of these shapes."""
        network, model = self._network, self._network.description
        check(all(isinstance(x, KerasTensor) for x in inputs), "inputs of a network must depend on the net's inputs")
        for tensor, value, x in zip(model.inputs, network.inputs, inputs):
            self._note((), tensor, value, self._w.arranged(x, value.keras_order).tensor)
        self._model(model, ())
        check(not self._reasons, "; ".join(self._reasons))
        tensors = [self._tensors[(), tensor] for tensor in model.outputs]
        ends = zip(tensors, network.outputs, shapes)
        return [KerasTensor(tensor, lengths_of(shape, x.keras_order), x.keras_order) for tensor, x, shape in ends]

    def _note(self, path: Path, tensor: TensorId, value: Any, written: TensorId) -> None:
        """Note what was written for a tensor of a model."""
        self._tensors[path, tensor] = written
        if isinstance(value, tensors.Tensor):
            self._w.builder.shapes.setdefault(written, value.shape)
            if value.pads is None:
                self._keys[written] = value.key, KerasTensor(written, value.shape, value.keras_order)
                self._values.setdefault(*self._keys[written])

    def _model(self, model: Model, path: Path) -> None:
        """Write the calls of a model's layers."""
        for layer, number, call in sorted_calls(model):
            if layer.class_name == "InputLayer" or not layer.calls:
                continue
            full = (*path, layer.name)
            call = LayerCall(*mapped([list(call.args), call.kwargs], TensorId, lambda x: self._tensors[path, x]))
            found = self._network._states[full].calls[number]
            try:
                written = self._call(layer, full, call, found)
            except ValueError as error:
                self._reasons.append(f"layer {'/'.join(full)!r} ({layer.operator or layer.class_name}): {error}")
                written = [TensorId(layer.name, number, index) for index in range(len(found))]
            for index, (value, tensor) in enumerate(zip(found, written)):
                self._note(path, TensorId(layer.name, number, index), value, tensor)

    def _call(self, layer: Layer, path: Path, call: LayerCall, found: Sequence[Any]) -> List[TensorId]:
        """The outputs of a call: of the layer itself, of the layers in it, or of its operators."""
        try:
            copied = self._copied(layer, path)
        except ValueError as error:
            is_custom = self._network._states[path].is_custom
            if layer.model is not None and layer.wrapped is None and not is_custom:
                return self._flat(layer.model, path, call)
            return self._by_operators(path, call, found, error)
        call = call_of(layer, _without_keys(layer, call), self._network.description.version, self._w.is_h5)
        first = self._w.builder.call(copied, tuple(call.args), call.kwargs, getattr(found[0], "shape", ()))
        return [first._replace(output=index) for index in range(len(found))]

    def _copied(self, layer: Layer, path: Path) -> Layer:
        """The layer in the builder, which is there once for all calls."""
        builder, key = self._w.builder, (id(self._network), path)
        if key not in builder.layers:
            copied = fitted(self._network, layer, self._w.is_h5)
            self._w.own(_trained_names(layer), layer)
            builder.layers[key] = builder.add(replace(copied, name=builder.unique(layer.name)))
        return builder.layers[key]

    def _flat(self, model: Model, path: Path, call: LayerCall) -> List[TensorId]:
        """The outputs of a nested model, whose layers become those of the file."""
        call = _without_keys(Layer("Functional", model.name, {}, model=model), call)
        check(len(self._network._states[path].calls) == 1, "models in which layers are replaced must be called once")
        for tensor, given in zip(model.inputs, call.tensors()):
            self._tensors[path, tensor] = given
        self._model(model, path)
        return [self._tensors[path, tensor] for tensor in model.outputs]

    def _by_operators(self, path: Path, call: LayerCall, found: Sequence[Any], reason: ValueError) -> List[TensorId]:
        """The outputs of a layer that is written by its operators."""
        is_plain = all(isinstance(x, tensors.Tensor) and x.mask is None and x.pads is None for x in found)
        if not is_plain or not all(x.dtype == "float32" for x in found):
            raise reason
        given = {**self._values, **dict(self._keys[tensor] for tensor in call.tensors() if tensor in self._keys)}
        if found[0].key not in given:
            builder, part = self._w.builder, self._network.part(given.keys(), [x.key for x in found])
            count = len(builder.model.layers)
            written = self._write(builder, part, [given[key] for key in part.inputs])
            new = builder.model.layers[count:]
            if len(new) == 1 and len(new[0].calls) == 1:
                written = builder.renamed(written, new[0], path[-1])
        else:  # nothing is computed
            written = [given[x.key] for x in found]
        return [self._w.arranged(x, value.keras_order).tensor for x, value in zip(written, found)]


def _without_keys(layer: Layer, call: LayerCall) -> LayerCall:
    """A call of a nested model with its inputs in order, instead of a dict of them."""
    if layer.model is None or layer.wrapped is not None or not isinstance(call.args[0], dict):
        return call
    inputs = [call.args[0][key] for key in layer.model.keys]
    return LayerCall((inputs if len(inputs) > 1 else inputs[0],), call.kwargs)


# -- layers as a file has them


def fitted_model(network: Network, model: Model, is_h5: bool) -> Model:
    """Returns a model as a file of this format has it.

    Raises `ValueError` with all layers that it does not have."""
    layers, reasons = [], []
    for layer in model.layers:
        try:
            fits = fitted(network, layer, is_h5)
            calls = [call_of(layer, _without_keys(layer, call), model.version, is_h5) if call.args else call
                     for call in layer.calls]  # fmt: skip
            layers.append(replace(fits, calls=calls))
        except ValueError as error:
            reasons.append(f"layer {layer.name!r} ({layer.operator or layer.class_name}): {error}")
    check(not reasons, "; ".join(reasons))
    return replace(model, layers=layers, version=2 if is_h5 else 3)


def fitted(network: Network, layer: Layer, is_h5: bool) -> Layer:
    """Returns a layer, without its calls, as a file of this format has it: trained if its parameters are.

    Raises `ValueError` if it has none such."""
    check(id(layer) not in network.custom, "a block has taken its place")
    if layer.model is not None and layer.wrapped is None:
        model = fitted_model(network, layer.model, is_h5)
        config = {**layer.config, "trainable": layer.trainable or bool(_trained_names(layer))}
        new = replace(layer, config=config, model=model, calls=[], entry={})
        orders = [[(id(owner), spec.name) for owner, spec in weights.ordered(new, version)] for version in (2, 3)]
        check(not is_h5 or orders[0] == orders[1], "weights of nested models have another order in each Keras")
        return new
    entry, trained = entry_of(layer, network.description.version, is_h5), _is_trained(layer)
    if trained is not None:
        entry = with_trainable(entry, trained)
        return replace(layer, entry=entry, config={**layer.config, "trainable": trained}, calls=[])
    return replace(layer, entry=entry, calls=[])


def _parameters(layer: Layer) -> List[Tuple[Any, bool]]:
    """The parameters of a layer that may be trained, and whether the model says that they are."""
    return [
        (stored.parameter, layer.trainable and inner.trainable)
        for inner in layer.walk()
        for spec, stored in zip(inner.weight_specs or (), inner.weights)
        if spec.trained and isinstance(stored, LoadedWeight) and stored.parameter is not None
    ]


def _trained_names(layer: Layer) -> List[str]:
    return [parameter.name for parameter, _ in _parameters(layer) if parameter.grad_req != "null"]


def _is_trained(layer: Layer) -> Optional[bool]:
    """Whether a layer is trained now; None if that is as its configuration says."""
    parameters = _parameters(layer)
    trained = [parameter.grad_req != "null" for parameter, _ in parameters]
    if trained == [declared for _, declared in parameters]:
        return None
    names = [parameter.name for parameter, _ in parameters]
    check(len(set(trained)) == 1, "a layer's parameters must be trained all or none", parameters=names)
    return trained[0]
