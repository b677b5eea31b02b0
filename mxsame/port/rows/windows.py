"""Rows of layers with windows: convolutions and pooling layers.

Only here shapes are computed by hand, with the formulas of `mxsame.padding`: MXNet cannot infer those of SAME.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from mxsame import nn, padding as arithmetic, validation
from mxsame.port import blocks
from mxsame.port.description import Layer, Weight
from mxsame.port.parameters import SAME, Conversion, kernel
from mxsame.port.rows._shared import BIAS, KERNEL, LORA, activated, merged_axes, unmerged_axes, window, word
from mxsame.port.table import CHANNELS_FIRST, KERAS, TAKES, UNPADDED, Operand, Site, Value, in_place, layer, operator
from mxsame.port.types import CAST_IN_KERAS, KEPT_IN_FLOAT32
from mxsame.validation import InvalidValue, check, integer, pads_of_axis

DEPTHWISE = Weight("depthwise_kernel", "weight")
SEPARABLE = (Weight("depthwise_kernel", "depthwise_weight"), Weight("pointwise_kernel", "pointwise_weight"), BIAS)
CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D")


def _lengths(site: Site, rule: Callable, x: Value, *given: Any) -> List[Optional[int]]:
    """Returns a length for each spatial axis: what `rule` makes of it and of what is given, for each axis or for
    all."""
    per_axis = (entry if isinstance(entry, tuple) else itertools.repeat(entry) for entry in given)
    return [None if n is None else rule(n, *entries) for n, *entries in zip(site.sizes(x), *per_axis)]


# -- convolutions


def _conversion(role: Weight, kind: Any, depth_multiplier: int) -> Conversion:
    """Returns the conversion of a kernel: keras-mxnet has stored those of channels first in MXNet's order."""
    kind = {"depthwise_kernel": "depthwise", "pointwise_kernel": "pointwise"}.get(role.name, kind)
    if role.native and kind == "depthwise":
        return Conversion(  # (C, m, *k) <-> (C*m, 1, *k)
            lambda array: array.reshape(-1, 1, *array.shape[2:]),
            lambda array: array.reshape(-1, depth_multiplier, *array.shape[2:]),
        )
    if role.native or role.name == "bias":
        return SAME
    return kernel(kind, depth_multiplier if kind == "depthwise" else None)


def _convolved(site: Site, x: Value, kind: str, lengths: Sequence[Optional[int]], arguments: dict) -> Value:
    """Call the layer's block of `mxsame.nn`, which has the class's name."""
    config, layer_class, in_channels = site.config, getattr(nn, site.layer.class_name), site.channels(x)
    multiplier = config.get("depth_multiplier", 1)
    arguments.update(use_bias=config.get("use_bias", True), in_channels=in_channels or 0)
    if kind in ("depthwise", "separable"):
        arguments["depth_multiplier"] = multiplier
    else:
        arguments["groups"] = config.get("groups", 1)
    channels = in_channels and in_channels * multiplier
    if kind != "depthwise":
        channels = arguments["channels"] = config["filters"]
    conversions = {role.name: _conversion(role, kind, multiplier) for role in site.layer.roles or ()}
    shape = site.per_axis(x.shape[0], lengths, channels)
    return site.block(partial(layer_class, **arguments), x, conversions=conversions, shape=shape)[0]


@layer(*CONVOLUTIONS, order=UNPADDED, weights=(KERNEL, BIAS), unread=LORA)
@layer("DepthwiseConv1D", "DepthwiseConv2D", order=UNPADDED, weights=(DEPTHWISE, BIAS), unread="groups")
@layer("SeparableConv1D", "SeparableConv2D", order=UNPADDED, weights=SEPARABLE, unread="groups")
def _convolution(site: Site, x: Value) -> Value:
    """Build a convolution, of data that may have further axes after the batch, and its activation."""
    count = x.rank - site.num_spatial_dims - 2
    if count > 0 and site.layer.class_name in CONVOLUTIONS and not site.is_channels_first:
        out = unmerged_axes(site, _convolution_of_images(site, merged_axes(site, x, count)), x, count)
    else:
        out = _convolution_of_images(site, x)
    return activated(site, out)


def _convolution_of_images(site: Site, x: Value) -> Value:
    """Build a convolution. Zeros that a layer before puts around the data become pads of a "valid" convolution."""
    class_name = site.layer.class_name
    kind = "conv" if class_name in CONVOLUTIONS else "depthwise" if class_name.startswith("Depth") else "separable"
    arguments = window(site)
    if x.pads is not None and not site.is_channels_first and arguments["padding"] == "valid" and site.once:
        arguments["padding"], x = x.pads, x.without_pads
    x, strides = site.channels_first(x), arguments["strides"]
    one = max(strides) == 1 or max(arguments["dilation"]) == 1 or kind == "conv"
    check(one, "strides and dilation_rate must not both be above 1", strides=strides)
    lengths = _lengths(site, arithmetic.output_size, x, *arguments.values())
    return _convolved(site, x, kind, lengths, arguments)


OPERATORS_OF_LAYERS = {**{f"conv{rank}d": f"Conv{rank}D" for rank in (1, 2, 3)}, "depthwise_conv2d": "DepthwiseConv2D"}


@operator(*OPERATORS_OF_LAYERS, "conv", "depthwise_conv", order=UNPADDED,
          names={"filter": "kernel", "filters": "kernel", "stride": "strides", "rate": "dilations",
                 "dilation_rate": "dilations"})  # fmt: skip
def _convolution_operator(
    site: Site, x: Value, kernel: Operand, strides: Any = 1, padding: Any = "valid", data_format: Any = None,
    dilations: Any = None, use_cudnn_on_gpu: bool = True,
) -> Value:  # fmt: skip
    """Convolve with a constant kernel, as the layer of that name does with its own. TensorFlow's padding may be a pair
    for each axis, the batch and the channels among them."""
    rank, array, is_depthwise = x.rank - 2, np.asarray(kernel), site.row.name.startswith("depthwise")
    check(not isinstance(kernel, Value), "kernel must be a constant")
    class_name = OPERATORS_OF_LAYERS.get(site.row.name, f"{'Depthwise' * is_depthwise}Conv{rank}D")
    config = _of_operator(x, data_format, strides=strides, dilation_rate=dilations)
    if not isinstance(padding, str):
        x = site.function(
            blocks.pad, site.padded(x), pads=x.ordered([pads_of_axis("padding", pair) for pair in padding])
        )
        padding = "valid"
    config.update(padding=padding, kernel_size=array.shape[:-2], use_bias=False, trainable=False)
    if is_depthwise:
        config["depth_multiplier"] = array.shape[-1]
    else:
        channels = x.shape[1 if config["data_format"] == "channels_first" else -1] or array.shape[-2]
        config.update(filters=array.shape[-1], groups=channels // array.shape[-2])
    weight = DEPTHWISE if is_depthwise else KERNEL
    return in_place(site, Layer(class_name, site.name, config, weights=[array], roles=[weight]), x)


def _of_operator(x: Value, data_format: Any, **given: Any) -> Dict[str, Any]:
    """Returns the configuration of a layer for an operator's numbers: TensorFlow's may have entries for the batch and
    the channels, which must be 1."""
    rank, first = x.rank - 2, str(data_format) == "channels_first" or str(data_format).startswith("NC")
    config: Dict[str, Any] = {"data_format": "channels_first" if first else "channels_last"}
    for name, value in given.items():
        entries = value
        if isinstance(value, list) and len(value) == rank + 2:
            entries, others = (value[2:], value[:2]) if first else (value[1:-1], [value[0], value[-1]])
            check(others == [1, 1], f"{name} must be 1 for the batch and the channels", **{name: value})
        config[name] = entries[0] if isinstance(entries, list) and len(entries) == 1 else entries
    return config


@layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose", order=CHANNELS_FIRST, weights=(KERNEL, BIAS))
def _transposed(site: Site, x: Value) -> Value:
    arguments, extra = window(site), site.config.get("output_padding")
    count = len(arguments["strides"])
    arguments["output_padding"] = None if extra is None else validation.per_axis("output_padding", extra, count, 0)
    lengths = _lengths(site, arithmetic.transposed_output_size, x, *arguments.values())
    if arguments["padding"] == arithmetic.KERAS_MXNET:
        keras_lengths = _lengths(site, arithmetic.keras_transposed_size, x, *{**arguments, "padding": "same"}.values())
        rule = "keras-mxnet must take its output for the shape that it has"
        check(keras_lengths == lengths, rule, lengths=lengths, taken_for=keras_lengths)
    return activated(site, _convolved(site, x, "conv_transpose", lengths, arguments))


# -- pooling layers


@layer("MaxPooling1D", "MaxPooling2D", order=CHANNELS_FIRST, types=KEPT_IN_FLOAT32)
@layer("MaxPooling3D", "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", order=CHANNELS_FIRST)
def _pooling(site: Site, x: Value) -> Value:
    name = site.layer.class_name.replace("Pooling", "Pool").replace("Average", "Avg")
    sizes, padding = site.per_spatial_axis("pool_size", 2), word(site)
    strides = site.per_spatial_axis("strides", sizes)
    lengths = _lengths(site, arithmetic.output_size, x, sizes, strides, 1, padding)
    shape = site.per_axis(x.shape[0], lengths, site.channels(x))
    return site.block(partial(getattr(nn, name), sizes, strides, padding=padding), x, shape=shape)[0]


@layer("GlobalMaxPooling1D", "GlobalMaxPooling2D", order=UNPADDED, types=KEPT_IN_FLOAT32)
@layer("GlobalMaxPooling3D", order=UNPADDED)
@layer("GlobalAveragePooling2D", "GlobalAveragePooling3D", order=UNPADDED, types=CAST_IN_KERAS[3])
def _global_pooling(site: Site, x: Value) -> Value:
    kind, keepdims = "max" if "Max" in site.layer.class_name else "avg", bool(site.config.get("keepdims", False))
    x = site.padded(x)
    if x.rank - 2 == site.num_spatial_dims and not x.transposed and not site.is_channels_first:
        # channels last, and no convolution around: no reason to turn it
        return site.function("mean" if kind == "avg" else "max", x, axis=tuple(site.spatial(x)), keepdims=keepdims)
    pooled = site.function(blocks.global_pool, site.channels_first(x), kind=kind, count=site.num_spatial_dims)
    return pooled if keepdims else site.function(blocks.reshape, pooled, transposed=False, to=(0, -1))


@layer("GlobalAveragePooling1D", order=UNPADDED, masks=TAKES, types=CAST_IN_KERAS[3])
def _global_average_of_steps(site: Site, x: Value) -> Value:
    """Returns the mean of the steps that are not masked."""
    if x.mask is None:
        return _global_pooling(site, x)
    keepdims, axis = bool(site.config.get("keepdims", False)), 2 if site.is_channels_first else 1
    replaces = site.version == 3
    mask = site.cast(x.mask, "bool") if replaces else x.mask
    options = {"axis": axis, "keepdims": keepdims, "replaces": replaces}
    return site.function(blocks.masked_mean, site.keras(x), mask, **options)._replace(mask=None)


@layer(*(f"Adaptive{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)), order=CHANNELS_FIRST)
def _adaptive_pooling(site: Site, x: Value) -> Value:
    """Pool by PyTorch's rule: output i of n is that of the elements from floor(i L / n) to ceil((i + 1) L / n)."""
    spans = [
        [(i * n // count, -(-(i + 1) * n // count)) for i in range(integer("output_size", count, 1, n))]
        for n, count in zip(site.static_sizes(x), site.per_spatial_axis("output_size"))
    ]
    return site.function(blocks.pool_spans, x, kind="max" if "Max" in site.layer.class_name else "mean", spans=spans)


@operator("max_pool", "avg_pool", order=UNPADDED, names={"ksize": "pool_size"})
def _pool(
    site: Site, x: Value, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: Any = None
) -> Value:
    """Pool as the layer of that name. TensorFlow's sizes may have entries for the batch and the channels."""
    rank, kind = x.rank - 2, "Max" if site.row.name == "max_pool" else "Average"
    config = {"padding": padding, **_of_operator(x, data_format, pool_size=pool_size, strides=strides)}
    return in_place(site, Layer(f"{kind}Pooling{rank}D", site.name, config), x)


# -- other weights at each position


@layer("LocallyConnected1D", "LocallyConnected2D", order=KERAS, weights=(KERNEL, BIAS))
def _locally_connected(site: Site, x: Value) -> Value:
    """Build a convolution with other weights at each position: kernels (positions, elements of a window, filters)."""
    config = site.config
    if config.get("implementation", 1) != 1 or site.is_channels_first or word(site) != "valid":
        raise InvalidValue("implementation must be 1, padding valid, and data_format channels_last")
    sizes, strides = site.per_spatial_axis("kernel_size"), site.per_spatial_axis("strides", 1)
    site.static_sizes(x)
    lengths = tuple(_lengths(site, arithmetic.output_size, x, sizes, strides, 1, "valid"))
    filters = site.integer("filters")
    shapes = {"weight": (math.prod(lengths), math.prod(sizes) * x.shape[-1], filters), "bias": (*lengths, filters)}
    out = site.weighted(blocks.locally_connected, x, shapes=shapes, sizes=sizes, strides=strides, lengths=lengths)
    return activated(site, out)
