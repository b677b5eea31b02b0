"""The layers of a network by Keras's names, which `net[name]` returns, and blocks that replace them."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from functools import partial
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np

from mxsame import _gluon, suggestions, validation
from mxsame._mxnet import mx
from mxsame.graphs import errors
from mxsame.keras_format import dtypes
from mxsame.keras_format.description import BIAS, KERNEL, Layer, function_name, leaves
from mxsame.keras_format.topology import Path
from mxsame.port.blocks import Function
from mxsame.port.call_context import CallContext, LayerState
from mxsame.port.custom import call_block, inputs_of
from mxsame.port.parameters import TRANSPOSED, UNCHANGED, Conversion, LoadedWeight, kernel, loaded_weights
from mxsame.port.table import ANY_ORDER, HANDLES_MASK, Converter
from mxsame.port.tensors import Operand, Tensor
from mxsame.tables import aligned
from mxsame.validation import InvalidType, InvalidValue, flag

DEFAULT_LENGTH = 32  # in place of dynamic lengths, where a block is called once
INSTEAD = {
    **suggestions.INSTEAD,
    **dict.fromkeys(
        ("get_weights", "set_weights"), "collect_params(); mxsame.to_keras_weights(net, path) writes Keras's"
    ),
    **dict.fromkeys(("input", "output"), "mxsame.from_keras(source, outputs=name) for a part of a model"),
    "load_weights": "mxsame.from_keras(source, weights)",
    "save_weights": "mxsame.to_keras_weights(net, path)",
}


class NetworkLayer:
    """A layer of a Keras model in a network, or an operator, or a nested model: what `net[name]` returns.

    It is a view: it shows what the layer is now, also after `Network.replace`. The parameters of its blocks are
    attributes by Gluon's names, and the layers of a nested model by theirs: `net.conv.weight`, `net.base.conv`.

    Attributes
    ----------
    name : str
        The layer's name in Keras. A layer of a nested model has the model's name as a prefix: "base/conv".
    class_name : str
        The layer's class in Keras, or the operator.
    config : dict
        The layer's configuration in Keras; empty for a block that has replaced the layer.
    blocks : list of HybridBlock
        The blocks that compute the layer, in order: first the one with the weights, then an activation. A layer that is
        called several times has them once; a layer that does nothing at inference has none.
    input_shape : tuple
        The input shape of the first call, in the network's axis order, with None for dynamic lengths; a list for
        several inputs.
    output_shape : tuple
        Like `input_shape`; empty if the output is not a tensor.
    parameters : list
        Its weights, of Gluon's class `Parameter`, and those of all layers of a nested model.
    trainable : bool
        Whether any of its weights is trained; for a layer without weights, the value that was set. It can be set, as in
        Keras: weights that are not trained have no gradients, and a batch norm then uses its moving statistics.
    """

    def __init__(self, net: Any, path: Path):
        self._net, self._path = net, path

    @property
    def _states(self) -> List[LayerState]:
        """The layer, and those of a nested model."""
        return [state for path, state in self._net._states.items() if path[: len(self._path)] == self._path]

    @property
    def name(self) -> str:
        return "/".join(self._path)

    @property
    def class_name(self) -> str:
        layer = self._states[0].layer
        return layer.operator or layer.class_name

    @property
    def config(self) -> Dict[str, Any]:
        return dict(self._states[0].layer.config)

    @property
    def blocks(self) -> List[Any]:
        return list(self._states[0].blocks)

    @property
    def output_shape(self) -> Tuple[Any, ...]:
        out = self._states[0].output
        return () if out is None else self._shape(out)

    @property
    def input_shape(self) -> Any:
        shapes = [self._shape(value) for value in self._states[0].inputs]
        return shapes[0] if len(shapes) == 1 else shapes

    def _shape(self, value: Tensor) -> Tuple[Any, ...]:
        return tuple(value._replace(transposed=value.rank == self._net.rank).ordered(value.shape))

    @property
    def parameters(self) -> List[Any]:
        return list(dict.fromkeys(parameter for state in self._states for parameter in state.parameters))

    def collect_params(self, select: Any = None) -> Any:
        """Returns the parameters of its blocks, as Gluon's `collect_params` does; a few may be constants of the
        configuration."""
        collected = mx.gluon.ParameterDict()
        for block in self.blocks:
            collected.update(block.collect_params(select))
        return collected

    @property
    def trainable(self) -> bool:
        return is_trained(self._states)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        set_trainable(self._net, self._states, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("_net", "_path", "trainable"):
            raise no_attribute(self, name, "only trainable can be set")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Returns a parameter or a layer of a nested model."""
        if name.startswith("_"):
            raise no_attribute(self, name)
        if (*self._path, name) in self._net._states:
            return NetworkLayer(self._net, (*self._path, name))
        for block in self._own_blocks:
            if name in _gluon.own_parameters(block):
                return _gluon.own_parameters(block)[name]
        raise no_attribute(self, name, f"use config[{name!r}]" if name in self.config else "")

    @property
    def _own_blocks(self) -> List[Any]:
        return self.blocks if self._states[0].layer.model is None else []

    @property
    def _text(self) -> str:
        """The blocks as Gluon prints them, or Keras's class for a layer of functions, with the layer's activation."""
        blocks = self._own_blocks
        functions = [block for block in blocks if isinstance(block, Function)]
        shown = ", ".join(repr(block) for block in blocks if block not in functions)
        config, details = self.config, []
        if not shown:
            details = [each for block in functions for each in block.sizes]
            names = dict.fromkeys(name for block in functions for name in block.arguments)
            details += [f"{name}={config[name]}" for name in names if name != "units" and config.get(name)]
        if functions and functions[-1].function == function_name(config.get("activation")):
            details.append(functions[-1].function)
        if not shown:
            return f"{self.class_name}({', '.join(details)})"
        return f"{shown[:-1]}, {details[0]})" if details else shown

    def __repr__(self) -> str:
        return f"<layer {self.name!r}: {self._text}>"


class Layers(List[NetworkLayer]):
    """The layers of a network, like Keras's `model.layers`; calling it with arrays yields the layers' outputs."""

    def __init__(self, net: Any):
        super().__init__(net)
        self._net = net

    def __call__(self, *arrays: Any) -> Iterator[Tuple[Path, Layer, List[Any], Any]]:
        return self._net.layer_outputs(*arrays)


no_attribute = partial(suggestions.no_attribute, instead=INSTEAD)


def is_trained(layers: Sequence[LayerState]) -> bool:
    """Returns whether any weight of these layers is trained; without weights, whether all layers are trainable."""
    parameters = [parameter for state in layers for parameter in _trained(state)]
    if parameters:
        return any(parameter.grad_req != "null" for parameter in parameters)
    return all(state.layer.trainable if state.trainable is None else state.trainable for state in layers)


def set_trainable(net: Any, layers: Iterable[LayerState], value: bool) -> None:
    """Sets `trainable` of layers of a network."""
    value = flag("trainable", value)
    for state in layers:
        state.trainable = value
        for parameter in _trained(state):
            parameter.grad_req = "write" if value else "null"
        for block in [] if state.block is None else _gluon.tree(state.block):
            if isinstance(block, mx.gluon.nn.BatchNorm):
                _gluon.use_global_stats(block, not value or state.training is False)
    _gluon.drop_graph(net)


def _trained(state: LayerState) -> List[Any]:
    """Returns the parameters of a layer that can be trained, which excludes statistics."""
    if state.is_custom:
        return state.parameters
    return [stored.parameter for spec, stored in loaded_weights(state.layer) if spec.trainable]


# -- a block in place of a layer


def replacement(layer: Layer, block: Any, rank: int, contexts: Sequence[Any]) -> LayerState:
    """Returns the state of a layer whose block replaces another layer. Arrays of `rank` axes have channels first."""
    new = Layer(type(block).__name__, layer.name, {"name": layer.name}, layer.calls, weight_specs=[])
    build = partial(_replacement, block=block, rank=rank, contexts=contexts)
    converter = Converter(build, ANY_ORDER, masks=HANDLES_MASK, dtypes=dtypes.SETS_DTYPE)
    return LayerState(new, block, is_custom=True, converter=converter)


def layout_hint(replaced: LayerState, block: Any, rank: int) -> str:
    """Returns, for an error, what to do if images are passed channels-last to a block with channels first."""
    layouts = (getattr(each, "_kwargs", {}).get("layout") for each in _gluon.tree(block))
    has_channels_last = not rank and replaced.layer.config.get("data_format") != "channels_first"
    is_mismatch = has_channels_last and any(x.rank == 4 for x in replaced.inputs) and "NCHW" in layouts
    remedy = 'give the block layout="NHWC", or read the model with layout="NCHW"'
    return f"; this network passes images channels-last: {remedy}" if is_mismatch else ""


def _take_weights(state: LayerState) -> None:
    """Makes the parameters of a block the layer's weights, under the names of Keras's layer of that class."""
    nn, block, conversions = mx.gluon.nn, state.block, {}
    if isinstance(block, nn.Dense):
        conversions = {KERNEL: TRANSPOSED, BIAS: UNCHANGED}
    elif isinstance(block, (nn.Conv1D, nn.Conv2D, nn.Conv3D)) and _gluon.layout_of(block).startswith("NC"):
        conversions = {KERNEL: kernel("conv"), BIAS: UNCHANGED}
    specs = [spec for spec in conversions if getattr(block, spec.parameter) is not None]
    given = {x.name: _as_loaded(getattr(block, x.parameter), conversions[x]) for x in specs}
    state.weights = given or {name: _as_loaded(x, UNCHANGED) for name, x in block.collect_params().items()}
    state.layer = replace(state.layer, weight_specs=specs or None)


def _as_loaded(parameter: Any, conversion: Conversion) -> LoadedWeight:
    shape = conversion.to_keras(np.empty(parameter.shape, bool)).shape
    return LoadedWeight(tuple(shape), parameter, conversion.to_keras)


def _replacement(call: CallContext, *inputs: Operand, block: Any, rank: int, contexts: Sequence[Any],
                 **constants: Operand) -> List[Tensor]:  # fmt: skip
    """Adds the block that replaces a layer."""
    arrays = [call.steps.in_order(x, x.rank == rank) for x in leaves([*inputs, *constants.values()], Tensor)]
    try:
        arrays = inputs_of(block, arrays)
        _initialize(block, arrays, contexts)
        outputs = call_block(call, block, arrays, rank)
    except (ValueError, InvalidType, mx.base.MXNetError) as error:
        received = validation.received(shapes=[tuple(x.ordered(x.shape)) for x in arrays])
        raise InvalidValue(f"block must accept the inputs of the layer; {received}; {errors.reason(error)}") from None
    _take_weights(call.state)
    return outputs


def _initialize(block: Any, arrays: Sequence[Tensor], contexts: Sequence[Any]) -> None:
    """Initializes the parameters of a block that are not initialized yet, by their initializers, or as in Keras
    ("glorot_uniform")."""
    parameters = block.collect_params().values()
    for parameter in parameters:
        if not _gluon.is_initialized(parameter) and not _gluon.is_deferred(parameter):
            default = mx.init.Xavier() if len(parameter.shape or ()) > 1 else mx.init.Uniform()
            parameter.initialize(ctx=list(contexts), default_init=default)
    if any(map(_gluon.is_deferred, parameters)):
        shapes = [[1, *(length or DEFAULT_LENGTH for length in x.ordered(x.shape)[1:])] for x in arrays]
        with mx.autograd.pause(train_mode=False), contextlib.redirect_stdout(io.StringIO()):  # MXNet prints errors
            block(*(mx.nd.zeros(shape, contexts[0], dtypes.STORED[x.dtype]) for shape, x in zip(shapes, arrays)))


# -- the table of layers


def summary(net: Any, *inputs: Any) -> Iterator[str]:
    """Yields the lines of `Network.summary`."""
    shapes = {path: out.shape for path, _, _, out in net.layer_outputs(*inputs)} if inputs else {}
    rows = [("layer", "class", "output", "parameters", "trainable")]
    for path, state in net._states.items():
        layer = NetworkLayer(net, path)
        shape = shapes.get(path, layer.output_shape)
        count = 0 if state.layer.model is not None else _count(layer.parameters)
        mark = ("yes" if layer.trainable else "no") if count else ""
        rows.append((layer.name, layer.class_name, str(shape), f"{count:,}", mark))
    yield from aligned(rows)
    parameters = dict.fromkeys(parameter for state in net._states.values() for parameter in state.parameters)
    trained = _count(parameter for parameter in parameters if parameter.grad_req != "null")
    total = _count(parameters)
    yield f"{total:,} parameters: {trained:,} trainable, {total - trained:,} non-trainable"


def _count(parameters: Iterable[Any]) -> int:
    return sum(int(np.prod(parameter.shape)) for parameter in parameters)
