"""oneDNN's fusing of MXNet 1.9.1, kept from what it gets wrong."""

from __future__ import annotations

from typing import Any, Optional

from mxsame._mxnet import mx
from mxsame._rewrite._graph import Graph, Node, Output

LINKS = ("Convolution", "FullyConnected", "BatchNorm", "elemwise_add", "_npi_add")  # where a fused chain can go on


def can_fuse() -> bool:
    """Whether this MXNet was built with oneDNN."""
    return bool(mx.runtime.Features().is_enabled("MKLDNN"))


def fused(graph: Graph) -> Any:
    """The graph's Symbol with chains of operators fused into one.

    A chain goes on through a link that others use too, the graph's own outputs among them, and these then get the
    end of the chain. So such a link gets one user, an identity that is part of no chain. The same stands before a
    normalisation over another axis than the channels: fused, it reads past the end of its parameters.
    """
    apart = Graph.of(graph.symbol(), graph.values, graph.inputs)
    for node, users in apart.users().items():
        if node.op in LINKS and (len(users) > 1 or any(_normalises_another_axis(user.node) for user in users)):
            stop = Node("BlockGrad", f"{node.name}_stop", [Output(node)])
            for user in users:
                apart.connect(user, Output(stop))
    return apart.symbol().optimize_for("MKLDNN")


def _normalises_another_axis(node: Optional[Node]) -> bool:
    return node is not None and node.op == "BatchNorm" and node.attr("axis", 1) != 1
