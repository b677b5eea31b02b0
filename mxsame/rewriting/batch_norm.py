"""Batch norms, and every other scale and shift of each channel, folded into the convolution or dense layer before.

A batch norm at inference is y = (x - mean) / sqrt(variance + eps) * gamma + beta (Ioffe and Szegedy 2015,
algorithm 2, step 11), so with scale = gamma / sqrt(variance + eps) it is y = scale * x + (beta - mean * scale). Of a
linear x = W a + b that makes W' = scale * W and b' = scale * b + shift. All of it in float64.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import numpy as np

from mxsame.rewriting import sinking
from mxsame.rewriting.graph import Graph, Node, Output
from mxsame.rewriting.onednn import depthwise
from mxsame.rewriting.windows import is_channels_first

FAR = 30  # standard deviations
LEAST_CHANNELS = 8  # in oneDNN's blocks
IN_BLOCKS = ("Activation", "LeakyReLU", "Pooling", "clip")  # an output like their data
LINEAR = ("Convolution", "Deconvolution", "FullyConnected")
OPERANDS = {  # kind -> (scale, shift) of a constant, and whether it is the second operand
    "multiply": lambda value, second: (value, np.float64(0)),
    "add": lambda value, second: (np.float64(1), value),
    "subtract": lambda value, second: (np.float64(1), -value) if second else (np.float64(-1), value),
    "divide": lambda value, second: (1 / value, np.float64(0)) if second else None,
}
SCALARS = {f"{form}{kind}_scalar": (kind, not form) for kind in OPERANDS for form in ("", "r")}


class Affine(NamedTuple):
    """scale * data + shift along an axis; scalars if all channels have the same."""

    data: Output
    scale: np.ndarray
    shift: np.ndarray
    axis: int


def fold(graph: Graph) -> None:
    """Fold every scale and shift that follows a linear node which nothing else uses, directly or after movements."""
    shapes, users, folded = graph.shapes(), graph.users(), {}
    with np.errstate(all="ignore"):  # values that are not finite are not folded
        for node in users:
            affine = _as_affine(graph, node, shapes)
            producer, axis = (None, 0) if affine is None else _linear_before(users, shapes, folded, affine)
            if affine and producer and _fold_into(graph, producer, affine, axis == _channel_axis(producer, shapes)):
                folded[Output(node)] = affine.data
    graph.replace(folded)


def convolve(graph: Graph) -> None:
    """Turn the remaining batch norms of pictures, and each other scale and shift of what a convolution passes on, into
    depthwise 1x1 convolutions, which oneDNN runs in its blocks, as one step with the activation or addition after them:
    DenseNet-121 takes 0.93 of the time. Float32 only: MXNet's own depthwise convolution is slow."""
    shapes, users, folded = graph.shapes(), graph.users(), {}
    for node in users:
        if len(shapes.get(node, ())) != 4:
            continue
        with np.errstate(all="ignore"):
            affine = _as_affine(graph, node, shapes)
        if node.op == "Deconvolution":
            folded.update(_with_bias(graph, node, shapes, users))
        elif affine is None:
            _rectify(graph, node, shapes, users)
        elif affine.axis == 1 and (node.kind == "batch_norm" or _is_convolved(affine.data, shapes)):
            scale, shift = (np.broadcast_to(each, shapes[node][1]).astype(np.float32) for each in affine[1:3])
            before = affine.data.node
            if not np.isfinite([scale, shift]).all() or _has_far_mean(graph, node, affine.scale):
                continue
            if before.op == "Convolution" and len(users[before]) == 1 and _fold_into(graph, before, affine, True):
                folded[Output(node)] = affine.data
            else:
                _become_convolution(graph, node, affine.data, scale, shift)
    graph.replace(folded)


def _with_bias(graph: Graph, node: Node, shapes: dict, users: dict) -> dict:
    """A Deconvolution whose bias, which takes it longer than its products, is added by a depthwise 1x1 convolution
    after the slices of its output; what replaces what."""
    *_, bias = map(graph.value, node.inputs)
    if len(node.inputs) < 3 or bias is None or not is_channels_first(node) or len(bias) < LEAST_CHANNELS:
        return {}
    after = node
    while len(users[after]) == 1 and users[after][0].node is not None and users[after][0].node.op == "slice":
        after = users[after][0].node
    if shapes[after][1] != len(bias):
        return {}
    node.inputs.pop()
    node.attrs["no_bias"] = "True"
    made = Node("Convolution", f"{node.name}_with_bias")
    _become_convolution(graph, made, Output(after), np.ones_like(bias), bias)
    return {Output(after): Output(made)}


def _rectify(graph: Graph, node: Node, shapes: dict, users: dict) -> None:
    """Let a ReLU of a convolution that others read, for which it would be copied, have a convolution of its own; write
    a difference from a convolution as a sum, and PReLU, relu(x) - slope * relu(-x), as such a sum."""
    data, ones = node.inputs[0] if node.inputs else None, np.ones(shapes[node][1], np.float32)
    if data is None or not _is_convolved(data, shapes):
        return

    def scaled(name: str, data: Output, scale: np.ndarray) -> Output:
        made = Node("Convolution", f"{node.name}_{name}")
        _become_convolution(graph, made, data, scale, 0 * scale)
        return Output(made)

    if node.op == "clip" or node.attr("act_type") == "relu":
        if data.node.op == "Convolution" and len(users[data.node]) > 1:
            node.inputs[0] = scaled("data", data, ones)
    elif node.kind == "subtract" and all(shapes.get(source.node) == shapes[node] for source in node.inputs):
        after = node.inputs[1]
        negated = Affine(after, np.float64(-1), np.float64(0), 1)
        if (
            after.node.op == "Convolution"
            and len(users[after.node]) == 1
            and _fold_into(graph, after.node, negated, True)
        ):
            node.op = "elemwise_add"
    elif node.op == "LeakyReLU" and node.attr("act_type") == "prelu":
        slope = graph.value(node.inputs[1])
        if slope is not None and slope.size in (1, ones.size) and np.isfinite(slope).all():
            parts = [scaled(name, data, sign * ones) for name, sign in (("above", 1), ("below", -1))]
            above, below = (
                Output(Node("Activation", f"{part.node.name}_relu", [part], {"act_type": "relu"})) for part in parts
            )
            below = scaled("scaled", below, -slope.ravel() * ones)
            node.op, node.attrs, node.inputs = "elemwise_add", {}, [below, above]


def _is_convolved(source: Output, shapes: dict) -> bool:
    """Whether an array is in the blocks of a convolution."""
    is_wide = shapes.get(source.node, ())[1:2] >= (LEAST_CHANNELS,)
    while source.node.op in IN_BLOCKS:
        source = source.node.inputs[0]
    return is_wide and source.node.op == "Convolution" and is_channels_first(source.node)


def _has_far_mean(graph: Graph, node: Node, scale: np.ndarray) -> bool:
    """Whether the mean of a batch norm is so far from zero that scale * x + shift would lose digits that x - mean
    keeps."""
    if node.kind != "batch_norm":
        return False
    beta, mean, variance = (graph.value(source).astype(np.float64) for source in node.inputs[2:])  # type: ignore[union-attr]
    size = np.maximum(np.abs(scale) * np.sqrt(variance), np.abs(beta))
    return bool((np.abs(mean * scale) > FAR * size).any())


def _become_convolution(graph: Graph, node: Node, data: Output, scale: np.ndarray, shift: np.ndarray) -> None:
    """Make a node scale * data + shift, as a depthwise 1x1 convolution."""
    node.inputs = [data, graph.constant(f"{node.name}_weight", scale.reshape(-1, 1, 1, 1))]
    if np.any(shift):
        node.inputs.append(graph.constant(f"{node.name}_bias", shift))
    node.op, node.attrs = "Convolution", depthwise(scale.size, (1, 1), no_bias=str(len(node.inputs) < 3))


def _as_affine(graph: Graph, node: Node, shapes: dict) -> Optional[Affine]:
    """A node as a scale and shift, if it is one."""
    if node.kind == "batch_norm" and node in shapes:
        return _batch_norm(graph, node, len(shapes[node]))
    if node.kind in SCALARS:
        kind, second = SCALARS[node.kind]
        result = OPERANDS[kind](np.float64(node.attr("scalar")), second)
        return None if result is None else Affine(node.inputs[0], *result, 1)
    if node.kind in OPERANDS and node in shapes:
        return _operand(graph, node, shapes)
    return None


def _operand(graph: Graph, node: Node, shapes: dict) -> Optional[Affine]:
    """Arithmetic with a constant that has one number for each channel."""
    values = [graph.value(source) for source in node.inputs]
    position = 0 if values[1] is not None else 1
    value, data = values[1 - position], node.inputs[position]
    if value is None or values[position] is not None or shapes.get(data.node) != shapes[node] or data.index:
        return None
    ndim = len(shapes[node])
    long = [axis + ndim - value.ndim for axis, length in enumerate(value.shape) if length > 1]
    if len(long) > 1:
        return None
    result = OPERANDS[node.kind](value.astype(np.float64).reshape(-1 if long else ()), position == 0)
    return None if result is None else Affine(data, *result, long[0] if long else 1)


def _batch_norm(graph: Graph, node: Node, ndim: int) -> Optional[Affine]:
    arrays = [graph.value(source) for source in node.inputs[1:]]
    if any(array is None for array in arrays) or node.attr("output_mean_var", False):
        return None
    gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays)  # type: ignore[union-attr]
    if node.attr("fix_gamma", True):
        gamma = np.ones_like(gamma)
    scale = gamma / np.sqrt(variance + node.attr("eps", 1e-3))
    axis = node.attr("axis", 1) if node.op == "BatchNorm" else 1
    return Affine(node.inputs[0], scale, beta - mean * scale, axis % ndim)


def _linear_before(users: dict, shapes: dict, folded: dict, affine: Affine) -> Tuple[Optional[Node], int]:
    """The linear node before movements and what was `folded`, if each of them is used once, and the position of the
    axis in its output."""
    data, axis = affine.data, affine.axis
    while data.index == 0 and len(users[data.node]) == 1 and data.node in shapes:
        node = data.node
        if node.op in LINEAR:
            return node, axis
        if data in folded:
            data = folded[data]
            continue
        moved = sinking.movement(node, shapes)
        before = None if moved is None else moved.before(axis)
        if before is None:
            break
        data, axis = node.inputs[0], before
    return None, axis


def _channel_axis(producer: Node, shapes: dict) -> int:
    last = producer.op == "FullyConnected" or not is_channels_first(producer)
    return len(shapes[producer]) - 1 if last else 1


def _fold_into(graph: Graph, producer: Node, affine: Affine, along_channels: bool) -> bool:
    """Fold into the parameters, if they are known and the scale and shift are per output channel; whether it was
    done."""
    weight, *rest = (graph.value(source) for source in producer.inputs[1:])
    if weight is None or any(bias is None for bias in rest):
        return False
    if not along_channels and (affine.scale.ndim or affine.shift.ndim):
        return False
    channels = int(producer.attr("num_hidden" if producer.op == "FullyConnected" else "num_filter"))
    scale, shift = np.broadcast_to(affine.scale, channels), np.broadcast_to(affine.shift, channels)
    bias = rest[0].astype(np.float64) if rest else np.zeros(channels)
    folded = {"weight": _scaled(producer, weight.astype(np.float64), scale).astype(weight.dtype)}
    if rest or shift.any():
        folded["bias"] = (bias * scale + shift).astype(weight.dtype)
    if not all(np.isfinite(value).all() for value in folded.values()):
        return False
    producer.attrs["no_bias"] = str("bias" not in folded)
    producer.inputs[1:] = [graph.constant(f"{producer.name}_{name}", value) for name, value in folded.items()]
    return True


def _scaled(producer: Node, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The weight with every output channel scaled. Output channels are its first axis; for a Deconvolution, whose
    weight is (I, O/groups, *k), the second one in each group, or with channels last, (I, *k, O/groups), the last
    one."""
    if producer.op != "Deconvolution":
        return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    if not is_channels_first(producer):
        return weight * scale  # mxsame builds none with several groups and channels last
    groups = int(producer.attr("num_group", 1))
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return (grouped * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)
