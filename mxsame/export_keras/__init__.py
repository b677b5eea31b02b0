"""Networks as Keras models, in files that Keras loads without this package."""

from mxsame.export_keras.export import Written, to_keras

__all__ = ["Written", "to_keras"]
