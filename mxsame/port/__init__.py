"""Keras models in: readers of Keras's files, the table of layers, and the network that they become."""

from mxsame.port.convert import from_keras, to_keras_weights
from mxsame.port.reading import read

__all__ = ["from_keras", "read", "to_keras_weights"]
