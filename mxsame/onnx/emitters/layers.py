"""Emitters of dense layers and matrix products, norms, and recurrent layers."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional

import numpy as np

from mxsame.exporting.reading import axis_of, ndim_of, recurrent_layers
from mxsame.onnx.writer import OnnxWriter, writes
from mxsame.rewriting.graph import RNN_WITH_FORMULAS, Node, RecurrentFormulas
from mxsame.validation import check


@writes("FullyConnected")
def _dense(w: OnnxWriter, node: Node, x: str, weight: str, bias: Optional[str] = None) -> str:
    """Computes x W^T + b. With `flatten`, x is reshaped to a matrix; without it, only the last axis changes."""
    ndim = ndim_of(w, node)
    if node.attr("flatten") and ndim != 2:
        w.static(node.inputs[0], "the data of a dense layer, apart from the batch,", range(1, ndim))
        x, ndim = w.add("Flatten", x, axis=1), 2
    if ndim == 2:
        return w.add("Gemm", x, weight, bias, transB=1)
    value = w.graph.value(node.inputs[1])
    product = w.add("MatMul", x, w.constant(value.T) if value is not None else w.permute(weight, (1, 0)))
    return product if bias is None else w.add("Add", product, bias)


@writes("batch_dot", "dot", "matmul", "_linalg_gemm2")
def _matrix_product(w: OnnxWriter, node: Node, x: str, y: str) -> str:
    """Multiplies matrices. `transpose_a` and `transpose_b` swap the last two axes of an operand."""
    ranks = [len(w.shape(source)) for source in node.inputs]
    operands = [x, y]
    for position, (name, ndim) in enumerate(zip(("transpose_a", "transpose_b"), ranks)):
        if node.attr(name, False) and ndim > 1:
            operands[position] = w.permute(operands[position], [*range(ndim - 2), ndim - 1, ndim - 2])
    max_ranks = (2 if node.attr("transpose_a") else math.inf, 2) if node.kind == "dot" else (math.inf, math.inf)
    check(all(ndim <= limit for ndim, limit in zip(ranks, max_ranks)), "data must have at most two axes")
    product = w.add("MatMul", *operands)
    product = w.to_mxnet_scalar(node, product) if ranks == [1, 1] else product
    alpha = node.attr("alpha", 1.0)
    return product if alpha == 1 else w.add("Mul", product, w.scalar(alpha, node.inputs[0]))


# -- norms


@writes("batch_norm", ignored="momentum|use_global_stats")
def _batch_norm(w: OnnxWriter, node: Node, x: str, gamma: str, beta: str, mean: str, variance: str) -> str:
    """Writes a batch norm with its moving statistics, as at inference. Its parameters get the dtype of the data."""
    ndim, dtype = ndim_of(w, node), w.dtype(node.inputs[0])
    axis = node.attr("axis", 1) % ndim
    names, arrays = [gamma, beta, mean, variance], [w.graph.value(source) for source in node.inputs[1:]]
    if node.attr("fix_gamma"):
        arrays[0], names[0] = np.ones(w.shape(node.inputs[2])[0].traced), ""
    names = [
        name if array is None or (name and array.dtype == dtype) else w.constant(array, dtype)
        for name, array in zip(names, arrays)
    ]
    epsilon = node.attr("eps")
    order = [0, axis, *(other for other in range(1, ndim) if other != axis)]
    out = w.add("BatchNormalization", w.permute(x, order), *names, epsilon=epsilon)
    return w.permute(out, np.argsort(order).tolist())


@writes("LayerNorm")
def _layer_norm(w: OnnxWriter, node: Node, x: str, gamma: str, beta: str) -> str:
    """Computes (x - mean) / sqrt(variance + epsilon), scaled and shifted."""
    ndim, axis, epsilon = ndim_of(w, node), axis_of(w, node), node.attr("eps")
    if axis == ndim - 1 and w.opset >= 17:
        return w.add("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon)
    later_axes = list(range(1, ndim - axis))  # those of the data after `axis`, which gamma and beta lack
    scale, shift = (w.unsqueeze(each, later_axes) if later_axes else each for each in (gamma, beta))
    centered = w.add("Sub", x, w.reduce("ReduceMean", x, [axis], True))
    variance = w.reduce("ReduceMean", w.add("Mul", centered, centered), [axis], True)
    deviation = w.add("Sqrt", w.add("Add", variance, w.scalar(epsilon, node.inputs[0])))
    return w.add("Add", w.add("Mul", w.add("Div", centered, deviation), scale), shift)


@writes("GroupNorm")
def _group_norm(w: OnnxWriter, node: Node, x: str, gamma: str, beta: str) -> str:
    """Standardizes each group of channels, then applies one gamma and one beta per group."""
    grouped = w.add("Reshape", x, w.integers([0, node.attr("num_groups"), -1]))
    out = w.add("InstanceNormalization", grouped, gamma, beta, epsilon=node.attr("eps"))
    return w.add("Reshape", out, w.lengths(w.shape(node.inputs[0]), x))


# -- recurrent layers: MXNet's RNN contains all layers and directions; ONNX's LSTM, GRU and RNN contain one layer

GATES = {  # mode -> ONNX's operator, and the position in MXNet of each of its gates
    "lstm": ("LSTM", (0, 3, 1, 2)),  # ONNX: input, output, forget, cell; MXNet: input, forget, cell, output
    "gru": ("GRU", (1, 0, 2)),  # ONNX: update, reset, hidden; MXNet: reset, update, hidden
    "rnn_tanh": ("RNN", (0,)),
    "rnn_relu": ("RNN", (0,)),
}
# activation of the formulas -> ONNX's activation, then its alpha and beta, as numbers or as names of its arguments
RNN_ACTIVATIONS: Dict[str, tuple] = {
    "elu": ("Elu", "alpha"),
    "hard_sigmoid": ("HardSigmoid", "slope", 0.5),
    "identity": ("Affine", 1.0, 0.0),
    "leaky_relu": ("LeakyRelu", "negative_slope"),
    **{name: (name.capitalize(),) for name in ("relu", "sigmoid", "softsign", "tanh")},
}


@writes("RNN", RNN_WITH_FORMULAS, ignored="p")
def _recurrent(w: OnnxWriter, node: Node, x: str, _: str, *states: str) -> List[str]:
    """Writes one operator per layer. From data (T, N, C) it returns the output (T, N, D*H) and, with `state_outputs`,
    the final states (layers*D, N, H), for D directions."""
    mode, size = node.attr("mode"), node.attr("state_size")
    op, order = GATES[mode]
    directions, num_layers = 1 + node.attr("bidirectional"), node.attr("num_layers")
    attrs: dict = {"hidden_size": size, "direction": "bidirectional" if directions == 2 else "forward"}
    if op == "GRU":
        attrs["linear_before_reset"] = 1
    elif op == "RNN":
        attrs["activations"] = [{"rnn_tanh": "Tanh", "rnn_relu": "Relu"}[mode]] * directions
    if node.formulas:
        attrs.update(_formulas(op, node.formulas))
    final_states: List[List[str]] = []  # of each layer
    for number, layer in enumerate(recurrent_layers(w, node, order)):
        arrays = [w.constant(array, w.dtype(node.inputs[0])) for array in layer]
        rows = (0, number * directions, (number + 1) * directions, 1)  # the layer's part of the initial states
        initial = [w.slice(state, rows) if state and num_layers > 1 else state for state in states]
        x, *final = w.add(op, x, *arrays, None, *initial, outputs=1 + len(states), **attrs)
        x = _merge_directions(w, x, directions, size)
        final_states.append(final)
    if not node.attr("state_outputs"):
        return [x]
    return [x, *(each[0] if num_layers == 1 else w.add("Concat", *each, axis=0) for each in zip(*final_states))]


def _formulas(op: str, formulas: RecurrentFormulas) -> Dict[str, Any]:
    """Returns the attributes for activations that MXNet's operator does not have."""
    output, gate = formulas.activations
    ordered = {"LSTM": [gate, output, output], "GRU": [gate, output], "RNN": [output]}[op]
    rows = [(RNN_ACTIVATIONS[name], arguments) for name, arguments in ordered]
    attrs: Dict[str, Any] = {"activations": [onnx_name for (onnx_name, *_), _ in rows]}
    for position, name in ((1, "activation_alpha"), (2, "activation_beta")):
        numbers = [float(arguments.get(row[position], row[position])) for row, arguments in rows if len(row) > position]
        attrs.update({name: numbers} if numbers else {})
    return {**attrs, "linear_before_reset": int(formulas.reset_after)} if op == "GRU" else attrs


def _merge_directions(w: OnnxWriter, x: str, directions: int, size: int) -> str:
    """Reshapes (T, D, N, H) to (T, N, D*H)."""
    if directions == 1:
        return w.squeeze(x, [1])
    return w.add("Reshape", w.permute(x, (0, 2, 1, 3)), w.integers([0, 0, directions * size]))
