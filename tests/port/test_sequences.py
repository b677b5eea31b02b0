"""Recurrent layers, live against tf.keras: random ones, in every way that a network runs, from files and back."""

import random

import numpy as np
import pytest
from live_keras import arrays_of, check, check_weights_go_back, compare, expected, inputs_of, keras, layers, randomise
from mxnet import nd

import mxsame

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")]


def recurrent(choose: random.Random):
    """A layer of any kind with any options, at times with states that are given, and the states' shapes."""
    kind = choose.choice(("SimpleRNN", "LSTM", "GRU"))
    options = {
        "return_sequences": choose.random() < 0.5,
        "return_state": choose.random() < 0.3,
        "go_backwards": choose.random() < 0.3,
        "use_bias": choose.random() < 0.7,
        "activation": choose.choice(("tanh", "tanh", "relu", "elu", "hard_sigmoid")),
    }
    if kind != "SimpleRNN":
        options["recurrent_activation"] = choose.choice(("sigmoid", "sigmoid", "hard_sigmoid"))
    if kind == "GRU":
        options["reset_after"] = choose.random() < 0.6
    layer, states = getattr(layers, kind)(4, **options), 1 + (kind == "LSTM")
    if choose.random() < 0.4:
        modes = ("concat", "sum", "ave", "mul", None)
        return layers.Bidirectional(layer, merge_mode=choose.choice(modes)), 2 * states
    return layer, states


def random_model(seed: int):
    """A model with a random recurrent layer, and the lengths of its dynamic axes."""
    choose, layers = random.Random(seed), keras().layers
    steps = choose.choice((None, 5, 7))
    data = keras().Input((steps, 3))
    layer, count = recurrent(choose)
    states = [keras().Input((4,)) for _ in range(count)] if choose.random() < 0.25 else []
    outputs = layer(data, initial_state=states) if states else layer(data)
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if choose.random() < 0.5:
        outputs[0] = layers.Dense(2)(outputs[0])
    return randomise(keras().Model([data, *states], outputs), seed), [6] if steps is None else []


@pytest.mark.parametrize("seed", range(40))
def test_a_random_recurrent_layer(seed, tmp_path):
    model, sizes = random_model(seed)
    inputs = inputs_of(model, sizes)
    wanted, given = expected(model, inputs), [nd.array(x) for x in inputs]
    net = check(model, inputs=inputs)
    compare(arrays_of(mxsame.deploy(net, [x.shape for x in inputs])(*given)), wanted)
    for ending in (".h5", ".keras"):
        model.save(tmp_path / f"model{ending}")
        compare(arrays_of(mxsame.from_keras(str(tmp_path / f"model{ending}"))(*given)), wanted)
    check_weights_go_back(net, model, tmp_path / "weights.h5")


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_deployed_layer_of_any_number_of_steps_is_written_out(kind):
    """Without a loop, and without oneDNN's operators, which would take longer."""
    data = keras().Input((None, 3))
    layer = getattr(keras().layers, kind)(4, recurrent_activation="hard_sigmoid", go_backwards=True)
    model = randomise(keras().Model(data, layers.Dense(2)(layer(data))))
    net = mxsame.from_keras(model)
    for steps in (7, 600):
        (x,) = inputs_of(model, [steps])
        deployed = mxsame.deploy(net, x.shape)
        assert "foreach" not in deployed.graph.tojson() and "fused=True" not in repr(deployed)
        compare(arrays_of(deployed(nd.array(x))), expected(model, [x]))


@pytest.mark.parametrize("seed", [*range(12), "long"])
def test_a_recurrent_layer_is_one_operator_of_onnx(seed, tmp_path):
    """Whatever its activations, for any number of steps."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    import onnx

    if seed == "long":
        data, sizes = keras().Input((600, 3)), []
        model = keras().Model(data, layers.LSTM(4, recurrent_activation="hard_sigmoid")(data))
    else:
        model, sizes = random_model(seed)
    file, inputs = str(tmp_path / "net.onnx"), inputs_of(model, sizes)
    mxsame.export_onnx(mxsame.from_keras(model), file, [x.shape for x in inputs], dynamic_size=bool(sizes))
    kinds = [node.op_type for node in onnx.load(file).graph.node]
    assert sum(kind in ("RNN", "LSTM", "GRU") for kind in kinds) == 1 + any("bidir" in x.name for x in model.layers)
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for lengths in ([], [9]) if sizes else ([],):
        inputs = inputs_of(model, lengths or sizes, batch=3)
        got = session.run(None, {entry.name: x for entry, x in zip(session.get_inputs(), inputs)})
        compare(got, expected(model, inputs))


def test_a_file_of_onnx_gives_the_same_again(tmp_path):
    """Of a masked layer in both directions: ONNX Runtime plans its memory in the first run."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    words, file = keras().Input((5,)), str(tmp_path / "net.onnx")
    both = layers.Bidirectional(layers.SimpleRNN(1))(layers.Embedding(5, 3, mask_zero=True)(words))
    model, x = randomise(keras().Model(words, both)), np.array([[0, 2, 1, 0, 3], [1, 0, 0, 4, 0]], "float32")
    mxsame.export_onnx(mxsame.from_keras(model), file, x.shape)
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for _ in range(2):
        compare(session.run(None, {words.name: x}), expected(model, [x]))


def test_a_deployed_layer_has_no_biases_in_a_file_for_keras(tmp_path):
    data, file = keras().Input((5, 3)), str(tmp_path / "net.h5")
    net = mxsame.from_keras(randomise(keras().Model(data, layers.LSTM(4, use_bias=False)(data))))
    mxsame.to_keras(mxsame.deploy(net, (2, 5, 3)), file, (2, 5, 3))
    assert [layer.config.get("use_bias") for layer in mxsame.from_keras(file).description.layers].count(False) == 1


@pytest.mark.parametrize(("rank", "filters"), [(1, 8), (2, 8), (2, 2), (3, 8)])
@pytest.mark.parametrize("strides, gate", [(1, "hard_sigmoid"), (1, "sigmoid"), (2, "hard_sigmoid"), (2, "sigmoid")])
def test_recurrent_convolutions(rank, filters, strides, gate):
    """SAME with a stride for the data, with stride 1 for the states, which are one convolution if both are 1; in both
    data formats, of which TensorFlow runs channels last on the CPU."""
    size, sequences = (7, 6, 5)[:rank], (strides == 1) == (gate == "sigmoid")
    options = {"strides": strides, "padding": "same", "recurrent_activation": gate, "use_bias": sequences}
    options.update(return_sequences=sequences, return_state=sequences)
    nets = {}
    for data_format, shape in (("channels_last", (4, *size, 3)), ("channels_first", (4, 3, *size))):
        data = keras().Input(shape)
        make = getattr(layers, f"ConvLSTM{rank}D")
        layer = make(filters, 3, go_backwards=rank == 2, data_format=data_format, **options)
        nets[data_format] = keras().Model(data, layer(data))
    last, first = randomise(nets["channels_last"]), nets["channels_first"]
    first.set_weights(last.get_weights())
    (x,) = inputs_of(last)
    compare(arrays_of(mxsame.deploy(check(last), x.shape)(nd.array(x))), expected(last, [x]))
    got = arrays_of(mxsame.from_keras(first)(nd.array(np.moveaxis(x, -1, 2))))
    compare([np.moveaxis(array, -1 - rank, -1) for array in got], expected(last, [x]))
