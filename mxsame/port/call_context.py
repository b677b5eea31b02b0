"""A call of a layer, as its converter sees it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from mxsame import validation
from mxsame.port import blocks
from mxsame.port.description import Config, Layer, LayerCall, NotReplaceable
from mxsame.port.parameters import LoadedWeight, fill
from mxsame.port.steps import Steps
from mxsame.port.tensors import Size, Tensor
from mxsame.validation import check


@dataclass
class LayerState:
    """What is known of a layer once it was called: its block, if it has weights, and the arguments that it was made
    with, `kept` if that was for another network; the blocks for calls with other arguments, which have the same
    parameters; the converter of a block that has taken its place; what holds of all its calls; `training` of its first
    call; the outputs of its calls, by their numbers; the blocks of all of its steps; and whether the user has it
    trained."""

    layer: Layer
    block: Any = None
    variants: Dict[str, Any] = field(default_factory=dict)
    is_users: bool = False
    arguments: Any = None
    kept: bool = False
    converter: Any = None
    in_all_calls: Dict[str, Any] = field(default_factory=dict)
    training: Optional[bool] = None
    calls: Dict[int, List[Any]] = field(default_factory=dict)
    blocks: Dict[Any, None] = field(default_factory=dict)
    trainable: Optional[bool] = None

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
        """The parameters that are the layer's weights, those of a block of the user's in the block's order."""
        if self.is_users:
            return list(self.block.collect_params().values())
        placed = [stored for stored in self.layer.weights if isinstance(stored, LoadedWeight)]
        return [stored.parameter for stored in placed if stored.parameter is not None]

    def again(self) -> LayerState:
        """Returns what remains of it for a network that is built anew around its block."""
        kept: Dict[str, Any] = {"variants": dict(self.variants), "in_all_calls": dict(self.in_all_calls)}
        return replace(self, kept=True, calls={}, blocks={}, **kept)

    def at_first(self, what: str, value: Any) -> Any:
        """Returns what holds of the first call, and of all others."""
        return self.in_all_calls.setdefault(what, value)


@dataclass
class CallContext:
    """A call of a layer. `version` is Keras's; `training` is what it is called with, or a model around it; `once` is
    whether it is the only call of the layer; `custom` are the user's functions, and `built` gives the outputs of a
    model inside the layer, as `Builder.model`; `converter` builds the layer. `refusals` are those in spite of which it
    has outputs. `padded`, `cast`, `function` and `constant` are those of :class:`Steps`, by the layer's name."""

    steps: Steps
    layer: Layer
    path: Tuple[str, ...]
    layer_call: LayerCall
    state: LayerState
    version: int
    training: Optional[bool]
    once: bool
    custom: Mapping[str, Any]
    built: Callable
    converter: Any = None
    refusals: List[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config, self.name, steps = Config(self.layer.config), "_".join(self.path), self.steps
        self.padded, self.cast = steps.padded, steps.cast
        self.function, self.constant = partial(steps.function, self.name), partial(steps.constant, self.name)

    @property
    def num_spatial_dims(self) -> int:
        """As many as the layer's class is named after; 0 of another."""
        named = re.search("([123])D", self.converter.name)
        return int(named[1]) if named else 0

    # -- the configuration

    def number(self, name: str, default: Optional[float] = None) -> float:
        """Returns a number of the configuration."""
        value = self.config.get(name, default)
        check(type(value) in (int, float), f"{name} must be a number", **{name: value})
        return float(value)

    def integer(self, name: str) -> int:
        """Returns a positive integer of the configuration."""
        return validation.integer(name, self.config[name], 1)

    def per_spatial_axis(self, name: str, default: Any = None) -> Tuple[int, ...]:
        """Returns a positive number of the configuration for each spatial axis."""
        value = self.config.get(name)
        return validation.per_axis(name, default if value is None else value, self.num_spatial_dims, 1)

    @property
    def is_channels_first(self) -> bool:
        """Whether Keras's arrays are so."""
        data_format = self.config.get("data_format") or "channels_last"
        names = ("channels_last", "channels_first")
        return validation.one_of("data_format", data_format, names) == "channels_first"

    # -- shapes of images, in Keras's order

    def spatial(self, x: Tensor) -> range:
        """Returns the spatial axes."""
        return range(2, x.rank) if self.is_channels_first else range(1, x.rank - 1)

    def sizes(self, x: Tensor) -> Tuple[Size, ...]:
        """Returns the lengths of the spatial axes."""
        return tuple(x.shape[axis] for axis in self.spatial(x))

    def static_sizes(self, x: Tensor) -> Tuple[Any, ...]:
        """Returns the lengths of the spatial axes, which must be static."""
        check(None not in self.sizes(x), "data must have a static size", shape=x.shape)
        return self.sizes(x)

    def channels(self, x: Tensor) -> Size:
        return x.shape[1] if self.is_channels_first else x.shape[-1]

    def per_axis(self, batch: Any, spatial: Sequence[Any], channels: Any) -> list:
        """Returns an entry for each axis."""
        return [batch, channels, *spatial] if self.is_channels_first else [batch, *spatial, channels]

    # -- tensors in an order of axes

    def channels_first(self, x: Tensor) -> Tensor:
        """Returns a value with channels first, for a layer that has a data format: those of Keras may be so already."""
        count = self.num_spatial_dims
        check(count in (0, x.rank - 2), f"data must have {count + 2} axes", **{"data.shape": x.shape})
        return self.steps.arranged(x, not self.is_channels_first)

    def keras(self, x: Tensor) -> Tensor:
        """Returns a value in Keras's order."""
        return self.steps.arranged(x, False)

    def in_one_order(self, inputs: Sequence[Tensor]) -> List[Tensor]:
        """Returns values in one order, that of any one with channels first."""
        transposed = any(x.transposed for x in inputs) and len({x.rank for x in inputs}) == 1
        return [self.steps.arranged(x, transposed) for x in inputs]

    def in_first_order(self, x: Tensor) -> Tensor:
        """Returns a value in the order in which the layer was called at first: its weights have that."""
        x = self.padded(x)
        return self.steps.arranged(x, self.state.at_first("order", x.transposed))

    # -- steps

    def same_in_all_calls(self, **options: Any) -> None:
        """Refuse a call with other options than the first: the layer has one block, which is made for these."""
        for name, value in options.items():
            is_same = self.state.at_first(name, value) == value
            check(is_same, f"{name} must be the same in all calls of a layer", **{name: value})

    def block(self, make: Callable, *inputs: Tensor, conversions: Any = None, shape: Any = None,
              options: Any = None) -> List[Tensor]:  # fmt: skip
        """Add a step of a block with the layer's weights, which `make(prefix=..)` makes at the layer's first call;
        `conversions` maps weights to conversions, others are as they are. Calls with other `options` have blocks of
        their own with the same parameters, which `make(prefix=.., params=..)` makes."""
        state, variant, arguments = self.state, repr(options), _arguments(make)
        if state.block is None:
            block = self.steps.made(make, self.name)
            try:
                fill(block, self.layer, conversions or {})
            except ValueError as error:
                raise NotReplaceable(str(error)) from error
            state.block = state.variants[variant] = block
            state.arguments = arguments
        elif state.kept and not state.outputs and arguments != state.arguments:
            pairs = ((name, state.arguments.get(name), value) for name, value in arguments.items())
            name, before, now = next(pair for pair in pairs if pair[1] != pair[2])
            raise NotReplaceable(f"its weights are for {name}={before}; received {name}={now}")
        elif variant not in state.variants:
            state.variants[variant] = make(prefix=self.steps.unique(self.name), params=state.block.collect_params())
        return self.steps.emit(state.variants[variant], inputs, self.name, shape=shape)

    def weighted(self, function: Any, *inputs: Tensor, shapes: Mapping[str, Any], conversions: Any = None,
                 **arguments: Any) -> Tensor:  # fmt: skip
        """Returns the output of a step of a function, with parameters of these shapes: those that are weights of the
        layer. For data of another rank, or other arguments, there is another block, and all have the parameters of the
        first, reshaped."""
        shapes = {spec.parameter: shapes[spec.parameter] for spec in self.layer.weight_specs or () if spec.parameter}
        make = partial(blocks.Function, function, shapes=shapes, **arguments)
        return self.block(make, *inputs, conversions=conversions, options=(inputs[0].rank, arguments))[0]


def _arguments(make: Any) -> Dict[str, str]:
    """Returns the arguments of a `partial`, apart from functions, as texts."""
    given = getattr(make, "keywords", {})
    return {name: str(value) for name, value in given.items() if not callable(value)}
