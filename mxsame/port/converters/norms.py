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
    """Returns the layer's `axis` as a sorted list of axes. The default is the last axis."""
    return axes_of(call.config.get("axis", -1), x.rank)


# -- batch norm


@layer("BatchNormalization", "SyncBatchNormalization", order=ORDER_OF_FIRST_CALL, masks=HANDLES_MASK, dtypes=CAST,
       weights=(GAMMA, BETA, MOVING_MEAN, MOVING_VARIANCE), ignored="synchronized|renorm_momentum")  # fmt: skip
def _batch_norm(call: CallContext, x: Tensor) -> Tensor:
    """Builds a batch norm. Several axes are merged into one, the last, since MXNet's operator normalizes one axis."""
    axes = _axes(call, x)
    if len(axes) == 1:
        return _batch_norm_along(call, x, x.axis(axes[0]), x.shape[axes[0]])._replace(mask=x.mask)
    lengths = [x.shape[axis] for axis in axes]
    check(None not in lengths and 0 not in axes, "several axes must be static, and without the batch", axis=axes)
    keras_shape = [length if axis in axes else 1 for axis, length in enumerate(x.shape)]
    others = [axis for axis in range(x.rank) if axis not in axes]
    moved = call.apply("transpose", call.to_keras_order(x), axes=(*others, *axes))
    merged = call.apply(blocks.reshape, moved, to=(*(0 for _ in others), -1))._replace(mask=x.mask)
    conversion = Conversion(np.ravel, partial(reshaped, shape=keras_shape))
    out = _batch_norm_along(call, merged, len(others), math.prod(lengths), conversion)
    out = call.apply("reshape_like", out, moved, shape=moved.shape)
    return call.apply("transpose", out, axes=tuple(np.argsort([*others, *axes]).tolist()))._replace(mask=x.mask)


def _batch_norm_along(call: CallContext, x: Tensor, axis: int, length: Optional[int],
                      conversion: Conversion = UNCHANGED) -> Tensor:  # fmt: skip
    """Builds a batch norm along an axis of the array, which has this length."""
    check(not call.training, "a batch norm must not be called with training=True")
    is_frozen = call.training is False or not call.layer.trainable
    if x.mask is not None and not is_frozen:
        warn_about_training(call, "counts masked steps in its statistics in training, unlike Keras")
    classes = {3: blocks.BatchNorm1D, 5: blocks.BatchNorm3D} if axis == 1 else {}  # by rank
    make = partial(
        classes.get(x.rank, mx.gluon.nn.BatchNorm),
        axis=axis, momentum=call.number("momentum", 0.99), epsilon=call.number("epsilon", 1e-3),
        center=call.config.get("center", True), scale=call.config.get("scale", True), use_global_stats=is_frozen,
        gamma_initializer="ones", in_channels=length or 0,
    )  # fmt: skip
    return call.add_block(make, x, conversions=conversion, options=(is_frozen, axis, x.rank))[0]


# -- other norms, with weights along some axes


def _weight_along(x: Tensor, axes: Sequence[int], keras_shape: Optional[tuple]) -> Tuple[tuple, Conversion]:
    """Returns the shape of a parameter with these axes of x, which broadcasts along the others, and the conversion from
    Keras's weight. `keras_shape` is the weight's shape, by default the lengths of the axes."""
    shape = [x.shape[axis] if axis in axes else 1 for axis in range(x.rank)]
    check(None not in shape, "axes with weights must have static lengths", shape=x.shape)
    keras_shape = tuple(x.shape[axis] for axis in sorted(axes)) if keras_shape is None else keras_shape
    to_mxnet = partial(_broadcastable, keras_shape=keras_shape, shape=shape, axes=x.ordered(range(x.rank)))
    return tuple(x.ordered(shape)), Conversion(to_mxnet, partial(reshaped, shape=keras_shape, axes=x.keras_order))


def _broadcastable(array: Any, keras_shape: Sequence[int], shape: Sequence[int], axes: Sequence[int]) -> Any:
    check_shape("weight", array.shape, keras_shape, "of its axes")
    return array.reshape(shape).transpose(axes)


def _apply_with_weights_along(call: CallContext, function: Callable, x: Tensor, axes: Sequence[int],
                              keras_shape: Optional[tuple] = None, **arguments: Any) -> Tensor:  # fmt: skip
    """Applies a function with the layer's weights, which have these axes of x."""
    shape, conversion = _weight_along(x, axes, keras_shape)
    order = [sorted(axes).index(axis) for axis in x.ordered(range(x.rank)) if axis in axes]
    call.check_same_in_all_calls(order_of_weights=order)
    shapes = {spec.parameter: shape for spec in call.layer.weight_specs or ()}
    return call.apply_with_weights(function, x, shapes=shapes, conversions=conversion, **arguments)


def _apply_norm(call: CallContext, norm: Callable, x: Tensor, axes: Sequence[int], keras_shape: Optional[tuple] = None,
                epsilon: float = 1e-3, **arguments: Any) -> Tensor:  # fmt: skip
    """Applies a norm, then gamma and beta along these axes. `epsilon` is the default of the layer's epsilon."""
    arguments.update(before=norm, epsilon=call.number("epsilon", epsilon))
    return _apply_with_weights_along(call, blocks.scale_shift, x, axes, keras_shape, **arguments)


@layer("LayerNormalization", order=ORDER_OF_FIRST_CALL, weights=(GAMMA, BETA), masks=PASSES_MASK,
       dtypes=CAST_IN_KERAS[2])  # fmt: skip
def _layer_norm(call: CallContext, x: Tensor) -> Tensor:
    """Builds a layer norm. Keras stores weights with axes in the order of `axis`, and reshapes them to sorted axes."""
    axes = _axes(call, x)
    keras_shape = tuple(x.shape[axis % x.rank] for axis in as_list(call.config.get("axis", -1)))
    return _apply_norm(call, blocks.standardize, x, axes, keras_shape, over=x.axes(axes))


@layer("RMSNormalization", order=ORDER_OF_FIRST_CALL, weights=[WeightSpec("scale", "gamma")])
def _rms_norm(call: CallContext, x: Tensor) -> Tensor:
    axes = _axes(call, x)
    last = list(range(x.rank - len(axes), x.rank))
    check(axes == last, "axis must be the last axes: Keras multiplies them by scale", axis=axes)
    return _apply_norm(call, blocks.rms_norm, x, axes, epsilon=1e-6, over=x.axes(axes))


@layer("GroupNormalization", weights=(GAMMA, BETA), masks=PASSES_MASK)
def _group_norm(call: CallContext, x: Tensor) -> Tensor:
    axis = _axes(call, x)
    check(axis in ([1], [x.rank - 1]), "axis must be the channels of an image", axis=axis)
    x = call.steps.in_order(x, axis != [1])
    channels, groups = x.shape[axis[0]], call.config.get("groups", 32)
    check(channels, "channels must have a static length", shape=x.shape)
    groups = channels if groups == -1 else integer("groups", groups, 1)
    check_divisible("channels", channels, "groups", groups)
    return _apply_norm(call, blocks.group_norm, x, axis, groups=groups)


@layer("LayerScale", order=ORDER_OF_FIRST_CALL, weights=[WeightSpec("gamma", "gamma")],
       ignored="projection_dim|init_values")  # fmt: skip
def _layer_scale(call: CallContext, x: Tensor) -> Tensor:
    return _apply_with_weights_along(call, blocks.scale_shift, x, [x.rank - 1])


@layer("PReLU", order=ORDER_OF_FIRST_CALL, weights=[WeightSpec("alpha", "alpha")], masks=PASSES_MASK)
def _prelu(call: CallContext, x: Tensor) -> Tensor:
    shared = {axis % x.rank for axis in call.config.get("shared_axes") or []}
    axes = [axis for axis in range(1, x.rank) if axis not in shared]
    keras_shape = tuple(1 if axis in shared else x.shape[axis] for axis in range(1, x.rank))
    return _apply_with_weights_along(call, blocks.prelu, x, axes, keras_shape)


@layer("Normalization", order=ORDER_OF_FIRST_CALL, weights=STATISTICS, masks=PASSES_MASK_IN_KERAS[3], dtypes=CAST)
def _normalization(call: CallContext, x: Tensor) -> Tensor:
    """Normalizes with a mean and a variance from the weights or from the configuration. As in Keras, all calls have
    data of one rank."""
    call.check_same_in_all_calls(rank=x.rank)
    config, invert = call.config, bool(call.config.get("invert", False))
    axis = config.get("axis", -1)
    axes = [] if axis in (None, [], ()) else axes_of(axis, x.rank)
    if config.get("mean") is None:
        return _apply_with_weights_along(call, blocks.normalize, x, axes, invert=invert)
    shape, (_, conversion) = [x.shape[axis] for axis in axes], _weight_along(x, axes, None)
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


def _divide_by_norm(call: CallContext, x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """Divides by the Euclidean norm along these axes. Its square is set to at least `epsilon`."""
    return call.apply(blocks.l2_normalize, x, axes=x.axes(axes), epsilon=epsilon)


@layer("UnitNormalization", masks=PASSES_MASK, dtypes=CAST_IN_KERAS[2])
def _unit_norm(call: CallContext, x: Tensor) -> Tensor:
    """Divides by the norm. Keras 2 sets its square to at least 1e-12, Keras 3 the norm itself."""
    return _divide_by_norm(call, x, _axes(call, x), 1e-12 if call.version == 2 else 1e-24)


@operator("l2_normalize")
def _l2_normalize(call: CallContext, x: Tensor, axis: Any = None, epsilon: float = 1e-12) -> Tensor:
    """Divides by the norm along `axis`; None means all axes, including the batch."""
    return _divide_by_norm(call, x, list(range(x.rank)) if axis is None else axes_of(axis, x.rank), epsilon)


@operator("normalize")
def _normalize(call: CallContext, x: Tensor, axis: Any = -1, order: int = 2, epsilon: Optional[float] = None) -> Tensor:
    """Divides by the norm, which is set to at least `epsilon`."""
    check(order == 2, "order must be 2", order=order)
    return _divide_by_norm(call, x, axes_of(axis, x.rank), float(1e-7 if epsilon is None else epsilon) ** 2)
