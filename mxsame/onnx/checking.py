"""An ONNX file is checked, and compared with its net, before it is put at its place."""

from __future__ import annotations

import importlib
import itertools
import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.graphs.frozen import frozen
from mxsame.graphs.tracing import reason
from mxsame.installation.requirements import ONNX, install
from mxsame.onnx.shapes import Shape, reshape_that_loses

LARGEST = 2**31 - 2**20  # bytes in one file of Protocol Buffers, with room for what is not an array
# By how much ONNX Runtime may differ from MXNet, relative to an output's largest element. What is shifted by an element
# differs by a hundred times more.
TOLERANCE = {"float32": 1e-4, "float64": 1e-7, "float16": 2e-2}
ROUNDING = 10  # times what MXNet's own float32 differs from its float64, ONNX Runtime's may
LARGEST_ROUNDING = 1e-2  # relative to an output's largest element; beyond, nothing can be told


class NotCompared(UserWarning):
    """A file was checked by onnx alone."""


def package(name: str, what: str) -> Any:
    """The package, if it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} needs the package {name}; fix it with: {install(*ONNX)}") from error


def save(model: Any, size: int, file: str) -> None:
    """Write a model with arrays of so many bytes, and have onnx check it with full shape inference.

    Raises `ValueError` for what it finds."""
    onnx = package("onnx", "mxsame.export_onnx")
    if size < LARGEST:
        onnx.save_model(model, file)
    else:
        onnx.save_model(model, file, save_as_external_data=True, location=f"{os.path.basename(file)}.data")
    try:
        onnx.checker.check_model(file, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"net must be one that onnx's checker accepts as a file; the checker says: {error}") from error


def compare(
    net: Any,
    shapes: Mapping[str, Shape],
    structure: Any,
    given: Sequence[Optional[np.ndarray]],
    dtype: Any,
    tolerance: Optional[float],
    file: str,
) -> Optional[str]:
    """Run the file by onnxruntime, and the net by MXNet; a `ValueError` if they differ, or the file does not run. None,
    or why they were not compared: onnxruntime is not installed, or does not support the opset.

    They are run on arrays that were `given` for the inputs, which have these `shapes` and are nested as `structure`
    says, and on uniform numbers for those without."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return f"onnxruntime is not installed; fix it with: {install(*ONNX)}"
    try:
        session = _session(runtime, file)
    except Exception as error:  # those of onnxruntime have no class in common
        if not _supports_opset(runtime, file):
            return f"onnxruntime {runtime.__version__} does not support the opset"
        raise _failure(error) from error
    least = TOLERANCE[str(dtype)] if tolerance is None else tolerance
    names, outputs = ([entry.name for entry in entries] for entries in (session.get_inputs(), session.get_outputs()))
    for number, sizes in enumerate(_tried(shapes)):
        arrays = dict(zip(sizes, map(_data, sizes.values(), given, itertools.repeat(dtype))))
        wanted = _by_mxnet(net, arrays, dtype, structure, may_refuse=number > 0)
        if wanted is None:
            continue
        try:
            got = session.run(None, dict(zip(names, arrays.values())))
        except Exception as error:
            raise _failure(error, input_shapes=sizes) from error
        reason = _wrong(outputs, got, wanted, itertools.repeat(least))
        if reason is not None and tolerance is None and str(dtype) == "float32":
            exact = _by_mxnet(net, arrays, np.dtype("float64"), structure, may_refuse=True)
            if exact is not None:
                reason = _wrong(outputs, got, exact, map(_rounding, wanted, exact))
        if reason is not None:
            raise ValueError(
                "the file must give what the net gives, and ONNX Runtime finds another "
                f"{reason}; {validation.received(input_shapes=sizes, tolerance=tolerance)}"
            )
    return None


def _data(shape: Sequence[int], given: Optional[np.ndarray], dtype: Any) -> np.ndarray:
    """What was given, repeated for a larger shape; or numbers between -1 and 1."""
    found = np.random.default_rng(0).uniform(-1, 1, shape) if given is None else np.resize(given, shape)
    return found.astype(dtype)


def _session(runtime: Any, model: Any) -> Any:
    """A file, or the bytes of a model, ready to run."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _supports_opset(runtime: Any, file: str) -> bool:
    """Whether onnxruntime runs an identity of the file's opset."""
    onnx = package("onnx", "mxsame.export_onnx")
    model, helper = onnx.load_model(file, load_external_data=False), onnx.helper
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", [x], [y])
    identity = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        _session(runtime, identity.SerializeToString())
    except Exception:
        return False
    return True


def _failure(error: Exception, **received: Any) -> ValueError:
    detail = f"; {validation.received(**received)}" if received else ""
    return ValueError(f"net must be one that ONNX Runtime runs as a file; ONNX Runtime says: {error}{detail}")


def _tried(shapes: Mapping[str, Shape]) -> List[Dict[str, tuple]]:
    """The shapes that the net was traced for; where lengths are dynamic, these and one more, or as MXNet takes them."""
    found: List[Dict[str, tuple]] = []
    for length_of in (
        lambda length: length.traced,
        lambda length: length.traced + (not length.is_static),
        lambda length: length.other,
    ):
        tried = {name: tuple(map(length_of, shape)) for name, shape in shapes.items()}
        if tried not in found:
            found.append(tried)
    return found


def _by_mxnet(
    net: Any, arrays: Mapping[str, np.ndarray], dtype: Any, structure: Any, may_refuse: bool
) -> Optional[List[np.ndarray]]:
    """The net's outputs, in float32 for float16, which MXNet has no convolution for on the CPU; None if MXNet does not
    take these shapes, and may refuse them."""
    dtype = np.promote_types(dtype, np.float32)
    try:
        shapes = {name: array.shape for name, array in arrays.items()}
        graph, _ = frozen(net, shapes, dtype, structure, purpose="inference", device="cpu")
        if reshape_that_loses(graph.shapes()) is not None:
            return None
        graph.context = mx.cpu()
        graph.values = {name: value.astype(dtype) for name, value in graph.values.items()}
        return graph.run(graph.outputs, {name: array.astype(dtype) for name, array in arrays.items()})
    except mx.base.MXNetError as error:
        if may_refuse:
            return None
        raise ValueError(f"net must run in MXNet on data of input_shape; MXNet says: {reason(error)}") from None


def _wrong(
    names: Sequence[str], got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerances: Iterable[float]
) -> Optional[str]:
    """The first output that differs from what is wanted by more than its tolerance, and by how much."""
    for name, array, want, tolerance in zip(names, got, wanted, tolerances):
        if array.shape != want.shape:
            return f"{name} (MXNet: {want.shape}, file: {array.shape})"
        array, want, scale = array.astype(np.float64), want.astype(np.float64), _scale(want)
        if not np.allclose(array, want, rtol=0, atol=tolerance * scale, equal_nan=True):
            different = ~((array == want) | (np.isnan(array) & np.isnan(want)))
            relative = np.abs(array[different] - want[different]).max() / scale
            return f"{name} (relative difference: {relative:.2g}, more than {tolerance:.2g})"
    return None


def _scale(array: np.ndarray) -> float:
    """The largest element."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) or 1.0


def _rounding(rounded: np.ndarray, exact: np.ndarray) -> float:
    """The tolerance that follows from what float32 costs the net in MXNet."""
    with np.errstate(invalid="ignore"):
        lost = np.abs(rounded - exact)
    relative = float(lost[np.isfinite(lost)].max(initial=0.0)) / _scale(exact)
    return min(max(ROUNDING * relative, TOLERANCE["float32"]), LARGEST_ROUNDING)
