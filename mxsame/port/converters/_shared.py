"""Functions that converters share: activations, axes and shapes, windows, several inputs, and random layers."""

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

LORA = "lora_rank|lora_alpha"  # keys without an effect here: Keras saves a kernel with its LoRA weights added


# -- activations


def activate(call: CallContext, x: Tensor) -> Tensor:
    """Applies the layer's `activation`: a name, or a serialized function or layer."""
    serialized = call.config.get("activation")
    if is_layer(serialized):
        return _activation_layer(call, serialized, x)
    return x if function_name(serialized) in (None, "linear") else _apply(call, *function_of(call, serialized), x)


def apply_activation(call: CallContext, name: str, x: Tensor, **arguments: Any) -> Tensor:
    """Applies the activation of this Keras name, with the defaults of the call's version of Keras."""
    return _apply(call, ACTIVATIONS[name], {**DEFAULTS[call.version].get(name, {}), **arguments}, x)


def _apply(call: CallContext, function: Callable, arguments: Dict[str, Any], x: Tensor) -> Tensor:
    """Applies an activation function. If it is the user's and depends on the axis order, x gets Keras's order."""
    if "axis" in arguments_of(function):
        arguments = {**arguments, "axis": x.axis(arguments.get("axis", -1))}
    elif function not in LIBRARY_FUNCTIONS.values() and not ignores_axis_order(function):
        x = call.to_keras_order(x)
    return call.apply(function, x, **arguments)


def function_of(call: CallContext, serialized: Any) -> Tuple[Callable, Dict[str, Any]]:
    """Returns the function of a serialized activation, which is Keras's or the user's, and its arguments."""
    if is_layer(serialized):
        return _function_of_layer(call, serialized)
    known = known_function(serialized, call.version)
    if known is not None:
        return known
    names = names_of_function(serialized)
    key = next((name for name in names if name in call.custom), "")
    rule = f"activation must be Keras's own, or be given by custom={{{names[-1]!r}: function of (F, x)}}"
    check(key, rule, activation=names[0])
    return _checked_user_function(call.custom[key], key), {}


def _function_of_layer(call: CallContext, serialized: Dict[str, Any]) -> Tuple[Callable, Dict[str, Any]]:
    """Returns the function of an activation that is serialized as a layer of `ACTIVATION_LAYERS`, and its arguments."""
    class_name, config = class_and_config(serialized)
    rule = f"activation must be a function, or {', '.join(ACTIVATION_LAYERS)}"
    check(class_name in ACTIVATION_LAYERS, rule, class_name=class_name)
    inner_call = replace(call, layer=Layer(class_name, call.layer.name, config))
    name, arguments = ACTIVATION_LAYERS[class_name](inner_call)
    inner_call.config.refuse_dtype()
    inner_call.config.refuse_unread()
    return ACTIVATIONS[name], arguments


def _relu(call: CallContext) -> Tuple[str, Dict[str, Any]]:
    names = [name for name in ("max_value", "negative_slope", "threshold") if call.config.get(name) is not None]
    values = {name: call.number(name) for name in names}
    # 0 changes nothing, except as `max_value`
    return "relu", relu_arguments(call, {name: value for name, value in values.items() if value or name == "max_value"})


def relu_arguments(call: CallContext, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the arguments of the function `relu`. With a threshold, Keras 2 multiplies x by 0 or 1."""
    return {**arguments, "multiplies": call.version == 2} if arguments.get("threshold") else arguments


# the class of an activation layer -> a function that returns the name of the activation, and its arguments
ACTIVATION_LAYERS: Dict[str, Callable[[CallContext], Tuple[str, Dict[str, Any]]]] = {
    "ReLU": _relu,
    "LeakyReLU": lambda call: (  # Keras 2 calls the slope `alpha`
        "leaky_relu", {"negative_slope": call.number("negative_slope", call.number("alpha", 0.3))}
    ),
    "ELU": lambda call: ("elu", {"alpha": call.number("alpha", 1.0)}),
    "ThresholdedReLU": lambda call: ("relu", relu_arguments(call, {"threshold": call.number("theta", 1.0)})),
}  # fmt: skip


def _checked_user_function(function: Callable, name: str) -> Callable:
    """Returns a function that calls the user's, marks errors in it as the user's, and checks its result."""

    def activation(F: Any, x: Any) -> Any:
        with user_code():
            out = function(F, x)
        if not isinstance(out, type(x)):
            raise InvalidType(f"custom {name!r} must return an array of F; received a {type(out).__name__}")
        return out

    return activation


def ignores_axis_order(function: Callable) -> bool:
    """Returns whether a function of an array commutes with a transposition, as elementwise functions do."""
    x, axes = mx.nd.sin(mx.nd.arange(24)).reshape((2, 3, 4)), (2, 0, 1)
    try:
        first, second = function(mx.nd, x).transpose(axes), function(mx.nd, x.transpose(axes))
    except Exception:  # the function may require another rank
        return False
    return first.shape == second.shape and bool((first == second).asnumpy().all())


def _activation_layer(call: CallContext, serialized: Dict[str, Any], x: Tensor) -> Tensor:
    """Builds an activation that is itself a layer without weights, as in `Activation(LeakyReLU())`."""
    class_name, config = class_and_config(serialized)
    weights = LAYERS[class_name].weights_of(config)
    check(not weights, "activation must be a layer without weights", class_name=class_name)
    return delegate(call, Layer(class_name, call.layer.name, config), x)


# -- axes and shapes


def axes_of(axis: Any, rank: int) -> List[int]:
    """Returns the argument `axis`, an int or a list, as a sorted list of axes that are not negative."""
    axes = as_list(axis)
    are_valid = axes and all(type(entry) is int and -rank <= entry < rank for entry in axes)
    check(are_valid, f"axis must be within {rank} axes", axis=axis)
    return sorted({entry % rank for entry in axes})


def axes_after_batch(axis: Any, rank: int) -> List[int]:
    """Does what `axes_of` does, and raises a `ValueError` if the batch axis is among the axes."""
    axes = axes_of(axis, rank)
    check(0 not in axes, "axis must not be the batch", axis=axis)
    return axes


def permute(call: CallContext, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Permutes axes, which are counted in Keras's order. The batch must stay first."""
    are_valid = sorted(axes) == list(range(x.rank)) and axes[0] == 0
    check(are_valid, f"axes must be a permutation of {x.rank} axes, with the batch first", axes=axes)
    array_axes = x.axes(axes)
    if array_axes == tuple(range(x.rank)):
        return call.apply(identity, x, transposed=False, shape=tuple(x.shape[axis] for axis in axes))
    return call.apply("transpose", x, transposed=False, axes=array_axes)


def broadcast_constant(name: str, value: Any, x: Tensor, dtype: str = "float32") -> Tuple[Tensor, np.ndarray]:
    """Returns x, and a constant as an array of the same rank that broadcasts with it. If the array is longer than 1
    along a dynamic axis of x, the axis gets that static length."""
    array = np.asarray(value, dtype)
    full = (1,) * (x.rank - array.ndim) + array.shape
    agree = len(full) == x.rank and full[0] == 1 and all(n in (1, None, m) or m == 1 for n, m in zip(x.shape, full))
    rule = f"{name} must broadcast with the data, and not over the batch"
    check(agree, rule, shape=array.shape, **{"data.shape": x.shape})
    x = x._replace(shape=tuple(m if n is None and m > 1 else n for n, m in zip(x.shape, full)))
    return x, array.reshape(full).transpose(x.ordered(range(x.rank)))


def merge_into_batch(call: CallContext, x: Tensor, count: int) -> Tensor:
    """Merges the `count` axes after the batch into the batch."""
    x = call.to_keras_order(x)
    for _ in range(count):
        x = call.apply(blocks.reshape, x, to=(-3, -2))
    return x


def split_from_batch(call: CallContext, out: Tensor, x: Tensor, count: int) -> Tensor:
    """Undoes `merge_into_batch(call, x, count)` for an output `out` that was computed from it."""
    out, x = call.to_keras_order(out), call.to_keras_order(x)
    shape = (*x.shape[: count + 1], *out.shape[1:])
    return call.apply("reshape_like", out, x, shape=shape, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=count + 1)


# -- windows


def padding_of(call: CallContext) -> str:
    """Returns the layer's `padding`."""
    padding, name = call.config.get("padding", "valid"), call.converter.name
    modes = ("valid", "same", *["causal"] * name.endswith("Conv1D"), *["keras-mxnet"] * (padding == "keras-mxnet"))
    return one_of("padding", padding, modes)


def window_arguments(call: CallContext) -> Dict[str, Any]:
    """Returns the windows of a convolution, as arguments of a layer of `mxsame.nn`."""
    kernel_size, strides = call.per_spatial_axis("kernel_size"), call.per_spatial_axis("strides", 1)
    dilation = call.per_spatial_axis("dilation_rate", 1)
    return {"kernel_size": kernel_size, "strides": strides, "dilation": dilation, "padding": padding_of(call)}


# -- several inputs


def with_static_lengths(inputs: Sequence[Tensor], concat_axis: Optional[int] = None) -> List[Tensor]:
    """Returns the inputs. A dynamic length becomes the static length that other inputs have along the same axis. The
    inputs are concatenated along `concat_axis`, or broadcast without it: then a length of 1 implies nothing."""
    lengths = []
    for axis in range(inputs[0].rank):
        static = {x.shape[axis] for x in inputs} - {None, 1 if concat_axis is None else None}
        lengths.append(next(iter(static)) if len(static) == 1 and axis not in (0, concat_axis) else None)
    return [x._replace(shape=tuple(n or length for n, length in zip(x.shape, lengths))) for x in inputs]


def elementwise(call: CallContext, name: str, inputs: Sequence[Tensor]) -> Tensor:
    """Applies an elementwise function to tensors that broadcast. Tensors of lower rank get axes after the batch, as in
    Keras's layers."""
    rank = max(x.rank for x in inputs)
    ordered = call.to_one_order([_with_rank(call, x, rank) for x in inputs])
    inputs = with_static_lengths(ordered)
    same_shape = all(x.shape == inputs[0].shape for x in inputs)
    if same_shape and any(None in x.shape[1:] for x in ordered):  # one of the network's inputs may have a batch of 1
        same_shape = len(call.steps.sources(inputs)) == 1
    return call.apply(blocks.ELEMENTWISE[name], *inputs, same=same_shape)


def _with_rank(call: CallContext, x: Tensor, rank: int) -> Tensor:
    missing = rank - x.rank
    if not missing:
        return x
    if x.rank == 2:  # (N, C) is reshaped to (N, C, 1, ..), with channels first, without a transposition
        return call.apply(blocks.reshape, x, transposed=True, to=(0, -1, *(1,) * missing))
    return call.apply(blocks.expand_dims, call.to_keras_order(x), axes=(1,) * missing)


# -- dropout and random layers


def dropout_rate(call: CallContext, name: str = "rate", default: Optional[float] = None) -> float:
    """Returns the fraction of elements that a layer drops, an entry of its configuration."""
    rate = call.number(name, default)
    check(0 <= rate < 1, f"{name} must be a number in [0, 1)", **{name: rate})
    return rate


# options of random layers, which have no effect at inference
RANDOM_OPTIONS = "data_format|((height|width)_)?factor|mode|fill_mode|fill_value|interpolation|value_range"


def warn_about_training(call: CallContext, difference: str) -> None:
    """Warns that a layer differs from Keras's in training; `difference` completes a sentence about the layer."""
    warnings.warn(f"layer {'/'.join(call.path)!r} ({call.layer.class_name}) {difference}", UserWarning, stacklevel=2)


def random_layer(call: CallContext, x: Tensor, note: str = "") -> Tensor:
    """Builds a layer of random image augmentation as the identity, also in training."""
    is_accepted = call.version == 3 or not call.training  # Keras 3 writes training=True, and ignores it
    check(is_accepted, "random layers must not be called with training=True")
    advice = "augment the images before they are passed to the network"
    warn_about_training(call, f"does nothing here, not even in training{note}: {advice}")
    return x
