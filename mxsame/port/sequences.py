"""Rows of layers of sequences: recurrent layers, in one direction and in both, and with convolutions."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, List, Optional, Tuple

from mxsame import nn, validation
from mxsame.port.activations import named
from mxsame.port.builder import Conversion, Site, Value, kernel
from mxsame.port.description import Weight
from mxsame.port.recurrent import KINDS, MERGED, Bidirectional, ConvLSTM, Options, Recurrent, gates_to_mxnet
from mxsame.port.rows import KERAS, TAKES, layer

STEPS = {"activation": "tanh", "recurrent_activation": "sigmoid"}  # the functions of a step, by default
FLAGS = ("return_sequences", "return_state", "go_backwards")


def _options(site: Site, config: Dict[str, Any], x: Value, states: int, rank: int = 3, both: bool = False) -> Options:
    """Those of this configuration, for this data. In both directions, sequences are 0 where the mask is."""
    if x.rank != rank:
        raise ValueError(f"data must have {rank} axes; {validation.received(**{'data.shape': x.shape})}")
    for option in ("stateful", "time_major"):
        if config.get(option):
            raise ValueError(f"{option} must be False; received {option}=True")
    masked = x.mask is not None
    site.same_in_all_calls(mask=masked, initial_state=bool(states))
    return Options(
        x.shape[1],
        *(named(site, config, name, default) for name, default in STEPS.items()),
        *(bool(config.get(name, False)) for name in FLAGS),
        takes_states=bool(states),
        takes_mask=masked,
        zero_output_for_mask=both and masked and bool(config.get("return_sequences", False)),
    )


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


def _direction(
    site: Site, kind: str, config: Dict[str, Any], x: Value, states: int, both: bool = False
) -> Dict[str, Any]:
    """The arguments of a `Recurrent`."""
    return {
        "kind": kind,
        "units": validation.integer("units", config["units"], 1),
        "in_units": x.shape[-1] or 0,
        "options": _options(site, config, x, states, both=both),
        "use_bias": bool(config.get("use_bias", True)),
        "reset_after": kind == "GRU" and bool(config.get("reset_after", True)),
    }


def _outputs(
    site: Site, make: Any, x: Value, states: List[Value], conversions: Any, options: Options, sequences: int = 1
) -> List[Value]:
    """Those of a block; the first ones, if they are sequences, have the mask of the data."""
    masks = [] if x.mask is None else [x.mask]
    if site.builder.at_first(site.path, "steps", options.steps) != options.steps:
        site.builder.blocks[site.path].any_number_of_steps()
    outputs = site.several(make, x, *states, *masks, conversions=conversions)
    kept = sequences if options.return_sequences else 0
    return [out._replace(mask=x.mask) for out in outputs[:kept]] + outputs[kept:]


def _states(given: Tuple[Value, ...], initial_state: Optional[List[Value]], count: int) -> List[Value]:
    """The initial states: further inputs, or an argument."""
    states = [*given, *(initial_state or [])]
    if len(states) not in (0, count):
        raise ValueError(f"initial_state must be {count} arrays; received {len(states)}")
    return states


@layer("SimpleRNN", "LSTM", "GRU", order=KERAS, weights=_weights(), masks=TAKES)
def _recurrent(site: Site, x: Value, *states: Value, initial_state: Optional[List[Value]] = None) -> List[Value]:
    kind = site.layer.class_name
    given = _states(states, initial_state, KINDS[kind].states)
    arguments = _direction(site, kind, site.config, x, len(given))
    return _outputs(site, partial(Recurrent, **arguments), x, given, _conversions(kind), arguments["options"])


# -- both directions

CHILDREN = ("forwards", "backwards")


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
    if merge_mode not in MERGED:
        raise ValueError(
            f"merge_mode must be one of {', '.join(map(str, MERGED))}; {validation.received(merge_mode=merge_mode)}"
        )
    directions = _directions(site.config)
    counts = [KINDS[kind].states for kind, _ in directions]
    given = _states(states, initial_state, sum(counts))
    both = [_direction(site, kind, config, x, len(given), both=True) for kind, config in directions]
    conversions = {}
    for child, (kind, _) in zip(CHILDREN, directions):
        conversions.update(_conversions(kind, f"{child}_"))

    def children() -> List[Recurrent]:
        return [Recurrent(**arguments, prefix=prefix) for prefix, arguments in zip(("forward_", "backward_"), both)]

    make, sequences = partial(Bidirectional, children, merge_mode, counts[0]), 2 if merge_mode is None else 1
    return _outputs(site, make, x, given, conversions, both[0]["options"], sequences)


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
    given = _states(states, initial_state, 2)
    options = _options(site, site.config, x, len(given), rank + 3)
    window = {name: site.per_spatial_axis(name, 1) for name in ("kernel_size", "strides")}
    window["dilation"] = site.per_spatial_axis("dilation_rate", 1)
    window["padding"] = str(site.config.get("padding", "valid")).lower()
    if not site.is_channels_first:
        x, given = _channels_to(site, x, 2), [_channels_to(site, state, 1) for state in given]
    filters, in_channels = validation.integer("filters", site.config["filters"], 1), x.shape[2] or 0
    use_bias = bool(site.config.get("use_bias", True))
    make = partial(ConvLSTM, filters, in_channels, CONVOLUTIONS[rank], window, options, use_bias)
    conversions = {"kernel": kernel("conv"), "recurrent_kernel": kernel("conv")}
    outputs = _outputs(site, make, x, given, conversions, options)
    if site.is_channels_first:
        return outputs
    return [_channels_to(site, out, out.rank - 1, out.rank - 1 - rank) for out in outputs]


def _channels_to(site: Site, x: Value, axis: int, source: int = -1) -> Value:
    """The value with channels moved to another axis of Keras's order."""
    axes = list(range(x.rank))
    axes.insert(axis, axes.pop(source))
    return site.function("transpose", x, axes=tuple(axes))._replace(mask=x.mask)
