"""Reads for emitters: a node's axes, indices and bounds, its windows, and the packed parameters of an RNN."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame.exporting.writer import GraphWriter
from mxsame.plan.windows import AnyWindow, check_static
from mxsame.rewriting.graph import Node, entries
from mxsame.rewriting.windows import has_windows, is_channels_first, windows_of
from mxsame.validation import check


def axes_of(w: GraphWriter, node: Node, name: str = "axis") -> List[int]:
    """Returns the axes of an attribute, counted from 0: all axes for None, and all others with `exclude`."""
    attribute, all_axes = entries(node.attr(name)), range(ndim_of(w, node))
    axes = [axis % len(all_axes) for axis in attribute] or list(all_axes)
    return [axis for axis in all_axes if axis not in axes] if attribute and node.attr("exclude") else axes


def ndim_of(w: GraphWriter, node: Node) -> int:
    """Returns the number of axes of a node's data."""
    return len(w.shape(node.inputs[0]))


def axis_of(w: GraphWriter, node: Node) -> int:
    """Returns the attribute `axis` of a node, counted from 0."""
    axis = node.attr("axis")
    check(axis is not None, f"axis must be given: {w.format} does not flatten the data", axis=None)
    return int(axis) % ndim_of(w, node)


def bounds_of(node: Node) -> Tuple[float, float]:
    """Returns the bounds of a clip, rounded to float32. Raises if a_min is above a_max: then MXNet and the formats
    compute different values."""
    bounds = (node.attr("a_min", -math.inf), node.attr("a_max", math.inf))
    low, high = (float(np.float32(bound)) for bound in bounds)
    check(low <= high, "a_min must be at most a_max", a_min=low, a_max=high)
    return low, high


class TopK(NamedTuple):
    """The arguments of an operator that returns the `length` largest (or smallest) elements along an axis, in order.
    `returns` is "value", "indices" (their positions), "both" or "mask" (1 at their positions)."""

    axis: int
    length: int
    largest: bool
    returns: str


def top_k_of(w: GraphWriter, node: Node) -> TopK:
    """Returns the arguments of a `topk`, or of a `sort` or an `argsort`, which return every element."""
    axis = axis_of(w, node)
    (length,) = w.static(node.inputs[0], f"the axis of {node.op}", [axis])
    count = node.attr("k") if node.op == "topk" else 0
    count = min(count, length) if count > 0 else length
    returns = "value" if node.op == "sort" else node.attr("ret_typ", "indices")
    return TopK(axis, count, not node.attr("is_ascend"), returns)


def wraps(node: Node) -> bool:
    """Returns whether indices wrap around; otherwise they are clipped."""
    mode = node.attr("mode")
    check(mode in ("clip", "wrap"), "mode must be clip or wrap", mode=mode)
    return bool(mode == "wrap")


def indices_in(node: Node, indices: np.ndarray, length: int) -> np.ndarray:
    """Returns constant indices, which MXNet stores as floats, as integers from 0 to `length` - 1."""
    rows: np.ndarray = indices.astype(np.int64)
    return rows % length if wraps(node) else np.clip(rows, 0, length - 1)


# -- patterns of attributes that an emitter need not read

IMPLIED_BY_SHAPES = "shape|newshape|size|axis|reverse|target_shape|keep_highest|[lr]hs_(begin|end|axes)"
# Those that `windows_at` reads.
WINDOW_ATTRIBUTES = "kernel|stride|dilate|pad|adj|target_shape|pooling_convention|p_value|count_include_pad"


def check_attribute(node: Node, name: str, required: Any) -> None:
    """Raises a `ValueError` unless an attribute has this value, or is not set."""
    value = node.attr(name, required)
    check(value == required, f"{name} must be {required}", **{name: value})


# -- windows


def windows_at(w: GraphWriter, node: Node) -> List[AnyWindow]:
    """Returns the windows of an operator, which include the pads and slices next to it. Their `size` is None if it is
    dynamic. For a global pooling operator, returns []."""
    check(is_channels_first(node), "layout must have channels first", layout=node.attr("layout"))
    if not has_windows(node):
        return []
    lengths = w.shape(node.inputs[0])[2:]
    if node.op == "Pooling":
        validation.one_of("pooling_convention", node.attr("pooling_convention"), ("valid", "full"))
    windows = windows_of(node, [length.traced for length in lengths])
    if node.op == "Pooling":
        check_static(tuple(windows), pool=True)
    if node.op == "Deconvolution" and node.windows is None:
        if any(node.attr("target_shape")):
            w.check_static(lengths, "target_shape must not be given for dynamic sizes: use pad and adj")
        is_wrong = any(window.dilation > 1 < window.stride for window in windows)
        rule = "a Deconvolution must not have both stride and dilation above 1, for which MXNet computes wrong values"
        check(not is_wrong, rule)
    return [replace(window, size=window.size if n.is_static else None) for window, n in zip(windows, lengths)]


def kernels_strides_dilations(windows: Sequence[AnyWindow]) -> List[List[int]]:
    """Returns the kernel sizes, the strides and the dilations of windows."""
    return [[getattr(each, name) for each in windows] for name in ("kernel_size", "stride", "dilation")]


def nearest_scale(node: Node) -> int:
    """Returns the factor of an UpSampling, which must repeat elements."""
    check_attribute(node, "sample_type", "nearest")
    check(len(node.inputs) == 1, "data must be one array", inputs=len(node.inputs))
    return node.attr("scale")


def average_factors(windows: Sequence[Any], counts_padding: bool) -> Optional[np.ndarray]:
    """Returns the factors that turn averages over whole kernels into MXNet's; None if all are 1. MXNet counts the
    elements of the data, with `counts_padding` also those of the padding, but never those that a window reads beyond
    the padding."""
    scale = np.ones(())
    for window in windows:
        low, high = window.padding if counts_padding else (0, 0)
        starts = np.arange(window.outputs(window.size)) * window.stride - window.pads(window.size)[0]
        counted = np.minimum(starts + window.kernel_size, window.size + high) - np.maximum(starts, -low)
        scale = scale[..., None] * (window.kernel_size / counted)
    return None if (scale == 1).all() else scale


# -- the packed parameters of an RNN operator


def recurrent_layers(w: GraphWriter, node: Node, gates: Sequence[int]) -> Iterator[List[np.ndarray]]:
    """Yields, for each layer of an RNN, the input weights (D, G*H, C), the recurrent weights (D, G*H, H) and both
    biases (D, 2*G*H), for D directions and G gates of H elements. `gates` has, for each returned gate, its position in
    MXNet's order. MXNet's vector has all weights, layer by layer and direction by direction, then all biases."""
    check_attribute(node, "projection_size", None)
    (channels,) = w.static(node.inputs[0], "the channels", [2])
    vector, size, directions = w.computed(node.inputs[1]), node.attr("state_size"), 1 + node.attr("bidirectional")
    height = len(gates) * size

    def next_weights(*shape: int) -> Any:
        nonlocal vector
        count = int(np.prod(shape))
        array, vector = vector[:count].reshape(len(gates), size, *shape[1:]), vector[count:]
        return array[list(gates)].reshape(shape)

    weights = []
    for number in range(node.attr("num_layers")):
        width = channels if number == 0 else directions * size
        pairs = [(next_weights(height, width), next_weights(height, size)) for _ in range(directions)]
        weights.append([np.stack(arrays) for arrays in zip(*pairs)])
    for weight, recurrence in weights:
        biases = [np.concatenate([next_weights(height), next_weights(height)]) for _ in range(directions)]
        yield [weight, recurrence, np.stack(biases)]
