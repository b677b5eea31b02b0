"""A file's outputs compared with those of its net, at several shapes."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.exporting.shapes import Shape, reshape_that_loses
from mxsame.exporting.walk import MOVES, Source
from mxsame.graphs.deploy import freeze
from mxsame.progress import report
from mxsame.rewriting.graph import Node
from mxsame.scope import Target
from mxsame.tensors.difference import difference, largest

# By how much another runtime may differ from MXNet, relative to an output's largest element. An output that is
# shifted by an element differs by a hundred times more.
TOLERANCE = {"float32": 1e-4, "float64": 1e-7, "float16": 2e-2}
ROUNDING = 10  # how many times the difference of MXNet's float32 from its float64 is allowed
LARGEST_ROUNDING = 1e-2  # relative to an output's largest element; with more a comparison shows nothing

OF_SIGMOIDS = 2.0**-23  # twice the error of other runtimes' sigmoids in float32, which is much of a saturated output

Arrays = List[np.ndarray]
Run = Callable[[List[Arrays]], Iterable[Arrays]]


class Sampled(NamedTuple):
    """What a net and its file are run on: the shapes of the inputs, which may be dynamic; an array for each input, or
    None for uniform numbers; and by how much outputs may differ, by default what follows from the type."""

    shapes: Mapping[str, Shape]
    data: Sequence[Optional[np.ndarray]]
    tolerance: Optional[float] = None


class Expected(NamedTuple):
    """An output of the net, and by how much others may always differ from it."""

    array: np.ndarray
    floor: float


def compare(source: Source, sampled: Sampled, runtime: str, run: Run, advice: str = "") -> None:
    """Raise `ValueError`, with this advice, if an output of the file differs from the net's.

    `run` gives the file's outputs for each list of inputs, as the runtime computes them."""
    shapes, data, tolerance = sampled
    follows_type = tolerance is None and str(source.dtype) == "float32"
    least = TOLERANCE[str(source.dtype)] if tolerance is None else tolerance
    samples = []
    sample_shapes = _sample_shapes(shapes)
    for number, sizes in enumerate(sample_shapes):
        report("running the net with MXNet", number, len(sample_shapes))
        sample = source._replace(inputs=source.inputs._replace(shapes=sizes))
        random = np.random.default_rng(0)
        arrays = {name: _data(random, sizes[name], array, source.types[name]) for name, array in zip(sizes, data)}
        expected = _by_mxnet(sample, arrays, follows_type, may_refuse=number > 0)
        if expected is not None:
            samples.append((sample, arrays, expected))
    report(f"comparing with {runtime}", 0, len(samples))
    all_outputs = run([list(arrays.values()) for _, arrays, _ in samples])
    for number, ((sample, arrays, expected), got) in enumerate(zip(samples, all_outputs)):
        report(f"comparing with {runtime}", number + 1, len(samples))
        reason = _first_difference(got, expected, itertools.repeat(least))
        if reason is not None and follows_type:
            sample = sample._replace(dtype=np.dtype("float64"))
            exact = _by_mxnet(sample, arrays, follows_type, may_refuse=True)
            reason = reason if exact is None else _first_difference(got, exact, map(_rounding, expected, exact))
        rule = f"the outputs of the file must equal those of the net, and {runtime} computes another {reason}"
        given = {} if tolerance is None else {"tolerance": tolerance}
        received = validation.received(input_shapes=sample.inputs.shapes, **given)
        validation.check(reason is None, f"{rule}; {received}{advice}")


def _sample_shapes(shapes: Mapping[str, Shape]) -> list[dict[str, tuple]]:
    """The shapes that the net was traced for, these plus 1 in dynamic lengths, and the others of `Length`."""
    ways = (lambda n: n.traced, lambda n: n.traced + (not n.is_static), lambda n: n.other)
    distinct = dict.fromkeys(tuple(tuple(map(way, shape)) for shape in shapes.values()) for way in ways)
    return [dict(zip(shapes, each)) for each in distinct]


def _data(random: Any, shape: Sequence[int], given: Optional[np.ndarray], dtype: Any) -> np.ndarray:
    """What was given, repeated for a larger shape; or numbers between -1 and 1, integers from 1 to 9, others for each
    input. A division of integers by 0 ends the process."""
    low, high = (-1, 1) if np.dtype(dtype).kind == "f" else (1, 10)
    array = random.uniform(low, high, shape) if given is None else np.resize(given, shape)
    return array.astype(dtype)


def _by_mxnet(
    source: Source, arrays: Mapping[str, np.ndarray], has_floors: bool, may_refuse: bool
) -> Optional[List[Expected]]:
    """The net's outputs, in float32 instead of float16, for which MXNet has no convolution on the CPU; None if MXNet
    does not take these shapes, and may refuse them."""
    dtype = np.promote_types(source.dtype, np.float32)
    floats = {name: array.astype(dtype) for name, array in arrays.items() if array.dtype.kind == "f"}
    try:
        types = {name: dtype if name in floats else array.dtype for name, array in arrays.items()}
        graph, _ = freeze(source.net, source.inputs, types, Target("inference", "cpu"))
        if reshape_that_loses(graph.shapes()) is not None:
            return None
        graph.context = mx.cpu()
        graph.values = {name: value.astype(dtype) for name, value in graph.values.items()}
        outputs = graph.run(graph.outputs, {**arrays, **floats})
    except mx.base.MXNetError:
        if may_refuse:
            return None
        raise
    floors = (OF_SIGMOIDS * (has_floors and _is_sigmoid(output.node)) for output in graph.outputs)
    return list(map(Expected, outputs, floors))


def _is_sigmoid(node: Node) -> bool:
    """Whether an output is that of a sigmoid, whose elements may have moved since."""
    while node.kind == "identity" or node.op in MOVES:
        node = node.inputs[0].node
    return "sigmoid" in (node.kind, node.attr("act_type"))


def _first_difference(
    got: Sequence[np.ndarray], expected: Sequence[Expected], tolerances: Iterable[float]
) -> Optional[str]:
    """The first output that differs from the expected one by more than its tolerance and floor, and by how much."""
    for number, (array, (reference, floor), tolerance) in enumerate(zip(got, expected, tolerances)):
        if array.shape != reference.shape:
            return f"output {number} (MXNet: {reference.shape}, file: {array.shape})"
        found = difference(array, reference)
        if found > max(tolerance, floor / largest(reference)):
            return f"output {number} (relative difference: {found:.2g}, more than {tolerance:.2g})"
    return None


def _rounding(rounded: Expected, exact: Expected) -> float:
    """The tolerance that follows from MXNet's own float32 rounding in the net."""
    with np.errstate(invalid="ignore"):
        lost = largest(rounded.array - exact.array, default=0.0)
    return min(max(ROUNDING * lost / largest(exact.array), TOLERANCE["float32"]), LARGEST_ROUNDING)
