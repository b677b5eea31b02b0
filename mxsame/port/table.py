"""The table of layers: which block or function a Keras layer becomes.

A row is a function of a `Site` (the layer where it is called, with its configuration) and its inputs. It returns the
output, after the steps that it needs. `WEIGHTS` names a layer's weights in Keras's order.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame import nn, validation
from mxsame import padding as arithmetic
from mxsame._mxnet import mx
from mxsame.port import blocks
from mxsame.port.activations import activated, activation
from mxsame.port.description import Layer
from mxsame.port.network import SAME, TRANSPOSED, Conversion, Site, Value, kernel, reshaped, unpadded

gluon = mx.gluon.nn

# -- convolutions


def _sizes(rule: Callable, x: Value, channels_first: bool, *per_axis: Sequence) -> List[Optional[int]]:
    """A length for each spatial axis: what `rule` makes of it and of the axis's entries."""
    spatial = x.shape[2:] if channels_first else x.shape[1:-1]
    return [None if n is None else rule(n, *entries) for n, *entries in zip(spatial, *per_axis)]


def _shape(x: Value, sizes: Sequence[Optional[int]], channels: Any, channels_first: bool) -> tuple:
    return (x.shape[0], channels, *sizes) if channels_first else (x.shape[0], *sizes, channels)


def _per_axis(value: Any, count: int) -> Tuple[int, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * count


def _of_rank(layer_class: Any, x: Value) -> Any:
    rank = layer_class.num_spatial_dims + 2
    if x.rank != rank:
        raise ValueError(f"data must have {rank} axes; {validation.received(**{'data.shape': x.shape})}")
    return layer_class


def _channels(x: Value, channels_first: bool) -> Any:
    return x.shape[1] if channels_first else x.shape[-1]


class _Windows(NamedTuple):
    """How a layer of `mxsame.nn` pads: the data it is given, its `padding`, and a word or pair for each axis."""

    x: Value
    padding: Any
    per_axis: tuple


def _windows(
    site: Site, x: Value, operator: str, sizes: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> _Windows:
    """The padding of a convolution or a pooling layer. That of keras-mxnet is a word where each array has the shape
    that it is taken for, and otherwise pads for the static shape."""
    word = str(site.config.get("padding", "valid")).lower()
    if not site.builder.keras_mxnet or word != "same":
        if word == "causal" and x.static is not None:
            raise ValueError("a causal convolution reshapes its input")
        return _Windows(x, word, (word,) * len(sizes))
    word = arithmetic.KERAS_MXNET
    per_axis = arithmetic.by_axis(word, operator, sizes, strides, dilation)
    if x.static is None and all(isinstance(entry, str) for entry in per_axis):
        return _Windows(x, word, per_axis)
    channels_first = site.is_channels_first
    size = _spatial(x.shape, channels_first)
    used = size if not channels_first or (operator == "pool" and len(size) == 1) else _spatial(_static(x), True)
    if None in size or None in used:
        raise ValueError(f"keras-mxnet needs a static size; {validation.received(size=size)}")
    pads = arithmetic.keras_mxnet_axes(operator, size, used, sizes, strides, dilation)
    surplus = [(0, max(-high, 0)) for _, high in pads]
    x = _cropped(site, x, _with_channels(surplus, channels_first))
    pads = tuple((low, max(high, 0)) for low, high in pads)
    return _Windows(x, pads, pads)


def _static(x: Value) -> tuple:
    """What keras-mxnet takes for the shape."""
    return x.shape if x.static is None else x.static


def _spatial(shape: Sequence, channels_first: bool) -> tuple:
    return tuple(shape[2:] if channels_first else shape[1:-1])


def _with_channels(pairs: Sequence[Tuple[int, int]], channels_first: bool) -> List[Tuple[int, int]]:
    """Pairs of the spatial axes as pairs of all of Keras's axes."""
    none = (0, 0)
    return [none, none, *pairs] if channels_first else [none, *pairs, none]


def _kernel(site: Site, kind: str, depth_multiplier: Optional[int] = None) -> Conversion:
    """From a kernel as it is stored: keras-mxnet stores those of channels first in MXNet's order."""
    if not site.layer.native or not site.is_channels_first:
        return kernel(kind, depth_multiplier)
    if kind != "depthwise":
        return SAME
    return Conversion(  # (C, m, *k) <-> (C*m, 1, *k)
        lambda array: array.reshape(-1, 1, *array.shape[2:]),
        lambda array: array.reshape(-1, depth_multiplier, *array.shape[2:]),
    )


def _convolution(layer_class: Any, kind: str = "conv") -> Callable:
    """A row for `Conv*`, `DepthwiseConv*` or `SeparableConv*`. Zeros that a layer before puts around the data become
    pads of a "valid" convolution."""

    def row(site: Site, args: list, kwargs: dict) -> Value:
        x, config, count = args[0], site.config, layer_class.num_spatial_dims
        _of_rank(layer_class, x)
        channels_first = site.is_channels_first
        pads = None
        if x.pads is not None:
            if not channels_first and config.get("padding") == "valid" and site.once:
                pads, x = x.pads, x._replace(pads=None, shape=unpadded(x))
            x = site.builder.padded(x)
        x = site.first(x)
        sizes, strides = (_per_axis(config[name], count) for name in ("kernel_size", "strides"))
        dilation = _per_axis(config.get("dilation_rate", 1), count)
        if pads is None:
            x, word, words = _windows(site, x, "conv", sizes, strides, dilation)
        else:
            word = words = tuple(pads)
        if max(strides) > 1 and max(dilation) > 1 and kind != "conv":
            raise ValueError(
                f"strides and dilation_rate must not both be above 1; {validation.received(strides=strides)}"
            )
        in_channels = _channels(x, channels_first)
        arguments = {
            "kernel_size": sizes,
            "strides": strides,
            "padding": word,
            "dilation": dilation,
            "use_bias": config.get("use_bias", True),
            "in_channels": in_channels or 0,
        }
        depth_multiplier = config.get("depth_multiplier", 1)
        if kind == "conv":
            channels = config["filters"]
            arguments.update(channels=channels, groups=config.get("groups", 1))
            weights = {"kernel": ("weight", _kernel(site, "conv"))}
        elif kind == "depthwise":
            channels = in_channels and in_channels * depth_multiplier
            arguments.update(depth_multiplier=depth_multiplier)
            weights = {site.roles[0]: ("weight", _kernel(site, "depthwise", depth_multiplier))}
        else:
            channels = config["filters"]
            arguments.update(channels=channels, depth_multiplier=depth_multiplier)
            weights = {
                "depthwise_kernel": ("depthwise_weight", _kernel(site, "depthwise", depth_multiplier)),
                "pointwise_kernel": ("pointwise_weight", _kernel(site, "pointwise")),
            }
        if arguments["use_bias"]:
            weights["bias"] = ("bias", SAME)
        lengths = _sizes(arithmetic.output_size, x, channels_first, sizes, strides, dilation, words)
        out = site.block(
            lambda prefix: layer_class(**arguments, prefix=prefix),
            x,
            _shape(x, lengths, channels, channels_first),
            weights,
        )
        return activated(site, out)

    return row


def _transposed(layer_class: Any) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        config, count = site.config, layer_class.num_spatial_dims
        x = site.first(site.builder.padded(args[0]))
        _of_rank(layer_class, x)
        channels_first = site.is_channels_first
        sizes, strides = (_per_axis(config[name], count) for name in ("kernel_size", "strides"))
        dilation = _per_axis(config.get("dilation_rate", 1), count)
        output_padding = config.get("output_padding")
        extra = (None,) * count if output_padding is None else _per_axis(output_padding, count)
        word = str(config.get("padding", "valid")).lower()
        words: Any = (word,) * count
        if site.builder.keras_mxnet:
            word = arithmetic.KERAS_MXNET if word == "same" else word
            words = arithmetic.by_axis(word, "transposed", sizes, strides, dilation)
            if x.static is not None:
                word = words = _cuts_of_keras_mxnet(site, x, sizes, strides, dilation, extra)
                output_padding, extra = None, (None,) * count
        arguments = {
            "channels": config["filters"],
            "kernel_size": sizes,
            "strides": strides,
            "padding": word,
            "dilation": dilation,
            "groups": config.get("groups", 1),
            "output_padding": None if output_padding is None else extra,
            "use_bias": config.get("use_bias", True),
            "in_channels": _channels(x, channels_first) or 0,
        }
        weights = {"kernel": ("weight", _kernel(site, "transposed"))}
        if arguments["use_bias"]:
            weights["bias"] = ("bias", SAME)
        rule = arithmetic.transposed_output_size
        if site.builder.weightless:  # Keras's static shape
            rule = arithmetic.keras_transposed_size
        lengths = _sizes(rule, x, channels_first, sizes, strides, dilation, words, extra)
        out = site.block(
            lambda prefix: layer_class(**arguments, prefix=prefix),
            x,
            _shape(x, lengths, config["filters"], channels_first),
            weights,
        )
        return activated(site, out)

    return row


def _cuts_of_keras_mxnet(site: Site, x: Value, sizes: tuple, strides: tuple, dilation: tuple, extra: tuple) -> tuple:
    """What keras-mxnet crops from each axis, to the size that follows from the static shape."""
    size, static = (_spatial(shape, site.is_channels_first) for shape in (x.shape, _static(x)))
    if None in size or None in static:
        raise ValueError(f"keras-mxnet needs a static size; {validation.received(size=size)}")
    words = (str(site.config.get("padding", "valid")).lower(),) * len(size)
    lengths = map(arithmetic.keras_transposed_size, static, sizes, strides, dilation, words, extra)
    return tuple(map(arithmetic.keras_mxnet_cuts_to, lengths, size, sizes, strides, dilation))


# -- pooling layers

AVERAGES = (nn.AvgPool1D, nn.AvgPool2D, nn.AvgPool3D)


def _pooling(layer_class: Any) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        config, count = site.config, layer_class.num_spatial_dims
        x = site.first(site.builder.padded(args[0]))
        _of_rank(layer_class, x)
        channels_first = site.is_channels_first
        sizes = _per_axis(config["pool_size"], count)
        strides = sizes if config.get("strides") is None else _per_axis(config["strides"], count)
        x, word, words = _windows(site, x, "pool", sizes, strides, (1,) * count)
        counts = {}
        if site.builder.keras_mxnet and issubclass(layer_class, AVERAGES):
            counts = {"count_include_pad": True}
        lengths = _sizes(arithmetic.output_size, x, channels_first, sizes, strides, (1,) * count, words)
        return site.block(
            lambda prefix: layer_class(sizes, strides, padding=word, prefix=prefix, **counts),
            x,
            _shape(x, lengths, _channels(x, channels_first), channels_first),
            {},
        )

    return row


def _global_pooling(kind: str, count: int) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        x = site.builder.padded(args[0])
        if x.rank != count + 2:
            raise ValueError(f"data must have {count + 2} axes; {validation.received(**{'data.shape': x.shape})}")
        channels_first, keepdims = site.is_channels_first, bool(site.config.get("keepdims", False))
        if kwargs.get("mask") is not None:
            raise ValueError("masks must not be used")
        axes = tuple(x.axis(axis) for axis in (range(2, x.rank) if channels_first else range(1, x.rank - 1)))
        channels, batch = _channels(x, channels_first), x.shape[0]
        shape = _shape(x, (1,) * count, channels, channels_first)
        if min(axes) == 1:  # channels last, and no convolution around: no reason to turn it
            out = shape if keepdims else (batch, channels)
            return site.function({"avg": "mean", "max": "max"}[kind], x, out, False, axes=axes, keepdims=keepdims)
        if kind == "max":
            pooled = site.function("global_max", x, shape, count=count)
        else:
            make = getattr(gluon, f"GlobalAvgPool{count}D")
            pooled = site.block(lambda prefix: make(prefix=prefix), x, shape, {})
        if keepdims:
            return pooled
        return site.function("reshape", pooled, (batch, channels), False, to=(0, -1))

    return row


# -- dense, batch norm and its relatives


def _dense(site: Site, args: list, kwargs: dict) -> Value:
    x, use_bias = site.builder.padded(args[0]), site.config.get("use_bias", True)
    units = validation.integer("units", site.config["units"], 1)
    if x.rank < 2:
        raise ValueError(f"data must have 2 axes or more; {validation.received(**{'data.shape': x.shape})}")
    if x.rank > 5:
        x = site.keras(x)
    x = site.settled(x)
    weights = {"kernel": ("weight", TRANSPOSED), **({"bias": ("bias", SAME)} if use_bias else {})}
    out = site.block(
        lambda prefix: blocks.Dense(
            units, x.shape[-1] or 0, x.rank, x.axis(-1) if x.first else -1, use_bias, prefix=prefix
        ),
        x,
        (*x.shape[:-1], units),
        weights,
    )
    return activated(site, out)


def _single_axis(site: Site, x: Value) -> int:
    axis = site.config.get("axis", -1)
    if isinstance(axis, (list, tuple)):
        if len(axis) != 1:
            raise ValueError(f"axis must be a single one; {validation.received(axis=axis)}")
        axis = axis[0]
    return axis


def _batch_norm(site: Site, args: list, kwargs: dict) -> Value:
    x, config = site.settled(args[0]), site.config
    axis = _single_axis(site, x)
    at, length = x.axis(axis), x.shape[axis]
    scale, center = config.get("scale", True), config.get("center", True)
    if site.training:
        raise ValueError("a batch norm must not be called with training=True")
    frozen = site.training is False or not site.layer.trainable
    if site.builder.frozen.setdefault((site.path, "statistics"), frozen) != frozen:
        raise ValueError("a batch norm must be called with one value of training in all of its calls")
    names = {"moving_mean": "running_mean", "moving_variance": "running_var"}
    weights = {role: (names.get(role, role), SAME) for role in site.roles}
    make = blocks.BatchNorm1D if (len(x.shape), at) == (3, 1) else gluon.BatchNorm
    return site.block(
        lambda prefix: make(
            axis=at,
            momentum=float(config.get("momentum", 0.99)),
            epsilon=float(config.get("epsilon", 1e-3)),
            center=center,
            scale=scale and not site.builder.keras_mxnet,  # whose batch norms have MXNet's fix_gamma
            use_global_stats=frozen,
            gamma_initializer="ones",
            in_channels=length or 0,
            prefix=prefix,
        ),
        x,
        x.shape,
        weights,
    )


def axes_of(axis: Any, rank: int) -> List[int]:
    axes = list(axis) if isinstance(axis, (list, tuple)) else [axis]
    if not axes or not all(type(entry) is int and -rank <= entry < rank for entry in axes):
        raise ValueError(f"axis must be within {rank} axes; {validation.received(axis=axis)}")
    return sorted({entry % rank for entry in axes})


def _broadcast(x: Value, axes: Sequence[int], lengths: Optional[Sequence] = None) -> Tuple[tuple, tuple, list]:
    """An array over some axes, as one that broadcasts to x: its shape here, its shape over all of Keras's axes, and
    the order in which those are here."""
    full = [x.shape[axis] if axis in axes else 1 for axis in range(x.rank)]
    if any(length is None for length in full):
        raise ValueError(
            f"axes with weights must have static lengths; {validation.received(**{'data.shape': x.shape})}"
        )
    return tuple(x.ordered(full)), tuple(full), x.ordered(range(x.rank))


def _over(x: Value, axes: Sequence[int], stored: Optional[tuple] = None) -> Tuple[tuple, Any]:
    """The shape of a parameter over some axes of x, and the conversion from Keras's, which has those axes only."""
    used, full, order = _broadcast(x, axes)
    stored = tuple(x.shape[axis] for axis in sorted(axes)) if stored is None else stored
    forth = reshaped(full, order, used)
    back = reshaped(stored, range(len(stored)), stored)

    def to_mxnet(array: Any) -> Any:
        validation.shape("weight", array.shape, stored, "of its axes")
        return forth.to_mxnet(array)

    return used, forth._replace(to_mxnet=to_mxnet, to_keras=lambda array: back.to_mxnet(forth.to_keras(array)))


def _scale_shift(
    site: Site, x: Value, axes: Sequence[int], before: str, names: Sequence[str] = ("gamma", "beta"), **arguments: Any
) -> Value:
    used, conversion = _over(x, axes)
    present = [name for name in names if site.config.get({"gamma": "scale", "beta": "center"}[name], True)]
    return site.block(
        lambda prefix: blocks.ScaleShift(dict.fromkeys(present, used), before, prefix=prefix, **arguments),
        x,
        x.shape,
        {name: (name, conversion) for name in present},
    )


def _layer_norm(site: Site, args: list, kwargs: dict) -> Value:
    x, config = site.settled(args[0]), site.config
    axes, epsilon = axes_of(config.get("axis", -1), x.rank), float(config.get("epsilon", 1e-3))
    if config.get("rms_scaling"):
        raise ValueError(f"rms_scaling must be False; {validation.received(rms_scaling=True)}")
    here = tuple(x.axis(axis) for axis in axes)
    return _scale_shift(site, x, axes, "standardize", over=here, epsilon=epsilon)


def _group_norm(site: Site, args: list, kwargs: dict) -> Value:
    x, config = site.builder.padded(args[0]), site.config
    axis = axes_of(config.get("axis", -1), x.rank)
    if axis not in ([1], [x.rank - 1]) or x.rank < 3:
        raise ValueError(f"axis must be the channels of a picture; {validation.received(axis=config.get('axis'))}")
    if axis == [x.rank - 1]:
        x = site.builder.arranged(x, True)
    channels = x.shape[axis[0]]
    groups = config.get("groups", 32)
    groups = channels if groups == -1 else groups
    if not channels or channels % groups:
        raise ValueError(
            f"channels must be a multiple of groups; {validation.received(channels=channels, groups=groups)}"
        )
    return _scale_shift(site, x, axis, "group_norm", groups=groups, epsilon=float(config.get("epsilon", 1e-3)))


def _unit_norm(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(args[0])
    axes = tuple(x.axis(axis) for axis in axes_of(site.config.get("axis", -1), x.rank))
    return site.function("unit", x, axes=axes)


def _layer_scale(site: Site, args: list, kwargs: dict) -> Value:
    x = site.settled(args[0])
    return _scale_shift(site, x, [x.rank - 1], "identity", names=("gamma",))


def constants(site: Site, x: Value, gamma: Any, beta: Any) -> Value:
    """x * gamma + beta, with numbers or arrays of the configuration, to which x may be broadcast."""
    arrays, shape = {}, x.shape
    for name, value in (("gamma", gamma), ("beta", beta)):
        array = np.asarray(value, dtype="float32")
        full = (1,) * (x.rank - array.ndim) + array.shape
        if array.ndim > x.rank or any(n not in (1, None) and 1 != m != n for n, m in zip(x.shape, full)) or full[0] > 1:
            raise ValueError(
                "arrays must broadcast with the data, and not over the batch; "
                f"{validation.received(shape=array.shape, **{'data.shape': x.shape})}"
            )
        array = array.reshape(full)
        shape = tuple(m if n == 1 else n for n, m in zip(shape, full))
        arrays[name] = array.transpose(x.ordered(range(x.rank)))
    block = blocks.ScaleShift(
        {name: array.shape for name, array in arrays.items()}, prefix=site.builder.unique(site.name)
    )
    for name, array in arrays.items():
        site.frozen_parameter(getattr(block, name), array)
    return site.builder.emit(block, [x], shape, x.first, site.name)


def _rescaling(site: Site, args: list, kwargs: dict) -> Value:
    x, scale, offset = site.builder.padded(args[0]), site.config["scale"], site.config.get("offset", 0.0)
    if isinstance(scale, (list, tuple)) or isinstance(offset, (list, tuple)):
        return constants(site, x, scale, offset)
    x = site.function("scalar", x, operator="multiply", value=float(scale))
    return site.function("scalar", x, operator="add", value=float(offset)) if offset else x


def _normalization(site: Site, args: list, kwargs: dict) -> Value:
    x, config = site.settled(args[0]), site.config
    axis = config.get("axis", -1)
    axes = [] if axis in (None, [], ()) else axes_of(axis, x.rank)
    invert = bool(config.get("invert", False))
    used, conversion = _over(x, axes)
    if config.get("mean") is None:
        return site.block(
            lambda prefix: blocks.Standardization(used, invert, prefix=prefix),
            x,
            x.shape,
            {"mean": ("mean", conversion), "variance": ("variance", conversion)},
        )
    block = blocks.Standardization(used, invert, prefix=site.builder.unique(site.name))
    _, full, order = _broadcast(x, axes)
    for name in ("mean", "variance"):
        array = np.broadcast_to(np.asarray(config[name], dtype="float32").ravel(), (math.prod(full),))
        site.frozen_parameter(getattr(block, name), array.reshape(full).transpose(order))
    return site.builder.emit(block, [x], x.shape, x.first, site.name)


def _embedding(site: Site, args: list, kwargs: dict) -> Value:
    x, config = args[0], site.config
    if config.get("mask_zero"):
        raise ValueError(
            "mask_zero must be False, for masks are not carried through a network; received mask_zero=True"
        )
    return site.block(
        lambda prefix: gluon.Embedding(config["input_dim"], config["output_dim"], prefix=prefix),
        site.keras(x),
        (*x.shape, config["output_dim"]),
        {"embeddings": ("weight", SAME)},
        first=False,
    )


# -- activations as layers


def _activation(site: Site, args: list, kwargs: dict) -> Value:
    return activated(site, site.builder.padded(args[0]))


def _relu(site: Site, args: list, kwargs: dict) -> Value:
    config = site.config
    numbers = {
        "max_value": None if config.get("max_value") is None else float(config["max_value"]),
        "negative_slope": float(config.get("negative_slope") or 0),
        "threshold": float(config.get("threshold") or 0),
    }
    return site.function("relu", site.builder.padded(args[0]), **numbers)


def _prelu(site: Site, args: list, kwargs: dict) -> Value:
    x = site.settled(args[0])
    shared = {axis % x.rank for axis in site.config.get("shared_axes") or []}
    axes = [axis for axis in range(1, x.rank) if axis not in shared]
    used, conversion = _over(x, axes, tuple(1 if axis in shared else x.shape[axis] for axis in range(1, x.rank)))
    return site.block(lambda prefix: blocks.PReLU(used, prefix=prefix), x, x.shape, {"alpha": ("alpha", conversion)})


def _softmax(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(args[0])
    (axis,) = axes_of(site.config.get("axis", -1), x.rank)
    return site.function("softmax", x, axis=x.axis(axis))


# -- dropout and noise


def _rate(site: Site, name: str = "rate") -> float:
    """What part is dropped."""
    rate = site.config[name]
    if type(rate) not in (int, float) or not 0 <= rate < 1:
        raise ValueError(f"{name} must be a number of [0, 1); {validation.received(**{name: rate})}")
    return float(rate)


def _dropout(site: Site, args: list, kwargs: dict) -> Value:
    x, rate = site.builder.padded(args[0]), _rate(site)
    noise = site.config.get("noise_shape")
    axes = [axis for axis, length in enumerate(noise) if length == 1] if noise else []
    return _dropped(site, x, rate, axes)


def _spatial_dropout(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(args[0])
    axes = range(2, x.rank) if site.is_channels_first else range(1, x.rank - 1)
    return _dropped(site, x, _rate(site), axes)


def _dropped(site: Site, x: Value, rate: float, axes: Sequence[int]) -> Value:
    if not rate or site.training is False:
        return x
    mode = "always" if site.training else "training"
    return site.function("dropout", x, rate=rate, axes=tuple(x.axis(axis) for axis in axes), mode=mode)


def _noise(function: str, argument: str, deviation: Callable) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        x = site.builder.padded(args[0])
        amount = _rate(site) if argument == "rate" else float(site.config[argument])
        if site.training:
            raise ValueError("noise must not be called with training=True")
        if not amount or site.training is False:
            return x
        return site.function(function, x, **deviation(amount))

    return row


def _stochastic_depth(site: Site, args: list, kwargs: dict) -> Value:
    """Of `keras.applications.convnext`: the whole branch of a picture is dropped, or not."""
    x = site.builder.padded(args[0])
    return _dropped(site, x, _rate(site, "drop_path_rate"), range(1, x.rank))


def _identity(site: Site, args: list, kwargs: dict) -> Value:
    return args[0]


# -- shapes


def _flatten(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(args[0])
    if site.config.get("data_format") == "channels_first" and x.rank > 2:
        axes = (0, *range(2, x.rank), 1)
        x = site.function("transpose", site.keras(x), tuple(x.shape[axis] for axis in axes), False, axes=axes)
    x = site.keras(x)
    known = None if None in x.shape[1:] else math.prod(x.shape[1:])
    return site.function("reshape", x, (x.shape[0], known), False, to=(0, -1))


def to_shape(site: Site, x: Value, target: Sequence[int]) -> Value:
    """Keras's `Reshape`: all axes after the batch; -1 is what is left."""
    target = [validation.integer("target_shape", length, -1) for length in target]
    if target.count(-1) > 1 or 0 in target:
        raise ValueError(f"target_shape must have one -1 at most, and no 0; {validation.received(target_shape=target)}")
    x = site.keras(x)
    known = None if None in x.shape[1:] else math.prod(x.shape[1:])
    given = math.prod(length for length in target if length > 0)
    if known is not None and (known % given if -1 in target else known != given):
        raise ValueError(f"data must fill target_shape; {validation.received(size=known, target_shape=target)}")
    lengths = [(None if known is None else known // given) if length == -1 else length for length in target]
    shape = (x.shape[0], *lengths)
    first = len(target) > 1 and all(length == 1 for length in target[:-1])
    used = [-1, *target[:-1]] if first else target
    return site.function("reshape", x, shape, first, to=(0, *used))


def _reshape(site: Site, args: list, kwargs: dict) -> Value:
    return to_shape(site, args[0], site.config["target_shape"])


def _permute(site: Site, args: list, kwargs: dict) -> Value:
    return to_order(site, args[0], [0, *site.config["dims"]])


def to_order(site: Site, x: Value, order: Sequence[int]) -> Value:
    """Keras's axes in another order, the batch the first."""
    x = site.builder.padded(x)
    if sorted(order) != list(range(x.rank)) or order[0] != 0:
        raise ValueError(f"axes must be an order of {x.rank} axes, the batch first; {validation.received(axes=order)}")
    shape = tuple(x.shape[axis] for axis in order)
    here = tuple(x.axis(axis) for axis in order)
    if here == tuple(range(x.rank)):
        return site.function("identity", x, shape, False)
    return site.function("transpose", x, shape, False, axes=here)


def _repeat_vector(site: Site, args: list, kwargs: dict) -> Value:
    x, count = args[0], validation.integer("n", site.config["n"], 1)
    return site.function("repeat", x, (x.shape[0], count, x.shape[1]), False, count=count)


def _pairs(value: Any, count: int) -> List[Tuple[int, int]]:
    """Padding and cropping: an int, one for each axis, or pairs."""
    if count == 1 and isinstance(value, (list, tuple)) and not isinstance(value[0], (list, tuple)):
        value = [value]
    pairs = [tuple(entry) if isinstance(entry, (list, tuple)) else (entry, entry) for entry in _per_axis(value, count)]
    for low, high in pairs:
        validation.integer("padding", low, 0), validation.integer("padding", high, 0)
    return pairs


def _spatial_pairs(site: Site, x: Value, argument: str) -> Tuple[List[Tuple[int, int]], List[Tuple[int, int]]]:
    """Of each spatial axis, and of all of Keras's axes."""
    pairs = _pairs(site.config[argument], x.rank - 2)
    if len(pairs) != x.rank - 2:
        raise ValueError(f"{argument} must have one entry for each of {x.rank - 2} axes")
    return pairs, _with_channels(pairs, site.is_channels_first)


def _zero_padding(site: Site, args: list, kwargs: dict) -> Value:
    """Left to a convolution that follows; any other layer has the zeros put around the data."""
    x = args[0]
    if x.static is not None and x.rank == 3:
        raise ValueError("ZeroPadding1D reshapes its input")
    pairs, per_axis = _spatial_pairs(site, x, "padding")
    x = site.first(site.builder.padded(x))
    shape = [n if n is None else n + low + high for n, (low, high) in zip(x.shape, per_axis)]
    validation.elements("the output", shape)
    if not x.first:
        return site.function("pad", x, shape, pads=[tuple(pair) for pair in per_axis])
    return x._replace(shape=tuple(shape), pads=tuple(pairs))


def _cropping(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(args[0])
    _, per_axis = _spatial_pairs(site, x, "cropping")
    return _cropped(site, x, per_axis)


def _cropped(site: Site, x: Value, per_axis: Sequence[Tuple[int, int]]) -> Value:
    """Without (start, end) elements of Keras's axes."""
    if not any(map(any, per_axis)):
        return x
    shape = [n if n is None else n - low - high for n, (low, high) in zip(x.shape, per_axis)]
    if any(n is not None and n < 1 for n in shape):
        raise ValueError(f"cropping must leave elements; {validation.received(**{'data.shape': x.shape})}")
    here = x.ordered(per_axis)
    begin = tuple(low or None for low, _ in here)
    end = tuple(-high or None for _, high in here)
    return site.function("slice", x, shape, begin=begin, end=end, step=())


def _upsampling(site: Site, args: list, kwargs: dict) -> Value:
    x = site.first(site.builder.padded(args[0]))
    factors = validation.per_axis("size", site.config["size"], x.rank - 2, 1)
    channels_first = site.is_channels_first
    interpolation = site.config.get("interpolation", "nearest")
    if site.builder.keras_mxnet:
        interpolation = "nearest"  # keras-mxnet has no other
    sizes = _sizes(lambda n, factor: n * factor, x, channels_first, factors)
    shape = _shape(x, sizes, _channels(x, channels_first), channels_first)
    if interpolation == "nearest":
        return site.function("upsample", x, shape, factors=factors)
    if interpolation == "bilinear" and x.rank == 4:
        return site.function("upsample_bilinear", x, shape, factors=factors)
    raise ValueError(
        'interpolation must be "nearest", or "bilinear" for pictures; '
        f"{validation.received(interpolation=interpolation)}"
    )


LARGEST_INDEX = 10_000  # rows or columns by their numbers, each of which is in the graph


def resized(site: Site, x: Value, size: Sequence[int], method: str) -> Value:
    """`tf.image.resize` without antialiasing."""
    x = site.first(site.builder.padded(x))
    channels_first = site.is_channels_first
    height, width = (validation.integer("size", length, 1) for length in size)
    shape = _shape(x, (height, width), _channels(x, channels_first), channels_first)
    if method == "bilinear":
        return site.function("resize_bilinear", x, shape, size=(height, width))
    known = x.shape[2:] if channels_first else x.shape[1:-1]
    if method != "nearest" or None in known:
        raise ValueError(
            'interpolation must be "bilinear", or "nearest" for a static input size; '
            f"{validation.received(interpolation=method, size=known)}"
        )
    for length in (height, width):
        validation.integer("size", length, 1, LARGEST_INDEX)
    sources = [
        [min(int((index + 0.5) * n / length), n - 1) for index in range(length)]
        for n, length in zip(known, (height, width))
    ]
    return site.function("resize_nearest", x, shape, rows=sources[0], columns=sources[1])


def _resizing(site: Site, args: list, kwargs: dict) -> Value:
    config = site.config
    for name in ("crop_to_aspect_ratio", "pad_to_aspect_ratio", "antialias"):
        if config.get(name):
            raise ValueError(f"{name} must be False; {validation.received(**{name: config[name]})}")
    return resized(site, args[0], (config["height"], config["width"]), config.get("interpolation", "bilinear"))


# -- several inputs


def merged(site: Site, function: str, inputs: Sequence[Value]) -> Value:
    """Element by element, of shapes that agree or broadcast; a shorter one gets axes after the batch, as Keras's do."""
    if not inputs:
        raise ValueError("inputs must be one or more; received none")
    rank = max(x.rank for x in inputs)
    inputs = site.alike([with_rank(site, x, rank, at=1) for x in inputs])
    return _elementwise(site, function, inputs)


def with_rank(site: Site, x: Value, rank: int, at: int) -> Value:
    missing = rank - x.rank
    if not missing:
        return x
    x = site.keras(x)
    shape = (*x.shape[:at], *(1,) * missing, *x.shape[at:])
    first = rank > 2 and at == 1 and x.rank == 2
    if first:
        return site.function("reshape", x, shape, True, to=(0, -1, *(1,) * missing))
    return site.function("expand_dims", x, shape, False, axes=(at,) * missing)


def _elementwise(site: Site, function: str, inputs: Sequence[Value]) -> Value:
    shape = []
    for lengths in zip(*(x.shape for x in inputs)):
        others = {length for length in lengths if length != 1}
        static = {length for length in others if length is not None}
        if len(static) > 1:
            raise ValueError(f"shapes must agree; {validation.received(shapes=[x.shape for x in inputs])}")
        shape.append(static.pop() if static else (None if others else 1))
    same = all(x.shape == inputs[0].shape for x in inputs)
    return site.function(function, inputs, tuple(shape), same=same)


def _merge(function: str, count: Optional[int] = None) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        inputs = _listed(args)
        if count is not None and len(inputs) != count:
            raise ValueError(f"inputs must be {count}; received {len(inputs)}")
        return merged(site, function, inputs)

    return row


def _listed(args: list) -> List[Value]:
    return [x for entry in args for x in (entry if isinstance(entry, list) else [entry])]


def concatenated(site: Site, inputs: Sequence[Value], axis: int) -> Value:
    """Along one of Keras's axes."""
    inputs = site.alike(inputs)
    if len(inputs) == 1:
        return inputs[0]
    at = inputs[0].axis(axis)
    for others in zip(*(_without(x, axis) for x in inputs)):
        if len({length for length in others if length is not None}) > 1:
            raise ValueError(f"shapes must agree; {validation.received(shapes=[x.shape for x in inputs])}")
    lengths = [x.shape[axis] for x in inputs]
    shape = list(inputs[0].shape)
    shape[axis] = None if None in lengths else sum(lengths)
    return site.function("concatenate", inputs, tuple(shape), axis=at)


def _without(x: Value, axis: int) -> list:
    """The lengths of the other axes."""
    lengths = list(x.shape)
    del lengths[axis]
    return lengths


def _concatenate(site: Site, args: list, kwargs: dict) -> Value:
    return concatenated(site, _listed(args), site.config.get("axis", -1))


def _dot(site: Site, args: list, kwargs: dict) -> Value:
    x, y = (site.keras(each) for each in _listed(args))
    axes = site.config["axes"]
    axes = [axes, axes] if isinstance(axes, int) else list(axes)
    axes = [axes[0] % x.rank, axes[1] % y.rank]
    if not {x.rank, y.rank} <= {2, 3} or 0 in axes:
        raise ValueError(f"inputs must be vectors or matrices; {validation.received(shapes=[x.shape, y.shape])}")
    rest = [x.shape[axis] for axis in range(1, x.rank) if axis != axes[0]]
    rest += [y.shape[axis] for axis in range(1, y.rank) if axis != axes[1]]
    shape = (x.shape[0], *(rest or [1]))
    normalize = bool(site.config.get("normalize", False))
    return site.function("dot", [x, y], shape, False, axes=(*axes, x.rank, y.rank), normalize=normalize)


def _custom_scale(site: Site, args: list, kwargs: dict) -> Value:
    """Of `keras.applications.inception_resnet_v2`: first + scale * second."""
    first, second = _listed(args)
    second = site.function(
        "scalar", site.builder.padded(second), operator="multiply", value=float(site.config["scale"])
    )
    return merged(site, "add", [first, second])


# -- the table

LAYERS: Dict[str, Callable] = {
    "Conv1D": _convolution(nn.Conv1D),
    "Conv2D": _convolution(nn.Conv2D),
    "Conv3D": _convolution(nn.Conv3D),
    "DepthwiseConv1D": _convolution(nn.DepthwiseConv1D, "depthwise"),
    "DepthwiseConv2D": _convolution(nn.DepthwiseConv2D, "depthwise"),
    "SeparableConv1D": _convolution(nn.SeparableConv1D, "separable"),
    "SeparableConv2D": _convolution(nn.SeparableConv2D, "separable"),
    "Conv1DTranspose": _transposed(nn.Conv1DTranspose),
    "Conv2DTranspose": _transposed(nn.Conv2DTranspose),
    "Conv3DTranspose": _transposed(nn.Conv3DTranspose),
    "MaxPooling1D": _pooling(nn.MaxPool1D),
    "MaxPooling2D": _pooling(nn.MaxPool2D),
    "MaxPooling3D": _pooling(nn.MaxPool3D),
    "AveragePooling1D": _pooling(nn.AvgPool1D),
    "AveragePooling2D": _pooling(nn.AvgPool2D),
    "AveragePooling3D": _pooling(nn.AvgPool3D),
    "GlobalMaxPooling1D": _global_pooling("max", 1),
    "GlobalMaxPooling2D": _global_pooling("max", 2),
    "GlobalMaxPooling3D": _global_pooling("max", 3),
    "GlobalAveragePooling1D": _global_pooling("avg", 1),
    "GlobalAveragePooling2D": _global_pooling("avg", 2),
    "GlobalAveragePooling3D": _global_pooling("avg", 3),
    "ZeroPadding1D": _zero_padding,
    "ZeroPadding2D": _zero_padding,
    "ZeroPadding3D": _zero_padding,
    "Cropping1D": _cropping,
    "Cropping2D": _cropping,
    "Cropping3D": _cropping,
    "UpSampling1D": _upsampling,
    "UpSampling2D": _upsampling,
    "UpSampling3D": _upsampling,
    "Resizing": _resizing,
    "Dense": _dense,
    "Embedding": _embedding,
    "BatchNormalization": _batch_norm,
    "SyncBatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "UnitNormalization": _unit_norm,
    "LayerScale": _layer_scale,
    "Normalization": _normalization,
    "Rescaling": _rescaling,
    "Activation": _activation,
    "ReLU": _relu,
    "LeakyReLU": activation("leaky_relu"),
    "ELU": activation("elu"),
    "ThresholdedReLU": activation("thresholded_relu"),
    "PReLU": _prelu,
    "Softmax": _softmax,
    "Dropout": _dropout,
    "SpatialDropout1D": _spatial_dropout,
    "SpatialDropout2D": _spatial_dropout,
    "SpatialDropout3D": _spatial_dropout,
    "StochasticDepth": _stochastic_depth,
    "AlphaDropout": _noise("alpha_dropout", "rate", lambda rate: {"rate": rate}),
    "GaussianDropout": _noise("gaussian_dropout", "rate", lambda rate: {"deviation": math.sqrt(rate / (1 - rate))}),
    "GaussianNoise": _noise("gaussian_noise", "stddev", lambda deviation: {"deviation": deviation}),
    "ActivityRegularization": _identity,
    "Identity": _identity,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Permute": _permute,
    "RepeatVector": _repeat_vector,
    "Add": _merge("add"),
    "Subtract": _merge("subtract", 2),
    "Multiply": _merge("multiply"),
    "Average": _merge("average"),
    "Maximum": _merge("maximum"),
    "Minimum": _merge("minimum"),
    "Concatenate": _concatenate,
    "Dot": _dot,
    "CustomScaleLayer": _custom_scale,
}

WEIGHTS = {
    **dict.fromkeys(
        ("Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose", "Dense"), "kernel bias"
    ),
    "DepthwiseConv1D": "depthwise_kernel bias",
    "DepthwiseConv2D": "depthwise_kernel bias",
    "SeparableConv1D": "depthwise_kernel pointwise_kernel bias",
    "SeparableConv2D": "depthwise_kernel pointwise_kernel bias",
    "BatchNormalization": "gamma beta moving_mean moving_variance",
    "SyncBatchNormalization": "gamma beta moving_mean moving_variance",
    "LayerNormalization": "gamma beta",
    "GroupNormalization": "gamma beta",
    "LayerScale": "gamma",
    "Normalization": "mean variance count",
    "Embedding": "embeddings",
    "PReLU": "alpha",
}
FLAGS = {"bias": "use_bias", "gamma": "scale", "beta": "center"}  # what leaves a weight out
NON_TRAINABLE = ("moving_mean", "moving_variance", "mean", "variance", "count")


def roles_of(layer: Layer) -> List[Tuple[str, bool]]:
    """A layer's weights in Keras's order, and whether each can be trained."""
    if layer.operator is not None or (layer.class_name == "Normalization" and layer.config.get("mean") is not None):
        return []
    names = WEIGHTS.get(layer.class_name, "").split()
    if layer.native and layer.class_name == "BatchNormalization":  # keras-mxnet stores them all
        center = layer.config.get("center", True)
        return [(name, name not in NON_TRAINABLE and (center or name != "beta")) for name in names]
    names = [name for name in names if layer.config.get(FLAGS.get(name, ""), True)]
    return [(name, name not in NON_TRAINABLE) for name in names]
