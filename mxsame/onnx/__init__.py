"""Networks as ONNX files, with SAME as ONNX's own pads."""

from mxsame.onnx.export import export_onnx

__all__ = ["export_onnx"]
