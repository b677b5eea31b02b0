"""What a user gives in place of converters: `custom` of `from_keras`."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.port.activations import known_function, names_of_function
from mxsame.port.builder import MOST_REASONS, Refused, refusing, users_code
from mxsame.port.call_context import CallContext
from mxsame.port.converters import converter_of
from mxsame.port.converters._shared import is_layer
from mxsame.port.description import WRAPPER, Layer, Model, WeightSpec, class_and_config, leaves, listed, mapped
from mxsame.port.parameters import LoadedWeight
from mxsame.port.steps import inferred_types
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, LAYERS, Converter
from mxsame.port.tensors import Operand, Tensor
from mxsame.port.types import GIVEN, SETS_DTYPE, known as known_type
from mxsame.validation import InvalidType, check, check_type


class CustomConverters:
    """The table and the user's own."""

    def __init__(self, custom: Any):
        self.custom = {} if custom is None else custom
        rule = "custom must map names to functions that return blocks, and not to blocks, or to names of Keras's layers"
        check_type(isinstance(self.custom, Mapping), rule, custom=type(custom).__name__)
        wrong = {name: type(given).__name__ for name, given in self.custom.items() if not _is_usable(given)}
        check_type(not wrong, rule, custom=wrong)
        self.activations: Set[str] = set()  # names of activations among those of `custom`
        self.unsupported: List[str] = []  # what a model is refused for before its weights are read

    def converter_of(self, layer: Layer) -> Optional[Callable]:
        """Returns what builds a layer."""
        make, converter = self._given(layer), converter_of(layer)
        if make is not None and not _is_configuration(make):
            return Converter(partial(_custom, make=make), KERAS_ORDER, masks=HANDLES_MASK, types=SETS_DTYPE)
        return partial(_in_turn, converter, layer.after) if converter and layer.after else converter

    def _given(self, layer: Layer) -> Any:
        """Returns the user's function for it; that of an activation is for no layer of its name."""
        names = (name for name in names_of(layer) if name in self.custom and name not in self.activations)
        return next((self.custom[name] for name in names), None)

    def check(self, model: Model) -> None:
        """Notes layers that are not supported, all of them at once, and refuses names that no layer has."""
        layers = [*model.walk(), *model.layers]
        names = {name for layer in layers for name in names_of(layer)}
        for layer in layers:
            with refusing(layer, [layer.name]):
                self.activations.update(_activations(layer.config, model.version))
        for layer in model.walk():
            replacement = self._given(layer)
            if replacement is not None and _is_configuration(replacement):
                with refusing(layer, [layer.name], is_replaceable=lambda: False):
                    self._replace(layer, replacement)
        called = [layer for layer in model.walk() if layer.calls and layer.class_name != "InputLayer"]
        missing = [layer for layer in called if not self.converter_of(layer)]
        if missing:
            keys = _several(f"{names_of(layer)[-1]!r}: function" for layer in missing)
            self.unsupported.append(
                f"every layer must be supported, or be given by custom={{{keys}}}, each function of (config) -> layers "
                "of Keras that compute the same, or of (config, weights) -> HybridBlock (on the command line the dict "
                "of a module, --custom MODULE:NAME); "
                f"received {_several(f'{names_of(layer)[1]} ({layer.name!r})' for layer in missing)}"
            )
        for layer in model.walk():
            converter = converter_of(layer)
            try:
                with refusing(layer, [layer.name]):
                    if converter is not None and (self._given(layer) is None or _is_configuration(self._given(layer))):
                        converter.weights_of(layer.config)
            except Refused as error:
                self.unsupported += error.reasons
        unknown = sorted(map(str, set(self.custom) - names - self.activations))
        rule = "custom must have names of the model's layers, classes or functions"
        validation.check(not unknown, rule, custom=unknown)

    def _replace(self, layer: Layer, replacement: Any) -> None:
        """Give a layer the class and the configuration that the user names for it."""
        layer.named = isinstance(replacement, str)
        if layer.named:
            entries = [{"class_name": replacement, "config": layer.config}]
        else:
            with users_code():
                entries = listed(replacement(dict(layer.config)))
        first, *after = entries
        layer.stored_as, (layer.class_name, layer.config) = layer.class_name, class_and_config(first)
        layer.after = [_after(layer, *class_and_config(entry)) for entry in after]
        known = layer.class_name in LAYERS and layer.class_name != WRAPPER and all(map(converter_of, layer.after))
        names = [class_and_config(entry)[0] for entry in entries]
        validation.check(known, f"custom of {layer.name!r} must name layers of Keras", names=names)


def _activations(config: Any, version: int) -> Iterator[str]:
    """Returns the names of a configuration's activations that Keras does not have, with and without their package."""
    entries = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    for key, value in entries:
        if key in ("activation", "recurrent_activation") and not is_layer(value):
            yield from () if known_function(value, version) else names_of_function(value)
        yield from _activations(value, version)


def _several(names: Iterable[str]) -> str:
    """Returns a line of names, each once, as many as an error shows."""
    distinct = [*dict.fromkeys(names)]
    return ", ".join(distinct[:MOST_REASONS]) + ", .." * (len(distinct) > MOST_REASONS)


def _is_usable(given: Any) -> bool:
    """Returns whether it is a name or a function. A block is called with data, and the class of one whose `__init__` is
    Gluon's takes no configuration."""
    if isinstance(given, type) and issubclass(given, mx.gluon.Block):
        return given.__init__.__module__.partition(".")[0] not in ("mxnet", "mxsame")  # type: ignore[misc]
    return isinstance(given, str) or (callable(given) and not isinstance(given, mx.gluon.Block))


def _is_configuration(given: Any) -> bool:
    """Returns whether it is the name of a layer of Keras, or a function of a configuration alone."""
    try:
        return isinstance(given, str) or not inspect.signature(given).bind(None, None)
    except TypeError:
        return True


def _after(layer: Layer, class_name: str, config: Dict[str, Any]) -> Layer:
    return Layer(class_name, layer.name, config, operator=None if class_name in LAYERS else class_name)


def _in_turn(
    converter: Converter, after: Sequence[Layer], call: CallContext, args: Sequence[Any], kwargs: Dict[str, Any]
) -> Any:
    """Build a layer, and what the user puts after it."""
    out = converter(call, args, kwargs)
    for layer in after:
        out = converter_of(layer)(replace(call, layer=layer), listed(out), {})
    return out


def names_of(layer: Layer) -> Tuple[str, str, str]:
    """Returns the names by which a user's function may be given for it."""
    name = layer.operator or layer.class_name
    return layer.name, name, name.split(">")[-1]


def _has_constants(argument: Any) -> bool:
    """Returns whether an argument is, or has in its lists and dicts, what is no tensor."""
    if isinstance(argument, (list, dict)):
        return any(map(_has_constants, argument.values() if isinstance(argument, dict) else argument))
    return argument is not None and not isinstance(argument, Tensor)


def _custom(call: CallContext, *inputs: Operand, make: Callable, **constants: Operand) -> List[Tensor]:
    """Call a block of the user's, which is made at the layer's first call. What else the layer is called with is in the
    configuration that its function gets."""
    layer, state = call.layer, call.state
    given = {"args": list(inputs), "training": call.training or None, **constants}
    given = {name: mapped(each, Tensor, lambda x: None) for name, each in given.items() if _has_constants(each)}
    is_same = repr(state.at_first("constants", given)) == repr(given)
    check(is_same, "arguments that are no tensors must be the same in all calls of a custom layer", **given)
    if state.block is None:
        with users_code():
            block = make({**call.config, **given}, [np.asarray(array) for array in layer.weights])
        state.is_users = True
        if not isinstance(block, mx.gluon.HybridBlock):
            raise InvalidType(f"custom must return a HybridBlock; received a {type(block).__name__}")
        state.block = block
        layer.weights = [LoadedWeight(tuple(array.shape)) for array in layer.weights]
        if layer.weight_specs is None and len(call.path) == 1:  # in a nested model, what is trained would come first
            layer.weight_specs = [WeightSpec(f"weight_{number}") for number in range(len(layer.weights))]
    return called(call, state.block, leaves([*inputs, *constants.values()], Tensor))


def called(call: CallContext, block: Any, arrays: List[Tensor], rank: int = 0) -> List[Tensor]:
    """Returns the outputs of a block of the user's, on arrays in Keras's order, and the mask of the first if it takes
    one; outputs of so many axes, `rank`, have channels first."""
    mask = arrays[0].mask
    if mask is not None and "mask" in inspect.signature(block.hybrid_forward).parameters:
        arrays.append(mask)
    with users_code():
        outputs = call.steps.emit(block, arrays, call.name, False)
        dtypes = inferred_types(block, arrays)
    outputs = [out.as_transposed() if out.rank == rank else out for out in outputs]
    outputs = [call.cast(out._replace(dtype=GIVEN), known_type(dtype)) for out, dtype in zip(outputs, dtypes)]
    return [out._replace(mask=mask) for out in outputs] if getattr(block, "supports_masking", False) else outputs
