"""oneDNN's operator fusion in MXNet 1.9.1, and barriers that keep it correct."""

from __future__ import annotations

from typing import Any, Optional

from mxsame.rewriting.graph import Graph, Node, Output

LINKS = ("Convolution", "FullyConnected", "batch_norm", "add")  # after which a fused chain may continue


def protect(graph: Graph) -> None:
    """Put barriers where MXNet would fuse wrongly, in `optimize_for` or in an executor, which fuses by default.

    MXNet continues a chain after a link that has other users, the graph's own outputs among them, and these then get
    the output of the whole chain. So such a link gets one user that is in no chain: BlockGrad, an identity that runs in
    place on oneDNN's arrays (MXNet drops `_copy` before it fuses). A batch norm of another axis than the channels gets
    one before it, as it reads past the end of its parameters if it is fused. And an addition has its convolution first,
    as in the fused operator: a block's `optimize_for` takes the shapes of parameters in the order before the fusion.
    """
    for node, users in graph.users().items():
        users = [user for user in users if not graph.used_by(user.node)[user.position].index]
        if node.kind in LINKS and (len(users) > 1 or any(_is_over_another_axis(user.node) for user in users)):
            barrier = Output(Node("BlockGrad", f"{node.name}_shared", [Output(node)]))
            for user in users:
                graph.connect(user, barrier)
    for node in graph.nodes():
        if node.kind == "add" and [source.node.op == "Convolution" for source in node.inputs] == [False, True]:
            node.inputs.reverse()


def _is_over_another_axis(node: Optional[Node]) -> bool:
    return node is not None and node.op == "BatchNorm" and node.attr("axis", 1) != 1


def fused(graph: Graph) -> Any:
    """The Symbol of a protected graph, with chains of operators fused into one."""
    return graph.symbol().optimize_for("MKLDNN")
