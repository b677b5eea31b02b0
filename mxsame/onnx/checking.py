"""Checks an ONNX file, and compares it with its net, before it gets its final name."""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable, Iterator, List, Optional

import numpy as np

from mxsame.exporting import comparing
from mxsame.exporting.comparing import Samples
from mxsame.exporting.prepare import ExportedNet
from mxsame.installation.requirements import ONNX, install
from mxsame.validation import InvalidValue

MAX_INLINE_BYTES = 2**31 - 2**20  # of arrays in the model's own file: Protocol Buffers may have 2 GiB


class NotCompared(UserWarning):
    """A file was checked by onnx, but not compared with its net."""


def save(model: Any, file: str) -> None:
    """Writes a model, and checks it with onnx and full shape inference.

    Raises a `ValueError` if onnx refuses it."""
    import onnx

    is_large = sum(len(array.raw_data) for array in model.graph.initializer) >= MAX_INLINE_BYTES
    onnx.save_model(model, file, save_as_external_data=is_large, location=f"{os.path.basename(file)}.data")
    try:
        onnx.checker.check_model(file, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        rule = "net must be one that onnx's checker accepts as a file"
        raise InvalidValue(f"{rule}; the checker says: {error}") from error


def compare(exported: ExportedNet, samples: Samples, file: str) -> Optional[str]:
    """Runs the file with ONNX Runtime, compares its outputs with the net's, and returns the runtime's name and version.

    Raises a `ValueError` if the outputs differ or the file does not run. Warns, and returns None, if onnxruntime is not
    installed."""
    try:
        import onnxruntime
    except ImportError:
        message = "the file is checked by onnx, but not compared with the net: onnxruntime is not installed"
        warnings.warn(f"{message}; fix it with: {install(*ONNX)}", NotCompared, stacklevel=5)
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    session = _call_onnxruntime(onnxruntime.InferenceSession, file, options, ["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def outputs(inputs: List[List[np.ndarray]]) -> Iterator[List[np.ndarray]]:
        """Runs each list of inputs twice, since only the second run uses the memory that the first one planned."""
        for arrays in inputs:
            _call_onnxruntime(session.run, None, dict(zip(names, arrays)))
            yield _call_onnxruntime(session.run, None, dict(zip(names, arrays)))

    name = "ONNX Runtime"
    comparing.compare(exported, samples, lambda inputs: (name, outputs(inputs)), "; tolerance= allows more")
    return f"{name} {onnxruntime.__version__}"


def _call_onnxruntime(function: Callable, *args: Any) -> Any:
    """Calls a function of ONNX Runtime. Its errors have no common base class: each becomes a `ValueError`."""
    try:
        return function(*args)
    except Exception as error:
        raise InvalidValue(f"net must be one that ONNX Runtime runs as a file; ONNX Runtime says: {error}") from error
