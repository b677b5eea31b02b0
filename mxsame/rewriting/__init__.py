"""Passes that rewrite graphs for inference and training: the same values from fewer and faster operators.

`mxsame.rewriting.graph.Graph` is a mutable graph of nodes, with the arrays of its parameters. Each other
file implements one kind of pass: functions that change a graph in place. A pass sees operators, not the
layers that created them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxsame.rewriting import batch_norm, canonical, channel_padding, constants, onednn, training, transposes
from mxsame.rewriting.graph import Graph, InputShapes
from mxsame.scope import Target

if TYPE_CHECKING:
    from mxsame._mxnet import Symbol

__all__ = ["legalize", "optimize_for_inference"]

CHANGED_FOR_GPU = {"slice_axis", "_mul_scalar", "LeakyReLU", "Dropout"}  # operators that passes for a GPU may change


def legalize(symbol: Symbol, shapes: InputShapes, target: Target) -> Symbol:
    """Returns the graph of a net for inputs of these shapes, without operators that MXNet runs wrongly or slowly."""
    is_training = target.purpose == "training"
    has_gradients = is_training or target.gradients
    graph = Graph.of(symbol, {}, shapes)
    if target.device == "gpu":
        is_changed = any(node.op in CHANGED_FOR_GPU or node.kind == "minimum_scalar" for node in graph.nodes())
        return _prepare_for_gpu(graph, has_gradients, target.purpose == "inference") if is_changed else symbol
    speeds_up = target.device == "cpu" and has_gradients and target.purpose in ("training", "inference")
    replaced = {*onednn.SOFTMAX, *onednn.LOOPS, *(training.WITH_WRONG_GRADIENTS if has_gradients else ())}
    if speeds_up:
        replaced |= {"clip", "Convolution"} if is_training else {"clip"}
    if not any(node.op in replaced or onednn.divides_blocks(node) for node in graph.nodes()):
        return symbol  # skips the inference of types and shapes, and the serialization, which take time
    onednn.copy_before_softmax(graph)
    onednn.copy_before_slices(graph)
    if target.purpose != "format":
        onednn.copy_norms_in_bodies(graph, has_gradients)
        onednn.synchronize_before_loops(graph)
    if has_gradients:
        training.work_around_gradient_bugs(graph, has_blocks=True)
    if speeds_up:
        training.speed_up(graph, is_training)
    return graph.symbol()


def _prepare_for_gpu(graph: Graph, has_gradients: bool, is_inference: bool) -> Symbol:
    """Returns the graph for a GPU, where no array is in oneDNN's blocks: softmax, slices and gradients need no copies,
    and loops need no synchronization. Fewer operators are faster there: for small data, launching a kernel takes longer
    than running it."""
    canonical.drop_copies(graph, dropout=is_inference)
    if has_gradients:
        training.work_around_gradient_bugs(graph, has_blocks=False)
    else:  # with gradients, the ReLU stays: at the bounds, the gradient of a clip differs from its gradient
        canonical.write_relus_as_clips(graph)
    return graph.symbol()


def optimize_for_inference(graph: Graph, fuses: bool) -> None:
    """Run all passes for inference, in order; `fuses` says whether oneDNN will fuse and run the graph, in float32."""
    canonical.drop_identities(graph)  # an identity between two operators would hide patterns from the passes below
    canonical.canonicalize(graph)  # the passes below look for one form of each activation
    canonical.write_clips(graph)
    constants.fold(graph)  # so that computed weights are parameters when batch norms are folded into them
    batch_norm.fold(graph)  # before transposes are pushed, which batch norms would stop
    transposes.push_transposes(graph)  # only batch norms that could not be folded become convolutions
    if fuses:
        batch_norm.write_as_convolutions(graph)  # after folding, which must not fold anything into these convolutions
        channel_padding.pad_channels(graph)
    canonical.separate_outputs(graph)  # an output may have become a parameter, or another output
    graph.prune()
