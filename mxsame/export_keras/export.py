"""`to_keras`: a network as a Keras model file."""

from __future__ import annotations

import contextlib
import glob
import os
import warnings
from typing import TYPE_CHECKING, Any, Callable, FrozenSet, List, Optional, Set, Tuple, Union

from mxsame import progress, validation
from mxsame._mxnet import mx
from mxsame.export_keras import checking, emitters  # noqa: F401 - the emitters register themselves
from mxsame.export_keras.composites import CompositeWriter, model_for_format
from mxsame.export_keras.model_builder import (
    KerasFile,
    KerasTensor,
    ModelBuilder,
    Order,
    batch_first,
    channels_last,
    keras_shape,
)
from mxsame.export_keras.writer import Options, layer_name
from mxsame.exporting.custom import Custom, CustomEmitters
from mxsame.exporting.lowering import without_losses
from mxsame.exporting.prepare import ExportedNet
from mxsame.exporting.shapes import Length
from mxsame.exporting.writer import advice_for
from mxsame.graphs import errors, files, tracing
from mxsame.graphs.files import Written
from mxsame.keras_format.saving import save
from mxsame.keras_format.versions import loses_frozen_state
from mxsame.port.network import Network
from mxsame.port.parameters import arrays_of
from mxsame.progress import Progress
from mxsame.types import FilePath, InputShape, Layout
from mxsame.validation import InvalidValue, Refused, check

if TYPE_CHECKING:
    from mxsame._mxnet import HybridBlock

__all__ = ["Written", "to_keras"]


@progress.reported
@validation.check_arguments
def to_keras(
    net: Union[HybridBlock, FilePath],
    path: FilePath,
    input_shape: Optional[InputShape] = None,
    *,
    layout: Layout = "NHWC",
    custom: Optional[Custom] = None,
    progress: Optional[Progress] = None,
) -> Written:
    """Write a network as a Keras model file, with SAME as `padding="same"`.

    The file is written only if it reproduces the net's outputs on two batches. If a Keras that loads such files is
    installed, it computes them, in another process; otherwise :func:`mxsame.from_keras` reads the file again. This
    needs only h5py.

    Parameters
    ----------
    net : gluon.HybridBlock, or path of a `-symbol.json` file
        A network of mxsame or of Gluon, a deployed one, or a SymbolBlock, in float32: initialized, and called once if
        initialization is deferred. A `-symbol.json` file needs its `.params` file next to it.
    path : str or path
        The file to write. Keras 3 loads `.keras` archives; tf.keras 2 and Keras 3 load `.h5` files, which have only
        layers: an operator that is not a layer of Keras is refused there. A warning is issued for an archive if Keras 2
        is installed, or wrote the model and no Keras 3 is installed.
    input_shape : sequence of ints, an array, or a list of these
        `(N, C, *size)`, or `(N, *size, C)` as the net takes it; for several inputs, a list nested as the net takes
        them. By default, the input shape of the Keras model, if that is static. The model accepts this size and any
        batch size; batch is always first, even if recurrent layers take (T, N, C) and states (layers, N, H), or
        the net transposes its output. An array must have a floating-point dtype.
    layout : "NHWC" or "NCHW", or the equivalent for 1-D or 3-D data
        If the net takes channels first: the axis order of the model's inputs and outputs that have 4 or 5 axes, or 3
        if 1-D convolutions take them. The layers have `data_format="channels_last"`,
        because Keras's channels-first convolutions do not run on a CPU. A net that takes channels last keeps its order.
    custom : dict, optional
        Functions that write operators or blocks, in place of a conversion if there is one. A key is MXNet's name of an
        operator, as in the error ("gamma", "_contrib_fft"), or the class of a HybridBlock. A function takes
        `(write, attributes, *inputs)`, or `(write, block, *inputs)` for a block, and returns an output of `write` or a
        list of these; it is called once for each operator or call of a block.
        `write(class_name, *inputs, weights=(), outputs=1, **config)` calls a layer of Keras, or in a `.keras` file an
        operator of `keras.ops` ("Exp", "nn.OneHot"). Arrays have the order of axes that they have in `net`; parameters
        are NumPy arrays, and a layer is trained if one of them is.
    progress : function of (stage, done, total), optional
        Called with the name of a stage, and how many of its parts are done: "writing operators", 3, 20. With
        `print`, a line is printed for each: writing operators 3 of 20.

    Returns
    -------
    Written
        The name of the file, its numbers of layers and parameters, which program checked it against the net, and how a
        network of :func:`mxsame.from_keras` is written.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, a net that is not initialized or cannot be traced, and operators or arguments without an
        exact equivalent in Keras, all of them at once; and for a file that Keras refuses, whose outputs differ from the
        net's, or that cannot be written.
    ImportError
        If h5py is not installed.

    Notes
    -----
    A network of :func:`mxsame.from_keras`, which may be a part of the net, is written as its original layers. Blocks
    that replace or follow them are written operator by operator; if this gives a single Keras layer, it has the name
    of the replaced layer. Also written by operators: layers that the format lacks, and networks of which a part has no
    layers; a warning names the reasons. Other layers have the names of their parameters. Layers whose parameters have
    `grad_req="null"` are not `trainable` in Keras; a batch norm among them uses its moving statistics in training.
    Keras 3 trains the parameters of multi-head attention and of ConvLSTM after loading, whatever the file says;
    a warning names them. Gluon's LSTM and SimpleRNN have two biases; Keras's single one is their sum, and a step of
    training changes it half as much. In tf.keras 2, batch norms of images update the variance with n / (n - 1) times
    the batch's. If a network of Keras has to be written operator by operator, its noise layers are left out, as by
    :func:`mxsame.export`.

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

    An operator that has no layer:

    >>> from mxnet.gluon import nn
    >>> def quadratic(write, attributes, x):
    ...     square = write("Rescaling", write("Multiply", x, x), scale=attributes["a"], offset=0.0)
    ...     linear = write("Rescaling", x, scale=attributes["b"], offset=attributes["c"])
    ...     return write("Add", square, linear)
    >>> net = nn.HybridLambda(lambda F, x: F.contrib.quadratic(x, a=1, b=2, c=3))
    >>> mxsame.to_keras(net, file, (2, 5), custom={"_contrib_quadratic": quadratic}).layers
    5
    """
    if isinstance(net, (str, os.PathLike)):
        net = load_symbol_file(os.fspath(net))
    exported = ExportedNet.of(net, input_shape)
    path = files.check_path(path)
    fits = path.endswith((".keras", ".h5")) and not path.endswith(".weights.h5")
    check(fits, "path must end in .keras or .h5; mxsame.to_keras_weights writes .weights.h5", path=path)
    validation.rank_of_layout(layout)
    options = Options(2 if path.endswith(".h5") else 3, layout.startswith("NC"), CustomEmitters(custom))
    with errors.explain_errors(input_shape=input_shape):
        keras_file = _written(exported, options)
        with files.draft_for(path) as file:
            save(file, keras_file.model, arrays_of)
            compared_by = checking.compare(file, keras_file, exported)
    if keras_file.by_operators:
        message = f"layers of a Keras model were written operator by operator: {'; '.join(keras_file.by_operators)}"
        warnings.warn(message, UserWarning, stacklevel=4)
    is_of_keras_2 = any(network.description.version == 2 for network in _networks(exported.net))
    if path.endswith(".keras") and (checking.has_keras_2() or (is_of_keras_2 and compared_by == checking.MXSAME)):
        message = "only Keras 3 loads this .keras file; for tf.keras 2, write one whose name ends in .h5"
        warnings.warn(message, UserWarning, stacklevel=4)
    for layer in filter(loses_frozen_state, keras_file.model.walk() if path.endswith(".keras") else ()):
        message = "does not stay frozen in Keras 3: after loading, set its trainable to True, and then to False"
        warnings.warn(f"layer {layer.name!r} ({layer.class_name}) {message}", UserWarning, stacklevel=4)
    sizes = (array.size for layer in keras_file.model.walk() for array in arrays_of(layer).values())
    return Written(path, len(keras_file.model.layers), sum(sizes), compared_by, keras_file.form)


def _networks(net: HybridBlock) -> Set[Network]:
    """Returns the networks of :func:`mxsame.from_keras` in a net."""
    networks: Set[Network] = set()
    net.apply(lambda block: networks.add(block) if isinstance(block, Network) else None)
    return networks


def _written(exported: ExportedNet, options: Options) -> KerasFile:
    """Writes the net in the first form that works: as the Keras model that it is; with the layers of the Keras models
    in it; with operators in place of the models that failed; with operators in place of all models."""
    networks = _networks(exported.net)
    is_model = exported.net in networks and exported.net.matches_description and not exported.net.custom
    if is_model and not options.functions.functions:
        with contextlib.suppress(Refused):
            return _from_model(exported, options)
    by_operators: FrozenSet[Network] = frozenset()
    refusals: List[Refused] = []
    while True:
        try:
            finished = _drafted(exported, options._replace(by_operators=by_operators))
            break
        except Refused as error:
            refusals.append(error)
        if by_operators == networks:
            raise refusals[0]  # which also explains why writing the operators failed
        refused = by_operators | networks.intersection(refusals[-1].blocks)
        by_operators = frozenset(networks) if refused == by_operators else refused
    keras_file = finished()
    reasons = [*(reason for error in refusals for reason in error.reasons), *keras_file.by_operators]
    form = "operators" if reasons else "layers" if networks else None
    return keras_file._replace(form=form, by_operators=reasons)


def _from_model(exported: ExportedNet, options: Options) -> KerasFile:
    """Returns a network of `from_keras` as its model, with the inputs that the model declares."""
    mx.nd.waitall()
    net, inputs = exported.net, exported.inputs
    shapes = {name: (Length(n, n + 1), *(Length(m, m) for m in rest)) for name, (n, *rest) in inputs.shapes.items()}
    orders, output_orders = ([x.keras_order for x in values] for values in (net.inputs, net.outputs))
    return KerasFile(model_for_format(net, net.description, options.version), shapes, orders, output_orders, "model")


def _drafted(exported: ExportedNet, options: Options) -> Callable[[], KerasFile]:
    """Writes a draft of the net, without the user's functions, to see which inputs layers need with channels last.
    Returns a function that finishes it: if there are such inputs, or functions, it writes the net a second time."""
    dtypes = {str(dtype) for dtype in (exported.dtype, *exported.dtypes.values())}
    check(dtypes == {"float32"}, "net must have parameters and inputs of float32", dtype=sorted(dtypes))
    traced = options.trace(exported)
    shapes = traced.shapes
    trained = {name for name, parameter in exported.net.collect_params().items() if parameter.grad_req != "null"}
    orders = {name: batch_first(len(shape), shapes.batches[name]) for name, shape in shapes.inputs.items()}
    declared = {
        output.node.name: value.dtype
        for composite, _ in traced.composites.values()
        if isinstance(composite.block, Network)
        for output, value in zip(composite.inputs, composite.block.inputs)
    }

    def write(is_draft: bool) -> Tuple[List[KerasTensor], CompositeWriter]:
        net = exported.net
        name, names = (net.description.name, net.input_names) if isinstance(net, Network) else ("network", orders)
        builder = ModelBuilder(trained, options.version, name)
        inputs = {}
        for (name, order), own in zip(orders.items(), names):
            shape = keras_shape(shapes.inputs[name], order)
            tensor = builder.input(builder.unique(layer_name(own)), shape, declared.get(name, "float32"))
            inputs[name] = KerasTensor(tensor, shape, order, source=name)
        writer = CompositeWriter(traced, builder, inputs, options._replace(is_draft=is_draft), advice_for(net))
        return writer.write(), writer

    draft = write(is_draft=True)
    options.functions.check_used()
    channels_last_orders = {} if options.channels_first else draft[1].channels_last_inputs
    orders.update(channels_last_orders)

    def finish() -> KerasFile:
        values, writer = write(is_draft=False) if channels_last_orders or options.functions.functions else draft
        outputs = [writer.permute(x, _order(x, bool(channels_last_orders))) for x in values]
        builder, output_orders = writer.builder, [x.order for x in outputs]
        model = builder.model([x.tensor for x in outputs])
        used = {layer.name for layer in model.layers}
        unused = [name for name, tensor in zip(shapes.inputs, model.inputs) if tensor.layer not in used]
        check(not unused, "net must use the values of all of its inputs", unused=unused)
        return KerasFile(model, shapes.inputs, [*orders.values()], output_orders, None, builder.by_operators)

    return finish


def _order(x: KerasTensor, use_channels_last: bool) -> Order:
    """Returns the axis order of an output in the file: channels last if any input has it; for sequences only if they
    have it already."""
    order, unchanged = channels_last(x.rank), tuple(range(x.rank))
    order = order if use_channels_last and x.rank <= 5 and (x.rank != 3 or x.order == order) else unchanged
    return order if x.order[0] == order[0] else x.order


# -- files of MXNet


def load_symbol_file(file: str) -> Any:
    """Loads the block of a `-symbol.json` file with the newest `.params` file next to it, without the inputs that only
    a loss needs."""
    exists = file.endswith("-symbol.json") and os.path.isfile(file)
    check(exists, "net must be a block or a -symbol.json file that exists", net=file)
    prefix = file[: -len("-symbol.json")]
    stored = sorted(glob.glob(f"{glob.escape(prefix)}-[0-9][0-9][0-9][0-9].params"))
    check(stored, f"net must have a file of parameters next to it, {prefix}-0000.params; received none")
    try:
        symbol = without_losses(files.read_symbol(file))
        known = {name.split(":", 1)[-1] for name in mx.nd.load(stored[-1])}
        inputs = [tracing.variable(name, "float32") for name in symbol.list_inputs() if name not in known]
        block = mx.gluon.SymbolBlock(symbol, inputs)
        block.collect_params().load(stored[-1], ignore_extra=True, cast_dtype=True, dtype_source="saved")
    except mx.base.MXNetError as error:
        reason = f"{validation.received(net=file)}: {errors.reason(error)}"
        raise InvalidValue(f"net must be a valid pair of MXNet model files; {reason}") from None
    return block
