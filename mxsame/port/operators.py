"""Rows of operator nodes: functions of TensorFlow and of `keras.ops` that a model calls between its layers."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame.port import blocks, types
from mxsame.port.activations import ACTIVATIONS, applied
from mxsame.port.builder import OpenLength, Operand, Site, Value
from mxsame.port.description import Layer, leaves, listed, snake_case
from mxsame.port.einsum import einsum_product, parse
from mxsame.port.layers import axes_of, broadcasting, merged, to_order, to_shape
from mxsame.port.rows import KERAS, TAKES, UNPADDED, in_place, operator


def name_of(operator: str) -> str:
    """TensorFlow's "math.reduce_mean" and Keras's "Mean" by one name.

    >>> name_of("math.reduce_mean"), name_of("Mean"), name_of("__operators__.getitem"), name_of("GetItem")
    ('mean', 'mean', 'get_item', 'get_item')

    TensorFlow's other functions have their whole name: `linalg.normalize` is another function than Keras's.
    """
    package, _, name = operator.rpartition(".")
    name = snake_case(name) if package in PACKAGES or operator in ("linalg.matmul", "image.resize") else operator
    return SYNONYMS.get(name, name)


PACKAGES = ("", "math", "nn", "__operators__", "keras.activations", "compat.v1", "compat.v1.math", "compat.v1.nn")


SYNONYMS = {
    "getitem": "get_item",
    **dict.fromkeys(("truediv", "true_divide", "realdiv"), "divide"),
    "sub": "subtract",
    "mul": "multiply",
    "neg": "negative",
    "pow": "power",
    "concat": "concatenate",
    "abs": "absolute",
    **{f"reduce_{name}": name for name in ("mean", "sum", "max", "min", "prod", "any")},
    "clip_by_value": "clip",
    "pad_v2": "pad",
    "permute_dimensions": "transpose",
    "batch_matmul": "matmul",
    "convert_to_tensor": "identity",
    **{f"{name}_v2": name for name in ("where", "max_pool", "avg_pool", "repeat", "shape", "einsum", "cumsum")},
    **{f"{kind}_pool{rank}d": f"{kind}_pool" for kind in ("max", "avg") for rank in (1, 2, 3)},
    "average_pool": "avg_pool",
    "mirror_pad": "pad",
    "reverse": "flip",
    "less": "lesser",
    "less_equal": "lesser_equal",
}


def _named(site: Site) -> str:
    return name_of(str(site.layer.operator))


# -- element by element


BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", *blocks.COMPARISONS)


@operator(*BINARY, names={"x1": "x", "x2": "y"})
def _binary(site: Site, x: Operand, y: Operand) -> Any:
    """Of two tensors, or of one with a number or an array; a comparison gives ones and zeros."""
    function = _named(site)
    if isinstance(x, Value) and isinstance(y, Value):
        if x.rank != y.rank:
            raise ValueError(
                f"tensors must have the same number of axes; {validation.received(shapes=[x.shape, y.shape])}"
            )
    elif not isinstance(x, Value) and not isinstance(y, Value):
        return _length_product(function, x, y)
    operands, dtype = _typed(site, function, [x, y])
    out = _computed(site, function, *operands)
    if function not in blocks.COMPARISONS:
        return out._replace(dtype=dtype)
    stored = types.STORED[dtype]  # MXNet's comparisons have the type of what they compare
    return site.cast(out._replace(dtype=stored), "float32")._replace(dtype="bool")


def _typed(site: Site, function: str, operands: List[Any]) -> Tuple[List[Any], str]:
    """The tensors among two operands in the type in which they are computed, and that type: TensorFlow's constants have
    that of the tensor, and Keras 3 promotes. Integers are divided as floats."""
    tensors = [each.dtype for each in operands if isinstance(each, Value)]
    constants = [np.asarray(each).dtype.kind for each in operands if not isinstance(each, Value)]
    dtype = types.common(
        [*tensors, *("float32" for kind in constants if kind == "f" and site.version == 3)], site.version
    )
    if constants and dtype == "bool" and site.version == 3:
        dtype = "int32"
    if function == "divide" and dtype not in types.FLOATS:
        dtype = "float64" if site.version == 2 and dtype in ("int32", "int64") else "float32"
    taken = types.KEPT if function in (*blocks.COMPARISONS, "maximum", "minimum") else types.ARITHMETIC
    types.check(dtype, {"float32"} if function == "power" else taken)
    return [site.cast(each, dtype) if isinstance(each, Value) else each for each in operands], dtype


def _computed(site: Site, function: str, x: Operand, y: Operand) -> Value:
    if isinstance(x, Value) and isinstance(y, Value):
        return merged(site, function, [x, y])
    reflected = not isinstance(x, Value)
    data, constant = (y, x) if reflected else (x, y)
    array = np.asarray(constant, dtype="float64")
    if array.size == 1:
        return site.function(blocks.scalar, data, operator=function, value=float(array.ravel()[0]), reflected=reflected)
    if types.STORED[data.dtype] != "float32":
        raise ValueError(f"a constant array must be used with floats; {validation.received(dtype=data.dtype)}")
    arrays = {"array": broadcasting("array", array, data)}
    return site.constant(blocks.with_array, data, arrays, operator=function, reflected=reflected)


UNARY = {"absolute": "abs", "stop_gradient": "BlockGrad"}  # MXNet's names, where they are others


@operator("negative", "absolute", "square", "sqrt", "rsqrt", "log", "exp", "reciprocal", "stop_gradient")
def _unary(site: Site, x: Value) -> Value:
    name = _named(site)
    return site.function(UNARY.get(name, name), x)


@operator(*ACTIVATIONS)
def _activation(site: Site, x: Value, **given: Any) -> Value:
    name = _named(site)
    names = ACTIVATIONS[name]
    if given.get("axis", 0) is None and site.version == 2:  # TensorFlow's default, which is the last
        del given["axis"]
    if "alpha" in given and "negative_slope" in names:  # TensorFlow's name
        given["negative_slope"] = given.pop("alpha")
    unknown = [key for key in given if key not in names]
    if unknown:
        raise ValueError(f"argument {unknown[0]} must not be given; received {unknown[0]}={given[unknown[0]]!r:.100}")
    if name == "gelu" and site.version == 3:  # keras.ops.gelu's default; TensorFlow's is False
        given.setdefault("approximate", True)
    return applied(site, name, x, **given)


@operator("clip", names={"clip_value_min": "x_min", "clip_value_max": "x_max"})
def _clip(site: Site, x: Value, x_min: float, x_max: float) -> Value:
    return site.function("clip", x, a_min=float(x_min), a_max=float(x_max))


@operator("identity", "cast", masks=TAKES)
def _cast(site: Site, x: Value, dtype: Any = None) -> Value:
    """What has the type already is the same array in Keras, with its mask; an identity is another one."""
    x = x._replace(mask=None) if str(site.layer.operator).endswith("identity") else x
    if dtype is None:
        return x
    out = site.cast(x, types.check(types.known(dtype), {x.dtype, "float32", "float64", "int32", "int64", "bool"}))
    return out if out.dtype == x.dtype else out._replace(mask=None)


# -- along axes


def _after_batch(axis: Any, rank: int) -> List[int]:
    """Axes, none of which is before the batch."""
    axes = axes_of(axis, rank)
    if 0 in axes:
        raise ValueError(f"axis must leave the batch as it is; {validation.received(axis=axis)}")
    return axes


@operator("logical_or", "logical_and", order=KERAS)
def _logical(site: Site, x: Value, y: Value) -> Value:
    """Of ones and zeros."""
    function = "maximum" if _named(site) == "logical_or" else "minimum"
    return merged(site, function, [site.cast(each, "bool") for each in (x, y)])._replace(dtype="bool")


@operator("logical_not")
def _not(site: Site, x: Value) -> Value:
    out = site.function(blocks.scalar, site.cast(x, "bool"), operator="subtract", value=1.0, reflected=True)
    return out._replace(dtype="bool")


@operator("where", order=KERAS, names={"x1": "x", "x2": "y"})
def _where(site: Site, condition: Value, x: Operand, y: Operand) -> Value:
    """Either operand may be a tensor or a number."""
    tensors = [each for each in (x, y) if isinstance(each, Value)]
    numbers = [None if isinstance(each, Value) else float(np.asarray(each)) for each in (x, y)]
    if any(each.shape != condition.shape for each in tensors):
        shapes = [condition.shape, *(each.shape for each in tensors)]
        raise ValueError(f"tensors must have one shape; {validation.received(shapes=shapes)}")
    kinds = [
        "float32" if np.asarray(each).dtype.kind == "f" else "int32" for each in (x, y) if not isinstance(each, Value)
    ]
    weak = kinds if not tensors or (site.version == 3 and "float32" in kinds) else []
    dtype = types.common([*(each.dtype for each in tensors), *weak], site.version if tensors else 3)
    tensors = [site.cast(each, dtype) for each in tensors]
    out = site.function(blocks.choose, site.cast(condition, "bool"), *tensors, numbers=numbers)
    return out._replace(dtype=dtype) if tensors else site.cast(out, dtype)


@operator("argmax", "argmin")
def _position(site: Site, x: Value, axis: Any = None, keepdims: bool = False, output_type: Any = None) -> Value:
    (axis,) = _after_batch(axis, x.rank)
    x = x if keepdims else site.keras(x)
    out = site.function(_named(site), x, first=x.first, axis=x.axis(axis), keepdims=bool(keepdims))
    out = out._replace(dtype=types.STORED[x.dtype])  # MXNet's positions have the type of the data
    return site.cast(out, types.known(output_type or ("int64" if site.version == 2 else "int32")))


@operator("cumsum")
def _cumsum(site: Site, x: Value, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Value:
    (axis,) = _after_batch(axis, x.rank)
    return site.function(blocks.cumulated, x, axis=x.axis(axis), exclusive=bool(exclusive), backwards=bool(reverse))


@operator("flip")
def _flip(site: Site, x: Value, axis: Any = None) -> Value:
    return site.function("reverse", x, axis=x.axes(_after_batch(axis, x.rank)))


@operator("repeat")
def _repeat(site: Site, x: Value, repeats: int, axis: int) -> Value:
    (axis,) = _after_batch(axis, x.rank)
    return site.function("repeat", x, repeats=validation.integer("repeats", repeats, 1), axis=x.axis(axis))


@operator("mean", "sum", "max", "min", "prod", "any", names={"keep_dims": "keepdims"})
def _reduction(site: Site, x: Value, axis: Any = None, keepdims: bool = False) -> Value:
    axes = _after_batch(list(range(x.rank)) if axis is None else axis, x.rank)
    if x.first and not keepdims and axes != list(range(1, x.rank - 1)):
        x = site.keras(x)
    function = _named(site)
    if function == "any":
        function, x = "max", site.cast(x, "bool")
    out = site.function(function, x, first=x.first and keepdims, axis=x.axes(axes), keepdims=bool(keepdims))
    return out._replace(dtype=x.dtype)


@operator("l2_normalize")
def _l2_normalize(site: Site, x: Value, axis: Any = None, epsilon: float = 1e-12) -> Value:
    """Over all axes, the batch among them, if there is no other."""
    axes = list(range(x.rank)) if axis is None else axes_of(axis, x.rank)
    return site.function(blocks.unit, x, axes=x.axes(axes), epsilon=epsilon)


@operator("normalize")
def _normalize(site: Site, x: Value, axis: Any = -1, order: int = 2, epsilon: Optional[float] = None) -> Value:
    """Keras's epsilon is that of the length, not of its square."""
    if order != 2:
        raise ValueError(f"order must be 2; {validation.received(order=order)}")
    epsilon = float(1e-7 if epsilon is None else epsilon)
    return site.function(blocks.unit, x, axes=x.axes(axes_of(axis, x.rank)), epsilon=epsilon**2)


# -- shapes


BATCH = "batch"  # in the shape of a tensor; other dynamic lengths are -1


@operator("shape")
def _shape(site: Site, x: Value, out_type: Any = None) -> tuple:
    """`tf.shape`: lengths, which are no tensors here."""
    return (BATCH, *(OpenLength.of(x, axis) if n is None else n for axis, n in enumerate(x.shape[1:], 1)))


def _length_product(function: str, x: Any, y: Any) -> Any:
    """Arithmetic with lengths of a shape."""
    if function != "multiply" or BATCH in (x, y):
        raise ValueError(f"lengths must be multiplied only, and that of the batch not; {validation.received(x=x, y=y)}")
    return -1 if -1 in (x, y) else x * y


@operator("reshape", order=KERAS, names={"shape": "newshape"})
def _reshape(site: Site, x: Value, newshape: Sequence[Any]) -> Value:
    """To lengths; -1 may stand for the batch, if all others are static, or for one of the others."""
    batch, *rest = newshape
    static = None not in x.shape[1:] and -1 not in rest and np.prod(rest) == np.prod(x.shape[1:])
    if (batch not in (-1, None) or not static) and batch != BATCH:
        raise ValueError(
            "shape must be -1 for the batch, then static with as many elements; "
            f"{validation.received(shape=newshape, data=x.shape)}"
        )
    return to_shape(site, x, rest)


@operator("transpose", names={"perm": "axes"})
def _transpose(site: Site, x: Value, axes: Sequence[int]) -> Value:
    return to_order(site, x, axes)


@operator("expand_dims", order=KERAS)
def _expand_dims(site: Site, x: Value, axis: Any) -> Value:
    axes = listed(axis)
    return site.function("expand_dims", x, axes=tuple(_after_batch(axes, x.rank + len(axes))))


@operator("squeeze", order=KERAS, names={"squeeze_dims": "axis"})
def _squeeze(site: Site, x: Value, axis: Any = None) -> Value:
    axes = [at for at, n in enumerate(x.shape) if at and n == 1] if axis in (None, []) else axes_of(axis, x.rank)
    return site.function("squeeze", x, axis=tuple(axes)) if axes else x


@operator("pad", names={"paddings": "pad_width"})
def _pad(site: Site, x: Value, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Value:
    modes, mode = ("constant", "reflect", "symmetric"), str(mode).lower()
    if mode not in modes or len(pad_width) != x.rank:
        raise ValueError(
            f"mode must be one of {', '.join(modes)}, with pads for each axis; "
            f"{validation.received(mode=mode, paddings=pad_width)}"
        )
    pads = [validation.pads_of_axis("pads", list(pair)) for pair in pad_width]
    if any(pads[0]):
        raise ValueError(f"the batch must not be padded; {validation.received(paddings=pad_width)}")
    if mode == "constant":
        return site.function(blocks.pad, x, pads=x.ordered(pads), value=float(constant_values or 0))
    own = int(mode == "reflect")  # the element at the end is not repeated
    if any(n is not None and max(pair) > n - own for n, pair in zip(x.shape, pads)):
        raise ValueError(f"pads must be shorter than the data; {validation.received(paddings=pads, shape=x.shape)}")
    return site.function(blocks.pad_mirrored, x, pads=x.ordered(pads), skipped=own)


@operator("tile", names={"multiples": "repeats"})
def _tile(site: Site, x: Value, repeats: Sequence[int]) -> Value:
    if len(repeats) != x.rank or repeats[0] != 1:
        raise ValueError(
            f"multiples must have one entry for each axis, 1 for the batch; {validation.received(multiples=repeats)}"
        )
    counts = [validation.integer("multiples", count, 1) for count in repeats]
    return site.function(blocks.tile, x, counts=tuple(x.ordered(counts)))


@operator("stack", order=KERAS)
def _stack(site: Site, xs: Operand, axis: int = 0) -> Any:
    if not all(isinstance(x, Value) for x in xs):  # lengths of a shape
        return tuple(xs)
    (axis,) = _after_batch(axis, xs[0].rank + 1)
    return site.function("stack", *xs, axis=axis)


MOST_PARTS = 10_000


@operator("split")
def _split(
    site: Site, x: Value, num_or_size_splits: Any = None, axis: int = 0, indices_or_sections: Any = None,
    num: Optional[int] = None,
) -> List[Value]:  # fmt: skip
    """TensorFlow's takes sizes, Keras's takes positions; both take a number of equal parts."""
    parts = indices_or_sections if num_or_size_splits is None else num_or_size_splits
    (axis,) = axes_of(axis, x.rank)
    length = x.shape[axis]
    if length is None or not axis:
        raise ValueError(f"axis must have a static length, and not be the batch; {validation.received(axis=axis)}")
    if isinstance(parts, int):
        validation.integer("splits", parts, 1, MOST_PARTS)
        validation.divisible("length", length, "parts", parts)
        ends = [length // parts * (number + 1) for number in range(parts)]
    elif num_or_size_splits is not None:
        rest = length - sum(size for size in parts if size != -1)
        ends = np.cumsum([rest if size == -1 else size for size in parts]).tolist()
    else:
        ends = [end % length if end < 0 else end for end in [*parts, length]]
    starts = [0, *ends[:-1]]
    if ends[-1] != length or not all(0 <= start < end for start, end in zip(starts, ends)):
        raise ValueError(f"splits must be parts of all elements; {validation.received(splits=parts, length=length)}")
    return [site.function("slice_axis", x, axis=x.axis(axis), begin=start, end=end) for start, end in zip(starts, ends)]


WHOLE: Dict[str, Optional[int]] = {"start": None, "stop": None, "step": None}


@operator("get_item", names={"slice_spec": "key"})
def _get_item(site: Site, x: Operand, key: Any) -> Any:
    """Slices, numbers of single elements, which take their axis away, and new axes; the batch stays as it is."""
    if not isinstance(x, Value):  # a shape
        (key,) = listed(key)
        return x[slice(key["start"], key["stop"], key["step"]) if isinstance(key, dict) else key]
    entries = _indices(listed(key), x.rank)
    taken = [entry for entry in entries if entry is not None]
    if len(taken) != x.rank or taken[0] != WHOLE or entries[0] is None:
        raise ValueError(f"indices must leave the batch as it is; {validation.received(key=key)}")
    slices = [_slice(entry, n) for entry, n in zip(taken, x.shape)]
    lengths = [_length(n, entry) for n, entry in zip(x.shape, slices)]
    if 0 in lengths:
        raise ValueError(f"indices must leave elements; {validation.received(key=key, **{'data.shape': x.shape})}")
    if any(not isinstance(entry, dict) for entry in entries):
        x = site.keras(x)
    if any(entry != WHOLE for entry in slices):
        begin, end, step = (x.ordered([entry[part] for entry in slices]) for part in ("start", "stop", "step"))
        x = site.function("slice", x, shape=lengths, begin=begin, end=end, step=[each or 1 for each in step])
    single = tuple(axis for axis, entry in enumerate(taken) if isinstance(entry, int))
    x = site.function("squeeze", x, axis=single) if single else x
    new = tuple(axis for axis, entry in enumerate(e for e in entries if not isinstance(e, int)) if entry is None)
    return site.function("expand_dims", x, axes=new) if new else x


def _indices(key: Sequence[Any], rank: int) -> list:
    """One entry for each axis and each new one: a slice, a number, or None."""
    key = ["..." if entry == "..." or (isinstance(entry, dict) and "start" not in entry) else entry for entry in key]
    key = key if "..." in key else [*key, "..."]
    at = key.index("...")
    missing = rank - sum(entry is not None for entry in key) + 1
    return [*key[:at], *(dict(WHOLE) for _ in range(missing)), *key[at + 1 :]]


def _slice(entry: Any, length: Optional[int]) -> Dict[str, Optional[int]]:
    """The slice of an entry, within a static length: MXNet refuses one that begins before the first element."""
    if isinstance(entry, int):
        entry = {"start": entry, "stop": (entry + 1) or None, "step": None}
    step = entry["step"]
    if length is None or entry == WHOLE or (step or 1) < 0:
        return dict(entry)
    start, stop, _ = slice(entry["start"], entry["stop"], step).indices(length)
    return {"start": start, "stop": stop, "step": step}


def _length(n: Optional[int], entry: dict) -> Optional[int]:
    if n is not None:
        return len(range(*slice(entry["start"], entry["stop"], entry["step"]).indices(n)))
    return 1 if isinstance(entry["start"], int) and (entry["stop"] or 0) == entry["start"] + 1 else None


@operator("matmul", order=KERAS, names={"b": "y", "x2": "y"})
def _matmul(site: Site, x: Value, y: Value, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    if x.rank != 3 or y.rank != 3:
        raise ValueError(f"tensors must be matrices of a batch; {validation.received(shapes=[x.shape, y.shape])}")
    return site.function("batch_dot", x, y, transpose_a=bool(transpose_a), transpose_b=bool(transpose_b))


@operator("einsum", order=KERAS)
def _einsum(site: Site, *operands: Operand, subscripts: str = "") -> Value:
    """Of two tensors, as a product of matrices for each entry of the axes that both and the output have."""
    x, y = leaves(list(operands), Value)
    einsum = parse(subscripts or operands[0], x.rank, y.rank)
    pairs = [*zip(einsum.first, x.shape), *zip(einsum.second, y.shape)]
    lengths = {letter: length for letter, length in pairs if letter != einsum.first[0]}
    if not einsum.shared[:1] == einsum.first[0] == einsum.output[0] or None in lengths.values():
        raise ValueError(
            f"axes must be that of the batch, then static; {validation.received(shapes=[x.shape, y.shape])}"
        )
    return site.function(einsum_product, x, y, einsum=einsum, lengths=lengths)


@operator("max_pool", "avg_pool", order=UNPADDED, names={"ksize": "pool_size"})
def _pool(
    site: Site, x: Value, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: Any = None
) -> Value:
    """As the layer of that name. TensorFlow's sizes may have entries for the batch and the channels."""
    rank, kind = x.rank - 2, "Max" if _named(site) == "max_pool" else "Average"
    first = str(data_format) == "channels_first" or str(data_format).startswith("NC")
    config: Dict[str, Any] = {"padding": padding, "data_format": "channels_first" if first else "channels_last"}
    for name, value in (("pool_size", pool_size), ("strides", strides)):
        entries = value[1 : rank + 1] if isinstance(value, list) and len(value) == rank + 2 else value
        config[name] = entries[0] if isinstance(entries, list) and len(entries) == 1 else entries
    return in_place(site, Layer(f"{kind}Pooling{rank}D", site.name, config), x)
