"""Operators on pictures: convolutions, transposed convolutions, pooling operators, and resizing."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence, Tuple

from mxsame import validation
from mxsame.exporting.walk import IN_WINDOWS, check_channels_first, must, ndim_of, rescaled_averages, windows_at
from mxsame.onnx.pads import pads
from mxsame.onnx.rows._shared import Array, writes
from mxsame.onnx.writer import Writer
from mxsame.plan import Window
from mxsame.plan.windows import described
from mxsame.rewriting.graph import Node, Output
from mxsame.rewriting.windows import has_windows


def _windowed(w: Writer, node: Node) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """The windows of an operator, and the attributes for them."""
    windows = windows_at(w, node)
    attrs = pads(windows, node.op == "Pooling")
    if attrs is None:
        raise ValueError(
            "the padding must be the same for every size, or that of SAME without dilation, to serve dynamic sizes: "
            f"give dynamic_size=False; received {described(windows)}"
        )
    kernel = [window.kernel_size for window in windows]
    return windows, {"kernel_shape": kernel, "strides": [window.stride for window in windows], **attrs}


@writes("Convolution", "Deconvolution", unread=IN_WINDOWS)
def convolution(w: Writer, node: Node, x: str, weight: str, bias: Optional[str] = None) -> str:
    windows, attrs = _windowed(w, node)
    op = {"Convolution": "Conv", "Deconvolution": "ConvTranspose"}[node.op]
    attrs.update(dilations=[window.dilation for window in windows], group=int(node.attr("num_group")))
    return w.add(op, x, weight, bias, **attrs)


@writes("Pooling", unread=IN_WINDOWS)
def pooling(w: Writer, node: Node, x: str) -> str:
    check_channels_first(node)
    kind, order = node.attr("pool_type"), int(node.attr("p_value", 2))
    if kind == "sum" or (kind == "lp" and order != 2):
        return _signed_lp(w, node, x, 1 if kind == "sum" else order)
    op = {"max": "MaxPool", "avg": "AveragePool", "lp": "LpPool"}[kind]
    more = {"p": 2} if kind == "lp" else {}
    if not has_windows(node):
        return w.add(f"Global{op}", x, **more)
    windows, attrs = _windowed(w, node)
    if kind != "avg":
        return w.add(op, x, **more, **attrs)
    counts = str(node.attr("count_include_pad", True)) == "True"
    out = w.add(op, x, count_include_pad=int(counts), **attrs)
    if not counts or not any(window.ceil_mode and not window.follows_size for window in windows):
        return out
    return _without_what_follows_padding(w, node, out, windows)


def _signed_lp(w: Writer, node: Node, name: str, order: int) -> str:
    """A sum of powers, and its root: MXNet's Pooling takes powers of signed values, ONNX's of absolute ones."""
    x = Array(w, node.inputs[0], name)
    powers = x if order == 1 else x * x * x
    if has_windows(node):
        windows, attrs = _windowed(w, node)
        count = math.prod(window.kernel_size for window in windows)
        total = powers("AveragePool", count_include_pad=1, **attrs) * count
    else:
        total = powers.reduced("ReduceSum", range(2, ndim_of(w, node)))
    return (total if order == 1 else total("Sign") * total("Abs")("Pow", 1 / order)).name


def _without_what_follows_padding(w: Writer, node: Node, out: str, windows: Sequence[Window]) -> str:
    """Corrects averages of a partial last window: MXNet counts the padding in it, and not the elements after the
    padding."""
    if any(window.size is None for window in windows):
        raise ValueError("padding must not count (count_include_pad=False) with ceil_mode, to serve dynamic sizes")
    scale = rescaled_averages(windows, counts_padding=True)
    return out if scale is None else w.add("Mul", out, w.constant(scale[None, None], w.dtype(node.inputs[0])))


@writes("UpSampling", unread="multi_input_mode")
def up_sampling(w: Writer, node: Node, x: str, *more: str) -> str:
    must(node, "sample_type", "nearest")
    if more:
        raise ValueError(f"data must be one array; {validation.received(inputs=1 + len(more))}")
    scale = float(node.attr("scale"))
    return w.resized(x, scales=[1.0, 1.0, scale, scale])


@writes("_contrib_BilinearResize2D", unread="mode|height|width|scale_.*")
def bilinear_resize(w: Writer, node: Node, x: str, *_: str) -> str:
    """To the size that MXNet infers, by a scale if that is exact or the size is dynamic."""
    aligned = node.attr("align_corners")
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners" if aligned else "half_pixel"}
    source, target = w.shape(node.inputs[0])[2:], w.shape(Output(node))[2:]
    if not aligned and any(after == (1, 1) != before for before, after in zip(source, target)):
        raise ValueError(
            "align_corners must be True for a length of 1, for which MXNet takes the first element; received "
            "align_corners=False"
        )
    factors = [node.attr(name) for name in ("scale_height", "scale_width")]
    if all(length.is_static for length in (*source, *target)):
        exact = [after.traced / before.traced for before, after in zip(source, target)]
        if all(scale.is_integer() for scale in exact):
            return w.resized(x, scales=[1.0, 1.0, *exact], **attrs)
    elif None not in factors and (aligned or all(float(scale).is_integer() for scale in factors)):
        return w.resized(x, scales=[1.0, 1.0, *map(float, factors)], **attrs)
    if not all(length.is_static for length in target):
        raise ValueError(
            "data of dynamic size must be resized to a static size, or by a scale, which must be an integer unless "
            f"align_corners is True; {validation.received(scales=factors, align_corners=aligned)}"
        )
    batch = w.sliced(w.add("Shape", x), (0, 0, 2, 1))
    sizes = w.add("Concat", batch, w.integers([length.traced for length in target]), axis=0)
    return w.resized(x, sizes=sizes, **attrs)
