"""An ONNX file is checked, and compared with its net, before it gets its name."""

from __future__ import annotations

import itertools
import os
import warnings
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.graphs.deploy import frozen
from mxsame.graphs.tracing import Inputs
from mxsame.installation.requirements import ONNX, install
from mxsame.onnx.shapes import Shape, reshape_that_loses

LARGEST = 2**31 - 2**20  # bytes of arrays in one file of Protocol Buffers, which may have 2 GiB
# By how much ONNX Runtime may differ from MXNet, relative to an output's largest element. An output that is
# shifted by an element differs by a hundred times more.
TOLERANCE = {"float32": 1e-4, "float64": 1e-7, "float16": 2e-2}
ROUNDING = 10  # how many times the difference of MXNet's float32 from its float64 is allowed
LARGEST_ROUNDING = 1e-2  # relative to an output's largest element; with more a comparison shows nothing


class NotCompared(UserWarning):
    """A file was checked by onnx only."""


def save(model: Any, file: str) -> None:
    """Write a model, and have onnx check it with full shape inference.

    Raises `ValueError` for what it finds."""
    import onnx

    is_large = sum(len(array.raw_data) for array in model.graph.initializer) >= LARGEST
    onnx.save_model(model, file, save_as_external_data=is_large, location=f"{os.path.basename(file)}.data")
    try:
        onnx.checker.check_model(file, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"net must be one that onnx's checker accepts as a file; the checker says: {error}") from error


def compare(
    net: Any,
    inputs: Inputs,
    shapes: Mapping[str, Shape],
    data: Sequence[Optional[np.ndarray]],
    dtype: Any,
    tolerance: Optional[float],
    file: str,
) -> None:
    """Run the file with onnxruntime and the net with MXNet: a `ValueError` if they differ or the file does not run, and
    a warning if onnxruntime is not installed.

    `data` has an array for each of the `inputs`, whose `shapes` may be dynamic, or None for uniform numbers."""
    try:
        import onnxruntime
    except ImportError:
        message = "the file is checked by onnx, but not compared with the net: onnxruntime is not installed"
        warnings.warn(f"{message}; fix it with: {install(*ONNX)}", NotCompared, stacklevel=3)
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    session = _by_onnxruntime(onnxruntime.InferenceSession, file, options, ["CPUExecutionProvider"])
    least = TOLERANCE[str(dtype)] if tolerance is None else tolerance
    names, outputs = ([entry.name for entry in entries] for entries in (session.get_inputs(), session.get_outputs()))
    for number, sizes in enumerate(_sample_shapes(shapes)):
        sample = inputs._replace(shapes=sizes)
        arrays = {name: _data(sizes[name], array, dtype) for name, array in zip(sizes, data)}
        expected = _by_mxnet(net, sample, arrays, dtype, may_refuse=number > 0)
        if expected is None:
            continue
        got = _by_onnxruntime(session.run, None, dict(zip(names, arrays.values())))
        reason = _first_difference(outputs, got, expected, itertools.repeat(least))
        if reason is not None and tolerance is None and str(dtype) == "float32":
            exact = _by_mxnet(net, sample, arrays, np.dtype("float64"), may_refuse=True)
            if exact is not None:
                reason = _first_difference(outputs, got, exact, map(_rounding, expected, exact))
        if reason is not None:
            raise ValueError(
                "the outputs of the file must equal those of the net, and ONNX Runtime computes another "
                f"{reason}; {validation.received(input_shapes=sizes, tolerance=tolerance)}"
            )


def _sample_shapes(shapes: Mapping[str, Shape]) -> list[dict[str, tuple]]:
    """The shapes that the net was traced for, these plus 1 in dynamic lengths, and the others of `Length`."""
    ways = (lambda n: n.traced, lambda n: n.traced + (not n.is_static), lambda n: n.other)
    distinct = dict.fromkeys(tuple(tuple(map(way, shape)) for shape in shapes.values()) for way in ways)
    return [dict(zip(shapes, each)) for each in distinct]


def _data(shape: Sequence[int], given: Optional[np.ndarray], dtype: Any) -> np.ndarray:
    """What was given, repeated for a larger shape; or numbers between -1 and 1."""
    array = np.random.default_rng(0).uniform(-1, 1, shape) if given is None else np.resize(given, shape)
    return array.astype(dtype)


def _by_onnxruntime(call: Callable, *args: Any) -> Any:
    """The result of a call; a `ValueError` for its errors, which have no class in common."""
    try:
        return call(*args)
    except Exception as error:
        raise ValueError(f"net must be one that ONNX Runtime runs as a file; ONNX Runtime says: {error}") from error


def _by_mxnet(
    net: Any, inputs: Inputs, arrays: Mapping[str, np.ndarray], dtype: Any, may_refuse: bool
) -> Optional[list[np.ndarray]]:
    """The net's outputs, in float32 instead of float16, for which MXNet has no convolution on the CPU; None if MXNet
    does not take these shapes, and may refuse them."""
    dtype = np.promote_types(dtype, np.float32)
    try:
        graph, _ = frozen(net, inputs, dtype, purpose="inference", device="cpu")
        if reshape_that_loses(graph.shapes()) is not None:
            return None
        graph.context = mx.cpu()
        graph.values = {name: value.astype(dtype) for name, value in graph.values.items()}
        return graph.run(graph.outputs, {name: array.astype(dtype) for name, array in arrays.items()})
    except mx.base.MXNetError:
        if may_refuse:
            return None
        raise


def _first_difference(
    names: Sequence[str], got: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerances: Iterable[float]
) -> Optional[str]:
    """The first output that differs from the expected one by more than its tolerance, and by how much."""
    for name, array, reference, tolerance in zip(names, got, expected, tolerances):
        if array.shape != reference.shape:
            return f"{name} (MXNet: {reference.shape}, file: {array.shape})"
        array, reference, scale = array.astype(np.float64), reference.astype(np.float64), _largest(reference)
        if not np.allclose(array, reference, rtol=0, atol=tolerance * scale, equal_nan=True):
            different = ~((array == reference) | (np.isnan(array) & np.isnan(reference)))
            relative = np.abs(array[different] - reference[different]).max() / scale
            return f"{name} (relative difference: {relative:.2g}, more than {tolerance:.2g})"
    return None


def _rounding(rounded: np.ndarray, exact: np.ndarray) -> float:
    """The tolerance that follows from MXNet's own float32 rounding in the net."""
    with np.errstate(invalid="ignore"):
        lost = _largest(rounded - exact, default=0.0)
    return min(max(ROUNDING * lost / _largest(exact), TOLERANCE["float32"]), LARGEST_ROUNDING)


def _largest(array: np.ndarray, default: float = 1.0) -> float:
    """The largest absolute value of the finite elements; the default if all are 0."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) or default
