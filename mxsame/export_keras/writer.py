"""Writes a graph as a Keras model, node by node, with a table of rows.

Keras's arrays have their batch first and mostly their channels last. A `Value` says which axis of MXNet's array each
axis is, so a transposition is only written where a layer needs another order.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame.exporting.shapes import Shape, Shapes
from mxsame.exporting.walk import MOVES, Rows, Walk
from mxsame.port.description import Layer, LayerCall, Model, Tensor, Weight
from mxsame.port.rows import roles_of
from mxsame.rewriting import constants
from mxsame.rewriting.graph import Graph, Node, Output, unused
from mxsame.validation import check

ROWS = Rows()
writes = ROWS.writes

Lengths = Tuple[Optional[int], ...]
# in place of their data
TAKES_CONSTANTS = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "take")
# Layers that have a `data_format`, by default that of the user's Keras; others of one axis have none in tf.keras 2
LAYOUT = re.compile(r"(Depthwise)?Conv.D.*|.*Pooling.D|(ZeroPadding|Cropping|UpSampling)[23]D|Flatten")
ENDING = re.compile(r"_(weight|bias|gamma|beta|alpha|parameters|i2h_weight|l0_i2h_weight|depthwise_weight)$|_fwd$")


class Value(NamedTuple):
    """A tensor of the model: its shape, None for the batch, and the axes of MXNet's array that its axes are.

    `features` are the positions in MXNet's array of the elements of the last axis, if a flattening left them in another
    order for a dense layer; `source` is the input of the net whose axes it still has, if any."""

    tensor: Tensor
    shape: Lengths
    order: Tuple[int, ...]
    features: Optional[np.ndarray] = None
    source: str = ""

    @property
    def rank(self) -> int:
        return len(self.order)

    def axis(self, axis: int) -> int:
        """Where an axis of MXNet's is."""
        return self.order.index(axis % self.rank)

    def along(self, entries: Sequence[Any]) -> List[Any]:
        """One entry for each axis of MXNet's, in the order here."""
        return [entries[axis] for axis in self.order]


class Weighted(NamedTuple):
    """An array for a layer, and the output of the graph that it is."""

    array: np.ndarray
    source: Output


class Made(NamedTuple):
    """A model to be written: its arrays by layer, the shapes of its tensors, the shapes of the net's inputs, and the
    axes of the net's inputs and outputs in the file's order."""

    model: Model
    arrays: Callable[[Layer], Mapping[str, np.ndarray]]
    tensors: Mapping[Tensor, tuple]
    shapes: Mapping[str, Shape]
    orders: Sequence[Tuple[int, ...]]
    output_orders: Sequence[Tuple[int, ...]]


def batch_first(rank: int, batch: int) -> Tuple[int, ...]:
    """The axes with the batch before the others."""
    return (batch, *(axis for axis in range(rank) if axis != batch))


def channels_last(rank: int) -> Tuple[int, ...]:
    """(N, \\*size, C) of (N, C, \\*size)."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


class Writer(Walk):
    """The layers of a graph as a `mxsame.port.description.Model`, and their arrays.

    Parameters
    ----------
    graph, shapes
    orders : mapping of str to tuple
        For each input the axes of MXNet's array in the order of the file's.
    trained : set of str
        The parameters that are trained.
    operators : bool
        Whether the file may have operators, in addition to layers.
    """

    format = "Keras"

    def __init__(
        self, graph: Graph, shapes: Shapes, orders: Mapping[str, Tuple[int, ...]], trained: Set[str], operators: bool
    ):
        super().__init__(graph, shapes, ROWS)
        self._trained, self.is_h5 = trained, not operators
        self.model = Model("network", [], [], [], version=3)
        self.arrays: Dict[str, Dict[str, np.ndarray]] = {}  # by layer and role, also for layers without any
        self.refusals: List[str] = []
        self._names: Set[str] = set()
        self._layers: Dict[Any, Layer] = {}  # those that several nodes may call, by class, configuration and weights
        self._arranged: Dict[Tuple[Tensor, Tuple[int, ...]], Value] = {}
        self._owners: Dict[str, Node] = {}  # of trained parameters
        self.shapes_of_tensors: Dict[Tensor, Lengths] = {}
        self.takes_last: Dict[str, Tuple[int, ...]] = {}  # the order of inputs that a layer takes with channels last
        self._inputs = {name: self._input(name, order) for name, order in orders.items()}

    def _input(self, name: str, order: Tuple[int, ...]) -> Value:
        shape, unique = _lengths(self.shapes.inputs[name], order), self._unique(_clean(name))
        config = {"name": unique, "dtype": "float32", "batch_shape": list(shape)}
        self.model.layers.append(Layer("InputLayer", unique, config, [LayerCall(())], roles=[]))
        self.model.inputs.append(Tensor(unique))
        self.shapes_of_tensors[Tensor(unique)], self.arrays[unique] = shape, {}
        return Value(Tensor(unique), shape, order, source=name)

    # -- what Walk asks for

    def variable(self, node: Node) -> Any:
        """An input layer's value; a parameter is its own output, whose array a row looks up."""
        return self._inputs.get(node.name, Output(node))

    def refuse(self, node: Node, reason: str, rule: str = "") -> None:
        """Collect the reason, so that one error lists them all; a value of the right shape replaces the output."""
        self.refusals.append(reason)
        for output in self.outputs_of(node):
            self._written[output] = self.value(Tensor(node.name), output, tuple(range(len(self.shape(output)))))

    def _write(self, node: Node) -> None:
        """What depends on parameters only is computed when a row asks for it."""
        pure = not any(word in node.op for word in constants.IMPURE) and not node.more.get("subgraphs")
        types = [self._dtypes.get(output) for output in self.outputs_of(node)]
        others = sorted({np.dtype(each).name for each in types if each is not None} - {"float32"})
        if pure and all(isinstance(self._written.get(source), Output) for source in node.inputs):
            self._written.update({output: output for output in self.outputs_of(node)})
        elif node.inputs and isinstance(self._written[node.inputs[0]], Output) and node.kind not in TAKES_CONSTANTS:
            self.refuse(node, f"the data of an operator must depend on the net's inputs; received {self.path_to(node)}")
        else:
            super()._write(node)
        if others and not isinstance(self._written[Output(node)], Output):
            self.refusals.append(f"arrays must be float32; received {', '.join(others)} of {self.path_to(node)}")

    def finish(self, outputs: Sequence[Value]) -> None:
        """The values as the model's outputs, and its layers in the order that Keras gives them: by depth, those of one
        depth as a search from the outputs finds them. Layers that no output needs are left out."""
        self.model.outputs = [x.tensor for x in outputs]
        layers = {layer.name: layer for layer in self.model.layers}
        found, calls = _searched(layers, self.model.outputs)
        depths: Dict[Tuple[str, int], int] = {}
        deepest: Dict[str, int] = {}
        for name, call in reversed(calls):
            depth = deepest[name] = depths[name, call] = max(depths.get((name, call), 0), deepest.get(name, 0))
            for tensor in layers[name].calls[call].tensors():
                depths[tensor[:2]] = max(depths.get(tensor[:2], 0), depth + 1)
        self.model.layers = [layers[name] for name in sorted(found, key=lambda name: (-deepest[name], found[name]))]

    # -- for rows, to read

    def outputs_of(self, node: Node) -> List[Output]:
        """Those that something uses, and the first."""
        return [output for output in self.graph.used_outputs() if output.node is node]

    def value(self, tensor: Tensor, output: Output, order: Tuple[int, ...]) -> Value:
        """A tensor that is an output of the graph, with its axes in this order."""
        return Value(tensor, _lengths(self.shape(output), order), order)

    def weight(self, output: Any) -> Weighted:
        """The array of a layer: a parameter, or the elements of parameters in another order."""
        check(not isinstance(output, Value), "weights must depend on parameters only")
        return Weighted(self.computed(output), output)

    def constant(self, output: Output, x: Value) -> Any:
        """A number, or an array to which x broadcasts, with the axes of x."""
        trained = sorted(self._parameters(output) & self._trained)
        check(not trained, f"a trained parameter must be one of a layer of Keras; received {', '.join(trained)}")
        array = self.computed(output)
        if (array == array.ravel()[:1]).all():
            return float(array.ravel()[0])
        array = array.reshape((1,) * (x.rank - array.ndim) + array.shape)
        fits = array.ndim == x.rank and array.shape[x.order[0]] == 1
        check(fits, "a constant must have the data's axes, and a batch of 1", shape=array.shape)
        return array.transpose(x.order)[0].astype("float32")

    def name_of(self, weight: Weighted) -> str:
        """The name of the layer that has a weight."""
        variables = (node.name for node in self.graph.nodes([weight.source]) if node.op == "null")
        return _clean(next(variables))

    def is_frozen(self, output: Output) -> bool:
        """Whether nothing of it is trained."""
        return not self._parameters(output) & self._trained

    def _parameters(self, output: Output) -> Set[str]:
        return {node.name for node in self.graph.nodes([output]) if node.op == "null"}

    # -- for rows, to write

    def layer(
        self,
        class_name: str,
        config: Dict[str, Any],
        *inputs: Value,
        shape: Optional[Lengths] = None,
        order: Optional[Tuple[int, ...]] = None,
        weights: Optional[Mapping[str, Weighted]] = None,
        part: str = "",
        call: Optional[Dict[str, Any]] = None,
    ) -> Value:
        """A layer called with values: its output, of the shape and order of the first of them unless given.

        `weights` are by Keras's names; `part` is what a layer is for its node, unless it is the node itself; `call` has
        more arguments."""
        first, weights = inputs[0], weights or {}
        sources = tuple((weights[name].source.node.name, weights[name].source.index) for name in sorted(weights))
        features = None if first.features is None else first.features.tobytes()
        key = (class_name, json.dumps(config), sources, part, features)
        if not weights or key not in self._layers:
            self._layers[key] = self._new(class_name, config, weights, part)
        tensors = [each.tensor for each in inputs]
        args = (tensors if len(tensors) > 1 else tensors[0],)
        out = self._called(self._layers[key], first, args, call, first.shape if shape is None else shape)
        return out if order is None else Value(out.tensor, out.shape, order)

    def _called(self, layer: Layer, like: Value, args: Any, call: Optional[Dict[str, Any]], shape: Lengths) -> Value:
        """The output of a call, of this shape, and with the axes of another value."""
        layer.calls.append(LayerCall(args, call or {}))
        tensor = Tensor(layer.name, len(layer.calls) - 1)
        self.shapes_of_tensors[tensor] = shape
        return like._replace(tensor=tensor, shape=shape)

    def _new(self, class_name: str, config: Dict[str, Any], weights: Mapping[str, Weighted], part: str) -> Layer:
        named = next(map(self.name_of, weights.values()), _clean(self.node.name))
        name = self._unique(f"{named}_{part}" if part else named)
        layout = {"data_format": "channels_last"} if LAYOUT.fullmatch(class_name) else {}
        layer = Layer(class_name, name, {"name": name, "trainable": True, "dtype": "float32", **layout, **config})
        layer.roles = roles = roles_of(layer) or []
        is_complete = {role.name for role in roles} == weights.keys()
        check(is_complete, f"a {class_name} must have the weights of its row", got=weights)
        layer.config["trainable"] = self._is_trained(roles, weights)
        self.arrays[name] = {role.name: np.ascontiguousarray(weights[role.name].array, "float32") for role in roles}
        self.model.layers.append(layer)
        return layer

    def _is_trained(self, roles: Sequence[Weight], weights: Mapping[str, Weighted]) -> bool:
        """Whether the layer's parameters are trained, which must be so for all or for none."""
        sources = {role.name: weights[role.name].source for role in roles}
        names = {name for role in roles if role.trained for name in self._parameters(sources[role.name])}
        trained = names & self._trained
        rule = "a layer's parameters must be trained all or none"
        check(trained in (set(), names), rule, trained=sorted(trained), parameters=sorted(names))
        for name in trained:
            owner = self._owners.setdefault(name, self.node)
            check(owner is self.node, f"a trained parameter must be one layer's; {name} is also {owner.name}'s")
        moved = all(node.op in ("null", *MOVES) for node in self.graph.nodes([*sources.values()]))
        fits = moved or not trained or self.node.op == "RNN"
        check(fits, "a trained parameter must be a weight as it is", parameters=sorted(trained))
        return bool(trained) or not names

    def further(self, x: Value, number: int, shape: Lengths, order: Tuple[int, ...]) -> Value:
        """Another output of the call that gave a value."""
        tensor = x.tensor._replace(output=number)
        self.shapes_of_tensors[tensor] = shape
        return Value(tensor, shape, order)

    def operator(
        self, class_name: str, *args: Any, shape: Optional[Lengths] = None, call: Any = None, **config: Any
    ) -> Value:
        """A function of `keras.ops` of values and numbers, whose output is like the first value, or of this shape;
        `class_name` has its module before it, if that is not numpy's."""
        check(not self.is_h5, "an .h5 file has layers only: give a path that ends in .keras")
        first = next(each for each in args if isinstance(each, Value))
        name = self._unique(_clean(self.node.name))
        module, _, class_name = class_name.rpartition(".")
        operator = f"{module or 'numpy'}.{class_name}"
        layer = Layer(class_name, name, {"name": name, **config}, operator=operator, roles=[])
        self.arrays[name] = {}
        self.model.layers.append(layer)
        given = tuple(each.tensor if isinstance(each, Value) else each for each in args)
        return self._called(layer, first, given, call, first.shape if shape is None else shape)

    def _unique(self, name: str) -> str:
        name = unused(name, self._names)
        self._names.add(name)
        return name

    # -- orders of axes, and shapes

    def arranged(self, x: Value, order: Sequence[int]) -> Value:
        """The value with its axes in this order."""
        order = tuple(order)
        if order == x.order:
            return x
        check(order[0] == x.order[0], "the batch must be the first axis", order=order, data=x.order)
        if x.source and order == channels_last(x.rank):
            self.takes_last[x.source] = order
        if (x.tensor, order) not in self._arranged:
            axes = [x.order.index(axis) for axis in order]
            shape = tuple(x.shape[axis] for axis in axes)
            made = self.layer("Permute", {"dims": axes[1:]}, x, shape=shape, order=order, part="permute")
            self._arranged[x.tensor, order] = made
        return self._arranged[x.tensor, order]

    def last(self, x: Value) -> Value:
        """With channels last."""
        return self.arranged(x, channels_last(x.rank))

    def alike(self, *inputs: Value) -> List[Value]:
        """All with the order of axes of the first."""
        fits = all(isinstance(x, Value) and x.rank == inputs[0].rank for x in inputs)
        check(fits, "arrays must depend on the net's inputs, and have the same number of axes")
        return [self.arranged(x, inputs[0].order) for x in inputs]

    def in_shape(self, x: Value, shape: Sequence[Optional[int]], order: Sequence[int], part: str = "reshape") -> Value:
        """The same elements, in the order here, as an array of another shape."""
        shape, order = tuple(shape), tuple(order)
        if x.shape == shape:
            return x._replace(order=order)
        fits = x.shape[0] is None is shape[0] and None not in (*x.shape[1:], *shape[1:])
        check(fits, "the batch must be of the first axis", data=x.shape, shape=shape)
        if math.prod(x.shape[1:]) != math.prod(shape[1:]):  # heads of attention, or steps in time, with the batch
            return self.operator("Reshape", x, shape=shape, newshape=[-1, *shape[1:]])._replace(order=order)
        name, config = ("Flatten", {}) if len(shape) == 2 else ("Reshape", {"target_shape": list(shape[1:])})
        part = "" if self.node.kind in ("Flatten", "Reshape") else part
        return self.layer(name, config, x, shape=shape, order=order, part=part)

    def reshaped(self, x: Value, source: Shape, target: Shape, lazy: bool = False) -> Value:
        """As MXNet's Reshape from one shape to another; a `lazy` one leaves the order of features to dense layers.

        Axes that are split or merged must be next to each other in MXNet's order; all others stay where they are."""
        long = [axis for axis in x.order if source[axis] != (1, 1)]
        groups = sorted(
            _groups(source, target), key=lambda group: min(map(long.index, {*long} & {*group[0]}), default=99)
        )
        wanted, to = ([axis for group in groups for axis in group[side]] for side in (0, 1))
        if long == [axis for axis in wanted if axis in long]:
            return self.in_shape(x, _lengths(target, to), to)
        if not lazy or len(target) != 2 or x.shape[0] is not None:
            return self.in_shape(self.arranged(x, wanted), _lengths(target, to), to)
        lengths = [n.traced for n in source[1:]]
        positions = np.arange(math.prod(lengths)).reshape(lengths).transpose([axis - 1 for axis in x.order[1:]])
        return self.in_shape(x, _lengths(target, (0, 1)), (0, 1))._replace(features=positions.ravel())


def _searched(layers: Mapping[str, Layer], outputs: Sequence[Tensor]) -> Tuple[Dict[str, int], List[Tuple[str, int]]]:
    """The layers in the order in which a search in depth from the outputs finds them, and their calls in the order in
    which it leaves them."""
    found: Dict[str, int] = {}
    left: Dict[Tuple[str, int], None] = {}
    stack = [(tensor[:2], False) for tensor in reversed(outputs)]
    while stack:
        call, is_done = stack.pop()
        if is_done:
            left[call] = None
        elif call not in left:
            found.setdefault(call[0], len(found))
            stack.append((call, True))
            sources = layers[call[0]].calls[call[1]].tensors()
            stack += [(tensor[:2], False) for tensor in reversed(sources)]
    return found, list(left)


def _clean(name: str) -> str:
    """A name that Keras takes for a layer: that of a parameter without its kind, or of an operator."""
    return re.sub(r"[^\w.-]", "_", ENDING.sub("", name)).lstrip("_") or "layer"


def _lengths(shape: Shape, order: Sequence[int]) -> Lengths:
    return tuple(shape[axis].traced if shape[axis].is_static else None for axis in order)


def _groups(source: Shape, target: Shape) -> List[Tuple[List[int], List[int]]]:
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
