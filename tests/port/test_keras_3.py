"""Keras 3's own ways, live in Keras 3: types of constant arrays, signed zeros, masks of queries, infinities and NaN."""

from importlib import metadata

import numpy as np
import pytest
from expressions import keras, names_of, saved, ways
from live_keras import arrays_of, randomise
from mxnet import nd

import mxsame
from mxsame.keras_format.dtypes import STORED

IS_KERAS_3 = any(each.version.startswith("3.") for each in metadata.distributions(name="keras"))
NEEDED = "Keras 3 is not installed (Python 3.13: pip install keras==3.15.1 tensorflow-cpu==2.21.0)"
pytestmark = [pytest.mark.keras, pytest.mark.skipif(not IS_KERAS_3, reason=NEEDED)]
pytestmark += [pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask", "ignore:.* not normalize")]

THIRDS = np.array([[1 / 3, -2 / 3, 4 / 3], [0.1, 0.2, 0.3]], "float32")
ZEROS = np.array([[-0.0, 0.0, -1.0], [0.0, -0.0, 0.0]], "float32")
WORDS = np.array([[1, 2, 3, 0, 0], [4, 0, 2, 2, 0]], "float32")
BLOCKS = "(lambda m, f: f(f(m)))(embedded(x), lambda m: LayerNormalization()(Add()([m, %s])))"
WILD = np.array([[np.inf, -np.inf, np.nan], [-0.25, 0.25, 0.75]], "float32")
TINY = THIRDS * 1e-7  # shorter than the least length that Keras 3 divides by
LONG = np.sin(np.arange(66, dtype="float32")).reshape(2, 11, 3)
STEPS = np.array([[[0, 0], [1, 2]], [[3, 1], [0, 0]]], "float32")  # the first or the last is masked
INFINITE = np.where(STEPS == 2, np.inf, STEPS + 1)  # values: 0 times one of them is NaN
FIVE = LONG[:, :5] * np.array([[0], [1], [1], [0], [1]], "float32")  # steps, two of which are masked

MODELS = {
    "x + np.array([0.1, 0.2, 0.3])": [THIRDS],  # of float64
    "x > np.array([0.1])": [THIRDS],  # float32's 0.1 is above that of float64
    "[keras.ops.argmax(x, axis=1), keras.ops.argmin(x, axis=1)]": [ZEROS],
    "Attention()([Masking()(x), y, x])": [STEPS, INFINITE],
    "LSTM(2)(Concatenate()([Masking()(x), y]))": [STEPS, STEPS + 1],  # whose mask is made by operators of the model
    "Discretization([0.0, 0.5])(x)": [WILD],
    "keras.activations.hard_shrink(x)": [WILD],
    "keras.activations.soft_shrink(x)": [WILD],
    "ReLU(threshold=0.5)(x)": [WILD],
    "keras.ops.argmax(x, axis=1)": [WILD],
    "[keras.ops.sign(x), keras.ops.swapaxes(y, 1, -1), *keras.ops.top_k(z, 2)]": [WILD, LONG, np.round(LONG)],
    "[keras.ops.swapaxes(x, 1, axis) for axis in (1, 2)]": [LONG],
    "[keras.ops.take(x, [2, -11], axis=1), keras.ops.var(x, axis=(1, 2)), keras.ops.var(x, -1, True)]": [LONG],
    "[keras.ops.one_hot(x, 3), keras.ops.one_hot(keras.ops.cast(x, 'int32'), 9, dtype='int32')]": [4 * LONG],
    "[keras.ops.einsum('b...j->bj...', x), keras.ops.einsum('...ij,...kj->...ik', x, x)]": [LONG],
    "[keras.ops.moveaxis(x, -1, 1), *keras.ops.unstack(keras.ops.roll(x, 2, axis=1), axis=2)]": [LONG],
    "[keras.ops.std(x, axis=1), keras.ops.norm(x, axis=-1), keras.ops.round(4 * x), keras.ops.trunc(3 * x)]": [LONG],
    "keras.ops.matmul(x, np.ones((3, 2), 'float32'))": [LONG],
    "MultiHeadAttention(2, 3, value_dim=2, use_gate=True)(x, x)": [LONG],
    "GroupQueryAttention(3, 4, 2, use_gate=True)(x, x, return_attention_scores=True)": [LONG],
    "[AdaptiveMaxPooling1D(4)(x), AdaptiveAveragePooling1D(4)(x)]": [LONG],
    "Dot(1, normalize=True)([x, y])": [TINY, THIRDS],
    "Embedding(5, 3)(4 * x)": [LONG[..., 0]],  # negative indices count from the end
    "[GRU(2)(Masking()(x), initial_state=y, **its) for its in ({}, {'mask': x[..., 0] > 0})]": [FIVE, THIRDS[:, :2]],
    "SpectralNormalization(Dense(2))(x)": [THIRDS],
    "CategoryEncoding(4, output_mode='count')(x)": [STEPS],  # counted along the first axis after the batch
    "(lambda model: [model(x), Dense(2)(model(y))])(keras.Model(a := Input((3,)), Dense(2)(a)))": [THIRDS, ZEROS],
    "(lambda f: [f(x), f(f(Dense(3)(f(x))))])(keras.Model(a := Input((3,)), Dense(3)(a)))": [THIRDS],
    "(lambda model: [model(x), model(model(Dense(3)(model(x))))])(keras.Sequential([Dense(3)]))": [THIRDS],
    "(lambda model: [model(Input((3,))), model(model(x))][1])(keras.Model(a := Input((3,)), Dense(3)(a)))": [THIRDS],
    "frozen(Bidirectional(LSTM(3, return_sequences=True)), x, 'forward_layer')": [LONG],
    "frozen(MultiHeadAttention(2, 3), x, '_key_dense', '_output_dense')": [LONG],
    "keras.Model(a := Input((11, 3)), frozen(Bidirectional(GRU(3)), Dense(3)(a), 'forward_layer'))(x)": [LONG],
    "(lambda layer: [layer(x), layer(x[:, 0]), layer(Conv1D(3, 1)(x))])(LayerNormalization())": [LONG],
    "(lambda layer: [layer(x[:, 0]), layer(x)])(RMSNormalization())": [LONG],
    "nested(dict, 'ab')({'b': Masking()(x), 'a': y})": [FIVE, LONG[:, 5:10]],
    "RNN([LSTMCell(2), GRUCell(2)], return_sequences=True, go_backwards=True)(Masking()(x))": [FIVE],
    "[keras.ops.tile(x, 2), keras.ops.pad(x, [(0,), (1,), (2,)]), *keras.ops.moments(x, 1)]": [LONG],
    "keras.ops.conv(x, np.linspace(-1, 1, 24, dtype='float32').reshape(2, 3, 4), 2, 'same')": [LONG],
    "[MultiHeadAttention(2, 3, attention_axes=2)(z, z) for z in [keras.ops.reshape(x, (-1, 1, 11, 3))]][0]": [LONG],
    # MultiHeadAttention takes the masks of its inputs away, and not only for itself
    BLOCKS % "MultiHeadAttention(2, 3)(m, m)": [WORDS],
    BLOCKS % "MultiHeadAttention(2, 3)(Dropout(0.1)(m), m)": [WORDS],
    "(lambda m, f: [f()(x, m), f()(m, x), f()(m, m)])(Masking()(x), lambda: MultiHeadAttention(2, 3))": [FIVE],
    "(lambda m, f: [f(m), f(m)])(embedded(x), keras.Model(a := Input((5, 3)), MultiHeadAttention(2, 3)(a, a)))": [
        WORDS
    ],
    "Multiply()([z, MultiHeadAttention(2, 3)(z, z)]) if (z := embedded(x)) is not None else z": [WORDS],
    "[LSTM(2)(f(2, 3, 1)(z, z, query_mask=y > 2, value_mask=y > 1)) for f in (GroupQueryAttention, "
    "MultiHeadAttention) for z in [embedded(x)]]": [WORDS, WORDS[::-1]],
    "LSTM(2)(keras.ops.swapaxes(keras.ops.moveaxis(embedded(x), 1, -2), 1, 1))": [WORDS],
    "[Rescaling(1 / 255)(x), Dense(2)(x), x / 2]": [(99 * THIRDS).astype("uint8")],  # of a model of floats
}


@pytest.mark.parametrize("expression", MODELS)
def test_behaviour_that_differs_in_keras_3(expression, tmp_path):
    arrays = MODELS[expression]
    inputs = [keras().Input(array.shape[1:]) for array in arrays]
    model = randomise(keras().Model(inputs, eval(expression, names_of(inputs))))
    wanted = arrays_of(model(arrays))
    for source in (model, *saved(model, tmp_path)):
        kind = getattr(source, "suffix", "live")
        for way, out in ways(source, [nd.array(array, dtype=array.dtype) for array in arrays]):
            for have, want in zip(arrays_of(out), wanted):
                assert have.dtype == STORED[want.dtype.name], (kind, way)
                tolerance = 1e-12 if have.dtype == np.float64 else 1e-6
                np.testing.assert_allclose(have, want, tolerance, tolerance, err_msg=f"{kind}, {way}")


def test_functions_of_a_live_model_are_compared_with_keras_s_own():
    """`keras.ops.gelu` is the approximation, which `gelu` of a file is not."""
    x = keras().Input((3,))
    for function in (keras().ops.gelu, keras().activations.gelu, keras().ops.abs):
        model = keras().Model(x, keras().layers.Activation(function)(x))
        got, want = mxsame.from_keras(model)(nd.array(THIRDS)).asnumpy(), np.asarray(model(THIRDS))
        np.testing.assert_allclose(got, want, 1e-6, 1e-7)


def test_weights_of_lora_are_merged(tmp_path):
    x, layer = keras().Input((3,)), keras().layers.Dense(4)
    model = keras().Model(x, layer(x))
    layer.enable_lora(2, lora_alpha=3)
    want = np.asarray(randomise(model)(THIRDS))
    older, path = saved(model, tmp_path)
    for source in (model, path):
        np.testing.assert_allclose(mxsame.from_keras(source)(nd.array(THIRDS)).asnumpy(), want, 1e-5, 1e-6)
    with pytest.raises(ValueError, match=r"must have 2 weights .*received 4, with lora_rank=2 .*LoRA weights m"):
        mxsame.from_keras(older)


def test_masks_that_keras_3_mixes_up_are_refused():
    x, y = keras().Input((5, 3)), keras().Input((5, 3))
    model = keras().Model([x, y], eval("nested(list, 'ba')({'a': x, 'b': Masking()(y)})", names_of([x, y])))
    with pytest.raises(ValueError, match="must have sorted keys"):
        mxsame.from_keras(model)
