"""Rows of layers of sequences: recurrent layers, in one direction and in both, and with convolutions."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from mxsame import nn, validation
from mxsame.port.activations import named
from mxsame.port.builder import Conversion, Site, Value, kernel
from mxsame.port.description import Weight
from mxsame.port.recurrent import KINDS, Bidirectional, ConvLSTM, Recurrent, gates_to_mxnet
from mxsame.port.rows import KERAS, TAKES, layer

STEPS = {"activation": "tanh", "recurrent_activation": "sigmoid"}  # the functions of a step, by default
FLAGS = ("return_sequences", "return_state", "go_backwards")


def _options(site: Site, config: Dict[str, Any], x: Value, rank: int) -> Dict[str, Any]:
    """What all blocks of recurrent layers are given by this configuration, for this data."""
    if x.rank != rank:
        raise ValueError(f"data must have {rank} axes; {validation.received(**{'data.shape': x.shape})}")
    for option in ("stateful", "time_major"):
        if config.get(option):
            raise ValueError(f"{option} must be False; received {option}=True")
    return {
        "steps": x.shape[1],
        "use_bias": bool(config.get("use_bias", True)),
        **{name: named(site, config, name, default) for name, default in STEPS.items()},
        **{name: bool(config.get(name, False)) for name in FLAGS},
    }


def _weights(group: str = "cell", child: str = "", use_bias: bool = True) -> List[Weight]:
    """Those of one direction; in both, of a child of the block."""
    before, inside = (f"{child}_", f"{child}.") if child else ("", "")
    found = [
        Weight(f"{before}kernel", f"{inside}i2h_weight", group=group),
        Weight(f"{before}recurrent_kernel", f"{inside}h2h_weight", group=group),
        Weight(f"{before}bias", f"{inside}bias", "" if child else "use_bias", group=group),
    ]
    return found if use_bias else found[:-1]


def _conversions(kind: str, before: str = "") -> Dict[str, Conversion]:
    """The gates in MXNet's order."""
    matrix = Conversion(lambda array: gates_to_mxnet(array, kind).T, lambda array: gates_to_mxnet(array.T, kind))
    vector = Conversion(lambda array: gates_to_mxnet(array, kind), lambda array: gates_to_mxnet(array, kind))
    return {f"{before}kernel": matrix, f"{before}recurrent_kernel": matrix, f"{before}bias": vector}


def _direction(site: Site, kind: str, config: Dict[str, Any], x: Value) -> Dict[str, Any]:
    """The arguments of a `Recurrent`."""
    return {
        "kind": kind,
        "units": validation.integer("units", config["units"], 1),
        "in_units": x.shape[-1] or 0,
        "reset_after": kind == "GRU" and bool(config.get("reset_after", True)),
        **_options(site, config, x, 3),
    }


def _mask(site: Site, x: Value) -> List[Value]:
    """The mask of the data, if it has one; the layer's block is made for it."""
    site.same_in_all_calls(mask=x.mask is not None)
    return [] if x.mask is None else [x.mask]


def _kept(outputs: List[Value], mask: List[Value], options: Dict[str, Any], sequences: int = 1) -> List[Value]:
    """The outputs; those that are sequences have the mask of the data."""
    if not mask or not options["return_sequences"]:
        return outputs
    return [out._replace(mask=mask[0]) for out in outputs[:sequences]] + outputs[sequences:]


def _states(site: Site, given: Tuple[Value, ...], initial_state: Optional[List[Value]], count: int) -> List[Value]:
    """The initial states: further inputs, or an argument."""
    states = [*given, *(initial_state or [])]
    if len(states) not in (0, count):
        raise ValueError(f"initial_state must be {count} arrays; received {len(states)}")
    site.same_in_all_calls(initial_state=bool(states))
    return states


@layer("SimpleRNN", "LSTM", "GRU", order=KERAS, weights=_weights(), masks=TAKES)
def _recurrent(site: Site, x: Value, *states: Value, initial_state: Optional[List[Value]] = None) -> List[Value]:
    kind = site.layer.class_name
    given, arguments = _states(site, states, initial_state, KINDS[kind].states), _direction(site, kind, site.config, x)
    mask = _mask(site, x)
    outputs = site.several(
        lambda prefix: Recurrent(**arguments, takes_states=bool(given), takes_mask=bool(mask), prefix=prefix),
        x,
        *given,
        *mask,
        conversions=_conversions(kind),
    )
    return _kept(outputs, mask, arguments)


# -- both directions

CHILDREN = ("forwards", "backwards")
MERGE_MODES = ("concat", "sum", "mul", "ave", None)


def _directions(config: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """The kind and the configuration of the layer forwards, and of that backwards."""
    entries = [config["layer"], config.get("backward_layer") or config["layer"]]
    kinds = [entry["class_name"].split(">")[-1] for entry in entries]
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"layer must be one of {', '.join(KINDS)}; received a {kind}")
    forwards, backwards = (entry["config"] for entry in entries)
    if config.get("backward_layer") is None:
        backwards = {**backwards, "go_backwards": not forwards.get("go_backwards", False)}
    return list(zip(kinds, (forwards, backwards)))


def _weights_of_both(config: Dict[str, Any]) -> List[Weight]:
    groups = ("forward_layer/cell", "backward_layer/cell")
    return [
        weight
        for group, child, (_, inner) in zip(groups, CHILDREN, _directions(config))
        for weight in _weights(group, child, inner.get("use_bias", True))
    ]


@layer("Bidirectional", order=KERAS, weights=_weights_of_both, masks=TAKES)
def _bidirectional(site: Site, x: Value, *states: Value, initial_state: Optional[List[Value]] = None) -> List[Value]:
    merge_mode = site.config.get("merge_mode", "concat")
    if merge_mode not in MERGE_MODES:
        raise ValueError(f"merge_mode must be one of {MERGE_MODES}; {validation.received(merge_mode=merge_mode)}")
    kinds = [kind for kind, _ in _directions(site.config)]
    both = [_direction(site, kind, config, x) for kind, config in _directions(site.config)]
    given = _states(site, states, initial_state, sum(KINDS[kind].states for kind in kinds))
    conversions = {}
    for child, kind in zip(CHILDREN, kinds):
        conversions.update(_conversions(kind, f"{child}_"))
    mask = _mask(site, x)
    outputs = site.several(
        lambda prefix: Bidirectional(*both, merge_mode, bool(given), bool(mask), prefix=prefix),
        x,
        *given,
        *mask,
        conversions=conversions,
    )
    return _kept(outputs, mask, both[0], 2 if merge_mode is None else 1)


# -- with convolutions

CONVOLUTIONS = {1: nn.Conv1D, 2: nn.Conv2D, 3: nn.Conv3D}
WEIGHTS_OF_CONVOLUTIONS = (
    Weight("kernel", "i2h.weight", group="cell"),
    Weight("recurrent_kernel", "h2h.weight", group="cell"),
    Weight("bias", "i2h.bias", "use_bias", group="cell"),
)


@layer("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", order=KERAS, weights=WEIGHTS_OF_CONVOLUTIONS, masks=TAKES)
def _conv_lstm(site: Site, x: Value, *states: Value, initial_state: Optional[List[Value]] = None) -> List[Value]:
    rank = site.num_spatial_dims or 0
    arguments, given = _options(site, site.config, x, rank + 3), _states(site, states, initial_state, 2)
    window = {name: site.per_spatial_axis(name, 1) for name in ("kernel_size", "strides")}
    window["dilation"] = site.per_spatial_axis("dilation_rate", 1)
    window["padding"] = str(site.config.get("padding", "valid")).lower()
    channels, mask = x.shape[2] if site.is_channels_first else x.shape[-1], _mask(site, x)
    outputs = site.several(
        lambda prefix: ConvLSTM(
            validation.integer("filters", site.config["filters"], 1),
            channels or 0,
            CONVOLUTIONS[rank],
            window,
            **arguments,
            channels_last=not site.is_channels_first,
            takes_states=bool(given),
            takes_mask=bool(mask),
            prefix=prefix,
        ),
        x,
        *given,
        *mask,
        conversions={"kernel": kernel("conv"), "recurrent_kernel": kernel("conv")},
    )
    return _kept(outputs, mask, arguments)
