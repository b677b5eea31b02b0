"""Operators on pictures: convolutions, transposed convolutions, pooling operators, and resizing."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame import padding as arithmetic
from mxsame import validation
from mxsame.export_keras.rows.axes import enlarged, framed, padded, reduced
from mxsame.export_keras.rows.elements import affine
from mxsame.export_keras.writer import Value, Weighted, Writer, writes
from mxsame.exporting.walk import IN_WINDOWS, check_channels_first, must, rescaled_averages, windows_at
from mxsame.plan import TransposedWindow, Window
from mxsame.plan.windows import described
from mxsame.port.builder import kernel as conversion_of
from mxsame.rewriting.graph import Node, Output, entries
from mxsame.rewriting.windows import has_windows, is_never_negative
from mxsame.target import NOTE

Pads = List[Tuple[int, int]]


def pads_of(windows: Sequence[Window]) -> Pads:
    """(low, high) of each axis: no element more at the end than windows read."""
    pairs = []
    for window in windows:
        low, _ = window.pads(window.size)
        outputs, effective = window.outputs(window.size), window.effective_kernel_size
        pairs.append((low, max(arithmetic.high_pad(window.size, outputs, effective, window.stride, low), 0)))
    return pairs


def word_of(windows: Sequence[Window]) -> Optional[str]:
    """Keras's word for the padding of windows, if it has one: that of SAME if they follow the size, or have to."""
    pairs = pads_of(windows)
    sizes = [(window.size, window.kernel_size, window.stride, window.dilation) for window in windows]
    is_same = pairs == [arithmetic.same_pads(*size) for size in sizes]
    is_same = is_same and all(
        each.outputs(each.size) == arithmetic.output_size(*size) for each, size in zip(windows, sizes)
    )
    if is_same and (any(map(any, pairs)) or all(window.padding == "same" for window in windows)):
        return "same"
    is_valid = not any(map(any, pairs)) and all(
        window.outputs(window.size) == arithmetic.output_size(*size, "valid") for window, size in zip(windows, sizes)
    )
    return "valid" if is_valid else None


def around(windows: Sequence[Window]) -> Pads:
    """The pads for each of MXNet's axes."""
    return [(0, 0), (0, 0), *pads_of(windows)]


def spatial_shape(w: Writer, node: Node, channels: Optional[int], windows: Sequence[Any]) -> Tuple[Any, ...]:
    return (None, *(window.outputs(window.size) for window in windows), channels)


@writes("Convolution", unread=IN_WINDOWS)
def _convolution(w: Writer, node: Node, x: Value, _: Any, bias: Optional[Output] = None) -> Value:
    windows, weight = windows_at(w, node), w.weight(node.inputs[1])
    x, rank, channels, groups = w.last(x), len(windows), int(node.attr("num_filter")), int(node.attr("num_group"))
    strides, dilations = [each.stride for each in windows], [each.dilation for each in windows]
    if max(strides) > 1 and max(dilations) > 1:
        raise ValueError(f"strides and dilation must not both be above 1; received {described(windows)}")
    word = word_of(windows)
    if word is None:
        x, word = framed(w, x, "ZeroPadding", around(windows), part="pad"), "valid"
    config: Dict[str, Any] = {
        "kernel_size": [each.kernel_size for each in windows],
        "strides": strides,
        "padding": word,
    }
    config.update(data_format="channels_last", dilation_rate=dilations, use_bias=bias is not None)
    # TensorFlow's depthwise convolutions have one stride, and none in 3-D.
    if 1 < groups == x.shape[-1] and rank < 3 and len(set(strides)) == 1:
        multiplier = channels // groups
        name, role, kind = f"DepthwiseConv{rank}D", "depthwise_kernel", conversion_of("depthwise", multiplier)
        config["depth_multiplier"] = multiplier
    else:
        name, role, kind = f"Conv{rank}D", "kernel", conversion_of("conv")
        config.update(filters=channels, groups=groups)
    weights = _weights(w, role, weight, kind, bias)
    return w.layer(name, config, x, shape=spatial_shape(w, node, channels, windows), weights=weights)


def _weights(w: Writer, role: str, weight: Weighted, kind: Any, bias: Optional[Output]) -> Dict[str, Weighted]:
    weights = {role: weight._replace(array=kind.to_keras(weight.array))}
    return weights if bias is None else {**weights, "bias": w.weight(bias)}


@writes("Deconvolution", unread=IN_WINDOWS)
def _transposed(w: Writer, node: Node, x: Value, _: Any, bias: Optional[Output] = None) -> Value:
    """Cropped by Keras's padding and output padding, if these can; else whole, and cropped after it."""
    windows, weight = windows_at(w, node), w.weight(node.inputs[1])
    x, rank, channels = w.last(x), len(windows), int(node.attr("num_filter"))
    if int(node.attr("num_group")) > 1:
        raise ValueError(
            f"Keras has no groups of a transposed convolution; received num_group={node.attr('num_group')}"
        )
    strides, dilations = [each.stride for each in windows], [each.dilation for each in windows]
    if max(strides) > 1 and max(dilations) > 1:
        raise ValueError(f"strides and dilation must not both be above 1; received {described(windows)}")
    config: Dict[str, Any] = {"filters": channels, "kernel_size": [each.kernel_size for each in windows]}
    config.update(strides=strides, dilation_rate=dilations, data_format="channels_last", use_bias=bias is not None)
    padding = _cropped_by_keras(windows)
    config.update(padding or {"padding": "valid"})
    weights = _weights(w, "kernel", weight, conversion_of("transposed"), bias)
    if padding is not None:
        return w.layer(
            f"Conv{rank}DTranspose", config, x, shape=spatial_shape(w, node, channels, windows), weights=weights
        )
    whole = [arithmetic.transposed_cuts(*_rule(each), "valid") for each in windows]
    crops = [(each.crop[0] - start, each.crop[1] - end) for each, (start, end) in zip(windows, whole)]
    if min(map(min, crops)) < 0:
        raise ValueError(f"a transposed convolution must not be longer than Keras's; received {described(windows)}")
    lengths = [each.outputs(each.size) + sum(crop) for each, crop in zip(windows, crops)]
    out = w.layer(f"Conv{rank}DTranspose", config, x, shape=(None, *lengths, channels), weights=weights)
    return framed(w, out, "Cropping", [(0, 0), (0, 0), *crops], part="crop")


def _rule(window: TransposedWindow) -> Tuple[int, int, int]:
    return window.kernel_size, window.stride, window.dilation


def _cropped_by_keras(windows: Sequence[TransposedWindow]) -> Optional[Dict[str, Any]]:
    crops = [window.crop for window in windows]
    for word in ("same", "valid"):
        if crops == [arithmetic.transposed_cuts(*_rule(window), word) for window in windows]:
            return {"padding": word}
    extra = []
    for window in windows:
        fits = (n for n in range(window.stride) if _crop(window, n) == window.crop)
        extra.append(next(fits, None))
    return None if None in extra else {"padding": "same", "output_padding": extra}


def _crop(window: TransposedWindow, output_padding: int) -> Optional[Tuple[int, int]]:
    try:
        return arithmetic.transposed_cuts(*_rule(window), "same", output_padding)
    except ValueError:
        return None


# ---- pooling operators -----------------------------------------------------------------------------------------------


@writes("Pooling", unread=IN_WINDOWS)
def _pooling(w: Writer, node: Node, x: Value) -> Value:
    check_channels_first(node)
    kind, x = node.attr("pool_type"), w.last(x)
    validation.mode("pool_type", kind, ("max", "avg", "sum"))
    if not has_windows(node):
        reduction = {"max": "max", "avg": "mean", "sum": "sum"}[kind]
        return reduced(w, x, reduction, range(2, x.rank), keepdims=True)
    windows = windows_at(w, node)
    word = word_of(windows)
    counts = str(node.attr("count_include_pad", True)) == "True"
    scale = None
    if kind == "max":
        if word is None:
            pairs, word = around(windows), "valid"
            is_zero = is_never_negative(_before(node))  # then zeros never win
            x = framed(w, x, "ZeroPadding", pairs, "pad") if is_zero else padded(w, x, "constant", pairs, -math.inf)
    elif word != "same" or counts or kind == "sum":
        if word != "valid":
            x, word = framed(w, x, "ZeroPadding", around(windows), "pad"), "valid"
        scale = rescaled_averages(windows, counts) if kind == "avg" else math.prod(each.kernel_size for each in windows)
    config = {"pool_size": [each.kernel_size for each in windows], "strides": [each.stride for each in windows]}
    config = {name: value if len(windows) > 1 else value[0] for name, value in config.items()}
    name = f"{'Max' if kind == 'max' else 'Average'}Pooling{len(windows)}D"
    shape = spatial_shape(w, node, x.shape[-1], windows)
    out = w.layer(name, {**config, "padding": word, "data_format": "channels_last"}, x, shape=shape)
    if scale is None:
        return out
    return affine(w, out, scale if kind == "sum" else scale[..., None], part="count")


def _before(node: Node) -> Node:
    """What gives the data of an operator, before the pads that its windows have."""
    before = node.inputs[0].node
    while NOTE in before.attrs and not has_windows(before):
        before = before.inputs[0].node
    return before


@writes("_contrib_AdaptiveAvgPooling2D")
def _adaptive_average(w: Writer, node: Node, x: Value) -> Value:
    """To one element, or with equal windows."""
    size = entries(node.attr("output_size")) or [1]
    size = size * 2 if len(size) == 1 else size
    x = w.last(x)
    if size == [1, 1]:
        return reduced(w, x, "mean", (2, 3), keepdims=True)
    lengths = x.shape[1:3]
    if any((length or 1) % count for length, count in zip(lengths, size)):
        raise ValueError(f"output_size must divide the size; {validation.received(output_size=size, size=lengths)}")
    factors = [(length or 1) // count for length, count in zip(lengths, size)]
    config = {"pool_size": factors, "strides": factors, "padding": "valid", "data_format": "channels_last"}
    return w.layer("AveragePooling2D", config, x, shape=(None, *size, x.shape[-1]))


# ---- other sizes -----------------------------------------------------------------------------------------------------


@writes("UpSampling", unread="multi_input_mode")
def _up_sampling(w: Writer, node: Node, x: Value, *more: Any) -> Value:
    must(node, "sample_type", "nearest")
    if more:
        raise ValueError(f"data must be one array; {validation.received(inputs=1 + len(more))}")
    x, scale = w.last(x), int(node.attr("scale"))
    shape = (None, *((n or 1) * scale for n in x.shape[1:-1]), x.shape[-1])
    return enlarged(w, x, [scale] * (x.rank - 2), shape)


@writes("_contrib_BilinearResize2D", unread="height|width|scale_.*")
def _bilinear_resize(w: Writer, node: Node, x: Value, *_: Any) -> Value:
    """As products with matrices, which any rule for the corners has, by layers that are not trained."""
    aligned, x = node.attr("align_corners"), w.last(x)
    target = [n.traced for n in w.shape(Output(node))[2:]]
    for axis, (letters, part) in enumerate((("abcd,be->aecd", "rows"), ("abcd,ce->abed", "columns")), 1):
        matrix = _interpolation(x.shape[axis] or 1, target[axis - 1], aligned)
        shape = (*x.shape[:axis], target[axis - 1], *x.shape[axis + 1 :])
        config = {"equation": letters, "output_shape": list(shape[1:]), "bias_axes": None}
        kernel = Weighted(matrix, Output(Node("null", f"{node.name}_{part}")))  # no parameter of the net, nor trained
        x = w.layer("EinsumDense", config, x, shape=shape, weights={"kernel": kernel})
    return x


def _interpolation(length: int, size: int, aligned: bool) -> np.ndarray:
    """(length, size): the weight of each element for each new one, as MXNet computes positions."""
    matrix = np.zeros((length, size), "float32")
    for index, position in enumerate(_positions(length, size, aligned)):
        low = min(int(position), length - 1)
        part = position - low
        matrix[low, index] += 1 - part
        matrix[min(low + 1, length - 1), index] += part
    return matrix


def _positions(length: int, size: int, aligned: bool) -> Any:
    if size == 1:
        return [0.0]
    if aligned:
        return np.arange(size) * ((length - 1) / (size - 1))
    return np.maximum((np.arange(size) + 0.5) * (length / size) - 0.5, 0)
