"""The array arguments of operators and of nets: checked before MXNet sees them."""

from __future__ import annotations

import sys
from typing import Any, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx

DENSE = (mx.nd.NDArray, mx.np.ndarray)  # those of sparse arrays are derived from the first
NUMPY_KINDS = (mx.np.ndarray, mx.sym.numpy._Symbol)
_DTYPES = {code: dtype for code, dtype in mx.nd.ndarray._DTYPE_MX_TO_NP.items() if np.dtype(dtype).kind in "biuf"}
_STYPES = mx.nd.ndarray._STORAGE_TYPE_ID_TO_STR


def as_classic(arrays: Sequence[Any]) -> Tuple[Any, ...]:
    """Returns arrays of mx.np, or None, as classic ones."""
    return tuple(None if array is None else array.as_nd_ndarray() for array in arrays)


def check(name: str, array: Any) -> None:
    """Raises unless an array has a supported kind and a floating type, and is dense and not empty."""
    if isinstance(array, mx.sym.Symbol):
        _check_symbol(name, array)
        return
    if not isinstance(array, mx.nd.NDArray):
        raise TypeError(f"{name} must be an NDArray, a Symbol or an mx.np.ndarray; {received(name, array)}")
    _check_dense(name, array.stype)
    _check_float_type(name, array)
    # In np mode MXNet's operators seem to take an empty array, and fail at the next wait.
    validation.check_not_empty(name, array.shape)


def _check_symbol(name: str, symbol: Any) -> None:
    """Raises unless a Symbol has one output, and a variable's attributes fit: nothing else checks them before the graph
    is bound."""
    outputs = symbol.list_outputs()
    validation.check(len(outputs) == 1, f"{name} must be a Symbol with one output", **{f"{name}.outputs": outputs})
    dtype, stype = symbol.attr("__dtype__"), symbol.attr("__storage_type__")
    if dtype is not None and int(dtype) in _DTYPES:
        validation.check_float_type(name, str(np.dtype(_DTYPES[int(dtype)])))
    if stype is not None:
        _check_dense(name, _STYPES.get(int(stype), "default"))


def _check_dense(name: str, stype: str) -> None:
    validation.check_type(stype == "default", f"{name} must be a dense array", **{f"{name}.stype": stype})


def _device(context: Any) -> tuple[int, int]:
    """Returns the device; memory that is pinned or shared between processes, as a DataLoader gives it, is the CPU's."""
    return context.device_typeid & 1, context.device_id


def is_bfloat16(dtype: Any) -> bool:
    """Returns whether a type is MXNet's bfloat16, which is a structure to NumPy."""
    return bool(np.dtype(dtype).kind == "V")


def _check_float_type(name: str, array: Any, allowed: Sequence[str] = validation.FLOATS, why: str = "") -> None:
    """Raises unless the elements are floats of these types, or bfloat16 that `mxnet.contrib.amp` has cast."""
    if not is_bfloat16(array.dtype):
        validation.check_float_type(name, str(np.dtype(array.dtype)), allowed, why)
    elif not are_cast(array):
        validation.check_float_type(name, "bfloat16", allowed, f"{why}, or amp must be initialized")


def amp_is_on() -> bool:
    """Returns whether `mxnet.contrib.amp` is initialized: it casts the arrays of every operator."""
    amp = sys.modules.get("mxnet.contrib.amp.amp")
    return bool(amp is not None and amp._amp_initialized)


def are_cast(*arrays: Any) -> bool:
    """Returns whether `mxnet.contrib.amp` casts arrays of these types to one type."""
    types = ("float16", "float32")
    return amp_is_on() and all(is_bfloat16(each.dtype) or np.dtype(each.dtype).name in types for each in arrays)


def check_together(name: str, array: Any, data_name: str, data: Any) -> None:
    """Raises unless an array's kind, type and device are the data's."""
    kind = _kind(data)
    if _kind(array) != kind:
        raise TypeError(f"{name} must be of the same kind as {data_name}, {kind}; {received(name, array)}")
    if isinstance(data, mx.nd.NDArray):
        dtype = array.dtype if are_cast(array, data) else data.dtype
        check_fits(name, array, data_name, [dtype], [data.ctx])


def check_fits(name: str, array: Any, owner: str, dtypes: Sequence[Any], contexts: Sequence[Any]) -> None:
    """Raises if an array is of none of these types, or on none of these devices, which are those of `owner`."""
    dtypes = [np.dtype(dtype) for dtype in dtypes]
    if array.dtype not in dtypes:
        rule = f"{name} must have the type of {owner}, {' or '.join(map(str, dtypes))}"
        validation.check_type(False, rule, **{f"{name}.dtype": str(np.dtype(array.dtype))})
    if _device(array.ctx) not in map(_device, contexts):
        rule = f"{name} must be on the device of {owner}, {contexts}"
        validation.check(False, rule, **{f"{name}.context": str(array.ctx)})


def in_own_memory(array: Any) -> Any:
    """Returns an array that a graph takes: of memory that is pinned or shared between processes, a copy."""
    return array if is_own_memory(array.ctx) else array.as_in_context(mx.cpu())


def is_own_memory(context: Any) -> bool:
    """Returns whether arrays on this device are in memory that is neither pinned nor shared between processes."""
    return context.device_type in ("cpu", "gpu")


NO_FLOAT16 = ("float32", "float64"), " on the CPU, where MXNet has no float16 convolution"


def forbid_float16_on_cpu(name: str, data: Any) -> None:
    """Raises for float16 on the CPU, where MXNet has no matrix product of it, so no convolutions either."""
    if isinstance(data, mx.nd.NDArray) and data.ctx.device_type.startswith("cpu"):
        _check_float_type(name, data, *NO_FLOAT16)


def _kind(array: Any) -> str:
    if isinstance(array, mx.sym.Symbol):
        return "an mx.np Symbol" if isinstance(array, NUMPY_KINDS) else "a Symbol"
    return "an mx.np.ndarray" if isinstance(array, NUMPY_KINDS) else "an NDArray"


def check_array(name: str, array: Any) -> None:
    """Raises a `TypeError` for anything but an NDArray or a Symbol."""
    if not isinstance(array, (mx.nd.NDArray, mx.sym.Symbol)):
        raise TypeError(f"{name} must be an NDArray or a Symbol; {received(name, array)}")


def received(name: str, array: Any) -> str:
    """Returns the second half of a message, with the type of an array, and with a hint for one of NumPy."""
    kind = type(array)
    hint = f"; nd.array({name}) is an NDArray" if isinstance(array, np.ndarray) else ""
    return f"received {name} of type {kind.__module__}.{kind.__name__}{hint}"
