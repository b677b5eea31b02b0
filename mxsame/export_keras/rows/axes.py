"""Operators that change shapes and axes, take parts of arrays, or reduce them."""

from __future__ import annotations

import math
from typing import Any, List, Sequence, Tuple

from mxsame import validation
from mxsame.export_keras.rows.elements import affine, goes_to_dense
from mxsame.export_keras.writer import Value, Writer, writes
from mxsame.exporting.walk import SHOWN, axes_of, axis_of
from mxsame.rewriting.graph import Node, Output, entries, taken

Pairs = Sequence[Tuple[int, int]]


@writes("Reshape", "Flatten", "reshape_like", "expand_dims", "squeeze", unread=SHOWN)
def _reshape(w: Writer, node: Node, x: Value, *_: Any) -> Value:
    """To the shape that MXNet infers, whatever its special codes are."""
    return w.reshaped(x, w.shape(node.inputs[0]), w.shape(Output(node)), lazy=goes_to_dense(w, node))


@writes("transpose", "SwapAxis")
def _transpose(w: Writer, node: Node, x: Value) -> Value:
    """Another order of axes, and no layer."""
    axes = list(node.attr("axes") or range(x.rank - 1, -1, -1))
    if node.kind == "SwapAxis":
        first, second = int(node.attr("dim1")) % x.rank, int(node.attr("dim2")) % x.rank
        axes = [{first: second, second: first}.get(axis, axis) for axis in range(x.rank)]
    axes = [axis % x.rank for axis in axes]
    return x._replace(order=tuple(axes.index(axis) for axis in x.order))


def framed(w: Writer, x: Value, name: str, pairs: Pairs, part: str = "") -> Value:
    """`name` is ZeroPadding or Cropping, by a (start, end) for each of MXNet's axes. The last axis here is that of the
    channels, which Keras leaves as it is, so it gets one more axis if it is not left so."""
    here = x.along(pairs)
    if not any(map(any, pairs)):
        return x
    if any(here[0]):
        raise ValueError("the batch must stay as it is")
    sign = 1 if name == "ZeroPadding" else -1
    shape = tuple(n if n is None else n + sign * sum(pair) for n, pair in zip(x.shape, here))
    if any(here[-1]) or x.rank < 3:
        longer = w.in_shape(x, (*x.shape, 1), (*x.order, x.rank), part="channels")
        out = framed(w, longer, name, [*pairs, (0, 0)], part)
        return w.in_shape(out, shape, x.order, part="joined")
    middle = [list(pair) for pair in here[1:-1]]
    if len(middle) > 3:
        raise ValueError(f"{name} must be along three axes at most")
    argument = "padding" if sign == 1 else "cropping"
    return w.layer(
        f"{name}{len(middle)}D", {argument: middle if len(middle) > 1 else middle[0]}, x, shape=shape, part=part
    )


@writes("slice", "slice_axis", "slice_like")
def _slice(w: Writer, node: Node, x: Value, *_: Any) -> Value:
    lengths = [n.traced for n in w.shape(node.inputs[0])]
    if node.kind == "slice_like":
        target, axes = w.shape(node.inputs[1]), axes_of(node, x.rank, "axes")
        parts = [range(target[axis].traced) if axis in axes else range(n) for axis, n in enumerate(lengths)]
    else:
        parts = taken(node, lengths) or []
    steps = [part.step for part in parts]
    if any(step != 1 for step in steps):
        raise ValueError(f"step must be 1; {validation.received(step=steps)}")
    return framed(w, x, "Cropping", [(part.start, n - part.stop) for part, n in zip(parts, lengths)])


@writes("SliceChannel")
def _split(w: Writer, node: Node, x: Value) -> List[Value]:
    count, axis = int(node.attr("num_outputs")), axis_of(w, node)
    shape = w.shape(node.inputs[0])
    share = shape[axis].traced // count
    parts = []
    for number in range(count):
        pairs = [(0, 0)] * x.rank
        pairs[axis] = (number * share, (count - 1 - number) * share)
        part = framed(w, x, "Cropping", pairs)
        if node.attr("squeeze_axis"):
            whole = (*shape[:axis], shape[axis]._make([1, 1]), *shape[axis + 1 :])
            part = w.reshaped(part, whole, (*shape[:axis], *shape[axis + 1 :]))
        parts.append(part)
    return parts


@writes("Pad")
def _pad(w: Writer, node: Node, x: Value) -> Value:
    widths, mode = entries(node.attr("pad_width")), node.attr("mode")
    value = float(node.attr("constant_value"))
    pairs = list(zip(widths[::2], widths[1::2]))
    if mode == "constant" and value == 0:
        return framed(w, x, "ZeroPadding", pairs)
    return padded(w, x, validation.mode("mode", mode, ("constant", "reflect")), pairs, value)


def padded(w: Writer, x: Value, mode: str, pairs: Pairs, value: float) -> Value:
    """By the operator of Keras, whose pads are those of any axis."""
    here = x.along(pairs)
    shape = tuple(n if n is None else n + sum(pair) for n, pair in zip(x.shape, here))
    call = {} if mode == "reflect" else {"constant_values": value}
    return w.operator("Pad", x, shape=shape, call=call, pad_width=[list(pair) for pair in here], mode=mode)


@writes("Concat", "stack")
def _concatenate(w: Writer, node: Node, *xs: Any) -> Value:
    if node.kind == "stack":
        axis = int(node.attr("axis", 0)) % (xs[0].rank + 1)
        wider = []
        for x, source in zip(xs, node.inputs):
            shape = w.shape(source)
            wider.append(w.reshaped(x, shape, (*shape[:axis], shape[0]._make([1, 1]), *shape[axis:])))
        xs = tuple(wider)
    else:
        axis = int(node.attr("dim")) % xs[0].rank
    if len(xs) == 1:
        return xs[0]
    xs = tuple(w.alike(*xs))
    shape = w.value(xs[0].tensor, Output(node), xs[0].order).shape
    return w.layer("Concatenate", {"axis": xs[0].axis(axis)}, *xs, shape=shape)


# ---- more of the same ------------------------------------------------------------------------------------------------


def repeated(w: Writer, x: Value, axis: int, count: int) -> Value:
    """Every element along one of MXNet's axes `count` times: as an axis of a picture that is enlarged."""
    at = x.axis(axis)
    if count == 1:
        return x
    if at == 0:
        raise ValueError("the batch must stay as it is")
    shape = (*x.shape[:at], (x.shape[at] or 1) * count, *x.shape[at + 1 :])
    if x.rank in (3, 4, 5) and 0 < at < x.rank - 1:
        factors = [count if axis == at else 1 for axis in range(1, x.rank - 1)]
        return enlarged(w, x, factors, shape)
    before, after = (math.prod(n or 1 for n in part) for part in (x.shape[1:at], x.shape[at + 1 :]))
    flat = w.in_shape(x, (None, before, x.shape[at], after), (0, 1, 2, 3))
    out = enlarged(w, flat, [1, count], (None, before, shape[at], after))
    return w.in_shape(out, shape, x.order, part="joined")


def enlarged(w: Writer, x: Value, factors: Sequence[int], shape: Sequence[Any]) -> Value:
    """Elements repeated by factors along the middle axes."""
    size = list(factors) if len(factors) > 1 else factors[0]
    return w.layer(f"UpSampling{len(factors)}D", {"size": size}, x, shape=tuple(shape))


@writes("broadcast_axis", "broadcast_to", "broadcast_like", "repeat", unread=f"{SHOWN}|repeats")
def _repeat(w: Writer, node: Node, x: Value, *_: Any) -> Value:
    """To the shape that MXNet infers."""
    for axis, (before, after) in enumerate(zip(w.shape(node.inputs[0]), w.shape(Output(node)))):
        if before != after:
            x = repeated(w, x, axis, after.traced // before.traced)
    return x


# ---- reductions ------------------------------------------------------------------------------------------------------


@writes("mean", "sum", "max", "min")
def _reduction(w: Writer, node: Node, x: Value) -> Value:
    axes = axes_of(node, x.rank)
    if node.attr("exclude"):
        axes = [axis for axis in range(x.rank) if axis not in axes]
    if 0 in x.along([axis in axes for axis in range(x.rank)])[:1]:
        axes = sorted(axes)
    return reduced(w, x, node.kind, axes, node.attr("keepdims")) if axes else x


def reduced(w: Writer, x: Value, kind: str, axes: Sequence[int], keepdims: bool) -> Value:
    """Over these of MXNet's axes. Keras has the mean and the largest element of the axes between the batch and the
    last: the others are moved and merged so that they are those."""
    if x.order[0] in axes:
        raise ValueError("the batch must not be reduced")
    kept = [axis for axis in x.order if axis not in axes]
    last = w.arranged(x, [kept[0], *(axis for axis in x.order if axis in axes), *kept[1:]])
    count = math.prod(x.shape[x.axis(axis)] or 1 for axis in axes)
    lengths = [last.shape[last.axis(axis)] for axis in kept]
    if kind == "min":
        last = affine(w, last, -1.0, part="negative")
    name = "GlobalMaxPooling" if kind in ("max", "min") else "GlobalAveragePooling"
    if len(axes) > 3 or len(kept) != 2:
        merged = (None, count, math.prod(n or 1 for n in lengths))
        last = w.in_shape(last, merged, (0, 1, 2), part="merged")
    rank, wide = last.rank - 2, keepdims and last.rank == x.rank and len(kept) == 2
    shape = (None, *(1,) * rank * wide, last.shape[-1])
    order = (last.order[0], *last.order[1:-1], last.order[-1]) if wide else (0, 1)
    out = w.layer(f"{name}{rank}D", {"keepdims": wide}, last, shape=shape, order=order)
    if kind in ("min", "sum"):
        out = affine(w, out, -1.0 if kind == "min" else float(count), part=kind)
    if wide:
        return out
    ones = list(axes) if keepdims else []
    rest = kept if keepdims else [sorted(kept).index(axis) for axis in kept]
    return w.in_shape(out, (None, *lengths[1:], *(1,) * len(ones)), (*rest, *ones), part="kept")
