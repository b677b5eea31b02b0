"""Functions that build the operators which several passes add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Sequence

from mxsame.plan.arrays import REQUIRED_COPY
from mxsame.rewriting.graph import Graph, Output, operator

if TYPE_CHECKING:
    from mxsame._mxnet import Symbol


def full(name: str, shape: Sequence[int], value: float) -> Output:
    """Returns a constant array of this shape and value, in float32."""
    return operator("_full", f"{name}_full", shape=shape, value=value, dtype="float32")


def depthwise_attributes(channels: int, kernel: Sequence[int], **others: Any) -> Dict[str, Any]:
    """Returns the attributes of a depthwise convolution, including `others`."""
    return {"kernel": tuple(kernel), "num_filter": channels, "num_group": channels, **others}


def copy_to_plain(output: Output, name: str) -> Output:
    """Returns a copy in the plain layout, like :func:`mxsame.plan.arrays.copy_to_plain`."""
    return operator("slice_axis", name, output, axis=0, begin=0, end=None, **{REQUIRED_COPY: True})


def subgraph(symbol: Symbol, **inputs: Output) -> Output:
    """Returns a Symbol's first output as an output of a graph, with `inputs` in place of the Symbol's variables."""
    graph = Graph.of(symbol, {}, {})
    graph.replace({Output(node): inputs[node.name] for node in graph.nodes() if node.op == "null"})
    return graph.outputs[0]
