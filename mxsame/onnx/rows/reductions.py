"""Sums over axes: reductions, dense layers and products of matrices."""

from __future__ import annotations

import math
from typing import Optional, Sequence

import numpy as np

from mxsame.exporting.walk import axes_of, axis_of, ndim_of
from mxsame.onnx.rows._shared import number, writes
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node, Output


def _reduced(w: Writer, node: Node, op: str, x: str, axes: Sequence[int]) -> str:
    keepdims = node.attr("keepdims")
    out = w.reduced(op, x, axes, keepdims)
    return number(w, node, out) if len(axes) == ndim_of(w, node) and not keepdims else out


REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}


@writes(*REDUCTIONS)
def reduction(w: Writer, node: Node, x: str) -> str:
    axes = axes_of(w, node)
    return _reduced(w, node, REDUCTIONS[node.kind], x, axes) if axes else x


@writes("norm")
def norm(w: Writer, node: Node, x: str) -> str:
    order = {1: "ReduceL1", 2: "ReduceL2"}[int(node.attr("ord"))]
    return _reduced(w, node, order, x, axes_of(w, node))


@writes("argmax", "argmin")
def argument(w: Writer, node: Node, x: str) -> str:
    """The position of the largest or smallest element, as a float."""
    op = {"argmax": "ArgMax", "argmin": "ArgMin"}[node.kind]
    axis, keepdims = axis_of(w, node), node.attr("keepdims")
    positions = w.cast(w.add(op, x, axis=axis, keepdims=int(keepdims)), w.dtype(Output(node)))
    return number(w, node, positions) if ndim_of(w, node) == 1 and not keepdims else positions


@writes("_np_cumsum", unread="dtype")
def cumulative_sum(w: Writer, node: Node, x: str) -> str:
    dtype = w.dtype(Output(node))
    if dtype != w.dtype(node.inputs[0]):
        x = w.cast(x, dtype)
    axis = node.attr("axis")
    if axis is None:
        x, axis = w.add("Reshape", x, w.integers([-1])), 0
    return w.add("CumSum", x, w.constant(int(axis), np.int64))


@writes("FullyConnected")
def dense(w: Writer, node: Node, x: str, weight: str, bias: Optional[str] = None) -> str:
    """x W^T + b; with `flatten` x is a matrix, without it only its last axis changes."""
    ndim = ndim_of(w, node)
    if node.attr("flatten") and ndim != 2:
        if not all(length.is_static for length in w.shape(node.inputs[0])[1:]):
            raise ValueError("the data must have static lengths apart from its batch")
        x = w.add("Flatten", x, axis=1)
        ndim = 2
    if ndim == 2:
        return w.add("Gemm", x, weight, bias, transB=1)
    value = w.graph.value(node.inputs[1])
    matrix = w.constant(value.T) if value is not None else w.transposed(weight, (1, 0))
    if bias is None:
        return w.add("MatMul", x, matrix)
    return w.add("Add", w.add("MatMul", x, matrix), bias)


@writes("batch_dot", "dot", "_linalg_gemm2")
def matrix_product(w: Writer, node: Node, x: str, y: str) -> str:
    """The product of two arrays, each with its last two axes swapped or not."""
    for position, name in enumerate(("transpose_a", "transpose_b")):
        ndim = len(w.shape(node.inputs[position]))
        if node.attr(name, False) and ndim > 1:
            axes = [*range(ndim - 2), ndim - 1, ndim - 2]
            x, y = (w.transposed(x, axes), y) if position == 0 else (x, w.transposed(y, axes))
    most = 2 if node.op == "dot" and node.attr("transpose_a") else math.inf
    if len(w.shape(node.inputs[0])) > most or (node.op == "dot" and len(w.shape(node.inputs[1])) > 2):
        raise ValueError("data must have at most two axes")
    product = w.add("MatMul", x, y)
    if all(len(w.shape(source)) == 1 for source in node.inputs):
        product = number(w, node, product)
    alpha = float(node.attr("alpha", 1.0))
    return product if alpha == 1 else w.add("Mul", product, w.scalar(alpha, node.inputs[0]))
