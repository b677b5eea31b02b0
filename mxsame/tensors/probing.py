"""The shape that a Symbol has whatever its graph is given: lengths are tried for those that its variables leave open,
since MXNet infers nothing through pooling of dynamic shape."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple

from mxsame import tensors

Shapes = Mapping[str, Tuple[Optional[int], ...]]  # of a graph's inputs, by name

# Lengths to try for unknown ones: large enough for deep networks, and free, since inference allocates no memory. The
# first two suit networks that halve and double lengths, or divide them by three; some of the rest, one for each
# remainder modulo 64, suit those that take other lengths only, such as unpadded convolutions followed by crops.
PROBED = (1152, *range(576, 576 + 64 * 65, 65))
PROBED_AXES = (4, 2, 3, 5)  # of a variable whose operators do not show how many it has
MAX_UNDECIDED = 2  # variables of unknown rank for which all `PROBED_AXES` are tried
WITH_PARAMETERS = (  # operators that take one array, and parameters whose shapes MXNet infers
    *("Convolution", "Deconvolution", "FullyConnected", "BatchNorm", "LayerNorm", "InstanceNorm", "GroupNorm"),
    *("Embedding", "LeakyReLU"),
)


def probe_channels(symbol: Any, num_spatial_dims: int, channels_last: bool) -> Optional[int]:
    """Returns the channels that a Symbol has for any input shape, or None. Unknown lengths are tried out; a variable
    without a shape is assumed to have the Symbol's rank if that works."""
    ndim, axis = num_spatial_dims + 2, num_spatial_dims + 1 if channels_last else 1
    templates = list(_templates(symbol, ndim, channels_last))
    for sizes, tried in ((PROBED[:2], templates), (PROBED[2:], templates[:1])):
        for template in tried:
            shape = probe_shape(symbol, template, sizes)
            if shape is not None and len(shape) == ndim:
                return shape[axis]
    return None


def _templates(symbol: Any, ndim: int, channels_last: bool) -> Iterator[Shapes]:
    """Yields candidate shapes of a Symbol's variables, with None for lengths to be tried. First, the channels of
    variables without a shape stay unknown, and so do lengths that a declared shape leaves open; then they are tried as
    well: dense layers need the channels."""
    declared, unknown = tensors.declared_shapes(symbol), tensors.unknown_length()
    shown = _shown_axes(symbol, declared)
    opened = {name: shape for name, shape in declared.items() if None in shape}
    given = {name: axes for name, axes in shown.items() if isinstance(axes, tuple) and name not in declared}
    known = {name: shown.get(name, ndim) for name in symbol.list_arguments() if name not in {**declared, **given}}
    undecided = [name for name in known if name not in shown][:MAX_UNDECIDED]
    kinds = sorted(PROBED_AXES, key=lambda count: count != ndim)  # the same number of axes first
    for others, channels in itertools.product(({}, opened) if opened else ({},), (unknown, None)):
        for counts in itertools.product(kinds, repeat=len(undecided)):
            arrays = dict(given)
            for name, count in {**known, **dict(zip(undecided, counts))}.items():
                last = count - 1 if channels_last else 1
                arrays.update({name: tuple(channels if at == last else None for at in range(count))} if count else {})
            yield {**others, **arrays}


def _shown_axes(symbol: Any, declared: Shapes) -> Mapping[str, Any]:
    """Returns what the operators imply about their variables: the number of axes; 0 for a parameter, whose shape
    follows; or the shape of a dense layer's data, if its weight has one."""
    nodes = json.loads(symbol.tojson())["nodes"]
    shown: dict[str, Any] = {}
    for node in nodes:
        data, *others = [nodes[source]["name"] for source, *_ in node["inputs"]] or [""]
        if node["op"] in WITH_PARAMETERS:
            shown.update(dict.fromkeys(others, 0))
        kernel = re.findall(r"\d+", node.get("attrs", {}).get("kernel", ""))
        units = declared.get(others[0], ())[1:] if node["op"] == "FullyConnected" else ()
        if kernel:
            shown[data] = len(kernel) + 2
        elif units and None not in units:
            shown[data] = (None, *units)
    return shown


def probe_shape(symbol: Any, template: Shapes, sizes: Sequence[int] = PROBED) -> Optional[tuple[Optional[int], ...]]:
    """Returns the shape of a Symbol, with None for lengths that depend on open lengths of its inputs, which are None in
    the template; None if there is no such shape. Open lengths get one size and then another; sizes that the graph does
    not take are skipped."""
    found = None
    for size in sizes:
        shapes = {name: tuple(size if length is None else length for length in each) for name, each in template.items()}
        outputs = tensors.infer_shapes(symbol, shapes)
        if outputs is None:
            continue
        shape = tensors.with_none(outputs[0]) if outputs[0] is not None else None
        if shape is None or (found is not None and len(found) != len(shape)):
            return None
        if found is not None:
            return tuple(length if length == second else None for length, second in zip(found, shape))
        found = shape
    return None
