"""What a user gives in place of rows: `custom` of `from_keras`."""

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
from mxsame.port.description import WRAPPER, Layer, Model, Weight, class_and_config, leaves, listed, mapped
from mxsame.port.parameters import Placed
from mxsame.port.rows import row_of
from mxsame.port.rows._shared import is_layer
from mxsame.port.site import Site
from mxsame.port.steps import inferred_types
from mxsame.port.table import KERAS, LAYERS, TAKES, Row
from mxsame.port.types import GIVEN, OWN, known as known_type
from mxsame.port.values import Operand, Value
from mxsame.validation import InvalidType, check, check_type


class CustomRows:
    """The table and the user's own."""

    def __init__(self, custom: Any):
        self.custom = {} if custom is None else custom
        rule = "custom must map names to functions that return blocks, and not to blocks, or to names of Keras's layers"
        check_type(isinstance(self.custom, Mapping), rule, custom=type(custom).__name__)
        wrong = {name: type(given).__name__ for name, given in self.custom.items() if not _is_usable(given)}
        check_type(not wrong, rule, custom=wrong)
        self.activations: Set[str] = set()  # names of activations among those of `custom`
        self.unsupported: List[str] = []  # what a model is refused for before its weights are read

    def row_of(self, layer: Layer) -> Optional[Callable]:
        """Returns what builds a layer."""
        make, row = self._given(layer), row_of(layer)
        if make is not None and not _is_configuration(make):
            return Row(partial(_custom, make=make), KERAS, masks=TAKES, types=OWN)
        return partial(_in_turn, row, layer.after) if row and layer.after else row

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
        missing = [layer for layer in called if not self.row_of(layer)]
        if missing:
            keys = _several(f"{names_of(layer)[-1]!r}: function" for layer in missing)
            self.unsupported.append(
                f"every layer must be supported, or be given by custom={{{keys}}}, each function of (config) -> layers "
                "of Keras that compute the same, or of (config, weights) -> HybridBlock (on the command line the dict "
                "of a module, --custom MODULE:NAME); "
                f"received {_several(f'{names_of(layer)[1]} ({layer.name!r})' for layer in missing)}"
            )
        for layer in model.walk():
            row = row_of(layer)
            try:
                with refusing(layer, [layer.name]):
                    if row is not None and (self._given(layer) is None or _is_configuration(self._given(layer))):
                        row.weights_of(layer.config)
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
        known = layer.class_name in LAYERS and layer.class_name != WRAPPER and all(map(row_of, layer.after))
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


def _in_turn(row: Row, after: Sequence[Layer], site: Site, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
    """Build a layer, and what the user puts after it."""
    out = row(site, args, kwargs)
    for layer in after:
        out = row_of(layer)(replace(site, layer=layer), listed(out), {})
    return out


def names_of(layer: Layer) -> Tuple[str, str, str]:
    """Returns the names by which a user's function may be given for it."""
    name = layer.operator or layer.class_name
    return layer.name, name, name.split(">")[-1]


def _has_constants(argument: Any) -> bool:
    """Returns whether an argument is, or has in its lists and dicts, what is no tensor."""
    if isinstance(argument, (list, dict)):
        return any(map(_has_constants, argument.values() if isinstance(argument, dict) else argument))
    return argument is not None and not isinstance(argument, Value)


def _custom(site: Site, *inputs: Operand, make: Callable, **constants: Operand) -> List[Value]:
    """Call a block of the user's, which is made at the layer's first call. What else the layer is called with is in the
    configuration that its function gets."""
    layer, known = site.layer, site.known
    given = {"args": list(inputs), "training": site.training or None, **constants}
    given = {name: mapped(each, Value, lambda x: None) for name, each in given.items() if _has_constants(each)}
    is_same = repr(known.at_first("constants", given)) == repr(given)
    check(is_same, "arguments that are no tensors must be the same in all calls of a custom layer", **given)
    if known.block is None:
        with users_code():
            block = make({**site.config, **given}, [np.asarray(array) for array in layer.weights])
        known.is_users = True
        if not isinstance(block, mx.gluon.HybridBlock):
            raise InvalidType(f"custom must return a HybridBlock; received a {type(block).__name__}")
        known.block = block
        layer.weights = [Placed(tuple(array.shape)) for array in layer.weights]
        if layer.roles is None and len(site.path) == 1:  # in a nested model, what is trained would come first
            layer.roles = [Weight(f"weight_{number}") for number in range(len(layer.weights))]
    return called(site, known.block, leaves([*inputs, *constants.values()], Value))


def called(site: Site, block: Any, arrays: List[Value], rank: int = 0) -> List[Value]:
    """Returns the outputs of a block of the user's, on arrays in Keras's order, and the mask of the first if it takes
    one; outputs of so many axes, `rank`, have channels first."""
    mask = arrays[0].mask
    if mask is not None and "mask" in inspect.signature(block.hybrid_forward).parameters:
        arrays.append(mask)
    with users_code():
        outputs = site.steps.emit(block, arrays, site.name, False)
        dtypes = inferred_types(block, arrays)
    outputs = [out.as_transposed() if out.rank == rank else out for out in outputs]
    outputs = [site.cast(out._replace(dtype=GIVEN), known_type(dtype)) for out, dtype in zip(outputs, dtypes)]
    return [out._replace(mask=mask) for out in outputs] if getattr(block, "supports_masking", False) else outputs
