"""Networks from recorded model files of tf.keras 2.13 and Keras 3: what they give is what those Kerases gave."""

import json
import re
import warnings

import keras_networks
import keras_recording
import numpy as np
import pytest
import test_keras_3
from configurations import entry, model_of, stacked
from expressions import MODELS
from keras_recording import numbered
from running import difference, outputs

import mxsame
from mxsame._mxnet import mx
from mxsame.port import reading
from mxsame.port.converters import LAYERS, OPERATORS
from mxsame.port.table import operator_name

pytestmark = pytest.mark.filterwarnings("ignore:layer '(random|spectral)_:UserWarning")
h5py = pytest.importorskip("h5py", reason='h5py is not installed (pip install "mxsame[keras]")')

TOLERANCE = 1e-5  # right values differ by less, shifted ones by 0.01 and more
BOTH_FORMATS = ("both_formats", "pooling_layers_1d")


def sources(keras, network):
    """(file, weights file or None): every way in which the network is recorded."""
    endings = keras_recording.formats(keras, network)
    whole = [(f"{network}{ending}", None) for ending in endings if ending in keras_recording.WHOLE]
    weights = [f"{network}{ending}" for ending in endings if ending in keras_recording.WEIGHTS]
    return [*whole, *((f"{network}.json", file) for file in weights)]


CASES = [
    pytest.param(keras, network, *source, id="-".join([keras, *filter(None, source)]))
    for keras in keras_recording.ALL_FORMATS
    for network in keras_recording.names()
    for source in sources(keras, network)
]
WHOLE = [  # one for each network that has one data format
    case for case in CASES if case.values[2] == sources(*case.values[:2])[0][0] and case.values[1] not in BOTH_FORMATS
]

WEIGHTS_FILES = [case for case in CASES if (case.values[3] or "").endswith(".weights.h5")]


def read(folder, *files, **arguments):
    """The network of recorded files."""
    return mxsame.from_keras(*(str(folder / name) for name in files if name), **arguments)


def assert_all_close(got, want):
    assert [array.shape for array in got] == [array.shape for array in want]
    worst = {position: difference(*pair) for position, pair in enumerate(zip(got, want))}
    assert {position: value for position, value in worst.items() if not value < TOLERANCE} == {}


@pytest.mark.parametrize(("keras", "network", "file", "weights"), CASES)
def test_outputs_are_those_of_keras(recorded, keras, network, file, weights):
    folder, arrays = recorded[keras]
    net = read(folder, file, weights)
    given, want = numbered(arrays, f"{network}/input"), numbered(arrays, f"{network}/output")
    assert_all_close(outputs(net, *given), want)
    assert_all_close(outputs(mxsame.hybridize(net), *given), want)


@pytest.mark.parametrize(("keras", "network", "file", "weights"), WHOLE)
def test_channels_first_takes_and_gives_the_same_transposed(recorded, keras, network, file, weights):
    """With layout="NCHW" pictures, (N, H, W, C) in Keras, are taken and given as (N, C, H, W); the relatives of that
    likewise. A layout of as many axes as no input and no output has is refused."""
    folder, arrays = recorded[keras]
    given, want = numbered(arrays, f"{network}/input"), numbered(arrays, f"{network}/output")
    ranks = {array.ndim for array in (*given, *want)}
    for rank, layout in ((3, "NCW"), (4, "NCHW"), (5, "NCDHW")):
        if rank not in ranks:
            with pytest.raises(ValueError, match="layout must have as many axes as an input or an output"):
                read(folder, file, weights, layout=layout)
    rank = min(max(ranks), 5)
    if rank < 3:
        return
    if network.endswith("_channels_first"):
        turned = lambda array: array  # noqa: E731 - Keras has them channels first
    else:
        turned = lambda array: keras_networks.channels_first(array) if array.ndim == rank else array  # noqa: E731
    net = read(folder, file, weights, layout=("NCW", "NCHW", "NCDHW")[rank - 3])
    assert_all_close(outputs(net, *map(turned, given)), list(map(turned, want)))


def test_a_layout_is_refused_for_a_model_of_both(recorded):
    folder, _ = recorded["keras2"]
    with pytest.raises(ValueError, match=r"both data formats; received layout='NCHW'"):
        mxsame.from_keras(str(folder / "both_formats.h5"), layout="NCHW")


def test_layers_are_compared_with_recorded_outputs(recorded):
    """Inputs are in Keras's order, whatever the layout of the net is; a wrong weight shows in all layers after it."""
    folder, arrays = recorded["keras2"]
    given, (want,) = numbered(arrays, "sequential/input"), numbered(arrays, "sequential/output")
    for layout in (None, "NCHW"):
        net = read(folder, "sequential.h5", layout=layout)
        last = net.description.outputs[0].layer
        ((layer, _, right),) = mxsame.compare(net, {last: want, "another": want}, given)
        next(iter(net.collect_params().values())).data()[:] += 1
        compared = mxsame.compare(net, {last: want}, given)
        ((_, _, wrong),) = compared.differing
        assert str(compared).splitlines()[-1].startswith(f"First mismatch: {last} (")
        ((_, _, unlike),) = mxsame.compare(net, {last: want[..., :1]}, given[0])
        ((_, _, nan),) = mxsame.compare(net, {last: mx.nd.array(want * np.nan)}, list(map(mx.nd.array, given)))
        assert layer == last and right < TOLERANCE < 1e-3 < wrong and unlike == nan == np.inf
    for arguments, message in (
        (({"another": want}, given), r"reference must have layers of the net, which are .*; received those of another"),
        (({last: want},), "inputs must be given with recorded outputs"),
        (({last: want}, [*given, *given]), "inputs must be 1 arrays; received 2"),
        (({last: want}, want), r"in Keras's order of axes, here .*; received inputs.shape="),
        (("outputs.npz", given), r"reference must be a Keras model, as keras.models.load_model\(file\) returns"),
        ((net, given), "reference must be a Keras model, .*; received reference=<Network>"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            mxsame.compare(net, *arguments)
    with pytest.raises(TypeError, match="net must be one that from_keras returned"):
        mxsame.compare(mx.gluon.nn.Dense(1), {last: want}, given)


@pytest.mark.parametrize("network", keras_networks.TRAINED)
def test_gradients_of_all_weights_are_those_of_keras(recorded, network, tmp_path):
    """In training mode. The gradients replace the weights, and `to_keras_weights` puts them in Keras's order."""
    folder, arrays = recorded["keras2"]
    net = read(folder, f"{network}.h5")
    given = [mx.nd.array(array) for array in numbered(arrays, f"{network}/input")]
    want = numbered(arrays, f"{network}/trained")
    with mx.autograd.record():
        out = net(*given)
        outputs = list(out) if isinstance(out, (list, tuple)) else [out]
        heads = [keras_recording.head_gradient(network, position, array.shape) for position, array in enumerate(want)]
        loss = sum((array * mx.nd.array(head)).sum() for array, head in zip(outputs, heads))
    loss.backward()
    assert_all_close([array.asnumpy() for array in outputs], want)
    for parameter in net.collect_params().values():
        if parameter.grad_req != "null":
            parameter.set_data(parameter.grad())
    mxsame.to_keras_weights(net, str(tmp_path / "gradients.h5"))
    wanted = {key.split("/gradient/")[1]: array for key, array in arrays.items() if key.startswith(f"{network}/grad")}
    with h5py.File(tmp_path / "gradients.h5", "r") as file:
        got = {name: file[name][()] for name in wanted}
    scale = max(float(np.abs(array).max()) for array in wanted.values())  # a bias before a batch norm: 0
    assert {name: array.shape for name, array in got.items()} == {name: array.shape for name, array in wanted.items()}
    worst = {name: difference(got[name], array, 1e-2 * scale) for name, array in wanted.items()}
    assert {name: value for name, value in worst.items() if not value < 1e-4} == {}


def test_weights_go_back_as_keras_wrote_them(recorded, tmp_path):
    """Every dataset of the older format, bit for bit; a scalar stays one."""
    folder, _ = recorded["keras2"]
    for network in keras_recording.names():
        mxsame.to_keras_weights(read(folder, f"{network}.h5"), tmp_path / "weights.h5")
        with h5py.File(tmp_path / "weights.h5") as ours, h5py.File(folder / f"{network}.h5") as file:
            theirs = file["model_weights"]
            assert list(ours.attrs["layer_names"]) == list(theirs.attrs["layer_names"])
            for layer in theirs.attrs["layer_names"]:
                pair = ours[layer], theirs[layer]
                names, wanted = (each.attrs["weight_names"] for each in pair)
                assert len(names) == len(wanted)
                for both in zip(names, wanted):  # whose order counts: Keras names some after the layer around them
                    got, want = (each[name][()] for each, name in zip(pair, both))
                    assert got.shape == want.shape
                    np.testing.assert_array_equal(got, want, f"{network}: {layer}")


@pytest.mark.parametrize(("keras", "network", "source", "weights"), WEIGHTS_FILES)
def test_weights_files_have_all_that_keras_wrote(recorded, keras, network, source, weights, tmp_path):
    """In the format of `.weights.h5`, by the names of either Keras; Keras 3 also writes the states of generators."""
    folder, _ = recorded[keras]
    path = tmp_path / weights
    mxsame.to_keras_weights(read(folder, source, weights), path)
    names = []
    with h5py.File(folder / weights) as theirs, h5py.File(path) as ours:
        theirs.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        for name in names:
            if "seed_generator" not in name:
                np.testing.assert_array_equal(ours[name][()], theirs[name][()], err_msg=name)
                assert ours[name].shape == theirs[name].shape
        assert names and all("vars" in group for group in ours["layers"].values())  # else Keras 3 looks elsewhere


def test_weights_may_be_written_over_the_file_that_was_read(recorded, tmp_path):
    """Though the net keeps its file open."""
    folder, _ = recorded["keras2"]
    path = tmp_path / "model.h5"
    path.write_bytes((folder / "sequential.legacy.h5").read_bytes())
    net = mxsame.from_keras(str(folder / "sequential.json"), str(path))
    first = next(iter(net.collect_params().values()))
    first.set_data(first.data() + 1)
    (tmp_path / "model.h5.part").write_text("of the user")
    written, weights = mxsame.to_keras_weights(net, path), [layer.weights for layer in net.description.layers]
    elements = sum(each.data().size for each in net.collect_params().values())
    assert written == (str(path), sum(map(bool, weights)), elements, None, None)
    with pytest.raises(ValueError, match="path must be in a folder that exists"):
        mxsame.to_keras_weights(net, tmp_path / "none" / "model.h5")
    with pytest.raises(TypeError, match=r"custom must map names to functions of \(block\)"):
        mxsame.to_keras_weights(net, path, custom=3)
    again = mxsame.from_keras(str(folder / "sequential.json"), str(path))
    np.testing.assert_array_equal(next(iter(again.collect_params().values())).data().asnumpy(), first.data().asnumpy())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.h5", "model.h5.part"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("net/saved_model.pb", b"", r"a SavedModel: tf\.keras\.models\.load_model\('.*net'\)\.save\('model\.h5'\)"),
        ("net/checkpoint", b"", "a checkpoint: .*model.save"),
        ("net.index", b"", "a checkpoint: .*model.save"),
        ("net", b"\x1c\0\0\0TFL3", "a TFLite file: .*model.save"),
        ("net", b"\x12\x01" + bytes(6), "an MXNet parameter file, which net.load_parameters reads"),
        ("net", b"Dear all", "which starts with b'Dear all'"),
        ("net", mx.sym.var("data").tojson().encode(), "an MXNet graph, which gluon.SymbolBlock.imports reads"),
    ],
)
def test_files_of_other_formats_are_named(tmp_path, file, content, message):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        mxsame.from_keras(tmp_path / "net")


def test_arrays_of_numpy_and_a_missing_folder_are_named(tmp_path):
    np.savez(tmp_path / "net.npz", np.ones(3))
    with pytest.raises(ValueError, match=r"net\.npz must be a \.keras archive; it is a NumPy file$"):
        mxsame.from_keras(tmp_path / "net.npz")
    with pytest.raises(ValueError, match=r"none/net\.h5': there is no folder '.*none'$"):
        mxsame.from_keras(tmp_path / "none" / "net.h5")


def test_a_configuration_may_be_a_text_and_a_text_in_json(recorded, tmp_path):
    folder, arrays = recorded["keras2"]
    text, weights = (folder / "unet.json").read_text(), str(folder / "unet.weights.h5")
    (tmp_path / "twice.json").write_text(json.dumps(text))
    for source in (text, tmp_path / "twice.json"):
        net = mxsame.from_keras(source, weights)
        assert_all_close(outputs(net, *numbered(arrays, "unet/input")), numbered(arrays, "unet/output"))


def test_operators_in_an_h5_file_of_keras_3(recorded, tmp_path):
    """Without modules, which the older format does not have."""
    folder, arrays = recorded["keras3"]
    config = json.loads((folder / "operators.json").read_text())
    for layer in config["config"]["layers"]:
        del layer["module"], layer["registered_name"]
    net = mxsame.from_keras(json.dumps(config), str(folder / "operators.weights.h5"))
    assert_all_close(outputs(net, *numbered(arrays, "operators/input")), numbered(arrays, "operators/output"))


def test_lengths_are_not_among_the_input_shapes(recorded):
    net = read(recorded["keras2"][0], "more_operators.h5")
    assert net["tf.reshape_1"].input_shape == (None, 4, 6, 4)


def test_averages_of_pytorch_warn(recorded, tmp_path):
    folder, _ = recorded["keras2"]
    for network, names in (("pooling_layers_1d", 1), ("unet", 0)):
        path = tmp_path / f"{network}.h5"
        path.write_bytes((folder / f"{network}.h5").read_bytes())
        with h5py.File(path, "r+") as file:
            file["model_weights"].attrs["backend"] = "torch"
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            mxsame.from_keras(path)
        messages = [str(each.message).split(" (")[0] for each in warned if "PyTorch" in str(each.message)]
        assert messages == ["the model was saved by Keras on PyTorch, which counts the padding in averages"] * names


def test_parameters_can_be_reinitialized(recorded):
    """With an initializer that takes no vectors: those have initializers of their own, which are Keras's."""
    folder, _ = recorded["keras2"]
    net = read(folder, "sequential.h5")
    before = {name: parameter.data().asnumpy() for name, parameter in net.collect_params().items()}
    net.collect_params().initialize(mx.init.Xavier(), force_reinit=True)
    after = {name: parameter.data().asnumpy() for name, parameter in net.collect_params().items()}
    assert not [name for name in before if name.endswith("weight") and np.array_equal(before[name], after[name])]
    ends = {"bias": 0, "beta": 0, "running_mean": 0, "gamma": 1, "running_var": 1}
    vectors = {name: end for name in before for end in ends if name.endswith(end)}
    assert len(vectors) > 2
    assert {name: ends[end] for name, end in vectors.items()} == {name: after[name].mean() for name in vectors}


def test_every_row_has_a_case(recorded):
    """Of the layers and operators, and of the names that `activation` may be: recorded, or run by a live Keras."""
    seen = set()
    for keras, (folder, _) in recorded.items():
        for _, _, file, weights in (case.values for case in CASES if case.values[0] == keras):
            for layer in reading.read(str(folder / file), weights and str(folder / weights)).walk():
                seen |= {layer.class_name, layer.operator, str(layer.config.get("activation"))}
    live = re.findall(r"(?:tf\.|keras\.ops\.)?([A-Za-z_][\w.]*)", " ".join([*MODELS["exact"], *test_keras_3.MODELS]))
    names = {
        re.sub(r"[123][dD]$", "", each) for name in filter(None, [*seen, *live]) for each in (name, operator_name(name))
    }
    missing = {name for name in {*LAYERS, *OPERATORS} if re.sub(r"[123][dD]$", "", name) not in names}
    assert missing == {
        "CustomScaleLayer",
        "LayerScale",
        "StochasticDepth",
        "hard_swish",
        "floor_divide",
    }  # hard_silu, //


def test_layers_of_applications(tmp_path):
    """Three that `keras.applications` defines for its own models."""
    data = np.random.RandomState(0).normal(size=(2, 5, 4)).astype("float32")
    gamma = np.array([0.5, 2.0, -1.0, 3.0], "float32")

    layers = entry("LayerScale", "scale"), entry("StochasticDepth", "depth", {"drop_path_rate": 0.3})
    model = model_of(*layers, entry("CustomScaleLayer", config={"scale": 0.2}), shapes=[(5, 4)])
    model["config"]["layers"][-1]["inbound_nodes"] = [[["data", 0, 0, {}], ["depth", 0, 0, {}]]]
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file.attrs["layer_names"] = [b"scale"]
        group = file.create_group("scale")
        group.attrs["weight_names"] = [b"scale/gamma:0"]
        group["scale/gamma:0"] = gamma
    net = mxsame.from_keras(json.dumps(model), tmp_path / "weights.h5")
    assert_all_close(outputs(net, data), [data + 0.2 * gamma * data])
    with mx.autograd.train_mode():  # the branch of a picture is dropped, or 1 / 0.7 as much
        (noisy,) = outputs(net, np.repeat(data[:1], 60, 0))
    parts = {round(float(x), 2) for x in ((noisy - data[:1]) / (0.2 * gamma * data[:1])).reshape(60, -1).mean(1)}
    assert parts == {0.0, 1.43}


def test_random_layers_warn(recorded):
    folder, _ = recorded["keras2"]
    with pytest.warns(UserWarning, match=r"layer 'random_flip' \(RandomFlip\) does nothing here"):
        mxsame.from_keras(str(folder / "augmented.h5"))


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_inputs_of_the_type_that_the_model_declares(dtype):
    layers = ("Rescaling", {"scale": 0.5}), ("MaxPooling2D", {"pool_size": 3, "padding": "same"})
    model = model_of(*stacked(layers), shapes=[(4, 4, 3)])
    model["config"]["layers"][0]["config"]["dtype"] = dtype
    net = mxsame.from_keras(json.dumps(model))
    array = np.random.RandomState(0).randint(0, 255, (2, 4, 4, 3))
    (want,) = outputs(net, array.astype("float32"))
    assert want.dtype == "float32" and want.max() > 100
    for hybridize in (lambda: None, net.hybridize, lambda: mxsame.hybridize(net)):
        hybridize()
        for kind in (dtype, "float32"):
            assert_all_close(outputs(net, array.astype(kind)), [want])
