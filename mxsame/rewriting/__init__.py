"""Graphs rewritten for inference: the same values from fewer and better steps.

A `Graph` is a Symbol taken apart, with the arrays of its parameters. Each other file has one kind of rewriting and
changes a graph in place; none depends on the layer that a node came from.
"""

from __future__ import annotations

from typing import Callable, NamedTuple

from mxsame.rewriting._batch_norm import convolve
from mxsame.rewriting._batch_norm import fold as fold_scales
from mxsame.rewriting._canonical import canonicalize, drop, separate
from mxsame.rewriting._constants import fold as fold_constants
from mxsame.rewriting._graph import Graph, Node, Output, entries, taken
from mxsame.rewriting._onednn import fused, protect
from mxsame.rewriting._sinking import sink
from mxsame.rewriting._windows import (
    WITH_WINDOWS,
    Windowed,
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


class Pass(NamedTuple):
    """A kind of rewriting, and the reason for its place among the others."""

    run: Callable[[Graph], None]
    reason: str
    only_fused: bool = False  # for oneDNN, in float32


PASSES = (
    Pass(drop, "what changes nothing hides from every other pass what is next to each other"),
    Pass(canonicalize, "the passes below look for one operator where MXNet has several"),
    Pass(fold_constants, "a weight that is computed is a parameter before anything is folded into it"),
    Pass(fold_scales, "what is folded is no longer in the way of slices and transposes"),
    Pass(sink, "only what could not be folded is worth another convolution"),
    Pass(convolve, "it makes convolutions that nothing should be folded into", only_fused=True),
    Pass(separate, "an output may have become a parameter, or another output"),
)


def simplify(graph: Graph, fuses: bool) -> None:
    """All passes, in their order; `fuses` is whether oneDNN will run the graph, in float32."""
    for each in PASSES:
        if fuses or not each.only_fused:
            each.run(graph)
    graph.prune()
