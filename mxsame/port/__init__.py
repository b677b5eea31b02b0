"""Reads Keras models as Gluon networks.

`files`, `config` and `reading` read a source as a `Model` (`description`), and `weights` finds its weights. `builder`
calls the converter of each layer (`converters`, registered in `table`) with a `CallContext`, and collects refusals.
Converters add blocks to `steps`, and `parameters` puts weights into them. `network` is the Gluon block of all steps.
"""

from mxsame.port.convert import from_keras, to_keras_weights
from mxsame.port.reading import read

__all__ = ["from_keras", "read", "to_keras_weights"]
