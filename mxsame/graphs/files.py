"""Writes and reads MXNet's files of a net: `export`."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional, Sequence

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.graphs.errors import ShapeCheck
from mxsame.graphs.tracing import check_ready, fix_shape, group, inputs_of, trace_net, variable
from mxsame.scope import Target
from mxsame.types import FilePath, InputShape

if TYPE_CHECKING:
    from mxsame._mxnet import HybridBlock


class Written(NamedTuple):
    """An exported file, with its numbers of layers and parameters.

    `layers` counts the Keras layers of a model from `to_keras`, with its input layers; only those with weights for
    `to_keras_weights`; and the nodes of an ONNX file. `compared_by` names the program that computed the file's outputs,
    to compare them with the net's; it is None if they were not compared. `form` is "model" if the net is a network of
    `from_keras` that `to_keras` has written as its Keras model. If the net contains such networks, it is "layers", or
    "operators" if some of their layers were written operator by operator; otherwise it is None.

    >>> Written("net.onnx", layers=3, parameters=1296, compared_by="ONNX Runtime").parameters
    1296
    """

    path: str
    layers: int
    parameters: int
    compared_by: Optional[str] = None
    form: Optional[str] = None


# A path that ends with one of these was probably meant as the name of a single file.
FOREIGN_EXTENSIONS = (".onnx", ".keras", ".h5", ".hdf5", ".tflite", ".pb", ".json", ".params", ".pt", ".pth")


@validation.check_arguments
def export(
    net: HybridBlock,
    path: FilePath,
    input_shape: Optional[InputShape] = None,
    epoch: int = 0,
    remove_amp_cast: bool = True,
) -> tuple[str, str]:
    """Write `path-symbol.json` and `path-0000.params`, which load without mxsame.

    Noise that a network of :func:`mxsame.from_keras` adds in training is left out.

    Parameters
    ----------
    net : gluon.HybridBlock
        Initialized, and called once if its channels are deferred. In the files, one input is named `data`; several are
        `data0`, `data1` and so on.
    path : str or path
    input_shape : sequence of ints, array, or list of these, optional
        `(N, C, *size)`; for several inputs a list, nested as the net takes them. The graph has static shapes and is the
        fastest; only the batch size may change. For data of other sizes MXNet raises an error that names the operator
        `data_must_be_..`. Without `input_shape`, the graph accepts every size. Its inputs are then those of the net's
        last call as a graph, or if there was none, the required arguments of its `hybrid_forward`.
    epoch : int
        The number in the name of the parameter file.
    remove_amp_cast : bool
        Whether to leave out casts of `mxnet.contrib.amp`, as Gluon's own `export` does.

    Returns
    -------
    The names of the two files.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, a net that is not initialized, and a path that cannot be written. No file is written then.

    Examples
    --------
    >>> import os, tempfile, mxsame
    >>> net = mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3)
    >>> net.initialize()
    >>> folder = tempfile.mkdtemp()
    >>> files = mxsame.export(net, os.path.join(folder, "net"), (1, 3, 32, 32))
    >>> sorted(os.listdir(folder))
    ['net-0000.params', 'net-symbol.json']
    """
    check_ready(net)
    path, epoch = check_path(path), validation.integer("epoch", epoch, 0)
    check_ending("path", path)
    remove_amp_cast = validation.flag("remove_amp_cast", remove_amp_cast)
    inputs = inputs_of(net, input_shape)
    shapes = inputs.shapes
    data = [variable(name) if shape is None else fix_shape(variable(name), shape) for name, shape in shapes.items()]
    symbol = group(trace_net(net, inputs.structure, Target("file")).lower(data, shapes.values()).outputs)
    parameters = net.collect_params()
    if input_shape is not None:
        ShapeCheck(symbol, parameters).run(shapes, input_shape=input_shape)
    return write(symbol, parameters, path, epoch, remove_amp_cast)


def check_ending(name: str, path: FilePath) -> None:
    """Raises a `ValueError` if a path has the extension of another format."""
    rule = f"{name} must be a name without an ending; mxsame.export_onnx writes .onnx, mxsame.to_keras .keras and .h5"
    validation.check(os.path.splitext(path)[1].lower() not in FOREIGN_EXTENSIONS, rule, **{name: path})


def check_path(path: Any) -> str:
    """Returns the path of a file, or the common start of several paths, as a string."""
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    validation.check_type(isinstance(name, str), "path must be a string or a path", path=path)
    folder, end = os.path.split(name)
    rule = "path must be the name of a file to write, and not a folder"
    validation.check(end not in ("", os.curdir, os.pardir) and "\0" not in name, rule, path=path)
    validation.check(os.path.isdir(folder or os.curdir), "path must be in a folder that exists", path=path)
    return str(name)


def write(symbol: Any, parameters: Any, path: str, epoch: int, remove_amp_cast: bool = True) -> tuple[str, str]:
    """Writes the two files of a graph, and returns their names."""
    kinds = {**dict.fromkeys(symbol.list_arguments(), "arg"), **dict.fromkeys(symbol.list_auxiliary_states(), "aux")}
    saved = {f"{kind}:{name}": parameters[name] for name, kind in kinds.items() if name in parameters}
    mx.nd.waitall()  # `mxsame.graphs.freezing.values` explains why
    arrays = {name: parameter.data(parameter.list_ctx()[0]) for name, parameter in saved.items()}
    save = mx.npx.save if mx.util.is_np_array() else mx.nd.save
    paths = f"{path}-symbol.json", f"{path}-{epoch:04d}.params"
    with drafts_for(*paths) as (graph, values):
        symbol.save(graph, remove_amp_cast)
        save(values, arrays)
    return paths


def read_symbol(path: str) -> Any:
    """Returns the Symbol of a `-symbol.json` file. The file is validated first, because MXNet does not validate it.

    Raises `ValueError` for anything else."""
    rule = "net must be a -symbol.json file of MXNet"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise validation.InvalidValue(f"{rule}; received {path!r}: it is not JSON") from None
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        kind = validation.MissingFile if isinstance(error, FileNotFoundError) else validation.InvalidValue
        raise kind(f"net must be a file that can be read; received {path!r}: {reason}") from None
    try:
        graph = json.loads(text)
        validation.check(isinstance(graph, dict) and "nodes" in graph, "it must be a JSON object with nodes")
        nodes = graph["nodes"]
        for number, node in enumerate(nodes):
            is_named = isinstance(node["op"], str) and isinstance(node["name"], str)
            is_valid = is_named and all(0 <= source[0] < number for source in node["inputs"])
            validation.check(is_valid, f"node {number} must have an operator, a name, and inputs before it")
        ends = (*(head[0] for head in graph["heads"]), *graph["arg_nodes"])
        validation.check(all(0 <= end < len(nodes) for end in ends), "heads and arg_nodes must be nodes of the graph")
        used = [*graph["heads"], *(source for each in nodes for source in each["inputs"])]
        counts = _output_counts(graph) if any(source[1] for source in used) else [1] * len(nodes)
        for node, index, *_ in used:
            validation.check(0 <= index < counts[node], f"an output that is used must be one of node {node}")
        return mx.sym.load_json(text)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, mx.base.MXNetError) as error:
        reason = (str(error).strip().splitlines() or ["nothing"])[0][:200]
        reason = "it is not JSON" if isinstance(error, json.JSONDecodeError) else reason
        raise validation.InvalidValue(f"{rule}; received {path!r}: {reason}") from None


def _output_counts(graph: dict) -> list:
    """Returns the number of outputs of each node. MXNet counts them when it loads the graph; here all references are to
    first outputs, which always exist."""
    nodes = [{**each, "inputs": [[source, 0, 0] for source, *_ in each["inputs"]]} for each in graph["nodes"]]
    heads = [[number, 0, 0] for number in range(len(nodes))]
    counted = mx.sym.load_json(json.dumps({**graph, "nodes": nodes, "heads": heads}))
    starts = json.loads(counted.tojson())["node_row_ptr"]
    return [end - start for start, end in zip(starts, starts[1:])]


@contextlib.contextmanager
def draft_for(path: str) -> Iterator[str]:
    """Yields a path in a new folder next to `path`, or next to its target if it is a symbolic link. If the `with` block
    raises nothing, all files in the new folder are then moved to the folder of `path`, or of its target.

    Raises `ValueError` if nothing can be written there."""
    with drafts_for(path) as (draft,):
        yield draft


@contextlib.contextmanager
def drafts_for(*paths: str) -> Iterator[Sequence[str]]:
    """Yields a draft for each path, as :func:`draft_for` does for one; at the end all files are moved, or none."""
    targets = [os.path.split(os.path.realpath(path)) for path in paths]
    try:
        with contextlib.ExitStack() as stack:
            made = (tempfile.TemporaryDirectory(dir=folder, prefix=".mxsame-") for folder, _ in targets)
            folders = list(map(stack.enter_context, made))
            drafts = [os.path.join(temporary, name) for temporary, (_, name) in zip(folders, targets)]
            for draft in drafts:  # fail now if the file system refuses the name
                open(draft, "wb").close()
                os.remove(draft)
            yield drafts
            # Reverse order moves net.onnx.data before net.onnx, which refers to it.
            moves = [
                (os.path.join(temporary, file), os.path.join(folder, file))
                for temporary, (folder, _) in zip(folders, targets)
                for file in sorted(os.listdir(temporary), reverse=True)
            ]
            existing_folder = next((target for _, target in moves if os.path.isdir(target)), None)
            if existing_folder is not None:
                raise IsADirectoryError(f"{existing_folder} is a folder")
            for draft, target in moves:
                os.replace(draft, target)
    except (OSError, UnicodeEncodeError) as error:
        received = validation.received(path=paths[0])
        raise validation.InvalidValue(f"path must be one that can be written: {error}; {received}") from error
