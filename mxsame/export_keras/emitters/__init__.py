"""How MXNet's operators are written as layers of Keras, in one file for each family."""

from mxsame.export_keras.emitters import axes, elementwise, layers, windowed

__all__ = ["axes", "elementwise", "layers", "windowed"]
