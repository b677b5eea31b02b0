"""Networks exported to ONNX and run by ONNX Runtime. What the suites of `mxsame.export_onnx` share."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import mxsame

REASON = "onnxruntime is not installed: pip install '.[onnx]'"
onnx = pytest.importorskip("onnx", reason=REASON)
runtime = pytest.importorskip("onnxruntime", reason=REASON)

NEWEST = min(onnx.defs.onnx_opset_version(), 19)  # that the oldest ONNX Runtime of the extra runs


def run(path, *arrays) -> list[np.ndarray]:
    """The outputs of a file for these inputs."""
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays)))


def exported(net, path, *arrays, shapes=None, **options) -> list[np.ndarray]:
    """The outputs of ONNX Runtime for arrays, by a file made for their shapes or for others."""
    shapes = [array.shape for array in arrays] if shapes is None else shapes
    mxsame.export_onnx(net, path, shapes[0] if len(shapes) == 1 else shapes, **options)
    return run(path, *arrays)


def operators(path) -> collections.Counter:
    """How many nodes of each operator a file has."""
    return collections.Counter(node.op_type for node in onnx.load(str(path)).graph.node)
