"""Reads the shape, type, origin and layout of an array or a Symbol, stores them in a graph's variables, and adds
operators that fix a Symbol's size, type or layout."""

from __future__ import annotations

import ast
import functools
import json
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from mxsame._mxnet import has_onednn as has_onednn, mx
from mxsame.onednn_blocks import KEEP_AS_TRACED
from mxsame.scope import Recorder, VariableFacts, scope
from mxsame.tensors import operands


def known_shape(array: Any) -> Optional[tuple[Optional[int], ...]]:
    """Returns the shape, with None for every unknown length; None if the rank is unknown, too."""
    if isinstance(array, mx.nd.NDArray):
        return tuple(array.shape)
    declared = array.attr("__shape__") if array.get_children() is None else None
    return _infer_shape(array, {}) if declared is None else with_none(_parse_shape(declared))


def declared_shapes(symbol: Any) -> dict[str, tuple[Optional[int], ...]]:
    """Returns the shapes with which a Symbol's variables were declared, by name, with None for unknown lengths; () for
    an unknown rank."""
    attributes = symbol.attr_dict()
    texts = {name: attributes.get(name, {}).get("__shape__") for name in symbol.list_arguments()}
    return {name: with_none(_parse_shape(text)) or () for name, text in texts.items() if text is not None}


_parse_shape = functools.lru_cache(maxsize=4096)(ast.literal_eval)  # from a variable's attribute `__shape__`


def with_none(shape: Sequence[int]) -> Optional[tuple[Optional[int], ...]]:
    """Returns MXNet's shape with None for unknown lengths; None for (), with which MXNet means an unknown rank."""
    unknown = unknown_length()
    return tuple(None if length == unknown else length for length in shape) or None


def unknown_length() -> int:
    """Returns the number that MXNet writes for an unknown length."""
    return -1 if mx.util.is_np_shape() else 0


def infer_shapes(symbol: Any, shapes: Mapping[str, tuple]) -> Optional[list]:
    """Returns the shapes of a graph's outputs that MXNet infers from these shapes of its inputs, by name; names that
    are not inputs are ignored.

    Returns None if an operator infers nothing from unknown lengths, or if the graph contradicts itself or the shapes.
    """
    names = set(symbol.list_arguments())
    try:
        _, outputs, _ = symbol.infer_shape_partial(**{name: shapes[name] for name in names.intersection(shapes)})
    except mx.base.MXNetError:
        return None
    return outputs


def _infer_shape(symbol: Any, shapes: Mapping[str, tuple]) -> Optional[tuple[Optional[int], ...]]:
    outputs = infer_shapes(symbol, shapes)
    return with_none(outputs[0]) if outputs and outputs[0] is not None else None


# -- origin, layout and type


def is_input(array: Any) -> bool:
    """Returns whether data is an input of the graph, possibly reshaped or transposed, and not the output of a layer."""
    while isinstance(array, mx.sym.Symbol):
        if array.attr("pool_type") is not None:
            return False
        sources = array.get_children()
        if sources is None:
            return not _facts_of(array.name).is_computed
        if len(sources.list_outputs()) > 1:
            return False
        array = sources
    return True


def _facts_of(variable: str) -> VariableFacts:
    recorder = scope().recorder
    return recorder.facts.get(variable, VariableFacts()) if recorder else VariableFacts()


def is_in_blocks(array: Any, purpose: Optional[str]) -> bool:
    """Returns whether data with three or five axes is in the blocked layout of oneDNN's convolutions, as far as this
    can be read from its graph, which is for this purpose.

    oneDNN runs no batch norm of such data, so its output is in the plain layout; but `deploy` folds a batch norm into
    the convolution.
    """
    if not isinstance(array, mx.sym.Symbol):
        return False
    pass_through = KEEP_AS_TRACED | {"BatchNorm"} if purpose == "deployment" else KEEP_AS_TRACED
    pass_through = pass_through - {"Dropout"} if purpose == "training" else pass_through
    graph = json.loads(array.tojson())
    nodes, position = graph["nodes"], graph["heads"][0][0]
    while nodes[position]["op"] in pass_through:
        position = nodes[position]["inputs"][0][0]
    node = nodes[position]
    if node["op"] == "null":
        return _facts_of(node["name"]).is_in_blocks
    return node["op"] in ("Convolution", "Deconvolution") and int(node.get("attrs", {}).get("num_group", 1)) == 1


def known_type(data: Any) -> Optional[str]:
    """Returns the name of the data's type; None if MXNet cannot infer it, and for bfloat16, which NumPy cannot name."""
    try:
        dtype = data.dtype if isinstance(data, mx.nd.NDArray) else data.infer_type_partial()[1][0]
    except mx.base.MXNetError:  # MXNet cannot infer the type
        return None
    return None if dtype is None or operands.is_bfloat16(dtype) else np.dtype(dtype).name


# -- attributes of variables, and fixed sizes


def dtype_attribute(dtype: Any) -> str:
    """Returns the value of a Symbol's attribute `__dtype__` for a type; raises a `KeyError` if MXNet lacks the type."""
    dtype, codes = np.dtype(dtype), mx.nd.ndarray._DTYPE_NP_TO_MX
    return str(codes[dtype if operands.is_bfloat16(dtype) else dtype.type])


def update_variable(parameter: Any) -> None:
    """Gives a parameter's variable the current type and shape of the parameter. Gluon creates the variable once: it
    keeps the type from before a cast, and the shape from before the first input."""
    attributes = {"__dtype__": dtype_attribute(parameter.dtype)}
    if parameter.shape is not None:
        attributes["__shape__"] = str(tuple(parameter.shape))
    parameter.var()._set_attr(**attributes)


def copy_facts(variable: Any, output: Any, shape: Optional[tuple], recorder: Recorder) -> None:
    """Gives a variable the shape, the type and the storage type of the output that it replaces, and stores the
    variable's `VariableFacts` in the recorder. If `shape` is None, the output's shape is inferred."""
    shape, dtype, stype = shape or known_shape(output), known_type(output), output.attr("__storage_type__")
    attributes = {} if stype is None else {"__storage_type__": stype}
    if shape is not None:
        attributes["__shape__"] = str(tuple(unknown_length() if length is None else length for length in shape))
    if dtype is not None:
        attributes["__dtype__"] = dtype_attribute(dtype)
    variable._set_attr(**attributes)
    has_blocks = shape is not None and len(shape) in (3, 5) and is_in_blocks(output, scope().target.purpose)
    recorder.facts[variable.name] = VariableFacts(not is_input(output), has_blocks)


FIXED_SIZE_PREFIX = "data_must_be_"  # data_must_be_N_3_32_32 is the name of an operator that refuses other shapes
MAX_AXES = 6  # oneDNN does not reshape to more axes


def fix_lengths(symbol: Any, lengths: Sequence[Optional[int]]) -> Any:
    """Returns the Symbol with its values unchanged, in a graph that refuses data of other lengths; None stands for any
    length.

    Each axis is split into its length and 1, which MXNet refuses for any other length, and merged again.
    """
    axes = [axis for axis, length in enumerate(lengths) if length is not None]
    suffix = "_".join(str(length or ("any" if axis else "N")) for axis, length in enumerate(lengths))
    axes_per_reshape = max(MAX_AXES - len(lengths), 1)
    for group in (axes[start : start + axes_per_reshape] for start in range(0, len(axes), axes_per_reshape)):
        split: list = []
        for axis, length in enumerate(lengths):
            split += [-4, length, 1] if axis in group else [0]
        symbol = mx.sym.reshape(symbol, shape=tuple(split), name=FIXED_SIZE_PREFIX + suffix)
        symbol = mx.sym.reshape(symbol, shape=tuple(-3 if axis in group else 0 for axis in range(len(lengths))))
    return symbol


FLOAT_DIVISION = "_npi_true_divide_scalar"  # NumPy's division, which casts integers to floats


def as_floats(symbol: Any) -> Any:
    """Returns integers cast to float32, and floats unchanged, in a graph that accepts both."""
    return mx.sym.numpy._internal.true_divide_scalar(symbol.as_np_ndarray(), scalar=1.0).as_nd_ndarray()


# -- layouts


def runs_channels_last(num_spatial_dims: int, device: Optional[str]) -> bool:
    """Returns whether MXNet's operators run data with channels last: on GPUs, in 2-D."""
    return num_spatial_dims == 2 and device == "gpu"


def channels_first(F: Any, array: Any, ndim: int) -> Any:
    """Transposes (N, *size, C) -> (N, C, *size), and a convolution's weight (O, *k, I) -> (O, I, *k)."""
    return F.transpose(array, axes=(0, ndim - 1, *range(1, ndim - 1)))


def channels_last(F: Any, array: Any, ndim: int) -> Any:
    """Transposes (N, C, *size) -> (N, *size, C)."""
    return F.transpose(array, axes=(0, *range(2, ndim), 1))


def shape_channels_first(shape: Sequence[Any]) -> tuple:
    """Returns the shape (N, *size, C) with channels first."""
    return (shape[0], shape[-1], *shape[1:-1])
