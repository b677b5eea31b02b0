"""Small Keras networks, written for tf.keras 2.13 and Keras 3 alike: what the recorded model files hold.

Every layer class that `mxsame.from_keras` supports is in one of them. `NETWORKS` is the table: a function of (keras,
whether channels are first) that returns a model. `weights` gives any model its weights, and `inputs` its inputs, from a
seed.
"""

import types
import zlib

import numpy as np

BATCH = 2
NETWORKS = {}
FIRST = []  # networks that are also recorded with channels first
TRAINED = []  # networks with recorded gradients
EMBEDDED = 11  # entries of the Embedding layers: integers below it are the inputs of that kind


def network(trained=False, first=False):
    """Registers a function under its name; `trained` records its gradients, `first` the same with channels first."""

    def register(function):
        NETWORKS[function.__name__] = lambda keras, first=False: function(keras, keras.layers, first)
        TRAINED.extend([function.__name__] * trained)
        FIRST.extend([function.__name__] * first)
        return function

    return register


def is_keras_3(keras):
    """Whether this is Keras 3, rather than tf.keras 2.13."""
    return hasattr(keras, "ops")


def shaped(size, channels, first=False):
    """The shape of an input without its batch."""
    return (channels, *size) if first else (*size, channels)


# ---- whole networks --------------------------------------------------------------------------------------------------


@network(first=True)
def sequential(keras, layers, first):
    """The classifier of every introduction, on a non-square picture."""
    axis = 1 if first else -1
    return keras.Sequential(
        [
            keras.Input(shaped((9, 12), 3, first)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            layers.BatchNormalization(axis=axis),
            layers.Conv2D(6, (2, 3), padding="valid"),
            layers.Activation("relu"),
            layers.MaxPooling2D(2, padding="same"),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(5, activation="softmax"),
        ],
        name="sequential",
    )


@network(trained=True, first=True)
def unet(keras, layers, first):
    """Two levels, transposed convolutions, skip connections."""
    axis = 1 if first else -1

    def block(data, channels):
        for _ in range(2):
            data = layers.Conv2D(channels, 3, padding="same", use_bias=False)(data)
            data = layers.BatchNormalization(axis=axis, momentum=0.9, epsilon=1e-5)(data)
            data = layers.Activation("relu")(data)
        return data

    data = keras.Input(shaped((8, 12), 3, first))
    top = block(data, 3)
    middle = block(layers.MaxPooling2D(2)(top), 4)
    bottom = block(layers.MaxPooling2D(2)(middle), 5)
    up = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(bottom)
    up = block(layers.Concatenate(axis=axis)([middle, up]), 4)
    up = layers.Conv2DTranspose(3, 2, strides=2, padding="same")(up)
    up = layers.Add()([top, up])
    return keras.Model(data, layers.Conv2D(2, 1, activation="sigmoid")(up), name="unet")


@network(trained=True, first=True)
def video(keras, layers, first):
    """3-D convolutions and pooling layers, strided in space and not in time.

    No relu before the maximum: TensorFlow gives each of several equal elements in 3-D the whole gradient.
    """
    axis = 1 if first else -1
    data = keras.Input(shaped((5, 8, 7), 2, first))
    out = layers.Conv3D(3, 3, strides=(1, 2, 2), padding="same", activation="tanh")(data)
    out = layers.BatchNormalization(axis=axis)(out)
    out = layers.MaxPooling3D((1, 2, 2), padding="same")(out)
    out = layers.Conv3D(4, (3, 1, 2), padding="same", activation="relu")(out)
    out = layers.AveragePooling3D((2, 2, 2), padding="same")(out)
    out = layers.GlobalAveragePooling3D()(out)
    return keras.Model(data, layers.Dense(3)(out), name="video")


@network(trained=True, first=True)
def siamese(keras, layers, first):
    """One tower for two pictures, and the distance of what it gives."""
    tower = keras.Sequential(
        [
            keras.Input(shaped((8, 7), 2, first)),
            layers.Conv2D(3, 3, strides=2, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, activation="tanh"),
        ],
        name="tower",
    )
    one, other = keras.Input(shaped((8, 7), 2, first), name="one"), keras.Input(shaped((8, 7), 2, first), name="other")
    left, right = tower(one), tower(other)
    apart = layers.Subtract()([left, right])
    alike = layers.Dot(axes=1, normalize=True)([left, right])
    out = layers.Dense(1, activation="sigmoid")(layers.Concatenate()([apart, alike]))
    return keras.Model([one, other], out, name="siamese")


@network(trained=True, first=True)
def two_inputs_two_outputs(keras, layers, first):
    """A picture and a vector in, a class and a picture out."""
    picture, facts = keras.Input(shaped((6, 9), 3, first), name="picture"), keras.Input((4,), name="facts")
    seen = layers.Conv2D(4, 3, strides=3, padding="same", activation="relu", name="see")(picture)
    known = layers.Dense(6, activation="relu", name="know")(facts)
    both = layers.Concatenate(name="both")([layers.Flatten(name="flat")(seen), known])
    label = layers.Dense(3, activation="softmax", name="label")(both)
    drawn = layers.Conv2DTranspose(2, 3, strides=3, padding="same", name="drawn")(seen)
    return keras.Model([picture, facts], [label, drawn], name="two_inputs_two_outputs")


@network()
def nested_twice(keras, layers, first):
    """A functional model inside another, called on two tensors, with a Sequential inside it."""
    inner = keras.Input((None, 3))
    stem = keras.Sequential([layers.Conv1D(4, 3, padding="same"), layers.ReLU()], name="stem")
    both = keras.Model(inner, [stem(inner), layers.Dense(4, name="side")(inner)], name="inner")
    data = keras.Input((10, 3))
    a, b = both(data)
    c, d = both(layers.ZeroPadding1D(1)(layers.Cropping1D((1, 1))(data)))
    return keras.Model(data, [layers.Add()([a, d]), layers.Maximum()([b, c])], name="nested_twice")


@network()
def shared_layers(keras, layers, first):
    """One convolution and one batch norm on tensors of two sizes."""
    axis = 1 if first else -1
    conv = layers.Conv2D(2, 3, strides=2, padding="same", name="conv")
    norm = layers.BatchNormalization(axis=axis, name="norm")
    pool = layers.GlobalMaxPooling2D(name="pool")
    data = keras.Input(shaped((None, None), 2, first))
    once = norm(conv(data))
    twice = norm(conv(once))
    return keras.Model(data, layers.Concatenate(name="both")([pool(once), pool(twice)]), name="shared_layers")


# ---- tables of layers: one input for each rank, an output for each layer --------------------------------------------


@network()
def convolutions_1d(keras, layers, first):
    """Every 1-D convolution; Keras 3 has no causal separable one."""
    new = is_keras_3(keras)
    data = keras.Input((11, 4))
    out = [
        layers.Conv1D(4, 4, strides=3, padding="same")(data),
        layers.Conv1D(4, 3, padding="valid", groups=2, use_bias=False)(data),
        layers.Conv1D(3, 2, strides=2, padding="causal", activation="relu")(data),
        layers.Conv1D(3, 2, dilation_rate=3, padding="same")(data),
        layers.DepthwiseConv1D(4, strides=2, padding="same", depth_multiplier=2)(data),
        layers.SeparableConv1D(3, 3, strides=2, padding="same", depth_multiplier=2, activation="tanh")(data),
        layers.SeparableConv1D(3, 2, padding="valid" if new else "causal", dilation_rate=2, use_bias=False)(data),
        layers.Conv1DTranspose(3, 3, strides=2, padding="same")(data),
        layers.Conv1DTranspose(2, 2, strides=3, padding="valid", use_bias=False)(data),
    ]
    return keras.Model(data, out, name="convolutions_1d")


@network(first=True)
def convolutions_2d(keras, layers, first):
    """Every 2-D convolution; Keras 3.11 writes no output_padding into its files."""
    data = keras.Input(shaped((9, 12), 4, first))
    out = [
        layers.Conv2D(4, (4, 3), strides=(2, 3), padding="same")(data),
        layers.Conv2D(6, 2, padding="same", groups=2, use_bias=False)(data),
        layers.Conv2D(3, (2, 3), dilation_rate=(2, 3), padding="valid", activation="elu")(data),
        layers.DepthwiseConv2D((2, 5), strides=2, padding="same", depth_multiplier=2)(data),
        layers.DepthwiseConv2D(3, dilation_rate=2, padding="same", use_bias=False)(data),
        layers.SeparableConv2D(3, 3, strides=2, padding="same", depth_multiplier=2, activation="relu")(data),
        layers.SeparableConv2D(3, 3, padding="valid", use_bias=False)(data),
        layers.Conv2DTranspose(3, (3, 2), strides=(2, 3), padding="same")(data),
        layers.Conv2DTranspose(3, 3, strides=2, padding="same", output_padding=None if is_keras_3(keras) else 0)(data),
        layers.Conv2DTranspose(2, (3, 5), strides=2, padding="valid", activation="relu", use_bias=False)(data),
    ]
    return keras.Model(data, out, name="convolutions_2d")


@network(first=True)
def convolutions_3d(keras, layers, first):
    """Every 3-D convolution."""
    data = keras.Input(shaped((5, 4, 6), 2, first))
    out = [
        layers.Conv3D(2, (2, 3, 4), strides=(2, 1, 3), padding="same")(data),
        layers.Conv3D(3, 2, padding="valid", use_bias=False, activation="relu")(data),
        layers.Conv3D(2, 2, dilation_rate=(1, 2, 2), padding="same")(data),
        layers.Conv3DTranspose(2, (3, 2, 2), strides=(2, 1, 2), padding="same")(data),
        layers.Conv3DTranspose(2, 2, strides=2, padding="valid", use_bias=False)(data),
    ]
    return keras.Model(data, out, name="convolutions_3d")


def pooled(keras, rank, data):
    """Every pooling layer of this rank, global ones with and without their axes kept."""
    out = []
    for kind in ("Max", "Average"):
        pool = getattr(keras.layers, f"{kind}Pooling{rank}D")
        whole = getattr(keras.layers, f"Global{kind}Pooling{rank}D")
        out += [
            pool(2, padding="same")(data),
            pool(3, strides=2, padding="same")(data),
            pool(2, strides=1, padding="valid")(data),
            whole()(data),
            whole(keepdims=True)(data),
        ]
    return out


@network()
def pooling_layers_1d(keras, layers, first):
    """Pooling layers in 1-D, where Keras 2 has channels last by default, whatever the backend's data format is."""
    data = keras.Input((11, 3))
    out = [*pooled(keras, 1, data), keras.layers.MaxPooling1D(2, padding="same", data_format="channels_first")(data)]
    return keras.Model(data, out, name="pooling_layers_1d")


@network(first=True)
def pooling_layers(keras, layers, first):
    """Pooling layers in 2-D and 3-D."""
    inputs = [keras.Input(shaped(size, 3, first), name=f"data{len(size)}") for size in ((9, 7), (5, 4, 6))]
    return keras.Model(inputs, pooled(keras, 2, inputs[0]) + pooled(keras, 3, inputs[1]), name="pooling_layers")


@network()
def padding_layers_1d(keras, layers, first):
    """Zero padding, cropping and upsampling in 1-D, where Keras 2 has channels last only."""
    data = keras.Input((7, 2))
    out = [
        layers.ZeroPadding1D(2)(data),
        layers.ZeroPadding1D((1, 2))(data),
        layers.Cropping1D(1)(data),
        layers.Cropping1D((0, 2))(data),
        layers.UpSampling1D(3)(data),
    ]
    return keras.Model(data, out, name="padding_layers_1d")


@network(first=True)
def padding_layers(keras, layers, first):
    """Zero padding, cropping and upsampling in 2-D and 3-D."""
    inputs, out = [], []
    for rank, size in ((2, (5, 6)), (3, (3, 4, 5))):
        data = keras.Input(shaped(size, 2, first), name=f"data{rank}")
        inputs.append(data)
        pad = getattr(layers, f"ZeroPadding{rank}D")
        crop = getattr(layers, f"Cropping{rank}D")
        grow = getattr(layers, f"UpSampling{rank}D")
        pairs, crops = ((1, 2), (0, 3), (2, 0)), ((1, 1), (0, 2), (2, 0))
        out += [
            pad(2)(data),
            pad(pairs[:rank])(data),
            crop(1)(data),
            crop(crops[:rank])(data),
            grow((2, 3, 1)[:rank])(data),
        ]
    out.append(layers.UpSampling2D((2, 3), interpolation="bilinear")(inputs[0]))
    return keras.Model(inputs, out, name="padding_layers")


@network()
def activations(keras, layers, first):
    """Every activation, as an argument and as a layer."""
    new = is_keras_3(keras)
    names = ["elu", "exponential", "gelu", "hard_sigmoid", "linear", "mish", "relu", "selu", "sigmoid", "softmax"]
    names += ["softplus", "softsign", "swish", "tanh"]
    names += ["hard_silu", "leaky_relu", "log_softmax", "relu6", "silu"] if new else []
    slope = "negative_slope" if new else "alpha"
    data = keras.Input((3, 6))
    out = [layers.Dense(2, activation=name, name=f"dense_{name}")(data) for name in names]
    out += [layers.Activation(name, name=f"layer_{name}")(data) for name in names]
    out += [
        layers.ReLU()(data),
        layers.ReLU(max_value=1.0, negative_slope=0.25, threshold=0.5)(data),
        layers.LeakyReLU(**{slope: 0.2})(data),
        layers.PReLU()(data),
        layers.PReLU(shared_axes=[1])(data),
        layers.ELU(alpha=0.5)(data),
        layers.Softmax()(data),
        layers.Softmax(axis=1)(data),
    ]
    if not new:
        out.append(layers.ThresholdedReLU(theta=0.7)(data))
    return keras.Model(data, out, name="activations")


@network()
def normalizations(keras, layers, first):
    """Batch, layer, group and unit normalization, and the two preprocessing layers."""
    data = keras.Input((5, 6, 4))
    out = [
        layers.BatchNormalization()(data),
        layers.BatchNormalization(axis=1, scale=False, epsilon=0.01, momentum=0.5)(data),
        layers.BatchNormalization(axis=2, center=False)(data),
        layers.BatchNormalization(center=False, scale=False)(data),
        layers.LayerNormalization()(data),
        layers.LayerNormalization(axis=[1, 2, 3], epsilon=1e-5)(data),
        layers.LayerNormalization(center=False, scale=False)(data),
        layers.GroupNormalization(groups=2)(data),
        layers.GroupNormalization(groups=-1, center=False, scale=False)(data),
        layers.UnitNormalization()(data),
        layers.SpectralNormalization(layers.Conv2D(3, 2))(data),
        layers.RMSNormalization()(data) if is_keras_3(keras) else layers.BatchNormalization(axis=[1, 3])(data),
        layers.Rescaling(1 / 127.5, offset=-1.0)(data),
        layers.Normalization(axis=-1, mean=[0.5, -1.0, 2.0, 0.0], variance=[1.0, 4.0, 0.25, 2.0])(data),
        layers.Normalization(axis=None, mean=0.5, variance=2.0, invert=True)(data),
        layers.Normalization(axis=-1)(data),
    ]
    return keras.Model(data, out, name="normalizations")


@network()
def merging(keras, layers, first):
    """Layers of several inputs, axes of length 1 repeated."""
    one, other = keras.Input((4, 3), name="one"), keras.Input((4, 3), name="other")
    row = keras.Input((1, 3), name="row")
    out = [
        layers.Add()([one, other, one]),
        layers.Add()([one, row]),
        layers.Subtract()([one, other]),
        layers.Multiply()([one, other, row]),
        layers.Average()([one, other, other]),
        layers.Maximum()([one, other]),
        layers.Minimum()([one, other]),
        layers.Concatenate()([one, other]),
        layers.Concatenate(axis=1)([one, row, other]),
        layers.Dot(axes=2)([one, other]),
        layers.Dot(axes=(1, 1), normalize=True)([one, other]),
    ]
    return keras.Model([one, other, row], out, name="merging")


@network()
def shapes(keras, layers, first):
    """Flatten, Reshape, Permute, RepeatVector, Dense on more than two axes, Embedding."""
    data, words = keras.Input((4, 6, 3)), keras.Input((5,), dtype="int32", name="words")
    out = [
        layers.Flatten()(data),
        layers.Reshape((6, 12))(data),
        layers.Reshape((2, -1, 3))(data),
        layers.Permute((3, 1, 2))(data),
        layers.RepeatVector(3)(layers.GlobalAveragePooling2D()(data)),
        layers.Dense(5, activation="relu")(data),
        layers.Dense(4)(layers.Reshape((4, 18))(data)),
        layers.Dense(2)(layers.Flatten()(layers.Conv2D(2, 3, strides=2, padding="same")(data))),
        layers.Conv1D(3, 3, padding="same")(layers.Embedding(EMBEDDED, 4)(words)),
    ]
    return keras.Model([data, words], out, name="shapes")


@network()
def both_formats(keras, layers, first):
    """A layer of the other data format."""
    data = keras.Input((4, 6, 3))
    out = [layers.Flatten(data_format="channels_first")(data), layers.Conv2D(2, 2, padding="same")(data)]
    return keras.Model(data, out, name="both_formats")


@network()
def noise(keras, layers, first):
    """Layers that do something in training only."""
    line, picture, film = keras.Input((5, 3)), keras.Input((4, 5, 3)), keras.Input((2, 3, 4, 3))
    out = [
        layers.SpatialDropout1D(0.3)(layers.GaussianNoise(0.1)(line)),
        layers.AlphaDropout(0.3)(layers.Dropout(0.5, noise_shape=(None, 1, 3))(line)),
        layers.SpatialDropout2D(0.3)(layers.GaussianDropout(0.1)(picture)),
        layers.SpatialDropout3D(0.3)(layers.ActivityRegularization(0.1)(film)),
    ]
    return keras.Model([line, picture, film], out, name="noise")


@network()
def operators(keras, layers, first):
    """Operators between layers, as Keras's applications have them."""
    data, ops = keras.Input((4, 6, 3)), keras.ops if is_keras_3(keras) else _tensorflow_by_names_of_keras_3()
    mean = ops.mean(data, axis=(1, 2), keepdims=True)
    out = [
        ops.pad(data, ((0, 0), (1, 0), (0, 2), (0, 0))),
        ops.reshape(data, (-1, 24, 3)),
        ops.transpose(data, (0, 3, 1, 2)),
        ops.relu6(data + 3.0),
        ops.concatenate([data, -data], axis=-1),
        ops.expand_dims(ops.squeeze(mean, (1, 2)), 1),
        ops.maximum(ops.abs(data), 0.5) ** 2,
        ops.sqrt(ops.square(data) + 1.0),
        mean,
        data[:, 1:, :-1],
        data[:, ::2, 1, :],
        (2.0 * data - 1.0) / 3.0,
        1.0 - data * mean,
        layers.Conv2D(2, 1)(data) + layers.Conv2D(2, 1)(data),
    ]
    return keras.Model(data, out, name="operators")


def _tensorflow_by_names_of_keras_3():
    import tensorflow as tf

    own = {"mean": tf.reduce_mean, "relu6": tf.nn.relu6, "concatenate": tf.concat}
    return types.SimpleNamespace(**{**vars(tf), **own})


@network()
def more_operators(keras, layers, first):
    """Every other operator; those of Keras 3 that TensorFlow has no function for, too."""
    data, square = keras.Input((4, 6, 4)), keras.Input((3, 3), name="square")
    out = (_of_keras_3 if is_keras_3(keras) else _of_tensorflow)(keras, data, square)
    return keras.Model([data, square], out, name="more_operators")


def _of_tensorflow(keras, data, square):
    import tensorflow as tf

    positive = tf.abs(data) + 0.5
    return [
        *(tf.exp(data), tf.math.log(positive), tf.math.reciprocal(positive)),
        *(tf.math.rsqrt(positive), tf.identity(data)),
        *(tf.cast(data, "float32") + 1.0, tf.stop_gradient(data) * 2.0, tf.minimum(data, positive), data**3),
        *(tf.clip_by_value(data, -0.5, 0.25), tf.nn.silu(data, beta=2.0), tf.nn.leaky_relu(data, 0.1)),
        *(tf.reduce_sum(data, [1, 2]), tf.reduce_max(data, -1), tf.reduce_min(data, 2, True), tf.reduce_prod(data, 3)),
        *(tf.math.l2_normalize(data, -1), tf.math.l2_normalize(data * 1e-3, [1, 2], 1e-3)),
        *(tf.matmul(square, square), tf.matmul(square, square, transpose_b=True)),
        *(tf.nn.depth_to_space(data, 2), tf.nn.space_to_depth(data, 2), tf.image.resize(data, (5, 9))),
        *(tf.image.resize(data, (1, 1)), tf.image.resize(data, (1, 5)), tf.image.resize(data, (7, 1))),
        *tf.split(data, 2, axis=-1),
        *tf.split(data, [1, -1], axis=2),
        *(tf.stack([data, positive], 1), tf.tile(data, [1, 2, 3, 2]), tf.squeeze(tf.reduce_sum(data, 1, True))),
        *(data[:, -10:], data[:, :10, 2:], data[..., -1], data[:, 1:3, tf.newaxis], data[:, ::-1]),
        *(tf.reshape(data, [tf.shape(data)[0], -1, 4]), tf.cumsum(data, 2, exclusive=True, reverse=True)),
        tf.reshape(data, tf.stack([tf.shape(data)[0], tf.shape(data)[1] * 6, 4])),
        *(tf.nn.max_pool2d(data, 3, 2, "SAME"), tf.nn.avg_pool(data, [1, 2, 3, 1], 1, "VALID")),
        *(positive ** [0.5, 1.0, 2.0, -1.0], tf.repeat(data, 3, axis=2), tf.reverse(data, [1, -1])),
        tf.where((data > 0.1) & (data <= 0.9), tf.where(tf.math.logical_not(data < 0.5), data, -1.0), positive),
        tf.where((data >= 0.5) | tf.not_equal(data, data), 1.0, tf.where(tf.equal(data, positive), 0.0, data)),
        *(tf.cast(tf.argmax(data, 1), "float32"), tf.cast(tf.argmin(data, -1), "float32")),
        tf.pad(data, [[0, 0], [1, 2], [3, 0], [0, 1]], "REFLECT"),
        tf.pad(data, [[0, 0], [1, 4], [0, 3], [0, 0]], "SYMMETRIC"),
        tf.nn.softmax(tf.pad(data, [[0, 0], [0, 0], [0, 0], [1, 0]])),
    ]


def _of_keras_3(keras, data, square):
    ops = keras.ops
    positive = ops.abs(data) + 0.5
    names = ("celu", "elu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu", "log_sigmoid")
    names += ("log_softmax", "gelu", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax")
    names += ("softplus", "softsign", "sparse_plus", "sparse_sigmoid", "squareplus", "tanh", "tanh_shrink")
    functions = {**vars(ops), **vars(ops.nn)}
    return [
        *(functions[name](data) for name in names),
        *(ops.threshold(data, 0.25, -2.0), ops.celu(data, alpha=0.5), ops.gelu(data, approximate=False)),
        *(ops.exp(data), ops.log(positive), ops.reciprocal(positive), ops.rsqrt(positive), ops.minimum(data, positive)),
        *(ops.cast(data, "float32") + 1.0, ops.stop_gradient(data) * 2.0, ops.clip(data, -0.5, 0.25)),
        *(ops.sum(data, axis=(1, 2)), ops.max(data, axis=-1), ops.min(data, axis=2, keepdims=True), ops.prod(data, 3)),
        *(ops.normalize(data), ops.normalize(data * 1e-3, axis=1, epsilon=1e-2), ops.matmul(square, square)),
        *(ops.image.resize(data, (5, 9)), ops.image.resize(data, (1, 5)), ops.image.resize(data, (7, 1))),
        *ops.split(data, 2, axis=-1),
        *ops.split(data, [1, 3], axis=2),
        *(ops.stack([data, positive], 1), ops.tile(data, (1, 2, 3, 2)), ops.squeeze(ops.sum(data, 1, keepdims=True))),
        *(data[:, -10:], data[:, :10, 2:], data[..., -1], data[:, 1:3, None], data[:, ::-1]),
        *(ops.reshape(data, (-1, ops.shape(data)[1] * 6, 4)), ops.cumsum(data, 1)),
        *(ops.max_pool(data, 3, 2, "same"), ops.average_pool(data, (2, 3), 1)),
        *(positive ** np.array([0.5, 1.0, 2.0, -1.0], "float32"), ops.repeat(data, 3, axis=2), ops.flip(data, 1)),
        ops.where(
            ops.logical_and(data > 0.1, data <= 0.9), ops.where(ops.logical_not(data < 0.5), data, -1.0), positive
        ),
        *(ops.cast(ops.argmax(data, 1), "float32"), ops.cast(ops.argmin(data, -1, keepdims=True), "float32")),
        ops.pad(data, ((0, 0), (1, 2), (3, 0), (0, 1)), "reflect"),
        ops.pad(data, ((0, 0), (1, 4), (0, 3), (0, 0)), "symmetric"),
        *(ops.einsum("bhwc,bhvc->bhwv", data, data), ops.einsum("bij,bhwi->bwjh", square, data[:, :, :, :3])),
        ops.softmax(ops.pad(data, ((0, 0), (0, 0), (0, 0), (1, 0)))),
    ]


@network()
def edges(keras, layers, first):
    """Where a rule meets its end: a threshold itself, one row, positions between two pixels, one part of one."""
    data, ones = keras.Input((2, 7, 3)), keras.Input((1, 4), name="ones")
    flat = layers.Flatten()(data)
    out = [
        layers.ReLU(threshold=1.0)(layers.Rescaling(0.0, offset=1.0)(data)),
        layers.ReLU(threshold=1.0, negative_slope=0.5)(layers.Rescaling(0.0, offset=1.0)(data)),
        *(layers.Resizing(*size)(data) for size in ((1, 5), (4, 1), (1, 1))),
        *(layers.Resizing(*size, interpolation="nearest")(data) for size in ((41, 3), (1, 5), (5, 22))),
        layers.Softmax()(layers.Concatenate()([layers.Dense(1)(flat), layers.Dense(3)(flat)])),
        layers.Softmax(axis=-1)(layers.Concatenate(axis=1)([layers.Conv2D(1, 1)(data), layers.Conv2D(1, 1)(data)])),
        layers.AveragePooling1D(1, padding="same")(ones),
        layers.Identity()(data),
        layers.TimeDistributed(layers.Dense(2))(data),
    ]
    if not is_keras_3(keras):
        out.append(layers.experimental.SyncBatchNormalization()(data))
    return keras.Model([data, ones], out, name="edges")


@network()
def augmented(keras, layers, first):
    """Layers that change pictures in training, and leave them as they are at inference."""
    data = keras.Input((6, 7, 3))
    out = layers.RandomFlip("horizontal")(layers.RandomCrop(6, 7)(data))
    out = layers.RandomZoom(0.2)(layers.RandomRotation(0.1)(out))
    out = layers.RandomTranslation(0.1, 0.1)(layers.RandomContrast(0.2)(layers.RandomBrightness(0.1)(out)))
    if not is_keras_3(keras):
        out = layers.RandomHeight(0.2)(layers.RandomWidth(0.2)(out))
    return keras.Model(data, layers.Conv2D(4, 3, strides=2, padding="same")(out), name="augmented")


@network()
def resizing(keras, layers, first):
    """Resizing in the ways it has, and crops."""
    data = keras.Input(shaped((6, 8), 2, first))
    out = [
        layers.Resizing(12, 16, interpolation="nearest")(data),
        layers.Resizing(9, 5, interpolation="bilinear")(data),
        layers.Resizing(3, 4, interpolation="bilinear")(data),
        layers.Resizing(9, 5, interpolation="bicubic")(data),
        layers.Resizing(7, 5, crop_to_aspect_ratio=True)(data),
        layers.CenterCrop(3, 5)(data),
        layers.CenterCrop(4, 11)(data),
    ]
    if is_keras_3(keras):
        out.append(layers.Resizing(7, 5, pad_to_aspect_ratio=True, fill_value=0.5)(data))
    else:
        out.append(layers.RandomCrop(7, 5)(data))
    return keras.Model(data, out, name="resizing")


@network()
def counted(keras, layers, first):
    """Numbers as the indices of their bins, and indices of bins as ones; layers that only Keras 2 has."""
    data, words = keras.Input((5, 4)), keras.Input((4,), dtype="int32", name="words")
    out = [layers.Rescaling(0.5)(layers.Discretization([-1.0, 0.0, 0.5])(data))]
    out += [layers.CategoryEncoding(EMBEDDED, output_mode=mode)(words) for mode in ("multi_hot", "count")]
    out.append(layers.Discretization([-0.5, 0.5], output_mode="one_hot")(layers.Dense(1)(layers.Flatten()(data))))
    if not is_keras_3(keras):
        out.append(layers.LocallyConnected1D(3, 2, activation="relu")(data))
        out.append(layers.LocallyConnected2D(2, (3, 2), (1, 2), use_bias=False)(layers.Reshape((5, 4, 1))(data)))
    return keras.Model([data, words], out, name="counted")


@network()
def recurrent(keras, layers, first):
    """Recurrent layers, and masks on their way through layers that pass them, take them and lose them."""
    data, words = keras.Input((6, 3)), keras.Input((6,), dtype="int32", name="words")
    pictures = keras.Input((3, 5, 6, 2), name="pictures")
    steps = layers.Masking(0.5)(layers.ReLU(threshold=0.5)(layers.Rescaling(1.0, offset=0.5)(data)))
    embedded = layers.Embedding(EMBEDDED, 4, mask_zero=True)(words)
    out = [
        layers.LSTM(4)(data),
        layers.GRU(3, return_sequences=True)(data),
        layers.SimpleRNN(2)(data),
        layers.Bidirectional(layers.LSTM(2, return_sequences=True))(data),
        layers.TimeDistributed(layers.Dense(2))(data),
        layers.ConvLSTM2D(8, 3, strides=2, padding="same", return_sequences=True)(pictures),
        layers.LSTM(3, activation="relu", go_backwards=True)(layers.Dense(3)(embedded)),
        layers.Bidirectional(layers.GRU(2, return_sequences=True), merge_mode="sum")(embedded),
        layers.GlobalAveragePooling1D()(layers.Add()([embedded, layers.Dropout(0.5)(embedded)])),
        layers.MultiHeadAttention(2, 3)(embedded, embedded),
        layers.SimpleRNN(3, return_sequences=True)(steps),
        layers.Conv1D(2, 3, padding="same")(steps),
    ]
    return keras.Model([data, words, pictures], out, name="recurrent")


@network()
def attention(keras, layers, first):
    """Attention layers of one head and of several, and Einstein sums."""
    data, other = keras.Input((5, 4)), keras.Input((3, 4), name="other")
    out = [
        layers.MultiHeadAttention(2, 3)(data, data),
        layers.Attention()([data, data]),
        layers.MultiHeadAttention(3, 2, value_dim=4, use_bias=False, output_shape=5)(data, other, use_causal_mask=True),
        layers.Attention(use_scale=True, score_mode="concat")([data, other]),
        layers.AdditiveAttention()([data, other]),
        layers.EinsumDense("abc,cde->abed", output_shape=(None, 2, 3), bias_axes="e", activation="relu")(data),
    ]
    if is_keras_3(keras):
        out.append(layers.GroupQueryAttention(3, 4, 2)(data, other))
    return keras.Model([data, other], out, name="attention")


# ---- weights and inputs ----------------------------------------------------------------------------------------------


def seeded(name):
    """A generator for a name, the same everywhere."""
    return np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)


def weights(model):
    """An array for each weight of the model: of the size that initialisers give, variances positive, counts kept."""
    random, arrays = seeded(f"weights of {model.name}"), []
    for variable, value in zip(model.weights, model.get_weights()):
        path = str(getattr(variable, "path", variable.name))
        name = path.split("/")[-1].split(":")[0]
        if name in ("moving_variance", "variance", "gamma"):
            array = random.uniform(0.5, 1.5, value.shape)
        elif name in ("count", "seed_generator_state"):
            array = value
        else:
            fan_in = max(int(np.prod(value.shape[:-1])), 1) if value.ndim > 1 else 16
            array = random.normal(0, min(1.0, 1.5 / fan_in**0.5), value.shape)
        arrays.append(np.asarray(array, value.dtype))
    return arrays


def inputs(model):
    """An array for each input of the model, with 11 elements along axes of any length, and then 14."""
    random = seeded(f"inputs of {model.name}")
    arrays = []
    for tensor in model.inputs:
        shape = [BATCH, *(n or 8 + 3 * axis for axis, n in enumerate(tensor.shape[1:], 1))]
        if "int" in str(tensor.dtype):
            arrays.append(random.randint(0, EMBEDDED, shape).astype("int32"))
        else:
            arrays.append(random.normal(0, 1, shape).astype("float32"))
    return arrays


def channels_first(array):
    """(N, *size, C) as (N, C, *size)."""
    return array if array.ndim < 3 else np.ascontiguousarray(np.moveaxis(array, -1, 1))
