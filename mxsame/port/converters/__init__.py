"""Converters of Keras's layers and operators, one file for each family. `@layer` and `@operator` of
`mxsame.port.table` register them."""

from __future__ import annotations

from typing import List, Optional

from mxsame.keras_format.description import Layer, WeightSpec
from mxsame.port.table import LAYERS, OPERATORS, Converter, operator_name

# isort: off
from mxsame.port.converters import attention, axes, elementwise, images, merging, noise, norms  # noqa: F401
from mxsame.port.converters import categorical, linear_algebra, recurrent, windows, wrappers  # noqa: F401
# isort: on


def converter_of(layer: Layer) -> Optional[Converter]:
    """Returns the converter of a layer or an operator; None if there is none."""
    return LAYERS.get(layer.class_name) if layer.operator is None else OPERATORS.get(operator_name(layer.operator))


def weight_specs_of(layer: Layer) -> Optional[List[WeightSpec]]:
    """Returns the specs of a layer's weights in Keras's order. Returns None if they are unknown: the class has no
    converter, or its converter refuses the configuration."""
    converter = converter_of(layer)
    if converter is None:
        return [] if layer.operator is not None or layer.class_name == "InputLayer" else None
    try:
        return converter.weights_of(layer.config)
    except Exception:  # raised again, with its reason, when the layer is built
        return None
