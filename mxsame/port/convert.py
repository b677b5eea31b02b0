"""`from_keras` and `to_keras_weights`."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.port import weights as weighing
from mxsame.port.builder import Builder, Operand, Site, Value
from mxsame.port.description import Layer, Model, Shaped
from mxsame.port.network import Network
from mxsame.port.reading import read
from mxsame.port.rows import KERAS, Row, values_in
from mxsame.port.table import row_of


def from_keras(
    source: Any,
    weights: Any = None,
    *,
    layout: Optional[str] = None,
    custom: Optional[Mapping[str, Callable]] = None,
    padding: Optional[str] = None,
) -> Network:
    """A Keras model as a Gluon network, with its weights: same inputs, same outputs.

    Parameters
    ----------
    source : path or Keras model
        An `.h5` file of a whole model, a `.keras` archive, the JSON of `model.to_json()`, or a model of `tf.keras` or
        Keras 3. Files are read without TensorFlow and Keras; nothing in them is executed.
    weights : path, optional
        An `.h5` or `.weights.h5` file, which a JSON file needs, or a `.keras` archive.
    layout : "NCHW", "NHWC" or one of their relatives, optional
        In which order inputs and outputs of that many axes have theirs; that of the model by default.
    custom : dict, optional
        For layers that are not supported: the name of a class, of a layer or of a function, and a function of
        (config, weights) that returns a HybridBlock, which takes arrays in Keras's order of axes.
    padding : "keras-mxnet", optional
        For models that were trained in keras-mxnet.

    Returns
    -------
    HybridBlock
        Its children and parameters have the names of Keras's layers. Layers that are not trainable have parameters
        without gradients.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, for files that are broken, and for layers that are not supported, with their names.

    Notes
    -----
    Inputs have the lengths that the model declares, and any where it has None, as in Keras. Arrays of others are a
    `ValueError`; graphs and files of the network refuse them with an error of an operator `data_must_be_..`.

    Weights are float32. Losses of regularizers, constraints and the state of an optimizer are not taken over. A batch
    norm moves its statistics when gradients are computed, by the biased variance. Recurrent and attention layers and
    masks are not supported.

    Layers of noise are left out of what `net.export`, `mxsame.export` and `mxsame.deploy` write. In a file that Gluon's
    `export` writes of a block around the network they remain, and add zeros.

    Examples
    --------
    A model without weights, as `model.to_json()` writes it:

    >>> import json, os, tempfile
    >>> import mxsame
    >>> from mxnet import nd
    >>> picture = {"class_name": "InputLayer", "config": {"name": "picture", "batch_input_shape": [None, 7, 7, 3]}}
    >>> pool = {"class_name": "MaxPooling2D", "config": {"name": "pool", "pool_size": [2, 2], "padding": "same"}}
    >>> path = os.path.join(tempfile.mkdtemp(), "model.json")
    >>> with open(path, "w") as file:
    ...     json.dump({"class_name": "Sequential", "config": {"layers": [picture, pool]}}, file)
    >>> mxsame.from_keras(path)(nd.zeros((1, 7, 7, 3))).shape
    (1, 4, 4, 3)
    >>> mxsame.from_keras(path, layout="NCHW")(nd.zeros((1, 3, 7, 7))).shape
    (1, 3, 4, 4)
    """
    return watched(source, weights, layout, custom, padding)


def watched(
    source: Any,
    weights: Any = None,
    layout: Optional[str] = None,
    custom: Optional[Mapping[str, Callable]] = None,
    padding: Optional[str] = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Network:
    """`from_keras`, which calls `watch(done, total)` after each layer."""
    if mx.util.is_np_array():
        raise ValueError("from_keras must be called outside np mode (npx.reset_np)")
    custom = _checked_custom(custom)
    if padding not in (None, "keras-mxnet"):
        raise ValueError(f'padding must be "keras-mxnet" or None; {validation.received(padding=padding)}')
    if layout is not None:
        validation.rank_of_layout(layout)
    rows = _Rows(custom)
    model = read(source, weights, rows.check)
    total = model.calls()
    builder = Builder(rows.row_of, lambda done: watch(done, total), keras_mxnet=padding is not None)
    layers = {layer.name: layer for layer in model.layers}
    format_of = _data_format(model, layout)
    inputs, floats = [], []
    for tensor in model.inputs:
        layer = layers.get(tensor.layer)
        shape = _input_shape(layer, tensor.layer)
        inputs.append(builder.value(shape, _channels_first(shape, layout, format_of)))
        floats.append(_as_float(builder, inputs[-1], layer))
    outputs = [
        builder.arranged(value, _channels_first(value.shape, layout, format_of))
        for value in builder.model(model, (), floats)
    ]
    return Network(model, builder, inputs, _distinct(builder, inputs, outputs))


def _as_float(builder: Builder, value: Value, layer: Any) -> Value:
    """An input that the model declares to be of another type, as pictures of bytes; int32 and int64 are left, for they
    are the entries of an Embedding."""
    dtype = layer.config.get("dtype")
    if not isinstance(dtype, str) or dtype in ("float32", "int32", "int64"):
        return value
    return builder.function("input", "cast", [value], dtype="float32")


def _distinct(builder: Builder, inputs: Sequence[Value], outputs: Sequence[Value]) -> list:
    """An output that is an input is a step of its own: a graph needs one."""
    given = {value.key for value in inputs}
    return [builder.function("output", "identity", [value]) if value.key in given else value for value in outputs]


class _Rows:
    """The table and the user's own."""

    def __init__(self, custom: Mapping[str, Callable]):
        self.custom = custom

    def row_of(self, layer: Layer) -> Row:
        """What builds a layer."""
        names = (layer.name, layer.class_name if layer.operator is None else layer.operator)
        make = next((self.custom[name] for name in names if name in self.custom), None)
        row = row_of(layer) if make is None else Row(partial(_custom, make=make), KERAS)
        if row is None:
            raise ValueError(unsupported([layer]))
        return row

    def check(self, model: Model) -> None:
        """Refuses a model with layers that are not supported, all of them at once."""
        missing = []
        for layer in model.walk():
            if layer.class_name == "InputLayer":
                continue
            try:
                self.row_of(layer)
            except ValueError:
                missing.append(layer)
        if missing:
            raise ValueError(unsupported(missing))


def unsupported(layers: Sequence[Layer]) -> str:
    """The message for layers that are not in the table."""
    shown = [f"{layer.operator or layer.class_name} ({layer.name!r})" for layer in layers[:8]]
    key = layers[0].operator or layers[0].class_name
    return (
        "every layer must be supported, or be given by "
        f"custom={{{key!r}: function of (config, weights) -> HybridBlock}}; "
        f"received {', '.join(shown)}{', ..' if len(layers) > 8 else ''}"
    )


def _custom(site: Site, *inputs: Operand, make: Callable, **constants: Operand) -> Value:
    """A block of the user's, on arrays in Keras's order."""
    arrays = values_in([*inputs, *constants.values()])
    if site.path not in site.builder.blocks:
        block = make(site.config, [np.asarray(array) for array in site.layer.weights])
        if not isinstance(block, mx.gluon.HybridBlock):
            raise TypeError(f"custom must return a HybridBlock; received a {type(block).__name__}")
        site.builder.blocks[site.path] = block
        site.layer.weights = [Shaped(tuple(array.shape)) for array in site.layer.weights]
    return site.builder.emit(site.builder.blocks[site.path], arrays, site.name, False)


def _checked_custom(custom: Any) -> Dict[str, Callable]:
    if custom is None:
        return {}
    if not isinstance(custom, Mapping) or not all(
        isinstance(key, str) and callable(make) for key, make in custom.items()
    ):
        raise TypeError(f"custom must map names to functions; {validation.received(custom=custom)}")
    return dict(custom)


def _input_shape(layer: Optional[Layer], name: str) -> Tuple[Optional[int], ...]:
    if layer is None or layer.class_name != "InputLayer":
        raise ValueError(f"inputs of a model must be input layers; {validation.received(input=name)}")
    shape = layer.config.get("batch_shape", layer.config.get("batch_input_shape"))
    if not isinstance(shape, (list, tuple)) or not shape:
        raise ValueError(f"input {name!r} must have a shape: build the model before it is saved; received {shape}")
    lengths = [None if n is None else validation.integer(f"shape of input {name!r}", n, 1) for n in shape]
    return (None, *lengths[1:])


def _data_format(model: Model, layout: Optional[str]) -> str:
    """The one data format of a model's layers, which decides what a layout means for it."""
    formats = {layer.config.get("data_format") for layer in model.walk() if _has_data_format(layer)}
    if layout is not None and len(formats) > 1:
        raise ValueError(f"layout must be None for a model of both data formats; {validation.received(layout=layout)}")
    return formats.pop() if len(formats) == 1 else "channels_last"


def _has_data_format(layer: Layer) -> bool:
    return layer.config.get("data_format") in ("channels_last", "channels_first")


def _channels_first(shape: Sequence, layout: Optional[str], data_format: str) -> bool:
    """Whether an input or output of the net has channels first where Keras's has them last."""
    if layout is None or len(shape) != len(layout):
        return False
    if data_format == "channels_first" and not layout.startswith("NC"):
        raise ValueError(f"layout must have channels first, as the model does; {validation.received(layout=layout)}")
    return data_format == "channels_last" and layout.startswith("NC")


def to_keras_weights(net: Network, path: Any) -> None:
    """Write the weights of a net from :func:`from_keras` as an `.h5` file that `model.load_weights` takes.

    Raises `TypeError` for another net and `ValueError` for a path that does not end in .h5.

    >>> import mxsame
    >>> def trained(path):
    ...     net = mxsame.from_keras("model.h5")
    ...     ...  # as any Gluon net
    ...     mxsame.to_keras_weights(net, path)
    """
    if not isinstance(net, Network):
        raise TypeError(f"net must be one that from_keras returned; received net of type {type(net).__name__}")
    mx.nd.waitall()  # as mxsame.graphs.frozen.values
    slots = {key: {slot.role: slot for slot in found} for key, found in net.slots.items()}

    def arrays(layer: Layer) -> Dict[str, Any]:
        found = {}
        for role, stored in zip(layer.roles or [], layer.weights):
            slot = slots[id(layer)].get(role.name)
            if slot is None:
                found[role.name] = np.asarray(stored)
                continue
            value = slot.parameter.data(slot.parameter.list_ctx()[0]).asnumpy()
            found[role.name] = np.ascontiguousarray(slot.conversion.to_keras(value))
        return found

    custom = [layer.name for layer in net.description.walk() if layer.weights and id(layer) not in slots]
    if custom:
        raise ValueError(f"net must have no custom layers with weights; {validation.received(layers=custom)}")
    weighing.write(path, net.description, arrays)
