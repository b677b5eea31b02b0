"""Writes a graph as an ONNX model, with one emitter for each kind of node."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame.exporting.blocks import NetGraph
from mxsame.exporting.custom import CustomEmitters
from mxsame.exporting.lowering import lower
from mxsame.exporting.shapes import Length, Shape
from mxsame.exporting.writer import Emitters, GraphWriter
from mxsame.rewriting.graph import Node, Output, unique_name
from mxsame.validation import check, check_type

EMITTERS = Emitters()
writes = EMITTERS.writes


class OnnxWriter(GraphWriter):
    """Writes the nodes and initializers of an ONNX graph.

    Parameters
    ----------
    traced : mxsame.exporting.blocks.NetGraph
        The graph to write.
    opset : int
        The version of ONNX's operators.
    input_names : mapping of str to str
        The graph's inputs, and their names in the file.
    output_names : sequence of str
        The names of the graph's outputs in the file.
    dtypes : mapping of str to numpy.dtype
        The graph's inputs, and their dtypes.
    custom, advice
        As for `GraphWriter`.
    """

    function, format = "export_onnx", "ONNX"

    def __init__(
        self,
        traced: NetGraph,
        opset: int,
        input_names: Mapping[str, str],
        output_names: Sequence[str],
        dtypes: Mapping[str, Any],
        custom: CustomEmitters,
        advice: Mapping[str, str],
    ):
        import onnx

        super().__init__(traced, EMITTERS, custom, advice)
        self._onnx, self.opset, self._input_dtypes = onnx, opset, dtypes
        self.nodes: List[Any] = []
        self._inputs = dict(input_names)
        self._outputs = list(output_names)
        self._taken = {*self._inputs.values(), *self._outputs}
        self._parameters = {name: self._unique(name) for name in self.graph.values}  # an input may have the same name
        self._constants: Dict[tuple, str] = {}
        self._lengths: Dict[Length, str] = {}
        self._arrays = {self._parameters[name]: value for name, value in self.graph.values.items()}

    # -- the model

    def model(self) -> Any:
        """Returns the graph as an `onnx.ModelProto`."""
        lower(self)
        self._rename(self.write_all(), self._outputs)
        inputs = [
            self._value_info(name, self.shapes.inputs[x], self._input_dtypes[x], self.shapes.batches.get(x, 0))
            for x, name in self._inputs.items()
        ]
        named = zip(self._outputs, self.graph.outputs)
        outputs = [self._value_info(name, self.shape(output), self.dtype(output)) for name, output in named]
        helper, used = self._onnx.helper, self._drop_unused()
        tensor = self._onnx.numpy_helper.from_array
        arrays = [tensor(array, name) for name, array in self._arrays.items() if name in used]
        graph = helper.make_graph(self.nodes, "mxsame", inputs, outputs, arrays)
        opsets = [helper.make_opsetid("", self.opset)]
        metadata = {"producer_name": "mxsame", "ir_version": helper.find_min_ir_version_for(opsets)}
        domains = dict.fromkeys(node.domain for node in self.nodes if node.domain)  # those of the user's operators
        opsets += [helper.make_opsetid(domain, 1) for domain in domains]
        return helper.make_model(graph, opset_imports=opsets, **metadata)

    def _value_info(self, name: str, shape: Shape, dtype: Any, batch: int = 0) -> Any:
        """Returns the `ValueInfoProto` of an input or an output. A dynamic length gets a name, which equal lengths
        share."""
        lengths, names = [], self._lengths
        for axis, length in enumerate(shape):
            default = "N" if axis == batch and "N" not in names.values() else f"{name}_{axis}"
            lengths.append(length.traced if length.is_static else names.setdefault(length, default))
        return self._onnx.helper.make_tensor_value_info(name, self.tensor_type(dtype), lengths)

    def _rename(self, current: List[str], names: Sequence[str]) -> None:
        """Renames the graph's outputs. If no node computes an output, or it occurs twice, an Identity gets the name."""
        produced = {name for node in self.nodes for name in node.output}
        renamed: Dict[str, str] = {}
        for old, new in zip(current, names):
            if old in produced and old not in renamed:
                renamed[old] = new
            else:
                self.nodes.append(self._onnx.helper.make_node("Identity", [renamed.get(old, old)], [new], name=new))
        for node in self.nodes:
            for field in (node.input, node.output):
                field[:] = [renamed.get(name, name) for name in field]

    def _drop_unused(self) -> Set[str]:
        """Drops nodes whose outputs are not used, since a constant was written instead. Returns the names that are
        used."""
        used, used_nodes = set(self._outputs), []
        for node in reversed(self.nodes):
            if used.intersection(node.output):
                used.update(node.input)
                used_nodes.append(node)
        self.nodes = used_nodes[::-1]
        return used

    def variable(self, node: Node) -> str:
        """Returns the name of an input or a parameter."""
        return self._inputs.get(node.name) or self._parameters[node.name]

    def placeholder(self, output: Output) -> str:
        """Returns a new name. No node computes it, since the model is refused."""
        return self._unique(output.node.name)

    # -- for the user's functions

    def input_for_user(self, output: Output) -> Any:
        value = self.graph.value(output)
        return self.written(output) if value is None else value

    def output_of_user(self, value: Any, shape: Shape) -> str:
        check_type(isinstance(value, str), "custom must return what write returns", custom=value)
        return str(value)

    def write_function(self, source: Any) -> Callable[..., Any]:
        """Returns a function that adds a node. Its inputs may be arrays and numbers; floats become initializers of the
        output's dtype."""
        dtype = self.dtype(Output(self.node))

        def initializer(value: Any) -> str:
            array = np.asarray(value)
            return self.constant(array, dtype if array.dtype.kind == "f" else array.dtype)

        def write(op_type: str, /, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
            names = [x if x is None or isinstance(x, str) else initializer(x) for x in inputs]
            return self.add(op_type, *names, outputs=outputs, **attributes)

        return write

    # -- writing, for emitters

    def add(self, op: str, *inputs: Optional[str], outputs: int = 1, **attrs: Any) -> Any:
        """Adds a node, which is named after the node being written. Returns the name of its output, or a list of
        names. A trailing input may be None."""
        names = [self._unique(self.node.name) for _ in range(outputs)]
        sources = ["" if each is None else each for each in inputs]
        while sources and not sources[-1]:
            sources.pop()
        self.nodes.append(self._onnx.helper.make_node(op, sources, names, name=names[0], **attrs))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Returns the name of an initializer, which equal arrays share."""
        array = np.asarray(value, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._unique("constant")
            self._arrays[self._constants[key]] = array
        return self._constants[key]

    def integers(self, values: Sequence[int]) -> str:
        """Returns the name of an int64 initializer."""
        return self.constant(list(values), np.int64)

    def scalar(self, value: float, like: Output) -> str:
        """Returns the name of an initializer for one number, with the dtype of an output."""
        return self.constant(value, self.dtype(like))

    def cast(self, name: str, dtype: Any) -> str:
        """Casts to a NumPy dtype."""
        return self.add("Cast", name, to=self.tensor_type(dtype))

    def tensor_type(self, dtype: Any) -> int:
        """Returns the `TensorProto.DataType` of a NumPy dtype."""
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def fill(self, lengths: str, value: int, dtype: Any) -> str:
        """Fills an array with one value. Its lengths are an array, too."""
        return self.add("ConstantOfShape", lengths, value=self._onnx.numpy_helper.from_array(np.full(1, value, dtype)))

    def to_mxnet_scalar(self, node: Node, name: str) -> str:
        """Reshapes a scalar to one axis, as MXNet returns it unless NumPy shapes are enabled."""
        return self.add("Reshape", name, self.integers([1])) if len(self.shape(Output(node))) == 1 else name

    def unsqueeze(self, name: str, axes: Sequence[int]) -> str:
        """Inserts axes of length 1 at these positions of the output."""
        return self.add("Unsqueeze", name, self.integers(axes))

    def expand_weight_to_2d(self, weight: Output, name: str) -> str:
        """Turns the weight of a 1-D convolution into a 2-D one. A parameter that only convolutions use is replaced, so
        that it keeps its name."""
        value, users = self.graph.value(weight), self.users[weight.node]
        if value is None or any(user is None or user.op != "Convolution" for user, _ in users):
            return self.unsqueeze(name, [2])
        self._arrays[name] = np.expand_dims(value, 2)
        return name

    def squeeze(self, name: str, axes: Sequence[int]) -> str:
        """Removes these axes of length 1."""
        return self.add("Squeeze", name, self.integers(axes))

    def reduce(self, op: str, name: str, axes: Sequence[int], keepdims: bool) -> str:
        """Adds a reduction. Its axes are an input from opset 18 on, and an attribute before. For ReduceSum, they are an
        input in every opset that is written."""
        if self.opset < 18 and op != "ReduceSum":
            return self.add(op, name, axes=list(axes), keepdims=int(keepdims))
        return self.add(op, name, self.integers(axes), keepdims=int(keepdims))

    def slice(self, name: str, *ranges: Tuple[int, Any, Any, int]) -> str:
        """Slices by one (axis, begin, end, step) per axis; None is the start or the end of the axis, as in Python."""
        largest = np.iinfo(np.int64).max
        starts = [(0 if step > 0 else largest) if begin is None else begin for _, begin, _, step in ranges]
        ends = [(largest if step > 0 else -largest) if end is None else end for _, _, end, step in ranges]
        steps = [step for *_, step in ranges]
        axes = [axis for axis, *_ in ranges]
        return self.add("Slice", name, *map(self.integers, (starts, ends, axes, steps)))

    def reshape(self, name: str, source: Shape, target: Shape) -> str:
        """Adds a Reshape. A dynamic length is written as 0 if its axis does not change. Otherwise it is inferred (-1),
        which is possible for one length."""
        lengths = []
        for axis, length in enumerate(target):
            is_unchanged = axis < len(source) and source[axis] == length
            lengths.append(length.traced if length.is_static else 0 if is_unchanged else -1)
        rule = "at most one dynamic length may change"
        check(lengths.count(-1) <= 1, rule + self.advice.get("dynamic", ""), lengths=lengths)
        return self.add("Reshape", name, self.integers(lengths))

    def resize(
        self, name: str, scales: Optional[Sequence[float]] = None, sizes: Optional[str] = None, **attrs: Any
    ) -> str:
        """Adds a Resize by `scales` or to `sizes`. Without attributes, it repeats elements."""
        if not attrs:
            attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        factors = None if scales is None else self.constant(scales, np.float32)
        return self.add("Resize", name, None, factors, sizes, **attrs)

    def permute(self, name: str, axes: Sequence[int]) -> str:
        """Adds a Transpose, unless the axes are in order already."""
        return name if list(axes) == sorted(axes) else self.add("Transpose", name, perm=list(axes))

    def lengths(self, shape: Shape, name: str) -> str:
        """Returns the lengths of an array as an array: an initializer if its shape is static."""
        if all(length.is_static for length in shape):
            return self.integers([length.traced for length in shape])
        return self.add("Shape", name)

    def _unique(self, name: str) -> str:
        unique = unique_name(name, self._taken)
        self._taken.add(unique)
        return unique
