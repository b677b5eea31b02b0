"""The table of all rows: its files register them when they are imported."""

from __future__ import annotations

from typing import List, Optional

from mxsame import validation
from mxsame.port import activations, attending, layers, operators, sequences, windows  # noqa: F401
from mxsame.port.description import Layer, Weight
from mxsame.port.rows import LAYERS, OPERATORS, Row


def row_of(layer: Layer) -> Optional[Row]:
    """The row of a layer or an operator, if it has one."""
    if layer.operator is None:
        return LAYERS.get(layer.class_name)
    return OPERATORS.get(operators.name_of(layer.operator))


def roles_of(layer: Layer) -> Optional[List[Weight]]:
    """A layer's weights in Keras's order; None for a class that is not in the table, which may have any."""
    row = row_of(layer)
    if row is not None:
        try:
            return row.weights_of(layer)
        except (AttributeError, KeyError, TypeError):
            raise ValueError(
                f"layers must be written as Keras writes them; {validation.received(layer=layer.config)}"
            ) from None
    return [] if layer.operator is not None or layer.class_name == "InputLayer" else None
