"""Converters of functions along axes: shapes, permutations, slices, reductions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from mxsame.keras_format import dtypes
from mxsame.keras_format.description import as_list, leaves
from mxsame.keras_format.dtypes import ANY_DTYPE, ARITHMETIC, CAST_IN_KERAS, SETS_DTYPE, STORED_AS_FLOAT32
from mxsame.port import blocks
from mxsame.port.call_context import CallContext
from mxsame.port.converters._shared import axes_after_batch, axes_of, permute
from mxsame.port.table import HANDLES_MASK, KERAS_ORDER, OPERATORS, layer, operator
from mxsame.port.tensors import DynamicLength, Operand, Tensor, refuse_lengths
from mxsame.validation import MAX_LENGTH, check, check_divisible, integer, pads_of_axis

# -- shapes and permutations


@layer("Flatten", order=KERAS_ORDER, dtypes=ANY_DTYPE)
def _flatten(call: CallContext, x: Tensor) -> Tensor:
    if call.is_channels_first and x.rank > 2:
        x = call.apply("transpose", x, axes=(0, *range(2, x.rank), 1))
    return call.apply(blocks.reshape, x, to=(0, -1))


@layer("Reshape", order=KERAS_ORDER, dtypes=ANY_DTYPE)
def _reshape_layer(call: CallContext, x: Tensor) -> Tensor:
    return _to_shape(call, x, call.config["target_shape"])


@operator("reshape", dtypes=ANY_DTYPE, order=KERAS_ORDER, aliases={"shape": "newshape"}, lengths=("newshape",))
def _reshape(call: CallContext, x: Tensor, newshape: Any) -> Tensor:
    """Reshapes to `newshape`, whose batch is -1 or a batch of `tf.shape`.

    With -1, all other lengths must be static. With a batch of `tf.shape`, one of them may be -1 or dynamic. If the
    number of elements after the batch changes, axes are merged into the batch, or split from it."""
    batch, *lengths = as_list(newshape)
    lengths = [-1 if isinstance(n, DynamicLength) and not n.is_batch else n for n in lengths]
    refuse_lengths("shape", lengths)
    is_tensor_batch = isinstance(batch, DynamicLength) and batch.is_batch
    rule, received = "shape must be -1 for the batch, then static", {"shape": newshape, "data": x.shape}
    check(is_tensor_batch or batch in (-1, None), rule, **received)
    is_static = None not in (x.batch_factor, *x.shape[1:])
    elements = math.prod(x.shape[1:]) * x.batch_factor if is_static else None  # for each entry of the inputs' batch
    factor = batch.tensor.batch_factor if is_tensor_batch else x.batch_factor
    keeps_elements = -1 not in lengths and elements == (factor or 0) * math.prod(lengths)
    if factor is not None and (factor == x.batch_factor if is_tensor_batch else keeps_elements):
        return _to_shape(call, x, lengths)
    if is_tensor_batch and factor and elements and lengths.count(-1) == 1:
        inferred = elements / factor / -math.prod(lengths)
        lengths = [int(inferred) if n == -1 and inferred == int(inferred) else n for n in lengths]
    check((factor or not is_tensor_batch) and min(lengths, default=1) > 0, rule, **received)
    out = call.apply(blocks.reshape, x, shape=(None, *lengths), to=(-1, *lengths))
    return out._replace(batch_factor=factor if is_tensor_batch else elements and elements / math.prod(lengths))


def _to_shape(call: CallContext, x: Tensor, target: Sequence[int]) -> Tensor:
    """Reshapes the axes after the batch, as Keras's layer does; a length of -1 is inferred."""
    target = [integer("target_shape", length, -1) for length in target]
    is_valid = target.count(-1) <= 1 and 0 not in target
    check(is_valid, "target_shape must have one -1 at most, and no 0", target_shape=target)
    shape = (x.shape[0], *(None if length == -1 else length for length in target))
    return call.apply(blocks.reshape, x, shape=shape if None in x.shape[1:] else None, to=(0, *target))


@operator("shape", dtypes=SETS_DTYPE)
def _shape(call: CallContext, x: Tensor, out_type: Any = None) -> tuple:
    """Returns the lengths of x as integers and `DynamicLength` objects, which need no step of the network."""
    return tuple(DynamicLength(x, axis) if n is None else n for axis, n in enumerate(x.shape))


@layer("Permute", dtypes=ANY_DTYPE)
def _permute(call: CallContext, x: Tensor) -> Tensor:
    return permute(call, x, [0, *call.config["dims"]])


operator("transpose", dtypes=ANY_DTYPE, aliases={"perm": "axes"})(permute)


@operator("swapaxes", masks=HANDLES_MASK, dtypes=ANY_DTYPE, aliases={"axis1": "source", "axis2": "destination"})
@operator("moveaxis", masks=HANDLES_MASK, dtypes=ANY_DTYPE)
def _move_axes(call: CallContext, x: Tensor, source: Any, destination: Any) -> Tensor:
    """Permutes the axes. If their order does not change, Keras returns the same tensor, with its mask."""
    # NumPy permutes an array of shape (0, 1, 2, ..): its new shape is the order of the axes
    order = getattr(np, call.converter.name)(np.empty(range(x.rank)), source, destination).shape
    return x if order == tuple(range(x.rank)) else permute(call, x, order)


@operator("expand_dims", dtypes=ANY_DTYPE, order=KERAS_ORDER)
def _expand_dims(call: CallContext, x: Tensor, axis: Any) -> Tensor:
    axes = as_list(axis)
    return call.apply(blocks.expand_dims, x, axes=tuple(axes_after_batch(axes, x.rank + len(axes))))


@operator("squeeze", dtypes=ANY_DTYPE, order=KERAS_ORDER, aliases={"squeeze_dims": "axis"})
def _squeeze(call: CallContext, x: Tensor, axis: Any = None) -> Tensor:
    """Removes axes of length 1. Without `axis` it removes all of them, except the batch: see `blocks.squeeze_all`."""
    if axis in (None, []):
        check(None not in x.shape[1:], "axis must be given where lengths are dynamic", shape=x.shape)
        check(not call.steps.has_batch_of_1, "axis must be given where an input declares a batch of 1", axis=axis)
        axes = tuple(index for index, n in enumerate(x.shape) if index and n == 1)
        return call.apply(blocks.squeeze_all, x, axis=axes)
    return call.apply("squeeze", x, axis=tuple(axes_of(axis, x.rank)))


# -- repeating and padding


@layer("RepeatVector", dtypes=ANY_DTYPE)
def _repeat_vector(call: CallContext, x: Tensor) -> Tensor:
    return call.apply("repeat", call.apply("expand_dims", x, axis=1), repeats=call.integer("n"), axis=1)


@operator("repeat", dtypes=ANY_DTYPE)
def _repeat(call: CallContext, x: Tensor, repeats: int, axis: int) -> Tensor:
    (axis,) = axes_after_batch(axis, x.rank)
    return call.apply("repeat", x, repeats=integer("repeats", repeats, 1), axis=x.axis(axis))


@operator("tile", dtypes=ANY_DTYPE, aliases={"multiples": "repeats"})
def _tile(call: CallContext, x: Tensor, repeats: Any) -> Tensor:
    """Repeats the tensor along each axis. In Keras 3, `repeats` may have entries for the last axes only."""
    repeats = as_list(repeats)
    repeats = [1] * (x.rank - len(repeats) if call.version == 3 else 0) + repeats
    is_valid = len(repeats) == x.rank and repeats[0] == 1
    check(is_valid, "multiples must have one entry for each axis, 1 for the batch", multiples=repeats)
    counts = [integer("multiples", count, 1) for count in repeats]
    return call.apply(blocks.tile, x, counts=tuple(x.ordered(counts)))


@operator("stack", dtypes=ANY_DTYPE, order=KERAS_ORDER, lengths=("xs",))
def _stack(call: CallContext, xs: Operand, axis: int = 0) -> Any:
    if not all(isinstance(x, Tensor) for x in xs):  # lengths of a shape
        check(not any(isinstance(x, Tensor) for x in xs), "lengths must be stacked with lengths only", xs=xs)
        return tuple(xs)
    (axis,) = axes_after_batch(axis, leaves(xs, Tensor)[0].rank + 1)
    return call.apply("stack", *xs, axis=axis)


@operator("pad", dtypes=STORED_AS_FLOAT32, aliases={"paddings": "pad_width"})
def _pad(call: CallContext, x: Tensor, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Tensor:
    pad_width = as_list(pad_width)
    if len(pad_width) == 1 and call.version == 3:  # one pair or one integer, for all axes
        pad_width *= x.rank
    modes, mode = ("constant", "reflect", "symmetric"), str(mode).lower()
    rule = f"mode must be one of {', '.join(modes)}, with pads for each axis"
    check(mode in modes and len(pad_width) == x.rank, rule, mode=mode, paddings=pad_width)
    pads = [pads_of_axis("pads", pair) for pair in pad_width]
    check(not any(pads[0]), "the batch must not be padded", paddings=pad_width)
    if mode == "constant":
        return call.apply(blocks.pad, x, pads=x.ordered(pads), value=float(constant_values or 0))
    skipped = int(mode == "reflect")  # "reflect" does not repeat the element at the end
    are_shorter = all(n is None or max(pair) <= n - skipped for n, pair in zip(x.shape, pads))
    check(are_shorter, "pads must be shorter than the data", paddings=pads, shape=x.shape)
    return call.apply(blocks.pad_reflect, x, pads=x.ordered(pads), skipped=skipped)


# -- slices


@operator("flip", dtypes=ANY_DTYPE)
def _flip(call: CallContext, x: Tensor, axis: Any = None) -> Tensor:
    return call.apply("reverse", x, axis=x.axes(axes_after_batch(axis, x.rank)))


@operator("take", dtypes=STORED_AS_FLOAT32)
def _take(call: CallContext, x: Tensor, indices: Any, axis: Any = None, batch_dims: int = 0) -> Tensor:
    """Takes elements by constant indices, of which negative ones count from the end. A scalar index removes the
    axis."""
    (axis,), array = axes_after_batch(axis, x.rank), np.asarray(indices)
    check(array.ndim <= 1 and array.dtype.kind == "i", "indices must be integers, of one axis at most", indices=indices)
    length = 0 if batch_dims else x.shape[axis] or 0  # 0 refuses all indices
    is_within = (np.abs(array + 0.5) < length).all()  # -length <= index < length
    check(is_within, "indices must be within a static length", indices=indices, length=length)
    if not array.ndim:
        return _entry(call, x, axis, int(array))
    return call.constant("take", x, {"indices": (array % length).astype("float32")}, axis=x.axis(axis))


@operator("roll", dtypes=ANY_DTYPE)
def _roll(call: CallContext, x: Tensor, shift: Any, axis: Any = None) -> Tensor:
    shifts, axes = as_list(shift), as_list(axis)
    check(len(shifts) == len(axes), "shift must have one entry for each axis", shift=shift, axis=axis)
    for entry, along in zip(shifts, axes):
        (along,) = axes_after_batch(along, x.rank)
        check(x.shape[along], "the axis must have a static length", shape=x.shape)
        count = integer("shift", entry, -MAX_LENGTH) % x.shape[along]
        x = call.apply(blocks.roll, x, axis=x.axis(along), shift=count) if count else x
    return x


MAX_PARTS = 10_000


@operator("split", dtypes=ANY_DTYPE)
def _split(call: CallContext, x: Tensor, num_or_size_splits: Any = None, axis: int = 0, indices_or_sections: Any = None,
           num: Optional[int] = None) -> List[Tensor]:  # fmt: skip
    """Splits an axis. An integer is the number of equal parts. A list contains the sizes of the parts (TensorFlow), or
    the positions between them (Keras)."""
    splits = indices_or_sections if num_or_size_splits is None else num_or_size_splits
    (axis,) = axes_of(axis, x.rank)
    length = x.shape[axis]
    check(length is not None and axis, "axis must have a static length, and not be the batch", axis=axis)
    if isinstance(splits, int):
        integer("splits", splits, 1, MAX_PARTS)
        check_divisible("length", length, "parts", splits)
        ends = [length // splits * (number + 1) for number in range(splits)]
    elif num_or_size_splits is not None:
        inferred = length - sum(size for size in splits if size != -1)
        ends = np.cumsum([inferred if size == -1 else size for size in splits]).tolist()
    else:
        ends = [end % length if end < 0 else end for end in [*splits, length]]
    starts = [0, *ends[:-1]]
    cover_axis = ends[-1] == length and all(0 <= start < end for start, end in zip(starts, ends))
    check(cover_axis, "splits must be parts of all elements", splits=splits, length=length)
    return [call.apply("slice_axis", x, axis=x.axis(axis), begin=start, end=end) for start, end in zip(starts, ends)]


@operator("unstack", dtypes=ANY_DTYPE)
def _unstack(call: CallContext, x: Tensor, num: Optional[int] = None, axis: int = 0) -> List[Tensor]:
    (axis,) = axes_after_batch(axis, x.rank)
    length = integer("the length", x.shape[axis] or 0, 1, MAX_PARTS)
    return [_entry(call, x, axis, position) for position in range(length)]


def _entry(call: CallContext, x: Tensor, axis: int, position: int) -> Tensor:
    """Takes the elements at one position of an axis, and removes the axis."""
    return _get_item(call, x, [*[WHOLE] * axis, position])


WHOLE = slice(None)


@operator("get_item", dtypes=ANY_DTYPE, aliases={"slice_spec": "key"}, lengths=("x", "key"))
def _get_item(call: CallContext, x: Operand, key: Any) -> Any:
    """Indexes a tensor, or a shape. Slices keep their axis, integers remove it, and None inserts one. The key must
    select the whole batch."""
    # files store a slice as a dict
    key = [slice(*map(entry.get, ("start", "stop", "step"))) if isinstance(entry, dict) and "start" in entry else entry
           for entry in as_list(key)]  # fmt: skip
    if not isinstance(x, Tensor):  # a shape
        (entry,) = key
        refuse_lengths("key", _bounds(entry))
        return x[entry]
    entries = _full_key(key, x.rank)
    indices = [entry for entry in entries if entry is not None]
    keeps_batch = len(indices) == x.rank and indices[0] == WHOLE and entries[0] is not None
    check(keeps_batch, "indices must select the whole batch", key=key)
    x, indices = _cropped_like(call, x, indices)
    refuse_lengths("key", [bound for entry in indices for bound in _bounds(entry)])
    slices = [_as_slice(entry, n) for entry, n in zip(indices, x.shape)]
    lengths = [_sliced_length(entry, n) for entry, n in zip(slices, x.shape)]
    check(0 not in lengths, "indices must select at least one element", key=key, shape=x.shape)
    if any(not isinstance(entry, slice) for entry in entries):
        x = call.to_keras_order(x)
    if any(entry != WHOLE for entry in slices):
        check(x.rank <= 5, "MXNet slices tensors of at most 5 axes", rank=x.rank)
        begin, end, step = map(x.ordered, zip(*map(_bounds, slices)))
        x = call.apply(blocks.take_slice, x, shape=lengths, begin=begin, end=end, step=[each or 1 for each in step])
    removed = tuple(axis for axis, entry in enumerate(indices) if isinstance(entry, int))
    x = call.apply("squeeze", x, axis=removed) if removed else x
    inserted = tuple(axis for axis, entry in enumerate(e for e in entries if not isinstance(e, int)) if entry is None)
    return call.apply(blocks.expand_dims, x, axes=inserted) if inserted else x


@operator("slice", dtypes=ANY_DTYPE, aliases={"start_indices": "begin", "shape": "size"})
def _slice_operator(call: CallContext, x: Tensor, begin: Sequence[int], size: Sequence[int]) -> Tensor:
    """Takes `size` elements from `begin` along each axis; a size of -1 takes all elements from there."""
    check(len(begin) == len(size) == x.rank, "begin and size must have one entry for each axis", begin=begin, size=size)
    starts, counts = [integer("begin", start, 0) for start in begin], [integer("size", count, -1) for count in size]
    ends = [None if count == -1 else start + count for start, count in zip(starts, counts)]
    are_within = all(end is None or n is None or end <= n for end, n in zip(ends, x.shape))
    check(are_within, "begin and size must be within the tensor", begin=begin, size=size, shape=x.shape)
    return _get_item(call, x, [slice(start or None, end) for start, end in zip(starts, ends)])


@operator("strided_slice", dtypes=ANY_DTYPE)
def _strided_slice(call: CallContext, x: Tensor, begin: Sequence[int], end: Sequence[int],
                   strides: Optional[Sequence[int]] = None, begin_mask: int = 0, end_mask: int = 0,
                   ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0) -> Tensor:  # fmt: skip
    """Indexes as `tf.strided_slice` does: its masks have one bit for each entry."""
    key: List[Any] = []
    for bit, (start, stop, step) in enumerate(zip(begin, end, strides or [1] * len(begin))):
        if ellipsis_mask >> bit & 1:
            key.append("...")
        elif new_axis_mask >> bit & 1:
            key.append(None)
        elif shrink_axis_mask >> bit & 1:
            key.append(start)
        else:
            first = None if begin_mask >> bit & 1 or (start == 0 and step > 0) else start
            key.append(slice(first, None if end_mask >> bit & 1 else stop, None if step == 1 else step))
    return _get_item(call, x, key)


def _cropped_like(call: CallContext, x: Tensor, indices: List[Any]) -> Tuple[Tensor, List[Any]]:
    """Crops axes to the length of the same axis of another tensor, as `x[:, : tf.shape(y)[1]]` does. Returns the tensor
    and the indices, with a whole slice for each cropped axis."""
    for axis, entry in enumerate(indices):
        length = entry.stop if isinstance(entry, slice) else None
        if isinstance(length, DynamicLength) and length.tensor is not None:
            is_crop = length.axis == axis and entry.start in (None, 0) and entry.step in (None, 1)
            check(is_crop, "a dynamic length must end a slice of the same axis, from its start", key=entry)
            x, like = call.to_one_order([x, length.tensor])
            shape = (*x.shape[:axis], None, *x.shape[axis + 1 :])
            x = call.apply(blocks.crop_like, x, like, shape=shape, axis=x.axis(axis))
            indices = [*indices[:axis], WHOLE, *indices[axis + 1 :]]
    return x, indices


def _full_key(key: Sequence[Any], rank: int) -> list:
    """Returns the key with whole slices in place of the ellipsis: an integer or a slice for each axis, and None for
    each new axis."""
    # Keras 2 writes {} or a string for an ellipsis
    key = ["..." if entry == "..." or isinstance(entry, dict) else entry for entry in key]
    key = key if "..." in key else [*key, "..."]
    position, missing = key.index("..."), rank - sum(entry is not None for entry in key) + 1
    return [*key[:position], *[WHOLE] * missing, *key[position + 1 :]]


def _bounds(entry: Any) -> Tuple[Any, ...]:
    """Returns the start, stop and step of a slice; an integer alone."""
    return (entry.start, entry.stop, entry.step) if isinstance(entry, slice) else (entry,)


def _as_slice(entry: Any, length: Optional[int]) -> slice:
    """Returns an integer or a slice as a slice. MXNet refuses a start before the first element: if the length is
    static, the bounds are clipped to it."""
    if isinstance(entry, int):
        entry = slice(entry, (entry + 1) or None)
    if length is None or entry == WHOLE or (entry.step or 1) < 0:
        return entry
    start, stop, step = entry.indices(length)
    return slice(start, stop, step)


def _sliced_length(entry: slice, length: Optional[int]) -> Optional[int]:
    """Returns the number of elements that a slice takes from an axis of this length; None if it is dynamic."""
    if length is not None:
        return len(range(*entry.indices(length)))
    return 1 if isinstance(entry.start, int) and (entry.stop or 0) == entry.start + 1 else None


# -- reductions

# Keras's name -> a function, or the name of MXNet's operator if it differs
REDUCTIONS: Dict[str, Any] = {**blocks.REDUCTIONS, "any": "max", "all": "min"}


@operator("norm")
def _norm(call: CallContext, x: Tensor, ord: Any = None, axis: Any = None, keepdims: Optional[bool] = None) -> Tensor:
    is_euclidean = ord in (None, "euclidean") or (ord == 2 and len(as_list(axis)) == 1)
    check(is_euclidean, "ord must be that of the Euclidean norm", ord=ord, axis=axis)
    return _reduction(call, x, axis, bool(keepdims))


@operator("mean", aliases={"keep_dims": "keepdims"}, dtypes=CAST_IN_KERAS[3])
@operator("var")
@operator("sum", aliases={"keep_dims": "keepdims"}, dtypes=ARITHMETIC)
@operator("max", "min", aliases={"keep_dims": "keepdims"}, dtypes=ANY_DTYPE)
@operator("any", "all", aliases={"keep_dims": "keepdims"}, dtypes=SETS_DTYPE)
@operator("prod", "std", "logsumexp", aliases={"keep_dims": "keepdims"})
def _reduction(call: CallContext, x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    axes = axes_after_batch(list(range(x.rank)) if axis is None else axis, x.rank)
    if x.transposed and not keepdims and axes != list(range(1, x.rank - 1)):
        x = call.to_keras_order(x)
    function = REDUCTIONS.get(call.converter.name, call.converter.name)
    x = call.cast(x, "bool") if call.converter.name in ("any", "all") else x
    out = call.apply(function, x, transposed=x.transposed and keepdims, axis=x.axes(axes), keepdims=bool(keepdims))
    return out._replace(dtype=x.dtype)


@operator("moments")
def _moments(call: CallContext, x: Tensor, axes: Any, keepdims: bool = False) -> List[Tensor]:
    return [_reduction(replace(call, converter=OPERATORS[name]), x, axes, keepdims) for name in ("mean", "var")]


@operator("argmax", "argmin", dtypes=SETS_DTYPE)
def _argmax(call: CallContext, x: Tensor, axis: Any = None, keepdims: bool = False,
              output_type: Any = None) -> Tensor:  # fmt: skip
    (axis,) = axes_after_batch(axis, x.rank)
    x = x if keepdims else call.to_keras_order(x)
    name, along = call.converter.name, {"transposed": x.transposed, "axis": x.axis(axis), "keepdims": bool(keepdims)}
    if x.dtype in dtypes.FLOATS:
        out = call.apply(blocks.argmax_or_argmin, x, kind=name, signed_zeros=call.version == 3, **along)
    else:
        out = call.apply(name, x, **along)
    out = out._replace(dtype=dtypes.STORED[x.dtype])  # MXNet's positions have the dtype of the data
    return call.cast(out, dtypes.standardize_dtype(output_type or ("int64" if call.version == 2 else "int32")))


@operator("top_k", order=KERAS_ORDER, dtypes=SETS_DTYPE)
def _top_k(call: CallContext, x: Tensor, k: int = 1, sorted: bool = True) -> List[Tensor]:
    """Returns the largest elements along the last axis, and their positions. Of equal elements, the first is taken."""
    check(sorted, "sorted must be True", sorted=sorted)
    check(x.shape[-1] is not None, "the last axis must have a static length", shape=x.shape)
    count = integer("k", k, 1, x.shape[-1])
    values, positions = (call.apply(blocks.top_k, x, ret_typ=each, count=count) for each in ("value", "indices"))
    return [values._replace(dtype=x.dtype), call.cast(positions._replace(dtype="float32"), "int32")]


@operator("cumsum")
def _cumsum(call: CallContext, x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    (axis,) = axes_after_batch(axis, x.rank)
    return call.apply(blocks.cumsum, x, axis=x.axis(axis), exclusive=bool(exclusive), backwards=bool(reverse))
