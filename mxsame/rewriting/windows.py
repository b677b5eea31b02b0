"""Reads a convolution or pooling operator together with the pad before it and the slices after it as one operator.

MXNet's operators pad both ends alike. For asymmetric pads, layers add an operator before it that pads the data, or one
after it that crops the outputs. :func:`merge_pads` reads all of them as one operator with asymmetric pads.
:func:`merge_all_pads` stores them as the `windows` of the operator, as layers do in graphs for another format.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxsame.padding.same import high_pad
from mxsame.plan import TransposedWindow, Window
from mxsame.plan.windows import AnyWindow
from mxsame.rewriting.graph import WITH_WINDOWS, Graph, Node, Output, Users, entries, keeps_batch, slice_ranges

OutputShapes = Mapping[Output, Sequence[int]]


def has_windows(node: Node) -> bool:
    """Returns whether an operator has windows; a global pooling operator has none."""
    return node.op in WITH_WINDOWS and not node.attr("global_pool", False)


def is_channels_first(node: Node) -> bool:
    """Returns whether an operator's layout has channels first, which is the default."""
    return str(node.attr("layout")) in ("None", "NCW", "NCHW", "NCDHW")


def spatial(node: Node, per_axis: Sequence[Any]) -> Tuple[Any, ...]:
    """Returns the spatial part of a shape, or of another sequence with an entry for each axis of an operator's data."""
    return tuple(per_axis[2:] if is_channels_first(node) else per_axis[1:-1])


def windows_of(node: Node, size: Sequence[int]) -> Tuple[Any, ...]:
    """Returns the windows of an operator on data of this size: `Node.windows`, or those that its attributes define."""
    if node.windows is not None:
        return tuple(node.windows)
    kernel = node.attr("kernel")
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    pad, strides = node.attr("pad") or zeros, node.attr("stride") or ones
    dilation = node.attr("dilate") or ones
    if node.op != "Deconvolution":
        ceil = node.op == "Pooling" and node.attr("pooling_convention", "valid") == "full"
        return tuple(Window(n, k, s, d, (p, p), ceil) for n, k, s, d, p in zip(size, kernel, strides, dilation, pad))
    uncropped = tuple(map(TransposedWindow, size, kernel, strides, dilation))
    if any(node.attr("target_shape") or ()):  # takes precedence over pad and adj
        dropped = [window.outputs(n) - out for window, n, out in zip(uncropped, size, node.attr("target_shape"))]
        crops = [((count + 1) // 2, count // 2) for count in dropped]
    else:
        crops = [(low, low - added) for low, added in zip(pad, node.attr("adj") or zeros)]
    return tuple(replace(window, crop=crop) for window, crop in zip(uncropped, crops))


class MergedOperator(NamedTuple):
    """An operator, merged with the pads before it and the slices after it: the pads of each window include them.

    A negative pad counts elements that no window reads.
    """

    windows: Tuple[Any, ...]
    data: Output  # before the pads
    nodes: Tuple[Node, ...]  # from the pads to the slices, with the operator among them

    @property
    def last(self) -> Node:
        """The node with the output."""
        return self.nodes[-1]


def merge_pads(node: Node, shapes: OutputShapes, users: Users) -> Iterator[MergedOperator]:
    """Yields an operator merged with the pads before it, then each time with one more slice after it, as long as slices
    follow that crop spatial axes only. No other operator may read the arrays between these. An operator whose
    `Node.windows` are set is yielded once, since these include the pads and slices."""
    data, size = node.inputs[0], spatial(node, shapes[node.inputs[0]])
    if node.windows is not None:
        yield MergedOperator(windows_of(node, size), data, (node,))
        return
    windows = tuple(replace(window, size=n) for window, n in zip(windows_of(node, size), size))
    merged = MergedOperator(windows, data, (node,))
    merged = _with_pad_before(node, merged, shapes, users) or merged
    yield merged
    while len(users[merged.last]) == 1:
        user, shape = users[merged.last][0].node, shapes[Output(merged.last)]
        if user is None or not user.is_defined_by_attributes or Output(user) not in shapes:
            return
        parts = slice_ranges(user, shape)
        if parts is None or any(part.step != 1 for part in parts) or not keeps_batch(user):
            return
        crops = [(part.start, length - part.stop) for part, length in zip(parts, shape)]
        spatial_crops = spatial(node, crops)
        if sum(map(any, spatial_crops)) != sum(map(any, crops)):  # it crops the channels, too
            return
        windows = tuple(map(_without_outputs, merged.windows, spatial_crops))
        merged = MergedOperator(windows, merged.data, (*merged.nodes, user))
        yield merged


def _without_outputs(window: AnyWindow, crop: Tuple[int, int]) -> AnyWindow:
    """Returns a window without the outputs that are cropped at the start and at the end."""
    start, end = crop
    if isinstance(window, TransposedWindow):
        return replace(window, crop=(window.crop[0] + start, window.crop[1] + end))
    low, high = _pads(window)
    return replace(window, padding=(low - start * window.stride, high - end * window.stride), ceil_mode=False)


def _pads(window: Any) -> Tuple[int, int]:
    """Returns the (low, high) pads of a window, which may be negative."""
    if window.pads_depend_on_size or window.ceil_mode:
        return window.pads(window.size)
    return window.padding


def _with_pad_before(
    node: Node, merged: MergedOperator, shapes: OutputShapes, users: Users
) -> Optional[MergedOperator]:
    """Returns an operator merged with the pad operator before it; None if there is none, or if the elements that it
    adds do not act like padding."""
    pad = merged.data.node
    if pad.op != "Pad" or pad.is_merged or pad.inputs[0] not in shapes or len(users[pad]) > 1:
        return None
    widths = pad.attr("pad_width")
    pairs = list(zip(widths[::2], widths[1::2]))
    added = spatial(node, pairs)
    if sum(map(any, added)) != sum(map(any, pairs)) or not _acts_like_padding(node, merged.windows, pad):
        return None
    pads = [(low + start, high + end) for (low, high), (start, end) in zip(map(_pads, merged.windows), added)]
    if node.op == "Pooling" and any(max(pair) >= window.kernel_size for pair, window in zip(pads, merged.windows)):
        return None
    sizes = spatial(node, shapes[pad.inputs[0]])
    windows = [replace(window, size=n, padding=pair) for window, n, pair in zip(merged.windows, sizes, pads)]
    return MergedOperator(tuple(windows), pad.inputs[0], (pad, node))


def _acts_like_padding(node: Node, windows: Sequence[Any], pad: Node) -> bool:
    """Returns whether the elements that a pad operator adds act like the operator's own padding. Zeros do for
    convolutions, and for averages that count padding. For a maximum, copies of the edge do, since the edge is in the
    same windows, and so do zeros if the data are never negative."""
    if node.op == "Deconvolution" or any(window.ceil_mode or window.pads_depend_on_size for window in windows):
        return False
    adds_zeros = pad.attr("mode") == "constant" and not float(pad.attr("constant_value", 0.0))
    if node.op == "Convolution":
        return adds_zeros
    if node.attr("pool_type", "max") == "max":
        repeats_edge = pad.attr("mode") == "edge" and not any(any(window.padding) for window in windows)
        return repeats_edge or (adds_zeros and is_never_negative(pad.inputs[0].node))
    return adds_zeros and node.attr("pool_type") == "avg" and bool(node.attr("count_include_pad", True))


def is_never_negative(node: Node) -> bool:
    """Returns whether an operator's output has no element below 0."""
    kind = node.attr("act_type") if node.op == "Activation" else node.kind
    return kind in ("relu", "sigmoid", "softrelu") or (kind == "clip" and node.attr("a_min") >= 0)


# -- the windows of all operators of a graph


def merge_all_pads(graph: Graph, any_size: bool) -> None:
    """Merge the pads before each operator and the slices after it into its windows, which become `Node.windows`. With
    `any_size`, only if the windows are right for every size."""
    shapes, users = graph.output_shapes(), graph.users()
    for node in graph.nodes():
        if node.windows is not None or not has_windows(node) or not is_channels_first(node):
            continue
        has_target_shape = any(node.attr("target_shape") or ())
        if node.inputs[0] not in shapes or (any_size and has_target_shape):
            continue
        chosen = None
        for merged in merge_pads(node, shapes, users):
            nonnegative = _without_negative_pads(merged, spatial(node, shapes[Output(merged.last)]), any_size)
            if nonnegative is None:
                break
            chosen = nonnegative
        if chosen is not None and len(chosen.nodes) > 1:
            for each in chosen.nodes:
                each.is_merged = each is not node
            node.windows = chosen.windows


def _without_negative_pads(merged: MergedOperator, outputs: Sequence[int], any_size: bool) -> Optional[MergedOperator]:
    """Returns the operator with windows whose pads are not negative; None if the data would have to be cropped."""
    slices = merged.nodes[[*map(has_windows, merged.nodes)].index(True) + 1 :]
    if any_size and any(_has_absolute_end(each) for each in slices):
        return None
    windows = [_without_negative_pad(window, count, any_size) for window, count in zip(merged.windows, outputs)]
    return None if None in windows else merged._replace(windows=tuple(windows))


def _has_absolute_end(node: Node) -> bool:
    """Returns whether a slice ends at a position counted from the start, not from the end."""
    return any(entry is not None and entry >= 0 for entry in entries(node.attr("end")))


def _without_negative_pad(window: Any, outputs: int, any_size: bool) -> Any:
    """Returns a window with this many outputs and without negative pads; None if there is none."""
    if isinstance(window, TransposedWindow) or window.pads_depend_on_size or window.ceil_mode:
        return window
    low, high = _pads(window)
    if high < 0 and not any_size:  # no window may read the last elements
        high = max(high_pad(window.size, outputs, window.effective_kernel_size, window.stride, low), 0)
    if min(low, high) < 0 or outputs < 1:
        return None
    changed = replace(window, padding=(low, high))
    return changed if changed.outputs(window.size) == outputs else None
