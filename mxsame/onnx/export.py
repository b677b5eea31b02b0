"""`export_onnx` writes a network as an ONNX file."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence

import numpy as np

from mxsame import progress, validation
from mxsame._mxnet import mx
from mxsame.exporting.comparing import Samples
from mxsame.exporting.custom import Custom, CustomEmitters
from mxsame.exporting.prepare import ExportedNet, graph_of
from mxsame.exporting.shapes import DynamicAxes
from mxsame.exporting.writer import advice_for
from mxsame.graphs import errors, files, tracing
from mxsame.graphs.files import Written
from mxsame.graphs.freezing import freeze
from mxsame.installation.requirements import ONNX, install
from mxsame.onnx import checking, emitters  # noqa: F401 - the emitters register themselves
from mxsame.onnx.writer import OnnxWriter
from mxsame.progress import Progress, report
from mxsame.rewriting.graph import unique_name
from mxsame.scope import Target
from mxsame.types import Arrays, DeclaresInputs, FilePath, InputShape

if TYPE_CHECKING:
    from mxsame._mxnet import HybridBlock

__all__ = ["export_onnx"]

DYNAMIC = ("dynamic_batch", "dynamic_size")
EXAMPLE_LENGTH = 64  # of a dynamic axis, when the net is traced and compared
MIN_OPSET = 13  # the first in which axes of Squeeze, Unsqueeze and ReduceSum are inputs, and Softmax has one axis


@progress.reported
@validation.check_arguments
def export_onnx(
    net: HybridBlock,
    path: FilePath,
    input_shape: Optional[InputShape] = None,
    *,
    opset: int = 13,
    dynamic_batch: bool = True,
    dynamic_size: bool = False,
    fold: bool = True,
    input_names: Optional[Sequence[str]] = None,
    output_names: Optional[Sequence[str]] = None,
    data: Optional[Arrays] = None,
    tolerance: Optional[float] = None,
    custom: Optional[Custom] = None,
    progress: Optional[Progress] = None,
) -> Written:
    """Write a network as an ONNX file, in which SAME becomes the pads of ONNX's own operators.

    `onnx.checker` checks the file with full shape inference, and onnxruntime runs it on the same data as the net. The
    file is written only if the outputs agree. This needs the package onnx. If onnxruntime is not installed, the outputs
    are not compared, and a warning is issued.

    Parameters
    ----------
    net : gluon.HybridBlock
        A net of layers of mxsame and Gluon, a network of `mxsame.from_keras`, or a SymbolBlock loaded from files. It
        must be initialized, and called once if its channels are deferred. Its dtype is float32, float64 or float16. A
        deployed net can be exported, too, but its file may keep a Slice after transposed convolutions: prefer the
        original net.
    path : str or path
        The path of the file. Arrays of 2 GB or more go into a second file, `path` with `.data` after it.
    input_shape : sequence of ints, an array, or a list of these
        `(N, C, *size)`, or `(N, *size, C)` if the net is channels-last; for several inputs a list, nested like them. By
        default, the input shape of the Keras model, if that is static. If a size is None, the file accepts any length
        of that axis. If an array of integers is given, the file has an input of integers.
    opset : int
        The version of ONNX's operators: from 13 to the newest that the installed onnx supports.
    dynamic_batch : bool
        Whether the file accepts any batch size.
    dynamic_size : bool
        Whether the file takes every size. The net must take every size, too, which excludes Keras models of a fixed
        size and deployed nets. Pads that depend on the size become ONNX's `auto_pad`, which some runtimes do not
        support with dilation; a layer that `auto_pad` cannot express raises a `ValueError`.
    fold : bool
        Whether to compute in advance what depends on parameters only, and to fold batch norms into weights, as
        `mxsame.deploy` does.
    input_names, output_names : sequence of str, optional
        By default, the names of the Keras model's input layers, and of the layers whose outputs it returns. A name that
        is already taken gets a number: "dense_1". For any other net, "data" and "output", or "data0", .. and
        "output0", .. if there are several.
    data : array, or list of arrays, optional
        The data of the comparison, of `input_shape`. By default, valid indices and numbers between -1 and 1; these are
        a weak test of a network that takes pixels of 0 to 255.
    tolerance : float, optional
        By how much the file may differ from the net, relative to the largest element of an output. The default is 1e-7
        in float64, 2e-2 in float16, and in float32 1e-4, or ten times the net's own rounding error, at most 1e-2.
        Sigmoids may differ by 1.2e-7, the error of ONNX Runtime's sigmoid.
    custom : dict, optional
        Functions that write operators or blocks; they replace built-in conversions. A key is MXNet's name of an
        operator, as in the error ("gamma", "_contrib_fft"), or a subclass of HybridBlock. A function takes
        `(write, attributes, *inputs)`, or `(write, block, *inputs)` for a block, and returns what `write` returned, or
        a list of that. `write(op_type, *inputs, outputs=1, **attributes)` writes an operator of ONNX, or of another
        `domain=`; its inputs are outputs of `write`, arrays such as parameters, numbers, and None.
    progress : function of (stage, done, total), optional
        Called with the name of a stage, and how many of its parts are done: "writing operators", 3, 20. With
        `print`, each call prints a line: writing operators 3 of 20.

    Returns
    -------
    Written
        The name of the file, its numbers of operators and parameters, and the runtime that compared it.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments; for a net that is not initialized or cannot be traced; for operators or arguments without
        an exact equivalent in ONNX, which one error lists with their paths; and for a file that onnx's checker or ONNX
        Runtime refuses, whose outputs differ from the net's, or that cannot be written.
    ImportError
        If onnx is not installed.

    Warns
    -----
    mxsame.onnx.NotCompared
        If the file was not compared with the net.

    Examples
    --------
    >>> import os, tempfile, mxsame
    >>> net = mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3)
    >>> net.initialize()
    >>> file = os.path.join(tempfile.mkdtemp(), "net.onnx")
    >>> written = mxsame.export_onnx(net, file, (1, 3, 32, 32))
    >>> written.layers, written.parameters
    (1, 224)
    >>> import onnx
    >>> (conv,) = onnx.load(file).graph.node
    >>> [list(attribute.ints) for attribute in conv.attribute if attribute.name == "pads"]  # starts, then ends
    [[0, 0, 1, 1]]

    An operator without a built-in conversion:

    >>> from mxnet.gluon import nn
    >>> def quadratic(write, attributes, x):
    ...     square = write("Mul", write("Mul", x, x), attributes["a"])
    ...     return write("Add", write("Add", square, write("Mul", x, attributes["b"])), attributes["c"])
    >>> net = nn.HybridLambda(lambda F, x: F.contrib.quadratic(x, a=1, b=2, c=3))
    >>> mxsame.export_onnx(net, file, (2, 5), custom={"_contrib_quadratic": quadratic}).layers
    5
    """
    try:
        import onnx
    except ImportError as error:
        fix = f"fix it with: {install(*ONNX)}"
        raise ImportError(f"mxsame.export_onnx needs the package onnx ({error}); {fix}") from error
    functions = CustomEmitters(custom)
    exported = ExportedNet.of(net, input_shape, EXAMPLE_LENGTH)
    path, inputs = files.check_path(path), exported.inputs
    validation.check(path.endswith(".onnx"), "path must end in .onnx", path=path)
    opset = validation.integer("opset", opset, MIN_OPSET, onnx.defs.onnx_opset_version())
    dynamic_axes = _dynamic_axes(net, inputs, validation.flag("dynamic_batch", dynamic_batch), dynamic_size)
    hint = ": use " + " or ".join(f"{name}=False" for name in itertools.compress(DYNAMIC, dynamic_axes))
    fold = validation.flag("fold", fold)
    keras_names = (net.input_names, net.output_names) if isinstance(net, DeclaresInputs) else ((), ())
    names = _checked_names("input_names", input_names, _default_names("data", keras_names[0], len(inputs.shapes)))
    arrays, tolerance = _checked_data(data, list(inputs.shapes.values())), _checked_tolerance(tolerance)
    report("tracing")
    with errors.explain_errors(input_shape=input_shape):
        traced = graph_of(exported, dynamic_axes._replace(hint=hint), fold=fold, is_whole=functions.has)
        if dynamic_axes.size:
            probes = {name: traced.shapes.probes[name] for name in inputs.shapes}
            _check_accepts_any_size(net, inputs._replace(shapes=probes), exported.dtypes)
    default_names = _default_names("output", keras_names[1], len(traced.graph.outputs), names)
    names_of_outputs = _checked_names("output_names", output_names, default_names, names)
    advice = advice_for(net, dynamic=hint)
    names_of_inputs = dict(zip(inputs.shapes, names))
    model = OnnxWriter(traced, opset, names_of_inputs, names_of_outputs, exported.dtypes, functions, advice).model()
    functions.check_used()
    with errors.explain_errors(input_shape=input_shape), files.draft_for(path) as file:
        report("checking with onnx")
        checking.save(model, file)
        compared_by = checking.compare(exported, Samples(traced.shapes.inputs, arrays, tolerance), file)
    parameters = sum(array.size for array in traced.graph.values.values())
    return Written(path, len(model.graph.node), parameters, compared_by)


def _dynamic_axes(net: Any, inputs: tracing.NetInputs, batch: bool, dynamic_size: bool) -> DynamicAxes:
    """Returns the dynamic axes of the file: all spatial axes if `dynamic_size`, else those with None in
    `input_shape`."""
    declared = net.declared_shapes if isinstance(net, DeclaresInputs) else ()
    shapes = list(inputs.given.values())
    has_none = any(None in shape[1:] for shape in shapes)
    size = validation.flag("dynamic_size", dynamic_size) or has_none
    rule = "net must be of a Keras model whose input declares None for its size, as Input((None, None, 3)) does"
    validation.check(not (size and has_fixed_size(declared)), rule, dynamic_size=True, shapes=list(declared))
    return DynamicAxes(batch, size, shapes if has_none else declared)


def has_fixed_size(declared: Sequence[tuple]) -> bool:
    """Returns whether the input shapes that a Keras model declares have no None for a size. Other nets declare no
    shapes."""
    return any(len(shape) > 2 for shape in declared) and not any(None in shape[1:] for shape in declared)


def _check_accepts_any_size(net: Any, inputs: tracing.NetInputs, dtypes: Mapping[str, Any]) -> None:
    """Raises a `ValueError` if the net does not accept other sizes: its graph for one size may be wrong for others."""
    try:
        freeze(net, inputs, dtypes, Target("inference", "cpu"))
    except (mx.base.MXNetError, ValueError) as error:
        rule = "net must accept every size, and not be a deployed one, nor a model or a file for one size"
        raise validation.InvalidValue(f"{rule}; received dynamic_size=True: {errors.reason(error)}") from None


def _checked_data(data: Any, shapes: Sequence[tuple]) -> List[Optional[np.ndarray]]:
    """Returns one array for each input; without `data`, one None for each."""
    if data is None:
        return [None] * len(shapes)
    entries = data if isinstance(data, (list, tuple)) else [data]
    arrays = [each.asnumpy() if isinstance(each, mx.nd.NDArray) else np.asarray(each) for each in entries]
    actual = [array.shape for array in arrays]
    is_valid = actual == list(shapes) and all(array.dtype.kind in "fiub" for array in arrays)
    validation.check(is_valid, "data must be arrays of input_shape", shapes=actual, input_shape=shapes)
    return list(arrays)


def _checked_tolerance(tolerance: Any) -> Optional[float]:
    is_number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool) and tolerance >= 0
    validation.check(tolerance is None or is_number, "tolerance must be a number >= 0", tolerance=tolerance)
    return tolerance


def _default_names(word: str, keras_names: Sequence[str], count: int, taken: Sequence[str] = ()) -> List[str]:
    """Returns `count` different names: those of a Keras model, with a number if they are taken; for any other net
    `word`, or `word` and a number."""
    if len(keras_names) != count:
        return [word] if count == 1 else [f"{word}{position}" for position in range(count)]
    names: List[str] = []
    for name in keras_names:
        names.append(unique_name(name, {*names, *taken}))
    return names


def _checked_names(argument: str, names: Any, default: List[str], taken: Sequence[str] = ()) -> List[str]:
    """Returns the value of an argument, one name for each input or output, all different; `default` for None."""
    names, count = default if names is None else names, len(default)
    are_strings = validation.is_sequence(names) and all(isinstance(name, str) and name for name in names)
    validation.check_type(are_strings, f"{argument} must be a sequence of strings", **{argument: names})
    are_different = len(names) == count and len({*names, *taken}) == count + len(taken)
    number = "one name" if count == 1 else f"{count} names"
    validation.check(are_different, f"{argument} must be {number}, different from all others", **{argument: names})
    return list(names)
