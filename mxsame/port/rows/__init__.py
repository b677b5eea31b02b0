"""How layers and operators are built, in one file for each family: a row is a function that `@layer` or `@operator` of
`mxsame.port.table` registers."""

from __future__ import annotations

from typing import List, Optional

from mxsame.port.description import Layer, Weight
from mxsame.port.table import LAYERS, OPERATORS, Row, name_of

# isort: off
from mxsame.port.rows import attention, axes, elements, images, merging, noise, norms  # noqa: F401
from mxsame.port.rows import products, recurrent, windows, words, wrappers  # noqa: F401
# isort: on


def row_of(layer: Layer) -> Optional[Row]:
    """Returns the row of a layer or an operator, if it has one."""
    return LAYERS.get(layer.class_name) if layer.operator is None else OPERATORS.get(name_of(layer.operator))


def roles_of(layer: Layer) -> Optional[List[Weight]]:
    """Returns a layer's weights in Keras's order; None for a class or a configuration that is in no row, which may have
    any."""
    row = row_of(layer)
    if row is None:
        return [] if layer.operator is not None or layer.class_name == "InputLayer" else None
    try:
        return row.weights_of(layer.config)
    except Exception:  # its row names the reason
        return None
