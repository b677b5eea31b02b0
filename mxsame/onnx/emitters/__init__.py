"""The emitters of MXNet's operators, one file for each family.

An emitter takes the writer, the node, and the names of the node's inputs. It adds ONNX's nodes with `OnnxWriter.add`,
and returns the name of the output, or a list of names. MXNet 1.9's documentation and source define what its operators
compute; ONNX's operators are at https://onnx.ai/onnx/operators/.
"""

from mxsame.onnx.emitters import axes, elementwise, layers, windowed

__all__ = ["axes", "elementwise", "layers", "windowed"]
