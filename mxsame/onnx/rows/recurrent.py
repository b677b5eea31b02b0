"""Recurrent layers: one RNN of MXNet has all layers and directions, an LSTM, GRU or RNN of ONNX is one layer."""

from __future__ import annotations

from typing import Any, Dict, List

from mxsame.exporting.walk import recurrent_layers
from mxsame.onnx.rows._shared import writes
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node
from mxsame.target import CELL

GATES = {  # mode -> ONNX's operator, and which of MXNet's gates its gates are
    "lstm": ("LSTM", (0, 3, 1, 2)),  # input, output, forget, cell of MXNet's input, forget, cell, output
    "gru": ("GRU", (1, 0, 2)),  # update, reset, hidden of reset, update, hidden
    "rnn_tanh": ("RNN", (0,)),
    "rnn_relu": ("RNN", (0,)),
}
FUNCTIONS: Dict[str, tuple] = {  # of a note -> ONNX's, its alpha and its beta: numbers, or the note's names of them
    "elu": ("Elu", "alpha"),
    "hard_sigmoid": ("HardSigmoid", "slope", 0.5),
    "identity": ("Affine", 1.0, 0.0),
    "leaky_relu": ("LeakyRelu", "negative_slope"),
    **{name: (name.capitalize(),) for name in ("relu", "sigmoid", "softsign", "tanh")},
}


@writes("RNN", "RNN with a note", unread="p")
def recurrent(w: Writer, node: Node, x: str, _: str, *states: str) -> List[str]:
    """(T, N, C) -> (T, N, D*H), and the states (layers*D, N, H) of all layers after each other."""
    mode, size = str(node.attr("mode")), int(node.attr("state_size"))
    op, order = GATES[mode]
    directions, count = 1 + node.attr("bidirectional"), int(node.attr("num_layers"))
    attrs: dict = {"hidden_size": size, "direction": "bidirectional" if directions == 2 else "forward"}
    if op == "GRU":
        attrs["linear_before_reset"] = 1
    elif op == "RNN":
        attrs["activations"] = [{"rnn_tanh": "Tanh", "rnn_relu": "Relu"}[mode]] * directions
    if CELL in node.attrs:
        attrs.update(_noted(op, **node.attr(CELL)))
    ends: List[List[str]] = []
    for number, layer in enumerate(recurrent_layers(w, node, order)):
        arrays = [w.constant(array, w.dtype(node.inputs[0])) for array in layer]
        part = (0, number * directions, (number + 1) * directions, 1)  # of the initial states; without any, all are 0
        start = [w.sliced(state, part) if state and count > 1 else state for state in states]
        x, *end = w.add(op, x, *arrays, None, *start, outputs=1 + len(states), **attrs)
        x = _merged(w, x, directions, size)
        ends.append(end)
    if not node.attr("state_outputs"):
        return [x]
    return [x, *(each[0] if len(each) == 1 else w.add("Concat", *each, axis=0) for each in map(list, zip(*ends)))]


def _noted(op: str, activations: Any, reset_after: bool) -> Dict[str, Any]:
    """The attributes for the formulas of a note, whose activations are that of the output, then that of the gates."""
    output, gate = activations
    chosen = {"LSTM": [gate, output, output], "GRU": [gate, output], "RNN": [output]}[op]
    rows = [(*FUNCTIONS[name], arguments) for name, arguments in chosen]
    attrs: Dict[str, Any] = {"activations": [row[0] for row in rows]}
    for position, name in ((1, "activation_alpha"), (2, "activation_beta")):
        numbers = [float(row[-1].get(row[position], row[position])) for row in rows if len(row) > position + 1]
        attrs.update({name: numbers} if numbers else {})
    return {**attrs, "linear_before_reset": int(reset_after)} if op == "GRU" else attrs


def _merged(w: Writer, x: str, directions: int, size: int) -> str:
    """(T, D, N, H) -> (T, N, D*H)."""
    if directions == 1:
        return w.squeezed(x, [1])
    return w.add("Reshape", w.transposed(x, (0, 2, 1, 3)), w.integers([0, 0, directions * size]))
