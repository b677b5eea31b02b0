"""From a `Model` to steps: the order of calls, the axes of every tensor, the parameters.

Keras's channels-last arrays are held with channels first as soon as a layer needs that (a convolution, a pooling layer)
and as long as no layer needs Keras's own order (Flatten, Reshape, an output): a transposition is only where the two
meet. A layer without an opinion (an activation, an addition, a batch norm) takes its input as it is.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from mxsame import _gluon, progress, validation
from mxsame._mxnet import mx
from mxsame.keras import layouts
from mxsame.port import blocks, types
from mxsame.port.description import Config, Layer, LayerCall, Model, Placed, Tensor, leaves, mapped

Size = Optional[int]
LARGEST_PART = 2**22  # bytes of an array that is in another order of axes than its parameter, copied at once
LENGTHS = (5040, 10080)  # in place of a dynamic length: they have many divisors, and stay different after any strides


class Refused(ValueError):
    """An error that names its layer already."""


@contextlib.contextmanager
def users_code() -> Iterator[None]:
    """An error in it is the user's own: it goes on as it is."""
    try:
        yield
    except Exception as error:
        error.is_users = True  # type: ignore[attr-defined]
        raise


class Value(NamedTuple):
    """An array of the network while it is built: its shape in Keras's order, None where that is dynamic.

    `first`: Keras's last axis is the second here. `pads` are zeros still to be put around the spatial axes, which a
    convolution does by itself. `mask` is Keras's mask, a `Value` (N, T) of ones, and of zeros at steps to be skipped.
    `dtype` is Keras's type (:mod:`mxsame.port.types`).
    """

    key: int
    shape: Tuple[Size, ...]
    first: bool = False
    pads: Optional[Tuple[Tuple[int, int], ...]] = None
    mask: Any = None
    dtype: str = "float32"

    @property
    def rank(self) -> int:
        return len(self.shape)

    def axis(self, axis: int) -> int:
        """Keras's axis, as one of the array here."""
        if type(axis) is not int or not -self.rank <= axis < self.rank:
            raise ValueError(f"axis must be one of {self.rank}; {validation.received(axis=axis)}")
        axis %= self.rank
        if not self.first or axis == 0:
            return axis
        return 1 if axis == self.rank - 1 else axis + 1

    def axes(self, axes: Sequence[int]) -> Tuple[int, ...]:
        return tuple(map(self.axis, axes))

    @property
    def keras_order(self) -> Tuple[int, ...]:
        """The axes of the array here, in Keras's order."""
        return (0, *range(2, self.rank), 1) if self.first else tuple(range(self.rank))

    def ordered(self, entries: Sequence[Any]) -> list:
        """One entry for each axis of Keras's, in the order of the array here."""
        entries = list(entries)
        return [entries[0], entries[-1], *entries[1:-1]] if self.first else entries

    @property
    def without_pads(self) -> Value:
        if self.pads is None:
            return self
        middle = [None if n is None else n - low - high for n, (low, high) in zip(self.shape[1:-1], self.pads)]
        return self._replace(pads=None, shape=(self.shape[0], *middle, self.shape[-1]))


Operand = Union[Value, Any]  # of an operator: a tensor or a constant


class OpenLength(int):
    """The length of a dynamic axis, -1, which knows the axis."""

    of_value: Value
    axis: int

    @classmethod
    def of(cls, value: Value, axis: int) -> OpenLength:
        length = cls(-1)
        length.of_value, length.axis = value, axis
        return length


class Conversion(NamedTuple):
    """Of a weight, from Keras's order of axes to that of its parameter, and back."""

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


class Step(NamedTuple):
    """A block, and the keys of its inputs and outputs."""

    block: Any
    inputs: List[int]
    outputs: List[int]
    layer: str


def masked(args: Any, mask: Any) -> Any:
    """The arguments of a call with the `mask` that it is given: one for each input, or one for the first."""
    masks = iter(mask if isinstance(mask, list) else [mask])
    return mapped(args, Value, lambda x: x._replace(mask=next(masks, x.mask)))


def inferred_shapes(block: Any, inputs: Sequence[Value], first: bool) -> List[Tuple[Size, ...]]:
    """The shapes of a block's outputs in Keras's order, as MXNet infers them: twice, with different numbers for dynamic
    lengths."""
    names = [f"data{number}" for number in range(len(inputs))]
    outputs = block(*map(mx.sym.var, names))
    outputs = outputs if isinstance(outputs, list) else [outputs]
    if any(not isinstance(out, mx.sym.Symbol) or len(out.list_outputs()) != 1 for out in outputs):
        raise TypeError("outputs of a block must be Symbols of one output each")
    group, inferred = mx.sym.Group(outputs), []
    used = set(group.list_arguments()).intersection(names)
    for length in LENGTHS:
        shapes = {name: tuple(n or length for n in value.ordered(value.shape)) for name, value in zip(names, inputs)}
        inferred.append(group.infer_shape_partial(**{name: shapes[name] for name in used})[1])
    both = [tuple(a if a == b and a else None for a, b in zip(*pair)) for pair in zip(*inferred)]
    return [(shape[0], *shape[2:], shape[1]) if first else shape for shape in both]


class Builder:
    """Collects steps. `row_of` finds the row of a layer or operator; `total` is how many calls of layers there are;
    `custom` are the user's functions."""

    def __init__(self, row_of: Callable, total: int, custom: Mapping[str, Any], keras_mxnet: bool):
        self.row_of, self.total, self.keras_mxnet = row_of, total, keras_mxnet
        self.custom_functions = custom
        self.steps: List[Step] = []
        self.blocks: Dict[Any, Any] = {}  # of layers that were built, by path
        self.custom: Dict[int, Any] = {}  # blocks of the user's, by the identity of the layer
        self.outputs: Dict[Tuple[str, ...], Tuple[Layer, Value]] = {}  # of the first call of each layer, by path
        self._first_calls: Dict[Any, Any] = {}
        self._arranged: Dict[Tuple[int, Any], Value] = {}  # by key, and the order or the pads
        self.calls, self._keys = itertools.count(1), itertools.count()
        self._names: Dict[str, int] = {}
        self._parameters: set = set()

    # -- values

    def value(self, shape: Sequence[Size], first: bool = False) -> Value:
        return Value(next(self._keys), tuple(shape), first)

    def emit(
        self, block: Any, inputs: Sequence[Value], layer: str, first: Any = None, shape: Any = None
    ) -> List[Value]:
        """The outputs of a step: `block` of the inputs. The order of axes is that of the first input unless given; the
        shapes, in Keras's order, are inferred unless that of a single output is given."""
        first = inputs[0].first if first is None else first
        outputs = []
        for each in inferred_shapes(block, inputs, first) if shape is None else [shape]:
            validation.elements("the output", each)
            outputs.append(self.value(each, first))
        self.steps.append(Step(block, [value.key for value in inputs], [value.key for value in outputs], layer))
        return outputs

    def custom_before(self, values: Sequence[Value]) -> str:
        """For an error: what the user's blocks return from which these values are computed."""
        wanted = {value.key for value in values}
        found: Dict[str, None] = {}
        for step in reversed(self.steps):
            if wanted.intersection(step.outputs):
                wanted.update(step.inputs)
                if step.block in self.custom.values():
                    found[step.layer] = None
        shapes = {"_".join(path): value.shape for path, (_, value) in self.outputs.items()}
        return "".join(f"; the block of custom for {layer!r} returns {shapes.get(layer)}" for layer in found)

    def function(self, layer: str, function: Any, inputs: Sequence[Value], first: Any = None, shape: Any = None,
                 **arguments: Any) -> Value:  # fmt: skip
        name = getattr(function, "__name__", function)
        block = blocks.Function(function, prefix=self.unique(f"{layer}_{name}"), **arguments)
        return self.emit(block, inputs, layer, first, shape)[0]

    def unique(self, name: str) -> str:
        """A prefix that no other block has."""
        number = self._names[name] = self._names.get(name, -1) + 1
        return f"{name}_" if not number else self.unique(f"{name}_{number}")

    def made(self, make: Callable, name: str) -> Any:
        """A block whose parameters have names of their own: a separable layer x has an x_depthwise_weight, and a layer
        x_depthwise has one, too."""
        while True:
            block = make(prefix=self.unique(name))
            names = set(block.collect_params())
            if not names & self._parameters:
                self._parameters |= names
                return block

    def at_first(self, path: Tuple[str, ...], what: str, value: Any) -> Any:
        """What holds of a layer's first call, and of all others."""
        return self._first_calls.setdefault((path, what), value)

    def arranged(self, value: Value, first: bool) -> Value:
        """The value in one order of axes: as it is, or by a step that is made once."""
        value = self.padded(value)
        if value.first == first or value.rank < 3:
            return value
        key = (value.key, first)
        if key not in self._arranged:
            self._arranged[key] = self._rearranged(value, first)
        return self._arranged[key]._replace(mask=value.mask, dtype=value.dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        """The value as one of this type, by a step where its array has another."""
        if dtype == value.dtype:
            return value
        stored, as_given = types.STORED[dtype], value.dtype == types.GIVEN
        if dtype == "bool" and not as_given:
            x = self.padded(value)
            out = self.function("cast", blocks.scalar, [x], operator="not_equal", value=0.0)
            return out._replace(mask=value.mask, dtype=dtype)
        if types.STORED.get(value.dtype) == stored or (as_given and dtype == "float32"):
            return value._replace(dtype=dtype)
        out = self.padded(value)
        for each in dict.fromkeys([types.OF_INPUTS.get(dtype, stored) if as_given else stored, stored]):
            out = self.function("cast", "cast", [out], dtype=each)
        return out._replace(mask=value.mask, dtype=dtype)

    def declared(self, value: Value, dtype: Any) -> Value:
        """An input of a model in the type that the model declares, if it does."""
        if not isinstance(dtype, str):
            dtype = "float32" if value.dtype == types.GIVEN else value.dtype
        return self.cast(value, types.known(dtype))

    def _rearranged(self, value: Value, first: bool) -> Value:
        rank = value.rank
        if value.shape[-1] == 1:
            ends = (rank - 1, 1) if first else (1, rank - 1)
            function, arguments = "move_single_channel", {"source": ends[0], "target": ends[1]}
        elif all(length == 1 for length in value.shape[1:-1]):
            ones = (1,) * (rank - 2)
            function, arguments = blocks.reshape, {"to": (0, -1, *ones) if first else (0, *ones, -1)}
        else:
            axes = (0, rank - 1, *range(1, rank - 1)) if first else value.keras_order
            function, arguments = "transpose", {"axes": axes}
        layer = "to_channels_first" if first else "to_channels_last"
        return self.function(layer, function, [value], first, value.shape, **arguments)

    def padded(self, value: Value) -> Value:
        """The value with its pads around it, by a step that is made once."""
        if value.pads is None:
            return value
        key = (value.key, value.pads)
        if key not in self._arranged:
            pads = value.ordered([(0, 0), *value.pads, (0, 0)])
            self._arranged[key] = self.function("pad", blocks.pad, [value.without_pads], pads=pads)
        return self._arranged[key]._replace(mask=value.mask, dtype=value.dtype)

    # -- models

    def model(self, model: Model, path: Tuple[str, ...], inputs: List[Value], training: Optional[bool] = None,
              once: bool = True) -> List[Value]:  # fmt: skip
        """The outputs of a model, layer by layer, in an order in which every input is there.

        `training` is what a model around it is called with; `once` is whether this is the only call of these layers.
        """
        if len(inputs) != len(model.inputs):
            raise ValueError(
                f"model {model.name!r} must be called with {len(model.inputs)} inputs; received {len(inputs)}"
            )
        declared = {layer.name: layer.config.get("dtype") for layer in model.layers if layer.class_name == "InputLayer"}
        inputs = [self.declared(x, declared.get(tensor.layer)) for x, tensor in zip(inputs, model.inputs)]
        values: Dict[Tensor, Value] = dict(zip(model.inputs, inputs))
        if len(values) != len(inputs):
            raise ValueError(f"model {model.name!r} must have different inputs")
        for layer, number, call in _sorted(model):
            if Tensor(layer.name, number) in values:
                continue
            if layer.class_name == "InputLayer":
                raise ValueError(f"input layer {layer.name!r} must be one of the inputs of model {model.name!r}")
            outputs = Site(self, layer, (*path, layer.name), call, model, training, once).built(values)
            if number == layer.first_call and isinstance(outputs[0], Value):
                self.outputs.setdefault((*path, layer.name), (layer, outputs[0]))
            for output, value in enumerate(outputs):
                values[Tensor(layer.name, number, output)] = value
        missing = [tensor for tensor in model.outputs if tensor not in values]
        if missing:
            raise ValueError(f"outputs of model {model.name!r} must be tensors of its layers; received {missing[0]}")
        return [values[tensor] for tensor in model.outputs]


def _sorted(model: Model) -> List[Tuple[Layer, int, LayerCall]]:
    """The calls of all layers, each after those that it needs."""
    calls = {
        (layer.name, number): (layer, number, call)
        for layer in model.layers
        for number, call in enumerate(layer.calls, layer.first_call)
    }
    done: Dict[Tuple[str, int], Tuple[Layer, int, LayerCall]] = {}
    begun, waiting = set(), list(reversed(calls))
    while waiting:
        key = waiting[-1]
        layer, _, call = calls[key]
        needed = {(tensor.layer, tensor.call): None for tensor in call.tensors()}
        for source in needed.keys() - calls.keys():
            raise ValueError(f"layer {layer.name!r} must be called on tensors of the model; received {source}")
        missing = [source for source in needed if source not in done]
        if missing and key in begun:
            raise ValueError(f"layers must not be called on their own outputs; layer {layer.name!r} is in a cycle")
        begun.add(key)
        waiting += missing
        if not missing:
            done[waiting.pop()] = calls[key]
    return list(done.values())


class Site:
    """A layer where it is called: what a row sees."""

    def __init__(self, builder: Builder, layer: Layer, path: Tuple[str, ...], call: LayerCall, model: Model,
                 training: Optional[bool], once: bool):  # fmt: skip
        self.builder, self.layer, self.path, self.call, self.model = builder, layer, path, call, model
        self.config, self.version = Config(layer.config), model.version
        self.name = "_".join(path)
        wanted = call.kwargs.get("training")
        self.training = training if wanted is None else bool(wanted)
        self.once = once and len(layer.calls) == 1
        named = re.search("[123]D", layer.class_name)
        self.num_spatial_dims = int(named[0][0]) if named else None

    def built(self, values: Dict[Tensor, Value]) -> List[Value]:
        """The outputs of this call. Errors of its row name the layer."""
        layer, builder = self.layer, self.builder
        try:
            args, kwargs = mapped([list(self.call.args), self.call.kwargs], Tensor, values.__getitem__)
            if layer.model is not None and layer.wrapped is None:
                given = args if kwargs.get("mask") is None else masked(args, kwargs["mask"])
                return builder.model(layer.model, self.path, leaves(given, Value), self.training, self.once)
            out = builder.row_of(layer)(self, args, kwargs)
            progress.report("building layers", next(builder.calls), builder.total)
            return out if isinstance(out, list) else [out]
        except Exception as error:
            if isinstance(error, (Refused, Warning)) or getattr(error, "is_users", False):
                raise
            reason = " ".join(str(error).split("Stack trace")[0].split())
            if not isinstance(error, (ValueError, TypeError)):
                reason = f"its configuration must be as Keras writes it; received {type(error).__name__}: {reason}"
            if isinstance(error, (ValueError, TypeError)):
                reason += builder.custom_before([values[tensor] for tensor in self.call.tensors() if tensor in values])
            if isinstance(error, ValueError):
                replacing = f"custom={{{self.layer.name!r}: function of (config, weights) -> HybridBlock}}"
                reason += f"; {replacing} replaces the layer"
            raise Refused(f"layer {'/'.join(self.path)!r} ({self.layer.class_name}): {reason}") from error

    # -- the configuration

    def number(self, name: str, default: Optional[float] = None) -> float:
        """A number of the configuration."""
        value = self.config.get(name)
        value = default if value is None else value
        if type(value) not in (int, float):
            raise ValueError(f"{name} must be a number; {validation.received(**{name: value})}")
        return float(value)

    def per_spatial_axis(self, name: str, default: Any = None) -> Tuple[int, ...]:
        """A positive number of the configuration for each spatial axis."""
        value = self.config.get(name)
        return validation.per_axis(name, default if value is None else value, self.num_spatial_dims or 0, 1)

    @property
    def is_channels_first(self) -> bool:
        data_format = self.config.get("data_format") or "channels_last"
        if data_format not in ("channels_last", "channels_first"):
            raise ValueError(
                f"data_format must be channels_last or channels_first; {validation.received(data_format=data_format)}"
            )
        return bool(data_format == "channels_first")

    # -- shapes of pictures, in Keras's order

    def spatial(self, x: Value) -> range:
        """The spatial axes."""
        return range(2, x.rank) if self.is_channels_first else range(1, x.rank - 1)

    def sizes(self, x: Value) -> Tuple[Size, ...]:
        """Their lengths."""
        return tuple(x.shape[axis] for axis in self.spatial(x))

    def channels(self, x: Value) -> Size:
        return x.shape[1] if self.is_channels_first else x.shape[-1]

    def per_axis(self, batch: Any, spatial: Sequence[Any], channels: Any) -> list:
        """An entry for each axis."""
        return [batch, channels, *spatial] if self.is_channels_first else [batch, *spatial, channels]

    # -- tensors in an order of axes

    def first(self, x: Value) -> Value:
        """With channels first, for a layer that has a data format: Keras's channels first are so already."""
        if self.num_spatial_dims not in (None, x.rank - 2):
            wanted = (self.num_spatial_dims or 0) + 2
            raise ValueError(f"data must have {wanted} axes; {validation.received(**{'data.shape': x.shape})}")
        return self.builder.arranged(x, not self.is_channels_first)

    def keras(self, x: Value) -> Value:
        """In Keras's order."""
        return self.builder.arranged(x, False)

    def alike(self, inputs: Sequence[Value]) -> List[Value]:
        """All in one order, that of any one with channels first."""
        first = any(x.first for x in inputs) and len({x.rank for x in inputs}) == 1
        return [self.builder.arranged(x, first) for x in inputs]

    def settled(self, x: Value) -> Value:
        """In the order in which the layer was called at first: its weights have that."""
        x = self.builder.padded(x)
        return self.builder.arranged(x, self.builder.at_first(self.path, "order", x.first))

    # -- steps

    def cast(self, x: Value, dtype: str) -> Value:
        return self.builder.cast(x, dtype)

    def same_in_all_calls(self, **options: Any) -> None:
        """Refuse a call with other options than the first: the layer has one block, which is made for these."""
        for name, value in options.items():
            if self.builder.at_first(self.path, name, value) != value:
                raise ValueError(
                    f"{name} must be the same in all calls of a layer; {validation.received(**{name: value})}"
                )

    def function(self, name: Any, *inputs: Value, first: Any = None, shape: Any = None, **arguments: Any) -> Value:
        """A step of a function of `mxsame.port.blocks`, or of an operator of MXNet."""
        return self.builder.function(self.name, name, inputs, first, shape, **arguments)

    def block(self, make: Callable, *inputs: Value, conversions: Any = None, shape: Any = None) -> Value:
        """A step of a block with the layer's weights, which `make(prefix=..)` makes at the layer's first call;
        `conversions` maps weights to conversions, others are as they are."""
        return self.builder.emit(self._made(make, conversions), inputs, self.name, shape=shape)[0]

    def weighted(self, function: Any, *inputs: Value, shapes: Mapping[str, Any], conversions: Any = None,
                 **arguments: Any) -> Value:  # fmt: skip
        """The same of a function, with parameters of these shapes: those that are weights of the layer."""
        shapes = {role.parameter: shapes[role.parameter] for role in self.layer.roles or () if role.parameter}
        make = partial(blocks.Function, function, shapes=shapes, **arguments)
        return self.block(make, *inputs, conversions=conversions)

    def several(self, make: Callable, *inputs: Value, conversions: Any = None) -> List[Value]:
        """The same of a block that takes and gives arrays in Keras's order of axes, one or several."""
        return self.builder.emit(self._made(make, conversions), inputs, self.name)

    def _made(self, make: Callable, conversions: Any) -> Any:
        if self.path not in self.builder.blocks:
            block = self.builder.made(make, self.name)
            try:
                self._fill(block, conversions or {})
            except ValueError as error:  # another block in the layer's place would not help
                raise TypeError(str(error)) from error
            self.builder.blocks[self.path] = block
        return self.builder.blocks[self.path]

    def constant(self, function: Any, x: Value, arrays: Mapping[str, Any], **arguments: Any) -> Value:
        """A step of a function whose parameters are numbers of the configuration."""
        shapes = {name: array.shape for name, array in arrays.items()}
        block = blocks.Function(function, self.builder.unique(self.name), shapes, **arguments)
        for name, array in arrays.items():
            parameter = getattr(block, name)
            parameter.grad_req = "null"
            set_parameter(parameter, SAME, array, parameter.name)
        return self.builder.emit(block, [x], self.name)[0]

    def _fill(self, block: Any, conversions: Mapping[str, Conversion]) -> None:
        """The layer's weights into the parameters. A network may be as large as the memory: one array after the other
        is read, and is the layer's no more once it is in its parameter."""
        layer, roles = self.layer, self.layer.roles or []
        if len(roles) != len(layer.weights):
            names = ", ".join(role.name for role in roles)
            raise ValueError(f"weights must be {names or 'none'}; received {len(layer.weights)} arrays")
        for number, (role, array) in enumerate(zip(roles, layer.weights)):
            parameter = _parameter(block, role.parameter)
            if parameter is None:
                layer.weights[number] = np.asarray(array)
                continue
            conversion = conversions.get(role.name, SAME)
            set_parameter(parameter, conversion, array, role.name)
            layer.weights[number] = Placed(tuple(array.shape), parameter, conversion.to_keras)
            if not role.trained:
                parameter.grad_req = "null"
        for parameter in block.collect_params().values():
            if not _gluon.is_initialized(parameter):
                parameter.initialize(ctx=mx.cpu())
            if not layer.trainable:
                parameter.grad_req = "null"


def _parameter(block: Any, path: str) -> Any:
    """The parameter of a block, or of a child of it (`child.parameter`); None if there is none."""
    for name in path.split("."):
        block = getattr(block, name, None) if name else None
    return block


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
    _gluon.initialize_with(parameter, data)
