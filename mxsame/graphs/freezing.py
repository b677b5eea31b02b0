"""The graph of a net with its parameters as arrays."""

from __future__ import annotations

import itertools
from typing import Any, Mapping

import numpy as np

from mxsame._mxnet import mx
from mxsame.graphs import errors, tracing
from mxsame.rewriting.graph import Graph
from mxsame.scope import BlockCall, Target


def freeze(
    net: Any,
    inputs: tracing.NetInputs,
    types: Mapping[str, Any],
    target: Target,
) -> tuple[Graph, Any, list[BlockCall]]:
    """Returns the graph of a net that runs on Symbols of these types, how it nests its outputs, and the recorded calls
    of blocks, whose inputs and outputs are outputs of the graph, too, after those of the net.

    A graph for "deployment" must be simplified before it runs, since it may compute weights. One for "format", made to
    be written in another format, never runs: see `mxsame.rewriting.windows.windows_of`.

    Raises `TypeError` or `ValueError` for a net that cannot be traced, and for shapes that do not fit it.
    """
    variables = [tracing.variable(name, types[name]) for name in inputs.shapes]
    trace = tracing.trace_net(net, inputs.structure, target)
    recorder = trace.recorder
    ends = [[call.inputs, call.outputs] for call in recorder.calls]
    outputs, ends = trace._replace(outputs=[trace.outputs, ends]).lower(variables, inputs.shapes.values()).outputs
    symbol, parameters, shapes = tracing.group([outputs, ends]), net.collect_params(), [*inputs.shapes.values()]
    errors.ShapeCheck(symbol, parameters).run(inputs.shapes, input_shape=shapes if shapes[1:] else shapes[0])
    context = tracing.contexts(parameters)[0]
    graph = Graph.of(symbol, values(parameters, context), inputs.shapes, context, casts=False, windows=recorder.windows)
    return graph, tracing.regroup(outputs, itertools.repeat(True)), recorder.calls


def values(parameters: Any, context: Any) -> dict[str, np.ndarray]:
    """Returns the arrays of parameters, by name. It waits for all running operators: a convolution may be copying its
    weight into oneDNN's blocks in place, and a read meanwhile returns a mixture of both layouts."""
    mx.nd.waitall()
    return {name: parameter.data(context).asnumpy() for name, parameter in parameters.items()}
