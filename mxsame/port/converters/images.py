"""Converters of layers and operators that pad, crop and resize images."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from mxsame.keras_format import dtypes
from mxsame.port import blocks
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import random_layer
from mxsame.port.table import CHANNELS_FIRST, layer, operator
from mxsame.port.tensors import DynamicLength, Tensor
from mxsame.validation import check, check_element_count, integer, one_of, pads_of_axis

# -- padding and cropping


def _pairs(call: CallContext, x: Tensor, argument: str) -> List[Tuple[int, int]]:
    """Returns an entry of the configuration as one pair for each axis of x. The entry is an int, or a list with an int
    or a pair for each spatial axis."""
    value, count = call.config[argument], call.num_spatial_dims
    if count == 1 and isinstance(value, (list, tuple)) and not isinstance(value[0], (list, tuple)):
        value = [value]
    entries = value if isinstance(value, (list, tuple)) else [value] * count
    check(len(entries) == x.rank - 2, f"{argument} must have one entry for each of {x.rank - 2} axes")
    return call.in_data_format((0, 0), [pads_of_axis(argument, entry) for entry in entries], (0, 0))


@layer("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", order=CHANNELS_FIRST, dtypes=dtypes.STORED_AS_FLOAT32)
def _zero_padding(call: CallContext, x: Tensor) -> Tensor:
    """Pads with zeros. With channels first in MXNet, the pads stay pending, since a convolution may apply them."""
    pads = _pairs(call, x, "padding")
    shape = tuple(n if n is None else n + low + high for n, (low, high) in zip(x.shape, pads))
    check_element_count("the output", shape)
    if not x.transposed:
        return call.apply(blocks.pad, x, pads=pads)
    return x._replace(shape=shape, pads=tuple(pads[1:-1]))


@layer("Cropping1D", "Cropping2D", "Cropping3D", order=CHANNELS_FIRST, dtypes=dtypes.ANY_DTYPE)
def _cropping(call: CallContext, x: Tensor) -> Tensor:
    return _cropped(call, x, _pairs(call, x, "cropping"))


def _cropped(call: CallContext, x: Tensor, pairs: Sequence[Tuple[int, int]]) -> Tensor:
    has_elements = all(n is None or n - low - high > 0 for n, (low, high) in zip(x.shape, pairs))
    check(has_elements, "cropping must not remove all elements", **{"data.shape": x.shape})
    pairs = x.ordered(pairs)
    return call.apply("slice", x, begin=[low or None for low, _ in pairs], end=[-high or None for _, high in pairs])


# -- upsampling and resizing


@layer("UpSampling1D", "UpSampling3D", order=CHANNELS_FIRST, dtypes=dtypes.STORED_AS_FLOAT32)
@layer("UpSampling2D", order=CHANNELS_FIRST)
def _upsampling(call: CallContext, x: Tensor) -> Tensor:
    factors = call.per_spatial_axis("size")
    interpolation = call.config.get("interpolation", "nearest")
    is_nearest, is_bilinear = interpolation == "nearest", interpolation == "bilinear" and x.rank == 4
    rule = 'interpolation must be "nearest", or "bilinear" for images'
    check(is_nearest or is_bilinear, rule, interpolation=interpolation)
    return call.apply(blocks.upsample if is_nearest else blocks.upsample_bilinear, x, factors=factors)


MAX_SIDE = 10_000  # rows or columns


def _nearest(length: int, size: int) -> np.ndarray:
    """Returns the nearest of `length` positions for each of `size` outputs, computed in float32 as in TensorFlow."""
    scale = np.float32(length) / np.float32(size)
    return np.array([min(int((np.float32(index) + np.float32(0.5)) * scale), length - 1) for index in range(size)])


def _cubic(length: int, size: int) -> np.ndarray:
    """Returns the weights (size, length) of bicubic interpolation (Keys 1981, a = -1/2). As in TensorFlow, distances
    are rounded to 1/1024, and the weights within the image are scaled to a sum of 1."""
    integer("length", length, 1, MAX_SIDE)
    weights: np.ndarray = np.zeros((size, length), dtype="float32")
    a = -0.5
    half, scale = np.float32(0.5), np.float32(length) / np.float32(size)
    for index in range(size):
        position = float((np.float32(index) + half) * scale - half)
        first = math.floor(position)
        for source in range(max(first - 1, 0), min(first + 3, length)):
            d = abs(source - first - round((position - first) * 1024) / 1024)  # the distance
            near, far = ((a + 2) * d - (a + 3)) * d**2 + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            weights[index, source] = near if d <= 1 else far
    return weights / weights.sum(1, keepdims=True)


def _pairs_for_aspect_ratio(call: CallContext, x: Tensor, size: Sequence[int], is_pad: bool) -> List[Tuple[int, int]]:
    """Returns how much to pad or crop each axis for the aspect ratio of `size`, computed in float32 as in Keras."""
    (height, width), (new_height, new_width) = call.static_spatial_shape(x), size
    products, lengths = (width * new_height, height * new_width), (new_width, new_height)
    targets = [int(np.float32(product) / np.float32(length)) for product, length in zip(products, lengths)]
    pairs = []
    for length, target in zip((height, width), targets):
        half, odd = divmod(max(target - length, 0) if is_pad else length - min(length, max(target, 1)), 2)
        pairs.append((half, half if is_pad else half + odd))
    return call.in_data_format((0, 0), pairs, (0, 0))


@operator("resize", order=CHANNELS_FIRST, dtypes=dtypes.SETS_DTYPE, aliases={"method": "interpolation"},
          lengths=("size",))  # fmt: skip
def _resize(call: CallContext, x: Tensor, size: Any, interpolation: str = "bilinear",
            crop_to_aspect_ratio: bool = False, pad_to_aspect_ratio: bool = False, fill_mode: str = "constant",
            fill_value: float = 0.0, data_format: Optional[str] = None) -> Tensor:  # fmt: skip
    """Resizes as `tf.image.resize` does without antialiasing, after cropping or padding to the new aspect ratio."""
    is_supported = x.rank == 4 and data_format in (None, "channels_last") and fill_mode == "constant"
    rule = "data must be images with channels last, and fill_mode constant"
    check(is_supported, rule, shape=x.shape, data_format=data_format, fill_mode=fill_mode)
    method = one_of("interpolation", interpolation, ("bilinear", "nearest", "bicubic"))
    if method == "nearest" or call.version == 3:  # Keras's output has the dtype of the data, not float32
        dtypes.check_dtype(x.dtype, dtypes.FLOAT32)
    x = call.cast(x, "float32")
    if all(isinstance(length, DynamicLength) and length.tensor for length in size) and method != "bicubic":
        return _resized_like(call, x, size, method == "nearest")
    height, width = size = [integer("size", length, 1, MAX_SIDE) for length in size]
    if crop_to_aspect_ratio:
        x = _cropped(call, x, _pairs_for_aspect_ratio(call, x, size, is_pad=False))
    elif pad_to_aspect_ratio:
        pads = _pairs_for_aspect_ratio(call, x, size, is_pad=True)
        x = call.apply(blocks.pad, x, pads=x.ordered(pads), value=fill_value)
    if method == "bilinear":
        return call.apply(blocks.resize_bilinear, x, size=(height, width))
    formula = _nearest if method == "nearest" else _cubic
    arrays = dict(zip(("rows", "columns"), map(formula, call.static_spatial_shape(x), size)))
    if method == "nearest":
        return call.constant(blocks.resize_nearest, x, arrays)
    return call.constant(blocks.resize_by_matrix, x, arrays, size=(height, width))


def _resized_like(call: CallContext, x: Tensor, size: Sequence[Any], is_nearest: bool) -> Tensor:
    """Resizes to dynamic lengths of other tensors."""
    axes = [length.tensor.axis(length.axis) for length in size]
    others = [length.tensor for length in reversed(size)]
    shape = (x.shape[0], None, None, x.shape[-1])
    return call.apply(blocks.resize_like, x, *others, shape=shape, axes=axes, nearest=is_nearest)


RESIZE_OPTIONS = ("interpolation", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "fill_mode", "fill_value")


@layer("Resizing", order=CHANNELS_FIRST, dtypes=dtypes.CAST_IN_KERAS[2])
def _resizing(call: CallContext, x: Tensor) -> Tensor:
    options = {name: call.config[name] for name in RESIZE_OPTIONS if name in call.config}
    return _resize(call, x, (call.config["height"], call.config["width"]), **options)


@layer("CenterCrop", order=CHANNELS_FIRST, dtypes=dtypes.CAST)
def _center_crop(call: CallContext, x: Tensor) -> Tensor:
    """Crops the center. Images that are too small are resized, after a crop to the new aspect ratio, as in Keras."""
    check(x.rank == 4, "data must be images", shape=x.shape)
    size = [integer(name, call.config[name], 1) for name in ("height", "width")]
    surplus = [-1 if n is None else n - length for n, length in zip(call.spatial_shape(x), size)]
    if min(surplus) < 0:
        return _resize(call, x, size, crop_to_aspect_ratio=True)
    return _cropped(call, x, call.in_data_format((0, 0), [(n // 2, n - n // 2) for n in surplus], (0, 0)))


@layer("RandomCrop", order=CHANNELS_FIRST, dtypes=dtypes.CAST, ignored="data_format")
def _random_crop(call: CallContext, x: Tensor) -> Tensor:
    """Builds what Keras does at inference: Keras 2 crops to the new aspect ratio and resizes, Keras 3 does nothing."""
    is_identity = call.version == 3
    x = random_layer(call, x, ", and images keep their size, as in Keras's predict" if is_identity else "")
    size = call.config["height"], call.config["width"]
    return x if is_identity else _resize(call, x, size, crop_to_aspect_ratio=True)


@operator("depth_to_space", order=CHANNELS_FIRST, dtypes=dtypes.ANY_DTYPE)
@operator("space_to_depth", order=CHANNELS_FIRST)
def _depth_to_space(call: CallContext, x: Tensor, block_size: int, data_format: str = "NHWC") -> Tensor:
    block = integer("block_size", block_size, 1)
    is_channels_last = data_format in ("NHWC", "channels_last") and x.rank == 4
    check(is_channels_last, "data must be images with channels last", data_format=data_format, shape=x.shape)
    return call.apply(call.converter.name, x, block_size=block)
