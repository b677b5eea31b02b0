"""Graphs rewritten for inference: the same values from fewer and better steps.

A `Graph` is a Symbol taken apart, with the arrays of its parameters. Each other file knows one kind of rewriting and
changes a graph in place; none knows what layer a node came from. `simplify` is all of them, in the order in which
one opens the way for the next.
"""

from __future__ import annotations

from typing import Any

from mxsame._rewrite import _constants, _identities, _movements, _scales
from mxsame._rewrite._cudnn import confine, differentiable
from mxsame._rewrite._fusing import can_fuse, fused
from mxsame._rewrite._graph import Graph

__all__ = ["Graph", "can_fuse", "confine", "differentiable", "fused", "simplify"]


def simplify(graph: Graph, context: Any, fuses: bool) -> None:
    """Inference needs no more than what this leaves; `fuses` says whether oneDNN will run it, in float32."""
    _identities.drop(graph)
    _identities.spell(graph)
    _constants.fold(graph, context)
    _scales.fold(graph)
    _movements.sink(graph)
    if fuses:
        _scales.convolve(graph)
    _identities.separate(graph)
    graph.prune()
