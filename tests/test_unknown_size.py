"""One graph for every size: layers in an ordinary parent that is hybridized once, and a file that needs no mxsame."""

import pytest
from running import Own, assert_equal, from_files, initialized, outputs_without_mxsame, sequential

import mxsame
from mxsame._mxnet import mx
from mxsame.scope import Target, building

gluon = mx.gluon
SIZES = [(17, 22), (18, 21), (19, 13), (24, 24), (9, 31)]


# ---- every layer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["MaxPool2D", "AvgPool2D"])
def test_windows_of_two_on_one_element(op):
    """In a graph for every size MXNet refuses it, in words that name both numbers; every other way takes it."""
    data = mx.nd.random.normal(shape=(1, 8, 5, 1))
    net = sequential(getattr(mxsame.nn, op)(2))
    wanted = net(data).asnumpy()
    assert_equal(mxsame.hybridize(net)(data), wanted)
    net.hybridize()
    assert_equal(net(data.tile((1, 1, 1, 2))), wanted)
    with pytest.raises(mx.base.MXNetError, match=r"kernel size \(2\) exceeds input \(1 padded to 1\)"):
        net(data).wait_to_read()


def test_a_graph_without_another_takes_one_element():
    """As one of keras-mxnet, whose model is built once."""
    data = mx.nd.random.normal(shape=(1, 8, 5, 1))
    with building(Target("inference", "cpu"), is_only_graph=True):
        symbol = mxsame.ops.max_pool(mx.sym.var("data"), 2, layout="NCHW")
    assert_equal(symbol.eval(data=data)[0], mxsame.ops.max_pool(data, 2).asnumpy())


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", ["MaxPool{}D", "AvgPool{}D"])
def test_a_file_for_any_size_takes_one_element(op, rank, tmp_path):
    """Windows of two, and others: a file has no other graph to go to."""
    layers = [getattr(mxsame.nn, op.format(rank))(*window) for window in ((2, 2), (3, 2), (2, 3), (4, 2))]
    for pool in layers:
        net = from_files(pool, tmp_path)
        for size in ((1, 4, 1), (2, 1, 3), (5, 5, 1)):
            data = mx.nd.random.normal(shape=(2, 3, *size[:rank]))
            assert_equal(net(data), pool(data).asnumpy(), what=f"{pool}, {size}")


@pytest.mark.parametrize("op", ["MaxPool2D", "AvgPool2D"])
def test_data_that_is_too_short_for_a_window_is_refused(op, tmp_path):
    """A partial window counts only after a whole one, as in gluon.nn: in every way, whatever the graph is for."""
    pool = getattr(mxsame.nn, op)(3, 2, padding="valid", ceil_mode=True)
    loaded, long, short = from_files(pool, tmp_path), *(mx.nd.random.normal(shape=(1, 8, n, n)) for n in (4, 2))
    hybridized = sequential(pool)
    hybridized.hybridize()
    for net in (hybridized, loaded):
        assert_equal(net(long), pool(long).asnumpy())
        with pytest.raises(mx.base.MXNetError, match=r"kernel size \(3\) exceeds input \(2 padded to 2\)"):
            net(short).wait_to_read()
    with pytest.raises(ValueError, match="at least as long as the kernel"):
        pool(short)


# ---- a whole network -------------------------------------------------------------------------------------------------


def test_an_exported_network_needs_no_mxsame(tmp_path):
    """Two files of every layer, loaded where mxsame cannot be imported, right at five sizes."""
    net = sequential(
        *(mxsame.nn.Conv2D(6, (3, 4), (2, 3), use_bias=False), gluon.nn.BatchNorm(), gluon.nn.Activation("relu")),
        *(mxsame.nn.MaxPool2D((3, 2), (2, 1)), mxsame.nn.DepthwiseConv2D((3, 2), (2, 1), depth_multiplier=2)),
        *(mxsame.nn.SeparableConv2D(4, (2, 5), (1, 2)), mxsame.nn.Conv2DTranspose(5, (3, 2), (2, 3))),
        *(mxsame.nn.AvgPool2D((2, 3), 2), mxsame.nn.LpPool2D(2, 1), mxsame.nn.Conv2D(3, 3, 2)),
    )
    initialized(net, 1)
    pictures = [mx.nd.random.normal(shape=(2, 3, *size)) for size in SIZES]
    wanted = [net(picture).asnumpy() for picture in pictures]
    net.hybridize()
    net(pictures[0])
    net.export(str(tmp_path / "net"))
    files = str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params")
    for size, out, want in zip(SIZES, outputs_without_mxsame(files, pictures, tmp_path), wanted):
        assert_equal(out, want, what=str(size))


def test_the_shape_of_lengthened_data_is_inferred_at_once():
    """MXNet's Pooling refuses a length that is not known when it is asked first, its pad operator a rank."""
    net = sequential(mxsame.nn.MaxPool2D(3, 2), gluon.nn.ReflectionPad2D(1), gluon.nn.MaxPool2D(2))
    pictures = [mx.nd.random.normal(shape=(2, 3, *size)) for size in SIZES]
    wanted = [net(picture).asnumpy() for picture in pictures]
    net.hybridize()
    for picture, want in zip(pictures, wanted):
        assert_equal(net(picture), want, what=str(picture.shape))


LOOPS = {
    "foreach": lambda F, x, *layers: F.contrib.foreach(lambda each, states: (chained(each, layers), states), x, [])[0],
    "cond": lambda F, x, *layers: branched(F, F.reshape(x, shape=(-3, -2)), layers),
}


def branched(F, x, layers):
    return F.contrib.cond(F.sum(x) > 0, lambda: chained(x, layers), lambda: chained(2 * x, layers))


def chained(data, layers):
    for layer in layers:
        data = layer(data)
    return data


@pytest.mark.parametrize("kind", LOOPS)
def test_the_body_of_a_loop(kind, tmp_path):
    """MXNet does not infer the shape of lengthened data in a graph inside a graph."""
    nn, shape = mxsame.nn, (2, 2, 3, 9, 8)
    net = initialized(Own(LOOPS[kind], nn.MaxPool2D(3, 2), nn.Conv2D(4, 3, 2, in_channels=3), nn.LpPool2D(3, 2)), 1)
    data = mx.nd.random.uniform(0.1, 1, shape=shape)
    want = net(data).asnumpy()
    assert_equal(from_files(net, tmp_path)(data), want, what="export")
    assert_equal(mxsame.deploy(net, shape)(data), want, what="deploy")
    for hybridize in (net.hybridize, lambda: mxsame.hybridize(net)):
        hybridize()
        assert_equal(net(data), want)


# ---- channels that the graph shows -----------------------------------------------------------------------------------


def resized(factor):
    """A net that makes its data smaller and larger by this factor, and concatenates both; then a depthwise layer."""

    def forward(F, x, conv, layer):
        x = conv(x)
        small = F.Pooling(x, kernel=(factor, factor), stride=(factor, factor))
        return layer(F.concat(x, F.UpSampling(small, scale=factor, sample_type="nearest"), dim=1))

    return Own(forward, mxsame.nn.Conv2D(4, 3), mxsame.nn.DepthwiseConv2D(3, depth_multiplier=2))


def cropped():
    """Unpadded convolutions, and a crop of what goes around them: for sizes of 2 modulo 4 only."""

    def forward(F, x, before, within, layer):
        x = before(x)
        inner = F.UpSampling(within(F.Pooling(x, kernel=(2, 2), stride=(2, 2))), scale=2, sample_type="nearest")
        around = F.slice(x, begin=(None, None, 2, 2), end=(None, None, -2, -2))
        return layer(F.concat(around, inner, dim=1))

    return Own(forward, *(mxsame.nn.Conv2D(4, 3, padding="valid") for _ in range(2)), mxsame.nn.SeparableConv2D(5, 3))


def conditional(**given):
    """A vector that scales the channels of a picture."""

    def forward(F, x, v, conv, dense, layer):
        return layer(F.broadcast_mul(conv(x), F.reshape(dense(v), shape=(0, -1, 1, 1))))

    return Own(forward, mxsame.nn.Conv2D(4, 3), gluon.nn.Dense(4, **given), mxsame.nn.DepthwiseConv2D(3))


CHANNELS_SHOWN = {
    "halves": (lambda: resized(2), [(2, 3, 8, 12)]),
    "thirds": (lambda: resized(3), [(2, 3, 9, 6)]),
    "cropped": (cropped, [(2, 3, 18, 14)]),
    "vector": (conditional, [(2, 3, 8, 9), (2, 5)]),
    "vector of known length": (lambda: conditional(in_units=5), [(2, 3, 8, 9), (2, 5)]),
}


@pytest.mark.parametrize("name", CHANNELS_SHOWN)
def test_channels_that_a_graph_for_any_size_shows(name):
    make, shapes = CHANNELS_SHOWN[name]
    net, data = initialized(make(), 1), [mx.nd.random.normal(shape=shape) for shape in shapes]
    net.hybridize()
    hybridized = net(*data)
    net.hybridize(False)
    assert_equal(hybridized, net(*data).asnumpy())
