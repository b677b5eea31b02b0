"""What an ONNX file has in it: pads that became attributes, and lengths with names; and values where an operator of
ONNX and its twin in MXNet disagree."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")

import onnx_running
from onnx_running import Net, exported, operators, runtime

import mxsame
from mxsame._mxnet import mx

RANDOM = np.random.RandomState(0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.onnx"


def difference(net, path, *arrays, **options):
    """The largest one between MXNet's output and that of the file; a NaN equals a NaN."""
    (got,) = exported(net, path, *arrays, **options)
    want = net(*map(mx.nd.array, arrays)).asnumpy()
    assert got.shape == want.shape
    return np.nanmax(np.abs(got - want))


def data(*shape):
    return RANDOM.normal(0, 1, shape).astype("float32")


# -- zeros before a layer, as Keras's ZeroPadding2D

ZEROS = ((0, 0), (0, 0), (0, 1), (2, 1))


def padded(layer, activation=None):
    net = mx.gluon.nn.HybridSequential()
    if activation:
        net.add(activation)
    net.add(Net(lambda F, x: F.pad(x, mode="constant", pad_width=tuple(np.ravel(ZEROS)), constant_value=0)), layer)
    net.initialize(mx.init.Normal(0.5))
    return net


NEVER_NEGATIVE = {
    "relu": mx.gluon.nn.Activation("relu"),
    "sigmoid": mx.gluon.nn.Activation("sigmoid"),
    "relu6": Net(lambda F, x: F.Activation(F.minimum(x, 6), act_type="relu")),
    "clip": Net(lambda F, x: F.clip(x, 0, 6)),
}


@pytest.mark.parametrize("layers", [mx.gluon.nn, mxsame.nn], ids=["gluon", "mxsame"])
@pytest.mark.parametrize("activation", NEVER_NEGATIVE)
def test_zeros_before_a_max_pooling_of_data_that_are_never_negative_become_pads(layers, activation, path):
    padding = {"padding": 0 if layers is mx.gluon.nn else "valid"}
    net = padded(layers.MaxPool2D(3, 2, **padding), NEVER_NEGATIVE[activation])
    assert difference(net, path, data(2, 3, 9, 12)) < 1e-6
    assert not {"Pad", "Slice", "Min"} & operators(path).keys()


@pytest.mark.parametrize("layers", [mx.gluon.nn, mxsame.nn], ids=["gluon", "mxsame"])
@pytest.mark.parametrize("activation", [None, mx.gluon.nn.Activation("tanh"), Net(lambda F, x: F.clip(x, -1, 6))])
def test_zeros_before_a_max_pooling_that_they_may_win_stay(layers, activation, path):
    padding = {"padding": 0 if layers is mx.gluon.nn else "valid"}
    net = padded(layers.MaxPool2D(3, 2, **padding), activation)
    assert difference(net, path, -np.abs(data(2, 3, 9, 12))) < 1e-6
    assert operators(path)["Pad"] == 1


def test_zeros_before_a_max_pooling_with_same_are_not_merged_by_onnxruntime(path):
    """Into pads as long as the kernel, which it refuses."""
    zeros = Net(lambda F, x: F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 2, 2, 2, 2), constant_value=0))
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Activation("relu"), zeros, mxsame.nn.MaxPool2D(4, 1))
    assert difference(net, path, data(1, 2, 5, 6)) < 1e-6


def test_zeros_that_something_else_uses_stay(path):
    def both(F, x):
        zeros = F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1), constant_value=0)
        return F.concat(conv(zeros), F.cos(zeros), dim=1)

    conv = mxsame.nn.Conv2D(4, 3, padding=1, in_channels=3)
    net = Net(both, conv)
    net.initialize(mx.init.Normal(0.5))
    assert difference(net, path, data(2, 3, 5, 6)) < 1e-5
    assert operators(path)["Pad"] == 1


def test_zeros_that_fill_a_window_stay(path):
    wide = Net(lambda F, x: F.pad(F.relu(x), mode="constant", pad_width=(0, 0, 0, 0, 3, 3, 0, 0), constant_value=0))
    net = mx.gluon.nn.HybridSequential()
    net.add(wide, mx.gluon.nn.MaxPool2D(2, 1))
    assert difference(net, path, data(1, 2, 5, 6)) < 1e-6
    assert operators(path)["Pad"] == 1


@pytest.mark.parametrize("layer", [mxsame.nn.AvgPool2D(3, 2, "valid"), mx.gluon.nn.AvgPool2D(3, 2, ceil_mode=True)])
def test_zeros_before_an_average_count(layer, path):
    assert difference(padded(layer), path, 1 + data(2, 3, 9, 12)) < 1e-6


@pytest.mark.parametrize("dynamic_size", [False, True])
def test_zeros_before_a_valid_convolution_become_pads(dynamic_size, path):
    net = padded(mxsame.nn.Conv2D(4, 3, strides=2, padding="valid", in_channels=3))
    assert difference(net, path, data(2, 3, 9, 12), dynamic_size=dynamic_size) < 1e-5
    assert operators(path) == {"Conv": 1}


@pytest.mark.parametrize("dynamic_size", [False, True])
def test_zeros_before_a_layer_with_same_stay_for_its_pads_follow_the_padded_size(dynamic_size, path):
    net = padded(mxsame.nn.Conv2D(4, 3, strides=2, in_channels=3))
    assert difference(net, path, data(2, 3, 9, 12), dynamic_size=dynamic_size) < 1e-5
    assert operators(path) == {"Pad": 1, "Conv": 1}


@pytest.mark.parametrize(
    "layer", [mxsame.nn.Conv2D(4, 3, 2, ((0, 1), (1, 0)), in_channels=3), mxsame.nn.MaxPool2D(3, 2, ((0, 1), (1, 0)))]
)
def test_pads_that_no_window_reads_are_kept_for_other_sizes(layer, path):
    layer.initialize(mx.init.Normal(0.5))
    assert difference(layer, path, data(2, 3, 9, 8), dynamic_size=True) < 1e-5
    other = data(1, 3, 8, 9)
    (got,) = onnx_running.run(path, other)
    assert np.abs(got - layer(mx.nd.array(other)).asnumpy()).max() < 1e-5


# -- lengths


def lengths(path):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [entry.shape for entry in (*session.get_inputs(), *session.get_outputs())]


def test_axes_of_one_length_may_have_others_in_the_next_call(path):
    """ONNX Runtime takes lengths of one name for equal, and buffers of such shapes for interchangeable."""
    net = Net(lambda F, x: F.concat(*(F.sum(F.tanh(F.exp(F.mean(x, axis=axis))), axis=2) for axis in (2, 3)), dim=1))
    mxsame.export_onnx(net, path, (1, 3, 8, 8), dynamic_size=True)
    assert lengths(path)[0] == ["N", 3, "data_2", "data_3"]
    x = data(2, 3, 8, 12)
    (got,) = onnx_running.run(path, x)
    assert np.abs(got - net(mx.nd.array(x)).asnumpy()).max() < 1e-5


def test_a_first_axis_that_is_not_the_batch_has_a_name_of_its_own(path):
    assert difference(Net(lambda F, x: F.reshape(x, shape=(-1, 4))), path, data(3, 8)) == 0
    assert lengths(path) == [["N", 8], ["output_0", 4]]


# -- operators that are alike for most data only


@pytest.mark.parametrize("name", ["__ge__", "__le__", "__gt__", "__lt__", "__eq__", "__ne__"])
def test_a_comparison_with_nan_is_that_of_mxnet(name, path):
    x = np.array([[np.nan, 1, 2], [0, np.nan, 3]], "float32")
    y = np.array([[np.nan, 2, 2], [0, 1, np.nan]], "float32")
    assert difference(Net(lambda F, x, y: getattr(x, name)(y)), path, x, y) == 0
    assert difference(Net(lambda F, x: getattr(x, name)(1.0)), path, x) == 0


@pytest.mark.parametrize("name", ["log1p", "expm1"])
@pytest.mark.parametrize("scale", [1e-4, 0.9, 10])
def test_no_digits_are_lost_next_to_zero(name, scale, path):
    x = np.abs(data(3, 50)) * np.float32(scale)
    if name == "expm1":
        x[0] *= -1
    (got,) = exported(Net(lambda F, x: getattr(F, name)(x)), path, x)
    want = getattr(np, name)(x.astype("float64"))
    assert (np.abs(got - want) / np.abs(want)).max() < 1e-5


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_infinity_stays(name, path):
    x = np.array([[np.inf, 0]], "float32")
    assert exported(Net(lambda F, x: getattr(F, name)(x)), path, x)[0].tolist() == getattr(np, name)(x).tolist()


@pytest.mark.parametrize("name", ["round", "rint", "fix", "trunc"])
def test_halves_are_rounded_as_by_mxnet(name, path):
    x = np.array([[-2.5, -1.5, -0.5, 0.49999997, 0.5, 1.5, 2.5, 8388609.0, np.inf, -np.inf]], "float32")
    net = Net(lambda F, x: getattr(F, name)(x))
    assert exported(net, path, x)[0].tolist() == net(mx.nd.array(x)).asnumpy().tolist()
