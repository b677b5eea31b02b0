"""Sums that MXNet's executor lets convolutions carry out.

`_grad_add` is what MXNet adds up gradients by. Its executor gives the second operand's node the memory of the first to
add to, and leaves the sum out (`DetectInplaceAddTo`, src/executor/inplace_addto_detect_pass.cc of MXNet 1.9.1), where

- the first operand is no input, and its memory is needed by nobody later (src/nnvm/plan_memory.cc): not by users of
  it, of its views or of what was added to it, nor as an output of the graph;
- the second is used nowhere else. It has to be a convolution, which alone adds what it gives (cuDNN's beta = 1), and
  one that does not read the memory that it adds to.

`fold` writes sums so that this holds, with copies by convolutions where it must; `broken` says where it does not.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from mxsame._rewrite._graph import Graph, Node, Output

SUM = "_grad_add"
VIEWS = ("Reshape", "Flatten", "expand_dims", "_np_reshape", "_npx_reshape", "_copy")  # they share memory
Copied = Callable[
    [str, Output], Optional[Output]
]  # (name, output) -> a convolution that copies it, if there can be one


def merge(graph: Graph) -> None:
    """One node for all that compute the same. An executor does so too (`EliminateCommonExpr`), and what it merges must
    not be what was found to be used once."""
    seen: Dict[tuple, Node] = {}
    for node in graph.nodes():
        if node.op != "null":
            same = seen.setdefault((node.op, tuple(sorted(node.attrs.items())), tuple(node.inputs)), node)
            if same is not node:
                for user in graph.users()[node]:
                    graph.connect(user, Output(same, _output_of(graph, user).index))


def _output_of(graph: Graph, user: Any) -> Output:
    return (graph.outputs if user.node is None else user.node.inputs)[user.place]


def fold(graph: Graph, sums: List[Node], copied: Copied) -> None:
    """Make these nodes, sums of two arrays of one shape, sums that cost no operator; those that cannot be stay."""
    for node in sums:  # all first, since who comes first tells who is needed later
        first, second = node.inputs
        if _may_add(graph, node, first, second) and not _may_add(graph, node, second, first):
            node.inputs = [second, first]
    for node in sums:
        first, second = node.inputs
        node.op, node.attrs = SUM, {}
        if not _may_add(graph, node, second, first):
            second = copied(f"{node.name}_second", second) or second
        node.inputs = [first, second]
        if _breaks(graph, node):
            node.inputs = [copied(f"{node.name}_first", first) or first, second]


def broken(graph: Graph) -> List[Node]:
    """The sums that an executor would have to carry out by itself."""
    return [node for node in graph.nodes() if node.op == SUM and _breaks(graph, node)]


def _may_add(graph: Graph, node: Node, adds: Output, to: Output) -> bool:
    """Whether an operand is a convolution's output for this sum alone, and the convolution does not read the other."""
    return (
        adds.node.op == "Convolution"
        and len(graph.users()[adds.node]) == 1
        and all(_memory(source.node) is not _memory(to.node) for source in adds.node.inputs)
    )


def _breaks(graph: Graph, node: Node) -> bool:
    """Whether a sum is none that an executor leaves out."""
    first, second = node.inputs
    memory = _memory(first.node)
    if memory.op == "null" or not _may_add(graph, node, second, first):
        return True
    order = {each: place for place, each in enumerate(graph.nodes())}
    return any(
        user.node is None or order[user.node] > order[node]
        for each in order
        if order[each] < order[node] and _memory(each) is memory
        for user in graph.users()[each]
    )


def _memory(node: Node) -> Node:
    """The node whose output's memory a node's output has."""
    while node.op in (SUM, *VIEWS):
        node = node.inputs[0].node
    return node
