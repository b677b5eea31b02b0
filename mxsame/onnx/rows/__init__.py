"""How operators are written, in one file for each family.

What an operator computes is from MXNet 1.9's documentation, and from its source where that is silent; ONNX's operators
are at https://onnx.ai/onnx/operators/.
"""

from mxsame.onnx.rows import axes, elements, indexing, normalization, recurrent, reductions, windowed
from mxsame.onnx.rows._shared import OPERATORS

__all__ = ["OPERATORS", "axes", "elements", "indexing", "normalization", "recurrent", "reductions", "windowed"]
