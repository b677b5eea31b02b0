"""Models whose inputs leave lengths open: one network, file and ONNX file for all of them, beside live tf.keras."""

import pytest
import running
from live_keras import arrays_of, check, compare, expected, inputs_of, keras, layers, randomise, tf
from mxnet import autograd, nd

import mxsame

pytestmark = pytest.mark.oracle


def cropped(x):
    """A decoder that crops what it has enlarged to the size of the picture."""
    small = layers.MaxPooling2D(2, padding="same")(layers.Conv2D(4, 3, padding="same")(x))
    large = layers.UpSampling2D(2)(small)
    return layers.Concatenate()([x, large[:, : tf.shape(x)[1], : tf.shape(x)[2]]])


def like_the_input(method):
    """A decoder that resizes to the size of the picture."""

    def resized(x):
        small = layers.Conv2D(4, 3, strides=2, padding="same")(x)
        return layers.Concatenate()([x, tf.image.resize(small, tf.shape(x)[1:3], method=method)])

    return resized


def merged_axes(x):
    batch, height, width = (tf.shape(x)[axis] for axis in range(3))
    return layers.Dense(2)(tf.reshape(x, [batch, height * width, 4]))


SIZES = ((9, 12), (1, 1), (1, 7), (2, 1), (31, 64))
MODELS = {  # name -> (shape, function, lengths)
    "last step": ((None, 6), lambda x: x[:, -1], ((5,), (2,), (1,))),
    "last steps": ((None, 6), lambda x: x[:, -2:], ((5,), (2,))),
    "each step": ((None, 6), lambda x: layers.TimeDistributed(layers.Dense(2))(x), ((5,), (9,), (1,))),
    "cropped": ((None, None, 3), cropped, ((9, 12), (1, 1), (7, 2))),
    "merged axes": ((None, None, 4), merged_axes, ((5, 3), (1, 4))),
    "bilinear": ((None, None, 3), like_the_input("bilinear"), SIZES),
    "nearest": ((None, None, 3), like_the_input("nearest"), SIZES),
}


@pytest.mark.parametrize("name", MODELS)
def test_any_length(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    shape, function, sizes = MODELS[name]
    x = keras().Input(shape)
    model = randomise(keras().Model(x, function(x)))
    net, file = mxsame.from_keras(model), str(tmp_path / "net")
    first = inputs_of(model, sizes[0])[0]
    mxsame.export_onnx(net, f"{file}.onnx", first.shape, dynamic_size=True)
    session = runtime.InferenceSession(f"{file}.onnx", providers=["CPUExecutionProvider"])
    block = running.from_files(net, tmp_path)
    hybridized = mxsame.hybridize(mxsame.from_keras(model), max_graphs=1)
    for size in sizes:
        (data,) = inputs_of(model, size, batch=3)
        given, want = nd.array(data), expected(model, [data])
        for run in (net, hybridized, block, mxsame.deploy(net, data.shape)):
            compare(arrays_of(run(given)), want, 2e-6)
        compare(session.run(None, {net.input_names[0]: data}), want, 2e-6)
    gradient_of(model, hybridized, first)


def gradient_of(model, net, data):
    given, variable = nd.array(data), tf.Variable(data)
    given.attach_grad()
    with autograd.record():
        loss = net(given).square().sum()
    loss.backward()
    with tf.GradientTape() as tape:
        squares = tf.reduce_sum(tf.square(model(variable)))
    compare([given.grad.asnumpy()], [tape.gradient(squares, variable).numpy()], 1e-5)


@pytest.mark.parametrize("shape", [(None, 3), (5, 3)])
def test_a_length_of_1_is_broadcast(shape):
    x, y = keras().Input((None, 3)), keras().Input(shape)
    model = keras().Model([x, y], layers.Concatenate()([x + y, layers.Multiply()([x, y])]))
    data = inputs_of(keras().Model([x, y], [x, y]), (5, 5))
    check(model, inputs=[data[0][:, :1], data[1]])
