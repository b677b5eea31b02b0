"""A file's outputs compared with those of its net, at several shapes."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.exporting.prepare import MOVES, ExportedNet
from mxsame.exporting.shapes import Shape, invalid_reshape
from mxsame.graphs.freezing import freeze
from mxsame.progress import reporting
from mxsame.rewriting.graph import Graph, Node
from mxsame.scope import Target
from mxsame.tensors.difference import difference, largest

# By how much another runtime may differ from MXNet, relative to an output's largest element. An output that is
# shifted by an element differs by a hundred times more.
TOLERANCE = {"float32": 1e-4, "float64": 1e-7, "float16": 2e-2}
ROUNDING = 10  # how many times the difference of MXNet's float32 from its float64 is allowed
LARGEST_ROUNDING = 1e-2  # relative to an output's largest element; with more a comparison shows nothing

SIGMOID_ERROR = 2.0**-23  # twice the error of other runtimes' sigmoids in float32, which is much of a saturated output

# kinds that pass indices on
PASS_INDICES = ("identity", "Cast", "clip", "floor", "round", "trunc", "broadcast_axis", "repeat", "tile", *MOVES)
INDICES: Dict[str, Tuple[int, Callable[..., Tuple[int, int]]]] = {  # operator -> the input that has them, their range
    "Embedding": (0, lambda node, data: (0, node.attr("input_dim"))),
    # one index out of range at each end, which gives a row of zeros
    "one_hot": (0, lambda node, data: (-1, node.attr("depth") + 1)),
    "take": (1, lambda node, data: (0, data[node.attr("axis")])),
    "pick": (1, lambda node, data: (0, data[node.attr("axis", -1)])),
    "gather_nd": (1, lambda node, data: (0, min(data))),
    **{name: (1, lambda node, data: (1, data[node.attr("axis")] + 1)) for name in ("SequenceMask", "SequenceLast")},
    "SequenceReverse": (1, lambda node, data: (1, data[0] + 1)),
}

REFUSED = (mx.base.MXNetError, validation.InvalidValue)  # errors of a net that does not accept a shape

Arrays = List[np.ndarray]
Run = Callable[[List[Arrays]], Tuple[str, Iterable[Arrays]]]


class Sampled(NamedTuple):
    """What a net and its file are run on: the shapes of the inputs, which may be dynamic; an array for each input, or
    None for random numbers; and by how much outputs may differ, by default what follows from the dtype."""

    shapes: Mapping[str, Shape]
    data: Sequence[Optional[np.ndarray]]
    tolerance: Optional[float] = None


class Expected(NamedTuple):
    """An output of the net, and by how much others may always differ from it."""

    array: np.ndarray
    floor: float


def compare(exported: ExportedNet, sampled: Sampled, run: Run, advice: str = "") -> str:
    """Raises a `ValueError`, with this advice, if an output of the file differs from the net's.

    `run` returns the name of a runtime, and the file's outputs that it computes for each list of inputs. Returns the
    name."""
    shapes, data, tolerance = sampled
    follows_type = tolerance is None and str(exported.dtype) == "float32"
    least = TOLERANCE[str(exported.dtype)] if tolerance is None else tolerance
    samples, sample_shapes = [], _sample_shapes(shapes)
    for number, sizes in enumerate(reporting("running the net with MXNet", sample_shapes)):
        sample = exported._replace(inputs=exported.inputs._replace(shapes=sizes))
        with contextlib.suppress(*REFUSED if number > 0 else ()):  # the first shape is the net's own
            graph = _graph_of(sample)
            ranges, random = index_ranges(graph), np.random.default_rng(0)
            arrays = {
                name: _data(random, shape, array, exported.dtypes[name], ranges.get(name))
                for (name, shape), array in zip(sizes.items(), data)
            }
            samples.append((sample, arrays, _outputs(graph, sample, arrays, follows_type)))
    runtime, all_outputs = run([list(arrays.values()) for _, arrays, _ in samples])
    for (sample, arrays, expected), got in zip(reporting(f"comparing with {runtime}", samples), all_outputs):
        reason = _first_difference(got, expected, itertools.repeat(least))
        if reason is not None and follows_type:
            sample = sample._replace(dtype=np.dtype("float64"))
            with contextlib.suppress(*REFUSED):
                exact = _outputs(_graph_of(sample), sample, arrays, follows_type)
                reason = _first_difference(got, exact, map(_rounding, expected, exact))
        rule = f"the outputs of the file must equal those of the net, but {runtime} computes a different {reason}"
        given = {} if tolerance is None else {"tolerance": tolerance}
        received = validation.received(input_shapes=sample.inputs.shapes, **given)
        validation.check(reason is None, f"{rule}; {received}{advice}")
    return runtime


def _sample_shapes(shapes: Mapping[str, Shape]) -> list[dict[str, tuple]]:
    """Returns the shapes that the net was traced for, these plus 1 in dynamic lengths, and the probe shapes."""
    variants = (lambda n: n.traced, lambda n: n.traced + (not n.is_static), lambda n: n.probe)
    distinct = dict.fromkeys(tuple(tuple(map(variant, shape)) for shape in shapes.values()) for variant in variants)
    return [dict(zip(shapes, each)) for each in distinct]


def index_ranges(graph: Graph) -> Dict[str, Tuple[int, int]]:
    """Returns the range (first, last + 1) of each input that holds indices or sequence lengths."""
    shapes = graph.output_shapes()
    ranges: Dict[str, Tuple[int, int]] = {}
    for node in (node for node in graph.nodes() if node.op in INDICES):
        position, range_of = INDICES[node.op]
        if position >= len(node.inputs):  # a SequenceMask may have no lengths
            continue
        source, data = node.inputs[position], shapes.get(node.inputs[0])
        while source.node.kind in PASS_INDICES or _counts_from_end(graph, source.node):
            source = source.node.inputs[0]
        if source.node.name in graph.inputs and data is not None:
            low, high = range_of(node, data)
            before = ranges.get(source.node.name, (low, high))
            ranges[source.node.name] = max(low, before[0]), min(high, before[1])
    return ranges


def _counts_from_end(graph: Graph, node: Node) -> bool:
    """Returns whether an operator adds to indices what is computed from them: the length, if they are negative."""
    return node.op == "elemwise_add" and node.inputs[0].node in graph.nodes([node.inputs[1]])


def _data(
    random: Any, shape: Sequence[int], given: Optional[np.ndarray], dtype: Any, indices: Optional[Tuple[int, int]]
) -> np.ndarray:
    """Returns the given array, repeated to fill the shape; else random indices of the range; else random numbers
    between -1 and 1, integers from 1 to 9, since a division of integers by 0 ends the process."""
    if given is not None:
        return np.resize(given, shape).astype(dtype)
    if indices is None and np.dtype(dtype).kind == "f":
        return np.asarray(random.uniform(-1, 1, shape)).astype(dtype)
    low, high = indices or (1, 10)
    return np.asarray(random.integers(low, max(high, low + 1), shape)).astype(dtype)


def _graph_of(exported: ExportedNet) -> Graph:
    """Returns the net's graph, in float32 instead of float16, since MXNet has no float16 convolution on the CPU."""
    dtype = np.promote_types(exported.dtype, np.float32)
    dtypes = {name: dtype if np.dtype(each).kind == "f" else each for name, each in exported.dtypes.items()}
    graph, *_ = freeze(exported.net, exported.inputs, dtypes, Target("inference", "cpu"))
    if invalid_reshape(graph.shapes()) is not None:
        raise mx.base.MXNetError("a reshape must keep the number of elements")
    graph.context = mx.cpu()
    graph.values = {name: value.astype(dtype) for name, value in graph.values.items()}
    return graph


def _outputs(graph: Graph, exported: ExportedNet, arrays: Mapping[str, np.ndarray], has_floors: bool) -> List[Expected]:
    """Returns the outputs of the net's graph."""
    dtype = np.promote_types(exported.dtype, np.float32)
    given = {name: array.astype(dtype) if array.dtype.kind == "f" else array for name, array in arrays.items()}
    outputs = graph.run(graph.outputs, given)
    floors = (SIGMOID_ERROR * (has_floors and _is_sigmoid(output.node)) for output in graph.outputs)
    return list(map(Expected, outputs, floors))


def _is_sigmoid(node: Node) -> bool:
    """Returns whether an output is a sigmoid's, possibly rearranged."""
    while node.kind == "identity" or node.kind in MOVES:
        node = node.inputs[0].node
    return "sigmoid" in (node.kind, node.attr("act_type"))


def _first_difference(
    got: Sequence[np.ndarray], expected: Sequence[Expected], tolerances: Iterable[float]
) -> Optional[str]:
    """Returns the first output that differs from the expected one by more than its tolerance and floor, and by how
    much."""
    for number, (array, (reference, floor), tolerance) in enumerate(zip(got, expected, tolerances)):
        if array.shape != reference.shape:
            return f"output {number} (MXNet: {reference.shape}, file: {array.shape})"
        found = difference(array, reference)
        if found > max(tolerance, floor / largest(reference)):
            return f"output {number} (relative difference: {found:.2g}, more than {tolerance:.2g})"
    return None


def _rounding(rounded: Expected, exact: Expected) -> float:
    """Returns the tolerance that follows from MXNet's own float32 rounding in the net."""
    with np.errstate(invalid="ignore"):
        lost = largest(rounded.array - exact.array, default=0.0)
    return min(max(ROUNDING * lost / largest(exact.array), TOLERANCE["float32"]), LARGEST_ROUNDING)
