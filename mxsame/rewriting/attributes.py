"""Parses the attributes of operators, strings in MXNet, to typed values, with MXNet's own defaults."""

from __future__ import annotations

import ast
import functools
import re
from typing import Any, Dict, List, Optional, Tuple

from mxsame._mxnet import mx

UNREGISTERED_DEFAULTS = {("smooth_l1", "scalar"): "1.0"}  # a default that MXNet has and its registry lacks
FLAGS = {"true": True, "false": False, "True": True, "False": False, "1": True, "0": False}


@functools.lru_cache(maxsize=4096)
def value_of(op: str, name: str, text: Optional[str]) -> Any:
    """Returns an attribute of an operator, parsed by its registered type; the default if `text` is None.

    >>> value_of("clip", "a_max", "inf"), value_of("Pooling", "kernel", "3"), value_of("Pooling", "pool_type", None)
    (inf, (3,), 'max')
    """
    kind, default = _registered(op).get(name, ("", None))
    text = default if text is None else text
    if text is None or text == "None":
        return None
    if kind.startswith("boolean"):
        return FLAGS.get(text, text)
    if kind.startswith(("{", "string")):
        return text
    try:
        if kind.startswith(("float", "double")):
            return float(text)
        value = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text))  # (3L, 3L) is from Python 2
    except (ValueError, SyntaxError):
        return FLAGS.get(text, text)
    if kind.startswith(("Shape", "tuple")):
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return value


def names_of(op: str) -> List[str]:
    """Returns the names of all attributes of an operator."""
    return list(_registered(op))


@functools.lru_cache(maxsize=None)
def _registered(op: str) -> Dict[str, Tuple[str, Optional[str]]]:
    """Returns the type of each attribute of an operator, and the text of its default, as MXNet's registry has them."""
    try:
        arguments = mx.operator.get_operator_arguments(op)
    except mx.base.MXNetError:  # a variable, or an operator that another MXNet has
        return {}
    found = {}
    for name, described in zip(arguments.names, arguments.types):
        kind, _, default = described.partition("default=")
        found[name] = kind, default.strip("'") or UNREGISTERED_DEFAULTS.get((op, name))
    return found
