"""Parses the attributes of operators, which are strings in MXNet, and looks up MXNet's defaults."""

from __future__ import annotations

import ast
import functools
import re
from typing import Any, Dict, List, Optional, Tuple

from mxsame._mxnet import mx

UNREGISTERED_DEFAULTS = {("smooth_l1", "scalar"): "1.0"}  # defaults that MXNet's registry does not list
BOOLEANS = {"true": True, "false": False, "True": True, "False": False, "1": True, "0": False}


@functools.lru_cache(maxsize=4096)
def value_of(op: str, name: str, text: Optional[str]) -> Any:
    """Returns the value of an operator's attribute: `text` parsed as the registered type; the default if it is None.

    >>> value_of("clip", "a_max", "inf"), value_of("Pooling", "kernel", "3"), value_of("Pooling", "pool_type", None)
    (inf, (3,), 'max')
    """
    type_name, default = _registered_attributes(op).get(name, ("", None))
    text = default if text is None else text
    if text is None or text == "None":
        return None
    if type_name.startswith("boolean"):
        return BOOLEANS.get(text, text)
    if type_name.startswith(("{", "string")):
        return text
    try:
        if type_name.startswith(("float", "double")):
            return float(text)
        value = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text))  # Python 2 wrote (3L, 3L)
    except (ValueError, SyntaxError):
        return BOOLEANS.get(text, text)
    if type_name.startswith(("Shape", "tuple")):
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return value


def names_of(op: str) -> List[str]:
    """Returns the names of all attributes of an operator."""
    return list(_registered_attributes(op))


@functools.lru_cache(maxsize=None)
def _registered_attributes(op: str) -> Dict[str, Tuple[str, Optional[str]]]:
    """Returns the type and the default of each attribute of an operator, as strings from MXNet's registry, by name."""
    try:
        arguments = mx.operator.get_operator_arguments(op)
    except mx.base.MXNetError:  # a variable, or an operator that this MXNet lacks
        return {}
    registered = {}
    for name, description in zip(arguments.names, arguments.types):
        type_name, _, default = description.partition("default=")
        registered[name] = type_name, default.strip("'") or UNREGISTERED_DEFAULTS.get((op, name))
    return registered
