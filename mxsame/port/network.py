"""From a `Model` to a Gluon block: the order of calls, the axes of every tensor, the parameters.

Keras's channels-last arrays are held with channels first as soon as a layer needs that (a convolution, a pooling layer)
and as long as no layer needs Keras's own order (Flatten, Reshape, an output): a transposition is only where the two
meet. A layer without an opinion (an activation, an addition, a batch norm) takes its input as it is.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame import _gluon, tensors, validation
from mxsame._mxnet import mx
from mxsame.building import building
from mxsame.keras import layouts
from mxsame.port.blocks import Function
from mxsame.port.description import Call, Layer, Model, Shaped, Tensor, tensors_in

Size = Optional[int]
LARGEST_PART = 2**22  # bytes of an array that is in another order of axes than its parameter, copied at once


class Value(NamedTuple):
    """An array of the network while it is built: its shape in Keras's order, None where that is dynamic.

    `first`: Keras's last axis is the second here. `pads` are zeros still to be put around the spatial axes, which a
    convolution does by itself. `static` is what keras-mxnet takes for its shape, if that is another.
    """

    key: int
    shape: Tuple[Size, ...]
    first: bool = False
    pads: Optional[Tuple[Tuple[int, int], ...]] = None
    static: Optional[Tuple[Size, ...]] = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def axis(self, axis: int) -> int:
        """Keras's axis, as one of the array here."""
        if not -self.rank <= axis < self.rank:
            raise ValueError(f"axis must be one of {self.rank}; {validation.received(axis=axis)}")
        axis %= self.rank
        if not self.first or axis == 0:
            return axis
        return 1 if axis == self.rank - 1 else axis + 1

    @property
    def keras_order(self) -> Tuple[int, ...]:
        """The axes of the array here, in Keras's order."""
        return (0, *range(2, self.rank), 1) if self.first else tuple(range(self.rank))

    def ordered(self, entries: Sequence[Any]) -> list:
        """One entry for each axis of Keras's, in the order of the array here."""
        entries = list(entries)
        return [entries[0], entries[-1], *entries[1:-1]] if self.first else entries


class Slot(NamedTuple):
    """A weight: its role in Keras, its parameter in Gluon, and the conversion from one order of axes to the other."""

    role: str
    parameter: Any
    conversion: Conversion


class Conversion(NamedTuple):
    to_mxnet: Callable
    to_keras: Callable


SAME = Conversion(np.asarray, np.asarray)
TRANSPOSED = Conversion(np.transpose, np.transpose)


def kernel(kind: str, depth_multiplier: Optional[int] = None) -> Conversion:
    """A kernel as `mxsame.keras.layouts` converts it, channels first."""
    return Conversion(
        lambda array: layouts.to_mxnet(array, kind),
        lambda array: layouts.to_keras(array, kind, depth_multiplier=depth_multiplier),
    )


def reshaped(stored: Sequence[int], order: Sequence[int], used: Sequence[int]) -> Conversion:
    """Stored in one shape, with axes in another order and of another shape here."""
    back = [list(order).index(axis) for axis in range(len(order))]
    middle = [stored[axis] for axis in order]
    return Conversion(
        lambda array: array.reshape(stored).transpose(order).reshape(used),
        lambda array: array.reshape(middle).transpose(back).reshape(stored),
    )


class Step(NamedTuple):
    block: Any
    inputs: List[int]
    output: int
    layer: str


class Network(mx.gluon.HybridBlock):
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
        self.description, self.slots, self.inputs = description, builder.slots, inputs
        self._steps = steps = builder.steps
        self._layers = builder.outputs
        self._inputs, self._outputs = [x.key for x in inputs], [x.key for x in outputs]
        last = {key: number for number, step in enumerate(steps) for key in step.inputs}
        self._done = [
            [key for key in dict.fromkeys(step.inputs) if last[key] == number and key not in self._outputs]
            for number, step in enumerate(steps)
        ]
        for block in dict.fromkeys(step.block for step in steps):
            self.register_child(block, block.name)

    def __repr__(self) -> str:
        """One line for each block, with the name of its Keras layer."""
        blocks = dict.fromkeys((step.layer, step.block) for step in self._steps)
        lines = (f"  ({layer}): {block!r}".replace("\n", "\n  ") for layer, block in blocks)
        return "\n".join((f"{type(self).__name__}(", *lines, ")"))

    @property
    def transpositions(self) -> int:
        return sum(getattr(step.block, "function", None) == "transpose" for step in self._steps)

    def layers(self, *arrays: Any) -> Iterator[Tuple[Tuple[str, ...], Layer, List[Any], Any]]:
        """What every layer gives for these inputs, one after the other: (path, layer, blocks, array in Keras's order).

        A layer without steps of its own (dropout at inference, zeros that the next convolution puts) gives nothing.
        """
        blocks: Dict[str, List[Any]] = {}
        for step in self._steps:
            if step.block not in blocks.setdefault(step.layer, []):
                blocks[step.layer].append(step.block)
        wanted: Dict[int, List[Any]] = {}
        for path, (layer, value) in self._layers.items():
            if value.pads is None and layer.class_name != "InputLayer":
                wanted.setdefault(value.key, []).append((path, layer, value))
        values = self._checked(arrays)
        for step, done in zip(self._steps, self._done):
            out = values[step.output] = step.block(*(values[key] for key in step.inputs))
            for path, layer, value in wanted.get(step.output, ()):
                yield (
                    path,
                    layer,
                    blocks.get("_".join(path), []),
                    out.transpose(value.keras_order) if value.first else out,
                )
            for key in done:
                del values[key]

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> Any:
        """As of every HybridBlock, of a graph without the noise that is there in training only."""
        with building(exported=True), _gluon.traced_again(self):
            return super().export(path, epoch, remove_amp_cast)

    def __call__(self, *arrays: Any) -> Any:
        """As every HybridBlock. Arrays are checked here, since a graph that is there already does so with MXNet's
        words only."""
        if not any(isinstance(array, mx.sym.Symbol) for array in arrays):
            self._checked(arrays)
        return super().__call__(*arrays)

    def _checked(self, arrays: Sequence[Any]) -> Dict[int, Any]:
        """The inputs by their keys: arrays of the model's static lengths, or Symbols that refuse others."""
        if len(arrays) != len(self.inputs):
            raise TypeError(f"net must be called with {len(self.inputs)} inputs; received {len(arrays)}")
        return {value.key: _of_size(value, array) for value, array in zip(self.inputs, arrays)}

    def hybrid_forward(self, F: Any, x: Any, *others: Any) -> Any:
        values = self._checked((x, *others))
        for step, done in zip(self._steps, self._done):
            values[step.output] = step.block(*(values[key] for key in step.inputs))
            for key in done:
                del values[key]
        outputs = [values[key] for key in self._outputs]
        return outputs[0] if len(outputs) == 1 else outputs


def _of_size(value: Value, array: Any) -> Any:
    """An input of the static lengths: an array of others is refused, by a graph, too."""
    if not isinstance(array, (mx.nd.NDArray, mx.sym.Symbol)):
        raise TypeError(
            f"data must be an NDArray, as nd.array(data) is, or a Symbol; {tensors.received('data', array)}"
        )
    wanted = tuple(value.ordered(value.shape))
    symbolic = isinstance(array, mx.sym.Symbol)
    shape = tensors.traced_shape(array) if symbolic else array.shape
    if shape is not None:
        pairs = list(zip(shape[1:], wanted[1:]))
        if len(shape) != len(wanted) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
            raise ValueError(
                f"data must have the shape that the Keras model was built for, {wanted}; "
                f"{validation.received(**{'data.shape': tuple(shape)})}"
            )
        if all(want is None or have is not None for have, want in pairs):
            return array
    return tensors.fixed(array, wanted) if symbolic else array


class Builder:
    """Collects steps. `row_of` finds the row of a layer or operator; `roles` names a layer's weights; `watch` is called
    with the number of layers so far.

    For `padding="keras-mxnet"` a model is built twice: `plain` is the first builder, without weights, whose shapes are
    Keras's static ones. keras-mxnet computes with those where its arrays have other shapes.
    """

    def __init__(
        self,
        row_of: Callable,
        roles: Callable,
        watch: Callable[[int], None],
        weightless: bool = False,
        plain: Optional[Builder] = None,
    ):
        self.row_of, self.roles, self.watch, self.weightless = row_of, roles, watch, weightless
        self._calls = 0
        self.keras_mxnet = plain is not None
        self.steps: List[Step] = []
        self.slots: Dict[int, List[Slot]] = {}
        self.blocks: Dict[Any, Any] = {} if plain is None else plain.blocks  # of layers that were built, by path
        self.frozen: Dict[Any, Any] = {}
        self._arranged: Dict[Tuple[int, Any], Value] = {}  # by key, and the order or the pads
        self._count = 0
        self._names: Dict[str, int] = {}
        self._parameters: set = set()
        self.outputs: Dict[Tuple[str, ...], Tuple[Layer, Value]] = {}  # of the first call of each layer, by path
        self.shapes: List[List[Tuple[Size, ...]]] = []  # of the outputs of all calls, in the order of building
        self._static = iter(() if plain is None else plain.shapes)

    # -- values

    def value(self, shape: Sequence[Size], first: bool = False, pads: Any = None) -> Value:
        self._count += 1
        return Value(self._count, tuple(shape), first, pads)

    def emit(self, block: Any, inputs: Sequence[Value], shape: Sequence[Size], first: bool, layer: str) -> Value:
        """A step: `block` of the inputs, whose output has this shape in Keras's order."""
        validation.elements("the output", shape)
        out = self.value(shape, first)
        self.steps.append(Step(block, [value.key for value in inputs], out.key, layer))
        return out

    def count(self) -> None:
        """Another layer is there."""
        self._calls += 1
        self.watch(self._calls)

    def unique(self, name: str) -> str:
        """A prefix that no other block has."""
        number = self._names[name] = self._names.get(name, -1) + 1
        return f"{name}_" if not number else self.unique(f"{name}_{number}")

    def made(self, make: Callable, name: str) -> Any:
        """A block whose parameters have names of their own: a separable layer x has an x_depthwise_weight, and a layer
        x_depthwise has one, too."""
        while True:
            block = make(self.unique(name))
            names = set(block.collect_params())
            if not names & self._parameters:
                self._parameters |= names
                return block

    def function(
        self, layer: str, name: str, inputs: Sequence[Value], shape: Any, first: bool, **arguments: Any
    ) -> Value:
        block = Function(name, prefix=self.unique(f"{layer}_{name}"), **arguments)
        return self.emit(block, inputs, shape, first, layer)

    def arranged(self, value: Value, first: bool) -> Value:
        """The value in one order of axes: as it is, or by a step that is made once."""
        if value.first == first or value.rank < 3:
            return value
        key = (value.key, first)
        if key not in self._arranged:
            self._arranged[key] = self._rearranged(value, first)
        return self._arranged[key]._replace(static=value.static)

    def _rearranged(self, value: Value, first: bool) -> Value:
        rank = value.rank
        if value.shape[-1] == 1:
            ends = (rank - 1, 1) if first else (1, rank - 1)
            name, arguments = "move_single_channel", {"source": ends[0], "target": ends[1]}
        elif all(length == 1 for length in value.shape[1:-1]):
            ones = (1,) * (rank - 2)
            name, arguments = "reshape", {"to": (0, -1, *ones) if first else (0, *ones, -1)}
        else:
            axes = (0, rank - 1, *range(1, rank - 1)) if first else value.keras_order
            name, arguments = "transpose", {"axes": axes}
        return self.function(
            "to_channels_first" if first else "to_channels_last", name, [value], value.shape, first, **arguments
        )

    def padded(self, value: Value) -> Value:
        """The value with its pads around it, by a step that is made once."""
        if value.pads is None:
            return value
        key = (value.key, value.pads)
        if key not in self._arranged:
            base = value._replace(pads=None, shape=unpadded(value))
            pads = [(0, 0), *value.pads, (0, 0)]
            self._arranged[key] = self.function(
                "pad", "pad", [base], value.shape, value.first, pads=[tuple(pair) for pair in value.ordered(pads)]
            )
        return self._arranged[key]._replace(static=value.static)

    # -- models

    def model(
        self,
        model: Model,
        path: Tuple[str, ...],
        inputs: List[Value],
        training: Optional[bool] = None,
        once: bool = True,
    ) -> List[Value]:
        """The outputs of a model, layer by layer, in an order in which every input is there.

        `training` is what a model around it is called with; `once` is whether this is the only call of these layers.
        """
        if len(inputs) != len(model.inputs):
            raise ValueError(
                f"model {model.name!r} must be called with {len(model.inputs)} inputs; received {len(inputs)}"
            )
        values: Dict[Tensor, Value] = dict(zip(model.inputs, inputs))
        if len(values) != len(inputs):
            raise ValueError(f"model {model.name!r} must have different inputs")
        for layer, number, call in _sorted(model):
            if Tensor(layer.name, number) in values:
                continue
            if layer.class_name == "InputLayer":
                raise ValueError(f"input layer {layer.name!r} must be one of the inputs of model {model.name!r}")
            site = Site(self, layer, (*path, layer.name), call, model, training, once)
            outputs = self._with_static(site.built(values))
            if not number:
                self.outputs.setdefault((*path, layer.name), (layer, outputs[0]))
            for output, value in enumerate(outputs):
                values[Tensor(layer.name, number, output)] = value
        missing = [tensor for tensor in model.outputs if tensor not in values]
        if missing:
            raise ValueError(f"outputs of model {model.name!r} must be tensors of its layers; received {missing[0]}")
        return [values[tensor] for tensor in model.outputs]

    def _with_static(self, outputs: List[Value]) -> List[Value]:
        """The outputs of a call, with what keras-mxnet takes for their shapes."""
        self.shapes.append([value.shape for value in outputs])
        static = next(self._static, None) or self.shapes[-1]
        return [value._replace(static=None if shape == value.shape else shape) for value, shape in zip(outputs, static)]


def unpadded(value: Value) -> Tuple[Size, ...]:
    """The shape before the pads."""
    assert value.pads is not None
    middle = [None if n is None else n - low - high for n, (low, high) in zip(value.shape[1:-1], value.pads)]
    return (value.shape[0], *middle, value.shape[-1])


def _sorted(model: Model) -> List[Tuple[Layer, int, Call]]:
    """The calls of all layers, each after those that it needs."""
    calls = {
        (layer.name, number): (layer, number, call) for layer in model.layers for number, call in enumerate(layer.calls)
    }
    needed: Dict[Tuple[str, int], List[Tuple[str, int]]] = {}
    missing: Dict[Tuple[str, int], int] = {}
    for key, (layer, _, call) in calls.items():
        sources = {(tensor.layer, tensor.call) for tensor in call.tensors()}
        for source in sources:
            if source not in calls:
                raise ValueError(f"layer {layer.name!r} must be called on tensors of the model; received {source}")
            needed.setdefault(source, []).append(key)
        missing[key] = len(sources)
    ready = [key for key, count in missing.items() if not count]
    order = []
    for key in ready:  # grows
        order.append(calls[key])
        for other in needed.get(key, ()):
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    if len(order) < len(calls):
        stuck = next(key for key, count in missing.items() if count)
        raise ValueError(f"layers must not be called on their own outputs; layer {stuck[0]!r} is in a cycle")
    return order


class Site:
    """A layer where it is called: what a row of the table sees."""

    def __init__(
        self,
        builder: Builder,
        layer: Layer,
        path: Tuple[str, ...],
        call: Call,
        model: Model,
        training: Optional[bool] = None,
        once: bool = True,
    ):
        self.builder, self.layer, self.path, self.call, self.model = builder, layer, path, call, model
        self.config, self.version = layer.config, model.version
        self.name = "_".join(path)
        wanted = call.kwargs.get("training")
        self.training = training if wanted is None else bool(wanted)
        self.once = once and len(layer.calls) == 1
        self.filling = False  # whether its weights are at work
        self.custom = False  # whether a user's function makes the block

    def built(self, values: Dict[Tensor, Value]) -> List[Value]:
        """The outputs of this call."""
        try:
            self.values = values
            args = [self._resolved(value) for value in self.call.args]
            kwargs = {name: self._resolved(value) for name, value in self.call.kwargs.items()}
            if self.layer.model is not None:
                inputs = [values[tensor] for tensor in tensors_in(self.call.args)]
                if self.layer.wrapped is not None:
                    return [self._for_every_step(self.layer.model, inputs)]
                return self.builder.model(self.layer.model, self.path, inputs, self.training, self.once)
            out = self.builder.row_of(self.layer)(self, args, kwargs)
            self.builder.count()
            return list(out) if isinstance(out, list) else [out]
        except Refused:
            raise
        except Exception as error:
            if isinstance(error, ValueError) and self.layer.model is not None and self.layer.wrapped is None:
                raise
            reason = str(error) if isinstance(error, (ValueError, TypeError)) else f"{type(error).__name__}: {error}"
            if "must" not in reason and not self.custom:  # Python's or NumPy's words
                reason = f"its configuration must be as Keras writes it; received {reason}"
            shapes = [(x.static, x.shape) for x in map(values.get, self.call.tensors()) if x is not None and x.static]
            if self.layer.model is None and not self.filling and isinstance(error, ValueError):
                reason += (
                    f"; custom={{{self.layer.name!r}: function of (config, weights) -> HybridBlock}} replaces the layer"
                )
            if shapes:
                reason = (
                    f"keras-mxnet cannot run it: it takes an array of shape {shapes[0][1]} for {shapes[0][0]}; {reason}"
                )
            raise Refused(f"layer {'/'.join(self.path)!r} ({self.layer.class_name}): {reason}") from error

    def _for_every_step(self, model: Model, inputs: List[Value]) -> Value:
        """`TimeDistributed`: steps in time become entries of the batch for the layer, and are steps again after it."""
        if len(inputs) != 1 or inputs[0].rank < 3 or self.builder.keras_mxnet or self.builder.weightless:
            shapes = [x.shape for x in inputs]
            raise ValueError(
                "inputs must be one of 3 axes or more, and not with padding=keras-mxnet; "
                f"{validation.received(shapes=shapes)}"
            )
        if self.call.kwargs.get("mask") is not None:
            raise ValueError("masks must not be used")
        x = self.keras(inputs[0])
        entries = self.function("reshape", x, (None, *x.shape[2:]), to=(-3, -2))
        (out,) = self.builder.model(model, self.path, [entries], self.training, self.once)
        out = self.keras(out)
        return self.function("unfold", [out, x], (x.shape[0], x.shape[1], *out.shape[1:]), False)

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            found = self.values.get(value)
            if found is None:
                raise ValueError(f"inputs must be tensors of the model; received {value}")
            return found
        if isinstance(value, (list, tuple)):
            return [self._resolved(entry) for entry in value]
        if isinstance(value, dict):
            return {key: self._resolved(entry) for key, entry in value.items()}
        return value

    # -- what rows do

    @property
    def roles(self) -> List[str]:
        return [role for role, _ in self.builder.roles(self.layer)]

    def first(self, x: Value) -> Value:
        """With channels first, for a layer that has a data format: Keras's channels first are so already."""
        return self.builder.arranged(x, not self.is_channels_first)

    @property
    def is_channels_first(self) -> bool:
        data_format = self.config.get("data_format") or "channels_last"
        if data_format not in ("channels_last", "channels_first"):
            raise ValueError(
                f"data_format must be channels_last or channels_first; {validation.received(data_format=data_format)}"
            )
        return data_format == "channels_first"

    def keras(self, x: Value) -> Value:
        """In Keras's order."""
        return self.builder.arranged(self.builder.padded(x), False)

    def alike(self, inputs: Sequence[Value]) -> List[Value]:
        """All in one order, that of any one with channels first."""
        inputs = [self.builder.padded(x) for x in inputs]
        first = any(x.first for x in inputs) and len({x.rank for x in inputs}) == 1
        return [self.builder.arranged(x, first) for x in inputs]

    def settled(self, x: Value) -> Value:
        """In the order in which the layer was called at first: its weights have that."""
        x = self.builder.padded(x)
        first = self.builder.frozen.setdefault((self.path, "first"), x.first)
        return self.builder.arranged(x, first)

    def function(self, name: str, x: Any, shape: Any = None, first: Any = None, **arguments: Any) -> Value:
        """A step of a function; the shape and the order are the first input's unless given."""
        inputs = [x] if isinstance(x, Value) else list(x)
        shape = inputs[0].shape if shape is None else shape
        first = inputs[0].first if first is None else first
        return self.builder.function(self.name, name, inputs, shape, first, **arguments)

    def block(
        self, make: Callable, x: Any, shape: Any, weights: Dict[str, Tuple[str, Conversion]], first: Any = None
    ) -> Value:
        """A step of a block with weights, which is made at the layer's first call. `make(prefix)` makes it;
        `weights` maps roles to (attribute, conversion)."""
        inputs = [x] if isinstance(x, Value) else list(x)
        if self.builder.weightless:
            return self.builder.emit(None, inputs, shape, inputs[0].first if first is None else first, self.name)
        if self.path not in self.builder.blocks:
            block = self.builder.made(make, self.name)
            self._fill(block, weights)
            self.builder.blocks[self.path] = block
        first = inputs[0].first if first is None else first
        return self.builder.emit(self.builder.blocks[self.path], inputs, shape, first, self.name)

    def _fill(self, block: Any, weights: Dict[str, Tuple[str, Conversion]]) -> None:
        """The layer's weights into the parameters. A network may be as large as the memory: one array after the other
        is read, and of those that are in a parameter the layer keeps the shape."""
        roles, trained, self.filling = self.roles, dict(self.builder.roles(self.layer)), True
        if len(roles) != len(self.layer.weights):
            raise ValueError(f"weights must be {', '.join(roles) or 'none'}; received {len(self.layer.weights)} arrays")
        arrays = dict(zip(roles, self.layer.weights))
        slots = []
        for role, (attribute, conversion) in weights.items():
            parameter = getattr(block, attribute)
            slots.append(Slot(role, parameter, conversion))
            shape = tuple(arrays[role].shape)
            set_parameter(parameter, conversion, arrays.pop(role), role)
            if not trained[role]:
                parameter.grad_req = "null"
            self.layer.weights[roles.index(role)] = Shaped(shape)
        for role, array in arrays.items():
            self.layer.weights[roles.index(role)] = np.asarray(array)
        self.builder.slots[id(self.layer)] = slots
        self.filling = False
        for parameter in block.collect_params().values():
            if not _gluon.is_initialised(parameter):
                parameter.initialize(ctx=mx.cpu())
            if not self.layer.trainable:
                parameter.grad_req = "null"

    def frozen_parameter(self, parameter: Any, array: Any) -> None:
        """A parameter that is a number of the configuration."""
        parameter.grad_req = "null"
        set_parameter(parameter, SAME, array, parameter.name)


class Refused(ValueError):
    """An error that names its layer already."""


def set_parameter(parameter: Any, conversion: Conversion, array: Any, role: str) -> None:
    """Set a parameter to a weight, if that fits."""
    array = np.asarray(array)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{role} must be an array of numbers; {validation.received(dtype=array.dtype)}")
    stored = array.shape
    try:
        array = conversion.to_mxnet(array)
    except ValueError as error:
        raise ValueError(f"{role} must have the axes of its layer: {error}") from None
    expected = parameter.shape
    if len(expected) != array.ndim or any(want > 0 and want != have for want, have in zip(expected, array.shape)):
        raise ValueError(
            f"{role} must have the shape {tuple(expected)} in MXNet's order of axes, as the configuration has it; "
            f"{validation.received(shape=stored)}"
        )
    data = mx.nd.empty(array.shape, ctx=mx.cpu())
    rows = max(LARGEST_PART // max(array[:1].nbytes, 1), 1)
    for start in range(0, len(array), rows):
        data[start : start + rows] = np.ascontiguousarray(array[start : start + rows], dtype="float32")
    _gluon.initialise_with(parameter, data)
