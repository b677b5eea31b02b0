"""What an ONNX file has in it: pads that became attributes, and lengths with names; and values where an operator of
ONNX and its twin in MXNet disagree."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")

import onnx_running
from onnx_running import exported, operators, runtime
from running import Own, from_files, initialized, sequential

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


def chain(*layers):
    net = mx.gluon.nn.HybridSequential()
    net.add(*layers)
    net.initialize(mx.init.Normal(0.5))
    return net


def zeros(*widths):
    return Own(lambda F, x: F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, *widths), constant_value=0))


def both(F, x, conv):
    padded = F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1), constant_value=0)
    return F.concat(conv(padded), F.cos(padded), dim=1)


gluon, conv, ahead = mx.gluon.nn, mxsame.nn.Conv2D(4, 3, padding=1, in_channels=3), zeros(0, 1, 2, 1)
relu, image = gluon.Activation("relu"), data(2, 3, 9, 12)
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
    net(mx.nd.array(array))
    for dynamic_size in sizes:
        assert difference(net, path, array, dynamic_size=dynamic_size) < 1e-5
        assert operators(path)["Pad"] == stay
        assert not {"Slice", "Min"} & operators(path).keys()


WINDOW = (3, 2, ((0, 1), (1, 0)))


@pytest.mark.parametrize("layer", [mxsame.nn.Conv2D(4, *WINDOW, in_channels=3), mxsame.nn.MaxPool2D(*WINDOW)])
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
    net = initialized(sequential(*layers))
    block = from_files(net, tmp_path)
    assert difference(block, path, data(2, 3, 33, 30)) < 1e-5
    assert operators(path) == {"Conv": 1, "MaxPool": 1, "AveragePool": 1}


def test_axes_of_one_length_may_have_others_in_the_next_call(path):
    """ONNX Runtime takes lengths of one name for equal, and buffers of such shapes for interchangeable."""
    net = Own(lambda F, x: F.concat(*(F.sum(F.tanh(F.exp(F.mean(x, axis=axis))), axis=2) for axis in (2, 3)), dim=1))
    mxsame.export_onnx(net, path, (1, 3, 8, 8), dynamic_size=True)
    assert lengths(path)[0] == ["N", 3, "data_2", "data_3"]
    x = data(2, 3, 8, 12)
    (got,) = onnx_running.run(path, x)
    assert np.abs(got - net(mx.nd.array(x)).asnumpy()).max() < 1e-5


def test_a_first_axis_that_is_not_the_batch_has_a_name_of_its_own(path):
    assert difference(Own(lambda F, x: F.reshape(x, shape=(-1, 4))), path, data(3, 8)) == 0
    assert lengths(path) == [["N", 8], ["output_0", 4]]


# -- operators that are alike for most data only


@pytest.mark.parametrize("name", ["__ge__", "__le__", "__gt__", "__lt__", "__eq__", "__ne__"])
def test_a_comparison_with_nan_is_that_of_mxnet(name, path):
    x = np.array([[np.nan, 1, 2], [0, np.nan, 3]], "float32")
    y = np.array([[np.nan, 2, 2], [0, 1, np.nan]], "float32")
    assert difference(Own(lambda F, x, y: getattr(x, name)(y)), path, x, y) == 0
    assert difference(Own(lambda F, x: getattr(x, name)(1.0)), path, x) == 0


@pytest.mark.parametrize("name", ["log1p", "expm1"])
@pytest.mark.parametrize("scale", [1e-4, 0.9, 10])
def test_no_digits_are_lost_next_to_zero(name, scale, path):
    x = np.abs(data(3, 50)) * np.float32(scale)
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
