"""Whole networks, live against tf.keras 2.13: graphs of layers, layouts, training and weights back."""

import numpy as np
import pytest
from live_keras import arrays_of, check, compare, expected, first, inputs_of, keras, randomise
from mxnet import autograd, gluon, nd

import mxsame

pytestmark = pytest.mark.oracle


def siamese(layers, Model):
    left, right = layers.Input((13, 10, 3)), layers.Input((13, 10, 3))
    tower = keras().Sequential([layers.Input((13, 10, 3)), layers.Conv2D(4, 3, 2, "same"), layers.BatchNormalization(),
                                layers.ReLU(), layers.GlobalAveragePooling2D()], name="tower")  # fmt: skip
    return Model([left, right], layers.Dot(axes=1, normalize=True)([tower(left), tower(right)]))


def two_inputs_two_outputs(layers, Model):
    picture, numbers = layers.Input((9, 8, 3)), layers.Input((5,))
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="shared")(picture)
    gate = layers.Reshape((1, 1, 4))(layers.Dense(4, activation="sigmoid")(numbers))
    x = layers.Multiply()([x, gate])
    return Model([picture, numbers], [layers.Conv2D(2, 1)(x), layers.Dense(3)(layers.Flatten()(x))])


def shared_layer(layers, Model):
    x = layers.Input((8, 9, 4))
    conv, dense, norm = layers.Conv2D(4, 3, padding="same"), layers.Dense(4), layers.LayerNormalization()
    y = norm(dense(conv(conv(x))))
    return Model(x, [norm(dense(x)), layers.Concatenate(axis=1)([x, y]), layers.Concatenate()([x, y])])


def padded_in_many_ways(layers, Model):
    x = layers.Input((8, 9, 3))
    padded = layers.ZeroPadding2D(((1, 2), (0, 1)))(x)
    conv = layers.Conv2D(4, 3)
    outputs = [layers.Conv2D(2, 3, 2)(padded), layers.MaxPooling2D(2)(padded), conv(padded), conv(x)]
    return Model(x, [*outputs, layers.ReLU()(layers.ZeroPadding2D(2)(padded)), layers.Conv2D(2, 2)(padded)])


def operators(layers, Model):
    import tensorflow as tf

    x = layers.Input((6, 8, 4))
    y = layers.Conv2D(4, 3, padding="same")(x)
    outputs = [
        *(x + y, 2.0 - y, y * 0.5, y / 3.0, -y, 1.0 / (y * y + 1.0), tf.abs(y), tf.maximum(x, y), tf.minimum(y, 0.5)),
        *(y * [1.0, 2.0, 3.0, 4.0], y - [1.0, 2.0, 3.0, 4.0], tf.square(y), tf.sqrt(tf.abs(y) + 1.0), tf.exp(y)),
        *(
            tf.reduce_mean(y, [1, 2]),
            tf.reduce_max(y, -1),
            tf.reduce_sum(y, [1, 2], keepdims=True),
            tf.reduce_min(y, 2),
        ),
        *(y[:, 1:, ::2], y[:, :, :, 1], y[:, None], y[:, -1], y[:, :, 2:-1, :2], tf.expand_dims(y, 1)),
        *(tf.reshape(y, [-1, 48, 4]), tf.transpose(y, [0, 3, 1, 2]), tf.pad(y, [[0, 0], [1, 2], [0, 1], [0, 0]])),
        *(tf.concat([x, y], -1), tf.concat([x, y], 1), tf.stack([x, y], 1), tf.squeeze(tf.reduce_sum(y, 1, True), 1)),
        *(tf.nn.relu(y), tf.nn.relu6(y), tf.nn.silu(y), tf.nn.gelu(y), tf.sigmoid(y), tf.tanh(y), tf.nn.softmax(y)),
        *(tf.nn.leaky_relu(y, 0.1), tf.clip_by_value(y, -0.2, 0.3), tf.pow(tf.abs(y), 1.5), tf.nn.elu(y)),
        *(
            tf.nn.depth_to_space(y, 2),
            tf.nn.space_to_depth(y, 2),
            tf.image.resize(y, (5, 9)),
            tf.math.l2_normalize(y, -1),
        ),
        *tf.split(y, 2, axis=-1),
        *tf.split(y, [1, 4, 1], axis=1),
    ]
    return Model(x, outputs)


def nested_in_nested(layers, Model):
    inner = keras().Sequential(
        [layers.Input((9, 8, 3)), layers.Conv2D(3, 3, padding="same"), layers.BatchNormalization()]
    )
    x = layers.Input((9, 8, 3))
    middle = Model(x, [layers.ReLU()(inner(x)), layers.AveragePooling2D(padding="same")(x)], name="middle")
    y = layers.Input((9, 8, 3))
    once, pooled = middle(y)
    twice, _ = middle(once)
    return Model(y, [layers.Add()([once, twice]), layers.Conv2D(2, 2)(pooled)])


NETWORKS = [siamese, two_inputs_two_outputs, shared_layer, padded_in_many_ways, operators, nested_in_nested]


def built(network):
    keras().backend.clear_session()
    return randomise(network(keras().layers, keras().Model))


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_network(network):
    check(built(network), tolerance=1e-4 if network is operators else 2e-5)


@pytest.mark.parametrize("network", NETWORKS[:-2], ids=lambda network: network.__name__)
def test_channels_first_takes_and_gives_the_same(network):
    model = built(network)
    inputs = inputs_of(model)
    wanted = [first(array) if array.ndim == 4 else array for array in expected(model, inputs)]
    net = mxsame.from_keras(model, layout="NCHW")
    compare(arrays_of(net(*(nd.array(first(x) if x.ndim == 4 else x) for x in inputs))), wanted)


@pytest.mark.parametrize("ending", [".h5", ".keras"])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@pytest.mark.filterwarnings("ignore:You are saving your model:UserWarning")
def test_files_and_weights_back(network, ending, tmp_path):
    """A file gives the same net; and what `to_keras_weights` writes, Keras loads into a model of other weights."""
    model = built(network)
    path = str(tmp_path / f"model{ending}")
    model.save(path)
    inputs = inputs_of(model)
    wanted = expected(model, inputs)
    net = check(model, hybridize=False, tolerance=1e-4, source=path, inputs=inputs)
    mxsame.to_keras_weights(net, tmp_path / "weights.h5")
    randomise(model, seed=7)
    model.load_weights(str(tmp_path / "weights.h5"))
    compare(expected(model, inputs), wanted, 0)
    (tmp_path / "model.json").write_text(model.to_json())
    again = mxsame.from_keras(tmp_path / "model.json", tmp_path / "weights.h5")
    compare(arrays_of(again(*map(nd.array, inputs))), wanted, 1e-4)


def test_sizes_that_are_dynamic():
    layers = keras().layers
    x = layers.Input((None, None, 3))
    y = layers.Conv2D(4, 3, 2, "same")(x)
    y = layers.Add()([y, layers.Conv2D(4, 1, 2, "same")(x)])
    y = layers.BatchNormalization()(layers.UpSampling2D(2)(layers.MaxPooling2D(2, padding="same")(y)))
    model = randomise(keras().Model(x, [y, layers.GlobalAveragePooling2D()(y)]))
    net = mxsame.hybridize(mxsame.from_keras(model))
    for sizes in ((9, 12), (10, 7), (16, 16)):
        inputs = inputs_of(model, sizes)
        compare(arrays_of(net(nd.array(inputs[0]))), expected(model, inputs))


@pytest.mark.parametrize("hybridize", [False, True])
def test_gradients_of_all_weights(hybridize):
    """Through a loss, in training mode: batch statistics, and a layer that is not trained."""
    import tensorflow as tf

    layers = keras().layers
    x = layers.Input((11, 10, 3))
    y = layers.SeparableConv2D(5, 3, strides=2, padding="same", activation="swish", name="separable")(x)
    y = layers.BatchNormalization(name="norm")(
        layers.DepthwiseConv2D(3, padding="same", use_bias=False, name="depthwise")(y)
    )
    y = layers.PReLU(shared_axes=[1, 2], name="prelu")(layers.Conv2DTranspose(4, 3, 2, "same", name="up")(y))
    y = layers.Conv2D(4, 3, 2, "same", trainable=False, name="frozen")(y)
    y = layers.LayerNormalization(name="layer_norm")(y)
    model = randomise(keras().Model(x, layers.Dense(3, name="dense")(layers.Flatten()(y))))
    (data,) = inputs_of(model, batch=4)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(data, training=True)))
    gradients = tape.gradient(loss, model.trainable_weights)
    wanted = {weight.name.split(":")[0]: grad.numpy() for weight, grad in zip(model.trainable_weights, gradients)}
    net = mxsame.from_keras(model)
    if hybridize:
        mxsame.hybridize(net)
    with autograd.record():
        (net(nd.array(data)) ** 2).mean().backward()
    seen = 0
    for layer in net.description.walk():
        for slot in net.slots.get(id(layer), ()):
            key = f"{layer.name}/{slot.role}"
            assert slot.parameter.name.startswith(f"{layer.name}_")
            if key in wanted:
                gradient = slot.conversion.to_keras(slot.parameter.grad().asnumpy())
                scale = np.abs(wanted[key]).max()
                np.testing.assert_allclose(gradient / scale, wanted[key] / scale, atol=1e-4, err_msg=key)
                seen += 1
            elif layer.name == "frozen":
                assert slot.parameter.grad_req == "null"
    assert seen == len(wanted)


def test_batch_norms_go_on_as_in_keras():
    """One step of training moves the statistics by Keras's momentum."""
    layers = keras().layers
    model = randomise(
        keras().Sequential([layers.Input((6,)), layers.BatchNormalization(momentum=0.7, epsilon=0.01, name="norm")])
    )
    (data,) = inputs_of(model, batch=50)
    net = mxsame.from_keras(model)
    with autograd.record():
        got = net(nd.array(data))
    got.backward()  # MXNet moves the statistics here
    compare(arrays_of(got), arrays_of(model(data, training=True)))
    mean, variance = model.layers[0].get_weights()[2:]
    found = net.collect_params()
    np.testing.assert_allclose(found["norm_running_mean"].data().asnumpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(found["norm_running_var"].data().asnumpy(), variance, rtol=1e-5)


def test_training_false_keeps_statistics_and_dropout_out():
    """The idiom of fine-tuning: `base(x, training=False)`."""
    layers = keras().layers
    base = keras().Sequential([layers.Input((6,)), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(4)])
    x = layers.Input((6,))
    model = randomise(keras().Model(x, base(x, training=False)))
    inputs = inputs_of(model)
    net = mxsame.from_keras(model)
    with autograd.train_mode():
        compare(arrays_of(net(nd.array(inputs[0]))), expected(model, inputs))


def test_noise_trains_as_in_keras():
    """Mean and variance of what training makes of ones, hybridized too."""
    layers = keras().layers
    for layer, spread in (
        (layers.GaussianNoise(0.3), 0.3),
        (layers.GaussianDropout(0.2), 0.5),
        (layers.Dropout(0.2), 0.5),
        (layers.SpatialDropout1D(0.2), 0.5),
    ):
        net = mxsame.from_keras(keras().Sequential([layers.Input((100, 300)), layer]))
        for hybridized in (False, True):
            if hybridized:
                net.hybridize()
            with autograd.train_mode():
                out = net(nd.ones((4, 100, 300))).asnumpy()
            assert abs(out.mean() - 1) < 0.08
            assert abs(out.std() - spread) < 0.06
            assert (net(nd.ones((4, 100, 300))).asnumpy() == 1).all()
    net = mxsame.from_keras(keras().Sequential([layers.Input((500,)), layers.AlphaDropout(0.3)]))
    with autograd.train_mode():
        out = net(nd.random.normal(shape=(200, 500))).asnumpy()
    assert abs(out.mean()) < 0.05
    assert abs(out.std() - 1) < 0.05


def test_unsupported_layers_are_named_and_custom_ones_are_taken(tmp_path):
    layers = keras().layers

    class Doubled(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="normal")

        def call(self, x):
            return 2 * x * self.scale

    model = keras().Sequential(
        [layers.Input((6, 7, 3)), layers.Conv2D(4, 3), Doubled(name="twice"), layers.Conv2D(2, 1)]
    )
    randomise(model)
    with pytest.raises(ValueError, match=r"custom=\{'Doubled'.*received Doubled \('twice'\)"):
        mxsame.from_keras(model)

    class Block(gluon.HybridBlock):
        def __init__(self, config, weights):
            super().__init__(prefix=config["name"] + "_")
            with self.name_scope():
                self.scale = self.params.get("scale", shape=weights[0].shape)
            self.scale.initialize()
            self.scale.set_data(nd.array(weights[0]))

        def hybrid_forward(self, F, x, scale):
            return 2 * F.broadcast_mul(x, scale)

    net = check(model, custom={"Doubled": Block})
    check(model, custom={"twice": Block})
    with pytest.raises(ValueError, match=r"custom must have names of .*; received custom=\['Twice'\]"):
        mxsame.from_keras(model, custom={"Doubled": Block, "Twice": Block})
    with pytest.raises(ValueError, match=r"need custom=\{'Doubled'.* received 'twice'"):
        mxsame.to_keras_weights(net, tmp_path / "weights.h5")
    with pytest.raises(ValueError, match=r"shapes \[\(4,\)\]; received shapes=\[\]"):
        mxsame.to_keras_weights(net, tmp_path / "weights.h5", custom={"twice": lambda block: []})
    mxsame.to_keras_weights(
        net, tmp_path / "weights.h5", custom={"twice": lambda block: [block.scale.data().asnumpy()]}
    )
    inputs = inputs_of(model)
    wanted = expected(model, inputs)
    randomise(model, seed=7)
    model.load_weights(str(tmp_path / "weights.h5"))
    compare(expected(model, inputs), wanted, 0)


@pytest.mark.parametrize("ending", [".h5", ".keras", ".weights.h5", ".legacy.h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model")
def test_custom_layers_with_weights_in_nested_models(tmp_path, ending):
    """The older format has one entry for a nested model: first what is trained in it, then the rest."""
    layers = keras().layers

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

    class Block(gluon.HybridBlock):
        def __init__(self, weights):
            super().__init__()
            self.scale, self.shift = (
                self.params.get_constant(name, nd.array(array)) for name, array in zip(("scale", "shift"), weights)
            )

        def hybrid_forward(self, F, x, scale, shift):
            return F.broadcast_add(F.broadcast_mul(x, scale), shift)

    def custom(config, weights):
        assert [array.shape for array in weights] == [(4,), (4,)]
        block = Block(weights)
        block.initialize()
        return block

    (data,) = inputs_of(model)
    source = (tmp_path / "model.json", path) if weights else (path,)
    net = mxsame.from_keras(*source, custom={"Scaled": custom})
    compare(arrays_of(net(nd.array(data))), expected(model, [data]))
    with pytest.raises(
        ValueError, match="custom layers with weights must not be in nested models; received 'scaled_a'"
    ):
        mxsame.to_keras_weights(net, tmp_path / "back.h5", custom={"Scaled": lambda block: []})


def test_code_in_a_lambda_is_not_executed(tmp_path):
    layers = keras().layers
    model = keras().Sequential([layers.Input((3,)), layers.Lambda(lambda x: x + 1, name="plus")])
    with pytest.raises(ValueError, match=r"received Lambda \('plus'\)"):
        mxsame.from_keras(model)

    class Plus(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x + 1

    check(model, custom={"plus": lambda config, weights: Plus()})


def test_deploy_and_export(tmp_path):
    layers = keras().layers
    model = built(two_inputs_two_outputs)
    inputs = inputs_of(model)
    net = mxsame.from_keras(model, layout="NCHW")
    given = [nd.array(first(inputs[0])), nd.array(inputs[1])]
    wanted = arrays_of(net(*given))
    compare(arrays_of(mxsame.deploy(net, [x.shape for x in given])(*given)), wanted)
    stack = [layers.Input((9, 8, 3)), layers.ZeroPadding2D(1), layers.Conv2D(4, 3, 2), layers.BatchNormalization()]
    stack += [layers.GaussianNoise(0.1), layers.ReLU(), layers.Flatten(), layers.Dense(3)]
    model = randomise(keras().Sequential(stack))
    net = mxsame.from_keras(model)
    (data,) = inputs_of(model)
    symbol, params = mxsame.export(net, str(tmp_path / "net"), data.shape)
    loaded = gluon.SymbolBlock.imports(symbol, ["data"], params)
    compare(arrays_of(loaded(nd.array(data))), expected(model, [data]))
    compare(arrays_of(mxsame.deploy(net, data.shape)(nd.array(data))), expected(model, [data]))


def test_names_that_would_meet():
    """A separable layer `x` has a parameter x_depthwise_weight, and so has a layer `x_depthwise`."""
    layers = keras().layers
    x = layers.Input((8, 9, 3))
    y = layers.DepthwiseConv2D(3, padding="same", name="x_depthwise")(layers.SeparableConv2D(4, 3, name="x")(x))
    net = check(randomise(keras().Model(x, y)))
    assert len(list(net.collect_params())) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"padding": "same"}, "padding must be"),
        ({"layout": "NCHWD"}, "layout must be one of"),
        ({"custom": {"A": 3}}, "custom must map"),
    ],
)
def test_wrong_arguments(arguments, message):
    model = keras().Sequential([keras().layers.Input((3,)), keras().layers.Dense(2)])
    with pytest.raises((TypeError, ValueError), match=message):
        mxsame.from_keras(model, **arguments)
    with pytest.raises(TypeError, match="source must be a path or a Keras model"):
        mxsame.from_keras(3)
    with pytest.raises(TypeError, match="net must be one that from_keras returned"):
        mxsame.to_keras_weights(gluon.nn.Dense(3), "weights.h5")


def test_padding_of_keras_mxnet():
    """Layers as `mxsame.nn` has them with that padding."""
    layers = keras().layers
    stack = [layers.Input((9, 10, 3)), layers.Conv2D(4, 3, 2, "same"), layers.MaxPooling2D(3, 2, "same")]
    model = randomise(keras().Sequential([*stack, layers.ZeroPadding2D(1), layers.Conv2D(2, 2)]))
    (data,) = inputs_of(model)
    net = mxsame.from_keras(model, padding="keras-mxnet")
    conv, last = (gluon_conv(layer) for layer in (model.layers[0], model.layers[-1]))
    pool = mxsame.nn.MaxPool2D(3, 2, padding="keras-mxnet")
    padded = nd.pad(pool(conv(nd.array(first(data)))), mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
    compare(arrays_of(net(nd.array(data))), [np.moveaxis(last(padded).asnumpy(), 1, -1)])


def gluon_conv(layer):
    """A convolution of mxsame.nn with a Keras layer's weights and keras-mxnet's padding."""
    kernel, bias = layer.get_weights()
    padding = "keras-mxnet" if layer.padding == "same" else layer.padding
    conv = mxsame.nn.Conv2D(layer.filters, layer.kernel_size, layer.strides, padding, in_channels=kernel.shape[2])
    conv.initialize()
    conv.weight.set_data(nd.array(mxsame.keras.layouts.to_mxnet(kernel, "conv")))
    conv.bias.set_data(nd.array(bias))
    return conv


@pytest.mark.parametrize("steps", [5, None])
def test_layers_for_every_step_in_time(tmp_path, steps):
    """TimeDistributed: a layer with and without weights, a batch norm, and a whole model; files of both formats."""
    layers, models = keras().layers, keras()
    picture = models.Sequential([layers.Input((6, 7, 3)), layers.Conv2D(4, 3, 2, "same"), layers.Flatten()], name="cnn")
    x = layers.Input((steps, 6, 7, 3))
    y = layers.TimeDistributed(layers.ZeroPadding2D(1))(x)
    y = layers.TimeDistributed(layers.Conv2D(3, 3, padding="valid", activation="relu"), name="conv")(y)
    y = layers.TimeDistributed(layers.BatchNormalization(), name="norm")(y)
    y = layers.TimeDistributed(picture, name="pictures")(y)
    y = layers.Conv1D(5, 3, padding="same")(layers.TimeDistributed(layers.Dense(6), name="dense")(y))
    model = randomise(models.Model(x, y))
    data = inputs_of(model, (5,))
    net = check(model, inputs=data)
    assert "conv_conv2d" in " ".join(net.collect_params())
    (tmp_path / "model.json").write_text(model.to_json())
    for ending in (".keras", ".weights.h5", ".legacy.h5"):
        path = str(tmp_path / f"model{ending}")
        model.save(path) if ending == ".keras" else model.save_weights(path)
        source = path if ending == ".keras" else tmp_path / "model.json"
        read = mxsame.from_keras(source, None if ending == ".keras" else path)
        compare(arrays_of(read(nd.array(data[0]))), expected(model, data))
    mxsame.to_keras_weights(net, str(tmp_path / "back.h5"))
    before = expected(model, data)
    randomise(model, seed=7)
    model.load_weights(str(tmp_path / "back.h5"))
    compare(expected(model, data), before, tolerance=1e-7)


def test_layers_for_every_step_are_refused_by_name():
    layers = keras().layers
    x = layers.Input((5, 4))
    model = keras().Model(x, layers.TimeDistributed(layers.Dense(3), name="steps")(x))
    with pytest.raises(ValueError, match=r"layer 'steps' \(TimeDistributed\): .*received shape="):
        mxsame.from_keras(model, padding="keras-mxnet")
    model = keras().Model(x, layers.TimeDistributed(layers.Lambda(lambda x: x, name="code"), name="steps")(x))
    with pytest.raises(ValueError, match=r"custom=\{'Lambda'.* received Lambda \('code'\)"):
        mxsame.from_keras(model)


def test_an_option_that_is_not_supported_names_the_layer_and_the_way_out():
    layers = keras().layers
    model = keras().Sequential([layers.Input((6, 7, 3)), layers.Resizing(3, 4, "bicubic", name="smaller")])
    with pytest.raises(ValueError, match=r"layer 'smaller' \(Resizing\): interpolation .*custom=\{'smaller': function"):
        mxsame.from_keras(model)


def test_short_vectors_become_units():
    """Keras's epsilon is 1e-12: of the square, which data of 1e-3 is far above."""
    layers = keras().layers
    model = keras().Sequential([layers.Input((4, 6)), layers.Rescaling(1e-3), layers.UnitNormalization()])
    check(model)


@pytest.mark.parametrize(
    ("layer", "shape", "axes"),
    [
        ("SpatialDropout1D", (50, 40), (1,)),
        ("SpatialDropout2D", (9, 8, 40), (1, 2)),
        ("SpatialDropout3D", (3, 4, 5, 40), (1, 2, 3)),
        ("Dropout", (9, 8, 40), ()),
    ],
)
def test_what_dropout_drops_together(layer, shape, axes):
    """Whole channels, of each entry of the batch by itself; or every element by itself."""
    dropout = getattr(keras().layers, layer)(0.5)
    for around in ([], [getattr(keras().layers, f"Conv{len(shape) - 1}D")(40, 1, use_bias=False)]):
        model = keras().Sequential([keras().layers.Input(shape), *around, dropout])
        net = mxsame.from_keras(model)
        given = nd.ones((4, *shape))
        with autograd.train_mode():
            kept = net(given).asnumpy() != 0
        assert (kept.mean(axes) if axes else kept).shape == ((4, 40) if axes else kept.shape)
        assert set(np.unique(kept.mean(axes))) == {0.0, 1.0} if axes else kept.reshape(-1, 40).mean(0).max() < 1
        assert 0.3 < kept.mean() < 0.7
        assert (kept[0] != kept[1]).any()


def test_default_slopes():
    """Of layers and of functions, which are other ones: LeakyReLU() 0.3, tf.nn.leaky_relu 0.2."""
    import tensorflow as tf

    layers = keras().layers
    x = layers.Input((5, 4))
    outputs = [layers.LeakyReLU()(x), tf.nn.leaky_relu(x), layers.Activation("elu")(x), layers.ReLU()(x)]
    check(keras().Model(x, outputs))
