"""How MXNet's operators are written as layers of Keras, in one file for each family."""

from mxsame.export_keras.rows import axes, elements, layers, windowed

__all__ = ["axes", "elements", "layers", "windowed"]
