"""An ONNX file is checked, and compared with its net, before it gets its name."""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable, Iterator, List, Optional

import numpy as np

from mxsame.exporting import comparing
from mxsame.exporting.comparing import Sampled
from mxsame.exporting.prepare import ExportedNet
from mxsame.installation.requirements import ONNX, install

LARGEST = 2**31 - 2**20  # bytes of arrays in one file of Protocol Buffers, which may have 2 GiB


class NotCompared(UserWarning):
    """A file was checked by onnx only."""


def save(model: Any, file: str) -> None:
    """Writes a model, and lets onnx check it with full shape inference.

    Raises a `ValueError` for what it finds."""
    import onnx

    is_large = sum(len(array.raw_data) for array in model.graph.initializer) >= LARGEST
    onnx.save_model(model, file, save_as_external_data=is_large, location=f"{os.path.basename(file)}.data")
    try:
        onnx.checker.check_model(file, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"net must be one that onnx's checker accepts as a file; the checker says: {error}") from error


def compare(exported: ExportedNet, sampled: Sampled, file: str) -> Optional[str]:
    """Compares the file, run with ONNX Runtime, with the net, and returns the name of the runtime. Raises a
    `ValueError` if they differ or the file does not run; warns if onnxruntime is not installed."""
    try:
        import onnxruntime
    except ImportError:
        message = "the file is checked by onnx, but not compared with the net: onnxruntime is not installed"
        warnings.warn(f"{message}; fix it with: {install(*ONNX)}", NotCompared, stacklevel=3)
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    session = _by_onnxruntime(onnxruntime.InferenceSession, file, options, ["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def outputs(samples: List[List[np.ndarray]]) -> Iterator[List[np.ndarray]]:
        """Runs each sample twice: the second run uses the memory that the first one planned."""
        for arrays in samples:
            _by_onnxruntime(session.run, None, dict(zip(names, arrays)))
            yield _by_onnxruntime(session.run, None, dict(zip(names, arrays)))

    name = "ONNX Runtime"
    comparing.compare(exported, sampled, lambda samples: (name, outputs(samples)), "; tolerance= allows more")
    return f"{name} {onnxruntime.__version__}"


def _by_onnxruntime(call: Callable, *args: Any) -> Any:
    """Returns the result of a call of ONNX Runtime, whose errors have no class in common: all become a `ValueError`."""
    try:
        return call(*args)
    except Exception as error:
        raise ValueError(f"net must be one that ONNX Runtime runs as a file; ONNX Runtime says: {error}") from error
