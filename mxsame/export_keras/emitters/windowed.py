"""Emitters of convolutions, transposed convolutions, pooling operators, and resizing."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame import padding as arithmetic
from mxsame._mxnet import mx
from mxsame.export_keras.emitters.axes import along_axes, pad_by_operator, reduce
from mxsame.export_keras.emitters.elementwise import affine
from mxsame.export_keras.model_builder import KerasTensor
from mxsame.export_keras.writer import KerasWriter, Weight, writes
from mxsame.exporting.reading import (
    WINDOW_ATTRIBUTES,
    average_factors,
    check_attribute,
    kernels_strides_dilations,
    nearest_scale,
    windows_at,
)
from mxsame.padding.same import high_pad
from mxsame.port import parameters
from mxsame.rewriting.graph import Node, Output
from mxsame.rewriting.windows import is_never_negative
from mxsame.validation import check, one_of

Pads = List[Tuple[int, int]]
Windows = Sequence[Any]  # one window per spatial axis, all of one kind and of static sizes


def pads_of(windows: Windows) -> Pads:
    """Returns the pads (low, high) of each spatial axis, without padding elements at the end that no window reads."""
    pairs = []
    for window in windows:
        low, _ = window.pads(window.size)
        outputs, effective = window.outputs(window.size), window.effective_kernel_size
        pairs.append((low, max(high_pad(window.size, outputs, effective, window.stride, low), 0)))
    return pairs


def keras_padding(windows: Windows) -> Optional[str]:
    """Returns the `padding` with which a Keras layer has these windows; None if there is none. If both "same" and
    "valid" are right, "same" is returned for windows whose padding is SAME."""
    pairs, outputs = pads_of(windows), [window.outputs(window.size) for window in windows]
    sizes = [(window.size, window.kernel_size, window.stride, window.dilation) for window in windows]
    is_padded = any(map(any, pairs))
    if is_padded or all(window.padding == "same" for window in windows):
        is_same = pairs == [arithmetic.same_pads(*size) for size in sizes]
        if is_same and outputs == [arithmetic.output_size(*size) for size in sizes]:
            return "same"
    is_valid = not is_padded and outputs == [arithmetic.output_size(*size, "valid") for size in sizes]
    return "valid" if is_valid else None


def pads_of_all_axes(windows: Windows) -> Pads:
    """Returns the pads of all of MXNet's axes, including the batch and the channels."""
    return [(0, 0), (0, 0), *pads_of(windows)]


def output_shape(channels: Optional[int], windows: Windows) -> Tuple[Any, ...]:
    """Returns the shape of the output of these windows, with channels last."""
    return (None, *(window.outputs(window.size) for window in windows), channels)


@writes("Convolution", ignored=WINDOW_ATTRIBUTES)
def _convolution(w: KerasWriter, node: Node, x: KerasTensor, _: Any, bias: Optional[Output] = None) -> KerasTensor:
    """Writes a convolution. If it is dilated, its strides become slices after it, since no Keras layer has both."""
    windows, weight = windows_at(w, node), w.weight(node.inputs[1])
    x, rank, channels, groups = w.to_channels_last(x), len(windows), len(weight.array), node.attr("num_group")
    kernel_size, strides, dilations = kernels_strides_dilations(windows)
    slice_steps, padding = [1] * rank, keras_padding(windows)
    if max(strides) > 1 and max(dilations) > 1:
        slice_steps, strides, padding = strides, slice_steps, None
    if padding is None:
        x, padding = along_axes(w, x, "ZeroPadding", pads_of_all_axes(windows), suffix="pad"), "valid"
    config: Dict[str, Any] = {"kernel_size": kernel_size, "strides": strides, "padding": padding}
    config.update(dilation_rate=dilations, use_bias=bias is not None)
    # TensorFlow has no depthwise convolution in 3-D, and requires one stride for all axes.
    if 1 < groups == x.shape[-1] and rank < 3 and len(set(strides)) == 1:
        config["depth_multiplier"] = multiplier = channels // groups
        name, kernel = f"DepthwiseConv{rank}D", "depthwise_kernel"
        conversion = parameters.kernel("depthwise", multiplier)
    else:
        name, kernel, conversion = f"Conv{rank}D", "kernel", parameters.kernel("conv")
        config.update(filters=channels, groups=groups)
    weights = {kernel: weight._replace(array=conversion.to_keras(weight.array))}
    weights.update({} if bias is None else {"bias": w.weight(bias)})
    shape = output_shape(channels, windows)
    if max(slice_steps) > 1:
        lengths = [n - window.effective_kernel_size + 1 for n, window in zip(x.shape[1:-1], windows)]  # type: ignore
        shape = (None, *lengths, channels)
    out = w.add_layer(name, config, x, shape=shape, weights=weights)
    return along_axes(w, out, "AveragePooling", [1, 1, *slice_steps], suffix="step")


@writes("Deconvolution", ignored=WINDOW_ATTRIBUTES)
def _conv_transpose(w: KerasWriter, node: Node, x: KerasTensor, _: Any, bias: Optional[Output] = None) -> KerasTensor:
    """Writes a transposed convolution, or one for each group, whose outputs are concatenated."""
    windows, groups, x = windows_at(w, node), node.attr("num_group"), w.to_channels_last(x)
    weights = {"kernel": w.weight(node.inputs[1]), **({} if bias is None else {"bias": w.weight(bias)})}
    size, outs = (x.shape[-1] or 1) // groups, []
    for number in range(groups):
        crops = [(0, 0), (number * size, (groups - 1 - number) * size), *[(0, 0)] * len(windows)]
        part = along_axes(w, x, "Cropping", crops, suffix="channels")
        shares = {name: each._replace(array=np.split(each.array, groups)[number]) for name, each in weights.items()}
        outs.append(_conv_transpose_of_group(w, windows, part, shares, f"group{number}" if groups > 1 else ""))
    shape = (*outs[0].shape[:-1], groups * (outs[0].shape[-1] or 1))
    if groups == 1:
        return outs[0]
    return w.add_layer("Concatenate", {"axis": x.rank - 1}, *outs, shape=shape, suffix="groups")


def _conv_transpose_of_group(
    w: KerasWriter, windows: Windows, x: KerasTensor, weights: Dict[str, Weight], suffix: str
) -> KerasTensor:
    """Writes a transposed convolution with the padding that crops as these windows do. If neither does, it is "valid",
    and a Cropping layer follows."""
    kernel_size, strides, dilations = kernels_strides_dilations(windows)
    check(max(strides) == 1 or max(dilations) == 1, "strides and dilation must not both be above 1", strides=strides)
    kernel = weights["kernel"].array
    config: Dict[str, Any] = {"filters": kernel.shape[1], "kernel_size": kernel_size, "strides": strides}
    config.update(dilation_rate=dilations, use_bias="bias" in weights)
    kernel = parameters.kernel("conv_transpose").to_keras(kernel)
    weights = {**weights, "kernel": weights["kernel"]._replace(array=kernel)}
    for config["padding"] in ("same", "valid"):
        axes = zip(kernel_size, strides, dilations)
        keras_crops = [arithmetic.transposed_crops(*axis, config["padding"]) for axis in axes]
        crops = [(window.crop[0] - start, window.crop[1] - end) for window, (start, end) in zip(windows, keras_crops)]
        if not any(map(any, crops)):
            break
    check(min(map(min, crops)) >= 0, "crops must leave no more than Keras's whole output", crops=crops)
    lengths = [window.outputs(window.size) + sum(crop) for window, crop in zip(windows, crops)]
    shape = (None, *lengths, config["filters"])
    x = w.add_layer(f"Conv{len(windows)}DTranspose", config, x, shape=shape, weights=weights, suffix=suffix)
    return along_axes(w, x, "Cropping", [(0, 0), (0, 0), *crops], suffix="crop")


# -- pooling operators


@writes("Pooling", ignored=WINDOW_ATTRIBUTES)
def _pooling(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    """Writes a pooling layer. An "lp" of order 2 becomes the root of a sum of squares."""
    kind, power = one_of("pool_type", node.attr("pool_type"), ("max", "avg", "sum", "lp")), node.attr("p_value", 2)
    if kind != "lp" or power == 1:
        return _pool(w, node, "sum" if kind == "lp" else kind, w.to_channels_last(x))
    check_attribute(node, "p_value", 2)
    x = w.to_channels_last(x)
    return w.add_operator("Sqrt", _pool(w, node, "sum", w.add_layer("Multiply", {}, x, x, suffix="square")))


def _pool(w: KerasWriter, node: Node, kind: str, x: KerasTensor) -> KerasTensor:
    windows = windows_at(w, node)
    if not windows:
        return reduce(w, x, {"avg": "mean"}.get(kind, kind), range(2, x.rank), keepdims=True)
    kernel_size, strides, _ = kernels_strides_dilations(windows)
    padding, counts_padding = keras_padding(windows), node.attr("count_include_pad", True)
    pairs = pads_of_all_axes(windows)
    scale: Any = None
    if kind == "max" and padding is None:
        if is_never_negative(_node_before_pads(node)):  # zeros never exceed the maximum
            x = along_axes(w, x, "ZeroPadding", pairs, "pad")
        else:
            x = pad_by_operator(w, x, "constant", pairs, -math.inf)
        padding = "valid"
    elif kind == "sum" or (kind == "avg" and (padding != "same" or counts_padding)):
        if padding != "valid":
            x, padding = along_axes(w, x, "ZeroPadding", pairs, "pad"), "valid"
        scale = math.prod(kernel_size) if kind == "sum" else average_factors(windows, counts_padding)
    sizes = {"pool_size": kernel_size, "strides": strides}
    config = {name: value if len(windows) > 1 else value[0] for name, value in sizes.items()}
    name = f"{'Max' if kind == 'max' else 'Average'}Pooling{len(windows)}D"
    out = w.add_layer(name, {**config, "padding": padding}, x, shape=output_shape(x.shape[-1], windows))
    scale = 1.0 if scale is None else scale
    return affine(w, out, scale[..., None] if np.ndim(scale) else scale, suffix="count")


def _node_before_pads(node: Node) -> Node:
    """Returns the node before the pads that are merged into the windows of an operator."""
    source = node.inputs[0].node
    while source.is_merged:
        source = source.inputs[0].node
    return source


# -- resizing


@writes("UpSampling", ignored="multi_input_mode")
def _up_sampling(w: KerasWriter, node: Node, x: KerasTensor, *more: Any) -> KerasTensor:
    return along_axes(w, w.to_channels_last(x), "UpSampling", [1, 1, *[nearest_scale(node)] * (x.rank - 2)])


@writes("_contrib_BilinearResize2D", ignored="mode|height|width|scale_.*")
def _bilinear_resize(w: KerasWriter, node: Node, x: KerasTensor, *_: Any) -> KerasTensor:
    """Resizes with EinsumDense layers that are not trained. Their kernels are what MXNet's operator returns for the
    unit vectors, so they are right for any `align_corners`."""
    x, target = w.to_channels_last(x), [n.traced for n in w.shape(Output(node))[2:]]
    for axis, (equation, suffix) in enumerate((("abcd,be->aecd", "rows"), ("abcd,ce->abed", "columns")), 1):
        length, size = x.shape[axis] or 1, target[axis - 1]
        vectors, align_corners = mx.nd.eye(length).reshape((length, 1, length, 1)), node.attr("align_corners")
        resized = mx.nd.contrib.BilinearResize2D(vectors, height=size, width=1, align_corners=align_corners)
        kernel = Weight(resized.asnumpy().reshape(length, size), Output(Node("null", f"{node.name}_{suffix}")))
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        config = {"equation": equation, "output_shape": list(shape[1:]), "bias_axes": None}
        x = w.add_layer("EinsumDense", config, x, shape=shape, weights={"kernel": kernel})
    return x
