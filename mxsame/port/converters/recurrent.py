"""Converters of recurrent layers: in one direction and in both, and with convolutions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from mxsame import nn
from mxsame.port.blocks import repeated_state
from mxsame.port.call_context import LayerState
from mxsame.port.converters._shared import commutes, function_of, window
from mxsame.port.description import (
    CELLS,
    Config,
    Layer,
    WeightSpec,
    class_and_config,
    counted,
    leaves,
    snake_case,
    type_name,
)
from mxsame.port.parameters import Conversion, kernel
from mxsame.port.recurrent import KINDS, MERGED, Bidirectional, ConvLSTM, Options, Recurrent, gates_to_mxnet
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, LAYERS, CallContext, Operand, Tensor, layer
from mxsame.port.types import CAST
from mxsame.validation import check, integer

UNREAD = "dropout|recurrent_dropout|implementation|unroll|unit_forget_bias|zero_output_for_mask"  # without a mask
STEPS = {"activation": "tanh", "recurrent_activation": "sigmoid"}  # the functions of a step, by default


def _takes_mask(call: CallContext, x: Tensor, states: Sequence[Tensor]) -> bool:
    """Keras 3 gives a layer that is called with states no mask other than one of the call."""
    left_out = call.version == 3 and states and call.layer_call.kwargs.get("mask") is None
    return x.mask is not None and not left_out


def _options(call: CallContext, config: Dict[str, Any], x: Tensor, states: Sequence[Tensor]) -> Options:
    """Returns the options of this configuration, for this data. In both directions, sequences are 0 where the mask is,
    and single outputs are not."""
    rank = 3 + call.num_spatial_dims
    check(x.rank == rank, f"data must have {rank} axes", shape=x.shape)
    samples = call.training and (config.get("dropout") or config.get("recurrent_dropout"))
    check(not samples, "a recurrent layer with dropout must not be called with training=True")
    both, sequences = call.layer.class_name == "Bidirectional", bool(config.get("return_sequences", False))
    takes_mask = _takes_mask(call, x, states)
    zero_output = takes_mask and (sequences if both else bool(config.get("zero_output_for_mask", False)))
    shape = getattr(x.mask, "shape", None)
    check(x.mask is None or x.mask.rank == 2, "mask must be that of steps, (N, T)", shape=shape)
    _check_unrolled(config, zero_output)
    given: Dict[str, Any] = {name: function_of(call, config.get(name, default)) for name, default in STEPS.items()}
    flags = "return_sequences", "return_state", "go_backwards"
    given.update((name, bool(config.get(name, False))) for name in flags)
    return Options(
        x.shape[1],
        **given,
        takes_mask=takes_mask,
        zero_output_for_mask=zero_output,
    )


def _check_unrolled(config: Dict[str, Any], zero_output: Any) -> None:
    """Refuse what Keras takes the mask forwards for, unrolled: zeros of sequences that go backwards."""
    unrolled = zero_output and all(config.get(name) for name in ("return_sequences", "go_backwards", "unroll"))
    check(not unrolled, "unroll must be False in a masked layer that goes backwards; received unroll=True")


def _weights(kernel: str, recurrent_kernel: str, bias: str) -> List[WeightSpec]:
    """Returns the weights of one direction, for these parameters of its block."""
    weight = partial(WeightSpec, group="cell")
    return [weight("kernel", kernel), weight("recurrent_kernel", recurrent_kernel), weight("bias", bias, "use_bias")]


WEIGHTS = _weights("i2h_weight", "h2h_weight", "bias")


def _conversions(kind: str) -> Dict[str, Conversion]:
    """Returns the conversions of weights, which put the gates in MXNet's order."""
    matrix = Conversion(lambda array: gates_to_mxnet(array, kind).T, lambda array: gates_to_mxnet(array.T, kind))
    vector = Conversion(lambda array: gates_to_mxnet(array, kind), lambda array: gates_to_mxnet(array, kind))
    return {"kernel": matrix, "recurrent_kernel": matrix, "bias": vector}


def _direction(call: CallContext, kind: str, config: Dict[str, Any], x: Tensor, states: Sequence[Tensor]) -> Callable:
    """Returns what makes the block of one direction."""
    units, use_bias = integer("units", config["units"], 1), bool(config.get("use_bias", True))
    reset_after = kind == "GRU" and bool(config.get("reset_after", False))
    return partial(Recurrent, kind, units, x.shape[-1] or 0, _options(call, config, x, states), use_bias, reset_after)


def _outputs(call: CallContext, make: Callable, x: Tensor, states: List[Tensor], conversions: Any) -> List[Tensor]:
    """Returns the outputs of a block; sequences have the mask of the data."""
    masks = [x.mask] if _takes_mask(call, x, states) else []
    outputs = call.block(make, x, *states, *masks, conversions=conversions, options=(len(masks), x.shape[1]))
    return [out._replace(mask=x.mask) if out.rank == x.rank else out for out in outputs]


def _states(call: CallContext, x: Tensor, given: Sequence[Tensor], initial_state: Operand, count: int) -> List[Tensor]:
    """Returns the initial states: further inputs, or an argument, which may have constants."""
    several = leaves(initial_state, Tensor)
    if initial_state is not None and not several:
        several = [initial_state] if np.ndim(initial_state) == x.rank - 1 else list(initial_state)
    elif isinstance(initial_state, list):
        several = initial_state
    states = [*given, *several]
    check(len(states) in (0, count), f"initial_state must be {count} arrays; received {len(states)}")
    return [state if isinstance(state, Tensor) else _constant_state(call, x, state) for state in states]


def _constant_state(call: CallContext, x: Tensor, state: Any) -> Tensor:
    """Returns a constant state for each entry of the batch, which must all have the same."""
    array = np.asarray(state, "float32")
    fits = array.ndim >= 2 and (array == array[:1]).all()
    check(fits, "a constant initial_state must be the same for each entry of the batch", shape=array.shape)
    return call.constant(repeated_state, x, {"state": array[:1]}, ndim=x.rank)


@layer("SimpleRNN", "LSTM", "GRU", order=KERAS_ORDER, weights=WEIGHTS, masks=HANDLES_MASK, types=CAST, ignored=UNREAD)
def _recurrent(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    kind = call.layer.class_name
    given = _states(call, x, states, initial_state, KINDS[kind].states)

    def built(x: Tensor) -> List[Tensor]:
        return _outputs(call, _direction(call, kind, call.config, x, given), x, given, _conversions(kind))

    return _with_time_first(call, x, given, [call.config], built)


def _with_time_first(
    call: CallContext, x: Tensor, states: Sequence[Tensor], configs: Sequence[Dict[str, Any]], built: Callable
) -> List[Tensor]:
    """Returns the outputs of what is built for data (N, T, D), where the configurations may have time first."""
    orders = {bool(config.get("time_major", False)) for config in configs}
    if orders == {False}:
        return built(x)
    is_plain = len(orders) == 1 and x.mask is None and not states
    check(is_plain, "time_major must be False with a mask or states; received time_major=True")
    call.steps.time_major |= call.steps.sources([x])
    swapped = partial(call.function, "swapaxes", dim1=0, dim2=1)
    return [swapped(out) if out.rank == x.rank else out for out in built(swapped(x))]


# -- several cells, one after the other


def _cells(config: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Returns the layers that compute what the cells of an `RNN` do: only the first goes backwards, and all but the
    last return sequences."""
    name, inner = class_and_config(config["cell"])
    check(name == "StackedRNNCells", f"cell must be one of {', '.join(CELLS)}, or a stack of them", cell=name)
    Config(inner).refuse_unread("cells")
    cells, of_layer = [class_and_config(each) for each in inner["cells"]], {k: config[k] for k in config if k != "cell"}
    for name, cell in cells:
        check(name in CELLS, f"cells must be {', '.join(CELLS)}", cell=name)
        is_same = all(
            given(cell) == given(config) for given in (_is_trainable, lambda each: type_name(each.get("dtype")))
        )
        check(is_same, "cells must have the dtype of their layer, and be trainable as it is", cell=cell.get("name"))
    layers = [(CELLS[name], {**cell, **of_layer}) for name, cell in cells]
    for _, before in layers[:-1]:
        before.update(return_sequences=True, zero_output_for_mask=False)
    for _, after in layers[1:]:
        after["go_backwards"] = False
    return layers


def _is_trainable(config: Dict[str, Any]) -> bool:
    return bool(config.get("trainable", True))


def _weights_of_cells(config: Dict[str, Any]) -> List[WeightSpec]:
    counts: Dict[str, int] = {}
    return [
        weight._replace(name=f"{number}_{weight.name}", group=f"cell/cells/{group}")
        for number, (kind, inner) in enumerate(_cells(config))
        for group in [counted(snake_case(f"{kind}Cell"), counts)]
        for weight in WEIGHTS
        if weight.is_in(inner)
    ]


@layer("RNN", order=KERAS_ORDER, weights=_weights_of_cells, masks=HANDLES_MASK, types=CAST, ignored=".*")
def _stacked(call: CallContext, x: Tensor, *states: Operand, initial_state: Operand = None) -> List[Tensor]:
    """Build a layer for each cell, which has its part of the weights. States of a cell may be in a list of their
    own."""
    kinds = _cells(call.config)
    given = _states(call, x, leaves([*states], Tensor), initial_state, sum(KINDS[kind].states for kind, _ in kinds))
    _check_unrolled(call.config, _takes_mask(call, x, given) and call.config.get("zero_output_for_mask"))
    weights, out, mask = iter(call.layer.weights), [x], x.mask
    last: List[Tensor] = []
    built: List[Any] = []
    for number, (kind, config) in enumerate(kinds):
        weight_specs = [weight for weight in WEIGHTS if weight.is_in(config)]
        inner = Layer(
            kind, call.layer.name, config, weight_specs=weight_specs, weights=[next(weights) for _ in weight_specs]
        )
        state = call.state.at_first(f"cell {number}", LayerState(inner))
        own, given = given[: KINDS[kind].states], given[KINDS[kind].states :]
        of_cell = replace(call, layer=state.layer, state=state, path=(*call.path, str(number)))
        out = LAYERS[kind](of_cell, [out[0]._replace(mask=mask), *own], {})
        if config.get("go_backwards") and mask is not None:  # the sequence is backwards now
            mask = call.function("reverse", mask, axis=1)
        last += out[1:]
        built += state.layer.weights
    call.layer.weights = built
    return [out[0]._replace(mask=x.mask if out[0].rank == x.rank else None), *last]


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


def _weights_of_both(config: Dict[str, Any]) -> List[WeightSpec]:
    return [
        weight._replace(
            name=f"{child}_{weight.name}",
            parameter=f"{child}.{weight.parameter}",
            group=group,
            path=f"{child[:-1]}_[^/]+/(.*/)?{weight.name}",
        )
        for (child, group), (_, inner) in zip(CHILDREN.items(), _directions(config))
        for weight in WEIGHTS
        if weight.is_in(inner)
    ]


@layer("Bidirectional", order=KERAS_ORDER, weights=_weights_of_both, masks=HANDLES_MASK, types=CAST)
def _bidirectional(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    merge_mode, modes = call.config.get("merge_mode", "concat"), ", ".join(map(str, MERGED))
    check(merge_mode in MERGED, f"merge_mode must be one of {modes}", merge_mode=merge_mode)
    directions = [(kind, Config(config)) for kind, config in _directions(call.config)]
    given = _states(call, x, states, initial_state, sum(KINDS[kind].states for kind, _ in directions))
    conversions = {
        f"{child}_{name}": conversion
        for child, (kind, _) in zip(CHILDREN, directions)
        for name, conversion in _conversions(kind).items()
    }

    def built(x: Tensor) -> List[Tensor]:
        both = [_direction(call, kind, config, x, given) for kind, config in directions]
        return _outputs(call, partial(Bidirectional, both[0], both[1], merge_mode), x, given, conversions)

    outputs = _with_time_first(call, x, given, [config for _, config in directions], built)
    for _, config in directions:
        config.refuse_type()
        config.refuse_unread(UNREAD)
    return outputs


# -- with convolutions

WEIGHTS_OF_CONVOLUTIONS = _weights("i2h.weight", "h2h.weight", "i2h.bias")


@layer("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", order=KERAS_ORDER, weights=WEIGHTS_OF_CONVOLUTIONS, masks=HANDLES_MASK,
       ignored=UNREAD)  # fmt: skip
def _conv_lstm(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    rank = call.num_spatial_dims
    given = _states(call, x, states, initial_state, 2)
    options = _options(call, call.config, x, given)
    fits = all(commutes(partial(function, **arguments)) for function, arguments in options[1:3])
    check(fits, "activations of convolutions must be functions of each element")
    windows = window(call)
    if not call.is_channels_first:
        x, given = _channels_to(call, x, 2), [_channels_to(call, state, 1) for state in given]
    filters, in_channels = call.integer("filters"), x.shape[2] or 0
    convolution, use_bias = partial(getattr(nn, f"Conv{rank}D"), 4 * filters), bool(call.config.get("use_bias", True))
    i2h = partial(convolution, in_channels=in_channels, use_bias=use_bias, **windows)
    h2h = partial(convolution, windows["kernel_size"], in_channels=filters, use_bias=False)
    conversions = {"kernel": kernel("conv"), "recurrent_kernel": kernel("conv")}
    outputs = _outputs(call, partial(ConvLSTM, i2h, h2h, options), x, given, conversions)
    if call.is_channels_first:
        return outputs
    return [_transpose(out) if out.rank == rank + 2 else _channels_to(call, out, out.rank - 1, 2) for out in outputs]


def _transpose(x: Tensor) -> Tensor:
    """Returns an output with channels first, which is what Keras's order is if it is `transposed`."""
    return x._replace(transposed=True, shape=(x.shape[0], *x.shape[2:], x.shape[1]))


def _channels_to(call: CallContext, x: Tensor, axis: int, source: int = -1) -> Tensor:
    """Returns the value with channels moved to another axis of Keras's order."""
    axes = list(range(x.rank))
    axes.insert(axis, axes.pop(source))
    return call.function("transpose", x, axes=tuple(axes))._replace(mask=x.mask)
