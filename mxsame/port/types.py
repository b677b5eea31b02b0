"""Types of tensors: what Keras's layers and functions make of integers, bools and other floats; all else is refused.

A tensor has Keras's type. Its array has that of `STORED`: float32 for small integers, bools (ones and zeros) and floats
of 16 bits, whose values are all exact there. What a row does with types other than float32 is in `RULES`, by its name.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from mxsame import validation

FLOATS = {"float16", "float32", "float64"}
SMALL = {"bool", "int8", "uint8", "int16", "uint16", "float16"}
STORED = {  # MXNet's types, by Keras's
    **{name: name for name in ("float32", "float64", "int32", "int64")},
    **dict.fromkeys(SMALL, "float32"),
    "uint32": "int64",
}
OF_INPUTS = {
    "int8": "int8",
    "uint8": "uint8",
    "float16": "float16",
}  # of SMALL: MXNet's types, which inputs become first
GIVEN = "as given"  # an array that may be of any type

# what a row does with other types than float32
REFUSED, CAST, OWN = "refused", "cast to float32", "of its own"
KEPT, KEPT_IN_FLOAT32, ARITHMETIC = set(STORED), SMALL | {"float32"}, {"float32", "float64", "int32", "int64"}
RULES: Dict[str, Any] = {
    **dict.fromkeys(("Flatten", "Reshape", "Permute", "RepeatVector", "Identity", "Concatenate"), KEPT),
    **dict.fromkeys(("Cropping1D", "Cropping2D", "Cropping3D", "Maximum", "Minimum"), KEPT),
    **dict.fromkeys(("concatenate", "reshape", "transpose", "expand_dims", "squeeze", "tile", "stack", "split"), KEPT),
    **dict.fromkeys(("get_item", "flip", "repeat", "stop_gradient", "max", "min", "depth_to_space"), KEPT),
    **dict.fromkeys(
        ("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "UpSampling1D", "UpSampling3D"), KEPT_IN_FLOAT32
    ),
    **dict.fromkeys(("MaxPooling1D", "MaxPooling2D", "GlobalMaxPooling1D", "GlobalMaxPooling2D"), KEPT_IN_FLOAT32),
    **dict.fromkeys(("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "pad"), KEPT_IN_FLOAT32),
    **dict.fromkeys(("Add", "Subtract", "Multiply", "negative", "absolute", "sum"), ARITHMETIC),
    **dict.fromkeys(("Dense", "EinsumDense", "CategoryEncoding", "CenterCrop"), CAST),
    **dict.fromkeys(("BatchNormalization", "SyncBatchNormalization", "Normalization", "Rescaling", "LeakyReLU"), CAST),
    **dict.fromkeys(("SimpleRNN", "LSTM", "GRU", "Bidirectional"), CAST),
    **dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention", "Attention", "AdditiveAttention"), CAST),
    **dict.fromkeys(("RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomCrop"), CAST),
    **dict.fromkeys(("TimeDistributed", "SpectralNormalization", "Embedding", "Discretization", "resize"), OWN),
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "identity", "cast"), OWN),
    **dict.fromkeys(("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "where", "any"), OWN),
    **dict.fromkeys(("logical_or", "logical_and", "logical_not", "argmax", "argmin", "shape"), OWN),
}
CAST_IN: Dict[int, Set[str]] = {  # by one of the two Kerases only
    2: {"LayerNormalization", "Resizing", "UnitNormalization"},
    3: {
        "GlobalAveragePooling1D",
        "GlobalAveragePooling2D",
        "GlobalAveragePooling3D",
        "mean",
        "sqrt",
        "exp",
        "log",
        "tanh",
    },
}


def known(dtype: Any) -> str:
    """The name of a type that a tensor may have."""
    if str(dtype) not in STORED:
        raise ValueError(f"dtype must be one of {', '.join(sorted(STORED))}; {validation.received(dtype=dtype)}")
    return str(dtype)


def common(dtypes: Sequence[str], version: int) -> str:
    """The type of what several tensors become together. Keras 3 promotes integers; TensorFlow refuses several types."""
    distinct = set(dtypes) - ({"bool"} if version == 3 and len(set(dtypes)) > 1 else set())
    for wide in ("float32", "int64", "int32"):
        others = distinct - {wide}
        if wide in distinct and version == 3 and not others & (FLOATS | ({"uint32"} if wide == "int32" else set())):
            return wide
    if len(distinct) != 1:
        raise ValueError(f"tensors must be of one type; {validation.received(dtypes=list(dtypes))}")
    return distinct.pop()


def check(dtype: str, taken: Any) -> str:
    """The type, if a row takes it."""
    if dtype not in taken:
        raise ValueError(
            f"tensors must be of the type {' or '.join(sorted(taken))} here; {validation.received(dtype=dtype)}"
        )
    return dtype


def typed(site: Any, rule: Any, values: Sequence[Any]) -> Tuple[List[Any], Optional[str]]:
    """The tensors of a call as its row takes them, and the type of its outputs, None where the row gives it. Layers
    cast all floats to float32, functions none."""
    is_layer = site.layer.operator is None
    values = [site.cast(x, "float32") if is_layer and x.dtype in FLOATS else x for x in values]
    if rule == OWN or not values:
        return values, None
    if rule == CAST and not any(x.dtype in FLOATS - {"float32"} for x in values):
        return [site.cast(x, "float32") for x in values], "float32"
    dtype = check(common([x.dtype for x in values], site.version), rule if isinstance(rule, set) else {"float32"})
    return [site.cast(x, dtype) for x in values], dtype


def rules_of(name: str) -> Dict[int, Any]:
    """The rule of a row, by the version of Keras."""
    return {version: CAST if name in CAST_IN[version] else RULES.get(name, REFUSED) for version in CAST_IN}
