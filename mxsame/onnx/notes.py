"""Pads and crops of a graph from a file become windows, as those of mxsame's own operators are (`NOTE`)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, List, Optional, Sequence, Tuple

from mxsame.building import NOTE
from mxsame.onnx.windows import has_windows, windows
from mxsame.plan import TransposedWindow, Window
from mxsame.rewriting import Graph, Node, is_channels_first

SPATIAL = 2
Pairs = List[Tuple[int, int]]


def note(graph: Graph, dynamic_size: bool) -> None:
    """Note the windows of every operator that a pad operator stands before or a slice behind, and nothing else uses."""
    shapes = graph.shapes()
    for node in graph.nodes():
        if has_windows(node) and is_channels_first(node) and node.inputs[0].node in shapes:
            _note(graph, node, shapes, dynamic_size)


def _note(graph: Graph, node: Node, shapes: dict, dynamic_size: bool) -> None:
    users = graph.users()
    before, after = node.inputs[0].node, [user.node for user in users[node]]
    found: Any = windows(node, shapes[before][SPATIAL:])
    if NOTE in node.attrs and not _is_plain(node, found, [before, *after]):
        return
    beside: List[Node] = []
    if len(users[before]) == 1 and NOTE not in before.attrs:
        padded = _padded(before, node, found, shapes)
        if padded is not None:
            found, beside = padded, [before]
    if len(after) == 1 and after[0] is not None and NOTE not in after[0].attrs:
        cropped = _cropped(after[0], found, shapes[node], dynamic_size)
        if cropped is not None:
            found, beside = cropped, [*beside, after[0]]
    for each in [node, *beside] if beside else []:
        each.attrs[NOTE] = repr(list(map(asdict, found)))


def _is_plain(node: Node, found: Sequence[Any], neighbours: Sequence[Optional[Node]]) -> bool:
    """Whether a noted operator does all that its note says by itself, with pads that follow no rule."""
    if node.op == "Deconvolution" or any(window.follows_size for window in found):
        return False
    noted = [each for each in neighbours if each is not None and NOTE in each.attrs and not has_windows(each)]
    return all(each.attrs[NOTE] != node.attrs[NOTE] for each in noted)


def _padded(pad: Node, node: Node, found: Sequence[Any], shapes: dict) -> Optional[List[Window]]:
    """The windows on the data before a pad operator: zeros for convolutions and for averages that count them; for a
    maximum copies of the edge, which is in the same windows, and zeros next to data that are never negative."""
    if pad.op != "Pad" or node.op == "Deconvolution" or pad.inputs[0].node not in shapes:
        return None
    widths = pad.attr("pad_width")
    pairs = list(zip(widths[::2], widths[1::2]))
    zeros = pad.attr("mode") == "constant" and not float(pad.attr("constant_value", 0.0))
    if node.op == "Convolution":
        fits = zeros
    elif node.attr("pool_type", "max") == "max":
        edge = pad.attr("mode") == "edge" and not any(any(window.padding) for window in found)
        fits = edge or (zeros and _is_never_negative(pad.inputs[0].node))
    else:
        fits = zeros and node.attr("pool_type") == "avg" and str(node.attr("count_include_pad", True)) == "True"
    if not fits or any(map(any, pairs[:SPATIAL])) or any(window.ceil_mode for window in found):
        return None
    size = shapes[pad.inputs[0].node][SPATIAL:]
    added = [tuple(map(sum, zip(window.padding, pair))) for window, pair in zip(found, pairs[SPATIAL:])]
    if node.op == "Pooling" and any(max(pair) >= window.kernel_size for pair, window in zip(added, found)):
        return None
    return [replace(window, size=n, padding=pair) for window, n, pair in zip(found, size, added)]


def _is_never_negative(node: Node) -> bool:
    """Whether an operator's output has no element below 0."""
    kind = node.attr("act_type") if node.op == "Activation" else node.kind
    return kind in ("relu", "sigmoid", "softrelu") or (kind == "clip" and float(node.attr("a_min")) >= 0)


def _cropped(node: Node, found: Sequence[Any], shape: Sequence[int], dynamic_size: bool) -> Optional[List[Any]]:
    """The windows whose outputs a slice leaves: those from the first that it keeps to the last."""
    if node.op != "slice" or any(step not in (None, 1) for step in node.attr("step") or ()):
        return None
    begin, end = (tuple(node.attr(name)) + (None,) * len(shape) for name in ("begin", "end"))
    if dynamic_size and any(entry is not None and entry >= 0 for entry in end):  # counted from the start
        return None
    kept = [range(*slice(*ends).indices(length)) for ends, length in zip(zip(begin, end), shape)]
    if any(len(part) != length for part, length in zip(kept[:SPATIAL], shape)):
        return None
    crops = [(part.start, length - part.stop) for part, length in zip(kept[SPATIAL:], shape[SPATIAL:])]
    left = [_without(window, *crop, dynamic_size) for window, crop in zip(found, crops)]
    return None if None in left else left


def _without(window: Any, start: int, end: int, dynamic_size: bool) -> Any:
    """A window without the first and the last outputs; None if the data would have to be cropped for it."""
    if isinstance(window, TransposedWindow):
        return replace(window, crop=(window.crop[0] + start, window.crop[1] + end))
    low, high = window.pads(window.size)
    low, high = low - start * window.stride, high - end * window.stride
    outputs = window.outputs(window.size) - start - end
    if high < 0 and not dynamic_size:  # the last elements may be read by no window
        high = max((outputs - 1) * window.stride + window.effective_kernel_size - window.size - low, 0)
    if min(low, high) < 0 or outputs < 1:
        return None
    changed = replace(window, padding=(low, high), ceil_mode=False)
    return changed if changed.outputs(window.size) == outputs else None
