"""Dense layers, embeddings and products of matrices, norms, and recurrent layers."""

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
    """Computes x W^T + b; with `flatten` x is a matrix, without it only its last axis changes."""
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
    """Multiplies the matrices of a batch."""
    axes = [2 - node.attr("transpose_a"), 1 + node.attr("transpose_b")]
    fits = isinstance(y, KerasTensor) and (x.rank, y.rank, x.order[0], y.order[0]) == (3, 3, 0, 0)
    check(fits, "data must be matrices of a batch")
    config = {"axes": [x.axis(axes[0]), y.axis(axes[1])], "normalize": False}
    return w.add_layer("Dot", config, x, y, shape=w.lengths(Output(node), (0, 1, 2)), order=(0, 1, 2))


# -- norms


def _scaled(
    w: KerasWriter, node: Node, gamma: Optional[Output], beta: Output, keeps: bool = False
) -> Tuple[Dict[str, Any], Dict[str, Weight]]:
    """Returns the configuration and the weights of a norm. Weights that are frozen and change nothing are left out,
    unless it `keeps` them."""
    given = {"gamma": (gamma, 1.0), "beta": (beta, 0.0)}
    weights = {name: (w.weight(source), neutral) for name, (source, neutral) in given.items() if source is not None}
    needed = {
        name: weight
        for name, (weight, neutral) in weights.items()
        if keeps or not w.is_frozen(weight.source) or (weight.array != neutral).any()
    }
    return {"epsilon": node.attr("eps"), "center": "beta" in needed, "scale": "gamma" in needed}, needed


@writes("batch_norm")
def _batch_norm(w: KerasWriter, node: Node, x: KerasTensor, gamma: Any, beta: Any, *moving: Output) -> KerasTensor:
    """Writes a BatchNormalization; one that uses global statistics does so in training, too."""
    fixed = node.attr("use_global_stats")
    config, weights = _scaled(w, node, None if node.attr("fix_gamma") else gamma, beta, keeps=fixed)
    config.update(axis=x.axis(node.attr("axis", 1)), momentum=node.attr("momentum"))
    weights.update(zip(("moving_mean", "moving_variance"), map(w.weight, moving)))
    return w.add_layer("BatchNormalization", config, x, weights=weights, call={"training": False} if fixed else {})


@writes("LayerNorm")
def _layer_norm(w: KerasWriter, node: Node, x: KerasTensor, gamma: Output, beta: Output) -> KerasTensor:
    config, weights = _scaled(w, node, gamma, beta)
    return w.add_layer("LayerNormalization", {"axis": x.axis(axis_of(w, node)), **config}, x, weights=weights)


@writes("GroupNorm", "InstanceNorm")
def _group_norm(w: KerasWriter, node: Node, x: KerasTensor, gamma: Output, beta: Output) -> KerasTensor:
    """Writes a GroupNormalization. Keras has a scale for each channel, MXNet one for each group."""
    (config, weights), channels = _scaled(w, node, gamma, beta), w.shape(node.inputs[0])[1].traced
    groups = node.attr("num_groups", channels)
    fits = groups == channels or all(w.is_frozen(weight.source) for weight in weights.values())
    check(fits, "scales of groups must be frozen: Keras trains one for each channel")
    weights = {spec: scale._replace(array=scale.array.repeat(channels // groups)) for spec, scale in weights.items()}
    x = w.to_channels_last(x)
    return w.add_layer("GroupNormalization", {"groups": groups, "axis": x.rank - 1, **config}, x, weights=weights)


# -- recurrent layers: one RNN of MXNet has all layers and directions, one of Keras is one layer

CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "SimpleRNN", "rnn_relu": "SimpleRNN"}


@writes("RNN", ignored="state_outputs")
def _recurrent(w: KerasWriter, node: Node, x: KerasTensor, _: Any, *states: Any) -> List[KerasTensor]:
    """Writes (T, N, C) -> (T, N, D*H), and the states (layers*D, N, H), which are (N, layers*D, H) in the file."""
    given = [w.permute(state, (1, 0, 2)) for state in states if state is not None]
    check(len(given) in (0, len(states)), "initial states must be given, or 0, all of them")
    rule = "an .h5 file has layers only, and no initial states: use a path that ends in .keras"
    check(not (given and w.builder.is_h5), rule)
    returns = len(w.outputs_of(node)) > 1
    mode, size, rate = node.attr("mode"), node.attr("state_size"), node.attr("p")
    x, class_name, directions = w.permute(x, (1, 0, 2)), CLASSES[mode], 1 + node.attr("bidirectional")
    config: Dict[str, Any] = {"units": size, "return_sequences": True, "return_state": returns}
    config["activation"] = "relu" if mode == "rnn_relu" else "tanh"
    config.update({"reset_after": True} if class_name == "GRU" else {})
    config.update({"use_bias": False} if NO_BIAS in node.attrs else {})
    vector, count = w.weight(node.inputs[1]), node.attr("num_layers")
    ends: List[List[KerasTensor]] = [[] for _ in states]
    for number, layer in enumerate(recurrent_layers(w, node, KINDS[class_name].gates)):
        part = f"l{number}" if count > 1 else ""
        if number and rate:
            x = w.add_layer("Dropout", {"rate": rate}, x, suffix=f"{part}_dropout")
        weights, whole, wrapper = {}, config, class_name
        for prefix, *arrays in zip(("forwards_", "backwards_") if directions > 1 else ("",), *layer):
            named = _weights(config, class_name == "GRU", *arrays)
            weights.update({f"{prefix}{name}": vector._replace(array=array) for name, array in named.items()})
        if directions > 1:
            name = f"{w.name_of(vector)}_{part}_one_way".replace("__", "_")
            inner: Dict[str, Any] = {"module": "keras.layers", "class_name": class_name}
            inner["config"] = {**config, "name": name, "dtype": "float32"}
            wrapper, whole = "Bidirectional", {"merge_mode": "concat", "layer": inner}
        own = range(number * directions, (number + 1) * directions)
        starts = [_start(w, state, index, count * directions).tensor for index in own for state in given]
        call, shape = {"initial_state": starts} if given else {}, (None, x.shape[1], directions * size)
        x = w.add_layer(wrapper, whole, x, shape=shape, weights=weights, suffix=part, call=call)
        for position in range(len(own) * len(states) * returns):
            end = w.output(x, position + 1, (None, size), (1, 2))
            ends[position % len(states)].append(w.reshape(end, (None, 1, size), (1, 0, 2), suffix="end"))
    whole_state = (None, count * directions, size)
    return [x, *(_concatenate_states(w, parts, whole_state) for parts in ends if returns)]


def _start(w: KerasWriter, state: KerasTensor, index: int, count: int) -> KerasTensor:
    """Returns the state (N, H) of one layer and direction."""
    crop = [(index, count - 1 - index), (0, 0), (0, 0)]
    part = along_axes(w, state, "Cropping", crop, suffix="state")
    return w.reshape(part, (None, state.shape[2]), (1, 2), suffix="start")


def _concatenate_states(w: KerasWriter, states: List[KerasTensor], shape: Tuple[Any, ...]) -> KerasTensor:
    """Concatenates the states of all layers and directions."""
    if len(states) == 1:
        return states[0]
    return w.add_layer("Concatenate", {"axis": 1}, *states, shape=shape, suffix="ends")


def _weights(config: Dict[str, Any], has_both: bool, weight: Any, recurrence: Any, bias: Any) -> Dict[str, Any]:
    """Returns Keras's weights of one direction. If Keras has one bias, it is the sum of MXNet's two."""
    halves = bias.reshape(2, -1)
    biases = {"bias": halves if has_both else halves.sum(0)} if config.get("use_bias", True) else {}
    return {"kernel": weight.T, "recurrent_kernel": recurrence.T, **biases}
