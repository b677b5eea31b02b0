"""Batch norm and its relatives."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mxsame import validation
from mxsame.onnx.registry import writes
from mxsame.onnx.rows._shared import must, ndim_of
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node


@writes("batch_norm")
def batch_norm(w: Writer, node: Node, x: str, gamma: str, beta: str, mean: str, variance: str) -> str:
    """With the statistics of training, which is what inference uses."""
    must(node, "output_mean_var", False)
    ndim, dtype = ndim_of(w, node), w.dtype(node.inputs[0])
    axis = int(node.attr("axis", 1)) % ndim if node.op != "_contrib_SyncBatchNorm" else 1
    names, arrays = [gamma, beta, mean, variance], [w.value(source) for source in node.inputs[1:]]
    if node.attr("fix_gamma", True):
        length = w.shape(node.inputs[2])[0].traced
        arrays[0], names[0] = np.ones(length), ""
    names = [
        name if array is None or (name and array.dtype == dtype) else w.constant(array, dtype, f"{node.name}_gamma")
        for name, array in zip(names, arrays)
    ]
    epsilon = float(node.attr("eps", 1e-3))
    order = [0, axis, *(other for other in range(1, ndim) if other != axis)]
    out = w.add("BatchNormalization", w.transposed(x, order), *names, epsilon=epsilon, name=node.name)
    return w.transposed(out, np.argsort(order).tolist())


@writes("_contrib_BatchNormWithReLU")
def batch_norm_relu(w: Writer, node: Node, *inputs: str) -> str:
    return w.add("Relu", batch_norm(w, node, *inputs))


def _standardized(w: Writer, x: str, axes: Sequence[int], epsilon: float, like: Any) -> str:
    """(x - mean) / sqrt(variance + epsilon)."""
    centered = w.add("Sub", x, w.reduced("ReduceMean", x, axes, True))
    variance = w.reduced("ReduceMean", w.add("Mul", centered, centered), axes, True)
    return w.add("Div", centered, w.add("Sqrt", w.add("Add", variance, w.scalar(epsilon, like))))


@writes("LayerNorm")
def layer_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    ndim, epsilon = ndim_of(w, node), float(node.attr("eps", 1e-5))
    axis = int(node.attr("axis", -1)) % ndim
    if axis == ndim - 1 and w.opset >= 17:
        return w.add("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon, name=node.name)
    out = _standardized(w, x, [axis], epsilon, node.inputs[0])
    after = list(range(1, ndim - axis))
    scaled = w.add("Mul", out, w.unsqueezed(gamma, after) if after else gamma)
    return w.add("Add", scaled, w.unsqueezed(beta, after) if after else beta, name=node.name)


@writes("InstanceNorm")
def instance_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    return w.add("InstanceNormalization", x, gamma, beta, epsilon=float(node.attr("eps", 1e-3)), name=node.name)


@writes("GroupNorm")
def group_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    """Each group of channels standardized, then scaled and shifted by one number of its own."""
    grouped = w.add("Reshape", x, w.integers([0, int(node.attr("num_groups", 1)), -1]))
    out = _standardized(w, grouped, [2], float(node.attr("eps", 1e-5)), node.inputs[0])
    out = w.add("Add", w.add("Mul", out, w.unsqueezed(gamma, [1])), w.unsqueezed(beta, [1]))
    shape = w.shape(node.inputs[0])
    if all(length.is_static for length in shape[1:]):
        return w.add("Reshape", out, w.integers([0, *(length.traced for length in shape[1:])]), name=node.name)
    return w.add("Reshape", out, w.add("Shape", x), name=node.name)


@writes("L2Normalization")
def l2_normalization(w: Writer, node: Node, x: str) -> str:
    ndim, mode = ndim_of(w, node), node.attr("mode", "instance")
    axes = {"instance": range(1, ndim), "channel": [1], "spatial": range(2, ndim)}[mode]
    total = w.reduced("ReduceSum", w.add("Mul", x, x), axes, True)
    norm = w.add("Sqrt", w.add("Add", total, w.scalar(float(node.attr("eps", 1e-10)), node.inputs[0])))
    return w.add("Div", x, norm, name=node.name)


@writes("LRN")
def lrn(w: Writer, node: Node, x: str) -> str:
    attrs = {"alpha": node.attr("alpha", 1e-4), "beta": node.attr("beta", 0.75), "bias": node.attr("knorm", 2.0)}
    size = int(node.attr("nsize"))
    if size % 2 == 0:
        raise ValueError(f"nsize must be odd; {validation.received(nsize=size)}")
    return w.add("LRN", x, size=size, name=node.name, **{key: float(v) for key, v in attrs.items()})
