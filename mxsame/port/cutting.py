"""Parts of models, and the order in which Keras lists and runs their layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterator, List, Mapping, Sequence, Set, Tuple, Union

from mxsame.port.description import Layer, LayerCall, Model, TensorId, mapped

Call = Tuple[str, int]  # a layer and the number of one of its calls
Path = Tuple[str, ...]  # the name of a layer, after those of the models that contain it
LayerName = Union[str, int]  # "base/conv", or a position


def paths_of(model: Model, before: Path = ()) -> Iterator[Path]:
    """Yields the paths of all layers and nested models, apart from inputs."""
    for layer in model.layers:
        if layer.class_name != "InputLayer":
            yield (*before, layer.name)
            yield from paths_of(layer.model, (*before, layer.name)) if layer.model is not None else ()


def cut(model: Model, names: Sequence[str]) -> Model:
    """Returns the model whose outputs are those of these layers' first calls, as `keras.Model(inputs, outputs)` makes
    it: without layers, calls and inputs that they do not need."""
    layers = {layer.name: layer for layer in model.layers}
    outputs = [TensorId(name) for name in names]
    needed: Dict[str, Set[int]] = {}
    waiting = [tensor[:2] for tensor in outputs]
    while waiting:
        name, call = waiting.pop()
        if call not in needed.setdefault(name, set()):
            needed[name].add(call)
            waiting += [tensor[:2] for tensor in _sources(layers[name], call)]

    def renumbered(tensor: TensorId) -> TensorId:
        return tensor._replace(call=sorted(needed[tensor.layer]).index(tensor.call))

    for name, calls in needed.items():
        kept = [layers[name].calls[call] for call in sorted(calls)] if layers[name].calls else []
        layers[name].calls = [LayerCall(*mapped([[*call.args], call.kwargs], TensorId, renumbered)) for call in kept]
    inputs = [tensor for tensor in model.inputs if tensor.layer in needed]
    order = keras_order({name: layers[name] for name in needed}, outputs)
    return replace(model, layers=order, inputs=inputs, outputs=outputs, sequential=False, source=None)


def keras_order(layers: Mapping[str, Layer], outputs: Sequence[TensorId]) -> List[Layer]:
    """Returns the layers that the outputs need in Keras's order: by depth, then as a depth-first search from the
    outputs finds them."""
    found, calls = _searched(layers, outputs)
    deepest: Dict[str, int] = {}
    for (name, _), depth in _depths(layers, calls).items():
        deepest[name] = max(depth, deepest.get(name, 0))
    return [layers[name] for name in sorted(found, key=lambda name: (-deepest[name], found[name]))]


def calls_in_order(layers: Sequence[Layer], outputs: Sequence[TensorId]) -> List[Call]:
    """Returns the calls that the outputs need in Keras 3's order of execution."""
    by_name = {layer.name: layer for layer in layers}
    depths = _depths(by_name, _searched(by_name, outputs)[1])
    return sorted(depths, key=lambda call: -depths[call])


def _depths(layers: Mapping[str, Layer], calls: Sequence[Call]) -> Dict[Call, int]:
    """Returns the distance of each call from the outputs, at least that of the layer's calls that were seen before."""
    depths: Dict[Call, int] = {}
    deepest: Dict[str, int] = {}
    for name, call in reversed(calls):
        depth = deepest[name] = depths[name, call] = max(depths.get((name, call), 0), deepest.get(name, 0))
        for tensor in _sources(layers[name], call):
            depths[tensor[:2]] = max(depths.get(tensor[:2], 0), depth + 1)
    return depths


def _searched(layers: Mapping[str, Layer], outputs: Sequence[TensorId]) -> Tuple[Dict[str, int], List[Call]]:
    """Returns the layers in the order in which a depth-first search from the outputs finds them, and their calls in the
    order in which it leaves them."""
    found: Dict[str, int] = {}
    left: Dict[Call, None] = {}
    stack = [(tensor[:2], False) for tensor in reversed(outputs)]
    while stack:
        call, is_done = stack.pop()
        if is_done:
            left[call] = None
        elif call not in left:
            found.setdefault(call[0], len(found))
            stack.append((call, True))
            stack += [(tensor[:2], False) for tensor in reversed(_sources(layers[call[0]], call[1]))]
    return found, list(left)


def _sources(layer: Layer, call: int) -> List[TensorId]:
    """Returns the tensors of a call; input layers may have none."""
    return layer.calls[call].tensors() if layer.calls else []
