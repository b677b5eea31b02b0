"""Graphs rewritten for inference: the same values from fewer and better steps.

A `Graph` is a Symbol taken apart, with the arrays of its parameters. Each other file has one kind of rewriting and
changes a graph in place; none depends on the layer that a node came from. `simplify` is all of them, in the order in
which one prepares the next.
"""

from __future__ import annotations

from typing import Any

from mxsame.rewriting import _batch_norm, _canonical, _constants, _sinking
from mxsame.rewriting._canonical import drop, separate
from mxsame.rewriting._graph import Graph, Node, Output, entries, taken
from mxsame.rewriting._onednn import fused, protect
from mxsame.rewriting._windows import (
    WITH_WINDOWS,
    Windowed,
    data_of,
    has_windows,
    is_channels_first,
    note,
    spatial,
    windowed,
    windows,
)

__all__ = [
    "WITH_WINDOWS",
    "Graph",
    "Node",
    "Output",
    "Windowed",
    "data_of",
    "drop",
    "entries",
    "fused",
    "has_windows",
    "is_channels_first",
    "note",
    "protect",
    "separate",
    "simplify",
    "spatial",
    "taken",
    "windowed",
    "windows",
]


def simplify(graph: Graph, context: Any, fuses: bool) -> None:
    """Leave what inference needs; `fuses` is whether oneDNN will run it, in float32."""
    _canonical.drop(graph)
    _canonical.canonicalize(graph)
    _constants.fold(graph, context)
    _batch_norm.fold(graph)
    _sinking.sink(graph)
    if fuses:
        _batch_norm.convolve(graph)
    _canonical.separate(graph)
    graph.prune()
