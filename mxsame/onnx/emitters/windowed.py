"""Emitters of convolutions, transposed convolutions, pooling operators, and resizing.

ONNX's operators have one pad for each end of each axis, so for a static size `pads` expresses every window. For a
dynamic size, the pads must be the same for every size, or follow the rule of SAME, which is `auto_pad`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Dict, Optional, Sequence, Tuple

from mxsame.exporting.reading import (
    WINDOW_ATTRIBUTES,
    average_factors,
    kernels_strides_dilations,
    ndim_of,
    nearest_scale,
    windows_at,
)
from mxsame.onnx.writer import OnnxWriter, writes
from mxsame.padding.keras_mxnet import KERAS_MXNET
from mxsame.plan import TransposedWindow, Window
from mxsame.plan.windows import check_dynamic, describe_windows
from mxsame.rewriting.graph import Node, Output
from mxsame.validation import check

AUTO_PAD = {"same": "SAME_UPPER", KERAS_MXNET: "SAME_LOWER"}  # which end gets the extra padding element


def pads(windows: Sequence[Any], pool: bool = False) -> Optional[Dict[str, Any]]:
    """Returns the attributes that pad one window per axis, whose sizes may be dynamic. Returns None if no attributes
    are right for every size.

    Raises a `ValueError` if a partial window of a pooling operator would be empty for some size.

    >>> pads([Window(224, 3, 2), Window(225, 3, 2)])
    {'pads': [0, 1, 1, 1]}
    >>> pads([Window(None, 3, 2), Window(None, 3, 2)])
    {'auto_pad': 'SAME_UPPER'}
    >>> pads([TransposedWindow(None, 3, 2, crop=(0, 1))]), pads([TransposedWindow(None, 2, 3, crop=(0, -1))])
    ({'pads': [0, 1]}, {'pads': [0, 0], 'output_padding': [1]})
    """
    if isinstance(windows[0], TransposedWindow):
        crops = [window.crop for window in windows]
        output_padding = [max(-end, 0) for _, end in crops]
        attrs = {"pads": [start for start, _ in crops] + [max(end, 0) for _, end in crops]}
        return {**attrs, "output_padding": output_padding} if any(output_padding) else attrs
    check_dynamic(tuple(windows), pool)
    pairs = [pair for pair in map(_pads_for_every_size, windows) if pair is not None]
    if len(pairs) == len(windows):
        return {"pads": [low for low, _ in pairs] + [high for _, high in pairs]}
    if all(window.ceil_mode and not window.pads_depend_on_size for window in windows):
        pairs = [replace(window, ceil_mode=False).pads(1) for window in windows]
        return {"pads": [low for low, _ in pairs] + [high for _, high in pairs], "ceil_mode": 1}
    rules = {window.padding for window in windows}
    if len(rules) == 1 and rules <= AUTO_PAD.keys() and all(map(_runs_with_auto_pad, windows)):
        return {"auto_pad": AUTO_PAD[rules.pop()]}
    return None


def _runs_with_auto_pad(window: Window) -> bool:
    """Returns whether runtimes compute `auto_pad` correctly. ONNX Runtime computes negative pads for a kernel shorter
    than its stride, and refuses or ignores `auto_pad` with a dilation."""
    return window.dilation == 1 and window.kernel_size >= window.stride


def _pads_for_every_size(window: Window) -> Optional[Tuple[int, int]]:
    """Returns the pads (low, high) with which the window is right for every size; None if no pads are."""
    pairs = [window.pads(size) for size in window.sizes]
    low, high = pairs[0][0], max(high for _, high in pairs)
    extra = low + high - window.effective_kernel_size
    is_exact = all((size + extra) // window.stride + 1 == window.outputs(size) for size in window.sizes)
    return (low, high) if is_exact and all(pair[0] == low for pair in pairs) else None


# -- emitters


def _windows_and_attributes(w: OnnxWriter, node: Node) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """Returns the windows of an operator, and their attributes in ONNX: kernel_shape, strides, and the pads."""
    windows = windows_at(w, node)
    if not windows:
        return windows, {}
    attrs = pads(windows, node.op == "Pooling")
    rule = "the padding must be the same for every size, or that of SAME without dilation, if sizes are dynamic"
    check(attrs is not None, f"{rule}: use dynamic_size=False; received {describe_windows(windows)}")
    kernel_shape, strides, _ = kernels_strides_dilations(windows)
    return windows, {"kernel_shape": kernel_shape, "strides": strides, **(attrs or {})}


@writes("Convolution", "Deconvolution", ignored=WINDOW_ATTRIBUTES)
def _convolution(w: OnnxWriter, node: Node, x: str, weight: str, bias: Optional[str] = None) -> str:
    windows, attrs = _windows_and_attributes(w, node)
    op = {"Convolution": "Conv", "Deconvolution": "ConvTranspose"}[node.op]
    attrs.update(dilations=[window.dilation for window in windows], group=node.attr("num_group"))
    if op == "ConvTranspose" or len(windows) > 1:
        return w.add(op, x, weight, bias, **attrs)
    # a 1-D convolution runs in 2-D, for which ONNX Runtime has fast kernels
    attrs.update({name: [1, *attrs[name]] for name in ("kernel_shape", "strides", "dilations")})
    attrs.update({"pads": [0, attrs["pads"][0], 0, attrs["pads"][1]]} if "pads" in attrs else {})
    return w.squeeze(w.add(op, w.unsqueeze(x, [2]), w.expand_weight_to_2d(node.inputs[1], weight), bias, **attrs), [2])


@writes("Pooling", ignored=WINDOW_ATTRIBUTES)
def _pooling(w: OnnxWriter, node: Node, x: str) -> str:
    (windows, attrs), kind = _windows_and_attributes(w, node), node.attr("pool_type")
    order = node.attr("p_value", 2)
    if kind == "sum" or (kind == "lp" and order != 2):
        return _signed_lp(w, node, x, 1 if kind == "sum" else order, windows, attrs)
    op = {"max": "MaxPool", "avg": "AveragePool", "lp": "LpPool"}[kind]
    attrs.update({"p": 2} if kind == "lp" else {})
    if not windows or kind != "avg":
        return w.add(op if windows else f"Global{op}", x, **attrs)
    counts_padding = node.attr("count_include_pad", True)
    out = w.add(op, x, count_include_pad=int(counts_padding), **attrs)
    may_be_partial = any(window.ceil_mode and not window.pads_depend_on_size for window in windows)
    return _correct_partial_windows(w, node, out, windows) if counts_padding and may_be_partial else out


def _signed_lp(w: OnnxWriter, node: Node, x: str, order: int, windows: Sequence[Window], attrs: Dict[str, Any]) -> str:
    """Writes a sum (order 1), or the cube root of a sum of cubes (order 3). MXNet takes powers of signed values, ONNX's
    LpPool of absolute values."""
    powers = x if order == 1 else w.add("Mul", w.add("Mul", x, x), x)
    if windows:
        count = w.scalar(math.prod(kernels_strides_dilations(windows)[0]), node.inputs[0])
        total = w.add("Mul", w.add("AveragePool", powers, count_include_pad=1, **attrs), count)
    else:
        total = w.reduce("ReduceSum", powers, list(range(2, ndim_of(w, node))), True)
    root = w.scalar(1 / order, node.inputs[0])
    return total if order == 1 else w.add("Mul", w.add("Sign", total), w.add("Pow", w.add("Abs", total), root))


def _correct_partial_windows(w: OnnxWriter, node: Node, out: str, windows: Sequence[Window]) -> str:
    """Corrects the averages of partial last windows. In these, MXNet counts the padding, but not the elements beyond
    it."""
    rule = "padding must not count (count_include_pad=False) with ceil_mode, if sizes are dynamic"
    w.check_static(w.shape(node.inputs[0])[2:], rule)
    scale = average_factors(windows, counts_padding=True)
    return out if scale is None else w.add("Mul", out, w.constant(scale[None, None], w.dtype(node.inputs[0])))


@writes("UpSampling", ignored="multi_input_mode")
def _up_sampling(w: OnnxWriter, node: Node, x: str, *more: str) -> str:
    return w.resize(x, scales=[1.0, 1.0, *[float(nearest_scale(node))] * (ndim_of(w, node) - 2)])


@writes("_contrib_BilinearResize2D", ignored="mode|height|width|scale_.*")
def _bilinear_resize(w: OnnxWriter, node: Node, x: str, *_: str) -> str:
    """Resizes by a scale if that is an integer or the size is dynamic, otherwise to the size that MXNet infers."""
    align_corners = node.attr("align_corners")
    mode = "align_corners" if align_corners else "half_pixel"
    attrs: Dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": mode}
    source, target = w.shape(node.inputs[0])[2:], w.shape(Output(node))[2:]
    keeps_ones = all(after != (1, 1) or before == (1, 1) for before, after in zip(source, target))
    rule = "align_corners must be True for a length of 1, for which MXNet takes the first element"
    check(align_corners or keeps_ones, rule, align_corners=align_corners)
    scales = [node.attr(name) for name in ("scale_height", "scale_width")]
    if all(length.is_static for length in (*source, *target)):
        ratios = [after.traced / before.traced for before, after in zip(source, target)]
        if all(ratio.is_integer() for ratio in ratios):
            return w.resize(x, scales=[1.0, 1.0, *ratios], **attrs)
    elif None not in scales and (align_corners or all(float(scale).is_integer() for scale in scales)):
        return w.resize(x, scales=[1.0, 1.0, *map(float, scales)], **attrs)
    rule = "data of dynamic size must be resized to a static size, or by a scale, which must be an integer unless "
    rule += "align_corners is True"
    w.check_static(target, rule, scales=scales, align_corners=align_corners)
    batch = w.slice(w.add("Shape", x), (0, 0, 2, 1))
    sizes = w.add("Concat", batch, w.integers([length.traced for length in target]), axis=0)
    return w.resize(x, sizes=sizes, **attrs)
