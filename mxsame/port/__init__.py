"""Keras models in.

`files`, `config` and `reading` read a source as a `Model` (`description`). `builder` calls the converter of each layer
with its `CallContext`, and collects what is refused; the converters are in `converters`, and register themselves in
`table`. `steps` has the blocks that they make, in order, and `network` is the Gluon block of them. `parameters` fills
blocks with weights; `weights` finds these in files, and writes them back.
"""

from mxsame.port.convert import from_keras, to_keras_weights
from mxsame.port.reading import read

__all__ = ["from_keras", "read", "to_keras_weights"]
