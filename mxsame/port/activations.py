"""Activations, as layers and as arguments of layers."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

from mxsame import validation
from mxsame.port.description import Layer
from mxsame.port.network import Site, Value

# Keras's name -> (function of `mxsame.port.blocks`, its defaults); "axis" is Keras's, the last one
ACTIVATIONS: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "celu": ("celu", {"alpha": 1.0}),
    "elu": ("elu", {"alpha": 1.0}),
    "exponential": ("exp", {}),
    "gelu": ("gelu", {"approximate": False}),
    "glu": ("glu", {"axis": -1}),
    "hard_shrink": ("hard_shrink", {"threshold": 0.5}),
    "hard_sigmoid": ("hard_sigmoid", {}),
    "hard_silu": ("hard_swish", {}),
    "hard_swish": ("hard_swish", {}),
    "hard_tanh": ("hard_tanh", {}),
    "leaky_relu": ("leaky_relu", {"negative_slope": 0.2}),
    "linear": ("identity", {}),
    "log_sigmoid": ("log_sigmoid", {}),
    "log_softmax": ("log_softmax", {"axis": -1}),
    "mish": ("mish", {}),
    "relu": ("relu", {}),
    "relu6": ("relu", {"max_value": 6.0}),
    "selu": ("selu", {}),
    "sigmoid": ("sigmoid", {}),
    "silu": ("swish", {}),
    "soft_shrink": ("soft_shrink", {"threshold": 0.5}),
    "softmax": ("softmax", {"axis": -1}),
    "softplus": ("softplus", {}),
    "softsign": ("softsign", {}),
    "sparse_plus": ("sparse_plus", {}),
    "sparse_sigmoid": ("sparse_sigmoid", {}),
    "squareplus": ("squareplus", {"b": 4}),
    "swish": ("swish", {}),
    "tanh": ("tanh", {}),
    "tanh_shrink": ("tanh_shrink", {}),
}

# layers of one argument: Keras 2's name, Keras 3's, and the default
ARGUMENTS = {
    "leaky_relu": ("negative_slope", "alpha", 0.3),
    "elu": ("alpha", "alpha", 1.0),
    "thresholded_relu": ("theta", "theta", 1.0),
}


def activated(site: Site, x: Value) -> Value:
    """x after the activation of the configuration: a name, a serialized function, or a serialized layer."""
    spec = site.config.get("activation")
    if isinstance(spec, dict) and isinstance(spec.get("config"), dict) and spec.get("class_name") not in ACTIVATIONS:
        return _layer(site, spec, x)
    name = _name(spec)
    return x if name in (None, "linear") else applied(site, str(name), x)


def applied(site: Site, name: str, x: Value, **arguments: Any) -> Value:
    """x after an activation, by Keras's name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; {validation.received(activation=name)}")
    function, defaults = ACTIVATIONS[name]
    arguments = {**defaults, **{key: value for key, value in arguments.items() if value is not None}}
    if function == "hard_sigmoid":
        function = f"hard_sigmoid_{site.version}"
    shape = x.shape
    if "axis" in arguments:
        axis = arguments["axis"]
        arguments["axis"] = x.axis(axis)
        if name == "glu":
            shape = tuple(n // 2 if at == axis % x.rank and n else n for at, n in enumerate(shape))
    return site.function(function, x, shape, **arguments)


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
    class_name = str(spec.get("class_name")).split(">")[-1]
    layer = Layer(class_name, site.layer.name, spec["config"], calls=site.layer.calls)
    if site.builder.roles(layer):
        raise ValueError(f"activation must be a layer without weights; {validation.received(class_name=class_name)}")
    inner = Site(site.builder, layer, site.path, site.call, site.model, site.training)
    return site.builder.row_of(layer)(inner, [x], {})


def activation(name: str) -> Callable:
    """A row for an activation layer with one argument."""
    new, old, default = ARGUMENTS[name]

    def row(site: Site, args: list, kwargs: dict) -> Value:
        value = site.config.get(new, site.config.get(old, default))
        x = site.builder.padded(args[0])
        return site.function(name, x, **{new: float(value)})

    return row
