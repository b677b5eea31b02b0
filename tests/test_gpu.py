"""On a GPU: the table of cases, forward and backward, in all the ways that the CPU is tested in.

TF32, which cuDNN may use for float32 on GPUs of compute capability 8.0 and newer, keeps 10 bits of each factor; set
NVIDIA_TF32_OVERRIDE=0 to test without it. MXSAME_TEST_DEVICE=cpu runs as much as a CPU can, to try these tests out.
"""

import os

import numpy as np
import pytest
import running
from cases import CASES
from ways import check, unchanged

import mxsame
from mxsame._mxnet import mx

nn = mx.gluon.nn
ON_CPU = os.environ.get("MXSAME_TEST_DEVICE") == "cpu"
DEVICES = [mx.cpu(0), mx.cpu(1)] if ON_CPU else [mx.gpu(number) for number in range(mx.context.num_gpus())]
# 2**-11 a factor, and sums of up to some hundred products of about 1
TOLERANCE = 1e-4 if ON_CPU or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0" else 5e-3
HALF_TOLERANCE = 2e-2  # float16: the data, the weights and the output are rounded to 2**-11

pytestmark = [] if ON_CPU else [pytest.mark.gpu]
there = pytest.mark.usefixtures("on_the_device")
gpu_alone = pytest.mark.skipif(ON_CPU, reason="a CPU has neither float16 nor channels last")
VARIETY = tuple(CASES[::7])  # where compiling and tuning each would take too long
# float16 of the same kinds, but no sums over transposed strides that cuDNN leaves to others
PLANAR = tuple(case for case in CASES if case.rank == 2)[::3]


@pytest.fixture
def on_the_device(monkeypatch):
    """Arrays and parameters are made there."""
    monkeypatch.setitem(running.TOLERANCE, "float32", TOLERANCE)
    with DEVICES[0]:
        assert mx.nd.zeros(1).context == DEVICES[0]
        yield


# ---- operators and layers --------------------------------------------------------------------------------------------


@there
@running.by_name(CASES)
def test_operators(case):
    assert check(case, "operator")


@there
@pytest.mark.parametrize("way", ["net.hybridize()", "mxsame.hybridize"])
@running.by_name(VARIETY)
def test_layers_hybridized(case, way):
    """One net, several sizes, outputs and gradients of its parameters."""
    assert check(case, way)


@there
@gpu_alone
@running.by_name(PLANAR)
def test_channels_last(case):
    """Without a transpose if cuDNN supports the layout."""
    assert check(case, "operator", last=True)


@there
@gpu_alone
@pytest.mark.parametrize("layout", [None, "NHWC"])
@running.by_name(PLANAR)
def test_half_precision(case, layout):
    """Values that float16 holds exactly go in, so what differs is rounded on the way."""
    arrays = {name: array.astype("float16").astype("float32") for name, array in running.expected(case)[0].items()}
    want, turned = running.oracle.forward(case, arrays), running.channels_last if layout else unchanged
    on_device = running.as_nd(turned(arrays), "float16")
    got = running.operate(case, on_device, layout=layout)
    assert got.dtype == np.float16
    assert running.difference(got.astype("float32").asnumpy(), turned(want)) < HALF_TOLERANCE


# ---- nets ------------------------------------------------------------------------------------------------------------


def initialized(ctx):
    mx.random.seed(0)
    first = mxsame.nn.Conv2D(8, 3, strides=2, in_channels=3), nn.BatchNorm(in_channels=8), nn.Activation("relu")
    net = running.sequential(*first, mxsame.nn.MaxPool2D(3, 2), mxsame.nn.Conv2D(4, 2, in_channels=8), nn.Dense(3))
    net.initialize(mx.init.Normal(0.3), ctx=mx.cpu())
    net(mx.nd.ones((1, 3, 16, 16)))
    net.collect_params().reset_ctx(ctx)
    return net


def train(net, devices, data, labels, steps=3):
    """Some steps of gradient descent on several devices; the losses."""
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    loss, losses = mx.gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(steps):
        parts = mx.gluon.utils.split_and_load(data, devices)
        targets = mx.gluon.utils.split_and_load(labels, devices)
        with mx.autograd.record():
            part_losses = [loss(net(part), target) for part, target in zip(parts, targets)]
        mx.autograd.backward(part_losses)
        trainer.step(data.shape[0])
        losses.append(sum(float(part.sum().asscalar()) for part in part_losses))
    return losses


@pytest.mark.parametrize("count", [1, 2])
def test_training_on_several(count):
    """`split_and_load` and `Trainer`: with two devices as with the CPU's two, and as with one, except in batch norm."""
    if len(DEVICES) < count:
        pytest.skip(f"there are not {count} GPUs")
    random = np.random.RandomState(0)
    data, labels = mx.nd.array(random.randn(4, 3, 16, 16)), mx.nd.array([0, 1, 2, 1])
    runs = []
    for devices in ([mx.cpu(number) for number in range(count)], DEVICES[:count]):
        net = initialized(devices)
        mxsame.hybridize(net)
        runs.append(train(net, devices, data, labels))
    assert np.allclose(runs[0], runs[1], rtol=10 * TOLERANCE)
    assert runs[1][-1] < runs[1][0]


def test_deployed():
    net, data = initialized([mx.cpu()]), mx.nd.array(np.random.RandomState(0).randn(2, 3, 16, 16))
    want = net(data).asnumpy()
    net.collect_params().reset_ctx(DEVICES[0])
    out = mxsame.deploy(net, data.shape)(data.as_in_context(DEVICES[0]))
    assert running.difference(out.asnumpy(), want) < TOLERANCE
