"""The steps of a network: blocks that run one after the other, on arrays in the order of axes that they need.

Convolutions and pooling layers need channels first. Layers such as Flatten and Reshape, and outputs, need Keras's
order. All others (activations, additions, batch norms) keep the order of their input, so that a network has few
transpositions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.graphs.errors import ShapeCheck
from mxsame.keras_format import dtypes
from mxsame.port import blocks
from mxsame.port.parameters import UNCHANGED, set_parameter
from mxsame.port.tensors import Size, Tensor
from mxsame.validation import InvalidType, check, check_element_count

PASS_INDICES = ("cast", "identity", "indices_from_end", "reshape", "transpose", "squeeze", "expand_dims", "take_slice")
LENGTHS = (5040, 10080)  # two substitutes for a dynamic length, with many divisors, that differ after any strides


class Step(NamedTuple):
    """A block, the keys of its input and output tensors, and the name of its layer."""

    block: Any
    inputs: List[int]
    outputs: List[int]
    layer: str

    def run(self, arrays: Dict[int, Any]) -> None:
        """Calls the block on arrays, by key, and adds its outputs."""
        out = self.block(*(arrays[key] for key in self.inputs))
        arrays.update(zip(self.outputs, out if len(self.outputs) > 1 else [out]))


def needed_steps(steps: Sequence[Step], outputs: Iterable[int], given: Iterable[int] = ()) -> List[Step]:
    """Returns the steps that compute some tensors, by their keys, from given ones and the inputs of the network."""
    needed, found = set(outputs).difference(given), []
    for step in reversed(steps):
        if needed.intersection(step.outputs):
            needed.update(set(step.inputs).difference(given))
            found.append(step)
    return found[::-1]


class Steps(List[Step]):
    """A list of steps, with methods that add one."""

    def __init__(self) -> None:
        super().__init__()
        self.has_batch_of_1 = False  # whether an input of the model declares a batch of 1
        self.unmasked: Set[int] = set()  # keys of Keras's tensors whose masks a layer has removed
        self.time_major: FrozenSet[int] = frozenset()  # keys of inputs whose first axis is time
        self._in_order: Dict[Tuple[int, Any], Tensor] = {}  # by key, and the order or the pads
        self._sources: Dict[int, FrozenSet[int]] = {}
        self._names: Dict[str, int] = {}
        self._parameters: set = set()

    def new_tensor(self, shape: Sequence[Size], transposed: bool = False, sources: Any = None) -> Tensor:
        """Returns a new tensor, by default an input of the network."""
        key = len(self._sources)
        self._sources[key] = frozenset({key}) if sources is None else sources
        return Tensor(key, tuple(shape), transposed)

    def sources(self, values: Iterable[Tensor]) -> FrozenSet[int]:
        """Returns the keys of the network's inputs on which these tensors depend."""
        return frozenset().union(*(self._sources[x.key] for x in values))

    def index_counts(self) -> Dict[int, int]:
        """Returns, by the keys of tensors of indices, how many rows the smallest Embedding of them has."""
        counts: Dict[int, int] = {}
        for step in reversed(self):
            count = counts.get(step.outputs[0]) if getattr(step.block, "function", "") in PASS_INDICES else None
            count = step.block.weight.shape[0] if isinstance(step.block, mx.gluon.nn.Embedding) else count
            if count is not None:
                counts[step.inputs[0]] = min(count, counts.get(step.inputs[0], count))
        return counts

    # -- blocks

    def emit(self, block: Any, inputs: Sequence[Tensor], layer: str, transposed: Any = None,
             shape: Any = None) -> List[Tensor]:  # fmt: skip
        """Adds a block of these inputs, and returns its outputs.

        The order of axes is that of the first input unless `transposed` is given. The shapes are inferred unless
        `shape`, that of a single output in Keras's order, is given.
        """
        transposed = inputs[0].transposed if transposed is None else transposed
        factors = {x.batch_factor for x in inputs}
        rule = "tensors must have the same batch, not one that a reshape or a concatenation has changed"
        check(len(factors) == 1, rule)
        outputs, sources = [], self.sources(inputs)
        for each in _inferred_shapes(block, inputs, transposed) if shape is None else [shape]:
            check_element_count("the output", each)
            outputs.append(self.new_tensor(each, transposed, sources)._replace(batch_factor=inputs[0].batch_factor))
        self.append(Step(block, [value.key for value in inputs], [value.key for value in outputs], layer))
        return outputs

    def apply(self, layer: str, function: Any, *inputs: Tensor, transposed: Any = None, shape: Any = None,
                 **arguments: Any) -> Tensor:  # fmt: skip
        """Adds a function of `mxsame.port.blocks`, or an operator of MXNet by its name, and returns its output."""
        name = getattr(function, "__name__", function)
        block = blocks.Function(function, prefix=self.unique_prefix(f"{layer}_{name}"), **arguments)
        return self.emit(block, inputs, layer, transposed, shape)[0]

    def constant(self, layer: str, function: Any, x: Tensor, arrays: Mapping[str, Any], **arguments: Any) -> Tensor:
        """Adds a function whose parameters are these constant arrays, and returns its output."""
        shapes = {name: array.shape for name, array in arrays.items()}
        block = blocks.Function(function, self.unique_prefix(layer), shapes, **arguments)
        for name, array in arrays.items():
            parameter = getattr(block, name)
            parameter.grad_req = "null"
            parameter.cast(array.dtype)
            set_parameter(parameter, UNCHANGED, array, parameter.name)
        return self.emit(block, [x], layer)[0]

    def with_unique_parameters(self, make: Callable, name: str) -> Any:
        """Returns a block whose parameters have new names: a separable layer "x" has an x_depthwise_weight, as a layer
        "x_depthwise" does."""
        block = make(prefix=self.unique_prefix(name))
        while self._parameters.intersection(block.collect_params()):
            block = make(prefix=self.unique_prefix(name))
        self._parameters.update(block.collect_params())
        return block

    def unique_prefix(self, name: str) -> str:
        """Returns a prefix that no other block has."""
        number = self._names[name] = self._names.get(name, -1) + 1
        return f"{name}_" if not number else self.unique_prefix(f"{name}_{number}")

    # -- the order of axes, pads and dtypes

    def in_order(self, x: Tensor, transposed: bool) -> Tensor:
        """Returns a tensor in one order of axes: as it is, or transposed by a step that is added once."""
        x = self.padded(x)
        if x.transposed == transposed or x.rank < 3:
            return x
        return self._once(x, transposed, lambda: self._rearranged(x, transposed))

    def padded(self, x: Tensor) -> Tensor:
        """Returns a tensor with its pads applied, by a step that is added once."""
        if x.pads is None:
            return x
        pads = x.ordered([(0, 0), *x.pads, (0, 0)])
        return self._once(x, x.pads, lambda: self.apply("pad", blocks.pad, x.without_pads, pads=pads))

    def _once(self, x: Tensor, change: Any, make: Callable) -> Tensor:
        """Returns what `make()` returns at the first call for this tensor and change."""
        if (x.key, change) not in self._in_order:
            self._in_order[x.key, change] = make()
        return self._in_order[x.key, change]._replace(mask=x.mask, dtype=x.dtype)

    def _rearranged(self, x: Tensor, transposed: bool) -> Tensor:
        make = partial(self.apply, "to_channels_first" if transposed else "to_channels_last")
        last, here = x.rank - 1, {"transposed": transposed, "shape": x.shape}
        if x.shape[-1] == 1:
            ends = {"source": last, "target": 1} if transposed else {"source": 1, "target": last}
            return make(blocks.move_single_channel, x, **here, **ends)
        if all(length == 1 for length in x.shape[1:-1]):
            ones = (1,) * (last - 1)
            to = (0, -1, *ones) if transposed else (0, *ones, -1)
            return make(blocks.reshape, x, **here, to=to)
        return make("transpose", x, **here, axes=(0, last, *range(1, last)) if transposed else x.keras_order)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Returns a tensor of this dtype, by a step if its array has to change."""
        if dtype == x.dtype:
            return x
        stored, as_given = dtypes.STORED[dtype], x.dtype == dtypes.UNCAST
        out = x
        if dtype == "bool" and not as_given:
            out = self.apply("cast", blocks.scalar, self.padded(x), operator="not_equal", value=0.0)
        elif dtypes.STORED.get(x.dtype) != stored and not (as_given and dtype == "float32"):
            out = self.padded(x)
            for each in dict.fromkeys([dtypes.INPUT_DTYPES.get(dtype, stored) if as_given else stored, stored]):
                out = self.apply("cast", "cast", out, dtype=each)
        return out._replace(mask=x.mask, dtype=dtype)


def _traced(block: Any, inputs: Sequence[Tensor]) -> Tuple[List[str], Any]:
    """Returns the names of a block's inputs, and its outputs as one Symbol."""
    names = [f"data{number}" for number in range(len(inputs))]
    outputs = block(*map(mx.sym.var, names))
    outputs = outputs if isinstance(outputs, list) else [outputs]
    if any(not isinstance(out, mx.sym.Symbol) or len(out.list_outputs()) != 1 for out in outputs):
        raise InvalidType("outputs of a block must be Symbols of one output each")
    return names, mx.sym.Group(outputs)


def inferred_types(block: Any, inputs: Sequence[Tensor], has_batch_of_1: bool) -> List[str]:
    """Returns the dtypes of a block's outputs, as MXNet infers them: float32 where it does not. Raises a `ValueError`
    if its parameters do not fit the inputs."""
    names, group = _traced(block, inputs)
    batch = 1 if has_batch_of_1 else LENGTHS[0]
    shapes = [tuple(x.ordered((batch, *(length or 0 for length in x.shape[1:])))) for x in inputs]
    ShapeCheck(group, block.collect_params()).run(dict(zip(names, shapes)), shapes=[x.shape for x in inputs])
    given = {name: dtypes.STORED[x.dtype] for name, x in zip(names, inputs) if name in group.list_arguments()}
    inferred = group.infer_type(**given)[1] or [np.float32] * len(group.list_outputs())
    return [np.dtype(each).name for each in inferred]


def _inferred_shapes(block: Any, inputs: Sequence[Tensor], transposed: bool) -> List[Tuple[Size, ...]]:
    """Returns the shapes of a block's outputs in Keras's order. MXNet infers them for two values of dynamic lengths:
    a length that differs, or is unknown, is dynamic."""
    (names, group), inferred = _traced(block, inputs), []
    used = set(group.list_arguments()).intersection(names)
    for length in LENGTHS:
        shapes = {name: tuple(n or length for n in value.ordered(value.shape)) for name, value in zip(names, inputs)}
        inferred.append(group.infer_shape_partial(**{name: shapes[name] for name in used})[1])
    both = [tuple(a if a == b and a else None for a, b in zip(*pair)) for pair in zip(*inferred)]
    return [(shape[0], *shape[2:], shape[1]) if transposed else shape for shape in both]
