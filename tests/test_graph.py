"""mxsame.hybridize and mxsame.export: graphs specialised to sizes are as exact as everything else, and stay few."""

from __future__ import annotations

import copy
import json
import pickle
import threading

import cases
import numpy as np
import oracle
import pytest
import running

import mxsame
from mxsame._mxnet import mx

nn = mx.gluon.nn


def wrapped(block, **flags):
    """The block inside a parent, specialised."""
    parent = nn.HybridSequential()
    parent.add(block)
    return mxsame.hybridize(parent, **flags)


def small_network():
    net = nn.HybridSequential()
    net.add(
        mxsame.nn.Conv2D(6, 3, strides=2, activation="relu"),
        nn.BatchNorm(),
        mxsame.nn.MaxPool2D(3, 2),
        mxsame.nn.DepthwiseConv2D(4, strides=2),
        mxsame.nn.Conv2DTranspose(3, 3, strides=2),
    )
    net.initialize(mx.init.Normal(0.5))
    return net


def small_network_called():
    net = small_network()
    net(images(30, 33))
    return net


def images(*size, seed=0, batch=2):
    return mx.nd.array(np.random.RandomState(seed).randn(batch, 3, *size))


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_every_case_at_every_size_with_gradients(case, static):
    layer = running.layer(case)
    running.set_parameters(layer, cases.arrays(case))
    net = wrapped(layer, static_alloc=static, static_shape=static)
    for size in case.sizes:
        arrays = cases.arrays(case, size=size)
        want = oracle.forward(case, arrays)
        data = mx.nd.array(arrays["data"])
        data.attach_grad()
        with mx.autograd.record():
            got = net(data)
        out_grad = cases.output_gradient(case, want.shape)
        got.backward(mx.nd.array(out_grad))
        assert running.difference(got.asnumpy(), want) < 1e-4, size
        for name, gradient in oracle.gradients(case, arrays, out_grad).items():
            found = data.grad if name == "data" else getattr(layer, name).grad()
            assert running.difference(found.asnumpy(), gradient) < 1e-4, (size, name)


def test_the_same_as_the_net_run_layer_by_layer():
    net = small_network()
    sizes = [(31, 40), (32, 40), (33, 17), (16, 16), (9, 11), (5, 50)]
    want = [net(images(*size)).asnumpy() for size in sizes]
    mxsame.hybridize(net)
    for size, expected in zip(sizes, want):
        assert running.difference(net(images(*size)).asnumpy(), expected) < 1e-5


def test_sizes_of_one_class_share_a_graph():
    net = small_network()
    mxsame.hybridize(net)
    for size in range(20, 120):
        assert net(images(size, size)).shape[2] == 2 * -(-size // 8)
    # Three layers with stride 2 on equal axes: the remainder modulo 8 decides.
    assert len(net.forward.graphs) == 8


def test_the_graph_least_recently_used_is_dropped_and_made_again():
    net = small_network()
    want = {size: net(images(size, size)).asnumpy() for size in range(16, 24)}
    mxsame.hybridize(net, max_graphs=3)
    for _ in range(2):
        for size, expected in want.items():
            assert running.difference(net(images(size, size)).asnumpy(), expected) < 1e-5
            assert len(net.forward.graphs) <= 3


def test_no_known_size_is_worked_out_in_the_graph():
    net = small_network()
    net(images(30, 33))
    mxsame.hybridize(net)
    net(images(30, 33))
    (graph,) = net.forward.graphs.values()
    operators = {node["op"] for node in json.loads(graph(mx.sym.var("data")).tojson())["nodes"]}
    assert not operators & {"_contrib_arange_like", "take", "where", "reverse", "slice_like"}
    assert "Convolution" in operators


def test_training_moves_the_shared_parameters_and_statistics():
    plain, special = small_network(), small_network()
    data = images(30, 33)
    plain(data), special(data)
    for source, target in zip(plain.collect_params().values(), special.collect_params().values()):
        target.set_data(source.data())
    mxsame.hybridize(special)
    for net in (plain, special):
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
        for step, size in enumerate([(30, 33), (31, 32), (30, 33)]):
            with mx.autograd.record():
                loss = (net(images(*size, seed=step)) ** 2).mean()
            loss.backward()
            trainer.step(1)
    for source, target in zip(plain.collect_params().values(), special.collect_params().values()):
        assert running.difference(target.data().asnumpy(), source.data().asnumpy()) < 1e-4, source.name
    assert np.abs(plain[1].running_mean.data().asnumpy()).max() > 1e-4


def test_deferred_channels_are_settled_even_where_a_plain_graph_would_need_them():
    net = wrapped(mxsame.nn.DepthwiseConv2D(3, strides=2))
    net.initialize()
    assert net(images(11, 12)).shape == (2, 3, 6, 6)


def test_several_inputs_in_lists_and_none():
    class Two(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.first = mxsame.nn.Conv2D(4, 3, strides=2)
            self.second = mxsame.nn.AvgPool2D(3, strides=2)

        def hybrid_forward(self, F, pair, extra=None):
            left, right = pair
            out = self.first(left), self.second(right)
            return out if extra is None else (*out, extra * 2)

    net = Two()
    net.initialize()
    left, right = images(9, 12), images(14, 7, seed=1)
    want = net([left, right], right)
    mxsame.hybridize(net)
    for arguments in (([left, right], right), ([left, right],), ([left, right], None)):
        got = net(*arguments)
        assert len(got) == (3 if arguments[-1] is right else 2)
        for have, expected in zip(got, want):
            assert running.difference(have.asnumpy(), expected.asnumpy()) < 1e-5


def test_two_contexts_and_types():
    net = small_network()
    net.collect_params().reset_ctx([mx.cpu(0), mx.cpu(1)])
    mxsame.hybridize(net)
    one = net(images(30, 33).as_in_context(mx.cpu(0)))
    two = net(images(30, 33).as_in_context(mx.cpu(1)))
    assert two.context == mx.cpu(1)
    assert running.difference(two.asnumpy(), one.asnumpy()) < 1e-6
    net.cast("float64")
    double = net(images(30, 33).astype("float64").as_in_context(mx.cpu(0)))
    assert double.dtype == np.float64
    assert running.difference(double.asnumpy(), one.asnumpy()) < 1e-4


def test_inference_from_several_threads():
    net = small_network()
    sizes = [(20 + step, 25 + 3 * step) for step in range(12)]
    want = [net(images(*size)).asnumpy() for size in sizes]
    mxsame.hybridize(net, max_graphs=4)
    wrong = []

    def work(offset):
        for turn in range(24):
            which = (turn * 5 + offset) % len(sizes)
            difference = running.difference(net(images(*sizes[which])).asnumpy(), want[which])
            if not difference < 1e-5:
                wrong.append((sizes[which], difference))

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


def test_a_changed_net_is_traced_again():
    net = nn.HybridSequential()
    net.add(mxsame.nn.MaxPool2D(2))
    mxsame.hybridize(net)
    assert net(images(7, 7)).shape[2:] == (4, 4)
    net.add(mxsame.nn.MaxPool2D(2))
    assert net(images(7, 7)).shape[2:] == (2, 2)


def test_inactive_takes_everything_back():
    net = small_network()
    want = net(images(30, 33)).asnumpy()
    mxsame.hybridize(net)
    mxsame.hybridize(net)
    net(images(30, 33))
    assert mxsame.hybridize(net, active=False) is net
    assert "forward" not in vars(net)
    assert "_clear_cached_op" not in vars(net)
    assert running.difference(net(images(30, 33)).asnumpy(), want) < 1e-6


def test_a_specialised_net_inside_a_graph_of_its_parent():
    child = mxsame.hybridize(small_network())
    parent = nn.HybridSequential()
    parent.add(child)
    want = child(images(30, 33)).asnumpy()
    parent.hybridize()
    assert running.difference(parent(images(30, 33)).asnumpy(), want) < 1e-5


def test_a_block_that_is_no_hybrid_block():
    class Plain(mx.gluon.Block):
        def __init__(self):
            super().__init__()
            self.inner = small_network()

        def forward(self, x):
            return self.inner(x) * float(x.shape[0])

    net = Plain()
    want = net(images(30, 33)).asnumpy()
    assert mxsame.hybridize(net) is net
    assert running.difference(net(images(30, 33)).asnumpy(), want) < 1e-5
    assert len(net.inner.forward.graphs) == 1


def test_numpy_mode():
    with mx.util.np_shape(True), mx.util.np_array(True):
        net = nn.HybridSequential()
        net.add(mxsame.nn.Conv2D(6, 3, strides=2), nn.BatchNorm(), mxsame.nn.MaxPool2D(3, 2))
        net.initialize()
        batches = [
            mx.np.array(np.random.RandomState(0).randn(2, 3, size, size + 1), dtype="float32") for size in (12, 13)
        ]
        want = [net(batch).asnumpy() for batch in batches]
        mxsame.hybridize(net)
        for batch, expected in zip(batches, want):
            got = net(batch)
            assert isinstance(got, mx.np.ndarray)
            assert running.difference(got.asnumpy(), expected) < 1e-5


def test_a_layer_by_itself_still_checks_its_input():
    layer = mxsame.hybridize(mxsame.nn.Conv2D(4, 3, padding="valid"))
    layer.initialize()
    with pytest.raises(ValueError, match="padded input must be at least as long as the kernel"):
        layer(images(2, 5))
    with pytest.raises(TypeError, match=r"received data\.dtype='int32'"):
        layer(mx.nd.ones((1, 3, 5, 5), dtype="int32"))


def test_an_input_too_small_further_down_is_a_value_error():
    net = nn.HybridSequential()
    net.add(mxsame.nn.MaxPool2D(4), mxsame.nn.Conv2D(4, 3, padding="valid"))
    net.initialize()
    mxsame.hybridize(net)
    assert net(images(12, 12)).shape == (2, 4, 1, 1)
    with pytest.raises(ValueError, match="padded input must be at least as long as the kernel"):
        net(images(8, 12))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3,), TypeError, "net must be a gluon.Block"),
        ((None,), TypeError, "net must be a gluon.Block"),
        ((nn.Dense(2), "yes"), TypeError, "active must be True or False; received active='yes'"),
        ((nn.Dense(2), True, 0), ValueError, "max_graphs must be an integer >= 1; received max_graphs=0"),
        ((nn.Dense(2), True, 1.5), TypeError, "max_graphs must be an integer >= 1; received max_graphs=1.5"),
    ],
)
def test_wrong_arguments_of_hybridize(arguments, error, message):
    with pytest.raises(error, match=message):
        mxsame.hybridize(*arguments)


@pytest.mark.parametrize("shape", [None, (1, 3, 30, 33)], ids=["any-size", "one-size"])
def test_export_loads_as_a_plain_graph(tmp_path, shape):
    net = small_network()
    sizes = [(30, 33)] if shape else [(30, 33), (31, 32), (16, 9), (7, 50), (64, 64)]
    want = [net(images(*size)).asnumpy() for size in sizes]
    symbol_file, params_file = mxsame.export(net, str(tmp_path / "net"), shape, epoch=7)
    assert params_file.endswith("net-0007.params")
    operators = {node["op"] for node in json.loads((tmp_path / "net-symbol.json").read_text())["nodes"]}
    assert ("_contrib_arange_like" in operators) == (shape is None)
    loaded = mx.gluon.SymbolBlock.imports(symbol_file, ["data"], params_file)
    for size, expected in zip(sizes, want):
        assert running.difference(loaded(images(*size)).asnumpy(), expected) < 1e-5
        assert running.difference(loaded(images(*size, batch=5)).asnumpy()[:0], expected[:0]) == 0


@pytest.mark.parametrize("size", [(33, 30), (30, 34), (29, 33), (15, 66)])
def test_a_file_for_one_size_refuses_others(tmp_path, size):
    files = mxsame.export(small_network_called(), str(tmp_path / "net"), (1, 3, 30, 33))
    loaded = mx.gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    with pytest.raises(mx.base.MXNetError, match="data_must_be_"):
        loaded(images(*size)).wait_to_read()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"net": 3}, TypeError, "net must be a gluon.HybridBlock"),
        ({"path": 3}, TypeError, "path must be a string or a path; received path=3"),
        ({"input_shape": 32}, TypeError, "input_shape must be a sequence of integers; received input_shape=32"),
        ({"input_shape": (1, 3, 0, 4)}, ValueError, r"input_shape\[2\] must be an integer >= 1"),
        ({"epoch": -1}, ValueError, "epoch must be an integer >= 0; received epoch=-1"),
        ({"net": nn.Dense(3)}, ValueError, "net must be initialised"),
    ],
)
def test_wrong_arguments_of_export(tmp_path, change, error, message):
    net = mxsame.nn.Conv2D(2, 3, in_channels=3)
    net.initialize()
    with pytest.raises(error, match=message):
        mxsame.export(**{"net": net, "path": str(tmp_path / "net"), **change})


@pytest.mark.parametrize("size", [(9,), (9, 8), (5, 6, 7)], ids=len)
@pytest.mark.parametrize("last", [False, True])
def test_an_operator_told_its_size_refuses_another(size, last):
    """Where the graph cannot know better, it is made to fail rather than to compute nonsense."""
    layout = mxsame.validation.LAYOUTS[len(size)][last]
    data = mx.sym.var("data")
    out = mxsame.ops.max_pool(data, (2,) * len(size), 2, layout=layout, input_size=size)
    shape = (2, *size, 3) if last else (2, 3, *size)
    array = mx.nd.array(np.random.RandomState(0).randn(*shape))
    (got,) = out.bind(mx.cpu(), {"data": array}).forward()
    want = mxsame.ops.max_pool(array, (2,) * len(size), 2, layout=layout)
    assert running.difference(got.asnumpy(), want.asnumpy()) == 0
    for axis in range(len(size)):
        other = [length + (place == axis) for place, length in enumerate(size)]
        with pytest.raises(mx.base.MXNetError, match="data_must_be_"):
            out.infer_shape(data=(2, *other, 3) if last else (2, 3, *other))


def test_switched_off_by_gluon_and_summed_up(capsys):
    net = small_network_called()
    mxsame.hybridize(net)
    net(images(30, 33))
    net.hybridize(False)
    graphs = len(net.forward.graphs)
    net.summary(images(31, 33))
    assert "(2, 6, 16, 17)" in capsys.readouterr().out
    assert len(net.forward.graphs) == graphs == 0


def test_a_copy_has_graphs_of_its_own():
    net = small_network_called()
    mxsame.hybridize(net)
    want = net(images(30, 33)).asnumpy()
    twin = copy.deepcopy(net)
    assert running.difference(twin(images(30, 33)).asnumpy(), want) < 1e-6
    twin.collect_params().setattr("grad_req", "null")
    for parameter in twin.collect_params().values():
        parameter.set_data(parameter.data() * 0)
    assert np.abs(twin(images(30, 33)).asnumpy()).max() == 0
    assert running.difference(net(images(30, 33)).asnumpy(), want) == 0


def test_a_forward_of_the_user_s_own_keeps_its_arrays():
    class Own(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.inner = small_network()

        def forward(self, x):
            out = self.inner(x)
            return out.reshape((out.shape[0], -1))

    net = Own()
    want = net(images(30, 33)).asnumpy()
    mxsame.hybridize(net)
    assert running.difference(net(images(30, 33)).asnumpy(), want) < 1e-5
    assert len(net.inner.forward.graphs) == 1


def test_a_parameter_named_as_gluon_names_an_input():
    class Scaled(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="")
            self.data = self.params.get("data", shape=(1, 3, 1, 1), init="ones")
            self.pool = mxsame.nn.MaxPool2D(3, 2)

        def hybrid_forward(self, F, x, data):
            return self.pool(F.broadcast_mul(x, data))

    net = Scaled()
    net.initialize()
    want = net(images(9, 8)).asnumpy()
    mxsame.hybridize(net)
    assert running.difference(net(images(9, 8)).asnumpy(), want) < 1e-6


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ({"static_alloc": "yes"}, TypeError, "static_alloc must be True or False; received static_alloc='yes'"),
        ({"static_shape": True}, ValueError, "static_shape must come with static_alloc=True"),
        ({"inline_limit": "a"}, TypeError, "inline_limit must be an integer >= 0"),
        ({"foo": 1}, TypeError, "flags must be those of HybridBlock.hybridize; received foo=1"),
    ],
)
def test_wrong_flags(flags, error, message):
    with pytest.raises(error, match=message):
        mxsame.hybridize(small_network(), **flags)


def test_channels_that_do_not_fit_deep_inside_are_named():
    net = nn.HybridSequential()
    net.add(mxsame.nn.MaxPool2D(2), mxsame.nn.Conv2D(4, 3, in_channels=7))
    net.initialize()
    mxsame.hybridize(net)
    with pytest.raises(
        ValueError, match=r"data must have in_channels=7 channels; received data.shape=\(2, 3, 15, 17\)"
    ):
        net(images(30, 33))


# ---- nesting of outputs, channels, copies ----------------------------------------------------------------------------


class Returning(mx.gluon.HybridBlock):
    """A net that returns what a function makes of an array."""

    def __init__(self, function):
        super().__init__()
        self._function = function
        self.conv = mxsame.nn.Conv2D(4, 3, strides=2, in_channels=3)

    def hybrid_forward(self, F, x):
        return self._function(F, self.conv(x))


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
    net, data = Returning(function), images(9, 8)
    net.initialize()
    want = net(data)
    mxsame.hybridize(net)
    for _ in range(2):
        assert_nested_alike(net(data), want)


def assert_nested_alike(got, want):
    if isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)) and len(got) == len(want)
        for one, other in zip(got, want):
            assert_nested_alike(one, other)
    elif want is None:
        assert got is None
    else:
        running.assert_equal(got.asnumpy(), want.asnumpy())


def test_what_is_no_array_is_refused():
    net = Returning(lambda F, y: "words")
    net.initialize()
    with pytest.raises(TypeError, match="net must return arrays; received str"):
        mxsame.hybridize(net)(images(9, 8))


@pytest.mark.parametrize("strategy", [None, "slice", "tail", "pad", "gather", "full"])
@pytest.mark.parametrize("kind", [mxsame.nn.MaxPool3D, mxsame.nn.AvgPool3D])
def test_one_pool_for_data_of_many_channels(kind, strategy):
    """Three axes are made four by a reshape that has the channels in it."""
    pool, plain = wrapped(kind(2, 3)), kind(2, 3)
    for channels in (2, 4, 3, 2):
        data = mx.nd.array(np.random.RandomState(0).randn(2, channels, 7, 6, 5))
        with mxsame.plan.force(strategy):
            try:
                got = pool(data)
            except ValueError as error:
                assert "is not exact" in str(error)
                continue
        running.assert_equal(got.asnumpy(), plain(data).asnumpy())


@pytest.mark.parametrize("called", [False, True])
def test_a_pickled_net_has_graphs_of_its_own(called):
    net, data = mxsame.hybridize(small_network_called(), max_graphs=3), images(30, 33)
    want = net(data).asnumpy() if called else None
    again = pickle.loads(pickle.dumps(net))
    assert not again.forward.graphs
    running.assert_equal(again(data).asnumpy(), net(data).asnumpy() if want is None else want)
    assert len(again.forward.graphs) == 1


def test_a_file_goes_where_there_is_a_folder(tmp_path):
    path = str(tmp_path / "no" / "net")
    with pytest.raises(ValueError, match="path must be in a folder that exists; received path="):
        mxsame.export(small_network_called(), path)


def test_a_net_of_two_inputs_is_told_apart():
    class Two(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return x + y

    with pytest.raises(TypeError, match="net must be given all of its inputs, with one shape for each; received 1 of"):
        mxsame.export(Two(), "net")
