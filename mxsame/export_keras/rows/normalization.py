"""Batch norm and other normalizations."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import numpy as np

from mxsame.export_keras.writer import Value, Weighted, Writer, writes
from mxsame.exporting.walk import axis_of
from mxsame.rewriting.graph import Node, Output


def scaled(
    w: Writer, node: Node, gamma: Optional[Output], beta: Output, keeps: bool = False
) -> Tuple[Dict[str, Any], Dict[str, Weighted]]:
    """The configuration and the weights of a norm, without those that are frozen and change nothing, unless it `keeps`
    them."""
    given = {"gamma": (gamma, 1.0), "beta": (beta, 0.0)}
    weights = {name: (w.weight(source), neutral) for name, (source, neutral) in given.items() if source is not None}
    needed = {
        name: weight
        for name, (weight, neutral) in weights.items()
        if keeps or not w.is_frozen(weight.source) or (weight.array != neutral).any()
    }
    return {"epsilon": float(node.attr("eps")), "center": "beta" in needed, "scale": "gamma" in needed}, needed


@writes("batch_norm")
def _batch_norm(w: Writer, node: Node, x: Value, gamma: Output, beta: Output, *moving: Output) -> Value:
    """With statistics that training moves, or leaves if they are global."""
    fixed = node.attr("use_global_stats")
    config, weights = scaled(w, node, None if node.attr("fix_gamma") else gamma, beta, keeps=fixed)
    config.update(axis=x.axis(node.attr("axis", 1)), momentum=float(node.attr("momentum")))
    weights.update(zip(("moving_mean", "moving_variance"), map(w.weight, moving)))
    return w.layer("BatchNormalization", config, x, weights=weights, call={"training": False} if fixed else {})


@writes("LayerNorm")
def _layer_norm(w: Writer, node: Node, x: Value, gamma: Output, beta: Output) -> Value:
    config, weights = scaled(w, node, gamma, beta)
    return w.layer("LayerNormalization", {"axis": x.axis(axis_of(w, node)), **config}, x, weights=weights)


@writes("GroupNorm", "InstanceNorm")
def _group_norm(w: Writer, node: Node, x: Value, gamma: Output, beta: Output) -> Value:
    """Keras has a scale for each channel, MXNet's GroupNorm one for each group."""
    (config, weights), channels = scaled(w, node, gamma, beta), w.shape(node.inputs[0])[1].traced
    groups = int(node.attr("num_groups", channels))
    if groups != channels and not all(w.is_frozen(weight.source) for weight in weights.values()):
        raise ValueError("scales of groups must be frozen: Keras trains one for each channel")
    weights = {name: each._replace(array=np.repeat(each.array, channels // groups)) for name, each in weights.items()}
    x = w.last(x)
    return w.layer("GroupNormalization", {"groups": groups, "axis": x.rank - 1, **config}, x, weights=weights)
