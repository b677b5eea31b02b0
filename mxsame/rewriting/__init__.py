"""Graphs rewritten for inference: the same values from fewer and better steps.

A `Graph` is a Symbol taken apart, with the arrays of its parameters. Each other file has one kind of rewriting and
changes a graph in place; none depends on the layer that a node came from.
"""

from __future__ import annotations

from typing import Callable, NamedTuple

from mxsame.rewriting import batch_norm, canonical, constants, sinking
from mxsame.rewriting.graph import Graph

__all__ = ["simplify"]


class Pass(NamedTuple):
    """A kind of rewriting, and the reason for its place among the others."""

    run: Callable[[Graph], None]
    reason: str
    only_fused: bool = False  # for oneDNN, in float32


PASSES = (
    Pass(canonical.drop, "what changes nothing hides from every other pass what is next to each other"),
    Pass(canonical.canonicalize, "the passes below look for one operator where MXNet has several"),
    Pass(constants.fold, "a weight that is computed is a parameter before anything is folded into it"),
    Pass(batch_norm.fold, "what is folded is no longer in the way of slices and transposes"),
    Pass(sinking.sink, "only what could not be folded is worth another convolution"),
    Pass(batch_norm.convolve, "it makes convolutions that nothing should be folded into", only_fused=True),
    Pass(canonical.separate, "an output may have become a parameter, or another output"),
)


def simplify(graph: Graph, fuses: bool) -> None:
    """All passes, in their order; `fuses` is whether oneDNN will run the graph, in float32."""
    for each in PASSES:
        if fuses or not each.only_fused:
            each.run(graph)
    graph.prune()
