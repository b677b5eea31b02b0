"""Rows of recurrent layers: in one direction and in both, and with convolutions."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from mxsame import nn
from mxsame.port.description import Config, Weight, class_and_config
from mxsame.port.parameters import Conversion, kernel
from mxsame.port.recurrent import KINDS, MERGED, Bidirectional, ConvLSTM, Options, Recurrent, gates_to_mxnet
from mxsame.port.rows._shared import commutes, function_of, window
from mxsame.port.table import KERAS, TAKES, Site, Value, layer
from mxsame.port.types import CAST
from mxsame.validation import check, integer

UNREAD = "dropout|recurrent_dropout|implementation|unroll|unit_forget_bias|zero_output_for_mask"  # without a mask
STEPS = {"activation": "tanh", "recurrent_activation": "sigmoid"}  # the functions of a step, by default


def _takes_mask(site: Site, x: Value, states: Sequence[Value]) -> bool:
    """Keras 3 gives a layer that is called with states no mask other than one of the call."""
    left_out = site.version == 3 and states and site.call.kwargs.get("mask") is None
    return x.mask is not None and not left_out


def _options(site: Site, config: Dict[str, Any], x: Value, states: Sequence[Value]) -> Options:
    """Returns the options of this configuration, for this data. In both directions, sequences are 0 where the mask is,
    and single outputs are not. Unrolled backwards, Keras takes the mask forwards for these zeros."""
    rank = 3 + site.num_spatial_dims
    check(x.rank == rank, f"data must have {rank} axes", shape=x.shape)
    samples = site.training and (config.get("dropout") or config.get("recurrent_dropout"))
    check(not samples, "a recurrent layer with dropout must not be called with training=True")
    sequences, backwards = bool(config.get("return_sequences", False)), bool(config.get("go_backwards", False))
    both = site.layer.class_name == "Bidirectional"
    takes_mask = _takes_mask(site, x, states)
    zero_output = takes_mask and (sequences if both else bool(config.get("zero_output_for_mask", False)))
    shape = getattr(x.mask, "shape", None)
    check(x.mask is None or x.mask.rank == 2, "mask must be that of steps, (N, T)", shape=shape)
    unrolled = zero_output and sequences and backwards and config.get("unroll")
    check(not unrolled, "unroll must be False in a masked layer that goes backwards; received unroll=True")
    return Options(
        x.shape[1],
        *(function_of(site, config.get(name, default)) for name, default in STEPS.items()),
        *(bool(config.get(name, False)) for name in ("return_sequences", "return_state", "go_backwards")),
        takes_mask=takes_mask,
        zero_output_for_mask=zero_output,
    )


def _weights(kernel: str, recurrent_kernel: str, bias: str) -> List[Weight]:
    """Returns the weights of one direction, for these parameters of its block."""
    weight = partial(Weight, group="cell")
    return [weight("kernel", kernel), weight("recurrent_kernel", recurrent_kernel), weight("bias", bias, "use_bias")]


WEIGHTS = _weights("i2h_weight", "h2h_weight", "bias")


def _conversions(kind: str) -> Dict[str, Conversion]:
    """Returns the conversions of weights, which put the gates in MXNet's order."""
    matrix = Conversion(lambda array: gates_to_mxnet(array, kind).T, lambda array: gates_to_mxnet(array.T, kind))
    vector = Conversion(lambda array: gates_to_mxnet(array, kind), lambda array: gates_to_mxnet(array, kind))
    return {"kernel": matrix, "recurrent_kernel": matrix, "bias": vector}


def _direction(site: Site, kind: str, config: Dict[str, Any], x: Value, states: Sequence[Value]) -> Callable:
    """Returns what makes the block of one direction."""
    units, use_bias = integer("units", config["units"], 1), bool(config.get("use_bias", True))
    reset_after = kind == "GRU" and bool(config.get("reset_after", False))
    return partial(Recurrent, kind, units, x.shape[-1] or 0, _options(site, config, x, states), use_bias, reset_after)


def _outputs(site: Site, make: Callable, x: Value, states: List[Value], conversions: Any) -> List[Value]:
    """Returns the outputs of a block; sequences have the mask of the data."""
    masks = [x.mask] if _takes_mask(site, x, states) else []
    outputs = site.block(make, x, *states, *masks, conversions=conversions, options=(len(masks), x.shape[1]))
    return [out._replace(mask=x.mask) if out.rank == x.rank else out for out in outputs]


def _states(given: Tuple[Value, ...], initial_state: Optional[List[Value]], count: int) -> List[Value]:
    """Returns the initial states: further inputs, or an argument."""
    states = [*given, *([initial_state] if isinstance(initial_state, Value) else initial_state or [])]
    check(len(states) in (0, count), f"initial_state must be {count} arrays; received {len(states)}")
    return states


@layer("SimpleRNN", "LSTM", "GRU", order=KERAS, weights=WEIGHTS, masks=TAKES, types=CAST, unread=UNREAD)
def _recurrent(site: Site, x: Value, *states: Value, initial_state: Optional[List[Value]] = None) -> List[Value]:
    kind = site.layer.class_name
    given = _states(states, initial_state, KINDS[kind].states)
    return _outputs(site, _direction(site, kind, site.config, x, given), x, given, _conversions(kind))


# -- both directions

CHILDREN = {"forwards": "forward_layer/cell", "backwards": "backward_layer/cell"}  # and their groups in a file


def _directions(config: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Returns the kind and the configuration of the layer forwards, and of that backwards."""
    forwards = class_and_config(config["layer"])
    if config.get("backward_layer") is None:
        backwards = forwards[0], {**forwards[1], "go_backwards": not forwards[1].get("go_backwards", False)}
    else:
        backwards = class_and_config(config["backward_layer"])
    for kind, _ in (forwards, backwards):
        check(kind in KINDS, f"layer must be one of {', '.join(KINDS)}; received a {kind}")
    return [forwards, backwards]


def _weights_of_both(config: Dict[str, Any]) -> List[Weight]:
    return [
        weight._replace(name=f"{child}_{weight.name}", parameter=f"{child}.{weight.parameter}", group=group)
        for (child, group), (_, inner) in zip(CHILDREN.items(), _directions(config))
        for weight in WEIGHTS
        if weight.is_in(inner)
    ]


@layer("Bidirectional", order=KERAS, weights=_weights_of_both, masks=TAKES, types=CAST)
def _bidirectional(site: Site, x: Value, *states: Value, initial_state: Optional[List[Value]] = None) -> List[Value]:
    merge_mode, modes = site.config.get("merge_mode", "concat"), ", ".join(map(str, MERGED))
    check(merge_mode in MERGED, f"merge_mode must be one of {modes}", merge_mode=merge_mode)
    directions = [(kind, Config(config)) for kind, config in _directions(site.config)]
    given = _states(states, initial_state, sum(KINDS[kind].states for kind, _ in directions))
    both = [_direction(site, kind, config, x, given) for kind, config in directions]
    for _, config in directions:
        config.refuse_type()
        config.refuse_unread(UNREAD)
    conversions = {
        f"{child}_{name}": conversion
        for child, (kind, _) in zip(CHILDREN, directions)
        for name, conversion in _conversions(kind).items()
    }
    return _outputs(site, partial(Bidirectional, *both, merge_mode), x, given, conversions)


# -- with convolutions

WEIGHTS_OF_CONVOLUTIONS = _weights("i2h.weight", "h2h.weight", "i2h.bias")


@layer("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", order=KERAS, weights=WEIGHTS_OF_CONVOLUTIONS, masks=TAKES,
       unread=UNREAD)  # fmt: skip
def _conv_lstm(site: Site, x: Value, *states: Value, initial_state: Optional[List[Value]] = None) -> List[Value]:
    rank = site.num_spatial_dims
    given = _states(states, initial_state, 2)
    options = _options(site, site.config, x, given)
    fits = all(commutes(partial(function, **arguments)) for function, arguments in options[1:3])
    check(fits, "activations of convolutions must be functions of each element")
    windows = window(site)
    if not site.is_channels_first:
        x, given = _channels_to(site, x, 2), [_channels_to(site, state, 1) for state in given]
    filters, in_channels = site.integer("filters"), x.shape[2] or 0
    convolution, use_bias = partial(getattr(nn, f"Conv{rank}D"), 4 * filters), bool(site.config.get("use_bias", True))
    i2h = partial(convolution, in_channels=in_channels, use_bias=use_bias, **windows)
    h2h = partial(convolution, windows["kernel_size"], in_channels=filters, use_bias=False)
    conversions = {"kernel": kernel("conv"), "recurrent_kernel": kernel("conv")}
    outputs = _outputs(site, partial(ConvLSTM, i2h, h2h, options), x, given, conversions)
    if site.is_channels_first:
        return outputs
    return [_transpose(out) if out.rank == rank + 2 else _channels_to(site, out, out.rank - 1, 2) for out in outputs]


def _transpose(x: Value) -> Value:
    """Returns an output with channels first, which is what Keras's order is if it is `transposed`."""
    return x._replace(transposed=True, shape=(x.shape[0], *x.shape[2:], x.shape[1]))


def _channels_to(site: Site, x: Value, axis: int, source: int = -1) -> Value:
    """Returns the value with channels moved to another axis of Keras's order."""
    axes = list(range(x.rank))
    axes.insert(axis, axes.pop(source))
    return site.function("transpose", x, axes=tuple(axes))._replace(mask=x.mask)
