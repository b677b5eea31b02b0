"""Rows of layers with windows: convolutions, pooling layers, and what pads, crops and resizes pictures.

Only here shapes are computed by hand, with the formulas of `mxsame.padding`: MXNet cannot infer those of SAME.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame import nn, validation
from mxsame import padding as arithmetic
from mxsame.port import blocks, types
from mxsame.port.activations import activated
from mxsame.port.builder import SAME, Conversion, OpenLength, Site, Value, kernel
from mxsame.port.description import Weight
from mxsame.port.layers import BIAS, KERNEL, random_layer
from mxsame.port.rows import FIRST, KERAS, TAKES, UNPADDED, layer, operator

DEPTHWISE = Weight("depthwise_kernel", "weight")
SEPARABLE = (Weight("depthwise_kernel", "depthwise_weight"), Weight("pointwise_kernel", "pointwise_weight"), BIAS)
CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D")


def _word(site: Site) -> str:
    """The layer's padding."""
    word = str(site.config.get("padding", "valid")).lower()
    return arithmetic.KERAS_MXNET if site.builder.keras_mxnet and word == "same" else word


def window(site: Site) -> Dict[str, Any]:
    """The windows of a convolution, as arguments of its layer of `mxsame.nn`, in the order of `mxsame.padding`."""
    return {
        "kernel_size": site.per_spatial_axis("kernel_size"),
        "strides": site.per_spatial_axis("strides", 1),
        "dilation": site.per_spatial_axis("dilation_rate", 1),
        "padding": _word(site),
    }


def _lengths(site: Site, rule: Callable, x: Value, *given: Any) -> List[Optional[int]]:
    """A length for each spatial axis: what `rule` makes of it and of what is given, for each axis or for all."""
    per_axis = (entry if isinstance(entry, tuple) else itertools.repeat(entry) for entry in given)
    return [None if n is None else rule(n, *entries) for n, *entries in zip(site.sizes(x), *per_axis)]


def _static(site: Site, x: Value) -> Tuple[Any, ...]:
    """The lengths of the spatial axes, which must be static."""
    if None in site.sizes(x):
        raise ValueError(f"data must have a static size; {validation.received(**{'data.shape': x.shape})}")
    return site.sizes(x)


def _conversion(site: Site, kind: str, depth_multiplier: int) -> Conversion:
    """From a kernel as it is stored: keras-mxnet stores those of channels first in MXNet's order."""
    if not site.layer.native or not site.is_channels_first:
        return kernel(kind, depth_multiplier if kind == "depthwise" else None)
    if kind != "depthwise":
        return SAME
    return Conversion(  # (C, m, *k) <-> (C*m, 1, *k)
        lambda array: array.reshape(-1, 1, *array.shape[2:]),
        lambda array: array.reshape(-1, depth_multiplier, *array.shape[2:]),
    )


def _convolved(site: Site, x: Value, kind: str, lengths: Sequence[Optional[int]], arguments: dict) -> Value:
    """The layer's block of `mxsame.nn`, which has the class's name, and its activation."""
    config, layer_class, in_channels = site.config, getattr(nn, site.layer.class_name), site.channels(x)
    multiplier = config.get("depth_multiplier", 1)
    kinds = {"kernel": kind, "depthwise_kernel": "depthwise", "pointwise_kernel": "pointwise"}
    arguments.update(use_bias=config.get("use_bias", True), in_channels=in_channels or 0)
    if kind in ("depthwise", "separable"):
        arguments["depth_multiplier"] = multiplier
    if kind in ("conv", "transposed"):
        arguments["groups"] = config.get("groups", 1)
    channels = in_channels and in_channels * multiplier
    if kind != "depthwise":
        channels = arguments["channels"] = config["filters"]
    conversions = {name: _conversion(site, each, multiplier) for name, each in kinds.items()}
    shape = site.per_axis(x.shape[0], lengths, channels)
    out = site.block(partial(layer_class, **arguments), x, conversions=conversions, shape=shape)
    return activated(site, out)


@layer(*CONVOLUTIONS, order=UNPADDED, weights=(KERNEL, BIAS))
@layer("DepthwiseConv1D", "DepthwiseConv2D", order=UNPADDED, weights=(DEPTHWISE, BIAS), unread="groups")
@layer("SeparableConv1D", "SeparableConv2D", order=UNPADDED, weights=SEPARABLE, unread="groups")
def _convolution(site: Site, x: Value) -> Value:
    """Zeros that a layer before puts around the data become pads of a "valid" convolution."""
    class_name = site.layer.class_name
    kind = "conv" if class_name in CONVOLUTIONS else "depthwise" if class_name.startswith("Depth") else "separable"
    arguments = window(site)
    if x.pads is not None and not site.is_channels_first and arguments["padding"] == "valid" and site.once:
        arguments["padding"], x = x.pads, x.without_pads
    x, strides = site.first(x), arguments["strides"]
    if max(strides) > 1 and max(arguments["dilation"]) > 1 and kind != "conv":
        raise ValueError(f"strides and dilation_rate must not both be above 1; {validation.received(strides=strides)}")
    lengths = _lengths(site, arithmetic.output_size, x, *arguments.values())
    return _convolved(site, x, kind, lengths, arguments)


@layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose", order=FIRST, weights=(KERNEL, BIAS))
def _transposed(site: Site, x: Value) -> Value:
    arguments, extra = window(site), site.config.get("output_padding")
    count = len(arguments["strides"])
    arguments["output_padding"] = None if extra is None else validation.per_axis("output_padding", extra, count, 0)
    lengths = _lengths(site, arithmetic.transposed_output_size, x, *arguments.values())
    if arguments["padding"] == arithmetic.KERAS_MXNET:
        keras_lengths = _lengths(site, arithmetic.keras_transposed_size, x, *{**arguments, "padding": "same"}.values())
        if keras_lengths != lengths:
            raise ValueError(
                "keras-mxnet must take its output for the shape that it has; "
                f"{validation.received(lengths=lengths, taken_for=keras_lengths)}"
            )
    return _convolved(site, x, "transposed", lengths, arguments)


@layer("MaxPooling1D", "MaxPooling2D", "MaxPooling3D", order=FIRST)
@layer("AveragePooling1D", "AveragePooling2D", "AveragePooling3D", order=FIRST)
def _pooling(site: Site, x: Value) -> Value:
    name = site.layer.class_name.replace("Pooling", "Pool").replace("Average", "Avg")
    sizes, word = site.per_spatial_axis("pool_size", 2), _word(site)
    strides = site.per_spatial_axis("strides", sizes)
    lengths = _lengths(site, arithmetic.output_size, x, sizes, strides, 1, word)
    shape = site.per_axis(x.shape[0], lengths, site.channels(x))
    return site.block(partial(getattr(nn, name), sizes, strides, padding=word), x, shape=shape)


@layer("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D", order=UNPADDED)
@layer("GlobalAveragePooling2D", "GlobalAveragePooling3D", order=UNPADDED)
def _global_pooling(site: Site, x: Value) -> Value:
    kind, keepdims = "max" if "Max" in site.layer.class_name else "avg", bool(site.config.get("keepdims", False))
    x = site.builder.padded(x)
    if x.rank - 2 == site.num_spatial_dims and not x.first and not site.is_channels_first:
        # channels last, and no convolution around: no reason to turn it
        return site.function("mean" if kind == "avg" else "max", x, axis=tuple(site.spatial(x)), keepdims=keepdims)
    pooled = site.function(blocks.global_pool, site.first(x), kind=kind, count=site.num_spatial_dims)
    return pooled if keepdims else site.function(blocks.reshape, pooled, first=False, to=(0, -1))


@layer("GlobalAveragePooling1D", order=UNPADDED, masks=TAKES)
def _global_average_of_steps(site: Site, x: Value) -> Value:
    """Of the steps that are not masked."""
    if x.mask is None:
        return _global_pooling(site, x)
    keepdims, axis = bool(site.config.get("keepdims", False)), 2 if site.is_channels_first else 1
    return site.function(blocks.masked_mean, site.keras(x), x.mask, axis=axis, keepdims=keepdims)._replace(mask=None)


@layer(*(f"Adaptive{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)), order=FIRST)
def _adaptive_pooling(site: Site, x: Value) -> Value:
    """PyTorch's rule: output i of n is that of the elements from floor(i L / n) to ceil((i + 1) L / n)."""
    spans = [
        [(i * n // count, -(-(i + 1) * n // count)) for i in range(validation.integer("output_size", count, 1, n))]
        for n, count in zip(_static(site, x), site.per_spatial_axis("output_size"))
    ]
    return site.function(blocks.pool_spans, x, kind="max" if "Max" in site.layer.class_name else "mean", spans=spans)


# -- other weights at each position


@layer("LocallyConnected1D", "LocallyConnected2D", order=KERAS, weights=(KERNEL, BIAS))
def _locally_connected(site: Site, x: Value) -> Value:
    """A convolution with other weights at each position: kernels (positions, elements of a window, filters)."""
    config = site.config
    if config.get("implementation", 1) != 1 or site.is_channels_first or _word(site) != "valid":
        raise ValueError("implementation must be 1, padding valid, and data_format channels_last")
    sizes, strides = site.per_spatial_axis("kernel_size"), site.per_spatial_axis("strides", 1)
    _static(site, x)
    lengths = tuple(_lengths(site, arithmetic.output_size, x, sizes, strides, 1, "valid"))
    filters = validation.integer("filters", config["filters"], 1)
    shapes = {"weight": (math.prod(lengths), math.prod(sizes) * x.shape[-1], filters), "bias": (*lengths, filters)}
    out = site.weighted(blocks.locally_connected, x, shapes=shapes, sizes=sizes, strides=strides, lengths=lengths)
    return activated(site, out)


# -- zeros around, and less of it


def _pairs(site: Site, x: Value, argument: str) -> List[Tuple[int, int]]:
    """Padding and cropping, a pair for each axis, from an int, one for each spatial axis, or pairs."""
    value, count = site.config[argument], site.num_spatial_dims or 0
    if count == 1 and isinstance(value, (list, tuple)) and not isinstance(value[0], (list, tuple)):
        value = [value]
    entries = value if isinstance(value, (list, tuple)) else [value] * count
    if len(entries) != x.rank - 2:
        raise ValueError(f"{argument} must have one entry for each of {x.rank - 2} axes")
    return site.per_axis((0, 0), [validation.pads_of_axis(argument, entry) for entry in entries], (0, 0))


@layer("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", order=FIRST)
def _zero_padding(site: Site, x: Value) -> Value:
    """Left to a convolution that follows; any other layer has the zeros put around the data."""
    per_axis = _pairs(site, x, "padding")
    shape = tuple(n if n is None else n + low + high for n, (low, high) in zip(x.shape, per_axis))
    validation.elements("the output", shape)
    if not x.first:
        return site.function(blocks.pad, x, pads=per_axis)
    return x._replace(shape=shape, pads=tuple(per_axis[1:-1]))


@layer("Cropping1D", "Cropping2D", "Cropping3D", order=FIRST)
def _cropping(site: Site, x: Value) -> Value:
    return _cropped(site, x, _pairs(site, x, "cropping"))


def _cropped(site: Site, x: Value, per_axis: Sequence[Tuple[int, int]]) -> Value:
    if any(n is not None and n - low - high < 1 for n, (low, high) in zip(x.shape, per_axis)):
        raise ValueError(f"cropping must leave elements; {validation.received(**{'data.shape': x.shape})}")
    here = x.ordered(per_axis)
    return site.function("slice", x, begin=[low or None for low, _ in here], end=[-high or None for _, high in here])


# -- other sizes


@layer("UpSampling1D", "UpSampling2D", "UpSampling3D", order=FIRST)
def _upsampling(site: Site, x: Value) -> Value:
    factors = site.per_spatial_axis("size")
    interpolation = site.config.get("interpolation", "nearest")
    if interpolation == "nearest" or site.builder.keras_mxnet:  # which has no other
        return site.function(blocks.upsample, x, factors=factors)
    if interpolation == "bilinear" and x.rank == 4:
        return site.function("upsample_bilinear", x, factors=factors)
    raise ValueError(
        'interpolation must be "nearest", or "bilinear" for pictures; '
        f"{validation.received(interpolation=interpolation)}"
    )


LARGEST_INDEX = 10_000  # rows or columns


def _nearest(length: int, size: int) -> np.ndarray:
    """The position of each of `size` elements, computed in float32 as TensorFlow does."""
    scale = np.float32(length) / np.float32(size)
    return np.array([min(int((np.float32(index) + np.float32(0.5)) * scale), length - 1) for index in range(size)])


def _cubic(length: int, size: int) -> np.ndarray:
    """(size, length): the weight of each element for each new one, by the kernel of Keys 1981 with a = -1/2, of which
    TensorFlow has a table of 1,024 steps; elements beyond the ends have none, and the others sum to 1."""
    validation.integer("length", length, 1, LARGEST_INDEX)
    a, weights = -0.5, np.zeros((size, length), dtype="float32")
    half, scale = np.float32(0.5), np.float32(length) / np.float32(size)
    for index in range(size):
        position = float((np.float32(index) + half) * scale - half)
        first = math.floor(position)
        for source in range(max(first - 1, 0), min(first + 3, length)):
            away = abs(source - first - round((position - first) * 1024) / 1024)
            near, far = ((a + 2) * away - (a + 3)) * away**2 + 1, ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
            weights[index, source] = near if away <= 1 else far
    return weights / weights.sum(1, keepdims=True)


def _fitting(site: Site, x: Value, size: Sequence[int], padded: bool) -> List[Tuple[int, int]]:
    """What is cropped from each axis, or padded, for the ratio of the lengths of `size`: Keras's rule, in float32."""
    (height, width), (new_height, new_width) = _static(site, x), size
    wanted = (
        int(np.float32(width * new_height) / np.float32(new_width)),
        int(np.float32(height * new_width) / np.float32(new_height)),
    )
    pairs = []
    for length, fit in zip((height, width), wanted):
        half, odd = divmod(max(fit - length, 0) if padded else length - min(length, max(fit, 1)), 2)
        pairs.append((half, half if padded else half + odd))
    return site.per_axis((0, 0), pairs, (0, 0))


@operator("resize", order=FIRST, names={"method": "interpolation"})
def _resize(
    site: Site, x: Value, size: Any, interpolation: str = "bilinear", antialias: bool = False,
    preserve_aspect_ratio: bool = False, crop_to_aspect_ratio: bool = False, pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant", fill_value: float = 0.0, data_format: Optional[str] = None,
) -> Value:  # fmt: skip
    """`tf.image.resize` without antialiasing, after a crop or padding for the new ratio of the lengths."""
    if antialias or preserve_aspect_ratio or fill_mode != "constant" or data_format not in (None, "channels_last"):
        raise ValueError("antialias and preserve_aspect_ratio must be False, and channels last")
    if x.rank != 4:
        raise ValueError(f"data must be pictures; {validation.received(**{'data.shape': x.shape})}")
    method = validation.mode("interpolation", interpolation, ("bilinear", "nearest", "bicubic"))
    if method == "nearest" or site.version == 3:  # whose output has the type of the data
        types.check(x.dtype, {"float32"})
    x = site.cast(x, "float32")
    if all(isinstance(length, OpenLength) for length in size) and method != "bicubic":
        return _resized_like(site, x, size, method == "nearest")
    height, width = size = [validation.integer("size", length, 1, LARGEST_INDEX) for length in size]
    if crop_to_aspect_ratio:
        x = _cropped(site, x, _fitting(site, x, size, padded=False))
    elif pad_to_aspect_ratio:
        x = site.function(blocks.pad, x, pads=x.ordered(_fitting(site, x, size, padded=True)), value=fill_value)
    if method == "bilinear":
        return site.function(blocks.resize_bilinear, x, size=(height, width))
    rule = _nearest if method == "nearest" else _cubic
    arrays = dict(zip(("rows", "columns"), map(rule, _static(site, x), size)))
    if method == "nearest":
        return site.constant(blocks.resize_nearest, x, arrays)
    return site.constant(blocks.resize_by_matrix, x, arrays, size=(height, width))


def _resized_like(site: Site, x: Value, size: Sequence[OpenLength], nearest: bool) -> Value:
    """To lengths of other tensors that the graph alone knows."""
    axes = [length.of_value.axis(length.axis) for length in size]
    others = [length.of_value for length in reversed(size)]
    shape = (x.shape[0], None, None, x.shape[-1])
    return site.function(blocks.resize_like, x, *others, shape=shape, axes=axes, nearest=nearest)


RESIZING = ("interpolation", "antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "fill_mode", "fill_value")


@layer("Resizing", order=FIRST)
def _resizing(site: Site, x: Value) -> Value:
    config = site.config
    options = {name: config[name] for name in RESIZING if name in config}
    return _resize(site, x, (config["height"], config["width"]), **options)


@layer("CenterCrop", order=FIRST)
def _center_crop(site: Site, x: Value) -> Value:
    """Of pictures that are too small for the crop, Keras resizes a part."""
    if x.rank != 4:
        raise ValueError(f"data must be pictures; {validation.received(**{'data.shape': x.shape})}")
    size = [validation.integer(name, site.config[name], 1) for name in ("height", "width")]
    surplus = [-1 if n is None else n - length for n, length in zip(site.sizes(x), size)]
    if min(surplus) < 0:
        return _resize(site, x, size, crop_to_aspect_ratio=True)
    return _cropped(site, x, site.per_axis((0, 0), [(n // 2, n - n // 2) for n in surplus], (0, 0)))


@layer("RandomCrop", order=FIRST, unread="(?!dtype).*")
def _random_crop(site: Site, x: Value) -> Value:
    """At inference Keras 2 resizes a part, and Keras 3 does nothing."""
    x = random_layer(site, x)
    size = site.config["height"], site.config["width"]
    return x if site.version == 3 else _resize(site, x, size, crop_to_aspect_ratio=True)


@operator("depth_to_space", "space_to_depth", order=FIRST)
def _depth_to_space(site: Site, x: Value, block_size: int, data_format: str = "NHWC") -> Value:
    block = validation.integer("block_size", block_size, 1)
    if data_format not in ("NHWC", "channels_last") or x.rank != 4:
        raise ValueError("data must be pictures with channels last")
    function = "depth_to_space" if "depth_to_space" in str(site.layer.operator) else "space_to_depth"
    return site.function(function, x, block_size=block)
