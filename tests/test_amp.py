"""Automatic mixed precision, `mxnet.contrib.amp`, which changes MXNet's operators for the rest of a process.

MXNet has no float16 on the CPU. So the types in graphs are looked at, and the graphs run without the casts. In bfloat16
everything runs.
"""

import pytest
import running

import mxsame
from mxsame import processor
from mxsame._mxnet import mx
from mxsame.ops._conv import Convolution
from mxsame.tensors import operands

PREPARED = """
import json
import numpy as np
import mxsame
from mxsame._mxnet import mx
from mxnet.contrib import amp

nn = mx.gluon.nn
net = nn.HybridSequential()
net.add(mxsame.nn.Conv2D(8, 3, 2, in_channels=3, activation="relu"), nn.BatchNorm(in_channels=8))
net.add(mxsame.nn.MaxPool2D(3, 2), mxsame.nn.DepthwiseConv2D(4, 2, in_channels=8), mxsame.nn.AvgPool2D(2, 1))
net.add(mxsame.nn.Conv2DTranspose(4, 3, 2, in_channels=8), nn.Dense(3, in_units=4 * 12 * 12))
net.add(nn.HybridLambda("softmax"))
net.initialize(mx.init.Normal(0.4))
data = mx.nd.array(np.random.RandomState(0).randn(2, 3, 41, 42))
want = net(data).asnumpy()
amp.init(target_dtype="float16")
"""

GRAPHS = """
from mxsame.graphs import tracing
from mxsame.scope import Target

for device in ("cpu", "gpu"):
    for sizes in (False, True):
        variable = mx.sym.var("data", dtype="float32")
        trace = tracing.trace_net(net, (True,), Target("training", device))
        symbol = trace.lower([variable], [data.shape if sizes else None]).outputs
        inside = symbol.get_internals()
        types = dict(zip(inside.list_outputs(), inside.infer_type()[1]))
        nodes = json.loads(symbol.tojson(remove_amp_cast=False))["nodes"]
        convolutions = [node["name"] for node in nodes if node["op"] in ("Convolution", "Deconvolution")]
        halves = all(types[f"{name}_output"] is np.float16 for name in convolutions)
        symbol = mx.sym.load_json(symbol.tojson(remove_amp_cast=True))
        values = {name: parameter.data() for name, parameter in net.collect_params().items()}
        given = {name: values.get(name, data) for name in symbol.list_arguments()}
        aux = {name: values[name] for name in symbol.list_auxiliary_states()}
        got = symbol.bind(mx.cpu(), given, aux_states=aux, grad_req="null").forward()[0].asnumpy()
        print(device, sizes, len(convolutions), halves, float(np.abs(got - want).max() / np.abs(want).max()), sep=";")
"""


CALLED = """
print("called")
half = mx.nd.ones((1, 3, 8, 8), dtype="float16")
layer = net[2]
print(layer(half).dtype)
try:
    net[0](half)
except TypeError as error:
    print(error)
weight = mx.nd.ones((2, 3, 3, 3))
mxsame.tensors.operands.check_same_kind_and_device("weight", weight, "data", half)  # AMP's to bring together
print("together")
"""


def test_graphs_are_cast_and_stay_exact_and_layers_called_one_by_one_leave_types_to_it():
    """For sizes known and unknown: convolutions get float16, and nothing else changes. A layer after another gets
    float16 and has weights of float32; on the CPU float16 ends there."""
    graphs, out = running.run_python(PREPARED + GRAPHS + CALLED).split("called\n")
    lines = [line.split(";") for line in graphs.splitlines() if line.count(";") == 4]
    assert [line[:2] for line in lines] == [[device, sizes] for device in ("cpu", "gpu") for sizes in ("False", "True")]
    for _, _, convolutions, halves, difference in lines:
        assert int(convolutions) >= 3 and halves == "True" and float(difference) < 1e-5
    assert "received data.dtype='float16'" in out and "on the CPU, where MXNet has no float16 convolution" in out
    assert "must have the type of the parameters" not in out and "together" in out


def test_what_ran_before_amp_is_planned_again(monkeypatch):
    """A Deconvolution cannot be trained in amp's bfloat16, and its data are the same array before and after."""
    data, weight, plans = mx.nd.ones((1, 16, 5)), mx.nd.ones((16, 16, 3)), []
    monkeypatch.setattr(Convolution, "__call__", lambda self, F, data, *rest: plans.append(self.plan) or data)
    monkeypatch.setattr(operands, "check_amp", lambda device: None)  # the processor may lack it
    for dtype in (None, "bfloat16", None):
        monkeypatch.setattr(operands, "amp_type", lambda dtype=dtype: dtype)
        with mx.autograd.record():
            mxsame.ops.conv_transpose(data, weight, strides=2)
    assert [plan.dilates_input for plan in plans] == [False, True, False]


def test_a_net_that_ran_before_amp_is_traced_again(monkeypatch):
    """amp changes what operators do in a trace, so neither a graph nor a trace from before is used."""
    net, traced = mxsame.hybridize(running.sequential(mxsame.nn.MaxPool2D(2, 2))), []
    net[0].register_forward_hook(lambda *call: traced.append(call))
    for dtype, count in ((None, 1), ("bfloat16", 2)):
        monkeypatch.setattr(operands, "amp_type", lambda dtype=dtype: dtype)
        for size in (8, 8, 9):
            net(running.normal(1, 2, size, size))
        assert len(traced) == count


BFLOAT16 = """
import numpy as np
import mxsame
from mxsame._mxnet import mx
from mxnet.contrib.amp import amp

net = mxsame.nn.HybridSequential()
net.add(mxsame.nn.Conv2D(16, 3, 2, in_channels=16), mxsame.nn.Conv2D(16, 4, in_channels=16), mxsame.nn.MaxPool2D(2, 1))
net.add(mxsame.nn.Conv2DTranspose(16, 3, 2, in_channels=16))
net.initialize(mx.init.Normal(0.3))
data = mx.nd.array(np.random.RandomState(0).randn(2, 16, 9, 8))

def trained():
    with mx.autograd.record():
        out = mx.nd.amp_cast(net(data), dtype="float32")
    out.backward()
    return [out, net[3].weight.grad()]

wanted = [array.asnumpy() for array in trained()]
shifted = mx.gluon.nn.Conv2D(8, 3, 2, 1, in_channels=16, use_bias=False)
shifted.initialize()
exact = mxsame.ops.conv(data[:, :, :8], shifted.weight.data(), strides=2).asnumpy()
try:
    mxsame.ops.max_pool(mx.nd.amp_cast(data, dtype=amp.bfloat16), 2)
except TypeError as error:
    print(error)
amp.init(target_dtype="bfloat16")
once = lambda: [mx.nd.amp_cast(net(data), dtype="float32")]
hybridized = lambda called: net.hybridize() or called()
ways = [once, trained, lambda: hybridized(once), lambda: hybridized(trained), lambda: [mxsame.deploy(net, data)(data)]]
for way in ways:
    print(*(float(abs(got.asnumpy() - want).max() / abs(want).max()) for got, want in zip(way(), wanted)), sep="\\n")
fixed = mxsame.audit(shifted, (2, 16, 8, 8)).fix(shifted)(data[:, :, :8])
print(float(abs(fixed.asnumpy() - exact).max()))
"""


@pytest.mark.skipif(not processor.has("AVX512_CORE"), reason="oneDNN convolves in bfloat16 with AVX-512 only")
def test_layers_compute_in_bfloat16_one_after_another():
    """At once and hybridized, also trained; a deployed net is without casts, and so is a fixed one. MXNet alone cannot
    train a hybridized transposed convolution."""
    refusal, *differences = running.run_python(BFLOAT16).splitlines()
    assert "received data.dtype='bfloat16'" in refusal
    *rounded, deployed, fixed = map(float, differences)
    assert len(rounded) == 6 and min(rounded) > 1e-4 and max(rounded) < 0.02 and max(deployed, fixed) < 1e-5


WITHOUT_AVX512 = """
import mxsame
from mxsame._mxnet import mx
from mxnet.contrib.amp import amp

nn, data = mx.gluon.nn, mx.nd.ones((1, 16, 9, 8))
layer, pool = mxsame.nn.Conv2D(16, 3, 2, in_channels=16), mxsame.nn.MaxPool2D(2, 1)
graph, plain = nn.HybridSequential(), nn.HybridSequential()
graph.add(mxsame.nn.Conv2D(16, 3, in_channels=16), pool)
plain.add(mxsame.nn.Conv2D(16, 3, in_channels=16), pool)
for net in (layer, graph, plain):
    net.initialize()
layer(data)
half = mx.nd.amp_cast(data, dtype=amp.bfloat16)
amp.init(target_dtype="bfloat16")
mxsame.hybridize(graph)
plain.hybridize()
for called, argument in ((layer, data), (graph, data), (plain, data), (pool, half), (mxsame.ops.max_pool, half)):
    try:
        called(argument, *[2] * (called is mxsame.ops.max_pool)).wait_to_read()
    except ValueError as error:
        print(error)
print(pool(data).dtype, mxsame.deploy(graph, data)(data).dtype)
"""


def test_amp_in_bfloat16_is_refused_without_avx512(monkeypatch):
    """A layer that was called before, a net hybridized in either way, and arrays; what computes in float32 runs."""
    monkeypatch.setenv(processor.SETTING, "AVX2")
    *refusals, ran = running.run_python(WITHOUT_AVX512).splitlines()
    assert len(refusals) == 5 and ran.count("float32") == 2
    assert {line.partition("; ")[2] for line in refusals} == {"received target_dtype='bfloat16', lacks=['AVX512_CORE']"}
