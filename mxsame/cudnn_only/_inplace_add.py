"""In-place additions: MXNet's executor lets convolutions carry them out.

`_grad_add` is the operator by which MXNet adds up gradients. Its executor gives the second operand's node the memory of
the first to add to, and leaves the addition out (`DetectInplaceAddTo`, src/executor/inplace_addto_detect_pass.cc of
MXNet 1.9.1), if

- the first operand is no input, and nothing needs its memory later (src/nnvm/plan_memory.cc): no user of it, of its
  views or of what was added to it, and it is no output of the graph;
- the second is used nowhere else. It must be a convolution, the only operator that can add to its output (cuDNN's
  beta = 1), and one that does not read the memory that it adds to.

`fold` writes additions so that this holds, with copies by convolutions where they are needed; `broken` finds those for
which it does not hold.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional

from mxsame.rewriting import Graph, Node, Output

ADD = "_grad_add"
VIEWS = ("Reshape", "Flatten", "expand_dims", "_np_reshape", "_npx_reshape", "_copy", "BlockGrad")  # they share memory
Copied = Callable[[str, Output], Optional[Output]]  # (name, output) -> a convolution that copies it, if possible


def merge(graph: Graph) -> None:
    """One node for all that compute the same. An executor does so too (`EliminateCommonExpr`), and after that a node
    could have more users than it has here."""
    seen: Dict[tuple, Node] = {}
    for node in graph.nodes():
        if node.op != "null":
            same = seen.setdefault((node.op, tuple(sorted(node.attrs.items())), tuple(node.inputs)), node)
            if same is not node:
                for user in graph.users()[node]:
                    graph.connect(user, Output(same, graph.used_by(user.node)[user.position].index))


def fold(graph: Graph, additions: List[Node], copied: Copied) -> None:
    """Make these nodes, additions of two arrays of one shape, in-place ones, if that is possible."""
    for node in additions:  # all first, since their order decides which memory is needed later
        first, second = node.inputs
        if _may_add(graph, node, first, second) and not _may_add(graph, node, second, first):
            node.inputs = [second, first]
    for node in additions:
        first, second = node.inputs
        node.op, node.attrs = ADD, {}
        if not _may_add(graph, node, second, first):
            second = copied(f"{node.name}_second", second) or second
        node.inputs = [first, second]
        if _breaks(graph, node):
            node.inputs = [copied(f"{node.name}_first", first) or first, second]


def broken(graph: Graph) -> List[Node]:
    """The additions that an executor would have to carry out by itself."""
    return [node for node in graph.nodes() if node.op == ADD and _breaks(graph, node)]


def _may_add(graph: Graph, node: Node, adds: Output, to: Output) -> bool:
    """Whether an operand is the output of a convolution that only this addition uses and that does not read the other
    operand."""
    return (
        adds.node.op == "Convolution"
        and len(graph.users()[adds.node]) == 1
        and all(_memory(source.node) is not _memory(to.node) for source in adds.node.inputs)
    )


def _breaks(graph: Graph, node: Node) -> bool:
    """Whether an executor would carry out an addition by itself."""
    first, second = node.inputs
    memory = _memory(first.node)
    if memory.op == "null" or not _may_add(graph, node, second, first):
        return True
    order = {each: position for position, each in enumerate(graph.nodes())}
    return any(
        user.node is None or order[user.node] > order[node]
        for each in order
        if order[each] < order[node] and _memory(each) is memory
        for user in graph.users()[each]
    )


def _memory(node: Node) -> Node:
    """The node whose memory a node's output is in."""
    while node.op in (ADD, *VIEWS):
        node = node.inputs[0].node
    return node
