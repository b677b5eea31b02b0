"""`mxsame.to_keras`: files that Keras loads, with the outputs, the training and the names of the net."""

import contextlib
import itertools
import json
import random
import re
from collections import Counter
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import operator_cases
import pytest
from click.testing import CliRunner
from configurations import connected, entry, functional, model_of
from operator_cases import TABLE, block_of, inputs_of
from running import Own, difference, outputs, sequential as chain
from test_chains import random_net

pytest.importorskip("h5py", reason="h5py is not installed: pip install '.[keras]'")

import keras_recording

import mxsame
from mxsame._mxnet import mx
from mxsame.cli import main
from mxsame.export_keras import checking
from mxsame.export_keras.emitters import axes, elementwise
from mxsame.export_keras.writer import EMITTERS
from mxsame.plan import STRATEGIES, use_strategy
from mxsame.port.network import Network
from mxsame.port.reading import read
from mxsame.port.table import OPERATORS

nn, rnn, same = mx.gluon.nn, mx.gluon.rnn, mxsame.nn

RUN_WITH_KERAS = checking.run_with_keras


@pytest.fixture(autouse=True)
def read_back(monkeypatch):
    """Files are read back: a process with Keras for each would take minutes."""
    monkeypatch.setattr(checking, "run_with_keras", lambda *args: None)


def ready(net, *shapes, seed=0):
    """The net with parameters that show every mistake: statistics, and biases that are not zero."""
    mx.random.seed(seed)
    net.initialize(mx.init.Normal(0.4), force_reinit=True)
    net(*map(mx.nd.ones, shapes))
    for name, parameter in net.collect_params().items():
        array = parameter.data()
        if name.endswith(("gamma", "running_var")) and parameter.grad_req + name[-3:] != "nullmma":
            parameter.set_data(mx.nd.random.uniform(0.5, 1.5, array.shape))
        elif name.endswith(("beta", "bias", "mean")) and parameter.grad_req + name[-4:] != "nullbeta":
            parameter.set_data(mx.nd.random.uniform(-0.5, 0.5, array.shape))
    return net


def arrays_of(*shapes, batch=3):
    generator = np.random.default_rng(1)
    return [generator.normal(size=(batch, *shape[1:])).astype("float32") for shape in shapes]


def classes(file):
    return [layer.class_name for layer in read(str(file)).layers]


def ending():
    """Of the files that the installed Keras loads."""
    return ".h5" if metadata.version("keras") < "3" else ".keras"


def loaded(file):
    """The file in tf.keras, which is the oracle. Keras 3 knows layers by their ids while it loads files. It takes a
    new `Bidirectional` for one that is gone if that had the same id, in its own files as well, so it may try again."""
    import tensorflow as tf

    for tries_left in (2, 1, 0):
        try:
            return tf.keras.models.load_model(str(file), compile=False)
        except ValueError as error:
            if not tries_left or "should have different `go_backwards`" not in str(error):
                raise


def set_default(order):
    """Of the axes in layers that do not say it. tf.keras 2 has no LSTM with channels first."""
    import tensorflow as tf

    tf.keras.backend.set_image_data_format(order if ending() == ".keras" else "channels_last")


@pytest.fixture
def made(monkeypatch):
    """The models that were written, and not compared. They run whatever order of axes their user has by default."""
    models = []
    monkeypatch.setattr(checking, "compare", lambda file, made, source: models.append(made))
    set_default("channels_first")
    yield models
    set_default("channels_last")


def called(model, made, arrays, **more):
    """The outputs of a model, for inputs and with axes as the net has them."""
    given = [array.transpose(order) for array, order in zip(arrays, made.orders)]
    got = map(np.asarray, keras_recording.listed(model(given if len(given) > 1 else given[0], **more)))
    return [array.transpose(np.argsort(order)) for array, order in zip(got, made.output_orders)]


def compare_live(net, file, arrays, made):
    got, want = called(loaded(file), made, arrays, training=False), outputs(net, *arrays)
    assert len(got) == len(want)
    assert max(map(difference, got, want)) < 1e-4


# ---- operators: name -> (net, shapes, whether an .h5 file has it) ----------------------------------------------------


def se(F, x, conv, gate):
    x = conv(x)
    return F.broadcast_mul(x, F.sigmoid(gate(F.contrib.AdaptiveAvgPooling2D(x, output_size=1))))


def shuffled(F, x, conv):
    return F.reshape(F.swapaxes(F.reshape(conv(x), shape=(0, -4, 3, 2, -2)), 1, 2), shape=(0, -3, -2))


def heads(F, x, conv):
    x = F.transpose(conv(x), axes=(0, 2, 3, 1))
    return F.softmax(F.reshape(x, shape=(0, -1, 3))), F.flatten(x)


def attended(F, x, y, query, key):
    return F.batch_dot(F.softmax(F.batch_dot(query(x), key(y), transpose_b=True)), key(y))


def last_step(F, x, embedding, lstm, dense):
    return dense(F.squeeze(F.slice_axis(lstm(embedding(x)), axis=1, begin=-1, end=None), axis=1))


def with_states(F, x, h, gru):
    out, states = gru(x, [h])
    return [out, *states]


def from_zeros(F, x, lstm):
    zero = F.zeros_like(F.slice_axis(x, axis=0, begin=0, end=2))
    out, states = lstm(x, [zero, zero])
    return [out, *states]


def ported(F, x, conv, padded, sliced):
    """SAME by hand, with a pad before a convolution and a slice after another."""
    x = padded(F.pad(conv(x), mode="constant", pad_width=(0, 0, 0, 0, 0, 1, 0, 1)))
    return F.slice(sliced(x), begin=(None, None, 1, 1), end=(None,) * 4)


IMAGE = (1, 3, 15, 12)
FUNCTIONS = [kind for kind in operator_cases.CASES if kind in elementwise.OPERATORS]
CASES = {
    "flattened": (chain(same.Conv2D(8, 3, strides=2), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(3, 2, 1),
                        nn.Flatten(), nn.Dropout(0.5), nn.Dense(7, activation="tanh"), nn.Dense(3)), [IMAGE], True),
    "channels last": (chain(same.Conv2D(8, 3, strides=2, layout="NHWC"), same.MaxPool2D(3, 2, layout="NHWC"),
                            same.DepthwiseConv2D(3, depth_multiplier=2, layout="NHWC")), [(1, 15, 12, 3)], True),
    "groups and activations": (
        chain(same.SeparableConv2D(9, 3, strides=2), same.DepthwiseConv2D((3, 2), strides=(1, 2)),
              nn.Conv2D(12, 3, groups=3, padding=(2, 1)), nn.PReLU(), nn.ELU(0.3), nn.SELU(), nn.GELU(), nn.Swish(),
              nn.LeakyReLU(0.1)), [IMAGE], True),
    "transposed": (chain(same.Conv2DTranspose(5, 3, strides=2), nn.Conv2DTranspose(4, 3, 2, 1, 1),
                         nn.Conv2DTranspose(4, 4, 2, (1, 0)), same.Conv2DTranspose(4, 2, strides=3)),
                   [(1, 3, 5, 6)], True),
    "one axis": (chain(same.Conv1D(5, 3, padding="causal", dilation=2), same.SeparableConv1D(6, 5), nn.MaxPool1D(2),
                       same.Conv1DTranspose(3, 4, strides=2), nn.GlobalAvgPool1D(), nn.Dense(3)), [(1, 3, 37)], True),
    "groups, steps and sizes": (
        chain(same.Conv2D(6, 3, strides=2, dilation=2), same.Conv2DTranspose(4, 3, strides=2, groups=2),
              Own(lambda F, x: F.slice(x, begin=(None, 0, 1), end=(None, 3, None), step=(1, 2, 3))), nn.Conv2D(3, 1),
              Own(lambda F, x: F.contrib.AdaptiveAvgPooling2D(x, output_size=(1, 4))), nn.Conv2D(3, 1)), [IMAGE], True),
    "largest of negatives": (chain(nn.Conv2D(7, 3), nn.MaxPool2D(3, 2, 1)), [(1, 3, 16, 13)], False),
    "norms": (chain(nn.Conv2D(6, 3), nn.LayerNorm(axis=1), nn.InstanceNorm(), nn.GroupNorm(6), nn.BatchNorm(scale=False,
              center=False), nn.BatchNorm(use_global_stats=True), nn.BatchNorm(center=False)), [IMAGE], True),
    "recurrent": (chain(rnn.LSTM(5, 2, layout="NTC", bidirectional=True, input_size=4, dropout=0.2),
                        rnn.GRU(5, layout="NTC", input_size=10), rnn.RNN(3, layout="NTC", input_size=5)),
                  [(2, 7, 4)], True),
    "steps first, with states": (Own(with_states, rnn.GRU(5, 3, input_size=4)),
                                 [(3, 2, 4), (3, 2, 5)], False),
    "last states": (Own(from_zeros, rnn.LSTM(4, bidirectional=True, input_size=4)), [(3, 2, 4)], True),
    "two layers alike": (chain(rnn.LSTM(5, 2, layout="NTC", input_size=5)), [(2, 7, 5)], True),
    "last step": (Own(last_step, nn.Embedding(11, 4), rnn.LSTM(5, layout="NTC", input_size=4), nn.Dense(3, in_units=5)),
                  [(2, 7)], True),
    "attention": (Own(attended, nn.Dense(3, flatten=False), nn.Dense(3, flatten=False)), [(2, 6, 4), (2, 7, 5)], True),
    "squeeze and excitation": (Own(se, nn.Conv2D(6, 3, 2), nn.Conv2D(6, 1)), [IMAGE], True),
    "shuffled channels": (Own(shuffled, nn.Conv2D(6, 3)), [(1, 3, 7, 8)], True),
    "as large as another": (Own(lambda F, x, conv: F.slice_like(x, conv(x), axes=(0, -1, 2)) * 2, nn.Conv2D(6, 3)),
                            [(1, 3, 7, 8)], True),
    "boxes": (Own(heads, nn.Conv2D(6, 3)), [(1, 3, 7, 8)], True),
    "ported": (Own(ported, nn.Conv2D(4, 3, 1, 1), nn.Conv2D(4, 3, 2), nn.Conv2D(5, 2, 1, 1)), [(1, 3, 16, 16)], True),
    "functions": (Own(lambda F, x: [getattr(F, name)(x * x / 9 + int(name == "arccosh")) for name in FUNCTIONS]),
                  [(2, 4)], False),
    "a layer for two": (Own(lambda F, x, y, dense: dense(x) - dense(y), nn.Dense(3, in_units=4)), [(2, 4)] * 2, True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_files_are_read_back_by_from_keras(case, tmp_path):
    """By both formats, or an .h5 file refuses it by name."""
    net, shapes, in_h5 = CASES[case]
    ready(net, *shapes)
    for ending in (".keras", ".h5"):
        path = tmp_path / f"net{ending}"
        if ending == ".h5" and not in_h5:
            with pytest.raises(ValueError, match=r"an .h5 file has layers only.*in the operator"):
                mxsame.to_keras(net, path, shapes)
            assert not path.exists()
        else:
            assert mxsame.to_keras(net, path, shapes).compared_by == "mxsame.from_keras"


@pytest.mark.keras
@pytest.mark.filterwarnings("ignore:Argument `alpha` is deprecated")
@pytest.mark.parametrize("case", CASES)
def test_tensorflow_gives_the_same(case, tmp_path, made):
    """Keras 3 loads both formats; what an .h5 file refuses, the test above has shown."""
    net, shapes, in_h5 = CASES[case]
    ready(net, *shapes)
    arrays = arrays_of(*shapes)
    arrays = [np.abs(array).round() for array in arrays] if case == "last step" else arrays
    for end in {ending(), ".h5"} - (set() if in_h5 else {".h5"}):
        mxsame.to_keras(net, tmp_path / f"net{end}", shapes)
        compare_live(net, tmp_path / f"net{end}", arrays, made[-1])


# No row; a label, or an array of which only the shape is used; groups that train; all of its cases are refused.
NOT_KERAS = {
    *("_linalg_gemm2", "pick", "_rnn_param_concat", "gather_nd"),
    *("modulo", "modulo_scalar", "rmodulo_scalar"),
    *("shape_array",),
    *("SoftmaxOutput", "LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput", "slice_like"),
    *("broadcast_like", "GroupNorm", "Cast", "Deconvolution"),
}
LIMITS = (
    "batch must|must not be reduced|must be float32|layers only|no more than Keras's whole|"
    "of a batch|indices must be constants|must belong to one layer|does not flatten|same number of axes|"
    "received p_value=3|one operand must be|outputs that depend on its inputs"
)


@pytest.mark.keras
@pytest.mark.parametrize("kind", operator_cases.CASES)
def test_an_operator_is_exact_or_refused(kind, tmp_path, made):
    file = tmp_path / f"net{ending()}"
    for _, shape, function in (case.values for case in TABLE if case.values[0] == kind):
        block, arrays = block_of(function), inputs_of(shape)
        try:
            mxsame.to_keras(block, file, [array.shape for array in arrays])
        except ValueError as error:
            assert kind in NOT_KERAS or re.search(LIMITS, str(error)), error
        else:
            compare_live(block, file, arrays, made[-1])
    assert bool(made) == (kind not in NOT_KERAS) or ending() == ".h5"


def by_strategy(net, shape, strategy):
    """Deployed; as the planner chooses, where a strategy is not exact for all layers."""
    try:
        with mxsame.plan.use_strategy(strategy):
            return mxsame.deploy(net, shape)
    except ValueError as error:
        assert "must be a strategy that is exact" in str(error)
        return mxsame.deploy(net, shape)


CANNOT = (
    "not both be above 1|no more than Keras's whole|layers only|three axes at most|batch must not change|"
    "parameters only|operators that Keras has"
)


@pytest.mark.keras
@pytest.mark.parametrize("first", range(0, 300, 10))
def test_random_networks(first, tmp_path, made):
    """Ten of them; every third is deployed, too."""
    for seed in range(first, first + 10):
        net, shape, strategy = random_net(random.Random(seed))
        ready(net, shape, seed=seed)
        for each in (net, by_strategy(net, shape, strategy)) if seed % 3 == 0 else (net,):
            try:
                mxsame.to_keras(each, tmp_path / f"net{ending()}", shape)
            except ValueError as error:
                assert re.search(CANNOT, str(error)), error
            else:
                compare_live(net, tmp_path / f"net{ending()}", arrays_of(shape), made[-1])
    assert len(made) > 3  # the others are refused


# ---- training, names, and networks of Keras --------------------------------------------------------------------------


def encoded(F, x, embedding, query, key, norm, dense):
    x = embedding(x)
    return dense(norm(F.batch_dot(F.softmax(F.batch_dot(query(x), key(x), transpose_b=True)), x) + x))


TRAINED = {  # name -> (net, shape, children that are frozen)
    "batch norm": (chain(same.Conv2D(4, 3, strides=2), nn.BatchNorm(), nn.Activation("relu"),
                         nn.Conv2D(4, 3, padding=1), nn.MaxPool2D(2, 2), nn.Dense(5, activation="tanh"), nn.Dense(2)),
                   IMAGE, [3]),
    "depthwise": (chain(same.SeparableConv2D(6, 3, strides=2), same.DepthwiseConv2D(3, depth_multiplier=2),
                        nn.BatchNorm(), nn.PReLU(), nn.GlobalAvgPool2D(), nn.Dropout(0), nn.Dense(2)), IMAGE, []),
    "recurrent": (chain(rnn.GRU(5, 2, layout="NTC", bidirectional=True, input_size=4),
                        rnn.GRU(4, layout="NTC", input_size=10), nn.Dense(2)), (2, 7, 4), []),
    "attention": (Own(encoded, nn.Embedding(11, 4), *(nn.Dense(3, flatten=False) for _ in "qk"), nn.LayerNorm(),
                      nn.Dense(2)), (2, 7), []),
    "one axis": (chain(same.Conv1D(6, 3, padding="causal"), nn.InstanceNorm(), nn.ELU(),
                       same.Conv1DTranspose(4, 4, strides=2), nn.AvgPool1D(3, 2, 1, count_include_pad=False),
                       nn.Dense(2)), (1, 3, 17), []),
}  # fmt: skip


def step_here(net, trainer, x):
    """The loss of a step of training."""
    with mx.autograd.record():
        loss = (net(mx.nd.array(x)) ** 2).sum() / len(x)
    loss.backward()
    trainer.step(1)
    return float(loss.asscalar())


def step_there(model, optimizer, x, made):
    """The same in Keras."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x.transpose(made.orders[0]), training=True) ** 2) / len(x)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
    return float(loss)


@pytest.mark.keras
@pytest.mark.parametrize("case", TRAINED)
def test_ten_steps_of_training_are_equal(case, tmp_path, made):
    """With momentum; frozen parameters stay, and the statistics of a batch norm move."""
    import tensorflow as tf

    net, shape, frozen = TRAINED[case]
    ready(net, shape)
    for number in frozen:
        net[number].collect_params().setattr("grad_req", "null")
    file = tmp_path / f"net{ending()}"
    mxsame.to_keras(net, file, shape)
    model = loaded(file)
    names = [layer.name for layer in model.layers if layer.weights and not layer.trainable]
    assert names == [net[number].name for number in frozen]
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.9})
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    for step in range(10):
        (x,) = arrays_of(shape, batch=8 + step)
        x = np.abs(x).round() if case == "attention" else x
        assert step_here(net, trainer, x) == pytest.approx(step_there(model, optimizer, x, made[0]), rel=1e-5)
    (got,), want = called(model, made[0], [x]), net(mx.nd.array(x)).asnumpy()
    is_unbiased = ending() == ".h5" and "BatchNormalization" in classes(file)  # n / (n - 1) in moving variances
    assert difference(got, want) < (1e-3 if is_unbiased else 1e-4)


def of_applications(keras):
    """All but its end is frozen: 1e-7 in the weights of all becomes 4 % of Keras's own loss within two steps."""
    network = keras.applications.MobileNetV2((64, 64, 3), alpha=0.35, weights=None, pooling="avg", include_top=False)
    return network, {"layout": "NCHW"}, (8, 3, 64, 64), 149, lambda x: x


def transformer(keras):
    layers = keras.layers
    data = keras.Input((7,), dtype="int32")
    x = layers.Embedding(11, 8)(data)
    x = layers.LayerNormalization()(x + layers.Dropout(0.0)(layers.MultiHeadAttention(2, 4)(x, x)))
    x = layers.LayerNormalization()(layers.Add()([x, layers.EinsumDense("abc,cd->abd", (None, 8), bias_axes="d")(x)]))
    indices = lambda x: np.floor(np.abs(x) * 3) % 11  # noqa: E731
    return keras.Model(data, layers.GlobalAveragePooling1D()(x)), {}, (8, 7), 4, indices


def recurrent(keras):
    data = keras.Input((3, 5, 2))
    x = keras.layers.ConvLSTM1D(3, 2, padding="same", return_sequences=True)(data)
    x = keras.layers.TimeDistributed(keras.layers.Dense(4))(x)
    return keras.Model(data, keras.layers.Flatten()(x)), {}, (8, 3, 5, 2), 2, lambda x: x


IN_KERAS = (of_applications, transformer, recurrent)


@pytest.mark.keras
@pytest.mark.filterwarnings("always:layer .* does not stay frozen")
@pytest.mark.parametrize("network", IN_KERAS)
def test_a_network_of_keras_is_tuned_here_and_there(network, tmp_path, made, recwarn):
    """Frozen in part, and with a head of Gluon's: ten steps here, and ten more in both."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    set_default("channels_last")
    model, how, shape, frozen, data_of = network(tf.keras)
    net, file = mxsame.from_keras(model, **how), tmp_path / f"net{ending()}"
    for layer in list(net)[:frozen]:
        layer.trainable = False
    tuned = chain(net, nn.Dense(3, activation="tanh"))
    tuned[1].initialize()
    data = [data_of(x) for x in (arrays_of(shape, batch=8 + number)[0] for number in range(21))]
    tuned(mx.nd.array(data[0]))
    trainer = mx.gluon.Trainer(tuned.collect_params(), "sgd", {"learning_rate": 0.01})
    for x in data[:10]:
        step_here(tuned, trainer, x)
    mxsame.to_keras(tuned, file, shape)
    there, optimizer = loaded(file), tf.keras.optimizers.SGD(0.01)
    before, after = (Counter(type(each).__name__ for each in each.layers) for each in (model, there))
    assert not before - after - Counter(TFOpLambda=9)
    kept = [layer.name for layer in net if layer.parameters and not layer.trainable]
    assert kept == [layer.name for layer in there.layers if layer.weights and not layer.trainable]
    warned = [each for each in recwarn if "does not stay frozen" in str(each.message)]
    named = {re.match("layer '(.+)' ", str(each.message))[1] for each in warned}
    assert all(Path(each.filename) == Path(__file__) for each in warned)
    for layer in there.layers:
        is_thawed = not layer.trainable and any(each.trainable for each in layer.variables) and ending() == ".keras"
        assert (layer.name in named) == is_thawed
        if is_thawed:
            layer.trainable = True  # because Keras does nothing if the flag is what it was
            layer.trainable = False
    compare_live(tuned, file, [data[-1]], made[0])
    for x in data[10:20]:
        assert step_here(tuned, trainer, x) == pytest.approx(step_there(there, optimizer, x, made[0]), rel=1e-3)
    compare = called(there, made[0], [data[-1]], training=False)[0], tuned(mx.nd.array(data[-1])).asnumpy()
    assert difference(*compare) < 1e-3


@pytest.mark.keras
def test_the_page_fine_tunes_a_residual_network(tmp_path, monkeypatch):
    page = Path(__file__).parent.parent.joinpath("docs", "how-to", "leave.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```py\n(.*?)```", page, re.S)
    monkeypatch.chdir(tmp_path)
    ran = {}
    exec(compile(block, "leave.md", "exec"), ran)
    assert ran["losses"][-1] < ran["losses"][0] / 2


def test_padding_by_hand_is_same(tmp_path):
    net, shapes, _ = CASES["ported"]
    ready(net, *shapes)
    mxsame.to_keras(net, tmp_path / "net.keras", shapes)
    layers = [layer for layer in read(str(tmp_path / "net.keras")).layers if layer.class_name == "Conv2D"]
    assert [layer.config["padding"] for layer in layers[:2]] == ["same", "same"]
    assert [layer.name for layer in layers] == [block.name for block in net._blocks]


@pytest.mark.parametrize(("case", "count"), [("flattened", 0), ("channels last", 0), ("shuffled channels", 1)])
def test_the_number_of_transpositions(case, count, tmp_path):
    net, shapes, _ = CASES[case]
    ready(net, *shapes)
    mxsame.to_keras(net, tmp_path / "net.keras", shapes)
    assert classes(tmp_path / "net.keras").count("Permute") == count


def test_channels_first_as_asked_for(tmp_path):
    net = ready(chain(nn.Conv2D(4, 3)), IMAGE)
    mxsame.to_keras(net, tmp_path / "net.keras", IMAGE, layout="NCDHW")
    assert mxsame.from_keras(tmp_path / "net.keras")(mx.nd.ones(IMAGE)).shape == (1, 4, 13, 10)
    config = read(str(tmp_path / "net.keras")).source["config"]  # a list of one would be what Keras 3 calls return
    assert config["input_layers"] == ["data", 0, 0] and config["output_layers"][1:] == [0, 0]


NOT_BY_GRAPH = {*("activations", "normalizations", "shapes", "more_operators", "counted"),
                *("recurrent", "attention")}  # fmt: skip
NOT_BY_LAYERS = {"resizing", "edges", "siamese", "siamese_channels_first", "merging", "operators"}
NOT_IN_THE_OTHER = {  # without operators, or of integers, or what one Keras has only
    ".h5": {"normalizations", "operators", "more_operators", "resizing", "recurrent", "attention"},
    ".keras": {"more_operators", "counted", "recurrent"},
}
OWN_ENDING = {"keras2": ".h5", "keras3": ".keras"}


def recording(recorded, keras, network, ending):
    """(file, inputs, outputs)."""
    folder, arrays = recorded[keras]
    file = next(file for file in (folder / f"{network}{end}" for end in (ending, ".keras", ".h5")) if file.exists())
    return (file, *(keras_recording.numbered(arrays, f"{network}/{kind}") for kind in ("input", "output")))


def is_in(after, before):
    """Whether a configuration has no more and no other values, those of layers in it among them."""
    if isinstance(after, dict) and isinstance(before, dict):
        return all(name in before and is_in(value, before[name]) for name, value in after.items())
    return after == before or [after] == before


def frozen_and_extended(net):
    """Half of its layers do not train, and there are operators of Gluon after it."""
    layers = list(net)
    for layer in layers[: len(layers) // 2]:
        layer.trainable = False
    return Own(lambda F, *args: [F.relu(x) - 1 for x in keras_recording.listed(args[-1](*args[:-1]))], net)


@pytest.mark.filterwarnings("ignore:layer .* does no")
@pytest.mark.parametrize(("keras", "network"), keras_recording.whole_models())
def test_a_network_of_keras_leaves_as_it_came(recorded, keras, network, tmp_path):
    """In the format of its Keras, with the same weights bit by bit."""
    ending = OWN_ENDING[keras]
    source, given, _ = recording(recorded, keras, network, ending)
    mxsame.to_keras(mxsame.from_keras(source), tmp_path / f"net{ending}", [array.shape for array in given])
    both = [list(read(str(file)).walk()) for file in (source, tmp_path / f"net{ending}")]
    for before, after in zip(*both):
        assert (before.class_name, before.name) == (after.class_name, after.name)
        assert before.model is not None or is_in(after.config, before.config)
        for one, other in zip(before.weights, after.weights):
            assert np.array_equal(one, other)
    assert len(both[0]) == len(both[1])


@pytest.mark.keras
@pytest.mark.filterwarnings("ignore:layer .* does no", "ignore:layers of a", "ignore:You are using a softmax over axis")
@pytest.mark.parametrize("network", keras_recording.names())
@pytest.mark.parametrize("way", ["its format", "extended", "the other format", "operators"])
def test_a_network_of_keras_gives_there_what_it_gave(recorded, network, way, tmp_path, monkeypatch, made):
    """As the layers that it was, in both formats, and as any other graph of MXNet; with every weight bit by bit."""
    keras = "keras2" if (ending() == ".h5") == (way != "the other format") else "keras3"
    as_read = way != "operators"
    refused = NOT_IN_THE_OTHER[ending()] if way == "the other format" else ()
    refused = refused if as_read else NOT_BY_GRAPH | NOT_BY_LAYERS if ending() == ".h5" else NOT_BY_GRAPH
    if way == "operators":
        monkeypatch.setattr(Network, "matches_description", False)
    source, given, want = recording(recorded, keras, network, ending())
    net, file = mxsame.from_keras(source), tmp_path / f"net{ending()}"
    if way == "extended":
        net, want = frozen_and_extended(net), [np.maximum(array, 0) - 1 for array in want]
    try:
        mxsame.to_keras(net, file, [array.shape for array in given])
    except ValueError as error:
        assert network in refused, error
        return
    assert network not in refused
    if way == "its format" or (way == "extended" and network != "noise"):  # which is nothing at inference
        before, after = (Counter(layer.class_name for layer in read(str(each)).walk()) for each in (source, file))
        passed_on = Counter(Identity=1, TFOpLambda=1)  # an input that is an output, too, has no layer between
        assert not before - after - Counter(InputLayer=99) - (passed_on if way == "extended" else Counter())
    if as_read and (network.endswith("channels_first") or (keras, network) == ("keras2", "normalizations")):
        return  # TensorFlow computes convolutions with channels first wrongly on CPUs; it cannot load its own file
    set_default("channels_last" if as_read else "channels_first")
    model = loaded(file)
    got = called(model, made[0], given, training=False)
    assert len(got) == len(want)
    assert max(map(difference, got, want)) < 1e-5
    elements = {np.sort(array, axis=None).tobytes() for array in map(np.asarray, model.get_weights())}
    for layer in read(str(source)).walk():
        assert {np.sort(array, axis=None).tobytes() for array in map(np.asarray, layer.weights)} <= elements, layer.name


def test_names_of_layers_may_be_paths(recorded, tmp_path):
    """The group of one layer may be in that of a later one, as in MobileNetV3."""
    import h5py

    net = mxsame.from_keras(recorded["keras2"][0] / "sequential.h5")
    first, second = [layer for layer in net.description.walk() if layer.weights][:2]
    names = {first: "block/first", second: "block"}
    net.description = net.description.map_layers(lambda layer: replace(layer, name=names.get(layer, layer.name)))
    mxsame.to_keras_weights(net, tmp_path / "weights.h5")
    with h5py.File(tmp_path / "weights.h5") as file:
        counts = [len(file[name].attrs["weight_names"]) for name in names.values()]
    assert counts == [len(first.weights), len(second.weights)]


def of_steps(*layers):
    """A network of Keras on sequences."""
    entries = (entry(name, name.lower(), config) for name, config in layers)
    return mxsame.from_keras(json.dumps(model_of(*entries, shapes=[(5, 3)])))


class Clipped(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.clip(x, 0, 1)


class MaskedClip(Clipped):
    supports_masking = True


MASKED, MEAN = [("Masking", {}), ("ReLU", {})], ("GlobalAveragePooling1D", {})


@pytest.mark.parametrize("ends", ["nowhere", "at a block", "at operators"])
def test_a_mask_ends_where_it_ends_in_the_net(ends, tmp_path):
    """A comparison does not notice that Keras would pass it on: steps of random numbers are not masked."""
    if ends == "at operators":
        net = chain(of_steps(*MASKED), Own(lambda F, x: F.mean(x, axis=1)))
    else:
        net = of_steps(*MASKED, MEAN)
        net["relu"] = Clipped() if ends == "at a block" else MaskedClip()
    (x,) = arrays_of((3, 5, 3))
    x[1:, 2:] = 0
    nothing, message = contextlib.nullcontext(), "mask must end where it ends"
    with nothing if ends == "nowhere" else pytest.raises(ValueError, match=message):
        mxsame.to_keras(net, tmp_path / "net.h5", x.shape)
    with nothing if ends == "nowhere" else pytest.warns(UserWarning, match=f"operator by operator: .*{message}"):
        mxsame.to_keras(net, tmp_path / "net.keras", x.shape)  # which has operators for a mask
    assert ("Masking" in classes(tmp_path / "net.keras")) == (ends == "nowhere")
    assert difference(*(outputs(each, x)[0] for each in (mxsame.from_keras(tmp_path / "net.keras"), net))) < 1e-6


def called_twice(layer):
    """A network of two inputs, in which a model of this layer is called on both."""
    first = entry("InputLayer", "first", {"batch_input_shape": [None, 5, 3]})
    inner = connected(entry("Sequential", "inner", {"layers": [first, layer]}), ["a"], ["b"])
    add = connected(entry("Add", "add"), [("inner", 1, 0), ("inner", 2, 0)])
    return mxsame.from_keras(json.dumps(functional([inner, add], dict.fromkeys("ab", (5, 3)), ["add"])))


def test_one_of_several_networks_is_written_by_operators(tmp_path):
    """That in which a layer is replaced of a model that is called twice; another one after it stays as it is."""
    dropout = ("SpatialDropout1D", {"rate": 0.1})
    first = called_twice(entry("ReLU", "relu"))
    net = Own(
        lambda F, x, y, first, second, third: third(second(first(x, y))), first, of_steps(dropout), of_steps(dropout)
    )
    warned = pytest.warns(
        UserWarning, match=r"written operator by operator: layer 'inner' \(Sequential\): .* called once"
    )
    for form, want in (("layers", ["Sequential"]), ("operators", ["Activation", "Activation"])):
        if form == "operators":
            first["inner/relu"] = nn.Activation("softrelu")
        with warned if form == "operators" else contextlib.nullcontext():
            assert mxsame.to_keras(net, tmp_path / "net.h5", [(2, 5, 3)] * 2).form == form
        assert classes(tmp_path / "net.h5") == ["InputLayer"] * 2 + [*want, "Add"] + ["SpatialDropout1D"] * 2


def test_a_layer_that_the_format_lacks_is_written_by_operators(tmp_path):
    net = of_steps(("ThresholdedReLU", {"theta": 0.3}), ("ReLU", {}))
    assert mxsame.to_keras(net, tmp_path / "net.h5", (2, 5, 3)).form == "model"
    with pytest.warns(UserWarning, match=r"\(ThresholdedReLU\): a file of Keras 3 has no such layer$"):
        assert mxsame.to_keras(net, tmp_path / "net.keras", (2, 5, 3)).form == "operators"


def quadratic(write, attributes, x):
    square = write("Rescaling", write("Multiply", x, x), scale=attributes["a"])
    return write("Add", square, write("Rescaling", x, scale=attributes["b"], offset=attributes["c"]))


class Twice(nn.HybridBlock):
    """A convolution with channels first, and an operator that no layer is."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 2, use_bias=False, in_channels=3)

    def hybrid_forward(self, F, x):
        return F.contrib.quadratic(self.conv(x), b=1)


def twice(write, block, x):
    kernel = block.conv.weight.data().asnumpy().transpose(2, 3, 1, 0)
    out = write(
        "Conv2D", write("Permute", x, dims=[2, 3, 1]), filters=3, kernel_size=2, weights=[kernel], use_bias=False
    )
    return write("Permute", out, dims=[3, 1, 2])


def test_custom(tmp_path):
    """Functions of the user's for an operator, and for a class of blocks, whose layers are called again."""
    net = ready(Own(lambda F, x, block: F.contrib.quadratic(block(block(x)), a=2, b=3, c=4), Twice()), IMAGE)
    custom = {"_contrib_quadratic": quadratic, Twice: twice}
    for file, grad_req in ((tmp_path / "net.h5", "write"), (tmp_path / "net.keras", "null")):
        net.collect_params().setattr("grad_req", grad_req)
        mxsame.to_keras(net, file, IMAGE, custom=custom, layout="NCHW")
        (conv,) = (layer for layer in read(str(file)).layers if layer.class_name == "Conv2D")
        assert conv.trainable == (grad_req == "write")
    calls = []
    counted = {"_contrib_quadratic": lambda *given: calls.append(1) or quadratic(*given)}
    with pytest.raises(ValueError, match="path must be one that can be written"):
        mxsame.to_keras(net, tmp_path / f"{'n' * 300}.h5", IMAGE, custom={**custom, **counted})
    assert calls == [1]
    for given, error, message in (
        ({"_contrib_quadratic": lambda write, attributes, x: {}["config"]}, KeyError, "config"),
        (
            {"_contrib_quadratic": lambda write, attributes, x: write("Exp", x)},
            ValueError,
            "layers only.* in the operator",
        ),
        (
            {Twice: lambda write, block, x: write("Dense", x, units=3)},
            ValueError,
            "must be kernel, bias; .* in the block",
        ),
        ({Twice: lambda write, block, x: x}, ValueError, "outputs of the file must equal"),
        ({**custom, "gamma": quadratic}, ValueError, r"block class of the net; received custom=\['gamma'\]"),
    ):
        with pytest.raises(error, match=message):
            mxsame.to_keras(net, tmp_path / "other.h5", IMAGE, custom={**custom, **given})


# ---- what is refused, and files --------------------------------------------------------------------------------------

REFUSED = {
    "all at once": (Own(lambda F, x: F.sum(F.dot(F.flatten(x), F.flatten(x), transpose_b=True), axis=1)),
                    "operator dot.*\n.*only the batch may be dynamic; .* operator sum"),
    "strides and dilation": (chain(same.Conv2DTranspose(2, 3, 2, dilation=2)), "not both be above 1.* Deconvolution"),
    "scales of groups": (chain(nn.Conv2D(4, 1), nn.GroupNorm(2)), "Keras trains one for each channel"),
    "the batch": (Own(lambda F, x: F.sum(x, axis=0)), "the batch must not be reduced"),
    "a batch of one": (Own(lambda F, x: F.reshape(x, (1, -1))), "the batch, merged .*; received axis=1; .* Reshape"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case, tmp_path):
    net, message = REFUSED[case]
    ready(net, IMAGE)
    with pytest.raises(ValueError, match=message):
        mxsame.to_keras(net, tmp_path / "net.keras", IMAGE)
    assert not list(tmp_path.iterdir())


def test_layers_that_only_keras_reads_need_keras(tmp_path, monkeypatch):
    monkeypatch.delitem(OPERATORS, "arctan")
    with pytest.raises(ValueError, match=r"a Keras that loads the file must be installed.*Arctan"):
        mxsame.to_keras(ready(Own(lambda F, x: F.arctan(x)), IMAGE), tmp_path / "net.keras", IMAGE)


def test_an_array_of_integers_is_refused(tmp_path):
    with pytest.raises(ValueError, match="inputs of float32; received dtype"):
        mxsame.to_keras(Own(lambda F, x: x / 2), tmp_path / "net.keras", mx.nd.ones((1, 3), dtype="int32"))


def test_a_file_with_other_outputs_gets_no_name(tmp_path, monkeypatch):
    """And a model of Keras is not written in another form, which might be right."""
    real, added = checking.run_with_mxsame, [0, 1]

    def wrong_once(*args):
        return [[x + added.pop() for x in each] for each in real(*args)]

    monkeypatch.setattr(checking, "run_with_mxsame", wrong_once)
    with pytest.raises(ValueError, match="must equal those of the net"):
        mxsame.to_keras(of_steps(("ReLU", {})), tmp_path / "net.keras", (2, 5, 3))
    assert not list(tmp_path.iterdir())


def test_one_hot_is_compared_for_all_indices(tmp_path, monkeypatch):
    emitter, net = EMITTERS["one_hot"], ready(Own(lambda F, x: F.one_hot(x, depth=3)), (2, 9))
    without_last = emitter._replace(write=lambda w, node, x: axes.affine(w, emitter.write(w, node, x), [1.0, 1.0, 0.0]))
    monkeypatch.setitem(EMITTERS, "one_hot", without_last)
    with pytest.raises(ValueError, match="must equal those of the net"):
        mxsame.to_keras(net, tmp_path / "net.keras", (2, 9))


def test_no_process_imports_a_keras_that_reads_no_such_file(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.1")
    monkeypatch.setattr(checking, "SCRIPT", "raise ValueError('imported')")
    assert RUN_WITH_KERAS("net.keras", []) is None
    with pytest.raises(ValueError, match="Keras says: ValueError: imported"):
        RUN_WITH_KERAS("net.h5", [])


def module_files(folder):
    """Files of the Module API, whose graph ends in a loss."""
    data = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=4, name="conv")
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=5, name="dense"), name="softmax")
    module = mx.mod.Module(symbol)
    module.bind([("data", (2, 3, 8, 8))], [("softmax_label", (2,))])
    module.init_params()
    module.save_checkpoint(str(folder / "net"), 3)
    return str(folder / "net-symbol.json")


def convert(file, out, *arguments):
    return CliRunner().invoke(main, ["convert", str(file), "-o", str(out), *arguments])


def test_the_command_line(tmp_path):
    file, out = module_files(tmp_path), str(tmp_path / "net.keras")
    for arguments, words in (
        (["--shape", "2,3,8,8"], "5 layers, 837 parameters, compared by mxsame.from_keras"),
        ([], "needs -o NAME.keras, NAME.h5 or NAME.onnx, and --shape"),
        (["--shape", "2,3,8,8", "--check"], "accepts -o, --shape, --layout, --json and ONNX"),
    ):
        assert words in " ".join(convert(file, out, *arguments).output.split())
    assert classes(out) == ["InputLayer", "Conv2D", "Flatten", "Dense", "Softmax"]


FOR_EVERY_SIZE = chain(
    same.Conv2D(4, 3, strides=2), nn.BatchNorm(), nn.Activation("relu"), same.MaxPool2D(3, 2),
    same.SeparableConv2D(6, (3, 5), strides=2), same.AvgPool2D(3, 2), same.Conv2DTranspose(3, 3, 2),
)  # fmt: skip


@pytest.mark.parametrize("size", [(33, 32), (40, 45)], ids=str)
def test_files_for_every_size_become_models_of_one(size, tmp_path):
    """With the layers that the net has: what computes the size, gathers and flips is gone."""
    shape, kinds = (1, 3, *size), []
    mxsame.export(ready(FOR_EVERY_SIZE, shape), tmp_path / "net")
    option = ",".join(map(str, shape))
    for out in (tmp_path / "net.h5", tmp_path / "net.keras"):
        result = convert(tmp_path / "net-symbol.json", out, "--shape", option)
        assert result.exit_code == 0, result.output
        kinds.append(classes(out))
    pooling = ["DepthwiseConv2D", "Conv2D", "AveragePooling2D", "Conv2DTranspose"]
    assert kinds == [["InputLayer", "Conv2D", "BatchNormalization", "Activation", "MaxPooling2D", *pooling]] * 2
    configs = {layer.class_name: layer.config for layer in read(str(out)).layers}
    assert [configs[kind]["padding"] for kind in ("MaxPooling2D", "AveragePooling2D")] == ["same", "same"]


FAMILIES = {
    "conv": lambda rank, window: getattr(same, f"Conv{rank}D")(4, *window),
    "conv_depthwise": lambda rank, window: getattr(same, f"DepthwiseConv{rank}D")(*window, in_channels=2),
    "transposed": lambda rank, window: getattr(same, f"Conv{rank}DTranspose")(4, *window),
    "max": lambda rank, window: getattr(same, f"MaxPool{rank}D")(*window),
    "avg": lambda rank, window: getattr(same, f"AvgPool{rank}D")(*window),
}
OFTEN = [("conv", 1, (7, 2)), ("conv", 3, (3, 2)), ("max", 2, (3, 2)), ("avg", 2, (7, 2))]
POOLS = itertools.product(("max", "avg"), (1, 2, 3), ((2, 2), (5, 3)))
RARELY = [*itertools.product(FAMILIES, (1, 2, 3), ((3, 2), (7, 2))), *POOLS]
HEAVY = [pytest.param(*row, marks=pytest.mark.heavy) for row in RARELY if row not in OFTEN]


@pytest.mark.parametrize(("family", "rank", "window"), [*OFTEN, *HEAVY])
def test_what_every_strategy_computes_from_sizes_is_gone(family, rank, window, tmp_path):
    """Two layers in a row, by each strategy that runs them for every size, are the layers that they are for one."""
    net = chain(*(FAMILIES[family](rank, window) for _ in range(2)))
    data = mx.nd.random.normal(shape=(2, 2, *(23, 14, 9)[:rank]))
    mxsame.to_keras(ready(net, data.shape), tmp_path / "static.h5", data.shape, layout="NCHW")
    for strategy in (None, *(name for name in STRATEGIES if name != "dilate")):  # that is operators, not layers
        try:
            with use_strategy(strategy):
                file, _ = mxsame.export(net, tmp_path / f"{strategy}")
        except ValueError:  # it does not run this layer for every size
            continue
        mxsame.to_keras(file, tmp_path / "net.h5", data.shape, layout="NCHW")
        assert classes(tmp_path / "net.h5") == classes(tmp_path / "static.h5"), strategy
        assert difference(mxsame.from_keras(tmp_path / "net.h5")(data).asnumpy(), net(data).asnumpy()) < 1e-5


def test_a_file_that_is_refused_says_how_to_write_it(tmp_path):
    mxsame.export(ready(chain(same.Conv2D(4, 2, strides=2)), IMAGE), tmp_path / "net")
    result = convert(tmp_path / "net-symbol.json", tmp_path / "net.h5", "--shape", "1,3,15,12")
    first_line = result.output.split("Error: ")[1].splitlines()[0]
    assert result.exit_code == 2 and "mxsame.export(net, path, (1, 3, 15, 12))" in first_line


def test_a_static_shape_of_a_keras_model_need_not_be_given(tmp_path):
    net = mxsame.from_keras(mxsame.sample("digits"))
    assert mxsame.deploy(net).signature.shapes == mxsame.audit(net).shapes == {"data": (1, 8, 8, 1)}
    assert mxsame.to_keras(net, tmp_path / "net.h5")[2:] == (6090, "mxsame.from_keras", "model")
    file, _ = mxsame.export(net, tmp_path / "any-size")
    assert classes(mxsame.to_keras(file, tmp_path / "sized.h5", (1, 8, 8, 1)).path).count("Conv2D") == 2
    mxsame.export(net, tmp_path / "net", (None, 8, 8, 1))
    assert mxsame.audit(tmp_path / "net-symbol.json", (None, 8, 8, 1)).wrong == ()
    for call in (lambda shape: mxsame.deploy(net, shape), lambda shape: mxsame.to_keras(net, tmp_path / "a.h5", shape)):
        with pytest.raises(ValueError, match=r"every axis but the batch.*use mxsame.hybridize, or mxsame.exp"):
            call((None, 8, None, 1))


def test_an_input_of_steps_keeps_its_order(tmp_path):
    net = mx.gluon.nn.HybridLambda(lambda F, x: F.max(x, axis=2))
    mxsame.to_keras(net, tmp_path / "net.h5", (2, 5, 3))
    assert mxsame.from_keras(tmp_path / "net.h5").inputs[0].shape == (None, 5, 3)


@pytest.mark.filterwarnings("always:only Keras 3 loads")
@pytest.mark.parametrize(("source", "installed"), [(2, False), (3, False), (3, True)])
def test_an_archive_for_users_of_keras_2_is_warned_about(source, installed, tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(checking, "has_keras_2", lambda: installed)
    net = mxsame.from_keras(mxsame.sample("digits"))
    net.description = replace(net.description, version=source)
    mxsame.to_keras(net, tmp_path / "net.keras")
    assert [each.filename for each in recwarn] == [__file__] * (source == 2 or installed)


@pytest.mark.keras
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_an_installed_keras_is_what_compares(tmp_path, monkeypatch):
    """In another process; a .keras archive is not for Keras 2."""
    monkeypatch.undo()
    net = ready(chain(nn.Conv2D(4, 3)), IMAGE)
    compared = [mxsame.to_keras(net, tmp_path / f"net{end}", IMAGE).compared_by for end in (".h5", ".keras")]
    installed = f"Keras {metadata.version('keras')}"
    assert compared == [installed, "mxsame.from_keras" if ending() == ".h5" else installed]

    keras, file = pytest.importorskip("keras"), tmp_path / f"named{ending()}"
    keras.Model(x := keras.Input((3,)), {"b": keras.layers.ReLU()(x), "a": x}).save(file)
    assert mxsame.to_keras(mxsame.from_keras(file), file, (2, 3)).compared_by == installed
