"""Emitters of dense layers and matrix products, norms, and recurrent layers."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

from mxsame.export_keras.emitters.axes import along_axes
from mxsame.export_keras.model_builder import KerasTensor
from mxsame.export_keras.writer import KerasWriter, Weight, writes
from mxsame.exporting.reading import axis_of, recurrent_layers
from mxsame.exporting.shapes import Length
from mxsame.port.parameters import TRANSPOSED
from mxsame.port.recurrent import KINDS
from mxsame.rewriting.graph import NO_BIAS, Node, Output
from mxsame.validation import check


@writes("FullyConnected")
def _dense(w: KerasWriter, node: Node, x: KerasTensor, _: Any, bias: Optional[Output] = None) -> KerasTensor:
    """Computes x W^T + b. With `flatten`, x is reshaped to a matrix; without it, only the last axis changes."""
    shape = w.shape(node.inputs[0])
    if node.attr("flatten") and x.rank != 2:
        features = math.prod(n.traced for n in shape[1:])
        x = w.reshape_as_mxnet(x, shape, (shape[0], Length(features, features)), for_dense=True)
    x = w.permute(x, x.order_with_last(-1))
    weight = w.weight(node.inputs[1])
    kernel = TRANSPOSED.to_keras(weight.array)
    weights = {"kernel": weight._replace(array=kernel if x.feature_order is None else kernel[x.feature_order])}
    if bias is not None:
        weights["bias"] = w.weight(bias)
    config = {"units": len(weight.array), "use_bias": bias is not None}
    return w.add_layer("Dense", config, x, shape=(*x.shape[:-1], config["units"]), order=x.order, weights=weights)


@writes("batch_dot")
def _batch_dot(w: KerasWriter, node: Node, x: KerasTensor, y: Any) -> KerasTensor:
    """Multiplies the matrices of two batches, one pair for each entry."""
    axes = [2 - node.attr("transpose_a"), 1 + node.attr("transpose_b")]
    are_matrices = isinstance(y, KerasTensor) and (x.rank, y.rank, x.order[0], y.order[0]) == (3, 3, 0, 0)
    check(are_matrices, "data must be matrices of a batch")
    config = {"axes": [x.axis(axes[0]), y.axis(axes[1])], "normalize": False}
    return w.add_layer("Dot", config, x, y, shape=w.lengths(Output(node), (0, 1, 2)), order=(0, 1, 2))


# -- norms


def _config_and_weights(
    w: KerasWriter, node: Node, gamma: Optional[Output], beta: Output, keeps_all: bool = False
) -> Tuple[Dict[str, Any], Dict[str, Weight]]:
    """Returns the configuration and the weights of a norm. Frozen weights that change no value are left out, unless
    `keeps_all`."""
    needed: Dict[str, Weight] = {}
    for name, source, neutral in (("gamma", gamma, 1.0), ("beta", beta, 0.0)):
        if source is not None:
            weight = w.weight(source)
            if keeps_all or not w.is_frozen(source) or (weight.array != neutral).any():
                needed[name] = weight
    return {"epsilon": node.attr("eps"), "center": "beta" in needed, "scale": "gamma" in needed}, needed


@writes("batch_norm")
def _batch_norm(w: KerasWriter, node: Node, x: KerasTensor, gamma: Any, beta: Any, *moving: Output) -> KerasTensor:
    """Writes a BatchNormalization. With `use_global_stats`, it is called with training=False."""
    is_fixed = node.attr("use_global_stats")
    gamma = None if node.attr("fix_gamma") else gamma
    config, weights = _config_and_weights(w, node, gamma, beta, keeps_all=is_fixed)
    config.update(axis=x.axis(node.attr("axis", 1)), momentum=node.attr("momentum"))
    weights.update(zip(("moving_mean", "moving_variance"), map(w.weight, moving)))
    return w.add_layer("BatchNormalization", config, x, weights=weights, call={"training": False} if is_fixed else {})


@writes("LayerNorm")
def _layer_norm(w: KerasWriter, node: Node, x: KerasTensor, gamma: Output, beta: Output) -> KerasTensor:
    config, weights = _config_and_weights(w, node, gamma, beta)
    return w.add_layer("LayerNormalization", {"axis": x.axis(axis_of(w, node)), **config}, x, weights=weights)


@writes("GroupNorm", "InstanceNorm")
def _group_norm(w: KerasWriter, node: Node, x: KerasTensor, gamma: Output, beta: Output) -> KerasTensor:
    """Writes a GroupNormalization. Keras has one gamma and beta for each channel, MXNet one for each group."""
    (config, weights), channels = _config_and_weights(w, node, gamma, beta), w.shape(node.inputs[0])[1].traced
    groups = node.attr("num_groups", channels)
    is_exact = groups == channels or all(w.is_frozen(weight.source) for weight in weights.values())
    check(is_exact, "scales of groups must be frozen: Keras trains one for each channel")
    size = channels // groups
    weights = {name: weight._replace(array=weight.array.repeat(size)) for name, weight in weights.items()}
    x = w.to_channels_last(x)
    return w.add_layer("GroupNormalization", {"groups": groups, "axis": x.rank - 1, **config}, x, weights=weights)


# -- recurrent layers: MXNet's RNN contains all layers and directions, which are separate layers in Keras

CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "SimpleRNN", "rnn_relu": "SimpleRNN"}


@writes("RNN", ignored="state_outputs")
def _recurrent(w: KerasWriter, node: Node, x: KerasTensor, _: Any, *states: Any) -> List[KerasTensor]:
    """Writes one layer of Keras for each of MXNet's. From data (T, N, C) it returns the output (T, N, D*H) and the
    final states (layers*D, N, H), for D directions. The file stores states as (N, layers*D, H)."""
    initial = [w.permute(state, (1, 0, 2)) for state in states if state is not None]
    check(len(initial) in (0, len(states)), "initial states must be given, or 0, all of them")
    rule = "an .h5 file has layers only, and no initial states: use a path that ends in .keras"
    check(not (initial and w.builder.is_h5), rule)
    returns_states = len(w.outputs_of(node)) > 1
    mode, size, rate = node.attr("mode"), node.attr("state_size"), node.attr("p")
    x, class_name, directions = w.permute(x, (1, 0, 2)), CLASSES[mode], 1 + node.attr("bidirectional")
    config: Dict[str, Any] = {"units": size, "return_sequences": True, "return_state": returns_states}
    config["activation"] = "relu" if mode == "rnn_relu" else "tanh"
    config.update({"reset_after": True} if class_name == "GRU" else {})
    config.update({"use_bias": False} if NO_BIAS in node.attrs else {})
    vector, count = w.weight(node.inputs[1]), node.attr("num_layers")
    final_states: List[List[KerasTensor]] = [[] for _ in states]
    for number, layer in enumerate(recurrent_layers(w, node, KINDS[class_name].gates)):
        suffix = f"l{number}" if count > 1 else ""
        if number and rate:
            x = w.add_layer("Dropout", {"rate": rate}, x, suffix=f"{suffix}_dropout")
        weights, layer_class, layer_config = {}, class_name, config
        for prefix, *arrays in zip(("forwards_", "backwards_") if directions > 1 else ("",), *layer):
            named = _direction_weights(config, class_name == "GRU", *arrays)
            weights.update({f"{prefix}{name}": vector._replace(array=array) for name, array in named.items()})
        if directions > 1:
            name = f"{w.name_of(vector)}_{suffix}_one_way".replace("__", "_")
            inner: Dict[str, Any] = {"module": "keras.layers", "class_name": class_name}
            inner["config"] = {**config, "name": name, "dtype": "float32"}
            layer_class, layer_config = "Bidirectional", {"merge_mode": "concat", "layer": inner}
        rows = range(number * directions, (number + 1) * directions)
        parts = [_initial_state(w, state, row, count * directions).tensor for row in rows for state in initial]
        call, shape = {"initial_state": parts} if initial else {}, (None, x.shape[1], directions * size)
        x = w.add_layer(layer_class, layer_config, x, shape=shape, weights=weights, suffix=suffix, call=call)
        for position in range(len(rows) * len(states) * returns_states):
            final = w.output(x, position + 1, (None, size), (1, 2))
            final_states[position % len(states)].append(w.reshape(final, (None, 1, size), (1, 0, 2), suffix="end"))
    state_shape = (None, count * directions, size)
    return [x, *(_concatenate_states(w, parts, state_shape) for parts in final_states if returns_states)]


def _initial_state(w: KerasWriter, state: KerasTensor, row: int, count: int) -> KerasTensor:
    """Returns one of the `count` rows of a state, as (N, H): the initial state of one layer and direction."""
    part = along_axes(w, state, "Cropping", [(row, count - 1 - row), (0, 0), (0, 0)], suffix="state")
    return w.reshape(part, (None, state.shape[2]), (1, 2), suffix="start")


def _concatenate_states(w: KerasWriter, states: List[KerasTensor], shape: Tuple[Any, ...]) -> KerasTensor:
    """Concatenates the states of all layers and directions."""
    if len(states) == 1:
        return states[0]
    return w.add_layer("Concatenate", {"axis": 1}, *states, shape=shape, suffix="ends")


def _direction_weights(config: Dict[str, Any], has_two_biases: bool, weight: Any, recurrence: Any,
                       bias: Any) -> Dict[str, Any]:  # fmt: skip
    """Returns Keras's weights of one direction. If Keras has only one bias, it is the sum of MXNet's two."""
    pair = bias.reshape(2, -1)
    biases = {"bias": pair if has_two_biases else pair.sum(0)} if config.get("use_bias", True) else {}
    return {"kernel": weight.T, "recurrent_kernel": recurrence.T, **biases}
