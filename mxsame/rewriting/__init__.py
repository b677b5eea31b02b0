"""Graphs rewritten for inference and training: the same values from fewer and better steps.

A `Graph` is a Symbol taken apart, with the arrays of its parameters. Each other file has one kind of rewriting and
changes a graph in place; none depends on the layer that a node came from.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from mxsame.rewriting import batch_norm, canonical, constants, onednn, sinking, training, widening
from mxsame.rewriting.graph import Graph
from mxsame.scope import Target

__all__ = ["prepare", "simplify"]


def prepare(symbol: Any, shapes: Mapping[str, Sequence[int]], target: Target) -> Any:
    """Returns a net's graph as it comes from its layers, for inputs of these shapes, made to run right, and fast."""
    trains = target.purpose == "training"
    speeds_up = target.device == "cpu" and (trains or target.purpose == "inference")
    changed = {*onednn.SOFTMAX, onednn.LOOP}.union(["clip"] * speeds_up, ["Convolution"] * (speeds_up and trains))
    written = symbol.tojson()
    if not any(f'"op": "{op}"' in written for op in changed):
        return symbol
    graph = Graph.of(symbol, {}, shapes)
    onednn.copy_before_softmax(graph)
    if target.purpose != "format":
        onednn.wait_before_loops(graph)
    if speeds_up:
        training.speed_up(graph, trains)
    return graph.symbol()


def simplify(graph: Graph, fuses: bool) -> None:
    """Runs all passes, in their order; `fuses` is whether oneDNN will run the graph, in float32."""
    canonical.drop(graph)  # identities would hide from the other passes which operators are next to each other
    canonical.canonicalize(graph)  # the passes below look for one name where MXNet has several operators
    canonical.bound(graph)
    constants.fold(graph)  # a weight that is computed is a parameter before anything is folded into it
    batch_norm.fold(graph)  # a batch norm that is folded is no longer in the way of slices and transposes
    sinking.sink(graph)  # only batch norms that could not be folded become convolutions
    if fuses:
        batch_norm.convolve(graph)  # after folding, which must not fold anything into these convolutions
        widening.widen(graph)
    canonical.separate(graph)  # an output may have become a parameter, or another output
    graph.prune()
