"""`to_keras`: a network as a Keras model file."""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from mxsame import progress, validation
from mxsame._mxnet import mx
from mxsame.export_keras import checking, rows  # noqa: F401 - the rows register themselves
from mxsame.export_keras import files as writing
from mxsame.export_keras.writer import Made, Value, Writer, channels_last
from mxsame.exporting.shapes import Length, Shapes
from mxsame.exporting.walk import graph_of
from mxsame.graphs import files, tracing
from mxsame.port.convert import arrays_of
from mxsame.port.description import Placed
from mxsame.port.network import Network
from mxsame.progress import Progress
from mxsame.rewriting.graph import Graph, Node, Output
from mxsame.rewriting.windows import WITH_WINDOWS, is_channels_first
from mxsame.target import NOTE

__all__ = ["Written", "to_keras"]

MOST_SHOWN = 12  # reasons in a message
FIRST = ("InstanceNorm", "GroupNorm", "UpSampling", "_contrib_BilinearResize2D", "_contrib_AdaptiveAvgPooling2D")
PASS = ("Pad", "Cast", "clip", "Dropout", "LeakyReLU", "Activation", "slice", "slice_axis", "Concat", "SliceChannel")


class Written(NamedTuple):
    """A file that was written: its name, how many layers and elements of parameters it has, and what loaded it to
    compare its outputs with the net's."""

    path: str
    layers: int
    parameters: int
    compared_by: str


@progress.reported
def to_keras(
    net: Any, path: Any, input_shape: Any, *, layout: str = "NHWC", progress: Optional[Progress] = None
) -> Written:
    """Write a network as a model file of Keras, with SAME as `padding="same"`.

    The file is written only if its outputs are the net's, for two batches: as Keras computes them, in another process,
    if a Keras that loads such files is installed, and otherwise as the network does that :func:`mxsame.from_keras`
    reads from it. To write it, only h5py is needed.

    Parameters
    ----------
    net : gluon.HybridBlock, or path of a `-symbol.json` file
        Initialized, and called once if its channels are deferred; of mxsame, of Gluon, deployed, a SymbolBlock. A
        `-symbol.json` file has its `.params` file next to it. In float32.
    path : str or path
        Of the file. `.keras` is an archive that Keras 3 loads; `.h5` is for tf.keras 2 and Keras 3, and has layers
        only: an operator that no layer has is refused there.
    input_shape : sequence of ints, an array, or a list of such
        (N, C, \\*size), or (N, \\*size, C) as the net takes it; of several inputs a list, nested as the net takes them.
        The model is for this size and any batch.
    layout : "NHWC" or "NCHW"
        Of inputs and outputs of the model, if the net takes channels first: those of 4 and 5 axes, and those of 3 if
        the net's convolutions take them. The layers have `data_format="channels_last"`, which is all that Keras's
        convolutions run on a CPU. A net that takes channels last keeps its order.
    progress : function of (stage, done, total), optional
        Called with the name of what is being done, and how many of its parts are done: "writing operators", 3, 20.

    Returns
    -------
    Written
        The name of the file, its numbers of layers and parameters, and what it was compared by.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, a net that is not initialized or cannot be traced, and operators or arguments of which
        Keras has no exact equivalent, all of them at once; and for a file that Keras refuses, whose outputs differ from
        the net's, or that cannot be written.
    ImportError
        If h5py is not installed.

    Notes
    -----
    Layers have the names of their parameters. What is trained in the net is trained in Keras; parameters with
    `grad_req="null"` are those of layers that are not `trainable`. A batch norm that is frozen so uses its moving
    statistics in Keras's training. Where an LSTM or a SimpleRNN has two biases in MXNet, Keras's one is their sum.
    Layers of noise that :func:`mxsame.from_keras` brought are left out, as by :func:`mxsame.export`.

    Examples
    --------
    >>> import os, tempfile, mxsame
    >>> net = mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3)
    >>> net.initialize()
    >>> file = os.path.join(tempfile.mkdtemp(), "net.h5")
    >>> mxsame.to_keras(net, file, (1, 3, 32, 32)).layers
    2
    >>> mxsame.from_keras(file).description.layers[1].config["padding"]
    'same'
    """
    if isinstance(net, (str, os.PathLike)):
        net = _imported(os.fspath(net))
    tracing.check_ready(net)
    path = files.check_path(path)
    if not path.endswith((".keras", ".h5")) or path.endswith(".weights.h5"):
        raise ValueError(f"path must end in .keras or .h5, and not in .weights.h5; {validation.received(path=path)}")
    is_first = validation.layout(layout, 2) == "NCHW"
    inputs = tracing.inputs_of(net, input_shape)
    dtype = tracing.float_dtype(net.collect_params()) or np.dtype("float32")
    if dtype != np.float32:
        raise ValueError(f"net must have parameters of float32; {validation.received(dtype=dtype)}")
    with tracing.explained(input_shape=input_shape):
        if _is_as_read(net, path):
            made = _as_read(net, inputs)
        else:
            made = _from_graph(net, inputs, not path.endswith(".h5"), is_first)
    with tracing.explained(input_shape=input_shape), files.draft_for(path) as file:
        writing.save(file, made)
        compared_by = checking.compare(file, made, net, inputs)
    sizes = (array.size for layer in made.model.walk() for array in made.arrays(layer).values())
    return Written(path, len(made.model.layers), sum(sizes), compared_by)


# -- a network of `from_keras`


def _is_as_read(net: Any, path: str) -> bool:
    """Whether a network is the Keras model that it was read from, and the file of that one's format."""
    if not isinstance(net, Network) or net.custom or net.description.native or net.description.source is None:
        return False
    if net.description.version != (2 if path.endswith(".h5") else 3):
        return False
    return all(
        (stored.parameter.grad_req != "null") == (layer.trainable and role.trained)
        for layer in net.description.walk()
        for role, stored in zip(layer.roles or (), layer.weights)
        if isinstance(stored, Placed) and stored.parameter is not None
    )


def _as_read(net: Network, inputs: tracing.Inputs) -> Made:
    mx.nd.waitall()
    shapes = {
        name: tuple(Length(n, n + (axis == 0)) for axis, n in enumerate(shape)) for name, shape in inputs.shapes.items()
    }
    orders, output_orders = ([x.keras_order for x in values] for values in (net.inputs, net.outputs))
    return Made(net.description, arrays_of, {}, shapes, orders, output_orders)


# -- any other network


def _from_graph(net: Any, inputs: tracing.Inputs, operators: bool, is_first: bool) -> Made:
    graph = graph_of(net, inputs, np.dtype("float32"), trained=True)
    shapes = Shapes(graph, dynamic_batch=True, dynamic_size=False)
    taken = {node.name: _takes(graph, node) for node in graph.nodes() if node.name in inputs.shapes}
    if len(taken) < len(inputs.shapes):
        raise ValueError(f"net must use all of its inputs; {validation.received(used=sorted(taken))}")
    trained = {name for name, parameter in net.collect_params().items() if parameter.grad_req != "null"}
    orders = {name: _order(taken[name], len(shape), is_first) for name, shape in inputs.shapes.items()}
    writer = Writer(graph, shapes, orders, trained, operators)
    output_orders = [x.order for x in _written(writer, taken, is_first)]
    tensors, arrays = writer.shapes_of_tensors, writer.arrays
    return Made(
        writer.model, lambda layer: arrays[layer.name], tensors, shapes.inputs, list(orders.values()), output_orders
    )


def _written(writer: Writer, taken: Mapping[str, Optional[str]], is_first: bool) -> list:
    """Writes all nodes: the values of the outputs."""
    values = writer.write_all()
    if not writer.refusals and not all(isinstance(x, Value) for x in values):
        writer.refusals.append("net must have outputs that depend on its inputs; received one of constants")
    if writer.refusals:
        shown = "\n".join(writer.refusals[:MOST_SHOWN])
        more = f"\nand {len(writer.refusals) - MOST_SHOWN} more" if len(writer.refusals) > MOST_SHOWN else ""
        raise ValueError(f"net must have operators that Keras has exactly: {shown}{more}")
    outputs = []
    for x in values:
        kinds = [kind for kind in taken.values() if kind]
        order = _order(kinds[0] if kinds else None, x.rank, is_first)
        if x.rank == 3 and x.order != channels_last(3):
            order = (0, 1, 2)
        outputs.append(writer.arranged(x, order if x.order[0] == order[0] else x.order))
    writer.finish(outputs)
    return outputs


def _order(kind: Optional[str], rank: int, is_first: bool) -> Tuple[int, ...]:
    """The axes of an input or output in the file."""
    return channels_last(rank) if kind == "first" and not is_first and rank <= 5 else tuple(range(rank))


def _takes(graph: Graph, variable: Node) -> Optional[str]:
    """How a net takes an input: "first" if an operator takes its second axis for channels, "last" if it is transposed
    so before that, None if nothing shows it."""
    users, rest, seen = graph.users(), [variable], set()
    while rest:
        node = rest.pop(0)
        for user, position in users[node]:
            if user is None or user in seen:
                continue
            seen.add(user)
            if position == 0 and (user.op in FIRST or (user.op in WITH_WINDOWS and is_channels_first(user))):
                return "first"
            if user.kind == "batch_norm" and len(graph.inputs[variable.name]) > 2:
                return "first" if user.attr("axis", 1) == 1 else "last"
            if user.op == "transpose":
                rank = len(graph.inputs[variable.name])
                return "last" if tuple(user.attr("axes") or ()) == (0, rank - 1, *range(1, rank - 1)) else None
            if NOTE in user.attrs or user.op in PASS or re.match("add|subtract|multiply|divide", user.kind):
                rest.append(user)
    return None


# -- files of MXNet


def _imported(file: str) -> Any:
    """The block of a `-symbol.json` file with the newest `.params` file next to it. What only a loss needs is left
    out."""
    if not file.endswith("-symbol.json") or not os.path.isfile(file):
        raise ValueError(f"net must be a block or a -symbol.json file that exists; {validation.received(net=file)}")
    prefix = file[: -len("-symbol.json")]
    stored = sorted(glob.glob(f"{glob.escape(prefix)}-[0-9][0-9][0-9][0-9].params"))
    if not stored:
        raise ValueError(f"net must have a file of parameters next to it, {prefix}-0000.params; received none")
    try:
        symbol, saved = mx.sym.load(file), mx.nd.load(stored[-1])
    except mx.base.MXNetError as error:
        raise ValueError(
            f"net must be files of MXNet; {validation.received(net=file)}: {tracing.reason(error)}"
        ) from None
    arrays: Dict[str, Any] = {name.split(":", 1)[-1]: array for name, array in saved.items()}
    graph = Graph.of(symbol, {}, {})
    for node in graph.nodes():
        if node.op == "SoftmaxOutput" and node.inputs[1].node.op == "null":
            data, whole = (
                node.inputs[0],
                not node.attr("multi_output", False) and not node.attr("preserve_shape", False),
            )
            flat = Output(Node("Flatten", f"{node.name}_flat", [data])) if whole else data
            axis = {"axis": "1" if node.attr("multi_output", False) else "-1"}
            softmax = Output(Node("softmax", f"{node.name}_softmax", [flat], axis))
            node.op, node.inputs, node.attrs = "reshape_like", [softmax, data], {}
    symbol = graph.symbol()
    names = [name for name in symbol.list_inputs() if name not in arrays]
    block = mx.gluon.SymbolBlock(symbol, [tracing.variable(name, "float32") for name in names])
    for name, parameter in block.collect_params().items():
        if name in arrays:
            parameter.shape = arrays[name].shape
            parameter.initialize(ctx=mx.cpu())
            parameter.set_data(arrays[name])
    return block
