"""`from_keras` and `to_keras_weights`."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from mxsame import progress, validation
from mxsame._mxnet import mx
from mxsame.port import types
from mxsame.port import weights as weighing
from mxsame.port.activations import users_names
from mxsame.port.builder import Builder, Operand, Site, Value, users_code
from mxsame.port.description import WRAPPER, Layer, Model, Placed, Weight, class_and_config, leaves, listed
from mxsame.port.network import Network
from mxsame.port.reading import read
from mxsame.port.rows import KERAS, LAYERS, TAKES, Row
from mxsame.port.table import row_of
from mxsame.progress import Progress, report


@progress.reported
@validation.renamed(custom_objects="custom: a dict of functions of (config, weights)")
def from_keras(
    source: Any,
    weights: Any = None,
    *,
    layout: Optional[str] = None,
    custom: Optional[Mapping[str, Callable]] = None,
    padding: Optional[str] = None,
    progress: Optional[Progress] = None,
) -> Network:
    """Read a Keras model as a Gluon network with its weights: same inputs, same outputs.

    Parameters
    ----------
    source : path, str or Keras model
        An `.h5` file of a whole model, a `.keras` archive, the JSON of `model.to_json()` in a file or as it is, or a
        model of `tf.keras` or Keras 3. Files are read without TensorFlow and Keras; nothing in them is executed.
    weights : path, optional
        An `.h5` or `.weights.h5` file, which a JSON file needs, or a `.keras` archive.
    layout : "NCHW", "NHWC" or one of their relatives, optional
        In which order inputs and outputs of that many axes have theirs; that of the model by default.
    custom : dict, optional
        For what is not Keras's own, or not supported. By the name of a class, of a layer or of a function between
        layers: a function of (config, weights) that returns a HybridBlock, which takes arrays in Keras's order of axes,
        and the mask of the first if its `hybrid_forward` has a parameter `mask`; its outputs have that mask if it has
        `supports_masking`. Or the name of the layer of Keras that the class is, as `{"MyLSTM": "LSTM"}`. Or a function
        of (config) that returns the `{"class_name": .., "config": ..}` of such a layer, or a list of them, one after
        the other, of which the first has the weights. By the name of an activation, "<lambda>" if it has none: a
        function of (F, x), as `{"swish2": lambda F, x: x * F.sigmoid(2 * x)}`. Errors in a function are raised as they
        are.
    padding : "keras-mxnet", optional
        For models that were trained in keras-mxnet.
    progress : function of (stage, done, total), optional
        Called with the name of what is being done, and how many of its parts are done: "building layers", 3, 20.

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

    Inputs are cast to the types that the model declares. Integers stay integers, by TensorFlow's rules or those of
    Keras 3, or the layer is refused by name; bools are ones and zeros of float32.

    Weights are float32. Losses of regularizers, constraints and the state of an optimizer are not taken over. A batch
    norm moves its statistics when gradients are computed, by the biased variance.

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
    if mx.util.is_np_array():
        raise ValueError("from_keras must be called outside np mode (npx.reset_np)")
    rows = _Rows(custom)
    if padding not in (None, "keras-mxnet"):
        raise ValueError(f'padding must be "keras-mxnet" or None; {validation.received(padding=padding)}')
    if layout is not None:
        validation.rank_of_layout(layout)
    report("reading")
    model = read(source, weights, rows.check)
    builder = Builder(rows.row_of, model.calls(), rows.custom, keras_mxnet=padding is not None)
    layers = {layer.name: layer for layer in model.layers}
    format_of = _data_format(model, layout)
    inputs = []
    for tensor in model.inputs:
        layer = layers.get(tensor.layer)
        shape = _input_shape(layer, tensor.layer)
        inputs.append(builder.value(shape, _channels_first(shape, layout, format_of)))
    outputs = [
        builder.arranged(value, _channels_first(value.shape, layout, format_of))
        for value in builder.model(model, (), [x._replace(dtype=types.GIVEN) for x in inputs])
    ]
    given = {value.key for value in inputs}  # an output that is an input is a step of its own: a graph needs one
    outputs = [builder.function("output", "identity", [value]) if value.key in given else value for value in outputs]
    return Network(model, builder, inputs, outputs)


class _Rows:
    """The table and the user's own."""

    def __init__(self, custom: Any):
        self.custom = {} if custom is None else custom
        values = self.custom.values() if isinstance(self.custom, Mapping) else [None]
        if not all(_is_usable(value) for value in values):
            raise TypeError(
                "custom must map names to functions that return blocks, and not to blocks, or to names of Keras's "
                f"layers; {validation.received(custom=custom)}"
            )
        self.activations: Set[str] = set()  # names of activations among those of `custom`
        self.after: Dict[int, List[Layer]] = {}  # what comes after a layer that the user replaced, by its identity

    def row_of(self, layer: Layer) -> Optional[Callable]:
        """What builds a layer."""
        make, row = self._given(layer), row_of(layer)
        if make is not None and not _is_configuration(make):
            return Row(partial(_custom, make=make), KERAS, masks=TAKES)
        return partial(_in_turn, row, after) if row and (after := self.after.get(id(layer))) else row

    def _given(self, layer: Layer) -> Any:
        """The user's function for it; that of an activation is for no layer of its name."""
        names = (name for name in _names(layer) if name in self.custom and name not in self.activations)
        return next((self.custom[name] for name in names), None)

    def check(self, model: Model) -> None:
        """Refuses a model with layers that are not supported, all of them at once, and names that no layer has."""
        layers = [*model.walk(), *model.layers]
        names = {name for layer in layers for name in _names(layer)}
        self.activations.update(name for layer in layers for name in users_names(layer.config))
        for layer in model.walk():
            replacement = self._given(layer)
            if replacement is not None and _is_configuration(replacement):
                self._replace(layer, replacement)
        missing = [layer for layer in model.walk() if layer.class_name != "InputLayer" and not self.row_of(layer)]
        if missing:
            shown = [f"{_names(layer)[1]} ({layer.name!r})" for layer in missing[:8]]
            keys = ", ".join(f"{name!r}: function" for name in dict.fromkeys(_names(each)[-1] for each in missing[:8]))
            more = ", .." if len(missing) > 8 else ""
            raise ValueError(
                f"every layer must be supported, or be given by custom={{{keys}{more}}}, each function of (config, "
                "weights) -> HybridBlock (on the command line the dict of a module, --custom MODULE:NAME); "
                f"received {', '.join(shown)}{more}"
            )
        unknown = set(self.custom) - names - self.activations
        if unknown:
            raise ValueError(
                "custom must have names of the model's layers, classes or functions; "
                f"{validation.received(custom=sorted(map(str, unknown)))}"
            )

    def _replace(self, layer: Layer, replacement: Any) -> None:
        """Give a layer the class and the configuration that the user names for it."""
        if isinstance(replacement, str):
            entries = [{"class_name": replacement, "config": layer.config}]
        else:
            with users_code():
                entries = listed(replacement(dict(layer.config)))
        first, *after = entries
        layer.stored_as, (layer.class_name, layer.config) = layer.class_name, class_and_config(first)
        self.after[id(layer)] = [_after(layer, *class_and_config(entry)) for entry in after]
        if layer.class_name not in LAYERS or layer.class_name == WRAPPER or None in map(row_of, self.after[id(layer)]):
            names = [class_and_config(entry)[0] for entry in entries]
            raise ValueError(f"custom of {layer.name!r} must name layers of Keras; {validation.received(names=names)}")


def _is_usable(given: Any) -> bool:
    """Whether it is a name or a function. A block is called with data, and the class of one whose `__init__` is
    Gluon's takes no configuration."""
    if isinstance(given, type) and issubclass(given, mx.gluon.Block):
        return given.__init__.__module__.partition(".")[0] not in ("mxnet", "mxsame")
    return isinstance(given, str) or (callable(given) and not isinstance(given, mx.gluon.Block))


def _is_configuration(given: Any) -> bool:
    """Whether it is the name of a layer of Keras, or a function of a configuration alone."""
    try:
        return isinstance(given, str) or not inspect.signature(given).bind(None, None)
    except TypeError:
        return True


def _after(layer: Layer, class_name: str, config: Dict[str, Any]) -> Layer:
    return Layer(class_name, layer.name, config, operator=None if class_name in LAYERS else class_name)


def _in_turn(row: Row, after: Sequence[Layer], site: Site, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
    """A layer, and what the user puts after it."""
    out = row(site, args, kwargs)
    for layer in after:
        here = Site(site.builder, layer, site.path, site.call, site.model, site.training, site.once)
        out = row_of(layer)(here, listed(out), {})  # type: ignore[misc]
    return out


def _names(layer: Layer) -> Tuple[str, str, str]:
    """The names by which a user's function may be given for it."""
    name = layer.operator or layer.class_name
    return layer.name, name, name.split(">")[-1]


def _custom(site: Site, *inputs: Operand, make: Callable, **constants: Operand) -> List[Value]:
    """A block of the user's, on arrays in Keras's order, and the mask of the first if it takes one."""
    layer, builder = site.layer, site.builder
    if site.path not in builder.blocks:
        with users_code():
            block = make(site.config, [np.asarray(array) for array in layer.weights])
        if not isinstance(block, mx.gluon.HybridBlock):
            raise TypeError(f"custom must return a HybridBlock; received a {type(block).__name__}")
        builder.blocks[site.path] = builder.custom[id(layer)] = block
        layer.weights = [Placed(tuple(array.shape)) for array in layer.weights]
        if layer.roles is None and len(site.path) == 1:  # in a nested model, what is trained would come first
            layer.roles = [Weight(f"weight_{number}") for number in range(len(layer.weights))]
    block, arrays = builder.blocks[site.path], leaves([*inputs, *constants.values()], Value)
    mask = arrays[0].mask
    if mask is not None and "mask" in inspect.signature(block.hybrid_forward).parameters:
        arrays.append(mask)
    with users_code():
        outputs = builder.emit(block, arrays, site.name, False)
    return [out._replace(mask=mask) for out in outputs] if getattr(block, "supports_masking", False) else outputs


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
    declared = [layer.config.get("data_format") for layer in model.walk()]
    formats = {each for each in ("channels_last", "channels_first") if each in declared}
    if layout is not None and len(formats) > 1:
        raise ValueError(f"layout must be None for a model of both data formats; {validation.received(layout=layout)}")
    return formats.pop() if len(formats) == 1 else "channels_last"


def _channels_first(shape: Sequence, layout: Optional[str], data_format: str) -> bool:
    """Whether an input or output of the net has channels first where Keras's has them last."""
    if layout is None or len(shape) != len(layout):
        return False
    if data_format == "channels_first" and not layout.startswith("NC"):
        raise ValueError(f"layout must have channels first, as the model does; {validation.received(layout=layout)}")
    return data_format == "channels_last" and layout.startswith("NC")


def to_keras_weights(net: Network, path: Any, *, custom: Optional[Mapping[str, Callable]] = None) -> None:
    """Write the weights of a net from :func:`mxsame.from_keras` as a file that `model.load_weights` takes.

    A `path` that ends in `.weights.h5` gets the format of Keras 3, which tf.keras 2.13 reads, too; another `.h5` file
    has the older format, which every Keras reads.

    `custom` is for layers that were given to :func:`from_keras` so, and have weights: the name of a class or of a
    layer, and a function of the block that returns the layer's arrays, as Keras has them and in its order.

    Raises `TypeError` for another net, and `ValueError` for a path that does not end in .h5, and for a custom layer
    with weights that has no function or is in a nested model, whose order of weights is not known.

    >>> import mxsame
    >>> def trained(path):
    ...     net = mxsame.from_keras("model.h5")
    ...     ...  # as any Gluon net
    ...     mxsame.to_keras_weights(net, path)
    """
    if not isinstance(net, Network):
        raise TypeError(f"net must be one that from_keras returned; received net of type {type(net).__name__}")
    mx.nd.waitall()  # as mxsame.graphs.deploy.values

    def arrays(layer: Layer) -> Dict[str, Any]:
        block = net.custom.get(id(layer))
        if block is None or not layer.weights:
            return arrays_of(layer)
        return dict(zip([role.name for role in layer.roles or []], _custom_arrays(layer, block, custom or {})))

    for layer in net.description.walk():
        if layer.weights and layer.roles is None:
            raise ValueError(f"custom layers with weights must not be in nested models; received {layer.name!r}")
    weighing.write(path, net.description, arrays)


def arrays_of(layer: Layer) -> Dict[str, np.ndarray]:
    """The weights of a layer as Keras has them, by their names."""
    return dict(zip([role.name for role in layer.roles or []], map(_array, layer.weights)))


def _array(stored: Any) -> np.ndarray:
    """A weight as Keras has it."""
    if not isinstance(stored, Placed):
        return np.asarray(stored)
    value = stored.parameter.data(stored.parameter.list_ctx()[0]).asnumpy()
    return np.ascontiguousarray(stored.to_keras(value)).reshape(stored.shape)  # a scalar is (1,) in MXNet


def _custom_arrays(layer: Layer, block: Any, custom: Mapping[str, Callable]) -> List[Any]:
    function = next((custom[name] for name in _names(layer) if name in custom), None)
    if function is None:
        raise ValueError(
            f"custom layers with weights need custom={{{_names(layer)[-1]!r}: function of (block) -> arrays}}; "
            f"received {layer.name!r}"
        )
    arrays, shapes = list(map(np.asarray, function(block))), [tuple(stored.shape) for stored in layer.weights]
    if [array.shape for array in arrays] != shapes:
        raise ValueError(
            f"custom of {layer.name!r} must give arrays of the shapes {shapes}; "
            f"{validation.received(shapes=[array.shape for array in arrays])}"
        )
    return arrays
