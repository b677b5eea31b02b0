"""Layers, compared with MXNet's own operator of the same kernel and symmetric padding: the baseline.

Variants: those of `variants.py`, and what others do.
"""

from __future__ import annotations

from typing import Any, Dict

from benchmarks import results
from benchmarks.timing import measure as timed
from benchmarks.variants import Layer, call, explicit, inputs, same, symmetric, table

OURS, DYNAMIC = "mxsame, static shape", "mxsame, dynamic shape"
LAYERS = table("known networks")


def variants(layer: Layer) -> Dict[str, Any]:
    """Nets by name, hybridized; "symmetric" is the baseline."""
    nets = {"symmetric": symmetric(layer), OURS: same(layer, static=True), DYNAMIC: same(layer, static=False)}
    return nets if layer.kind == "transposed" else {**nets, "explicit pad": explicit(layer)}


def measure(layer: Layer, train: bool = False, **timing: Any) -> dict:
    """One row: every variant compared with the baseline."""
    data = inputs(layer, train)
    figures = timed({name: call(net, data, train) for name, net in variants(layer).items()}, **timing)
    mode = "forward and backward" if train else "forward"
    return results.row(layer.name, mode, figures, "symmetric", batch=layer.batch)
