"""`mxsame.audit`: what it calls SAME has SAME's values, what it calls shifted has not, and what it fixes has them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import warnings

import cases
import numpy as np
import oracle
import pytest
from click.testing import CliRunner
from running import Own, difference, initialized, sequential, trained

import mxsame
from mxsame import cli
from mxsame._mxnet import mx
from mxsame.auditing import Axis, audit

quantize_net_v2 = mx.contrib.quantization.quantize_net_v2
gluon = mx.gluon
DATA = mx.sym.var("data")


def bound(symbol, arrays):
    """The outputs of a Symbol on NumPy arrays by name."""
    arrays = {name: mx.nd.array(array) for name, array in arrays.items() if name in symbol.list_inputs()}
    return [out.asnumpy() for out in symbol.bind(mx.cpu(), arrays).forward()]


# ---- single layers against the oracle --------------------------------------------------------------------------------


def configurations(count):
    """Layers of every kind and rank, with pads of all sorts; every third pad is the one that gives SAME's shape."""
    generator = random.Random(7)
    for number in range(count):
        op = generator.choice(["conv", "conv", "conv_transpose", "max_pool", "avg_pool"])
        rank = generator.choice([1, 2, 2, 3]) if op != "conv_transpose" else generator.choice([1, 2])
        pick = lambda low, high: tuple(generator.randint(low, high) for _ in range(rank))  # noqa: B023, E731
        size, kernel, strides = pick(5, 9), pick(1, 4), pick(1, 3)
        dilation = pick(1, 2) if op == "conv" and max(strides) == 1 else (1,) * rank
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
        if op.endswith("pool"):
            pads = tuple(generator.randint(0, k // 2) for k in kernel)
        elif op == "conv_transpose":
            pads = tuple(max(k - s + 1, 0) // 2 for k, s in zip(kernel, strides))
        else:
            pads = tuple(generator.choice([k // 2, (k - 1) // 2, 0]) for k in reach)
        if op == "conv" and any(n + 2 * pad < extent for n, pad, extent in zip(size, pads, reach)):
            continue
        yield pytest.param(op, size, kernel, strides, dilation, pads, id=f"{number}-{op}-{rank}")


def symmetric(op, kernel, strides, dilation, pads):
    """The layer as MXNet has it, as a Symbol."""
    weight, window = mx.sym.var("weight"), {"kernel": kernel, "stride": strides, "pad": pads}
    if op == "conv":
        return mx.sym.Convolution(DATA, weight, no_bias=True, dilate=dilation, num_filter=3, **window)
    if op == "conv_transpose":
        adj = tuple(min((k - s) % 2 if k > s else 0, s - 1) for k, s in zip(kernel, strides))
        return mx.sym.Deconvolution(DATA, weight, no_bias=True, adj=adj, num_filter=3, **window)
    return mx.sym.Pooling(DATA, pool_type=op[:3], count_include_pad=False, **window)


def same(op, size, kernel, strides, dilation, arrays, output_padding=None):
    """What SAME gives, by the oracle of the tests."""
    given = {"in_channels": 2, "channels": 3, "use_bias": False, "output_padding": output_padding}
    return oracle.forward(cases.Case(op, size, kernel, strides, dilation=dilation, **given), arrays)


@pytest.mark.parametrize(("op", "size", "kernel", "strides", "dilation", "pads"), list(configurations(100)))
def test_a_status_is_true_of_the_values(op, size, kernel, strides, dilation, pads):
    generator = np.random.RandomState(1)
    weight = {"conv": (3, 2, *kernel), "conv_transpose": (2, 3, *kernel)}.get(op)
    arrays = {"data": generator.normal(size=(2, 2, *size))}
    if weight:
        arrays["weight"] = generator.normal(size=weight)
    symbol = symmetric(op, kernel, strides, dilation, pads)
    report = audit(symbol, (2, 2, *size))
    (got,) = bound(symbol, arrays)
    want = same(op, size, kernel, strides, dilation, arrays)
    (status,) = (layer.status for layer in report.layers)
    if got.shape != want.shape and op == "conv_transpose" and status in ("same", "shifted"):
        reach = [2 * (k // 2) - k for k in kernel]  # Keras's output_padding for this shape
        extra = [out - (n - 1) * s + more for out, n, s, more in zip(got.shape[2:], size, strides, reach)]
        want = same(op, size, kernel, strides, dilation, arrays, tuple(extra))
    if got.shape != want.shape:
        assert status in ("valid", "other")
    else:
        assert status == ("same" if difference(got, want) < 1e-4 else "shifted")
    if status == "shifted":
        (fixed,) = bound(report.fixed_symbol(), arrays)
        assert difference(fixed, want) < 1e-4
        assert audit(report.fixed_symbol(), (2, 2, *size)).wrong == ()


# ---- layers with something before or after them ----------------------------------------------------------------------


def conv(data, kernel=(3, 3), strides=(2, 2), pads=(1, 1), name="conv", **more):
    window = {"kernel": kernel, "stride": strides, "pad": pads}
    return mx.sym.Convolution(data, no_bias=True, num_filter=2, name=name, **window, **more)


HALF, PADDED = mx.sym.amp_cast(DATA, dtype="float16"), mx.sym.pad(DATA, "constant", (0, 0, 0, 0, 0, 1, 0, 1))
CAST = mx.sym.amp_multicast(PADDED, mx.sym.var("w"), num_outputs=2)


def average(data=DATA, **more):
    return mx.sym.Pooling(data, kernel=(3, 3), stride=(1, 1), pool_type="avg", **more)


def transposed(data=DATA, **more):
    return mx.sym.Deconvolution(data, kernel=(3, 3), stride=(2, 2), num_filter=2, no_bias=True, name="up", **more)


def flip(data):
    """The last axis backwards, as mxsame has it where windows are counted from the end."""
    return mx.sym.slice(data, begin=(None,) * 4, end=(None,) * 4, step=(1, 1, 1, -1))


def halves():
    return mx.sym.var("one", shape=(2, 2, 1, 3)), mx.sym.var("other", shape=(2, 2, 2, 3))


def old(op, **given):
    return getattr(mx.sym, op)(DATA, kernel=(3, 3), stride=(2, 2), **given)


SHIFT = (-1, -1)


@pytest.mark.parametrize(
    ("symbol", "status", "shift"),
    [
        (conv(DATA), "shifted", (-1, -1)),
        (conv(mx.sym.split_v2(DATA, (4,), axis=3)[1]), "shifted", (-1, -1)),  # 6 pixels, after 4
        (conv(DATA, pads=(0, 0)), "valid", (0, 0)),
        (conv(DATA, pads=(2, 2)), "other", (-2, -2)),
        (conv(DATA, kernel=(4, 3), strides=(1, 1), pads=(1, 1)), "other", (0, 0)),
        # a slice of the first output, which is SAME; of the last, which is what keras-mxnet does
        (mx.sym.slice_axis(conv(DATA, (4, 3), (1, 1), (2, 1)), axis=2, begin=1, end=None), "same", (0, 0)),
        (mx.sym.slice_axis(conv(DATA, (4, 3), (1, 1), (2, 1)), axis=2, begin=0, end=-1), "shifted", (-1, 0)),
        (mx.sym.slice(conv(DATA, (4, 4), (1, 1), (2, 2)), begin=(None, None, 1), end=(None,) * 3), "explicit", SHIFT),
        (mx.sym.slice(conv(DATA, pads=(2, 2)), begin=(None, None, 1, 1), end=(None,) * 4), "same", (0, 0)),
        # a pad operator: what Keras's ZeroPadding2D becomes, and what exact padding becomes
        (conv(mx.sym.pad(DATA, "constant", (0, 0, 0, 0, 0, 1, 0, 1)), pads=(0, 0)), "same", (0, 0)),
        (conv(mx.sym.pad(DATA, "constant", (0, 0, 0, 0, 1, 1, 1, 1)), pads=(0, 0)), "explicit", (-1, -1)),
        # a kernel in another order is a kernel; one that the graph computes may be longer than what was trained
        (conv(DATA, weight=mx.sym.transpose(mx.sym.var("w"), (3, 2, 0, 1))), "shifted", (-1, -1)),
        (conv(DATA, weight=mx.sym.concat(*halves(), dim=2)), "unknown", (-1, -1)),
        (mx.sym.Pooling(DATA, kernel=(2, 2), pool_type="sum", stride=(2, 2)), "unknown", (0, 0)),
        # the ceiling convention, which pads the end only; one that is neither SAME nor VALID
        (mx.sym.Pooling(DATA, kernel=(3, 3), stride=(2, 2), pooling_convention="full"), "same", (0, 0)),
        (mx.sym.Pooling(DATA, kernel=(5, 5), stride=(4, 2), pooling_convention="full"), "other", (0, 1)),
        # casts of amp
        (conv(HALF, weight=mx.sym.amp_cast(mx.sym.var("w"), dtype="float16")), "shifted", (-1, -1)),
        (conv(CAST[0], weight=CAST[1], pads=(0, 0)), "same", (0, 0)),
        # MXNet's old operators
        (old("Convolution_v1", num_filter=2, pad=(1, 1)), "shifted", (-1, -1)),
        (old("Pooling_v1", pool_type="max", pad=(1, 1)), "shifted", (-1, -1)),
        (average(pad=(1, 1)), "counts padding", (0, 0)),
        (average(pad=(1, 1), count_include_pad=None), "counts padding", (0, 0)),
        (average(mx.sym.pad(DATA, "constant", (0, 0, 0, 0, 1, 1, 1, 1))), "explicit", (0, 0)),
        # a transposed convolution that is told its size, and a file of Python 2
        (transposed(target_shape=(16, 20)), "shifted", (1, 1)),
        (mx.sym.Deconvolution(DATA, kernel=(3, 3), stride=(4000, 4000), num_filter=2, no_bias=True), "same", (0, 0)),
        (mx.sym.load_json(transposed(pad=(1, 1)).tojson().replace("(1, 1)", "(1L, 1L)")), "same", (0, 0)),
        (flip(conv(flip(DATA))), "unknown", (-1, -1)),
    ],
)
def test_status_and_shift_of_a_layer(symbol, status, shift):
    (layer,) = audit(symbol, (1, 2, 8, 10)).layers
    assert (layer.status, tuple(axis.shift for axis in layer.axes)) == (status, shift)


@pytest.mark.parametrize("kernel", [3, 4])
def test_a_slice_is_replaced_with_its_layer_or_stays_after_it(kernel):
    """One that gives a layer SAME's size belongs to it; a crop of a layer that has this size does not."""
    even = kernel == 4
    layer = conv(DATA, (kernel, kernel), (1, 1) if even else (2, 2), (kernel // 2,) * 2)
    crop = (slice(-1), slice(-1)) if even else (slice(1, 3), slice(1, 4))
    begin, end = ((each.start or 0 for each in crop), (each.stop for each in crop))
    symbol = mx.sym.slice(layer, begin=(None, None, *begin), end=(None, None, *end), name="cropped")
    generator, shape = np.random.RandomState(3), (2, 2, 8, 10)
    arrays = {"data": generator.normal(size=shape), "conv_weight": generator.normal(size=(2, 2, kernel, kernel))}
    report = audit(symbol, shape)
    assert [layer.status for layer in report.layers] == ["shifted"]
    want = mxsame.ops.conv(*map(mx.nd.array, arrays.values()), strides=1 if even else 2).asnumpy()
    want = want if even else want[(..., *crop)]
    assert difference(bound(symbol, arrays)[0], want) > 0.1
    assert difference(bound(report.fixed_symbol(), arrays)[0], want) < 1e-5
    assert report.fixed_symbol().list_outputs() == symbol.list_outputs()


def test_a_layer_on_a_later_part_of_the_data_is_fixed_for_its_own_size():
    generator, shape = np.random.RandomState(5), (2, 2, 8, 9)
    arrays = {"data": generator.normal(size=shape), "conv_weight": generator.normal(size=(2, 2, 3, 3))}
    fixed = audit(conv(mx.sym.split_v2(DATA, (5,), axis=3)[1]), shape).fixed_symbol()
    want = mxsame.ops.conv(mx.nd.array(arrays["data"][..., 5:]), mx.nd.array(arrays["conv_weight"]), strides=2)
    assert difference(bound(fixed, arrays)[0], want.asnumpy()) < 1e-5


def test_a_layer_that_is_called_twice_is_fixed_where_it_is_wrong():
    layer = gluon.nn.Conv2D(2, 3, 2, 1)  # whose weight the audited shape completes
    net = sequential(layer, layer)
    net.initialize()
    report = audit(net, (1, 2, 10, 10))
    assert [(layer.status, layer.axes[0].size) for layer in report.layers] == [("shifted", 10), ("same", 5)]
    data = mx.nd.random.normal(shape=(1, 2, 10, 10))
    ours = mxsame.nn.Conv2D(2, 3, 2, in_channels=2, params=layer.params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed = report.fix(net)
    assert difference(fixed(data).asnumpy(), ours(ours(data)).asnumpy()) < 1e-5
    with pytest.raises(ValueError, match=r"must be the block that was audited; received missing=\['conv"):
        report.fix(initialized(gluon.nn.Dense(2, in_units=3)))


def test_other_channels_last_and_groups_are_kept():
    generator = np.random.RandomState(3)
    arrays = {"data": generator.normal(size=(2, 4, 8, 10)), "conv_weight": generator.normal(size=(4, 2, 3, 3))}
    window = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "num_filter": 4, "name": "conv"}
    symbol = mx.sym.Convolution(DATA, num_group=2, **window)
    arrays["conv_bias"] = generator.normal(size=4)
    exact = audit(symbol, (2, 4, 8, 10)).fixed_symbol()
    data, weight, bias = map(mx.nd.array, arrays.values())
    want = mxsame.ops.conv(data, weight, bias, strides=2, groups=2).asnumpy()
    assert difference(bound(exact, arrays)[0], want) < 1e-5
    last = mx.sym.Convolution(DATA, layout="NHWC", **window)
    (layer,) = audit(last, (2, 8, 11, 4)).wrong
    assert [(axis.size, axis.shift) for axis in layer.axes] == [(8, -1), (11, 0)]


# ---- whole networks --------------------------------------------------------------------------------------------------


def mobile(layers, padding):
    """A small MobileNet of gluon.nn with symmetric padding, or of mxsame.nn."""
    net, channels = sequential(), 8
    net.add(layers.Conv2D(channels, 3, 2, padding(3), in_channels=3), gluon.nn.BatchNorm(in_channels=channels))
    for strides in (1, 2, 1, 2):
        net.add(layers.Conv2D(channels, 3, strides, padding(3), groups=channels, in_channels=channels, use_bias=False))
        net.add(gluon.nn.BatchNorm(in_channels=channels), gluon.nn.Activation("relu"))
        net.add(layers.Conv2D(2 * channels, 1, in_channels=channels), gluon.nn.Activation("relu"))
        channels *= 2
    net.add(layers.MaxPool2D(3, 2, padding(3)))
    output_padding = 1 if layers is gluon.nn else None  # the shape of SAME
    net.add(layers.Conv2DTranspose(4, 3, 2, padding(3), output_padding, in_channels=channels))
    return net


def with_parameters(net):
    return trained(net, (1, 3, 32, 32))


@pytest.mark.parametrize("size", [(32, 48), (33, 47)])
def test_a_fixed_mobile_net_gives_what_the_same_net_of_mxsame_gives(size):
    theirs = with_parameters(mobile(gluon.nn, lambda kernel: kernel // 2))
    ours = with_parameters(mobile(mxsame.nn, lambda kernel: "same"))
    data = mx.nd.random.normal(shape=(2, 3, *size))
    want = ours(data).asnumpy()
    assert difference(theirs(data).asnumpy(), want) > 0.05
    report = audit(theirs, (2, 3, *size))
    assert report.wrong
    block = report.fix(theirs)
    assert difference(block(data).asnumpy(), want) < 1e-5
    assert difference(block(data[:1]).asnumpy(), want[:1]) < 1e-5  # any batch
    with pytest.raises(ValueError, match=r"received shapes=.* accepts only data of shape \(None, 3, "):
        block(mx.nd.zeros((1, 3, 40, 40)))
    assert audit(block, (2, 3, *size)).wrong == ()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_exported_networks_of_mxsame_have_no_wrong_layer(rank, tmp_path):
    nn = mxsame.nn
    for number, (kernel, strides) in enumerate(itertools.product((2, 3, 4, 5), (1, 2, 3))):
        pools = (getattr(nn, f"{kind}Pool{rank}D")(kernel, strides) for kind in ("Max", "Avg"))
        net = initialized(sequential(getattr(nn, f"Conv{rank}D")(4, kernel, strides, in_channels=3), *pools))
        any_size, _ = mxsame.export(net, str(tmp_path / "any"))
        for size in (17, 18):
            shape = (1, 3, size, size - 1, size - 2)[: 2 + rank]
            symbol_file, _ = mxsame.export(net, str(tmp_path / f"net{number}"), shape)
            for audited in (symbol_file, any_size, net):
                report = audit(audited, shape)
                assert (len(report.layers), report.differing) == (3, ()), (audited, kernel, strides, size)


def test_layers_of_mxsame_are_what_they_were_built_as():
    nn, built = mxsame.nn, ["same"] * 9 + ["valid", "shifted", "counts padding"]
    net = sequential(nn.Conv2D(4, 3, 2), nn.Conv2D(4, 4), nn.DepthwiseConv2D(4, 2), nn.SeparableConv2D(4, (2, 4), 1))
    net.add(nn.Conv2DTranspose(4, 4, 3), nn.MaxPool2D(3, 2), nn.AvgPool2D(3, 2), nn.LpPool2D(3, 1))
    net.add(nn.Conv2D(4, 2, padding="valid"), nn.Conv2D(4, 3, 2, 1), nn.AvgPool2D(3, 2, count_include_pad=True))
    report = audit(initialized(net), (1, 3, 22, 20))
    assert [layer.status for layer in report.layers] == built
    assert [axis.pads == axis.same for layer in report.layers[:9] for axis in layer.axes] == [True] * 18
    with pytest.raises(ValueError, match=r'net must have padding="same", and count_include_pad=False, in its layers'):
        report.fixed_symbol()


def loops():
    """A layer before a loop, and others in a loop within a branch."""
    inner, conv2 = gluon.nn.MaxPool2D(3, 2, 1), gluon.nn.Conv2D(2, 3, 2, 1, in_channels=2)
    body = lambda F, x: F.contrib.foreach(lambda each, states: (inner(each), states), x, [])[0]  # noqa: E731
    branch = lambda F, x: F.contrib.cond(F.sum(x) > 0, lambda: body(F, x), lambda: body(F, 2 * x))  # noqa: E731
    return initialized(Own(lambda F, x, *_: branch(F, F.expand_dims(conv2(x), axis=0)), inner, conv2))


def fused():
    """A Symbol in which oneDNN has fused a convolution, a batch norm and an activation."""
    net = with_parameters(sequential(gluon.nn.Conv2D(2, 3, 2, 1), gluon.nn.BatchNorm(), gluon.nn.Activation("relu")))
    arrays: list = [{"data": mx.nd.zeros((1, 3, 8, 9))}, {}]
    for name, parameter in net.collect_params().items():
        arrays["running" in name][name] = parameter.data()
    return net(DATA).optimize_for("MKLDNN", *arrays), net


def test_what_is_in_loops_or_quantized_is_counted():
    report = audit(loops(), (1, 2, 8, 8))
    assert [layer.status for layer in report.layers] == ["shifted", *["not compared"] * 2]
    counted, rest = str(report).split(" differ from Keras's SAME for input (1, 2, 8, 8), ")
    assert counted == "1 of 3 convolution and pooling operators" and rest.startswith("2 not compared\n")
    assert [layer.operator for layer in report.not_compared] == ["Pooling"] * 2 and not report.layers[1].axes
    _, net = fused()
    quantized = quantize_net_v2(
        net, data_shapes=[mx.io.DataDesc("data", (1, 3, 8, 8))], calib_mode="none", ctx=mx.cpu()
    )
    assert [layer.status for layer in audit(quantized, (1, 3, 8, 8)).layers] == ["not compared"]


def test_what_onednn_has_fused_is_compared_and_fixed():
    symbol, net = fused()
    assert "_sg_mkldnn_conv" in symbol.tojson()
    report, data = audit(symbol, (1, 3, 8, 9)), mx.nd.random.normal(shape=(1, 3, 8, 9))
    assert [(layer.status, layer.accumulated) for layer in report.layers] == [("shifted", (-1, 0))]
    got = gluon.SymbolBlock(report.fixed_symbol(), DATA, params=net.collect_params())(data)
    want = net[2](net[1](mxsame.nn.Conv2D(2, 3, 2, in_channels=3, params=net[0].params)(data)))
    assert difference(got.asnumpy(), want.asnumpy()) < 1e-5


def test_a_net_in_np_mode():
    with mx.util.np_shape(True), mx.util.np_array(True):
        net = initialized(sequential(gluon.nn.Conv2D(2, 3, 2, 1), mxsame.nn.MaxPool2D(3, 2)))
        data = mx.np.random.normal(size=(1, 3, 8, 9))
        net(data)
        report = audit(net, data.shape)
        assert [layer.status for layer in report.layers] == ["shifted", "same"]
        block = gluon.SymbolBlock(report.fixed_symbol(), mx.sym.var("data").as_np_ndarray(), net.collect_params())
        want = net[1](mxsame.nn.Conv2D(2, 3, 2, in_channels=3, params=net[0].params)(data))
        assert difference(block(data).asnumpy(), want.asnumpy()) < 1e-5


def test_what_is_accumulated_is_what_a_ramp_shows():
    """Layers that read the first element of every window: the output of a ramp is where they read."""
    windows = ((3, 2), (5, 1), (7, 2), (3, 2))
    layers = (gluon.nn.Conv1D(1, k, strides, k // 2, in_channels=1, use_bias=False) for k, strides in windows)
    net = initialized(sequential(*layers))
    for parameter in net.collect_params().values():
        kernel = np.zeros(parameter.shape)
        kernel[..., 0] = 1
        parameter.set_data(mx.nd.array(kernel))
    ramp = mx.nd.arange(128).reshape((1, 1, 128))
    report = audit(net, ramp.shape)
    fixed = report.fix(net)
    apart = (net(ramp) - fixed(ramp)).asnumpy()[0, 0, 6:-3]
    assert set(apart) == {report.outputs[next(iter(report.outputs))][0]} == {-1.0 - 2.0 - 4.0}


def test_branches_and_transposed_convolutions_add_up():
    up = transposed(conv(DATA, name="down"), pad=(1, 1), adj=(1, 1))
    report = audit(up + DATA, (1, 2, 8, 8))
    assert [(layer.name, layer.accumulated) for layer in report.layers] == [("down", (-1.0, -1.0)), ("up", (0.0, 0.0))]
    assert [axis.shift for axis in report.layers[1].axes] == [1, 1]


def test_several_inputs_and_outputs():
    one, other = mx.sym.var("one"), mx.sym.var("other")
    symbol = mx.sym.Group([conv(one, name="first"), conv(other, name="second")])
    report = audit(symbol, {"one": (1, 2, 8, 8), "other": (1, 2, 9, 9)})
    assert [layer.status for layer in report.layers] == ["shifted", "same"]
    assert report.outputs == {"first_output": (-1.0, -1.0), "second_output": (0.0, 0.0)}
    net = Own(lambda F, one, other: F.Pooling(one, kernel=(3, 3), stride=(2, 2), pad=(1, 1)))  # without the second
    report = audit(net, [(1, 2, 8, 8), (1, 3)])
    assert report.shapes == {"data0": (1, 2, 8, 8)} and [layer.status for layer in report.layers] == ["shifted"]
    with pytest.raises(ValueError, match=r"given for every input, by name.*second"):
        audit(symbol, {"one": (1, 2, 8, 8)})
    with pytest.raises(ValueError, match=r"of an input of the network, such as 'one'; received name='third'"):
        audit(symbol, {"third": (1, 2, 8, 8)})


def test_a_layer_of_another_shape_is_shown_and_not_fixed(tmp_path):
    symbol = conv(conv(DATA, (4, 4), (1, 1), (2, 2), "first"), name="shifted")
    report = audit(symbol, (1, 2, 7, 9))
    assert [layer.status for layer in report.differing] == ["other", "shifted"]
    assert [layer.name for layer in report.wrong] == ["shifted"]
    assert str(report).startswith("2 of 2 ") and str(report).endswith("the audit does not fix it.")
    symbol.save(str(tmp_path / "net-symbol.json"))
    fixed = invoke(tmp_path / "net-symbol.json", "--shape", "1,2,7,9", "--fix", tmp_path / "exact")
    left = invoke(tmp_path / "exact-symbol.json", "--shape", "1,2,7,9")
    assert fixed.exit_code == left.exit_code == 1 and left.output.splitlines()[2].split()[-1] == "other"


def test_the_table_names_layers_and_what_to_do():
    text = repr(audit(conv(DATA), (1, 2, 8, 9)))
    assert text.startswith("1 of 1 convolution and pooling operators differ from Keras's SAME for input (1, 2, 8, 9)\n")
    assert "(1,0) (1,1)  (0,1) (1,1)  -1 +0" in text
    assert text.splitlines()[1].endswith("accumulated  status")
    assert "off by -1 and +0 pixels" in text and "mxsame audit --fix" in text
    assert str(audit(conv(DATA), (1, 2, 9, 9))).count("\n") == 0


# ---- wrong arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "shape", "error", "message"),
    [
        (3, (1, 2, 8, 8), TypeError, "net must be a gluon.HybridBlock, a Symbol or the path"),
        (
            Own(lambda F, x: x * x.shape[2]),
            (1, 2, 8),
            TypeError,
            "net must consist of HybridBlocks .*; received 'Sym",
        ),
        ("no-symbol.json", (1, 2), FileNotFoundError, "net must be a file that can be read; received .*: No such file"),
        (conv(DATA), 8, TypeError, "shape must be a sequence of integers"),
        (conv(DATA), (1, 2, 0, 8), ValueError, r"shape\[2\] must be an integer >= 1"),
        (conv(DATA), (1, 2, 8), ValueError, "net must run on data of this shape"),
        (gluon.nn.MaxPool2D(4), (1, 8, 8, 3), ValueError, r"operator pool.*: kernel size \(4\) exceeds input"),
    ],
)
def test_wrong_arguments(net, shape, error, message):
    with pytest.raises(error, match=message):
        audit(net, shape)


def broken(change):
    """A Symbol's file after `change(what it holds)`."""
    read = json.loads(conv(DATA).tojson())
    change(read)
    return json.dumps(read)


@pytest.mark.parametrize(
    "text",
    [
        "a network",
        "{}",
        "[" * 100_000,
        broken(lambda read: read["nodes"][2].update(op="NoSuchOperator")),
        broken(lambda read: read["nodes"][2].update(op=3)),
        *(broken(lambda read, n=n: read["nodes"][2].update(inputs=[[n, 0, 0]])) for n in (7, 2, -1, "data")),
        broken(lambda read: read["nodes"][2]["attrs"].update(kernel="(0, 3)")),
        broken(lambda read: read["nodes"][2].update(inputs=[[0, 9, 0], [1, 0, 0]])),  # MXNet would end the process
        broken(lambda read: read.update(heads=[[99, 0, 0]])),
        broken(lambda read: read.update(arg_nodes=[99])),
    ],
)
def test_broken_files_are_refused(text, tmp_path):
    path = tmp_path / "net-symbol.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"net must (be a -symbol.json file of MXNet|run on data of this shape)"):
        audit(path, (1, 2, 8, 8))


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    """The folder of a network's files, net-symbol.json and net-0000.params."""
    net = with_parameters(mobile(gluon.nn, lambda kernel: kernel // 2))
    net.hybridize()
    net(mx.nd.zeros((1, 3, 32, 32)))
    net.export(str(tmp_path / "net"))
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(cli.main, ["audit", *map(str, arguments)])


def test_command_lists_and_fixes(saved):
    file = saved / "net-symbol.json"
    listed = invoke(file, "--shape", "1,3,32,48")
    assert listed.exit_code == 1 and "shifted" in listed.output and "off by" in listed.output
    fixed = invoke(file, "--shape", "1,3,32,48", "--fix", saved / "exact")
    written = [f"written: {saved / 'exact'}{end}" for end in ("-symbol.json", "-0000.params")]
    assert fixed.exit_code == 0 and fixed.output.splitlines()[-2:] == written and "--fix" not in fixed.output
    again = invoke(saved / "exact-symbol.json", "--shape", "1,3,32,48", "--json")
    assert again.exit_code == 0 and json.loads(again.output)["wrong"] == []
    block = gluon.SymbolBlock.imports(f"{saved / 'exact'}-symbol.json", ["data"], f"{saved / 'exact'}-0000.params")
    ours = with_parameters(mobile(mxsame.nn, lambda kernel: "same"))
    data = mx.nd.random.normal(shape=(1, 3, 32, 48))
    assert difference(block(data).asnumpy(), ours(data).asnumpy()) < 1e-5


def test_command_prints_json(saved):
    report = json.loads(invoke(saved / "net-symbol.json", "--shape", "data=1,3,32,48", "--json").output)
    assert set(report) == {"file", "shapes", "wrong", "differing", "outputs", "fixed", "layers"}
    assert report["shapes"] == {"data": [1, 3, 32, 48]} and report["fixed"] is None
    first = report["layers"][0]
    assert set(first) == {"name", "operator", "status", "axes", "accumulated"} and first["status"] == "shifted"
    assert first["axes"][0] == dataclasses.asdict(Axis(32, 16, 3, 2, 1, [1, 0], [0, 1], -1))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["FILE"], 2, "Missing option '--shape'"),
        (["no-symbol.json", "--shape", "1,3,8,8"], 2, "does not exist"),
        (["FILE", "--shape", "1,3,big,8"], 2, "or integers with commas between"),
        (["FILE", "--shape", "1,3,8,8", "--shape", "1,3,8,8"], 2, "must have a different NAME="),
        (["FILE", "--shape", "other=1,3,8,8"], 2, "--shape must be of an input of the network"),
        (["FILE", "--shape", "3,32,48"], 2, "expects data with 4 axes (batch first), but receives 3"),
        (["FILE", "--shape", "1,3,32,32", "--fix", "no/such/folder/net"], 2, "does not exist"),
        (["FILE", "--shape", "1,3,32,32", "--fix", "ITSELF"], 2, "must not be the name of the network itself"),
        (["FILE", "--shape", "1,3,32,32", "--fix", "FOLDER"], 2, "/' must end in the name of a file"),
        (["PARAMS", "--shape", "1,3,32,32"], 1, "params': it is not JSON"),
        (["KERAS", "--shape", "1,8,8,1"], 1, "digits.h5': what mxsame convert makes of it pads as Keras does"),
    ],
)
def test_command_refuses(saved, arguments, code, message):
    names = {"FILE": saved / "net-symbol.json", "PARAMS": saved / "net-0000.params", "ITSELF": saved / "net"}
    names.update(KERAS=mxsame.sample("digits"), FOLDER=f"{saved}/")
    result = invoke(*(names.get(argument, argument) for argument in arguments))
    assert result.exit_code == code and message in result.output
