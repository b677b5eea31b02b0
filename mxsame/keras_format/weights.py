"""Finds the weights of layers in a file, and writes such files.

Keras has two formats. In the older one (`model.save("model.h5")`, `save_weights("weights.h5")`) the layers that have
weights follow each other in the model's order, and a nested model is one entry: the trainable weights of all of its
layers, then the others. In the newer one (`.keras`, `.weights.h5`) every layer has a group of its own, named after its
class and numbered.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

from mxsame.keras_format import files
from mxsame.keras_format.description import Layer, Model, WeightSpec, snake_case, why_extra_weights
from mxsame.validation import check

PYTHON_NAMES = {"GroupQueryAttention": "GroupedQueryAttention"}  # Keras 3's class is exported by another name
Datasets = Iterable[Tuple[Layer, Any]]  # the weights of layers, those of each in Keras's order
LAYERS_GROUPS = ("layers", "_layer_checkpoint_dependencies")  # Keras 3, tf.keras 2.13


def group_of(root: Any) -> Any:
    """Returns the group of an HDF5 file that has the weights: the root, or "model_weights" of a whole model."""
    whole = files.text_list(root, "layer_names") is None
    return (files.member(root, "model_weights", "group") if whole else None) or root


def datasets_of(model: Model, group: Any, by_order: bool) -> Datasets:
    """Returns the weights of all layers, from a group of an HDF5 file.

    `by_order` ignores names, as Keras does: automatic names differ from session to session.
    """
    if files.text_list(group, "layer_names") is not None:
        return _legacy_datasets(model, group, by_order)
    for name in LAYERS_GROUPS:
        container = files.member(group, name, "group")
        if container is not None:
            found = list(_datasets_by_class(model, container, name))
            used = {array.name for _, array in found}
            others = re.compile("/(seed_generator|_random_generator|_metrics)")
            extra = [path for path in files.datasets(container) if path not in used and not others.search(path)]
            check(not extra, f"the file holds weights that no layer has: {', '.join(extra[:5])}")
            return found
    rule = f"{group.file.filename} must hold weights as Keras writes them: layer_names, or a group of layers"
    check(all(layer.weight_specs == [] for layer in model.walk()), rule)
    return []


# -- the newer format


def _datasets_by_class(model: Model, group: Any, container: str) -> Datasets:
    counts: Dict[str, int] = {}
    for layer in model.layers:
        if layer.operator is not None and container == "layers":  # operator nodes of Keras 3 are not layers
            continue
        name = _class_name(layer)
        stored = files.member(group, group_name(name, counts), "group")
        if stored is None:
            continue  # missing weights are noticed where a layer needs them
        layer_datasets = list(_datasets_of_group(layer, stored, container))
        yield from layer_datasets
        # tf.keras 2.13 counts a layer with weights twice: once among all layers, once among those with weights.
        has_own = layer_datasets and layer.model is None
        if container == LAYERS_GROUPS[1] and (has_own or (len(stored) > 1 and files.datasets(stored))):
            counts[name] += 1


def group_name(class_name: str, counts: Dict[str, int]) -> str:
    """Returns the name of the next group of a class in a file: dense, dense_1, .."""
    name = snake_case(class_name)
    counts[name] = counts.get(name, -1) + 1
    return f"{name}_{counts[name]}" if counts[name] else name


def _class_name(layer: Layer) -> str:
    class_name = layer.stored_as or layer.class_name
    return snake_case(PYTHON_NAMES.get(class_name, class_name).split(">")[-1])


def _datasets_of_group(layer: Layer, group: Any, container: str) -> Datasets:
    """Returns the weights of a layer, or of the layers of a nested model, in its group."""
    if layer.model is not None:
        inner = files.member(group, container if layer.wrapped is None else "layer", "group")
        if inner is None:
            return []
        if layer.wrapped is not None:
            return _datasets_of_group(layer.wrapped, inner, container)
        return _datasets_by_class(layer.model, inner, container)
    found: List[Any] = []
    for parent in dict.fromkeys([spec.group for spec in layer.weight_specs or ()] or [""]):
        arrays = _vars(group, parent)
        if arrays is not None:
            numbered = (files.member(arrays, str(number), "dataset") for number in itertools.count())
            found += itertools.takewhile(lambda array: array is not None, numbered)
    return [(layer, array) for array in found]


def _vars(group: Any, parent: str) -> Any:
    """Returns the group "vars" below a layer's group. tf.keras 2.13 keeps the underscore of a private attribute."""
    names = [f"{parent}/vars", f"_{parent}/vars"] if parent else ["vars"]
    groups = (files.member(group, name, "group") for name in names)
    return next((stored for stored in groups if stored is not None), None)


# -- the older format


def _legacy_datasets(model: Model, group: Any, by_order: bool) -> Datasets:
    stored = {}
    for name in files.text_list(group, "layer_names") or []:
        entry = _required(group, name, "group")
        arrays = [_required(entry, weight, "dataset") for weight in files.text_list(entry, "weight_names") or []]
        if arrays:
            stored[name] = arrays
    # A layer of an unknown class (a custom one) has weights if the file has some under the name of its entry.
    layers = []
    for layer in model.layers:
        if any(inner.weight_specs or (inner.weight_specs is None and layer.name in stored) for inner in layer.walk()):
            layers.append(layer)
    known = {layer.name for layer in layers}
    missing, surplus = (", ".join(sorted(names)[:5]) or "none" for names in (known - set(stored), set(stored) - known))
    rule = f"the file must have weights for {len(layers)} layers; received those of {len(stored)}"
    fits = len(stored) == len(layers) and (by_order or set(stored) == known)
    check(fits, f"{rule} (missing by name: {missing}; surplus: {surplus})")
    entries = stored.values() if by_order else (stored[layer.name] for layer in layers)
    found = [_datasets_of_entry(*pair, model.version, not by_order) for pair in zip(layers, entries)]
    return itertools.chain(*found)


def _required(group: Any, name: str, kind: str) -> Any:
    item = files.member(group, name, kind)
    check(item is not None, f"{group.name} must hold all that its attributes name; {name!r} is missing")
    return item


def _datasets_of_entry(layer: Layer, arrays: List[Any], version: int, named: bool) -> Datasets:
    """Returns the weights of a layer, or of the layers of a nested model, among the arrays of one entry: by their paths
    if these are unique, else by order, which depends on what was frozen. `named`: paths contain the names of a nested
    model's layers."""
    if layer.model is None and layer.weight_specs is None:
        return [(layer, array) for array in arrays]
    custom, arrays = ([], arrays) if layer.model is None else _split_custom(layer.model, arrays)
    slots = weights_in_order(layer, version)
    shown = ", ".join(f"{owner.name}/{spec.name}" for owner, spec in slots[:8]) + ", .." * (len(slots) > 8)
    rule = f"layer {layer.name!r} must have {len(slots)} weights ({shown}); received {len(arrays)}"
    fits = len(slots) == len(arrays)
    check(fits, rule + "".join(map(why_extra_weights, layer.walk())))
    paths = [array.name.rsplit(":", 1)[0] for array in arrays]
    ends = [spec.path or re.escape(spec.name) for _, spec in slots]
    full = [f"{re.escape(owner.name)}/(.*/)?{end}" for (owner, _), end in zip(slots, ends)]
    order = _order_by_paths(full if named and layer.model is not None else ends, paths)
    if order is None:
        order, every = list(range(len(slots))), re.compile(f"(^|/)({'|'.join(dict.fromkeys(ends))})$")
        for (owner, spec), end, path in zip(slots, ends, paths):
            rule = f"{spec.name} of layer {owner.name!r} must be stored at its position; received {path!r}"
            check(re.search(f"(^|/){end}$", path) or not every.search(path), rule)
    return [*custom, *((owner, arrays[number]) for (owner, _), number in zip(slots, order))]


def _order_by_paths(ends: List[str], paths: List[str]) -> Optional[List[int]]:
    """Returns the index of the path with each of these ends; None if that is not unique."""
    patterns = [re.compile(f"(^|/){end}$") for end in ends]
    if all(pattern.search(path) for pattern, path in zip(patterns, paths)):
        return list(range(len(paths)))
    by_name: Dict[str, List[int]] = {}
    for number, path in enumerate(paths):
        by_name.setdefault(path.rsplit("/", 1)[-1], []).append(number)
    found = [
        [number for number in by_name.get(re.findall(r"\w+$", end)[0], ()) if pattern.search(paths[number])]
        for end, pattern in zip(ends, patterns)
    ]
    is_one_to_one = all(len(numbers) == 1 for numbers in found) and len({numbers[0] for numbers in found}) == len(paths)
    return [numbers[0] for numbers in found] if is_one_to_one else None


def _split_custom(model: Model, arrays: List[Any]) -> Tuple[Datasets, List[Any]]:
    """Returns the arrays of custom layers of a nested model, with names like `layer/weight:0`, and the others."""
    custom: Dict[str, List[Layer]] = {}
    for layer in model.walk():
        if layer.weight_specs is None:
            custom.setdefault(layer.name, []).append(layer)
    found, others = [], []
    for array in arrays:
        owner = next((part for part in reversed(array.name.split("/")[:-1]) if part in custom), None)
        if owner is None:
            others.append(array)
            continue
        rule = f"custom layers of nested models must have different names; received {owner!r} twice"
        check(len(custom[owner]) == 1, rule)
        found.append((custom[owner][0], array))
    return found, others


def weights_in_order(layer: Layer, version: int) -> List[Tuple[Layer, WeightSpec]]:
    """Returns the weights of one entry in the order of the older format: trainable ones first. Keras 3 keeps the order
    of layers in a frozen model."""
    if version == 2:
        trained, others = _collected(layer)
        return [*trained, *others]
    weights = [(inner, spec) for inner in layer.walk() for spec in inner.weight_specs or ()]
    if layer.trainable:
        weights.sort(key=lambda each: not (each[0].trainable and each[1].trainable))
    return weights


def _collected(layer: Layer) -> Tuple[list, list]:
    """Returns `trainable_weights` and `non_trainable_weights`, as Keras 2 lists them."""
    trained: list = []
    others: list = []
    for inner in [] if layer.model is None else layer.model.layers:
        for collected, more in zip((trained, others), _collected(inner)):
            collected += more
    for spec in layer.weight_specs or ():
        (trained if spec.trainable else others).append((layer, spec))
    return (trained, others) if layer.trainable else ([], [*trained, *others])


# -- back into a file


def write(path: str, model: Model, arrays: Any) -> None:
    """Writes an HDF5 file for `model.load_weights`: in the newer format if its name ends in .weights.h5, else in the
    older one. `arrays(layer)` maps names of weights to arrays."""
    with files.h5py_module().File(path, "w") as file:
        if path.endswith(".weights.h5"):
            write_by_class(file, model, arrays, for_tf_keras=True)
            file.create_group("vars")  # the model's own, without which tf.keras 2.13 fails
        else:
            write_entries(file, model, arrays)


def write_by_class(group: Any, model: Model, arrays: Any, for_tf_keras: bool = False) -> None:
    """Writes the groups of the newer format, like Keras 3. With `for_tf_keras`, they are also linked under the names of
    tf.keras 2.13, which counts a layer with weights twice, and keeps the underscore of a private attribute."""
    counts: Tuple[Dict[str, int], Dict[str, int]] = ({}, {})
    for name in LAYERS_GROUPS[: 1 + for_tf_keras]:
        group.create_group(name)
    for layer in model.layers:
        if layer.operator is None:
            name = _class_name(layer)
            own, theirs = (f"{parent}/{group_name(name, each)}" for parent, each in zip(LAYERS_GROUPS, counts))
            _write_layer(group.create_group(own), layer, arrays, for_tf_keras)
            if for_tf_keras:
                # without it, Keras 3 reads the variables of another layer, whose linked group has this name
                group[own].require_group("vars")
                group[theirs] = group[own]
                counts[1][name] += any(inner.weights for inner in layer.walk())


def _write_layer(group: Any, layer: Layer, arrays: Any, for_tf_keras: bool) -> None:
    if layer.wrapped is not None:
        _write_layer(group.create_group("layer"), layer.wrapped, arrays, for_tf_keras)
    elif layer.model is not None:
        write_by_class(group, layer.model, arrays, for_tf_keras)
    for parent, weight_specs in itertools.groupby(layer.weight_specs or (), lambda spec: spec.group):
        names = [spec.name for spec in weight_specs]
        if layer.class_name == "SpectralNormalization" and not parent:  # it also stores the wrapped layer's kernel
            names.insert(0, (layer.weight_specs or [])[0].name)
        for number, name in enumerate(names):
            group.create_dataset(f"{parent}/vars/{number}".lstrip("/"), data=arrays(layer)[name])
        child = parent.split("/")[0]
        if for_tf_keras and child and not child.startswith("_") and f"_{child}" not in group:
            group[f"_{child}"] = group[child]


def write_entries(file: Any, model: Model, arrays: Any) -> None:
    """Writes the groups of the older format."""
    entries = [layer for layer in model.layers if layer.operator is None or model.version == 2]
    entries = entries[1:] if model.sequential else entries  # Keras does not count the input of a Sequential
    _write_names(file, "layer_names", [layer.name for layer in entries])
    written_by = (b"mxnet", b"2.2.4") if model.from_keras_mxnet else (b"tensorflow", b"2.13.1")
    file.attrs["backend"], file.attrs["keras_version"] = written_by
    for layer in entries:
        group = file.require_group(layer.name)  # "a/b" has made "a"
        names = []
        for owner, spec in weights_in_order(layer, model.version):
            names.append(f"{owner.name}/{spec.name}:0")
            if names[-1] in group:  # two layers of one name in nested models
                names[-1] = f"{owner.name}_{len(names)}/{spec.name}:0"
            group.create_dataset(names[-1], data=arrays(owner)[spec.name])
        _write_names(group, "weight_names", names)


def _write_names(group: Any, name: str, entries: List[str]) -> None:
    """Writes names as an attribute, or in several parts if that is too large for one, as Keras does."""
    encoded = [entry.encode() for entry in entries]
    per_part = max(64_000 // max(map(len, encoded), default=1), 1)
    if len(encoded) <= per_part:
        group.attrs[name] = encoded
        return
    for number, start in enumerate(range(0, len(encoded), per_part)):
        group.attrs[f"{name}{number}"] = encoded[start : start + per_part]
