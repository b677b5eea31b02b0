"""Paths of layers, parts of models, and the order in which Keras lists and runs their layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple, Union

from mxsame.keras_format.description import Layer, LayerCall, Model, TensorId
from mxsame.suggestions import most_alike
from mxsame.validation import InvalidValue, check, check_type

Call = Tuple[str, int]  # a layer and the number of one of its calls
Path = Tuple[str, ...]  # the name of a layer, after those of the models that contain it
LayerName = Union[str, int]  # "base/conv", or a position
MAX_NAMES_SHOWN = 12  # names in a message


class InvalidPosition(InvalidValue, IndexError, shown=IndexError):
    """The `ValueError` of a position, which is an `IndexError`, too."""


class UnknownLayer(InvalidValue, KeyError, shown=KeyError):
    """The `ValueError` of a name that no layer has, which is a `KeyError`, too."""

    __str__ = Exception.__str__  # a KeyError's is the `repr` of its message


def layers_of(model: Model, before: Path = ()) -> Iterator[Tuple[Path, Layer]]:
    """Yields the paths of all layers and nested models, apart from inputs, and the layers."""
    for layer in model.layers:
        if layer.class_name != "InputLayer":
            yield (*before, layer.name), layer
            yield from layers_of(layer.model, (*before, layer.name)) if layer.model is not None else ()


def path_of(name: Any, paths: Sequence[Path]) -> Path:
    """Returns the path of a layer from its name, the last part of its name if that is unique, or its position."""
    rule = "net[..] must have the name of a layer, or its position; from_keras(.., outputs=name) is a part of a model"
    check_type(isinstance(name, (str, int)) and not isinstance(name, bool), rule, name=name)
    if isinstance(name, int):
        outer = [path for path in paths if len(path) == 1]
        if not -len(outer) <= name < len(outer):
            raise InvalidPosition(f"index {name} is out of range: the network has {len(outer)} layers")
        return outer[name]
    named = {"/".join(path): path for path in paths}
    if name in named:
        return named[name]
    inner = [path for path in paths if path[-1] == name]
    check(len(inner) < 2, f"{name!r} must be one layer; it could be {' or '.join(map('/'.join, inner))}")
    if not inner:
        similar = most_alike(name, named)
        shown = ", ".join([*named][:MAX_NAMES_SHOWN]) + ", .." * (len(named) > MAX_NAMES_SHOWN)
        hint = f"did you mean {similar!r}?" if similar else f"it has {shown}"
        raise UnknownLayer(f"the network has no layer {name!r}; {hint}")
    return inner[0]


def with_layers(model: Model, new: Mapping[Path, Layer], before: Path = ()) -> Model:
    """Returns a model with other layers at some paths."""
    layers = []
    for layer in model.layers:
        path = (*before, layer.name)
        if layer.model is not None:
            layer = replace(layer, model=with_layers(layer.model, new, path))
        layers.append(new.get(path, layer))
    return replace(model, layers=layers)


def submodel(model: Model, names: Sequence[str]) -> Model:
    """Returns the model whose outputs are those of these layers' first calls, as `keras.Model(inputs, outputs)` makes
    it: without layers, calls and inputs that they do not need."""
    layers = {layer.name: layer for layer in model.layers}
    outputs = [TensorId(name) for name in names]
    needed: Dict[str, List[int]] = {}
    for name, number in sorted(depth_first_search(layers, outputs)[1]):
        needed.setdefault(name, []).append(number)

    def renumbered(tensor: TensorId) -> TensorId:
        return tensor._replace(call=needed[tensor.layer].index(tensor.call))

    for name, numbers in needed.items():
        kept = [layers[name].calls[number] for number in numbers] if layers[name].calls else []
        layers[name] = replace(layers[name], calls=[call.map_tensors(renumbered) for call in kept])
    inputs = [tensor for tensor in model.inputs if tensor.layer in needed]
    order = keras_order({name: layers[name] for name in needed}, outputs)
    return replace(model, layers=order, inputs=inputs, outputs=outputs, sequential=False, source=None)


def keras_order(layers: Mapping[str, Layer], outputs: Sequence[TensorId]) -> List[Layer]:
    """Returns the layers that the outputs need in Keras's order: by depth, then as a depth-first search from the
    outputs finds them."""
    found, calls = depth_first_search(layers, outputs)
    deepest: Dict[str, int] = {}
    for (name, _), depth in _depths(layers, calls).items():
        deepest[name] = max(depth, deepest.get(name, 0))
    return [layers[name] for name in sorted(found, key=lambda name: (-deepest[name], found[name]))]


def sorted_calls(model: Model) -> List[Tuple[Layer, int, LayerCall]]:
    """Returns the calls of all layers, each after those that it needs. Those of Keras 3 are in its order of execution,
    since a layer may remove the mask of its input."""
    layers = {layer.name: layer for layer in model.layers}
    starts = [TensorId(layer.name, number) for layer in model.layers for number in range(len(layer.calls))]
    calls = [(name, number) for name, number in depth_first_search(layers, starts)[1] if layers[name].calls]
    if model.version == 3:
        outputs = [tensor for tensor in model.outputs if _is_call(layers, *tensor[:2])]
        depths = _depths(layers, depth_first_search(layers, outputs)[1])
        order = {call: number for number, call in enumerate(sorted(depths, key=lambda call: -depths[call]))}
        calls.sort(key=lambda call: order.get(call, len(order)))
    return [(layers[name], number, layers[name].calls[number]) for name, number in calls]


def _depths(layers: Mapping[str, Layer], calls: Sequence[Call]) -> Dict[Call, int]:
    """Returns the distance of each call from the outputs, at least that of the layer's calls that were seen before."""
    depths: Dict[Call, int] = {}
    deepest: Dict[str, int] = {}
    for name, call in reversed(calls):
        depth = deepest[name] = depths[name, call] = max(depths.get((name, call), 0), deepest.get(name, 0))
        for tensor in _sources(layers[name], call):
            depths[tensor[:2]] = max(depths.get(tensor[:2], 0), depth + 1)
    return depths


def depth_first_search(layers: Mapping[str, Layer], outputs: Sequence[TensorId]) -> Tuple[Dict[str, int], List[Call]]:
    """Returns the layers that the outputs need, numbered as a depth-first search finds them, and their calls, each
    after those that it needs.

    Raises `ValueError` for calls in a cycle, and on tensors that are not in the model."""
    found: Dict[str, int] = {}
    done: Dict[Call, None] = {}
    started: Set[Call] = set()
    stack = [(tensor[:2], False) for tensor in reversed(outputs)]
    while stack:
        call, is_done = stack.pop()
        if is_done:
            done[call] = None
        elif call not in done:
            name, number = call
            rule = "layers must not be called on their own outputs"
            check(call not in started, f"{rule}; layer {name!r} is in a cycle")
            started.add(call)
            found.setdefault(name, len(found))
            sources = [tensor[:2] for tensor in _sources(layers[name], number)]
            missing = [source for source in sources if not _is_call(layers, *source)]
            rule = f"layer {name!r} must be called on tensors of the model"
            check(not missing, f"{rule}; received {next(iter(missing), None)}")
            stack += [(call, True), *((source, False) for source in reversed(sources))]
    return found, list(done)


def _is_call(layers: Mapping[str, Layer], name: str, number: int) -> bool:
    is_input = name in layers and layers[name].class_name == "InputLayer"  # input layers need no call
    return name in layers and number < max(len(layers[name].calls), int(is_input))


def _sources(layer: Layer, call: int) -> List[TensorId]:
    """Returns the tensors of a call."""
    return layer.calls[call].tensors() if layer.calls else []
