"""Graphs that are built for GPUs, without a GPU: what they are made of, and, emulated on the CPU, what they compute."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import cases
import numpy as np
import oracle
import pytest
import running
from cases import CASES
from emulation import on_cpu

import mxsame
from mxsame._mxnet import mx
from mxsame.graphs import deploy, tracing
from mxsame.plan import arrays, use_strategy
from mxsame.port import activations, recurrent
from mxsame.rewriting import constants, optimize_for_inference
from mxsame.rewriting.graph import Graph
from mxsame.scope import Target, building

PLANAR = tuple(case for case in CASES if case.rank == 2)


def built(case, arrays, dtype="float32", layout=None, purpose="inference"):
    """The case's operator as a graph for a GPU, of static shape."""
    variables = running.variables(arrays, dtype)
    with building(Target(purpose, "gpu")):
        return running.operate(case, variables, **running.graph_arguments(case), layout=layout)


# ---- channels last ---------------------------------------------------------------------------------------------------


def is_grouped(case):
    return case.groups > 1 or case.op in ("depthwise_conv", "separable_conv")


def strides_and_dilates(case):
    """Where MXNet's Deconvolution is wrong on every device."""
    return case.op == "conv_transpose" and max(case.strides) > 1 and max(case.dilation) > 1


def pad_is_counted_beyond(case):
    """The one pooling whose padding MXNet's pad operator has to make, which has channels first."""
    return case.ceil_mode and case.count_include_pad and case.padding not in ("same", "valid", "keras-mxnet")


@pytest.mark.parametrize("strategy", [None, "pad"])
@running.by_name(PLANAR)
def test_nhwc_runs_as_it_is(case, strategy):
    """No transposes, and the values of the oracle, forward and backward. MXNet's pad operator leaves the first two axes
    as they are."""
    arrays, out, out_grad, gradients = running.expected(case)
    last = running.channels_last(arrays)
    # oneDNN, which computes here, has no Deconvolution with groups and a computed weight.
    is_grouped_transposed = case.op == "conv_transpose" and case.groups > 1
    try:
        with use_strategy("slice" if is_grouped_transposed and strategy is None else strategy):
            symbol = built(case, last, layout="NHWC")
    except ValueError as error:
        assert "exact" in str(error) and strategy
        return
    if not (is_grouped(case) or strides_and_dilates(case) or pad_is_counted_beyond(case)):
        assert "transpose" not in running.operators(symbol)
        layouts = {node["attrs"].get("layout") for node in running.nodes(symbol) if "kernel" in node.get("attrs", {})}
        assert layouts == {"NHWC"}
        pads = [node["attrs"]["pad_width"] for node in running.nodes(symbol) if node["op"] == "Pad"]
        assert all(widths.startswith("(0, 0, 0, 0, ") and widths.endswith(", 0, 0)") for widths in pads)
    # On the CPU the gradient of a transposed convolution's transposed weight ends in a crash; on a GPU it does not.
    out_grad = None if case.op == "conv_transpose" else running.channels_last(out_grad)
    got, got_gradients = running.evaluate(on_cpu(symbol), running.as_nd(last), out_grad)
    running.assert_equal(got, running.channels_last(out), what="output")
    if out_grad is not None:
        running.assert_equal(got_gradients, running.channels_last(gradients), terms=out.size)


@pytest.mark.parametrize("layout", ["NWC", "NDHWC"])
def test_other_ranks_run_by_transposition(layout):
    """cuDNN has no such layouts (CuDNNConvolutionOp::Supports of MXNet 1.9.1)."""
    rank = len(layout) - 2
    data, weight = mx.sym.var("data", shape=(2, *(8,) * rank, 3)), mx.sym.var("weight", shape=(4, *(3,) * rank, 3))
    with building(Target("inference", "gpu")):
        symbol = mxsame.ops.conv(data, weight, strides=2, layout=layout)
    assert "transpose" in running.operators(symbol)


def test_a_strategy_for_channels_first_is_not_taken_with_channels_last():
    data, weight = mx.sym.var("data", shape=(2, 8, 8, 3)), mx.sym.var("weight", shape=(4, 3, 3, 3))
    with building(Target("inference", "gpu")), use_strategy("flip"):
        symbol = mxsame.ops.conv(data, weight, strides=2, layout="NHWC")
    assert not {"reverse", "transpose"} & set(running.operators(symbol))


def test_a_graph_that_may_run_anywhere_has_channels_first():
    """Gluon's own hybridize makes one graph for all devices, and a file goes anywhere."""
    net = mxsame.nn.Conv2D(4, 3, strides=2, layout="NHWC", in_channels=3)
    net.initialize()
    net.hybridize()
    with mx.Context(mx.gpu()):  # what Gluon calls the current context, and nothing more
        symbol = net(mx.sym.var("data"))
    assert "transpose" in running.operators(symbol)


def test_sizes_of_one_signature_have_one_graph(layout="NHWC"):
    pools = mxsame.nn.MaxPool2D(3, 2, layout=layout), mxsame.nn.AvgPool2D(2, 2, layout=layout)
    first = mxsame.nn.Conv2D(4, 3, strides=2, layout=layout, in_channels=3)
    grouped = mxsame.nn.Conv2D(4, 4, strides=3, groups=2, layout=layout, in_channels=4)
    net = running.initialized(running.sequential(first, pools[0], grouped, pools[1]))
    sizes = (64, 64), (65, 64), (66, 40), (67, 64), (88, 52), (70, 61), (76, 64), (64, 76)
    graphs = running.graphs_by_signature(net, [(2, *size, 3) for size in sizes], Target("inference", "gpu"))
    assert 1 < len(graphs) < 8
    for graph in graphs.values():
        assert sum(op == "transpose" for op, _ in graph) == 3  # those of the grouped convolution


# ---- types -----------------------------------------------------------------------------------------------------------


@running.by_name(CASES)
def test_half_precision_goes_through(case):
    """Graphs of float16 stay float16, with the oracle's shapes, in both orders of axes."""
    arrays, size = cases.arrays(case), oracle.output_size(case)
    last = running.channels_last(arrays), running.CHANNELS_LAST[case.rank], (*size, case.out_channels)
    for given, layout, inner in ((arrays, None, (case.out_channels, *size)), last):
        symbol = built(case, given, dtype="float16", layout=layout)
        _, (dtype,), _ = symbol.infer_type()
        _, (shape,), _ = symbol.infer_shape()
        assert np.dtype(dtype) == np.float16 and shape == (case.batch, *inner)


# ---- the tests that need a GPU ---------------------------------------------------------------------------------------


def test_the_tests_for_gpus_pass_on_the_cpu():
    """What of tests/test_gpu.py a CPU can stand in for passes there; so on a GPU a failure is the GPU's."""
    chosen = "training or deployed or (layers_hybridized and conv_transpose)"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", "-p", "no:cacheprovider", "-k", chosen]
    path = Path(__file__).parent
    environment = {**os.environ, "MXSAME_TEST_DEVICE": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    command.append(str(path / "test_gpu.py"))
    done = subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout).group(1)) > 10


# ---- passes ----------------------------------------------------------------------------------------------------------


def of_everything(F, x, kernel, wide, alpha, gamma, beta, mean, variance):
    """Operators that have a pass for oneDNN each."""
    x = F.Convolution(x, kernel, kernel=(3, 3), num_filter=24, no_bias=True)
    x = F.BatchNorm(x, gamma, beta, mean, variance)
    x = activations.relu(F, x, max_value=6.0)
    x = F.Convolution(F.concat(x, x, dim=1), wide, kernel=(1, 1), num_filter=264, no_bias=True)
    parts = [F.slice(x, begin=(None, begin), end=(None, begin + 24)) for begin in (4, 28)]
    x = F.clip(F.LeakyReLU(F.concat(*parts, dim=1), alpha, act_type="prelu"), -1, 2)
    x = F.Dropout(x, p=0.5)
    x, _ = F.contrib.foreach(lambda row, state: (row + state, state), x, F.sum(x, axis=0))
    return F.softmax(x, axis=-1), arrays.copy_weight(F, kernel) * 2


OF_EVERYTHING = {"kernel": (24, 16, 3, 3), "wide": (264, 48, 1, 1), "alpha": (48,)}
NORM = dict.fromkeys(("gamma", "beta", "mean", "variance"), (24,))


def graph_for(device, purpose):
    net = running.initialized(running.Own(of_everything, **OF_EVERYTHING, **NORM))
    trace = tracing.trace_net(net, (True,), Target(purpose, device))
    return tracing.group(trace.lower([mx.sym.var("data", dtype="float32")], [(2, 16, 8, 8)]).outputs)


RELU6 = {"inference": ["clip"], "training": ["_minimum_scalar", "Activation"]}  # the gradients differ at the bounds
PRELU = {"inference": ["LeakyReLU"]}  # in training its slope would have a wrong gradient, on all devices
PRELU["training"] = ["relu", "_minimum_scalar", "Reshape", "Reshape", "broadcast_mul", "reshape_like", "elemwise_add"]
DROPOUT = {"inference": [], "training": ["Dropout"]}
BY_ONEDNN = {"slice_axis", "size_array", "take", "BlockGrad"}  # copies and waits


@pytest.mark.parametrize("purpose", ["inference", "training"])
def test_a_graph_for_a_gpu_has_none_of_the_cpus_passes(purpose):
    want = ["Convolution", "BatchNorm", *RELU6[purpose], "Concat", "Convolution", "slice", "slice", "Concat"]
    want += [*PRELU[purpose], "clip", *DROPOUT[purpose], "sum", "_foreach", "softmax", "_mul_scalar"]
    assert running.operators(graph_for("gpu", purpose)) == want
    assert set(running.operators(graph_for("cpu", purpose))) >= BY_ONEDNN


def test_a_copy_that_is_an_output_stays_an_operator():
    net = running.Own(lambda F, x: (arrays.copy_to_plain(F, x), arrays.copy_to_plain(F, x) * 2))
    trace = tracing.trace_net(net, (True,), Target("inference", "gpu"))
    (copied, double) = trace.lower([mx.sym.var("data")], [(2, 3)]).outputs
    assert running.operators(copied) == ["slice_axis"] and running.operators(double) == ["_mul_scalar"]


def test_an_array_on_a_gpu_is_not_copied():
    array = SimpleNamespace(ctx=mx.gpu(0))
    assert arrays.copy_to_plain(None, array) is array


def test_a_loop_for_a_gpu_has_no_copies_in_its_body():
    """The gates of an LSTM with convolutions, whose units are no multiple of 4, for any number of steps."""
    i2h, h2h = (partial(mxsame.nn.Conv2D, 12, 3, in_channels=channels) for channels in (2, 3))
    net = running.initialized(recurrent.ConvLSTM(i2h, h2h, recurrent.Options()))

    def graph(device):
        trace = tracing.trace_net(net, (True,), Target("training", device))
        return tracing.group(trace.lower([mx.sym.var("data")], [(2, 5, 2, 6, 6)]).outputs).tojson()

    assert arrays.REQUIRED_COPY in graph("cpu") and arrays.REQUIRED_COPY not in graph("gpu")


def test_a_file_from_a_gpu_has_the_copies_that_a_cpu_needs(monkeypatch, tmp_path):
    monkeypatch.setattr(deploy, "_is_cpu", lambda context: False)

    def function(F, x, weight):
        out = F.Convolution(
            F.slice(x, begin=(None, 4), end=(None, 9)), weight, kernel=(1, 1), num_filter=5, no_bias=True
        )
        return F.relu(out) + out

    deployed = mxsame.deploy(running.initialized(running.Own(function, weight=(5, 5, 1, 1))), (2, 16, 3, 3))
    assert running.operators(deployed.graph) == ["slice", "Convolution", "Activation", "elemwise_add"]
    symbol, _ = deployed.export(str(tmp_path / "net"))
    want = ["slice_axis", "slice", "Convolution", "BlockGrad", "Activation", "elemwise_add"]
    assert running.operators(mx.sym.load(symbol))[-6:] == want


# ---- deployed graphs with channels last ------------------------------------------------------------------------------


def test_batch_norm_folds_with_channels_last():
    """Into convolutions and transposed ones, with the same values."""
    layers = (
        mxsame.nn.Conv2D(4, 3, strides=2, layout="NHWC", in_channels=3),
        mxsame.nn.Conv2DTranspose(5, 3, strides=2, layout="NHWC", in_channels=4),
        mxsame.nn.Conv2D(2, 2, layout="NHWC", in_channels=5, use_bias=False),
    )
    steps = ([layer, mx.gluon.nn.BatchNorm(axis=3), mx.gluon.nn.Activation("relu")] for layer in layers)
    net, shape = running.sequential(*(step for each in steps for step in each)), (2, 9, 8, 3)
    variable, data = mx.sym.var("data", dtype="float32"), running.normal(*shape)
    trace = tracing.trace_net(running.trained(net, shape), (True,), Target("deployment", "gpu"))
    values = {name: parameter.data().asnumpy() for name, parameter in net.collect_params().items()}
    graph = Graph.of(trace.lower([variable], [shape]).outputs, values, {"data": shape})
    optimize_for_inference(graph, fuses=False)
    assert "BatchNorm" not in running.operators(graph.symbol())
    # The transposed weight is turned for the CPU beforehand: its Deconvolution takes none that is computed.
    graph = Graph.of(on_cpu(graph.symbol()), graph.values, {"data": shape})
    constants.fold(graph)
    given = {**{name: mx.nd.array(value) for name, value in graph.values.items()}, "data": data}
    (out,) = graph.symbol().bind(mx.cpu(), given, grad_req="null").forward()
    assert running.difference(out.asnumpy(), net(data).asnumpy()) < 1e-5


def test_a_size_that_is_told_does_not_confuse_classes():
    """`input_size` makes a layer run channels last in the graph from which classes are read, too."""

    def function(F, x, weight):
        return mxsame.ops.conv(x, weight, strides=2, layout="NHWC", input_size=(9, 8))

    net = running.initialized(running.Own(function, weight=(2, 3, 3, 1)))
    (signature,) = running.graphs_by_signature(net, [(2, 9, 8, 1)], Target("inference", "gpu"))
    ((_, channels),) = signature[1]
    assert channels == 1
