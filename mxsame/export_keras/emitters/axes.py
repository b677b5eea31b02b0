"""Emitters of operators that change shapes, permute axes, slice, pad, take elements by index, or reduce axes."""

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
    """Reshapes to the shape that MXNet infers."""
    return w.reshape_as_mxnet(x, w.shape(node.inputs[0]), w.shape(Output(node)), for_dense=_goes_to_dense(w, node))


def _goes_to_dense(w: KerasWriter, node: Node) -> bool:
    """Returns whether only dense layers use a flattened array, directly or after elementwise functions. Then the rows
    of their weights are reordered, instead of the array's elements."""
    elementwise = ("Activation", "Dropout", "clip", "relu", "sigmoid", "tanh")
    users = [user for user, _ in w.users[node] if user is None or user.op != "FullyConnected"]
    return all(user is not None and user.kind in elementwise and _goes_to_dense(w, user) for user in users)


@writes("transpose")
def _transpose(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    """Records the new order of axes. It adds no layer."""
    axes = [axis % x.rank for axis in entries(node.attr("axes")) or range(x.rank - 1, -1, -1)]
    return x._replace(order=tuple(axes.index(axis) for axis in x.order), source="")


# -- layers that change the axes between the batch and the last

# layer -> its argument, the value that leaves an axis unchanged, and a function of (length, value): the new length
ALONG_AXES: Dict[str, Tuple[str, Any, Callable]] = {
    "ZeroPadding": ("padding", (0, 0), lambda length, pair: length + sum(pair)),
    "Cropping": ("cropping", (0, 0), lambda length, pair: length - sum(pair)),
    "UpSampling": ("size", 1, lambda length, factor: length * factor),
    "AveragePooling": ("strides", 1, lambda length, stride: -(-length // stride)),  # pool_size 1: a strided slice
}


def along_axes(w: KerasWriter, x: KerasTensor, name: str, values: Sequence[Any], suffix: str = "") -> KerasTensor:
    """Calls a layer of `ALONG_AXES` with one value for each axis, in MXNet's order.

    Keras's layers cannot change the last axis, and accept at most three axes before it. Therefore adjacent unchanged
    axes are merged; if the last axis changes, an axis of length 1 is appended. If there are still too many axes, an
    unchanged axis is moved to the end.
    """
    (argument, neutral, new_length), permuted = ALONG_AXES[name], x.permuted(values)
    if all(value == neutral for value in permuted):
        return x
    check(permuted[0] == neutral and x.shape[0] is None, "the batch axis must not change")
    shape = tuple(n if n is None else new_length(n, value) for n, value in zip(x.shape, permuted))
    if name == "ZeroPadding" and x.rank == 3:  # ZeroPadding1D takes data_format from the user's Keras configuration
        wide = w.reshape(x, (*x.shape[:2], 1, x.shape[2]), range(4), suffix="wide")
        out = along_axes(w, wide, name, [*permuted[:2], neutral, permuted[2]], suffix)
        return w.reshape(out, shape, x.order, suffix="narrow")
    if permuted[-1] == neutral and 3 <= x.rank <= 5:
        middle = [list(value) if isinstance(value, tuple) else value for value in permuted[1:-1]]
        config = {argument: middle if len(middle) > 1 else middle[0]}
        config.update({"pool_size": [1] * len(middle)} if name == "AveragePooling" else {})
        return w.add_layer(f"{name}{len(middle)}D", config, x, shape=shape, suffix=suffix)
    merged: List[list] = []
    for n, value in zip(x.shape[1:], permuted[1:]):
        if merged and value == neutral == merged[-1][1]:
            merged[-1][0] *= n
        else:
            merged.append([n, value])
    merged += [[1, neutral]] if merged[-1][1] != neutral else []
    if len(merged) > 4:
        unchanged = [axis for axis in x.order[1:] if values[axis] == neutral]
        check(len(unchanged) > 0, f"{name} must change at most three axes")
        x = w.permute(x, x.order_with_last(unchanged[0]))
        return along_axes(w, x, name, values, suffix)
    flat = w.reshape(x, (None, *(n for n, _ in merged)), range(len(merged) + 1), suffix="merged")
    out = along_axes(w, flat, name, [neutral, *(value for _, value in merged)], suffix)
    return w.reshape(out, shape, x.order, suffix="split")


@writes("slice")
def _slice(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    check(keeps_batch(node) or x.order[0] != 0, "the batch must not change")
    lengths = [n.traced for n in w.shape(node.inputs[0])]
    ranges = slice_ranges(node, lengths) or []
    x = along_axes(w, x, "Cropping", [(min(each), n - 1 - max(each)) for each, n in zip(ranges, lengths)])
    for axis, each in enumerate(ranges):
        x = w.add_operator("Flip", x, axis=x.axis(axis)) if each.step < 0 else x
    return along_axes(w, x, "AveragePooling", [abs(each.step) for each in ranges], suffix="step")


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
        for is_end, count in enumerate(pair):
            crops, factors = [(0, 0)] * x.rank, [1] * x.rank
            crops[axis], factors[axis] = (length - 1, 0) if is_end else (0, length - 1), count
            if count:
                edge = along_axes(w, x, "Cropping", crops, suffix="edge")
                repeated = along_axes(w, edge, "UpSampling", factors, suffix="repeated")
                parts.insert(len(parts) if is_end else 0, repeated)
        if len(parts) > 1:
            position = x.axis(axis)
            shape = (*x.shape[:position], length + sum(pair), *x.shape[position + 1 :])
            x = w.add_layer("Concatenate", {"axis": position}, *parts, shape=shape, suffix="padded")
    return x


def pad_by_operator(w: KerasWriter, x: KerasTensor, mode: str, pairs: Pairs, value: float) -> KerasTensor:
    """Pads with `keras.ops.pad`, which pads any axis with any value."""
    pairs = x.permuted(pairs)
    shape = tuple(n if n is None else n + sum(pair) for n, pair in zip(x.shape, pairs))
    call = {} if mode == "reflect" else {"constant_values": value}
    return w.add_operator("Pad", x, shape=shape, call=call, pad_width=[list(pair) for pair in pairs], mode=mode)


@writes("Concat")
def _concatenate(w: KerasWriter, node: Node, *xs: Any) -> KerasTensor:
    if len(xs) == 1:
        return xs[0]
    first, *rest = w.to_one_order(*xs)
    shape = w.lengths(Output(node), first.order)
    return w.add_layer("Concatenate", {"axis": first.axis(node.attr("dim"))}, first, *rest, shape=shape)


@writes("broadcast_axis", "broadcast_to", "broadcast_like", "repeat", ignored=f"{IMPLIED_BY_SHAPES}|repeats")
def _repeat(w: KerasWriter, node: Node, x: KerasTensor, *_: Any) -> KerasTensor:
    """Repeats elements to fill the shape that MXNet infers."""
    before, after = w.shape(node.inputs[0]), w.shape(Output(node))
    check(len(before) == len(after), "axis must be given: Keras does not flatten the data", axis=None)
    factors = [1 if n == m else m.traced // n.traced for n, m in zip(before, after)]
    return along_axes(w, x, "UpSampling", factors)


# -- indexing and sorting


@writes("take")
def _take(w: KerasWriter, node: Node, table: Any, index: Any) -> KerasTensor:
    """Takes rows of a parameter by index (MXNet clips indices), or elements along an axis by constant indices."""
    axis = axis_of(w, node)
    if isinstance(table, KerasTensor):
        rule = "indices must be constants, along an axis other than the batch"
        check(isinstance(index, Output) and table.axis(axis), rule)
        (length,) = w.static(node.inputs[0], "its axis", [axis])
        indices = indices_in(node, w.computed(index), length)
        if indices.ndim != 1:
            table = w.permute(table, range(table.rank))
        position = table.axis(axis)
        before, after = table.shape[:position], table.shape[position + 1 :]
        shape = (*before, indices.size, *after)
        out = w.add_operator("Take", table, indices.ravel().tolist(), shape=shape, axis=position)
        shape = (*before, *indices.shape, *after)
        return out if indices.ndim == 1 else w.reshape(out, shape, range(len(shape)), suffix="indices")
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
    one_hot = w.add_operator("nn.OneHot", x, shape=(*x.shape, depth), num_classes=depth)
    values = (node.attr(name) for name in ("on_value", "off_value"))
    return w.add_operator("Where", one_hot._replace(order=(*x.order, x.rank)), *values)


@writes("topk", "sort", "argsort", ignored="dtype")
def _topk(w: KerasWriter, node: Node, x: KerasTensor) -> Any:
    """Returns the largest elements along an axis, their positions, both, or a mask of them. The smallest elements are
    the largest of the negated array. Of equal elements, Keras takes the first, MXNet any."""
    axis, count, largest, returns = top_k_of(w, node)
    sign = 1.0 if largest else -1.0
    x = affine(w, w.permute(x, x.order_with_last(axis)), sign)
    values = w.add_operator("math.TopK", x, shape=(*x.shape[:-1], count), k=count)
    positions = w.output(values, 1, values.shape, values.order)
    if returns == "mask":
        shape, order = (*positions.shape, x.shape[-1]), (*positions.order, x.rank)
        one_hot = w.add_operator("nn.OneHot", positions, shape=shape, num_classes=x.shape[-1])._replace(order=order)
        return w.add_operator("Sum", one_hot, shape=x.shape, axis=[x.rank - 1], keepdims=False)._replace(order=x.order)
    positions = w.add_operator("core.Cast", positions, dtype="float32")
    values = affine(w, values, sign, suffix="value")
    return {"value": values, "both": [values, positions], "indices": positions}[returns]


# -- reductions


@writes("mean", "sum", "max", "min")
def _reduction(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    axes = axes_of(w, node)
    return reduce(w, x, node.kind, axes, node.attr("keepdims")) if axes else x


@writes("prod", "argmax", "argmin")
def _reduction_by_operator(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    """Writes a reduction for which Keras has no layer, only a function in `keras.ops`."""
    axes, keepdims = axes_of(w, node), node.attr("keepdims")
    check(x.order[0] not in axes, "the batch must not be reduced")
    remaining = [axis for axis in x.order if keepdims or axis not in axes]
    order = tuple(sorted(remaining).index(axis) for axis in remaining)
    shape, positions = w.lengths(Output(node), order), [x.axis(axis) for axis in axes]
    name = node.kind.capitalize()
    if node.kind == "prod":
        return w.add_operator(name, x, shape=shape, axis=positions, keepdims=keepdims)._replace(order=order)
    # -0 becomes 0: for Keras 0 is greater, for MXNet they are equal, and the first position is returned
    x = w.add_operator("Where", w.add_operator("Equal", x, 0.0), 0.0, x)
    out = w.add_operator(name, x, shape=shape, axis=positions[0], keepdims=keepdims)._replace(order=order)
    return w.add_operator("core.Cast", out, dtype="float32")


@writes("_np_cumsum", ignored="dtype")
def _cumulative_sum(w: KerasWriter, node: Node, x: KerasTensor) -> KerasTensor:
    axis = x.axis(axis_of(w, node))
    check(axis > 0, "the batch must not be summed")
    return w.add_operator("Cumsum", x, axis=axis)


def reduce(w: KerasWriter, x: KerasTensor, kind: str, axes: Sequence[int], keepdims: bool) -> KerasTensor:
    """Reduces some of MXNet's axes with a global pooling layer. It reduces the axes between the batch and the last, so
    the reduced axes are moved there; axes are merged if there are too many."""
    check(x.order[0] not in axes, "the batch must not be reduced")
    reduced, remaining = [axis for axis in x.order if axis in axes], [axis for axis in x.order if axis not in axes]
    x = x if x.rank > 3 else x._replace(source="")  # a reduction is no reason for a channels-last sequence input
    x = w.permute(x, [remaining[0], *reduced, *remaining[1:]])
    x = affine(w, x, -1.0 if kind == "min" else 1.0, suffix="negative")
    count, lengths = num_elements(x.shape[1 : len(reduced) + 1]), tuple(x.shape[x.axis(axis)] for axis in remaining)
    is_merged = len(reduced) > 3 or len(remaining) != 2
    if is_merged:
        x = w.reshape(x, (None, count, num_elements(lengths)), (0, 1, 2), suffix="merged")
    layer_keeps_dims = keepdims and not is_merged
    ones = (1,) * (x.rank - 2) if layer_keeps_dims else ()
    shape, order = (None, *ones, x.shape[-1]), x.order if layer_keeps_dims else (0, 1)
    name = "GlobalMaxPooling" if kind in ("max", "min") else "GlobalAveragePooling"
    x = w.add_layer(f"{name}{x.rank - 2}D", {"keepdims": layer_keeps_dims}, x, shape=shape, order=order)
    x = affine(w, x, {"min": -1.0, "sum": float(count)}.get(kind, 1.0), suffix=kind)
    if layer_keeps_dims:
        return x
    if keepdims:
        return w.reshape(x, (None, *lengths[1:], *(1,) * len(axes)), (*remaining, *axes), suffix="kept")
    return w.reshape(x, (None, *lengths[1:]), [sorted(remaining).index(axis) for axis in remaining], suffix="kept")
