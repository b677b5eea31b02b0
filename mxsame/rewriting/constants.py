"""Constant folding: operators that depend only on parameters are computed once, and their outputs become parameters."""

from __future__ import annotations

from typing import Set

from mxsame.rewriting.graph import Graph, Node

DISTRIBUTIONS = (
    *("bernoulli", "choice", "exponential", "gamma", "gumbel", "logistic", "multinomial", "normal"),
    *("normal_n", "pareto", "powerd", "rayleigh", "shuffle", "uniform", "uniform_n", "weibull"),
)
NON_DETERMINISTIC = {
    *("Dropout", "Custom", "_npi_Custom", "_CustomFunction", "_shuffle"),
    *(f"_npi_{name}" for name in DISTRIBUTIONS),
}
RANDOM_PREFIXES = ("_random_", "_sample_", "_npi_random_", "_image_random_", "_npx__image_random_")


def fold(graph: Graph) -> None:
    """Replace every used output of a constant operator by its value."""
    constant: Set[Node] = set()
    for node in graph.nodes():
        sources = (source for source, _ in node.inputs)
        if node.name in graph.values if node.op == "null" else is_pure(node) and constant.issuperset(sources):
            constant.add(node)
    used = [source for node in graph.nodes() if node not in constant for source in node.inputs]
    needed = [each for each in dict.fromkeys(used + graph.outputs) if each.node in constant and each.node.op != "null"]
    if needed:
        folded = zip(needed, graph.run(needed))
        graph.replace({each: graph.constant(f"{each.node.name}_value", value) for each, value in folded})


def is_pure(node: Node) -> bool:
    """Returns whether an operator computes its outputs from inputs, and from nothing else."""
    return bool(node.inputs) and node.is_defined_by_attributes and is_deterministic(node)


def is_deterministic(node: Node) -> bool:
    """Returns whether an operator is deterministic; loops count as non-deterministic."""
    is_random = node.op in NON_DETERMINISTIC or node.op.startswith(RANDOM_PREFIXES)
    return not is_random and not node.other_fields.get("subgraphs")
