"""Reads Keras models as Gluon networks.

`reading` reads a source as a `Model` of `mxsame.keras_format`. `builder` calls the converter of each layer
(`converters`, registered in `table`) with a `CallContext`, and collects refusals. Converters add blocks to `steps`, and
`parameters` puts weights into them. `network` is the Gluon block of all steps.
"""

from mxsame.port.convert import from_keras, to_keras_weights
from mxsame.port.reading import read

__all__ = ["from_keras", "read", "to_keras_weights"]
