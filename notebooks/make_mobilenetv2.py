"""Makes mobilenetv2-digits.keras and .npz for 04-keras-model.ipynb: a MobileNetV2 that tells the digits 0 to 4 apart.

    python notebooks/make_mobilenetv2.py            # trains the model and writes both files
    python notebooks/make_mobilenetv2.py --check    # loads the files, compares outputs, and writes nothing

Needs tensorflow-cpu==2.13.1 and scikit-learn 1.3, for Python 3.11; shares no code with mxsame. Takes some minutes.
The same machine gives the same values again; another one may differ in the last bits.

The model is `tf.keras.applications.MobileNetV2` with `alpha=0.35` and random initial weights, trained on scikit-learn's
digits, enlarged to 64x64. Weights are rounded to bfloat16 *before* anything is recorded, and the archive is compressed,
so that it is small. The .npz holds `logits`: the outputs for the test images, every fourth of the digits 0 to 4.
"""

import os
import sys
import tempfile
import zipfile
from pathlib import Path

os.environ["TF_DETERMINISTIC_OPS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

MODEL = Path(__file__).resolve().with_name("mobilenetv2-digits.keras")
OUTPUTS = MODEL.with_suffix(".npz")
SIZE, CLASSES, LARGEST_MOVE = 64, 5, 4
EPOCHS, BATCH = 40, 32


def data():
    """Images (N, 64, 64, 1) from -1 to 1, labels, and which of them are for testing."""
    digits = load_digits()
    stretch = np.stack([np.interp(np.linspace(0, 7, SIZE), range(8), row) for row in np.eye(8)], axis=1)
    images = (stretch @ digits.images @ stretch.T / 8 - 1).astype(np.float32)[..., None]
    chosen = digits.target < CLASSES
    test = np.arange(len(images)) % 4 == 0
    return images[chosen], digits.target[chosen], test[chosen]


def network():
    model = tf.keras.applications.MobileNetV2(
        (SIZE, SIZE, 1), alpha=0.35, weights=None, classes=CLASSES, classifier_activation=None
    )
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.momentum = 0.9  # 0.999 is for millions of images
    return model


def moved(image, label):
    """Training images are moved by a few pixels."""
    padded = tf.pad(image, [[LARGEST_MOVE] * 2, [LARGEST_MOVE] * 2, [0, 0]], constant_values=-1.0)
    return tf.image.random_crop(padded, image.shape), label


def trained(images, labels):
    """A new model with the rounded weights of a trained one: without its optimizer."""
    model = network()
    rate = tf.keras.optimizers.schedules.CosineDecay(3e-3, EPOCHS * (len(images) // BATCH))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(rate), loss, ["accuracy"])
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=1)
    model.fit(batches.map(moved).batch(BATCH, drop_remainder=True), epochs=EPOCHS, verbose=2)
    rounded = network()
    rounded.set_weights([tf.cast(tf.cast(x, tf.bfloat16), tf.float32).numpy() for x in model.get_weights()])
    return rounded


def save(model):
    """A .keras archive whose entries are compressed."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "model.keras"
        model.save(plain)
        with zipfile.ZipFile(plain) as source, zipfile.ZipFile(MODEL, "w") as target:
            for name in source.namelist():
                target.writestr(zipfile.ZipInfo(name), source.read(name), zipfile.ZIP_DEFLATED, 9)


def main():
    tf.keras.utils.set_random_seed(3)
    images, labels, test = data()
    if "--check" in sys.argv[1:]:
        logits = tf.keras.models.load_model(MODEL, compile=False)(images[test]).numpy()
        difference = np.abs(logits - np.load(OUTPUTS)["logits"]).max()
        print(f"largest difference {difference:.1e}")
        return int(not difference < 1e-4)
    model = trained(images[~test], labels[~test])
    logits = model(images[test], training=False).numpy()
    print(f"accuracy {np.mean(logits.argmax(1) == labels[test]):.4f}, {model.count_params():,} parameters")
    save(model)
    np.savez_compressed(OUTPUTS, logits=logits, recorded_with=f"TensorFlow {tf.__version__}")
    print(f"{MODEL.name}: {MODEL.stat().st_size:,} bytes; {OUTPUTS.name}: {OUTPUTS.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
