"""Models of keras-mxnet 2.2.4.3 from recorded files (golden/make_keras_mxnet.py): they give what keras-mxnet gave.

tests/keras_mxnet compares with keras-mxnet itself.
"""

import json

import make_keras_mxnet as making
import numpy as np
import pytest
from configurations import model_of, stacked
from running import difference, from_files

import mxsame
from mxsame._mxnet import mx

h5py = pytest.importorskip("h5py", reason='h5py is not installed (pip install "mxsame[keras]")')

NAMES = [f"stack-{seed}" for seed in making.SEEDS] + [f"nested-{form}" for form in making.FORMATS]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stacks")
    arrays, names = making.load_stacks(folder)
    assert sorted(names) == sorted(NAMES)
    return folder, arrays


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_keras_mxnet(recorded, name, tmp_path):
    folder, arrays = recorded
    data, wanted = mx.nd.array(arrays[f"{name}/input"]), arrays[f"{name}/output"]
    net = mxsame.from_keras(folder / f"{name}.h5", padding="keras-mxnet")
    assert difference(net(data).asnumpy(), wanted) < 1e-5
    for shape in (data.shape, None):
        assert difference(from_files(net, tmp_path, shape)(data).asnumpy(), wanted) < 1e-5
    assert difference(mxsame.deploy(net, data.shape)(data).asnumpy(), wanted) < 1e-5
    assert difference(mxsame.hybridize(net)(data).asnumpy(), wanted) < 1e-5


def test_the_padding_of_tensorflow_gives_other_values(recorded):
    folder, arrays = recorded
    for name in NAMES:
        plain = mxsame.from_keras(folder / f"{name}.h5")(mx.nd.array(arrays[f"{name}/input"])).asnumpy()
        wanted = arrays[f"{name}/output"]
        assert plain.shape != wanted.shape or difference(plain, wanted) > 1e-2, name


def test_weights_go_back_as_keras_mxnet_stores_them(recorded, tmp_path):
    folder, _ = recorded
    for form in making.FORMATS:
        source, back = folder / f"nested-{form}.h5", tmp_path / f"{form}.h5"
        mxsame.to_keras_weights(mxsame.from_keras(source, padding="keras-mxnet"), back)
        with h5py.File(source, "r") as theirs, h5py.File(back, "r") as ours:
            assert ours.attrs["backend"] in ("mxnet", b"mxnet")
            for layer in ours.attrs["layer_names"]:
                group = theirs["model_weights"][layer]
                pairs = list(zip(ours[layer].attrs["weight_names"], group.attrs["weight_names"]))
                assert len(pairs) == len(group.attrs["weight_names"]) == len(ours[layer].attrs["weight_names"])
                for mine, his in pairs:
                    np.testing.assert_array_equal(ours[layer][mine][()], group[his][()])


# -- what is refused


def read(*layers, shape=(3, 8, 8)):
    """The network of layers without weights, after an input of channels first."""
    first = {"data_format": "channels_first"}
    entries = stacked([(name, {**(first if "2D" in name else {}), **config}) for name, config in layers])
    return mxsame.from_keras(json.dumps(model_of(*entries, shapes=[shape])), padding="keras-mxnet")


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, None, 8)])
def test_an_array_with_one_element_more_than_keras_mxnet_believes(shape):
    longer = ("MaxPooling2D", {"pool_size": [2, 2], "strides": [1, 1], "padding": "same"})
    with pytest.raises(ValueError, match=r"'maxpooling2d_1' \(MaxPooling2D\): .*keras-mxnet has one more for an"):
        read(("ReLU", {}), longer, shape=shape)


def test_layers_for_every_step_in_time():
    inner = {"class_name": "ReLU", "config": {"name": "relu"}}
    with pytest.raises(ValueError, match=r"layer 'timedistributed_0' .*not with padding=keras-mxnet"):
        read(("TimeDistributed", {"layer": inner}))
