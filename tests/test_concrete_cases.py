"""Uses that must keep working, each by its name: values against recorded Keras, recorded TensorFlow and the oracle."""

from __future__ import annotations

import functools
import json

import cases
import numpy as np
import oracle
import pytest
from cases import BY_NAME, CONCRETE, Case
from golden import make
from running import (
    LAYER_MODES,
    apply,
    as_nd,
    assert_equal,
    by_name,
    evaluate,
    expected,
    fits_one_graph,
    imperative,
    layer,
    operate,
    set_parameters,
)

import mxsame
from mxsame._mxnet import mx
from mxsame.demo import networks, recording

gluon = mx.gluon
GOLDEN = make.load()


def network(name):
    return next(network for network in networks.NETWORKS if network.name == name)


def counted(net):
    return sum(int(np.prod(parameter.shape)) for parameter in net.collect_params().values())


def sequential(*blocks):
    net = gluon.nn.HybridSequential()
    net.add(*blocks)
    return net


# ---- what TensorFlow and Keras recorded ------------------------------------------------------------------------------


def test_the_goldens_are_of_these_inputs():
    for case in cases.IN_TENSORFLOW:
        assert make.checksum(case, tuple(GOLDEN[f"{case.name}/shape"])) == GOLDEN[f"{case.name}/checksum"], case.name


@by_name(cases.IN_TENSORFLOW)
def test_recorded_tensorflow(case):
    """No oracle between: mxsame against what TensorFlow 2.13.1 gave, forward and, where it was right, gradients."""
    arrays = cases.arrays(case)
    out_grad = cases.output_gradient(case, tuple(GOLDEN[f"{case.name}/shape"]))
    out, gradients = imperative(functools.partial(operate, case), as_nd(arrays), out_grad)
    assert out.shape == tuple(GOLDEN[f"{case.name}/shape"])
    assert_equal(make.sample(out), GOLDEN[f"{case.name}/forward"])
    for name, gradient in gradients.items():
        if f"{case.name}/gradient/{name}" in GOLDEN:
            assert_equal(make.sample(gradient), GOLDEN[f"{case.name}/gradient/{name}"], what=name)


@pytest.mark.parametrize("mode", LAYER_MODES)
@by_name([case for case in CONCRETE if f"keras/{case.name}/shape" in GOLDEN])
def test_recorded_keras_layers(case, mode):
    block = layer(case)
    arrays = cases.arrays(case)
    set_parameters(block, arrays)
    LAYER_MODES[mode](block)
    out, _ = apply(block, arrays)
    assert out.shape == tuple(GOLDEN[f"keras/{case.name}/shape"])
    assert_equal(make.sample(out), GOLDEN[f"keras/{case.name}/output"])
    assert counted(block) == GOLDEN[f"keras/{case.name}/parameters"]


# ---- pooling with SAME on Symbols ------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("pool_size", [1, 2, 3, 4, 5])
def test_pooling_same_on_symbols_for_a_keras_backend(op, pool_size, stride):
    """MXNet has VALID and FULL only; odd and even windows, any stride, one graph for all sizes, and one for each."""
    case = Case(op, (9, 8), (pool_size,) * 2, (stride,) * 2)
    data = mx.sym.var("data")
    unknown = operate(case, {"data": data})
    for size in [(7, 8), (8, 9), (9, 10), (12, 11), (2, 5), (1, 1)]:
        arrays, out, out_grad, gradients = expected(case, size)
        static = operate(case, {"data": data}, input_size=size)
        for symbol in (unknown, static) if fits_one_graph(case, size) else (static,):
            got, got_gradients = evaluate(symbol, as_nd(arrays), out_grad)
            assert_equal(got, out, what=f"size {size}")
            assert_equal(got_gradients, gradients, what=f"size {size}")


# ---- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["concrete-odd-kernel-dilation-2", "concrete-odd-kernel-dilation-3"])
def test_odd_kernels_with_dilation_and_stride_1(name):
    """pad d(k-1)/2, MXNet's own: same size out, no copy and no crop."""
    case = BY_NAME[name]
    arrays, out, out_grad, gradients = expected(case)
    assert out.shape[2:] == case.size
    got, got_gradients = imperative(functools.partial(operate, case), as_nd(arrays), out_grad)
    assert_equal(got, out)
    assert_equal(got_gradients, gradients)
    symbol = operate(case, {name: mx.sym.var(name, shape=array.shape) for name, array in arrays.items()})
    nodes = [node for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"]
    pad = case.dilation[0] * (case.kernel_size[0] - 1) // 2
    assert [(node["op"], node["attrs"]["pad"]) for node in nodes] == [("Convolution", str((pad, pad)))]


@pytest.mark.parametrize("k", [2, 4])
def test_even_kernels_with_stride_1(k):
    """The recipe from the forums: pad k//2 on both sides, drop the first row and column."""
    case = BY_NAME[f"concrete-even-kernel-{k}-stride-1"]
    arrays, out, _, _ = expected(case)
    nd = as_nd(arrays)
    assert_equal(operate(case, nd), out)
    recipe = mx.nd.Convolution(**nd, kernel=(k, k), pad=(k // 2, k // 2), num_filter=case.channels)[:, :, 1:, 1:]
    assert_equal(operate(case, nd), recipe.asnumpy())
    assert_equal(make.sample(operate(case, nd).asnumpy()), GOLDEN[f"{case.name}/forward"])


def test_7x7_stride_2_on_224():
    """3 -> 64 channels with bias: 112x112, pads (2, 3)."""
    assert mxsame.padding.same_pads(224, 7, 2) == (2, 3)
    case = Case("conv", (224, 224), (7, 7), (2, 2), channels=64, batch=1)
    arrays = cases.arrays(case)
    want = oracle.forward(case, arrays)
    assert want.shape == (1, 64, 112, 112)
    block = layer(case)
    set_parameters(block, arrays)
    for hybridize in LAYER_MODES.values():
        hybridize(block)
        assert_equal(block(mx.nd.array(arrays["data"])), want)
    symmetric = mx.nd.Convolution(**as_nd(arrays), kernel=(7, 7), stride=(2, 2), pad=(3, 3), num_filter=64)
    assert symmetric.shape == want.shape and np.abs(symmetric.asnumpy() - want).max() > 0.09, (
        "shapes alone prove nothing"
    )


def test_stride_and_dilation_together():
    """Keras's layers refuse it; TensorFlow's functions compute it by the one rule."""
    case = BY_NAME["concrete-stride-2-dilation-2"]
    arrays, out, out_grad, gradients = expected(case)
    got, got_gradients = imperative(functools.partial(operate, case), as_nd(arrays), out_grad)
    assert_equal(got, out)
    assert_equal(got_gradients, gradients)
    assert_equal(make.sample(got), GOLDEN[f"{case.name}/forward"])


@pytest.mark.parametrize(("n", "padding", "out"), [(5, "same", 3), (5, "valid", 2), (6, "same", 3), (6, "valid", 3)])
def test_kernel_2_stride_2_with_24_filters(n, padding, out):
    case = BY_NAME[f"concrete-k2-s2-on-{n}x{n}-{padding}"]
    block = layer(case)
    arrays = cases.arrays(case)
    set_parameters(block, arrays)
    got, _ = apply(block, arrays)
    assert got.shape == (case.batch, 24, out, out) and counted(block) == 120
    assert_equal(got, oracle.forward(case, arrays))
    assert_equal(make.sample(got), GOLDEN[f"keras/{case.name}/output"])


def test_kernel_2_stride_2_on_6x6_is_the_same_with_both_paddings():
    arrays = cases.arrays(BY_NAME["concrete-k2-s2-on-6x6-same"])
    results = [operate(BY_NAME[f"concrete-k2-s2-on-6x6-{word}"], as_nd(arrays)).asnumpy() for word in ("same", "valid")]
    np.testing.assert_array_equal(*results)


def test_kernel_4x1_on_64x32x100x20():
    """Same shape; pads (1, 2) on the first axis, (0, 0) on the second."""
    assert [mxsame.padding.same_pads(n, k) for n, k in [(100, 4), (20, 1)]] == [(1, 2), (0, 0)]
    case = Case("conv", (100, 20), (4, 1), in_channels=32, channels=32, batch=64)
    data = mx.nd.random.normal(shape=(64, 32, 100, 20))
    block = layer(case)
    block.initialize(mx.init.Normal(1))
    out = block(data)
    assert out.shape == (64, 32, 100, 20)
    two = [0, 63]
    some = {"data": data[two].asnumpy(), "weight": block.weight.data().asnumpy(), "bias": block.bias.data().asnumpy()}
    assert_equal(out[two], oracle.forward(case, some))
    small = BY_NAME["concrete-kernel-4x1-on-100x20"]
    assert_equal(operate(small, as_nd(cases.arrays(small))), expected(small)[1])


# ---- SAME against zeros by hand --------------------------------------------------------------------------------------


def test_same_against_explicit_zeros_and_valid():
    """They differ where P is odd and the zeros are put symmetrically; explicit pairs say either."""
    same, symmetric, explicit = (
        BY_NAME[f"concrete-16-k3-s2-{name}"] for name in ("same", "symmetric", "explicit-as-same")
    )
    nd = as_nd(cases.arrays(same))
    by_hand = {}
    for name, (low, high) in {"same": (0, 1), "symmetric": (1, 1)}.items():
        padded = nd["data"].pad(mode="constant", pad_width=(0, 0, 0, 0, low, high, low, high), constant_value=0)
        by_hand[name] = mxsame.ops.conv(padded, nd["weight"], nd["bias"], strides=2, padding="valid").asnumpy()
    assert_equal(operate(same, nd), by_hand["same"])
    assert_equal(operate(explicit, nd), by_hand["same"])
    assert_equal(operate(symmetric, nd), by_hand["symmetric"])
    assert by_hand["same"].shape == by_hand["symmetric"].shape == (2, 4, 8, 8)
    assert np.abs(by_hand["same"] - by_hand["symmetric"]).max() > 0.09


# ---- networks --------------------------------------------------------------------------------------------------------


def built(name):
    """A network of the demo with the weights that were recorded, and what Keras gave for each layer."""
    recorded = recording.load(name)
    net = networks.build(network(name), networks.with_mxsame, recorded.weights)
    return net, recorded


def image(name):
    pytest.importorskip("matplotlib", reason="reads the photograph")
    found = network(name)
    return recording.image(recording.photograph(), found.size, found.channels)


def assert_layers_as_keras(name, shapes):
    net, recorded = built(name)
    outputs = dict(zip(recorded.outputs, networks.run(net, image(name))))
    assert list(outputs) == [layer.name for layer in network(name).layers]
    for layer_name, want in recorded.outputs.items():
        assert_equal(outputs[layer_name], want, what=layer_name)
    for layer_name, shape in shapes.items():
        assert outputs[layer_name].shape == shape
    return net


def test_sequential():
    """Conv 3x3 64 valid -> BN -> relu -> dropout -> Conv 3x3 64 same -> BN -> relu -> MaxPool 2x2/2 same on 32x32x3."""
    net = assert_layers_as_keras("sequential", {"conv1": (30, 30, 64), "conv2": (30, 30, 64), "pool": (15, 15, 64)})
    children = dict(net._children.items())
    assert [counted(children[name]) for name in ("conv1", "conv2")] == [1_792, 36_928]


def test_sequential_followed_by_a_convolution_of_128():
    net = assert_layers_as_keras("sequential", {"conv3": (15, 15, 128)})
    assert counted(net._children["conv3"]) == 64 * 128 * 9 + 128


def test_autoencoder():
    """28 -> 14 -> 7 -> 4 by MaxPool 2x2 same, a code of 4x4x8 = 128, and back to 28."""
    shapes = {"pool1": (14, 14, 16), "pool2": (7, 7, 8), "code": (4, 4, 8), "conv7": (28, 28, 1)}
    assert_layers_as_keras("autoencoder", shapes)
    assert int(np.prod(shapes["code"])) == 128


def test_sequential_is_right_at_other_sizes_too():
    """The recorded weights, hybridized once; against a chain of oracles."""
    net, _ = built("sequential")
    for size in [(33, 30), (18, 21)]:
        data = np.random.default_rng(3).standard_normal((1, 3, *size)).astype(np.float32)
        got = [out.asnumpy() for out in net(mx.nd.array(data))]
        want = data.astype(np.float64)
        for step, block, out in zip(network("sequential").layers, net._children.values(), got):
            parameters = {name: array.data().asnumpy() for name, array in block._reg_params.items()}
            if step.kind in ("conv", "pool"):
                op = "conv" if step.kind == "conv" else "max_pool"
                kernel, strides = (step.kernel_size,) * 2, (step.stride,) * 2
                case = Case(
                    op,
                    want.shape[2:],
                    kernel,
                    strides,
                    step.padding,
                    in_channels=want.shape[1],
                    channels=step.channels or 0,
                )
                want = oracle.forward(case, {"data": want, **parameters})
            elif step.kind == "norm":
                gamma, beta, mean, variance = (
                    parameters[name][:, None, None] for name in ("gamma", "beta", "running_mean", "running_var")
                )
                want = (want - mean) / np.sqrt(variance + 1e-3) * gamma + beta
            elif step.kind == "relu":
                want = np.maximum(want, 0)
            assert_equal(out, want, what=step.name)


def test_exported_to_an_interchange_format(tmp_path):
    """-symbol.json and .params, of one size class and of every size; the same outputs when they are loaded."""
    net = sequential(
        mxsame.nn.Conv2D(6, 3, strides=2, in_channels=3),
        gluon.nn.BatchNorm(),
        gluon.nn.Activation("relu"),
        mxsame.nn.MaxPool2D(2),
        mxsame.nn.Conv2D(4, 2, in_channels=6),
    )
    net.initialize(mx.init.Normal(1))
    pictures = [mx.nd.random.normal(shape=(2, 3, *size)) for size in [(32, 32), (33, 30), (15, 18), (7, 21), (40, 9)]]
    wanted = [net(picture).asnumpy() for picture in pictures]
    net.hybridize()
    net(pictures[0])
    net.export(str(tmp_path / "plain"))
    mxsame.export(net, str(tmp_path / "any"))
    mxsame.export(net, str(tmp_path / "one"), pictures[0].shape)
    for name, sizes in [("plain", 5), ("any", 5), ("one", 1)]:
        files = [str(tmp_path / f"{name}-{end}") for end in ("symbol.json", "0000.params")]
        loaded = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
        operators = {node["op"] for node in json.loads((tmp_path / f"{name}-symbol.json").read_text())["nodes"]}
        assert operators - {"null"} <= set(mx.operator.get_all_registered_operators())
        for picture, want in list(zip(pictures, wanted))[:sizes]:
            assert_equal(loaded(picture), want, what=f"{name} at {picture.shape}")
