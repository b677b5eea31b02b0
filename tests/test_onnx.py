"""`mxsame.export_onnx`: files, names, dynamic lengths, types, what is refused, and whole networks."""

import functools
import json
import sys

import keras_recording
import numpy as np
import pytest
import running
from configurations import connected, entry, functional
from running import Own, difference, of_the_day, outputs, sequential as chain, trained

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install '.[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")

from onnx_running import NEWEST, exported, operators, run  # noqa: E402

import mxsame  # noqa: E402
from mxsame._mxnet import mx  # noqa: E402
from mxsame.exporting import comparing  # noqa: E402
from mxsame.exporting.writer import Emitter  # noqa: E402
from mxsame.onnx import NotCompared, checking  # noqa: E402
from mxsame.onnx.writer import EMITTERS  # noqa: E402
from mxsame.port.blocks import indices_from_end  # noqa: E402

gluon = mx.gluon.nn
SHAPE = (2, 3, 30, 33)
RUNTIMES = "com.microsoft"  # the domain of ONNX Runtime's own operators
MOVING = {"Pad", "Slice", "Concat", "Gather", "Transpose"}


def sequential(*layers, shape=SHAPE):
    """A net with parameters, and statistics, that show every mistake."""
    return trained(chain(*layers), shape)


def downsampling():
    """Strides, every kind of padding, and a batch norm to fold."""
    return sequential(
        mxsame.nn.Conv2D(8, 7, strides=2),
        gluon.BatchNorm(),
        gluon.Activation("relu"),
        mxsame.nn.MaxPool2D(3, 2),
        mxsame.nn.Conv2D(8, 4),
        mxsame.nn.AvgPool2D(2),
        mxsame.nn.SeparableConv2D(6, 3, strides=2),
        mxsame.nn.Conv2DTranspose(4, 3, strides=2),
    )


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def check(net, path, *arrays, **options):
    """The file gives what the net gives."""
    got, want = exported(net, path, *arrays, **options), outputs(net, *arrays)
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert np.abs(other).max() > 0 and difference(one, other) < 1e-5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.onnx"


# ---- what is in a file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [13, 17, 18, NEWEST])
def test_same_costs_no_node(path, opset):
    check(downsampling(), path, random(*SHAPE), opset=opset)
    assert operators(path) == {"Conv": 4, "Relu": 1, "MaxPool": 1, "AveragePool": 1, "ConvTranspose": 1}
    model = onnx.load(str(path))
    assert [entry.version for entry in model.opset_import] == [opset]
    assert model.producer_name == "mxsame"


def test_without_folding(path):
    check(downsampling(), path, random(*SHAPE), fold=False)
    assert operators(path)["BatchNormalization"] == 1
    names = {array.name.split("_", 1)[-1] for array in onnx.load(str(path)).graph.initializer}
    assert {"gamma", "running_mean"} <= names


def test_channels_last_is_transposed_once_at_each_end(path):
    net = sequential(
        mxsame.nn.Conv2D(8, 3, strides=2, layout="NHWC"),
        gluon.Activation("relu"),
        mxsame.nn.MaxPool2D(3, 2, layout="NHWC"),
        mxsame.nn.Conv2D(4, 3, layout="NHWC"),
        shape=(2, 30, 33, 3),
    )
    check(net, path, random(2, 30, 33, 3))
    assert operators(path)["Transpose"] == 2


def test_names(path):
    conv = mxsame.nn.Conv2D(4, 3, strides=2, in_channels=3)

    def outputs_of(F, x, y, unused, conv):
        shared = conv(x)
        return [shared, (conv(y), shared), x]

    net = Own(outputs_of, conv)
    net.initialize()
    arrays = [random(*SHAPE, seed=seed) for seed in range(3)]
    shapes = [array.shape for array in arrays]
    names = {"input_names": ["left", "right", "nothing"], "output_names": ["a", "b", "c", "d"]}
    written = mxsame.export_onnx(net, path, shapes, **names)
    model, parameters = onnx.load(str(path)), sum(each.data().size for each in net.collect_params().values())
    by = f"ONNX Runtime {onnxruntime.__version__}"
    assert written == mxsame.onnx.Written(str(path), len(model.graph.node), parameters, by)
    assert [entry.name for entry in model.graph.input] == names["input_names"]
    assert [entry.name for entry in model.graph.output] == names["output_names"]
    first, (second, third), fourth = net(*map(mx.nd.array, arrays))
    for got, want in zip(run(path, *arrays), (first, second, third, fourth)):
        assert difference(got, want.asnumpy()) < 1e-5
    mxsame.export_onnx(net, path, shapes)
    model = onnx.load(str(path))
    assert [entry.name for entry in model.graph.input] == ["data0", "data1", "data2"]
    assert [entry.name for entry in model.graph.output] == ["output0", "output1", "output2", "output3"]


def test_names_of_a_keras_model(path):
    """Those of its input layers, and of the layers whose outputs it returns; each is there once."""
    relu = connected(entry("ReLU", "relu"), ["left"], ["right"])
    model = functional([relu], {"left": (3,), "right": (3,)}, [("relu", 1, 0), "relu", "left"])
    net, (left, right) = mxsame.from_keras(json.dumps(model)), (random(2, 3, seed=seed) for seed in range(2))
    mxsame.export_onnx(net, path)
    got = onnxruntime.InferenceSession(str(path)).run(["relu_1", "relu", "left_1"], {"right": right, "left": left})
    for array, want in zip(got, (np.maximum(left, 0), np.maximum(right, 0), left)):
        assert np.array_equal(array, want)


def lengths(path):
    """Of all inputs, and of all outputs: numbers and names."""
    graph = onnx.load(str(path)).graph
    shapes = [value.type.tensor_type.shape.dim for value in (*graph.input, *graph.output)]
    return [[dim.dim_param or dim.dim_value for dim in shape] for shape in shapes]


def test_an_input_of_integers(path):
    """By the type of the variable of a graph, or of an array that is given for its shape; 7 // 2 differs in floats, as
    does a number above 2**24."""
    data = mx.sym.var("data", dtype="int32")
    array = np.array([[6, 2**30 + 1]], "int32")
    given = mx.nd.array(array, dtype="int32")
    block = Own(lambda F, x: (x + 1) / 2)
    for net, shapes in ((mx.gluon.SymbolBlock((data + 1) / 2, [data]), None), (block, [given])):
        (got,) = exported(net, path, array, shapes=shapes)
        assert got.dtype == np.int32 and np.array_equal(got, net(given).asnumpy())


def test_dynamic_lengths(path):
    net = downsampling()
    mxsame.export_onnx(net, path, SHAPE)
    assert lengths(path) == [["N", 3, 30, 33], ["N", 4, 4, 6]]
    for batch in (1, 5):
        array = random(batch, *SHAPE[1:])
        assert difference(run(path, array)[0], outputs(net, array)[0]) < 1e-5
    mxsame.export_onnx(net, path, SHAPE, dynamic_batch=False)
    assert lengths(path)[0] == list(SHAPE)
    mxsame.export_onnx(net, path, SHAPE, dynamic_size=True)
    assert lengths(path) == [["N", 3, "data_2", "data_3"], ["N", 4, "output_2", "output_3"]]
    for size in ((30, 33), (31, 32), (64, 29), (17, 17)):
        array = random(1, 3, *size)
        assert difference(run(path, array)[0], outputs(net, array)[0]) < 1e-5


@pytest.mark.parametrize(("function", "agree"), [(lambda F, x, y: x + y, True), (lambda F, x, y: [-x, -y], False)])
def test_sizes_of_inputs_share_names_if_they_must_agree(function, agree, path):
    mxsame.export_onnx(Own(function), path, [(1, 3, 8, 8)] * 2, dynamic_size=True)
    first, second, *_ = lengths(path)
    assert (first[2:] == second[2:]) is agree


def test_a_layer_that_cannot_be_dynamic_is_named(path):
    net = sequential(mxsame.nn.Conv2D(4, 3), mxsame.nn.Conv2D(4, 3, strides=2, dilation=2, prefix="dilated_"))
    with pytest.raises(ValueError, match=r"if sizes are dynamic.*dilated_fwd \(path: data -> .* -> dilated"):
        mxsame.export_onnx(net, path, SHAPE, dynamic_size=True)
    with pytest.raises(ValueError, match=r"with channels last, .*dense0_fwd"):
        net = sequential(mxsame.nn.Conv2D(4, 3, layout="NHWC"), gluon.Dense(3, prefix="dense0_"), shape=(2, 8, 9, 3))
        mxsame.export_onnx(net, path, (2, 8, 9, 3), dynamic_size=True)
    net = sequential(mxsame.nn.Conv2D(4, 3), gluon.Dense(3, prefix="classes_"))
    with pytest.raises(ValueError, match=r"fixed one: .*classes_fwd.*: use dynamic_batch=False or dynamic_size=False"):
        mxsame.export_onnx(net, path, SHAPE, dynamic_size=True)
    assert not path.exists()


def test_a_batch_that_is_part_of_the_graph(path):
    net = Own(lambda F, x: F.reshape(x, shape=(2, 12)) * 2)
    with pytest.raises(ValueError, match=r"net must take any batch, but .*reshape.*: use dynamic_batch=False"):
        mxsame.export_onnx(net, path, (2, 3, 4))
    check(net, path, random(2, 3, 4), dynamic_batch=False)


def test_none_in_a_shape_is_any_length(path):
    net = Own(lambda F, x: F.tanh(x))
    for shape, wanted in (
        ((None, 3, None, None), ["N", 3, "data_2", "data_3"]),
        ((None, 3, None, 48), ["N", 3, "data_2", 48]),
        ((None, 3, 40, 48), ["N", 3, 40, 48]),
    ):
        mxsame.export_onnx(net, path, shape)
        assert lengths(path)[0] == wanted
    mxsame.export_onnx(mxsame.from_keras(mxsame.sample("digits")), path)
    assert lengths(path)[0] == ["N", 8, 8, 1]


def test_a_file_for_every_size_becomes_one_with_pads(path, tmp_path):
    layers = mxsame.nn.Conv2D(4, 3, strides=2, in_channels=3), mxsame.nn.MaxPool2D(3, 2), mxsame.nn.AvgPool2D(3, 2)
    net = running.initialized(chain(*layers))
    check(running.from_files(net, tmp_path), path, random(2, 3, 33, 30))
    assert operators(path) == {"Conv": 1, "MaxPool": 1, "AveragePool": 1}


def test_axes_of_one_length_may_have_others_in_the_next_call(path):
    """ONNX Runtime takes lengths of one name for equal, and buffers of such shapes for interchangeable."""
    net = Own(lambda F, x: F.concat(*(F.sum(F.tanh(F.exp(F.mean(x, axis=axis))), axis=2) for axis in (2, 3)), dim=1))
    mxsame.export_onnx(net, path, (1, 3, 8, 8), dynamic_size=True)
    assert lengths(path)[0] == ["N", 3, "data_2", "data_3"]
    x = random(2, 3, 8, 12)
    assert difference(run(path, x)[0], outputs(net, x)[0]) < 1e-5


def test_a_first_axis_that_is_not_the_batch_has_a_name_of_its_own(path):
    check(Own(lambda F, x: F.reshape(x, shape=(-1, 4))), path, random(3, 8))
    assert lengths(path) == [["N", 8], ["output_0", 4]]


# ---- types and files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fold", [True, False])
def test_float16(path, fold):
    net = downsampling()
    want = outputs(net, random(*SHAPE))[0]
    net.cast("float16")
    mxsame.export_onnx(net, path, SHAPE, fold=fold)
    (got,) = run(path, random(*SHAPE).astype("float16"))
    assert got.dtype == np.float16 and difference(got, want) < 2e-2
    arrays = {array.data_type for array in onnx.load(str(path)).graph.initializer}
    assert onnx.TensorProto.FLOAT not in arrays


def test_large_arrays_go_into_a_second_file(path, monkeypatch):
    net = downsampling()
    monkeypatch.setattr(checking, "MAX_INLINE_BYTES", 1000)
    check(net, path, random(*SHAPE))
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["net.onnx", "net.onnx.data"]
    assert path.stat().st_size < path.with_suffix(".onnx.data").stat().st_size
    (got,) = run(path, random(*SHAPE))
    assert difference(got, outputs(net, random(*SHAPE))[0]) < 1e-5


def test_parameters_are_renamed_if_inputs_have_their_names(path):
    net = gluon.Dense(4, in_units=4, prefix="dense_")
    net.initialize(mx.init.Uniform(1))
    check(net, path, random(2, 4), input_names=["dense_bias"], output_names=["dense_weight"])
    assert {array.name for array in onnx.load(str(path)).graph.initializer}.isdisjoint(["dense_bias", "dense_weight"])


def test_group_normalization_of_dynamic_size(path):
    net = Own(lambda F, x: F.reshape_like(F.reshape(F.relu(x), shape=(0, 2, -1)), x))
    mxsame.export_onnx(net, path, (2, 4, 5, 6), dynamic_size=True)
    data = random(3, 4, 7, 3)
    assert np.array_equal(run(path, data)[0], np.maximum(data, 0))


def test_a_file_that_onnxruntime_cannot_run_is_refused(path, monkeypatch):
    """As Max of int8 in some of its versions, or a newer opset."""

    def session(*given):
        raise RuntimeError("Could not find an implementation for Max(13) node with name 'maximum0'")

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    with pytest.raises(ValueError, match=r"ONNX Runtime runs as a file; ONNX Runtime says: .*implementation for Max"):
        mxsame.export_onnx(downsampling(), path, SHAPE)
    assert not list(path.parent.iterdir())


def test_a_net_that_mxnet_cannot_run_is_refused(path):
    """MXNet's graphs of `sort` need an axis."""

    net = Own(lambda F, x: F.sort(x))
    with pytest.raises(ValueError, match=r"net must run on data of this shape; .*MXNet refuses"):
        mxsame.export_onnx(net, path, (2, 4))
    assert not list(path.parent.iterdir())


def test_a_file_with_other_outputs_is_removed(path):
    path.write_bytes(b"before")
    with pytest.raises(
        ValueError, match=r"but ONNX Runtime computes a different output.*more than 0.*received .*tolerance=0"
    ):
        mxsame.export_onnx(downsampling(), path, SHAPE, tolerance=0)
    assert path.read_bytes() == b"before" and [entry.name for entry in path.parent.iterdir()] == ["net.onnx"]


@pytest.fixture
def spoil(monkeypatch):
    """From now on files have something added to the last element of an array."""
    saved = checking.save

    def with_what(name, amount):
        def save(model, *given):
            (array,) = (array for array in model.graph.initializer if name in array.name)
            values = onnx.numpy_helper.to_array(array).copy()
            values.flat[-1] += amount
            array.CopyFrom(onnx.numpy_helper.from_array(values, array.name))
            saved(model, *given)

        monkeypatch.setattr(checking, "save", save)

    return with_what


def test_data_that_are_given_are_compared(path, spoil):
    """Of an embedding of many rows, some indices do not show the last one."""
    net = sequential(gluon.Embedding(20_000, 3), shape=(1, 8))
    spoil("weight", 1)
    mxsame.export_onnx(net, path, (1, 8))
    with pytest.raises(ValueError, match="but ONNX Runtime computes a different output"):
        mxsame.export_onnx(net, path, (1, 8), data=mx.nd.arange(19_992, 20_000).reshape((1, 8)))


def test_the_tolerance_follows_from_what_float32_costs_the_net(path, spoil):
    """Of the sine of large numbers float32 keeps few digits."""
    dense = gluon.Dense(8, in_units=50)
    net = Own(lambda F, x, dense: F.sin(dense(x) * 3000), dense)
    net.initialize(mx.init.Normal(1))
    mxsame.export_onnx(net, path, (4, 50))
    with pytest.raises(ValueError, match="but ONNX Runtime computes a different output"):
        mxsame.export_onnx(net, path, (4, 50), tolerance=1e-4)
    for each, amount in ((net, 0.3), (dense, 0.01)):
        spoil("bias", amount)
        with pytest.raises(ValueError, match="but ONNX Runtime computes a different output"):
            mxsame.export_onnx(each, path, (4, 50))


@pytest.mark.parametrize("kind", ["sigmoid", "small numbers", "two inputs"])
def test_the_default_tolerance_notices_small_errors(kind, path, spoil):
    """The error of ONNX Runtime's sigmoid, most of a saturated one, and nothing else that is small; two inputs have
    different data."""
    dense = gluon.Dense(2, in_units=3, bias_initializer=mx.init.Constant(-14))
    function, amount = {
        "sigmoid": (lambda F, x, dense: F.expand_dims(F.sigmoid(dense(x)), axis=2), 0.3),
        "small numbers": (lambda F, x, dense: dense(x) * 1e-8, 1e-2),
        "two inputs": (lambda F, x, y, dense: dense(x) - dense(y), 1),
    }[kind]
    net, shape = Own(function, dense), [(4, 3), (4, 3)] if kind == "two inputs" else (4, 3)
    net.initialize(mx.init.Normal(1))
    mxsame.export_onnx(net, path, shape)
    spoil("weight" if kind == "two inputs" else "bias", amount)
    with pytest.raises(ValueError, match=r"but ONNX Runtime computes a different output.*; tolerance= allows more"):
        mxsame.export_onnx(net, path, shape)


def test_missing_packages(path, monkeypatch):
    net = downsampling()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.warns(NotCompared, match=r"onnxruntime is not installed; fix it with: .*'onnxruntime>=[^']*'$") as seen:
        assert mxsame.export_onnx(net, path, SHAPE).compared_by is None
    assert path.exists() and seen[0].filename == __file__
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"needs the package onnx \(.*\); fix it with: .* 'onnx>=[^']*' 'onnx[^']*'$"):
        mxsame.export_onnx(net, path, SHAPE)


def test_a_deployed_net(path):
    net = downsampling()
    deployed = mxsame.deploy(net, SHAPE)
    check(deployed, path, random(5, *SHAPE[1:]), shapes=[SHAPE])
    once = ("Relu", "MaxPool", "AveragePool", "ConvTranspose", "Slice")  # the last of channels that fill a block
    assert operators(path) == {"Conv": 4, **dict.fromkeys(once, 1)}
    check(chain(deployed, gluon.Activation("tanh")), path, random(*SHAPE))


@pytest.mark.parametrize("kind", ["deployed", "in another net", "of a file"])
def test_a_graph_of_one_size_is_not_exported_for_every_size(kind, tmp_path, path, monkeypatch):
    monkeypatch.setattr(checking, "compare", lambda *given: None)  # nor without onnxruntime
    net = downsampling()
    if kind == "of a file":
        net = running.from_files(net, tmp_path, SHAPE)
    else:
        net = mxsame.deploy(net, SHAPE)
        net = chain(net, gluon.Activation("tanh")) if kind == "in another net" else net
    with pytest.raises(ValueError, match=r"every size, .* received dynamic_size=True.* accepts only data of shape"):
        mxsame.export_onnx(net, path, SHAPE, dynamic_size=True)
    assert not path.exists()


def test_parameters_are_read_when_nothing_runs_any_more(tmp_path):
    """While a convolution arranges its weight in oneDNN's blocks, what is read is a mixture of two orders."""
    for number in range(6):
        net = sequential(*(gluon.Conv2D(256, 3, padding=1) for _ in range(6)), shape=(1, 256, 28, 28))
        net(mx.nd.zeros((4, 256, 28, 28)))  # still runs
        path = str(tmp_path / f"net{number}")
        mxsame.export(net, path)
        saved = mx.nd.load(f"{path}-0000.params")
        for name, parameter in net.collect_params().items():
            assert np.array_equal(saved[f"arg:{name}"].asnumpy(), parameter.data().asnumpy()), name


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_unknown_operators_are_named_with_the_way_to_them(path):
    net = Own(lambda F, x: F.gamma(F.contrib.fft(F.relu(x))))
    message = (
        r"export_onnx has no conversion for 2 operators: _contrib_fft, gamma; custom={'_contrib_fft': function of "
    )
    message += r"\(write, attributes, \*inputs\)} writes one\n"
    message += r"received .* _contrib_fft, \w*fft0 \(path: data -> \w*relu0 -> \w*fft0\)\n.* gamma, .*"
    with pytest.raises(ValueError, match=f"{message}$"):
        mxsame.export_onnx(net, path, (2, 8))
    loop = Own(lambda F, x: F.contrib.foreach(lambda each, states: (2 * each, states), x, [])[0])
    with pytest.raises(ValueError, match=r"the operator _foreach, .*\); unroll the loop"):
        mxsame.export_onnx(loop, path, (2, 8))


def quadratic(write, attributes, x):
    square = write("Mul", write("Mul", x, x), attributes["a"])
    return write("Add", write("Add", square, write("Mul", x, attributes["b"])), attributes["c"])


class Halves(gluon.HybridBlock):
    """The two halves of a matrix, the second one swished, by an operator of its own."""

    def hybrid_forward(self, F, x):
        first, second = F.split(x, num_outputs=2, axis=1)
        return F.contrib.quadratic(first, b=1, c=1) - 1, second * F.sigmoid(second)


def halves(write, block, x):
    first, second = write("Split", x, outputs=2, axis=1)
    return [first, write("Mul", write("Sigmoid", second), second)]


def test_custom(path):
    """Functions of the user's for an operator, and for a class of blocks, and with an operator of ONNX Runtime's
    own; each must be used, and its errors are raised as they are."""
    dense = gluon.Dense(6, in_units=4)
    net = Own(
        lambda F, x, dense, block: F.concat(*block(F.contrib.quadratic(dense(x), a=2, b=3, c=4))), dense, Halves()
    )
    net.initialize(mx.init.Normal(1))
    custom = {"_contrib_quadratic": quadratic, Halves: halves}
    check(net, path, random(2, 4), custom=custom)
    assert operators(path) == {"Gemm": 1, "Mul": 4, "Add": 2, "Split": 1, "Sigmoid": 1, "Concat": 1}
    check(Halves(), path, random(2, 4), custom={Halves: halves})
    of_two = Own(lambda F, x, y: x + y), path, random(2, 4), random(2, 4)
    check(*of_two, custom={Own: lambda write, block, x, y: write("Add", x, y)})
    alone = Own(lambda F, x: F.LeakyReLU(x, act_type="gelu"))
    check(
        alone, path, random(2, 4), custom={"LeakyReLU": lambda write, attributes, x: write("Gelu", x, domain=RUNTIMES)}
    )
    assert operators(path) == {"Gelu": 1}
    for given, error, message in (
        ({"_contrib_quadratic": lambda write, attributes, x: {}["config"]}, KeyError, "config"),
        (
            {"_contrib_quadratic": lambda write, attributes, x: 3},
            ValueError,
            "what write returns; received custom=3; in",
        ),
        (
            {"_contrib_quadratic": lambda write, attributes, x: write("Relu", x)},
            ValueError,
            "computes a different output",
        ),
        ({**custom, "gamma": quadratic}, ValueError, r"block class of the net; received custom=\['gamma'\]"),
        ({"_contrib_quadratic": Halves}, TypeError, r"to functions of \(write, attributes, \*inputs\), and"),
    ):
        with pytest.raises(error, match=message):
            mxsame.export_onnx(net, path, (2, 4), custom={**custom, **given})


def test_an_emitter_that_fails_is_an_error_of_mxsame(path, monkeypatch):
    monkeypatch.setitem(EMITTERS, "sin", Emitter(lambda w, node, x: {}["config"]))
    message = r"an error of mxsame, and not of net; received KeyError\('config'\) in the operator sin, .*relu0 -> "
    with pytest.raises(RuntimeError, match=message) as raised:
        mxsame.export_onnx(Own(lambda F, x: F.sin(F.relu(x))), path, (2, 8))
    assert type(raised.value.__cause__) is KeyError


@pytest.mark.parametrize(
    ("net", "indices"),
    [
        (gluon.Embedding(7, 3), (2, 5)),
        (gluon.Embedding(7, 3), mx.nd.zeros((2, 5), dtype="int32")),
        (Own(lambda F, x, embedding: embedding(indices_from_end(F, x, 7, True)), gluon.Embedding(7, 3)), (2, 5)),
    ],
)
def test_indices_are_sampled_from_those_that_there_are(net, indices, path, monkeypatch):
    seen, run = [], comparing._outputs
    monkeypatch.setattr(comparing, "_outputs", lambda *args: seen.append(args[2]["data"]) or run(*args))
    mxsame.export_onnx(trained(net, (2, 5)), path, indices)
    assert all(set(each.ravel()) <= set(range(7)) and len(set(each.ravel())) > 3 for each in seen)


BAD = {
    "net": ({"net": 3}, TypeError, "net must be a gluon.HybridBlock"),
    "uninitialized": ({"net": mxsame.nn.Conv2D(3, 3)}, ValueError, "net must have initialized parameters"),
    "folder": ({"path": "/nowhere/net.onnx"}, ValueError, "path must be in a folder that exists"),
    "a folder": ({"path": "."}, ValueError, "path must be the name of a file to write, and not a folder"),
    "another ending": ({"path": "net"}, ValueError, "path must end in .onnx; received path='.*net'"),
    "channels": ({"input_shape": (2, 4, 8, 8)}, ValueError, "4"),
    "opset": ({"opset": 12}, ValueError, "opset must be an integer >= 13"),
    "newer opset": ({"opset": 999}, ValueError, "opset must be"),
    "dynamic_batch": ({"dynamic_batch": 1}, TypeError, "dynamic_batch must be"),
    "dynamic_size": ({"dynamic_size": "yes"}, TypeError, "dynamic_size must be"),
    "fold": ({"fold": None}, TypeError, "fold must be"),
    "names": ({"input_names": "data"}, TypeError, "input_names must be a sequence of strings"),
    "same names": ({"input_names": ["output"]}, ValueError, "output_names must be one name, different from all others"),
    "data": ({"data": np.zeros((2, 3, 8, 9))}, ValueError, r"data must be arrays of input_shape; .*\(2, 3, 8, 9\)\]"),
    "tolerance": ({"tolerance": -1}, ValueError, "tolerance must be a number >= 0; received tolerance=-1"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input(path, arguments, error, message):
    net = mxsame.nn.Conv2D(4, 3, in_channels=3)
    net.initialize()
    with pytest.raises(error, match=message):
        mxsame.export_onnx(**{"net": net, "path": path, "input_shape": (2, 3, 8, 8), **arguments})
    assert not path.exists()


# ---- zeros before a layer, as of ZeroPadding2D -----------------------------------------------------------------------


def zeros(*widths):
    return Own(lambda F, x: F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, *widths), constant_value=0))


def both(F, x, conv):
    padded = F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1), constant_value=0)
    return F.concat(conv(padded), F.cos(padded), dim=1)


conv, ahead = mxsame.nn.Conv2D(4, 3, padding=1, in_channels=3), zeros(0, 1, 2, 1)
relu, image = gluon.Activation("relu"), random(2, 3, 9, 12)
POOLS = {"gluon": gluon.MaxPool2D(3, 2), "mxsame": mxsame.nn.MaxPool2D(3, 2, "valid")}
NEVER_NEGATIVE = {
    "relu": relu,
    "sigmoid": gluon.Activation("sigmoid"),
    "relu6": Own(lambda F, x: F.Activation(F.minimum(x, 6), act_type="relu")),
    "clip": Own(lambda F, x: F.clip(x, 0, 6)),
}
MAY_LOSE = {"tanh": gluon.Activation("tanh"), "any": Own(lambda F, x: x), "clip": Own(lambda F, x: F.clip(x, -1, 6))}
BEFORE = {  # what follows zeros -> (net, data, how many Pads stay, dynamic sizes)
    **{f"{pool} after {name}, which is never negative": (chain(each, ahead, POOLS[pool]), image, 0, [False])
       for pool in POOLS for name, each in NEVER_NEGATIVE.items()},
    **{f"{pool} after {name}, that they may win": (chain(each, ahead, POOLS[pool]), -np.abs(image), 1, [False])
       for pool in POOLS for name, each in MAY_LOSE.items()},
    "a maximum with SAME, which ONNX Runtime must not merge": (
        chain(relu, zeros(2, 2, 2, 2), mxsame.nn.MaxPool2D(4, 1)), image, 1, [False]),
    "a maximum of windows of zeros": (chain(relu, zeros(3, 3, 0, 0), gluon.MaxPool2D(2, 1)), image, 1, [False]),
    "two layers": (chain(Own(both, conv)), image, 1, [False]),
    "an average": (chain(ahead, mxsame.nn.AvgPool2D(3, 2, "valid")), 1 + image, 1, [False]),
    "an average with ceil_mode": (chain(ahead, gluon.AvgPool2D(3, 2, ceil_mode=True)), 1 + image, 1, [False]),
    "a valid convolution": (chain(ahead, mxsame.nn.Conv2D(4, 3, strides=2, padding="valid")), image, 0, [False, True]),
    "one with SAME, whose pads follow the padded size": (
        chain(ahead, mxsame.nn.Conv2D(4, 3, strides=2)), image, 1, [False, True]),
}  # fmt: skip


@pytest.mark.parametrize("case", BEFORE)
def test_zeros_become_pads_where_they_change_nothing(case, path):
    net, array, stay, sizes = BEFORE[case]
    net.initialize(mx.init.Normal(0.5))
    net(mx.nd.array(array))
    for dynamic_size in sizes:
        check(net, path, array, dynamic_size=dynamic_size)
        assert operators(path)["Pad"] == stay
        assert not {"Slice", "Min"} & operators(path).keys()


WINDOW = (3, 2, ((0, 1), (1, 0)))


@pytest.mark.parametrize("layer", [mxsame.nn.Conv2D(4, *WINDOW, in_channels=3), mxsame.nn.MaxPool2D(*WINDOW)])
def test_pads_that_no_window_reads_are_kept_for_other_sizes(layer, path):
    layer.initialize(mx.init.Normal(0.5))
    check(layer, path, random(2, 3, 9, 8), dynamic_size=True)
    other = random(1, 3, 8, 9)
    assert difference(run(path, other)[0], outputs(layer, other)[0]) < 1e-5


# ---- operators that are alike for most data only ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["__ge__", "__le__", "__gt__", "__lt__", "__eq__", "__ne__"])
def test_a_comparison_with_nan_is_that_of_mxnet(name, path):
    x = np.array([[np.nan, 1, 2], [0, np.nan, 3]], "float32")
    y = np.array([[np.nan, 2, 1], [0, 1, np.nan]], "float32")
    check(Own(lambda F, x, y: getattr(x, name)(y)), path, x, y)
    check(Own(lambda F, x: getattr(x, name)(1.0)), path, x)


@pytest.mark.parametrize("name", ["log1p", "expm1"])
@pytest.mark.parametrize("scale", [1e-4, 0.9, 10])
def test_no_digits_are_lost_next_to_zero(name, scale, path):
    x = np.abs(random(3, 50)) * np.float32(scale)
    if name == "expm1":
        x[0] *= -1
    (got,) = exported(Own(lambda F, x: getattr(F, name)(x)), path, x)
    want = getattr(np, name)(x.astype("float64"))
    assert (np.abs(got - want) / np.abs(want)).max() < 1e-5


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_infinity_stays(name, path):
    x = np.array([[np.inf, 0]], "float32")
    assert exported(Own(lambda F, x: getattr(F, name)(x)), path, x)[0].tolist() == getattr(np, name)(x).tolist()


@pytest.mark.parametrize("name", ["round", "rint", "fix", "trunc"])
def test_halves_are_rounded_as_by_mxnet(name, path):
    x = np.array([[-2.5, -1.5, -0.5, 0.49999997, 0.5, 1.5, 2.5, 8388609.0, np.inf, -np.inf]], "float32")
    net = Own(lambda F, x: getattr(F, name)(x))
    assert exported(net, path, x)[0].tolist() == net(mx.nd.array(x)).asnumpy().tolist()


# ---- nets that are not mxsame's --------------------------------------------------------------------------------------


def test_files_of_mxsame_lose_their_slices(tmp_path, path):
    layers = mxsame.nn.Conv2D(8, 3, strides=2), gluon.Activation("relu"), mxsame.nn.Conv2D(8, 4)
    net = sequential(*layers, mxsame.nn.Conv2DTranspose(4, 3, strides=2))
    for strategy in ("slice", "pad"):
        with mxsame.plan.use_strategy(strategy):
            loaded = running.from_files(net, tmp_path, SHAPE)
        check(loaded, path, random(*SHAPE))
        assert not MOVING & operators(path).keys(), strategy


rnn = mx.gluon.rnn
RECURRENT = {"LSTM": rnn.LSTM, "GRU": rnn.GRU, "RNN": functools.partial(rnn.RNN, activation="tanh")}


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(("layers", "both_ways", "layout"), [(1, False, "TNC"), (2, True, "NTC")])
@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_layers(kind, layers, both_ways, layout, fold, path):
    """States that start at 0 are left out of the file, and any batch is served."""
    layer = RECURRENT[kind](5, layers, bidirectional=both_ways, layout=layout, input_size=3)
    data = random(4, 6, 3) if layout == "NTC" else random(2, 5, 3)
    check(sequential(layer, shape=(2, 6, 3)), path, data, shapes=[(2, 6, 3)], fold=fold)
    model = onnx.load(str(path))
    assert operators(path)[kind] == layers and "Concat" not in operators(path)
    assert {len(array.dims) for array in model.graph.initializer} <= {1, 2, 3} and len(model.graph.input) == 1


def test_np_arrays(path):
    with mx.util.np_shape(True), mx.util.np_array(True):
        net = gluon.HybridSequential()
        net.add(mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3), gluon.BatchNorm(in_channels=8), gluon.Dense(3))
        net.initialize()
        data = random(*SHAPE)
        want = net(mx.np.array(data)).asnumpy()
        (got,) = exported(net, path, data)
    assert difference(got, want) < 1e-5


ZOO = ["alexnet", "densenet121", "inceptionv3", "mobilenet1.0", "mobilenetv2_1.0", "resnet18_v1", "resnet18_v2",
       "squeezenet1.0", "vgg11_bn"]  # fmt: skip
HEAVY = [pytest.param(name, marks=pytest.mark.heavy) for name in of_the_day(ZOO, 3)]


@pytest.mark.parametrize("name", ["mobilenetv2_0.25", *HEAVY])
def test_model_zoo(name, path):
    net = mx.gluon.model_zoo.vision.get_model(name)
    net.initialize(mx.init.MSRAPrelu())
    size = 299 if name == "inceptionv3" else 224
    data = random(1, 3, size, size)
    net(mx.nd.array(data))
    check(net, path, data)
    assert not {"Pad", "Slice", "Transpose"} & operators(path).keys()


# ---- networks of Keras files -----------------------------------------------------------------------------------------

REFUSED = ("attention", "recurrent")  # by from_keras
NETWORKS = [each for each in keras_recording.whole_models() if each[1] not in REFUSED]


@pytest.mark.filterwarnings("ignore:layer .* does no")
@pytest.mark.parametrize(("keras", "network"), NETWORKS)
def test_keras_network(recorded, keras, network, path):
    """Against what Keras gave when the file was recorded."""
    pytest.importorskip("h5py", reason="h5py is not installed: pip install '.[keras]'")
    folder, arrays = recorded[keras]
    files = [folder / f"{network}{ending}" for ending in (".keras", ".h5")]
    net = mxsame.from_keras(next(file for file in files if file.exists()))
    given, want = (keras_recording.numbered(arrays, f"{network}/{what}") for what in ("input", "output"))
    got = exported(net, path, *(array.astype("float32") for array in given))
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert difference(one, other) < 1e-5
