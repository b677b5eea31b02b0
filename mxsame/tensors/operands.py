"""Checks the arrays that are arguments of operators and nets, before MXNet reads them."""

from __future__ import annotations

import functools
import sys
from typing import Any, Optional, Sequence, Tuple, cast

import numpy as np

from mxsame import processor, validation
from mxsame._mxnet import has_onednn, mx
from mxsame.scope import ANY, scope

DENSE = (mx.nd.NDArray, mx.np.ndarray)  # sparse arrays have types that are derived from the first
NUMPY_KINDS = (mx.np.ndarray, mx.sym.numpy._Symbol)
_DTYPES = {code: dtype for code, dtype in mx.nd.ndarray._DTYPE_MX_TO_NP.items() if np.dtype(dtype).kind in "biuf"}
_STYPES = mx.nd.ndarray._STORAGE_TYPE_ID_TO_STR


def as_classic(arrays: Sequence[Any]) -> Tuple[Any, ...]:
    """Returns arrays of mx.np as NDArrays, and mx.np's Symbols as Symbols; None stays None."""
    return tuple(None if array is None else array.as_nd_ndarray() for array in arrays)


def check(name: str, array: Any) -> None:
    """Raises unless an array is a dense, non-empty NDArray, Symbol or mx.np.ndarray of a floating type."""
    if isinstance(array, mx.sym.Symbol):
        _check_symbol(name, array)
        return
    if not isinstance(array, mx.nd.NDArray):
        rule = f"{name} must be an NDArray, a Symbol or an mx.np.ndarray"
        raise validation.InvalidType(f"{rule}; {received(name, array)}")
    _check_dense(name, array.stype)
    _check_float_type(name, array)
    # In np mode, MXNet's operators accept an empty array, and fail only when something waits for the output.
    validation.check_not_empty(name, array.shape)


def _check_symbol(name: str, symbol: Any) -> None:
    """Raises unless a Symbol has one output and, if it is a variable with a type, is dense and of a floating type:
    MXNet checks this only when the graph is bound."""
    outputs = symbol.list_outputs()
    validation.check(len(outputs) == 1, f"{name} must be a Symbol with one output", **{f"{name}.outputs": outputs})
    dtype, stype = symbol.attr("__dtype__"), symbol.attr("__storage_type__")
    if dtype is not None and int(dtype) in _DTYPES:
        validation.check_float_type(name, str(np.dtype(_DTYPES[int(dtype)])))
    if stype is not None:
        _check_dense(name, _STYPES.get(int(stype), "default"))


def _check_dense(name: str, stype: str) -> None:
    if stype != "default":
        raise validation.InvalidType(f"{name} must be a dense array; {validation.received(**{f'{name}.stype': stype})}")


def _device(context: Any) -> tuple[int, int]:
    """Returns (device type, device id). Pinned memory, and a DataLoader's shared memory, have the type of the CPU."""
    return context.device_typeid & 1, context.device_id


def is_bfloat16(dtype: Any) -> bool:
    """Returns whether a type is MXNet's bfloat16, which is a structured type in NumPy."""
    return bool(np.dtype(dtype).kind == "V")


def _check_float_type(name: str, array: Any, allowed: Sequence[str] = validation.FLOATS, why: str = "") -> None:
    """Raises unless the elements are floats of these types, or bfloat16 that `mxnet.contrib.amp` has cast."""
    if not is_bfloat16(array.dtype):
        validation.check_float_type(name, str(np.dtype(array.dtype)), allowed, why)
    elif not are_cast(array):
        validation.check_float_type(name, "bfloat16", allowed, f"{why}, or amp must be initialized")
    elif _is_on_cpu(array):
        check_amp("cpu")


def amp_type() -> Optional[str]:
    """Returns the type to which `mxnet.contrib.amp` casts convolutions, "float16" or "bfloat16"; None if amp is not
    initialized."""
    amp = sys.modules.get("mxnet.contrib.amp.amp")
    return _type_of_amp() if amp is not None and amp._amp_initialized else None


@functools.lru_cache(maxsize=None)
def _type_of_amp() -> str:
    with mx.util.np_array(False):
        convolution = mx.sym.Convolution(mx.sym.var("data"), kernel=(1,), num_filter=1)
    types = (attributes.get("dtype") for attributes in convolution.attr_dict().values())
    return cast(str, next(filter(None, types), "float32"))  # the user may have changed amp's operator lists


def check_amp(device: Optional[str]) -> None:
    """Raises if `mxnet.contrib.amp` casts convolutions to a type for which MXNet has no convolution on this device."""
    dtype = amp_type()
    if device == "cpu" and dtype in ("float16", "bfloat16"):
        requirements = {"AVX512_CORE": processor.has("AVX512_CORE"), "oneDNN": has_onednn()}
        lacks = [name for name, is_met in requirements.items() if not is_met]
        rule = "on the CPU, amp must be initialized with 'bfloat16', and needs AVX-512 and an MXNet built with oneDNN"
        validation.check(dtype == "bfloat16" and not lacks, rule, target_dtype=dtype, lacks=lacks)


def are_cast(*arrays: Any) -> bool:
    """Returns whether `mxnet.contrib.amp` casts all of these arrays to one type."""
    if amp_type() is None:
        return False
    return all(is_bfloat16(each.dtype) or np.dtype(each.dtype).name in ("float16", "float32") for each in arrays)


def check_same_kind_and_device(name: str, array: Any, data_name: str, data: Any) -> None:
    """Raises unless an array has the kind, the type and the device of the data."""
    kind = _kind(data)
    if _kind(array) != kind:
        hint = f"; {data_name}.as_nd_ndarray() is an NDArray" if kind == "an mx.np.ndarray" else ""
        rule = f"{name} must be of the same kind as {data_name}, {kind}"
        raise validation.InvalidType(f"{rule}; {received(name, array)}{hint}")
    if isinstance(data, mx.nd.NDArray):
        dtype = array.dtype if are_cast(array, data) else data.dtype
        check_fits(name, array, data_name, [dtype], [data.ctx])


def check_fits(name: str, array: Any, owner: str, dtypes: Sequence[Any], contexts: Sequence[Any]) -> None:
    """Raises unless an array has one of the types and is on one of the devices, which `owner` has."""
    dtypes = [np.dtype(dtype) for dtype in dtypes]
    if array.dtype not in dtypes:
        rule = f"{name} must have the type of {owner}, {' or '.join(map(str, dtypes))}"
        value = validation.received(**{f"{name}.dtype": str(np.dtype(array.dtype))})
        raise validation.InvalidType(f'{rule}; {value}; use {name}.astype("{dtypes[0]}")')
    if _device(array.ctx) not in map(_device, contexts):
        rule = f"{name} must be on the device of {owner}, {contexts}"
        validation.check(False, rule, **{f"{name}.context": str(array.ctx)})


def without_pinned_memory(array: Any) -> Any:
    """Returns an array that a graph accepts: a copy if it is in pinned or shared memory."""
    return array if is_own_memory(array.ctx) else array.as_in_context(mx.cpu())


def is_own_memory(context: Any) -> bool:
    """Returns whether arrays on this device are in memory that is neither pinned nor shared between processes."""
    return context.device_type in ("cpu", "gpu")


CPU_CONV_TYPES = ("float32", "float64")
WHY_NO_FLOAT16 = " on the CPU, where MXNet has no float16 convolution or matrix product"


def check_convolvable(name: str, data: Any) -> None:
    """Raises for data that MXNet cannot convolve on the CPU: float16, for which it has no matrix product, and data that
    `mxnet.contrib.amp` casts to a type without convolutions. A Symbol whose device is unknown is taken to be on the CPU
    unless MXNet finds a GPU."""
    if isinstance(data, mx.nd.NDArray) and _is_on_cpu(data):
        _check_float_type(name, data, CPU_CONV_TYPES, WHY_NO_FLOAT16)
        check_amp("cpu")
    elif isinstance(data, mx.sym.Symbol) and scope().target == ANY and amp_type() and not mx.context.num_gpus():
        check_amp("cpu")


def _is_on_cpu(array: Any) -> bool:
    return bool(array.ctx.device_type.startswith("cpu"))


def _kind(array: Any) -> str:
    if isinstance(array, mx.sym.Symbol):
        return "an mx.np Symbol" if isinstance(array, NUMPY_KINDS) else "a Symbol"
    return "an mx.np.ndarray" if isinstance(array, NUMPY_KINDS) else "an NDArray"


def check_array(name: str, array: Any) -> None:
    """Raises a `TypeError` for anything but an NDArray or a Symbol."""
    if not isinstance(array, (mx.nd.NDArray, mx.sym.Symbol)):
        raise validation.InvalidType(f"{name} must be an NDArray or a Symbol; {received(name, array)}")


def received(name: str, array: Any) -> str:
    """Returns the end of a message: the type of the argument, and for a NumPy array or a list how to convert it."""
    kind = type(array)
    hint = f"; nd.array({name}) is an NDArray" if isinstance(array, (np.ndarray, list)) else ""
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"received {name} of type {module}{kind.__name__}{hint}"
