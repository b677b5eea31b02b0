"""Dense layers and products of matrices."""

from __future__ import annotations

from typing import Optional

from mxsame.onnx.registry import writes
from mxsame.onnx.rows._shared import must, ndim_of, number
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node


@writes("FullyConnected")
def dense(w: Writer, node: Node, x: str, weight: str, bias: Optional[str] = None) -> str:
    """x W^T + b; with `flatten` x is a matrix, without it only its last axis changes."""
    ndim = ndim_of(w, node)
    if node.attr("flatten", True) and ndim != 2:
        shape = w.shape(node.inputs[0])
        if all(length.is_static for length in shape[1:]):
            x = w.add("Flatten", x, axis=1)
        else:
            raise ValueError("the data must have static lengths apart from its batch")
        ndim = 2
    if ndim == 2:
        return w.add("Gemm", x, weight, bias, name=node.name, transB=1)
    value = w.value(node.inputs[1])
    matrix = w.constant(value.T, name=weight) if value is not None else w.transposed(weight, (1, 0))
    if bias is None:
        return w.add("MatMul", x, matrix, name=node.name)
    return w.add("Add", w.add("MatMul", x, matrix), bias, name=node.name)


@writes("batch_dot", "dot", "_linalg_gemm2")
def matrix_product(w: Writer, node: Node, x: str, y: str) -> str:
    """Of two arrays, each with its last two axes swapped or not."""
    must(node, "axis", -2)
    for position, name in enumerate(("transpose_a", "transpose_b")):
        ndim = len(w.shape(node.inputs[position]))
        if node.attr(name, False) and ndim > 1:
            axes = [*range(ndim - 2), ndim - 1, ndim - 2]
            x, y = (w.transposed(x, axes), y) if position == 0 else (x, w.transposed(y, axes))
    if node.op == "dot" and max(len(w.shape(source)) for source in node.inputs) > 2:
        raise ValueError("data must have at most two axes")
    product = w.add("MatMul", x, y, name=node.name)
    if all(len(w.shape(source)) == 1 for source in node.inputs):
        product = number(w, node, product)
    alpha = float(node.attr("alpha", 1.0))
    return product if alpha == 1 else w.add("Mul", product, w.scalar(alpha, node.inputs[0]))
