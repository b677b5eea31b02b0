"""Converters of convolutions and pooling layers.

`mxsame.padding` computes the shapes of their outputs, since MXNet cannot infer the shapes of SAME padding.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from mxsame import nn, padding as arithmetic, validation
from mxsame.keras_format.description import BIAS, KERNEL, Layer, WeightSpec
from mxsame.keras_format.dtypes import CAST_IN_KERAS, STORED_AS_FLOAT32
from mxsame.padding.keras_mxnet import KERAS_MXNET
from mxsame.port import blocks
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import (
    LORA,
    activate,
    merge_into_batch,
    padding_of,
    split_from_batch,
    window_arguments,
)
from mxsame.port.parameters import UNCHANGED, Conversion, kernel
from mxsame.port.table import CHANNELS_FIRST, HANDLES_MASK, KERAS_ORDER, PADS_PENDING, delegate, layer, operator
from mxsame.port.tensors import Operand, Tensor
from mxsame.validation import check, integer, pads_of_axis

DEPTHWISE = WeightSpec("depthwise_kernel", "weight")
SEPARABLE = [*(WeightSpec(f"{name}_kernel", f"{name}_weight") for name in ("depthwise", "pointwise")), BIAS]
CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D")


def _out_lengths(call: CallContext, rule: Callable, x: Tensor, strides: Any, **arguments: Any) -> List[Optional[int]]:
    """Returns rule(length, stride=.., **arguments) for each spatial axis, and None for a dynamic length. An argument is
    a tuple with one entry per axis, or one value for all axes."""
    arguments["stride"], lengths = strides, []
    for axis, n in enumerate(call.spatial_shape(x)):
        of_axis = {name: value[axis] if isinstance(value, tuple) else value for name, value in arguments.items()}
        lengths.append(None if n is None else rule(n, **of_axis))
    return lengths


# -- convolutions


def _regrouped(array: Any, multiplier: int) -> Any:
    return array.reshape(-1, multiplier, *array.shape[2:])


def _conversion(spec: WeightSpec, is_transposed: bool, depth_multiplier: int) -> Conversion:
    """Returns the conversion of a weight. keras-mxnet stores channels-first kernels in MXNet's order already."""
    is_depthwise = spec.name == "depthwise_kernel"
    if spec.from_keras_mxnet and is_depthwise:
        return Conversion(  # (C, m, *k) <-> (C*m, 1, *k)
            partial(_regrouped, multiplier=1),
            partial(_regrouped, multiplier=depth_multiplier),
        )
    if spec.from_keras_mxnet or spec.name == "bias":
        return UNCHANGED
    if is_depthwise:
        return kernel("depthwise", depth_multiplier)
    return kernel("conv_transpose" if is_transposed else "pointwise" if spec.name == "pointwise_kernel" else "conv")


def _has_weight(call: CallContext, name: str) -> bool:
    """Returns whether the layer's class has a weight of this name."""
    return any(spec.name == name for spec in call.converter.weights)


def _add_convolution(call: CallContext, x: Tensor, lengths: Sequence[Optional[int]], arguments: dict,
                     is_transposed: bool = False) -> Tensor:  # fmt: skip
    """Adds the layer of `mxsame.nn` with the name of the Keras class, and returns its output, which has these lengths
    along the spatial axes."""
    config, layer_class, in_channels = call.config, getattr(nn, call.layer.class_name), call.channels(x)
    multiplier = config.get("depth_multiplier", 1)
    arguments.update(use_bias=config.get("use_bias", True), in_channels=in_channels or 0)
    if _has_weight(call, "depthwise_kernel"):
        arguments["depth_multiplier"] = multiplier
        channels = in_channels and in_channels * multiplier
    else:
        arguments["groups"] = config.get("groups", 1)
    if _has_weight(call, "kernel") or _has_weight(call, "pointwise_kernel"):
        channels = arguments["channels"] = config["filters"]
    conversions = {spec.name: _conversion(spec, is_transposed, multiplier) for spec in call.layer.weight_specs or ()}
    shape = call.in_data_format(x.shape[0], lengths, channels)
    return call.add_block(partial(layer_class, **arguments), x, conversions=conversions, shape=shape)[0]


@layer(*CONVOLUTIONS, order=PADS_PENDING, weights=(KERNEL, BIAS), ignored=LORA)
@layer("DepthwiseConv1D", "DepthwiseConv2D", order=PADS_PENDING, weights=(DEPTHWISE, BIAS), ignored="groups")
@layer("SeparableConv1D", "SeparableConv2D", order=PADS_PENDING, weights=SEPARABLE, ignored="groups")
def _convolution(call: CallContext, x: Tensor) -> Tensor:
    """Builds a convolution and its activation. The data may have several batch axes."""
    count = x.rank - call.num_spatial_dims - 2
    if count > 0 and call.layer.class_name in CONVOLUTIONS and not call.is_channels_first:
        out = split_from_batch(call, _convolution_with_one_batch_axis(call, merge_into_batch(call, x, count)), x, count)
    else:
        out = _convolution_with_one_batch_axis(call, x)
    return activate(call, out)


def _convolution_with_one_batch_axis(call: CallContext, x: Tensor) -> Tensor:
    """Builds a convolution without its activation. If it is "valid", it absorbs a ZeroPadding layer before it."""
    arguments = window_arguments(call)
    if x.pads is not None and not call.is_channels_first and arguments["padding"] == "valid" and call.is_only_call:
        arguments["padding"], x = x.pads, x.without_pads
    x, strides = call.to_channels_first(x), arguments["strides"]
    is_supported = max(strides) == 1 or max(arguments["dilation"]) == 1 or _has_weight(call, "kernel")
    check(is_supported, "strides and dilation_rate must not both be above 1", strides=strides)
    lengths = _out_lengths(call, arithmetic.output_size, x, **arguments)
    return _add_convolution(call, x, lengths, arguments)


LAYER_CLASSES = {**{f"conv{rank}d": f"Conv{rank}D" for rank in (1, 2, 3)}, "depthwise_conv2d": "DepthwiseConv2D"}


@operator(*LAYER_CLASSES, "conv", "depthwise_conv", order=PADS_PENDING,
          aliases={"filter": "kernel", "filters": "kernel", "stride": "strides", "rate": "dilations",
                 "dilation_rate": "dilations"})  # fmt: skip
def _convolution_operator(
    call: CallContext, x: Tensor, kernel: Operand, strides: Any = 1, padding: Any = "valid", data_format: Any = None,
    dilations: Any = None, use_cudnn_on_gpu: bool = True,
) -> Tensor:  # fmt: skip
    """Convolves with a constant kernel, through the converter of the layer. TensorFlow's padding may be one pair for
    each axis, including the batch and the channels."""
    array, is_depthwise = np.asarray(kernel), call.converter.name.startswith("depthwise")
    check(not isinstance(kernel, Tensor), "kernel must be a constant")
    class_name = LAYER_CLASSES.get(call.converter.name, f"{'Depthwise' * is_depthwise}Conv{x.rank - 2}D")
    config = _layer_config(x, data_format, strides=strides, dilation_rate=dilations)
    if not isinstance(padding, str):
        pads = x.ordered([pads_of_axis("padding", pair) for pair in padding])
        x, padding = call.apply(blocks.pad, call.padded(x), pads=pads), "valid"
    config.update(padding=padding, kernel_size=array.shape[:-2], use_bias=False, trainable=False)
    if is_depthwise:
        config["depth_multiplier"] = array.shape[-1]
    else:
        channels = x.shape[1 if config["data_format"] == "channels_first" else -1] or array.shape[-2]
        config.update(filters=array.shape[-1], groups=channels // array.shape[-2])
    spec = DEPTHWISE if is_depthwise else KERNEL
    return delegate(call, Layer(class_name, call.name, config, weights=[array], weight_specs=[spec]), x)


def _layer_config(x: Tensor, data_format: Any, **arguments: Any) -> Dict[str, Any]:
    """Returns the configuration of a layer from the arguments of an operator. TensorFlow's arguments may have entries
    for the batch and the channels, which must be 1."""
    is_channels_first = str(data_format) == "channels_first" or str(data_format).startswith("NC")
    config: Dict[str, Any] = {"data_format": "channels_first" if is_channels_first else "channels_last"}
    for name, value in arguments.items():
        entries = value
        if isinstance(value, list) and len(value) == x.rank:
            entries, others = (value[2:], value[:2]) if is_channels_first else (value[1:-1], [value[0], value[-1]])
            check(others == [1, 1], f"{name} must be 1 for the batch and the channels", **{name: value})
        config[name] = entries[0] if isinstance(entries, list) and len(entries) == 1 else entries
    return config


@layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose", order=CHANNELS_FIRST, weights=(KERNEL, BIAS))
def _transposed_convolution(call: CallContext, x: Tensor) -> Tensor:
    arguments, output_padding = window_arguments(call), call.config.get("output_padding")
    if output_padding is not None:
        output_padding = validation.per_axis("output_padding", output_padding, call.num_spatial_dims, 0)
    arguments["output_padding"] = output_padding
    lengths = _out_lengths(call, arithmetic.transposed_output_size, x, **arguments)
    if arguments["padding"] == KERAS_MXNET:
        keras_lengths = _out_lengths(call, arithmetic.keras_transposed_size, x, **{**arguments, "padding": "same"})
        rule = "the output size that keras-mxnet infers must be the one that MXNet computes"
        check(keras_lengths == lengths, rule, lengths=lengths, inferred=keras_lengths)
    return activate(call, _add_convolution(call, x, lengths, arguments, is_transposed=True))


# -- pooling layers


@layer("MaxPooling1D", "MaxPooling2D", order=CHANNELS_FIRST, dtypes=STORED_AS_FLOAT32)
@layer("MaxPooling3D", "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", order=CHANNELS_FIRST)
def _pooling(call: CallContext, x: Tensor) -> Tensor:
    name = call.layer.class_name.replace("Pooling", "Pool").replace("Average", "Avg")
    sizes, padding = call.per_spatial_axis("pool_size", 2), padding_of(call)
    strides = call.per_spatial_axis("strides", sizes)
    lengths = _out_lengths(call, arithmetic.output_size, x, kernel_size=sizes, strides=strides, padding=padding)
    shape = call.in_data_format(x.shape[0], lengths, call.channels(x))
    return call.add_block(partial(getattr(nn, name), sizes, strides, padding=padding), x, shape=shape)[0]


@layer("GlobalMaxPooling1D", "GlobalMaxPooling2D", order=PADS_PENDING, dtypes=STORED_AS_FLOAT32)
@layer("GlobalMaxPooling3D", order=PADS_PENDING)
@layer("GlobalAveragePooling2D", "GlobalAveragePooling3D", order=PADS_PENDING, dtypes=CAST_IN_KERAS[3])
def _global_pooling(call: CallContext, x: Tensor) -> Tensor:
    kind, keepdims = "max" if "Max" in call.layer.class_name else "avg", bool(call.config.get("keepdims", False))
    x = call.padded(x)
    if x.rank - 2 == call.num_spatial_dims and not x.transposed and not call.is_channels_first:
        # the array has Keras's axis order: reducing it needs no transposition
        return call.apply("mean" if kind == "avg" else "max", x, axis=tuple(call.spatial_axes(x)), keepdims=keepdims)
    pooled = call.apply(blocks.global_pool, call.to_channels_first(x), kind=kind, count=call.num_spatial_dims)
    return pooled if keepdims else call.apply(blocks.reshape, pooled, transposed=False, to=(0, -1))


@layer("GlobalAveragePooling1D", order=PADS_PENDING, masks=HANDLES_MASK, dtypes=CAST_IN_KERAS[3])
def _global_average_pooling_1d(call: CallContext, x: Tensor) -> Tensor:
    """Averages the time steps that are not masked."""
    if x.mask is None:
        return _global_pooling(call, x)
    keepdims, axis = bool(call.config.get("keepdims", False)), 2 if call.is_channels_first else 1
    zeroes_masked = call.version == 3
    mask = call.cast(x.mask, "bool") if zeroes_masked else x.mask
    options = {"axis": axis, "keepdims": keepdims, "zeroes_masked": zeroes_masked}
    return call.apply(blocks.masked_mean, call.to_keras_order(x), mask, **options)._replace(mask=None)


@layer(*(f"Adaptive{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)), order=CHANNELS_FIRST)
def _adaptive_pooling(call: CallContext, x: Tensor) -> Tensor:
    """Pools by PyTorch's rule: output i of `count` covers the elements from floor(i * n / count) up to, but excluding,
    ceil((i + 1) * n / count)."""
    spans = [
        [(i * n // count, -(-(i + 1) * n // count)) for i in range(integer("output_size", count, 1, n))]
        for n, count in zip(call.static_spatial_shape(x), call.per_spatial_axis("output_size"))
    ]
    return call.apply(blocks.adaptive_pool, x, kind="max" if "Max" in call.layer.class_name else "mean", spans=spans)


@operator("max_pool", "avg_pool", order=PADS_PENDING, aliases={"ksize": "pool_size"})
def _pool(
    call: CallContext, x: Tensor, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: Any = None
) -> Tensor:
    """Pools through the converter of the layer."""
    kind = "Max" if call.converter.name == "max_pool" else "Average"
    config = {"padding": padding, **_layer_config(x, data_format, pool_size=pool_size, strides=strides)}
    return delegate(call, Layer(f"{kind}Pooling{x.rank - 2}D", call.name, config), x)


# -- locally connected layers


@layer("LocallyConnected1D", "LocallyConnected2D", order=KERAS_ORDER, weights=(KERNEL, BIAS))
def _locally_connected(call: CallContext, x: Tensor) -> Tensor:
    """Builds a convolution with its own weights for each position. They have the shape (positions, window elements,
    filters)."""
    options = {"implementation": call.config.get("implementation", 1), "padding": padding_of(call)}
    is_supported = options == {"implementation": 1, "padding": "valid"} and not call.is_channels_first
    rule = "implementation must be 1, padding valid, and data_format channels_last"
    check(is_supported, rule, **options, data_format=call.config.get("data_format"))
    sizes, strides = call.per_spatial_axis("kernel_size"), call.per_spatial_axis("strides", 1)
    call.static_spatial_shape(x)  # refuses a dynamic size
    lengths = tuple(_out_lengths(call, arithmetic.output_size, x, kernel_size=sizes, strides=strides, padding="valid"))
    filters = call.integer("filters")
    shapes = {"weight": (math.prod(lengths), math.prod(sizes) * x.shape[-1], filters), "bias": (*lengths, filters)}
    out = call.apply_with_weights(
        blocks.locally_connected, x, shapes=shapes, sizes=sizes, strides=strides, lengths=lengths
    )
    return activate(call, out)
