"""Writes the graph of a net node by node, with one emitter for each kind of node.

An emitter takes the writer, the node, and the values that were written for the node's inputs. It returns the value of
the node's output, or a list of values. An attribute that it does not read must have MXNet's default.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame.exporting.attributes import Attributes
from mxsame.exporting.blocks import Composite, NetGraph
from mxsame.exporting.custom import CustomEmitters
from mxsame.exporting.prepare import is_used_by_rnn_only
from mxsame.exporting.shapes import Length, Shape
from mxsame.progress import reporting
from mxsame.rewriting import attributes
from mxsame.rewriting.graph import Node, Output, User
from mxsame.rewriting.onednn import LOOP
from mxsame.types import DeclaresInputs
from mxsame.validation import check, check_type

MAX_PATH_SHOWN = 6  # the most nodes of a path that a message shows
LOOP_ADVICE = "; unroll the loop, as a recurrent cell's `unroll` does"
KERAS_LOOP_ADVICE = "; a Keras model has no such loop if its input declares the number of steps, as Input((20, 3)) does"


def advice_for(net: Any, **more: str) -> Dict[str, str]:
    """Returns the advice that messages give: operator, or another key, -> text."""
    return {LOOP: KERAS_LOOP_ADVICE if isinstance(net, DeclaresInputs) else LOOP_ADVICE, **more}


class Emitter(NamedTuple):
    """The function that writes a node, and a regex of the attributes that it need not read."""

    write: Callable[..., Any]
    ignored: str = ""


class Emitters(Dict[str, Emitter]):
    """An emitter for each kind of node."""

    def writes(self, *kinds: str, ignored: str = "") -> Callable[[Callable], Callable]:
        """Returns a decorator that registers the emitter of these kinds of nodes.

        Raises a `ValueError` if one of them has an emitter already."""

        def register(write: Callable) -> Callable:
            for kind in kinds:
                check(kind not in self, f"{kind!r} already has an emitter")
                self[kind] = Emitter(write, ignored)
            return write

        return register


class GraphWriter:
    """Writes a graph. The subclass of a format defines the names in messages, and the methods that raise
    `NotImplementedError` here.

    `custom` contains the user's functions. `advice` maps an operator, or "dynamic" for dynamic lengths, to text that
    ends a message."""

    function, format = "", ""  # mxsame's function and the format, as messages name them

    def __init__(self, traced: NetGraph, emitters: Emitters, custom: CustomEmitters, advice: Mapping[str, str]):
        self.graph, self.shapes, self.composites = traced
        self.emitters, self.custom, self.advice = emitters, custom, advice
        self._written: Dict[Output, Any] = {}
        self._dtypes: Dict[Output, Any] = {}
        self.users: Dict[Node, List[User]] = {}
        self.node = Node("null", "")  # the node that is being written
        self.refusals: List[str] = []
        self._composite_values: Dict[int, List[Any]] = {}  # id of a composite -> the values of its outputs
        self._refused_blocks: List[Any] = []
        self._missing: Dict[str, None] = {}  # operators without an emitter

    def variable(self, node: Node) -> Any:
        """Returns the value of an input of the graph, or of a parameter."""
        raise NotImplementedError

    def placeholder(self, output: Output) -> Any:
        """Returns a value for the output of a node that cannot be written, so that the nodes after it are checked as
        well."""
        raise NotImplementedError

    def composite_outputs(self, composite: Composite, inputs: List[Any]) -> List[Any]:
        """Writes a block as a whole, by default with the user's function; returns the values of its outputs."""
        return self._write_by_user(composite.block, composite.inputs, dict(enumerate(composite.shapes)))

    def input_for_user(self, output: Output) -> Any:
        """Returns an output as a user's function receives it: an array if it is a parameter."""
        raise NotImplementedError

    def output_of_user(self, value: Any, shape: Shape) -> Any:
        """Returns the value of an output of this shape for what a user's function returned."""
        raise NotImplementedError

    def write_function(self, source: Any) -> Callable[..., Any]:
        """Returns the function `write` that is passed to a user's function."""
        raise NotImplementedError

    def refuse(self, node: Node, reason: str) -> None:
        """Collects why a node cannot be written, so that one error lists all reasons."""
        self.refusals.append(reason)
        self._written.update({output: self.placeholder(output) for output in self.outputs_of(node)})

    def write_all(self) -> List[Any]:
        """Writes every node; returns the values of the graph's outputs.

        Raises a `ValueError` with the reasons of all nodes that cannot be written."""
        self._dtypes, self.users = self.graph.dtypes(), self.graph.users()
        for node in reporting("writing operators", self.users):
            if Output(node) in self._written:
                continue  # `lower` refused the node
            if node in self.composites:
                self._write_composite(node, *self.composites[node])
            elif node.op == "null":
                self._written[Output(node)] = self.variable(node)
            elif node.op == "_zeros" and is_used_by_rnn_only(self.users[node]):
                self._written[Output(node)] = None  # an initial state that is not given is 0
            elif node.is_merged:  # its pads or crops are in the operator next to it
                self._written[Output(node)] = self.written(node.inputs[0])
            else:
                self._write(node)
        outputs = [self.written(output) for output in self.graph.outputs]
        if self.refusals:
            raise validation.Refused(self.refusals, self._rule(), self._refused_blocks)
        return outputs

    def _rule(self) -> str:
        """Returns the start of the error's message: the rule, or the operators without an emitter."""
        if not self._missing:
            return f"every operator of net must have an exact equivalent in {self.format}: "
        count = f"{len(self._missing)} operator{'s' * (len(self._missing) > 1)}"
        rule = f"{self.function} has no conversion for {count}: {', '.join(self._missing)}; custom="
        return rule + f"{{{next(iter(self._missing))!r}: function of (write, attributes, *inputs)}} writes one\n"

    def _write_composite(self, node: Node, composite: Composite, index: int) -> None:
        """Writes an output of a block; the first one writes the block."""
        key, inputs = id(composite), list(map(self.written, node.inputs))
        self.node = node
        try:
            if key not in self._composite_values:
                self._composite_values[key] = self.composite_outputs(composite, inputs)
        except validation.RuleError as error:
            self._composite_values[key] = [self.placeholder(Output(node))] * len(composite.outputs)
            self.refusals += getattr(error, "reasons", [f"{error}; in the block {composite.block.name}"])
            self._refused_blocks.append(composite.block)
        self._written[Output(node)] = self._composite_values[key][index]

    def _write_by_user(self, source: Any, inputs: Sequence[Output], shapes: Mapping[int, Shape]) -> List[Any]:
        """Writes a node or a block with the user's function; returns the values of its outputs, by index in `shapes`.
        Exceptions in the function propagate."""
        key = argument = source
        if isinstance(source, Node):
            key, argument = source.op, {name: source.attr(name) for name in attributes.names_of(source.op)}
        arrays = map(self.input_for_user, inputs)
        returned = self.custom.function_of(key)(self.write_function(source), argument, *arrays)
        values = returned if isinstance(returned, list) else [returned]
        rule = f"custom of {source.name} must return an output of write, or a list of {max(shapes) + 1}"
        check_type(len(values) > max(shapes), rule, custom=returned)
        return [self.output_of_user(values[index], shape) for index, shape in shapes.items()]

    def _write(self, node: Node) -> None:
        self.node = node
        if self.custom.has(node.op):
            outputs = self.outputs_of(node)
            try:
                shapes = {output.index: self.shape(output) for output in outputs}
                self._written.update(zip(outputs, self._write_by_user(node, node.inputs, shapes)))
            except validation.RuleError as error:
                self.refuse(node, f"{error}; in {self.path_to(node)}")
            return
        if node.kind not in self.emitters:
            self._missing[node.op] = None
            self.refuse(node, f"received {self.path_to(node)}{self.advice.get(node.op, '')}")
            return
        for index, each in enumerate(self.emit(self.emitters[node.kind], node, *map(self.written, node.inputs))):
            self._written[Output(node, index)] = each

    def emit(self, emitter: Emitter, node: Node, *inputs: Any) -> List[Any]:
        """Calls an emitter; returns the values of the node's outputs, or no values if it refuses the node.

        Raises a `RuntimeError` if the emitter fails."""
        node.attrs = attrs = Attributes(node.attrs)
        try:
            result = emitter.write(self, node, *inputs)
            attrs.check_all_read(node, emitter.ignored)
            return result if isinstance(result, list) else [result]
        except validation.RuleError as error:
            self.refuse(node, f"{error}; in {self.path_to(node)}")
        except Exception as error:
            rule = "every operator must be written or refused; this is an error of mxsame, and not of net"
            raise RuntimeError(f"{rule}; received {error!r} in {self.path_to(node)}") from error
        return []

    def path_to(self, node: Node) -> str:
        """Describes an operator by its name and the path to it from an input."""
        path, current = [node.name], node
        while current.inputs:
            sources = [source for source, _ in current.inputs]
            current = next((source for source in sources if source.name not in self.graph.values), sources[0])
            path.append(current.name)
        shown = path if len(path) <= MAX_PATH_SHOWN else [*path[: MAX_PATH_SHOWN - 1], "...", path[-1]]
        return f"the operator {node.op}, {node.name} (path: {' -> '.join(reversed(shown))})"

    # -- reading, for emitters

    def written(self, output: Output) -> Any:
        """Returns the value that was written for an output of the graph; refuses an output that was not written."""
        if output not in self._written:
            self.refusals.append(f"received output {output.index} of {self.path_to(output.node)}")
            self._written[output] = self.placeholder(output)
        return self._written[output]

    def outputs_of(self, node: Node) -> List[Output]:
        """Returns the first output of a node, and its other outputs that are used."""
        used = (self.graph.inputs_of(user.node)[user.position] for user in self.users[node])
        return sorted({Output(node), *used}, key=lambda output: output.index)

    def shape(self, output: Output) -> Shape:
        """Returns the shape of an output."""
        return self.shapes[output]

    def static(self, output: Output, what: str, axes: Optional[Sequence[int]] = None) -> Tuple[int, ...]:
        """Returns the lengths of an output along these axes, or along all. They must be static; the message calls them
        `what`."""
        shape = self.shape(output)
        lengths = [shape[axis] for axis in (range(len(shape)) if axes is None else axes)]
        self.check_static(lengths, f"{what} must be static")
        return tuple(length.traced for length in lengths)

    def check_static(self, lengths: Sequence[Length], rule: str, **values: Any) -> None:
        """Raises a `ValueError` with the rule, advice and values if a length is dynamic."""
        is_static = all(length.is_static for length in lengths)
        check(is_static, rule + self.advice.get("dynamic", ""), **values)

    def dtype(self, output: Output) -> np.dtype:
        """Returns the dtype of an output."""
        rule = f"the dtype of {output.node.name} ({output.node.op}) must follow from that of the data"
        check(self._dtypes.get(output) is not None, rule)
        return np.dtype(self._dtypes[output])

    def computed(self, output: Output) -> np.ndarray:
        """Returns the array of a parameter, or of an output that depends on parameters only."""
        value = self.graph.value(output)
        if value is not None:
            return value
        variables = {node.name for node in self.graph.nodes([output]) if node.op == "null"}
        check(variables <= self.graph.values.keys(), f"{output.node.name} must depend on parameters only")
        (value,) = self.graph.run([output])
        return np.asarray(value)
