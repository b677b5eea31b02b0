"""Rows of norms, and of what scales and shifts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.port import blocks
from mxsame.port.description import Weight, listed
from mxsame.port.parameters import Conversion
from mxsame.port.rows._shared import at_inference_only, axes_of, broadcasting
from mxsame.port.table import PASSES, PASSES_IN_KERAS, SETTLED, TAKES, Site, Value, layer, operator
from mxsame.port.types import CAST, CAST_IN_KERAS
from mxsame.validation import check, check_divisible, check_shape, integer

GAMMA, BETA = Weight("gamma", "gamma", "scale"), Weight("beta", "beta", "center")
MOVING = (Weight("moving_mean", "running_mean", trained=False), Weight("moving_variance", "running_var", trained=False))
STATISTICS = [
    Weight(name, parameter, unless="mean", trained=False)
    for name, parameter in (("mean", "mean"), ("variance", "variance"), ("count", ""))
]


def _axes(site: Site, x: Value) -> List[int]:
    """Returns the axes of the layer, by default the last."""
    return axes_of(site.config.get("axis", -1), x.rank)


# -- batch norms


@layer("BatchNormalization", "SyncBatchNormalization", order=SETTLED, weights=(GAMMA, BETA, *MOVING), masks=TAKES,
       types=CAST, unread="synchronized|renorm_momentum")  # fmt: skip
def _batch_norm(site: Site, x: Value) -> Value:
    """Build a batch norm; several axes become one, which is the last."""
    axes = _axes(site, x)
    if len(axes) == 1:
        return _batch_norm_along(site, x, x.axis(axes[0]), x.shape[axes[0]], {})._replace(mask=x.mask)
    lengths = [x.shape[axis] for axis in axes]
    check(None not in lengths and 0 not in axes, "several axes must be static, and without the batch", axis=axes)
    full = [length if axis in axes else 1 for axis, length in enumerate(x.shape)]
    conversion = Conversion(np.ravel, lambda array: array.reshape(full))
    names, order = [role.name for role in site.layer.roles or ()], [axis for axis in range(x.rank) if axis not in axes]
    moved = site.function("transpose", site.keras(x), axes=(*order, *axes))
    merged_axes = site.function(blocks.reshape, moved, to=(*(0 for _ in order), -1))._replace(mask=x.mask)
    out = _batch_norm_along(site, merged_axes, len(order), math.prod(lengths), dict.fromkeys(names, conversion))
    out = site.function("reshape_like", out, moved, shape=moved.shape)
    return site.function("transpose", out, axes=tuple(np.argsort([*order, *axes]).tolist()))._replace(mask=x.mask)


def _batch_norm_along(site: Site, x: Value, at: int, length: Optional[int], conversions: Dict[str, Any]) -> Value:
    check(not site.training, "a batch norm must not be called with training=True")
    frozen = site.training is False or not site.layer.trainable
    if x.mask is not None and not frozen:
        at_inference_only(site, "takes the statistics of masked steps, too, in training here")
    of_rank = {3: blocks.BatchNorm1D, 5: blocks.BatchNorm3D} if at == 1 else {}
    make = of_rank.get(x.rank, mx.gluon.nn.BatchNorm)
    arguments = {
        "axis": at,
        "momentum": site.number("momentum", 0.99),
        "epsilon": site.number("epsilon", 1e-3),
        "center": site.config.get("center", True),
        "scale": site.config.get("scale", True),
        "use_global_stats": frozen,
        "gamma_initializer": "ones",
        "in_channels": length or 0,
    }
    return site.block(partial(make, **arguments), x, conversions=conversions, options=(frozen, at, x.rank))[0]


# -- other norms, with weights along some axes


def _over(x: Value, axes: Sequence[int], stored: Optional[tuple] = None) -> Tuple[tuple, Conversion]:
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
    site: Site, function: Callable, x: Value, axes: Sequence[int], stored: Optional[tuple] = None, **arguments: Any
) -> Value:
    """Call a function with the layer's weights, which have these axes of x."""
    used, conversion = _over(x, axes, stored)
    site.same_in_all_calls(
        order_of_weights=[sorted(axes).index(axis) for axis in x.ordered(range(x.rank)) if axis in axes]
    )
    roles = site.layer.roles or ()
    shapes, conversions = {role.parameter: used for role in roles}, {role.name: conversion for role in roles}
    return site.weighted(function, x, shapes=shapes, conversions=conversions, **arguments)


@layer("LayerNormalization", order=SETTLED, weights=(GAMMA, BETA), masks=PASSES, types=CAST_IN_KERAS[2])
def _layer_norm(site: Site, x: Value) -> Value:
    """Normalize over axes, whose weights Keras keeps in the order in which the axes are given, and then reshapes."""
    axes, epsilon = _axes(site, x), site.number("epsilon", 1e-3)
    stored = tuple(x.shape[axis % x.rank] for axis in listed(site.config.get("axis", -1)))
    options = {"before": blocks.standardized, "over": x.axes(axes), "epsilon": epsilon}
    return _along(site, blocks.scale_shift, x, axes, stored, **options)


@layer("RMSNormalization", order=SETTLED, weights=[Weight("scale", "gamma")])
def _rms_norm(site: Site, x: Value) -> Value:
    axes, epsilon = _axes(site, x), site.number("epsilon", 1e-6)
    last = list(range(x.rank - len(axes), x.rank))
    check(axes == last, "axis must be the last axes: Keras multiplies them by scale", axis=axes)
    return _along(site, blocks.scale_shift, x, axes, before=blocks.rms, over=x.axes(axes), epsilon=epsilon)


@layer("GroupNormalization", weights=(GAMMA, BETA), masks=PASSES)
def _group_norm(site: Site, x: Value) -> Value:
    axis = _axes(site, x)
    check(axis in ([1], [x.rank - 1]), "axis must be the channels of an image", axis=axis)
    x = site.steps.arranged(x, axis != [1])
    channels, groups = x.shape[axis[0]], site.config.get("groups", 32)
    check(channels, "channels must have a static length", shape=x.shape)
    groups = channels if groups == -1 else integer("groups", groups, 1)
    check_divisible("channels", channels, "groups", groups)
    epsilon = site.number("epsilon", 1e-3)
    return _along(site, blocks.scale_shift, x, axis, before=blocks.group_norm, groups=groups, epsilon=epsilon)


@layer("LayerScale", order=SETTLED, weights=[Weight("gamma", "gamma")], unread="projection_dim|init_values")
def _layer_scale(site: Site, x: Value) -> Value:
    return _along(site, blocks.scale_shift, x, [x.rank - 1])


@layer("PReLU", order=SETTLED, weights=[Weight("alpha", "alpha")], masks=PASSES)
def _prelu(site: Site, x: Value) -> Value:
    shared = {axis % x.rank for axis in site.config.get("shared_axes") or []}
    axes = [axis for axis in range(1, x.rank) if axis not in shared]
    stored = tuple(1 if axis in shared else x.shape[axis] for axis in range(1, x.rank))
    return _along(site, blocks.prelu, x, axes, stored)


@layer("Normalization", order=SETTLED, weights=STATISTICS, masks=PASSES_IN_KERAS[3], types=CAST)
def _normalization(site: Site, x: Value) -> Value:
    """Normalize with statistics of its own, or with those of its configuration, which Keras has for data of one
    rank."""
    site.same_in_all_calls(rank=x.rank)
    config, invert = site.config, bool(site.config.get("invert", False))
    axis = config.get("axis", -1)
    axes = [] if axis in (None, [], ()) else axes_of(axis, x.rank)
    if config.get("mean") is None:
        return _along(site, blocks.standardized_by, x, axes, invert=invert)
    stored, (_, conversion) = [x.shape[axis] for axis in axes], _over(x, axes)
    arrays = {name: np.asarray(config[name], dtype="float32").ravel() for name in ("mean", "variance")}
    arrays = {name: np.broadcast_to(array, (math.prod(stored),)).reshape(stored) for name, array in arrays.items()}
    arrays = {name: conversion.to_mxnet(array) for name, array in arrays.items()}
    return site.constant(blocks.standardized_by, x, arrays, invert=invert)


@layer("Rescaling", masks=PASSES_IN_KERAS[3], types=CAST)
def _rescaling(site: Site, x: Value) -> Value:
    scale, offset = site.config["scale"], site.config.get("offset", 0.0)
    if isinstance(scale, (list, tuple)) or isinstance(offset, (list, tuple)):
        x, gamma = broadcasting("scale", scale, x)
        x, beta = broadcasting("offset", offset, x)
        return site.constant(blocks.scale_shift, x, {"gamma": gamma, "beta": beta})
    x = site.function(blocks.scalar, x, operator="multiply", value=site.number("scale"))
    return site.function(blocks.scalar, x, operator="add", value=site.number("offset")) if offset else x


# -- to a length of 1


@layer("UnitNormalization", masks=PASSES, types=CAST_IN_KERAS[2])
def _unit_norm(site: Site, x: Value) -> Value:
    """Divide by the length: the epsilon of Keras 2 is that of the square, that of Keras 3 of the length."""
    return site.function(blocks.unit, x, axes=x.axes(_axes(site, x)), epsilon=1e-12 if site.version == 2 else 1e-24)


@operator("l2_normalize")
def _l2_normalize(site: Site, x: Value, axis: Any = None, epsilon: float = 1e-12) -> Value:
    """Divide by the length over all axes, the batch among them, if there is no other."""
    axes = list(range(x.rank)) if axis is None else axes_of(axis, x.rank)
    return site.function(blocks.unit, x, axes=x.axes(axes), epsilon=epsilon)


@operator("normalize")
def _normalize(site: Site, x: Value, axis: Any = -1, order: int = 2, epsilon: Optional[float] = None) -> Value:
    """Divide by the length: Keras's epsilon is that of the length, not of its square."""
    check(order == 2, "order must be 2", order=order)
    epsilon = float(1e-7 if epsilon is None else epsilon)
    return site.function(blocks.unit, x, axes=x.axes(axes_of(axis, x.rank)), epsilon=epsilon**2)
