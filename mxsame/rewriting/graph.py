"""A Symbol taken apart: nodes that can be changed, and the arrays of its parameters."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import ChainMap
from dataclasses import dataclass, field
from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.scope import RECURRENT_NOTE

# What an operator computes -> MXNet's names: for arrays of one shape, with broadcasting, as in NumPy, with a number.
ARITHMETIC = {
    "add": ("add", "plus"),
    "subtract": ("sub", "subtract", "minus"),
    "multiply": ("mul", "multiply"),
    "divide": ("div", "true_divide"),
    "maximum": ("maximum",),
    "minimum": ("minimum",),
    "power": ("power",),
    "modulo": ("mod",),
    **{name: (name,) for name in ("equal", "not_equal", "greater", "lesser", "greater_equal", "lesser_equal")},
}
FORMS = {  # of the names in `ARITHMETIC`
    "{}": ("elemwise_{}", "broadcast_{}", "_npi_{}", "_{}"),
    "{}_scalar": ("_{}_scalar", "_npi_{}_scalar"),
    "r{}_scalar": ("_r{}_scalar", "_npi_r{}_scalar"),
}
OTHERS = {
    "abs": ("_npi_absolute",),
    "batch_norm": ("BatchNorm", "_contrib_SyncBatchNorm"),
    "identity": ("_copy", "_np_copy", "_npi_copy", "BlockGrad", "make_loss", "MakeLoss"),
    **{name: (f"_npx_{name}",) for name in ("relu", "sigmoid")},
    **{name: (f"_npi_{name}",) for name in ("clip", "tanh", "negative", "square", "sqrt", "exp", "log")},
}
KINDS = {op: kind for kind, ops in OTHERS.items() for op in ops}
for _kind, _names in ARITHMETIC.items():
    for _form, _ops in FORMS.items():
        KINDS.update({op.format(name): _form.format(_kind) for op in _ops for name in _names})
FLAGS = {"true": True, "false": False}


@dataclass(eq=False)
class Node:
    """An operator, or a variable (`op` is "null"); attributes are strings, as MXNet writes them."""

    op: str
    name: str
    inputs: List[Output] = field(default_factory=list)
    attrs: Dict[str, str] = field(default_factory=dict)
    more: Dict[str, Any] = field(default_factory=dict)  # other fields of the file: the graphs inside a loop

    @property
    def kind(self) -> str:
        """What it computes: one name for all operators that compute the same."""
        return "RNN with a note" if RECURRENT_NOTE in self.attrs else KINDS.get(self.op, self.op)

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value; the default if it is None."""
        text = self.attrs.get(name, "None")
        if text in FLAGS:
            return FLAGS[text]
        try:
            value = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text))  # (3L, 3L) is from Python 2
        except (ValueError, SyntaxError):  # a word
            return text
        return default if value is None else value


def entries(value: Any) -> List[Any]:
    """An attribute of one entry or several as a list; None is an empty one."""
    return [] if value is None else list(value) if isinstance(value, (tuple, list)) else [value]


def unused(name: str, taken: Collection[str]) -> str:
    """The name, or if it is taken, the first of name_1, name_2, .. that is not."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


def slice_ranges(node: Node, shape: Sequence[int]) -> Optional[List[range]]:
    """The positions that a slice takes along each axis of data of this shape; None for any other operator."""
    whole = [range(length) for length in shape]
    if node.op == "slice_axis":
        axis = node.attr("axis") % len(shape)
        whole[axis] = whole[axis][slice(node.attr("begin"), node.attr("end"))]
        return whole
    if node.op != "slice":
        return None
    given = (entries(node.attr(name)) for name in ("begin", "end", "step"))
    begin, end, step = (each + [None] * (len(shape) - len(each)) for each in given)
    return [part[slice(*ends)] for part, ends in zip(whole, zip(begin, end, step))]


class Output(NamedTuple):
    """One of the outputs of a node."""

    node: Node
    index: int = 0


class User(NamedTuple):
    """A user of an output: a node and the position among its inputs, or no node and the position among the graph's
    outputs."""

    node: Optional[Node]
    position: int


class Graph:
    """The nodes that compute some outputs. `values` holds the array of each variable that is a parameter, `inputs` the
    shape of each that is an input; `context` is the device, the CPU by default."""

    def __init__(
        self,
        outputs: Sequence[Output],
        values: Mapping[str, np.ndarray],
        inputs: Mapping[str, Sequence[int]],
        context: Any = None,
    ):
        self.outputs, self.values, self.inputs = list(outputs), dict(values), dict(inputs)
        self.context = context or mx.cpu()

    @classmethod
    def of(
        cls,
        symbol: Any,
        values: Mapping[str, np.ndarray],
        inputs: Mapping[str, Sequence[int]],
        context: Any = None,
        casts: bool = True,
    ) -> Graph:
        """Returns a Symbol's graph; without `casts`, those of `mxnet.contrib.amp` are left out."""
        read = json.loads(symbol.tojson(remove_amp_cast=not casts))
        nodes: List[Node] = []
        for entry in read["nodes"]:
            sources = [Output(nodes[source], index) for source, index, *_ in entry["inputs"]]
            more = {key: value for key, value in entry.items() if key not in ("op", "name", "inputs", "attrs")}
            nodes.append(Node(entry["op"], entry["name"], sources, dict(entry.get("attrs", {})), more))
        return cls([Output(nodes[source], index) for source, index, *_ in read["heads"]], values, inputs, context)

    def symbol(self, outputs: Optional[Sequence[Output]] = None) -> Any:
        """A Symbol of these outputs, by default of the graph's own."""
        outputs = self.outputs if outputs is None else outputs
        nodes = self.nodes(outputs)
        number = {node: position for position, node in enumerate(nodes)}
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
        arguments = [position for position, node in enumerate(nodes) if node.op == "null"]
        graph = {
            "nodes": written,
            "arg_nodes": arguments,
            "heads": [[number[node], index, 0] for node, index in outputs],
            "attrs": {"mxnet_version": ["int", 10901], "is_np_shape": ["int", int(mx.util.is_np_shape())]},
        }
        return mx.sym.load_json(json.dumps(graph, ensure_ascii=False))

    def _variable(self, node: Node) -> Dict[str, str]:
        """The attributes of a variable; a parameter's are the shape and type of its array, as a net's variables keep
        the type from before a cast."""
        value = self.values.get(node.name)
        if value is None:
            return node.attrs
        return {"__shape__": str(value.shape), "__dtype__": tensors.dtype_attribute(value.dtype)}

    def nodes(self, outputs: Optional[Sequence[Output]] = None) -> List[Node]:
        """All nodes, each after its inputs. Without recursion, which deep networks would exhaust."""
        ordered: Dict[Node, None] = {}
        stack = [node for node, _ in reversed(self.outputs if outputs is None else outputs)]
        while stack:
            node = stack[-1]
            missing = [source for source, _ in node.inputs if source not in ordered]
            if node in ordered or not missing:
                ordered[node] = None
                stack.pop()
            else:
                stack.extend(reversed(missing))
        return list(ordered)

    def users(self) -> Dict[Node, List[User]]:
        """The users of every node."""
        users: Dict[Node, List[User]] = {node: [] for node in self.nodes()}
        for node in users:
            for position, (source, _) in enumerate(node.inputs):
                users[source].append(User(node, position))
        for position, (source, _) in enumerate(self.outputs):
            users[source].append(User(None, position))
        return users

    def used_by(self, node: Optional[Node]) -> List[Output]:
        """The inputs of a node; the graph's outputs for None."""
        return self.outputs if node is None else node.inputs

    def connect(self, user: User, output: Output) -> None:
        """Let a user use this output."""
        self.used_by(user.node)[user.position] = output

    def replace(self, replacements: Mapping[Output, Output]) -> None:
        """Let all that uses one of these outputs use another one, which may be replaced in turn. A node that is only in
        the replacements, after the output that it replaces, stays as it is."""

        def final(output: Output) -> Output:
            while output in replacements:
                output = replacements[output]
            return output

        for node in self.nodes():
            node.inputs = list(map(final, node.inputs))
        self.outputs = list(map(final, self.outputs))

    def value(self, output: Output) -> Optional[np.ndarray]:
        """The array of a parameter; None for anything else."""
        return self.values.get(output.node.name) if output.node.op == "null" else None

    def constant(self, name: str, value: np.ndarray) -> Output:
        """Adds a parameter, whose name starts with this."""
        unique = unused(name, ChainMap(self.values, self.inputs))  # type: ignore[arg-type]
        self.values[unique] = np.ascontiguousarray(value)
        return Output(Node("null", unique))

    def used_outputs(self) -> list[Output]:
        """The first output of every node, and all others that something uses."""
        nodes = self.nodes()
        sources = (source for node in nodes for source in node.inputs)
        return list(dict.fromkeys([*map(Output, nodes), *self.outputs, *sources]))

    def shapes(self, inputs: Optional[Mapping[str, Sequence[int]]] = None) -> Dict[Node, tuple]:
        """The shape of every node's first output, as by `output_shapes`."""
        return {output.node: shape for output, shape in self.output_shapes(inputs).items() if not output.index}

    def output_shapes(self, inputs: Optional[Mapping[str, Sequence[int]]] = None) -> Dict[Output, tuple]:
        """The shape of every output that is used, by default for the graph's own inputs; without those that depend on
        values."""
        outputs = self.used_outputs()
        names = {output.node.name for output in outputs if output.node.op == "null"}
        known = {name: shape for name, shape in (inputs or self.inputs).items() if name in names}
        _, inferred, _ = self.symbol(outputs).infer_shape_partial(**known)
        return {output: shape for output, shape in zip(outputs, inferred) if _is_complete(shape)}

    def dtypes(self) -> Dict[Output, Any]:
        """The type of every output that is used; empty if an input may be of several types."""
        variables = [node for node in self.nodes() if node.op == "null"]
        if not all(node.name in self.values or "__dtype__" in node.attrs for node in variables):
            return {}
        outputs = self.used_outputs()
        _, inferred, _ = self.symbol(outputs).infer_type_partial()
        return dict(zip(outputs, inferred or ()))

    def accepted(self, name: str, dtypes: Sequence[Any]) -> tuple:
        """Which of these types an input may have; raises MXNet's error if it is none. The input's variable gets the
        type if it is only one, and loses its type if there are several. Integers are refused for Pooling, for which
        MXNet infers them but cannot run."""
        inputs = [node for node in self.nodes() if node.op == "null" and node.name in self.inputs]
        variable = next((node for node in inputs if node.name == name), None)
        if variable is None:
            return tuple(dtypes)
        variable.attrs.pop("__dtype__", None)
        free, allowed, first_error = [node.name for node in inputs if "__dtype__" not in node.attrs], [], None
        pooled = [node.inputs[0] for node in self.nodes() if node.op == "Pooling"]
        symbol = self.symbol([*self.outputs, *pooled])
        for dtype in dtypes:
            try:
                _, types, _ = symbol.infer_type_partial(**dict.fromkeys(free, dtype))
                if any(each is not None and np.dtype(each).kind != "f" for each in types[len(self.outputs) :]):
                    raise mx.base.MXNetError(f"Pooling must be given floating types; received {dtype}")
                allowed.append(dtype)
            except mx.base.MXNetError as error:
                first_error = first_error or error
        if not allowed and first_error:
            raise first_error
        if len(allowed) == 1:
            variable.attrs["__dtype__"] = tensors.dtype_attribute(allowed[0])
        return tuple(allowed)

    def run(self, outputs: Sequence[Output], data: Optional[Mapping[str, np.ndarray]] = None) -> list:
        """The arrays of outputs for this data of the inputs. A block runs them: an executor would let oneDNN fuse
        operators."""
        symbol, given = self.symbol(outputs), {**self.values, **(data or {})}
        names = symbol.list_inputs()
        arrays = [mx.nd.array(given[name], ctx=self.context, dtype=given[name].dtype) for name in names]
        if not names:
            return [array.asnumpy() for array in symbol.eval(ctx=self.context)]
        variables = [mx.sym.var(name, dtype=array.dtype) for name, array in zip(names, arrays)]
        with mx.util.np_array(False), mx.autograd.pause(train_mode=False):
            computed = mx.gluon.SymbolBlock(symbol, variables)(*arrays)
        return [array.asnumpy() for array in (computed if isinstance(computed, list) else [computed])]

    def prune(self) -> None:
        """Drop the arrays of parameters that no node uses any more."""
        names = {node.name for node in self.nodes()}
        self.values = {name: value for name, value in self.values.items() if name in names}


def _is_complete(shape: Optional[tuple]) -> bool:
    if mx.util.is_np_shape():
        return shape is not None and -1 not in shape
    return bool(shape) and 0 not in shape
