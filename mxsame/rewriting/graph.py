"""`Graph`: a mutable form of a Symbol, with the arrays of its parameters."""

from __future__ import annotations

import itertools
import json
from collections import ChainMap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.plan.arrays import REQUIRED_COPY
from mxsame.rewriting import attributes
from mxsame.scope import WINDOWS

if TYPE_CHECKING:
    from mxsame._mxnet import Symbol

NO_BIAS = "__no_bias__"  # attribute of an RNN, also in files: its layer has no biases
FORMULAS = "__formulas__"  # attribute of an RNN in a graph for another format: its `RecurrentFormulas`, as JSON
RNN_WITH_FORMULAS = "RNN with other formulas"  # the kind of an RNN that has them
WITH_WINDOWS = ("Convolution", "Deconvolution", "Pooling")
# kind -> its names in MXNet, without the prefixes and suffixes that `FORMS` adds
ARITHMETIC = {
    "add": ("add", "plus"),
    "subtract": ("sub", "subtract", "minus"),
    "multiply": ("mul", "multiply"),
    "divide": ("div", "true_divide"),
    "maximum": ("maximum",),
    "minimum": ("minimum",),
    "power": ("power",),
    "modulo": ("mod",),
    **{name: (name,) for name in ("equal", "not_equal", "greater", "greater_equal")},
    **{name: (name,) for name in ("logical_and", "logical_or", "logical_xor")},
    "lesser": ("lesser", "less"),
    "lesser_equal": ("lesser_equal", "less_equal"),
}
FORMS = {  # form of a kind, for (array, array), (array, scalar) and (scalar, array) -> forms of MXNet's names
    "{}": ("elemwise_{}", "broadcast_{}", "_npi_{}", "_{}"),
    "{}_scalar": ("_{}_scalar", "_npi_{}_scalar"),
    "r{}_scalar": ("_r{}_scalar", "_npi_r{}_scalar"),
}
OTHER_KINDS = {
    "abs": ("_npi_absolute",),
    "batch_norm": ("BatchNorm", "_contrib_SyncBatchNorm"),
    "identity": ("_copy", "_np_copy", "_npi_copy", "BlockGrad", "make_loss", "MakeLoss"),
    **{name: (f"_npx_{name}",) for name in ("relu", "sigmoid")},
    **{name: (f"_npi_{name}",) for name in ("tanh", "negative", "square", "sqrt", "exp", "log", "log2", "log10")},
    **{name: (f"_npi_{name}",) for name in ("log1p", "expm1", "cbrt", "reciprocal", "sign", "floor", "ceil", "rint")},
    **{name: (f"_npi_{name}",) for name in ("fix", "trunc", "sin", "cos", "tan", "sinh", "cosh", "arcsin", "arccos")},
    **{name: (f"_npi_{name}",) for name in ("arctan", "arcsinh", "arccosh", "arctanh", "logical_not")},
    **{name: (f"_npi_{name}",) for name in ("mean", "stack", "argmax", "argmin")},
    **{name: (f"_np_{name}",) for name in ("sum", "max", "min", "prod", "transpose", "squeeze", "dot")},
    **{f"_{name}": (f"_npi_{name}",) for name in ("zeros", "ones", "eye", "arange")},
    **{"Reshape": ("_np_reshape", "_npx_reshape"), "matmul": ("_npi_matmul",)},
    **{"broadcast_to": ("_npi_broadcast_to",), "reverse": ("_npi_flip",)},
}
KINDS = {op: kind for kind, ops in OTHER_KINDS.items() for op in ops}
for _kind, _names in ARITHMETIC.items():
    for _form, _ops in FORMS.items():
        KINDS.update({op.format(name): _form.format(_kind) for op in _ops for name in _names})


class RecurrentFormulas(NamedTuple):
    """The formulas of a recurrent layer that MXNet's operator cannot compute: the activations of the output and of the
    gates, each a name with arguments, and whether a GRU applies its reset gate after the matrix product."""

    activations: Sequence[Tuple[str, Mapping[str, Any]]]
    reset_after: bool


@dataclass(eq=False)
class Node:
    """An operator, or a variable, whose `op` is "null". Attributes are strings, as in MXNet's files.

    The last three fields hold what exporters need and the attributes lack: the windows of an operator; whether a pad
    operator or a slice is merged into the windows of an operator next to it; and the formulas of an RNN."""

    op: str
    name: str
    inputs: List[Output] = field(default_factory=list)
    attrs: Dict[str, str] = field(default_factory=dict)
    other_fields: Dict[str, Any] = field(default_factory=dict)  # in MXNet's file, such as the graphs inside a loop
    windows: Optional[Tuple[Any, ...]] = None
    is_merged: bool = False
    formulas: Optional[RecurrentFormulas] = None

    @property
    def kind(self) -> str:
        """What the operator computes: MXNet's operators that compute the same function have the same kind."""
        return RNN_WITH_FORMULAS if self.formulas else KINDS.get(self.op, self.op)

    @property
    def is_defined_by_attributes(self) -> bool:
        """Whether the attributes define everything that the operator computes."""
        return self.windows is None and not self.is_merged and self.formulas is None

    @property
    def is_required_copy(self) -> bool:
        """Whether the node is an identity that works around a bug in MXNet, and must not be removed."""
        return REQUIRED_COPY in self.attrs

    def attr(self, name: str, default: Any = None) -> Any:
        """Returns an attribute's value: the node's, else MXNet's default, else `default`."""
        value = attributes.value_of(self.op, name, self.attrs.get(name))
        return default if value is None else value

    def is_activation(self, function: str) -> bool:
        """Returns whether the node is an `Activation` with this function."""
        return self.op == "Activation" and self.attr("act_type") == function

    @property
    def bodies(self) -> List[Graph]:
        """The graphs inside a loop or a condition."""
        return [Graph.of(mx.sym.load_json(json.dumps(body)), {}, {}) for body in self.other_fields.get("subgraphs", ())]

    @bodies.setter
    def bodies(self, bodies: Sequence[Graph]) -> None:
        self.other_fields["subgraphs"] = [json.loads(body.symbol().tojson()) for body in bodies]

    def become(self, op: str, /, *inputs: Output, **attrs: Any) -> None:
        """Turn this node into another operator, in place, so that all its users read the new output."""
        self.op, self.inputs, self.attrs = op, list(inputs), {key: str(value) for key, value in attrs.items()}


class Output(NamedTuple):
    """One of the outputs of a node."""

    node: Node
    index: int = 0  # type: ignore[assignment]  # replaces tuple.index


class User(NamedTuple):
    """A use of an output: the node that reads it, and the position among the node's inputs. For an output of the graph,
    the node is None, and the position is among the graph's outputs."""

    node: Optional[Node]
    position: int


Shape = Tuple[int, ...]
Shapes = Dict[Node, Shape]  # of each node's first output
Users = Mapping[Node, Sequence[User]]
Arrays = Mapping[str, np.ndarray]
InputShapes = Mapping[str, Shape]


def operator(op: str, name: str, /, *inputs: Output, **attrs: Any) -> Output:
    """Returns the output of a new operator."""
    node = Node(op, name)
    node.become(op, *inputs, **attrs)
    return Output(node)


def operand_orders(node: Node) -> Sequence[Sequence[Output]]:
    """Returns both orders of the operands of a multiplication; an empty tuple for any other operator."""
    return (node.inputs, node.inputs[::-1]) if node.kind == "multiply" else ()


def entries(value: Any) -> List[Any]:
    """Returns the value of an attribute as a list: [] for None, [value] for a number."""
    return [] if value is None else list(value) if isinstance(value, (tuple, list)) else [value]


def unique_name(name: str, taken: Collection[str]) -> str:
    """Returns the name if it is not taken, else the first of name_1, name_2, .. that is not."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


def slice_ranges(node: Node, shape: Sequence[int]) -> Optional[List[range]]:
    """Returns the positions that a slice selects along each axis of data of this shape; None for any other operator."""
    ranges = [range(length) for length in shape]
    if node.op == "slice_axis":
        axis = node.attr("axis") % len(shape)
        ranges[axis] = ranges[axis][slice(node.attr("begin"), node.attr("end"))]
        return ranges
    if node.op != "slice":
        return None
    values = (entries(node.attr(name)) for name in ("begin", "end", "step"))
    begin, end, step = (each + [None] * (len(shape) - len(each)) for each in values)
    return [positions[slice(*bounds)] for positions, bounds in zip(ranges, zip(begin, end, step))]


def keeps_batch(node: Node) -> bool:
    """Returns whether a slice keeps the whole first axis, of any length."""
    if node.op == "slice_axis":
        return node.attr("axis") != 0 or (node.attr("begin") == 0 and node.attr("end") is None)
    begin, end, step = (next(iter(entries(node.attr(name))), None) for name in ("begin", "end", "step"))
    return begin in (None, 0) and end is None and step in (None, 1)


def operators(symbol: Symbol) -> Set[str]:
    """Returns the names of a Symbol's operators, except those inside loops, conditions and fused operators."""
    return {node["op"] for node in json.loads(symbol.tojson())["nodes"]}


class Graph:
    """The nodes that compute some outputs.

    `values` maps the names of parameters to arrays, `inputs` the names of inputs to shapes. :meth:`run` uses the device
    `context`, by default the CPU.
    """

    def __init__(self, outputs: Sequence[Output], values: Arrays, inputs: InputShapes, context: Any = None):
        self.outputs, self.values, self.inputs = list(outputs), dict(values), dict(inputs)
        self.context = context or mx.cpu()

    @classmethod
    def of(
        cls,
        symbol: Symbol,
        values: Arrays,
        inputs: InputShapes,
        context: Any = None,
        casts: bool = True,
        windows: Sequence[Tuple[Any, ...]] = (),
    ) -> Graph:
        """Returns the graph of a Symbol. Without `casts`, the casts of `mxnet.contrib.amp` are left out. `windows` is
        the list of the recorder with which the Symbol was made: see `mxsame.scope.with_windows`."""
        content = json.loads(symbol.tojson(remove_amp_cast=not casts))
        nodes: List[Node] = []
        for entry in content["nodes"]:
            sources = [Output(nodes[source], index) for source, index, *_ in entry["inputs"]]
            others = {key: value for key, value in entry.items() if key not in ("op", "name", "inputs", "attrs")}
            attrs = dict(entry.get("attrs", {}))
            nodes.append(Node(entry["op"], entry["name"], sources, attrs, others))
            if windows and WINDOWS in attrs and entry["op"] in WITH_WINDOWS:
                nodes[-1].windows = windows[int(attrs[WINDOWS])]
            elif windows and WINDOWS in attrs and entry["op"] != "null":
                nodes[-1].is_merged = True
            if FORMULAS in attrs:
                nodes[-1].formulas = RecurrentFormulas(**json.loads(attrs[FORMULAS]))
        return cls([Output(nodes[source], index) for source, index, *_ in content["heads"]], values, inputs, context)

    def symbol(self, outputs: Optional[Sequence[Output]] = None) -> Symbol:
        """Returns a Symbol of these outputs, by default of the graph's outputs."""
        outputs = self.outputs if outputs is None else outputs
        nodes = self.nodes(outputs)
        number = {node: position for position, node in enumerate(nodes)}
        written = [
            {
                "op": node.op,
                "name": node.name,
                "attrs": self._variable_attributes(node) if node.op == "null" else node.attrs,
                "inputs": [[number[source], index, 0] for source, index in node.inputs if node.op != "null"],
                **node.other_fields,
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

    def _variable_attributes(self, node: Node) -> Dict[str, str]:
        """Returns the attributes of a variable. A parameter has the shape and the type of its array: the variable in
        the net's graph may have the type from before a cast."""
        value = self.values.get(node.name)
        if value is None:
            return node.attrs
        return {"__shape__": str(value.shape), "__dtype__": tensors.dtype_attribute(value.dtype)}

    def nodes(self, outputs: Optional[Sequence[Output]] = None) -> List[Node]:
        """Returns all nodes, each after its inputs."""
        ordered: Dict[Node, None] = {}  # not by recursion: Python limits its depth
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
        """Returns all users of every node."""
        users: Dict[Node, List[User]] = {node: [] for node in self.nodes()}
        for node in users:
            for position, (source, _) in enumerate(node.inputs):
                users[source].append(User(node, position))
        for position, (source, _) in enumerate(self.outputs):
            users[source].append(User(None, position))
        return users

    def inputs_of(self, node: Optional[Node]) -> List[Output]:
        """Returns the inputs of a node, or the graph's outputs for None: the list that `User.position` indexes."""
        return self.outputs if node is None else node.inputs

    def connect(self, user: User, output: Output) -> None:
        """Make a user read this output instead."""
        self.inputs_of(user.node)[user.position] = output

    def replace(self, replacements: Mapping[Output, Output]) -> None:
        """Replace outputs with others, which may be replaced in turn.

        The inputs of new nodes are not replaced, so an operator can replace an output that it reads.
        """

        def final(output: Output) -> Output:
            while output in replacements:
                output = replacements[output]
            return output

        for node in self.nodes():
            node.inputs = list(map(final, node.inputs))
        self.outputs = list(map(final, self.outputs))

    def value(self, output: Output) -> Optional[np.ndarray]:
        """Returns the array of a parameter, None for anything else."""
        return self.values.get(output.node.name) if output.node.op == "null" else None

    def constant(self, name: str, value: np.ndarray) -> Output:
        """Returns a new parameter with this value; its name starts with `name`."""
        unique = unique_name(name, ChainMap(self.values, self.inputs))  # type: ignore[misc]
        self.values[unique] = np.ascontiguousarray(value)
        return Output(Node("null", unique))

    def used_outputs(self) -> List[Output]:
        """Returns the first output of every node, and all other outputs that are used."""
        nodes = self.nodes()
        sources = (source for node in nodes for source in node.inputs)
        return list(dict.fromkeys([*map(Output, nodes), *self.outputs, *sources]))

    def shapes(self, inputs: Optional[InputShapes] = None) -> Shapes:
        """Returns the shape of each node's first output, as far as :meth:`output_shapes` has it."""
        return {output.node: shape for output, shape in self.output_shapes(inputs).items() if not output.index}

    def output_shapes(self, inputs: Optional[InputShapes] = None) -> Dict[Output, Shape]:
        """Returns the shape of every used output, for inputs of these shapes (by default `self.inputs`), without the
        outputs whose shape MXNet cannot infer."""
        outputs = self.used_outputs()
        names = {output.node.name for output in outputs if output.node.op == "null"}
        known = {name: shape for name, shape in (inputs or self.inputs).items() if name in names}
        _, inferred, _ = self.symbol(outputs).infer_shape_partial(**known)
        return {output: shape for output, shape in zip(outputs, inferred) if is_complete(shape)}

    def shapes_of(self, outputs: Sequence[Output]) -> Dict[Output, Optional[Shape]]:
        """Returns the inferred shape of each output, with 0 for an unknown length; None for an unknown shape."""
        inferred = tensors.infer_shapes(self.symbol(outputs), self.inputs) if outputs else None
        return dict(zip(outputs, inferred or itertools.repeat(None)))

    def have_same_shape(self, outputs: Sequence[Output]) -> bool:
        """Returns whether the outputs have the same shape for all batch sizes, also if inputs differ in them, where
        MXNet accepts that. With batches of 1 only, arrays that are broadcast could have equal shapes by chance."""
        symbol = self.symbol(outputs)
        for with_batch_1 in (None, *self.inputs):
            inputs = {name: (1 if name == with_batch_1 else 2, *shape[1:]) for name, shape in self.inputs.items()}
            shapes = tensors.infer_shapes(symbol, inputs)
            if shapes and not (all(map(is_complete, shapes)) and len(set(shapes)) == 1):
                return False
        return True

    def dtypes(self) -> Dict[Output, Any]:
        """Returns the type of every used output; {} if an input may have several types."""
        variables = [node for node in self.nodes() if node.op == "null"]
        if not all(node.name in self.values or "__dtype__" in node.attrs for node in variables):
            return {}
        outputs = self.used_outputs()
        _, inferred, _ = self.symbol(outputs).infer_type_partial()
        return dict(zip(outputs, inferred or ()))

    def accepted_dtypes(self, name: str, dtypes: Sequence[Any]) -> Tuple[Any, ...]:
        """Returns which of these types an input may have; raises MXNet's error if it may have none of them. If it is
        one type, the input's variable gets it; if there are several, the variable has no type. Integers are rejected if
        they reach `Pooling`: MXNet infers its output type, but cannot run it."""
        inputs = [node for node in self.nodes() if node.op == "null" and node.name in self.inputs]
        variable = next((node for node in inputs if node.name == name), None)
        if variable is None:
            return tuple(dtypes)
        variable.attrs.pop("__dtype__", None)
        untyped, accepted, first_error = [node.name for node in inputs if "__dtype__" not in node.attrs], [], None
        pooled = [node.inputs[0] for node in self.nodes() if node.op == "Pooling"]
        symbol = self.symbol([*self.outputs, *pooled])
        for dtype in dtypes:
            try:
                _, types, _ = symbol.infer_type_partial(**dict.fromkeys(untyped, dtype))
                if any(each is not None and np.dtype(each).kind != "f" for each in types[len(self.outputs) :]):
                    raise mx.base.MXNetError(f"Pooling must be given floating types; received {dtype}")
                accepted.append(dtype)
            except mx.base.MXNetError as error:
                first_error = first_error or error
        if not accepted and first_error:
            raise first_error
        if len(accepted) == 1:
            variable.attrs["__dtype__"] = tensors.dtype_attribute(accepted[0])
        return tuple(accepted)

    def run(self, outputs: Sequence[Output], data: Optional[Arrays] = None) -> List[np.ndarray]:
        """Returns the arrays of these outputs; `data` maps names of inputs to arrays. They are computed by a Gluon
        block: an executor would let oneDNN fuse operators."""
        symbol, values = self.symbol(outputs), {**self.values, **(data or {})}
        names = symbol.list_inputs()
        arrays = [mx.nd.array(values[name], ctx=self.context, dtype=values[name].dtype) for name in names]
        if not names:
            return [array.asnumpy() for array in symbol.eval(ctx=self.context)]
        variables = [mx.sym.var(name, dtype=array.dtype) for name, array in zip(names, arrays)]
        with mx.util.np_array(False), mx.autograd.pause(train_mode=False):
            computed = mx.gluon.SymbolBlock(symbol, variables)(*arrays)
        return [array.asnumpy() for array in (computed if isinstance(computed, list) else [computed])]

    def prune(self) -> None:
        """Drop the arrays of parameters that no node uses."""
        names = {node.name for node in self.nodes()}
        self.values = {name: value for name, value in self.values.items() if name in names}


def is_complete(shape: Any) -> bool:
    """Returns whether MXNet has inferred all lengths of a shape."""
    if mx.util.is_np_shape():
        return shape is not None and -1 not in shape
    return bool(shape) and 0 not in shape
