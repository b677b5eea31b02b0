"""Finds the calls of blocks that a writer writes as a whole, instead of operator by operator."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from mxsame._mxnet import mx
from mxsame.exporting.shapes import Shape, Shapes
from mxsame.graphs.nesting import flatten
from mxsame.rewriting.graph import Graph, Node, Output, unique_name
from mxsame.scope import record_call
from mxsame.tensors import dtype_attribute

IsWhole = Callable[[Any], bool]  # whether a block is written as a whole


class Composite(NamedTuple):
    """A call of a block, the graph's outputs that it takes and returns, and the shapes of those that it returns."""

    block: Any
    inputs: List[Output]
    outputs: List[Output]
    shapes: Sequence[Shape] = ()


class NetGraph(NamedTuple):
    """The graph of a net, its shapes, and the variables that replace outputs of composites: each with its composite and
    the index of the output."""

    graph: Graph
    shapes: Shapes
    composites: Dict[Node, Tuple[Composite, int]]


@contextlib.contextmanager
def recorded_calls(net: Any, is_whole: IsWhole) -> Iterator[Any]:
    """Records the calls of blocks that are written as a whole while a net is traced within the `with` block. Yields the
    block to trace: the net, or a wrapper of it if the net itself is written as a whole."""
    blocks: Dict[Any, None] = {}
    net.apply(lambda block: blocks.update({block: None} if is_whole(block) else {}))
    if net in blocks:  # a trace does not call the net itself
        net = _Wrapper(net)
    handles = [block.register_forward_hook(_record) for block in blocks]
    try:
        yield net
    finally:
        for handle in handles:
            handle.detach()


class _Wrapper(mx.gluon.HybridBlock):
    def __init__(self, inner: Any):
        super().__init__(prefix="")
        self.inner = inner

    def hybrid_forward(self, F: Any, *args: Any) -> Any:
        return self.inner(*args)


def _record(block: Any, inputs: Sequence[Any], outputs: Any) -> None:
    symbols = flatten(outputs)
    if all(isinstance(each, mx.sym.Symbol) for each in symbols):  # another thread may call the net on arrays
        split = [each for symbol in symbols for each in (symbol if len(symbol.list_outputs()) > 1 else [symbol])]
        record_call(block, flatten(inputs), split)


def replace_composites(graph: Graph, shapes: Shapes, composites: Sequence[Composite]) -> NetGraph:
    """Replaces each output of a composite by a variable. The node of the variable keeps the composite's inputs, so that
    it is written after them."""
    dtypes = graph.dtypes()
    replaced: Dict[Output, Output] = {}
    variables: Dict[Node, Tuple[Composite, int]] = {}
    for composite in composites:
        inputs = [replaced.get(output, output) for output in composite.inputs]
        call = composite._replace(inputs=inputs, shapes=[shapes[output] for output in composite.outputs])
        for index, output in enumerate(composite.outputs):
            if output in composite.inputs:
                continue
            name = unique_name(f"{composite.block.name}_output", {*graph.inputs, *graph.values})
            attrs = {"__dtype__": dtype_attribute(dtypes[output])} if dtypes.get(output) is not None else {}
            node = Node("null", name, inputs, attrs)
            variables[node] = call, index
            graph.inputs[name], shapes.probes[name] = zip(*shapes[output])
            shapes.share(Output(node), output)
            replaced[output] = Output(node)
    graph.replace(replaced)
    if replaced:
        graph.prune()
    return NetGraph(graph, shapes, variables)
