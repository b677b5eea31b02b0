"""`from_keras` and `to_keras_weights`."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from mxsame import progress
from mxsame._mxnet import mx
from mxsame.graphs.files import Written, check_path, draft_for
from mxsame.keras_format import dtypes, weights as weight_files
from mxsame.keras_format.description import Layer, Model, as_list
from mxsame.keras_format.topology import Path, layers_of, path_of, submodel
from mxsame.port import keras_mxnet
from mxsame.port.activations import identity
from mxsame.port.builder import Builder, unsupported_model
from mxsame.port.call_context import LayerState
from mxsame.port.custom import CustomConverters, custom_keys_of
from mxsame.port.network import Built, Network, check_network
from mxsame.port.parameters import LoadedWeight, arrays_of
from mxsame.port.reading import read
from mxsame.progress import Progress, report
from mxsame.types import FilePath, KerasModel, Layout
from mxsame.validation import check, check_arguments, check_type, integer, rank_of_layout

Custom = Union[Callable[..., Any], str]  # a function, or the name of a layer of Keras


@progress.reported
@check_arguments
def from_keras(
    source: Union[FilePath, KerasModel],
    weights: Optional[FilePath] = None,
    *,
    layout: Optional[Layout] = None,
    custom: Optional[Mapping[str, Custom]] = None,
    outputs: Union[str, Sequence[str], None] = None,
    padding: Optional[Literal["keras-mxnet"]] = None,
    progress: Optional[Progress] = None,
) -> Network:
    """Read a Keras model as a Gluon network with the same inputs, outputs and weights.

    Parameters
    ----------
    source : path, str or Keras model
        An `.h5` file of a whole model, a `.keras` archive, the JSON of `model.to_json()` as a file or a string, or a
        model of `tf.keras` or Keras 3. Files are read without TensorFlow and Keras; nothing in them is executed.
    weights : path, optional
        An `.h5` or `.weights.h5` file, or a `.keras` archive, for a model that is given as JSON.
    layout : "NCHW", "NHWC" or the 1-D or 3-D equivalent, optional
        The axis order of all inputs and outputs of that rank; at least one must have it. By default, the model's.
    custom : dict, optional
        Replacements for classes, layers and functions that are not Keras's own, or not supported. A key is the name of
        a class, a layer, a function between layers, or an activation ("<lambda>" if that has no name). A value is

        - a function of (config, weights) that returns a HybridBlock. The block gets arrays in Keras's order of axes
          and of the model's dtypes (bools, integers of 8 and 16 bits, and float16 as float32). It gets the mask of the
          first array if its `hybrid_forward` has a parameter `mask`, and passes it on if it has `supports_masking`.
          Other arguments of a call are in the configuration: by name, or in the list `args`, with None for each array.
        - the name of the Keras layer that a class is, with all keys of its configuration: `{"MyLSTM": "LSTM"}`.
        - a function of (config) that returns the `{"class_name": .., "config": ..}` of such a layer, or a list of such
          layers, which run one after the other; the first has the weights.
        - for an activation, a function of (F, x): `{"swish2": lambda F, x: x * F.sigmoid(2 * x)}`.

        Exceptions in a function propagate.
    outputs : str or list of str, optional
        The layers whose outputs the network returns instead of the model's: "block5_pool". The layers after them, and
        inputs that they do not need, are left out. "base/conv" is a layer of a nested model.
    padding : "keras-mxnet", optional
        For models that were trained in keras-mxnet.
    progress : function of (stage, done, total), optional
        Called with the name of a stage, and how many of its parts are done: "building layers", 3, 20. With
        `print`, a line is printed for each: building layers 3 of 20.

    Returns
    -------
    HybridBlock
        Its children and parameters have the names of Keras's layers. Parameters of layers that are not trainable have
        no gradients.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, for files that are broken, and for layers that are not supported, with their names.

    Notes
    -----
    Inputs have the lengths that the model declares, and any length for None, as in Keras. Other lengths raise a
    `ValueError`; in graphs and files of the network, they raise an error of an operator `data_must_be_..`.

    Inputs are cast to the dtypes that the model declares; graphs and files of the network cast integers only. Integers
    of the model stay integers, by TensorFlow's rules or those of Keras 3, or the layer is refused by name. Bools become
    ones and zeros of float32.

    Weights are float32. Losses of regularizers, constraints and the state of an optimizer are not read. A batch
    norm updates its statistics, with the biased variance, when gradients are computed.

    `net.export`, `mxsame.export` and `mxsame.deploy` leave out noise layers. If Gluon's `export` writes a block
    around the network, they stay in the file, and add no noise.

    Examples
    --------
    A model without weights, as `model.to_json()` writes it:

    >>> import json, os, tempfile
    >>> import mxsame
    >>> from mxnet import nd
    >>> image = {"class_name": "InputLayer", "config": {"name": "image", "batch_input_shape": [None, 7, 7, 3]}}
    >>> pool = {"class_name": "MaxPooling2D", "config": {"name": "pool", "pool_size": [2, 2], "padding": "same"}}
    >>> path = os.path.join(tempfile.mkdtemp(), "model.json")
    >>> with open(path, "w") as file:
    ...     json.dump({"class_name": "Sequential", "config": {"layers": [image, pool]}}, file)
    >>> mxsame.from_keras(path)(nd.zeros((1, 7, 7, 3))).shape
    (1, 4, 4, 3)
    >>> mxsame.from_keras(path, layout="NCHW")(nd.zeros((1, 3, 7, 7))).shape
    (1, 3, 4, 4)
    """
    check(not mx.util.is_np_array(), "from_keras must be called outside np mode (npx.reset_np)")
    custom_converters = CustomConverters(custom)
    check(padding in (None, "keras-mxnet"), 'padding must be "keras-mxnet" or None', padding=padding)
    if layout is not None:
        rank_of_layout(layout)
    try:
        report("reading")
        model = read(source, weights, custom_converters.prepared)
        model = model if padding is None else keras_mxnet.adapted(model)
        check(outputs is None or as_list(outputs), "outputs must name at least one layer", outputs=outputs)
        paths = [path for path, _ in layers_of(model)]
        output_paths = [] if outputs is None else [path_of(name, paths) for name in as_list(outputs)]
        model = submodel(model, [outer for outer, *_ in output_paths]) if output_paths else model
        rank = _transposed_rank(model, layout)
        return Network(model, partial(_build, rank, custom_converters, output_paths, layout), rank, output_paths)
    except ValueError as error:
        if not custom_converters.unsupported or getattr(error, "is_custom", False):
            raise
        raise unsupported_model([*custom_converters.unsupported, *getattr(error, "reasons", [str(error)])]) from error


def _build(rank: int, custom_converters: CustomConverters, output_paths: Sequence[Path], layout: Any, model: Model,
           states: Mapping[Path, LayerState]) -> Built:  # fmt: skip
    """Builds a model with the blocks of an earlier build. Its outputs are those of `output_paths`, if any."""
    builder = Builder(custom_converters.converter_of, model.num_calls(), custom_converters.custom, states)
    steps, layers = builder.steps, {layer.name: layer for layer in model.layers}
    inputs = []
    for tensor in model.inputs:
        shape = _input_shape(layers.get(tensor.layer), tensor.layer)
        dtype = layers[tensor.layer].config.get("dtype")
        steps.has_batch_of_1 |= _declared_shape(layers[tensor.layer])[0] == 1
        value = steps.new_tensor(shape, len(shape) == rank)
        inputs.append(value._replace(dtype=dtype if isinstance(dtype, str) else "float32"))
    outputs = builder.build_model(model, (), [x._replace(dtype=dtypes.UNCAST) for x in inputs])
    outputs = [value for path in output_paths for value in builder.states[path].outputs] or outputs
    outputs = [steps.in_order(value, value.rank == rank) for value in outputs]
    fits = layout is None or any(len(value.shape) == len(layout) for value in (*inputs, *outputs))
    check(fits, "layout must have as many axes as an input or an output of the model", layout=layout)
    given = {value.key for value in inputs}  # a graph needs an operator between an input and an output
    outputs = [steps.apply("output", identity, value) if value.key in given else value for value in outputs]
    model = builder.loaded(model)
    if output_paths:
        builder.keep_only(outputs)
    return Built(model, builder, inputs, outputs)


def _input_shape(layer: Optional[Layer], name: str) -> Tuple[Optional[int], ...]:
    is_input = layer is not None and layer.class_name == "InputLayer"
    check(is_input, "inputs of a model must be input layers", input=name)
    shape = _declared_shape(layer)
    rule = f"input {name!r} must have a shape: build the model before it is saved; received {shape}"
    check(isinstance(shape, (list, tuple)) and shape, rule)
    lengths = [None if n is None else integer(f"shape of input {name!r}", n, 1) for n in shape]
    return (None, *lengths[1:])


def _declared_shape(layer: Layer) -> Any:
    return layer.config.get("batch_shape", layer.config.get("batch_input_shape"))


def _transposed_rank(model: Model, layout: Optional[str]) -> int:
    """Returns the rank of the arrays that are channels first in the network and channels last in Keras, or 0."""
    declared = [layer.config.get("data_format") for layer in model.walk()]
    formats = [each for each in ("channels_last", "channels_first") if each in declared]
    check(layout is None or len(formats) < 2, "layout must be None for a model of both data formats", layout=layout)
    is_first, is_last = layout is not None and layout.startswith("NC"), formats != ["channels_first"]
    check(layout is None or is_first or is_last, "layout must have channels first, as the model does", layout=layout)
    return len(layout) if is_first and is_last else 0


@check_arguments
def to_keras_weights(
    net: Network, path: FilePath, *, custom: Optional[Mapping[str, Callable[[Any], Sequence[Any]]]] = None
) -> Written:
    """Write the weights of a net from :func:`mxsame.from_keras` to a file for Keras's `model.load_weights`.

    A `path` that ends in `.weights.h5` gets the format of Keras 3, which tf.keras 2.13 reads, too; any other `.h5` file
    gets the older format, which every Keras reads.

    `custom` is needed if a custom layer of :func:`from_keras` has weights. It maps the name of the class or layer to a
    function of the block that returns the layer's arrays, as Keras has them and in its order.

    The weights of a net that was read with `outputs` are for `keras.Model(model.inputs, the outputs of these layers)`.
    If layers were replaced (`Network.replace`) by layers of `gluon.nn` or `mxsame.nn`, the weights are for a model that
    has Keras's layers of the same names and classes there: `Dense`, and convolutions with channels first.

    Raises `TypeError` for another net, and `ValueError` for a path that does not end in .h5, for a custom layer with
    weights that has no function or is in a nested model, whose order of weights is not known, and if any other block
    replaces a layer.

    >>> import mxsame
    >>> def trained(path):
    ...     net = mxsame.from_keras("model.h5")
    ...     ...  # as any Gluon net
    ...     mxsame.to_keras_weights(net, path)
    """
    check_network(net)
    is_of_functions = all(map(callable, custom.values())) if isinstance(custom, Mapping) else custom is None
    check_type(is_of_functions, "custom must map names to functions of (block)", custom=type(custom).__name__)
    mx.nd.waitall()  # as mxsame.graphs.freezing.values

    def arrays(layer: Layer) -> Dict[str, Any]:
        block = net.custom.get(layer)
        if block is None or not any(stored.parameter is None for stored in layer.weights):
            return arrays_of(layer)
        return dict(zip([spec.name for spec in layer.weight_specs or []], _custom_arrays(layer, block, custom or {})))

    of_custom = "custom layers with weights must not be in nested models"
    of_replaced = "a block in place of a layer must be Dense or a convolution with channels first, or have no weights"
    of_replaced = f"{of_replaced}; mxsame.to_keras writes the whole model"
    for layer in net.description.walk():
        is_loaded = all(stored.parameter is not None for stored in layer.weights if isinstance(stored, LoadedWeight))
        rule = f"{of_replaced if is_loaded else of_custom}; received {layer.name!r}"
        check(not layer.weights or layer.weight_specs is not None, rule)
    path = check_path(path)
    check(path.endswith((".h5", ".hdf5")), "path must end in .h5; mxsame.to_keras writes .keras", path=path)
    with draft_for(path) as draft:
        weight_files.write(draft, net.description, arrays)
    sizes = [[math.prod(stored.shape) for stored in layer.weights] for layer in net.description.walk() if layer.weights]
    return Written(path, len(sizes), sum(map(sum, sizes)))


def _custom_arrays(layer: Layer, block: Any, custom: Mapping[str, Callable]) -> List[Any]:
    function = next((custom[name] for name in custom_keys_of(layer) if name in custom), None)
    rule = f"custom layers with weights need custom={{{custom_keys_of(layer)[-1]!r}: function of (block) -> arrays}}"
    check(function is not None, f"{rule}; received {layer.name!r}")
    arrays, shapes = list(map(np.asarray, function(block))), [tuple(stored.shape) for stored in layer.weights]
    given = [array.shape for array in arrays]
    check(given == shapes, f"custom of {layer.name!r} must return arrays of the shapes {shapes}", shapes=given)
    return arrays
