"""Compares the outputs of a file with those of its net, for several shapes of the inputs."""

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
ROUNDING_FACTOR = 10  # this multiple of the difference between MXNet's float32 and float64 outputs is allowed
MAX_ROUNDING = 1e-2  # relative to an output's largest element; a comparison with a larger tolerance shows nothing

# Twice the absolute float32 error of other runtimes' sigmoids, whose relative error is large near 0.
SIGMOID_ERROR = 2.0**-23

# kinds of nodes that may be between an input of indices and an operator of `INDICES`
PASS_INDICES = ("identity", "Cast", "clip", "floor", "round", "trunc", "broadcast_axis", "repeat", "tile", *MOVES)
# operator -> the position of the indices among its inputs; and their range, for the node and the shape of its data
INDICES: Dict[str, Tuple[int, Callable[..., Tuple[int, int]]]] = {
    "Embedding": (0, lambda node, data: (0, node.attr("input_dim"))),
    # includes an index out of range at each end, which returns a row of zeros
    "one_hot": (0, lambda node, data: (-1, node.attr("depth") + 1)),
    "take": (1, lambda node, data: (0, data[node.attr("axis")])),
    "pick": (1, lambda node, data: (0, data[node.attr("axis", -1)])),
    "gather_nd": (1, lambda node, data: (0, min(data))),
    **{name: (1, lambda node, data: (1, data[node.attr("axis")] + 1)) for name in ("SequenceMask", "SequenceLast")},
    "SequenceReverse": (1, lambda node, data: (1, data[0] + 1)),
}

SHAPE_ERRORS = (mx.base.MXNetError, validation.InvalidValue)  # raised by a net that does not accept a shape

Arrays = List[np.ndarray]
Run = Callable[[List[Arrays]], Tuple[str, Iterable[Arrays]]]


class Samples(NamedTuple):
    """What a net and its file are compared on: the shapes of the inputs, which may be dynamic; an array for each input,
    or None for random numbers; and the relative difference that is allowed, or None for the default of the dtype."""

    shapes: Mapping[str, Shape]
    data: Sequence[Optional[np.ndarray]]
    tolerance: Optional[float] = None


class Expected(NamedTuple):
    """An output of the net, and the absolute difference that is allowed at any tolerance."""

    array: np.ndarray
    allowance: float


def compare(exported: ExportedNet, samples: Samples, run: Run, advice: str = "") -> str:
    """Raises a `ValueError` that ends with `advice` if an output of the file differs from the net's.

    `run` takes lists of input arrays; it returns the name of the runtime that runs the file, and the outputs for each
    list. Returns the name."""
    shapes, data, tolerance = samples
    allows_rounding = tolerance is None and str(exported.dtype) == "float32"
    limit = TOLERANCE[str(exported.dtype)] if tolerance is None else tolerance
    runs, sample_shapes = [], _sample_shapes(shapes)
    for number, input_shapes in enumerate(reporting("running the net with MXNet", sample_shapes)):
        sample = exported._replace(inputs=exported.inputs._replace(shapes=input_shapes))
        with contextlib.suppress(*SHAPE_ERRORS if number > 0 else ()):  # the net must accept the first shape
            graph = _graph_of(sample)
            ranges, random = index_ranges(graph), np.random.default_rng(0)
            arrays = {
                name: _input(random, shape, array, exported.dtypes[name], ranges.get(name))
                for (name, shape), array in zip(input_shapes.items(), data)
            }
            runs.append((sample, arrays, _outputs(graph, sample, arrays, allows_rounding)))
    runtime, all_outputs = run([list(arrays.values()) for _, arrays, _ in runs])
    for (sample, arrays, expected), got in zip(reporting(f"comparing with {runtime}", runs), all_outputs):
        reason = _first_difference(got, expected, itertools.repeat(limit))
        if reason is not None and allows_rounding:
            sample = sample._replace(dtype=np.dtype("float64"))
            with contextlib.suppress(*SHAPE_ERRORS):
                exact = _outputs(_graph_of(sample), sample, arrays, allows_rounding)
                reason = _first_difference(got, exact, map(_rounding, expected, exact))
        rule = f"the outputs of the file must equal those of the net, but {runtime} computes a different {reason}"
        arguments = {} if tolerance is None else {"tolerance": tolerance}
        received = validation.received(input_shapes=sample.inputs.shapes, **arguments)
        validation.check(reason is None, f"{rule}; {received}{advice}")
    return runtime


def _sample_shapes(shapes: Mapping[str, Shape]) -> list[dict[str, tuple]]:
    """Returns the shapes for which the net was traced, the same with dynamic lengths 1 longer, and the probe shapes."""
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
            known = ranges.get(source.node.name, (low, high))
            ranges[source.node.name] = max(low, known[0]), min(high, known[1])
    return ranges


def _counts_from_end(graph: Graph, node: Node) -> bool:
    """Returns whether a node adds to indices what is computed from them: Keras 3 adds the length to negative ones."""
    return node.op == "elemwise_add" and node.inputs[0].node in graph.nodes([node.inputs[1]])


def _input(
    random: Any, shape: Sequence[int], array: Optional[np.ndarray], dtype: Any, index_range: Optional[Tuple[int, int]]
) -> np.ndarray:
    """Returns an input: the array, repeated to fill the shape; or random indices in the range; or random numbers, from
    -1 to 1 for floats, and from 1 to 9 for integers, since MXNet's division of integers by 0 ends the process."""
    if array is not None:
        return np.resize(array, shape).astype(dtype)
    if index_range is None and np.dtype(dtype).kind == "f":
        return np.asarray(random.uniform(-1, 1, shape)).astype(dtype)
    low, high = index_range or (1, 10)
    return np.asarray(random.integers(low, max(high, low + 1), shape)).astype(dtype)


def _graph_of(exported: ExportedNet) -> Graph:
    """Returns the graph of the net, in float32 for float16: MXNet has no float16 convolution on the CPU."""
    dtype = np.promote_types(exported.dtype, np.float32)
    dtypes = {name: dtype if np.dtype(each).kind == "f" else each for name, each in exported.dtypes.items()}
    graph, *_ = freeze(exported.net, exported.inputs, dtypes, Target("inference", "cpu"))
    if invalid_reshape(graph.shapes()) is not None:
        raise mx.base.MXNetError("a reshape must keep the number of elements")
    graph.context = mx.cpu()
    graph.values = {name: value.astype(dtype) for name, value in graph.values.items()}
    return graph


def _outputs(
    graph: Graph, exported: ExportedNet, arrays: Mapping[str, np.ndarray], allows_rounding: bool
) -> List[Expected]:
    """Runs the graph of the net. Sigmoids get an allowance if `allows_rounding`."""
    dtype = np.promote_types(exported.dtype, np.float32)
    inputs = {name: array.astype(dtype) if array.dtype.kind == "f" else array for name, array in arrays.items()}
    outputs = graph.run(graph.outputs, inputs)
    allowances = (SIGMOID_ERROR * (allows_rounding and _is_sigmoid(output.node)) for output in graph.outputs)
    return list(map(Expected, outputs, allowances))


def _is_sigmoid(node: Node) -> bool:
    """Returns whether a node is a sigmoid, or only rearranges the elements of one."""
    while node.kind == "identity" or node.kind in MOVES:
        node = node.inputs[0].node
    return "sigmoid" in (node.kind, node.attr("act_type"))


def _first_difference(
    got: Sequence[np.ndarray], expected: Sequence[Expected], tolerances: Iterable[float]
) -> Optional[str]:
    """Describes the first output that differs from the expected one by more than its tolerance and its allowance; None
    if all agree."""
    for number, (array, (reference, allowance), tolerance) in enumerate(zip(got, expected, tolerances)):
        if array.shape != reference.shape:
            return f"output {number} (MXNet: {reference.shape}, file: {array.shape})"
        relative = difference(array, reference)
        if relative > max(tolerance, allowance / largest(reference)):
            return f"output {number} (relative difference: {relative:.2g}, more than {tolerance:.2g})"
    return None


def _rounding(rounded: Expected, exact: Expected) -> float:
    """Returns the tolerance for an output, which grows with the rounding error of MXNet's own float32 output."""
    with np.errstate(invalid="ignore"):
        error = largest(rounded.array - exact.array, default=0.0)
    return min(max(ROUNDING_FACTOR * error / largest(exact.array), TOLERANCE["float32"]), MAX_ROUNDING)
