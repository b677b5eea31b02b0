"""Converters of recurrent layers: in one direction and in both, and with convolutions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from mxsame import nn
from mxsame.keras_format.description import (
    CELLS,
    Config,
    Layer,
    WeightSpec,
    class_and_config,
    dtype_name,
    group_name,
    leaves,
)
from mxsame.keras_format.dtypes import CAST
from mxsame.port.blocks import repeated_state
from mxsame.port.call_context import CallContext, LayerState
from mxsame.port.converters._shared import function_of, ignores_axis_order, window_arguments
from mxsame.port.parameters import Conversion, kernel
from mxsame.port.recurrent import KINDS, MERGED, Bidirectional, ConvLSTM, Options, Recurrent, gates_to_mxnet
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, LAYERS, layer
from mxsame.port.tensors import Operand, Tensor
from mxsame.validation import check, integer

IGNORED = "dropout|recurrent_dropout|implementation|unroll|unit_forget_bias|zero_output_for_mask"  # without a mask
DEFAULT_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def _takes_mask(call: CallContext, x: Tensor, states: Sequence[Tensor]) -> bool:
    """Returns whether the layer uses the mask of x. In Keras 3 a call with states does so only if `mask` is given."""
    is_dropped = call.version == 3 and states and call.layer_call.kwargs.get("mask") is None
    return x.mask is not None and not is_dropped


def _options(call: CallContext, config: Dict[str, Any], x: Tensor, states: Sequence[Tensor]) -> Options:
    """Returns the options of this configuration for this data. A masked `Bidirectional` returns zeros in sequences, and
    not in single outputs."""
    rank = 3 + call.num_spatial_dims
    check(x.rank == rank, f"data must have {rank} axes", shape=x.shape)
    samples = call.training and (config.get("dropout") or config.get("recurrent_dropout"))
    check(not samples, "a recurrent layer with dropout must not be called with training=True")
    names = ("return_sequences", "return_state", "go_backwards")
    flags: Dict[str, Any] = {name: bool(config.get(name, False)) for name in names}
    is_both = call.layer.class_name == "Bidirectional"
    zero_output = flags["return_sequences"] if is_both else bool(config.get("zero_output_for_mask", False))
    takes_mask = _takes_mask(call, x, states)
    of_mask: Dict[str, Any] = {"takes_mask": takes_mask, "zero_output_for_mask": takes_mask and zero_output}
    shape = getattr(x.mask, "shape", None)
    check(x.mask is None or x.mask.rank == 2, "mask must have one entry for each step, (N, T)", shape=shape)
    _check_unrolled(config, takes_mask and zero_output)
    activation, gate = (function_of(call, config.get(name, default)) for name, default in DEFAULT_ACTIVATIONS.items())
    return Options(x.shape[1], activation, gate, **flags, **of_mask)


def _check_unrolled(config: Dict[str, Any], zero_output: Any) -> None:
    """Raises a `ValueError` for an unrolled backward layer with zeros for masked steps: Keras applies its mask
    forwards."""
    unrolled = zero_output and all(config.get(name) for name in ("return_sequences", "go_backwards", "unroll"))
    check(not unrolled, "unroll must be False in a masked layer that goes backwards; received unroll=True")


def _weights(kernel: str, recurrent_kernel: str, bias: str) -> List[WeightSpec]:
    """Returns the weights of one direction, for these parameters of its block."""
    weight = partial(WeightSpec, group="cell")
    return [weight("kernel", kernel), weight("recurrent_kernel", recurrent_kernel), weight("bias", bias, "use_bias")]


WEIGHTS = _weights("i2h_weight", "h2h_weight", "bias")


def _matrix_to_mxnet(array: Any, kind: str) -> Any:
    return gates_to_mxnet(array, kind=kind).T


def _matrix_to_keras(array: Any, kind: str) -> Any:
    return gates_to_mxnet(array.T, kind=kind)


def _conversions(kind: str) -> Dict[str, Conversion]:
    """Returns the conversions of weights, which put the gates in MXNet's order."""
    reordered = partial(gates_to_mxnet, kind=kind)
    matrix = Conversion(partial(_matrix_to_mxnet, kind=kind), partial(_matrix_to_keras, kind=kind))
    return {"kernel": matrix, "recurrent_kernel": matrix, "bias": Conversion(reordered, reordered)}


def _direction(call: CallContext, kind: str, config: Dict[str, Any], x: Tensor, states: Sequence[Tensor]) -> Callable:
    """Returns the function that makes the block of one direction."""
    units, use_bias = integer("units", config["units"], 1), bool(config.get("use_bias", True))
    reset_after = kind == "GRU" and bool(config.get("reset_after", False))
    return partial(Recurrent, kind, units, x.shape[-1] or 0, _options(call, config, x, states), use_bias, reset_after)


def _outputs(call: CallContext, maker: Callable, x: Tensor, states: List[Tensor], conversions: Any,
             configs: Sequence[Dict[str, Any]] = ()) -> List[Tensor]:  # fmt: skip
    """Adds the block that `maker(x)` makes, for data (N, T, D), or (T, N, D) if the configurations are `time_major`,
    and returns its outputs. Sequences have the mask of the data."""
    orders, mask = {bool(config.get("time_major", False)) for config in configs}, x.mask
    is_time_major, swapped = True in orders, partial(call.apply, "swapaxes", dim1=0, dim2=1)
    if is_time_major:
        is_plain = len(orders) == 1 and mask is None and not states
        check(is_plain, "time_major must be False with a mask or states; received time_major=True")
        call.steps.time_major |= call.steps.sources([x])
        x = swapped(x)
    masks = [mask] if _takes_mask(call, x, states) else []
    outputs = call.add_block(maker(x), x, *states, *masks, conversions=conversions, options=(len(masks), x.shape[1]))
    outputs = [out._replace(mask=mask) if out.rank == x.rank else out for out in outputs]
    return [swapped(out) if is_time_major and out.rank == x.rank else out for out in outputs]


def _states(call: CallContext, x: Tensor, given: Sequence[Tensor], initial_state: Operand, count: int) -> List[Tensor]:
    """Returns the initial states: further inputs, or the argument, which may contain constants."""
    several = leaves(initial_state, Tensor)
    if initial_state is not None and not several:
        several = [initial_state] if np.ndim(initial_state) == x.rank - 1 else list(initial_state)
    elif isinstance(initial_state, list):
        several = initial_state
    states = [*given, *several]
    check(len(states) in (0, count), f"initial_state must be {count} arrays; received {len(states)}")
    return [state if isinstance(state, Tensor) else _constant_state(call, x, state) for state in states]


def _constant_state(call: CallContext, x: Tensor, state: Any) -> Tensor:
    """Returns a constant state, repeated along the batch: all of its entries must be the same."""
    array = np.asarray(state, "float32")
    fits = array.ndim >= 2 and (array == array[:1]).all()
    check(fits, "a constant initial_state must be the same for each entry of the batch", shape=array.shape)
    return call.constant(repeated_state, x, {"state": array[:1]}, ndim=x.rank)


@layer("SimpleRNN", "LSTM", "GRU", order=KERAS_ORDER, weights=WEIGHTS, masks=HANDLES_MASK, dtypes=CAST, ignored=IGNORED)
def _recurrent(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    kind, config = call.layer.class_name, call.config
    given = _states(call, x, states, initial_state, KINDS[kind].states)
    return _outputs(call, lambda x: _direction(call, kind, config, x, given), x, given, _conversions(kind), [config])


# -- several cells, one after the other


def _cells(config: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Returns the class and configuration of a layer for each cell of an `RNN`: only the first goes backwards, and all
    but the last return sequences."""
    name, stack = class_and_config(config["cell"])
    check(name == "StackedRNNCells", f"cell must be one of {', '.join(CELLS)}, or a stack of them", cell=name)
    Config(stack).refuse_unread("cells")
    layers, of_layer = [], {key: value for key, value in config.items() if key != "cell"}
    for name, cell in map(class_and_config, stack["cells"]):
        check(name in CELLS, f"cells must be {', '.join(CELLS)}", cell=name)
        is_same = dtype_name(cell.get("dtype")) == dtype_name(config.get("dtype"))
        is_same = is_same and bool(cell.get("trainable", True)) == bool(config.get("trainable", True))
        check(is_same, "cells must have the dtype of their layer, and be trainable as it is", cell=cell.get("name"))
        layers.append((CELLS[name], {**cell, **of_layer}))
    for _, before in layers[:-1]:
        before.update(return_sequences=True, zero_output_for_mask=False)
    for _, after in layers[1:]:
        after["go_backwards"] = False
    return layers


def _weights_of_cells(config: Dict[str, Any]) -> List[WeightSpec]:
    weights, counts = [], {}  # type: ignore[var-annotated]
    for number, (kind, inner) in enumerate(_cells(config)):
        group = f"cell/cells/{group_name(f'{kind}Cell', counts)}"
        specs = (weight for weight in WEIGHTS if weight.is_present(inner))
        weights += [weight._replace(name=f"{number}_{weight.name}", group=group) for weight in specs]
    return weights


@layer("RNN", order=KERAS_ORDER, weights=_weights_of_cells, masks=HANDLES_MASK, dtypes=CAST, ignored=".*")
def _stacked(call: CallContext, x: Tensor, *states: Operand, initial_state: Operand = None) -> List[Tensor]:
    """Builds a layer for each cell, with its part of the weights. The states of a cell may be a nested list."""
    kinds = _cells(call.config)
    given = _states(call, x, leaves([*states], Tensor), initial_state, sum(KINDS[kind].states for kind, _ in kinds))
    _check_unrolled(call.config, _takes_mask(call, x, given) and call.config.get("zero_output_for_mask"))
    weights, out, mask = iter(call.layer.weights), x, x.mask
    last: List[Tensor] = []
    loaded: List[Any] = []
    for number, (kind, config) in enumerate(kinds):
        specs = [weight for weight in WEIGHTS if weight.is_present(config)]
        inner = Layer(kind, call.layer.name, config, weight_specs=specs, weights=[next(weights) for _ in specs])
        state = call.state.first_call.setdefault(f"cell {number}", LayerState(inner))
        own, given = given[: KINDS[kind].states], given[KINDS[kind].states :]
        of_cell = replace(call, layer=state.layer, state=state, path=(*call.path, str(number)))
        out, *more = LAYERS[kind](of_cell, [out._replace(mask=mask), *own], {})
        if config.get("go_backwards") and mask is not None:  # the sequence is backwards now
            mask = call.apply("reverse", mask, axis=1)
        last += more
        loaded += state.layer.weights
    call.layer.weights = loaded
    return [out._replace(mask=x.mask if out.rank == x.rank else None), *last]


# -- both directions

GROUPS = {"forwards": "forward_layer/cell", "backwards": "backward_layer/cell"}  # in a file, by the child of the block


def _directions(config: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Returns the class and configuration of the forward layer, and of the backward layer."""
    forwards = class_and_config(config["layer"])
    if config.get("backward_layer") is None:
        backwards = forwards[0], {**forwards[1], "go_backwards": not forwards[1].get("go_backwards", False)}
    else:
        backwards = class_and_config(config["backward_layer"])
    for kind, _ in (forwards, backwards):
        check(kind in KINDS, f"layer must be one of {', '.join(KINDS)}; received a {kind}")
    return [forwards, backwards]


def _weights_of_both(config: Dict[str, Any]) -> List[WeightSpec]:
    weights = []
    for (child, group), (_, inner) in zip(GROUPS.items(), _directions(config)):
        for weight in (weight for weight in WEIGHTS if weight.is_present(inner)):
            name, parameter = f"{child}_{weight.name}", f"{child}.{weight.parameter}"
            path = f"{child[:-1]}_[^/]+/(.*/)?{weight.name}"
            weights.append(weight._replace(name=name, parameter=parameter, group=group, path=path))
    return weights


@layer("Bidirectional", order=KERAS_ORDER, weights=_weights_of_both, masks=HANDLES_MASK, dtypes=CAST)
def _bidirectional(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    merge_mode, modes = call.config.get("merge_mode", "concat"), ", ".join(map(str, MERGED))
    check(merge_mode in MERGED, f"merge_mode must be one of {modes}", merge_mode=merge_mode)
    kinds, configs = zip(*((kind, Config(config)) for kind, config in _directions(call.config)))
    given = _states(call, x, states, initial_state, sum(KINDS[kind].states for kind in kinds))
    both = [(child, _conversions(kind)) for child, kind in zip(GROUPS, kinds)]
    conversions = {f"{child}_{name}": each for child, of_kind in both for name, each in of_kind.items()}

    def maker(x: Tensor) -> Callable:
        forwards, backwards = (_direction(call, kind, config, x, given) for kind, config in zip(kinds, configs))
        return partial(Bidirectional, forwards, backwards, merge_mode)

    outputs = _outputs(call, maker, x, given, conversions, configs)
    for config in configs:
        config.refuse_dtype()
        config.refuse_unread(IGNORED)
    return outputs


# -- with convolutions


@layer("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", order=KERAS_ORDER, masks=HANDLES_MASK, ignored=IGNORED,
       weights=_weights("i2h.weight", "h2h.weight", "i2h.bias"))  # fmt: skip
def _conv_lstm(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    rank = call.num_spatial_dims
    given = _states(call, x, states, initial_state, 2)
    options = _options(call, call.config, x, given)
    fits = all(ignores_axis_order(partial(function, **arguments)) for function, arguments in options[1:3])
    check(fits, "activations of convolutions must be functions of each element")
    windows = window_arguments(call)
    if not call.is_channels_first:
        x, given = _channels_to(call, x, 2), [_channels_to(call, state, 1) for state in given]
    filters, in_channels = call.integer("filters"), x.shape[2] or 0
    convolution, use_bias = partial(getattr(nn, f"Conv{rank}D"), 4 * filters), bool(call.config.get("use_bias", True))
    i2h = partial(convolution, in_channels=in_channels, use_bias=use_bias, **windows)
    h2h = partial(convolution, windows["kernel_size"], in_channels=filters, use_bias=False)
    conversions = {"kernel": kernel("conv"), "recurrent_kernel": kernel("conv")}
    outputs = _outputs(call, lambda x: partial(ConvLSTM, i2h, h2h, options), x, given, conversions)
    if call.is_channels_first:
        return outputs
    return [out.as_transposed() if out.rank == rank + 2 else _channels_to(call, out, -1, 2) for out in outputs]


def _channels_to(call: CallContext, x: Tensor, axis: int, source: int = -1) -> Tensor:
    """Moves the channels to another axis of Keras's order."""
    order = np.moveaxis(np.empty(range(x.rank)), source, axis).shape
    return call.apply("transpose", x, axes=order)._replace(mask=x.mask)
