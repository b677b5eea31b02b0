"""Converters of recurrent layers: in one direction, stacked, in both directions, and with convolutions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from mxsame import nn
from mxsame.keras_format.description import CELLS, Config, Layer, WeightSpec, class_and_config, dtype_name, leaves
from mxsame.keras_format.dtypes import CAST
from mxsame.keras_format.weights import group_name
from mxsame.port.blocks import repeated_state
from mxsame.port.call_context import CallContext, LayerState
from mxsame.port.converters._shared import function_of, ignores_axis_order, window_arguments
from mxsame.port.parameters import Conversion, kernel
from mxsame.port.recurrent import KINDS, MERGED, Bidirectional, ConvLSTM, Options, Recurrent, gates_to_mxnet
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, LAYERS, layer
from mxsame.port.tensors import Operand, Tensor
from mxsame.validation import check, integer

# keys that change nothing; `_options` reads those that matter with a mask or in training
IGNORED = "dropout|recurrent_dropout|implementation|unroll|unit_forget_bias|zero_output_for_mask"
DEFAULT_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def _takes_mask(call: CallContext, x: Tensor, states: Sequence[Tensor]) -> bool:
    """Returns whether the layer uses the mask of x. In Keras 3, a call with states uses only its argument `mask`."""
    is_ignored = call.version == 3 and states and call.layer_call.kwargs.get("mask") is None
    return x.mask is not None and not is_ignored


def _options(call: CallContext, config: Dict[str, Any], x: Tensor, states: Sequence[Tensor]) -> Options:
    """Returns the options of a layer with this configuration, called with this data. A masked `Bidirectional` outputs
    zeros for masked steps if it returns sequences."""
    rank = 3 + call.num_spatial_dims
    check(x.rank == rank, f"data must have {rank} axes", shape=x.shape)
    has_dropout = config.get("dropout") or config.get("recurrent_dropout")
    rule = "a recurrent layer with dropout must not be called with training=True"
    check(not (call.training and has_dropout), rule)
    names = ("return_sequences", "return_state", "go_backwards")
    flags: Dict[str, Any] = {name: bool(config.get(name, False)) for name in names}
    is_bidirectional = call.layer.class_name == "Bidirectional"
    zero_output = flags["return_sequences"] if is_bidirectional else bool(config.get("zero_output_for_mask", False))
    flags["takes_mask"] = _takes_mask(call, x, states)
    flags["zero_output_for_mask"] = flags["takes_mask"] and zero_output
    shape = getattr(x.mask, "shape", None)
    check(x.mask is None or x.mask.rank == 2, "mask must have one entry for each step, (N, T)", shape=shape)
    _refuse_unrolled(config, flags["zero_output_for_mask"])
    activation, gate = (function_of(call, config.get(name, default)) for name, default in DEFAULT_ACTIVATIONS.items())
    return Options(x.shape[1], activation, gate, **flags)


def _refuse_unrolled(config: Dict[str, Any], zero_output: Any) -> None:
    """Raises a `ValueError` for an unrolled layer that goes backwards and outputs zeros for masked steps: Keras applies
    its mask forwards."""
    is_refused = zero_output and all(config.get(name) for name in ("return_sequences", "go_backwards", "unroll"))
    check(not is_refused, "unroll must be False in a masked layer that goes backwards; received unroll=True")


def _weights(kernel: str, recurrent_kernel: str, bias: str) -> List[WeightSpec]:
    """Returns the specs of the weights of one direction; the arguments name the parameters of its block."""
    spec = partial(WeightSpec, group="cell")
    return [spec("kernel", kernel), spec("recurrent_kernel", recurrent_kernel), spec("bias", bias, "use_bias")]


WEIGHTS = _weights("i2h_weight", "h2h_weight", "bias")


def _matrix_to_mxnet(array: Any, kind: str) -> Any:
    return gates_to_mxnet(array, kind=kind).T


def _matrix_to_keras(array: Any, kind: str) -> Any:
    return gates_to_mxnet(array.T, kind=kind)


def _conversions(kind: str) -> Dict[str, Conversion]:
    """Returns the conversions of the weights of one direction. They reorder the gates."""
    reorder = partial(gates_to_mxnet, kind=kind)  # its own inverse
    matrix = Conversion(partial(_matrix_to_mxnet, kind=kind), partial(_matrix_to_keras, kind=kind))
    return {"kernel": matrix, "recurrent_kernel": matrix, "bias": Conversion(reorder, reorder)}


def _direction(call: CallContext, kind: str, config: Dict[str, Any], x: Tensor, states: Sequence[Tensor]) -> Callable:
    """Returns a function that makes the block of one direction."""
    units, use_bias = integer("units", config["units"], 1), bool(config.get("use_bias", True))
    reset_after = kind == "GRU" and bool(config.get("reset_after", False))
    return partial(Recurrent, kind, units, x.shape[-1] or 0, _options(call, config, x, states), use_bias, reset_after)


def _add_recurrent(call: CallContext, maker: Callable, x: Tensor, states: List[Tensor], conversions: Any,
                   configs: Sequence[Dict[str, Any]] = ()) -> List[Tensor]:  # fmt: skip
    """Adds a recurrent block, and returns its outputs. `maker(x)` returns the function that makes the block.

    The data is (N, T, D), or (T, N, D) if the configurations are `time_major`. Sequences get the mask of the data.
    """
    orders, mask = {bool(config.get("time_major", False)) for config in configs}, x.mask
    is_time_major, swap_axes = True in orders, partial(call.apply, "swapaxes", dim1=0, dim2=1)
    if is_time_major:
        is_supported = len(orders) == 1 and mask is None and not states
        check(is_supported, "time_major must be False with a mask or states; received time_major=True")
        call.steps.time_major |= call.steps.sources([x])
        x = swap_axes(x)
    masks = [mask] if _takes_mask(call, x, states) else []
    outputs = call.add_block(maker(x), x, *states, *masks, conversions=conversions, options=(len(masks), x.shape[1]))
    outputs = [out._replace(mask=mask) if out.rank == x.rank else out for out in outputs]
    return [swap_axes(out) if is_time_major and out.rank == x.rank else out for out in outputs]


def _states(call: CallContext, x: Tensor, inputs: Sequence[Tensor], initial_state: Operand, count: int) -> List[Tensor]:
    """Returns `count` initial states or none, from the inputs after x, or from `initial_state`, which may contain
    constants."""
    entries = leaves(initial_state, Tensor)
    if initial_state is not None and not entries:
        entries = [initial_state] if np.ndim(initial_state) == x.rank - 1 else list(initial_state)
    elif isinstance(initial_state, list):
        entries = initial_state
    states = [*inputs, *entries]
    check(len(states) in (0, count), f"initial_state must be {count} arrays; received {len(states)}")
    return [state if isinstance(state, Tensor) else _constant_state(call, x, state) for state in states]


def _constant_state(call: CallContext, x: Tensor, state: Any) -> Tensor:
    """Returns a constant state for any batch: all entries of its batch must be the same."""
    array = np.asarray(state, "float32")
    is_constant = array.ndim >= 2 and (array == array[:1]).all()
    check(is_constant, "a constant initial_state must be the same for each entry of the batch", shape=array.shape)
    return call.constant(repeated_state, x, {"state": array[:1]}, ndim=x.rank)


@layer("SimpleRNN", "LSTM", "GRU", order=KERAS_ORDER, weights=WEIGHTS, masks=HANDLES_MASK, dtypes=CAST, ignored=IGNORED)
def _recurrent(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    kind, config = call.layer.class_name, call.config
    initial = _states(call, x, states, initial_state, KINDS[kind].states)
    maker = partial(_direction, call, kind, config, states=initial)
    return _add_recurrent(call, maker, x, initial, _conversions(kind), [config])


# -- stacked cells


def _layers_of_cells(config: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Returns the class and configuration of a layer for each cell of an `RNN`. Only the first layer goes backwards,
    and all but the last return sequences."""
    name, stack = class_and_config(config["cell"])
    check(name == "StackedRNNCells", f"cell must be one of {', '.join(CELLS)}, or a stack of them", cell=name)
    Config(stack).refuse_unread("cells")
    layers, shared = [], {key: value for key, value in config.items() if key != "cell"}
    for name, cell in map(class_and_config, stack["cells"]):
        check(name in CELLS, f"cells must be {', '.join(CELLS)}", cell=name)
        is_same = dtype_name(cell.get("dtype")) == dtype_name(config.get("dtype"))
        is_same = is_same and bool(cell.get("trainable", True)) == bool(config.get("trainable", True))
        check(is_same, "cells must have the dtype and the trainable of their layer", cell=cell.get("name"))
        layers.append((CELLS[name], {**cell, **shared}))
    for _, layer_config in layers[:-1]:
        layer_config.update(return_sequences=True, zero_output_for_mask=False)
    for _, layer_config in layers[1:]:
        layer_config["go_backwards"] = False
    return layers


def _weights_of_cells(config: Dict[str, Any]) -> List[WeightSpec]:
    weights, counts = [], {}  # type: ignore[var-annotated]
    for number, (kind, layer_config) in enumerate(_layers_of_cells(config)):
        group = f"cell/cells/{group_name(f'{kind}Cell', counts)}"
        specs = (spec for spec in WEIGHTS if spec.is_present(layer_config))
        weights += [spec._replace(name=f"{number}_{spec.name}", group=group) for spec in specs]
    return weights


@layer("RNN", order=KERAS_ORDER, weights=_weights_of_cells, masks=HANDLES_MASK, dtypes=CAST, ignored=".*")
def _stacked(call: CallContext, x: Tensor, *states: Operand, initial_state: Operand = None) -> List[Tensor]:
    """Builds a layer for each cell, with the cell's weights. The initial states of a cell may be a nested list."""
    layers = _layers_of_cells(call.config)
    count = sum(KINDS[kind].states for kind, _ in layers)
    remaining = _states(call, x, leaves([*states], Tensor), initial_state, count)
    _refuse_unrolled(call.config, _takes_mask(call, x, remaining) and call.config.get("zero_output_for_mask"))
    weights, out, mask = iter(call.layer.weights), x, x.mask
    final_states: List[Tensor] = []
    for number, (kind, config) in enumerate(layers):
        specs = [spec for spec in WEIGHTS if spec.is_present(config)]
        inner = Layer(kind, call.layer.name, config, weight_specs=specs, weights=[next(weights) for _ in specs])
        cell = call.state.cells.setdefault(number, LayerState(replace(call.layer, weights=())))
        cell_states, remaining = remaining[: KINDS[kind].states], remaining[KINDS[kind].states :]
        cell_call = replace(call, layer=inner, state=cell, path=(*call.path, str(number)))
        out, *new_states = LAYERS[kind](cell_call, [out._replace(mask=mask), *cell_states], {})
        if config.get("go_backwards") and mask is not None:  # the mask follows the reversed sequence
            mask = call.apply("reverse", mask, axis=1)
        final_states += new_states
        call.state.weights.update({f"{number}_{name}": weight for name, weight in cell.weights.items()})
    return [out._replace(mask=x.mask if out.rank == x.rank else None), *final_states]


# -- both directions

GROUPS = {"forwards": "forward_layer/cell", "backwards": "backward_layer/cell"}  # child of the block -> group in files


def _directions(config: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Returns the class and configuration of the forward layer, and those of the backward layer."""
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
    for (child, group), (_, layer_config) in zip(GROUPS.items(), _directions(config)):
        for spec in (spec for spec in WEIGHTS if spec.is_present(layer_config)):
            name, parameter = f"{child}_{spec.name}", f"{child}.{spec.parameter}"
            path = f"{child[:-1]}_[^/]+/(.*/)?{spec.name}"
            weights.append(spec._replace(name=name, parameter=parameter, group=group, path=path))
    return weights


@layer("Bidirectional", order=KERAS_ORDER, weights=_weights_of_both, masks=HANDLES_MASK, dtypes=CAST)
def _bidirectional(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    merge_mode, modes = call.config.get("merge_mode", "concat"), ", ".join(map(str, MERGED))
    check(merge_mode in MERGED, f"merge_mode must be one of {modes}", merge_mode=merge_mode)
    kinds, configs = zip(*((kind, Config(config)) for kind, config in _directions(call.config)))
    initial = _states(call, x, states, initial_state, sum(KINDS[kind].states for kind in kinds))
    both = [(child, _conversions(kind)) for child, kind in zip(GROUPS, kinds)]
    conversions = {f"{child}_{name}": each for child, of_kind in both for name, each in of_kind.items()}

    def maker(x: Tensor) -> Callable:
        forwards, backwards = (_direction(call, kind, config, x, initial) for kind, config in zip(kinds, configs))
        return partial(Bidirectional, forwards, backwards, merge_mode)

    outputs = _add_recurrent(call, maker, x, initial, conversions, configs)
    for config in configs:
        config.refuse_dtype()
        config.refuse_unread(IGNORED)
    return outputs


# -- with convolutions


@layer("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", order=KERAS_ORDER, masks=HANDLES_MASK, ignored=IGNORED,
       weights=_weights("i2h.weight", "h2h.weight", "i2h.bias"))  # fmt: skip
def _conv_lstm(call: CallContext, x: Tensor, *states: Tensor, initial_state: Operand = None) -> List[Tensor]:
    image_rank = call.num_spatial_dims + 2
    initial = _states(call, x, states, initial_state, 2)
    options = _options(call, call.config, x, initial)
    functions = (partial(function, **arguments) for function, arguments in options[1:3])
    check(all(map(ignores_axis_order, functions)), "activations of convolutions must be functions of each element")
    windows = window_arguments(call)
    if not call.is_channels_first:
        x, initial = _move_axis(call, x, -1, 2), [_move_axis(call, state, -1, 1) for state in initial]
    filters, in_channels = call.integer("filters"), x.shape[2] or 0
    conv, use_bias = getattr(nn, f"Conv{call.num_spatial_dims}D"), bool(call.config.get("use_bias", True))
    i2h = partial(conv, 4 * filters, in_channels=in_channels, use_bias=use_bias, **windows)
    h2h = partial(conv, 4 * filters, windows["kernel_size"], in_channels=filters, use_bias=False)
    conversions = {"kernel": kernel("conv"), "recurrent_kernel": kernel("conv")}
    outputs = _add_recurrent(call, lambda x: partial(ConvLSTM, i2h, h2h, options), x, initial, conversions)
    if call.is_channels_first:
        return outputs
    return [out.as_transposed() if out.rank == image_rank else _move_axis(call, out, 2, -1) for out in outputs]


def _move_axis(call: CallContext, x: Tensor, source: int, destination: int) -> Tensor:
    """Moves the channels from one axis to another, and keeps the mask."""
    order = np.moveaxis(np.empty(range(x.rank)), source, destination).shape
    return call.apply("transpose", x, axes=order)._replace(mask=x.mask)
