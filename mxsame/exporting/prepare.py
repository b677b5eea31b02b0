"""Makes the graph of a net to export: traced, with pads and slices merged into windows."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from mxsame import _gluon, tensors
from mxsame._mxnet import mx
from mxsame.exporting.blocks import Composite, NetGraph, recorded_calls, replace_composites
from mxsame.exporting.shapes import DynamicAxes, Shapes, batch_axes, zeros_of_batches
from mxsame.graphs import tracing
from mxsame.graphs.freezing import freeze
from mxsame.rewriting import canonical, optimize_for_inference
from mxsame.rewriting.graph import Graph, Node, Output, User
from mxsame.rewriting.operators import subgraph
from mxsame.rewriting.sizes import specialize
from mxsame.rewriting.windows import merge_all_pads
from mxsame.scope import FORMAT

# Operators that only rearrange elements.
MOVES = ("Reshape", "reshape_like", "expand_dims", "squeeze", "Flatten", "transpose", "SwapAxis", "slice", "slice_axis")


class ExportedNet(NamedTuple):
    """A net to export, with its inputs, its floating-point dtype, and the dtype of each input by name."""

    net: Any
    inputs: tracing.NetInputs
    dtype: Any
    dtypes: Mapping[str, Any]

    @classmethod
    def of(cls, net: Any, input_shape: Any, dynamic_length: Optional[int] = None) -> ExportedNet:
        """Returns a net with its inputs. If the example array or the variable of an input has an integer dtype, the
        input has it, too; otherwise it has the type of the parameters."""
        tracing.check_ready(net)
        inputs = tracing.inputs_of(net, input_shape, required=True, dynamic_length=dynamic_length)
        dtype = tracing.float_dtype(net.collect_params()) or np.dtype("float32")
        dtypes = inputs.types_in(dtype)
        variables = tracing.flatten(_gluon.graph_inputs(net)) if isinstance(net, mx.gluon.SymbolBlock) else ()
        for name, variable in zip(dtypes, variables):
            declared = np.dtype(mx.nd.ndarray._DTYPE_MX_TO_NP[int(variable.attr("__dtype__") or 0)])
            dtypes[name] = dtypes[name] if declared.kind == "f" else declared
        return cls(net, inputs, dtype, dtypes)


def graph_of(
    exported: ExportedNet,
    dynamic_axes: DynamicAxes,
    trained: bool = False,
    fold: bool = False,
    is_whole: Callable[[Any], bool] = lambda block: False,
) -> NetGraph:
    """Returns the graph of the net on the CPU, with pads and slices merged into windows. With `trained` it keeps its
    dropout; with `fold` it is optimized for inference. `is_whole` returns whether a block is written as a whole."""
    with recorded_calls(exported.net, is_whole) as net:
        graph, structure, calls = freeze(net, exported.inputs, exported.dtypes, FORMAT)
    graph.context = mx.cpu()
    for node in graph.nodes():
        if node.name in exported.dtypes:
            node.attrs["__dtype__"] = tensors.dtype_attribute(exported.dtypes[node.name])
    if not dynamic_axes.size:
        specialize(graph, exported.dtypes, batch_axes(graph))
    floats = [name for name, dtype in exported.dtypes.items() if np.dtype(dtype).kind == "f"]
    canonical.drop_identities(graph, dropout=not trained, copies=True, floats=floats)
    canonical.write_clips(graph)
    _detach_zero_states(graph, exported.dtype)
    batches = batch_axes(graph)
    _derive_zeros_from_inputs(graph, batches)
    merge_all_pads(graph, dynamic_axes.size)
    if fold:
        optimize_for_inference(graph, fuses=False)
    count = len(tracing.flatten(structure))
    block_ends = map(_without_copies, graph.outputs[count:])
    composites = []
    for block, *ends in calls:
        inputs, outputs = (list(itertools.islice(block_ends, len(symbols))) for symbols in ends)
        composites.append(Composite(block, inputs, outputs))
    del graph.outputs[count:]
    return replace_composites(graph, Shapes(graph, dynamic_axes._replace(batches=batches)), composites)


def _without_copies(output: Output) -> Output:
    """Returns the output that `_copy` operators copy, which make all outputs of a graph distinct."""
    while output.node.op == "_copy":
        output = output.node.inputs[0]
    return output


def _detach_zero_states(graph: Graph, dtype: Any) -> None:
    """Replaces initial states of recurrent layers that are `zeros_like` of the data by `_zeros` nodes."""
    for node in graph.nodes():
        for position, source in enumerate(node.inputs[2:] if node.op == "RNN" else (), 2):
            while source.node.op in ("squeeze", "broadcast_axis", "expand_dims", "Reshape"):
                source = source.node.inputs[0]
            if source.node.op == "zeros_like":
                attrs = {"shape": str((-1 if mx.util.is_np_shape() else 0,) * 3), "dtype": str(dtype)}
                node.inputs[position] = Output(Node("_zeros", f"{node.name}_state", attrs=attrs))


def is_used_by_rnn_only(users: Sequence[User]) -> bool:
    """Returns whether only recurrent layers use an array. If it is zeros, it need not be written then: initial states
    are 0 by default."""
    return all(user is not None and user.op == "RNN" for user, _ in users)


def _derive_zeros_from_inputs(graph: Graph, batches: Mapping[str, int]) -> None:
    """Computes zeros with a dynamic batch, such as the initial states of cells, from an input of the net."""
    users = graph.users()
    zeros = {node: axis for node, axis in zeros_of_batches(graph).items() if not is_used_by_rnn_only(users[node])}
    variables = [node for node in users if node.op == "null" and node.name in batches]
    replacements = {}
    for node, axis in zeros.items() if variables else ():
        variable = variables[0]
        shape, batch = node.attr("shape"), batches[variable.name]
        others = [other for other in range(len(shape)) if other != axis]
        with mx.util.np_array(False):
            x = mx.sym.var("x")
            end = [None if each == batch else 1 for each in range(len(graph.inputs[variable.name]))]
            column = mx.sym.zeros_like(mx.sym.slice(x, begin=[0] * len(end), end=end))  # one zero for each instance
            column = mx.sym.reshape(column, shape=[-1 if each == axis else 1 for each in range(len(shape))])
            filled = mx.sym.broadcast_axis(column, axis=others, size=[shape[each] for each in others])
        replacements[Output(node)] = subgraph(filled, x=Output(variable))
    graph.replace(replacements)
