"""`from_keras` and `to_keras_weights`."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.port import weights as weighing
from mxsame.port.description import Layer, Model, Shaped
from mxsame.port.network import SAME, Builder, Network, Site, Slot, Value
from mxsame.port.operators import OPERATORS, name_of
from mxsame.port.reading import known_roles, read
from mxsame.port.table import LAYERS


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

    def built(watch: Callable[[int], None], **how: Any) -> Tuple[Builder, list, list]:
        return _built(model, Builder(rows.row_of, rows.roles, watch, **how), layout)

    if padding is None:
        builder, inputs, outputs = built(lambda done: watch(done, total))
    else:
        plain, _, _ = built(lambda done: None, weightless=True)
        builder, inputs, outputs = built(lambda done: watch(done, total), plain=plain)
    return Network(model, builder, inputs, outputs)


def _built(model: Model, builder: Builder, layout: Optional[str]) -> Tuple[Builder, list, list]:
    """The builder after it has built the model, and the inputs and outputs."""
    layers = {layer.name: layer for layer in model.layers}
    format_of = _data_format(model, layout)
    inputs = []
    for tensor in model.inputs:
        shape = _input_shape(layers.get(tensor.layer), tensor.layer)
        inputs.append(builder.value(shape, _channels_first(shape, layout, format_of)))
    outputs = builder.model(model, (), inputs)
    outputs = [
        builder.arranged(builder.padded(value), _channels_first(value.shape, layout, format_of)) for value in outputs
    ]
    return builder, inputs, _distinct(builder, inputs, outputs)


def _distinct(builder: Builder, inputs: Sequence[Value], outputs: Sequence[Value]) -> list:
    """An output that is an input is a step of its own: a graph needs one."""
    given = {value.key for value in inputs}
    return [
        builder.function("output", "identity", [value], value.shape, value.first) if value.key in given else value
        for value in outputs
    ]


class _Rows:
    """The two tables and the user's own."""

    def __init__(self, custom: Mapping[str, Callable]):
        self.custom = custom

    def row_of(self, layer: Layer) -> Callable:
        """What builds a layer."""
        found = self._custom_of(layer)
        if found is not None:
            return lambda site, args, kwargs: _custom(site, args, kwargs, found)
        operator = layer.operator
        row = LAYERS.get(layer.class_name) if operator is None else OPERATORS.get(name_of(operator))
        if row is None:
            raise ValueError(unsupported([layer]))
        return row

    def roles(self, layer: Layer) -> list:
        return [] if self._custom_of(layer) is not None else known_roles(layer) or []

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

    def _custom_of(self, layer: Layer) -> Optional[Callable]:
        names = (layer.name, layer.class_name if layer.operator is None else layer.operator)
        return next((self.custom[name] for name in names if name in self.custom), None)


def unsupported(layers: Sequence[Layer]) -> str:
    """The message for layers that are not in the table."""
    shown = [f"{layer.operator or layer.class_name} ({layer.name!r})" for layer in layers[:8]]
    key = layers[0].operator or layers[0].class_name
    return (
        "every layer must be supported, or be given by "
        f"custom={{{key!r}: function of (config, weights) -> HybridBlock}}; "
        f"received {', '.join(shown)}{', ..' if len(layers) > 8 else ''}"
    )


def _custom(site: Site, args: list, kwargs: dict, make: Callable) -> Value:
    """A block of the user's, on arrays in Keras's order."""
    site.custom = True
    inputs = [
        site.keras(x) for entry in args for x in (entry if isinstance(entry, list) else [entry]) if isinstance(x, Value)
    ]
    if site.path not in site.builder.blocks:
        block = make(site.config, [np.asarray(array) for array in site.layer.weights])
        if not isinstance(block, mx.gluon.HybridBlock):
            raise TypeError(f"custom must return a HybridBlock; received a {type(block).__name__}")
        site.builder.blocks[site.path] = block
        site.layer.weights = [Shaped(tuple(array.shape)) for array in site.layer.weights]
    block = site.builder.blocks[site.path]
    shape = _custom_shape(block, inputs)
    return site.builder.emit(block, inputs, shape, False, site.name)


def _custom_shape(block: Any, inputs: Sequence[Value]) -> tuple:
    """The shape of a custom block's output: inferred twice, with different numbers for dynamic lengths, of which no
    strides make the same."""
    found = []
    for length in (509, 1021):
        variables = [mx.sym.var(f"data{number}") for number in range(len(inputs))]
        shapes = {f"data{number}": tuple(n or length for n in value.shape) for number, value in enumerate(inputs)}
        out = block(*variables)
        if not isinstance(out, mx.sym.Symbol) or len(out.list_outputs()) != 1:
            raise TypeError("custom must return a block with one output")
        found.append(out.infer_shape_partial(**shapes)[1][0])
    return tuple(a if a == b and a else None for a, b in zip(*found))


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
    slots: Dict[int, Dict[str, Slot]] = {key: {slot.role: slot for slot in found} for key, found in net.slots.items()}

    def arrays(layer: Layer) -> Dict[str, Any]:
        found = {}
        for (role, _), stored in zip(known_roles(layer) or [], layer.weights):
            slot = slots.get(id(layer), {}).get(role)
            if slot is None:
                found[role] = np.asarray(stored)
                continue
            value = slot.parameter.data(slot.parameter.list_ctx()[0]).asnumpy()
            found[role] = np.ascontiguousarray((slot.conversion or SAME).to_keras(value))
        return found

    custom = [layer.name for layer in net.description.walk() if layer.weights and known_roles(layer) is None]
    if custom:
        raise ValueError(f"net must have no custom layers with weights; {validation.received(layers=custom)}")
    weighing.write(path, net.description, arrays, lambda layer: known_roles(layer) or [])
