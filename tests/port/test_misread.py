"""Models whose meaning is easily misread, live against tf.keras: files of both formats are exact in every way, or are
refused by the name of a layer; which of the two is in the tables."""

from collections import Counter

import live_keras  # before TensorFlow
import numpy as np
import pytest
import running
from expressions import keras, lines, model_of, outcome, saved
from live_keras import check_weights_go_back
from mxnet import gluon, nd
from random_expressions import check
from running import of_the_day

import mxsame

pytestmark = pytest.mark.oracle

EXACT = """
# masks: who takes them, who passes them on, who loses them
5 3: LSTM(4, go_backwards=True, return_sequences=True)(Masking(-0.25)(x))
5 3: LSTM(4, return_state=True, return_sequences=True, go_backwards=True)(Masking()(x))
5 3: Bidirectional(LSTM(4, return_sequences=True, zero_output_for_mask=True))(Masking()(x))
5 3: Bidirectional(GRU(4, return_sequences=True), merge_mode=None)(Masking()(x))
5 3: Bidirectional(LSTM(4, return_state=True, return_sequences=True), merge_mode="mul")(Masking()(x))
5 3: Bidirectional(LSTM(4), backward_layer=GRU(4, go_backwards=True, activation="relu"))(Masking()(x))
5 3: GRU(3, activation="relu", recurrent_activation=None, reset_after=False, implementation=1)(Masking()(x))
5 3: (lambda layer: [layer(x), layer(Masking()(x))])(GlobalAveragePooling1D())
5 3 & 4 3: (lambda model: [model(x), model(y)])(keras.Sequential([Masking(), LSTM(3)]))
5 3 & 5 3: nested(dict, "ab")({"b": Masking()(x), "a": y})
5 3 & 5 3: nested(list, "ba")({"a": x, "b": Masking()(y)})
5 words: keras.Sequential([keras.Input((5, 3)), LSTM(3)])(Embedding(5, 3)(x), mask=tf.greater(x, 1))
3 3 3: GlobalAveragePooling1D()(Reshape((3, 9))(Masking()(x)))
4 3 words: LSTM(2)(TimeDistributed(keras.Sequential([keras.Input((3,)), Embedding(5, 3, mask_zero=True), LSTM(2)]))(x))
4 3 words: [TimeDistributed(f)(embedded(x)) for f in (Bidirectional(LSTM(4)), TimeDistributed(Dense(2)))]
3 4 5 2: TimeDistributed(TimeDistributed(LSTM(2)))(x)
5 6 5 3: TimeDistributed(BatchNormalization())(TimeDistributed(Conv2D(3, 3))(TimeDistributed(ZeroPadding2D(1))(x)))
None 6 5 3: TimeDistributed(keras.Sequential([Input((6, 5, 3)), Conv2D(4, 3, 2, "same"), Flatten()]))(x)
5 words: [LSTM(3)(f()([embedded(x), Embedding(5, 3)(x)])) for f in (Concatenate, Maximum, Multiply, Add)]
5 words & 5 words: [LSTM(3)(f([embedded(x), embedded(y)])) for f in (Add(), Dot(2), lambda xs: xs[0] + xs[1])]
5 words & 4 words: [LSTM(2)(f([embedded(x), embedded(y)])) for f in (Concatenate(axis=1), Attention())]
5 words: [LSTM(3)(f(embedded(x))) for f in (tf.nn.relu, tf.identity, Identity(), lambda x: tf.cast(x, "float32"))]
5 words: [LSTM(2)(f(embedded(x))) for f in (EinsumDense("abc,cd->abd", (None, 3)), Rescaling(2.), GaussianNoise(0.1))]
5 words: [LSTM(2)(f(embedded(x))) for f in (PReLU(), GroupNormalization(1), UnitNormalization(), RandomFlip())]
5 words & 4 words: GlobalAveragePooling1D()(Attention()([Embedding(5, 3)(x), embedded(y)]))
5 words & 4 words: MultiHeadAttention(2, 3)(embedded(x), embedded(y))
5 words: LSTM(2)(MultiHeadAttention(2, 3)(embedded(x), Embedding(5, 3)(x)))
5 words: GlobalAveragePooling1D("channels_first", keepdims=True)(Embedding(5, 5, mask_zero=True)(x))
5 words: GlobalMaxPooling1D()(embedded(x))
5 words: LSTM(2)(RepeatVector(3)(LSTM(3)(embedded(x))))
5 words: LSTM(2)(Permute((2, 1))(Reshape((5, 3))(embedded(x))))
5 words: [LSTM(2)(embedded(x), mask=None), keras.Sequential([LSTM(2)])(embedded(x), mask=None)]
5 3: [f(Masking()(x)) for f in (LSTM(4, return_sequences=True, zero_output_for_mask=True), SimpleRNN(4))]
5 3: [f(Masking()(x)) for f in (Bidirectional(SimpleRNN(3, zero_output_for_mask=True)), Conv1D(3, 2, padding="same"))]
5 3: RNN(GRUCell(4), return_sequences=True, zero_output_for_mask=True)(Masking()(x))
5 3: Bidirectional(RNN(LSTMCell(4, activation="relu"), return_state=True))(x)
4 3 2: TimeDistributed(LSTM(4))(TimeDistributed(Masking())(x))
4 3 words: LSTM(3)(TimeDistributed(GlobalAveragePooling1D())(embedded(x)))
3 3 3: TimeDistributed(LSTM(4))(Masking()(x))
3 3 words: [f(TimeDistributed(LSTM(3))(embedded(x))) for f in (GRU(2), GlobalAveragePooling1D())]
3 3 words: TimeDistributed(LSTM(2))(TimeDistributed(GRU(3, return_sequences=True))(embedded(x)))
3 3 words: LSTM(2)(TimeDistributed(keras.Sequential([Input((3, 3)), Dense(3), Bidirectional(GRU(2))]))(embedded(x)))
3 3 3: LSTM(2)(TimeDistributed(LSTM(3))(TimeDistributed(Masking())(x)))
3 3 3 words: TimeDistributed(GRU(2))(TimeDistributed(TimeDistributed(LSTM(3)))(embedded(x)))
5 3: GRU(3, zero_output_for_mask=True, go_backwards=True)(Masking()(x))
# infinities, NaN, negative zeros
3 4 wild: Discretization([0., 1.])(x)
3 4 wild: [f(x) for f in (ReLU(0.5, 0.1, 0.25), ThresholdedReLU(0.25), ReLU(negative_slope=0.1, threshold=0.5))]
4 3 wild: tf.argmax(x, 1) - tf.argmin(x, 1)
# axes that are negative, listed, in no order; numbers that are not the default's
6 5 4: [f(Conv2D(3, 1)(x)) for f in (BatchNormalization(axis=[1, -1], epsilon=0.1), UnitNormalization(axis=-2))]
6 5 4: [f(Conv2D(3, 1)(x)) for f in (Softmax(axis=1), Softmax(axis=[-1]), PReLU(shared_axes=[1]), Permute((2, 3, 1)))]
6 5 4: GroupNormalization(3, axis=1, scale=False)(x)
6 5 4: Normalization(axis=(1, 3), mean=np.ones((6, 4)), variance=np.arange(24.).reshape(6, 4), invert=True)(x)
6 5 4: Rescaling(2., [[1.], [2.], [3.], [4.], [5.]])(x)
6: [f(x) for f in (ReLU(0.5, 0.1, 0.25), ReLU(negative_slope=0.5, threshold=1.))]
6: keras.activations.relu(x, threshold=-0.5, max_value=0.25)
5 3: keras.activations.relu(x, alpha=0.1, max_value=1., threshold=0.25)
5 3 & 5 4: Dot((1, -2), normalize=True)([x, y])
3 & 4 3: Dot((1, 2))([x, y])
3 & 5 3: Multiply()([x, y])
6 5 4: Dense(3)(Flatten(data_format="channels_first")(Conv2D(3, 1, data_format="channels_first")(x)))
5 3: EinsumDense("abc,bd->adc", (4, None), bias_axes="d")(x)
5 3: MultiHeadAttention(2, 3, value_dim=2, output_shape=4, attention_axes=1, use_bias=False)(x, x, use_causal_mask=True)
5 3 & 5 5: (lambda f: [f(x, x), f(x, x, attention_mask=y)])(MultiHeadAttention(2, 3))
5 3 & 5 5: MultiHeadAttention(2, 3)(x, x, attention_mask=y, use_causal_mask=True)
5 words & 5 5: (lambda z: MultiHeadAttention(2, 3)(z, z, attention_mask=y))(embedded(x))
5 3 & 4 3: Attention(use_scale=True, score_mode="concat")([x, y], return_attention_scores=True)
# models that are called several times
3 & 3: (lambda model: [model(x), Dense(2)(model(y))])(keras.Model(a := Input((3,)), Dense(2)(a)))
3: (lambda model: [model(x), Dense(2)(model(model(x)))])(keras.Model(a := Input((3,)), Dense(3)(a)))
3 & 3: (lambda model: [model(Input((3,))), model(x) - model(y)][1])(keras.Model(a := Input((3,)), Dense(3)(a)))
3 & 3: (lambda model: [model(x)[1], model(model(y)[0])[1]])(keras.Model(a := Input((3,)), [Dense(3)(a), Dense(2)(a)]))
3: (lambda model: [model(x), model(Dense(3)(model(x)))])(keras.Sequential([Dense(3), Dense(3)]))
3: (lambda model: keras.Model(b := Input((3,)), [b, model(model(b))])(x))(keras.Model(a := Input((3,)), Dense(3)(a)))
# parts that are frozen, whose weights come last in a file of the older format
5 3: frozen(Bidirectional(LSTM(3, return_sequences=True)), x, "forward_layer")
5 3: frozen(MultiHeadAttention(2, 3), x, "_key_dense", "_output_dense")
5 3: keras.Model(a := Input((5, 3)), Dense(3)(frozen(Bidirectional(GRU(3)), Dense(3)(a), "forward_layer")))(x)
# layers that are called on tensors of several ranks
6 5 4 & 5 4 & 4: (lambda layer: [layer(Conv2D(4, 1)(x)), layer(y), layer(z)])(Dense(3, activation="relu"))
5 4 & 4 & 2 5 4: (lambda f: [f(x), f(y), f(z)])(EinsumDense("...x,xhy->...hy", (5, 2, 3), bias_axes="hy"))
# windows
6 5 4: SeparableConv2D(3, (2, 3), depth_multiplier=2, dilation_rate=2, padding="same")(x)
6 4: SeparableConv1D(3, 2, depth_multiplier=3, padding="causal")(x)
4 6 5: DepthwiseConv2D((2, 3), depth_multiplier=2, dilation_rate=2, data_format="channels_first")(x)
6 5 4: Conv2DTranspose(3, (2, 3), strides=(2, 3), output_padding=(1, 2))(x)
6 5 4: [f(x) for f in (Conv2DTranspose(3, 3, strides=2, padding="same", output_padding=0), CenterCrop(8, 2))]
6 5 4: [f(x) for f in (Conv2DTranspose(4, 2, dilation_rate=2), LocallyConnected2D(3, 2, strides=(2, 1)))]
6 5 4: MaxPooling2D(2)(ZeroPadding2D(((1, 2), (0, 3)))(x - 3))
6 5 4: Conv2D(3, 3, padding="same")(ZeroPadding2D(1)(x))
6 5 4: Cropping2D(((1, 2), (0, 3)))(ZeroPadding2D(1, data_format="channels_first")(x))
6 5 4: UpSampling2D(2, data_format="channels_first", interpolation="bilinear")(x)
6 5 4: Resizing(3, 7, "nearest", crop_to_aspect_ratio=True)(x)
4 6 7: tf.nn.max_pool2d(x, [1, 1, 2, 3], [1, 1, 2, 1], "VALID", data_format="NCHW")
5 3 2: ConvLSTM1D(3, 2, strides=2, padding="same", return_sequences=True, return_state=True, go_backwards=True)(x)
# functions
5 3: [tf.reduce_mean(x, axis=[-1, 1], keepdims=True), tf.cumsum(x, -1, exclusive=True, reverse=True), x[:, 3:1:-1]]
5: tf.cumsum(x * [1., 1., 1., 1., 1e9], 1, exclusive=True)
5 3: tf.split(x, [2, 3], 1)
None 3 & None 4: x[:, : tf.shape(y)[1]]
5 3: tf.reshape(x[:, : tf.shape(x)[1] - 2], [tf.shape(x)[0], (tf.shape(x)[1] - 2) * 3])
5 3: x[:, : tf.shape(x)[1] // 2] / tf.sqrt(tf.cast(tf.shape(x)[-1], "float32"))
5 3: x + tf.reshape(Dense(3)(tf.reshape(x, [-1, 3])), [tf.shape(x)[0], -1, 3])
4 3: [tf.reshape(tf.reshape(x, [-1, 2]), [-1, 3]), tf.reshape(x, [-1]), Concatenate(axis=0)([x, x])]
5 3: [tf.where(x >= 0.25, 1., x), 2 / (x + np.arange(20., 35.).reshape(5, 3)), tf.sign(tf.math.top_k(x, k=2)[0])]
5 3: tf.nn.silu(tf.nn.gelu(x, approximate=True), beta=2.)
5 3: keras.activations.hard_sigmoid(3 * keras.activations.elu(x, alpha=0.3))
6: Dense(3, activation=LeakyReLU(0.4))(Dense(3, activation=tf.nn.leaky_relu)(x))
5: [f(x) for f in (tf.floor, tf.math.ceil, tf.math.expm1, tf.math.erf, tf.sin, tf.cos, tf.tan, tf.atan, tf.asinh)]
5: [f(x) for f in (tf.asin, tf.acos, tf.acosh, tf.atanh, tf.sinh, tf.cosh, tf.math.log1p, tf.zeros_like, tf.ones_like)]
5: [tf.math.squared_difference(x, 2 * x), tf.nn.l2_normalize(x, axis=None)]
5: [tf.one_hot(tf.cast(x * 4, "int32"), depth=3), Discretization([-0.5, 0., 0.25], output_mode="count")(x)]
5 3 wild: tf.round(x * 6)
5 3 wild: tf.reduce_logsumexp(100 * x, axis=1)
5 3 wild: tf.where(tf.math.logical_xor(tf.not_equal(tf.math.is_nan(x), x > 1), x < 0.5), 0., x)
5 3: [tf.math.reduce_std(x, 1), tf.norm(x, axis=[1, 2]), tf.reduce_all(x > 0, axis=1), *tf.unstack(x, axis=1)]
5 3: tf.matmul(x, np.arange(6.).reshape(2, 3), transpose_b=True)
4 5 3 & 4 3 5: tf.matmul(x, y, transpose_a=True, transpose_b=True)
4 5 3: tf.roll(tf.gather(Conv2D(3, 1)(x), 1, axis=-1), [-1, 7], [1, 2])
None 3: Rescaling(2., [[1.], [2.], [3.], [4.], [5.]])(x * np.ones((5, 1)))
5 3: Softmax()(Concatenate()([Dense(1)(x), Dense(3)(x)]))
5 words: Embedding(5, 3)(x - 0.5)
# layers called in several ways, on more axes, and with constants
8 9 3: (lambda zeros, f: [f(zeros), f(x), MaxPooling2D(2)(zeros)])(ZeroPadding2D(((1, 2), (0, 1)))(x), Conv2D(4, 3))
8 9 3: DepthwiseConv2D(3, padding="same", name="x_depthwise")(SeparableConv2D(4, 3, name="x")(x))
5 3 & 7 3: (lambda f, g: [f(x), f(y), g(x), g(y)])(LSTM(4, activation="relu"), GRU(4))
5 3 & 7 3: (lambda layer: [layer(Masking()(x)), layer(Masking()(y))])(LSTM(4, return_sequences=True))
5 3 & 7 3: (lambda layer: [layer(x), layer(y)])(Bidirectional(GRU(4, reset_after=False, return_sequences=True)))
5 4: (lambda layer: [layer(x, x), layer(x, x, use_causal_mask=True)])(MultiHeadAttention(2, 3))
5 4 & 3 4: AdditiveAttention(use_scale=False)([x, y], use_causal_mask=True, return_attention_scores=True)
5 3: (lambda layer: [layer(x), layer(Masking()(x))])(Bidirectional(LSTM(3, return_sequences=True)))
5 3 & 4 3 & 3: (lambda layer: [layer(x), layer(y), layer(x, initial_state=z)])(GRU(3, activation=LeakyReLU()))
5 3: (lambda layer: [layer(x), layer(x, training=False)])(BatchNormalization())
5 3: Bidirectional(GRU(4))(x, initial_state=[tf.ones((4, 4)), tf.zeros((4, 4))])
5 3: RNN([LSTMCell(4), GRUCell(3)], return_sequences=True, go_backwards=True, return_state=True)(Masking()(x))[0]
5 3 & 4 & 3: RNN([LSTMCell(4), GRUCell(3)])(x, initial_state=[[y, y], z])
5 3: LSTM(2)(RNN([LSTMCell(4), LSTMCell(3, use_bias=False)], return_sequences=True)(Masking()(x)))
5 3: LSTM(4, time_major=True, return_sequences=True)(x)
5 3: Bidirectional(LSTM(4, time_major=True, return_sequences=True, return_state=True), merge_mode=None)(x)
5 4 3: MultiHeadAttention(2, 3, attention_axes=(2, 1), output_shape=2)(x, x)
5 4 3 & 5 2 3: MultiHeadAttention(2, 3, attention_axes=2)(x, y)
6 5 4: Conv1D(3, 2, padding="causal", activation="softmax")(Conv2D(4, 1)(x))
6 5 4: [f(Conv2D(3, 1)(x)) for f in (LayerNormalization(axis=[-1, 1]), Softmax(axis=[1, 2]), Reshape((-1, 6)))]
6 4: Rescaling(np.array([1., 2., 3., 4.]), np.array(0.5))(x)
6: GroupNormalization(3)(x)
4 5 3: tf.slice(x, [0, 1, 0, 0], [-1, 2, -1, 2])
4 5 3: tf.strided_slice(x, [0, 3, 0, 0], [0, 0, 2, 1], [1, -2, 1, 1], begin_mask=5, end_mask=1, shrink_axis_mask=8)
3 4 4: tf.nn.bias_add(x, [1., 2., 3.], data_format="NCHW")
4 4 3: tf.nn.conv2d(Conv2D(3, 1)(x), np.arange(24.).reshape(2, 2, 1, 6), 1, [[0, 0], [1, 0], [0, 1], [0, 0]])
5 4 3: tf.nn.depthwise_conv2d(x, np.float32(np.arange(24.)).reshape(2, 2, 3, 2), [1, 1, 1, 1], "SAME", dilations=[2, 2])
5 4 3: tf.tensordot(x, np.arange(24, dtype="float32").reshape(3, 4, 2), [[2, 3], [1, 0]])
5 4 3: tf.tensordot(x, np.arange(24, dtype="float32").reshape(2, 3, 4), [[3], [1]])
5 3: list(tf.nn.moments(x, axes=[1, 2], keepdims=True))
# integers
6 int64: tf.one_hot(x * 2**31 + 1, 3)
5 int32 & 5 int32: x / (tf.abs(y) + 1)
5 3 int32: Dense(2)(x * 2)
5 int32: Embedding(19, 3, mask_zero=True)(x + 9)
5 4 3 uint8: Resizing(3, 3)(x)
"""

REFUSED = """
5 3: tf.math.top_k(x, k=2, sorted=False)[0]
None 1 3: tf.squeeze(x)
6 5 4: tf.nn.max_pool2d(x, [1, 1, 1, 2], [1, 1, 1, 2], "VALID")
5: x + np.ones((1, 1, 1))
5 3: tf.slice(x, [1, 0, 0], [2, 2, 2])
5 3: GRU(4)(x, initial_state=tf.reshape(tf.range(16.), (4, 4)))
# classes and functions of the user
6: own("Softmax")()(x)
5 words: own("Embedding")(5, 3)(x)
6: own("Layer", "Add")()(x)
6: own("Layer", "InputLayer")()(x)
6: own("Layer", "Cumsum", registered=False)()(x)
6 [.keras]: own("Dense", registered=False)(4)(x)
6: own(keras.Model, "Functional")(x, Dense(3)(x))(x)
6: keras.Sequential([own("Dense")(4)])(x)
5 3: TimeDistributed(own("Dense")(4))(x)
5 3: own("Bidirectional")(LSTM(4))(x)
5 3: Bidirectional(own("LSTM")(4))(x)
6: Dense(3, activation=own("LeakyReLU")())(x)
6: Dense(3, activation=function("cube"))(x)
5 3: LSTM(2)(own("Masking", method="compute_mask", change=tf.logical_not)()(x))
6: Lambda(tf.nn.relu)(x)
# types
5 3 uint8 & 5 3 uint8: Average()([x, y])
5 4 3 uint8: GlobalAveragePooling2D()(x)
5: Dense(3, dtype="float16")(x)
# what has no row
4 5 3: Bidirectional(ConvLSTM1D(4, 2))(x)
5 3: Bidirectional(LSTM(2, unroll=True, return_sequences=True))(Masking()(x))
5 3: RNN([LSTMCell(2), GRUCell(2)], True, go_backwards=True, unroll=True, zero_output_for_mask=True)(Masking()(x))
5 3: Attention(dropout=2.)([x, x])
6 5 4: LocallyConnected2D(3, 2, implementation=2)(x)
6 5 4: UpSampling2D(2, interpolation="bicubic")(x)
6 5 4: Resizing(3, 7, "area")(x)
5 4 3: MultiHeadAttention(2, 3, attention_axes=-2)(x, x)
5 words & 5: CategoryEncoding(5, output_mode="count")(x, count_weights=y)
5 3: BatchNormalization()(x, training=True)
5 3: CenterCrop(1, 3)(x)
5 3 & 3: (lambda layer: [layer(x), layer(y)])(Normalization())
5 3: tf.einsum("abc,adc->abd", x, x)
5 3: tf.norm(x, ord=1, axis=1)
5 3: tf.reduce_sum(x)
5 3: tf.reverse(x, [0])
4 3 & 3: tf.logical_or(x > 0, y > 0)
5 3: tf.where(x > 0, x, [1., 2., 3.])
5 3: tf.reshape(x, [4, 15])
None 3: tf.reshape(x, [-1, tf.shape(x)[1], 3])
5 4 3: tf.image.resize(x, (7, 3), antialias=True)
# dynamic lengths, which are no numbers
None 3 & None 3: x[:, -1 : tf.shape(y)[1]]
None 3 & None 3: x[:, :: tf.shape(y)[1]]
None 3 & None 3: x[:, tf.shape(y)[1] - 1]
None 3: x[:, : tf.shape(x)[1] // 2]
None 3 & 3 None: x[:, : tf.shape(y)[2]]
5 3 & None 3: tf.roll(x, tf.shape(y)[1], 1)
5 3 & None 3: tf.repeat(x, tf.shape(y)[1], axis=1)
None 3 int32: tf.where(x > tf.shape(x)[1], x, 0)
None 3: x * tf.cast(tf.shape(x)[1], "float32")
None None 3: tf.image.resize(x, tf.shape(x)[1:3] * 2)
None None 3: tf.image.resize(x, tf.shape(x)[1:3], method="bicubic")
None None 4: tf.reshape(x, [tf.shape(x)[0] * tf.shape(x)[1], tf.shape(x)[2], 4])
"""


def rows(table, wanted):
    return [pytest.param(line, wanted, id=line) for line in lines(table)]


@pytest.mark.filterwarnings("ignore:layer .* does nothing here")
@pytest.mark.parametrize(("line", "wanted"), [*rows(EXACT, "exact"), *rows(REFUSED, "refused")])
def test_a_model_is_exact_or_refused(line, wanted, tmp_path):
    keras().backend.clear_session()
    model, arrays = model_of(line)
    endings = [".keras"] if "[.keras]" in line else [".h5", ".keras"]
    assert [outcome(model, arrays, path) for path in saved(model, tmp_path, endings)] == [wanted] * len(endings)
    if wanted == "exact" and "frozen(" not in line:  # whose order in such files depends on what is frozen there
        check_weights_go_back(mxsame.from_keras(model), model, tmp_path / "back.h5")


EACH = 20  # of them in a test
HEAVY = [pytest.param(first, marks=pytest.mark.heavy) for first in of_the_day(range(100, 5_100, EACH), 16)]


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("first", [*range(0, 100, EACH), *HEAVY])
def test_random_models_are_exact_or_refused(first, images):
    found = Counter(check(seed, images) for seed in range(first, first + EACH))
    assert found["exact"] > EACH // 3, found


# ---- types -----------------------------------------------------------------------------------------------------------

EXACT_TYPES = """
# what casts its data to floats
4 int32: [Dense(3)(x), Rescaling(0.5, 1)(x), Normalization(mean=2.0, variance=3.0)(x), BatchNormalization()(x)]
4 int64: Rescaling(1 / 3)(x)
4 uint8: [Rescaling(1 / 255)(x), x / 255]
4 bool: Rescaling(2.0)(x)
4 float16: [Rescaling(1 / 3)(x), Dense(2)(x)]
4 float64: [Dense(2)(x), x / 3]
4 int32: [x / 2, Dense(3)(x / 7), Embedding(9, 3)(tf.minimum(abs(x), 8))]
4: Embedding(9, 3)(tf.clip_by_value(x / 3, 0, 5))
4 1 int32: TimeDistributed(Dense(2))(x)
2 2 1 uint8: tf.image.resize(x, (4, 4))
2 2 1 int32: Resizing(4, 4)(x)
4 int32: CategoryEncoding(5)(tf.minimum(abs(x), 4))
4 int32: keras.Model(a := Input((4,)), a / 2)(x)
# casts
4 large int64: tf.cast(x, "float32")
4 int32: [tf.cast(x, "float32") / 3, tf.cast(tf.cast(x, "bool"), "float32"), tf.cast(x > 1, "int32") + 1]
4: [tf.cast(x / 3, "int32"), tf.cast(x / -3, "int64") + 1]
4 uint8: tf.cast(x, "int32") * 300
4: keras.Model(a := Input((4,), dtype="int32"), a + 1)(4 * x)
# arithmetic, which wraps
4 large: [x + 1, x * 2**20, 3 - x, x * x + x - 1, abs(-x)]
4 large int64: x * 2**20 - 5
4 large: [tf.reduce_sum(x, axis=1), tf.reduce_max(x, axis=1) - tf.reduce_min(x, axis=1)]
4 large: [tf.maximum(x, 2) + tf.minimum(x, x + 1), tf.where(x > 2, x, x * 2), tf.where(x > 2, x, -1)]
# comparisons and positions
4 large: [tf.equal(x, 2**24 + 1), tf.cast(x > x * 2, "float32"), tf.not_equal(x, 0), tf.reduce_any(x > 6, axis=1)]
4 int32: tf.logical_and(x > 0, tf.logical_not(tf.logical_or(x > 4, x < 2)))
4 int32: [tf.where(x > 2, 1, 0) * 3, tf.argmax(x, axis=1, output_type="int32"), Discretization([0.0, 3.0])(x) + 1]
4: [tf.where(x > 0.25, 1.0, 0.5), tf.argmax(x, axis=1) * 3]
# what moves them
2 2 large: [Flatten()(x), TimeDistributed(Flatten())(x) + 1]
4 large: [Permute((2, 1))(Reshape((2, 2))(x)), tf.cast(x, x.dtype)]
4 large int64: RepeatVector(3)(x)
4 1 large: Cropping1D(1)(x)
4 large: [Concatenate()([x, x + 1]), Add()([x, x * 2]), Multiply()([x, x])]
4 uint8: Maximum()([x, x[:, ::-1]])
4 large: [tf.concat([x[:, 1:3], x[:, :1]], axis=-1), tf.tile(tf.expand_dims(x, 1), [1, 2, 1])]
4 large: [tf.stack([x, x + 1], axis=1), tf.split(x, 2, axis=1)[1] + 1]
2 2 large int64: tf.transpose(x, [0, 2, 1])
4 1 uint8: [MaxPooling1D(2)(x), Rescaling(0.5)(ZeroPadding1D(1)(x))]
"""
REFUSED_TYPES = """
4 uint8: x + 250
4: tf.cast(x, "float16")
4: tf.cast(x, "bfloat16")
4: tf.cast(x, "uint8")
4 float16: x * 3
4 int32: tf.reduce_mean(x, axis=1)
4 int32: tf.square(x)
4 int32: x**2
4 int32: x == 3
4 int32: x // 2
4 int32: x % 2
4 int32: ReLU()(x)
4 int32: Average()([x, x + 1])
4 1 int32: GlobalAveragePooling1D()(x)
4 1 int32: MaxPooling1D(2)(x)
4 1 int32: ZeroPadding1D(1)(x)
2 2 int32: Masking(1)(x)
2 2 1 uint8: tf.image.resize(x, (4, 4), method="nearest")
4 int32: x + np.array([1, 2, 3, 4])
4 int32: tf.exp(x / 100)
"""
OF_FLOATS = """
2 2 1: Rescaling(1 / 255)(x)
4: [tf.concat([x / 2, x * 0.5], axis=-1), Dense(2)(BatchNormalization()(x)), tf.cast(x, x.dtype)]
4 1: MaxPooling1D(2)(x)
2 2 1: Conv2D(2, 2)(Rescaling(1 / 255)(x))
2 2: Dense(2)(tf.cast(tf.argmax(x / 200, 2), "float32"))
"""


def outputs_of(net, given, path):
    """Imperative, deployed, from files, and hybridized, as a part of another block, too."""
    deployed, parent = mxsame.deploy(net, given.shape), gluon.nn.HybridSequential()
    parent.add(net)
    files = [running.from_files(deployed, path), *(running.from_files(net, path, size) for size in (None, given.shape))]
    yield from [run(given) for run in (net, deployed, *files)]
    for hybridize in (lambda block: block.hybridize(), mxsame.hybridize):
        for block in (parent, net):
            hybridize(block)
            yield block(given)


def check_outputs(net, given, wanted, path):
    """Of the type that MXNet has for Keras's; integers bit for bit."""
    for outputs in outputs_of(net, given, path):
        outputs = live_keras.arrays_of(outputs)
        assert len(outputs) == len(wanted)
        for out, want in zip(outputs, wanted):
            assert out.dtype == (np.float32 if want.dtype == bool or want.dtype.itemsize < 4 else want.dtype)
            if want.dtype.kind == "f":
                live_keras.compare([out], [want], 1e-6)
            else:
                np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("line", lines(EXACT_TYPES))
def test_types_are_exact(line, tmp_path):
    model, (x,) = model_of(line)
    given = nd.array(x, dtype="float32" if x.dtype == bool else x.dtype)
    check_outputs(mxsame.from_keras(model), given, live_keras.expected(model, [x]), tmp_path)


@pytest.mark.parametrize("line", lines(OF_FLOATS))
def test_a_model_of_floats_takes_arrays_of_another_type(line, tmp_path):
    model, (x,) = model_of(line)
    x = np.round(abs(x) * 100) % 200
    wanted = live_keras.expected(model, [x.astype("float32")])
    for dtype in ("uint8", "int64"):
        check_outputs(mxsame.from_keras(model), nd.array(x, dtype=dtype), wanted, tmp_path)
    got = mxsame.from_keras(model)(nd.array(x, dtype="float64"))
    live_keras.compare(live_keras.arrays_of(got), wanted, 1e-6)


@pytest.mark.parametrize("line", lines(REFUSED_TYPES))
def test_types_are_refused(line):
    model, _ = model_of(line)
    with pytest.raises(ValueError, match=r"type|must be supported|floats|a constant or lengths"):
        mxsame.from_keras(model)
