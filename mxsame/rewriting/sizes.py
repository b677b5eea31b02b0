"""Specializes a graph of dynamic shape to the size of its inputs: everything computed from shapes becomes a constant.

Layers of dynamic shape compute from the shape of their data how it is padded, gathered, shifted or flipped before an
operator, and what is selected of the operator's outputs. With a static size, all of this only moves elements, and is
evaluated: where it and the operator together are one operator with windows, this becomes its `Node.windows`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame._mxnet import mx
from mxsame.padding import output_size, same_pads
from mxsame.plan import Window
from mxsame.rewriting.constants import is_pure
from mxsame.rewriting.graph import Graph, Node, Output, Shape, entries, operator
from mxsame.rewriting.windows import has_windows, is_channels_first, windows_of

SHAPE_OPERATORS = ("shape_array", "size_array", "_contrib_arange_like")  # they read the shape of their data only
LENGTHENED = "_identity_with_attr_like_rhs"  # copies data whose length MXNet infers from a second input
MOVES = {
    *("slice", "slice_axis", "reverse", "transpose", "Reshape", "expand_dims", "squeeze", "take", "Concat", "Pad"),
    *("repeat", "broadcast_axis", "zeros_like", "identity"),
}
Origins = List[np.ndarray]  # for each axis, the positions in the source of what was moved; -1 for zeros


def specialize(graph: Graph, dtypes: Mapping[str, Any], batches: Mapping[str, int]) -> None:
    """Specialize a graph to the sizes of its inputs, which have these dtypes and batch axes, for any batch size."""
    parameters = set(graph.values)
    if any(node.op in (*SHAPE_OPERATORS, LENGTHENED, "slice_like") for node in graph.nodes()):
        _fold_shapes(graph, dtypes, batches)
    _merge_moves(graph, graph.values.keys() - parameters)


def _fold_shapes(graph: Graph, dtypes: Mapping[str, Any], batches: Mapping[str, int]) -> None:
    """Replace outputs that are computed from shapes by constants, unless they depend on the batch size."""
    longer = {name: list(shape) for name, shape in graph.inputs.items()}
    for name, axis in batches.items():
        longer[name][axis] += 1
    inputs = graph.inputs, {name: tuple(shape) for name, shape in longer.items()}
    shapes, others = map(graph.output_shapes, inputs)
    for node in graph.nodes():
        _write_static(node, shapes, others)
    graph.replace({Output(node): node.inputs[0] for node in graph.nodes() if node.op == LENGTHENED})
    from_shapes: Set[Node] = set()
    parameters = {node for node in graph.nodes() if node.op == "null" and node.name in graph.values}
    for node in graph.nodes():
        sources = {source for source, _ in node.inputs}
        is_from_shapes = is_pure(node) and sources & from_shapes and sources <= from_shapes | parameters
        if node.op in (*SHAPE_OPERATORS, "zeros_like", "ones_like") or is_from_shapes:
            from_shapes.add(node)
    used = [source for node in graph.nodes() if node not in from_shapes for source in node.inputs]
    needed = [each for each in dict.fromkeys(used + graph.outputs) if each.node in from_shapes]
    needed = [each for each in needed if shapes.get(each) == others.get(each)]
    if needed:
        data = ({name: np.zeros(shape, dtypes[name]) for name, shape in each.items()} for each in inputs)
        values = zip(needed, *(graph.run(needed, each) for each in data))  # with two batch sizes
        same = {each: value for each, value, other in values if value.shape == other.shape and (value == other).all()}
        graph.replace({each: graph.constant(f"{each.node.name}_value", value) for each, value in same.items()})


def _write_static(node: Node, shapes: Mapping[Output, Shape], others: Mapping[Output, Shape]) -> None:
    """Write an operator that takes lengths from the shape of its second input with these lengths."""
    if node.op == "slice_like":
        axes = own = [axis % len(shapes[node.inputs[0]]) for axis in entries(node.attr("axes"))]
    elif node.op == "broadcast_like":
        own, axes = entries(node.attr("lhs_axes")), entries(node.attr("rhs_axes"))
    else:
        return
    shape, other = (each.get(node.inputs[1], ()) for each in (shapes, others))
    if axes and shape and [shape[axis] for axis in axes] == [other[axis] for axis in axes]:
        lengths = {axis % len(shapes[node.inputs[0]]): shape[like] for axis, like in zip(own, axes)}
        if node.op == "slice_like":
            ends = tuple(map(lengths.get, range(max(lengths) + 1)))
            node.become("slice", node.inputs[0], begin=(None,) * len(ends), end=ends)
        else:
            node.become("broadcast_axis", node.inputs[0], axis=tuple(lengths), size=tuple(lengths.values()))


# -- operators that only move elements


def _is_move(graph: Graph, node: Node, constants: Collection[str]) -> bool:
    """Returns whether an operator only moves elements of its data, or adds zeros. A convolution does if its kernels,
    which were computed from shapes, are one-hot."""
    if not node.is_defined_by_attributes:
        return False
    if node.op == "Convolution":
        kernels = graph.value(node.inputs[1])
        if kernels is None or node.inputs[1].node.name not in constants or kernels.shape[1] != 1:
            return False
        kernels = kernels.reshape(len(kernels), -1)
        is_one_hot = ((kernels == 1).sum(axis=1) == 1).all() and ((kernels != 0).sum(axis=1) == 1).all()
        return is_one_hot and node.attr("num_group") == len(kernels)
    if node.op == "Pad" and node.attr("mode") == "constant" and float(node.attr("constant_value", 0)):
        return False
    if node.op == "Reshape" and (node.attr("reverse") or not node.attr("shape") or node.attr("shape")[0] > 0):
        return False  # MXNet does not check such a shape for another batch
    return node.kind in MOVES


def _sources(graph: Graph, data: Output, constants: Collection[str]) -> Iterator[Tuple[Output, List[Node]]]:
    """Yields the outputs of which moves make an array, the nearest first, and the moves after each."""
    moves: List[Node] = []
    order, frontier = {node: n for n, node in enumerate(graph.nodes([data]))}, {data}
    while frontier:
        if len(frontier) == 1:
            yield next(iter(frontier)), moves[::-1]
        latest = max(frontier, key=lambda output: order[output.node])
        if not _is_move(graph, latest.node, constants):
            return
        moves.append(latest.node)
        frontier = {each for each in {*frontier, *latest.node.inputs} - {latest} if graph.value(each) is None}


def _origins(graph: Graph, out: Output, source: Output, moves: Sequence[Node], shape: Shape) -> Optional[Origins]:
    """Returns where moves take each element of an output from in a source of this shape; None unless they move along
    each axis alone, and along the first two not at all. The moves are run on the numbers of the elements, with a batch
    that is larger by 1."""
    shape = (shape[0] + 1, *shape[1:])
    if not moves:
        return list(map(np.arange, shape))
    copies = {source: Output(Node("null", "source"))}
    for node in moves:
        copies[Output(node)] = Output(replace(node, inputs=[copies.get(each, each) for each in node.inputs]))
    used = {node.name for node in Graph([copies[out]], {}, {}).nodes()}
    values: Dict[str, np.ndarray] = {name: graph.values[name].astype("float64") for name in used & graph.values.keys()}
    values["source"] = np.arange(1.0, math.prod(shape) + 1).reshape(shape)
    try:
        (numbers,) = Graph([copies[out]], values, {}).run([copies[out]])
    except mx.base.MXNetError:
        return None
    numbers = numbers.astype(int) - 1
    if numbers.ndim != len(shape):
        return None
    positions = np.where(numbers < 0, -1, np.unravel_index(numbers.clip(0), shape))
    axes = range(len(shape))
    origins = [each.max(tuple({*axes} - {axis})) for axis, each in enumerate(positions)]
    grid = np.ix_(*origins)
    is_zero = np.any(np.broadcast_arrays(*(each < 0 for each in grid)), axis=0)
    expected = np.where(is_zero, -1, np.ravel_multi_index([each.clip(0) for each in np.broadcast_arrays(*grid)], shape))
    unmoved = all(np.array_equal(origins[axis], np.arange(shape[axis])) for axis in (0, 1))
    return origins if unmoved and np.array_equal(numbers, expected) else None


# -- one operator with windows


def _merge_moves(graph: Graph, constants: Collection[str]) -> None:
    """Merge the moves before and after each operator into its windows. Of several ways, prefer one with SAME's pads."""
    shapes = graph.output_shapes()
    for node in graph.nodes():
        if not has_windows(node) or not is_channels_first(node) or node.op == "Deconvolution":
            continue
        if node.windows is not None or node.inputs[0] not in shapes or _is_move(graph, node, constants):
            continue
        ways = list(_ways(graph, node, constants, shapes))
        if not ways:
            continue
        source, end, before, after, fits = max(ways, key=lambda way: all(fit.is_same for fit in way[-1]))
        if any(fit.is_flipped for fit in fits):
            node.inputs[1:2] = [_unflipped(each)[0] for each in node.inputs[1:2]]
        node.inputs[0] = _resized(graph, f"{node.name}_data", source, before)
        node.windows = tuple(fit.window for fit in fits)
        result = _resized(graph, f"{node.name}_outputs", Output(node), after)
        if node.attr("pool_type") == "avg":
            node.attrs["count_include_pad"] = str(any(fit.counts_pads for fit in fits))
            end = _undivided(graph, node, end)
        shapes[result] = shapes[end]
        graph.replace({end: result} if end != Output(node) else {})


class Fit(NamedTuple):
    """The window of an operator and its moves along an axis, whether the operator runs on flipped data, and whether an
    average counts padding; None if either is right."""

    window: Any
    is_flipped: bool
    counts_pads: Optional[bool]

    @property
    def is_same(self) -> bool:
        """Whether the pads are SAME's."""
        geometry = (self.window.size, self.window.kernel_size, self.window.stride, self.window.dilation)
        outputs = output_size(*geometry)
        return self.window.padding == same_pads(*geometry) and self.window.outputs(self.window.size) == outputs


def _ways(graph: Graph, node: Node, constants: Collection[str], shapes: Mapping[Output, Shape]) -> Iterator[Any]:
    """Yields the ways to merge an operator with moves: the output before the moves, the one after them, where both take
    their elements from, and a `Fit` for each axis. The way with the most moves comes first."""
    shape, ends = shapes[node.inputs[0]], []
    for end, moves in _ends(graph, node, constants):
        after = _origins(graph, end, Output(node), moves, shapes[Output(node)])
        ends += [(end, after)] if after and min(map(min, after)) >= 0 else []
    for source, moves in [*_sources(graph, node.inputs[0], constants)][::-1]:
        if len(shapes.get(source, ())) != len(shape):
            continue
        before = _origins(graph, node.inputs[0], source, moves, shapes[source]) or []
        for end, after in ends[::-1] if before else ():
            if end.node is node and all(move.attr("mode") == "constant" for move in moves):
                continue  # there is nothing but zeros, for `merge_all_pads`
            axes = zip(windows_of(node, shape[2:]), shapes[source][2:], before[2:], after[2:])
            fits = [_fit(node, *axis) for axis in axes]
            flipped = {axis for axis, fit in enumerate(fits, 2) if fit and fit.is_flipped}
            counts = {fit.counts_pads for fit in fits if fit} - {None}
            if (
                all(fits)
                and (node.attr("pool_type") != "avg" or len(counts) < 2)
                and all(_can_unflip(node, weight, flipped) for weight in node.inputs[1:2])
            ):
                yield source, end, before, after, fits


def _ends(graph: Graph, node: Node, constants: Collection[str]) -> Iterator[Tuple[Output, List[Node]]]:
    """Yields an operator's output, then those of the moves after it, as long as nothing else reads these."""
    moves: List[Node] = []
    users, end = graph.users(), node
    while True:
        yield Output(end), list(moves)
        user = users[end][0].node if len(users[end]) == 1 else None
        if user is None or not _is_move(graph, user, constants):
            return
        if user.inputs[0] != Output(end) or any(graph.value(each) is None for each in user.inputs[1:]):
            return
        end = user
        moves.append(user)


def _fit(node: Node, window: Any, size: int, data: np.ndarray, outputs: np.ndarray) -> Optional[Fit]:
    """Returns the window that reads from a source of this size what an operator reads of moved data, for the outputs
    that are selected; None if there is none."""
    pool = node.attr("pool_type", "max") if node.op == "Pooling" else ""
    counts_pads = node.attr("count_include_pad", True)
    repeats = pool == "max" or (pool == "avg" and max(node.attr("kernel")) <= 2 and not counts_pads)
    (low, high), length = window.padding, len(data)
    stride = window.stride * (abs(int(outputs[1] - outputs[0])) if len(outputs) > 1 else 1)
    offsets = np.arange(window.kernel_size) * window.dilation
    for is_flipped in (False, True):
        reads = outputs[:, None] * window.stride + (offsets[::-1] if is_flipped else offsets) - low
        is_data = (reads >= 0) & (reads < length)
        found = np.where(is_data, data[reads.clip(0, length - 1)], -1)
        counted = found < 0 if counts_pads else is_data & (found < 0)
        if counts_pads:
            counted &= reads < length + high
        starts = np.arange(len(outputs))[:, None] * stride + offsets
        for start in np.unique((starts - found)[found >= 0]):
            expected = starts - start
            expected = np.where((expected >= 0) & (expected < size), expected, -1)
            is_right = found == expected
            if repeats:  # an element that is in the window anyway, in place of padding
                is_right |= (expected < 0) & (found[:, :, None] == expected[:, None]).any(2) & is_data
            if pool == "max":
                is_right &= ~is_data | (found >= 0)
            after = max(int(starts[-1, -1]) + 1 - int(start) - size, 0)
            counts = {*counted[expected < 0]}
            if start >= 0 and is_right.all() and (pool != "avg" or len(counts) < 2):
                fitted = Window(size, window.kernel_size, stride, window.dilation, (int(start), after))
                fit = Fit(fitted, is_flipped, bool(counts.pop()) if counts else None)
                return fit if fitted.outputs(size) == len(outputs) else None
    return None


def _undivided(graph: Graph, node: Node, end: Output) -> Output:
    """Makes an average that is divided by the part of each window that is data one that does not count padding. Returns
    the output of the division; the average's, if it is not divided so."""
    (user, *others), parts = graph.users()[end.node], np.ones(())
    if others or user.node is None or user.node.kind != "divide" or user.node.inputs[0] != end:
        return end
    for window in node.windows or ():
        starts = np.arange(window.outputs(window.size)) * window.stride - window.padding[0]
        counted = np.minimum(starts + window.kernel_size, window.size) - np.maximum(starts, 0)
        parts = parts[..., None] * (counted / window.kernel_size)
    divisor = graph.value(user.node.inputs[1])
    if divisor is None or divisor.shape != (1, 1, *parts.shape) or not np.allclose(divisor[0, 0], parts):
        return end
    node.attrs["count_include_pad"] = "False"
    return Output(user.node)


def _can_unflip(node: Node, weight: Output, flipped: Set[int]) -> bool:
    """Returns whether a weight is flipped along these axes, and along no others with more than one element."""
    longer = {axis for axis, length in enumerate(node.attr("kernel"), 2) if length > 1}
    return flipped == _unflipped(weight)[1] & longer


def _unflipped(weight: Output) -> Tuple[Output, Set[int]]:
    """Returns a weight before it is flipped, and the axes along which it is."""
    copied = _without_copies(weight)
    if copied.node.op != "reverse":
        return weight, set()
    return _without_copies(copied.node.inputs[0]), {*entries(copied.node.attr("axis"))}


def _without_copies(output: Output) -> Output:
    """Returns the output that an identity, or several in a row, copies."""
    while output.node.kind == "identity":
        output = output.node.inputs[0]
    return output


def _resized(graph: Graph, name: str, source: Output, origins: Origins) -> Output:
    """Returns an output of the shape that moves give a source. It is for MXNet to infer shapes, and is not written."""
    shape = graph.shapes_of([source])[source] or ()
    for axis, positions in enumerate(origins[2:], 2):
        if len(positions) != shape[axis]:
            indices = graph.constant(f"{name}_positions", np.zeros(len(positions), "float32"))
            source = operator("take", f"{name}_{axis}", source, indices, axis=axis)
            source.node.is_merged = True
    return source
