"""Layers on the table of cases, and all that Gluon does with a block: deferred shapes, files, contexts, training."""

import functools

import cases
import numpy as np
import oracle
import pytest
import running
from cases import CASES, OPS, Case
from running import LAYER_MODES, PARAMETERS, assert_equal, by_name, expected, initialized, layer, sequential

import mxsame
from mxsame._mxnet import mx

gluon = mx.gluon
WITH_PARAMETERS = [op for op in OPS if op not in running.POOLS]
ONE_EACH = [next(case for case in CASES if (case.op, case.rank) == (op, rank)) for op in OPS for rank in (1, 2, 3)]
OF_GLUON = [("Conv", ""), ("Conv", "Transpose"), ("MaxPool", ""), ("AvgPool", "")]
CONVOLUTIONS_ONE_EACH = [case for case in ONE_EACH if case.op in WITH_PARAMETERS]
WAYS = {"imperative": lambda net: None, "hybridized": lambda net: net.hybridize(), "mxsame": mxsame.hybridize}
DILATED = Case("conv_transpose", (5, 6), (3, 3), (2, 2), dilation=(2, 2), groups=2, in_channels=4, channels=6)


def built(case, dtype="float32", **more):
    """The layer with the arrays of the case."""
    block = layer(case, **more)
    running.set_parameters(block, expected(case)[0], dtype)
    return block


def check(block, case, dtype="float32", net=None, size=None):
    """Output and gradients twice: the first call of a graph is not like the others."""
    arrays, out, out_grad, gradients = expected(case, size)
    for _ in range(2):
        got, got_gradients = running.apply(block, arrays, out_grad, dtype, net)
        assert_equal(got, out, dtype)
        assert_equal(got_gradients, gradients, dtype)


# ---- deferred initialization -----------------------------------------------------------------------------------------


def set_after_first_call(block, arrays):
    for name, array in arrays.items():
        if name in PARAMETERS:
            parameter = getattr(block, name)
            assert parameter.shape == array.shape
            parameter.set_data(mx.nd.array(array))


DEFERRED = [
    (case, mode)
    for case in (*CONVOLUTIONS_ONE_EACH, *[case for case in CASES if case.groups > 1][:6], DILATED)
    for mode in (*LAYER_MODES, *["in a hybridized parent"] * (case.op not in ("depthwise_conv", "separable_conv")))
]  # a graph needs the number of groups, as the next test has it


@pytest.mark.parametrize(("case", "mode"), DEFERRED, ids=[f"{case.name}-{mode}" for case, mode in DEFERRED])
def test_deferred_in_channels(case, mode):
    block = layer(case, in_channels=False)
    net = block if mode in LAYER_MODES else sequential(block)
    net.initialize()
    LAYER_MODES.get(mode, gluon.HybridBlock.hybridize)(net)
    arrays = expected(case)[0]
    with pytest.raises(gluon.parameter.DeferredInitializationError):
        block.weight.data() if hasattr(block, "weight") else block.depthwise_weight.data()
    assert net(mx.nd.array(arrays["data"])).shape == expected(case)[1].shape
    set_after_first_call(block, arrays)
    check(block, case, net=net)


@pytest.mark.parametrize("op", ["depthwise_conv", "separable_conv"])
def test_depthwise_in_a_hybridized_parent_takes_its_channels_from_the_layer_before(op):
    """A graph needs the number of groups: the channels of the convolution before batch norm, activation, pooling."""
    case = Case(op, (9, 8), (3, 2), (2, 1), in_channels=4, depth_multiplier=2, channels=3)
    block = layer(case, in_channels=False)
    first = mxsame.nn.Conv2D(4, 3, strides=2)
    between = gluon.nn.BatchNorm(), gluon.nn.Activation("relu"), mxsame.nn.MaxPool2D(2)
    net = initialized(sequential(first, *between, block))
    net.hybridize()
    data = mx.nd.random.normal(shape=(2, 3, 33, 30))
    out = net(data)
    hidden = data
    for child in list(net._children.values())[:-1]:
        hidden = child(hidden)
    weights = {name: getattr(block, name).data().asnumpy() for name in PARAMETERS if hasattr(block, name)}
    assert_equal(out, oracle.forward(case, {"data": hidden.asnumpy(), **weights}))


# ---- parameters: names, files, sharing, initial values ---------------------------------------------------------------


@by_name(CONVOLUTIONS_ONE_EACH)
def test_parameters_are_saved_loaded_and_shared(case, tmp_path):
    block, file = built(case), str(tmp_path / "layer.params")
    block.save_parameters(file)
    for in_channels in (True, False):
        loaded = layer(case, in_channels=in_channels)
        loaded.load_parameters(file)
        loaded.hybridize(active=in_channels)
        check(loaded, case)
    second, third = layer(case, params=block.params), layer(case, params=block.collect_params())
    running.in_one_graph(third)
    for shared in (second, third):
        check(shared, case)
    assert all(getattr(second, name) is each for name, each in block._reg_params.items() if each is not None)


def test_names_of_parameters_without_a_model_in_gluon():
    depthwise, separable = mxsame.nn.DepthwiseConv2D(3, prefix="d_"), mxsame.nn.SeparableConv2D(4, 3, prefix="s_")
    assert list(depthwise.collect_params()) == ["d_weight", "d_bias"]
    assert list(separable.collect_params()) == ["s_depthwise_weight", "s_pointwise_weight", "s_bias"]
    assert list(mxsame.nn.DepthwiseConv1D(3, use_bias=False, prefix="d_").collect_params()) == ["d_weight"]


GLUON = [  # padding symmetric and explicit: the same operator in both
    Case("conv", (7, 8), (3, 2), (2, 1), ((1, 1), (2, 2))),
    Case("conv", (9,), (3,), (2,), ((1, 1),), dilation=(2,)),
    Case("conv", (9, 8), (3, 3), padding=((1, 1), (0, 0)), groups=2, in_channels=4),
    Case("conv", (5, 6, 4), (3, 2, 2), padding=((1, 1), (0, 0), (1, 1)), use_bias=False),
    Case("conv_transpose", (4, 5), (3, 4), (2, 3), ((1, 1), (0, 0)), output_padding=(1, 0)),
    Case("conv_transpose", (5,), (4,), (2,), ((1, 1),)),
    Case("conv_transpose", (4, 5), (3, 3), padding=((1, 1), (1, 1)), groups=2, in_channels=4),
    Case("conv_transpose", (3, 2, 4), (3, 2, 3), (2, 1, 2), ((1, 1), (0, 0), (1, 1))),
]


def gluon_arguments(case):
    """Symmetric pads as gluon.nn writes them."""
    given = {"padding": tuple(low for low, _ in case.padding)}
    if case.op == "conv_transpose":
        given["output_padding"] = case.output_padding or (0,) * case.rank
    return given


@by_name(GLUON)
def test_a_file_of_gluon_loads(case, tmp_path):
    file = str(tmp_path / "gluon.params")
    theirs = layer(case, module=gluon.nn, **gluon_arguments(case))
    theirs.initialize(mx.init.Normal(1))
    theirs.save_parameters(file)
    data = mx.nd.array(cases.arrays(case)["data"])
    wanted = theirs(data).asnumpy()
    for more in ({}, gluon_arguments(case)):  # our spelling of pads, and theirs
        for in_channels in (True, False):
            ours = layer(case, in_channels=in_channels, **more)
            ours.load_parameters(file)
            assert_equal(ours(data), wanted)
    assert_equal(wanted, oracle.forward(case, {**cases.arrays(case), **arrays_of(theirs)}))


def arrays_of(block):
    return {name: parameter.data().asnumpy() for name, parameter in block._reg_params.items() if parameter is not None}


@pytest.mark.parametrize("in_channels", [0, 3])
@pytest.mark.parametrize("kind", ["Conv2D", "Conv2DTranspose", "DepthwiseConv2D", "SeparableConv2D"])
def test_initializers(kind, in_channels):
    make, names = getattr(mxsame.nn, kind), ["bias", "weight"]
    if kind == "SeparableConv2D":
        names = ["bias", "depthwise_weight", "pointwise_weight"]
    arguments = [name.replace("_weight", "") + "_initializer" for name in names]
    given = {argument: mx.init.Constant(value) for value, argument in enumerate(arguments, 2)}
    sizes = {"kernel_size": 3, "in_channels": in_channels, **({} if kind.startswith("Depth") else {"channels": 4})}
    for block, values in ((make(**sizes, **given), range(2, 5)), (make(**sizes), (0, 9, 9))):
        block.initialize(mx.init.Constant(9))
        block(mx.nd.zeros((1, 3, 5, 6)))
        for name, value in zip(names, values):
            assert set(getattr(block, name).data().asnumpy().ravel()) == {value}


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "softrelu", "softsign"])
@pytest.mark.parametrize("op", WITH_PARAMETERS)
def test_activation(op, activation):
    arrays, out, _, _ = expected(Case(op, (7, 8), (3, 2), (2, 1)))
    wanted = mx.nd.Activation(mx.nd.array(out), activation).asnumpy()
    for turn in LAYER_MODES.values():
        block = built(Case(op, (7, 8), (3, 2), (2, 1)), activation=activation.upper())
        turn(block)
        assert_equal(block(mx.nd.array(arrays["data"])), wanted)
    assert sorted(block.collect_params()) == sorted(f"{block.prefix}{name}" for name in arrays if name != "data")


# ---- what a user looks at --------------------------------------------------------------------------------------------


def test_repr():
    """What the layers' own examples do not show."""
    layer = mxsame.nn.Conv3D(8, 3, 1, 0, 2, layout="NDHWC", use_bias=False, activation="relu")
    padding = "((0, 0), (0, 0), (0, 0)), dilation=(2, 2, 2)"
    rest = "layout=NDHWC, use_bias=False, Activation(relu)"
    assert repr(layer) == f"Conv3D(None -> 8, kernel_size=(3, 3, 3), strides=(1, 1, 1), padding={padding}, {rest})"


# ---- types and devices -----------------------------------------------------------------------------------------------


# ---- mx.np -----------------------------------------------------------------------------------------------------------

NUMPY_MODE = """
from mxsame._mxnet import mx
mx.npx.set_np()
import cases
from ways import check
import mxsame

print(sum(check(case, way) for case in cases.CASES[::7] for way in ("layer", "net.hybridize()")))
net = mx.gluon.nn.HybridSequential()
net.add(mxsame.nn.Conv2D(4, 3, 2), mxsame.nn.DepthwiseConv2D(3), mxsame.nn.Conv2DTranspose(4, 3, 2))
net.add(mx.gluon.nn.BatchNorm(), mxsame.nn.MaxPool2D(2), mx.gluon.nn.Dense(2))
net.initialize()
for hybridized in (True, False):  # at first, channels are deferred
    net.hybridize(hybridized)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    with mx.autograd.record():
        out = net(mx.np.ones((2, 3, 9, 8)))
        loss = (out ** 2).sum()
    loss.backward()
    trainer.step(2)
    print(type(out) is mx.np.ndarray)
"""


def test_numpy_mode():
    """`npx.set_np()` is for a whole process: some cases in one of their own."""
    count, *are_ndarrays = running.run_python(NUMPY_MODE).split()
    assert int(count) > len(CASES) // 2
    assert are_ndarrays == ["True", "True"]


# ---- what oneDNN cannot do -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_channels", [8, 16, 64])
def test_a_transposed_layer_with_one_output_channel_trains(in_channels):
    """With MXNet's own Deconvolution, oneDNN "could not create a primitive" for its trained weight. In float64, where
    nothing is in blocks, there is a second opinion."""
    random = np.random.RandomState(0)
    arrays = [random.randn(2, channels, *size) for channels, size in ((2, (5, 6)), (1, (10, 12)))]

    def losses(hybridize, dtype="float32"):
        mx.random.seed(3)
        first = mxsame.nn.Conv2D(in_channels, 3, in_channels=2)
        net = sequential(first, mxsame.nn.Conv2DTranspose(1, 3, strides=2, in_channels=in_channels))
        initialized(net, 0.2, dtype)
        hybridize(net)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        data, target = (mx.nd.array(array, dtype=dtype) for array in arrays)
        for _ in range(3):
            with mx.autograd.record():
                loss = ((net(data) - target) ** 2).mean()
            loss.backward()
            trainer.step(1)
            yield loss.asscalar()
            yield ((net(data) - target) ** 2).mean().asscalar()  # the first inference after training failed as well

    want = list(losses(WAYS["imperative"], "float64"))
    assert want[-1] < want[0]
    for way in WAYS.values():
        np.testing.assert_allclose(list(losses(way)), want, rtol=1e-4)


@pytest.mark.parametrize("way", ["imperative", "mxsame"])
@pytest.mark.parametrize("size, kernel, strides", [((13,), 3, 2), ((9, 12), 2, 2), ((8, 7), 3, 1), ((5, 6, 7), 2, 2)])
def test_the_gradient_of_a_maximum_is_right_at_inference_too(size, kernel, strides, way):
    """A saliency map: recorded, but nothing is trained. oneDNN keeps nothing for the backward pass then."""
    rank = len(size)
    case = Case("max_pool", size, (kernel,) * rank, (strides,) * rank, in_channels=16)
    arrays, _, out_grad, gradients = expected(case)
    pool = layer(case)
    WAYS[way](pool)
    data = mx.nd.array(arrays["data"])
    for train_mode in (False, True, False):
        running.recorded(pool, data, mx.nd.array(out_grad), train_mode)
        assert_equal({"data": data.grad}, {"data": gradients["data"]})
    wide = data.astype("float64")
    assert running.recorded(pool, wide, mx.nd.array(out_grad, dtype="float64"), train_mode=False).dtype == np.float64
    assert_equal({"data": wide.grad}, {"data": gradients["data"]}, "float64")


@pytest.mark.parametrize("way", ["imperative", "mxsame"])
def test_inference_of_one_output_channel_runs_mxnets_own_operator(way, monkeypatch):
    """The convolution of the dilated input is many times slower, and only training needs it."""
    layer = mxsame.nn.Conv2DTranspose(1, 4, strides=2, in_channels=16)
    layer.initialize()
    WAYS[way](layer)
    data = mx.nd.ones((1, 16, 3, 4))
    called = running.seen_calls(monkeypatch, "Deconvolution", "Convolution")
    layer(data)
    with mx.autograd.record():
        layer(data)
    if way == "imperative":
        assert called == ["Deconvolution", "Convolution"]
    else:
        graphs = [running.operators(graph.symbol) for graph in running.graphs_of(layer)]
        assert ["Deconvolution" in names for names in graphs] == [True, False]


def test_a_lone_layer_that_was_cast_before_its_first_input_is_hybridized():
    """Gluon makes the variable of a weight once, before its shape is known."""
    layer = initialized(mxsame.nn.Conv2DTranspose(8, 3, 2, groups=2, dilation=2), dtype="float64")
    data = running.normal(1, 4, 5, 5, dtype="float64")
    want = layer(data).asnumpy()
    running.in_one_graph(layer)
    np.testing.assert_allclose(layer(data).asnumpy(), want, atol=1e-12)


@pytest.mark.parametrize("way", [*WAYS, "saliency"])
def test_a_transposed_convolution_of_stride_3_takes_one_size_after_another(way):
    """oneDNN leaves such a weight in an order that follows from the first size."""
    layers = mxsame.nn.Conv2D(16, 3, strides=3), mxsame.nn.Conv2DTranspose(16, (1, 2), strides=3, in_channels=16)
    net = initialized(sequential(*layers))
    data = [mx.nd.random.uniform(shape=(1, 3, *size)) for size in ((12, 12), (51, 48), (12, 12))]
    with mxsame.plan.use_strategy("dilate"):
        wanted = [net(array).asnumpy() for array in data]
    run = functools.partial(running.recorded, net, train_mode=False) if way == "saliency" else WAYS[way](net) or net
    for array, out in zip(data, wanted):
        np.testing.assert_allclose(run(array).asnumpy(), out, rtol=1e-4, atol=1e-6)
        assert array.grad is None or np.isfinite(array.grad.asnumpy()).all()


@pytest.mark.parametrize("device", ["cpu_shared", "cpu_pinned"])
@pytest.mark.parametrize("way", [*WAYS, "deployed"])
def test_data_in_shared_memory(way, device):
    """As the workers of a DataLoader give it."""
    shared = mx.nd.random.uniform(shape=(1, 4, 6, 5)).as_in_context(mx.Context(device, 0))
    for block in (mxsame.nn.Conv2D(3, 3, strides=2), mxsame.nn.DepthwiseConv2D(3), mxsame.nn.MaxPool2D(3, 2)):
        block.initialize()
        wanted = block(shared.as_in_context(mx.cpu())).asnumpy()
        run = mxsame.deploy(block, shared.shape) if way == "deployed" else WAYS[way](block) or block
        assert run(shared).context == mx.cpu()
        assert_equal(run(shared), wanted)


def test_a_layer_derived_by_a_user_names_its_arguments_as_it_likes():
    class Strided(mxsame.nn.Conv2D):
        def __init__(self, filters, stride, name=None):
            super().__init__(filters, 3, strides=stride, prefix=name)

    assert repr(Strided(8, stride=2, name="a")) == repr(mxsame.nn.Conv2D(8, 3, 2)).replace("Conv2D", "Strided")


@pytest.mark.parametrize("name", [f"{kind}{rank}D{end}" for rank in (1, 2, 3) for kind, end in OF_GLUON])
def test_a_layer_is_one_of_gluons(name):
    arguments = (4, 3) if "Conv" in name else (3,)
    block, theirs = (getattr(module, name)(*arguments, strides=2, prefix="a_") for module in (mxsame.nn, gluon.nn))
    assert isinstance(block, type(theirs)) and list(block.collect_params()) == list(theirs.collect_params())
    for argument, value in block._kwargs.items():
        assert value == theirs._kwargs[argument]
    with pytest.raises(
        KeyError, match=r"pad is not an argument of this layer, or depends on .* received padding='same'"
    ):
        block._kwargs["pad"]
    assert getattr(mxsame.nn, name)(*arguments, padding=1)._kwargs["pad"] == (1,) * block.num_spatial_dims


@pytest.mark.parametrize("way", ["imperative", "mxsame"])
def test_strides_and_dilation_are_written_as_in_gluon(way):
    data = mx.nd.random.uniform(shape=(1, 2, 9, 8))
    block = initialized(mxsame.nn.Conv2D(3, 3, strides=2, in_channels=2))
    WAYS[way](block)
    block(data)
    block._kwargs["stride"], block._kwargs["dilate"] = (1, 1), (2, 2)
    wanted = mxsame.ops.conv(data, block.weight.data(), block.bias.data(), dilation=2)
    assert_equal(block(data).asnumpy(), wanted.asnumpy(), "float32")
    for name, value in (("pad", (1, 1)), ("kernel", (5, 5)), ("adj", (1, 1))):
        with pytest.raises(TypeError, match=f"only stride, dilate and num_filter .*can be set; received {name}="):
            block._kwargs[name] = value
    with pytest.raises(ValueError, match="strides must be an integer or a sequence of 2"):
        block._kwargs["stride"] = (1,)


def test_channels_are_written_as_in_gluon():
    """By who prunes a network and gives its parameters other shapes."""
    block = mxsame.nn.Conv2D(8, 3, in_channels=2)
    block._kwargs["num_filter"] = 3
    block.weight._shape, block.bias._shape = (3, 2, 3, 3), (3,)
    block.initialize()
    block.hybridize()
    assert block(mx.nd.zeros((1, 2, 9, 8))).shape == (1, 3, 9, 8)
