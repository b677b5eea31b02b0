"""Recurrent layers: one RNN of MXNet has all layers and directions, one of Keras is one layer."""

from __future__ import annotations

from typing import Any, Dict, List

from mxsame.export_keras.writer import MOVES, Value, Weighted, Writer, writes
from mxsame.exporting.walk import recurrent_layers
from mxsame.port.recurrent import KINDS, gates_to_mxnet
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
    x, class_name = w.arranged(x, (1, 0, 2)), CLASSES[mode]
    config: Dict[str, Any] = {"units": size, "return_sequences": True}
    config["activation"] = "relu" if mode == "rnn_relu" else "tanh"
    if class_name == "GRU":
        config["reset_after"] = True
    if any(each.op == "zeros_like" and each.inputs[0].node.op != "null" for each in w.graph.nodes(node.inputs[1:2])):
        config["use_bias"] = False  # a layer of `mxsame.port` without biases has zeros like a part of a weight
    directions, count = 1 + node.attr("bidirectional"), int(node.attr("num_layers"))
    vector, gates = w.weight(node.inputs[1]), range(len(KINDS[class_name].gates))
    for number, (weight, recurrence, bias) in enumerate(recurrent_layers(w, node, gates)):
        part = f"l{number}" if count > 1 else ""
        if number and rate:
            x = w.layer("Dropout", {"rate": rate}, x, part=f"{part}_dropout")
        both = [_weights(class_name, config, *each) for each in zip(weight, recurrence, bias)]
        shape = (None, x.shape[1], directions * size)
        if directions == 1:
            x = w.layer(class_name, config, x, shape=shape, weights=_of(vector, both[0], ""), part=part)
        else:
            x = _bidirectional(w, class_name, config, x, shape, vector, both, part)
    return [x]


def _is_zero(source: Output) -> bool:
    """Whether an array is of zeros, in whatever shape."""
    node = source.node
    while node.op in (*MOVES, "broadcast_axis") and node.inputs:
        node = node.inputs[0].node
    return node.op in ("_zeros", "zeros_like")


def _bidirectional(
    w: Writer, class_name: str, config: Dict[str, Any], x: Value, shape: tuple, vector: Weighted,
    both: List[Dict[str, Any]], part: str,
) -> Value:  # fmt: skip
    weights = {**_of(vector, both[0], "forwards_"), **_of(vector, both[1], "backwards_")}
    inner = {"module": "keras.layers", "class_name": class_name, "config": {**config, "dtype": "float32"}}
    inner["config"]["name"] = f"{w.name_of(vector)}_{part}_one_way".replace("__", "_")
    return w.layer(
        "Bidirectional", {"merge_mode": "concat", "layer": inner}, x, shape=shape, weights=weights, part=part
    )


def _of(vector: Weighted, arrays: Dict[str, Any], prefix: str) -> Dict[str, Weighted]:
    return {f"{prefix}{name}": vector._replace(array=array) for name, array in arrays.items()}


def _weights(class_name: str, config: Dict[str, Any], weight: Any, recurrence: Any, bias: Any) -> Dict[str, Any]:
    """Of one direction. Where Keras has one bias, it is the sum of MXNet's two."""
    halves = bias.reshape(2, -1)
    bias = halves if class_name == "GRU" else halves.sum(0)
    kernel, recurrent, bias = (gates_to_mxnet(array, class_name) for array in (weight.T, recurrence.T, bias))
    return {"kernel": kernel, "recurrent_kernel": recurrent, **({"bias": bias} if config.get("use_bias", True) else {})}
