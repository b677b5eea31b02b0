"""A Symbol taken apart: nodes that can be changed, and the arrays of its parameters."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from mxsame._mxnet import mx


@dataclass(eq=False)
class Node:
    """An operator, or a variable (`op` is "null"); attributes are strings, as MXNet writes them."""

    op: str
    name: str
    inputs: List[Output] = field(default_factory=list)
    attrs: Dict[str, str] = field(default_factory=dict)
    more: Dict[str, Any] = field(default_factory=dict)  # what else the file says of it: the graphs inside of a loop

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        text = self.attrs.get(name)
        if text is None:
            return default
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):  # a word
            return text


class Output(NamedTuple):
    """One of the outputs of a node."""

    node: Node
    index: int = 0


class User(NamedTuple):
    """Who uses an output: a node and the place among its inputs, or no node and the place among the graph's outputs."""

    node: Optional[Node]
    place: int


class Graph:
    """Nodes behind outputs. `values` holds the array of each variable that is a parameter, `inputs` the shape of each
    that is an input."""

    def __init__(
        self, outputs: Sequence[Output], values: Mapping[str, np.ndarray], inputs: Mapping[str, Sequence[int]]
    ):
        self.outputs, self.values, self.inputs = list(outputs), dict(values), dict(inputs)

    @classmethod
    def of(cls, symbol: Any, values: Mapping[str, np.ndarray], inputs: Mapping[str, Sequence[int]]) -> Graph:
        """A Symbol's graph."""
        read = json.loads(symbol.tojson())
        nodes: List[Node] = []
        for entry in read["nodes"]:
            sources = [Output(nodes[source], index) for source, index, *_ in entry["inputs"]]
            more = {key: value for key, value in entry.items() if key not in ("op", "name", "inputs", "attrs")}
            nodes.append(Node(entry["op"], entry["name"], sources, dict(entry.get("attrs", {})), more))
        return cls([Output(nodes[source], index) for source, index, *_ in read["heads"]], values, inputs)

    def symbol(self, outputs: Optional[Sequence[Output]] = None) -> Any:
        """A Symbol of these outputs, by default of the graph's own."""
        heads = self.outputs if outputs is None else outputs
        nodes = self.nodes(heads)
        number = {node: place for place, node in enumerate(nodes)}
        written = [
            {
                "op": node.op,
                "name": node.name,
                "attrs": self._variable(node) if node.op == "null" else node.attrs,
                "inputs": [[number[source], index, 0] for source, index in node.inputs],
                **node.more,
            }
            for node in nodes
        ]
        arguments = [place for place, node in enumerate(nodes) if node.op == "null"]
        graph = {
            "nodes": written,
            "arg_nodes": arguments,
            "heads": [[number[node], index, 0] for node, index in heads],
            "attrs": {"mxnet_version": ["int", 10901], "is_np_shape": ["int", int(mx.util.is_np_shape())]},
        }
        return mx.sym.load_json(json.dumps(graph))

    def _variable(self, node: Node) -> Dict[str, str]:
        """A parameter's variable says its shape and type; those of the net say what they were before a cast."""
        value = self.values.get(node.name)
        if value is None:
            return node.attrs
        dtype = str(mx.nd.ndarray._DTYPE_NP_TO_MX[value.dtype.type])  # how an attribute spells a type
        return {"__shape__": str(value.shape), "__dtype__": dtype}

    def nodes(self, outputs: Optional[Sequence[Output]] = None) -> List[Node]:
        """All nodes, each behind its inputs. Without recursion, which deep networks would exhaust."""
        found: Dict[Node, None] = {}
        waiting = [node for node, _ in reversed(self.outputs if outputs is None else outputs)]
        while waiting:
            node = waiting[-1]
            missing = [source for source, _ in node.inputs if source not in found]
            if node in found or not missing:
                found[node] = None
                waiting.pop()
            else:
                waiting.extend(reversed(missing))
        return list(found)

    def users(self) -> Dict[Node, List[User]]:
        """The users of every node."""
        users: Dict[Node, List[User]] = {node: [] for node in self.nodes()}
        for node in users:
            for place, (source, _) in enumerate(node.inputs):
                users[source].append(User(node, place))
        for place, (source, _) in enumerate(self.outputs):
            users[source].append(User(None, place))
        return users

    def connect(self, user: User, output: Output) -> None:
        """Let a user use this output."""
        (self.outputs if user.node is None else user.node.inputs)[user.place] = output

    def replace(self, node: Node, output: Output) -> None:
        """Let whoever uses the first output of a node use this one."""
        for user in self.users().get(node, ()):
            self.connect(user, output)

    def value(self, output: Output) -> Optional[np.ndarray]:
        """The array of a parameter; None for anything else."""
        return self.values.get(output.node.name) if output.node.op == "null" else None

    def constant(self, name: str, value: np.ndarray) -> Output:
        """A new parameter, whose name begins like this."""
        taken = self.values.keys() | {node.name for node in self.nodes()}
        unique, count = name, 0
        while unique in taken:
            count += 1
            unique = f"{name}{count}"
        self.values[unique] = np.ascontiguousarray(value)
        return Output(Node("null", unique))

    def shapes(self) -> Dict[Node, tuple]:
        """The shape of every node's first output."""
        nodes = self.nodes()
        names = {node.name for node in nodes if node.op == "null"}
        known = {name: shape for name, shape in self.inputs.items() if name in names}
        _, found, _ = self.symbol([Output(node) for node in nodes]).infer_shape(**known)
        return dict(zip(nodes, found))

    def prune(self) -> None:
        """Forget the arrays that nothing needs any more."""
        names = {node.name for node in self.nodes()}
        self.values = {name: value for name, value in self.values.items() if name in names}
