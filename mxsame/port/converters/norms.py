"""Converters of norms, and of what scales and shifts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.port import blocks
from mxsame.port.converters._shared import at_inference_only, axes_of, broadcasting
from mxsame.port.description import WeightSpec, listed
from mxsame.port.parameters import Conversion
from mxsame.port.table import (
    HANDLES_MASK,
    ORDER_OF_FIRST_CALL,
    PASSES_MASK,
    PASSES_MASK_IN_KERAS,
    CallContext,
    Tensor,
    layer,
    operator,
)
from mxsame.port.types import CAST, CAST_IN_KERAS
from mxsame.validation import check, check_divisible, check_shape, integer

GAMMA, BETA = WeightSpec("gamma", "gamma", "scale"), WeightSpec("beta", "beta", "center")
MOVING = (
    WeightSpec("moving_mean", "running_mean", trained=False),
    WeightSpec("moving_variance", "running_var", trained=False),
)
STATISTICS = [
    WeightSpec(name, parameter, unless="mean", trained=False)
    for name, parameter in (("mean", "mean"), ("variance", "variance"), ("count", ""))
]


def _axes(call: CallContext, x: Tensor) -> List[int]:
    """Returns the axes of the layer, by default the last."""
    return axes_of(call.config.get("axis", -1), x.rank)


# -- batch norms


@layer("BatchNormalization", "SyncBatchNormalization", order=ORDER_OF_FIRST_CALL, weights=(GAMMA, BETA, *MOVING),
       masks=HANDLES_MASK, types=CAST, ignored="synchronized|renorm_momentum")  # fmt: skip
def _batch_norm(call: CallContext, x: Tensor) -> Tensor:
    """Build a batch norm; several axes become one, which is the last."""
    axes = _axes(call, x)
    if len(axes) == 1:
        return _batch_norm_along(call, x, x.axis(axes[0]), x.shape[axes[0]], {})._replace(mask=x.mask)
    lengths = [x.shape[axis] for axis in axes]
    check(None not in lengths and 0 not in axes, "several axes must be static, and without the batch", axis=axes)
    full = [length if axis in axes else 1 for axis, length in enumerate(x.shape)]
    conversion = Conversion(np.ravel, lambda array: array.reshape(full))
    order = [axis for axis in range(x.rank) if axis not in axes]
    names = [spec.name for spec in call.layer.weight_specs or ()]
    moved = call.function("transpose", call.keras(x), axes=(*order, *axes))
    merged_axes = call.function(blocks.reshape, moved, to=(*(0 for _ in order), -1))._replace(mask=x.mask)
    out = _batch_norm_along(call, merged_axes, len(order), math.prod(lengths), dict.fromkeys(names, conversion))
    out = call.function("reshape_like", out, moved, shape=moved.shape)
    return call.function("transpose", out, axes=tuple(np.argsort([*order, *axes]).tolist()))._replace(mask=x.mask)


def _batch_norm_along(
    call: CallContext, x: Tensor, at: int, length: Optional[int], conversions: Dict[str, Any]
) -> Tensor:
    check(not call.training, "a batch norm must not be called with training=True")
    frozen = call.training is False or not call.layer.trainable
    if x.mask is not None and not frozen:
        at_inference_only(call, "takes the statistics of masked steps, too, in training here")
    of_rank = {3: blocks.BatchNorm1D, 5: blocks.BatchNorm3D} if at == 1 else {}
    make = of_rank.get(x.rank, mx.gluon.nn.BatchNorm)
    arguments = {
        "axis": at,
        "momentum": call.number("momentum", 0.99),
        "epsilon": call.number("epsilon", 1e-3),
        "center": call.config.get("center", True),
        "scale": call.config.get("scale", True),
        "use_global_stats": frozen,
        "gamma_initializer": "ones",
        "in_channels": length or 0,
    }
    return call.block(partial(make, **arguments), x, conversions=conversions, options=(frozen, at, x.rank))[0]


# -- other norms, with weights along some axes


def _over(x: Tensor, axes: Sequence[int], stored: Optional[tuple] = None) -> Tuple[tuple, Conversion]:
    """Returns the shape of a parameter over some axes of x, and the conversion from Keras's, which has those axes
    only."""
    full = [x.shape[axis] if axis in axes else 1 for axis in range(x.rank)]
    check(None not in full, "axes with weights must have static lengths", shape=x.shape)
    stored = tuple(x.shape[axis] for axis in sorted(axes)) if stored is None else stored

    def to_mxnet(array: Any) -> Any:
        check_shape("weight", array.shape, stored, "of its axes")
        return array.reshape(full).transpose(x.ordered(range(x.rank)))

    return tuple(x.ordered(full)), Conversion(to_mxnet, lambda array: array.transpose(x.keras_order).reshape(stored))


def _along(
    call: CallContext,
    function: Callable,
    x: Tensor,
    axes: Sequence[int],
    stored: Optional[tuple] = None,
    **arguments: Any,
) -> Tensor:
    """Call a function with the layer's weights, which have these axes of x."""
    used, conversion = _over(x, axes, stored)
    call.same_in_all_calls(
        order_of_weights=[sorted(axes).index(axis) for axis in x.ordered(range(x.rank)) if axis in axes]
    )
    weight_specs = call.layer.weight_specs or ()
    shapes, conversions = (
        {spec.parameter: used for spec in weight_specs},
        {spec.name: conversion for spec in weight_specs},
    )
    return call.weighted(function, x, shapes=shapes, conversions=conversions, **arguments)


@layer(
    "LayerNormalization", order=ORDER_OF_FIRST_CALL, weights=(GAMMA, BETA), masks=PASSES_MASK, types=CAST_IN_KERAS[2]
)
def _layer_norm(call: CallContext, x: Tensor) -> Tensor:
    """Normalize over axes, whose weights Keras keeps in the order in which the axes are given, and then reshapes."""
    axes, epsilon = _axes(call, x), call.number("epsilon", 1e-3)
    stored = tuple(x.shape[axis % x.rank] for axis in listed(call.config.get("axis", -1)))
    options = {"before": blocks.standardized, "over": x.axes(axes), "epsilon": epsilon}
    return _along(call, blocks.scale_shift, x, axes, stored, **options)


@layer("RMSNormalization", order=ORDER_OF_FIRST_CALL, weights=[WeightSpec("scale", "gamma")])
def _rms_norm(call: CallContext, x: Tensor) -> Tensor:
    axes, epsilon = _axes(call, x), call.number("epsilon", 1e-6)
    last = list(range(x.rank - len(axes), x.rank))
    check(axes == last, "axis must be the last axes: Keras multiplies them by scale", axis=axes)
    return _along(call, blocks.scale_shift, x, axes, before=blocks.rms, over=x.axes(axes), epsilon=epsilon)


@layer("GroupNormalization", weights=(GAMMA, BETA), masks=PASSES_MASK)
def _group_norm(call: CallContext, x: Tensor) -> Tensor:
    axis = _axes(call, x)
    check(axis in ([1], [x.rank - 1]), "axis must be the channels of an image", axis=axis)
    x = call.steps.arranged(x, axis != [1])
    channels, groups = x.shape[axis[0]], call.config.get("groups", 32)
    check(channels, "channels must have a static length", shape=x.shape)
    groups = channels if groups == -1 else integer("groups", groups, 1)
    check_divisible("channels", channels, "groups", groups)
    epsilon = call.number("epsilon", 1e-3)
    return _along(call, blocks.scale_shift, x, axis, before=blocks.group_norm, groups=groups, epsilon=epsilon)


@layer(
    "LayerScale",
    order=ORDER_OF_FIRST_CALL,
    weights=[WeightSpec("gamma", "gamma")],
    ignored="projection_dim|init_values",
)
def _layer_scale(call: CallContext, x: Tensor) -> Tensor:
    return _along(call, blocks.scale_shift, x, [x.rank - 1])


@layer("PReLU", order=ORDER_OF_FIRST_CALL, weights=[WeightSpec("alpha", "alpha")], masks=PASSES_MASK)
def _prelu(call: CallContext, x: Tensor) -> Tensor:
    shared = {axis % x.rank for axis in call.config.get("shared_axes") or []}
    axes = [axis for axis in range(1, x.rank) if axis not in shared]
    stored = tuple(1 if axis in shared else x.shape[axis] for axis in range(1, x.rank))
    return _along(call, blocks.prelu, x, axes, stored)


@layer("Normalization", order=ORDER_OF_FIRST_CALL, weights=STATISTICS, masks=PASSES_MASK_IN_KERAS[3], types=CAST)
def _normalization(call: CallContext, x: Tensor) -> Tensor:
    """Normalize with statistics of its own, or with those of its configuration, which Keras has for data of one
    rank."""
    call.same_in_all_calls(rank=x.rank)
    config, invert = call.config, bool(call.config.get("invert", False))
    axis = config.get("axis", -1)
    axes = [] if axis in (None, [], ()) else axes_of(axis, x.rank)
    if config.get("mean") is None:
        return _along(call, blocks.standardized_by, x, axes, invert=invert)
    stored, (_, conversion) = [x.shape[axis] for axis in axes], _over(x, axes)
    arrays = {name: np.asarray(config[name], dtype="float32").ravel() for name in ("mean", "variance")}
    arrays = {name: np.broadcast_to(array, (math.prod(stored),)).reshape(stored) for name, array in arrays.items()}
    arrays = {name: conversion.to_mxnet(array) for name, array in arrays.items()}
    return call.constant(blocks.standardized_by, x, arrays, invert=invert)


@layer("Rescaling", masks=PASSES_MASK_IN_KERAS[3], types=CAST)
def _rescaling(call: CallContext, x: Tensor) -> Tensor:
    scale, offset = call.config["scale"], call.config.get("offset", 0.0)
    if isinstance(scale, (list, tuple)) or isinstance(offset, (list, tuple)):
        x, gamma = broadcasting("scale", scale, x)
        x, beta = broadcasting("offset", offset, x)
        return call.constant(blocks.scale_shift, x, {"gamma": gamma, "beta": beta})
    x = call.function(blocks.scalar, x, operator="multiply", value=call.number("scale"))
    return call.function(blocks.scalar, x, operator="add", value=call.number("offset")) if offset else x


# -- to a length of 1


@layer("UnitNormalization", masks=PASSES_MASK, types=CAST_IN_KERAS[2])
def _unit_norm(call: CallContext, x: Tensor) -> Tensor:
    """Divide by the length: the epsilon of Keras 2 is that of the square, that of Keras 3 of the length."""
    return call.function(blocks.unit, x, axes=x.axes(_axes(call, x)), epsilon=1e-12 if call.version == 2 else 1e-24)


@operator("l2_normalize")
def _l2_normalize(call: CallContext, x: Tensor, axis: Any = None, epsilon: float = 1e-12) -> Tensor:
    """Divide by the length over all axes, the batch among them, if there is no other."""
    axes = list(range(x.rank)) if axis is None else axes_of(axis, x.rank)
    return call.function(blocks.unit, x, axes=x.axes(axes), epsilon=epsilon)


@operator("normalize")
def _normalize(call: CallContext, x: Tensor, axis: Any = -1, order: int = 2, epsilon: Optional[float] = None) -> Tensor:
    """Divide by the length: Keras's epsilon is that of the length, not of its square."""
    check(order == 2, "order must be 2", order=order)
    epsilon = float(1e-7 if epsilon is None else epsilon)
    return call.function(blocks.unit, x, axes=x.axes(axes_of(axis, x.rank)), epsilon=epsilon**2)
