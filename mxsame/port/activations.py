"""Activations: as arguments of layers, as layers, and as operators."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Union

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.port.builder import Site, Value, users_code
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
    if _is_layer(spec):
        return _layer(site, spec, x)
    name = _name(spec)
    return x if name in (None, "linear") else applied(site, str(name), x)


def applied(site: Site, name: str, x: Value, **given: Any) -> Value:
    """x after an activation, by Keras's name."""
    function, arguments = _function(site, name)
    arguments = {**arguments, **given}
    if callable(function) and not commutes(function):
        x = site.keras(x)
    if "axis" in arguments:
        arguments["axis"] = x.axis(arguments["axis"])
    return site.function(function, x, **arguments)


def _function(site: Site, name: str) -> Tuple[Union[str, Callable], Dict[str, Any]]:
    """Keras's own, or the user's."""
    given = site.builder.custom_functions
    if name not in ACTIVATIONS:
        for key in (name, name.split(">")[-1]):
            if key in given:
                return _users(given[key], key), {}
        raise ValueError(
            f"activation must be one of {', '.join(ACTIVATIONS)}, "
            f"or be given by custom={{{name!r}: function of (F, x)}}; {validation.received(activation=name)}"
        )
    if name == "hard_sigmoid":
        return name, {"slope": 0.2 if site.version == 2 else 1 / 6}
    return FUNCTIONS.get(name, name), ACTIVATIONS[name]


def _users(function: Callable, name: str) -> Callable:
    """The user's function of (F, x), as one of a block."""

    def activation(F: Any, x: Any) -> Any:
        with users_code():
            out = function(F, x)
        if not isinstance(out, type(x)):
            raise TypeError(f"custom {name!r} must return an array of F; received a {type(out).__name__}")
        return out

    return activation


def commutes(function: Callable) -> bool:
    """Whether a function gives the same for any order of axes, as one of each element does."""
    x = mx.nd.random.normal(shape=(2, 3, 4))
    try:
        pair = function(mx.nd, x).transpose((2, 0, 1)), function(mx.nd, x.transpose((2, 0, 1)))
    except Exception:  # it may be one of other numbers of axes
        return False
    return pair[0].shape == pair[1].shape and bool((pair[0] == pair[1]).asnumpy().all())


def named(site: Site, config: Dict[str, Any], argument: str, default: str) -> Tuple[Any, Dict[str, Any]]:
    """The function of an activation that a configuration names, as a block applies it to each element."""
    return _function(site, _name(config.get(argument, default)) or "linear")


def _name(spec: Any) -> Optional[str]:
    """That of a function; one that is not Keras's own is `package>name`, and a lambda "<lambda>"."""
    if spec is None or isinstance(spec, str):
        return spec
    if isinstance(spec, dict):
        registered, class_name = str(spec.get("registered_name")), spec.get("class_name")
        name = registered if ">" in registered else spec.get("config") if class_name == "function" else class_name
        if "value" in spec or class_name == "__lambda__":  # Python's code, which is not run
            return "<lambda>"
        if isinstance(name, str):
            return name
    raise ValueError(f"activation must be a name; {validation.received(activation=spec)}")


def users_names(config: Any) -> Iterator[str]:
    """The names of a configuration's activations that Keras does not have, with and without their package."""
    entries = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    for key, value in entries:
        if key in ("activation", "recurrent_activation") and not _is_layer(value):
            name = _name(value)
            yield from () if name is None or name in ACTIVATIONS else (name, name.split(">")[-1])
        yield from users_names(value)


def _is_layer(spec: Any) -> bool:
    return isinstance(spec, dict) and "class_name" in spec and class_and_config(spec)[0] in LAYERS


def _layer(site: Site, spec: Dict[str, Any], x: Value) -> Value:
    """An activation that is a layer without weights, as `Activation(LeakyReLU())`."""
    class_name, config = class_and_config(spec)
    inner = Layer(class_name, site.layer.name, config)
    if LAYERS[class_name].weights_of(inner):
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
    out = site.function("softmax", x, axis=x.axis(axis))
    if mask is not None and site.version == 3:  # zeros even if all is masked
        out = site.function("multiply", out, mask)
    return out._replace(mask=mask)
