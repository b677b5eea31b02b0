"""A Keras model as a Gluon block: its steps, and the checks of its inputs."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from mxsame import tensors
from mxsame._mxnet import mx
from mxsame.nn import HybridBlock
from mxsame.port.builder import Builder
from mxsame.port.description import Layer, Model
from mxsame.port.steps import Step
from mxsame.port.values import Value
from mxsame.scope import deferred_in_trace, scope
from mxsame.tensors import operands
from mxsame.validation import check, check_not_empty, check_shape


class Network(HybridBlock):
    """A Keras model as a Gluon block; its children and parameters have the names of Keras's layers.

    Attributes
    ----------
    description : mxsame.port.description.Model
        What was read; its weights are in the parameters.
    transpositions : int
        How many times the data itself changes its order of axes.

    Notes
    -----
    Inputs must have the model's static lengths, as in Keras: the steps are for these. Arrays of other lengths are a
    `ValueError`, and graphs refuse them with an error of the operator `data_must_be_..`.
    """

    def __init__(self, description: Model, builder: Builder, inputs: List[Value], outputs: List[Value]):
        super().__init__(prefix="")
        self.description, self.inputs = description, inputs
        self.declared_shapes = [tuple(value.ordered(value.shape)) for value in inputs]
        self._steps, self._known = builder.steps, builder.known
        steps = self._steps
        self.outputs, self._outputs = outputs, [x.key for x in outputs]
        last = {key: number for number, step in enumerate(steps) for key in step.inputs}
        self._done = [
            [key for key in dict.fromkeys(step.inputs) if last[key] == number and key not in self._outputs]
            for number, step in enumerate(steps)
        ]
        for block in dict.fromkeys(step.block for step in steps):
            self.register_child(block, block.name)

    def __repr__(self) -> str:
        """Returns one line for each block, with the name of its Keras layer."""
        blocks = dict.fromkeys((step.layer, step.block) for step in self._steps)
        lines = (f"  ({layer}): {block!r}".replace("\n", "\n  ") for layer, block in blocks)
        return "\n".join((f"{type(self).__name__}(", *lines, ")"))

    @property
    def custom(self) -> Dict[int, Any]:
        """The blocks of the user's, by the identity of their layers."""
        return {id(known.layer): known.block for known in self._known.values() if known.is_users}

    @property
    def transpositions(self) -> int:
        return sum(getattr(step.block, "function", None) == "transpose" for step in self._steps)

    def layers(self, *arrays: Any) -> Iterator[Tuple[Tuple[str, ...], Layer, List[Any], Any]]:
        """Yields what every layer gives for these inputs, one after the other: (path, layer, blocks, array in Keras's
        order).

        A layer without steps of its own (dropout at inference, zeros that the next convolution puts) gives nothing.
        """
        blocks: Dict[str, List[Any]] = {}
        for step in self._steps:
            if step.block not in blocks.setdefault(step.layer, []):
                blocks[step.layer].append(step.block)
        wanted: Dict[int, List[Any]] = {}
        for path, known in self._known.items():
            if known.output is not None and known.output.pads is None:
                wanted.setdefault(known.output.key, []).append((path, known.layer, known.output))
        values = self._checked(arrays)
        for step in self._run(values):
            for path, layer, value in (entry for key in step.outputs for entry in wanted.get(key, ())):
                out = values[value.key]
                out = out.transpose(value.keras_order) if value.transposed else out
                yield path, layer, blocks.get("_".join(path), []), out

    def _run(self, values: Dict[int, Any]) -> Iterator[Step]:
        """Yields each step when its outputs are among the values; what no later step takes is then deleted."""
        for step, done in zip(self._steps, self._done):
            out = step.block(*(values[key] for key in step.inputs))
            values.update(zip(step.outputs, out if len(step.outputs) > 1 else [out]))
            yield step
            for key in done:
                del values[key]

    def __call__(self, *arrays: Any) -> Any:
        """Call the net as every HybridBlock. Arrays are checked and cast here, since a graph that is there already
        refuses them with MXNet's words only."""
        if not any(isinstance(array, mx.sym.Symbol) for array in arrays):
            arrays = tuple(self._checked(arrays).values())
        return super().__call__(*arrays)

    def _checked(self, arrays: Sequence[Any]) -> Dict[int, Any]:
        """Returns the inputs by their keys: arrays of the model's static lengths, or Symbols that refuse others; of the
        type that the model declares, or that of the parameters."""
        if len(arrays) != len(self.inputs):
            raise TypeError(f"net must be called with {len(self.inputs)} inputs; received {len(arrays)}")
        batches = [shape[0] for shape in map(tensors.known_shape, arrays) if shape]
        check(len({n for n in batches if n}) <= 1, "inputs must have the same batch", batches=batches)
        others = [x for x in arrays if isinstance(x, mx.nd.NDArray) and x.dtype in (np.float16, np.float64)]
        weights = [(np.dtype(x.dtype).name, len(x.shape)) for x in self.collect_params().values()] if others else []
        if any(name == "float16" and rank > 1 for name, rank in weights):
            operands.check_convolvable("data", others[0])
        dtype = "float32" if {name for name, _ in weights} == {"float32"} else None
        return {value.key: _declared(value, array, dtype) for value, array in zip(self.inputs, arrays)}

    def hybrid_forward(self, F: Any, x: Any, *others: Any) -> Any:
        values = self._checked((x, *others))
        for _ in self._run(values):
            pass
        outputs = [values[key] for key in self._outputs]
        return outputs[0] if len(outputs) == 1 else outputs


def check_network(net: Any) -> None:
    """Raises a `TypeError` for another net."""
    if not isinstance(net, Network):
        raise TypeError(f"net must be one that from_keras returned; received net of type {type(net).__name__}")


@deferred_in_trace
def _declared(value: Value, array: Any, dtype: Optional[str]) -> Any:
    """Returns an input of the static lengths: an array of others is refused, by a graph, too. If the model declares
    float32, an array has that if it has integers or `dtype` is that."""
    operands.check_array("data", array)
    wanted = tuple(value.ordered(value.shape))
    symbolic, shape = isinstance(array, mx.sym.Symbol), tensors.known_shape(array)
    array = _as_floats(array, dtype) if value.dtype == "float32" else array
    if shape is not None:
        check_shape("data", shape, wanted, "that the Keras model was built for")
        check_not_empty("data", shape)
        if all(want is None or have is not None for have, want in zip(shape[1:], wanted[1:])):
            return array
    return tensors.fix_lengths(array, wanted) if symbolic else array


def _as_floats(array: Any, dtype: Optional[str]) -> Any:
    """Returns integers as float32, and floats as they are, or of this type. What `deploy` makes is a graph for both,
    whatever type its Symbols have."""
    given = tensors.known_type(array)
    is_float = given is not None and np.dtype(given).kind == "f"
    if isinstance(array, mx.sym.Symbol):
        return array if is_float and scope().target.purpose != "deployment" else tensors.as_floats(array)
    wanted = dtype or given if is_float else "float32"
    return array if given == wanted else array.astype(wanted)
