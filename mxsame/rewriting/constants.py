"""Operators that depend on parameters only are computed once, and their outputs become parameters."""

from __future__ import annotations

from typing import List

from mxsame.rewriting.graph import Graph, Node, Output
from mxsame.target import NOTE

IMPURE = (
    *("random", "sample", "shuffle", "Dropout", "Custom", "uniform", "normal", "bernoulli", "choice", "multinomial"),
    *("laplace", "gumbel", "logistic", "exponential", "gamma", "pareto", "rayleigh", "weibull", "powerd"),
)


def fold(graph: Graph) -> None:
    """Evaluate the outputs of constant operators that other operators use."""
    constant = set()
    for node in graph.nodes():
        if node.name in graph.values if node.op == "null" else _is_pure(node) and constant.issuperset(_sources(node)):
            constant.add(node)
    needed: List[Output] = []
    for user in [*(node for node in graph.nodes() if node not in constant), None]:
        needed += [
            out for out in graph.used_by(user) if out.node in constant and out.node.op != "null" and out not in needed
        ]
    if not needed:
        return
    users = graph.users()
    for output, value in zip(needed, graph.run(needed)):
        folded = graph.constant(f"{output.node.name}_value", value)
        for user in users[output.node]:
            if graph.used_by(user.node)[user.position] == output:
                graph.connect(user, folded)


def _sources(node: Node) -> List[Node]:
    return [source for source, _ in node.inputs]


def _is_pure(node: Node) -> bool:
    """Whether a node with inputs has the same outputs at every run."""
    return (
        bool(node.inputs)
        and NOTE not in node.attrs
        and not node.more.get("subgraphs")
        and not any(word in node.op for word in IMPURE)
    )
