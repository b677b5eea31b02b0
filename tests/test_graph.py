"""mxsame.hybridize and mxsame.export: graphs of static shape are as exact as everything else, and stay few."""

import contextlib
import copy
import functools
import os
import pickle
import threading

import numpy as np
import pytest
import running
from running import Own, initialized, normal, recorded, sequential

import mxsame
from mxsame._mxnet import mx
from mxsame.graphs import tracing
from mxsame.graphs.hybridize import GraphCache, cached_graphs

nn = mx.gluon.nn


def wrapped(block):
    """The block inside a parent, hybridized."""
    return mxsame.hybridize(sequential(block))


def small_network():
    layers = mxsame.nn.Conv2D(6, 3, strides=2, activation="relu"), nn.BatchNorm(), mxsame.nn.MaxPool2D(3, 2)
    more = mxsame.nn.DepthwiseConv2D(4, strides=2), mxsame.nn.Conv2DTranspose(3, 3, strides=2)
    return initialized(sequential(*layers, *more))


def small_network_called():
    net = small_network()
    net(images(30, 33))
    return net


def images(*size, seed=0, batch=2):
    return normal(batch, 3, *size, seed=seed)


def assert_hybridized(net, *calls, tolerance=1e-5):
    """The net gives the same hybridized: in the graph for every size, and from the eighth call on in one for a size."""
    wanted = [net(*call) for call in calls]
    mxsame.hybridize(net)
    for _ in range(GraphCache.COMPILING_CALL):
        for call, want in zip(calls, wanted):
            running.assert_alike(net(*call), want, tolerance)


def test_sizes_of_one_shape_signature_share_a_graph():
    net = small_network()
    mxsame.hybridize(net)
    for size in range(20, 120):
        assert net(images(size, size)).shape[2] == 2 * -(-size // 8)
    # Three layers with stride 2 on equal axes: the remainder modulo 8 decides.
    assert len(running.graphs_of(net)) == 8


def test_no_static_size_is_computed_in_a_graph_or_in_a_file(tmp_path):
    net = mxsame.hybridize(small_network_called())
    net(images(30, 33))
    (graph,) = running.graphs_of(net)
    shapes = (2, 3, 30, 33), None
    of_one_size, of_any = (mx.sym.load(mxsame.export(net, tmp_path / "net", shape)[0]) for shape in shapes)
    for symbol in (graph.symbol, of_one_size):
        computing = {"_contrib_arange_like", "take", "where", "reverse", "slice_like", "shape_array"}
        assert computing.isdisjoint(running.operators(symbol)) and "Convolution" in running.operators(symbol)
    assert "shape_array" in running.operators(of_any)


def test_several_inputs_in_lists_and_none():
    def function(F, pair, extra, first, second):
        out = first(pair[0]), second(pair[1])
        return out if extra is None else (*out, extra * 2)

    net = Own(function, mxsame.nn.Conv2D(4, 3, strides=2), mxsame.nn.AvgPool2D(3, strides=2))
    left, right = images(9, 12), images(14, 7, seed=1)
    assert_hybridized(initialized(net), ([left, right], right), ([left, right], None))


def test_inference_from_several_threads(a_graph_at_the_first_call):
    net = small_network()
    sizes = [(20 + step, 25 + 3 * step) for step in range(12)]
    want = [net(images(*size)).asnumpy() for size in sizes]
    mxsame.hybridize(net, max_graphs=4)

    def work(offset):
        for turn in range(24):
            which = (turn * 5 + offset) % len(sizes)
            assert running.difference(net(images(*sizes[which])).asnumpy(), want[which]) < 1e-5, sizes[which]

    running.in_threads(work)
    assert len(running.graphs_of(net)) == 4


@pytest.mark.parametrize("make", [mxsame.hybridize, lambda net: mxsame.deploy(net, (2, 3, 20, 21))])
def test_a_call_waits_for_its_turn(make):
    """MXNet's engine blocks for good if two threads hand over operators on the same arrays at the same time."""
    net, data = make(small_network_called()), images(20, 21)
    want, outputs = net(data).asnumpy(), []
    thread = threading.Thread(target=lambda: outputs.append(net(data).asnumpy()))
    with tracing.ENGINE_LOCK:
        thread.start()
        thread.join(timeout=0.3)
        assert not outputs
    thread.join(timeout=60)
    running.assert_equal(outputs[0], want)


@pytest.mark.parametrize(
    "take_back",
    [lambda net: mxsame.hybridize(net, active=False), lambda net: net.hybridize(False), lambda net: net.hybridize()],
    ids=["mxsame inactive", "gluon inactive", "gluon"],
)
def test_everything_is_taken_back(take_back):
    net = small_network()
    want = net(images(30, 33)).asnumpy()
    mxsame.hybridize(net)
    mxsame.hybridize(net)
    net(images(30, 33))
    assert running.graphs_of(net) and take_back(net) in (net, None)
    for _ in range(2):
        assert not running.graphs_of(net)
        assert running.difference(net(images(30, 33)).asnumpy(), want) < 1e-6


def test_an_empty_batch_is_refused_where_mxnet_has_no_operator_for_it():
    """MXNet's own error comes at some later wait, from Gluon's layers too."""
    with mx.util.np_shape(True), mx.util.np_array(True):
        empty = mx.np.zeros((0, 3, 8, 8))
        dense, conv = (mxsame.hybridize(net) for net in (nn.Dense(2, in_units=192), wrapped(mxsame.nn.Conv2D(2, 3))))
        for net in (dense, conv):
            net.initialize()
        assert dense(empty).asnumpy().shape == (0, 2)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"data must not be empty; received data.shape=\(0, 3, 8, 8\)"):
                conv(empty)
            assert isinstance(conv(mx.np.ones((1, 3, 8, 8))), mx.np.ndarray)
    with pytest.raises(ValueError, match="data must not be empty"):  # without these modes MXNet takes 0 as unknown
        conv(images(8, 8)[0:0])


@pytest.mark.parametrize("layout", ["NCW", "NWC"])
def test_padding_that_becomes_data_tells_graphs_apart(layout):
    """4 and 5 elements make two windows without the padding; with it, which counts, 5 make three."""
    pool = mxsame.nn.AvgPool1D(3, 3, padding=1, layout=layout, ceil_mode=True, count_include_pad=True)
    data = [images(length) if layout == "NCW" else images(length).swapaxes(1, 2) for length in (4, 5)]
    assert_hybridized(sequential(pool), *zip(data))


def test_an_input_too_small_further_down_is_a_value_error():
    net = initialized(sequential(mxsame.nn.MaxPool2D(4), mxsame.nn.Conv2D(4, 3, padding="valid")))
    for active in (False, True):
        mxsame.hybridize(net, active)
        assert net(images(12, 12)).shape == (2, 4, 1, 1)
        with pytest.raises(ValueError, match=r"layer \w+: the padded input must be at least as long as the kernel"):
            net(images(8, 12))


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_a_copy_has_graphs_of_its_own(copied, called):
    net, data = mxsame.hybridize(small_network_called(), max_graphs=3), images(30, 33)
    if called:
        net(data)
    mx.nd.waitall()  # what is read of a weight while a convolution runs may be a mixture of two orders
    twin = copied(net)
    assert not running.graphs_of(twin)
    want = net(data).asnumpy()
    running.assert_equal(twin(data), want)
    assert len(running.graphs_of(twin)) == 1
    for parameter in twin.collect_params().values():
        parameter.set_data(parameter.data() * 0)
    assert np.abs(twin(data).asnumpy()).max() == 0
    running.assert_equal(net(data), want)


def test_a_parameter_named_as_gluon_names_an_input():
    pool = mxsame.nn.MaxPool2D(3, 2)
    net = Own(lambda F, x, pool, data: pool(F.broadcast_mul(x, data)), pool, prefix="", data=(1, 3, 1, 1))
    assert_hybridized(initialized(net), [images(9, 8)])


# ---- nesting of outputs, channels, copies ----------------------------------------------------------------------------


def conv(**more):
    return mxsame.nn.Conv2D(4, 3, strides=2, in_channels=3, **more)


@pytest.mark.parametrize(
    "function",
    [
        lambda F, y: [y],
        lambda F, y: (y,),
        lambda F, y: (y, [y + 1, (y * 2,)]),
        lambda F, y: F.split(y, num_outputs=2, axis=1),
        lambda F, y: (F.split(y, num_outputs=2, axis=1), y),
        lambda F, y: (y, None),
    ],
    ids=["list", "tuple", "nested", "split", "split within", "none"],
)
def test_outputs_are_nested_as_the_net_nests_them(function):
    net = Own(lambda F, x, conv: function(F, conv(x)), conv())
    assert_hybridized(initialized(net), [images(9, 8)])


@pytest.mark.parametrize("kind", [mxsame.nn.MaxPool3D, mxsame.nn.AvgPool3D])
def test_one_pool_for_data_of_many_channels(kind):
    """Three axes are made four by a reshape that has the channels in it."""
    with mxsame.plan.use_strategy("gather"):
        assert_hybridized(sequential(kind(2, 3)), *([normal(2, channels, 7, 6, 5)] for channels in (2, 4, 3, 2)))


def two(as_list):
    """A net that takes two arrays, one after the other or as a list, and what to call it with."""

    def function(F, *inputs):
        left, right = inputs[0] if as_list else inputs[:-1]
        return inputs[-1](left) + right

    data = [images(9, 8), mx.nd.ones((2, 4, 5, 4))]
    return initialized(Own(function, conv())), ([data] if as_list else data)


@pytest.mark.parametrize("as_list", [False, True], ids=["two inputs", "a list of two"])
@pytest.mark.parametrize("hybridize", [mxsame.hybridize, lambda net: net.hybridize()], ids=["mxsame", "gluon"])
def test_a_file_has_the_inputs_of_the_last_call_or_those_that_are_given(hybridize, as_list, tmp_path):
    net, args = two(as_list)
    hybridize(net)
    want, arrays = net(*args).asnumpy(), tracing.flatten(args)
    for given in (None, args, tracing.regroup(args, (array.shape for array in arrays))):
        loaded = running.from_files(net, tmp_path, given, inputs=["data0", "data1"])
        running.assert_equal(loaded(*arrays), want)
    running.assert_equal(mxsame.deploy(net, args)(*args), want)


def test_a_file_has_the_inputs_that_a_net_must_be_given(tmp_path):
    class Sum(mx.gluon.HybridBlock):  # with an argument that may be left out
        def hybrid_forward(self, F, x, y, scale=2):
            return (x + y) * scale

    file, _ = mxsame.export(Sum(), tmp_path / "net")
    assert mx.sym.load(file).list_arguments() == ["data0", "data1"]
    with pytest.raises(TypeError, match="net must be called with exactly one array"):
        mxsame.export(Sum(), tmp_path / "net", (1, 3))


def test_both_files_or_none(tmp_path):
    net = small_network_called()
    (tmp_path / "net-0000.params").mkdir()
    with pytest.raises(ValueError, match=r"path must be one that can be written: .*; received path="):
        mxsame.export(net, str(tmp_path / "net"))
    assert [path.name for path in tmp_path.iterdir()] == ["net-0000.params"]


@pytest.mark.parametrize("path", ["", ".", "..", "sub/", "sub/.", "sub/..", "new/", "a\0b"])
def test_a_folder_is_no_name_of_files(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    net = small_network_called()
    deployed = mxsame.deploy(net, (1, 3, 8, 8))
    writers = [deployed.export, functools.partial(mxsame.export, net)]
    writers += [lambda path: mxsame.to_keras(net, path, (1, 3, 8, 8))]
    for write in writers:
        with pytest.raises(ValueError, match="path must be the name of a file to write, and not a folder"):
            write(path)
    assert os.listdir(tmp_path) == ["sub"] and not os.listdir("sub")


@pytest.mark.parametrize("name", ["x" * 300, "x\udcff"])
def test_a_name_that_the_system_refuses(name, tmp_path):
    with pytest.raises(ValueError, match=r"path must be one that can be written: .*; received path="):
        mxsame.export(small_network_called(), tmp_path / name)
    assert not os.listdir(tmp_path)


def test_what_is_returned_was_written(tmp_path, monkeypatch):
    """Through folders that are links, and files that are: a link there still leads to the file."""
    monkeypatch.chdir(tmp_path)
    for name in ("deep", "deep/sub", "kept"):
        os.mkdir(name)
    os.symlink("deep/sub", "link")
    os.symlink("../kept/weights", "deep/old-0000.params")
    net = small_network_called()
    for path, folder in (("net", "."), ("link/../old", "deep"), ("link/net", "deep/sub"), ("kept", ".")):
        files = mxsame.export(net, path)
        assert files == (f"{path}-symbol.json", f"{path}-0000.params") and all(map(os.path.isfile, files))
        assert f"{os.path.basename(path)}-symbol.json" in os.listdir(folder)
    assert os.path.islink("deep/old-0000.params") and os.listdir("kept") == ["weights"]


# ---- what there is a static graph of, and no dynamic one -------------------------------------------------------------

STATIC_ONLY = {
    "explicit padding with ceil_mode": lambda: mxsame.nn.MaxPool2D(3, 3, ((0, 1), (0, 1)), ceil_mode=True),
    "zeros with ceil_mode": lambda: mxsame.nn.AvgPool2D(3, 3, ((0, 1), (0, 1)), True, count_include_pad=True),
    "windows that may start after the data": lambda: mxsame.nn.MaxPool2D(2, 3, "valid", ceil_mode=True),
    "keras-mxnet with long strides": lambda: mxsame.nn.Conv2D(4, 1, 4, "keras-mxnet", in_channels=3),
    "long strides": lambda: mxsame.nn.Conv2D(4, 3, (5000, 2), in_channels=3),
}


@pytest.mark.parametrize("make", STATIC_ONLY.values(), ids=STATIC_ONLY)
def test_a_static_graph_does_not_need_a_dynamic_one(make):
    sizes = [(5, 14), (14, 5), (17, 26), (5, 41)]  # of those that every one of these layers takes
    net = initialized(sequential(nn.Activation("relu"), make()))
    assert_hybridized(net, *([images(*size)] for size in sizes))


def test_an_input_that_is_not_used_in_float64():
    net, data = initialized(Own(lambda F, x, unused, conv: conv(x), conv())), images(9, 8).astype("float64")
    net.cast("float64")
    assert_hybridized(net, (data, data), tolerance=1e-12)


@pytest.mark.parametrize("back", [False, True], ids=["ours", "gluon's again"])
def test_a_net_of_gluon_s_is_exported_by_its_own_method(back, tmp_path):
    net = mxsame.hybridize(small_network_called())
    want = net(images(31, 33))
    if back:
        net.hybridize()
        running.assert_equal(net(images(31, 33)), want.asnumpy())
    prefix = str(tmp_path / "net")
    net.export(prefix, 0, remove_amp_cast=True)
    loaded = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
    running.assert_equal(loaded(images(31, 33)), want.asnumpy())


def test_a_file_has_the_types_of_the_net_as_it_is(tmp_path):
    net = initialized(sequential(conv(), nn.BatchNorm(in_channels=4), nn.Dense(2, in_units=80)))
    mxsame.export(net, str(tmp_path / "net"))
    net.cast("float64")
    file, _ = mxsame.export(net, str(tmp_path / "net"))
    bound = mx.sym.load(file).simple_bind(mx.cpu(), data=(1, 3, 9, 8), type_dict={"data": "float64"}, grad_req="null")
    assert {array.dtype for array in bound.arg_dict.values()} == {np.float64}


# ---- how many graphs -------------------------------------------------------------------------------------------------


def test_a_signature_gets_its_graph_at_its_eighth_call():
    """But for the first of each kind of call, and for sizes that the graph for every size does not take."""
    net = initialized(sequential(mxsame.nn.Conv2D(6, 3, strides=2), mxsame.nn.MaxPool2D(2)))
    sizes = [(30, 31), (33, 34), (2, 36)]
    want = {size: net(images(*size)).asnumpy() for size in sizes}
    mxsame.hybridize(net)

    def call(size):
        running.assert_equal(net(images(*size)), want[size], what=str(size))
        return len(running.graphs_of(net))

    assert call((30, 31)) == 1
    assert [call((33, 34)) for _ in range(9)] == [1] * 7 + [2, 2]
    assert call((2, 36)) == 3, "a pooling window of two meets one element"
    with mx.autograd.record():
        net(images(33, 34))
    assert len(running.graphs_of(net)) == 4, "the first of training"


def test_a_net_is_traced_once_for_all_sizes(a_graph_at_the_first_call):
    """What a user writes in a network, and hooks of its children, run once for inference and once for training."""
    net, seen = small_network_called(), []
    mxsame.hybridize(net)
    net[0].register_forward_hook(lambda block, inputs, output: seen.append(output))
    for size in (30, 33, 31, 34):
        net(images(size, 33))
    assert len(seen) == 1 and len(running.graphs_of(net)) == 4
    with mx.autograd.record():
        net(images(30, 33))
        net(images(31, 33))
    assert len(seen) == 2


def test_channels_that_follow_from_the_size_are_compared_at_each_size():
    layers = nn.Conv1D(4, 1), nn.BatchNorm(in_channels=4)
    net = mxsame.hybridize(initialized(Own(lambda F, x, conv, norm: norm(F.transpose(conv(x), (0, 2, 1))), *layers)))
    net(normal(2, 3, 4))
    with pytest.raises(ValueError, match=r"_gamma has the shape \(4,\), but this data requires \(5,\)"):
        net(normal(2, 3, 5))


def test_arguments_of_operators_by_keyword():
    """The weight, which is a Symbol as well, before the data; the rank follows from the data's shape."""

    def function(F, x, weight):
        return mxsame.ops.max_pool(pool_size=2, data=mxsame.ops.conv(strides=2, weight=weight, data=x))

    net = initialized(Own(function, weight=(4, 3, 3, 3)))
    assert_hybridized(net, *([images(*size)] for size in [(9, 8), (12, 10), (10, 9)]))
    running.assert_equal(mxsame.deploy(net, (1, 3, 9, 8))(images(9, 8)), net(images(9, 8)).asnumpy())


@pytest.mark.parametrize("strategy", [None, "pad"])
def test_the_first_graph_is_shared_unless_it_was_built_by_other_plans(strategy, a_graph_at_the_first_call):
    net = initialized(conv())
    sizes = (30, 33), (46, 49), (31, 34)
    want = [net(images(*size)).asnumpy() for size in sizes]
    with mxsame.plan.use_strategy(strategy) if strategy else contextlib.nullcontext():
        net.hybridize()
        running.assert_equal(net(images(*sizes[0])), want[0])
    counts = []
    for size, expected in zip(sizes[1:], want[1:]):
        running.assert_equal(net(images(*size)), expected)
        counts.append(len(running.graphs_of(net)))
    assert counts == ([2, 3] if strategy else [1, 2])


def test_graphs_keep_a_bounded_memory(monkeypatch, a_graph_at_the_first_call):
    """Those beyond the bound take it when they run, but for the first of a kind."""
    net, sizes = small_network_called(), [(size, size) for size in range(16, 24)]
    want = {size: net(images(*size)).asnumpy() for size in sizes}
    flags, original = [], mx.nd.CachedOp

    def recorded(symbol, options):
        flags.append(dict(options).get("static_alloc", False))
        return original(symbol, options)

    monkeypatch.setattr(mx.nd, "CachedOp", recorded)
    mxsame.hybridize(net, static_alloc=True, static_shape=True)
    net(images(*sizes[0]))
    (first,) = running.graphs_of(net)
    monkeypatch.setattr(GraphCache, "MAX_MEMORY", 3 * first.memory)
    for size, expected in want.items():
        running.assert_equal(net(images(*size)), expected)
    kept = [graph.memory for graph in running.graphs_of(net)]
    assert len(kept) == len(flags) == 8 and sum(flags) == sum(map(bool, kept)) in (2, 3)
    assert first.memory == 2 * 4 * (2 * 6 * 9 * 9), "bytes of twice the largest, a convolution before its crop"

    monkeypatch.setattr(GraphCache, "MAX_MEMORY", 1)
    monkeypatch.setattr(GraphCache, "COMPILING_CALL", 8)
    net(images(40, 41))
    assert len(flags) == 9 and not flags[-1], "nor has the graph for every size more"
    with mx.autograd.record():
        net(images(*sizes[0]))
    assert flags[-1] and next(reversed(running.graphs_of(net))).memory > 1


def test_gradients_of_inference_have_graphs_of_their_own():
    """What an operator needs for them it may not need without."""
    net, data = mxsame.hybridize(small_network_called()), images(30, 33)
    net(data)
    recorded(net, data, train_mode=False)
    recorded(net, data)
    assert len(running.graphs_of(net)) == 3
    targets = [kind[2] for kind, _ in cached_graphs(net).graphs]
    assert targets == [("inference", "cpu", False), ("inference", "cpu", True), ("training", "cpu", True)]


# ---- what MXNet's tools reach for ------------------------------------------------------------------------------------


def test_tools_find_a_graph_of_several_inputs():
    net, args = two(False)
    want = mxsame.hybridize(net)(*args)
    inputs, symbol = net._cached_graph  # as mxnet.contrib.amp takes it
    running.assert_alike(mx.gluon.SymbolBlock(symbol, inputs, net.collect_params())(*args), want, 1e-5)


@pytest.mark.parametrize("last", [lambda net, x: recorded(net, x), lambda net, x: None], ids=["called", "not called"])
def test_a_file_of_gluon_s_has_the_parameters_of_its_graph(last, tmp_path):
    """Also if a layer inside a layer has been exchanged, before the next call and after it."""
    net, x, prefix = (
        mxsame.hybridize(sequential(sequential(initialized(nn.Dense(3))))),
        normal(2, 5),
        str(tmp_path / "n"),
    )
    net(x)
    net[0].register_child(initialized(nn.Dense(4, in_units=5)), "0")
    last(net, x)
    net.export(prefix)
    loaded = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
    running.assert_equal(loaded(x), net[0][0](x).asnumpy())


def test_a_symbol_block_changes_devices():
    data = mx.sym.var("data")
    net = initialized(mx.gluon.SymbolBlock(mx.sym.FullyConnected(data, num_hidden=2, name="dense"), data))
    want = mxsame.hybridize(net)(normal(1, 3)).asnumpy()
    net.reset_ctx(mx.cpu(1))
    running.assert_equal(net(normal(1, 3).as_in_context(mx.cpu(1))), want)


def test_a_net_is_gluon_s_again_when_gluon_hybridizes_it_and_keeps_its_graph():
    net, x = mxsame.hybridize(sequential(initialized(conv())), static_alloc=True), images(9, 8)
    want = net(x).asnumpy()
    net.hybridize(clear=False)
    running.assert_equal(net(x), want)
    assert cached_graphs(net) is None


# ---- arrays that do not fit ------------------------------------------------------------------------------------------


def test_which_array_is_on_another_device_is_said():
    net, (first, second) = two(False)
    mxsame.hybridize(net)(first, second)
    with pytest.raises(ValueError, match=r"data1 must be on the device of the parameters, \[cpu\(0\)\].*cpu\(1\)"):
        net(first, second.as_in_context(mx.cpu(1)))


# -- a call like the last one runs in the last one's graph


LATER = {  # what is done to a net, after calls with the same data, and the data of the next call
    "nothing": lambda net, data: data,
    "recorded": lambda net, data: data,
    "values": lambda net, data: net[0].weight.set_data(net[0].weight.data() * 2) or data,
    "initialized anew": lambda net, data: net.initialize(mx.init.Normal(1), force_reinit=True) or data,
    "type": lambda net, data: net.cast("float64") or data.astype("float64"),
    "device": lambda net, data: net.collect_params().reset_ctx(mx.cpu(1)) or data.as_in_context(mx.cpu(1)),
    "another layer": lambda net, data: net.add(mxsame.nn.MaxPool2D(2)) or data,
    "another batch": lambda net, data: mx.nd.concat(data, data, dim=0),
    "fewer elements": lambda net, data: data[:, :, :-1],
}


@pytest.mark.parametrize("later", LATER)
def test_a_call_like_the_last_one_sees_every_change(later):
    net, data = small_network(), images(30, 33)
    mxsame.hybridize(net)
    for _ in range(3):
        net(data)
    data, results = LATER[later](net, data), []
    data.attach_grad()
    for _ in range(2):  # as a graph, and layer by layer
        with mx.autograd.record(train_mode=False) if later == "recorded" else contextlib.nullcontext():
            out = net(data)
        if later == "recorded":
            out.backward()
            assert data.grad.abs().max() > 0
        results.append([out, data.grad.copy()])
        net.hybridize(False)
    running.assert_alike(*results, 1e-5)


@pytest.mark.parametrize(
    "exchange",
    [
        lambda parameters: parameters.initialize(mx.init.Constant(0.5), force_reinit=True),
        lambda parameters: parameters.reset_ctx(mx.cpu(1 - next(iter(parameters.values())).list_ctx()[0].device_id)),
        lambda parameters: [parameters.setattr("grad_req", req) for req in ("null", "write")],
    ],
    ids=["initialize", "reset_ctx", "grad_req"],
)
def test_new_arrays_of_parameters_have_gradients(exchange):
    """With static_shape MXNet writes some of the gradients to the arrays before. Operators over new arrays are in
    another CachedOp, of which a hook hears, too."""
    net, heard = initialized(sequential(conv(), nn.Dense(3, in_units=80))), []
    mxsame.hybridize(net, static_alloc=True, static_shape=True)
    net.register_op_hook(lambda name, operator, array: heard.append(mx.base.py_str(name)))
    for _ in range(3):
        heard.clear()
        (device,) = net[0].weight.list_ctx()
        recorded(net, images(9, 8).as_in_context(device))
        mx.nd.waitall()
        assert all(any(word in name for name in heard) for word in ("convolution", "dense"))
        gradients = {name: each.grad().abs().sum().asscalar() for name, each in net.collect_params().items()}
        assert all(gradients.values()), gradients
        assert list(running.graphs_of(net)[-1]._recorded_arrays) == [device]
        exchange(net.collect_params())


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (images(30, 33).astype("float64"), TypeError, "data must have the type of the parameters, float32.*'float64'"),
        (images(30, 33).astype("float16"), TypeError, "received data.dtype='float16'"),
        (images(30, 33).as_in_context(mx.cpu(1)), ValueError, r"device of the parameters, \[cpu\(0\)\].*cpu\(1\)"),
        (images(30, 33)[:, :2], ValueError, "received"),
        (images(30, 33).as_np_ndarray().astype("int32"), TypeError, "received"),
    ],
    ids=["type", "float16", "device", "channels", "integers"],
)
def test_a_call_unlike_the_last_one_is_checked(data, error, message):
    clipped = Own(lambda F, x, layer: F.clip(layer(x), 0, 6), mxsame.nn.Conv2D(2, 3, in_channels=3))
    for net in (small_network(), initialized(mxsame.nn.Conv2D(2, 3, in_channels=3)), initialized(clipped)):
        mxsame.hybridize(net)
        for _ in range(3):
            net(images(30, 33))
        with pytest.raises(error, match=message):
            net(data).wait_to_read()


def test_a_call_like_the_last_one_with_an_array_of_another_kind():
    net, data = wrapped(mxsame.nn.MaxPool2D(3, 2)), images(30, 33)
    for array in (data, data, data.as_np_ndarray(), data.astype("float64"), data):
        running.assert_alike(net(array), mxsame.ops.max_pool(array, 3, 2), 1e-6)


def test_a_weight_may_be_the_output_of_a_layer():
    """oneDNN's transposed convolution cannot pass on the gradient of a weight that is computed."""
    inputs, results = [normal(2, 8, 5, 6), normal(8, 2, 3, 3)], []
    layer = mxsame.nn.Conv2D(4, 3, in_channels=2)
    given = {"channels": 4, "kernel_size": 3, "strides": 2}
    net = initialized(Own(lambda F, x, w, layer: mxsame.ops.conv_transpose(x, layer(w), **given), layer))
    for _ in ("imperative", "hybridized"):
        for array in inputs:
            array.attach_grad()
        with mx.autograd.record():
            out = net(*inputs)
        out.backward()
        results.append([out, *(array.grad.copy() for array in (*inputs, layer.weight.data()))])
        mxsame.hybridize(net)
    for have, want in zip(*results):
        running.assert_equal(have, want.asnumpy())


def test_layers_in_layers_are_the_same_in_all_graphs():
    """Gluon reports their change to the layer around them only, so one must hybridize again; but no graph of training
    may have other layers than one of inference."""
    net, data = mxsame.hybridize(sequential(sequential(initialized(conv())), nn.Flatten())), images(9, 8)
    before = net(data).asnumpy()
    net[0].register_child(initialized(conv(activation="sigmoid")), "0")
    out = recorded(net, data, train_mode=False)
    assert running.difference(out.asnumpy(), before) > 0.1
    running.assert_equal(net(data), out.asnumpy())


def test_an_input_that_is_an_output_has_its_gradient():
    net = mxsame.hybridize(Own(lambda F, x: [x, 2 * x]))
    x = normal(2, 3)
    x.attach_grad()
    with mx.autograd.record():
        same, double = net(x)
        loss = 3 * same + double
    loss.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), np.full((2, 3), 5, "float32"))


IN_FLOAT16 = {
    "linalg.gemm2": lambda F, x: F.linalg.gemm2(x, x),
    "linalg.syrk": lambda F, x: F.linalg.syrk(x),
    "attention": lambda F, x: F.contrib.interleaved_matmul_selfatt_qk(F.tile(x, reps=(1, 1, 2)), heads=2),
    "in a loop": lambda F, x: F.contrib.foreach(lambda each, states: (F.dot(each, each), states), x, [])[0],
    "np.dot": lambda F, x: F.np.dot(x, x[0]),
    "np.matmul": lambda F, x: F.np.matmul(x, x),
    "np.tensordot": lambda F, x: F.np.tensordot(x, x, 1),
}


@pytest.mark.parametrize("name", IN_FLOAT16)
def test_products_in_float16_are_refused_on_the_cpu(name):
    """MXNet's own error would come at the next wait."""
    with mx.util.np_shape(name.startswith("np")), mx.util.np_array(name.startswith("np")):
        data = (mx.np if name.startswith("np") else mx.nd).ones((6, 6, 6), dtype="float16")
        with pytest.raises(TypeError, match=r"no float16 convolution or matrix product.*received net\.dtype='float16'"):
            mxsame.hybridize(Own(IN_FLOAT16[name]))(data)
