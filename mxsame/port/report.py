"""What a network became, layer by layer, and whether each layer gives what Keras's gives."""

from __future__ import annotations

import importlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from mxsame.port.description import listed
from mxsame.port.network import Network


class Row(NamedTuple):
    """A layer: its name, its class, the blocks that it became, its output's shape in Keras's order, the elements of
    its weights, and its `padding` as the block has it, where it has one."""

    layer: str
    class_name: str
    operators: List[str]
    output_shape: Tuple[int, ...]
    parameters: int
    padding: Optional[str]


def rows(net: Network, arrays: Sequence[Any]) -> List[Row]:
    """A row for each layer that does something, in the order in which they run."""
    return [
        Row(
            "/".join(path),
            layer.operator or layer.class_name,
            list(dict.fromkeys(getattr(block, "function", None) or type(block).__name__ for block in blocks)),
            tuple(out.shape),
            sum(int(np.prod(array.shape)) for array in layer.weights),
            next((str(block._padding) for block in blocks if hasattr(block, "_padding")), None),
        )
        for path, layer, blocks, out in net.layers(*arrays)
    ]


def differences(net: Network, model: Any, arrays: Sequence[Any], inputs: Sequence[Any]) -> Iterator[Dict[str, Any]]:
    """For each layer of a live Keras model: the largest difference of its output, relative to the largest value.

    `arrays` are the net's inputs, `inputs` the same in Keras's order. Layers in nested models are compared with the
    nested model's output only.
    """
    # Operators of Keras 3 are among them.
    live = {layer.name: layer for layer in getattr(model, "operations", model.layers)}
    outputs = {}
    for path, layer, _, out in net.layers(*arrays):
        if len(path) == 1 and path[0] in live:
            outputs[path[0]] = (layer.class_name, out.asnumpy())
    if not outputs:
        return
    functional = importlib.import_module(type(model).__module__.split(".")[0]).Model
    names = [*live, *(tensor._keras_history[0].name for tensor in model.inputs)]
    wanted = functional(model.inputs, [_output(live[name], names) for name in outputs])
    # In a graph: run eagerly, TensorFlow 2.18 is wrong for some strided convolutions with channels first on the CPU.
    given = listed(wanted.predict_on_batch(list(inputs) if len(inputs) > 1 else inputs[0]))
    for (name, (class_name, ours)), theirs in zip(outputs.items(), given):
        theirs = np.asarray(theirs)
        scale = max(float(np.abs(theirs).max()), 1e-12)
        same = ours.shape == theirs.shape
        difference = float(np.abs(ours - theirs).max()) / scale if same else float("inf")
        yield {"layer": name, "class": class_name, "difference": difference}


def _output(layer: Any, names: Sequence[str]) -> Any:
    """The output of a layer's first call in the model. A nested model may have a call outside of it, its own."""
    for node in layer._inbound_nodes:
        sources = [tensor._keras_history[0].name for tensor in listed(node.input_tensors)]
        if set(sources) <= set(names):
            return listed(node.outputs)[0]
    raise ValueError(f"layer {layer.name!r} must be called in the model")
