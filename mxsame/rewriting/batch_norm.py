"""Folds batch norms, and other scales and shifts of each channel, into the convolution or dense layer before them.

A batch norm at inference is y = (x - mean) / sqrt(variance + eps) * gamma + beta (Ioffe and Szegedy 2015,
algorithm 2, step 11), so with scale = gamma / sqrt(variance + eps) it is y = scale * x + (beta - mean * scale). If x is
W a + b, y is the output of a layer with W' = scale * W and b' = scale * b + shift. W' and b' are computed in float64.
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
# kind -> a function from (constant, whether it is the second operand) to (scale, shift)
AFFINE_OPERATORS: Dict[str, Callable[..., Any]] = {
    "multiply": lambda value, is_second: (value, np.float64(0)),
    "add": lambda value, is_second: (np.float64(1), value),
    "subtract": lambda value, is_second: (np.float64(1), -value) if is_second else (np.float64(-1), value),
    "divide": lambda value, is_second: (1 / value, np.float64(0)) if is_second else None,
}
# kind of an operator with a scalar -> (kind in `AFFINE_OPERATORS`, whether the scalar is the second operand)
AFFINE_SCALARS = {f"{prefix}{kind}_scalar": (kind, not prefix) for kind in AFFINE_OPERATORS for prefix in ("", "r")}


class Affine(NamedTuple):
    """scale * data + shift, per channel along `axis`; `axis` is None if both are scalars."""

    data: Output
    scale: Any  # a number for each channel, or a scalar
    shift: Any
    axis: Optional[int] = None


# -- fold into layers


def fold(graph: Graph) -> None:
    """Fold every scale and shift into the convolution or dense layer before it, unless the layer has other users.
    There may be transposes and slices between the two."""
    shapes, users = graph.shapes(), graph.users()
    folded: Dict[Output, Output] = {}
    with np.errstate(all="ignore"):  # `_fold_into` refuses values that are not finite
        for node in users:
            affine = _as_affine(graph, node, shapes)
            layer, axis = (None, None) if affine is None else _linear_before(users, shapes, folded, affine)
            if affine and layer and _fold_into(graph, layer, affine, axis == _channel_axis(layer, shapes)):
                folded[Output(node)] = affine.data
    graph.replace(folded)


def _linear_before(
    users: Users, shapes: Shapes, folded: Dict[Output, Output], affine: Affine
) -> Tuple[Optional[Node], Optional[int]]:
    """Returns the linear layer that computes the data of `affine`, and the position of its axis in the layer's output.
    Transposes, slices and `folded` operators may come after the layer; each has one user. The layer is None if there is
    no such layer."""
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
    """Returns the channel axis of a layer's output."""
    is_channels_last = layer.op == "FullyConnected" or not is_channels_first(layer)
    return len(shapes[layer]) - 1 if is_channels_last else 1


def _fold_into(graph: Graph, layer: Node, affine: Affine, is_per_channel: bool) -> bool:
    """Fold a scale and shift into the weight and bias of a layer, and return whether that was possible: both must be
    known, and the scale and shift must be scalars unless `is_per_channel`."""
    arrays: List[Any] = [graph.value(source) for source in layer.inputs[1:]]
    weight, *biases = arrays
    if any(array is None for array in arrays):
        return False
    if not is_per_channel and (affine.scale.ndim or affine.shift.ndim):
        return False
    channels = int(layer.attr("num_hidden" if layer.op == "FullyConnected" else "num_filter"))
    scale, shift = np.broadcast_to(affine.scale, channels), np.broadcast_to(affine.shift, channels)
    bias = biases[0].astype(np.float64) if biases else np.zeros(channels)
    folded = {"weight": _scaled_weight(layer, weight.astype(np.float64), scale).astype(weight.dtype)}
    if biases or shift.any():
        folded["bias"] = (bias * scale + shift).astype(weight.dtype)
    if not all(np.isfinite(value).all() for value in folded.values()):
        return False
    layer.attrs["no_bias"] = str("bias" not in folded)
    layer.inputs[1:] = [graph.constant(f"{layer.name}_{name}", value) for name, value in folded.items()]
    return True


def _scaled_weight(layer: Node, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    r"""Returns the weight with every output channel scaled. The output channels are its first axis. The weight of a
    Deconvolution is (I, O/groups, \*k), with the groups along I, or with channels last (I, \*k, O/groups)."""
    if layer.op != "Deconvolution":
        return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    if not is_channels_first(layer):
        return weight * scale  # mxsame builds no such Deconvolution with groups
    groups = int(layer.attr("num_group", 1))
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return (grouped * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)


# -- read operators as scales and shifts


def _as_affine(graph: Graph, node: Node, shapes: Shapes) -> Optional[Affine]:
    """Returns the scale and shift that an operator computes; None if it computes anything else."""
    if node.kind in AFFINE_SCALARS:
        kind, is_second = AFFINE_SCALARS[node.kind]
        result = AFFINE_OPERATORS[kind](np.float64(node.attr("scalar")), is_second)
        return None if result is None else Affine(node.inputs[0], *result)
    if node not in shapes:
        return None
    if node.kind == "batch_norm":
        return _batch_norm_as_affine(graph, node, len(shapes[node]))
    return _arithmetic_as_affine(graph, node, shapes) if node.kind in AFFINE_OPERATORS else None


def _arithmetic_as_affine(graph: Graph, node: Node, shapes: Shapes) -> Optional[Affine]:
    """Returns the scale and shift of arithmetic with a constant, which is a scalar or has one number per channel."""
    values = [graph.value(source) for source in node.inputs]
    position = 0 if values[1] is not None else 1
    value, data = values[1 - position], node.inputs[position]
    if value is None or values[position] is not None or shapes.get(data.node) != shapes[node] or data.index:
        return None
    ndim = len(shapes[node])
    axes = [axis + ndim - value.ndim for axis, length in enumerate(value.shape) if length > 1]
    if len(axes) > 1:
        return None
    result = AFFINE_OPERATORS[node.kind](value.astype(np.float64).reshape(-1 if axes else ()), position == 0)
    return None if result is None else Affine(data, result[0], result[1], axes[0] if axes else None)


def _batch_norm_as_affine(graph: Graph, node: Node, ndim: int) -> Optional[Affine]:
    """Returns the scale and shift of a batch norm; None if it returns its statistics, too, or they are not known."""
    arrays: List[Any] = [graph.value(source) for source in node.inputs[1:]]
    if any(array is None for array in arrays) or node.attr("output_mean_var", False):
        return None
    gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays)
    if node.attr("fix_gamma", True):
        gamma = np.ones_like(gamma)
    scale = gamma / np.sqrt(variance + node.attr("eps", 1e-3))
    axis = node.attr("axis", 1) if node.op == "BatchNorm" else 1
    return Affine(node.inputs[0], scale, beta - mean * scale, axis % ndim)


# -- write as convolutions


def write_as_convolutions(graph: Graph) -> None:
    """Write the remaining batch norms of images as depthwise 1x1 convolutions. Do the same to any other scale and shift
    of blocked data, and to operators that would copy blocked data to the plain layout.

    oneDNN runs such a convolution on blocks, fused with the activation or addition after it: DenseNet-121 takes 0.93 of
    the time. This pass is for float32 only: for other types MXNet runs its own depthwise convolution, which is slow.
    """
    shapes, users, replaced = graph.shapes(), graph.users(), {}
    for node in users:
        if len(shapes.get(node, ())) != 4:
            continue
        with np.errstate(all="ignore"):
            affine = _as_affine(graph, node, shapes)
        if node.op == "Deconvolution":
            replaced.update(_add_bias_by_convolution(graph, node, shapes, users))
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


def _add_bias_by_convolution(graph: Graph, node: Node, shapes: Shapes, users: Users) -> Dict[Output, Output]:
    """Let a depthwise 1x1 convolution after the slices of a Deconvolution's output add the bias, since adding it takes
    the Deconvolution longer than multiplying. Returns the replaced output and the new one, as a dict."""
    *_, bias = map(graph.value, node.inputs)
    if len(node.inputs) < 3 or bias is None or not is_channels_first(node) or len(bias) < onednn_blocks.MIN_BLOCK:
        return {}
    end, user = node, users[node][0].node
    while len(users[end]) == 1 and user is not None and user.op == "slice":
        end, user = user, users[user][0].node
    if shapes[end][1] != len(bias):
        return {}
    node.inputs.pop()
    node.attrs["no_bias"] = "True"
    return {Output(end): _convolution(graph, f"{node.name}_with_bias", Output(end), np.ones_like(bias), bias)}


def _keep_in_blocks(graph: Graph, node: Node, shapes: Shapes, users: Users) -> None:
    """Use 1x1 convolutions where an operator would copy blocked data to the plain layout: a ReLU of a convolution with
    other users, the subtraction of a convolution, and PReLU."""
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
    """Returns whether an array has the blocked layout of a convolution's output."""
    has_full_block = shapes.get(source.node, ())[1:2] >= (onednn_blocks.MIN_BLOCK,)
    while source.node.op in onednn_blocks.KEEP_DEPLOYED:
        source = source.node.inputs[0]
    return has_full_block and source.node.op == "Convolution" and is_channels_first(source.node)


def _has_far_mean(graph: Graph, node: Node, scale: np.ndarray) -> bool:
    """Returns whether the mean of a batch norm is so far from zero that scale * x + shift would lose digits that
    x - mean keeps."""
    if node.kind != "batch_norm":
        return False
    arrays: List[Any] = [graph.value(source) for source in node.inputs[2:]]
    beta, mean, variance = (array.astype(np.float64) for array in arrays)
    magnitude = np.maximum(np.abs(scale) * np.sqrt(variance), np.abs(beta))
    return bool((np.abs(mean * scale) > MAX_MEAN * magnitude).any())


def _fold_into_convolution(graph: Graph, affine: Affine, users: Users) -> bool:
    """Fold a scale and shift of each channel into the convolution directly before it, unless that has other users;
    return whether that was possible."""
    layer = affine.data.node
    return layer.op == "Convolution" and len(users[layer]) == 1 and _fold_into(graph, layer, affine, True)


def _convolution(graph: Graph, name: str, data: Output, scale: np.ndarray, shift: np.ndarray) -> Output:
    """Returns scale * data + shift, as a depthwise 1x1 convolution."""
    node = Node("Convolution", name)
    _become_convolution(graph, node, data, scale, shift)
    return Output(node)


def _become_convolution(graph: Graph, node: Node, data: Output, scale: np.ndarray, shift: np.ndarray) -> None:
    """Turn an operator into a depthwise 1x1 convolution that computes scale * data + shift."""
    parameters = [graph.constant(f"{node.name}_weight", scale.reshape(-1, 1, 1, 1))]
    if np.any(shift):
        parameters.append(graph.constant(f"{node.name}_bias", shift))
    attributes = depthwise_attributes(scale.size, (1, 1), no_bias=len(parameters) < 2)
    node.become("Convolution", data, *parameters, **attributes)
