"""One graph for every size: layers in an ordinary parent that is hybridized once, and a file that needs no mxsame."""

from __future__ import annotations

import json
import textwrap

import cases
import numpy as np
import oracle
import pytest
from cases import CASES, OPS, Case
from running import assert_equal, by_name, expected, fits_one_graph, layer, run_python, set_parameters

import mxsame
from mxsame._mxnet import mx

pytestmark = pytest.mark.usefixtures("a_graph_at_the_first_call")

gluon = mx.gluon
ONE_EACH = [next(case for case in CASES if (case.op, case.rank) == (op, rank)) for op in OPS for rank in (1, 2, 3)]
SIZES = [(17, 22), (18, 21), (19, 13), (24, 24), (9, 31)]


# ---- every layer -----------------------------------------------------------------------------------------------------


@by_name([case for case in CASES if case.rank == 2 and case.padding == "same"][::6])
def test_many_sizes_of_one_graph(case):
    """Every remainder modulo every stride, sizes of one cell, and sizes far beyond."""
    block = layer(case)
    set_parameters(block, expected(case)[0])
    net = gluon.nn.HybridSequential()
    net.add(block)
    net.hybridize()
    for size in [(height, 27 - 2 * height) for height in range(1, 14)] + [(1, 1), (64, 3), (61, 70)]:
        if oracle.is_legal(case, size) and fits_one_graph(case, size):
            arrays = cases.arrays(case, size)
            assert_equal(net(mx.nd.array(arrays["data"])), oracle.forward(case, arrays), what=f"size {size}")


@pytest.mark.parametrize("op", ["MaxPool2D", "AvgPool2D"])
def test_windows_of_two_on_one_element(op):
    """In a graph for every size MXNet refuses it, in words that name both numbers; every other way takes it."""
    data = mx.nd.random.normal(shape=(1, 8, 5, 1))
    net = gluon.nn.HybridSequential()
    net.add(getattr(mxsame.nn, op)(2))
    wanted = net(data).asnumpy()
    assert_equal(mxsame.hybridize(net)(data), wanted)
    net.hybridize()
    assert_equal(net(data.tile((1, 1, 1, 2))), wanted)
    with pytest.raises(mx.base.MXNetError, match=r"kernel size \(2\) exceeds input \(1 padded to 1\)"):
        net(data).wait_to_read()


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", ["MaxPool{}D", "AvgPool{}D"])
def test_a_file_for_any_size_takes_one_element(op, rank, tmp_path):
    """Windows of two, and others: a file has no other graph to go to."""
    layers = [getattr(mxsame.nn, op.format(rank))(*window) for window in ((2, 2), (3, 2), (2, 3), (4, 2))]
    for number, pool in enumerate(layers):
        symbol, parameters = mxsame.export(pool, str(tmp_path / f"layer{number}"))
        net = gluon.SymbolBlock.imports(symbol, ["data"], parameters)
        for size in ((1, 4, 1), (2, 1, 3), (5, 5, 1)):
            data = mx.nd.random.normal(shape=(2, 3, *size[:rank]))
            assert_equal(net(data), pool(data).asnumpy(), what=f"{pool}, {size}")


def test_an_infinity_stays_one_in_a_max_pool_of_known_size():
    """No other element becomes NaN, which it would where windows are picked by multiplying with zero."""
    net = gluon.nn.HybridSequential()
    net.add(mxsame.nn.DepthwiseConv2D(1, in_channels=16, weight_initializer="ones"), mxsame.nn.MaxPool2D(3, 2))
    net.initialize()
    data = mx.nd.random.normal(shape=(1, 16, 9, 9))
    data[0, 0, 4, 4], data[0, 1, 0, 0] = np.inf, -np.inf
    wanted = net(data).asnumpy()
    assert not np.isnan(wanted).any() and np.isinf(wanted).sum() == 1
    for size in (9, 8):
        mxsame.hybridize(net)
        assert not np.isnan(net(data[:, :, :size, :size]).asnumpy()).any()


def test_layers_know_sizes_by_themselves_wherever_they_stand():
    """Unknown sizes behind flattening, concatenation and upsampling."""

    class Branches(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.left = mxsame.nn.Conv2D(3, 3, strides=2, in_channels=2)
                self.right = mxsame.nn.MaxPool2D(3, 2)
                self.last = mxsame.nn.AvgPool2D(2, (1, 2))

        def hybrid_forward(self, F, x):
            both = F.concat(self.left(x), self.right(x), dim=1)
            return self.last(F.UpSampling(both, scale=3, sample_type="nearest"))

    net = Branches()
    net.initialize(mx.init.Normal(1))
    data = [mx.nd.random.normal(shape=(2, 2, *size)) for size in SIZES]
    plain = [net(array).asnumpy() for array in data]
    net.hybridize()
    for array, wanted in zip(data, plain):
        assert_equal(net(array), wanted)


# ---- a whole network -------------------------------------------------------------------------------------------------

STEPS = [  # (case without a size, what follows it)
    Case("conv", (1, 1), (3, 4), (2, 3), channels=6, use_bias=False),
    "norm",
    "relu",
    Case("max_pool", (1, 1), (3, 2), (2, 1), in_channels=6),
    Case("depthwise_conv", (1, 1), (3, 2), (2, 1), in_channels=6, depth_multiplier=2),
    "relu",
    Case("separable_conv", (1, 1), (2, 5), (1, 2), in_channels=12, channels=4),
    Case("conv_transpose", (1, 1), (3, 2), (2, 3), in_channels=4, channels=5),
    Case("avg_pool", (1, 1), (2, 3), (2, 2), in_channels=5),
    Case("conv", (1, 1), (3, 3), (2, 2), in_channels=5, channels=3),
]


def network():
    """A stem, batch norm, activations, both poolings, every convolution."""
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        for step in STEPS:
            if isinstance(step, Case):
                net.add(layer(step))
            else:
                net.add(gluon.nn.BatchNorm(in_channels=6) if step == "norm" else gluon.nn.Activation("relu"))
    net.initialize()
    for place, parameter in enumerate(net.collect_params().values()):
        values = np.random.Generator(np.random.PCG64(place)).standard_normal(parameter.shape)
        parameter.set_data(mx.nd.array(np.abs(values) + 0.5 if "var" in parameter.name else values))
    return net


def by_oracle(net, data):
    """The chain of oracles in float64; batch norm by its formula."""
    for step, block in zip(STEPS, net._children.values()):
        if isinstance(step, Case):
            weights = {
                name: parameter.data().asnumpy()
                for name, parameter in block._reg_params.items()
                if parameter is not None
            }
            data = oracle.forward(Case(**{**vars(step), "size": data.shape[2:]}), {"data": data, **weights})
        elif step == "relu":
            data = np.maximum(data, 0)
        else:
            gamma, beta, mean, variance = (
                parameter.data().asnumpy()[:, None, None] for parameter in block._reg_params.values()
            )
            data = (data - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    return data


def pictures():
    stream = np.random.Generator(np.random.PCG64(11))
    return {f"{height}x{width}": stream.standard_normal((2, 3, height, width)) for height, width in SIZES}


def test_a_network_hybridized_once():
    net = network()
    plain = {name: net(mx.nd.array(data)).asnumpy() for name, data in pictures().items()}
    net.hybridize()
    for name, data in pictures().items():
        wanted = by_oracle(net, data)
        assert_equal(plain[name], wanted, what=name)
        assert_equal(net(mx.nd.array(data)), wanted, what=name)


def test_gradients_of_a_network_hybridized_once():
    """In training mode: without it MXNet's own max pool forgets in a graph which cell was the largest."""
    net = network()
    results = []
    for hybridized in (False, True):
        net.hybridize(hybridized)
        for data in pictures().values():
            array = mx.nd.array(data)
            array.attach_grad()
            with mx.autograd.record():
                loss = (net(array) ** 2).mean()
            loss.backward()
            parameters = [p for p in net.collect_params().values() if p.grad_req != "null"]
            results.append([array.grad.asnumpy(), *(parameter.grad().asnumpy() for parameter in parameters)])
    for plain, graph in zip(results[: len(SIZES)], results[len(SIZES) :]):
        for one, other in zip(plain, graph):
            assert_equal(other, one)


LOAD = """
    import numpy as np
    import mxnet as mx

    net = mx.gluon.SymbolBlock.imports("net-symbol.json", ["data"], "net-0000.params")
    pictures, outputs = np.load("pictures.npz"), {}
    for name in pictures.files:
        outputs[name] = net(mx.nd.array(pictures[name])).asnumpy()
    np.savez("outputs.npz", **outputs)
    print("done")
"""


def test_an_exported_network_needs_no_mxsame(tmp_path):
    """Two files, loaded where mxsame cannot be imported, right at five sizes; built-in operators only."""
    net = network()
    net.hybridize()
    net(mx.nd.array(next(iter(pictures().values()))))
    net.export(str(tmp_path / "net"))
    np.savez(tmp_path / "pictures.npz", **pictures())
    code = textwrap.dedent(LOAD)
    assert run_python(code, cwd=tmp_path, with_mxsame=False).strip() == "done"
    outputs = np.load(tmp_path / "outputs.npz")
    assert sorted(outputs.files) == sorted(pictures())
    for name, data in pictures().items():
        assert_equal(outputs[name], by_oracle(net, data), what=name)
    assert_built_in(tmp_path / "net-symbol.json")


def assert_built_in(path):
    """Operators that every MXNet 1.9.1 has, in any language."""
    nodes = json.loads(path.read_text())["nodes"]
    names = {node["op"] for node in nodes}
    assert {"Convolution", "Pooling"} <= names and not [name for name in names if "custom" in name.lower()]
    assert names - {"null"} <= set(mx.operator.get_all_registered_operators()), "not registered by MXNet itself"
    assert not [node for node in nodes if "op_type" in node.get("attrs", {})]


@by_name(ONE_EACH)
def test_every_layer_is_exported(case, tmp_path):
    """And imported by SymbolBlock in this process, right at every size."""
    block = layer(case)
    set_parameters(block, expected(case)[0])
    net = gluon.nn.HybridSequential()
    net.add(block)
    net.hybridize()
    net(mx.nd.array(expected(case, next(size for size in case.sizes if fits_one_graph(case, size)))[0]["data"]))
    net.export(str(tmp_path / "net"))
    symbol = json.loads((tmp_path / "net-symbol.json").read_text())
    assert {node["op"] for node in symbol["nodes"]} - {"null"} <= set(mx.operator.get_all_registered_operators())
    params = str(tmp_path / "net-0000.params") if case.op not in oracle.POOLS else None
    loaded = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], params)
    for size in filter(lambda size: fits_one_graph(case, size), case.sizes):
        arrays, out, _, _ = expected(case, size)
        assert_equal(loaded(mx.nd.array(arrays["data"])), out, what=f"size {size}")


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_grouped_transposed_convolution_of_unknown_channels(rank):
    """Dilated, so that it runs as a convolution with a weight that is arranged anew."""
    more = {"channels": 6, "kernel_size": (3, 2, 2)[:rank], "strides": 2, "dilation": 2, "groups": 2}
    symbol = mxsame.ops.conv_transpose(mx.sym.var("data"), mx.sym.var("weight"), **more)
    data = mx.nd.random.normal(shape=(2, 4, *(4, 5, 3)[:rank]))
    weight = mx.nd.random.normal(shape=(4, 3, *more["kernel_size"]))
    (got,) = symbol.eval(data=data, weight=weight)
    assert_equal(got, mxsame.ops.conv_transpose(data, weight, **more).asnumpy())
