"""Runs a case with mxsame: as an operator, as a graph, as a layer, with gradients. Shared by the suites."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Sequence

import cases
import numpy as np
import oracle
import pytest
from cases import Case

import mxsame
from mxsame._mxnet import mx
from mxsame.graphs.hybridize import CallFamily, cached_graphs
from mxsame.graphs.tracing import Call, group

TOLERANCE = {"float32": 1e-4, "float64": 1e-10}  # rounding is less, wrong results differ by 0.09 and more
PARAMETERS = ("weight", "depthwise_weight", "pointwise_weight", "bias")
POOLS = oracle.POOLS
OPERATORS = {  # the operators of mxsame.ops, and their names in mxsame.plan
    "conv": "conv",
    "depthwise_conv": "conv",
    "separable_conv": "conv",
    "conv_transpose": "transposed",
    "max_pool": "max",
    "avg_pool": "avg",
    "lp_pool": "lp",
}
CHANNELS_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def by_name(table: Sequence[Case]):
    """One test per case, called by its name."""
    return pytest.mark.parametrize("case", table, ids=lambda case: case.name)


def of_the_day(table: Sequence, days: int) -> Sequence:
    """The part of a table that is run on one of so many days, by $MXSAME_DAY (noxfile.py); without it, the table."""
    return table[int(os.environ["MXSAME_DAY"]) % days :: days] if "MXSAME_DAY" in os.environ else table


# ---- what is wanted --------------------------------------------------------------------------------------------------


def expected_once(case: Case, size=None) -> tuple[dict, np.ndarray, np.ndarray, dict]:
    """(arrays, output, output gradient, gradients) by the oracle; not to be changed."""
    arrays = cases.arrays(case, size)
    out = oracle.forward(case, arrays)
    out_grad = cases.output_gradient(case, out.shape)
    return arrays, out, out_grad, oracle.gradients(case, arrays, out_grad)


expected = functools.lru_cache(maxsize=None)(expected_once)  # for cases that are used more than once


def difference(got, want, scale: float = 1.0) -> float:
    """The largest difference, relative to the largest expected value or to `scale`; infinite if shapes differ."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return float("inf")
    worst = float(np.abs(got.astype(np.float64) - want).max(initial=0.0))
    return float("inf") if np.isnan(worst) else worst / max(scale, float(np.abs(want).max(initial=0.0)))


def assert_equal(got, want, dtype: str = "float32", what: str = "", terms: int = 1) -> None:
    """Equal to the rounding of the type: one array, or arrays by name.

    The gradient of a weight or a bias is a sum of so many `terms` of about 1, either sign: its size is their root, and
    so is its rounding, even where the sum happens to be near 0.
    """
    if isinstance(want, dict):
        assert set(got) == set(want)
        for name, array in want.items():
            assert_equal(got[name], array, dtype, f"{what} gradient of {name}", 1 if name == "data" else terms)
        return
    got = got.asnumpy() if hasattr(got, "asnumpy") else got
    assert np.shape(got) == np.shape(want), what
    assert difference(got, want, max(1.0, terms**0.5)) < TOLERANCE[dtype], what


def assert_alike(got, want, tolerance: float) -> None:
    """Both have the same nesting of the same arrays, up to rounding relative to the largest value of each."""
    assert type(got) is type(want)
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for one, other in zip(got, want):
            assert_alike(one, other, tolerance)
    elif want is not None:
        assert got.dtype == want.dtype
        assert difference(got.asnumpy(), want.asnumpy(), 1e-30) < tolerance


def fits_one_graph(case: Case, size=None) -> bool:
    """Whether a graph for every size takes this case: MXNet refuses an axis of one element for windows of two."""
    size = case.size if size is None else size
    windows = zip(size, case.kernel_size, case.strides)
    return not (case.op in POOLS and case.padding == "same" and any(axis == (1, 2, 2) for axis in windows))


def in_one_graph(block, active=True, **flags) -> None:
    """Gluon's own `hybridize`, of a layer by itself too: one graph for every size."""
    block.hybridize(False)
    mx.gluon.HybridBlock.hybridize(block, active, **flags)


# How a layer by itself may run.
LAYER_MODES = {
    "imperative": lambda block: None,
    "hybridized": lambda net: net.hybridize(),
    "in one graph": in_one_graph,
}


# ---- as an operator --------------------------------------------------------------------------------------------------


def arguments(case: Case) -> dict:
    """The case's keyword arguments, as in both `mxsame.ops` and `mxsame.nn`."""
    given: dict = {"strides": case.strides, "padding": case.padding}
    if case.op in POOLS:
        given["ceil_mode"] = case.ceil_mode
        if case.op == "avg_pool":
            given["count_include_pad"] = case.count_include_pad
        if case.op == "lp_pool":
            given["p_value"] = case.p_value
        return given
    given["dilation"] = case.dilation
    if case.op in ("conv", "conv_transpose"):
        given["groups"] = case.groups
    if case.op == "conv_transpose":
        given["output_padding"] = case.output_padding
    return given


def graph_arguments(case: Case) -> dict:
    """The arguments that an operator needs if no array has a shape."""
    if case.op in POOLS:
        return {}
    given: dict = {"kernel_size": case.kernel_size}
    if case.op != "depthwise_conv":
        given["channels"] = case.channels
    if case.op in ("depthwise_conv", "separable_conv"):
        given.update(in_channels=case.in_channels, depth_multiplier=case.depth_multiplier)
    return given


def operate(case: Case, arrays: dict, **more):
    """The operator of the case on NDArrays, Symbols or mx.np arrays."""
    operator = getattr(mxsame.ops, case.op)
    if case.op in POOLS:
        return operator(arrays["data"], case.kernel_size, **arguments(case), **more)
    return operator(**arrays, **arguments(case), **more)


def as_nd(arrays: dict, dtype: str = "float32", ctx=None, module=mx.nd) -> dict:
    """NumPy arrays as NDArrays that collect gradients, or as mx.np's."""
    converted = {name: module.array(array, dtype=dtype, ctx=ctx) for name, array in arrays.items()}
    for array in converted.values():
        array.attach_grad()
    return converted


as_np = functools.partial(as_nd, module=mx.np)


def imperative(function: Callable, arrays: dict, out_grad=None) -> tuple[np.ndarray, dict]:
    """(output, gradients by name) of `function(arrays)` on NDArrays or mx.np arrays."""
    with mx.autograd.record():
        out = function(arrays)
    if out_grad is not None:
        kind = mx.np if isinstance(out, mx.np.ndarray) else mx.nd
        out.backward(kind.array(out_grad, dtype=out.dtype))
    return out.asnumpy(), {name: array.grad.asnumpy() for name, array in arrays.items()}


def variables(arrays: dict, dtype: str = "float32", shaped: bool = True) -> dict:
    """A Symbol for each array, with its shape and type or with neither."""
    if not shaped:
        return {name: mx.sym.var(name) for name in arrays}
    return {name: mx.sym.var(name, shape=array.shape, dtype=dtype) for name, array in arrays.items()}


def unshaped(case: Case, layout: str | None = None) -> dict:
    """Symbols of which only the number of channels is known."""
    shape = [0] * (case.rank + 2)
    shape[1 if layout is None else -1] = case.in_channels
    return {**variables(cases.arrays(case), shaped=False), "data": mx.sym.var("data", shape=tuple(shape))}


def evaluate(symbol, arrays: dict, out_grad=None) -> tuple[np.ndarray, dict]:
    """(output, gradients by name) of a graph on NDArrays (`as_nd`)."""
    executor = symbol.bind(mx.cpu(), arrays, {name: array.grad for name, array in arrays.items()})
    (out,) = executor.forward(is_train=out_grad is not None)
    if out_grad is not None:
        executor.backward(mx.nd.array(out_grad, dtype=out.dtype))
    return out.asnumpy(), {name: array.grad.asnumpy() for name, array in arrays.items()}


def channels_last(arrays):
    """Data (N, *size, C) and weights (A, *k, B) of (N, C, *size) and (A, B, *k); an array or arrays by name."""
    if isinstance(arrays, dict):
        return {name: channels_last(array) for name, array in arrays.items()}
    return arrays if arrays.ndim < 3 else np.ascontiguousarray(np.moveaxis(arrays, 1, -1))


def nodes(symbol) -> list:
    """The operators of a graph, as MXNet writes them."""
    return [node for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"]


def operators(symbol) -> list:
    """The names of a graph's operators."""
    return [node["op"] for node in nodes(symbol)]


# ---- as a layer ------------------------------------------------------------------------------------------------------


def layer_name(op: str, rank: int) -> str:
    """The name of the class: Conv2DTranspose for conv_transpose."""
    kind, transpose, _ = op.title().replace("_", "").partition("Transpose")
    return f"{kind}{rank}D{transpose}"


def layer(case: Case, in_channels: bool = True, module=None, **more):
    """The layer of the case, of `mxsame.nn` by default."""
    module = mxsame.nn if module is None else module
    kind = layer_name(case.op, case.rank)
    given = {**arguments(case), **more}
    if case.op in POOLS:
        return getattr(module, kind)(case.kernel_size, **given)
    given.setdefault("use_bias", case.use_bias)
    if in_channels:
        given.setdefault("in_channels", case.in_channels)
    if case.op in ("depthwise_conv", "separable_conv"):
        given["depth_multiplier"] = case.depth_multiplier
    if case.op == "depthwise_conv":
        return getattr(module, kind)(case.kernel_size, **given)
    return getattr(module, kind)(case.channels, case.kernel_size, **given)


def set_parameters(block, arrays: dict, dtype: str = "float32", ctx=None) -> None:
    """Give a layer the arrays of a case, which must be all of its parameters."""
    block.initialize(ctx=ctx)
    block.cast(dtype)
    parameters = {name: array for name, array in arrays.items() if name in PARAMETERS}
    assert {name.rsplit("_", 1)[-1] for name in parameters} == {name.rsplit("_", 1)[-1] for name in block.params}
    for name, array in parameters.items():
        parameter = getattr(block, name)
        parameter.shape = array.shape
        parameter.set_data((mx.np if mx.util.is_np_array() else mx.nd).array(array, dtype=dtype))


def apply(block, arrays: dict, out_grad=None, dtype: str = "float32", net=None) -> tuple[np.ndarray, dict]:
    """(output, gradients by name) of a layer, called through `net` if that is another block than the layer itself."""
    kind = mx.np if mx.util.is_np_array() else mx.nd
    data = kind.array(arrays["data"], dtype=dtype)
    data.attach_grad()
    with mx.autograd.record():
        out = (net or block)(data)
    gradients = {}
    if out_grad is not None:
        out.backward(kind.array(out_grad, dtype=dtype))
        names = [name for name in arrays if name in PARAMETERS]
        gradients = {"data": data.grad.asnumpy(), **{name: getattr(block, name).grad().asnumpy() for name in names}}
    return out.asnumpy(), gradients


def sequential(*blocks):
    """Gluon's own container of these blocks."""
    net = mx.gluon.nn.HybridSequential()
    net.add(*blocks)
    return net


def initialized(net, scale: float = 0.5, dtype: str | None = None):
    """The net, with normal parameters, of another type if one is given."""
    net.initialize(mx.init.Normal(scale))
    if dtype is not None:
        net.cast(dtype)
    return net


def normal(*shape, seed: int = 0, dtype: str = "float32"):
    """Normal numbers, the same on every machine."""
    return mx.nd.array(np.random.RandomState(seed).randn(*shape), dtype=dtype)


def from_files(net, folder: Path, *given, inputs: Sequence[str] = ("data",)):
    """The net, exported into a folder and loaded from there by MXNet."""
    symbol, parameters = mxsame.export(net, str(folder / "net"), *given)
    return mx.gluon.SymbolBlock.imports(symbol, list(inputs), parameters if net.collect_params() else None)


def trained(net, *shapes, seed: int = 0):
    """The net with parameters that are not what initializers make of them: scales, shifts and statistics too."""
    mx.random.seed(seed)
    net.initialize(mx.init.Normal(0.2))
    net(*(normal(*shape) for shape in shapes))
    random = np.random.RandomState(seed)
    for name, parameter in net.collect_params().items():
        if name.endswith(("gamma", "running_var")):
            parameter.set_data(mx.nd.array(random.uniform(0.5, 1.5, parameter.shape), dtype=parameter.dtype))
        elif name.endswith(("bias", "beta", "running_mean")):
            parameter.set_data(mx.nd.array(random.randn(*parameter.shape) * 0.5, dtype=parameter.dtype))
    return net


def outputs(net, *arrays) -> list:
    """What a net gives for NumPy arrays, as a list of NumPy arrays."""
    out = net(*(mx.nd.array(array, dtype=array.dtype) for array in arrays))
    return [array.asnumpy() for array in (out if isinstance(out, (list, tuple)) else [out])]


def recorded(net, data, out_grad=None, train_mode: bool = True):
    """The output of a net, whose backward pass has run; `data` collects its gradient if it did not before."""
    if data.grad is None:
        data.attach_grad()
    with mx.autograd.record(train_mode):
        out = net(data)
    out.backward(out_grad)
    return out


class Own(mx.gluon.HybridBlock):
    """A net that is `function(F, *inputs, *blocks, **parameters)`; a parameter is a shape or a constant array."""

    def __init__(self, function, *blocks, prefix=None, **parameters):
        super().__init__(prefix)
        self._function, self._blocks = function, blocks
        for block in blocks:
            self.register_child(block)
        for name, value in parameters.items():
            is_shape = isinstance(value, tuple)
            parameter = self.params.get(name, shape=value) if is_shape else self.params.get_constant(name, value)
            setattr(self, name, parameter)

    def hybrid_forward(self, F, *inputs, **parameters):
        return self._function(F, *inputs, *self._blocks, **parameters)


def graphs_of(net) -> list:
    """The graphs of a net that `mxsame.hybridize` was given, the last used one at the end."""
    cache = cached_graphs(net)
    return [] if cache is None else list(cache.graphs.values())


def graphs_by_signature(net, shapes, target) -> dict:
    """The nodes of the graph of each signature. Where `mxsame.hybridize` says that one graph serves two sizes, it would
    build the same for both."""
    arrays, graphs = [mx.nd.zeros(shape) for shape in shapes], {}
    calls = [Call.of((array,), [array])._replace(target=target) for array in arrays]
    family = CallFamily(net, calls[0])
    for call in calls:
        lowered = nodes(group(call.lower(net, family.trace).outputs))
        graph = [(node["op"], node.get("attrs")) for node in lowered]
        assert graphs.setdefault(family.signature(call), graph) == graph, call.shapes
    return graphs


def seen_calls(monkeypatch, *names: str) -> list:
    """The names of these operators of `mx.nd`, as they are called from now on."""
    called: list = []
    for name in names:
        operator = getattr(mx.nd, name)
        monkeypatch.setattr(
            mx.nd, name, lambda *args, op=operator, name=name, **more: called.append(name) or op(*args, **more)
        )
    return called


def in_threads(work: Callable, count: int = 4) -> None:
    """Call `work(number)` in this many threads at once; raises what they raise, and does not wait without end."""
    pool = ThreadPoolExecutor(count)
    for called in [pool.submit(work, number) for number in range(count)]:
        called.result(timeout=120)


# ---- in threads, and in another process ------------------------------------------------------------------------------


# MXNet 1.9.1 cannot be imported with a current NumPy: mxsame does that, and is gone before anything else runs.
WITHOUT_MXSAME = """
import sys
import mxsame, mxnet

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "mxsame":
            raise ModuleNotFoundError("mxsame must not be needed", name="mxsame")

sys.meta_path[:] = [Blocker(), *(finder for finder in sys.meta_path if "Mxnet" not in type(finder).__name__)]
for name in [name for name in sys.modules if name.split(".")[0] == "mxsame"]:
    del sys.modules[name]
"""


def run_python(code: str, *, cwd=None, with_mxsame: bool = True, timeout: int = 300) -> str:
    """What a new process prints; it sees these tests and, unless told otherwise, the mxsame that is tested."""
    path = [str(Path(__file__).parent), str(Path(mxsame.__file__).parent.parent)]
    code = code if with_mxsame else WITHOUT_MXSAME + code
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    environment["PYTHONPATH"] = os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def outputs_without_mxsame(files: Sequence[str], arrays: Sequence, folder: Path) -> list[np.ndarray]:
    """What a network's two files give for these arrays in a process that has no mxsame."""
    np.savez(folder / "arrays.npz", *(array.asnumpy() for array in arrays))
    code = f"""
import numpy as np, mxnet as mx
net = mx.gluon.SymbolBlock.imports({files[0]!r}, ["data"], {files[1]!r})
np.savez("outputs.npz", *(net(mx.nd.array(array)).asnumpy() for array in np.load("arrays.npz").values()))
"""
    run_python(code, with_mxsame=False, cwd=folder)
    return list(np.load(folder / "outputs.npz").values())
