"""Makes what `mxsame demo` ships: weights, and every layer's output as TensorFlow 2.13.1 computes it.

    python tests/golden/make_demo.py    # the recordings, from mxsame/data/photograph.png

Needs tensorflow-cpu==2.13.1 and shares no code with mxsame. Takes about six minutes, nearly all of it training the
autoencoder. The same machine gives the same bytes again; another one may differ in the last bits.

Weights are rounded to short floats *before* anything is recorded: they are stored as float16, nothing is lost, and the
files stay small. They keep tf.keras's order, (height, width, in, out); outputs are (height, width, channels), exact.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "mxsame" / "data"
SEED = 20
SIZE = 224
LUMINANCE = np.array([0.299, 0.587, 0.114])


def area_average(pixels: np.ndarray, size: int) -> np.ndarray:
    """Mean over equal square blocks, 0..1: sums of integers, so that every machine gets the same floats."""
    block = pixels.shape[0] // size
    sums = pixels.astype(np.int64).reshape(size, block, size, block, -1).sum(axis=(1, 3))
    return sums / (255.0 * block * block)


def colour(pixels: np.ndarray, size: int) -> np.ndarray:
    return area_average(pixels, size).astype(np.float32)


def grey(pixels: np.ndarray, size: int) -> np.ndarray:
    mean = area_average(pixels, size)
    weighted = mean[..., 0] * LUMINANCE[0] + mean[..., 1] * LUMINANCE[1] + mean[..., 2] * LUMINANCE[2]
    return weighted.astype(np.float32)[..., None]


def shorten(values: np.ndarray, step: float) -> np.ndarray:
    """The nearest multiples of `step`, as float16 without loss."""
    rounded = np.round(np.asarray(values, np.float64) / step) * step
    short = rounded.astype(np.float16)
    if not np.array_equal(short.astype(np.float64), rounded):
        raise ValueError(f"float16 cannot hold multiples of {step} up to {np.abs(rounded).max()}")
    return short


def weight_names(layer: tf.keras.layers.Layer) -> list[str]:
    return [variable.name.split("/")[-1].split(":")[0] for variable in layer.weights]


def set_short_weights(layer: tf.keras.layers.Layer, step: float) -> None:
    layer.set_weights([shorten(value, step).astype(np.float32) for value in layer.get_weights()])


def sequential(image: np.ndarray) -> tf.keras.Model:
    """Conv-BN-relu-dropout-Conv-BN-relu-MaxPool-Conv with seeded weights; statistics near those of the photograph."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input(image.shape),
            layers.Conv2D(64, 3, padding="valid", name="conv1"),
            layers.BatchNormalization(name="norm1"),
            layers.Activation("relu", name="relu1"),
            layers.Dropout(0.25, name="dropout"),
            layers.Conv2D(64, 3, padding="same", name="conv2"),
            layers.BatchNormalization(name="norm2"),
            layers.Activation("relu", name="relu2"),
            layers.MaxPooling2D(2, 2, padding="same", name="pool"),
            layers.Conv2D(128, 3, padding="same", name="conv3"),
        ],
        name="sequential",
    )
    rng = np.random.default_rng(SEED)
    for layer in model.layers:
        if isinstance(layer, layers.Conv2D):
            kernel, bias = layer.get_weights()
            kernel = rng.normal(0, np.sqrt(2 / np.prod(kernel.shape[:3])), kernel.shape)
            layer.set_weights([kernel, rng.normal(0, 0.1, bias.shape)])
            set_short_weights(layer, 1 / 256)
        elif isinstance(layer, layers.BatchNormalization):
            seen = tf.keras.Model(model.input, layer.input)(image[None]).numpy()
            channels = seen.shape[-1]
            gamma, beta = rng.normal(1, 0.2, channels), rng.normal(0, 0.3, channels)
            mean = seen.mean(axis=(0, 1, 2)) + rng.normal(0, 0.05, channels)
            variance = seen.var(axis=(0, 1, 2)) * rng.uniform(0.7, 1.4, channels) + 2**-6
            layer.set_weights([gamma, beta, mean, variance])
            set_short_weights(layer, 1 / 256)
    return model


def training_patches(pixels: np.ndarray, count: int) -> np.ndarray:
    """Grey 28x28 patches: square windows of every size and position, mirrored at random, area averaged."""
    rng = np.random.default_rng(SEED)
    luminance = (pixels.astype(np.float64) @ LUMINANCE / 255)[..., None]
    patches = []
    for _ in range(count):
        side = int(rng.integers(28, SIZE + 1))
        top, left = (int(rng.integers(0, SIZE - side + 1)) for _ in range(2))
        patch = luminance[top : top + side, left : left + side]
        patch = tf.image.resize(patch, (28, 28), method="area").numpy()
        patches.append(patch[:, ::-1] if rng.random() < 0.5 else patch)
    return np.stack(patches).astype(np.float32)


def autoencoder(image: np.ndarray, pixels: np.ndarray, steps: int = 8000) -> tf.keras.Model:
    """28 -> 14 -> 7 -> 4 by MaxPool 2x2 SAME, a code of 4x4x8 = 128, and back; trained on the photograph."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input(image.shape),
            layers.Conv2D(16, 3, padding="same", activation="relu", name="conv1"),
            layers.MaxPooling2D(2, padding="same", name="pool1"),
            layers.Conv2D(8, 3, padding="same", activation="relu", name="conv2"),
            layers.MaxPooling2D(2, padding="same", name="pool2"),
            layers.Conv2D(8, 3, padding="same", activation="relu", name="conv3"),
            layers.MaxPooling2D(2, padding="same", name="code"),
            layers.Conv2D(8, 3, padding="same", activation="relu", name="conv4"),
            layers.UpSampling2D(2, name="up1"),
            layers.Conv2D(8, 3, padding="same", activation="relu", name="conv5"),
            layers.UpSampling2D(2, name="up2"),
            layers.Conv2D(16, 3, padding="valid", activation="relu", name="conv6"),
            layers.UpSampling2D(2, name="up3"),
            layers.Conv2D(1, 3, padding="same", activation="sigmoid", name="conv7"),
        ],
        name="autoencoder",
    )
    patches = training_patches(pixels, 8192)
    whole = np.broadcast_to(image, (16, *image.shape))
    rate = tf.keras.optimizers.schedules.CosineDecay(4e-3, steps)
    optimizer = tf.keras.optimizers.Adam(rate)
    rng = np.random.default_rng(SEED)

    @tf.function
    def train(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch, training=True) - batch))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    for step in range(steps):
        batch = np.concatenate([patches[rng.integers(0, len(patches), 48)], whole])
        loss = train(tf.constant(batch))
        if step % 1000 == 0:
            print(f"  step {step}: mean squared error {float(loss):.5f}")
    for layer in model.layers:
        set_short_weights(layer, 1 / 256)
    print(f"  reconstruction error of the photograph: {np.mean((model(image[None]) - image) ** 2):.5f}")
    return model


def stem_filters() -> np.ndarray:
    """Six 7x7 filters: edges of luminance at 0, 45, 90 and 135 degrees, red-green and blue-yellow contrast."""
    down, right = np.mgrid[-3:4, -3:4].astype(np.float64)
    blob = np.exp(-(down**2 + right**2) / (2 * 1.5**2))
    blob /= blob.sum()
    filters = [
        (right * np.cos(angle) + down * np.sin(angle))[..., None] * blob[..., None] * LUMINANCE * 2
        for angle in np.deg2rad([0, 45, 90, 135])
    ]
    filters += [blob[..., None] * np.array(weights) for weights in ([1, -1, 0], [-0.5, -0.5, 1])]
    return np.stack(filters, axis=-1)


def stem(image: np.ndarray) -> tf.keras.Model:
    """A ResNet-like beginning: 7x7 stride 2 (224 -> 112), max pool 3x3 stride 2 (112 -> 56)."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input(image.shape),
            layers.Conv2D(6, 7, 2, padding="same", name="conv"),
            layers.MaxPooling2D(3, 2, padding="same", name="pool"),
        ],
        name="stem",
    )
    model.layers[0].set_weights([stem_filters(), np.array([0, 0, 0, 0, 0.125, 0.25])])
    set_short_weights(model.layers[0], 2**-12)
    return model


def record(model: tf.keras.Model, image: np.ndarray) -> None:
    outputs = tf.keras.Model(model.input, [layer.output for layer in model.layers])(image[None], training=False)
    arrays = {}
    for layer, output in zip(model.layers, outputs):
        for name, value in zip(weight_names(layer), layer.get_weights()):
            arrays[f"{layer.name}/{name}"] = shorten(value, 2**-12)
        arrays[f"{layer.name}/output"] = output.numpy()[0]
    path = DATA / f"{model.name}.npz"
    np.savez_compressed(path, **arrays)
    print(f"{path.name}: {model.count_params():,} parameters, {path.stat().st_size:,} bytes")


def main() -> None:
    tf.keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    pixels = tf.io.decode_png((DATA / "photograph.png").read_bytes(), channels=3).numpy()
    image = colour(pixels, 224)
    record(stem(image), image)
    image = colour(pixels, 32)
    record(sequential(image), image)
    image = grey(pixels, 28)
    record(autoencoder(image, pixels), image)


if __name__ == "__main__":
    main()
