"""What changes nothing at inference goes; what is left is spelled in one way, the one that oneDNN fuses."""

from __future__ import annotations

from mxsame._rewrite._graph import Graph, Node, Output

IDENTITIES = {
    "_copy",
    "_np_copy",
    "_npi_copy",
    "identity",
    "BlockGrad",
    "make_loss",
    "MakeLoss",
    "IdentityAttachKLSparseReg",
}
ACTIVATIONS = {
    "relu": "relu",
    "_npx_relu": "relu",
    "sigmoid": "sigmoid",
    "_npx_sigmoid": "sigmoid",
    "tanh": "tanh",
    "_npi_tanh": "tanh",
    "softsign": "softsign",
}
NEUTRAL = {  # op -> the scalar that makes it the identity; those of NumPy make floats of integers and bools
    **dict.fromkeys(("_mul_scalar", "_div_scalar", "_power_scalar"), 1.0),
    **dict.fromkeys(("_plus_scalar", "_minus_scalar"), 0.0),
}


def drop(graph: Graph) -> None:
    """Identities, arithmetic with 0 or 1 that changes nothing, dropout, and reshapes that only guard a size."""
    for node in graph.nodes():
        if _is_identity(node):
            graph.replace(node, node.inputs[0])
        elif node.op == "Reshape" and _is_guard(node.inputs[0].node):
            graph.replace(node, node.inputs[0].node.inputs[0])


def _is_identity(node: Node) -> bool:
    if node.op == "Dropout":
        return node.attr("mode", "training") != "always"
    return node.op in IDENTITIES or (node.op in NEUTRAL and float(node.attr("scalar")) == NEUTRAL[node.op])


def _is_guard(node: Node) -> bool:
    return node.op == "Reshape" and node.name.startswith("data_must_be_")


def spell(graph: Graph) -> None:
    """Activations by their own operators as `Activation`; a normalisation with a relu inside as both."""
    for node in graph.nodes():
        if node.op in ACTIVATIONS:
            node.attrs = {"act_type": ACTIVATIONS[node.op]}
            node.op = "Activation"
        elif node.op == "_contrib_BatchNormWithReLU":
            node.op = "BatchNorm"
            relu = Node("Activation", f"{node.name}_relu", [Output(node)], {"act_type": "relu"})
            for user in graph.users()[node]:
                graph.connect(user, Output(relu))


def separate(graph: Graph) -> None:
    """An output that is a variable, or a second time the same, becomes one of a node of its own."""
    seen = set()
    for place, output in enumerate(graph.outputs):
        if output.node.op == "null" or output in seen:
            graph.outputs[place] = Output(Node("_copy", f"output{place}", [output]))
        seen.add(output)
