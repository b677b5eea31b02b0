"""Converters of normalization layers, and of layers that scale and shift."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.keras_format.description import WeightSpec, as_list
from mxsame.keras_format.dtypes import CAST, CAST_IN_KERAS
from mxsame.port import blocks
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import axes_of, broadcast_constant, warn_about_training
from mxsame.port.parameters import UNCHANGED, Conversion, reshaped
from mxsame.port.table import HANDLES_MASK, ORDER_OF_FIRST_CALL, PASSES_MASK, PASSES_MASK_IN_KERAS, layer, operator
from mxsame.port.tensors import Tensor
from mxsame.validation import check, check_divisible, check_shape, integer

GAMMA, BETA = WeightSpec("gamma", "gamma", "scale"), WeightSpec("beta", "beta", "center")
MOVING_MEAN = WeightSpec("moving_mean", "running_mean", trainable=False)
MOVING_VARIANCE = WeightSpec("moving_variance", "running_var", trainable=False)
STATISTICS = [WeightSpec(name, parameter, unless="mean", trainable=False)
              for name, parameter in (("mean", "mean"), ("variance", "variance"), ("count", ""))]  # fmt: skip


def _axes(call: CallContext, x: Tensor) -> List[int]:
    """Returns the layer's `axis` as a sorted list; the default is the last axis."""
    return axes_of(call.config.get("axis", -1), x.rank)


# -- batch norms


@layer("BatchNormalization", "SyncBatchNormalization", order=ORDER_OF_FIRST_CALL, masks=HANDLES_MASK, dtypes=CAST,
       weights=(GAMMA, BETA, MOVING_MEAN, MOVING_VARIANCE), ignored="synchronized|renorm_momentum")  # fmt: skip
def _batch_norm(call: CallContext, x: Tensor) -> Tensor:
    """Builds a batch norm. MXNet's has one axis: several are merged into one, which is the last."""
    axes = _axes(call, x)
    if len(axes) == 1:
        return _batch_norm_along(call, x, x.axis(axes[0]), x.shape[axes[0]])._replace(mask=x.mask)
    lengths = [x.shape[axis] for axis in axes]
    check(None not in lengths and 0 not in axes, "several axes must be static, and without the batch", axis=axes)
    full = [length if axis in axes else 1 for axis, length in enumerate(x.shape)]
    others = [axis for axis in range(x.rank) if axis not in axes]
    moved = call.apply("transpose", call.to_keras_order(x), axes=(*others, *axes))
    merged = call.apply(blocks.reshape, moved, to=(*(0 for _ in others), -1))._replace(mask=x.mask)
    conversion = Conversion(np.ravel, partial(reshaped, shape=full))
    out = _batch_norm_along(call, merged, len(others), math.prod(lengths), conversion)
    out = call.apply("reshape_like", out, moved, shape=moved.shape)
    return call.apply("transpose", out, axes=tuple(np.argsort([*others, *axes]).tolist()))._replace(mask=x.mask)


def _batch_norm_along(call: CallContext, x: Tensor, axis: int, length: Optional[int],
                      conversion: Conversion = UNCHANGED) -> Tensor:  # fmt: skip
    """Builds a batch norm along one axis of the array."""
    check(not call.training, "a batch norm must not be called with training=True")
    frozen = call.training is False or not call.layer.trainable
    if x.mask is not None and not frozen:
        warn_about_training(call, "counts masked steps in its statistics in training, unlike Keras")
    of_rank = {3: blocks.BatchNorm1D, 5: blocks.BatchNorm3D} if axis == 1 else {}
    make = partial(
        of_rank.get(x.rank, mx.gluon.nn.BatchNorm),
        axis=axis, momentum=call.number("momentum", 0.99), epsilon=call.number("epsilon", 1e-3),
        center=call.config.get("center", True), scale=call.config.get("scale", True), use_global_stats=frozen,
        gamma_initializer="ones", in_channels=length or 0,
    )  # fmt: skip
    return call.add_block(make, x, conversions=conversion, options=(frozen, axis, x.rank))[0]


# -- other norms, with weights along some axes


def _weight_along(x: Tensor, axes: Sequence[int], stored: Optional[tuple] = None) -> Tuple[tuple, Conversion]:
    """Returns the shape of a parameter that broadcasts along other axes than these, and the conversion from Keras's
    weight, whose shape is `stored`: by default the lengths of these axes."""
    full = [x.shape[axis] if axis in axes else 1 for axis in range(x.rank)]
    check(None not in full, "axes with weights must have static lengths", shape=x.shape)
    stored = tuple(x.shape[axis] for axis in sorted(axes)) if stored is None else stored
    to_mxnet = partial(_broadcastable, stored=stored, full=full, axes=x.ordered(range(x.rank)))
    return tuple(x.ordered(full)), Conversion(to_mxnet, partial(reshaped, shape=stored, axes=x.keras_order))


def _broadcastable(array: Any, stored: Sequence[int], full: Sequence[int], axes: Sequence[int]) -> Any:
    check_shape("weight", array.shape, stored, "of its axes")
    return array.reshape(full).transpose(axes)


def _weights_along(call: CallContext, function: Callable, x: Tensor, axes: Sequence[int],
                   stored: Optional[tuple] = None, **arguments: Any) -> Tensor:  # fmt: skip
    """Adds a function with the layer's weights, which have these axes of x."""
    shape, conversion = _weight_along(x, axes, stored)
    order = [sorted(axes).index(axis) for axis in x.ordered(range(x.rank)) if axis in axes]
    call.check_same_in_all_calls(order_of_weights=order)
    shapes = {spec.parameter: shape for spec in call.layer.weight_specs or ()}
    return call.apply_with_weights(function, x, shapes=shapes, conversions=conversion, **arguments)


def _normed(call: CallContext, norm: Callable, x: Tensor, axes: Sequence[int], stored: Optional[tuple] = None,
            epsilon: float = 1e-3, **arguments: Any) -> Tensor:  # fmt: skip
    """Adds a norm with the layer's epsilon, and gamma and beta along these axes after it."""
    epsilon = call.number("epsilon", epsilon)
    return _weights_along(call, blocks.scale_shift, x, axes, stored, before=norm, epsilon=epsilon, **arguments)


@layer("LayerNormalization", order=ORDER_OF_FIRST_CALL, weights=(GAMMA, BETA), masks=PASSES_MASK,
       dtypes=CAST_IN_KERAS[2])  # fmt: skip
def _layer_norm(call: CallContext, x: Tensor) -> Tensor:
    """Builds a layer norm. Keras stores its weights with the axes in the order of `axis`, and reshapes them."""
    axes = _axes(call, x)
    stored = tuple(x.shape[axis % x.rank] for axis in as_list(call.config.get("axis", -1)))
    return _normed(call, blocks.standardize, x, axes, stored, over=x.axes(axes))


@layer("RMSNormalization", order=ORDER_OF_FIRST_CALL, weights=[WeightSpec("scale", "gamma")])
def _rms_norm(call: CallContext, x: Tensor) -> Tensor:
    axes = _axes(call, x)
    last = list(range(x.rank - len(axes), x.rank))
    check(axes == last, "axis must be the last axes: Keras multiplies them by scale", axis=axes)
    return _normed(call, blocks.rms_norm, x, axes, epsilon=1e-6, over=x.axes(axes))


@layer("GroupNormalization", weights=(GAMMA, BETA), masks=PASSES_MASK)
def _group_norm(call: CallContext, x: Tensor) -> Tensor:
    axis = _axes(call, x)
    check(axis in ([1], [x.rank - 1]), "axis must be the channels of an image", axis=axis)
    x = call.steps.in_order(x, axis != [1])
    channels, groups = x.shape[axis[0]], call.config.get("groups", 32)
    check(channels, "channels must have a static length", shape=x.shape)
    groups = channels if groups == -1 else integer("groups", groups, 1)
    check_divisible("channels", channels, "groups", groups)
    return _normed(call, blocks.group_norm, x, axis, groups=groups)


@layer("LayerScale", order=ORDER_OF_FIRST_CALL, weights=[WeightSpec("gamma", "gamma")],
       ignored="projection_dim|init_values")  # fmt: skip
def _layer_scale(call: CallContext, x: Tensor) -> Tensor:
    return _weights_along(call, blocks.scale_shift, x, [x.rank - 1])


@layer("PReLU", order=ORDER_OF_FIRST_CALL, weights=[WeightSpec("alpha", "alpha")], masks=PASSES_MASK)
def _prelu(call: CallContext, x: Tensor) -> Tensor:
    shared = {axis % x.rank for axis in call.config.get("shared_axes") or []}
    axes = [axis for axis in range(1, x.rank) if axis not in shared]
    stored = tuple(1 if axis in shared else x.shape[axis] for axis in range(1, x.rank))
    return _weights_along(call, blocks.prelu, x, axes, stored)


@layer("Normalization", order=ORDER_OF_FIRST_CALL, weights=STATISTICS, masks=PASSES_MASK_IN_KERAS[3], dtypes=CAST)
def _normalization(call: CallContext, x: Tensor) -> Tensor:
    """Normalizes with the statistics that are weights, or with those of the configuration. Keras accepts data of one
    rank only."""
    call.check_same_in_all_calls(rank=x.rank)
    config, invert = call.config, bool(call.config.get("invert", False))
    axis = config.get("axis", -1)
    axes = [] if axis in (None, [], ()) else axes_of(axis, x.rank)
    if config.get("mean") is None:
        return _weights_along(call, blocks.normalize, x, axes, invert=invert)
    shape, (_, conversion) = [x.shape[axis] for axis in axes], _weight_along(x, axes)
    arrays = {}
    for name in ("mean", "variance"):
        array = np.broadcast_to(np.asarray(config[name], dtype="float32").ravel(), (math.prod(shape),))
        arrays[name] = conversion.to_mxnet(array.reshape(shape))
    return call.constant(blocks.normalize, x, arrays, invert=invert)


@layer("Rescaling", masks=PASSES_MASK_IN_KERAS[3], dtypes=CAST)
def _rescaling(call: CallContext, x: Tensor) -> Tensor:
    scale, offset = call.config["scale"], call.config.get("offset", 0.0)
    if isinstance(scale, (list, tuple)) or isinstance(offset, (list, tuple)):
        x, gamma = broadcast_constant("scale", scale, x)
        x, beta = broadcast_constant("offset", offset, x)
        return call.constant(blocks.scale_shift, x, {"gamma": gamma, "beta": beta})
    x = call.apply(blocks.scalar, x, operator="multiply", value=call.number("scale"))
    return call.apply(blocks.scalar, x, operator="add", value=call.number("offset")) if offset else x


# -- unit norms


def _unit(call: CallContext, x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """Divides by the Euclidean length along these axes, the square of which is at least `epsilon`."""
    return call.apply(blocks.l2_normalize, x, axes=x.axes(axes), epsilon=epsilon)


@layer("UnitNormalization", masks=PASSES_MASK, dtypes=CAST_IN_KERAS[2])
def _unit_norm(call: CallContext, x: Tensor) -> Tensor:
    """Divides by the length: the epsilon 1e-12 of Keras 2 bounds its square, that of Keras 3 the length itself."""
    return _unit(call, x, _axes(call, x), 1e-12 if call.version == 2 else 1e-24)


@operator("l2_normalize")
def _l2_normalize(call: CallContext, x: Tensor, axis: Any = None, epsilon: float = 1e-12) -> Tensor:
    """Divides by the length along `axis`; None is all axes, the batch included."""
    return _unit(call, x, list(range(x.rank)) if axis is None else axes_of(axis, x.rank), epsilon)


@operator("normalize")
def _normalize(call: CallContext, x: Tensor, axis: Any = -1, order: int = 2, epsilon: Optional[float] = None) -> Tensor:
    """Divides by the length, which is at least `epsilon`."""
    check(order == 2, "order must be 2", order=order)
    return _unit(call, x, axes_of(axis, x.rank), float(1e-7 if epsilon is None else epsilon) ** 2)
