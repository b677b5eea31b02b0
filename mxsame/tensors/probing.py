"""Infers the part of a Symbol's shape that is the same for all inputs, by trying values for unknown lengths: MXNet
infers nothing from unknown lengths through pooling of dynamic shape."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple

from mxsame import tensors

Shapes = Mapping[str, Tuple[Optional[int], ...]]  # name of an input -> shape

# Values to try for unknown lengths: large enough for deep networks, and cheap, since inference allocates no memory. The
# first two suit networks that halve and double lengths, or divide them by three. The others have all remainders modulo
# 64, for networks that accept only some lengths, such as unpadded convolutions followed by crops.
PROBED_LENGTHS = (1152, *range(576, 576 + 64 * 65, 65))
PROBED_NDIMS = (4, 2, 3, 5)  # to try for a variable whose number of axes does not follow from its operators
MAX_UNDECIDED = 2  # the number of such variables for which all `PROBED_NDIMS` are tried
WITH_PARAMETERS = (  # operators with one array of data, and parameters whose shapes MXNet infers
    *("Convolution", "Deconvolution", "FullyConnected", "BatchNorm", "LayerNorm", "InstanceNorm", "GroupNorm"),
    *("Embedding", "LeakyReLU"),
)


def probe_channels(symbol: Any, num_spatial_dims: int, channels_last: bool) -> Optional[int]:
    """Returns the number of channels that a Symbol has for all input shapes; None if they differ, or if no inference
    succeeds. A variable without a shape is assumed to have the Symbol's rank if that works."""
    ndim, axis = num_spatial_dims + 2, num_spatial_dims + 1 if channels_last else 1
    templates = list(_templates(symbol, ndim, channels_last))
    for lengths, tried_templates in ((PROBED_LENGTHS[:2], templates), (PROBED_LENGTHS[2:], templates[:1])):
        for template in tried_templates:
            shape = probe_shape(symbol, template, lengths)
            if shape is not None and len(shape) == ndim:
                return shape[axis]
    return None


def _templates(symbol: Any, ndim: int, channels_last: bool) -> Iterator[Shapes]:
    """Yields candidate shapes of a Symbol's variables, with None for lengths to try. At first, two kinds of lengths
    stay unknown to MXNet: channels of variables without a shape, and unknown lengths of declared shapes. Then values
    are tried for these, too: dense layers need the channels."""
    declared, unknown = tensors.declared_shapes(symbol), tensors.unknown_length()
    implied = _implied_shapes(symbol, declared)
    partly_declared = {name: shape for name, shape in declared.items() if None in shape}
    complete = {name: shape for name, shape in implied.items() if isinstance(shape, tuple) and name not in declared}
    ndims = {name: implied.get(name, ndim) for name in symbol.list_arguments() if name not in {**declared, **complete}}
    undecided = [name for name in ndims if name not in implied][:MAX_UNDECIDED]
    candidates = sorted(PROBED_NDIMS, key=lambda count: count != ndim)  # the Symbol's number of axes first
    for others, channels in itertools.product(({}, partly_declared) if partly_declared else ({},), (unknown, None)):
        for counts in itertools.product(candidates, repeat=len(undecided)):
            shapes = dict(complete)
            for name, count in {**ndims, **dict(zip(undecided, counts))}.items():
                channel_axis = count - 1 if channels_last else 1
                shape = tuple(channels if axis == channel_axis else None for axis in range(count))
                shapes.update({name: shape} if count else {})
            yield {**others, **shapes}


def _implied_shapes(symbol: Any, declared: Shapes) -> Mapping[str, Any]:
    """Returns what the operators imply about their variables, by name: the number of axes; 0 for a parameter, whose
    shape MXNet infers; or the shape of a dense layer's data, if its weight has a declared shape."""
    nodes = json.loads(symbol.tojson())["nodes"]
    implied: dict[str, Any] = {}
    for node in nodes:
        data, *others = [nodes[source]["name"] for source, *_ in node["inputs"]] or [""]
        if node["op"] in WITH_PARAMETERS:
            implied.update(dict.fromkeys(others, 0))
        kernel = re.findall(r"\d+", node.get("attrs", {}).get("kernel", ""))
        in_units = declared.get(others[0], ())[1:] if node["op"] == "FullyConnected" else ()
        if kernel:
            implied[data] = len(kernel) + 2
        elif in_units and None not in in_units:
            implied[data] = (None, *in_units)
    return implied


def probe_shape(
    symbol: Any, template: Shapes, lengths: Sequence[int] = PROBED_LENGTHS
) -> Optional[tuple[Optional[int], ...]]:
    """Returns the shape of a Symbol, with None for lengths that depend on the unknown lengths of its inputs, which are
    None in the template; None if MXNet cannot infer the shape. It is inferred with two of `lengths` in place of None,
    the first two that the graph accepts."""
    first_shape = None
    for value in lengths:
        shapes = {
            name: tuple(value if length is None else length for length in each) for name, each in template.items()
        }
        outputs = tensors.infer_shapes(symbol, shapes)
        if outputs is None:
            continue
        shape = tensors.with_none(outputs[0]) if outputs[0] is not None else None
        if shape is None or (first_shape is not None and len(first_shape) != len(shape)):
            return None
        if first_shape is not None:
            return tuple(length if length == other else None for length, other in zip(first_shape, shape))
        first_shape = shape
    return None
