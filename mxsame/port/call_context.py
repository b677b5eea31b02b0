"""The call of a layer that is passed to its converter."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from mxsame import validation
from mxsame.keras_format.description import Config, Layer, LayerCall, NotReplaceable
from mxsame.port import blocks
from mxsame.port.parameters import fill, loaded_weights
from mxsame.port.steps import Steps
from mxsame.port.tensors import Size, Tensor
from mxsame.validation import check


@dataclass
class LayerState:
    """State shared by all calls of a layer: its block with the weights, and the options fixed by the first call."""

    layer: Layer  # once the network is built, with its weights in parameters
    block: Any = None  # the block with the layer's weights; None if the layer has none
    weights: Dict[str, Any] = field(default_factory=dict)  # by Keras's names: LoadedWeight, or an array without a block
    variants: Dict[str, Any] = field(default_factory=dict)  # blocks with the same parameters, by options of the call
    is_custom: bool = False  # the block was given by the user
    arguments: Any = None  # keyword arguments that the block was made with
    is_reused: bool = False  # the block comes from an earlier build of the network
    converter: Any = None  # the converter of a block that replaces the layer
    first_call: Dict[str, Any] = field(default_factory=dict)  # options that all calls must share
    cells: Dict[int, LayerState] = field(default_factory=dict)  # of a recurrent layer of several cells
    training: Optional[bool] = None  # the argument `training` of the first call
    inputs: Sequence[Tensor] = ()  # the inputs of the first call
    calls: Dict[int, List[Any]] = field(default_factory=dict)  # the outputs of each call
    blocks: Dict[Any, None] = field(default_factory=dict)  # the blocks of all steps of the layer, in order
    trainable: Optional[bool] = None  # set by the user

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The outputs of the first call, if they are tensors."""
        outputs = self.calls.get(0, [])
        return outputs if outputs and isinstance(outputs[0], Tensor) else []

    @property
    def output(self) -> Optional[Tensor]:
        """The first output of the first call."""
        return self.outputs[0] if self.outputs else None

    @property
    def parameters(self) -> List[Any]:
        """The parameters that hold the layer's weights; all parameters of a user's block."""
        if self.is_custom:
            return list(self.block.collect_params().values())
        return [stored.parameter for _, stored in loaded_weights(self.layer)]

    @property
    def loaded_layer(self) -> Layer:
        """The layer with its weights in parameters."""
        specs = self.layer.weight_specs
        names = self.weights if specs is None else [spec.name for spec in specs]
        return replace(self.layer, weights=[self.weights[name] for name in names])

    def for_new_network(self) -> LayerState:
        """Returns a state without calls for another build, with the same block, variants and first-call options."""
        cells = {number: state.for_new_network() for number, state in self.cells.items()}
        weights, variants, first_call = dict(self.weights), dict(self.variants), dict(self.first_call)
        return replace(self, is_reused=True, weights=weights, variants=variants, first_call=first_call, cells=cells,
                       calls={}, blocks={})  # fmt: skip


@dataclass
class CallContext:
    """One call of a layer, with the methods by which a converter adds steps to the network.

    `apply` and `constant` are methods of :class:`Steps`, with the layer's name bound.
    """

    steps: Steps
    layer: Layer
    path: Tuple[str, ...]  # the names of the enclosing models, then the layer's
    layer_call: LayerCall
    state: LayerState
    version: int  # the version of Keras: 2 or 3
    training: Optional[bool]  # the argument of the call, or that of the model that contains the layer
    is_only_call: bool  # whether the layer is called once
    custom: Mapping[str, Any]  # the user's functions
    build_model: Callable  # builds a model inside the layer: Builder.build_model
    converter: Any = None  # the Converter that builds the call
    refusals: List[Exception] = field(default_factory=list)  # errors that do not prevent computing the outputs

    def __post_init__(self) -> None:
        self.config, self.name = Config(self.layer.config), "_".join(self.path)
        self.apply, self.constant = (partial(each, self.name) for each in (self.steps.apply, self.steps.constant))

    @property
    def num_spatial_dims(self) -> int:
        """The number of spatial axes in the converter's name, such as 2 for Conv2D; 0 if it has none."""
        match = re.search("([123])D", self.converter.name)
        return int(match[1]) if match else 0

    # -- the configuration

    def number(self, name: str, default: Optional[float] = None) -> float:
        """Returns an entry of the configuration that must be a number."""
        value = self.config.get(name, default)
        check(type(value) in (int, float), f"{name} must be a number", **{name: value})
        return float(value)

    def integer(self, name: str) -> int:
        """Returns an entry of the configuration that must be a positive integer."""
        return validation.integer(name, self.config[name], 1)

    def per_spatial_axis(self, name: str, default: Any = None) -> Tuple[int, ...]:
        """Returns one positive integer per spatial axis; the configuration gives one per axis or one for all."""
        value = self.config.get(name)
        return validation.per_axis(name, default if value is None else value, self.num_spatial_dims, 1)

    @property
    def is_channels_first(self) -> bool:
        """Whether the layer's `data_format` is channels_first."""
        data_format = self.config.get("data_format") or "channels_last"
        names = ("channels_last", "channels_first")
        return validation.one_of("data_format", data_format, names) == "channels_first"

    # -- shapes of images, in Keras's order

    def spatial_axes(self, x: Tensor) -> range:
        """Returns the spatial axes."""
        return range(2, x.rank) if self.is_channels_first else range(1, x.rank - 1)

    def spatial_shape(self, x: Tensor) -> Tuple[Size, ...]:
        """Returns the lengths of the spatial axes."""
        return tuple(x.shape[axis] for axis in self.spatial_axes(x))

    def static_spatial_shape(self, x: Tensor) -> Tuple[Any, ...]:
        """Returns the lengths of the spatial axes, which must be static."""
        check(None not in self.spatial_shape(x), "data must have a static size", shape=x.shape)
        return self.spatial_shape(x)

    def channels(self, x: Tensor) -> Size:
        return x.shape[1] if self.is_channels_first else x.shape[-1]

    def in_data_format(self, batch: Any, spatial: Sequence[Any], channels: Any) -> list:
        """Returns these entries in the order of the layer's `data_format`."""
        return [batch, channels, *spatial] if self.is_channels_first else [batch, *spatial, channels]

    # -- axis order and dtype

    def padded(self, x: Tensor) -> Tensor:
        """Returns a tensor with its pads applied, in the axis order that it has."""
        return self.steps.padded(x)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Returns a tensor of this dtype."""
        return self.steps.cast(x, dtype)

    def to_channels_first(self, x: Tensor) -> Tensor:
        """Returns an image of the layer's `data_format` as an array with channels first."""
        count = self.num_spatial_dims
        check(count in (0, x.rank - 2), f"data must have {count + 2} axes", **{"data.shape": x.shape})
        return self.steps.in_order(x, not self.is_channels_first)

    def to_keras_order(self, x: Tensor) -> Tensor:
        """Returns a tensor whose array has Keras's order of axes."""
        return self.steps.in_order(x, False)

    def to_one_order(self, inputs: Sequence[Tensor]) -> List[Tensor]:
        """Returns the tensors in one axis order: channels first if any of them has it and all have one rank."""
        transposed = any(x.transposed for x in inputs) and len({x.rank for x in inputs}) == 1
        return [self.steps.in_order(x, transposed) for x in inputs]

    def to_order_of_first_call(self, x: Tensor) -> Tensor:
        """Returns a tensor in the axis order of the layer's first call, for which its weights are stored."""
        x = self.padded(x)
        return self.steps.in_order(x, self.state.first_call.setdefault("order", x.transposed))

    # -- steps

    def check_same_in_all_calls(self, **options: Any) -> None:
        """Raises a `ValueError` if these options differ from those of the first call, which determine the weights."""
        for name, value in options.items():
            is_same = self.state.first_call.setdefault(name, value) == value
            check(is_same, f"{name} must be the same in all calls of a layer", **{name: value})

    def add_block(self, make: Callable, *inputs: Tensor, conversions: Any = None, shape: Any = None,
              options: Any = None) -> List[Tensor]:  # fmt: skip
        """Adds a step that calls a block with the layer's weights, and returns its outputs.

        `make(prefix=...)` makes the block at the first call. A call with other `options` gets its own block,
        `make(prefix=.., params=..)`, with the parameters of the first. `conversions` are those of :func:`fill`.
        """
        state, variant, arguments = self.state, repr(options), _arguments(make)
        if state.block is None:
            block = self.steps.with_unique_parameters(make, self.name)
            try:
                state.weights.update(fill(block, self.layer, conversions or {}))
            except ValueError as error:
                raise NotReplaceable(str(error)) from error
            state.block = state.variants[variant] = block
            state.arguments = arguments
        elif state.is_reused and not state.outputs and arguments != state.arguments:
            pairs = ((name, state.arguments.get(name), value) for name, value in arguments.items())
            name, before, now = next(pair for pair in pairs if pair[1] != pair[2])
            raise NotReplaceable(f"its weights were made for {name}={before}; received {name}={now}")
        elif variant not in state.variants:
            prefix = self.steps.unique_prefix(self.name)
            state.variants[variant] = make(prefix=prefix, params=state.block.collect_params())
        return self.steps.emit(state.variants[variant], inputs, self.name, shape=shape)

    def apply_with_weights(self, function: Any, *inputs: Tensor, shapes: Mapping[str, Any], conversions: Any = None,
                 **arguments: Any) -> Tensor:  # fmt: skip
        """Adds a step that calls a function with the layer's weights, as parameters of these shapes; returns its
        output.

        A call with data of another rank or with other arguments has a block of its own, which reshapes the parameters.
        """
        shapes = {spec.parameter: shapes[spec.parameter] for spec in self.layer.weight_specs or () if spec.parameter}
        make = partial(blocks.Function, function, shapes=shapes, **arguments)
        return self.add_block(make, *inputs, conversions=conversions, options=(inputs[0].rank, arguments))[0]


def _arguments(make: Any) -> Dict[str, str]:
    """Returns the arguments of a `partial` that are not functions, as strings."""
    given = getattr(make, "keywords", {})
    return {name: str(value) for name, value in given.items() if not callable(value)}
