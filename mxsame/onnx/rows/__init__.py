"""How operators are written, in one file for each family.

What an operator computes is from MXNet 1.9's documentation, and from its source where that is silent; ONNX's operators
are at https://onnx.ai/onnx/operators/.
"""

from mxsame.onnx.registry import OPERATORS
from mxsame.onnx.rows import (
    axes,
    elements,
    indexing,
    normalization,
    pictures,
    products,
    recurrent,
    reductions,
    windowed,
)

__all__ = [
    "OPERATORS",
    "axes",
    "elements",
    "indexing",
    "normalization",
    "pictures",
    "products",
    "recurrent",
    "reductions",
    "windowed",
]
