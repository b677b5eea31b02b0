"""Elementwise functions, and their operators in ONNX and Keras: one table for both formats."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from mxsame.rewriting.graph import Node
from mxsame.validation import one_of

ONNX, KERAS = 0, 1  # the columns of the tables
ACTIVATIONS: Dict[str, Tuple[str, ...]] = {  # functions that are an `activation` in Keras
    **{name: (name.capitalize(), name) for name in ("relu", "sigmoid", "tanh", "softsign")},
    "exp": ("Exp", "exponential"),
}
# values of the attribute `act_type`
ACT_TYPES = {**ACTIVATIONS, "softrelu": ("Softplus", "softplus"), "selu": ("Selu", "selu")}
UNARY: Dict[str, Tuple[str, ...]] = {
    **{name: (name.capitalize(),) * 2 for name in ("sqrt", "reciprocal", "log", "floor", "ceil", "sin", "cos", "tan")},
    **{name: (name.capitalize(),) * 2 for name in ("sinh", "cosh")},
    **{f"arc{name}": (f"A{name}", f"Arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{"abs": ("Abs", "Absolute"), "erf": ("Erf", "math.Erf")},
}
ARITHMETIC = {
    "add": ("Add", "Add"),
    "subtract": ("Sub", "Subtract"),
    "multiply": ("Mul", "Multiply"),
    "divide": ("Div", "Divide"),
    "maximum": ("Max", "Maximum"),
    "minimum": ("Min", "Minimum"),
    "power": ("Pow", "Power"),
}
COMPARISONS = {
    "equal": ("Equal", "Equal"),
    "greater": ("Greater", "Greater"),
    "lesser": ("Less", "Less"),
    "greater_equal": ("GreaterOrEqual", "GreaterEqual"),
    "lesser_equal": ("LessOrEqual", "LessEqual"),
}
BINARY = {**ARITHMETIC, **COMPARISONS}


def act_type(node: Node, *allowed: str) -> str:
    """Returns the `act_type` of a node, which must be allowed; by default, all without a parameter are allowed."""
    return one_of("act_type", node.attr("act_type"), allowed or ("relu", "sigmoid", "tanh", "softsign", "softrelu"))


def binary_kinds(*kinds: str) -> List[str]:
    """Returns the kinds of nodes that compute one of these functions of two arrays, or of an array and a number, in
    either order."""
    reversible = [kind for kind in kinds if kind in ("subtract", "divide", "power", "modulo")]
    return [*kinds, *(f"{kind}_scalar" for kind in kinds), *(f"r{kind}_scalar" for kind in reversible)]


def parse_binary(node: Node) -> Tuple[str, Optional[float], bool]:
    """Returns (function, number, is_reversed) for a node of one of the `binary_kinds`. The number is None if both
    operands are arrays; `is_reversed` says whether it is the first operand."""
    kind, is_scalar, _ = node.kind.partition("_scalar")
    is_reversed = bool(is_scalar) and kind.startswith("r")
    return kind[is_reversed:], node.attr("scalar") if is_scalar else None, is_reversed
