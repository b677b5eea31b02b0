"""Batch norms, and other scales and shifts of each channel, folded into the convolution or dense layer before them.

A batch norm at inference is y = (x - mean) / sqrt(variance + eps) * gamma + beta (Ioffe and Szegedy 2015,
algorithm 2, step 11), so with scale = gamma / sqrt(variance + eps) it is y = scale * x + (beta - mean * scale). If x is
W a + b, that is a layer with W' = scale * W and b' = scale * b + shift. All of it is computed in float64.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from mxsame import onednn_blocks
from mxsame.rewriting import transposes
from mxsame.rewriting.graph import Graph, Node, Output, Shapes, Users, operator
from mxsame.rewriting.operators import depthwise_attributes
from mxsame.rewriting.windows import is_channels_first

MAX_MEAN = 30  # |mean| in standard deviations; beyond it, folding would lose digits
LINEAR = ("Convolution", "Deconvolution", "FullyConnected")
AFFINE_OPERATORS: Dict[
    str, Callable[..., Any]
] = {  # kind -> (scale, shift) of a constant, and whether it is the second operand
    "multiply": lambda value, second: (value, np.float64(0)),
    "add": lambda value, second: (np.float64(1), value),
    "subtract": lambda value, second: (np.float64(1), -value) if second else (np.float64(-1), value),
    "divide": lambda value, second: (1 / value, np.float64(0)) if second else None,
}
AFFINE_SCALARS = {f"{form}{kind}_scalar": (kind, not form) for kind in AFFINE_OPERATORS for form in ("", "r")}


class Affine(NamedTuple):
    """scale * data + shift, per channel along `axis`; `axis` is None if both are scalars."""

    data: Output
    scale: Any  # a number for each channel, or a scalar
    shift: Any
    axis: Optional[int] = None


# -- into layers


def fold(graph: Graph) -> None:
    """Fold every scale and shift into the convolution or dense layer before it, if nothing else uses its output. There
    may be transposes and slices between them."""
    shapes, users = graph.shapes(), graph.users()
    folded: Dict[Output, Output] = {}
    with np.errstate(all="ignore"):  # values that are not finite are not folded
        for node in users:
            affine = _as_affine(graph, node, shapes)
            layer, axis = (None, None) if affine is None else _linear_before(users, shapes, folded, affine)
            if affine and layer and _fold_into(graph, layer, affine, axis == _channel_axis(layer, shapes)):
                folded[Output(node)] = affine.data
    graph.replace(folded)


def _linear_before(
    users: Users, shapes: Shapes, folded: Dict[Output, Output], affine: Affine
) -> Tuple[Optional[Node], Optional[int]]:
    """Returns the linear layer before transposes, slices and what is `folded`, if each of them is used once, and the
    position of the axis in the layer's output. The layer is None if there is no such layer."""
    data, axis = affine.data, affine.axis
    while data.index == 0 and len(users[data.node]) == 1 and data.node in shapes:
        node = data.node
        if node.op in LINEAR:
            return node, axis
        if data in folded:
            data = folded[data]
            continue
        moved = transposes.rearrangement(node, shapes)
        if moved is None or axis in moved.sliced:
            break
        data, axis = node.inputs[0], None if axis is None else moved.axes[axis]
    return None, axis


def _channel_axis(layer: Node, shapes: Shapes) -> int:
    """Returns the axis of a layer's output that has its channels."""
    last = layer.op == "FullyConnected" or not is_channels_first(layer)
    return len(shapes[layer]) - 1 if last else 1


def _fold_into(graph: Graph, layer: Node, affine: Affine, along_channels: bool) -> bool:
    """Fold a scale and shift into the parameters of a layer, and return whether that was possible: the parameters must
    be known, and the scale and shift must be scalars or `along_channels`."""
    arrays: List[Any] = [graph.value(source) for source in layer.inputs[1:]]
    weight, *rest = arrays
    if any(array is None for array in arrays):
        return False
    if not along_channels and (affine.scale.ndim or affine.shift.ndim):
        return False
    channels = int(layer.attr("num_hidden" if layer.op == "FullyConnected" else "num_filter"))
    scale, shift = np.broadcast_to(affine.scale, channels), np.broadcast_to(affine.shift, channels)
    bias = rest[0].astype(np.float64) if rest else np.zeros(channels)
    folded = {"weight": _scaled_weight(layer, weight.astype(np.float64), scale).astype(weight.dtype)}
    if rest or shift.any():
        folded["bias"] = (bias * scale + shift).astype(weight.dtype)
    if not all(np.isfinite(value).all() for value in folded.values()):
        return False
    layer.attrs["no_bias"] = str("bias" not in folded)
    layer.inputs[1:] = [graph.constant(f"{layer.name}_{name}", value) for name, value in folded.items()]
    return True


def _scaled_weight(layer: Node, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    r"""Returns the weight with every output channel scaled. The output channels are the first axis; of a Deconvolution
    the second, (I, O/groups, \*k), in each group, or with channels last, (I, \*k, O/groups), the last axis."""
    if layer.op != "Deconvolution":
        return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    if not is_channels_first(layer):
        return weight * scale  # mxsame builds none with several groups and channels last
    groups = int(layer.attr("num_group", 1))
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return (grouped * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)


# -- as scales and shifts


def _as_affine(graph: Graph, node: Node, shapes: Shapes) -> Optional[Affine]:
    """Returns an operator as a scale and shift, None if it is none."""
    if node.kind in AFFINE_SCALARS:
        kind, second = AFFINE_SCALARS[node.kind]
        result = AFFINE_OPERATORS[kind](np.float64(node.attr("scalar")), second)
        return None if result is None else Affine(node.inputs[0], *result)
    if node not in shapes:
        return None
    if node.kind == "batch_norm":
        return _batch_norm(graph, node, len(shapes[node]))
    return _arithmetic(graph, node, shapes) if node.kind in AFFINE_OPERATORS else None


def _arithmetic(graph: Graph, node: Node, shapes: Shapes) -> Optional[Affine]:
    """Returns arithmetic with a constant, which has one number for each channel, as a scale and shift."""
    values = [graph.value(source) for source in node.inputs]
    position = 0 if values[1] is not None else 1
    value, data = values[1 - position], node.inputs[position]
    if value is None or values[position] is not None or shapes.get(data.node) != shapes[node] or data.index:
        return None
    ndim = len(shapes[node])
    long = [axis + ndim - value.ndim for axis, length in enumerate(value.shape) if length > 1]
    if len(long) > 1:
        return None
    result = AFFINE_OPERATORS[node.kind](value.astype(np.float64).reshape(-1 if long else ()), position == 0)
    return None if result is None else Affine(data, result[0], result[1], long[0] if long else None)


def _batch_norm(graph: Graph, node: Node, ndim: int) -> Optional[Affine]:
    """Returns a batch norm as a scale and shift, if its statistics are known and are not outputs themselves."""
    arrays: List[Any] = [graph.value(source) for source in node.inputs[1:]]
    if any(array is None for array in arrays) or node.attr("output_mean_var", False):
        return None
    gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays)
    if node.attr("fix_gamma", True):
        gamma = np.ones_like(gamma)
    scale = gamma / np.sqrt(variance + node.attr("eps", 1e-3))
    axis = node.attr("axis", 1) if node.op == "BatchNorm" else 1
    return Affine(node.inputs[0], scale, beta - mean * scale, axis % ndim)


# -- as convolutions


def write_as_convolutions(graph: Graph) -> None:
    """Write the remaining batch norms of images as depthwise 1x1 convolutions; likewise any other scale and shift of
    data in the blocked layout, and operators that would leave that layout.

    oneDNN runs such a convolution in its blocks, as one step with the activation or addition after it: DenseNet-121
    takes 0.93 of the time. This is for float32 only, since MXNet's own depthwise convolution is slow.
    """
    shapes, users, replaced = graph.shapes(), graph.users(), {}
    for node in users:
        if len(shapes.get(node, ())) != 4:
            continue
        with np.errstate(all="ignore"):
            affine = _as_affine(graph, node, shapes)
        if node.op == "Deconvolution":
            replaced.update(_split_bias(graph, node, shapes, users))
        elif affine is None:
            _keep_in_blocks(graph, node, shapes, users)
        elif affine.axis in (1, None) and (node.kind == "batch_norm" or _is_in_blocks(affine.data, shapes)):
            scale, shift = (np.broadcast_to(each, shapes[node][1]).astype(np.float32) for each in affine[1:3])
            if not np.isfinite([scale, shift]).all() or _has_far_mean(graph, node, affine.scale):
                continue
            if _fold_into_convolution(graph, affine, users):
                replaced[Output(node)] = affine.data
            else:
                _become_convolution(graph, node, affine.data, scale, shift)
    graph.replace(replaced)


def _split_bias(graph: Graph, node: Node, shapes: Shapes, users: Users) -> Dict[Output, Output]:
    """Let a depthwise 1x1 convolution add the bias of a Deconvolution, which takes the Deconvolution longer than its
    products, after the slices of its output. Returns the output that the new convolution replaces."""
    *_, bias = map(graph.value, node.inputs)
    if len(node.inputs) < 3 or bias is None or not is_channels_first(node) or len(bias) < onednn_blocks.MIN_BLOCK:
        return {}
    after, user = node, users[node][0].node
    while len(users[after]) == 1 and user is not None and user.op == "slice":
        after, user = user, users[user][0].node
    if shapes[after][1] != len(bias):
        return {}
    node.inputs.pop()
    node.attrs["no_bias"] = "True"
    return {Output(after): _convolution(graph, f"{node.name}_with_bias", Output(after), np.ones_like(bias), bias)}


def _keep_in_blocks(graph: Graph, node: Node, shapes: Shapes, users: Users) -> None:
    """Keep an operator on blocked data in the blocked layout, by convolving its data: a ReLU of a
    convolution that others use, a difference from a convolution, and PReLU."""
    data = node.inputs[0] if node.inputs else None
    if data is None or not _is_in_blocks(data, shapes):
        return
    ones = np.ones(shapes[node][1], np.float32)
    if node.op == "clip" or node.is_activation("relu"):
        # The ReLU runs in place, so MXNet would copy the convolution's output for its other users.
        if data.node.op == "Convolution" and len(users[data.node]) > 1:
            node.inputs[0] = _convolution(graph, f"{node.name}_data", data, ones, 0 * ones)
    elif node.kind == "subtract" and graph.have_same_shape(node.inputs):
        if _fold_into_convolution(graph, Affine(node.inputs[1], np.float64(-1), np.float64(0)), users):
            node.op = "elemwise_add"
    elif node.op == "LeakyReLU" and node.attr("act_type") == "prelu":
        slope = graph.value(node.inputs[1])
        if slope is not None and slope.size in (1, ones.size) and np.isfinite(slope).all():
            _sum_relus(graph, node, slope.ravel() * ones)


def _sum_relus(graph: Graph, node: Node, slope: np.ndarray) -> None:
    """Write PReLU as relu(x) - slope * relu(-x)."""

    def relu(name: str, scale: np.ndarray) -> Output:
        scaled = _convolution(graph, f"{node.name}_{name}", node.inputs[0], scale, 0 * scale)
        return operator("Activation", f"{scaled.node.name}_relu", scaled, act_type="relu")

    above, below = relu("above", np.ones_like(slope)), relu("below", -np.ones_like(slope))
    node.become("elemwise_add", _convolution(graph, f"{node.name}_scaled", below, -slope, 0 * slope), above)


def _is_in_blocks(source: Output, shapes: Shapes) -> bool:
    """Returns whether an array is in the blocks of a convolution."""
    is_wide = shapes.get(source.node, ())[1:2] >= (onednn_blocks.MIN_BLOCK,)
    while source.node.op in onednn_blocks.KEEP_DEPLOYED:
        source = source.node.inputs[0]
    return is_wide and source.node.op == "Convolution" and is_channels_first(source.node)


def _has_far_mean(graph: Graph, node: Node, scale: np.ndarray) -> bool:
    """Returns whether the mean of a batch norm is so far from zero that scale * x + shift would lose digits that
    x - mean keeps."""
    if node.kind != "batch_norm":
        return False
    arrays: List[Any] = [graph.value(source) for source in node.inputs[2:]]
    beta, mean, variance = (array.astype(np.float64) for array in arrays)
    size = np.maximum(np.abs(scale) * np.sqrt(variance), np.abs(beta))
    return bool((np.abs(mean * scale) > MAX_MEAN * size).any())


def _fold_into_convolution(graph: Graph, affine: Affine, users: Users) -> bool:
    """Fold a scale and shift of each channel into the convolution directly before, if nothing else uses that; return
    whether that was possible."""
    before = affine.data.node
    return before.op == "Convolution" and len(users[before]) == 1 and _fold_into(graph, before, affine, True)


def _convolution(graph: Graph, name: str, data: Output, scale: np.ndarray, shift: np.ndarray) -> Output:
    """Returns scale * data + shift, as a depthwise 1x1 convolution."""
    node = Node("Convolution", name)
    _become_convolution(graph, node, data, scale, shift)
    return Output(node)


def _become_convolution(graph: Graph, node: Node, data: Output, scale: np.ndarray, shift: np.ndarray) -> None:
    """Make an operator scale * data + shift, as a depthwise 1x1 convolution."""
    parameters = [graph.constant(f"{node.name}_weight", scale.reshape(-1, 1, 1, 1))]
    if np.any(shift):
        parameters.append(graph.constant(f"{node.name}_bias", shift))
    attributes = depthwise_attributes(scale.size, (1, 1), no_bias=len(parameters) < 2)
    node.become("Convolution", data, *parameters, **attributes)
