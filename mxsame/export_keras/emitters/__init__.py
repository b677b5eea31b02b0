"""The emitters that write MXNet's operators as Keras layers, one file for each family."""

from mxsame.export_keras.emitters import axes, elementwise, layers, windowed

__all__ = ["axes", "elementwise", "layers", "windowed"]
