"""How operators are written, in one file for each family.

An emitter is a function of the writer, the node and the names of the node's inputs; it adds ONNX's nodes by
`OnnxWriter.add` and returns the name of the output, or a list of names. What an operator computes is from MXNet 1.9's
documentation, and from its source where that is silent; ONNX's operators are at https://onnx.ai/onnx/operators/.
"""

from mxsame.onnx.emitters import axes, elementwise, layers, windowed

__all__ = ["axes", "elementwise", "layers", "windowed"]
