"""The shapes of a graph's arrays: which lengths are static, and which may differ from call to call."""

from __future__ import annotations

import itertools
import math
from typing import Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxsame._mxnet import mx
from mxsame.graphs import errors
from mxsame.rewriting.graph import Graph, Node, Output
from mxsame.validation import InvalidValue, check


class Length(NamedTuple):
    """A length in the shape for which the net was traced, and in a second shape, where dynamic lengths differ."""

    traced: int
    probe: int

    @property
    def is_static(self) -> bool:
        """Whether the length is the same in both shapes."""
        return self.traced == self.probe


Shape = Tuple[Length, ...]
MAX_INPUTS = 6  # if there are more inputs, the batch is always their first axis


class DynamicAxes(NamedTuple):
    """Whether a file accepts any batch size, and any spatial size. `declared` has the inputs' shapes that a net
    declares, with None for dynamic lengths; `batches` maps inputs to their batch axes; `hint` ends error messages."""

    batch: bool
    size: bool
    declared: Sequence[tuple] = ()
    batches: Mapping[str, int] = {}
    hint: str = ""


class Shapes:
    """The shape of every output.

    The graph's shapes are inferred for two sets of input shapes: lengths that differ are dynamic.
    """

    def __init__(self, graph: Graph, dynamic_axes: DynamicAxes):
        self.probes = _probe_shapes(graph, dynamic_axes)
        self.batches = dynamic_axes.batches
        self.inputs = {name: tuple(map(Length, shape, self.probes[name])) for name, shape in graph.inputs.items()}
        self.infer(graph)

    def infer(self, graph: Graph) -> None:
        """Infers the shapes of a graph with the same inputs."""
        traced, probe = graph.output_shapes(), graph.output_shapes(self.probes)
        self._all = {out: tuple(map(Length, shape, probe[out])) for out, shape in traced.items() if out in probe}

    def share(self, new: Output, old: Output) -> None:
        """Gives an output the shape of the output that it replaces."""
        if old in self._all:
            self._all[new] = self._all[old]

    def __getitem__(self, output: Output) -> Shape:
        rule = f"the shape of {output.node.name} ({output.node.op}) must follow from that of the data"
        check(output in self._all, rule)
        return self._all[output]


def batch_axes(graph: Graph) -> Dict[str, int]:
    """Returns the batch axis of each input: the first, or the second if a longer second axis, and not a longer first
    one, means more sequences in recurrent layers and sequence masks, and in initial states."""
    sequence_axes = {node.inputs[0]: 1 for node in graph.nodes() if node.op == "RNN"}
    masks = (node for node in graph.nodes() if node.op == "SequenceMask" and len(node.inputs) > 1)
    sequence_axes.update({node.inputs[0]: 1 - node.attr("axis") for node in masks})
    sequence_axes.update((Output(node), axis) for node, axis in zeros_of_batches(graph).items())
    if sequence_axes and len(graph.inputs) <= MAX_INPUTS:
        shapes = graph.output_shapes()
        expected = {source: _longer(shapes.get(source, ()), axis) for source, axis in sequence_axes.items()}
        for axes in itertools.product((0, 1), repeat=len(graph.inputs)):
            inputs = {name: _longer(shape, axis) for (name, shape), axis in zip(graph.inputs.items(), axes)}
            try:
                shapes = graph.output_shapes(inputs)
            except mx.base.MXNetError:
                continue
            if all(shapes.get(source) == shape for source, shape in expected.items()):
                return dict(zip(graph.inputs, axes))
    return dict.fromkeys(graph.inputs, 0)


def zeros_of_batches(graph: Graph) -> Dict[Node, int]:
    """Returns node -> axis for operators of zeros with one unknown length, which MXNet infers from other arrays."""
    unknown = -1 if mx.util.is_np_shape() else 0
    zeros = {node: node.attr("shape") for node in graph.nodes() if node.op in ("_zeros", "_npi_zeros")}
    return {node: shape.index(unknown) for node, shape in zeros.items() if shape.count(unknown) == 1}


def _longer(shape: tuple, axis: int) -> tuple:
    """Returns the shape with one more element along an axis."""
    return tuple(length + (number == axis) for number, length in enumerate(shape))


def _probe_shapes(graph: Graph, dynamic_axes: DynamicAxes) -> Dict[str, tuple]:
    """Returns the second shapes of the inputs. A size grows by a multiple of all strides, so that its pads stay the
    same. Each axis grows by a different amount, since axes of equal length here may differ in another call. If the net
    does not accept that, all inputs grow by the same amounts, as the operands of a sum must."""
    step, reasons = _total_stride(graph) if dynamic_axes.size else 0, {}
    declared = dynamic_axes.declared
    dynamic = [[axis for axis, length in enumerate(shape) if axis and length is None] for shape in declared]
    orders: Dict[str, Callable] = {
        "with channels first": lambda position, rank: range(2, rank),
        "with channels last": lambda position, rank: range(1, rank - 1),
    }
    if any(dynamic):
        orders = {"with the model's dynamic lengths": lambda position, rank: dynamic[position]}
    for (order, axes), is_same_for_all in itertools.product(orders.items(), (False, True)):
        inputs, factors = {}, itertools.count(1)
        for position, (name, shape) in enumerate(graph.inputs.items()):
            factors = itertools.count(1) if is_same_for_all else factors
            growth = {axis: step * next(factors) for axis in axes(position, len(shape))}
            growth[dynamic_axes.batches.get(name, 0)] = int(dynamic_axes.batch)
            inputs[name] = tuple(length + growth.get(axis, 0) for axis, length in enumerate(shape))
        try:
            _check_accepts(graph, inputs)
        except ValueError as error:
            if not dynamic_axes.size:
                raise InvalidValue(f"net must take any batch, but {error}{dynamic_axes.hint}") from None
            reasons[order] = f"{order}, {error}"
        else:
            return inputs
    rule = "net must accept every size, and no layer may require a fixed one"
    raise InvalidValue(f"{rule}: {'; '.join(reasons.values())}{dynamic_axes.hint}")


def _check_accepts(graph: Graph, inputs: Dict[str, tuple]) -> None:
    """Raises a `ValueError` if the net does not accept these shapes, or if an array has another number of axes."""
    traced = graph.shapes()
    try:
        shapes = graph.shapes(inputs)
    except mx.base.MXNetError as error:
        raise InvalidValue(errors.reason(error)) from None
    reshape = invalid_reshape(shapes)
    if reshape is not None:
        raise InvalidValue(f"{reshape.name} reshapes to {shapes[reshape]}")
    for node, shape in shapes.items():
        if len(shape) != len(traced.get(node, shape)):
            raise InvalidValue(f"{node.name} has the shape {traced[node]} for one size and {shape} for another")


def invalid_reshape(shapes: Mapping[Node, tuple]) -> Optional[Node]:
    """Returns a Reshape whose output has fewer or more elements than its input, or None. MXNet runs such a Reshape, and
    reads or writes past the end of its arrays."""
    for node, shape in shapes.items():
        data_shape = shapes.get(node.inputs[0].node) if node.op == "Reshape" else None
        if data_shape is not None and math.prod(shape) != math.prod(data_shape):
            return node
    return None


def _total_stride(graph: Graph) -> int:
    """Returns the largest product of strides along any path from an input."""
    products: Dict[Node, int] = {}
    for node in graph.nodes():
        strides = node.attr("stride") or (1,)
        products[node] = max([products[source] for source, _ in node.inputs], default=1) * max(strides)
    return max(products.values())
