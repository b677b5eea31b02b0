"""Files of a net: `export`."""

from __future__ import annotations

import os
from typing import Any, List, Tuple

from mxsame import validation
from mxsame._mxnet import mx
from mxsame.graphs.tracing import check_ready, fixed, grouped, input_names, reason, traced, variable

__all__ = ["export"]


def export(net: Any, path: str, input_shape: Any = None, epoch: int = 0) -> tuple[str, str]:
    """Write `path-symbol.json` and `path-0000.params`, which load without mxsame.

    Noise that a network of :func:`mxsame.from_keras` adds in training is left out.

    Parameters
    ----------
    net : gluon.HybridBlock
        Initialised, and called once if its channels are deferred. One input is named `data` in the files, several are
        `data0`, `data1` and so on; a net of several needs `input_shape`.
    path : str or path
    input_shape : sequence of ints, or a list of such, optional
        (N, C, \\*size); one shape for each input. The graph has static shapes and is the fastest; only the batch may
        differ, and MXNet refuses data of other sizes with an error of the operator `data_must_be_..`. Without it the
        graph serves every size.
    epoch : int
        Goes into the name of the parameter file.

    Returns
    -------
    The names of the two files.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, and for a net that is not initialised.

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
    path, epoch = check_file(path, epoch)
    given = [None] if input_shape is None else checked_shapes(input_shape)
    shapes = dict(zip(input_names(net, len(given)), given))
    data = [variable(name) if shape is None else fixed(variable(name), shape) for name, shape in shapes.items()]
    trace = traced(net, data, shapes, static=input_shape is not None, exported=True)
    symbol = grouped(trace.outputs)
    if input_shape is not None:
        used = set(symbol.list_arguments())
        try:
            symbol.infer_shape(**{name: shape for name, shape in shapes.items() if name in used})
        except mx.base.MXNetError as error:
            raise ValueError(
                f"net must run on data of input_shape; {validation.received(input_shape=input_shape)}; "
                f"MXNet says: {reason(error)}"
            ) from None
    return written(symbol, net.collect_params(), path, epoch)


def check_file(path: Any, epoch: Any) -> tuple[str, int]:
    """Where files go."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be a string or a path; {validation.received(path=path)}")
    path = os.fspath(path)
    check_folder(path)
    return path, validation.integer("epoch", epoch, 0)


def check_folder(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"path must be in a folder that exists; {validation.received(path=path)}")


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """The shape of an input."""
    if not validation.is_sequence(shape):
        raise TypeError(f"{name} must be a sequence of integers; {validation.received(**{name: shape})}")
    return tuple(validation.integer(f"{name}[{axis}]", length, 1) for axis, length in enumerate(shape))


def checked_shapes(input_shape: Any) -> List[Tuple[int, ...]]:
    """One shape, or one for each input -> a list."""
    if validation.is_sequence(input_shape) and len(input_shape) and all(map(validation.is_sequence, input_shape)):
        return [checked_shape(f"input_shape[{index}]", shape) for index, shape in enumerate(input_shape)]
    shape = checked_shape("input_shape", input_shape)
    if not shape:
        raise ValueError(f"input_shape must have at least one length; {validation.received(input_shape=input_shape)}")
    return [shape]


def written(symbol: Any, parameters: Any, path: str, epoch: int) -> tuple[str, str]:
    """The two files of a graph: their names."""
    symbol_file, params_file = f"{path}-symbol.json", f"{path}-{epoch:04d}.params"
    symbol.save(symbol_file)
    kinds = {**dict.fromkeys(symbol.list_arguments(), "arg"), **dict.fromkeys(symbol.list_auxiliary_states(), "aux")}
    saved = {f"{kind}:{name}": parameters[name] for name, kind in kinds.items() if name in parameters}
    mx.nd.waitall()  # as mxsame.graphs.frozen.values
    save = mx.npx.save if mx.util.is_np_array() else mx.nd.save
    save(params_file, {name: parameter.data(parameter.list_ctx()[0]) for name, parameter in saved.items()})
    return symbol_file, params_file
