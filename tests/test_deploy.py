"""mxsame.deploy: the same outputs from a graph for inference, whatever the net is made of."""

import builtins
import copy
import pickle
from functools import partial

import cases
import numpy as np
import pytest
import running
from running import Own, initialized, normal, of_the_day, recorded, sequential, trained
from test_bad_input import bad_calls

import mxsame
from mxsame import processor
from mxsame._mxnet import mx
from mxsame.graphs import tracing
from mxsame.port import activations, blocks
from mxsame.port.recurrent import ConvLSTM, Options, Recurrent
from mxsame.rewriting import bfloat16, canonical
from mxsame.rewriting.graph import Graph, Node, Output

nn = mx.gluon.nn
FUSES = mx.runtime.Features().is_enabled("MKLDNN")
NARROWS = FUSES and processor.has("AVX512_CORE_BF16")


def fused_operators(deployed):
    """Of the graph that oneDNN has fused."""
    return [node["op"] for node in running.nodes(deployed._fused.symbol)]


def assert_same(net, *shapes, batches=(1, 3), dtype="float32", tolerance=None):
    """The net that is deployed for a batch of 1 gives what the net gives, fused and plain, and for other batches; it is
    returned."""
    single = [(1, *shape[1:]) for shape in shapes]
    deployed = mxsame.deploy(net, single[0] if len(single) == 1 else single)
    fused = deployed._fused
    assert (fused is not None) == (FUSES and dtype == "float32")
    for turn, batch in enumerate((shapes[0][0], *batches)):
        data = [normal(batch, *shape[1:], seed=turn, dtype=dtype) for shape in shapes]
        kept = [array.asnumpy() for array in data]
        want = net(*data)
        for runner in (fused, None):
            deployed._fused, deployed._last = runner, {}
            got = deployed(*data)
            running.assert_alike(got, want, tolerance or (1e-5 if dtype == "float32" else 1e-12))
        for array, before in zip(data, kept):
            assert (array.asnumpy() == before).all()
    deployed._fused, deployed._last = fused, {}
    return deployed


CONVOLUTIONS = {  # what a batch norm is folded into; every size and stride is in tests/test_ways.py
    (case.op, case.rank, case.groups, case.use_bias, case.depth_multiplier): case
    for case in cases.CASES
    if case.op not in running.POOLS
}


@running.by_name(list(CONVOLUTIONS.values()))
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_every_convolution_with_a_batch_norm_and_a_relu(case, last):
    layout = mxsame.validation.LAYOUTS[case.rank][last]
    axis = case.rank + 1 if last else 1
    net = sequential(running.layer(case, layout=layout), nn.BatchNorm(axis=axis), nn.Activation("relu"))
    shape = (case.batch, *case.size, case.in_channels) if last else (case.batch, case.in_channels, *case.size)
    assert "BatchNorm" not in running.operators(assert_same(trained(net, shape), shape, batches=()).graph)


# ---- networks --------------------------------------------------------------------------------------------------------


def relu6():
    return nn.HybridLambda(lambda F, x: F.clip(x, 0, 6))


def residual(body, shortcut=None):
    return Own(lambda F, x, *blocks: blocks[0](x) + (blocks[1](x) if len(blocks) > 1 else x), body, *shortcut or ())


def conv(channels, kernel_size, strides=1, act="relu", layout="NCHW", **more):
    blocks = [mxsame.nn.Conv2D(channels, kernel_size, strides=strides, layout=layout, use_bias=False, **more)]
    blocks.append(nn.BatchNorm(axis=layout.index("C")))
    return sequential(*blocks, *([] if act is None else [relu6() if act == "relu6" else nn.Activation(act)]))


def depthwise(kernel_size, strides=1, layout="NCHW"):
    layer = mxsame.nn.DepthwiseConv2D(kernel_size, strides, use_bias=False, layout=layout)
    return sequential(layer, nn.BatchNorm(axis=layout.index("C")), relu6())


def residual_net(layout="NCHW"):
    """Plain and bottleneck blocks, as of ResNet and MobileNet."""

    def block(channels, strides):
        body = sequential(conv(channels, 3, strides, layout=layout), conv(channels, 3, act=None, layout=layout))
        shortcut = [conv(channels, 1, strides, act=None, layout=layout)] if strides > 1 else None
        return sequential(residual(body, shortcut), nn.Activation("relu"))

    def inverted(channels, expansion, strides, kernel_size=3):
        first, last = (conv(*more, layout=layout) for more in ((expansion, 1, 1, "relu6"), (channels, 1, 1, None)))
        body = sequential(first, depthwise(kernel_size, strides, layout), last)
        return residual(body) if strides == 1 else body

    blocks = block(16, 1), block(24, 2), inverted(24, 32, 1, 5), inverted(24, 48, 1), inverted(32, 48, 2, 4)
    first = conv(16, 7, 2, layout=layout), mxsame.nn.MaxPool2D(3, 2, layout=layout)
    return sequential(*first, *blocks, mxsame.nn.AvgPool2D(2, layout=layout), nn.Dropout(0.5), nn.Dense(10))


def gluon_net():
    return sequential(
        nn.Conv2D(8, 3, padding=1),
        nn.BatchNorm(scale=False),
        nn.PReLU(),
        nn.Conv2D(8, 3, strides=2, groups=2),
        nn.BatchNorm(center=False, epsilon=1e-2),
        nn.ELU(),
        nn.Conv2DTranspose(6, 3, strides=2, groups=2, use_bias=False, in_channels=8),
        nn.BatchNorm(),
        nn.GELU(),
        nn.MaxPool2D(2),
        nn.GlobalAvgPool2D(),
        nn.Dense(12, activation="tanh"),
        nn.BatchNorm(),
        nn.Dense(5, flatten=False, use_bias=False),
        nn.BatchNorm(axis=-1),
        nn.LayerNorm(),
    )


NETWORKS = {
    "residual": (residual_net, (2, 3, 32, 34)),
    "residual-last": (lambda: residual_net("NHWC"), (2, 32, 34, 3)),
    "gluon": (gluon_net, (2, 3, 18, 16)),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_networks(name, dtype):
    make, shape = NETWORKS[name]
    net = trained(make(), shape)
    net.cast(dtype)
    assert_same(net, shape, dtype=dtype, batches=(3, 2, 5))


class Random(mx.gluon.HybridBlock):
    """A network drawn at random: every step takes earlier arrays of one shape, many are used twice."""

    KINDS = ("conv", "conv", "conv", "act", "norm", "add", "sub", "scale", "concat", "layer", "mul", "last", "last")
    JOINED = {  # noqa: RUF012
        "add": lambda F, left, right, block: left + right,
        "sub": lambda F, left, right, block: left - F.clip(right + 3, 0, 6) * 0.7,
        "mul": lambda F, left, right, block: left * F.sigmoid(right),
        "scale": lambda F, left, right, block: (left - 0.5) * 0.7,
        "concat": lambda F, left, right, block: block(F.concat(left, right, dim=1)),
    }
    LAST = (  # with a constant, in the layout of channels last
        lambda F, x, c: F.relu(F.broadcast_mul(x, c)),
        lambda F, x, c: F.LeakyReLU(F.broadcast_add(c, x), act_type="elu"),
        lambda F, x, c: F.concat(F.broadcast_mul(F.ones_like(x), c), x, dim=-1),
        lambda F, x, c: F.broadcast_maximum(F.concat(x, F.broadcast_sub(c, x), dim=-1), F.concat(c, c, dim=-1)),
    )

    def __init__(self, seed, steps, rank, channels):
        super().__init__()
        draw, self._steps = np.random.RandomState(seed), []
        conv, transposed = (getattr(mxsame.nn, f"Conv{rank}D{end}") for end in ("", "Transpose"))
        most, average = (getattr(mxsame.nn, f"{kind}Pool{rank}D") for kind in ("Max", "Avg"))
        activations = partial(nn.Activation, "relu"), partial(nn.LeakyReLU, 0.2), relu6, nn.Swish
        activations += partial(nn.Activation, "sigmoid"), partial(nn.PReLU, in_channels=channels)
        layers = partial(most, 3, 1), partial(average, 2, 1), partial(transposed, channels, 3)

        def convolution():
            size, groups = int(draw.choice([1, 2, 3, 4, 5])), int(draw.choice([1, 1, channels]))
            return conv(channels, size, groups=groups, use_bias=bool(draw.randint(2)))

        def channels_last():
            function, axes = self.LAST[draw.randint(len(self.LAST))], (0, *range(2, rank + 2), 1)
            constant = draw.randn(*[1] * (rank + 1 if draw.randint(2) else 0), channels)
            end = conv(channels, 2 if draw.randint(2) else 1)
            back = np.argsort(axes).tolist()
            turned = lambda F, x, end, c: end(F.transpose(function(F, F.transpose(x, axes), c), back))  # noqa: E731
            return Own(turned, end, c=constant)

        makes = {
            "conv": convolution,
            "act": lambda: activations[draw.randint(6)](),
            "norm": nn.BatchNorm,
            "layer": lambda: layers[draw.randint(3)](),
            "concat": partial(conv, channels, 1),
            "last": channels_last,
        }
        for step in range(steps):
            kind = draw.choice(self.KINDS)
            block = makes[kind]() if kind in makes else None
            if block is not None:
                self.register_child(block)
            # Mostly the latest array, at times any.
            sources = [step if draw.rand() < 0.7 else draw.randint(step + 1) for _ in range(2)]
            self._steps.append((kind, block, sources))
        self._ends = sorted({steps, int(draw.randint(1, steps + 1))})

    def hybrid_forward(self, F, x):
        arrays = [x]
        for kind, block, (first, second) in self._steps:
            left, right = arrays[first], arrays[second]
            arrays.append(self.JOINED[kind](F, left, right, block) if kind in self.JOINED else block(left))
        return tuple(arrays[end] for end in self._ends)


# ---- what a net may be -----------------------------------------------------------------------------------------------


def dense(dtype):
    return initialized(nn.Dense(2, in_units=3), dtype=dtype)


def small_net():
    return trained(conv(8, 3, 2), (2, 3, 11, 12))


def test_it_neither_trains_nor_records():
    net = sequential(nn.BatchNorm(), conv(4, 3), nn.Dropout(0.5), nn.BatchNorm())
    data = normal(2, 3, 7, 8)
    deployed = assert_same(trained(net, data.shape), data.shape)
    want = deployed(data).asnumpy()
    with pytest.raises(mx.base.MXNetError, match="computational graph"):
        recorded(deployed, data)
    assert (deployed(data).asnumpy() == want).all()


@pytest.mark.parametrize("prepare", [mxsame.hybridize, lambda net: net.hybridize(static_alloc=True)])
def test_the_net_is_left_as_it_is_and_trained_by_itself(prepare):
    net, data = small_net(), normal(2, 3, 11, 12)
    prepare(net)
    want = net(data).asnumpy()
    deployed = mxsame.deploy(net, data.shape)
    running.assert_equal(deployed(data), want)
    assert (net(data).asnumpy() == want).all()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1})
    recorded(net, data)
    trainer.step(1)
    assert running.difference(net(data).asnumpy(), want) > 0.1
    running.assert_equal(deployed(data), want)


def test_its_parameters_cannot_be_changed(tmp_path):
    deployed = mxsame.deploy(small_net(), (2, 3, 11, 12))
    for parameter in deployed.collect_params().values():
        with pytest.raises(TypeError, match=r"must stay as they are: .* received a NDArray for conv"):
            parameter.set_data(parameter.data() * 0)
    deployed.collect_params().save(str(tmp_path / "file"))
    assert len(mx.nd.load(str(tmp_path / "file"))) == 2
    with pytest.raises(TypeError, match="must stay as they are"):
        deployed.collect_params().load(str(tmp_path / "file"))
    with pytest.raises(TypeError, match=r"cannot be cast: cast the original net, .*; received dtype='float64'"):
        deployed.cast("float64")
    data, parent = normal(2, 3, 11, 12), sequential(deployed)
    want = deployed(data).asnumpy()
    parent.initialize(mx.init.Normal(1), force_reinit=True)
    assert np.array_equal(parent(data).asnumpy(), want)


def test_numpy_mode(monkeypatch, tmp_path):
    with mx.util.np_shape(True), mx.util.np_array(True):

        def function(F, x, conv, norm):
            out = F.npx.relu(norm(conv(x)) * 2)
            return out + F.np.tanh(out), F.np.mean(out, axis=(2, 3))

        norm = nn.BatchNorm()
        net = Own(function, mxsame.nn.Conv2D(6, 3, strides=2), norm)
        net.initialize()
        data = mx.np.array(np.random.RandomState(0).randn(2, 3, 9, 10), dtype="float32")
        net(data)
        norm.running_mean.set_data(mx.np.array(np.arange(6) / 9, dtype="float32"))
        want = net(data)
        deployed = mxsame.deploy(net, data.shape)
        got = deployed(data)
        assert all(isinstance(out, mx.np.ndarray) for out in got)
        running.assert_alike(got, want, 1e-5)
        assert "BatchNorm" not in running.operators(deployed.graph)
        with pytest.raises(TypeError, match="data must be an ndarray"):
            deployed(data.as_nd_ndarray())
        for names in (deployed.export(str(tmp_path / "a")), mxsame.export(deployed, str(tmp_path / "b"))):
            loaded = mx.gluon.SymbolBlock.imports(names[0], ["data"], names[1])
            running.assert_alike(tuple(loaded(data)), want, 1e-5)
        if NARROWS:
            monkeypatch.setattr(bfloat16, "MIN_MACS", 1)
            monkeypatch.setattr(bfloat16, "MACS_PER_CAST", 0)
            running.assert_alike(mxsame.deploy(net, data.shape, dtype="bfloat16")(data), want, 0.02)


def test_two_contexts():
    net = small_net()
    net.collect_params().reset_ctx([mx.cpu(0), mx.cpu(1)])
    data = normal(2, 3, 11, 12)
    deployed = mxsame.deploy(net, data.shape)
    for context in (mx.cpu(0), mx.cpu(1)):
        out = deployed(data.as_in_context(context))
        assert out.context == context
        assert running.difference(out.asnumpy(), net(data.as_in_context(context)).asnumpy()) < 1e-5


def test_a_call_does_not_search_for_parameters(monkeypatch):
    """It would take a quarter of the time of a small net."""
    deployed, data = mxsame.deploy(small_net(), (2, 3, 11, 12)), normal(2, 3, 11, 12)
    monkeypatch.delattr(mx.gluon.Block, "collect_params")
    assert deployed(data).shape == (2, 8, 6, 6)


def wrong(graph):
    """By a little, and at its border only."""
    symbol = graph.symbol()
    inner, border = symbol.slice_axis(axis=3, begin=0, end=-1), symbol.slice_axis(axis=3, begin=-1, end=None)
    return mx.sym.concat(inner, border * (1 + 1e-4), dim=3)


def refused(graph):
    """By MXNet, which has no gradient of it."""
    gate = Node("_backward_Activation", "gate", graph.outputs, {"act_type": "relu"})
    return Graph([Output(gate)], {}, {}).symbol()


@pytest.mark.skipif(not FUSES, reason="oneDNN is not in this MXNet")
@pytest.mark.parametrize(
    ("fused", "reason"), [(wrong, r"differ by \S*e-05, more than 2e-05"), (refused, "MXNet refuses it")]
)
def test_a_fused_graph_that_is_wrong_or_refused_is_not_used(fused, reason, monkeypatch):
    net, data = sequential(conv(4, 3), conv(4, 3, act=None)), normal(2, 3, 7, 8)
    want = trained(net, data.shape)(data)
    monkeypatch.setattr("mxsame.graphs.deploy.fuse", lambda graph, dtype: fused(graph))
    with pytest.warns(UserWarning, match=f"plain one runs instead, and may be slower: .*{reason}"):
        deployed = mxsame.deploy(net, data.shape)
    assert deployed._fused is None
    running.assert_alike(deployed(data), want, 1e-5)
    monkeypatch.setattr(processor, "has", lambda name: True)
    with pytest.raises(ValueError, match=f"in bfloat16 with nearly the same outputs, but .*{reason}"):
        mxsame.deploy(net, data.shape, dtype="bfloat16")


def test_a_batch_norm_that_cannot_be_folded_is_fused_with_its_activation():
    shape = (2, 5, 9, 8)
    net = sequential(nn.BatchNorm(scale=False), nn.Activation("relu"), mxsame.nn.Conv2D(4, 3, strides=2), relu6())
    names = running.operators(assert_same(trained(net, shape), shape).graph)
    assert names[:2] == (["Convolution", "Activation"] if FUSES else ["BatchNorm", "Activation"])


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_file_loads_without_mxsame(tmp_path):
    make, shape = NETWORKS["residual"]
    net = trained(make(), shape)
    data = normal(3, *shape[1:])
    files = mxsame.deploy(net, shape).export(str(tmp_path / "net"), epoch=7)
    assert [file.rsplit("/", 1)[-1] for file in files] == ["net-symbol.json", "net-0007.params"]
    nodes = running.nodes(mx.sym.load(files[0]))
    assert not [node for node in nodes if node["op"].startswith("_sg") or node["op"] in ("BatchNorm", "Dropout")]
    assert all(node["name"].endswith("_shared") for node in nodes if node["op"] == "BlockGrad")
    (out,) = running.outputs_without_mxsame(files, [data], tmp_path)
    assert running.difference(out, net(data).asnumpy(), 1e-30) < 1e-5


def test_a_loaded_file_can_be_deployed(tmp_path):
    make, shape = NETWORKS["residual"]
    net = trained(make(), shape)
    deployed = assert_same(running.from_files(net, tmp_path, shape), shape)
    assert not {"BatchNorm", "Reshape"} & set(running.operators(deployed.graph))


def conv8():
    return mxsame.nn.Conv2D(8, 3, in_channels=8)


# What oneDNN's fusing makes wrong in MXNet's executors, and in `optimize_for`, in addition to random networks.
FUSED_WRONGLY = {
    "dense and relu": lambda: Own(lambda F, x, c: (lambda y: [y, F.relu(y)])(c(x)), nn.Dense(5, in_units=504)),
    "weights in another order": lambda: Own(
        lambda F, x, a, b: F.sigmoid(a(x)) + b(F.relu(x)), nn.Conv2D(8, 1, in_channels=8), nn.Conv2D(8, 3, 1, 1)
    ),
}
EXECUTED = (2, 8, 9, 7)


def assert_files_are_right(net, shape, folder, want=None):
    """In an executor and in a SymbolBlock that oneDNN fuses, as MXNet runs them by default."""
    data = normal(*shape, seed=1)
    want = net(data) if want is None else want
    want = list(want) if isinstance(want, (list, tuple)) else [want]
    names = mxsame.deploy(net, shape).export(str(folder / "net"))
    symbol, arguments, statistics = mx.model.load_checkpoint(str(folder / "net"), 0)
    executor = symbol.bind(mx.cpu(), {**arguments, "data": data}, grad_req="null", aux_states=statistics)
    runs = {"executor": executor.forward()}
    if FUSES:
        loaded = mx.gluon.SymbolBlock.imports(names[0], ["data"], names[1])
        loaded.optimize_for(data, backend="MKLDNN")
        outputs = loaded(data)
        runs["optimize_for"] = outputs if isinstance(outputs, list) else [outputs]
    for runner, got in runs.items():
        for index, (have, expected) in enumerate(zip(got, want)):
            assert running.difference(have.asnumpy(), expected.asnumpy(), 1e-30) < 1e-4, (runner, index)


@pytest.mark.parametrize("name", FUSED_WRONGLY)
def test_files_are_right_in_every_runner(name, tmp_path, monkeypatch):
    monkeypatch.delenv("MXNET_SUBGRAPH_BACKEND", raising=False)
    assert_files_are_right(trained(FUSED_WRONGLY[name](), EXECUTED), EXECUTED, tmp_path)


HEAVY = [pytest.param(seed, marks=pytest.mark.heavy) for seed in of_the_day(range(40, 1000), 8)]


@pytest.mark.parametrize("seed", [*range(40), *HEAVY])
def test_random_networks(seed, tmp_path, monkeypatch):
    """Deployed, also in bfloat16, and as files in every runner."""
    monkeypatch.delenv("MXNET_SUBGRAPH_BACKEND", raising=False)
    rank = 2 if seed % 4 else 1 + seed % 8 // 2
    channels = 12 if seed % 3 else 8  # of which the first are no whole blocks
    shape = (EXECUTED[0], channels, *EXECUTED[2:], 6)[: rank + 2]
    net = trained(Random(seed, 9 if seed < 40 else 14, rank, channels), shape)
    # Values grow and are cut off again, and rounding with them; what is wrong differs by more than a tenth.
    assert_same(net, shape, batches=(3,), tolerance=1e-3)
    assert_files_are_right(net, shape, tmp_path)
    if NARROWS:
        assert_nearly_same(net, shape, monkeypatch, 0.1, least=-1)  # some have no layer with parameters


def one_and_all(F, x, axis=3):
    return F.concat(F.slice_axis(x, axis=axis, begin=0, end=1), x, dim=axis)


def conv_lstm():
    i2h, h2h = (partial(mxsame.nn.Conv2D, 32, 3, in_channels=8, use_bias=use_bias) for use_bias in (True, False))
    return Own(lambda F, x, lstm: lstm(F.expand_dims(x, axis=1)), ConvLSTM(i2h, h2h, Options(steps=1)))


def in_blocks(F, x):
    return F.Convolution(x, F.ones((8, 3, 2, 2)), kernel=(2, 2), num_filter=8, no_bias=True)


SOFTMAX_OF = {  # what oneDNN's softmax of it needs a copy for, or the process ends
    "concatenation": one_and_all,
    "in place": lambda F, x: F.Dropout(F.relu(one_and_all(F, x)) + 1) * 2,
    "row": lambda F, x: one_and_all(F, F.Flatten(x), 1),
    "concatenation of it": lambda F, x: F.concat(one_and_all(F, x), one_and_all(F, x), dim=1),
    "Keras's": lambda F, x: blocks.concatenate(F, F.slice_axis(x, axis=3, begin=0, end=1), x, axis=3, copies=True),
    "tile": lambda F, x: blocks.tile(F, F.slice_axis(x, axis=3, begin=0, end=1), (1, 1, 1, 5)),
    "convolution": lambda F, x: F.tanh(in_blocks(F, x)),
    "average of a convolution": lambda F, x: F.Pooling(in_blocks(F, x), kernel=(2, 2), pool_type="avg"),
}
COPIED = {
    "ReLU with a maximum": lambda: Own(lambda F, x, c: activations.relu(F, c(x), max_value=0.5), conv8()),
    "ConvLSTM": conv_lstm,
    "transposed": lambda: mxsame.nn.Conv2DTranspose(16, 5, strides=3),
    "batch norm as a convolution": lambda: Own(lambda F, x, norm: F.softmax(norm(x)), nn.BatchNorm()),
}


def run_copied(name, folder):
    """Imperative is what is wanted, after a backward pass, but for softmax, which ends the process there; then
    hybridized and trained, deployed, and from files in every runner."""
    shape = (2, 3, 4, 5) if name in SOFTMAX_OF else EXECUTED
    data = normal(*shape, seed=1)
    if name in SOFTMAX_OF:
        net = Own(lambda F, x: F.log_softmax(SOFTMAX_OF[name](F, x), axis=-1))
        want = mx.nd.log_softmax(mx.nd.array(SOFTMAX_OF[name](mx.nd, data).asnumpy()))
    else:
        net = trained(COPIED[name](), shape)
        recorded(net, data)
        want = net(data)
    assert_files_are_right(net, shape, folder, want)
    for size in (shape, None):
        running.assert_alike(running.from_files(net, folder, size)(data), want, 1e-5)
    mxsame.hybridize(net)
    running.assert_alike(recorded(net, data, train_mode=False), want, 1e-5)
    assert np.isfinite(data.grad.asnumpy()).all()


def test_copies_that_mxnet_needs(tmp_path):
    """In a process of its own, which a missing copy ends; what it prints last is the net of that copy."""
    code = f"""
import pathlib, test_deploy
for name in (*test_deploy.SOFTMAX_OF, *test_deploy.COPIED):
    print(name, flush=True)
    test_deploy.run_copied(name, pathlib.Path({str(tmp_path)!r}))
"""
    assert running.run_python(code, cwd=tmp_path).splitlines() == [*SOFTMAX_OF, *COPIED]


# ---- what the graph looks like ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["slice", "kernel"])
def test_convolution_batch_norm_and_activation_are_one_step_but_for_slices(strategy):
    shape = (2, 3, 12, 14)
    with mxsame.plan.use_strategy(strategy):
        deployed = mxsame.deploy(trained(sequential(conv(8, 3, 2), conv(8, 3, 2)), shape), shape)
    sliced = ["slice"] * (strategy == "slice")
    assert running.operators(deployed.graph) == ["Convolution", *sliced, "Activation"] * 2
    assert len(list(deployed.collect_params())) == 4
    if FUSES:
        assert fused_operators(deployed) == ["_sg_mkldnn_conv", *(sliced and ["slice", "Activation"])] * 2
        assert not tracing.has_loop(deployed._fused.symbol)  # which would double a ResNet-50's time


def gated(F, x, *convs):
    """Swish between convolutions, a gate of two arrays, and an array that a gate and an activation share."""
    x = convs[0](x)
    x = convs[1](x * F.sigmoid(x))
    y = F.sigmoid(convs[2](x)) * x
    shared = convs[3](y)
    return shared * F.sigmoid(shared) + F.relu(shared), y


def excited(F, x, first, squeeze, excite, last):
    """A number for each channel, from the means of a swish. The stride is of a convolution of one position."""
    x = F.sigmoid(first(x)) * first(x)
    mean = F.Pooling(x, global_pool=True, pool_type="avg")
    return last(F.broadcast_mul(x, F.sigmoid(excite(F.relu(squeeze(mean)))))), mean


def excitation(gates):
    ends = (mxsame.nn.Conv2D(channels, 1, stride) for channels, stride in ((4, 1), (gates, 2), (6, 1)))
    return Own(excited, conv(8, 3, act=None), *ends)


def summed(F, x, *convs):
    """Sums with two users each."""
    x = convs[0](x)
    for conv in convs[1:]:
        x = x + conv(F.relu(conv(x)))
    return x


def hard_swish(F, x, first):
    return first(x) * (F.clip(first(x) + 3, 0, 6) * float(np.float32(1 / 6)))  # a sixth as Keras has it


def before_conv8(*layers):
    return sequential(conv8(), *layers, conv8())


def of_rank(rank):
    return Own(gated, *(getattr(mxsame.nn, f"Conv{rank}D")(8, 3, in_channels=8) for _ in range(4)))


CONV, GATE = "_sg_mkldnn_conv", "_backward_Activation"
FUSED = {  # net -> how many products with a sigmoid are fused, operators in a row in its graph, and the size
    "swish and gates, 1-D": (lambda: of_rank(1), 3, [GATE], (7,)),
    "swish and gates": (lambda: of_rank(2), 3, [CONV, GATE, CONV], (7, 6)),  # neither needs a copy
    "swish and gates, 3-D": (lambda: of_rank(3), 3, [GATE], (7, 6, 5)),
    # the convolution before the sigmoid, which has more outputs than inputs, is after it
    "excitation": (lambda: excitation(8), 2, ["broadcast_axis", CONV, GATE], (9, 17)),
    "excitation of few": (lambda: excitation(8), 2, ["broadcast_axis", CONV, GATE], (5, 20)),
    "a gate for all channels": (lambda: excitation(1), 1, ["broadcast_mul"], (9, 6)),
    "sums with two users": (lambda: Own(summed, *(mxsame.nn.Conv2D(8, 3) for _ in range(3))), 0, [CONV] * 5, (9, 7)),
    "PReLU": (lambda: before_conv8(nn.PReLU(), nn.MaxPool2D()), 0, [*[CONV] * 4, "Pooling", CONV], (9, 7)),
    "PReLU of Keras": (lambda: before_conv8(Own(blocks.prelu, alpha=normal(8, 1, 1))), 0, [CONV] * 5, (9, 7)),
    "bias and activation after a transposed convolution": (
        lambda: before_conv8(mxsame.nn.Conv2DTranspose(8, 3, 2), nn.Activation("relu")), 0,
        [CONV, "Deconvolution", "slice", CONV, CONV], (9, 7),
    ),
    "hard swish": (lambda: Own(hard_swish, conv8()), 0, [CONV, CONV, "elemwise_mul"], (9, 7)),
}  # fmt: skip


@pytest.mark.skipif(not FUSES, reason="this MXNet has no oneDNN")
@pytest.mark.parametrize("name", FUSED)
def test_what_onednn_has_fused(name):
    make, gates, in_a_row, size = FUSED[name]
    with mxsame.plan.use_strategy("slice" if "transposed" in name else None):
        deployed = assert_same(trained(make(), (2, 8, *size)), (2, 8, *size))
    found = fused_operators(deployed)
    assert found.count(GATE) == gates and " ".join(in_a_row) in " ".join(found)
    assert found.count("elemwise_mul") == (name == "hard swish")
    bounds = [float(node["attrs"]["a_max"]) for node in running.nodes(deployed.graph) if node["op"] == "clip"]
    assert bounds == [1] * (name == "hard swish"), "in single precision, 6 * sixth is 1"


# ---- types, and shapes that depend on values -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_constants_of_integers(dtype):
    constant = mx.nd.array(np.arange(8).reshape(1, 8, 1, 1), dtype=dtype)
    net = Own(lambda F, x, c, k: F.broadcast_add(c(x), F.cast(k, "float32")), conv8(), k=constant)
    assert_same(trained(net, EXECUTED), EXECUTED)


def masked(F, x, lengths, dense):
    return dense(F.SequenceMask(x, lengths, True, axis=1))


TYPES = {  # last input -> (net, shapes or arrays of the inputs, types that the last one may have, one that it may not)
    "added to integers": (
        lambda: Own(lambda F, x, k: F.broadcast_add(x, k), k=mx.nd.array([[1, 2]], dtype="int32")),
        [(1, 2)], ["int32"], "float32",
    ),
    "a mask": (lambda: Own(lambda F, x, m: x * F.cast(m, "float32")), [(1, 2)] * 2, ["bool", "float32"], None),
    "pooled": (
        lambda: sequential(mxsame.nn.MaxPool2D(3, 2), mxsame.nn.AvgPool2D(2), nn.Flatten()),
        [(2, 3, 9, 8)], ["float32", "float64"], "int32",
    ),
    "indices": (lambda: sequential(nn.Embedding(5, 4), nn.Dense(3)), [(2, 5)], ["float32", "int32", "int64"], None),
    "lengths": (
        lambda: Own(masked, nn.Dense(3, flatten=False)), [(2, 5, 4), mx.nd.array([1, 3], dtype="int32")],
        ["int32"], "float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_types_of_an_input(name):
    make, shapes, types, refused = TYPES[name]
    net, random = initialized(make()), np.random.RandomState(0)
    *others, last = (mx.nd.array(random.randint(1, 5, getattr(shape, "shape", shape))) for shape in shapes)
    net(*others, last.astype(types[0]))
    deployed = mxsame.deploy(net, shapes if len(shapes) > 1 else shapes[0])
    for dtype in types:
        want = net(*others, last.astype(dtype))
        running.assert_alike(deployed(*others, last.astype(dtype)), want, 1e-5)
    if refused:
        message = rf"must have the type of the parameters, .*{types[0]}.*; received data1?\.dtype='{refused}'"
        with pytest.raises(TypeError, match=message):
            deployed(*others, last.astype(refused))


def chosen(F, x):
    return F.contrib.boolean_mask(x, F.mean(x, axis=(1, 2, 3)) > 0)


def repeated(F, x, conv):
    """The states after a loop of three steps, of at most five."""
    states = [conv(x), F.zeros(shape=(1,))]
    return F.contrib.while_loop(lambda a, n: F.sum(n) < 3, lambda a, n: (a, [a * 2, n + 1]), states, max_iterations=5)[
        1
    ]


VALUES_DECIDE = {
    "while_loop": lambda: Own(repeated, conv8()),
    "foreach": lambda: Own(lambda F, x, c: F.contrib.foreach(lambda a, s: (a * 2, s), chosen(F, c(x)), [])[0], conv8()),
    "at the end": lambda: Own(lambda F, x, c: chosen(F, c(x)), conv8()),
    "in between": lambda: Own(lambda F, x, c, d: F.relu(d(chosen(F, c(x)))), conv8(), nn.Conv2D(8, 3, in_channels=8)),
    "cond": lambda: Own(lambda F, x, c: F.contrib.cond(F.sum(x) > 0, lambda: F.relu(x), lambda: x * 2) + c(x), conv8()),
}


@pytest.mark.parametrize("name", VALUES_DECIDE)
def test_shapes_and_branches_that_depend_on_values(name):
    net = initialized(VALUES_DECIDE[name]())
    shape = (6, 8, 9, 7)
    deployed = mxsame.deploy(net, shape)
    for seed in range(3):
        want = net(normal(*shape, seed=seed))
        running.assert_alike(deployed(normal(*shape, seed=seed)), want, 1e-5)
        running.assert_alike(mxsame.hybridize(net)(normal(*shape, seed=seed)), want, 1e-5)
        mxsame.hybridize(net, active=False)


# ---- deployed already ------------------------------------------------------------------------------------------------


def test_a_deployed_net_is_returned():
    deployed = mxsame.deploy(small_net(), (2, 3, 11, 12))
    assert mxsame.deploy(deployed, (5, 3, 11, 12), mx.cpu()) is deployed
    assert mxsame.deploy(dense("float64"), (1, 3), dtype="float64")(normal(1, 3, dtype="float64")).shape == (1, 2)
    with pytest.raises(ValueError, match=r"\(None, 3, 11, 12\); received input_shape=\[\(1, 3, 12, 12\)\]"):
        mxsame.deploy(deployed, (1, 3, 12, 12))
    with pytest.raises(ValueError, match=r"ctx must match what the net was deployed for, \[cpu\(0\)\]"):
        mxsame.deploy(deployed, (1, 3, 11, 12), mx.cpu(1))
    with pytest.raises(
        ValueError, match=r"dtype must match what the net was deployed for, .*received dtype='bfloat16'"
    ):
        mxsame.deploy(deployed, (1, 3, 11, 12), dtype="bfloat16")


# ---- bfloat16 --------------------------------------------------------------------------------------------------------

narrow = pytest.mark.skipif(not NARROWS, reason="only with AVX512_BF16 and oneDNN")


def assert_nearly_same(net, shape, monkeypatch, most, least=1e-4):
    """All that can be is in bfloat16; outputs differ, relative to the largest, by less than `most`, but do differ."""
    for name, value in (("MIN_CHANNELS", 1), ("MIN_MACS", 1), ("MACS_PER_CAST", 0)):
        monkeypatch.setattr(bfloat16, name, value)
    deployed, data = mxsame.deploy(net, shape, dtype="bfloat16"), normal(3, *shape[1:])
    pairs = [*zip(tracing.flatten(deployed(data)), tracing.flatten(net(data)))]
    assert {got.dtype for got, _ in pairs} == {np.float32}
    assert least < max(running.difference(got.asnumpy(), want.asnumpy(), 1e-30) for got, want in pairs) < most
    return deployed


@narrow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_bfloat16(name, monkeypatch):
    make, shape = NETWORKS[name]
    deployed = assert_nearly_same(trained(make(), shape), shape, monkeypatch, 0.03)
    again = pickle.loads(pickle.dumps(deployed))
    assert repr(again) == repr(deployed) and repr(again).endswith(", fused=True, dtype='bfloat16')")
    monkeypatch.setattr(processor, "has", lambda name: False)
    with pytest.raises(ValueError, match="AVX512_BF16"):  # on another machine
        copy.copy(deployed)


@narrow
def test_a_network_of_few_products_stays_float32():
    net, shape = small_net(), (2, 3, 11, 12)
    deployed = mxsame.deploy(net, shape, dtype="bfloat16")
    assert repr(deployed).endswith(", fused=True)")
    assert np.array_equal(deployed(normal(*shape)).asnumpy(), mxsame.deploy(net, shape)(normal(*shape)).asnumpy())


@pytest.mark.parametrize(
    ("net", "dtype", "received"),
    [
        (small_net, "float16", r"changes on a GPU; received dtype='float16'$"),
        (lambda: dense("float64"), "bfloat16", "net='float64'"),
        (small_net, "bfloat16", r"lacks=\['AVX512_BF16'\]"),
        (small_net, "bfloat16", r"lacks=\['oneDNN'\]"),
    ],
)
def test_bfloat16_is_refused(net, dtype, received, monkeypatch):
    monkeypatch.setattr(processor, "has", lambda name: "AVX512" not in received)
    monkeypatch.setattr("mxsame.tensors.has_onednn", lambda: "oneDNN" not in received)
    with pytest.raises(ValueError, match=f"dtype must be .*'bfloat16'.*{received}"):
        mxsame.deploy(net(), (2, 3) if "64" in received else (2, 3, 11, 12), dtype=dtype)


# ---- bad input -------------------------------------------------------------------------------------------------------


class Looking(mx.gluon.HybridBlock):
    def forward(self, x):
        return x.reshape((x.shape[0], -1))


def norm_in_float64():
    return initialized(nn.InstanceNorm(in_channels=3), dtype="float64")


def constant():
    return initialized(Own(lambda F, x, weight: weight * 2, weight=(3,)))


@pytest.mark.parametrize(("call", "refusal"), bad_calls("mxsame.deploy"))
def test_wrong_arguments(call, refusal):
    error, _, message = refusal.partition(": ")
    names = {**globals(), "deployed": mxsame.deploy(small_net(), (2, 3, 11, 12))}
    with pytest.raises(getattr(builtins, error), match=message):
        eval(call, names)


# ---- what a rewriting must not lose ----------------------------------------------------------------------------------


def test_a_mask_times_one_is_a_number():
    """In NumPy's arithmetic a bool times 1.0 is a number, and two bools add up to one bool."""

    def function(F, x):
        mask = (x > 0) * 1.0
        return (mask + mask) * x, (x > 0) + 0.0

    with mx.util.np_shape(True), mx.util.np_array(True):
        net, data = Own(function), mx.np.array(np.random.RandomState(0).randn(2, 3, 4, 4), dtype="float32")
        for got, want in zip(mxsame.deploy(net, data.shape)(data), net(data)):
            assert got.dtype != np.bool_  # which float it is differs in MXNet between arrays and graphs
            running.assert_equal(got.asnumpy(), want.asnumpy())


@pytest.mark.parametrize("mean", [0, 30, 300, 1e4])
def test_a_batch_norm_far_from_zero_keeps_its_digits(mean):
    net = initialized(sequential(nn.BatchNorm(in_channels=3)))
    net[0].running_mean.set_data(mx.nd.full((3,), mean))
    net[0].running_var.set_data(mx.nd.array([0.7, 1.3, 2.1]))
    net[0].gamma.set_data(mx.nd.array([1.1, 0.9, 1.7]))
    data = normal(2, 3, 5, 5) + mean
    want = net(data).asnumpy()
    assert np.abs(mxsame.deploy(net, data.shape)(data).asnumpy() - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_copies(copied):
    make, shape = NETWORKS["residual"]
    deployed = mxsame.deploy(trained(make(), shape), shape)
    data = normal(3, *shape[1:])
    again = copied(deployed)
    assert repr(again) == repr(deployed) == f"Deployed(data=(None, 3, 32, 34), fused={FUSES})"
    assert bool(again._fused) == bool(deployed._fused)
    assert np.array_equal(again(data).asnumpy(), deployed(data).asnumpy())
    parameters = (each.collect_params().values() for each in (again, deployed))
    assert all(one is not other for one, other in zip(*parameters))


# ---- inside of other graphs ------------------------------------------------------------------------------------------


def parents(deployed):
    """Graphs that a deployed net becomes a part of, each a function of data."""
    hybridized = sequential(deployed)
    hybridized.hybridize()
    return {"hybridized": hybridized, "specialised": mxsame.hybridize(sequential(deployed))}


@pytest.mark.parametrize("layer", [lambda: mxsame.nn.Conv2D(4, 3, 2, in_channels=3), lambda: mxsame.nn.MaxPool2D(3, 2)])
def test_graphs_around_it_refuse_other_sizes(layer, tmp_path):
    """9 -> (1, 1) and 8 -> (0, 1): what was made for the one would be silently wrong for the other."""
    net = initialized(sequential(layer(), nn.BatchNorm()))
    right, wrong = (normal(2, 3, size, size) for size in (9, 8))
    want = net(right).asnumpy()
    deployed = mxsame.deploy(net, right.shape)
    callers = {**parents(deployed), "loaded": running.from_files(deployed, tmp_path)}
    for name, caller in callers.items():
        assert running.difference(caller(right).asnumpy(), want) < 1e-5, name
        refused = r"data_must_be_N_3_9_9|accepts only data of shape \(None, 3, 9, 9\)|deployed for"
        with pytest.raises((ValueError, mx.base.MXNetError), match=refused):
            caller(wrong).wait_to_read()
    parent = parents(deployed)["hybridized"]
    assert running.difference(mxsame.deploy(parent, right.shape)(right).asnumpy(), want) < 1e-5
    with pytest.raises(ValueError, match=r"net must run on data of this shape; received input_shape=\(2, 3, 8, 8\)"):
        mxsame.deploy(parent, wrong.shape)
    with pytest.raises(ValueError, match=r"net must run on data of this shape; received input_shape=\(2, 3, 8, 8\)"):
        mxsame.export(deployed, tmp_path / "other", wrong.shape)


def less(of):
    """A difference of convolutions, of which one may be the same for all of the batch."""
    return lambda F, x, one, other: F.broadcast_sub(one(x), other(of(F, x)))


BROADCAST = {
    "first": lambda F, x: F.slice(x, begin=(0,), end=(1,)),
    "mean": lambda F, x: F.mean(x, axis=0, keepdims=True),
    "each": lambda F, x: x * 2,
}


@pytest.mark.parametrize("name", BROADCAST)
def test_a_batch_of_1_does_not_show_what_is_broadcast(name, tmp_path):
    shape, convolutions = (1, 3, 8, 9), (nn.Conv2D(16, 3), nn.Conv2D(16, 3))
    net = trained(Own(less(BROADCAST[name]), *convolutions), shape)
    deployed = assert_same(net, shape)
    symbol, parameters = deployed.export(str(tmp_path / "net"))
    loaded = mx.gluon.SymbolBlock.imports(symbol, ["data"], parameters)
    running.assert_alike(loaded(normal(3, *shape[1:])), net(normal(3, *shape[1:])), 1e-5)
    assert ("elemwise_add" in running.operators(deployed.graph)) == (name == "each" and FUSES)


def test_what_a_scalar_meets_may_have_one_axis():
    net = initialized(Own(lambda F, x: F.slice(x, begin=(0,), end=(2,)) * 2 + 1))
    running.assert_alike(mxsame.deploy(net, (4,))(normal(4)), net(normal(4)), 1e-6)


def test_a_bound_in_double_precision_stays(monkeypatch):
    """`clip` has bounds in single precision. Types, which may permit that, are inferred once for all bounds."""
    capped, inferred = Own(lambda F, x: F.relu(F.minimum(F.relu(F.minimum(x, 0.3)), 0.1))), []
    net = initialized(sequential(nn.Dense(3, in_units=3), capped), dtype="float64")
    deployed = assert_same(net, (2, 3), dtype="float64")
    assert "clip" not in running.operators(deployed.graph)
    graph = Graph.of(deployed.graph, {}, {})
    monkeypatch.setattr(Graph, "dtypes", lambda self: inferred.append(self) or {})
    canonical.write_relus_as_clips(graph)
    assert inferred == [graph]


@pytest.mark.parametrize("make", [lambda net, x: mxsame.deploy(net, x.shape), lambda net, x: mxsame.hybridize(net)])
def test_a_batch_norm_may_end_the_body_of_a_loop(make):
    """In oneDNN's blocks its output would end the process; and MXNet has no gradient of one in such a graph."""

    def forward(F, x, conv, norm):
        return F.contrib.foreach(lambda entry, states: (norm(conv(entry)), states), x, [])[0]

    x = normal(3, 2, 16, 8, 9)
    net = trained(Own(forward, nn.Conv2D(16, 3, padding=1, in_channels=16), nn.BatchNorm(in_channels=16)), x.shape)
    want = net(x)
    fast = make(net, x)
    running.assert_alike(fast(x), want, 1e-5)
    if fast is net:
        for trains in (True, False):
            with mx.autograd.record(trains), pytest.raises(
                ValueError, match=r"cannot train if hybridized: call net\.hyb"
            ):
                net(x)


def test_a_recurrent_layer_by_itself_starts_with_zeros():
    net = initialized(mx.gluon.rnn.GRU(5, input_size=3))
    running.assert_alike(mxsame.deploy(net, (4, 2, 3))(normal(4, 2, 3)), net(normal(4, 2, 3)), 1e-5)
    with pytest.raises(TypeError, match=r"one array .*; received 4 for inputs, states, sequence_length"):
        mxsame.deploy(net, [(4, 2, 3)] * 4)


@pytest.mark.parametrize("make", ["deploy", "hybridize"])
def test_a_loop_gives_the_same_at_every_call(make):
    """With static shapes, MXNet's own `foreach` is wrong, often from the second or third call on."""
    net = Recurrent("GRU", 5, 3, Options())  # of a dynamic number of steps, and with a state, in a deployed graph, too
    net.initialize("normal")
    x, state = normal(2, 4, 3), normal(2, 5)
    wanted = net(x, state).asnumpy()
    static = {"static_alloc": True, "static_shape": True}
    fast = mxsame.deploy(net, [x.shape, state.shape]) if make == "deploy" else mxsame.hybridize(net, **static)
    assert make == "hybridize" or "foreach" in fast.graph.tojson()
    for _ in range(8):
        np.testing.assert_allclose(fast(x, state).asnumpy(), wanted, atol=1e-6)


def test_a_loop_waits_for_the_operators_before(tmp_path):
    """A convolution of 30 ms, in whose memory an executor keeps the outputs of the loop after it."""

    def forward(F, x, conv):
        data = conv(x) if F is mx.nd else F.slice_axis(conv(x), axis=0, begin=0, end=None)
        outputs, _ = F.contrib.foreach(lambda entry, states: (entry * 2, states), data, [])
        return F.identity(outputs)

    net = Own(forward, mx.gluon.nn.Conv2D(32, 3, padding=1, in_channels=16))
    net.initialize("normal")
    x = normal(4, 16, 128, 128)
    mxsame.export(net, str(tmp_path / "net"))
    symbol, parameters, _ = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    for _ in range(10):
        executor = symbol.bind(mx.cpu(), {**parameters, "data": x}, grad_req="null")
        for _ in range(3):
            assert running.difference(executor.forward()[0].asnumpy(), net(x).asnumpy()) < 1e-5
