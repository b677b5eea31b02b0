"""Random stacks of keras-mxnet's layers, and what `from_keras(.., padding="keras-mxnet")` makes of their files.

keras-mxnet hands on n + 1 elements after some layers and goes on as if they were n: mxsame refuses those, and they are
left out here. On the CPU most transposed convolutions of keras-mxnet run only without oneDNN. Where keras-mxnet fails,
mxsame must refuse and name a layer.
"""

import collections
import os
import random
import tempfile

import conftest  # noqa: F401 - the environment, when this is run by a script

# isort: split
import keras
import mxnet as mx
import numpy as np
from keras import backend, layers

import mxsame

TOLERANCE = 1e-4
RAN = ("equal", "refused")  # the second: by both


def stack(seed, transposed=False):
    """A model of two to five layers with random weights; raises if Keras or keras-mxnet cannot build it."""
    choose = random.Random(seed)
    rank, data_format = choose.choice((1, 2, 2, 2, 3)), choose.choice(("channels_first", "channels_last"))
    last = data_format == "channels_last"
    size, channels = tuple(choose.randint(3, 9) for _ in range(rank)), choose.randint(1, 3)
    x = inputs = layers.Input((*size, channels) if last else (channels, *size))
    for _ in range(choose.choice((2, 2, 3, 3, 4, 5))):
        x = appended(choose, x, rank, data_format, transposed)
    if choose.random() < 0.15:
        x = layers.Dense(2)(layers.Flatten(data_format=data_format)(x))
    model = keras.models.Model(inputs, x)
    if any(length < 1 for layer in model.layers for length in layer.output_shape[1:]):
        raise ValueError("Keras does not see that nothing is left")
    return filled(model, np.random.RandomState(seed))


def nested(data_format):
    """A model in a model, with every kind of kernel, and batch norms without scale and center."""
    common = {"data_format": data_format, "padding": "same"}
    last = data_format == "channels_last"
    axis = -1 if last else 1
    inner = keras.models.Sequential(
        [
            layers.DepthwiseConv2D((2, 3), input_shape=(7, 6, 4) if last else (4, 7, 6), **common),
            layers.BatchNormalization(axis=axis, scale=False),
            layers.SeparableConv2D(5, 4, strides=2, **common),
            layers.BatchNormalization(axis=axis, center=False, scale=False, trainable=False),
        ]
    )
    x = inputs = layers.Input((7, 6, 3) if last else (3, 7, 6))
    x = inner(layers.Conv2D(4, (3, 2), activation="relu", **common)(x))
    x = layers.Conv2D(2, 2, **common)(layers.MaxPooling2D(3, 1, "same", data_format=data_format)(x))
    x = layers.Dense(3)(layers.GlobalAveragePooling2D(data_format=data_format)(layers.BatchNormalization(axis=axis)(x)))
    return filled(keras.models.Model(inputs, x), np.random.RandomState(0))


def filled(model, values):
    """The model with random weights."""
    for layer in model.layers:  # the order of model.weights is not that of model.get_weights()
        if isinstance(layer, keras.models.Model):
            filled(layer, values)
        else:
            layer.set_weights([weight(values, *each) for each in zip(layer.weights, layer.get_weights())])
    return model


def is_longer(x):
    """Whether an array has another shape than Keras believes."""
    shape = x.symbol.infer_shape_partial()[1][0]
    return tuple(shape[1:]) != tuple(x._keras_shape[1:])


def weight(values, variable, array):
    """Random values; those of batch norms are positive."""
    positive = "moving" in variable.name or "gamma" in variable.name
    drawn = values.uniform(0.5, 1.5, array.shape) if positive else values.normal(size=array.shape)
    return drawn.astype("float32")


def appended(choose, x, rank, data_format, transposed):
    """The output after one more layer, or after two branches of layers; raises if Keras believes in another shape."""
    longer = _appended(choose, x, rank, data_format, transposed)
    if is_longer(longer):
        raise ValueError("keras-mxnet takes an array for another shape than it has")
    return longer


PER_AXIS = {  # layers that have no data format in 1-D, and what is drawn for each axis
    "pad": ("ZeroPadding", lambda choose: choose.randint(0, 2)),
    "crop": ("Cropping", lambda choose: (choose.randint(0, 1), choose.randint(0, 1))),
    "upsample": ("UpSampling", lambda choose: choose.randint(1, 2)),
}


def _appended(choose, x, rank, data_format, transposed):
    last = data_format == "channels_last"
    window = lambda low, high: tuple(choose.randint(low, high) for _ in range(rank))  # noqa: E731
    padding = choose.choice(("same", "same", "same", "valid"))
    kinds = ["conv"] * 6 + ["pool"] * 6 + ["pad", "crop", "upsample", "normalize", "activate", "merge"]
    kinds += ["depthwise", "separable"] * (rank == 2) + ["transposed"] * 4 * (rank == 2 and transposed)
    kind = choose.choice(kinds)
    common = {"data_format": data_format}
    if kind == "conv":
        more = {"strides": window(1, 2), "padding": padding}
        if choose.random() < 0.2:
            more = {"dilation_rate": window(1, 2), "padding": padding}
            if rank == 1 and last:
                more["padding"] = "causal"
        filters, kernel_size, use_bias = choose.randint(1, 3), window(1, 4), choose.random() < 0.5
        return getattr(layers, f"Conv{rank}D")(filters, kernel_size, use_bias=use_bias, **more, **common)(x)
    if kind == "pool":
        name = choose.choice(("MaxPooling", "AveragePooling"))
        strides = choose.choice((window(1, 1), window(1, 2)))
        return getattr(layers, f"{name}{rank}D")(window(1, 4), strides, padding, **common)(x)
    if kind == "depthwise":
        return layers.DepthwiseConv2D(window(1, 4), strides=choose.randint(1, 2), padding=padding, **common)(x)
    if kind == "separable":
        return layers.SeparableConv2D(2, window(1, 4), strides=choose.randint(1, 2), padding=padding, **common)(x)
    if kind == "transposed":
        return layers.Conv2DTranspose(2, window(1, 4), strides=window(1, 2), padding=padding, **common)(x)
    if kind in PER_AXIS:
        name, draw = PER_AXIS[kind]
        values = tuple(draw(choose) for _ in range(rank))
        layer = getattr(layers, f"{name}{rank}D")
        return (layer(*values) if rank == 1 else layer(values, **common))(x)
    if kind == "normalize":
        more = {"scale": choose.random() < 0.8, "center": choose.random() < 0.8}
        return layers.BatchNormalization(axis=-1 if last else 1, **more)(x)
    if kind == "activate":
        return layers.Activation(choose.choice(("relu", "tanh", "sigmoid", "elu", "softplus", "hard_sigmoid")))(x)
    ends = [x] + [appended(choose, x, rank, data_format, transposed) for _ in range(2)]
    first, second = choose.sample(ends, 2)
    alike = backend.int_shape(first) == backend.int_shape(second)
    return layers.Add()([first, second]) if alike else ends[-1]


def verdict(seed, transposed=False):
    """'equal'; 'refused' by both; 'unbuilt' by Keras; or what is wrong."""
    backend.clear_session()
    try:
        model = stack(seed, transposed)
    except (ValueError, AssertionError, NotImplementedError, mx.base.MXNetError, RuntimeError, IndexError):
        return "unbuilt"
    data = np.random.RandomState(seed).normal(size=(2, *model.input_shape[1:])).astype("float32")
    try:
        model.compile("sgd", "mse")
        expected = model.predict(data)
    except (mx.base.MXNetError, RuntimeError, ValueError, AssertionError) as error:
        expected, reason = None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.h5")
        model.save(path, include_optimizer=False)
        try:
            net = mxsame.from_keras(path, padding="keras-mxnet")
            actual = net(mx.nd.array(data)).asnumpy()
        except ValueError as error:
            if "layer '" in str(error) and expected is None:
                return "refused"
            return f"refused by mxsame only: {error}"
        except mx.base.MXNetError as error:
            return f"mxsame fails: {' '.join(str(error).split())[:300]}"
    if expected is None:
        return f"refused by keras-mxnet only: {reason}"
    if actual.shape != expected.shape:
        return f"shapes differ: {actual.shape}, {expected.shape}"
    scale = max(1.0, float(np.abs(expected).max()))
    worst = float(np.abs(actual - expected).max()) / scale if expected.size else 0.0
    return "equal" if worst <= TOLERANCE else f"outputs differ by {worst:.2g}"


def table(seeds, transposed=False):
    """Verdict -> how many of the stacks, and what is wrong, by seed."""
    verdicts = {seed: verdict(seed, transposed) for seed in seeds}
    wrong = {seed: found for seed, found in verdicts.items() if found not in (*RAN, "unbuilt")}
    return collections.Counter(verdicts.values()), wrong
