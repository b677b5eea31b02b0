"""The argument `custom` of `from_keras`: functions and names in place of converters."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.graphs import tracing
from mxsame.keras_format.description import WRAPPER, Layer, Model, as_list, class_and_config, leaves, map_leaves
from mxsame.keras_format.dtypes import SETS_DTYPE, UNCAST, standardize_dtype
from mxsame.port.activations import known_function, names_of_function
from mxsame.port.builder import naming_layer, user_code
from mxsame.port.call_context import CallContext
from mxsame.port.converters import converter_of
from mxsame.port.parameters import LoadedWeight
from mxsame.port.steps import inferred_types
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, LAYERS, Converter, is_layer
from mxsame.port.tensors import Operand, Tensor
from mxsame.validation import MAX_REASONS_SHOWN, InvalidType, Refused, check, check_type


class CustomConverters:
    """The converters of a model: the user's, and those of the registry."""

    def __init__(self, custom: Any):
        self.custom = {} if custom is None else custom
        rule = "custom must map names to functions that return blocks (not to blocks), or to names of Keras layers"
        check_type(isinstance(self.custom, Mapping), f"{rule}; received an object of type {type(custom).__name__}")
        wrong = {name: type(given).__name__ for name, given in self.custom.items() if not _is_usable(given)}
        check_type(not wrong, rule, custom=wrong)
        self.activations: Set[str] = set()  # names of activations among those of `custom`
        self.unsupported: List[str] = []  # what a model is refused for before its weights are read

    def converter_of(self, layer: Layer) -> Optional[Callable]:
        """Returns the function that builds a layer; None if there is none."""
        make, converter = self._given(layer), converter_of(layer)
        if make is not None and not _is_configuration(make):
            return Converter(partial(_custom, make=make), KERAS_ORDER, masks=HANDLES_MASK, dtypes=SETS_DTYPE)
        return partial(_in_sequence, converter, layer.after) if converter and layer.after else converter

    def _given(self, layer: Layer) -> Any:
        """Returns the entry of `custom` for a layer. A name that an activation has is not that of a layer."""
        names = (name for name in custom_keys_of(layer) if name in self.custom and name not in self.activations)
        return next((self.custom[name] for name in names), None)

    def prepared(self, model: Model) -> Model:
        """Returns a model with the layers that `custom` names in place of others. Collects layers that are not
        supported, and refuses names in `custom` that nothing in the model has."""
        layers = [*model.walk(), *model.layers]
        names = {name for layer in layers for name in custom_keys_of(layer)}
        for layer in layers:
            with naming_layer(layer, [layer.name]):
                self.activations.update(_activations(layer.config, model.version))
        model = model.map_layers(self._replaced)
        missing = [x for x in model.walk() if x.calls and x.class_name != "InputLayer" and not self.converter_of(x)]
        if missing:
            keys = _joined(f"{custom_keys_of(layer)[-1]!r}: function" for layer in missing)
            given = _joined(f"{custom_keys_of(layer)[-1]} ({layer.name!r})" for layer in missing)
            rule = f"every layer must be supported, or be given by custom={{{keys}}}, each function of (config) -> "
            rule += "layers of Keras that compute the same, or of (config, weights) -> HybridBlock"
            self.unsupported.append(f"{rule}; received {given}")
        for layer in model.walk():
            converter, given = converter_of(layer), self._given(layer)
            try:
                with naming_layer(layer, [layer.name]):
                    if converter is not None and (given is None or _is_configuration(given)):
                        converter.weights_of(layer.config)
            except Refused as error:
                self.unsupported += error.reasons
        unknown = sorted(map(str, set(self.custom) - names - self.activations))
        rule = "custom must have names of the model's layers, classes or functions"
        validation.check(not unknown, rule, custom=unknown)
        return model

    def _replaced(self, layer: Layer) -> Layer:
        """Returns a layer with the class and configuration that the user gives, if any."""
        given = self._given(layer)
        if given is None or not _is_configuration(given):
            return layer
        with naming_layer(layer, [layer.name], is_replaceable=False):
            by_name = isinstance(given, str)
            with user_code():
                entries = {"class_name": given, "config": layer.config} if by_name else given(dict(layer.config))
            (class_name, config), *others = named = [*map(class_and_config, as_list(entries))]
            after = [Layer(name, layer.name, each, (), None if name in LAYERS else name) for name, each in others]
            known = class_name in LAYERS and class_name != WRAPPER and all(map(converter_of, after))
            rule = f"custom of {layer.name!r} must name layers of Keras"
            validation.check(known, rule, names=[name for name, _ in named])
            return replace(layer, class_name=class_name, config=config, stored_as=layer.class_name, after=after,
                           replaced_by_name=by_name)  # fmt: skip


def _activations(config: Any, version: int) -> Iterator[str]:
    """Yields the names of activations in a configuration that are not Keras's, with and without their package."""
    entries = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    for key, value in entries:
        if key in ("activation", "recurrent_activation") and not is_layer(value):
            yield from () if known_function(value, version) else names_of_function(value)
        yield from _activations(value, version)


def _joined(names: Iterable[str]) -> str:
    """Returns distinct names in one line, as many as an error shows."""
    distinct = [*dict.fromkeys(names)]
    return ", ".join(distinct[:MAX_REASONS_SHOWN]) + ", .." * (len(distinct) > MAX_REASONS_SHOWN)


def _is_usable(given: Any) -> bool:
    """Returns whether an entry of `custom` is a name or a function. A block is callable, too, but takes data; a class
    of blocks with Gluon's `__init__` does not accept a configuration."""
    if isinstance(given, type) and issubclass(given, mx.gluon.Block):
        return given.__init__.__module__.partition(".")[0] not in ("mxnet", "mxsame")  # type: ignore[misc]
    return isinstance(given, str) or (callable(given) and not isinstance(given, mx.gluon.Block))


def _is_configuration(given: Any) -> bool:
    """Returns whether an entry of `custom` is the name of a layer of Keras, or a function of (config)."""
    try:
        return isinstance(given, str) or not inspect.signature(given).bind(None, None)
    except TypeError:
        return True


def _in_sequence(converter: Converter, after: Sequence[Layer], call: CallContext, args: Any, kwargs: Any) -> Any:
    """Builds a layer, and those that the user puts after it."""
    out = converter(call, args, kwargs)
    for layer in after:
        out = converter_of(layer)(replace(call, layer=layer), as_list(out), {})
    return out


def custom_keys_of(layer: Layer) -> Tuple[str, str, str]:
    """Returns the keys of `custom` that are for a layer: its name, its class with its package, and without."""
    name = layer.operator or layer.class_name
    return layer.name, name, name.split(">")[-1]


def _has_constants(argument: Any) -> bool:
    """Returns whether an argument, or an entry of its lists and dicts, is a constant."""
    if isinstance(argument, (list, dict)):
        return any(map(_has_constants, argument.values() if isinstance(argument, dict) else argument))
    return argument is not None and not isinstance(argument, Tensor)


def _custom(call: CallContext, *inputs: Operand, make: Callable, **constants: Operand) -> List[Tensor]:
    """Adds the user's block, which is made at the first call. Constant arguments of the call are in the configuration
    that the user's function gets."""
    layer, state = call.layer, call.state
    given = {"args": list(inputs), "training": call.training or None, **constants}
    given = {name: map_leaves(each, Tensor, lambda x: None) for name, each in given.items() if _has_constants(each)}
    is_same = repr(state.first_call.setdefault("constants", given)) == repr(given)
    check(is_same, "arguments that are not tensors must be the same in all calls of a custom layer", **given)
    if state.block is None:
        with user_code():
            block = make({**call.config, **given}, [np.asarray(array) for array in layer.weights])
        state.is_custom = True
        if not isinstance(block, mx.gluon.HybridBlock):
            raise InvalidType(f"custom must return a HybridBlock; received a {type(block).__name__}")
        state.block = block
        names = [spec.name for spec in layer.weight_specs or ()] or map(str, range(len(layer.weights)))
        state.weights = {name: LoadedWeight(tuple(array.shape)) for name, array in zip(names, layer.weights)}
    return call_block(call, state.block, inputs_of(state.block, leaves([*inputs, *constants.values()], Tensor)))


def inputs_of(block: Any, arrays: List[Tensor]) -> List[Tensor]:
    """Returns the inputs of a user's block: these tensors, and the mask of the first if the block accepts one."""
    if arrays[0].mask is not None and "mask" in inspect.signature(block.hybrid_forward).parameters:
        arrays = [*arrays, arrays[0].mask]
    tracing.check_inputs(block, arrays)
    return arrays


def call_block(call: CallContext, block: Any, arrays: List[Tensor], rank: int = 0) -> List[Tensor]:
    """Adds a user's block of these tensors, and returns its outputs. Those with `rank` axes have channels first."""
    mask = arrays[0].mask
    with user_code():
        outputs = call.steps.emit(block, arrays, call.name, False)
        dtypes = inferred_types(block, arrays, call.steps.has_batch_of_1)
    outputs = [out.as_transposed() if out.rank == rank else out for out in outputs]
    outputs = [call.cast(out._replace(dtype=UNCAST), standardize_dtype(dtype)) for out, dtype in zip(outputs, dtypes)]
    return [out._replace(mask=mask) for out in outputs] if getattr(block, "supports_masking", False) else outputs
