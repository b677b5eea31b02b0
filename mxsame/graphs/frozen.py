"""A net for inference as a `Graph`: what the net does, with the values of its parameters."""

from __future__ import annotations

import itertools
from typing import Any, Mapping

import numpy as np

from mxsame._mxnet import mx
from mxsame.graphs import tracing
from mxsame.rewriting.graph import Graph


def frozen(
    net: Any, shapes: Mapping[str, tuple[int, ...]], dtype: Any, structure: Any, **built_for: Any
) -> tuple[Graph, Any]:
    """The net run on Symbols of this type, nested as `structure` says, as in :class:`mxsame.graphs.tracing.Inputs`: its
    graph, and how it nests its outputs.

    `built_for` are fields of :class:`mxsame.building.Building`, among them the purpose. A graph for "deployment" must
    be simplified before it runs: it may hold computed weights.

    Raises `TypeError` or `ValueError` for a net that cannot be traced, and MXNet's error if the shapes do not fit it.
    """
    variables = [tracing.variable(name, dtype) for name in shapes]
    try:
        trace = tracing.traced(net, structure, **built_for)
        outputs = trace.lowered(variables, shapes.values()).outputs
    except (AttributeError, NotImplementedError) as error:  # what a Symbol does not have, or a Block without a graph
        raise TypeError(
            f"net must be HybridBlocks throughout, whose hybrid_forward runs on Symbols; received {error}"
        ) from error
    parameters = net.collect_params()
    context = contexts(parameters)[0]
    graph = Graph.of(tracing.grouped(outputs), values(parameters, context), shapes, context)
    graph.shapes()  # MXNet refuses shapes that do not fit, also those of a deployed net inside
    return graph, tracing.regrouped(outputs, itertools.repeat(True))


def contexts(parameters: Any) -> list[Any]:
    """The devices of a net's parameters."""
    return next((parameter.list_ctx() for parameter in parameters.values()), [mx.current_context()])


def float_dtype(parameters: Any, default: Any) -> Any:
    """The floating type of the parameters. Those of a batch norm stay float32 when the rest is cast to float16."""
    dtypes = [np.dtype(parameter.dtype) for parameter in parameters.values()]
    return min((dtype for dtype in dtypes if dtype.kind == "f"), key=lambda dtype: dtype.itemsize, default=default)


def values(parameters: Any, context: Any) -> dict[str, np.ndarray]:
    """The arrays of parameters, by name. A convolution that still runs may be arranging its weight in oneDNN's blocks,
    and what is read meanwhile is a mixture of both orders, so all that runs is waited for."""
    mx.nd.waitall()
    return {name: parameter.data(context).asnumpy() for name, parameter in parameters.items()}
