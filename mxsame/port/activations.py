"""Activations: as arguments of layers, as layers, and as operators."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from mxsame import validation
from mxsame.port.builder import Site, Value
from mxsame.port.description import Layer, class_and_config
from mxsame.port.rows import LAYERS, PASSES, TAKES, in_place, layer

WITHOUT_ARGUMENTS = (
    *("exponential", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "linear", "log_sigmoid", "mish", "relu"),
    *("selu", "sigmoid", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "tanh", "tanh_shrink"),
)
ACTIVATIONS: Dict[str, Dict[str, Any]] = {  # Keras's name -> its arguments; "axis" is Keras's
    **{name: {} for name in WITHOUT_ARGUMENTS},
    **{name: {"axis": -1} for name in ("glu", "log_softmax", "softmax")},
    **{name: {"alpha": 1.0} for name in ("celu", "elu")},
    **{name: {"threshold": 0.5} for name in ("hard_shrink", "soft_shrink")},
    **{name: {"beta": 1.0} for name in ("silu", "swish")},
    "gelu": {"approximate": False},
    "leaky_relu": {"negative_slope": 0.2},
    "relu6": {"max_value": 6.0},
    "squareplus": {"b": 4},
    "threshold": {"threshold": 0.0, "default_value": 0.0},
}
# those that have another name in `mxsame.port.blocks` or MXNet
FUNCTIONS = {"exponential": "exp", "hard_silu": "hard_swish", "linear": "identity", "relu6": "relu", "silu": "swish"}


@layer("Activation", masks=PASSES)
def activated(site: Site, x: Value) -> Value:
    """x after the activation of the configuration: a name, a serialized function, or a serialized layer."""
    spec = site.config.get("activation")
    if isinstance(spec, dict) and isinstance(spec.get("config"), dict) and spec.get("class_name") not in ACTIVATIONS:
        return _layer(site, spec, x)
    name = _name(spec)
    return x if name in (None, "linear") else applied(site, str(name), x)


def applied(site: Site, name: str, x: Value, **given: Any) -> Value:
    """x after an activation, by Keras's name."""
    function, arguments = _function(site, name)
    arguments = {**arguments, **given}
    if "axis" in arguments:
        arguments["axis"] = x.axis(arguments["axis"])
    return site.function(function, x, **arguments)


def _function(site: Site, name: str) -> Tuple[str, Dict[str, Any]]:
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; {validation.received(activation=name)}")
    if name == "hard_sigmoid":
        return name, {"slope": 0.2 if site.version == 2 else 1 / 6}
    return FUNCTIONS.get(name, name), ACTIVATIONS[name]


def named(site: Site, config: Dict[str, Any], argument: str, default: str) -> Tuple[str, Dict[str, Any]]:
    """The function of an activation that a configuration names, as a block applies it to each element."""
    return _function(site, _name(config.get(argument, default)) or "linear")


def _name(spec: Any) -> Optional[str]:
    if spec is None or isinstance(spec, str):
        return spec
    if isinstance(spec, dict):
        name = spec.get("config") if spec.get("class_name") == "function" else spec.get("class_name")
        if isinstance(name, str):
            return name
    raise ValueError(f"activation must be a name; {validation.received(activation=spec)}")


def _layer(site: Site, spec: Dict[str, Any], x: Value) -> Value:
    """An activation that is a layer without weights, as `Activation(LeakyReLU())`."""
    class_name, config = class_and_config(spec)
    inner = Layer(class_name, site.layer.name, config)
    if class_name not in LAYERS or LAYERS[class_name].weights_of(inner):
        raise ValueError(f"activation must be a layer without weights; {validation.received(class_name=class_name)}")
    return in_place(site, inner, x)


@layer("ReLU", masks=PASSES)
def _relu(site: Site, x: Value) -> Value:
    largest = None if site.config.get("max_value") is None else site.number("max_value")
    slope, threshold = site.number("negative_slope", 0.0), site.number("threshold", 0.0)
    return site.function("relu", x, max_value=largest, negative_slope=slope, threshold=threshold)


@layer("LeakyReLU", "ELU", "ThresholdedReLU", masks=PASSES)
def _with_a_number(site: Site, x: Value) -> Value:
    """`negative_slope` is `alpha` in Keras 2."""
    if site.layer.class_name == "ELU":
        return site.function("elu", x, alpha=site.number("alpha", 1.0))
    if site.layer.class_name == "LeakyReLU":
        return site.function("leaky_relu", x, negative_slope=site.number("negative_slope", site.number("alpha", 0.3)))
    return site.function("threshold", x, threshold=site.number("theta", 1.0), default_value=0.0)


@layer("Softmax", masks=TAKES)
def _softmax(site: Site, x: Value) -> Value:
    mask = x.mask
    if mask is not None:
        if mask.shape != x.shape:
            raise ValueError(
                f"mask must have the shape of the data, {x.shape}; {validation.received(shape=mask.shape)}"
            )
        x = site.function("masked_scores", site.keras(x), mask)
    axis = site.config.get("axis", -1)
    (axis,) = axis if isinstance(axis, (list, tuple)) and len(axis) == 1 else (axis,)
    return site.function("softmax", x, axis=x.axis(axis))._replace(mask=mask)
