"""Batch norm and other normalizations."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np

from mxsame.export_keras.rows.axes import reduced
from mxsame.export_keras.rows.elements import affine
from mxsame.export_keras.writer import Value, Weighted, Writer, writes
from mxsame.exporting.walk import axis_of
from mxsame.rewriting.graph import Node, Output


@writes("batch_norm", "_contrib_BatchNormWithReLU")
def _batch_norm(w: Writer, node: Node, x: Value, gamma: Output, beta: Output, *moving: Output) -> Value:
    """With statistics that training moves, or leaves if they are global."""
    axis = int(node.attr("axis", 1)) % x.rank
    fixed = node.attr("use_global_stats")
    weights = _scaled(w, None if node.attr("fix_gamma") else gamma, beta, keeps=fixed)
    config = {
        "axis": x.axis(axis),
        "momentum": float(node.attr("momentum")),
        "epsilon": float(node.attr("eps")),
        **_given(weights),
    }
    weights.update(zip(("moving_mean", "moving_variance"), map(w.weight, moving)))
    out = w.layer("BatchNormalization", config, x, weights=weights, call={"training": False} if fixed else {})
    return w.layer("Activation", {"activation": "relu"}, out, part="relu") if "ReLU" in node.op else out


def _scaled(w: Writer, gamma: Optional[Output], beta: Output, keeps: bool = False) -> Dict[str, Weighted]:
    """Both weights of a norm, without those that are frozen and change nothing, unless it `keeps` them."""
    given = {"gamma": (gamma, 1.0), "beta": (beta, 0.0)}
    weights = {name: (w.weight(source), neutral) for name, (source, neutral) in given.items() if source is not None}
    return {
        name: weight
        for name, (weight, neutral) in weights.items()
        if keeps or not w.is_frozen(weight.source) or (weight.array != neutral).any()
    }


def _given(weights: Dict[str, Weighted]) -> Dict[str, bool]:
    return {"center": "beta" in weights, "scale": "gamma" in weights}


@writes("LayerNorm")
def _layer_norm(w: Writer, node: Node, x: Value, gamma: Output, beta: Output) -> Value:
    weights = _scaled(w, gamma, beta)
    config = {"axis": x.axis(axis_of(w, node)), "epsilon": float(node.attr("eps")), **_given(weights)}
    return w.layer("LayerNormalization", config, x, weights=weights)


@writes("GroupNorm", "InstanceNorm")
def _group_norm(w: Writer, node: Node, x: Value, gamma: Output, beta: Output) -> Value:
    """Keras has a scale for each channel, MXNet's GroupNorm one for each group."""
    weights, channels = _scaled(w, gamma, beta), w.shape(node.inputs[0])[1].traced
    groups = int(node.attr("num_groups")) if node.op == "GroupNorm" else channels
    if groups != channels and not all(w.is_frozen(weight.source) for weight in weights.values()):
        raise ValueError("scales of groups must be frozen: Keras trains one for each channel")
    weights = {name: each._replace(array=np.repeat(each.array, channels // groups)) for name, each in weights.items()}
    x = w.last(x)
    config: Dict[str, Any] = {"groups": groups, "axis": x.rank - 1, **_given(weights)}
    config["epsilon"] = float(node.attr("eps"))
    return w.layer("GroupNormalization", config, x, weights=weights)


@writes("L2Normalization")
def _l2_normalization(w: Writer, node: Node, x: Value) -> Value:
    axes = {"instance": range(1, x.rank), "channel": [1], "spatial": range(2, x.rank)}[node.attr("mode")]
    total = reduced(w, w.layer("Multiply", {}, x, x, part="square"), "sum", list(axes), keepdims=True)
    length = w.operator("Sqrt", affine(w, total, 1.0, float(node.attr("eps")), part="epsilon"))
    return w.operator("Divide", *w.alike(x, length))
