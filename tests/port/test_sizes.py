"""Networks take the lengths that the Keras model declares, and any where it declares none: arrays of others are refused
by the net and by every graph made of it. MXNet's Reshape would read beyond them."""

import json

import numpy as np
import pytest
from configurations import model_of, stacked
from running import from_files

import mxsame
from mxsame._mxnet import mx
from mxsame.port import blocks, report
from mxsame.port.recurrent import Options, Recurrent

REFUSED = (ValueError, mx.base.MXNetError)
WORDS = r"must have the shape that the Keras model was built for|must_be_|Split dims"


def read(layers, *shapes, **arguments):
    """The network of a stack of layers; several inputs are added before the first one."""
    entries = stacked([("Add", {})] * (len(shapes) > 1) + [*layers])
    return mxsame.from_keras(json.dumps(model_of(*entries, shapes=shapes)), **arguments)


def data(*shape):
    return mx.nd.array(np.arange(np.prod(shape), dtype="float32").reshape(shape))


def gluon_hybridize(net):
    net.hybridize()


def in_a_parent(net):
    """As a layer of a hybridized block: Symbols are all that it sees."""
    outer = mx.gluon.nn.HybridSequential()
    outer.add(net)
    outer.hybridize()
    return outer


HOW = {
    "imperative": lambda net, tmp_path: net,
    "mxsame.hybridize": lambda net, tmp_path: mxsame.hybridize(net),
    "many graphs": lambda net, tmp_path: mxsame.hybridize(net, max_graphs=1),
    "net.hybridize": lambda net, tmp_path: gluon_hybridize(net) or net,
    "in a parent": lambda net, tmp_path: in_a_parent(net),
    "parent of mxsame.hybridize": lambda net, tmp_path: mxsame.hybridize(in_a_parent(net)),
    "file": from_files,
}
RESHAPED = [("ReLU", {}), ("Reshape", {"target_shape": [12, 6]})]
POOLED = [("MaxPooling2D", {"pool_size": [2, 2], "padding": "same"})]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("layers", [RESHAPED, POOLED], ids=["reshaped", "pooled"])
def test_static_lengths_are_enforced(layers, how, tmp_path):
    net = HOW[how](read(layers, (4, 6, 3)), tmp_path)
    wanted = net(data(2, 4, 6, 3)).asnumpy()
    for shape in ((3, 5, 7, 3), (2, 6, 4, 3), (2, 4, 6, 6), (1, 5, 6, 3)):
        with pytest.raises(REFUSED, match=WORDS):
            net(data(*shape)).wait_to_read()
    np.testing.assert_array_equal(net(data(2, 4, 6, 3)).asnumpy(), wanted)
    assert net(data(5, 4, 6, 3)).shape[0] == 5


@pytest.mark.parametrize(
    "how", [how for how in HOW if how not in ("in a parent", "parent of mxsame.hybridize", "file")]
)
def test_arrays_are_refused_with_both_shapes(how, tmp_path):
    message = r"must have the shape .* here \(None, 3, 4, 6\); received data.shape=\(2, 3, 5, 6\)"
    net = HOW[how](read(POOLED, (4, 6, 3), layout="NCHW"), tmp_path)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            net(data(2, 3, 5, 6))
        assert net(data(2, 3, 4, 6)).shape == (2, 3, 2, 3)


def test_graphs_and_files_of_a_net_refuse_other_lengths(tmp_path):
    net, given = read(RESHAPED, (4, 6, 3)), data(1, 5, 7, 3)
    message = r"must have the shape .* here \(None, 4, 6, 3\); received data.shape=\(1, 5, 7, 3\)"
    for use in (
        lambda: list(net.layers(given)),
        lambda: report.layer_rows(net, [given]),
        lambda: mxsame.deploy(net, given.shape),
        lambda: mxsame.export(net, str(tmp_path / "net"), given.shape),
    ):
        with pytest.raises(ValueError, match=message):
            use()
    assert mxsame.deploy(net, (1, 4, 6, 3))(data(1, 4, 6, 3)).shape == (1, 12, 6)
    with pytest.raises(TypeError, match=r"data must be an NDArray .*; received data of type numpy\.ndarray"):
        net(np.zeros((1, 4, 6, 3)))


def test_a_net_is_printed_with_the_names_of_its_layers():
    lines = repr(read(RESHAPED, (4, 6, 3))).split("\n")
    assert lines[0] == "Network(" and lines[-1] == ")"
    names = [line.split(":")[0] for line in lines[1:-1]]
    assert names == [f"  ({name.lower()}_{number})" for number, (name, _) in enumerate(RESHAPED)]
    dense = blocks.Function(blocks.dense, shapes={"weight": (5, 3), "bias": (5,)}, units=5)
    assert repr(dense) == "dense(3 -> 5)" and repr(Recurrent("LSTM", 4, 3, Options())) == "Recurrent(3 -> 4, LSTM)"


def test_each_of_several_inputs():
    net = read(RESHAPED, (4, 6, 3), (4, 6, 3))
    assert net(data(2, 4, 6, 3), data(2, 4, 6, 3)).shape == (2, 12, 6)
    for hybridize in (lambda net: None, gluon_hybridize, mxsame.hybridize):
        hybridize(net)
        with pytest.raises(ValueError, match=r"\(None, 4, 6, 3\); received data.shape=\(2, 6, 4, 3\)"):
            net(data(2, 4, 6, 3), data(2, 6, 4, 3))
        with pytest.raises(TypeError, match="must be called with 2 inputs; received 1"):
            net(data(2, 4, 6, 3))


@pytest.mark.parametrize("how", HOW)
def test_dynamic_lengths_stay_dynamic(how, tmp_path):
    net = HOW[how](read(POOLED, (None, 6, 3)), tmp_path)
    for height in (3, 8, 5):
        assert net(data(2, height, 6, 3)).shape == (2, (height + 1) // 2, 3, 3)
    for shape in ((2, 4, 7, 3), (2, 4, 6, 4)):
        with pytest.raises(REFUSED, match=WORDS):
            net(data(*shape)).wait_to_read()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("target", "right", "wrong"),
    [
        ([24, 3], [(4, 6), (8, 3), (2, 12)], [(5, 7), (4, 5), (1, 1)]),
        ([-1, 9], [(4, 6), (5, 3), (1, 3)], [(5, 7), (4, 5), (1, 1)]),
        ([2, -1, 3], [(4, 6), (1, 2), (2, 5)], [(5, 7), (3, 5), (1, 1)]),
    ],
)
def test_reshape_keeps_all_elements_of_dynamic_data(target, right, wrong, how, tmp_path):
    net = HOW[how](read([("ReLU", {}), ("Reshape", {"target_shape": target})], (None, None, 3)), tmp_path)
    for size in right:
        given = data(2, *size, 3)
        np.testing.assert_array_equal(net(given).asnumpy(), given.asnumpy().reshape(2, *target))
    for size in wrong:
        with pytest.raises(REFUSED, match=r"data must have elements for|Split dims"):
            net(data(2, *size, 3)).wait_to_read()


@pytest.mark.parametrize("how", HOW)
def test_reshape_after_a_layer_whose_plan_is_the_same_for_a_wrong_size(how, tmp_path):
    layers = [*POOLED, ("Reshape", {"target_shape": [6, 3]})]
    net = HOW[how](read(layers, (None, None, 3)), tmp_path)
    for _ in range(2):
        assert net(data(2, 4, 6, 3)).shape == (2, 6, 3)
        with pytest.raises(REFUSED, match=r"data must have elements for|Split dims|InferShape"):
            net(data(2, 8, 6, 3)).wait_to_read()


class Strided(mx.gluon.HybridBlock):
    """A step of 64 in both directions: of short axes one element is left, whatever their length."""

    def hybrid_forward(self, F, x):
        return F.slice(x, begin=(None, None, None, None), end=(None, None, None, None), step=(1, 64, 64, 1))


def test_a_custom_block_of_large_strides_keeps_dynamic_lengths():
    layers = [("Strange", {}), ("MaxPooling2D", {"pool_size": [1, 1]}), ("UnitNormalization", {}), ("Flatten", {})]
    net = read(layers, (None, None, 3), custom={"Strange": lambda config, weights: Strided()})
    given = data(1, 100, 70, 3)
    left = given.asnumpy()[:, ::64, ::64]
    wanted = (left / np.linalg.norm(left, axis=-1, keepdims=True)).reshape(1, -1)
    np.testing.assert_allclose(net(given).asnumpy(), wanted, rtol=1e-5)
