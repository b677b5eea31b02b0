"""Operators that change shapes and axes, take parts of arrays, or reduce them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

from mxsame.export_keras.emitters.elementwise import affine, clip
from mxsame.export_keras.model_builder import KerasTensor, num_elements
from mxsame.export_keras.writer import KerasWriter, writes
from mxsame.exporting.reading import IMPLIED_BY_SHAPES, axes_of, axis_of, indices_in, top_k_of
from mxsame.rewriting.graph import Node, Output, entries, keeps_batch, slice_ranges
from mxsame.validation import check, one_of

Pairs = Sequence[Tuple[int, int]]


@writes("Reshape", "Flatten", "reshape_like", "expand_dims", "squeeze", ignored=IMPLIED_BY_SHAPES)
def _reshape(w: KerasWriter, node: Node, x: KerasTensor, *_: Any) -> KerasTensor:
    """Reshapes to the shape that MXNet infers, whatever the codes in `shape`."""
    return w.reshape_as_mxnet(x, w.shape(node.inputs[0]), w.shape(Output(node)), for_dense=_goes_to_dense(w, node))


def _goes_to_dense(w: KerasWriter, node: Node) -> bool:
    """Returns whether only dense layers use a flattened array; the rows of their weights can be reordered to match."""
    between = ("Activation", "Dropout", "clip", "relu", "sigmoid", "tanh")
    users = [user for user, _ in w.users[node] if user is None or user.op != "FullyConnected"]
    return all(user is not None and user.kind in between and _goes_to_dense(w, user) for user in users)


@writes("transpose")
def _transpose(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    """Records another order of axes; adds no layer."""
    axes = [axis % x.rank for axis in entries(node.attr("axes")) or range(x.rank - 1, -1, -1)]
    return x._replace(order=tuple(axes.index(axis) for axis in x.order), source="")


# -- the axes between the batch and the last

# layer -> its argument, the entry that leaves an axis as it is, and a length after another one
ALONG_AXES: Dict[str, Tuple[str, Any, Callable]] = {
    "ZeroPadding": ("padding", (0, 0), lambda length, pair: length + sum(pair)),
    "Cropping": ("cropping", (0, 0), lambda length, pair: length - sum(pair)),
    "UpSampling": ("size", 1, lambda length, factor: length * factor),
    "AveragePooling": ("strides", 1, lambda length, stride: -(-length // stride)),  # averages of single elements
}


def along_axes(w: KerasWriter, x: KerasTensor, name: str, given: Sequence[Any], suffix: str = "") -> KerasTensor:
    """Calls a layer of `ALONG_AXES` with an entry for each axis of MXNet's. Keras's layers do not change the last axis,
    and accept at most three axes before it; so unchanged axes are merged, and one of them, or a new one of length 1,
    becomes the last, if need be."""
    (argument, neutral, length), here = ALONG_AXES[name], x.permuted(given)
    if all(amount == neutral for amount in here):
        return x
    check(here[0] == neutral and x.shape[0] is None, "the batch must not change")
    shape = tuple(n if n is None else length(n, amount) for n, amount in zip(x.shape, here))
    if name == "ZeroPadding" and x.rank == 3:  # ZeroPadding1D takes data_format from the user's Keras configuration
        flat = w.reshape(x, (*x.shape[:2], 1, x.shape[2]), range(4), suffix="wide")
        return w.reshape(
            along_axes(w, flat, name, [*here[:2], neutral, here[2]], suffix), shape, x.order, suffix="narrow"
        )
    if here[-1] == neutral and 3 <= x.rank <= 5:
        middle = [list(amount) if isinstance(amount, tuple) else amount for amount in here[1:-1]]
        config = {argument: middle if len(middle) > 1 else middle[0]}
        config.update({"pool_size": [1] * len(middle)} if name == "AveragePooling" else {})
        return w.add_layer(f"{name}{len(middle)}D", config, x, shape=shape, suffix=suffix)
    merged: List[list] = []
    for n, amount in zip(x.shape[1:], here[1:]):
        if merged and amount == neutral == merged[-1][1]:
            merged[-1][0] *= n
        else:
            merged.append([n, amount])
    merged += [[1, neutral]] if merged[-1][1] != neutral else []
    if len(merged) > 4:
        free = [axis for axis in x.order[1:] if given[axis] == neutral]
        check(len(free) > 0, f"{name} must be along three axes at most")
        x = w.permute(x, x.order_with_last(free[0]))
        return along_axes(w, x, name, given, suffix)
    flat = w.reshape(x, (None, *(n for n, _ in merged)), range(len(merged) + 1), suffix="merged")
    out = along_axes(w, flat, name, [neutral, *(amount for _, amount in merged)], suffix)
    return w.reshape(out, shape, x.order, suffix="split")


@writes("slice")
def _slice(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    check(keeps_batch(node) or x.order[0] != 0, "the batch must not change")
    lengths = [n.traced for n in w.shape(node.inputs[0])]
    parts = slice_ranges(node, lengths) or []
    x = along_axes(w, x, "Cropping", [(min(part), n - 1 - max(part)) for part, n in zip(parts, lengths)])
    for axis, part in enumerate(parts):
        x = w.add_operator("Flip", x, axis=x.axis(axis)) if part.step < 0 else x
    return along_axes(w, x, "AveragePooling", [abs(part.step) for part in parts], suffix="step")


@writes("Pad")
def _pad(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    widths, value = entries(node.attr("pad_width")), node.attr("constant_value")
    mode, pairs = one_of("mode", node.attr("mode"), ("constant", "reflect", "edge")), [*zip(widths[::2], widths[1::2])]
    if mode == "edge":
        return _repeat_edges(w, x, [n.traced for n in w.shape(node.inputs[0])], pairs)
    if mode == "constant" and value == 0:
        return along_axes(w, x, "ZeroPadding", pairs)
    return pad_by_operator(w, x, mode, pairs, value)


def _repeat_edges(w: KerasWriter, x: KerasTensor, lengths: Sequence[int], pairs: Pairs) -> KerasTensor:
    """Pads with copies of the first and the last elements, axis by axis."""
    for axis, (pair, length) in enumerate(zip(pairs, lengths)):
        parts = [x]
        for end, count in enumerate(pair):
            crop, factors = [(0, 0)] * x.rank, [1] * x.rank
            crop[axis], factors[axis] = ((0, length - 1), (length - 1, 0))[end], count
            if count:
                edge = along_axes(w, x, "Cropping", crop, suffix="edge")
                parts.insert(end * len(parts), along_axes(w, edge, "UpSampling", factors, suffix="repeated"))
        if len(parts) > 1:
            here = x.axis(axis)
            shape = (*x.shape[:here], length + sum(pair), *x.shape[here + 1 :])
            x = w.add_layer("Concatenate", {"axis": here}, *parts, shape=shape, suffix="padded")
    return x


def pad_by_operator(w: KerasWriter, x: KerasTensor, mode: str, pairs: Pairs, value: float) -> KerasTensor:
    """Pads by the operator of `keras.ops`, which pads any axis."""
    here = x.permuted(pairs)
    shape = tuple(n if n is None else n + sum(pair) for n, pair in zip(x.shape, here))
    call = {} if mode == "reflect" else {"constant_values": value}
    return w.add_operator("Pad", x, shape=shape, call=call, pad_width=[list(pair) for pair in here], mode=mode)


@writes("Concat")
def _concatenate(w: KerasWriter, node: Node, *xs: Any) -> KerasTensor:
    if len(xs) == 1:
        return xs[0]
    first, *rest = w.to_one_order(*xs)
    shape = w.lengths(Output(node), first.order)
    return w.add_layer("Concatenate", {"axis": first.axis(node.attr("dim"))}, first, *rest, shape=shape)


@writes("broadcast_axis", "broadcast_to", "broadcast_like", "repeat", ignored=f"{IMPLIED_BY_SHAPES}|repeats")
def _repeat(w: KerasWriter, node: Node, x: KerasTensor, *_: Any) -> KerasTensor:
    """Repeats elements up to the shape that MXNet infers."""
    before, after = w.shape(node.inputs[0]), w.shape(Output(node))
    check(len(before) == len(after), "axis must be given: Keras does not flatten the data", axis=None)
    factors = [1 if n == m else m.traced // n.traced for n, m in zip(before, after)]
    return along_axes(w, x, "UpSampling", factors)


# -- elements and rows by their indices, and their order


@writes("take")
def _take(w: KerasWriter, node: Node, table: Any, index: Any) -> KerasTensor:
    """Takes rows of a parameter by index (MXNet clips indices), or elements along an axis by constant indices."""
    axis = axis_of(w, node)
    if isinstance(table, KerasTensor):
        rule = "indices must be constants, along another axis than the batch"
        check(isinstance(index, Output) and table.axis(axis), rule)
        (length,) = w.static(node.inputs[0], "its axis", [axis])
        rows = indices_in(node, w.computed(index), length)
        if rows.ndim != 1:
            table = w.permute(table, range(table.rank))
        here = table.axis(axis)
        before, after = table.shape[:here], table.shape[here + 1 :]
        out = w.add_operator("Take", table, rows.ravel().tolist(), shape=(*before, rows.size, *after), axis=here)
        whole = (*before, *rows.shape, *after)
        return out if rows.ndim == 1 else w.reshape(out, whole, range(len(whole)), suffix="indices")
    check(axis == 0, "rows must be taken from a parameter along its first axis", axis=axis)
    weight = w.weight(table)
    check(weight.array.ndim == 2, "rows must be taken from a matrix", shape=weight.array.shape)
    count, length = weight.array.shape
    x = clip(w, index, 0, int(count) - 1, suffix="rows")
    config, shape, order = {"input_dim": count, "output_dim": length}, (*x.shape, length), (*x.order, x.rank)
    return w.add_layer("Embedding", config, x, shape=shape, order=order, weights={"embeddings": weight})


@writes("one_hot", ignored="dtype")
def _one_hot(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    depth = node.attr("depth")
    hot = w.add_operator("nn.OneHot", x, shape=(*x.shape, depth), num_classes=depth)
    values = (node.attr(name) for name in ("on_value", "off_value"))
    return w.add_operator("Where", hot._replace(order=(*x.order, x.rank)), *values)


@writes("topk", "sort", "argsort", ignored="dtype")
def _topk(w: KerasWriter, node: Node, x: KerasTensor) -> Any:
    """Writes a TopK of Keras. Among equal elements, Keras returns the first, MXNet any."""
    axis, count, largest, returns = top_k_of(w, node)
    x = affine(w, w.permute(x, x.order_with_last(axis)), 1.0 if largest else -1.0)
    values = w.add_operator("math.TopK", x, shape=(*x.shape[:-1], count), k=count)
    positions = w.output(values, 1, values.shape, values.order)
    if returns == "mask":
        lengths, order = (*positions.shape, x.shape[-1]), (*positions.order, x.rank)
        hot = w.add_operator("nn.OneHot", positions, shape=lengths, num_classes=x.shape[-1])._replace(order=order)
        return w.add_operator("Sum", hot, shape=x.shape, axis=[x.rank - 1], keepdims=False)._replace(order=x.order)
    positions = w.add_operator("core.Cast", positions, dtype="float32")
    values = affine(w, values, 1.0 if largest else -1.0, suffix="value")
    return {"value": values, "both": [values, positions], "indices": positions}[returns]


# -- reductions


@writes("mean", "sum", "max", "min")
def _reduction(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    axes = axes_of(w, node)
    return reduce(w, x, node.kind, axes, node.attr("keepdims")) if axes else x


@writes("prod", "argmax", "argmin")
def _by_operator(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    """Writes a reduction that only `keras.ops` has. Among equal elements, both return the first position, but in Keras
    0 is more than -0."""
    axes, keepdims = axes_of(w, node), node.attr("keepdims")
    check(x.order[0] not in axes, "the batch must not be reduced")
    kept = [axis for axis in x.order if keepdims or axis not in axes]
    order = tuple(sorted(kept).index(axis) for axis in kept)
    shape, here = w.lengths(Output(node), order), [x.axis(axis) for axis in axes]
    if node.kind == "prod":
        return w.add_operator("Prod", x, shape=shape, axis=here, keepdims=keepdims)._replace(order=order)
    x = w.add_operator("Where", w.add_operator("Equal", x, 0.0), 0.0, x)
    out = w.add_operator(node.kind.capitalize(), x, shape=shape, axis=here[0], keepdims=keepdims)._replace(order=order)
    return w.add_operator("core.Cast", out, dtype="float32")


@writes("_np_cumsum", ignored="dtype")
def _cumulative_sum(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    axis = x.axis(axis_of(w, node))
    check(axis > 0, "the batch must not be summed")
    return w.add_operator("Cumsum", x, axis=axis)


def reduce(w: KerasWriter, x: KerasTensor, kind: str, axes: Sequence[int], keepdims: bool) -> KerasTensor:
    """Reduces these of MXNet's axes. Keras's global pooling layers reduce the axes between the batch and the
    last, so the others are moved and merged."""
    check(x.order[0] not in axes, "the batch must not be reduced")
    kept, over = ([axis for axis in x.order if (axis in axes) is is_over] for is_over in (False, True))
    x = x if x.rank > 3 else x._replace(source="")  # the input stays as it is: elements of steps are no channels
    x = affine(w, w.permute(x, [kept[0], *over, *kept[1:]]), -1.0 if kind == "min" else 1.0, suffix="negative")
    count, lengths = num_elements(x.shape[1 : len(over) + 1]), tuple(x.shape[x.axis(axis)] for axis in kept)
    is_merged = len(over) > 3 or len(kept) != 2
    if is_merged:
        x = w.reshape(x, (None, count, num_elements(lengths)), (0, 1, 2), suffix="merged")
    wide = keepdims and not is_merged
    shape, order = (None, *(1,) * (x.rank - 2) * wide, x.shape[-1]), x.order if wide else (0, 1)
    name = "GlobalMaxPooling" if kind in ("max", "min") else "GlobalAveragePooling"
    x = w.add_layer(f"{name}{x.rank - 2}D", {"keepdims": wide}, x, shape=shape, order=order)
    x = affine(w, x, {"min": -1.0, "sum": float(count)}.get(kind, 1.0), suffix=kind)
    if wide:
        return x
    ones = list(axes) if keepdims else []
    rest = kept if keepdims else [sorted(kept).index(axis) for axis in kept]
    return w.reshape(x, (None, *lengths[1:], *(1,) * len(ones)), (*rest, *ones), suffix="kept")
