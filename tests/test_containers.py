"""`mxsame.nn.HybridSequential` and `HybridBlock`: Gluon's containers, whose own `hybridize` is mxsame's."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
import running
from running import initialized, normal, sequential

import mxsame
from mxsame._mxnet import mx

gluon = mx.gluon


def filled(net):
    """The same layers and prefixes in any container; a container inside it as well."""
    inner = type(net)(prefix="inner_")
    inner.add(mxsame.nn.MaxPool2D(3, 2, prefix="pool_"), gluon.nn.BatchNorm(in_channels=5, prefix="norm_"))
    net.add(mxsame.nn.Conv2D(5, 4, strides=2, in_channels=3, prefix="conv_"), inner)
    return net


def ours(**container):
    return initialized(filled(mxsame.nn.HybridSequential(prefix="net_", **container)))


class Derived(mxsame.nn.HybridBlock):
    def __init__(self):
        super().__init__(prefix="net_")
        self.body = ours()

    def hybrid_forward(self, F, x):
        return F.relu(self.body(x))


def images(*size):
    return normal(2, 3, *size)


@pytest.mark.parametrize("make", [ours, lambda: copy.deepcopy(ours()), lambda: pickle.loads(pickle.dumps(ours()))])
def test_hybridize_makes_graphs_for_shape_signatures(make, a_graph_at_the_first_call):
    net = make()
    want = {size: net(images(size, 20)).asnumpy() for size in (20, 21, 22, 24)}
    assert net.hybridize(static_alloc=True, static_shape=True) is None
    for size, out in want.items():
        running.assert_equal(net(images(size, 20)).asnumpy(), out)
    assert len(running.graphs_of(net)) == 3  # 20 and 24 share one
    assert not running.graphs_of(net[1])


def test_a_derived_network():
    net = Derived()
    want = net(images(20, 21)).asnumpy()
    net.hybridize(max_graphs=2)
    running.assert_equal(net(images(20, 21)).asnumpy(), want)
    assert len(running.graphs_of(net)) == 1
    with pytest.raises(ValueError, match="max_graphs must be"):
        net.hybridize(max_graphs=0)


def test_parameter_files_are_gluon_s(tmp_path):
    net, theirs = ours(), filled(gluon.nn.HybridSequential(prefix="net_"))
    assert list(net.collect_params()) == list(theirs.collect_params())
    net.hybridize()
    want = net(images(20, 21)).asnumpy()
    net.save_parameters(str(tmp_path / "net.params"))
    theirs.load_parameters(str(tmp_path / "net.params"))
    running.assert_equal(theirs(images(20, 21)).asnumpy(), want)
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data() * 0)
    net.load_parameters(str(tmp_path / "net.params"))
    running.assert_equal(net(images(20, 21)), want)


@pytest.mark.parametrize("make", [ours, Derived])
def test_export_is_what_gluon_teaches(tmp_path, make):
    net = make()
    net.hybridize()
    want = net(images(20, 21)).asnumpy()
    names = net.export(str(tmp_path / "net"), epoch=3)
    assert names == (str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0003.params"))
    loaded = gluon.SymbolBlock.imports(names[0], ["data"], names[1])
    running.assert_equal(loaded(images(20, 21)).asnumpy(), want)
    running.assert_equal(loaded(images(23, 20)).asnumpy(), net(images(23, 20)).asnumpy())


def test_below_a_sequential_it_has_its_own_graphs():
    net, parent = ours(), gluon.nn.Sequential()
    parent.add(net, gluon.nn.Flatten(), type("Plain", (gluon.Block,), {"forward": lambda self, x: x})())
    want = parent(images(20, 21)).asnumpy()
    parent.hybridize(static_alloc=True)
    running.assert_equal(parent(images(20, 21)).asnumpy(), want)
    assert len(running.graphs_of(net)) == 1
    parent.hybridize(False)
    assert not running.graphs_of(net)
    running.assert_equal(parent(images(20, 21)).asnumpy(), want)


def test_below_a_hybrid_block_of_gluon_it_is_a_part_of_the_parent_s_graph():
    net = ours()
    parent = sequential(net)
    want = {size: parent(images(size, 20)).asnumpy() for size in (20, 21, 22)}
    parent.hybridize()
    for size, out in want.items():
        running.assert_equal(parent(images(size, 20)).asnumpy(), out)
    assert not running.graphs_of(net)
    mxsame.hybridize(parent)
    running.assert_equal(parent(images(21, 20)).asnumpy(), want[21])
    assert len(running.graphs_of(parent)) == 1 and not running.graphs_of(net)


def test_a_shallow_copy_is_taken_back_by_itself():
    net = ours()
    net.hybridize()
    want = net(images(20, 21)).asnumpy()
    twin = copy.copy(net)
    twin.hybridize(False)
    assert running.graphs_of(net) and not running.graphs_of(twin)
    for each in (net, twin):
        running.assert_equal(each(images(20, 21)), want)


def test_what_is_true_for_gluon():
    net = ours()
    for active in ({"any": "thing"}, None):
        net.hybridize(active)
        net(images(20, 21))
        assert bool(running.graphs_of(net)) is bool(active)


def test_operators_have_gluon_s_names_in_graphs():
    """By which other code finds them there, `FeatureExpander` of GluonCV say."""
    net = mxsame.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mxsame.nn.Conv2D(4, 3, strides=2, activation="relu"), mxsame.nn.MaxPool2D(3, 2))
        net.add(mxsame.nn.Conv2DTranspose(4, 3, strides=2), mxsame.nn.SeparableConv2D(4, 3, in_channels=4))
    net.initialize()
    net.hybridize()
    net(images(20, 21))
    names = net._cached_graph[1].get_internals().list_outputs()
    layers = ("conv0", "conv0_relu", "pool0", "conv1", "conv2")
    assert [name for name in names if name.endswith("_fwd_output")] == [f"net_{layer}_fwd_output" for layer in layers]


def test_a_network_that_gives_its_inputs():
    net = type("Swap", (mxsame.nn.HybridBlock,), {"hybrid_forward": lambda self, F, x, *more: (*more, x)})()
    net.hybridize()
    for arrays in ([images(2, 3)], [images(2, 3), images(4, 5)]):
        for got, want in zip(net(*arrays), [*arrays[1:], arrays[0]]):
            running.assert_equal(got, want.asnumpy())


@pytest.mark.skipif(not mx.runtime.Features().is_enabled("MKLDNN"), reason="MXNet has no oneDNN")
@pytest.mark.parametrize("hybridized", [False, True])
def test_a_net_that_is_optimised_for_a_backend_is_exported_so(tmp_path, hybridized):
    net, data = ours(), images(20, 21)
    if hybridized:
        net.hybridize()
    want = net(data).asnumpy()
    net.optimize_for(data, backend="MKLDNN")
    net.export(str(tmp_path / "net"))
    operators = {node["op"] for node in json.loads((tmp_path / "net-symbol.json").read_text())["nodes"]}
    assert "_sg_mkldnn_conv" in operators
    running.assert_equal(net(data), want)
