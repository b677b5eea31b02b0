"""Keras's activations as functions of (F, x, arguments), with Keras's defaults."""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable, Dict, Optional, Tuple

from mxsame.keras_format.description import function_name
from mxsame.port.blocks import let_pickle_find


def identity(F: Any, x: Any) -> Any:
    return x


def relu(F: Any, x: Any, max_value: Optional[float] = None, negative_slope: float = 0.0, threshold: float = 0.0,
         multiplies: bool = False) -> Any:  # fmt: skip
    """Returns the output of `keras.layers.ReLU`: x above the threshold, at most `max_value`, and below it
    negative_slope * (x - threshold). With `multiplies`, the zeros are x * 0, which is NaN where x is infinite."""
    if not negative_slope and not threshold:
        if max_value is not None:  # trains faster than F.clip; for the slice see mxsame.rewriting.training
            x = F.minimum(F.slice_axis(x, axis=0, begin=0, end=None), max_value)
        return F.Activation(x, act_type="relu")
    if max_value is None and not threshold:
        return F.LeakyReLU(x, act_type="leaky", slope=negative_slope)
    above = F.maximum(x, 0)
    if threshold:
        above = x * (x > threshold) if multiplies else F.where(x > threshold, x, F.zeros_like(x))
    above = above if max_value is None else F.clip(above, a_min=0, a_max=max_value)
    return above - negative_slope * F.maximum(threshold - x, 0) if negative_slope else above


def gelu(F: Any, x: Any, approximate: bool = False) -> Any:
    if not approximate:
        return F.LeakyReLU(x, act_type="gelu")
    return 0.5 * x * (1 + F.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def selu(F: Any, x: Any) -> Any:
    """Returns a multiple of ELU: the gradient of MXNet's `act_type="selu"` is wrong for negative inputs."""
    return 1.0507009873554805 * F.LeakyReLU(x, act_type="elu", slope=1.6732632423543772)


def glu(F: Any, x: Any, axis: int = -1) -> Any:
    first, second = F.split(x, num_outputs=2, axis=axis)
    return first * F.sigmoid(second)


def softplus(F: Any, x: Any) -> Any:
    """Returns log(1 + e^x) without overflow; `softrelu` loses digits of large negative x."""
    return F.relu(x) + F.log1p(F.exp(-F.abs(x)))


def swish(F: Any, x: Any, beta: float = 1.0) -> Any:
    return x * F.Activation(x if beta == 1 else beta * x, act_type="sigmoid")


def hard_swish(F: Any, x: Any) -> Any:
    return x * F.Activation(F.minimum(x / 6 + 0.5, 1), act_type="relu")


def soft_shrink(F: Any, x: Any, threshold: float = 0.5) -> Any:
    below = F.where(x < -threshold, x + threshold, F.zeros_like(x))
    return F.where(x > threshold, x - threshold, below)


def threshold(F: Any, x: Any, threshold: float = 0.0, default_value: float = 0.0) -> Any:
    return F.where(x > threshold, x, F.zeros_like(x) + default_value)


ACTIVATIONS: Dict[str, Callable] = {  # by Keras's names; `axis` is that of the array
    "celu": lambda F, x, alpha=1.0: F.relu(x) + alpha * F.expm1(F.minimum(x, 0) / alpha),
    "elu": lambda F, x, alpha=1.0: F.LeakyReLU(x, act_type="elu", slope=alpha),
    "exponential": lambda F, x: F.exp(x),
    "gelu": gelu,
    "glu": glu,
    "hard_shrink": lambda F, x, threshold=0.5: F.where(F.abs(x) > threshold, x, F.zeros_like(x)),
    "hard_sigmoid": lambda F, x, slope: F.clip(slope * x + 0.5, a_min=0, a_max=1),
    **dict.fromkeys(("hard_silu", "hard_swish"), hard_swish),
    "hard_tanh": lambda F, x: F.clip(x, a_min=-1, a_max=1),
    "leaky_relu": lambda F, x, negative_slope=0.2: F.LeakyReLU(x, act_type="leaky", slope=negative_slope),
    "linear": identity,
    "log_sigmoid": lambda F, x: -softplus(F, -x),
    "log_softmax": lambda F, x, axis=-1: F.log_softmax(x, axis=axis),
    "mish": lambda F, x: x * F.tanh(softplus(F, x)),
    "relu": relu,
    "relu6": lambda F, x: relu(F, x, max_value=6.0),
    "selu": selu,
    **dict.fromkeys(("silu", "swish"), swish),
    "sigmoid": lambda F, x: F.Activation(x, act_type="sigmoid"),
    "soft_shrink": soft_shrink,
    "softmax": lambda F, x, axis=-1: F.softmax(x, axis=axis),
    "softplus": softplus,
    "softsign": lambda F, x: F.Activation(x, act_type="softsign"),
    "sparse_plus": lambda F, x: F.where(x <= -1, F.zeros_like(x), F.where(x < 1, F.square(x + 1) / 4, x)),
    "sparse_sigmoid": lambda F, x: F.clip(0.5 * x + 0.5, a_min=0, a_max=1),
    "squareplus": lambda F, x, b=4: (x + F.sqrt(F.square(x) + b)) / 2,
    "tanh": lambda F, x: F.Activation(x, act_type="tanh"),
    "tanh_shrink": lambda F, x: x - F.tanh(x),
    "threshold": threshold,
}
ONLY_IN_KERAS_3 = (  # but not of Keras 2
    *("celu", "glu", "hard_shrink", "hard_silu", "hard_swish", "hard_tanh", "log_sigmoid", "soft_shrink"),
    *("sparse_plus", "sparse_sigmoid", "squareplus", "tanh_shrink", "threshold"),
)
DEFAULTS: Dict[int, Dict[str, Dict[str, Any]]] = {  # defaults of arguments that differ between versions of Keras
    2: {"hard_sigmoid": {"slope": 0.2}},
    3: {"hard_sigmoid": {"slope": 1 / 6}, "keras.ops.gelu": {"approximate": True}},
}
LIBRARIES = ("tf", "keras.ops")  # prefixes of functions that are not among Keras's activations
LIBRARY_FUNCTIONS: Dict[str, Callable] = {
    **ACTIVATIONS,
    "abs": lambda F, x: F.abs(x),
    "cos": lambda F, x: F.cos(x),
    "erf": lambda F, x: F.erf(x),
    "exp": lambda F, x: F.exp(x),
    "identity": identity,
    "log_softmax_v2": ACTIVATIONS["log_softmax"],
    "negative": lambda F, x: -x,
    "sin": lambda F, x: F.sin(x),
    "square": lambda F, x: F.square(x),
}
let_pickle_find(LIBRARY_FUNCTIONS)


def known_function(serialized: Any, version: int) -> Optional[Tuple[Callable, Dict[str, Any]]]:
    """Returns the function of a serialized activation, and its arguments; None if it is not Keras's own.

    Keras 3 serializes its own activations as names, and others as dicts.

    >>> known_function("keras.ops.gelu", 3)[1], known_function("glu", 2), known_function("mine>gelu", 3)
    ({'approximate': True}, None, None)
    """
    name = function_name(serialized) or "linear"
    library, _, short = name.rpartition(".")
    if library in LIBRARIES or name == "log_softmax_v2":
        function = LIBRARY_FUNCTIONS.get(short)
    else:
        is_foreign = isinstance(serialized, dict) if version == 3 else name in ONLY_IN_KERAS_3
        function = None if is_foreign else ACTIVATIONS.get(name)
    return None if function is None else (function, DEFAULTS[version].get(name, {}))


def names_of_function(serialized: Any) -> Tuple[str, str]:
    """Returns the keys of `custom` for a serialized function: its name with its package, and without."""
    name = str(function_name(serialized))
    return name, re.sub("^.*[>.](?=.)", "", name)


def arguments_of(function: Callable) -> Dict[str, Any]:
    """Returns the default of each argument of an activation."""
    parameters = list(inspect.signature(function).parameters.values())[2:]
    return {each.name: None if each.default is each.empty else each.default for each in parameters}
