"""Functions that converters share: activations, axes and shapes, windows, several tensors, and random layers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.keras_format.description import Layer, as_list, class_and_config, function_name
from mxsame.port import blocks
from mxsame.port.activations import (
    ACTIVATIONS,
    DEFAULTS,
    LIBRARY_FUNCTIONS,
    arguments_of,
    identity,
    known_function,
    names_of_function,
)
from mxsame.port.builder import user_code
from mxsame.port.call_context import CallContext
from mxsame.port.table import LAYERS, delegate, is_layer
from mxsame.port.tensors import Tensor
from mxsame.validation import InvalidType, check, one_of

LORA = "lora_rank|lora_alpha"  # options of weights that Keras trains in place of a kernel, and adds to it in files


# -- activations


def activate(call: CallContext, x: Tensor) -> Tensor:
    """Adds the activation of the configuration: a name, or a serialized function or layer."""
    serialized = call.config.get("activation")
    if is_layer(serialized):
        return _activation_layer(call, serialized, x)
    return x if function_name(serialized) in (None, "linear") else _apply(call, *function_of(call, serialized), x)


def apply_activation(call: CallContext, name: str, x: Tensor, **given: Any) -> Tensor:
    """Adds an activation by Keras's name."""
    return _apply(call, ACTIVATIONS[name], {**DEFAULTS[call.version].get(name, {}), **given}, x)


def _apply(call: CallContext, function: Callable, arguments: Dict[str, Any], x: Tensor) -> Tensor:
    """Adds a function of x, in Keras's order of axes if the user's function depends on that."""
    if "axis" in arguments_of(function):
        arguments = {**arguments, "axis": x.axis(arguments.get("axis", -1))}
    elif function not in LIBRARY_FUNCTIONS.values() and not ignores_axis_order(function):
        x = call.to_keras_order(x)
    return call.apply(function, x, **arguments)


def function_of(call: CallContext, serialized: Any) -> Tuple[Callable, Dict[str, Any]]:
    """Returns the function of a serialized activation, Keras's own or the user's, and its arguments."""
    if is_layer(serialized):
        return _function_of_layer(call, serialized)
    known = known_function(serialized, call.version)
    if known is not None:
        return known
    names = names_of_function(serialized)
    key = next((key for key in names if key in call.custom), "")
    rule = f"activation must be Keras's own, or be given by custom={{{names[-1]!r}: function of (F, x)}}"
    check(key, rule, activation=names[0])
    return _checked_user_function(call.custom[key], key), {}


def _function_of_layer(call: CallContext, serialized: Dict[str, Any]) -> Tuple[Callable, Dict[str, Any]]:
    """Returns the function of an elementwise activation that is serialized as a layer, and its arguments."""
    class_name, config = class_and_config(serialized)
    check(class_name in OF_LAYERS, f"activation must be a function, or {', '.join(OF_LAYERS)}", class_name=class_name)
    inner = replace(call, layer=Layer(class_name, call.layer.name, config))
    name, arguments = OF_LAYERS[class_name](inner)
    inner.config.refuse_dtype()
    inner.config.refuse_unread()
    return ACTIVATIONS[name], arguments


def _relu(call: CallContext) -> Tuple[str, Dict[str, Any]]:
    names = [name for name in ("max_value", "negative_slope", "threshold") if call.config.get(name) is not None]
    given = {name: call.number(name) for name in names}
    return "relu", relu_arguments(call, {name: value for name, value in given.items() if value or name == "max_value"})


def relu_arguments(call: CallContext, given: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the arguments of a ReLU. With a threshold, Keras 2 multiplies by zeros."""
    return {**given, "multiplies": call.version == 2} if given.get("threshold") else given


# layers that are activations: the name of the activation, and its arguments
OF_LAYERS: Dict[str, Callable[[CallContext], Tuple[str, Dict[str, Any]]]] = {
    "ReLU": _relu,
    "LeakyReLU": lambda call: (  # whose `negative_slope` is `alpha` in Keras 2
        "leaky_relu", {"negative_slope": call.number("negative_slope", call.number("alpha", 0.3))}
    ),
    "ELU": lambda call: ("elu", {"alpha": call.number("alpha", 1.0)}),
    "ThresholdedReLU": lambda call: ("relu", relu_arguments(call, {"threshold": call.number("theta", 1.0)})),
}  # fmt: skip


def _checked_user_function(function: Callable, name: str) -> Callable:
    """Returns the user's function of (F, x), with checks for errors in it and for its result."""

    def activation(F: Any, x: Any) -> Any:
        with user_code():
            out = function(F, x)
        if not isinstance(out, type(x)):
            raise InvalidType(f"custom {name!r} must return an array of F; received a {type(out).__name__}")
        return out

    return activation


def ignores_axis_order(function: Callable) -> bool:
    """Returns whether a function of an array commutes with a transposition, as elementwise functions do."""
    x = mx.nd.sin(mx.nd.arange(24)).reshape((2, 3, 4))
    try:
        pair = function(mx.nd, x).transpose((2, 0, 1)), function(mx.nd, x.transpose((2, 0, 1)))
    except Exception:  # it may need another rank
        return False
    return pair[0].shape == pair[1].shape and bool((pair[0] == pair[1]).asnumpy().all())


def _activation_layer(call: CallContext, serialized: Dict[str, Any], x: Tensor) -> Tensor:
    """Builds an activation that is a layer without weights, as in `Activation(LeakyReLU())`."""
    class_name, config = class_and_config(serialized)
    weights = LAYERS[class_name].weights_of(config)
    check(not weights, "activation must be a layer without weights", class_name=class_name)
    return delegate(call, Layer(class_name, call.layer.name, config), x)


# -- axes and shapes


def axes_of(axis: Any, rank: int) -> List[int]:
    """Returns an argument `axis` as a sorted list of axes from 0."""
    axes = as_list(axis)
    fits = axes and all(type(entry) is int and -rank <= entry < rank for entry in axes)
    check(fits, f"axis must be within {rank} axes", axis=axis)
    return sorted({entry % rank for entry in axes})


def axes_after_batch(axis: Any, rank: int) -> List[int]:
    """Returns what `axes_of` does, and raises a `ValueError` for the batch axis."""
    axes = axes_of(axis, rank)
    check(0 not in axes, "axis must not be the batch", axis=axis)
    return axes


def permute(call: CallContext, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Permutes Keras's axes, the first of which must stay the batch."""
    fits = sorted(axes) == list(range(x.rank)) and axes[0] == 0
    check(fits, f"axes must be a permutation of {x.rank} axes, with the batch first", axes=axes)
    here = x.axes(axes)
    if here == tuple(range(x.rank)):
        return call.apply(identity, x, transposed=False, shape=tuple(x.shape[axis] for axis in axes))
    return call.apply("transpose", x, transposed=False, axes=here)


def broadcast_constant(name: str, value: Any, x: Tensor, dtype: str = "float32") -> Tuple[Tensor, np.ndarray]:
    """Returns x, and a constant array with as many axes that broadcasts with it. A dynamic length of x becomes that of
    the array, if that is above 1."""
    array = np.asarray(value, dtype)
    full = (1,) * (x.rank - array.ndim) + array.shape
    fits = len(full) == x.rank and full[0] == 1 and all(n in (1, None, m) or m == 1 for n, m in zip(x.shape, full))
    rule = f"{name} must broadcast with the data, and not over the batch"
    check(fits, rule, shape=array.shape, **{"data.shape": x.shape})
    known = x._replace(shape=tuple(m if n is None and m > 1 else n for n, m in zip(x.shape, full)))
    return known, array.reshape(full).transpose(x.ordered(range(x.rank)))


def merge_into_batch(call: CallContext, x: Tensor, count: int) -> Tensor:
    """Merges the `count` axes after the batch into the batch."""
    x = call.to_keras_order(x)
    for _ in range(count):
        x = call.apply(blocks.reshape, x, to=(-3, -2))
    return x


def split_from_batch(call: CallContext, out: Tensor, x: Tensor, count: int) -> Tensor:
    """Splits these axes of x from the batch of an output, which was computed from `merge_into_batch`."""
    out, x = call.to_keras_order(out), call.to_keras_order(x)
    shape, both = (*x.shape[: count + 1], *out.shape[1:]), {"lhs_end": 1, "rhs_end": count + 1}
    return call.apply("reshape_like", out, x, shape=shape, lhs_begin=0, rhs_begin=0, **both)


# -- windows


def padding_of(call: CallContext) -> str:
    """Returns the layer's `padding`."""
    value, name = call.config.get("padding", "valid"), call.converter.name
    words = ("valid", "same", *["causal"] * name.endswith("Conv1D"), *["keras-mxnet"] * (value == "keras-mxnet"))
    return one_of("padding", value, words)


def window_arguments(call: CallContext) -> Dict[str, Any]:
    """Returns the windows of a convolution, as arguments of layers of `mxsame.nn`."""
    kernel_size, strides = call.per_spatial_axis("kernel_size"), call.per_spatial_axis("strides", 1)
    dilation = call.per_spatial_axis("dilation_rate", 1)
    return {"kernel_size": kernel_size, "strides": strides, "dilation": dilation, "padding": padding_of(call)}


# -- several arrays


def with_static_lengths(inputs: Sequence[Tensor], apart_from: Optional[int] = None) -> List[Tensor]:
    """Returns the inputs with a static length in place of None, if another input has one above 1 along that axis."""
    lengths = []
    for axis in range(inputs[0].rank):
        static = {x.shape[axis] for x in inputs} - {None, 1 if apart_from is None else None}
        lengths.append(next(iter(static)) if len(static) == 1 and axis not in (0, apart_from) else None)
    return [x._replace(shape=tuple(n or length for n, length in zip(x.shape, lengths))) for x in inputs]


def elementwise(call: CallContext, name: str, inputs: Sequence[Tensor]) -> Tensor:
    """Adds an elementwise function of several tensors, which broadcast. A lower rank gets axes after the batch, as in
    Keras's layers."""
    rank = max(x.rank for x in inputs)
    given = call.to_one_order([_with_rank(call, x, rank) for x in inputs])
    inputs = with_static_lengths(given)
    same = all(x.shape == inputs[0].shape for x in inputs)
    if same and any(None in x.shape[1:] for x in given):  # the batch of another input of the network may be 1
        same = len(call.steps.sources(inputs)) == 1
    return call.apply(blocks.ELEMENTWISE[name], *inputs, same=same)


def _with_rank(call: CallContext, x: Tensor, rank: int) -> Tensor:
    missing = rank - x.rank
    if not missing:
        return x
    if x.rank == 2:  # numbers for each image, as channels
        return call.apply(blocks.reshape, x, transposed=True, to=(0, -1, *(1,) * missing))
    return call.apply(blocks.expand_dims, call.to_keras_order(x), axes=(1,) * missing)


# -- what is done in training only


def dropout_rate(call: CallContext, name: str = "rate", default: Optional[float] = None) -> float:
    """Returns the fraction of elements that a layer drops."""
    rate = call.number(name, default)
    check(0 <= rate < 1, f"{name} must be a number in [0, 1)", **{name: rate})
    return rate


# options of random layers, which have no effect at inference
RANDOM_OPTIONS = "data_format|((height|width)_)?factor|mode|fill_mode|fill_value|interpolation|value_range"


def warn_about_training(call: CallContext, what: str) -> None:
    """Warns that a layer behaves differently from Keras's in training."""
    warnings.warn(f"layer {'/'.join(call.path)!r} ({call.layer.class_name}) {what}", UserWarning, stacklevel=2)


def random_layer(call: CallContext, x: Tensor, more: str = "") -> Tensor:
    """Builds a layer of random image augmentation as the identity, also in training."""
    fits = call.version == 3 or not call.training  # Keras 3 writes training=True, and ignores it
    check(fits, "random layers must not be called with training=True")
    rule = "augment the images before they are passed to the network"
    warn_about_training(call, f"does nothing here, not even in training{more}: {rule}")
    return x
