"""Convolutions, transposed convolutions and pooling operators."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame.building import NOTE
from mxsame.onnx.pads import pads
from mxsame.onnx.registry import writes
from mxsame.onnx.rows._shared import ndim_of
from mxsame.onnx.writer import Writer
from mxsame.plan import Window
from mxsame.plan.windows import check_static
from mxsame.rewriting.graph import Node, entries
from mxsame.rewriting.windows import has_windows, is_channels_first, windows


def _windowed(w: Writer, node: Node) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """The windows of an operator, and their attributes."""
    _check_layout(node)
    lengths = w.shape(_data(node))[2:]
    found = windows(node, [length.traced for length in lengths])
    target = any(node.attr("target_shape") or ())
    if target and NOTE not in node.attrs and not all(length.is_static for length in lengths):
        raise ValueError("target_shape must not be given, but pad and adj, to serve dynamic sizes")
    if node.op == "Pooling":
        check_static(tuple(found), pool=True)
    found = [replace(window, size=window.size if n.is_static else None) for window, n in zip(found, lengths)]
    attrs = pads(found, node.op == "Pooling")
    if attrs is None:
        raise ValueError(
            "the padding must be the same for every size, or that of SAME without dilation, to serve dynamic sizes: "
            f"give dynamic_size=False; {validation.received(windows=[*found])}"
        )
    kernel = [window.kernel_size for window in found]
    return found, {"kernel_shape": kernel, "strides": [window.stride for window in found], **attrs}


def _check_layout(node: Node) -> None:
    if not is_channels_first(node):
        raise ValueError(f"layout must have channels first; {validation.received(layout=node.attr('layout'))}")


def _data(node: Node) -> Any:
    """The data of an operator, before what only gives it its shape."""
    source = node.inputs[0]
    while (
        NOTE in source.node.attrs and source.node.attrs[NOTE] == node.attrs.get(NOTE) and not has_windows(source.node)
    ):
        source = source.node.inputs[0]
    return source


@writes("Convolution", "Deconvolution")
def convolution(w: Writer, node: Node, x: str, weight: str, bias: Optional[str] = None) -> str:
    found, attrs = _windowed(w, node)
    op = {"Convolution": "Conv", "Deconvolution": "ConvTranspose"}[node.op]
    wrong = op == "ConvTranspose" and any(window.dilation > 1 < window.stride for window in found)
    if wrong and NOTE not in node.attrs:
        raise ValueError("a Deconvolution of MXNet must not have strides and dilation, of which it is wrong")
    attrs.update(dilations=[window.dilation for window in found], group=int(node.attr("num_group", 1)))
    return w.add(op, x, weight, bias, name=node.name, **attrs)


@writes("Pooling")
def pooling(w: Writer, node: Node, x: str) -> str:
    kind = node.attr("pool_type", "max")
    if not has_windows(node):
        return _global_pooling(w, node, x, kind)
    found, attrs = _windowed(w, node)
    counts = str(node.attr("count_include_pad", True)) == "True"
    if kind == "max":
        return w.add("MaxPool", x, name=node.name, **attrs)
    if kind == "avg":
        out = w.add("AveragePool", x, name=node.name, count_include_pad=int(counts), **attrs)
        if not counts or not any(window.ceil_mode and not window.follows_size for window in found):
            return out
        return _without_what_follows_padding(w, node, out, found)
    order = 1 if kind == "sum" else int(node.attr("p_value", 2))
    if order == 2:
        return w.add("LpPool", x, name=node.name, p=2, **attrs)
    mean = w.add("AveragePool", _power(w, x, order), count_include_pad=1, **attrs)
    count = math.prod(window.kernel_size for window in found)
    return _root(w, node, w.add("Mul", mean, w.scalar(count, node.inputs[0])), order)


def _power(w: Writer, x: str, order: int) -> str:
    """x or x^3: MXNet's Pooling takes powers of signed values, ONNX's of absolute ones."""
    return x if order == 1 else w.add("Mul", w.add("Mul", x, x), x)


def _root(w: Writer, node: Node, x: str, order: int) -> str:
    """Of what may be negative."""
    if order == 1:
        return x
    root = w.add("Pow", w.add("Abs", x), w.scalar(1 / order, node.inputs[0]))
    return w.add("Mul", w.add("Sign", x), root, name=node.name)


def _without_what_follows_padding(w: Writer, node: Node, out: str, found: Sequence[Window]) -> str:
    """Padding counts in a mean, and what a partial window has after it does not: so the last means become larger."""
    if any(window.size is None for window in found):
        raise ValueError("padding must not count (count_include_pad=False) with ceil_mode, to serve dynamic sizes")
    scale = np.ones(())
    for window in found:
        low, high = window.padding
        starts = np.arange(window.outputs(window.size)) * window.stride - low
        counted = np.minimum(starts + window.kernel_size, window.size + high) - starts
        scale = scale[..., None] * (window.kernel_size / counted)
    if (scale == 1).all():
        return out
    return w.add("Mul", out, w.constant(scale[None, None], w.dtype(node.inputs[0]), "scale"))


def _global_pooling(w: Writer, node: Node, x: str, kind: str) -> str:
    _check_layout(node)
    if kind in ("max", "avg"):
        return w.add({"max": "GlobalMaxPool", "avg": "GlobalAveragePool"}[kind], x, name=node.name)
    axes = range(2, ndim_of(w, node))
    order = 1 if kind == "sum" else int(node.attr("p_value", 2))
    if order == 2:
        return w.add("GlobalLpPool", x, name=node.name, p=2)
    return _root(w, node, w.reduced("ReduceSum", _power(w, x, order), axes, True), order)


@writes("_contrib_AdaptiveAvgPooling2D")
def adaptive_average(w: Writer, node: Node, x: str) -> str:
    """To one element, or by equal windows."""
    size = entries(node.attr("output_size")) or [1]
    size = size * 2 if len(size) == 1 else size
    if size == [1, 1]:
        return w.add("GlobalAveragePool", x, name=node.name)
    lengths = w.shape(node.inputs[0])[2:]
    if any(not length.is_static or length.traced % wanted for length, wanted in zip(lengths, size)):
        raise ValueError(f"output_size must divide a static size; {validation.received(output_size=size)}")
    kernel = [length.traced // wanted for length, wanted in zip(lengths, size)]
    return w.add("AveragePool", x, kernel_shape=kernel, strides=kernel, name=node.name)
