"""Reductions."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mxsame.onnx.registry import writes
from mxsame.onnx.rows._shared import axes_of, given_axis, ndim_of, number
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output


def _reduced(w: Writer, node: Node, op: str, x: str, axes: Sequence[int]) -> str:
    keepdims = bool(node.attr("keepdims", False))
    out = w.reduced(op, x, axes, keepdims)
    return number(w, node, out) if len(axes) == ndim_of(w, node) and not keepdims else out


REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}


@writes(*REDUCTIONS)
def reduction(w: Writer, node: Node, x: str) -> str:
    ndim = ndim_of(w, node)
    axes = axes_of(node, ndim)
    if node.attr("exclude", False):
        axes = [axis for axis in range(ndim) if axis not in axes]
    return _reduced(w, node, REDUCTIONS[node.kind], x, axes) if axes else x


@writes("norm")
def norm(w: Writer, node: Node, x: str) -> str:
    order = {1: "ReduceL1", 2: "ReduceL2"}[int(node.attr("ord", 2))]
    return _reduced(w, node, order, x, axes_of(node, ndim_of(w, node)))


@writes("argmax", "argmin")
def argument(w: Writer, node: Node, x: str) -> str:
    """The position of the largest or smallest element, as a float."""
    op = {"argmax": "ArgMax", "argmin": "ArgMin"}[node.kind]
    axis, keepdims = given_axis(node), bool(node.attr("keepdims", False))
    found = w.cast(w.add(op, x, axis=axis, keepdims=int(keepdims)), w.dtype(Output(node)))
    return number(w, node, found) if ndim_of(w, node) == 1 and not keepdims else found


@writes("_np_cumsum")
def cumulative_sum(w: Writer, node: Node, x: str) -> str:
    dtype = w.dtype(Output(node))
    if dtype != w.dtype(node.inputs[0]):
        x = w.cast(x, dtype)
    axis = node.attr("axis")
    if axis is None:
        x, axis = w.add("Reshape", x, w.integers([-1])), 0
    return w.add("CumSum", x, w.constant(int(axis), np.int64), name=node.name)
