"""Networks as ONNX files, with SAME as ONNX's own pads."""

from mxsame.graphs.files import Written
from mxsame.onnx.checking import NotCompared
from mxsame.onnx.export import export_onnx

__all__ = ["NotCompared", "Written", "export_onnx"]
