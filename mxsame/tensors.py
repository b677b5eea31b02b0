"""Arrays of every kind in one form: classic NDArrays or Symbols with channels first, their shapes, and their checks."""

from __future__ import annotations

import ast
import functools
import json
import sys
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.building import current

_DENSE = (mx.nd.NDArray, mx.np.ndarray)  # those of sparse arrays are derived from the first
_FLOATS = (np.float16, np.float32, np.float64)
_NUMPY_KINDS = (mx.np.ndarray, mx.sym.numpy._Symbol)
_DTYPES = {code: dtype for code, dtype in mx.nd.ndarray._DTYPE_MX_TO_NP.items() if np.dtype(dtype).kind in "biuf"}
_STYPES = mx.nd.ndarray._STORAGE_TYPE_ID_TO_STR


class Arguments(NamedTuple):
    """An operator's array arguments in classic form."""

    F: Any  # mx.nd or mx.sym
    arrays: tuple  # data first; None for those left out
    shapes: tuple  # of each array: a tuple with None for what is unknown, or None where even the rank is
    restore: Any  # gives an output back in the kind in which the data came
    key: Any = None  # of arrays: all that a plan may depend on, of them and of autograd; None for Symbols


def classic(**named: Any) -> Arguments:
    """Check that all arrays are of one kind, type and device, and bring them into classic form."""
    given = {name: array for name, array in named.items() if array is not None or name != "bias"}
    facts = [check(name, array) for name, array in given.items()]
    data, *_ = arrays = tuple(named.values())
    for (name, array), found in zip(given.items(), facts):
        if type(array) is not type(data) or (found is not None and found[1:] != facts[0][1:]):
            _check_together(name, array, next(iter(named)), data)
    restore = _as_it_is
    if isinstance(data, _NUMPY_KINDS):
        arrays, restore = tuple(None if array is None else array.as_nd_ndarray() for array in arrays), _as_numpy_kind
    if facts[0] is None:
        shapes = tuple(None if array is None else known_shape(array) for array in arrays)
        return Arguments(mx.sym, arrays, shapes, restore)
    shapes, dtypes, contexts = zip(*facts)
    shapes += (None,) * (len(arrays) - len(shapes))  # a bias is the last
    key = shapes, dtypes, contexts[0].device_type, mx.autograd.is_training(), mx.autograd.is_recording()
    return Arguments(mx.nd, arrays, shapes, restore, key)


def _as_numpy_kind(out: Any) -> Any:
    return out.as_np_ndarray()


def _as_it_is(out: Any) -> Any:
    return out


def check(name: str, array: Any) -> Optional[tuple]:
    """What must hold of any one array: its kind, a floating type, that it is dense and not empty; gives its shape, type
    and device, None for a Symbol."""
    if isinstance(array, mx.sym.Symbol):
        _check_symbol(name, array)
        return None
    if not isinstance(array, mx.nd.NDArray):
        raise TypeError(f"{name} must be an NDArray, a Symbol or an mx.np.ndarray; {received(name, array)}")
    if type(array) not in _DENSE:
        _check_dense(name, array.stype)
    shape, dtype = array.shape, array.dtype
    if dtype not in _FLOATS:
        validation.float_type(name, str(np.dtype(dtype)))
    if 0 in shape:  # in np mode MXNet's operators seem to take it, and fail at the next wait
        raise ValueError(f"{name} must not be empty; {validation.received(**{f'{name}.shape': shape})}")
    return shape, dtype, array.ctx


def _check_symbol(name: str, symbol: Any) -> None:
    """One output; and the attributes of a variable, which nobody would look at before the graph is bound."""
    outputs = symbol.list_outputs()
    if len(outputs) != 1:
        raise ValueError(
            f"{name} must be a Symbol with one output; {validation.received(**{f'{name}.outputs': outputs})}"
        )
    dtype, stype = symbol.attr("__dtype__"), symbol.attr("__storage_type__")
    if dtype is not None and int(dtype) in _DTYPES:
        validation.float_type(name, str(np.dtype(_DTYPES[int(dtype)])))
    if stype is not None:
        _check_dense(name, _STYPES.get(int(stype), "default"))


def _check_dense(name: str, stype: str) -> None:
    if stype != "default":
        raise TypeError(f"{name} must be a dense array; {validation.received(**{f'{name}.stype': stype})}")


def device(context: Any) -> tuple[int, int]:
    """The device; memory that is pinned or shared between processes, as a DataLoader gives it, is the CPU's."""
    return context.device_typeid & 1, context.device_id


def are_cast(*arrays: Any) -> bool:
    """Whether `mxnet.contrib.amp` brings arrays of these types together, as it does for every operator once it was
    switched on."""
    amp, types = sys.modules.get("mxnet.contrib.amp.amp"), ("float16", "float32")
    return amp is not None and amp._amp_initialized and all(np.dtype(each.dtype).name in types for each in arrays)


def _check_together(name: str, array: Any, data_name: str, data: Any) -> None:
    """An array's kind, type and device, which are the data's."""
    kind = _kind(data)
    if _kind(array) != kind:
        raise TypeError(f"{name} must be of the same kind as {data_name}, {kind}; {received(name, array)}")
    if not isinstance(data, mx.nd.NDArray):
        return
    if array.dtype != data.dtype and not are_cast(array, data):
        raise TypeError(
            f"{name} must have the type of {data_name}, {np.dtype(data.dtype)}; "
            f"{validation.received(**{f'{name}.dtype': str(np.dtype(array.dtype))})}"
        )
    if device(array.ctx) != device(data.ctx):
        raise ValueError(
            f"{name} must be where {data_name} is, on {data.ctx}; "
            f"{validation.received(**{f'{name}.context': str(array.ctx)})}"
        )


def dtype_attribute(dtype: Any) -> str:
    """The value of a Symbol's attribute `__dtype__` for a type."""
    return str(mx.nd.ndarray._DTYPE_NP_TO_MX[np.dtype(dtype).type])


def renew(parameter: Any) -> None:
    """Gluon makes a parameter's variable once and leaves it the type that it had before a cast, and the shape that it
    had before its first input."""
    known = {"__dtype__": dtype_attribute(parameter.dtype)}
    if parameter.shape is not None:
        known["__shape__"] = str(tuple(parameter.shape))
    parameter.var()._set_attr(**known)


def forbid_float16_on_cpu(data: Any, operator: str, name: str = "data") -> None:
    """MXNet has no float16 matrix product on the CPU, so neither convolutions."""
    if isinstance(data, mx.nd.NDArray) and data.dtype == np.float16 and data.ctx.device_type.startswith("cpu"):
        validation.float_type(
            name,
            str(np.dtype(data.dtype)),
            ("float32", "float64"),
            f" on the CPU, where MXNet has no float16 {operator}",
        )


def _kind(array: Any) -> str:
    if isinstance(array, mx.sym.Symbol):
        return "an mx.np Symbol" if isinstance(array, _NUMPY_KINDS) else "a Symbol"
    return "an mx.np.ndarray" if isinstance(array, _NUMPY_KINDS) else "an NDArray"


def received(name: str, array: Any) -> str:
    kind = type(array)
    return f"received {name} of type {kind.__module__}.{kind.__name__}"


# -- shapes: of an array, and of a Symbol as far as it can be inferred


def known_shape(array: Any) -> Optional[tuple[Optional[int], ...]]:
    """The shape, with None for every length that is unknown; None if the rank is unknown too."""
    if isinstance(array, mx.nd.NDArray):
        return tuple(array.shape)
    written = array.attr("__shape__") if array.get_children() is None else None
    return _inferred_shape(array, {}) if written is None else _parsed_shape(written, mx.util.is_np_shape())


@functools.lru_cache(maxsize=4096)
def _parsed_shape(written: str, np_shape: bool) -> Optional[tuple[Optional[int], ...]]:
    """A variable's attribute `__shape__`."""
    unknown = -1 if np_shape else 0
    return tuple(None if length == unknown else length for length in ast.literal_eval(written)) or None


def probed_channels(symbol: Any, ndim: int, axis: int) -> Optional[int]:
    """The channels of a Symbol as its graph fixes them, whatever is fed to it.

    MXNet infers nothing through pooling of dynamic shape. So variables without a shape are taken for arrays of `ndim`
    axes and of one size and then another; channels that are the same for both are the graph's own.
    """
    attributes = symbol.attr_dict()
    unshaped = [name for name in symbol.list_arguments() if "__shape__" not in attributes.get(name, {})]
    unknown = -1 if mx.util.is_np_shape() else 0
    found = set()
    for size in (509, 1021):  # larger than what networks reduce to nothing; inference allocates no memory
        probe = tuple(unknown if other == axis else size for other in range(ndim))
        shape = _inferred_shape(symbol, dict.fromkeys(unshaped, probe))
        found.add(None if shape is None or len(shape) != ndim else shape[axis])
    return found.pop() if len(found) == 1 else None


def is_input(array: Any) -> bool:
    """Whether data is what a graph is fed, or that reshaped or transposed or such, rather than made by a layer, one
    without weights included."""
    while isinstance(array, mx.sym.Symbol):
        if array.attr("pool_type") is not None:
            return False
        sources = array.get_children()
        if sources is None:
            return array.attr("__made__") != "True"
        if len(sources.list_outputs()) > 1:
            return False
        array = sources
    return True


# Elementwise operators, which take data as oneDNN's convolutions leave it; Dropout only in inference.
_KEEP_BLOCKS = {
    *("Activation", "LeakyReLU", "relu", "sigmoid", "tanh", "softsign", "_copy", "BlockGrad", "Dropout", "Pooling"),
    *("elemwise_add", "broadcast_add", "add_n"),
}


def is_in_blocks(array: Any) -> bool:
    """Whether data of three axes is in the layout in which oneDNN's convolutions leave it, as far as a graph shows it.

    A batch norm over three axes is not oneDNN's, and gives plain data; but `deploy` folds it into the convolution.
    """
    if not isinstance(array, mx.sym.Symbol):
        return False
    purpose = current().purpose
    keep = _KEEP_BLOCKS | {"BatchNorm"} if purpose == "deployment" else _KEEP_BLOCKS
    keep = keep - {"Dropout"} if purpose == "training" else keep
    graph = json.loads(array.tojson())
    nodes, position = graph["nodes"], graph["heads"][0][0]
    while nodes[position]["op"] in keep:
        position = nodes[position]["inputs"][0][0]
    node = nodes[position]
    attrs = node.get("attrs", {})
    if node["op"] == "null":
        return bool(attrs.get("__blocks__") == "True")
    return node["op"] in ("Convolution", "Deconvolution") and int(attrs.get("num_group", 1)) == 1


@functools.lru_cache(maxsize=None)
def has_onednn() -> bool:
    """Whether this MXNet was built with oneDNN."""
    return bool(mx.runtime.Features().is_enabled("MKLDNN"))


class Use(NamedTuple):
    """What data is for, and where it is; None if a graph may be for anything, or anywhere."""

    purpose: Optional[str]  # "inference", "training" or "deployment"
    device: Optional[str]  # "cpu" or "gpu"
    gradients: bool  # whether a backward pass may follow

    @property
    def has_saliency(self) -> bool:
        """Whether gradients may be asked for on the CPU although nothing is trained: for a saliency map, say."""
        return self.gradients and self.purpose == "inference" and self.device != "gpu"


def use_of(data: Any) -> Use:
    """Of an array, or of a Symbol as far as its graph is built for a use."""
    if isinstance(data, mx.nd.NDArray):
        purpose = "training" if mx.autograd.is_training() else "inference"
        return Use(purpose, "gpu" if data.ctx.device_type == "gpu" else "cpu", bool(mx.autograd.is_recording()))
    record = current()
    return Use(record.purpose, record.device, record.gradients or record.purpose in (None, "training"))


def purpose_and_device(data: Any) -> tuple[str, str]:
    """The same, with inference and MXNet's current device where a graph is for anything."""
    purpose, device, _ = use_of(data)
    here = "gpu" if mx.context.current_context().device_type == "gpu" else "cpu"
    return purpose or "inference", device or here


def known_type(data: Any) -> Optional[str]:
    """The type of the data's elements; None for a graph that does not tell."""
    if isinstance(data, mx.nd.NDArray):
        return np.dtype(data.dtype).name
    try:
        _, (dtype,), _ = data.infer_type_partial()
    except mx.base.MXNetError:  # an operator that insists on a known type
        return None
    return None if dtype is None else np.dtype(dtype).name


def describe(variable: Any, output: Any, shape: Optional[tuple] = None) -> Optional[tuple]:
    """Tell a variable what is known of the output in whose place it is: its shape, which is returned, its type, whether
    a layer made it, and whether it is in oneDNN's blocks."""
    shape, dtype = shape or known_shape(output), known_type(output)
    facts = {"__made__": str(not is_input(output))}
    if shape is not None:
        unknown = -1 if mx.util.is_np_shape() else 0
        facts["__shape__"] = str(tuple(unknown if length is None else length for length in shape))
        facts["__blocks__"] = str(len(shape) == 3 and is_in_blocks(output))
    if dtype is not None:
        facts["__dtype__"] = dtype_attribute(dtype)
    variable._set_attr(**facts)
    return shape


def inferred_shapes(symbol: Any, shapes: Mapping[str, tuple]) -> Optional[list]:
    """The shapes of a graph's outputs as MXNet infers them from those of its inputs, which may be more than it has.

    None for unknown lengths that an operator stumbles over, and for a graph that contradicts itself or these shapes.
    """
    names = set(symbol.list_arguments())
    try:
        _, outputs, _ = symbol.infer_shape_partial(**{name: shapes[name] for name in names.intersection(shapes)})
    except mx.base.MXNetError:
        return None
    return outputs


def _inferred_shape(symbol: Any, shapes: Mapping[str, tuple]) -> Optional[tuple[Optional[int], ...]]:
    outputs = inferred_shapes(symbol, shapes)
    if not outputs or outputs[0] is None:
        return None
    unknown = -1 if mx.util.is_np_shape() else 0
    shape = tuple(None if length == unknown else length for length in outputs[0])
    return shape or None


MOST_AXES = 6  # oneDNN's reshape takes no more; one of more axes is MXNet's own


def fixed(symbol: Any, lengths: Sequence[Optional[int]]) -> Any:
    """The Symbol itself, in a graph that refuses data of other lengths (None: any) instead of computing nonsense.

    An axis is split into its length and 1, which MXNet does only if that is the length, and merged again.
    """
    axes = [axis for axis, length in enumerate(lengths) if length is not None]
    together = max(MOST_AXES - len(lengths), 1)
    for group in (axes[start : start + together] for start in range(0, len(axes), together)):
        split: list = []
        for axis, length in enumerate(lengths):
            split += [-4, length, 1] if axis in group else [0]
        lengths_of_group = "x".join(str(lengths[axis]) for axis in group)
        symbol = mx.sym.reshape(symbol, shape=tuple(split), name=f"data_must_be_{lengths_of_group}")
        symbol = mx.sym.reshape(symbol, shape=tuple(-3 if axis in group else 0 for axis in range(len(lengths))))
    return symbol


# -- layouts: MXNet on the CPU has only those with channels first, on GPUs NHWC as well


def channels_first(F: Any, array: Any, ndim: int) -> Any:
    """(N, *size, C) -> (N, C, *size); a convolution's weight (O, *k, I) -> (O, I, *k) likewise."""
    return F.transpose(array, axes=(0, ndim - 1, *range(1, ndim - 1)))


def channels_last(F: Any, array: Any, ndim: int) -> Any:
    """(N, C, *size) -> (N, *size, C)."""
    return F.transpose(array, axes=(0, *range(2, ndim), 1))


def shape_channels_first(shape: Any) -> Any:
    """The same for a shape."""
    return None if shape is None else (shape[0], shape[-1], *shape[1:-1])
