"""Whole networks, live against tf.keras 2.13: graphs of layers, layouts, training and weights back."""

import numpy as np
import pytest
from live_keras import (
    arrays_of,
    check,
    check_weights_go_back,
    compare,
    expected,
    inputs_of,
    keras,
    layers,
    randomise,
    tf,
)
from mxnet import autograd, gluon, nd, util
from running import Own

import mxsame

pytestmark = pytest.mark.oracle


def test_arrays_that_mxnet_does_not_multiply_are_refused():
    net = mxsame.from_keras(keras().Sequential([layers.Input((4,)), layers.Dense(3)]))
    with util.np_shape(True):
        empty = nd.zeros((0, 4))
    with pytest.raises(ValueError, match=r"data must not be empty; received data.shape=\(0, 4\)"):
        net(empty)
    net.cast("float16")
    with pytest.raises(TypeError, match=r"must be float32 or float64 on the CPU.*; received data.dtype='float16'"):
        net(nd.ones((2, 4), dtype="float16"))


def test_batch_norm_statistics_move_as_in_keras():
    """One step of training moves the statistics by Keras's momentum."""
    norm = layers.BatchNormalization(momentum=0.7, epsilon=0.01, name="norm")
    model = randomise(keras().Sequential([layers.Input((6,)), norm]))
    (data,) = inputs_of(model, batch=50)
    net = mxsame.from_keras(model)
    with autograd.record():
        got = net(nd.array(data))
    got.backward()  # MXNet moves the statistics here
    compare(arrays_of(got), arrays_of(model(data, training=True)))
    mean, variance = model.layers[0].get_weights()[2:]
    parameters = net.collect_params()
    np.testing.assert_allclose(parameters["norm_running_mean"].data().asnumpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(parameters["norm_running_var"].data().asnumpy(), variance, rtol=1e-5)


def test_training_false_freezes_statistics_and_turns_dropout_off():
    """The idiom of fine-tuning: `base(x, training=False)`."""
    base = keras().Sequential([layers.Input((6,)), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(4)])
    x = layers.Input((6,))
    model = randomise(keras().Model(x, base(x, training=False)))
    inputs = inputs_of(model)
    net = mxsame.from_keras(model)
    with autograd.train_mode():
        compare(arrays_of(net(nd.array(inputs[0]))), expected(model, inputs))
    base.trainable = False
    assert {each.grad_req for each in mxsame.from_keras(model).collect_params().values()} == {"null"}


def test_unsupported_layers_are_named_and_custom_ones_are_taken(tmp_path):
    class Doubled(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="normal")

        def call(self, x):
            return 2 * x * self.scale

    stack = layers.Input((6, 7, 3)), layers.Conv2D(4, 3), Doubled(name="twice"), layers.Conv2D(2, 1)
    model = randomise(keras().Sequential(stack))
    with pytest.raises(ValueError, match=r"custom=\{'Doubled'.*received Doubled \('twice'\)"):
        mxsame.from_keras(model)

    def twice(config, weights):
        block = Own(lambda F, x, scale: 2 * F.broadcast_mul(x, scale), scale=weights[0], prefix=config["name"] + "_")
        block.initialize()
        return block

    with pytest.raises(TypeError, match="custom must map names to functions"):
        mxsame.from_keras(model, custom={"Doubled": 3})
    with pytest.raises(TypeError, match="net must be one that from_keras returned"):
        mxsame.to_keras_weights(gluon.nn.Dense(3), tmp_path / "weights.h5")
    net = check(model, custom={"Doubled": twice})
    check(model, custom={"twice": twice})
    with pytest.raises(ValueError, match=r"custom must have names of .*; received custom=\['Twice'\]"):
        mxsame.from_keras(model, custom={"Doubled": twice, "Twice": twice})
    with pytest.raises(ValueError, match=r"need custom=\{'Doubled'.* received 'twice'"):
        mxsame.to_keras_weights(net, tmp_path / "weights.h5")
    with pytest.raises(ValueError, match=r"shapes \[\(4,\)\]; received shapes=\[\]"):
        mxsame.to_keras_weights(net, tmp_path / "weights.h5", custom={"twice": lambda block: []})
    scale = {"twice": lambda block: [block.scale.data().asnumpy()]}
    check_weights_go_back(net, model, tmp_path / "weights.h5", custom=scale)


@pytest.mark.parametrize("ending", [".h5", ".keras", ".weights.h5", ".legacy.h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model")
def test_custom_layers_with_weights_in_nested_models(tmp_path, ending):
    """The older format has one entry for a nested model: first what is trained in it, then the rest."""

    class Scaled(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(shape[-1],))
            self.shift = self.add_weight(name="shift", shape=(shape[-1],), trainable=False)

        def call(self, x):
            return x * self.scale + self.shift

    def inner(name, depth):
        stack = [layers.Input((4,)), layers.Dense(4), Scaled(name=f"scaled_{name}"), layers.BatchNormalization()]
        stack += [inner(f"{name}{depth}", depth - 1)] if depth else []
        return keras().Sequential([*stack, layers.Dense(4)], name=f"model_{name}")

    x = layers.Input((4,))
    outer = keras().Model(x, Scaled(name="last")(inner("b", 0)(inner("a", 1)(layers.Dense(4)(x)))))
    model = randomise(outer)
    path = str(tmp_path / f"model{ending}")
    weights = ending.startswith((".weights", ".legacy"))
    model.save_weights(path) if weights else model.save(path)
    (tmp_path / "model.json").write_text(model.to_json())

    def affine(F, x, scale, shift):
        return F.broadcast_add(F.broadcast_mul(x, scale), shift)

    def custom(config, weights):
        assert [array.shape for array in weights] == [(4,), (4,)]
        block = Own(affine, **dict(zip(("scale", "shift"), weights)))
        block.initialize()
        return block

    (data,) = inputs_of(model)
    source = (tmp_path / "model.json", path) if weights else (path,)
    net = mxsame.from_keras(*source, custom={"Scaled": custom})
    compare(arrays_of(net(nd.array(data))), expected(model, [data]))
    with pytest.raises(ValueError, match="layers with weights must not be in nested models; received 'scaled_a'"):
        mxsame.to_keras_weights(net, tmp_path / "back.h5", custom={"Scaled": lambda block: []})


def test_parts_of_a_live_model_that_are_frozen():
    x = keras().Input((5, 4))
    attention, both = layers.MultiHeadAttention(2, 3), layers.Bidirectional(layers.LSTM(4))
    model = keras().Model(x, both(attention(x, x)))
    attention._query_dense.trainable = both.forward_layer.trainable = False
    check(randomise(model))


@pytest.mark.filterwarnings("ignore:You are saving your model")
def test_weights_of_another_session_are_those_of_layers_in_their_order(tmp_path):
    """As `load_weights` takes them, whatever the names are."""

    def model(names, units=4):
        dense = [layers.Dense(units, name=name) for name in names]
        return randomise(keras().Sequential([keras().Input((4,)), *dense]))

    first, second = model("ab"), model("ba")
    source, path = tmp_path / "model.json", str(tmp_path / "weights.h5")
    source.write_text(second.to_json())
    first.save_weights(path)
    second.load_weights(path)
    check(second, source=source, weights=path)
    for other, message in ((model("abc"), "3 layers; received those of 2"), (model("ab", 5), "must have the shape")):
        source.write_text(other.to_json())
        with pytest.raises(ValueError, match=message):
            mxsame.from_keras(source, path)


def test_a_batch_of_1_that_keras_squeezes_is_refused():
    x = keras().Input((1, 3))
    model = keras().Model(x, tf.squeeze(x))
    net, one = check(model), nd.ones((1, 1, 3))
    for run in (net, mxsame.from_keras(model), lambda x: mxsame.deploy(mxsame.from_keras(model), x.shape)):
        with pytest.raises(ValueError, match=r"batch of 2 or more.*unless it has an axis; .*data.shape=\(1, 1, 3"):
            run(one)
    x = keras().Input((1, 3), batch_size=1)
    with pytest.raises(ValueError, match="axis must be given where an input declares a batch of 1"):
        mxsame.from_keras(keras().Model(x, tf.squeeze(x)))


SWISH = {"swish2": lambda F, x: x * F.sigmoid(2 * x), "softmax1": lambda F, x: F.softmax(x, axis=1)}


@pytest.mark.filterwarnings("ignore:You are saving your model", "ignore:The object being serialized includes a")
@pytest.mark.parametrize("name", [*SWISH, "<lambda>"])
def test_activations_by_name(tmp_path, name):
    """Also one of a whole axis, after convolutions: the output of one has channels first, the other's further axes."""
    swish2 = lambda x: x * keras().backend.sigmoid(2 * x)  # noqa: E731
    function = {"softmax1": lambda x: keras().backend.softmax(x, 1)}.get(name, swish2)
    function.__name__ = name
    with keras().utils.custom_object_scope({name: function}):
        data = layers.Input((5, 6, 3))
        x = layers.Activation(function, name="swish2")(layers.Conv2D(4, 2, activation=function)(data))
        x = layers.Conv1D(4, 1, activation=function)(x)
        cell = layers.LSTM(3, activation=function, recurrent_activation=function, return_sequences=True)
        x = cell(layers.Masking(0.0)(layers.Reshape((10, 8))(x)))
        outputs = layers.GRU(2, activation=function)(x)
        if name != "<lambda>":  # which Keras does not wrap
            outputs = layers.Bidirectional(layers.SimpleRNN(2, activation=function))(x)
        model = randomise(keras().Model(data, outputs))
    custom = {name: SWISH.get(name, SWISH["swish2"])}
    net = check(model, custom=custom)
    (given,) = inputs_of(model)
    compare(arrays_of(mxsame.deploy(net, given.shape)(nd.array(given))), expected(model, [given]))
    for ending in (".h5", ".keras"):
        model.save(tmp_path / f"model{ending}")
        read = mxsame.from_keras(str(tmp_path / f"model{ending}"), custom=custom)
        compare(arrays_of(read(nd.array(given))), expected(model, [given]))
    with pytest.raises(ValueError, match=f"or be given by custom=.'{name}': function of .F, x..; received"):
        mxsame.from_keras(model)


@pytest.mark.parametrize("name", ["hard_sigmoid", "relu6", "swish", "mish", "gelu", "softplus", "relu", "tanh", "exp"])
def test_the_user_s_function_with_the_name_of_another(name):
    """In a live model it is the function that counts; files have its name only, by which Keras loads its own."""
    data = layers.Input((5, 3))
    own = lambda x: 3 * x  # noqa: E731
    own.__name__ = name
    libraries = (keras().activations, tf.nn, tf)
    known = next(getattr(each, name) for each in libraries if hasattr(each, name))
    for make in (
        lambda function: layers.Dense(4, activation=function),
        lambda function: layers.LSTM(4, recurrent_activation=function),
        lambda function: layers.TimeDistributed(layers.Activation(function)),
        lambda function: layers.RNN([layers.GRUCell(4, activation=function), layers.GRUCell(3)]),
    ):
        check(randomise(keras().Model(data, make(known)(data))), hybridize=False)
        model = randomise(keras().Model(data, make(own)(data)))
        with pytest.raises(ValueError, match=f"custom=.'{name}': function .*; received activation='.*{name}'"):
            mxsame.from_keras(model)
        check(model, hybridize=False, custom={name: lambda F, x: 3 * x})


@pytest.mark.parametrize("ending", [".h5", ".weights.h5"])
def test_weights_of_several_cells_are_written_back(tmp_path, ending):
    cells = [layers.LSTMCell(4), layers.GRUCell(3), layers.LSTMCell(2, use_bias=False)]
    model = randomise(keras().Sequential([layers.Input((5, 3)), layers.RNN(cells)]))
    check_weights_go_back(mxsame.from_keras(model), model, tmp_path / f"back{ending}")


@pytest.mark.filterwarnings("ignore:You are saving your model")
def test_losses_and_metrics_of_a_model_are_left_out(tmp_path):
    """And what only feeds them, layers with weights among it, which a file of the network has again."""
    x = layers.Input((6,))
    latent = layers.Dense(4)(x)
    model = keras().Model(x, layers.Dense(3)(latent))
    model.add_loss(tf.reduce_mean(tf.square(layers.Dense(2)(latent))))
    model.add_metric(tf.reduce_sum(latent), name="total")
    for ending in (".h5", ".keras"):
        path = str(tmp_path / f"model{ending}")
        randomise(model).save(path)
        check_weights_go_back(check(model, source=path), model, tmp_path / "weights.h5")


def test_custom_functions_get_all_arguments_of_a_call():
    class Scaled(layers.Layer):
        def call(self, x, factor=1.0, training=False):
            return x * factor

    given = []
    x = layers.Input((3,))

    def block(config, weights):
        given.append({name: config[name] for name in ("y", "factor", "args", "training") if name in config})
        return gluon.nn.HybridLambda(lambda F, x: x)

    calls = [("math.floormod", x % 2.0), ("math.floormod", 2.0 % x), ("Scaled", Scaled()(x, factor=3.0))]
    calls.append(("Scaled", keras().Sequential([layers.Input((3,)), Scaled()])(x, training=True)))
    for name, outputs in calls:
        mxsame.from_keras(keras().Model(x, outputs), custom={name: block})
    assert given == [{"y": 2.0}, {"args": [2.0]}, {"factor": 3.0}, {"training": True}]
    scaled = Scaled()
    model = keras().Model(x, tf.concat([scaled(x), scaled(x, factor=2.0)], 1))
    with pytest.raises(ValueError, match=r"must be the same in all calls of a custom layer; received factor=2\.0"):
        mxsame.from_keras(model, custom={"Scaled": block})


def test_inputs_of_other_batches_are_refused():
    inputs = [layers.Input((3,), batch_size=1), layers.Input((3,))]
    net = mxsame.from_keras(keras().Model(inputs, layers.Add()(inputs)))
    for _ in range(2):
        assert net(nd.ones((2, 3)), nd.ones((2, 3))).shape == (2, 3)
        with pytest.raises(ValueError, match=r"inputs must have the same batch; received batches=\[1, 3\]"):
            net(nd.ones((1, 3)), nd.ones((3, 3)))
        net.hybridize()
    steps, x = layers.Input((None, 4)), layers.Input((4,))  # of which the first has its batch second
    model = keras().Model([steps, x], layers.GRU(2, time_major=True)(steps) + layers.Dense(2)(x))
    check(model, inputs=[np.ones((5, 3, 4), "float32"), np.ones((3, 4), "float32")])


@pytest.mark.filterwarnings("ignore:You are saving your model")
@pytest.mark.parametrize("ending", [".h5", ".keras"])
def test_a_class_that_is_a_layer_of_keras(tmp_path, ending):
    class MyLSTM(layers.LSTM):
        pass

    class Reversed(layers.GRU):
        def __init__(self, units, **kwargs):
            super().__init__(units, **{**kwargs, "go_backwards": True})

        def call(self, inputs, **kwargs):
            return tf.reverse(super().call(inputs, **kwargs), [1])

    stack = [layers.Input((5, 3)), MyLSTM(4, return_sequences=True), Reversed(2, return_sequences=True)]
    model = randomise(keras().Sequential([*stack, layers.LSTM(3)]))
    model.save(tmp_path / f"model{ending}")

    def reversed_gru(config):
        return [{"class_name": "GRU", "config": config}, {"class_name": "Flip", "config": {"axis": 1}}]

    net = check(model, source=str(tmp_path / f"model{ending}"), custom={"MyLSTM": "LSTM", "Reversed": reversed_gru})
    check_weights_go_back(net, model, tmp_path / "weights.h5")
    with pytest.raises(ValueError, match=r"custom of 'my_lstm.*' must name layers of Keras; received names=\['LTSM'\]"):
        mxsame.from_keras(model, custom={"MyLSTM": "LTSM", "Reversed": reversed_gru})
    units = {"name": model.layers[0].name, "units": 4}
    model.layers[0].get_config = lambda: units  # as of a class that only holds an LSTM
    rule = r"must have all keys of that layer's config.*; otherwise .*received missing=\['activ"
    with pytest.raises(ValueError, match=rule):
        mxsame.from_keras(model, custom={"MyLSTM": "LSTM", "Reversed": reversed_gru})
    with pytest.raises(ZeroDivisionError):
        mxsame.from_keras(model, custom={"MyLSTM": lambda config, weights: 1 / 0, "Reversed": reversed_gru})
    net = mxsame.from_keras(keras().Sequential([layers.Input((5, 3)), MyLSTM(4)]), custom={"MyLSTM": "LSTM"})
    assert mxsame.to_keras(net, tmp_path / "own.keras").form == "model"


def test_dropout_of_attention_samples_as_keras():
    """With training=True: the mean and the spread of many samples are those of Keras."""
    data = layers.Input((6, 4))
    attention = layers.MultiHeadAttention(2, 3, dropout=0.4)(data, data, training=True)
    scores = layers.Attention(dropout=0.4)([data, data], return_attention_scores=True, training=True)[1]
    model = randomise(keras().Model(data, [attention, scores]))
    given = np.repeat(inputs_of(model, batch=1)[0], 4000, axis=0)
    for got, want in zip(arrays_of(mxsame.from_keras(model)(nd.array(given))), expected(model, [given])):
        assert want.std(0).max() > 0.05
        np.testing.assert_allclose(got.mean(0), want.mean(0), atol=0.05)
        np.testing.assert_allclose(got.std(0), want.std(0), atol=0.05)
    recurrent = keras().Model(data, layers.LSTM(2, dropout=0.3)(data, training=True))
    with pytest.raises(ValueError, match="a recurrent layer with dropout must not be called with training=True"):
        mxsame.from_keras(recurrent)


def test_parameters_of_a_wrapped_layer_have_both_names():
    x = layers.Input((5, 4))
    model = keras().Model(x, layers.TimeDistributed(layers.Dense(2, name="dense"), name="steps")(x))
    assert list(mxsame.from_keras(model).collect_params()) == ["steps_dense_weight", "steps_dense_bias"]


@pytest.mark.parametrize(
    ("layer", "shape", "axes"),
    [
        ("SpatialDropout1D", (50, 40), (1,)),
        ("SpatialDropout2D", (9, 8, 40), (1, 2)),
        ("SpatialDropout3D", (3, 4, 5, 40), (1, 2, 3)),
        ("Dropout", (9, 8, 40), ()),
    ],
)
def test_dropout_drops_whole_channels_or_single_elements(layer, shape, axes):
    """Whole channels, of each entry of the batch by itself; or every element by itself."""
    dropout = getattr(keras().layers, layer)(0.5)
    for around in ([], [getattr(keras().layers, f"Conv{len(shape) - 1}D")(40, 1, use_bias=False)]):
        model = keras().Sequential([layers.Input(shape), *around, dropout])
        net = mxsame.from_keras(model)
        given = nd.ones((4, *shape))
        with autograd.train_mode():
            kept = net(given).asnumpy() != 0
        assert (kept.mean(axes) if axes else kept).shape == ((4, 40) if axes else kept.shape)
        assert set(np.unique(kept.mean(axes))) == {0.0, 1.0} if axes else kept.reshape(-1, 40).mean(0).max() < 1
        assert 0.3 < kept.mean() < 0.7
        assert (kept[0] != kept[1]).any()
