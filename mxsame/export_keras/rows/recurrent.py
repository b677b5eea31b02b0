"""Recurrent layers: one RNN of MXNet has all layers and directions, one of Keras is one layer."""

from __future__ import annotations

from typing import Any, Dict, List

from mxsame.export_keras.writer import MOVES, Value, Writer, writes
from mxsame.exporting.walk import recurrent_layers
from mxsame.port.recurrent import KINDS
from mxsame.rewriting.graph import Node, Output

CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "SimpleRNN", "rnn_relu": "SimpleRNN"}


@writes("RNN", unread="state_outputs")
def _recurrent(w: Writer, node: Node, x: Value, _: Any, *states: Any) -> List[Value]:
    """(T, N, C) -> (T, N, D*H), from states of 0."""
    if not all(state is None or _is_zero(source) for state, source in zip(states, node.inputs[2:])):
        raise ValueError("initial states must be 0, or not given")
    if any(output.node is node and output.index for output in w.graph.used_outputs()):
        raise ValueError("last states must not be used")
    mode, size, rate = str(node.attr("mode")), int(node.attr("state_size")), float(node.attr("p"))
    x, class_name, directions = w.arranged(x, (1, 0, 2)), CLASSES[mode], 1 + node.attr("bidirectional")
    config: Dict[str, Any] = {"units": size, "return_sequences": True}
    config["activation"] = "relu" if mode == "rnn_relu" else "tanh"
    config.update({"reset_after": True} if class_name == "GRU" else {})
    if any(each.op == "zeros_like" and each.inputs[0].node.op != "null" for each in w.graph.nodes(node.inputs[1:2])):
        config["use_bias"] = False  # a layer of `mxsame.port` without biases has zeros like a part of a weight
    vector = w.weight(node.inputs[1])
    for number, layer in enumerate(recurrent_layers(w, node, KINDS[class_name].gates)):
        part = f"l{number}" if int(node.attr("num_layers")) > 1 else ""
        if number and rate:
            x = w.layer("Dropout", {"rate": rate}, x, part=f"{part}_dropout")
        weights, whole, wrapper = {}, config, class_name
        for prefix, *arrays in zip(("forwards_", "backwards_") if directions > 1 else ("",), *layer):
            weights.update({f"{prefix}{name}": vector._replace(array=array)
                            for name, array in _weights(config, class_name == "GRU", *arrays).items()})  # fmt: skip
        if directions > 1:
            name = f"{w.name_of(vector)}_{part}_one_way".replace("__", "_")
            inner = {"module": "keras.layers", "class_name": class_name}
            inner["config"] = {**config, "name": name, "dtype": "float32"}
            wrapper, whole = "Bidirectional", {"merge_mode": "concat", "layer": inner}
        x = w.layer(wrapper, whole, x, shape=(None, x.shape[1], directions * size), weights=weights, part=part)
    return [x]


def _is_zero(source: Output) -> bool:
    """Whether an array is of zeros, in whatever shape."""
    node = source.node
    while node.op in (*MOVES, "broadcast_axis") and node.inputs:
        node = node.inputs[0].node
    return node.op in ("_zeros", "zeros_like")


def _weights(config: Dict[str, Any], has_both: bool, weight: Any, recurrence: Any, bias: Any) -> Dict[str, Any]:
    """Of one direction. Where Keras has one bias, it is the sum of MXNet's two."""
    halves = bias.reshape(2, -1)
    biases = {"bias": halves if has_both else halves.sum(0)} if config.get("use_bias", True) else {}
    return {"kernel": weight.T, "recurrent_kernel": recurrence.T, **biases}
