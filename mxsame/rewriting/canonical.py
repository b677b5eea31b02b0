"""Canonicalization: drops operators that change nothing at inference, and writes each other operator in the form that
oneDNN fuses."""

from __future__ import annotations

from typing import Collection

import numpy as np

from mxsame import tensors
from mxsame.rewriting.graph import Graph, Node, Output, operator

ACTIVATIONS = ("relu", "sigmoid", "tanh", "softsign")
IDENTITY_SCALARS = {  # op -> scalar that changes nothing; not for mx.np's operators, which cast integers to floats
    **dict.fromkeys(("_mul_scalar", "_div_scalar", "_power_scalar"), 1.0),
    **dict.fromkeys(("_plus_scalar", "_minus_scalar"), 0.0),
}


def drop_identities(graph: Graph, dropout: bool = True, copies: bool = False, floats: Collection[str] = ()) -> None:
    """Drop identities, arithmetic with 0 or 1 that changes nothing, dropout, and reshapes that only check a size.

    Dropout is dropped only with `dropout`, and copies that work around bugs of MXNet only with `copies`. `floats` names
    the inputs of a floating type: a division by 1, which casts integers to floats, does not change them.
    """
    replacements = {}
    for node in graph.nodes():
        makes_floats = node.op == tensors.FLOAT_DIVISION and node.attr("scalar") == 1
        changes_nothing = _is_identity(node) or (makes_floats and node.inputs[0].node.name in floats)
        if changes_nothing and (dropout or node.op != "Dropout") and (copies or not node.is_required_copy):
            replacements[Output(node)] = node.inputs[0]
        elif node.op == "Reshape" and tensors.FIXED_SIZE_PREFIX in node.inputs[0].node.name:
            replacements[Output(node)] = node.inputs[0].node.inputs[0]
    graph.replace(replacements)


def _is_identity(node: Node) -> bool:
    """Returns whether an operator changes nothing at inference."""
    if node.op in IDENTITY_SCALARS:
        return node.attr("scalar") == IDENTITY_SCALARS[node.op]
    is_copy = node.kind == "identity" or node.op == "IdentityAttachKLSparseReg"
    return is_copy or is_full_slice(node) or _is_dropout(node)


def _is_dropout(node: Node) -> bool:
    """Returns whether the node is dropout that changes nothing at inference."""
    return node.op == "Dropout" and node.attr("mode", "training") != "always"


def is_full_slice(node: Node) -> bool:
    """Returns whether the node is a slice of a whole axis, which copies its data."""
    return node.op == "slice_axis" and node.attr("begin") == 0 and node.attr("end") is None


def drop_copies(graph: Graph, dropout: bool) -> None:
    """Drop copies that only oneDNN needs and, with `dropout`, dropout. Outputs of the graph stay: each is the output of
    a separate operator."""
    inner = (node for node in graph.nodes() if Output(node) not in graph.outputs)
    copies = (node for node in inner if is_full_slice(node) or node.is_required_copy or (dropout and _is_dropout(node)))
    graph.replace({Output(node): node.inputs[0] for node in copies})


def canonicalize(graph: Graph) -> None:
    """Write activations of floats as `Activation`, which accepts no integers, and split a batch norm with a ReLU into
    two operators."""
    dtypes, replacements = graph.dtypes(), {}
    for node in graph.nodes():
        if node.kind in ACTIVATIONS and np.dtype(dtypes.get(Output(node)) or int).kind == "f":
            node.become("Activation", *node.inputs, act_type=node.kind)
        elif node.op == "_contrib_BatchNormWithReLU":
            node.op = "BatchNorm"
            replacements[Output(node)] = operator("Activation", f"{node.name}_relu", Output(node), act_type="relu")
    graph.replace(replacements)


def write_clips(graph: Graph) -> None:
    """Write relu(min(x, a)) as `clip`, and s * clip(x) as clip(s * x), so that the scale can be folded."""
    write_relus_as_clips(graph)
    dtypes, users = graph.dtypes(), graph.users()
    for node in users:
        clip = node.inputs[0].node if node.kind == "multiply_scalar" else node
        if clip is not node and clip.kind == "clip" and len(users[clip]) == 1:
            scale, types = node.attr("scalar"), {dtypes.get(Output(each)) for each in (node, clip)}
            if 0 < scale < np.inf and types == {np.float32}:
                bounds = {name: repr(float(np.float32(scale * clip.attr(name)))) for name in ("a_min", "a_max")}
                clip.op, clip.attrs = node.op, node.attrs
                node.op, node.attrs = "clip", bounds


def write_relus_as_clips(graph: Graph) -> None:
    """Write relu(min(x, a)), the form used in training, as `clip`: one operator, which runtimes fuse. The bounds of
    `clip` are float32, so any other bound is written only for float32 data."""
    nodes = [node for node in graph.nodes() if _upper_bound(node) >= 0]
    is_exact = {node: float(np.float32(_upper_bound(node))) == _upper_bound(node) for node in nodes}
    dtypes = {} if all(is_exact.values()) else graph.dtypes()
    for node in nodes:
        if is_exact[node] or dtypes.get(Output(node)) is np.float32:
            inner = node.inputs[0].node
            node.become("clip", inner.inputs[0], a_min=0, a_max=inner.attrs["scalar"])


def _upper_bound(node: Node) -> float:
    """Returns a for relu(min(x, a)), -1 for any other operator."""
    inner = node.inputs[0].node if "relu" in (node.kind, node.attr("act_type")) else node
    return float(inner.attr("scalar")) if inner.kind == "minimum_scalar" and inner is not node else -1


def separate_outputs(graph: Graph) -> None:
    """Make each output of the graph the output of a separate operator: copy variables, and outputs that occur twice."""
    seen = set()
    for position, output in enumerate(graph.outputs):
        if output.node.op == "null" or output in seen:
            graph.outputs[position] = operator("_copy", f"output{position}", output)
        seen.add(output)
