"""The table of operator nodes: functions of TensorFlow and of `keras.ops` that a model calls between its layers."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from mxsame import validation
from mxsame.port import table
from mxsame.port.activations import ACTIVATIONS, applied
from mxsame.port.network import Site, Value

MISSING = object()


def name_of(operator: str) -> str:
    """TensorFlow's "math.reduce_mean" and Keras's "Mean" by one name.

    >>> name_of("math.reduce_mean"), name_of("Mean"), name_of("__operators__.getitem"), name_of("GetItem")
    ('mean', 'mean', 'get_item', 'get_item')
    """
    last = operator.rsplit(".", 1)[-1]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower()
    return SYNONYMS.get(snake, snake)


SYNONYMS = {
    "getitem": "get_item",
    "truediv": "divide",
    "true_divide": "divide",
    "realdiv": "divide",
    "sub": "subtract",
    "mul": "multiply",
    "neg": "negative",
    "pow": "power",
    "concat": "concatenate",
    "abs": "absolute",
    "reduce_mean": "mean",
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "clip_by_value": "clip",
    "pad_v2": "pad",
    "permute_dimensions": "transpose",
    "l2_normalize": "unit",
    "normalize": "unit",
    "batch_matmul": "matmul",
    "hard_silu": "hard_swish",
    "convert_to_tensor": "identity",
}


def argument(site: Site, args: list, kwargs: dict, position: int, *names: str, default: Any = MISSING) -> Any:
    """An argument by its position or one of its names; Keras 3 keeps some in the configuration."""
    if position < len(args):
        return args[position]
    for values in (kwargs, site.config):
        for name in names:
            if name in values and name != "name":
                return values[name]
    if default is MISSING:
        raise ValueError(f"argument {names[0]} must be given")
    return default


def _array(value: Any) -> Value:
    if not isinstance(value, Value):
        raise ValueError(f"data must be a tensor; {validation.received(data=value)}")
    return value


def _constant(value: Any, name: str) -> Any:
    """A number, a list, or None, without a tensor in it."""
    if isinstance(value, Value) or (isinstance(value, list) and any(isinstance(entry, Value) for entry in value)):
        raise ValueError(f"{name} must be a constant; received a tensor")
    return value


def _binary(function: str) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        x = argument(site, args, kwargs, 0, "x", "x1", "a", "inputs")
        y = argument(site, args, kwargs, 1, "y", "x2", "b")
        if isinstance(x, Value) and isinstance(y, Value):
            if x.rank != y.rank:
                raise ValueError(
                    f"tensors must have the same number of axes; {validation.received(shapes=[x.shape, y.shape])}"
                )
            return table.merged(site, function, [x, y])
        reflected = not isinstance(x, Value)
        data, constant = (y, x) if reflected else (x, y)
        data = site.builder.padded(_array(data))
        array = np.asarray(constant, dtype="float64")
        if array.size == 1:
            return site.function("scalar", data, operator=function, value=float(array.ravel()[0]), reflected=reflected)
        if function == "divide" and not reflected:
            return table.constants(site, data, 1 / array, 0.0)
        if function in ("add", "multiply"):
            return table.constants(site, data, *((1.0, array) if function == "add" else (array, 0.0)))
        if function == "subtract":
            return table.constants(site, data, *((-1.0, array) if reflected else (1.0, -array)))
        raise ValueError(f"{function} must have tensors or numbers; received an array of {array.shape}")

    return row


def _unary(function: str) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        return site.function(function, site.builder.padded(_array(argument(site, args, kwargs, 0, "x", "input"))))

    return row


def _activation(name: str) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        x = site.builder.padded(_array(argument(site, args, kwargs, 0, "x", "features", "logits", "value")))
        given: Dict[str, Any] = {}
        for key, names in (
            ("axis", ("axis",)),
            ("negative_slope", ("negative_slope", "alpha")),
            ("alpha", ("alpha",)),
            ("approximate", ("approximate",)),
            ("threshold", ("threshold",)),
            ("b", ("b",)),
        ):
            if key in ACTIVATIONS[name][1]:
                given[key] = argument(site, [], kwargs, 0, *names, default=None)
        if name == "gelu" and given["approximate"] is None:  # keras.ops.gelu's default; TensorFlow's is False
            given["approximate"] = site.version == 3
        if name == "swish" and argument(site, args, kwargs, 1, "beta", default=1.0) != 1:
            raise ValueError("beta must be 1")
        return applied(site, name, x, **given)

    return row


def _reduction(function: str) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        x = site.builder.padded(_array(argument(site, args, kwargs, 0, "input_tensor", "x")))
        axis = _constant(argument(site, args, kwargs, 1, "axis", default=None), "axis")
        keepdims = bool(argument(site, args, kwargs, 2, "keepdims", "keep_dims", default=False))
        axes = _after_batch(list(range(x.rank)) if axis is None else axis, x.rank)
        if x.first and not keepdims and axes != list(range(1, x.rank - 1)):
            x = site.keras(x)
        here = tuple(x.axis(axis) for axis in axes)
        shape = [1 if axis in axes else n for axis, n in enumerate(x.shape) if keepdims or axis not in axes]
        return site.function(function, x, shape, x.first and keepdims, axes=here, keepdims=keepdims)

    return row


def _get_item(site: Site, args: list, kwargs: dict) -> Any:
    x = site.builder.padded(_array(argument(site, args, kwargs, 0, "tensor", "x")))
    spec = argument(site, args, kwargs, 1, "slice_spec", "key")
    spec = spec if isinstance(spec, list) else [spec]
    _constant(
        [value for entry in spec for value in (entry.values() if isinstance(entry, dict) else [entry])], "indices"
    )
    spec = ["..." if entry == "..." or (isinstance(entry, dict) and "start" not in entry) else entry for entry in spec]
    taken = sum(entry is not None and entry != "..." for entry in spec)
    if "..." not in spec:
        spec = [*spec, "..."]
    whole = {"start": None, "stop": None, "step": None}
    at = spec.index("...")
    spec = [*spec[:at], *(dict(whole) for _ in range(x.rank - taken)), *(spec[at + 1 :])]
    if taken > x.rank or spec[0] != whole:
        raise ValueError(f"indices must leave the batch as it is; {validation.received(spec=spec)}")
    if any(not isinstance(entry, dict) for entry in spec):
        x = site.keras(x)
    slices = [entry if isinstance(entry, dict) else {"start": entry, "stop": (entry + 1) or None, "step": None}
              for entry in spec if entry is not None]  # fmt: skip
    lengths = [_length(n, entry) for n, entry in zip(x.shape, slices)]
    if 0 in lengths:
        raise ValueError(f"indices must leave elements; {validation.received(spec=spec, **{'data.shape': x.shape})}")
    if any(entry != whole for entry in slices):
        ends = [x.ordered([entry[key] for entry in slices]) for key in ("start", "stop", "step")]
        begin, end, step = map(tuple, ends)
        x = site.function("slice", x, lengths, begin=begin, end=end, step=tuple(entry or 1 for entry in step))
    single = [axis for axis, entry in enumerate(entry for entry in spec if entry is not None) if isinstance(entry, int)]
    if single:
        shape = [n for axis, n in enumerate(x.shape) if axis not in single]
        x = site.function("squeeze", x, shape, False, axes=tuple(single))
    kept = [entry for entry in spec if not isinstance(entry, int)]
    return _with_axes(site, x, [axis for axis, entry in enumerate(kept) if entry is None])


def _length(n: Optional[int], entry: dict) -> Optional[int]:
    if n is not None:
        return len(range(*slice(entry["start"], entry["stop"], entry["step"]).indices(n)))
    return 1 if isinstance(entry["start"], int) and entry["stop"] == entry["start"] + 1 else None


def _with_axes(site: Site, x: Value, axes: Sequence[int]) -> Value:
    if not axes:
        return x
    x, shape = site.keras(x), list(site.keras(x).shape)
    for axis in axes:
        shape.insert(axis, 1)
    return site.function("expand_dims", x, shape, False, axes=tuple(axes))


def _expand_dims(site: Site, args: list, kwargs: dict) -> Value:
    x = _array(argument(site, args, kwargs, 0, "input", "x"))
    axis = _constant(argument(site, args, kwargs, 1, "axis"), "axis")
    return _with_axes(site, x, _after_batch(axis, x.rank + 1))


def _after_batch(axis: Any, rank: int) -> List[int]:
    """Axes, none of which is before the batch."""
    axes = table.axes_of(axis, rank)
    if 0 in axes:
        raise ValueError(f"axis must leave the batch as it is; {validation.received(axis=axis)}")
    return axes


def _squeeze(site: Site, args: list, kwargs: dict) -> Value:
    x = site.keras(_array(argument(site, args, kwargs, 0, "input", "x")))
    axis = _constant(argument(site, args, kwargs, 1, "axis", "squeeze_dims", default=None), "axis")
    axes = [at for at, n in enumerate(x.shape) if at and n == 1] if axis in (None, []) else table.axes_of(axis, x.rank)
    if any(x.shape[at] != 1 for at in axes):
        raise ValueError(f"axis must be axes of length 1; {validation.received(axis=axis, shape=x.shape)}")
    return site.function("squeeze", x, [n for at, n in enumerate(x.shape) if at not in axes], False, axes=tuple(axes))


def _reshape(site: Site, args: list, kwargs: dict) -> Value:
    x = _array(argument(site, args, kwargs, 0, "tensor", "x"))
    shape = _constant(argument(site, args, kwargs, 1, "shape", "newshape"), "shape")
    batch, *rest = shape
    if batch not in (-1, None) or any(type(n) is not int or n < 1 for n in rest) or None in x.shape[1:]:
        raise ValueError(
            f"shape must be -1 for the batch, then static; {validation.received(shape=shape, data=x.shape)}"
        )
    return table.to_shape(site, x, rest)


def _transpose(site: Site, args: list, kwargs: dict) -> Value:
    x = _array(argument(site, args, kwargs, 0, "a", "x"))
    order = _constant(argument(site, args, kwargs, 1, "perm", "axes", "pattern"), "axes")
    return table.to_order(site, x, order)


def _pad(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(_array(argument(site, args, kwargs, 0, "tensor", "x")))
    pads = _constant(argument(site, args, kwargs, 1, "paddings", "pad_width"), "paddings")
    mode = str(argument(site, args, kwargs, 2, "mode", default="constant")).lower()
    value = argument(site, args, kwargs, 3, "constant_values", default=0) or 0
    if mode != "constant" or len(pads) != x.rank:
        raise ValueError(
            f"mode must be constant, with pads for each axis; {validation.received(mode=mode, paddings=pads)}"
        )
    pads = [(validation.integer("pads", low, 0), validation.integer("pads", high, 0)) for low, high in pads]
    if any(pads[0]):
        raise ValueError(f"the batch must not be padded; {validation.received(paddings=pads)}")
    shape = [n if n is None else n + low + high for n, (low, high) in zip(x.shape, pads)]
    return site.function("pad", x, shape, pads=x.ordered(pads), value=float(value))


def _concatenate(site: Site, args: list, kwargs: dict) -> Value:
    values = [_array(value) for value in argument(site, args, kwargs, 0, "values", "xs")]
    return table.concatenated(site, values, argument(site, args, kwargs, 1, "axis", default=-1))


def _stack(site: Site, args: list, kwargs: dict) -> Value:
    values = [site.keras(_array(value)) for value in argument(site, args, kwargs, 0, "values", "x")]
    (axis,) = _after_batch(argument(site, args, kwargs, 1, "axis", default=0), values[0].rank + 1)
    shape = list(values[0].shape)
    shape.insert(axis, len(values))
    return site.function("stack", values, shape, False, axis=axis)


MOST_PARTS = 10_000


def _split(site: Site, args: list, kwargs: dict) -> List[Value]:
    x = site.builder.padded(_array(argument(site, args, kwargs, 0, "value", "x")))
    parts = _constant(argument(site, args, kwargs, 1, "num_or_size_splits", "indices_or_sections"), "splits")
    (axis,) = table.axes_of(argument(site, args, kwargs, 2, "axis", default=0), x.rank)
    length = x.shape[axis]
    if length is None or not axis:
        raise ValueError(f"axis must have a static length, and not be the batch; {validation.received(axis=axis)}")
    if isinstance(parts, int):
        validation.integer("splits", parts, 1, MOST_PARTS)
        validation.divisible("length", length, "parts", parts)
        ends = [length // parts * (number + 1) for number in range(parts)]
    elif "num_or_size_splits" in kwargs:
        ends = list(np.cumsum(parts).tolist())
    else:
        ends = [*parts, length]
    outputs, start = [], 0
    for end in ends:
        shape = [end - start if at == axis else n for at, n in enumerate(x.shape)]
        outputs.append(site.function("slice_axis", x, shape, axis=x.axis(axis), begin=start, end=end))
        start = end
    return outputs


def _clip(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(_array(argument(site, args, kwargs, 0, "t", "x")))
    low = argument(site, args, kwargs, 1, "clip_value_min", "x_min", "min_value")
    high = argument(site, args, kwargs, 2, "clip_value_max", "x_max", "max_value")
    return site.function("clip", x, low=float(low), high=float(high))


def _cast(site: Site, args: list, kwargs: dict) -> Value:
    x = _array(argument(site, args, kwargs, 0, "x"))
    dtype = str(argument(site, args, kwargs, 1, "dtype", default="float32"))
    if "float" not in dtype:
        raise ValueError(f"dtype must be a float; {validation.received(dtype=dtype)}")
    return x


def _identity(site: Site, args: list, kwargs: dict) -> Value:
    return _array(argument(site, args, kwargs, 0, "input", "x", "value"))


def _unit(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(_array(argument(site, args, kwargs, 0, "x")))
    axes = table.axes_of(argument(site, args, kwargs, 1, "axis", default=-1), x.rank)
    epsilon = float(argument(site, args, kwargs, 2, "epsilon", default=1e-12))
    if argument(site, [], kwargs, 0, "order", default=2) != 2:
        raise ValueError("order must be 2")
    return site.function("unit", x, axes=tuple(x.axis(axis) for axis in axes), epsilon=epsilon)


def _resize(site: Site, args: list, kwargs: dict) -> Value:
    x = _array(argument(site, args, kwargs, 0, "images"))
    size = _constant(argument(site, args, kwargs, 1, "size"), "size")
    method = str(argument(site, args, kwargs, 2, "method", "interpolation", default="bilinear")).lower()
    for name in ("antialias", "preserve_aspect_ratio", "crop_to_aspect_ratio", "pad_to_aspect_ratio"):
        if argument(site, [], kwargs, 0, name, default=False):
            raise ValueError(f"{name} must be False")
    return table.resized(site, x, size, method)


def _matmul(site: Site, args: list, kwargs: dict) -> Value:
    x = site.keras(_array(argument(site, args, kwargs, 0, "a", "x1")))
    y = site.keras(_array(argument(site, args, kwargs, 1, "b", "x2")))
    flip_x, flip_y = (
        bool(argument(site, [], kwargs, 0, name, default=False)) for name in ("transpose_a", "transpose_b")
    )
    if x.rank != 3 or y.rank != 3:
        raise ValueError(f"tensors must be matrices of a batch; {validation.received(shapes=[x.shape, y.shape])}")
    shape = (x.shape[0], x.shape[2 if flip_x else 1], y.shape[1 if flip_y else 2])
    return site.function("matmul", [x, y], shape, False, transpose_a=flip_x, transpose_b=flip_y)


def _tile(site: Site, args: list, kwargs: dict) -> Value:
    x = site.builder.padded(_array(argument(site, args, kwargs, 0, "input", "x")))
    counts = _constant(argument(site, args, kwargs, 1, "multiples", "repeats"), "multiples")
    if len(counts) != x.rank or counts[0] != 1:
        raise ValueError(
            f"multiples must have one entry for each axis, 1 for the batch; {validation.received(multiples=counts)}"
        )
    counts = [validation.integer("multiples", count, 1) for count in counts]
    shape = [n if n is None else n * count for n, count in zip(x.shape, counts)]
    return site.function("tile", x, shape, counts=tuple(x.ordered(counts)))


def _depth_to_space(function: str) -> Callable:
    def row(site: Site, args: list, kwargs: dict) -> Value:
        x = _array(argument(site, args, kwargs, 0, "input"))
        block = validation.integer("block_size", argument(site, args, kwargs, 1, "block_size"), 1)
        if argument(site, [], kwargs, 0, "data_format", default="NHWC") != "NHWC" or x.rank != 4:
            raise ValueError("data must be pictures with channels last")
        x = site.builder.arranged(site.builder.padded(x), True)
        n, height, width, channels = x.shape
        for length, part in (
            ((channels, block**2),) if function == "depth_to_space" else ((height, block), (width, block))
        ):
            if length is not None and length % part:
                raise ValueError(
                    "lengths must be multiples of block_size, or channels of its square; "
                    f"{validation.received(block_size=block, **{'data.shape': x.shape})}"
                )
        if function == "depth_to_space":
            lengths = [length and length * block for length in (height, width)]
            shape = (n, *lengths, channels and channels // block**2)
        else:
            lengths = [length and length // block for length in (height, width)]
            shape = (n, *lengths, channels and channels * block**2)
        return site.function(function, x, shape, block=block)

    return row


OPERATORS: Dict[str, Callable] = {
    **{name: _binary(name) for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")},
    **{
        name: _unary(name)
        for name in ("negative", "absolute", "square", "sqrt", "rsqrt", "log", "exp", "reciprocal", "stop_gradient")
    },
    **{name: _activation(name) for name in ACTIVATIONS},
    **{name: _reduction(name) for name in ("mean", "sum", "max", "min", "prod")},
    "cast": _cast,
    "clip": _clip,
    "concatenate": _concatenate,
    "depth_to_space": _depth_to_space("depth_to_space"),
    "expand_dims": _expand_dims,
    "get_item": _get_item,
    "identity": _identity,
    "matmul": _matmul,
    "pad": _pad,
    "reshape": _reshape,
    "resize": _resize,
    "space_to_depth": _depth_to_space("space_to_depth"),
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "tile": _tile,
    "transpose": _transpose,
    "unit": _unit,
}
