"""Writes a graph as a Keras model, with one emitter for each kind of node.

Keras's arrays have the batch first and mostly the channels last. A `KerasTensor` records which axis of MXNet's array
each of its axes is, so a Permute layer is written only if a layer needs another order.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Callable, Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame.export_keras.model_builder import (
    KerasShape,
    KerasTensor,
    ModelBuilder,
    Order,
    all_trained,
    channels_last,
    groups_of,
    keras_shape,
    num_elements,
)
from mxsame.exporting.blocks import NetGraph
from mxsame.exporting.custom import CustomEmitters
from mxsame.exporting.prepare import MOVES, ExportedNet, graph_of
from mxsame.exporting.shapes import DynamicAxes, Shape
from mxsame.exporting.writer import Emitters, GraphWriter
from mxsame.keras_format.description import Layer, TensorId, WeightSpec
from mxsame.port.converters import weight_specs_of
from mxsame.port.network import Network
from mxsame.port.table import LAYERS
from mxsame.rewriting import constants
from mxsame.rewriting.graph import Node, Output
from mxsame.validation import check, check_type

EMPTY: Mapping[str, Any] = MappingProxyType({})
EMITTERS = Emitters()
writes = EMITTERS.writes

# operators whose data may be a constant
TAKES_CONSTANTS = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "take")
# Layers whose `data_format` is written, since its default depends on the configuration of the user's Keras. In tf.keras
# 2, other 1-D layers have none.
HAS_DATA_FORMAT = re.compile(r"(Depthwise)?Conv.D.*|.*Pooling.D|(ZeroPadding|Cropping|UpSampling)[23]D|Flatten")
PARAMETER_SUFFIX = re.compile(
    r"_(weight|bias|gamma|beta|alpha|parameters|i2h_weight|l0_i2h_weight|depthwise_weight)$|_fwd$"
)


class Weight(NamedTuple):
    """A weight of a layer: its array, and the output of the graph from which the array is computed."""

    array: np.ndarray
    source: Output


class Options(NamedTuple):
    """The version of Keras whose format the file has, 2 or 3; whether inputs and outputs keep channels first; the
    user's functions, which are not called in a draft; and the networks of `from_keras` that are written by their
    operators."""

    version: int
    channels_first: bool
    functions: CustomEmitters
    by_operators: FrozenSet[Any] = frozenset()
    is_draft: bool = False

    def is_whole(self, block: Any) -> bool:
        """Returns whether a block is written as a whole."""
        is_network = isinstance(block, Network) and block.matches_description and block not in self.by_operators
        return is_network or self.functions.has(block)

    def trace(self, exported: ExportedNet) -> NetGraph:
        """Returns the graph of a net, with variables in place of the blocks that are written as a whole."""
        return graph_of(exported, DynamicAxes(batch=True, size=False), trained=True, is_whole=self.is_whole)


class KerasWriter(GraphWriter):
    """Writes the layers of a graph to a `ModelBuilder`.

    Parameters
    ----------
    traced : mxsame.exporting.blocks.NetGraph
        The graph to write.
    builder : ModelBuilder
        Builds the model of the file.
    inputs : mapping of str to KerasTensor
        The graph's inputs, and tensors of the model in their place.
    options : Options
        How the file is written.
    advice
        As for `GraphWriter`.
    """

    function, format = "to_keras", "Keras"

    def __init__(
        self,
        traced: NetGraph,
        builder: ModelBuilder,
        inputs: Mapping[str, KerasTensor],
        options: Options,
        advice: Mapping[str, str],
    ):
        super().__init__(traced, EMITTERS, options.functions, advice)
        self.builder, self.options = builder, options
        self._permuted: Dict[Tuple[TensorId, Order], KerasTensor] = {}
        self.channels_last_inputs: Dict[str, Order] = {}  # inputs that a layer takes with channels last, and this order
        self._inputs = inputs

    # -- overrides of GraphWriter

    def variable(self, node: Node) -> Any:
        """Returns the tensor of an input. For a parameter, returns its output in the graph; emitters look up its
        array."""
        return self._inputs.get(node.name, Output(node))

    def placeholder(self, output: Output) -> KerasTensor:
        """Returns a tensor of the output's shape that no layer computes."""
        order = tuple(range(len(self.shape(output))))
        return KerasTensor(TensorId(output.node.name), self.lengths(output, order), order)

    def input_for_user(self, output: Output) -> Any:
        """Returns a tensor with its axes in MXNet's order, or an array."""
        x = self.written(output)
        return self.permute(x, range(x.rank)) if isinstance(x, KerasTensor) else self.computed(x)

    def output_of_user(self, value: Any, shape: Shape) -> KerasTensor:
        check_type(isinstance(value, KerasTensor), "custom must return what write returns", custom=value)
        order = tuple(range(len(shape)))
        return KerasTensor(value.tensor, keras_shape(shape, order), order)

    def write_function(self, source: Any) -> Callable[..., Any]:
        """Returns a function that calls a layer or an operator. The next call of a block calls the layers that its
        first call has written."""
        numbers = itertools.count()

        def write(class_name: str, /, *inputs: Any, weights: Any = (), outputs: int = 1, **config: Any) -> Any:
            if class_name not in LAYERS:
                out = self.add_operator(class_name, *inputs, shape=(), **config)
            else:
                are_tensors = inputs and all(isinstance(x, KerasTensor) for x in inputs)
                rule = f"{class_name} must be called on inputs of the function, or on outputs of write"
                check_type(are_tensors, rule, inputs=[type(x).__name__ for x in inputs])
                key = (source, next(numbers))
                if key not in self.builder.numbers:
                    self.builder.numbers[key] = self._custom_layer(class_name, source, config, weights)
                args = ([x.tensor for x in inputs] if len(inputs) > 1 else inputs[0].tensor,)
                out = self._call(self.builder.numbers[key], args, {}, inputs[0], ())
            return [self.output(out, number, (), ()) for number in range(outputs)] if outputs > 1 else out

        return write

    def _custom_layer(self, class_name: str, source: Any, config: Dict[str, Any], weights: Sequence[Any]) -> int:
        """Adds a layer of a user's function. It is trainable if a parameter of the operator or block is trained, or if
        there are no parameters."""
        is_node = isinstance(source, Node)
        parameters = set().union(*(map(self._parameters, source.inputs) if is_node else [source.collect_params()]))
        config = {"trainable": bool(parameters & self.builder.trained) or not parameters, **config}
        layer = self._make_layer(class_name, self.builder.unique(layer_name(source.name)), config)
        names, shapes = [spec.name for spec in layer.weight_specs or ()], [np.shape(array) for array in weights]
        rule = f"weights of {class_name} must be {', '.join(names) or 'none'}"
        check(len(weights) == len(names), rule, shapes=shapes)
        arrays = [np.ascontiguousarray(array, "float32") for array in weights]
        return self.builder.add(replace(layer, weights=arrays))

    def _write_by_user(self, source: Any, inputs: Sequence[Output], shapes: Mapping[int, Shape]) -> List[Any]:
        """Calls the user's function, except in a draft: then it returns tensors that no layer computes."""
        if not self.options.is_draft:
            return super()._write_by_user(source, inputs, shapes)
        self.custom.function_of(source.op if isinstance(source, Node) else source)  # which counts as used
        return [self.output_of_user(KerasTensor(TensorId(source.name), (), ()), shape) for shape in shapes.values()]

    def _write(self, node: Node) -> None:
        """Writes a node. If it depends on parameters only, its array is computed when an emitter needs it."""
        dtypes = [self._dtypes.get(output) for output in self.outputs_of(node)]
        allowed = {"float32"} if Output(node) in self.graph.outputs else {"float32", "bool"}  # written as 0 and 1
        others = sorted({np.dtype(dtype).name for dtype in dtypes if dtype is not None} - allowed)
        shapes = [x.shape for x in map(self.written, node.inputs) if isinstance(x, KerasTensor)]
        if constants.is_deterministic(node) and all(isinstance(self.written(source), Output) for source in node.inputs):
            self._written.update({output: output for output in self.outputs_of(node)})
        elif node.inputs and isinstance(self._written[node.inputs[0]], Output) and node.kind not in TAKES_CONSTANTS:
            self.refuse(node, f"the data of an operator must depend on the net's inputs; received {self.path_to(node)}")
        elif any(None in shape[1:] for shape in shapes):
            self.refuse(node, f"only the batch may be dynamic; received shapes={shapes} of {self.path_to(node)}")
        else:
            super()._write(node)
        if others and not isinstance(self._written[Output(node)], Output):
            self.refusals.append(f"arrays must be float32; received {', '.join(others)} of {self.path_to(node)}")

    # -- reading, for emitters

    def lengths(self, output: Output, order: Sequence[int]) -> KerasShape:
        """Returns the lengths of an output of the graph, with its axes in this order."""
        return keras_shape(self.shape(output), order)

    def weight(self, output: Any) -> Weight:
        """Returns a parameter, or an array that is computed from parameters, as the weight of a layer."""
        check(not isinstance(output, KerasTensor), "weights must depend on parameters only")
        return Weight(self.computed(output), output)

    def constant(self, output: Output, x: KerasTensor) -> Any:
        """Returns a constant as a number, or as an array that broadcasts with x, with the axes of x after the batch."""
        trained = sorted(self._parameters(output) & self.builder.trained)
        check(not trained, f"a trained parameter must be a weight of a Keras layer; received {', '.join(trained)}")
        array = self.computed(output)
        if (array == array.ravel()[:1]).all():
            return float(array.ravel()[0])
        array = array.reshape((1,) * (x.rank - array.ndim) + array.shape)
        agree = array.ndim == x.rank and array.shape[x.order[0]] == 1
        check(agree, "a constant must have the data's axes, and a batch of 1", shape=array.shape)
        return array.transpose(x.order)[0].astype("float32")

    def name_of(self, weight: Weight) -> str:
        """Returns a name for the layer that has a weight, from the name of the parameter."""
        variables = (node.name for node in self.graph.nodes([weight.source]) if node.op == "null")
        return layer_name(next(variables))

    def is_frozen(self, output: Output) -> bool:
        """Returns whether an output depends on no trained parameter."""
        return not self._parameters(output) & self.builder.trained

    def _parameters(self, output: Output) -> Set[str]:
        return {node.name for node in self.graph.nodes([output]) if node.op == "null"}

    # -- writing, for emitters

    def add_layer(
        self,
        class_name: str,
        config: Dict[str, Any],
        *inputs: KerasTensor,
        shape: Optional[KerasShape] = None,
        order: Optional[Order] = None,
        weights: Mapping[str, Weight] = EMPTY,
        suffix: str = "",
        call: Mapping[str, Any] = EMPTY,
    ) -> KerasTensor:
        """Calls a layer on tensors; returns its output, by default with the shape and axis order of the first tensor.

        `weights` has Keras's names as keys. `suffix` ends the name of a layer that is only a part of the node. `call`
        contains further arguments of the call."""
        sources = tuple((weights[name].source.node.name, weights[name].source.index) for name in sorted(weights))
        features = None if inputs[0].feature_order is None else inputs[0].feature_order.tobytes()
        key = (class_name, json.dumps(config), sources, suffix, features)
        if not weights or key not in self.builder.numbers:
            self.builder.numbers[key] = self._new_layer(class_name, config, weights, suffix)
        tensors = [x.tensor for x in inputs]
        args = (tensors if len(tensors) > 1 else tensors[0],)
        out = self._call(self.builder.numbers[key], args, call, inputs[0], shape)
        return out if order is None else KerasTensor(out.tensor, out.shape, order)

    def add_operator(
        self,
        class_name: str,
        *args: Any,
        shape: Optional[KerasShape] = None,
        call: Mapping[str, Any] = EMPTY,
        **config: Any,
    ) -> KerasTensor:
        """Calls a function of `keras.ops` on tensors and numbers; returns its output, by default with the shape of the
        first tensor. `class_name` starts with the module of the function, unless that is `numpy`."""
        check(not self.builder.is_h5, "an .h5 file has layers only: use a path that ends in .keras")
        name = self.builder.unique(layer_name(self.node.name))
        module, _, class_name = class_name.rpartition(".")
        operator = f"{module or 'numpy'}.{class_name}"
        number = self.builder.add(Layer(class_name, name, {"name": name, **config}, operator=operator, weight_specs=[]))
        tensors = tuple(x.tensor if isinstance(x, KerasTensor) else x for x in args)
        return self._call(number, tensors, call, next(x for x in args if isinstance(x, KerasTensor)), shape)

    def _call(
        self, number: int, args: tuple, call: Mapping[str, Any], like: KerasTensor, shape: Optional[KerasShape]
    ) -> KerasTensor:
        """Calls a layer; returns its output, with the axis order of `like`, and by default its shape."""
        shape = like.shape if shape is None else shape
        return like._replace(tensor=self.builder.call(number, args, call), shape=shape)

    def output(self, x: KerasTensor, number: int, shape: KerasShape, order: Order) -> KerasTensor:
        """Returns output `number` of the call that returned x."""
        return KerasTensor(x.tensor._replace(output=number), shape, order)

    def _new_layer(self, class_name: str, config: Dict[str, Any], weights: Mapping[str, Weight], suffix: str) -> int:
        name = next(map(self.name_of, weights.values()), layer_name(self.node.name))
        name = self.builder.unique(f"{name}_{suffix}" if suffix else name)
        layer = self._make_layer(class_name, name, config)
        weight_specs = layer.weight_specs or []
        is_complete = {spec.name for spec in weight_specs} == weights.keys()
        check(is_complete, f"a {class_name} must have the weights of its class", got=weights)
        config = {**layer.config, "trainable": self._is_trained(weight_specs, weights)}
        arrays = [np.ascontiguousarray(weights[spec.name].array, "float32") for spec in weight_specs]
        return self.builder.add(replace(layer, config=config, weights=arrays))

    def _make_layer(self, class_name: str, name: str, config: Dict[str, Any]) -> Layer:
        layout = {"data_format": "channels_last"} if HAS_DATA_FORMAT.fullmatch(class_name) else {}
        config = {"offset": 0.0, **config} if class_name == "Rescaling" else config  # Keras 3 requires it in files
        layer = Layer(class_name, name, {"name": name, "trainable": True, "dtype": "float32", **layout, **config})
        return replace(layer, weight_specs=weight_specs_of(layer) or [])

    def _is_trained(self, weight_specs: Sequence[WeightSpec], weights: Mapping[str, Weight]) -> bool:
        """Returns whether the layer's parameters are trained: all of them, or none."""
        sources = {spec.name: weights[spec.name].source for spec in weight_specs}
        names = {name for spec in weight_specs if spec.trainable for name in self._parameters(sources[spec.name])}
        trained = names & self.builder.trained
        is_trained = all_trained(names, trained)
        self.claim(trained, self.node)
        are_parameters = all(node.op in ("null", *MOVES) for node in self.graph.nodes([*sources.values()]))
        is_exact = are_parameters or not trained or self.node.op == "RNN"
        rule = "a trained parameter must be a weight itself, not an input of a computation"
        check(is_exact, rule, parameters=sorted(trained))
        return is_trained or not names

    def claim(self, trained: Collection[str], owner: Any) -> None:
        """Records the owner of trained parameters. Raises a `ValueError` if one has another owner already."""
        for name in trained:
            other = self.builder.owners.setdefault(name, owner)
            check(other is owner, f"a trained parameter must belong to one layer; {name} also belongs to {other.name}")

    # -- orders of axes, and shapes

    def permute(self, x: KerasTensor, order: Sequence[int]) -> KerasTensor:
        """Permutes the axes of a tensor into this order."""
        order = tuple(order)
        if order == x.order:
            return x
        check(order[0] == x.order[0], "the batch must be the first axis", order=order, data=x.order)
        if x.source and order == channels_last(x.rank):
            self.channels_last_inputs[x.source] = order
        if (x.tensor, order) not in self._permuted:
            axes = [x.order.index(axis) for axis in order]
            shape = tuple(x.shape[axis] for axis in axes)
            out = self.add_layer("Permute", {"dims": axes[1:]}, x, shape=shape, order=order, suffix="permute")
            self._permuted[x.tensor, order] = out
        return self._permuted[x.tensor, order]

    def to_channels_last(self, x: KerasTensor) -> KerasTensor:
        """Moves the channels to the end."""
        return self.permute(x, channels_last(x.rank))

    def to_one_order(self, *inputs: KerasTensor) -> List[KerasTensor]:
        """Permutes the axes of all tensors into the order of the first."""
        have_one_rank = all(isinstance(x, KerasTensor) and x.rank == inputs[0].rank for x in inputs)
        check(have_one_rank, "arrays must depend on the net's inputs, and have the same number of axes")
        return [self.permute(x, inputs[0].order) for x in inputs]

    def reshape(
        self, x: KerasTensor, shape: Sequence[Optional[int]], order: Sequence[int], suffix: str = "reshape"
    ) -> KerasTensor:
        """Reshapes as Keras does, in the order of the tensor's axes; `order` is that of the new axes."""
        shape, order = tuple(shape), tuple(order)
        if x.shape == shape:
            return x._replace(order=order)
        is_static = x.shape[0] is None is shape[0] and None not in (*x.shape[1:], *shape[1:])
        check(is_static, "only the batch may be dynamic, and must be the first axis", data=x.shape, shape=shape)
        if num_elements(x.shape) != num_elements(shape):  # attention heads or time steps are merged into the batch
            check(order[0] <= x.order[0], "the batch, merged with an axis, must stay where it is", axis=order[0])
            return self.add_operator("Reshape", x, shape=shape, newshape=[-1, *shape[1:]])._replace(order=order)
        name, config = ("Flatten", {}) if len(shape) == 2 else ("Reshape", {"target_shape": list(shape[1:])})
        suffix = "" if self.node.kind in ("Flatten", "Reshape") else suffix
        return self.add_layer(name, config, x, shape=shape, order=order, suffix=suffix)

    def reshape_as_mxnet(self, x: KerasTensor, source: Shape, target: Shape, for_dense: bool = False) -> KerasTensor:
        """Reshapes as MXNet does, from one shape to another. Axes that are split or merged must be neighbors in MXNet's
        order; all others stay where they are. With `for_dense`, features may stay in another order, too."""
        nontrivial = [axis for axis in x.order if source[axis] != (1, 1)]
        groups = groups_of(source, target)
        groups.sort(key=lambda group: min(map(nontrivial.index, {*nontrivial} & {*group[0]}), default=99))
        order, new_order = [], []
        for before, after in groups:
            order += before
            are_ones = all(n in ((1, 1),) for n in map(target.__getitem__, after) if n.is_static)
            # the batch comes first
            new_order += sorted(after, key=lambda axis: target[axis].is_static) if are_ones else after
        new_shape = keras_shape(target, new_order)
        if nontrivial == [axis for axis in order if axis in nontrivial]:
            return self.reshape(x, new_shape, new_order)
        if not for_dense or len(target) != 2 or x.shape[0] is not None:
            return self.reshape(self.permute(x, order), new_shape, new_order)
        lengths = [n.traced for n in source[1:]]
        positions = np.arange(math.prod(lengths)).reshape(lengths).transpose([axis - 1 for axis in x.order[1:]])
        return self.reshape(x, keras_shape(target, (0, 1)), (0, 1))._replace(feature_order=positions.ravel())


def layer_name(name: str) -> str:
    """Returns a valid layer name from the name of a parameter, without its suffix, or of an operator."""
    return re.sub(r"[^\w.-]", "_", PARAMETER_SUFFIX.sub("", name)).lstrip("_") or "layer"
