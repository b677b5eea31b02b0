"""Rows of layers without windows: dense layers and norms, dropout and noise, shapes, merging."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.port import blocks
from mxsame.port.activations import activated
from mxsame.port.builder import TRANSPOSED, Conversion, Site, Value
from mxsame.port.description import Layer, Weight, class_and_config, listed, snake_case
from mxsame.port.rows import ALIKE, KERAS, LAYERS, PASSES, PASSES_IN_KERAS_3, SETTLED, TAKES, in_place, layer, operator

gluon = mx.gluon.nn
GAMMA, BETA = Weight("gamma", "gamma", "scale"), Weight("beta", "beta", "center")
KERNEL, BIAS = Weight("kernel", "weight"), Weight("bias", "bias", "use_bias")
MOVING = (Weight("moving_mean", "running_mean", trained=False), Weight("moving_variance", "running_var", trained=False))
STATISTICS = [
    Weight(name, parameter, unless="mean", trained=False)
    for name, parameter in (("mean", "mean"), ("variance", "variance"), ("count", ""))
]


# -- dense


@layer("Dense", order=SETTLED, weights=(KERNEL, BIAS), masks=PASSES)
def _dense(site: Site, x: Value) -> Value:
    units = validation.integer("units", site.config["units"], 1)
    if x.rank < 2:
        raise ValueError(f"data must have 2 axes or more; {validation.received(**{'data.shape': x.shape})}")
    x = site.keras(x) if x.rank > 5 else x
    shapes = {"weight": (units, x.shape[-1] or 0), "bias": (units,)}
    ones = (1,) * (x.rank - 2) if x.first else ()
    out = site.weighted(blocks.dense, x, shapes=shapes, conversions={"kernel": TRANSPOSED}, units=units, ones=ones)
    return activated(site, out)


@layer("Embedding", order=KERAS, weights=[Weight("embeddings", "weight")], masks=TAKES, unread="input_length")
def _embedding(site: Site, x: Value) -> Value:
    config = site.config
    mask = site.function(blocks.scalar, x, operator="not_equal", value=0.0) if config.get("mask_zero") else None
    out = site.block(partial(gluon.Embedding, config["input_dim"], config["output_dim"]), x)
    return out._replace(mask=mask)


@layer("Masking", order=KERAS, masks=TAKES)
def _masking(site: Site, x: Value) -> Value:
    """Steps whose elements all are the mask value."""
    mask = site.function("any_not_equal", x, value=site.number("mask_value", 0.0))
    return site.function("masked", x, mask)._replace(mask=mask)


# -- norms


def axes_of(axis: Any, rank: int) -> List[int]:
    """The axes of an argument, in order."""
    axes = listed(axis)
    if not axes or not all(type(entry) is int and -rank <= entry < rank for entry in axes):
        raise ValueError(f"axis must be within {rank} axes; {validation.received(axis=axis)}")
    return sorted({entry % rank for entry in axes})


def _axes(site: Site, x: Value) -> List[int]:
    """Those of the layer, by default the last."""
    return axes_of(site.config.get("axis", -1), x.rank)


@layer("BatchNormalization", "SyncBatchNormalization", order=SETTLED, weights=(GAMMA, BETA, *MOVING), masks=TAKES,
       unread="synchronized|renorm_momentum")  # fmt: skip
def _batch_norm(site: Site, x: Value) -> Value:
    """Of several axes: these as one, which is the last."""
    axes = _axes(site, x)
    if len(axes) == 1:
        return _batch_norm_along(site, x, x.axis(axes[0]), x.shape[axes[0]], {})._replace(mask=x.mask)
    lengths = [x.shape[axis] for axis in axes]
    if None in lengths or 0 in axes:
        raise ValueError(f"several axes must be static, and without the batch; {validation.received(axis=axes)}")
    full = [length if axis in axes else 1 for axis, length in enumerate(x.shape)]
    conversion = Conversion(np.ravel, lambda array: array.reshape(full))
    names, order = [role.name for role in site.layer.roles or ()], [axis for axis in range(x.rank) if axis not in axes]
    turned = site.function("transpose", site.keras(x), axes=(*order, *axes))
    merged_axes = site.function(blocks.reshape, turned, to=(*(0 for _ in order), -1))
    out = _batch_norm_along(site, merged_axes, len(order), math.prod(lengths), dict.fromkeys(names, conversion))
    out = site.function("reshape_like", out, turned, shape=turned.shape)
    return site.function("transpose", out, axes=tuple(np.argsort([*order, *axes]).tolist()))._replace(mask=x.mask)


def _batch_norm_along(site: Site, x: Value, at: int, length: Optional[int], conversions: Dict[str, Any]) -> Value:
    config = site.config
    if site.training:
        raise ValueError("a batch norm must not be called with training=True")
    frozen = site.training is False or not site.layer.trainable
    site.same_in_all_calls(training=not frozen)
    make = blocks.BatchNorm1D if (x.rank, at) == (3, 1) else gluon.BatchNorm
    arguments = {
        "axis": at,
        "momentum": site.number("momentum", 0.99),
        "epsilon": site.number("epsilon", 1e-3),
        "center": config.get("center", True),
        "scale": config.get("scale", True) and not site.builder.keras_mxnet,  # its batch norms have MXNet's fix_gamma
        "use_global_stats": frozen,
        "gamma_initializer": "ones",
        "in_channels": length or 0,
    }
    return site.block(partial(make, **arguments), x, conversions=conversions)


def _over(x: Value, axes: Sequence[int], stored: Optional[tuple] = None) -> Tuple[tuple, Conversion]:
    """The shape of a parameter over some axes of x, and the conversion from Keras's, which has those axes only."""
    full = [x.shape[axis] if axis in axes else 1 for axis in range(x.rank)]
    if any(length is None for length in full):
        raise ValueError(
            f"axes with weights must have static lengths; {validation.received(**{'data.shape': x.shape})}"
        )
    stored = tuple(x.shape[axis] for axis in sorted(axes)) if stored is None else stored

    def to_mxnet(array: Any) -> Any:
        validation.shape("weight", array.shape, stored, "of its axes")
        return array.reshape(full).transpose(x.ordered(range(x.rank)))

    return tuple(x.ordered(full)), Conversion(to_mxnet, lambda array: array.transpose(x.keras_order).reshape(stored))


def _along(
    site: Site, function: str, x: Value, axes: Sequence[int], stored: Optional[tuple] = None, **arguments: Any
) -> Value:
    """A function with the layer's weights, which have these axes of x."""
    used, conversion = _over(x, axes, stored)
    roles = site.layer.roles or ()
    shapes, conversions = {role.parameter: used for role in roles}, {role.name: conversion for role in roles}
    return site.weighted(function, x, shapes=shapes, conversions=conversions, **arguments)


@layer("LayerNormalization", order=SETTLED, weights=(GAMMA, BETA), masks=PASSES)
def _layer_norm(site: Site, x: Value) -> Value:
    axes, epsilon = _axes(site, x), site.number("epsilon", 1e-3)
    if site.config.get("rms_scaling"):
        raise ValueError(f"rms_scaling must be False; {validation.received(rms_scaling=True)}")
    return _along(site, blocks.scale_shift, x, axes, before="standardize", over=x.axes(axes), epsilon=epsilon)


@layer("RMSNormalization", order=SETTLED, weights=[Weight("scale", "gamma")])
def _rms_norm(site: Site, x: Value) -> Value:
    axes, epsilon = _axes(site, x), site.number("epsilon", 1e-6)
    return _along(site, blocks.scale_shift, x, axes, before="rms", over=x.axes(axes), epsilon=epsilon)


@layer("GroupNormalization", weights=(GAMMA, BETA), masks=PASSES)
def _group_norm(site: Site, x: Value) -> Value:
    axis = _axes(site, x)
    if axis not in ([1], [x.rank - 1]) or x.rank < 3:
        raise ValueError(f"axis must be the channels of a picture; {validation.received(axis=axis)}")
    x = site.builder.arranged(x, axis != [1])
    channels, groups = x.shape[axis[0]], site.config.get("groups", 32)
    groups = channels if groups == -1 else validation.integer("groups", groups, 1)
    if not channels or channels % groups:
        raise ValueError(
            f"channels must be a multiple of groups; {validation.received(channels=channels, groups=groups)}"
        )
    epsilon = site.number("epsilon", 1e-3)
    return _along(site, blocks.scale_shift, x, axis, before="group_norm", groups=groups, epsilon=epsilon)


@layer("UnitNormalization", masks=PASSES)
def _unit_norm(site: Site, x: Value) -> Value:
    """The epsilon of Keras 2 is that of the square, that of Keras 3 of the length."""
    return site.function(blocks.unit, x, axes=x.axes(_axes(site, x)), epsilon=1e-12 if site.version == 2 else 1e-24)


@layer("LayerScale", order=SETTLED, weights=[Weight("gamma", "gamma")], unread="projection_dim|init_values")
def _layer_scale(site: Site, x: Value) -> Value:
    return _along(site, blocks.scale_shift, x, [x.rank - 1])


@layer("Normalization", order=SETTLED, weights=STATISTICS, masks=PASSES_IN_KERAS_3)
def _normalization(site: Site, x: Value) -> Value:
    """With statistics of its own, or with those of its configuration."""
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


def broadcasting(name: str, value: Any, x: Value) -> np.ndarray:
    """An array of the configuration, to which x may be broadcast, with the axes of the array here."""
    array = np.asarray(value, dtype="float32")
    full = (1,) * (x.rank - array.ndim) + array.shape
    if array.ndim > x.rank or any(n not in (1, None) and 1 != m != n for n, m in zip(x.shape, full)) or full[0] > 1:
        raise ValueError(
            f"{name} must broadcast with the data, and not over the batch; "
            f"{validation.received(shape=array.shape, **{'data.shape': x.shape})}"
        )
    return array.reshape(full).transpose(x.ordered(range(x.rank)))


@layer("Rescaling", masks=PASSES_IN_KERAS_3)
def _rescaling(site: Site, x: Value) -> Value:
    scale, offset = site.config["scale"], site.config.get("offset", 0.0)
    if isinstance(scale, (list, tuple)) or isinstance(offset, (list, tuple)):
        arrays = {"gamma": broadcasting("scale", scale, x), "beta": broadcasting("offset", offset, x)}
        return site.constant(blocks.scale_shift, x, arrays)
    x = site.function(blocks.scalar, x, operator="multiply", value=site.number("scale"))
    return site.function(blocks.scalar, x, operator="add", value=site.number("offset")) if offset else x


@layer("PReLU", order=SETTLED, weights=[Weight("alpha", "alpha")], masks=PASSES)
def _prelu(site: Site, x: Value) -> Value:
    shared = {axis % x.rank for axis in site.config.get("shared_axes") or []}
    axes = [axis for axis in range(1, x.rank) if axis not in shared]
    stored = tuple(1 if axis in shared else x.shape[axis] for axis in range(1, x.rank))
    return _along(site, "prelu", x, axes, stored)


# -- dropout and noise


def _rate(site: Site, name: str = "rate") -> float:
    """What part is dropped."""
    rate = site.number(name)
    if not 0 <= rate < 1:
        raise ValueError(f"{name} must be a number of [0, 1); {validation.received(**{name: rate})}")
    return rate


def _dropped(site: Site, x: Value, rate: float, axes: Sequence[int]) -> Value:
    if not rate or site.training is False:
        return x
    return site.function("Dropout", x, p=rate, axes=x.axes(axes), mode="always" if site.training else "training")


@layer("Dropout", masks=PASSES)
def _dropout(site: Site, x: Value) -> Value:
    noise = site.config.get("noise_shape") or ()
    return _dropped(site, x, _rate(site), [axis for axis, length in enumerate(noise) if length == 1])


@layer("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", masks=PASSES, unread="noise_shape")
def _spatial_dropout(site: Site, x: Value) -> Value:
    return _dropped(site, x, _rate(site), site.spatial(x))


@layer("StochasticDepth")
def _stochastic_depth(site: Site, x: Value) -> Value:
    """Of `keras.applications.convnext`: the whole branch of a picture is dropped, or not."""
    return _dropped(site, x, _rate(site, "drop_path_rate"), range(1, x.rank))


@layer("AlphaDropout", "GaussianDropout", "GaussianNoise", masks=PASSES)
def _noise(site: Site, x: Value) -> Value:
    function = snake_case(site.layer.class_name)
    amount = site.number("stddev") if function == "gaussian_noise" else _rate(site)
    if site.training:
        raise ValueError("noise must not be called with training=True")
    return site.function(function, x, amount=amount) if amount and site.training is None else x


@layer("ActivityRegularization", masks=PASSES, unread="l1|l2")
@layer("Identity", masks=PASSES_IN_KERAS_3)
def _identity(site: Site, x: Value) -> Value:
    return x


@layer("RandomFlip", "RandomRotation", "RandomZoom", "RandomContrast", "RandomBrightness", "RandomTranslation",
       unread="(?!dtype).*")  # fmt: skip
@layer("RandomHeight", "RandomWidth", unread="(?!dtype).*")
def random_layer(site: Site, x: Value) -> Value:
    """Nothing at inference; there is no such noise in training here."""
    if site.training and site.version == 2:  # Keras 3 writes so, and does as the model is called
        raise ValueError("random layers must not be called with training=True")
    what = "does nothing here, in training neither: change the pictures before the network takes them"
    _only_at_inference(site, what)
    return x


def _only_at_inference(site: Site, what: str) -> None:
    name = f"layer {'/'.join(site.path)!r} ({site.layer.class_name})"
    warnings.warn(f"{name} {what}", UserWarning, stacklevel=2)


# -- numbers and what they count


@layer("CategoryEncoding", order=KERAS)
def _category_encoding(site: Site, x: Value) -> Value:
    return _encoded(site, x, site.config["num_tokens"], str(site.config.get("output_mode", "multi_hot")))


@layer("Discretization", order=KERAS, unread="num_bins|epsilon|dtype")
def _discretization(site: Site, x: Value) -> Value:
    """How many boundaries are not above an element."""
    boundaries = np.asarray(site.config.get("bin_boundaries") or (), dtype="float32")
    if boundaries.ndim != 1 or not boundaries.size or any(np.diff(boundaries) < 0):
        raise ValueError(f"bin_boundaries must be sorted; {validation.received(bin_boundaries=boundaries)}")
    x, arrays = site.cast(x, "float32"), {"boundaries": boundaries.reshape(*(1,) * x.rank, -1)}
    out = site.cast(site.constant(blocks.counted_below, x, arrays), "int64" if site.version == 2 else "int32")
    return _encoded(site, out, len(boundaries) + 1, str(site.config.get("output_mode", "int")))


def _encoded(site: Site, x: Value, count: Any, mode: str) -> Value:
    """Integers below `count` as they are, or as ones, by Keras's `output_mode`."""
    if mode == "int":
        return x
    modes = {"one_hot": "one_hot", "multi_hot": "max", "count": "sum"}
    if mode not in modes or site.config.get("sparse") or (x.rank > 2 and site.version == 2):
        raise ValueError(f"output_mode must be one of int, {', '.join(modes)}; {validation.received(output_mode=mode)}")
    if mode == "one_hot" and x.shape[-1] == 1:
        x = site.function("squeeze", x, axis=-1)
    ones = site.function("one_hot", x, depth=validation.integer("num_tokens", count, 1))
    return ones if mode == "one_hot" else site.function(modes[mode], ones, axis=-2)


# -- shapes


@layer("Flatten", order=KERAS)
def _flatten(site: Site, x: Value) -> Value:
    if site.is_channels_first and x.rank > 2:
        x = site.function("transpose", x, axes=(0, *range(2, x.rank), 1))
    return site.function(blocks.reshape, x, to=(0, -1))


@layer("Reshape", order=KERAS)
def _reshape(site: Site, x: Value) -> Value:
    return to_shape(site, x, site.config["target_shape"])


def to_shape(site: Site, x: Value, target: Sequence[int]) -> Value:
    """Keras's `Reshape`: all axes after the batch; -1 is what is left."""
    target = [validation.integer("target_shape", length, -1) for length in target]
    if target.count(-1) > 1 or 0 in target:
        raise ValueError(f"target_shape must have one -1 at most, and no 0; {validation.received(target_shape=target)}")
    dynamic = (x.shape[0], *(None if length == -1 else length for length in target))
    return site.function(blocks.reshape, x, shape=dynamic if None in x.shape[1:] else None, to=(0, *target))


@layer("Permute")
def _permute(site: Site, x: Value) -> Value:
    return to_order(site, x, [0, *site.config["dims"]])


def to_order(site: Site, x: Value, order: Sequence[int]) -> Value:
    """Keras's axes in another order, the batch the first."""
    if sorted(order) != list(range(x.rank)) or order[0] != 0:
        raise ValueError(f"axes must be an order of {x.rank} axes, the batch first; {validation.received(axes=order)}")
    here = x.axes(order)
    if here == tuple(range(x.rank)):
        return site.function("identity", x, first=False, shape=tuple(x.shape[axis] for axis in order))
    return site.function("transpose", x, first=False, axes=here)


@layer("RepeatVector")
def _repeat_vector(site: Site, x: Value) -> Value:
    return site.function("repeat_vector", x, count=validation.integer("n", site.config["n"], 1))


def _spectral_weights(config: Dict[str, Any]) -> List[Weight]:
    inner = _wrapped(config)
    if inner.class_name not in LAYERS:
        raise ValueError(f"layer of {config.get('name')!r} must be supported; received a {inner.class_name}")
    roles = LAYERS[inner.class_name].weights_of(inner)
    return [*(role._replace(group="layer") for role in roles), Weight("vector_u", trained=False)]


def _wrapped(config: Dict[str, Any]) -> Layer:
    class_name, inner = class_and_config(config["layer"])
    return Layer(class_name, "", inner)


@layer("SpectralNormalization", weights=_spectral_weights, masks=TAKES, unread="power_iterations")
def _spectral_norm(site: Site, x: Value) -> Any:
    """The layer that is wrapped: its kernel is stored as it was divided in training, which is not done here."""
    inner, layer = _wrapped(site.config), site.layer
    if site.training:
        raise ValueError("a layer with spectral normalization must not be called with training=True")
    inner.roles = (layer.roles or [])[:-1]
    inner.weights = layer.weights[: len(inner.roles)]  # a `.keras` file has the kernel again, next to the vector
    inner.config = {**inner.config, "trainable": layer.trainable and inner.trainable}
    _only_at_inference(site, "does not divide its kernel here in training")
    out = in_place(site, inner, x)
    layer.weights = [*inner.weights, np.asarray(layer.weights[-1])]
    return out


@layer("TimeDistributed", order=KERAS, masks=TAKES, unread="layer")
def _time_distributed(site: Site, x: Value) -> Value:
    """Steps in time become entries of the batch for the layer, and are steps again after it; so does the mask. Keras 3
    passes on the mask of the data, Keras 2 that of the layer's output, or what any entry of a step keeps."""
    if x.rank < 3 or site.builder.keras_mxnet or site.layer.model is None:
        raise ValueError(
            f"inputs must have 3 axes or more, and not with padding=keras-mxnet; {validation.received(shape=x.shape)}"
        )
    entries, mask = site.function(blocks.reshape, x, to=(-3, -2))._replace(dtype=x.dtype), x.mask
    if mask is not None:
        entries = entries._replace(mask=site.function(blocks.reshape, mask, to=(-3, -2)))
    (out,) = site.builder.model(site.layer.model, site.path, [entries], site.training, site.once)

    def steps(of_entries: Value) -> Value:
        shape = (*x.shape[:2], *of_entries.shape[1:])
        return site.function("unfold", of_entries, x, shape=shape)._replace(dtype=of_entries.dtype)

    if site.version == 2 and out.mask is not None and (mask is None or out.mask.key != entries.mask.key):
        mask = steps(out.mask)
    elif site.version == 2 and out.mask is None and mask is not None and mask.rank > 2:
        mask = site.function("max", mask, axis=tuple(range(2, mask.rank)))
    return steps(site.keras(out))._replace(mask=mask)


# -- several inputs


def _agreeing(inputs: Sequence[Value], apart_from: Optional[int] = None) -> List[Value]:
    """Inputs that have a length of None where another one has a static length above 1 have that length, too."""
    lengths = []
    for axis in range(inputs[0].rank):
        static = {x.shape[axis] for x in inputs} - {None, 1 if apart_from is None else None}
        lengths.append(next(iter(static)) if len(static) == 1 and axis not in (0, apart_from) else None)
    return [x._replace(shape=tuple(n or length for n, length in zip(x.shape, lengths))) for x in inputs]


def merged(site: Site, function: str, inputs: Sequence[Value]) -> Value:
    """Element by element, of shapes that agree or broadcast; a shorter one gets axes after the batch, as Keras's do."""
    rank = max(x.rank for x in inputs)
    inputs = _agreeing(site.alike([_with_rank(site, x, rank) for x in inputs]))
    return site.function(function, *inputs, same=all(x.shape == inputs[0].shape for x in inputs))


def _with_rank(site: Site, x: Value, rank: int) -> Value:
    missing = rank - x.rank
    if not missing:
        return x
    if x.rank == 2:  # numbers for each picture, as channels
        return site.function(blocks.reshape, x, first=True, to=(0, -1, *(1,) * missing))
    return site.function("expand_dims", site.keras(x), axes=(1,) * missing)


@layer("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", masks=TAKES)
def _merge(site: Site, *inputs: Value) -> Value:
    function, masks = site.layer.class_name.lower(), [x.mask for x in inputs]
    if function == "subtract" and len(inputs) != 2:
        raise ValueError(f"inputs must be two; received {len(inputs)}")
    if site.version == 3 and any(masks) and function in ("multiply", "maximum", "minimum"):
        out = _merged_by_masks(site, function, inputs)
    else:
        out = merged(site, function, inputs)
    return out._replace(mask=_merged_mask(site, masks))


def _merged_mask(site: Site, masks: Sequence[Any]) -> Any:
    """Keras 2 keeps a step that no input masks; Keras 3 one that any input keeps, if all have a mask."""
    given = [mask for mask in masks if mask is not None]
    if len({mask.rank for mask in given}) > 1:
        raise ValueError(f"masks must agree; {validation.received(shapes=[mask.shape for mask in given])}")
    if site.version == 2:
        return _combined(site, "multiply", given)
    return None if None in masks else _combined(site, "maximum", given)


def _combined(site: Site, function: str, masks: Sequence[Value]) -> Any:
    """A function of the masks that are different; None of none."""
    distinct = list({mask.key: mask for mask in masks}.values())
    return site.function(function, *distinct) if len(distinct) > 1 else next(iter(distinct), None)


def _merged_by_masks(site: Site, function: str, inputs: Sequence[Value]) -> Value:
    """Keras 3's products and extremes leave out what is masked; a product is 0 where all inputs are."""
    one_shape = len({x.rank if function == "multiply" else x.shape for x in inputs}) == 1
    if not one_shape or any(x.mask is not None and x.mask.rank != x.rank - 1 for x in inputs):
        raise ValueError(f"masked inputs must have one shape; {validation.received(shapes=[x.shape for x in inputs])}")
    inputs, masks = [site.keras(x) for x in inputs], [x.mask for x in inputs]
    if function == "multiply":
        factors = [x if x.mask is None else site.function(blocks.kept, x, x.mask, other=1.0) for x in inputs]
        out = merged(site, function, factors)
        return out if None in masks else site.function(blocks.kept, out, _combined(site, "maximum", masks))
    out, mask = inputs[0], masks[0]
    for x in inputs[1:]:
        own = x if x.mask is None else site.function(blocks.kept, x, x.mask, out)
        out = site.function(function, out if mask is None else site.function(blocks.kept, out, mask, own), own)
        mask = None if mask is None or x.mask is None else _combined(site, "maximum", [mask, x.mask])
    return out


@layer("CustomScaleLayer")
def _custom_scale(site: Site, first: Value, second: Value) -> Value:
    """Of `keras.applications.inception_resnet_v2`: first + scale * second."""
    scaled = site.function(blocks.scalar, second, operator="multiply", value=site.number("scale"))
    return merged(site, "add", [first, scaled])


@layer("Concatenate", order=ALIKE, masks=TAKES)
def _concatenate(site: Site, *inputs: Value) -> Value:
    """Along the last axis, Keras 2 keeps a step that no input masks, and Keras 3 one that any input keeps."""
    axis, masks = site.config.get("axis", -1), [x.mask for x in inputs]
    out = concatenated(site, inputs, axis)
    if not any(masks):
        return out
    along = axis % out.rank
    if any(mask is not None and mask.rank != out.rank - 1 for mask in masks):
        raise ValueError(f"masks must lack the last axis; {validation.received(shapes=[x.shape for x in masks if x])}")
    if along == out.rank - 1:
        return out._replace(mask=_merged_mask(site, masks))
    if site.version == 2 and None in masks:
        raise ValueError(
            f"masks must be those of all inputs, along other axes than the last; {validation.received(axis=axis)}"
        )
    masks = [site.function(blocks.all_kept, site.keras(x)) if x.mask is None else x.mask for x in inputs]
    return out._replace(mask=site.function(blocks.concatenate, *masks, axis=along))


@operator("concatenate", order=ALIKE)
def _concatenate_operator(site: Site, xs: List[Value], axis: int) -> Value:
    return concatenated(site, xs if isinstance(xs, list) else [xs], axis)


def concatenated(site: Site, inputs: Sequence[Value], axis: int) -> Value:
    """Along one of Keras's axes."""
    if len({x.rank for x in inputs}) != 1:
        raise ValueError(f"shapes must agree; {validation.received(shapes=[x.shape for x in inputs])}")
    at = inputs[0].axis(axis)
    if len(inputs) == 1:
        return inputs[0]
    inputs = _agreeing(inputs, axis % inputs[0].rank)
    return site.function(blocks.concatenate, *inputs, axis=at, copies=inputs[0].shape[axis] in (1, None))


@layer("Dot", order=KERAS)
def _dot(site: Site, x: Value, y: Value) -> Value:
    axes = site.config["axes"]
    axes = [axes, axes] if isinstance(axes, int) else list(axes)
    axes, normalize = [axes[0] % x.rank, axes[1] % y.rank], bool(site.config.get("normalize", False))
    if not {x.rank, y.rank} <= {2, 3} or 0 in axes:
        raise ValueError(f"inputs must be vectors or matrices; {validation.received(shapes=[x.shape, y.shape])}")
    return site.function(blocks.dot, x, y, axes=(*axes, x.rank, y.rank), normalize=normalize)
