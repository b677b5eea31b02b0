"""Graphs specialised to input sizes: `hybridize` for running, `export` for files.

A net that Gluon hybridizes is one graph for every size, so whatever depends on the size is worked out in it, at a
price. Here a net is traced once for each class of sizes: the layers then know their sizes and need none of that. Two
sizes are of one class if every layer decides on the same plan for both, which is a matter of remainders modulo the
strides, so a few graphs serve all sizes.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from typing import Any, Hashable, Optional, Sequence

from mxsame import plan as planning
from mxsame import validation
from mxsame._mxnet import mx
from mxsame.nn._layer import Layer
from mxsame.ops import _arguments, _arrays

__all__ = ["export", "hybridize"]


def hybridize(net: Any, active: bool = True, max_graphs: int = 128, **flags: Any) -> Any:
    """`net.hybridize(active, **flags)`, with a graph for each class of input sizes; returns `net`.

    The net is called as before, with any sizes, for training and inference, on any contexts. Calls with sizes that
    need no new graph cost a look-up. `net.hybridize()` of Gluon stays exact for every size too; it is slower where
    SAME depends on the size.

    Parameters
    ----------
    net : gluon.Block
        A HybridBlock becomes one graph; of a Block that is none, or that overrides `forward` to look at shapes, every
        HybridBlock below it does.
    active : bool
        False takes everything back, as `net.hybridize(False)` does.
    max_graphs : int
        How many graphs are kept; the least recently used is dropped. Five layers of stride 2 make 32 classes along an
        axis, and up to 32 * 32 for rectangles; sizes of more classes than are kept, in turn, would be built again and
        again: there Gluon's own `net.hybridize()` is faster.
    flags
        Of `HybridBlock.hybridize`: static_alloc, static_shape, inline_limit, forward_bulk_size, backward_bulk_size.

    Raises
    ------
    TypeError, ValueError
        For what is no Block, and for wrong flags.

    Notes
    -----
    A file is written by `mxsame.export`; `net.export` knows nothing of these graphs. As with Gluon's own, call it again
    after changing a layer inside a layer.

    Examples
    --------
    >>> import mxsame
    >>> from mxnet import nd
    >>> net = mxsame.hybridize(mxsame.nn.Conv2D(8, 3, strides=2))
    >>> net.initialize()
    >>> [net(nd.zeros((1, 3, size, size))).shape[2] for size in (31, 32, 33, 34)]
    [16, 16, 17, 17]
    >>> len(net.forward.graphs)  # odd and even sizes
    2
    """
    if not isinstance(net, mx.gluon.Block):
        raise TypeError(f"net must be a gluon.Block; received net of type {type(net).__name__}")
    active = validation.flag("active", active)
    max_graphs = validation.integer("max_graphs", max_graphs, 1)
    _check_flags(flags)
    if not is_traceable(net):
        for child in net._children.values():  # Gluon has no public way to a Block's children
            hybridize(child, active, max_graphs, **flags)
        return net
    _restore(net)
    net.hybridize(active, **flags)
    if active:
        net.forward = _Specialised(net, flags, max_graphs)
        net._clear_cached_op = net.forward.clear  # what Gluon calls when a block changes: there is no public hook
    return net


def export(net: Any, path: str, input_shape: Any = None, epoch: int = 0) -> tuple[str, str]:
    """Write `path-symbol.json` and `path-0000.params`, which load without mxsame.

    Parameters
    ----------
    net : gluon.HybridBlock
        Initialised, and called once if its channels are deferred; with one input, named `data` in the files. For a net
        of several inputs there is `mxsame.deploy(net, shapes).export(path)`.
    path : str or path
    input_shape : sequence of ints, optional
        (N, C, \\*size), of which the batch may differ: the graph knows its sizes and is fastest; MXNet refuses data of
        other sizes with an error of the operator `data_must_be_..`. Without it the graph serves every size.
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
    shape = None if input_shape is None else checked_shape("input_shape", input_shape)
    data = variable("data")
    outputs, _ = traced(net, [data if shape is None else fixed(data, shape)], [data], [shape], sizes=shape is not None)
    symbol = outputs if isinstance(outputs, mx.sym.Symbol) else mx.sym.Group(flattened(outputs))
    if shape is not None:
        try:
            symbol.infer_shape(data=shape)
        except mx.base.MXNetError as error:
            raise ValueError(
                f"net must run on data of input_shape; {validation.received(input_shape=input_shape)}; "
                f"MXNet says: {reason(error)}"
            ) from None
    return written(symbol, net.collect_params(), path, epoch)


def check_ready(net: Any) -> None:
    """A net of which a file or a graph for inference can be made."""
    if not isinstance(net, mx.gluon.HybridBlock):
        raise TypeError(f"net must be a gluon.HybridBlock; received net of type {type(net).__name__}")
    unready = [name for name, parameter in net.collect_params().items() if parameter._data is None]
    if unready:
        raise ValueError(
            "net must be initialised, and called once where channels are deferred; "
            f"{validation.received(uninitialised=unready)}"
        )


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


def written(symbol: Any, parameters: Any, path: str, epoch: int) -> tuple[str, str]:
    """The two files of a graph: their names."""
    symbol_file, params_file = f"{path}-symbol.json", f"{path}-{epoch:04d}.params"
    symbol.save(symbol_file)
    kinds = {**dict.fromkeys(symbol.list_arguments(), "arg"), **dict.fromkeys(symbol.list_auxiliary_states(), "aux")}
    saved = {f"{kind}:{name}": parameters[name] for name, kind in kinds.items() if name in parameters}
    save = mx.npx.save if mx.util.is_np_array() else mx.nd.save
    save(params_file, {name: parameter.data(parameter.list_ctx()[0]) for name, parameter in saved.items()})
    return symbol_file, params_file


def is_traceable(net: Any) -> bool:
    """Whether `forward` is the one that traces `hybrid_forward`, and not a user's own, which may want real arrays."""
    ours = (mx.gluon.HybridBlock.forward, mx.gluon.SymbolBlock.forward)
    return isinstance(net, mx.gluon.HybridBlock) and (isinstance(net, Layer) or type(net).forward in ours)


def _check_flags(flags: dict) -> None:
    for name, value in flags.items():
        if name in ("static_alloc", "static_shape"):
            validation.flag(name, value)
        elif name in ("inline_limit", "forward_bulk_size", "backward_bulk_size"):
            validation.integer(name, value, 0)
        else:
            raise TypeError(f"flags must be those of HybridBlock.hybridize; {validation.received(**{name: value})}")
    if flags.get("static_shape") and not flags.get("static_alloc"):
        raise ValueError(f"static_shape must come with static_alloc=True; {validation.received(**flags)}")


def _restore(net: Any) -> None:
    if isinstance(vars(net).get("forward"), _Specialised):
        del net.forward
        del net._clear_cached_op


class _Specialised:
    """A net's `forward` that keeps a graph for each class of sizes."""

    MAX_SHAPES = 4096  # remembered shapes; each is a key and a reference

    def __init__(self, net: Any, flags: dict, max_graphs: int):
        self._net, self._flags, self._max_graphs = net, flags, max_graphs
        self._lock = threading.RLock()
        self.graphs: OrderedDict[Hashable, Any] = OrderedDict()
        self._classes: OrderedDict[Hashable, Hashable] = OrderedDict()  # shapes of a call -> its class
        self._any_size: dict[Hashable, tuple] = {}  # structure of a call -> what is decided in a graph for every size

    def __call__(self, *args: Any) -> Any:
        arrays = flattened(args)
        # Symbols are a parent's graph, anything else is Gluon's to refuse; and net.hybridize(False) switches off.
        given = arrays and all(isinstance(array, mx.nd.NDArray) for array in arrays)
        if not given or not self._net._active:
            return type(self._net).forward(self._net, *args)
        if isinstance(self._net, Layer):
            self._net.check(*args)
        with self._lock:
            graph, new = self._graph(args, arrays)
            if new:  # its first call makes what later calls share
                return graph(*arrays)
        return graph(*arrays)

    def __reduce__(self) -> tuple:
        """A copy of the net, and one that was pickled, has graphs of its own."""
        return _Specialised, (self._net, self._flags, self._max_graphs)

    def clear(self) -> None:
        """Forget all graphs: the net has changed."""
        type(self._net)._clear_cached_op(self._net)
        with self._lock:
            self.graphs.clear()
            self._classes.clear()
            self._any_size.clear()

    def _graph(self, args: tuple, arrays: list) -> tuple[Any, bool]:
        """The graph for these arrays, and whether it is new."""
        structure = _structure(args)
        purpose = _arrays.purpose_and_device(arrays[0])
        shapes = (structure, purpose, tuple((array.shape, array.dtype) for array in arrays))
        size_class = self._classes.get(shapes)
        if size_class is None:
            size_class = self._classes[shapes] = self._classify(structure, purpose, args, arrays)
            if len(self._classes) > self.MAX_SHAPES:
                self._classes.popitem(last=False)
        new = size_class not in self.graphs
        if new:
            self.graphs[size_class], _ = build(self._net, args, arrays, purpose, self._flags)
            if len(self.graphs) > self._max_graphs:
                self.graphs.popitem(last=False)
        self.graphs.move_to_end(size_class)
        return self.graphs[size_class], new

    def _classify(self, structure: Hashable, purpose: tuple, args: tuple, arrays: list) -> Hashable:
        """The plans of all layers for these shapes, which are what tells graphs apart."""
        names, shapes = input_names(self._net, len(arrays)), [array.shape for array in arrays]
        if (structure, purpose) not in self._any_size:
            variables = [variable(name) for name in names]
            with planning.force(None):  # a strategy may be exact for these sizes, and not for all
                _, decisions = traced(self._net, regrouped(args, iter(variables)), variables, shapes, False, *purpose)
            self._any_size[structure, purpose] = tuple(decisions)
        decisions = self._any_size[structure, purpose]
        if not decisions:
            return structure
        probe = mx.sym.Group([decision.data for decision in decisions])
        wanted = set(probe.list_arguments())
        try:
            found = probe.infer_shape(**{name: shape for name, shape in zip(names, shapes) if name in wanted})[1]
        except mx.base.MXNetError:  # shapes that do not fit; tracing the net for them will say what is wrong
            return structure, tuple(shapes)
        return structure, tuple(decision.remade(shape) for decision, shape in zip(decisions, found))


def build(net: Any, args: tuple, arrays: list, purpose: tuple, flags: dict) -> tuple[Any, list]:
    """The net as a graph for these sizes, with its own parameters, and what its layers decided."""
    variables = [variable(name, array.dtype) for name, array in zip(input_names(net, len(arrays)), arrays)]
    shapes = [array.shape for array in arrays]
    outputs, decisions = traced(net, regrouped(args, iter(variables)), variables, shapes, True, *purpose)
    parameters = net.collect_params()
    for parameter in parameters.values():
        _arrays.renew_dtype(parameter)
    graph = _Graph(outputs, variables, parameters)
    graph.hybridize(**flags)
    return graph, decisions


class _Graph(mx.gluon.SymbolBlock):
    """A SymbolBlock that nests its outputs as the net does, a list of one among them."""

    def __init__(self, outputs: Any, variables: list, parameters: Any):
        leaves = flattened(outputs)
        if not leaves or not all(isinstance(leaf, mx.sym.Symbol) for leaf in leaves):
            raise TypeError(f"net must return arrays; received {type(outputs).__name__}")
        super().__init__(leaves if len(leaves) > 1 else leaves[0], variables, parameters)
        self._structure = regrouped(outputs, itertools.repeat(True))

    def forward(self, *args: Any) -> Any:
        return regrouped(self._structure, iter(flattened(super().forward(*args))))


def traced(
    net: Any,
    args: Any,
    variables: list,
    shapes: Sequence[Optional[tuple]],
    sizes: bool,
    purpose: str = "inference",
    device: Optional[str] = None,
) -> tuple[Any, list]:
    """The net's outputs for symbolic inputs of these shapes, each a Symbol of one output and nested as the net nests
    them, and what its layers decided."""
    known = {variable.name: shape for variable, shape in zip(variables, shapes) if shape is not None}
    with _arrays.inputs(known, sizes, purpose, device), _arguments.decisions() as decisions:
        try:
            outputs = type(net).forward(net, *args)
        except TypeError as error:
            if "forward() missing" not in str(error):
                raise
            raise TypeError(
                f"net must be given all of its inputs, with one shape for each; received {len(args)} of them: {error}"
            ) from None
    return regrouped(outputs, map(_parted, flattened(outputs))), decisions


def _parted(output: Any) -> Any:
    """What gives several arrays as a list of them."""
    several = isinstance(output, mx.sym.Symbol) and len(output.list_outputs()) > 1
    return list(output) if several else output


def fixed(variable: Any, shape: tuple) -> Any:
    """The variable, in a graph that refuses data of another shape than this, but for the batch."""
    fixed = _arrays.fixed(variable.as_nd_ndarray(), (None, *shape[1:]))
    return fixed.as_np_ndarray() if mx.util.is_np_array() else fixed


def input_names(net: Any, count: int) -> list[str]:
    """As Gluon names the inputs of a graph, unless a parameter has such a name."""
    names = ["data"] if count == 1 else [f"data{place}" for place in range(count)]
    taken = net.collect_params().keys() & set(names)
    return [f"input_{name}" for name in names] if taken else names


def variable(name: str, dtype: Any = None) -> Any:
    variable = mx.sym.var(name, dtype=dtype)
    return variable.as_np_ndarray() if mx.util.is_np_array() else variable


def reason(error: Exception) -> str:
    """The last line of what MXNet says, which holds the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"


# -- arguments may be nested lists, and None


def flattened(args: Any) -> list:
    if isinstance(args, (list, tuple)):
        return [leaf for entry in args for leaf in flattened(entry)]
    return [] if args is None else [args]


def regrouped(args: Any, leaves: Any) -> Any:
    if isinstance(args, (list, tuple)):
        entries = [regrouped(entry, leaves) for entry in args]
        return tuple(entries) if isinstance(args, tuple) else entries
    return None if args is None else next(leaves)


def _structure(args: Any) -> Hashable:
    """The nesting, with each array's kind, rank and type."""
    if isinstance(args, (list, tuple)):
        return tuple(_structure(entry) for entry in args)
    return None if args is None else (type(args), args.ndim, args.dtype)
