"""`mxsame.deploy(.., cudnn_only=True)`: what such graphs are made of, that they are exact, that additions are in-place.

The GPUs for which they are made are not needed for any of that: the graphs run on the CPU as well.
"""

from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import pytest
import running
from emulation import operators

import mxsame
from benchmarks import networks
from benchmarks.architectures import NETWORKS
from mxsame._mxnet import mx
from mxsame.cudnn_only import Executors
from mxsame.graphs.frozen import float_dtype
from mxsame.installation import cuda, machine_code

nn = mx.gluon.nn
LIBRARY = {
    *("Convolution", "Deconvolution", "Pooling", "Activation", "FullyConnected", "SoftmaxActivation", "_grad_add"),
    *("Reshape", "Flatten", "expand_dims", "BlockGrad"),
}


class Sequence(nn.HybridSequential):
    """Layers and functions of F one after the other."""

    def __init__(self, *steps):
        super().__init__()
        for step in steps:
            self.add(step if isinstance(step, mx.gluon.Block) else nn.HybridLambda(step))


class Residual(mx.gluon.HybridBlock):
    """x + branch(x), or shortcut(x) + branch(x)."""

    def __init__(self, branch, shortcut=None, order=1):
        super().__init__()
        self.branch, self.shortcut, self._order = branch, shortcut, order

    def hybrid_forward(self, F, x):
        parts = [x if self.shortcut is None else self.shortcut(x), self.branch(x)][:: self._order]
        return parts[0] + parts[1]


class Concatenated(mx.gluon.HybridBlock):
    """The channels of all branches, one after the other."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = branches
        for branch in branches:
            self.register_child(branch)

    def hybrid_forward(self, F, x):
        return F.concat(*(branch(x) for branch in self.branches), dim=1)


class UNet(mx.gluon.HybridBlock):
    """Down and up again, with what was there on the way down."""

    def __init__(self):
        super().__init__()
        self.down, self.deep = conv(5, 3, activation="relu"), conv(6, 3, 2, activation="relu")
        self.up, self.out = mxsame.nn.Conv2DTranspose(4, 3, strides=2), conv(2, 3)

    def hybrid_forward(self, F, x):
        down = self.down(x)
        return self.out(F.concat(self.up(self.deep(down)), down, dim=1))


class Merged(mx.gluon.HybridBlock):
    """What an executor computes once where it is written twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = conv(4), conv(4, in_channels=4), conv(4)

    def hybrid_forward(self, F, x):
        y = self.first(x)
        return (F.relu(y) + self.second(F.relu(y))) + (self.third(x) + self.third(x))


class NeededLater(mx.gluon.HybridBlock):
    """A sum inside a sum, whose operand the other operand of the outer one reads."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = conv(4), conv(4, in_channels=4), conv(4, in_channels=4)

    def hybrid_forward(self, F, x):
        y = self.first(x)
        return self.second(y) + (y + self.third(y))


def dense_layer(channels):
    """What DenseNet is made of: all that was before, and some channels more."""
    same = nn.HybridLambda("identity")
    return Concatenated(same, Sequence(nn.BatchNorm(), nn.Activation("relu"), conv(channels)))


def conv(channels, kernel_size=3, strides=1, **more):
    return mxsame.nn.Conv2D(channels, kernel_size, strides=strides, **more)


def prepared(net, shape):
    """Initialised, with statistics as after training, and its output for some data."""
    mx.random.seed(0)
    net.initialize(mx.init.Normal(0.4))
    data = mx.nd.array(np.random.RandomState(0).randn(*shape))
    net(data)
    random = np.random.RandomState(1)
    for name, parameter in net.collect_params(".*(gamma|beta|running_mean|running_var)").items():
        low = 0.5 if name.endswith(("gamma", "var")) else -0.5
        parameter.set_data(mx.nd.array(random.uniform(low, 1.0, parameter.shape)))
    return data, net(data).asnumpy()


def lowered(deployed):
    """The graph that executors run."""
    return deployed._executors.symbol


NETS = {
    "stem": (lambda: Sequence(conv(8, 7, 2, activation="relu"), mxsame.nn.MaxPool2D(3, 2), conv(4, 2)), (2, 3, 33, 30)),
    "residual": (
        lambda: Sequence(
            conv(8, 3, 2),
            Residual(Sequence(nn.BatchNorm(), nn.Activation("relu"), conv(8), nn.BatchNorm())),
            nn.Activation("relu"),
            Residual(Sequence(conv(6), nn.Activation("tanh"), conv(12, 3, 2)), conv(12, 1, 2)),
            Residual(Sequence(conv(12)), order=-1),
        ),
        (2, 3, 17, 18),
    ),
    "the input itself is added": (lambda: Residual(conv(3)), (2, 3, 9, 8)),
    "sums of sums": (
        lambda: Sequence(conv(5), Residual(Residual(conv(5, 2), order=-1)), Residual(nn.Activation("sigmoid"))),
        (2, 3, 9, 8),
    ),
    "inception": (
        lambda: Sequence(
            Concatenated(conv(3, 1, activation="relu"), Sequence(conv(4), conv(2, 5)), mxsame.nn.MaxPool2D(3, 1)),
            Concatenated(conv(3, 3, 2), mxsame.nn.AvgPool2D(3, 2)),
            conv(5, 3),
            nn.Dense(3),
        ),
        (2, 3, 9, 8),
    ),
    "concatenations, then a bias": (
        lambda: Sequence(Concatenated(conv(3), conv(2)), nn.Flatten(), nn.Dense(4)),
        (2, 3, 5, 4),
    ),
    "densely connected": (
        lambda: Sequence(dense_layer(3), dense_layer(4), dense_layer(2), conv(4, 3, 2)),
        (2, 3, 9, 8),
    ),
    "u-net": (UNet, (2, 3, 8, 10)),
    "depthwise of a concatenation": (
        lambda: Sequence(
            Concatenated(conv(3), conv(2)),
            mxsame.nn.DepthwiseConv2D(3, strides=2, depth_multiplier=2, in_channels=5),
            conv(2),
        ),
        (2, 3, 9, 8),
    ),
    "a sum of concatenations": (
        lambda: Sequence(
            conv(4), Residual(Concatenated(conv(3), conv(2)), Concatenated(conv(3, 1), conv(2, 1))), conv(3)
        ),
        (2, 3, 9, 8),
    ),
    "twice": (lambda: Sequence(conv(4), lambda F, x: x + x, conv(2)), (2, 3, 9, 8)),
    "merged": (lambda: Merged(), (2, 3, 9, 8)),
    "needed later": (lambda: NeededLater(), (2, 3, 9, 8)),
    "differences": (
        lambda: Sequence(conv(4), lambda F, x: F.add_n(x, F.relu(x), x - F.sigmoid(x)), conv(2)),
        (2, 3, 9, 8),
    ),
    "rows": (
        lambda: Sequence(nn.Dense(6), nn.BatchNorm(), lambda F, x: F.clip(x + F.tanh(x), -0.2, 0.8), nn.Dense(3)),
        (3, 5),
    ),
    "far bounds": (
        lambda: Sequence(
            conv(4),
            lambda F, x: F.maximum(F.clip(x, -1e9, 1e9), -1e10),
            lambda F, x: F.clip(F.minimum(x, 1e6), -65504, 65504),
            lambda F, x: F.clip(F.maximum(x, float("-inf")), -0.5, float("inf")),
        ),
        (2, 3, 9, 8),
    ),
    "no kernel": (
        lambda: Sequence(conv(4), lambda F, x: F.Pooling(x, global_pool=True, pool_type="avg")),
        (2, 3, 9, 8),
    ),
    "no kernel in a row": (
        lambda: Sequence(mxsame.nn.Conv1D(4, 3), lambda F, x: F.Pooling(x, global_pool=True, pool_type="max")),
        (2, 3, 9),
    ),
    "cudnn_off": (
        lambda: Sequence(conv(4), lambda F, x: F.Pooling(x, kernel=(2, 2), stride=(2, 2), cudnn_off=True)),
        (2, 3, 8, 8),
    ),
    "pooled input": (lambda: Sequence(mxsame.nn.MaxPool1D(3, 2)), (2, 3, 9)),
    "without parameters": (lambda: Sequence(lambda F, x: F.clip(x, -0.5, 0.5)), (2, 3, 9, 8)),
    "relu6": (lambda: Sequence(conv(5), lambda F, x: F.clip(x, 0, 6), conv(5, 3, 2)), (2, 3, 9, 8)),
    "clipped": (lambda: Sequence(conv(5), lambda F, x: F.clip(x, -0.5, 1.5)), (2, 3, 9, 8)),
    "bounded": (lambda: Sequence(conv(5), lambda F, x: F.maximum(F.minimum(x, 0.7), -0.3)), (2, 3, 9, 8)),
    "leaky": (lambda: Sequence(conv(5), nn.LeakyReLU(0.3), conv(4, 4, 2)), (2, 3, 9, 8)),
    "batch norm first": (lambda: Sequence(nn.BatchNorm(), conv(5), lambda F, x: x * 0.5 + 3), (2, 3, 9, 8)),
    "batch norm between": (
        lambda: Sequence(conv(4), nn.Activation("relu"), nn.BatchNorm(), conv(5, 4, 3)),
        (2, 3, 9, 8),
    ),
    "dense": (
        lambda: Sequence(conv(4, 3, 2), nn.Dense(7, activation="relu"), nn.Dense(5), lambda F, x: F.softmax(x)),
        (2, 3, 9, 8),
    ),
    "dense of a row": (lambda: Sequence(nn.Dense(7, activation="sigmoid"), nn.Dense(5, use_bias=False)), (3, 6)),
    "global": (lambda: Sequence(conv(4), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(5)), (2, 3, 9, 8)),
    "classes of pixels": (lambda: Sequence(conv(4), lambda F, x: F.softmax(x, axis=1)), (2, 3, 9, 8)),
    "separable": (
        lambda: Sequence(mxsame.nn.SeparableConv2D(6, 3, strides=2, in_channels=3), mxsame.nn.AvgPool2D(3, 2)),
        (2, 3, 16, 15),
    ),
    "decoder": (
        lambda: Sequence(*(mxsame.nn.Conv2DTranspose(4, k, strides=2, activation="relu") for k in (2, 3, 4, 5))),
        (2, 3, 4, 5),
    ),
    "audio": (
        lambda: Sequence(mxsame.nn.Conv1D(4, 9, strides=2), mxsame.nn.MaxPool1D(3, 2), mxsame.nn.AvgPool1D(2, 2)),
        (2, 3, 40),
    ),
    "video": (lambda: Sequence(mxsame.nn.Conv3D(4, 3, strides=2), mxsame.nn.MaxPool3D(3, 2)), (1, 3, 8, 9, 10)),
}


@pytest.mark.parametrize("name", NETS)
def test_exact_and_of_nothing_but_library_calls(name):
    make, shape = NETS[name]
    net = make()
    data, want = prepared(net, shape)
    deployed = mxsame.deploy(net, shape, cudnn_only=True)
    assert set(operators(lowered(deployed))) <= LIBRARY
    assert running.difference(deployed(data).asnumpy(), want) < 1e-5
    for batch in (shape[0], 1):  # executors, which a GPU is given
        some = data[:batch]
        got = deployed._executors(some)[0].asnumpy()
        assert running.difference(got, want[:batch]) < 1e-5
        assert running.difference(deployed._executors(some)[0].asnumpy(), want[:batch]) < 1e-5, "called again"


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_known_networks(network):
    case = networks.case(network, 2, 33 if network.classifies else 28, 0.25)
    kit = networks.kits(case, ["mxsame"])["mxsame"]
    if network.name == "efficientnet":  # squeezes, excites and swishes multiply arrays
        with pytest.raises(ValueError, match=r"made of what cuDNN and cuBLAS run, .*received the operators .*_mul"):
            mxsame.deploy(kit.net, case.shape, cudnn_only=True)
        return
    deployed, data = mxsame.deploy(kit.net, case.shape, cudnn_only=True), networks.images(case)
    assert set(operators(lowered(deployed))) <= LIBRARY
    want = kit.net(data).asnumpy()
    assert running.difference(deployed(data).asnumpy(), want, 1e-3) < 1e-4
    assert running.difference(deployed._executors(data)[0].asnumpy(), want, 1e-3) < 1e-4


WITH_ADDITIONS = (
    *("residual", "the input itself is added", "sums of sums", "leaky"),
    *(
        "inception",
        "densely connected",
        "u-net",
        "a sum of concatenations",
        "merged",
        "needed later",
        "differences",
        "rows",
    ),
)


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_no_convolution_writes_where_it_reads(name):
    """On the CPU that works; cuDNN does not promise it."""
    make, shape = NETS[name]
    net = make()
    prepared(net, shape)
    read = json.loads(lowered(mxsame.deploy(net, shape, cudnn_only=True)).tojson())["nodes"]
    sums = [node for node in read if node["op"] == "_grad_add"]
    for node in sums:
        first, second = (source for source, *_ in node["inputs"])
        assert read[second]["op"] == "Convolution" and first not in [source for source, *_ in read[second]["inputs"]]
    assert sums


ADDING = """
import os
os.environ["MXNET_EXEC_BULK_EXEC_INFERENCE"] = "0"  # one operator, one name in the profile
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
import tempfile
import mxsame
import test_cudnn_only as tests
from mxnet import nd, profiler

folder = tempfile.TemporaryDirectory()  # MXNet removes the profile's file first, so it must be no device
for name in tests.WITH_ADDITIONS:
    make, shape = tests.NETS[name]
    net = make()
    data, want = tests.prepared(net, shape)
    deployed = mxsame.deploy(net, shape, cudnn_only=True)
    sums = tests.operators(tests.lowered(deployed)).count("_grad_add")
    deployed._executors(data)[0].wait_to_read()
    profiler.set_config(profile_symbolic=True, aggregate_stats=True, filename=os.path.join(folder.name, "profile.json"))
    profiler.set_state("run")
    deployed._executors(data)[0].wait_to_read()
    nd.waitall()
    profiler.set_state("stop")
    ran = {line.split()[0] for line in profiler.dumps(reset=True).splitlines() if line.strip()}
    print(name, sums, "Convolution" in ran, "_grad_add" in ran, sep=";")
"""


def test_additions_are_made_by_convolutions():
    """MXNet's executor lets them: in the profile of a run there is no addition."""
    lines = [line.split(";") for line in running.run_python(ADDING).splitlines() if ";" in line]
    assert [name for name, *_ in lines] == list(WITH_ADDITIONS)
    for name, sums, convolved, added in lines:
        assert int(sums) >= 1 and (convolved, added) == ("True", "False"), name


@pytest.mark.parametrize(
    ("net", "operator"),
    [
        (lambda: Sequence(conv(4), lambda F, x: F.concat(x, x, dim=1)), r"Concat \("),
        (lambda: Sequence(Concatenated(conv(4), conv(4)), conv(4, groups=2, in_channels=8)), r"Concat \("),
        (
            lambda: Sequence(Concatenated(conv(4), conv(4)), nn.GlobalAvgPool2D(), nn.Dense(3, use_bias=False)),
            r"Concat \(",
        ),
        (lambda: Sequence(conv(4), nn.PReLU()), r"LeakyReLU \("),
        (lambda: Sequence(conv(4), nn.Activation("softrelu")), r"Activation \("),
        (lambda: Sequence(conv(4), lambda F, x: F.softmax(x, axis=3)), r"softmax \("),
        (lambda: Sequence(conv(4), lambda F, x: x * F.sigmoid(x)), r"elemwise_mul|broadcast_mul|_mul"),
        (lambda: Sequence(conv(4), lambda F, x: F.mean(x, axis=(2, 3))), r"mean \("),
    ],
)
def test_what_needs_more_is_named(net, operator):
    net = net()
    prepared(net, (2, 3, 8, 8))
    with pytest.raises(ValueError, match=operator):
        mxsame.deploy(net, (2, 3, 8, 8), cudnn_only=True)


def test_padding_that_needs_more_is_named():
    net = Sequence(mxsame.nn.MaxPool2D(2, 1))
    with pytest.raises(
        ValueError, match="the padding of max pooling must be such that the operator can do it by itself"
    ):
        mxsame.deploy(net, (2, 3, 8, 8), cudnn_only=True)
    assert mxsame.deploy(net, (2, 3, 8, 8))(mx.nd.ones((1, 3, 8, 8))).shape == (1, 3, 8, 8)


def test_files_refuse_other_sizes(tmp_path):
    net = Sequence(conv(4, 3, 2), Residual(conv(4)), nn.Dense(5))
    data, want = prepared(net, (2, 3, 9, 8))
    mxsame.deploy(net, (2, 3, 9, 8), cudnn_only=True).export(str(tmp_path / "net"))
    symbol, arguments, _ = mx.model.load_checkpoint(str(tmp_path / "net"), 0)

    def run(data):
        return symbol.bind(mx.cpu(), {**arguments, "data": data}, grad_req="null").forward()[0].asnumpy()

    assert running.difference(run(data), want) < 1e-5
    read = json.loads((tmp_path / "net-symbol.json").read_text())["nodes"]
    assert {node["op"] for node in read} <= {*LIBRARY, "null"}
    with pytest.raises(mx.base.MXNetError, match="data_must_be_"):
        run(mx.nd.ones((2, 3, 10, 8)))


def test_without_additions_files_are_for_everybody(tmp_path):
    net = Sequence(conv(4, 3, 2), nn.Dense(5))
    data, want = prepared(net, (2, 3, 9, 8))
    files = mxsame.deploy(net, (2, 3, 9, 8), cudnn_only=True).export(str(tmp_path / "net"))
    loaded = mx.gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    assert running.difference(loaded(data).asnumpy(), want) < 1e-5


def test_channels_last_are_only_for_gpus():
    net = Sequence(conv(4, 3, 2, layout="NHWC"), mxsame.nn.MaxPool2D(3, 2, layout="NHWC"))
    prepared(net, (2, 9, 12, 3))
    with pytest.raises(ValueError, match=r"net must run on a GPU: .* received the operators Convolution \(conv"):
        mxsame.deploy(net, (2, 9, 12, 3), cudnn_only=True)


def test_copies_stay_so():
    net = Sequence(conv(4, 3, 2), Residual(conv(4)))
    data, want = prepared(net, (2, 3, 9, 8))
    deployed = mxsame.deploy(net, (2, 3, 9, 8), cudnn_only=True)
    deployed.collect_params().reset_ctx(mx.cpu(1))
    again = pickle.loads(pickle.dumps(deployed))
    assert set(operators(lowered(again))) <= LIBRARY and "_grad_add" in operators(lowered(again))
    assert mxsame.deploy(again, data.shape, ctx=mx.cpu(1)) is again
    data = data.as_in_context(mx.cpu(1))
    for got in (again(data), again._executors(data)[0]):
        assert running.difference(got.asnumpy(), want) < 1e-5


class TwoInputs(mx.gluon.HybridBlock):
    """The graph meets the second input first."""

    def __init__(self):
        super().__init__()
        self.conv = conv(3)

    def hybrid_forward(self, F, x, y, z):
        return self.conv(y) + x


def test_inputs_keep_their_order():
    net, shape = TwoInputs(), (2, 3, 9, 8)
    net.initialize(mx.init.Normal(0.4))
    x, y, z = (mx.nd.array(np.random.RandomState(seed).randn(*shape)) for seed in range(3))
    want = net(x, y, z).asnumpy()
    deployed = mxsame.deploy(net, [shape] * 3, cudnn_only=True)
    assert running.difference(deployed(x, y, z).asnumpy(), want) < 1e-5
    assert running.difference(deployed._executors(x, y)[0].asnumpy(), want) < 1e-5  # those that are used


def test_types():
    """Constants have the type of the data; cuDNN's softmax has only float32; float16's batch norms stay float32."""
    net = Sequence(conv(4, in_channels=3), nn.LeakyReLU(0.3), lambda F, x: F.clip(x, -1, 1))
    net.initialize(mx.init.Normal(0.4))
    net.cast("float64")
    data = mx.nd.array(np.random.RandomState(0).randn(2, 3, 9, 8), dtype="float64")
    deployed = mxsame.deploy(net, data.shape, cudnn_only=True)
    assert running.difference(deployed(data).asnumpy(), net(data).asnumpy()) < 1e-6  # MXNet's own LeakyReLU rounds so
    net.add(nn.HybridLambda(lambda F, x: F.softmax(x, axis=1)))
    with pytest.raises(ValueError, match=r"received the operators softmax \("):
        mxsame.deploy(net, data.shape, cudnn_only=True)
    net = Sequence(nn.BatchNorm(in_channels=3), conv(4, in_channels=3))
    net.initialize()
    net.cast("float16")
    assert float_dtype(net.collect_params(), None) == np.float16
    with pytest.raises(TypeError, match="must have the type of the parameters, float32"):
        plain = mxsame.deploy(Sequence(lambda F, x: F.clip(x, 0, 6)), (1, 3, 4, 4), cudnn_only=True)
        plain(mx.nd.ones((1, 3, 4, 4), dtype="float64"))


@pytest.mark.parametrize(
    ("low", "high"), [(0, 6), (-0.5, 1.5), (-16, 16), (-100, 100), (-1e9, 1e9), (5, 6), (-300, -200), (0, 1e30)]
)
def test_bounds_hold_for_all_data(low, high):
    """Infinite data too, if the bounds are near."""
    values = [0, 1e-3, 5.9, 6.1, 17, 150, 1e8, 3e38]
    values += [-value for value in values] + ([float("inf"), float("-inf")] if max(-low, high) <= 16 else [])
    data = mx.nd.array(values).reshape((1, 1, 1, -1))
    deployed = mxsame.deploy(Sequence(lambda F, x: F.clip(x, low, high)), data.shape, cudnn_only=True)
    want = np.clip(data.asnumpy(), np.float32(low), np.float32(high))
    near = max(abs(low), abs(high)) <= 16
    for got in (deployed(data).asnumpy(), deployed._executors(data)[0].asnumpy()):
        assert np.abs(got - want).max() <= (1e-6 if near else 0)
        assert got.min() == want.min() and got.max() == want.max()


@pytest.mark.parametrize("mean", [0, 30, 1e3, -1e4])
def test_a_batch_norm_far_from_zero_keeps_its_digits(mean):
    net = Sequence(nn.BatchNorm(in_channels=3))
    net.initialize()
    net[0].running_mean.set_data(mx.nd.array([mean, mean + 1, mean - 1]))
    net[0].running_var.set_data(mx.nd.array([0.7, 1.3, 2.1]))
    net[0].gamma.set_data(mx.nd.array([1.1, 0.9, 1.7]))
    net[0].beta.set_data(mx.nd.array([0.3, -2, 1]))
    data = mx.nd.array(np.random.RandomState(0).randn(2, 3, 5, 5)) + mean
    want = net(data).asnumpy()
    deployed = mxsame.deploy(net, data.shape, cudnn_only=True)
    for got in (deployed(data).asnumpy(), deployed._executors(data)[0].asnumpy()):
        assert np.abs(got - want).max() < 1e-6 * np.abs(want).max()


@pytest.mark.parametrize("strides", [1, 2])
def test_transposed_convolutions_in_3d(strides):
    net = Sequence(mxsame.nn.Conv3DTranspose(4, 3, strides=strides, in_channels=3))
    data, want = prepared(net, (1, 3, 5, 4, 3))
    deployed = mxsame.deploy(net, data.shape, cudnn_only=True)
    assert running.difference(deployed._executors(data)[0].asnumpy(), want) < 1e-5
    net.cast("float64")
    with pytest.raises(
        ValueError, match=r"net must run on a GPU: .* received the operators Deconvolution \(conv\d+_decon"
    ):
        mxsame.deploy(net, data.shape, cudnn_only=True)


def test_files_are_right_in_executors_as_mxnet_runs_them_by_default(tmp_path, monkeypatch):
    """On the CPU those fuse convolutions and activations by oneDNN."""
    monkeypatch.delenv("MXNET_SUBGRAPH_BACKEND", raising=False)
    for seed in range(40):
        net, data, want = random_net(seed)
        mxsame.deploy(net, data.shape, cudnn_only=True).export(str(tmp_path / "net"))
        symbol, arguments, _ = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
        got = symbol.bind(mx.cpu(), {**arguments, "data": data}, grad_req="null").forward()
        for have, wanted in zip(got, want):
            assert running.difference(have.asnumpy(), wanted) < 1e-5, seed


def test_shapes_that_depend_on_values_are_refused():
    net = Sequence(conv(4), lambda F, x: F.contrib.boolean_mask(x, F.mean(x, axis=(1, 2, 3)) > 0))
    prepared(net, (2, 3, 8, 8))
    with pytest.raises(ValueError, match=r"received the operators _contrib_boolean_mask \("):
        mxsame.deploy(net, (2, 3, 8, 8), cudnn_only=True)


# ---- random nets -----------------------------------------------------------------------------------------------------


class RandomNet(mx.gluon.HybridBlock):
    """Some steps, each on what any step before it has made, and one to three of them as outputs."""

    STEPS = (
        "conv",
        "conv",
        "depthwise",
        "sum",
        "sum",
        "sum",
        "relu",
        "sigmoid",
        "leaky",
        "norm",
        "clip",
        "pool",
        "view",
    )

    def __init__(self, seed):
        super().__init__()
        random = np.random.RandomState(seed)
        self._steps = []
        for position in range(1, random.randint(4, 10)):
            kind, sources = self.STEPS[random.randint(len(self.STEPS))], random.randint(0, position, 2)
            block = {
                "conv": lambda: mxsame.nn.Conv2D(3, 2, in_channels=3),
                "depthwise": lambda: mxsame.nn.DepthwiseConv2D(3, in_channels=3),
                "norm": lambda: nn.BatchNorm(in_channels=3),
                "leaky": lambda: nn.LeakyReLU(0.2),
                "pool": lambda: mxsame.nn.AvgPool2D(3, 1),
            }.get(kind, lambda: None)()
            if block is not None:
                self.register_child(block)
            self._steps.append((kind, sources, block))
        self._outputs = [len(self._steps), *random.randint(1, len(self._steps) + 1, random.randint(0, 3))]

    def hybrid_forward(self, F, x):
        values = [x]
        for kind, (first, second), block in self._steps:
            value = values[first]
            if block is not None:
                value = block(value)
            elif kind == "sum":
                value = value + values[second]
            elif kind == "clip":
                value = F.clip(value, -0.3, 0.7)
            elif kind == "view":
                value = F.reshape(F.reshape(value, shape=(0, 0, -1)), shape=(0, 0, 5, 6))
            else:
                value = F.Activation(value, act_type=kind)
            values.append(value)
        return [values[index] for index in self._outputs]


def random_net(seed):
    """A net, its data, and what deployed nets must give."""
    net = RandomNet(seed)
    data, _ = mx.nd.array(np.random.RandomState(seed).randn(2, 3, 5, 6)), mx.random.seed(seed)
    net.initialize(mx.init.Normal(0.4))
    random = np.random.RandomState(seed)
    for name, parameter in net.collect_params(".*(gamma|beta|running_mean|running_var)").items():
        low = 0.5 if name.endswith(("gamma", "var")) else -0.5
        parameter.set_data(mx.nd.array(random.uniform(low, 1.0, parameter.shape)))
    return net, data, [array.asnumpy() for array in net(data)]


@pytest.mark.parametrize("seed", range(150))
def test_random_nets(seed):
    net, data, want = random_net(seed)
    deployed = mxsame.deploy(net, data.shape, cudnn_only=True)
    assert set(operators(lowered(deployed))) <= {*LIBRARY, "_copy"}
    for got in (deployed(data), deployed._executors(data), deployed._executors(data)):
        for each, wanted in zip(got, want):
            assert running.difference(each.asnumpy(), wanted) < 1e-5


RANDOM = """
import os
os.environ["MXNET_EXEC_BULK_EXEC_INFERENCE"] = "0"
import tempfile
import mxsame
import test_cudnn_only as tests
from mxnet import nd, profiler

folder = tempfile.TemporaryDirectory()  # MXNet removes the profile's file first, so it must be no device
for seed in range(200):
    net, data, _ = tests.random_net(seed)
    deployed = mxsame.deploy(net, data.shape, cudnn_only=True)
    sums = tests.operators(tests.lowered(deployed)).count("_grad_add")
    for array in deployed._executors(data):
        array.wait_to_read()
    profiler.set_config(profile_symbolic=True, aggregate_stats=True, filename=os.path.join(folder.name, "profile.json"))
    profiler.set_state("run")
    for array in deployed._executors(data):
        array.wait_to_read()
    nd.waitall()
    profiler.set_state("stop")
    ran = {line.split()[0] for line in profiler.dumps(reset=True).splitlines() if line.strip()}
    print(seed, sums, "_grad_add" in ran, sep=";")
"""


def test_additions_of_random_nets_are_made_by_convolutions():
    lines = [line.split(";") for line in running.run_python(RANDOM).splitlines() if line.count(";") == 2]
    assert len(lines) == 200 and sum(int(sums) for _, sums, _ in lines) > 100
    assert [seed for seed, _, ran in lines if ran == "True"] == []


def test_executors_are_kept_and_dropped(monkeypatch):
    monkeypatch.setattr(Executors, "MOST", 2)
    net = Sequence(conv(4, 3, 2))
    data, want = prepared(net, (3, 3, 9, 8))
    run = mxsame.deploy(net, (1, 3, 9, 8), cudnn_only=True)._executors
    for batch in (1, 2, 1, 3):
        assert running.difference(run(data[:batch])[0].asnumpy(), want[:batch]) < 1e-5
    assert [key[1][0][0] for key in run.bound] == [1, 3]


def test_outputs_are_not_written_again():
    net = Sequence(conv(4, 3, 2))
    data, want = prepared(net, (2, 3, 9, 8))
    run = mxsame.deploy(net, (2, 3, 9, 8), cudnn_only=True)._executors
    (first,) = run(data)
    run(data * 0)
    assert running.difference(first.asnumpy(), want) < 1e-5


def test_when_it_is_needed(monkeypatch):
    """By the GPU's compute capability and the machine code of the library, which is looked through once."""
    looked = []
    module = sys.modules["mxsame.cudnn_only"]
    code = machine_code.Code(machine=((7, 0), (8, 0), (8, 6)), ptx=())
    monkeypatch.setattr(machine_code, "machine_code", lambda path: looked.append(path) or code)
    cards = [cuda.Device(number, "card", capability, 1) for number, capability in enumerate([(8, 9), (9, 0)])]
    monkeypatch.setattr(cuda, "devices", lambda: cards)
    module._machine_code.cache_clear()
    try:
        found = [module.is_needed(mx.Context("gpu", number)) for number in (0, 1, 2, 1)]
        assert found == [False, True, False, True] and not module.is_needed(mx.cpu())
        assert len(looked) == 1 and looked[0].endswith("libmxnet.so")
    finally:
        module._machine_code.cache_clear()


def test_where_it_runs():
    net = Sequence(conv(4, 3, 2))
    prepared(net, (2, 3, 9, 8))
    assert mxsame.deploy(net, (2, 3, 9, 8), ctx=mx.cpu(1))(mx.nd.ones((1, 3, 9, 8), ctx=mx.cpu(1))).context == mx.cpu(1)
    with pytest.raises(TypeError, match=r"ctx must be an mx.Context, or a list of such; received ctx='gpu'"):
        mxsame.deploy(net, (2, 3, 9, 8), ctx="gpu")
    with pytest.raises(TypeError, match="cudnn_only must be"):
        mxsame.deploy(net, (2, 3, 9, 8), cudnn_only="yes")
    if not mx.context.num_gpus():
        with pytest.raises(ValueError, match=r"ctx must be a device that there is; received ctx=gpu\(0\), GPUs=0"):
            mxsame.deploy(net, (2, 3, 9, 8), ctx=mx.gpu())
