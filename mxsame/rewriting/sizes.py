"""Specializes a graph of dynamic shape to the size of its inputs: everything computed from shapes becomes a constant.

Layers of dynamic shape compute indices from the shape of their data, and gather the elements of their windows;
or they run on flipped data, so that the extra padding element is at the end. With a static size, the indices are
constants, a gather that repeats the edges is an edge pad, and an operator on flipped data is one with swapped pads on
the original data. Other formats have these operators, but MXNet does not run them: see :mod:`mxsame.rewriting.windows`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Mapping, Optional, Set, Tuple

import numpy as np

from mxsame.rewriting.constants import is_pure
from mxsame.rewriting.graph import Graph, Node, Output, Shape, Shapes, Users, entries, operator
from mxsame.rewriting.transposes import merge
from mxsame.rewriting.windows import has_windows, is_channels_first, windows_of

SHAPE_OPERATORS = ("shape_array", "size_array", "_contrib_arange_like")  # they read the shape of their data only


def specialize(graph: Graph, dtypes: Mapping[str, Any]) -> None:
    """Specialize a graph to the sizes of its inputs, which have these dtypes, for any batch size."""
    if any(node.op in SHAPE_OPERATORS for node in graph.nodes()):
        _fold_shapes(graph, dtypes)
        shapes = graph.shapes()
        for node in graph.nodes():
            if node.op == "take":
                _write_gather_as_pad(graph, node, shapes)
        shapes = graph.shapes()
        for node in graph.nodes():
            if node.op == "transpose":
                merge(node, shapes)
    on_flipped_data = [node for node in graph.nodes() if has_windows(node) and _flipped_axes(node.inputs[0].node)]
    shapes, users = (graph.shapes(), graph.users()) if on_flipped_data else ({}, {})
    for node in on_flipped_data:
        if is_channels_first(node) and node.windows is None:
            _unflip(graph, node, shapes, users)


def _fold_shapes(graph: Graph, dtypes: Mapping[str, Any]) -> None:
    """Replace outputs that are computed from shapes by constants, unless they depend on the batch size."""
    from_shapes: Set[Node] = set()
    parameters = {node for node in graph.nodes() if node.op == "null" and node.name in graph.values}
    for node in graph.nodes():
        sources = {source for source, _ in node.inputs}
        is_from_shapes = is_pure(node) and sources & from_shapes and sources <= from_shapes | parameters
        if node.op in SHAPE_OPERATORS or is_from_shapes:
            from_shapes.add(node)
    used = [source for node in graph.nodes() if node not in from_shapes for source in node.inputs]
    needed = [each for each in dict.fromkeys(used + graph.outputs) if each.node in from_shapes]
    shapes = ({name: (shape[0] + more, *shape[1:]) for name, shape in graph.inputs.items()} for more in (0, 1))
    data = ({name: np.zeros(shape, dtypes[name]) for name, shape in each.items()} for each in shapes)
    values = zip(needed, *(graph.run(needed, each) for each in data))  # with two batch sizes
    same = {each: value for each, value, other in values if value.shape == other.shape and (value == other).all()}
    graph.replace({each: graph.constant(f"{each.node.name}_value", value) for each, value in same.items()})


def _write_gather_as_pad(graph: Graph, node: Node, shapes: Shapes) -> None:
    """Write a `take` that repeats the edges of an axis, and may crop it, as a slice and a pad operator. These come
    before the transposes of the data, so that they run along a spatial axis."""
    data, positions = node.inputs[0], graph.value(node.inputs[1])
    shape = shapes.get(data.node, ())
    range_and_pads = _range_and_pads(node, positions, shape) if positions is not None and len(shape) in (4, 5) else None
    if range_and_pads is None:
        return
    axis, transposes = node.attr("axis", 0) % len(shape), []
    while data.node.op == "transpose" and len(data.node.attr("axes", ())) == len(shape):
        transposes.append(data.node.attr("axes"))
        axis, data = transposes[-1][axis] % len(shape), data.node.inputs[0]
    if axis < 2:  # MXNet's pad operator accepts no pads of the batch and the channels
        return
    (begin, end), pads = range_and_pads
    widths = [0] * (2 * len(shape))
    if data.node.op == "Pad" and data.node.attr("mode") == "edge":  # it pads another axis
        widths, data = list(data.node.attr("pad_width")), data.node.inputs[0]
    widths[2 * axis : 2 * axis + 2] = pads
    if begin or end != shape[node.attr("axis", 0)]:
        data = operator("slice_axis", f"{node.name}_slice", data, axis=axis, begin=begin, end=end)
    if any(widths):
        data = operator("Pad", f"{node.name}_pad", data, mode="edge", pad_width=tuple(widths))
    for number, axes in enumerate(reversed(transposes)):
        data = operator("transpose", f"{node.name}_transpose{number}", data, axes=tuple(axes))
    graph.replace({Output(node): data})


def _range_and_pads(node: Node, positions: np.ndarray, shape: Shape) -> Optional[Tuple[Tuple[int, int], List[int]]]:
    """Returns the (begin, end) of the elements that a `take` selects, and how often it repeats the first and the last
    of them; None if the positions have another form."""
    if positions.ndim != 1 or node.attr("mode", "clip") != "clip":
        return None
    length = shape[node.attr("axis", 0) % len(shape)]
    clipped = np.clip(positions, 0, length - 1).astype(int)
    begin, end = int(clipped[0]), int(clipped[-1]) + 1
    pads = [int((clipped == begin).sum()) - 1, int((clipped == end - 1).sum()) - 1]
    if end - begin < 1 or (begin == end - 1 and len(clipped) > 1):
        return None
    expected = np.clip(np.arange(begin - pads[0], end + pads[1]), begin, end - 1)
    return ((begin, end), pads) if np.array_equal(clipped, expected) else None


def _unflip(graph: Graph, node: Node, shapes: Shapes, users: Users) -> None:
    """Remove the flips around an operator.

    Its low pad p along an axis of n elements and m outputs becomes the high pad, and the low pad is then
    (m - 1) stride + kernel_size - n - p."""
    user = users[node][0].node if len(users[node]) == 1 else None
    data, weights = node.inputs[0], node.inputs[1:2]
    flipped = _flipped_axes(data.node)
    if not flipped or node.op == "Deconvolution" or user is None or _flipped_axes(user) != flipped:
        return
    if weights:
        weight = _without_copies(weights[0])
        if weight.node.op != "reverse" or {*entries(weight.node.attr("axis"))} != flipped:
            return
        weights = [_without_copies(weight.node.inputs[0])]
    windows: List[Any] = []
    for axis, window in enumerate(windows_of(node, shapes[data.node][2:]), 2):
        low, high = window.padding
        if axis in flipped:
            total = (shapes[node][axis] - 1) * window.stride + window.effective_kernel_size - window.size
            low, high = total - low, low
        windows.append(replace(window, padding=(low, high)))
    if all(min(window.padding) >= 0 and not window.ceil_mode for window in windows):
        node.windows = tuple(windows)
        node.inputs = [data.node.inputs[0], *weights, *node.inputs[2:]]
        graph.replace({Output(user): Output(node)})


def _flipped_axes(node: Node) -> Set[int]:
    """Returns the axes that a slice flips; an empty set for any other slice or operator."""
    bounds = [*entries(node.attr("begin")), *entries(node.attr("end"))]
    steps = entries(node.attr("step"))
    crops = any(bound is not None for bound in bounds)
    is_flip = node.op == "slice" and not crops and {*steps} <= {1, -1, None}
    return {axis for axis, step in enumerate(steps) if step == -1} if is_flip else set()


def _without_copies(output: Output) -> Output:
    """Returns the output that an identity, or several in a row, copies."""
    while output.node.kind == "identity":
        output = output.node.inputs[0]
    return output
