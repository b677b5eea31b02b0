"""Batch norm and other normalizations."""

from __future__ import annotations

import numpy as np

from mxsame.exporting.walk import axis_of, ndim_of
from mxsame.onnx.rows._shared import Array, writes
from mxsame.onnx.writer import Writer
from mxsame.rewriting.graph import Node

TRAINING = "momentum|use_global_stats"  # what inference does not use


@writes("batch_norm", unread=TRAINING)
def batch_norm(w: Writer, node: Node, x: str, gamma: str, beta: str, mean: str, variance: str) -> str:
    """With the statistics of training, which is what inference uses."""
    ndim, dtype = ndim_of(w, node), w.dtype(node.inputs[0])
    axis = int(node.attr("axis", 1)) % ndim_of(w, node)
    names, arrays = [gamma, beta, mean, variance], [w.graph.value(source) for source in node.inputs[1:]]
    if node.attr("fix_gamma"):
        arrays[0], names[0] = np.ones(w.shape(node.inputs[2])[0].traced), ""
    names = [
        name if array is None or (name and array.dtype == dtype) else w.constant(array, dtype)
        for name, array in zip(names, arrays)
    ]
    epsilon = float(node.attr("eps"))
    order = [0, axis, *(other for other in range(1, ndim) if other != axis)]
    out = w.add("BatchNormalization", w.transposed(x, order), *names, epsilon=epsilon)
    return w.transposed(out, np.argsort(order).tolist())


@writes("LayerNorm")
def layer_norm(w: Writer, node: Node, name: str, gamma: str, beta: str) -> str:
    """(x - mean) / sqrt(variance + epsilon), scaled and shifted."""
    ndim, axis, epsilon = ndim_of(w, node), axis_of(w, node), float(node.attr("eps"))
    if axis == ndim - 1 and w.opset >= 17:
        return w.add("LayerNormalization", name, gamma, beta, axis=-1, epsilon=epsilon)

    def array(name: str) -> Array:
        return Array(w, node.inputs[0], name)

    after = list(range(1, ndim - axis))
    scale, shift = (array(w.unsqueezed(each, after) if after else each) for each in (gamma, beta))
    centered = array(name) - array(name).reduced("ReduceMean", [axis])
    variance = (centered * centered).reduced("ReduceMean", [axis])
    return (centered / (variance + epsilon)("Sqrt") * scale + shift).name


@writes("GroupNorm")
def group_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    """Each group of channels standardized, then scaled and shifted by one number of its own."""
    grouped = w.add("Reshape", x, w.integers([0, int(node.attr("num_groups")), -1]))
    out = w.add("InstanceNormalization", grouped, gamma, beta, epsilon=float(node.attr("eps")))
    return w.add("Reshape", out, w.lengths(w.shape(node.inputs[0]), x))
