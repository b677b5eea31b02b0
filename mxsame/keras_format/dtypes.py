"""The dtypes of tensors, and Keras's rules for integers, bools and other floats. All other dtypes are refused.

A tensor has the dtype that it has in Keras. Its MXNet array has `STORED[dtype]`: float32 for small integers, bools
(ones and zeros) and float16, whose values float32 represents exactly. A converter declares in `dtypes` what it does
with other dtypes.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Sequence

import numpy as np

from mxsame import validation

FLOATS = frozenset({"float16", "float32", "float64"})
INTEGERS = frozenset({"int32", "int64"})
NARROW = frozenset({"bool", "int8", "uint8", "int16", "uint16", "float16"})
STORED = {  # MXNet's dtypes, by Keras's
    **{name: name for name in ("float32", "float64", "int32", "int64")},
    **dict.fromkeys(NARROW, "float32"),
    "uint32": "int64",
}
INPUT_DTYPES = {name: name for name in ("int8", "uint8", "float16")}  # inputs are cast to these first, then to `STORED`
UNCAST = "as given"  # the dtype of an array that the user passes, before it is cast

# `dtypes` of a converter: the dtypes that it accepts and returns, or one of the rules below
FLOAT32, ANY_DTYPE, STORED_AS_FLOAT32 = frozenset({"float32"}), frozenset(STORED), NARROW | {"float32"}
ARITHMETIC = FLOATS - {"float16"} | INTEGERS


class DtypeRule(Enum):
    """The versions of Keras in which a converter casts to float32; in the other version it accepts `FLOAT32` only."""

    CAST = (2, 3)
    CAST_IN_KERAS_2 = (2,)
    CAST_IN_KERAS_3 = (3,)
    SETS_DTYPE = None  # the converter casts, and sets the dtype of the outputs


CAST, SETS_DTYPE = DtypeRule.CAST, DtypeRule.SETS_DTYPE
CAST_IN_KERAS = {2: DtypeRule.CAST_IN_KERAS_2, 3: DtypeRule.CAST_IN_KERAS_3}


def standardize_dtype(dtype: Any) -> str:
    """Returns the name of a dtype that a tensor may have."""
    validation.check(str(dtype) in STORED, f"dtype must be one of {', '.join(sorted(STORED))}", dtype=dtype)
    return str(dtype)


def result_type(dtypes: Sequence[str], version: int) -> str:
    """Returns the dtype to which an operator casts its tensors. Keras 3 promotes them, TensorFlow requires one
    dtype."""
    distinct = set(dtypes) - ({"bool"} if version == 3 and len(set(dtypes)) > 1 else set())
    narrower = {"float64": set(STORED), "float32": set(STORED) - FLOATS, "int64": set(STORED) - FLOATS}
    narrower["int32"] = narrower["int64"] - {"int64", "uint32"}
    for wide in narrower if version == 3 else ():
        if wide in distinct and distinct - {wide} <= narrower[wide]:
            return wide
    validation.check(len(distinct) == 1, "tensors must have one dtype", dtypes=list(dtypes))
    return distinct.pop()


def dtype_of_constant(value: Any) -> str:
    """Returns the dtype that Keras 3 gives a constant among tensors: an array keeps its own, a number has the narrowest
    dtype of its kind."""
    if isinstance(value, np.ndarray):
        return str(value.dtype)
    return "float32" if np.asarray(value).dtype.kind == "f" else "bool"


def check_dtype(dtype: str, allowed: Any) -> str:
    """Returns the dtype if it is one of those that a converter accepts."""
    validation.check(dtype in allowed, f"tensors must have the dtype {' or '.join(sorted(allowed))} here", dtype=dtype)
    return dtype
