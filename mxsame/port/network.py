"""A Keras model as a Gluon block: it checks its inputs, and runs its steps."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame import _gluon, suggestions, tensors, validation
from mxsame._mxnet import mx
from mxsame.graphs import tracing
from mxsame.keras_format.description import Layer, Model
from mxsame.keras_format.topology import LayerName, Path, path_of, with_layers
from mxsame.nn import HybridBlock
from mxsame.port.builder import Builder
from mxsame.port.call_context import LayerState
from mxsame.port.layers import (
    Layers,
    NetworkLayer,
    is_trained,
    layout_hint,
    no_attribute,
    replacement,
    set_trainable,
    summary,
)
from mxsame.port.steps import Step, needed_steps
from mxsame.port.tensors import Tensor
from mxsame.scope import deferred_in_trace, scope
from mxsame.tensors import operands
from mxsame.validation import InvalidType, InvalidValue, check, check_not_empty, check_shape, check_type, remedy


class Built(NamedTuple):
    """What `Builder` has built for a network: steps and states of layers, inputs and outputs."""

    description: Model
    builder: Builder
    inputs: List[Tensor]
    outputs: List[Tensor]


Build = Callable[[Model, Mapping[Path, LayerState]], Built]  # with the states of an earlier build


class Network(HybridBlock):
    """A Keras model as a Gluon block; its children and parameters have the names of Keras's layers.

    Its layers have Keras's names: `net["dense"]` is :meth:`get_layer`, `net["dense"] = block` and `net.dense = block`
    are :meth:`replace`, and `for layer in net` goes through the layers of the model, not those of nested models.

    Attributes
    ----------
    description : mxsame.keras_format.description.Model
        The model as it was read, with the blocks that replace layers; its weights are in the parameters.
    transpositions : int
        The number of steps that transpose the data.
    rank : int
        The rank of the arrays that are channels first in the network and channels last in Keras; 0 if there are none.
    trainable : bool
        Whether any layer is trainable. Setting it sets all layers, as in Keras.

    Notes
    -----
    Inputs must have the model's static lengths, as in Keras: the steps are built for them. Arrays of other lengths
    raise a `ValueError`; in a graph, MXNet raises an error that names the operator `data_must_be_...`.

    >>> import mxsame
    >>> from mxnet.gluon import nn
    >>> net = mxsame.from_keras(mxsame.sample("digits"))
    >>> net["conv2d"].trainable = False
    >>> net["dense"] = nn.Dense(3)
    >>> net["dense"].output_shape, net["dense"].blocks
    ((None, 3), [Dense(128 -> 3, linear)])
    """

    def __init__(self, description: Model, build: Build, rank: int = 0, output_paths: Sequence[Path] = ()):
        super().__init__(prefix="")
        self._build, self.rank, self._output_paths = build, rank, output_paths
        self._set_built(build(description, {}))

    def _set_built(self, built: Built) -> None:
        """Takes over what was built."""
        self.description, builder, self.inputs, self.outputs = built
        self.declared_shapes = [tuple(x.ordered(x.shape)) for x in self.inputs]
        self._steps, self._states = builder.steps, builder.states
        self._outputs = [x.key for x in self.outputs]
        last_use = {key: number for number, step in enumerate(self._steps) for key in step.inputs}
        self._released: List[List[int]] = [[] for _ in self._steps]  # the keys that no step after this one needs
        for key in last_use.keys() - set(self._outputs):
            self._released[last_use[key]].append(key)
        _gluon.drop_children(self)
        _register_blocks(self, self._steps)

    def __repr__(self) -> str:
        """Returns one line for each layer, by the name that `net[name]` takes."""
        layers = (NetworkLayer(self, path) for path in self._states)
        lines = (f"  ({layer.name}): {layer._text}".replace("\n", "\n  ") for layer in layers)
        return "\n".join((f"{type(self).__name__}(", *lines, ")"))

    @property
    def custom(self) -> Dict[Layer, Any]:
        """The user's blocks, by their layers."""
        return {state.layer: state.block for state in self._states.values() if state.is_custom}

    @property
    def matches_description(self) -> bool:
        """Whether it computes the same as the layers of its description with their weights."""
        are_top_level = all(len(path) == 1 for path in self._output_paths)
        has_all_outputs = len(self.outputs) == len(self.description.outputs)
        return are_top_level and has_all_outputs and not self.description.from_keras_mxnet

    def layer_state(self, path: Path) -> LayerState:
        """Returns what the build has recorded about a layer: its block, and the outputs of its calls."""
        return self._states[path]

    def part(self, given: Collection[int], outputs: Sequence[int]) -> Part:
        """Returns the block of the steps that compute `outputs` from `given`, both of them keys of tensors."""
        steps = needed_steps(self._steps, outputs, given)
        inputs = dict.fromkeys(key for step in reversed(steps) for key in step.inputs if key in given)
        return Part(steps, list(inputs), outputs)

    @property
    def transpositions(self) -> int:
        return sum(getattr(step.block, "function", None) == "transpose" for step in self._steps)

    # -- layers by their names

    @property
    def input_shape(self) -> Any:
        """The shape of the input, in the network's order of axes; None for dynamic lengths. A list for several."""
        return self.declared_shapes if len(self.inputs) > 1 else self.declared_shapes[0]

    @property
    def input_names(self) -> List[str]:
        """The names of the input layers, as in Keras."""
        return [tensor.layer for tensor in self.description.inputs]

    @property
    def output_names(self) -> List[str]:
        """The names of the layers whose outputs the network returns, with the name of a nested model as a prefix."""
        if self._output_paths:
            return ["/".join(path) for path in self._output_paths for _ in self._states[path].outputs]
        return [tensor.layer for tensor in self.description.outputs]

    @property
    def output_shape(self) -> Any:
        """The shape of the output, as `input_shape`."""
        shapes = [tuple(value.ordered(value.shape)) for value in self.outputs]
        return shapes if len(shapes) > 1 else shapes[0]

    @property
    def layers(self) -> Layers:
        """The model's layers, without those of nested models. Calling `layers(*arrays)` is `layer_outputs(*arrays)`."""
        return Layers(self)

    @property
    def trainable(self) -> bool:
        return is_trained([*self._states.values()])

    @trainable.setter
    def trainable(self, value: bool) -> None:
        set_trainable(self, self._states.values(), value)

    @property
    def paths(self) -> List[Path]:
        """The paths of all layers: their names, after those of the models that contain them."""
        return list(self._states)

    def get_layer(self, name: Optional[LayerName] = None, index: Optional[int] = None) -> NetworkLayer:
        """Returns the layer with this Keras name, or at the position `index`. A layer of a nested model is "base/conv",
        or "conv" if only one layer has that name.

        As in Keras, an `index` of a functional model counts its input layers, too.

        An unknown name raises an error that is both a `ValueError`, as in Keras, and a `KeyError`."""
        if index is not None and not self.description.sequential:
            (name,) = path_of(index, [(layer.name,) for layer in self.description.layers])
            index = None
        if name in self.input_names and (name,) not in self._states:
            raise InvalidValue(f"net[..] must be given the name of a layer that runs; {name} is an input")
        return NetworkLayer(self, path_of(name if index is None else index, self.paths))

    __getitem__ = get_layer

    def __getattr__(self, name: str) -> Any:
        """Returns the layer with this name, for names that are not attributes."""
        if name.startswith("_"):  # copies and tools ask for such names
            raise no_attribute(self, name)
        try:
            return NetworkLayer(self, path_of(name, list(self.__dict__.get("_states", ()))))
        except ValueError as error:
            raise no_attribute(self, name, str(error)) from None

    def __delitem__(self, name: LayerName) -> None:
        """Raises a `TypeError`."""
        rule = "a layer cannot be deleted, since others need its output"
        hint = f"net[{name!r}] = gluon.contrib.nn.Identity() returns its input; from_keras(.., outputs=name) ends there"
        raise InvalidType(f"{rule}; {hint}")

    def __contains__(self, layer: Any) -> bool:
        return getattr(layer, "name", layer) in map("/".join, self._states)

    def __iter__(self) -> Iterator[NetworkLayer]:
        return (NetworkLayer(self, path) for path in self._states if len(path) == 1)

    def __len__(self) -> int:
        return sum(len(path) == 1 for path in self._states)

    def replace(self, name: LayerName, block: Any) -> None:
        """Put a block in place of a layer, in all of its calls.

        Parameters
        ----------
        name : str or int
            As for `get_layer`; an operator or a nested model can be replaced, too.
        block : gluon.HybridBlock
            It accepts the arrays of the layer, in the network's order of axes: Keras's, or channels first for images of
            a network of `layout="NCHW"`. It also gets the mask of the first array if its `hybrid_forward` has a
            parameter `mask`. If it is not initialized, it is initialized on the network's devices, by the
            initializers of its parameters, or as in Keras ("glorot_uniform").

        Raises
        ------
        TypeError, ValueError
            For an unknown name, an object that is not a HybridBlock, parameter names already in use, and outputs
            that the next layers do not accept. The network is left unchanged.

        Notes
        -----
        All other layers keep their blocks and parameters. If the network is inside another hybridized block, hybridize
        that block again.
        """
        path = path_of(name, self.paths)
        check_type(isinstance(block, mx.gluon.HybridBlock), "block must be a gluon.HybridBlock", block=block)
        state = replacement(self._states[path].layer, block, self.rank, tracing.contexts(self.collect_params()))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the import has already shown them
                model = with_layers(self.description, {path: state.layer})
                built = self._build(model, {**self._states, path: state})
        except validation.Refused as error:
            name, reasons = "/".join(path), "; ".join(error.reasons)
            rule = f"the network must run with the new layer {name!r}: "
            hint = layout_hint(self._states[path], block, self.rank)
            raise InvalidValue(("" if reasons.startswith(f"layer {name!r}") else rule) + reasons + hint) from None
        _check_names(built.builder.steps)
        self._set_built(built)
        _gluon.drop_graph(self)

    def __setitem__(self, name: LayerName, block: Any) -> None:
        self.replace(name, block)

    def __setattr__(self, name: str, value: Any) -> None:
        """Replaces the layer of this name. Other blocks are refused, since the network would not call them."""
        is_own = name in self.__dict__ or hasattr(type(self), name)  # a layer may have such a name, too
        if isinstance(value, mx.gluon.Block) or (not is_own and (name,) in self.__dict__.get("_states", ())):
            self.replace(name, value)
        elif not is_own and suggestions.most_alike(name, ["trainable"], cutoff=0.85):
            raise no_attribute(self, name, "did you mean 'trainable'?")
        else:
            super().__setattr__(name, value)

    def summary(self, *inputs: Any) -> None:
        """Print the layers with their Keras names, shapes and parameters; if inputs are given, the shapes for them."""
        print("\n".join(summary(self, *inputs)))

    def layer_outputs(self, *arrays: Any, keras_order: bool = False) -> Iterator[Tuple[Path, Layer, List[Any], Any]]:
        """Yields (path, layer, blocks, output) for each layer with these inputs, the output in the network's order of
        axes, or in Keras's. Layers without steps (dropout at inference, pads that the next convolution applies) are
        left out."""
        rank = 0 if keras_order else self.rank
        wanted: Dict[int, List[Any]] = {}
        for path, state in self._states.items():
            if state.output is not None and state.output.pads is None:
                wanted.setdefault(state.output.key, []).append((path, state, state.output))
        values = self._checked(arrays)
        for step in self._run(values):
            for path, state, value in (entry for key in step.outputs for entry in wanted.get(key, ())):
                out, first = values[value.key], value.rank == rank
                if value.transposed != first:
                    turned = value._replace(transposed=first)
                    out = out.transpose(turned.ordered(range(value.rank)) if first else value.keras_order)
                yield path, state.layer, list(state.blocks) if state.layer.model is None else [], out

    def _run(self, values: Dict[int, Any]) -> Iterator[Step]:
        """Runs the steps: yields each one when its outputs are in `values`, and then deletes those that are no longer
        needed."""
        for step, released in zip(self._steps, self._released):
            step.run(values)
            yield step
            for key in released:
                del values[key]

    def __call__(self, *arrays: Any) -> Any:
        """Calls the net as any HybridBlock. Arrays are checked and cast before that: a cached graph would raise errors
        of MXNet."""
        if not any(isinstance(array, mx.sym.Symbol) for array in arrays):
            arrays = tuple(self._checked(arrays).values())
        return super().__call__(*arrays)

    def _checked(self, arrays: Sequence[Any]) -> Dict[int, Any]:
        """Checks shapes (for Symbols, in the graph) and returns the inputs by key, cast to the
        dtype that the model declares, or that the parameters have."""
        if len(arrays) != len(self.inputs):
            count = f"{len(self.inputs)} input{'s' * (len(self.inputs) > 1)}"
            raise InvalidType(f"net must be called with {count}; received {len(arrays)}")
        for array in arrays:
            operands.check_array("data", array)
        known = ((value, tensors.known_shape(array)) for value, array in zip(self.inputs, arrays))
        batches = [shape[0] for value, shape in known if shape and value.key not in self._steps.time_major]
        check(len({n for n in batches if n}) <= 1, "inputs must have the same batch", batches=batches)
        others = [x for x in arrays if isinstance(x, mx.nd.NDArray) and x.dtype in (np.float16, np.float64)]
        weights = [(np.dtype(x.dtype).name, len(x.shape)) for x in self.collect_params().values()] if others else []
        if any(name == "float16" and rank > 1 for name, rank in weights):
            operands.check_convolvable("data", others[0])
        dtype = "float32" if {name for name, _ in weights} == {"float32"} else None
        return {value.key: _as_declared(value, array, dtype) for value, array in zip(self.inputs, arrays)}

    def hybrid_forward(self, F: Any, x: Any, *others: Any) -> Any:
        values = self._checked((x, *others))
        for _ in self._run(values):
            pass
        outputs = [values[key] for key in self._outputs]
        return outputs[0] if len(outputs) == 1 else outputs


class Part(HybridBlock):
    """A block of some steps of a network; `inputs` and `outputs` are the keys of its arrays."""

    def __init__(self, steps: Sequence[Step], inputs: Sequence[int], outputs: Sequence[int]):
        super().__init__(prefix="")
        self.inputs = inputs
        self._steps, self._outputs = steps, outputs
        _register_blocks(self, steps)

    def hybrid_forward(self, F: Any, *arrays: Any) -> Any:
        values = dict(zip(self.inputs, arrays))
        for step in self._steps:
            step.run(values)
        return [values[key] for key in self._outputs]


def _register_blocks(net: HybridBlock, steps: Sequence[Step]) -> None:
    for block in dict.fromkeys(step.block for step in steps):
        net.register_child(block, block.name)


def _check_names(steps: Sequence[Step]) -> None:
    """Raises a `ValueError` if two blocks or two parameters have the same name, since files have one of each name."""
    named: Dict[Any, Any] = {}
    for block in dict.fromkeys(step.block for step in steps):
        parameters = (("parameter", name, parameter) for name, parameter in block.collect_params().items())
        for kind, name, each in (("block", block.name, block), *parameters):
            rule = "block must have names that no other layer has; give it a prefix"
            check(named.setdefault((kind, name), each) is each, rule, name=name)


def check_network(net: Any) -> None:
    """Raises a `TypeError` if a net is not a `Network`."""
    if not isinstance(net, Network):
        raise InvalidType(f"net must be one that from_keras returned; received net of type {type(net).__name__}")


@deferred_in_trace
def _as_declared(value: Tensor, array: Any, dtype: Optional[str]) -> Any:
    """Returns an input with the model's static lengths: an array is checked now, a Symbol when its graph runs. If the
    model declares float32, integers are cast to it, and floats to `dtype` if that is given."""
    wanted = tuple(value.ordered(value.shape))
    symbolic, shape = isinstance(array, mx.sym.Symbol), tensors.known_shape(array)
    array = _as_floats(array, dtype) if value.dtype == "float32" else array
    if shape is not None:
        check_shape("data", shape, wanted, f"that the Keras model was built for{remedy('data', shape, wanted)}")
        check_not_empty("data", shape)
        if all(want is None or have is not None for have, want in zip(shape[1:], wanted[1:])):
            return array
    return tensors.fix_lengths(array, wanted) if symbolic else array


def _as_floats(array: Any, dtype: Optional[str]) -> Any:
    """Returns integers as float32, and floats as they are, or cast to `dtype`. A deployed graph must accept both: the
    dtype of its Symbols carries no information."""
    given = tensors.known_type(array)
    is_float = given is not None and np.dtype(given).kind == "f"
    if isinstance(array, mx.sym.Symbol):
        return array if is_float and scope().target.purpose != "deployment" else tensors.as_floats(array)
    wanted = dtype or given if is_float else "float32"
    return array if given == wanted else array.astype(wanted)
