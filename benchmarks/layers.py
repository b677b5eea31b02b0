"""Layers, compared with MXNet's own operator of the same kernel and symmetric padding: the baseline.

Variants: those of `variants.py`, and what others do.
"""

from __future__ import annotations

from typing import Any, Dict

from benchmarks import results
from benchmarks.timing import measure as timed
from benchmarks.variants import Layer, call, explicit, inputs, same, symmetric

OURS, DYNAMIC = "mxsame, static shape", "mxsame, dynamic shape"
LAYERS = [
    Layer("stem k3 s2, batch 1", "conv", 3, (224, 224), 32, 3, 2, batch=1),
    Layer("stem k3 s2", "conv", 3, (224, 224), 32, 3, 2),
    Layer("stem k7 s2, batch 1", "conv", 3, (224, 224), 64, 7, 2, batch=1),
    Layer("stem k7 s2", "conv", 3, (224, 224), 64, 7, 2),
    Layer("conv 64-128 k3 s2", "conv", 64, (112, 112), 128, 3, 2),
    Layer("conv 128-128 k3 s2, batch 1", "conv", 128, (56, 56), 128, 3, 2, batch=1),
    Layer("conv 128-128 k3 s2", "conv", 128, (56, 56), 128, 3, 2),
    Layer("conv 256-256 k3 s2", "conv", 256, (28, 28), 256, 3, 2),
    Layer("conv 512-512 k3 s2", "conv", 512, (14, 14), 512, 3, 2),
    Layer("conv 64-64 k3 s1", "conv", 64, (56, 56), 64, 3, 1),
    Layer("conv 128-256 k1 s2", "conv", 128, (56, 56), 256, 1, 2),
    Layer("conv 192-192 k1x7 s1 (Inception)", "conv", 192, (17, 17), 192, (1, 7), 1),
    Layer("conv 64-64 k2 s1", "conv", 64, (56, 56), 64, 2, 1),
    Layer("conv 64-64 k4 s1", "conv", 64, (56, 56), 64, 4, 1),
    Layer("conv 16-8 k3 s2 (autoencoder)", "conv", 16, (28, 28), 8, 3, 2),
    Layer("depthwise 64 k3 s2", "depthwise", 64, (112, 112), 64, 3, 2),
    Layer("depthwise 64 k3 s2, batch 1", "depthwise", 64, (112, 112), 64, 3, 2, batch=1),
    Layer("depthwise 728 k3 s1 (Xception)", "depthwise", 728, (19, 19), 728, 3, 1),
    Layer("depthwise 144 k5 s2", "depthwise", 144, (56, 56), 144, 5, 2),
    Layer("depthwise 144 k3 s2", "depthwise", 144, (56, 56), 144, 3, 2),
    Layer("depthwise 480 k5 s2", "depthwise", 480, (14, 14), 480, 5, 2),
    Layer("max pool 64 k3 s2", "max", 64, (112, 112), 64, 3, 2),
    Layer("max pool 128 k3 s2", "max", 128, (73, 74), 128, 3, 2),
    Layer("max pool 64 k2 s2", "max", 64, (55, 55), 64, 2, 2),
    Layer("max pool 64 k2 s1", "max", 64, (56, 56), 64, 2, 1),
    Layer("max pool 192 k3 s1", "max", 192, (28, 28), 192, 3, 1),
    Layer("avg pool 192 k3 s1", "avg", 192, (28, 28), 192, 3, 1),
    Layer("avg pool 64 k2 s2", "avg", 64, (55, 55), 64, 2, 2),
    Layer("avg pool 64 k2 s1", "avg", 64, (56, 56), 64, 2, 1),
    Layer("audio conv 1-64 k10 s5", "conv", 1, (16000,), 64, 10, 5),
    Layer("audio conv 64-64 k8 s4", "conv", 64, (4000,), 64, 8, 4),
    Layer("video conv 3-32 k3 s2", "conv", 3, (16, 56, 56), 32, 3, 2, batch=2),
    Layer("transposed 64-32 k2 s2", "transposed", 64, (28, 28), 32, 2, 2),
    Layer("transposed 64-32 k3 s2", "transposed", 64, (28, 28), 32, 3, 2),
    Layer("transposed 64-32 k4 s2", "transposed", 64, (28, 28), 32, 4, 2),
]


def variants(layer: Layer) -> Dict[str, Any]:
    """Nets by name, hybridized; "symmetric" is the baseline."""
    nets = {"symmetric": symmetric(layer), OURS: same(layer, static=True), DYNAMIC: same(layer, static=False)}
    return nets if layer.kind == "transposed" else {**nets, "explicit pad": explicit(layer)}


def measure(layer: Layer, train: bool = False, **timing: Any) -> dict:
    """One row: every variant compared with the baseline."""
    data = inputs(layer, train)
    figures = timed({name: call(net, data, train) for name, net in variants(layer).items()}, **timing)
    mode = "forward and backward" if train else "forward"
    return results.row(layer.name, mode, figures, "symmetric", odd=layer.odd, batch=layer.batch)
