"""A table of a network's layers, and `compare`: the difference of each layer's output from Keras's."""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from mxsame._mxnet import mx
from mxsame.graphs.tracing import float_dtype
from mxsame.keras_format.description import as_list
from mxsame.nn._layer import Layer
from mxsame.port.network import Network, check_network
from mxsame.tables import aligned
from mxsame.tensors.difference import difference
from mxsame.types import Arrays, KerasModel
from mxsame.validation import InvalidValue, check, check_arguments, check_shape, check_type

ROUNDING = 1e-4  # makes less of a difference, a shift a hundred times more


class LayerRow(NamedTuple):
    """A layer in the table of `mxsame convert`."""

    layer: str
    class_name: str
    operators: List[str]  # classes of its blocks, or their functions
    output_shape: Tuple[int, ...]  # in Keras's order of axes
    parameters: int
    padding: Optional[str]  # the padding of its block


def layer_rows(net: Network, arrays: Sequence[Any]) -> List[LayerRow]:
    """Returns a line for each layer that has steps, in the order in which they run."""
    return [
        LayerRow(
            "/".join(path),
            layer.operator or layer.class_name,
            list(dict.fromkeys(getattr(block, "function", None) or type(block).__name__ for block in blocks)),
            tuple(out.shape),
            sum(int(np.prod(array.shape)) for array in layer.weights),
            next((str(block._spec.padding) for block in blocks if isinstance(block, Layer)), None),
        )
        for path, layer, blocks, out in net.layer_outputs(*arrays, keras_order=True)
    ]


class Difference(NamedTuple):
    """A layer, its class, and the largest difference of its output from Keras's, relative to the largest element."""

    layer: str
    class_name: str
    difference: float


class Comparison(Tuple[Difference, ...]):
    """The result of `compare`: a :class:`~mxsame.port.report.Difference` of each layer, which is printed as a table.

    >>> Comparison([Difference("conv", "Conv2D", 2e-7)])
    layer  class   difference
    conv   Conv2D  2.0e-07
    The layer matches; largest difference 2.0e-07 (layer conv).
    """

    @property
    def differing(self) -> Tuple[Difference, ...]:
        """The layers that differ by more than rounding, in the order in which they run."""
        return tuple(each for each in self if each.difference > ROUNDING)

    @property
    def verdict(self) -> str:
        """Whether the layers are equal, or the first that is not: the last line of the table."""
        for first in self.differing:
            found = f"difference {first.difference:.2g} (tolerance {ROUNDING:g})"
            return f"First mismatch: {first.layer} ({first.class_name}), {found}."
        largest = max(self, key=lambda each: each.difference)
        count = f"All {len(self)} layers match" if self[1:] else "The layer matches"
        return f"{count}; largest difference {largest.difference:.1e} (layer {largest.layer})."

    def __repr__(self) -> str:
        rows = [("layer", "class", "difference")]
        rows += [(each.layer, each.class_name, f"{each.difference:.1e}") for each in self]
        return "\n".join((*aligned(rows), self.verdict))


@check_arguments
def compare(net: Network, reference: Union[KerasModel, Mapping[str, Any]],
            inputs: Optional[Arrays] = None) -> Comparison:  # fmt: skip
    """Compare the layers of a net from :func:`mxsame.from_keras` with Keras's, in the order in which they run.

    Parameters
    ----------
    net : Network
        The network, with the weights of the model.
    reference : a model of tf.keras or Keras 3, or a mapping of arrays
        The model, or the outputs that another process recorded, by the names of the layers; an `.npz` file that
        `numpy.load` opens is such a mapping. Other names in it are ignored.
    inputs : array or list of arrays, optional
        In Keras's order of axes; those of recorded outputs must be given. The default is random numbers, and random
        indices for an Embedding.

    Returns
    -------
    Comparison
        (layer, class_name, difference) of each layer; `print` shows a table, and the first layer that is wrong. In an
        `if`, use `differing`, which has the layers that are wrong. Rounding causes differences up to 1e-5, shifted
        windows cause some above 0.01. Another shape, and NaN in only one of the two, counts as an infinite difference.
        A layer is compared if it is in the reference; of a nested model only its output.

    Raises
    ------
    TypeError, ValueError
        For a net that is not from :func:`mxsame.from_keras`, a reference without a layer of the net, and inputs that
        are missing or have other shapes.

    >>> import mxsame, numpy as np
    >>> net = mxsame.from_keras(mxsame.sample("digits"))
    >>> image = np.zeros((1, 8, 8, 1))
    >>> print(mxsame.compare(net, {"flatten": np.zeros((1, 64))}, image))  # another shape
    layer    class    difference
    flatten  Flatten  inf
    First mismatch: flatten (Flatten), difference inf (tolerance 0.0001).
    """
    check_network(net)
    recorded: Any = reference if isinstance(reference, Mapping) else None
    rule = "reference must be a Keras model, as keras.models.load_model(file) returns, or a mapping of names to arrays"
    is_model = hasattr(reference, "layers") and not isinstance(reference, mx.gluon.Block)
    check_type(recorded is not None or is_model, rule, reference=reference)
    rule = "inputs must be given with recorded outputs: those that Keras computed them from"
    check_type(recorded is None or inputs is not None, rule, inputs=inputs)
    arrays = random_inputs(net) if inputs is None else list(map(_as_numpy, as_list(inputs)))
    check(len(arrays) == len(net.inputs), f"inputs must be {len(net.inputs)} arrays; received {len(arrays)}")
    ours, wanted = {}, _operations(reference) if recorded is None else recorded
    for path, layer, _, out in net.layer_outputs(*_in_order(net, arrays), keras_order=True):
        name = "/".join(path)
        if name in wanted:
            ours[name] = (layer.class_name, out.asnumpy())
    layers = ", ".join(dict.fromkeys("/".join(path) for path in net.paths))
    check(ours, f"reference must have layers of the net, which are {layers}; received those of {', '.join(wanted)}")
    theirs = _keras_outputs(reference, list(ours), arrays) if recorded is None else recorded
    each = (Difference(name, kind, difference(out, _as_numpy(theirs[name]))) for name, (kind, out) in ours.items())
    return Comparison(each)


def _as_numpy(array: Any) -> np.ndarray:
    return array.asnumpy() if isinstance(array, mx.nd.NDArray) else np.asarray(array)


def random_inputs(net: Network, shapes: Optional[Sequence[Sequence[int]]] = None) -> List[np.ndarray]:
    """Returns random inputs in Keras's order of axes. `shapes` are in the net's order; by default the model's, with a
    batch of 2, and 32 for dynamic lengths."""
    random, arrays, counts = np.random.default_rng(0), [], net._steps.index_counts()
    for number, value in enumerate(net.inputs):
        if shapes is None:
            shape = [2, *(length or 32 for length in value.shape[1:])]
        else:
            shape = [shapes[number][axis] for axis in value.keras_order]
        is_indices = value.key in counts
        values = random.integers(counts[value.key], size=shape) if is_indices else random.normal(size=shape)
        arrays.append(values.astype("float32"))
    return arrays


def _in_order(net: Network, arrays: Sequence[np.ndarray]) -> List[Any]:
    """Returns Keras's inputs in the net's order of axes."""
    given, dtype, indices = [], float_dtype(net.collect_params()) or "float32", net._steps.index_counts()
    for value, array in zip(net.inputs, arrays):
        check_shape("inputs", array.shape, value.shape, "that the Keras model was built for, in Keras's order of axes")
        is_float = value.key not in indices and value.dtype == "float32"  # float16 does not have all integers
        array = array.transpose(np.argsort(value.keras_order))
        given.append(mx.nd.array(array, dtype=dtype if is_float else "float32"))
    return given


def _operations(model: Any) -> Dict[str, Any]:
    """Returns the layers of a model by name; those of Keras 3 with the operators between them."""
    return {layer.name: layer for layer in getattr(model, "operations", model.layers)}


def _keras_outputs(model: Any, names: Sequence[str], inputs: Sequence[np.ndarray]) -> Dict[str, Any]:
    """Returns the outputs of layers of a live model, by name."""
    live = _operations(model)
    functional = importlib.import_module(type(model).__module__.split(".")[0]).Model
    known = [*live, *(tensor._keras_history[0].name for tensor in model.inputs)]
    wanted = functional(model.inputs, [_output(live[name], known) for name in names])
    # In a graph: run eagerly, TensorFlow 2.18 is wrong for some strided convolutions with channels first on the CPU.
    given = wanted.predict_on_batch(list(inputs) if len(inputs) > 1 else inputs[0])
    return dict(zip(names, as_list(given)))


def _output(layer: Any, names: Sequence[str]) -> Any:
    """Returns the output of a layer's first call in the model: a nested model has been called before, too."""
    for node in layer._inbound_nodes:
        sources = [tensor._keras_history[0].name for tensor in as_list(node.input_tensors)]
        if set(sources) <= set(names):
            return as_list(node.outputs)[0]
    raise InvalidValue(f"layer {layer.name!r} must be called in the model")
