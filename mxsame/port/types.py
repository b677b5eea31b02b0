"""Types of tensors: what Keras's layers and functions make of integers, bools and other floats; all else is refused.

A tensor has Keras's type. Its array has that of `STORED`: float32 for small integers, bools (ones and zeros) and floats
of 16 bits, whose values are all exact there. What a converter does with types other than float32 is in its `types`.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mxsame import validation

FLOATS = frozenset({"float16", "float32", "float64"})
INTEGERS = frozenset({"int32", "int64"})
SMALL = frozenset({"bool", "int8", "uint8", "int16", "uint16", "float16"})
STORED = {  # MXNet's types, by Keras's
    **{name: name for name in ("float32", "float64", "int32", "int64")},
    **dict.fromkeys(SMALL, "float32"),
    "uint32": "int64",
}
OF_INPUTS = {name: name for name in ("int8", "uint8", "float16")}  # of SMALL: MXNet's types, which inputs become first
GIVEN = "as given"  # an array that may be of any type

# what a converter takes: a set of types, which its outputs have, or what it does with them
FLOAT32, ANY_DTYPE, STORED_AS_FLOAT32 = frozenset({"float32"}), frozenset(STORED), SMALL | {"float32"}
ARITHMETIC = FLOATS - {"float16"} | INTEGERS
CAST, SETS_DTYPE = "cast to float32", "of its own"
CAST_IN_KERAS = {2: "cast to float32 in Keras 2", 3: "cast to float32 in Keras 3"}  # and FLOAT32 in the other one


def known(dtype: Any) -> str:
    """Returns the name of a type that a tensor may have."""
    validation.check(str(dtype) in STORED, f"dtype must be one of {', '.join(sorted(STORED))}", dtype=dtype)
    return str(dtype)


def common(dtypes: Sequence[str], version: int) -> str:
    """Returns the type of what several tensors become together. Keras 3 promotes them; TensorFlow refuses several
    types."""
    distinct = set(dtypes) - ({"bool"} if version == 3 and len(set(dtypes)) > 1 else set())
    narrower = {"float64": set(STORED), "float32": set(STORED) - FLOATS, "int64": set(STORED) - FLOATS}
    narrower["int32"] = narrower["int64"] - {"int64", "uint32"}
    for wide in narrower if version == 3 else ():
        if wide in distinct and distinct - {wide} <= narrower[wide]:
            return wide
    validation.check(len(distinct) == 1, "tensors must be of one type", dtypes=list(dtypes))
    return distinct.pop()


def of_constant(value: Any) -> str:
    """Returns the type that a constant has among tensors of Keras 3: an array its own, numbers the narrowest of their
    kind."""
    if isinstance(value, np.ndarray):
        return str(value.dtype)
    return "float32" if np.asarray(value).dtype.kind == "f" else "bool"


def check(dtype: str, allowed: Any) -> str:
    """Returns the type, if a converter takes it."""
    validation.check(dtype in allowed, f"tensors must be of the type {' or '.join(sorted(allowed))} here", dtype=dtype)
    return dtype
